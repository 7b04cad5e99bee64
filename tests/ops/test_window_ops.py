"""Convolutions, pooling, cross entropies, beyond the cases of the records.

The values are TensorFlow 2.21's. Blocks of every size, arrays of every layout in memory, NaN and infinities in pooling,
errors, shapes that are partly known, and the parts of second and third derivatives.
"""

from __future__ import annotations

import itertools
import tracemalloc
from typing import Any

import numpy as np
import pytest

from headrace import dtypes, thresholds
from headrace.errors import InvalidArgumentError, OpError, ShapeError, UnimplementedError
from headrace.ir.analysis.speculatable import is_speculatable
from headrace.ir.builder import Builder
from headrace.ir.graph import Graph
from headrace.ir.opdef import op_registry
from headrace.opkit.windows import Axis, taps
from tests.ops.cases import assert_close, cases, constant_op, flat, gradients, run_kernel
from tests.ops.test_math_ops import array, run

NAN, INF = np.nan, np.inf
F32, I32 = np.float32, np.int32
LOWEST = float(np.finfo(F32).min)
ONE, TWO = [1, 1, 1, 1], [1, 2, 2, 1]
CONVOLUTIONS = ("Conv2D", "Conv2DBackpropInput", "Conv2DBackpropFilter")
Z = np.zeros


def ones(*shape: int) -> np.ndarray:
    return np.ones(shape, F32)


# *** Geometry ***


def by_definition(a: Axis) -> set[tuple[int, int, int]]:
    """Window, number of the element in it, place in the input."""
    places = ((o, k, o * a.stride + k * a.dilation - a.before) for o in range(a.count) for k in range(a.size))
    return {p for p in places if 0 <= p[2] < a.length}


@pytest.mark.parametrize("length", [0, 1, 2, 5])
def test_taps_are_the_definition(length: int) -> None:
    values = itertools.product((0, 1, 4), (1, 2, 3), (1, 2, 3), (1, 2), (-2, 0, 1, 5))
    for count, size, stride, dilation, before in values:
        axis = Axis(length, count, size, stride, dilation, before)
        found = set()
        for k in range(size):
            windows, elements = axis.tap(k)
            pairs = zip(range(count)[windows], range(length)[elements], strict=True)
            found |= {(o, k, e) for o, e in pairs}
        wanted = by_definition(axis)
        assert found == wanted
        assert axis.is_inside == (len(wanted) == count * size) or not count
        assert set(axis.met) == {k for _, k, _ in wanted} or stride > 1 or dilation > 1
        assert by_definition(axis.trimmed()) == {(o, k - axis.met.start, e) for o, k, e in wanted}
        once = len({e for _, _, e in wanted}) == len(wanted)
        assert once or not axis.is_disjoint
        for first in range(count):
            part = by_definition(axis.part(slice(first, count)))
            assert part == {(o - first, k, e) for o, k, e in wanted if o >= first}


def test_taps_of_several_axes_go_as_the_elements_do() -> None:
    axes = [Axis(3, 2, 2, 1, 1, 0), Axis(4, 2, 2, 2, 1, 0)]
    starts = [tuple(s.start for s in elements) for _, elements in taps(axes)]
    assert starts == [(0, 0), (0, 1), (1, 0), (1, 1)]


# *** Convolutions ***


