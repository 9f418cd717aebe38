"""`MasterService`: the methods that an xLLM engine calls on its master, answered from a registry.

Answers are from memory and at once, but for the lists of names: in a large fleet those take a while, and
give way to other calls. Requests for tokens (`Generations`) are not ours.
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias

from kvcache.registry.model import InstanceType, Latency, Load
from kvcache.registry.registry import MAX_NAME_CHARS, HeartbeatOutcome
from kvcache.rpc.errors import CallError, ErrorCode
from kvcache.rpc.messages import DecodeError, message, parse
from kvcache.rpc.names import NameList

if TYPE_CHECKING:
    from collections.abc import Callable

    from kvcache.registry.registry import Registry
    from kvcache.rpc.calls import Call

__all__ = ["SERVICE_NAME", "Answer", "Answers", "MasterService"]

Answer: TypeAlias = bytes | Coroutine[Any, Any, bytes]


class Answers(Protocol):
    """What a server needs of its service; `MasterService` is one."""

    def answer(self, call: Call) -> Answer:
        """The encoded answer, or a coroutine that gives it; both may raise `CallError`."""
        ...


SERVICE_NAME: Final = "xllm_service.proto.XllmRpcService"
_SERVICE_NAMES: Final = (SERVICE_NAME.encode(), SERVICE_NAME.rpartition(".")[2].encode())
_OK: Final[bytes] = message("Status", ok=True).SerializeToString()
_NOT_OK: Final[bytes] = message("Status").SerializeToString()


class MasterService:
    """Answers calls with what `registry` holds. For one event loop; the registry may be shared with other threads."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._decodes = NameList(registry, frozenset({InstanceType.DECODE}))
        self._prefills = NameList(registry, frozenset({InstanceType.PREFILL, InstanceType.DEFAULT}))
        self._methods: dict[bytes, tuple[str, Callable[[Any], Answer]]] = {
            b"Hello": ("Empty", self._hello),
            b"Heartbeat": ("HeartbeatRequest", self._heartbeat),
            b"GetInstanceInfo": ("InstanceID", self._instance_info),
            b"GetStaticDecodeList": ("InstanceID", self._decode_list),
            b"GetStaticPrefillList": ("InstanceID", self._prefill_list),
        }

    def answer(self, call: Call) -> Answer:
        """The encoded answer, or a coroutine that gives it. Raises `CallError`."""
        if call.service not in _SERVICE_NAMES:
            raise CallError(ErrorCode.NO_SERVICE, f"there is no such service: {call}")
        if call.method not in self._methods:
            raise CallError(ErrorCode.NO_METHOD, f"there is no such method: {call}")
        kind, method = self._methods[call.method]
        try:
            request = parse(kind, call.message)
        except DecodeError:
            raise CallError(ErrorCode.BAD_REQUEST, f"the message is no {kind}: {call}") from None
        return method(request)

    def _hello(self, _request: Any) -> Answer:
        return _OK

    def _heartbeat(self, request: Any) -> Answer:
        name, incarnation_id = request.name, request.incarnation_id
        # The registry remembers whom it warned of.
        if max(len(name), len(incarnation_id)) > MAX_NAME_CHARS:
            reason = f"name and incarnation_id must have at most {MAX_NAME_CHARS} characters"
            raise CallError(ErrorCode.BAD_REQUEST, reason)
        outcome = self._registry.record_heartbeat(
            name,
            incarnation_id=incarnation_id,
            load=_load(request.load_metrics) if request.HasField("load_metrics") else None,
            latency=_latency(request.latency_metrics)
            if request.HasField("latency_metrics")
            else None,
        )
        return _OK if outcome is HeartbeatOutcome.ACCEPTED else _NOT_OK

    def _instance_info(self, request: Any) -> Answer:
        """What the instance registered; an empty message for an unknown name, as engines expect."""
        instance = self._registry.snapshot().instances.get(request.name)
        if instance is None:
            return b""
        registered = instance.registration
        info = message(
            "InstanceMetaInfo",
            name=registered.name,
            rpc_address=registered.rpc_address,
            type=registered.type,
            cluster_ids=registered.cluster_ids,
            k_cache_ids=registered.k_cache_ids,
            v_cache_ids=registered.v_cache_ids,
            dp_size=registered.dp_size,
            addrs=registered.addrs,
            device_ips=registered.device_ips,
            ports=registered.ports,
            incarnation_id=registered.incarnation_id,
            register_ts_ms=registered.register_ts_ms,
        )
        return bytes(info.SerializeToString())

    def _decode_list(self, _request: Any) -> Answer:
        return self._decodes.encoded()

    def _prefill_list(self, _request: Any) -> Answer:
        return self._prefills.encoded()


def _load(metrics: Any) -> Load:
    return Load.of(
        {
            "waiting_requests_num": metrics.waiting_requests_num,
            "gpu_cache_usage_perc": metrics.gpu_cache_usage_perc,
        }
    )


def _latency(metrics: Any) -> Latency:
    return Latency(metrics.recent_max_ttft, metrics.recent_max_tbt)
