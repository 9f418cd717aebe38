"""A live directory of the KV-cache blocks that LLM inference engines hold.

`Directory` follows engines and answers who holds how much of a prompt; `PrefixIndex` is the
index alone, without network. `Router` chooses instances by it. The HTTP service and the CLI are extras: `kvcache[server]`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

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
from kvcache._lazy import lazily
from kvcache.config import KvEventsConfig
from kvcache.directory import Directory
from kvcache.exceptions import (
    ClosedError,
    ConfigError,
    ConfigFault,
    KvCacheError,
    NoInstanceError,
    RequestError,
    StoreError,
    TokenIdsError,
    WaitTimeoutError,
)

if TYPE_CHECKING:
    from kvcache.registry.model import InstanceType, Load, Registration
    from kvcache.registry.registry import Registry
    from kvcache.routing.base import Policy
    from kvcache.routing.cache_aware import CacheAware
    from kvcache.routing.decision import Decision
    from kvcache.routing.round_robin import RoundRobin
    from kvcache.routing.router import Router

__all__ = [
    "BlockKeys",
    "CacheAware",
    "ClosedError",
    "ConfigError",
    "ConfigFault",
    "Conversation",
    "Decision",
    "Directory",
    "InstanceType",
    "KvCacheError",
    "KvEventsConfig",
    "Load",
    "Match",
    "Matches",
    "NoInstanceError",
    "Policy",
    "PrefixIndex",
    "Registration",
    "Registry",
    "RequestError",
    "RoundRobin",
    "Router",
    "StoreError",
    "StreamSpec",
    "TokenIdsError",
    "WaitTimeoutError",
    "__version__",
    "block_keys",
]

# Whoever only follows and asks does not pay for what chooses.
__getattr__ = lazily(
    __name__,
    {
        "CacheAware": "kvcache.routing.cache_aware",
        "Decision": "kvcache.routing.decision",
        "InstanceType": "kvcache.registry.model",
        "Load": "kvcache.registry.model",
        "Policy": "kvcache.routing.base",
        "Registration": "kvcache.registry.model",
        "Registry": "kvcache.registry.registry",
        "RoundRobin": "kvcache.routing.round_robin",
        "Router": "kvcache.routing.router",
    },
)
