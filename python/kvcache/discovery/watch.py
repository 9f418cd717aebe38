"""One watch: changes of a range of keys as they happen."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final, Self

import grpc.aio

from kvcache.discovery.connection import refusal
from kvcache.discovery.errors import (
    CompactedError,
    ContinuityError,
    EtcdAuthError,
    EtcdError,
    EtcdUnavailableError,
)
from kvcache.discovery.messages import METHODS, message
from kvcache.discovery.results import RangeResult, WatchBatch, WatchEvent

if TYPE_CHECKING:
    from kvcache.discovery.connection import Connection
    from kvcache.discovery.session import Session

__all__ = ["Watch"]

_DESCENDING: Final = 2
_BY_MOD_REVISION: Final = 3


class Watch:
    """Changes of [key, range_end) from `start_revision` on; an async context manager.

    Iterating gives batches and never ends by itself: it raises `EtcdError` when the watch does.
    It has a connection of its own, since closing one cancels all that others do on it.
    """

    def __init__(self, session: Session, key: bytes, range_end: bytes, start_revision: int) -> None:
        self._session = session
        self._key = key
        self._range_end = range_end
        self._start_revision = start_revision
        self._connection: Connection | None = None
        self._call: Any = None
        self._token = ""

    async def __aenter__(self) -> Self:
        try:
            await self._open()
        except BaseException:
            await self.aclose()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> WatchBatch:
        """The next changes, of whole revisions: what etcd sent in fragments is joined."""
        events: list[WatchEvent] = []
        while True:
            answer = await self._read()
            events.extend(map(WatchEvent.from_message, answer.events))
            if events and not answer.fragment:
                return WatchBatch(tuple(events), events[-1].kv.mod_revision)

    async def newest(self, revision: int = 0) -> RangeResult:
        """The key changed last, without its value, at a revision or now; `count` has all keys.

        Asked over the watch's own connection, so that a member that hangs is found out.
        """
        request = message(
            "RangeRequest",
            key=self._key,
            range_end=self._range_end,
            revision=revision,
            limit=1,
            sort_order=_DESCENDING,
            sort_target=_BY_MOD_REVISION,
            keys_only=True,
        )
        connection = self._require_connection()
        try:
            answer = await self._session.ask_on(connection, METHODS["range"], request)
        except EtcdUnavailableError:
            self._session.leave(connection.endpoint)
            raise
        return RangeResult.from_message(answer)

    async def aclose(self) -> None:
        """Ends the watch and closes its connection."""
        if self._call is not None:
            self._call.cancel()
        if self._connection is not None:
            await self._connection.aclose()

    async def _open(self) -> None:
        timeout_s = self._session.config.request_timeout_s
        connection = self._connection = self._session.dial()
        request = message(
            "WatchRequest",
            create_request=message(
                "WatchCreateRequest",
                key=self._key,
                range_end=self._range_end,
                start_revision=self._start_revision,
                prev_kv=True,
                fragment=True,
            ),
        )
        counters = self._session.counters
        counters.requests_total += 1
        try:
            async with asyncio.timeout(timeout_s):
                await connection.connect(timeout_s)
                self._token = await self._session.token(connection)
                self._call = await connection.stream(METHODS["watch"], request, self._token)
                while not (await self._read()).created:
                    pass
        except (TimeoutError, EtcdUnavailableError, grpc.aio.AioRpcError) as error:
            counters.failures_total += 1
            self._session.leave(connection.endpoint)
            if isinstance(error, TimeoutError):
                raise EtcdUnavailableError(
                    f"etcd at {connection.endpoint} did not start the watch in time"
                ) from None
            if isinstance(error, grpc.aio.AioRpcError):
                raise connection.failure(error) from None
            raise

    async def _read(self) -> Any:
        connection = self._require_connection()
        try:
            answer = await connection.read(self._call)
        except EtcdError as error:
            if isinstance(error, EtcdUnavailableError):
                self._session.leave(connection.endpoint)
            raise self._noted(error) from None
        if answer is grpc.aio.EOF:
            self._session.leave(connection.endpoint)
            raise EtcdUnavailableError(f"etcd at {connection.endpoint} ended the watch")
        if answer.canceled:
            raise self._noted(_cancelled(connection.endpoint, answer))
        return answer

    def _noted(self, error: EtcdError) -> EtcdError:
        # Of a token that expired, etcd says "permission denied" here: only a login tells.
        if isinstance(error, EtcdAuthError):
            self._session.forget(self._token)
        return error

    def _require_connection(self) -> Connection:
        if self._connection is None:
            raise RuntimeError("a watch is used within `async with`")
        return self._connection


def _cancelled(endpoint: str, answer: Any) -> EtcdError:
    if answer.compact_revision:
        return CompactedError(answer.compact_revision)
    if answer.cancel_reason:
        return refusal(endpoint, None, answer.cancel_reason)
    return ContinuityError(f"etcd at {endpoint} cancelled the watch without a reason")
