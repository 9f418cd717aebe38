"""The mirror beside a healthy etcd."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from kvcache.discovery.client import Put
from kvcache.discovery.mirror import EtcdMirror, MirrorSettings
from mirror_recorder import KEY, QUICK, RANGE_END, client_of, eventually, following, key, run

if TYPE_CHECKING:
    from collections.abc import Sequence

    from etcd_server import Etcd
    from kvcache.discovery.mirror import MirrorStatus
    from kvcache.discovery.world import MirrorEvent


def test_joins_and_leaves_in_order(etcd: Etcd) -> None:
    async def test() -> None:
        async with client_of(etcd.endpoint) as writer, following(etcd.endpoint) as one:
            lease = await writer.lease_grant(60)
            await writer.put(key("a"), b"1", lease)
            await writer.put(b"/ns/XLLM:CACHE:x", b"out of the range")
            await writer.put(key("b"), b"1")
            await writer.put(key("a"), b"2", lease)
            await writer.lease_revoke(lease)
            await writer.put(key("c"), b"1")
            await one.sees({key("b"): b"1", key("c"): b"1"})
            first, _, second, gone, _ = one.recorder.events
            assert one.recorder.told() == [
                ("put", key("a")),
                ("put", key("b")),
                ("put", key("a")),
                ("delete", key("a")),
                ("put", key("c")),
            ]
            assert (first.prev_value, second.prev_value, gone.prev_value) == (None, b"1", b"2")
            assert first.create_revision == second.create_revision == gone.create_revision
            assert first.mod_revision < second.mod_revision < gone.mod_revision
            assert one.mirror.counters.lists_total == 1
            assert one.mirror.counters.events_total == 5

    run(test())


def test_the_first_list_is_one_batch_in_order_of_revision(etcd: Etcd) -> None:
    async def test() -> None:
        async with client_of(etcd.endpoint) as writer:
            for name in ("z", "a", "m"):
                await writer.put(key(name), b"1")
            await writer.put(key("z"), b"2")
            async with following(etcd.endpoint) as one:
                assert one.recorder.told() == [("put", key(n)) for n in ("a", "m", "z")]
                assert one.recorder.batches == [3]
                assert one.recorder.statuses[-1].connected

    run(test())


def test_an_empty_range_is_a_world_too(etcd: Etcd) -> None:
    async def test() -> None:
        async with following(etcd.endpoint) as one:
            assert one.recorder.events == []
            assert one.mirror.status.connected
            assert one.mirror.status.revision == 1

    run(test())


def test_pages_are_of_one_revision(etcd: Etcd) -> None:
    async def test() -> None:
        async with client_of(etcd.endpoint) as writer:
            names = [key(f"{number:04}") for number in range(3000)]
            for at in range(0, 3000, 100):
                await writer.txn((), [Put(name, b"1") for name in names[at : at + 100]])
            requests = writer.counters.requests_total
            assert requests == 30
            settings = MirrorSettings(page_keys=1000)
            async with following(etcd.endpoint, settings=settings) as one:
                assert one.recorder.world == dict.fromkeys(names, b"1")
                assert one.recorder.batches == [3000]
                # Three pages, a watch, and the read that proves it.
                assert one.client.counters.requests_total == 5
            # While pages are read, keys come and go: the watch takes over from the list's revision.
            async with following(
                etcd.endpoint, settings=MirrorSettings(page_keys=50), wait=False
            ) as one:
                for number in range(100):
                    await writer.put(key(f"new{number}"), b"1")
                    await writer.delete(names[number])
                wanted = dict.fromkeys(names[100:], b"1")
                wanted |= {key(f"new{number}"): b"1" for number in range(100)}
                await one.sees(wanted)
                assert one.mirror.counters.lists_total == 1

    run(test())


def test_a_revision_in_fragments_is_one_batch(etcd: Etcd) -> None:
    async def test() -> None:
        async with client_of(etcd.endpoint, request_timeout_s=5) as writer:
            revision = (await writer.range(KEY)).revision
            # One transaction is at most 1.5 MB; with the previous values its events are over 2 MB.
            names = [key(f"{number}") for number in range(4)]
            for fill in (b"x", b"y"):
                await writer.txn((), [Put(name, fill * 350_000) for name in names])
            async with following(etcd.endpoint) as one:
                for fill in (b"a", b"b"):
                    await writer.txn((), [Put(name, fill * 350_000) for name in names])
                await one.sees(dict.fromkeys(names, b"b" * 350_000))
                assert one.recorder.batches == [4, 4, 4]
            # Caught up from the past, several revisions come together.
            async with writer.watch(KEY, RANGE_END, revision + 1) as watch:
                seen = 0
                async for batch in watch:
                    seen += len(batch.events)
                    assert seen % 4 == 0
                    if seen == 16:
                        break

    run(test())


def test_a_large_value_comes_in_smaller_pages(etcd: Etcd) -> None:
    async def test() -> None:
        async with client_of(etcd.endpoint, request_timeout_s=5) as writer:
            names = [key(f"{number:02}") for number in range(14)]
            for name in names:
                await writer.put(name, b"x" * 1_400_000)
            async with following(etcd.endpoint, request_timeout_s=5) as one:
                await one.sees(dict.fromkeys(names, b"x" * 1_400_000))
                assert [status.connected for status in one.recorder.statuses] == [True]

    run(test())


def test_a_quiet_watch_is_probed_and_stays(etcd: Etcd) -> None:
    async def test() -> None:
        async with client_of(etcd.endpoint) as writer, following(etcd.endpoint) as one:
            await writer.put(key("a"), b"1")
            elsewhere = 0
            for _ in range(3):
                elsewhere = await writer.put(b"elsewhere", b"1")
            await eventually(lambda: one.mirror.counters.probes_total >= 3, "probes")
            # What happened elsewhere counts as seen: a later compaction costs no list.
            await eventually(
                lambda: one.mirror.status.revision == elsewhere, "the probe's revision"
            )
            await writer.delete(key("a"))
            await one.sees({})
            assert one.mirror.counters.watch_failures_total == 0
            assert one.mirror.counters.lists_total == 1

    run(test())


def test_what_a_consumer_raises_is_not_lost(etcd: Etcd) -> None:
    class Broken:
        def on_events(self, events: Sequence[MirrorEvent]) -> None:
            raise KeyError(events[0].key)

        def on_status(self, status: MirrorStatus) -> None:
            pass

    async def test() -> None:
        async with client_of(etcd.endpoint) as client:
            mirror = EtcdMirror(client, KEY, RANGE_END, Broken(), settings=QUICK)
            task = asyncio.create_task(mirror.run())
            await eventually(lambda: mirror.status.connected, "connected")
            await client.put(key("a"), b"1")
            with pytest.raises(KeyError):
                await task

    run(test())


def test_a_client_serves_one_loop_after_another(etcd: Etcd) -> None:
    async def test() -> None:
        async with client_of(etcd.endpoint) as client:
            await client.put(key("a"), b"1")

    for _ in range(3):
        run(test())
