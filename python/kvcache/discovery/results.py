"""What etcd answers, as values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Self

__all__ = ["KeyValue", "RangeResult", "TxnResult", "WatchBatch", "WatchEvent"]

_DELETE: Final = 1


@dataclass(frozen=True, slots=True)
class KeyValue:
    """One key as it is at some revision; `lease` 0 is none."""

    key: bytes
    value: bytes
    create_revision: int
    mod_revision: int
    lease: int

    @classmethod
    def from_message(cls, kv: Any) -> Self:
        """Reads a `KeyValue` message."""
        return cls(kv.key, kv.value, kv.create_revision, kv.mod_revision, kv.lease)


@dataclass(frozen=True, slots=True)
class RangeResult:
    """Keys of a range, in order of key unless another order was asked for.

    `revision` is etcd's when it answered, `count` the number of keys in the whole range, and
    `more` says that the limit left some out.
    """

    kvs: tuple[KeyValue, ...]
    revision: int
    more: bool
    count: int
    cluster_id: int

    @classmethod
    def from_message(cls, answer: Any) -> Self:
        """Reads a `RangeResponse` message."""
        return cls(
            tuple(KeyValue.from_message(kv) for kv in answer.kvs),
            answer.header.revision,
            answer.more,
            answer.count,
            answer.header.cluster_id,
        )


@dataclass(frozen=True, slots=True)
class TxnResult:
    """Whether the comparisons held, and what the reads of the branch that ran found."""

    succeeded: bool
    revision: int
    reads: tuple[tuple[KeyValue, ...], ...]


@dataclass(frozen=True, slots=True)
class WatchEvent:
    """One change; of a deletion, `kv` has the key and the revision alone.

    `previous` is None for a new key, and where etcd has compacted it away.
    """

    deleted: bool
    kv: KeyValue
    previous: KeyValue | None

    @classmethod
    def from_message(cls, event: Any) -> Self:
        """Reads an `Event` message."""
        previous = KeyValue.from_message(event.prev_kv) if event.HasField("prev_kv") else None
        return cls(event.type == _DELETE, KeyValue.from_message(event.kv), previous)


@dataclass(frozen=True, slots=True)
class WatchBatch:
    """Changes in order, of whole revisions; `revision` is that of the last one."""

    events: tuple[WatchEvent, ...]
    revision: int
