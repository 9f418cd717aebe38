"""SLO_AWARE (spec: SLO_AWARE): targets, accounting, switches of roles."""

from __future__ import annotations

import json
import math
from typing import Any

import kvcache
import pytest
from kvcache.registry.model import Role
from kvcache.routing.slo_aware import SloAware
from routing_world import DECODE, DEFAULT, MIX, PREFILL, PROMPT, A, B, C, D, E, World, terms

TTFT = ((1.0, 100.0), (100.0, 100.0), (1000.0, 100.0))
"""Every prefill takes 100 ms."""
TPOT = tuple(
    (average, batch, 10.0 * batch) for average in (1.0, 100.0) for batch in (1.0, 2.0, 4.0, 8.0)
)
"""A token takes 10 ms for each request in the batch, however long they are."""


class Fleet:
    """A router by SLO_AWARE over instances with profiles."""

    def __init__(self, **targets: float) -> None:
        self.world = World()
        self.policy = SloAware(clock=self.world.clock, **targets)
        self.router = kvcache.Router(None, self.world.registry, self.policy)
        self._count = 0

    def add(self, name: str, kind: Any = DEFAULT, tpot: object = TPOT) -> None:
        self.world.register(name, kind, ttft_profiling_data=TTFT, tpot_profiling_data=tpot)

    def begin(self, prompt: list[int] | None = None) -> kvcache.Decision:
        self._count += 1
        decision = self.router.route(PROMPT if prompt is None else prompt, str(self._count))
        assert self.router.begin(decision)
        return decision

    def role(self, name: str) -> Role:
        return self.world.registry.snapshot().instances[name].role


@pytest.fixture
def fleet() -> Fleet:
    return Fleet(target_tpot_ms=55.0)


@pytest.mark.parametrize("value", [0, -1, math.nan, math.inf, "50", None, True])
def test_targets_are_positive(value: Any) -> None:
    with pytest.raises(kvcache.ConfigError) as caught:
        SloAware(target_ttft_ms=value, target_tpot_ms=value)
    assert [fault.path for fault in caught.value.faults] == ["target_ttft_ms", "target_tpot_ms"]
    with pytest.raises(kvcache.ConfigError, match="silence_s"):
        SloAware(silence_s=value)


# --- prefill ---------------------------------------------------------------------------------------


def test_prefill_goes_to_whoever_has_the_least_before_it(fleet: Fleet) -> None:
    for name in (A, B, C):
        fleet.add(name)
    assert [fleet.begin().prefill for _ in range(3)] == [A, B, C]
    assert fleet.begin().prefill == C, "a single best one takes no turn"
    fleet.router.first_token("2")
    decision = fleet.begin()
    assert (decision.prefill, decision.prefill_decided_by) == (B, "estimated_prefill_ms")
    scores = {name: one.score for name, one in terms(decision).items()}
    assert scores == pytest.approx({A: 100.0, B: 0.0, C: 200.0})


def test_without_accounting_equals_take_turns(fleet: Fleet) -> None:
    for name in (A, B):
        fleet.add(name)
    found = [fleet.router.route(PROMPT) for _ in range(4)]
    assert [one.prefill for one in found] == [A, B, A, B]
    assert found[0].prefill_decided_by == "rotation"


def test_an_empty_prompt_goes_to_whoevers_turn_it_is(fleet: Fleet) -> None:
    fleet.add(A)
    fleet.add(B)
    fleet.add(C, DECODE)
    fleet.add(D, DECODE)
    fleet.begin()
    found = [fleet.router.route([]) for _ in range(4)]
    assert sorted(one.prefill for one in found) == [A, A, B, B]
    assert sorted(str(one.decode) for one in found) == [C, C, D, D]


def test_without_profiles_everything_is_within_the_targets() -> None:
    fleet = Fleet()
    fleet.world.register(A)
    fleet.world.register(B, DECODE)
    assert (fleet.begin().prefill, fleet.begin().decode) == (A, B)


def test_a_profile_that_makes_no_sense_costs_nobody_a_request(fleet: Fleet) -> None:
    """Whatever finite numbers an instance registers, sums of estimates can be compared and shown."""
    absurd = ((1.0, 1e300), (2.0, 4e300), (3.0, 9e300))
    fleet.world.register(A, ttft_profiling_data=absurd)
    absurd = tuple((n, batch, 1e300 * n * batch) for n in (1.0, 2.0) for batch in (1.0, 3.0))
    fleet.world.register(B, DECODE, tpot_profiling_data=absurd)
    fleet.add(C)
    prompt = list(range(100_000))
    for decision in [fleet.router.route(prompt, f"r{number}") for number in range(4)]:
        fleet.router.begin(decision)
    for _ in range(2):
        decision = fleet.router.route(prompt)
        assert decision.prefill in {A, C}
        json.dumps(decision.to_dict(), allow_nan=False)
        fleet.router.first_token("r0")  # of one of two at A


