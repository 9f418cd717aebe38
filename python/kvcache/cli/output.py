"""`Output`: the standard output of a command, which fails with one exception.

A full disk, a reader that is gone and a closed output come as different exceptions, some only when
the interpreter flushes at its very end. A command writes through this and is flushed before it
ends, so that all of them are one `OutputError` in one place.
"""

from __future__ import annotations

import contextlib
import io
import os
import sys
from typing import TYPE_CHECKING, TextIO, cast

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Output", "OutputError", "checked_output"]


class OutputError(Exception):
    """The output cannot be written; the message says why on one line."""


class Output(io.TextIOBase):
    """Writes to a stream, None for one that was closed before the process began.

    Raises `OutputError`.
    """

    def __init__(self, stream: TextIO | None) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """Write text; characters that the stream's encoding does not have are escaped."""
        if self._stream is None:
            raise OutputError("it is closed")
        encoding = getattr(self._stream, "encoding", None) or "utf-8"
        spelled = text.encode(encoding, "backslashreplace").decode(encoding)
        with self._checked():
            self._stream.write(spelled)
        return len(text)

    def flush(self) -> None:
        """Hand over to the system what was written."""
        if self._stream is not None and not self._stream.closed:
            with self._checked():
                self._stream.flush()

    def isatty(self) -> bool:
        """Whether a person looks at it."""
        return self._stream is not None and self._stream.isatty()

    def give_up(self) -> None:
        """Let what cannot be written go nowhere.

        The interpreter flushes it once more at its end.
        """
        if self._stream is None:
            return
        # In a program of somebody else's the output may be no file.
        with contextlib.suppress(OSError, ValueError):
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self._stream.fileno())
            os.close(nowhere)

    @contextlib.contextmanager
    def _checked(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise OutputError((error.strerror or type(error).__name__).lower()) from error
        except ValueError as error:
            raise OutputError("it is closed") from error


@contextlib.contextmanager
def checked_output() -> Iterator[None]:
    """Have `sys.stdout` written by an `Output`, which is flushed at the end.

    Raises `OutputError`.
    """
    output = Output(sys.stdout)
    # Like a stream in all that commands and argparse do with it.
    with contextlib.redirect_stdout(cast("TextIO", output)):
        try:
            try:
                yield
            finally:
                output.flush()
        except OutputError:
            output.give_up()
            raise
