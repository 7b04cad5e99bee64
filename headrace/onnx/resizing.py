"""`Resize` and `Upsample`: interpolation along each axis as a product with a matrix of weights.

Sizes and scales are known when the model is called, so the weights are constants: a matrix [output size, input size]
for each axis that changes. The product is differentiable.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from headrace.api import arrays, gathering, linalg, math, tensors
from headrace.dtypes import float32
from headrace.ir.tensor_type import Tensor
from headrace.onnx.operators import Call, operator


def _coordinates(mode: str, n: int, size: int, scale: float, roi: tuple[float, float]) -> np.ndarray:
    """Coordinates in the input of the elements of the output."""
    i = np.arange(size, dtype=np.float64)
    if mode == "asymmetric":
        return i / scale
    if mode == "align_corners":
        whole = scale * n  # not rounded down to a number of elements
        return i * ((n - 1) / (whole - 1)) if whole != 1 else i * 0
    if mode == "tf_crop_and_resize":
        if size > 1:
            return roi[0] * (n - 1) + i * ((roi[1] - roi[0]) * (n - 1) / (size - 1))
        return np.full(1, 0.5 * (roi[0] + roi[1]) * (n - 1))
    if mode == "pytorch_half_pixel" and size == 1:
        return i * 0 - 0.5
    if mode == "tf_half_pixel_for_nn":
        return (i + 0.5) / scale
    half = (i + 0.5) / scale - 0.5
    if mode == "half_pixel_symmetric":
        return n / 2 * (1 - size / (scale * n)) + half
    return half


def _cubic(d: np.ndarray, a: float) -> np.ndarray:
    d = np.abs(d)
    near = (a + 2) * d**3 - (a + 3) * d**2 + 1
    far = a * d**3 - 5 * a * d**2 + 8 * a * d - 4 * a
    return np.where(d <= 1, near, np.where(d < 2, far, 0.0))


def _weights(call: Call, x: np.ndarray, n: int, scale: float) -> np.ndarray:
    """The matrix [output size, input size] of an interpolation at the coordinates `x`."""
    stretch = min(scale, 1.0) if call.get("antialias") else 1.0
    cubic = call["mode"] == "cubic"
    reach = (2 if cubic else 1) / stretch
    low = np.floor(x - reach).astype(int) + 1
    places = low[:, None] + np.arange(int(np.ceil(2 * reach)) + 1)
    distance = (places - x[:, None]) * stretch
    w = _cubic(distance, call["cubic_coeff_a"]) if cubic else np.maximum(1 - np.abs(distance), 0)
    if call.get("exclude_outside"):
        w = np.where((places >= 0) & (places < n), w, 0)
    w /= w.sum(1, keepdims=True)
    out = np.zeros((len(x), n))
    np.add.at(out, (np.arange(len(x))[:, None], places.clip(0, n - 1)), w)
    return out


def _nearest(how: str, x: np.ndarray, n: int) -> np.ndarray:
    if how == "round_prefer_ceil":
        places = np.floor(x + 0.5)
    elif how == "floor":
        places = np.floor(x)
    elif how == "ceil":
        places = np.ceil(x)
    else:
        places = np.ceil(x - 0.5)
    return places.clip(0, n - 1).astype(np.int64)


def _along(x: Tensor, matrix: np.ndarray, axis: int, rank: int) -> Tensor:
    order = [*[a for a in range(rank) if a != axis], axis]
    back = [order.index(a) for a in range(rank)]
    y = linalg.tensordot(arrays.transpose(x, order), tensors.constant(matrix.T, x.dtype.base), 1)
    return arrays.transpose(y, back)


@operator("Resize", since=10)
def resize10(call: Call, x: Tensor, scales: Tensor) -> Tensor:
    """Interpolates by scales, asymmetrically (version 10)."""
    factors = call.static(scales, "scales").reshape(-1)
    dims = [int(d) for d in call.static(arrays.shape(x), "shape")]
    for axis, (n, scale) in enumerate(zip(dims, factors.tolist(), strict=True)):
        size = int(np.floor(n * scale))
        if size == n:
            continue
        at = _coordinates("asymmetric", n, size, scale, (0, 1))
        if call["mode"] == "nearest":
            x = gathering.gather(x, _nearest("floor", at, n), axis=axis)
        else:
            x = _along(x, _weights(call, at, n, scale), axis, len(dims))
    return x


@operator("Upsample", since=7)
def upsample(call: Call, x: Tensor, scales: Tensor | None = None) -> Tensor:
    """Interpolates by scales."""
    return resize10(call, x, tensors.constant(call["scales"], float32) if scales is None else scales)


@operator("Resize", since=11)
def resize(
    call: Call, x: Tensor, roi: Tensor | None = None, scales: Tensor | None = None, sizes: Tensor | None = None
) -> Tensor:
    """Interpolates to sizes or by scales."""
    rank = call.rank(x)
    dims = [int(d) for d in call.static(arrays.shape(x), "shape")]
    axes = [a % rank for a in (call.get("axes") or range(rank))]
    if sizes is not None and sizes.shape != (0,):
        wanted = [int(n) for n in call.static(sizes, "sizes")]
        factors = [w / dims[a] for a, w in zip(axes, wanted, strict=True)]
        policy = call.get("keep_aspect_ratio_policy", "stretch")
        if policy != "stretch":
            one = min(factors) if policy == "not_larger" else max(factors)
            factors = [one] * len(axes)
            wanted = [int(np.floor(one * dims[a] + 0.5)) for a in axes]
    else:
        factors = [float(f) for f in call.static(scales, "scales")]
        wanted = [int(np.floor(dims[a] * f)) for a, f in zip(axes, factors, strict=True)]
    box: Any = None if roi is None or roi.shape == (0,) else call.static(roi, "roi").tolist()
    transform = call["coordinate_transformation_mode"]
    for k, (axis, size, scale) in enumerate(zip(axes, wanted, factors, strict=True)):
        n = dims[axis]
        ends = (box[k], box[k + len(axes)]) if box else (0.0, 1.0)
        if size == n and scale == 1 and ends == (0.0, 1.0):
            continue
        at = _coordinates(transform, n, size, scale, ends)
        if call["mode"] == "nearest":
            x = gathering.gather(x, _nearest(call["nearest_mode"], at, n), axis=axis)
        elif x.dtype.base.is_floating:
            x = _along(x, _weights(call, at, n, scale), axis, rank)
        else:
            x = math.cast(_along(math.cast(x, float32), _weights(call, at, n, scale), axis, rank), x.dtype.base)
        if transform == "tf_crop_and_resize":
            inside = arrays.reshape(
                tensors.constant((at >= 0) & (at <= n - 1)), [-1 if a == axis else 1 for a in range(rank)]
            )
            x = gathering.where(inside, x, tensors.constant(call["extrapolation_value"], x.dtype.base))
    return x
