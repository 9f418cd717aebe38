"""One call: what a frame asks for, and the frame that answers it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from kvcache.registry.shown import shown_name
from kvcache.rpc.errors import CallError, ErrorCode, FramingError
from kvcache.rpc.framing import encode_frame
from kvcache.rpc.messages import DecodeError, message, parse

if TYPE_CHECKING:
    from kvcache.rpc.framing import Frame

__all__ = ["Call", "encode_answer", "encode_error", "read_call", "read_meta"]

_REFUSED_PARTS: Final = {
    "chunk_info": "chunks are not supported",
    "stream_settings": "streams are not supported",
}


@dataclass(frozen=True, slots=True)
class Call:
    """A method to be called with a message, neither of them judged yet."""

    service: bytes
    method: bytes
    message: bytes

    def __str__(self) -> str:
        return f"{shown_name(self.service)}/{shown_name(self.method)}"


def read_meta(frame: Frame) -> Any:
    """The `RpcMeta` of a frame. Raises `FramingError`: without it nobody could be answered."""
    try:
        return parse("RpcMeta", frame.meta)
    except DecodeError:
        raise FramingError("the meta of a frame is not an RpcMeta") from None


def read_call(meta: Any, payload: bytes) -> Call:
    """The call in a frame; an attachment is left out. Raises `CallError` for what is not supported."""
    if not meta.HasField("request"):
        raise CallError(ErrorCode.BAD_REQUEST, "the meta has no request")
    for part, reason in _REFUSED_PARTS.items():
        if meta.HasField(part):
            raise CallError(ErrorCode.BAD_REQUEST, reason)
    if meta.compress_type:
        reason = f"compression is not supported: {meta.compress_type}"
        raise CallError(ErrorCode.BAD_REQUEST, reason)
    if meta.authentication_data:
        raise CallError(ErrorCode.BAD_REQUEST, "authentication is not supported")
    attachment_size = meta.attachment_size
    if not 0 <= attachment_size <= len(payload):
        reason = f"the attachment exceeds what was sent: {attachment_size}"
        raise CallError(ErrorCode.BAD_REQUEST, reason)
    request = meta.request
    body = payload[: len(payload) - attachment_size]
    return Call(request.service_name, request.method_name, body)


def encode_answer(correlation_id: int, body: bytes) -> bytes:
    """The frame that answers a call with an encoded message."""
    meta = message("RpcMeta", response=message("RpcResponseMeta"), correlation_id=correlation_id)
    return encode_frame(meta.SerializeToString(), body)


def encode_error(correlation_id: int, error: CallError) -> bytes:
    """The frame that refuses a call."""
    response = message("RpcResponseMeta", error_code=error.code, error_text=str(error))
    meta = message("RpcMeta", response=response, correlation_id=correlation_id)
    return encode_frame(meta.SerializeToString())
