"""Runs the measurements: the peers' binary on generated workloads, and pytest-benchmark for Python."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import records
import w1
from records import Record

if TYPE_CHECKING:
    from collections.abc import Iterator

    from records import Records

HERE = Path(__file__).parent
MANIFEST = HERE / "peers" / "Cargo.toml"
CORE_MANIFEST = HERE / "core" / "Cargo.toml"
ENTRIES, STREAMS, QUERIES = 1_000_000, 32, 2000
SWEEP_QUERIES = 500
PROCESSES = 3
STREAM_SWEEP, STREAM_SWEEP_ENTRIES = (1, 8, 32, 64, 128), 250_000
ENTRY_SWEEP = (10_000, 125_000, 1_000_000, 8_000_000, 30_000_000)
LARGE = 8_000_000
SWEEP_CONTESTANTS = "kvcache,dynamo-compressed,smg-chain"
CORE_MEASURES = ("wire", "decoding", "snapshot", "beside", "streams", "memory")
PYTHON_GOALS = ("threads.py", "sleeper.py", "http_query.py", "discovery.py", "routing.py")
VARIANTS = ("shared", "private-wires", "nothing-shared", "one-block")


def build(manifest: Path) -> Path:
    """The binary, built unless it is there."""
    command = ["cargo", "build", "--release", "--locked", "--message-format", "json"]
    built = subprocess.run(  # noqa: S603 (our own arguments)
        [*command, "--manifest-path", str(manifest)], check=True, stdout=subprocess.PIPE, text=True
    )
    messages = [json.loads(line) for line in built.stdout.splitlines()]
    return Path(next(path for message in messages if (path := message.get("executable"))))


@contextmanager
def pinned(cores: int) -> Iterator[None]:
    """What is started inside runs on that many of the last cores."""
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, sorted(allowed)[-cores:])
    try:
        yield
    finally:
        os.sched_setaffinity(0, allowed)


def measure(binary: Path, what: str, file: Path, *flags: str, cores: int = 1) -> Records:
    """The best of several processes: in some, one index is several times slower from beginning to end."""
    once = [run(binary, what, file, *flags, cores=cores) for _ in range(PROCESSES)]
    return records.best_of(once)


def run(binary: Path, what: str, file: Path, *flags: str, cores: int) -> Records:
    print(f"{what} {file.stem} {' '.join(flags)}", file=sys.stderr, flush=True)
    with pinned(cores):
        done = subprocess.run(  # noqa: S603 (our own arguments)
            [binary, what, file, *flags], check=True, stdout=subprocess.PIPE, text=True
        )
    return [records.parse(line) for line in done.stdout.splitlines()]


def mark(found: Records, **figures: object) -> Records:
    """The same records, with what they are part of."""
    for record in found:
        record.figures.update(figures)
    return found


def main_runs(binary: Path, rounds: int) -> Iterator[Record]:
    small, large = w1.ensure(ENTRIES, STREAMS, [16, 128], QUERIES)
    wanted = ("--rounds", str(rounds))
    for file in (small, large):
        yield from measure(binary, "queries", file, *wanted)
        for variant in VARIANTS if file is small else VARIANTS[:1]:
            yield from measure(binary, "updates", file, *wanted, "--variant", variant)
    yield from measure(binary, "concurrent", small, *wanted, cores=2)
    yield from measure(binary, "holes", small, "--rounds", "1")


def sweep(binary: Path, entries: int, streams: int, rounds: int) -> Iterator[Record]:
    (file,) = w1.ensure(entries, streams, [16], SWEEP_QUERIES)
    wanted = ("--rounds", str(rounds), "--contestants", SWEEP_CONTESTANTS)
    for what in ("queries", "updates"):
        if entries > LARGE:
            # What takes minutes is told once.
            yield from run(binary, what, file, *wanted, cores=1)
        else:
            yield from measure(binary, what, file, *wanted)


def peers(rounds: int) -> Records:
    """Everything that the peers take part in."""
    binary = build(MANIFEST)
    found = mark(list(main_runs(binary, rounds)), main=True)
    for streams in STREAM_SWEEP:
        few = list(sweep(binary, STREAM_SWEEP_ENTRIES, streams, rounds))
        found += mark(few, sweep="streams")
    for entries in ENTRY_SWEEP:
        found += mark(list(sweep(binary, entries, STREAMS, rounds)), sweep="entries")
    return found


def promised() -> Records:
    """What the goals are about: the core by itself, and the layers above it."""
    binary = build(CORE_MANIFEST)
    commands = [[str(binary), measure] for measure in CORE_MEASURES]
    commands += [[sys.executable, str(HERE / script)] for script in PYTHON_GOALS]
    return [record for command in commands for record in printed(command)]


def simulated(*flags: str) -> Records:
    """A fleet under each policy. No clock is read: whatever else runs changes no figure."""
    return printed([sys.executable, str(HERE / "simulation.py"), *flags])


def printed(command: list[str]) -> Records:
    """The records that a command prints, one a line."""
    print(" ".join(command), file=sys.stderr, flush=True)
    done = subprocess.run(  # noqa: S603 (our own arguments)
        command, check=True, stdout=subprocess.PIPE, text=True
    )
    return [records.parse(line) for line in done.stdout.splitlines()]


def criterion() -> Records:
    """Single operations of the core, by criterion; `mean_ns` is its estimate."""
    command = ["cargo", "bench", "--locked", "--manifest-path", str(CORE_MANIFEST)]
    folder = w1.directory() / "criterion"
    shutil.rmtree(folder, ignore_errors=True)
    with pinned(1):
        subprocess.run(  # noqa: S603 (our own arguments)
            command, check=True, env=os.environ | {"CRITERION_HOME": str(folder)}
        )
    found = []
    for file in sorted(folder.glob("*/*/*/new/estimates.json")):
        group, operation, block_size = file.parts[-5:-2]
        mean_ns = json.loads(file.read_text())["mean"]["point_estimate"]
        figures = {"mean_ns": mean_ns}
        found.append(Record(group, operation, "criterion", int(block_size), figures=figures))
    return found


def python(folder: Path, entries: int) -> Records:
    """The Python-facing measures; pytest prints their table as well."""
    report = folder / "pytest.json"
    command = [sys.executable, "-m", "pytest", str(HERE), "-q", "--benchmark-group-by=group"]
    environment = os.environ | {
        "KVCACHE_BENCH_ENTRIES": str(entries),
        "KVCACHE_BENCH_DIR": str(folder),
    }
    with pinned(1):
        subprocess.run(  # noqa: S603 (our own arguments)
            [*command, f"--benchmark-json={report}"], check=True, env=environment
        )
    return records.of_pytest(report)
