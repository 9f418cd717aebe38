"""One started engine for most tests."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from following import engine

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kvcache.testing import SimulatedEngine


@pytest.fixture
def one() -> Iterator[SimulatedEngine]:
    with engine() as started:
        yield started
