"""The traffic that the simulated engines serve."""

from __future__ import annotations

from itertools import pairwise

from kvcache.testing import Conversations


def test_conversations_grow_share_and_repeat() -> None:
    traffic = Conversations(
        seed=7, count=5, turns=3, system_prompts=2, system_tokens=16, vocabulary=100, at_once=2
    )
    turns = list(traffic)
    assert turns == list(traffic)
    assert len(turns) == 15
    assert {token < 100 for turn in turns for token in turn.token_ids} == {True}
    assert len({tuple(turn.token_ids[:16]) for turn in turns}) == 2
    for conversation in range(5):
        own = [turn for turn in turns if turn.conversation == conversation]
        assert [turn.turn for turn in own] == [0, 1, 2]
        for earlier, later in pairwise(own):
            assert later.token_ids[: len(earlier.token_ids)] == earlier.token_ids
            assert len(later.token_ids) > len(earlier.token_ids)
    assert [turn.conversation for turn in turns] != sorted(turn.conversation for turn in turns)
    assert list(Conversations(seed=8, count=1)) != list(Conversations(seed=9, count=1))
