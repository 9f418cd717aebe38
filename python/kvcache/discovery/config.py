"""How to reach etcd."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kvcache.endpoint import parse_endpoint
from kvcache.exceptions import ConfigError, ConfigFault

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["EtcdConfig"]


@dataclass(frozen=True, slots=True, kw_only=True)
class EtcdConfig:
    """The members of one etcd cluster, and how to be let in.

    `endpoints` are `host:port`, IPv6 in brackets. A user needs a password, and a client
    certificate needs its key; TLS is used when any path is given, with the system's roots where
    `ca_path` is not. `request_timeout_s` is the deadline of every unary call, logins apart.

    Raises `ConfigError` with every fault.
    """

    endpoints: tuple[str, ...]
    username: str = ""
    password: str = field(default="", repr=False)
    ca_path: Path | None = None
    cert_path: Path | None = None
    key_path: Path | None = None
    request_timeout_s: float = 1.0

    def __post_init__(self) -> None:
        faults = _endpoint_faults(self.endpoints)
        if bool(self.username) != bool(self.password):
            # The password itself is never shown, nor its length.
            faults.append(ConfigFault("username", "a user name and a password need each other"))
        if (self.cert_path is None) != (self.key_path is None):
            faults.append(ConfigFault("cert_path", "a certificate and its key need each other"))
        if not _is_positive(self.request_timeout_s):
            reason = f"must be a positive number of seconds: {self.request_timeout_s!r:.40}"
            faults.append(ConfigFault("request_timeout_s", reason))
        if faults:
            raise ConfigError(faults)

    @property
    def tls(self) -> bool:
        """Whether connections are encrypted."""
        return any(path is not None for path in (self.ca_path, self.cert_path, self.key_path))


def _is_positive(seconds: object) -> bool:
    """Tell a finite number above 0 from anything that a caller without types may give."""
    if isinstance(seconds, bool) or not isinstance(seconds, int | float):
        return False
    return 0 < seconds <= sys.float_info.max


def _endpoint_faults(endpoints: tuple[str, ...]) -> list[ConfigFault]:
    if not endpoints:
        return [ConfigFault("endpoints", "name at least one etcd endpoint, as host:port")]
    faults = []
    for number, endpoint in enumerate(endpoints):
        try:
            parse_endpoint(f"tcp://{endpoint}")
        except ValueError as error:
            faults.append(ConfigFault(f"endpoints[{number}]", str(error)))
    return faults
