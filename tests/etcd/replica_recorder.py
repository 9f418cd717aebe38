"""A replica that runs beside its own mirror, registry and feed; waits have deadlines."""

from __future__ import annotations

import asyncio
import json
import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from kvcache.discovery.client import EtcdClient
from kvcache.discovery.feed import RegistryFeed
from kvcache.discovery.keys import Namespace
from kvcache.discovery.mirror import EtcdMirror
from kvcache.discovery.replica import Replica, ReplicaSettings
from kvcache.registry.model import InstanceType
from kvcache.registry.registry import Registry
from mirror_recorder import QUICK, client_of, eventually

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from etcd_server import Etcd
    from kvcache.discovery.mirror import MirrorStatus
    from kvcache.discovery.world import MirrorEvent

NAMESPACE = Namespace("ns")
MASTER = NAMESPACE.master_key
SOON = ReplicaSettings(upload_interval_s=0.2, removal_grace_s=1.0, backoff_max_s=0.5)


def service(name: str) -> bytes:
    return NAMESPACE.service_key(name)


def load(name: str) -> bytes:
    return NAMESPACE.load_key(name)


def prefill(name: str) -> bytes:
    return NAMESPACE.registration_key(InstanceType.PREFILL, name)


def registration(name: str, incarnation_id: str = "i1") -> bytes:
    fields = {"name": name, "type": 1, "dp_size": 1, "incarnation_id": incarnation_id}
    return json.dumps(fields).encode()


class Replicating:
    """Everything of one service that etcd concerns; without a name, that of an observer."""

    def __init__(
        self, client: EtcdClient, name: str, settings: ReplicaSettings | None = SOON
    ) -> None:
        self.name = name
        self.client = client
        self.registry = Registry()
        self.vacant_s: list[float] = []
        """When the master's key went."""
        self.feed = RegistryFeed(self.registry, NAMESPACE)
        self.mirror = EtcdMirror(client, *NAMESPACE.watched_range, self, settings=QUICK)
        self._replica: Replica | None = None
        if name:
            self._replica = Replica(
                client,
                self.mirror,
                NAMESPACE,
                self.registry,
                name=name,
                advertised=self.address,
                settings=settings,
            )

    @property
    def address(self) -> str:
        """What engines dial: another port than the HTTP one."""
        host, _, port = self.name.rpartition(":")
        return f"{host}:{int(port) + 1}"

    @property
    def replica(self) -> Replica:
        assert self._replica is not None
        return self._replica

    def on_events(self, events: Sequence[MirrorEvent]) -> None:
        self.vacant_s += [
            time.monotonic() for one in events if (one.kind, one.key) == ("delete", MASTER)
        ]
        self.feed.on_events(events)
        if self._replica is not None:
            self._replica.on_events(events)

    def on_status(self, status: MirrorStatus) -> None:
        pass

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self.mirror.run())
            if self._replica is not None:
                group.create_task(self._replica.run())

    async def masters(self, within: float = 10) -> float:
        return await eventually(self.replica.is_master, f"{self.name} is master", within)

    async def yields(self, within: float = 10) -> float:
        return await eventually(
            lambda: not self.replica.is_master(), f"{self.name} is not master", within
        )

    async def registers(self, within: float = 10) -> float:
        return await eventually(
            lambda: self.mirror.held.get(service(self.name)) is not None, "registered", within
        )


@asynccontextmanager
async def replicating(
    endpoint: str,
    name: str,
    *,
    settings: ReplicaSettings = SOON,
    client: EtcdClient | None = None,
    **options: Any,
) -> AsyncIterator[Replicating]:
    async with client or client_of(endpoint, **options) as ours:
        one = Replicating(ours, name, settings)
        task = asyncio.create_task(one.run())
        try:
            yield one
            assert not task.done(), task.result()
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
    # gRPC ends cancelled calls a little later, and complains if their loop is closed by then.
    await asyncio.sleep(0.05)


class Terms:
    """Who believed to be master when, sampled every few milliseconds."""

    def __init__(self, *replicas: Replicating) -> None:
        self.replicas = replicas
        self.samples = 0
        self.last: dict[str, float] = {}
        self.first: dict[str, float] = {}

    async def watch(self) -> None:
        while True:
            now_s = time.monotonic()
            masters = [one.name for one in self.replicas if one.replica.is_master(now_s)]
            assert len(masters) <= 1, masters
            for name in masters:
                self.first.setdefault(name, now_s)
                self.last[name] = now_s
            self.samples += 1
            await asyncio.sleep(0.002)


@asynccontextmanager
async def never_two(*replicas: Replicating) -> AsyncIterator[Terms]:
    terms = Terms(*replicas)
    task = asyncio.create_task(terms.watch())
    try:
        yield terms
        assert not task.done(), task.result()
        assert terms.samples > 0
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def store_revision(etcd: Etcd) -> int:
    """Moves with every write that took place, whoever made it; grants and renewals do not count."""
    return int(etcd.ctl("get", "x", "-w", "json").split('"revision":')[1].split(",")[0])


def leases(etcd: Etcd) -> list[str]:
    return etcd.ctl("lease", "list").split("\n")[1:-1]
