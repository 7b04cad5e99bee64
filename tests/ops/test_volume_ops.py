"""Windows of volumes, of single channels and of cuts, beyond the records' cases.

The numbers are TensorFlow 2.21's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from headrace import dtypes
from headrace.errors import InvalidArgumentError, OpError, OutOfRangeError, ShapeError, UnimplementedError
from headrace.ir.builder import Builder
from headrace.ir.graph import Graph
from tests.ops.cases import assert_close, evaluate, gradients
from tests.ops.running import Program
from tests.ops.test_math_ops import array, run

NAN, INF = np.nan, np.inf
F32, I32, BF16 = np.float32, np.int32, ml_dtypes.bfloat16
ONE, FIVE = [1] * 4, [1] * 5
Z = np.zeros


def ones(*shape: int) -> np.ndarray:
    return np.ones(shape, F32)


def drawn(*shape: int, dtype: Any = F32) -> np.ndarray:
    return np.random.default_rng(len(shape)).uniform(-2, 2, shape).astype(dtype)


# *** Derivatives of ops that have no float64, where the registry's tests do not look ***


def check_derivative(build: Any, inputs: Sequence[np.ndarray], second: bool = True) -> None:
    """Compares the gradients of `build(b, *tensors)`, and theirs, with differences of values in single precision."""
    b = Builder(Graph())
    xs = [b.Placeholder(dtype=dtypes.from_numpy(x.dtype), shape=x.shape) for x in inputs]
    fed = dict(zip(xs, inputs, strict=True))
    y = build(b, *xs)
    for _ in range(1 + second):
        weights = b.const(drawn(*evaluate([y], fed)[0].shape))
        total = b.Sum(b.Mul(y, weights), list(range(len(weights.shape))), keep_dims=False)
        dxs = gradients(b, [total], [b.OnesLike(total)], xs)
        for x, dx in zip(xs, dxs, strict=True):
            if dx is None:
                continue
            move = drawn(*fed[x].shape) * F32(2e-3)
            ahead, behind = (evaluate([total], {**fed, x: fed[x] + s * move})[0] for s in (1, -1))
            want = float(np.sum(evaluate([dx], fed)[0].astype(np.float64) * move)) * 2
            assert abs(float(ahead) - float(behind) - want) < 2e-2 * max(abs(want), 2e-3)
        y = next(dx for dx in dxs if dx is not None)


POOL3 = {"ksize": [1, 2, 1, 2, 1], "strides": [1, 2, 1, 1, 1], "padding": "SAME"}


@pytest.mark.parametrize("type", ["MaxPool3D", "AvgPool3D"])
def test_derivatives_of_pooled_volumes(type: str) -> None:
    x = np.random.default_rng(1).permutation(48).reshape(1, 4, 2, 3, 2).astype(F32)
    check_derivative(lambda b, x: b.Square(b.make(type, [x], POOL3)), [x / 10])


def test_derivatives_of_local_response_normalisation() -> None:
    attrs = {"depth_radius": 2, "bias": 2.0, "alpha": 0.5, "beta": 0.75}
    check_derivative(lambda b, x: b.LRN(x, **attrs), [drawn(1, 1, 2, 6)])
    x, y, g = (drawn(1, 1, 2, 6) for _ in range(3))
    check_derivative(lambda b, g, x, y: b.LRNGrad(g, x, y, **attrs), [g[..., ::-1].copy(), x, y + 1], second=False)


# *** Sums that are rounded as TensorFlow rounds them ***


def test_bfloat16_is_rounded_after_each_product() -> None:
    """256 + 1 is 256 in bfloat16.

    So ones that are added to it one by one are lost.
    """
    w = np.array([256, 1, 1, 1, 1, 1, 1, 1], BF16)
    volume = run("Conv3D", np.ones((1, 1, 1, 8, 1), BF16), w.reshape(1, 1, 8, 1, 1), strides=FIVE, padding="VALID")
    assert float(volume.item()) == 256
    image = run("Conv2D", np.ones((1, 1, 8, 1), BF16), w.reshape(1, 8, 1, 1), strides=ONE, padding="VALID")
    assert float(image.item()) == 264
    x, w2 = np.ones((1, 1, 8, 1), BF16), w.reshape(1, 8, 1, 1)
    assert float(run("DepthwiseConv2dNative", x, w2, strides=ONE, padding="VALID").item()) == 256


# *** Greatest elements ***


@pytest.mark.parametrize(
    ("window", "greatest", "place"),
    [
        ([NAN, 1, 2, 3], NAN, 0),
        ([1, NAN, 2, 3], 3, 3),
        ([NAN] * 4, NAN, 0),
        ([-INF] * 4, -INF, 0),
        ([1, 3, 3, 2], 3, 1),
    ],
)
def test_places_of_nan_and_infinities(window: list[float], greatest: float, place: int) -> None:
    attrs = {"ksize": [1, 2, 2, 1], "strides": [1, 2, 2, 1], "padding": "VALID"}
    y, argmax = run("MaxPoolWithArgmax", np.array(window, F32).reshape(1, 2, 2, 1), **attrs)
    assert np.array_equal(y.ravel(), [greatest], equal_nan=True)
    assert argmax.item() == place


def test_places_count_the_batch_if_asked() -> None:
    x = np.arange(16, dtype=F32).reshape(2, 2, 2, 2)
    attrs = {"ksize": [1, 2, 2, 1], "strides": [1, 2, 2, 1], "padding": "VALID"}
    for include, want in ((False, [6, 7, 6, 7]), (True, [6, 7, 14, 15])):
        _, argmax = run("MaxPoolWithArgmax", x, include_batch_in_index=include, **attrs)
        assert argmax.ravel().tolist() == want
        dx = run("MaxPoolGradWithArgmax", x, ones(2, 1, 1, 2), argmax, include_batch_in_index=include, **attrs)
        assert np.flatnonzero(dx).tolist() == [6, 7, 14, 15]


def test_gradients_of_pooled_volumes_go_to_all_that_are_nearly_the_greatest() -> None:
    attrs = {"ksize": [1, 1, 1, 4, 1], "strides": FIVE, "padding": "VALID"}
    x = array([1 - 9e-6, 1, 1 - 2e-5, 1], F32).reshape(1, 1, 1, 4, 1)
    y, g = ones(1, 1, 1, 1, 1), array([2], F32).reshape(1, 1, 1, 1, 1)
    assert run("MaxPool3DGrad", x, y, g, **attrs).ravel().tolist() == [2, 2, 0, 2]
    assert run("MaxPool3DGradGrad", x, y, x * 3, **attrs).ravel().tolist() == [3]


def test_windows_of_almost_nothing_but_padding_cost_nothing() -> None:
    x = array([1.0, 5, 2, 3], F32).reshape(1, 2, 2, 1)
    attrs = {"ksize": [1, 2**31 - 1, 2**31 - 1, 1], "strides": ONE, "padding": "SAME"}
    assert (run("MaxPool", x, **attrs) == 5).all()
    assert (run("AvgPool", x, **attrs) == 2.75).all()


def test_dilation_of_nan_and_infinities() -> None:
    attrs = {"strides": ONE, "rates": ONE, "padding": "VALID"}
    low = np.finfo(F32).min
    for window, want in (([NAN, 1, 2, 3], 4), ([NAN] * 4, low), ([-INF] * 4, low)):
        x = np.array(window, F32).reshape(1, 2, 2, 1)
        assert run("Dilation2D", x, ones(2, 2, 1), **attrs).item() == want
    x = np.array([-INF] * 4, F32).reshape(1, 2, 2, 1)
    back = run("Dilation2DBackpropInput", x, ones(2, 2, 1), ones(1, 1, 1, 1), **attrs)
    assert back.ravel().tolist() == [1, 0, 0, 0]


# *** Fractional pooling ***


def test_cuts_are_tensorflows_for_given_seeds() -> None:
    p = Program()
    x = np.arange(63, dtype=F32).reshape(1, 7, 9, 1)
    attrs = {"pooling_ratio": [1, 1.5, 1.4, 1], "deterministic": True, "seed": 3, "seed2": 4}
    for pseudo, rows, columns in (
        (False, [0, 2, 4, 5, 7], [0, 2, 4, 5, 7, 8, 9]),
        (True, [0, 2, 3, 5, 7], [0, 1, 3, 4, 6, 7, 9]),
    ):
        for type in ("FractionalMaxPool", "FractionalAvgPool"):
            pooled = p.b.make(type, [x], {**attrs, "pseudo_random": pseudo})
            for _ in range(2):
                _, r, c = p.run(list(pooled))
                assert (r.tolist(), c.tolist()) == (rows, columns)
    y = p.run(p.b.FractionalMaxPool(x, **attrs, overlapping=True)[0])
    assert y[0, 0, :, 0].tolist() == [20, 22, 23, 25, 26, 26]
    means = p.run(p.b.FractionalAvgPool(x.astype(I32), **attrs)[0])
    assert means[0, 0, :, 0].tolist() == [5, 7, 8, 10, 11, 12]


def test_cuts_without_seeds_stay_as_they_are_in_a_session() -> None:
    p = Program()
    x = np.zeros((1, 40, 40, 1), F32)
    pooled = p.b.FractionalMaxPool(x, pooling_ratio=[1, 1.4, 1.4, 1])
    first, again = p.run(list(pooled)), p.run(list(pooled))
    assert np.array_equal(first[1], again[1])
    assert first[1][0] == 0
    assert first[1][-1] == 40
    assert set(np.diff(first[1])) == {1, 2}


def test_gradients_of_fractional_pooling() -> None:
    p = Program()
    x = p.b.const(np.random.default_rng(1).permutation(30).reshape(1, 6, 5, 1).astype(np.float64))
    for type in ("FractionalMaxPool", "FractionalAvgPool"):
        attrs = {"pooling_ratio": [1, 1.4, 1.6, 1], "deterministic": True, "seed": 1, "seed2": 2}
        y = p.b.make(type, [x], attrs)[0]
        g = p.b.const(drawn(1, 4, 3, 1, dtype=np.float64))
        (dx,) = gradients(p.b, [y], [g], [x])
        (back,) = gradients(p.b, [dx], [dx], [g])
        gs, dxs, backs = p.run([g, dx, back])
        assert abs(gs.sum() - dxs.sum()) < 1e-12
        assert abs((gs * backs).sum() - (dxs * dxs).sum()) < 1e-12  # the transpose of the transpose


# *** Errors ***

VALID = {"strides": ONE, "padding": "VALID"}
POOL = {"ksize": [1, 2, 2, 1], **VALID}
VOLUME = {"strides": FIVE, "padding": "VALID"}
PATCH = {"ksizes": [1, 2, 2, 1], "strides": ONE, "rates": ONE, "padding": "VALID"}
DILATE = {"strides": ONE, "rates": ONE, "padding": "VALID"}
MIRROR = {"mode": "REFLECT", **VALID}
PADS = Z((4, 2), I32)
TO_BATCH, TOO_MANY = (array([[0, 0]] * i + [pair] + [[0, 0]] * (3 - i)) for i, pair in ((0, [1, 0]), (1, [4, 0])))
CUTS = array([0, 2, 4])
ERRORS: list[tuple[str, tuple[Any, ...], dict[str, Any], type[OpError], str]] = [
    ("Conv3D", (Z((2, 2, 2, 2)), Z((1, 1, 1, 2, 2))), VOLUME, InvalidArgumentError, "input must be 5-dimensional"),
    ("Conv3D", (Z((1, 3, 3, 3, 0)), Z((2, 2, 2, 0, 2))), VOLUME, InvalidArgumentError, "must not be 0"),
    ("Conv3D", (Z((1, 3, 3, 3, 3)), Z((2, 2, 2, 2, 2))), VOLUME, InvalidArgumentError, "evenly divisible"),
    ("Conv3D", (Z((1, 3, 3, 3, 1)), Z((5, 2, 2, 1, 2))), VOLUME, InvalidArgumentError, "size would be negative: -1"),
    (
        "Conv3D",
        (Z((2, 3, 3, 3, 1)), Z((2, 2, 2, 1, 2))),
        {**VOLUME, "strides": [2, 1, 1, 1, 1]},
        InvalidArgumentError,
        "strides in the batch and depth",
    ),
    (
        "Conv3DBackpropInputV2",
        (array([3, 3, 3]), Z((2, 2, 2, 2, 3)), Z((1, 2, 2, 2, 3))),
        VOLUME,
        InvalidArgumentError,
        "contain 5 values, but got: 3",
    ),
    (
        "Conv3DBackpropInputV2",
        (array([1, -3, 3, 3, 2]), Z((2, 2, 2, 2, 3)), Z((1, 2, 2, 2, 3))),
        VOLUME,
        InvalidArgumentError,
        "must be >= 0",
    ),
    (
        "Conv3DBackpropFilterV2",
        (Z((1, 3, 3, 3, 2)), array([2, 2, 2, 2, 3]), Z((1, 1, 1, 1, 3))),
        VOLUME,
        InvalidArgumentError,
        "doesn't match computed",
    ),
    ("DepthwiseConv2dNative", (Z((4, 4, 2)), Z((2, 2, 2, 1))), VALID, InvalidArgumentError, "must be 4-dimensional"),
    ("DepthwiseConv2dNative", (Z((1, 4, 4, 2)), Z((2, 2, 3, 1))), VALID, InvalidArgumentError, "same depth: 2 vs 3"),
    (
        "DepthwiseConv2dNative",
        (Z((2, 4, 4, 2)), Z((2, 2, 2, 1))),
        {**VALID, "strides": [2, 1, 1, 1]},
        InvalidArgumentError,
        "strides in the batch and depth",
    ),
    (
        "DepthwiseConv2dNativeBackpropInput",
        (array([4, 4]), Z((2, 2, 2, 1)), Z((1, 3, 3, 2))),
        VALID,
        InvalidArgumentError,
        "input must be 4-dimensional",
    ),
    (
        "DepthwiseConv2dNativeBackpropInput",
        (array([1, 4, 4, 2]), Z((2, 2, 2, 1)), Z((1, 2, 3, 2))),
        VALID,
        InvalidArgumentError,
        "doesn't match computed",
    ),
    (
        "DepthwiseConv2dNativeBackpropFilter",
        (Z((1, 4, 4, 2)), array([2, 2, 2, -1]), Z((1, 3, 3, 2))),
        VALID,
        InvalidArgumentError,
        "must be >= 0",
    ),
    ("Conv", (Z((1, 4, 4, 4)), Z((2, 2, 2, 4))), VALID, InvalidArgumentError, r"groups parameter \(1\): got 2"),
    ("Conv", (Z((4, 4, 2)), Z((2, 2, 2, 4))), VALID, InvalidArgumentError, "3 dimensions behind its 1"),
    ("Conv", (Z((1, 4, 2)), Z((2, 2, 4))), {**VALID, "strides": [1] * 3}, OpError, "2 or 3 spatial dimensions"),
    ("MaxPool3D", (ones(1, 2, 2, 2, 1),), {**POOL3, "ksize": [1, 0, 2, 2, 1]}, InvalidArgumentError, "ksize must be"),
    ("MaxPool3D", (ones(1, 2, 2, 2, 2),), {**POOL3, "ksize": [1, 1, 1, 1, 2]}, UnimplementedError, "depth dimension"),
    ("AvgPool3D", (Z((2, 2, 2, 2, 2)),), {**POOL3, "ksize": [2, 1, 1, 1, 1]}, UnimplementedError, "batch dimension"),
    ("AvgPool3DGrad", (array([1, 2, 2, 1]), Z((1, 1, 1, 1, 1))), POOL3, InvalidArgumentError, "5 elements"),
    ("MaxPoolWithArgmax", (Z((0, 2, 2, 1)),), POOL, InvalidArgumentError, "must not be empty"),
    ("MaxPoolWithArgmax", (Z((1, 2, 2, 2)),), {**POOL, "ksize": [1, 1, 1, 2]}, UnimplementedError, "depth dimension"),
    (
        "MaxPoolGradWithArgmax",
        (Z((1, 2, 2, 1)), Z((1, 1, 1, 1)), array([[[[4]]]], np.int64)),
        POOL,
        InvalidArgumentError,
        r"must be in \[0, 4\)",
    ),
    (
        "MaxPoolGradWithArgmax",
        (Z((1, 2, 2, 1)), Z((1, 1, 1, 1)), array([[[[-1]]]], np.int64)),
        POOL,
        InvalidArgumentError,
        r"must be in \[0, 4\)",
    ),
    (
        "MaxPoolGradWithArgmax",
        (Z((1, 2, 2, 1)), Z((1, 1, 1, 1)), array([0], np.int64)),
        POOL,
        InvalidArgumentError,
        "Expected argmax shape",
    ),
    ("ExtractImagePatches", (Z((1, 4, 4, 1)),), {**PATCH, "ksizes": [1, 0, 1, 1]}, OutOfRangeError, "ksizes is out of"),
    ("ExtractImagePatches", (Z((1, 4, 4, 1)),), {**PATCH, "rates": [1, 0, 1, 1]}, OutOfRangeError, "rates is out of"),
    ("ExtractImagePatches", (Z((1, 4, 4, 1)),), {**PATCH, "strides": [1, 1, 1, 2]}, UnimplementedError, "strides acr"),
    ("ExtractImagePatches", (Z((4, 4, 1)),), PATCH, InvalidArgumentError, "4-dimensional"),
    (
        "ExtractImagePatches",
        (Z((1, 4, 4, 1)),),
        {**PATCH, "ksizes": [1, 2**30, 2**30, 1], "padding": "SAME"},
        OpError,
        "OOM|more than",
    ),
    ("Dilation2D", (Z((1, 4, 4, 2)), Z((2, 2, 1))), DILATE, InvalidArgumentError, "same depth: 2 vs 1"),
    ("Dilation2D", (Z((1, 4, 4, 2)), Z((2, 2))), DILATE, InvalidArgumentError, "filter must be 3-dimensional"),
    (
        "Dilation2D",
        (Z((1, 4, 4, 2)), Z((2, 2, 2))),
        {**DILATE, "rates": [1, 1, 1, 2]},
        UnimplementedError,
        "Rate is only supported",
    ),
    (
        "Dilation2DBackpropInput",
        (Z((1, 4, 4, 2)), Z((2, 2, 2)), Z((1, 3, 3, 1))),
        DILATE,
        InvalidArgumentError,
        "incompatible size",
    ),
    ("LRN", (ones(2, 2),), {}, InvalidArgumentError, "4-dimensional"),
    ("LRN", (ones(1, 1, 1, 2),), {"depth_radius": -1}, InvalidArgumentError, "depth_radius = -1"),
    ("LRNGrad", (ones(1, 1, 1, 2),) * 2 + (ones(1, 1, 1, 3),), {}, InvalidArgumentError, "the same shape"),
    ("FusedPadConv2D", (Z((0, 4, 4, 1)), PADS, Z((2, 2, 1, 1))), MIRROR, InvalidArgumentError, "can't be empty"),
    ("FusedPadConv2D", (Z((1, 4, 4, 1)), TO_BATCH, Z((2, 2, 1, 1))), MIRROR, InvalidArgumentError, "not batches"),
    ("FusedPadConv2D", (Z((1, 4, 4, 1)), PADS - 1, Z((2, 2, 1, 1))), MIRROR, InvalidArgumentError, "spatial padding"),
    ("FusedPadConv2D", (Z((1, 4, 4, 1)), TOO_MANY, Z((2, 2, 1, 1))), MIRROR, InvalidArgumentError, "not less than 4"),
    ("FusedPadConv2D", (Z((1, 4, 4, 2)), PADS, Z((2, 2, 1, 1))), MIRROR, InvalidArgumentError, "same depth: 2 vs"),
    (
        "FusedResizeAndPadConv2D",
        (Z((1, 4, 4, 1)), array([0, 7]), PADS, Z((2, 2, 1, 1))),
        MIRROR,
        InvalidArgumentError,
        "dimensions must be positive",
    ),
    (
        "FusedResizeAndPadConv2D",
        (Z((1, 4, 4, 1)), array([2**30, 2**30]), PADS, Z((2, 2, 1, 1))),
        MIRROR,
        OpError,
        "OOM|more than",
    ),
    (
        "FractionalMaxPoolGrad",
        (Z((1, 4, 4, 1)), Z((1, 2, 2, 1)), Z((1, 2, 2, 1)), array([0, 4]), CUTS),
        {},
        InvalidArgumentError,
        "must have 3 elements for 2 windows, but got 2",
    ),
    (
        "FractionalMaxPoolGrad",
        (Z((1, 4, 4, 1)), Z((1, 2, 2, 1)), Z((1, 2, 3, 1)), CUTS, CUTS),
        {},
        InvalidArgumentError,
        "out_backprop must have the shape",
    ),
    (
        "FractionalAvgPoolGrad",
        (array([1, 4, 4, 1]), Z((1, 2, 2, 1)), array([-2, 2, 4]), CUTS),
        {},
        InvalidArgumentError,
        "must not be negative",
    ),
    (
        "FractionalAvgPoolGrad",
        (array([1, 4, 4, 1]), Z((1, 2, 2, 1)), array([0, 3, 2]), CUTS),
        {},
        InvalidArgumentError,
        "must increase",
    ),
    (
        "FractionalAvgPoolGrad",
        (np.array([1, 2**40, 2**40, 1]), Z((1, 2, 2, 1)), CUTS, CUTS),
        {},
        OpError,
        "OOM|more than",
    ),
]


@pytest.mark.parametrize(("type", "inputs", "attrs", "error", "match"), ERRORS, ids=[f"{e[0]}-{e[4]}" for e in ERRORS])
def test_invalid_volume_inputs_are_refused(
    type: str, inputs: Any, attrs: dict[str, Any], error: type[OpError], match: str
) -> None:
    """A kernel's own error, or a `ValueError`, which the executor turns into `InvalidArgumentError`."""
    if type.startswith("Fractional"):  # sequences and shapes are of 64 bits
        inputs = [x.astype(np.int64) if x.dtype.kind == "i" else x for x in inputs]
    with pytest.raises((error, ValueError), match=match):
        run(type, *inputs, **attrs)


