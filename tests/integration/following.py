"""A directory and real engines; waiting is always for a condition, with a deadline."""

from __future__ import annotations

import random
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

import kvcache
from kvcache.testing import ReplayFault, SimulatedEngine

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kvcache.types import StreamStatus

BLOCK = 4
DEADLINE_S = 30.0


def wait_until(
    condition: Callable[[], object], what: str = "", timeout: float = DEADLINE_S
) -> None:
    deadline = time.monotonic() + timeout
    while not condition():
        if time.monotonic() > deadline:
            detail = what or condition.__name__
            raise AssertionError(f"not within {timeout} s: {detail}")
        time.sleep(0.005)


def tokens(seed: int, blocks: int) -> list[int]:
    """`blocks` full blocks of token ids that no other seed shares."""
    rng = random.Random(seed)
    return [rng.randrange(2**32) for _ in range(blocks * BLOCK)]


def engine(name: str = "engine-a", rank: int = 0, **options: object) -> SimulatedEngine:
    settings: dict[str, object] = {
        "block_size": BLOCK,
        "device_blocks": 64,
        "host_blocks": 0,
    } | options
    return SimulatedEngine(name, dp_rank=rank, **settings)  # type: ignore[arg-type]


@contextmanager
def follow(
    *engines: SimulatedEngine, synchronized: bool = True, **options: object
) -> Iterator[kvcache.Directory]:
    settings: dict[str, object] = {
        "resync_interval_ms": 60_000,
        "replay_timeout_ms": 1000,
    } | options
    config = {"streams": [one.stream_config() for one in engines], **settings}
    with kvcache.Directory(kvcache.KvEventsConfig.from_dict(config)) as directory:
        if synchronized:
            directory.wait_synchronized(timeout=DEADLINE_S)
        yield directory


def hits(
    directory: kvcache.Directory, token_ids: list[int]
) -> dict[tuple[str, int], tuple[int, int]]:
    """Stream to (device, host-only) tokens, synchronized streams only."""
    return {
        (match.instance_name, match.dp_rank): (match.device_hit_tokens, match.host_only_hit_tokens)
        for match in directory.query(token_ids)
        if match.synchronized
    }


def status(directory: kvcache.Directory, number: int = 0) -> StreamStatus:
    return directory.streams()[number]


def agrees(directory: kvcache.Directory, one: SimulatedEngine, token_ids: list[int]) -> bool:
    """Whether the directory's answer for `one` is the engine's own."""
    found = hits(directory, token_ids).get((one.instance_name, one.dp_rank))
    return found == one.expected_match(token_ids)


def wait_agrees(directory: kvcache.Directory, one: SimulatedEngine, token_ids: list[int]) -> None:
    wait_until(
        lambda: agrees(directory, one, token_ids),
        f"{hits(directory, token_ids)} is not {one.expected_match(token_ids)}",
    )


def wait_doubted(directory: kvcache.Directory, kind: str, number: int = 0, times: int = 1) -> None:
    wait_until(
        lambda: status(directory, number)["doubts"][kind] >= times,
        f"doubt {kind}: {status(directory, number)}",
    )


def hold(one: SimulatedEngine) -> None:
    """From now on the engine keeps its snapshots back."""
    one.faults.arm_replay(ReplayFault.HOLD, None)


def let_go(one: SimulatedEngine) -> None:
    """Sends what was kept back, and answers from now on."""
    one.faults.disarm()
    one.release_replays()
