"""The router: what it takes, what it keeps, what it counts, and what happens when parts are missing."""

from __future__ import annotations

import gc
import json
import threading
import weakref
from collections import Counter
from typing import TYPE_CHECKING, Any

import kvcache
import pytest
from kvcache import CacheAware, NoInstanceError, RoundRobin, Router
from kvcache.routing.base import Choice, Explanation
from kvcache.routing.counts import RoleCounts
from routing_world import DECODE, PREFILL, PROMPT, A, B, C, World, terms

if TYPE_CHECKING:
    from kvcache.routing.base import Candidates


@pytest.fixture
def world() -> World:
    return World()


class Closed:
    """A directory that was closed."""

    def query(self, _token_ids: object) -> kvcache.Matches:
        raise kvcache.ClosedError("the directory is closed")


# --- what it takes ---------------------------------------------------------------------------------


@pytest.mark.parametrize("directory", [None, Closed(), kvcache.PrefixIndex(block_size=4)])
def test_it_takes_what_a_query_takes_and_counts_tokens(world: World, directory: Any) -> None:
    world.add(A)
    router = Router(directory, world.registry)
    conversation = kvcache.Conversation(4)
    conversation.extend(range(10))
    for prompt, count in (
        ([1, 2, 3], 3),
        (bytes(16), 4),
        (range(5), 5),
        ((number for number in range(5)), 5),
        (conversation, 10),
        (kvcache.block_keys(range(10), 4), 8),
        ([], 0),
    ):
        assert router.route(prompt).token_count == count
    for bad in ([-1], ["1"], "text", None, [1.5]):
        with pytest.raises(kvcache.TokenIdsError):
            router.route(bad)


@pytest.mark.parametrize("directory", [None, Closed()])
def test_without_an_index_every_hit_is_zero_and_it_still_chooses(
    world: World, directory: Any
) -> None:
    world.add(A, waiting=5)
    world.add(B, waiting=3)
    decision = Router(directory, world.registry).route(PROMPT)
    assert (decision.prefill, decision.decode) == (B, None)
    assert terms(decision)[A].no_hits == "there is no index to ask"
    assert (decision.hit_tokens, decision.best_hit_tokens) == (0, 0)


def test_a_directory_that_closes_between_requests(world: World) -> None:
    world.add(A)
    config = kvcache.KvEventsConfig.from_dict({"discovery": {}})
    with kvcache.Directory(config) as directory:
        router = Router(directory, world.registry)
        assert router.route(PROMPT).prefill == A
    assert router.route(PROMPT).prefill == A


def test_keys_of_another_block_size_are_refused(world: World) -> None:
    world.add(A)
    index = kvcache.PrefixIndex(block_size=4)
    index.store(A, [1], [1, 2, 3, 4])
    with pytest.raises(ValueError, match="block"):
        Router(index, world.registry).route(kvcache.block_keys([1, 2], 2))


def test_an_index_has_no_processes_and_so_no_hits(world: World) -> None:
    world.add(A)
    world.hold(A, 8)
    found = terms(Router(world.index, world.registry).route(PROMPT))[A]
    assert (found.kv_hit_ratio, found.device_hit_tokens) == (0.0, 0)
    assert "static stream" in found.no_hits


# --- nothing can serve -------------------------------------------------------------------------------


def test_nothing_can_serve(world: World) -> None:
    router = Router(None, world.registry)
    with pytest.raises(NoInstanceError, match="none is registered") as caught:
        router.route(PROMPT)
    assert isinstance(caught.value, kvcache.KvCacheError)
    world.register(A)
    world.add(B, waiting=-1)
    world.add(C, kind=PREFILL)
    with pytest.raises(NoInstanceError, match="has not reported its load") as caught:
        router.route(PROMPT)
    assert list(caught.value.excluded) == [A, B, C]
    assert "waiting_requests_num" in caught.value.excluded[B]
    assert router.counts().no_instance == 2
    assert not router.decisions()


def test_a_fleet_that_cannot_serve_is_one_short_message(world: World) -> None:
    for number in range(100):
        world.register(f"h:{number + 1}")
    with pytest.raises(NoInstanceError, match=r"and 92 more$") as caught:
        Router(None, world.registry).route(PROMPT)
    assert len(caught.value.excluded) == 100