def test_errors_of_ratios() -> None:
    p = Program()
    x = p.feed(ones(1, 7, 9, 1))
    for ratios, error, match in (
        ([1, 0.5, 1.4, 1], InvalidArgumentError, "cannot be smaller than 1, got: 0.5"),
        ([1, NAN, 1.4, 1], InvalidArgumentError, "cannot be smaller than 1, got: nan"),
        ([1, 8.5, 1.4, 1], InvalidArgumentError, "higher than input dimension size for dimension 1"),
        ([1, 1.5, 1.4, 1.2], UnimplementedError, "batch nor channel"),
    ):
        pooled = p.b.FractionalMaxPool(x, pooling_ratio=ratios)
        with p.fails(error, match):
            p.run(pooled[0])
    pooled = p.b.FractionalAvgPool(x, pooling_ratio=[1, 1.5, 1.4, 1], seed=3)
    with p.fails(InvalidArgumentError, "should be 0 if deterministic is false"):
        p.run(pooled[0])
    pooled = p.b.FractionalAvgPool(p.feed(ones(2, 2)), pooling_ratio=[1, 1.5, 1.4, 1])
    with p.fails(InvalidArgumentError, "must be 4-dimensional"):
        p.run(pooled[0])


def test_each_image_of_a_batch_is_mirrored_and_convolved() -> None:
    """TensorFlow's kernel goes wrong behind the first."""
    x, w, pads = drawn(3, 4, 3, 2), drawn(2, 2, 2, 2), array([[0, 0], [1, 2], [2, 0], [0, 0]])
    whole = run("FusedPadConv2D", x, pads, w, **MIRROR)
    for image, want in zip(x, whole, strict=True):
        assert_close(run("FusedPadConv2D", image[None], pads, w, **MIRROR)[0], want)
    with pytest.raises(ValueError, match="Explicit padding not supported for 3D"):
        run(
            "Conv",
            ones(1, 2, 2, 2, 1),
            ones(1, 1, 1, 1, 1),
            strides=FIVE,
            padding="EXPLICIT",
            explicit_paddings=[0] * 10,
        )


