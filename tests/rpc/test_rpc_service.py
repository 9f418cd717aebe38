"""The methods that engines call on their master, answered from a registry."""

from __future__ import annotations

import asyncio
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kvcache.registry.model import InstanceType, Latency, Registration
from kvcache.registry.registry import Registry
from kvcache.rpc.calls import Call, read_call, read_meta
from kvcache.rpc.errors import CallError, ErrorCode, FramingError
from kvcache.rpc.framing import Frame
from kvcache.rpc.messages import message, parse
from kvcache.rpc.service import MasterService
from rpc_client import SERVICE, request

A, B, C, D, E = (f"10.0.0.{number}:8000" for number in range(1, 6))


class World:
    def __init__(self) -> None:
        self.registry = Registry()
        self.service = MasterService(self.registry)

    def put(self, name: str, kind: InstanceType, **fields: Any) -> Registration:
        registration = Registration(name, kind, **{"incarnation_id": "i1"} | fields)
        self.registry.put(f"XLLM:{kind.name}:{name}", registration, 1)
        return registration

    def suspend(self, name: str) -> None:
        row = self.registry.snapshot().instances[name]
        self.registry.delete(row.key, row.registration, 2)
        [probe] = self.registry.take_probes()
        self.registry.probe_finished(probe.name, probe.generation, healthy=False)

    def call(self, method: str, body: bytes = b"", service: bytes = SERVICE) -> bytes:
        async def answer() -> bytes:
            given = self.service.answer(Call(service, method.encode(), body))
            return given if isinstance(given, bytes) else await given

        return asyncio.run(answer())

    def refusal(self, method: str, body: bytes = b"", service: bytes = SERVICE) -> CallError:
        with pytest.raises(CallError) as caught:
            self.call(method, body, service)
        return caught.value

    def beat(self, name: str = A, **fields: Any) -> bool:
        beat = message("HeartbeatRequest", **{"name": name, "incarnation_id": "i1"} | fields)
        return bool(parse("Status", self.call("Heartbeat", beat.SerializeToString())).ok)

    def names(self, method: str) -> list[str]:
        asked = message("InstanceID", name=A).SerializeToString()
        return list(parse("InstanceIDs", self.call(method, asked)).names)


@pytest.fixture
def world() -> World:
    return World()


def test_hello(world: World) -> None:
    assert parse("Status", world.call("Hello")).ok
    assert parse("Status", world.call("Hello", service=b"XllmRpcService")).ok


# --- heartbeats ----------------------------------------------------------------------------------


def test_a_heartbeat_reaches_the_registry(world: World) -> None:
    world.put(A, InstanceType.DEFAULT)
    load = message("LoadMetrics", waiting_requests_num=2**64 - 1, gpu_cache_usage_perc=0.5)
    latency = message("LatencyMetrics", recent_max_ttft=150, recent_max_tbt=-1)
    assert world.beat(load_metrics=load, latency_metrics=latency)
    report = world.registry.snapshot().instances[A].heartbeat
    assert report is not None
    assert report.load.legal
    assert report.load.waiting_requests_num == 2**64 - 1
    assert report.load.gpu_cache_usage_perc == 0.5
    assert report.latency == Latency(150, -1)


def test_a_heartbeat_without_a_load_is_no_report(world: World) -> None:
    world.put(A, InstanceType.DEFAULT)
    assert world.beat()
    assert world.registry.snapshot().instances[A].heartbeat is None


def test_an_idle_load_is_a_report(world: World) -> None:
    """Zeros are not sent: the empty message is a load of nothing."""
    world.put(A, InstanceType.DEFAULT)
    assert world.beat(load_metrics=message("LoadMetrics"))
    report = world.registry.snapshot().instances[A].heartbeat
    assert report is not None
    assert report.load.legal
    assert (report.load.waiting_requests_num, report.load.gpu_cache_usage_perc) == (0, 0.0)
    assert report.latency is None


@pytest.mark.parametrize("usage", [float("nan"), float("inf"), float("-inf"), -0.5, 1.5])
def test_an_illegal_load_is_accepted_and_excludes(world: World, usage: float) -> None:
    world.put(A, InstanceType.DEFAULT)
    assert world.beat(load_metrics=message("LoadMetrics", gpu_cache_usage_perc=usage))
    report = world.registry.snapshot().instances[A].heartbeat
    assert report is not None
    assert not report.load.legal


