"""A router over a real directory and real engines."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import kvcache
import pytest
from kvcache.testing import ReplayFault, SimulatedEngine, SimulatedFleet
from routing_world import PROMPT, A, B, World, terms

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

BLOCK = 2


def wait_until(condition: Callable[[], object], timeout_s: float = 30.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, f"not within {timeout_s} s"
        time.sleep(0.005)


def spec(engine: SimulatedEngine, identity: str = "incarnation i1") -> kvcache.StreamSpec:
    return kvcache.StreamSpec(**engine.stream_config(), identity=identity)


@pytest.fixture
def directory() -> Iterator[kvcache.Directory]:
    config = {"discovery": {"block_size": BLOCK}, "resync_interval_ms": 60_000}
    with kvcache.Directory(kvcache.KvEventsConfig.from_dict(config)) as followed:
        yield followed


@pytest.fixture
def world() -> World:
    return World()


def test_hits_count_for_the_process_that_holds_them(
    directory: kvcache.Directory, world: World
) -> None:
    engines = [SimulatedEngine(name, block_size=BLOCK, device_blocks=64) for name in (A, B)]
    with SimulatedFleet(engines) as (one, two):
        one.prefill(PROMPT)
        two.prefill(PROMPT[:2])
        world.add(A)
        world.add(B)
        directory.set_streams([spec(one), spec(two)])
        directory.wait_synchronized(timeout=30)
        router = kvcache.Router(directory, world.registry)
        wait_until(lambda: router.route(PROMPT).best_hit_tokens == 8)
        decision = router.route([*PROMPT, 1, 1])
        assert decision.prefill == A
        assert (decision.hit_tokens, decision.best_hit_tokens) == (8, 8)
        assert [one.kv_hit_ratio for one in decision.candidates] == [0.8, 0.2]
        assert router.counts().prefill.chosen_hit_tokens >= 8

        # Another process registers under the name: its hits are gone before discovery runs.
        world.add(A, incarnation_id="i2")
        decision = router.route(PROMPT)
        assert (decision.prefill, terms(decision)[A].kv_hit_ratio) == (B, 0.0)
        assert terms(decision)[A].no_hits == "rank 0 is followed as another process"
        assert decision.best_hit_tokens == 2

        # Discovery follows it as the new process: its hits count again once it has its snapshot.
        directory.set_streams([spec(one, "incarnation i2"), spec(two)])
        wait_until(lambda: terms(router.route(PROMPT))[A].kv_hit_ratio == 1.0)
        assert router.route(PROMPT).prefill == A

        # And an old decision still says what it rested on.
        assert terms(decision)[B].kv_hit_ratio == 0.25


def test_an_unsynchronized_rank_costs_the_hits_and_not_the_choice(
    directory: kvcache.Directory, world: World
) -> None:
    ranks = [SimulatedEngine(A, rank, BLOCK, device_blocks=64) for rank in range(2)]
    with SimulatedFleet(ranks) as (first, second):
        for rank in ranks:
            rank.prefill(PROMPT)
        second.faults.arm_replay(ReplayFault.HOLD, None)
        world.add(A, dp_size=2)
        world.add(B, waiting=1)
        directory.set_streams([spec(first), spec(second)])
        router = kvcache.Router(directory, world.registry)
        wait_until(lambda: directory.query(PROMPT)[0].device_hit_tokens == 8)
        decision = router.route(PROMPT)
        assert (decision.prefill, terms(decision)[A].kv_hit_ratio) == (A, 0.0)
        assert terms(decision)[A].no_hits == "a rank is not synchronized"
        second.faults.disarm()
        second.release_replays()
        wait_until(lambda: terms(router.route(PROMPT))[A].kv_hit_ratio == 1.0)
