"""`PrefixIndex`, `block_keys` and the ways in."""

from __future__ import annotations

import array
import re
import threading
from typing import TYPE_CHECKING, Any

import kvcache
import numpy as np
import pytest
import xxhash

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kvcache.types import TokenIds


def one(index: kvcache.PrefixIndex, token_ids: TokenIds | kvcache.BlockKeys) -> tuple[int, int]:
    (match,) = index.query(token_ids)
    assert match.reusable_prefix_tokens == match.device_hit_tokens + match.host_only_hit_tokens
    return match.device_hit_tokens, match.host_only_hit_tokens


@pytest.fixture
def index() -> kvcache.PrefixIndex:
    filled = kvcache.PrefixIndex(block_size=2)
    filled.store("a", [1, 2], [1, 2, 3, 4])
    return filled


def test_store_remove_clear(index: kvcache.PrefixIndex) -> None:
    assert one(index, [1, 2, 3, 4, 5]) == (4, 0)
    index.store("a", [2], tier="cpu")
    index.remove("a", [2])
    assert one(index, [1, 2, 3, 4]) == (2, 2)
    index.store("a", [3], [5, 6], parent=2)
    assert one(index, [1, 2, 3, 4, 5, 6]) == (4, 2)
    index.clear("a")
    assert one(index, [1, 2, 3, 4]) == (0, 0)
    index.discard_stream("a")
    assert len(index.query([1])) == 0


def test_signed_and_unsigned_names_are_one(index: kvcache.PrefixIndex) -> None:
    index.store("a", [-1], [7, 8])
    index.store("a", [5], [9, 9], parent=2**64 - 1)
    index.remove("a", [2**64 - 1])
    assert one(index, [7, 8, 9, 9]) == (0, 0)
    index.store("a", [-1], [7, 8])
    assert one(index, [7, 8, 9, 9]) == (4, 0)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"block_hashes": [9], "token_ids": [1, 2], "parent": 77}, "unknown parent block: 77"),
        ({"block_hashes": [9]}, "tokenless store of an unknown block: 9"),
        ({"block_hashes": [1], "token_ids": [8, 8]}, "one wire hash with two contents: 1"),
        ({"block_hashes": [9, 1], "token_ids": [6, 6, 8, 8]}, "one wire hash with two contents: 1"),
        ({"block_hashes": [9], "token_ids": [1, 2, 3]}, "3 token ids for 1 blocks of 2"),
    ],
)
def test_a_store_that_fails_changes_nothing(
    index: kvcache.PrefixIndex, arguments: dict[str, list[int]], message: str
) -> None:
    with pytest.raises(kvcache.StoreError, match=message):
        index.store("a", **arguments)  # type: ignore[arg-type]
    (match,) = index.query([1, 2, 3, 4])
    assert (match.device_hit_tokens, match.device_blocks) == (4, 2)


REFUSED_FIRST_STORES: list[dict[str, Any]] = [
    {"block_hashes": [9], "token_ids": [1, 2], "parent": 77},
    {"block_hashes": [9]},
    {"block_hashes": [9, 9], "token_ids": [1, 2, 3, 4]},
    {"block_hashes": [9], "token_ids": [1, 2, 3]},
    {"block_hashes": [9, 10, 11, 12], "token_ids": list(range(8))},  # over max_blocks_per_stream
]


@pytest.mark.parametrize("arguments", REFUSED_FIRST_STORES)
def test_a_first_store_that_fails_adds_no_stream(arguments: dict[str, Any]) -> None:
    index = kvcache.PrefixIndex(block_size=2, max_blocks_per_stream=3)
    for _ in range(300):  # more often than an index has streams: no place is lost either
        with pytest.raises(kvcache.StoreError):
            index.store("b", **arguments)
    assert len(index.query([1, 2])) == 0
    index.store("b", [1, 2], [1, 2, 3, 4])
    assert one(index, [1, 2, 3, 4]) == (4, 0)


def test_no_query_beside_it_sees_a_first_store_that_fails() -> None:
    index = kvcache.PrefixIndex(block_size=1)
    stop = threading.Event()

    def fail() -> None:
        while not stop.is_set():
            with pytest.raises(kvcache.StoreError):
                index.store("b", [1], [1], parent=77)

    writer = threading.Thread(target=fail)
    writer.start()
    try:
        assert {len(index.query([1])) for _ in range(20_000)} == {0}
    finally:
        stop.set()
        writer.join()


