"""`RegistrySnapshot`: the registry at one moment, immutable, and how it is kept up to date cheaply."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kvcache._frozen import FrozenMapping

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from kvcache.registry.model import Instance

__all__ = ["RegistrySnapshot", "SnapshotCache"]


@dataclass(frozen=True, slots=True)
class RegistrySnapshot:
    """Every registered instance at one moment."""

    version: int
    """Grows with every change of any row."""
    instances: Mapping[str, Instance]
    """By name, in the order of names; read-only."""


class SnapshotCache:
    """The last snapshot, and which rows it has wrong.

    Marking and building need the registry's lock, reading `current` does not. Only marked rows are built
    anew, so that a change in ten thousand instances costs a copy of a table, and not ten thousand rows.
    """

    def __init__(self) -> None:
        self._last = RegistrySnapshot(0, FrozenMapping({}))
        self._rows: dict[str, Instance] = {}
        self._marked: set[str] = set()
        self.current: RegistrySnapshot | None = self._last
        """None while something is marked."""

    def mark(self, name: str) -> None:
        """The row of this name may have changed."""
        self._marked.add(name)
        self.current = None

    def build(self, row: Callable[[str], Instance | None]) -> RegistrySnapshot:
        """The snapshot, where `row` gives the row of a marked name, None for no such instance."""
        if self.current is not None:
            return self.current
        rows = self._rows.copy()
        changed = reorder = False
        for name in self._marked:
            before, after = rows.get(name), row(name)
            if after == before:
                continue
            changed = True
            if after is None:
                del rows[name]
            else:
                reorder |= before is None
                rows[name] = after
        if reorder:
            rows = dict(sorted(rows.items()))
        if changed:
            self._rows = rows
            self._last = RegistrySnapshot(self._last.version + 1, FrozenMapping(rows))
        self._marked.clear()
        self.current = self._last
        return self._last
