"""Instances come and go, and the directory follows: a real etcd, real engines (spec: instances and discovery)."""

from __future__ import annotations

import json
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import kvcache
import pytest
from kvcache.discovery.config import EtcdConfig
from kvcache.discovery.keys import Namespace
from kvcache.discovery.runner import DiscoveryOptions
from kvcache.registry.model import Load, Role
from kvcache.service import Service
from kvcache.testing import ReplayFault
from registered import BLOCK, TYPES, Registered, eventually, prompt

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from etcd_server import Etcd

EXAMPLE = Path(__file__).parents[2] / "examples" / "kv_events_discovery_config.json"
PROMPT = prompt(1, 4)
WHOLE = 4 * BLOCK


@contextmanager
def following(etcd: Etcd, namespace: str = "", **changes: Any) -> Iterator[Service]:
    """The example configuration, compared more often so that tests are short."""
    config = json.loads(EXAMPLE.read_text())
    config["discovery"]["refresh_interval_ms"] = 50
    options = DiscoveryOptions(
        EtcdConfig(endpoints=(etcd.endpoint,)), Namespace(namespace), role="observer"
    )
    parsed = kvcache.KvEventsConfig.from_dict(config | changes)
    with Service.start(parsed, options) as service:
        yield service


def hits(service: Service, token_ids: list[int] = PROMPT) -> dict[tuple[str, int], int]:
    """Tokens that each stream holds on Device, 0 while it is not synchronized."""
    body = json.dumps({"token_ids": token_ids}).encode()
    matches = json.loads(service.query_json(body))["matches"]
    return {(one["instance_name"], one["dp_rank"]): one["device_hit_tokens"] for one in matches}


def sees(service: Service, expected: dict[tuple[str, int], int], within_s: float = 20) -> float:
    return eventually(lambda: hits(service) == expected, f"{hits(service)} is {expected}", within_s)


def state(service: Service, one: Registered) -> str | None:
    found = service.registry.snapshot().instances.get(one.name)
    return None if found is None else found.state.value


def excluded(service: Service) -> dict[str, str]:
    assert service.follower is not None
    return dict(service.follower.plan.exclusions)


@pytest.fixture
def started(etcd: Etcd) -> Iterator[Callable[..., Registered]]:
    with ExitStack() as stack:
        yield lambda **options: stack.enter_context(Registered(etcd, **options))


def test_an_instance_joins_and_leaves_by_the_example_configuration(
    etcd: Etcd, started: Callable[..., Registered]
) -> None:
    one = started()
    one.engines[0].prefill(PROMPT)
    with following(etcd) as service:
        eventually(lambda: service.discovery.status.connected, "connected")
        assert hits(service) == {}
        one.register()
        sees(service, {(one.name, 0): WHOLE})
        one.healthy = False
        one.lose_lease()
        sees(service, {}, within_s=5)
        assert state(service, one) == "SUSPECT"


@pytest.mark.parametrize("kind", TYPES)
def test_what_prefills_is_followed(
    etcd: Etcd, started: Callable[..., Registered], kind: str
) -> None:
    one = started(kind=kind)
    one.engines[0].prefill(PROMPT)
    other = started()
    with following(etcd) as service:
        # Without anybody in the decode role MIX starts as one: then it is not followed.
        one.register()
        other.register()
        other.engines[0].prefill(PROMPT)
        followed = {(one.name, 0): WHOLE} if kind in {"DEFAULT", "PREFILL"} else {}
        sees(service, followed | {(other.name, 0): WHOLE})
        assert excluded(service) == {}
        if kind == "MIX":
            service.registry.set_role(one.name, Role.PREFILL)
            sees(service, {(one.name, 0): WHOLE, (other.name, 0): WHOLE})
            service.registry.set_role(one.name, Role.DECODE)
            sees(service, {(other.name, 0): WHOLE})