def test_streams_are_names_or_pairs() -> None:
    index = kvcache.PrefixIndex(block_size=1)
    for stream in ("b", ("a", 1), ("a", 0)):
        index.store(stream, [1], [1])
    assert [(match.instance_name, match.dp_rank) for match in index.query([1])] == [
        ("a", 0),
        ("a", 1),
        ("b", 0),
    ]
    with pytest.raises(TypeError, match="a stream is a name"):
        index.store(7, [1], [1])  # type: ignore[arg-type]


WAYS_IN: list[Callable[[list[int]], TokenIds]] = [
    list,
    tuple,
    lambda ids: np.array(ids, dtype=np.uint32),
    lambda ids: np.array(ids, dtype=np.int32),
    lambda ids: np.array(ids, dtype=np.int64),
    lambda ids: np.array(ids, dtype=np.uint64),
    lambda ids: np.repeat(np.array(ids, dtype=np.uint32), 2)[::2],
    lambda ids: np.repeat(np.array(ids, dtype=np.int32), 2)[::2],
    lambda ids: array.array("I", ids),
    lambda ids: array.array("l", ids),
    lambda ids: np.array(ids, dtype="<u4").tobytes(),
    lambda ids: bytearray(np.array(ids, dtype="<u4").tobytes()),
    lambda ids: memoryview(np.array(ids, dtype=np.uint32)),
    lambda ids: memoryview(np.array(ids, dtype="<u4").tobytes()),
    lambda ids: memoryview(b"x" + np.array(ids, dtype="<u4").tobytes())[1:],  # not aligned
    lambda ids: memoryview(np.array(ids, dtype="<u8").tobytes()).cast("Q"),
    lambda ids: np.repeat(np.array(ids, dtype=np.int64), 2)[::2],
    lambda ids: [*ids[:1], *(np.uint32(token) for token in ids[1:])],
    lambda ids: tuple(np.uint64(token) for token in ids),
    lambda ids: np.repeat(np.array(ids, dtype=np.uint64), 2)[::2],
    lambda ids: [np.int64(token) for token in ids],
]


@pytest.mark.parametrize("way", WAYS_IN)
def test_every_way_in(index: kvcache.PrefixIndex, way: Callable[[list[int]], TokenIds]) -> None:
    assert one(index, way([1, 2, 3, 4])) == (4, 0)
    assert one(index, way([1, 2, 3, 5])) == (2, 0)
    assert one(index, way([])) == (0, 0)


@pytest.mark.parametrize(
    "bad",
    [
        [-1],
        [2**32],
        [1.0],
        ["1"],
        [True],
        [None],
        [[1, 2]],
        "12",
        b"123",
        np.array([1.0, 2.0]),
        np.array([-1, 2], dtype=np.int32),
        np.array([1, -2], dtype=np.int64),
        np.array([2**32], dtype=np.uint64),
        np.array([[1, 2], [3, 4]], dtype=np.uint32),
        np.array([1, 2], dtype=np.uint8),
        np.array([1, 2], dtype=">u4"),
        np.array([True]),
        7,
        None,
        {"token_ids": [1]},
    ],
    ids=repr,
)
def test_what_is_not_token_ids_is_refused(index: kvcache.PrefixIndex, bad: object) -> None:
    with pytest.raises(kvcache.TokenIdsError):
        index.query(bad)  # type: ignore[arg-type]


def test_the_bad_entry_is_named(index: kvcache.PrefixIndex) -> None:
    with pytest.raises(kvcache.TokenIdsError, match=r"token_ids\[2\] .*: 4294967297"):
        index.query([1, 2, 4294967297])
    for bad in ([1, -5], (1, -5), [1, -(2**70)], [1, 2**70], (np.int32(1), True)):
        value = re.escape(repr(bad[1]))
        with pytest.raises(kvcache.TokenIdsError, match=rf"token_ids\[1\] .*: {value}"):
            index.query(bad)
    for dtype in (np.int32, np.int64):
        for step in (1, 2):
            ids = np.full(200, 7, dtype=dtype)
            ids[100] = -5
            with pytest.raises(kvcache.TokenIdsError, match=rf"token_ids\[{100 // step}\] .*: -5"):
                index.query(ids[::step])
    for at in (0, 1, 15, 16, 98, 99):
        ids = np.full(100, 2**32 - 1, dtype=np.uint64)
        ids[at] = 2**64 - 1
        with pytest.raises(kvcache.TokenIdsError, match=rf"token_ids\[{at}\] .*: {2**64 - 1}"):
            index.query(ids)
    wide = np.array([0, 2**32 - 1, 2**32], dtype=np.uint64)
    assert len(index.query(wide[:2])) == 1
    with pytest.raises(kvcache.TokenIdsError, match=r"token_ids\[2\] .*: 4294967296"):
        index.query(wide)