# --- decode ----------------------------------------------------------------------------------------


def test_decode_goes_to_the_first_within_the_target_else_to_the_fastest(fleet: Fleet) -> None:
    fleet.add(A)
    fleet.add(B, DECODE)
    fleet.add(C, DECODE)
    # 55 ms are five requests.
    assert [fleet.begin().decode for _ in range(10)] == [B] * 5 + [C] * 5
    decision = fleet.begin()
    assert decision.decode_decided_by == "predicted_tpot_ms"
    assert {name: terms(decision)[name].score for name in (B, C)} == pytest.approx({B: 60, C: 60})
    fleet.router.finish("7")
    decision = fleet.begin()
    assert (decision.decode, decision.decode_decided_by) == (C, "target_tpot_ms")


def test_longer_batches_are_slower() -> None:
    by_length = tuple((n, batch, batch * n) for n in (10.0, 20.0, 40.0) for batch in (1.0, 2.0))
    fleet = Fleet(target_tpot_ms=20.5)
    fleet.add(A)
    fleet.add(B, DECODE, by_length)
    fleet.add(C, DECODE, by_length)
    assert fleet.begin().decode == B  # 8 tokens
    assert fleet.begin().decode == B  # 16
    assert fleet.begin().decode == C  # would be 24
    fleet.router.finish("1")
    for _ in range(3):
        fleet.router.token("2")
    assert fleet.begin().decode == B  # 8 + 3, and these 8
    fleet.router.token("2")
    fleet.router.finish("4")
    fleet.router.token("2")
    assert fleet.begin().decode == C  # 8 + 5, and these 8 would be 21


# --- overload ----------------------------------------------------------------------------------------


def test_an_idle_decode_prefills_when_prefills_are_overloaded() -> None:
    fleet = Fleet(target_ttft_ms=250.0, target_tpot_ms=500.0)
    fleet.add(A, PREFILL)
    fleet.add(B, DECODE)
    fleet.add(C, DECODE)
    assert [fleet.begin().prefill for _ in range(3)] == [A] * 3
    decision = fleet.begin()
    assert (decision.prefill, decision.decode) == (C, B), "not the one that decodes it"
    assert decision.prefill_decided_by == "prefill_overload"
    assert decision.prefill_instance.name == C
    assert decision.hit_tokens == 0
    assert decision.to_dict()["prefill"] == C
    # As long as it has less to prefill than A.
    assert [fleet.begin().prefill for _ in range(3)] == [C, C, A]


def test_no_decode_prefills_when_it_is_not_clearly_idle() -> None:
    fleet = Fleet(target_ttft_ms=250.0, target_tpot_ms=50.0)
    fleet.add(A, PREFILL)
    fleet.add(B, DECODE)
    fleet.add(
        C, DECODE, ((1.0, 1.0, 25.0), (100.0, 1.0, 25.0), (100.0, 8.0, 25.0))
    )  # half of the target
    assert [fleet.begin().prefill for _ in range(5)] == [A] * 5


# --- roles -------------------------------------------------------------------------------------------


def overwhelmed(*prefills: str) -> Fleet:
    """MIX instances, of which the first decodes, and more requests than it can bear."""
    fleet = Fleet(target_tpot_ms=15.0)
    for name in (A, *prefills):
        fleet.add(name, MIX)
    assert fleet.begin().decode == A
    return fleet


def test_an_idle_mix_prefill_decodes_when_no_decode_keeps_the_target() -> None:
    fleet = overwhelmed(B, C)
    first = fleet.begin()
    assert first.decode == A, "the one that turns is not given this request"
    turned = B if first.prefill == C else C
    assert fleet.role(turned) is Role.DECODE
    assert fleet.begin().decode == turned
    assert fleet.role(first.prefill) is Role.PREFILL, "never the last one"
    fleet.begin()
    assert fleet.role(first.prefill) is Role.PREFILL


def test_requests_that_chose_before_a_switch_cause_no_second() -> None:
    fleet = overwhelmed(B, C, D, E)
    found = [fleet.router.route(PROMPT, f"r{number}") for number in range(3)]
    for decision in found:
        assert decision.decode == A
        fleet.router.begin(decision)
    roles = [fleet.role(name) for name in (B, C, D, E)]
    assert roles.count(Role.DECODE) == 1


def test_routing_alone_switches_nothing() -> None:
    fleet = overwhelmed(B, C)
    for _ in range(5):
        fleet.router.route(PROMPT)
    assert (fleet.role(B), fleet.role(C)) == (Role.PREFILL, Role.PREFILL)


def test_busy_prefills_do_not_switch() -> None:
    fleet = overwhelmed(B, C)
    for number in range(12):
        for name in ("b", "c"):
            fleet.policy._accounts.begin(
                f"{name}{number}",
                1,
                fleet.world.registry.snapshot().instances[B if name == "b" else C],
                100.0,
                None,
                1,
                0.0,
            )
    fleet.begin()
    assert (fleet.role(B), fleet.role(C)) == (Role.PREFILL, Role.PREFILL)


