"""When a replica may believe that it holds its lease and is master, and what it does next (spec: service replicas).

Pure: an `Election` is what one replica knows, every method gives the next one, and times are arguments: seconds
of one monotonic clock of this process. etcd's clock is not ours, but both run at the same rate, and that is all
that is needed: etcd starts a lease's time when the request arrives, which is after it was sent. So the lease
cannot lapse before the last request that was answered was *sent*, plus its time to live.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from enum import Enum
from typing import Final

__all__ = ["LEASE_TTL_S", "LOOK_S", "MARGIN_S", "RENEW_S", "Election", "Keys", "Step"]

LEASE_TTL_S: Final = 3
"""Time to live of a replica's lease, in seconds."""

MARGIN_S: Final = 0.5
"""A lease is not believed for its last half second.

Who asks whether it is master acts on the answer a little later; as much later as a stall of the process may be.
It also covers clocks that differ in rate, by far: of three seconds they lose milliseconds.
"""

RENEW_S: Final = LEASE_TTL_S / 3
"""Renewed so often, a lease outlives one request that gets no answer."""

LOOK_S: Final = 3.0
"""How often the keys are read though nothing was heard of them: who follows etcd for us may have stopped."""


class Step(Enum):
    """What a replica does next."""

    GRANT = "grant"
    """Ask for a lease."""
    RENEW = "renew"
    """Keep the lease alive."""
    REGISTER = "register"
    """Put the replica's own key under the lease."""
    CAMPAIGN = "campaign"
    """Put the master's key under the lease, if it is not there."""
    LOOK = "look"
    """Read both keys."""
    WAIT = "wait"
    """Nothing before `Election.wake_s()`."""


@dataclass(frozen=True, slots=True)
class Keys:
    """Under which lease the replica's own key and the master's key stand; 0 is none, None: there is no such key."""

    service: int | None
    master: int | None


