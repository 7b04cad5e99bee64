"""Elementary functions as LLVM: errors, special values, and vectorization of loops."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

pytest.importorskip("llvmlite")

from headrace.schedule.scalar_expressions import Apply, Input
from headrace.targets.native import elementary
from tests.targets.native.accuracy import BOUNDS, DOUBLE, SINGLE, errors, ufunc
from tests.targets.native.running import of_expression, of_ufunc

FUNCTIONS = [(name, dtype) for name, bounds in BOUNDS.items() for dtype in bounds]
has_wide_longdouble = np.finfo(np.longdouble).nmant > 60


@pytest.mark.parametrize(("name", "dtype"), FUNCTIONS, ids=str)
def test_errors_are_within_their_bounds(name: str, dtype: np.dtype) -> None:
    if dtype == DOUBLE and not has_wide_longdouble:
        pytest.skip("no format is wider than double")
    found = errors(name, dtype, 400_009, of_ufunc(ufunc(name), (dtype,) * ufunc(name).nin, 1))
    assert found.greatest <= BOUNDS[name][dtype], found.at
    assert found.wrong == []


@pytest.mark.matrix
@pytest.mark.parametrize(("name", "dtype"), FUNCTIONS, ids=str)
def test_errors_of_vectorized_loops_are_within_their_bounds(name: str, dtype: np.dtype) -> None:
    if dtype == DOUBLE and not has_wide_longdouble:
        pytest.skip("no format is wider than double")
    found = errors(name, dtype, 20_011, of_ufunc(ufunc(name), (dtype,) * ufunc(name).nin))
    assert found.greatest <= BOUNDS[name][dtype], found.at
    assert found.wrong == []


def test_the_bounds_are_those_of_all_functions_that_are_written_here() -> None:
    written = {*elementary._INLINED, *((name, kind) for name in elementary._BRANCHING for kind in ("float", "double"))}
    assert {(name, {SINGLE: "float", DOUBLE: "double"}[dtype]) for name, dtype in FUNCTIONS} == written


@pytest.mark.parametrize(("name", "dtype"), FUNCTIONS, ids=str)
def test_loops_are_vectorized(name: str, dtype: np.dtype) -> None:
    optimized = of_ufunc(ufunc(name), (dtype,) * ufunc(name).nin).optimized
    body = optimized[optimized.index("vector.body:") :]  # LLVM's label of a vectorized loop
    element = "float" if dtype == SINGLE else "double"
    assert re.search(rf"load <\d+ x {element}>", body)
    assert not re.search(r"call (float|double) @(?!llvm)", body[: body.index("br i1")])


@pytest.mark.parametrize("dtype", [SINGLE, DOUBLE], ids=str)
@pytest.mark.parametrize("name", ["sin", "cos"])
def test_a_result_does_not_depend_on_huge_elements_in_its_vector(name: str, dtype: np.dtype) -> None:
    compiled = of_ufunc(ufunc(name), (dtype, dtype)[:1])
    x = np.random.default_rng(1).normal(size=640).astype(dtype)
    mixed = x.copy()
    mixed[::7] = 1e30
    alone = compiled(np.repeat(x, 64)[: x.size * 64]).reshape(-1, 64)[:, 0]
    usual = np.arange(x.size) % 7 != 0
    assert np.array_equal(compiled(x), alone)
    assert np.array_equal(compiled(mixed)[usual], alone[usual])
    assert np.allclose(compiled(mixed)[~usual], ufunc(name)(dtype.type(1e30)), rtol=1e-6)


SPECIAL: dict[str, list[tuple[tuple[float, ...], float]]] = {
    "exp": [((np.inf,), np.inf), ((-np.inf,), 0.0), ((-0.0,), 1.0), ((1e30,), np.inf), ((-1e30,), 0.0)],
    "expm1": [((-0.0,), -0.0), ((np.inf,), np.inf), ((-np.inf,), -1.0), ((-1e30,), -1.0)],
    "log": [((0.0,), -np.inf), ((-0.0,), -np.inf), ((-1.0,), np.nan), ((np.inf,), np.inf), ((1.0,), 0.0)],
    "log1p": [((-1.0,), -np.inf), ((-2.0,), np.nan), ((-0.0,), -0.0), ((np.inf,), np.inf)],
    "tanh": [((np.inf,), 1.0), ((-np.inf,), -1.0), ((-0.0,), -0.0), ((1e30,), 1.0)],
    "sin": [((-0.0,), -0.0), ((np.inf,), np.nan), ((-np.inf,), np.nan)],
    "cos": [((-0.0,), 1.0), ((np.inf,), np.nan)],
    "power": [
        *[((np.nan, 0.0), 1.0), ((1.0, np.nan), 1.0), ((-1.0, np.inf), 1.0), ((-8.0, 1 / 3), np.nan)],
        *[((-0.0, -3.0), -np.inf), ((-0.0, -2.0), np.inf), ((-np.inf, -3.0), -0.0), ((-np.inf, 0.5), np.inf)],
        *[((0.5, -np.inf), np.inf), ((2.0, -np.inf), 0.0), ((-2.0, 3.0), -8.0), ((np.nan, 2.0), np.nan)],
    ],
    "arctan": [((-0.0,), -0.0), ((np.inf,), np.pi / 2), ((-np.inf,), -np.pi / 2), ((np.nan,), np.nan)],
    "arctan2": [
        *[((0.0, -0.0), np.pi), ((-0.0, -0.0), -np.pi), ((-0.0, 0.0), -0.0), ((0.0, -1.0), np.pi), ((0.0, 2.0), 0.0)],
        *[((-2.0, 0.0), -np.pi / 2), ((np.inf, 3.0), np.pi / 2), ((3.0, np.inf), 0.0), ((-3.0, -np.inf), -np.pi)],
        *[((np.inf, np.inf), np.pi / 4), ((-np.inf, -np.inf), -3 * np.pi / 4), ((np.nan, np.inf), np.nan)],
        *[((np.inf, np.nan), np.nan), ((1.0, -1.0), 3 * np.pi / 4), ((-1e-30, -1.0), -np.pi)],
    ],
}


@pytest.mark.parametrize("dtype", [SINGLE, DOUBLE], ids=str)
@pytest.mark.parametrize("name", SPECIAL)
def test_special_values_are_those_of_c(name: str, dtype: np.dtype) -> None:
    given = [np.array(x, dtype) for x in zip(*(args for args, _ in SPECIAL[name]), strict=True)]
    want = np.array([result for _, result in SPECIAL[name]], dtype)
    got = of_ufunc(ufunc(name), (dtype,) * ufunc(name).nin, 1)(*given)
    np.testing.assert_array_equal(got, want)
    assert np.array_equal(np.signbit(got), np.signbit(want) | (np.isnan(want) & np.signbit(got)))


@pytest.mark.parametrize("dtype", [SINGLE, DOUBLE], ids=str)
def test_the_sum_of_exponentials_is_as_accurate_as_its_parts(dtype: np.dtype) -> None:
    x, y = (np.random.default_rng(i).normal(size=4000).astype(dtype) * 30 for i in range(2))
    x[:6], y[:6] = [np.inf, np.inf, -np.inf, 1, np.nan, 3], [np.inf, 1, -np.inf, np.inf, 1, 3]
    with np.errstate(invalid="ignore"):
        want = np.logaddexp(x, y)
    np.testing.assert_allclose(of_ufunc(np.logaddexp, (dtype, dtype))(x, y), want, rtol=4 * np.finfo(dtype).eps)


@pytest.mark.parametrize("name", ["hypot", "tan", "arcsinh", "cbrt"])
def test_other_functions_are_those_of_the_c_library(name: str) -> None:
    f: Any = getattr(np, name)
    given = [np.linspace(0.1, 9, 300) + i for i in range(f.nin)]
    np.testing.assert_allclose(of_ufunc(f, (DOUBLE,) * f.nin, 1)(*given), f(*given), rtol=1e-14)


def test_a_sigmoid_is_as_accurate_as_its_composition() -> None:
    e = Apply(np.exp, (Apply(np.negative, (Input(0),), SINGLE, None),), SINGLE, None)
    node = Apply(np.reciprocal, (Apply(np.add, (e, 1), SINGLE, None),), SINGLE, None)
    x = np.linspace(-87, 100, 20_001, dtype=SINGLE)
    want = 1 / (1 + np.exp(-x.astype(np.float64)))
    np.testing.assert_allclose(of_expression(node, (SINGLE,))(x), want, rtol=2**-22)
