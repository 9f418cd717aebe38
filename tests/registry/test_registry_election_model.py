"""Elections against a model of etcd and of a network that does everything wrong: never two masters."""

from __future__ import annotations

import heapq
import itertools
from dataclasses import dataclass, field, replace
from random import Random
from typing import TYPE_CHECKING, Any

from hypothesis import given, settings
from hypothesis import strategies as st
from kvcache.registry.election import LEASE_TTL_S, Election, Keys, Step

if TYPE_CHECKING:
    from collections.abc import Callable

RETRY_S = 0.05
QUIET_S = 25.0


@dataclass(frozen=True)
class Fate:
    """Of one message: how long it is under way, there and back, and what is lost."""

    there_s: float = 0.001
    back_s: float = 0.001
    lost: str = ""
    timeout_s: float = 1.0
    """More than a client waits, where the process stalls meanwhile."""


@dataclass(frozen=True)
class Cut:
    """For some time, the requests or the answers of one replica are lost."""

    node: str
    since_s: float
    for_s: float
    lost: str


@dataclass
class Etcd:
    """Leases and keys; a lease lapses at its time or at a later tick."""

    tick_s: float
    expiry: dict[int, float] = field(default_factory=dict)
    keys: dict[str, int] = field(default_factory=dict)
    revision: int = 1

    def lapse(self, now_s: float) -> None:
        for lease, expiry_s in list(self.expiry.items()):
            if now_s >= expiry_s + self.tick_s:
                del self.expiry[lease]
                self.drop([key for key, under in self.keys.items() if under == lease])

    def drop(self, names: list[str]) -> None:
        for name in names:
            del self.keys[name]
            self.revision += 1

    def put(self, name: str, lease: int) -> None:
        self.keys[name] = lease
        self.revision += 1

    def restart_empty(self) -> None:
        self.expiry.clear()
        self.keys.clear()
        self.revision = 1


@dataclass
class Node:
    name: str
    election: Election = field(default_factory=Election)
    waiting: int = 0
    """Number of the request that is under way; 0 for none."""
    stopped: bool = False


class Simulation:
    """Replicas that follow their elections; time moves from one event to the next."""

    def __init__(self, fates: list[Fate], cuts: list[Cut], tick_s: float) -> None:
        self.fates = iter(fates)
        self.cuts = cuts
        self.etcd = Etcd(tick_s)
        self.nodes = [Node(name) for name in "abc"]
        self.now_s = 0.0
        self.numbers = itertools.count(1)
        self.events: list[tuple[float, int, Callable[[], None]]] = []
        self.masters: set[str] = set()
        self.promised = True
        """etcd keeps every lease for its time."""

    def at(self, time_s: float, action: Callable[[], None]) -> None:
        heapq.heappush(self.events, (time_s, next(self.numbers), action))

    def run(self, until_s: float) -> None:
        for node in self.nodes:
            self.at(self.now_s, lambda node=node: self.drive(node))
        while self.events and self.events[0][0] <= until_s:
            self.now_s, _, action = heapq.heappop(self.events)
            revision = self.etcd.revision
            self.etcd.lapse(self.now_s)
            action()
            self.check()
            if self.etcd.revision != revision:
                self.tell()
        self.now_s = until_s

    def check(self) -> None:
        masters = [node.name for node in self.nodes if node.election.is_master(self.now_s)]
        assert len(masters) <= 1, (self.now_s, masters)
        self.masters.update(masters)
        for node in self.nodes:
            lease = node.election.lease
            if self.promised and node.election.holds_lease(self.now_s):
                assert lease in self.etcd.expiry, (self.now_s, node)

    def fate(self, node: Node) -> Fate:
        fate = next(self.fates, Fate())
        for cut in self.cuts:
            if cut.node == node.name and cut.since_s <= self.now_s < cut.since_s + cut.for_s:
                return replace(fate, lost=cut.lost)
        return fate

    def tell(self) -> None:
        """News of the keys as they are now go to every replica, each in its own time."""
        for node in self.nodes:
            keys, revision = self.keys(node), self.etcd.revision
            fate = self.fate(node)
            if not fate.lost:
                self.at(
                    self.now_s + fate.there_s + fate.back_s,
                    lambda node=node, keys=keys, revision=revision: self.news(node, keys, revision),
                )

    def keys(self, node: Node) -> Keys:
        return Keys(self.etcd.keys.get(node.name), self.etcd.keys.get("master"))

    def news(self, node: Node, keys: Keys, revision: int) -> None:
        node.election = node.election.observed(keys, revision, self.now_s)
        self.drive(node)

    def drive(self, node: Node) -> None:
        if node.waiting or node.stopped:
            return
        step = node.election.step(self.now_s)
        if step is Step.WAIT:
            wake_s = node.election.wake_s(self.now_s)
            assert wake_s > self.now_s
            self.at(wake_s, lambda: self.drive(node))
            return
        node.election = node.election.begun(step, self.now_s)
        node.waiting = number = next(self.numbers)
        self.send(node, step, number, self.fate(node))

    def send(self, node: Node, step: Step, number: int, fate: Fate) -> None:
        sent_s, lease = self.now_s, node.election.lease

        def arrive() -> None:
            answer = self.serve(node, step, lease, number)
            if fate.lost != "answer":
                self.at(self.now_s + fate.back_s, lambda: self.answer(node, number, sent_s, answer))

        if fate.lost != "request":
            self.at(sent_s + fate.there_s, arrive)
        self.at(sent_s + fate.timeout_s, lambda: self.time_out(node, number, step))

    def serve(self, node: Node, step: Step, lease: int, number: int) -> tuple[Any, ...]:
        etcd = self.etcd
        known = lease in etcd.expiry
        if step is Step.GRANT:
            etcd.expiry[number] = self.now_s + LEASE_TTL_S
            return step, number
        if step is Step.RENEW:
            if known:
                etcd.expiry[lease] = self.now_s + LEASE_TTL_S
            return step, LEASE_TTL_S if known else 0
        if step is Step.LOOK:
            return step, self.keys(node), etcd.revision
        if step is Step.CAMPAIGN and "master" in etcd.keys:
            return step, etcd.keys["master"], etcd.revision
        if not known:
            return (None,)
        etcd.put("master" if step is Step.CAMPAIGN else node.name, lease)
        return step, lease, etcd.revision

    def answer(self, node: Node, number: int, sent_s: float, answer: tuple[Any, ...]) -> None:
        if node.waiting != number or node.stopped:
            return
        node.waiting = 0
        election, now_s = node.election, self.now_s
        match answer:
            case (Step.GRANT, lease):
                node.election = election.granted(lease, sent_s)
            case (Step.RENEW, ttl_s):
                node.election = election.renewed(ttl_s, sent_s, now_s)
            case (Step.LOOK, keys, revision):
                node.election = election.looked(keys, revision, now_s)
            case (Step.CAMPAIGN, master, revision):
                node.election = election.campaigned(master, revision, now_s)
            case (Step.REGISTER, _, revision):
                node.election = election.registered_at(revision, now_s)
            case _:
                node.election = election.lost_lease(now_s, RETRY_S)
        self.drive(node)

    def time_out(self, node: Node, number: int, step: Step) -> None:
        if node.waiting == number and not node.stopped:
            node.waiting = 0
            node.election = node.election.failed(step, RETRY_S, self.now_s, ambiguous=True)
            self.drive(node)

    def stop(self, node: Node) -> None:
        """It stops believing, and its lease is revoked when that arrives."""
        lease, node.election, node.stopped = node.election.lease, Election(), True
        self.at(self.now_s + next(self.fates, Fate()).there_s, lambda: self.revoke(lease))

    def revoke(self, lease: int) -> None:
        self.etcd.expiry.pop(lease, None)
        self.etcd.drop([key for key, under in self.etcd.keys.items() if under == lease])


