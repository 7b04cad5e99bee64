"""Resizing of images: ResizeNearestNeighbor, -Bilinear, -Bicubic, -Area, ScaleAndTranslate, and their gradients.

Source: TensorFlow's ops of the same names. Each is a sum over taps along both axes (`taps`), so it is linear, and its
gradient is the transposed sum.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from headrace.dtypes import (
    FLOATING,
    DType,
    bfloat16,
    float16,
    float32,
    float64,
    int8,
    int16,
    int32,
    int64,
    uint8,
    uint16,
)
from headrace.errors import InvalidArgumentError
from headrace.ir.infer import Inference
from headrace.ir.opdef import Case, Facts, case, flops_per_element, flops_per_input, op, type_attr
from headrace.opkit.arrays import check_size
from headrace.opkit.batch_rules import folding
from headrace.opkit.elementwise import HALF
from headrace.opkit.jvp_rules import linear
from headrace.opkit.namespaces import converter, integers
from headrace.opkit.testing.samples import draw
from headrace.opkit.window_arrays import full
from headrace.opkit.window_arrays import size as size_of
from headrace.ops.image import taps
from headrace.shapes import Shape, show, with_rank

Array = np.ndarray

# *** Checks ***


def _size_of(size: Array, what: str) -> tuple[int, int]:
    if size.ndim != 1:
        raise InvalidArgumentError(f"shape_t must be 1-dimensional, got {show(size.shape)}")
    if size.shape[0] != 2:
        raise InvalidArgumentError(f"shape_t must have two elements, got {show(size.shape)}")
    height, width = integers(size)
    if min(height, width) <= 0:
        raise InvalidArgumentError(f"{what} must be positive, got {[height, width]}")
    return height, width


def _require_images(x: Array, what: str = "input") -> None:
    if x.ndim != 4:
        raise InvalidArgumentError(f"{what} must be 4-dimensional, got {show(x.shape)}")


def _require_pixels(x: Array) -> None:
    if not x.shape[3]:
        raise InvalidArgumentError(f"image must have at least one channel, got {show(x.shape)}")
    if not x.shape[1] or not x.shape[2]:
        raise InvalidArgumentError(f"input image must be of non-zero size, got {show(x.shape)}")


def _require_one(attrs: Mapping[str, Any]) -> None:
    if attrs.get("half_pixel_centers") and attrs["align_corners"]:
        raise InvalidArgumentError("If half_pixel_centers is True, align_corners must be False.")


def _flags(attrs: Mapping[str, Any]) -> list[bool]:
    return [attrs[k] for k in ("align_corners", "half_pixel_centers") if k in attrs]


# *** Kernels ***


def _resize(axis: Callable[..., taps.Taps], same_type: bool = False) -> Any:
    def factory(xp: Any, attrs: Mapping[str, Any]) -> Any:
        flags, t = _flags(attrs), attrs["T"] if same_type else float32

        def kernel(images: Array, size: Array) -> Array:
            _require_one(attrs)
            _require_images(images)
            height, width = _size_of(size, "output dimensions")
            _require_pixels(images)
            n, h, w, channels = images.shape
            check_size((n, height, width, channels), t)
            rows, columns = axis(h, height, *flags), axis(w, width, *flags)
            return taps.resampled(images, rows, columns, t, xp)

        return kernel

    return factory


def _sum_type(t: DType) -> DType:
    return float32 if t in HALF else t


def _resize_grad(axis: Callable[..., taps.Taps]) -> Any:
    """Kernel factory of gradient ops whose second input is the original image.

    Only the size of the original image is read.
    """

    def factory(xp: Any, attrs: Mapping[str, Any]) -> Any:
        flags, t = _flags(attrs), attrs["T"]
        narrow = converter(xp, t)

        def kernel(grads: Array, original: Array) -> Array:
            _require_one(attrs)
            _require_images(grads, "input_grad")
            _require_images(original, "original_image")
            h, w = original.shape[1:3]
            if not h or not w:
                raise InvalidArgumentError(f"original dimensions must be positive, got {show(original.shape)}")
            n, height, width, channels = grads.shape
            if not height or not width:
                raise InvalidArgumentError(f"resized dimensions must be positive, got {show(grads.shape)}")
            check_size((n, h, w, channels), t)
            rows, columns = axis(h, height, *flags), axis(w, width, *flags)
            return narrow(taps.back(grads, rows, columns, _sum_type(t), xp))

        return kernel

    return factory


def _nearest_grad(xp: Any, attrs: Mapping[str, Any]) -> Any:
    flags, t = _flags(attrs), attrs["T"]
    narrow = converter(xp, t)

    def kernel(grads: Array, size: Array) -> Array:
        _require_one(attrs)
        _require_images(grads)
        h, w = _size_of(size, "shape_t's elements")
        n, height, width, channels = grads.shape
        check_size((n, h, w, channels), t)
        if not size_of(grads):
            return full(xp, (n, h, w, channels), 0, grads)
        rows, columns = taps.nearest(h, height, *flags), taps.nearest(w, width, *flags)
        return narrow(taps.back(grads, rows, columns, _sum_type(t), xp))

    return kernel


def _pair(x: Array) -> tuple[float, float]:
    if x.ndim != 1:
        raise InvalidArgumentError(f"t must be 1-dimensional, got {show(x.shape)}")
    if x.shape[0] != 2:
        raise InvalidArgumentError(f"t must have two elements, got {show(x.shape)}")
    return float(x[0]), float(x[1])


def _moved(
    attrs: Mapping[str, Any], lengths: Sequence[int], outs: Sequence[int], scale: Array, translation: Array
) -> list[taps.Taps]:
    """The taps of both axes of ScaleAndTranslate."""
    kind = attrs["kernel_type"]
    if kind not in taps.KERNELS:
        raise InvalidArgumentError(f"Unrecognized kernel type: {kind}; there are {', '.join(taps.KERNELS)}")
    scales, translations = _pair(scale), _pair(translation)
    if not (scales[0] > 0 and scales[1] > 0):
        raise InvalidArgumentError(f"Scale must be greater than zero, got {list(scales)}")
    return [
        taps.kernel_taps(kind, *each, attrs["antialias"])
        for each in zip(lengths, outs, scales, translations, strict=True)
    ]


def _scale_and_translate(xp: Any, attrs: Mapping[str, Any]) -> Any:
    def kernel(images: Array, size: Array, scale: Array, translation: Array) -> Array:
        _require_images(images)
        height, width = _size_of(size, "output dimensions")
        _require_pixels(images)
        check_size((images.shape[0], height, width, images.shape[3]), float32)
        rows, columns = _moved(attrs, images.shape[1:3], (height, width), scale, translation)
        return taps.resampled(images, rows, columns, float32, xp)

    return kernel


def _scale_and_translate_grad(xp: Any, attrs: Mapping[str, Any]) -> Any:
    def kernel(grads: Array, original: Array, scale: Array, translation: Array) -> Array:
        _require_images(grads, "input_grad")
        _require_images(original, "original_image")
        h, w = original.shape[1:3]
        check_size((grads.shape[0], h, w, grads.shape[3]), float32)
        rows, columns = _moved(attrs, (h, w), grads.shape[1:3], scale, translation)
        return taps.back(grads, rows, columns, float32, xp)

    return kernel


# *** Shapes ***


def _resized_shape(c: Inference) -> Sequence[Shape]:
    images = with_rank(c.shapes[0], 4)
    height, width = with_rank(c.shape_value(1) if with_rank(c.shapes[1], 1) else None, 2)
    return [(images[0], height, width, images[3])]


def _original_shape(c: Inference) -> Sequence[Shape]:
    grads, original = (with_rank(s, 4) for s in c.shapes[:2])
    return [(grads[0], *original[1:3], grads[3])]


# *** Gradients ***


def _spatial(b: Any, images: Any) -> Any:
    shape = images.shape
    if shape is not None and len(shape) == 4 and None not in shape[1:3]:
        return b.const(np.array(shape[1:3], np.int32))
    return b.StridedSlice(b.Shape(images), [1], [3], [1])


def _kept(n: Any, *names: str) -> dict[str, Any]:
    return {k: n.attrs[k] for k in names}


_CENTERS = ("align_corners", "half_pixel_centers")
_KERNEL = ("kernel_type", "antialias")


def _by_original(type: str, types: frozenset[DType], *attrs: str) -> Any:
    """Gradient rule of an op whose gradient op `type` takes the original images.

    Images of a dtype that is not in `types` are cast to float32 first.
    """

    def rule(b: Any, n: Any, dy: Any) -> list[Any]:
        t = n.attrs["T"]
        more = [n.scale, n.translation] if len(n.inputs) == 4 else []
        nothing = [None] * (len(n.inputs) - 1)
        if t not in FLOATING or not n.wants("images"):
            return [None, *nothing]
        images = n.images if t in types else b.Cast(n.images, DstT=float32)
        dx = b.make(type, [dy, images, *more], _kept(n, *attrs))
        return [dx if t in types else b.Cast(dx, DstT=t), *nothing]

    return rule


def _again(type: str, *attrs: str) -> Any:
    """The rule of a gradient op, by the gradient it is given: the op itself."""

    def rule(b: Any, n: Any, g: Any) -> list[Any]:
        def by_grads() -> Any:
            narrow = g.dtype is float64 and n.grads.dtype is not float64
            more = [n.scale, n.translation] if len(n.inputs) == 4 else []
            args = [b.Cast(g, DstT=float32) if narrow else g, _spatial(b, n.grads), *more]
            return b.make(type, args, _kept(n, *attrs))

        return [by_grads, *[None] * (len(n.inputs) - 1)]

    return rule


def _nearest_rule(b: Any, n: Any, dy: Any) -> list[Any]:
    if n.attrs["T"] not in FLOATING:
        return [None, None]
    return [b.ResizeNearestNeighborGrad(dy, _spatial(b, n.images), **_kept(n, *_CENTERS)), None]


def _area_rule(b: Any, n: Any, dy: Any) -> list[Any]:
    """Gradient rule of ResizeArea: two products with the weights of the axes.

    The op yields the weights of an axis when it resizes images that have a single one in each row.
    """
    if n.attrs["T"] not in FLOATING:
        return [None, None]
    before, after = _spatial(b, n.images), _spatial(b, dy)
    for axis, term in ((0, "nhwc,zhyo->nowc"), (1, "nhwc,zwyo->nhoc")):
        length = b.StridedSlice(before, [axis], [axis + 1], [1], shrink_axis_mask=1)
        out = b.StridedSlice(after, [axis], [axis + 1], [1], shrink_axis_mask=1)
        unit = b.OneHot(b.Range(0, length, 1), length, 1.0, 0.0)
        ones = b.ExpandDims(b.ExpandDims(unit, 0), 2)
        weights = b.ResizeArea(ones, b.Pack([out, 1]), **_kept(n, "align_corners"))
        dy = b.Einsum([dy, weights], equation=term)
    return [dy if n.attrs["T"] is float32 else b.Cast(dy, DstT=n.attrs["T"]), None]


# *** Oracles and samples ***


def _weights(places: Callable[..., Any]) -> Any:
    """Function of the weight matrix of an axis, by definition.

    `places(i, length, out, attrs)` gives pairs of an element and its weight.
    """

    def matrix(length: int, out: int, attrs: Mapping[str, Any]) -> Array:
        w = np.zeros((out, length))
        for i in range(out):
            for at, weight in places(i, length, out, attrs):
                w[i, min(max(int(at), 0), length - 1)] += weight
        return w

    return matrix


def _step(length: int, out: int, attrs: Mapping[str, Any]) -> float:
    return (length - 1) / (out - 1) if attrs.get("align_corners") and out > 1 else length / out


def _at(i: int, length: int, out: int, attrs: Mapping[str, Any]) -> float:
    step = _step(length, out, attrs)
    return (i + 0.5) * step - 0.5 if attrs.get("half_pixel_centers") else i * step


def _nearest_places(i: int, length: int, out: int, attrs: Mapping[str, Any]) -> list[tuple[float, float]]:
    at = _at(i, length, out, attrs) + (0.5 if attrs.get("half_pixel_centers") or attrs.get("align_corners") else 0)
    return [(np.floor(at), 1.0)]


def _bilinear_places(i: int, length: int, out: int, attrs: Mapping[str, Any]) -> list[tuple[float, float]]:
    at = _at(i, length, out, attrs)
    below = np.floor(at)
    return [(below, 1 - (at - below)), (below + 1, at - below)]


def _bicubic_places(i: int, length: int, out: int, attrs: Mapping[str, Any]) -> list[tuple[float, float]]:
    half = attrs.get("half_pixel_centers")
    at, a = _at(i, length, out, attrs), -0.5 if half else -0.75
    found = []
    for k in range(int(np.floor(at)) - 1, int(np.floor(at)) + 3):
        x = abs(round((at - np.floor(at)) * 1024) / 1024 + np.floor(at) - k)
        weight = (a + 2) * x**3 - (a + 3) * x**2 + 1 if x <= 1 else a * (x**3 - 5 * x**2 + 8 * x - 4)
        if not half or 0 <= k < length:
            found.append((k, weight))
    total = sum(w for _, w in found) if half else 1
    return [(k, w / total) for k, w in found]


def _area_places(i: int, length: int, out: int, attrs: Mapping[str, Any]) -> list[tuple[float, float]]:
    step = _step(length, out, attrs)
    return [
        (k, (min(k + 1, (i + 1) * step) - max(k, i * step)) / step)
        for k in range(int(np.floor(i * step)), int(np.ceil((i + 1) * step)))
    ]


def _resize_oracle(places: Callable[..., Any], same_type: bool = False) -> Any:
    matrix = _weights(places)

    def oracle(images: Array, size: Array, **attrs: Any) -> Array:
        rows, columns = (matrix(images.shape[i + 1], int(size[i]), attrs) for i in (0, 1))
        out = np.einsum("yh,nhwc,xw->nyxc", rows, images.astype(float), columns)
        return out.astype(images.dtype if same_type else np.float32)

    return oracle


def _back_oracle(places: Callable[..., Any]) -> Any:
    matrix = _weights(places)

    def oracle(grads: Array, like: Array, **attrs: Any) -> Array:
        lengths, t = (like, grads.dtype) if like.ndim == 1 else (like.shape[1:3], like.dtype)
        rows, columns = (matrix(int(lengths[i]), grads.shape[i + 1], attrs) for i in (0, 1))
        return np.einsum("yh,nyxc,xw->nhwc", rows, grads.astype(float), columns).astype(t)

    return oracle


def _kernel_places(i: int, length: int, out: int, attrs: Mapping[str, Any]) -> list[tuple[float, float]]:
    """Elements and weights of the triangle kernel, by definition."""
    inverse = 1 / attrs["scale"]
    at = (i + 0.5 - attrs["translation"]) * inverse
    stretch = max(inverse, 1.0) if attrs.get("antialias", True) else 1.0
    if not 0 <= at <= length:
        return []
    found = [(k, max(0.0, 1 - abs(k + 0.5 - at) / stretch)) for k in range(length)]
    total = sum(w for _, w in found)
    return [(k, w / total) for k, w in found]


def _moved_matrices(lengths: Any, outs: Any, scale: Array, translation: Array, attrs: Mapping[str, Any]) -> list[Array]:
    assert attrs["kernel_type"] == "triangle"
    return [
        _weights(_kernel_places)(int(n), int(m), {**attrs, "scale": float(s), "translation": float(t)})
        for n, m, s, t in zip(lengths, outs, scale, translation, strict=True)
    ]


def _moved_oracle(images: Array, size: Array, scale: Array, translation: Array, **attrs: Any) -> Array:
    rows, columns = _moved_matrices(images.shape[1:3], size, scale, translation, attrs)
    return np.einsum("yh,nhwc,xw->nyxc", rows, images.astype(float), columns).astype(np.float32)


def _moved_back_oracle(grads: Array, like: Array, scale: Array, translation: Array, **attrs: Any) -> Array:
    rows, columns = _moved_matrices(like.shape[1:3], grads.shape[1:3], scale, translation, attrs)
    return np.einsum("yh,nyxc,xw->nhwc", rows, grads.astype(float), columns).astype(np.float32)


# Sizes before and after. Positions between two elements are fractions that float32 represents exactly.
_SIZES: tuple[Any, ...] = (
    ((2, 3), (4, 6), {}),
    ((4, 5), (2, 3), {"align_corners": True}),
    ((4, 2), (2, 8), {"half_pixel_centers": True}),
)


def _resize_samples(grad: str = "", area: bool = False) -> Any:
    """Test cases of an op, or of its gradient that takes a "size" or "image"."""

    def sample(rng: np.random.Generator, dtype: DType) -> list[Case]:
        out = []
        few = dtype not in (float64, float32)
        for small, large, attrs in _SIZES[: 1 if few else 2 if area else 3]:
            before, after = np.array(small, np.int32), np.array(large, np.int32)
            images = draw(rng, dtype, (2, *small, 2))
            if not grad:
                out.append(case(images, after, **attrs))
            elif grad == "size":
                out.append(case(draw(rng, dtype, (2, *large, 2)), before, **attrs))
            elif dtype is not float64:  # whose weights are those of float32, too coarse for what doubles are held to
                out.append(case(draw(rng, float32, (2, *large, 2)), images, **attrs))
        return out

    return sample


def _moved_samples(grad: bool) -> Any:
    def sample(rng: np.random.Generator, dtype: DType) -> list[Case]:
        out = []
        for small, large, scale, shift in (
            ((2, 4), (4, 3), (2, 0.5), (0, 0.5)),
            ((3, 3), (3, 4), (1, 1.5), (0.25, -0.75)),
        ):
            images = draw(rng, dtype, (1, *small, 2))
            where = np.array(scale, np.float32), np.array(shift, np.float32)
            attrs = {"kernel_type": "triangle", "antialias": scale[0] == 2}
            first = (draw(rng, dtype, (1, *large, 2)), images) if grad else (images, np.array(large, np.int32))
            out.append(case(*first, *where, **attrs))
            if dtype is not float32:
                break
        return out

    return sample


# *** Records ***

_TYPES = frozenset({int8, uint8, int16, uint16, int32, int64, float16, bfloat16, float32, float64})
_BOTH = {"align_corners": False, "half_pixel_centers": False}
_COST = Facts(cost=flops_per_element(12))
_BACK = Facts(cost=flops_per_input(16))

# fmt: off
for _kind, _axis, _places, _grad_types, _doc in (
    ("Bilinear", taps.bilinear, _bilinear_places, FLOATING, "from the four pixels around"),
    ("Bicubic", taps.bicubic, _bicubic_places, frozenset({float32, float64}), "from the sixteen pixels around"),
):
    op(
        f"Resize{_kind}",
        "images: T, size: int32",
        "resized_images: float32",
        {"T": _TYPES} | _BOTH,
        shape=_resized_shape,
        kernel=_resize(_axis),
        xp=True,
        host=("size",),
        grad=_by_original(f"Resize{_kind}Grad", _grad_types, *_CENTERS), batch=folding(0),
        facts=_COST,
        oracle=_resize_oracle(_places),
        sample=_resize_samples(),
        doc=f"Images of another size, each pixel interpolated {_doc}.",
    )
    op(
        f"Resize{_kind}Grad",
        "grads: float32, original_image: T",
        "output: T",
        {"T": _grad_types} | _BOTH,
        shape=_original_shape,
        kernel=_resize_grad(_axis),
        xp=True,
        grad=_again(f"Resize{_kind}", *_CENTERS), batch=folding(0, 1),
        facts=_BACK,
        oracle=_back_oracle(_places),
        sample=_resize_samples("image"),
        doc=f"The gradient of Resize{_kind} by the images.",
    )
# fmt: on
op(
    "ResizeNearestNeighbor",
    "images: T, size: int32",
    "resized_images: T",
    {"T": _TYPES} | _BOTH,
    shape=_resized_shape,
    kernel=_resize(taps.nearest, same_type=True),
    xp=True,
    host=("size",),
    grad=_nearest_rule,
    jvp=linear("images"),
    batch=folding(0),
    facts=_COST,
    oracle=_resize_oracle(_nearest_places, same_type=True),
    sample=_resize_samples(),
    doc="Images of another size, each pixel that of the original nearest to it.",
)
op(
    "ResizeNearestNeighborGrad",
    "grads: T, size: int32",
    "output: T",
    {"T": type_attr({uint8, int8, int32, float16, float32, float64, bfloat16})} | _BOTH,
    shape=_resized_shape,
    kernel=_nearest_grad,
    xp=True,
    host=("size",),
    grad=_again("ResizeNearestNeighbor", *_CENTERS),
    jvp=linear("grads"),
    batch=folding(0),
    facts=_BACK,
    oracle=_back_oracle(_nearest_places),
    sample=_resize_samples("size"),
    doc="The gradient of ResizeNearestNeighbor by the images, which are of this size.",
)
op(
    "ResizeArea",
    "images: T, size: int32",
    "resized_images: float32",
    {"T": _TYPES, "align_corners": False},
    shape=_resized_shape,
    kernel=_resize(taps.area),
    xp=True,
    host=("size",),
    grad=_area_rule,
    batch=folding(0),
    facts=_COST,
    oracle=_resize_oracle(_area_places),
    sample=_resize_samples(area=True),
    doc="Images of another size, each pixel the mean of the area of the original that it covers.",
)
op(
    "ScaleAndTranslate",
    "images: T, size: int32, scale: float32, translation: float32",
    "resized_images: float32",
    {"T": _TYPES, "kernel_type": "lanczos3", "antialias": True},
    shape=_resized_shape,
    kernel=_scale_and_translate,
    xp=True,
    host=("size", "scale", "translation"),
    grad=_by_original("ScaleAndTranslateGrad", frozenset({float32}), *_KERNEL),
    batch=folding(0),
    facts=_COST,
    oracle=_moved_oracle,
    sample=_moved_samples(grad=False),
    doc="Images scaled and moved, each pixel weighed by a kernel around its place in the original.",
)
op(
    "ScaleAndTranslateGrad",
    "grads: T, original_image: T, scale: float32, translation: float32",
    "output: T",
    {"T": type_attr({float32})} | {"kernel_type": "lanczos3", "antialias": True},
    shape=_original_shape,
    kernel=_scale_and_translate_grad,
    xp=True,
    host=("scale", "translation"),
    grad=_again("ScaleAndTranslate", *_KERNEL),
    facts=_BACK,
    oracle=_moved_back_oracle,
    sample=_moved_samples(grad=True),
    doc="The gradient of ScaleAndTranslate by the images.",
)
