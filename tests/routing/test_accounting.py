"""Where requests are, and how far (spec: SLO_AWARE, counters)."""

from __future__ import annotations

import pytest
from kvcache.registry.model import Instance
from kvcache.routing.accounting import Account, Accounts
from kvcache.routing.counts import AccountingCounts
from kvcache.routing.ends import Ends
from routing_world import A, B, World


def instance(name: str, incarnation_id: str = "i1") -> Instance:
    world = World()
    world.register(name, incarnation_id=incarnation_id)
    return world.registry.snapshot().instances[name]


@pytest.fixture
def accounts() -> Accounts:
    return Accounts(max_requests=3, silence_s=100.0, ends=Ends(max_ends=3, age_s=10.0))


def begin(
    accounts: Accounts,
    request_id: str = "r",
    prompt_tokens: int = 10,
    choice: int = 1,
    now_s: float = 0.0,
) -> bool:
    a, b = instance(A), instance(B)
    return accounts.begin(request_id, prompt_tokens, a, 7.5, b, choice, now_s)


def both(accounts: Accounts) -> tuple[Account, Account]:
    return accounts.of(instance(A)), accounts.of(instance(B))


def test_a_whole_life(accounts: Accounts) -> None:
    prefill, decode = both(accounts)
    begin(accounts)
    assert prefill == Account(1, 10, 7.5, 0, 0)
    assert decode == Account(0, 0, 0.0, 1, 10)
    assert accounts.first_token("r", 0.0)
    assert (prefill, decode) == (Account(), Account(decode_requests=1, decode_tokens=11))
    assert accounts.token("r", 0.0)
    assert decode.decode_tokens == 12
    assert accounts.end("r", 0.0)
    assert accounts.take_idle() == [B], "who has nothing left"
    assert accounts.take_idle() == []
    assert (prefill, decode) == (Account(), Account())


def test_a_request_that_ends_before_its_first_token_leaves_both(accounts: Accounts) -> None:
    begin(accounts)
    accounts.end("r", 0.0)
    assert both(accounts) == (Account(), Account())


def test_nothing_is_taken_twice(accounts: Accounts) -> None:
    begin(accounts)
    begin(accounts, "other")
    assert accounts.first_token("r", 0.0)
    assert not accounts.first_token("r", 0.0)
    assert accounts.end("r", 0.0)
    assert not accounts.end("r", 0.0)
    assert accounts.take_idle() == [], "another request is there"
    assert not accounts.token("r", 0.0)
    assert not accounts.first_token("r", 0.0)
    prefill, decode = both(accounts)
    assert (prefill.prefill_requests, prefill.prefill_ms, decode.decode_requests) == (1, 7.5, 1)


def test_a_token_says_that_the_first_has_been(accounts: Accounts) -> None:
    begin(accounts)
    assert accounts.token("r", 0.0)
    assert both(accounts)[0].prefill_requests == 0
    assert not accounts.first_token("r", 0.0)


def test_a_request_that_begins_again_is_there_once(accounts: Accounts) -> None:
    begin(accounts)
    begin(accounts, prompt_tokens=20)
    prefill, decode = both(accounts)
    assert (prefill.prefill_tokens, decode.decode_tokens, decode.decode_requests) == (20, 20, 1)


def test_a_new_process_has_an_account_of_its_own(accounts: Accounts) -> None:
    begin(accounts)
    fresh = accounts.of(instance(B, "i2"))
    assert fresh == Account()
    accounts.end("r", 0.0)
    assert (fresh, both(accounts)[1]) == (Account(), Account())


def test_only_who_is_there_is_kept(accounts: Accounts) -> None:
    begin(accounts)
    accounts.keep({A: None, B: "incarnation i1"})
    assert both(accounts)[1].decode_requests == 1
    accounts.keep({A: None, B: "incarnation i2"})
    prefill, decode = both(accounts)
    assert (prefill.prefill_requests, decode.decode_requests) == (1, 0)


