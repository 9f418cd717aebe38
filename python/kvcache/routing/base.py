"""What a policy is given, and what it answers. Write your own against `Policy`.

Everything here is immutable. What explains a choice is made when somebody asks for it, so that a request that
nobody asks about costs microseconds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import (
    TYPE_CHECKING,
    Any,
    Final,
    Literal,
    NamedTuple,
    Protocol,
    TypeAlias,
    runtime_checkable,
)

from kvcache._frozen import FrozenMapping

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kvcache._core import CandidateCosts, Matches
    from kvcache.registry.model import Instance, LoadReport
    from kvcache.registry.registry import Registry
    from kvcache.routing.counts import AccountingCounts
    from kvcache.routing.decision import Decision

__all__ = [
    "Accounting",
    "AccountingCounted",
    "Candidate",
    "Candidates",
    "Choice",
    "Explanation",
    "Policy",
    "ServingRole",
    "Terms",
    "TurningPoint",
]

ServingRole: TypeAlias = Literal["prefill", "decode"]
"""What an instance would do for a request: a DEFAULT instance is chosen as prefill."""


class Candidate(NamedTuple):
    """An instance that can be chosen now."""

    instance: Instance
    report: LoadReport | None
    """The load that counts now. There is one, and it is legal, for policies that need it."""

    @property
    def waiting_requests_num(self) -> int:
        """Requests in its queue; 0 without a legal load."""
        return self.report.load.waiting_requests_num or 0 if self.report else 0

    @property
    def gpu_cache_usage_perc(self) -> float:
        """Share of its Device cache in use; 0 without a legal load."""
        return self.report.load.gpu_cache_usage_perc or 0.0 if self.report else 0.0


@dataclass(frozen=True, slots=True, eq=False)
class Candidates:
    """Who can be chosen at one moment, in the order of names.

    The same object from one request to the next while nothing changes, so that a policy prepares once what it
    derives from it, and compares with `is`.
    """

    prefill: tuple[Candidate, ...]
    """Never empty when a policy is asked. Without decode candidates only DEFAULT instances."""
    decode: tuple[Candidate, ...]
    prefill_names: tuple[str, ...]
    decode_names: tuple[str, ...]
    places: tuple[tuple[int, ...], ...]
    """Where each prefill candidate's ranks are in `Matches.streams`: all of them, or none where hits do not count."""
    no_hits: Mapping[str, str]
    """Why a prefill candidate's hits do not count, by name."""
    excluded: Mapping[str, tuple[ServingRole, str]]
    """Why every other instance cannot be chosen, by name in order."""
    held: CandidateCosts
    """All prefill candidates at no cost, so that the core says of each what it reuses."""
    ignored_ranks: int = 0
    """Followed streams of ranks that their instances do not have."""

    def hit_tokens(self, matches: Matches | None) -> list[int]:
        """Tokens that each prefill candidate reuses of either tier, the least of its ranks."""
        if matches is None:
            return [0] * len(self.prefill)
        return self.held.cheapest(matches)[1]


class Choice(NamedTuple):
    """Which candidates were chosen, as places in `Candidates`."""

    prefill: int
    decode: int | None
    """None exactly if there are no decode candidates."""
    hit_tokens: int | None = None
    """Tokens that the chosen prefill reuses, the least of its ranks; None to have them counted by the router."""
    best_hit_tokens: int | None = None
    """The most that any prefill candidate reuses."""
    prefill_by_decode: int | None = None
    """A place in `Candidates.decode`: that one prefills instead, as all prefill candidates are overloaded."""
    detail: Any = None
    """Whatever the policy needs to explain its choice later; must not change any more."""


_NO_EXTRA: Final[Mapping[str, float]] = FrozenMapping({})


class Terms(NamedTuple):
    """One candidate as a policy saw it, or an instance that could not be chosen."""

    instance_name: str
    role: ServingRole
    kv_hit_ratio: float = 0.0
    """What it reuses of the prompt, as the policy weighs it, 0 to 1."""
    device_hit_tokens: int = 0
    """Of its rank with the lowest ratio."""
    host_only_hit_tokens: int = 0
    """Of the same rank."""
    no_hits: str = ""
    """Why its hits do not count; empty when they do."""
    waiting_requests_num: int | None = None
    """What the policy took for the length of its queue; None where there is no legal load."""
    gpu_cache_usage_perc: float | None = None
    queue_cost: float | None = None
    score: float | None = None
    """The smallest wins; None for policies without one."""
    extra: Mapping[str, float] = _NO_EXTRA
    """Terms of this policy alone."""
    excluded: str = ""
    """Why it could not be chosen; empty when it could."""


class TurningPoint(NamedTuple):
    """The nearest weight, in one direction, at which another candidate would win."""

    prefill_lambda: float
    instance_name: str


@dataclass(frozen=True, slots=True)
class Explanation:
    """Every candidate's terms, in the order of `Candidates`, and what decided."""

    prefill: tuple[Terms, ...]
    decode: tuple[Terms, ...]
    prefill_decided_by: str
    """The term that set the chosen one apart from the next best; `rotation` for a tie, `only_candidate`."""
    decode_decided_by: str
    """The same for decode; empty when there is none."""
    turning_points: tuple[TurningPoint, ...] = ()
    """At most one below and one above the weight in use, in this order; only for policies with such a weight."""


@runtime_checkable
class Policy(Protocol):
    """A way to choose. Called by many threads at once."""

    @property
    def name(self) -> str:
        """As metrics and answers show it."""
        ...

    @property
    def needs_load(self) -> bool:
        """Whether only instances with a legal load report can be chosen."""
        ...

    def choose(self, candidates: Candidates, token_count: int, matches: Matches | None) -> Choice:
        """Choose for a prompt of `token_count` tokens; `matches` is None without a directory.

        Takes no time to speak of: no I/O, no wait. There is at least one prefill candidate.
        """
        ...

    def explain(
        self, candidates: Candidates, token_count: int, matches: Matches | None, choice: Choice
    ) -> Explanation:
        """Why `choose` made that choice of these arguments, however long ago."""
        ...


@runtime_checkable
class Accounting(Protocol):
    """What a policy has beside `Policy` to be told how requests go on; each returns whether that was news."""

    def attach(self, registry: Registry) -> None:
        """Called once, by the router that uses it: where roles can be changed."""
        ...

    def begin(self, decision: Decision) -> bool:
        """The request was sent where the decision says."""
        ...

    def first_token(self, request_id: str) -> bool:
        """Its prefill is done."""
        ...

    def token(self, request_id: str) -> bool:
        """It generated one more token."""
        ...

    def finish(self, request_id: str) -> bool:
        """It is done."""
        ...

    def cancel(self, request_id: str) -> bool:
        """It ended, wherever it was."""
        ...


@runtime_checkable
class AccountingCounted(Protocol):
    """A policy that accounts may count it as well, for metrics."""

    def accounting_counts(self) -> AccountingCounts:
        """Give what it keeps now, and totals since the start."""
        ...
