"""Ops that find elements by rank or value, and scans: TopK, ArgMax, Cumsum, Where, Unique.

Of equal elements the first one ranks first. On a CPU, rows with NaN are left to the kernels for numpy, which compare
them as TensorFlow does. On a GPU a NaN ranks above all numbers.

Source: TensorFlow's ops of the same names.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch

from headrace.devices.torch.registering import (
    FLOATS,
    NUMBERS,
    REAL,
    VALUES,
    Factory,
    Kernel,
    Tensor,
    Unsuited,
    axis_of,
    for_torch,
    has_nan,
    type_of,
    whole,
)
from headrace.dtypes import FLOATING, bool_
from headrace.opkit.elementwise import HALF

# *** TopK ***


def _few(x: Tensor, k: int) -> tuple[Tensor, Tensor | None]:
    """The greatest elements of rows, more than `k`, and their order.

    The order is None if some of them are equal: `torch.topk` is faster than a sort of whole rows, but has no order of
    equal elements.
    """
    values, order = x.topk(k + 1)
    return values, order if bool((values[..., 1:] < values[..., :-1]).all()) else None


def _top(x: Tensor, k: int, index: torch.dtype) -> tuple[Tensor, Tensor]:
    if not x.ndim or not 0 <= k <= x.shape[-1]:
        raise Unsuited
    n = x.shape[-1]
    if k == 1 and n:
        values, order = x.max(-1, keepdim=True)  # of equal elements the first
    else:
        values, order = _few(x, k) if x.is_cpu and 8 * k < n else (x, None)
        if order is None:
            values, order = x.sort(dim=-1, descending=True, stable=True)
        values, order = values[..., :k], order[..., :k]
    if has_nan(values[..., :1]):  # NaN is sorted first
        raise Unsuited
    return values.contiguous(), order.to(index)


@for_torch("TopK", {"T": REAL})
def _top_k(xp: Any, attrs: Mapping[str, Any]) -> Kernel:
    return lambda x: _top(x, attrs["k"], torch.int32)


@for_torch("TopKV2", {"T": REAL})
def _top_k_v2(xp: Any, attrs: Mapping[str, Any]) -> Kernel:
    index = type_of(attrs["index_type"])
    return lambda x, k: _top(x, whole(k), index)


# *** ArgMax, ArgMin ***


def _arg(function: Any, worst: float) -> Factory:
    """The factory of ArgMax or ArgMin; NaN counts as `worst`."""

    def factory(xp: Any, attrs: Mapping[str, Any]) -> Kernel:
        t, to = attrs["T"], type_of(attrs["output_type"])

        def kernel(x: Tensor, dimension: Any) -> Tensor:
            axis = axis_of(dimension, x.ndim)
            if not x.shape[axis]:
                raise Unsuited
            if t in FLOATING:
                x = x.nan_to_num(nan=worst, posinf=math.inf, neginf=-math.inf)
            elif t is bool_:
                x = x.to(torch.uint8)
            out: Tensor = function(x, axis).to(to)
            return out

        return kernel

    return factory


for_torch("ArgMax", {"T": REAL | {bool_}})(_arg(torch.argmax, -math.inf))
for_torch("ArgMin", {"T": REAL | {bool_}})(_arg(torch.argmin, math.inf))


# *** Scans ***


def _scan(function: Any, first: float) -> Factory:
    """The factory of a scan whose neutral element is `first`."""

    def factory(xp: Any, attrs: Mapping[str, Any]) -> Kernel:
        exclusive, reverse, t = attrs["exclusive"], attrs["reverse"], type_of(attrs["T"])
        wide = torch.float32 if attrs["T"] in HALF else t

        def kernel(x: Tensor, axis: Any) -> Tensor:
            a = axis_of(axis, x.ndim)
            if not x.numel():
                return x
            if reverse:
                x = x.flip(a)
            out = function(x.to(wide), a)
            if exclusive:
                start = torch.full_like(out.narrow(a, 0, 1), first)
                out = torch.cat([start, out.narrow(a, 0, x.shape[a] - 1)], a)
            out = out.to(t)
            return out.flip(a) if reverse else out

        return kernel

    return factory


for_torch("Cumsum", {"T": NUMBERS})(_scan(lambda x, axis: torch.cumsum(x, axis, dtype=x.dtype), 0))
for_torch("Cumprod", {"T": NUMBERS})(_scan(lambda x, axis: torch.cumprod(x, axis, dtype=x.dtype), 1))
for_torch("CumulativeLogsumexp", {"T": FLOATS})(_scan(torch.logcumsumexp, -math.inf))


# *** Where, Unique ***


@for_torch("Where", {"T": VALUES})
def _where(xp: Any, attrs: Mapping[str, Any]) -> Kernel:
    def kernel(x: Tensor) -> Tensor:
        if not x.ndim:
            raise Unsuited
        return x.nonzero()

    return kernel


def _unique(with_counts: bool) -> Factory:
    def factory(xp: Any, attrs: Mapping[str, Any]) -> Kernel:
        index = type_of(attrs["out_idx"])

        def kernel(x: Tensor, axis: Any = None) -> tuple[Tensor, ...]:
            if x.ndim != 1 or (axis is not None and axis.shape[0]):
                raise Unsuited
            n = len(x)
            values, which, counts = torch.unique(x, return_inverse=True, return_counts=True)
            places = torch.arange(n, device=x.device)
            first = places.new_full((len(values),), n).scatter_reduce_(0, which, places, "amin")
            order = first.argsort()
            rank = torch.empty_like(order)
            rank[order] = torch.arange(len(values), device=x.device)
            out = x[first[order]], rank[which].to(index)
            return (*out, counts[order].to(index)) if with_counts else out

        return kernel

    return factory


for _suffix in ("", "V2"):
    for_torch(f"Unique{_suffix}", {"T": REAL | {bool_}})(_unique(with_counts=False))
    for_torch(f"UniqueWithCounts{_suffix}", {"T": REAL | {bool_}})(_unique(with_counts=True))
