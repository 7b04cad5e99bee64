"""Special functions at poles, infinities and NaN: TensorFlow 2.21's values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import headrace as hr

nan, inf = float("nan"), float("inf")

# function: arguments and value
VALUES: dict[str, list[tuple[float, ...]]] = {
    "lgamma": [(-inf, inf), (inf, inf), (0, inf), (-1, inf), (-2, inf), (-1e3, inf), (1, 0), (2, 0), (nan, nan)],
    "digamma": [(-inf, nan), (inf, inf), (0, nan), (-1, nan), (-2, nan), (nan, nan)],
    "zeta": [(inf, 0, inf), (inf, -2, inf), (inf, 2, 0), (inf, 1, 1), (1e30, 2, 0), (1e30, 5, 0), (nan, 0, nan),
             (nan, -1, nan), (1, 2, inf), (0.5, 2, nan), (2, 0, inf), (3, -1, nan), (2, -1, inf), (2, nan, nan)],
    "polygamma": [(inf, 0, inf), (inf, -1, inf), (1e30, 0, inf), (1e30, 0.5, inf), (-1, 2, nan), (0.5, 2, nan),
                  (1, 0, inf), (nan, 1, nan), (0, 0, nan)],
    "igamma": [(inf, inf, 0), (1, inf, 1), (inf, 1, 0), (0, 1, nan), (-1, 1, nan), (1, 0, 0), (0, 0, 0), (1, -1, nan),
               (nan, 1, nan), (1, nan, nan)],
    "igammac": [(inf, inf, 0), (1, inf, 0), (inf, 1, 1), (0, 1, nan), (-1, 1, nan), (1, 0, 1), (1, -1, nan)],
    "betainc": [(1, inf, 0.5, nan), (inf, 1, 0.5, nan), (inf, inf, 0, 0), (inf, inf, 1, 1), (nan, 1, 0, 0),
                (1, nan, 1, 1), (nan, 1, 0.5, nan), (1, 1, nan, nan), (0, 1, 0, nan), (1, -1, 1, nan),
                (1, 1, -0.1, nan), (1, 1, 1.1, nan), (1, 1, 0, 0), (1, 1, 1, 1)],
    "erfinv": [(1, inf), (-1, -inf), (0, 0), (2, nan), (-2, nan), (nan, nan), (inf, nan)],
}  # fmt: skip


@pytest.mark.parametrize("dtype", [hr.float32, hr.float64])
@pytest.mark.parametrize("name", VALUES)
def test_special_functions_at_extremes(name: str, dtype: Any) -> None:
    function = getattr(hr, name, None) or getattr(hr.math, name)
    *arguments, want = (np.array(column, dtype.numpy) for column in zip(*VALUES[name], strict=True))
    with hr.Graph() as g:
        given = [hr.placeholder(dtype, a.shape) for a in arguments]
        out = function(*given)
    with hr.Session(graph=g) as s:
        got = s.run(out, dict(zip(given, arguments, strict=True)))
    for row, a, b in zip(VALUES[name], got, want, strict=True):
        assert a == b or (np.isnan(a) and np.isnan(b)), f"{name}{row[:-1]} is {a}, not {b}"


@pytest.mark.parametrize("dtype", [hr.float16, hr.bfloat16])
def test_lgamma_of_half_precision_at_its_poles(dtype: Any) -> None:
    got = hr.lgamma(np.array([-inf, inf, 0, -1, -2, 1], np.float32).astype(dtype.numpy)).numpy()
    assert got.astype(np.float32).tolist() == [inf, inf, inf, inf, inf, 0]


def slopes(function: Any, *arguments: list[float]) -> list[list[float]]:
    with hr.Graph() as g:
        given = [hr.placeholder(hr.float32, (len(a),)) for a in arguments]
        found = hr.gradients(function(*given), given)
    with hr.Session(graph=g) as s:
        return [v.tolist() for v in s.run(found, dict(zip(given, arguments, strict=True)))]


def test_gradients_of_special_functions_at_extremes() -> None:
    by_a, by_x = slopes(hr.igamma, [0, 1, -1, inf, 2, 2], [0, 0, 0, inf, inf, 1])
    assert by_a[:5] == [0, 0, 0, 0, 0]
    np.testing.assert_allclose(by_x, [nan, nan, nan, nan, nan, np.exp(-1)], rtol=1e-6)


def test_the_derivative_of_igamma_by_its_first_argument_is_precise_in_the_tails() -> None:
    with hr.Graph() as g:
        a, x = (
            hr.constant([0.5, 1.0, 5.0, 30.0, 1e-10], hr.float64),
            hr.constant([100.0, 30.0, 170.5, 100.0, 0.5], hr.float64),
        )
        slope = hr.gradients(hr.igamma(a, x), [a])[0]
    with hr.Session(graph=g) as s:
        got = s.run(slope)
    want = [
        -1.373918720749753e-44,
        -3.753064450512662e-13,
        -1.1766791317258709e-66,
        -7.275093288193462e-17,
        -0.5597735948348372,
    ]
    np.testing.assert_allclose(got, want, rtol=1e-5)
