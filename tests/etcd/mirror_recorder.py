"""A mirror that runs, and a consumer that keeps what it is told; waits have deadlines."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from kvcache.discovery.client import EtcdClient
from kvcache.discovery.config import EtcdConfig
from kvcache.discovery.mirror import EtcdMirror, MirrorSettings, MirrorStatus

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine, Sequence

    from kvcache.discovery.world import MirrorEvent

DEADLINE_S = 20.0
KEY, RANGE_END = b"/ns/XLLM:D", b"/ns/XLLM:T"
QUICK = MirrorSettings(quiet_s=0.3, delivery_s=0.3, backoff_max_s=0.5)


def run(test: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(test, 60))


def client_of(*endpoints: str, **options: Any) -> EtcdClient:
    return EtcdClient(EtcdConfig(endpoints=endpoints, **options))


def key(name: str) -> bytes:
    return b"/ns/XLLM:DECODE:" + name.encode()


async def eventually(
    condition: Callable[[], object], what: str, within: float = DEADLINE_S
) -> float:
    """Waits for the condition; returns how many seconds that took."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    while not condition():
        assert loop.time() - began < within, f"not within {within} s: {what}"
        await asyncio.sleep(0.005)
    return loop.time() - began


class Recorder:
    """Applies events to a world of its own, and holds them to what they promise."""

    def __init__(self) -> None:
        self.events: list[MirrorEvent] = []
        self.batches: list[int] = []
        self.statuses: list[MirrorStatus] = []
        self.world: dict[bytes, bytes] = {}

    def on_events(self, events: Sequence[MirrorEvent]) -> None:
        assert events
        self.events.extend(events)
        self.batches.append(len(events))
        for event in events:
            assert event.prev_value == self.world.get(event.key), event
            if event.kind == "put":
                assert 0 < event.create_revision <= event.mod_revision
                self.world[event.key] = event.value
            else:
                del self.world[event.key]

    def on_status(self, status: MirrorStatus) -> None:
        assert bool(status.error) != status.connected
        self.statuses.append(status)

    def told(self) -> list[tuple[str, bytes]]:
        return [(event.kind, event.key) for event in self.events]


class Following:
    def __init__(self, client: EtcdClient, settings: MirrorSettings) -> None:
        self.client = client
        self.recorder = Recorder()
        self.mirror = EtcdMirror(client, KEY, RANGE_END, self.recorder, settings=settings)

    async def connected(self, within: float = DEADLINE_S) -> float:
        return await eventually(lambda: self.mirror.status.connected, "connected", within)

    async def disconnected(self, within: float = DEADLINE_S) -> float:
        return await eventually(lambda: not self.mirror.status.connected, "disconnected", within)

    async def sees(self, world: dict[bytes, bytes], within: float = DEADLINE_S) -> float:
        took = await eventually(lambda: self.recorder.world == world, f"{world}", within)
        assert {one: kv.value for one, kv in self.mirror.held.items()} == world
        return took


@asynccontextmanager
async def following(
    *endpoints: str, settings: MirrorSettings = QUICK, wait: bool = True, **options: Any
) -> AsyncIterator[Following]:
    async with client_of(*endpoints, **options) as client:
        one = Following(client, settings)
        task = asyncio.create_task(one.mirror.run())
        try:
            if wait:
                await one.connected()
            yield one
            assert not task.done(), task.result()
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
