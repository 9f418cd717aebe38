"""`Predictor`: how long an instance takes, fitted to what it measured of itself (spec: SLO_AWARE).

Needs numpy; imported only with the policy that predicts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Self

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kvcache.registry.model import Registration

__all__ = ["Predictor"]

_LONGEST_MS: Final = 1e9
"""Eleven days: longer predictions are as good as this one."""


@dataclass(frozen=True, slots=True)
class Predictor:
    """Least squares over an instance's profiling data; without data everything takes no time.

    A fit may fall below zero where nothing was measured; no time does.
    """

    ttft: tuple[float, float, float] = (0.0, 0.0, 0.0)
    """Milliseconds to the first token: constant, by prompt length, by its square."""
    tpot: tuple[float, float, float] = (0.0, 0.0, 0.0)
    """Milliseconds of one output token: constant, by batch size, by the total length of the batch."""

    @classmethod
    def fit(cls, registration: Registration) -> Self:
        """From what a process registered: `[length, ms]`, and `[average length, batch size, ms]`."""
        return cls(
            _fit(
                [(1.0, length, length * length) for length, _ in registration.ttft_profiling_data],
                [ms for _, ms in registration.ttft_profiling_data],
            ),
            _fit(
                [
                    (1.0, batch, batch * average)
                    for average, batch, _ in registration.tpot_profiling_data
                ],
                [ms for *_, ms in registration.tpot_profiling_data],
            ),
        )

    def ttft_ms(self, length: int) -> float:
        """Time to the first token of a prompt of `length` tokens."""
        constant, linear, square = self.ttft
        return _within(constant + linear * length + square * length * length)

    def tpot_ms(self, batch_size: int, total_length: int) -> float:
        """Time of one output token in a batch of requests that have `total_length` tokens together."""
        constant, per_request, per_token = self.tpot
        return _within(constant + per_request * batch_size + per_token * total_length)


def _within(time_ms: float) -> float:
    """A time that can be summed up and taken from the sum again; 0 for what is no number."""
    return min(_LONGEST_MS, max(0.0, time_ms))


def _fit(
    rows: Sequence[tuple[float, float, float]], times_ms: Sequence[float]
) -> tuple[float, float, float]:
    if not rows:
        return (0.0, 0.0, 0.0)
    matrix, target = np.asarray(rows, np.float64), np.asarray(times_ms, np.float64)
    # Columns of like size: lengths squared are millions of times as large as the constant, and their
    # size would decide what counts as zero.
    scale = np.abs(matrix).max(axis=0)
    scale[scale == 0.0] = 1.0
    try:
        # What an instance registers may be anything finite; it must not cost the others their requests.
        with np.errstate(all="ignore"):
            solved, *_ = np.linalg.lstsq(matrix / scale, target, rcond=None)
            coefficients = solved / scale
    except np.linalg.LinAlgError:
        return (0.0, 0.0, 0.0)
    if not np.isfinite(coefficients).all():
        return (0.0, 0.0, 0.0)
    constant, first, second = coefficients.tolist()
    return (constant, first, second)
