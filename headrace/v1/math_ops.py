"""Arithmetic, reductions and matrices, with TensorFlow 1's names and arguments.

Most are headrace's own functions in the default graph; `named` gives others the arguments of TensorFlow 1. This module
defines the functions that exist only in TensorFlow 1, or behave differently there.
"""

from __future__ import annotations

from typing import Any

from headrace import dtypes
from headrace.api import counting, linalg, math, reductions, scopes, sorting, special
from headrace.ir.indexed_slices import IndexedSlices
from headrace.v1.arguments import named
from headrace.v1.graph import in_default_graph

# *** element by element ***

negative = in_default_graph(math.negative)
sign = in_default_graph(math.sign)
square = in_default_graph(math.square)
sqrt = in_default_graph(math.sqrt)
rsqrt = in_default_graph(math.rsqrt)
exp = in_default_graph(math.exp)
expm1 = in_default_graph(math.expm1)
log = in_default_graph(math.log)
log1p = in_default_graph(math.log1p)
sin = in_default_graph(math.sin)
cos = in_default_graph(math.cos)
tan = in_default_graph(math.tan)
asin = in_default_graph(math.asin)
acos = in_default_graph(math.acos)
atan = in_default_graph(math.atan)
sinh = in_default_graph(math.sinh)
cosh = in_default_graph(math.cosh)
tanh = in_default_graph(math.tanh)
asinh = in_default_graph(math.asinh)
acosh = in_default_graph(math.acosh)
atanh = in_default_graph(math.atanh)
sigmoid = in_default_graph(math.sigmoid)
erf = in_default_graph(math.erf)
erfc = in_default_graph(math.erfc)
erfinv = in_default_graph(math.erfinv)
ndtri = in_default_graph(math.ndtri)
lgamma = in_default_graph(math.lgamma)
digamma = in_default_graph(math.digamma)
ceil = in_default_graph(math.ceil)
floor = in_default_graph(math.floor)
rint = in_default_graph(math.rint)
reciprocal = in_default_graph(math.reciprocal)
is_nan = in_default_graph(math.is_nan)
is_inf = in_default_graph(math.is_inf)
is_finite = in_default_graph(math.is_finite)
logical_not = in_default_graph(math.logical_not)
invert = in_default_graph(math.invert)
bessel_i0 = in_default_graph(special.bessel_i0)
bessel_i0e = in_default_graph(special.bessel_i0e)
bessel_i1 = in_default_graph(special.bessel_i1)
bessel_i1e = in_default_graph(special.bessel_i1e)
add = in_default_graph(math.add)
subtract = in_default_graph(math.subtract)
multiply = in_default_graph(math.multiply)
floordiv = in_default_graph(math.floordiv)
floormod = in_default_graph(math.floormod)
mod = in_default_graph(math.mod)
truncatediv = in_default_graph(math.truncatediv)
truncatemod = in_default_graph(math.truncatemod)
divide_no_nan = in_default_graph(math.divide_no_nan)
multiply_no_nan = in_default_graph(math.multiply_no_nan)
pow = in_default_graph(math.pow)
maximum = in_default_graph(math.maximum)
minimum = in_default_graph(math.minimum)
squared_difference = in_default_graph(math.squared_difference)
equal = in_default_graph(math.equal)
not_equal = in_default_graph(math.not_equal)
less = in_default_graph(math.less)
less_equal = in_default_graph(math.less_equal)
greater = in_default_graph(math.greater)
greater_equal = in_default_graph(math.greater_equal)
logical_and = in_default_graph(math.logical_and)
logical_or = in_default_graph(math.logical_or)
bitwise_and = in_default_graph(math.bitwise_and)
bitwise_or = in_default_graph(math.bitwise_or)
bitwise_xor = in_default_graph(math.bitwise_xor)
left_shift = in_default_graph(math.left_shift)
right_shift = in_default_graph(math.right_shift)
xdivy = in_default_graph(math.xdivy)
xlogy = in_default_graph(math.xlogy)
xlog1py = in_default_graph(math.xlog1py)
abs = in_default_graph(math.abs)
truediv = in_default_graph(math.truediv)
divide = in_default_graph(math.divide)
logical_xor = in_default_graph(math.logical_xor)
round = in_default_graph(math.round)
reciprocal_no_nan = in_default_graph(math.reciprocal_no_nan)
erfcinv = in_default_graph(math.erfcinv)
log_sigmoid = in_default_graph(math.log_sigmoid)
atan2 = in_default_graph(math.atan2)
nextafter = in_default_graph(math.nextafter)
igamma = in_default_graph(math.igamma)
igammac = in_default_graph(math.igammac)
polygamma = in_default_graph(math.polygamma)
zeta = in_default_graph(math.zeta)
betainc = in_default_graph(math.betainc)
cast = in_default_graph(math.cast)
saturate_cast = in_default_graph(math.saturate_cast)
complex = in_default_graph(math.complex)
real = in_default_graph(math.real)
imag = in_default_graph(math.imag)
angle = in_default_graph(math.angle)
clip_by_value = in_default_graph(math.clip_by_value)
add_n = in_default_graph(math.add_n)
accumulate_n = in_default_graph(math.accumulate_n)
conj = named(math.conj, "x=input name")
div_no_nan = divide_no_nan
floor_div = named(math.floordiv, "x y name")


