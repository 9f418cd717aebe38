"""The formula (spec: CAR), and the weights at which a choice turns."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kvcache.routing.reuse import hit_ratio
from kvcache.routing.scores import (
    cheapest,
    decided_by,
    decode_score,
    prefill_score,
    queue_costs,
    turning_points,
)


@pytest.mark.parametrize(
    ("device", "host_only", "tokens", "weight", "ratio"),
    [
        (0, 0, 8, 0.5, 0.0),
        (8, 0, 8, 0.5, 1.0),
        (4, 4, 8, 0.5, 0.75),
        (0, 8, 8, 0.5, 0.5),
        (0, 8, 8, 0.0, 0.0),
        (0, 8, 8, 1.0, 1.0),
        (4, 2, 8, 0.25, 0.5625),
        (0, 0, 0, 0.5, 0.0),  # an empty prompt
        (16, 0, 8, 0.5, 1.0),  # clamped
    ],
)
def test_hit_ratio(device: int, host_only: int, tokens: int, weight: float, ratio: float) -> None:
    assert hit_ratio(device, host_only, tokens, weight) == ratio


@pytest.mark.parametrize(
    ("waiting", "costs"),
    [
        ([], []),
        ([0, 0], [0.0, 0.0]),
        ([0, 3, 4], [0.0, 0.75, 1.0]),
        ([7], [1.0]),
        ([2**64 - 1, 2**63], [1.0, 0.5]),
    ],
)
def test_queue_costs(waiting: list[int], costs: list[float]) -> None:
    assert queue_costs(waiting) == costs


@pytest.mark.parametrize(
    ("lam", "ratio", "queue", "score"),
    [
        (0.5, 0.5, 0.5, 0.5),
        (0.0, 0.0, 0.25, 0.25),  # the queue alone
        (0.0, 1.0, 0.25, 0.25),
        (1.0, 0.75, 1.0, 0.25),  # the cache alone
        (0.4, 1.0, 1.0, 0.6),
        (0.4, 0.0, 0.0, 0.4),
    ],
)
def test_prefill_score(lam: float, ratio: float, queue: float, score: float) -> None:
    assert prefill_score(lam, ratio, queue) == score


def test_decode_score() -> None:
    assert decode_score(0.25, 0.5) == 0.75


def test_cheapest_are_exactly_equal() -> None:
    assert cheapest([0.5, 0.25, 0.25]) == [1, 2]
    assert cheapest([0.1 + 0.2, 0.3]) == [1], "as computed in f64, and nothing nearly"
    assert cheapest([]) == []


@pytest.mark.parametrize(
    ("scores", "first", "second", "why"),
    [
        ([0.5], [0.25], [0.25], "only_candidate"),
        ([0.5, 0.5], [0.5, 0.25], [0.0, 0.25], "rotation"),
        ([0.5, 0.75], [0.25, 0.5], [0.25, 0.25], "first"),
        ([0.5, 0.75], [0.25, 0.25], [0.25, 0.5], "second"),
        ([0.5, 0.75, 0.625], [0.25, 0.75, 0.25], [0.25, 0.0, 0.375], "second"),  # the next best
        ([0.5, 0.625], [0.5, 0.125], [0.0, 0.5], "second"),  # worse in one, better in the other
    ],
)
def test_decided_by(scores: list[float], first: list[float], second: list[float], why: str) -> None:
    assert decided_by(0, scores, {"first": first, "second": second}) == why


def test_turning_points_of_a_warm_and_a_cold_instance() -> None:
    """Case 29: A hits all and has a queue, B is cold and idle; they cost the same at a weight of a half."""
    ratios, queue, names = [1.0, 0.0], [1.0, 0.0], ["a", "b"]
    assert turning_points(0.4, 1, ratios, queue, names) == ((0.5, "a"),)
    assert turning_points(0.6, 0, ratios, queue, names) == ((0.5, "b"),)


def test_nothing_turns_where_one_is_better_in_both_or_all_are_the_same() -> None:
    assert turning_points(0.5, 0, [1.0, 0.5], [0.0, 0.5], ["a", "b"]) == ()
    assert turning_points(0.5, 0, [0.5, 0.5], [0.5, 0.5], ["a", "b"]) == ()
    assert turning_points(0.5, 0, [0.5], [0.5], ["a"]) == ()


shares = st.one_of(st.sampled_from([0.0, 0.25, 0.5, 1.0]), st.floats(0, 1))
fleets = st.lists(st.tuples(shares, shares), min_size=1, max_size=6)


@settings(deadline=None)
@given(fleets, shares)
def test_the_choice_stays_between_the_turning_points_and_not_beyond(
    fleet: list[tuple[float, float]], lam: float
) -> None:
    ratios, queue = [list(side) for side in zip(*fleet, strict=True)]
    names = [str(place) for place in range(len(fleet))]

    def lead(weight: float) -> float:
        """How much more the best of the others costs than the chosen one."""
        scores = [prefill_score(weight, *pair) for pair in zip(ratios, queue, strict=True)]
        others = scores[:chosen] + scores[chosen + 1 :]
        return min(others, default=math.inf) - scores[chosen]

    scores = [prefill_score(lam, *pair) for pair in zip(ratios, queue, strict=True)]
    chosen = cheapest(scores)[0]
    points = turning_points(lam, chosen, ratios, queue, names)
    below = max((x for x, _ in points if x <= lam), default=0.0)
    above = min((x for x, _ in points if x >= lam), default=1.0)
    for weight in (below, above, (below + lam) / 2, (lam + above) / 2):
        assert lead(weight) >= -1e-9
    for point, name in points:
        at = [prefill_score(point, ratios[i], queue[i]) for i in (chosen, int(name))]
        assert at[0] == pytest.approx(at[1], abs=1e-9)
