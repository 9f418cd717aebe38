"""Bodies that are JSON in another dress: refused by the name of what they wear."""

from __future__ import annotations

import gzip
import json
import zlib
from typing import TYPE_CHECKING, Any

import kvcache
import pytest
from kvcache.server.settings import ServerSettings
from kvcache.service import Service
from serving import App

if TYPE_CHECKING:
    from collections.abc import Iterator

RIGHT = "send JSON as UTF-8 without a byte order mark, not compressed"
QUERY = "/v1/internal/kv-cache/query"
BODIES: dict[str, dict[str, Any]] = {
    QUERY: {"token_ids": [1, 2]},
    "/v1/internal/route": {"token_ids": [1, 2]},
    "/v1/internal/requests": {"request_id": "r", "event": "finish"},
    "/v1/internal/heartbeat": {"name": "e:1"},
}
DRESSES = {
    "gzip": lambda text: gzip.compress(text.encode()),
    "deflate": lambda text: zlib.compress(text.encode()),
    "zstd": lambda text: b"\x28\xb5\x2f\xfd" + text.encode(),
    "UTF-8 with a byte order mark": lambda text: text.encode("utf-8-sig"),
    "UTF-16, little-endian": lambda text: text.encode("utf-16-le"),
    "UTF-16, big-endian": lambda text: text.encode("utf-16-be"),
    "UTF-16, little-endian, with a byte order mark": lambda text: (
        b"\xff\xfe" + text.encode("utf-16-le")
    ),
    "UTF-16, big-endian, with a byte order mark": lambda text: (
        b"\xfe\xff" + text.encode("utf-16-be")
    ),
    "UTF-32, little-endian": lambda text: text.encode("utf-32-le"),
    "UTF-32, big-endian": lambda text: text.encode("utf-32-be"),
    "UTF-32, little-endian, with a byte order mark": lambda text: (
        b"\xff\xfe\0\0" + text.encode("utf-32-le")
    ),
    "UTF-32, big-endian, with a byte order mark": lambda text: (
        b"\0\0\xfe\xff" + text.encode("utf-32-be")
    ),
}


@pytest.fixture(scope="module")
def directory() -> Iterator[kvcache.Directory]:
    config = kvcache.KvEventsConfig.from_dict({"discovery": {"enabled": True}})
    with kvcache.Directory(config) as one:
        yield one


@pytest.fixture(scope="module")
def app(directory: kvcache.Directory) -> App:
    return App(Service(directory), ServerSettings())


@pytest.mark.parametrize("path", BODIES)
@pytest.mark.parametrize("dress", DRESSES)
@pytest.mark.parametrize("space", ["", " \n"])
def test_a_body_in_another_dress_is_refused_by_its_name(
    app: App, path: str, dress: str, space: str
) -> None:
    body = DRESSES[dress](space + json.dumps(BODIES[path]))
    answer = app.ask("POST", path, content=body)
    assert (answer.status_code, answer.json()["code"]) == (400, "invalid_json")
    assert answer.json()["error"] == f"the body is {dress}: {RIGHT}"


@pytest.mark.parametrize("dress", DRESSES)
def test_an_embedded_query_says_so_too(directory: kvcache.Directory, dress: str) -> None:
    with pytest.raises(kvcache.RequestError, match=f"the body is {dress}: ") as caught:
        directory.query_json(DRESSES[dress]('{"token_ids":[1]}'))
    assert caught.value.code == "invalid_json"


@pytest.mark.parametrize("path", BODIES)
@pytest.mark.parametrize("named", ["gzip", "GZIP", "br", "identity, gzip", "x" * 1000])
def test_a_content_encoding_is_refused_by_its_name(app: App, path: str, named: str) -> None:
    """Also where the body is what it should be: the next one would not be."""
    headers = {"Content-Encoding": named}
    for body in (json.dumps(BODIES[path]).encode(), gzip.compress(b"{}")):
        answer = app.ask("POST", path, content=body, headers=headers)
        assert (answer.status_code, answer.json()["code"]) == (400, "invalid_json")
        shown = named if len(named) < 40 else "x" * 40
        expected = f"the content encoding is not supported: {shown}; {RIGHT}"
        assert answer.json()["error"] == expected


@pytest.mark.parametrize("named", ["", "identity", "Identity", "identity, identity"])
def test_no_encoding_may_be_named(app: App, named: str) -> None:
    headers = {"Content-Encoding": named}
    answer = app.ask("POST", QUERY, content=b'{"token_ids":[1]}', headers=headers)
    assert answer.status_code == 200


@pytest.mark.parametrize("path", BODIES)
@pytest.mark.parametrize("body", [b"", b"\xff", b"\x1f", b"\0", b"{", b"x^", b"\xe9\0"])
def test_what_is_nothing_known_is_no_json(app: App, path: str, body: bytes) -> None:
    answer = app.ask("POST", path, content=body)
    assert answer.status_code == 400
    assert answer.json()["code"] in {"invalid_json", "not_an_object"}
