"""`Accounts`: which requests are where, and how far (spec: SLO_AWARE, counters).

Not thread-safe; the policy guards it. A request holds the accounts that it was entered in, so that one that
ends after its instance was replaced by another process takes nothing from that one. Every request leaves its
accounts once, however often and in whatever order its end is told.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kvcache.registry.model import Instance

__all__ = ["MAX_REQUESTS", "Account", "Accounts"]

MAX_REQUESTS: Final = 65_536
"""Requests kept at one time; of more, the oldest is taken for lost and cancelled."""


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
    generated_tokens: int = 0
    prefilled: bool = field(default=False)


class Accounts:
    """The accounts of all instances, and the requests in them."""

    def __init__(self, max_requests: int = MAX_REQUESTS) -> None:
        self._max_requests = max_requests
        self._accounts: dict[tuple[str, str], Account] = {}  # by name and identity
        self._requests: dict[str, _Request] = {}
        self.lost_total = 0
        """Requests of which no end was told."""

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

    def begin(
        self,
        request_id: str,
        prompt_tokens: int,
        prefill: Instance,
        prefill_ms: float,
        decode: Instance | None,
    ) -> None:
        """Enter a request. One that is there under this id is cancelled: it is tried again."""
        self.cancel(request_id)
        while len(self._requests) >= self._max_requests:
            self.lost_total += 1
            self.cancel(next(iter(self._requests)))
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
            account, decoding, decode.name if decode else None, prompt_tokens, prefill_ms
        )

    def first_token(self, request_id: str) -> bool:
        """Its prefill is done, which gave one token."""
        request = self._requests.get(request_id)
        if request is None or request.prefilled:
            return False
        self._leave_prefill(request)
        self._generate(request)
        return True

    def token(self, request_id: str) -> bool:
        """One more token. A first one that nobody told of has been there, too."""
        request = self._requests.get(request_id)
        if request is None:
            return False
        if not request.prefilled:
            self._leave_prefill(request)
        self._generate(request)
        return True

    def cancel(self, request_id: str) -> str | None:
        """Its end, wherever it was. Returns who decoded it if that one has no request left."""
        request = self._requests.pop(request_id, None)
        if request is None:
            return None
        if not request.prefilled:
            self._leave_prefill(request)
        if request.decode is None:
            return None
        request.decode.decode_requests -= 1
        request.decode.decode_tokens -= request.prompt_tokens + request.generated_tokens
        return None if request.decode.decode_requests else request.decode_name

    def __contains__(self, request_id: str) -> bool:
        return request_id in self._requests

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
