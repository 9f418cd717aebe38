"""The simulated fleet, as small as it can be: what must hold of any run."""

from __future__ import annotations

from itertools import islice

import kvcache
import pytest
import simulation
from fleet import Fleet, Hardware, TwoTierCache
from traffic import MAX_PROMPT_TOKENS, Traffic

SCALE = simulation.SMOKE
PER_S = SCALE.sessions_per_s[0]
BY_NAME = {(one.name, one.variant): one for one in simulation.contestants()}


def record(name: str, variant: str, seed: int = 1) -> dict[str, object]:
    return simulation.simulate(BY_NAME[name, variant], SCALE, PER_S, seed)


def small_fleet(instances: int = SCALE.instances) -> Fleet:
    policy = kvcache.CacheAware(inflight_correction=True)
    return Fleet(policy, instances, SCALE.hardware)


@pytest.mark.parametrize(("name", "variant"), BY_NAME)
def test_the_same_seed_gives_the_same_figures(name: str, variant: str) -> None:
    first = record(name, variant)
    assert first == record(name, variant)
    assert first != record(name, variant, seed=2)


def test_every_request_is_served_once_and_in_the_order_of_its_session() -> None:
    fleet = small_fleet()
    requests = fleet.run(Traffic(1, SCALE.sessions, PER_S))
    sessions = list(Traffic(1, SCALE.sessions, PER_S))
    assert len(requests) == sum(len(one.turns) for one in sessions)
    assert sum(one.requests for one in fleet.instances) == len(requests)
    turns = [(one.session.begins_at_s, one.turn) for one in requests]
    assert len(set(turns)) == len(requests)
    for one in requests:
        assert 0 <= one.arrived_s <= one.started_s < one.finished_s
        assert 0 <= one.hit_tokens <= one.reachable_tokens <= one.prompt_tokens
    last: dict[float, float] = {}
    for one in requests:
        begins_at_s = one.session.begins_at_s
        assert one.arrived_s >= last.get(begins_at_s, begins_at_s)
        last[begins_at_s] = one.finished_s


def test_an_instance_prefills_one_request_at_a_time() -> None:
    requests = small_fleet().run(Traffic(1, SCALE.sessions, PER_S))
    free_at_s = dict.fromkeys(range(SCALE.instances), 0.0)
    for one in sorted(requests, key=lambda one: one.started_s):
        assert one.started_s >= free_at_s[one.instance]
        free_at_s[one.instance] = one.finished_s


def test_the_index_says_what_the_caches_hold() -> None:
    fleet = small_fleet()
    requests = fleet.run(Traffic(1, SCALE.sessions, PER_S))
    caches = {one.name: one.cache for one in fleet.instances}
    reused = 0
    for request in requests:
        tokens = request.session.tokens[: request.prompt_tokens]
        names = request.session.names[: request.prompt_tokens // fleet.block_size]
        for match in fleet.index.query(tokens):
            device, host_only = caches[match.instance_name].reusable(names)
            assert match.device_hit_tokens == device * fleet.block_size
            assert match.host_only_hit_tokens == host_only * fleet.block_size
            reused += host_only
    assert reused, "nothing ever lay in the Host alone"


def test_with_one_instance_all_policies_agree() -> None:
    scale = SCALE._replace(instances=1, sessions=20)
    found = []
    for one in BY_NAME.values():
        made = simulation.simulate(one, scale, PER_S, seed=1)
        found.append({k: v for k, v in made.items() if k not in {"contestant", "variant"}})
    assert all(one == found[0] for one in found)
    assert found[0]["spread"] == 1.0


def test_the_cache_decides_more_the_larger_lambda_is() -> None:
    rates = [record(name, simulation.REPORTED)["hit_rate"] for name in ("RR", "CAR 0.7")]
    assert rates[0] < rates[1]


def test_traffic_has_shared_beginnings_and_long_prompts() -> None:
    sessions = list(islice(Traffic(1, 400, 5.0), 400))
    assert [one.begins_at_s for one in sessions] == sorted(one.begins_at_s for one in sessions)
    assert max(one.turns[-1].prompt_tokens for one in sessions) <= MAX_PROMPT_TOKENS
    first, second = [one for one in sessions if one.system == sessions[0].system][:2]
    assert first.names[0] == second.names[0]
    assert first.names[-1] != second.names[-1]
    # On average as many as asked for, bursts included.
    assert sessions[-1].begins_at_s == pytest.approx(400 / 5.0, rel=0.5)


def test_least_recently_used_blocks_go_to_the_host_and_then_for_good() -> None:
    cache = TwoTierCache(device_blocks=2, host_blocks=1)
    assert cache.hold([1, 2]).stored == [(0, 2)]
    # The leaf before its parent.
    assert cache.hold([3]) == ([(0, 1)], [2], [2], [])
    assert cache.hold([4]) == ([(0, 1)], [1], [1], [2])
    assert cache.reusable([1, 2]) == (0, 1)
    assert cache.reusable([3, 9]) == (1, 0)
    # Back on the Device it stays in the Host as well, as long as there is room.
    assert cache.hold([1]) == ([(0, 1)], [3], [3], [1])
    # A prompt that does not fit keeps its beginning.
    assert TwoTierCache(1, 0).hold([5, 6]) == ([(0, 1)], [], [], [])


def test_without_a_host_evicted_blocks_are_gone() -> None:
    cache = TwoTierCache(device_blocks=1, host_blocks=0)
    cache.hold([1])
    assert cache.hold([2]) == ([(0, 1)], [], [1], [])
    assert cache.reusable([1]) == (0, 0)


def test_waiting_longer_when_prefills_are_slower() -> None:
    slow = Hardware(*SCALE.hardware)._replace(prefill_tokens_per_s=2_000.0)
    waits = [
        simulation.simulate(BY_NAME["RR", simulation.REPORTED], scale, PER_S, 1)["wait_mean_s"]
        for scale in (SCALE, SCALE._replace(hardware=slow))
    ]
    assert waits[0] < waits[1]