@pytest.mark.parametrize("type", CONVOLUTIONS)
@pytest.mark.parametrize("block", [1, 100, 400])
def test_blocks_of_any_size_give_the_same(type: str, block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for case in cases(type, dtypes.float64):
        op = constant_op(op_registry.get(type), case)
        args = flat(case.inputs)
        (whole,) = run_kernel(op, args)
        with monkeypatch.context() as m:
            m.setattr(thresholds, "CACHED_BYTES", block)
            (parts,) = run_kernel(op, args)
        assert_close(parts, np.asarray(whole), f"{type} {dict(case.attrs)}")


@pytest.mark.parametrize("type", [*CONVOLUTIONS, "MaxPool", "MaxPoolGrad", "MaxPoolGradGrad", "AvgPool", "AvgPoolGrad"])
def test_how_arrays_lie_in_memory_does_not_matter(type: str) -> None:
    def strewn(x: np.ndarray) -> np.ndarray:
        wide = np.full((*x.shape[:-1], 2 * x.shape[-1]), 77, x.dtype)
        wide[..., ::2] = x
        return np.asfortranarray(wide)[..., ::2]

    for case in cases(type, dtypes.float32):
        op = constant_op(op_registry.get(type), case)
        args = flat(case.inputs)
        (want,) = run_kernel(op, args)
        (got,) = run_kernel(op, [strewn(x) if x.ndim == 4 else x for x in args])
        assert_close(got, np.asarray(want), f"{type} {dict(case.attrs)}")


@pytest.mark.matrix
def test_a_convolution_copies_a_few_megabytes_at_a_time() -> None:
    x, w, dy = ones(8, 64, 64, 16), ones(3, 3, 16, 16), ones(8, 64, 64, 16)
    sizes = [np.array(a.shape, I32) for a in (x, w)]
    attrs = {"strides": ONE, "padding": "SAME"}
    for type, args in zip(CONVOLUTIONS, ((x, w), (sizes[0], w, dy), (x, sizes[1], dy)), strict=True):
        run(type, *args, **attrs)
        tracemalloc.start()
        try:
            run(type, *args, **attrs)
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert peak < x.nbytes + 5 * thresholds.CACHED_BYTES, (
            f"{type}: {peak} bytes; all windows together have {9 * x.nbytes}"
        )


def test_int32_wraps_around() -> None:
    big = np.full((1, 1, 1, 1), 2**30, I32)
    assert run("Conv2D", big, np.full_like(big, 6), strides=ONE, padding="VALID").item() == -(2**31)


def test_an_axis_shorter_than_the_window_by_less_than_a_stride_gives_nothing() -> None:
    """TensorFlow's kernels do that; its shape functions refuse it."""
    assert run("Conv2D", ones(1, 2, 2, 1), ones(3, 3, 1, 1), strides=ONE, padding="VALID").shape == (1, 0, 0, 1)
    assert run("MaxPool", ones(1, 2, 5, 1), ksize=[1, 3, 3, 1], strides=TWO, padding="VALID").shape == (1, 0, 2, 1)


def test_input_sizes_may_be_those_of_the_spatial_axes() -> None:
    w, dy = ones(3, 3, 2, 5), ones(1, 2, 2, 5)
    got = run("Conv2DBackpropInput", array([4, 4]), w, dy, strides=ONE, padding="VALID")
    assert got.shape == (1, 4, 4, 2)
    assert got[0, 0, :, 0].tolist() == [5, 10, 10, 5]


# *** Pooling ***


@pytest.mark.parametrize(
    ("window", "greatest", "gradient", "second"),
    [
        ([1, 3, 3, 2], 3, [0, 1, 0, 0], 2),
        ([NAN, 1, 2, 3], 3, [1, 0, 0, 0], 4),
        ([1, NAN, 2, 3], 3, [0, 0, 0, 1], 4),
        ([1, 2, 3, NAN], 3, [0, 0, 1, 0], 3),
        ([NAN, NAN, NAN, NAN], LOWEST, [1, 0, 0, 0], 0),
        ([-INF, -INF, -INF, -INF], LOWEST, [1, 0, 0, 0], 0),
        ([1, INF, INF, NAN], INF, [0, 1, 0, 0], 2),
    ],
)
@pytest.mark.parametrize("dtype", [F32, np.float16])
def test_pooling_of_nan_and_infinities(
    window: list[float], greatest: float, gradient: list[float], second: float, dtype: type
) -> None:
    x = np.array(window, dtype).reshape(1, 2, 2, 1)
    attrs = {"ksize": TWO, "strides": TWO, "padding": "VALID"}
    y = run("MaxPool", x, **attrs)
    assert y.item() == (greatest if greatest != LOWEST else float(np.finfo(dtype).min))
    assert run("MaxPoolGrad", x, y, np.ones_like(y), **attrs).ravel().tolist() == gradient
    g = np.array([1, 2, 3, 4], dtype).reshape(x.shape)
    assert run("MaxPoolGradGrad", x, y, g, **attrs).item() == second


@pytest.mark.parametrize("bad", [NAN, INF, -INF])
def test_no_gradient_is_spoilt_by_that_of_a_neighbour(bad: float) -> None:
    """Multiplied by 0, a NaN would spread to the other elements of its window."""
    x = np.arange(8, dtype=F32).reshape(1, 2, 4, 1)
    y, g = array([5.0, 7.0]).reshape(1, 1, 2, 1), array([bad, 1.0]).reshape(1, 1, 2, 1)
    got = run("MaxPoolGrad", x, y, g, ksize=TWO, strides=TWO, padding="VALID")
    assert np.array_equal(got.ravel(), [0, 0, 0, 0, 0, bad, 0, 1], equal_nan=True)


def test_windows_that_overlap_share_their_greatest_element() -> None:
    x = array([[1.0, 5.0, 2.0, 3.0]]).reshape(1, 1, 4, 1)
    attrs = {"ksize": [1, 1, 3, 1], "strides": ONE, "padding": "SAME"}
    y = run("MaxPool", x, **attrs)
    assert y.ravel().tolist() == [5, 5, 5, 3]
    g = array([1.0, 10.0, 100.0, 1000.0]).reshape(y.shape)
    assert run("MaxPoolGrad", x, y, g, **attrs).ravel().tolist() == [0, 111, 0, 1000]


def test_the_greatest_element_is_looked_up_anew() -> None:
    """The gradient goes to the greatest element, independent of the value given for the output."""
    x = np.arange(16, dtype=F32).reshape(1, 4, 4, 1)
    got = run("MaxPoolGrad", x, ones(1, 2, 2, 1), ones(1, 2, 2, 1), ksize=TWO, strides=TWO, padding="VALID")
    assert np.flatnonzero(got).tolist() == [5, 7, 13, 15]


def test_means_leave_padding_out() -> None:
    y = run("AvgPool", ones(1, 3, 3, 1), ksize=[1, 3, 3, 1], strides=ONE, padding="SAME")
    assert (y == 1).all()
    dx = run("AvgPoolGrad", array([1, 1, 3, 1]), ones(1, 1, 3, 1), ksize=[1, 1, 2, 1], strides=ONE, padding="SAME")
    assert dx.ravel().tolist() == [0.5, 1, 1.5]


# *** Cross entropies ***


@pytest.mark.parametrize("dtype", [F32, np.float64])
@pytest.mark.parametrize("index", [np.int32, np.int64])
def test_cross_entropies_do_not_depend_on_the_layout(dtype, index):
    x = np.random.default_rng(0).normal(size=(5, 7)).astype(dtype)
    labels = array([6, 0, 3, 3, 1]).astype(index)
    expected = run("SparseSoftmaxCrossEntropyWithLogits", x, labels)
    chosen = np.exp(x)[np.arange(5), labels] / np.exp(x).sum(1)
    np.testing.assert_allclose(expected[0], -np.log(chosen), 1e-5)
    for y in (np.asfortranarray(x), np.repeat(x, 2, 0)[::2], np.repeat(x, 3, 1)[:, ::3]):
        for k in (labels, np.repeat(labels, 2)[::2]):
            for mine, theirs in zip(run("SparseSoftmaxCrossEntropyWithLogits", y, k), expected, strict=True):
                np.testing.assert_array_equal(mine, theirs)


def test_cross_entropy_of_infinities() -> None:
    loss, backprop = run("SoftmaxCrossEntropyWithLogits", array([[1, -INF, 3]], F32), array([[0.0, 0.0, 1.0]]))
    assert np.isnan(loss).all()
    assert_close(backprop, array([[0.1192029, 0, -0.1192029]]))
    loss, backprop = run("SparseSoftmaxCrossEntropyWithLogits", array([[1, -INF, 3]] * 2, F32), array([1, 0]))
    assert_close(loss, array([INF, 2.126928]))
    assert_close(backprop, array([[0.1192029, -1, 0.8807970], [-0.8807970, 0, 0.8807970]]))


def test_large_logits_do_not_overflow() -> None:
    loss, _ = run("SoftmaxCrossEntropyWithLogits", array([[1e4, 0.0]]), array([[0.0, 1.0]]))
    assert loss.tolist() == [1e4]


# *** Errors ***

CONV = {"strides": ONE, "padding": "VALID"}
POOL = {"ksize": TWO, "strides": TWO, "padding": "VALID"}
ERRORS: list[tuple[str, tuple[Any, ...], dict[str, Any], type[OpError], str]] = [
    ("Conv2D", (Z((2, 2, 2)), Z((1, 1, 2, 2))), CONV, InvalidArgumentError, r"input must be 4-dimensional: \[2,2,2\]"),
    ("Conv2D", (Z((1, 2, 2, 2)), Z((1, 2, 2))), CONV, InvalidArgumentError, r"filter must be 4-dimensional"),
    ("Conv2D", (Z((1, 4, 4, 3)), Z((1, 1, 2, 2))), CONV, InvalidArgumentError, "evenly divisible by filter depth"),
    ("Conv2D", (Z((1, 4, 4, 4)), Z((1, 1, 2, 3))), CONV, InvalidArgumentError, "divisible by number of groups"),
    ("Conv2D", (Z((1, 4, 4, 2)), Z((0, 3, 2, 5))), CONV, InvalidArgumentError, "must not have zero elements"),
    ("Conv2D", (Z((1, 4, 4, 0)), Z((3, 3, 0, 5))), CONV, InvalidArgumentError, "Depth of filter must not be 0"),
    ("Conv2D", (Z((1, 2, 2, 1)), Z((5, 5, 1, 1))), CONV, InvalidArgumentError, "size would be negative: -2 "),
    (
        "Conv2D",
        (Z((2, 4, 4, 2)), Z((1, 1, 2, 2))),
        {"strides": [2, 1, 1, 1], "padding": "VALID"},
        UnimplementedError,
        "strides in the batch",
    ),
    (
        "Conv2D",
        (Z((2, 4, 4, 2)), Z((1, 1, 2, 2))),
        {**CONV, "dilations": [1, 1, 1, 2]},
        UnimplementedError,
        "dilations in the batch and depth",
    ),
    (
        "Conv2D",
        (ones(1, 1, 1, 1), ones(2, 2, 1, 1)),
        {**CONV, "padding": "EXPLICIT", "explicit_paddings": [0, 0, 2**40, 0, 2**40, 0, 0, 0]},
        OpError,
        "OOM|more than",
    ),
    (
        "Conv2DBackpropInput",
        (array([4, 4, 2]), Z((3, 3, 2, 5)), Z((1, 2, 2, 5))),
        CONV,
        InvalidArgumentError,
        "contain 4 values or 2 values, but got: 3",
    ),
    (
        "Conv2DBackpropInput",
        (array([1, 4, 4, 2]), Z((3, 3, 2, 5)), Z((1, 3, 2, 5))),
        CONV,
        InvalidArgumentError,
        r"doesn't match computed: actual = \[1,3,2,5\], computed = \[1,2,2,5\]",
    ),
    (
        "Conv2DBackpropInput",
        (array([1, -4, 4, 2]), Z((3, 3, 2, 5)), Z((1, 2, 2, 5))),
        CONV,
        InvalidArgumentError,
        "Dimension -4 must be >= 0",
    ),
    (
        "Conv2DBackpropFilter",
        (Z((1, 4, 4, 2)), array([3, 3]), Z((1, 2, 2, 5))),
        CONV,
        InvalidArgumentError,
        "filter must be 4-dimensional",
    ),
    (
        "Conv2DBackpropFilter",
        (Z((1, 4, 4, 2)), array([3, 3, 2, 5]), Z((1, 2, 2, 4))),
        CONV,
        InvalidArgumentError,
        "doesn't match computed",
    ),
    ("MaxPool", (Z((2, 2, 2)),), POOL, InvalidArgumentError, "must have 2 spatial dimensions"),
    ("MaxPool", (Z((1, 2, 2, 1)),), {**POOL, "ksize": [1, 5, 5, 1]}, InvalidArgumentError, "size would be negative"),
    ("MaxPool", (Z((1, 2, 2, 1)),), {**POOL, "ksize": [1, 0, 1, 1]}, InvalidArgumentError, "ksize must be positive"),
    ("MaxPool", (Z((2, 2, 2, 2)),), {**POOL, "ksize": [2, 1, 1, 1]}, UnimplementedError, "batch dimension"),
    ("MaxPool", (Z((2, 2, 2, 2)),), {**POOL, "ksize": [1, 2, 2, 2]}, UnimplementedError, "exactly one of pooling"),
    (
        "MaxPool",
        (Z((2, 2, 2, 4)),),
        {**POOL, "ksize": [1, 1, 1, 2], "strides": ONE},
        UnimplementedError,
        "equal the depth stride",
    ),
    (
        "MaxPool",
        (Z((2, 2, 2, 3)),),
        {**POOL, "ksize": [1, 1, 1, 2], "strides": [1, 1, 1, 2]},
        UnimplementedError,
        "evenly divide the input depth",
    ),
    (
        "MaxPool",
        (Z((1, 4, 4, 1)),),
        {**POOL, "padding": "EXPLICIT", "explicit_paddings": [0, 0, 4, 2, 0, 1, 0, 0]},
        InvalidArgumentError,
        "smaller than the window size 2",
    ),
    ("MaxPoolV2", (Z((1, 4, 4, 1)), array([2, 2]), array(TWO)), {"padding": "SAME"}, InvalidArgumentError, "4 dimens"),
    ("MaxPoolV2", (Z((1, 4, 4, 1)), array(TWO), array([1, 0, 1, 1])), {"padding": "SAME"}, OpError, "Stride must be"),
    (
        "MaxPoolGrad",
        (Z((1, 4, 4, 1)), Z((1, 3, 2, 1)), Z((1, 2, 2, 1))),
        POOL,
        InvalidArgumentError,
        r"Expected orig_output shape to be \[1,2,2,1\], but got \[1,3,2,1\]",
    ),
    (
        "MaxPoolGrad",
        (Z((1, 4, 4, 1)), Z((1, 2, 2, 1)), Z((1, 2, 3, 1))),
        POOL,
        InvalidArgumentError,
        "Expected grad shape",
    ),
    (
        "MaxPoolGradGrad",
        (Z((1, 4, 4, 1)), Z((1, 2, 2, 1)), Z((1, 2, 2, 1))),
        POOL,
        InvalidArgumentError,
        r"Expected grad shape to be \[1,4,4,1\]",
    ),
    ("AvgPool", (Z((2, 2, 2, 2)),), {**POOL, "ksize": [1, 1, 1, 2]}, UnimplementedError, "Non-spatial pooling"),
    ("AvgPoolGrad", (array([1, 4, 4]), Z((1, 2, 2, 1))), POOL, InvalidArgumentError, "4 elements"),
    ("AvgPoolGrad", (array([1, 4, 4, 1]), Z((1, 2, 3, 1))), POOL, InvalidArgumentError, "Expected grad shape"),
    ("AvgPoolGrad", (array([1, -4, 4, 1]), Z((1, 2, 2, 1))), POOL, InvalidArgumentError, "must be >= 0"),
    ("SoftmaxCrossEntropyWithLogits", (Z((1, 3)), Z((1, 2))), {}, InvalidArgumentError, r"broadcastable.*\[1,3\]"),
    ("SoftmaxCrossEntropyWithLogits", (Z(2), Z(2)), {}, InvalidArgumentError, "2-dimensional"),
    ("SparseSoftmaxCrossEntropyWithLogits", (Z(3), array(0)), {}, InvalidArgumentError, "logits must be 2-D"),
    ("SparseSoftmaxCrossEntropyWithLogits", (Z((2, 3)), array([0])), {}, InvalidArgumentError, "same first dimension"),
    ("SparseSoftmaxCrossEntropyWithLogits", (Z((2, 0)), array([0, 0])), {}, InvalidArgumentError, "one class"),
    ("SparseSoftmaxCrossEntropyWithLogits", (Z((2, 3)), array([0, 3])), {}, InvalidArgumentError, "label value of 3"),
    ("SparseSoftmaxCrossEntropyWithLogits", (Z((2, 3)), array([-1, 0])), {}, InvalidArgumentError, "label value of -1"),
]


@pytest.mark.parametrize(("type", "inputs", "attrs", "error", "match"), ERRORS, ids=[f"{e[0]}-{e[4]}" for e in ERRORS])
def test_invalid_window_inputs_are_refused(
    type: str, inputs: Any, attrs: dict[str, Any], error: type[OpError], match: str
) -> None:
    """A kernel's own error, or a `ValueError`, which the executor turns into `InvalidArgumentError`."""
    with pytest.raises((error, ValueError), match=match):
        run(type, *inputs, **attrs)


REFUSED: list[tuple[str, list[Any], dict[str, Any], str]] = [
    ("Conv2D", [(2, 2, 2), (1, 1, 2, 2)], CONV, "rank 4 but is rank 3"),
    ("Conv2D", [(1, 4, 4, 3), (1, 1, 2, 2)], CONV, r"input \(3\) is not a multiple of input depth of filter \(2\)"),
    ("Conv2D", [(1, 4, 4, 4), (1, 1, 2, 3)], CONV, r"output \(3\) is not a multiple of the number of groups \(2\)"),
    ("Conv2D", [(None, 2, None, 1), (3, 3, 1, 1)], CONV, "caused by subtracting 3 from 2"),
    ("Conv2D", [None, None], {**CONV, "strides": [1, 0, 1, 1]}, "Stride must be > 0, but got 0"),
    ("Conv2D", [None, None], {**CONV, "strides": [1, 1, 1]}, "stride attribute to contain 4 values, but got: 3"),
    ("Conv2D", [None, None], {**CONV, "dilations": [1, 0, 1, 1]}, "Dilation rate must be >= 1, but got 0"),
    ("Conv2D", [None, None], {**CONV, "dilations": [1, 1]}, "dilation attribute to contain 4 values"),
    ("Conv2D", [None, None], {**CONV, "explicit_paddings": [0] * 8}, "must be empty if"),
    ("Conv2D", [None, None], {**CONV, "padding": "EXPLICIT"}, "must contain 8 values, but got: 0"),
    (
        "Conv2D",
        [None, None],
        {**CONV, "padding": "EXPLICIT", "explicit_paddings": [0, 0, -1, 0, 0, 0, 0, 0]},
        "must be nonnegative",
    ),
    (
        "Conv2D",
        [None, None],
        {**CONV, "padding": "EXPLICIT", "explicit_paddings": [0, 1, 0, 0, 0, 0, 0, 0]},
        "batch or depth dimensions",
    ),
    ("MaxPool", [(1, 2, 2, 1)], {**POOL, "ksize": [1, 3, 3, 1]}, "caused by subtracting 3 from 2"),
    ("MaxPool", [None], {**POOL, "ksize": [1] * 5}, "ksize attribute to contain 4 values, but got: 5"),
    ("MaxPool", [None], {**POOL, "data_format": "NCHW_VECT_C"}, "quantized"),
    ("MaxPoolGrad", [(1, 4, 4, 1), (1, 3, 2, 1), (1, 2, 2, 1)], POOL, "3 and 2"),
    ("SoftmaxCrossEntropyWithLogits", [(1, 3), (1, 2)], {}, "3 and 2"),
    ("SoftmaxCrossEntropyWithLogits", [(1, 2, 3), (3,)], {}, "rank 2 but is rank 3"),
]


@pytest.mark.parametrize(("type", "found", "attrs", "match"), REFUSED)
def test_what_cannot_be_is_refused_when_built(type: str, found: Any, attrs: Any, match: str) -> None:
    b = Builder(Graph())
    with pytest.raises(ShapeError, match=match):
        b.make(type, [b.Placeholder(dtype=dtypes.float32, shape=s) for s in found], attrs)


# *** Shapes that are partly known ***


def test_what_is_known_of_shapes() -> None:
    b = Builder(Graph())

    def some(*shape: int | None) -> Any:
        return b.Placeholder(dtype=dtypes.float32, shape=shape)

    x, w = some(None, 9, None, 3), some(3, None, 3, 8)
    assert b.Conv2D(x, w, strides=TWO, padding="SAME").shape == (None, 5, None, 8)
    assert b.Conv2D(x, w, strides=TWO, padding="VALID").shape == (None, 4, None, 8)
    assert b.Conv2D(some(2, 3, 9, 9), w, strides=[1, 1, 2, 3], padding="SAME", data_format="NCHW").shape == (2, 8, 5, 3)
    unknown = b.Placeholder(dtype=dtypes.float32, shape=None)
    assert b.Conv2D(unknown, unknown, strides=ONE, padding="SAME").shape == (None,) * 4
    by_input = b.Conv2DBackpropInput(b.Shape(x), w, some(None, 5, None, 8), strides=TWO, padding="SAME")
    assert by_input.shape == (None, 9, None, 3)
    by_filter = b.Conv2DBackpropFilter(x, b.Shape(w), some(None, 5, None, 8), strides=TWO, padding="SAME")
    assert by_filter.shape == (3, None, 3, 8)
    assert b.MaxPool(x, ksize=TWO, strides=TWO, padding="VALID").shape == (None, 4, None, 3)
    assert b.AvgPool(x, ksize=TWO, strides=TWO, padding="SAME").shape == (None, 5, None, 3)
    assert b.MaxPoolV2(x, TWO, TWO, padding="SAME").shape == (None, 5, None, 3)
    sizes = b.Placeholder(dtype=dtypes.int32, shape=(4,))
    assert b.MaxPoolV2(x, sizes, sizes, padding="SAME").shape == (None, None, None, None)
    loss, backprop = b.SoftmaxCrossEntropyWithLogits(some(None, 3), some(4, None))
    assert (loss.shape, backprop.shape) == ((4,), (4, 3))


# *** Gradients ***


def test_gradients_are_tensorflows_ops() -> None:
    b = Builder(Graph())
    x = b.Placeholder(dtype=dtypes.float32, shape=(1, 4, 4, 2))
    y = b.MaxPool(b.Conv2D(x, b.const(ones(3, 3, 2, 2)), strides=ONE, padding="SAME"), **POOL)
    (dx,) = gradients(b, [y], [b.OnesLike(y)], [x])
    assert dx.op.type == "Conv2DBackpropInput"
    assert dx.op.inputs[2].op.type == "MaxPoolGrad"
    g = dx.op.inputs[2].op.inputs[2]
    (second,) = gradients(b, [dx], [b.OnesLike(dx)], [g])
    assert second.op.type == "MaxPoolGradGrad"
    assert second.op.inputs[2].op.type == "Conv2D"


def test_a_loss_alone_asks_for_no_softmax() -> None:
    b = Builder(Graph())
    x = b.Placeholder(dtype=dtypes.float32, shape=(2, 3))
    loss, _ = b.SparseSoftmaxCrossEntropyWithLogits(x, b.const(array([0, 1])))
    gradients(b, [loss], [b.OnesLike(loss)], [x])
    assert not {"Softmax", "LogSoftmax"} & {op.type for op in b.graph.operations}


def test_what_fails_only_when_it_runs_is_left_where_it_is() -> None:
    """A convolution along the batch is built, as in TensorFlow.

    In a loop without iterations it must not fail.
    """
    b = Builder(Graph())
    x = b.Placeholder(dtype=dtypes.float32, shape=(2, 4, 4, 2))
    y = b.Conv2D(x, b.const(ones(1, 1, 2, 2)), strides=[2, 1, 1, 1], padding="VALID")
    z = b.MaxPool(x, ksize=[2, 1, 1, 1], strides=[2, 1, 1, 1], padding="VALID")
    assert not is_speculatable(y.op)
    assert not is_speculatable(z.op)