@dataclass(frozen=True, slots=True)
class Election:
    """What one replica knows. It starts with nothing, and is there again when its lease is gone.

    A step is taken so: `begun` before the request, then what it became of it: `granted`, `renewed`,
    `registered_at`, `campaigned`, `looked`, `lost_lease` or `failed`. One step at a time.
    """

    lease: int = 0
    """The lease's id, 0 for none."""
    until_s: float = -math.inf
    """The lease is believed before this."""
    registered: bool = False
    """The own key is known to stand under the lease."""
    elected: bool = False
    """The master's key is known to stand under the lease; it counts only while the lease is believed."""
    vacant: bool = True
    """For all that is known, there is no master's key."""
    revision: int = 0
    """etcd's, of the answer that the knowledge of the keys rests on."""
    renew_s: float = -math.inf
    register_s: float = -math.inf
    """Not to register before: two processes of one name would write in turns without a pause."""
    look_s: float = math.inf
    campaign_s: float = -math.inf
    """Not to campaign before: another may still be master by an etcd that forgot everything since."""
    retry_s: float = -math.inf
    """No step but a renewal before: the last one failed."""

    def holds_lease(self, now_s: float) -> bool:
        """Whether the lease cannot have lapsed yet."""
        return self.lease != 0 and now_s < self.until_s

    def is_master(self, now_s: float) -> bool:
        """Whether nobody else can be master yet; but for those who delete keys or data by hand."""
        return self.elected and now_s < self.until_s

    def step(self, now_s: float) -> Step:
        """What is due."""
        tries = now_s >= self.retry_s
        if self.lease == 0:
            return Step.GRANT if tries else Step.WAIT
        if now_s >= self.renew_s:
            return Step.RENEW
        if tries and self.holds_lease(now_s):
            if not self.registered and now_s >= self.register_s:
                return Step.REGISTER
            if now_s >= self.look_s:
                return Step.LOOK
            if self._campaigns and now_s >= self.campaign_s:
                return Step.CAMPAIGN
        return Step.WAIT

    def wake_s(self, now_s: float) -> float:
        """When the next step is due, if nothing happens before."""
        if self.lease == 0:
            return self.retry_s
        if not self.holds_lease(now_s):
            return self.renew_s
        due_s = self.look_s if self.registered else min(self.look_s, self.register_s)
        if self._campaigns:
            due_s = min(due_s, self.campaign_s)
        return min(self.renew_s, max(self.retry_s, due_s))

    @property
    def _campaigns(self) -> bool:
        return self.vacant and not self.elected

    # --- what became of a step ---------------------------------------------------------------------

    def begun(self, step: Step, now_s: float) -> Election:
        """The request goes out. What is heard of the keys until its answer asks for the step again."""
        if step is Step.CAMPAIGN:
            return replace(self, vacant=False)
        if step is Step.LOOK:
            return replace(self, vacant=False, look_s=now_s + LOOK_S)
        return self

    def granted(self, lease: int, sent_s: float) -> Election:
        """A lease of `LEASE_TTL_S`, asked for at `sent_s`."""
        return Election(
            lease=lease,
            until_s=sent_s + LEASE_TTL_S - MARGIN_S,
            renew_s=sent_s + RENEW_S,
            look_s=sent_s + LOOK_S,
            campaign_s=self.campaign_s,
        )

    def renewed(self, ttl_s: float, sent_s: float, now_s: float) -> Election:
        """The lease lives for `ttl_s` from some time after `sent_s`; 0 is that it is gone."""
        if ttl_s <= 0:
            return self.lost_lease(now_s)
        until_s = sent_s + min(ttl_s, LEASE_TTL_S) - MARGIN_S
        # What lapsed before this answer is not believed anew by it: the keys are read again.
        kept = self.lapsed(now_s)
        return replace(kept, until_s=max(until_s, self.until_s), renew_s=sent_s + RENEW_S)

    def registered_at(self, revision: int, now_s: float) -> Election:
        """The own key was put."""
        return replace(self, registered=True, register_s=now_s + RENEW_S, revision=revision)

    def campaigned(self, master: int | None, revision: int, now_s: float) -> Election:
        """The election is over: under which lease the master's key stands, ours or another's."""
        return _stands(replace(self, revision=revision), master).lapsed(now_s)

    def looked(self, keys: Keys, revision: int, now_s: float) -> Election:
        """Both keys were read."""
        seen = replace(self, registered=keys.service == self.lease, revision=revision)
        return _stands(seen, keys.master).lapsed(now_s)

    def failed(self, step: Step, delay_s: float, now_s: float, *, ambiguous: bool) -> Election:
        """No answer, or a refusal: to be tried again in `delay_s`.

        An ambiguous request may have taken place, or may still do.
        """
        kept = self.lapsed(now_s)
        if step is Step.RENEW:
            return replace(kept, renew_s=now_s + delay_s)
        kept = replace(kept, retry_s=now_s + delay_s)
        if step is Step.LOOK or (step is Step.CAMPAIGN and ambiguous):
            return replace(kept, look_s=now_s)
        return replace(kept, vacant=True) if step is Step.CAMPAIGN else kept

    def lost_lease(self, now_s: float, delay_s: float = 0) -> Election:
        """The lease is not known to etcd: no key is under it. The next one is asked for in `delay_s`.

        Mostly it lapsed. But etcd may have been set up anew, or from an old copy, while the lease of the master
        had time left. The master of then believes it to the end, unless it hears of this before; so others wait.
        """
        return Election(retry_s=now_s + delay_s, campaign_s=now_s + LEASE_TTL_S - MARGIN_S)

    # --- what comes by itself ----------------------------------------------------------------------

    def lapsed(self, now_s: float) -> Election:
        """Time went by. Who believed its lease no more is no master until the keys were read again."""
        if not self.elected or now_s < self.until_s:
            return self
        return replace(self, elected=False, vacant=False, look_s=min(self.look_s, now_s))

    def observed(self, keys: Keys, revision: int, now_s: float) -> Election:
        """The keys as whoever follows etcd has them, at a revision that may be old.

        Vacancy is taken at its word, since a campaign tells the truth. All else that contradicts what is known
        is looked up; and what is newer than what is known ends a belief at once.
        """
        if self.lease == 0:
            return self
        newer = revision >= self.revision
        after, doubt = self, False
        if self.elected:
            doubt = keys.master != self.lease
            if doubt and newer:
                after = _stands(after, keys.master)
        else:
            doubt = keys.master == self.lease
            after = replace(after, vacant=keys.master is None)
        if self.registered and keys.service != self.lease:
            doubt |= not newer
            after = replace(after, registered=not newer)
        return replace(after, look_s=min(self.look_s, now_s)) if doubt else after

    def deposed(self, lease: int, now_s: float) -> Election:
        """A write that was to happen under our mastership by `lease` was refused."""
        if lease != self.lease or not self.elected:
            return self
        return replace(self, elected=False, vacant=False, look_s=now_s)


def _stands(election: Election, master: int | None) -> Election:
    elected = master == election.lease
    # What was heard of while this was asked for may be newer; if it is not, a campaign is lost for it.
    vacant = not elected and (master is None or election.vacant)
    return replace(election, elected=elected, vacant=vacant)
