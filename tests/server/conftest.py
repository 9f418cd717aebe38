"""Fixtures of the HTTP side."""

from __future__ import annotations

import json
import logging
import threading
from typing import TYPE_CHECKING

import pytest
from kvcache.server.app import create_app
from kvcache.server.listen import bind
from kvcache.server.run import Server
from kvcache.server.settings import ServerSettings
from kvcache.service import Service
from serving import DEADLINE_SECONDS, App, FakeDirectory

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(autouse=True)
def logging_as_before() -> Iterator[None]:
    """The command line configures logging for its process; other tests count lines."""
    root = logging.getLogger()
    level, handlers = root.level, root.handlers[:]
    levels = {
        name: logger.level
        for name, logger in logging.root.manager.loggerDict.items()
        if isinstance(logger, logging.Logger)
    }
    yield
    root.setLevel(level)
    root.handlers[:] = handlers
    for name, logger in logging.root.manager.loggerDict.items():
        if isinstance(logger, logging.Logger):
            logger.setLevel(levels.get(name, logging.NOTSET))


@pytest.fixture
def directory() -> FakeDirectory:
    return FakeDirectory()


@pytest.fixture
def app(directory: FakeDirectory) -> App:
    return App(Service(directory), ServerSettings())


@pytest.fixture
def live(directory: FakeDirectory) -> Iterator[tuple[str, int]]:
    """The application on a real socket; bodies over 1000 bytes are too large."""
    ready = threading.Event()
    with bind("127.0.0.1", 0) as listener:
        settings = ServerSettings(max_body_bytes=1000)
        server = Server(create_app(Service(directory), settings), ready.set)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
        thread.start()
        assert ready.wait(DEADLINE_SECONDS)
        yield listener.getsockname()
        server.should_exit = True
        thread.join(DEADLINE_SECONDS)
        assert not thread.is_alive()


@pytest.fixture
def config_file(tmp_path: Path) -> Path:
    path = tmp_path / "kv.json"
    stream = {
        "instance_name": "engine:8000",
        "endpoint": "tcp://127.0.0.1:18765",
        "replay_endpoint": "tcp://127.0.0.1:38765",
        "topic": "xllm-kv",
    }
    path.write_text(json.dumps({"streams": [stream]}))
    return path
