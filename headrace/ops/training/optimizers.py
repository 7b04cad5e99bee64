"""Optimizer formulas: gradient descent, momentum, Adagrad, Adam, RMSProp, Ftrl, sign descent.

Source: TensorFlow's ops `Apply*`, `ResourceApply*`, `SparseApply*` and `ResourceSparseApply*`; the formulas name their
papers. Everything is computed in the variable's dtype, half precision too, and rounded at each step: that is what
TensorFlow does, and averages kept in half precision depend on it.

A formula may change arrays that it created, but not its arguments: `step = a * b; step += c` needs one array where `a *
b + c` needs two, and memory traffic dominates the cost of a step. (For tensors and numbers, `+=` creates a new object.)
For the same reason `var - rate * x` is written as `x * -rate`, and then `+= var`, which gives the same bits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np

from headrace.dtypes import COMPLEX, FLOATING, float16, float32, float64
from headrace.errors import InvalidArgumentError
from headrace.ir.opdef import op
from headrace.opkit.namespaces import is_standard
from headrace.ops.training.applying import DENSE, SPARSE, Formula, records

Attrs: TypeAlias = Mapping[str, Any]

_ANY: Final = FLOATING | COMPLEX
_WIDE: Final = frozenset({float32, float64})


class Rule(NamedTuple):
    """Update rule of an optimizer, for tensors as well as for arrays.

    Attributes:
      formula: `f(xp, attrs, *values, *arguments) -> new values`; `xp` is a namespace of the array API standard, or has
        its functions for tensors.
      slots: names of the values: the variable and its slots.
      args: names of the arguments; one is `grad`.
    """

    formula: Formula
    slots: tuple[str, ...]
    args: tuple[str, ...]


RULES: Final[dict[str, Rule]] = {}  # by the suffix of the op types

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


def _minus(var: Any, step: Any, rate: Any) -> Any:
    """`var - step * rate`."""
    out = step * -rate
    out += var
    return out


def _mixed(old: Any, new: Any, decay: Any) -> Any:
    """The running average that forgets by `decay`."""
    out = old * decay
    out += new * (1 - decay)
    return out


def _moved(xp: Any, old: Any, new: Any, decay: Any) -> Any:
    """Moving average of `old` and `new`, as a step from `old` towards `new`.

    An element that equals the new one stays exactly equal. A library may have the step as one function.
    """
    if is_standard(xp) and hasattr(xp, "lerp"):
        return xp.lerp(old, new, 1 - decay)
    out = new - old
    out *= 1 - decay
    out += old
    return out


def _moved_to_square(xp: Any, old: Any, x: Any, decay: Any) -> Any:
    """The running average of squares: `_moved` to that of `x`."""
    if is_standard(xp):
        return _moved(xp, old, xp.square(x), decay)
    out = xp.square(x)
    out -= old
    out *= 1 - decay
    out += old
    return out


def _plus_square(xp: Any, old: Any, x: Any) -> Any:
    out = xp.square(x)
    out += old
    return out


def _is_known(x: Any) -> bool:
    """Whether `x` is a number in memory, and no tensor or device's array."""
    return isinstance(x, (np.generic, np.ndarray, float, int))


def _shrunk(xp: Any, x: Any, l1: Any, by: Any) -> Any:
    """`x`, nearer to zero by `l1 * by` but not beyond it, if `l1` is positive."""
    if _is_known(l1) and not l1 > 0:
        return x
    size = xp.abs(x) - l1 * by
    nearer = xp.sign(x) * xp.maximum(size, xp.zeros_like(size) if is_standard(xp) else 0)
    # without waiting for a device to know `l1`
    return xp.where(l1 > 0, nearer, x) if is_standard(xp) and not _is_known(l1) else nearer


def _require(xp: Any, good: Callable[[Any], Any], what: str, kind: str, value: Any) -> None:
    if (_is_known(value) or is_standard(xp)) and not good(value):
        raise InvalidArgumentError(f"{what} is not a {kind} scalar: {value if _is_known(value) else float(value)}")


# *** descent ***


@_update("GradientDescent", "var", "alpha delta", _ANY, "Subtracts `alpha * delta` from the variable's value.", DENSE)
def _gradient_descent(xp: Any, attrs: Attrs, var: Any, alpha: Any, delta: Any) -> tuple[Any, ...]:
    return (_minus(var, delta, alpha),)


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
    return (_shrunk(xp, _minus(var, delta, alpha), l1, alpha) / (1 + l2 * alpha),)


@_update(
    "Momentum",
    "var accum",
    "lr grad momentum",
    _ANY,
    "Adds the gradient to the decayed `accum` and follows that; with `use_nesterov`, from where that will lead.",
    flag=("use_nesterov", False),
)
def _momentum(xp: Any, attrs: Attrs, var: Any, accum: Any, lr: Any, grad: Any, momentum: Any) -> tuple[Any, ...]:
    accum = accum * momentum
    accum += grad
    if not attrs["use_nesterov"]:
        return _minus(var, accum, lr), accum
    step = accum * momentum
    step *= -lr
    step += grad * -lr
    step += var
    return step, accum


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
    push = grad * lr
    accum = accum * momentum
    accum -= push
    if not attrs["use_nesterov"]:
        return var + accum, accum
    step = accum * momentum
    step -= push
    step += var
    return step, accum