# *** Shapes that are partly known ***


def test_what_is_known_of_shapes() -> None:
    b = Builder(Graph())

    def some(*shape: int | None) -> Any:
        return b.Placeholder(dtype=dtypes.float32, shape=shape)

    x, v = some(None, 7, None, 4), some(None, 7, None, 4, 2)
    assert b.Conv3D(v, some(2, 2, 2, 2, 3), **VOLUME).shape == (None, 6, None, 3, 3)
    assert b.DepthwiseConv2dNative(x, some(2, 2, 4, 3), **VALID).shape == (None, 6, None, 12)
    back = b.DepthwiseConv2dNativeBackpropInput(b.Shape(x), some(2, 2, 4, 3), some(None, 6, None, 12), **VALID)
    assert back.shape == (None, 7, None, 4)
    assert b.Conv(v, some(2, 2, 2, 3), strides=ONE, padding="VALID", batch_dims=2).shape == (None, 7, None, 3, 3)
    assert b.MaxPool3D(v, **POOL3).shape == (None, 4, None, 4, 2)
    pooled = b.FractionalMaxPool(x, pooling_ratio=[1, 1.44, 1.7, 1])
    assert [t.shape for t in pooled] == [(None, 4, None, 4), (5,), (None,)]
    y, argmax = b.MaxPoolWithArgmax(x, **POOL)
    assert y.shape == argmax.shape == (None, 6, None, 4)
    assert b.ExtractImagePatches(x, **PATCH).shape == (None, 6, None, 16)
    assert b.Dilation2D(x, some(2, None, 4), **DILATE).shape == (None, 6, None, 4)
    pads = np.array([[0, 0], [1, 2], [1, 1], [0, 0]], I32)
    assert b.FusedPadConv2D(x, pads, some(2, 2, 4, 8), **MIRROR).shape == (None, 9, None, 8)
    assert b.FusedResizeAndPadConv2D(x, [5, 6], pads, some(2, 2, 4, 8), **MIRROR).shape == (None, 7, 7, 8)


