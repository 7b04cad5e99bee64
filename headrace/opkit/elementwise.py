"""Helpers of elementwise records: half precision computed in float32, chain rules, oracles."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np

from headrace import dtypes, shapes
from headrace.errors import InvalidArgumentError
from headrace.opkit.namespaces import complex_of, converter, is_standard, number, real_and_imag

if TYPE_CHECKING:
    from headrace.dtypes import DType
    from headrace.ir.builder import Builder
    from headrace.ir.grad_node import GradNode
    from headrace.ir.graph import Tensor
    from headrace.ir.infer import Inference
    from headrace.ir.opdef import KernelFactory
    from headrace.shapes import Shape

HALF: Final = frozenset({dtypes.float16, dtypes.bfloat16})

Derivative: TypeAlias = "Callable[[Builder, GradNode], Tensor]"


def ufunc(name: str) -> KernelFactory:
    """Returns the kernel factory of the array namespace's function `name`."""
    return lambda xp, attrs: getattr(xp, name)


def computed_in(dtype: DType) -> DType:
    """Returns the dtype in which `widened` computes."""
    return dtypes.float32 if dtype in HALF else dtype


def widened(f: Callable[..., Any], dtype: DType, xp: Any = np) -> Callable[..., Any]:
    """Returns `f`, computed in float32 if `dtype` is a half-precision float.

    The result is rounded once at the end, not at every step.
    """
    if dtype not in HALF:
        return f
    to_float32, back = converter(xp, dtypes.float32), converter(xp, dtype)
    return lambda *arrays: back(f(*map(to_float32, arrays)))


def composed(f: Callable[..., Any], attr: str = "T") -> KernelFactory:
    """Returns the kernel factory of `f(xp, *arrays)`, a formula of several steps.

    Half precision is computed in float32.
    """

    def factory(xp: Any, attrs: Any) -> Callable[..., Any]:
        return widened(lambda *arrays: f(xp, *arrays), attrs[attr], xp)

    return factory


def log1p(xp: Any, dtype: DType) -> Callable[[Any], Any]:
    """Returns the function log(1 + x), precise for small x.

    The function of complex numbers of numpy and of other namespaces rounds 1 + x. The real part here is
    log1p(|1 + x|² - 1) / 2 near 0, as in machine code.

    Args:
      xp: the array namespace.
      dtype: the dtype of the arrays.
    """
    if not dtype.is_complex or hasattr(xp, "complex_of"):  # a namespace that records formulas, for machine code
        return xp.log1p  # type: ignore[no-any-return]

    def precise(x: Any) -> Any:
        real, imag = real_and_imag(xp, x)
        is_small = (abs(real) < 0.5) & (abs(imag) < 0.5)
        near = xp.log1p(2 * real + (real * real + imag * imag)) / 2
        out = xp.log1p(x)
        if is_standard(xp):
            return complex_of(xp, xp.where(is_small, near, xp.real(out)), xp.imag(out), dtype)
        out = xp.asarray(out)
        out.real = xp.where(is_small, near, out.real)
        return out[()]

    return precise


def kept(condition: Any, x: Any, buffer: Any = None) -> Any:
    """Returns `x` where `condition` is true and 0 elsewhere, also instead of NaN.

    The arrays (or numpy scalars) have one shape. The function masks the bits of the elements. `np.where` branches at
    each element, which is ten times slower on processors that cannot predict the branches.

    Args:
      condition: the bools.
      x: the real numbers.
      buffer: an integer array for the result, with elements of the size of those of `x`; None for a new array.
    """
    bits = f"i{x.itemsize}"
    mask = np.negative(condition.view(np.int8), out=buffer, dtype=bits)  # all ones where true
    mask &= x.view(bits)
    return mask.view(x.dtype)


def keeping(xp: Any, dtype: DType) -> Callable[[Any, Any], Any]:
    """Returns `kept` for numpy, and for other namespaces a function with the same result."""
    if xp is np:
        return kept
    zero = number(xp, 0, dtype)
    return lambda condition, x: xp.where(condition, x, zero)


def require_same_shape(a: Any, b: Any, op: str) -> None:
    """Raises `InvalidArgumentError` unless the two arrays have the same shape."""
    if a.shape != b.shape:
        raise InvalidArgumentError(
            f"Inputs to operation {op} must have the same size and shape. "
            f"Input 0: {shapes.show(a.shape)} != input 1: {shapes.show(b.shape)}"
        )


def alike(c: Inference) -> Sequence[Shape]:
    """Infers the shape of an op whose inputs all have the shape of its output."""
    out: Shape = None
    for s in c.shapes:
        out = shapes.merge(out, s)
    return [out]


def conj(b: Builder, x: Tensor) -> Tensor:
    """Returns the complex conjugate of `x`; `x` itself if it is real."""
    out: Tensor = b.Conj(x) if x.dtype.is_complex else x
    return out


def times(derivative: Derivative) -> Any:
    """Returns the gradient rule `dy · conj(f'(x))` of a function of one argument."""
    return lambda b, n, dy: [b.Mul(dy, conj(b, derivative(b, n)))]


def over(inverse: Derivative) -> Any:
    """Returns the gradient rule `dy / conj(1 / f'(x))`, for simple inverse derivatives."""
    return lambda b, n, dy: [b.RealDiv(dy, conj(b, inverse(b, n)))]


def each(
    real: Callable[..., Any], complex_: Callable[..., Any] | None = None, out: np.dtype | type | None = None
) -> Callable[..., Any]:
    """Returns an oracle that applies a function of Python numbers to broadcast elements.

    Args:
      real: the function for bools, integers and floats (computed in double precision for every dtype).
      complex_: the function for complex numbers; None: `real`.
      out: the dtype of the result; None: that of the first argument.
    """

    def oracle(*arrays: Any, **attrs: Any) -> np.ndarray:
        f = complex_ if complex_ is not None and np.iscomplexobj(arrays[0]) else real
        dtype = np.dtype(arrays[0].dtype if out is None else out)
        args = np.broadcast_arrays(*arrays)
        values = [f(*(_python(a[i]) for a in args), **attrs) for i in np.ndindex(args[0].shape)]
        result = np.empty(len(values), dtype)
        for i, v in enumerate(values):
            result[i] = _wrapped(int(v), dtype) if dtype.kind in "iu" else v
        return result.reshape(args[0].shape)

    return oracle


def _wrapped(v: int, dtype: np.dtype) -> int:
    """Returns `v` as an integer of `dtype` represents it: modulo a power of two."""
    low = int(np.iinfo(dtype).min)
    return (v - low) % (1 << 8 * dtype.itemsize) + low


def _python(x: Any) -> Any:
    """Returns the Python value of an element.

    ml_dtypes' `item()` does not return a float.
    """
    if isinstance(x, bytes):
        return x
    if isinstance(x, (np.bool_, np.integer)):
        return x.item()
    return complex(x) if isinstance(x, np.complexfloating) else float(x)
