"""Complex numbers in native code: numpy's bits in arithmetic, and loops of one region."""

from __future__ import annotations

import itertools
from typing import Any
from unittest import mock

import numpy as np
import pytest

pytest.importorskip("llvmlite")

import headrace as hr
from headrace import flags, thresholds
from headrace.schedule.scalar_expressions import Apply, Input
from headrace.targets.native import complex_scalars, engine, scalars
from tests.targets.native import region_running as running
from tests.targets.native.complex_programs import PROGRAMS, numbers
from tests.targets.native.running import apply, of_expression, of_ufunc
from tests.targets.native.test_scalars import EVERY, check_conversion, differing

with flags.override(NATIVE="on"):
    if engine.available():
        pytest.skip(engine.available(), allow_module_level=True)

pytestmark = [pytest.mark.one_engine, pytest.mark.matrix]  # each dtype with each program

SINGLE, DOUBLE = map(np.dtype, (np.complex64, np.complex128))
BOTH = pytest.mark.parametrize("dtype", [SINGLE, DOUBLE], ids=str)
EXACT = {u.__name__: u for u in complex_scalars.ARITHMETIC}

#: The greatest errors of functions: distances from the true result in units of its absolute value times epsilon.
BOUNDS = {
    "exp": 2.0,
    "log": 1.5,
    "sqrt": 2.0,
    "sin": 2.0,
    "cos": 2.0,
    "sinh": 2.0,
    "cosh": 2.0,
    "tan": 3.0,
    "tanh": 3.0,
    "expm1": 3.0,
    "log1p": 2.0,
    "sign": 2.0,
}


def _log1p(x: np.ndarray) -> np.ndarray:
    """The logarithm of 1 + x, which numpy computes by a rounded sum."""
    near = np.log1p(x.real * (2 + x.real) + x.imag * x.imag) / 2
    moved = x.copy()
    moved.real += 1  # which keeps the sign of an imaginary zero
    whole = np.log(moved)
    whole.real = np.where(abs(x) < 0.5, near, whole.real)
    return whole


def _expm1(x: np.ndarray) -> np.ndarray:
    """exp(x) - 1, which is infinite where exp(x) is."""
    return np.where(x.real > 1, np.exp(x) - 1, np.expm1(x))


#: Functions in place of those of numpy, as the truth.
TRUTHS: dict[str, Any] = {"log1p": _log1p, "expm1": _expm1}


def parts(x: np.ndarray) -> np.ndarray:
    """The parts of complex numbers, along one more axis."""
    return np.stack([x.real, x.imag], -1) if x.dtype.kind == "c" else x


def every(dtype: np.dtype, count: int = 30) -> np.ndarray:
    """Numbers whose parts are special or of all sizes, each with each."""
    part = np.dtype(f"f{dtype.itemsize // 2}")
    limits = np.finfo(part)
    special = [0.0, -0.0, 1, -1, 0.5, -2, np.inf, -np.inf, np.nan, 1e20, 80, -100, 700, -750]
    special += [limits.max, -limits.max, limits.tiny, -limits.smallest_subnormal]
    rng = np.random.default_rng(1)
    some = rng.normal(size=count) * 10.0 ** rng.integers(-20, 20, count)
    ends = np.concatenate([np.array(special), some]).astype(part)
    return np.array(list(itertools.product(ends, ends)), part).view(dtype)[:, 0]


# *** Arithmetic ***


