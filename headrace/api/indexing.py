"""Indexing: `x[1:, ..., None, i]` as a StridedSlice, `x[mask]` as a `boolean_mask`.

An index is a tuple of entries: numbers and int scalars (which remove their axis), slices, `...` and None (a new axis).
The entries are converted to three vectors (begins, ends and strides) and five masks, in which bit k describes entry k.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from types import EllipsisType
from typing import Any

import numpy as np

from headrace import dtypes, shapes, thresholds
from headrace.api import arrays, gathering, reductions, scopes
from headrace.api.tensors import is_tensor
from headrace.errors import ShapeError
from headrace.ir.tensor_type import Tensor
from headrace.memo import cached


def getitem(x: Any, index: Any) -> Any:
    """Returns `x[index]`.

    Args:
      x: a tensor.
      index: an int, an int scalar tensor, a slice of them, `...`, None, or a tuple of these; or bools of the shape of
        the first axes of `x`.

    Raises:
      TypeError: an index has another type (a float, a list).
      IndexError: `x` is a scalar.
      ShapeError (a ValueError): there are more entries than axes, a number is out of range, or a step is 0.

    Source: TensorFlow's `tf.Tensor.__getitem__`.
    """
    eager = scopes.eager_builder_of(x)
    if eager is not None and _is_static(index):
        made = eager.view(x, index)
        if made is not None:
            return made
        taken, bounds, masks = _static_arguments(_key(index))
        if taken <= len(x.shape):
            return eager.make("StridedSlice", (x, *bounds), masks, "strided_slice")
    if _is_mask(index):
        return boolean_mask(x, index)
    entries = list(index) if isinstance(index, tuple) else [index]
    if sum(e is Ellipsis for e in entries) > 1:
        raise ShapeError(f"an index can have one '...' only, got {_show(index)}")
    taken = _count(entries)
    shape = getattr(x, "shape", None)
    if shape is not None and taken > len(shape):
        raise ShapeError(
            f"Index out of range using input dim {len(shape)}; input has only {len(shape)} dims: [{_show(index)}] has "
            f"{taken} entries for {_what(x)} of shape {shapes.show(tuple(shape))}"
        )
    b = scopes.builder(x, *_tensors(entries))
    begin, end, strides, masks = _vectors(b, x, entries)
    if b.graph is None and not any(map(is_tensor, (*begin, *end, *strides))):
        return b.make("StridedSlice", (x, begin, end, strides), masks, "strided_slice")
    with scopes.name_scope(None, "strided_slice", [x, *begin, *end, *strides]) as scope:
        b = scopes.builder(x, begin, end, strides)
        bounds = [_vector(b, v, name) for v, name in ((begin, "stack"), (end, "stack_1"), (strides, "stack_2"))]
        if len({t.dtype.base for t in bounds}) > 1:
            bounds = [
                t if t.dtype.base is dtypes.int64 else b.make("Cast", (t,), {"DstT": dtypes.int64}) for t in bounds
            ]
        return b.make("StridedSlice", (x, *bounds), masks, scope)


def _is_static(index: Any) -> bool:
    """Whether an index consists of ints, slices of them, None and at most one `...`."""
    if index.__class__ is int:
        return True
    n_ellipses = 0
    entries = index if index.__class__ is tuple else (index,)
    for e in entries:
        if e.__class__ is slice:
            for bound in (e.start, e.stop, e.step):
                if bound.__class__ is not int and bound is not None:
                    return False
        elif e is Ellipsis:
            n_ellipses += 1
        elif e.__class__ is not int and e is not None:
            return False
    return n_ellipses < 2 and len(entries) < 32  # the bits of a mask


def _count(entries: Sequence[Any]) -> int:
    """Returns the number of entries that take an axis."""
    return sum(e is not None and e is not Ellipsis for e in entries)


def _key(index: Any) -> tuple[Any, ...]:
    """Returns the entries of a static index, with tuples in place of slices.

    Python 3.11 cannot hash slices.
    """
    entries = index if index.__class__ is tuple else (index,)
    return tuple([(e.start, e.stop, e.step) if e.__class__ is slice else e for e in entries])


@cached(thresholds.STATIC_INDICES, "static indices")
def _static_arguments(key: tuple[Any, ...]) -> tuple[int, list[Any], dict[str, int]]:
    """Returns the arguments of a StridedSlice for the `_key` of an index.

    They are the number of axes that it takes, the eager vectors, and the masks other than 0.
    """
    entries = [slice(*e) if e.__class__ is tuple else e for e in key]
    begin, end, strides, masks = _vectors(None, None, entries)
    dtype = np.int64 if _is_long([*begin, *end, *strides]) else np.int32
    b = scopes.runtime().eager
    bounds = [b.const(np.array(v, dtype)) for v in (begin, end, strides)]
    return _count(key), bounds, {name: mask for name, mask in masks.items() if mask}


def boolean_mask(tensor: Any, mask: Any, axis: int | None = None, name: str = "boolean_mask") -> Tensor:
    """Returns the elements of a tensor where a mask is true, in order.

    Args:
      tensor: a tensor.
      mask: bools, of known rank of at least 1, in the shape of the axes of `tensor` from `axis` on.
      axis: the first axis of the mask; None: 0.
      name: the name of the scope.

    Returns:
      A tensor in which one axis replaces those of the mask.

    Raises:
      ValueError: the mask is a scalar, its rank is unknown, or its shape does not fit.

    Source: TensorFlow's `tf.boolean_mask`.

    Example:
      >>> import headrace as hr
      >>> with hr.Graph() as g:
      ...     y = hr.boolean_mask([1, 2, 3], [True, False, True])
      >>> hr.Session(graph=g).run(y)
      array([1, 3], dtype=int32)
    """
    with scopes.name_scope(name, "boolean_mask", [tensor, mask]):
        b = scopes.builder(tensor, mask)
        x = b.tensor(tensor, None, "tensor")
        mask = b.tensor(mask, dtypes.bool_, "mask")
        if mask.shape is None:
            raise ShapeError(f"the rank of a mask must be known, got {mask!r}; set its shape (set_shape)")
        n = len(mask.shape)
        if n == 0:
            raise ShapeError("a mask cannot be a scalar; use cond")
        at = axis or 0
        if x.shape is not None:
            at %= max(len(x.shape), 1)
            if not shapes.compatible(x.shape[at : at + n], mask.shape):
                raise ShapeError(
                    f"the mask has shape {shapes.show(mask.shape)}, but the axes that it is for have "
                    f"{shapes.show(x.shape[at : at + n])} (of {x!r} from axis {at})"
                )

        rows = reductions.reduce_prod(getitem(arrays.shape(x), slice(at, at + n)), [0])
        before = getitem(arrays.shape(x), slice(None, at))
        after = getitem(arrays.shape(x), slice(at + n, None))
        flat = b.make("Reshape", (x, b.make("ConcatV2", ([before, [rows], after], 0), {}, "concat")), {})
        if x.shape is not None and hasattr(flat, "set_shape"):
            lengths = x.shape[at : at + n]
            flat.set_shape((*x.shape[:at], None if None in lengths else int(np.prod(lengths)), *x.shape[at + n :]))
        places = b.make("Where", (b.make("Reshape", (mask, np.array([-1], np.int32)), {}),), {})
        return gathering.gather(flat, b.make("Squeeze", (places,), {"squeeze_dims": (1,)}), axis=at)


def _is_mask(index: Any) -> bool:
    if isinstance(index, np.ndarray):
        return bool(index.dtype == np.bool_)
    return is_tensor(index) and getattr(index, "dtype", None) == dtypes.bool_


def _vectors(b: Any, x: Any, entries: list[Any]) -> tuple[list[Any], list[Any], list[Any], dict[str, int]]:
    begin: list[Any] = []
    end: list[Any] = []
    strides: list[Any] = []
    masks = dict.fromkeys(("begin_mask", "end_mask", "ellipsis_mask", "new_axis_mask", "shrink_axis_mask"), 0)
    for k, entry in enumerate(entries):
        first: Any
        last: Any
        first, last, step = 0, 0, 1
        if entry is Ellipsis:
            masks["ellipsis_mask"] |= 1 << k
        elif entry is None:
            masks["new_axis_mask"] |= 1 << k
        elif isinstance(entry, slice):
            parts = [_number(e, x, entry) for e in (entry.start, entry.stop, entry.step)]
            kind = next((p.dtype.base for p in parts if is_tensor(p)), None)
            if kind is not None:  # TensorFlow creates tensors for omitted bounds too
                parts = [b.const(i == 2, kind) if p is None else p for i, p in enumerate(parts)]
            masks["begin_mask"] |= (entry.start is None) << k
            masks["end_mask"] |= (entry.stop is None) << k
            first, last, step = (d if p is None else p for p, d in zip(parts, (0, 0, 1), strict=True))
            if not is_tensor(step) and step == 0:
                raise ShapeError(f"the step of a slice must not be 0, in [{_show(entry)}] of {_what(x)}")
        else:
            first = _number(entry, x, entry)
            last = b.make("AddV2", (first, 1), {}, "add") if is_tensor(first) else first + 1
            if is_tensor(first) and first.dtype.base is dtypes.int64:
                step = b.const(1, dtypes.int64)
            masks["shrink_axis_mask"] |= 1 << k
        begin.append(first)
        end.append(last)
        strides.append(step)
    return begin, end, strides, masks


def _number(e: Any, x: Any, entry: Any) -> Any:
    """Returns a bound or a whole entry: None, an int, or an int scalar tensor."""
    if e is None:
        return None
    if isinstance(e, (bool, np.bool_)):
        pass
    elif isinstance(e, (int, np.integer)):
        return int(e)
    elif is_tensor(e):
        t = scopes.builder(x, e).tensor(e)
        if t.dtype.base in (dtypes.int32, dtypes.int64, dtypes.int16) and shapes.compatible(t.shape, ()):
            return t
        if t.dtype.is_integer and shapes.compatible(t.shape, ()):
            return scopes.builder(x, t).make("Cast", (t,), {"DstT": dtypes.int64})
        fix = "use hr.gather or hr.gather_nd to take several" if t.dtype.is_integer else "cast it to int32"
        raise TypeError(f"an index must be an integer scalar, got {t!r} in [{_show(entry)}] of {_what(x)}; {fix}")
    elif hasattr(type(e), "__index__") and not (isinstance(e, np.ndarray) and (e.ndim or e.dtype.kind not in "iu")):
        return operator.index(e)
    more = "; use hr.gather to take several, or a boolean mask" if isinstance(e, (list, np.ndarray)) else ""
    raise TypeError(
        "Only integers, slices (`:`), ellipsis (`...`), newaxis (`None`) and scalar int32/int64 tensors are valid "
        f"indices, got {e!r} ({type(e).__name__}) for {_what(x)}{more}"
    )


def _tensors(entries: list[Any]) -> list[Any]:
    parts = [p for e in entries for p in ((e.start, e.stop, e.step) if isinstance(e, slice) else (e,))]
    return [p for p in parts if is_tensor(p)]


def _vector(b: Any, values: list[Any], name: str) -> Any:
    if any(map(is_tensor, values)):
        return b.tensor(values, None, name)
    return b.const(np.array(values, np.int64 if _is_long(values) else np.int32), None, name)


def _is_long(values: list[int]) -> bool:
    return any(not -(2**31) <= v < 2**31 for v in values)


def _what(x: Any) -> str:
    name = getattr(x, "name", None)
    return f"'{name}'" if isinstance(name, str) and name else "a tensor"


def _show(index: Any) -> str:
    if isinstance(index, tuple):
        return ", ".join(map(_show, index))
    if isinstance(index, slice):
        parts = ["" if p is None else str(p) for p in (index.start, index.stop, index.step)]
        return ":".join(parts if parts[2] else parts[:2])
    return "..." if isinstance(index, EllipsisType) else str(index)
