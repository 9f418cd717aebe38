"""`Service`: what the HTTP server serves, wired from a configuration, and its one owner.

Holds a directory, or the reason why there is none (an empty configuration path disables the
index). It must not know HTTP; the server asks it and never touches streams or sockets.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, Self

from kvcache.directory import Directory
from kvcache.exceptions import KvCacheError

if TYPE_CHECKING:
    from types import TracebackType

    from kvcache.config import KvEventsConfig
    from kvcache.types import StreamStatus

__all__ = ["DirectoryView", "IndexUnavailableError", "Service"]

_NO_CONFIGURATION = "the index is disabled: the service was started without --kv_events_config_file"


class DirectoryView(Protocol):
    """The part of a directory that the service needs; `kvcache.Directory` is one."""

    def query_json(self, body: bytes) -> bytes:
        """Answers a request body with a response body. Raises `RequestError`, `ClosedError`."""
        ...

    def streams(self) -> list[StreamStatus]:
        """The state of every stream, by instance name, then rank."""
        ...

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        ...

    def close(self) -> None:
        """Stops every task and thread; a second call does nothing."""
        ...


class IndexUnavailableError(KvCacheError):
    """There is no index to ask; the message says why, in words a person can act on."""


class Service:
    """Owns the directory from start to `close`. Thread-safe, as the directory is."""

    def __init__(self, directory: DirectoryView | None) -> None:
        self._directory = directory

    @classmethod
    def start(cls, config: KvEventsConfig | None) -> Self:
        """Starts to follow what `config` says; without one the index is disabled.

        Raises `ConfigError` for what this version cannot follow.
        """
        return cls(None if config is None else Directory(config))

    @property
    def index_enabled(self) -> bool:
        """Whether there is a directory at all, synchronized or not."""
        return self._directory is not None

    @property
    def closed(self) -> bool:
        """Whether the service was shut down."""
        return self._directory is not None and self._directory.closed

    def query_json(self, body: bytes) -> bytes:
        """Answers a query body. Raises `RequestError`, `IndexUnavailableError`, `ClosedError`."""
        if self._directory is None:
            raise IndexUnavailableError(_NO_CONFIGURATION)
        return self._directory.query_json(body)

    def streams(self) -> list[StreamStatus]:
        """The state of every stream; empty when the index is disabled."""
        return [] if self._directory is None else self._directory.streams()

    def close(self) -> None:
        """Stops following streams; under a second. A second call does nothing."""
        if self._directory is not None:
            self._directory.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc_value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()
