"""RR (spec: RR)."""

from __future__ import annotations

from collections import Counter

import pytest
from kvcache import RoundRobin
from routing_world import DECODE, PREFILL, A, B, C, D, World, terms


@pytest.fixture
def world() -> World:
    return World()


def test_everyone_in_turn_whatever_loads_and_caches_say(world: World) -> None:
    world.add(A, waiting=1000)
    world.register(B)  # without a load
    world.add(C, waiting=-1)  # with an illegal one
    world.hold(A, 8)
    policy = RoundRobin()
    assert [world.decide(policy).prefill for _ in range(6)] == [A, B, C, A, B, C]


def test_who_cannot_serve_is_skipped(world: World) -> None:
    world.add(A)
    world.suspect(world.add(B))
    world.add(C, kind=PREFILL)
    policy = RoundRobin()
    assert {world.decide(policy).prefill for _ in range(4)} == {A}, "without decode only DEFAULT"
    assert world.decide(policy).decode is None
    world.add(D, kind=DECODE)
    pairs = Counter((one.prefill, one.decode) for one in (world.decide(policy) for _ in range(4)))
    assert pairs == {(A, D): 2, (C, D): 2}


def test_prefill_and_decode_turn_apart(world: World) -> None:
    for name in (A, B):
        world.add(name)
    for name in (C, D):
        world.add(name, kind=DECODE)
    policy = RoundRobin()
    found = [world.decide(policy) for _ in range(4)]
    assert [one.decode for one in found] == [C, D, C, D]
    assert [one.prefill for one in found] == [A, B, A, B]


def test_it_says_what_it_did_not_look_at(world: World) -> None:
    world.add(A, waiting=3)
    world.register(B)
    world.hold(A, 8)
    decision = world.decide(RoundRobin())
    found = terms(decision)
    assert (found[A].kv_hit_ratio, found[A].waiting_requests_num, found[A].score) == (1.0, 3, None)
    assert found[B].waiting_requests_num is None
    assert decision.prefill_decided_by == "rotation"
    assert decision.turning_points == ()
    assert decision.hit_tokens == 8
