"""Norms, and tensors scaled by norms."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar, overload

import numpy as np

from headrace import nest
from headrace.api import arrays, gathering, math, reductions, scopes
from headrace.api.clipping import not_larger
from headrace.ir.indexed_slices import IndexedSlices
from headrace.ir.tensor_type import Tensor

C = TypeVar("C", bound=nest.Composite)


def norm(
    tensor: Any, ord: Any = "euclidean", axis: Any = None, keepdims: bool = False, name: str | None = None
) -> Tensor:
    """Computes norms of vectors, or (with two axes) of matrices.

    Args:
      tensor: numbers.
      ord: for vectors "euclidean", 1, 2, infinity or any positive number. For matrices "euclidean" or "fro" (the
        Frobenius norm), 1 (the greatest column sum of absolute values), infinity (the greatest row sum) or 2 (the
        greatest singular value).
      axis: the axis of the vectors, or the two axes of the matrices; None: one norm of all elements.
      keepdims: whether the axes are kept, with length 1.
      name: name of the scope; "norm" if None.

    Raises:
      ValueError: the norm is unknown, or `axis` is invalid.

    Source: TensorFlow's `tf.linalg.norm`.

    Example:
      >>> import headrace as hr
      >>> hr.norm([3.0, 4.0])
      <EagerTensor shape=[] dtype=float32: np.float32(5.0)>
    """
    is_matrix = isinstance(axis, (list, tuple)) and len(axis) == 2
    if isinstance(axis, (list, tuple)) and (len(axis) not in (1, 2) or len(set(axis)) < len(axis)):
        raise ValueError(f"'axis' must be None, an integer, or a tuple of 2 unique integers, got {axis!r}")
    allowed = ("euclidean", "fro", 1, 2, np.inf) if is_matrix else ("euclidean", 1, 2, np.inf)
    if ord not in allowed and (is_matrix or isinstance(ord, str) or not ord > 0):
        kind = "matrix" if is_matrix else "vector"
        also = "" if is_matrix else " or positive"
        raise ValueError(f"'ord' must be a supported {kind} norm, one of {list(allowed)}{also}, got {ord!r}")
    with scopes.name_scope(name, "norm", [tensor]):
        b = scopes.builder(tensor)
        x = b.tensor(tensor, None, "tensor")
        if is_matrix and ord == 2:
            result = _spectral(b, x, axis)
        elif ord in ("euclidean", "fro", 2):
            at = [axis] if isinstance(axis, int) and not is_matrix else axis
            squares = b.make("Mul", (x, math.conj(x)), {}, "mul")
            result = math.sqrt(reductions.reduce_sum(squares, at, True))
        else:
            sizes = math.abs(x)
            if is_matrix:
                first, second = (axis[0], axis[1]) if ord == 1 else (axis[1], axis[0])
                result = reductions.reduce_max(reductions.reduce_sum(sizes, first, True), second, True)
            elif ord == 1:
                result = reductions.reduce_sum(sizes, axis, True)
            elif ord == np.inf:
                result = reductions.reduce_max(sizes, axis, True)
            else:
                total = reductions.reduce_sum(b.make("Pow", (sizes, float(ord)), {}), axis, True)
                result = b.make("Pow", (total, 1.0 / float(ord)), {})
        return result if keepdims else arrays.squeeze(result, axis)


def _spectral(b: Any, x: Any, axis: Sequence[int]) -> Any:
    """Computes the greatest singular values of matrices; the two axes are kept."""
    if x.shape is None:
        rank = b.make("Rank", (x,), {})
        matrix = b.make("FloorMod", (np.array(axis, np.int32), rank), {}, "mod")
        rest, _ = gathering.setdiff1d(reductions.range(rank), matrix)
        order: Any = arrays.concat([rest, matrix], 0)
        back = b.make("InvertPermutation", (order,), {})
    else:
        rank = len(x.shape)
        for i in axis:
            if not -rank <= i < rank:
                raise ValueError(f"'axis' names axis {i} of {x!r}, which has {rank} axes")
        last = [i % rank for i in axis]
        order = [i for i in range(rank) if i not in last] + last
        back = [order.index(i) for i in range(rank)]
    singular = b.make("Svd", (arrays.transpose(x, order),), {"compute_uv": False})[0]
    # complex matrices have real singular values, and the norm has the dtype that its other kinds have
    greatest = arrays.expand_dims(reductions.reduce_max(math.abs(singular), -1, True), -1)
    return arrays.transpose(greatest, back)


def normalize(tensor: Any, ord: Any = "euclidean", axis: Any = None, name: str | None = None) -> tuple[Tensor, Tensor]:
    """Divides a tensor by its norm; returns the result and the norm.

    The axes of the norm are kept, with length 1.

    Args:
      tensor: numbers.
      ord, axis: the norm; see `norm`.
      name: name of the scope; "normalize" if None.

    Raises:
      ValueError: as for `norm`.

    Source: TensorFlow's `tf.linalg.normalize`.

    Example:
      >>> import headrace as hr
      >>> hr.linalg.normalize([3.0, 4.0])[0]
      <EagerTensor shape=[2] dtype=float32: array([0.6, 0.8], dtype=float32)>
    """
    with scopes.name_scope(name, "normalize", [tensor]):
        b = scopes.builder(tensor)
        x = b.tensor(tensor, None, "tensor")
        size = math.cast(norm(x, ord, axis, keepdims=True), x.dtype.base)
        return b.make("RealDiv", (x, size), {}, "truediv"), size


def l2_normalize(x: Any, axis: Any = None, epsilon: float = 1e-12, name: str | None = None) -> Tensor:
    """Divides `x` by its Euclidean norm along axes.

    Args:
      x: a tensor of floats or complex numbers.
      axis: an axis or several; None: all.
      epsilon: the least value of the squared norm.
      name: name of the operation; "l2_normalize" if None.

    Source: TensorFlow's `tf.math.l2_normalize`.

    Example:
      >>> import headrace as hr
      >>> hr.l2_normalize([3.0, 4.0])
      <EagerTensor shape=[2] dtype=float32: array([0.6, 0.8], dtype=float32)>
    """
    with scopes.name_scope(name, "l2_normalize", [x]) as scope:
        b = scopes.builder(x)
        x = b.tensor(x, None, "x")
        if x.dtype.is_complex:
            parts = math.real(x), math.imag(x)
            squares = [b.make("Square", (part,), {}) for part in parts]
            total = reductions.reduce_sum(b.make("AddV2", squares, {}), axis, True)
            scale = math.rsqrt(b.make("Maximum", (total, epsilon), {}))
            return b.make(
                "Complex", [b.make("Mul", (part, scale), {}) for part in parts], {"Tout": x.dtype.base}, scope
            )
        total = reductions.reduce_sum(b.make("Square", (x,), {}), axis, True)
        return b.make("Mul", (x, math.rsqrt(b.make("Maximum", (total, epsilon), {}))), {}, scope)


def global_norm(t_list: Any, name: str | None = None) -> Tensor:
    """Computes the Euclidean norm of all elements of several tensors.

    Of an `IndexedSlices` the rows are used; a repeated row counts as separate rows, as in TensorFlow.

    Args:
      t_list: tensors or `IndexedSlices`; None is ignored.
      name: name of the scope; "global_norm" if None.

    Source: TensorFlow's `tf.linalg.global_norm`.

    Example:
      >>> import headrace as hr
      >>> hr.global_norm([3.0, 4.0])
      <EagerTensor shape=[] dtype=float32: np.float32(5.0)>
    """
    present = [_rows(t) for t in t_list if t is not None]
    with scopes.name_scope(name, "global_norm", present):
        b = scopes.builder(*present)
        halves = [b.make("L2Loss", (t,), {}) for t in present]
        total = reductions.reduce_sum(arrays.stack(halves))
        return b.make("Sqrt", (b.make("Mul", (total, b.const(2, total.dtype.base)), {}, "mul"),), {}, "global_norm")


def _rows(t: Any) -> Any:
    """Returns the rows of an `IndexedSlices`; other values unchanged."""
    return t.values if isinstance(t, IndexedSlices) else t


@overload
def clip_by_norm(t: C, clip_norm: Any, axes: Any = None, name: str | None = None) -> C: ...
@overload
def clip_by_norm(t: Any, clip_norm: Any, axes: Any = None, name: str | None = None) -> Tensor: ...
def clip_by_norm(t: Any, clip_norm: Any, axes: Any = None, name: str | None = None) -> Any:
    """Scales tensors down where their Euclidean norm exceeds `clip_norm`.

    Of an `IndexedSlices` the rows are clipped. A negative `clip_norm` is treated as 0.

    Args:
      t: a tensor of floats, or an `IndexedSlices`.
      clip_norm: the greatest norm, a scalar or a tensor that broadcasts to the norms.
      axes: the axes of the norm; None: all.
      name: name of the operation; "clip_by_norm" if None.

    Raises:
      ShapeError (a ValueError): broadcasting with `clip_norm` would enlarge the tensor.

    Source: TensorFlow's `tf.clip_by_norm`.

    Example:
      >>> import headrace as hr
      >>> hr.clip_by_norm([3.0, 4.0], 1.0)
      <EagerTensor shape=[2] dtype=float32: array([0.6, 0.8], dtype=float32)>
    """
    if isinstance(t, IndexedSlices):
        return t.with_values(clip_by_norm(t.values, clip_norm, axes, name))
    with scopes.name_scope(name, "clip_by_norm", [t, clip_norm]) as scope:
        b = scopes.builder(t, clip_norm)
        values = b.tensor(t, None, "t")
        if isinstance(clip_norm, (int, float, np.number)):
            clip_norm = max(clip_norm, 0)
        else:
            clip_norm = math.cast(b.make("Maximum", (clip_norm, 0), {}), values.dtype.base)
        squares = reductions.reduce_sum(b.make("Mul", (values, values), {}, "mul"), axes, True)
        is_some = b.make("Greater", (squares, 0), {})
        # the gradient of sqrt at 0 is infinite, so 0 is replaced first
        safe = b.make("SelectV2", (is_some, squares, b.make("OnesLike", (squares,), {})), {})
        size = b.make("SelectV2", (is_some, b.make("Sqrt", (safe,), {}), squares), {})
        scaled = b.make("Mul", (values, clip_norm), {}, "mul")
        clipped = b.make("RealDiv", (scaled, b.make("Maximum", (size, clip_norm), {})), {}, "truediv")
        return not_larger(values, b.make("Identity", (clipped,), {}, scope))


def clip_by_global_norm(
    t_list: Any, clip_norm: Any, use_norm: Any = None, name: str | None = None
) -> tuple[list[Any], Any]:
    """Scales several tensors by one factor if their global norm exceeds `clip_norm`.

    Args:
      t_list: tensors or `IndexedSlices`; None is kept.
      clip_norm: the greatest global norm.
      use_norm: the global norm, if it is known already; None: it is computed.
      name: name of the scope; "clip_by_global_norm" if None.

    Returns:
      The scaled tensors, and their global norm before scaling.

    Source: TensorFlow's `tf.clip_by_global_norm`.

    Example:
      >>> import headrace as hr
      >>> (x, _), norm = hr.clip_by_global_norm([[3.0, 4.0], None], 1.0)
      >>> x.numpy().tolist(), float(norm)
      ([0.6000000238418579, 0.800000011920929], 5.0)
    """
    present = [t for t in t_list if t is not None]
    total = global_norm(t_list) if use_norm is None else use_norm
    with scopes.name_scope(name, "clip_by_global_norm", [*present, clip_norm]) as scope:
        b = scopes.builder(*present, clip_norm)
        one = b.const(1, total.dtype.base)
        inverse = b.make(
            "Minimum",
            (b.make("RealDiv", (one, total), {}, "truediv"), b.make("RealDiv", (one, clip_norm), {}, "truediv")),
            {},
        )
        scale = b.make("Mul", (clip_norm, inverse), {}, "mul")
        # if the norm is not finite the results are NaN, so that the fault is visible
        is_finite = b.make("IsFinite", (total,), {})
        scale = b.make("SelectV2", (is_finite, scale, b.const(np.nan, total.dtype.base)), {})

        def scaled(t: Any, i: int) -> Any:
            if isinstance(t, IndexedSlices):
                return t.with_values(scaled(t.values, i))
            x = b.tensor(t, None, f"t_{i}")
            product = b.make("Mul", (x, math.cast(scale, x.dtype.base)), {}, "mul")
            return b.make("Identity", (product,), {}, f"{scope}_{i}")

        return [None if t is None else scaled(t, i) for i, t in enumerate(t_list)], total
