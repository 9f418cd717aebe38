"""`Decision`: what was chosen, and why, worked out when asked.

Holds what the choice rested on, none of which changes any more, and no tokens.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

from kvcache.routing.base import Terms

if TYPE_CHECKING:
    from kvcache._core import Matches
    from kvcache.registry.model import Instance
    from kvcache.routing.base import Candidates, Choice, Explanation, Policy, TurningPoint

__all__ = ["Decision"]


class _PolicyName(NamedTuple):
    """All that is left of a policy in another process."""

    name: str


class Decision:
    """One choice. What explains it costs nothing until it is read.

    It can be pickled and copied; that works out what explains it.
    """

    def __init__(  # noqa: PLR0917 - made for every request, and by the router alone
        self,
        policy: Policy | _PolicyName,
        candidates: Candidates,
        token_count: int,
        matches: Matches | None,
        choice: Choice,
        request_id: str | None,
        explain: bool,
        decided_at_unix_s: float,
    ) -> None:
        self._policy = policy
        self._candidates = candidates
        self._matches = matches
        self._explain = explain
        self.choice = choice
        """As the policy gave it."""
        self.request_id = request_id
        self.token_count = token_count
        """Tokens of the prompt."""
        self.decided_at_unix_s = decided_at_unix_s

    @property
    def prefill(self) -> str:
        """Name of the instance that prefills, or does everything when `decode` is None."""
        choice = self.choice
        if choice.prefill_by_decode is not None:
            return self._candidates.decode_names[choice.prefill_by_decode]
        return self._candidates.prefill_names[choice.prefill]

    @property
    def decode(self) -> str | None:
        """Name of the instance that decodes; None when a DEFAULT instance serves alone."""
        place = self.choice.decode
        return None if place is None else self._candidates.decode_names[place]

    @property
    def policy(self) -> str:
        """Name of the policy that chose."""
        return self._policy.name

    @property
    def prefill_instance(self) -> Instance:
        """The registry's row of the instance that prefills, as it was then."""
        place = self.choice.prefill_by_decode
        if place is not None:
            return self._candidates.decode[place].instance
        return self._candidates.prefill[self.choice.prefill].instance

    @property
    def decode_instance(self) -> Instance | None:
        """The same of the instance that decodes."""
        place = self.choice.decode
        return None if place is None else self._candidates.decode[place].instance

    @cached_property
    def explanation(self) -> Explanation:
        """Everything about it, in the policy's own terms."""
        # What comes from another process was explained there, and does not get here.
        policy: Policy = self._policy  # type: ignore[assignment]
        return policy.explain(self._candidates, self.token_count, self._matches, self.choice)

    @property
    def candidates(self) -> tuple[Terms, ...]:
        """The terms of everyone that could be chosen, prefill first; with `explain` of the excluded too."""
        found = self.explanation.prefill + self.explanation.decode
        return found + self.excluded if self._explain else found

    @property
    def excluded(self) -> tuple[Terms, ...]:
        """The instances that could not be chosen, with reasons."""
        return tuple(
            Terms(name, role, excluded=reason)
            for name, (role, reason) in self._candidates.excluded.items()
        )

    @property
    def prefill_decided_by(self) -> str:
        """The term that set the chosen prefill apart from the next best."""
        return self.explanation.prefill_decided_by

    @property
    def decode_decided_by(self) -> str:
        """The same for decode; empty when there is none."""
        return self.explanation.decode_decided_by

    @property
    def turning_points(self) -> tuple[TurningPoint, ...]:
        """The nearest weights, below and above the one in use, at which another prefill would win."""
        return self.explanation.turning_points

    @property
    def hit_tokens(self) -> int:
        """Tokens that the chosen prefill reuses of either tier, the least of its ranks."""
        return self._hit_tokens[0]

    @property
    def best_hit_tokens(self) -> int:
        """The most that any prefill candidate reuses."""
        return self._hit_tokens[1]

    @cached_property
    def _hit_tokens(self) -> tuple[int, int]:
        chosen, best = self.choice.hit_tokens, self.choice.best_hit_tokens
        if chosen is None or best is None:
            held = self._candidates.hit_tokens(self._matches)
            by_prefill = self.choice.prefill_by_decode is None
            chosen, best = held[self.choice.prefill] if by_prefill else 0, max(held)
        return chosen, best

    def to_dict(self) -> dict[str, Any]:
        """All of it as JSON can hold it."""
        return {
            "request_id": self.request_id,
            "policy": self.policy,
            "prefill": self.prefill,
            "decode": self.decode,
            "token_count": self.token_count,
            "decided_at_unix_s": self.decided_at_unix_s,
            "prefill_decided_by": self.prefill_decided_by,
            "decode_decided_by": self.decode_decided_by,
            "turning_points": [point._asdict() for point in self.turning_points],
            "candidates": [_terms(one) for one in self.candidates],
        }

    def __getstate__(self) -> dict[str, Any]:
        """With its explanation in place of the policy, which has locks, and of the answer that it was made of."""
        worked_out = {"explanation": self.explanation, "_hit_tokens": self._hit_tokens}
        return self.__dict__ | worked_out | {"_policy": _PolicyName(self.policy), "_matches": None}

    def __repr__(self) -> str:
        return (
            f"Decision(policy={self.policy!r}, prefill={self.prefill!r}, decode={self.decode!r}, "
            f"request_id={self.request_id!r})"
        )


def _terms(terms: Terms) -> dict[str, Any]:
    if terms.excluded:
        return {
            "instance_name": terms.instance_name,
            "role": terms.role,
            "excluded": terms.excluded,
        }
    shown = terms._asdict()
    shown.update(shown.pop("extra"))
    return shown
