"""What is held of a range of keys: pure bookkeeping, without etcd and without a clock."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from kvcache.discovery.results import KeyValue, RangeResult, WatchEvent

__all__ = ["MirrorEvent", "World"]


@dataclass(frozen=True, slots=True)
class MirrorEvent:
    """One difference between what was held and what etcd has.

    `value` is empty of a deletion, `prev_value` None of a key that was not held. A deletion found
    by a list has the list's `mod_revision`, the latest at which it can have happened.
    """

    kind: Literal["put", "delete"]
    key: bytes
    value: bytes
    prev_value: bytes | None
    create_revision: int
    mod_revision: int


class World:
    """The keys of one range, as of some revision."""

    def __init__(self) -> None:
        self._held: dict[bytes, KeyValue] = {}

    @property
    def held(self) -> Mapping[bytes, KeyValue]:
        """What is held; changes with the world."""
        return self._held

    def replace(self, kvs: Iterable[KeyValue], revision: int) -> list[MirrorEvent]:
        """Takes a whole list at a revision; gives what differs.

        What is gone comes first, so that a key's successor finds its place free; then the rest in
        order of etcd revision.
        """
        listed = {kv.key: kv for kv in kvs}
        gone = [_deletion(held, revision) for key, held in self._held.items() if key not in listed]
        changed = sorted(
            (kv for key, kv in listed.items() if not _same(kv, self._held.get(key))),
            key=lambda kv: (kv.mod_revision, kv.key),
        )
        events = gone + [_put(kv, self._held.get(kv.key)) for kv in changed]
        self._held = listed
        return events

    def apply(self, events: Iterable[WatchEvent]) -> tuple[list[MirrorEvent], bool]:
        """Takes changes in order; gives them, and whether they follow from what was held.

        Where they do not, changes before them were missed. They are true all the same.
        """
        given: list[MirrorEvent] = []
        follows = True
        for event in events:
            kv = event.kv
            held = self._held.get(kv.key)
            follows = follows and _follows(event, held)
            if not event.deleted:
                self._held[kv.key] = kv
                given.append(_put(kv, held))
            elif held is not None:
                del self._held[kv.key]
                given.append(_deletion(held, kv.mod_revision))
        return given, follows

    def agrees(self, newest: RangeResult) -> bool:
        """Whether a read of the key changed last, and of their number, fits what is held."""
        if newest.count != len(self._held):
            return False
        if not newest.kvs:
            return not self._held
        kv = newest.kvs[0]
        held = self._held.get(kv.key)
        return (
            held is not None
            and (held.create_revision, held.mod_revision) == (kv.create_revision, kv.mod_revision)
            and all(other.mod_revision <= kv.mod_revision for other in self._held.values())
        )


def _put(kv: KeyValue, held: KeyValue | None) -> MirrorEvent:
    prev_value = None if held is None else held.value
    return MirrorEvent("put", kv.key, kv.value, prev_value, kv.create_revision, kv.mod_revision)


def _deletion(held: KeyValue, revision: int) -> MirrorEvent:
    return MirrorEvent("delete", held.key, b"", held.value, held.create_revision, revision)


def _same(kv: KeyValue, held: KeyValue | None) -> bool:
    # The value too: a restored etcd counts its revisions anew.
    return (
        held is not None
        and (kv.create_revision, kv.mod_revision) == (held.create_revision, held.mod_revision)
        and kv.value == held.value
    )


def _follows(event: WatchEvent, held: KeyValue | None) -> bool:
    previous = event.previous
    if held is None:
        created = event.kv.create_revision == event.kv.mod_revision
        return previous is None and created and not event.deleted
    # etcd leaves the previous value out where it is compacted.
    return (previous is None or previous.mod_revision == held.mod_revision) and (
        event.deleted or event.kv.create_revision == held.create_revision
    )
