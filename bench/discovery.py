"""Discovery against a real etcd: a list of 10,000 registrations, 1,000 changes a second, and 100,000 lease flaps.

    python bench/discovery.py [--smoke]

etcd and who writes to it are processes of their own; this one is the follower, and its CPU time is what is counted. The
streams are compared every 50 ms, the least that a configuration allows, and handed to a directory that only notes them.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import resource
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from kvcache.config import DiscoveryConfig
from kvcache.discovery.client import Delete, EtcdClient, Put
from kvcache.discovery.config import EtcdConfig
from kvcache.discovery.follower import StreamFollower
from kvcache.discovery.runner import Discovery, DiscoveryOptions
from kvcache.registry.registry import Registry

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from kvcache import StreamSpec

BATCH = 100
FOLLOWED = 128
REFRESH_INTERVAL_S = 0.05
PATIENCE_S = 120.0


@dataclass(frozen=True)
class Size:
    registrations: int
    changes: int
    changes_per_second: int
    flaps: int


FULL = Size(10_000, 10_000, 1_000, 100_000)
SMOKE = Size(200, 100, 1_000, 200)


class NotedStreams:
    """Notes when each incarnation was first to be followed."""

    def __init__(self) -> None:
        self.seen_ns: dict[str, int] = {}
        self.streams = 0

    def set_streams(self, streams: Sequence[StreamSpec]) -> tuple[int, int, int]:
        now = time.time_ns()
        self.streams = len(streams)
        for spec in streams:
            self.seen_ns.setdefault(spec.identity or "", now)
        return (0, 0, self.streams)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def etcd() -> Iterator[str]:
    """The endpoint of a fresh etcd."""
    program = shutil.which("etcd")
    assert program, "etcd is missing: apt-get install etcd-server"
    client, peer = (f"http://127.0.0.1:{free_port()}" for _ in range(2))
    with tempfile.TemporaryDirectory() as folder:
        words = [
            *(
                "--data-dir",
                folder,
                "--listen-client-urls",
                client,
                "--advertise-client-urls",
                client,
            ),
            *("--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer),
            *("--initial-cluster", f"default={peer}", "--unsafe-no-fsync", "--logger", "zap"),
        ]
        words += ["--log-level", "error"]
        server = subprocess.Popen([program, *words])  # noqa: S603 (our own arguments)
        try:
            deadline = time.monotonic() + PATIENCE_S
            while not healthy(client):
                assert server.poll() is None
                assert time.monotonic() < deadline
                time.sleep(0.05)
            yield client.removeprefix("http://")
        finally:
            server.kill()
            server.wait()


def healthy(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/health", timeout=2) as answer:  # noqa: S310
            return b'"true"' in answer.read()
    except OSError:
        return False


def put(number: int, incarnation: str) -> Put:
    # Names sort by number; only the first can be followed. Nobody answers there: a probe is refused at once.
    name = f"127.0.0.1:{2000 + number:05d}"
    value = {"name": name, "type": 1, "incarnation_id": incarnation, "rpc_address": name}
    return Put(f"XLLM:PREFILL:{name}".encode(), json.dumps(value).encode())


async def write_registrations(client: EtcdClient, count: int) -> None:
    for start in range(0, count, BATCH):
        await client.txn(
            (), [put(number, "i") for number in range(start, min(start + BATCH, count))]
        )


async def write_changes(client: EtcdClient, count: int, per_second: int) -> None:
    """Each puts one followed instance anew, whose incarnation is the time of the put."""
    start = time.monotonic()
    for change in range(count):
        one = put(change % FOLLOWED, str(time.time_ns()))
        await client.put(one.key, one.value)
        ahead = start + (change + 1) / per_second - time.monotonic()
        if ahead > 0:
            await asyncio.sleep(ahead)
    print(json.dumps({"seconds": time.monotonic() - start}))


async def write_flaps(client: EtcdClient, count: int) -> None:
    """A registration that goes and is back before its instance could be probed."""
    for start in range(0, count, BATCH):
        puts = [put(number % BATCH, "i") for number in range(start, start + BATCH)]
        await client.txn((), [Delete(one.key) for one in puts])
        await client.txn((), puts)


async def write(endpoint: str, what: str, size: Size) -> None:
    config = EtcdConfig(endpoints=(endpoint,), request_timeout_s=10.0)
    async with EtcdClient(config) as client:
        if what == "changes":
            await write_changes(client, size.changes, size.changes_per_second)
        else:
            await write_flaps(client, size.flaps)


def written(endpoint: str, what: str, *flags: str) -> dict[str, float]:
    """Has another process write, and waits for it."""
    words = [sys.executable, __file__, "--write", what, "--endpoint", endpoint, *flags]
    done = subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True)  # noqa: S603
    return dict(json.loads(done.stdout or "{}"))


def until(condition: object, what: str) -> None:
    assert callable(condition)
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, f"not in time: {what}"
        time.sleep(0.005)


def resident_mb() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 1e6


def measure(size: Size, flags: list[str]) -> dict[str, object]:
    with etcd() as endpoint:
        config = EtcdConfig(endpoints=(endpoint,), request_timeout_s=10.0)

        async def prepare() -> None:
            async with EtcdClient(config) as client:
                await write_registrations(client, size.registrations)

        asyncio.run(prepare())
        registry, noted = Registry(), NotedStreams()
        follower = StreamFollower(registry, noted, DiscoveryConfig(event_port_offset=1), FOLLOWED)
        options = DiscoveryOptions(EtcdConfig(endpoints=(endpoint,)), role="observer")
        discovery = Discovery(options, registry, follower, REFRESH_INTERVAL_S)
        started = time.perf_counter()
        discovery.start()
        try:
            want = min(FOLLOWED, size.registrations)
            until(lambda: noted.streams == want, "the first streams")
            listed_s = time.perf_counter() - started
            assert len(registry.snapshot().instances) == size.registrations
            follow = followed(endpoint, size, discovery, noted, flags)
            return {"listed_s": listed_s} | follow
        finally:
            discovery.close()


def followed(
    endpoint: str, size: Size, discovery: Discovery, noted: NotedStreams, flags: list[str]
) -> dict[str, object]:
    events = discovery.feed.applied
    before, cpu = sum(events.values()), time.process_time()
    seconds = written(endpoint, "changes", *flags)["seconds"]
    until(lambda: sum(events.values()) - before >= size.changes, "every change")
    cpu_us = (time.process_time() - cpu) / size.changes * 1e6
    time.sleep(4 * REFRESH_INTERVAL_S)
    delays = sorted(
        (seen - int(identity.split()[-1])) / 1e6
        for identity, seen in noted.seen_ns.items()
        if identity.split()[-1].isdecimal()
    )
    memory = [resident_mb()]
    tenth = [*flags, "--flaps", str(max(BATCH, size.flaps // 10))]
    for _ in range(10):
        before = sum(events.values())
        written(endpoint, "flaps", *tenth)
        until(lambda: sum(events.values()) - before >= 2 * int(tenth[-1]), "every flap")  # noqa: B023
        memory.append(resident_mb())
    return {
        "changes_per_second": size.changes / seconds,
        "cpu_us_a_change": cpu_us,
        "delay_p50_ms": statistics.median(delays),
        "delay_p99_ms": delays[len(delays) * 99 // 100],
        "changes_seen_share": len(delays) / size.changes,
        "flaps": 10 * int(tenth[-1]),
        "resident_mb": [round(one, 1) for one in memory],
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--smoke", action="store_true")
    parser.add_argument("--write", choices=("changes", "flaps"))
    parser.add_argument("--endpoint")
    parser.add_argument("--flaps", type=int)
    args = parser.parse_args()
    size = SMOKE if args.smoke else FULL
    if args.write:
        if args.flaps:
            size = Size(size.registrations, size.changes, size.changes_per_second, args.flaps)
        asyncio.run(write(args.endpoint, args.write, size))
        return
    subject = {
        "measure": "discovery",
        "contestant": "kvcache",
        "variant": "etcd",
        "block_size": 128,
        "streams": FOLLOWED,
        "entries": size.registrations,
    }
    logging.disable(logging.WARNING)  # a fleet far over max_streams is named at length
    print(json.dumps(subject | measure(size, ["--smoke"] if args.smoke else [])))


if __name__ == "__main__":
    main()
