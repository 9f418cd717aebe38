"""`Discovery`: everything that follows etcd for one service, wired and run in the background.

mirror → feed → registry → follower → directory, the registry's clock and probes, and the replica's own keys.
Queries and choices touch none of it: they read the registry's snapshot and the directory.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal

from kvcache.discovery.background import Background
from kvcache.discovery.client import EtcdClient
from kvcache.discovery.feed import RegistryFeed
from kvcache.discovery.keys import Namespace
from kvcache.discovery.mirror import EtcdMirror
from kvcache.discovery.replica import Replica
from kvcache.discovery.tender import RegistryTender
from kvcache.rpc.server import RpcServer
from kvcache.rpc.service import MasterService

if TYPE_CHECKING:
    import socket
    from collections.abc import Sequence

    from kvcache.discovery.config import EtcdConfig
    from kvcache.discovery.follower import StreamFollower
    from kvcache.discovery.mirror import MirrorStatus
    from kvcache.discovery.world import MirrorEvent
    from kvcache.registry.registry import Registry

__all__ = ["Discovery", "DiscoveryOptions"]

_log = logging.getLogger("kvcache.discovery")

_CLOSE_TIMEOUT_S: Final = 1.7
"""Longer than the second that freeing the replica's keys may take; with draining, within the promised five."""


@dataclass(frozen=True, slots=True)
class DiscoveryOptions:
    """Where the instances are registered."""

    etcd: EtcdConfig
    namespace: Namespace = field(default_factory=Namespace)
    role: Literal["replica", "observer"] = "replica"
    """An observer never writes to etcd and never stands for election."""
    advertised: str | None = None
    """The HTTP address by which others know this replica, `host:port`. Without one it is an observer."""
    dialled: str | None = None
    """What engines dial when this replica is master, `host:port`; the HTTP address where it is None."""
    rpc_listener: socket.socket | None = None
    """Where engines call over brpc, listening; its owner closes it. None serves them over HTTP alone."""


class Discovery:
    """Follows etcd from `start` to `close`."""

    def __init__(
        self,
        options: DiscoveryOptions,
        registry: Registry,
        follower: StreamFollower | None = None,
        refresh_interval_s: float = 1.0,
    ) -> None:
        self._options = options
        self._registry = registry
        self._follower = follower
        self._refresh_interval_s = refresh_interval_s
        self._client = EtcdClient(options.etcd)
        self.feed = RegistryFeed(registry, options.namespace)
        # One for good: what it holds is what the registry was told, whatever else has to start anew.
        self.mirror = EtcdMirror(self._client, *options.namespace.watched_range, self)
        self.replica = self._new_replica()
        """This service's own keys in etcd, and its part in the election; None for an observer."""
        self.rpc: RpcServer | None = None
        """What engines call over brpc; None where nobody listens."""
        if options.rpc_listener is not None:
            self.rpc = RpcServer(options.rpc_listener, MasterService(registry))
        self._background = Background("kvcache-discovery", self._main, self._client.aclose)

    def start(self) -> None:
        """Begin to follow; whether etcd is there yet does not matter."""
        self._background.start()

    @property
    def status(self) -> MirrorStatus:
        """Whether etcd is being followed."""
        return self.mirror.status

    def close(self) -> None:
        """Stop within two seconds."""
        if not self._background.close(_CLOSE_TIMEOUT_S):
            _log.warning("discovery did not stop in time; its keys in etcd lapse with their lease")

    # The mirror's consumer.

    def on_events(self, events: Sequence[MirrorEvent]) -> None:
        """Bring what changed into the registry."""
        self.feed.on_events(events)
        if self.replica is not None:
            self.replica.on_events(events)

    def on_status(self, status: MirrorStatus) -> None:
        """Say when etcd is lost and when it is back."""
        if status.connected:
            _log.info("following etcd from revision: %d", status.revision)
        else:
            _log.warning("not following etcd, the last known instances stay: %s", status.error)

    async def _main(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self.mirror.run())
            group.create_task(RegistryTender(self._registry).run())
            if self._follower is not None:
                group.create_task(self._refresh(self._follower))
            if self.replica is not None:
                group.create_task(self.replica.run())
            if self.rpc is not None:
                group.create_task(self.rpc.run())

    def _new_replica(self) -> Replica | None:
        options = self._options
        if options.role == "observer" or options.advertised is None:
            return None
        return Replica(
            self._client,
            self.mirror,
            options.namespace,
            self._registry,
            name=options.advertised,
            advertised=options.dialled or options.advertised,
        )

    async def _refresh(self, follower: StreamFollower) -> None:
        while True:
            follower.refresh()
            await asyncio.sleep(self._refresh_interval_s)
