"""`RoundRobin`: everyone in turn (spec: RR)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kvcache._stays import Stays
from kvcache.routing.base import Choice, Explanation
from kvcache.routing.reuse import reuses
from kvcache.routing.rotation import Rotation
from kvcache.routing.shown_terms import decode_terms, prefill_terms, reported_waiting

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kvcache._core import Matches
    from kvcache.routing.base import Candidate, Candidates

__all__ = ["RoundRobin"]


class RoundRobin(Stays):
    """RR: prefill and decode candidates in turn, whatever their loads and caches. Thread-safe."""

    _stays = "it keeps count of whose turn it is for its threads: make another"

    name: Final = "RR"
    needs_load: Final = False

    def __init__(self) -> None:
        self._prefill_rotation, self._decode_rotation = Rotation(), Rotation()

    def choose(self, candidates: Candidates, token_count: int, matches: Matches | None) -> Choice:
        """Whose turn it is."""
        del token_count, matches
        names, decode_names = candidates.prefill_names, candidates.decode_names
        return Choice(
            self._prefill_rotation.take(names, range(len(names))),
            self._decode_rotation.take(decode_names, range(len(decode_names)))
            if decode_names
            else None,
        )

    def explain(
        self, candidates: Candidates, token_count: int, matches: Matches | None, choice: Choice
    ) -> Explanation:
        """What the others would have brought, none of which mattered."""
        del token_count
        none = [None] * len(candidates.prefill)
        decode_none = [None] * len(candidates.decode)
        decode_waiting = reported_waiting(candidates.decode)
        return Explanation(
            prefill=prefill_terms(
                candidates,
                matches,
                reuses(candidates, matches, 1.0),
                waiting=reported_waiting(candidates.prefill),
                queue_costs=none,
                scores=none,
            ),
            decode=decode_terms(candidates, decode_waiting, decode_none, decode_none),
            prefill_decided_by=_decided_by(candidates.prefill),
            decode_decided_by="" if choice.decode is None else _decided_by(candidates.decode),
        )


def _decided_by(candidates: Sequence[Candidate]) -> str:
    return "rotation" if len(candidates) > 1 else "only_candidate"
