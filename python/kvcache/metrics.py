"""Every metric of the service, declared once, and the collector that renders them.

Stream metrics are read from the directory at each scrape and never kept, so that a series is
gone with its stream. Names are `kvcache_<stream|query|process>_<what>_<unit>`; counters end in
`_total`. Known cells are rendered as zeros, and there are no `_created` series. This module
knows no HTTP.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from kvcache.exceptions import ClosedError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kvcache.service import Service
    from kvcache.types import StreamStatus

__all__ = ["STREAM_METRICS", "Outcome", "QueryMetrics", "StreamMetric", "build_registry"]

Cells: TypeAlias = "dict[str, float]"
"""Values of one stream by the value of the metric's own label; the key is `""` without one."""

_STREAM_LABELS: Final = ("instance_name", "dp_rank")
_STATES: Final = ("connecting", "snapshotting", "synchronized")


@dataclass(frozen=True, slots=True)
class StreamMetric:
    """One metric of a stream: labelled by instance and rank, and by `label` where it has one."""

    name: str
    kind: Literal["gauge", "counter"]
    help: str
    read: Callable[[StreamStatus], Cells]
    label: str = ""


def _gauge(name: str, text: str, read: Callable[[StreamStatus], float]) -> StreamMetric:
    return StreamMetric(f"kvcache_stream_{name}", "gauge", text, lambda s: {"": read(s)})


def _counter(name: str, text: str, read: Callable[[StreamStatus], float]) -> StreamMetric:
    return StreamMetric(f"kvcache_stream_{name}", "counter", text, lambda s: {"": read(s)})


STREAM_METRICS: Final = (
    StreamMetric(
        "kvcache_stream_state",
        "gauge",
        "1 for the state that the stream is in, 0 for the others.",
        lambda s: {state: float(s["state"] == state) for state in _STATES},
        label="state",
    ),
    StreamMetric(
        "kvcache_stream_resident_blocks",
        "gauge",
        "Blocks resident in the view, by tier; a block in both tiers counts in both.",
        lambda s: {"device": s["device_blocks"], "host": s["host_blocks"]},
        label="tier",
    ),
    _gauge(
        "known_blocks",
        "Resident blocks and kept mappings together, what max_blocks_per_stream bounds.",
        lambda s: s["known_blocks"],
    ),
    _gauge("orphan_blocks", "Blocks below a parent that is gone.", lambda s: s["orphan_blocks"]),
    _gauge(
        "memory_bytes",
        "Estimate of what the stream occupies, as if it shared no block with others.",
        lambda s: s["memory_bytes"],
    ),
    _gauge("buffered_bytes", "Live messages held for a snapshot.", lambda s: s["buffered_bytes"]),
    StreamMetric(
        "kvcache_stream_sequence_number",
        "gauge",
        "Last sequence that the view includes; no series before the first view.",
        lambda s: {} if s["sequence"] is None else {"": s["sequence"]},
    ),
    _counter("messages_total", "Live messages received.", lambda s: s["messages_total"]),
    _counter("received_bytes_total", "Bytes of live messages.", lambda s: s["bytes_total"]),
    _counter("stored_blocks_total", "Copies stored.", lambda s: s["blocks_stored_total"]),
    _counter("removed_blocks_total", "Copies removed.", lambda s: s["blocks_removed_total"]),
    _counter(
        "already_stored_blocks_total",
        "Stores of a copy that was there (harmless).",
        lambda s: s["already_stored_total"],
    ),
    _counter(
        "already_removed_blocks_total",
        "Removals of a copy that was not there (harmless).",
        lambda s: s["already_removed_total"],
    ),
    _counter(
        "other_tier_blocks_total",
        "Blocks of a tier that is neither device nor host (not counted as hits).",
        lambda s: s["other_tier_total"],
    ),
    _counter(
        "orphaned_blocks_total",
        "Blocks announced below a parent that is gone.",
        lambda s: s["orphaned_total"],
    ),
    _counter(
        "foreign_topic_messages_total",
        "Messages dropped because their topic is another one.",
        lambda s: s["foreign_topic_total"],
    ),
    _counter("connects_total", "Subscriptions established.", lambda s: s["connects_total"]),
    _counter("snapshots_total", "Snapshots published as a view.", lambda s: s["snapshots_total"]),
    _counter(
        "snapshot_failures_total",
        "Snapshots that could not be fetched or used.",
        lambda s: s["snapshot_failures_total"],
    ),
    _counter(
        "calibrations_total", "Periodic snapshots compared.", lambda s: s["calibrations_total"]
    ),
    _counter(
        "calibration_failures_total",
        "Periodic snapshots that failed; the stream kept serving.",
        lambda s: s["calibration_failures_total"],
    ),
    StreamMetric(
        "kvcache_stream_doubts_total",
        "counter",
        "Times that the stream stopped being believed, by kind of doubt.",
        lambda s: {kind: float(count) for kind, count in s["doubts"].items()},
        label="kind",
    ),
)

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


class _ServiceCollector(Collector):
    """Renders the streams of a service, its queries, and what the process is."""

    def __init__(self, service: Service, queries: QueryMetrics, version: str) -> None:
        self._service = service
        self._queries = queries
        self._version = version

    def collect(self) -> Iterator[Metric]:
        """Reads the directory once, so that all stream series are of one moment."""
        try:
            statuses = self._service.streams()
        except ClosedError:
            statuses = []  # a last scrape while the service shuts down
        for metric in STREAM_METRICS:
            yield _family(metric, statuses)
        yield from self._queries.collect()
        yield GaugeMetricFamily(
            "kvcache_process_index_enabled",
            "1 when a configuration was loaded, 0 when the index is disabled.",
            value=float(self._service.index_enabled),
        )
        build = GaugeMetricFamily(
            "kvcache_process_build_info", "Always 1; the version is a label.", labels=["version"]
        )
        build.add_metric([self._version], 1)
        yield build


def _family(metric: StreamMetric, statuses: list[StreamStatus]) -> Metric:
    labels = [*_STREAM_LABELS, metric.label] if metric.label else list(_STREAM_LABELS)
    family: CounterMetricFamily | GaugeMetricFamily
    if metric.kind == "counter":
        family = CounterMetricFamily(metric.name, metric.help, labels=labels)
    else:
        family = GaugeMetricFamily(metric.name, metric.help, labels=labels)
    for status in statuses:
        stream = [status["instance_name"], str(status["dp_rank"])]
        for cell, value in metric.read(status).items():
            family.add_metric([*stream, cell] if metric.label else stream, value)
    return family


def build_registry(service: Service, queries: QueryMetrics, version: str) -> CollectorRegistry:
    """A registry of its own: what else the embedding process exports stays out of it."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_ServiceCollector(service, queries, version))
    # kvcache_process_{cpu_seconds_total,resident_memory_bytes,open_fds,…}
    ProcessCollector(namespace="kvcache", registry=registry)
    return registry
