"""Being let in by etcd: which member, and with what token."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kvcache.discovery.connection import Connection, credentials
from kvcache.discovery.errors import (
    EtcdAmbiguousError,
    EtcdAuthError,
    EtcdError,
    EtcdRequestError,
    EtcdTokenError,
    EtcdUnavailableError,
)
from kvcache.discovery.messages import METHODS, message
from kvcache.exceptions import ClosedError

if TYPE_CHECKING:
    from kvcache.discovery.config import EtcdConfig
    from kvcache.discovery.messages import Method

__all__ = ["Session", "SessionCounters"]


@dataclass(slots=True)
class SessionCounters:
    """How many requests were tried (logins and watches too), failed, and were logins.

    A request that goes to several members counts as often.
    """

    requests_total: int = 0
    failures_total: int = 0
    logins_total: int = 0


class Session:
    """The connections to the members, one of which is in use, and the token of the user.

    Each member has a channel of its own: within one channel gRPC would stay with a stopped member
    for as long as its TCP connection stands.
    """

    def __init__(self, config: EtcdConfig) -> None:
        self.config = config
        self.counters = SessionCounters()
        self._tls = credentials(config)
        self._connections: dict[int, Connection] = {}
        self._current = 0
        # None before the first login; "" where etcd has no users.
        self._token: str | None = None if config.username else ""
        self._login = asyncio.Lock()
        self._closed = False

    @property
    def endpoint(self) -> str:
        """The member in use."""
        return self.config.endpoints[self._current]

    def leave(self, endpoint: str) -> None:
        """Turns to the next member, unless someone has turned away from this one already."""
        if endpoint == self.endpoint:
            self._current = (self._current + 1) % len(self.config.endpoints)

    def dial(self) -> Connection:
        """A new connection to the member in use; it is the caller's to close."""
        self._require_open()
        return Connection(self.endpoint, self._tls)

    async def ask(
        self, method: Method, request: Any, timeout_s: float | None, *, write: bool
    ) -> Any:
        """One request, to the next member when one does not answer, all within the deadline.

        A write that may have been sent is never sent again: `EtcdAmbiguousError`.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + (timeout_s or self.config.request_timeout_s)
        for left in range(len(self.config.endpoints), 0, -1):
            connection = self._connection()
            try:
                await self._reach(connection, max(deadline - loop.time(), 0) / left)
                return await self._send(connection, method, request, deadline, write=write)
            except EtcdUnavailableError as error:
                self.leave(connection.endpoint)
                if isinstance(error, EtcdAmbiguousError) or left == 1 or loop.time() >= deadline:
                    raise
        raise AssertionError("a configuration names at least one endpoint")

    async def ask_on(self, connection: Connection, method: Method, request: Any) -> Any:
        """A read over this connection alone."""
        deadline = asyncio.get_running_loop().time() + self.config.request_timeout_s
        return await self._send(connection, method, request, deadline, write=False)

    async def token(self, connection: Connection) -> str:
        """The user's token, after a login if need be; "" without users. Raises `EtcdError`."""
        if self._token is None:
            async with self._login:
                if self._token is None:
                    self._token = await self._log_in(connection)
        return self._token

    def forget(self, token: str) -> None:
        """The token was refused: the next request logs in, unless another has done so."""
        if self.config.username and self._token == token:
            self._token = None

    async def aclose(self) -> None:
        """Closes the connections; requests under way are cancelled."""
        self._closed = True
        connections = list(self._connections.values())
        self._connections.clear()
        for connection in connections:
            await connection.aclose()

    async def _reach(self, connection: Connection, timeout_s: float) -> None:
        try:
            await connection.connect(timeout_s)
        except EtcdUnavailableError:
            self.counters.requests_total += 1
            self.counters.failures_total += 1
            raise

    async def _send(
        self, connection: Connection, method: Method, request: Any, deadline: float, *, write: bool
    ) -> Any:
        token = await self._token_by(connection, deadline)
        try:
            return await self._attempt(connection, method, request, deadline, token, write=write)
        except EtcdTokenError:
            if not self.config.username:
                raise
            self.forget(token)
        # A request refused for its token did not take place, so a write may go again.
        token = await self._token_by(connection, deadline)
        return await self._attempt(connection, method, request, deadline, token, write=write)

    async def _token_by(self, connection: Connection, deadline: float) -> str:
        if self._token is not None:
            return self._token
        try:
            async with asyncio.timeout_at(deadline):
                return await self.token(connection)
        except TimeoutError:
            raise EtcdUnavailableError(
                f"etcd at {connection.endpoint} did not answer the login in time"
            ) from None

    async def _attempt(
        self,
        connection: Connection,
        method: Method,
        request: Any,
        deadline: float,
        token: str,
        *,
        write: bool,
    ) -> Any:
        left_s = max(deadline - asyncio.get_running_loop().time(), 0.001)
        self.counters.requests_total += 1
        try:
            return await connection.ask(method, request, left_s, token)
        except EtcdError as error:
            self.counters.failures_total += 1
            if write and isinstance(error, EtcdUnavailableError):
                raise EtcdAmbiguousError(str(error)) from None
            raise

    async def _log_in(self, connection: Connection) -> str:
        request = message(
            "AuthenticateRequest", name=self.config.username, password=self.config.password
        )
        self.counters.requests_total += 1
        self.counters.logins_total += 1
        try:
            answer = await connection.ask(
                METHODS["authenticate"], request, self.config.request_timeout_s, ""
            )
        except EtcdRequestError as error:
            self.counters.failures_total += 1
            if "authentication is not enabled" in str(error):
                return ""
            raise EtcdAuthError(str(error)) from None
        except EtcdError:
            self.counters.failures_total += 1
            raise
        return str(answer.token)

    def _connection(self) -> Connection:
        self._require_open()
        connection = self._connections.get(self._current)
        if connection is None:
            connection = self._connections[self._current] = self.dial()
        return connection

    def _require_open(self) -> None:
        if self._closed:
            raise ClosedError("the etcd client was closed")
