"""One figure of one contestant, as `peers` prints it and as pytest-benchmark is read."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

OURS = "kvcache"


@dataclass(frozen=True, slots=True)
class Record:
    measure: str
    contestant: str
    variant: str = "shared"
    block_size: int = 16
    streams: int = 32
    entries: int = 0
    figures: dict[str, Any] = field(default_factory=dict)
    """Such as p50_us, p99_us, blocks_per_s, bytes_per_entry, wrong, queries, by_length."""

    @property
    def comparable(self) -> bool:
        """Whether it answers right: speed at something else is no figure."""
        return not self.figures.get("wrong")


Records: TypeAlias = list[Record]

_BEST: dict[str, Callable[[Iterable[float]], float]] = {
    "p50_us": min,
    "p99_us": min,
    "blocks_per_s": max,
    "bytes_per_entry": min,
    "wrong": max,
}
_KEYS = ("measure", "contestant", "variant", "block_size", "streams", "entries")


def parse(line: str) -> Record:
    values = json.loads(line)
    return Record(**{key: values.pop(key) for key in _KEYS}, figures=values)


def to_json(record: Record) -> dict[str, Any]:
    return {key: getattr(record, key) for key in _KEYS} | record.figures


def best_of(runs: list[Records]) -> Records:
    """One record of each that the runs all have: the best figures, the most wrong answers."""
    return [_merge(same) for same in zip(*runs, strict=True)]


def _merge(same: tuple[Record, ...]) -> Record:
    figures = dict(same[0].figures)
    for name, pick in _BEST.items():
        if name in figures:
            figures[name] = pick(record.figures[name] for record in same)
    if "by_length" in figures:
        lines = zip(*(record.figures["by_length"] for record in same), strict=True)
        figures["by_length"] = [min(points) for points in lines]
    return replace(same[0], figures=figures)


def of_pytest(report: Path) -> Records:
    """What `pytest --benchmark-json` has written."""
    return [
        Record(
            measure=bench["group"],
            contestant=bench["param"],
            figures={"median_us": bench["stats"]["median"] * 1e6} | bench["extra_info"],
        )
        for bench in json.loads(report.read_text())["benchmarks"]
    ]


def select(records: Records, measure: str, **where: object) -> Records:
    return [
        record
        for record in records
        if record.measure == measure
        and all(getattr(record, key) == value for key, value in where.items())
    ]
