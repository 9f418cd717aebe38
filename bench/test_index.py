"""`PrefixIndex` against the pure-Python index: the same seeded workload, the same answers, in one run.

`make bench` prints both in one table with their ratio; nothing here fails for being slow.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import kvcache
import pytest
import workload
from pure_python import PurePythonIndex

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_benchmark.fixture import BenchmarkFixture


@pytest.fixture(scope="module")
def load(request: pytest.FixtureRequest) -> workload.Workload:
    smoke = request.config.getoption("benchmark_disable")
    return workload.make(prompts=2 if smoke else 20, continuations=2 if smoke else 10, queries=20)


def fill_native(load: workload.Workload) -> kvcache.PrefixIndex:
    index = kvcache.PrefixIndex(load.block_size)
    for store in load.stores:
        index.store(store.worker, store.hashes, store.token_ids, store.parent)
    return index


def fill_python(load: workload.Workload) -> PurePythonIndex:
    index = PurePythonIndex(load.block_size)
    for store in load.stores:
        index.store(store.worker, store.hashes, store.token_ids)
    return index


def test_answers_agree(load: workload.Workload) -> None:
    native, python = fill_native(load), fill_python(load)
    for store in load.stores[::3]:
        native.remove(store.worker, store.hashes[5::7])
        python.remove(store.worker, store.hashes[5::7])
    for token_ids in load.queries:
        got = {
            match.instance_name: (match.device_hit_tokens, match.host_only_hit_tokens)
            for match in native.query(token_ids)
        }
        assert got == python.query(token_ids)


@pytest.mark.benchmark(group="store, whole workload")
@pytest.mark.parametrize("fill", [fill_native, fill_python], ids=["kvcache", "pure python"])
def test_store(
    benchmark: BenchmarkFixture,
    load: workload.Workload,
    fill: Callable[[workload.Workload], object],
) -> None:
    benchmark.pedantic(fill, args=(load,), rounds=3)


@pytest.mark.benchmark(group="query, 2 k tokens, from numpy")
@pytest.mark.parametrize("fill", [fill_native, fill_python], ids=["kvcache", "pure python"])
def test_query(
    benchmark: BenchmarkFixture,
    load: workload.Workload,
    fill: Callable[[workload.Workload], kvcache.PrefixIndex | PurePythonIndex],
) -> None:
    index = fill(load)

    def all_queries() -> None:
        for token_ids in load.queries:
            index.query(token_ids)

    benchmark(all_queries)
