"""Says how many blocks a snapshot may describe within `max_message_bytes`.

A stream that holds more can never synchronize: each of its snapshots is refused for its size. So
the commands say for which streams the limits are enough, before anything is followed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kvcache.config import KvEventsConfig

__all__ = ["block_bytes", "snapshot_notes"]

# MessagePack at its longest: a token id of 17 to 32 bits, and a block that is an event by itself,
# with its hash, its parent's, all keys and the type spelled out.
_TOKEN_BYTES: Final = 5
_EVENT_BYTES: Final = 128


def block_bytes(block_size: int) -> int:
    """The bytes that a block of `block_size` tokens takes in a snapshot at most."""
    return _EVENT_BYTES + block_size * _TOKEN_BYTES


def snapshot_notes(config: KvEventsConfig) -> Iterator[str]:
    """Yields a sentence for each block size of which the largest stream may exceed a snapshot."""
    sizes = {stream.block_size for stream in config.streams}
    if config.discovery is not None:
        sizes.add(config.discovery.block_size)
    for size in sorted(sizes):
        fitting = config.max_message_bytes // block_bytes(size)
        if fitting < config.max_blocks_per_stream:
            yield (
                f"max_message_bytes {config.max_message_bytes} fits a snapshot of {fitting} blocks"
                f" of {size} tokens for sure; a stream of {config.max_blocks_per_stream} blocks,"
                " which max_blocks_per_stream allows, may need"
                f" {config.max_blocks_per_stream * block_bytes(size)}"
            )
