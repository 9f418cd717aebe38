"""What etcd's values mean, and which are refused (spec: values; issue: bad input; case 32)."""

from __future__ import annotations

import json
import math
import time
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kvcache.discovery.keys import Namespace, ParsedKey
from kvcache.discovery.refused import RefusedError
from kvcache.discovery.values import (
    MAX_DP_SIZE,
    MAX_VALUE_BYTES,
    decode_load,
    decode_registration,
    encode_load,
)
from kvcache.registry.model import InstanceType, Load, Registration

if TYPE_CHECKING:
    from collections.abc import Callable

# A busy machine is no fault of an example; a failing one prints what reproduces it.
PATIENT = settings(deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow])

NAME = "10.0.0.1:8000"


def key(kind: InstanceType = InstanceType.DEFAULT, name: str = NAME) -> ParsedKey:
    return Namespace().parse(Namespace().registration_key(kind, name))


def fields(**changes: Any) -> dict[str, Any]:
    return {"name": NAME, "type": 0, "incarnation_id": "i1"} | changes


def without(field: str) -> dict[str, Any]:
    return {name: value for name, value in fields().items() if name != field}


def decode(obj: Any, kind: InstanceType = InstanceType.DEFAULT) -> Registration:
    value = obj if isinstance(obj, bytes) else json.dumps(obj).encode()
    return decode_registration(value, key(kind))


def refusal(obj: Any, kind: InstanceType = InstanceType.DEFAULT) -> str:
    with pytest.raises(RefusedError) as refused:
        decode(obj, kind)
    reason = str(refused.value)
    assert reason[0].islower()
    assert reason.isprintable()
    assert len(reason) < 300
    return reason


# --- registrations -------------------------------------------------------------------------------


def test_a_whole_registration() -> None:
    value = fields(
        type=3,
        dp_size=2,
        register_ts_ms=2**64 - 1,
        rpc_address="10.0.0.1:9000",
        addrs=["10.0.0.1:1"],
        cluster_ids=[1],
        k_cache_ids=[2],
        v_cache_ids=[3],
        device_ips=["1.2.3.4"],
        ports=[5],
        ttft_profiling_data=[[128, 10], [256.0, 21.5]],
        tpot_profiling_data=[[128, 4, 9.5]],
        something_new={"deep": [None]},
    )
    assert decode(value, InstanceType.MIX) == Registration(
        name=NAME,
        type=InstanceType.MIX,
        dp_size=2,
        incarnation_id="i1",
        register_ts_ms=2**64 - 1,
        rpc_address="10.0.0.1:9000",
        ttft_profiling_data=((128.0, 10.0), (256.0, 21.5)),
        tpot_profiling_data=((128.0, 4.0, 9.5),),
        cluster_ids=(1,),
        k_cache_ids=(2,),
        v_cache_ids=(3,),
        addrs=("10.0.0.1:1",),
        device_ips=("1.2.3.4",),
        ports=(5,),
    )


def test_what_may_be_absent() -> None:
    bare = Registration(NAME, InstanceType.DEFAULT)
    assert decode({"name": NAME, "type": 0}) == bare
    optional = dict.fromkeys(["incarnation_id", "register_ts_ms", "rpc_address", "dp_size"])
    assert decode({"name": NAME, "type": 0} | optional) == bare


@pytest.mark.parametrize("kind", InstanceType)
def test_every_type(kind: InstanceType) -> None:
    assert decode(fields(type=int(kind)), kind).type is kind


def test_a_byte_order_mark_does_not_matter() -> None:
    assert decode(b"\xef\xbb\xbf" + json.dumps(fields()).encode()) == decode(fields())


@pytest.mark.parametrize(
    "name", [None, "10.0.0.1:8001", "10.0.0.1:08000", "", 3, [NAME], "h" * 500]
)
def test_the_name_must_be_that_of_the_key(name: Any) -> None:
    assert refusal(fields(name=name)).startswith("the name disagrees with the key: ")
    assert refusal(without("name")) == "the name disagrees with the key: null"


@pytest.mark.parametrize("kind", [-1, 4, 10**30, 0.0, "0", None, True, [0], math.nan])
def test_unknown_types(kind: Any) -> None:
    assert refusal(fields(type=kind)).startswith("type must be an integer of 0 to 3: ")
    assert refusal(without("type")) == "type must be an integer of 0 to 3: null"


def test_the_type_must_be_that_of_the_key() -> None:
    reason = "the type disagrees with the key: DECODE"
    assert refusal(fields(type=2), InstanceType.PREFILL) == reason


@pytest.mark.parametrize("size", [1, 2, 128, MAX_DP_SIZE])
def test_numbers_of_ranks(size: int) -> None:
    assert decode(fields(dp_size=size)).dp_size == size


