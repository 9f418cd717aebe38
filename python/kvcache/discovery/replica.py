"""`Replica`: this service's own keys in etcd, and its part in the election of a master.

`Election` decides; here are the requests, the clock and the tasks. An observer, which writes nothing, simply has
no replica.
"""

from __future__ import annotations

import asyncio
import logging
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from kvcache.discovery.backoff import Backoff
from kvcache.discovery.client import Get
from kvcache.discovery.errors import EtcdAmbiguousError, EtcdError, LeaseNotFoundError
from kvcache.discovery.keys import check_instance_name
from kvcache.discovery.uploader import REMOVAL_GRACE_S, LoadUploader
from kvcache.registry.election import LEASE_TTL_S, Election, Keys, Step
from kvcache.registry.shown import shown_name

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kvcache.discovery.client import EtcdClient
    from kvcache.discovery.keys import Namespace
    from kvcache.discovery.mirror import EtcdMirror
    from kvcache.discovery.results import KeyValue
    from kvcache.discovery.uploader import UploadCounters
    from kvcache.discovery.world import MirrorEvent
    from kvcache.registry.registry import Registry

__all__ = ["Replica", "ReplicaCounters", "ReplicaSettings", "ReplicaStatus"]

_log = logging.getLogger("kvcache.discovery")

_RENEW_TIMEOUT_S: Final = 0.5
"""So that a renewal that gets no answer leaves time for another before the lease is believed no more."""

_REQUEST_TIMEOUT_S: Final = 1.0
_LEAVE_TIMEOUT_S: Final = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaSettings:
    """How often a master uploads, and how patient a replica is, in seconds.

    Failures wait up to `backoff_min_s`, doubled to `backoff_max_s`.
    """

    upload_interval_s: float = 3.0
    removal_grace_s: float = REMOVAL_GRACE_S
    backoff_min_s: float = 0.1
    backoff_max_s: float = 2.0


@dataclass(frozen=True, slots=True)
class ReplicaStatus:
    """How this replica stands, for people."""

    role: Literal["master", "follower"]
    lease: Literal["none", "held", "in doubt"]
    """In doubt: it has not been renewed for so long that it may have lapsed."""
    is_master: bool
    master: str | None
    """The address of the master, this replica or another; None when there is none, or etcd was never read."""
    since_unix_s: float
    """Since when it has, or had last, this role."""
    error: str
    """Why the last request failed; empty when it did not."""


@dataclass(slots=True)
class ReplicaCounters:
    """What happened so far."""

    elections_won_total: int = 0
    elections_lost_total: int = 0
    """Campaigns in which another replica was first."""
    depositions_total: int = 0
    """Terms as master that ended otherwise than by stopping."""
    grants_total: int = 0
    renewals_total: int = 0
    registrations_total: int = 0
    leases_lost_total: int = 0
    failures_total: int = 0
    """Requests that failed, uploads included."""


