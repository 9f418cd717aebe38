"""What an endpoint is: one table for the configuration and the core (spec: configuration)."""

from __future__ import annotations

import json
import os
import random
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from kvcache import _core
from kvcache.endpoint import parse_endpoint

if TYPE_CHECKING:
    from collections.abc import Callable

GOLDEN = json.loads((Path(__file__).parent / "golden" / "endpoints.json").read_text("utf-8"))
ACCEPTED: list[tuple[str, str]] = [(text, spelling) for text, spelling in GOLDEN["accepted"]]
REFUSED: list[str] = GOLDEN["refused"]


def spec(endpoint: str) -> _core.StreamSpec:
    return _core.StreamSpec(
        instance_name="e", endpoint=endpoint, replay_endpoint="tcp://127.0.0.1:1"
    )


def core_spelling(endpoint: str) -> str:
    """As a directory of the core reports it; it has no time to connect."""
    with _core.Directory([spec(endpoint)]) as directory:
        return directory.streams()[0]["endpoint"]


def accepts(parse: Callable[[str], object], text: str) -> bool:
    try:
        parse(text)
    except ValueError:
        return False
    return True


@pytest.mark.parametrize(("text", "spelling"), ACCEPTED)
def test_accepted_endpoints_have_one_spelling(text: str, spelling: str) -> None:
    assert str(parse_endpoint(text)) == spelling
    assert parse_endpoint(spelling) == parse_endpoint(text)
    assert core_spelling(text) == spelling


@pytest.mark.parametrize("text", REFUSED)
def test_refused_endpoints(text: str) -> None:
    assert not accepts(parse_endpoint, text)
    assert not accepts(spec, text)


def test_resolvers_want_zones_bare() -> None:
    assert parse_endpoint("tcp://[fe80::1%25eth0]:1").host == "fe80::1%eth0"
    assert parse_endpoint("tcp://[fe80::1%25253]:1").host == "fe80::1%253"


def test_one_socket_has_one_identity() -> None:
    bare, escaped, other = (
        parse_endpoint(f"tcp://[fe80::1%{zone}]:1").identity for zone in ("2", "252", "3")
    )
    assert bare == escaped != other
    mapped = parse_endpoint("tcp://[::ffff:10.0.0.1]:1").identity
    assert mapped == parse_endpoint("tcp://10.0.0.1:1").identity


def test_mutated_endpoints_are_judged_alike() -> None:
    seed = int(os.environ.get("KVCACHE_SEED") or random.SystemRandom().randrange(2**32))
    print(f"KVCACHE_SEED={seed}")
    rng = random.Random(seed)
    texts = [text for text, _ in ACCEPTED] + REFUSED
    marks = "0125afx:.[]%-_*@/ \u212a\u0661"
    for _ in range(20_000):
        chars = list(rng.choice(texts))
        for _ in range(rng.randrange(1, 4)):
            at = rng.randrange(len(chars) + 1)
            chars[at : at + rng.randrange(2)] = rng.choice(["", *marks])
        text = "".join(chars)
        assert accepts(parse_endpoint, text) == accepts(spec, text), ascii(text)
