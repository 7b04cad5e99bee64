"""Special functions: Bessel functions, integrals, polynomials, and Euler's beta function."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headrace import public_names
from headrace.api import arrays, reductions, scopes
from headrace.api.math import lgamma, unary
from headrace.ir.tensor_type import Tensor

bessel_i0 = unary(
    "bessel_i0", "BesselI0", "The modified Bessel function I0", "floats", "tf.math.bessel_i0", "bessel_i0"
)
bessel_i0e = unary(
    "bessel_i0e", "BesselI0e", "exp(-|x|) I0(x)", "floats", "tf.math.bessel_i0e", "bessel_i0e", sparse=True
)
bessel_i1 = unary(
    "bessel_i1", "BesselI1", "The modified Bessel function I1", "floats", "tf.math.bessel_i1", "bessel_i1"
)
bessel_i1e = unary(
    "bessel_i1e", "BesselI1e", "exp(-|x|) I1(x)", "floats", "tf.math.bessel_i1e", "bessel_i1e", sparse=True
)
bessel_j0 = unary("bessel_j0", "BesselJ0", "The Bessel function J0", "floats", "tf.math.special.bessel_j0", "bessel_j0")
bessel_j1 = unary("bessel_j1", "BesselJ1", "The Bessel function J1", "floats", "tf.math.special.bessel_j1", "bessel_j1")
bessel_k0 = unary(
    "bessel_k0", "BesselK0", "The modified Bessel function K0", "floats", "tf.math.special.bessel_k0", "bessel_k0"
)
bessel_k0e = unary("bessel_k0e", "BesselK0e", "exp(x) K0(x)", "floats", "tf.math.special.bessel_k0e", "bessel_k0e")
bessel_k1 = unary(
    "bessel_k1", "BesselK1", "The modified Bessel function K1", "floats", "tf.math.special.bessel_k1", "bessel_k1"
)
bessel_k1e = unary("bessel_k1e", "BesselK1e", "exp(x) K1(x)", "floats", "tf.math.special.bessel_k1e", "bessel_k1e")
bessel_y0 = unary("bessel_y0", "BesselY0", "The Bessel function Y0", "floats", "tf.math.special.bessel_y0", "bessel_y0")
bessel_y1 = unary("bessel_y1", "BesselY1", "The Bessel function Y1", "floats", "tf.math.special.bessel_y1", "bessel_y1")
dawsn = unary("dawsn", "Dawsn", "Dawson's integral", "floats", "tf.math.special.dawsn", "dawsn")
expint = unary("expint", "Expint", "The exponential integral", "floats", "tf.math.special.expint", "expint")
fresnel_cos = unary(
    "fresnel_cos", "FresnelCos", "Fresnel's cosine integral", "floats", "tf.math.special.fresnel_cos", "fresnel_cos"
)
fresnel_sin = unary(
    "fresnel_sin", "FresnelSin", "Fresnel's sine integral", "floats", "tf.math.special.fresnel_sin", "fresnel_sin"
)
spence = unary("spence", "Spence", "Spence's integral", "floats", "tf.math.special.spence", "spence")


def polyval(coeffs: list[Any], x: Any, name: str | None = None) -> Tensor:
    """A polynomial of `x`, element by element, by Horner's rule.

    Args:
      coeffs: a list of its coefficients, of the highest power first: tensors or numbers.
      x: of the same dtype.
      name: name of the scope; "polyval" if None.

    Raises:
      ValueError: `coeffs` is no list.

    Source: TensorFlow's `tf.math.polyval`.

    Example:
      >>> import headrace as hr
      >>> hr.special.polyval([1.0, 0.0, -1.0], 3.0)
      <EagerTensor shape=[] dtype=float32: np.float32(8.0)>
    """
    if not isinstance(coeffs, list):
        raise ValueError(f"Argument coeffs must be list type, got {coeffs!r}")
    with scopes.name_scope(name, "polyval", [*coeffs, x]):
        b = scopes.builder(*coeffs, x)
        x = b.tensor(x, None, "x")
        if not coeffs:
            return arrays.zeros_like(x)
        total, *rest = [b.tensor(c, x.dtype.base, f"coeff_{i}") for i, c in enumerate(coeffs)]
        for c in rest:
            total = b.make("AddV2", (c, b.make("Mul", (total, x), {}, "mul")), {}, "add")
        return total


def lbeta(x: Any, name: str | None = None) -> Tensor:
    """The logarithm of the beta function of several arguments, which stand in the last axis.

    Args:
      x: floats, of rank 1 or more.
      name: name of the scope; "lbeta" if None.

    Source: TensorFlow's `tf.math.lbeta`.

    Example:
      >>> import headrace as hr
      >>> hr.special.lbeta([1.0, 1.0])
      <EagerTensor shape=[] dtype=float32: np.float32(0.0)>
    """
    with scopes.name_scope(name, "lbeta", [x]):
        b = scopes.builder(x)
        x = b.tensor(x, None, "x")
        logs = reductions.reduce_sum(lgamma(x), [-1])
        return b.make("Sub", (logs, lgamma(reductions.reduce_sum(x, [-1]))), {}, "sub")


# fmt: off
__all__ = [
    "bessel_i0", "bessel_i0e", "bessel_i1", "bessel_i1e", "bessel_j0", "bessel_j1", "bessel_k0", "bessel_k0e",
    "bessel_k1", "bessel_k1e", "bessel_y0", "bessel_y1", "dawsn", "expint", "fresnel_cos", "fresnel_sin", "lbeta",
    "polyval", "spence",
]
# fmt: on

if not TYPE_CHECKING:
    __getattr__, __dir__ = public_names.of(__name__, __all__)
