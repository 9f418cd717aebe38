"""Simulated engines on real sockets, for testing the directory and what is built on it.

Needs `kvcache[testing]`. Nothing else in `kvcache` imports this package.
"""

from kvcache.testing.block_cache import BlockCache
from kvcache.testing.conversations import Conversations, Turn
from kvcache.testing.engine import SimulatedEngine
from kvcache.testing.faults import Faults, LiveFault, ReplayFault, Snapshot
from kvcache.testing.fleet import SimulatedFleet

__all__ = [
    "BlockCache",
    "Conversations",
    "Faults",
    "LiveFault",
    "ReplayFault",
    "SimulatedEngine",
    "SimulatedFleet",
    "Snapshot",
    "Turn",
]
