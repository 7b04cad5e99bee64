"""Summaries of values, compared with numpy's own results."""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np
import pytest

from headrace import thresholds
from headrace.observe.summaries import NO_VALUE, Summary, summaries, summary


def same(a: Summary, b: Summary) -> bool:
    return repr(a) == repr(b)  # equal NaNs


def test_a_range_and_mean_leave_out_nans() -> None:
    found = summary(np.array([[1.0, math.nan], [-3.0, math.inf]], np.float32))
    assert (found.dtype, found.shape, found.nans, found.bytes) == ("float32", "[2,2]", 1, 16)
    assert (found.min, found.max, found.mean) == (-3.0, math.inf, math.inf)
    assert found.elements == "1, nan, -3, inf"


@pytest.mark.parametrize("dtype", ["int8", "uint64", "float16", "float64", "bool", "bfloat16", "int4"])
def test_numbers_of_each_dtype_have_a_range(dtype: str) -> None:
    made = np.array([0, 1, 1]).astype(getattr(ml_dtypes, dtype, None) or np.dtype(dtype))
    found = summary(made)
    assert (found.min, found.max, found.dtype) == (0.0, 1.0, dtype)
    assert found.mean == pytest.approx(2 / 3)


def test_values_without_an_order_have_no_range() -> None:
    assert math.isnan(summary(np.array([1 + 2j, complex(math.nan, 0)])).min)
    assert summary(np.array([1 + 2j, complex(math.nan, 0)])).nans == 1
    assert math.isnan(summary(np.zeros((0, 3))).mean)
    assert summary(np.zeros((0, 3))).shape == "[0,3]"
    nothing = summary(np.array([math.nan]))
    assert (nothing.nans, math.isnan(nothing.min)) == (1, True)


def test_texts_are_cut() -> None:
    found = summary(np.array([b"a" * 100, b"b"], object))
    limit = thresholds.RECORDED_ELEMENT_CHARACTERS
    assert (found.dtype, found.bytes) == ("string", 101)
    assert found.elements == f"{b'a' * limit!r}..., b'b'"
    assert summary(b"text").elements == "b'text'"


def test_another_object_is_named_by_its_class_only() -> None:
    class Handle:
        def __repr__(self) -> str:
            raise AssertionError("a repr may be long, or read what another step writes")

    assert summary(Handle()).dtype == "Handle"


def test_many_elements_end_in_dots() -> None:
    n = thresholds.RECORDED_ELEMENTS
    assert summary(np.arange(n + 1)).elements.endswith(f"{n - 1}, ...")
    assert summary(np.arange(n)).elements.endswith(f"{n - 1}")


def test_many_values_have_the_summaries_of_each() -> None:
    array = np.linspace(0.0, 1.0, 5)
    values = [
        *(np.float32(x) for x in (1.5, -0.0, 0.0, math.nan, 1e-9, 1e20, math.inf, 1.5)),
        *(np.int32(7), np.int32(7), np.bool_(True), np.float64(7.0), np.complex64(1j)),
        *(array, array, b"x", np.array(3, np.int8), NO_VALUE, True, 3),
    ]  # fmt: skip
    found = summaries(values)
    assert len(found) == len(values)
    for value, one in zip(values, found, strict=True):
        want = value if isinstance(value, Summary) else summary(value)
        assert same(one, want), value
    assert found[-7] is found[-6]


def test_elements_are_the_shortest_text_that_distinguishes_them() -> None:
    assert summary(np.float32(0.1)).elements == "0.1"
    assert summary(np.float64(0.1)).elements == "0.1"
    assert summary(np.float32(3.0)).elements == "3"
    assert summary(np.float32(1e-30)).elements == "1e-30"
