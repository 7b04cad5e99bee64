"""Math ops: special values, errors, kernels that nothing wraps, gradients at kinks.

The cases of the records cannot express these.

The values are those that TensorFlow 2.21 gives.
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from headrace import dtypes
from headrace.dtypes import DType
from headrace.errors import (
    FailedPreconditionError,
    InternalError,
    InvalidArgumentError,
    OpError,
    ResourceExhaustedError,
    ShapeError,
    UnimplementedError,
)
from headrace.ir.builder import Builder
from headrace.ir.graph import Graph
from headrace.ir.opdef import op_registry
from headrace.resources.tensor_list import TensorList
from tests.ops.cases import assert_close, evaluate, gradients, placeholder

NAN, INF = np.nan, np.inf
F32, F64, I32, I8, U8, C64 = np.float32, np.float64, np.int32, np.int8, np.uint8, np.complex64
BF16 = ml_dtypes.bfloat16


def array(value: Any, dtype: Any = None) -> np.ndarray:
    """A list as an array: floats as float32, ints as int32."""
    if dtype is None:
        found = np.asarray(value)
        dtype = {"f": F32, "i": I32, "c": C64}.get(found.dtype.kind, found.dtype)
    with np.errstate(all="ignore"):
        return np.asarray(value).astype(dtype)


def run(type: str, /, *inputs: Any, **attrs: Any) -> Any:
    """An op on given arrays, whose shapes are not known while the graph is built."""
    b = Builder(Graph())
    tensors = [placeholder(b, x, None) for x in inputs]
    record = op_registry.get(type)
    args: list[Any] = [tensors] if record.ins[0].is_list else tensors
    out = b.make(type, args, attrs)
    outs = out if isinstance(out, tuple) else (out,)
    found = evaluate(outs, dict(zip(tensors, inputs, strict=True)))
    return found[0] if len(outs) == 1 else tuple(found)


# *** Special values ***

UNARY: list[tuple[str, list[Any], list[Any]]] = [
    ("Sign", [NAN, INF, -INF, -0.0, -2.0], [NAN, 1, -1, 0, -1]),
    ("Sqrt", [NAN, INF, -1.0, 0.0], [NAN, INF, NAN, 0]),
    ("Rsqrt", [0.0, -0.0, INF, -1.0], [INF, -INF, 0, NAN]),
    ("Reciprocal", [0.0, -0.0, INF], [INF, -INF, 0]),
    ("Round", [0.5, 1.5, 2.5, -0.5, -1.5, NAN, -INF], [0, 2, 2, -0.0, -2, NAN, -INF]),
    ("Log", [0.0, -1.0, INF], [-INF, NAN, INF]),
    ("Sigmoid", [-1000.0, 1000.0, NAN], [0, 1, NAN]),
    ("Tanh", [-INF, INF, NAN], [-1, 1, NAN]),
    ("Relu", [NAN, INF, -INF, -1.0], [NAN, INF, 0, 0]),
    ("Relu6", [NAN, INF, -INF, 7.0], [NAN, 6, 0, 6]),
    ("Elu", [NAN, INF, -INF, -1000.0], [NAN, INF, -1, -1]),
    ("Selu", [NAN, INF, -INF], [NAN, INF, -1.7580993]),
    ("Softplus", [NAN, INF, -INF, -100.0, 100.0], [NAN, INF, 0, 0, 100]),
    ("Softsign", [NAN, INF, -INF], [NAN, NAN, NAN]),
    ("Erf", [NAN, INF, -INF], [NAN, 1, -1]),
    ("Lgamma", [0.0, -2.0, -0.5, INF, -INF], [INF, INF, 1.2655121, INF, INF]),
    ("Digamma", [0.0, -2.0, -0.5, INF, -INF], [NAN, NAN, 0.03648996, INF, NAN]),
    ("Abs", [-128, -3], [128, 3]),
]
BINARY: list[tuple[str, list[Any], list[Any], list[Any]]] = [
    ("Maximum", [NAN, 1.0, INF], [1.0, NAN, 2.0], [NAN, NAN, INF]),
    ("Minimum", [NAN, 1.0, INF], [1.0, NAN, 2.0], [NAN, NAN, 2]),
    ("RealDiv", [1.0, -1.0, 0.0], [0.0, 0.0, 0.0], [INF, -INF, NAN]),
    ("FloorDiv", [1.0, INF, -5.0, 7.0, 1.0], [0.0, 2.0, INF, -2.0, 0.1], [INF, INF, 0, -4, 10]),
    ("FloorDiv", [-7, 7, -7, 7, -6], [2, -2, -2, 2, 3], [-4, -4, 3, 3, -2]),
    ("TruncateDiv", [-7, 7, -7, 7, -6], [2, -2, -2, 2, 3], [-3, -3, 3, 3, -2]),
    ("Div", [-7, 7, -7, 7, -6], [2, -2, -2, 2, 3], [-3, -3, 3, 3, -2]),
    ("FloorMod", [-7, 7, -7, 7, -6], [2, -2, -2, 2, 3], [1, -1, -1, 1, 0]),
    ("FloorMod", [5, -(2**31)], [-(2**31), -1], [5 - 2**31, 0]),
    ("FloorMod", [1.0, INF, 5.0, -5.0], [0.0, 2.0, INF, INF], [NAN, NAN, 5, INF]),
    ("TruncateMod", [-7, 7, -7, 7, -6], [2, -2, -2, 2, 3], [-1, 1, -1, 1, 0]),
    ("TruncateMod", [-7.0, 5.0, -5.0], [2.0, INF, INF], [-1, 5, -5]),
    ("FloorDiv", [-(2**31)], [-1], [-(2**31)]),
    ("DivNoNan", [0.0, INF, NAN, 1.0], [0.0, 0.0, 0.0, NAN], [0, 0, 0, NAN]),
    ("MulNoNan", [INF, NAN, 0.0], [0.0, 0.0, NAN], [0, 0, NAN]),
    ("Xdivy", [0.0, 0.0, 1.0], [0.0, NAN, 0.0], [0, 0, INF]),
    ("Xlogy", [0.0, 0.0, 1.0], [0.0, NAN, 0.0], [0, 0, -INF]),
    ("Xlog1py", [0.0, 0.0, 1.0], [-1.0, NAN, -1.0], [0, 0, -INF]),
    ("Pow", [2, 0, -2, 7], [31, 0, 3, 20], [-(2**31), 1, -8, -1199696159]),
    ("Pow", [0.0, -2.0, NAN, 1.0], [-1.0, 0.5, 0.0, NAN], [INF, NAN, 1, 1]),
    ("LeftShift", [1, 1, 1, -1], [3, 40, -1, 2], [8, -(2**31), 1, -4]),
    ("RightShift", [100, 100, 100, -100], [3, 40, -1, 40], [12, 0, 100, -1]),
    ("ReluGrad", [1.0, 1.0, 1.0, 1.0], [NAN, 0.0, -1.0, 2.0], [0, 0, 0, 1]),
    ("Relu6Grad", [1.0] * 5, [NAN, 0.0, 5.0, 6.0, 7.0], [0, 0, 1, 0, 0]),
    ("EluGrad", [1.0] * 3, [NAN, -0.5, 2.0], [1, 0.5, 1]),
    ("SqrtGrad", [0.0, 2.0], [1.0, 1.0], [INF, 0.25]),
    ("Igamma", [1.0, -1.0, 2.0, 2.0], [2.0, 1.0, -1.0, 0.0], [0.8646647, NAN, NAN, 0]),
]


@pytest.mark.parametrize(("type", "x", "want"), UNARY)
def test_special_values_of_one_argument(type: str, x: list[Any], want: list[Any]) -> None:
    assert_close(run(type, array(x)), array(want, array(x).dtype))


@pytest.mark.parametrize(("type", "x", "y", "want"), BINARY)
def test_special_values_of_two_arguments(type: str, x: list[Any], y: list[Any], want: list[Any]) -> None:
    assert_close(run(type, array(x), array(y)), array(want, array(x).dtype))


@pytest.mark.parametrize("dtype", [np.complex64, np.complex128])
def test_the_logarithm_near_one_keeps_the_digits_of_small_complex_numbers(dtype: Any) -> None:
    rng = np.random.default_rng(0)
    z = ((rng.normal(size=200) + 1j * rng.normal(size=200)) * 10.0 ** rng.integers(-20, -9, 200)).astype(dtype)
    want = z - z * z / 2
    most = 2 * np.finfo(dtype).eps
    for got in (run("Log1p", z), run("Xlog1py", np.ones_like(z), z), np.array([run("Log1p", x) for x in z[:20]])):
        assert (abs(got.real - want.real[: len(got)]) <= most * abs(z[: len(got)])).all()
        assert (abs(got.imag - want.imag[: len(got)]) <= most * abs(z[: len(got)])).all()


def test_integers_wrap() -> None:
    assert run("Abs", array([-128], I8)).tolist() == [-128]
    assert run("Neg", array([-128], I8)).tolist() == [-128]
    assert run("AddV2", array([255], U8), array([2], U8)).tolist() == [1]
    assert run("Cumsum", array([100, 100], I8), array(0)).tolist() == [100, -56]
    assert run("EuclideanNorm", array([3, 200], U8), array([0])).tolist() == 8  # of (9 + 40000) modulo 256


def test_the_derivatives_of_roots_conjugate_and_those_of_tanh_do_not() -> None:
    y, dy = array([1 + 1j]), array([1j])
    for type, want in (
        ("SqrtGrad", -0.25 + 0.25j),
        ("RsqrtGrad", -1 + 1j),
        ("ReciprocalGrad", -2),
        ("InvGrad", -2),
        ("TanhGrad", 2 + 1j),
        ("SigmoidGrad", 1 + 1j),
    ):
        assert_close(run(type, y, dy), array([want], C64), type)


def test_softmax_of_infinities() -> None:
    x = array([[INF, 1], [-INF, 1], [NAN, 1], [-INF, -INF], [1e4, -1e4]])
    nans = [NAN, NAN]
    assert_close(run("Softmax", x), array([nans, [0, 1], nans, nans, [1, 0]], F32))
    assert_close(run("LogSoftmax", x), array([nans, [-INF, 0], nans, nans, [0, -2e4]], F32))


FLOATS = [NAN, INF, -INF, 3.9, -3.9, 300, -300, 70000, 3e9, -3e9, 1e20]
CASTS: list[tuple[DType, list[int]]] = [
    (dtypes.int8, [0, 0, 0, 3, -3, 44, -44, 112, 0, 0, 0]),
    (dtypes.uint8, [0, 0, 0, 3, 253, 44, 212, 112, 0, 0, 0]),
    (dtypes.int16, [0, 0, 0, 3, -3, 300, -300, 4464, 0, 0, 0]),
    (dtypes.int32, [-(2**31)] * 3 + [3, -3, 300, -300, 70000] + [-(2**31)] * 3),
    (dtypes.int64, [-(2**63)] * 3 + [3, -3, 300, -300, 70000, 3000000000, -3000000000, -(2**63)]),
    (dtypes.uint64, [2**63] * 3 + [3, 2**64 - 3, 300, 2**64 - 300, 70000, 3 * 10**9, 2**64 - 3 * 10**9, 2**63]),
]


@pytest.mark.parametrize(("to", "want"), CASTS)
@pytest.mark.parametrize("source", [F32, F64])
def test_casts_of_what_does_not_fit(to: DType, want: list[int], source: Any) -> None:
    with np.errstate(all="ignore"):
        for x, w in zip(np.array(FLOATS, source), want, strict=True):
            assert run("Cast", np.array([x] * 9), DstT=to).tolist() == [w] * 9, x
            got = run("Cast", x, DstT=to)
            assert (got.dtype, int(got)) == (to.numpy, w), x


def test_other_casts() -> None:
    z = array([1 + 2j, 3j, 0])
    assert run("Cast", z, DstT=dtypes.bool_).tolist() == [True, False, False]
    assert run("Cast", z, DstT=dtypes.float32).tolist() == [1, 0, 0]
    assert run("Cast", array([2**40 + 5, -(2**31) - 1], np.int64), DstT=dtypes.int32).tolist() == [5, 2**31 - 1]
    assert run("Cast", array([300, -1]), DstT=dtypes.uint8).tolist() == [44, 255]
    assert run("Cast", array([NAN, 0.5, 0]), DstT=dtypes.bool_).tolist() == [True, True, False]
    text = np.array([b"a"], object)
    assert run("Cast", text, DstT=dtypes.string) is text
    with pytest.raises(UnimplementedError, match="Cast string to float32 is not supported"):
        run("Cast", text, DstT=dtypes.float32)


def test_truncating_casts() -> None:
    x = np.array([1 + 2**-24 + 2**-50, 1e300, -1.999999999, NAN])
    got = run("Cast", x, DstT=dtypes.float32, Truncate=True)
    assert_close(got, np.array([1, INF, -np.nextafter(F32(2), F32(0)), NAN], F32))
    got = run("Cast", array([1.9999, NAN, 1.004]), DstT=dtypes.bfloat16, Truncate=True)
    assert_close(got, np.array([1.9921875, NAN, 1], BF16))


def test_strings() -> None:
    x, y = np.array([b"a", b"b"], object), np.array(b"b", object)
    assert run("Add", x, y).tolist() == [b"ab", b"bb"]
    both = run("Add", y, y)
    assert isinstance(both, np.ndarray)
    assert (both.shape, both[()]) == ((), b"bb")
    assert run("Equal", x, y).tolist() == [False, True]
    assert isinstance(run("NotEqual", y, y), np.ndarray | np.bool_)
    assert run("Select", np.bool_(True), x, np.array([b"", b""], object)).tolist() == [b"a", b"b"]


def test_lists_add_and_are_selected() -> None:
    one = TensorList(dtypes.float32, (), None).push(F32(1))
    two = TensorList(dtypes.float32, (), None).push(F32(2))
    add = op_registry.get("AddN").kernel
    assert add is not None
    assert add(np, {"N": 3, "T": dtypes.variant})(one, two, two).get(0) == 5
    for type in ("Select", "SelectV2"):
        choose = op_registry.get(type).kernel
        assert choose is not None
        assert choose(np, {"T": dtypes.variant})(np.bool_(False), one, two) is two


# *** Reductions ***


def test_reductions_of_nothing() -> None:
    def of(type: str, dtype: Any) -> Any:
        return run(type, np.zeros((0, 2), dtype), array([0])).tolist()

    with np.errstate(all="ignore"):
        assert of("Sum", F32) == [0, 0]
        assert of("Prod", I32) == [1, 1]
        assert of("Max", F32) == [-INF, -INF]
        assert of("Min", BF16) == [INF, INF]
        assert of("Max", I32) == [-(2**31)] * 2
        assert of("Max", U8) == [0, 0]
        assert of("Min", U8) == [255, 255]
        assert of("Mean", I32) == [0, 0]
        assert np.isnan(of("Mean", F32)).all()
        assert of("All", np.bool_) == [True, True]


def test_means_of_integers_lose_their_fraction() -> None:
    assert run("Mean", array([-3, -4]), array(0)) == -3
    assert run("Mean", array([200, 201], U8), array(0)) == 200
    assert run("Mean", array([2**31 - 1] * 2), array(0)) == 2**31 - 1


def test_half_precision_adds_up_in_float32() -> None:
    for dtype in (np.float16, BF16):
        ones = np.ones((4000, 2), dtype)
        for type in ("Sum", "BiasAddGrad"):
            args = [ones] if type == "BiasAddGrad" else [ones, array([0])]
            assert_close(run(type, *args), np.array([4000, 4000]).astype(dtype), type)
        assert run("Cumsum", ones, array(0))[-1, 0] == dtype(4000)
        x = np.linspace(-9, 9, 99).astype(dtype)
        want = 1 / (1 + np.exp(-x.astype(F64)))
        assert run("Sigmoid", x).tobytes() == want.astype(F32).astype(dtype).tobytes()


def test_a_kernel_reads_new_axes() -> None:
    kernel = op_registry.get("Sum").kernel
    assert kernel is not None
    f = kernel(np, {"T": dtypes.float32, "keep_dims": False})
    x = np.arange(6, dtype=F32).reshape(2, 3)
    for axes, want in ((array([0]), [3, 5, 7]), (array([1]), [3, 12]), (array(1), [3, 12]), (array([0]), [3, 5, 7])):
        assert f(x, axes).tolist() == want
    axes = array([-1])
    assert f(x, axes).tolist() == [3, 12]
    assert f(x[None], axes).tolist() == [[3, 12]]  # the same axes mean others at another rank


def test_reductions_along_constants_have_known_shapes() -> None:
    b = Builder(Graph())
    x = b.Placeholder(dtype=dtypes.float32, shape=(2, None, 4))
    assert b.Sum(x, [0, -1]).shape == (None,)
    assert b.Max(x, [1], keep_dims=True).shape == (2, 1, 4)
    assert b.ArgMax(x, 1).shape == (2, 4)
    assert b.Sum(x, b.Placeholder(dtype=dtypes.int32, shape=None)).shape is None
    assert b.UnsortedSegmentSum(x, b.Placeholder(dtype=dtypes.int32, shape=(2,)), 5).shape == (5, None, 4)


def test_extremes_of_segments_without_rows() -> None:
    x, ids = array([[1, 2], [3, 4]]), array([2, -1])
    lowest, highest = np.finfo(F32).min, np.finfo(F32).max
    assert run("UnsortedSegmentMax", array(x, F32), ids, array(3))[0].tolist() == [lowest] * 2
    assert run("UnsortedSegmentMin", array(x, F32), ids, array(3))[1].tolist() == [highest] * 2
    assert run("SegmentMax", x, array([0, 2])).tolist() == [[1, 2], [0, 0], [3, 4]]
    assert run("SegmentProd", x, array([0, 2])).tolist() == [[1, 2], [1, 1], [3, 4]]


# *** Errors ***

Z = np.zeros
ERRORS: list[tuple[str, tuple[Any, ...], dict[str, Any], type[OpError], str]] = [
    ("FloorDiv", (array([1, 2]), array([1, 0])), {}, InvalidArgumentError, "Integer division by zero"),
    ("Div", (array([1]), array([0])), {}, InvalidArgumentError, "Integer division by zero"),
    ("FloorMod", (array(1), array(0)), {}, InvalidArgumentError, "Integer division by zero"),
    ("Mod", (array([1]), array([0])), {}, InvalidArgumentError, "Integer division by zero"),
    ("TruncateDiv", (array([1]), array([0])), {}, InternalError, "Integer division by zero"),
    ("TruncateMod", (array([1]), array([0])), {}, InternalError, "Integer division by zero"),
    ("AddN", (Z(2, F32), Z(3, F32)), {}, InvalidArgumentError, "must have the same size and shape"),
    ("TanhGrad", (Z(2, F32), Z(1, F32)), {}, InvalidArgumentError, "must have the same size and shape"),
    ("ReluGrad", (Z(2, F32), F32(1)), {}, InvalidArgumentError, "Input 0: \\[2\\] != input 1: \\[\\]"),
    ("ApproximateEqual", (Z(2, F32), F32(1)), {}, InvalidArgumentError, "x and y must be of the same shape"),
    ("Select", (Z(3, bool), Z((2, 2)), Z((2, 2))), {}, InvalidArgumentError, "Number of batches of 'then'"),
    ("Select", (Z((1, 2), bool), Z((2, 2)), Z((2, 2))), {}, InvalidArgumentError, "same size and shape"),
    ("Select", (Z((), bool), Z((2, 2)), Z(2)), {}, InvalidArgumentError, "'then' and 'else' must have the same size"),
    ("Select", (Z(1, bool), F64(1), F64(2)), {}, InvalidArgumentError, "at least a vector"),
    ("ClipByValue", (Z((2, 2)), F64(0), Z(2)), {}, InvalidArgumentError, "same shape as input, or a scalar"),
    ("BiasAdd", (Z((2, 2)), Z(3)), {}, InvalidArgumentError, "as many biases as the last dimension"),
    ("BiasAdd", (Z(2), Z(2)), {}, InvalidArgumentError, "must be at least 2D: \\[2\\]"),
    ("BiasAdd", (Z((2, 2)), Z((1, 2))), {}, InvalidArgumentError, "Biases must be 1D"),
    ("Cross", (Z(2), Z(2)), {}, FailedPreconditionError, "3-element vectors"),
    ("Cross", (Z(3), Z((1, 3))), {}, InvalidArgumentError, "same shape"),
    ("BroadcastGradientArgs", (array([2, 3]), array([4, 4])), {}, InvalidArgumentError, "Incompatible shapes"),
    ("BroadcastGradientArgs", (array([[2]]), array([4])), {}, InvalidArgumentError, "must be a vector"),
    ("Softmax", (F32(1),), {}, InvalidArgumentError, "logits must have >= 1 dimension"),
    ("CheckNumerics", (array([NAN, INF]),), {"message": "m"}, InvalidArgumentError, "m : Tensor had Inf and NaN"),
    ("CheckNumerics", (array([1.0, -INF]),), {"message": "m"}, InvalidArgumentError, "m : Tensor had Inf values"),
    ("CheckNumerics", (F32(NAN),), {"message": "m"}, InvalidArgumentError, "m : Tensor had NaN values"),
    ("Bitcast", (Z((2, 3), U8),), {"type": dtypes.float32}, InvalidArgumentError, "Cannot bitcast"),
    ("Bitcast", (U8(1),), {"type": dtypes.float32}, InvalidArgumentError, "Cannot bitcast"),
    ("Sum", (Z((2, 2)), array([2])), {}, InvalidArgumentError, "Invalid reduction dimension"),
    ("Sum", (F64(1), array([-1])), {}, InvalidArgumentError, "Invalid reduction dimension"),
    ("Max", (Z((2, 2)), array([0, -2])), {}, InvalidArgumentError, "duplicate dimension"),
    ("ArgMax", (Z(0, F32), array(0)), {}, InvalidArgumentError, "Reduction axis 0 is empty in shape \\[0\\]"),
    ("ArgMax", (F32(1), array(0)), {}, InvalidArgumentError, "Expected dimension in the range \\[0, 0\\)"),
    ("ArgMin", (Z(2, F32), array([0])), {}, InvalidArgumentError, "dim must be a scalar"),
    ("Cumsum", (Z(3), array(1)), {}, InvalidArgumentError, "Expected scan axis in the range \\[-1, 1\\), but got 1"),
    ("Cumsum", (Z(3), array([0])), {}, InvalidArgumentError, "axis must be a scalar"),
    ("SegmentSum", (Z(3), array([0, 2, 1])), {}, InvalidArgumentError, "segment ids are not increasing"),
    ("SegmentSum", (Z(3), array([-1, 0, 1])), {}, InvalidArgumentError, "segment ids must be >= 0"),
    ("SegmentSum", (Z(3), array([0, 1])), {}, InvalidArgumentError, "same size as dimension 0"),
    ("SegmentSum", (Z((2, 1)), array([[0], [1]])), {}, InvalidArgumentError, "should be a vector"),
    ("SegmentSum", (Z((1, 9)), array([2**62], np.int64)), {}, OpError, "2\\*\\*63|OOM"),
    (
        "UnsortedSegmentSum",
        (Z(3), array([0, 2, 1]), array(2)),
        {},
        InvalidArgumentError,
        "segment_ids\\[1\\] = 2 is out",
    ),
    ("UnsortedSegmentSum", (Z(3), array([0, 2]), array(2)), {}, InvalidArgumentError, "does not start with"),
    ("UnsortedSegmentSum", (Z(1), array([0]), array(-2)), {}, InvalidArgumentError, "must not be negative"),
    ("UnsortedSegmentSum", (Z(1), array([0]), array([1])), {}, InvalidArgumentError, "should be a scalar"),
    ("UnsortedSegmentSum", (Z(1), array([0]), array(2**50, np.int64)), {}, ResourceExhaustedError, "OOM"),
    ("MatMul", (Z((2, 3)), Z((4, 5))), {}, InvalidArgumentError, "Matrix size-incompatible: In\\[0\\]: \\[2,3\\]"),
    ("MatMul", (Z(3), Z((3, 5))), {}, InvalidArgumentError, "must be matrices"),
    ("BatchMatMul", (Z((2, 2, 3)), Z((1, 3, 2))), {}, InvalidArgumentError, "same batch dimensions"),
    ("BatchMatMulV2", (Z((2, 2, 3)), Z((3, 3, 2))), {}, InvalidArgumentError, "compatible batch dimensions"),
    ("BatchMatMulV2", (Z((2, 3)), Z((4, 2))), {}, InvalidArgumentError, "Matrix size-incompatible"),
    ("BatchMatMulV2", (Z(3), Z((3, 2))), {}, InvalidArgumentError, "ndims must be >= 2: 1"),
    ("Einsum", (Z((2, 3)),), {"equation": "ij"}, InvalidArgumentError, "exactly one '->'"),
    ("Einsum", (Z((2, 3)),) * 3, {"equation": "a,b,c->a"}, InvalidArgumentError, "1 or 2 input subscripts"),
    ("Einsum", (Z((2, 3)),), {"equation": "i->i"}, InvalidArgumentError, "to have rank 1 but got: 2"),
    ("Einsum", (Z((2, 1)), Z((3, 4))), {"equation": "ij,jk->ik"}, InvalidArgumentError, "Expected dimension 1"),
    ("Einsum", (Z((2, 3)),), {"equation": "...i->i"}, InvalidArgumentError, "no ellipsis"),
    ("Betainc", (Z(2), Z(3), F64(1)), {}, InvalidArgumentError, "inconsistent"),
]


@pytest.mark.parametrize(("type", "inputs", "attrs", "error", "match"), ERRORS, ids=[e[0] for e in ERRORS])
def test_invalid_math_inputs_are_refused(
    type: str, inputs: Any, attrs: dict[str, Any], error: type[OpError], match: str
) -> None:
    """A kernel's own error, or a `ValueError`, which the executor turns into `InvalidArgumentError`."""
    expected = (error, ValueError) if error is InvalidArgumentError else error
    with pytest.raises(expected, match=match):
        run(type, *inputs, **attrs)


