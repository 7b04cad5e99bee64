"""The formulas of optimizers: gradient descent, momentum, the Adagrad and Adam families, RMSProp, Ftrl, sign descent.

Source: TensorFlow's ops `Apply*`, `ResourceApply*`, `SparseApply*` and `ResourceSparseApply*`; the papers are named at
the formulas. Everything is computed in the variable's dtype, half precision too, and rounded at each step: that is what
TensorFlow does, and averages kept in half precision depend on it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np

from headrace.dtypes import COMPLEX, FLOATING, float16, float32, float64
from headrace.errors import InvalidArgumentError
from headrace.ir.opdef import op
from headrace.ops.training.applying import DENSE, SPARSE, Formula, records

Attrs: TypeAlias = Mapping[str, Any]

_ANY: Final = FLOATING | COMPLEX
_WIDE: Final = frozenset({float32, float64})


class Rule(NamedTuple):
    """What an optimizer does to a variable, to be computed of tensors as well as of arrays.

    Attributes:
      formula: `f(xp, attrs, *values, *arguments) -> new values`; `xp` has numpy's functions, for what the rest are.
      slots: what the values are called: the variable, and the slots with it.
      args: what the arguments are called; one is `grad`.
    """

    formula: Formula
    slots: tuple[str, ...]
    args: tuple[str, ...]


RULES: Final[dict[str, Rule]] = {}  # by what the types of the ops end with

_HANDLE_ONLY: Final = (DENSE[1], SPARSE[1])


def _update(*args: Any, **options: Any) -> Callable[[Formula], Formula]:
    """Registers the ops of the formula that it decorates; the arguments are those of `applying.records`."""

    def register(formula: Formula) -> Formula:
        name, slots, given = args[:3]
        RULES[name] = Rule(formula, tuple(slots.split()), tuple(given.replace("delta", "grad").split()))
        for fields in records(formula, *args, **options):
            op(**fields, depth=2)
        return formula

    return register


def _square(x: Any) -> Any:
    return x * x


def _mixed(old: Any, new: Any, decay: Any) -> Any:
    """The running average that forgets by `decay`."""
    return old * decay + new * (1 - decay)


def _moved(old: Any, new: Any, decay: Any) -> Any:
    """The same, as a step towards the new value: what it was exactly stays exactly."""
    return old + (new - old) * (1 - decay)


def _is_known(x: Any) -> bool:
    """Whether `x` is a number, not a tensor of a graph that stands for one."""
    return isinstance(x, (np.generic, np.ndarray))


def _shrunk(xp: Any, x: Any, l1: Any, by: Any) -> Any:
    """`x`, nearer to zero by `l1 * by` but not beyond it, if `l1` is positive."""
    if _is_known(l1) and not l1 > 0:
        return x
    return xp.sign(x) * xp.maximum(xp.abs(x) - l1 * by, 0)


def _require(good: Callable[[Any], Any], what: str, kind: str, value: Any) -> None:
    if _is_known(value) and not good(value):
        raise InvalidArgumentError(f"{what} is not a {kind} scalar: {value}")


# *** descent ***


@_update("GradientDescent", "var", "alpha delta", _ANY, "Subtracts `alpha * delta` from the variable's value.", DENSE)
def _gradient_descent(xp: Any, attrs: Attrs, var: Any, alpha: Any, delta: Any) -> tuple[Any, ...]:
    return (var - alpha * delta,)


@_update(
    "ProximalGradientDescent",
    "var",
    "alpha l1 l2 delta",
    _WIDE,
    "A step of gradient descent, then shrinks by `l1` and scales by `l2` (FOBOS; Duchi and Singer 2009).",
)
def _proximal_gradient_descent(
    xp: Any, attrs: Attrs, var: Any, alpha: Any, l1: Any, l2: Any, delta: Any
) -> tuple[Any, ...]:
    return (_shrunk(xp, var - alpha * delta, l1, alpha) / (1 + l2 * alpha),)


@_update(
    "Momentum",
    "var accum",
    "lr grad momentum",
    _ANY,
    "Adds the gradient to the decayed `accum` and follows that; with `use_nesterov`, from where that will lead.",
    flag=("use_nesterov", False),
)
def _momentum(xp: Any, attrs: Attrs, var: Any, accum: Any, lr: Any, grad: Any, momentum: Any) -> tuple[Any, ...]:
    accum = accum * momentum + grad
    if attrs["use_nesterov"]:
        return var - (grad * lr + accum * momentum * lr), accum
    return var - accum * lr, accum


@_update(
    "KerasMomentum",
    "var accum",
    "lr grad momentum",
    _ANY,
    "Momentum whose `accum` holds steps, with the learning rate in them.",
    _HANDLE_ONLY,
    flag=("use_nesterov", False),
)
def _keras_momentum(xp: Any, attrs: Attrs, var: Any, accum: Any, lr: Any, grad: Any, momentum: Any) -> tuple[Any, ...]:
    accum = accum * momentum - grad * lr
    if attrs["use_nesterov"]:
        return var + (accum * momentum - grad * lr), accum
    return var + accum, accum


def _agreement(xp: Any, m: Any, grad: Any, beta: Any) -> tuple[Any, Any]:
    """The running average of gradients, and whether the gradient agrees with it in sign: 1, or -1 if not."""
    m = _mixed(m, grad, beta)
    return m, xp.sign(grad) * xp.sign(m)


@_update(
    "AddSign",
    "var m",
    "lr alpha sign_decay beta grad",
    FLOATING,
    "Steps that are longer where the gradient agrees with its running average (Bello and others 2017).",
    DENSE,
)
def _add_sign(
    xp: Any, attrs: Attrs, var: Any, m: Any, lr: Any, alpha: Any, sign_decay: Any, beta: Any, grad: Any
) -> tuple[Any, ...]:
    m, agreement = _agreement(xp, m, grad, beta)
    return var - lr * (alpha + sign_decay * agreement) * grad, m


@_update(
    "PowerSign",
    "var m",
    "lr logbase sign_decay beta grad",
    FLOATING,
    "Steps multiplied by a power that says whether the gradient agrees with its running average (Bello and others).",
    DENSE,
)
def _power_sign(
    xp: Any, attrs: Attrs, var: Any, m: Any, lr: Any, logbase: Any, sign_decay: Any, beta: Any, grad: Any
) -> tuple[Any, ...]:
    m, agreement = _agreement(xp, m, grad, beta)
    return var - lr * xp.exp(logbase * sign_decay * agreement) * grad, m


# *** Adagrad ***


@_update(
    "Adagrad",
    "var accum",
    "lr grad",
    _ANY,
    "Steps divided by the root of the sum of the squares of all gradients (Duchi, Hazan and Singer 2011).",
    flag=("update_slots", True),
)
def _adagrad(xp: Any, attrs: Attrs, var: Any, accum: Any, lr: Any, grad: Any) -> tuple[Any, ...]:
    if attrs["update_slots"]:
        accum = accum + _square(grad)
    return var - grad * lr * (1 / xp.sqrt(accum)), accum


@_update(
    "AdagradV2",
    "var accum",
    "lr epsilon grad",
    _ANY,
    "Adagrad, with `epsilon` added to the root.",
    flag=("update_slots", True),
)
def _adagrad_v2(xp: Any, attrs: Attrs, var: Any, accum: Any, lr: Any, epsilon: Any, grad: Any) -> tuple[Any, ...]:
    if attrs["update_slots"]:
        accum = accum + _square(grad)
    return var - grad * lr / (xp.sqrt(accum) + epsilon), accum


@_update(
    "AdagradDA",
    "var gradient_accumulator gradient_squared_accumulator",
    "grad lr l1 l2 global_step",
    _WIDE,
    "Adagrad by dual averaging: the variable follows from the sums of gradients and of their squares alone.",
)
def _adagrad_da(
    xp: Any, attrs: Attrs, var: Any, total: Any, squares: Any, grad: Any, lr: Any, l1: Any, l2: Any, global_step: Any
) -> tuple[Any, ...]:
    steps = global_step.astype(total.dtype) if _is_known(global_step) else xp.cast(global_step, total.dtype)
    total, squares = total + grad, squares + _square(grad)
    direction = _shrunk(xp, total, l1, steps)
    return -lr * direction / (l2 * steps * lr + xp.sqrt(squares)), total, squares


@_update(
    "ProximalAdagrad",
    "var accum",
    "lr l1 l2 grad",
    _WIDE,
    "A step of Adagrad, then shrinks by `l1` and scales by `l2`.",
)
def _proximal_adagrad(
    xp: Any, attrs: Attrs, var: Any, accum: Any, lr: Any, l1: Any, l2: Any, grad: Any
) -> tuple[Any, ...]:
    _require(lambda x: x > 0, "lr", "positive", lr)
    _require(lambda x: x >= 0, "l1 regularization strength", "non-negative", l1)
    _require(lambda x: x >= 0, "l2 regularization strength", "non-negative", l2)
    accum = accum + _square(grad)
    rate = lr / xp.sqrt(accum)
    return _shrunk(xp, var - grad * rate, l1, rate) / (1 + l2 * rate), accum


@_update(
    "Adadelta",
    "var accum accum_update",
    "lr rho epsilon grad",
    _ANY,
    "Steps of the size of past ones, by running averages of squares of gradients and of steps (Zeiler 2012).",
)
def _adadelta(
    xp: Any, attrs: Attrs, var: Any, accum: Any, accum_update: Any, lr: Any, rho: Any, epsilon: Any, grad: Any
) -> tuple[Any, ...]:
    accum = _mixed(accum, _square(grad), rho)
    step = xp.sqrt(accum_update + epsilon) * (1 / xp.sqrt(accum + epsilon)) * grad
    return var - step * lr, accum, _mixed(accum_update, _square(step), rho)


# *** Adam ***


def _adam_moments(m: Any, v: Any, beta1: Any, beta2: Any, grad: Any) -> tuple[Any, Any]:
    return _moved(m, grad, beta1), _moved(v, _square(grad), beta2)


def _adam_rate(xp: Any, lr: Any, beta1_power: Any, beta2_power: Any) -> Any:
    """The learning rate that makes up for averages which started at zero."""
    return lr * xp.sqrt(1 - beta2_power) / (1 - beta1_power)


@_update(
    "Adam",
    "var m v",
    "beta1_power beta2_power lr beta1 beta2 epsilon grad",
    _ANY,
    "Steps by running averages of gradients and of their squares (Kingma and Ba 2014).",
    DENSE,
    flag=("use_nesterov", False),
)
def _adam(
    xp: Any,
    attrs: Attrs,
    var: Any,
    m: Any,
    v: Any,
    beta1_power: Any,
    beta2_power: Any,
    lr: Any,
    beta1: Any,
    beta2: Any,
    epsilon: Any,
    grad: Any,
) -> tuple[Any, ...]:
    m, v = _adam_moments(m, v, beta1, beta2, grad)
    direction = grad * (1 - beta1) + beta1 * m if attrs["use_nesterov"] else m
    return var - direction * _adam_rate(xp, lr, beta1_power, beta2_power) / (xp.sqrt(v) + epsilon), m, v


@_update(
    "AdamWithAmsgrad",
    "var m v vhat",
    "beta1_power beta2_power lr beta1 beta2 epsilon grad",
    FLOATING,
    "Adam that divides by the largest average of squares so far (Reddi, Kale and Kumar 2018).",
    DENSE[1:],
)
def _amsgrad(
    xp: Any,
    attrs: Attrs,
    var: Any,
    m: Any,
    v: Any,
    vhat: Any,
    beta1_power: Any,
    beta2_power: Any,
    lr: Any,
    beta1: Any,
    beta2: Any,
    epsilon: Any,
    grad: Any,
) -> tuple[Any, ...]:
    m, v = _adam_moments(m, v, beta1, beta2, grad)
    vhat = xp.maximum(vhat, v)
    return var - m * _adam_rate(xp, lr, beta1_power, beta2_power) / (xp.sqrt(vhat) + epsilon), m, v, vhat


@_update(
    "AdaMax",
    "var m v",
    "beta1_power lr beta1 beta2 epsilon grad",
    {float16, float32, float64},
    "Adam that divides by the largest gradient of late, forgetting it by `beta2`.",
    DENSE,
)
def _adamax(
    xp: Any,
    attrs: Attrs,
    var: Any,
    m: Any,
    v: Any,
    beta1_power: Any,
    lr: Any,
    beta1: Any,
    beta2: Any,
    epsilon: Any,
    grad: Any,
) -> tuple[Any, ...]:
    m, v = _moved(m, grad, beta1), xp.maximum(beta2 * v, xp.abs(grad))
    return var - lr / (1 - beta1_power) * (m / (v + epsilon)), m, v


# *** RMSProp ***


@_update(
    "RMSProp",
    "var ms mom",
    "lr rho momentum epsilon grad",
    _ANY,
    "Momentum of gradients divided by the root of a running average of their squares (Tieleman and Hinton 2012).",
)
def _rms_prop(
    xp: Any, attrs: Attrs, var: Any, ms: Any, mom: Any, lr: Any, rho: Any, momentum: Any, epsilon: Any, grad: Any
) -> tuple[Any, ...]:
    ms = _moved(ms, _square(grad), rho)
    mom = mom * momentum + grad * lr / xp.sqrt(ms + epsilon)
    return var - mom, ms, mom


@_update(
    "CenteredRMSProp",
    "var mg ms mom",
    "lr rho momentum epsilon grad",
    _ANY,
    "RMSProp by the variance of the gradients: `mg`, their running average, squared is subtracted.",
)
def _centered_rms_prop(
    xp: Any,
    attrs: Attrs,
    var: Any,
    mg: Any,
    ms: Any,
    mom: Any,
    lr: Any,
    rho: Any,
    momentum: Any,
    epsilon: Any,
    grad: Any,
) -> tuple[Any, ...]:
    ms, mg = _moved(ms, _square(grad), rho), _moved(mg, grad, rho)
    mom = mom * momentum + grad * lr / xp.sqrt(ms - _square(mg) + epsilon)
    return var - mom, mg, ms, mom


# *** Ftrl ***


@_update(
    "FtrlV2",
    "var accum linear",
    "grad lr l1 l2 l2_shrinkage lr_power",
    FLOATING,
    "Follows the regularized leader (McMahan and others 2013); `l2_shrinkage` pulls at each step.",
    flag=("multiply_linear_by_lr", False),
)
def _ftrl_v2(
    xp: Any,
    attrs: Attrs,
    var: Any,
    accum: Any,
    linear: Any,
    grad: Any,
    lr: Any,
    l1: Any,
    l2: Any,
    l2_shrinkage: Any,
    lr_power: Any,
) -> tuple[Any, ...]:
    if "Tindices" in attrs:  # the ops on whole variables take anything
        by_rate = attrs["multiply_linear_by_lr"]
        _require(lambda x: x > 0 or (by_rate and x == 0), "lr", "non-negative" if by_rate else "positive", lr)
        _require(lambda x: x >= 0, "l1 regularization strength", "non-negative", l1)
        _require(lambda x: x >= 0, "l2 regularization strength", "non-negative", l2)
        _require(lambda x: x >= 0, "l2 shrinkage regularization strength", "non-negative", l2_shrinkage)
        _require(lambda x: x <= 0, "lr_power", "non-positive", lr_power)

    def strength(squares: Any) -> Any:
        return xp.sqrt(squares) if _is_known(lr_power) and lr_power == -0.5 else xp.power(squares, -lr_power)

    pull = grad + 2 * l2_shrinkage * var
    total = accum + _square(grad)
    gain = strength(total) - strength(accum)
    if attrs["multiply_linear_by_lr"]:
        linear = linear + (pull * lr - gain * var)
        bound, curvature = l1 * lr, strength(total) + 2 * l2 * lr
    else:
        linear = linear + (pull - gain / lr * var)
        bound, curvature = l1, strength(total) / lr + 2 * l2
    return (xp.minimum(xp.maximum(linear, -bound), bound) - linear) / curvature, total, linear


@_update(
    "Ftrl",
    "var accum linear",
    "grad lr l1 l2 lr_power",
    FLOATING,
    "Follows the regularized leader (McMahan and others 2013).",
    flag=("multiply_linear_by_lr", False),
)
def _ftrl(
    xp: Any, attrs: Attrs, var: Any, accum: Any, linear: Any, grad: Any, lr: Any, l1: Any, l2: Any, lr_power: Any
) -> Sequence[Any]:
    return _ftrl_v2(xp, attrs, var, accum, linear, grad, lr, l1, l2, xp.zeros_like(l2), lr_power)
