"""A range of etcd's keys, followed: list, watch from the next revision on, list again in doubt.

etcd being away changes nothing of what is held: an error is never an empty list.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Protocol

from kvcache.discovery.backoff import Backoff
from kvcache.discovery.errors import (
    CompactedError,
    ContinuityError,
    EtcdError,
    EtcdUnavailableError,
    ResponseTooLargeError,
)
from kvcache.discovery.world import MirrorEvent, World

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kvcache.discovery.client import EtcdClient
    from kvcache.discovery.results import KeyValue, RangeResult
    from kvcache.discovery.session import SessionCounters
    from kvcache.discovery.watch import Watch

__all__ = [
    "EtcdMirror",
    "MirrorConsumer",
    "MirrorCounters",
    "MirrorEvent",
    "MirrorSettings",
    "MirrorStatus",
]

_MIN_PAGE_KEYS: Final = 1


@dataclass(frozen=True, slots=True)
class MirrorStatus:
    """Whether etcd is being followed; `error` says why not, and is empty if it is.

    `revision` is the last one that is known to be included, 0 before the first list: then nothing
    is known at all. `since_unix_s` is when `connected` last changed.
    """

    connected: bool
    error: str
    revision: int
    since_unix_s: float


class MirrorConsumer(Protocol):
    """Who is told; called in the mirror's loop, and what it raises ends the mirror."""

    def on_events(self, events: Sequence[MirrorEvent]) -> None:
        """Differences in order; whole revisions, or all that a list found."""

    def on_status(self, status: MirrorStatus) -> None:
        """Another `connected` or another `error`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorSettings:
    """How patient a mirror is.

    A watch that is quiet for `quiet_s` is probed by a read; what the read shows has to come over
    the watch within `delivery_s`. Failures wait up to `backoff_min_s`, doubled to `backoff_max_s`.
    """

    page_keys: int = 1000
    quiet_s: float = 2.0
    delivery_s: float = 1.0
    backoff_min_s: float = 0.1
    backoff_max_s: float = 5.0


@dataclass(slots=True)
class MirrorCounters:
    """What happened so far; requests and logins are counted by the client."""

    lists_total: int = 0
    events_total: int = 0
    watch_failures_total: int = 0
    compactions_total: int = 0
    probes_total: int = 0


class EtcdMirror:
    """Follows [key, range_end) and tells a consumer what changes; `run` does it."""

    def __init__(
        self,
        client: EtcdClient,
        key: bytes,
        range_end: bytes,
        consumer: MirrorConsumer,
        *,
        settings: MirrorSettings | None = None,
    ) -> None:
        self._client = client
        self._key = key
        self._range_end = range_end
        self._consumer = consumer
        self._settings = settings or MirrorSettings()
        self._backoff = Backoff(self._settings.backoff_min_s, self._settings.backoff_max_s)
        self._page_keys = self._settings.page_keys
        self._world = World()
        self._cluster_id = 0
        # All that etcd did in the range up to here is held.
        self._revision = 0
        self._in_doubt = True
        self._batches = 0
        self._last_batch_s = 0.0
        self._status = MirrorStatus(
            connected=False, error="not started", revision=0, since_unix_s=time.time()
        )
        self.counters = MirrorCounters()

    @property
    def status(self) -> MirrorStatus:
        """As of now."""
        return replace(self._status, revision=self._revision)

    @property
    def client_counters(self) -> SessionCounters:
        """The client's: requests, failures and logins."""
        return self._client.counters

    @property
    def held(self) -> Mapping[bytes, KeyValue]:
        """The last known world, by key."""
        return self._world.held

    async def run(self) -> None:
        """Follows until cancelled. Raises only what the consumer raises, and `ClosedError`."""
        while True:
            try:
                await self._follow()
            except EtcdError as error:
                # What is unavailable goes on where it stopped; all else may have lost something.
                if not isinstance(error, EtcdUnavailableError):
                    self._in_doubt = True
                self.counters.compactions_total += isinstance(error, CompactedError)
                if self._lived_s() > self._settings.backoff_max_s:
                    self._backoff.reset()
                self._tell(connected=False, error=str(error))
            await asyncio.sleep(self._backoff.next())

    async def _follow(self) -> None:
        if self._in_doubt:
            await self._list()
        try:
            async with self._client.watch(self._key, self._range_end, self._revision + 1) as watch:
                await self._require_continuity(watch)
                self._tell(connected=True, error="")
                async with asyncio.TaskGroup() as group:
                    group.create_task(self._deliver(watch))
                    group.create_task(self._probe_when_quiet(watch))
        except EtcdError:
            self.counters.watch_failures_total += 1
            raise
        except ExceptionGroup as group_error:
            # Either task ends the other. What is no failure of etcd must not hide behind one.
            errors = group_error.exceptions
            error = next((one for one in errors if not isinstance(one, EtcdError)), errors[0])
            self.counters.watch_failures_total += isinstance(error, EtcdError)
            raise error from None

    async def _list(self) -> None:
        """All pages at one revision; what differs goes to the consumer when all are there."""
        kvs: list[KeyValue] = []
        start, revision, cluster_id = self._key, 0, 0
        while True:
            try:
                page = await self._client.range(
                    start, self._range_end, limit=self._page_keys, revision=revision
                )
            except (EtcdUnavailableError, ResponseTooLargeError) as error:
                # Large values take their time: fewer at once have to do.
                too_large = isinstance(error, ResponseTooLargeError)
                if too_large and self._page_keys == _MIN_PAGE_KEYS:
                    raise
                self._page_keys = max(self._page_keys // 2, _MIN_PAGE_KEYS)
                if too_large:
                    continue
                raise
            kvs.extend(page.kvs)
            revision = revision or page.revision
            if cluster_id not in {0, page.cluster_id}:
                raise ContinuityError("the etcd endpoints belong to different clusters")
            cluster_id = page.cluster_id
            if not page.more:
                break
            start = page.kvs[-1].key + b"\0"
        self._page_keys = self._settings.page_keys
        self.counters.lists_total += 1
        self._cluster_id, self._revision, self._in_doubt = cluster_id, revision, False
        self._emit(self._world.replace(kvs, revision))

    async def _require_continuity(self, watch: Watch) -> None:
        """What etcd had at our revision is what is held, or the watch must not go on from there.

        An etcd that was restored or emptied may have reached our revision by other ways. And a
        watch that starts at the very revision of a compaction is not told of the deletions in it;
        this read, which comes after the watch has begun, fails then.
        """
        newest = await watch.newest(self._revision)
        self._require_same_cluster(newest)
        if not self._world.agrees(newest):
            raise ContinuityError("etcd has another past than the one that is held")

    async def _deliver(self, watch: Watch) -> None:
        loop = asyncio.get_running_loop()
        self._last_batch_s = loop.time()
        async for batch in watch:
            self._last_batch_s = loop.time()
            self._batches += 1
            events, follows = self._world.apply(batch.events)
            self._revision = max(self._revision, batch.revision)
            self._emit(events)
            if not follows:
                raise ContinuityError("the watch left out changes")

    async def _probe_when_quiet(self, watch: Watch) -> None:
        """Raises `EtcdError` when the watch is silent, but not since there is nothing to say.

        gRPC itself notices a server that hangs late, and a watch that lost its events never.
        """
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(self._settings.quiet_s)
            if loop.time() - self._last_batch_s < self._settings.quiet_s:
                continue
            batches = self._batches
            self.counters.probes_total += 1
            newest = await watch.newest()
            if batches != self._batches:
                continue
            self._require_same_cluster(newest)
            if self._world.agrees(newest):
                # Nothing else happened up to here, so a watch may resume from here: later than
                # the last event, it is less likely to be compacted.
                self._revision = max(self._revision, newest.revision)
                continue
            await asyncio.sleep(self._settings.delivery_s)
            if batches == self._batches:
                raise ContinuityError("the watch does not deliver what a read shows")

    def _require_same_cluster(self, newest: RangeResult) -> None:
        if newest.cluster_id != self._cluster_id or newest.revision < self._revision:
            raise ContinuityError("etcd is another one, or was restored")

    def _lived_s(self) -> float:
        return time.time() - self._status.since_unix_s if self._status.connected else 0.0

    def _emit(self, events: Sequence[MirrorEvent]) -> None:
        if events:
            self.counters.events_total += len(events)
            self._consumer.on_events(events)

    def _tell(self, *, connected: bool, error: str) -> None:
        old = self._status
        since_s = old.since_unix_s if connected == old.connected else time.time()
        self._status = MirrorStatus(connected, error, self._revision, since_s)
        if (connected, error) != (old.connected, old.error):
            self._consumer.on_status(self._status)
