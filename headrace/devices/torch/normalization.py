"""Normalisation, softmax and cross entropies, biases, L2Loss.

Source: TensorFlow's ops of the same names. Half precision is computed in float32, by PyTorch itself where it does so.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch

from headrace import dtypes
from headrace.devices.torch.registering import (
    FLOATS,
    NUMBERS,
    Factory,
    Kernel,
    Tensor,
    Unsuited,
    for_torch,
    same_shape,
    type_of,
    widened,
)
from headrace.opkit.elementwise import HALF

aten = torch.ops.aten

_SINGLE = frozenset({dtypes.float16, dtypes.bfloat16, dtypes.float32})
_T: Mapping[str, frozenset[Any]] = {"T": FLOATS}


# *** FusedBatchNorm ***


def _channels(x: Tensor, layout: str, *vectors: Tensor) -> Tensor:
    """`x` as a view with the channels second.

    Raises:
      Unsuited: it has no elements, or a vector does not have an element for each channel.
    """
    if x.ndim not in (4, 5):
        raise Unsuited
    if layout[1] != "C":
        x = x.permute(0, x.ndim - 1, *range(1, x.ndim - 1))
    if not x.numel() or any(v.ndim != 1 or len(v) != x.shape[1] for v in vectors):
        raise Unsuited
    return x


def _laid_out(y: Tensor, layout: str) -> Tensor:
    return y if layout[1] == "C" else y.permute(0, *range(2, y.ndim), 1)


def _norm(version: int) -> Factory:
    def factory(xp: Any, attrs: Mapping[str, Any]) -> Kernel:
        layout, training = attrs["data_format"], attrs["is_training"]
        epsilon, factor = attrs["epsilon"], attrs["exponential_avg_factor"]
        u = type_of(attrs.get("U", attrs["T"]))

        def kernel(x: Tensor, scale: Tensor, offset: Tensor, mean: Tensor, variance: Tensor) -> tuple[Any, ...]:
            given = [scale, offset] if training and factor == 1 else [scale, offset, mean, variance]
            images = _channels(x, layout, *given)
            if mean.ndim != 1 or variance.ndim != 1:
                raise Unsuited
            scale, offset = scale.float(), offset.float()
            if not training:
                m, v = mean.float(), variance.float()
                y = aten.native_batch_norm(images, scale, offset, m, v, False, 0.0, epsilon)[0]
                batch = saved = (m, v)
            else:
                n = images.numel() // images.shape[1]
                if n == 1:  # PyTorch's variance of the population is not finite
                    raise Unsuited
                m, v = torch.zeros_like(scale), torch.zeros_like(scale)
                y = aten.native_batch_norm(images, scale, offset, m, v, True, 1.0, epsilon)[0]
                batch, saved = (m, v), (m, v * ((n - 1) / n))
                if factor != 1:
                    batch = (torch.lerp(mean.float(), m, factor), torch.lerp(variance.float(), v, factor))
            out = (_laid_out(y, layout), *(s.to(u) for s in (*batch, *saved)))
            return (*out, torch.zeros((), dtype=u, device=x.device)) if version == 3 else out

        return kernel

    return factory


def _norm_grad(xp: Any, attrs: Mapping[str, Any]) -> Kernel:
    layout, training, epsilon = attrs["data_format"], attrs["is_training"], attrs["epsilon"]
    u = type_of(attrs.get("U", attrs["T"]))

    def kernel(
        dy: Tensor, x: Tensor, scale: Tensor, mean: Tensor, variance: Tensor, reserved: Any = None
    ) -> tuple[Any, ...]:
        same_shape(dy, x)
        images, g = _channels(x, layout, scale, mean, variance), _channels(dy, layout)
        mean, variance = mean.float(), variance.float()
        inverse = torch.rsqrt(variance + epsilon)
        dx, by_scale, by_offset = aten.native_batch_norm_backward(
            g, images, scale.float(), mean, variance, mean, inverse, training, epsilon, [True, True, True]
        )
        nothing = torch.zeros(0, dtype=u, device=x.device)
        return _laid_out(dx, layout), by_scale.to(u), by_offset.to(u), nothing, nothing

    return kernel


for _suffix, _version in (("", 1), ("V2", 2), ("V3", 3)):
    for_torch(f"FusedBatchNorm{_suffix}", {"T": _SINGLE})(_norm(_version))
    for_torch(f"FusedBatchNormGrad{_suffix}", {"T": _SINGLE})(_norm_grad)


# *** LRN ***


def _near(x: Tensor, radius: int) -> Tensor:
    """Sums over the channels at a distance of at most `radius` from each."""
    channels = x.shape[-1]
    if radius >= channels - 1:
        return x.sum(-1, keepdim=True).expand(x.shape)
    if channels <= 32 * (radius + 1):  # a product is faster than many passes over the array
        ones = torch.ones((channels, channels), dtype=x.dtype, device=x.device)
        return torch.matmul(x, ones.triu_(-radius).tril_(radius))
    out = x.clone()
    for k in range(1, radius + 1):
        out[..., k:] += x[..., :-k]
        out[..., :-k] += x[..., k:]
    return out


def _raised(norm: Tensor, beta: float) -> Tensor:
    """`norm` to the power of -`beta`, in place of `norm`.

    Roots are ten times as fast as other powers.
    """
    if beta == 0.5:
        return norm.rsqrt_()
    if beta == 0.75:
        norm = norm.rsqrt_()
        return norm.mul_(norm.sqrt())
    return norm.pow_(-beta)


def _lrn_attrs(attrs: Mapping[str, Any], *tensors: Tensor) -> tuple[int, float, float, float]:
    radius = attrs["depth_radius"]
    if not 0 <= radius < 2**31 or any(x.ndim != 4 or x.shape != tensors[0].shape for x in tensors):
        raise Unsuited
    return radius, attrs["bias"], attrs["alpha"], attrs["beta"]


@for_torch("LRN", {"T": _SINGLE})
def _lrn(xp: Any, attrs: Mapping[str, Any]) -> Kernel:
    def normalised(x: Tensor) -> Tensor:
        radius, bias, alpha, beta = _lrn_attrs(attrs, x)
        return _raised(_near(x * x, radius) * alpha + bias, beta).mul_(x)

    return widened(normalised, attrs["T"])


@for_torch("LRNGrad", {"T": _SINGLE})
def _lrn_grad(xp: Any, attrs: Mapping[str, Any]) -> Kernel:
    def gradient(g: Tensor, x: Tensor, y: Tensor) -> Tensor:
        radius, bias, alpha, beta = _lrn_attrs(attrs, g, x, y)
        norm = _near(x * x, radius) * alpha + bias
        back = x * _near(g * y / norm, radius) * (2 * alpha * beta)
        return _raised(norm, beta).mul_(g).sub_(back)

    return widened(gradient, attrs["T"])


# *** Softmax ***


def _of_rows(function: Any) -> Factory:
    def factory(xp: Any, attrs: Mapping[str, Any]) -> Kernel:
        def kernel(x: Tensor) -> Tensor:
            if not x.ndim:
                raise Unsuited
            out: Tensor = function(x, -1)
            return out

        return kernel

    return factory


for_torch("Softmax", _T)(_of_rows(torch.softmax))
for_torch("LogSoftmax", _T)(_of_rows(torch.log_softmax))


@for_torch("SoftmaxCrossEntropyWithLogits", _T)
def _dense(xp: Any, attrs: Mapping[str, Any]) -> Kernel:
    back, is_half = type_of(attrs["T"]), attrs["T"] in HALF

    def kernel(x: Tensor, z: Tensor) -> tuple[Tensor, Tensor]:
        if x.shape != z.shape:
            x, z = torch.broadcast_tensors(x, z)
        if x.ndim != 2:
            raise Unsuited
        if is_half:
            x, z = x.float(), z.float()
        logs = torch.log_softmax(x, 1)
        return (z * logs).sum(1).neg_().to(back), logs.exp_().sub_(z).to(back)

    return kernel


@for_torch("SparseSoftmaxCrossEntropyWithLogits", _T)
def _sparse(xp: Any, attrs: Mapping[str, Any]) -> Kernel:
    back = type_of(attrs["T"])

    def kernel(x: Tensor, at: Tensor) -> tuple[Tensor, Tensor]:
        if x.ndim != 2 or at.ndim != 1 or len(at) != len(x) or not x.shape[1]:
            raise Unsuited
        logs = torch.log_softmax(x, 1, dtype=torch.float32 if attrs["T"] in HALF else None)
        column = at.long()[:, None]
        is_wrong = None
        if not x.is_cpu:  # the row of a wrong label is NaN, as TensorFlow's on GPUs
            is_wrong = (column < 0) | (column >= x.shape[1])
            column = column.clamp(0, x.shape[1] - 1)
        loss = logs.gather(1, column).neg_()  # on a CPU it raises if a label is wrong
        backprop = logs.exp_().scatter_(1, column, -1.0, reduce="add")
        if is_wrong is not None:
            loss, backprop = loss.masked_fill_(is_wrong, math.nan), backprop.masked_fill_(is_wrong, math.nan)
        return loss[:, 0].to(back), backprop.to(back)

    return kernel


# *** Biases, L2Loss ***


def _is_second(attrs: Mapping[str, Any]) -> bool:
    return attrs.get("data_format") == "NCHW"


@for_torch(("BiasAdd", "BiasAddV1"), {"T": NUMBERS})
def _bias_add(xp: Any, attrs: Mapping[str, Any]) -> Kernel:
    second = _is_second(attrs)

    def kernel(value: Tensor, bias: Tensor) -> Tensor:
        if value.ndim < 2 or bias.ndim != 1 or bias.shape[0] != value.shape[1 if second else -1]:
            raise Unsuited
        return value + (bias.reshape(-1, *[1] * (value.ndim - 2)) if second else bias)

    return kernel


@for_torch("BiasAddGrad", {"T": NUMBERS})
def _bias_add_grad(xp: Any, attrs: Mapping[str, Any]) -> Kernel:
    second, t = _is_second(attrs), type_of(attrs["T"])

    def kernel(dy: Tensor) -> Tensor:
        if dy.ndim < 2:
            raise Unsuited
        axes = (0, *range(2, dy.ndim)) if second else tuple(range(dy.ndim - 1))
        return dy.sum(axes, dtype=t)

    return kernel


@for_torch("L2Loss", _T)
def _l2_loss(xp: Any, attrs: Mapping[str, Any]) -> Kernel:
    return widened(lambda x: x.square().sum().mul_(0.5), attrs["T"])
