"""The hand-written part of `/openapi.json`: the routes that read their bodies themselves."""

from __future__ import annotations

from typing import Any, Final

from kvcache._core import MAX_REQUEST_ID_CHARS

__all__ = [
    "DESCRIPTION",
    "HEARTBEAT_OPERATION",
    "QUERY_OPERATION",
    "REQUESTS_OPERATION",
    "ROUTE_OPERATION",
]

DESCRIPTION: Final = (
    "Who holds how much of a prompt in which cache tier. Every error is "
    '`{"error": "one sentence", "code": "stable_snake_case"}`.'
)

_UINT32_MAX: Final = 2**32 - 1
_COUNT: Final = {"type": "integer", "minimum": 0}
_MATCH: Final[dict[str, Any]] = {
    "instance_name": {"type": "string"},
    "dp_rank": _COUNT,
    "synchronized": {"type": "boolean"},
    "sequence": {"type": ["integer", "null"], "minimum": 0},
    "device_hit_tokens": _COUNT,
    "host_only_hit_tokens": _COUNT,
    "reusable_prefix_tokens": _COUNT,
    "device_blocks": _COUNT,
    "host_blocks": _COUNT,
    "error": {"type": "string", "description": "empty when synchronized"},
}
_REQUEST: Final[dict[str, Any]] = {
    "type": "object",
    "additionalProperties": False,
    "required": ["token_ids"],
    "properties": {
        "token_ids": {
            "type": "array",
            "items": {"type": "integer", "minimum": 0, "maximum": _UINT32_MAX},
        }
    },
}
_ANSWER: Final = {
    "type": "object",
    "required": ["matches"],
    "properties": {
        "matches": {
            "type": "array",
            "description": "by instance name, then rank",
            "items": {"type": "object", "required": list(_MATCH), "properties": _MATCH},
        }
    },
}
_ERROR: Final = {
    "type": "object",
    "required": ["error", "code"],
    "properties": {"error": {"type": "string"}, "code": {"type": "string"}},
}


def _json(description: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"description": description, "content": {"application/json": {"schema": schema}}}


QUERY_OPERATION: Final[dict[str, Any]] = {
    "summary": "Who holds how much of a prompt",
    "operationId": "query_kv_cache",
    "requestBody": {"required": True, "content": {"application/json": {"schema": _REQUEST}}},
    "responses": {
        "200": _json("One match a stream", _ANSWER),
        "400": _json("Not a valid request", _ERROR),
        "401": _json("X-Internal-Token missing or wrong", _ERROR),
        "413": _json("Body over max_body_bytes", _ERROR),
        "503": _json("No index, or shutting down", _ERROR),
    },
}

_ROUTE: Final = {
    "type": "object",
    "additionalProperties": False,
    "required": ["token_ids"],
    "properties": _REQUEST["properties"]
    | {
        "request_id": {"type": "string", "minLength": 1, "maxLength": MAX_REQUEST_ID_CHARS},
        "explain": {"type": "boolean", "description": "show those that cannot be chosen too"},
    },
}
_TERMS: Final[dict[str, Any]] = {
    "instance_name": {"type": "string"},
    "role": {"enum": ["prefill", "decode"]},
    "kv_hit_ratio": {"type": "number", "minimum": 0, "maximum": 1},
    "device_hit_tokens": _COUNT,
    "host_only_hit_tokens": _COUNT,
    "queue_cost": {"type": ["number", "null"]},
    "score": {"type": ["number", "null"], "description": "the smallest wins"},
    "excluded": {"type": "string", "description": "why it cannot be chosen; empty when it can"},
}
_DECISION: Final = {
    "type": "object",
    "required": ["policy", "prefill", "decode", "candidates"],
    "properties": {
        "policy": {"type": "string"},
        "prefill": {"type": "string"},
        "decode": {"type": ["string", "null"]},
        "request_id": {"type": ["string", "null"]},
        "prefill_decided_by": {"type": "string"},
        "decode_decided_by": {"type": "string"},
        "turning_points": {
            "type": "array",
            "description": "the nearest weights at which another prefill would win",
            "items": {
                "type": "object",
                "properties": {
                    "prefill_lambda": {"type": "number"},
                    "instance_name": {"type": "string"},
                },
            },
        },
        "candidates": {"type": "array", "items": {"type": "object", "properties": _TERMS}},
    },
}

ROUTE_OPERATION: Final[dict[str, Any]] = {
    "summary": "Which instances serve a prompt, and why",
    "operationId": "route",
    "requestBody": {"required": True, "content": {"application/json": {"schema": _ROUTE}}},
    "responses": {
        "200": _json("The choice, and every candidate's terms", _DECISION),
        "400": _json("Not a valid request", _ERROR),
        "401": _json("X-Internal-Token missing or wrong", _ERROR),
        "413": _json("Body over max_body_bytes", _ERROR),
        "503": _json("Nothing can serve; `excluded` has the reason of each instance", _ERROR),
    },
}

_HEARTBEAT: Final = {
    "type": "object",
    "required": ["name"],
    "properties": {
        "name": {"type": "string", "description": "the registered host:port"},
        "incarnation_id": {"type": "string"},
        "load_metrics": {
            "type": "object",
            "properties": {
                "waiting_requests_num": _COUNT,
                "gpu_cache_usage_perc": {"type": "number", "minimum": 0, "maximum": 1},
            },
        },
        "latency_metrics": {
            "type": "object",
            "properties": {
                "recent_max_ttft": {"type": "integer"},
                "recent_max_tbt": {"type": "integer"},
            },
        },
    },
}

HEARTBEAT_OPERATION: Final[dict[str, Any]] = {
    "summary": "An instance is alive, and says how busy it is",
    "operationId": "record_heartbeat",
    "requestBody": {"required": True, "content": {"application/json": {"schema": _HEARTBEAT}}},
    "responses": {
        "200": {"description": "Taken; an illegal load excludes the instance from choices"},
        "400": _json("Not a heartbeat", _ERROR),
        "401": _json("X-Internal-Token missing or wrong", _ERROR),
        "404": _json("No instance is registered by this name", _ERROR),
        "409": _json("Another incarnation is registered by this name", _ERROR),
        "413": _json("Body over 64 KiB", _ERROR),
    },
}

_REQUEST_EVENT: Final = {
    "type": "object",
    "additionalProperties": False,
    "required": ["request_id", "event"],
    "properties": {
        "request_id": {"type": "string", "minLength": 1},
        "event": {"enum": ["begin", "first_token", "token", "finish", "cancel"]},
    },
}
_ACCOUNTED: Final = {
    "type": "object",
    "required": ["accounted"],
    "properties": {"accounted": {"type": "boolean"}},
}

REQUESTS_OPERATION: Final[dict[str, Any]] = {
    "summary": "How a routed request goes on, for policies that account for requests",
    "operationId": "record_request_event",
    "requestBody": {
        "required": True,
        "content": {"application/json": {"schema": _REQUEST_EVENT}},
    },
    "responses": {
        "200": _json("Whether the policy knew the request, and not this of it", _ACCOUNTED),
        "400": _json("Not an event", _ERROR),
        "401": _json("X-Internal-Token missing or wrong", _ERROR),
        "413": _json("Body over 4 KiB", _ERROR),
    },
}
