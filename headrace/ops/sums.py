"""Sums of arrays, and of an array and a bias: AddN, AccumulateNV2, BiasAdd.

Source: TensorFlow's ops of the same names.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from headrace import dtypes, shapes
from headrace.dtypes import NUMERIC, DType
from headrace.errors import InvalidArgumentError
from headrace.ir.infer import Inference
from headrace.ir.opdef import (
    Facts,
    case,
    flops_per_element,
    flops_per_input,
    int_attr,
    op,
    shape_attr,
    string_attr,
)
from headrace.opkit import forms
from headrace.opkit.batch_rules import in_step
from headrace.opkit.batch_shapes import accumulate, bias_add, bias_add_grad
from headrace.opkit.elementwise import HALF, alike, computed_in, widened
from headrace.opkit.jvp_rules import linear
from headrace.opkit.kernel_library import reduced
from headrace.opkit.namespaces import converter, dtype_in, is_standard
from headrace.opkit.testing.samples import SHAPES, draw
from headrace.shapes import Shape, show


def _add_n_cost(ins: Sequence[Shape], outs: Sequence[Shape]) -> float | None:
    n = shapes.size(outs[0])
    return None if n is None else float(n * (len(ins) - 1))


def _add_n(xp: Any, attrs: Mapping[str, Any]) -> Any:
    if attrs["N"] == 1:
        return lambda x: x
    if attrs["T"] is dtypes.variant:
        return _add_lists

    def kernel(first: Any, *rest: Any) -> Any:
        out = first
        for i, x in enumerate(rest, 1):
            if x.shape != first.shape:
                raise InvalidArgumentError(
                    "Inputs to operation AddN must have the same size and shape. "
                    f"Input 0: {show(first.shape)} != input {i}: {show(x.shape)}"
                )
            out = out + x
        return out

    return widened(kernel, attrs["T"], xp)  # one rounding instead of one for each addition


def _add_lists(first: Any, *rest: Any) -> Any:
    """Adds variants by their method `add` (`resources.tensor_list.TensorList.add`)."""
    for x in rest:
        first = _add_each(first, x) if isinstance(first, np.ndarray) else _add_variants(first, x)
    return first


def _add_variants(x: Any, y: Any) -> Any:
    if x is None or y is None:  # an uninitialized element of a list of lists, which is zero
        return y if x is None else x
    return x.add(y)


_add_each = np.frompyfunc(_add_variants, 2, 1)


def _add_n_shape(c: Inference) -> Sequence[Shape]:
    h = c.handle(0)
    if h is not None:
        c.set_handle(0, *h)
    return alike(c)


def _several(rng: np.random.Generator, dtype: DType) -> list[Any]:
    if dtype not in NUMERIC:
        return []
    return [case([draw(rng, dtype, s) for _ in range(n)]) for n in (1, 2, 4) for s in SHAPES]


def _sum_oracle(arrays: Sequence[np.ndarray], **_: Any) -> np.ndarray:
    wide = np.complex128 if arrays[0].dtype.kind == "c" else np.int64 if arrays[0].dtype.kind in "iu" else np.float64
    out = np.zeros(arrays[0].shape, wide)
    for a in arrays:
        out = out + a.astype(wide)
    return out.astype(arrays[0].dtype)


def _add_n_jvp(b: Any, n: Any, *dxs: Any) -> list[Any]:
    there = [dx for dx in dxs if dx is not None]
    return there if len(there) == 1 else [b.AddN(there)]


op(
    "AddN",
    "inputs: N * T",
    "sum: T",
    {"N": int_attr(minimum=1), "T": NUMERIC | {dtypes.variant}},
    shape=_add_n_shape,
    kernel=_add_n,
    xp=True,
    grad=lambda b, n, dy: [dy] * len(n.inputs),
    jvp=_add_n_jvp,
    batch=in_step,
    facts=Facts(cost=_add_n_cost, total=()),
    oracle=_sum_oracle,
    sample=_several,
    doc="The sum of all inputs, which have one shape.",
)


def _accumulate_shape(c: Inference) -> Sequence[Shape]:
    return [shapes.merge(alike(c)[0], c.attrs["shape"])]


op(
    "AccumulateNV2",
    "inputs: N * T",
    "sum: T",
    {"N": int_attr(minimum=1), "T": NUMERIC, "shape": shape_attr()},
    shape=_accumulate_shape,
    kernel=_add_n,
    xp=True,
    grad=lambda b, n, dy: [dy] * len(n.inputs),
    jvp=_add_n_jvp,
    batch=accumulate,
    facts=Facts(cost=_add_n_cost, total=()),
    oracle=_sum_oracle,
    sample=lambda rng, dtype: [case(*c.inputs, shape=c.inputs[0][0].shape) for c in _several(rng, dtype)],
    doc="The sum of all inputs, whose shape is given.",
)


# *** Biases ***

_FORMAT = string_attr("NHWC", {"NHWC", "NCHW"})


def _channel_axis(attrs: Mapping[str, Any]) -> int:
    return 1 if attrs.get("data_format") == "NCHW" else -1


def _least_rank(attrs: Mapping[str, Any]) -> int:
    """The least rank of the input that TensorFlow's shape function accepts.

    TensorFlow's kernels accept matrices with NCHW too.
    """
    return 3 if attrs.get("data_format") == "NCHW" else 2


def _require_matrix(x: Any) -> None:
    if x.ndim < 2:
        raise InvalidArgumentError(f"Input tensor must be at least 2D: {show(x.shape)}")


def _bias_add(xp: Any, attrs: Mapping[str, Any]) -> Any:
    axis = _channel_axis(attrs)

    def kernel(value: Any, bias: Any) -> Any:
        _require_matrix(value)
        if bias.ndim != 1:
            raise InvalidArgumentError(f"Biases must be 1D: {show(bias.shape)}")
        if bias.shape[0] != value.shape[axis]:
            raise InvalidArgumentError(
                f"Must provide as many biases as the last dimension of the input tensor: {show(bias.shape)} vs. "
                f"{show(value.shape)} (dimension {axis} under data_format {attrs.get('data_format', 'NHWC')})"
            )
        if axis == 1:
            bias = bias[:, *[None] * (value.ndim - 2)]
        return value + bias

    return kernel


def _bias_add_shape(c: Inference) -> Sequence[Shape]:
    value, axis = shapes.with_rank_at_least(c.shapes[0], _least_rank(c.attrs)), _channel_axis(c.attrs)
    (n,) = shapes.with_rank(c.shapes[1], 1)
    if value is None:
        return [None]
    out = list(value)
    out[axis] = shapes.merge_dim(out[axis], n)
    return [tuple(out)]


def _biased(rng: np.random.Generator, dtype: DType) -> list[Any]:
    last = [case(draw(rng, dtype, s), draw(rng, dtype, s[-1:])) for s in ((2, 3), (2, 1, 2, 3), (0, 2), (2, 0))]
    second = [
        case(draw(rng, dtype, s), draw(rng, dtype, s[1:2]), data_format="NCHW") for s in ((2, 3, 1, 2), (1, 2, 3))
    ]
    return last + second


def _bias_oracle(value: np.ndarray, bias: np.ndarray, data_format: str = "NHWC") -> np.ndarray:
    out = value.copy()
    for i in np.ndindex(value.shape):
        out[i] = value[i] + bias[i[1 if data_format == "NCHW" else -1]]
    return out


op(
    "BiasAdd",
    "value: T, bias: T",
    "output: T",
    {"T": NUMERIC, "data_format": _FORMAT},
    shape=_bias_add_shape,
    kernel=_bias_add,
    xp=True,
    grad=lambda b, n, dy: [dy, lambda: b.BiasAddGrad(dy, data_format=n.attrs["data_format"])],
    jvp=linear("value", "bias"),
    batch=bias_add,
    facts=Facts(cost=flops_per_element(1), total=()),
    oracle=_bias_oracle,
    sample=_biased,
    doc="`value` plus a bias for each channel: the last dimension, or with NCHW the second.",
)
op(
    "BiasAddV1",
    "value: T, bias: T",
    "output: T",
    {"T": NUMERIC},
    shape=_bias_add_shape,
    kernel=_bias_add,
    xp=True,
    grad=lambda b, n, dy: [dy, lambda: b.BiasAddGrad(dy)],
    jvp=linear("value", "bias"),
    batch=bias_add,
    facts=Facts(cost=flops_per_element(1), total=()),
    oracle=_bias_oracle,
    sample=lambda rng, dtype: _biased(rng, dtype)[:4],
    doc="`value` plus a bias for each element of the last dimension.",
)


def _bias_add_grad(xp: Any, attrs: Mapping[str, Any]) -> Any:
    axis, t = _channel_axis(attrs), attrs["T"]
    wide, narrow = dtype_in(xp, computed_in(t)), converter(xp, t)

    def kernel(dy: Any) -> Any:
        _require_matrix(dy)
        others = tuple(i for i in range(dy.ndim) if i != axis % dy.ndim)
        if is_standard(xp):
            return narrow(xp.sum(dy, axis=others, dtype=wide))
        out = reduced(np.add, dy, others, xp)
        if out is None:
            out = xp.add.reduce(dy, axis=others, dtype=wide)
        return narrow(out) if t in HALF else out

    return kernel


def _bias_grad_shape(c: Inference) -> Sequence[Shape]:
    dy = shapes.with_rank_at_least(c.shapes[0], _least_rank(c.attrs))
    return [(None if dy is None else dy[_channel_axis(c.attrs)],)]


def _bias_grad_oracle(dy: np.ndarray, data_format: str = "NHWC") -> np.ndarray:
    last = np.moveaxis(dy, 1 if data_format == "NCHW" else -1, -1)
    return _sum_oracle([np.zeros(last.shape[-1], dy.dtype), *last.reshape(-1, last.shape[-1])])


op(
    "BiasAddGrad",
    "out_backprop: T",
    "output: T",
    {"T": NUMERIC, "data_format": _FORMAT},
    shape=_bias_grad_shape,
    kernel=_bias_add_grad,
    xp=True,
    grad=lambda b, n, g: [b.BiasAdd(b.ZerosLike(n.out_backprop), g, data_format=n.attrs["data_format"])],
    jvp=linear("out_backprop"),
    batch=bias_add_grad,
    form=forms.channel_sum(_channel_axis),
    facts=Facts(cost=flops_per_input(1), total=(), rounds_once=True),
    oracle=_bias_grad_oracle,
    sample=lambda rng, dtype: [case(c.inputs[0], **c.attrs) for c in _biased(rng, dtype) if c.inputs[0].size],
    doc="The gradient of the bias of BiasAdd: the sum over all dimensions but that of the channels.",
)