def test_division_of_nothing_by_zero_is_no_error() -> None:
    assert run("FloorMod", Z(0, I32), array(0)).shape == (0,)


BAD_SHAPES: list[tuple[str, list[Any], dict[str, Any], str]] = [
    ("MatMul", [(2, 3), (4, 5)], {}, "Dimensions must be equal, but are 3 and 4"),
    ("MatMul", [(2, 3), (2, 5)], {"transpose_b": True}, "3 and 5"),
    ("MatMul", [(3,), (3, 5)], {}, "rank 2 but is rank 1"),
    ("BatchMatMul", [(2, 2, 3), (1, 3, 2)], {}, "Dimensions must be equal"),
    ("BatchMatMulV2", [(2, 2, 3), (3, 3, 2)], {}, "Dimensions must be equal"),
    ("AddV2", [(2,), (3,)], {}, "Dimensions must be equal, but are 2 and 3"),
    ("AddN", [[(2,), (3,)]], {}, "Dimensions must be equal"),
    ("Softmax", [()], {}, "at least rank 1"),
    ("BiasAdd", [(2, 3), (4,)], {}, "3 and 4"),
    ("Cross", [(2,), (2,)], {}, "2 and 3"),
    ("Equal", [(2,), (3,)], {}, "2 and 3"),
    ("Einsum", [[(2, 3), (4, 5)]], {"equation": "ij,jk->ik"}, "Expected dimension 3"),
]


