"""`Service`: what the HTTP server serves, wired from a configuration, and its one owner.

Holds a directory, or the reason why there is none (an empty configuration path disables the
index), a registry, and what keeps both up to date from etcd. It must not know HTTP; the server
asks it and never touches streams or sockets.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, Self

from kvcache._process import Home
from kvcache._stays import Stays
from kvcache.directory import Directory
from kvcache.discovery.follower import StreamFollower
from kvcache.exceptions import ConfigError, ConfigFault, KvCacheError
from kvcache.registry.registry import Registry
from kvcache.routing.round_robin import RoundRobin
from kvcache.routing.router import Router

if TYPE_CHECKING:
    from types import TracebackType

    from kvcache._core import BlockKeys, Conversation, Matches
    from kvcache.config import KvEventsConfig
    from kvcache.discovery.runner import Discovery, DiscoveryOptions
    from kvcache.routing.base import Policy
    from kvcache.types import StreamStatus, TokenIds

__all__ = ["DirectoryView", "IndexUnavailableError", "Service"]

_NO_CONFIGURATION = "the index is disabled: the service was started without --kv_events_config_file"


class DirectoryView(Protocol):
    """The part of a directory that the service needs; `kvcache.Directory` is one."""

    def query(self, token_ids: TokenIds | BlockKeys | Conversation, /) -> Matches:
        """Who holds how much of a prompt. Raises `ClosedError`."""
        ...

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


class Service(Stays):
    """Owns directory, registry and discovery from start to `close`. Thread-safe, as they are.

    In a forked child every question raises `KvCacheError`, and `close` does nothing.
    """

    _stays = "it has threads and sockets: start one from the same configuration"

    def __init__(
        self,
        directory: DirectoryView | None,
        registry: Registry | None = None,
        follower: StreamFollower | None = None,
        discovery: Discovery | None = None,
        *,
        policy: Policy | None = None,
        shadow_policy: Policy | None = None,
    ) -> None:
        self._home = Home("Service")
        self._directory = directory
        self.registry = registry or Registry()
        """The instances; empty without etcd."""
        self.router = Router(
            directory, self.registry, policy or RoundRobin(), shadow_policy=shadow_policy
        )
        """Who serves a prompt."""
        self.follower = follower
        """What follows the instances' streams; None without `discovery` in the configuration."""
        self.discovery = discovery
        """What follows etcd; None without it."""

    @classmethod
    def start(
        cls,
        config: KvEventsConfig | None,
        options: DiscoveryOptions | None = None,
        *,
        policy: Policy | None = None,
        shadow_policy: Policy | None = None,
    ) -> Self:
        """Starts to follow what `config` says; without one the index is disabled.

        With `options` it follows the instances in etcd, and their streams if `config` has
        `discovery`. Without a policy instances are chosen in turn. Raises `ConfigError` for what
        cannot be followed; `OSError` without threads.
        """
        if options is None and config is not None and config.discovery is not None:
            raise ConfigError([ConfigFault("discovery", "needs to be told where etcd is")])
        directory = None if config is None else Directory(config)
        registry, follower = Registry(), None
        if directory is not None and config is not None and config.discovery is not None:
            follower = StreamFollower(registry, directory, config.discovery, config.max_streams)
        service = cls(directory, registry, follower, policy=policy, shadow_policy=shadow_policy)
        if options is not None:
            try:
                service.discovery = _discovery(options, registry, follower, config)
            except BaseException:
                service.close()
                raise
        return service

    @property
    def index_enabled(self) -> bool:
        """Whether there is a directory at all, synchronized or not."""
        return self._directory is not None

    @property
    def closed(self) -> bool:
        """Whether the service was shut down; true in a forked child, where nothing of it runs."""
        if self._home.is_elsewhere:
            return True
        return self._directory is not None and self._directory.closed

    def query_json(self, body: bytes) -> bytes:
        """Answers a query body. Raises `RequestError`, `IndexUnavailableError`, `ClosedError`."""
        self._home.check()
        if self._directory is None:
            raise IndexUnavailableError(_NO_CONFIGURATION)
        return self._directory.query_json(body)

    def streams(self) -> list[StreamStatus]:
        """The state of every stream; empty when the index is disabled."""
        self._home.check()
        return [] if self._directory is None else self._directory.streams()

    def close(self) -> None:
        """Stops following; within three seconds. A second call does nothing."""
        if self._home.is_elsewhere:
            return
        if self.discovery is not None:
            # First: it must not find the directory closed.
            self.discovery.close()
        if self._directory is not None:
            self._directory.close()

    def __enter__(self) -> Self:
        self._home.check()
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc_value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


def _discovery(
    options: DiscoveryOptions,
    registry: Registry,
    follower: StreamFollower | None,
    config: KvEventsConfig | None,
) -> Discovery:
    from kvcache.discovery.runner import Discovery  # noqa: PLC0415  (an extra: kvcache[etcd])

    interval_ms = 1000
    if config is not None and config.discovery is not None:
        interval_ms = config.discovery.refresh_interval_ms
    discovery = Discovery(options, registry, follower, interval_ms / 1000)
    discovery.start()
    return discovery
