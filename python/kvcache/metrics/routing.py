"""Metrics of the router's choices, and of the policy that is only tried, read at each scrape."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kvcache.routing.counts import RouterCounts, ShadowCounts

__all__ = ["route_families"]

_BY_ROLE = {
    "choices": "Choices made.",
    "asked_tokens": "Tokens of the prompts.",
    "best_hit_tokens": "Tokens that the candidate holding the most would have reused.",
    "chosen_hit_tokens": "Tokens that the chosen instances reuse.",
}


def route_families(counts: RouterCounts) -> Iterator[Metric]:
    """What was chosen, by policy and role, and how much of what could be reused was."""
    labels = ["policy", "role"]
    for field, text in _BY_ROLE.items():
        family = CounterMetricFamily(f"kvcache_route_{field}", text, labels=labels)
        for role, totals in (("prefill", counts.prefill), ("decode", counts.decode)):
            family.add_metric([counts.policy, role], getattr(totals, field))
        yield family
    yield CounterMetricFamily(
        "kvcache_route_no_instance", "Requests that nothing could serve.", value=counts.no_instance
    )
    yield GaugeMetricFamily(
        "kvcache_route_ignored_ranks",
        "Streams of ranks that their instances do not have; they count for no choice.",
        value=counts.ignored_ranks,
    )
    if counts.shadow is not None:
        yield from _shadow_families(counts.shadow)


def _shadow_families(shadow: ShadowCounts) -> Iterator[Metric]:
    totals = dataclasses.asdict(shadow)
    policy = totals.pop("policy")
    difference = totals.pop("queue_cost_difference")
    for name, value in totals.items():
        text = f"Of the shadow policy: {name.replace('_', ' ')}."
        family = CounterMetricFamily(f"kvcache_route_shadow_{name}", text, labels=["policy"])
        family.add_metric([policy], value)
        yield family
    # A sum that falls where the shadow chooses shorter queues: no counter.
    gauge = GaugeMetricFamily(
        "kvcache_route_shadow_queue_cost_difference",
        "Sum of what the shadow policy's queues cost more than those that were chosen.",
        labels=["policy"],
    )
    gauge.add_metric([policy], difference)
    yield gauge
