"""The messages of brpc's standard protocol and of xLLM's master service, by their field numbers.

What is not read is left out: parsers pass over it. Texts of the meta are bytes here, since old clients may
send any. Messages that are only looked for are `Empty`.
"""

from __future__ import annotations

from typing import Any, Final

from google.protobuf.message import DecodeError

from kvcache.protobuf_table import build_messages

__all__ = ["DecodeError", "message", "parse"]

_TABLE: Final = {
    # The protocol.
    "RpcMeta": (
        "request:RpcRequestMeta=1 response:RpcResponseMeta=2 compress_type:int32=3"
        " correlation_id:int64=4 attachment_size:int32=5 chunk_info:Empty=6"
        " authentication_data:bytes=7 stream_settings:Empty=8"
    ),
    "RpcRequestMeta": "service_name:bytes=1 method_name:bytes=2",
    "RpcResponseMeta": "error_code:int32=1 error_text:string=2",
    # The service.
    "Empty": "",
    "Status": "ok:bool=1",
    "LoadMetrics": "waiting_requests_num:uint64=1 gpu_cache_usage_perc:float=2",
    "LatencyMetrics": "recent_max_ttft:int64=1 recent_max_tbt:int64=2",
    "HeartbeatRequest": (
        "name:string=1 load_metrics:LoadMetrics=3 latency_metrics:LatencyMetrics=4"
        " incarnation_id:string=6"
    ),
    "InstanceID": "name:string=1",
    "InstanceIDs": "names:[string]=1",
    "InstanceMetaInfo": (
        "name:string=1 rpc_address:string=2 type:int32=3 cluster_ids:[uint64]=4"
        " k_cache_ids:[int64]=5 v_cache_ids:[int64]=6 dp_size:int32=7 addrs:[string]=8"
        " device_ips:[string]=9 ports:[uint32]=10 incarnation_id:string=11 register_ts_ms:uint64=12"
    ),
}
_CLASSES: Final = build_messages("kvcache.rpc.xllm", _TABLE)


def message(name: str, /, **fields: Any) -> Any:
    """A message of the table by its name."""
    return _CLASSES[name](**fields)


def parse(name: str, data: bytes) -> Any:
    """The message that `data` holds. Raises `DecodeError`."""
    return _CLASSES[name].FromString(data)
