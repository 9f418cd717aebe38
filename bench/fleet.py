"""A fleet of simulated instances on a clock of its own: no sockets, no threads, no waiting.

Each instance has a queue of prefills, one at a time, and a cache of two tiers; what changes in the cache is told to a
real `kvcache.PrefixIndex`, and every few seconds it reports its load to a real `kvcache.Registry`. Who serves a request is
decided by a policy of `kvcache`, as a router asks it.
"""

from __future__ import annotations

import heapq
from collections import OrderedDict, deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import kvcache
from kvcache.registry.model import InstanceType, Load, Registration
from kvcache.routing.candidates import candidates_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from kvcache.registry.snapshot import RegistrySnapshot
    from kvcache.routing.base import Candidates, Policy
    from traffic import Session, Tokens

INCARNATION = "i1"


class Hardware(NamedTuple):
    """What an instance can do."""

    device_blocks: int = 2048
    host_blocks: int = 4096
    overhead_s: float = 0.02
    """Of every prefill."""
    prefill_tokens_per_s: float = 12_000.0
    load_tokens_per_s: float = 120_000.0
    """From Host memory to the Device."""
    decode_tokens_per_s: float = 50.0
    """Of one answer; decoding never has to wait here."""
    report_interval_s: float = 3.0


class Changed(NamedTuple):
    """What a prefill did to a cache: in this order it can be told."""

    stored: list[tuple[int, int]]
    """Blocks of the prompt that are new on the Device, from and to."""
    offloaded: list[int]
    """Copied to the Host."""
    dropped: list[int]
    """From the Device."""
    host_dropped: list[int]


class TwoTierCache:
    """Least recently used blocks go from the Device to the Host, and from there for good."""

    def __init__(self, device_blocks: int, host_blocks: int) -> None:
        self._device_blocks, self._host_blocks = device_blocks, host_blocks
        # Oldest first. A prompt is touched from its leaf to its root, so that no parent is older than its children.
        self.device: OrderedDict[int, None] = OrderedDict()
        self.host: OrderedDict[int, None] = OrderedDict()

    def reusable(self, names: Sequence[int]) -> tuple[int, int]:
        """Leading blocks of a prompt that are on the Device, and those that are only in the Host."""
        device = host_only = 0
        for name in names:
            if name in self.device:
                device += 1
            elif name in self.host:
                host_only += 1
            else:
                break
        return device, host_only

    def hold(self, names: Sequence[int]) -> Changed:
        """Have a prompt's blocks on the Device, as far as they fit."""
        names = names[: self._device_blocks]
        device, host = self.device, self.host
        stored = _runs([place for place, name in enumerate(names) if name not in device])
        for name in reversed(names):
            device[name] = None
            device.move_to_end(name)
            if name in host:
                host.move_to_end(name)
        dropped = [device.popitem(last=False)[0] for _ in range(len(device) - self._device_blocks)]
        offloaded = [name for name in dropped if name not in host] if self._host_blocks else []
        for name in dropped if self._host_blocks else ():
            host[name] = None
            host.move_to_end(name)
        host_dropped = [host.popitem(last=False)[0] for _ in range(len(host) - self._host_blocks)]
        return Changed(stored, offloaded, dropped, host_dropped)


def _runs(places: Iterable[int]) -> list[tuple[int, int]]:
    runs: list[tuple[int, int]] = []
    for place in places:
        if runs and runs[-1][1] == place:
            runs[-1] = (runs[-1][0], place + 1)
        else:
            runs.append((place, place + 1))
    return runs


@dataclass(slots=True)
class Request:
    """One turn of one session, and what became of it. Times are seconds of the simulation."""

    session: Session
    turn: int
    arrived_s: float
    instance: int = -1
    started_s: float = -1.0
    finished_s: float = -1.0
    device_tokens: int = 0
    host_only_tokens: int = 0
    reachable_tokens: int = 0
    """That any earlier prompt had: no fleet could reuse more."""

    @property
    def prompt_tokens(self) -> int:
        return self.session.turns[self.turn].prompt_tokens

    @property
    def hit_tokens(self) -> int:
        return self.device_tokens + self.host_only_tokens

    @property
    def wait_s(self) -> float:
        return self.started_s - self.arrived_s


@dataclass(slots=True)
class Instance:
    """A queue and a cache."""

    name: str
    cache: TwoTierCache
    queue: deque[Request] = field(default_factory=deque)
    running: Request | None = None
    requests: int = 0
    since_report: int = 0
    """Requests sent here since its last report."""
    largest_burst: int = 0
    """The most that ever came from one report to the next."""


class Chooser:
    """Asks a policy as `kvcache.Router` does: index, registry, policy.

    Not a `Router`, for an index that no directory fills does not say as which process a stream is followed, and hits
    count only for the process that is registered.
    """

    def __init__(
        self, policy: Policy, index: kvcache.PrefixIndex, registry: kvcache.Registry
    ) -> None:
        self._policy = policy
        self._index = index
        self._registry = registry
        self._snapshot: RegistrySnapshot | None = None
        self._streams: tuple[tuple[str, int], ...] | None = None
        self._candidates: Candidates | None = None

    def choose(self, tokens: Tokens) -> str:
        """Name of the instance that serves a prompt."""
        matches = self._index.query(tokens)
        snapshot = self._registry.snapshot()
        candidates = self._candidates
        if (
            candidates is None
            or snapshot is not self._snapshot
            or matches.streams is not self._streams
        ):
            identities = (f"incarnation {INCARNATION}",) * len(matches.streams)
            candidates = candidates_of(
                snapshot,
                self._registry.now_s(),
                matches.streams,
                identities,
                needs_load=self._policy.needs_load,
            )
            self._snapshot, self._streams = snapshot, matches.streams
            self._candidates = candidates
        choice = self._policy.choose(candidates, matches.token_count, matches)
        return candidates.prefill_names[choice.prefill]