def test_only_decode_is_not_enough(world: World) -> None:
    world.add(A, kind=DECODE)
    with pytest.raises(NoInstanceError):
        Router(None, world.registry).route(PROMPT)


# --- what it is up to date with ------------------------------------------------------------------------


def test_it_follows_the_registry(world: World) -> None:
    router = Router(None, world.registry)
    world.add(A, waiting=1)
    assert router.route(PROMPT).prefill == A
    world.add(B)
    assert router.route(PROMPT).prefill == B
    world.beat(B, waiting=2)
    assert router.route(PROMPT).prefill == A
    world.suspect(world.register(A))
    assert router.route(PROMPT).prefill == B


def test_a_heartbeat_is_first_for_three_seconds_and_no_longer(world: World) -> None:
    router = Router(None, world.registry)
    world.add(A, waiting=5)
    world.add(B)
    world.beat(B, waiting=9)
    world.clock.now_s += 1.0
    world.report(B, waiting=1)
    assert router.route(PROMPT).prefill == A
    world.clock.now_s += 1.9
    assert router.route(PROMPT).prefill == A
    world.clock.now_s += 0.1
    assert router.route(PROMPT).prefill == B, "without any change in the registry"


def test_candidates_are_one_object_while_nothing_changes(world: World) -> None:
    seen: list[Candidates] = []

    class Watching(RoundRobin):
        def choose(self, candidates: Candidates, token_count: int, matches: Any) -> Choice:
            seen.append(candidates)
            return super().choose(candidates, token_count, matches)

    world.add(A)
    router = Router(world.index, world.registry, Watching())
    for _ in range(3):
        router.route(PROMPT)
    assert seen[0] is seen[1] is seen[2]
    world.report(A, waiting=1)
    router.route(PROMPT)
    assert seen[3] is not seen[0]


# --- what it keeps -------------------------------------------------------------------------------------


def test_the_last_decisions_are_kept_without_tokens(world: World) -> None:
    world.add(A)
    router = Router(world.index, world.registry, decisions_kept=3)
    prompt = bytearray(32)
    kept = weakref.ref(router.route(prompt, "0"))
    for number in range(1, 5):
        router.route(prompt, str(number))
    assert [one.request_id for one in router.decisions()] == ["2", "3", "4"]
    assert router.decision("3") is router.decisions()[1]
    assert router.decision("0") is None
    gc.collect()
    assert kept() is None
    # A buffer that somebody still looks at cannot grow.
    prompt.extend(b"0000")


def test_of_two_decisions_with_one_id_the_last_counts(world: World) -> None:
    world.add(A)
    router = Router(None, world.registry)
    router.route(PROMPT, "r")
    second = router.route([], "r")
    assert router.decision("r") is second


def test_explain_adds_who_could_not_be_chosen(world: World) -> None:
    world.add(A)
    world.register(B)
    router = Router(None, world.registry)
    assert [one.instance_name for one in router.route(PROMPT).candidates] == [A]
    explained = router.route(PROMPT, explain=True)
    assert [one.instance_name for one in explained.candidates] == [A, B]
    assert terms(explained)[B].excluded == "the instance has not reported its load yet"


def test_a_decision_is_json(world: World) -> None:
    world.add(A, waiting=2**64 - 1)
    world.add(B, usage=1.0, kind=DECODE)
    world.register(C)
    shown = json.loads(json.dumps(Router(None, world.registry).route(PROMPT, "r", True).to_dict()))
    assert (shown["policy"], shown["prefill"], shown["decode"]) == ("CAR", A, B)
    assert shown["request_id"] == "r"
    assert shown["prefill_decided_by"] == "only_candidate"
    prefill, decode, excluded = shown["candidates"]
    assert (prefill["role"], prefill["kv_hit_ratio"], prefill["queue_cost"]) == ("prefill", 0, 1)
    assert (prefill["score"], prefill["waiting_requests_num"]) == (1.0, 2**64 - 1)
    assert (decode["role"], decode["gpu_cache_usage_perc"]) == ("decode", 1.0)
    assert excluded["excluded"].startswith("the instance has not")


# --- what it counts ------------------------------------------------------------------------------------


def test_counts_of_prefill_and_decode(world: World) -> None:
    world.add(A)
    router = Router(None, world.registry)
    router.route(PROMPT)
    world.add(B, kind=DECODE)
    router.route(PROMPT)
    counts = router.counts()
    assert counts.policy == "CAR"
    assert counts.prefill == RoleCounts(choices=2, asked_tokens=16)
    assert counts.decode == RoleCounts(choices=1, asked_tokens=8)
    assert counts.shadow is None