def test_a_refresh_rebuilds_nothing(etcd: Etcd, started: Callable[..., Registered]) -> None:
    one = started().register()
    one.engines[0].prefill(PROMPT)
    with following(etcd) as service:
        sees(service, {(one.name, 0): WHOLE})
        requests = one.engines[0].snapshot_requests
        before = service.registry.counts().refreshed
        for _ in range(3):
            one.register(register_ts_ms=5)
        eventually(lambda: service.registry.counts().refreshed == before + 3, "refreshed")
        seen = service.registry.snapshot().version
        other = started().register()
        sees(service, {(one.name, 0): WHOLE, (other.name, 0): 0})
        assert service.registry.snapshot().version > seen
        assert one.engines[0].snapshot_requests == requests
        (stream,) = [row for row in service.streams() if row["instance_name"] == one.name]
        assert stream["connects_total"] == 1


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({"incarnation": "i1"}, {"incarnation": "i2"}),
        ({"incarnation": None, "register_ts_ms": 1}, {"incarnation": None, "register_ts_ms": 2}),
        ({"incarnation": None, "register_ts_ms": 1}, {"incarnation": "i1", "register_ts_ms": 1}),
    ],
)
def test_a_new_process_gives_no_hits_before_its_snapshot(
    etcd: Etcd,
    started: Callable[..., Registered],
    before: dict[str, Any],
    after: dict[str, Any],
) -> None:
    one = started().register(**before)
    engine = one.engines[0]
    engine.prefill(PROMPT)
    with following(etcd) as service:
        sees(service, {(one.name, 0): WHOLE})
        engine.faults.arm_replay(ReplayFault.HOLD, None)
        one.register(**after)
        sees(service, {(one.name, 0): 0})
        eventually(lambda: engine.held_replays > 0, "the new stream asks for its own snapshot")
        assert hits(service) == {(one.name, 0): 0}
        engine.faults.disarm()
        engine.release_replays()
        sees(service, {(one.name, 0): WHOLE})


def test_ranks_come_and_go_with_the_topology(
    etcd: Etcd, started: Callable[..., Registered]
) -> None:
    one = started(ranks=3).register(dp_size=2)
    for engine in one.engines:
        engine.prefill(PROMPT)
    with following(etcd) as service:
        for number, ranks in enumerate((2, 3, 1), 1):
            one.register(dp_size=ranks)
            sees(service, {(one.name, rank): WHOLE for rank in range(ranks)})
            # Another topology is another instance: nothing of before is believed, of no rank.
            assert one.engines[0].snapshot_requests == number


def test_ports_that_overflow_or_collide_exclude_with_a_reason(
    etcd: Etcd, started: Callable[..., Registered]
) -> None:
    one = started().register()
    one.engines[0].prefill(PROMPT)
    names = {
        # Its replay ports would be past 65535; the ranks of the other two would share ports.
        "overflow": ("127.0.0.1:40000", 1),
        "first": ("127.0.0.1:31000", 3),
        "second": ("127.0.0.1:31002", 1),
    }
    for name, ranks in names.values():
        value = {"name": name, "type": 1, "dp_size": ranks}
        etcd.ctl("put", f"XLLM:PREFILL:{name}", json.dumps(value))
    with following(etcd) as service:
        sees(service, {(one.name, 0): WHOLE})
        reasons = excluded(service)
        assert reasons.keys() == {name for name, _ in names.values()}
        assert "past 65535" in reasons["127.0.0.1:40000"]
        for here, there in (("first", "second"), ("second", "first")):
            assert names[there][0] in reasons[names[here][0]]
        # When one of the two goes, the other is followed.
        etcd.ctl("put", "XLLM:PREFILL:127.0.0.1:31002", '{"name":"x"}')  # ignored, stays as it was
        etcd.ctl("del", "XLLM:PREFILL:127.0.0.1:31002")
        eventually(lambda: names["first"][0] not in excluded(service), "no conflict any more")


def test_over_max_streams_whole_instances_are_skipped_by_name(
    etcd: Etcd, started: Callable[..., Registered]
) -> None:
    ones = sorted((started(ranks=2) for _ in range(3)), key=lambda one: one.name)
    for one, ranks in zip(ones, (1, 2, 1), strict=True):
        one.register(dp_size=ranks)
    with following(etcd, max_streams=2) as service:
        sees(service, {(ones[0].name, 0): 0, (ones[2].name, 0): 0})
        assert list(excluded(service)) == [ones[1].name]
        assert "max_streams" in excluded(service)[ones[1].name]


def test_a_lost_lease_of_a_living_instance_keeps_its_view_while_it_beats(
    etcd: Etcd, started: Callable[..., Registered]
) -> None:
    one = started().register()
    one.engines[0].prefill(PROMPT)
    with following(etcd) as service:
        sees(service, {(one.name, 0): WHOLE})
        requests = one.engines[0].snapshot_requests
        one.lose_lease()
        eventually(lambda: state(service, one) == "LEASE_LOST", "LEASE_LOST")
        assert hits(service) == {(one.name, 0): WHOLE}
        assert service.registry.record_heartbeat(one.name, incarnation_id="i1").value == "accepted"
        # Back with the same incarnation: nothing was rebuilt in between.
        one.register()
        eventually(lambda: state(service, one) == "ACTIVE", "ACTIVE")
        assert one.engines[0].snapshot_requests == requests
        one.lose_lease()
        eventually(lambda: state(service, one) == "LEASE_LOST", "LEASE_LOST again")
        took = sees(service, {}, within_s=6)
        assert took > 2, "three seconds without a heartbeat"
        assert state(service, one) == "SUSPECT"