@in_default_graph
def div(x: Any, y: Any, name: str | None = None) -> Any:
    """x / y as in Python 2: of integers the greatest integer not above it.

    Source: TensorFlow's `tf.div`.
    """
    b = scopes.builder(x, y)
    with scopes.name_scope(name, "div", [x, y]) as scope:
        x = b.tensor(x, name="x")
        y = b.tensor(y, x.dtype.base, "y")
        return b.make("RealDiv" if x.dtype.is_floating or x.dtype.is_complex else "FloorDiv", (x, y), {}, scope)


@in_default_graph
def realdiv(x: Any, y: Any, name: str | None = None) -> Any:
    """x / y, of floats or complex numbers.

    Source: TensorFlow's `tf.realdiv`.
    """
    return scopes.builder(x, y).make("RealDiv", (x, y), {}, name)


@in_default_graph
def scalar_mul(scalar: Any, x: Any, name: str | None = None) -> Any:
    """`x`, a tensor or an `IndexedSlices`, times a scalar.

    Source: TensorFlow's `tf.scalar_mul`.

    Raises:
      ValueError: `scalar` is no scalar.
    """
    if isinstance(x, IndexedSlices):
        return x.with_values(scalar_mul(scalar, x.values, name))
    b = scopes.builder(scalar, x)
    x = b.tensor(x)
    scalar = b.tensor(scalar, x.dtype.base, "scalar")
    if scalar.shape not in ((), None):
        raise ValueError(f"Only scalar multiply works, got a scalar of shape {scalar.shape}")
    return b.make("Mul", (scalar, x), {}, name)


def _to(dtype: dtypes.DType, default: str) -> Any:
    @in_default_graph
    def convert(x: Any, name: str = default) -> Any:
        return math.cast(x, dtype, name=name)

    kind = dtype.name
    convert.__name__ = convert.__qualname__ = f"to_{default[2:].lower()}"
    convert.__doc__ = f"`x`, cast to {kind}.\n\nSource: TensorFlow's `tf.{convert.__name__}`."
    return convert


to_float = _to(dtypes.float32, "ToFloat")
to_double = _to(dtypes.float64, "ToDouble")
to_int32 = _to(dtypes.int32, "ToInt32")
to_int64 = _to(dtypes.int64, "ToInt64")
to_bfloat16 = _to(dtypes.bfloat16, "ToBFloat16")
to_complex64 = _to(dtypes.complex64, "ToComplex64")
to_complex128 = _to(dtypes.complex128, "ToComplex128")

# *** over axes ***

_REDUCE = "input_tensor axis keepdims name reduction_indices=axis keep_dims=keepdims"

