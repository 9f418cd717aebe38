"""Endpoints of a configuration, through the command line."""

from __future__ import annotations

import json
import signal
from typing import TYPE_CHECKING, Any

import httpx
import kvcache
import pytest
from kvcache.cli import main
from kvcache.config import KvEventsConfig, StreamConfig
from kvcache.endpoint import Endpoint
from serving import Process

if TYPE_CHECKING:
    from pathlib import Path

TOKEN_VARIABLE = "KVCACHE_INTERNAL_API_TOKEN"  # noqa: S105


@pytest.fixture(autouse=True)
def no_token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(TOKEN_VARIABLE, raising=False)


def stream(name: str, endpoint: str, port: int) -> dict[str, Any]:
    return {
        "instance_name": name,
        "endpoint": endpoint,
        "replay_endpoint": f"tcp://127.0.0.1:{port}",
    }


def write(path: Path, *streams: dict[str, Any]) -> str:
    path.write_text(json.dumps({"streams": streams}))
    return str(path)


def test_zones_are_checked_and_served(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = write(
        tmp_path / "kv.json",
        stream("a", "tcp://[fe80::1%25none-such0]:18000", 1),
        stream("b", "tcp://[fe80::1%none-such1]:18000", 2),
    )
    assert main(["check", path]) == 0
    out = capsys.readouterr().out
    assert "events tcp://[fe80::1%25none-such0]:18000," in out
    assert "events tcp://[fe80::1%25none-such1]:18000," in out
    with Process("serve", "--port=0", "--kv_events_config_file", path) as served:
        url = f"{served.url()}/v1/internal/streams"
        streams = httpx.get(url, trust_env=False).json()["streams"]
        assert [one["endpoint"] for one in streams] == [
            "tcp://[fe80::1%25none-such0]:18000",
            "tcp://[fe80::1%25none-such1]:18000",
        ]
        served.signal(signal.SIGTERM)
        assert served.wait() == 0
    assert not any("Traceback" in line for line in served.stderr)


def test_bad_zones_are_one_line_each(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = write(
        tmp_path / "kv.json",
        stream("a", "tcp://[fd00::1%25eth0]:18000", 1),
        stream("b", "tcp://[fe80::1%25eth 0]:18000", 2),
    )
    zone = "kvcache: streams[1].endpoint: the zone of the IPv6 address is no interface's name or number"
    scope = (
        "kvcache: streams[0].endpoint: only a link-local IPv6 address (fe80::/10) can have a zone"
    )
    expected = [
        f"{scope}: tcp://[fd00::1%25eth0]:18000",
        f"{zone}: tcp://[fe80::1%25eth 0]:18000",
    ]
    assert main(["check", path]) == 2
    assert capsys.readouterr().err.splitlines() == expected
    with Process("serve", "--port=0", "--kv_events_config_file", path) as served:
        assert served.wait() == 2
    assert served.stderr == expected


class LaxEndpoint(Endpoint):
    """What a configuration lets through that is laxer than the core."""

    def __str__(self) -> str:
        return self.host

    @property
    def identity(self) -> tuple[str, int]:
        return (self.host, self.port)


@pytest.mark.parametrize("command", [["check"], ["serve", "--port=0", "--kv_events_config_file"]])
def test_what_only_the_core_refuses_is_a_configuration_fault(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    command: list[str],
) -> None:
    monkeypatch.setattr("kvcache.config.parse_endpoint", lambda text: LaxEndpoint(text, 1))
    path = write(
        tmp_path / "kv.json",
        stream("a", "nowhere", 1),
        stream("b", "elsewhere", 2),
        stream("c", "tcp://127.0.0.1:3", 4),
    )
    assert main([*command, path]) == 2
    assert capsys.readouterr().err.splitlines() == [
        'kvcache: streams[0]: endpoint must begin with tcp://: "nowhere"',
        'kvcache: streams[1]: endpoint must begin with tcp://: "elsewhere"',
    ]


@pytest.mark.parametrize(
    "changes",
    [{"streams": 2}, {"max_streams": 0}, {"dp_rank": 2**40}, {"replay_timeout_ms": -1}],
    ids=repr,
)
def test_a_directory_raises_no_other_fault_than_configuration(changes: dict[str, int]) -> None:
    one = StreamConfig.model_construct(
        **stream("a", "tcp://127.0.0.1:1", 2), dp_rank=changes.get("dp_rank", 0)
    )
    limits = {name: value for name, value in changes.items() if name.startswith(("max", "replay"))}
    config = KvEventsConfig.model_construct(streams=(one,) * changes.get("streams", 1), **limits)
    with pytest.raises(kvcache.ConfigError, match=r"^streams"):
        kvcache.Directory(config)
