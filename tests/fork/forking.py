"""Forks of a process that follows an engine, one scenario a run: `python forking.py NAME`.

A process of its own, so that neither pytest nor its threads are forked.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING

import kvcache
import pytest
from kvcache import _core
from kvcache.discovery.background import Background
from kvcache.service import Service
from kvcache.testing import SimulatedEngine

if TYPE_CHECKING:
    from collections.abc import Callable

BLOCK = 4
PROMPT = list(range(8 * BLOCK))
CHILD_DEADLINE_S = 20.0
DEADLINE_S = 20.0


def in_child(work: Callable[[], None]) -> None:
    """`work` in a child that then ends as any interpreter does; the child is killed after a deadline."""
    pid = os.fork()
    if pid == 0:
        work()
        # Not os._exit: the context managers around end, and the interpreter is torn down as ever.
        sys.exit(0)
    end = time.monotonic() + CHILD_DEADLINE_S
    while time.monotonic() < end:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            assert os.waitstatus_to_exitcode(status) == 0, "the child failed"
            return
        time.sleep(0.01)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    raise AssertionError("the child did not end")


def refused(call: Callable[[], object], what: str) -> None:
    words = f"^this {what} was started in another process, .*: start it after the fork$"
    with pytest.raises(kvcache.KvCacheError, match=words) as caught:
        call()
    assert type(caught.value) is kvcache.KvCacheError


class World:
    """An engine, a directory that follows it, and what stands upon that."""

    def __init__(self, stack: ExitStack) -> None:
        self.engine = stack.enter_context(
            SimulatedEngine("engine-a", block_size=BLOCK, device_blocks=64)
        )
        config = kvcache.KvEventsConfig.from_dict({"streams": [self.engine.stream_config()]})
        self.directory = stack.enter_context(kvcache.Directory(config))
        self.directory.wait_synchronized(DEADLINE_S)
        self.service = stack.enter_context(Service.start(config))
        self.engine.prefill(PROMPT)
        self.expect(len(PROMPT))

    def expect(self, hit_tokens: int) -> None:
        """The parent sees that much of the prompt before long."""
        end = time.monotonic() + DEADLINE_S
        while list(self.directory.query(PROMPT).device_hit_tokens) != [hit_tokens]:
            assert time.monotonic() < end, "the parent does not follow any more"
            time.sleep(0.005)

    def lives_on(self) -> None:
        """Events still arrive in the parent."""
        self.engine.clear()
        self.expect(0)
        self.engine.prefill(PROMPT)
        self.expect(len(PROMPT))


def directory(world: World) -> None:
    spec = _core.StreamSpec(
        instance_name="b", endpoint="tcp://127.0.0.1:1", replay_endpoint="tcp://127.0.0.1:2"
    )
    followed = world.directory

    def child() -> None:
        for call in (
            lambda: followed.query(PROMPT),
            lambda: followed.query(kvcache.block_keys(PROMPT, BLOCK)),
            lambda: followed.query_json(b'{"token_ids":[1]}'),
            followed.streams,
            lambda: followed.set_streams([spec]),
            followed.wait_synchronized,
            lambda: followed.wait_synchronized(0.0),
            followed.__enter__,
        ):
            refused(call, "Directory")
        assert followed.closed
        followed.close()
        followed.close()

    in_child(child)
    assert not followed.closed


def service(world: World) -> None:
    def child() -> None:
        refused(lambda: world.service.query_json(b'{"token_ids":[1]}'), "Service")
        refused(world.service.streams, "Service")
        refused(world.service.__enter__, "Service")
        assert world.service.closed
        world.service.close()

    in_child(child)
    assert not world.service.closed
    assert world.service.query_json(b'{"token_ids":[1]}')


def router(world: World) -> None:
    registry = kvcache.Registry()
    routers = [
        kvcache.Router(world.directory, registry),
        kvcache.Router(None, registry, kvcache.RoundRobin()),
    ]

    def child() -> None:
        for one in routers:
            for call in (
                lambda one=one: one.route(PROMPT),
                lambda one=one: one.begin("r"),
                lambda one=one: one.first_token("r"),
                lambda one=one: one.token("r"),
                lambda one=one: one.finish("r"),
                lambda one=one: one.cancel("r"),
                one.decisions,
                lambda one=one: one.decision("r"),
                one.counts,
            ):
                refused(call, "Router")

    in_child(child)
    for one in routers:
        assert one.counts().no_instance == 0


def engine(world: World) -> None:
    simulated = world.engine

    def child() -> None:
        for call in (
            simulated.start,
            simulated.restart,
            simulated.__enter__,
            lambda: simulated.prefill(PROMPT),
            lambda: simulated.subscribers,
            lambda: simulated.sequence,
            lambda: simulated.wait_subscribed(0.0),
            lambda: simulated.publish_frames([b""]),
            simulated.release_replays,
            simulated.snapshot,
            simulated.clear,
        ):
            refused(call, "SimulatedEngine")
        simulated.close()
        simulated.__exit__(None, None, None)

    in_child(child)


def discovery(world: World) -> None:
    ended = threading.Event()

    async def follow_for_ever() -> None:
        await asyncio.get_running_loop().create_future()

    async def end() -> None:
        ended.set()

    background = Background("following", follow_for_ever, end)
    background.start()

    def child() -> None:
        assert background.close(0.0)

    in_child(child)
    assert not ended.is_set()
    assert background.close(DEADLINE_S)
    assert ended.is_set()
    del world


def started_in_the_child(world: World) -> None:
    """What is made, or begins to run, after the fork works there."""
    described = SimulatedEngine("engine-b", block_size=BLOCK, device_blocks=64)

    def child() -> None:
        with described as simulated:
            config = kvcache.KvEventsConfig.from_dict({"streams": [simulated.stream_config()]})
            with kvcache.Directory(config) as followed:
                followed.wait_synchronized(DEADLINE_S)
                simulated.prefill(PROMPT)
                end = time.monotonic() + DEADLINE_S
                while list(followed.query(PROMPT).device_hit_tokens) != [len(PROMPT)]:
                    assert time.monotonic() < end
                    time.sleep(0.005)
                router = kvcache.Router(followed, kvcache.Registry(), kvcache.RoundRobin())
                assert router.counts().no_instance == 0
                # A fork of the child is a child too.
                in_child(lambda: refused(lambda: followed.query(PROMPT), "Directory"))

    in_child(child)
    del world


def locks_held(world: World) -> None:
    """Other threads are in the middle of something, whatever a fork catches them at."""
    stop = threading.Event()

    def busy() -> None:
        while not stop.is_set():
            world.directory.streams()
            world.engine.prefill(PROMPT)
            world.engine.evict_device(1)

    threads = [threading.Thread(target=busy) for _ in range(3)]
    for thread in threads:
        thread.start()

    def child() -> None:
        refused(lambda: world.directory.query(PROMPT), "Directory")
        refused(world.directory.streams, "Directory")
        refused(lambda: world.engine.sequence, "SimulatedEngine")
        world.directory.close()
        world.engine.close()

    try:
        for _ in range(20):
            in_child(child)
    finally:
        stop.set()
        for thread in threads:
            thread.join()


SCENARIOS = {
    scenario.__name__: scenario
    for scenario in (
        directory,
        service,
        router,
        engine,
        discovery,
        started_in_the_child,
        locks_held,
    )
}


def main() -> None:
    with ExitStack() as stack:
        world = World(stack)
        SCENARIOS[sys.argv[1]](world)
        world.lives_on()


if __name__ == "__main__":
    main()
