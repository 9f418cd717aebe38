"""The client's calls, one by one, and what they raise."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from kvcache.discovery.client import Compare, Delete, Get, Put
from kvcache.discovery.config import EtcdConfig
from kvcache.discovery.errors import (
    CompactedError,
    EtcdAmbiguousError,
    EtcdError,
    EtcdRequestError,
    EtcdUnavailableError,
    FutureRevisionError,
    LeaseNotFoundError,
)
from kvcache.exceptions import ClosedError, ConfigError, KvCacheError
from mirror_recorder import client_of, eventually, run
from tcp_proxy import TcpProxy

if TYPE_CHECKING:
    from collections.abc import Callable

    from etcd_server import Etcd


def test_keys(etcd: Etcd) -> None:
    async def test() -> None:
        async with client_of(etcd.endpoint) as client:
            first = await client.put(b"a", b"1")
            second = await client.put(b"a", b"2")
            await client.put(b"b", b"\x00\xff")
            await client.put(b"c", b"")
            found = await client.range(b"a", b"z", limit=2)
            assert [(kv.key, kv.value) for kv in found.kvs] == [(b"a", b"2"), (b"b", b"\x00\xff")]
            assert (found.more, found.count, found.revision) == (True, 3, second + 2)
            one = found.kvs[0]
            assert (one.create_revision, one.mod_revision, one.lease) == (first, second, 0)
            old = await client.range(b"a", revision=first, serializable=True)
            assert old.kvs[0].value == b"1"
            assert (await client.range(b"nothing")).kvs == ()
            assert await client.delete(b"a", b"c") == 2
            assert await client.delete(b"a") == 0
            with pytest.raises(FutureRevisionError):
                await client.range(b"a", revision=1000)
            etcd.ctl("compact", str(second))
            with pytest.raises(CompactedError):
                await client.range(b"a", revision=first)
            with pytest.raises(EtcdRequestError, match="key is not provided"):
                await client.put(b"", b"1")

    run(test())


def test_leases(etcd: Etcd) -> None:
    async def test() -> None:
        async with client_of(etcd.endpoint) as client:
            lease = await client.lease_grant(7)
            await client.put(b"a", b"1", lease)
            assert (await client.range(b"a")).kvs[0].lease == lease
            assert await client.lease_keepalive(lease) == 7
            assert await client.lease_time_to_live(lease) in {6, 7}
            await client.lease_revoke(lease)
            await client.lease_revoke(lease)
            assert (await client.range(b"a")).kvs == ()
            assert await client.lease_keepalive(lease) == 0
            assert await client.lease_time_to_live(lease) == 0
            with pytest.raises(LeaseNotFoundError):
                await client.put(b"a", b"1", lease)
            assert (await client.range(b"a")).kvs == ()

    run(test())


def test_compare_and_put(etcd: Etcd) -> None:
    async def test() -> None:
        async with client_of(etcd.endpoint) as client:
            mine = await client.lease_grant(60)
            assert (await client.compare_and_put(b"master", b"me", mine)).succeeded
            lost = await client.compare_and_put(b"master", b"you")
            assert not lost.succeeded
            assert [(kv.value, kv.lease) for kv in lost.reads[0]] == [(b"me", mine)]
            held = (Compare(b"master", "value", b"me"), Compare(b"master", "lease", mine))
            again = await client.compare_and_put(b"master", b"me2", mine, compare=held)
            assert again.succeeded
            other = (Compare(b"master", "value", b"me2"), Compare(b"master", "lease", mine + 1))
            assert not (await client.compare_and_put(b"master", b"x", compare=other)).succeeded
            kv = (await client.range(b"master")).kvs[0]
            assert (kv.value, kv.mod_revision) == (b"me2", again.revision)
            for compare in (
                Compare(b"master", "mod_revision", kv.mod_revision),
                Compare(b"master", "create_revision", kv.create_revision),
                Compare(b"master", "version", 2),
                Compare(b"gone", "mod_revision", 0),
                Compare(b"gone", "lease", 0),
            ):
                assert (await client.txn([compare], [Get(b"master")])).reads == ((kv,),)
            done = await client.txn((), [Delete(b"master"), Put(b"other", b"1"), Get(b"master")])
            assert done.reads == ((),)
            assert (await client.range(b"other")).count == 1

    run(test())


def test_no_etcd_is_an_error_in_time(new_etcd: Callable[..., Etcd]) -> None:
    async def test() -> None:
        etcd = new_etcd()
        loop = asyncio.get_running_loop()
        async with client_of(etcd.endpoint, request_timeout_s=0.5) as client:
            for call in (client.range(b"a"), client.put(b"a", b"1"), client.lease_grant(1)):
                began = loop.time()
                with pytest.raises(EtcdUnavailableError) as failed:
                    await call
                assert loop.time() - began < 1
                # Nothing was sent, so nothing is in doubt.
                assert not isinstance(failed.value, EtcdAmbiguousError)
                assert etcd.endpoint in str(failed.value)
                assert "refused" in str(failed.value)
                assert isinstance(failed.value, KvCacheError)
            # A client that has waited in vain finds an etcd that comes.
            await asyncio.to_thread(etcd.start)
            assert await client.put(b"a", b"1", timeout_s=3) == 2

    run(test())


def test_a_hung_etcd_is_an_error_in_time(etcd: Etcd) -> None:
    async def test() -> None:
        loop = asyncio.get_running_loop()
        async with client_of(etcd.endpoint) as client:
            lease = await client.lease_grant(60)
            etcd.pause()
            for call, ambiguous in (
                (client.range(b"a", timeout_s=0.3), False),
                (client.lease_keepalive(lease, timeout_s=0.3), False),
                (client.put(b"a", b"1", timeout_s=0.3), True),
                (client.compare_and_put(b"b", b"1", timeout_s=0.3), True),
            ):
                began = loop.time()
                with pytest.raises(EtcdUnavailableError, match="in time") as failed:
                    await call
                assert 0.25 < loop.time() - began < 0.6
                assert isinstance(failed.value, EtcdAmbiguousError) is ambiguous
            began = loop.time()
            with pytest.raises(EtcdUnavailableError):
                async with client.watch(b"a", b"z", 1):
                    pass
            assert loop.time() - began < 1.5
            etcd.resume()
            # A put that failed lands all the same: etcd had it in its socket.
            found = await client.range(b"a", timeout_s=5)
            assert [kv.value for kv in found.kvs] in ([], [b"1"])

    run(test())


def test_a_put_that_failed_may_have_landed(etcd: Etcd) -> None:
    async def test() -> None:
        async with (
            client_of(etcd.endpoint) as direct,
            TcpProxy(etcd.endpoint) as proxy,
            client_of(proxy.endpoint) as client,
        ):
            await client.range(b"a")
            proxy.hold_answers()
            with pytest.raises(EtcdAmbiguousError):
                await client.compare_and_put(b"a", b"me", timeout_s=0.3)
            proxy.release()
            assert (await direct.range(b"a")).kvs[0].value == b"me"
            assert not (await client.compare_and_put(b"a", b"me")).succeeded

    run(test())


def test_a_connection_that_is_cut_leaves_a_put_in_doubt(etcd: Etcd) -> None:
    async def test() -> None:
        async with TcpProxy(etcd.endpoint) as proxy, client_of(proxy.endpoint) as client:
            await client.range(b"a")
            proxy.hold()
            # gRPC has small things of its own to say.
            put = asyncio.create_task(client.put(b"a", b"1" * 10_000, timeout_s=5))
            await eventually(lambda: proxy.held_bytes > 10_000, "the request")
            proxy.cut()
            with pytest.raises(EtcdAmbiguousError):
                await put
            proxy.release()
            # The next is tried anew.
            await client.put(b"a", b"2", timeout_s=5)

    run(test())


def test_after_closing(etcd: Etcd) -> None:
    async def test() -> None:
        client = client_of(etcd.endpoint)
        await client.put(b"a", b"1")
        await client.aclose()
        await client.aclose()
        with pytest.raises(ClosedError):
            await client.put(b"a", b"1")
        with pytest.raises(ClosedError):
            async with client.watch(b"a"):
                pass

    run(test())


def test_closing_ends_what_is_under_way(etcd: Etcd) -> None:
    async def test() -> None:
        client = client_of(etcd.endpoint)
        await client.put(b"a", b"1")
        etcd.pause()
        put = asyncio.create_task(client.put(b"a", b"2", timeout_s=30))
        await eventually(lambda: client.counters.requests_total == 2, "the put")
        await client.aclose()
        # Not `CancelledError`: nobody cancelled the task.
        with pytest.raises(EtcdAmbiguousError, match="was closed"):
            await put
        etcd.resume()

    run(test())


def test_a_watch_ends_with_what_ended_it(etcd: Etcd) -> None:
    async def test() -> None:
        async with client_of(etcd.endpoint) as client:
            for _ in range(5):
                revision = await client.put(b"a", b"1")
            etcd.ctl("compact", str(revision))
            with pytest.raises(CompactedError) as compacted:
                async with client.watch(b"a", b"", 2) as watch:
                    await anext(watch)
            assert compacted.value.compact_revision == revision
            async with client.watch(b"a", b"", revision) as watch:
                batch = await anext(watch)
                assert batch.revision == revision
                assert batch.events[0].previous is None or batch.events[0].previous.value == b"1"
                await client.put(b"a", b"2")
                event = (await anext(watch)).events[0]
                assert not event.deleted
                assert event.previous is not None
                assert (event.previous.value, event.kv.value) == (b"1", b"2")
                await client.delete(b"a")
                event = (await anext(watch)).events[0]
                assert event.deleted
                assert event.previous is not None
                assert event.previous.value == b"2"
                etcd.kill()
                with pytest.raises(EtcdUnavailableError):
                    await anext(watch)

    run(test())


def test_a_server_that_is_no_etcd() -> None:
    async def other(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    async def test() -> None:
        async with await asyncio.start_server(other, "127.0.0.1", 0) as server:
            host, port = server.sockets[0].getsockname()
            async with client_of(f"{host}:{port}", request_timeout_s=0.5) as client:
                with pytest.raises(EtcdError):
                    await client.range(b"a")

    run(test())


@pytest.mark.parametrize(
    ("options", "path"),
    [
        ({"endpoints": ()}, "endpoints"),
        ({"endpoints": ("127.0.0.1:2379", "nowhere")}, "endpoints[1]"),
        ({"endpoints": ("http://127.0.0.1:2379",)}, "endpoints[0]"),
        ({"endpoints": ("127.0.0.1:2379",), "cert_path": Path("x")}, "cert_path"),
        ({"endpoints": ("127.0.0.1:2379",), "key_path": Path("x")}, "cert_path"),
        ({"endpoints": ("127.0.0.1:2379",), "request_timeout_s": 0.0}, "request_timeout_s"),
    ],
)
def test_a_bad_configuration_names_the_fault(options: dict[str, object], path: str) -> None:
    with pytest.raises(ConfigError) as refused:
        EtcdConfig(**options)  # type: ignore[arg-type]
    assert [fault.path for fault in refused.value.faults] == [path]