def test_requests_of_which_no_end_is_told_are_bounded(accounts: Accounts) -> None:
    for number in range(5):
        begin(accounts, str(number))
    assert accounts.counts() == AccountingCounts(requests=3, displaced=2)
    assert both(accounts)[1].decode_requests == 3


def test_a_default_instance_alone_has_no_decode(accounts: Accounts) -> None:
    accounts.begin("r", 10, instance(A), 1.0, None, 1, 0.0)
    assert accounts.token("r", 0.0)
    assert accounts.end("r", 0.0)


# --- out of order, or not at all ----------------------------------------------------


def test_a_begin_after_its_end_enters_nothing(accounts: Accounts) -> None:
    assert not accounts.end("r", 0.0)
    assert accounts.counts() == AccountingCounts(ends_remembered=1)
    assert not begin(accounts, now_s=1.0)
    assert both(accounts) == (Account(), Account())
    assert accounts.counts() == AccountingCounts(ends_remembered=1, late_begins=1)


def test_a_begin_that_is_told_again_after_the_end_enters_nothing(accounts: Accounts) -> None:
    begin(accounts)
    accounts.end("r", 0.0)
    assert not begin(accounts)
    accounts.end("r", 0.0)
    assert not begin(accounts)
    assert both(accounts) == (Account(), Account())


@pytest.mark.parametrize("begun", [True, False])
def test_another_try_under_the_same_id_begins(accounts: Accounts, begun: bool) -> None:
    if begun:
        begin(accounts)
    accounts.end("r", 0.0)
    if not begun:
        assert not begin(accounts)
    accounts.end("r", 0.0)
    assert begin(accounts, choice=2)
    assert both(accounts)[1].decode_requests == 1


def test_an_end_is_remembered_for_as_long_as_its_age_allows(accounts: Accounts) -> None:
    for request_id in ("young", "old"):
        accounts.end(request_id, 0.0)
    assert not begin(accounts, "young", now_s=9.9)
    assert begin(accounts, "old", now_s=10.0)
    assert accounts.counts().ends_remembered == 0


def test_an_end_told_twice_is_no_younger(accounts: Accounts) -> None:
    accounts.end("r", 0.0)
    accounts.end("r", 9.0)
    assert begin(accounts, now_s=10.0)


def test_ends_are_bounded_and_the_oldest_goes(accounts: Accounts) -> None:
    for number in range(10_000):
        accounts.end(str(number), 0.0)
    assert accounts.counts().ends_remembered == 3
    assert [begin(accounts, str(number)) for number in (9996, 9997, 9999)] == [True, False, False]


def test_a_request_that_nobody_ends_ages_out(accounts: Accounts) -> None:
    begin(accounts)
    accounts.lapse(99.9)
    assert accounts.counts().requests == 1
    accounts.lapse(100.0)
    assert accounts.counts() == AccountingCounts(aged_out=1)
    assert both(accounts) == (Account(), Account())
    assert accounts.take_idle() == [B]
    assert not accounts.token("r", 100.0)


def test_a_request_that_is_heard_of_does_not_age(accounts: Accounts) -> None:
    for request_id in ("heard", "silent"):
        begin(accounts, request_id)
    accounts.first_token("heard", 50.0)
    accounts.token("heard", 120.0)
    accounts.lapse(150.0)
    assert accounts.counts() == AccountingCounts(requests=1, aged_out=1)
    accounts.lapse(220.0)
    assert accounts.counts() == AccountingCounts(aged_out=2)


def test_the_one_that_is_silent_the_longest_makes_room(accounts: Accounts) -> None:
    for request_id in "abc":
        begin(accounts, request_id)
    accounts.token("a", 1.0)
    begin(accounts, "d")
    assert accounts.token("a", 1.0)
    assert not accounts.token("b", 1.0)


def test_begins_without_ends_are_bounded_whoever_sends_them(accounts: Accounts) -> None:
    a, b = instance(A), instance(B)
    for number in range(10_000):
        accounts.begin(str(number), 10, a, 7.5, b, number, 0.0)
    assert accounts.counts() == AccountingCounts(requests=3, displaced=9_997)
    assert both(accounts)[1].decode_requests == 3
