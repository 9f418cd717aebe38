"""Compares what is promised with what was measured: one table of the figures of `core/` and of the Python measures."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from records import Record, Records, select

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


class Beside(NamedTuple):
    """What the same run measured too, and what puts the figure into proportion."""

    title: str
    key: str
    scale: float = 1.0


class Goal(NamedTuple):
    measure: str
    title: str
    key: str
    bound: float
    """In the unit of the title."""
    scale: float = 1.0
    more_is_better: bool = False
    beside: tuple[Beside, ...] = ()


M, MS, GB = 1e-6, 1e3, 1e-9
OF_SNAPSHOT = (Beside("decode", "decode_s"), Beside("apply", "apply_s"))
LONGEST = (
    Beside("longest", "longest_us"),
    Beside("idle: longest", "idle_longest_us"),
    Beside("p99", "idle_p99_us"),
)
MANY = (Beside("many, µs", "p50_us"), Beside("8 streams, µs", "few_p50_us"))
GOALS = (
    Goal(
        "wire to visible",
        "socket to visible, M blocks/s",
        "blocks_per_s",
        1.5,
        M,
        more_is_better=True,
        beside=(Beside("receiving alone", "received_blocks_per_s", M),),
    ),
    Goal(
        "decode and apply",
        "decoding, hashing and indexing, times hashing alone",
        "ratio",
        5,
        beside=(
            Beside("M blocks/s: all", "blocks_per_s", M),
            Beside("decoding", "decoding_blocks_per_s", M),
            Beside("hashing and indexing", "applying_blocks_per_s", M),
            Beside("hashing", "hashing_blocks_per_s", M),
        ),
    ),
    Goal("first snapshot", "snapshot to published, s", "seconds", 0.5, beside=OF_SNAPSHOT),
    Goal("nothing new", "calibration that finds nothing new, s", "seconds", 0.5),
    Goal("one block less", "calibration that finds one block less, s", "seconds", 0.5),
    Goal(
        "first snapshot",
        "longest query meanwhile, times the idle p99",
        "ratio",
        8,
        beside=LONGEST,
    ),
    Goal(
        "query beside ingest",
        "query p99 beside ingest, times idle",
        "ratio",
        2,
        beside=(
            Beside("beside hashing", "hashing_ratio"),
            Beside("µs: beside ingest", "p99_us"),
            Beside("idle", "idle_p99_us"),
        ),
    ),
    Goal(
        "two Python threads",
        "queries by two Python threads, times one",
        "ratio",
        1.8,
        more_is_better=True,
        beside=(
            Beside("two processes", "processes_ratio"),
            Beside("hashlib, calls as long", "hashlib_ratio"),
        ),
    ),
    Goal(
        "sleeper beside queries",
        "lateness of a thread beside one that queries, p99, switch intervals",
        "intervals",
        3,
        beside=(
            Beside("beside Python alone", "python_intervals"),
            Beside("longest, ms", "longest_ms"),
        ),
    ),
    Goal(
        "many streams, from tokens", "many streams, from tokens, times 8", "ratio", 1.4, beside=MANY
    ),
    Goal("many streams, from keys", "many streams, from keys, times 8", "ratio", 1.4, beside=MANY),
    Goal(
        "query over HTTP",
        "HTTP query more than a constant, ms",
        "more_ms",
        0.4,
        beside=(Beside("query", "p50_ms"), Beside("constant", "constant_p50_ms")),
    ),
    Goal(
        "route",
        "choosing for a prompt, times its query",
        "ratio",
        2,
        beside=(
            Beside("µs: choice", "route_us"),
            Beside("query", "query_us"),
            Beside("corrected", "corrected_us"),
            Beside("two threads, times one", "threads_ratio"),
        ),
    ),
    Goal(
        "full directory",
        "full directory resident, GB",
        "resident_bytes",
        1.5,
        GB,
        beside=(
            Beside("index", "index_bytes", GB),
            Beside("writers", "writers_bytes", GB),
            Beside("bytes an entry", "bytes_per_entry"),
        ),
    ),
)
HEADER = ("", "of", "measured", "goal", "met", "beside")


def number(value: float) -> str:
    """Three significant digits."""
    digits = 2 if value < 10 else 1 if value < 100 else 0
    return f"{value:.{digits}f}"


def rows(records: Records) -> Iterator[Sequence[str]]:
    """One for each goal and each record of its measure."""
    for goal in GOALS:
        for record in select(records, goal.measure):
            yield row(goal, record)


def row(goal: Goal, record: Record) -> Sequence[str]:
    value = record.figures[goal.key] * goal.scale
    met = value >= goal.bound if goal.more_is_better else value <= goal.bound
    beside = ", ".join(
        f"{title} {number(record.figures[key] * scale)}" for title, key, scale in goal.beside
    )
    return (
        goal.title,
        f"{record.variant}, blocks of {record.block_size}",
        number(value),
        f"{'≥' if goal.more_is_better else '≤'} {goal.bound:g}",
        "yes" if met else "no",
        beside or "-",
    )
