"""CAR (spec: CAR): the table of examples, over the registry and an index."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import pytest
from kvcache import CacheAware, ConfigError
from kvcache.registry.model import Role
from routing_world import DECODE, MIX, PREFILL, PROMPT, A, B, C, D, World, terms


@pytest.fixture
def world() -> World:
    return World()


def chosen(world: World, policy: CacheAware | None = None) -> str:
    return world.decide(policy or CacheAware()).prefill


# --- prefill ---------------------------------------------------------------------------------------


def test_a_warm_but_busy_instance_loses_and_a_little_less_busy_one_wins(world: World) -> None:
    """Case 29, at a weight of 0.4."""
    policy = CacheAware(prefill_lambda=0.4)
    world.add(A, waiting=40)
    world.add(B, waiting=0)
    world.hold(A, 8)
    decision = world.decide(policy)
    assert decision.prefill == B
    assert {n: one.score for n, one in terms(decision).items()} == {A: 0.6, B: 0.4}
    assert decision.prefill_decided_by == "queue_cost"
    assert decision.turning_points == ((0.5, A),)
    world.report(A, waiting=20)
    world.add(C, waiting=40)
    decision = world.decide(policy)
    assert decision.prefill == A
    assert {n: one.score for n, one in terms(decision).items()} == {A: 0.3, B: 0.4, C: 1.0}
    assert decision.prefill_decided_by == "kv_hit_ratio"


def test_with_empty_queues_the_cache_decides(world: World) -> None:
    for name in (A, B, C):
        world.add(name)
    world.hold(B, 1)
    assert [chosen(world) for _ in range(5)] == [B] * 5
    assert terms(world.decide(CacheAware()))[A].queue_cost == 0.0


@pytest.mark.parametrize(("lam", "winner"), [(0.0, B), (0.5, A), (1.0, A)])
def test_the_weight_turns_from_the_queue_to_the_cache(
    world: World, lam: float, winner: str
) -> None:
    world.add(A, waiting=3)
    world.add(B, waiting=2)
    world.hold(A, 8)
    assert chosen(world, CacheAware(prefill_lambda=lam)) == winner


def test_at_weight_zero_the_cache_and_at_one_the_queue_play_no_part(world: World) -> None:
    world.add(A, waiting=1)
    world.add(B, waiting=1)
    world.hold(A, 8)
    queue_alone = CacheAware(prefill_lambda=0)
    assert Counter(chosen(world, queue_alone) for _ in range(10)) == {A: 5, B: 5}
    world.report(A, waiting=1000)
    world.hold(B, 8)
    cache_alone = CacheAware(prefill_lambda=1)
    assert Counter(chosen(world, cache_alone) for _ in range(10)) == {A: 5, B: 5}


@pytest.mark.parametrize(
    ("weight", "winner", "ratio"), [(0.0, B, 0.0), (0.5, A, 0.375), (1.0, A, 0.75)]
)
def test_what_a_host_copy_is_worth(world: World, weight: float, winner: str, ratio: float) -> None:
    world.add(A)
    world.add(B)
    world.hold(A, 0, host_only=6)
    world.hold(B, 2)
    decision = world.decide(CacheAware(host_hit_weight=weight))
    assert decision.prefill == winner
    found = terms(decision)[A]
    assert (found.kv_hit_ratio, found.device_hit_tokens, found.host_only_hit_tokens) == (
        ratio,
        0,
        6,
    )


def test_an_instance_has_the_ratio_of_its_worst_rank(world: World) -> None:
    """Case 32: 8 of 8 and 2 of 8."""
    world.add(A, dp_size=2)
    world.add(B)
    world.hold(A, 8, rank=0)
    world.hold(A, 2, rank=1)
    world.hold(B, 3)
    decision = world.decide(CacheAware())
    assert decision.prefill == B
    assert (terms(decision)[A].kv_hit_ratio, terms(decision)[A].device_hit_tokens) == (0.25, 2)
    assert (decision.hit_tokens, decision.best_hit_tokens) == (3, 3)
    # A row of a rank that it does not have changes nothing.
    world.hold(A, 0, rank=2)
    assert terms(world.decide(CacheAware()))[A].kv_hit_ratio == 0.25


def test_without_one_rank_there_is_no_hit_and_the_instance_can_win(world: World) -> None:
    world.add(A, dp_size=2)
    world.add(B, waiting=9)
    world.hold(A, 8, rank=0)
    world.hold(B, 8)
    decision = world.decide(CacheAware(prefill_lambda=0.4))
    assert decision.prefill == A
    assert terms(decision)[A].no_hits == "rank 1 is not followed"
    assert terms(decision)[A].kv_hit_ratio == 0.0


def test_a_new_process_has_no_hits_from_the_moment_that_the_registry_knows(world: World) -> None:
    policy = CacheAware()
    world.add(A)
    world.add(B)
    world.hold(A, 8)
    world.identities[A, 0] = "incarnation i1"
    assert [chosen(world, policy) for _ in range(3)] == [A, A, A]
    world.add(A, incarnation_id="i2")
    decision = world.decide(policy)
    assert terms(decision)[A].kv_hit_ratio == 0.0
    assert decision.prefill_decided_by == "rotation"


def test_an_empty_prompt_is_routed(world: World) -> None:
    world.add(A, waiting=1)
    world.add(B)
    world.hold(A, 8)
    decision = world.decide(CacheAware(), [])
    assert (decision.prefill, terms(decision)[A].kv_hit_ratio) == (B, 0.0)


def test_a_partial_block_is_part_of_the_prompt_and_never_hit(world: World) -> None:
    world.add(A)
    world.hold(A, 8)
    decision = world.decide(CacheAware(), [*PROMPT, 99, 99])
    assert terms(decision)[A].kv_hit_ratio == 0.8


def test_the_longest_queue_is_among_those_that_could_be_chosen(world: World) -> None:
    world.add(A, waiting=1)
    world.add(B, waiting=2)
    world.add(C, waiting=1000, kind=PREFILL)
    assert terms(world.decide(CacheAware()))[B].queue_cost == 1.0, "without decode, C cannot"
    world.add(D, kind=DECODE, waiting=5000)
    found = terms(world.decide(CacheAware()))
    assert (found[B].queue_cost, found[C].queue_cost) == (0.002, 1.0)


def test_the_device_cache_in_use_plays_no_part_for_prefill(world: World) -> None:
    world.add(A, usage=1.0)
    world.add(B, usage=0.0)
    world.hold(A, 1)
    assert chosen(world) == A


def test_a_nan_is_never_the_longest_queue(world: World) -> None:
    world.add(A, waiting=1)
    world.add(B, waiting=2)
    world.add(C, waiting=math.nan, usage=math.nan)
    found = terms(world.decide(CacheAware()))
    assert (found[A].queue_cost, found[B].queue_cost) == (0.5, 1.0)
    assert "illegal" in found[C].excluded


# --- decode ----------------------------------------------------------------------------------------


def test_decode_is_null_for_default_alone_and_set_with_decode(world: World) -> None:
    world.add(A)
    assert world.decide(CacheAware()).decode is None
    assert world.decide(CacheAware()).decode_decided_by == ""
    world.add(B, kind=DECODE)
    decision = world.decide(CacheAware())
    assert (decision.prefill, decision.decode) == (A, B)
    assert decision.decode_decided_by == "only_candidate"


@pytest.mark.parametrize(
    ("loads", "winner", "why"),
    [
        ([(0, 0.9), (4, 0.1)], A, "queue_cost"),  # 0.9 and 1.1
        ([(2, 0.9), (4, 0.1)], B, "gpu_cache_usage_perc"),  # 1.4 and 1.1
        ([(0, 0.9), (0, 0.1)], B, "gpu_cache_usage_perc"),
    ],
)
def test_decode_by_cache_in_use_and_queue(
    world: World, loads: list[tuple[int, float]], winner: str, why: str
) -> None:
    world.add(C)
    for name, (waiting, usage) in zip((A, B), loads, strict=True):
        world.add(name, waiting, usage, DECODE)
    decision = world.decide(CacheAware())
    assert (decision.decode, decision.decode_decided_by) == (winner, why)


def test_decode_does_not_look_at_hits(world: World) -> None:
    world.add(C)
    world.add(A, kind=DECODE, usage=0.5)
    world.add(B, kind=DECODE, usage=0.4)
    world.hold(A, 8)
    decision = world.decide(CacheAware())
    assert decision.decode == B
    assert terms(decision)[A].kv_hit_ratio == 0.0


def test_mix_is_chosen_by_its_role_now(world: World) -> None:
    world.add(A, kind=MIX)
    world.add(B, kind=MIX)
    assert world.decide(CacheAware()).prefill == B
    world.registry.set_role(A, Role.PREFILL)
    world.registry.set_role(B, Role.DECODE)
    decision = world.decide(CacheAware())
    assert (decision.prefill, decision.decode) == (A, B)


# --- ties ------------------------------------------------------------------------------------------


def test_equals_share_and_prefill_and_decode_rotate_apart(world: World) -> None:
    policy = CacheAware()
    for name in (A, B, C):
        world.add(name)
    assert Counter(chosen(world, policy) for _ in range(300)) == {A: 100, B: 100, C: 100}
    world.add(D, kind=DECODE)
    world.add("10.0.0.9:8000", kind=DECODE)
    pairs = Counter()
    for _ in range(600):
        decision = world.decide(policy)
        pairs[decision.prefill, decision.decode] += 1
    assert set(pairs.values()) == {100}
    assert len(pairs) == 6


def test_nearly_equal_is_not_equal(world: World) -> None:
    world.add(A, usage=0.3, kind=DECODE)
    world.add(B, usage=math.nextafter(0.3, 0), kind=DECODE)
    world.add(C)
    policy = CacheAware()
    assert {world.decide(policy).decode for _ in range(10)} == {B}


# --- options -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [-0.1, 1.1, math.nan, math.inf, "0.5", None, True])
def test_weights_are_of_0_to_1(value: Any) -> None:
    with pytest.raises(ConfigError) as caught:
        CacheAware(prefill_lambda=value, host_hit_weight=value)
    assert [fault.path for fault in caught.value.faults] == ["prefill_lambda", "host_hit_weight"]


def test_the_default_weights_are_a_half() -> None:
    policy = CacheAware()
    assert (policy.prefill_lambda, policy.host_hit_weight) == (0.5, 0.5)
    assert CacheAware(0, 1).prefill_lambda == 0.0


# --- in flight ---------------------------------------------------------------------------------------


def test_by_default_every_request_before_a_report_sees_the_same_queue(world: World) -> None:
    world.add(A, waiting=4)
    world.add(B, waiting=5)
    policy = CacheAware()
    assert {chosen(world, policy) for _ in range(100)} == {A}


def test_with_the_correction_what_was_sent_counts_as_waiting(world: World) -> None:
    world.add(A, waiting=4)
    world.add(B, waiting=6)
    policy = CacheAware(inflight_correction=True)
    found = [chosen(world, policy) for _ in range(6)]
    assert found == [A, A, A, B, B, A], "at equal queues they take turns"
    decision = world.decide(policy)
    assert {n: one.waiting_requests_num for n, one in terms(decision).items()} == {A: 8, B: 8}


def test_a_new_report_takes_the_correction_back(world: World) -> None:
    world.add(A, waiting=4)
    world.add(B, waiting=6)
    policy = CacheAware(inflight_correction=True)
    for _ in range(4):
        world.decide(policy)
    world.clock.now_s += 1.0
    world.report(A, waiting=4)  # the same numbers, reported anew
    found = terms(world.decide(policy))
    assert (found[A].waiting_requests_num, found[B].waiting_requests_num) == (4, 7)


def test_the_correction_is_for_decode_too(world: World) -> None:
    world.add(A)
    world.add(B, waiting=4, kind=DECODE)
    world.add(C, waiting=5, kind=DECODE)
    policy = CacheAware(inflight_correction=True)
    assert Counter(world.decide(policy).decode for _ in range(101)) == {B: 51, C: 50}
    assert {world.decide(CacheAware()).decode for _ in range(10)} == {B}


def test_an_explanation_is_of_the_moment_of_the_choice(world: World) -> None:
    world.add(A, waiting=4)
    world.add(B, waiting=6)
    policy = CacheAware(inflight_correction=True)
    first = world.decide(policy)
    for _ in range(10):
        world.decide(policy)
    world.report(A, waiting=0)
    world.hold(B, 8)
    assert terms(first)[A].waiting_requests_num == 4
    assert terms(first)[B].kv_hit_ratio == 0.0
    assert first.prefill == A
