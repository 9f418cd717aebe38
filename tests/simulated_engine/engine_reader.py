"""A reader of an engine that shares no code with it: pyzmq sockets and plain MessagePack."""

from __future__ import annotations

import struct
import time
from typing import Any, Self

import msgpack  # type: ignore[import-untyped]
import zmq
from kvcache.testing import SimulatedEngine

DEADLINE_S = 10.0
DEADLINE_MS = int(DEADLINE_S * 1000)
END = 2**64 - 1
BLOCK = 4


def tokens(blocks: int, salt: int = 0) -> list[int]:
    return [salt * 1000 + position for position in range(blocks * BLOCK)]


class Reader:
    """A subscriber and a snapshot client that share no code with the engine."""

    def __init__(self, engine: SimulatedEngine) -> None:
        self._engine = engine
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        for option, value in (
            (zmq.LINGER, 0),
            (zmq.RCVTIMEO, DEADLINE_MS),
            (zmq.IPV6, 1),
            (zmq.RECONNECT_IVL, 10),
        ):
            self._context.setsockopt(option, value)
        self._sub = self._context.socket(zmq.SUB)
        self._sub.setsockopt(zmq.SUBSCRIBE, engine.topic.encode())
        self._sub.connect(engine.endpoint)
        self._dealer = self._context.socket(zmq.DEALER)
        self._dealer.connect(engine.replay_endpoint)

    def new_client(self) -> None:
        """Ask over a new connection; one to an engine that died would swallow a request."""
        self._dealer.close()
        self._dealer = self._context.socket(zmq.DEALER)
        self._dealer.connect(self._engine.replay_endpoint)

    def __enter__(self) -> Self:
        self.wait_subscribed()
        return self

    def __exit__(self, *_: object) -> None:
        self._context.destroy(linger=0)

    def wait_subscribed(self) -> None:
        """Wait for the engine to know us; libzmq subscribes again only while its user polls."""
        deadline = time.monotonic() + DEADLINE_S
        while not self._engine.subscribers:
            assert time.monotonic() < deadline
            self._sub.poll(10)

    def frames(self) -> list[bytes]:
        return self._sub.recv_multipart()

    def batch(self) -> tuple[int, list[Any]]:
        topic, sequence, payload = self.frames()
        assert topic == self._engine.topic.encode()
        return struct.unpack(">Q", sequence)[0], msgpack.unpackb(payload)

    def sequences(self, count: int) -> list[int]:
        return [self.batch()[0] for _ in range(count)]

    def ask(self) -> None:
        self._dealer.send_multipart([b"", struct.pack(">Q", 0)])

    def send_request(self, *frames: bytes) -> None:
        self._dealer.send_multipart(frames)

    def answer(self) -> list[bytes]:
        return self._dealer.recv_multipart()

    def answer_waits(self) -> bool:
        return bool(self._dealer.poll(0))

    def snapshot(self) -> tuple[int, list[Any]]:
        self.ask()
        empty, watermark, payload = self.answer()
        assert empty == b""
        assert self.answer() == [b"", struct.pack(">Q", END), b""]
        return struct.unpack(">Q", watermark)[0], msgpack.unpackb(payload)
