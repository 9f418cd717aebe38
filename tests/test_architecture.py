"""Which room may name which (docs/architecture.md). A new arrow is a decision, not an accident."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
CORE = ROOT / "rust" / "kvcache-core" / "src"

RUST_ARROWS: dict[str, set[str]] = {
    "model": set(),
    "hash": {"model"},
    "decode": {"model"},
    "index": {"hash", "model"},
    "stream": {"decode", "model"},
    "ingest": {"stream", "decode", "model"},
    "directory": {"ingest", "stream", "index", "hash", "decode", "model"},
}

PYTHON_ARROWS: dict[str, set[str]] = {
    "_frozen": set(),
    "_process": {"exceptions"},
    "_stays": set(),
    "exceptions": {"_frozen"},
    "types": set(),
    "endpoint": set(),
    "protobuf_table": set(),
    "config": {"exceptions", "endpoint"},
    "stream_log": {"_core", "_process", "_stays", "types"},
    "directory": {"_core", "config", "exceptions", "stream_log"},
    "registry": {"_frozen", "_stays", "endpoint", "exceptions"},
    "discovery": {
        *("_core", "_frozen", "_process", "config", "endpoint", "exceptions"),
        *("protobuf_table", "registry", "rpc"),
    },
    "routing": {
        *("_core", "_frozen", "_process", "_stays", "exceptions", "registry", "types"),
    },
    "rpc": {"exceptions", "protobuf_table", "registry"},
    "service": {
        *("_core", "_process", "_stays", "config", "directory", "discovery"),
        *("exceptions", "registry", "routing", "types"),
    },
    "metrics": {
        *("discovery", "exceptions", "registry", "routing"),
        *("rpc", "service", "types"),
    },
    "server": {
        *("_core", "_stays", "config", "discovery", "exceptions", "metrics"),
        *("registry", "routing", "service", "snapshot_size", "types"),
    },
    "cli": {
        *("config", "demo", "directory", "discovery", "endpoint"),
        *("exceptions", "routing", "server", "snapshot_size"),
    },
    "snapshot_size": {"config"},
    "testing": {"_process", "_stays", "exceptions"},
}


@pytest.mark.parametrize("room", RUST_ARROWS)
def test_rust_rooms(room: str) -> None:
    named: set[str] = set()
    for path in (CORE / room).rglob("*.rs"):
        code = re.sub(r"//.*", "", path.read_text())
        named |= set(re.findall(r"\bcrate::(\w+)", code)) & set(RUST_ARROWS)
    assert named - {room} <= RUST_ARROWS[room]
    assert (CORE / room).is_dir()


def test_every_rust_room_is_drawn() -> None:
    assert {path.name for path in CORE.iterdir() if path.is_dir()} == set(RUST_ARROWS)


def test_the_core_never_names_its_binding() -> None:
    manifest = (CORE.parent / "Cargo.toml").read_text()
    assert "pyo3" not in manifest


def test_unsafe_code_has_two_files() -> None:
    files = {
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "rust").rglob("*.rs")
        if "target" not in path.parts
        and re.search(r"\bunsafe\s*(\{|fn|impl)", re.sub(r"//.*", "", path.read_text()))
    }
    assert files == {"rust/kvcache-core/src/index/prefetch.rs", "rust/kvcache-py/src/tokens.rs"}


def imports(path: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        modules: list[str] = []
        if isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            modules = [node.module] + [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            modules = [alias.name for alias in node.names]
        for module in modules:
            parts = module.split(".")
            if parts[0] == "kvcache" and len(parts) > 1:
                names.add(parts[1])
    return names


@pytest.mark.parametrize("room", PYTHON_ARROWS)
def test_python_rooms(room: str) -> None:
    package = ROOT / "python" / "kvcache"
    files = (
        list((package / room).rglob("*.py"))
        if (package / room).is_dir()
        else [package / f"{room}.py"]
    )
    rooms = {path.stem for path in package.glob("*.py")} | {
        path.name for path in package.iterdir() if path.is_dir()
    }
    named = {name for path in files for name in imports(path)} & (rooms | {"_core"})
    assert named - {room} <= PYTHON_ARROWS[room]
