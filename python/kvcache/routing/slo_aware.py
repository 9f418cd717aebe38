"""`SloAware`: predicted latencies beside targets (spec: SLO_AWARE).

Prefill goes to whoever has the least estimated prefill time before it, decode to the first that keeps the target
for one output token. It knows what it is told of requests (`Router.begin`, `first_token`, `token`, `finish`,
`cancel`), and turns MIX instances from one role to the other where that helps.
"""

from __future__ import annotations

import math
import threading
import time
from typing import TYPE_CHECKING, Final, NamedTuple

from kvcache._frozen import FrozenMapping
from kvcache._stays import Stays
from kvcache.exceptions import ConfigError, ConfigFault
from kvcache.registry.model import InstanceType, Role
from kvcache.routing.accounting import SILENCE_S, Accounts
from kvcache.routing.base import Choice, Explanation
from kvcache.routing.predictor import Predictor
from kvcache.routing.reuse import reuses
from kvcache.routing.rotation import Rotation
from kvcache.routing.scores import cheapest
from kvcache.routing.shown_terms import decode_terms, prefill_terms, reported_waiting

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kvcache._core import Matches
    from kvcache.registry.model import Instance, Registration
    from kvcache.registry.registry import Registry
    from kvcache.routing.accounting import Account
    from kvcache.routing.base import Candidates, Terms
    from kvcache.routing.counts import AccountingCounts
    from kvcache.routing.decision import Decision

__all__ = ["SloAware"]


class _Seen(NamedTuple):
    """What a choice rested on."""

    prefill_ms: tuple[float, ...]
    """Estimated prefill times that each prefill candidate was given before."""
    tpot_ms: tuple[float, ...]
    """Predicted time of one output token of each decode candidate, with this request."""
    prefill_estimate_ms: float
    """Of this request, where it goes."""
    target_met: bool
    """Whether a decode candidate keeps the target; true without any."""
    tied: bool
    """Whether several prefill candidates had as little to do."""
    number: int
    """Counts choices: tells this one from others under the same request id."""


class _Prepared(NamedTuple):
    """What depends on the candidates alone."""

    candidates: Candidates
    prefills: list[Account]
    decodes: list[tuple[Account, Predictor]]