@pytest.mark.parametrize(
    "size", [0, -1, MAX_DP_SIZE + 1, 2**31, 10**400, 1.0, 1.5, "1", True, False, [1], {}, math.inf]
)
def test_absurd_numbers_of_ranks(size: Any) -> None:
    assert refusal(fields(dp_size=size)).startswith("dp_size must be an integer of 1 to 65535: ")


@pytest.mark.parametrize("incarnation_id", [5, True, [], {}, "x" * 1025, "\ud800"])
def test_malformed_incarnations(incarnation_id: Any) -> None:
    reason = refusal(fields(incarnation_id=incarnation_id))
    assert reason.startswith("incarnation_id must be a string of at most 1024 characters: ")


@pytest.mark.parametrize("time_ms", [-1, 2**64, 1.0, "1", True, [], math.nan])
def test_a_malformed_time_matters_only_where_it_identifies(time_ms: Any) -> None:
    assert decode(fields(register_ts_ms=time_ms)).register_ts_ms is None
    reason = refusal(fields(incarnation_id="", register_ts_ms=time_ms))
    assert reason.startswith("register_ts_ms must be an integer of 0 to 2^64-1: ")


@pytest.mark.parametrize(
    "data",
    [
        None, 5, "x", {}, [5], [[]], [[1]], [[1, 2, 3, 4]], [[1, None, 2]], [["1", 2, 3]],
        [[True, 1, 2]], [[1, 2, 3], [1]], [[1, 2, math.nan]], [[1, 2, math.inf]], [[1, 2, 10**400]],
    ],
)  # fmt: skip
def test_malformed_profiling_data_does_not_cost_the_instance(data: Any) -> None:
    value = fields(ttft_profiling_data=data, tpot_profiling_data=data, rpc_address=data)
    registration = decode(value)
    assert registration.ttft_profiling_data == registration.tpot_profiling_data == ()


NUMBERS = ("cluster_ids", "k_cache_ids", "v_cache_ids", "ports")
TEXTS = ("addrs", "device_ips")


@pytest.mark.parametrize(
    "data",
    [None, 5, "x", {}, [None], [1.0], [True], [1, "1"], ["a", 1], [[1]], [2**64], [-(2**63) - 1]],
)
def test_malformed_lists_that_are_passed_on_do_not_cost_the_instance(data: Any) -> None:
    registration = decode(fields(**dict.fromkeys((*NUMBERS, *TEXTS), data)))
    assert [getattr(registration, name) for name in (*NUMBERS, *TEXTS)] == [()] * 6


def test_the_range_of_each_list() -> None:
    registration = decode(
        fields(cluster_ids=[-1], k_cache_ids=[-(2**63)], v_cache_ids=[2**63 - 1], ports=[65536])
    )
    assert registration.cluster_ids == registration.ports == ()
    assert registration.k_cache_ids == (-(2**63),)
    assert registration.v_cache_ids == (2**63 - 1,)
    assert decode(fields(cluster_ids=[2**64 - 1])).cluster_ids == (2**64 - 1,)
    assert decode(fields(addrs=["a", "\ud800"])).addrs == ()


@pytest.mark.parametrize(
    "unknown", ["NaN", "9" * 5000, '{"a": {"a": 1, "a": 2}}', '"\\ud800"', "[[[]]]"], ids=len
)
def test_unknown_fields_do_not_matter(unknown: str) -> None:
    value = json.dumps(fields(new="HERE")).replace('"HERE"', unknown)
    assert decode(value.encode()) == decode(fields())


# --- what is no value at all ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (b"", "the value is not JSON, expecting value: character 0"),
        (b"{", "the value is not JSON, "),
        (b'{"a":1}}', "the value is not JSON, extra data: character 7"),
        (b"{'a':1}", "the value is not JSON, "),
        (b"\xff", "the value is not UTF-8, at byte: 0"),
        (b'{"a":1,"b":2,"a":1}', 'a field is given more than once: "a"'),
        (b"[]", "the value must be a JSON object: []"),
        (b"null", "the value must be a JSON object: null"),
        (b"NaN", "the value must be a JSON object: NaN"),
        (b'"x"', 'the value must be a JSON object: "x"'),
        (b"9" * 100_000, "the value must be a JSON object: Infinity"),
        (b"[" * 100_000, "the value is nested too deeply"),
        (b'{"a":' * 100_000, "the value is nested too deeply"),
        (b"[" * 100_000 + b"]" * 100_000, "the value is nested too deeply"),
        (b" " * (4 << 20), f"the value exceeds {MAX_VALUE_BYTES} bytes: 4194304"),
    ],
    ids=lambda value: repr(value[:12]),
)
def test_values_that_do_not_parse(value: bytes, reason: str) -> None:
    assert refusal(value).startswith(reason)
    with pytest.raises(RefusedError) as refused:
        decode_load(value)
    assert str(refused.value).startswith(reason)


