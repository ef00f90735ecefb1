"""Norms, against NumPy in float64."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from llamacy.core.vectors import normalize_rows

Floats = NDArray[np.float32]


def expected(rows: Floats, p: float) -> Floats:
    wide = rows.astype(np.float64)
    norms = np.linalg.norm(wide, ord=p, axis=1, keepdims=True)
    return np.divide(wide, norms, out=np.zeros_like(wide), where=norms > 0).astype(np.float32)


def random_rows(n: int = 5, d: int = 37) -> Floats:
    return np.random.default_rng(1).standard_normal((n, d)).astype(np.float32)


@pytest.mark.parametrize("p", [0.5, 1.0, 1.5, 2.0, 3.0, 17.0, math.inf])
def test_rows_have_the_norm_asked_for(p: float) -> None:
    rows = random_rows()
    want = expected(rows, p)
    normalize_rows(rows, p)
    np.testing.assert_allclose(rows, want, rtol=2e-7)


def test_zeros_stay_zeros() -> None:
    rows = random_rows(3)
    rows[1] = 0
    normalize_rows(rows)
    assert not rows[1].any()
    np.testing.assert_allclose(np.linalg.norm(rows[[0, 2]], axis=1), 1, rtol=1e-6)


@given(st.floats(-38, 38), st.sampled_from([1.0, 2.0, 5.0, math.inf]))
def test_no_magnitude_overflows_or_vanishes(exponent: float, p: float) -> None:
    rows = random_rows(1, 8) * np.float32(0.1)
    want = expected(rows, p)
    scaled = (rows.astype(np.float64) * 10.0**exponent).astype(np.float32)
    normalize_rows(scaled, p)
    # the smallest numbers of float32 have few digits
    np.testing.assert_allclose(scaled, want, rtol=1e-5 if exponent > -35 else 0.5)


@pytest.mark.parametrize("p", [0.0, -1.0, float("nan")])
def test_what_is_no_norm_is_refused(p: float) -> None:
    with pytest.raises(ValueError, match="above 0"):
        normalize_rows(random_rows(), p)


def test_no_rows_and_no_columns_are_fine() -> None:
    normalize_rows(np.empty((0, 4), np.float32))
    normalize_rows(np.empty((4, 0), np.float32))


def test_memory_that_cannot_be_written_is_refused() -> None:
    rows = random_rows()
    rows.setflags(write=False)
    with pytest.raises(ValueError, match="read-only"):
        normalize_rows(rows)
