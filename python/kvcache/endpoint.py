"""One TCP endpoint, `tcp://host:port`, read strictly and brought to one spelling.

Two texts that name the same socket must compare equal, or a stream could be followed twice; so
host names are folded to lower case, IPv6 addresses are compressed, and legacy spellings of IPv4
(`0`, `127.1`, `0x7f.1`) are refused rather than interpreted. This module resolves nothing: the
zone of a link-local address may be an interface that does not exist. The core reads endpoints by
the same rules; `tests/golden/endpoints.json` holds both to them.
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
_HOST_NAME = re.compile(r"[A-Za-z0-9_-]{1,63}(\.[A-Za-z0-9_-]{1,63})*\.?", re.ASCII)
_NUMERIC_LABEL = re.compile(r"[0-9]+|0x[0-9a-f]*", re.ASCII)
_INTERFACE_NAME = re.compile(r"[A-Za-z0-9_.-]{1,15}", re.ASCII)
_INTERFACE_NUMBER = re.compile(r"[1-9][0-9]{0,9}", re.ASCII)
_MAX_INTERFACE_NUMBER = 2**32 - 1


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A host and a port, 1 … 65535.

    The host is a lower-case name, IPv4, or compressed IPv6 without brackets, as `fe80::1%eth0`.
    """

    host: str
    port: int

    def __str__(self) -> str:
        # Bare, a zone like `253` would be read as an escaped `3`.
        host = f"[{self.host.replace('%', '%25')}]" if ":" in self.host else self.host
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

    A link-local address may have a zone, an interface's name or number: `[fe80::1%25eth0]`, where
    a bare `%` will also do. A zone that begins with `25` must have it escaped.

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
    if len(text) > _MAX_HOST_CHARS or not _HOST_NAME.fullmatch(text):
        raise _RefusedError("the host is neither a name nor an address")
    host = text.lower()
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
    literal, percent, zone = text.partition("%")
    try:
        address = ipaddress.IPv6Address(literal)
    except ValueError:
        raise _RefusedError("the host in brackets is not an IPv6 address") from None
    mapped = address.ipv4_mapped
    if address.is_unspecified or (mapped is not None and mapped.is_unspecified):
        raise _RefusedError("an endpoint to connect to must not have a wildcard host")
    if percent:
        return f"{address}%{_parse_zone(zone, address)}"
    # Python before 3.13 shows a mapped address in hexadecimal.
    return str(address) if mapped is None else f"::ffff:{mapped}"


def _parse_zone(text: str, address: ipaddress.IPv6Address) -> str:
    # Written bare (`%eth0`) or escaped as in URIs (`%25eth0`); resolvers want it bare.
    zone = text.removeprefix("25") or text
    known = _INTERFACE_NUMBER if zone.isdecimal() else _INTERFACE_NAME
    if not known.fullmatch(zone) or (zone.isdecimal() and int(zone) > _MAX_INTERFACE_NUMBER):
        raise _RefusedError("the zone of the IPv6 address is no interface's name or number")
    if not address.is_link_local:
        # Elsewhere a zone changes nothing: with it one socket would have two spellings.
        raise _RefusedError("only a link-local IPv6 address (fe80::/10) can have a zone")
    return zone
