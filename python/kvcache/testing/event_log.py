"""A list of events in the making: single changes of blocks in, few event maps out.

Order is kept exactly; only neighbours that one event map can say together are joined, and no map
grows past `MAX_BLOCKS_PER_EVENT` blocks. It knows nothing of capacities or of who evicts whom.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from kvcache.testing.wire import Event, Tier, cleared, removed, stored

__all__ = ["MAX_BLOCKS_PER_EVENT", "EventLog"]

MAX_BLOCKS_PER_EVENT = 64
"""Larger runs are split, so that readers meet parents across events as real engines send them."""


@dataclass(slots=True)
class EventLog:
    """Events of one batch, oldest first."""

    block_size: int
    """Tokens a block."""
    events: list[Event] = field(default_factory=list)
    """Ready to be encoded."""

    def store(
        self, block_hash: int, parent: int | None, token_ids: tuple[int, ...], tier: Tier
    ) -> None:
        """Append a block with its tokens; it joins the event before when it continues its chain."""
        last = self._joinable("BlockStored", tier)
        if last is not None and last["token_ids"] and last["block_hashes"][-1] == parent:
            last["block_hashes"].append(block_hash)
            last["token_ids"].extend(token_ids)
            return
        self.events.append(stored([block_hash], parent, list(token_ids), self.block_size, tier))

    def copy(self, block_hash: int, tier: Tier) -> None:
        """Append a tokenless store: a second tier's copy of a block that readers know."""
        last = self._joinable("BlockStored", tier)
        if last is not None and not last["token_ids"]:
            last["block_hashes"].append(block_hash)
            return
        self.events.append(stored([block_hash], None, [], self.block_size, tier))

    def remove(self, block_hash: int, tier: Tier) -> None:
        """Append the removal of one tier's copy."""
        last = self._joinable("BlockRemoved", tier)
        if last is not None:
            last["block_hashes"].append(block_hash)
            return
        self.events.append(removed([block_hash], tier))

    def clear(self) -> None:
        """Append the removal of everything."""
        self.events.append(cleared())

    def _joinable(self, kind: str, tier: Tier) -> Event | None:
        last = self.events[-1] if self.events else None
        if last is None or last["type"] != kind or last["medium"] != tier:
            return None
        return last if len(last["block_hashes"]) < MAX_BLOCKS_PER_EVENT else None
