"""`RpcServer`: listens for engines, and keeps what they take within its limits.

It has no thread and no loop of its own: `run` runs in the loop of its caller, never waits in it and never works
for long at a time.
"""

from __future__ import annotations

import asyncio
import logging
import resource
from collections import Counter
from contextlib import closing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from kvcache.registry.told import Told
from kvcache.rpc.connection import Connection
from kvcache.rpc.limits import RpcLimits
from kvcache.rpc.turns import Turns

if TYPE_CHECKING:
    import socket

    from kvcache.rpc.service import Answers

__all__ = ["RpcCounts", "RpcServer"]

_log = logging.getLogger("kvcache.rpc")

_CHECK_PAUSE_S: Final = 1.0
_CHECKS_A_TURN: Final = 1024
_READ_BYTES: Final = 16 * 1024
"""Read of a connection at one time: what its calls are answered in within one slice."""

_BACKLOG: Final = 128
"""Also how many connections the event loop accepts before it looks at anything else."""


@dataclass(slots=True)
class RpcCounts:
    """What happened since the start, for metrics."""

    connections: int = 0
    """Open now."""
    connections_total: int = 0
    connections_refused_total: int = 0
    """Closed at once, as there was no room."""
    connections_faulted_total: int = 0
    """Closed for a fault of the peer: no frames, too large, too slow."""
    calls_total: Counter[int] = field(default_factory=Counter)
    """By the answer's error code; 0 for none."""


class RpcServer:
    """Serves `service` on `listener`, a socket that listens and that its caller closes. For one event loop."""

    def __init__(
        self, listener: socket.socket, service: Answers, limits: RpcLimits | None = None
    ) -> None:
        self.service = service
        self.limits = limits or RpcLimits()
        self.counts = RpcCounts()
        self.turns = Turns()
        self.read_buffer = memoryview(bytearray(_READ_BYTES))
        self._listener = listener
        self._connections: set[Connection] = set()
        self._max_connections = _affordable(self.limits.max_connections)
        self._calls = 0
        self._buffered_bytes = 0
        self._told = Told()
        self._serving = False

    async def run(self) -> None:
        """Serve until cancelled; then every connection is closed. May be run again. Raises `OSError`."""
        limits = self.limits
        pause_s = min(_CHECK_PAUSE_S, limits.idle_timeout_s / 4, limits.slow_timeout_s / 4)
        self._serving = True
        try:
            with closing(await self._listen()):
                while True:
                    await asyncio.sleep(pause_s)
                    await self._check()
        finally:
            self._serving = False
            for connection in tuple(self._connections):
                connection.close()

    async def _listen(self) -> asyncio.Server:
        # A duplicate: the event loop closes the socket that it listens on.
        return await asyncio.get_running_loop().create_server(
            lambda: Connection(self), sock=self._listener.dup(), backlog=_BACKLOG
        )

    async def _check(self) -> None:
        """Close the connections that are idle or slow."""
        now_s = asyncio.get_running_loop().time()
        for position, connection in enumerate(tuple(self._connections), 1):
            connection.check(now_s)
            if position % _CHECKS_A_TURN == 0:
                await asyncio.sleep(0)

    # --- what connections tell ---------------------------------------------------------------------

    def opened(self, connection: Connection) -> bool:
        """Whether there is room for it."""
        if not self._serving:
            return False  # it was accepted when `run` ended
        if len(self._connections) >= self._max_connections:
            self.counts.connections_refused_total += 1
            self._tell(connection, f"more than {self._max_connections} are open")
            return False
        self._connections.add(connection)
        self.counts.connections += 1
        self.counts.connections_total += 1
        return True

    def closed(self, connection: Connection) -> None:
        """It is gone."""
        self._connections.discard(connection)
        self.counts.connections -= 1

    def buffers(self, change: int) -> bool:
        """It keeps so many bytes more; whether there is room for all that is kept."""
        self._buffered_bytes += change
        return change <= 0 or self._buffered_bytes <= self.limits.max_buffered_bytes

    def begin_call(self) -> bool:
        """A call is going to wait; whether there is room for it."""
        if self._calls >= self.limits.max_calls:
            return False
        self._calls += 1
        return True

    def end_call(self) -> None:
        """A call for which there was room waits no more."""
        self._calls -= 1

    def answered(self, code: int) -> None:
        """A call was answered, with 0 or an error code."""
        self.counts.calls_total[code] += 1

    def refused(self, connection: Connection, reason: str) -> None:
        """The connection is closed for a reason that its peer gave."""
        self.counts.connections_faulted_total += 1
        self._tell(connection, reason)

    def _tell(self, connection: Connection, reason: str) -> None:
        # One line for a peer and a kind of fault; the value at the end of a reason differs.
        if self._told.is_new((connection.peer, reason.partition(":")[0])):
            _log.warning("closed an rpc connection of %s: %s", connection.peer, reason)


def _affordable(max_connections: int) -> int:
    """So many that HTTP, etcd and streams have descriptors left."""
    descriptors, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if descriptors == resource.RLIM_INFINITY:
        return max_connections
    return max(1, min(max_connections, descriptors // 2))
