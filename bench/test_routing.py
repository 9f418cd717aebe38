"""The harness of `routing.py` works, and chooses by hits; nothing here fails for being slow."""

from __future__ import annotations

import routing


def test_the_harness_measures() -> None:
    figures = routing.measure(2, 2, 128, routing.SMOKE)
    assert figures["streams"] == 4
    assert float(str(figures["ratio"])) > 1.0
