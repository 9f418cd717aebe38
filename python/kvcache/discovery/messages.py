"""The messages of etcd's v3 API that are needed here, by their field numbers in etcd 3.4.

The classes are made at run time, so they are `Any` to a type checker: see `connection`, `client`
and `watch` for what they become.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from kvcache.protobuf_table import build_messages

__all__ = ["METHODS", "Method", "message"]

_TABLE: Final = {
    "ResponseHeader": "cluster_id:uint64=1 member_id:uint64=2 revision:int64=3 raft_term:uint64=4",
    "KeyValue": (
        "key:bytes=1 create_revision:int64=2 mod_revision:int64=3 version:int64=4 value:bytes=5"
        " lease:int64=6"
    ),
    "Event": "type:int32=1 kv:KeyValue=2 prev_kv:KeyValue=3",
    "RangeRequest": (
        "key:bytes=1 range_end:bytes=2 limit:int64=3 revision:int64=4 sort_order:int32=5"
        " sort_target:int32=6 serializable:bool=7 keys_only:bool=8"
    ),
    "RangeResponse": "header:ResponseHeader=1 kvs:[KeyValue]=2 more:bool=3 count:int64=4",
    "PutRequest": "key:bytes=1 value:bytes=2 lease:int64=3",
    "PutResponse": "header:ResponseHeader=1",
    "DeleteRangeRequest": "key:bytes=1 range_end:bytes=2",
    "DeleteRangeResponse": "header:ResponseHeader=1 deleted:int64=2",
    "RequestOp": (
        "request_range:RangeRequest=1 request_put:PutRequest=2"
        " request_delete_range:DeleteRangeRequest=3"
    ),
    "ResponseOp": (
        "response_range:RangeResponse=1 response_put:PutResponse=2"
        " response_delete_range:DeleteRangeResponse=3"
    ),
    # A compared 0 or empty value is left out, as proto3 does: etcd takes it for what it means.
    "Compare": (
        "result:int32=1 target:int32=2 key:bytes=3 version:int64=4 create_revision:int64=5"
        " mod_revision:int64=6 value:bytes=7 lease:int64=8"
    ),
    "TxnRequest": "compare:[Compare]=1 success:[RequestOp]=2 failure:[RequestOp]=3",
    "TxnResponse": "header:ResponseHeader=1 succeeded:bool=2 responses:[ResponseOp]=3",
    "WatchCreateRequest": (
        "key:bytes=1 range_end:bytes=2 start_revision:int64=3 prev_kv:bool=6 watch_id:int64=7"
        " fragment:bool=8"
    ),
    "WatchCancelRequest": "watch_id:int64=1",
    "WatchRequest": "create_request:WatchCreateRequest=1 cancel_request:WatchCancelRequest=2",
    "WatchResponse": (
        "header:ResponseHeader=1 watch_id:int64=2 created:bool=3 canceled:bool=4"
        " compact_revision:int64=5 cancel_reason:string=6 fragment:bool=7 events:[Event]=11"
    ),
    "LeaseGrantRequest": "TTL:int64=1 ID:int64=2",
    "LeaseGrantResponse": "header:ResponseHeader=1 ID:int64=2 TTL:int64=3 error:string=4",
    "LeaseRevokeRequest": "ID:int64=1",
    "LeaseRevokeResponse": "header:ResponseHeader=1",
    "LeaseKeepAliveRequest": "ID:int64=1",
    "LeaseKeepAliveResponse": "header:ResponseHeader=1 ID:int64=2 TTL:int64=3",
    "LeaseTimeToLiveRequest": "ID:int64=1 keys:bool=2",
    "LeaseTimeToLiveResponse": (
        "header:ResponseHeader=1 ID:int64=2 TTL:int64=3 grantedTTL:int64=4 keys:[bytes]=5"
    ),
    "AuthenticateRequest": "name:string=1 password:string=2",
    "AuthenticateResponse": "header:ResponseHeader=1 token:string=2",
}


@dataclass(frozen=True, slots=True)
class Method:
    """One method: its path, and the classes that go and come, one each or in streams."""

    path: str
    request: Any
    response: Any
    streams: bool = False


_CLASSES: Final = build_messages("kvcache.discovery.etcd", _TABLE)


def message(name: str, /, **fields: Any) -> Any:
    """A message of the table by its name."""
    return _CLASSES[name](**fields)


def _method(service: str, name: str, *, streams: bool = False) -> Method:
    path = f"/etcdserverpb.{service}/{name}"
    return Method(path, _CLASSES[f"{name}Request"], _CLASSES[f"{name}Response"], streams)


METHODS: Final = {
    "range": _method("KV", "Range"),
    "put": _method("KV", "Put"),
    "delete": _method("KV", "DeleteRange"),
    "txn": _method("KV", "Txn"),
    "watch": _method("Watch", "Watch", streams=True),
    "lease_grant": _method("Lease", "LeaseGrant"),
    "lease_revoke": _method("Lease", "LeaseRevoke"),
    "lease_keepalive": _method("Lease", "LeaseKeepAlive", streams=True),
    "lease_time_to_live": _method("Lease", "LeaseTimeToLive"),
    "authenticate": _method("Auth", "Authenticate"),
}
