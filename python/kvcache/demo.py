"""`kvcache demo`: the whole service on simulated engines, in one terminal.

Real sockets throughout: engines publish over ZMQ on TCP, the service follows them and answers
over HTTP, and the demo asks it like any client. The one query shown is checked against what the
engines themselves say they hold; if they differ by the deadline, the demo fails.
"""

# ruff: noqa: T201  (a command prints)
from __future__ import annotations

import random
import signal
import threading
import time
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, Final

from kvcache.config import KvEventsConfig
from kvcache.server.app import create_app
from kvcache.server.client import Client, ServiceError, query_table, status_table
from kvcache.server.listen import BindError, base_url, bind
from kvcache.server.logs import configure_logging
from kvcache.server.run import Server
from kvcache.server.settings import ServerSettings
from kvcache.server.stderr import tell
from kvcache.service import Service
from kvcache.testing import SimulatedEngine

if TYPE_CHECKING:
    from collections.abc import Iterator
    from socket import socket

__all__ = ["run_demo"]

# Small caches, so that blocks move to the host tier within the first second.
_BLOCK_SIZE: Final = 16
_DEVICE_BLOCKS: Final = 64
_HOST_BLOCKS: Final = 256
_RANKS: Final = {"engine-a:8000": 2, "engine-b:8000": 2, "engine-c:8000": 1}

_SYSTEM_TOKENS: Final = 12 * _BLOCK_SIZE
_TURN_TOKENS: Final = 5 * _BLOCK_SIZE
_MAX_PROMPT_TOKENS: Final = 48 * _BLOCK_SIZE
_VOCABULARY: Final = 151_000
_CONVERSATIONS: Final = 12

_DEADLINE_SECONDS: Final = 15.0
_POLL_SECONDS: Final = 0.02
_PAUSE_SECONDS: Final = 0.05


def run_demo(host: str, port: int, duration_seconds: float | None) -> int:
    """Runs until Ctrl-C, or for `duration_seconds`. Returns the exit code: 0, or 1 on failure."""
    configure_logging("warning", "text")
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # ends like Ctrl-C
    started = time.monotonic()
    try:
        with ExitStack() as stack:
            listener = stack.enter_context(bind(host, port))
            url = base_url(host, listener.getsockname()[1])
            fleet = [
                stack.enter_context(
                    SimulatedEngine(
                        name,
                        dp_rank=rank,
                        block_size=_BLOCK_SIZE,
                        device_blocks=_DEVICE_BLOCKS,
                        host_blocks=_HOST_BLOCKS,
                    )
                )
                for name, ranks in _RANKS.items()
                for rank in range(ranks)
            ]
            config = KvEventsConfig.from_dict(
                {"streams": [_stream_entry(engine) for engine in fleet]}
            )
            service = stack.enter_context(Service.start(config))
            stack.enter_context(_serving(service, listener))
            demo = _Demo(fleet, stack.enter_context(Client(url)))
            tell(f"kvcache: serving on {url}")
            if not demo.show_query(url):
                return 1
            stop = None if duration_seconds is None else started + duration_seconds
            demo.live_traffic(stop)
    except (BindError, ServiceError) as error:
        tell(f"kvcache: {error}")
        return 1
    except KeyboardInterrupt:
        print()
    print("demo: done")
    return 0


class _Conversation:
    """A prompt that grows by a turn at a time below a system prompt shared with others."""

    def __init__(self, system: list[int], dice: random.Random) -> None:
        self._system = system
        self._dice = dice
        self.token_ids = list(system)

    def next_turn(self) -> list[int]:
        if len(self.token_ids) + _TURN_TOKENS > _MAX_PROMPT_TOKENS:
            self.token_ids = list(self._system)  # somebody opens a new chat
        self.token_ids = [*self.token_ids, *_tokens(self._dice, _TURN_TOKENS)]
        return self.token_ids


