"""Special functions: error functions, gamma functions, Bessel functions, and Expm1 and Log1p of complex numbers.

PyTorch has no incomplete beta function, no exponential integral and no Fresnel integrals. Half precision is computed in
float32.

Source: TensorFlow's ops of the same names, whose values at poles and for arguments out of range these have.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import special

from headrace.devices.torch.registering import FLOATS, WIDE, Factory, Tensor, for_torch, widened
from headrace.dtypes import COMPLEX


def _digamma(x: Tensor) -> Tensor:
    return special.digamma(x).masked_fill_((x <= 0) & (x == x.floor()), math.nan)


def _zeta(x: Tensor, q: Tensor) -> Tensor:
    found = special.zeta(x, q)
    pole = (q <= 0) & (q == q.floor()) & (x > 1)
    is_even = x.isinf() | (x % 2 == 0)  # terms of both signs, unless the power is even
    at_pole = torch.where(is_even, math.inf, math.nan).to(found.dtype)
    found = torch.where(found.isnan() & (x > 1) & (q > 1), 0, found)  # too small
    return torch.where(pole, at_pole, torch.where(x.isnan(), x, found))


def _polygamma(n: Tensor, x: Tensor) -> Tensor:
    sign = torch.where(n % 2 == 0, -1.0, 1.0).to(n.dtype)
    powers = sign * torch.lgamma(n + 1).exp() * _zeta(n + 1, x)
    whole = (n >= 0) & (n == n.floor())
    return torch.where(n == 0, _digamma(x), torch.where(whole, powers, math.nan))


def _igamma(a: Tensor, x: Tensor) -> Tensor:
    found = torch.where(a > 0, special.gammainc(a, x), math.nan)
    return torch.where(x == 0, x, torch.where(a.isposinf() & x.isposinf(), 0, found))


def _igammac(a: Tensor, x: Tensor) -> Tensor:
    found = torch.where(a > 0, special.gammaincc(a, x), math.nan)
    return torch.where(a.isposinf() & x.isposinf(), 0, found)


def _bessel(function: Callable[[Tensor], Tensor], limit: float | None = None) -> Callable[[Tensor], Tensor]:
    """A Bessel function.

    One of the second kind has its limit at zero for negative arguments.
    """
    if limit is None:
        return function
    return lambda x: function(x).masked_fill_(x < 0, limit)


def _widened(function: Callable[..., Tensor]) -> Factory:
    return lambda xp, attrs: widened(function, attrs["T"])


_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "Erf": special.erf,
    "Erfc": special.erfc,
    "Erfinv": special.erfinv,
    "Ndtri": special.ndtri,
    "Lgamma": special.gammaln,
    "Digamma": _digamma,
    "Igamma": _igamma,
    "Igammac": _igammac,
    "BesselI0": special.i0,
    "BesselI1": special.i1,
    "BesselI0e": special.i0e,
    "BesselI1e": special.i1e,
    "BesselJ0": special.bessel_j0,
    "BesselJ1": special.bessel_j1,
    "BesselY0": _bessel(special.bessel_y0, -math.inf),
    "BesselY1": _bessel(special.bessel_y1, -math.inf),
    "BesselK0": _bessel(special.modified_bessel_k0, math.inf),
    "BesselK1": _bessel(special.modified_bessel_k1, math.inf),
    "BesselK0e": _bessel(special.scaled_modified_bessel_k0, math.inf),
    "BesselK1e": _bessel(special.scaled_modified_bessel_k1, math.inf),
}
for _type, _function in _FUNCTIONS.items():
    for_torch(_type, {"T": FLOATS})(_widened(_function))
for_torch("Zeta", {"T": WIDE})(_widened(_zeta))
for_torch("Polygamma", {"T": WIDE})(_widened(_polygamma))
for_torch("Expm1", {"T": COMPLEX})(_widened(torch.expm1))
for_torch("Log1p", {"T": COMPLEX})(_widened(torch.log1p))
