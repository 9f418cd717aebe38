"""What a replica believes of its lease and its election, step by step."""

from __future__ import annotations

import pytest
from kvcache.registry.election import LEASE_TTL_S, MARGIN_S, RENEW_S, Election, Keys, Step


def registered(lease: int = 7) -> Election:
    election = Election()
    assert election.step(0) is Step.GRANT
    election = election.granted(lease, 0)
    assert election.step(0) is Step.REGISTER
    return election.registered_at(10, 0)


def elected(lease: int = 7) -> Election:
    election = registered(lease)
    assert election.step(0) is Step.CAMPAIGN
    election = election.begun(Step.CAMPAIGN, 0).campaigned(lease, 11, 0)
    assert election.step(0) is Step.WAIT
    return election


def test_a_lease_is_believed_since_its_request_was_sent() -> None:
    election = elected()
    assert election.wake_s(0) == RENEW_S == LEASE_TTL_S / 3
    last = LEASE_TTL_S - MARGIN_S
    assert election.is_master(last - 0.01)
    assert not election.is_master(last)
    renewed = election.renewed(LEASE_TTL_S, sent_s=1.0, now_s=1.9)
    assert renewed.is_master(1.0 + last - 0.01)
    assert not renewed.is_master(1.0 + last)
    assert renewed.wake_s(1.9) == 2.0
    assert renewed.step(2.0) is Step.RENEW
    # An answer that says less is taken at its word, and one that says more is not.
    assert not election.renewed(1, 3.0, 3.1).holds_lease(3.5)
    assert not election.renewed(60, 3.0, 3.1).holds_lease(3.0 + last)


def test_whose_belief_lapsed_reads_the_keys_before_it_is_master_again() -> None:
    late = elected().renewed(LEASE_TTL_S, sent_s=2.0, now_s=2.6)
    assert late.holds_lease(2.6)
    assert not late.is_master(2.6)
    assert late.step(2.6) is Step.LOOK
    looking = late.begun(Step.LOOK, 2.6)
    assert looking.looked(Keys(7, 7), 20, 2.7).is_master(2.7)
    lost = looking.looked(Keys(7, 8), 20, 2.7)
    assert not lost.is_master(2.7)
    assert lost.step(2.7) is Step.WAIT
    assert looking.looked(Keys(7, None), 20, 2.7).step(2.7) is Step.CAMPAIGN


def test_while_the_lease_is_in_doubt_only_its_renewal_is_tried() -> None:
    election = elected().failed(Step.RENEW, 0.4, 2.6, ambiguous=False)
    assert not election.is_master(2.6)
    assert election.step(2.7) is Step.WAIT
    assert election.wake_s(2.7) == 3.0
    assert election.step(3.0) is Step.RENEW
    gone = election.renewed(0, 3.0, 3.1)
    assert (gone.lease, gone.elected, gone.registered) == (0, False, False)
    assert gone.step(3.1) is Step.GRANT


def test_whose_lease_is_gone_lets_the_master_of_a_lost_etcd_go_first() -> None:
    election = registered().renewed(0, 1.0, 1.1).granted(8, 1.2).registered_at(2, 1.2)
    assert election.step(1.2) is Step.WAIT
    assert election.wake_s(1.2) == 1.2 + RENEW_S
    # Whoever was told of its lease by the lost etcd, at 1.1 at the latest, believes it no more then.
    assert election.campaign_s == pytest.approx(1.1 + LEASE_TTL_S - MARGIN_S)
    election = election.renewed(LEASE_TTL_S, 2.2, 2.2).renewed(LEASE_TTL_S, 3.2, 3.2)
    assert election.wake_s(3.2) == election.campaign_s
    assert election.step(election.campaign_s) is Step.CAMPAIGN


def test_a_failing_step_waits_and_never_keeps_the_lease_from_being_renewed() -> None:
    election = registered().failed(Step.CAMPAIGN, 5, 0.1, ambiguous=False)
    assert election.step(0.2) is Step.WAIT
    assert election.wake_s(0.2) == RENEW_S
    assert election.step(RENEW_S) is Step.RENEW
    election = election.renewed(LEASE_TTL_S, 1.0, 1.0)
    assert (election.step(1.5), election.wake_s(1.5)) == (Step.WAIT, 2.0)
    election = registered().failed(Step.CAMPAIGN, 0.5, 0.1, ambiguous=False)
    assert election.step(0.7) is Step.CAMPAIGN