class _Demo:
    """Traffic on a fleet, and what is shown of it."""

    def __init__(self, fleet: list[SimulatedEngine], client: Client) -> None:
        self._fleet = fleet
        self._client = client
        self._dice = random.Random(7)  # noqa: S311  (the same show every time)
        systems = [_tokens(self._dice, _SYSTEM_TOKENS) for _ in range(3)]
        self._conversations = [
            _Conversation(self._dice.choice(systems), self._dice) for _ in range(_CONVERSATIONS)
        ]

    def show_query(self, url: str) -> bool:
        """Finds a prompt that one engine holds in both tiers, asks for it, and explains."""
        deadline = time.monotonic() + _DEADLINE_SECONDS
        found = self._prompt_in_both_tiers(deadline)
        if found is None:
            tell("demo: no prompt came to lie in both tiers in time")
            return False
        engine, prompt = found
        matches = self._client.query(prompt)
        # Events are on their way for a moment after an engine has sent them.
        while self._disagreement(matches, prompt) and time.monotonic() < deadline:
            time.sleep(_POLL_SECONDS)
            matches = self._client.query(prompt)
        print(f"POST {url}/v1/internal/kv-cache/query  {{'token_ids': [{len(prompt)} ids]}}\n")
        print(query_table(matches, len(prompt)))
        if wrong := self._disagreement(matches, prompt):
            tell(f"demo: {wrong}")
            return False
        _explain(_match_of(matches, engine), len(prompt))
        print(f"streams: {url}/v1/internal/streams   metrics: {url}/metrics\n")
        return True

    def live_traffic(self, stop: float | None) -> None:
        """Routes prompts by the service's answers; one line a second until `stop`."""
        print("live traffic, each prompt sent to the stream that can reuse most (Ctrl-C ends)")
        while stop is None or time.monotonic() < stop:
            print(self._one_second(stop), flush=True)
        print(f"\n{status_table(self._client.streams())}")

    def _one_second(self, stop: float | None) -> str:
        end = time.monotonic() + 1.0
        if stop is not None:
            end = min(end, stop)
        prompts = prompt_tokens = device = host = 0
        query_seconds: list[float] = []
        while time.monotonic() < end:
            prompt = self._dice.choice(self._conversations).next_turn()
            before = time.perf_counter()
            matches = self._client.query(prompt)
            query_seconds.append(time.perf_counter() - before)
            best = max(match["reusable_prefix_tokens"] for match in matches)
            warm = [m for m in matches if m["reusable_prefix_tokens"] == best]
            chosen = self._dice.choice(warm)
            self._engine_of(chosen).prefill(prompt)
            prompts += 1
            prompt_tokens += len(prompt)
            device += chosen["device_hit_tokens"]
            host += chosen["host_only_hit_tokens"]
            time.sleep(_PAUSE_SECONDS)
        streams = self._client.streams()
        synchronized = sum(stream["synchronized"] for stream in streams)
        blocks = sum(stream["device_blocks"] + stream["host_blocks"] for stream in streams)
        reused = (device + host) / prompt_tokens if prompt_tokens else 0.0
        median_ms = sorted(query_seconds)[len(query_seconds) // 2] * 1e3 if query_seconds else 0.0
        return (
            f"{prompts:3d} prompts  reused {reused:4.0%} (device {device}, host {host} tokens)"
            f"  query over HTTP {median_ms:.2f} ms  blocks {blocks}"
            f"  synchronized {synchronized}/{len(streams)}"
        )

    def _prompt_in_both_tiers(self, deadline: float) -> tuple[SimulatedEngine, list[int]] | None:
        while time.monotonic() < deadline:
            for conversation in self._conversations:
                self._dice.choice(self._fleet).prefill(conversation.next_turn())
            for engine in self._fleet:
                for conversation in self._conversations:
                    if all(engine.expected_match(conversation.token_ids)):
                        # As its user's next message would send it: with a tail nobody has.
                        tail = _tokens(self._dice, _TURN_TOKENS)
                        return engine, [*conversation.token_ids, *tail]
        return None

    def _disagreement(self, matches: list[dict[str, Any]], prompt: list[int]) -> str:
        """The first engine that holds something else than the service says; empty for none."""
        for engine in self._fleet:
            held, told = engine.expected_match(prompt), _hits(matches, engine)
            if held != told:
                return f"{_name(engine)} holds {held}, but the service says: {told}"
        return ""

    def _engine_of(self, match: dict[str, Any]) -> SimulatedEngine:
        name, rank = match["instance_name"], match["dp_rank"]
        return next(e for e in self._fleet if (e.instance_name, e.dp_rank) == (name, rank))


def _explain(match: dict[str, Any], prompt_tokens: int) -> None:
    device, host = match["device_hit_tokens"], match["host_only_hit_tokens"]
    reusable = match["reusable_prefix_tokens"]
    print(
        f"\nOf the prompt's {prompt_tokens} tokens, rank {match['dp_rank']} of"
        f" {match['instance_name']} can skip {reusable}:\n"
        f"  {device:4d} lie in its device memory (DEVICE HIT),\n"
        f"  {host:4d} were evicted from there and lie in host memory only (HOST-ONLY HIT),\n"
        f"  {prompt_tokens - reusable:4d} must be computed: they follow the first block"
        f" of {_BLOCK_SIZE} tokens that it holds nowhere.\n"
        "The engines themselves say the same. Other streams hold their own prefix only: nothing is\n"
        "stitched across ranks or instances.\n"
    )


@contextmanager
def _serving(service: Service, listener: socket) -> Iterator[None]:
    """The real HTTP server on a thread; the main thread keeps the signals."""
    ready = threading.Event()
    server = Server(create_app(service, ServerSettings()), ready.set)
    thread = threading.Thread(
        target=server.run, kwargs={"sockets": [listener]}, name="kvcache-http", daemon=True
    )
    thread.start()
    try:
        if not ready.wait(_DEADLINE_SECONDS):
            raise ServiceError("the HTTP server did not start")
        yield
    finally:
        server.should_exit = True
        thread.join()


def _stream_entry(engine: SimulatedEngine) -> dict[str, Any]:
    return dict(engine.stream_config())


def _hits(matches: list[dict[str, Any]], engine: SimulatedEngine) -> tuple[int, int]:
    match = _match_of(matches, engine)
    return match["device_hit_tokens"], match["host_only_hit_tokens"]


def _match_of(matches: list[dict[str, Any]], engine: SimulatedEngine) -> dict[str, Any]:
    wanted = (engine.instance_name, engine.dp_rank)
    return next(m for m in matches if (m["instance_name"], m["dp_rank"]) == wanted)


def _name(engine: SimulatedEngine) -> str:
    return f"{engine.instance_name} rank {engine.dp_rank}"


def _tokens(dice: random.Random, count: int) -> list[int]:
    return [dice.randrange(_VOCABULARY) for _ in range(count)]
