"""Many streams and long histories end in agreement with the engines' own state."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from contextlib import ExitStack

import psutil
import pytest
from following import (
    BLOCK,
    engine,
    follow,
    hits,
    hold,
    let_go,
    status,
    tokens,
    wait_agrees,
    wait_until,
)
from kvcache.testing import SimulatedEngine

SEED = int(os.environ.get("KVCACHE_SEED", random.randrange(2**32)))


def test_forty_streams_agree() -> None:
    print(f"KVCACHE_SEED={SEED}")
    rng = random.Random(SEED)
    shared = tokens(1, 8)
    with ExitStack() as stack:
        engines = [
            stack.enter_context(engine(f"engine-{number:02}", rank, host_blocks=32))
            for number in range(20)
            for rank in range(2)
        ]
        directory = stack.enter_context(follow(*engines))
        for _ in range(10):
            for one in engines:
                prompt = shared[: rng.randrange(9) * BLOCK] + tokens(
                    rng.randrange(50), rng.randrange(1, 5)
                )
                one.prefill(prompt)
                if rng.random() < 0.2:
                    one.evict_device(rng.randrange(1, 5))
        for one in engines:
            wait_agrees(directory, one, shared)
            for seed in range(0, 50, 7):
                wait_agrees(directory, one, tokens(seed, 4))
        assert all(sum(stream["doubts"].values()) == 0 for stream in directory.streams())
        start = time.monotonic()
        directory.close()
        assert time.monotonic() - start < 1


def test_a_full_house_shares_a_few_threads_and_closes_at_once() -> None:
    process = psutil.Process()
    with ExitStack() as stack:
        engines = [stack.enter_context(engine(f"engine-{number}")) for number in range(128)]
        for number, one in enumerate(engines):
            one.prefill(tokens(number, 3))
        threads, descriptors = process.num_threads(), process.num_fds()
        directory = stack.enter_context(follow(*engines))
        assert process.num_threads() - threads <= 8
        for number, one in enumerate(engines):
            assert hits(directory, tokens(number, 3))[one.instance_name, 0] == (3 * BLOCK, 0)
        start = time.monotonic()
        directory.close()
        assert time.monotonic() - start < 1
        wait_until(lambda: process.num_fds() <= descriptors and process.num_threads() <= threads)


@pytest.mark.timeout(600)  # quiet points wait for backoffs of seconds
def test_a_random_walk_ends_in_agreement_at_every_quiet_point() -> None:
    print(f"KVCACHE_SEED={SEED}")
    rng = random.Random(SEED)
    prompts = [tokens(1, 4) + tokens(seed, 3) for seed in range(2, 8)] + [
        tokens(seed, 3) for seed in range(8, 12)
    ]
    with (
        engine(device_blocks=24, host_blocks=12) as one,
        follow(one, resync_interval_ms=400, replay_timeout_ms=300) as directory,
    ):
        for step in range(2000):
            walk(rng, one, prompts)
            if step % 100 == 99:
                let_go(one)
                for prompt in prompts:
                    wait_agrees(directory, one, prompt)
        assert status(directory)["doubts"]["gap"] > 0, "the walk lost nothing"


def walk(rng: random.Random, one: SimulatedEngine, prompts: list[list[int]]) -> None:
    roll = rng.random()
    if roll < 0.70:
        one.prefill(rng.choice(prompts))
    elif roll < 0.85:
        one.evict_device(rng.randrange(1, 6))
    elif roll < 0.92:
        one.faults.drop_next(1)
    elif roll < 0.95:
        hold(one)
    elif roll < 0.96:
        let_go(one)
    elif roll < 0.975:
        one.clear()
    elif roll < 0.985:
        one.restart(first_sequence=rng.choice([0, 1, one.sequence + 1]))
    else:
        time.sleep(rng.random() / 50)


ENGINE_PROCESS = """
import sys
from kvcache.testing import SimulatedEngine
with SimulatedEngine("engine-a", block_size=4) as one:
    one.prefill(list(range(12)))
    print(one.endpoint, one.replay_endpoint, flush=True)
    sys.stdin.read()
"""


@pytest.mark.parametrize("number", [signal.SIGKILL])
def test_killing_an_engine_takes_its_hits_within_two_seconds(number: signal.Signals) -> None:
    import kvcache  # noqa: PLC0415

    process = subprocess.Popen(
        [sys.executable, "-c", ENGINE_PROCESS],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout
        endpoint, replay_endpoint = process.stdout.readline().split()
        stream = {
            "instance_name": "engine-a",
            "block_size": 4,
            "topic": "xllm-kv",
            "endpoint": endpoint,
            "replay_endpoint": replay_endpoint,
        }
        with kvcache.Directory(
            kvcache.KvEventsConfig.from_dict({"streams": [stream]})
        ) as directory:
            directory.wait_synchronized(timeout=30)
            assert hits(directory, list(range(12))) == {("engine-a", 0): (12, 0)}
            process.send_signal(number)
            wait_until(
                lambda: directory.query(list(range(12)))[0].reusable_prefix_tokens == 0, timeout=2
            )
            assert directory.query([])[0].error
    finally:
        process.kill()
        process.communicate()
