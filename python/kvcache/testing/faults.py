"""Switches that make a simulated engine misbehave, and what each one does to its frames.

Faults wait in two queues, one for live messages and one for replies. Each message uses up one
fault from the front of its queue, so a script of faults happens in the order it was armed.
Thread-safe; touches no socket.
"""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass, replace
from enum import Enum
from typing import Generic, TypeVar

from kvcache._stays import Stays
from kvcache.testing.wire import (
    Event,
    batch_payload,
    end_frames,
    live_frames,
    snapshot_frames,
    stored,
)

__all__ = ["Batch", "Faults", "LiveFault", "Replay", "ReplayFault", "Snapshot"]

_GARBAGE = b"\xc1garbage"  # 0xc1 is the one byte that MessagePack never uses
_WRONG_TOPIC_SUFFIX = "-other"  # passes the prefix filter of a subscription, but is not the topic
_MISSING_PARENT = 0x00BAD0_00BAD0
_ORPHANS = 2


class LiveFault(Enum):
    """What can happen to a live message; its sequence is used up in every case."""

    DROP = "never sent: a gap, or a silent loss when nothing follows"
    DUPLICATE = "sent twice"
    REORDER = "sent after the message that follows it"
    TRUNCATE = "the payload loses its second half"
    GARBAGE = "the payload is not MessagePack"
    WRONG_DP_RANK = "the batch carries the next rank"
    WRONG_BLOCK_SIZE = "stores carry twice the block size"
    WRONG_TOPIC = "the topic has a suffix, so that it passes a prefix filter"
    OVERSIZE = "a valid batch, padded to at least `oversize_bytes`"


class ReplayFault(Enum):
    """What can happen to the answer to a snapshot request."""

    HOLD = "kept back until `release_replays`, with the state at the time of the request"
    DELAY = "sent `replay_delay_s` late, with the state at the time of the request"
    SILENT = "never sent"
    NO_END = "the end marker is missing"
    FOUR_FRAME_END = "the end marker has an empty topic frame"
    EMPTY_PAYLOAD = "an ordinary watermark with an empty payload"
    GARBAGE = "the payload is not MessagePack"
    TRUNCATE = "the payload loses its second half"
    STALE = "`stale_snapshot` in place of the current one"
    ORPHANS = "begins with blocks whose parent is missing"
    OVERSIZE = "a valid snapshot, padded to at least `oversize_bytes`"