reduce_sum = named(reductions.reduce_sum, _REDUCE)
reduce_mean = named(reductions.reduce_mean, _REDUCE)
reduce_max = named(reductions.reduce_max, _REDUCE)
reduce_min = named(reductions.reduce_min, _REDUCE)
reduce_prod = named(reductions.reduce_prod, _REDUCE)
reduce_any = named(reductions.reduce_any, _REDUCE)
reduce_all = named(reductions.reduce_all, _REDUCE)
reduce_logsumexp = named(reductions.reduce_logsumexp, _REDUCE)
count_nonzero = named(
    reductions.count_nonzero,
    "input_tensor=input axis keepdims dtype name reduction_indices=axis keep_dims=keepdims input",
)
_ARG = "input axis name dimension=axis output_type"
argmax = named(reductions.argmax, _ARG)
argmin = named(reductions.argmin, _ARG)
arg_max = named(reductions.argmax, "input dimension=axis output_type name", "arg_max")
arg_min = named(reductions.argmin, "input dimension=axis output_type name", "arg_min")
reduce_euclidean_norm = in_default_graph(reductions.reduce_euclidean_norm)
reduce_variance = in_default_graph(reductions.reduce_variance)
reduce_std = in_default_graph(reductions.reduce_std)
cumsum = in_default_graph(reductions.cumsum)
cumprod = in_default_graph(reductions.cumprod)
cumulative_logsumexp = in_default_graph(reductions.cumulative_logsumexp)
segment_sum = in_default_graph(reductions.segment_sum)
segment_mean = in_default_graph(reductions.segment_mean)
segment_max = in_default_graph(reductions.segment_max)
segment_min = in_default_graph(reductions.segment_min)
segment_prod = in_default_graph(reductions.segment_prod)
unsorted_segment_sum = in_default_graph(reductions.unsorted_segment_sum)
unsorted_segment_max = in_default_graph(reductions.unsorted_segment_max)
unsorted_segment_min = in_default_graph(reductions.unsorted_segment_min)
unsorted_segment_prod = in_default_graph(reductions.unsorted_segment_prod)
unsorted_segment_mean = in_default_graph(reductions.unsorted_segment_mean)
unsorted_segment_sqrt_n = in_default_graph(reductions.unsorted_segment_sqrt_n)
bincount = named(counting.bincount, "arr weights minlength maxlength dtype")
histogram_fixed_width = in_default_graph(counting.histogram_fixed_width)
histogram_fixed_width_bins = in_default_graph(counting.histogram_fixed_width_bins)
unravel_index = in_default_graph(counting.unravel_index)
confusion_matrix = named(counting.confusion_matrix, "labels predictions num_classes dtype name weights")
sort = in_default_graph(sorting.sort)
argsort = in_default_graph(sorting.argsort)
lbeta = in_default_graph(special.lbeta)
polyval = in_default_graph(special.polyval)
top_k = in_default_graph(reductions.top_k)
searchsorted = in_default_graph(reductions.searchsorted)
range = in_default_graph(reductions.range)
linspace = in_default_graph(reductions.linspace)
lin_space = linspace

# *** matrices ***

matmul = named(
    linalg.matmul,
    "a b transpose_a transpose_b adjoint_a adjoint_b a_is_sparse! b_is_sparse! output_type grad_a! grad_b! name",
)
matvec = named(linalg.matvec, "a b transpose_a adjoint_a a_is_sparse! b_is_sparse! name")
norm = named(linalg.norm, "tensor ord axis keepdims name keep_dims=keepdims")
l2_normalize = named(linalg.l2_normalize, "x axis epsilon name dim=axis")
einsum = in_default_graph(linalg.einsum)
matrix_diag = in_default_graph(linalg.diag)
matrix_diag_part = in_default_graph(linalg.diag_part)
matrix_set_diag = in_default_graph(linalg.set_diag)
matrix_band_part = in_default_graph(linalg.band_part)
diag = named(linalg.tensor_diag, "diagonal name", "diag")
diag_part = named(linalg.tensor_diag_part, "input name", "diag_part")
tensordot = in_default_graph(linalg.tensordot)
matrix_transpose = in_default_graph(linalg.matrix_transpose)
adjoint = in_default_graph(linalg.adjoint)
tensor_diag = in_default_graph(linalg.tensor_diag)
tensor_diag_part = in_default_graph(linalg.tensor_diag_part)
trace = in_default_graph(linalg.trace)
eye = in_default_graph(linalg.eye)
cross = in_default_graph(linalg.cross)
global_norm = in_default_graph(linalg.global_norm)
clip_by_norm = in_default_graph(linalg.clip_by_norm)
clip_by_global_norm = in_default_graph(linalg.clip_by_global_norm)


