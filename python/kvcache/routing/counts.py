"""What a router chose so far, for metrics."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

__all__ = ["AccountingCounts", "RoleCounts", "RouterCounts", "ShadowCounts"]


@dataclass(frozen=True, slots=True)
class AccountingCounts:
    """A policy that accounts for requests counts what it was told out of order or not at all."""

    requests: int = 0
    """Under way now."""
    ends_remembered: int = 0
    """Ends whose begin would enter nothing, now."""
    late_begins: int = 0
    """Begins told after their end, which entered nothing."""
    aged_out: int = 0
    """Requests dropped because nothing was told of them for too long."""
    displaced: int = 0
    """Requests dropped because there were too many."""


@dataclass(slots=True)
class RoleCounts:
    """Totals of one policy in one role. Decode does not look at caches: its hit tokens stay 0."""

    choices: int = 0
    asked_tokens: int = 0
    """Of the prompts."""
    best_hit_tokens: int = 0
    """What the candidate that holds the most would have reused."""
    chosen_hit_tokens: int = 0
    """What the chosen ones reuse, each the least of its ranks."""


@dataclass(slots=True)
class ShadowCounts:
    """What a second policy would have done instead."""

    policy: str
    choices: int = 0
    prefill_agreements: int = 0
    decode_agreements: int = 0
    """Of all choices, those without a decode included."""
    won_hit_tokens: int = 0
    """What its prefill would have reused more, where it would have."""
    lost_hit_tokens: int = 0
    """What it would have reused less, where it would have."""
    queue_cost_difference: float = 0.0
    """Sum of what its prefill's queue cost is more than that of the real choice; negative: shorter queues."""
    failures: int = 0
    """Requests for which it could not choose, or raised."""

    def copy(self) -> Self:
        """The totals now."""
        return replace(self)


@dataclass(slots=True)
class RouterCounts:
    """Totals since the start."""

    policy: str
    prefill: RoleCounts
    decode: RoleCounts
    no_instance: int = 0
    """Requests that nothing could serve."""
    ignored_ranks: int = 0
    """Streams now followed of ranks that their instances do not have."""
    shadow: ShadowCounts | None = None
    accounting: AccountingCounts | None = None
    """None for a policy that does not account for requests, or does not count it."""
