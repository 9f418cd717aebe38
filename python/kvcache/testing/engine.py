"""`SimulatedEngine`: one rank of an xLLM instance, on real sockets, without a model.

It keeps a `BlockCache`, publishes what changes in it, and answers snapshot requests. One lock
makes a change and its sequence one step, so that a snapshot is always the state as of its
watermark. It must not import the directory: users test the directory and their routers with it.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any, Self

from kvcache._process import Home
from kvcache._stays import Stays
from kvcache.exceptions import ClosedError, WaitTimeoutError
from kvcache.testing.block_cache import BlockCache
from kvcache.testing.faults import Batch, Faults, Replay, Snapshot
from kvcache.testing.publisher import Publisher
from kvcache.testing.timeouts import waitable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from types import TracebackType

    from kvcache.testing.wire import Event, Tier

__all__ = ["SimulatedEngine"]

_LOOPBACK = "tcp://127.0.0.1:0"
_CLOSE_LINGER_MS = 500
# A connection of the process before may hold a port for a moment.
_REBIND_TIMEOUT_S = 5.0


class _HomeLock(threading.Condition):
    """Refuses in a child of the engine's process: who held it when the process forked never lets go there."""

    def __init__(self, home: Home) -> None:
        super().__init__(threading.Lock())
        self._home = home

    def __enter__(self) -> bool:
        self._home.check()
        return super().__enter__()