@in_default_graph
def clip_by_average_norm(t: Any, clip_norm: Any, name: str | None = None) -> Any:
    """Scales `t` down to a Euclidean norm per element of at most `clip_norm`.

    Source: TensorFlow's `tf.clip_by_average_norm`.
    """
    with scopes.name_scope(name, "clip_by_average_norm", [t, clip_norm]) as scope:
        b = scopes.builder(t, clip_norm)
        x = b.tensor(t, None, "t")
        count = cast(b.make("Size", (x,), {}), x.dtype.base)
        total = reductions.reduce_sum(b.make("Mul", (x, x), {}, "mul"))
        inverse = b.make("Mul", (b.make("Rsqrt", (total,), {}), count), {}, "mul")
        most = b.make("RealDiv", (b.const(1.0, x.dtype.base), clip_norm), {}, "truediv")
        scaled = b.make("Mul", (x, clip_norm), {}, "mul")
        clipped = b.make("Mul", (scaled, b.make("Minimum", (inverse, most), {})), {}, "mul")
        return b.make("Identity", (clipped,), {}, scope)


@in_default_graph
def sobol_sample(
    dim: Any, num_results: Any, skip: Any = 0, dtype: Any = dtypes.float32, name: str | None = None
) -> Any:
    """Points of the Sobol sequence: [num_results, dim].

    Source: TensorFlow's `tf.math.sobol_sample`. See `headrace.raw_ops.SobolSample`.
    """
    with scopes.name_scope(name, "sobol", [dim, num_results, skip]):
        return scopes.builder(dim, num_results, skip).make("SobolSample", (dim, num_results, skip), {"dtype": dtype})


def _approximate(title: str, is_max: bool) -> Any:
    @in_default_graph
    def function(
        operand: Any,
        k: int,
        reduction_dimension: int = -1,
        recall_target: float = 0.95,
        reduction_input_size_override: int = -1,
        aggregate_to_topk: bool = True,
        name: str | None = None,
    ) -> Any:
        attrs = {"k": k, "reduction_dimension": reduction_dimension, "recall_target": recall_target}
        attrs |= {"is_max_k": is_max, "reduction_input_size_override": reduction_input_size_override}
        attrs |= {"aggregate_to_topk": aggregate_to_topk}
        return scopes.builder(operand).make("ApproxTopK", (operand,), attrs, name)

    function.__name__ = function.__qualname__ = title
    function.__doc__ = f"""The {"greatest" if is_max else "least"} elements along an axis, and their indices.

    Source: TensorFlow's `tf.math.{title}`. See `headrace.raw_ops.ApproxTopK`.
    """
    return function


approx_max_k = _approximate("approx_max_k", True)
approx_min_k = _approximate("approx_min_k", False)

# *** the older names of matrix functions ***

cholesky = in_default_graph(linalg.cholesky)
cholesky_solve = in_default_graph(linalg.cholesky_solve)
matrix_determinant = in_default_graph(linalg.det)
matrix_inverse = in_default_graph(linalg.inv)
matrix_solve = in_default_graph(linalg.solve)
matrix_solve_ls = in_default_graph(linalg.lstsq)
matrix_square_root = in_default_graph(linalg.sqrtm)
matrix_triangular_solve = in_default_graph(linalg.triangular_solve)
qr = in_default_graph(linalg.qr)
self_adjoint_eig = in_default_graph(linalg.eigh)
self_adjoint_eigvals = in_default_graph(linalg.eigvalsh)
svd = in_default_graph(linalg.svd)
