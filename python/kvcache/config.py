"""The configuration of the directory: one JSON object (spec: configuration).

Each field, bound and default is said once, here; the command line and the server derive from it.
A configuration is validated as a whole: `ConfigError` lists every fault with its path, faults of
single fields beside faults between fields. Nothing here reads sockets, or knows the Rust core.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Self

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError
from pydantic_core import PydanticCustomError

from kvcache.endpoint import MAX_PORT, Endpoint, parse_endpoint
from kvcache.exceptions import ConfigError, ConfigFault

if TYPE_CHECKING:
    from os import PathLike

    from pydantic_core import ErrorDetails

__all__ = ["MAX_STREAMS", "DiscoveryConfig", "KvEventsConfig", "StreamConfig"]

MAX_STREAMS = 128
"""The most streams that one directory can follow: the width of the index's holder sets."""

_MAX_FILE_BYTES = 4 << 20
_MAX_SHOWN_CHARS = 80
_I32_MAX = 2**31 - 1
_U32_MAX = 2**32 - 1
_U64_MAX = 2**64 - 1
# No allocation can be larger than this on a 64-bit machine.
_SIZE_MAX = 2**63 - 1
_ROLES = ("endpoint", "replay_endpoint")


def _canonical_endpoint(text: str) -> str:
    try:
        return str(parse_endpoint(text))
    except ValueError as error:
        # Passed as a value: pydantic would take braces in the text for placeholders.
        raise PydanticCustomError("endpoint", "{reason}", {"reason": str(error)}) from None


def _require_unicode(text: str) -> str:
    # JSON can escape half a surrogate pair; no topic frame and no answer could carry it.
    if text.isascii() or not any("\ud800" <= char <= "\udfff" for char in text):
        return text
    raise PydanticCustomError("string_unicode", "must be valid Unicode")


def _require_list(value: object) -> object:
    if isinstance(value, list | tuple):
        return value
    raise PydanticCustomError("list_type", "must be a list")


BlockSize = Annotated[int, Field(ge=1, le=_U32_MAX)]
Text = Annotated[str, AfterValidator(_require_unicode)]
EndpointText = Annotated[str, AfterValidator(_canonical_endpoint)]
PortOffset = Annotated[int, Field(ge=0, le=MAX_PORT - 1)]
Milliseconds = Annotated[int, Field(ge=1, le=_U32_MAX)]
Bytes = Annotated[int, Field(ge=1, le=_SIZE_MAX)]


