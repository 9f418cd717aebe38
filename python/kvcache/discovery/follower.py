"""`StreamFollower`: makes a directory follow what the registry has (spec: instances and discovery).

Each refresh compares the wanted set of streams with the running one and hands over the whole; the directory
touches only what differs. It starts nothing by itself: its owner calls `refresh` in every interval.
"""

from __future__ import annotations

import logging
from collections import Counter
from typing import TYPE_CHECKING, Final, Protocol

from kvcache._core import StreamSpec
from kvcache._frozen import FrozenMapping
from kvcache.discovery.plan import Plan, plan, shape_of
from kvcache.registry.shown import shown_name

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kvcache.config import DiscoveryConfig
    from kvcache.discovery.plan import PlannedStream, Shape
    from kvcache.registry.registry import Registry
    from kvcache.registry.snapshot import RegistrySnapshot

__all__ = ["StreamFollower", "StreamSet"]

_log = logging.getLogger("kvcache.discovery")

_MAX_NAMED: Final = 128
"""Lines of one refresh. A fleet far over `max_streams` is named in full by status and metrics alone."""

_NOTHING = Plan((), FrozenMapping({}), FrozenMapping({}))


class StreamSet(Protocol):
    """What a directory is to a follower."""

    def set_streams(self, streams: Sequence[StreamSpec]) -> tuple[int, int, int]:
        """Follow exactly these; how many were added, retired and kept."""
        ...


class StreamFollower:
    """Keeps the streams of one directory those of one registry. `refresh` is for one thread."""

    def __init__(
        self, registry: Registry, directory: StreamSet, config: DiscoveryConfig, max_streams: int
    ) -> None:
        self._registry = registry
        self._directory = directory
        self._config = config
        self._max_streams = max_streams
        self._version = -1
        self._followed: tuple[PlannedStream, ...] = ()
        self._plan = _NOTHING
        self._shape: Shape = []

    @property
    def plan(self) -> Plan:
        """What was wanted at the last refresh, and why the rest was not."""
        return self._plan

    def refresh(self) -> None:
        """Follow what is wanted now. Raises `ClosedError` when the directory is closed."""
        snapshot = self._registry.snapshot()
        if snapshot.version == self._version:
            return
        shape = shape_of(snapshot)
        wanted = self._planned(snapshot, shape)
        specs, refused = self._specs(wanted.streams)
        wanted = wanted.without(refused)
        self._tell(wanted.exclusions)
        # Before the streams: whoever sees these sees why others are not among them.
        self._plan = wanted
        if wanted.streams != self._followed:
            self._follow(wanted.streams, specs)
        self._followed, self._shape, self._version = wanted.streams, shape, snapshot.version

    def _planned(self, snapshot: RegistrySnapshot, shape: Shape) -> Plan:
        # In a large fleet most changes are loads and new processes at old names.
        if shape == self._shape:
            return self._plan.identified(snapshot)
        return plan(snapshot, self._config, self._max_streams)

    def _follow(self, streams: tuple[PlannedStream, ...], specs: list[StreamSpec]) -> None:
        # With another number of ranks an instance serves otherwise than before: all of its streams retire, also
        # those that look the same.
        before, after = _ranks(self._followed), _ranks(streams)
        resized = {name for name in before.keys() & after.keys() if before[name] != after[name]}
        if resized:
            pairs = zip(streams, specs, strict=True)
            self._directory.set_streams(
                [spec for stream, spec in pairs if stream.instance_name not in resized]
            )
        added, retired, kept = self._directory.set_streams(specs)
        _log.info("streams: %d added, %d retired, %d kept", added, retired, kept)

    def _specs(self, streams: tuple[PlannedStream, ...]) -> tuple[list[StreamSpec], dict[str, str]]:
        """The streams for the core, and the instances of which it refuses one, with its reason."""
        specs: dict[PlannedStream, StreamSpec] = {}
        refused: dict[str, str] = {}
        for stream in streams:
            try:
                specs[stream] = self._spec(stream)
            except (ValueError, OverflowError) as error:
                # The core reads addresses by the same rules; where it does not, one instance is to suffer.
                refused.setdefault(stream.instance_name, str(error))
        return [
            spec for stream, spec in specs.items() if stream.instance_name not in refused
        ], refused

    def _spec(self, stream: PlannedStream) -> StreamSpec:
        return StreamSpec(
            instance_name=stream.instance_name,
            dp_rank=stream.dp_rank,
            block_size=self._config.block_size,
            endpoint=stream.endpoint,
            replay_endpoint=stream.replay_endpoint,
            topic=self._config.topic,
            identity=stream.identity,
        )

    def _tell(self, exclusions: Mapping[str, str]) -> None:
        """Log what is excluded from now on, and what no longer is."""
        before = self._plan.exclusions
        excluded = [name for name, reason in exclusions.items() if before.get(name) != reason]
        for name in excluded[:_MAX_NAMED]:
            _log.warning("not following instance %s: %s", shown_name(name), exclusions[name])
        if len(excluded) > _MAX_NAMED:
            _log.warning("nor as many others: %d", len(excluded) - _MAX_NAMED)
        healed = sorted(before.keys() - exclusions.keys())
        for name in healed[:_MAX_NAMED]:
            _log.info("instance is not excluded any more: %s", shown_name(name))
        if len(healed) > _MAX_NAMED:
            _log.info("nor are as many others: %d", len(healed) - _MAX_NAMED)


def _ranks(streams: tuple[PlannedStream, ...]) -> Counter[str]:
    return Counter(stream.instance_name for stream in streams)
