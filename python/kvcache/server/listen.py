"""The listening socket, bound before anything else is promised.

It is ours rather than the HTTP server's so that a taken port is one line instead of a log, and
so that the port is known (`--port 0`) before the ready line is written.
"""

from __future__ import annotations

import ipaddress
import os
import socket
from typing import Final

__all__ = ["BindError", "advertised_address", "base_url", "bind"]

_BACKLOG: Final = 1024


class BindError(Exception):
    """The address cannot be listened on; the message says why on one line."""


def bind(host: str, port: int) -> socket.socket:
    """Listens on a host (name or address; IPv6 with or without brackets) and a port, 0 for any.

    Raises `BindError`.
    """
    name = unbracketed(host)
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            name, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.socket(family, kind, protocol)
    except (OSError, UnicodeError) as error:
        raise BindError(f"cannot listen on {base_url(host, port)}: {_reason(error)}") from error
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        # At once: between bind and listen another process could bind the same port.
        listener.listen(_BACKLOG)
        listener.setblocking(False)
    except OSError as error:
        listener.close()
        raise BindError(f"cannot listen on {base_url(host, port)}: {_reason(error)}") from error
    return listener


def advertised_address(listener: socket.socket) -> str:
    """`host:port` by which others reach a listening socket.

    The bound address; for a wildcard the machine's first that is not loopback, and loopback where there is none.
    """
    host, port = listener.getsockname()[:2]
    address = ipaddress.ip_address(host.partition("%")[0])
    if address.is_unspecified:
        loopback = "127.0.0.1" if listener.family == socket.AF_INET else "::1"
        host = _own_address(listener.family) or loopback
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _own_address(family: int) -> str | None:
    try:
        found = socket.getaddrinfo(socket.gethostname(), None, family, socket.SOCK_STREAM)
    except OSError:
        return None
    addresses = (str(entry[4][0]) for entry in found)
    usable = (ipaddress.ip_address(text.partition("%")[0]) for text in addresses)
    return next((str(ip) for ip in usable if not (ip.is_loopback or ip.is_link_local)), None)


def unbracketed(host: str) -> str:
    """`::1` of `[::1]`."""
    return host[1:-1] if host.startswith("[") and host.endswith("]") else host


def base_url(host: str, port: int) -> str:
    """`http://host:port`, with brackets around IPv6."""
    name = unbracketed(host)
    return f"http://[{name}]:{port}" if ":" in name else f"http://{name}:{port}"


def _reason(error: Exception) -> str:
    if isinstance(error, socket.gaierror):
        return error.strerror or "the host name is unknown"
    if isinstance(error, OSError) and error.errno is not None:
        return os.strerror(error.errno).lower()
    return "the host name is not valid"