class _Strict(BaseModel):
    """What every object here shares: no unknown keys, no conversions, no change afterwards."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, strict=True, use_attribute_docstrings=True
    )


class DiscoveryConfig(_Strict):
    """How registered instances become streams (spec: instances and discovery).

    An instance registered as `host:port` publishes at `port + event_port_offset + dp_rank` and
    answers snapshot requests at `port + replay_port_offset + dp_rank`.
    """

    enabled: bool = True
    """False counts as no `discovery` at all."""
    block_size: BlockSize = 128
    """Tokens a block, as the engines publish them."""
    topic: Text = ""
    """Compared exactly with the topic frame."""
    event_port_offset: PortOffset = 10000
    """From the registered HTTP port to the event port of rank 0."""
    replay_port_offset: PortOffset = 30000
    """From the registered HTTP port to the replay port of rank 0."""
    refresh_interval_ms: Annotated[int, Field(ge=50, le=60000)] = 1000
    """How often wanted and running streams are compared, in milliseconds."""


class StreamConfig(_Strict):
    """One rank of one instance, with fixed addresses (spec: configuration)."""

    instance_name: Annotated[str, Field(min_length=1), AfterValidator(_require_unicode)]
    """As the instance registers, by convention `host:port`."""
    dp_rank: Annotated[int, Field(ge=0, le=_I32_MAX)] = 0
    """Must equal the rank in every batch."""
    block_size: BlockSize = 128
    """Tokens a block, as the engine publishes them."""
    endpoint: EndpointText
    """Where events are published: `tcp://host:port`, in one spelling."""
    replay_endpoint: EndpointText
    """Where snapshots are answered: `tcp://host:port`, in one spelling."""
    topic: Text = ""
    """Compared exactly with the topic frame."""
    hash_seed: Annotated[int, Field(ge=0, le=_U64_MAX)] = 1024
    """Seed of the directory's own content keys; the engine's seed never matters."""


class KvEventsConfig(_Strict):
    """The whole configuration: one source of streams, and the limits (spec: configuration).

    Raises `ConfigError` with every fault, however it is built.
    """

    discovery: DiscoveryConfig | None = None
    """Streams derived from registered instances; exclusive with non-empty `streams`."""
    streams: Annotated[
        tuple[StreamConfig, ...], BeforeValidator(_require_list), Field(strict=False)
    ] = ()
    """Streams at fixed addresses; exclusive with `discovery`."""
    max_streams: Annotated[int, Field(ge=1, le=MAX_STREAMS)] = MAX_STREAMS
    """Streams followed at most; each rank of an instance is one."""
    max_blocks_per_stream: Annotated[int, Field(ge=1, le=_U32_MAX)] = 262144
    """Resident blocks and kept mappings of one stream together."""
    max_message_bytes: Bytes = 8388608
    """One live message, or one snapshot reply."""
    max_buffered_bytes: Bytes = 16777216
    """Live messages kept while a snapshot is fetched: wire bytes and decoded records' overhead."""
    replay_timeout_ms: Milliseconds = 2000
    """A whole snapshot must have arrived by then, in milliseconds."""
    resync_interval_ms: Milliseconds = 30000
    """Between two calibrations of a synchronized stream, in milliseconds."""

    if not TYPE_CHECKING:  # a type checker keeps the signature that is derived from the fields

        def __init__(self, /, **data: Any) -> None:
            faults = []
            try:
                self.__pydantic_validator__.validate_python(data, self_instance=self)
            except ValidationError as error:
                faults = [_field_fault(detail) for detail in error.errors(include_url=False)]
            faults += _cross_faults(data)
            if faults:
                raise ConfigError(faults)

    @classmethod
    def from_dict(cls, obj: object) -> Self:
        """Validate what a JSON parser returned. Raises `ConfigError`."""
        return cls._from_parsed(obj, [])

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        """Parse and validate JSON; bytes are UTF-8. Raises `ConfigError`."""
        if isinstance(text, bytes):
            try:
                text = text.decode("utf-8-sig")
            except UnicodeDecodeError as error:
                raise _whole(f"not UTF-8, at byte: {error.start}") from None
        if not text.strip():
            raise _whole("the configuration is empty, but needs discovery or streams")
        obj = _parse_json(text)
        return cls._from_parsed(obj, list(_json_faults(obj, "")))

    @classmethod
    def from_file(cls, path: str | PathLike[str]) -> Self:
        """Read, parse and validate a file of at most 4 MiB. Raises `ConfigError`."""
        try:
            with Path(path).open("rb") as file:
                content = file.read(_MAX_FILE_BYTES + 1)
        except (OSError, ValueError) as error:
            reason = (getattr(error, "strerror", None) or str(error)).lower()
            raise _whole(f"cannot read the file, {reason}: {ascii(str(path))[1:-1]}") from None
        if len(content) > _MAX_FILE_BYTES:
            raise _whole(f"the file is larger than the allowed bytes: {_MAX_FILE_BYTES}")
        return cls.from_json(content)

    @classmethod
    def _from_parsed(cls, obj: object, faults: list[ConfigFault]) -> Self:
        if not isinstance(obj, dict):
            raise _whole(f"the configuration must be a JSON object: {_shown(obj)}")
        config = None
        try:
            config = cls(**{str(key): value for key, value in obj.items()})
        except ConfigError as error:
            # What is wrong with the JSON itself explains the field's fault; say it once.
            told = {fault.path for fault in faults}
            faults += [fault for fault in error.faults if fault.path not in told]
        if config is None or faults:
            raise ConfigError(faults)
        return config


def _whole(message: str) -> ConfigError:
    return ConfigError([ConfigFault("", message)])


def _shown(value: object) -> str:
    """Render the value on one short line of ASCII, as it stands in JSON where it can."""
    try:
        text = json.dumps(value)
    except (TypeError, ValueError, RecursionError):
        text = ascii(value)
    return text if len(text) <= _MAX_SHOWN_CHARS else f"{text[:_MAX_SHOWN_CHARS]}…"


# --- the JSON text -------------------------------------------------------------------------------


class _JsonObject(dict[str, Any]):
    """An object that remembers the keys that its text gave more than once."""

    duplicates: tuple[str, ...] = ()


def _json_object(pairs: list[tuple[str, Any]]) -> _JsonObject:
    obj = _JsonObject(pairs)
    if len(obj) != len(pairs):
        counts = Counter(key for key, _ in pairs)
        obj.duplicates = tuple(key for key, count in counts.items() if count > 1)
    return obj


def _parse_json(text: str) -> object:
    try:
        return json.loads(text, object_pairs_hook=_json_object)
    except json.JSONDecodeError as error:
        where = f"line {error.lineno} column {error.colno}"
        raise _whole(f"not valid JSON, {error.msg.lower()}: {where}") from None
    except RecursionError:
        raise _whole("not usable JSON, nested too deeply") from None
    except ValueError:
        # The parser's only other refusal; its own message names an interpreter setting.
        raise _whole("not usable JSON, a number has too many digits") from None


def _json_faults(value: object, path: str) -> Iterator[ConfigFault]:
    """Find what Python's parser lets through, but JSON or a reader does not."""
    if isinstance(value, float) and not math.isfinite(value):
        yield ConfigFault(path, f"must be a finite number: {_shown(value)}")
    elif isinstance(value, _JsonObject):
        for key in value.duplicates:
            yield ConfigFault(_join(path, key), f"the key is given more than once: {_shown(key)}")
        for key, item in value.items():
            yield from _json_faults(item, _join(path, key))
    elif isinstance(value, list):
        for position, item in enumerate(value):
            yield from _json_faults(item, f"{path}[{position}]")


