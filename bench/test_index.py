"""The Python-facing indexes on workload W1: the same answers, and what each takes for them.

Nothing here fails for being slow. `KVCACHE_BENCH_ENTRIES` sets the size of the workload; with
`--benchmark-disable` it is tiny.
"""

from __future__ import annotations

import itertools
import os
from typing import TYPE_CHECKING, Any

import pytest
import w1
import workload
from indexes import INDEXES, Index, fill

if TYPE_CHECKING:
    from pytest_benchmark.fixture import BenchmarkFixture

FULL_ENTRIES, FULL_QUERIES, PASSES = 1_000_000, 2000, 5
SMOKE_ENTRIES, SMOKE_QUERIES = 20_000, 50


@pytest.fixture(scope="module")
def load(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> workload.Workload:
    smoke = request.config.getoption("benchmark_disable")
    default = SMOKE_ENTRIES if smoke else FULL_ENTRIES
    entries = int(os.environ.get("KVCACHE_BENCH_ENTRIES", default))
    queries = SMOKE_QUERIES if entries < FULL_ENTRIES else FULL_QUERIES
    if smoke and "KVCACHE_BENCH_DIR" not in os.environ:
        file = tmp_path_factory.mktemp("w1") / "w1.bin"
        w1.write(file, w1.draw(entries, 32, queries), 16)
        return workload.load(file)
    (file,) = w1.ensure(entries, 32, [16], queries)
    return workload.load(file)


@pytest.fixture(scope="module", params=INDEXES)
def kind(request: pytest.FixtureRequest) -> type[Index]:
    return INDEXES[request.param]


@pytest.fixture(scope="module")
def filled(kind: type[Index], load: workload.Workload) -> Any:
    return fill(kind, load)


def wrong(kind: type[Index], load: workload.Workload, index: Any) -> int:
    ask = kind.ask(load, index)
    return sum(kind.held(load, ask(query.prompt.tokens)) != query.answer for query in load.queries)


def test_answers_are_right(kind: type[Index], load: workload.Workload) -> None:
    index = fill(kind, load)
    assert wrong(kind, load, index) == 0
    for span in reversed(load.removes):
        kind.remove(load, span)(index)
    assert wrong(kind, load, index) > 0
    for span in load.removes:
        kind.store(load, span)(index)
    assert wrong(kind, load, index) == 0


def test_holes_count_the_same(load: workload.Workload) -> None:
    answers = []
    for kind in (INDEXES["kvcache"], INDEXES["pure python"]):
        index = fill(kind, load)
        for span in load.stores[::3]:
            for block in range(span.first + 5, span.first + span.blocks, 7):
                kind.remove(load, span._replace(first=block, blocks=1))(index)
        ask = kind.ask(load, index)
        answers.append([kind.held(load, ask(query.prompt.tokens)) for query in load.queries])
    assert answers[0] == answers[1]


@pytest.mark.benchmark(group="query W1 from numpy")
def test_query(
    benchmark: BenchmarkFixture, kind: type[Index], load: workload.Workload, filled: Any
) -> None:
    prompts = [query.prompt.tokens for query in load.queries]
    endless = itertools.cycle(prompts)

    def next_prompt() -> tuple[tuple[w1.Tokens], dict[str, Any]]:
        return (next(endless),), {}

    ask = kind.ask(load, filled)
    benchmark.pedantic(ask, setup=next_prompt, rounds=PASSES * len(prompts))
    note_percentiles(benchmark, len(prompts))
    benchmark.extra_info["wrong"] = wrong(kind, load, filled)
    benchmark.extra_info["queries"] = len(prompts)


@pytest.mark.benchmark(group="store W1")
def test_store(benchmark: BenchmarkFixture, kind: type[Index], load: workload.Workload) -> None:
    kind.empty(load)
    events = [kind.store(load, span) for span in load.stores]

    def empty() -> tuple[tuple[Any], dict[str, Any]]:
        return (kind.empty(load),), {}

    def apply(index: Any) -> None:
        for event in events:
            event(index)
        # Whoever applies events in the background has applied them by then.
        kind.ask(load, index)(load.queries[0].prompt.tokens)

    benchmark.pedantic(apply, setup=empty, rounds=3)
    if benchmark.stats:
        best = min(benchmark.stats.stats.data)
        benchmark.extra_info["blocks_per_s"] = load.entries / best
        benchmark.extra_info["includes_hashing"] = kind.HASHES


def note_percentiles(benchmark: BenchmarkFixture, prompts: int) -> None:
    """Percentiles over prompts, each prompt's figure its best of all passes."""
    if not benchmark.stats:
        return
    rounds = benchmark.stats.stats.data
    best = sorted(min(rounds[prompt::prompts]) for prompt in range(prompts))
    for name, share in (("p50_us", 0.5), ("p99_us", 0.99)):
        benchmark.extra_info[name] = best[int((prompts - 1) * share)] * 1e6
