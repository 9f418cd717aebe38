"""Prints the ratio of each group's slowest to its fastest after the table: the only figure that carries over."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    session = getattr(config, "_benchmarksession", None)
    groups: dict[str, list[tuple[float, str]]] = {}
    for bench in getattr(session, "benchmarks", ()):
        if bench.stats.rounds:
            groups.setdefault(bench.group, []).append((bench.stats.median, bench.name))
    for group, figures in groups.items():
        fastest, slowest = min(figures), max(figures)
        if fastest != slowest:
            ratio = slowest[0] / fastest[0]
            terminalreporter.write_line(
                f"{group}: {fastest[1]} is {ratio:.1f}x as fast as {slowest[1]}"
            )
