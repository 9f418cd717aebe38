"""Tables and plots, from made-up figures."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import plots
import pytest
import tables
from records import Record, best_of, parse, to_json

if TYPE_CHECKING:
    from pathlib import Path


def stores(contestant: str, blocks_per_s: float, wrong: int = 0) -> Record:
    figures = {"blocks_per_s": blocks_per_s, "wrong": wrong, "queries": 9, "main": True}
    return Record("apply stores", contestant, figures=figures)


def queries(contestant: str, p50_us: float) -> Record:
    figures = {"p50_us": p50_us, "p99_us": 10.0, "by_length": [[1000, 1.0]], "main": True}
    return Record("query from tokens", contestant, figures=figures)


def test_a_ratio_says_how_many_times_as_good_ours_is() -> None:
    (_, less), (_, more) = tables.sections(
        [queries("kvcache", 2.0), queries("peer", 5.0), stores("kvcache", 4e6), stores("peer", 8e6)]
    )
    assert "| peer | 5.00 / 10.0 (2.50x) |" in less
    assert "| peer | 8.00 (0.50x) |" in more


def test_wrong_answers_are_not_compared() -> None:
    ((_, table),) = tables.sections([stores("kvcache", 4e6), stores("peer", 8e7, wrong=3)])
    assert "(80.0: 3/9 answers wrong)" in table
    assert "0.05x" not in table


def test_goals_say_what_was_missed_and_beside_what() -> None:
    figures = {"more_ms": 0.5, "p50_ms": 0.8, "constant_p50_ms": 0.3}
    record = Record("query over HTTP", "kvcache", variant="8 tokens", figures=figures)
    ((heading, table),) = tables.sections([record])
    assert heading == "Goals"
    assert "| 8 tokens, blocks of 16 | 0.50 | ≤ 0.4 | no | query 0.80, constant 0.30 |" in table


def test_records_survive_json() -> None:
    record = stores("peer", 8e6)
    assert parse(json.dumps(to_json(record))) == record


def test_the_best_of_several_runs_keeps_the_worst_answers() -> None:
    runs = [[stores("peer", 8e6)], [stores("peer", 9e6, wrong=2)]]
    (best,) = best_of(runs)
    assert best.figures == {"blocks_per_s": 9e6, "wrong": 2, "queries": 9, "main": True}


def fleet_run(contestant: str, variant: str, sessions_per_s: float) -> Record:
    seconds = {"wait_mean_s": 0.5, "wait_p99_s": 4.0, "ttft_mean_s": 1.0}
    figures = {"sessions_per_s": sessions_per_s, "reachable": 0.6, "hit_rate": 0.25, "herding": 9}
    figures |= {"spread": 1.2, **seconds}
    return Record("simulated fleet", contestant, variant, streams=16, entries=70, figures=figures)


def test_a_fleet_has_a_table_a_load() -> None:
    runs = [fleet_run("RR", "as reported", 9.0), fleet_run("CAR 0.5", "corrected", 5.0)]
    (first, table), (second, _) = tables.fleet(runs)
    assert first == "16 instances, 5 sessions/s, 70 requests, of whose tokens 60 % came before"
    assert "9 sessions/s" in second
    assert "| CAR 0.5 | corrected | 25.0 | 0.50 | 4.00 | 1.00 | 1.20 | 9 |" in table


def test_a_fleet_is_drawn(tmp_path: Path) -> None:
    if not plots.available():
        pytest.skip("plots need matplotlib")
    runs = [fleet_run("RR", "as reported", 9.0), fleet_run("CAR 0.5", "corrected", 9.0)]
    file = plots.draw_fleet(runs, tmp_path / "plots" / "fleet.svg")
    assert file.read_text().startswith("<?xml")


def test_plots_are_drawn(tmp_path: Path) -> None:
    if not plots.available():
        pytest.skip("plots need matplotlib")
    (plot,) = plots.plots([queries("kvcache", 2.0), queries("peer", 5.0)])
    file = plots.draw(plot, tmp_path)
    assert file.read_text().startswith("<?xml")