# Of one second, which a client waits; and what only a stalled process or a full queue takes.
DELAYS = (0.001, 0.01, 0.2, 0.45, 0.7, 0.95, 1.5, 2.4, 2.9, 5.0)


def bad_network(random: Random) -> tuple[list[Fate], list[Cut]]:
    """Between rather healthy and hopeless, with cuts that outlast a lease."""
    badness = random.random()
    fates = [
        Fate(
            random.choice(DELAYS) if random.random() < badness else 0.001,
            random.choice(DELAYS) if random.random() < badness else 0.001,
            random.choice(["request", "answer"]) if random.random() < badness / 4 else "",
            3.0 if random.random() < badness / 2 else 1.0,
        )
        for _ in range(random.randrange(200))
    ]
    cuts = [
        Cut(
            random.choice("abc"),
            random.uniform(0, 15),
            random.uniform(0, 8),
            random.choice(["request", "answer"]),
        )
        for _ in range(random.randrange(6))
    ]
    return fates, cuts


@settings(max_examples=500, deadline=None)
@given(
    random=st.randoms(use_true_random=True, note_method_calls=False),
    tick_s=st.sampled_from([0.0, 0.5]),
    stop_s=st.none() | st.floats(0, 12),
)
def test_never_two_masters_and_one_in_the_end(
    random: Random, tick_s: float, stop_s: float | None
) -> None:
    simulation = Simulation(*bad_network(random), tick_s)
    if stop_s is not None:
        simulation.at(stop_s, lambda: simulation.stop(simulation.nodes[0]))
    simulation.run(QUIET_S)
    while next(simulation.fates, None):
        pass
    simulation.run(QUIET_S + 10)
    living = [node.election for node in simulation.nodes if not node.stopped]
    assert sum(election.is_master(simulation.now_s) for election in living) == 1
    assert all(election.registered for election in living)


def test_a_healthy_world_elects_once() -> None:
    simulation = Simulation([], [], 0.5)
    simulation.run(20)
    assert simulation.masters == {"a"}
    # Three puts of own keys, one of the master's.
    assert simulation.etcd.revision == 5


@settings(max_examples=100, deadline=None)
@given(wiped_s=st.floats(2, 6), slow=st.sampled_from("abc"))
def test_an_etcd_that_forgot_everything_has_no_second_master(wiped_s: float, slow: str) -> None:
    """Though one replica hears of it late, and renews late: its answers are lost."""
    simulation = Simulation([], [Cut(slow, wiped_s - 0.5, 3, "answer")], 0.5)
    simulation.at(wiped_s, simulation.etcd.restart_empty)
    simulation.promised = False
    simulation.run(30)
    assert sum(node.election.is_master(simulation.now_s) for node in simulation.nodes) == 1
    assert set(simulation.etcd.keys) == {"a", "b", "c", "master"}
