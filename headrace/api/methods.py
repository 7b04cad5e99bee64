"""numpy's array methods on tensors and variables.

Each method has numpy's arguments and meaning, with three exceptions. Tensors do not change, so methods that change an
array are missing. Sums and products keep the dtype of integers (numpy's are int64). `std`, `var` and `mean` of integers
have the dtype of a true division. `numpy.sum(x)` and similar functions of numpy call these methods, so methods accept
the arguments that numpy passes.

A method that only other libraries have raises an AttributeError that names headrace's function (`_ELSEWHERE`).
"""

from __future__ import annotations

import math as python_math
from collections.abc import Sequence
from typing import Any

import numpy as np

from headrace import dtypes, shapes
from headrace.api import arrays, gathering, linalg, math, reductions, scopes, sorting
from headrace.errors import ShapeError
from headrace.ir.tensor_type import Elsewhere, Tensor, TensorOperations


def _tensor(x: Any) -> Any:
    """Returns the tensor that `x`, a tensor or variable, represents."""
    return x if isinstance(x, Tensor) else scopes.builder(x).tensor(x)


def _flat_if(x: Any, axis: Any) -> tuple[Any, Any]:
    """Returns `x` and `axis`; `x` flattened and 0 if `axis` is None."""
    return (arrays.reshape(x, (-1,)), 0) if axis is None else (x, axis)


def _cast(x: Any, dtype: Any) -> Any:
    return x if dtype is None else math.cast(x, dtype)


def _numbers(x: Any, dtype: Any) -> Any:
    """Returns `x` in `dtype`; if that is None, bools become int64."""
    x = _tensor(x)
    return _cast(x, dtypes.int64 if dtype is None and x.dtype.base is dtypes.bool_ else dtype)


def _fractions(x: Any, dtype: Any) -> Any:
    """Returns `x` in `dtype`; if that is None, integers and bools become floats."""
    x = _tensor(x)
    return _cast(x, math.quotient_dtype(x.dtype) if dtype is None else dtype)


def _axes(axis: Any) -> Any:
    return list(axis) if isinstance(axis, tuple) else axis


def _no_out(out: None) -> None:
    if out is not None:
        raise TypeError("tensors do not change, so a method cannot write its result into `out`; use what it returns")


def _truth(x: Any) -> Any:
    x = _tensor(x)
    return x if x.dtype.base is dtypes.bool_ else math.cast(x, dtypes.bool_)


def _extreme(of_numbers: Any, of_bools: Any, x: Any, axis: Any, keepdims: bool) -> Any:
    x = _tensor(x)
    return (of_bools if x.dtype.base is dtypes.bool_ else of_numbers)(x, _axes(axis), keepdims)


def _index_of(find: Any, x: Any, axis: int | None, out: None, keepdims: bool) -> Any:
    _no_out(out)
    x = _tensor(x)
    found = find(*_flat_if(x, axis))
    if not keepdims:
        return found
    return arrays.reshape(found, [1] * len(_rank_known(x))) if axis is None else arrays.expand_dims(found, axis)


def _rank_known(x: Any) -> Any:
    shape = shapes.as_shape(x.shape)
    if shape is None:
        raise ShapeError(f"the rank of {x!r} must be known")
    return shape


def _many(axes: tuple[Any, ...]) -> Any:
    """Returns the axes of a call `f(1, 0)`, `f((1, 0))`, `f(None)` or `f()`; None for all."""
    if len(axes) == 1 and (axes[0] is None or not isinstance(axes[0], (int, np.integer))):
        return axes[0]
    return list(axes) or None


def _static(x: Any, name: str, instead: str) -> Sequence[Any]:
    shape = shapes.as_shape(x.shape)
    if shape is None:
        raise _unknown(x, name, instead)
    return shape


def _unknown(x: Any, name: str, instead: str) -> AttributeError:
    why = "since its shape is not fully known"
    return AttributeError(f"{x!r} has no {name} before the graph runs, {why}; use {instead}", name=name, obj=x)


