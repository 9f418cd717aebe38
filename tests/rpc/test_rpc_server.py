"""The server on a real socket: many calls on a connection, and peers that are hostile, slow or silent."""

from __future__ import annotations

import asyncio
import gc
import random
import socket
import struct
import time
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any
from unittest import mock

import pytest
import recorded_frames
import uvloop
from hypothesis import given, settings
from hypothesis import strategies as st
from kvcache.registry.model import InstanceType, Latency, Registration
from kvcache.registry.registry import Registry
from kvcache.rpc.calls import Call
from kvcache.rpc.connection import Connection
from kvcache.rpc.errors import CallError, ErrorCode
from kvcache.rpc.framing import MAX_BODY_BYTES
from kvcache.rpc.limits import RpcLimits
from kvcache.rpc.messages import message, parse
from kvcache.rpc.server import RpcServer
from kvcache.rpc.service import Answer, MasterService
from kvcache.rpc.turns import Turns
from rpc_client import SERVICE, Client, frame, request, serving, until

NAME = "10.0.0.1:8000"


@pytest.fixture(params=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Any:
    """Runs a test in either event loop, within a deadline."""
    factory = uvloop.new_event_loop if request.param == "uvloop" else None

    def run_test(test: Coroutine[Any, Any, None]) -> None:
        with asyncio.Runner(loop_factory=factory) as runner:
            runner.run(asyncio.wait_for(test, 60))
        gc.collect()  # a coroutine that was never awaited would warn now

    return run_test


def registry_with(*names: str) -> Registry:
    registry = Registry()
    for number, name in enumerate(names or (NAME,), 1):
        registration = Registration(name, InstanceType.DECODE, incarnation_id="i1")
        registry.put(f"XLLM:DECODE:{name}", registration, number)
    return registry


class Gates:
    """A service whose calls wait until they are let through; what they carry is answered."""

    def __init__(self) -> None:
        self.waiting: dict[bytes, asyncio.Event] = {}
        self.cancelled = 0

    def answer(self, call: Call) -> Answer:
        if call.method == b"Hello":
            return message("Status", ok=True).SerializeToString()  # type: ignore[no-any-return]
        if call.method == b"Broken":
            raise RuntimeError("a fault of ours")
        return self._wait(call)

    async def _wait(self, call: Call) -> bytes:
        self.waiting[call.message] = asyncio.Event()
        try:
            await self.waiting[call.message].wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        if call.method == b"Refuse":
            raise CallError(ErrorCode.NO_METHOD, "not any more")
        if call.method == b"BreakLate":
            raise RuntimeError("a fault of ours")
        return call.message


# --- calls ---------------------------------------------------------------------------------------


def test_recorded_calls(run: Any) -> None:
    """Byte for byte, against what the definition of the protocol says."""

    async def test() -> None:
        registry = registry_with()
        async with serving(MasterService(registry)) as rig:
            client = await rig.connect()
            for sent, expected in (
                (recorded_frames.HELLO, recorded_frames.HELLO_ANSWER),
                (recorded_frames.HEARTBEAT, recorded_frames.HEARTBEAT_ANSWER),
                (recorded_frames.GENERATIONS, recorded_frames.GENERATIONS_REFUSED),
            ):
                client.writer.write(sent)
                assert await client.reader.readexactly(len(expected)) == expected
            report = registry.snapshot().instances[NAME].heartbeat
            assert report is not None
            assert (report.load.waiting_requests_num, report.load.gpu_cache_usage_perc) == (5, 0.25)
            assert report.latency == Latency(150, 20)
            assert rig.server.counts.calls_total == {0: 2, 1002: 1}
        async with serving(MasterService(registry_with("10.0.0.9:1"))) as rig:
            client = await rig.connect()
            client.writer.write(recorded_frames.HEARTBEAT)
            refused = recorded_frames.HEARTBEAT_REFUSED
            assert await client.reader.readexactly(len(refused)) == refused

    run(test())


@pytest.mark.parametrize("size", [1, 3, 1000])
def test_many_calls_on_one_connection_however_they_are_cut(run: Any, size: int) -> None:
    async def test() -> None:
        async with serving(MasterService(registry_with())) as rig:
            client = await rig.connect()
            beat = message("HeartbeatRequest", name=NAME, incarnation_id="i1").SerializeToString()
            numbers = [random.randrange(-(2**63), 2**63) for _ in range(40)]
            stream = b"".join(request(number, b"Heartbeat", beat) for number in numbers)
            for at in range(0, len(stream), size):
                client.writer.write(stream[at : at + size])
                await asyncio.sleep(0)
            replies = [await client.reply() for _ in numbers]
            assert [reply.correlation_id for reply in replies] == numbers
            assert all(reply.status() for reply in replies)

    run(test())


def test_a_burst_of_thousands_of_calls(run: Any) -> None:
    async def test() -> None:
        async with serving(MasterService(registry_with())) as rig:
            client = await rig.connect()
            client.writer.write(b"".join(request(n, b"Hello") for n in range(20_000)))
            for number in range(20_000):
                assert (await client.reply()).correlation_id == number

    run(test())


def test_answers_come_out_of_order(run: Any) -> None:
    async def test() -> None:
        gates = Gates()
        async with serving(gates) as rig:
            client = await rig.connect()
            for number in range(5):
                client.writer.write(request(number, b"Slow", b"%d" % number))
            client.writer.write(request(99, b"Hello"))
            assert (await client.reply()).correlation_id == 99
            await until(lambda: len(gates.waiting) == 5)
            for number in (3, 0, 4, 2, 1):
                gates.waiting[b"%d" % number].set()
                reply = await client.reply()
                assert (reply.correlation_id, reply.body) == (number, b"%d" % number)

    run(test())


def test_calls_refused_or_broken_late_are_answered(
    run: Any, caplog: pytest.LogCaptureFixture
) -> None:
    async def test() -> None:
        gates = Gates()
        async with serving(gates) as rig:
            client = await rig.connect()
            for number, method in enumerate((b"Refuse", b"BreakLate")):
                client.writer.write(request(number, method, method))
                await until(lambda method=method: method in gates.waiting)
                gates.waiting[method].set()
            replies = [await client.reply() for _ in range(2)]
            assert [reply.error_code for reply in replies] == [1002, 2001]
            assert (await client.call(b"Broken")).error_code == 2001
            assert await client.alive()

    run(test())
    assert caplog.text.count("RuntimeError: a fault of ours") == 2


@pytest.mark.parametrize(
    ("method", "fields", "code"),
    [
        (b"Hello", {"service": b"other.Service"}, 1001),
        (b"Generations", {}, 1002),
        (b"Hello", {"compress_type": 2}, 1003),
        (b"Hello", {"attachment_size": 1}, 1003),
        (b"Hello", {"authentication_data": b"secret"}, 1003),
        (b"Heartbeat", {"body": b"\xff"}, 1003),
    ],
)
def test_a_refused_call_costs_no_connection(
    run: Any, method: bytes, fields: dict[str, Any], code: int
) -> None:
    async def test() -> None:
        async with serving(MasterService(registry_with())) as rig:
            client = await rig.connect()
            reply = await client.call(method, **fields)
            assert reply.error_code == code
            assert reply.error_text
            assert reply.body == b""
            assert await client.alive()

    run(test())


def test_a_peer_that_sends_no_more_gets_its_answers(run: Any) -> None:
    async def test() -> None:
        gates = Gates()
        async with serving(gates) as rig:
            client = await rig.connect()
            client.writer.write(request(1, b"Slow", b"x"))
            client.writer.write(b"".join(request(number, b"Hello") for number in range(2, 100)))
            client.writer.write(b"PRPC and half a frame"[:7])
            client.writer.write_eof()
            for number in range(2, 100):
                assert (await client.reply()).correlation_id == number
            gates.waiting[b"x"].set()
            assert (await client.reply()).correlation_id == 1
            assert await client.ended() == b""
            await until(lambda: rig.server.counts.connections == 0)

    run(test())


def test_the_lists_of_a_large_fleet(run: Any) -> None:
    async def test() -> None:
        names = [f"host-{number:05}:8000" for number in range(10_000)]
        async with serving(MasterService(registry_with(*names))) as rig:
            clients = [await rig.connect() for _ in range(3)]
            for client in clients:
                client.writer.write(request(1, b"GetStaticDecodeList"))
                client.writer.write(request(2, b"GetStaticPrefillList"))
            for client in clients:
                bodies = {}
                for _ in range(2):
                    reply = await client.reply()
                    bodies[reply.correlation_id] = reply.body
                assert list(parse("InstanceIDs", bodies[1]).names) == names
                assert bodies[2] == b""

    run(test())


# --- what costs a connection, and only that ------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"GET /health HTTP/1.1\r\n\r\n", "the bytes are not of the protocol baidu_std"),
        (b"PRPC" + b"\xff" * 8, "the body exceeds"),
        (b"PRPC" + b"\x00\x00\x00\x01" + b"\x00\x00\x00\x02", "the meta exceeds the body"),
        (frame(b"\xff"), "the meta of a frame is not an RpcMeta"),
        (request(1, b"Hello") + b"PRPX", "the bytes are not of the protocol baidu_std"),
    ],
)
def test_bytes_that_are_no_frames(
    run: Any, data: bytes, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def test() -> None:
        async with serving(MasterService(registry_with())) as rig:
            good = await rig.connect()
            for _ in range(3):
                bad = await rig.connect()
                bad.writer.write(data)
                await bad.ended()
            assert await good.alive()
            assert rig.server.counts.connections_faulted_total == 3
            await until(lambda: rig.server.counts.connections == 1)

    run(test())
    assert caplog.text.count(f"closed an rpc connection of 127.0.0.1: {reason}") == 1


PIECES = st.one_of(
    st.binary(max_size=64),
    st.builds(frame, st.binary(max_size=40), st.binary(max_size=100)),
    st.builds(
        request,
        st.integers(-(2**63), 2**63 - 1),
        st.sampled_from([b"Hello", b"Heartbeat", b"GetStaticDecodeList", b"Generations", b""]),
        st.binary(max_size=40),
        service=st.sampled_from([SERVICE, b"XllmRpcService", b""]),
        compress_type=st.sampled_from([0, 0, 0, 1]),
        attachment_size=st.sampled_from([0, 0, 0, 1, -1]),
    ),
)


@settings(deadline=None, max_examples=40)
@given(st.lists(st.lists(PIECES, max_size=8), min_size=1, max_size=6))
def test_whatever_is_sent_others_are_served(streams: list[list[bytes]]) -> None:
    async def test() -> None:
        async with serving(MasterService(registry_with())) as rig:
            good = await rig.connect()
            for pieces in streams:
                client = await rig.connect()
                for piece in pieces:
                    client.writer.write(piece)
                    await asyncio.sleep(0)
                with suppress(OSError):  # it may be closed already
                    client.writer.write_eof()
                await client.ended()
                assert await good.alive()
            await until(lambda: rig.server.counts.connections == 1)
            # All that were answered with an error that is not the caller's fault would be ours.
            assert ErrorCode.INTERNAL not in rig.server.counts.calls_total

    asyncio.run(asyncio.wait_for(test(), 60))


def test_connections_are_bounded(run: Any) -> None:
    async def test() -> None:
        limits = RpcLimits(max_connections=2)
        async with serving(MasterService(registry_with()), limits) as rig:
            first, second = [await rig.connect() for _ in range(2)]
            assert await first.alive()
            assert await second.alive()
            assert await (await rig.connect()).ended() == b""
            assert await first.alive()
            first.writer.close()
            await until(lambda: rig.server.counts.connections == 1)
            assert await (await rig.connect()).alive()
            assert rig.server.counts.connections_refused_total == 1

    run(test())


def test_calls_that_wait_are_bounded_on_a_connection(run: Any) -> None:
    """It is not read from until one of them is answered; others are."""

    async def test() -> None:
        gates = Gates()
        async with serving(gates, RpcLimits(max_calls_a_connection=3)) as rig:
            client, other = await rig.connect(), await rig.connect()
            for number in range(10):
                client.writer.write(request(number, b"Slow", b"%d" % number))
            await until(lambda: len(gates.waiting) == 3)
            assert await other.alive()
            assert len(gates.waiting) == 3
            for number in range(10):
                await until(lambda number=number: b"%d" % number in gates.waiting)
                gates.waiting[b"%d" % number].set()
                assert (await client.reply()).correlation_id == number

    run(test())


def test_calls_that_wait_are_bounded_in_all(run: Any) -> None:
    async def test() -> None:
        gates = Gates()
        async with serving(gates, RpcLimits(max_calls=2)) as rig:
            client, other = await rig.connect(), await rig.connect()
            for number in range(2):
                client.writer.write(request(number, b"Slow", b"%d" % number))
            await until(lambda: len(gates.waiting) == 2)
            refused = await other.call(b"Slow", b"x")
            assert refused.error_code == ErrorCode.OVERCROWDED == 2004
            assert await other.alive()
            gates.waiting[b"0"].set()
            assert (await client.reply()).correlation_id == 0
            other.writer.write(request(7, b"Slow", b"y"))
            await until(lambda: b"y" in gates.waiting)

    run(test())


@pytest.mark.parametrize("reset", [True, False])
def test_calls_of_a_peer_that_leaves_are_cancelled(run: Any, reset: bool) -> None:
    """At once where it says that it wants no answers; after a while where it only sends no more."""

    async def test() -> None:
        gates = Gates()
        limits = RpcLimits() if reset else RpcLimits(slow_timeout_s=0.2)
        async with serving(gates, limits) as rig:
            client = await rig.connect()
            for number in range(4):
                client.writer.write(request(number, b"Slow", b"%d" % number))
            await until(lambda: len(gates.waiting) == 4)
            if reset:
                linger = struct.pack("ii", 1, 0)
                peer = client.writer.get_extra_info("socket")
                peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            client.writer.transport.abort()
            await until(lambda: gates.cancelled == 4)
            # At once: calls that have not begun.
            hasty = await rig.connect()
            hasty.writer.write(request(1, b"Slow", b"never") + b"junk")
            await hasty.ended()
            assert b"never" not in gates.waiting

    run(test())


def test_idle_connections_are_closed(run: Any) -> None:
    async def test() -> None:
        limits = RpcLimits(idle_timeout_s=0.2)
        async with serving(MasterService(registry_with()), limits) as rig:
            silent, talkative = await rig.connect(), await rig.connect()
            ended = asyncio.create_task(silent.ended())
            while not ended.done():
                assert await talkative.alive()
                await asyncio.sleep(0.02)
            assert rig.server.counts.connections_faulted_total == 0

    run(test())


def test_a_connection_whose_call_waits_is_not_idle(run: Any) -> None:
    async def test() -> None:
        gates = Gates()
        async with serving(gates, RpcLimits(idle_timeout_s=0.1)) as rig:
            waiting, silent = await rig.connect(), await rig.connect()
            waiting.writer.write(request(1, b"Slow", b"x"))
            await until(lambda: b"x" in gates.waiting)
            await silent.ended()
            await (await rig.connect()).ended()  # a second time over
            gates.waiting[b"x"].set()
            assert (await waiting.reply()).body == b"x"

    run(test())


def test_a_frame_that_trickles_is_given_up(run: Any, caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        limits = RpcLimits(slow_timeout_s=0.3)
        async with serving(MasterService(registry_with()), limits) as rig:
            slow, good = await rig.connect(), await rig.connect()
            ended = asyncio.create_task(slow.ended())
            for byte in request(1, b"Heartbeat", b"\x0a\x64" + b"n" * 100):
                if ended.done():
                    break
                slow.writer.write(bytes([byte]))
                assert await good.alive()
                await asyncio.sleep(0.02)
            assert await ended == b""
            assert await good.alive()

    run(test())
    assert "a frame did not arrive whole in time" in caplog.text


async def refuse_to_read(client: Client, limit: int) -> None:
    """Sends calls until the server reads no more of them, and reads no answer."""
    client.writer.transport.pause_reading()  # type: ignore[attr-defined]
    calls = b"".join(request(number, b"GetInstanceInfo", b"") for number in range(500))
    for _ in range(limit):
        client.writer.write(calls)
        try:
            await asyncio.wait_for(client.writer.drain(), 0.3)
        except TimeoutError:
            return
    raise AssertionError("everything was read")


def test_a_peer_that_does_not_read_its_answers_is_given_up(
    run: Any, caplog: pytest.LogCaptureFixture
) -> None:
    class Large:
        def answer(self, call: Call) -> Answer:
            return b"" if call.method == b"Hello" else bytes(10_000)

    async def test() -> None:
        async with serving(Large(), RpcLimits(slow_timeout_s=1.0)) as rig:
            greedy, good = await rig.connect(), await rig.connect()
            await refuse_to_read(greedy, 1000)
            assert (await good.call(b"Hello")).error_code == 0
            await until(lambda: rig.server.counts.connections == 1)
            assert (await good.call(b"Hello")).error_code == 0

    run(test())
    assert "the answers were not read in time" in caplog.text


def test_a_peer_that_reads_late_gets_every_answer(run: Any) -> None:
    class Large:
        def answer(self, _call: Call) -> Answer:
            return bytes(10_000)

    async def test() -> None:
        async with serving(Large()) as rig:
            client = await rig.connect()
            client.writer.write(b"".join(request(number, b"x") for number in range(5000)))
            await until(lambda: rig.server.counts.calls_total[0] > 10)
            for number in range(5000):
                assert (await client.reply()).correlation_id == number

    run(test())


def test_what_is_buffered_of_all_connections_is_bounded(run: Any) -> None:
    async def test() -> None:
        limits = RpcLimits(max_buffered_bytes=4 << 20)
        async with serving(MasterService(registry_with()), limits) as rig:
            good = await rig.connect()
            head = b"PRPC" + MAX_BODY_BYTES.to_bytes(4, "big") + bytes(4)
            for _ in range(8):
                client = await rig.connect()
                client.writer.write(head + bytes(MAX_BODY_BYTES - 1))
            await until(lambda: rig.server.counts.connections_faulted_total == 5)  # three fit
            assert rig.server._buffered_bytes <= limits.max_buffered_bytes
            assert await good.alive()

    run(test())


# --- the server's own life -----------------------------------------------------------------------


def test_it_can_be_run_again_on_the_same_socket(run: Any) -> None:
    async def test() -> None:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            listener.setblocking(False)
            server = RpcServer(listener, MasterService(registry_with()))
            for _ in range(2):
                running = asyncio.create_task(server.run())
                client = Client(*await asyncio.open_connection(*listener.getsockname()))
                assert await client.alive()
                running.cancel()
                await asyncio.wait((running,))
                assert running.cancelled()
                assert await client.ended() == b""
                client.writer.transport.abort()
            await until(lambda: server.counts.connections == 0)

    run(test())


def test_a_connection_accepted_when_it_ends_is_closed(run: Any) -> None:
    async def test() -> None:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            server = RpcServer(listener, MasterService(Registry()))
        transport = mock.Mock(spec=asyncio.Transport)
        transport.get_extra_info.return_value = ("127.0.0.1", 1)
        Connection(server).connection_made(transport)
        transport.abort.assert_called_once()
        assert server.counts.connections == 0

    run(test())


def test_a_connection_that_waits_for_its_turn_is_not_read_from(run: Any) -> None:
    async def test() -> None:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            server = RpcServer(listener, MasterService(Registry()))
        server._serving = True
        server.turns = mock.Mock(spec=Turns)
        transport = mock.Mock(spec=asyncio.Transport)
        transport.get_extra_info.return_value = ("127.0.0.1", 1)
        connection = Connection(server)
        connection.connection_made(transport)
        for _ in range(2):
            connection.get_buffer(-1)[:4] = b"PRPC"
            connection.buffer_updated(4)
        transport.pause_reading.assert_called_once()
        server.turns.add.assert_called_once()

    run(test())


def test_connections_leave_descriptors_to_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("resource.getrlimit", lambda _: (1000, 1000))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = RpcServer(listener, MasterService(Registry()))
    assert server._max_connections == 500


def test_however_many_send_the_loop_is_not_held(run: Any) -> None:
    """Thousands of calls are there at once; a slice of them is answered between two turns of others."""

    async def test() -> None:
        turns = 0
        answered: list[int] = []

        class Slow:
            def answer(self, _call: Call) -> Answer:
                answered.append(turns)
                time.sleep(0.0005)  # it stands for work
                return b""

        async with serving(Slow()) as rig:
            clients = [await rig.connect() for _ in range(20)]
            for client in clients:
                client.writer.write(b"".join(request(number, b"x") for number in range(100)))
            while len(answered) < 2000:
                turns += 1
                await asyncio.sleep(0)
        # One connection's turn may begin just before the slice of two milliseconds ends.
        assert max(answered.count(turn) for turn in set(answered)) <= 4 + 16

    run(test())