def _agreement(xp: Any, m: Any, grad: Any, beta: Any) -> tuple[Any, Any]:
    """Moving average of gradients, and 1 or -1 for whether the gradient has its sign."""
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


def _divided_step(xp: Any, var: Any, direction: Any, rate: Any, squares: Any, epsilon: Any) -> Any:
    """`var - direction * rate / (sqrt(squares) + epsilon)`."""
    root = xp.sqrt(squares)
    root += epsilon
    if isinstance(rate, float) and hasattr(xp, "addcdiv"):  # one function of the library
        return xp.addcdiv(var, direction, root, value=-rate)
    step = direction * -rate
    step /= root
    step += var
    return step


@_update(
    "Adagrad",
    "var accum",
    "lr grad",
    _ANY,
    "Steps divided by the root of the sum of the squares of all gradients (Duchi, Hazan and Singer 2011).",
    flag=("update_slots", True),
    is_arithmetic=True,
)
def _adagrad(xp: Any, attrs: Attrs, var: Any, accum: Any, lr: Any, grad: Any) -> tuple[Any, ...]:
    if attrs["update_slots"]:
        accum = _plus_square(xp, accum, grad)
    step = grad * -lr
    step *= 1 / xp.sqrt(accum)
    step += var
    return step, accum


@_update(
    "AdagradV2",
    "var accum",
    "lr epsilon grad",
    _ANY,
    "Adagrad, with `epsilon` added to the root.",
    flag=("update_slots", True),
    is_arithmetic=True,
)
def _adagrad_v2(xp: Any, attrs: Attrs, var: Any, accum: Any, lr: Any, epsilon: Any, grad: Any) -> tuple[Any, ...]:
    if attrs["update_slots"]:
        accum = _plus_square(xp, accum, grad)
    return _divided_step(xp, var, grad, lr, accum, epsilon), accum


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
    if is_standard(xp):
        steps = global_step if isinstance(global_step, int) else xp.astype(global_step, total.dtype)
    else:
        steps = global_step.astype(total.dtype) if _is_known(global_step) else xp.cast(global_step, total.dtype)
    total, squares = total + grad, _plus_square(xp, squares, grad)
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
    _require(xp, lambda x: x > 0, "lr", "positive", lr)
    _require(xp, lambda x: x >= 0, "l1 regularization strength", "non-negative", l1)
    _require(xp, lambda x: x >= 0, "l2 regularization strength", "non-negative", l2)
    accum = _plus_square(xp, accum, grad)
    rate = lr / xp.sqrt(accum)
    return _shrunk(xp, var - grad * rate, l1, rate) / (1 + l2 * rate), accum


@_update(
    "Adadelta",
    "var accum accum_update",
    "lr rho epsilon grad",
    _ANY,
    "Steps of the size of past ones, by running averages of squares of gradients and of steps (Zeiler 2012).",
    is_arithmetic=True,
)
def _adadelta(
    xp: Any, attrs: Attrs, var: Any, accum: Any, accum_update: Any, lr: Any, rho: Any, epsilon: Any, grad: Any
) -> tuple[Any, ...]:
    accum = _mixed(accum, xp.square(grad), rho)
    step = xp.sqrt(accum_update + epsilon)
    step *= 1 / xp.sqrt(accum + epsilon)
    step *= grad
    return _minus(var, step, lr), accum, _mixed(accum_update, xp.square(step), rho)


# *** Adam ***


def _adam_moments(xp: Any, m: Any, v: Any, beta1: Any, beta2: Any, grad: Any) -> tuple[Any, Any]:
    return _moved(xp, m, grad, beta1), _moved_to_square(xp, v, grad, beta2)


def _adam_rate(xp: Any, lr: Any, beta1_power: Any, beta2_power: Any) -> Any:
    """The learning rate that makes up for averages which started at zero."""
    root = (1 - beta2_power) ** 0.5 if isinstance(beta2_power, float) else xp.sqrt(1 - beta2_power)
    return lr * root / (1 - beta1_power)


