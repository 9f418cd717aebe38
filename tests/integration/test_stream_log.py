"""The log tells the story of a stream: when it was lost, why, and when it was back."""

from __future__ import annotations

import gc
import logging
import re
import subprocess
import sys
import threading
import weakref
from typing import TYPE_CHECKING

import kvcache
import pytest
from following import DEADLINE_S, engine, follow, hold, tokens, wait_until
from kvcache.stream_log import StreamLog

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kvcache.testing import SimulatedEngine

FIRST = r"stream engine-a rank 0 is synchronized for the first time after \d+\.\d{3} s: "
BACK = r"stream engine-a rank 0 is back after (\d+\.\d{3}) s: "
SHOWN = r"sequence (\d+), (\d+) blocks on Device, (\d+) in Host"


@pytest.fixture(autouse=True)
def lines(caplog: pytest.LogCaptureFixture) -> Iterator[list[tuple[int, str]]]:
    """Level and text of each line, as it comes."""
    told: list[tuple[int, str]] = []

    class Told(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            told.append((record.levelno, record.getMessage()))

    log, handler = logging.getLogger("kvcache.streams"), Told()
    log.addHandler(handler)
    with caplog.at_level(logging.INFO, logger="kvcache.streams"):
        yield told
    log.removeHandler(handler)


def threads() -> list[threading.Thread]:
    return [one for one in threading.enumerate() if one.name == "kvcache-streams"]


def wait_lines(lines: list[tuple[int, str]], count: int) -> None:
    wait_until(lambda: len(lines) >= count, f"{count} lines: {lines}")


def test_a_loss_and_a_return_are_a_line_each(
    one: SimulatedEngine, lines: list[tuple[int, str]]
) -> None:
    one.prefill(tokens(1, 3))
    with follow(one) as directory:
        wait_lines(lines, 1)
        level, text = lines[0]
        assert level == logging.INFO
        found = re.fullmatch(FIRST + SHOWN, text)
        assert found, text
        sequence = int(found[1])
        assert int(found[2]) == 3
        hold(one)
        one.faults.drop_next(1)
        one.prefill(tokens(2, 1))
        one.prefill(tokens(3, 1))
        wait_lines(lines, 2)
        assert lines[1] == (
            logging.WARNING,
            (
                f"stream engine-a rank 0 is lost after sequence {sequence}:"
                f" sequence gap: expected {sequence + 1}, got {sequence + 2}"
            ),
        )
        wait_until(lambda: one.held_replays, "a snapshot asked for")
        one.faults.disarm()
        one.release_replays()
        directory.wait_synchronized(timeout=DEADLINE_S)
        wait_lines(lines, 3)
        level, text = lines[2]
        found = re.fullmatch(BACK + SHOWN, text)
        assert found, text
        assert (level, int(found[3])) == (logging.INFO, 5)
        assert 0 < float(found[1]) < DEADLINE_S
    assert len(lines) == 3, "the end of a directory is no loss"


def test_an_engine_that_goes_and_comes_back(
    one: SimulatedEngine, lines: list[tuple[int, str]]
) -> None:
    with follow(one) as directory:
        one.restart()
        wait_lines(lines, 3)
        assert [level for level, _ in lines] == [logging.INFO, logging.WARNING, logging.INFO]
        assert re.match(r"stream engine-a rank 0 is lost after sequence \d+: tcp://", lines[1][1])
        assert re.match(BACK, lines[2][1])
        directory.wait_synchronized(timeout=DEADLINE_S)
    assert len(lines) == 3


class Journal:
    """What a core might tell."""

    def __init__(self, *entries: tuple[list[dict[str, object]], int]) -> None:
        self._entries = list(entries)

    def wait(self) -> tuple[list[dict[str, object]], int] | None:
        return self._entries.pop(0) if self._entries else None

    def close(self) -> None:
        """End it."""


def test_what_was_left_out_is_told(lines: list[tuple[int, str]]) -> None:
    lost = {
        "instance_name": "e\n:1",
        "dp_rank": 3,
        "change": "lost",
        "sequence": None,
        "left_out": 4,
        "reason": "no\nwhy",
    }
    shown = {"sequence": 8, "device_blocks": 2, "host_blocks": 1}
    back = lost | shown | {"change": "returned", "after_s": 61.25, "left_out": 1}
    StreamLog(Journal(([lost], 0), ([back], 7))).end()  # type: ignore[arg-type]
    assert lines == [
        (
            logging.WARNING,
            "stream e?:1 rank 3 is lost after sequence none (lines left out before: 4): no?why",
        ),
        (logging.WARNING, "the log is slower than its streams, lines dropped: 7"),
        (
            logging.INFO,
            (
                "stream e?:1 rank 3 is back after 61.250 s (lines left out before: 1):"
                " sequence 8, 2 blocks on Device, 1 in Host"
            ),
        ),
    ]


def test_streams_that_are_not_followed_any_more_are_not_lost(
    one: SimulatedEngine, lines: list[tuple[int, str]]
) -> None:
    with engine("engine-b") as other, follow(one) as directory:
        wait_lines(lines, 1)
        directory.set_streams([])
        directory.set_streams([kvcache.StreamSpec(**other.stream_config())])
        wait_lines(lines, 2)
    assert lines[1][1].startswith("stream engine-b rank 0 is synchronized for the first time")
    assert len(lines) == 2


def test_the_thread_ends_with_the_directory(one: SimulatedEngine) -> None:
    before = len(threads())
    with follow(one) as directory:
        assert len(threads()) == before + 1
        directory.close()
        assert len(threads()) == before
    directory.close()


def test_a_directory_that_is_dropped_ends_its_thread(one: SimulatedEngine) -> None:
    before = len(threads())
    config = kvcache.KvEventsConfig.from_dict({"streams": [one.stream_config()]})
    directory = kvcache.Directory(config)
    gone = weakref.ref(directory)
    directory.wait_synchronized(timeout=DEADLINE_S)
    del directory
    gc.collect()
    assert gone() is None
    wait_until(lambda: len(threads()) == before, "the end of the thread")


def test_a_handler_may_close_the_directory(one: SimulatedEngine) -> None:
    log = logging.getLogger("kvcache.streams")
    config = kvcache.KvEventsConfig.from_dict({"streams": [one.stream_config()]})
    closed = threading.Event()

    class Closing(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:  # noqa: ARG002
            directory.close()
            closed.set()

    handler = Closing()
    log.addHandler(handler)
    try:
        directory = kvcache.Directory(config)
        assert closed.wait(DEADLINE_S)
    finally:
        log.removeHandler(handler)


_FORK = "child = os.fork()\nif child: assert os.waitpid(child, 0)[1] == 0\nelse: sys.exit(0)"


@pytest.mark.parametrize(
    "end", ["", "del directory", "directory.close()", "sys.exit(0)", _FORK], ids=repr
)
def test_a_process_ends_whatever_became_of_its_directory(end: str) -> None:
    code = (
        "import logging, os, sys, kvcache\n"
        "from kvcache.testing import SimulatedEngine\n"
        "logging.basicConfig(level=logging.INFO, format='%(name)s %(message)s')\n"
        "engine = SimulatedEngine('e:1').start()\n"
        "config = kvcache.KvEventsConfig.from_dict({'streams': [engine.stream_config()]})\n"
        "directory = kvcache.Directory(config)\n"
        "directory.wait_synchronized(timeout=20)\n"
        "engine.close()\n"
        f"{end}\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    told = [line for line in done.stderr.splitlines() if line.startswith("kvcache.streams ")]
    assert told == done.stderr.splitlines()
    assert "is synchronized for the first time" in told[0]
