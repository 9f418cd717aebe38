"""What a policy does to a fleet: the same traffic on the same simulated instances, a policy at a time.

    python bench/simulation.py              a JSON record a line; progress on stderr; about a minute on one core
    python bench/simulation.py --smoke      the same in a second, tiny
    python bench/simulation.py --seed 2     other traffic
    python bench/simulation.py --host_hit_weight 0      CAR with another weight of Host memory

Nothing here waits: time is a number (`fleet.py`), and the same seed gives the same figures. The traffic is that of
`traffic.py`; index, registry and policies are those of `kvcache`.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import kvcache
from fleet import Fleet, Hardware
from traffic import Traffic

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from fleet import Request
    from kvcache.routing.base import Policy

MEASURE = "simulated fleet"
REPORTED, CORRECTED = "as reported", "corrected"
LAMBDAS = (0.3, 0.5, 0.7)
HOST_HIT_WEIGHT = 0.5


class Scale(NamedTuple):
    """How much is simulated."""

    instances: int
    sessions: int
    sessions_per_s: tuple[float, ...]
    hardware: Hardware = Hardware()


FULL = Scale(16, 3000, (5.0, 9.0, 13.0))
SMOKE = Scale(4, 60, (3.0,), Hardware(device_blocks=256, host_blocks=512))


class Contestant(NamedTuple):
    name: str
    variant: str
    make: Callable[[], Policy]


def contestants(host_hit_weight: float = HOST_HIT_WEIGHT) -> Iterator[Contestant]:
    yield Contestant("RR", REPORTED, kvcache.RoundRobin)
    # CAR with λ 0 is the queue alone.
    for name, prefill_lambda in (("least loaded", 0.0), *((f"CAR {x}", x) for x in LAMBDAS)):
        for variant in (REPORTED, CORRECTED):
            make = partial(
                kvcache.CacheAware,
                prefill_lambda,
                host_hit_weight,
                inflight_correction=variant == CORRECTED,
            )
            yield Contestant(name, variant, make)


def simulate(
    contestant: Contestant, scale: Scale, sessions_per_s: float, seed: int
) -> dict[str, object]:
    """One record: the whole traffic under one policy."""
    fleet = Fleet(contestant.make(), scale.instances, scale.hardware)
    requests = fleet.run(Traffic(seed, scale.sessions, sessions_per_s))
    return {
        "measure": MEASURE,
        "contestant": contestant.name,
        "variant": contestant.variant,
        "block_size": fleet.block_size,
        "streams": scale.instances,
        "entries": len(requests),
        "sessions_per_s": sessions_per_s,
        "seed": seed,
        **figures(fleet, requests),
    }


def figures(fleet: Fleet, requests: list[Request]) -> dict[str, float]:
    """Rates are of prompt tokens; a wait is from the arrival to the begin of the prefill."""
    tokens = sum(one.prompt_tokens for one in requests)
    waits = sorted(one.wait_s for one in requests)
    served = [one.requests for one in fleet.instances]
    return {
        "prompt_tokens_mean": tokens / len(requests),
        "reachable": sum(one.reachable_tokens for one in requests) / tokens,
        "hit_rate": sum(one.hit_tokens for one in requests) / tokens,
        "host_hit_rate": sum(one.host_only_tokens for one in requests) / tokens,
        "wait_mean_s": sum(waits) / len(waits),
        "wait_p99_s": waits[math.ceil(0.99 * len(waits)) - 1],
        "ttft_mean_s": sum(one.finished_s - one.arrived_s for one in requests) / len(requests),
        "spread": max(served) * len(served) / sum(served),
        "herding": max(one.largest_burst for one in fleet.instances),
    }


def run(scale: Scale, seed: int, host_hit_weight: float) -> Iterator[dict[str, object]]:
    cases = [(per_s, one) for per_s in scale.sessions_per_s for one in contestants(host_hit_weight)]
    for number, (sessions_per_s, one) in enumerate(cases, 1):
        where = f"{one.name}, {one.variant}, {sessions_per_s:g} sessions/s"
        print(f"simulation {number}/{len(cases)}: {where}", file=sys.stderr, flush=True)
        yield simulate(one, scale, sessions_per_s, seed)


def main() -> None:
    parser = argparse.ArgumentParser(description="Simulates a fleet under each policy.")
    parser.add_argument("--smoke", action="store_true", help="tiny: proves that it works")
    parser.add_argument("--seed", type=int, default=1, help="of the traffic")
    parser.add_argument("--host_hit_weight", type=float, default=HOST_HIT_WEIGHT, help="of CAR")
    args = parser.parse_args()
    scale = SMOKE if args.smoke else FULL
    for record in run(scale, args.seed, args.host_hit_weight):
        print(json.dumps(record), flush=True)


if __name__ == "__main__":
    main()
