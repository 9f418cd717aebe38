"""Counts and times of queries."""

from __future__ import annotations

import threading
from bisect import bisect_left
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily, Metric

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Outcome", "QueryMetrics"]

Outcome: TypeAlias = Literal["answered", "invalid", "too_large", "unavailable", "disconnected"]
_OUTCOMES: Final[tuple[Outcome, ...]] = (
    "answered",
    "invalid",
    "too_large",
    "unavailable",
    "disconnected",
)

# A short query takes a microsecond, one of a million tokens some milliseconds.
_DURATION_BUCKETS_SECONDS: Final = (
    *(mantissa * 10.0**exponent for exponent in range(-6, 0) for mantissa in (1.0, 2.5, 5.0)),
    1.0,
)


class QueryMetrics:
    """Counts and times of queries. Thread-safe: scrapes run beside the event loop."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._outcomes: dict[Outcome, int] = dict.fromkeys(_OUTCOMES, 0)
        self._buckets = [0] * (len(_DURATION_BUCKETS_SECONDS) + 1)
        self._seconds = 0.0
        self._body_bytes = 0

    def answered(self, seconds: float, body_bytes: int) -> None:
        """Counts an answered query, its time in the directory and the size of its body."""
        with self._lock:
            self._outcomes["answered"] += 1
            self._buckets[bisect_left(_DURATION_BUCKETS_SECONDS, seconds)] += 1
            self._seconds += seconds
            self._body_bytes += body_bytes

    def failed(self, outcome: Outcome) -> None:
        """Counts a query that got no answer."""
        with self._lock:
            self._outcomes[outcome] += 1

    def collect(self) -> Iterator[Metric]:
        """The families of queries, consistent with each other."""
        with self._lock:
            outcomes = dict(self._outcomes)
            buckets = list(self._buckets)
            seconds, body_bytes = self._seconds, self._body_bytes
        requests = CounterMetricFamily(
            "kvcache_query_requests", "Queries by outcome.", labels=["outcome"]
        )
        for outcome, count in outcomes.items():
            requests.add_metric([outcome], count)
        yield requests
        yield CounterMetricFamily(
            "kvcache_query_body_bytes", "Bytes of answered query bodies.", value=body_bytes
        )
        cumulative: list[tuple[str, float]] = []
        total = 0
        for bound, count in zip((*_DURATION_BUCKETS_SECONDS, None), buckets, strict=True):
            total += count
            cumulative.append(("+Inf" if bound is None else f"{bound:.6g}", total))
        yield HistogramMetricFamily(
            "kvcache_query_duration_seconds",
            "Time of answered queries from body to response body, without network.",
            buckets=cumulative,
            sum_value=seconds,
        )
