"""Which streams follow from the registry (spec: instances and discovery; cases 19, 20, 27, 32)."""

from __future__ import annotations

import random
import time
from collections import Counter
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kvcache.config import DiscoveryConfig
from kvcache.discovery.plan import Plan, PlannedStream, plan, shape_of
from kvcache.endpoint import parse_endpoint
from kvcache.registry.model import Instance, InstanceType, Registration, Role, State
from kvcache.registry.snapshot import RegistrySnapshot

# A busy machine is no fault of an example; a failing one prints what reproduces it.
PATIENT = settings(deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow])

CONFIG = DiscoveryConfig()


def instance(name: str, dp_size: int = 1, **changes: Any) -> Instance:
    kind = changes.pop("type", InstanceType.DEFAULT)
    role = changes.pop("role", None) or Role[kind.name]
    state = changes.pop("state", State.ACTIVE)
    registration = Registration(name, kind, dp_size, **{"incarnation_id": "i1"} | changes)
    return Instance(registration, f"XLLM:{kind.name}:{name}", role, state, 0.0, 1)


def planned(*instances: Instance, config: DiscoveryConfig = CONFIG, max_streams: int = 128) -> Plan:
    rows = MappingProxyType({one.name: one for one in instances})
    return plan(RegistrySnapshot(1, rows), config, max_streams)


def followed(result: Plan) -> list[str]:
    return sorted({stream.instance_name for stream in result.streams})


def test_the_ports_of_the_specification() -> None:
    result = planned(instance("127.0.0.1:8000", 2))
    assert result.streams == tuple(
        PlannedStream(
            "127.0.0.1:8000",
            rank,
            "incarnation i1",
            f"tcp://127.0.0.1:{18000 + rank}",
            f"tcp://127.0.0.1:{38000 + rank}",
        )
        for rank in range(2)
    )
    assert not result.exclusions
    assert not result.unsubscribed


def test_ipv6_keeps_its_brackets() -> None:
    [stream] = planned(instance("[FD00::1]:8000")).streams
    assert stream.instance_name == "[FD00::1]:8000"
    assert stream.endpoint == "tcp://[fd00::1]:18000"


def test_an_identity_without_incarnation() -> None:
    [stream] = planned(instance("h:1", incarnation_id="", register_ts_ms=5)).streams
    assert stream.identity == "registered 5"


@pytest.mark.parametrize(
    ("kind", "role", "subscribed"),
    [
        (InstanceType.DEFAULT, Role.DEFAULT, True),
        (InstanceType.PREFILL, Role.PREFILL, True),
        (InstanceType.DECODE, Role.DECODE, False),
        (InstanceType.MIX, Role.PREFILL, True),
        (InstanceType.MIX, Role.DECODE, False),
    ],
)
def test_subscribed_roles(kind: InstanceType, role: Role, subscribed: bool) -> None:
    result = planned(instance("h:1", type=kind, role=role))
    assert bool(result.streams) is subscribed
    assert not result.exclusions
    assert ("decode" in result.reason("h:1")) is not subscribed


@pytest.mark.parametrize(
    ("state", "subscribed"),
    [(State.ACTIVE, True), (State.LEASE_LOST, True), (State.SUSPECT, False)],
)
def test_a_suspect_loses_its_streams(state: State, subscribed: bool) -> None:
    result = planned(instance("h:1", state=state))
    assert bool(result.streams) is subscribed
    assert ("SUSPECT" in result.reason("h:1")) is not subscribed
    assert not result.exclusions


def test_a_name_that_is_no_address_is_excluded() -> None:
    result = planned(instance("fd00::1:8080"), instance("h:1"))
    assert followed(result) == ["h:1"]
    assert result.exclusions == {
        "fd00::1:8080": "the name is not host:port: fd00::1:8080",
    }


# --- ports ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("port", "dp_size", "reason"),
    [
        (35535, 1, ""),
        (35534, 2, ""),
        (35535, 2, "the replay port of rank 1 of h:35535 is past 65535: 65536"),
        (35536, 1, "the replay port of rank 0 of h:35536 is past 65535: 65536"),
        (55536, 1, "the replay port of rank 0 of h:55536 is past 65535: 85536"),
        (8000, 10**18, "the replay port of rank 27536 of h:8000 is past 65535: 65536"),
    ],
)
def test_ports_that_overflow(port: int, dp_size: int, reason: str) -> None:
    result = planned(instance(f"h:{port}", dp_size))
    assert result.reason(f"h:{port}") == reason
    assert bool(result.streams) is not bool(reason)


def test_an_event_port_may_overflow_alone() -> None:
    config = DiscoveryConfig(event_port_offset=60000, replay_port_offset=1)
    result = planned(instance("h:8000"), config=config)
    assert result.reason("h:8000") == "the event port of rank 0 of h:8000 is past 65535: 68000"


