"""`Directory`: the core's directory, started from a configuration.

It only translates; what a stream is, and when its view is believed, is decided in the core.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Self

from kvcache import _core
from kvcache.exceptions import ConfigError, ConfigFault

if TYPE_CHECKING:
    from kvcache.config import KvEventsConfig, StreamConfig

__all__ = ["Directory", "refuse_unsupported"]

# A number that does not fit into the core's type is an `OverflowError`.
_REFUSALS: Final = (ValueError, OverflowError)


class Directory(_core.Directory):
    """Follows the configured streams and answers who holds how much of a prompt.

    Starts at once and connects in the background; a context manager that closes at its end.
    Thread-safe, and usable under asyncio without `await`: a query takes microseconds.

    Raises `ConfigError` for a configuration with discovery: that needs etcd, which this version
    does not read, and a directory that silently follows nothing would look like a cold fleet.
    Whatever else the core refuses is a `ConfigError` too; `OSError` when there are no threads.
    """

    def __new__(cls, config: KvEventsConfig) -> Self:
        """Starts to follow the streams of `config`, within its limits."""
        specs = _stream_specs(config)
        try:
            return super().__new__(
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


def refuse_unsupported(config: KvEventsConfig) -> None:
    """Raises `ConfigError` for a valid configuration that this version cannot follow."""
    _stream_specs(config)


def _stream_specs(config: KvEventsConfig) -> list[_core.StreamSpec]:
    """Translates the streams. Raises `ConfigError` with one fault a stream that is refused."""
    if config.discovery is not None:
        message = "discovery needs etcd, and this version follows static `streams` only"
        raise ConfigError([ConfigFault("discovery", message)])
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
