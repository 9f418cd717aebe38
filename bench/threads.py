"""Queries a second on two Python threads beside one: what the extension does without the interpreter's lock.

    python bench/threads.py [SECONDS A ROUND]

Two measures stand beside. Two processes show what the cores give. `hashlib.sha1`, over as many bytes
as take the time of a query, shows what the interpreter gives to calls of that length: it releases
the lock too.
"""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import statistics
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

import kvcache
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy.typing as npt

TOKENS, PROMPTS, STREAMS = 8192, 64, 8
ROUNDS = 24
PROCESS_ROUNDS = 4
"""As they cost a second to start."""
RELEASES_FROM = 2048
"""Bytes from which `hashlib` releases the lock."""


def filled(block_size: int) -> tuple[kvcache.PrefixIndex, list[npt.NDArray[np.uint32]]]:
    """An index whose streams hold all prompts, and the prompts."""
    rng = np.random.default_rng(1)
    index = kvcache.PrefixIndex(block_size)
    prompts = [rng.integers(0, 151_936, TOKENS, dtype=np.uint32) for _ in range(PROMPTS)]
    for stream in range(STREAMS):
        for number, prompt in enumerate(prompts):
            blocks = TOKENS // block_size
            index.store(str(stream), list(range(number << 16, (number << 16) + blocks)), prompt)
    return index, prompts


def asked(block_size: int, seconds: float, begin: Callable[[], object], first: int) -> int:
    """Queries that one thread asks in that time, in a process of its own."""
    index, prompts = filled(block_size)
    begin()
    return ask(index, prompts[first:] + prompts[:first], time.perf_counter() + seconds)


def ask(index: kvcache.PrefixIndex, prompts: list[npt.NDArray[np.uint32]], until: float) -> int:
    """Returns how many prompts were queried until then."""
    return repeat(index.query, prompts, until)


def repeat(call: Callable[[Any], object], arguments: Sequence[object], until: float) -> int:
    """Calls with each argument in turn until then, and returns how often."""
    count = 0
    while time.perf_counter() < until:
        for argument in arguments:
            call(argument)
        count += len(arguments)
    return count


def by_threads(
    call: Callable[[Any], object], arguments: Sequence[object], threads: int, seconds: float
) -> float:
    """Returns the calls a second of all threads together."""
    counts = [0] * threads
    until = time.perf_counter() + seconds

    def work(number: int) -> None:
        first = number * len(arguments) // threads
        counts[number] = repeat(call, [*arguments[first:], *arguments[:first]], until)

    workers = [threading.Thread(target=work, args=(number,)) for number in range(threads)]
    started = time.perf_counter()
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return sum(counts) / (time.perf_counter() - started)


def hashed_in(seconds: float) -> bytes:
    """Returns as many zeros as `sha1` hashes in that time, found by halving the error ten times."""
    size = 1 << 14
    for _ in range(10):
        data = bytes(size)
        took = 1 / by_threads(hashlib.sha1, [data] * PROMPTS, 1, 0.02)
        size = max(RELEASES_FROM, int(size * (1 + seconds / took) / 2))
    return bytes(size)


def by_processes(block_size: int, processes: int, seconds: float) -> float:
    """The same of processes that share nothing."""
    context = multiprocessing.get_context("spawn")
    barrier = context.Barrier(processes)
    with context.Pool(processes, _keep, (barrier,)) as pool:
        tasks = [(block_size, seconds, number) for number in range(processes)]
        return sum(pool.starmap(_asked, tasks, chunksize=1)) / seconds


_barriers: list[threading.Barrier] = []


def _keep(barrier: threading.Barrier) -> None:
    _barriers.append(barrier)


def _asked(block_size: int, seconds: float, number: int) -> int:
    return asked(block_size, seconds, _barriers[0].wait, number * PROMPTS // 2)


def main() -> None:
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 0.2
    for block_size in (16, 128):
        index, prompts = filled(block_size)
        one, two, alone, both, hash_one, hash_two = [], [], [], [], [], []
        query_s = 1 / by_threads(index.query, prompts, 1, seconds)
        hashed = [hashed_in(query_s)] * PROMPTS
        for round_ in range(ROUNDS):
            one.append(by_threads(index.query, prompts, 1, seconds))
            two.append(by_threads(index.query, prompts, 2, seconds))
            hash_one.append(by_threads(hashlib.sha1, hashed, 1, seconds))
            hash_two.append(by_threads(hashlib.sha1, hashed, 2, seconds))
            if round_ % (ROUNDS // PROCESS_ROUNDS) == 0:
                alone.append(by_processes(block_size, 1, seconds))
                both.append(by_processes(block_size, 2, seconds))
        figures = {
            "measure": "two Python threads",
            "contestant": "kvcache",
            "variant": "numpy prompts of 8192 tokens",
            "block_size": block_size,
            "streams": STREAMS,
            "entries": 0,
            "one_per_s": max(one),
            "two_per_s": max(two),
            "ratio": max(two) / max(one),
            "median_ratio": statistics.median(b / a for a, b in zip(one, two, strict=True)),
            "processes_ratio": max(both) / max(alone),
            "hashlib_ratio": max(hash_two) / max(hash_one),
            "hashlib_per_s": max(hash_one),
        }
        print(json.dumps(figures))


if __name__ == "__main__":
    main()
