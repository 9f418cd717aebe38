"""The sockets of one engine process: an XPUB and a ROUTER, owned by one thread.

A `Publisher` lives once: a restarted engine is a new `Publisher` on the same ports, with a ZeroMQ
context of its own, so that `stop` returns only when the old listeners are gone. Other threads
hand messages over through a queue; it knows nothing of blocks, sequences or faults.
"""

from __future__ import annotations

import heapq
import itertools
import socket
import threading
import time
from collections import Counter, deque
from typing import TYPE_CHECKING, Any

import zmq

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Publisher"]

_REQUEST_FRAMES = 3  # identity, empty delimiter, start sequence
_SEQUENCE_BYTES = 8
_BIND_RETRY_S = 0.01
_SEND_HIGH_WATER_MESSAGES = 100_000


class Publisher:
    """Sends live messages to subscribers, and answers to whoever asked for a snapshot."""

    def __init__(
        self,
        endpoint: str,
        replay_endpoint: str,
        on_request: Callable[[bytes], None],
        *,
        bind_timeout_s: float = 0.0,
    ) -> None:
        """Bind both endpoints (port 0 is any free port) and start the thread.

        `on_request` gets the identity of each client that asks; it runs on this thread, and
        answers through `reply`. A port in use is tried again for `bind_timeout_s`. Raises
        `zmq.ZMQError` when an endpoint cannot be bound.
        """
        self._on_request = on_request
        # Guards what other threads hand over or wait for; never held while a socket is used.
        self._changed = threading.Condition()
        self._live: deque[list[bytes]] = deque()
        self._replies: list[tuple[float, int, list[list[bytes]]]] = []
        self._order = itertools.count()
        self._subscriptions: Counter[bytes] = Counter()
        self._linger_ms: int | None = None
        self._wake_reader, self._wake_writer = socket.socketpair()
        self._wake_reader.setblocking(False)
        self._wake_writer.setblocking(False)
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        try:
            self._events = self._bind(zmq.XPUB, endpoint, bind_timeout_s)
            self._requests = self._bind(zmq.ROUTER, replay_endpoint, bind_timeout_s)
        except BaseException:
            self._context.destroy(linger=0)
            self._wake_reader.close()
            self._wake_writer.close()
            raise
        self.endpoint = self._events.getsockopt_string(zmq.LAST_ENDPOINT)
        """Where events are published, with the real port."""
        self.replay_endpoint = self._requests.getsockopt_string(zmq.LAST_ENDPOINT)
        """Where requests are answered, with the real port."""
        # From here on the sockets belong to the thread; starting it is a full memory barrier.
        self._thread = threading.Thread(target=self._run, name="simulated-engine", daemon=True)
        self._thread.start()

    def publish(self, messages: list[list[bytes]]) -> None:
        """Queue live messages, in order."""
        with self._changed:
            self._live.extend(messages)
        self._wake()

    def reply(self, identity: bytes, messages: list[list[bytes]], delay_s: float = 0.0) -> None:
        """Queue the messages of one answer; a client that is gone gets nothing."""
        addressed = [[identity, *message] for message in messages]
        with self._changed:
            due = time.monotonic() + delay_s
            heapq.heappush(self._replies, (due, next(self._order), addressed))
        self._wake()

    def subscribers(self, topic: bytes) -> int:
        """Count the subscriptions that stand now and let the topic through."""
        with self._changed:
            return self._count(topic)

    def wait_subscribers(self, topic: bytes, count: int, timeout_s: float | None) -> bool:
        """Wait until `subscribers` is at least `count`; False after `timeout_s`, never for None."""
        with self._changed:
            return self._changed.wait_for(lambda: self._count(topic) >= count, timeout_s)

    def stop(self, linger_ms: int) -> None:
        """Close the sockets and end the thread; unsent messages get up to `linger_ms`."""
        with self._changed:
            self._linger_ms = linger_ms
        self._wake()
        self._thread.join()
        self._wake_writer.close()

    def _count(self, topic: bytes) -> int:
        return sum(
            count for prefix, count in self._subscriptions.items() if topic.startswith(prefix)
        )

    def _wake(self) -> None:
        try:
            self._wake_writer.send(b"\0")
        except BlockingIOError:
            return  # the thread has plenty of reasons to wake already
        except OSError:
            return  # the thread has ended; what is queued goes nowhere

    def _bind(self, kind: int, endpoint: str, timeout_s: float) -> zmq.Socket[bytes]:
        sock = self._context.socket(kind)
        sock.setsockopt(zmq.SNDHWM, _SEND_HIGH_WATER_MESSAGES)
        sock.setsockopt(zmq.IPV6, int("[" in endpoint))
        if kind == zmq.XPUB:
            # Every subscription and its end is reported, also the second one for a topic.
            sock.setsockopt(zmq.XPUB_VERBOSER, 1)
        deadline = time.monotonic() + timeout_s
        while True:
            try:
                sock.bind(endpoint)
            except zmq.ZMQError as error:
                # A connection of the process before may hold the port for a moment.
                if error.errno != zmq.EADDRINUSE or time.monotonic() >= deadline:
                    raise
                threading.Event().wait(_BIND_RETRY_S)
            else:
                return sock

    def _run(self) -> None:
        poller = zmq.Poller()
        for source in (self._events, self._requests, self._wake_reader):
            poller.register(source, zmq.POLLIN)
        try:
            while True:
                ready = dict(poller.poll(self._timeout_ms()))
                self._drain_wakes()
                if self._events in ready:
                    self._take_subscriptions()
                if self._requests in ready:
                    self._take_requests()
                linger_ms = self._send_due()
                if linger_ms is not None:
                    return
        finally:
            # Waits for the listeners to close, so that the ports are free afterwards.
            self._context.destroy(linger=self._linger_ms or 0)
            self._wake_reader.close()

    def _timeout_ms(self) -> int | None:
        with self._changed:
            if not self._replies:
                return None
            return max(0, int((self._replies[0][0] - time.monotonic()) * 1000) + 1)

    def _drain_wakes(self) -> None:
        try:
            while self._wake_reader.recv(4096):
                pass
        except BlockingIOError:
            return

    def _take_subscriptions(self) -> None:
        for frames in _received(self._events):
            message = frames[0]
            if message[:1] not in {b"\0", b"\1"}:
                continue  # an XPUB also passes on whatever else a subscriber sends
            with self._changed:
                self._subscriptions[message[1:]] += 1 if message[:1] == b"\1" else -1
                self._changed.notify_all()

    def _take_requests(self) -> None:
        for frames in _received(self._requests):
            # As real engines do: a request of another shape is not answered at all.
            if len(frames) == _REQUEST_FRAMES and not frames[1]:
                identity, _, start = frames
                if len(start) == _SEQUENCE_BYTES:
                    self._on_request(identity)

    def _send_due(self) -> int | None:
        """Send what is due; the linger time when it is time to stop."""
        with self._changed:
            live, self._live = self._live, deque()
            now = time.monotonic()
            replies: list[list[bytes]] = []
            while self._replies and self._replies[0][0] <= now:
                replies.extend(heapq.heappop(self._replies)[2])
            linger_ms = self._linger_ms
        for message in live:
            self._events.send_multipart(message)
        for message in replies:
            self._requests.send_multipart(message)
        return linger_ms


def _received(sock: zmq.Socket[Any]) -> list[list[bytes]]:
    messages = []
    try:
        while True:
            messages.append(sock.recv_multipart(zmq.NOBLOCK))
    except zmq.Again:
        return messages
