"""Markdown tables of records. Beside each figure stands how many times as good kvcache's is, in the same run."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import goals
from goals import number
from records import OURS, Record, Records, select

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence


class Column(NamedTuple):
    """A measure's figures, as one column."""

    title: str
    measure: str
    keys: tuple[str, ...]
    """Which figures, the first one compared; several are shown with slashes."""
    scale: float = 1.0
    more_is_better: bool = False

    @property
    def measure_is_rate(self) -> bool:
        return self.keys == ("blocks_per_s",)


QUERIES = (
    Column("from tokens, p50 / p99 µs", "query from tokens", ("p50_us", "p99_us")),
    Column("from keys, p50 / p99 µs", "query from keys", ("p50_us", "p99_us")),
    Column("`score_into`, p50 / p99 µs", "score_into", ("p50_us", "p99_us")),
    Column("hashing alone, p50 / p99 µs", "hashing alone", ("p50_us", "p99_us")),
)
UPDATES = (
    Column("stores, M blocks/s", "apply stores", ("blocks_per_s",), 1e-6, more_is_better=True),
    Column("removes, M blocks/s", "apply removes", ("blocks_per_s",), 1e-6, more_is_better=True),
    Column("bytes an entry", "memory", ("bytes_per_entry",)),
)
BESIDE = "query beside a writer"
BESIDE_A_WRITER = (
    Column("query from tokens, p50 / p99 µs", BESIDE, ("p50_us", "p99_us")),
    Column("writer, M blocks/s", BESIDE, ("blocks_per_s",), 1e-6, more_is_better=True),
)
PYTHON = (
    Column("query from numpy, p50 / p99 µs", "query W1 from numpy", ("p50_us", "p99_us")),
    Column("stores, M blocks/s", "store W1", ("blocks_per_s",), 1e-6, more_is_better=True),
)
FLEET = "simulated fleet"
FLEET_COLUMNS = (
    ("tokens reused, %", "hit_rate", 100.0),
    ("wait, mean s", "wait_mean_s", 1.0),
    ("wait, p99 s", "wait_p99_s", 1.0),
    ("first token, mean s", "ttft_mean_s", 1.0),
    ("most requests, times the mean", "spread", 1.0),
)
VARIANTS = {
    "shared": "engines agree on wire hashes",
    "private-wires": "wire hashes of its own for each engine",
    "nothing-shared": "no block in two engines",
    "one-block": "one block an event",
}


LARGE = 5_000_000
"""Entries from which a sweep's point has tables of its own."""


def sweeps(record: Record) -> bool:
    return record.figures.get("sweep") == "entries"


