"""`tell`: one line on stderr for the person who started the command."""

from __future__ import annotations

import contextlib
import sys

__all__ = ["tell"]


def tell(line: str) -> None:
    """Write one line.

    Does nothing where it cannot be written: a full disk must not end a service.
    """
    if sys.stderr is None:  # it was closed before the process began
        return
    with contextlib.suppress(OSError, ValueError):
        # One write: the line must not be torn by a log line of another thread.
        sys.stderr.write(f"{line}\n")
        sys.stderr.flush()
