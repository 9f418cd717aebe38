"""A thin client of etcd's v3 API: what discovery needs of it, and no more.

Everything belongs to one asyncio loop. Every call ends within its deadline, whatever the members
do; nothing is tried again but reads, and writes that certainly were not sent.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, Self

from kvcache.discovery.errors import EtcdRequestError, LeaseNotFoundError
from kvcache.discovery.messages import METHODS, message
from kvcache.discovery.results import KeyValue, RangeResult, TxnResult
from kvcache.discovery.session import Session, SessionCounters
from kvcache.discovery.watch import Watch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kvcache.discovery.config import EtcdConfig

__all__ = ["Compare", "Delete", "EtcdClient", "Get", "Put"]

_TARGETS: Final = {
    "version": 0,
    "create_revision": 1,
    "mod_revision": 2,
    "value": 3,
    "lease": 4,
}


@dataclass(frozen=True, slots=True)
class Compare:
    """Holds if this of the key equals `expected`; a key that is not there has revision 0.

    `value` is bytes, all others are integers. Of a key that is not there, no value is equal.
    """

    key: bytes
    target: Literal["version", "create_revision", "mod_revision", "value", "lease"]
    expected: int | bytes


@dataclass(frozen=True, slots=True)
class Put:
    """A write within a transaction; `lease` 0 is none."""

    key: bytes
    value: bytes
    lease: int = 0


@dataclass(frozen=True, slots=True)
class Get:
    """A read of one key within a transaction."""

    key: bytes


@dataclass(frozen=True, slots=True)
class Delete:
    """A deletion of one key within a transaction."""

    key: bytes


class EtcdClient:
    """Speaks to one etcd cluster; close it with `aclose()`, or use it as a context manager.

    All methods raise `EtcdError`, and `ClosedError` after `aclose()`. `timeout_s` is the deadline
    of the whole call; without it the configuration's counts.
    """

    def __init__(self, config: EtcdConfig) -> None:
        self._session = Session(config)

    @property
    def counters(self) -> SessionCounters:
        """Requests, failures and logins so far; still counting."""
        return self._session.counters

    @property
    def endpoint(self) -> str:
        """The member in use."""
        return self._session.endpoint

    async def range(
        self,
        key: bytes,
        range_end: bytes = b"",
        *,
        limit: int = 0,
        revision: int = 0,
        serializable: bool = False,
        timeout_s: float | None = None,
    ) -> RangeResult:
        """The keys of [key, range_end), or the key alone, at a revision or now.

        `limit` 0 is no limit. A serializable read may be old: the member answers by itself.
        """
        request = message(
            "RangeRequest",
            key=key,
            range_end=range_end,
            limit=limit,
            revision=revision,
            serializable=serializable,
        )
        answer = await self._session.ask(METHODS["range"], request, timeout_s, write=False)
        return RangeResult.from_message(answer)

    async def put(
        self, key: bytes, value: bytes, lease: int = 0, *, timeout_s: float | None = None
    ) -> int:
        """Writes the key and returns the revision; it goes when the lease does."""
        request = message("PutRequest", key=key, value=value, lease=lease)
        answer = await self._session.ask(METHODS["put"], request, timeout_s, write=True)
        return int(answer.header.revision)

    async def delete(
        self, key: bytes, range_end: bytes = b"", *, timeout_s: float | None = None
    ) -> int:
        """Deletes the key, or all of [key, range_end), and returns how many there were."""
        request = message("DeleteRangeRequest", key=key, range_end=range_end)
        answer = await self._session.ask(METHODS["delete"], request, timeout_s, write=True)
        return int(answer.deleted)

    async def txn(
        self,
        compare: Sequence[Compare],
        success: Sequence[Put | Get | Delete],
        failure: Sequence[Put | Get | Delete] = (),
        *,
        timeout_s: float | None = None,
    ) -> TxnResult:
        """Runs `success` if all comparisons hold, else `failure`; in one step."""
        request = message(
            "TxnRequest",
            compare=[_compare(one) for one in compare],
            success=[_operation(one) for one in success],
            failure=[_operation(one) for one in failure],
        )
        writes = any(not isinstance(one, Get) for one in (*success, *failure))
        answer = await self._session.ask(METHODS["txn"], request, timeout_s, write=writes)
        reads = tuple(
            tuple(KeyValue.from_message(kv) for kv in one.response_range.kvs)
            for one in answer.responses
            if one.HasField("response_range")
        )
        return TxnResult(answer.succeeded, answer.header.revision, reads)

    async def compare_and_put(
        self,
        key: bytes,
        value: bytes,
        lease: int = 0,
        *,
        compare: Sequence[Compare] | None = None,
        timeout_s: float | None = None,
    ) -> TxnResult:
        """Writes the key if the comparisons hold; without any, if the key is not there.

        When they do not hold, `reads[0]` has the key as it is, if it is there. After
        `EtcdAmbiguousError`, read the key to learn who holds it.
        """
        absent = (Compare(key, "create_revision", 0),)
        return await self.txn(
            absent if compare is None else compare,
            (Put(key, value, lease),),
            (Get(key),),
            timeout_s=timeout_s,
        )

    async def lease_grant(self, ttl_s: int, *, timeout_s: float | None = None) -> int:
        """A new lease and its id; etcd may make the time longer.

        After `EtcdAmbiguousError` there may be a lease that nobody holds; it lapses by itself.
        """
        request = message("LeaseGrantRequest", TTL=ttl_s)
        answer = await self._session.ask(METHODS["lease_grant"], request, timeout_s, write=True)
        if answer.error:
            raise EtcdRequestError(f"etcd grants no lease: {answer.error}")
        return int(answer.ID)

    async def lease_keepalive(self, lease: int, *, timeout_s: float | None = None) -> int:
        """Renews the lease once and returns its seconds from now; 0 when it is gone."""
        request = message("LeaseKeepAliveRequest", ID=lease)
        # Renewed twice is renewed once, so it is no write.
        answer = await self._session.ask(
            METHODS["lease_keepalive"], request, timeout_s, write=False
        )
        return max(int(answer.TTL), 0)

    async def lease_time_to_live(self, lease: int, *, timeout_s: float | None = None) -> int:
        """The seconds that are left to the lease; 0 when it is gone."""
        request = message("LeaseTimeToLiveRequest", ID=lease)
        answer = await self._session.ask(
            METHODS["lease_time_to_live"], request, timeout_s, write=False
        )
        return max(int(answer.TTL), 0)

    async def lease_revoke(self, lease: int, *, timeout_s: float | None = None) -> None:
        """Ends the lease and deletes its keys; that it is gone already is no error."""
        request = message("LeaseRevokeRequest", ID=lease)
        try:
            await self._session.ask(METHODS["lease_revoke"], request, timeout_s, write=True)
        except LeaseNotFoundError:
            return

    def watch(self, key: bytes, range_end: bytes = b"", start_revision: int = 0) -> Watch:
        """Changes of [key, range_end) from a revision on, or from now: see `Watch`."""
        return Watch(self._session, key, range_end, start_revision)

    async def aclose(self) -> None:
        """Closes the connections, but for those of watches; calls under way are cancelled."""
        await self._session.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


def _compare(one: Compare) -> Any:
    fields: dict[str, Any] = {one.target: one.expected}
    return message("Compare", key=one.key, target=_TARGETS[one.target], **fields)


def _operation(one: Put | Get | Delete) -> Any:
    if isinstance(one, Put):
        put = message("PutRequest", key=one.key, value=one.value, lease=one.lease)
        return message("RequestOp", request_put=put)
    if isinstance(one, Get):
        return message("RequestOp", request_range=message("RangeRequest", key=one.key))
    delete = message("DeleteRangeRequest", key=one.key)
    return message("RequestOp", request_delete_range=delete)
