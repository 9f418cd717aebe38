"""An engine, and a reader that it knows of."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from engine_reader import BLOCK, Reader
from kvcache.testing import SimulatedEngine

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def engine() -> Iterator[SimulatedEngine]:
    with SimulatedEngine("engine-a", block_size=BLOCK, device_blocks=8) as running:
        yield running


@pytest.fixture
def reader(engine: SimulatedEngine) -> Iterator[Reader]:
    with Reader(engine) as connected:
        yield connected
