"""`RegistryFeed`: brings what changed in etcd into the registry.

A key that means nothing here, or whose value is refused, is ignored, logged once and counted; the others carry
on. The registration that stood under such a key before stays as it was: a value that cannot be read says nothing
about the process that wrote the last one.
"""

from __future__ import annotations

import hashlib
import logging
from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias

from kvcache.discovery.keys import KeyKind, Namespace
from kvcache.discovery.refused import RefusedError
from kvcache.discovery.values import decode_load, decode_registration
from kvcache.registry.shown import shown_name
from kvcache.registry.told import Told

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kvcache.discovery.keys import ParsedKey
    from kvcache.registry.model import Registration
    from kvcache.registry.registry import Registry
    from kvcache.registry.state import IgnoredReason

__all__ = ["IgnoredKind", "KeyEvent", "RegistryFeed"]

IgnoredKind: TypeAlias = Literal["key", "value", "stale"]

_log = logging.getLogger("kvcache.discovery")

_STALE = {
    "not_registered": "no such instance is registered",
    "other_key": "the instance is registered under another key by now",
    "other_incarnation": "another process is registered under it by now",
    "lease_lost_already": "its lease was lost before",
}


class KeyEvent(Protocol):
    """One change of one key, as a mirror of etcd tells it."""

    @property
    def kind(self) -> Literal["put", "delete"]:
        """Whether the key was written or is gone."""

    @property
    def key(self) -> bytes:
        """With the namespace."""

    @property
    def value(self) -> bytes:
        """What was written; without meaning for a deletion."""

    @property
    def prev_value(self) -> bytes | None:
        """What stood there before; None when there was nothing or it is not known."""

    @property
    def mod_revision(self) -> int:
        """The revision at which etcd made the change."""


class RegistryFeed:
    """Decodes changes for one registry. Not thread-safe: one task follows etcd."""

    def __init__(self, registry: Registry, namespace: Namespace | None = None) -> None:
        self._registry = registry
        self._namespace = namespace or Namespace()
        self._told = Told()
        self.applied: dict[KeyKind, int] = dict.fromkeys(KeyKind, 0)
        """Changes that were understood, by what they were about."""
        self.ignored: dict[IgnoredKind, int] = {"key": 0, "value": 0, "stale": 0}
        """Changes that were not: unknown key, refused value, deletion of what is not there now."""

    def on_events(self, events: Iterable[KeyEvent]) -> None:
        """Apply a batch in its order: that of etcd's revisions, in an initial list too."""
        for event in events:
            self.apply(event)

    def apply(self, event: KeyEvent) -> None:
        """Apply one change. Never raises for what etcd may hold."""
        try:
            key = self._namespace.parse(event.key)
        except RefusedError as refused:
            self._ignore("key", event, str(refused))
            return
        if event.kind == "put":
            self._put(key, event)
        else:
            self._delete(key, event)

    def _put(self, key: ParsedKey, event: KeyEvent) -> None:
        try:
            if key.kind is KeyKind.REGISTRATION:
                registration = decode_registration(event.value, key)
                self._registry.put(key.text, registration, event.mod_revision)
            elif key.kind is KeyKind.LOAD:
                self._registry.put_load(key.name, decode_load(event.value), event.mod_revision)
        except RefusedError as refused:
            self._ignore("value", event, str(refused))
            return
        self.applied[key.kind] += 1

    def _delete(self, key: ParsedKey, event: KeyEvent) -> None:
        reason: IgnoredReason | None = None
        if key.kind is KeyKind.REGISTRATION:
            previous = _previous(event.prev_value, key)
            reason = self._registry.delete(key.text, previous, event.mod_revision)
        elif key.kind is KeyKind.LOAD:
            self._registry.delete_load(key.name)
        if reason is not None:
            self._ignore("stale", event, f"{_STALE[reason]}: {reason}")
            return
        self.applied[key.kind] += 1

    def _ignore(self, what: IgnoredKind, event: KeyEvent, reason: str) -> None:
        self.ignored[what] += 1
        content = event.prev_value if event.kind == "delete" else event.value
        digest = hashlib.blake2b(event.key, digest_size=16)
        digest.update(b"\0" if content is None else hashlib.blake2b(content).digest())
        if not self._told.is_new((what, digest.digest())):
            return
        # A stale deletion is ordinary; a key or value that nobody can read is somebody's fault.
        level = logging.INFO if what == "stale" else logging.WARNING
        verb = "deletion" if event.kind == "delete" else "change"
        _log.log(level, "ignored a %s of %s, %s", verb, shown_name(event.key), reason)


def _previous(value: bytes | None, key: ParsedKey) -> Registration | None:
    """What was registered before; None where it cannot be said, so that a deletion counts."""
    try:
        return None if value is None else decode_registration(value, key)
    except RefusedError:
        return None
