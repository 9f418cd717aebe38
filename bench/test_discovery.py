"""The measure of discovery at its smallest: every change and every flap arrives."""

from __future__ import annotations

import discovery


def test_every_change_is_seen() -> None:
    found = discovery.measure(discovery.SMOKE, ["--smoke"])
    assert found["changes_seen_share"] == 1
    assert found["flaps"] == 1000