class SloAware(Stays):
    """SLO_AWARE. Thread-safe.

    A request that was begun, and of which nothing was told for `silence_s` seconds, counts no more.
    `clock` gives seconds and never goes back. Raises `ConfigError` for a target that is no positive
    number of milliseconds.
    """

    _stays = "it accounts for the requests of one router: make one with the same targets"

    name: Final = "SLO_AWARE"
    needs_load: Final = False

    def __init__(
        self,
        *,
        target_ttft_ms: float = 1000.0,
        target_tpot_ms: float = 50.0,
        silence_s: float = SILENCE_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        numbers = (
            ("target_ttft_ms", "milliseconds", target_ttft_ms),
            ("target_tpot_ms", "milliseconds", target_tpot_ms),
            ("silence_s", "seconds", silence_s),
        )
        faults = [
            ConfigFault(path, f"must be a number of {unit} above 0, not: {value!r}")
            for path, unit, value in numbers
            if not _is_target(value)
        ]
        if faults:
            raise ConfigError(faults)
        self.target_ttft_ms = float(target_ttft_ms)
        self.target_tpot_ms = float(target_tpot_ms)
        self._lock = threading.Lock()
        self._switch_lock = threading.Lock()
        self._clock = clock
        self._accounts = Accounts(silence_s=float(silence_s))
        self._choices = 0
        self._predictors: dict[str, tuple[Registration, Predictor]] = {}
        self._prepared: _Prepared | None = None
        self._prefill_rotation, self._decode_rotation = Rotation(), Rotation()
        self._registry: Registry | None = None

    # --- choosing -----------------------------------------------------------------------------------

    def choose(self, candidates: Candidates, token_count: int, matches: Matches | None) -> Choice:
        """Choose for a prompt of `token_count` tokens; an empty one goes to whoever's turn it is."""
        del matches
        with self._lock:
            self._accounts.lapse(self._clock())
            self._choices += 1
            prepared = self._prepared
            if prepared is None or prepared.candidates is not candidates:
                prepared = self._prepared = self._prepare(candidates)
            prefill_ms = [account.prefill_ms for account in prepared.prefills]
            tpot_ms = [_tpot_ms(*pair, token_count) for pair in prepared.decodes]
            decode, target_met = self._choose_decode(candidates, token_count, tpot_ms)
            prefill, tied = self._choose_prefill(candidates, token_count, prefill_ms)
            relief = None
            if decode is not None and token_count:
                relief = self._relief(candidates, prefill_ms[prefill], decode, tpot_ms)
            chosen = candidates.prefill[prefill] if relief is None else candidates.decode[relief]
            seen = _Seen(
                tuple(prefill_ms),
                tuple(tpot_ms),
                self._predictor(chosen.instance).ttft_ms(token_count),
                target_met=target_met,
                tied=tied,
                number=self._choices,
            )
            idle = self._accounts.take_idle()
        self._switch_to_prefill(idle)
        return Choice(prefill, decode, detail=seen, prefill_by_decode=relief)

    def _choose_prefill(
        self, candidates: Candidates, token_count: int, prefill_ms: Sequence[float]
    ) -> tuple[int, bool]:
        """Whoever has the least to prefill, and whether several have."""
        names = candidates.prefill_names
        tied = cheapest(prefill_ms) if token_count else range(len(names))
        return tied[self._prefill_rotation.take(names, tied)], len(tied) > 1

    def _choose_decode(
        self, candidates: Candidates, token_count: int, tpot_ms: Sequence[float]
    ) -> tuple[int | None, bool]:
        """The first that keeps the target, else the fastest; and whether the target is kept."""
        names = candidates.decode_names
        if not names:
            return None, True
        if not token_count:
            return self._decode_rotation.take(names, range(len(names))), True
        for place, predicted_ms in enumerate(tpot_ms):
            if predicted_ms <= self.target_tpot_ms:
                return place, True
        fastest = cheapest(tpot_ms)
        return fastest[self._decode_rotation.take(names, fastest)], False

    def _relief(
        self, candidates: Candidates, prefill_ms: float, decode: int, tpot_ms: Sequence[float]
    ) -> int | None:
        """Of the other decode candidates the fastest, if prefills are overloaded and it is clearly idle."""
        others = [place for place in range(len(tpot_ms)) if place != decode]
        if prefill_ms <= self.target_ttft_ms or not others:
            return None
        fastest = min(others, key=tpot_ms.__getitem__)
        share = (len(tpot_ms) - 1) / len(tpot_ms)
        if tpot_ms[fastest] >= self.target_tpot_ms * share:
            return None
        account = self._accounts.of(candidates.decode[fastest].instance)
        return fastest if account.prefill_ms < prefill_ms else None

    def _prepare(self, candidates: Candidates) -> _Prepared:
        """Look everyone up, and forget whoever is not there any more."""
        present: dict[str, str | None] = dict.fromkeys(candidates.excluded)
        for one in (*candidates.prefill, *candidates.decode):
            present[one.instance.name] = one.instance.identity
        self._accounts.keep(present)
        for name in self._predictors.keys() - present.keys():
            del self._predictors[name]
        return _Prepared(
            candidates,
            [self._accounts.of(one.instance) for one in candidates.prefill],
            [self._account_and_predictor(one.instance) for one in candidates.decode],
        )

    def _account_and_predictor(self, instance: Instance) -> tuple[Account, Predictor]:
        return self._accounts.of(instance), self._predictor(instance)

    def _predictor(self, instance: Instance) -> Predictor:
        found = self._predictors.get(instance.name)
        if found is None or found[0] != instance.registration:
            found = (instance.registration, Predictor.fit(instance.registration))
            self._predictors[instance.name] = found
        return found[1]

    def explain(
        self, candidates: Candidates, token_count: int, matches: Matches | None, choice: Choice
    ) -> Explanation:
        """The estimates that were compared."""
        del token_count
        seen: _Seen = choice.detail
        none = [None] * len(candidates.prefill)
        decode_none = [None] * len(candidates.decode)
        waiting = reported_waiting(candidates.prefill)
        decode_waiting = reported_waiting(candidates.decode)
        reused = reuses(candidates, matches, 1.0)
        prefill = prefill_terms(
            candidates, matches, reused, waiting=waiting, queue_costs=none, scores=seen.prefill_ms
        )
        decode = decode_terms(candidates, decode_waiting, decode_none, seen.tpot_ms)
        return Explanation(
            prefill=tuple(_with_extra(terms, "estimated_prefill_ms") for terms in prefill),
            decode=tuple(_with_extra(terms, "predicted_tpot_ms") for terms in decode),
            prefill_decided_by=_prefill_decided_by(candidates, choice),
            decode_decided_by=_decode_decided_by(candidates, choice),
        )

    # --- what becomes of requests -------------------------------------------------------------------

    def attach(self, registry: Registry) -> None:
        """Where MIX instances can be given another role; without it none is."""
        self._registry = registry

    def begin(self, decision: Decision) -> bool:
        """The request was sent where the decision says; False when its end was told before.

        Raises `ValueError` for a decision without a request id.
        """
        if decision.request_id is None:
            raise ValueError("a request needs an id to be accounted for")
        seen: _Seen = decision.choice.detail
        with self._lock:
            late = self._accounts.is_late(decision.request_id, seen.number, self._clock())
        if not late and not seen.target_met:
            self._switch_to_decode(decision)
        with self._lock:
            begun = self._accounts.begin(
                decision.request_id,
                decision.token_count,
                decision.prefill_instance,
                seen.prefill_estimate_ms,
                decision.decode_instance,
                seen.number,
                self._clock(),
            )
            idle = self._accounts.take_idle()
        self._switch_to_prefill(idle)
        return begun

    def first_token(self, request_id: str) -> bool:
        """Its prefill is done."""
        with self._lock:
            return self._accounts.first_token(request_id, self._clock())

    def token(self, request_id: str) -> bool:
        """It generated one more token."""
        with self._lock:
            return self._accounts.token(request_id, self._clock())

    def finish(self, request_id: str) -> bool:
        """It is done."""
        return self.cancel(request_id)

    def cancel(self, request_id: str) -> bool:
        """It ended, wherever it was. A decode instance that has nothing left prefills again."""
        with self._lock:
            known = self._accounts.end(request_id, self._clock())
            idle = self._accounts.take_idle()
        self._switch_to_prefill(idle)
        return known

    def accounting_counts(self) -> AccountingCounts:
        """Give what is kept of requests now, and what was told out of order or not at all."""
        with self._lock:
            self._accounts.lapse(self._clock())
            return self._accounts.counts()

    # --- roles --------------------------------------------------------------------------------------

    def _switch_to_decode(self, decision: Decision) -> None:
        """Turn an idle MIX prefill into a decode, as none keeps the target; never the last prefill."""
        if self._registry is None:
            return
        with self._switch_lock:
            prefills, decodes = self._serving(self._registry)
            with self._lock:
                if any(
                    _tpot_ms(*self._account_and_predictor(one), decision.token_count)
                    <= self.target_tpot_ms
                    for one in decodes
                ):
                    return  # one was turned meanwhile
                waits = {one.name: self._accounts.of(one).prefill_ms for one in prefills}
            count = len(prefills)
            if (
                count <= 1
                or sum(waits.values()) / count >= self.target_ttft_ms * (count - 1) / count
            ):
                return
            able = [one.name for one in prefills if one.type is InstanceType.MIX]
            if able:
                # Rather another than the one that prefills this request.
                idlest = min(able, key=lambda name: (name == decision.prefill, waits[name], name))
                self._registry.set_role(idlest, Role.DECODE)

    def _switch_to_prefill(self, names: Sequence[str]) -> None:
        """Turn MIX decodes without requests into prefills again; never the last decode."""
        for name in names:
            self._switch_one_to_prefill(name)

    def _switch_one_to_prefill(self, name: str) -> None:
        if self._registry is None:
            return
        with self._switch_lock:
            _, decodes = self._serving(self._registry)
            one = next((one for one in decodes if one.name == name), None)
            if one is None or one.type is not InstanceType.MIX or len(decodes) <= 1:
                return
            with self._lock:
                idle = self._accounts.of(one).decode_requests == 0
            if idle:
                self._registry.set_role(name, Role.PREFILL)

    @staticmethod
    def _serving(registry: Registry) -> tuple[list[Instance], list[Instance]]:
        """Who prefills and who decodes now."""
        rows = [one for one in registry.snapshot().instances.values() if one.schedulable]
        return (
            [one for one in rows if one.role is not Role.DECODE],
            [one for one in rows if one.role is Role.DECODE],
        )


def _tpot_ms(account: Account, predictor: Predictor, token_count: int) -> float:
    """Of one output token with one more request of so many tokens."""
    return predictor.tpot_ms(account.decode_requests + 1, account.decode_tokens + token_count)


def _with_extra(terms: Terms, name: str) -> Terms:
    """The same, with the score under its own name as well."""
    return terms._replace(extra=FrozenMapping({name: terms.score or 0.0}))


def _prefill_decided_by(candidates: Candidates, choice: Choice) -> str:
    seen: _Seen = choice.detail
    if choice.prefill_by_decode is not None:
        return "prefill_overload"
    if len(candidates.prefill) == 1:
        return "only_candidate"
    return "rotation" if seen.tied else "estimated_prefill_ms"


def _decode_decided_by(candidates: Candidates, choice: Choice) -> str:
    seen: _Seen = choice.detail
    if choice.decode is None:
        return ""
    if len(candidates.decode) == 1:
        return "only_candidate"
    return "target_tpot_ms" if seen.target_met else "predicted_tpot_ms"


def _is_target(value: object) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return math.isfinite(value) and value > 0
