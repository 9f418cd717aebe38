"""`Accounts`: which requests are where, and how far (spec: SLO_AWARE, counters).

Not thread-safe; the policy guards it. A request holds the accounts that it was entered in, so that one that
ends after its instance was replaced by another process takes nothing from that one. Every request leaves its
accounts once, however often and in whatever order its end is told, also when it is told before the
begin or never. Time is an argument: seconds of one clock that never goes back.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from kvcache.routing.counts import AccountingCounts
from kvcache.routing.ends import Ends

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kvcache.registry.model import Instance

__all__ = ["MAX_REQUESTS", "SILENCE_S", "Account", "Accounts"]

MAX_REQUESTS: Final = 65_536
"""Requests kept at one time: 512 under way at each of 128 streams.

Of more, the one silent the longest is dropped.
"""

SILENCE_S: Final = 600.0
"""A request of which nothing was told for so long is taken for lost.

OpenAI's clients give one up after ten minutes.
"""


@dataclass(slots=True)
class Account:
    """What one process was given and has not done yet."""

    prefill_requests: int = 0
    prefill_tokens: int = 0
    prefill_ms: float = 0.0
    """Sum of the estimates for its prefills."""
    decode_requests: int = 0
    decode_tokens: int = 0
    """Of prompts and of what was generated."""


@dataclass(slots=True)
class _Request:
    prefill: Account
    decode: Account | None
    decode_name: str | None
    prompt_tokens: int
    prefill_ms: float
    choice: int
    told_at_s: float
    generated_tokens: int = 0
    prefilled: bool = field(default=False)


class Accounts:
    """The accounts of all instances, and the requests in them."""

    def __init__(
        self,
        max_requests: int = MAX_REQUESTS,
        silence_s: float = SILENCE_S,
        ends: Ends | None = None,
    ) -> None:
        self._max_requests = max_requests
        self._silence_s = silence_s
        self._accounts: dict[tuple[str, str], Account] = {}  # by name and identity
        self._requests: dict[str, _Request] = {}  # silent the longest first
        self._ends = Ends() if ends is None else ends
        self._idle: dict[str, None] = {}
        self._late_begins = self._aged_out = self._displaced = 0

    def counts(self) -> AccountingCounts:
        """Give what was told out of order or not at all, and what is kept now."""
        return AccountingCounts(
            requests=len(self._requests),
            ends_remembered=len(self._ends),
            late_begins=self._late_begins,
            aged_out=self._aged_out,
            displaced=self._displaced,
        )

    def of(self, instance: Instance) -> Account:
        """The account of this process; one that comes under the same name has its own."""
        key = (instance.name, instance.identity)
        account = self._accounts.get(key)
        if account is None:
            account = self._accounts[key] = Account()
        return account

    def keep(self, identities: Mapping[str, str | None]) -> None:
        """Forget all processes but these, by name; None keeps whichever there are."""
        for name, identity in list(self._accounts):
            if name not in identities or identities[name] not in {None, identity}:
                del self._accounts[name, identity]

    def begin(  # noqa: PLR0917 - what the policy knows of a request
        self,
        request_id: str,
        prompt_tokens: int,
        prefill: Instance,
        prefill_ms: float,
        decode: Instance | None,
        choice: int,
        now_s: float,
    ) -> bool:
        """Enter a request; not one whose end was told before.

        One that is there under the same id is left: it is tried again. `choice` is the number of
        the choice that sent it; later ones have higher numbers.
        """
        if self.is_late(request_id, choice, now_s):
            self._late_begins += 1
            return False
        self._leave(request_id)
        while len(self._requests) >= self._max_requests:
            self._displaced += 1
            self._leave(next(iter(self._requests)))
        account = self.of(prefill)
        account.prefill_requests += 1
        account.prefill_tokens += prompt_tokens
        account.prefill_ms += prefill_ms
        decoding = None
        if decode is not None:
            decoding = self.of(decode)
            decoding.decode_requests += 1
            decoding.decode_tokens += prompt_tokens
        self._requests[request_id] = _Request(
            account,
            decoding,
            decode.name if decode else None,
            prompt_tokens,
            prefill_ms,
            choice,
            now_s,
        )
        return True

    def is_late(self, request_id: str, choice: int, now_s: float) -> bool:
        """Whether the end of what this choice sent was told already."""
        return self._ends.settles(request_id, choice, now_s)

    def first_token(self, request_id: str, now_s: float) -> bool:
        """Its prefill is done, which gave one token."""
        request = self._heard_of(request_id, now_s)
        if request is None or request.prefilled:
            return False
        self._leave_prefill(request)
        self._generate(request)
        return True

    def token(self, request_id: str, now_s: float) -> bool:
        """One more token. A first one that nobody told of has been there, too."""
        request = self._heard_of(request_id, now_s)
        if request is None:
            return False
        if not request.prefilled:
            self._leave_prefill(request)
        self._generate(request)
        return True

    def end(self, request_id: str, now_s: float) -> bool:
        """Note its end, wherever it was; its begin may still come. Returns whether it was there."""
        request = self._leave(request_id)
        if request is None:
            self._ends.add_early(request_id, now_s)
            return False
        self._ends.add(request_id, request.choice, now_s)
        return True

    def lapse(self, now_s: float) -> None:
        """Drop the requests of which nothing was told for too long, and forget old ends."""
        self._ends.forget(now_s)
        while self._requests:
            request_id, request = next(iter(self._requests.items()))
            if now_s - request.told_at_s < self._silence_s:
                return
            self._aged_out += 1
            self._leave(request_id)

    def take_idle(self) -> list[str]:
        """Gives the instances that their last request to decode has left since this was last asked."""
        idle = list(self._idle)
        self._idle.clear()
        return idle

    def _heard_of(self, request_id: str, now_s: float) -> _Request | None:
        request = self._requests.pop(request_id, None)
        if request is not None:
            request.told_at_s = now_s
            self._requests[request_id] = request
        return request

    def _leave(self, request_id: str) -> _Request | None:
        request = self._requests.pop(request_id, None)
        if request is None:
            return None
        if not request.prefilled:
            self._leave_prefill(request)
        if request.decode is not None and request.decode_name is not None:
            request.decode.decode_requests -= 1
            request.decode.decode_tokens -= request.prompt_tokens + request.generated_tokens
            if not request.decode.decode_requests:
                self._idle[request.decode_name] = None
        return request

    def _leave_prefill(self, request: _Request) -> None:
        request.prefilled = True
        account = request.prefill
        account.prefill_requests -= 1
        account.prefill_tokens -= request.prompt_tokens
        # Sums of floats do not come back to zero by themselves.
        account.prefill_ms = (
            account.prefill_ms - request.prefill_ms if account.prefill_requests else 0.0
        )

    def _generate(self, request: _Request) -> None:
        request.generated_tokens += 1
        if request.decode is not None:
            request.decode.decode_tokens += 1
