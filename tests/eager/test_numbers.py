"""Python numbers and lists of integers as arguments of eager ops."""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np
import pytest

import headrace as hr
from headrace.eager import EagerBuilder
from headrace.opkit.scalar_operators import SCALAR_OPERATORS

DTYPES = [hr.float32, hr.float64, hr.int32, hr.int64, hr.float16, hr.bfloat16, hr.uint8, hr.complex64, hr.bool]
NUMBERS = [2, 0, -3, 2.5, -0.0, 1e30, 1e39, math.inf, math.nan, True, 2**31, 2**40, -(2**31), 2**70, 2j]


def outcome(b: EagerBuilder, type: str, *args: Any) -> tuple[Any, ...]:
    """The dtype, shape and bits of a result, or an error."""
    try:
        with np.errstate(all="ignore"):  # a number too large for float32 becomes an infinity
            made = b.make(type, args, {})
    except (TypeError, ValueError, OverflowError, hr.errors.OpError) as e:
        return e.__class__, str(e)
    return made.dtype, made.shape, np.asarray(made).tobytes()


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: d.name)
@pytest.mark.parametrize("type", ["AddV2", "Less", "Pow", "RealDiv", "Equal"])
@pytest.mark.parametrize("value", [[1.0, 2.0], 3.0], ids=["vector", "scalar"])
def test_a_known_call_with_a_number_is_equal_to_the_first(value: Any, type: str, dtype: Any) -> None:
    known = EagerBuilder()
    x = hr.cast(hr.constant(value), dtype)
    for number in (2, 2.0, True):  # now the memo knows calls with these classes
        outcome(known, type, x, number)
        outcome(known, type, number, x)
    for number in NUMBERS:
        for args in ((x, number), (number, x)):
            assert outcome(known, type, *args) == outcome(EagerBuilder(), type, *args), (args, number)


@pytest.mark.parametrize("number", [2.0, 2, 0.1, -3])
def test_the_gradient_with_a_number_is_that_with_a_tensor(number: Any) -> None:
    x = hr.constant([0.5, 2.0])

    def gradient(other: Any) -> Any:
        with hr.GradientTape() as tape:
            tape.watch(x)
            y = (x * other - other) / other + x**other
        return tape.gradient(y, x).numpy()

    for _ in range(2):  # the memo knows the second
        np.testing.assert_array_equal(gradient(number), gradient(hr.constant(float(number))))


def test_numbers_alone_have_the_dtype_of_their_size() -> None:
    b = EagerBuilder()
    for first, second in ((1, 2**40), (2**40, 1), (1, 1)):
        for x, y in ((first, first), (second, second), (2**40, 2**41)):
            assert outcome(b, "AddV2", x, y) == outcome(EagerBuilder(), "AddV2", x, y)


@pytest.mark.parametrize("shape", [[3, 2], (2, 3), [6], [-1, 2], [2**31, 1], [2.0, 3], [], [True], [[6]], (6, "a")])
def test_a_known_call_with_integers_is_equal_to_the_first(shape: Any) -> None:
    known, x = EagerBuilder(), hr.constant(np.arange(6.0))
    outcome(known, "Reshape", x, [1, 6])
    outcome(known, "Reshape", x, (1, 6))
    assert outcome(known, "Reshape", x, shape) == outcome(EagerBuilder(), "Reshape", x, shape)


def test_a_list_of_tensors_is_packed_each_time() -> None:
    b, n = EagerBuilder(), hr.constant(3)
    for _ in range(2):
        assert b.make("Reshape", (hr.constant(np.arange(6.0)), [n, 2]), {}).shape == (3, 2)
        assert b.make("BroadcastTo", (hr.constant(1.0), [n]), {}).shape == (3,)


def test_a_list_that_changes_after_the_call_does_not_change_the_recording() -> None:
    x, shape = hr.constant(np.arange(6.0)), [3, 2]
    parts = [x, x]
    with hr.GradientTape() as tape:
        tape.watch(x)
        y = hr.reshape(x * x, shape)
        z = hr.concat(parts, 0)
    shape[:] = [100, 100]
    parts.append(hr.constant([1.0]))
    np.testing.assert_allclose(tape.gradient([y, z], x), 2 * np.arange(6.0) + 2)


@pytest.mark.parametrize("ufunc", SCALAR_OPERATORS, ids=lambda f: f.__name__)
def test_operators_on_scalars_are_equal_to_ufuncs(ufunc: np.ufunc) -> None:
    operator = SCALAR_OPERATORS[ufunc]
    rng = np.random.default_rng(0)
    for dtype in (np.float16, np.float32, np.float64, np.int8, np.int32, np.int64, np.uint8, np.bool_):
        if np.dtype(dtype).kind not in operator.kinds:
            continue
        values = (rng.normal(size=20) * 1e3).astype(dtype)
        if np.dtype(dtype).kind == "f":
            values[:5] = [np.nan, np.inf, -np.inf, 0.0, -0.0]
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            for args in zip(*[rng.permutation(values) for _ in range(ufunc.nin)], strict=True):
                found, want = operator.function(*args), ufunc(*args)
                assert (found.dtype, found.tobytes()) == (want.dtype, want.tobytes()), args
            arrays = [values.reshape(4, 5)] * ufunc.nin
            np.testing.assert_array_equal(operator.function(*arrays), ufunc(*arrays))


def test_no_warning_of_numpy_reaches_the_user_and_the_state_is_as_before() -> None:
    before = np.geterr()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert float(hr.constant(1.0) / 0.0) == math.inf
        assert float(hr.constant(3e38) * 10.0) == math.inf
        assert int(hr.constant(2**31 - 1) + 1) == -(2**31)
        with pytest.raises(hr.errors.InvalidArgumentError):
            hr.constant([1.0]) + hr.constant([1.0, 2.0, 3.0][:2]) + hr.constant([1.0] * 3)
    assert np.geterr() == before
