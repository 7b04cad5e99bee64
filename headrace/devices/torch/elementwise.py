"""Elementwise functions that are one call of PyTorch in place of several.

These are activations, their derivatives and sums.

Source: TensorFlow's ops of the same names.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch.nn import functional

from headrace.devices.torch.registering import (
    FLOATS,
    INEXACT,
    NUMBERS,
    REAL,
    Factory,
    Kernel,
    Tensor,
    Unsuited,
    for_torch,
    same_shape,
    type_of,
    widened,
)
from headrace.dtypes import COMPLEX
from headrace.opkit.elementwise import HALF

aten = torch.ops.aten

# Selu's constants ("Self-Normalizing Neural Networks", 2017).
_SCALE = 1.0507009873554804934193349852946
_ALPHA = 1.6732632423543772848170429916717


def _one(function: Any, *args: Any) -> Factory:
    """The factory of `function(x, *args)`."""
    if not args:
        return lambda xp, attrs: function
    return lambda xp, attrs: lambda x: function(x, *args)


def _leaky(xp: Any, attrs: Mapping[str, Any]) -> Kernel:
    alpha = float(np.float32(attrs["alpha"]))
    return lambda x: functional.leaky_relu(x, alpha)


def _softplus(xp: Any, attrs: Mapping[str, Any]) -> Kernel:
    # Above 40 the result is `x` in every dtype.
    return lambda x: functional.softplus(x, threshold=40)


for _type, _allowed, _factory in (
    ("Sigmoid", INEXACT, _one(torch.sigmoid)),
    ("Relu", REAL, _one(torch.relu)),
    ("Relu6", REAL, _one(torch.clamp, 0, 6)),
    ("LeakyRelu", FLOATS, _leaky),
    ("Elu", FLOATS, _one(functional.elu)),
    ("Selu", FLOATS, _one(functional.selu)),
    ("Softplus", FLOATS, _softplus),
    ("Softsign", FLOATS, lambda xp, attrs: widened(lambda x: x / x.abs().add_(1), attrs["T"])),
    ("Rsqrt", INEXACT, _one(torch.rsqrt)),
):
    for_torch(_type, {"T": _allowed})(_factory)


# *** Derivatives ***


def _pair(function: Any, is_widened: bool = True) -> Factory:
    """The factory of `function(attrs, x, y)` of two tensors with one shape.

    Args:
      function: the function.
      is_widened: whether half precision is computed in float32; else PyTorch rounds once.
    """

    def factory(xp: Any, attrs: Mapping[str, Any]) -> Kernel:
        call: Kernel = lambda x, y: function(attrs, x, y)
        compute = widened(call, attrs["T"]) if is_widened else call

        def kernel(x: Tensor, y: Tensor) -> Tensor:
            same_shape(x, y)
            out: Tensor = compute(x, y)
            return out

        return kernel

    return factory


def _kept(condition: Tensor, x: Tensor) -> Tensor:
    """`x` where `condition` is true, and 0 elsewhere."""
    return x.masked_fill(condition.logical_not_(), 0)


def _selu_grad(attrs: Mapping[str, Any], g: Tensor, y: Tensor) -> Tensor:
    # The constant is rounded as the results are, so that the gradient of the least one is 0.
    least = float(attrs["T"].numpy.type(_SCALE * _ALPHA))
    return torch.where(y < 0, g * (y + least), g * _SCALE)


def _leaky_grad(attrs: Mapping[str, Any], g: Tensor, x: Tensor) -> Tensor:
    out: Tensor = aten.leaky_relu_backward(g, x, float(np.float32(attrs["alpha"])), False)
    return out


for _type, _allowed, _function in (
    ("ReluGrad", REAL, lambda attrs, g, x: aten.threshold_backward(g, x, 0)),
    ("SigmoidGrad", FLOATS, lambda attrs, y, dy: aten.sigmoid_backward(dy, y)),
    ("TanhGrad", FLOATS, lambda attrs, y, dy: aten.tanh_backward(dy, y)),
):
    for_torch(_type, {"T": _allowed})(_pair(_function, is_widened=False))
for _type, _allowed, _function in (
    ("Relu6Grad", REAL, lambda attrs, g, x: _kept((x > 0) & (x < 6), g)),
    ("LeakyReluGrad", FLOATS, _leaky_grad),
    ("EluGrad", FLOATS, lambda attrs, g, y: aten.elu_backward(g, 1.0, 1.0, 1.0, True, y)),
    ("SeluGrad", FLOATS, _selu_grad),
    ("SoftplusGrad", FLOATS, lambda attrs, g, x: g * torch.sigmoid(x)),
    ("SoftsignGrad", FLOATS, lambda attrs, g, x: g / x.abs().add_(1).square_()),
    ("SigmoidGrad", COMPLEX, lambda attrs, y, dy: dy * y * (1 - y)),
    ("TanhGrad", COMPLEX, lambda attrs, y, dy: dy * (1 - y * y)),
    ("SqrtGrad", FLOATS, lambda attrs, y, dy: dy * 0.5 / y),
    ("RsqrtGrad", FLOATS, lambda attrs, y, dy: dy * (y * y * y) * -0.5),
):
    for_torch(_type, {"T": _allowed})(_pair(_function))


# *** Sums ***


@for_torch(("AddN", "AccumulateNV2"), {"T": NUMBERS})
def _add_n(xp: Any, attrs: Mapping[str, Any]) -> Kernel:
    if attrs["N"] == 1:
        return lambda x: x
    is_half, t = attrs["T"] in HALF, type_of(attrs["T"])

    def kernel(first: Tensor, second: Tensor, *rest: Tensor) -> Tensor:
        if any(x.shape != first.shape for x in (second, *rest)):
            raise Unsuited
        if is_half and rest:  # one rounding instead of one for each addition
            out = first.float().add_(second)
        else:
            out = first + second
        for x in rest:
            out.add_(x)
        return out.to(t)

    return kernel