def test_a_shadow_is_counted_and_never_decides(world: World) -> None:
    world.add(A, waiting=4)
    world.add(B, waiting=2)
    shadow = CacheAware(prefill_lambda=1.0)
    router = Router(None, world.registry, CacheAware(prefill_lambda=0.0), shadow_policy=shadow)
    assert {router.route(PROMPT).prefill for _ in range(4)} == {B}
    found = router.counts().shadow
    assert found is not None
    assert (found.policy, found.choices, found.failures) == ("CAR", 4, 0)
    assert found.prefill_agreements == 2, "of equals, half"
    assert found.decode_agreements == 4
    assert found.queue_cost_difference == 1.0, "twice a half more"


def test_a_shadow_that_looks_at_others_than_the_policy(world: World) -> None:
    world.register(A)  # without a load
    router = Router(None, world.registry, RoundRobin(), shadow_policy=CacheAware())
    router.route(PROMPT)
    found = router.counts().shadow
    assert found is not None
    assert (found.choices, found.failures) == (0, 1)


class Broken(RoundRobin):
    """Fails on every request."""

    def choose(self, candidates: Candidates, token_count: int, matches: Any) -> Choice:
        del candidates, token_count, matches
        raise RuntimeError("no")


def test_a_shadow_that_fails_costs_no_request(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.add(A)
    router = Router(None, world.registry, shadow_policy=Broken())
    for _ in range(3):
        assert router.route(PROMPT).prefill == A
    found = router.counts().shadow
    assert found is not None
    assert found.failures == 3
    assert len(caplog.records) == 1, "and is told once"


# --- other policies ------------------------------------------------------------------------------------


class Last:
    """The last in the order of names: a policy of somebody else, with the least that one needs."""

    name = "LAST"
    needs_load = False

    def choose(self, candidates: Candidates, token_count: int, matches: Any) -> Choice:
        del token_count, matches
        decode = len(candidates.decode) - 1 if candidates.decode else None
        return Choice(len(candidates.prefill) - 1, decode)

    def explain(
        self, candidates: Candidates, token_count: int, matches: Any, choice: Choice
    ) -> Explanation:
        del candidates, token_count, matches, choice
        return Explanation((), (), "name", "name")


def test_a_policy_of_ones_own(world: World) -> None:
    for name in (A, B):
        world.register(name)
    router = Router(None, world.registry, Last())
    decision = router.route(PROMPT, "r")
    assert (decision.prefill, decision.policy, decision.prefill_decided_by) == (B, "LAST", "name")
    assert not router.begin("r")
    for told in (router.first_token, router.token, router.finish, router.cancel):
        assert not told("r")


# --- many threads --------------------------------------------------------------------------------------


def test_threads_route_while_everything_changes(world: World) -> None:
    names = [f"h:{number}" for number in range(1, 9)]
    for name in names:
        world.add(name)
    world.add(C, kind=DECODE)
    router = Router(
        world.index,
        world.registry,
        CacheAware(inflight_correction=True),
        shadow_policy=RoundRobin(),
        decisions_kept=16,
    )
    done = threading.Event()
    failures: list[BaseException] = []
    chosen: Counter[str] = Counter()

    def route() -> None:
        try:
            while not done.is_set():
                decision = router.route(PROMPT, "r", explain=True)
                chosen[decision.prefill] += 1
                assert decision.prefill in names
                assert router.decisions()[-1].to_dict()["decode"] == C
        except BaseException as error:  # noqa: BLE001 - told below
            failures.append(error)

    workers = [threading.Thread(target=route) for _ in range(3)]
    for worker in workers:
        worker.start()
    for round_ in range(200):
        name = names[round_ % len(names)]
        world.report(name, waiting=round_ % 5)
        world.hold(name, round_ % 8)
        if round_ % 10 == 0:
            world.add(name, incarnation_id=f"i{round_}")
    done.set()
    for worker in workers:
        worker.join()
    assert not failures
    counts = router.counts()
    assert counts.prefill.choices == sum(chosen.values()) > 0
    assert counts.shadow is not None
    assert counts.shadow.choices == counts.prefill.choices
