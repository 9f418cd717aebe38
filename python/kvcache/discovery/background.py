"""`Background`: one thread with an event loop that runs a coroutine until it is closed.

Everything that follows etcd is asynchronous, and who embeds the package may have a loop of his own, or
none. So it has a thread for itself, and talks to the rest through objects that are thread-safe.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from typing import TYPE_CHECKING, Final

from kvcache._process import Home

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from typing import TypeAlias

    _Coroutine: TypeAlias = Callable[[], Coroutine[None, None, None]]

__all__ = ["Background"]

_log = logging.getLogger("kvcache.discovery")

_RESTART_PAUSE_S: Final = 1.0


class Background:
    """Runs `main()` in a thread called `name`, and after it `end()`; both are waited for when it is closed.

    A fault of ours that ends `main` is logged with its traceback, and `main` starts anew after a second:
    a directory that silently follows nothing any more would be worse.
    """

    def __init__(self, name: str, main: _Coroutine, end: _Coroutine) -> None:
        self._home = Home("Background")
        self._main = main
        self._end = end
        self._stopped = asyncio.Event()
        self._loop = asyncio.new_event_loop()
        self.restarts_total = 0
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Start the thread. Raises `RuntimeError` when the system gives none."""
        try:
            self._thread.start()
        except RuntimeError:
            self._loop.close()
            raise

    def close(self, timeout_s: float) -> bool:
        """Cancel `main` and wait until it has ended; False if it has not within `timeout_s`.

        Does nothing in a forked child, where the thread is not, and the loop's sockets are the parent's.
        """
        if self._home.is_elsewhere:
            return True
        with contextlib.suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(self._stopped.set)
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._supervise())

    async def _supervise(self) -> None:
        stopped = asyncio.create_task(self._stopped.wait())
        while not stopped.done():
            main = asyncio.create_task(self._main())
            await asyncio.wait((main, stopped), return_when=asyncio.FIRST_COMPLETED)
            if main.done() and not stopped.done():
                self.restarts_total += 1
                _log.error("%s ended and starts anew", self._thread.name, exc_info=_fault(main))
                await asyncio.wait((stopped,), timeout=_RESTART_PAUSE_S)
                continue
            main.cancel()
            await asyncio.wait((main,))
        await self._end()


def _fault(main: asyncio.Task[None]) -> BaseException | None:
    return None if main.cancelled() else main.exception()