def test_hostile_numbers_take_no_time() -> None:
    """A million digits read as an integer would take minutes, or be the interpreter's error."""
    digits = b"9" * (MAX_VALUE_BYTES - 200)
    started = time.process_time()
    for number in (digits, b"0." + digits, b"1e" + digits, b"-" + digits):
        value = json.dumps(fields(new="HERE")).encode().replace(b'"HERE"', number)
        assert decode(value) == decode(fields())
    assert time.process_time() - started < 5


# --- loads ---------------------------------------------------------------------------------------


def test_a_load() -> None:
    value = b'{"waiting_requests_num": 3, "gpu_cache_usage_perc": 0.25, "new": 1}'
    assert decode_load(value) == Load(3, 0.25)


@pytest.mark.parametrize(
    "value",
    [
        b"{}",
        b'{"waiting_requests_num": -1, "gpu_cache_usage_perc": 0.5}',
        b'{"waiting_requests_num": 1.5, "gpu_cache_usage_perc": 0.5}',
        b'{"waiting_requests_num": 18446744073709551616, "gpu_cache_usage_perc": 0.5}',
        b'{"waiting_requests_num": 1, "gpu_cache_usage_perc": NaN}',
        b'{"waiting_requests_num": 1, "gpu_cache_usage_perc": 1e999}',
        b'{"waiting_requests_num": 1, "gpu_cache_usage_perc": -Infinity}',
        b'{"waiting_requests_num": null, "gpu_cache_usage_perc": "0.5"}',
        b'{"waiting_requests_num": ' + b"9" * 5000 + b', "gpu_cache_usage_perc": 0.5}',
    ],
)
def test_an_illegal_load_is_read_as_illegal(value: bytes) -> None:
    assert not decode_load(value).legal


@pytest.mark.parametrize(
    ("load", "value"),
    [
        (Load(3, 0.25), b'{"waiting_requests_num":3,"gpu_cache_usage_perc":0.25}'),
        (
            Load(2**64 - 1, 0.0),
            b'{"waiting_requests_num":18446744073709551615,"gpu_cache_usage_perc":0.0}',
        ),
        (Load(None, 0.5, "bad"), b'{"waiting_requests_num":null,"gpu_cache_usage_perc":0.5}'),
    ],
)
def test_loads_are_written_as_they_are_read(load: Load, value: bytes) -> None:
    assert encode_load(load) == value
    again = decode_load(value)
    assert again.legal == load.legal
    assert again.waiting_requests_num == load.waiting_requests_num
    assert again.gpu_cache_usage_perc == load.gpu_cache_usage_perc


# --- whatever the bytes --------------------------------------------------------------------------

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters()),
    lambda values: st.lists(values) | st.dictionaries(st.text(), values),
    max_leaves=8,
)
NAMES = st.sampled_from([
    "name", "type", "dp_size", "incarnation_id", "register_ts_ms", "rpc_address",
    "ttft_profiling_data", "tpot_profiling_data", "waiting_requests_num", "gpu_cache_usage_perc",
    "cluster_ids", "k_cache_ids", "v_cache_ids", "addrs", "device_ips", "ports",
])  # fmt: skip
OBJECTS = st.dictionaries(NAMES, JSON).map(lambda obj: fields() | obj)


def attempt(decode: Callable[[], Any]) -> Any:
    """What was decoded; None when it was refused, with a message that fits a line."""
    message = ""
    try:
        return decode()
    except RefusedError as refused:
        message = str(refused)
    assert message.isprintable()
    assert 0 < len(message) < 300
    return None


def check(value: bytes) -> None:
    registration = attempt(lambda: decode_registration(value, key()))
    if registration is not None:
        assert registration.name == NAME
        assert type(registration.dp_size) is int
        assert 1 <= registration.dp_size <= MAX_DP_SIZE
        registration.identity.encode()
        registration.rpc_address.encode()
        hash(registration)
        rows = (*registration.ttft_profiling_data, *registration.tpot_profiling_data)
        assert all(math.isfinite(number) for row in rows for number in row)
    load = attempt(lambda: decode_load(value))
    if load is not None:
        assert decode_load(encode_load(load)).legal == load.legal


@PATIENT
@given(st.binary() | OBJECTS.map(lambda obj: json.dumps(obj).encode()))
def test_whatever_the_value_it_is_read_or_refused(value: bytes) -> None:
    check(value)


@PATIENT
@given(st.data())
def test_damaged_values_are_read_or_refused(data: Any) -> None:
    value = bytearray(json.dumps(fields(ttft_profiling_data=[[1, 2.5]], dp_size=2)).encode())
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(value)))
        value[at : at + data.draw(st.integers(0, 3))] = data.draw(
            st.binary(max_size=3) | st.sampled_from([b"{", b"[", b'"', b"\\u", b"e9", b"NaN", b"-"])
        )
    check(bytes(value))