def test_strangers_are_answered_with_false(world: World) -> None:
    world.put(A, InstanceType.DEFAULT)
    assert not world.beat(B)
    assert not world.beat("")
    assert not world.beat(A, incarnation_id="i2")
    assert not world.beat(A, incarnation_id="")
    assert world.beat(A)


def test_a_name_too_long_to_be_one_is_refused(world: World) -> None:
    for fields in ({"name": "n" * 1025}, {"name": A, "incarnation_id": "i" * 1025}):
        body = message("HeartbeatRequest", **fields).SerializeToString()
        refused = world.refusal("Heartbeat", body)
        assert refused.code is ErrorCode.BAD_REQUEST
        assert "at most 1024 characters" in str(refused)


# --- what engines ask about each other -----------------------------------------------------------


def test_the_lists(world: World) -> None:
    kinds = [
        InstanceType.DECODE,
        InstanceType.PREFILL,
        InstanceType.DEFAULT,
        InstanceType.MIX,
        InstanceType.DECODE,
    ]
    assert world.names("GetStaticDecodeList") == []
    for name, kind in zip((A, B, C, D, E), kinds, strict=True):
        world.put(name, kind)
    assert world.names("GetStaticDecodeList") == [A, E]
    assert world.names("GetStaticPrefillList") == [B, C]
    world.suspend(A)
    assert world.names("GetStaticDecodeList") == [E]
    assert world.names("GetStaticPrefillList") == [B, C]


def test_a_list_is_kept_until_the_registry_changes(world: World) -> None:
    world.put(A, InstanceType.DECODE)
    world.names("GetStaticDecodeList")
    call = Call(SERVICE, b"GetStaticDecodeList", b"")
    kept = world.service.answer(call)
    assert isinstance(kept, bytes)
    world.put(B, InstanceType.DECODE)
    fresh = world.service.answer(call)
    assert not isinstance(fresh, bytes)
    fresh.close()


def test_a_long_list_gives_way_and_is_walked_once(world: World) -> None:
    for number in range(5000):
        world.put(f"h{number:04}:1", InstanceType.DECODE)

    async def ask() -> None:
        call = Call(SERVICE, b"GetStaticDecodeList", b"")
        answers = [world.service.answer(call) for _ in range(20)]
        turns = 0
        gathered = asyncio.gather(*(answer for answer in answers if not isinstance(answer, bytes)))
        while not gathered.done():
            turns += 1
            await asyncio.sleep(0)
        results = gathered.result()
        assert turns >= 5  # others had their turns
        assert len(results) == 20
        assert len({id(result) for result in results}) == 1  # one walk for all
        assert len(parse("InstanceIDs", results[0]).names) == 5000

    asyncio.run(ask())


def test_who_leaves_does_not_end_the_walk_of_others(world: World) -> None:
    for number in range(3000):
        world.put(f"h{number:04}:1", InstanceType.DECODE)

    async def ask() -> None:
        call = Call(SERVICE, b"GetStaticDecodeList", b"")
        coroutines = [world.service.answer(call) for _ in range(2)]
        leaves, stays = [asyncio.create_task(c) for c in coroutines if not isinstance(c, bytes)]
        await asyncio.sleep(0)
        leaves.cancel()
        assert len(parse("InstanceIDs", await stays).names) == 3000

    asyncio.run(ask())


def test_the_information_about_an_instance(world: World) -> None:
    world.put(
        A,
        InstanceType.MIX,
        dp_size=4,
        rpc_address="10.0.0.1:9000",
        register_ts_ms=2**64 - 1,
        cluster_ids=(1, 2**64 - 1),
        k_cache_ids=(-(2**63),),
        v_cache_ids=(2**63 - 1,),
        addrs=("10.0.0.1:1",),
        device_ips=("1.2.3.4", ""),
        ports=(5, 65535),
    )
    asked = message("InstanceID", name=A).SerializeToString()
    assert parse("InstanceMetaInfo", world.call("GetInstanceInfo", asked)) == message(
        "InstanceMetaInfo",
        name=A,
        type=3,
        dp_size=4,
        rpc_address="10.0.0.1:9000",
        incarnation_id="i1",
        register_ts_ms=2**64 - 1,
        cluster_ids=[1, 2**64 - 1],
        k_cache_ids=[-(2**63)],
        v_cache_ids=[2**63 - 1],
        addrs=["10.0.0.1:1"],
        device_ips=["1.2.3.4", ""],
        ports=[5, 65535],
    )


