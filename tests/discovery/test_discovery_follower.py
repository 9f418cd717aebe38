"""What a follower asks of its directory, and what it says of instances that it cannot follow."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import kvcache
import pytest
from kvcache.config import DiscoveryConfig
from kvcache.discovery import follower
from kvcache.discovery.follower import StreamFollower
from kvcache.registry.model import InstanceType, Load, Registration
from kvcache.registry.registry import Registry

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kvcache import StreamSpec


class Directory:
    def __init__(self) -> None:
        self.calls: list[list[tuple[str, int, str | None]]] = []
        self.specs: list[StreamSpec] = []

    def set_streams(self, streams: Sequence[StreamSpec]) -> tuple[int, int, int]:
        self.specs = list(streams)
        self.calls.append([(one.instance_name, one.dp_rank, one.identity) for one in streams])
        return (0, 0, 0)


class World:
    def __init__(self, max_streams: int = 128) -> None:
        self.registry, self.directory = Registry(), Directory()
        config = DiscoveryConfig(block_size=16, topic="kv")
        self.follower = StreamFollower(self.registry, self.directory, config, max_streams)

    def put(self, name: str, incarnation: str = "i1", ranks: int = 1) -> None:
        registration = Registration(name, InstanceType.PREFILL, ranks, incarnation)
        self.registry.put(f"XLLM:PREFILL:{name}", registration, 1)


def test_who_sees_the_streams_sees_why_others_are_not_among_them() -> None:
    world = World(max_streams=1)
    seen: list[list[str]] = []

    def set_streams(streams: Sequence[StreamSpec]) -> tuple[int, int, int]:
        seen.append(list(world.follower.plan.exclusions))
        return (len(streams), 0, 0)

    world.directory.set_streams = set_streams  # type: ignore[method-assign]
    world.put("a:1")
    world.put("b:1")
    world.follower.refresh()
    assert seen == [["b:1"]]


def test_streams_carry_the_configuration() -> None:
    world = World()
    world.put("[::1]:8000")
    world.follower.refresh()
    (spec,) = world.directory.specs
    assert (spec.instance_name, spec.dp_rank) == ("[::1]:8000", 0)
    assert (spec.endpoint, spec.replay_endpoint) == ("tcp://[::1]:18000", "tcp://[::1]:38000")
    assert (spec.block_size, spec.topic, spec.hash_seed) == (16, "kv", 1024)
    assert spec.identity == "incarnation i1"


def test_the_directory_is_told_only_what_differs() -> None:
    world = World()
    world.follower.refresh()
    assert world.directory.calls == []
    world.put("a:1")
    world.follower.refresh()
    world.registry.record_heartbeat("a:1", incarnation_id="i1", load=Load(1, 0.5))
    world.put("a:1")
    world.follower.refresh()
    world.follower.refresh()
    assert world.directory.calls == [[("a:1", 0, "incarnation i1")]]


def test_another_number_of_ranks_retires_all_of_them_first() -> None:
    world = World()
    world.put("a:1")
    world.put("b:1")
    world.follower.refresh()
    world.put("a:1", ranks=2)
    world.follower.refresh()
    without, all_of_it = world.directory.calls[1:]
    assert without == [("b:1", 0, "incarnation i1")]
    assert [(name, rank) for name, rank, _ in all_of_it] == [("a:1", 0), ("a:1", 1), ("b:1", 0)]


def test_an_instance_that_the_core_refuses_is_excluded_and_the_others_carry_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refusing(**fields: object) -> StreamSpec:
        if fields["instance_name"] == "a:1":
            message = "no such address"
            raise ValueError(message)
        return kvcache.StreamSpec(**fields)  # type: ignore[arg-type]

    monkeypatch.setattr(follower, "StreamSpec", refusing)
    world = World()
    world.put("a:1", ranks=2)
    world.put("b:1")
    world.follower.refresh()
    assert world.directory.calls == [[("b:1", 0, "incarnation i1")]]
    assert world.follower.plan.exclusions == {"a:1": "no such address"}


def test_a_large_fleet_over_the_limit_is_no_flood_of_lines(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = World(max_streams=1)
    for number in range(1000):
        world.put(f"a:{number + 1}")
    world.follower.refresh()
    assert len(world.follower.plan.exclusions) == 999
    told = [record for record in caplog.records if record.name == "kvcache.discovery"]
    assert len(told) < 200
    assert "nor as many others: 871" in caplog.messages
    caplog.clear()
    world.put("a:1", incarnation="i2")
    world.follower.refresh()
    assert [record.levelno for record in caplog.records if record.levelno > logging.INFO] == []
