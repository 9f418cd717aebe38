"""The harness of `sleeper.py` works; nothing here fails for being slow."""

from __future__ import annotations

import sleeper


def test_the_harness_measures() -> None:
    found = list(sleeper.measure(*sleeper.SMOKE))
    assert [one["variant"] for one in found] == list(sleeper.ways())
    assert all(float(str(one["calls_per_s"])) > 0 for one in found)
