"""Cross entropies of predicted and true classes: SoftmaxCrossEntropyWithLogits and the form with labels as indices.

Source: TensorFlow's ops of the same names. Each also returns the gradient of its loss with respect to the logits, a
by-product of the loss. Half precision is computed in float32.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from headrace.dtypes import FLOATING, INDEX, DType, float32, int32, int64
from headrace.errors import InvalidArgumentError
from headrace.ir.infer import Inference
from headrace.ir.opdef import Facts, case, flops_per_input, op, type_attr
from headrace.opkit.batch_rules import folding
from headrace.opkit.batch_shapes import cross_entropy
from headrace.opkit.elementwise import HALF
from headrace.opkit.jvp_rules import stretched
from headrace.opkit.kernel_library import with_library
from headrace.opkit.namespaces import converter, is_standard
from headrace.opkit.shape_rules import unbroadcast
from headrace.opkit.testing.samples import draw
from headrace.shapes import Shape, broadcast, merge_dim, show, with_rank


def _centred(b: Any, p: Any, g: Any) -> Any:
    """Applies the derivative of Softmax, whose value is `p`, to `g`.

    The derivative is its own transpose.
    """
    return b.Mul(b.Sub(g, b.Sum(b.Mul(g, p), [-1], keep_dims=True)), p)


def _greatest(xp: Any) -> Callable[[Any], Any]:
    """Returns a function that finds the greatest number of each row.

    It is -inf in rows without numbers.
    """
    if not is_standard(xp):
        # np.max adds a microsecond to the calls of this
        maximum = np.maximum.reduce if xp is np else xp.max
        return lambda x: maximum(x, axis=-1, keepdims=True, initial=-np.inf)

    def greatest(x: Any) -> Any:
        if x.shape[-1]:
            return xp.max(x, axis=-1, keepdims=True)
        return xp.full((*x.shape[:-1], 1), -math.inf, dtype=x.dtype, device=x.device)

    return greatest


# *** Labels as probabilities ***


def _dense(xp: Any, attrs: Mapping[str, Any]) -> Any:
    t = attrs["T"]
    greatest, widen, back = _greatest(xp), converter(xp, float32 if t in HALF else t), converter(xp, t)

    def both(x: Any, z: Any) -> Any:
        shifted = x - greatest(x)  # so that exp does not overflow
        powers = xp.exp(shifted)
        sums = xp.sum(powers, axis=-1, keepdims=True)
        loss = xp.sum(z * (xp.log(sums) - shifted), axis=-1)
        return loss, powers / sums - z

    def kernel(x: Any, z: Any) -> Any:
        if x.shape != z.shape:
            try:
                np.broadcast_shapes(x.shape, z.shape)
            except ValueError:
                raise InvalidArgumentError(
                    f"logits and labels must be broadcastable: logits_size={show(x.shape)} labels_size={show(z.shape)}"
                ) from None
            x, z = xp.broadcast_arrays(x, z)
        if x.ndim != 2:
            raise InvalidArgumentError(
                "logits and labels must be either 2-dimensional, or broadcasted to be 2-dimensional, "
                f"got {show(x.shape)}"
            )
        loss, backprop = both(widen(x), widen(z))
        return back(loss), back(backprop)

    return kernel


def _dense_shape(c: Inference) -> Sequence[Shape]:
    rows, classes = with_rank(broadcast(*c.shapes), 2)
    return [(rows,), (rows, classes)]


def _dense_grad(b: Any, n: Any, dloss: Any, g: Any) -> list[Any]:
    dloss = b.ExpandDims(dloss, -1)
    both = n.reaches("backprop")  # nearly all graphs use only the loss

    @functools.cache
    def x() -> Any:
        return stretched(b, n.features, n.backprop)

    def by_logits() -> Any:
        out = b.Mul(dloss, n.backprop)
        return b.AddV2(out, _centred(b, b.Softmax(x()), g)) if both else out

    def by_labels() -> Any:
        out = b.Mul(dloss, b.Neg(b.LogSoftmax(x())))
        return b.Sub(out, g) if both else out

    return unbroadcast(b, n.features, n.labels, by_logits, by_labels)


def _dense_jvp(b: Any, n: Any, dx: Any, dz: Any) -> list[Any]:
    x = stretched(b, n.features, n.backprop)
    losses, backprops = [], []
    if dx is not None:
        losses.append(b.Sum(b.Mul(dx, n.backprop), [-1]))
        backprops.append(_centred(b, b.Softmax(x), stretched(b, dx, n.backprop)))
    if dz is not None:
        losses.append(b.Neg(b.Sum(b.Mul(dz, b.LogSoftmax(x)), [-1])))
        backprops.append(b.Neg(stretched(b, dz, n.backprop)))
    return [terms[0] if len(terms) == 1 else b.AddV2(*terms) for terms in (losses, backprops)]


def _dense_oracle(x: np.ndarray, z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    wide, weights = (a.astype(np.float64) for a in np.broadcast_arrays(x, z))
    loss, backprop = np.zeros(len(wide), x.dtype), np.zeros(wide.shape, x.dtype)
    for i, (row, label) in enumerate(zip(wide, weights, strict=True)):
        top = max(row, default=0)
        total = math.fsum(math.exp(v - top) for v in row)
        loss[i] = math.fsum(p * (math.log(total) - (v - top)) for p, v in zip(label, row, strict=True))
        backprop[i] = [math.exp(v - top) / total - p for p, v in zip(label, row, strict=True)]
    return loss, backprop


def _dense_cases(rng: np.random.Generator, dtype: DType) -> list[Any]:
    pairs = (((2, 3), (2, 3)), ((1, 4), (1, 4)), ((2, 3), (1, 3)), ((3, 1), (1, 2)), ((0, 3), (0, 3)), ((2, 0), (2, 0)))
    out = []
    for s, t in pairs:
        weights = rng.uniform(0.1, 1, t)
        out.append(case(draw(rng, dtype, s), (weights / weights.sum(-1, keepdims=True)).astype(dtype.numpy)))
    return out


op(
    "SoftmaxCrossEntropyWithLogits",
    "features: T, labels: T",
    "loss: T, backprop: T",
    {"T": FLOATING},
    shape=_dense_shape,
    kernel=_dense,
    xp=True,
    grad=_dense_grad,
    jvp=_dense_jvp,
    batch=cross_entropy,
    facts=Facts(cost=flops_per_input(20), total=(), rounds_once=True),
    oracle=_dense_oracle,
    sample=_dense_cases,
    doc="-sum(labels * log(Softmax(features))) of each row, and its gradient by the features, which is "
    "Softmax(features) - labels if the labels of each row are probabilities.",
)


# *** Labels as indices ***


def _softmax(xp: Any, attrs: Mapping[str, Any]) -> Any:
    """The kernel factory of the softmax of rows, and of two numbers of each.

    These are the logarithm of the sum of the exponentials and the greatest number.

    They are float32 for half precision.
    """
    t = attrs["T"]
    maximum, widen = _greatest(xp), converter(xp, float32 if t in HALF else t)
    total = np.add.reduce if xp is np else xp.sum  # np.sum adds a microsecond to the calls of this

    def parts(x: Any) -> tuple[Any, Any, Any]:
        wide = widen(x)
        greatest = maximum(wide)  # subtracted so that exp does not overflow
        powers = xp.exp(wide - greatest)
        sums = total(powers, axis=-1, keepdims=True)
        return powers / sums, xp.log(sums), greatest

    return parts


def _sparse(xp: Any, attrs: Mapping[str, Any]) -> Any:
    t = attrs["T"]
    find = _numpy_losses(attrs) if xp is np else _portable_losses(xp, attrs)
    unsigned, back = np.dtype(f"u{attrs['Tlabels'].numpy.itemsize}"), converter(xp, t)

    def kernel(x: Any, at: Any) -> Any:
        if x.ndim != 2:
            raise InvalidArgumentError(f"logits must be 2-D, but got shape {show(x.shape)}")
        if at.ndim != 1 or at.shape[0] != x.shape[0]:
            raise InvalidArgumentError(
                "logits and labels must have the same first dimension, "
                f"got logits shape {show(x.shape)} and labels shape {show(at.shape)}"
            )
        classes = x.shape[1]
        if not classes:
            raise InvalidArgumentError(f"Must have at least one class, but got logits shape {show(x.shape)}")
        if xp is np:  # a negative label is greater than all others as an unsigned number
            is_wrong = len(at) and not np.maximum.reduce(at.view(unsigned)) < classes
        else:
            is_wrong = xp.any((at < 0) | (at >= classes))
        if is_wrong:
            row = int(xp.nonzero((at < 0) | (at >= classes))[0][0])
            raise InvalidArgumentError(
                f"Received a label value of {int(at[row])} which is outside the valid range of [0, {classes}): "
                f"label {row}"
            )
        loss, backprop = find(x, at)
        return back(loss), back(backprop)

    return kernel


def _numpy_losses(attrs: Mapping[str, Any]) -> Callable[[Any, Any], tuple[Any, Any]]:
    """Returns the function of logits and labels that computes both results; half precision gives float32."""
    t = attrs["T"]
    wide = np.dtype(np.float32) if t in HALF else t.numpy
    softmax = with_library(_softmax(np, attrs), _softmax, attrs, [wide] * 3)

    def find(x: Any, at: Any) -> tuple[Any, Any]:
        x = np.ascontiguousarray(x)
        backprop, log_sums, greatest = softmax(x)
        chosen = np.arange(0, x.size, x.shape[1]) + at
        loss = log_sums[:, 0] - (x.take(chosen).astype(wide, copy=False) - greatest[:, 0])
        backprop.reshape(-1)[chosen] -= 1
        return loss, backprop

    return find


def _portable_losses(xp: Any, attrs: Mapping[str, Any]) -> Callable[[Any, Any], tuple[Any, Any]]:
    """Returns what `_numpy_losses` does, by functions of the standard."""
    t = attrs["T"]
    softmax, widen = _softmax(xp, attrs), converter(xp, float32 if t in HALF else t)

    def find(x: Any, at: Any) -> tuple[Any, Any]:
        backprop, log_sums, greatest = softmax(x)
        classes = xp.arange(x.shape[1], dtype=at.dtype, device=x.device)
        is_label = classes[None, :] == at[:, None]
        chosen = xp.sum(xp.where(is_label, widen(x), 0.0), axis=1)
        return log_sums[:, 0] - (chosen - greatest[:, 0]), xp.where(is_label, backprop - 1, backprop)

    return find


def _sparse_shape(c: Inference) -> Sequence[Shape]:
    rows, classes = with_rank(c.shapes[0], 2)
    (labels,) = with_rank(c.shapes[1], 1)
    rows = merge_dim(rows, labels)
    return [(rows,), (rows, classes)]


def _sparse_grad(b: Any, n: Any, dloss: Any, g: Any) -> list[Any]:
    by_logits = b.Mul(b.ExpandDims(dloss, -1), n.backprop)
    return [b.AddV2(by_logits, _centred(b, b.Softmax(n.features), g)) if n.reaches("backprop") else by_logits, None]


def _sparse_jvp(b: Any, n: Any, dx: Any, dlabels: Any) -> list[Any]:
    return [b.Sum(b.Mul(dx, n.backprop), [-1]), _centred(b, b.Softmax(n.features), dx)]


def _sparse_oracle(x: np.ndarray, at: np.ndarray, **attrs: Any) -> tuple[np.ndarray, np.ndarray]:
    labels = np.zeros(x.shape, np.float64)
    for i, k in enumerate(at):
        labels[i, k] = 1
    return _dense_oracle(x, labels)


def _sparse_cases(rng: np.random.Generator, dtype: DType) -> list[Any]:
    return [
        case(draw(rng, dtype, (rows, classes)), rng.integers(0, classes, rows).astype(index.numpy))
        for rows, classes in ((2, 3), (4, 1), (0, 2))
        for index in (int32, int64)
    ]


op(
    "SparseSoftmaxCrossEntropyWithLogits",
    "features: T, labels: Tlabels",
    "loss: T, backprop: T",
    {"T": FLOATING, "Tlabels": type_attr(INDEX, int64)},
    shape=_sparse_shape,
    kernel=_sparse,
    xp=True,
    grad=_sparse_grad,
    jvp=_sparse_jvp,
    batch=folding(0, 1),
    facts=Facts(cost=flops_per_input(20), rounds_once=True),
    oracle=_sparse_oracle,
    sample=_sparse_cases,
    doc="-log(Softmax(features)) of each row's label, and its gradient by the features.",
)
