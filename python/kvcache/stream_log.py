"""`StreamLog`: a thread that logs which streams are lost and which return.

It holds the journal of a directory, not the directory: one that is dropped or closed ends its
journal, and the thread with it. The thread waits inside the core without the GIL, and wakes for
nothing but lines.
"""

from __future__ import annotations

import atexit
import logging
import threading
import weakref
from typing import TYPE_CHECKING, Final

from kvcache._process import Home
from kvcache._stays import Stays

if TYPE_CHECKING:
    from kvcache._core import StreamJournal
    from kvcache.types import StreamTransition

__all__ = ["StreamLog"]

_log = logging.getLogger("kvcache.streams")

_LAST_LINES_S: Final = 0.5
"""How long a slow handler may hold up the end of a directory.

Closing one takes a second at most.
"""


class StreamLog(Stays):
    """Logs what a journal tells until it ends. Raises `OSError` when the system gives no thread."""

    _stays = "it has a thread: a directory makes its own"

    def __init__(self, journal: StreamJournal) -> None:
        self._journal = journal
        self._home = Home("StreamLog")
        self._thread = threading.Thread(
            target=_follow, args=(journal,), name="kvcache-streams", daemon=True
        )
        try:
            self._thread.start()
        except RuntimeError as error:
            raise OSError(f"cannot start the thread that logs streams: {error}") from error
        _running.add(self)

    def end(self) -> None:
        """Log what is left, and end the thread; a second call does nothing.

        In a forked child there is none to end.
        """
        # There the journal may be locked for ever.
        if self._home.is_elsewhere:
            return
        self._journal.close()
        if self._thread is not threading.current_thread():  # a handler may close its directory
            self._thread.join(_LAST_LINES_S)


_running: Final[weakref.WeakSet[StreamLog]] = weakref.WeakSet()


@atexit.register
def _end_all() -> None:
    """A thread that wakes while the interpreter goes down would bring it down."""
    for one in list(_running):
        one.end()


def _follow(journal: StreamJournal) -> None:
    while (entries := journal.wait()) is not None:
        transitions, dropped = entries
        if dropped:
            _log.warning("the log is slower than its streams, lines dropped: %d", dropped)
        for one in transitions:
            level = logging.WARNING if one["change"] == "lost" else logging.INFO
            _log.log(level, "%s", _line(one))


def _line(one: StreamTransition) -> str:
    stream = f"stream {_printable(one['instance_name'])} rank {one['dp_rank']}"
    sequence = "none" if one["sequence"] is None else str(one["sequence"])
    left_out = f" (lines left out before: {one['left_out']})" if one["left_out"] else ""
    if one["change"] == "lost":
        reason = _printable(one["reason"])
        return f"{stream} is lost after sequence {sequence}{left_out}: {reason}"
    what = "is synchronized for the first time" if one["change"] == "first" else "is back"
    return (
        f"{stream} {what} after {one['after_s']:.3f} s{left_out}: sequence {sequence},"
        f" {one['device_blocks']} blocks on Device, {one['host_blocks']} in Host"
    )


def _printable(text: str) -> str:
    """On one line: names and reasons may come from outside."""
    return "".join(character if character.isprintable() else "?" for character in text)
