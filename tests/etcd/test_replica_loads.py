"""What a master writes, and that nobody else writes anything."""

from __future__ import annotations

import asyncio
import json
import time
from typing import TYPE_CHECKING, Any

from kvcache.discovery.client import EtcdClient, Put
from kvcache.discovery.config import EtcdConfig
from kvcache.discovery.uploader import LoadUploader
from kvcache.registry.model import Load
from kvcache.registry.registry import HeartbeatOutcome
from mirror_recorder import client_of, eventually, run
from replica_recorder import (
    MASTER,
    NAMESPACE,
    Replicating,
    load,
    prefill,
    registration,
    replicating,
    store_revision,
)

if TYPE_CHECKING:
    from etcd_server import Etcd

A, B = "127.0.0.1:9000", "127.0.0.1:9100"
ENGINE, OTHER = "10.0.0.1:8000", "10.0.0.2:8000"


def beat(one: Replicating, name: str, waiting: int) -> None:
    outcome = one.registry.record_heartbeat(
        name, incarnation_id="i1", load=Load(waiting, 0.5), latency=None
    )
    assert outcome is HeartbeatOutcome.ACCEPTED


def waiting(one: Replicating, name: str) -> int | None:
    """As the registry has it from etcd alone."""
    instance = one.registry.snapshot().instances.get(name)
    if instance is None or instance.etcd_load is None:
        return None
    return instance.etcd_load.load.waiting_requests_num


def forget(one: Replicating, name: str) -> None:
    """The registry's time goes by: the probe fails, and the suspicion ends."""
    for probe in one.registry.take_probes():
        one.registry.probe_finished(probe.name, probe.generation, healthy=False)
    one.registry.tick(time.monotonic() + 60)
    assert name not in one.registry.snapshot().instances


async def knows(one: Replicating, *names: str) -> None:
    await eventually(lambda: set(names) <= set(one.registry.snapshot().instances), f"{names}")


def test_loads_of_heartbeats_reach_the_followers(etcd: Etcd) -> None:
    async def test() -> None:
        async with (
            client_of(etcd.endpoint) as engine,
            replicating(etcd.endpoint, A) as a,
            replicating(etcd.endpoint, "") as follower,
        ):
            await a.masters()
            for name in (ENGINE, OTHER):
                await engine.put(prefill(name), registration(name))
            await knows(a, ENGINE, OTHER)
            await knows(follower, ENGINE, OTHER)
            # Nobody has sent a heartbeat, so nothing is written.
            revision = store_revision(etcd)
            await asyncio.sleep(0.5)
            assert store_revision(etcd) == revision
            beat(a, ENGINE, 3)
            await eventually(lambda: waiting(follower, ENGINE) == 3, "the load")
            beat(a, ENGINE, 4)
            await eventually(lambda: waiting(follower, ENGINE) == 4, "the next load")
            assert waiting(follower, OTHER) is None
            written = {"waiting_requests_num": 4, "gpu_cache_usage_perc": 0.5}
            # The follower may see it before the one that wrote it does.
            await eventually(
                lambda: json.loads(a.mirror.held[load(ENGINE)].value) == written, "the value"
            )
            assert a.mirror.held[load(ENGINE)].lease == 0
            # What etcd has, others may see before its answer is here.
            counters = a.replica.upload_counters
            await eventually(lambda: counters.loads_written_total >= 2, "counted")
            assert counters.loads_removed_total == 0

    run(test())


def test_a_heartbeat_that_is_old_is_not_written_again(etcd: Etcd) -> None:
    async def test() -> None:
        async with client_of(etcd.endpoint) as engine, replicating(etcd.endpoint, A) as a:
            await a.masters()
            await engine.put(prefill(ENGINE), registration(ENGINE))
            await knows(a, ENGINE)
            beat(a, ENGINE, 3)
            await eventually(lambda: not a.registry.recent_heartbeat_loads(), "its time is over")
            counters = a.replica.upload_counters
            await asyncio.sleep(0.1)
            written = counters.loads_written_total
            await asyncio.sleep(0.5)
            assert counters.loads_written_total == written > 0
            assert load(ENGINE) in a.mirror.held

    run(test())


