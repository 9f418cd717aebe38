"""Every metric of a stream, declared once.

Read from the directory at each scrape and never kept, so that a series is gone with its stream. Known
cells are rendered as zeros.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kvcache.types import StreamStatus

__all__ = ["STREAM_METRICS", "StreamMetric", "stream_families"]

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
    _counter(
        "sequences_lost_found_by_calibration_total",
        "Live messages that never arrived; only a calibration brought what they said.",
        lambda s: s["sequences_lost_found_by_calibration_total"],
    ),
    _counter(
        "blocks_lost_found_by_calibration_total",
        "Copies that calibrations added and removed and no live message had.",
        lambda s: s["blocks_lost_found_by_calibration_total"],
    ),
    StreamMetric(
        "kvcache_stream_doubts_total",
        "counter",
        "Times that the stream stopped being believed, by kind of doubt.",
        lambda s: {kind: float(count) for kind, count in s["doubts"].items()},
        label="kind",
    ),
)


def stream_families(statuses: list[StreamStatus]) -> Iterator[Metric]:
    """A family a metric, of all streams."""
    for metric in STREAM_METRICS:
        yield _family(metric, statuses)


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