def test_only_mix_switches() -> None:
    fleet = Fleet(target_tpot_ms=15.0)
    for name, kind in ((A, DECODE), (B, PREFILL), (C, PREFILL)):
        fleet.add(name, kind)
    for _ in range(4):
        fleet.begin()
    assert [fleet.role(name) for name in (B, C)] == [Role.PREFILL, Role.PREFILL]


def test_a_decode_without_requests_prefills_again_and_never_the_last() -> None:
    fleet = overwhelmed(B, C)
    fleet.begin()
    decision = fleet.begin()
    turned = decision.decode
    assert turned is not None
    fleet.router.cancel("3")
    assert fleet.role(turned) is Role.PREFILL
    fleet.router.finish("1")
    fleet.router.finish("2")
    assert fleet.role(A) is Role.DECODE


# --- what it is told --------------------------------------------------------------------------------


def test_what_is_told_is_news_once(fleet: Fleet) -> None:
    fleet.add(A)
    fleet.begin()
    assert fleet.router.first_token("1")
    assert not fleet.router.first_token("1")
    assert fleet.router.token("1")
    assert fleet.router.finish("1")
    assert not fleet.router.finish("1")
    assert not fleet.router.cancel("unknown")


def test_a_request_begins_by_its_id_too(fleet: Fleet) -> None:
    fleet.add(A)
    fleet.router.route(PROMPT, "r")
    assert fleet.router.begin("r")
    assert not fleet.router.begin("unknown")
    with pytest.raises(ValueError, match="needs an id"):
        fleet.router.begin(fleet.router.route(PROMPT))


def test_a_new_process_starts_with_nothing_to_do(fleet: Fleet) -> None:
    fleet.add(A)
    fleet.add(B)
    fleet.begin()
    fleet.world.register(A, incarnation_id="i2", ttft_profiling_data=TTFT)
    scores = {name: one.score for name, one in terms(fleet.router.route(PROMPT)).items()}
    assert scores == {A: 0.0, B: 0.0}


# --- what is told out of order, or not at all ---------------------------------------


@pytest.mark.parametrize("told", ["finish", "cancel"])
def test_an_end_before_its_begin_leaves_no_load(fleet: Fleet, told: str) -> None:
    for name in (A, B):
        fleet.add(name)
    decision = fleet.router.route(PROMPT, "r")
    assert not getattr(fleet.router, told)("r")
    assert not fleet.router.begin(decision)
    assert [one.score for one in fleet.router.route(PROMPT).candidates] == [0.0, 0.0]
    counts = fleet.router.counts().accounting
    assert counts is not None
    assert (counts.requests, counts.late_begins, counts.ends_remembered) == (0, 1, 1)


def test_a_retry_after_an_early_end_counts(fleet: Fleet) -> None:
    fleet.add(A)
    decision = fleet.router.route(PROMPT, "r")
    fleet.router.finish("r")
    fleet.router.begin(decision)
    assert fleet.router.begin(fleet.router.route(PROMPT, "r"))
    assert terms(fleet.router.route(PROMPT))[A].score == pytest.approx(100.0)


def test_a_request_that_nobody_ends_stops_counting(fleet: Fleet) -> None:
    fleet.add(A)
    fleet.begin()
    fleet.world.clock.now_s += 599.0
    assert terms(fleet.router.route(PROMPT))[A].score == pytest.approx(100.0)
    fleet.world.clock.now_s += 1.0
    assert terms(fleet.router.route(PROMPT))[A].score == 0.0
    counts = fleet.router.counts().accounting
    assert counts is not None
    assert (counts.requests, counts.aged_out) == (0, 1)


def test_a_decode_whose_requests_aged_out_prefills_again() -> None:
    fleet = overwhelmed(B, C)
    fleet.begin()
    turned = fleet.begin().decode
    assert turned is not None
    assert fleet.role(turned) is Role.DECODE
    fleet.world.clock.now_s += 300.0
    for request_id in ("1", "2"):
        fleet.router.token(request_id)
    fleet.world.clock.now_s += 300.0
    fleet.router.route(PROMPT)
    assert fleet.role(turned) is Role.PREFILL
    assert fleet.role(A) is Role.DECODE


def test_a_late_begin_switches_no_role() -> None:
    fleet = overwhelmed(B, C)
    decision = fleet.router.route(PROMPT, "r")
    fleet.router.finish("r")
    assert not fleet.router.begin(decision)
    assert {fleet.role(name) for name in (B, C)} == {Role.PREFILL}


def test_a_policy_that_does_not_account_counts_nothing() -> None:
    router = kvcache.Router(None, World().registry, kvcache.CacheAware())
    assert router.counts().accounting is None
