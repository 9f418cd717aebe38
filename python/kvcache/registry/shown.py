"""Shows a value in a message: one short line of ASCII, whatever a peer sent."""

from __future__ import annotations

import json
from typing import Final

__all__ = ["MAX_SHOWN_CHARS", "shown", "shown_name"]

MAX_SHOWN_CHARS: Final = 80


def shown(value: object) -> str:
    """The value as it stands in JSON, where it can, cut to `MAX_SHOWN_CHARS`. Never raises."""
    if isinstance(value, str):
        value = value[: MAX_SHOWN_CHARS + 1]
    try:
        text = json.dumps(value)
    except (TypeError, ValueError, RecursionError):
        text = f"<{type(value).__name__}>"
    return _cut(text)


def shown_name(name: str | bytes) -> str:
    """A name or a key without quotes: escaped, cut to `MAX_SHOWN_CHARS`. Never raises."""
    head = name[: MAX_SHOWN_CHARS + 1]
    text = head.decode("utf-8", "backslashreplace") if isinstance(head, bytes) else head
    return _cut(ascii(text)[1:-1])


def _cut(text: str) -> str:
    return text if len(text) <= MAX_SHOWN_CHARS else f"{text[:MAX_SHOWN_CHARS]}…"