@_update(
    "Adam",
    "var m v",
    "beta1_power beta2_power lr beta1 beta2 epsilon grad",
    _ANY,
    "Steps by running averages of gradients and of their squares (Kingma and Ba 2014).",
    DENSE,
    flag=("use_nesterov", False),
    is_arithmetic=True,
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
    m, v = _adam_moments(xp, m, v, beta1, beta2, grad)
    direction = grad * (1 - beta1) + beta1 * m if attrs["use_nesterov"] else m
    return _divided_step(xp, var, direction, _adam_rate(xp, lr, beta1_power, beta2_power), v, epsilon), m, v


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
    m, v = _adam_moments(xp, m, v, beta1, beta2, grad)
    vhat = xp.maximum(vhat, v)
    return _divided_step(xp, var, m, _adam_rate(xp, lr, beta1_power, beta2_power), vhat, epsilon), m, v, vhat


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
    m, v = _moved(xp, m, grad, beta1), xp.maximum(beta2 * v, xp.abs(grad))
    step = m / (v + epsilon)
    step *= -lr / (1 - beta1_power)
    step += var
    return step, m, v


# *** RMSProp ***


def _pushed(xp: Any, mom: Any, momentum: Any, grad: Any, lr: Any, squares: Any) -> Any:
    """`mom * momentum + grad * lr / sqrt(squares)`."""
    push = grad * lr
    push /= xp.sqrt(squares)
    out = mom * momentum
    out += push
    return out


@_update(
    "RMSProp",
    "var ms mom",
    "lr rho momentum epsilon grad",
    _ANY,
    "Momentum of gradients divided by the root of a running average of their squares (Tieleman and Hinton 2012).",
    is_arithmetic=True,
)
def _rms_prop(
    xp: Any, attrs: Attrs, var: Any, ms: Any, mom: Any, lr: Any, rho: Any, momentum: Any, epsilon: Any, grad: Any
) -> tuple[Any, ...]:
    ms = _moved_to_square(xp, ms, grad, rho)
    mom = _pushed(xp, mom, momentum, grad, lr, ms + epsilon)
    return var - mom, ms, mom


@_update(
    "CenteredRMSProp",
    "var mg ms mom",
    "lr rho momentum epsilon grad",
    _ANY,
    "RMSProp by the variance of the gradients: `mg`, their running average, squared is subtracted.",
    is_arithmetic=True,
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
    ms, mg = _moved_to_square(xp, ms, grad, rho), _moved(xp, mg, grad, rho)
    spread = ms - xp.square(mg)
    spread += epsilon
    mom = _pushed(xp, mom, momentum, grad, lr, spread)
    return var - mom, mg, ms, mom


# *** Ftrl ***


def _check_ftrl(xp: Any, attrs: Attrs, lr: Any, l1: Any, l2: Any, lr_power: Any) -> None:
    if "Tindices" not in attrs:  # the ops on whole variables take anything
        return
    by_rate = attrs["multiply_linear_by_lr"]
    _require(xp, lambda x: x > 0 or (by_rate and x == 0), "lr", "non-negative" if by_rate else "positive", lr)
    _require(xp, lambda x: x >= 0, "l1 regularization strength", "non-negative", l1)
    _require(xp, lambda x: x >= 0, "l2 regularization strength", "non-negative", l2)
    _require(xp, lambda x: x <= 0, "lr_power", "non-positive", lr_power)


def _followed(
    xp: Any,
    attrs: Attrs,
    var: Any,
    accum: Any,
    linear: Any,
    grad: Any,
    pull: Any,
    lr: Any,
    l1: Any,
    l2: Any,
    lr_power: Any,
) -> tuple[Any, ...]:
    """New values of the variable and slots of FTRL.

    `pull` is the gradient plus the terms of the L2 shrinkage.
    """

    def strength(squares: Any) -> Any:
        return xp.sqrt(squares) if _is_known(lr_power) and lr_power == -0.5 else xp.pow(squares, -lr_power)

    total = _plus_square(xp, accum, grad)
    curvature = strength(total)
    gain = curvature - strength(accum)
    if attrs["multiply_linear_by_lr"]:
        gain *= var
        gain -= pull * lr
        bound, ridge = l1 * lr, 2 * l2 * lr
    else:
        gain /= lr
        gain *= var
        gain -= pull
        curvature /= lr
        bound, ridge = l1, 2 * l2
    curvature += ridge
    linear = linear - gain
    out = xp.minimum(xp.maximum(linear, -bound), bound)
    out -= linear
    out /= curvature
    return out, total, linear


@_update(
    "FtrlV2",
    "var accum linear",
    "grad lr l1 l2 l2_shrinkage lr_power",
    FLOATING,
    "Follows the regularized leader (McMahan and others 2013); `l2_shrinkage` scales a penalty added to each gradient.",
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
    _check_ftrl(xp, attrs, lr, l1, l2, lr_power)
    if "Tindices" in attrs:
        _require(xp, lambda x: x >= 0, "l2 shrinkage regularization strength", "non-negative", l2_shrinkage)
    pull = 2 * l2_shrinkage * var
    pull += grad
    return _followed(xp, attrs, var, accum, linear, grad, pull, lr, l1, l2, lr_power)


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
    _check_ftrl(xp, attrs, lr, l1, l2, lr_power)
    return _followed(xp, attrs, var, accum, linear, grad, grad, lr, l1, l2, lr_power)
