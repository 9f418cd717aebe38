"""What the HTTP side is told at its start."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

__all__ = ["DEFAULT_MAX_BODY_BYTES", "ServerSettings"]

DEFAULT_MAX_BODY_BYTES: Final = 16 * 1024 * 1024
"""A prompt of a million token ids in their widest spelling (ten digits, comma, space: 12 bytes an
id) is 12 MB. More is no prompt of today's engines, and each body is held in memory once."""


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """Settings of one application; the token never shows in a `repr`, so never in a log."""

    internal_api_token: str | None = field(default=None, repr=False)
    """Wanted in `X-Internal-Token` on every path under `/v1/internal`; None asks for nothing."""

    max_body_bytes: int = DEFAULT_MAX_BODY_BYTES
    """Larger request bodies are answered with 413 and never held whole."""