class Replica:
    """One replica, from `run` to its cancellation.

    `name` is the HTTP address, which names the replica's key; `advertised` is what engines dial, which is the
    value of both keys. Both are `host:port`; raises `RefusedError` where one is not.

    `run` and `on_events` belong to the loop of the mirror. `is_master`, `master`, `status` and the counters may be
    read from any thread.
    """

    def __init__(
        self,
        client: EtcdClient,
        mirror: EtcdMirror,
        namespace: Namespace,
        registry: Registry,
        *,
        name: str,
        advertised: str,
        settings: ReplicaSettings | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        check_instance_name(name)
        check_instance_name(advertised)
        settings = settings or ReplicaSettings()
        self._client = client
        self._mirror = mirror
        self._service_key = namespace.service_key(name)
        self._master_key = namespace.master_key
        self._value = advertised.encode()
        self._clock = clock
        self._upload_interval_s = settings.upload_interval_s
        self._uploader = LoadUploader(
            client, mirror, namespace, registry, removal_grace_s=settings.removal_grace_s
        )
        self._renew_backoff = Backoff(settings.backoff_min_s, settings.backoff_max_s)
        self._backoff = Backoff(settings.backoff_min_s, settings.backoff_max_s)
        # Replaced as a whole: readers in other threads see one or the other.
        self._election = Election()
        self._since_unix_s = time.time()
        self._errors = {"election": "", "upload": ""}
        self._changed = asyncio.Event()
        self._elected = asyncio.Event()
        self.counters = ReplicaCounters()

    # --- for everybody -----------------------------------------------------------------------------

    def is_master(self, now_s: float | None = None) -> bool:
        """Whether this replica is master, and no other can be yet; without a time: now, of the clock."""
        return self._election.is_master(self._clock() if now_s is None else now_s)

    @property
    def master(self) -> str | None:
        """The master's address as etcd was last seen; None when there was none."""
        kv = self._mirror.held.get(self._master_key)
        return None if kv is None else shown_name(kv.value)

    @property
    def status(self) -> ReplicaStatus:
        """As of now."""
        election, now_s = self._election, self._clock()
        is_master = election.is_master(now_s)
        held: Literal["held", "in doubt"] = "held" if election.holds_lease(now_s) else "in doubt"
        return ReplicaStatus(
            role="master" if is_master else "follower",
            lease="none" if election.lease == 0 else held,
            is_master=is_master,
            master=self.master,
            since_unix_s=self._since_unix_s,
            error=self._errors["election"] or self._errors["upload"],
        )

    @property
    def upload_counters(self) -> UploadCounters:
        """What it wrote as master."""
        return self._uploader.counters

    # --- for the owner -----------------------------------------------------------------------------

    def on_events(self, events: Sequence[MirrorEvent]) -> None:
        """What the mirror tells its consumer; call it with every batch."""
        if any(event.key in {self._service_key, self._master_key} for event in events):
            held = self._mirror.held
            keys = self._keys(held.get(self._service_key), held.get(self._master_key))
            revision = self._mirror.status.revision
            self._become(self._election.observed(keys, revision, self._clock()))

    async def run(self) -> None:
        """Takes part until cancelled; then frees its keys, within a second.

        Raises nothing about etcd. After its end it may run again, in the same loop.
        """
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._stand())
                group.create_task(self._serve())
        finally:
            await self._leave()

    # --- the election ------------------------------------------------------------------------------

    async def _stand(self) -> None:
        while True:
            now_s = self._clock()
            step = self._election.step(now_s)
            if step is Step.WAIT:
                await self._wait(self._election.wake_s(now_s) - now_s)
                continue
            self._become(self._election.begun(step, now_s))
            backoff = self._renew_backoff if step is Step.RENEW else self._backoff
            try:
                await self._take(step, now_s)
            except LeaseNotFoundError as error:
                self._note("election", str(error))
                self._lose_lease(backoff.next())
            except EtcdError as error:
                self._note("election", str(error))
                self._become(
                    self._election.failed(
                        step,
                        backoff.next(),
                        self._clock(),
                        ambiguous=isinstance(error, EtcdAmbiguousError),
                    )
                )
            else:
                # A lease that is granted and not known after is no success.
                if step is not Step.GRANT:
                    backoff.reset()
                self._errors["election"] = ""

    async def _wait(self, timeout_s: float) -> None:
        """Until it is time, or something is heard of the keys."""
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._changed.wait()
        self._changed.clear()

    async def _take(self, step: Step, sent_s: float) -> None:
        """One request. Raises `EtcdError`."""
        match step:
            case Step.GRANT:
                lease = await self._client.lease_grant(LEASE_TTL_S, timeout_s=_REQUEST_TIMEOUT_S)
                self.counters.grants_total += 1
                self._become(self._election.granted(lease, sent_s))
            case Step.RENEW:
                await self._renew(sent_s)
            case Step.REGISTER:
                revision = await self._client.put(
                    self._service_key,
                    self._value,
                    self._election.lease,
                    timeout_s=_REQUEST_TIMEOUT_S,
                )
                self.counters.registrations_total += 1
                self._become(self._election.registered_at(revision, self._clock()))
            case Step.CAMPAIGN:
                await self._campaign()
            case Step.LOOK:
                await self._look()

    async def _renew(self, sent_s: float) -> None:
        ttl_s = await self._client.lease_keepalive(self._election.lease, timeout_s=_RENEW_TIMEOUT_S)
        if ttl_s <= 0:
            _log.warning("the lease of this replica lapsed in etcd: it registers anew")
            self._lose_lease(0)
            return
        self.counters.renewals_total += 1
        self._become(self._election.renewed(ttl_s, sent_s, self._clock()))

    async def _campaign(self) -> None:
        result = await self._client.compare_and_put(
            self._master_key, self._value, self._election.lease, timeout_s=_REQUEST_TIMEOUT_S
        )
        if result.succeeded:
            master: int | None = self._election.lease
        else:
            holder = result.reads[0]
            master = holder[0].lease if holder else None
            self.counters.elections_lost_total += master != self._election.lease
        self._become(self._election.campaigned(master, result.revision, self._clock()))

    async def _look(self) -> None:
        gets = (Get(self._service_key), Get(self._master_key))
        result = await self._client.txn((), gets, timeout_s=_REQUEST_TIMEOUT_S)
        service, master = (kvs[0] if kvs else None for kvs in result.reads)
        keys = self._keys(service, master)
        self._become(self._election.looked(keys, result.revision, self._clock()))

    def _keys(self, service: KeyValue | None, master: KeyValue | None) -> Keys:
        """Of another value than ours, the own key is another's, whatever its lease."""
        registered = None if service is None or service.value != self._value else service.lease
        return Keys(registered, None if master is None else master.lease)

    def _lose_lease(self, delay_s: float) -> None:
        self.counters.leases_lost_total += 1
        self._become(self._election.lost_lease(self._clock(), delay_s))

    def _become(self, election: Election) -> None:
        before, self._election = self._election, election
        self._changed.set()
        if election.elected == before.elected:
            return
        self._since_unix_s = time.time()
        if election.elected:
            self.counters.elections_won_total += 1
            self._uploader.begin_term()
            self._elected.set()
            _log.info("this replica is master: %s", self._value.decode())
        else:
            self.counters.depositions_total += 1
            self._elected.clear()
            _log.warning(
                "this replica is master no more: %s", self._errors["election"] or "see etcd"
            )

    def _note(self, what: Literal["election", "upload"], error: str) -> None:
        self.counters.failures_total += 1
        if not self._errors[what]:
            _log.warning("the %s of this replica waits for etcd: %s", what, error)
        self._errors[what] = error

    # --- as master ---------------------------------------------------------------------------------

    async def _serve(self) -> None:
        while True:
            await self._elected.wait()
            await self._upload()
            await asyncio.sleep(self._upload_interval_s)

    async def _upload(self) -> None:
        election = self._election
        now_s = self._clock()
        if not election.is_master(now_s):
            return
        try:
            done = await self._uploader.upload(election.lease, now_s, self.is_master)
        except EtcdError as error:
            self._note("upload", str(error))
            return
        self._errors["upload"] = ""
        if not done:
            self._become(self._election.deposed(election.lease, self._clock()))

    async def _leave(self) -> None:
        """Stops believing first, then gives the lease back: its keys go with it."""
        election, self._election = self._election, Election()
        self._elected.clear()
        if election.lease == 0:
            return
        try:
            async with asyncio.timeout(_LEAVE_TIMEOUT_S):
                await self._revoke(election.lease)
        except (EtcdError, TimeoutError) as error:
            _log.warning("the keys of this replica lapse with their lease: %s", error)

    async def _revoke(self, lease: int) -> None:
        """Twice if need be: the first member may be the one that hangs."""
        with suppress(EtcdError):
            await self._client.lease_revoke(lease, timeout_s=_LEAVE_TIMEOUT_S / 2)
            return
        await self._client.lease_revoke(lease, timeout_s=_LEAVE_TIMEOUT_S / 2)
