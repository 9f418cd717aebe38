"""`Matches` as arrays: what a router reads without an object a stream."""

from __future__ import annotations

import threading

import kvcache
import numpy as np
import pytest

NO_SEQUENCE = 2**64 - 1


@pytest.fixture
def index() -> kvcache.PrefixIndex:
    filled = kvcache.PrefixIndex(block_size=2)
    filled.store("b", [1, 2], [1, 2, 3, 4])
    filled.store(("a", 1), [1], [1, 2])
    filled.store(("a", 0), [1, 2], [1, 2, 3, 4])
    filled.store(("a", 0), [2], tier="cpu")
    filled.remove(("a", 0), [2])
    return filled


TOKENS = ["device_hit_tokens", "host_only_hit_tokens", "reusable_prefix_tokens"]


@pytest.mark.parametrize("name", TOKENS)
def test_arrays_say_what_the_objects_say(index: kvcache.PrefixIndex, name: str) -> None:
    for prompt in ([1, 2, 3, 4], [1, 2], [9, 9], []):
        matches = index.query(prompt)
        view: memoryview[int] = getattr(matches, name)
        assert view.tolist() == [getattr(match, name) for match in matches]
        assert (view.format, view.shape, view.readonly) == ("q", (3,), True)
        array = np.asarray(view)
        assert array.dtype == np.int64
        assert np.shares_memory(array, np.asarray(view))


def test_sequences_and_who_is_synchronized(index: kvcache.PrefixIndex) -> None:
    matches = index.query([1, 2])
    assert np.asarray(matches.synchronized).dtype == np.bool_
    assert matches.synchronized.tolist() == [True] * 3 == [match.synchronized for match in matches]
    assert np.asarray(matches.sequences).dtype == np.uint64
    assert [match.sequence for match in matches] == [None] * 3
    assert matches.sequences.tolist() == [NO_SEQUENCE] * 3


def test_an_index_without_streams() -> None:
    matches = kvcache.PrefixIndex().query([1])
    assert matches.streams == ()
    for name in (*TOKENS, "synchronized", "sequences"):
        assert np.asarray(getattr(matches, name)).shape == (0,)


def test_streams_are_one_object_while_they_are_the_same(index: kvcache.PrefixIndex) -> None:
    first = index.query([1, 2])
    assert first.streams == (("a", 0), ("a", 1), ("b", 0))
    assert index.query([3]).streams is first.streams
    index.store("b", [3], [5, 6], parent=2)
    index.clear("b")
    assert index.query([1, 2]).streams is first.streams
    index.store("c", [1], [1, 2])
    later = index.query([1, 2])
    assert later.streams == (("a", 0), ("a", 1), ("b", 0), ("c", 0))
    # An answer keeps its own.
    assert first.streams == (("a", 0), ("a", 1), ("b", 0))
    index.discard_stream("c")
    assert index.query([1, 2]).streams == first.streams


def test_streams_of_answers_beside_changes() -> None:
    index = kvcache.PrefixIndex(block_size=1)
    index.store("a", [1], [1])
    stop = threading.Event()

    def change() -> None:
        while not stop.is_set():
            index.store("b", [1], [1])
            index.discard_stream("b")

    writer = threading.Thread(target=change)
    writer.start()
    try:
        for _ in range(5000):
            matches = index.query([1])
            names = [(match.instance_name, match.dp_rank) for match in matches]
            assert list(matches.streams) == names
            assert len(matches.device_hit_tokens) == len(names)
    finally:
        stop.set()
        writer.join()
