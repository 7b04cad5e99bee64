"""TensorFlow 1's `tf.math`, for the ops that headrace has."""

from typing import TYPE_CHECKING

from headrace import public_names
from headrace.v1 import special as special
from headrace.v1.array_ops import invert_permutation as invert_permutation
from headrace.v1.check_ops import is_non_decreasing as is_non_decreasing
from headrace.v1.check_ops import is_strictly_increasing as is_strictly_increasing
from headrace.v1.math_ops import abs as abs
from headrace.v1.math_ops import accumulate_n as accumulate_n
from headrace.v1.math_ops import acos as acos
from headrace.v1.math_ops import acosh as acosh
from headrace.v1.math_ops import add as add
from headrace.v1.math_ops import add_n as add_n
from headrace.v1.math_ops import angle as angle
from headrace.v1.math_ops import approx_max_k as approx_max_k
from headrace.v1.math_ops import approx_min_k as approx_min_k
from headrace.v1.math_ops import argmax as argmax
from headrace.v1.math_ops import argmin as argmin
from headrace.v1.math_ops import asin as asin
from headrace.v1.math_ops import asinh as asinh
from headrace.v1.math_ops import atan as atan
from headrace.v1.math_ops import atan2 as atan2
from headrace.v1.math_ops import atanh as atanh
from headrace.v1.math_ops import bessel_i0 as bessel_i0
from headrace.v1.math_ops import bessel_i0e as bessel_i0e
from headrace.v1.math_ops import bessel_i1 as bessel_i1
from headrace.v1.math_ops import bessel_i1e as bessel_i1e
from headrace.v1.math_ops import betainc as betainc
from headrace.v1.math_ops import bincount as bincount
from headrace.v1.math_ops import ceil as ceil
from headrace.v1.math_ops import confusion_matrix as confusion_matrix
from headrace.v1.math_ops import conj as conj
from headrace.v1.math_ops import cos as cos
from headrace.v1.math_ops import cosh as cosh
from headrace.v1.math_ops import count_nonzero as count_nonzero
from headrace.v1.math_ops import cumprod as cumprod
from headrace.v1.math_ops import cumsum as cumsum
from headrace.v1.math_ops import cumulative_logsumexp as cumulative_logsumexp
from headrace.v1.math_ops import digamma as digamma
from headrace.v1.math_ops import divide as divide
from headrace.v1.math_ops import divide_no_nan as divide_no_nan
from headrace.v1.math_ops import equal as equal
from headrace.v1.math_ops import erf as erf
from headrace.v1.math_ops import erfc as erfc
from headrace.v1.math_ops import erfcinv as erfcinv
from headrace.v1.math_ops import erfinv as erfinv
from headrace.v1.math_ops import exp as exp
from headrace.v1.math_ops import expm1 as expm1
from headrace.v1.math_ops import floor as floor
from headrace.v1.math_ops import floordiv as floordiv
from headrace.v1.math_ops import floormod as floormod
from headrace.v1.math_ops import greater as greater
from headrace.v1.math_ops import greater_equal as greater_equal
from headrace.v1.math_ops import igamma as igamma
from headrace.v1.math_ops import igammac as igammac
from headrace.v1.math_ops import imag as imag
from headrace.v1.math_ops import is_finite as is_finite
from headrace.v1.math_ops import is_inf as is_inf
from headrace.v1.math_ops import is_nan as is_nan
from headrace.v1.math_ops import l2_normalize as l2_normalize
from headrace.v1.math_ops import lbeta as lbeta
from headrace.v1.math_ops import less as less
from headrace.v1.math_ops import less_equal as less_equal
from headrace.v1.math_ops import lgamma as lgamma
from headrace.v1.math_ops import log as log
from headrace.v1.math_ops import log1p as log1p
from headrace.v1.math_ops import log_sigmoid as log_sigmoid
from headrace.v1.math_ops import logical_and as logical_and
from headrace.v1.math_ops import logical_not as logical_not
from headrace.v1.math_ops import logical_or as logical_or
from headrace.v1.math_ops import logical_xor as logical_xor
from headrace.v1.math_ops import maximum as maximum
from headrace.v1.math_ops import minimum as minimum
from headrace.v1.math_ops import mod as mod
from headrace.v1.math_ops import multiply as multiply
from headrace.v1.math_ops import multiply_no_nan as multiply_no_nan
from headrace.v1.math_ops import ndtri as ndtri
from headrace.v1.math_ops import negative as negative
from headrace.v1.math_ops import nextafter as nextafter
from headrace.v1.math_ops import not_equal as not_equal
from headrace.v1.math_ops import polygamma as polygamma
from headrace.v1.math_ops import polyval as polyval
from headrace.v1.math_ops import pow as pow
from headrace.v1.math_ops import real as real
from headrace.v1.math_ops import reciprocal as reciprocal
from headrace.v1.math_ops import reciprocal_no_nan as reciprocal_no_nan
from headrace.v1.math_ops import reduce_all as reduce_all
from headrace.v1.math_ops import reduce_any as reduce_any
from headrace.v1.math_ops import reduce_euclidean_norm as reduce_euclidean_norm
from headrace.v1.math_ops import reduce_logsumexp as reduce_logsumexp
from headrace.v1.math_ops import reduce_max as reduce_max
from headrace.v1.math_ops import reduce_mean as reduce_mean
from headrace.v1.math_ops import reduce_min as reduce_min
from headrace.v1.math_ops import reduce_prod as reduce_prod
from headrace.v1.math_ops import reduce_std as reduce_std
from headrace.v1.math_ops import reduce_sum as reduce_sum
from headrace.v1.math_ops import reduce_variance as reduce_variance
from headrace.v1.math_ops import rint as rint
from headrace.v1.math_ops import round as round
from headrace.v1.math_ops import rsqrt as rsqrt
from headrace.v1.math_ops import scalar_mul as scalar_mul
from headrace.v1.math_ops import segment_max as segment_max
from headrace.v1.math_ops import segment_mean as segment_mean
from headrace.v1.math_ops import segment_min as segment_min
from headrace.v1.math_ops import segment_prod as segment_prod
from headrace.v1.math_ops import segment_sum as segment_sum
from headrace.v1.math_ops import sigmoid as sigmoid
from headrace.v1.math_ops import sign as sign
from headrace.v1.math_ops import sin as sin
from headrace.v1.math_ops import sinh as sinh
from headrace.v1.math_ops import sobol_sample as sobol_sample
from headrace.v1.math_ops import sqrt as sqrt
from headrace.v1.math_ops import square as square
from headrace.v1.math_ops import squared_difference as squared_difference
from headrace.v1.math_ops import subtract as subtract
from headrace.v1.math_ops import tan as tan
from headrace.v1.math_ops import tanh as tanh
from headrace.v1.math_ops import top_k as top_k
from headrace.v1.math_ops import truediv as truediv
from headrace.v1.math_ops import unsorted_segment_max as unsorted_segment_max
from headrace.v1.math_ops import unsorted_segment_mean as unsorted_segment_mean
from headrace.v1.math_ops import unsorted_segment_min as unsorted_segment_min
from headrace.v1.math_ops import unsorted_segment_prod as unsorted_segment_prod
from headrace.v1.math_ops import unsorted_segment_sqrt_n as unsorted_segment_sqrt_n
from headrace.v1.math_ops import unsorted_segment_sum as unsorted_segment_sum
from headrace.v1.math_ops import xdivy as xdivy
from headrace.v1.math_ops import xlog1py as xlog1py
from headrace.v1.math_ops import xlogy as xlogy
from headrace.v1.math_ops import zeta as zeta
from headrace.v1.nn import in_top_k as in_top_k
from headrace.v1.nn import log_softmax as log_softmax
from headrace.v1.nn import softmax as softmax
from headrace.v1.nn import softplus as softplus
from headrace.v1.nn import softsign as softsign
from headrace.v1.nn import zero_fraction as zero_fraction

