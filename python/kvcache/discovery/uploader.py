"""`LoadUploader`: the master's work in etcd: the loads of the last heartbeats, and no load of who is gone.

Every transaction compares the lease of the master's key with the one under which it was won, so that a write of a
replica that is master no more comes to nothing, however late it arrives.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from kvcache.discovery.client import Compare, Delete, Put
from kvcache.discovery.keys import KeyKind
from kvcache.discovery.refused import RefusedError
from kvcache.discovery.values import encode_load
from kvcache.registry.model import InstanceType
from kvcache.registry.shown import shown_name
from kvcache.registry.state import LEASE_LOST_S, SUSPECT_S

if TYPE_CHECKING:
    from collections.abc import Callable

    from kvcache.discovery.client import EtcdClient
    from kvcache.discovery.keys import Namespace
    from kvcache.discovery.mirror import EtcdMirror
    from kvcache.registry.registry import Registry

__all__ = ["MAX_TXN_OPERATIONS", "REMOVAL_GRACE_S", "LoadUploader", "UploadCounters"]

_log = logging.getLogger("kvcache.discovery")

MAX_TXN_OPERATIONS: Final = 128
"""etcd refuses a transaction of more, unless it is told otherwise."""

REMOVAL_GRACE_S: Final = LEASE_LOST_S + SUSPECT_S
"""How long a load has to be without an instance, if this replica never knew one, before it is removed.

A new master knows only who is registered. Who lost its lease before may live on in the other replicas for this
long, and their load is this key's.
"""

_WRITE_TIMEOUT_S: Final = 1.0


@dataclass(slots=True)
class UploadCounters:
    """What the master wrote so far, in all its terms."""

    loads_written_total: int = 0
    loads_removed_total: int = 0
    refused_total: int = 0
    """Transactions that came too late: another replica was master, or none."""


class LoadUploader:
    """Writes the loads of one registry. Not thread-safe: one task uploads."""

    def __init__(
        self,
        client: EtcdClient,
        mirror: EtcdMirror,
        namespace: Namespace,
        registry: Registry,
        *,
        removal_grace_s: float = REMOVAL_GRACE_S,
    ) -> None:
        self._client = client
        self._mirror = mirror
        self._namespace = namespace
        self._registry = registry
        self._removal_grace_s = removal_grace_s
        self._load_prefix = namespace.load_key("")
        self._known: set[str] = set()
        """Names with a load in etcd whose instance was registered when the master looked last."""
        self._ownerless: dict[str, float] = {}
        """Names with a load in etcd and without an instance, and since when that was seen."""
        self.counters = UploadCounters()

    def begin_term(self) -> None:
        """The replica was elected: what it saw in an earlier term counts no more."""
        self._known.clear()
        self._ownerless.clear()

    async def upload(self, lease: int, now_s: float, is_master: Callable[[], bool]) -> bool:
        """Writes once what there is to write as master by `lease`; `is_master` is asked before each transaction.

        Returns False when etcd refused it, since the lease is not the master's. Raises `EtcdError`.
        """
        loads = self._registry.recent_heartbeat_loads()
        # Another thread may deregister somebody in between, and a transaction names a key once.
        gone = [name for name in self._gone(now_s) if name not in loads]
        operations: list[Put | Delete] = [
            Put(self._namespace.load_key(name), encode_load(load)) for name, load in loads.items()
        ]
        operations += [Delete(self._namespace.load_key(name)) for name in gone]
        mastership = (Compare(self._namespace.master_key, "lease", lease),)
        for at in range(0, len(operations), MAX_TXN_OPERATIONS):
            if not is_master():
                return True
            batch = operations[at : at + MAX_TXN_OPERATIONS]
            done = await self._client.txn(mastership, batch, timeout_s=_WRITE_TIMEOUT_S)
            if not done.succeeded:
                self.counters.refused_total += 1
                return False
            removed = sum(isinstance(one, Delete) for one in batch)
            self.counters.loads_removed_total += removed
            self.counters.loads_written_total += len(batch) - removed
        for name in gone:
            _log.info(
                "removed the load of an instance that is not registered: %s", shown_name(name)
            )
        return True

    def _gone(self, now_s: float) -> list[str]:
        """Whose load is to be removed.

        Nobody's while etcd is not followed, as the world may have changed. Not that of a name with a registration
        that cannot be read: somebody is there. A name that this master had registered has outlived its lease and
        its suspicion here, and goes at once; any other has to be without an instance for the grace.
        """
        if not self._mirror.status.connected:
            self._ownerless.clear()
            return []
        instances = self._registry.snapshot().instances
        held = self._mirror.held
        known: set[str] = set()
        ownerless: dict[str, float] = {}
        gone: list[str] = []
        for key in held:
            if not key.startswith(self._load_prefix):
                continue
            name = key[len(self._load_prefix) :].decode("utf-8", "replace")
            if name in instances:
                known.add(name)
            elif self._is_ours(key) and not self._has_registration(name):
                ownerless[name] = self._ownerless.get(name, now_s)
                if name in self._known or now_s >= ownerless[name] + self._removal_grace_s:
                    gone.append(name)
        # Until the removal is seen in etcd, who was known stays so.
        self._known = known | (self._known & ownerless.keys())
        self._ownerless = ownerless
        return gone

    def _is_ours(self, key: bytes) -> bool:
        """Whether this is a load's key at all; others in the range are ignored, and not ours to remove."""
        try:
            return self._namespace.parse(key).kind is KeyKind.LOAD
        except RefusedError:
            return False

    def _has_registration(self, name: str) -> bool:
        keys = (self._namespace.registration_key(kind, name) for kind in InstanceType)
        return any(key in self._mirror.held for key in keys)
