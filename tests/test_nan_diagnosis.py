"""Rows with NaN or infinity are found in every type of number, and large numbers are none."""

import ml_dtypes
import numpy as np
import pytest

from vramfit.train.loop import nan_diagnosis


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", ml_dtypes.bfloat16, "c8"])
def test_rows_that_are_not_finite_are_found(dtype):
    values = np.ones((5, 2, 2), dtype)
    values[1, 0, 1], values[4, 1, 1] = np.nan, np.inf
    assert nan_diagnosis._rows_not_finite(values) == [1, 4]


def test_a_number_that_only_float64_can_hold_is_finite():
    assert nan_diagnosis._rows_not_finite(np.array([1e300, np.inf])) == [1]
    assert nan_diagnosis._rows_not_finite(np.arange(3)) == []
