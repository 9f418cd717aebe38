"""`Inflight`: what was sent to each instance since its last load report."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kvcache.registry.model import LoadReport
    from kvcache.routing.base import Candidate, Candidates

__all__ = ["Inflight", "Sent", "with_sent"]


@dataclass(slots=True)
class Sent:
    """Requests sent to one instance since one report."""

    report: LoadReport | None
    count: int = 0


class Inflight:
    """What was sent, by instance. Not thread-safe; its owner guards it."""

    def __init__(self) -> None:
        self._sent: dict[str, Sent] = {}

    def since(self, candidates: Candidates) -> tuple[list[Sent], list[Sent]]:
        """What is to be counted for each prefill and each decode candidate; starts anew after a new report.

        Whoever is not there any more is forgotten.
        """
        before, self._sent = self._sent, {}

        def of(name: str, candidate: Candidate) -> Sent:
            sent = before.get(name)
            # By identity: the same numbers reported anew are another report.
            if sent is None or sent.report is not candidate.report:
                sent = Sent(candidate.report)
            self._sent[name] = sent
            return sent

        return (
            list(map(of, candidates.prefill_names, candidates.prefill)),
            list(map(of, candidates.decode_names, candidates.decode)),
        )


def with_sent(waiting: Sequence[int], sent: Sequence[Sent]) -> list[int]:
    """The queues that were reported, and what was sent since."""
    return [queue + more.count for queue, more in zip(waiting, sent, strict=True)]
