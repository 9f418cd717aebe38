"""`Router`: asks a directory who holds a prompt and a policy who serves it, from memory only.

What depends on the registry's snapshot and on which streams are followed is made once and kept while both are the
same objects. Which load report counts depends on time too, so that it is made anew when the first of them turns.
"""

from __future__ import annotations

import math
import threading
from collections import deque
from dataclasses import dataclass, replace
from time import time
from typing import TYPE_CHECKING, Any, Final, Protocol

from kvcache._core import token_count as count_tokens
from kvcache._process import Home
from kvcache._stays import Stays
from kvcache.exceptions import ClosedError, NoInstanceError
from kvcache.routing.base import Accounting, AccountingCounted
from kvcache.routing.cache_aware import CacheAware
from kvcache.routing.candidates import candidates_of, reports_count_until
from kvcache.routing.counts import RoleCounts, RouterCounts
from kvcache.routing.decision import Decision
from kvcache.routing.shadow import Shadow

if TYPE_CHECKING:
    from kvcache._core import BlockKeys, Conversation, Matches
    from kvcache.registry.registry import Registry
    from kvcache.registry.snapshot import RegistrySnapshot
    from kvcache.routing.base import Candidates, Policy
    from kvcache.routing.counts import AccountingCounts
    from kvcache.types import TokenIds

__all__ = ["DECISIONS_KEPT", "Router", "Source"]

DECISIONS_KEPT: Final = 256
"""Each keeps what explains it, some kilobytes with many streams."""

_NOTHING: Final[tuple[Any, ...]] = ()


class Source(Protocol):
    """What a directory is to a router."""

    def query(self, token_ids: TokenIds | BlockKeys | Conversation, /) -> Matches:
        """Who holds how much of a prompt. Raises `ClosedError` when it is closed."""
        ...


