"""Runs the application on a real socket until a signal, and says when it is ready.

A first SIGTERM or SIGINT stops accepting and lets requests finish for two seconds; a second
one does not wait. Either way `serve` returns and the process exits by itself: the HTTP server's
own habit of raising the signal again would turn a clean stop into an exit code of 143.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import signal
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import uvicorn

from kvcache.server.app import create_app
from kvcache.server.listen import advertised_address, base_url, bind
from kvcache.server.logs import LogFormat, configure_logging
from kvcache.server.settings import ServerSettings
from kvcache.server.stderr import tell
from kvcache.service import Service
from kvcache.snapshot_size import snapshot_notes

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager
    from types import FrameType

    from starlette.types import ASGIApp

    from kvcache.config import KvEventsConfig
    from kvcache.discovery.runner import DiscoveryOptions
    from kvcache.routing.base import Policy

__all__ = ["ServeOptions", "Server", "serve"]

_log = logging.getLogger("kvcache.server")

_DRAIN_SECONDS: Final = 2
"""Freeing our keys in etcd may take 1.7 s more, closing the directory 0.9: together under the promised five."""

_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)


@dataclass(frozen=True, slots=True)
class ServeOptions:
    """What `kvcache serve` was told, already validated."""

    host: str
    port: int
    """0 picks a free port."""
    config: KvEventsConfig | None
    """None switches the index off."""
    discovery: DiscoveryOptions | None = None
    """None follows no etcd."""
    rpc_port: int = 0
    """Where engines call over brpc; 0 for nowhere. Needs `discovery`."""
    policy: Policy | None = None
    """None chooses instances in turn."""
    shadow_policy: Policy | None = None
    """Chooses too, and is only counted."""
    log_level: str = "info"
    log_format: LogFormat = "text"
    settings: ServerSettings = field(default_factory=ServerSettings)


class Server(uvicorn.Server):
    """The HTTP server with our signals and our word of being ready."""

    def __init__(self, app: ASGIApp, on_ready: Callable[[], None]) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                lifespan="off",
                ws="none",
                log_config=None,
                access_log=False,
                server_header=False,
                proxy_headers=False,
                timeout_graceful_shutdown=_DRAIN_SECONDS,
            )
        )
        self._on_ready = on_ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Starts to accept, then says so."""
        await super().startup(sockets)
        if not self.should_exit:
            self._on_ready()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:  # noqa: ARG002
        """Drains at the first signal of either kind, hurries at the second."""
        self.force_exit = self.should_exit
        self.should_exit = True

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Listens to signals where that is possible; see the module for why it is overridden."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        previous = {number: signal.signal(number, self.handle_exit) for number in _SIGNALS}
        try:
            yield
        finally:
            # A late signal must not undo a clean stop: the directory is still to be closed.
            for number in previous:
                signal.signal(number, signal.SIG_IGN)


def _discovery(
    options: ServeOptions, listener: socket.socket, rpc_listener: socket.socket | None
) -> DiscoveryOptions | None:
    """The options for etcd, with the addresses that others reach us at."""
    discovery = options.discovery
    if discovery is None:
        return None
    advertised = discovery.advertised or advertised_address(listener)
    if rpc_listener is None:
        return dataclasses.replace(discovery, advertised=advertised)
    # The host is one, whatever others call it; the port is that of the calls.
    host = advertised.rpartition(":")[0]
    return dataclasses.replace(
        discovery,
        advertised=advertised,
        dialled=f"{host}:{rpc_listener.getsockname()[1]}",
        rpc_listener=rpc_listener,
    )


def _rpc_listener(options: ServeOptions) -> AbstractContextManager[socket.socket | None]:
    if not options.rpc_port:
        return contextlib.nullcontext()
    return bind(options.host, options.rpc_port)


def serve(options: ServeOptions) -> None:
    """Serves until a signal. Raises `ConfigError`, `BindError`, `OSError`."""
    configure_logging(options.log_level, options.log_format)
    with (
        bind(options.host, options.port) as listener,
        _rpc_listener(options) as rpc_listener,
        Service.start(
            options.config,
            _discovery(options, listener, rpc_listener),
            policy=options.policy,
            shadow_policy=options.shadow_policy,
        ) as service,
    ):
        url = base_url(options.host, listener.getsockname()[1])
        if options.config is None:
            _log.warning("the index is disabled: no --kv_events_config_file; queries get 503")
            if service.router.policy.name == "CAR":
                _log.warning("CAR scores every hit 0, as there is no index")
        elif options.config.discovery is None:
            _log.info("following streams: %d", len(options.config.streams))
            if service.router.policy.name == "CAR":
                _log.warning(
                    "CAR scores every hit 0: nobody knows which process a static stream is"
                )

        if options.config is not None:
            for note in snapshot_notes(options.config):
                _log.info("%s", note)

        def on_ready() -> None:
            tell(f"kvcache: serving on {url}")

        Server(create_app(service, options.settings), on_ready).run(sockets=[listener])
        _log.info("stopped")
