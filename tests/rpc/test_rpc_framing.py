"""Frames of the protocol, however they are cut, and what is no frame."""

from __future__ import annotations

import pytest
import recorded_frames
from hypothesis import given
from hypothesis import strategies as st
from kvcache.rpc.errors import FramingError
from kvcache.rpc.framing import (
    HEADER_BYTES,
    MAX_BODY_BYTES,
    MAX_META_BYTES,
    READ_AHEAD_BYTES,
    Frame,
    FrameReader,
    encode_frame,
)

RECORDED = [recorded_frames.HELLO, recorded_frames.HEARTBEAT, recorded_frames.GENERATIONS]
BOUND = HEADER_BYTES + MAX_BODY_BYTES


def header(body: int, meta: int) -> bytes:
    return b"PRPC" + body.to_bytes(4, "big") + meta.to_bytes(4, "big")


def taken(reader: FrameReader) -> list[Frame]:
    frames = []
    while (frame := reader.next_frame()) is not None:
        frames.append(frame)
    return frames


def failure(reader: FrameReader, data: bytes) -> str:
    reader.feed(data)
    with pytest.raises(FramingError) as caught:
        taken(reader)
    assert reader.buffered_bytes == 0
    for again in (reader.next_frame, lambda: reader.feed(b"PRPC")):
        with pytest.raises(FramingError, match=str(caught.value)[:20]):
            again()
    assert reader.buffered_bytes == 0
    return str(caught.value)


def test_recorded_frames() -> None:
    reader = FrameReader()
    reader.feed(b"".join(RECORDED))
    frames = taken(reader)
    assert [len(frame.meta) for frame in frames] == [50, 52, 52]
    assert [len(frame.payload) for frame in frames] == [0, 48, 2]
    assert [encode_frame(*frame) for frame in frames] == RECORDED
    assert reader.buffered_bytes == 0


def test_an_empty_frame() -> None:
    reader = FrameReader()
    reader.feed(header(0, 0) * 2)
    assert taken(reader) == [Frame(b"", b"")] * 2


@pytest.mark.parametrize("size", range(1, len(recorded_frames.HEARTBEAT)))
def test_a_frame_is_not_taken_before_its_end(size: int) -> None:
    reader = FrameReader()
    reader.feed(recorded_frames.HEARTBEAT[:size])
    assert reader.next_frame() is None
    assert reader.buffered_bytes == size
    reader.feed(recorded_frames.HEARTBEAT[size:])
    assert len(taken(reader)) == 1


@pytest.mark.parametrize(
    "data", [b"G", b"GET / HTTP/1.1\r\n\r\n", b"P\x00", b"PRPB", b"prpc", b"\x00" * 64]
)
def test_other_protocols_are_told_apart_at_once(data: bytes) -> None:
    reason = "the bytes are not of the protocol baidu_std"
    assert failure(FrameReader(), data) == reason


@pytest.mark.parametrize("size", [MAX_BODY_BYTES + 1, 2**31 - 1, 2**31, 2**32 - 1])
def test_a_body_too_large_is_refused_at_its_header(size: int) -> None:
    reason = f"the body exceeds {MAX_BODY_BYTES} bytes: {size}"
    assert failure(FrameReader(), header(size, 0)) == reason


def test_a_meta_too_large_is_refused_at_its_header() -> None:
    assert failure(FrameReader(), header(5, 6)) == "the meta exceeds the body: 6"
    assert failure(FrameReader(), header(0, 2**32 - 1)).startswith("the meta exceeds the body: ")
    size = MAX_META_BYTES + 1
    reason = f"the meta exceeds {MAX_META_BYTES} bytes: {size}"
    assert failure(FrameReader(), header(MAX_BODY_BYTES, size)) == reason


def test_the_largest_frame() -> None:
    reader = FrameReader()
    frame = Frame(b"m" * MAX_META_BYTES, b"p" * (MAX_BODY_BYTES - MAX_META_BYTES))
    reader.feed(encode_frame(*frame))
    assert taken(reader) == [frame]


def test_what_is_announced_takes_no_room() -> None:
    reader = FrameReader()
    reader.feed(header(MAX_BODY_BYTES, 0))
    assert taken(reader) == []
    assert reader.buffered_bytes == HEADER_BYTES
    assert reader._buffer.__alloc__() < 1024


def test_frames_before_a_fault_are_taken() -> None:
    reader = FrameReader()
    reader.feed(recorded_frames.HELLO + b"junk")
    assert reader.next_frame() is not None
    with pytest.raises(FramingError):
        reader.next_frame()


def test_no_more_is_fed_than_is_read_ahead() -> None:
    reader = FrameReader()
    chunk = header(0, 0) * 8192
    for _ in range((BOUND + READ_AHEAD_BYTES) // len(chunk)):
        reader.feed(chunk)
    with pytest.raises(FramingError, match="more is sent than is read ahead"):
        reader.feed(chunk)
    assert reader.buffered_bytes == 0


# --- whatever the bytes --------------------------------------------------------------------------

SIZES = st.integers(0, 300) | st.integers(0, 2**32 - 1) | st.just(MAX_BODY_BYTES)
PIECES = st.one_of(
    st.binary(max_size=64),
    st.builds(header, SIZES, SIZES),
    st.builds(encode_frame, st.binary(max_size=40), st.binary(max_size=300)),
    st.sampled_from(RECORDED),
    st.integers(1, 2 * MAX_META_BYTES).map(bytes),
)
STREAMS = st.lists(PIECES, max_size=12).map(b"".join)


@given(
    stream=STREAMS,
    cuts=st.lists(st.integers(1, READ_AHEAD_BYTES // 3), min_size=1),
    patience=st.booleans(),
)
def test_whatever_the_bytes_and_the_cuts(stream: bytes, cuts: list[int], patience: bool) -> None:
    """It raises nothing but its error, keeps no more than the bound, and the cuts do not matter."""
    frames, failed = read(stream, [READ_AHEAD_BYTES], patience=False)
    assert read(stream, cuts, patience=patience) == (frames, failed)
    parts = b"".join(encode_frame(*frame) for frame in frames)
    assert stream.startswith(parts)


def read(stream: bytes, cuts: list[int], *, patience: bool) -> tuple[list[Frame], str]:
    reader = FrameReader()
    frames: list[Frame] = []
    at = turn = 0
    try:
        while at < len(stream):
            size = cuts[turn % len(cuts)]
            reader.feed(stream[at : at + size])
            at, turn = at + size, turn + 1
            if not patience or turn % 3 == 0 or at >= len(stream):
                while (frame := reader.next_frame()) is not None:
                    frames.append(frame)
                assert reader.buffered_bytes < BOUND
            assert reader.buffered_bytes <= BOUND + READ_AHEAD_BYTES
            assert reader.buffered_bytes <= at
    except FramingError as error:
        assert reader.buffered_bytes == 0
        return frames, str(error)
    return frames, ""


@given(st.binary(max_size=200), st.binary(max_size=200))
def test_what_is_encoded_is_read(meta: bytes, message: bytes) -> None:
    reader = FrameReader()
    reader.feed(encode_frame(meta, message))
    assert taken(reader) == [Frame(meta, message)]
