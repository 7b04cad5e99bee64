"""Rules of optimizers that PyTorch applies in place, in few calls.

The reference is the formula of the same name in `ops.training.optimizers`, from which a result differs by rounding.
Half precision has no function here, because PyTorch rounds once where TensorFlow rounds at each operation.

A rule is a function of the attributes of the operation and of its scalar arguments, which are floats where the host can
read them, and tensors elsewhere. It returns the function that writes, or None if PyTorch has none for these arguments.

Source: TensorFlow's ops `ResourceApply*`.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias

import torch

from headrace.devices.torch.registering import WIDE, Tensor
from headrace.dtypes import float32

Write: TypeAlias = Callable[..., object]  # (gradient, *tensors)
Rule: TypeAlias = Callable[..., Write | None]  # (attributes, *numbers)

_rules: Final[dict[str, Rule]] = {}


def find(rule: str, attrs: Mapping[str, Any], numbers: Sequence[Any]) -> Write | None:
    """Returns the function of a rule, see `device_arrays.ArrayMemory.update`."""
    make = _rules.get(rule)
    write = make(attrs, *numbers) if make is not None and attrs["T"] in WIDE else None
    return None if write is None else functools.partial(_in_one_order, write)


def _in_one_order(write: Write, grad: Tensor, *tensors: Tensor) -> None:
    """Calls `write` with a gradient whose elements have the order of the tensors.

    The order does not matter to a rule. PyTorch copies a gradient in another order than that of C, unless it is flat.
    """
    if grad.stride() != tensors[0].stride():  # it has gaps or repeats elements
        grad = torch.empty_like(tensors[0]).copy_(grad)
    if grad.is_contiguous():
        write(grad, *tensors)
    else:
        write(*[x.as_strided((x.numel(),), (1,)) for x in (grad, *tensors)])


def _rule(name: str) -> Callable[[Rule], Rule]:
    def register(rule: Rule) -> Rule:
        _rules[name] = rule
        return rule

    return register


def _is_rate(rate: Any, attrs: Mapping[str, Any]) -> bool:
    """Whether PyTorch's fused functions take a learning rate.

    They read one that is a tensor as float32.
    """
    return isinstance(rate, float) or attrs["T"] == float32


# *** Descent ***


def _descent(rate: Any, momentum: float, nesterov: bool, grad: Tensor, var: Tensor, *accum: Tensor) -> None:
    torch._fused_sgd_(
        [var],
        [grad],
        [*accum],
        weight_decay=0.0,
        momentum=momentum,
        lr=rate,
        dampening=0.0,
        nesterov=nesterov,
        maximize=False,
        is_first_step=False,
    )


@_rule("GradientDescent")
def _gradient_descent(attrs: Mapping[str, Any], alpha: Any) -> Write | None:
    return functools.partial(_descent, alpha, 0.0, False) if _is_rate(alpha, attrs) else None


@_rule("Momentum")
def _momentum(attrs: Mapping[str, Any], lr: Any, momentum: Any) -> Write | None:
    suits = _is_rate(lr, attrs)
    return functools.partial(_descent, lr, float(momentum), attrs["use_nesterov"]) if suits else None


# *** Divided steps ***


@_rule("Adagrad")
def _adagrad(attrs: Mapping[str, Any], lr: Any, epsilon: Any = 0.0) -> Write | None:
    if not isinstance(lr, float):
        return None
    adds, least = attrs["update_slots"], float(epsilon)

    def write(grad: Tensor, var: Tensor, accum: Tensor) -> None:
        if adds:
            accum.addcmul_(grad, grad)
        var.addcdiv_(grad, accum.sqrt().add_(least), value=-lr)

    return write


_rules["AdagradV2"] = _adagrad


@_rule("RMSProp")
def _rms_prop(attrs: Mapping[str, Any], lr: Any, rho: Any, momentum: Any, epsilon: Any) -> Write | None:
    if not isinstance(lr, float):
        return None
    decay, push, least = float(rho), float(momentum), float(epsilon)

    def write(grad: Tensor, var: Tensor, ms: Tensor, mom: Tensor) -> None:
        ms.lerp_(grad.square(), 1 - decay)
        mom.mul_(push).addcdiv_(grad, ms.add(least).sqrt_(), value=lr)
        var.sub_(mom)

    return write


@_rule("Adam")
def _adam(
    attrs: Mapping[str, Any], beta1_power: Any, beta2_power: Any, lr: Any, beta1: Any, beta2: Any, epsilon: Any
) -> Write | None:
    first, second, least = float(beta1), float(beta2), float(epsilon)
    if attrs.get("use_nesterov") or max(first, second) >= 1:
        return None
    rate = lr * (1 - beta2_power) ** 0.5 / (1 - beta1_power)
    if not _is_rate(rate, attrs):
        return None

    def write(grad: Tensor, var: Tensor, m: Tensor, v: Tensor, *greatest: Tensor) -> None:
        torch._fused_adam_(
            [var],
            [grad],
            [m],
            [v],
            [*greatest],
            [_last_step(var.device)],
            lr=rate,
            beta1=first,
            beta2=second,
            weight_decay=0.0,
            eps=least,
            amsgrad=bool(greatest),
            maximize=False,
        )

    return write


_rules["AdamWithAmsgrad"] = _adam


@functools.cache
def _last_step(place: torch.device) -> Tensor:
    """The number of a step for which PyTorch corrects no averages.

    It divides averages by `1 - beta ** step`, because they start at zero. TensorFlow's rate has that correction.
    """
    return torch.tensor(math.inf, device=place)