class Router(Stays):
    """Chooses the prefill and the decode instance of each request. Thread-safe; no call waits for anything.

    It serves the process that made it: in a forked child every method raises `KvCacheError`.

    Without a directory, or when it is closed, every hit is 0 and it still chooses. `shadow_policy` chooses too, and is
    only counted. A policy that accounts is told of requests by `begin`, `first_token`, `token`, `finish` and `cancel`,
    which do nothing for others.
    """

    _stays = "it chooses by a directory and a registry of its own process: make one there"

    def __init__(
        self,
        directory: Source | None,
        registry: Registry,
        policy: Policy | None = None,
        *,
        shadow_policy: Policy | None = None,
        decisions_kept: int = DECISIONS_KEPT,
    ) -> None:
        self._home = Home("Router")
        self._directory = directory
        self._registry = registry
        self._policy: Policy = CacheAware() if policy is None else policy
        self._accounting: Accounting | None = None
        if isinstance(self._policy, Accounting):
            self._accounting = self._policy
            self._accounting.attach(registry)
        self._shadow = None if shadow_policy is None else Shadow(shadow_policy)
        self._moment = self._make_moment(registry.snapshot(), _NOTHING, _NOTHING)
        self._decisions: deque[Decision] = deque(maxlen=decisions_kept)
        self._lock = threading.Lock()
        self._totals = _Totals()
        self._no_instance = 0

    @property
    def policy(self) -> Policy:
        """The policy that decides."""
        return self._policy

    def route(
        self,
        token_ids: TokenIds | BlockKeys | Conversation,
        request_id: str | None = None,
        explain: bool = False,
    ) -> Decision:
        """Choose for a prompt, given as what `Directory.query` takes.

        With `explain` the decision's candidates include those that could not be chosen. Raises `TokenIdsError`;
        `NoInstanceError` when nothing can serve; `ValueError` for keys that no stream names its blocks by.
        """
        self._home.check()
        directory = self._directory
        matches: Matches | None = None
        if directory is not None:
            try:
                matches = directory.query(token_ids)
            except ClosedError:
                matches = None
        # After the query: what the registry knows by now of an instance counts against what was found.
        snapshot = self._registry.snapshot()
        if matches is None:
            token_count = count_tokens(token_ids)
            streams, identities = _NOTHING, _NOTHING
        else:
            token_count = matches.token_count
            streams, identities = matches.streams, matches.identities
        moment = self._moment
        if (
            moment.snapshot is not snapshot
            or moment.streams is not streams
            or moment.identities is not identities
            or (moment.until_s != math.inf and self._registry.now_s() >= moment.until_s)
        ):
            moment = self._moment = self._make_moment(snapshot, streams, identities)
        candidates = moment.candidates
        if not candidates.prefill:
            with self._lock:
                self._no_instance += 1
            raise NoInstanceError({name: why for name, (_, why) in candidates.excluded.items()})
        policy = self._policy
        choice = policy.choose(candidates, token_count, matches)
        decision = Decision(
            policy, candidates, token_count, matches, choice, request_id, explain, time()
        )
        hit_tokens, best_hit_tokens = choice.hit_tokens, choice.best_hit_tokens
        if hit_tokens is None or best_hit_tokens is None:
            hit_tokens, best_hit_tokens = decision.hit_tokens, decision.best_hit_tokens
        totals = self._totals
        with self._lock:
            totals.choices += 1
            totals.asked_tokens += token_count
            totals.best_hit_tokens += best_hit_tokens
            totals.chosen_hit_tokens += hit_tokens
            if choice.decode is not None:
                totals.decode_choices += 1
                totals.decode_asked_tokens += token_count
        self._decisions.append(decision)
        if self._shadow is not None:
            self._shadow.compare(decision, moment.shadow_candidates, matches)
        return decision

    # --- what becomes of requests -------------------------------------------------------------------

    def begin(self, request: Decision | str) -> bool:
        """A request was sent where its decision says, given itself or by its request id.

        Returns whether the policy accounts for it: not for an id that is not among the decisions
        kept, and not for a request whose end was told before.
        """
        self._home.check()
        if self._accounting is None:
            return False
        decision = self.decision(request) if isinstance(request, str) else request
        return decision is not None and self._accounting.begin(decision)

    def first_token(self, request_id: str) -> bool:
        """A request's prefill is done; whether the policy knew it, and not this, as with all that follow."""
        self._home.check()
        return self._accounting is not None and self._accounting.first_token(request_id)

    def token(self, request_id: str) -> bool:
        """A request generated one more token."""
        self._home.check()
        return self._accounting is not None and self._accounting.token(request_id)

    def finish(self, request_id: str) -> bool:
        """A request is done."""
        self._home.check()
        return self._accounting is not None and self._accounting.finish(request_id)

    def cancel(self, request_id: str) -> bool:
        """A request ended without being done, wherever it was."""
        self._home.check()
        return self._accounting is not None and self._accounting.cancel(request_id)

    # --- what was decided ---------------------------------------------------------------------------

    def decisions(self) -> list[Decision]:
        """The last ones, oldest first."""
        self._home.check()
        # A copy at once: other threads go on appending.
        return list(self._decisions.copy())

    def decision(self, request_id: str) -> Decision | None:
        """The last one of a request, if it is still kept."""
        self._home.check()
        found = (one for one in reversed(self._decisions.copy()) if one.request_id == request_id)
        return next(found, None)

    def counts(self) -> RouterCounts:
        """Totals since the start, for metrics; a copy."""
        self._home.check()
        with self._lock:
            totals, no_instance = replace(self._totals), self._no_instance
        return RouterCounts(
            self._policy.name,
            RoleCounts(
                totals.choices,
                totals.asked_tokens,
                totals.best_hit_tokens,
                totals.chosen_hit_tokens,
            ),
            RoleCounts(totals.decode_choices, totals.decode_asked_tokens),
            no_instance=no_instance,
            ignored_ranks=self._moment.candidates.ignored_ranks,
            shadow=None if self._shadow is None else self._shadow.counts(),
            accounting=self.accounting_counts(),
        )

    def accounting_counts(self) -> AccountingCounts | None:
        """Give what the policy accounts for, and was told out of order; None where it does not."""
        policy = self._accounting
        return policy.accounting_counts() if isinstance(policy, AccountingCounted) else None

    # --- who can be chosen --------------------------------------------------------------------------

    def _make_moment(
        self,
        snapshot: RegistrySnapshot,
        streams: tuple[tuple[str, int], ...],
        identities: tuple[str | None, ...],
    ) -> _Moment:
        now_s = self._registry.now_s()

        def made(policy: Policy) -> Candidates:
            return candidates_of(snapshot, now_s, streams, identities, needs_load=policy.needs_load)

        candidates = shadow_candidates = made(self._policy)
        if self._shadow is not None and self._shadow.policy.needs_load != self._policy.needs_load:
            shadow_candidates = made(self._shadow.policy)
        return _Moment(
            snapshot=snapshot,
            streams=streams,
            identities=identities,
            until_s=reports_count_until(snapshot, now_s),
            candidates=candidates,
            shadow_candidates=shadow_candidates,
        )


@dataclass(slots=True)
class _Totals:
    """Counters that every request moves."""

    choices: int = 0
    asked_tokens: int = 0
    best_hit_tokens: int = 0
    chosen_hit_tokens: int = 0
    decode_choices: int = 0
    decode_asked_tokens: int = 0


@dataclass(slots=True)
class _Moment:
    """Who can be chosen, and for as long as what that is so."""

    snapshot: RegistrySnapshot
    streams: tuple[tuple[str, int], ...]
    identities: tuple[str | None, ...]
    until_s: float
    candidates: Candidates
    shadow_candidates: Candidates
