"""`RegistryTender`: gives a registry its time and its probes, in one event loop.

The registry is sans I/O: it says when it wants to be told the time and whom it wants probed. This task
does both, and wakes whenever something changed, in whatever thread.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import TYPE_CHECKING

from kvcache.registry.health import HealthProbe

if TYPE_CHECKING:
    from collections.abc import Callable

    from kvcache.registry.registry import Probe, Registry

__all__ = ["RegistryTender"]


class RegistryTender:
    """Tends one registry for as long as `run` is not cancelled. `clock` is the registry's."""

    def __init__(self, registry: Registry, clock: Callable[[], float] = time.monotonic) -> None:
        self._registry = registry
        self._clock = clock
        self._running: dict[Probe, asyncio.Task[None]] = {}

    @property
    def probes_running(self) -> int:
        """Probes that wait or are under way."""
        return len(self._running)

    async def run(self) -> None:
        """Tick at every deadline and run every wanted probe, until cancelled."""
        loop = asyncio.get_running_loop()
        changed = asyncio.Event()

        def wake() -> None:
            # A change may still be told while the loop ends.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(changed.set)

        unsubscribe = self._registry.subscribe(wake)
        try:
            async with HealthProbe() as health, asyncio.TaskGroup() as probes:
                while True:
                    changed.clear()
                    deadline = self._registry.tick(self._clock())
                    self._drop_cancelled()
                    for probe in self._registry.take_probes():
                        self._running[probe] = probes.create_task(self._probe(health, probe))
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(self._left_s(deadline)):
                            await changed.wait()
        finally:
            unsubscribe()

    def _left_s(self, deadline: float | None) -> float | None:
        return None if deadline is None else max(0.0, deadline - self._clock())

    def _drop_cancelled(self) -> None:
        """A fleet that flaps faster than it can be probed must not leave a queue of probes behind."""
        for probe, task in self._running.items():
            if not self._registry.wants_probe(probe.name, probe.generation):
                task.cancel()

    async def _probe(self, health: HealthProbe, probe: Probe) -> None:
        try:
            healthy = await health.is_alive(probe.name)
        finally:
            del self._running[probe]
        self._registry.probe_finished(probe.name, probe.generation, healthy)
