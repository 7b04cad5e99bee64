"""Special functions: Bessel functions and integrals, element by element."""

from __future__ import annotations

from headrace.build.math import unary

bessel_i0 = unary(
    "bessel_i0", "BesselI0", "The modified Bessel function I0", "floats", "tf.math.bessel_i0", "bessel_i0"
)
bessel_i0e = unary("bessel_i0e", "BesselI0e", "exp(-|x|) I0(x)", "floats", "tf.math.bessel_i0e", "bessel_i0e")
bessel_i1 = unary(
    "bessel_i1", "BesselI1", "The modified Bessel function I1", "floats", "tf.math.bessel_i1", "bessel_i1"
)
bessel_i1e = unary("bessel_i1e", "BesselI1e", "exp(-|x|) I1(x)", "floats", "tf.math.bessel_i1e", "bessel_i1e")
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
