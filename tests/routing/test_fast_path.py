"""The core's choice is that of the formula, bit for bit: `CandidateCosts` beside the pure functions."""

from __future__ import annotations

import math

import kvcache
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kvcache import CacheAware, _core
from kvcache.routing.reuse import hit_ratio, reuses
from kvcache.routing.scores import cheapest, prefill_score, queue_costs
from routing_world import PROMPT, World

weights = st.one_of(st.sampled_from([0.0, 0.1, 0.3, 0.5, 1.0]), st.floats(0, 1))
holdings = st.tuples(st.integers(0, 8), st.integers(0, 8)).filter(lambda pair: sum(pair) <= 8)
instances = st.tuples(
    st.lists(st.one_of(st.none(), holdings), min_size=1, max_size=3),
    st.one_of(st.integers(0, 5), st.integers(0, 2**64 - 1)),
)


@settings(deadline=None)
@given(st.lists(instances, min_size=1, max_size=6), weights, weights, st.integers(0, 9))
def test_the_core_and_the_formula_agree(
    fleet: list[tuple[list[tuple[int, int] | None], int]],
    lam: float,
    host_hit_weight: float,
    asked: int,
) -> None:
    world = World()
    for number, (ranks, waiting) in enumerate(fleet):
        world.add(f"e{number}", waiting=waiting, dp_size=len(ranks))
        for rank, held in enumerate(ranks):
            if held is not None:
                world.hold(f"e{number}", *held, rank=rank)
    prompt = [*PROMPT, 99][:asked]
    matches = world.index.query(prompt)
    candidates = world.candidates()
    policy = CacheAware(lam, host_hit_weight)
    tied, hits, best = policy._prepare(candidates).cheapest(matches)
    ratios = [one.ratio for one in reuses(candidates, matches, host_hit_weight)]
    queue = queue_costs([waiting for _, waiting in fleet])
    scores = [prefill_score(lam, *pair) for pair in zip(ratios, queue, strict=True)]
    assert tied == cheapest(scores)
    held = [min([sum(rank) if rank else 0 for rank in _asked(ranks, asked)]) for ranks, _ in fleet]
    assert candidates.hit_tokens(matches) == held
    assert hits == [held[place] for place in tied]
    assert best == max(held)
    choice = policy.choose(candidates, len(prompt), matches)
    explained = policy.explain(candidates, len(prompt), matches, choice)
    assert [one.score for one in explained.prefill] == scores
    assert choice.prefill in tied
    # Without an index: the formula at no hits.
    cold = [prefill_score(lam, 0.0, cost) for cost in queue]
    assert policy.choose(candidates, len(prompt), None).prefill in cheapest(cold)


def _asked(ranks: list[tuple[int, int] | None], asked: int) -> list[tuple[int, int] | None]:
    """Of what each rank holds, that of the first `asked` tokens; nothing at all if a rank is missing."""
    if None in ranks:
        return [None]
    return [
        (min(device, asked), max(0, min(device + host, asked) - device))
        for device, host in filter(None, ranks)
    ]


@settings(deadline=None)
@given(st.integers(0, 200), st.integers(0, 200), st.integers(0, 300), weights)
def test_the_ratio_is_never_outside_0_and_1(
    device: int, host: int, tokens: int, weight: float
) -> None:
    assert 0.0 <= hit_ratio(device, host, tokens, weight) <= 1.0


def index_of(*held: int) -> kvcache.PrefixIndex:
    index = kvcache.PrefixIndex(block_size=1)
    for number, blocks in enumerate(held):
        index.store(str(number), list(range(1, blocks + 1)), PROMPT[:blocks])
    return index


def test_places_beyond_the_answer_hold_nothing() -> None:
    costs = _core.CandidateCosts(
        [[0], [7], [0, 7]], [0.0] * 3, miss_weight=1.0, host_hit_weight=0.5
    )
    assert costs.cheapest(index_of(4).query(PROMPT)) == ([0], [4], 4)
    assert costs.cheapest(kvcache.PrefixIndex().query(PROMPT)) == ([0, 1, 2], [0, 0, 0], 0)


def test_what_cannot_be_compared_is_never_the_cheapest() -> None:
    costs = _core.CandidateCosts(
        [[], [], []], [math.nan, 2.0, math.nan], miss_weight=0.5, host_hit_weight=0.5
    )
    assert costs.cheapest(index_of(1).query(PROMPT)) == ([1], [0], 0)


def test_other_base_costs() -> None:
    costs = _core.CandidateCosts([[0], [1]], [0.0, 0.0], miss_weight=0.5, host_hit_weight=0.5)
    matches = index_of(8, 4).query(PROMPT)
    assert costs.cheapest(matches)[0] == [0]
    assert costs.with_base_costs([0.25, 0.0]).cheapest(matches)[0] == [0, 1]
    assert costs.cheapest(matches)[0] == [0], "and it is not changed"
    assert len(costs) == 2
    with pytest.raises(ValueError, match="2 candidates need as many base costs, not: 1"):
        costs.with_base_costs([0.0])
    with pytest.raises(ValueError, match="1 candidates need as many base costs, not: 0"):
        _core.CandidateCosts([[0]], [], miss_weight=0.5, host_hit_weight=0.5)


# --- token counts ------------------------------------------------------------------------------------


def test_an_answer_knows_how_many_tokens_were_asked_about() -> None:
    index = kvcache.PrefixIndex(block_size=4)
    conversation = kvcache.Conversation(4)
    conversation.extend(range(10))
    for prompt, count in (
        (list(range(10)), 10),
        (tuple(range(3)), 3),
        (bytes(16), 4),
        (bytearray(16), 4),
        (memoryview(bytes(16)), 4),
        (memoryview(bytes(16)).cast("I"), 4),
        ((number for number in range(5)), 5),
        ([], 0),
        (conversation, 10),
        (kvcache.block_keys(range(10), 4), 8),
    ):
        assert index.query(prompt).token_count == count, prompt


def test_tokens_are_counted_without_an_index_too() -> None:
    assert _core.token_count(bytes(16)) == 4
    assert _core.token_count(kvcache.block_keys(range(10), 4)) == 8
    with pytest.raises(kvcache.TokenIdsError, match=r"token_ids\[1\]"):
        _core.token_count([1, -1])
