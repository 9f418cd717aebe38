"""The xLLM event protocol, as a publisher writes it (spec: live protocol, a stream's life).

Event maps, batches, live frames and replay frames; bytes out, no sockets, no state. It must not
borrow from the directory's own decoder: a simulator that shares its bugs would prove nothing.
"""

from __future__ import annotations

import struct
from typing import Any, Literal, TypeAlias

import msgpack  # type: ignore[import-untyped]  # it ships no types

__all__ = [
    "END_SEQUENCE",
    "Event",
    "Tier",
    "batch_payload",
    "cleared",
    "end_frames",
    "live_frames",
    "pack_sequence",
    "removed",
    "snapshot_frames",
    "stored",
]

Event: TypeAlias = dict[str, Any]
"""One event map, with a `type`."""

Tier: TypeAlias = Literal["gpu", "cpu"]
"""Device is `gpu`, Host is `cpu`."""

END_SEQUENCE = 2**64 - 1
"""The sequence that ends a replay."""


def stored(
    block_hashes: list[int],
    parent: int | None,
    token_ids: list[int],
    block_size: int,
    tier: Tier,
) -> Event:
    """Make a `BlockStored`; empty `token_ids` make it a copy of known blocks."""
    return {
        "type": "BlockStored",
        "block_hashes": block_hashes,
        "parent_block_hash": parent,
        "token_ids": token_ids,
        "block_size": block_size,
        "medium": tier,
    }


def removed(block_hashes: list[int], tier: Tier) -> Event:
    """Make a `BlockRemoved` of one tier's copies."""
    return {"type": "BlockRemoved", "block_hashes": block_hashes, "medium": tier}


def cleared() -> Event:
    """Make an `AllBlocksCleared`."""
    return {"type": "AllBlocksCleared"}


def batch_payload(
    events: list[Event], dp_rank: int, timestamp_s: float, padding: bytes = b""
) -> bytes:
    """Encode a batch; `padding` becomes a trailing element, which readers must ignore."""
    batch: list[Any] = [timestamp_s, events, dp_rank]
    if padding:
        batch.append(padding)
    packed: bytes = msgpack.packb(batch)
    return packed


def pack_sequence(sequence: int) -> bytes:
    """Encode a sequence, 0 … 2^64-1, as eight big-endian bytes."""
    return struct.pack(">Q", sequence)


def live_frames(topic: str, sequence: int, payload: bytes) -> list[bytes]:
    """Frame a live message."""
    return [topic.encode(), pack_sequence(sequence), payload]


def snapshot_frames(watermark: int, payload: bytes) -> list[bytes]:
    """Frame a snapshot reply, without the client's identity."""
    return [b"", pack_sequence(watermark), payload]


def end_frames() -> list[bytes]:
    """Frame the end marker of a replay, without the client's identity."""
    return [b"", pack_sequence(END_SEQUENCE), b""]
