"""IsotonicRegression: the nearest non-increasing sequences.

Source: TensorFlow's op of the same name; the pool-adjacent-violators algorithm (Ayer et al., 1955). Increasing
neighbours are replaced by their mean, and so are increasing means, until the sequence does not increase.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from headrace.dtypes import FLOATING, REAL, DType, float32, float64, int32
from headrace.ir.infer import Inference
from headrace.ir.opdef import Facts, case, flops_per_input, op, type_attr
from headrace.shapes import Shape


def _pooled(row: Sequence[float]) -> tuple[list[float], list[int]]:
    """The regression of one sequence, and the number of each element's pool."""
    pools: list[tuple[float, int]] = []  # sums and sizes
    for x in row:
        total, size = x, 1
        while pools and pools[-1][0] * size < total * pools[-1][1]:
            before, n = pools.pop()
            total, size = total + before, size + n
        pools.append((total, size))
    means = [total / size for total, size in pools for _ in range(size)]
    return means, [k for k, (_, size) in enumerate(pools) for _ in range(size)]


def _kernel(attrs: Mapping[str, Any]) -> Any:
    dtype = attrs["output_dtype"].numpy

    def kernel(x: Any) -> Any:
        out = np.empty(x.shape, dtype)
        segments = np.zeros(x.shape, np.int32)
        if not x.ndim:
            return x.astype(dtype), segments
        wide = x.astype(np.float64)
        for i in np.ndindex(x.shape[:-1]):
            out[i], segments[i] = _pooled(wide[i].tolist())
        return out, segments

    return kernel


def _shape(c: Inference) -> Sequence[Shape]:
    return [c.shapes[0], c.shapes[0]]


def _pool_means(b: Any, n: Any, d: Any) -> Any:
    """The mean of `d` over each pool, at each of its elements."""
    shape = b.Shape(n.input)
    last = b.StridedSlice(b.ConcatV2([[1], shape], 0), [-1], [0], [1], shrink_axis_mask=1)  # of a scalar: 1
    rows = b.Reshape(n.segments, b.Pack([-1, last]))
    first = b.Mul(b.Range(0, b.Squeeze(b.StridedSlice(b.Shape(rows), [0], [1], [1])), 1), last)
    pools = b.Reshape(b.AddV2(rows, b.ExpandDims(first, 1)), [-1])  # numbered through all the rows
    count = b.Size(n.input)
    flat = b.Reshape(d, [-1])
    sums, sizes = (b.UnsortedSegmentSum(x, pools, count) for x in (flat, b.OnesLike(flat)))
    return b.Reshape(b.GatherV2(b.DivNoNan(sums, sizes), pools, 0), shape)


def _grad(b: Any, n: Any, dy: Any, d_segments: Any) -> list[Any]:
    out = _pool_means(b, n, dy)
    return [out if n.attrs["T"] is out.dtype else b.Cast(out, DstT=n.attrs["T"])]


def _jvp(b: Any, n: Any, dx: Any) -> list[Any]:
    return [_pool_means(b, n, b.Cast(dx, DstT=n.attrs["output_dtype"])), None]


def _model(x: np.ndarray, output_dtype: DType = float32) -> Any:
    """Model by the definition, as a minimum over starts of a maximum over ends.

    y[i] is the minimum over starts s <= i of the maximum over ends e >= i of the mean of x[s] to x[e].
    """
    out, segments = np.empty(x.shape, float), np.zeros(x.shape, np.int32)
    for i in np.ndindex(x.shape):
        row = x[i[:-1]].astype(float) if i else x.astype(float)[None]
        k = i[-1] if i else 0
        out[i] = min(max(row[s : e + 1].mean() for e in range(k, len(row))) for s in range(k + 1))
    for i in np.ndindex(x.shape[:-1]):
        pool = 0
        for k in range(1, x.shape[-1] if x.ndim else 0):
            pool += bool(out[(*i, k)] != out[(*i, k - 1)])
            segments[(*i, k)] = pool
    return out.astype(output_dtype.numpy), segments


def _samples(rng: np.random.Generator, dtype: DType) -> list[Any]:
    out = dtype if dtype in FLOATING else float64
    values = [rng.permutation(12).reshape(3, 4) ** 2, rng.permutation(5) ** 2, np.zeros((2, 0)), np.array(3)]
    cases = [case(v.astype(dtype.numpy), output_dtype=out) for v in values]
    return cases if dtype in (float64, int32) else cases[:1]


op(
    "IsotonicRegression",
    "input: T",
    "output: output_dtype, segments: int32",
    {"T": REAL, "output_dtype": type_attr(FLOATING, float32)},
    shape=_shape,
    kernel=_kernel,
    xp=False,
    grad=_grad,
    jvp=_jvp,
    facts=Facts(cost=flops_per_input(200)),
    oracle=_model,
    sample=_samples,
    doc="The sequence nearest to each row that never rises, and which runs of it are equal.",
    differs="All pairs of input and output dtypes are supported.",
)
