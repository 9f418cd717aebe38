"""Where requests are, and how far (spec: SLO_AWARE, counters)."""

from __future__ import annotations

import pytest
from kvcache.registry.model import Instance
from kvcache.routing.accounting import Account, Accounts
from routing_world import A, B, World


def instance(name: str, incarnation_id: str = "i1") -> Instance:
    world = World()
    world.register(name, incarnation_id=incarnation_id)
    return world.registry.snapshot().instances[name]


@pytest.fixture
def accounts() -> Accounts:
    return Accounts(max_requests=3)


def begin(accounts: Accounts, request_id: str = "r", prompt_tokens: int = 10) -> None:
    accounts.begin(request_id, prompt_tokens, instance(A), 7.5, instance(B))


def both(accounts: Accounts) -> tuple[Account, Account]:
    return accounts.of(instance(A)), accounts.of(instance(B))


def test_a_whole_life(accounts: Accounts) -> None:
    prefill, decode = both(accounts)
    begin(accounts)
    assert prefill == Account(1, 10, 7.5, 0, 0)
    assert decode == Account(0, 0, 0.0, 1, 10)
    assert accounts.first_token("r")
    assert (prefill, decode) == (Account(), Account(decode_requests=1, decode_tokens=11))
    assert accounts.token("r")
    assert decode.decode_tokens == 12
    assert accounts.cancel("r") == B, "who has nothing left"
    assert (prefill, decode) == (Account(), Account())


def test_a_request_that_ends_before_its_first_token_leaves_both(accounts: Accounts) -> None:
    begin(accounts)
    accounts.cancel("r")
    assert both(accounts) == (Account(), Account())


def test_nothing_is_taken_twice(accounts: Accounts) -> None:
    begin(accounts)
    begin(accounts, "other")
    assert accounts.first_token("r")
    assert not accounts.first_token("r")
    assert accounts.cancel("r") is None, "another request is there"
    assert accounts.cancel("r") is None
    assert not accounts.token("r")
    assert not accounts.first_token("r")
    prefill, decode = both(accounts)
    assert (prefill.prefill_requests, prefill.prefill_ms, decode.decode_requests) == (1, 7.5, 1)


def test_a_token_says_that_the_first_has_been(accounts: Accounts) -> None:
    begin(accounts)
    assert accounts.token("r")
    assert both(accounts)[0].prefill_requests == 0
    assert not accounts.first_token("r")


def test_a_request_that_begins_again_is_there_once(accounts: Accounts) -> None:
    begin(accounts)
    begin(accounts, prompt_tokens=20)
    prefill, decode = both(accounts)
    assert (prefill.prefill_tokens, decode.decode_tokens, decode.decode_requests) == (20, 20, 1)


def test_a_new_process_has_an_account_of_its_own(accounts: Accounts) -> None:
    begin(accounts)
    fresh = accounts.of(instance(B, "i2"))
    assert fresh == Account()
    accounts.cancel("r")
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
    assert accounts.lost_total == 2
    assert both(accounts)[1].decode_requests == 3


def test_a_default_instance_alone_has_no_decode(accounts: Accounts) -> None:
    accounts.begin("r", 10, instance(A), 1.0, None)
    assert accounts.token("r")
    assert accounts.cancel("r") is None