@pytest.mark.parametrize(("type", "found", "attrs", "match"), BAD_SHAPES)
def test_shapes_that_do_not_fit_are_refused_when_built(type: str, found: Any, attrs: Any, match: str) -> None:
    b = Builder(Graph())

    def inputs(s: Any) -> Any:
        if isinstance(s, list):
            return [inputs(one) for one in s]
        return b.Placeholder(dtype=dtypes.float32, shape=s)

    with pytest.raises(ShapeError, match=match):
        b.make(type, [inputs(s) for s in found], attrs)


def test_shapes_that_do_not_fit_may_be_unequal() -> None:
    lax = {"incompatible_shape_error": False}
    assert run("Equal", Z(2), Z(3), **lax) == np.bool_(False)
    assert run("NotEqual", Z(2), Z(3), **lax) == np.bool_(True)


# *** Properties that passes and the executor rely on ***


@pytest.mark.parametrize(
    ("type", "ufunc"),
    [
        ("AddV2", np.add),
        ("Add", np.add),
        ("Sub", np.subtract),
        ("Mul", np.multiply),
        ("RealDiv", np.divide),
        ("Maximum", np.maximum),
        ("Less", np.less),
        ("GreaterEqual", np.greater_equal),
        ("Equal", np.equal),
        ("LogicalAnd", np.logical_and),
        ("LogicalNot", np.logical_not),
        ("Neg", np.negative),
        ("Square", np.square),
        ("Exp", np.exp),
        ("Tanh", np.tanh),
        ("Pow", np.power),
        ("SelectV2", np.where),
    ],
)
def test_nothing_wraps_the_ufunc(type: str, ufunc: Any) -> None:
    kernel = op_registry.get(type).kernel
    assert kernel is not None
    assert kernel(np, {"T": dtypes.float32, "incompatible_shape_error": True}) is ufunc


