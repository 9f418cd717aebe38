"""A registry with a clock and an etcd that tests drive by hand."""

from __future__ import annotations

from typing import Any

from kvcache.registry.model import InstanceType, Load, Registration, State
from kvcache.registry.registry import Registry
from kvcache.registry.state import IgnoredReason

A, B, C = "10.0.0.1:8000", "10.0.0.1:8001", "[fd00::1]:8000"
LEGAL = Load(3, 0.5)
ILLEGAL = Load.of({"waiting_requests_num": -1, "gpu_cache_usage_perc": 0.5})


class Clock:
    """Seconds that pass when told to."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


class World:
    """A registry with its clock and an etcd whose revision grows."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.registry = Registry(self.clock)
        self.revision = 0

    def put(self, name: str, incarnation_id: str = "i1", **changes: Any) -> Registration:
        kind = changes.pop("type", InstanceType.DEFAULT)
        registration = Registration(name, kind, incarnation_id=incarnation_id, **changes)
        self.revision += 1
        self.registry.put(self.key(name, kind), registration, self.revision)
        return registration

    def delete(
        self, name: str, previous: Registration | None, kind: InstanceType = InstanceType.DEFAULT
    ) -> IgnoredReason | None:
        self.revision += 1
        return self.registry.delete(self.key(name, kind), previous, self.revision)

    def put_load(self, name: str, load: Load = LEGAL) -> None:
        self.revision += 1
        self.registry.put_load(name, load, self.revision)

    def lose(self, name: str, previous: Registration, *, healthy: bool) -> None:
        assert self.delete(name, previous) is None
        [probe] = self.registry.take_probes()
        assert self.registry.probe_finished(probe.name, probe.generation, healthy)

    def state(self, name: str) -> State | None:
        row = self.registry.snapshot().instances.get(name)
        return row and row.state

    def tick(self, seconds: float = 0.0) -> float | None:
        self.clock.now_s += seconds
        return self.registry.tick(self.clock.now_s)

    @staticmethod
    def key(name: str, kind: InstanceType) -> str:
        return f"XLLM:{kind.name}:{name}"
