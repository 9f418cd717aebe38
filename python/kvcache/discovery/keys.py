"""The names of etcd keys, and what a key is about (spec: keys).

Everything watched lies in one range, from `XLLM:D` to `XLLM:T`, of one namespace. It leaves out
`XLLM:CACHE:`, which is retired: never read, never written.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from kvcache.discovery.refused import RefusedError
from kvcache.endpoint import parse_endpoint
from kvcache.registry.model import InstanceType
from kvcache.registry.shown import shown_name

__all__ = [
    "KeyKind",
    "Namespace",
    "ParsedKey",
    "check_instance_name",
    "registration_key",
]

_ROOT: Final = "XLLM:"
_FIRST: Final = "XLLM:D"
_END: Final = "XLLM:T"
_LOAD: Final = "LOADMETRICS"
_SERVICE: Final = "SERVICE"
_MASTER: Final = "MASTER"


class KeyKind(StrEnum):
    """What a key is about."""

    REGISTRATION = "registration"
    """An instance, under its lease."""
    LOAD = "load"
    """An instance's load, written by the master replica."""
    SERVICE = "service"
    """A service replica, under its lease."""
    MASTER = "master"
    """The service replica that is master, under its lease."""


@dataclass(frozen=True, slots=True)
class ParsedKey:
    """A key without its namespace."""

    text: str
    kind: KeyKind
    name: str
    """Of the instance or replica; empty for the master's key."""
    type: InstanceType | None = None
    """Of a registration."""


def registration_key(kind: InstanceType, name: str) -> str:
    """The key of a registration, without a namespace."""
    return f"{_ROOT}{kind.name}:{name}"


def check_instance_name(name: str) -> None:
    """Raises `RefusedError` when this is not `host:port`, with IPv6 in brackets and no wildcard."""
    text = f"tcp://{name}"
    try:
        parse_endpoint(text)
    except ValueError as error:
        # The endpoint's own clause, without its example and its text, which have a scheme.
        clause = str(error).removesuffix(f": {ascii(text)[1:-1]}").partition(", as in ")[0]
        raise RefusedError(f"the name is not host:port, {clause}: {shown_name(name)}") from None


class Namespace:
    """The prefix of all keys of one deployment: none, or `/<namespace>/`.

    Slashes around the given text do not matter. Raises `ValueError` for a text that is not Unicode.
    """

    def __init__(self, text: str = "") -> None:
        self.name = text.strip("/")
        prefix = f"/{self.name}/" if self.name else ""
        try:
            self._prefix = prefix.encode()
        except UnicodeEncodeError:
            raise ValueError(f"the namespace must be Unicode: {shown_name(text)}") from None

    @property
    def watched_range(self) -> tuple[bytes, bytes]:
        """First key of what is listed and watched, and the key behind its last."""
        return self._key(_FIRST), self._key(_END)

    def registration_key(self, kind: InstanceType, name: str) -> bytes:
        """Where an instance registers."""
        return self._key(registration_key(kind, name))

    def load_key(self, name: str) -> bytes:
        """Where the master writes an instance's load."""
        return self._key(f"{_ROOT}{_LOAD}:{name}")

    def service_key(self, name: str) -> bytes:
        """Where a replica registers."""
        return self._key(f"{_ROOT}{_SERVICE}:{name}")

    @property
    def master_key(self) -> bytes:
        """Where the elected replica stands."""
        return self._key(f"{_ROOT}{_SERVICE}:{_MASTER}")

    def parse(self, key: bytes) -> ParsedKey:
        """What a key is about. Raises `RefusedError`, and nothing else, for one that is none of ours."""
        if not key.startswith(self._prefix):
            raise RefusedError(f"the key is outside the namespace: {shown_name(key)}")
        try:
            text = key[len(self._prefix) :].decode()
        except UnicodeDecodeError:
            raise RefusedError(f"the key is not UTF-8: {shown_name(key)}") from None
        root, _, rest = text.partition(":")
        kind, colon, name = rest.partition(":")
        if f"{root}:" != _ROOT or not colon or not name:
            raise RefusedError(f"the key has an unknown form: {shown_name(key)}")
        if kind == _SERVICE:
            if name == _MASTER:
                return ParsedKey(text, KeyKind.MASTER, "")
            return ParsedKey(text, KeyKind.SERVICE, name)
        if kind == _LOAD:
            check_instance_name(name)
            return ParsedKey(text, KeyKind.LOAD, name)
        if kind in InstanceType.__members__:
            check_instance_name(name)
            return ParsedKey(text, KeyKind.REGISTRATION, name, InstanceType[kind])
        raise RefusedError(f"the key has an unknown type: {shown_name(key)}")

    def _key(self, text: str) -> bytes:
        return self._prefix + text.encode()