def test_cost_of_products() -> None:
    cost = op_registry.get("MatMul").facts.cost
    batch = op_registry.get("BatchMatMulV2").facts.cost
    assert cost is not None
    assert batch is not None
    assert cost([(2, 3), (3, 5)], [(2, 5)]) == pytest.approx(60)
    assert cost([(3, 2), (3, 5)], [(2, 5)]) == pytest.approx(60)  # transposed
    assert cost([(None, 3), (3, 5)], [(None, 5)]) is None
    assert batch([(7, 2, 3), (3, 5)], [(7, 2, 5)]) == pytest.approx(420)


# *** Gradients where the registry's suite does not go: at zeros and ties ***


def gradient(type: str, inputs: list[np.ndarray], wrt: int = 0, **attrs: Any) -> Any:
    """The gradient by one input of the sum of the output's elements."""
    b = Builder(Graph())
    tensors = [b.const(x) if x.dtype.kind in "iu" else placeholder(b, x, x.shape) for x in inputs]
    y = b.make(type, tensors, attrs)
    (dx,) = gradients(b, [y], [b.OnesLike(y)], [tensors[wrt]])
    return evaluate([dx], {t: x for t, x in zip(tensors, inputs, strict=True) if t.op.type == "Placeholder"})[0]


def test_gradients_of_products_with_zeros() -> None:
    x = array([[2.0, 0, 3], [0, 5, 0], [2, 3, 4]], F64)
    want = [[0, 6, 0], [0, 0, 0], [12, 8, 6]]
    assert gradient("Prod", [x, array([1])]).tolist() == want
    ids = array([0, 0, 0])
    assert gradient("SegmentProd", [x.T.copy(), ids]).T.tolist() == want
    assert gradient("UnsortedSegmentProd", [x.T.copy(), ids, array(2)]).T.tolist() == want
    assert gradient("Prod", [x[:1], array([0, 1])]).tolist() == want[:1]


