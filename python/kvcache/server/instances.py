"""`GET /v1/internal/instances`: every registered instance, and how etcd is being followed."""

from __future__ import annotations

import dataclasses
import json
import time
from collections import Counter
from typing import TYPE_CHECKING, Any

from fastapi import APIRouter
from starlette.responses import Response

if TYPE_CHECKING:
    from kvcache.registry.model import Instance
    from kvcache.service import Service

__all__ = ["instances_router"]


def instances_router(service: Service) -> APIRouter:
    """The route, around a service."""
    router = APIRouter()

    # Not async: thousands of instances are rendered in a worker thread, beside the hot route.
    @router.get(
        "/v1/internal/instances",
        response_class=Response,
        responses={200: {"content": {"application/json": {}}}},
    )
    def instances() -> Response:
        """State, role, load and streams of every instance; and whether etcd is being followed."""
        plan = None if service.follower is None else service.follower.plan
        streams = Counter(stream.instance_name for stream in plan.streams) if plan else Counter()
        exclusions = plan.exclusions if plan else {}
        now_s = time.monotonic()
        rows = [
            _row(instance, now_s, streams[name], exclusions.get(name, ""))
            for name, instance in service.registry.snapshot().instances.items()
        ]
        body = {"instances": rows, "etcd": _etcd(service), "replica": _replica(service)}
        return Response(json.dumps(body), media_type="application/json")

    return router


def _row(instance: Instance, now_s: float, streams: int, excluded: str) -> dict[str, Any]:
    registration = instance.registration
    return {
        "instance_name": instance.name,
        "type": instance.type.name,
        "role": instance.role.value,
        "state": instance.state.value,
        "incarnation_id": registration.incarnation_id,
        "register_ts_ms": registration.register_ts_ms,
        "dp_size": instance.dp_size,
        "load": _load(instance, now_s),
        "streams": streams,
        "excluded": excluded,
    }


def _load(instance: Instance, now_s: float) -> dict[str, Any] | None:
    report = instance.load(now_s)
    if report is None:
        return None
    return {
        "waiting_requests_num": report.load.waiting_requests_num,
        "gpu_cache_usage_perc": report.load.gpu_cache_usage_perc,
        "source": report.source,
        "age_ms": max(0, round((now_s - report.received_at_s) * 1000)),
        "fault": report.load.fault,
    }


def _etcd(service: Service) -> dict[str, Any] | None:
    """Whether the instances above are those of now; None without etcd."""
    if service.discovery is None:
        return None
    status = service.discovery.status
    return {
        "connected": status.connected,
        "error": status.error,
        "revision": status.revision,
        "since_unix_s": status.since_unix_s,
    }


def _replica(service: Service) -> dict[str, Any] | None:
    """Tell the service's own part among its replicas; None without etcd and for an observer."""
    if service.discovery is None or service.discovery.replica is None:
        return None
    return dataclasses.asdict(service.discovery.replica.status)
