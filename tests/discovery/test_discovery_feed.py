"""From changes in etcd to the registry: what is ignored, why, and how loudly (spec: values)."""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass
from typing import Any, Literal

import pytest
from kvcache.discovery.feed import RegistryFeed
from kvcache.discovery.keys import KeyKind, Namespace
from kvcache.registry.model import InstanceType, Load, Role, State
from kvcache.registry.registry import Registry
from kvcache.registry.told import MAX_TOLD

A, B, BARE = "10.0.0.1:8000", "[fd00::1]:8000", "fd00::1:8000"
STALE_KEY = "the instance is registered under another key by now"
STALE_PROCESS = "another process is registered under it by now"


@dataclass(frozen=True)
class Change:
    """As a mirror tells it."""

    kind: Literal["put", "delete"]
    key: bytes
    value: bytes
    prev_value: bytes | None
    create_revision: int
    mod_revision: int


class Etcd:
    """A little etcd that tells its changes to a feed."""

    def __init__(self, namespace: str = "") -> None:
        self.keys = Namespace(namespace)
        self.registry = Registry(lambda: 0.0)
        self.feed = RegistryFeed(self.registry, self.keys)
        self.held: dict[bytes, bytes] = {}
        self.revision = 0

    def put(self, key: bytes, value: bytes | dict[str, Any]) -> Change:
        self.revision += 1
        value = value if isinstance(value, bytes) else json.dumps(value).encode()
        previous = self.held.get(key)
        self.held[key] = value
        change = Change("put", key, value, previous, self.revision, self.revision)
        self.feed.apply(change)
        return change

    def delete(self, key: bytes, *, compacted: bool = False) -> Change:
        self.revision += 1
        previous = self.held.pop(key, None)
        change = Change("delete", key, b"", None if compacted else previous, 0, self.revision)
        self.feed.apply(change)
        return change

    def register(self, name: str, incarnation_id: str = "i1", **changes: Any) -> bytes:
        kind = InstanceType(changes.get("type", 0))
        key = self.keys.registration_key(kind, name)
        self.put(key, {"name": name, "type": int(kind), "incarnation_id": incarnation_id} | changes)
        return key

    @property
    def rows(self) -> dict[str, Any]:
        return dict(self.registry.snapshot().instances)


@pytest.fixture
def etcd() -> Etcd:
    return Etcd()


def test_registrations_become_instances(etcd: Etcd) -> None:
    etcd.register(A, dp_size=2)
    etcd.register(B, type=3)
    assert (etcd.rows[A].dp_size, etcd.rows[A].key) == (2, f"XLLM:DEFAULT:{A}")
    assert etcd.rows[B].role is Role.DECODE
    assert etcd.rows[B].revision == 2


def test_a_namespace_is_no_part_of_the_tracked_key() -> None:
    etcd = Etcd("/prod/")
    etcd.delete(etcd.register(A))
    assert etcd.rows[A].key == f"XLLM:DEFAULT:{A}"
    assert len(etcd.registry.take_probes()) == 1


@pytest.mark.parametrize("compacted", [False, True])
def test_a_deletion_starts_a_probe(etcd: Etcd, compacted: bool) -> None:
    etcd.delete(etcd.register(A), compacted=compacted)
    assert len(etcd.registry.take_probes()) == 1


def test_a_deletion_whose_previous_value_cannot_be_read_counts(etcd: Etcd) -> None:
    key = etcd.register(A)
    etcd.put(key, b"{")
    etcd.delete(key)
    assert len(etcd.registry.take_probes()) == 1


def test_stale_deletions_are_ignored(etcd: Etcd, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "kvcache.discovery"):
        old = etcd.register(A, type=1)
        new = etcd.register(A, type=2)
        etcd.delete(old)
        other = json.dumps({"name": A, "type": 2, "incarnation_id": "i0"}).encode()
        etcd.feed.apply(Change("delete", new, b"", other, 0, 9))
    assert not etcd.registry.take_probes()
    assert etcd.rows[A].state is State.ACTIVE
    assert etcd.feed.ignored == {"key": 0, "value": 0, "stale": 2}
    assert [line.getMessage() for line in caplog.records if line.name == "kvcache.discovery"] == [
        f"ignored a deletion of XLLM:PREFILL:{A}, {STALE_KEY}: other_key",
        f"ignored a deletion of XLLM:DECODE:{A}, {STALE_PROCESS}: other_incarnation",
    ]


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"{",
        b"null",
        {"name": B, "type": 0},
        {"name": A, "type": 1},
        {"name": A, "type": 9},
        {"name": A, "type": 0, "dp_size": 0},
        {"name": A, "type": 0, "dp_size": 2**31},
    ],
)
def test_a_refused_value_leaves_the_registration_and_the_others(etcd: Etcd, value: Any) -> None:
    key = etcd.register(A)
    before = etcd.rows
    etcd.put(key, value)
    assert etcd.rows == before
    assert etcd.feed.ignored["value"] == 1
    etcd.register(B)
    assert list(etcd.rows) == [A, B]


