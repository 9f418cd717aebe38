"""Replicas elect a master in a real etcd, whatever happens to it or to them."""

from __future__ import annotations

import asyncio
import logging
import subprocess
import sys
import time
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from kvcache.discovery.client import EtcdClient
from kvcache.discovery.config import EtcdConfig
from kvcache.discovery.errors import EtcdAmbiguousError
from kvcache.discovery.refused import RefusedError
from kvcache.registry.election import LEASE_TTL_S
from mirror_recorder import client_of, eventually, run
from replica_recorder import MASTER, Replicating, leases, never_two, replicating, service
from tcp_proxy import TcpProxy

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from etcd_server import Etcd

A, B, C = "127.0.0.1:9000", "127.0.0.1:9100", "127.0.0.1:9200"
HAND_OVER_S = LEASE_TTL_S + 1
"""etcd itself looks for lapsed leases every half second."""


def value(etcd: Etcd, key: bytes) -> str:
    return etcd.ctl("get", key.decode(), "--print-value-only").strip()


@contextmanager
def a_process(etcd: Etcd, name: str) -> Iterator[subprocess.Popen[str]]:
    script = Path(__file__).parent / "replica_process.py"
    process = subprocess.Popen(
        [sys.executable, script, etcd.endpoint, name],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "master\n"
            yield process
        finally:
            process.kill()


def test_one_of_two_is_master_and_both_are_registered(etcd: Etcd) -> None:
    async def test() -> None:
        async with (
            replicating(etcd.endpoint, A) as a,
            replicating(etcd.endpoint, B) as b,
            never_two(a, b),
        ):
            await eventually(lambda: a.replica.is_master() or b.replica.is_master(), "a master")
            await a.registers()
            await b.registers()
            master, other = (a, b) if a.replica.is_master() else (b, a)
            await eventually(lambda: other.replica.master == master.address, "is known")
            await eventually(lambda: master.replica.master == master.address, "is known")
            # Past the time of several leases nothing has changed, and nothing was written.
            before = master.mirror.held[MASTER]
            renewals = other.replica.counters.renewals_total
            await eventually(
                lambda: other.replica.counters.renewals_total >= renewals + 4, "renewals"
            )
            assert master.mirror.held[MASTER] == before
            assert value(etcd, MASTER) == master.address
            assert value(etcd, service(A)) == a.address
            assert value(etcd, service(B)) == b.address
            assert len(leases(etcd)) == 2
            status = master.replica.status
            assert (status.role, status.lease, status.is_master) == ("master", "held", True)
            assert (status.master, status.error) == (master.address, "")
            assert 0 < time.time() - status.since_unix_s < 60
            status = other.replica.status
            assert (status.role, status.lease, status.is_master) == ("follower", "held", False)
            assert master.replica.counters.elections_won_total == 1
            assert other.replica.counters.elections_won_total == 0
            assert master.replica.counters.failures_total == 0
            assert master.replica.counters.depositions_total == 0

    run(test())


def test_a_stopped_replica_frees_its_keys_at_once(etcd: Etcd) -> None:
    async def test() -> None:
        async with AsyncExitStack() as stopping:
            b = await stopping.enter_async_context(replicating(etcd.endpoint, B))
            await b.masters()
            async with replicating(etcd.endpoint, A) as a:
                await a.registers()
                began = time.monotonic()
                await stopping.aclose()
                assert not b.replica.is_master()
                assert b.replica.status.lease == "none"
                assert b.replica.counters.depositions_total == 0
                await eventually(lambda: service(B) not in a.mirror.held, "the key is gone", 1.5)
                await a.masters(0.5)
                print(f"taken over from a stopped master in {time.monotonic() - began:.3f} s")
        assert leases(etcd) == []

    run(test())


def test_a_replica_that_etcd_does_not_answer_stops_within_its_time(etcd: Etcd) -> None:
    async def test() -> None:
        async with AsyncExitStack() as stopping:
            a = await stopping.enter_async_context(replicating(etcd.endpoint, A))
            await a.masters()
            etcd.pause()
            began = time.monotonic()
            await stopping.aclose()
            assert time.monotonic() - began < 1.5
            assert not a.replica.is_master()

    run(test())


def test_a_replica_that_ended_runs_again(etcd: Etcd) -> None:
    async def test() -> None:
        async with client_of(etcd.endpoint) as client:
            one = Replicating(client, A)
            for term in (1, 2):
                task = asyncio.create_task(one.run())
                await one.masters()
                await one.registers()
                assert one.replica.counters.elections_won_total == term
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
                assert value(etcd, MASTER) == value(etcd, service(A)) == ""

    run(test())


def test_a_killed_master_is_followed_within_its_lease_and_a_second(etcd: Etcd) -> None:
    async def test() -> None:
        with a_process(etcd, A) as process:
            async with replicating(etcd.endpoint, B) as b:
                await eventually(lambda: b.replica.master == "127.0.0.1:9001", "the master is seen")
                process.kill()
                took = await b.masters()
                print(f"taken over from a killed master in {took:.2f} s")
                assert took < HAND_OVER_S
                assert service(A) not in b.mirror.held

    run(test())


@pytest.mark.parametrize("how", ["held", "refused"])
def test_a_master_that_is_cut_off_stops_before_its_lease_lapses(etcd: Etcd, how: str) -> None:
    async def test() -> None:
        async with (
            TcpProxy(etcd.endpoint) as proxy,
            replicating(proxy.endpoint, A) as a,
        ):
            await a.masters()
            async with replicating(etcd.endpoint, B) as b, never_two(a, b) as terms:
                await eventually(lambda: b.replica.master == a.address, "the master is seen")
                if how == "held":
                    proxy.hold()
                else:
                    proxy.cut(refuse=True)
                cut_s = time.monotonic()
                await b.masters()
                (lapsed_s,) = b.vacant_s
                await eventually(lambda: B in terms.first, "a sample")
                stopped, taken = terms.last[A] - cut_s, terms.first[B] - cut_s
                print(
                    f"cut off ({how}): stopped after {stopped:.2f} s, lapsed after "
                    f"{lapsed_s - cut_s:.2f} s, the other master after {taken:.2f} s"
                )
                assert terms.last[A] < lapsed_s - 0.3
                assert taken < HAND_OVER_S
                assert a.replica.status.lease == "in doubt"
                assert a.replica.status.error
                # Back again, it registers anew and follows.
                proxy.refusing = False
                proxy.release()
                await eventually(lambda: a.replica.counters.grants_total == 2, "a new lease")
                await eventually(lambda: service(A) in b.mirror.held, "registered anew")
                await eventually(lambda: a.replica.master == b.address, "the new master is seen")
                assert a.replica.counters.depositions_total == 1
                assert a.replica.status.role == "follower"
                assert b.replica.is_master()

    run(test())


def test_a_short_cut_costs_nothing(etcd: Etcd) -> None:
    async def test() -> None:
        async with TcpProxy(etcd.endpoint) as proxy, replicating(proxy.endpoint, A) as a:
            await a.masters()
            async with never_two(a) as terms:
                proxy.cut(refuse=True)
                failures = a.replica.counters.failures_total
                await eventually(lambda: a.replica.counters.failures_total > failures, "a failure")
                proxy.refusing = False
                renewals = a.replica.counters.renewals_total
                await eventually(
                    lambda: a.replica.counters.renewals_total > renewals + 1, "renewed"
                )
                assert a.replica.is_master()
                assert a.replica.counters.grants_total == 1
                assert a.replica.counters.depositions_total == 0
                assert set(terms.last) == {A}

    run(test())


def test_etcd_comes_late_and_forgets_everything(new_etcd: Callable[..., Etcd]) -> None:
    async def test() -> None:
        etcd = new_etcd()
        async with replicating(etcd.endpoint, A) as a:
            await eventually(lambda: a.replica.counters.failures_total > 1, "failures")
            assert a.replica.status.lease == "none"
            assert etcd.endpoint in a.replica.status.error
            await asyncio.to_thread(etcd.start)
            await a.masters()
            assert a.replica.status.error == ""
            await a.registers()
            async with replicating(etcd.endpoint, B) as b, never_two(a, b):
                await b.registers()
                etcd.kill()
                etcd.wipe()
                await asyncio.to_thread(etcd.start)
                for one in (a, b):
                    await eventually(
                        lambda one=one: one.replica.counters.grants_total == 2, "a new lease"
                    )
                    await eventually(
                        lambda one=one: {service(A), service(B), MASTER} == set(one.mirror.held),
                        "registered anew",
                    )
                await eventually(lambda: a.replica.is_master() or b.replica.is_master(), "a master")

    run(test())


def test_keys_that_somebody_deletes_come_back(etcd: Etcd) -> None:
    async def test() -> None:
        async with replicating(etcd.endpoint, A) as a, client_of(etcd.endpoint) as hand:
            await a.masters()
            await a.registers()
            lease = a.mirror.held[service(A)].lease
            for key in (service(A), MASTER):
                before = a.mirror.held[key].mod_revision
                await hand.delete(key)
                await eventually(
                    lambda key=key, before=before: (
                        key in a.mirror.held and a.mirror.held[key].mod_revision > before
                    ),
                    "put again",
                    2,
                )
                assert a.mirror.held[key].lease == lease
            await a.masters(1)
            assert a.replica.counters.grants_total == 1
            # Another value or another lease is not ours either.
            await hand.put(service(A), b"127.0.0.1:1")
            await eventually(
                lambda: a.mirror.held[service(A)].value == a.address.encode(), "put again", 3
            )
            await hand.put(MASTER, b"127.0.0.1:1")
            await a.yields(1)
            assert a.replica.master == "127.0.0.1:1"
            await hand.delete(MASTER)
            await a.masters(1)
            assert a.replica.counters.elections_won_total == 3

    run(test())


class AmbiguousClient(EtcdClient):
    """Its campaigns land, late or not at all; nobody is told."""

    lands = "at once"
    ambiguities = 0
    campaigns = 0
    late: asyncio.Task[Any] | None = None

    async def compare_and_put(self, *args: Any, **options: Any) -> Any:
        self.campaigns += 1
        if self.ambiguities:
            return await super().compare_and_put(*args, **options)
        self.ambiguities += 1
        if self.lands == "at once":
            await super().compare_and_put(*args, **options)
        elif self.lands == "late":
            self.late = asyncio.create_task(self.land(*args, **options))
        raise EtcdAmbiguousError("etcd did not answer in time")

    async def land(self, *args: Any, **options: Any) -> None:
        await asyncio.sleep(0.3)
        await super().compare_and_put(*args, **options)


@pytest.mark.parametrize("lands", ["at once", "late", "never"])
def test_an_ambiguous_campaign_is_looked_up(etcd: Etcd, lands: str) -> None:
    async def test() -> None:
        client = AmbiguousClient(EtcdConfig(endpoints=(etcd.endpoint,)))
        client.lands = lands
        async with replicating(etcd.endpoint, A, client=client) as a:
            await a.masters(2)
            await eventually(lambda: a.replica.master == a.address, "is known")
            assert client.ambiguities == 1
            # Read and found to be ours, it needs no other campaign.
            assert lands != "at once" or client.campaigns == 1
            assert a.replica.counters.elections_won_total == 1
            assert a.replica.counters.elections_lost_total == 0
            assert a.mirror.held[MASTER].lease == a.mirror.held[service(A)].lease
            if client.late is not None:
                await client.late

    run(test())


def test_a_predecessor_of_the_same_name_lapses_first(etcd: Etcd) -> None:
    async def test() -> None:
        async with client_of(etcd.endpoint) as before:
            lease = await before.lease_grant(3)
            await before.put(service(A), b"127.0.0.1:9001", lease)
            await before.put(MASTER, b"127.0.0.1:9001", lease)
            async with replicating(etcd.endpoint, A) as a:
                await eventually(
                    lambda: (
                        service(A) in a.mirror.held and a.mirror.held[service(A)].lease != lease
                    ),
                    "registered",
                )
                assert not a.replica.is_master()
                await a.masters(HAND_OVER_S)
                # Taken over before the old lease lapsed, the key did not go with it.
                assert a.mirror.held[service(A)].lease == a.mirror.held[MASTER].lease

    run(test())


def test_three_members_hand_over(cluster: Any) -> None:
    async def test() -> None:
        endpoints = tuple(one.endpoint for one in cluster.members)
        client = EtcdClient(EtcdConfig(endpoints=endpoints))
        async with replicating("", A, client=client) as a:
            await a.masters()
            cluster.at(client.endpoint).pause()
            try:
                renewals = a.replica.counters.renewals_total
                await eventually(
                    lambda: a.replica.counters.renewals_total > renewals + 1, "renewed elsewhere"
                )
                await a.masters(3)
            finally:
                for one in cluster.members:
                    one.resume()

    run(test())


def test_a_replica_says_little_while_etcd_is_away(
    new_etcd: Callable[..., Etcd], caplog: pytest.LogCaptureFixture
) -> None:
    async def test() -> None:
        with caplog.at_level(logging.INFO, "kvcache"):
            async with replicating(new_etcd().endpoint, A) as a:
                await eventually(lambda: a.replica.counters.failures_total > 3, "failures")
        assert len([one for one in caplog.records if "waits for etcd" in one.message]) <= 2

    run(test())


@pytest.mark.parametrize("name", ["MASTER", "0.0.0.0:80", "somewhere"])
def test_a_replica_without_an_address_is_refused(name: str) -> None:
    async def test() -> None:
        async with client_of("127.0.0.1:1") as client:
            with pytest.raises((RefusedError, ValueError)):
                Replicating(client, name)

    run(test())
