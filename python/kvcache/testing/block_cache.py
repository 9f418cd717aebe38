"""The prefix cache of a simulated engine: which blocks it holds, in which tier.

A pure model, without sockets, clock or threads. Each change of residence goes into an `EventLog`,
so the events always retell the state. Left to itself the cache evicts least recently used leaves,
so that no resident block loses its parent; only an explicit `evict` leaves orphans behind.
"""

from __future__ import annotations

from array import array
from collections import OrderedDict
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import TYPE_CHECKING

from kvcache.testing.event_log import EventLog

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from kvcache.testing.wire import Event, Tier

__all__ = ["BlockCache", "Prefill"]

_DEVICE: Tier = "gpu"
_HOST: Tier = "cpu"
_TIERS: tuple[Tier, Tier] = (_DEVICE, _HOST)


@dataclass(frozen=True, slots=True)
class Prefill:
    """What a prompt found and changed."""

    reused_blocks: int
    """Full blocks from the first on that were resident in either tier."""
    events: list[Event]


@dataclass(slots=True, eq=False)
class _Block:
    """A block that is resident in at least one tier."""

    wire_hash: int
    parent: int | None
    token_ids: tuple[int, ...]
    tiers: set[Tier] = field(default_factory=set)
    pins: int = 0


class BlockCache:
    """Blocks by wire hash in two tiers, each with a capacity in blocks and an order of use."""

    def __init__(
        self, *, block_size: int, device_blocks: int, host_blocks: int = 0, hash_seed: int = 0
    ) -> None:
        """Make an empty cache; `hash_seed`, 0 … 2^64-1, decides the wire hashes.

        `host_blocks` 0 is an engine without Host offload.
        """
        if block_size < 1 or device_blocks < 1 or host_blocks < 0:
            msg = f"block size and capacities: {block_size}, {device_blocks}, {host_blocks}"
            raise ValueError(msg)
        self.block_size = block_size
        self._hash_key = hash_seed.to_bytes(8, "little")
        self._blocks: dict[int, _Block] = {}
        self._capacity: dict[Tier, int] = {_DEVICE: device_blocks, _HOST: host_blocks}
        # Least recently used first. A chain is touched from its leaf to its root, so a parent is
        # never older than its children.
        self._used: dict[Tier, OrderedDict[int, _Block]] = {tier: OrderedDict() for tier in _TIERS}
        # Children resident in each tier, by the parent's hash; outlives the parent's residence.
        self._children: dict[Tier, dict[int, int]] = {tier: {} for tier in _TIERS}

    @property
    def device_block_count(self) -> int:
        """Blocks with a Device copy."""
        return len(self._used[_DEVICE])

    @property
    def host_block_count(self) -> int:
        """Blocks with a Host copy."""
        return len(self._used[_HOST])

    def tiers(self, wire_hash: int) -> frozenset[Tier]:
        """Tell in which tiers a block is resident."""
        block = self._blocks.get(wire_hash)
        return frozenset(block.tiers) if block else frozenset()

    def wire_hashes(self, token_ids: Sequence[int]) -> list[int]:
        """Name the full blocks of a prompt; each name covers everything before its block."""
        return [wire_hash for wire_hash, _ in self._chain(token_ids)]

    def expected_match(self, token_ids: Sequence[int]) -> tuple[int, int]:
        """Count (device hit tokens, host-only hit tokens) of a prompt (spec: query)."""
        device = host_only = 0
        for wire_hash in self.wire_hashes(token_ids):
            block = self._blocks.get(wire_hash)
            if block is None:
                break
            if _DEVICE in block.tiers:
                device += self.block_size
            else:
                host_only += self.block_size
        return device, host_only

    def prefill(self, token_ids: Sequence[int]) -> Prefill:
        """Compute a prompt: its full blocks become resident on the Device as far as they fit."""
        log = self._log()
        chain = self._chain(token_ids)
        reused = 0
        while reused < len(chain) and chain[reused][0] in self._blocks:
            reused += 1
        path = {wire_hash for wire_hash, _ in chain}
        # Used now, so that the tail of this very prompt is not what makes room for its head.
        self._touch(wire_hash for wire_hash, _ in chain)
        parent: int | None = None
        for wire_hash, tokens in chain:
            if not self._hold(wire_hash, parent, tokens, path, log):
                break
            parent = wire_hash
        self._touch(wire_hash for wire_hash, _ in chain)
        return Prefill(reused, log.events)

    def offload(self, wire_hashes: Iterable[int]) -> list[Event]:
        """Copy Device blocks to the Host tier, as confirmed copies; others are passed over."""
        log = self._log()
        for wire_hash in wire_hashes:
            block = self._blocks.get(wire_hash)
            if block is not None and _DEVICE in block.tiers:
                self._copy_to_host(block, log)
        return log.events

    def evict_device(self, count: int) -> list[Event]:
        """Evict up to `count` unpinned Device blocks, least recently used leaves first.

        With a Host tier, each one is copied there before it goes.
        """
        log = self._log()
        for _ in range(count):
            if not self._evict_one_from_device(frozenset(), log):
                break
        return log.events

    def evict(self, wire_hashes: Iterable[int], tier: Tier) -> list[Event]:
        """Drop the named copies, pinned or not, without offload; may leave orphans behind."""
        log = self._log()
        for wire_hash in wire_hashes:
            block = self._blocks.get(wire_hash)
            if block is not None and tier in block.tiers:
                self._drop(block, tier, log)
        return log.events

    def clear(self) -> list[Event]:
        """Forget every block of both tiers."""
        log = self._log()
        log.clear()
        self._blocks.clear()
        for tier in _TIERS:
            self._used[tier].clear()
            self._children[tier].clear()
        return log.events

    def pin(self, wire_hashes: Iterable[int]) -> None:
        """Protect resident blocks from eviction for want of room, as a running request does."""
        for wire_hash in wire_hashes:
            if wire_hash in self._blocks:
                self._blocks[wire_hash].pins += 1

    def unpin(self, wire_hashes: Iterable[int]) -> None:
        """Take back one `pin` of each."""
        for wire_hash in wire_hashes:
            block = self._blocks.get(wire_hash)
            if block is not None and block.pins:
                block.pins -= 1

    def snapshot(self) -> list[Event]:
        """Retell the whole state: parents before children, then the Host copies of Device blocks.

        A block whose parent is gone from both tiers names it all the same.
        """
        log = self._log()
        children: dict[int | None, list[_Block]] = {}
        for block in self._blocks.values():
            above = block.parent if block.parent in self._blocks else None
            children.setdefault(above, []).append(block)
        both: list[int] = []
        # Depth first keeps chains together, so that they join into few events.
        waiting = children.get(None, [])[::-1]
        while waiting:
            block = waiting.pop()
            tier = _DEVICE if _DEVICE in block.tiers else _HOST
            log.store(block.wire_hash, block.parent, block.token_ids, tier)
            if len(block.tiers) > 1:
                both.append(block.wire_hash)
            waiting.extend(children.get(block.wire_hash, ())[::-1])
        for wire_hash in both:
            log.copy(wire_hash, _HOST)
        return log.events

    def _log(self) -> EventLog:
        return EventLog(self.block_size)

    def _chain(self, token_ids: Sequence[int]) -> list[tuple[int, tuple[int, ...]]]:
        chain = []
        name = b""
        full = len(token_ids) - len(token_ids) % self.block_size
        for start in range(0, full, self.block_size):
            tokens = tuple(token_ids[start : start + self.block_size])
            content = name + array("Q", tokens).tobytes()
            name = blake2b(content, digest_size=8, key=self._hash_key).digest()
            chain.append((int.from_bytes(name, "big"), tokens))
        return chain

    def _touch(self, wire_hashes: Iterable[int]) -> None:
        for wire_hash in reversed(list(wire_hashes)):
            for used in self._used.values():
                if wire_hash in used:
                    used.move_to_end(wire_hash)

    def _hold(
        self,
        wire_hash: int,
        parent: int | None,
        tokens: tuple[int, ...],
        path: set[int],
        log: EventLog,
    ) -> bool:
        """Make a block resident on the Device; False when there is no room for it."""
        block = self._blocks.get(wire_hash)
        if block is not None and _DEVICE in block.tiers:
            return True
        full = self.device_block_count >= self._capacity[_DEVICE]
        if full and not self._evict_one_from_device(path, log):
            return False
        # The eviction may have pushed the block's own Host copy out.
        block = self._blocks.setdefault(wire_hash, _Block(wire_hash, parent, tokens))
        self._add(block, _DEVICE)
        log.store(wire_hash, parent, tokens, _DEVICE)
        return True

    def _evict_one_from_device(self, keep: set[int] | frozenset[int], log: EventLog) -> bool:
        for wire_hash, block in self._used[_DEVICE].items():
            if block.pins or wire_hash in keep or self._children[_DEVICE].get(wire_hash):
                continue
            # Chosen before the copy, which may itself change what is resident in the Host tier.
            kept = _HOST in block.tiers or self._copy_to_host(block, log)
            if not kept and self._children[_HOST].get(wire_hash):
                continue
            self._drop(block, _DEVICE, log)
            return True
        return False

    def _copy_to_host(self, block: _Block, log: EventLog) -> bool:
        used = self._used[_HOST]
        if block.wire_hash in used:
            used.move_to_end(block.wire_hash)
            return True
        if len(used) >= self._capacity[_HOST] and not self._evict_one_from_host(log):
            return False
        self._add(block, _HOST)
        log.copy(block.wire_hash, _HOST)
        return True

    def _evict_one_from_host(self, log: EventLog) -> bool:
        for wire_hash, block in self._used[_HOST].items():
            if block.pins or self._children[_HOST].get(wire_hash):
                continue
            if _DEVICE not in block.tiers and self._children[_DEVICE].get(wire_hash):
                continue
            self._drop(block, _HOST, log)
            return True
        return False

    def _add(self, block: _Block, tier: Tier) -> None:
        block.tiers.add(tier)
        self._used[tier][block.wire_hash] = block
        if block.parent is not None:
            children = self._children[tier]
            children[block.parent] = children.get(block.parent, 0) + 1

    def _drop(self, block: _Block, tier: Tier, log: EventLog) -> None:
        block.tiers.remove(tier)
        del self._used[tier][block.wire_hash]
        if block.parent is not None:
            children = self._children[tier]
            children[block.parent] -= 1
            if not children[block.parent]:
                del children[block.parent]
        if not block.tiers:
            del self._blocks[block.wire_hash]
        log.remove(block.wire_hash, tier)