def test_loads_reach_their_instance(etcd: Etcd) -> None:
    etcd.register(A)
    legal = {"waiting_requests_num": 3, "gpu_cache_usage_perc": 0.5}
    key = etcd.keys.load_key(A)
    etcd.put(key, legal)
    assert etcd.rows[A].load(0.0).load == Load(3, 0.5)
    etcd.put(key, b"not JSON")
    assert etcd.rows[A].load(0.0).load == Load(3, 0.5)
    etcd.put(key, legal | {"waiting_requests_num": -1})
    assert not etcd.rows[A].load(0.0).load.legal
    etcd.put(key, legal)
    assert etcd.rows[A].load(0.0).load.legal
    etcd.delete(key)
    assert etcd.rows[A].load(0.0) is None


def test_a_load_of_the_process_before_is_no_report(etcd: Etcd) -> None:
    etcd.register(A, "i1")
    etcd.put(etcd.keys.load_key(A), {"waiting_requests_num": 3, "gpu_cache_usage_perc": 0.5})
    etcd.register(A, "i2")
    assert etcd.rows[A].load(0.0) is None


def test_keys_of_replicas_are_understood_and_change_nothing(etcd: Etcd) -> None:
    etcd.put(etcd.keys.service_key("s:1"), b"s:1")
    etcd.put(etcd.keys.master_key, b"s:1")
    etcd.delete(etcd.keys.master_key)
    assert not etcd.rows
    assert etcd.feed.applied == {
        KeyKind.REGISTRATION: 0,
        KeyKind.LOAD: 0,
        KeyKind.SERVICE: 1,
        KeyKind.MASTER: 2,
    }
    assert set(etcd.feed.ignored.values()) == {0}


@pytest.mark.parametrize(
    "key", [b"XLLM:FOO:h:1", b"XLLM:MIX:\xff:1", f"XLLM:DEFAULT:{BARE}".encode(), b"other"]
)
def test_unknown_keys_are_ignored(etcd: Etcd, key: bytes) -> None:
    etcd.put(key, b"{}")
    etcd.delete(key)
    assert etcd.feed.ignored["key"] == 2
    assert not etcd.rows


def test_a_batch_keeps_its_order(etcd: Etcd) -> None:
    key = etcd.keys.registration_key(InstanceType.DEFAULT, A)
    values = [json.dumps({"name": A, "type": 0, "incarnation_id": i}).encode() for i in ("a", "b")]
    etcd.feed.on_events([Change("put", key, value, None, 1, 1) for value in values])
    assert etcd.rows[A].registration.incarnation_id == "b"


def test_a_repeated_fault_is_logged_once(etcd: Etcd, caplog: pytest.LogCaptureFixture) -> None:
    key = etcd.keys.registration_key(InstanceType.DEFAULT, A)
    for _ in range(1000):
        etcd.put(key, b"{\n")
        etcd.put(b"XLLM:FOO:\nh:1", b"")
    value, key_line = (line.getMessage() for line in caplog.records)
    assert value.startswith(f"ignored a change of XLLM:DEFAULT:{A}, the value is not JSON, ")
    assert key_line == (
        "ignored a change of XLLM:FOO:\\nh:1, the key has an unknown type: XLLM:FOO:\\nh:1"
    )
    assert {line.levelno for line in caplog.records} == {logging.WARNING}
    etcd.put(key, b"[")
    assert len(caplog.records) == 3
    assert etcd.feed.ignored["value"] == 1001


def test_what_is_remembered_of_faults_is_bounded(etcd: Etcd) -> None:
    key = etcd.keys.registration_key(InstanceType.DEFAULT, A)
    logger = logging.getLogger("kvcache.discovery")
    logger.disabled = True
    try:
        for number in range(MAX_TOLD + 100):
            etcd.put(key, str(number).encode())
    finally:
        logger.disabled = False
    assert len(etcd.feed._told._told) == MAX_TOLD
