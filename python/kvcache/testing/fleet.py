"""Several simulated engines that start and stop together.

It adds nothing to what an engine can do; it saves tests and demonstrations the bookkeeping.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Self

from kvcache._stays import Stays

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from types import TracebackType

    from kvcache.testing.engine import SimulatedEngine

__all__ = ["SimulatedFleet"]


class SimulatedFleet(Stays):
    """A context manager over engines; when one cannot start, the others are closed again."""

    _stays = "its engines have threads and sockets: make one of engines made there"

    def __init__(self, engines: Iterable[SimulatedEngine]) -> None:
        self.engines = list(engines)
        self._open = ExitStack()

    def config(self, **changes: Any) -> dict[str, Any]:
        """Make a static configuration that follows every engine, with top-level `changes`."""
        return {"streams": [engine.stream_config() for engine in self.engines]} | changes

    def __iter__(self) -> Iterator[SimulatedEngine]:
        return iter(self.engines)

    def __getitem__(self, position: int) -> SimulatedEngine:
        return self.engines[position]

    def __len__(self) -> int:
        return len(self.engines)

    def __enter__(self) -> Self:
        with ExitStack() as starting:
            for engine in self.engines:
                starting.enter_context(engine)
            self._open = starting.pop_all()
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc_value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._open.close()
