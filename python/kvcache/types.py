"""Shapes that cross the border to the Rust core."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NotRequired, TypeAlias, TypedDict

if TYPE_CHECKING:
    from collections.abc import Sequence

    from typing_extensions import Buffer

__all__ = ["DoubtCounts", "StreamName", "StreamStatus", "StreamTransition", "Tier", "TokenIds"]

TokenIds: TypeAlias = "Sequence[int] | Buffer"
"""Token ids, 0 … 2^32-1 each: a list or tuple; a one-dimensional buffer of int32, uint32, int64 or uint64
(numpy, array.array), or bytes, bytearray or a memoryview of them, as little-endian uint32. Contiguous 32-bit buffers and
bytes are read without a copy, and must not be written to during the call; 64-bit ones are narrowed in one pass; a list
or tuple costs several nanoseconds an element."""

StreamName: TypeAlias = str | tuple[str, int]
"""A stream of a `PrefixIndex`: an instance name (rank 0), or a name and a rank."""

Tier: TypeAlias = Literal["gpu", "cpu"]

DoubtCounts: TypeAlias = dict[str, int]
"""How often a stream was doubted, by kind of doubt; every kind is present."""


class StreamStatus(TypedDict):
    """State of one stream, as `Directory.streams()` and `GET /v1/internal/streams` show it."""

    instance_name: str
    dp_rank: int
    identity: str | None
    """Which process the stream was followed as; None for static streams."""
    state: Literal["connecting", "snapshotting", "synchronized"]
    synchronized: bool
    error: str
    """Why the stream is not synchronized, in words a person can act on; empty when it is."""
    last_error: str
    """The latest reason of a doubt, kept after recovery; empty when there was none."""
    sequence: int | None
    endpoint: str
    replay_endpoint: str
    topic: str
    block_size: int
    hash_seed: int
    device_blocks: int
    host_blocks: int
    known_blocks: int
    """Resident blocks and kept mappings together, what `max_blocks_per_stream` bounds."""
    orphan_blocks: int
    memory_bytes: int
    """Estimate of what the stream occupies, buffers included."""
    buffered_bytes: int
    messages_total: int
    bytes_total: int
    messages_per_second: float
    """Over about the last ten seconds."""
    bytes_per_second: float
    blocks_stored_total: int
    blocks_removed_total: int
    already_stored_total: int
    already_removed_total: int
    other_tier_total: int
    orphaned_total: int
    foreign_topic_total: int
    connects_total: int
    snapshots_total: int
    snapshot_failures_total: int
    calibrations_total: int
    calibration_failures_total: int
    sequences_lost_found_by_calibration_total: int
    """Messages that only a calibration brought; one that is merely late is none."""
    blocks_lost_found_by_calibration_total: int
    """Copies that such messages had added or removed, as a calibration found."""
    doubts: DoubtCounts


class StreamTransition(TypedDict):
    """A stream that was lost or is synchronized, as a directory's journal tells it."""

    instance_name: str
    dp_rank: int
    change: Literal["first", "lost", "returned"]
    sequence: int | None
    """The last message that the view includes, or included; None where there was none."""
    left_out: int
    """Transitions of this stream before this one that were left out, as there were too many."""
    reason: NotRequired[str]
    """Why it was lost."""
    after_s: NotRequired[float]
    """How long it was lost; for the first time, how long it took."""
    device_blocks: NotRequired[int]
    host_blocks: NotRequired[int]
