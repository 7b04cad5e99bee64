"""Kernels of other namespaces have the values of numpy for extreme and wrong inputs too.

`test_namespaces.py` runs all portable kernels on the cases of their records.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from headrace.dtypes import (
    DType,
    bfloat16,
    bool_,
    complex64,
    float16,
    float32,
    float64,
    int8,
    int32,
    int64,
    uint8,
    uint64,
)
from headrace.errors import InternalError, InvalidArgumentError
from headrace.ir.opdef import case, op_registry
from headrace.opkit.namespaces import number
from tests.ops.cases import constant_op, flat, kernel_of
from tests.ops.namespaces import NAMESPACES, Namespace

pytestmark = [pytest.mark.matrix, pytest.mark.one_engine]

STRANGE = np.array([0.0, -0.0, 1.5, -1.5, np.inf, -np.inf, np.nan], np.float32)


@pytest.fixture(params=NAMESPACES)
def there(request: pytest.FixtureRequest) -> Namespace:
    made: Namespace = NAMESPACES[request.param]()
    return made


def both(there: Namespace, type: str, *inputs: Any, **attrs: Any) -> tuple[np.ndarray, np.ndarray]:
    """The result of a kernel in a namespace, and that for numpy."""
    op = constant_op(op_registry.get(type), case(*inputs, **attrs))
    args = flat(inputs)
    kernel = op.opdef.kernel
    assert kernel is not None
    with np.errstate(all="ignore"):
        got = there.get(kernel(there.xp, op.attrs)(*map(there.put, args)))
        return got, np.asarray(kernel_of(op)(*args))


def agree(there: Namespace, type: str, *inputs: Any, **attrs: Any) -> None:
    got, want = both(there, type, *inputs, **attrs)
    assert got.dtype == want.dtype
    if want.dtype == bfloat16.numpy:
        got, want = got.astype(np.float32), want.astype(np.float32)
    np.testing.assert_array_equal(got, want)


def fails(there: Namespace, error: type[Exception], match: str, type: str, *inputs: Any) -> None:
    op = constant_op(op_registry.get(type), case(*inputs))
    for namespace, put in ((np, np.asarray), (there.xp, there.put)):
        kernel = op.opdef.kernel
        assert kernel is not None
        with pytest.raises(error, match=match):
            kernel(namespace, op.attrs)(*map(put, flat(inputs)))


def test_complex_numbers_of_all_parts(there: Namespace) -> None:
    real, imag = (x.ravel() for x in np.meshgrid(STRANGE, STRANGE))
    if there.xp.__name__.endswith("torch"):  # whose sum of a number and an infinite one is NaN
        fine = np.isfinite(real) | np.isfinite(imag)
        real, imag = real[fine], imag[fine]
    agree(there, "Complex", real, imag, Tout=complex64)
    agree(there, "Complex", np.float32(2), imag, Tout=complex64)


def test_complex_numbers_keep_the_signs_of_zeros() -> None:
    real, imag = (x.ravel() for x in np.meshgrid(STRANGE[:-1], STRANGE[:-1]))
    got, want = both(NAMESPACES["array_api_strict"](), "Complex", real, imag, Tout=complex64)
    np.testing.assert_array_equal(np.signbit(got.real), np.signbit(want.real))
    np.testing.assert_array_equal(np.signbit(got.imag), np.signbit(want.imag))


@pytest.mark.parametrize("to", [int8, uint8, int32, int64, uint64], ids=str)
@pytest.mark.parametrize("of", [float16, float32, float64], ids=str)
def test_a_float_outside_of_the_range_of_integers(there: Namespace, of: DType, to: DType) -> None:
    if not {of, to} <= there.dtypes:
        pytest.skip("the namespace has no such dtypes")
    large = [2.0**k * sign for k in (7, 8, 15, 16, 31, 32, 63, 64) for sign in (1, -1)]
    with np.errstate(over="ignore"):
        x = np.array([*STRANGE, 300, -300, 2**31 - 1, -(2**31), *large, 1e30]).astype(of.numpy)
    agree(there, "Cast", x, DstT=to)


@pytest.mark.parametrize("to", [float32, float16, bfloat16], ids=str)
@pytest.mark.parametrize("of", [float32, float64], ids=str)
def test_a_cast_that_rounds_towards_zero(there: Namespace, of: DType, to: DType) -> None:
    if to not in there.dtypes:
        pytest.skip("the namespace has no such dtype")
    rng = np.random.default_rng(0)
    with np.errstate(over="ignore"):
        x = (rng.standard_normal(5000) * 10.0 ** rng.integers(-4, 5, 5000)).astype(of.numpy)
        edges = np.array([1, 2 - 2.0**-12, 2 - 2.0**-22, 1 + 2.0**-12, 65519, 65536, 1e38, 1e300], of.numpy)
    agree(there, "Cast", np.concatenate([x, edges, -edges, STRANGE.astype(of.numpy)]), DstT=to, Truncate=True)


@pytest.mark.parametrize("type", ["Mod", "TruncateDiv", "FloorDiv", "FloorMod"])
def test_remainders_of_both_signs(there: Namespace, type: str) -> None:
    x, y = (v.ravel() for v in np.meshgrid(np.arange(-7, 8), [-3, -2, -1, 1, 2, 3]))
    agree(there, type, x.astype(np.int32), y.astype(np.int32))
    agree(there, type, x.astype(np.float32) / 2, y.astype(np.float32))


def test_remainders_of_strange_numbers(there: Namespace) -> None:
    x, y = (v.ravel() for v in np.meshgrid(STRANGE, STRANGE[2:]))
    got, want = both(there, "Mod", x, y)
    np.testing.assert_array_equal(got, want)


def test_division_of_integers_by_zero(there: Namespace) -> None:
    x, y = np.array([4, 2]), np.array([1, 0])
    fails(there, InvalidArgumentError, "Integer division by zero", "FloorDiv", x, y)
    fails(there, InternalError, "Integer division by zero", "TruncateDiv", x, y)
    fails(there, InvalidArgumentError, "Integer division by zero", "FloorMod", x, y[1])


def test_integers_to_negative_powers(there: Namespace) -> None:
    fails(there, ValueError, "negative integer powers", "Pow", np.array([2, 3]), np.array([1, -1]))


def test_shifts_by_too_many_bits(there: Namespace) -> None:
    x, y = np.array([1, -1, 100, -100], np.int8), np.array([9, 9, -1, 3], np.int8)
    for type in ("LeftShift", "RightShift"):
        agree(there, type, x, y)


def test_bits_of_negative_integers(there: Namespace) -> None:
    for t in (np.int8, np.int32, np.int64):
        agree(there, "PopulationCount", np.array([0, 1, -1, np.iinfo(t).min, np.iinfo(t).max], t))


def test_log1p_of_small_complex_numbers(there: Namespace) -> None:
    x = np.array([1e-9 + 1e-8j, -1e-12j, 3 + 4j, -0.5 + 0.1j, 0])
    got, want = both(there, "Log1p", x)
    np.testing.assert_allclose(got, want, rtol=1e-14)


def test_a_check_of_numbers_names_what_it_found(there: Namespace) -> None:
    x = np.array([1.0, np.nan, -np.inf], np.float32)
    for type, match in (("CheckNumerics", "Inf and NaN"), ("CheckNumericsV2", "-Inf and NaN")):
        op = constant_op(op_registry.get(type), case(x, message="m"))
        kernel = op.opdef.kernel
        assert kernel is not None
        with pytest.raises(InvalidArgumentError, match=f"m : Tensor had {match} values"):
            kernel(there.xp, op.attrs)(there.put(x))


def test_running_logarithms_of_sums(there: Namespace) -> None:
    x = np.array([[-np.inf, 1, 700, 3, -5, 2, 800]])
    for exclusive in (False, True):
        for reverse in (False, True):
            got, want = both(there, "CumulativeLogsumexp", x, np.int32(1), exclusive=exclusive, reverse=reverse)
            np.testing.assert_allclose(got, want, rtol=1e-14)


def test_a_softmax_of_no_columns(there: Namespace) -> None:
    for type in ("Softmax", "LogSoftmax"):
        agree(there, type, np.zeros((2, 0), np.float32))


def test_a_histogram_of_values_outside_of_its_range(there: Namespace) -> None:
    x = np.array([-9, 0, 1, 1.5, 4, 5, 99, np.inf, -np.inf], np.float32)
    agree(there, "HistogramFixedWidth", x, np.array([0, 5], np.float32), np.int32(5))
    fails(
        there, InvalidArgumentError, "but got '\\[5.0, 0.0\\]'",
        "HistogramFixedWidth", x, np.array([5, 0], np.float32), np.int32(5),
    )  # fmt: skip


def test_numbers_of_a_namespace() -> None:
    assert type(number(np, 1, float32)) is np.float32
    xp = NAMESPACES["array_api_strict"]().xp
    assert type(number(xp, 0.1, float32)) is float
    assert number(xp, 0.1, float32) == float(np.float32(0.1))
    assert [type(number(xp, 1, t)) for t in (int32, complex64, bool_)] == [int, complex, bool]