@dataclass(frozen=True, slots=True)
class Batch:
    """One live batch before it becomes frames."""

    topic: str
    sequence: int
    timestamp_s: float
    events: tuple[Event, ...]
    dp_rank: int

    def frames(self, padding: bytes = b"") -> list[bytes]:
        """Encode the batch as a live message."""
        payload = batch_payload(list(self.events), self.dp_rank, self.timestamp_s, padding)
        return live_frames(self.topic, self.sequence, payload)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The whole state of an engine as of a sequence."""

    watermark: int
    """Last sequence that the state includes; 0 when nothing was published."""
    timestamp_s: float
    events: tuple[Event, ...]
    dp_rank: int
    block_size: int

    def payload(self, padding: bytes = b"") -> bytes:
        """Encode the state as a batch."""
        return batch_payload(list(self.events), self.dp_rank, self.timestamp_s, padding)


@dataclass(frozen=True, slots=True)
class Replay:
    """The answer to one request: messages without the identity, and when they go out."""

    messages: tuple[list[bytes], ...]
    delay_s: float = 0.0
    held: bool = False


_Fault = TypeVar("_Fault", LiveFault, ReplayFault)


class _Queue(Generic[_Fault]):
    """Armed faults, oldest first, each with how often it still happens (None: until disarmed)."""

    def __init__(self) -> None:
        self._armed: deque[tuple[_Fault, int | None]] = deque()

    def arm(self, fault: _Fault, count: int | None) -> None:
        if count is not None and count < 1:
            msg = f"a fault must happen at least once: {count}"
            raise ValueError(msg)
        self._armed.append((fault, count))

    def take(self) -> _Fault | None:
        if not self._armed:
            return None
        fault, left = self._armed[0]
        if left is not None:
            if left > 1:
                self._armed[0] = (fault, left - 1)
            else:
                self._armed.popleft()
        return fault

    def clear(self) -> None:
        self._armed.clear()

    def __len__(self) -> int:
        return len(self._armed)


class Faults(Stays):
    """The switches of one engine; all may be set at any time, from any thread."""

    _stays = "it is the switches of one engine, shared by threads: arm those of the other"

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._live: _Queue[LiveFault] = _Queue()
        self._replay: _Queue[ReplayFault] = _Queue()
        # The message that REORDER keeps until the next one has gone out.
        self._passed: list[bytes] | None = None
        self.oversize_bytes = 9 << 20
        """Payload bytes of OVERSIZE, above the directory's default limit of 8 MiB."""
        self.replay_delay_s = 0.2
        """Seconds that DELAY waits."""
        self.stale_snapshot: Snapshot | None = None
        """What STALE answers, from an earlier `SimulatedEngine.snapshot()`."""

    def arm_live(self, fault: LiveFault, count: int | None = 1) -> None:
        """Let the fault happen to the next `count` live messages; None is until `disarm`."""
        with self._lock:
            self._live.arm(fault, count)

    def arm_replay(self, fault: ReplayFault, count: int | None = 1) -> None:
        """Let the fault happen to the next `count` answers; None is until `disarm`."""
        with self._lock:
            if fault is ReplayFault.STALE and self.stale_snapshot is None:
                msg = "stale_snapshot must be set before STALE is armed"
                raise ValueError(msg)
            self._replay.arm(fault, count)

    def drop_next(self, count: int = 1) -> None:
        """Lose the next `count` live messages on the way: `arm_live(LiveFault.DROP, count)`."""
        self.arm_live(LiveFault.DROP, count)

    def disarm(self) -> None:
        """Behave from now on; a message that REORDER keeps still follows the next one."""
        with self._lock:
            self._live.clear()
            self._replay.clear()

    @property
    def armed(self) -> int:
        """Entries that still wait in the two queues."""
        with self._lock:
            return len(self._live) + len(self._replay)

    def live_messages(self, batch: Batch) -> list[list[bytes]]:
        """Turn a batch into what goes out for it, in order: none, one or several messages."""
        with self._lock:
            fault = self._live.take()
            if fault is LiveFault.REORDER and self._passed is None:
                self._passed = batch.frames()
                return []
            passed, self._passed = self._passed, None
            messages = _misshape(batch, fault, self.oversize_bytes)
            return [*messages, passed] if passed is not None else messages

    def replay(self, snapshot: Snapshot) -> Replay:
        """Turn the current snapshot into what is answered."""
        with self._lock:
            fault = self._replay.take()
            if fault is ReplayFault.SILENT:
                return Replay(())
            if fault is ReplayFault.STALE and self.stale_snapshot is not None:
                snapshot = self.stale_snapshot
            elif fault is ReplayFault.ORPHANS:
                orphans = _orphans(snapshot.block_size)
                snapshot = replace(snapshot, events=(orphans, *snapshot.events))
            return Replay(
                _replay_messages(snapshot, fault, self.oversize_bytes),
                self.replay_delay_s if fault is ReplayFault.DELAY else 0.0,
                held=fault is ReplayFault.HOLD,
            )

    def forget_messages(self) -> None:
        """Forget a message that REORDER keeps, as a process that ends does."""
        with self._lock:
            self._passed = None


def _misshape(batch: Batch, fault: LiveFault | None, oversize_bytes: int) -> list[list[bytes]]:
    """Apply one fault; a REORDER that comes here finds a message waiting, and just lets it go."""
    match fault:
        case LiveFault.DROP:
            return []
        case LiveFault.WRONG_DP_RANK:
            batch = replace(batch, dp_rank=batch.dp_rank + 1)
        case LiveFault.WRONG_BLOCK_SIZE:
            batch = replace(batch, events=tuple(_foreign_size(event) for event in batch.events))
        case LiveFault.WRONG_TOPIC:
            batch = replace(batch, topic=batch.topic + _WRONG_TOPIC_SUFFIX)
        case _:
            pass
    padding = bytes(oversize_bytes) if fault is LiveFault.OVERSIZE else b""
    topic, sequence, payload = batch.frames(padding)
    if fault is LiveFault.TRUNCATE:
        payload = payload[: len(payload) // 2]
    elif fault is LiveFault.GARBAGE:
        payload = _GARBAGE
    return [[topic, sequence, payload]] * (2 if fault is LiveFault.DUPLICATE else 1)


def _foreign_size(event: Event) -> Event:
    return event | {"block_size": event["block_size"] * 2} if "block_size" in event else event


def _orphans(block_size: int) -> Event:
    hashes = [_MISSING_PARENT + 1 + position for position in range(_ORPHANS)]
    tokens = list(range(_ORPHANS * block_size))
    return stored(hashes, _MISSING_PARENT, tokens, block_size, "gpu")


def _replay_messages(
    snapshot: Snapshot, fault: ReplayFault | None, oversize_bytes: int
) -> tuple[list[bytes], ...]:
    payload = snapshot.payload(bytes(oversize_bytes) if fault is ReplayFault.OVERSIZE else b"")
    if fault is ReplayFault.EMPTY_PAYLOAD:
        payload = b""
    elif fault is ReplayFault.GARBAGE:
        payload = _GARBAGE
    elif fault is ReplayFault.TRUNCATE:
        payload = payload[: len(payload) // 2]
    answer = snapshot_frames(snapshot.watermark, payload)
    if fault is ReplayFault.NO_END:
        return (answer,)
    if fault is ReplayFault.FOUR_FRAME_END:
        return (answer, [b"", *end_frames()])
    return (answer, end_frames())