def test_the_load_of_a_deregistered_instance_is_removed(etcd: Etcd) -> None:
    async def test() -> None:
        async with client_of(etcd.endpoint) as engine, replicating(etcd.endpoint, A) as a:
            await a.masters()
            for name in (ENGINE, OTHER):
                await engine.put(prefill(name), registration(name))
            await knows(a, ENGINE, OTHER)
            beat(a, ENGINE, 3)
            beat(a, OTHER, 3)
            await eventually(lambda: {load(ENGINE), load(OTHER)} <= set(a.mirror.held), "loads")
            await eventually(lambda: not a.registry.recent_heartbeat_loads(), "heartbeats are old")
            written = a.replica.upload_counters.loads_written_total
            await engine.delete(prefill(ENGINE))
            await eventually(lambda: prefill(ENGINE) not in a.mirror.held, "gone")
            # Without its lease, it is registered still, until its suspicion ends.
            await asyncio.sleep(0.5)
            assert load(ENGINE) in a.mirror.held
            forget(a, ENGINE)
            took = await eventually(lambda: load(ENGINE) not in a.mirror.held, "removed", 2)
            print(f"removed {took:.2f} s after deregistration, every 0.2 s it is looked")
            assert load(OTHER) in a.mirror.held
            counters = a.replica.upload_counters
            await eventually(lambda: counters.loads_removed_total == 1, "counted")
            assert counters.loads_written_total == written

    run(test())


def test_a_new_master_removes_what_nobody_claims_only_after_the_grace(etcd: Etcd) -> None:
    async def test() -> None:
        unknown, unreadable, odd = "10.0.0.3:8000", "10.0.0.4:8000", load("no address")
        async with client_of(etcd.endpoint) as hand:
            for key in (load(unknown), load(unreadable), load(ENGINE), odd):
                await hand.put(key, b"{}")
            await hand.put(prefill(unreadable), b"not JSON")
            await hand.put(prefill(ENGINE), registration(ENGINE))
            async with replicating(etcd.endpoint, A) as a:
                await a.masters()
                began = time.monotonic()
                await eventually(lambda: load(unknown) in a.mirror.held, "listed")
                await eventually(lambda: load(unknown) not in a.mirror.held, "removed")
                took = time.monotonic() - began
                assert 0.9 < took < 3
                # Whoever has a registration, readable or not, keeps its load; and so does what is no name.
                await asyncio.sleep(0.5)
                assert {load(unreadable), load(ENGINE), odd} <= set(a.mirror.held)
                counters = a.replica.upload_counters
                await eventually(lambda: counters.loads_removed_total == 1, "counted")

    run(test())


def test_more_loads_than_a_transaction_takes(etcd: Etcd) -> None:
    async def test() -> None:
        names = [f"10.0.{n // 250}.{n % 250}:8000" for n in range(300)]
        async with client_of(etcd.endpoint) as engine, replicating(etcd.endpoint, A) as a:
            await a.masters()
            for at in range(0, 300, 100):
                batch = [Put(prefill(name), registration(name)) for name in names[at : at + 100]]
                await engine.txn((), batch)
            await knows(a, *names)
            for name in names:
                beat(a, name, 1)
            await eventually(lambda: {load(name) for name in names} <= set(a.mirror.held), "all")
            assert a.replica.counters.failures_total == 0

    run(test())


class LateClient(EtcdClient):
    """Its writes of loads wait until they are let go."""

    def __init__(self, config: EtcdConfig) -> None:
        super().__init__(config)
        self.go = asyncio.Event()
        self.waiting = 0

    async def txn(self, compare: Any, success: Any, *args: Any, **options: Any) -> Any:
        if success and isinstance(success[0], Put) and success[0].key == load(ENGINE):
            self.waiting += 1
            await self.go.wait()
        return await super().txn(compare, success, *args, **options)


