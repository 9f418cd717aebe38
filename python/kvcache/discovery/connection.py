"""One gRPC channel to one member, and its failures as our errors."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

import grpc
import grpc.aio

from kvcache.discovery.errors import (
    CompactedError,
    EtcdAuthError,
    EtcdError,
    EtcdRequestError,
    EtcdTokenError,
    EtcdUnavailableError,
    FutureRevisionError,
    LeaseNotFoundError,
    ResponseTooLargeError,
)
from kvcache.discovery.messages import METHODS, message
from kvcache.exceptions import ConfigError, ConfigFault

if TYPE_CHECKING:
    from pathlib import Path

    from kvcache.discovery.config import EtcdConfig
    from kvcache.discovery.messages import Method

__all__ = ["Connection", "credentials", "refusal"]

_MAX_MESSAGE_BYTES: Final = 16 << 20
_MAX_REASON_CHARS: Final = 300
_NO_ADDRESS: Final = "failed to connect to all addresses; last error: "
_WHY_TIMEOUT_S: Final = 0.1
_OPTIONS: Final = (
    # Without this, channels with equal options share a TCP connection, and its backoff.
    ("grpc.use_local_subchannel_pool", 1),
    # The directory is on the internal network.
    ("grpc.enable_http_proxy", 0),
    ("grpc.max_receive_message_length", _MAX_MESSAGE_BYTES),
    # gRPC would wait for up to two minutes before it looks at a member again.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 1000),
    ("grpc.max_reconnect_backoff_ms", 1000),
    # A connection that died in silence is replaced; etcd allows a ping every five seconds. Deadlines
    # and probes notice a hung member long before this does.
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 5_000),
    ("grpc.http2.ping_timeout_ms", 5_000),
)
_UNAVAILABLE: Final = frozenset(
    {
        grpc.StatusCode.ABORTED,
        grpc.StatusCode.CANCELLED,
        grpc.StatusCode.DATA_LOSS,
        grpc.StatusCode.DEADLINE_EXCEEDED,
        grpc.StatusCode.INTERNAL,
        grpc.StatusCode.UNAVAILABLE,
        grpc.StatusCode.UNKNOWN,
    }
)
# etcd's codes are not always telling, and a cancelled watch has none: its texts are, since 3.4.
_REFUSALS: Final[tuple[tuple[grpc.StatusCode | None, str, type[EtcdError], str], ...]] = (
    (None, "user name is empty", EtcdTokenError, "wants a user name and a password"),
    (None, "invalid auth token", EtcdTokenError, "does not know the token"),
    (None, "revision of auth store is old", EtcdTokenError, "has other users since the login"),
    (grpc.StatusCode.UNAUTHENTICATED, "", EtcdTokenError, "does not know the user"),
    (
        grpc.StatusCode.PERMISSION_DENIED,
        "permission denied",
        EtcdAuthError,
        "denies the user these keys: grant it a role",
    ),
    (
        None,
        "invalid user ID or password",
        EtcdAuthError,
        "refuses the user name or the password",
    ),
    (
        None,
        "is a future revision",
        FutureRevisionError,
        "has not reached the revision asked for",
    ),
    (
        grpc.StatusCode.NOT_FOUND,
        "requested lease not found",
        LeaseNotFoundError,
        "does not know the lease: it lapsed or was revoked",
    ),
    (None, "larger than max", ResponseTooLargeError, "sent more at once than is accepted"),
)


def credentials(config: EtcdConfig) -> grpc.ChannelCredentials | None:
    """What TLS needs, read from the files; None without TLS. Raises `ConfigError`."""
    if not config.tls:
        return None
    faults: list[ConfigFault] = []

    def read(name: str, path: Path | None) -> bytes | None:
        try:
            return None if path is None else path.read_bytes()
        except OSError as error:
            faults.append(ConfigFault(name, f"cannot be read: {error.strerror}: {path}"))
            return None

    ca = read("ca_path", config.ca_path)
    cert = read("cert_path", config.cert_path)
    key = read("key_path", config.key_path)
    if faults:
        raise ConfigError(faults)
    return grpc.ssl_channel_credentials(ca, key, cert)


class Connection:
    """A channel of its own to one member; belongs to the loop that first uses it."""

    def __init__(self, endpoint: str, tls: grpc.ChannelCredentials | None) -> None:
        self.endpoint = endpoint
        target = f"dns:///{endpoint}"
        self._channel = (
            grpc.aio.insecure_channel(target, options=_OPTIONS)
            if tls is None
            else grpc.aio.secure_channel(target, tls, options=_OPTIONS)
        )
        self._stubs: dict[str, Any] = {}

    async def connect(self, timeout_s: float) -> None:
        """Waits until requests can be sent; raises `EtcdUnavailableError` when they cannot.

        A request that was never sent is no ambiguous one, and gRPC does not tell the two apart.
        """
        state = self._channel.get_state(try_to_connect=True)
        if state is grpc.ChannelConnectivity.READY:
            return
        try:
            async with asyncio.timeout(timeout_s):
                # From a failed attempt, the state changes when the next one starts.
                retried = state is not grpc.ChannelConnectivity.TRANSIENT_FAILURE
                while state is not grpc.ChannelConnectivity.READY:
                    if state is grpc.ChannelConnectivity.TRANSIENT_FAILURE and retried:
                        break
                    await self._channel.wait_for_state_change(state)
                    state = self._channel.get_state(try_to_connect=True)
                    retried = True
        except TimeoutError:
            pass
        if state is not grpc.ChannelConnectivity.READY:
            failed = state is grpc.ChannelConnectivity.TRANSIENT_FAILURE
            reason = await self._why() if failed else "no answer in time"
            raise EtcdUnavailableError(f"cannot connect to etcd at {self.endpoint}: {reason}")

    async def _why(self) -> str:
        """Why the last attempt to connect failed: a call that is not sent is all that tells."""
        method = METHODS["range"]
        try:
            await self._stub(method)(message("RangeRequest", key=b"\0"), timeout=_WHY_TIMEOUT_S)
        except grpc.aio.AioRpcError as error:
            return _reason((error.details() or "").removeprefix(_NO_ADDRESS))
        return "the connection came too late"

    async def ask(self, method: Method, request: Any, timeout_s: float, token: str) -> Any:
        """One request and its one answer; raises `EtcdError`."""
        try:
            if method.streams:
                return await self._exchange(method, request, timeout_s, token)
            return await self._stub(method)(request, timeout=timeout_s, metadata=_metadata(token))
        except grpc.aio.AioRpcError as error:
            raise self.failure(error) from None
        except asyncio.CancelledError:
            self._require_cancelled()
            raise

    async def read(self, call: Any) -> Any:
        """The next answer of a stream, or `grpc.aio.EOF`; raises `EtcdError`."""
        try:
            return await call.read()
        except grpc.aio.AioRpcError as error:
            raise self.failure(error) from None
        except asyncio.CancelledError:
            self._require_cancelled()
            raise

    def _require_cancelled(self) -> None:
        # gRPC cancels whoever waits on a call that is ended here, by closing its connection: to a
        # task that nobody cancelled, that is a failure like others, and it must not end in silence.
        task = asyncio.current_task()
        if task is not None and not task.cancelling():
            raise EtcdUnavailableError(f"the connection to etcd at {self.endpoint} was closed")

    async def stream(
        self, method: Method, request: Any, token: str, timeout_s: float | None = None
    ) -> Any:
        """A call of both directions with its first request sent; raises `AioRpcError`."""
        # With this, etcd ends the call when its member has lost the leader.
        metadata = (*_metadata(token), ("hasleader", "true"))
        call = self._stub(method)(timeout=timeout_s, metadata=metadata)
        # Not with a request iterator: gRPC would run it in a task of its own.
        try:
            await call.write(request)
        except asyncio.InvalidStateError:
            # It ended before anything was written; reading says why.
            await self.read(call)
            raise EtcdUnavailableError(f"etcd at {self.endpoint} ended the call") from None
        return call

    async def _exchange(self, method: Method, request: Any, timeout_s: float, token: str) -> Any:
        call = await self.stream(method, request, token, timeout_s)
        try:
            answer = await self.read(call)
        finally:
            call.cancel()
        if answer is grpc.aio.EOF:
            raise EtcdUnavailableError(f"etcd at {self.endpoint} ended the call without an answer")
        return answer

    def _stub(self, method: Method) -> Any:
        stub = self._stubs.get(method.path)
        if stub is None:
            create = self._channel.stream_stream if method.streams else self._channel.unary_unary
            stub = self._stubs[method.path] = create(
                method.path, method.request.SerializeToString, method.response.FromString
            )
        return stub

    def failure(self, error: grpc.aio.AioRpcError) -> EtcdError:
        """The error as one of ours, with the member's name."""
        code, details = error.code(), error.details() or ""
        if code in _UNAVAILABLE:
            if code is grpc.StatusCode.DEADLINE_EXCEEDED:
                return EtcdUnavailableError(f"etcd at {self.endpoint} did not answer in time")
            return EtcdUnavailableError(f"etcd at {self.endpoint} failed: {_reason(details)}")
        return refusal(self.endpoint, code, details)

    async def aclose(self) -> None:
        """Cancels what is under way and closes the connection."""
        await self._channel.close()


def refusal(endpoint: str, code: grpc.StatusCode | None, details: str) -> EtcdError:
    """What etcd says when it answers but will not; also the reason of a cancelled watch."""
    where = f"etcd at {endpoint}"
    if "has been compacted" in details:
        return CompactedError(0)
    for meant, part, kind, text in _REFUSALS:
        if (meant is not None and code is meant) or (part and part in details):
            return kind(f"{where} {text}")
    return EtcdRequestError(f"{where} refuses: {_reason(details)}")


def _metadata(token: str) -> tuple[tuple[str, str], ...]:
    return (("token", token),) if token else ()


def _reason(details: str) -> str:
    """On one line and bounded."""
    shown = "".join(c if c.isprintable() else " " for c in details) or "no reason given"
    return shown if len(shown) <= _MAX_REASON_CHARS else f"{shown[: _MAX_REASON_CHARS - 1]}…"