# fmt: off
__all__ = [
    "abs", "accumulate_n", "acos", "acosh", "add", "add_n", "angle", "approx_max_k", "approx_min_k", "argmax", "argmin",
    "asin", "asinh", "atan", "atan2", "atanh", "bessel_i0", "bessel_i0e", "bessel_i1", "bessel_i1e", "betainc",
    "bincount", "ceil", "confusion_matrix", "conj", "cos", "cosh", "count_nonzero", "cumprod", "cumsum",
    "cumulative_logsumexp", "digamma", "divide", "divide_no_nan", "equal", "erf", "erfc", "erfcinv", "erfinv", "exp",
    "expm1", "floor", "floordiv", "floormod", "greater", "greater_equal", "igamma", "igammac", "imag", "in_top_k",
    "invert_permutation", "is_finite", "is_inf", "is_nan", "is_non_decreasing", "is_strictly_increasing",
    "l2_normalize", "lbeta", "less", "less_equal", "lgamma", "log", "log1p", "log_sigmoid", "log_softmax",
    "logical_and", "logical_not", "logical_or", "logical_xor", "maximum", "minimum", "mod", "multiply",
    "multiply_no_nan", "ndtri", "negative", "nextafter", "not_equal", "polygamma", "polyval", "pow", "real",
    "reciprocal", "reciprocal_no_nan", "reduce_all", "reduce_any", "reduce_euclidean_norm", "reduce_logsumexp",
    "reduce_max", "reduce_mean", "reduce_min", "reduce_prod", "reduce_std", "reduce_sum", "reduce_variance", "rint",
    "round", "rsqrt", "scalar_mul", "segment_max", "segment_mean", "segment_min", "segment_prod", "segment_sum",
    "sigmoid", "sign", "sin", "sinh", "sobol_sample", "softmax", "softplus", "softsign", "special", "sqrt", "square",
    "squared_difference", "subtract", "tan", "tanh", "top_k", "truediv", "unsorted_segment_max",
    "unsorted_segment_mean", "unsorted_segment_min", "unsorted_segment_prod", "unsorted_segment_sqrt_n",
    "unsorted_segment_sum", "xdivy", "xlog1py", "xlogy", "zero_fraction", "zeta",
]
# fmt: on

if not TYPE_CHECKING:
    __getattr__, __dir__ = public_names.of(__name__, __all__)
