"""`Connection`: one engine's connection. Frames come in, calls are answered, and it takes no more than its share.

Most calls are answered where they are read. A call that takes a while becomes a task, and others overtake it:
answers are matched by their correlation id. A peer that sends faster than it is answered, or does not read
its answers, is not read from until it does.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, Final, Protocol, cast

from kvcache.rpc.calls import encode_answer, encode_error, read_call, read_meta
from kvcache.rpc.errors import CallError, ErrorCode, FramingError
from kvcache.rpc.framing import FrameReader

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from kvcache.rpc.framing import Frame
    from kvcache.rpc.limits import RpcLimits
    from kvcache.rpc.service import Answer, Answers
    from kvcache.rpc.turns import Turns

__all__ = ["Connection", "Host"]

_log = logging.getLogger("kvcache.rpc")

_CALLS_A_TURN: Final = 16
"""Calls answered before other connections have their turn: some tenths of a millisecond."""

_ANSWER_BYTES_A_TURN: Final = 64 * 1024
_INTERNAL: Final = CallError(ErrorCode.INTERNAL, "unexpected error; see the log of the service")
_OVERCROWDED: Final = CallError(ErrorCode.OVERCROWDED, "too many calls wait for an answer")


class Host(Protocol):
    """What a connection needs of its server."""

    service: Answers
    limits: RpcLimits
    turns: Turns
    read_buffer: memoryview
    """One for all connections, which read one after another."""

    def opened(self, connection: Connection) -> bool:
        """Whether there is room for it."""
        ...

    def closed(self, connection: Connection) -> None:
        """It is gone."""
        ...

    def buffers(self, change: int) -> bool:
        """It keeps so many bytes more; whether there is room for all that is kept."""
        ...

    def begin_call(self) -> bool:
        """A call is going to wait; whether there is room for it."""
        ...

    def end_call(self) -> None:
        """A call for which there was room waits no more."""
        ...

    def answered(self, code: int) -> None:
        """A call was answered, with 0 or an error code."""
        ...

    def refused(self, connection: Connection, reason: str) -> None:
        """The connection is closed for a reason that its peer gave."""
        ...


class Connection(asyncio.BufferedProtocol):
    """See the module. `host` is the server that it belongs to."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._loop = asyncio.get_running_loop()
        self._reader = FrameReader()
        self._buffered_bytes = 0
        self._calls: set[asyncio.Task[None]] = set()
        self._turn_due = False
        self._closed = True
        self._ended_since_s: float | None = None
        self._partial_since_s: float | None = None
        self._unread_since_s: float | None = None
        self._active_s = self._loop.time()
        self.peer = "an unknown peer"

    # --- what the event loop says ------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The peer has connected."""
        self._transport = cast("asyncio.Transport", transport)
        address = transport.get_extra_info("peername")
        if address:
            self.peer = str(address[0])
        if not self._host.opened(self):
            self._transport.abort()
            return
        self._closed = False

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        """The connection is gone, whoever ended it."""
        if not self._closed:
            self._release()

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002
        """Where the next bytes are put; `buffer_updated` takes them away before anybody else's come."""
        return self._host.read_buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Bytes have arrived."""
        if self._closed:
            return
        try:
            self._reader.feed(self._host.read_buffer[:nbytes])
        except FramingError as error:
            self.refuse(str(error))
            return
        if self._turn_due:
            self._transport.pause_reading()
        self._want_turn()

    def eof_received(self) -> bool:
        """The peer has left, or sends nothing more and still waits for answers."""
        self._ended_since_s = self._loop.time()
        self._want_turn()
        return True

    def pause_writing(self) -> None:
        """The peer does not read its answers."""
        self._unread_since_s = self._loop.time()

    def resume_writing(self) -> None:
        """It has read them."""
        self._unread_since_s = None
        self._want_turn()

    # --- what the server does ----------------------------------------------------------------------

    def check(self, now_s: float) -> None:
        """Close a connection that is idle or slow; `now_s` is the event loop's time."""
        limits = self._host.limits
        if self._closed:
            return
        if _lasts(self._partial_since_s, now_s, limits.slow_timeout_s):
            self.refuse("a frame did not arrive whole in time")
        elif _lasts(self._unread_since_s, now_s, limits.slow_timeout_s):
            self.refuse("the answers were not read in time")
        elif _lasts(self._ended_since_s, now_s, limits.slow_timeout_s) or (
            not self._calls and _lasts(self._active_s, now_s, limits.idle_timeout_s)
        ):
            self.close()

    def refuse(self, reason: str) -> None:
        """Close it for a fault of its peer."""
        self._host.refused(self, reason)
        self.close()

    def close(self) -> None:
        """Close it now, whatever is still to be sent."""
        if self._closed:
            return
        self._release()
        self._transport.abort()

    def _release(self) -> None:
        self._closed = True
        self._host.buffers(-self._buffered_bytes)
        self._buffered_bytes = 0
        self._reader = FrameReader()
        for call in self._calls:
            call.cancel()
        self._host.closed(self)

    # --- turns -------------------------------------------------------------------------------------

    def _want_turn(self) -> None:
        if not self._turn_due:
            self._turn_due = True
            self._host.turns.add(self._take_turn)

    def _take_turn(self) -> None:
        """Answer what has arrived, as far as this connection's share goes."""
        self._turn_due = False
        if self._closed:
            return
        try:
            answers, drained = self._answer_some()
        except FramingError as error:
            self.refuse(str(error))
            return
        if answers and not self._transport.is_closing():
            self._transport.write(answers)
        self._settle(drained)

    def _answer_some(self) -> tuple[bytes, bool]:
        """The answers to some calls, and whether nothing but an incomplete frame is left."""
        answers = bytearray()
        for _ in range(_CALLS_A_TURN):
            if self._blocked or len(answers) > _ANSWER_BYTES_A_TURN:
                break
            frame = self._reader.next_frame()
            if frame is None:
                return bytes(answers), True
            self._active_s = self._loop.time()
            self._partial_since_s = None
            answers += self._begin(frame)
        return bytes(answers), False

    def _settle(self, drained: bool) -> None:
        """Account for what is kept, and read on, come again or wait."""
        kept = self._reader.buffered_bytes
        room = self._host.buffers(kept - self._buffered_bytes)
        self._buffered_bytes = kept
        if not room:
            self.refuse("too much is buffered of all connections")
            return
        if drained and kept and self._partial_since_s is None:
            self._partial_since_s = self._loop.time()
        if self._ended_since_s is not None:
            if drained and not self._calls:
                self._transport.close()  # when what is written is sent
        elif self._blocked or not drained:
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()
        if not drained and not self._blocked:
            self._want_turn()

    @property
    def _blocked(self) -> bool:
        full = len(self._calls) >= self._host.limits.max_calls_a_connection
        return full or self._unread_since_s is not None

    # --- calls -------------------------------------------------------------------------------------

    def _begin(self, frame: Frame) -> bytes:
        """The answer to a frame; nothing where it takes a while. Raises `FramingError`."""
        meta = read_meta(frame)
        correlation_id: int = meta.correlation_id
        try:
            answer: Answer = self._host.service.answer(read_call(meta, frame.payload))
        except CallError as error:
            return self._refuse_call(correlation_id, error)
        except Exception:  # noqa: BLE001  (whatever it is: the caller gets an answer, the log a trace)
            _log.exception("unexpected error in a call")
            return self._refuse_call(correlation_id, _INTERNAL)
        if isinstance(answer, bytes):
            self._host.answered(0)
            return encode_answer(correlation_id, answer)
        if not self._host.begin_call():
            answer.close()
            return self._refuse_call(correlation_id, _OVERCROWDED)
        call = self._loop.create_task(self._finish(correlation_id, answer))
        self._calls.add(call)
        call.add_done_callback(lambda _: self._end(call, answer))
        return b""

    async def _finish(self, correlation_id: int, answer: Coroutine[Any, Any, bytes]) -> None:
        try:
            frame = encode_answer(correlation_id, await answer)
            self._host.answered(0)
        except CallError as error:
            frame = self._refuse_call(correlation_id, error)
        except Exception:  # noqa: BLE001  (as above)
            _log.exception("unexpected error in a call")
            frame = self._refuse_call(correlation_id, _INTERNAL)
        self._active_s = self._loop.time()
        if not self._transport.is_closing():
            self._transport.write(frame)

    def _end(self, call: asyncio.Task[None], answer: Coroutine[Any, Any, bytes]) -> None:
        answer.close()  # it has not begun if the call was cancelled at once
        self._calls.discard(call)
        self._host.end_call()
        self._want_turn()

    def _refuse_call(self, correlation_id: int, error: CallError) -> bytes:
        self._host.answered(error.code)
        return encode_error(correlation_id, error)


def _lasts(since_s: float | None, now_s: float, timeout_s: float) -> bool:
    return since_s is not None and now_s >= since_s + timeout_s
