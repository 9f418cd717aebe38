"""A client as an engine has one: many calls on one connection, matched by their correlation ids.

It shares nothing with the server but protobuf: frames are written and read here anew.
"""

from __future__ import annotations

import asyncio
import itertools
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from kvcache.rpc.limits import RpcLimits
from kvcache.rpc.messages import message, parse
from kvcache.rpc.server import RpcServer
from kvcache.rpc.service import Answers

SERVICE = b"xllm_service.proto.XllmRpcService"


def frame(meta: bytes, payload: bytes = b"") -> bytes:
    sizes = (len(meta) + len(payload)).to_bytes(4, "big") + len(meta).to_bytes(4, "big")
    return b"PRPC" + sizes + meta + payload


def request(
    correlation_id: int,
    method: bytes,
    body: bytes = b"",
    *,
    service: bytes = SERVICE,
    attachment: bytes = b"",
    **meta: Any,
) -> bytes:
    meta.setdefault("attachment_size", len(attachment))
    called = message("RpcRequestMeta", service_name=service, method_name=method)
    whole = message("RpcMeta", request=called, correlation_id=correlation_id, **meta)
    return frame(whole.SerializeToString(), body + attachment)


@dataclass
class Reply:
    correlation_id: int
    error_code: int
    error_text: str
    body: bytes

    def status(self) -> bool:
        assert (self.error_code, self.error_text) == (0, "")
        return bool(parse("Status", self.body).ok)


class Client:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self._ids = itertools.count(1)

    async def reply(self) -> Reply:
        """The next answer, whichever call it is of."""
        head = await asyncio.wait_for(self.reader.readexactly(12), 20)
        assert head[:4] == b"PRPC"
        size, meta_size = (int.from_bytes(head[at : at + 4], "big") for at in (4, 8))
        body = await asyncio.wait_for(self.reader.readexactly(size), 20)
        meta = parse("RpcMeta", body[:meta_size])
        assert meta.HasField("response")
        assert not meta.HasField("request")
        response = meta.response
        return Reply(
            meta.correlation_id, response.error_code, response.error_text, body[meta_size:]
        )

    async def call(self, method: bytes, body: bytes = b"", **meta: Any) -> Reply:
        number = next(self._ids)
        self.writer.write(request(number, method, body, **meta))
        reply = await self.reply()
        assert reply.correlation_id == number
        return reply

    async def ended(self) -> bytes:
        """What still came before the server closed the connection."""
        rest = b""
        try:
            while data := await asyncio.wait_for(self.reader.read(65536), 20):
                rest += data
        except ConnectionError:
            pass
        return rest

    async def alive(self) -> bool:
        return (await self.call(b"Hello")).status()


@dataclass
class Rig:
    server: RpcServer
    address: tuple[str, int]
    clients: list[Client]

    async def connect(self) -> Client:
        client = Client(*await asyncio.open_connection(*self.address))
        self.clients.append(client)
        return client


@asynccontextmanager
async def serving(service: Answers, limits: RpcLimits | None = None) -> AsyncIterator[Rig]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        rig = Rig(RpcServer(listener, service, limits), listener.getsockname()[:2], [])
        running = asyncio.create_task(rig.server.run())
        try:
            yield rig
        finally:
            for client in rig.clients:
                client.writer.transport.abort()
            running.cancel()
            await asyncio.wait((running,))
        assert running.cancelled(), running.exception()
        await until(lambda: rig.server.counts.connections == 0)
        await until(lambda: rig.server._calls == 0)
        assert rig.server._buffered_bytes == 0


async def until(condition: Any, timeout_s: float = 20.0) -> None:
    async with asyncio.timeout(timeout_s):
        while not condition():  # noqa: ASYNC110 - there is no event for what is seen from outside
            await asyncio.sleep(0.005)
