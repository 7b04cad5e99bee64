"""Activation functions of neural networks and their derivatives: Relu and variants, Softplus, Softsign, Softmax.

Source: TensorFlow's ops of the same names. Half precision is computed in float32.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from headrace.dtypes import FLOATING, REAL, DType, float32
from headrace.errors import InvalidArgumentError
from headrace.ir.infer import Inference
from headrace.ir.opdef import SYMMETRIC, Facts, case, flops_per_element, flops_per_input, op, type_attr
from headrace.opkit.batch_rules import in_step
from headrace.opkit.elementwise import alike, composed, computed_in, each, keeping, require_same_shape, widened
from headrace.opkit.namespaces import number
from headrace.opkit.shape_rules import same_as
from headrace.opkit.testing.samples import draw, unary
from headrace.shapes import Shape, with_rank_at_least

# Selu's constants: with them activations keep mean 0 and variance 1 ("Self-Normalizing Neural Networks", 2017).
_SCALE = 1.0507009873554804934193349852946
_SCALE_ALPHA = _SCALE * 1.6732632423543772848170429916717


def _relu(xp: Any, attrs: Mapping[str, Any]) -> Any:
    zero, maximum = number(xp, 0, attrs["T"]), xp.maximum
    return lambda x: maximum(x, zero)


def _relu6(xp: Any, attrs: Mapping[str, Any]) -> Any:
    zero, six = number(xp, 0, attrs["T"]), number(xp, 6, attrs["T"])
    return lambda x: xp.minimum(xp.maximum(x, zero), six)


def _leaky(xp: Any, attrs: Mapping[str, Any]) -> Any:
    alpha = float(np.float32(attrs["alpha"]))
    return widened(lambda x: xp.where(x > 0, x, x * alpha), attrs["T"], xp)


def _softplus(xp: Any, attrs: Mapping[str, Any]) -> Any:
    zero = number(xp, 0, computed_in(attrs["T"]))
    return widened(lambda x: xp.logaddexp(x, zero), attrs["T"], xp)


def _leaky_oracle(x: float, alpha: float = 0.2) -> float:
    return x if x > 0 else x * float(np.float32(alpha))


def _leaky_grad_oracle(g: float, x: float, alpha: float = 0.2) -> float:
    return g if x > 0 else g * float(np.float32(alpha))


def _with_alpha(sample: Any) -> Any:
    """Cases of `sample`, every second one with another `alpha`."""

    def drawn(rng: np.random.Generator, dtype: DType) -> list[Any]:
        return [case(*c.inputs, **({"alpha": 1.5} if i % 2 else {})) for i, c in enumerate(sample(rng, dtype))]

    return drawn


# the columns of the tables below
_jvp: Any
_formula: Any
_grad: Any
_oracle: Any
_sample: Any

_LEAKY = {"alpha": 0.2, "T": type_attr(FLOATING, float32)}

# fmt: off
for _type, _attrs, _kernel, _oracle, _sample, _flops, _grad, _doc in (
    ("Relu", {"T": REAL}, _relu, lambda x: max(x, 0), unary(), 1,
     lambda b, n, dy: [b.ReluGrad(dy, n.activations)], "max(x, 0)."),
    ("Relu6", {"T": REAL}, _relu6, lambda x: min(max(x, 0), 6), unary(-3, 9), 2,
     lambda b, n, dy: [b.Relu6Grad(dy, n.activations)], "min(max(x, 0), 6)."),
    ("LeakyRelu", _LEAKY, _leaky, _leaky_oracle, _with_alpha(unary()), 2,
     lambda b, n, dy: [b.LeakyReluGrad(dy, n.features, alpha=n.attrs["alpha"])], "x, or alpha * x where x < 0."),
    ("Elu", {"T": FLOATING}, composed(lambda xp, x: xp.where(x < 0, xp.expm1(x), x)),
     lambda x: math.expm1(x) if x < 0 else x, unary(), 10,
     lambda b, n, dy: [b.EluGrad(dy, n.activations)], "x, or exp(x) - 1 where x < 0."),
    ("Selu", {"T": FLOATING}, composed(lambda xp, x: xp.where(x < 0, xp.expm1(x) * _SCALE_ALPHA, x * _SCALE)),
     lambda x: math.expm1(x) * _SCALE_ALPHA if x < 0 else x * _SCALE, unary(), 10,
     lambda b, n, dy: [b.SeluGrad(dy, n.activations)], "Elu, scaled so that mean 0 and variance 1 are preserved."),
    ("Softplus", {"T": FLOATING}, _softplus,
     lambda x: math.log1p(math.exp(x)), unary(), 16,
     lambda b, n, dy: [b.SoftplusGrad(dy, n.features)], "log(1 + exp(x))."),
    ("Softsign", {"T": FLOATING}, composed(lambda xp, x: x / (xp.abs(x) + 1)),
     lambda x: x / (abs(x) + 1), unary(), 3,
     lambda b, n, dy: [b.SoftsignGrad(dy, n.features)], "x / (1 + |x|)."),
):
    op(
        _type,
        "features: T",
        "activations: T",
        _attrs,
        shape=same_as(0),
        kernel=_kernel,
        xp=True,
        grad=_grad,
        jvp=SYMMETRIC,
        facts=Facts(cost=flops_per_element(_flops), total=()),
        oracle=each(_oracle),
        sample=_sample,
        doc=_doc,
    )
# fmt: on


# *** Their derivatives ***


def _checked(type: str, formula: Any) -> Any:
    """The kernel factory of `formula(xp, attrs)(gradients, x)`, with a check for equal shapes."""

    def factory(xp: Any, attrs: Mapping[str, Any]) -> Any:
        compute = widened(formula(xp, attrs), attrs["T"], xp)

        def kernel(g: Any, x: Any) -> Any:
            if g.shape != x.shape:
                require_same_shape(g, x, type)
            return compute(g, x)

        return kernel

    return factory


def _relu_grad(xp: Any, attrs: Mapping[str, Any]) -> Any:
    keep = keeping(xp, computed_in(attrs["T"]))
    return lambda g, x: keep(x > 0, g)


def _relu6_grad(xp: Any, attrs: Mapping[str, Any]) -> Any:
    keep = keeping(xp, computed_in(attrs["T"]))
    return lambda g, x: keep((x > 0) & (x < 6), g)


def _leaky_grad(xp: Any, attrs: Mapping[str, Any]) -> Any:
    alpha = float(np.float32(attrs["alpha"]))
    return lambda g, x: xp.where(x > 0, g, g * alpha)


def _elu_grad(xp: Any, attrs: Mapping[str, Any]) -> Any:
    return lambda g, y: xp.where(y < 0, g * (y + 1), g)


def _selu_grad(xp: Any, attrs: Mapping[str, Any]) -> Any:
    scale_alpha = float(attrs["T"].numpy.type(_SCALE_ALPHA))  # rounded as in `outputs`, so its gradient ends at 0
    return lambda g, y: xp.where(y < 0, g * (y + scale_alpha), g * _SCALE)


def _softplus_grad(xp: Any, attrs: Mapping[str, Any]) -> Any:
    return lambda g, x: g / (xp.exp(-x) + 1)


def _softsign_grad(xp: Any, attrs: Mapping[str, Any]) -> Any:
    return lambda g, x: g / xp.square(xp.abs(x) + 1)


def _where_negative(b: Any, x: Any, value: Any) -> Any:
    return b.SelectV2(b.Less(x, b.ZerosLike(x)), value, b.ZerosLike(x))


def _softplus_grad2(b: Any, n: Any, g: Any) -> list[Any]:
    return [
        lambda: b.SoftplusGrad(g, n.features),
        lambda: b.SigmoidGrad(b.Sigmoid(n.features), b.Mul(g, n.gradients)),
    ]


def _softsign_grad2(b: Any, n: Any, g: Any) -> list[Any]:
    def by_features() -> Any:
        inner = b.RealDiv(b.Sign(n.features), b.AddV2(b.Abs(n.features), 1))
        return b.Mul(b.Mul(inner, -2), b.SoftsignGrad(b.Mul(g, n.gradients), n.features))

    return [lambda: b.SoftsignGrad(g, n.features), by_features]


_HALF_LINE = "The gradient of the argument of {}, from the gradient of its result."
_PAIR_SHAPES = ((), (3,), (2, 3), (0, 2))


def _pairs(low: float, high: float) -> Any:
    def sample(rng: np.random.Generator, dtype: DType) -> list[Any]:
        return [case(draw(rng, dtype, s), draw(rng, dtype, s, low, high)) for s in _PAIR_SHAPES]

    return sample


# fmt: off
for _type, _second, _attrs, _formula, _oracle, _sample, _grad in (
    ("ReluGrad", "features", {"T": REAL}, _relu_grad, lambda g, x: g if x > 0 else 0, _pairs(-3, 3),
     lambda b, n, g: [lambda: b.ReluGrad(g, n.features), None]),
    ("Relu6Grad", "features", {"T": REAL}, _relu6_grad, lambda g, x: g if 0 < x < 6 else 0, _pairs(-3, 9),
     lambda b, n, g: [lambda: b.Relu6Grad(g, n.features), None]),
    ("LeakyReluGrad", "features", _LEAKY, _leaky_grad, _leaky_grad_oracle, _with_alpha(_pairs(-3, 3)),
     lambda b, n, g: [lambda: b.LeakyReluGrad(g, n.features, alpha=n.attrs["alpha"]), None]),
    ("EluGrad", "outputs", {"T": FLOATING}, _elu_grad, lambda g, y: g * (y + 1) if y < 0 else g, _pairs(-1, 3),
     lambda b, n, g: [lambda: b.EluGrad(g, n.inputs[1]),
                      lambda: _where_negative(b, n.inputs[1], b.Mul(g, n.gradients))]),
    ("SeluGrad", "outputs", {"T": FLOATING}, _selu_grad,
     lambda g, y: g * (y + _SCALE_ALPHA) if y < 0 else g * _SCALE, _pairs(-1.7, 3),
     lambda b, n, g: [lambda: b.SeluGrad(g, n.inputs[1]),
                      lambda: _where_negative(b, n.inputs[1], b.Mul(g, n.gradients))]),
    ("SoftplusGrad", "features", {"T": FLOATING}, _softplus_grad,
     lambda g, x: g / (1 + math.exp(-x)), _pairs(-3, 3), _softplus_grad2),
    ("SoftsignGrad", "features", {"T": FLOATING}, _softsign_grad,
     lambda g, x: g / (1 + abs(x)) ** 2, _pairs(-3, 3), _softsign_grad2),
):
    op(
        _type,
        f"gradients: T, {_second}: T",
        "backprops: T",
        _attrs,
        shape=alike,
        kernel=_checked(_type, _formula),
        xp=True,
        grad=_grad,
        jvp=SYMMETRIC,
        facts=Facts(cost=flops_per_element(4), total=()),
        oracle=each(_oracle),
        sample=_sample,
        doc=_HALF_LINE.format(_type.removesuffix("Grad")),
    )
# fmt: on


# *** Softmax ***


def _rows_of(x: Any) -> None:
    if x.ndim < 1:
        raise InvalidArgumentError("logits must have >= 1 dimension, got []")


def _shifted(xp: Any, x: Any) -> Any:
    """Subtracts the largest element of each row of `x`, so that exp does not overflow."""
    return x - xp.max(x, axis=-1, keepdims=True) if x.shape[-1] else x


def _softmax(xp: Any, x: Any) -> Any:
    _rows_of(x)
    e = xp.exp(_shifted(xp, x))
    return e / xp.sum(e, axis=-1, keepdims=True)


def _log_softmax(xp: Any, x: Any) -> Any:
    _rows_of(x)
    s = _shifted(xp, x)
    return s - xp.log(xp.sum(xp.exp(s), axis=-1, keepdims=True))


def _rows(c: Inference) -> Sequence[Shape]:
    return [with_rank_at_least(c.shapes[0], 1)]


def _row_sums(b: Any, x: Any) -> Any:
    return b.Sum(x, [-1], keep_dims=True)


def _softmax_grad(b: Any, n: Any, dy: Any) -> list[Any]:
    y = n.softmax
    return [b.Mul(b.Sub(dy, _row_sums(b, b.Mul(dy, y))), y)]


def _log_softmax_grad(b: Any, n: Any, dy: Any) -> list[Any]:
    return [b.Sub(dy, b.Mul(_row_sums(b, dy), b.Exp(n.logsoftmax)))]


def _softmax_oracle(x: np.ndarray) -> np.ndarray:
    e = [[math.exp(v) for v in row] for row in x.astype(float).reshape(-1, x.shape[-1]).tolist()] if x.size else []
    return np.array([[v / math.fsum(row) for v in row] for row in e]).reshape(x.shape).astype(x.dtype)


def _log_softmax_oracle(x: np.ndarray) -> np.ndarray:
    rows = x.astype(float).reshape(-1, x.shape[-1]).tolist() if x.size else []
    sums = [math.log(math.fsum(map(math.exp, row))) for row in rows]
    out = [[v - s for v in row] for row, s in zip(rows, sums, strict=True)]
    return np.array(out).reshape(x.shape).astype(x.dtype)


for _type, _result, _formula, _grad, _jvp, _oracle, _doc in (
    ("Softmax", "softmax", _softmax, _softmax_grad, SYMMETRIC, _softmax_oracle, "exp(x) / sum(exp(x)) over each row."),
    ("LogSoftmax", "logsoftmax", _log_softmax, _log_softmax_grad, None, _log_softmax_oracle, "log(Softmax(x))."),
):
    op(
        _type,
        "logits: T",
        f"{_result}: T",
        {"T": FLOATING},
        shape=_rows,
        kernel=composed(_formula),
        xp=True,
        grad=_grad,
        jvp=_jvp,
        batch=in_step,
        facts=Facts(cost=flops_per_input(12), total=(), rounds_once=True),
        oracle=_oracle,
        sample=unary(shapes=((3,), (2, 3), (2, 1, 4), (0, 2), (2, 0))),
        doc=_doc,
    )
