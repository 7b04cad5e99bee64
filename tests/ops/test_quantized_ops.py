"""Quantised numbers: dtypes, wire form, ranges for each channel, gradients and errors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import headrace as hr
from headrace import dtypes
from headrace.dtypes import QUANTIZED, qint8, qint32, quint8
from headrace.errors import InvalidArgumentError, UnimplementedError
from headrace.ir import text
from headrace.ir.builder import Builder
from headrace.ir.graph import Graph
from headrace.ir.opdef import Case, op_registry
from headrace.ir.serial import graphdef
from headrace.opkit.testing.samples import meant_as
from tests.ops.cases import flat, gradients, open_op, run_kernel

pytestmark = pytest.mark.one_engine

INVALID = (InvalidArgumentError, ValueError)


def F32(*values: float) -> np.ndarray:
    return np.array(values, np.float32)


def one(value: float) -> np.ndarray:
    return np.array(value, np.float32)


def run(type: str, *inputs: Any, **attrs: Any) -> list[Any]:
    """The outputs of a kernel on arrays of unknown static shape, as Python lists."""
    op = open_op(op_registry.get(type), Case(inputs, attrs), lambda x: None)
    return [x.tolist() for x in run_kernel(op, flat(inputs))]


def q(t: dtypes.DType, *values: int) -> np.ndarray:
    return meant_as(np.array(values, t.numpy), t)


# *** The dtypes ***


def test_dtypes_are_tensorflows() -> None:
    assert {(t.name, t.number, t.numpy.name) for t in QUANTIZED} == {
        ("qint8", 11, "int8"),
        ("quint8", 12, "uint8"),
        ("qint32", 13, "int32"),
        ("qint16", 15, "int16"),
        ("quint16", 16, "uint16"),
    }
    assert dtypes.from_numpy(np.dtype(np.int8)) is dtypes.int8
    assert dtypes.as_dtype("quint8") is quint8
    assert not any(t.is_integer or t.is_numeric for t in QUANTIZED)


@pytest.mark.parametrize("t", sorted(QUANTIZED, key=str))
def test_constants_keep_their_dtype(t: dtypes.DType) -> None:
    b = Builder(Graph())
    for value in (np.array([1, 2, 100], t.numpy), np.full((2, 3), 7, t.numpy), np.zeros(0, t.numpy)):
        b.Identity(b.const(value, t))
    written = graphdef.export_graph_def(b.graph)
    assert {n.attr["value"].tensor.dtype for n in written.node if n.op == "Const"} == {t.number}
    back = Graph()
    graphdef.import_graph_def(written.SerializeToString(), back)
    again = text.from_text(text.to_text(b.graph))
    for graph in (back, again):
        assert all(op.outputs[0].dtype is t for op in graph.operations)
    assert graphdef.export_graph_def(back) == written


def test_quantized_numbers_go_through_a_session() -> None:
    b = Builder(Graph())
    x = b.Placeholder(dtype=dtypes.float32, shape=(None,))
    numbers, low, high = b.QuantizeV2(x, -1.0, 2.0, T=quint8)
    fed = b.Placeholder(dtype=quint8, shape=(None,))
    with hr.Session(graph=b.graph) as session:
        found = session.run([numbers, b.Dequantize(b.Identity(numbers), low, high)], {x: F32(-1, 0, 2)})
        assert found[0].tolist() == [0, 85, 255]
        assert np.allclose(found[1], [-1, 0, 2])
        assert session.run(b.Dequantize(fed, 0.0, 1.0), {fed: np.array([0, 255], np.uint8)}).tolist() == [0, 1]


# *** To quantised numbers and back ***


def test_ranges_are_made_to_have_zero_and_some_width() -> None:
    assert run("QuantizeV2", F32(1, 2), one(1), one(3), T=quint8) == [[85, 170], 0, 3]
    assert run("QuantizeV2", F32(1), one(100), one(100), T=quint8) == [[3], 0, 100]
    assert run("QuantizeV2", F32(1), one(0), one(0), T=quint8)[2] == pytest.approx(0.01)


def test_numbers_that_are_none() -> None:
    x = F32(np.nan, np.inf, -np.inf)
    assert run("QuantizeV2", x, one(0), one(3), T=quint8)[0] == [0, 255, 0]
    assert run("QuantizeV2", x, one(0), one(3), T=qint8, mode="SCALED")[0] == [0, 127, -128]


def test_channels() -> None:
    x = np.array([[1, 2], [3, -4]], np.float32)
    found, low, high = run("QuantizeV2", x, F32(0, -4), F32(3, 2), T=qint8, mode="SCALED", axis=1)
    assert found == [[42, 64], [127, -128]]
    assert (low, high) == (pytest.approx([-3.023622, -4]), pytest.approx([3, 3.96875]))
    for version in ("V2", "V4"):
        (y,) = run(f"QuantizeAndDequantize{version}", x, F32(-3, -4), F32(3, 4), range_given=True, axis=1, num_bits=3)
        assert y == [[1, pytest.approx(8 / 3)], [3, -4]]


def test_a_range_of_the_numbers_themselves() -> None:
    (y,) = run("QuantizeAndDequantizeV2", F32(-1, 2.3), one(0), one(0), signed_input=False, num_bits=3)
    assert y == pytest.approx([-0.985714, 2.3])
    assert run("QuantizeAndDequantizeV2", F32(), one(0), one(0)) == [[]]
    assert run("QuantizeAndDequantizeV2", F32(0, 0), one(0), one(0)) == [[0, 0]]


def test_requantizing_rounds_to_even_levels_of_the_new_range() -> None:
    numbers = q(qint32, -(2**31), 0, 2**31 - 1)
    assert run("Requantize", numbers, one(-1), one(1), one(-1), one(1), out_type=quint8)[0] == [0, 128, 255]
    assert run("RequantizationRange", numbers, one(-1), one(1)) == [-1, pytest.approx(1)]


# *** Gradients ***


def test_gradients_are_tensorflows_ops() -> None:
    b = Builder(Graph())
    x, low, high = (b.Placeholder(dtype=dtypes.float32, shape=s) for s in ((2, 3), (), ()))
    for y, type in (
        (b.FakeQuantWithMinMaxArgs(x), "FakeQuantWithMinMaxArgsGradient"),
        (b.FakeQuantWithMinMaxVars(x, low, high), "FakeQuantWithMinMaxVarsGradient"),
        (b.QuantizeAndDequantizeV4(x, low, high), "QuantizeAndDequantizeV4Grad"),
    ):
        (dx,) = gradients(b, [y], [b.OnesLike(y)], [x])
        assert dx.op.type == type
    seed = b.OnesLike(x)
    straight = b.QuantizeAndDequantizeV2(x, low, high)
    assert gradients(b, [straight], [seed], [x, low, high]) == [seed, None, None]


def test_gradients_of_limits() -> None:
    g, x = F32(1, 2, 3), F32(np.nan, np.inf, -np.inf)
    assert run("FakeQuantWithMinMaxVarsGradient", g, x, one(-1), one(1)) == [[0, 0, 0], 3, 2]
    assert run("FakeQuantWithMinMaxVarsGradient", g, F32(-5, 0, 5), one(0), one(0)) == [[1, 2, 3], 0, 0]


# *** Arithmetic ***


def test_relu_of_32_bits() -> None:
    numbers = q(qint32, -(2**31), -5, 0, 5, 2**31 - 1)
    found = run("QuantizedRelu", numbers, one(-1), one(2), out_type=qint32)[0]
    assert found == [-715827883, -5, 0, 5, 2147483647]
    found = run("QuantizedRelu6", numbers, one(-1), one(12), out_type=qint32)[0]
    assert found == [-1817101548, -5, 0, 5, 165191050]


def test_joined_arrays_of_signed_numbers_have_a_symmetric_range() -> None:
    x, y = q(qint32, 0, 2**30), q(qint32, 0)
    found, low, high = run("QuantizedConcat", np.array(0, np.int32), [x, y], [one(-1), one(-3)], [one(1), one(3)])
    assert (low, high) == (-3, 3)
    assert found[0] == pytest.approx(0, abs=2)
    assert found[1] == pytest.approx(2**30 / 3, abs=4)


# *** Errors ***

A, B = meant_as(np.zeros((2, 3), np.uint8), quint8), meant_as(np.zeros((2, 2), np.uint8), quint8)
IMAGE, FILTER = (meant_as(np.zeros(s, np.uint8), quint8) for s in ((1, 4, 4, 2), (3, 3, 2, 1)))
RANGE = (one(-1), one(1))
CONV = {"strides": (1, 1, 1, 1), "padding": "VALID"}
POOL = {"ksize": (1, 2, 2, 1), **CONV}
X = F32(1, 2)
ERRORS: list[tuple[str, tuple[Any, ...], dict[str, Any], str]] = [
    ("FakeQuantWithMinMaxArgs", (X,), {"min": 1.0, "max": 1.0}, "min has to be smaller than max, was: 1.0 >= 1.0"),
    ("FakeQuantWithMinMaxArgs", (X,), {"num_bits": 1}, "num_bits must be between 2 and 16, inclusive"),
    ("FakeQuantWithMinMaxVars", (X, F32(1), one(1)), {}, "must be rank 0"),
    ("FakeQuantWithMinMaxVarsPerChannel", (X, F32(1), F32(1)), {}, "incorrect size, expected 2"),
    ("FakeQuantWithMinMaxVarsPerChannel", (one(1), F32(1), F32(1)), {}, "at least rank 1"),
    ("FakeQuantWithMinMaxArgsGradient", (X, F32(1)), {}, "same size"),
    ("QuantizeAndDequantizeV2", (X, *RANGE), {"num_bits": 0}, "num_bits is out of range: 0"),
    ("QuantizeAndDequantizeV2", (X, *RANGE), {"num_bits": 63}, "num_bits is out of range: 63"),
    ("QuantizeAndDequantizeV2", (X, one(2), one(1)), {"range_given": True}, "Invalid range: input_min 2.0 > input_max"),
    ("QuantizeAndDequantizeV2", (X, F32(1, 2), F32(3, 4)), {"range_given": True}, "input_min has the shape"),
    ("QuantizeAndDequantizeV2", (X, F32(1), F32(2)), {"range_given": True, "axis": 3}, "at least rank 4"),
    ("QuantizeAndDequantizeV3", (X, *RANGE, np.array([1, 2], np.int32)), {}, "num_bits must be a scalar"),
    ("QuantizeAndDequantizeV4Grad", (X, F32(1), *RANGE), {}, "same size"),
    ("QuantizeV2", (X, one(2), one(1)), {"T": quint8}, "input_max_range must be larger than input_min_range"),
    ("QuantizeV2", (X, F32(1, 2), one(1)), {"T": quint8}, "min_range must contain a single float element"),
    ("QuantizeV2", (X, F32(1, 2, 3), F32(1, 2, 3)), {"T": quint8, "axis": 0}, "vector of 2 elements"),
    ("QuantizeV2", (X, *RANGE), {"T": quint8, "axis": 7}, "less than number of input's dims"),
    ("QuantizeV2", (X, *RANGE), {"T": quint8, "round_mode": "HALF_TO_EVEN"}, "only supported for mode 'SCALED'"),
    ("Dequantize", (A, *RANGE), {"mode": "SCALED", "dtype": dtypes.bfloat16}, "must be 'MIN_COMBINED'"),
    ("Dequantize", (A, F32(1, 2), F32(1, 2)), {}, "single float element"),
    ("Requantize", (q(qint32, 1), *RANGE, one(1), one(2)), {"out_type": quint8}, "must be <= 0"),
    ("Requantize", (q(qint32, 1), *RANGE, one(-1), one(-2)), {"out_type": quint8}, "must be >= requested_output_min"),
    ("Requantize", (q(qint32, 1), one(np.nan), one(1), *RANGE), {"out_type": quint8}, "must be finite"),
    ("QuantizedMatMul", (A, A, *RANGE, *RANGE), {}, "Matrix size-incompatible"),
    ("QuantizedMatMul", (B, B, one(2), one(2), *RANGE), {}, "max_a must be larger than min_a"),
    ("QuantizedMatMul", (B, B, F32(1, 2), one(2), *RANGE), {}, "min_a must be a scalar"),
    ("QuantizedConv2D", (IMAGE, FILTER[:, :, :1], *RANGE, *RANGE), CONV, "must have the same depth: 2 vs 1"),
    ("QuantizedConv2D", (IMAGE[0], FILTER, *RANGE, *RANGE), CONV, "must be 4-dimensional"),
    ("QuantizedConv2D", (IMAGE, FILTER, *RANGE, *RANGE), {**CONV, "strides": (1, 1, 2, 1)}, "equal length strides"),
    ("QuantizedConv2D", (IMAGE, FILTER, *RANGE, *RANGE), {**CONV, "dilations": (1, 2, 2, 1)}, "dilations of 1"),
    ("QuantizedBiasAdd", (A, q(quint8, 1), *RANGE, *RANGE), {"out_type": qint32}, "as many biases"),
    ("QuantizedMaxPool", (IMAGE, *RANGE), {**POOL, "ksize": (1, 9, 9, 1)}, "would be negative"),
    ("QuantizedConcat", (np.array(5, np.int32), [A, A], [one(0)] * 2, [one(1)] * 2), {}, "concat_dim = 5"),
    ("QuantizedReshape", (A, np.array([-1, -1], np.int32), *RANGE), {}, "Only one input size may be -1"),
]


@pytest.mark.parametrize(("type", "inputs", "attrs", "match"), ERRORS, ids=[f"{e[0]}-{e[3]}" for e in ERRORS])
def test_invalid_quantized_inputs_are_refused(type: str, inputs: Any, attrs: dict[str, Any], match: str) -> None:
    with pytest.raises(INVALID, match=match):
        run(type, *inputs, **attrs)


def test_what_has_no_kernel() -> None:
    for type, inputs, attrs in (
        (
            "QuantizeV2",
            (A.astype(np.float32), F32(0, 0, 0), F32(1, 1, 1)),
            {"T": quint8, "axis": 1, "mode": "MIN_FIRST"},
        ),
        ("Requantize", (A, *RANGE, *RANGE), {"out_type": quint8}),
        ("QuantizedMatMul", (q(qint8, 1)[None], q(qint8, 1)[None], *RANGE, *RANGE), {}),
        ("QuantizedRelu", (q(qint8, 1), *RANGE), {}),
        ("QuantizedMaxPool", (IMAGE, *RANGE), {**POOL, "ksize": (1, 1, 1, 2)}),
    ):
        with pytest.raises(UnimplementedError):
            run(type, *inputs, **attrs)
