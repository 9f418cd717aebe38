"""Times fitted to profiling data (spec: SLO_AWARE)."""

from __future__ import annotations

import pytest
from kvcache.registry.model import Registration
from kvcache.routing.predictor import Predictor
from routing_world import DEFAULT, A


def fit(ttft: object = (), tpot: object = ()) -> Predictor:
    return Predictor.fit(
        Registration(A, DEFAULT, ttft_profiling_data=ttft, tpot_profiling_data=tpot)  # type: ignore[arg-type]
    )


def test_a_parabola_is_found_again() -> None:
    lengths = (1.0, 100.0, 1000.0, 8000.0, 32768.0, 131072.0)
    predictor = fit(tuple((n, 20 + 0.05 * n + 2e-6 * n * n) for n in lengths))
    for length in (1, 5000, 100_000):
        expected = 20 + 0.05 * length + 2e-6 * length * length
        assert predictor.ttft_ms(length) == pytest.approx(expected, rel=1e-6)


def test_a_plane_is_found_again() -> None:
    rows = tuple(
        (average, batch, 5 + 0.2 * batch + 1e-4 * batch * average)
        for average in (128.0, 1024.0, 8192.0)
        for batch in (1.0, 8.0, 64.0)
    )
    assert fit(tpot=rows).tpot_ms(16, 50_000) == pytest.approx(5 + 0.2 * 16 + 1e-4 * 50_000)


def test_noise_is_levelled() -> None:
    rows = tuple(
        (n, 10 + n + (1 if i % 2 else -1)) for i, n in enumerate(map(float, range(1, 200)))
    )
    assert fit(rows).ttft_ms(100) == pytest.approx(110, abs=0.5)


@pytest.mark.parametrize("rows", [(), ((100.0, 7.0),), ((100.0, 7.0), (100.0, 7.0))])
def test_too_little_data_gives_something_finite(rows: tuple[tuple[float, float], ...]) -> None:
    predictor = fit(rows)
    assert predictor.ttft_ms(100) == pytest.approx(7.0 if rows else 0.0)
    assert predictor.tpot_ms(4, 1000) == 0.0


def test_no_time_is_negative() -> None:
    assert fit(((100.0, 10.0), (200.0, 20.0), (300.0, 25.0))).ttft_ms(100_000) == 0.0


def test_extreme_numbers_are_no_reason_to_fail() -> None:
    predictor = fit(((1e308, 1.0), (1e-308, 1e308), (0.0, 0.0)))
    assert predictor.ttft_ms(10) >= 0.0