class ArrayMethods:
    """Methods and properties that tensors and variables have in common with numpy's arrays."""

    # reductions

    def sum(self: Any, axis: Any = None, dtype: Any = None, out: None = None, keepdims: bool = False) -> Any:
        """Returns the sum along axes, of all elements by default; see `hr.reduce_sum`."""
        _no_out(out)
        return reductions.reduce_sum(_numbers(self, dtype), _axes(axis), keepdims)

    def prod(self: Any, axis: Any = None, dtype: Any = None, out: None = None, keepdims: bool = False) -> Any:
        """Returns the product along axes, of all elements by default; see `hr.reduce_prod`."""
        _no_out(out)
        return reductions.reduce_prod(_numbers(self, dtype), _axes(axis), keepdims)

    def mean(self: Any, axis: Any = None, dtype: Any = None, out: None = None, keepdims: bool = False) -> Any:
        """Returns the mean along axes, of all elements by default; see `hr.reduce_mean`."""
        _no_out(out)
        return reductions.reduce_mean(_fractions(self, dtype), _axes(axis), keepdims)

    def max(self: Any, axis: Any = None, out: None = None, keepdims: bool = False) -> Any:
        """Returns the greatest element along axes, of all by default; see `hr.reduce_max`."""
        _no_out(out)
        return _extreme(reductions.reduce_max, reductions.reduce_any, self, axis, keepdims)

    def min(self: Any, axis: Any = None, out: None = None, keepdims: bool = False) -> Any:
        """Returns the least element along axes, of all by default; see `hr.reduce_min`."""
        _no_out(out)
        return _extreme(reductions.reduce_min, reductions.reduce_all, self, axis, keepdims)

    def any(self: Any, axis: Any = None, out: None = None, keepdims: bool = False) -> Any:
        """Returns whether any element along axes is true (not 0); see `hr.reduce_any`."""
        _no_out(out)
        return reductions.reduce_any(_truth(self), _axes(axis), keepdims)

    def all(self: Any, axis: Any = None, out: None = None, keepdims: bool = False) -> Any:
        """Returns whether all elements along axes are true (not 0); see `hr.reduce_all`."""
        _no_out(out)
        return reductions.reduce_all(_truth(self), _axes(axis), keepdims)

    def var(
        self: Any, axis: Any = None, dtype: Any = None, out: None = None, ddof: int = 0, keepdims: bool = False
    ) -> Any:
        """Returns the variance along axes, of all elements by default; see `hr.reduce_variance`.

        The divisor is the number of elements less `ddof`.
        """
        _no_out(out)
        x = _fractions(self, dtype)
        found = reductions.reduce_variance(x, _axes(axis), keepdims)
        if not ddof:
            return found
        whole = arrays.size(x, dtypes.int64)
        n = math.cast(whole // math.maximum(arrays.size(found, dtypes.int64), 1), found.dtype)
        return found * (n / (n - ddof))

    def std(
        self: Any, axis: Any = None, dtype: Any = None, out: None = None, ddof: int = 0, keepdims: bool = False
    ) -> Any:
        """Returns the standard deviation along axes, of all elements by default; see `var`."""
        return math.sqrt(ArrayMethods.var(self, axis, dtype, out, ddof, keepdims))

    def argmax(self: Any, axis: int | None = None, out: None = None, *, keepdims: bool = False) -> Any:
        """Returns the index of the greatest element, of the flattened tensor if `axis` is None."""
        return _index_of(reductions.argmax, self, axis, out, keepdims)

    def argmin(self: Any, axis: int | None = None, out: None = None, *, keepdims: bool = False) -> Any:
        """Returns the index of the least element, of the flattened tensor if `axis` is None."""
        return _index_of(reductions.argmin, self, axis, out, keepdims)

    def cumsum(self: Any, axis: int | None = None, dtype: Any = None, out: None = None) -> Any:
        """Returns the running sum along an axis, of the flattened tensor if `axis` is None."""
        _no_out(out)
        return reductions.cumsum(*_flat_if(_numbers(self, dtype), axis))

    def cumprod(self: Any, axis: int | None = None, dtype: Any = None, out: None = None) -> Any:
        """Returns the running product along an axis, of the flattened tensor if `axis` is None."""
        _no_out(out)
        return reductions.cumprod(*_flat_if(_numbers(self, dtype), axis))

    # shapes

    def reshape(self: Any, *shape: Any) -> Any:
        """Returns the elements in another shape, given as one sequence or as numbers; see `hr.reshape`."""
        return arrays.reshape(self, shape if len(shape) != 1 or isinstance(shape[0], (int, np.integer)) else shape[0])

    def ravel(self: Any) -> Any:
        """Returns the elements as a vector."""
        return arrays.reshape(self, (-1,))

    flatten = ravel

    def transpose(self: Any, *axes: Any) -> Any:
        """Returns the tensor with its axes in another order, reversed by default; see `hr.transpose`."""
        return arrays.transpose(self, _many(axes))

    def swapaxes(self: Any, axis1: int, axis2: int) -> Any:
        """Returns the tensor with two of its axes exchanged."""
        x = _tensor(self)
        order = list(range(len(_rank_known(x))))
        order[axis1], order[axis2] = order[axis2], order[axis1]
        return arrays.transpose(x, order)

    def squeeze(self: Any, axis: Any = None) -> Any:
        """Returns the tensor without the axes of length 1, or without those of `axis`."""
        return arrays.squeeze(self, _axes(axis))

    def repeat(self: Any, repeats: Any, axis: int | None = None) -> Any:
        """Returns each element `repeats` times, of the flattened tensor if `axis` is None; see `hr.repeat`."""
        return gathering.repeat(self, repeats, axis)

    # elements

    def astype(self: Any, dtype: Any, copy: bool = True) -> Any:
        """Returns the elements in another dtype; see `hr.cast`. `copy` has no effect."""
        return math.cast(self, dtype)

    def clip(self: Any, min: Any = None, max: Any = None, out: None = None) -> Any:
        """Returns the elements within bounds, of which one may be None."""
        _no_out(out)
        x = self if min is None else math.maximum(self, min)
        return x if max is None else math.minimum(x, max)

    def conj(self: Any) -> Any:
        """Returns the complex conjugates."""
        return math.conj(self)

    conjugate = conj

    def round(self: Any, decimals: int = 0, out: None = None) -> Any:
        """Returns the elements rounded to a number of decimals, halves to the even neighbour."""
        _no_out(out)
        return round(_tensor(self), decimals)

    def argsort(self: Any, axis: int | None = -1) -> Any:
        """Returns the indices that sort the tensor along an axis, flattened if `axis` is None."""
        x, axis = _flat_if(self, axis)
        return math.cast(sorting.argsort(x, axis=axis, stable=True), dtypes.int64)

    def dot(self: Any, other: Any) -> Any:
        """Returns the product with `other`, as `numpy.dot`.

        It sums over the last axis of this tensor and the last but one of `other`.
        """
        x = _tensor(self)
        y = scopes.builder(x, other).tensor(other, None if hasattr(other, "dtype") else x.dtype.base)
        ranks = len(_rank_known(x)), len(_rank_known(y))
        if 0 in ranks:
            return x * y
        return linalg.tensordot(x, y, [[ranks[0] - 1], [max(ranks[1] - 2, 0)]])

    # values in Python

    def item(self: Any, *index: Any) -> Any:
        """Returns the single element, or that at `index`, as a Python object.

        The object is a number, a bool, or bytes.
        """
        return np.asarray(self.numpy()).item(*index)

    def tolist(self: Any) -> Any:
        """Returns the elements as nested lists of Python numbers; a scalar as a number."""
        return np.asarray(self.numpy()).tolist()

    # properties

    @property
    def T(self: Any) -> Any:
        """Tensor with its axes reversed."""
        return arrays.transpose(self)

    @property
    def mT(self: Any) -> Any:
        """Tensor with its last two axes exchanged."""
        return linalg.matrix_transpose(self)

    @property
    def real(self: Any) -> Any:
        """Real parts of the elements."""
        return math.real(self)

    @property
    def imag(self: Any) -> Any:
        """Imaginary parts of the elements."""
        return math.imag(self)

    @property
    def ndim(self: Any) -> int:
        """Number of axes."""
        return len(_static(self, "ndim", "hr.rank(tensor)"))

    @property
    def size(self: Any) -> int:
        """Number of elements."""
        shape = _static(self, "size", "hr.size(tensor)")
        if None in shape:
            raise _unknown(self, "size", "hr.size(tensor)")
        return python_math.prod(shape)

    @property
    def itemsize(self: Any) -> int:
        """Bytes of an element."""
        return int(self.dtype.base.size)

    @property
    def nbytes(self: Any) -> int:
        """Bytes of all elements."""
        return int(self.size * self.itemsize)


_CAST = "use tensor.astype(dtype)"
_UPDATE = "tensors do not change; use hr.tensor_scatter_nd_update(tensor, indices, updates)"
_DEVICE = "use `with hr.device(name):`"

# Methods of the arrays of other libraries -> the alternative.
_ELSEWHERE = {
    **{
        f: f"use hr.{f}(tensor)"
        for f in "abs ceil cos erf exp floor log rsqrt sigmoid sign sin sort sqrt square".split()
    },
    **{f: f"use hr.{f}(tensor)" for f in "tan tanh norm unique".split()},
    **{f: f"use hr.{f}(tensor, other)" for f in "add equal matmul maximum minimum pow subtract".split()},
    **{f: f"use hr.nn.{f}(tensor)" for f in "elu gelu log_softmax relu softmax".split()},
    **dict.fromkeys(("bool", "double", "float", "half", "int", "long", "to", "type", "type_as"), _CAST),
    **dict.fromkeys(("fill", "fill_", "index_put_", "itemset", "put", "at", "resize", "setflags"), _UPDATE),
    **dict.fromkeys(("cpu", "cuda"), _DEVICE),
    **dict.fromkeys(("backward", "grad", "requires_grad", "requires_grad_"), "use hr.grad(f)"),
    **dict.fromkeys(("clone", "contiguous", "copy"), "tensors do not change, so a copy is not needed"),
    **dict.fromkeys(("clamp", "clip_by_value"), "use tensor.clip(min, max)"),
    **dict.fromkeys(("dim", "rank"), "use tensor.ndim"),
    **dict.fromkeys(("mm", "bmm", "mv"), "use x @ y"),
    **dict.fromkeys(("expand", "broadcast_to"), "use hr.broadcast_to(tensor, shape)"),
    **dict.fromkeys(("gather", "index_select", "take"), "use hr.gather(tensor, indices, axis=axis)"),
    "chunk": "use hr.split(tensor, number, axis)",
    "cast": _CAST,
    "detach": "use hr.stop_gradient(tensor)",
    "diagonal": "use hr.linalg.diag_part(tensor)",
    "div": "use x / y",
    "expand_dims": "use hr.expand_dims(tensor, axis)",
    "flip": "use hr.reverse(tensor, axes)",
    "logsumexp": "use hr.reduce_logsumexp(tensor)",
    "masked_fill": "use hr.where(mask, value, tensor)",
    "mul": "use x * y",
    "neg": "use -tensor",
    "nonzero": "use hr.where(tensor)",
    "numel": "use tensor.size",
    "permute": "use tensor.transpose(axes)",
    "searchsorted": "use hr.searchsorted(tensor, values)",
    "split": "use hr.split(tensor, sizes, axis)",
    "sub": "use x - y",
    "t": "use tensor.T",
    "tile": "use hr.tile(tensor, multiples)",
    "tobytes": "use tensor.numpy().tobytes()",
    "topk": "use hr.top_k(tensor, k)",
    "trace": "use hr.linalg.trace(tensor)",
    "unbind": "use hr.unstack(tensor)",
    "unsqueeze": "use hr.expand_dims(tensor, axis)",
    "view": "use tensor.reshape(shape), or hr.bitcast(tensor, dtype)",
}

for _name, _method in vars(ArrayMethods).items():
    if not _name.startswith("__"):
        setattr(TensorOperations, _name, _method)
for _name, _instead in _ELSEWHERE.items():
    setattr(TensorOperations, _name, Elsewhere(_name, _instead))
