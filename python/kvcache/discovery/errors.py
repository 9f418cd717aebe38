"""What can go wrong with etcd.

EtcdError
├── EtcdUnavailableError    no member answered in time; trying again may help
│   └── EtcdAmbiguousError  as above, in a write: it may have landed, or may still land
├── EtcdAuthError           the user, the password or the permission is refused
│   └── EtcdTokenError      the token is not valid any more; logging in again may help
├── CompactedError          the revision asked for is compacted: list again
├── FutureRevisionError     etcd has not reached the revision asked for: it was restored
├── LeaseNotFoundError      the lease lapsed or was revoked
├── ResponseTooLargeError   an answer over the bound; ask for fewer keys
├── ContinuityError         what is held may not be what etcd has: list again
└── EtcdRequestError        etcd refuses the request as it is; trying again does not help

Only `EtcdAmbiguousError` leaves open whether a write took place: read the key to know. After any
other error, a write that raised it did not and will not take place.
"""

from __future__ import annotations

from kvcache.exceptions import KvCacheError

__all__ = [
    "CompactedError",
    "ContinuityError",
    "EtcdAmbiguousError",
    "EtcdAuthError",
    "EtcdError",
    "EtcdRequestError",
    "EtcdTokenError",
    "EtcdUnavailableError",
    "FutureRevisionError",
    "LeaseNotFoundError",
    "ResponseTooLargeError",
]


class EtcdError(KvCacheError):
    """Base of everything about etcd; the message never holds a secret."""


class EtcdUnavailableError(EtcdError):
    """No member answered in time; the request did not take place, or had nothing to change."""


class EtcdAmbiguousError(EtcdUnavailableError):
    """A write got no answer: it may have landed, or may still land. Read to know."""


class EtcdAuthError(EtcdError):
    """The user, the password or the permission is refused."""


class EtcdTokenError(EtcdAuthError):
    """The token is missing, expired or unknown to the member."""


class CompactedError(EtcdError):
    """The revision asked for is compacted; `compact_revision` is 0 where etcd does not say."""

    def __init__(self, compact_revision: int) -> None:
        self.compact_revision = compact_revision
        super().__init__("the revision asked for has been compacted")


class FutureRevisionError(EtcdError):
    """etcd has not reached the revision asked for, so it is not the etcd that gave it."""


class LeaseNotFoundError(EtcdError):
    """The lease lapsed or was revoked; keys put under it are gone."""


class ResponseTooLargeError(EtcdError):
    """An answer is larger than the client accepts."""


class ContinuityError(EtcdError):
    """Changes may have been missed; nothing but a new list tells."""


class EtcdRequestError(EtcdError):
    """etcd refuses the request as it is."""
