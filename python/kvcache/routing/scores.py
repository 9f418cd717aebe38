"""The formula of CAR as pure functions (spec: CAR).

Floats are computed in f64, in the order of operations that stands here, and compared as computed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvcache.routing.base import TurningPoint

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = [
    "cheapest",
    "decided_by",
    "decode_score",
    "prefill_score",
    "queue_costs",
    "turning_points",
]


def queue_costs(waiting: Sequence[int]) -> list[float]:
    """Each queue beside the longest, 0 to 1; 0 for all when all are empty."""
    longest = float(max(waiting, default=0))
    return [float(one) / longest if longest else 0.0 for one in waiting]


def prefill_score(prefill_lambda: float, kv_hit_ratio: float, queue_cost: float) -> float:
    """What a prefill candidate costs."""
    return prefill_lambda * (1.0 - kv_hit_ratio) + (1.0 - prefill_lambda) * queue_cost


def decode_score(gpu_cache_usage_perc: float, queue_cost: float) -> float:
    """What a decode candidate costs; its cache plays no part."""
    return gpu_cache_usage_perc + queue_cost


def cheapest(scores: Sequence[float]) -> list[int]:
    """The places of the smallest score: several when they are exactly equal."""
    lowest = min(scores, default=0.0)
    return [place for place, score in enumerate(scores) if score == lowest]


def decided_by(
    chosen: int, scores: Sequence[float], summands: Mapping[str, Sequence[float]]
) -> str:
    """Which summand of the scores set the chosen one apart from the next best.

    The one in which it is better by the most; of equal ones the first.
    """
    others = [place for place in range(len(scores)) if place != chosen]
    if not others:
        return "only_candidate"
    following = min(others, key=scores.__getitem__)
    if scores[following] == scores[chosen]:
        return "rotation"
    return max(summands, key=lambda name: summands[name][following] - summands[name][chosen])


def turning_points(
    prefill_lambda: float,
    chosen: int,
    ratios: Sequence[float],
    queue: Sequence[float],
    names: Sequence[str],
) -> tuple[TurningPoint, ...]:
    """The nearest weights of 0 to 1, below and above the one in use, where another's score equals the chosen one's.

    A score is a straight line over the weight, from the queue cost at 0 to the miss ratio at 1, so that two of them
    meet at most once.
    """
    below: TurningPoint | None = None
    above: TurningPoint | None = None
    for place, name in enumerate(names):
        # How much more the other costs at 0, and how that changes over the weight.
        more = queue[place] - queue[chosen]
        slope = (ratios[chosen] - ratios[place]) - more
        if place == chosen or slope == 0.0:
            continue
        meets = -more / slope
        if not 0.0 <= meets <= 1.0:
            continue
        if slope < 0.0:
            # Gets cheaper beside the chosen one as the weight grows.
            point = TurningPoint(max(meets, prefill_lambda), name)
            above = point if above is None else min(above, point)
        else:
            point = TurningPoint(min(meets, prefill_lambda), name)
            if below is None or point.prefill_lambda > below.prefill_lambda:
                below = point
    return tuple(point for point in (below, above) if point is not None)
