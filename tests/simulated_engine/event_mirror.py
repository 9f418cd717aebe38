"""What a reader of an engine's events believes to be resident."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kvcache.testing.event_log import MAX_BLOCKS_PER_EVENT

if TYPE_CHECKING:
    from collections.abc import Iterable


class Mirror:
    """What a reader of the events believes to be resident."""

    def __init__(self) -> None:
        self.tiers: dict[str, set[int]] = {"gpu": set(), "cpu": set()}
        self.known: dict[int, tuple[int | None, tuple[int, ...]]] = {}

    def apply(self, events: Iterable[dict[str, Any]]) -> None:
        for event in events:
            if event["type"] == "AllBlocksCleared":
                self.__init__()  # type: ignore[misc]
            elif event["type"] == "BlockRemoved":
                for name in event["block_hashes"]:
                    self.tiers[event["medium"]].remove(name)
            else:
                self._store(event)

    def _store(self, event: dict[str, Any]) -> None:
        names, ids, size = event["block_hashes"], event["token_ids"], event["block_size"]
        assert 0 < len(names) <= MAX_BLOCKS_PER_EVENT
        assert not ids or len(ids) == len(names) * size
        parent = event["parent_block_hash"]
        for position, name in enumerate(names):
            if ids:
                content = (parent, tuple(ids[position * size : (position + 1) * size]))
                assert self.known.setdefault(name, content) == content
            assert name in self.known
            assert name not in self.tiers[event["medium"]]
            self.tiers[event["medium"]].add(name)
            parent = name

    def orphans(self) -> set[int]:
        resident = self.tiers["gpu"] | self.tiers["cpu"]
        return {
            name
            for name in resident
            if self.known[name][0] is not None and self.known[name][0] not in resident
        }
