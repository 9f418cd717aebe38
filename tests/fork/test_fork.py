"""A child has none of its parent's threads: what they kept up to date refuses to answer there."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from forking import SCENARIOS

SCRIPT = Path(__file__).with_name("forking.py")
DEADLINE_S = 60.0


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_fork(scenario: str) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "ignore::DeprecationWarning", str(SCRIPT), scenario],
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
