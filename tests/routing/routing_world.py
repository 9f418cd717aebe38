"""A registry and an index that tests fill by hand, and what a policy makes of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import kvcache
from kvcache.registry.model import InstanceType, Load, Registration
from kvcache.registry.registry import Registry
from kvcache.routing.candidates import candidates_of
from kvcache.routing.decision import Decision

if TYPE_CHECKING:
    from kvcache.routing.base import Candidates, Policy, Terms

A, B, C, D, E = (f"10.0.0.{number}:8000" for number in range(1, 6))
DEFAULT, PREFILL, DECODE, MIX = InstanceType
PROMPT = list(range(8))
"""A block a token."""


class Clock:
    """Seconds that pass when told to."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


class World:
    """Instances, what they hold, and as whom they are followed."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.registry = Registry(self.clock)
        self.index = kvcache.PrefixIndex(block_size=1)
        self.identities: dict[tuple[str, int], str | None] = {}
        """Of followed streams, where it is not that of the registry."""
        self._revision = 0

    def add(
        self,
        name: str,
        waiting: Any = 0,
        usage: Any = 0.0,
        kind: InstanceType = DEFAULT,
        **registration: Any,
    ) -> Registration:
        """Register an instance that has reported its load."""
        registered = self.register(name, kind, **registration)
        self.report(name, waiting, usage)
        return registered

    def register(
        self, name: str, kind: InstanceType = DEFAULT, incarnation_id: str = "i1", **more: Any
    ) -> Registration:
        registration = Registration(name, kind, incarnation_id=incarnation_id, **more)
        self._revision += 1
        self.registry.put(f"XLLM:{kind.name}:{name}", registration, self._revision)
        return registration

    def report(self, name: str, waiting: Any = 0, usage: Any = 0.0) -> None:
        metrics = {"waiting_requests_num": waiting, "gpu_cache_usage_perc": usage}
        self.report_raw(name, metrics)

    def report_raw(self, name: str, metrics: object) -> None:
        self._revision += 1
        self.registry.put_load(name, Load.of(metrics), self._revision)

    def beat(self, name: str, waiting: int = 0, incarnation_id: str = "i1") -> None:
        self.registry.record_heartbeat(name, incarnation_id=incarnation_id, load=Load(waiting, 0.0))

    def suspect(self, registration: Registration) -> None:
        """Its lease lapses, and it does not answer."""
        kind, name = registration.type, registration.name
        self._revision += 1
        self.registry.delete(f"XLLM:{kind.name}:{name}", registration, self._revision)
        [probe] = self.registry.take_probes()
        assert self.registry.probe_finished(probe.name, probe.generation, healthy=False)

    def hold(self, name: str, device: int, host_only: int = 0, rank: int = 0) -> None:
        """The stream holds that many tokens of `PROMPT`: on Device first, then in Host alone."""
        stream, count = (name, rank), device + host_only
        self.index.clear(stream)
        hashes = list(range(1, count + 1))
        if hashes:
            self.index.store(stream, hashes, PROMPT[:count])
        if hashes[device:]:
            self.index.store(stream, hashes[device:], tier="cpu")
            self.index.remove(stream, hashes[device:])

    def candidates(self, *, needs_load: bool = True) -> Candidates:
        matches = self.index.query(PROMPT)
        snapshot = self.registry.snapshot()
        identities = []
        for name, rank in matches.streams:
            row = snapshot.instances.get(name)
            known = None if row is None else row.identity
            identities.append(self.identities.get((name, rank), known))
        return candidates_of(
            snapshot,
            self.clock.now_s,
            matches.streams,
            tuple(identities),
            needs_load=needs_load,
        )

    def decide(
        self, policy: Policy, prompt: list[int] | None = None, request_id: str | None = None
    ) -> Decision:
        """What the policy makes of the world now."""
        matches = self.index.query(PROMPT if prompt is None else prompt)
        candidates = self.candidates(needs_load=policy.needs_load)
        choice = policy.choose(candidates, matches.token_count, matches)
        return Decision(
            policy, candidates, matches.token_count, matches, choice, request_id, True, 0.0
        )


def terms(decision: Decision) -> dict[str, Terms]:
    """By name."""
    return {one.instance_name: one for one in decision.candidates}
