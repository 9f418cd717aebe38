"""Frames written down byte by byte from the protocol's definition; no code made them."""

from __future__ import annotations


def _frame(*parts: tuple[str, str]) -> bytes:
    return b"".join(bytes.fromhex(digits) for digits, _meaning in parts)


_XLLM_RPC_SERVICE = "786c6c6d5f736572766963652e70726f746f2e586c6c6d52706353657276696365"

# As clients send it: they write the compression even if there is none.
HELLO = _frame(
    ("50525043", "PRPC"),
    ("00000032", "body: 50 bytes"),
    ("00000032", "meta: 50 bytes; the message is empty"),
    ("0a2a", "RpcMeta.request (1), 42 bytes"),
    ("0a21", ".service_name (1), 33 bytes"),
    (_XLLM_RPC_SERVICE, "xllm_service.proto.XllmRpcService"),
    ("1205 48656c6c6f", ".method_name (2), 5 bytes: Hello"),
    ("1800", "RpcMeta.compress_type (3): 0"),
    ("20 808008", "RpcMeta.correlation_id (4): 131072"),
)
HELLO_ANSWER = _frame(
    ("50525043", "PRPC"),
    ("00000008", "body: 8 bytes"),
    ("00000006", "meta: 6 bytes"),
    ("1200", "RpcMeta.response (2), empty: no error"),
    ("20 808008", "RpcMeta.correlation_id (4): 131072"),
    ("0801", "Status.ok (1): true"),
)

# Everything that may be in it and is of no use here is in it.
HEARTBEAT = _frame(
    ("50525043", "PRPC"),
    ("00000064", "body: 52 of meta, 45 of message, 3 of attachment"),
    ("00000034", "meta: 52 bytes"),
    ("0a24", "RpcMeta.request (1), 36 bytes"),
    ("0a0e 586c6c6d52706353657276696365", ".service_name (1): XllmRpcService"),
    ("1209 486561727462656174", ".method_name (2): Heartbeat"),
    ("1807", ".log_id (3): 7"),
    ("3a02 7231", ".request_id (7): r1"),
    ("40 e807", ".timeout_ms (8): 1000"),
    ("1800", "RpcMeta.compress_type (3): 0"),
    ("2005", "RpcMeta.correlation_id (4): 5"),
    ("2803", "RpcMeta.attachment_size (5): 3"),
    ("4a06 0a0161 120162", "RpcMeta.user_fields (9): a to b"),
    ("0a0d 31302e302e302e313a38303030", "HeartbeatRequest.name (1): 10.0.0.1:8000"),
    ("1204 0a02aabb", "HeartbeatRequest.cache_event (2): stored_cache (1)"),
    ("1a07", "HeartbeatRequest.load_metrics (3), 7 bytes"),
    ("0805", ".waiting_requests_num (1): 5"),
    ("15 0000803e", ".gpu_cache_usage_perc (2): 0.25"),
    ("2205", "HeartbeatRequest.latency_metrics (4), 5 bytes"),
    ("08 9601", ".recent_max_ttft (1): 150"),
    ("10 14", ".recent_max_tbt (2): 20"),
    ("2a02 0801", "HeartbeatRequest.xtensor_info (5): something"),
    ("3202 6931", "HeartbeatRequest.incarnation_id (6): i1"),
    ("ffffff", "attachment"),
)
HEARTBEAT_ANSWER = _frame(
    ("50525043", "PRPC"),
    ("00000006", "body: 6 bytes"),
    ("00000004", "meta: 4 bytes"),
    ("1200", "RpcMeta.response (2), empty: no error"),
    ("2005", "RpcMeta.correlation_id (4): 5"),
    ("0801", "Status.ok (1): true"),
)
HEARTBEAT_REFUSED = HEARTBEAT_ANSWER[:7] + b"\x04" + HEARTBEAT_ANSWER[8:-2]  # ok false is no bytes

GENERATIONS = _frame(
    ("50525043", "PRPC"),
    ("00000036", "body: 54 bytes"),
    ("00000034", "meta: 52 bytes"),
    ("0a30", "RpcMeta.request (1), 48 bytes"),
    ("0a21", ".service_name (1), 33 bytes"),
    (_XLLM_RPC_SERVICE, "xllm_service.proto.XllmRpcService"),
    ("120b 47656e65726174696f6e73", ".method_name (2): Generations"),
    ("2009", "RpcMeta.correlation_id (4): 9"),
    ("0a00", "DisaggStreamGenerations.gens (1), empty"),
)
GENERATIONS_REFUSED = _frame(
    ("50525043", "PRPC"),
    ("0000004f", "body: 79 bytes"),
    ("0000004f", "meta: 79 bytes; an error has no message"),
    ("124b", "RpcMeta.response (2), 75 bytes"),
    ("08 ea07", ".error_code (1): 1002"),
    ("1246", ".error_text (2), 70 bytes"),
    ("7468657265206973206e6f2073756368206d6574686f643a20", "'there is no such method: '"),
    (_XLLM_RPC_SERVICE, "xllm_service.proto.XllmRpcService"),
    ("2f 47656e65726174696f6e73", "/Generations"),
    ("2009", "RpcMeta.correlation_id (4): 9"),
)