def test_the_information_about_a_suspect_and_without_a_time(world: World) -> None:
    world.put(A, InstanceType.DECODE)
    world.suspend(A)
    asked = message("InstanceID", name=A).SerializeToString()
    info = parse("InstanceMetaInfo", world.call("GetInstanceInfo", asked))
    assert (info.name, info.type, info.dp_size, info.register_ts_ms) == (A, 2, 1, 0)


def test_nothing_is_known_of_strangers(world: World) -> None:
    asked = message("InstanceID", name=A).SerializeToString()
    assert world.call("GetInstanceInfo", asked) == b""


# --- what is refused -----------------------------------------------------------------------------


@pytest.mark.parametrize("service", [b"", b"Xllm", b"proto.XllmRpcService", SERVICE + b"\n\xff"])
def test_unknown_services(world: World, service: bytes) -> None:
    refused = world.refusal("Hello", service=service)
    assert refused.code is ErrorCode.NO_SERVICE
    assert str(refused).startswith("there is no such service: ")
    assert str(refused).isascii()
    assert str(refused).isprintable()


@pytest.mark.parametrize("method", ["", "hello", "Generations", "RegisterInstance", "x" * 5000])
def test_unknown_methods(world: World, method: str) -> None:
    refused = world.refusal(method, b"\xff")
    assert refused.code is ErrorCode.NO_METHOD
    assert str(refused).startswith("there is no such method: ")
    assert len(str(refused)) < 250


@pytest.mark.parametrize("method", ["Hello", "Heartbeat", "GetInstanceInfo"])
@pytest.mark.parametrize("body", [b"\xff", b"\x0a\x05abc", b"\x07"])
def test_messages_that_are_none(world: World, method: str, body: bytes) -> None:
    refused = world.refusal(method, body)
    assert refused.code is ErrorCode.BAD_REQUEST
    assert str(refused).startswith("the message is no ")


def test_a_name_that_is_no_text(world: World) -> None:
    assert world.refusal("Heartbeat", b"\x0a\x01\xff").code is ErrorCode.BAD_REQUEST


def read(data: bytes) -> Call:
    size = struct.unpack(">I", data[8:12])[0]
    frame = Frame(data[12 : 12 + size], data[12 + size :])
    return read_call(read_meta(frame), frame.payload)


def test_an_attachment_is_left_out() -> None:
    assert read(request(1, b"Hello", b"body", attachment=b"more")).message == b"body"


@pytest.mark.parametrize(
    ("meta", "reason"),
    [
        ({"compress_type": 1}, "compression is not supported: 1"),
        ({"compress_type": -1}, "compression is not supported: -1"),
        ({"authentication_data": b"x"}, "authentication is not supported"),
        ({"chunk_info": message("Empty")}, "chunks are not supported"),
        ({"stream_settings": message("Empty")}, "streams are not supported"),
        ({"attachment_size": 5}, "the attachment exceeds what was sent: 5"),
        ({"attachment_size": -1}, "the attachment exceeds what was sent: -1"),
        ({"attachment_size": 2**31 - 1}, "the attachment exceeds what was sent: 2147483647"),
    ],
)
def test_calls_that_are_not_supported(meta: dict[str, Any], reason: str) -> None:
    with pytest.raises(CallError, match=reason) as caught:
        read(request(1, b"Hello", b"body", **meta))
    assert caught.value.code is ErrorCode.BAD_REQUEST


def test_a_meta_without_a_request() -> None:
    with pytest.raises(CallError, match="the meta has no request"):
        read_call(read_meta(Frame(b"", b"")), b"")


@given(st.binary(max_size=100))
def test_whatever_the_meta(meta: bytes) -> None:
    try:
        call = read_call(read_meta(Frame(meta, b"payload")), b"payload")
    except (FramingError, CallError):
        return
    assert b"payload".startswith(call.message)


@given(
    st.sampled_from(["Hello", "Heartbeat", "GetInstanceInfo", "GetStaticDecodeList"]),
    st.binary(max_size=100),
)
def test_whatever_the_message(method: str, body: bytes) -> None:
    world = World()
    world.put(A, InstanceType.DEFAULT)
    try:
        world.call(method, body)
    except CallError as refused:
        assert refused.code is ErrorCode.BAD_REQUEST  # noqa: PT017