def _join(path: str, key: str) -> str:
    name = ascii(key)[1:-1]
    return f"{path}.{name}" if path else name


# --- single fields -------------------------------------------------------------------------------

_SENTENCES = {
    "missing": "a required key is missing",
    "extra_forbidden": "unknown key",
    "string_too_short": "must not be empty",
    "string_unicode": "must be valid Unicode",
    "string_type": "must be a string",
    "bool_type": "must be true or false",
    "greater_than_equal": "must be at least {ge}",
    "less_than_equal": "must be at most {le}",
    "list_type": "must be a list",
    "model_type": "must be an object",
    "int_type": "must be an integer",
    "int_from_float": "must be an integer",
}


def _field_fault(detail: ErrorDetails) -> ConfigFault:
    path = ""
    for step in detail["loc"]:
        path = f"{path}[{step}]" if isinstance(step, int) else _join(path, step)
    kind, context = detail["type"], detail.get("ctx", {})
    if kind == "endpoint":
        return ConfigFault(path, context["reason"])
    if kind == "extra_forbidden":
        return ConfigFault(path, f"unknown key: {_shown(detail['loc'][-1])}")
    sentence = _SENTENCES.get(kind, detail["msg"][:1].lower() + detail["msg"][1:])
    sentence = sentence.format(**context) if kind in _SENTENCES else sentence
    if kind == "missing":
        return ConfigFault(path, f"{sentence}: {_shown(detail['loc'][-1])}")
    return ConfigFault(path, f"{sentence}: {_shown(detail['input'])}")


# --- between fields ------------------------------------------------------------------------------


def _cross_faults(data: Mapping[str, Any]) -> list[ConfigFault]:
    """Faults between fields, of whatever is well-formed; the other fields have their own faults."""
    streams = data.get("streams", ())
    streams = streams if isinstance(streams, list | tuple) else None
    return [
        *_source_faults(data, streams),
        *_offset_faults(data.get("discovery")),
        *_name_faults(streams or ()),
        *_endpoint_faults(streams or ()),
    ]


def _source_faults(
    data: Mapping[str, Any], streams: Sequence[object] | None
) -> Iterator[ConfigFault]:
    discovery = data.get("discovery")
    discovers = discovery is not None and _get(discovery, "enabled") is not False
    if discovers and streams:
        yield ConfigFault("", "discovery and non-empty streams exclude each other")
    if not discovers and streams is not None and not streams:
        yield ConfigFault(
            "", "neither discovery nor streams is given, so nothing would be followed"
        )
    limit = data.get("max_streams", MAX_STREAMS)
    if type(limit) is not int or not 1 <= limit <= MAX_STREAMS:
        limit = MAX_STREAMS
    if streams and len(streams) > limit:
        yield ConfigFault("streams", f"more streams than max_streams {limit}: {len(streams)}")


def _offset_faults(discovery: object) -> Iterator[ConfigFault]:
    fields = DiscoveryConfig.model_fields
    event, replay = (
        _get(discovery, key, fields[key].default)
        for key in ("event_port_offset", "replay_port_offset")
    )
    if discovery is not None and type(event) is int and event == replay:
        yield ConfigFault(
            "discovery.replay_port_offset", f"must differ from event_port_offset: {replay}"
        )


def _name_faults(streams: Sequence[object]) -> Iterator[ConfigFault]:
    first: dict[tuple[str, int], int] = {}
    for position, stream in enumerate(streams):
        name, rank = _get(stream, "instance_name"), _get(stream, "dp_rank", 0)
        if not isinstance(name, str) or not name or type(rank) is not int:
            continue
        earlier = first.setdefault((name, rank), position)
        if earlier != position:
            yield ConfigFault(
                f"streams[{position}]",
                f"same instance and rank as streams[{earlier}]: {_shown(name)} rank {rank}",
            )


def _endpoint_faults(streams: Sequence[object]) -> Iterator[ConfigFault]:
    first: dict[tuple[str, int], str] = {}
    for position, stream in enumerate(streams):
        for role in _ROLES:
            endpoint = _endpoint(_get(stream, role))
            if endpoint is None:
                continue
            path = f"streams[{position}].{role}"
            earlier = first.setdefault(endpoint.identity, path)
            if earlier != path:
                yield ConfigFault(path, f"{endpoint} is already {earlier}")


def _endpoint(text: object) -> Endpoint | None:
    try:
        return parse_endpoint(text) if isinstance(text, str) else None
    except ValueError:
        return None


def _get(obj: object, key: str, default: object = None) -> object:
    """Get a value of a raw object or of a model that was built before."""
    if isinstance(obj, Mapping):
        return obj.get(key, default)
    return getattr(obj, key, default) if isinstance(obj, BaseModel) else default