def test_a_deposed_master_writes_nothing_however_late(etcd: Etcd) -> None:
    async def test() -> None:
        client = LateClient(EtcdConfig(endpoints=(etcd.endpoint,)))
        async with client_of(etcd.endpoint) as hand, replicating("", A, client=client) as a:
            await a.masters()
            await hand.put(prefill(ENGINE), registration(ENGINE))
            await knows(a, ENGINE)
            beat(a, ENGINE, 3)
            await eventually(lambda: client.waiting, "a write is under way")
            await hand.put(MASTER, b"127.0.0.1:1")
            await a.yields(1)
            revision = store_revision(etcd)
            client.go.set()
            refused = a.replica.upload_counters
            await eventually(lambda: refused.refused_total == 1, "refused")
            assert store_revision(etcd) == revision
            # And what it would write next it does not even try.
            beat(a, ENGINE, 4)
            await asyncio.sleep(0.5)
            assert store_revision(etcd) == revision
            assert client.waiting == 1
            assert refused.loads_written_total == 0

    run(test())


def test_a_refused_write_deposes_whoever_has_not_heard(etcd: Etcd) -> None:
    async def test() -> None:
        async with client_of(etcd.endpoint) as hand, replicating(etcd.endpoint, A) as a:
            await a.masters()
            await hand.put(prefill(ENGINE), registration(ENGINE))
            await knows(a, ENGINE)
            # Nothing comes from the mirror any more.
            a.on_events = lambda _: None  # type: ignore[method-assign]
            await hand.put(MASTER, b"127.0.0.1:1")
            beat(a, ENGINE, 3)
            await a.yields(1)
            assert a.replica.counters.depositions_total == 1
            # The keys are read now and then, mirror or not.
            await hand.delete(MASTER)
            await a.masters(4)

    run(test())


def test_only_the_lease_of_the_master_writes(etcd: Etcd) -> None:
    async def test() -> None:
        async with client_of(etcd.endpoint) as hand, replicating(etcd.endpoint, "") as follower:
            await hand.put(prefill(ENGINE), registration(ENGINE))
            await knows(follower, ENGINE)
            beat(follower, ENGINE, 3)
            uploader = LoadUploader(hand, follower.mirror, NAMESPACE, follower.registry)
            mine, other = await hand.lease_grant(60), await hand.lease_grant(60)
            # Without a master, under another's lease, and under ours.
            assert not await uploader.upload(mine, 0, lambda: True)
            await hand.put(MASTER, b"127.0.0.1:1", other)
            revision = store_revision(etcd)
            assert not await uploader.upload(mine, 0, lambda: True)
            assert store_revision(etcd) == revision
            assert await uploader.upload(other, 0, lambda: False)
            assert store_revision(etcd) == revision
            assert await uploader.upload(other, 0, lambda: True)
            assert store_revision(etcd) == revision + 1

    run(test())


def test_an_observer_writes_nothing(etcd: Etcd) -> None:
    async def test() -> None:
        async with client_of(etcd.endpoint) as engine:
            await engine.put(prefill(ENGINE), registration(ENGINE))
            await engine.put(load(OTHER), b"{}")
            revision = store_revision(etcd)
            async with replicating(etcd.endpoint, "") as observer:
                await knows(observer, ENGINE)
                beat(observer, ENGINE, 3)
                # Past every interval of a replica that tests set, and past a lease.
                requests = observer.client.counters.requests_total
                await eventually(
                    lambda: observer.client.counters.requests_total > requests + 5, "it is followed"
                )
                await asyncio.sleep(1)
                assert store_revision(etcd) == revision
                assert "found 0 leases" in etcd.ctl("lease", "list")
            assert store_revision(etcd) == revision

    run(test())
