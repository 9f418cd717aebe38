"""What a candidate reuses of a prompt: the definition (spec: CAR, kv_hit_ratio).

In f64 and in exactly this order of operations; `_core.CandidateCosts` computes the same bits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from kvcache._core import Matches
    from kvcache.routing.base import Candidates

__all__ = ["NO_REUSE", "Reuse", "hit_ratio", "reuses"]


class Reuse(NamedTuple):
    """What the worst rank of a candidate holds of a prompt."""

    ratio: float
    device_hit_tokens: int
    host_only_hit_tokens: int
    unsynchronized: bool = False


NO_REUSE = Reuse(0.0, 0, 0)


def hit_ratio(device: int, host_only: int, token_count: int, host_hit_weight: float) -> float:
    """The share of a prompt that one rank reuses, Host copies weighed, 0 to 1; 0 for an empty prompt."""
    if token_count == 0:
        return 0.0
    return min(1.0, max(0.0, (device + host_hit_weight * host_only) / token_count))


def reuses(candidates: Candidates, matches: Matches | None, host_hit_weight: float) -> list[Reuse]:
    """Of each prefill candidate the rank with the lowest ratio, the first of equal ones."""
    if matches is None:
        return [NO_REUSE] * len(candidates.prefill)
    devices, hosts = matches.device_hit_tokens, matches.host_only_hit_tokens
    synchronized, token_count = matches.synchronized, matches.token_count

    def reuse(place: int) -> Reuse:
        device, host_only = devices[place], hosts[place]
        ratio = hit_ratio(device, host_only, token_count, host_hit_weight)
        return Reuse(ratio, device, host_only, not synchronized[place])

    # Of ranks without hits rather one that says why.
    return [
        min(map(reuse, places), key=lambda one: (one.ratio, not one.unsynchronized))
        if places
        else NO_REUSE
        for places in candidates.places
    ]
