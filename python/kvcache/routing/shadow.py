"""`Shadow`: a second policy that chooses for every request, and is only counted.

So that a policy or a weight can be tried on real requests before it decides any. It is told nothing of how requests
go on, and changes no role: they are not its own.
"""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING

from kvcache.routing.counts import ShadowCounts
from kvcache.routing.scores import queue_costs

if TYPE_CHECKING:
    from kvcache._core import Matches
    from kvcache.routing.base import Candidates, Policy
    from kvcache.routing.decision import Decision

__all__ = ["Shadow"]

_log = logging.getLogger("kvcache.routing")


class Shadow:
    """One policy's choices beside the real ones. Thread-safe."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._lock = threading.Lock()
        self._counts = ShadowCounts(policy.name)
        self._told = False
        self._costs: tuple[Candidates | None, dict[str, float]] = (None, {})

    @property
    def policy(self) -> Policy:
        """The policy that is tried."""
        return self._policy

    def counts(self) -> ShadowCounts:
        """The totals now."""
        with self._lock:
            return self._counts.copy()

    def compare(self, decision: Decision, candidates: Candidates, matches: Matches | None) -> None:
        """Have it choose among `candidates`, and count how that differs from `decision`. Never raises."""
        try:
            self._compare(decision, candidates, matches)
        except Exception as error:  # noqa: BLE001 - a policy on trial must not cost a request
            with self._lock:
                self._counts.failures += 1
                told, self._told = self._told, True
            if not told:
                _log.warning("the shadow policy %s failed: %s", self._policy.name, error)

    def _compare(self, decision: Decision, candidates: Candidates, matches: Matches | None) -> None:
        if not candidates.prefill:
            with self._lock:
                self._counts.failures += 1
            return
        choice = self._policy.choose(candidates, decision.token_count, matches)
        by_decode = choice.prefill_by_decode
        name = (
            candidates.prefill_names[choice.prefill]
            if by_decode is None
            else candidates.decode_names[by_decode]
        )
        decode = None if choice.decode is None else candidates.decode_names[choice.decode]
        hits = choice.hit_tokens
        if hits is None:
            hits = candidates.hit_tokens(matches)[choice.prefill] if by_decode is None else 0
        difference = hits - decision.hit_tokens
        costs = self._queue_costs(candidates)
        cost = costs.get(name, 0.0) - costs.get(decision.prefill, 0.0)
        with self._lock:
            counts = self._counts
            counts.choices += 1
            counts.prefill_agreements += name == decision.prefill
            counts.decode_agreements += decode == decision.decode
            counts.won_hit_tokens += max(difference, 0)
            counts.lost_hit_tokens += max(-difference, 0)
            counts.queue_cost_difference += cost

    def _queue_costs(self, candidates: Candidates) -> dict[str, float]:
        """By name; made once for as long as the candidates stay."""
        for_whom, costs = self._costs
        if for_whom is not candidates:
            waiting = [one.waiting_requests_num for one in candidates.prefill]
            costs = dict(zip(candidates.prefill_names, queue_costs(waiting), strict=True))
            self._costs = (candidates, costs)
        return costs
