"""Makes the terms of candidates, for explanations."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvcache.routing.base import Terms

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kvcache._core import Matches
    from kvcache.routing.base import Candidate, Candidates
    from kvcache.routing.reuse import Reuse

__all__ = ["decode_terms", "prefill_terms", "reported_waiting"]


def prefill_terms(
    candidates: Candidates,
    matches: Matches | None,
    reused: Sequence[Reuse],
    *,
    waiting: Sequence[int | None],
    queue_costs: Sequence[float | None],
    scores: Sequence[float | None],
) -> tuple[Terms, ...]:
    """Of each prefill candidate, where `reused` is what each reuses."""
    rows = zip(
        candidates.prefill,
        candidates.prefill_names,
        reused,
        waiting,
        queue_costs,
        scores,
        strict=True,
    )
    return tuple(
        Terms(
            instance_name=name,
            role="prefill",
            kv_hit_ratio=reuse.ratio,
            device_hit_tokens=reuse.device_hit_tokens,
            host_only_hit_tokens=reuse.host_only_hit_tokens,
            no_hits=_no_hits(candidates, matches, name, unsynchronized=reuse.unsynchronized),
            waiting_requests_num=queue,
            gpu_cache_usage_perc=one.report.load.gpu_cache_usage_perc if one.report else None,
            queue_cost=cost,
            score=score,
        )
        for one, name, reuse, queue, cost, score in rows
    )


def decode_terms(
    candidates: Candidates,
    waiting: Sequence[int | None],
    queue_costs: Sequence[float | None],
    scores: Sequence[float | None],
) -> tuple[Terms, ...]:
    """Of each decode candidate."""
    rows = zip(
        candidates.decode, candidates.decode_names, waiting, queue_costs, scores, strict=True
    )
    return tuple(
        Terms(
            instance_name=name,
            role="decode",
            waiting_requests_num=queue,
            gpu_cache_usage_perc=one.report.load.gpu_cache_usage_perc if one.report else None,
            queue_cost=cost,
            score=score,
        )
        for one, name, queue, cost, score in rows
    )


def reported_waiting(candidates: Sequence[Candidate]) -> list[int | None]:
    """The queue of each as it was reported; None without a legal report."""
    return [one.report.load.waiting_requests_num if one.report else None for one in candidates]


def _no_hits(
    candidates: Candidates, matches: Matches | None, name: str, *, unsynchronized: bool
) -> str:
    if matches is None:
        return "there is no index to ask"
    if unsynchronized:
        return "a rank is not synchronized"
    return candidates.no_hits.get(name, "")
