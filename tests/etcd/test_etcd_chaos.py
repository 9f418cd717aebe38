"""Everything at once, at random: in the end the mirror has what etcd has."""

from __future__ import annotations

import asyncio
import os
import random
from contextlib import suppress
from typing import TYPE_CHECKING

from kvcache.discovery.errors import EtcdError
from mirror_recorder import KEY, RANGE_END, Following, client_of, following, key, run
from tcp_proxy import TcpProxy

if TYPE_CHECKING:
    from etcd_server import Etcd
    from kvcache.discovery.client import EtcdClient

STEPS = int(os.environ.get("KVCACHE_CHAOS_STEPS", "60"))


async def change(writer: EtcdClient, rng: random.Random) -> None:
    """A put, perhaps under a short lease, a deletion, or a compaction's worth of both."""
    name = key(rng.choice("abcdefgh"))
    for _ in range(rng.choice((1, 1, 5))):
        with suppress(EtcdError):
            match rng.randrange(4):
                case 0:
                    await writer.delete(name)
                case 1:
                    lease = await writer.lease_grant(1)
                    await writer.put(name, rng.randbytes(4).hex().encode(), lease)
                case _:
                    await writer.put(name, rng.randbytes(4).hex().encode())


async def trouble(etcd: Etcd, proxy: TcpProxy, one: Following, rng: random.Random) -> None:
    match rng.randrange(8):
        case 0:
            etcd.kill()
            if rng.random() < 0.3:
                etcd.wipe()
            await asyncio.sleep(rng.random() * 0.3)
            await asyncio.to_thread(etcd.start)
        case 1:
            etcd.pause()
            await asyncio.sleep(rng.random() * 2)
            etcd.resume()
        case 2:
            proxy.cut(refuse=rng.random() < 0.5)
        case 3:
            proxy.hold()
        case 4:
            revision = one.mirror.status.revision
            with suppress(AssertionError):
                etcd.ctl("compact", "--physical", str(revision + rng.randrange(3)))
        case _:
            if proxy.connections:
                proxy.cut_newest()
    if rng.random() < 0.7:
        proxy.refusing = False
        proxy.release()


async def same(writer: EtcdClient, one: Following) -> bool:
    try:
        found = await writer.range(KEY, RANGE_END, timeout_s=5)
    except EtcdError:
        return False
    wanted = {kv.key: (kv.value, kv.create_revision, kv.mod_revision) for kv in found.kvs}
    held = {
        name: (kv.value, kv.create_revision, kv.mod_revision)
        for name, kv in one.mirror.held.items()
    }
    told = {name: value for name, (value, _, _) in held.items()}
    return one.mirror.status.connected and held == wanted and one.recorder.world == told


def test_the_mirror_has_in_the_end_what_etcd_has(etcd: Etcd) -> None:
    seed = int(os.environ.get("KVCACHE_SEED") or random.randrange(2**32))
    print(f"KVCACHE_SEED={seed}")
    rng = random.Random(seed)

    async def test() -> None:
        async with (
            client_of(etcd.endpoint, request_timeout_s=0.5) as writer,
            TcpProxy(etcd.endpoint) as proxy,
            following(proxy.endpoint, request_timeout_s=0.5) as one,
        ):
            for step in range(STEPS):
                await change(writer, rng)
                if step % 4 == 0:
                    await trouble(etcd, proxy, one, rng)
                if step % 20 == 19:
                    proxy.refusing = False
                    proxy.release()
                    loop = asyncio.get_running_loop()
                    deadline = loop.time() + 20
                    while not await same(writer, one):
                        assert loop.time() < deadline, one.mirror.status
                        await asyncio.sleep(0.05)

    run(test())
