"""Single operations of native code are those of numpy's kernels."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("llvmlite")

import headrace as hr
from headrace import dtypes, flags, thresholds
from headrace.dtypes import DType
from headrace.ir.opdef import op_registry
from headrace.targets.native.maps import NativeMaps
from tests.ops.cases import RTOL, cases, first_types, flat, records

_FLOATS = (dtypes.float32, dtypes.float64, dtypes.float16, dtypes.bfloat16)


def _computed(type: str, arrays: list[np.ndarray], **attrs: Any) -> Any:
    """The results of native code; None if it leaves them to the kernel."""
    record = op_registry.get(type)
    complete = record.complete_attrs(attrs)
    made = [d.numpy for d in record.output_dtypes(complete)]
    compute = NativeMaps().elementwise(record.kernel, complete, made)
    return None if compute is None else compute(*arrays)


def _expected(type: str, arrays: list[np.ndarray], **attrs: Any) -> Any:
    record = op_registry.get(type)
    with np.errstate(all="ignore"):
        return record.kernel(np, record.complete_attrs(attrs))(*arrays)


def _assert_equal(mine: Any, expected: Any, rtol: float, atol: float) -> None:
    pairs = zip(*(v if isinstance(v, tuple) else (v,) for v in (mine, expected)), strict=True)
    for a, b in pairs:
        assert (a.shape, a.dtype) == (b.shape, b.dtype)
        np.testing.assert_allclose(a.astype(np.float64), b.astype(np.float64), rtol, atol)


@pytest.mark.matrix
@pytest.mark.parametrize("dtype", _FLOATS, ids=str)
def test_operations_of_the_registry_are_those_of_their_kernels(dtype: DType):
    compared = set()
    for record in records():
        if record.kernel is None or record.facts.cost is None or record.sample is None:
            continue
        types = [name for name, spec in record.attrs.items() if spec.kind == "type" and not spec.is_list]
        if len(types) != 1 or dtype not in first_types(record) or any(a.is_list for a in (*record.ins, *record.outs)):
            continue
        every = [c for c in cases(record.type, dtype) if c.inputs and all(a.size for a in flat(c.inputs))]
        if not every:
            continue
        case = max(every, key=lambda c: flat(c.inputs)[0].size)  # LLVM takes a few milliseconds for each
        arrays, attrs = flat(case.inputs), {**case.attrs, types[0]: dtype}
        mine = _computed(record.type, arrays, **attrs)
        if mine is not None:
            compared.add(record.type)
            _assert_equal(mine, _expected(record.type, arrays, **attrs), RTOL[dtype.name], RTOL[dtype.name] / 10)
    assert compared >= {"Sigmoid", "Softplus", "Elu", "SoftplusGrad", "DivNoNan", "Softmax", "LogSoftmax"}
    assert ("AddV2" in compared) == (dtype.numpy.itemsize == 2)


@pytest.mark.parametrize(
    ("x", "y"),
    [
        ((3, 5, 7), (3, 5, 7)),
        ((3, 5, 7), (7,)),
        ((3, 5, 7), (5, 7)),
        ((3, 5, 1), (3, 5, 7)),
        ((3, 1, 1), (5, 7)),
        ((3, 5, 7), ()),
        ((1, 1), (4,)),
        ((9001,), (9001,)),
    ],
    ids=str,
)
def test_inputs_broadcast_as_those_of_numpy(x: tuple[int, ...], y: tuple[int, ...]):
    rng = np.random.default_rng(0)
    arrays = [rng.normal(size=s).astype(np.float32) for s in (x, y)]
    mine, expected = _computed("SquaredDifference", arrays, T=hr.float32), np.square(arrays[0] - arrays[1])
    assert mine.shape == expected.shape
    np.testing.assert_array_equal(mine, expected)


def test_other_broadcasts_are_left_to_numpy():
    x, y = np.ones((2, 3, 4), np.float32), np.ones((1, 3, 1), np.float32)
    assert _computed("SquaredDifference", [x, y], T=hr.float32) is None
    assert _computed("SquaredDifference", [x, np.ones((2, 2, 4), np.float32)], T=hr.float32) is None


def test_arrays_need_not_be_contiguous():
    x = np.random.default_rng(0).normal(size=(30, 40)).astype(np.float32)
    mine = _computed("SquaredDifference", [x.T[::2], x.T[1::2]], T=hr.float32)
    np.testing.assert_array_equal(mine, np.square(x.T[::2] - x.T[1::2]))


@pytest.mark.parametrize("dtype", [hr.float16, hr.bfloat16])
def test_arithmetic_of_half_precision_has_the_bits_of_numpy(dtype: DType):
    bits = np.random.default_rng(0).integers(0, 1 << 16, (2, 20_000)).astype(np.uint16)
    x, y = bits.view(dtype.numpy)
    with np.errstate(all="ignore"):
        for type, ufunc in (("AddV2", np.add), ("Mul", np.multiply), ("RealDiv", np.divide)):
            mine, expected = _computed(type, [x, y], T=dtype), ufunc(x, y)
            both = ~np.isnan(expected.astype(np.float32))
            np.testing.assert_array_equal(np.isnan(mine.astype(np.float32)), ~both)
            np.testing.assert_array_equal(mine[both].view(np.uint16), expected[both].view(np.uint16))


@pytest.mark.parametrize("type", ["AddV2", "Mul", "Neg", "Log", "Tan", "Pow"])
def test_ufuncs_that_are_quick_in_numpy_are_left_to_it(type: str):
    arrays = [np.ones(100, np.float32)] * len(op_registry.get(type).ins)
    assert _computed(type, arrays, T=hr.float32) is None


def test_small_arrays_and_a_switched_off_target_are_left_to_numpy(monkeypatch: pytest.MonkeyPatch):
    asked = []
    monkeypatch.setattr(NativeMaps, "elementwise", lambda *args: asked.append(args))
    x = np.ones(thresholds.NATIVE_MAP, np.float32)
    hr.nn.softsign(hr.constant(x[1:]))
    assert not asked
    hr.nn.softplus(hr.constant(x))
    assert len(asked) == 1
    with flags.override(NATIVE="off"):
        monkeypatch.undo()
        assert _computed("Sigmoid", [x], T=hr.float32) is None


def _run(engine: str, x: np.ndarray) -> list[np.ndarray]:
    with hr.Graph(), hr.Session(engine=engine, intra_op_threads=2) as session:
        v = hr.placeholder(hr.float32, [None, None])
        h = hr.cast(v, hr.bfloat16)
        fetches = [hr.sigmoid(v), hr.nn.softmax(v), hr.cast(h * h + h, hr.float32), hr.reduce_sum(h, 1)]
        return list(session.run(fetches, {v: x}))


@pytest.mark.one_engine
@pytest.mark.matrix
@pytest.mark.parametrize("engine", ["interpret", "auto"])
def test_steps_have_the_results_of_numpy_and_eager_code_those_of_the_interpreter(engine: str):
    x = np.random.default_rng(0).normal(size=(700, 100)).astype(np.float32)
    mine = _run(engine, x)
    for a, b in zip(mine, _run(engine, x), strict=True):
        np.testing.assert_array_equal(a, b)
    with flags.override(NATIVE="off"):
        expected = _run("interpret", x)
    for a, b in zip(mine, expected, strict=True):
        np.testing.assert_allclose(np.asarray(a, np.float64), np.asarray(b, np.float64), 1e-2, 1e-6)
    if engine == "interpret":
        np.testing.assert_array_equal(hr.sigmoid(hr.constant(x)).numpy(), mine[0])
        np.testing.assert_array_equal(hr.nn.softmax(hr.constant(x)).numpy(), mine[1])


@pytest.mark.system
def test_results_do_not_depend_on_the_number_of_threads():
    from headrace.execute import blas

    x = np.random.default_rng(0).normal(size=(3000, 300)).astype(np.float32)
    for type in ("Softplus", "Softmax", "LogSoftmax"):
        with blas.threads(1):
            one = _computed(type, [x], T=hr.float32)
        with blas.threads(2):
            two = _computed(type, [x], T=hr.float32)
        np.testing.assert_array_equal(one, two)


@pytest.mark.parametrize("flag", ["on", "off"])
def test_shapes_that_do_not_fit_have_the_same_error(flag: str):
    x = np.ones((200, 200), np.float32)
    with flags.override(NATIVE=flag), pytest.raises(hr.errors.InvalidArgumentError, match="must have the same size"):
        hr.raw_ops.TanhGrad(y=x, dy=x[:100])


# *** Rows ***


@pytest.mark.parametrize("type", ["Softmax", "LogSoftmax"])
@pytest.mark.parametrize("dtype", [hr.float32, hr.float64, hr.float16], ids=str)
@pytest.mark.parametrize("shape", [(1, 2), (5, 1000), (3, 4, 17), (300, 5)], ids=str)
def test_operations_on_rows_are_those_of_numpy(type: str, dtype: DType, shape: tuple[int, ...]):
    x = (np.random.default_rng(0).normal(size=shape) * 9).astype(dtype.numpy)
    x[(0,) * (x.ndim - 1)] = -np.inf, *np.full(shape[-1] - 1, 700 if dtype is not hr.float16 else 9)
    tolerance = {2: 2e-3, 4: 3e-6, 8: 1e-14}[dtype.size]
    _assert_equal(_computed(type, [x], T=dtype), _expected(type, [x], T=dtype), tolerance, tolerance)


def test_nan_and_infinity_stay_in_their_row():
    x = np.zeros((4, 40), np.float32)
    x[1, 7], x[2, 39] = np.nan, np.inf
    mine = _computed("Softmax", [x], T=hr.float32)
    assert np.isnan(mine).all(1).tolist() == [False, True, True, False]


@pytest.mark.parametrize("dtype", [hr.float32, hr.float64], ids=str)
def test_cross_entropies_are_those_of_numpy(dtype: DType):
    rng = np.random.default_rng(0)
    x, z = (rng.uniform(0, 1, (50, 700)).astype(dtype.numpy) for _ in range(2))
    at, tolerance = rng.integers(0, 700, 50), 1e-4 if dtype is hr.float32 else 1e-12
    type = "SoftmaxCrossEntropyWithLogits"
    _assert_equal(_computed(type, [x, z], T=dtype), _expected(type, [x, z], T=dtype), tolerance, tolerance)
    type, attrs = "SparseSoftmaxCrossEntropyWithLogits", {"T": dtype, "Tlabels": hr.int64}
    mine = _expected(type, [x, at], **attrs)
    with flags.override(NATIVE="off"):
        expected = _expected(type, [x, at], **attrs)
    _assert_equal(mine, expected, tolerance, tolerance)


def test_sums_of_long_rows_are_as_exact_as_those_of_short_ones():
    x = np.zeros((1, 1 << 20), np.float32)
    np.testing.assert_allclose(_computed("LogSoftmax", [x], T=hr.float32)[0, 0], -20 * np.log(2), 1e-6)
