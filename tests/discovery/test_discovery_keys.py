"""What etcd's keys mean (spec: keys; cases 20 and 27)."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kvcache.discovery.keys import KeyKind, Namespace, ParsedKey, registration_key
from kvcache.discovery.refused import RefusedError
from kvcache.registry.model import InstanceType

# A busy machine is no fault of an example; a failing one prints what reproduces it.
PATIENT = settings(deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow])

PLAIN = Namespace()


@pytest.mark.parametrize("text", ["", "/", "///"])
def test_a_namespace_of_slashes_is_none(text: str) -> None:
    assert Namespace(text).load_key("h:1") == b"XLLM:LOADMETRICS:h:1"


@pytest.mark.parametrize("text", ["prod", "/prod", "prod/", "//prod//"])
def test_slashes_around_a_namespace_do_not_matter(text: str) -> None:
    assert Namespace(text).load_key("h:1") == b"/prod/XLLM:LOADMETRICS:h:1"
    assert Namespace(text).name == "prod"


def test_slashes_within_a_namespace_stay() -> None:
    assert Namespace("a//b").master_key == b"/a//b/XLLM:SERVICE:MASTER"


def test_a_namespace_must_be_unicode() -> None:
    with pytest.raises(ValueError, match=r"^the namespace must be Unicode: a\\udcff$"):
        Namespace("a\udcff")


def test_key_names() -> None:
    assert registration_key(InstanceType.MIX, "h:1") == "XLLM:MIX:h:1"
    assert PLAIN.registration_key(InstanceType.DEFAULT, "h:1") == b"XLLM:DEFAULT:h:1"
    assert PLAIN.service_key("s:1") == b"XLLM:SERVICE:s:1"
    assert PLAIN.master_key == b"XLLM:SERVICE:MASTER"


@pytest.mark.parametrize("namespace", ["", "prod"])
def test_the_watched_range_holds_all_keys_and_not_the_retired_ones(namespace: str) -> None:
    keys = Namespace(namespace)
    first, end = keys.watched_range
    for key in (
        *(keys.registration_key(kind, "h:1") for kind in InstanceType),
        keys.load_key("h:1"),
        keys.service_key("h:1"),
        keys.master_key,
    ):
        assert first <= key < end
    prefix = b"/prod/" if namespace else b""
    for outside in (b"XLLM:CACHE:h:1", b"XLLM:", b"A", b"Z", b"XLLM:T"):
        assert not first <= prefix + outside < end


NAMES = ["h:1", "10.0.0.1:8000", "[fd00::1]:8080", "[fe80::1%25eth0]:8080", "my_host.svc.:80"]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("namespace", ["", "a/b"])
def test_keys_are_read_as_they_are_written(name: str, namespace: str) -> None:
    keys = Namespace(namespace)
    for kind in InstanceType:
        assert keys.parse(keys.registration_key(kind, name)) == ParsedKey(
            registration_key(kind, name), KeyKind.REGISTRATION, name, kind
        )
    load = ParsedKey(f"XLLM:LOADMETRICS:{name}", KeyKind.LOAD, name)
    assert keys.parse(keys.load_key(name)) == load
    service = ParsedKey(f"XLLM:SERVICE:{name}", KeyKind.SERVICE, name)
    assert keys.parse(keys.service_key(name)) == service
    master = ParsedKey("XLLM:SERVICE:MASTER", KeyKind.MASTER, "")
    assert keys.parse(keys.master_key) == master


@pytest.mark.parametrize(
    ("key", "reason"),
    [
        (b"", "the key has an unknown form: "),
        (b"XLLM", "the key has an unknown form: XLLM"),
        (b"XLLM:DEFAULT", "the key has an unknown form: XLLM:DEFAULT"),
        (b"XLLM:DEFAULT:", "the key has an unknown form: XLLM:DEFAULT:"),
        (b"YLLM:DEFAULT:h:1", "the key has an unknown form: YLLM:DEFAULT:h:1"),
        (b"XLLM:ENCODE:h:1", "the key has an unknown type: XLLM:ENCODE:h:1"),
        (b"XLLM:default:h:1", "the key has an unknown type: XLLM:default:h:1"),
        (b"XLLM:DEFAULT:h\xff:1", "the key is not UTF-8: XLLM:DEFAULT:h\\\\xff:1"),
        (b"XLLM:DEFAULT:h", "the name is not host:port, an endpoint must name a port: h"),
        (b"XLLM:MIX:h:0", "the name is not host:port, the port must be 1 to 65535: h:0"),
        (
            b"XLLM:DEFAULT:fd00::1:8080",
            "the name is not host:port, an IPv6 address must be in brackets: fd00::1:8080",
        ),
        (
            b"XLLM:LOADMETRICS:*:1",
            "the name is not host:port, an endpoint to connect to must not have a wildcard host: *:1",
        ),
        (
            b"XLLM:PREFILL:[::]:1",
            "the name is not host:port, an endpoint to connect to must not have a wildcard host: [::]:1",
        ),
        (
            b"XLLM:DEFAULT:a\nb:1",
            "the name is not host:port, the host is neither a name nor an address: a\\nb:1",
        ),
    ],
)
def test_keys_that_mean_nothing(key: bytes, reason: str) -> None:
    with pytest.raises(RefusedError) as refused:
        PLAIN.parse(key)
    assert str(refused.value) == reason


def test_keys_of_another_namespace_are_not_ours() -> None:
    with pytest.raises(RefusedError, match="outside the namespace"):
        Namespace("prod").parse(b"XLLM:DEFAULT:h:1")
    with pytest.raises(RefusedError, match="outside the namespace"):
        Namespace("prod").parse(b"/production/XLLM:DEFAULT:h:1")
    with pytest.raises(RefusedError, match="unknown form"):
        PLAIN.parse(b"/prod/XLLM:DEFAULT:h:1")


@PATIENT
@given(
    st.binary()
    | st.binary().map(b"XLLM:DEFAULT:".__add__)
    | st.text().map(lambda text: f"XLLM:MIX:{text}".encode("utf-8", "surrogatepass"))
)
def test_whatever_the_key_it_is_read_or_refused(key: bytes) -> None:
    try:
        told = PLAIN.parse(key).text.encode()
    except RefusedError as refused:
        told = key if str(refused).isprintable() and len(str(refused)) < 300 else b""
    assert told == key


def test_a_long_key_makes_a_short_message() -> None:
    with pytest.raises(RefusedError) as refused:
        PLAIN.parse(b"XLLM:DEFAULT:" + b"h" * 1_000_000)
    assert len(str(refused.value)) < 300
