"""`RefusedError`: why a key or a value of etcd means nothing here."""

from __future__ import annotations

__all__ = ["RefusedError"]


class RefusedError(Exception):
    """A key or value that is ignored; the message is one lower-case sentence that ends in the value."""
