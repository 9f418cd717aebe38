"""Three members: whichever goes, the others serve."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from kvcache.discovery.errors import EtcdUnavailableError
from mirror_recorder import client_of, eventually, following, key, run

if TYPE_CHECKING:
    from etcd_server import Cluster


def endpoints(cluster: Cluster) -> list[str]:
    return [one.endpoint for one in cluster.members]


def test_a_killed_member_is_left_within_the_call(cluster: Cluster) -> None:
    async def test() -> None:
        async with client_of(*endpoints(cluster)) as client:
            lease = await client.lease_grant(60)
            await client.range(b"a")
            cluster.at(client.endpoint).kill()
            # A new leader may have to be elected first.
            await client.range(b"a", timeout_s=5)
            left = client.endpoint
            assert left != endpoints(cluster)[0]
            await client.put(b"a", b"1", lease, timeout_s=5)
            assert await client.lease_keepalive(lease) == 60
            assert client.endpoint == left

    run(test())


def test_a_stopped_member_costs_one_deadline(cluster: Cluster) -> None:
    async def test() -> None:
        loop = asyncio.get_running_loop()
        async with client_of(*endpoints(cluster)) as client:
            lease = await client.lease_grant(60)
            stopped = cluster.at(client.endpoint)
            stopped.pause()
            began = loop.time()
            calls = 0
            while True:
                try:
                    calls += 1
                    assert await client.lease_keepalive(lease) == 60
                    break
                except EtcdUnavailableError:
                    continue
            # One deadline for the member, and an election if it was the leader.
            assert loop.time() - began < 2.5
            assert calls <= 3
            assert client.endpoint != stopped.endpoint
            stopped.resume()

    run(test())


def test_a_watch_ends_when_its_member_has_no_leader(cluster: Cluster) -> None:
    async def test() -> None:
        member = cluster.members[0]
        async with client_of(member.endpoint) as client, client.watch(b"a", b"z", 1) as watch:
            for other in cluster.members[1:]:
                other.kill()
            with pytest.raises(EtcdUnavailableError, match="no leader"):
                await asyncio.wait_for(anext(watch), 10)

    run(test())


def test_the_mirror_leaves_a_stopped_member(cluster: Cluster) -> None:
    async def test() -> None:
        async with (
            client_of(*endpoints(cluster)[1:]) as writer,
            following(*endpoints(cluster)) as one,
        ):
            stopped = cluster.at(one.client.endpoint)
            stopped.pause()
            try:
                while True:
                    try:
                        await writer.put(key("a"), b"1")
                        break
                    except EtcdUnavailableError:
                        continue
                await one.sees({key("a"): b"1"}, within=5)
                assert one.client.endpoint != stopped.endpoint
                await one.connected()
            finally:
                stopped.resume()
            assert one.mirror.counters.lists_total == 1
            assert one.recorder.told() == [("put", key("a"))]

    run(test())


def test_the_mirror_goes_from_member_to_member(cluster: Cluster) -> None:
    async def test() -> None:
        async with client_of(*endpoints(cluster)) as writer, following(*endpoints(cluster)) as one:
            for number in range(3):
                member = cluster.at(one.client.endpoint)
                member.kill()
                await one.disconnected()
                value = str(number).encode()
                while True:
                    try:
                        await writer.put(key("a"), value)
                        break
                    except EtcdUnavailableError:
                        continue
                await one.sees({key("a"): value})
                await one.connected()
                await asyncio.to_thread(member.start)
            assert one.mirror.counters.lists_total == 1

    run(test())


def test_without_a_majority_the_world_stays(cluster: Cluster) -> None:
    async def test() -> None:
        async with client_of(*endpoints(cluster)) as writer, following(*endpoints(cluster)) as one:
            await writer.put(key("a"), b"1")
            await one.sees({key("a"): b"1"})
            for member in cluster.members[1:]:
                member.kill()
            await one.disconnected(10)
            failures = one.mirror.counters.watch_failures_total
            await eventually(
                lambda: one.mirror.counters.watch_failures_total > failures, "an attempt"
            )
            assert one.recorder.world == {key("a"): b"1"}
            for member in cluster.members[1:]:
                member.start(wait=False)
            await one.connected()
            assert one.recorder.told() == [("put", key("a"))]

    run(test())