class SimulatedEngine(Stays):
    """A publisher of KV-cache events that evicts, offloads, restarts and can misbehave.

    Use it as a context manager, or call `start` and `close`. Every method may be called from any
    thread. Sequences: the first batch carries `first_sequence`; the watermark of a snapshot is the
    last sequence published, 0 when there is none (spec: a stream's life).

    It runs in the process that started it: in a forked child its methods raise `KvCacheError`, and
    `close` does nothing.
    """

    _stays = "it has a thread and sockets: make one with the same arguments, and connect to its endpoints"

    def __init__(
        self,
        instance_name: str,
        dp_rank: int = 0,
        block_size: int = 128,
        topic: str = "xllm-kv",
        *,
        endpoint: str = _LOOPBACK,
        replay_endpoint: str = _LOOPBACK,
        device_blocks: int = 1024,
        host_blocks: int = 0,
        first_sequence: int = 0,
        hash_seed: int = 0,
    ) -> None:
        """Describe an engine; port 0 is any free port, kept over restarts.

        `device_blocks` and `host_blocks` are the tiers' capacities (0 Host blocks: no offload).
        `hash_seed`, 0 … 2^64-1, decides the wire hashes, which no other engine needs to share.
        """
        self.instance_name = instance_name
        self.dp_rank = dp_rank
        self.block_size = block_size
        self.topic = topic
        self.faults = Faults()
        """What goes wrong from now on."""
        self._endpoints = (endpoint, replay_endpoint)
        self._new_cache: Callable[[], BlockCache] = lambda: BlockCache(
            block_size=block_size,
            device_blocks=device_blocks,
            host_blocks=host_blocks,
            hash_seed=hash_seed,
        )
        self._home = Home("SimulatedEngine", settled=False)
        # Guards everything below. The publisher's thread takes it to answer a request, so nobody
        # may join that thread while holding it.
        self._lock = _HomeLock(self._home)
        self._cache = self._new_cache()
        self._next_sequence = first_sequence
        self._held: list[tuple[bytes, Replay]] = []
        self._snapshot_requests = 0
        self._publisher: Publisher | None = None
        # Only one thread at a time starts, restarts or closes; taken before `_lock`.
        self._lifecycle = _HomeLock(self._home)

    def start(self) -> Self:
        """Bind the sockets. Raises `zmq.ZMQError` when a port is taken."""
        with self._lifecycle:
            self._start(bind_timeout_s=0.0)
        return self

    def close(self) -> None:
        """Close the sockets, after at most half a second for unsent messages."""
        if self._home.is_elsewhere:
            return
        with self._lifecycle:
            self._stop(_CLOSE_LINGER_MS)

    def restart(self, *, keep_sequence: bool = False, first_sequence: int = 0) -> None:
        """Die and come back on the same ports with an empty cache, as a new process would.

        The sequence starts at `first_sequence`, or goes on when `keep_sequence`: a subscriber that
        was away cannot then tell a restart by the numbers. Unsent messages and held answers are
        lost; armed faults stay.
        """
        with self._lifecycle:
            self._stop(0)
            self.faults.forget_messages()
            with self._lock:
                self._cache = self._new_cache()
                if not keep_sequence:
                    self._next_sequence = first_sequence
            self._start(bind_timeout_s=_REBIND_TIMEOUT_S)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc_value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def endpoint(self) -> str:
        """Where events are published, with the real port once started."""
        return self._endpoints[0]

    @property
    def replay_endpoint(self) -> str:
        """Where snapshots are answered, with the real port once started."""
        return self._endpoints[1]

    @property
    def sequence(self) -> int:
        """The last sequence published; 0 when there is none."""
        with self._lock:
            return max(self._next_sequence - 1, 0)

    @property
    def device_block_count(self) -> int:
        """Blocks with a Device copy."""
        with self._lock:
            return self._cache.device_block_count

    @property
    def host_block_count(self) -> int:
        """Blocks with a Host copy."""
        with self._lock:
            return self._cache.host_block_count

    @property
    def snapshot_requests(self) -> int:
        """Snapshot requests that arrived, answered or not, over all restarts."""
        with self._lock:
            return self._snapshot_requests

    @property
    def held_replays(self) -> int:
        """Answers that `ReplayFault.HOLD` keeps back."""
        with self._lock:
            return len(self._held)

    @property
    def subscribers(self) -> int:
        """Subscriptions that stand now and let the topic through."""
        with self._lock:
            publisher = self._publisher
        return publisher.subscribers(self.topic.encode()) if publisher else 0

    def stream_config(self) -> dict[str, Any]:
        """Describe the engine as an element of `streams` in a configuration."""
        return {
            "instance_name": self.instance_name,
            "dp_rank": self.dp_rank,
            "block_size": self.block_size,
            "endpoint": self.endpoint,
            "replay_endpoint": self.replay_endpoint,
            "topic": self.topic,
        }

    def wait_subscribed(self, timeout: float | None, count: int = 1) -> None:
        """Wait until `subscribers` is at least `count`. Raises `WaitTimeoutError` after seconds."""
        topic, wait_s = self.topic.encode(), waitable(timeout)
        if not self._running().wait_subscribers(topic, count, wait_s):
            msg = f"no {count} subscribers of {self.instance_name} within seconds: {timeout}"
            raise WaitTimeoutError(msg)

    def wait_snapshot_requests(self, count: int, timeout: float | None) -> None:
        """Wait until `snapshot_requests` is at least `count`. Raises `WaitTimeoutError`."""
        wait_s = waitable(timeout)
        with self._lock:
            if not self._lock.wait_for(lambda: self._snapshot_requests >= count, wait_s):
                msg = f"no {count} requests at {self.instance_name} within seconds: {timeout}"
                raise WaitTimeoutError(msg)

    def prefill(self, token_ids: Sequence[int]) -> int:
        """Compute a prompt; returns how many of its full blocks were there already.

        Missing blocks are stored, others evicted (and offloaded) to make room: one batch, or none
        when nothing changes.
        """
        with self._lock:
            done = self._cache.prefill(token_ids)
            self._publish_changes(done.events)
            return done.reused_blocks

    def offload(self, token_ids: Sequence[int]) -> None:
        """Copy the Device blocks of a prompt to the Host tier."""
        with self._lock:
            self._publish_changes(self._cache.offload(self._cache.wire_hashes(token_ids)))

    def evict_device(self, count: int) -> None:
        """Evict up to `count` Device blocks, least recently used leaves first."""
        with self._lock:
            self._publish_changes(self._cache.evict_device(count))

    def evict(self, wire_hashes: Iterable[int], tier: Tier) -> None:
        """Drop the named copies, without offload; children may stay behind as orphans."""
        with self._lock:
            self._publish_changes(self._cache.evict(wire_hashes, tier))

    def clear(self) -> None:
        """Drop everything, and say so with an `AllBlocksCleared`."""
        with self._lock:
            self._publish_changes(self._cache.clear())

    def pin(self, token_ids: Sequence[int]) -> None:
        """Protect the blocks of a prompt from eviction for want of room."""
        with self._lock:
            self._cache.pin(self._cache.wire_hashes(token_ids))

    def unpin(self, token_ids: Sequence[int]) -> None:
        """Take back one `pin`."""
        with self._lock:
            self._cache.unpin(self._cache.wire_hashes(token_ids))

    def wire_hashes(self, token_ids: Sequence[int]) -> list[int]:
        """Name the full blocks of a prompt, as events name them."""
        with self._lock:
            return self._cache.wire_hashes(token_ids)

    def expected_match(self, token_ids: Sequence[int]) -> tuple[int, int]:
        """Count what a right answer is now: (device hit tokens, host-only hit tokens)."""
        with self._lock:
            return self._cache.expected_match(token_ids)

    def snapshot(self) -> Snapshot:
        """Take the state as a request would now get it, for `Faults.stale_snapshot`."""
        with self._lock:
            return self._snapshot()

    def publish_batch(self, events: Iterable[Event]) -> int:
        """Publish events as they are, behind the cache's back; returns the sequence."""
        with self._lock:
            return self._publish(list(events))

    def publish_frames(self, frames: Iterable[bytes]) -> None:
        """Send raw frames: no sequence is used, no fault applied."""
        with self._lock:
            self._running().publish([list(frames)])

    def release_replays(self) -> int:
        """Send the answers that `ReplayFault.HOLD` kept back; returns how many."""
        with self._lock:
            held, self._held = self._held, []
            for identity, replay in held:
                self._running().reply(identity, list(replay.messages))
            return len(held)

    def _start(self, bind_timeout_s: float) -> None:
        with self._lock:
            if self._publisher is not None:
                return
            # A request that arrives at once waits for this lock, and finds the publisher set.
            self._publisher = Publisher(
                *self._endpoints, self._answer, bind_timeout_s=bind_timeout_s
            )
            self._home.settle()
            self._endpoints = (self._publisher.endpoint, self._publisher.replay_endpoint)

    def _stop(self, linger_ms: int) -> None:
        with self._lock:
            publisher, self._publisher = self._publisher, None
            self._held.clear()
        if publisher is not None:
            publisher.stop(linger_ms)
            self._home.leave()

    def _running(self) -> Publisher:
        self._home.check()
        publisher = self._publisher
        if publisher is None:
            msg = f"the simulated engine is not running: {self.instance_name}"
            raise ClosedError(msg)
        return publisher

    def _publish_changes(self, events: list[Event]) -> None:
        if events:
            self._publish(events)

    def _publish(self, events: list[Event]) -> int:
        publisher = self._running()
        sequence = self._next_sequence
        self._next_sequence += 1
        batch = Batch(self.topic, sequence, time.time(), tuple(events), self.dp_rank)
        publisher.publish(self.faults.live_messages(batch))
        return sequence

    def _snapshot(self) -> Snapshot:
        watermark = max(self._next_sequence - 1, 0)
        events = tuple(self._cache.snapshot())
        return Snapshot(watermark, time.time(), events, self.dp_rank, self.block_size)

    def _answer(self, identity: bytes) -> None:
        with self._lock:
            self._snapshot_requests += 1
            self._lock.notify_all()
            if self._publisher is None:
                return
            replay = self.faults.replay(self._snapshot())
            if replay.held:
                self._held.append((identity, replay))
            else:
                self._publisher.reply(identity, list(replay.messages), replay.delay_s)