def test_long_prompts_of_every_way_are_one(index: kvcache.PrefixIndex) -> None:
    ids = list(range(7, 40_009))
    expected = kvcache.block_keys(ids, 2).content_keys
    for way in WAYS_IN:
        assert kvcache.block_keys(way(ids), 2).content_keys == expected
        assert one(index, way([1, 2, *ids])) == (2, 0)


def test_what_is_read_in_place_is_given_back(index: kvcache.PrefixIndex) -> None:
    data = bytearray(np.arange(64, dtype="<u4").tobytes())
    index.query(data)
    data.extend(b"1234")  # refused for as long as somebody holds the buffer
    data.extend(b"5")
    with pytest.raises(kvcache.TokenIdsError, match="fours, not: 261"):
        index.query(data)
    data.clear()


def test_an_iterator_that_fails_is_no_short_prompt(index: kvcache.PrefixIndex) -> None:
    def broken() -> object:
        yield 1
        raise RuntimeError("torn")

    with pytest.raises(RuntimeError, match="torn"):
        index.query(broken())  # type: ignore[arg-type]


def test_keys_are_as_specified() -> None:
    token_ids = np.arange(10, dtype=np.uint32)
    keys = kvcache.block_keys(token_ids, block_size=4, hash_seed=1024)
    parent = bytes(16)
    blocks, contents = b"", b""
    for start in (0, 4):
        block = xxhash.xxh3_128_intdigest(token_ids[start : start + 4].tobytes(), 1024).to_bytes(
            16, "little"
        )
        parent = xxhash.xxh3_128_intdigest(parent + block, 1024).to_bytes(16, "little")
        blocks, contents = blocks + block, contents + parent
    assert (len(keys), keys.block_hashes, keys.content_keys) == (2, blocks, contents)


def test_hash_once_query_many(index: kvcache.PrefixIndex) -> None:
    assert one(index, kvcache.block_keys([1, 2, 3, 4, 5], block_size=2)) == (4, 0)
    with pytest.raises(ValueError, match="block"):
        index.query(kvcache.block_keys([1, 2, 3, 4], block_size=4))
    with pytest.raises(ValueError, match="block"):
        index.query(kvcache.block_keys([1, 2], block_size=2, hash_seed=7))
    with pytest.raises(ValueError, match="at least 1"):
        kvcache.block_keys([1], block_size=0)


def test_matches_are_a_sequence(index: kvcache.PrefixIndex) -> None:
    index.store("b", [1], [1, 2])
    matches = index.query([1, 2])
    assert len(matches) == 2
    assert [match.instance_name for match in matches] == ["a", "b"]
    assert [match.instance_name for match in matches[::-1]] == ["b", "a"]
    assert matches[-1].instance_name == "b"
    for wrong in (2, -3):
        with pytest.raises(IndexError):
            matches[wrong]
    assert repr(matches[0]).startswith('Match(instance_name="a"')


def test_queries_beside_writers_see_whole_prefixes() -> None:
    index = kvcache.PrefixIndex(block_size=1)
    prompt = list(range(64))
    index.store("stable", prompt, prompt)
    stop = threading.Event()

    def write() -> None:
        while not stop.is_set():
            index.store("moving", prompt, prompt)
            index.remove("moving", prompt[::-1])

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for _ in range(3000):
            for match in index.query(prompt):
                if match.instance_name == "stable":
                    assert match.device_hit_tokens == 64
                else:
                    assert 0 <= match.device_hit_tokens <= 64
    finally:
        stop.set()
        writer.join()


def test_a_length_that_lies_allocates_nothing(index: kvcache.PrefixIndex) -> None:
    class Liar:
        def __len__(self) -> int:
            return 2**62

        def __iter__(self) -> Iterator[int]:
            return iter([1, 2])

    assert one(index, Liar()) == (2, 0)  # type: ignore[arg-type]
