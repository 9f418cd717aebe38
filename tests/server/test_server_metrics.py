from __future__ import annotations

import re
from typing import TYPE_CHECKING

from kvcache.metrics import STREAM_METRICS
from prometheus_client.parser import text_string_to_metric_families
from serving import App, status

if TYPE_CHECKING:
    from serving import FakeDirectory

NAME = re.compile(r"kvcache_(stream|query|route|registry|etcd|process)_[a-z0-9]+(_[a-z0-9]+)*")


def samples(app: App) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    text = app.ask("GET", "/metrics").text
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def value(app: App, name: str, **labels: str) -> float:
    return samples(app)[name, frozenset(labels.items())]


def test_every_name_follows_the_pattern_and_none_is_a_creation_time(app: App) -> None:
    names = {name for name, _ in samples(app)}
    assert len(names) > len(STREAM_METRICS)
    for name in names:
        assert NAME.fullmatch(name), name
        assert not name.endswith("_created")


def test_stream_metrics_show_the_status(app: App) -> None:
    stream = {"instance_name": "a:1", "dp_rank": "0"}
    assert value(app, "kvcache_stream_state", state="synchronized", **stream) == 1
    assert value(app, "kvcache_stream_state", state="connecting", **stream) == 0
    assert value(app, "kvcache_stream_resident_blocks", tier="device", **stream) == 11
    assert value(app, "kvcache_stream_resident_blocks", tier="host", **stream) == 12
    assert value(app, "kvcache_stream_sequence_number", **stream) == 7
    assert value(app, "kvcache_stream_received_bytes_total", **stream) == 900
    assert value(app, "kvcache_stream_doubts_total", kind="gap", **stream) == 2
    assert value(app, "kvcache_stream_doubts_total", kind="decode", **stream) == 0


def test_every_counter_of_the_status_has_a_metric(app: App, directory: FakeDirectory) -> None:
    distinct = {
        field: 1000 + position
        for position, field in enumerate(status())
        if field.endswith(("_total", "_blocks", "_bytes"))
    }
    directory.statuses = [status(**distinct)]
    shown = set(samples(app).values())
    assert len(distinct) > 15
    for field, number in distinct.items():
        assert number in shown, field


def test_a_stream_s_series_go_with_it(app: App, directory: FakeDirectory) -> None:
    def instances() -> set[str]:
        return {dict(labels).get("instance_name", "") for _, labels in samples(app)} - {""}

    assert instances() == {"a:1", "b:1"}
    directory.statuses = directory.statuses[:1]
    assert instances() == {"a:1"}


def test_before_the_first_view_there_is_no_sequence(app: App, directory: FakeDirectory) -> None:
    directory.statuses = [status(sequence=None)]
    assert "kvcache_stream_sequence_number" not in {name for name, _ in samples(app)}


def test_queries_are_counted_by_outcome_from_zero(app: App) -> None:
    def outcomes() -> dict[str, float]:
        return {
            dict(labels)["outcome"]: number
            for (name, labels), number in samples(app).items()
            if name == "kvcache_query_requests_total"
        }

    zeros = dict.fromkeys(["answered", "invalid", "too_large", "unavailable", "disconnected"], 0.0)
    assert outcomes() == zeros
    assert value(app, "kvcache_query_duration_seconds_count") == 0
    app.query({"token_ids": [1]})
    app.query({"token_ids": [2]})
    app.query(b"nonsense")
    app.query(b"x" * (16 * 1024 * 1024 + 1))
    assert outcomes() == zeros | {"answered": 2.0, "invalid": 1.0, "too_large": 1.0}
    assert value(app, "kvcache_query_duration_seconds_count") == 2
    assert value(app, "kvcache_query_duration_seconds_bucket", le="+Inf") == 2
    assert value(app, "kvcache_query_duration_seconds_sum") > 0
    assert value(app, "kvcache_query_body_bytes_total") == 2 * len('{"token_ids": [1]}')


def test_latency_buckets_start_at_a_microsecond_and_grow(app: App) -> None:
    bounds = [
        float(dict(labels)["le"])
        for name, labels in samples(app)
        if name == "kvcache_query_duration_seconds_bucket"
    ]
    assert bounds[0] == 1e-6
    assert bounds == sorted(set(bounds))


def test_a_name_with_quotes_and_newlines_stays_one_series(
    app: App, directory: FakeDirectory
) -> None:
    name = 'a"b\\c\nd'
    directory.statuses = [status(name)]
    assert value(app, "kvcache_stream_memory_bytes", instance_name=name, dp_rank="0") == 4096


def test_openmetrics_is_spoken_when_asked_for(app: App) -> None:
    answer = app.ask("GET", "/metrics", headers={"Accept": "application/openmetrics-text"})
    assert answer.headers["content-type"].startswith("application/openmetrics-text")
    assert answer.text.endswith("# EOF\n")
    assert app.ask("GET", "/metrics").headers["content-type"].startswith("text/plain")
