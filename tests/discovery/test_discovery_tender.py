"""The registry's time and probes, in a real loop with real sockets."""

from __future__ import annotations

import asyncio
import socket
import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from kvcache.discovery.tender import RegistryTender
from kvcache.registry.model import InstanceType, Registration, State
from kvcache.registry.registry import Registry

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

DEADLINE_S = 20.0


async def eventually(condition: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, f"not in time: {what}"
        await asyncio.sleep(0.005)


@asynccontextmanager
async def tended(registry: Registry) -> AsyncIterator[RegistryTender]:
    tender = RegistryTender(registry)
    task = asyncio.create_task(tender.run())
    try:
        yield tender
        assert not task.done()
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def put(registry: Registry, name: str) -> None:
    registry.put(f"XLLM:PREFILL:{name}", Registration(name, InstanceType.PREFILL), 1)


def test_a_lost_lease_is_probed_and_time_goes_by() -> None:
    async def test() -> None:
        registry = Registry()
        with socket.create_server(("127.0.0.1", 0)) as nobody:
            name = f"127.0.0.1:{nobody.getsockname()[1]}"
        async with tended(registry) as tender:
            put(registry, name)
            registry.delete(f"XLLM:PREFILL:{name}", None, 2)
            await eventually(
                lambda: registry.snapshot().instances[name].state is State.SUSPECT, "refused"
            )
            assert tender.probes_running == 0

    asyncio.run(test())


def test_flaps_leave_no_queue_of_probes_behind() -> None:
    async def test() -> None:
        registry = Registry()
        # They accept and never answer: each probe takes its time.
        with socket.create_server(("127.0.0.1", 0), backlog=1) as silent:
            port = silent.getsockname()[1]
            names = [f"127.0.0.{host}:{port}" for host in range(1, 101)]
            async with tended(registry) as tender:
                for _ in range(50):
                    for name in names:
                        put(registry, name)
                        registry.delete(f"XLLM:PREFILL:{name}", None, 2)
                    await asyncio.sleep(0.001)
                    assert tender.probes_running <= 10 * len(names)
                for name in names:
                    put(registry, name)
                await eventually(lambda: tender.probes_running == 0, "cancelled at once")
            states = {one.state for one in registry.snapshot().instances.values()}
            assert states == {State.ACTIVE}

    asyncio.run(test())