def test_two_instances_whose_ranks_share_a_port() -> None:
    a, b, c = instance("h:8000", 3), instance("h:8002"), instance("h:8003")
    result = planned(a, b, c)
    assert followed(result) == ["h:8003"]
    assert result.exclusions == {
        "h:8000": "the event port of rank 2 of h:8000 is also the event port of rank 0 of h:8002: 18002",
        "h:8002": "the event port of rank 0 of h:8002 is also the event port of rank 2 of h:8000: 18002",
    }


def test_an_event_port_that_is_another_instances_replay_port() -> None:
    result = planned(instance("h:8000"), instance("h:28000"))
    assert set(result.exclusions) == {"h:8000", "h:28000"}
    assert result.reason("h:8000") == (
        "the replay port of rank 0 of h:8000 is also the event port of rank 0 of h:28000: 38000"
    )


def test_an_instance_whose_own_ranks_share_a_port() -> None:
    config = DiscoveryConfig(event_port_offset=10000, replay_port_offset=10001)
    assert planned(instance("h:1"), config=config).streams
    result = planned(instance("h:1", 2), config=config)
    assert result.exclusions == {
        "h:1": "the replay port of rank 0 of h:1 is also the event port of rank 1 of h:1: 10002"
    }


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Host:8000", "host:8000"),
        ("host.:8000", "host:8000"),
        ("[::ffff:10.0.0.1]:8000", "10.0.0.1:8000"),
        ("[FD00:0::1]:8000", "[fd00::1]:8000"),
        ("[fe80::1%25eth0]:8000", "[fe80::1%eth0]:8000"),
        ("h:08000", "h:8000"),
    ],
)
def test_two_names_of_one_address_exclude_each_other(one: str, other: str) -> None:
    assert set(planned(instance(one), instance(other)).exclusions) == {one, other}


def test_the_same_ports_on_other_hosts_do_not_matter() -> None:
    names = ["10.0.0.1:8000", "10.0.0.2:8000", "[fe80::1%eth0]:8000", "[fe80::1%eth1]:8000"]
    assert followed(planned(*map(instance, names))) == sorted(names)


def test_two_engines_on_one_host_are_two(  # case 27
) -> None:
    names = ["10.0.0.1:8000", "10.0.0.1:8001"]
    assert followed(planned(*map(instance, names))) == names


def test_only_what_is_subscribed_needs_its_ports() -> None:
    suspect = instance("h:8001", state=State.SUSPECT)
    decode = instance("h:8002", type=InstanceType.DECODE)
    assert followed(planned(instance("h:8000", 3), suspect, decode)) == ["h:8000"]


def test_an_overflowing_instance_still_takes_the_ports_that_exist() -> None:
    overflowing, neighbour, far = instance("h:35535", 2), instance("h:35536", 1), instance("h:8000")
    config = DiscoveryConfig(event_port_offset=1, replay_port_offset=30000)
    result = planned(overflowing, neighbour, far, config=config)
    assert followed(result) == ["h:8000"]
    below = instance("h:35534", 2)
    result = planned(overflowing, below, far, config=config)
    assert followed(result) == ["h:8000"]
    assert "is also" in result.reason("h:35534")
    assert "is past" in result.reason("h:35535")


def test_a_wide_range_meets_more_than_its_neighbour() -> None:
    wide, small = instance("h:1000", 100), [instance(f"h:{port}") for port in (1001, 1050, 1099)]
    result = planned(wide, *small, instance("h:1100"))
    assert followed(result) == ["h:1100"]
    for one in small:
        assert "of h:1000: " in result.reason(one.name)


def test_absurd_numbers_of_ranks_cost_nothing() -> None:
    started = time.process_time()
    result = planned(*(instance(f"h{number}:1", 10**15) for number in range(1000)))
    assert len(result.exclusions) == 1000
    assert time.process_time() - started < 5


# --- the limit -----------------------------------------------------------------------------------


def test_over_the_limit_whole_instances_in_the_order_of_names() -> None:
    a, b, c, d = (
        instance(f"{name}:1", size) for name, size in zip("abcd", (2, 3, 1, 2), strict=True)
    )
    result = planned(d, c, b, a, max_streams=4)
    assert [stream.instance_name for stream in result.streams] == ["a:1", "a:1", "c:1"]
    assert result.exclusions == {
        "b:1": "the instance needs 3 streams, and of max_streams 4 there are left: 2",
        "d:1": "the instance needs 2 streams, and of max_streams 4 there are left: 1",
    }


def test_what_is_excluded_takes_no_place() -> None:
    result = planned(
        instance("a:1", 2),
        instance("a:2"),
        instance("b:1", state=State.SUSPECT),
        instance("c:1", type=InstanceType.DECODE),
        instance("d:1"),
        max_streams=1,
    )
    assert followed(result) == ["d:1"]


