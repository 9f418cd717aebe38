"""The mirror when etcd goes away, hangs, forgets, or is not there yet."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from kvcache.discovery.mirror import MirrorSettings
from kvcache.discovery.watch import Watch
from mirror_recorder import QUICK, Following, client_of, eventually, following, key, run
from tcp_proxy import TcpProxy

if TYPE_CHECKING:
    from collections.abc import Callable

    from etcd_server import Etcd
    from kvcache.discovery.results import WatchBatch

# Only a failing call can notice anything here, no probe.
NO_PROBES = MirrorSettings(quiet_s=60, backoff_max_s=0.5)


def fill(etcd: Etcd, **values: str) -> None:
    for name, value in values.items():
        etcd.ctl("put", key(name).decode(), value)


def revision(etcd: Etcd) -> int:
    return int(etcd.ctl("get", "x", "-w", "json").split('"revision":')[1].split(",")[0])


def test_etcd_comes_late(new_etcd: Callable[..., Etcd]) -> None:
    async def test() -> None:
        etcd = new_etcd()
        async with following(etcd.endpoint, wait=False) as one:
            await eventually(lambda: one.recorder.statuses, "a status")
            status = one.recorder.statuses[-1]
            assert not status.connected
            assert etcd.endpoint in status.error
            assert status.revision == 0
            await asyncio.to_thread(etcd.start)
            fill(etcd, a="1")
            await one.sees({key("a"): b"1"})
            await one.connected(2)

    run(test())


def test_killed_and_started_again_with_its_data(etcd: Etcd) -> None:
    async def test() -> None:
        fill(etcd, a="1", b="1")
        async with following(etcd.endpoint, settings=NO_PROBES) as one:
            etcd.kill()
            await one.disconnected(2)
            assert one.recorder.world == {key("a"): b"1", key("b"): b"1"}
            await asyncio.to_thread(etcd.start)
            fill(etcd, b="2", c="1")
            await one.sees({key("a"): b"1", key("b"): b"2", key("c"): b"1"})
            # It went on where it had stopped: no list, and nothing told twice.
            assert one.mirror.counters.lists_total == 1
            assert [event.value for event in one.recorder.events] == [b"1", b"1", b"2", b"1"]

    run(test())


def test_away_for_a_while_is_never_empty(etcd: Etcd) -> None:
    async def test() -> None:
        fill(etcd, a="1")
        async with following(etcd.endpoint, settings=NO_PROBES) as one:
            etcd.kill()
            await one.disconnected(2)
            # Until several attempts, each of which is a failed request, have come to nothing.
            failures = one.mirror.counters.watch_failures_total
            await eventually(
                lambda: one.mirror.counters.watch_failures_total > failures + 3, "attempts"
            )
            assert one.recorder.world == {key("a"): b"1"}
            assert [status.connected for status in one.recorder.statuses[:2]] == [True, False]
            since = one.recorder.statuses[1].since_unix_s
            assert one.mirror.status.since_unix_s == since

    run(test())


def test_started_again_without_its_data(etcd: Etcd) -> None:
    async def test() -> None:
        fill(etcd, a="1", b="1", c="1")
        async with following(etcd.endpoint, settings=NO_PROBES) as one:
            etcd.kill()
            etcd.wipe()
            await asyncio.to_thread(etcd.start)
            await one.sees({})
            fill(etcd, b="1")
            await one.sees({key("b"): b"1"})
            assert one.mirror.status.revision == 2

    run(test())


def test_without_its_data_but_at_a_later_revision(etcd: Etcd) -> None:
    async def test() -> None:
        fill(etcd, a="1", b="1")
        async with (
            TcpProxy(etcd.endpoint) as proxy,
            following(proxy.endpoint, settings=NO_PROBES) as one,
        ):
            proxy.cut(refuse=True)
            etcd.kill()
            etcd.wipe()
            await asyncio.to_thread(etcd.start)
            # Another past with the same cluster id, and our revision is in it: a watch would go on.
            fill(etcd, x="1", y="1", z="1")
            proxy.refusing = False
            await one.sees(dict.fromkeys(map(key, "xyz"), b"1"))
            assert one.mirror.counters.lists_total == 2

    run(test())


def test_another_cluster_at_the_same_address(etcd: Etcd, new_etcd: Callable[..., Etcd]) -> None:
    async def test() -> None:
        fill(etcd, a="1")
        async with following(etcd.endpoint, settings=NO_PROBES) as one:
            etcd.kill()
            other = new_etcd()
            other.port = etcd.port
            await one.disconnected()
            # Without a turn of the loop, so that the mirror sees both steps at once. The same key at
            # the same revisions: only the cluster is another.
            other.start()
            fill(other, a="other")
            await one.sees({key("a"): b"other"})
            assert one.mirror.counters.lists_total == 2

    run(test())


def test_compaction_while_cut_off(etcd: Etcd) -> None:
    """Keys A and B; the watch is cut; A expires; compaction; B is put again; back again."""

    async def test() -> None:
        async with client_of(etcd.endpoint) as writer, TcpProxy(etcd.endpoint) as proxy:
            lease = await writer.lease_grant(60)
            await writer.put(key("a"), b"1", lease)
            await writer.put(key("b"), b"1")
            async with following(proxy.endpoint) as one:
                proxy.cut(refuse=True)
                await one.disconnected()
                await writer.lease_revoke(lease)
                for _ in range(5):
                    compacted = await writer.put(b"elsewhere", b"1")
                etcd.ctl("compact", str(compacted))
                await writer.put(key("b"), b"2")
                del one.recorder.events[:]
                assert one.recorder.world == {key("a"): b"1", key("b"): b"1"}
                proxy.refusing = False
                await one.sees({key("b"): b"2"})
                assert one.recorder.told() == [("delete", key("a")), ("put", key("b"))]
                gone, put = one.recorder.events
                assert (gone.prev_value, put.prev_value) == (b"1", b"1")
                assert one.mirror.counters.compactions_total == 1
                # And the watch goes on from there.
                await one.connected()
                await writer.delete(key("b"))
                await one.sees({})
                assert one.mirror.counters.lists_total == 2

    run(test())


def test_a_deletion_at_the_revision_of_the_compaction(etcd: Etcd) -> None:
    """etcd removes the deletion's record then, but does not call a watch from there compacted."""

    async def test() -> None:
        async with client_of(etcd.endpoint) as writer, TcpProxy(etcd.endpoint) as proxy:
            await writer.put(key("a"), b"1")
            await writer.put(key("b"), b"1")
            async with following(proxy.endpoint, settings=NO_PROBES) as one:
                proxy.cut(refuse=True)
                await one.disconnected()
                await writer.delete(key("a"))
                etcd.ctl("compact", "--physical", str(one.mirror.status.revision + 1))
                proxy.refusing = False
                await one.sees({key("b"): b"1"}, within=5)

    run(test())


