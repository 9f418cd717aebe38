"""Whose turn it is among equals (case 30)."""

from __future__ import annotations

import threading
from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st
from kvcache.routing import rotation
from kvcache.routing.rotation import Rotation


def turns(one: Rotation, names: list[str], count: int) -> list[str]:
    return [names[one.take(names, range(len(names)))] for _ in range(count)]


def test_equals_share_exactly() -> None:
    assert turns(Rotation(), ["a", "b", "c"], 6) == ["a", "b", "c", "a", "b", "c"]
    assert set(Counter(turns(Rotation(), ["a", "b", "c"], 300)).values()) == {100}


def test_who_comes_is_next_and_nobody_is_skipped_or_repeated() -> None:
    one = Rotation()
    assert turns(one, ["a", "c"], 1) == ["a"]
    assert turns(one, ["a", "b", "c"], 4) == ["b", "c", "a", "b"]


def test_who_leaves_costs_nobody_a_turn() -> None:
    one = Rotation()
    assert turns(one, ["a", "b", "c", "d"], 2) == ["a", "b"]
    assert turns(one, ["a", "c", "d"], 4) == ["c", "d", "a", "c"]
    assert turns(one, ["a", "b", "c", "d"], 2) == ["b", "d"]


def test_pairs_that_take_turns_are_fair_each() -> None:
    """Going on behind the last name would give a and c every turn."""
    one, names = Rotation(), ["a", "b", "c", "d"]
    chosen = Counter(names[pair[one.take(names, pair)]] for pair in [[0, 1], [2, 3]] * 100)
    assert set(chosen.values()) == {50}


def test_a_single_one_takes_no_turn() -> None:
    one = Rotation()
    assert one.take(["a", "b"], [1]) == 0
    assert turns(one, ["a", "b"], 2) == ["a", "b"]


def test_names_are_forgotten_in_the_end() -> None:
    one, many = Rotation(), [str(number) for number in range(rotation.MAX_REMEMBERED + 10)]
    turns(one, many, len(many))
    assert len(one._turns) <= rotation.MAX_REMEMBERED
    assert set(turns(one, many[:2], 2)) == set(many[:2]), "and it goes on"


def test_threads_share_exactly() -> None:
    one, names = Rotation(), ["a", "b", "c"]
    chosen: list[str] = []

    def work() -> None:
        chosen.extend(names[one.take(names, range(3))] for _ in range(300))

    workers = [threading.Thread(target=work) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert Counter(chosen) == dict.fromkeys(names, 400)


@settings(deadline=None)
@given(st.lists(st.sets(st.sampled_from("abcde"), min_size=1), max_size=60))
def test_nobody_has_two_turns_while_an_equal_waits(memberships: list[set[str]]) -> None:
    one = Rotation()
    waits_since: dict[str, set[str]] = {}
    for members in memberships:
        names = sorted(members)
        chosen = turns(one, names, 1)[0]
        if len(names) == 1:
            continue
        # Whoever was there at the last turn of the chosen one, and still is, had one since.
        assert not (waits_since.get(chosen, set()) & members) - {chosen}
        for waiting in waits_since.values():
            waiting.discard(chosen)
        waits_since[chosen] = members - {chosen}
