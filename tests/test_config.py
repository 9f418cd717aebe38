"""The configuration: every rule, and every fault reported at once (spec: configuration)."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from kvcache.config import DiscoveryConfig, KvEventsConfig, StreamConfig
from kvcache.endpoint import parse_endpoint
from kvcache.exceptions import ConfigError
from pydantic import ValidationError

if TYPE_CHECKING:
    from pathlib import Path


def stream(position: int = 0, **changes: Any) -> dict[str, Any]:
    return {
        "instance_name": f"engine-{position}",
        "endpoint": f"tcp://127.0.0.1:{18000 + position}",
        "replay_endpoint": f"tcp://127.0.0.1:{38000 + position}",
    } | changes


def faults(obj: object) -> dict[str, str]:
    with pytest.raises(ConfigError) as caught:
        KvEventsConfig.from_dict(obj)
    return told(caught.value)


def json_faults(text: str | bytes) -> dict[str, str]:
    with pytest.raises(ConfigError) as caught:
        KvEventsConfig.from_json(text)
    return told(caught.value)


def told(error: ConfigError) -> dict[str, str]:
    for fault in error.faults:
        assert "\n" not in fault.message
        assert fault.message
        assert fault.message[0] == fault.message[0].lower()
    assert len({fault.path for fault in error.faults}) == len(error.faults)
    return {fault.path: fault.message for fault in error.faults}


def test_defaults_are_those_of_the_specification() -> None:
    config = KvEventsConfig.from_dict({"discovery": {}})
    assert config.discovery == DiscoveryConfig(
        enabled=True,
        block_size=128,
        topic="",
        event_port_offset=10000,
        replay_port_offset=30000,
        refresh_interval_ms=1000,
    )
    assert config.streams == ()
    assert config.max_streams == 128
    assert config.max_blocks_per_stream == 262144
    assert config.max_message_bytes == 8388608
    assert config.max_buffered_bytes == 16777216
    assert config.replay_timeout_ms == 2000
    assert config.resync_interval_ms == 30000
    first = KvEventsConfig.from_dict({"streams": [stream()]}).streams[0]
    assert (first.dp_rank, first.block_size, first.topic, first.hash_seed) == (0, 128, "", 1024)


def test_the_example_of_the_mission_is_accepted() -> None:
    config = KvEventsConfig.from_json(
        b'\xef\xbb\xbf{"discovery": {"enabled": true, "block_size": 128, "topic": "xllm-kv",'
        b'"event_port_offset": 10000, "replay_port_offset": 30000, "refresh_interval_ms": 1000}}'
    )
    assert config.discovery is not None
    assert config.discovery.topic == "xllm-kv"


def test_a_configuration_does_not_change() -> None:
    config = KvEventsConfig.from_dict({"discovery": {}})
    with pytest.raises(ValidationError, match="frozen"):
        config.max_streams = 1


def test_models_build_a_configuration_too() -> None:
    one = StreamConfig(**stream())
    assert KvEventsConfig(streams=(one,)) == KvEventsConfig.from_dict({"streams": [stream()]})
    with pytest.raises(ConfigError) as caught:
        KvEventsConfig(streams=(one, one), max_streams=0)
    assert set(told(caught.value)) == {
        "max_streams",
        "streams[1]",
        "streams[1].endpoint",
        "streams[1].replay_endpoint",
    }


@pytest.mark.parametrize(
    ("key", "low", "high"),
    [
        ("max_streams", 1, 128),
        ("max_blocks_per_stream", 1, 2**32 - 1),
        ("max_message_bytes", 1, 2**63 - 1),
        ("max_buffered_bytes", 1, 2**63 - 1),
        ("replay_timeout_ms", 1, 2**32 - 1),
        ("resync_interval_ms", 1, 2**32 - 1),
        ("discovery.block_size", 1, 2**32 - 1),
        ("discovery.event_port_offset", 0, 65534),
        ("discovery.replay_port_offset", 0, 65534),
        ("discovery.refresh_interval_ms", 50, 60000),
        ("streams.dp_rank", 0, 2**31 - 1),
        ("streams.block_size", 1, 2**32 - 1),
        ("streams.hash_seed", 0, 2**64 - 1),
    ],
)
def test_bounds_and_strict_integers(key: str, low: int, high: int) -> None:
    group, _, name = key.rpartition(".")

    def document(value: Any) -> dict[str, Any]:
        if group == "streams":
            return {"streams": [stream(**{name: value})]}
        if group == "discovery":
            return {"discovery": {name: value}}
        return {"discovery": {}, name: value}

    path = key.replace("streams.", "streams[0].")
    for good in (low, high):
        KvEventsConfig.from_dict(document(good))
    assert faults(document(low - 1)) == {path: f"must be at least {low}: {low - 1}"}
    assert faults(document(high + 1)) == {path: f"must be at most {high}: {high + 1}"}
    huge = 10**40
    assert faults(document(huge)) == {path: f"must be at most {high}: {huge}"}
    wrong: list[Any] = [str(low), True, float(high), 1.5, None, [], {}]
    for bad in wrong:
        assert faults(document(bad)) == {path: f"must be an integer: {json.dumps(bad)}"}


def test_strict_strings_booleans_lists_and_objects() -> None:
    assert faults({"discovery": {"enabled": 1, "topic": 5}}) == {
        "discovery.enabled": "must be true or false: 1",
        "discovery.topic": "must be a string: 5",
    }
    assert faults({"streams": {"a": 1}}) == {"streams": 'must be a list: {"a": 1}'}
    assert faults({"streams": ["x"]}) == {"streams[0]": 'must be an object: "x"'}
    assert faults({"discovery": []}) == {"discovery": "must be an object: []"}
    assert faults({"streams": [stream(instance_name="")]}) == {
        "streams[0].instance_name": 'must not be empty: ""'
    }
    assert faults({"streams": [stream(topic="\ud800", instance_name="\udfff")]}) == {
        "streams[0].topic": 'must be valid Unicode: "\\ud800"',
        "streams[0].instance_name": 'must be valid Unicode: "\\udfff"',
    }


def test_unknown_keys_are_named_beside_everything_else() -> None:
    found = faults(
        {"max_stream": 4, "streams": [stream(seed=1, dp_rank="0")], "discovery": {"x": 1}}
    )
    assert found == {
        "max_stream": 'unknown key: "max_stream"',
        "streams[0].seed": 'unknown key: "seed"',
        "streams[0].dp_rank": 'must be an integer: "0"',
        "discovery.x": 'unknown key: "x"',
        "": "discovery and non-empty streams exclude each other",
    }


def test_field_faults_do_not_hide_faults_between_fields() -> None:
    twin = stream(0, block_size=0)
    found = faults({"max_streams": 1, "streams": [stream(0), twin, {"dp_rank": -1}]})
    assert found == {
        "streams": "more streams than max_streams 1: 3",
        "streams[1].block_size": "must be at least 1: 0",
        "streams[1]": 'same instance and rank as streams[0]: "engine-0" rank 0',
        "streams[1].endpoint": "tcp://127.0.0.1:18000 is already streams[0].endpoint",
        "streams[1].replay_endpoint": "tcp://127.0.0.1:38000 is already streams[0].replay_endpoint",
        "streams[2].instance_name": 'a required key is missing: "instance_name"',
        "streams[2].endpoint": 'a required key is missing: "endpoint"',
        "streams[2].replay_endpoint": 'a required key is missing: "replay_endpoint"',
        "streams[2].dp_rank": "must be at least 0: -1",
    }


def test_sources() -> None:
    neither = {"": "neither discovery nor streams is given, so nothing would be followed"}
    both = {"": "discovery and non-empty streams exclude each other"}
    assert faults({}) == neither
    assert faults({"streams": []}) == neither
    assert faults({"discovery": None}) == neither
    assert faults({"discovery": {"enabled": False}}) == neither
    assert faults({"discovery": {}, "streams": [stream()]}) == both
    KvEventsConfig.from_dict({"discovery": {}, "streams": []})
    KvEventsConfig.from_dict({"discovery": {"enabled": False}, "streams": [stream()]})


def test_as_many_streams_as_allowed() -> None:
    streams = [stream(position) for position in range(129)]
    assert len(KvEventsConfig.from_dict({"streams": streams[:128]}).streams) == 128
    assert faults({"streams": streams}) == {"streams": "more streams than max_streams 128: 129"}


def test_one_instance_may_have_many_ranks_but_no_rank_twice() -> None:
    KvEventsConfig.from_dict(
        {"streams": [stream(0, instance_name="e"), stream(1, instance_name="e", dp_rank=1)]}
    )
    found = faults({"streams": [stream(0, instance_name="e"), stream(1, instance_name="e")]})
    assert found == {"streams[1]": 'same instance and rank as streams[0]: "e" rank 0'}


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("tcp://Engine.Local:18000", "tcp://engine.local:18000"),
        ("tcp://engine.local.:18000", "tcp://engine.local:18000"),
        ("tcp://[::1]:18000", "tcp://[0:0:0:0:0:0:0:1]:18000"),
        ("tcp://[FD00::A]:18000", "tcp://[fd00:0::a]:18000"),
        ("tcp://127.0.0.1:18000", "tcp://[::ffff:127.0.0.1]:18000"),
    ],
)
def test_an_endpoint_is_used_once_in_any_role_and_spelling(first: str, second: str) -> None:
    across = faults({"streams": [stream(0, endpoint=first), stream(1, replay_endpoint=second)]})
    within = faults({"streams": [stream(0, endpoint=first, replay_endpoint=second)]})
    shown = parse_endpoint(second)
    assert across == {"streams[1].replay_endpoint": f"{shown} is already streams[0].endpoint"}
    assert within == {"streams[0].replay_endpoint": f"{shown} is already streams[0].endpoint"}


def test_discovery_offsets_must_not_share_ports() -> None:
    assert faults({"discovery": {"event_port_offset": 30000}}) == {
        "discovery.replay_port_offset": "must differ from event_port_offset: 30000"
    }


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("tcp://127.0.0.1:1", "tcp://127.0.0.1:1"),
        ("tcp://ENGINE-0.svc:65535", "tcp://engine-0.svc:65535"),
        ("tcp://[::1]:18000", "tcp://[::1]:18000"),
        ("tcp://[FD00:0:0:0:0:0:0:1]:8080", "tcp://[fd00::1]:8080"),
        ("tcp://[fe80::1%25eth0]:8080", "tcp://[fe80::1%25eth0]:8080"),
        ("tcp://[fe80::1%eth0]:8080", "tcp://[fe80::1%25eth0]:8080"),
        ("tcp://my_host:018000", "tcp://my_host:18000"),
    ],
)
def test_endpoints_have_one_spelling(text: str, canonical: str) -> None:
    config = KvEventsConfig.from_dict({"streams": [stream(0, endpoint=text)]})
    assert config.streams[0].endpoint == canonical
    assert str(parse_endpoint(canonical)) == canonical


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "must be tcp://host:port"),
        ("127.0.0.1:18000", "must be tcp://host:port"),
        ("ipc:///tmp/x", "must be tcp://host:port"),
        ("udp://h:1", "must be tcp://host:port"),
        ("tcp://host", "must name a port"),
        ("tcp://[::1]", "must name a port"),
        ("tcp://:18000", "must name a host"),
        ("tcp://host:", "port must be a decimal number"),
        ("tcp://host:http", "port must be a decimal number"),
        ("tcp://host:-1", "port must be a decimal number"),
        ("tcp://host:+1", "port must be a decimal number"),
        ("tcp://host:1_0", "port must be a decimal number"),
        ("tcp://host:\u0661", "port must be a decimal number"),
        ("tcp://host:0", "port must be 1 to 65535"),
        ("tcp://host:65536", "port must be 1 to 65535"),
        ("tcp://host:" + "9" * 5000, "port must be 1 to 65535"),
        ("tcp://host:*", "wildcard port"),
        ("tcp://*:18000", "wildcard host"),
        ("tcp://0.0.0.0:18000", "wildcard host"),
        ("tcp://[::]:18000", "wildcard host"),
        ("tcp://[0:0:0:0:0:0:0:0]:18000", "wildcard host"),
        ("tcp://[0000::0.0.0.0]:18000", "wildcard host"),
        ("tcp://[::ffff:0.0.0.0]:18000", "wildcard host"),
        ("tcp://[::%eth0]:18000", "wildcard host"),
        ("tcp://0:18000", "four decimal numbers"),
        ("tcp://0x0:18000", "four decimal numbers"),
        ("tcp://127.1:18000", "four decimal numbers"),
        ("tcp://256.0.0.1:18000", "four decimal numbers"),
        ("tcp://0.0.0.0.:18000", "four decimal numbers"),
        ("tcp://::1:18000", "must be in brackets"),
        ("tcp://fd00::1:8080", "must be in brackets"),
        ("tcp://[engine]:18000", "not an IPv6 address"),
        ("tcp://[]:18000", "not an IPv6 address"),
        ("tcp://[fe80::1%]:18000", "zone"),
        ("tcp://[fe80::1%0]:18000", "zone"),
        ("tcp://[fe80::1%a-name-too-long0]:18000", "zone"),
        ("tcp://[fd00::1%eth0]:18000", "only a link-local"),
        ("tcp://host:18000/path", "must not carry a path"),
        ("tcp://host:18000?x=1", "must not carry a path"),
        ("tcp://user@host:18000", "must not carry a user name"),
        ("tcp://user:secret@host:18000", "must not carry a user name"),
        ("tcp:// host:18000", "neither a name nor an address"),
        ("tcp://host\n:18000", "neither a name nor an address"),
        ("tcp://a..b:18000", "neither a name nor an address"),
        ("tcp://{0}:18000", "neither a name nor an address"),
        ("tcp://eth0;host:18000", "neither a name nor an address"),
        ("tcp://" + "a" * 64 + ":18000", "neither a name nor an address"),
    ],
)
def test_endpoints_that_cannot_be_connected_to(text: str, reason: str) -> None:
    for role in ("endpoint", "replay_endpoint"):
        found = faults({"streams": [stream(0, **{role: text})]})
        assert list(found) == [f"streams[0].{role}"]
        message = found[f"streams[0].{role}"]
        assert reason in message
        assert message.endswith(f": {ascii(text)[1:-1]}")


def test_broken_json_is_a_fault_with_its_place() -> None:
    assert json_faults("") == {"": "the configuration is empty, but needs discovery or streams"}
    assert json_faults(b" \n") == {"": "the configuration is empty, but needs discovery or streams"}
    assert json_faults('{\n  "discovery": }') == {
        "": "not valid JSON, expecting value: line 2 column 16"
    }
    assert json_faults(b'{"a": "\xff"}') == {"": "not UTF-8, at byte: 7"}
    assert json_faults("[]") == {"": "the configuration must be a JSON object: []"}
    assert json_faults("null") == {"": "the configuration must be a JSON object: null"}
    assert json_faults("[" * 100_000) == {"": "not usable JSON, nested too deeply"}
    digits = json_faults('{"max_streams": ' + "9" * 10_000 + "}")
    assert digits == {"": "not usable JSON, a number has too many digits"}


def test_duplicate_keys_and_constants_are_faults_with_their_paths() -> None:
    text = """{"discovery": {"topic": "a", "topic": "b"}, "max_streams": NaN,
               "replay_timeout_ms": -Infinity, "resync_interval_ms": 1e999,
               "max_streams": NaN, "max_message_bytes": 0}"""
    assert json_faults(text.replace('"max_streams": NaN,', "", 1)) == {
        "discovery.topic": 'the key is given more than once: "topic"',
        "max_streams": "must be a finite number: NaN",
        "replay_timeout_ms": "must be a finite number: -Infinity",
        "resync_interval_ms": "must be a finite number: Infinity",
        "max_message_bytes": "must be at least 1: 0",
    }
    assert json_faults('{"streams": [{"x": 1, "x": 2}]}')["streams[0].x"] == (
        'the key is given more than once: "x"'
    )


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    large = tmp_path / "large.json"
    large.write_bytes(b" " * ((4 << 20) + 1))
    cases: list[tuple[Path | str, str]] = [
        (tmp_path / "absent.json", "no such file or directory: "),
        (tmp_path, "is a directory: "),
        ("a\0b", "null byte: "),
        (large, "larger than the allowed bytes: 4194304"),
    ]
    for path, reason in cases:
        with pytest.raises(ConfigError) as caught:
            KvEventsConfig.from_file(path)
        assert reason in told(caught.value)[""]


def test_a_good_file(tmp_path: Path) -> None:
    path = tmp_path / "kv.json"
    path.write_text(json.dumps({"streams": [stream()], "replay_timeout_ms": 5}), "utf-8")
    config = KvEventsConfig.from_file(str(path))
    assert config.replay_timeout_ms == 5
    assert KvEventsConfig.from_dict(config.model_dump(mode="json")) == config


def test_keys_that_are_not_strings() -> None:
    assert faults({"discovery": {}, 5: 1}) == {"5": 'unknown key: "5"'}
    found = faults({"streams": [stream() | {5: 1}]})
    assert list(found) == ["streams[0][5]"]