def test_after_an_ambiguous_campaign_the_keys_are_read() -> None:
    election = registered().begun(Step.CAMPAIGN, 0.1)
    election = election.failed(Step.CAMPAIGN, 0.25, 0.25, ambiguous=True)
    assert not election.is_master(0.25)
    assert election.step(0.25) is Step.WAIT
    assert election.step(0.5) is Step.LOOK
    assert election.begun(Step.LOOK, 0.5).looked(Keys(7, 7), 12, 0.6).is_master(0.6)


def test_news_end_a_belief_at_once_unless_they_are_old() -> None:
    election = elected()
    newer = election.observed(Keys(7, 8), 12, 0.5)
    assert not newer.is_master(0.5)
    assert newer.step(0.5) is Step.LOOK
    # Older than the campaign; or etcd was set up anew, which a read shows.
    older = election.observed(Keys(7, None), 5, 0.5)
    assert older.is_master(0.5)
    assert older.step(0.5) is Step.LOOK
    assert election.observed(Keys(7, 7), 11, 0.5) == election
    # News that come while the keys are read ask for another read.
    looking = older.begun(Step.LOOK, 0.5).observed(Keys(7, None), 13, 0.6)
    assert looking.looked(Keys(7, 7), 12, 0.7).step(0.7) is Step.LOOK


def test_a_vacancy_is_campaigned_for_at_once() -> None:
    election = registered().begun(Step.CAMPAIGN, 0).campaigned(8, 11, 0)
    assert election.step(0) is Step.WAIT
    assert election.observed(Keys(7, None), 12, 0.5).step(0.5) is Step.CAMPAIGN
    campaigning = election.observed(Keys(7, None), 12, 0.5).begun(Step.CAMPAIGN, 0.5)
    assert campaigning.observed(Keys(7, 8), 13, 0.6).step(0.6) is Step.WAIT
    # An earlier attempt of ours that landed late.
    assert election.observed(Keys(7, 7), 12, 0.5).step(0.5) is Step.LOOK
    assert campaigning.campaigned(7, 13, 0.6).is_master(0.6)


@pytest.mark.parametrize("step", [Step.LOOK, Step.CAMPAIGN])
def test_a_vacancy_heard_of_during_a_request_is_not_forgotten(step: Step) -> None:
    election = registered().begun(Step.CAMPAIGN, 0).campaigned(8, 11, 0)
    asked = election.begun(step, 0.5).observed(Keys(7, None), 12, 0.6)
    answered = asked.looked(Keys(7, 8), 11, 0.7)
    if step is Step.CAMPAIGN:
        answered = asked.campaigned(8, 11, 0.7)
    assert answered.step(0.7) is Step.CAMPAIGN
    assert answered.begun(Step.CAMPAIGN, 0.7).campaigned(8, 13, 0.8).step(0.8) is Step.WAIT
    # What was vacant before the request is not after it.
    vacant = election.observed(Keys(7, None), 12, 0.5).begun(step, 0.5)
    assert vacant.looked(Keys(7, 8), 13, 0.7).step(0.7) is Step.WAIT


def test_an_own_key_that_is_gone_is_put_again_but_not_in_a_storm() -> None:
    election = elected()
    taken = election.observed(Keys(99, 7), 12, 0.2)
    assert taken.is_master(0.2)
    assert taken.step(0.2) is Step.WAIT
    assert taken.wake_s(0.2) == RENEW_S
    taken = taken.renewed(LEASE_TTL_S, 1.0, 1.0)
    assert taken.step(1.0) is Step.REGISTER


def test_a_deposed_master_looks() -> None:
    election = elected()
    assert election.deposed(6, 0.1) == election
    assert not election.deposed(7, 0.1).is_master(0.1)
    assert election.deposed(7, 0.1).step(0.1) is Step.LOOK


@pytest.mark.parametrize("step", [Step.GRANT, Step.RENEW, Step.REGISTER, Step.CAMPAIGN, Step.LOOK])
@pytest.mark.parametrize("ambiguous", [False, True])
def test_no_failure_makes_a_busy_loop(step: Step, ambiguous: bool) -> None:
    for election in (Election(), registered(), elected()):
        failed = election.failed(step, 0.25, 1.0, ambiguous=ambiguous)
        assert failed.step(1.0) in {Step.WAIT, Step.RENEW} or step is Step.RENEW
        wake_s = failed.wake_s(1.0)
        assert failed.step(max(1.0, wake_s)) is not Step.WAIT
