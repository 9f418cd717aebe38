"""Differences between worlds, without etcd: any walk of lists and changes tells the truth."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kvcache.discovery.backoff import Backoff
from kvcache.discovery.messages import message
from kvcache.discovery.results import KeyValue, RangeResult, WatchEvent
from kvcache.discovery.world import World

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kvcache.discovery.world import MirrorEvent

NAMES = [b"a", b"b", b"c", b"d"]
STEPS = st.lists(st.tuples(st.sampled_from(NAMES), st.booleans()), max_size=30)


class Model:
    """An etcd with a few keys: each step is a revision."""

    def __init__(self) -> None:
        self.keys: dict[bytes, KeyValue] = {}
        self.revision = 1

    def step(self, name: bytes, delete: bool) -> list[WatchEvent]:
        old = self.keys.get(name)
        if delete and old is None:
            return []
        self.revision += 1
        if delete:
            del self.keys[name]
            return [WatchEvent(True, KeyValue(name, b"", 0, self.revision, 0), old)]
        created = old.create_revision if old else self.revision
        new = KeyValue(name, str(self.revision).encode(), created, self.revision, 0)
        self.keys[name] = new
        return [WatchEvent(False, new, old)]

    def newest(self) -> RangeResult:
        kvs = sorted(self.keys.values(), key=lambda kv: -kv.mod_revision)
        return RangeResult(tuple(kvs[:1]), self.revision, len(kvs) > 1, len(kvs), 1)


def applied(world: dict[bytes, bytes], events: Iterable[MirrorEvent]) -> None:
    for event in events:
        assert event.prev_value == world.get(event.key)
        if event.kind == "put":
            world[event.key] = event.value
        else:
            del world[event.key]


@given(before=STEPS, missed=STEPS, after=STEPS, listed=st.booleans())
def test_told_worlds_equal_etcd(
    before: list[tuple[bytes, bool]],
    missed: list[tuple[bytes, bool]],
    after: list[tuple[bytes, bool]],
    listed: bool,
) -> None:
    model, world = Model(), World()
    told: dict[bytes, bytes] = {}
    for name, delete in before:
        events, follows = world.apply(model.step(name, delete))
        assert follows
        applied(told, events)
    assert world.agrees(model.newest())
    revision = model.revision
    for name, delete in missed:
        model.step(name, delete)
    if listed:
        events = world.replace(model.keys.values(), model.revision)
        applied(told, events)
        revisions = [event.mod_revision for event in events if event.kind == "put"]
        assert revisions == sorted(revisions)
        assert all(one > revision for one in revisions)
    elif world.agrees(model.newest()):
        # A read that shows no difference: what was missed has undone itself.
        assert dict(world.held) == model.keys
    for name, delete in after:
        events, follows = world.apply(model.step(name, delete))
        assert follows or not listed
        applied(told, events)
    if listed:
        assert told == {name: kv.value for name, kv in model.keys.items()}
        assert dict(world.held) == model.keys
        assert world.agrees(model.newest())
        assert world.replace(model.keys.values(), model.revision) == []


@given(missed=STEPS, name=st.sampled_from(NAMES), delete=st.booleans())
def test_a_change_of_a_key_whose_last_change_was_missed_shows_it(
    missed: list[tuple[bytes, bool]], name: bytes, delete: bool
) -> None:
    model, world = Model(), World()
    for one in NAMES:
        world.apply(model.step(one, delete=False))
    held = world.held[name]
    for other, gone in missed:
        model.step(other, gone)
    events = model.step(name, delete)
    was_missed = bool(events) and events[0].previous != held
    assert world.apply(events)[1] is not was_missed


def test_a_restored_etcd_at_the_same_revisions_is_told() -> None:
    world = World()
    world.replace([KeyValue(b"a", b"1", 2, 2, 0)], 2)
    (event,) = world.replace([KeyValue(b"a", b"other", 2, 2, 0)], 2)
    assert (event.kind, event.value, event.prev_value) == ("put", b"other", b"1")


def test_what_is_gone_comes_first() -> None:
    world = World()
    world.replace([KeyValue(b"a", b"1", 2, 2, 0)], 2)
    events = world.replace([KeyValue(b"c", b"1", 4, 4, 0), KeyValue(b"b", b"1", 3, 3, 0)], 9)
    assert [(event.kind, event.key, event.mod_revision) for event in events] == [
        ("delete", b"a", 9),
        ("put", b"b", 3),
        ("put", b"c", 4),
    ]


def test_backoff_doubles_up_to_its_bound_with_full_jitter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(random, "uniform", lambda low, high: (low, high))
    backoff = Backoff(0.1, 1.0)
    assert [backoff.next() for _ in range(5)] == [(0, bound) for bound in (0.1, 0.2, 0.4, 0.8, 1.0)]
    backoff.reset()
    assert backoff.next() == (0, 0.1)


def test_messages_are_in_a_pool_of_their_own() -> None:
    from google.protobuf import descriptor_pool  # noqa: PLC0415

    one = message("KeyValue", key=b"a", value=b"1", lease=5)
    assert one.SerializeToString() == b"\x0a\x01a\x2a\x011\x30\x05"
    assert one.DESCRIPTOR.full_name == "kvcache.discovery.etcd.KeyValue"
    for name in ("etcdserverpb.RangeRequest", one.DESCRIPTOR.full_name):
        with pytest.raises(KeyError):
            descriptor_pool.Default().FindMessageTypeByName(name)
