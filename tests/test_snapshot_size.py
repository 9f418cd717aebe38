"""The limits say which streams they fit: no message is larger than is counted for its blocks."""

from __future__ import annotations

import msgpack
import pytest
from kvcache import KvEventsConfig
from kvcache.snapshot_size import block_bytes, snapshot_notes

STREAM = {
    "instance_name": "engine",
    "endpoint": "tcp://127.0.0.1:5557",
    "replay_endpoint": "tcp://127.0.0.1:5558",
}


def config(**changes: object) -> KvEventsConfig:
    return KvEventsConfig.from_dict({"streams": [STREAM], **changes})


@pytest.mark.parametrize("block_size", [1, 16, 128, 1024])
def test_a_block_takes_no_more_than_is_counted(block_size: int) -> None:
    event = {
        "type": "BlockStored",
        "block_hashes": [2**64 - 1],
        "parent_block_hash": 2**64 - 1,
        "token_ids": [2**32 - 1] * block_size,
        "block_size": block_size,
        "medium": "cpu_pinned",
    }
    assert len(msgpack.packb(event)) <= block_bytes(block_size)


def test_the_defaults_say_which_streams_they_fit() -> None:
    (note,) = snapshot_notes(config())
    assert note == (
        "max_message_bytes 8388608 fits a snapshot of 10922 blocks of 128 tokens for sure; a stream"
        " of 262144 blocks, which max_blocks_per_stream allows, may need 201326592"
    )


def test_each_block_size_is_said_once_and_only_where_it_does_not_fit() -> None:
    streams = [
        STREAM
        | {
            "dp_rank": rank,
            "block_size": size,
            "endpoint": f"tcp://127.0.0.1:{6000 + rank}",
            "replay_endpoint": f"tcp://127.0.0.1:{7000 + rank}",
        }
        for rank, size in enumerate([16, 128, 128])
    ]
    notes = list(snapshot_notes(config(streams=streams)))
    assert [note.split(" of ")[2][:3] for note in notes] == ["16 ", "128"]
    assert not list(snapshot_notes(config(streams=streams, max_blocks_per_stream=10_000)))
    assert not list(snapshot_notes(config(streams=streams, max_message_bytes=1 << 28)))
