# The same names as in CI and in CONTRIBUTING. Everything is set up on the way, in .venv and target/.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
DURATION ?=
export PIP_DISABLE_PIP_VERSION_CHECK = 1

RUST_SOURCES   := $(shell find rust -name '*.rs' -o -name 'Cargo.toml' | grep -v /target/) Cargo.toml Cargo.lock
PYTHON_SOURCES := $(shell find python -name '*.py' -o -name '*.pyi') pyproject.toml README.md

.PHONY: build check lint test test-rust test-python bench bench-smoke fuzz demo clean system system-tests

build: $(VENV)/installed

# What the build needs from the system: a C linker for Rust, headers are not needed (stable ABI).
system:
	@./scripts/require-system

$(VENV)/tools: constraints.txt requirements-dev.txt | system
	@$(PYTHON) -c 'import sys; sys.exit("kvcache needs Python 3.11 or later: this is " + sys.version.split()[0] if sys.version_info < (3, 11) else 0)'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q -r requirements-dev.txt -c constraints.txt
	touch $@

# Tests run what users get: an installed wheel, not the source tree.
$(VENV)/installed: $(VENV)/tools $(RUST_SOURCES) $(PYTHON_SOURCES)
	rm -rf target/wheels
	$(BIN)/maturin build --release -q -o target/wheels -i $(BIN)/python
	$(BIN)/python -m pip install -q --force-reinstall --no-deps target/wheels/*.whl
	touch $@

check lint: build
	cargo fmt --all -- --check
	cargo clippy --workspace --all-targets --locked -- -D warnings
	$(BIN)/ruff format --check python tests bench examples
	$(BIN)/ruff check python tests bench examples
	$(BIN)/mypy
	$(BIN)/python -m mypy.stubtest kvcache._core --mypy-config-file pyproject.toml

test-rust: | system
	cargo test --workspace --locked

# The tests run a real etcd.
system-tests:
	@./scripts/require-system tests

test-python: build | system-tests
	$(BIN)/python -m pytest

test: check test-rust test-python bench-smoke

# Figures need a quiet machine; the smoke mode only proves that the benchmarks run.
bench: build | system-tests
	$(BIN)/python bench/report.py

bench-smoke: build | system-tests
	$(BIN)/python bench/report.py --smoke

# libFuzzer with coverage and AddressSanitizer, without needing cargo-fuzz to be installed.
FUZZ_SECONDS ?= 30
FUZZ_FLAGS := -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
	-Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
	-Cllvm-args=-sanitizer-coverage-trace-compares -Zsanitizer=address --cfg fuzzing

fuzz:
	for target in frame_reader xllm_batch; do \
		mkdir -p rust/fuzz/corpus/$$target && (cd rust/fuzz && RUSTFLAGS="$(FUZZ_FLAGS)" cargo +nightly run -q --release \
			--target $$(rustc -vV | sed -n 's/host: //p') --bin $$target -- -max_total_time=$(FUZZ_SECONDS) corpus/$$target) || exit 1; \
	done

demo: build
	$(BIN)/kvcache demo $(if $(DURATION),--duration $(DURATION))

clean:
	rm -rf $(VENV) target
