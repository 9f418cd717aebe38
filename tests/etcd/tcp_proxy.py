"""A TCP proxy in the test's own loop: it cuts connections, holds their bytes, or refuses them."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Self


class TcpProxy:
    def __init__(self, target: str) -> None:
        host, _, port = target.rpartition(":")
        self._target = (host, int(port))
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._there = asyncio.Event()
        self._back = asyncio.Event()
        self.release()
        self.held_bytes = 0
        self.refusing = False
        self.connections: list[asyncio.StreamWriter] = []
        """Those of clients, oldest first."""

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    @property
    def endpoint(self) -> str:
        assert self._server is not None
        host, port = self._server.sockets[0].getsockname()
        return f"{host}:{port}"

    def cut(self, *, refuse: bool = False) -> None:
        """Ends all connections; may refuse new ones."""
        self.refusing = refuse
        while self.connections:
            self.cut_newest()

    def cut_newest(self) -> None:
        self.connections.pop().transport.abort()

    def hold(self) -> None:
        """Connections stand, but no byte passes."""
        self._there.clear()
        self._back.clear()

    def hold_answers(self) -> None:
        self._back.clear()

    def release(self) -> None:
        self._there.set()
        self._back.set()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        with suppress(OSError, asyncio.CancelledError):
            if not self.refusing:
                self.connections.append(writer)
                there, back = await asyncio.open_connection(*self._target)
                try:
                    async with asyncio.TaskGroup() as group:
                        group.create_task(self._pump(reader, back, self._there))
                        group.create_task(self._pump(there, writer, self._back))
                finally:
                    back.transport.abort()
        writer.transport.abort()
        if writer in self.connections:
            self.connections.remove(writer)

    async def _pump(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, flow: asyncio.Event
    ) -> None:
        chunks: asyncio.Queue[bytes] = asyncio.Queue()

        async def read() -> None:
            while data := await reader.read(65536):
                if not flow.is_set():
                    self.held_bytes += len(data)
                chunks.put_nowait(data)
            chunks.put_nowait(b"")

        async def write() -> None:
            while data := await chunks.get():
                await flow.wait()
                writer.write(data)
                await writer.drain()

        with suppress(OSError, ExceptionGroup):
            async with asyncio.TaskGroup() as group:
                group.create_task(read())
                group.create_task(write())
        writer.transport.abort()