@pytest.mark.parametrize(
    ("type", "found", "attrs", "match"),
    [
        ("DepthwiseConv2dNative", [(1, 4, 4, 2), (2, 2, 3, 1)], VALID, "2 and 3"),
        ("Conv", [(1, 4, 4, 2), (2, 2, 2, 1)], {**VALID, "batch_dims": -1}, "non-negative"),
        ("Conv", [(1, 4, 4, 4), (2, 2, 2, 4)], {**VALID, "groups": 1}, "groups parameter"),
        ("ExtractImagePatches", [(1, 4, 4, 2)], {**PATCH, "ksizes": FIVE}, "contain 4 values, but got: 5"),
        ("Dilation2D", [(1, 4, 4, 2), (2, 2, 2)], {**DILATE, "strides": FIVE}, "stride attribute to contain 4"),
        ("Dilation2D", [(1, 4, 4, 2), (2, 2, 2)], {**DILATE, "rates": [1, 0, 1, 1]}, "Rate must be > 0"),
        ("FractionalMaxPool", [(1, 4, 4, 2)], {"pooling_ratio": [1.0] * 5}, "must specify 4 dimensions"),
    ],
)
def test_what_cannot_be_is_refused_when_built(type: str, found: Any, attrs: Any, match: str) -> None:
    b = Builder(Graph())
    with pytest.raises(ShapeError, match=match):
        b.make(type, [b.Placeholder(dtype=dtypes.float32, shape=s) for s in found], attrs)


def test_depthwise_is_a_convolution_with_an_outer_product() -> None:
    """With one channel it is Conv2D; blocks of rows give what the whole does."""
    x, w = drawn(2, 9, 8, 1, dtype=np.float64), drawn(3, 2, 1, 4, dtype=np.float64)
    attrs = {"strides": [1, 2, 1, 1], "padding": "SAME"}
    assert_close(run("DepthwiseConv2dNative", x, w, **attrs), run("Conv2D", x, w, **attrs))
