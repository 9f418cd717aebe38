"""`Directory`: the core's directory, started from a configuration.

It only translates; what a stream is, and when its view is believed, is decided in the core.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Self

from kvcache import _core
from kvcache.exceptions import ConfigError, ConfigFault
from kvcache.stream_log import StreamLog

if TYPE_CHECKING:
    from types import TracebackType

    from kvcache.config import KvEventsConfig, StreamConfig

__all__ = ["Directory", "refuse_unsupported"]

# A number that does not fit into the core's type is an `OverflowError`.
_REFUSALS: Final = (ValueError, OverflowError)


class Directory(_core.Directory):
    """Follows the configured streams and answers who holds how much of a prompt.

    Starts at once and connects in the background; a context manager that closes at its end.
    Thread-safe, and usable under asyncio without `await`: a query takes microseconds.

    With discovery it follows nothing until it is told what to follow by `set_streams`; a `Service`
    does that as instances come and go. Streams that are lost and return are logged by
    `kvcache.streams`.

    Serves the process that started it: in a forked child every method raises `KvCacheError`, and
    `close` does nothing.

    Raises `ConfigError` for what the core refuses; `OSError` when there are no threads.
    """

    _log: StreamLog

    def __new__(cls, config: KvEventsConfig) -> Self:
        """Starts to follow the streams of `config`, within its limits."""
        specs = _stream_specs(config)
        try:
            directory = super().__new__(
                cls,
                specs,
                max_streams=config.max_streams,
                max_blocks_per_stream=config.max_blocks_per_stream,
                max_message_bytes=config.max_message_bytes,
                max_buffered_bytes=config.max_buffered_bytes,
                replay_timeout_ms=config.replay_timeout_ms,
                resync_interval_ms=config.resync_interval_ms,
            )
        except _REFUSALS as error:
            raise ConfigError([ConfigFault("streams", str(error))]) from error
        directory._log = StreamLog(directory.stream_journal())
        return directory

    def close(self) -> None:
        """Stops every task and thread; under a second. A second call does nothing."""
        super().close()
        self._log.end()

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc_value: BaseException | None,
        traceback: TracebackType | None,
        /,
    ) -> None:
        self.close()


def refuse_unsupported(config: KvEventsConfig) -> None:
    """Raises `ConfigError` for a valid configuration that the core cannot follow."""
    _stream_specs(config)


def _stream_specs(config: KvEventsConfig) -> list[_core.StreamSpec]:
    """Translates the streams. Raises `ConfigError` with one fault a stream that is refused."""
    specs, faults = [], []
    for position, stream in enumerate(config.streams):
        try:
            specs.append(_stream_spec(stream))
        except _REFUSALS as error:
            faults.append(ConfigFault(f"streams[{position}]", str(error)))
    if faults:
        raise ConfigError(faults)
    return specs


def _stream_spec(stream: StreamConfig) -> _core.StreamSpec:
    return _core.StreamSpec(
        instance_name=stream.instance_name,
        dp_rank=stream.dp_rank,
        block_size=stream.block_size,
        endpoint=stream.endpoint,
        replay_endpoint=stream.replay_endpoint,
        topic=stream.topic,
        hash_seed=stream.hash_seed,
    )
