"""Scalars: Python's operators on numpy scalars give the results of the interpreter's kernels.

This holds for every dtype.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import headrace as hr
from headrace import flags
from headrace.errors import InternalError, InvalidArgumentError
from headrace.ir.graph import Tensor
from tests.compile.running import b, both, failure, run, same, source

SIGNED, UNSIGNED = ("int8", "int16", "int32", "int64"), ("uint8", "uint16", "uint32", "uint64")
INTEGERS, FLOATS = (*SIGNED, *UNSIGNED), ("float32", "float64")
HALVES, COMPLEX = ("float16", "bfloat16"), ("complex64", "complex128")


def scalars(dtype: str, *names: str) -> list[Tensor]:
    return [hr.placeholder(dtype, [], name=n) for n in names]


def numbers(dtype: str, count: int, seed: int) -> list[Any]:
    """Numbers of a dtype, including the ends of its range and non-finite ones."""
    rng = random.Random(seed)
    kind = hr.as_dtype(dtype).numpy
    if dtype in INTEGERS:
        info = np.iinfo(kind)
        pool = [info.min, info.max, 0, 1, info.max - 1, info.min + 1, 2, 3, *[rng.randint(info.min, info.max)] * 2]
    elif dtype in COMPLEX:
        pool = [0, 1, -1j, 1 + 2j, complex(rng.gauss(0, 1), rng.gauss(0, 1)), complex("inf"), 1e30j]
    elif dtype == "bool":
        pool = [True, False]
    else:
        pool = [0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 0.1, 1e30, 1e-40, rng.gauss(0, 1), rng.gauss(0, 100)]
    with np.errstate(over="ignore"):
        return [kind.type(rng.choice(pool)) for _ in range(count)]


# *** the results of each dtype ***


def test_an_array_that_a_later_operation_says_is_a_scalar() -> None:
    with hr.Graph(), flags.override(VERIFY=1):
        x, shape = hr.placeholder("float32", name="x"), hr.placeholder("int32", [None], name="shape")
        y = hr.identity(hr.reshape(x, shape))
        y.set_shape([])
        assert both((y + 1.0) * 2.0, {x: [3.0], shape: []}) == 8.0


@pytest.mark.parametrize("dtype", INTEGERS)
def test_integers_wrap_around(dtype: str) -> None:
    info = np.iinfo(dtype)
    with hr.Graph():
        x, y = scalars(dtype, "x", "y")
        got = both([x + y, x - y, x * y], {x: info.max, y: 1})
        assert got[0] == info.min
        assert both([x - y], {x: info.min, y: 1}) == [info.max]
        both([x * y, x * x, y - x], {x: info.max, y: info.max})
        assert "+" in source(x + y, [x, y])


@pytest.mark.parametrize("dtype", SIGNED)
def test_the_least_integer(dtype: str) -> None:
    """It has no opposite number."""
    least = np.iinfo(dtype).min
    with hr.Graph():
        x, y = scalars(dtype, "x", "y")
        assert both([-x, hr.abs(x), hr.floordiv(x, y), x * y], {x: least, y: -1}) == [least] * 4


@pytest.mark.parametrize("dtype", UNSIGNED)
def test_an_unsigned_integer_below_zero(dtype: str) -> None:
    with hr.Graph():
        x, y = scalars(dtype, "x", "y")
        assert both(x - y, {x: 3, y: 5}) == np.iinfo(dtype).max - 1


def test_float32_is_rounded_after_each_operation() -> None:
    """In float64 the sum would be 1 + 2**-24 + 2**-24.

    In float32 each of these additions is rounded back to 1.
    """
    with hr.Graph():
        x, y = scalars("float32", "x", "y")
        assert both(x + y + y, {x: 1.0, y: 2.0**-24}) == 1.0
        assert both(x * y * y, {x: 1e-30, y: 1e-10}) == 0.0
        assert both(x * y / y, {x: 1e30, y: 1e30}) == np.inf


def test_a_number_beside_a_float32_does_not_make_it_a_float64() -> None:
    with hr.Graph():
        (x,) = scalars("float32", "x")
        _, out = hr.while_loop(lambda i, s: i < 40, lambda i, s: (i + 1, s * 1.1 + 0.1), [0, x])
        assert both(out, {x: 0.3}).dtype == np.float32
        both(hr.sigmoid(x) * (1.0 - hr.sigmoid(x)), {x: 0.3})


@pytest.mark.parametrize("dtype", FLOATS)
def test_float_division_by_zero(dtype: str) -> None:
    with hr.Graph():
        x, y = scalars(dtype, "x", "y")
        assert both(x / y, {x: 1.0, y: 0.0}) == np.inf
        assert both(x / y, {x: 1.0, y: -0.0}) == -np.inf
        assert np.isnan(both(x / y, {x: 0.0, y: 0.0}))
        both([hr.floordiv(x, y), hr.floormod(x, y), hr.reciprocal(y), hr.log(y)], {x: 1.0, y: 0.0})


DIVISIONS: Mapping[str, Callable[[Tensor, Tensor], Tensor]] = {
    "//": lambda x, y: x // y,
    "%": lambda x, y: x % y,
    "truncatediv": lambda x, y: hr.truncatediv(x, y),
    "truncatemod": lambda x, y: hr.truncatemod(x, y),
}


@pytest.mark.parametrize("dtype", INTEGERS)
@pytest.mark.parametrize("division", DIVISIONS)
def test_integer_division_by_zero_is_an_error(dtype: str, division: str) -> None:
    with hr.Graph():
        x, y = scalars(dtype, "x", "y")
        if division == "truncatemod" and dtype not in ("int32", "int64"):  # TensorFlow has no such kernel
            with pytest.raises(
                hr.errors.GraphError,
                match=r"parameter 'x' of 'TruncateMod' Op has DataType .* not in list of allowed values",
            ):
                DIVISIONS[division](x, y)
            return
        out = DIVISIONS[division](x, y)
        kernels = run(out, {x: 7, y: 2})
        same(kernels, run(out, {x: 7, y: 2}, "interpret"))
        errors = [failure(out, {x: 7, y: 0}, engine) for engine in ("compiled", "interpret")]
        assert [type(e) for e in errors] == [InternalError if "truncate" in division else InvalidArgumentError] * 2
        assert str(errors[0]) == str(errors[1])
        assert "zero" in str(errors[0])


def test_integers_divide_towards_below() -> None:
    with hr.Graph():
        x, y = scalars("int32", "x", "y")
        for u in (-7, 7):
            for v in (-2, 2):
                got = both([f(x, y) for f in DIVISIONS.values()], {x: u, y: v})
                assert got == [u // v, u % v, int(u / v), u - v * int(u / v)]


@pytest.mark.parametrize("dtype", FLOATS)
def test_comparisons_with_nan(dtype: str) -> None:
    with hr.Graph():
        x, y = scalars(dtype, "x", "y")
        fetches = [x < y, x <= y, x > y, x >= y, hr.equal(x, y), hr.not_equal(x, y), hr.maximum(x, y), hr.minimum(x, y)]
        got = both(fetches, {x: np.nan, y: 1.0})
        assert got[:6] == [False, False, False, False, False, True]
        assert all(np.isnan(v) for v in got[6:])
        assert both(fetches[:6], {x: np.nan, y: np.nan}) == [False, False, False, False, False, True]
        assert all(type(v) is np.bool_ for v in got[:6])


def test_logic() -> None:
    with hr.Graph():
        x, y = scalars("bool", "x", "y")
        fetches = [
            hr.logical_and(x, y), hr.logical_or(x, y), hr.logical_xor(x, y), hr.logical_not(x), hr.equal(x, y),
            hr.not_equal(x, y), hr.logical_not(hr.logical_and(hr.logical_not(x), y)),
        ]  # fmt: skip
        for u in (False, True):
            for v in (False, True):
                got = both(fetches, {x: u, y: v})
                assert got == [u and v, u or v, u != v, not u, u == v, u != v, not (not u and v)]
                assert all(type(t) is np.bool_ for t in got)


def test_a_condition_is_what_numpy_says() -> None:
    with hr.Graph():
        x, y = scalars("float32", "x", "y")
        out = hr.cond(x < y, lambda: x, lambda: y)
        assert both(out, {x: np.nan, y: 2.0}) == 2.0
        assert both(out, {x: -0.0, y: 0.0}) == 0.0


@pytest.mark.parametrize("dtype", INTEGERS)
def test_bits(dtype: str) -> None:
    with hr.Graph():
        x, y = scalars(dtype, "x", "y")
        fetches = [hr.bitwise_and(x, y), hr.bitwise_or(x, y), hr.bitwise_xor(x, y), hr.invert(x)]
        fetches += [hr.left_shift(x, y), hr.right_shift(x, y)]
        for u, v in zip(numbers(dtype, 6, 1), [0, 1, 2, 3, 7, 9], strict=True):
            both(fetches, {x: u, y: v})


# *** random expressions ***

Binary = Callable[[Tensor, Tensor], Tensor]
ARITHMETIC: list[Binary] = [
    lambda x, y: x + y,
    lambda x, y: x - y,
    lambda x, y: x * y,
    lambda x, y: hr.maximum(x, y),
    lambda x, y: hr.cond(hr.less(x, y), lambda: x, lambda: y),
    lambda x, y: hr.where(hr.logical_or(x < y, hr.not_equal(x, x)), x, y * y),
]
OF_INTEGERS: list[Binary] = [hr.bitwise_and, hr.bitwise_or, hr.bitwise_xor, lambda x, y: hr.invert(x) - y]
OF_FLOATS: list[Binary] = [
    lambda x, y: x / y,
    lambda x, y: hr.tanh(x) - y,
    lambda x, y: hr.abs(x) * 0.1 + y,
    lambda x, y: hr.square(x) - hr.sqrt(y),
    lambda x, y: hr.sigmoid(x) * y,
    lambda x, y: b().TanhGrad(x, y),
    lambda x, y: b().SigmoidGrad(x, y),
    lambda x, y: hr.squared_difference(x, y),
    lambda x, y: hr.exp(-x) + y,
]
OF_COMPLEX: list[Binary] = [
    lambda x, y: x + y,
    lambda x, y: x - y,
    lambda x, y: x * y,
    lambda x, y: hr.conj(x) * y,
    lambda x, y: x / y,
]
LOGIC: list[Binary] = [
    hr.logical_and,
    hr.logical_or,
    hr.equal,
    lambda x, y: hr.logical_not(x),
    lambda x, y: hr.cond(x, lambda: y, lambda: hr.logical_not(y)),
]


def operations(dtype: str) -> list[Binary]:
    if dtype == "bool":
        return LOGIC
    if dtype in COMPLEX:
        return OF_COMPLEX
    if dtype in INTEGERS:
        return ARITHMETIC + OF_INTEGERS
    return ARITHMETIC + OF_FLOATS


def expressions(dtype: str, seed: int, length: int = 12) -> tuple[list[Tensor], list[Tensor]]:
    """Random scalar expressions of three feeds: the feeds, and every value on the way."""
    rng = random.Random(seed)
    feeds = scalars(dtype, "x", "y", "z")
    known = list(feeds)
    for _ in range(length):
        known.append(rng.choice(operations(dtype))(rng.choice(known), rng.choice(known)))
    return feeds, known[3:]


@pytest.mark.matrix
@pytest.mark.parametrize("dtype", [*INTEGERS, *FLOATS, *HALVES, *COMPLEX, "bool"])
@settings(max_examples=6)
@given(seed=st.integers(0, 10_000))
@example(seed=0)
def test_random_expressions(dtype: str, seed: int) -> None:
    with hr.Graph() as g:
        feeds, made = expressions(dtype, seed)
        with hr.Session(graph=g, engine="compiled") as one, hr.Session(graph=g, engine="interpret") as other:
            for k in range(4):
                fed = dict(zip(feeds, numbers(dtype, 3, seed + k), strict=True))
                same(one.run(made, fed), other.run(made, fed), f"{dtype} {list(fed.values())}")


@pytest.mark.parametrize("dtype", [*INTEGERS, *FLOATS])
def test_random_expressions_in_a_loop(dtype: str) -> None:
    """The values pass through iterations, so a value of another dtype would show."""
    for seed in range(3):
        with hr.Graph():
            rng = random.Random(seed)
            feeds = scalars(dtype, "x", "y")
            chosen = [rng.choice(operations(dtype)) for _ in range(4)]

            def body(i: Tensor, x: Tensor, y: Tensor, chosen: list[Binary] = chosen) -> Any:
                u = chosen[0](x, y)
                v = chosen[1](y, u)
                return i + 1, chosen[2](u, v), chosen[3](v, x)

            out = hr.while_loop(lambda i, x, y: i < 6, body, [0, *feeds])
            for k in range(3):
                both(list(out), dict(zip(feeds, numbers(dtype, 2, k), strict=True)))


# *** comparisons of counters ***


def _selected(i: Any, x: Any) -> Any:
    is_few = hr.logical_or(hr.equal(i, 2), hr.greater_equal(i, 5))
    return i + 1, hr.cond(is_few, lambda: x * 10 + hr.cast(i, hr.int64), lambda: x)


@pytest.mark.usefixtures("python_target")
def test_a_predicate_compares_a_counter_as_a_number_of_python() -> None:
    with hr.Graph():
        n = hr.placeholder("int32", [], name="n")
        x = hr.while_loop(lambda i, x: i < n, _selected, (0, hr.constant(0, hr.int64)))[1]
        assert both(x, {n: 7}) == 256
        text = source(x, [n])
    (first, second) = [line.split(" = ")[1] for line in text.splitlines() if "== 2" in line or ">= 5" in line]
    assert first.startswith("i")
    assert ">= 5" in second
    assert text.count("= f") == 0  # the scalar of the counter is made in the branch, as an argument


@pytest.mark.usefixtures("python_target")
def test_a_comparison_that_is_also_a_value_is_one_of_numpy() -> None:
    def body(i: Any, x: Any, last: Any) -> Any:
        is_second = hr.equal(i, 1)
        return i + 1, hr.cond(is_second, lambda: x + 1, lambda: x), hr.logical_not(is_second)

    with hr.Graph():
        n = hr.placeholder("int32", [], name="n")
        fetches = hr.while_loop(lambda i, x, last: i < n, body, (0, 0, False))[1:]
        assert [bool(v) for v in both(fetches, {n: 2})] == [True, False]
        assert [bool(v) for v in both(fetches, {n: 3})] == [True, True]
