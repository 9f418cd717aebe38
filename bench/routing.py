"""A choice beside the query that it asks: `router.route(tokens)` as a multiple of `directory.query(tokens)`.

    python bench/routing.py [SECONDS A ROUND]
    python bench/routing.py --smoke         proves in seconds that the harness works

Real streams of simulated engines, followed as the processes that the registry knows; each holds every prompt to a
depth of its own. Beside that: prompts that nobody holds, two threads beside one, and what correcting for requests
in flight, a shadow policy and the other policies cost. A directory follows 128 streams at most, so that of 128
instances of four ranks a quarter has hits, as it would.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import kvcache
import numpy as np
from kvcache.registry.model import InstanceType, Load, Registration
from kvcache.routing.slo_aware import SloAware
from kvcache.testing import SimulatedEngine, SimulatedFleet

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import numpy.typing as npt

    Prompts = list[npt.NDArray[np.uint32]]

TOKENS, MAX_STREAMS = 8192, 128
PATIENCE_S = 60.0


class Scale(NamedTuple):
    """How much is measured."""

    shapes: tuple[tuple[int, int], ...]
    """Instances, and ranks of each."""
    block_sizes: tuple[int, ...]
    prompts: int
    rounds: int
    seconds: float


FULL = Scale(tuple((n, ranks) for n in (8, 32, 128) for ranks in (1, 4)), (16, 128), 32, 15, 0.05)
SMOKE = Scale(((2, 2),), (128,), 2, 2, 0.002)


def registry_of(instances: int, ranks: int) -> kvcache.Registry:
    """Every fourth instance decodes; queues are of different lengths."""
    registry = kvcache.Registry()
    for number in range(instances):
        kind = InstanceType.DECODE if number % 4 == 3 else InstanceType.PREFILL
        if instances < 4:
            kind = InstanceType.DEFAULT
        registration = Registration(name_of(number), kind, dp_size=ranks, incarnation_id="i1")
        registry.put(f"XLLM:{kind.name}:{registration.name}", registration, number + 1)
        load = Load.of({"waiting_requests_num": number % 7, "gpu_cache_usage_perc": 0.5})
        registry.put_load(registration.name, load, instances + number + 1)
    return registry


def name_of(number: int) -> str:
    return f"10.0.{number // 100}.{number % 100}:8000"


@contextmanager
def followed(instances: int, ranks: int, block_size: int, prompts: Prompts) -> Iterator[Any]:
    """A directory that follows engines which hold the prompts, each to other depths."""
    engines = [
        SimulatedEngine(name_of(number), rank, block_size, device_blocks=1 << 20)
        for number in range(instances)
        for rank in range(ranks)
    ][:MAX_STREAMS]
    blocks = TOKENS // block_size
    with SimulatedFleet(engines) as fleet:
        for place, engine in enumerate(fleet):
            for number, prompt in enumerate(prompts):
                depth = (place * 7 + number * 13) % blocks + 1
                engine.prefill(prompt[: depth * block_size].tolist())
        config = {"discovery": {"block_size": block_size}, "resync_interval_ms": 3_600_000}
        with kvcache.Directory(kvcache.KvEventsConfig.from_dict(config)) as directory:
            specs = [
                kvcache.StreamSpec(**one.stream_config(), identity="incarnation i1")
                for one in fleet
            ]
            directory.set_streams(specs)
            directory.wait_synchronized(timeout=PATIENCE_S)
            yield directory


def each_us(ask: Callable[[Any], object], prompts: Prompts, seconds: float) -> float:
    """Microseconds a call over all prompts in turn, in the best pass."""
    best, until = float("inf"), time.perf_counter() + seconds
    while (started := time.perf_counter()) < until or best == float("inf"):
        for prompt in prompts:
            ask(prompt)
        best = min(best, time.perf_counter() - started)
    return best / len(prompts) * 1e6


def by_threads(
    ask: Callable[[Any], object], prompts: Prompts, threads: int, seconds: float
) -> float:
    """Calls a second of all threads together."""
    counts = [0] * threads
    until = time.perf_counter() + seconds

    def work(number: int) -> None:
        while not counts[number] or time.perf_counter() < until:
            for prompt in prompts:
                ask(prompt)
            counts[number] += len(prompts)

    workers = [threading.Thread(target=work, args=(number,)) for number in range(threads)]
    started = time.perf_counter()
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return sum(counts) / (time.perf_counter() - started)


def measure(instances: int, ranks: int, block_size: int, scale: Scale) -> dict[str, object]:
    rng = np.random.default_rng(1)
    prompts = [rng.integers(0, 151_936, TOKENS, dtype=np.uint32) for _ in range(scale.prompts)]
    cold = [rng.integers(0, 151_936, TOKENS, dtype=np.uint32) for _ in range(scale.prompts)]
    registry = registry_of(instances, ranks)
    with followed(instances, ranks, block_size, prompts) as directory:
        router = kvcache.Router(directory, registry)
        best = max(router.route(prompt).best_hit_tokens for prompt in prompts)
        assert best > 0, "nobody holds anything that counts"
        corrected = kvcache.CacheAware(inflight_correction=True)
        ways: dict[str, tuple[Callable[[Any], object], Prompts]] = {
            "query": (directory.query, prompts),
            "route": (router.route, prompts),
            "cold_query": (directory.query, cold),
            "cold_route": (router.route, cold),
            "corrected": (kvcache.Router(directory, registry, corrected).route, prompts),
            "shadowed": (
                kvcache.Router(
                    directory, registry, shadow_policy=kvcache.CacheAware(prefill_lambda=0.7)
                ).route,
                prompts,
            ),
            "rr": (kvcache.Router(directory, registry, kvcache.RoundRobin()).route, prompts),
            "slo_aware": (kvcache.Router(directory, registry, SloAware()).route, prompts),
        }
        best_us = dict.fromkeys(ways, float("inf"))
        one, two = [], []
        for _ in range(scale.rounds):
            for way, (ask, asked) in ways.items():
                best_us[way] = min(best_us[way], each_us(ask, asked, scale.seconds))
            one.append(by_threads(router.route, prompts, 1, scale.seconds))
            two.append(by_threads(router.route, prompts, 2, scale.seconds))
    return {
        "measure": "route" if instances == 32 else "route in other fleets",
        "contestant": "kvcache",
        "variant": f"{instances} instances of {ranks} ranks",
        "block_size": block_size,
        "streams": min(instances * ranks, MAX_STREAMS),
        "entries": 0,
        "ratio": best_us["route"] / best_us["query"],
        "more_us": best_us["route"] - best_us["query"],
        "cold_ratio": best_us["cold_route"] / best_us["cold_query"],
        "threads_ratio": max(two) / max(one),
        **{f"{way}_us": us for way, us in best_us.items()},
    }


def main() -> None:
    scale = FULL
    if sys.argv[1:2] == ["--smoke"]:
        scale = SMOKE
    elif len(sys.argv) > 1:
        scale = FULL._replace(seconds=float(sys.argv[1]))
    for block_size in scale.block_sizes:
        for instances, ranks in scale.shapes:
            print(json.dumps(measure(instances, ranks, block_size, scale)), flush=True)


if __name__ == "__main__":
    main()