class Fleet:
    """Instances, the events to come, and everything that happened."""

    def __init__(
        self, policy: Policy, instances: int, hardware: Hardware, block_size: int = 128
    ) -> None:
        self.hardware = hardware
        self.block_size = block_size
        self.now_s = 0.0
        self.index = kvcache.PrefixIndex(block_size)
        self.registry = kvcache.Registry(lambda: self.now_s)
        self.chooser = Chooser(policy, self.index, self.registry)
        self.instances = [
            Instance(
                f"10.0.{number // 256}.{number % 256}:8000",
                TwoTierCache(hardware.device_blocks, hardware.host_blocks),
            )
            for number in range(instances)
        ]
        self.requests: list[Request] = []
        self._numbers = {one.name: number for number, one in enumerate(self.instances)}
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._planned = 0
        self._open = 0
        self._seen: set[int] = set()

    def run(self, traffic: Iterable[Session]) -> list[Request]:
        """Serve all sessions; every request, in the order of arrival."""
        begins = iter(traffic)
        self._register()
        self._begin_next(begins)
        while self._events:
            self.now_s, _, happen = heapq.heappop(self._events)
            happen()
        return self.requests

    def _at(self, time_s: float, happen: Callable[[], None]) -> None:
        """In the order of times; at one time in the order of planning."""
        self._planned += 1
        heapq.heappush(self._events, (time_s, self._planned, happen))

    def _register(self) -> None:
        count = len(self.instances)
        for number, one in enumerate(self.instances):
            registration = Registration(one.name, InstanceType.DEFAULT, incarnation_id=INCARNATION)
            self.registry.put(f"XLLM:DEFAULT:{one.name}", registration, number + 1)
            self._tell_load(one)
            # Not all at once: each has a beat of its own.
            first_s = self.hardware.report_interval_s * (number + 1) / count
            self._at(first_s, lambda one=one: self._report(one))

    def _tell_load(self, one: Instance) -> None:
        load = Load(len(one.queue), len(one.cache.device) / self.hardware.device_blocks)
        self.registry.record_heartbeat(one.name, incarnation_id=INCARNATION, load=load)

    def _report(self, one: Instance) -> None:
        self._tell_load(one)
        one.since_report = 0
        if self._open:
            again_s = self.now_s + self.hardware.report_interval_s
            self._at(again_s, lambda: self._report(one))

    def _begin_next(self, sessions: Iterable[Session]) -> None:
        """One at a time: the next one is made when this one begins."""
        session = next(iter(sessions), None)
        if session is None:
            return
        self._open += 1

        def begin() -> None:
            self._begin_next(sessions)
            self._arrive(session, 0)

        self._at(session.begins_at_s, begin)

    def _arrive(self, session: Session, turn: int) -> None:
        request = Request(session, turn, self.now_s)
        self.requests.append(request)
        self._note_reachable(request)
        number = self._numbers[self.chooser.choose(session.tokens[: request.prompt_tokens])]
        request.instance = number
        one = self.instances[number]
        one.requests += 1
        one.since_report += 1
        one.largest_burst = max(one.largest_burst, one.since_report)
        one.queue.append(request)
        if one.running is None:
            self._start(one)

    def _note_reachable(self, request: Request) -> None:
        names = self._names(request)
        known = next((at for at, name in enumerate(names) if name not in self._seen), len(names))
        self._seen.update(names[known:])
        request.reachable_tokens = known * self.block_size

    def _names(self, request: Request) -> list[int]:
        return request.session.names[: request.prompt_tokens // self.block_size]

    def _start(self, one: Instance) -> None:
        request = one.queue.popleft()
        one.running = request
        request.started_s = self.now_s
        device, host_only = one.cache.reusable(self._names(request))
        request.device_tokens = device * self.block_size
        request.host_only_tokens = host_only * self.block_size
        hardware = self.hardware
        service_s = (
            hardware.overhead_s
            + (request.prompt_tokens - request.hit_tokens) / hardware.prefill_tokens_per_s
            + request.host_only_tokens / hardware.load_tokens_per_s
        )
        self._at(self.now_s + service_s, lambda: self._finish(one, request))

    def _finish(self, one: Instance, request: Request) -> None:
        request.finished_s = self.now_s
        self._publish(one, request)
        one.running = None
        if one.queue:
            self._start(one)
        session, turn = request.session, request.session.turns[request.turn]
        if request.turn + 1 == len(session.turns):
            self._open -= 1
            return
        answered_s = self.now_s + turn.answer_tokens / self.hardware.decode_tokens_per_s
        self._at(answered_s + turn.think_s, lambda: self._arrive(session, request.turn + 1))

    def _publish(self, one: Instance, request: Request) -> None:
        """Tell the index what this prefill changed, as the instance's events would."""
        names, tokens, size = self._names(request), request.session.tokens, self.block_size
        changed = one.cache.hold(names)
        for begin, end in changed.stored:
            parent = names[begin - 1] if begin else None
            self.index.store(
                one.name, names[begin:end], tokens[begin * size : end * size], parent=parent
            )
        if changed.offloaded:
            self.index.store(one.name, changed.offloaded, tier="cpu")
        if changed.dropped:
            self.index.remove(one.name, changed.dropped)
        if changed.host_dropped:
            self.index.remove(one.name, changed.host_dropped, tier="cpu")
