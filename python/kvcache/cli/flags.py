"""`Flags`: reads the values of flags and keeps every fault, so that all of them are told together.

What a method returns counts only after `raise_any`. Faults are `ConfigFault`s whose path is the flag.
"""

from __future__ import annotations

import math
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from kvcache.config import KvEventsConfig
from kvcache.directory import refuse_unsupported
from kvcache.endpoint import parse_endpoint
from kvcache.exceptions import ConfigError, ConfigFault

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["MAX_PORT", "TOKEN_VARIABLE", "Flags"]

MAX_PORT: Final = 65535

TOKEN_VARIABLE: Final = "KVCACHE_INTERNAL_API_TOKEN"  # noqa: S105  (a name, not a secret)
_MAX_TOKEN_CHARS: Final = 4096


class Flags:
    """See the module."""

    def __init__(self) -> None:
        self._faults: list[ConfigFault] = []

    def raise_any(self) -> None:
        """Raises `ConfigError` when there was any fault."""
        if self._faults:
            raise ConfigError(self._faults)

    def add(self, path: str, message: str) -> None:
        """One more fault."""
        self._faults.append(ConfigFault(path, message))

    def integer(self, flag: str, text: str, minimum: int, maximum: int) -> int:
        """A decimal integer in a range."""
        # Digits only: int() would also take "1_0", " 1" and digits of other scripts.
        digits = text.lstrip("0") or "0"
        if text.isascii() and text.isdecimal() and len(digits) <= len(str(maximum)):
            value = int(digits)
            if minimum <= value <= maximum:
                return value
        self.add(flag, f"must be an integer from {minimum} to {maximum}: {ascii(text)[1:-1]}")
        return minimum

    def seconds(
        self, flag: str, text: str, minimum: float, maximum: float = sys.float_info.max
    ) -> float:
        """A finite number of seconds."""
        rule = f"must be a number of seconds, at least {minimum}"
        if maximum != sys.float_info.max:
            rule += f" and at most {maximum:g}"
        return self._number(flag, text, minimum, maximum, rule)

    def milliseconds(self, flag: str, text: str, minimum: float) -> float:
        """A finite number of milliseconds."""
        rule = "must be a positive number of milliseconds"
        return self._number(flag, text, minimum, math.inf, rule)

    def share(self, flag: str, text: str) -> float:
        """A number from 0 to 1."""
        return self._number(flag, text, 0.0, 1.0, "must be a number from 0 to 1")

    def _number(self, flag: str, text: str, minimum: float, maximum: float, rule: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if math.isfinite(value) and minimum <= value <= maximum:
            return value
        self.add(flag, f"{rule}: {ascii(text)[1:-1]}")
        return minimum

    def choice(self, flag: str, text: str, choices: Sequence[str]) -> str:
        """One of a few words, in lower case."""
        if text.lower() not in choices:
            self.add(flag, f"must be one of {', '.join(choices)}: {ascii(text)[1:-1]}")
        return text.lower()

    def host(self, text: str) -> str:
        """A host name or address to listen on."""
        if not text or not text.isprintable() or any(mark in text for mark in " /@"):
            self.add("--host", f"must be a host name or an address: {ascii(text)[1:-1]}")
        return text

    def address(self, flag: str, text: str) -> str:
        """A `host:port` that others can dial."""
        try:
            return str(parse_endpoint(f"tcp://{text}")).removeprefix("tcp://")
        except ValueError:
            self.add(flag, f"must be host:port, as others reach it: {ascii(text)[1:-1]}")
            return text

    def file(self, flag: str, text: str | None) -> Path | None:
        """A file that can be read now; None where no flag was given."""
        if text is None:
            return None
        try:
            with Path(text).open("rb"):
                return Path(text)
        except (OSError, ValueError) as error:
            reason = (getattr(error, "strerror", None) or str(error)).lower()
            self.add(flag, f"cannot read the file, {reason}: {ascii(text)[1:-1]}")
            return None

    def url(self, text: str) -> str:
        """An http URL, without a final slash."""
        try:
            parts = urlsplit(text)
            valid = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
        except ValueError:
            valid = False
        if not valid:
            self.add("--url", f"must be http://host:port: {ascii(text)[1:-1]}")
        return text.rstrip("/")

    def token(self, flag: str | None) -> str | None:
        """The token of the flag, else of the environment. Faults never show it."""
        path, token = "--internal_api_token", flag
        if flag is None:
            path, token = TOKEN_VARIABLE, os.environ.get(TOKEN_VARIABLE)
        if token is None:
            return None
        if not token:
            # Taken as "no token", an unset variable in a script would open the interface.
            self.add(path, "must not be empty; leave it out to ask for no token")
        elif len(token) > _MAX_TOKEN_CHARS or not _sendable(token):
            self.add(
                path, f"must be at most {_MAX_TOKEN_CHARS} visible ASCII characters, no spaces"
            )
        return token

    def config(self, path: str) -> KvEventsConfig | None:
        """The configuration of a file, None for an empty path."""
        if not path:
            return None
        try:
            config = KvEventsConfig.from_file(path)
            refuse_unsupported(config)
        except ConfigError as error:
            self._faults.extend(error.faults)
            return None
        return config


def _sendable(token: str) -> bool:
    """Whether an HTTP header carries it unchanged: no spaces, controls or other scripts."""
    return all("!" <= character <= "~" for character in token)
