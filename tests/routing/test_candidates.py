"""Who can be chosen, and whose hits count (spec: CAR, candidates)."""

from __future__ import annotations

import math
from typing import Any

import pytest
from kvcache.registry.model import Role
from kvcache.routing.candidates import reports_count_until
from routing_world import DECODE, DEFAULT, MIX, PREFILL, A, B, C, D, World


@pytest.fixture
def world() -> World:
    return World()


# --- roles ---------------------------------------------------------------------------------------


def test_without_decode_only_default_is_chosen(world: World) -> None:
    world.add(A)
    world.add(B, kind=PREFILL)
    found = world.candidates()
    assert (found.prefill_names, found.decode_names) == ((A,), ())
    assert found.excluded[B] == (
        "prefill",
        "the instance only prefills, and no decode instance can serve",
    )


def test_with_decode_everyone_that_prefills_is(world: World) -> None:
    for name, kind in ((A, DEFAULT), (B, PREFILL), (C, DECODE), (D, MIX)):
        world.add(name, kind=kind)
    found = world.candidates()
    assert (found.prefill_names, found.decode_names) == ((A, B, D), (C,))
    assert not found.excluded


def test_mix_counts_by_its_role_now(world: World) -> None:
    world.add(A, kind=MIX)
    world.add(B, kind=MIX)
    assert world.candidates().decode_names == (A,), "the first decodes"
    world.registry.set_role(A, Role.PREFILL)
    assert world.candidates().prefill_names == (), "and no decode is left"
    world.registry.set_role(B, Role.DECODE)
    found = world.candidates()
    assert (found.prefill_names, found.decode_names) == ((A,), (B,))


def test_a_decode_that_cannot_be_chosen_is_none(world: World) -> None:
    world.add(A, kind=PREFILL)
    world.add(B, kind=DECODE, waiting=-1)
    found = world.candidates()
    assert (found.prefill_names, found.decode_names) == ((), ())
    assert found.excluded[A][0] == "prefill"
    assert found.excluded[B][0] == "decode"


# --- states and loads ------------------------------------------------------------------------------


def test_no_report_and_suspect_are_excluded_with_reasons(world: World) -> None:
    world.add(A)
    world.register(B)
    world.suspect(world.add(C))
    found = world.candidates()
    assert found.prefill_names == (A,)
    assert found.excluded[B] == ("prefill", "the instance has not reported its load yet")
    assert "SUSPECT" in found.excluded[C][1]
    whoever = world.candidates(needs_load=False)
    assert (whoever.prefill_names, list(whoever.excluded)) == ((A, B), [C])


@pytest.mark.parametrize("waiting", [-1, 1.5, "3", None, True, math.nan, math.inf, 2**64, [1]])
def test_an_illegal_queue_excludes_and_nobody_else_is_touched(world: World, waiting: Any) -> None:
    world.add(A, waiting=3)
    world.add(B, waiting=waiting)
    found = world.candidates()
    assert found.prefill_names == (A,)
    assert "waiting_requests_num" in found.excluded[B][1]


@pytest.mark.parametrize("usage", [-0.1, 1.1, "0.5", None, False, math.nan, math.inf, -math.inf])
def test_an_illegal_usage_excludes(world: World, usage: Any) -> None:
    world.add(A, usage=usage)
    assert "gpu_cache_usage_perc" in world.candidates().excluded[A][1]


@pytest.mark.parametrize("metrics", [{}, [], None, {"waiting_requests_num": 1}])
def test_a_load_without_its_fields_excludes(world: World, metrics: object) -> None:
    world.register(A)
    world.report_raw(A, metrics)
    assert "illegal" in world.candidates().excluded[A][1]


def test_the_extremes_are_legal(world: World) -> None:
    world.add(A, waiting=2**64 - 1, usage=1)
    world.add(B, waiting=0, usage=0)
    assert world.candidates().prefill_names == (A, B)


def test_reports_count_until_a_heartbeat_stops_to_be_first(world: World) -> None:
    world.add(A)
    assert reports_count_until(world.registry.snapshot(), 1000.0) == math.inf
    world.beat(A, waiting=7)
    assert reports_count_until(world.registry.snapshot(), 1000.0) == math.inf
    world.clock.now_s = 1001.0
    world.report(A, waiting=9)
    snapshot = world.registry.snapshot()
    assert reports_count_until(snapshot, 1001.0) == 1003.0
    assert reports_count_until(snapshot, 1003.0) == math.inf
    assert world.candidates().prefill[0].waiting_requests_num == 7
    world.clock.now_s = 1003.0
    assert world.candidates().prefill[0].waiting_requests_num == 9


# --- whose hits count ------------------------------------------------------------------------------


def test_the_places_of_all_ranks(world: World) -> None:
    world.add(A, dp_size=2)
    world.add(B)
    for name, rank in ((A, 0), (A, 1), (B, 0)):
        world.hold(name, 1, rank=rank)
    assert world.candidates().places == ((0, 1), (2,))
    assert not world.candidates().no_hits


def test_a_missing_rank_and_a_rank_too_many(world: World) -> None:
    world.add(A, dp_size=2)
    world.add(B, dp_size=1)
    world.hold(A, 8, rank=0)
    world.hold(A, 8, rank=2)
    world.hold(B, 8, rank=0)
    world.hold(B, 8, rank=1)
    found = world.candidates()
    assert found.places == ((), (2,))
    assert found.no_hits == {A: "rank 1 is not followed"}
    assert found.ignored_ranks == 2


@pytest.mark.parametrize(
    ("followed", "why"),
    [("incarnation i0", "another process"), (None, "static stream"), ("unidentified", "another")],
)
def test_another_process_has_no_hits(world: World, followed: str | None, why: str) -> None:
    world.add(A)
    world.hold(A, 8)
    world.identities[A, 0] = followed
    found = world.candidates()
    assert found.places == ((),)
    assert why in found.no_hits[A]


@pytest.mark.parametrize(
    ("registration", "followed"),
    [
        ({"incarnation_id": "i1", "register_ts_ms": 5}, "incarnation i1"),
        ({"incarnation_id": "", "register_ts_ms": 5}, "registered 5"),
        ({"incarnation_id": ""}, "unidentified"),
    ],
)
def test_processes_are_told_apart_by_what_they_have(
    world: World, registration: dict[str, Any], followed: str
) -> None:
    world.add(A, **registration)
    world.hold(A, 8)
    world.identities[A, 0] = followed
    assert world.candidates().places == ((0,),)
    world.identities[A, 0] = "registered 4"
    assert world.candidates().places == ((),)


def test_a_rank_count_beyond_all_streams_takes_no_time(world: World) -> None:
    world.add(A, dp_size=65535)
    world.hold(A, 8)
    assert world.candidates().no_hits == {A: "rank 1 is not followed"}
