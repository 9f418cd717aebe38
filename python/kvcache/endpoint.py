"""One TCP endpoint, `tcp://host:port`, read strictly and brought to one spelling.

Two texts that name the same socket must compare equal, or a stream could be followed twice; so
host names are folded to lower case, IPv6 addresses are compressed, and legacy spellings of IPv4
(`0`, `127.1`, `0x7f.1`) are refused rather than interpreted. This module resolves nothing.
"""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass

__all__ = ["MAX_PORT", "Endpoint", "parse_endpoint"]

MAX_PORT = 65535
_SCHEME = "tcp://"
_MAX_HOST_CHARS = 253
_PORT = re.compile(r"[0-9]+", re.ASCII)
_HOST_NAME = re.compile(r"[a-z0-9_-]{1,63}(\.[a-z0-9_-]{1,63})*\.?", re.ASCII)
_NUMERIC_LABEL = re.compile(r"[0-9]+|0x[0-9a-f]*", re.ASCII)
_ZONE = re.compile(r"[A-Za-z0-9_.-]{1,32}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A host (lower-case name, IPv4, or compressed IPv6 without brackets) and a port, 1 … 65535."""

    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{_SCHEME}{host}:{self.port}"

    @property
    def identity(self) -> tuple[str, int]:
        """What two spellings of one socket share: no final dot, IPv4-mapped IPv6 as IPv4."""
        if ":" in self.host:
            mapped = ipaddress.IPv6Address(self.host).ipv4_mapped
            return (str(mapped) if mapped else self.host, self.port)
        return (self.host.rstrip("."), self.port)


def parse_endpoint(text: str) -> Endpoint:
    """Read `tcp://host:port`, IPv6 in brackets (spec: configuration).

    Raises `ValueError` with one lower-case sentence that ends in the text: another scheme, no
    port or one outside 1 … 65535, a wildcard host, IPv6 without brackets, a path or user name.
    """
    try:
        return _parse(text)
    except _RefusedError as refused:
        # ascii() keeps a hostile text on one line.
        raise ValueError(f"{refused}: {ascii(text)[1:-1]}") from None


class _RefusedError(Exception):
    """Why a text is no endpoint, without the text."""


def _parse(text: str) -> Endpoint:
    if not text.startswith(_SCHEME):
        raise _RefusedError("an endpoint must be tcp://host:port")
    rest = text.removeprefix(_SCHEME)
    if "@" in rest:
        raise _RefusedError("an endpoint must not carry a user name")
    if any(mark in rest for mark in "/?#"):
        raise _RefusedError("an endpoint must not carry a path")
    host, colon, port = rest.rpartition(":")
    if not colon or "]" in port:
        raise _RefusedError("an endpoint must name a port")
    return Endpoint(_parse_host(host), _parse_port(port))


def _parse_port(text: str) -> int:
    if text == "*":
        raise _RefusedError("an endpoint to connect to must not have a wildcard port")
    if not _PORT.fullmatch(text):
        raise _RefusedError("the port must be a decimal number")
    digits = text.lstrip("0")
    if not digits or len(digits) > len(str(MAX_PORT)) or int(digits) > MAX_PORT:
        raise _RefusedError(f"the port must be 1 to {MAX_PORT}")
    return int(digits)


def _parse_host(text: str) -> str:
    if not text:
        raise _RefusedError("an endpoint must name a host")
    if text.startswith("[") and text.endswith("]"):
        return _parse_ipv6(text[1:-1])
    if ":" in text:
        raise _RefusedError("an IPv6 address must be in brackets, as in tcp://[::1]:18000")
    if text == "*":
        raise _RefusedError("an endpoint to connect to must not have a wildcard host")
    host = text.lower()
    if len(host) > _MAX_HOST_CHARS or not _HOST_NAME.fullmatch(host):
        raise _RefusedError("the host is neither a name nor an address")
    if _NUMERIC_LABEL.fullmatch(host.rstrip(".").rpartition(".")[2]):
        return _parse_ipv4(host)
    return host


def _parse_ipv4(text: str) -> str:
    try:
        address = ipaddress.IPv4Address(text)
    except ValueError:
        raise _RefusedError("an IPv4 address must be four decimal numbers") from None
    if address.is_unspecified:
        raise _RefusedError("an endpoint to connect to must not have a wildcard host")
    return str(address)


def _parse_ipv6(text: str) -> str:
    # A zone is written raw (`%eth0`) or escaped as in URIs (`%25eth0`); resolvers want it raw.
    literal, percent, zone = text.partition("%")
    zone = zone.removeprefix("25") or zone
    if percent and not _ZONE.fullmatch(zone):
        raise _RefusedError("the zone of the IPv6 address is not an interface name")
    try:
        address = ipaddress.IPv6Address(literal)
    except ValueError:
        raise _RefusedError("the host in brackets is not an IPv6 address") from None
    mapped = address.ipv4_mapped
    if address.is_unspecified or (mapped is not None and mapped.is_unspecified):
        raise _RefusedError("an endpoint to connect to must not have a wildcard host")
    return f"{address}%{zone}" if percent else str(address)
