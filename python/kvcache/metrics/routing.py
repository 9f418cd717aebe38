"""Metrics of the router's choices, and of the policy that is only tried, read at each scrape."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kvcache.routing.counts import AccountingCounts, RouterCounts, ShadowCounts

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
    if counts.accounting is not None:
        yield from _accounting_families(counts.policy, counts.accounting)
    if counts.shadow is not None:
        yield from _shadow_families(counts.shadow)


def _accounting_families(policy: str, counts: AccountingCounts) -> Iterator[Metric]:
    for name, text, value in (
        ("requests", "Requests under way, by what the policy was told.", counts.requests),
        ("ends_remembered", "Ends whose begin would enter nothing.", counts.ends_remembered),
    ):
        gauge = GaugeMetricFamily(f"kvcache_route_{name}", text, labels=["policy"])
        gauge.add_metric([policy], value)
        yield gauge
    for name, text, value in (
        ("late_begins", "Begins told after their end; they enter nothing.", counts.late_begins),
        ("requests_aged_out", "Requests dropped after a long silence.", counts.aged_out),
        ("requests_displaced", "Requests dropped as there were too many.", counts.displaced),
    ):
        total = CounterMetricFamily(f"kvcache_route_{name}", text, labels=["policy"])
        total.add_metric([policy], value)
        yield total


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