# --- whatever the registry -----------------------------------------------------------------------

NAMES = st.builds(
    "{}:{}".format,
    st.sampled_from(["h", "H", "h.", "g", "[::1]", "[::ffff:1.2.3.4]", "1.2.3.4", "fd00::1", ""]),
    st.integers(1, 12) | st.sampled_from([25530, 35530, 55530, 65535, 0]),
)
SIZES = st.integers(1, 4) | st.sampled_from([10, 30000, 10**12])
INSTANCES = st.lists(
    st.builds(
        lambda name, size, kind, state: instance(
            name,
            size,
            type=kind,
            role=Role.PREFILL if kind is InstanceType.MIX else None,
            state=state,
        ),
        NAMES,
        SIZES,
        st.sampled_from(list(InstanceType)),
        st.sampled_from([State.ACTIVE, State.ACTIVE, State.LEASE_LOST, State.SUSPECT]),
    ),
    max_size=12,
    unique_by=lambda one: one.name,
)
CONFIGS = st.builds(
    lambda event, replay: DiscoveryConfig(event_port_offset=event, replay_port_offset=replay),
    st.sampled_from([0, 3, 10000]),
    st.sampled_from([1, 5, 10004, 30000]),
)


def ports(one: Instance, config: DiscoveryConfig) -> set[tuple[str, int, str, int]]:
    """Ports of an instance with few ranks, by brute force: host, port, and whose it is."""
    host, port = parse_endpoint(f"tcp://{one.name}").identity
    return {
        (host, port + offset + rank, use, rank)
        for use, offset in (("e", config.event_port_offset), ("r", config.replay_port_offset))
        for rank in range(min(one.dp_size, 70000))
        if port + offset + rank <= 65535
    }


def is_address(name: str) -> bool:
    try:
        parse_endpoint(f"tcp://{name}")
    except ValueError:
        return False
    return True


@PATIENT
@given(INSTANCES, CONFIGS, st.integers(1, 16), st.randoms(use_true_random=False))
def test_whatever_is_registered(
    instances: list[Instance], config: DiscoveryConfig, limit: int, rng: random.Random
) -> None:
    result = planned(*instances, config=config, max_streams=limit)
    shuffled = instances.copy()
    rng.shuffle(shuffled)
    assert planned(*shuffled, config=config, max_streams=limit) == result

    # No two streams share a socket, and there are never too many.
    sockets = [
        parse_endpoint(text).identity
        for stream in result.streams
        for text in (stream.endpoint, stream.replay_endpoint)
    ]
    assert len(sockets) == len(set(sockets))
    assert len(result.streams) <= limit

    # Whole instances only, and every instance is in exactly one place, with a reason.
    sizes = Counter(stream.instance_name for stream in result.streams)
    by_name = {one.name: one for one in instances}
    assert all(by_name[name].dp_size == size for name, size in sizes.items())
    places = [*sizes, *result.exclusions, *result.unsubscribed]
    assert sorted(places) == sorted(by_name)
    assert all(result.reason(name) for name in places if name not in sizes)
    assert not any(result.reason(name) for name in sizes)


@PATIENT
@given(INSTANCES, CONFIGS, st.integers(1, 16), st.randoms(use_true_random=False))
def test_new_processes_at_old_names_need_no_new_plan(
    instances: list[Instance], config: DiscoveryConfig, limit: int, rng: random.Random
) -> None:
    renewed = [
        replace(one, registration=replace(one.registration, incarnation_id="i2"), since_s=9.0)
        if rng.random() < 0.5
        else one
        for one in instances
    ]
    before = planned(*instances, config=config, max_streams=limit)
    snapshot = RegistrySnapshot(2, MappingProxyType({one.name: one for one in renewed}))
    rows = MappingProxyType({one.name: one for one in instances})
    assert shape_of(snapshot) == shape_of(RegistrySnapshot(1, rows))
    assert before.identified(snapshot) == plan(snapshot, config, limit)


@PATIENT
@given(INSTANCES, CONFIGS)
def test_conflicts_are_those_that_brute_force_finds(
    instances: list[Instance], config: DiscoveryConfig
) -> None:
    instances = [one for one in instances if is_address(one.name) and one.dp_size < 100]
    result = planned(*instances, config=config, max_streams=10**6)
    wanted = [one for one in instances if one.name not in result.unsubscribed]
    users = Counter((host, port) for one in wanted for host, port, *_ in ports(one, config))
    for one in wanted:
        own = ports(one, config)
        shares = any(users[host, port] > 1 for host, port, *_ in own)
        overflows = len(own) < 2 * one.dp_size
        assert (one.name in result.exclusions) == (shares or overflows)
