"""`NameList`: the names of the schedulable instances of some types, as the encoded answer to engines."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from kvcache.rpc.messages import message

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from kvcache.registry.model import InstanceType
    from kvcache.registry.registry import Registry, RegistrySnapshot

__all__ = ["NameList"]

_ROWS_A_TURN: Final = 1024
"""Rows looked at before others have their turn: some tenths of a millisecond."""


class NameList:
    """One list, walked once however many ask for it, and kept until the registry changes."""

    def __init__(self, registry: Registry, types: frozenset[InstanceType]) -> None:
        self._registry = registry
        self._types = types
        self._walk: asyncio.Task[bytes] | None = None
        self._kept: tuple[RegistrySnapshot, bytes] | None = None

    def encoded(self) -> bytes | Coroutine[Any, Any, bytes]:
        """An `InstanceIDs`, in the order of names; a coroutine where it is not known yet."""
        kept = self._kept
        if kept is not None and kept[0] is self._registry.snapshot():
            return kept[1]
        return self._join()

    async def _join(self) -> bytes:
        if self._walk is None or self._walk.done():
            self._walk = asyncio.create_task(self._look())
        # Whoever asks may leave; the others still wait for it.
        return await asyncio.shield(self._walk)

    async def _look(self) -> bytes:
        snapshot = self._registry.snapshot()
        names = []
        for position, instance in enumerate(snapshot.instances.values(), 1):
            if instance.type in self._types and instance.schedulable:
                names.append(instance.name)
            if position % _ROWS_A_TURN == 0:
                await asyncio.sleep(0)
        encoded = bytes(message("InstanceIDs", names=names).SerializeToString())
        self._kept = (snapshot, encoded)
        return encoded
