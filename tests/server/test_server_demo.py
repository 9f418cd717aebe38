from __future__ import annotations

import re

from serving import Process


def test_the_demo_shows_hits_in_both_tiers_and_ends_by_itself() -> None:
    with Process("demo", "--port", "0", "--duration", "4") as demo:
        assert demo.wait(60) == 0, demo.stderr
    text = "\n".join(demo.stdout)
    shown = re.search(r"can skip (\d+):\n\s+(\d+) lie.*\n\s+(\d+) were", text)
    assert shown, text
    reusable, device, host = map(int, shown.groups())
    assert device > 0
    assert host > 0
    assert reusable == device + host
    assert "synchronized 5/5" in text
    assert not any("Traceback" in line for line in demo.stderr)
