"""`RpcLimits`: what engines, and whoever else reaches the port, may take of this process."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["RpcLimits"]


@dataclass(frozen=True, slots=True)
class RpcLimits:
    """Bounds of one server. Beyond a bound of connections or bytes one connection is closed, never all."""

    max_connections: int = 16_384
    """An engine has one; at most half of the descriptors that the process may have."""
    max_calls_a_connection: int = 16
    """Calls that wait for an answer; a connection with more is not read from."""
    max_calls: int = 1024
    """Calls of all connections that wait for an answer; more are refused as overcrowded."""
    max_buffered_bytes: int = 128 << 20
    """Bytes of incomplete frames of all connections."""
    idle_timeout_s: float = 60.0
    """Time without a call; engines connect again by themselves."""
    slow_timeout_s: float = 10.0
    """Time for a frame to arrive whole, and for a peer to read its answers."""
