"""Streams that come and go while the directory is asked (spec: instances and discovery)."""

from __future__ import annotations

import threading

import kvcache
import pytest
from following import (
    BLOCK,
    engine,
    hits,
    hold,
    let_go,
    status,
    tokens,
    wait_agrees,
    wait_until,
)
from kvcache.testing import SimulatedEngine

PROMPT = tokens(1, 4)


def spec(
    one: SimulatedEngine, identity: str | None = "i1", **changes: object
) -> kvcache.StreamSpec:
    return kvcache.StreamSpec(**one.stream_config() | {"identity": identity} | changes)


def directory() -> kvcache.Directory:
    config = {"discovery": {}, "resync_interval_ms": 60_000, "max_streams": 3}
    return kvcache.Directory(kvcache.KvEventsConfig.from_dict(config))


def test_without_streams_everything_answers() -> None:
    with directory() as followed:
        followed.wait_synchronized(timeout=0)
        assert len(followed.query(PROMPT)) == 0
        assert len(followed.query(kvcache.block_keys(PROMPT, BLOCK))) == 0
        assert followed.streams() == []
        assert followed.set_streams([]) == (0, 0, 0)


def test_a_stream_joins_and_leaves(one: SimulatedEngine) -> None:
    one.prefill(PROMPT)
    with directory() as followed:
        assert followed.set_streams([spec(one)]) == (1, 0, 0)
        followed.wait_synchronized(timeout=30)
        wait_agrees(followed, one, PROMPT)
        (match,) = followed.query(PROMPT)
        assert match.identity == "i1"
        assert followed.query(PROMPT).identities == ("i1",)
        assert status(followed)["identity"] == "i1"
        assert followed.set_streams([]) == (0, 1, 0)
        assert len(followed.query(PROMPT)) == 0
        wait_until(lambda: one.subscribers == 0, "the connection is closed")


def test_an_equal_spec_is_not_touched(one: SimulatedEngine) -> None:
    one.prefill(PROMPT)
    with directory() as followed, engine("engine-b") as other:
        followed.set_streams([spec(one)])
        followed.wait_synchronized(timeout=30)
        requests = one.snapshot_requests
        assert followed.set_streams([spec(other), spec(one)]) == (1, 0, 1)
        assert hits(followed, PROMPT)["engine-a", 0] == (4 * BLOCK, 0), "it serves all the while"
        followed.wait_synchronized(timeout=30)
        assert one.snapshot_requests == requests, "and asks the engine for nothing"
        assert status(followed)["connects_total"] == 1


@pytest.mark.parametrize("change", [{"identity": "i2"}, {"identity": None}, {"topic": "other"}])
def test_another_spec_gives_no_hits_before_its_own_snapshot(
    one: SimulatedEngine, change: dict[str, object]
) -> None:
    one.prefill(PROMPT)
    with directory() as followed:
        followed.set_streams([spec(one)])
        followed.wait_synchronized(timeout=30)
        hold(one)
        assert followed.set_streams([spec(one, **change)]) == (1, 1, 0)
        (match,) = followed.query(PROMPT)
        assert (match.synchronized, match.device_hit_tokens, match.sequence) == (False, 0, None)
        assert match.identity == change.get("identity", "i1")
        let_go(one)
        if "topic" not in change:
            wait_agrees(followed, one, PROMPT)


@pytest.mark.parametrize("count", [2, 4])
def test_what_cannot_be_followed_changes_nothing(one: SimulatedEngine, count: int) -> None:
    with directory() as followed:
        followed.set_streams([spec(one)])
        followed.wait_synchronized(timeout=30)
        ranks = [0, 0] if count == 2 else range(count)
        with pytest.raises(ValueError, match="engine-a#0" if count == 2 else "max_streams"):
            followed.set_streams([spec(one, dp_rank=rank) for rank in ranks])
        assert len(followed.streams()) == 1
        assert followed.streams()[0]["connects_total"] == 1


def test_a_closed_directory_follows_nothing(one: SimulatedEngine) -> None:
    followed = directory()
    followed.close()
    with pytest.raises(kvcache.ClosedError):
        followed.set_streams([spec(one)])


def test_flapping_beside_queries_costs_no_answer_and_no_place(one: SimulatedEngine) -> None:
    """More incarnations than the index has places, each retired while its snapshot is applied."""
    one.prefill(PROMPT)
    wrong: list[object] = []
    ended = threading.Event()

    def ask(followed: kvcache.Directory) -> None:
        while not ended.is_set():
            matches = followed.query(PROMPT)
            if len(matches) > 1 or any(
                match.device_hit_tokens not in (0, 4 * BLOCK) for match in matches
            ):
                wrong.append(list(matches))

    with directory() as followed:
        asking = threading.Thread(target=ask, args=(followed,))
        asking.start()
        try:
            for number in range(400):
                followed.set_streams([spec(one, identity=f"i{number}")])
        finally:
            ended.set()
            asking.join()
        followed.wait_synchronized(timeout=30)
        wait_agrees(followed, one, PROMPT)
        assert followed.query(PROMPT).identities == ("i399",)
    assert wrong == []