def test_only_the_watch_is_cut(etcd: Etcd) -> None:
    async def test() -> None:
        async with (
            TcpProxy(etcd.endpoint) as proxy,
            following(proxy.endpoint, settings=NO_PROBES) as one,
        ):
            for number in range(5):
                # The client's and the watch's.
                assert len(proxy.connections) == 2
                proxy.cut_newest()
                fill(etcd, a=str(number))
                await one.sees({key("a"): str(number).encode()})
                await one.connected()
            assert one.mirror.counters.watch_failures_total >= 5
            assert one.mirror.counters.lists_total == 1
            assert len(one.recorder.events) == 5

    run(test())


def test_bytes_that_do_not_come(etcd: Etcd) -> None:
    async def test() -> None:
        fill(etcd, a="1")
        async with TcpProxy(etcd.endpoint) as proxy, following(proxy.endpoint) as one:
            proxy.hold()
            fill(etcd, a="2")
            # Silence, then a probe's deadline.
            await one.disconnected(3)
            assert "in time" in one.mirror.status.error
            assert one.recorder.world == {key("a"): b"1"}
            proxy.release()
            await one.sees({key("a"): b"2"})
            await one.connected()

    run(test())


async def stopped_and_continued(etcd: Etcd, one: Following, stopped_s: float) -> None:
    etcd.pause()
    try:
        assert await one.disconnected(4) < 3
        await asyncio.sleep(stopped_s)
        assert one.recorder.world == {key("a"): b"1"}
    finally:
        etcd.resume()
    fill(etcd, b="1")
    await one.sees({key("a"): b"1", key("b"): b"1"})
    await one.connected()


def test_etcd_is_stopped_for_a_while(etcd: Etcd) -> None:
    async def test() -> None:
        fill(etcd, a="1")
        async with following(etcd.endpoint) as one:
            await stopped_and_continued(etcd, one, 5)
            assert one.recorder.told() == [("put", key("a")), ("put", key("b"))]

    run(test())


def test_a_lease_that_lapses_while_etcd_is_away(etcd: Etcd) -> None:
    async def test() -> None:
        async with client_of(etcd.endpoint) as writer:
            lease = await writer.lease_grant(1)
            await writer.put(key("a"), b"1", lease)
            await writer.put(key("b"), b"1")
            async with following(etcd.endpoint) as one:
                etcd.kill()
                await one.disconnected()
                await asyncio.to_thread(etcd.start)
                await one.sees({key("b"): b"1"})

    run(test())


def test_cancelling_ends_at_once(etcd: Etcd) -> None:
    async def test() -> None:
        loop = asyncio.get_running_loop()
        fill(etcd, a="1")
        async with following(etcd.endpoint):
            etcd.pause()
            began = loop.time()
        assert loop.time() - began < 0.5
        etcd.resume()

    run(test())


@pytest.mark.parametrize("then", ["silence", "the same key", "another key"])
def test_a_watch_that_loses_changes(etcd: Etcd, monkeypatch: pytest.MonkeyPatch, then: str) -> None:
    """What is lost is found by the next change of the key, or by a read in the next silence."""
    losing: list[bool] = []
    read = Watch.__anext__

    async def lossy(self: Watch) -> WatchBatch:
        batch = await read(self)
        while losing:
            losing.pop()
            batch = await read(self)
        return batch

    monkeypatch.setattr(Watch, "__anext__", lossy)

    async def test() -> None:
        fill(etcd, a="1", b="1")
        settings = NO_PROBES if then == "the same key" else QUICK
        async with following(etcd.endpoint, settings=settings) as one:
            losing.append(True)
            etcd.ctl("del", key("a").decode())
            await eventually(lambda: not losing, "the loss")
            assert key("a") in one.recorder.world
            if then == "silence":
                await one.sees({key("b"): b"1"}, within=3)
            elif then == "the same key":
                fill(etcd, a="2")
                await one.sees({key("a"): b"2", key("b"): b"1"}, within=3)
                await eventually(lambda: one.mirror.counters.lists_total == 2, "a list")
            else:
                fill(etcd, b="2")
                await one.sees({key("b"): b"2"}, within=3)
            await one.connected()
            assert one.mirror.counters.lists_total == 2
            assert one.mirror.counters.watch_failures_total == 1

    run(test())