def test_ties_share_the_gradient() -> None:
    x = array([1.0, 3, 3, 2], F64)
    assert gradient("Max", [x, array([0])]).tolist() == [0, 0.5, 0.5, 0]
    assert gradient("SegmentMax", [x, array([0, 0, 0, 0])]).tolist() == [0, 0.5, 0.5, 0]
    assert gradient("UnsortedSegmentMax", [x, array([0, 0, 0, -1]), array(1)]).tolist() == [0, 0.5, 0.5, 0]
    assert gradient("Maximum", [x, x], 0).tolist() == [1, 1, 1, 1]  # one of two equal tensors gets all of it


def test_gradients_at_zero() -> None:
    zero = array([0.0], F64)
    assert gradient("Relu", [zero]).tolist() == [0]
    assert gradient("Abs", [zero]).tolist() == [0]
    assert gradient("Xlogy", [zero, zero], 0).tolist() == [0]
    assert gradient("Xdivy", [zero, zero], 1).tolist() == [0]
    assert gradient("DivNoNan", [array([1.0], F64), zero], 1).tolist() == [0]
    assert gradient("Pow", [array([-2.0], F64), array([2.0], F64)], 1).tolist() == [0]
    assert gradient("Cumprod", [array([2.0, 0, 3], F64), array(0)]).tolist()[0] == 1


def test_gradients_of_casts_stop_at_integers() -> None:
    b = Builder(Graph())
    x = b.Placeholder(dtype=dtypes.float32, shape=(2,))
    whole, wide = b.Cast(x, DstT=dtypes.int32), b.Cast(x, DstT=dtypes.float64)
    (dx,) = gradients(b, [wide], [b.OnesLike(wide)], [x])
    assert dx.dtype is dtypes.float32
    back = b.Cast(whole, DstT=dtypes.float32)
    assert gradients(b, [back], [b.OnesLike(back)], [x]) == [None]