def grid(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def times(ours: float, theirs: float, *, more_is_better: bool) -> str:
    """How many times as good ours is; under 1, theirs is better."""
    ratio = ours / theirs if more_is_better else theirs / ours
    return f"{number(ratio)}x"


def cell(column: Column, record: Record | None, ours: Record | None) -> str:
    if record is None:
        return "-"
    value = " / ".join(number(record.figures[key] * column.scale) for key in column.keys)
    if column.measure_is_rate and record.figures.get("includes_hashing"):
        value += " with hashing"
    if not record.comparable:
        return f"({value}: {record.figures['wrong']}/{record.figures['queries']} answers wrong)"
    if ours is None or record is ours:
        return value
    key = column.keys[0]
    ratio = times(ours.figures[key], record.figures[key], more_is_better=column.more_is_better)
    return f"{value} ({ratio})"


def table(records: Records, columns: Sequence[Column], **where: object) -> str:
    """A contestant a row."""
    wanted = [
        {record.contestant: record for record in select(records, column.measure, **where)}
        for column in columns
    ]
    names = dict.fromkeys(name for found in wanted for name in found)
    rows = []
    for name in names:
        wrong = [
            f.figures["wrong"]
            for found in wanted
            if (f := found.get(name)) and "wrong" in f.figures
        ]
        cells = [
            cell(column, found.get(name), found.get(OURS))
            for column, found in zip(columns, wanted, strict=True)
        ]
        rows.append([name, *cells, f"{max(wrong)}" if wrong else "-"])
    return grid(["", *(column.title for column in columns), "wrong answers"], rows)


def holes(records: Records) -> str:
    rows = [
        [record.contestant, *(str(held) for held in record.figures["held"])]
        for record in select(records, "hole")
    ]
    right = next(iter(select(records, "hole")))
    rows.append(["right", *(str(held) for held in right.figures["right"])])
    return grid(["", "stored", "block 50 evicted", "stored again"], rows)


def operations(records: Records) -> str:
    """Single operations of the core: a prompt's beside hashing the prompt, a message's beside hashing the message."""
    rows = []
    found = [record for record in records if record.variant == "criterion"]
    for record in sorted(found, key=lambda one: (one.block_size, one.measure, one.contestant)):
        same = {"block_size": record.block_size, "contestant": "hash", "variant": "criterion"}
        hashing = next(iter(select(records, record.measure, **same)))
        cost, unit = record.figures["mean_ns"], hashing.figures["mean_ns"]
        label = f"{record.measure}: {record.contestant}"
        rows.append([label, str(record.block_size), number(cost / 1e3), number(cost / unit)])
    return grid(["operation", "tokens a block", "µs", "times hashing its tokens"], rows)


def fleet(records: Records) -> list[tuple[str, str]]:
    """(heading, table) of each load that a fleet was simulated under, a policy a row."""
    found = []
    runs = select(records, FLEET)
    for per_s in sorted({record.figures["sessions_per_s"] for record in runs}):
        same = [record for record in runs if record.figures["sessions_per_s"] == per_s]
        rows = [
            [
                record.contestant,
                record.variant,
                *(number(record.figures[key] * scale) for _, key, scale in FLEET_COLUMNS),
                str(record.figures["herding"]),
            ]
            for record in same
        ]
        header = ["", "queues", *(title for title, _, _ in FLEET_COLUMNS), "largest burst"]
        first = same[0]
        reachable = round(first.figures["reachable"] * 100)
        heading = (
            f"{first.streams} instances, {per_s:g} sessions/s, {first.entries} requests, "
            f"of whose tokens {reachable} % came before"
        )
        found.append((heading, grid(header, rows)))
    return found


def main_sections(records: Records) -> Iterator[tuple[str, str]]:
    """The workload at its usual size."""
    main = [record for record in records if record.figures.get("main")]
    for size in sorted({record.block_size for record in main}):
        if select(main, "query from tokens", block_size=size):
            heading = f"Queries, blocks of {size} tokens, one thread"
            yield heading, table(main, QUERIES, block_size=size)
    for size in sorted({record.block_size for record in main}):
        for variant, meaning in VARIANTS.items():
            where = {"block_size": size, "variant": variant}
            if select(main, "apply stores", **where):
                heading = f"Updates, blocks of {size} tokens, {meaning}"
                yield heading, table(main, UPDATES, **where)
    if select(main, BESIDE):
        yield "A query beside a writer, two cores", table(main, BESIDE_A_WRITER)
    if select(main, "hole"):
        yield "Leading blocks counted around a hole", holes(main)


def large_sections(records: Records) -> Iterator[tuple[str, str]]:
    """The larger points of the sweep over entries."""
    large = [record for record in records if record.entries > LARGE and sweeps(record)]
    for entries in sorted({record.entries for record in large}):
        size = f"{round(entries / 1e6)} M entries, blocks of 16 tokens"
        yield f"Queries, {size}", table(large, QUERIES, entries=entries)
        yield f"Updates, {size}", table(large, UPDATES, entries=entries)


def followed(records: Records) -> str:
    """What following etcd takes, with the size of the world it was measured in."""
    (found,) = select(records, "discovery")
    figures, memory = found.figures, found.figures["resident_mb"]
    rows = (
        (f"list of {found.entries} registrations, and their streams planned", "listed_s", "s", 1),
        ("changes a second", "changes_per_second", "", 1),
        ("CPU a change, planning included", "cpu_us_a_change", "µs", 1),
        ("from put to followed, p50 (compared every 50 ms)", "delay_p50_ms", "ms", 1),
        ("from put to followed, p99", "delay_p99_ms", "ms", 1),
        ("changes that were seen in time", "changes_seen_share", "%", 100),
    )
    lines = [
        [title, f"{number(figures[key] * scale)} {unit}".strip()]
        for title, key, unit, scale in rows
    ]
    lines.append(
        [
            f"resident before {figures['flaps']} lease flaps, after a tenth, after all",
            f"{memory[0]} MB, {memory[1]} MB, {memory[-1]} MB",
        ]
    )
    return grid(["following etcd", ""], lines)


def sections(records: Records) -> list[tuple[str, str]]:
    """(heading, table) of everything that was measured."""
    found = [*main_sections(records), *large_sections(records)]
    if select(records, "query W1 from numpy"):
        found.append(("From Python", table(records, PYTHON)))
    if any(record.variant == "criterion" for record in records):
        found.append(("Single operations of the core, by criterion", operations(records)))
    if select(records, "discovery"):
        found.append(("Discovery", followed(records)))
    if promised := list(goals.rows(records)):
        found.append(("Goals", grid(goals.HEADER, promised)))
    return found
