"""Images beyond the cases of the records. The values are TensorFlow 2.21's.

Gradients of ops in float32, which the registry's suite does not differentiate; colours that are no colours, errors,
random boxes, and shapes that are partly known.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from headrace import dtypes, thresholds
from headrace.errors import FailedPreconditionError, InvalidArgumentError, OutOfRangeError, ShapeError
from headrace.ir.builder import Builder
from headrace.ir.graph import Graph
from headrace.ops.image import colors
from headrace.ops.image.taps import KERNELS
from tests.ops.cases import evaluate, gradients, placeholder
from tests.ops.running import Program
from tests.ops.test_math_ops import BF16, array, run

pytestmark = pytest.mark.one_engine

NAN, INF = np.nan, np.inf
F32, F64, I32 = np.float32, np.float64, np.int32
RNG = np.random.default_rng(11)
IMAGES = RNG.uniform(0.1, 0.9, (2, 4, 5, 3)).astype(F32)
GREY = np.arange(16, dtype=F32).reshape(1, 4, 4, 1)
SIZE = array([3, 7])
BOXES = array([[0.1, 0.2, 0.7, 0.9], [0.9, -0.3, 0.2, 1.2]])


@pytest.fixture
def p() -> Iterator[Program]:
    program = Program()
    yield program
    program.session.close()


# *** Linear ops: <y, u> is <x, the gradient>, and the gradient's own gradient is the op ***

LINEAR: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = [
    *(
        (f"Resize{kind}", (SIZE,), attrs)
        for kind in ("Bilinear", "Bicubic", "NearestNeighbor")
        for attrs in ({}, {"align_corners": True}, {"half_pixel_centers": True})
    ),
    ("ResizeArea", (SIZE,), {}),
    ("ResizeArea", (SIZE,), {"align_corners": True}),
    *(("ScaleAndTranslate", (SIZE, array([0.7, 1.3]), array([0.2, -1.0])), {"kernel_type": k}) for k in KERNELS),
    ("ScaleAndTranslate", (SIZE, array([0.7, 1.3]), array([0.2, -1.0])), {"antialias": False}),
    ("CropAndResize", (BOXES, array([1, 0]), array([3, 4])), {}),
    ("CropAndResize", (BOXES, array([1, 0]), array([3, 4])), {"method": "nearest"}),
]


@pytest.mark.parametrize("static", [True, False])
@pytest.mark.parametrize(("type", "args", "attrs"), LINEAR, ids=[f"{t}-{'-'.join(map(str, a))}" for t, _, a in LINEAR])
def test_gradients_of_linear_ops(type: str, args: tuple[Any, ...], attrs: dict[str, Any], static: bool) -> None:
    b = Builder(Graph())
    x = placeholder(b, IMAGES, IMAGES.shape if static else None)
    rest = [b.const(a) if static else placeholder(b, a, None) for a in args]
    y = b.make(type, [x, *rest], attrs)
    value = run(type, IMAGES, *args, **attrs)
    u, v = RNG.uniform(-1, 1, value.shape).astype(F32), RNG.uniform(-1, 1, IMAGES.shape).astype(F32)
    seed, other = placeholder(b, u, u.shape if static else None), placeholder(b, v, v.shape if static else None)
    (dx,) = gradients(b, [y], [seed], [x])
    (again,) = gradients(b, [dx], [other], [seed])
    fed = {x: IMAGES, seed: u, other: v} | ({} if static else dict(zip(rest, args, strict=True)))
    found, second = evaluate([dx, again], fed)
    assert found.shape == IMAGES.shape
    assert np.sum(value * u) == pytest.approx(np.sum(IMAGES * found), rel=1e-4, abs=1e-4)
    np.testing.assert_allclose(second, run(type, v, *args, **attrs), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "type", ["ResizeBilinear", "ResizeBicubic", "ResizeArea", "ScaleAndTranslate", "CropAndResize"]
)
@pytest.mark.parametrize("dtype", [dtypes.float16, dtypes.bfloat16, dtypes.float64, dtypes.uint8])
def test_gradients_have_the_dtype_of_the_images(type: str, dtype: dtypes.DType) -> None:
    if type == "CropAndResize" and dtype is dtypes.bfloat16:
        return  # TensorFlow's op does not take it
    b = Builder(Graph())
    images = IMAGES[:, :2, :2].astype(dtype.numpy)
    x = placeholder(b, images, images.shape)
    rest = {"ScaleAndTranslate": [[2, 2], [1.0, 1.0], [0.0, 0.0]], "CropAndResize": [BOXES, [0, 1], [2, 2]]}
    y = b.make(type, [x, *rest.get(type, [[2, 2]])], {})
    assert y.dtype is dtypes.float32
    (dx,) = gradients(b, [y], [b.OnesLike(y)], [x])
    assert (dx is None) == (dtype is dtypes.uint8)
    if dx is not None and type != "CropAndResize":
        (value,) = evaluate([dx], {x: images})
        assert value.dtype == dtype.numpy
        np.testing.assert_allclose(value.astype(F64), 1, atol=1e-2)  # nothing is resized


def test_double_gradients_are_summed_in_double_precision() -> None:
    grads = np.full((1, 40, 40, 1), F32(0.1))
    for type in ("ResizeBilinearGrad", "ResizeBicubicGrad"):
        total = run(type, grads, np.ones((1, 1, 1, 1)))
        assert total.item() == pytest.approx(1600 * float(F32(0.1)), rel=1e-8)


# *** Resizing ***


def test_resizing_what_is_infinite() -> None:
    x = np.array([1, INF, NAN, 2, 3, 4], F32).reshape(1, 1, 6, 1)
    assert run("ResizeArea", x, array([1, 3])).ravel().tolist()[::2] == [INF, 3.5]
    np.testing.assert_equal(run("ResizeBilinear", x, array([1, 6])), x)
    assert np.isnan(run("ResizeBilinear", x, array([1, 12])).ravel()[[3, 4, 5]]).all()


def test_bicubic_takes_its_weights_from_a_table() -> None:
    x = np.array([0, 0, 1, 0, 0], F32).reshape(1, 1, 5, 1)
    got = run("ResizeBicubic", x, array([1, 7]), half_pixel_centers=True).ravel()
    want = [0, -0.06646981, 0.271670997, 1, 0.271670997, -0.066469818, 0]
    np.testing.assert_allclose(got, want, rtol=1e-6, atol=1e-7)


RESIZES = ("ResizeBilinear", "ResizeNearestNeighbor", "ResizeBicubic", "ResizeArea")


@pytest.mark.parametrize("type", RESIZES)
def test_errors_of_resizing(type: str) -> None:
    for size, match in (
        ([0, 2], "output dimensions must be positive"),
        ([2, -1], "output dimensions must be positive"),
        ([2], "shape_t must have two elements"),
        ([[2, 2]], "shape_t must be 1-dimensional"),
    ):
        with pytest.raises(InvalidArgumentError, match=match):
            run(type, GREY, array(size))
    for images, match in (
        (GREY[0], "input must be 4-dimensional"),
        (GREY[:, :0], "input image must be of non-zero size"),
        (GREY[..., :0], "image must have at least one channel"),
    ):
        with pytest.raises(InvalidArgumentError, match=match):
            run(type, images, array([2, 2]))
    if type != "ResizeArea":
        with pytest.raises(InvalidArgumentError, match="If half_pixel_centers is True, align_corners must be False"):
            run(type, GREY, array([2, 2]), align_corners=True, half_pixel_centers=True)


def test_errors_of_gradients_of_resizing() -> None:
    for type in ("ResizeBilinearGrad", "ResizeBicubicGrad"):
        for grads, original, match in (
            (GREY[:, :0], GREY, "resized dimensions must be positive"),
            (GREY, GREY[:, :0], "original dimensions must be positive"),
            (GREY[0], GREY, "input_grad must be 4-dimensional"),
            (GREY, GREY[0], "original_image must be 4-dimensional"),
        ):
            with pytest.raises(InvalidArgumentError, match=match):
                run(type, grads, original)
    with pytest.raises(InvalidArgumentError, match="shape_t's elements must be positive"):
        run("ResizeNearestNeighborGrad", GREY, array([0, 2]))
    assert run("ResizeNearestNeighborGrad", GREY[:, :0], array([2, 2])).tolist() == [[[[0], [0]], [[0], [0]]]]


def test_scale_and_translate() -> None:
    def moved(scale: Any, translation: Any, **attrs: Any) -> Any:
        return run("ScaleAndTranslate", GREY, array([2, 2]), array(scale), array(translation), **attrs)

    assert not moved([1e-30, 1.0], [0.0, 0.0]).any()  # all of it is outside
    assert not moved([1.0, 1.0], [NAN, 0.0]).any()
    for scale, kernel, match in (
        ([0.0, 1.0], "box", "Scale must be greater than zero"),
        ([NAN, 1.0], "box", "Scale must be greater than zero"),
        ([1.0, 1.0, 1.0], "box", "t must have two elements"),
        ([[1.0, 1.0]], "box", "t must be 1-dimensional"),
        ([1.0, 1.0], "cone", "Unrecognized kernel type: cone"),
    ):
        with pytest.raises(InvalidArgumentError, match=match):
            moved(scale, [0.0, 0.0], kernel_type=kernel)


# *** Cropping ***


def test_errors_of_crops() -> None:
    box, first, size = BOXES[:1], array([0]), array([2, 2])
    for args, error, match in (
        ((GREY[0], box, first, size), InvalidArgumentError, "input image must be 4-D"),
        ((GREY[:, :0], box, first, size), InvalidArgumentError, "image dimensions must be positive"),
        ((GREY, box, array([1]), size), OutOfRangeError, r"box_index has values outside \[0, batch_size\)"),
        ((GREY, box, array([-1]), size), OutOfRangeError, "box_index has values outside"),
        ((GREY, box, array([0, 0]), size), InvalidArgumentError, "box_index has incompatible shape"),
        ((GREY, box, array([[0]]), size), InvalidArgumentError, "box_indices must be rank 1"),
        ((GREY, box[:, :3], first, size), InvalidArgumentError, "boxes must have 4 columns"),
        ((GREY, box * F32(NAN), first, size), InvalidArgumentError, "not finite"),
        ((GREY, box, first, array([0, 2])), InvalidArgumentError, "crop dimensions must be positive"),
        ((GREY, box, first, array([2])), InvalidArgumentError, "crop_size must have two elements"),
    ):
        with pytest.raises(error, match=match):
            run("CropAndResize", *args)
    grads = np.ones((1, 2, 2, 1), F32)
    for shape, match in (
        ([1, 4, 4], "image_size must have 4 elements"),
        ([1, 0, 4, 1], "image dimensions must be positive"),
        ([1, 4, 4, 2], "image_size and grads are incompatible"),
    ):
        with pytest.raises(InvalidArgumentError, match=match):
            run("CropAndResizeGradImage", grads, box, first, array(shape), T=dtypes.float32)
    with pytest.raises(InvalidArgumentError, match="depth differ"):
        run("CropAndResizeGradBoxes", grads, IMAGES, box, first)
    assert run("CropAndResize", GREY, box[:0], first[:0], size).shape == (0, 2, 2, 1)


@pytest.mark.parametrize("method", ["bilinear", "nearest"])
def test_boxes_have_the_gradient_of_the_bilinear_method(method: str) -> None:
    b = Builder(Graph())
    images = np.arange(9, dtype=F32).reshape(1, 3, 3, 1)
    boxes = placeholder(b, array([[0.1, 0.2, 0.8, 0.7]]), None)
    y = b.CropAndResize(images, boxes, [0], [2, 2], method=method)
    (dx,) = gradients(b, [y], [b.OnesLike(y)], [boxes])
    (found,) = evaluate([dx], {boxes: array([[0.1, 0.2, 0.8, 0.7]])})
    np.testing.assert_allclose(found, [[12, 4, 12, 4]], rtol=1e-5)
    with pytest.raises(LookupError, match="by the boxes"):
        gradients(b, [dx], [b.OnesLike(dx)], [boxes])


def test_glimpses_with_noise() -> None:
    for noise in ({}, {"uniform_noise": False, "noise": "gaussian"}, {"uniform_noise": False, "noise": ""}):
        got = run("ExtractGlimpse", GREY, array([6, 6]), array([[0.0, 0.0]]), **noise)
        assert got[:, 1:5, 1:5].tolist() == GREY.tolist()
        assert (got >= 0).all()
        assert (got <= 15).all()
        assert len(set(got.ravel().tolist())) > 20
    attrs = {"uniform_noise": False, "noise": "zero"}
    assert not run("ExtractGlimpse", GREY, array([2, 2]), array([[NAN, 0.0]]), **attrs).any()
    for args, more, match in (
        ((GREY, array([2, 2]), array([[0.0, 0.0]])), {"noise": "zero"}, "could not be specified at the same time"),
        ((GREY, array([2, 2]), array([[0.0, 0.0]])), {**attrs, "noise": "pink"}, "only be uniform, gaussian, or zero"),
        ((GREY[0], array([2, 2]), array([[0.0, 0.0]])), attrs, "input must be 4-dimensional"),
        ((GREY, array([2]), array([[0.0, 0.0]])), attrs, "vector of size 2"),
        ((GREY, array([2, 2]), array([[0.0, 0.0, 0.0]])), attrs, "matrix of a pair"),
        ((GREY, array([-1, 2]), array([[0.0, 0.0]])), attrs, "must be >= 0"),
    ):
        with pytest.raises(InvalidArgumentError, match=match):
            run("ExtractGlimpse", *args, **more)


# *** Colours ***


def test_colours_that_are_none() -> None:
    x = array([[-0.5, 0.2, 0.1], [-1.0, -2.0, -3.0], [0.0, 0.0, 0.0]])
    np.testing.assert_allclose(run("RGBToHSV", x), [[0.4761905, 3.5, 0.2], [0.0833333, 0, -1], [0, 0, 0]], rtol=1e-5)
    np.testing.assert_allclose(
        run("AdjustHue", x[None], F32(-1.4))[0], [[0.2, -0.17999968, -0.5], [-2.8, -3, -1], [0, 0, 0]], rtol=1e-5
    )
    want = [[0, 0.2, 0.1714286], [-1, -1, -1], [0, 0, 0]]
    np.testing.assert_allclose(run("AdjustSaturation", x[None], F32(0.5))[0], want, rtol=1e-5, atol=1e-7)
    assert run("HSVToRGB", array([1.7, 0.5, 0.5])).tolist() == [0.5, 0.25, 0.25]
    assert run("AdjustContrastv2", IMAGES[:, :0], F32(2)).shape == (2, 0, 5, 3)


def test_errors_of_colours() -> None:
    for type in ("RGBToHSV", "HSVToRGB"):
        with pytest.raises(FailedPreconditionError, match="input must have 3 channels but input only has 4"):
            run(type, np.ones((2, 4), F32))
        with pytest.raises(InvalidArgumentError, match="input must be at least 1D"):
            run(type, F32(1))
    for type, name in (("AdjustHue", "delta"), ("AdjustSaturation", "scale"), ("AdjustContrastv2", "contrast_factor")):
        with pytest.raises(InvalidArgumentError, match="input must be at least 3-D"):
            run(type, IMAGES[0, 0], F32(1))
        with pytest.raises(InvalidArgumentError, match=f"{name} must be scalar"):
            run(type, IMAGES, array([1.0]))
        if name != "contrast_factor":
            with pytest.raises(InvalidArgumentError, match="input must have 3 channels but instead has 1"):
                run(type, GREY, F32(1))


def test_gradient_of_hsv_where_channels_are_equal() -> None:
    b = Builder(Graph())
    x = array([[0.2, 0.5, 0.9], [0.5, 0.5, 0.2], [0.5, 0.2, 0.2], [0.3, 0.3, 0.3], [0.0, 0.0, 0.0]])
    t = placeholder(b, x, None)
    (dx,) = gradients(b, [b.RGBToHSV(t)], [b.const(np.tile(array([1.0, 2, 3]), (5, 1)))], [t])
    (found,) = evaluate([dx], {t: x})
    want = [[-2.0861678, -0.2380952, 3.5958679], [4.0444441, 0.5555556, -4], [4.6, 0.5555556, -4.5555553]]
    np.testing.assert_allclose(found, [*want, [9.6666660, 0, -6.6666665], [3, 0, 0]], rtol=1e-5, atol=1e-6)


ADJUSTING: list[tuple[str, Callable[..., Any], float]] = [
    ("AdjustHue", colors._adjust_hue, 0.3),
    ("AdjustSaturation", colors._adjust_saturation, 0.6),
    ("AdjustContrastv2", colors._adjust_contrast, 1.7),
    ("AdjustContrast", lambda xp, x, factor: np.clip(colors._adjust_contrast(xp, x, factor), 0.25, 0.75), 1.7),
]


@pytest.mark.parametrize(("type", "f", "factor"), ADJUSTING)
def test_gradients_of_adjusting(type: str, f: Callable[..., Any], factor: float) -> None:
    b = Builder(Graph())
    limits = [b.const(F32(v)) for v in (0.25, 0.75)] if type == "AdjustContrast" else []
    tensors = [placeholder(b, IMAGES, None), placeholder(b, F32(factor), None)]
    u = RNG.uniform(-1, 1, IMAGES.shape).astype(F32)
    seed = placeholder(b, u, None)
    found = evaluate(
        gradients(b, [b.make(type, [*tensors, *limits], {})], [seed], tensors),
        {**dict(zip(tensors, (IMAGES, F32(factor)), strict=True)), seed: u},
    )
    step, x = 1e-5, IMAGES.astype(F64)

    def along(dx: Any, df: float) -> float:
        return float(np.sum(u * (f(np, x + dx, factor + df) - f(np, x - dx, factor - df))) / (2 * step))

    for direction in RNG.uniform(-1, 1, (3, *x.shape)):
        assert np.sum(direction * found[0]) == pytest.approx(along(step * direction, 0), rel=1e-3, abs=1e-3)
    assert found[1] == pytest.approx(along(0, step), rel=1e-3, abs=1e-3)


# *** Projective transformations ***

TURN = [[0.9, 0.1, -1.6, 0.2, 1.1, 0.3, 0.01, 0.02]]
SEEN = {
    ("CONSTANT", "NEAREST"): [7, 7, 4, 5, 6, 7, 7, 8, 9, 10],
    ("CONSTANT", "BILINEAR"): [
        7,
        5.4592686,
        2.9411767,
        4.563107,
        6.1538458,
        7,
        6.671694,
        7.2115383,
        8.761905,
        10.283019,
    ],
    ("REFLECT", "NEAREST"): [1, 0, 4, 5, 6, 4, 8, 8, 9, 10],
    ("WRAP", "NEAREST"): [2, 3, 4, 5, 6, 7, 11, 8, 9, 10],
    ("WRAP", "BILINEAR"): [
        3.6,
        4.980198,
        2.9411767,
        4.563107,
        6.1538458,
        8.019608,
        9.2135926,
        7.2115383,
        8.761905,
        10.283019,
    ],
    ("NEAREST", "BILINEAR"): [
        1.2,
        1.980198,
        2.9411767,
        4.563107,
        6.1538458,
        5.490196,
        6.213593,
        7.2115383,
        8.761905,
        10.283019,
    ],
}


@pytest.mark.parametrize(("mode", "method"), SEEN)
def test_pixels_beyond_the_edge(mode: str, method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    attrs = {"fill_mode": mode, "interpolation": method}
    got = run("ImageProjectiveTransformV3", GREY, array(TURN), array([2, 5]), F32(7), **attrs)
    np.testing.assert_allclose(got.ravel(), SEEN[mode, method], rtol=1e-5)
    monkeypatch.setattr(thresholds, "PROJECTED_PIXELS", 1)
    rows = run("ImageProjectiveTransformV3", GREY, array(TURN), array([2, 5]), F32(7), **attrs)
    assert rows.tolist() == got.tolist()


def test_pixels_far_away() -> None:
    for x, y, mode, want in (
        (-50.0, -37.5, "REFLECT", [11, 10, 10, 13, 12, 12]),
        (50.5, 37.0, "REFLECT", [10.5, 11, 10.5, 6.5, 7, 6.5]),
        (-50.0, -37.5, "WRAP", [15] * 6),
        (50.5, 37.0, "NEAREST", [15] * 6),
        (NAN, 0.0, "CONSTANT", [7] * 6),
        (INF, 0.0, "CONSTANT", [7] * 6),
    ):
        move = array([[1, 0, x, 0, 1, y, 0, 0]], F32)
        attrs = {"fill_mode": mode, "interpolation": "BILINEAR"}
        got = run("ImageProjectiveTransformV3", GREY, move, array([2, 3]), F32(7), **attrs)
        assert got.ravel().tolist() == want, mode
    still = array([[1, 0, 0, 0, 1, 0, 0, 0]], F32)
    got = run("ImageProjectiveTransformV3", GREY[:, :0], still, array([2, 2]), F32(7), interpolation="NEAREST")
    assert got.ravel().tolist() == [7] * 4


def test_errors_of_transformations() -> None:
    still, size = array([[1, 0, 0, 0, 1, 0, 0, 0]], F32), array([2, 2])
    for args, attrs, match in (
        ((GREY[0], still, size, F32(0)), {}, "Input images must have rank 4"),
        ((GREY, still[:, :7], size, F32(0)), {}, "num_images x 8 or 1 x 8"),
        ((GREY, np.tile(still, (2, 1)), size, F32(0)), {}, "num_images x 8 or 1 x 8"),
        ((GREY, still, array([0, 2]), F32(0)), {}, "output dimensions must be positive"),
        ((GREY, still, array([2, 2, 2]), F32(0)), {}, "output shape must have two elements"),
        ((GREY, still, size, array([0.0])), {}, "fill_value must be a scalar"),
        ((GREY, still, size, F32(0)), {"interpolation": "nearest"}, "interpolation must be NEAREST or BILINEAR"),
        ((GREY, still, size, F32(0)), {"fill_mode": "NONE"}, "fill_mode must be one of"),
    ):
        with pytest.raises(InvalidArgumentError, match=match):
            run("ImageProjectiveTransformV3", *args, **{"interpolation": "NEAREST", **attrs})


def test_the_gradient_is_that_of_the_inverse() -> None:
    b = Builder(Graph())
    x = np.arange(9, dtype=F32).reshape(1, 3, 3, 1)
    t = placeholder(b, x, None)
    move = array([[0.75, 0.25, -1.0, 0.125, 1.25, 0.25, 0, 0.0625]])
    y = b.ImageProjectiveTransformV3(t, move, [3, 3], 2.0, interpolation="BILINEAR")
    (dx,) = gradients(b, [y], [b.const(x)], [t])
    (found,) = evaluate([dx], {t: x})
    want = [0.94887042, 0.22280669, 0, 2.6909087, 1.3046007, 0, 5.2307687, 3.867754, 0]
    np.testing.assert_allclose(found.ravel(), want, rtol=1e-5, atol=1e-6)


# *** Boxes ***

CORNERS = array(
    [[0, 0, 1, 1], [0, 0.1, 1, 1.1], [0, -0.1, 1, 0.9], [0, 10, 1, 11], [0, 10.1, 1, 11.1], [0, 100, 1, 101]]
)
SCORES = array([0.9, 0.75, 0.6, 0.95, 0.5, 0.3])


def suppressed(
    boxes: Any, scores: Any, most: int, threshold: float = 0.5, least: float = 0.4, sigma: float = 0.0, **attrs: Any
) -> Any:
    limits = (F32(threshold), F32(least), F32(sigma))
    return run("NonMaxSuppressionV5", boxes, scores, np.asarray(most, I32), *limits, **attrs)


def test_suppression() -> None:
    indices, scores, valid = suppressed(CORNERS, SCORES, 6, least=0.0, sigma=0.5)
    assert (indices.tolist(), int(valid)) == ([3, 0, 1, 5, 4, 2], 6)
    np.testing.assert_allclose(scores, [0.95, 0.9, 0.38400355, 0.3, 0.2560026, 0.19697245], rtol=1e-5)
    indices, scores, valid = suppressed(CORNERS, SCORES, 4, pad_to_max_output_size=True)
    assert (indices.tolist(), int(valid)) == ([3, 0, 0, 0], 2)
    assert suppressed(CORNERS, np.full(6, 0.5, F32), 6)[0].tolist() == [0, 3, 5]  # the first of equals
    assert suppressed(CORNERS[:, [2, 3, 0, 1]], SCORES, 6)[0].tolist() == [3, 0]  # corners either way round
    assert suppressed(CORNERS * 0, SCORES, 6, threshold=0.0)[0].tolist() == [3, 0, 1, 2, 4]  # nothing overlaps
    assert suppressed(CORNERS, array([NAN, 1.0, NAN, 0.5, 0.5, INF]), 6)[0].tolist() == [5, 1, 3]
    assert suppressed(CORNERS[:0], SCORES[:0], 6)[0].shape == (0,)


def test_errors_of_suppression() -> None:
    for args, attrs, match in (
        ((CORNERS, SCORES, -1), {}, "output size must be non-negative"),
        ((CORNERS, SCORES, 1), {"threshold": 1.5}, r"iou_threshold must be in \[0, 1\]"),
        ((CORNERS, SCORES, 1), {"sigma": NAN}, "soft_nms_sigma_val must be >= 0"),
        ((CORNERS[0], SCORES, 1), {}, "boxes must be 2-D"),
        ((CORNERS[:, :3], SCORES, 1), {}, "boxes must have 4 columns"),
        ((CORNERS, SCORES[None], 1), {}, "scores must be 1-D"),
        ((CORNERS, SCORES[:2], 1), {}, "scores has incompatible shape"),
    ):
        with pytest.raises(InvalidArgumentError, match=match):
            suppressed(*args, **attrs)
    limits = (F32(0.5), F32(0.1))
    for overlaps, match in ((SCORES, "overlaps must be 2-D"), (np.ones((6, 2), F32), "overlaps must be square")):
        with pytest.raises(InvalidArgumentError, match=match):
            run("NonMaxSuppressionWithOverlaps", overlaps, SCORES, I32(1), *limits)
    with pytest.raises(InvalidArgumentError, match="max_output_size must be 0-D"):
        run("NonMaxSuppression", CORNERS, SCORES, array([1]))
    boxes, scores = CORNERS[None, :, None], SCORES[None, :, None]
    for args, match in (
        ((boxes[0], scores, I32(1), I32(1)), "boxes must be 4-D"),
        ((boxes, scores[0], I32(1), I32(1)), "scores must be 3-D"),
        ((boxes, np.tile(scores, 3)[:, :2], I32(1), I32(1)), "scores has incompatible shape"),
        ((np.tile(boxes, (1, 1, 2, 1)), scores, I32(1), I32(1)), "third dimension of boxes must be either 1"),
        ((boxes, scores, I32(0), I32(1)), "max_size_per_class must be positive"),
        ((boxes, scores, I32(1), I32(0)), "max_total_size must be > 0"),
    ):
        with pytest.raises(InvalidArgumentError, match=match):
            run("CombinedNonMaxSuppression", *args, *limits)


def test_a_table_of_overlaps_is_read_in_the_row_of_the_box_that_may_go() -> None:
    table = array([[1.0, 0.0], [0.9, 1.0]])
    args = (array([0.9, 0.8]), I32(2), F32(0.5), F32(0))
    assert run("NonMaxSuppressionWithOverlaps", table, *args).tolist() == [0]
    assert run("NonMaxSuppressionWithOverlaps", table.T.copy(), *args).tolist() == [0, 1]


def test_drawing() -> None:
    grey = np.zeros((1, 4, 4, 1), F32)
    drawn = run("DrawBoundingBoxes", grey, array([[[0.0, 0.0, 0.4, 0.4]]]))
    assert drawn[0, :, :, 0].tolist() == [[1, 1, 0, 0], [1, 1, 0, 0], [0] * 4, [0] * 4]
    for box in ([NAN, 0, 1, 1], [0.9, 0, 0.1, 1], [2, 2, 3, 3], [-1, -1, -0.5, -0.5]):
        assert run("DrawBoundingBoxes", grey, array([[box]], F32)).shape == (1, 4, 4, 1)
    for args, match in (
        ((grey[0], array([[[0.0] * 4]])), "The rank of the images should be 4"),
        ((grey, array([[0.0] * 4])), "The rank of the boxes tensor should be 3"),
        ((grey, array([[[0.0] * 4]] * 2)), "The batch sizes should be the same"),
        ((np.zeros((1, 2, 2, 2), F32), array([[[0.0] * 4]])), "Channel depth should be either 1"),
        ((grey, array([[[0.0] * 3]])), "third dimension of the box must be 4"),
    ):
        with pytest.raises(InvalidArgumentError, match=match):
            run("DrawBoundingBoxes", *args)
    with pytest.raises(InvalidArgumentError, match="colors must be a 2-D matrix"):
        run("DrawBoundingBoxesV2", grey, array([[[0.0] * 4]]), array([1.0]))
    with pytest.raises(InvalidArgumentError, match="colors must have equal or more channels"):
        run("DrawBoundingBoxesV2", IMAGES, array([[[0.0] * 4]] * 2), array([[1.0]]))


# *** Random boxes and crops ***

OBJECT = array([[[0.1, 0.2, 0.6, 0.7]]])
SAMPLED = {1: (18, 6, 12, 14), 2: (12, 20, 20, 16), 3: (3, 22, 15, 18), 4: (15, 21, 24, 23), 5: (13, 20, 18, 18)}


@pytest.mark.parametrize("seed", SAMPLED)
def test_sampled_boxes(p: Program, seed: int) -> None:
    top, left, height, width = SAMPLED[seed]
    for size in ([40, 50, 3], np.array([40, 50, 3], np.uint8)):
        args = (p.b.const(size), OBJECT)
        for found in (
            p.b.SampleDistortedBoundingBoxV2(*args, 0.1, seed=seed, seed2=7),
            p.b.SampleDistortedBoundingBox(*args, seed=seed, seed2=7),
        ):
            begin, extent, box = p.run(found)
            assert begin.tolist() == [top, left, 0]
            assert extent.tolist() == [height, width, 255 if begin.dtype == np.uint8 else -1]
            want = [top / 40, left / 50, (top + height) / 40, (left + width) / 50]
            np.testing.assert_allclose(box.ravel(), want, rtol=1e-6)


def test_sampled_boxes_differ_from_firing_to_firing(p: Program) -> None:
    """Each takes as many numbers as the most it might need, even if it fails."""
    covered = p.b.Placeholder(dtype=dtypes.float32, shape=())
    begin, extent, _ = p.b.SampleDistortedBoundingBoxV2([40, 50, 3], OBJECT, covered, seed=3, seed2=7)
    for least, want in ((0.1, [3, 22, 15, 18]), (0.3, [2, 20, 16, 21]), (-1.0, None), (0.7, [0, 11, 35, 36])):
        if want is None:
            with p.fails(InvalidArgumentError, "Min object covered must be non-negative"):
                p.run(begin, {covered: least})
            continue
        found = p.run([begin, extent], {covered: least})
        assert [*found[0][:2].tolist(), *found[1][:2].tolist()] == want


def test_what_is_sampled_follows_the_attributes(p: Program) -> None:
    def sample(boxes: Any = OBJECT, covered: float = 0.1, **attrs: Any) -> Any:
        begin, extent, _ = p.run(
            p.b.SampleDistortedBoundingBoxV2([40, 50, 3], p.feed(boxes), covered, seed=3, seed2=7, **attrs)
        )
        return [*begin[:2].tolist(), *extent[:2].tolist()]

    assert sample(covered=5.0) == [0, 0, 40, 50]  # that cannot be
    assert sample(area_range=[0.5, 0.2]) == [0, 0, 40, 50]
    assert sample(OBJECT[:, :0], use_image_if_no_bounding_boxes=True) == [3, 22, 15, 18]
    for boxes, attrs, match in (
        (OBJECT[:, :0], {}, "No bounding boxes provided as input"),
        (OBJECT * 2, {}, r"All bounding box coordinates must be in \[0.0, 1.0\]"),
        (OBJECT[0], {}, "input boxes must be 3-dimensional"),
        (OBJECT[..., :3], {}, r"bounding boxes must have shape \[4\]"),
        (OBJECT, {"area_range": [0.5, 2.0]}, "Area range must be less then or equal to 1.0"),
        (OBJECT, {"area_range": [0.5]}, "Area range field must specify 2 dimensions"),
        (OBJECT, {"aspect_ratio_range": [-1.0, 1.0]}, "Aspect ratio range must be non-negative"),
        (OBJECT, {"max_attempts": 0}, "Max attempts must be non-negative"),
        (OBJECT, {"covered": -1.0}, "Min object covered must be non-negative"),
    ):
        with p.fails(InvalidArgumentError, match):
            sample(boxes, **attrs)
    for size in ([-1, 50, 3], [2**31 - 1, 50, 3]):
        with p.fails(InvalidArgumentError, "image height cannot be >= int32 max"):
            p.run(p.b.SampleDistortedBoundingBox(np.array(size, np.int64), OBJECT, seed=1))


def test_stateless_boxes() -> None:
    args = (array([100, 90, 3]), OBJECT, F32(0.9), np.array([4, 5], np.int64))
    begin, extent, _ = run(
        "StatelessSampleDistortedBoundingBox", *args, area_range=[0.2, 0.9], aspect_ratio_range=[0.5, 3.0]
    )
    assert (begin.tolist(), extent.tolist()) == ([7, 8, 0], [77, 69, -1])
    with pytest.raises(InvalidArgumentError, match=r"seed must have shape \[2\]"):
        run("StatelessSampleDistortedBoundingBox", *args[:3], array([1]))


def test_random_crop(p: Program) -> None:
    image = np.arange(60, dtype=I32).reshape(4, 5, 3)
    crop = p.b.RandomCrop(image, np.array([2, 3], np.int64), seed=1, seed2=2)
    seen = {tuple(p.run(crop)[0, 0].tolist()) for _ in range(40)}
    assert seen == {tuple(image[y, x].tolist()) for y in range(3) for x in range(3)}
    assert p.run(p.b.RandomCrop(image, np.array([4, 5], np.int64))).tolist() == image.tolist()
    for size, match in (([5, 5], "height must be >= target_height"), ([4, 6], "width must be >= target_width")):
        with p.fails(FailedPreconditionError, match):
            p.run(p.b.RandomCrop(image, np.array(size, np.int64)))
    with p.fails(InvalidArgumentError, "input must be 3-dimensional"):
        p.run(p.b.RandomCrop(p.feed(image[0]), np.array([1, 1], np.int64)))


# *** Shapes ***


def test_partly_known_shapes() -> None:
    b = Builder(Graph())
    x = b.Placeholder(dtype=dtypes.float32, shape=(None, 8, None, 3))
    height = b.Placeholder(dtype=dtypes.int32, shape=())
    assert b.ResizeBilinear(x, b.Pack([height, 5])).shape == (None, None, 5, 3)
    assert b.ResizeBilinearGrad(x, b.Placeholder(dtype=dtypes.float64, shape=(2, None, 9, None))).shape == (
        None,
        None,
        9,
        3,
    )
    boxes = b.Placeholder(dtype=dtypes.float32, shape=(None, 4))
    assert b.CropAndResize(x, boxes, [0, 0], [2, 3]).shape == (2, 2, 3, 3)
    assert b.RGBToHSV(b.Placeholder(dtype=dtypes.float32, shape=(None, None))).shape == (None, 3)
    assert b.NonMaxSuppressionV4(boxes, SCORES, 5, 0.5, 0.5, pad_to_max_output_size=True)[0].shape == (5,)
    scores = b.Placeholder(dtype=dtypes.float32, shape=(2, None, 3))
    found = b.CombinedNonMaxSuppression(
        b.Placeholder(dtype=dtypes.float32, shape=(None, None, 1, 4)), scores, 4, 100, 0.5, 0.5, pad_per_class=True
    )
    assert [t.shape for t in found] == [(2, 12, 4), (2, 12), (2, 12), (2,)]
    with pytest.raises(ShapeError, match="are 4 and 3"):
        b.RGBToHSV(b.Placeholder(dtype=dtypes.float32, shape=(2, 4)))
    with pytest.raises(ShapeError, match="max_total_size should be > 0"):
        b.CombinedNonMaxSuppression(IMAGES[:, :, :1, :1] + np.zeros(4, F32), IMAGES[:, :, 0], 1, 0, 0.5, 0.5)


def test_half_precision_images() -> None:
    x = IMAGES.astype(BF16)
    assert run("ResizeBilinear", x, array([2, 2])).dtype == F32
    assert run("ResizeNearestNeighbor", x, array([2, 2])).dtype == BF16
