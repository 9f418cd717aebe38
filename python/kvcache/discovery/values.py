"""JSON values of etcd: registrations and loads (spec: values).

Decoders raise `RefusedError` with one sentence, and nothing else, whatever the bytes. What says who an instance
is, and where, is read strictly: `name`, `type`, `dp_size`, and what its identity rests on. What only helps a
choice, as profiling data, or is only passed on, is dropped where it is malformed, and never costs the
instance. Unknown fields do not matter, whatever they hold. A null counts as absent.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from typing import TYPE_CHECKING, Any, Final, TypeGuard

from kvcache.discovery.refused import RefusedError
from kvcache.endpoint import MAX_PORT
from kvcache.registry.model import InstanceType, Load, Registration
from kvcache.registry.shown import shown

if TYPE_CHECKING:
    from kvcache.discovery.keys import ParsedKey

__all__ = ["MAX_DP_SIZE", "MAX_VALUE_BYTES", "decode_load", "decode_registration", "encode_load"]

MAX_VALUE_BYTES: Final = 1 << 20
"""Longer values are not parsed; etcd itself takes 1.5 MiB."""

MAX_DP_SIZE: Final = MAX_PORT
"""Every rank needs a port of its own."""

_MAX_INCARNATION_CHARS: Final = 1024
_MAX_INTEGER_CHARS: Final = 25
_U64_MAX: Final = 2**64 - 1
_I64_MIN: Final = -(2**63)
_I64_MAX: Final = 2**63 - 1


def decode_registration(value: bytes, key: ParsedKey) -> Registration:
    """The registration under `key`, a registration key. Raises `RefusedError`."""
    obj = _parse_object(value)
    name = obj.get("name")
    if name != key.name:
        raise RefusedError(f"the name disagrees with the key: {shown(name)}")
    incarnation_id = _incarnation_id(obj)
    return Registration(
        name=key.name,
        type=_type(obj, key),
        dp_size=_dp_size(obj),
        incarnation_id=incarnation_id,
        register_ts_ms=_register_ts_ms(obj, identifies=not incarnation_id),
        rpc_address=_text(obj.get("rpc_address")),
        ttft_profiling_data=_rows(obj.get("ttft_profiling_data"), 2),
        tpot_profiling_data=_rows(obj.get("tpot_profiling_data"), 3),
        cluster_ids=_integers(obj.get("cluster_ids"), 0, _U64_MAX),
        k_cache_ids=_integers(obj.get("k_cache_ids"), _I64_MIN, _I64_MAX),
        v_cache_ids=_integers(obj.get("v_cache_ids"), _I64_MIN, _I64_MAX),
        addrs=_texts(obj.get("addrs")),
        device_ips=_texts(obj.get("device_ips")),
        ports=_integers(obj.get("ports"), 0, MAX_PORT),
    )


def decode_load(value: bytes) -> Load:
    """The load, legal or not. Raises `RefusedError` for what is no JSON object."""
    return Load.of(_parse_object(value))


def encode_load(load: Load) -> bytes:
    """The value to be written. What is illegal in the load is null, which is illegal for its readers too."""
    fields = {
        "waiting_requests_num": load.waiting_requests_num,
        "gpu_cache_usage_perc": load.gpu_cache_usage_perc,
    }
    return json.dumps(fields, separators=(",", ":")).encode()


# --- fields --------------------------------------------------------------------------------------


def _type(obj: dict[str, Any], key: ParsedKey) -> InstanceType:
    number = obj.get("type")
    if not _is_integer(number) or not 0 <= number <= max(InstanceType):
        raise RefusedError(
            f"type must be an integer of 0 to {max(InstanceType):d}: {shown(number)}"
        )
    kind = InstanceType(number)
    if kind is not key.type:
        raise RefusedError(f"the type disagrees with the key: {kind.name}")
    return kind


def _dp_size(obj: dict[str, Any]) -> int:
    size = obj.get("dp_size")
    if size is None:
        return 1
    if not _is_integer(size) or not 1 <= size <= MAX_DP_SIZE:
        raise RefusedError(f"dp_size must be an integer of 1 to {MAX_DP_SIZE}: {shown(size)}")
    return size


def _incarnation_id(obj: dict[str, Any]) -> str:
    text = obj.get("incarnation_id")
    if text is None:
        return ""
    if not isinstance(text, str) or len(text) > _MAX_INCARNATION_CHARS or not _is_unicode(text):
        rule = f"a string of at most {_MAX_INCARNATION_CHARS} characters"
        raise RefusedError(f"incarnation_id must be {rule}: {shown(text)}")
    return text


def _register_ts_ms(obj: dict[str, Any], *, identifies: bool) -> int | None:
    time_ms = obj.get("register_ts_ms")
    if time_ms is None or (_is_integer(time_ms) and 0 <= time_ms <= _U64_MAX):
        return time_ms
    if not identifies:
        return None
    # Without an incarnation two processes would look like one.
    raise RefusedError(f"register_ts_ms must be an integer of 0 to 2^64-1: {shown(time_ms)}")


def _text(value: object) -> str:
    return value if isinstance(value, str) and _is_unicode(value) else ""


def _rows(value: object, width: int) -> tuple[Any, ...]:
    """Rows of `width` finite numbers each; none at all if one is malformed."""
    rows = []
    for row in value if isinstance(value, list) else ():
        if not isinstance(row, list) or len(row) != width or not all(map(_is_finite, row)):
            return ()
        rows.append(tuple(map(float, row)))
    return tuple(rows)


def _integers(value: object, least: int, most: int) -> tuple[int, ...]:
    """Integers of a range; none at all if one is not."""
    items = value if isinstance(value, list) else []
    legal = all(_is_integer(item) and least <= item <= most for item in items)
    return tuple(items) if legal else ()


def _texts(value: object) -> tuple[str, ...]:
    """Strings; none at all if one is not."""
    items = value if isinstance(value, list) else []
    legal = all(isinstance(item, str) and _is_unicode(item) for item in items)
    return tuple(items) if legal else ()


def _is_integer(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_finite(value: object) -> bool:
    # Integers are short enough to be floats: the parser made floats of longer ones.
    return (_is_integer(value) or isinstance(value, float)) and math.isfinite(value)


def _is_unicode(text: str) -> bool:
    # JSON can escape half a surrogate pair; no answer could carry it.
    return text.isascii() or not any("\ud800" <= char <= "\udfff" for char in text)


# --- the JSON text -------------------------------------------------------------------------------


class _Object(dict[str, Any]):
    """An object that remembers a key that its text gave more than once."""

    duplicate: str | None = None


def _object(pairs: list[tuple[str, Any]]) -> _Object:
    obj = _Object(pairs)
    if len(obj) != len(pairs):
        obj.duplicate = next(key for key, n in Counter(key for key, _ in pairs).items() if n > 1)
    return obj


def _integer(digits: str) -> int | float:
    # Reading long digits as an integer takes quadratic time, and no field holds such a number.
    return int(digits) if len(digits) <= _MAX_INTEGER_CHARS else float(digits)


def _parse_object(value: bytes) -> dict[str, Any]:
    if len(value) > MAX_VALUE_BYTES:
        raise RefusedError(f"the value exceeds {MAX_VALUE_BYTES} bytes: {len(value)}")
    try:
        text = value.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise RefusedError(f"the value is not UTF-8, at byte: {error.start}") from None
    try:
        obj = json.loads(text, object_pairs_hook=_object, parse_int=_integer)
    except json.JSONDecodeError as error:
        raise RefusedError(
            f"the value is not JSON, {error.msg.lower()}: character {error.pos}"
        ) from None
    except RecursionError:
        raise RefusedError("the value is nested too deeply") from None
    if not isinstance(obj, _Object):
        raise RefusedError(f"the value must be a JSON object: {shown(obj)}")
    if obj.duplicate is not None:
        raise RefusedError(f"a field is given more than once: {shown(obj.duplicate)}")
    return obj
