"""What the command line needs of a running service: ask it, and show the answer as tables.

Needs no HTTP server. Answers are shown as they came; nothing is computed here but widths.
"""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Any, Final, Self

import httpx

from kvcache._stays import Stays

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Client", "ServiceError", "query_table", "status_table", "watch_status"]

_TIMEOUT_SECONDS: Final = 10.0
_MAX_REASON_CHARS: Final = 80
_CLEAR_SCREEN: Final = "\x1b[H\x1b[2J"


class ServiceError(Exception):
    """The service was not reached, or refused; the message says why on one line."""


class Client(Stays):
    """Asks one service; a context manager. Each call is one request; raises `ServiceError`."""

    _stays = "it has connections: make one with the same URL"

    def __init__(self, url: str, token: str | None = None) -> None:
        self._url = url
        # No proxies of the environment: the service is on the internal network.
        self._http = httpx.Client(
            base_url=url,
            headers={} if token is None else {"X-Internal-Token": token},
            timeout=_TIMEOUT_SECONDS,
            trust_env=False,
        )

    def query(self, token_ids: Sequence[int]) -> list[dict[str, Any]]:
        """The matches of a prompt; of an empty one, the status of every stream."""
        body = {"token_ids": list(token_ids)}
        return self._list("matches", "POST", "/v1/internal/kv-cache/query", body)

    def streams(self) -> list[dict[str, Any]]:
        """The state of every stream."""
        return self._list("streams", "GET", "/v1/internal/streams")

    def instances(self) -> dict[str, Any]:
        """`instances`, and how `etcd` and the `replica` are, None where there is none."""
        return self._ask("GET", "/v1/internal/instances", ("instances", "etcd", "replica"))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self._http.close()

    def _list(
        self, field: str, method: str, path: str, body: dict[str, Any] | None = None
    ) -> list[dict[str, Any]]:
        return list(self._ask(method, path, (field,), body)[field])

    def _ask(
        self, method: str, path: str, fields: Sequence[str], body: dict[str, Any] | None = None
    ) -> dict[str, Any]:
        try:
            response = self._http.request(method, path, json=body)
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            reason = " ".join(str(error).split()) or type(error).__name__
            raise ServiceError(f"cannot reach {self._url}: {reason}") from error
        try:
            answer = response.json()
            if response.is_success:
                return {field: answer[field] for field in fields}
            reason = str(answer["error"])
        except (ValueError, KeyError, TypeError) as error:
            raise ServiceError(
                f"not a kvcache service, status {response.status_code}: {self._url}"
            ) from error
        raise ServiceError(f"{self._url} refused: {_printable(reason)}")


def query_table(matches: Sequence[dict[str, Any]], prompt_tokens: int) -> str:
    """One line a stream: how many of the prompt's tokens it could reuse, and from where."""
    rows = [
        (
            _printable(match["instance_name"]),
            str(match["dp_rank"]),
            str(match["device_hit_tokens"]),
            str(match["host_only_hit_tokens"]),
            _share(match["reusable_prefix_tokens"], prompt_tokens),
            str(match["device_blocks"]),
            str(match["host_blocks"]),
            _printable(match["error"]) or "synchronized",
        )
        for match in matches
    ]
    head = (
        "INSTANCE",
        "RANK",
        "DEVICE HIT",
        "HOST-ONLY HIT",
        "REUSABLE",
        "DEVICE BLOCKS",
        "HOST BLOCKS",
        "STATE",
    )
    return f"prompt: {prompt_tokens} tokens\n{_table(head, rows)}"


def status_table(streams: Sequence[dict[str, Any]]) -> str:
    """One line a stream, and a summary."""
    rows = [
        (
            _printable(stream["instance_name"]),
            str(stream["dp_rank"]),
            str(stream["state"]),
            "-" if stream["sequence"] is None else str(stream["sequence"]),
            str(stream["device_blocks"]),
            str(stream["host_blocks"]),
            f"{stream['messages_per_second']:.1f}",
            f"{stream['memory_bytes'] / 1e6:.1f}",
            str(sum(stream["doubts"].values())),
            _printable(stream["error"] or stream["last_error"]) or "-",
        )
        for stream in streams
    ]
    head = (
        "INSTANCE",
        "RANK",
        "STATE",
        "SEQUENCE",
        "DEVICE BLOCKS",
        "HOST BLOCKS",
        "MSG/S",
        "MB",
        "DOUBTS",
        "LAST ERROR",
    )
    synchronized = sum(bool(stream["synchronized"]) for stream in streams)
    return f"streams: {len(streams)}, synchronized: {synchronized}\n{_table(head, rows)}"


def instance_table(answer: dict[str, Any]) -> str:
    """One line an instance, and how etcd is followed; empty for a service without etcd."""
    etcd, replica = answer["etcd"], answer["replica"]
    if etcd is None:
        return ""
    rows = [
        (
            _printable(one["instance_name"]),
            str(one["type"]),
            str(one["role"]),
            str(one["state"]),
            str(one["dp_size"]),
            str(one["streams"]),
            *_load_cells(one["load"]),
            _printable(one["excluded"]) or "-",
        )
        for one in answer["instances"]
    ]
    head = ("INSTANCE", "TYPE", "ROLE", "STATE", "RANKS", "STREAMS", "WAITING", "CACHE", "EXCLUDED")
    world = "connected" if etcd["connected"] else f"disconnected ({_printable(etcd['error'])})"
    part = (
        "observer" if replica is None else f"{replica['role']}, master {replica['master'] or '-'}"
    )
    summary = f"instances: {len(rows)}, etcd: {world}, this replica: {_printable(part)}"
    return f"{summary}\n{_table(head, rows) if rows else ''}\n"


def _load_cells(load: dict[str, Any] | None) -> tuple[str, str]:
    if load is None:
        return "-", "-"
    if load["fault"]:
        return "illegal", "illegal"
    return str(load["waiting_requests_num"]), f"{load['gpu_cache_usage_perc']:.0%}"


def status_text(client: Client) -> str:
    """Everything that `kvcache status` shows. Raises `ServiceError`."""
    return instance_table(client.instances()) + status_table(client.streams())


def watch_status(client: Client, interval_seconds: float | None) -> None:
    """Prints the status table, and again every interval until interrupted; once when None.

    The table stays in place, so that it wants a terminal. Raises `ServiceError` when the first look
    fails; later failures are shown, since a service that restarts is worth watching.
    """
    text = status_text(client)
    while interval_seconds is not None:
        sys.stdout.write(f"{_CLEAR_SCREEN}{text}\n")
        sys.stdout.flush()
        time.sleep(interval_seconds)
        try:
            text = status_text(client)
        except ServiceError as error:
            text = str(error)
    sys.stdout.write(f"{text}\n")


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    if not rows:
        return "(no streams)"
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in (head, *rows)
    )


def _share(tokens: int, prompt_tokens: int) -> str:
    return f"{tokens} ({tokens / prompt_tokens:.0%})" if prompt_tokens else str(tokens)


def _printable(text: Any) -> str:
    """On one line and bounded: names and reasons come from outside, and this is a terminal."""
    shown = "".join(c if c.isprintable() else "?" for c in str(text))
    return shown if len(shown) <= _MAX_REASON_CHARS else f"{shown[: _MAX_REASON_CHARS - 1]}…"