def test_stale_deletions_change_nothing(etcd: Etcd, started: Callable[..., Registered]) -> None:
    one = started().register()
    one.engines[0].prefill(PROMPT)
    with following(etcd) as service:
        sees(service, {(one.name, 0): WHOLE})
        # It changes its type; the key of before goes afterwards.
        old_key, old_lease = one.key(), one.lease
        one.kind = "DEFAULT"
        one.register()
        eventually(
            lambda: service.registry.snapshot().instances[one.name].type.name == "DEFAULT", "type"
        )
        one.healthy = False
        etcd.ctl("del", old_key)
        etcd.ctl("lease", "revoke", old_lease)
        other = started().register()
        sees(service, {(one.name, 0): WHOLE, (other.name, 0): 0})
        assert state(service, one) == "ACTIVE"


def test_without_etcd_the_last_known_world_serves_on(
    etcd: Etcd, started: Callable[..., Registered]
) -> None:
    one = started().register()
    one.engines[0].prefill(PROMPT)
    with following(etcd) as service:
        sees(service, {(one.name, 0): WHOLE})
        etcd.kill()
        eventually(lambda: not service.discovery.status.connected, "noticed")
        more = prompt(2, 1)
        one.engines[0].prefill(PROMPT + more)
        eventually(
            lambda: hits(service, PROMPT + more)[one.name, 0] == WHOLE + BLOCK, "live events"
        )
        etcd.start()
        eventually(lambda: service.discovery.status.connected, "connected again")
        assert state(service, one) == "ACTIVE"
        assert one.engines[0].snapshot_requests == 1


def test_etcd_may_come_later(
    new_etcd: Callable[..., Etcd], started: Callable[..., Registered]
) -> None:
    late = new_etcd()
    with following(late) as service:
        eventually(lambda: service.discovery.status.error != "not started", "it tried")
        assert not service.discovery.status.connected
        assert hits(service) == {}
        late.start()
        one = started()
        one.etcd = late
        one.engines[0].prefill(PROMPT)
        one.register()
        sees(service, {(one.name, 0): WHOLE})


def test_namespaces_do_not_see_each_other(etcd: Etcd, started: Callable[..., Registered]) -> None:
    inside = started(root="/prod/").register()
    started().register()
    started(root="/other/").register()
    with following(etcd, "prod/") as service:
        sees(service, {(inside.name, 0): 0})


def test_what_cannot_be_read_is_ignored_and_the_others_carry_on(
    etcd: Etcd, started: Callable[..., Registered], caplog: pytest.LogCaptureFixture
) -> None:
    one = started().register()
    bad = {
        "XLLM:PREFILL:127.0.0.1:1": "not JSON",
        "XLLM:PREFILL:127.0.0.1:2": '{"name":"127.0.0.1:2","type":1,"dp_size":-1}',
        "XLLM:PREFILL:127.0.0.1:3": '{"name":"127.0.0.1:3","type":7}',
        "XLLM:PREFILL:127.0.0.1:4": '{"name":"127.0.0.1:5","type":1}',
        "XLLM:PREFILL:no-port": '{"name":"no-port","type":1}',
        "XLLM:PREFILL:127.0.0.1:6": '{"name":"127.0.0.1:6","type":1,"dp_size":1000000000000}',
        "XLLM:LOADMETRICS:127.0.0.1:7": "[]",
        "XLLM:NOVEL:127.0.0.1:8": "{}",
    }
    for key, value in bad.items():
        etcd.ctl("put", key, value)
    with following(etcd) as service:
        sees(service, {(one.name, 0): 0})
        assert list(service.registry.snapshot().instances) == [one.name]
    for key in bad:
        assert any(key in line for line in caplog.messages), key


def test_an_observer_writes_nothing(etcd: Etcd, started: Callable[..., Registered]) -> None:
    one = started().register()
    with following(etcd) as service:
        sees(service, {(one.name, 0): 0})
        load = Load(1, 0.5)
        service.registry.record_heartbeat(one.name, incarnation_id="i1", load=load)
        before = json.loads(etcd.ctl("endpoint", "status", "-w", "json"))[0]["Status"]
        eventually(lambda: state(service, one) == "ACTIVE", "still there")
    after = json.loads(etcd.ctl("endpoint", "status", "-w", "json"))[0]["Status"]
    assert after["header"]["revision"] == before["header"]["revision"]
    assert "SERVICE" not in etcd.ctl("get", "XLLM:", "--prefix", "--keys-only")