def check_ufunc(ufunc: np.ufunc, dtype: np.dtype, level: int) -> None:
    given = [every(dtype)]
    if ufunc.nin == 2:
        rng, x = np.random.default_rng(2), given[0]
        given = [np.concatenate([x] * 6), np.concatenate([rng.permutation(x) for _ in range(6)])]
    with np.errstate(all="ignore"):
        want = ufunc(*given)
    got = of_ufunc(ufunc, (dtype,) * ufunc.nin, level)(*given)
    wrong = differing(parts(want), parts(got))
    assert not wrong.size, (wrong.size, [(*(x[i // 2] for x in given),) for i in wrong[:3]])


@pytest.mark.parametrize("name", EXACT)
def test_arithmetic_is_that_of_numpy(name: str) -> None:
    check_ufunc(EXACT[name], DOUBLE, 1)


@pytest.mark.matrix
@BOTH
@pytest.mark.parametrize("name", EXACT)
def test_vectorized_arithmetic_is_that_of_numpy(name: str, dtype: np.dtype) -> None:
    check_ufunc(EXACT[name], dtype, 2)


@pytest.mark.parametrize("number", [0.5, -2, 1 - 3j, np.float32(0.1), np.inf, 0.0])
def test_a_number_in_an_expression_becomes_complex(number: Any) -> None:
    x = every(SINGLE, 8)
    for ufunc in (np.multiply, np.divide, np.add):
        with np.errstate(all="ignore"):
            want = ufunc(x, number)
        got = of_expression(Apply(ufunc, (Input(0), number), want.dtype, None), (SINGLE,), 1)(x)
        assert not differing(parts(want), parts(got)).size


@pytest.mark.parametrize(
    "name", ["add", "multiply", "divide", "reciprocal", "exp", "log", "power", "sqrt", "sin", "cos", "tanh"]
)
def test_loops_are_vectorized(name: str) -> None:
    optimized = of_ufunc(getattr(np, name), (SINGLE,) * getattr(np, name).nin).optimized
    assert "<16 x float>" in optimized[optimized.index("vector.body:") :] or "<8 x float>" in optimized


# *** Conversions ***


@BOTH
def test_complex_numbers_are_converted_as_by_the_op_cast(dtype: np.dtype) -> None:
    x = every(dtype, 8)
    for target in (np.dtype(np.float32), SINGLE, DOUBLE):
        with np.errstate(all="ignore"):
            want = x.astype(target) if target.kind == "c" else x.real.astype(target)
        as_type: Any = np.astype
        got = of_expression(Apply(as_type, (Input(0),), target, None), (dtype,), 1)(x)
        assert not differing(parts(want), parts(got)).size


@pytest.mark.matrix
@pytest.mark.parametrize("source", EVERY, ids=str)
def test_all_numbers_become_complex_as_by_the_op_cast(source: np.dtype) -> None:
    for target in (SINGLE, DOUBLE):
        check_conversion(source, target)


def test_parts_are_taken_and_joined() -> None:
    node: Any = Apply(complex, (Apply(np.imag, (Input(0),), np.dtype("f4"), None), 2.0), SINGLE, None)  # type: ignore[arg-type]
    x = every(SINGLE, 8)
    got = of_expression(node, (SINGLE,), 1)(x)
    assert (got.real.view("u4") == x.imag.copy().view("u4")).all()
    assert (got.imag == 2).all()


# *** Functions ***


def classes(x: np.ndarray) -> np.ndarray:
    """The kinds of numbers: NaN, infinities and others, with their signs."""
    return np.where(np.isnan(x), 3, np.where(np.isinf(x), np.sign(x), 0))


@BOTH
@pytest.mark.parametrize("name", BOUNDS)
def test_errors_of_functions_are_within_their_bounds(name: str, dtype: np.dtype) -> None:
    if dtype == DOUBLE and np.finfo(np.longdouble).nmant < 60:
        pytest.skip("no format is wider than double")
    ufunc, x = getattr(np, name), every(dtype)
    rng = np.random.default_rng(3)
    x = np.concatenate([x, numbers(rng, (2000,), dtype) * 3, 1 + numbers(rng, (200,), dtype) * 1e-3])
    got = of_ufunc(ufunc, (dtype,), 1)(x)
    truth = TRUTHS.get(name, ufunc)
    with np.errstate(all="ignore"):
        want, numpys = truth(x.astype(np.clongdouble)), truth(x)
        limits = np.finfo(dtype)
        is_known = np.isfinite(numpys) & np.isfinite(want) & (abs(want) > 8 * limits.tiny)
        errors = abs(got - want)[is_known] / abs(want)[is_known] / limits.eps
    assert errors.max() <= BOUNDS[name], x[is_known][errors.argmax()]
    mine, other = (parts(v)[np.isfinite(x)] for v in (got, numpys))
    assert (classes(mine) == classes(other)).all()
    zeros = (mine == 0) & (other == 0)
    assert (np.signbit(mine) == np.signbit(other))[zeros].all()


@BOTH
@pytest.mark.parametrize("name", ["exp", "log", "sign", "sqrt", "tan", "tanh"])
def test_infinities_and_nan_have_the_results_of_the_c_library(name: str, dtype: np.dtype) -> None:
    x = every(dtype, 4)
    with np.errstate(all="ignore"):
        want = getattr(np, name)(x)
    got = of_ufunc(getattr(np, name), (dtype,), 1)(x)
    wrong = np.flatnonzero((classes(parts(want)) != classes(parts(got))).any(-1))
    assert not wrong.size, [(x[i], want[i], got[i]) for i in wrong[:3]]


@pytest.mark.parametrize("name", ["arctan", "arcsin", "arccosh"])
def test_other_functions_are_left_to_the_kernels(name: str) -> None:
    ufunc = getattr(np, name)
    node = apply(ufunc, (SINGLE,) * ufunc.nin)
    assert scalars.why_not(node, (SINGLE,) * ufunc.nin) == f"{name} of complex64 has no form in LLVM"


@BOTH
def test_powers(dtype: np.dtype) -> None:
    """Whole exponents are products; errors of others grow with the result's exponent."""
    rng = np.random.default_rng(4)
    x, eps = numbers(rng, (500,), dtype) * 2, np.finfo(dtype).eps
    power = of_ufunc(np.power, (dtype, dtype), 1)
    for n in (0, 1, 2, 3, -1, -4, 17, 99):
        y = np.full_like(x, n)
        with np.errstate(all="ignore"):
            got, want = power(x, y), np.power(x.astype(np.clongdouble), n)
        is_known = (abs(want) < 1e30) & (abs(want) > 1e-30)
        assert (abs(got - want) <= 2 * max(abs(n), 2) * eps * abs(want))[is_known].all(), n
    y = numbers(rng, (500,), dtype) * 3
    with np.errstate(all="ignore"):
        want, size = np.power(x.astype(np.clongdouble), y), abs(y * np.log(x))
    is_known = (abs(want) < 1e30) & (abs(want) > 1e-30)
    assert (abs(power(x, y) - want) <= (3 + 2 * size) * eps * abs(want))[is_known].all()


def test_powers_of_zero_and_by_zero_are_those_of_numpy() -> None:
    x = np.array([0, 0, 0, 0, 0, 2, np.nan, np.inf], SINGLE)
    y = np.array([0, 2, -1, 0.5 + 1j, 1j, 0, 0, 0], SINGLE)
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(of_ufunc(np.power, (SINGLE, SINGLE), 1)(x, y), np.power(x, y))


# *** Programs ***


def check_program(name: str, dtype: Any, verify: int = 0) -> None:
    with hr.Graph(), flags.override(VERIFY=verify):
        fetches, feeds = PROGRAMS[name](np.random.default_rng(5), dtype)
        with running.compared(running.close) as seen, hr.Session(engine="compiled") as session:
            got = session.run(fetches, feeds)
        assert seen.compared == 1, seen.reasons
        with flags.override(NATIVE="off"), hr.Session(engine="interpret") as session:
            for mine, want in zip(got, session.run(fetches, feeds), strict=True):
                running.close(mine, want)
                assert type(mine) is type(want)


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize(
    "dtype", [hr.complex64, pytest.param(hr.complex128, marks=pytest.mark.matrix)], ids=lambda d: d.name
)
def test_a_loop_of_complex_numbers_is_one_region_with_its_gradient(name: str, dtype: Any) -> None:
    check_program(name, dtype)


@pytest.mark.matrix
@pytest.mark.parametrize("name", PROGRAMS)
def test_no_program_writes_outside_of_its_memory(name: str) -> None:
    check_program(name, hr.complex128, 3)


@pytest.mark.parametrize(("name", "dtype"), [("mandelbrot", SINGLE), ("escape", SINGLE), ("escape", DOUBLE)], ids=str)
def test_steps_take_and_return_complex_values(name: str, dtype: np.dtype) -> None:
    with hr.Graph():
        fetches, feeds = PROGRAMS[name](np.random.default_rng(5), hr.as_dtype(dtype))
        with flags.override(CACHE="off"), hr.Session() as session:
            call = session.make_callable(fetches, list(feeds))
            first, *others = [call(*feeds.values()) for _ in range(3)]
            assert len(hr.explain(call).native) == 1
            loose = call(*(v.tolist() if isinstance(v, np.ndarray) else v.item() for v in feeds.values()))
            with pytest.raises(hr.errors.FeedError):
                call("z", *list(feeds.values())[1:])
    for found in (*others, loose):
        for a, b in zip(first, found, strict=True):
            assert type(a) is type(b)
            assert np.array_equal(a, b)
            assert a.dtype == b.dtype


# *** Products ***

SIZES = [(1, 1, 1), (3, 4, 5), (4, 16, 16), (1, 7, 9), (9, 1, 2), (2, 3, 1), (33, 20, 17)]


def check_product(m: int, k: int, n: int, turned: tuple[bool, bool], dtype: Any, view: Any = lambda x: x) -> None:
    rng = np.random.default_rng(7)
    a, b = numbers(rng, (k, m) if turned[0] else (m, k), dtype), numbers(rng, (n, k) if turned[1] else (k, n), dtype)
    with hr.Graph():
        x, y = hr.placeholder(dtype, a.shape), hr.placeholder(dtype, b.shape)
        z = hr.matmul(view(x), view(y), transpose_a=turned[0], transpose_b=turned[1])
        with running.compared(running.close) as seen, hr.Session(engine="compiled") as session:
            got = session.run(hr.identity(z), {x: a, y: b})
        assert seen.compared == 1, seen.reasons
        with hr.Session(engine="interpret") as session:
            np.testing.assert_allclose(got, session.run(z, {x: a, y: b}), 1e-4, 1e-5)


@pytest.mark.parametrize("turned", [(False, False), (True, False), (False, True)], ids=str)
def test_products_are_those_of_numpy(turned: tuple[bool, bool]) -> None:
    check_product(3, 4, 5, turned, hr.complex64)


@pytest.mark.matrix
@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("turned", list(itertools.product([False, True], repeat=2)), ids=str)
def test_products_of_all_shapes_are_those_of_numpy(size: tuple[int, int, int], turned: tuple[bool, bool]) -> None:
    check_product(*size, turned, hr.complex64)
    check_product(*size, turned, hr.complex128, lambda x: hr.reverse(x, [0]))
    check_product(*size, turned, hr.complex64, lambda x: hr.reverse(x, [1]))


BATCHES = [((2, 3, 4), (2, 4, 5)), ((4, 3), (2, 2, 3, 2)), ((2, 1, 3, 4), (3, 4, 2)), ((2, 5, 33), (33, 20))]


@pytest.mark.parametrize("adjoint", list(itertools.product([False, True], repeat=2)), ids=str)
@pytest.mark.parametrize("shapes", [BATCHES[0], *(pytest.param(s, marks=pytest.mark.matrix) for s in BATCHES[1:])])
def test_products_of_batches_and_their_gradients(shapes: Any, adjoint: tuple[bool, bool]) -> None:
    rng = np.random.default_rng(3)
    values = [numbers(rng, s, hr.complex64) for s in shapes]
    for k in range(2):
        if adjoint[k]:
            values[k] = np.ascontiguousarray(values[k].swapaxes(-1, -2))
    with hr.Graph():
        x, y = (hr.placeholder(hr.complex64, v.shape) for v in values)
        z = hr.matmul(x, hr.reverse(y, [-1]), adjoint_a=adjoint[0], adjoint_b=adjoint[1])
        slopes = hr.gradients(hr.reduce_sum(hr.real(z * hr.conj(z))), [x, y])
        fetches = [hr.identity(z), *map(hr.convert_to_tensor, slopes)]
        feeds = dict(zip((x, y), values, strict=True))
        with running.compared(running.close) as seen, hr.Session(engine="compiled") as session:
            got = session.run(fetches, feeds)
        assert seen.compared == 1, seen.reasons
        with hr.Session(engine="interpret") as session:
            for a, b in zip(got, session.run(fetches, feeds), strict=True):
                np.testing.assert_allclose(a, b, 1e-4, 1e-4)


# *** Running results ***


@BOTH
def test_running_results(dtype: np.dtype) -> None:
    with hr.Graph():
        x = hr.placeholder(hr.as_dtype(dtype), (3, 4))
        fetches = [hr.cumsum(x, 0, exclusive=True), hr.cumprod(x, 1), hr.cumprod(x, 1, exclusive=True, reverse=True)]
        running.run(fetches, {x: numbers(np.random.default_rng(2), (3, 4), dtype)})


# *** Large arrays ***


def compare_with_python(fetches: Any, feeds: dict[Any, Any]) -> None:
    results = []
    for flag in ("on", "off"):
        with flags.override(NATIVE=flag, CACHE="off"), hr.Session(engine="compiled", intra_op_threads=2) as session:
            results.append(session.run(fetches, feeds))
            is_native = session.explain(fetches, list(feeds)).native_source
        assert bool(is_native) == (flag == "on")
    for mine, want in zip(*results, strict=True):
        np.testing.assert_allclose(mine, want, 2e-4 if want.dtype == SINGLE else 1e-10, 1e-6)


@pytest.mark.system
@BOTH
def test_parts_of_large_arrays_and_their_sums_are_those_of_python(dtype: np.dtype) -> None:
    rng, kind = np.random.default_rng(9), hr.as_dtype(dtype)
    with hr.Graph():
        x, c = hr.placeholder(kind, [600, 500]), hr.placeholder(kind, [])
        y = hr.exp(x * c) + c
        shares = y / hr.reduce_sum(y, [1], keepdims=True)
        fetches = [y * y, hr.reduce_sum(y), hr.reduce_mean(shares, 0), hr.reduce_sum(shares * hr.conj(y), [0, 1])]
        with mock.patch.multiple(thresholds, STRIPPED_BYTES=1 << 12, STRIP_BYTES=1 << 13):
            compare_with_python(fetches, {x: numbers(rng, (600, 500), kind) * 0.3, c: dtype.type(0.3 - 0.6j)})


@BOTH
def test_kernels_of_large_arrays_use_native_functions(dtype: np.dtype) -> None:
    from headrace.ir.opdef import op_registry
    from headrace.targets.native.maps import NativeMaps

    x = numbers(np.random.default_rng(0), (5, 7), dtype)
    compute = NativeMaps()
    for name, takes in (("Exp", 1), ("Neg", 1), ("Sqrt", 1), ("RealDiv", 2), ("SigmoidGrad", 2), ("AddV2", 2)):
        record = op_registry.get(name)
        attrs = record.complete_attrs({"T": hr.as_dtype(dtype)})
        found = compute.elementwise(record.kernel, attrs, [dtype])(*[x] * takes)
        assert (found is None) == (name == "AddV2")
        if found is not None:
            np.testing.assert_allclose(found, record.kernel(np, attrs)(*[x] * takes), 1e-5)
