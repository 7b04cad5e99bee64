"""Scalar expressions as LLVM: numbers, conversions and ufuncs are those of numpy, bit for bit."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest

pytest.importorskip("llvmlite")

import ml_dtypes

from headrace import dtypes
from headrace.ir.graph import Operation
from headrace.ir.opdef import Case, OpDef
from headrace.ops.cast import _cast_kernel
from headrace.schedule.scalar_expressions import Apply, Input, formula, scalar_expression
from headrace.targets.native import elementary, scalars
from headrace.targets.native.llvm_text import Module
from tests.ops import cases
from tests.targets.native.running import apply, of_expression, of_expressions, of_ufunc

BFLOAT = dtypes.bfloat16.numpy
EVERY = [*map(np.dtype, ("?", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8")), BFLOAT]
SOME = [np.dtype(d) for d in ("?", "i4", "u1", "f4")]

# Those that are computed by instructions, so that no result may differ.
EXACT = {u.__name__: u for u in scalars._UFUNCS if u.__name__ not in elementary.NUMPY_NAMES and u is not np.logaddexp}


def numbers(dtype: np.dtype) -> tuple[np.ndarray, np.ndarray]:
    """Random numbers of all sizes, and special ones."""
    rng = np.random.default_rng(5)
    if dtype.kind == "b":
        return rng.integers(0, 2, 400).astype(bool), np.array([False, True])
    if dtype.kind in "iu":
        range_ = np.iinfo(dtype)
        some = rng.integers(range_.min, range_.max, 400, dtype, endpoint=True)
        some[:100] = rng.integers(max(range_.min, -9), 9, 100).astype(dtype)
        special = [
            range_.min,
            range_.min + 1,
            0,
            1,
            2,
            range_.max - 1,
            range_.max,
            *([-1] if dtype.kind == "i" else []),
        ]
        return some, np.array(special, dtype)
    some = rng.integers(0, 2 ** (8 * dtype.itemsize), 400, np.uint64).astype(f"u{dtype.itemsize}").view(dtype)
    some[:200] = (rng.normal(size=200) * 10).astype(dtype)
    some[200:230] = rng.integers(-9, 9, 30).astype(dtype)
    limits = ml_dtypes.finfo(dtype)
    special = [0.0, -0.0, 1, -1, 0.5, -0.5, 1.5, 2.5, np.inf, -np.inf, np.nan, 2**31, -(2**31), 2.0**63, 2.0**64, 300]
    special += [limits.max, limits.tiny, -limits.smallest_subnormal]
    with np.errstate(over="ignore"):
        return some, np.array(special, np.float64).astype(dtype)


def arguments(dtype: np.dtype, count: int) -> list[np.ndarray]:
    """Arguments for a ufunc: each special number with each, and random ones with all."""
    some, special = numbers(dtype)
    if count == 1:
        return [np.concatenate([some, special])]
    rng = np.random.default_rng(6)
    pairs = np.array(list(itertools.product(special, special)), dtype)
    x = [some, some, np.repeat(special, 40), pairs[:, 0]]
    y = [rng.permutation(some), rng.permutation(some), np.tile(some[:40], len(special)), pairs[:, 1]]
    return [np.concatenate(x), np.concatenate(y)]


def differing(want: np.ndarray, got: np.ndarray) -> np.ndarray:
    """The positions of different bits, except those of NaN."""
    assert want.dtype == got.dtype
    if want.dtype.kind == "c":
        want, got = (x.view(f"f{x.itemsize // 2}") for x in (want, got))
    bits = f"u{want.itemsize}"
    with np.errstate(invalid="ignore"):
        nan = np.isnan(want) & np.isnan(got) if want.dtype.kind not in "biu" else np.zeros(want.shape, bool)
    return np.flatnonzero((want.view(bits) != got.view(bits)) & ~nan)


def check(ufunc: np.ufunc, dtypes: Sequence[np.dtype], level: int) -> int:
    """Compares a ufunc with numpy's.

    Returns:
      The number of dtypes for which numpy and LLVM have it.
    """
    nodes = []
    for dtype in dtypes:
        inputs = (dtype,) * ufunc.nin
        with contextlib.suppress(TypeError):
            node = apply(ufunc, inputs)
            nodes += [] if scalars.why_not(node, inputs) else [(node, inputs)]
    for (_, inputs), function in zip(nodes, of_expressions(nodes, level), strict=True):
        given = arguments(inputs[0], ufunc.nin)
        with np.errstate(all="ignore"):
            want = ufunc(*given)
        got = function(*given)
        wrong = differing(want, got)
        assert not wrong.size, [(ufunc, *(x[i] for x in given), want[i], got[i]) for i in wrong[:3]]
    return len(nodes)


@pytest.mark.parametrize("name", EXACT)
def test_ufuncs_are_those_of_numpy(name: str) -> None:
    assert check(EXACT[name], SOME, 1)


@pytest.mark.matrix
@pytest.mark.parametrize("name", EXACT)
def test_vectorized_ufuncs_of_all_dtypes_are_those_of_numpy(name: str) -> None:
    assert check(EXACT[name], EVERY, 2)


@pytest.mark.parametrize("name", ["add", "divide", "maximum", "sqrt"])
@pytest.mark.parametrize("dtype", [np.dtype("f2"), BFLOAT], ids=str)
def test_narrow_floats_are_rounded_at_each_ufunc(name: str, dtype: np.dtype) -> None:
    assert check(EXACT[name], [dtype], 1) == 1


@pytest.mark.parametrize("ufunc", [np.maximum, np.minimum])
@pytest.mark.parametrize("dtype", ["f2", "f4", "f8"])
def test_extrema_with_a_constant_are_those_of_numpy(ufunc: np.ufunc, dtype: str) -> None:
    kind = np.dtype(dtype)
    x = arguments(kind, 1)[0]
    for number in (kind.type(c) for c in (2.0, 0.0, -0.0, np.inf, np.nan)):
        for args, want in ((Input(0), number), ufunc(x, number)), ((number, Input(0)), ufunc(number, x)):
            got = of_expression(Apply(ufunc, args, kind, None), (kind,), 1)(x)
            assert not differing(want, got).size, (number, args)


# *** Conversions ***


def cast(source: np.dtype, target: np.dtype) -> Any:
    return _cast_kernel(np, {"SrcT": dtypes.from_numpy(source), "DstT": dtypes.from_numpy(target), "Truncate": False})


def check_conversion(source: np.dtype, target: np.dtype) -> None:
    x = np.concatenate(numbers(source))
    if source.kind == "f":
        rng = np.random.default_rng(7)
        edges = [2**31 - 1, 2**32 - 1, 2.0**63 - 1024, 2.0**64 - 2048, 65519.99, 65520, 65504, -129, -128.5]
        more = [np.ldexp(rng.normal(size=600), rng.integers(-30, 70, 600)), np.array(edges)]
        with np.errstate(over="ignore"):
            x = np.concatenate([x, *(m.astype(source) for m in more)])
    with np.errstate(all="ignore"):
        want = cast(source, target)(x)
    as_type: Any = np.astype
    got = of_expression(Apply(as_type, (Input(0),), target, None), (source,), 1)(x)
    wrong = differing(want, got)
    assert not wrong.size, [(x[i], want[i], got[i]) for i in wrong[:3]]


@pytest.mark.parametrize("target", ["?", "i1", "i4", "u8", "f2"])
def test_floats_are_converted_as_by_the_op_cast(target: str) -> None:
    check_conversion(np.dtype("f4"), np.dtype(target))
    check_conversion(np.dtype("f8"), np.dtype(target))


@pytest.mark.matrix
@pytest.mark.parametrize("source", EVERY, ids=str)
def test_all_conversions_are_those_of_the_op_cast(source: np.dtype) -> None:
    for target in EVERY:
        check_conversion(source, target)


def test_a_bool_in_memory_is_true_if_its_byte_is_not_zero() -> None:
    inverted = of_ufunc(np.logical_not, (np.dtype(bool),), 1)
    assert inverted(np.array([0, 1, 2, 255], np.uint8).view(bool)).tolist() == [True, False, False, False]


# *** Literals ***


@pytest.mark.parametrize(
    ("number", "dtype", "text"),
    [
        (0.1, "f8", "0x3FB999999999999A"),
        (0.1, "f4", "0x3FB99999A0000000"),
        (0.1, "f2", "0x3FB9980000000000"),
        (-0.0, "f4", "0x8000000000000000"),
        (np.inf, "f4", "0x7FF0000000000000"),
        (1e300, "f4", "0x7FF0000000000000"),
        (2**64 - 1, "u8", "-1"),
        (200, "u1", "-56"),
        (-128, "i1", "-128"),
        (True, "?", "true"),
        (np.int8(-3), "i4", "-3"),
    ],
)
def test_literals_are_exact(number: Any, dtype: str, text: str) -> None:
    assert scalars.literal(number, np.dtype(dtype)) == text


def test_a_literal_out_of_range_is_refused() -> None:
    with pytest.raises(OverflowError, match="256 is out of the range of uint8"):
        scalars.literal(256, np.dtype("u1"))
    node = Apply(np.add, (Input(0), 300), np.dtype("u1"), None)
    assert "300 is out of the range" in scalars.why_not(node, (np.dtype("u1"),))


# *** Expressions ***


def test_a_shared_node_is_printed_once() -> None:
    f4 = np.dtype("f4")
    once = Apply(np.tanh, (Input(0),), f4, None)
    twice = Apply(np.multiply, (once, once), f4, None)
    f = Module().function("f", "float", [("float", "x")])
    scalars.expression(f, twice, ["%x"], [f4])
    assert f.text().count("call") == 1


@pytest.mark.parametrize(
    ("ufunc", "given", "number"),
    [
        (np.add, "f4", 0.1),  # a weak number takes the dtype of the array
        (np.add, "f4", np.float64(0.1)),  # a strong one does not
        (np.multiply, "i4", 0.5),
        (np.add, "i1", 3),
        (np.subtract, "u8", np.int64(3)),
        (np.divide, "i4", 3),
        (np.less, "f4", 0.1),
        (np.add, "f2", 0.1),
        (np.maximum, "?", True),
    ],
)
def test_promotion_is_that_of_numpy(ufunc: np.ufunc, given: str, number: Any) -> None:
    dtype = np.dtype(given)
    x = np.concatenate(numbers(dtype))
    with np.errstate(all="ignore"):
        want = ufunc(x, number)
    got = of_expression(Apply(ufunc, (Input(0), number), want.dtype, None), (dtype,), 1)(x)
    assert not differing(want, got).size


def test_where_chooses_between_numbers() -> None:
    f4, where = np.dtype("f4"), np.where
    x = arguments(f4, 1)[0]
    is_negative = Apply(np.less, (Input(0), 0.0), np.dtype(bool), None)
    node = Apply(where, (is_negative, Apply(np.square, (Input(0),), f4, None), Input(0)), f4, None)  # type: ignore[arg-type]
    with np.errstate(all="ignore"):
        want = np.where(x < 0, np.square(x), x)
    assert not differing(want, of_expression(node, (f4,))(x)).size


@pytest.mark.parametrize(
    ("node", "inputs", "reason"),
    [
        (Apply(np.add, (Input(0), Input(0)), np.dtype("G"), None), "G", "numbers of complex256 have no form"),
        (Apply(np.reciprocal, (Input(0),), np.dtype("i4"), None), "i4", "reciprocal of int32 has no form"),
        (Apply(np.nextafter, (Input(0), Input(0)), np.dtype("f2"), None), "f2", "nextafter of float16 has no form"),
        (Apply(np.power, (Input(0), Input(0)), np.dtype("i4"), None), "i4", "power of int32 has no form"),
        (Apply(np.add, (Input(0), Input(0)), np.dtype("f8"), None), "f4", "gives float32, not float64"),
        (Apply(np.subtract, (Input(0), Input(0)), np.dtype("?"), None), "?", "subtract"),
    ],
)
def test_an_expression_that_cannot_be_printed_has_a_reason(node: Apply, inputs: str, reason: str) -> None:
    found = scalars.why_not(node, (np.dtype(inputs),) * 2)
    assert reason in found
    assert not scalars.is_known(node, (np.dtype(inputs),) * 2)
    outer = Apply(np.negative, (node,), node.dtype, None)
    assert scalars.why_not(outer, (np.dtype(inputs),) * 2) == found


# *** Records ***

# Relative differences from the kernels that elementary functions may cause.
TOLERANCE = {"float16": 2e-3, "bfloat16": 1.6e-2, "float32": 1e-6, "float64": 1e-14}
TOLERANCE |= {"complex64": 2e-6, "complex128": 1e-14}


def sampled_operations(types: frozenset[Any]) -> Iterator[tuple[Operation, OpDef, Case]]:
    """Elementwise operations on numbers of some dtypes, with one output."""
    for type, dtype in cases.sampled():
        record = cases.op_registry.get(type)
        if record.kernel is None or record.facts.cost is None or dtype not in types:
            continue
        for case in cases.cases(type, dtype):
            op = cases.open_op(record, case, lambda x: x.shape)
            kernel = cases.find_kernel(op)
            if len(op.outputs) == 1 and op.inputs and kernel is not None and kernel.form == "pure":
                yield op, record, case


def inputs_of(op: Operation) -> list[np.dtype]:
    return [t.dtype.numpy for t in op.inputs]


@pytest.mark.matrix
def test_the_scalar_expressions_of_all_records_are_known() -> None:
    known, reasons = set(), {}
    for op, record, _ in sampled_operations(dtypes.REAL | {dtypes.bool_}):
        assert record.kernel is not None
        found = scalar_expression(op, record.kernel, cases.kernel_of(op))
        if found is not None:
            name = f"{op.type} of {op.inputs[0].dtype.name}"
            reason = scalars.why_not(found, inputs_of(op))
            reasons.update({name: reason} if reason else {})
            known.update([] if reason else [name])
    assert len(known) > 300
    assert {r for r in reasons if not r.startswith("Pow of int")} == set(), reasons


@pytest.mark.matrix
def test_formulas_of_all_records_compute_what_their_kernels_do() -> None:
    types, compared = set(), []
    for op, record, case in sampled_operations(dtypes.REAL | dtypes.COMPLEX | {dtypes.bool_}):
        assert record.kernel is not None
        found = formula(op, record.kernel)
        inputs = inputs_of(op)
        if found is None or scalars.why_not(found.expression, inputs):
            continue
        assert [scalars.why_not(c.condition, inputs) for c in found.checks] == [""] * len(found.checks)
        arrays = cases.flat(case.inputs)
        if len({(op.type, *inputs)} - types) == 0:  # other shapes of the same code
            continue
        types.add((op.type, *inputs))
        compared.append((op, arrays, found.expression))
    assert len({t[0] for t in types}) > 90
    for some in (compared[i : i + 50] for i in range(0, len(compared), 50)):
        functions = of_expressions([(expression, inputs_of(op)) for op, _, expression in some], 1)
        for (op, arrays, _), function in zip(some, functions, strict=True):
            (want,) = cases.run_kernel(op, arrays)
            got = function(*(np.array(a, order="C") for a in np.broadcast_arrays(*arrays)))
            tolerance = TOLERANCE.get(op.outputs[0].dtype.name, 0)
            mine, other = (np.asarray(x).astype(complex) for x in (got, want))
            np.testing.assert_allclose(mine, other, rtol=tolerance, err_msg=op.type)


def test_division_of_integers_has_a_check_of_the_divisor() -> None:
    for type in ("FloorDiv", "FloorMod", "TruncateDiv", "TruncateMod", "Mod", "Div"):
        record = cases.op_registry.get(type)
        op = cases.open_op(record, cases.cases(type, dtypes.int32)[1], lambda x: x.shape)
        assert record.kernel is not None
        found = formula(op, record.kernel)
        assert found is not None
        (check,) = found.checks
        assert check.message == "Integer division by zero"
        with pytest.raises(check.error, match=check.message):
            cases.run_kernel(op, [np.array([1, 2], np.int32), np.array([1, 0], np.int32)])
        holds = of_expression(check.condition, inputs_of(op), 1)
        assert holds(np.array([1, 2, 3], np.int32), np.array([1, 0, -4], np.int32)).tolist() == [True, False, True]
        x, y = np.array([7, -7, 7, -7, -(2**31)], np.int32), np.array([2, 2, -2, -2, -1], np.int32)
        with np.errstate(over="ignore"):
            (want,) = cases.run_kernel(op, [x, y])
        assert of_expression(found.expression, inputs_of(op), 1)(x, y).tolist() == want.tolist()


def test_a_kernel_that_inspects_elements_has_no_formula() -> None:
    record = cases.op_registry.get("CheckNumerics")
    op = cases.open_op(record, cases.cases("CheckNumerics", dtypes.float32)[1], lambda x: x.shape)
    assert record.kernel is not None
    assert formula(op, record.kernel) is None
