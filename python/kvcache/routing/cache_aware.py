"""`CacheAware`: the cache and the queue in one score, the smallest wins (spec: CAR).

The formula is a few pure functions. A request asks the core for the candidates whose score is the smallest, which
computes the same bits; everything that depends on loads alone is computed once for as long as they stay.
"""

from __future__ import annotations

import math
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from kvcache._core import CandidateCosts
from kvcache._stays import Stays
from kvcache.exceptions import ConfigError, ConfigFault
from kvcache.routing.base import Choice, Explanation
from kvcache.routing.inflight import Inflight, Sent, with_sent
from kvcache.routing.reuse import reuses
from kvcache.routing.rotation import Rotation
from kvcache.routing.scores import (
    cheapest,
    decided_by,
    decode_score,
    prefill_score,
    queue_costs,
    turning_points,
)
from kvcache.routing.shown_terms import decode_terms, prefill_terms

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kvcache._core import Matches
    from kvcache.routing.base import Candidates

__all__ = ["CacheAware"]


class CacheAware(Stays):
    """CAR: `prefill_lambda * (1 - kv_hit_ratio) + (1 - prefill_lambda) * queue_cost`.

    Thread-safe. Raises `ConfigError` for a weight that is no number of 0 to 1. One object for one router.
    """

    _stays = "it keeps count of whose turn it is for its threads: make one with the same weights"

    name: Final = "CAR"
    needs_load: Final = True

    def __init__(
        self,
        prefill_lambda: float = 0.5,
        host_hit_weight: float = 0.5,
        *,
        inflight_correction: bool = False,
    ) -> None:
        faults = [
            ConfigFault(path, f"must be a number of 0 to 1, not: {value!r}")
            for path, value in (
                ("prefill_lambda", prefill_lambda),
                ("host_hit_weight", host_hit_weight),
            )
            if not _is_weight(value)
        ]
        if faults:
            raise ConfigError(faults)
        self.prefill_lambda = float(prefill_lambda)
        """Towards 1 the cache decides, towards 0 the queue."""
        self.host_hit_weight = float(host_hit_weight)
        """What a token in Host memory alone is worth beside one on Device."""
        self.inflight_correction = inflight_correction
        """Whether what was sent to an instance since its last load report counts as waiting there."""
        self._prefill_rotation, self._decode_rotation = Rotation(), Rotation()
        self._lock = threading.Lock()
        self._inflight = Inflight()
        self._prepared: _Prepared | None = None

    def choose(self, candidates: Candidates, token_count: int, matches: Matches | None) -> Choice:
        """Choose for a prompt of which `matches` says who holds how much."""
        del token_count  # the matches know it
        prepared = self._prepared
        if prepared is None or prepared.candidates is not candidates:
            prepared = self._prepared = self._prepare(candidates)
        if self.inflight_correction:
            return self._choose_corrected(prepared, matches)
        if matches is None:
            tied = prepared.cheapest_cold
            hits, best = [0] * len(tied), 0
        else:
            tied, hits, best = prepared.cheapest(matches)
        at = 0
        if len(tied) > 1:
            at = self._prefill_rotation.take(candidates.prefill_names, tied)
        decode = prepared.decode
        if prepared.is_decode_tied:
            decode = self._decode(candidates, prepared.cheapest_decode)
        return Choice(tied[at], decode, hits[at], best)

    def explain(
        self, candidates: Candidates, token_count: int, matches: Matches | None, choice: Choice
    ) -> Explanation:
        """Every candidate's terms, by the formula."""
        del token_count
        waiting = _waiting(candidates) if choice.detail is None else choice.detail
        queue, decode_queue = map(queue_costs, waiting)
        reused = reuses(candidates, matches, self.host_hit_weight)
        ratios = [reuse.ratio for reuse in reused]
        lam = self.prefill_lambda
        scores = [prefill_score(lam, *pair) for pair in zip(ratios, queue, strict=True)]
        usage = [one.gpu_cache_usage_perc for one in candidates.decode]
        decode_scores = [decode_score(*pair) for pair in zip(usage, decode_queue, strict=True)]
        misses = [lam * (1.0 - ratio) for ratio in ratios]
        waits = [(1.0 - lam) * cost for cost in queue]
        return Explanation(
            prefill=prefill_terms(
                candidates, matches, reused, waiting=waiting[0], queue_costs=queue, scores=scores
            ),
            decode=decode_terms(candidates, waiting[1], decode_queue, decode_scores),
            prefill_decided_by=decided_by(
                choice.prefill, scores, {"kv_hit_ratio": misses, "queue_cost": waits}
            ),
            decode_decided_by=""
            if choice.decode is None
            else decided_by(
                choice.decode,
                decode_scores,
                {"gpu_cache_usage_perc": usage, "queue_cost": decode_queue},
            ),
            turning_points=turning_points(
                lam, choice.prefill, ratios, queue, candidates.prefill_names
            ),
        )

    def _prepare(self, candidates: Candidates) -> _Prepared:
        waiting, decode_waiting = _waiting(candidates)
        base = self._base_costs(waiting)
        costs = CandidateCosts(
            candidates.places,
            base,
            miss_weight=self.prefill_lambda,
            host_hit_weight=self.host_hit_weight,
        )
        decode_usage = tuple(one.gpu_cache_usage_perc for one in candidates.decode)
        decodes = _cheapest_decode(decode_usage, decode_waiting)
        with self._lock:
            sent, decode_sent = self._inflight.since(candidates)
        return _Prepared(
            candidates=candidates,
            waiting=waiting,
            decode_waiting=decode_waiting,
            decode_usage=decode_usage,
            sent=sent,
            decode_sent=decode_sent,
            costs=costs,
            cheapest=costs.cheapest,
            cheapest_cold=self._cheapest_cold(base),
            cheapest_decode=decodes,
            decode=decodes[0] if decodes else None,
            is_decode_tied=len(decodes) > 1,
        )

    def _base_costs(self, waiting: Sequence[int]) -> list[float]:
        """The score's second summand."""
        return [(1.0 - self.prefill_lambda) * cost for cost in queue_costs(waiting)]

    def _cheapest_cold(self, base: Sequence[float]) -> list[int]:
        """For a prompt that nobody holds."""
        return cheapest([self.prefill_lambda * (1.0 - 0.0) + cost for cost in base])

    def _decode(self, candidates: Candidates, tied: Sequence[int]) -> int | None:
        if len(tied) > 1:
            return tied[self._decode_rotation.take(candidates.decode_names, tied)]
        return tied[0] if tied else None

    def _choose_corrected(self, prepared: _Prepared, matches: Matches | None) -> Choice:
        """The same with what was sent since the last reports; one at a time, as each changes the next."""
        candidates = prepared.candidates
        with self._lock:
            waiting = with_sent(prepared.waiting, prepared.sent)
            decode_waiting = with_sent(prepared.decode_waiting, prepared.decode_sent)
            base = self._base_costs(waiting)
            if matches is None:
                tied = self._cheapest_cold(base)
                hits, best = [0] * len(tied), 0
            else:
                tied, hits, best = prepared.costs.with_base_costs(base).cheapest(matches)
            at = self._prefill_rotation.take(candidates.prefill_names, tied)
            decode = self._decode(
                candidates, _cheapest_decode(prepared.decode_usage, decode_waiting)
            )
            prepared.sent[tied[at]].count += 1
            if decode is not None:
                prepared.decode_sent[decode].count += 1
        return Choice(
            tied[at], decode, hits[at], best, detail=(tuple(waiting), tuple(decode_waiting))
        )


@dataclass(frozen=True, slots=True)
class _Prepared:
    """What depends on the candidates alone."""

    candidates: Candidates
    waiting: tuple[int, ...]
    decode_waiting: tuple[int, ...]
    decode_usage: tuple[float, ...]
    sent: list[Sent]
    decode_sent: list[Sent]
    costs: CandidateCosts
    cheapest: Callable[[Matches], tuple[list[int], list[int], int]]
    cheapest_cold: list[int]
    cheapest_decode: list[int]
    decode: int | None
    """The first of them, or None."""
    is_decode_tied: bool


def _waiting(candidates: Candidates) -> tuple[tuple[int, ...], tuple[int, ...]]:
    return (
        tuple(one.waiting_requests_num for one in candidates.prefill),
        tuple(one.waiting_requests_num for one in candidates.decode),
    )


def _cheapest_decode(usage: Sequence[float], waiting: Sequence[int]) -> list[int]:
    return cheapest(list(map(decode_score, usage, queue_costs(waiting))))


def _is_weight(value: object) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return math.isfinite(value) and 0 <= value <= 1
