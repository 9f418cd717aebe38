"""How late a thread wakes beside another that queries without end: what the interpreter's lock costs others.

    python bench/sleeper.py [--smoke]

The sleeper asks for 10 ms and needs the lock to go on. The other thread asks about one prompt in a loop, in one of the
ways in which prompts come. Beside stands a thread that computes in Python alone, which any thread has to expect.
Lateness in switch intervals (5 ms): a thread that waits for the lock asks for it after one.
"""

from __future__ import annotations

import array
import json
import statistics
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

import kvcache
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

TOKENS, SHORT_TOKENS = 20_000, 256
BLOCK_SIZE, STREAMS = 16, 8
SLEEP_S = 0.01
SLEEPS, ROUNDS = 100, 3
SMOKE = (3, 1)
PYTHON_ALONE = "Python alone"


def ways() -> dict[str, Callable[[], object]]:
    """The other thread does this, over and over."""
    ids = np.random.default_rng(1).integers(0, 151_936, TOKENS, dtype=np.uint32)
    index = kvcache.PrefixIndex(BLOCK_SIZE)
    for stream in range(STREAMS):
        index.store(str(stream), list(range(TOKENS // BLOCK_SIZE)), ids)
    prompts: dict[str, Any] = {
        "list": ids.tolist(),
        "numpy uint32": ids,
        "numpy int64": ids.astype(np.int64),
        "array": array.array("I", ids.tolist()),
        "BlockKeys": kvcache.block_keys(ids, BLOCK_SIZE),
        "short list": ids[:SHORT_TOKENS].tolist(),
        "short numpy uint32": ids[:SHORT_TOKENS],
    }
    query = index.query
    doing: dict[str, Callable[[], object]] = {PYTHON_ALONE: lambda: sum(range(1000))}
    for name, prompt in prompts.items():
        doing[name] = lambda prompt=prompt: query(prompt)
    return doing


def lateness_s(work: Callable[[], object], sleeps: int) -> tuple[list[float], float]:
    """Measures how late each sleep ends beside a thread that works, and how often a second that works."""
    stop = False
    done = 0

    def busy() -> None:
        nonlocal done
        while not stop:
            work()
            done += 1

    worker = threading.Thread(target=busy)
    worker.start()
    late = []
    started = time.perf_counter()
    try:
        for _ in range(sleeps):
            before = time.perf_counter()
            time.sleep(SLEEP_S)
            late.append(time.perf_counter() - before - SLEEP_S)
    finally:
        stop = True
        worker.join()
    return late, done / (time.perf_counter() - started)


def measure(sleeps: int, rounds: int) -> Iterator[dict[str, object]]:
    """A record for each way; beside it what a thread that never asks costs the sleeper."""
    python_intervals = 0.0
    for name, work in ways().items():
        late: list[float] = []
        rates = []
        for _ in range(rounds):
            some, rate = lateness_s(work, sleeps)
            late += some
            rates.append(rate)
        late.sort()
        p99_s = late[int(len(late) * 0.99)]
        intervals = p99_s / sys.getswitchinterval()
        if name == PYTHON_ALONE:
            python_intervals = intervals
        yield {
            "measure": "sleeper beside queries",
            "contestant": "kvcache",
            "variant": name,
            "block_size": BLOCK_SIZE,
            "streams": STREAMS,
            "entries": 0,
            "median_ms": statistics.median(late) * 1e3,
            "p99_ms": p99_s * 1e3,
            "longest_ms": late[-1] * 1e3,
            "intervals": intervals,
            "python_intervals": python_intervals,
            "calls_per_s": statistics.median(rates),
        }


def main() -> None:
    size = SMOKE if "--smoke" in sys.argv else (SLEEPS, ROUNDS)
    for figures in measure(*size):
        print(json.dumps(figures), flush=True)


if __name__ == "__main__":
    main()
