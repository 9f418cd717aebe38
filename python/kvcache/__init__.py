"""A live directory of the KV-cache blocks that LLM inference engines hold.

`Directory` follows engines and answers who holds how much of a prompt; `PrefixIndex` is the
index alone, without network. The HTTP service and the CLI are extras: `kvcache[server]`.
"""

from __future__ import annotations

from kvcache._core import (
    BlockKeys,
    Conversation,
    Match,
    Matches,
    PrefixIndex,
    StreamSpec,
    __version__,
    block_keys,
)
from kvcache.config import KvEventsConfig
from kvcache.directory import Directory
from kvcache.exceptions import (
    ClosedError,
    ConfigError,
    ConfigFault,
    KvCacheError,
    RequestError,
    StoreError,
    TokenIdsError,
    WaitTimeoutError,
)

__all__ = [
    "BlockKeys",
    "ClosedError",
    "ConfigError",
    "ConfigFault",
    "Conversation",
    "Directory",
    "KvCacheError",
    "KvEventsConfig",
    "Match",
    "Matches",
    "PrefixIndex",
    "RequestError",
    "StoreError",
    "StreamSpec",
    "TokenIdsError",
    "WaitTimeoutError",
    "__version__",
    "block_keys",
]
