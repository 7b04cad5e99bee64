"""Assignment to elements of tensors: `m[i, 1:] = v` as a new tensor."""

from __future__ import annotations

from typing import Any

import numpy as np

from headrace import dtypes
from headrace.api import arrays, gathering, reductions, scopes
from headrace.autograph.operators import values
from headrace.errors import AutographError


def updated(x: Any, index: Any, value: Any) -> Any:
    """Returns `x` with the elements of an index replaced.

    Args:
      x: a tensor.
      index: an integer, a slice, `...`, a boolean mask, or a tuple of them without masks.
      value: a value of the shape of `x[index]`, or one that broadcasts to it.

    Raises:
      AutographError: the index has another kind of entry.
    """
    b = scopes.builder(x, value)
    if not values.is_weak_value(value) and values.is_tensor_like(value):
        dtype, own = values.dtype_of(value), x.dtype.base
        is_tensor = values.is_symbolic(value) or values.is_value(value)
        if dtype is not own and is_tensor:
            raise AutographError(
                f"an element of {values.described(x)} is assigned {values.described(value)}; cast it (hr.cast)"
            )
        value = b.tensor(value) if is_tensor else b.tensor(np.asarray(value), own)
    else:
        value = values.converted(value, x.dtype.base) if values.is_tensor_like(value) else b.tensor(value, x.dtype.base)
    if _is_mask(index):
        mask = b.tensor(index)
        while len(mask.shape) < len(x.shape):
            mask = arrays.expand_dims(mask, -1)
        return gathering.where(mask, arrays.broadcast_to(value, arrays.shape(x)), x)
    simple = _as_row(x, index)
    if simple is not None and not (value.shape is None or len(value.shape) > len(x.shape) - len(simple)):
        return _scattered(b, x, simple, value)
    size = reductions.reduce_prod(arrays.shape(x)) if None in (x.shape or (None,)) else int(np.prod(x.shape))
    places = arrays.reshape(reductions.range(size), arrays.shape(x))[index]
    wide = arrays.broadcast_to(value, arrays.shape(places))
    flat = gathering.tensor_scatter_nd_update(
        arrays.reshape(x, [-1]), arrays.reshape(places, [-1, 1]), arrays.reshape(wide, [-1])
    )
    out = arrays.reshape(flat, arrays.shape(x))
    if values.is_symbolic(out):
        out.set_shape(x.shape)
    return out


def _is_mask(index: Any) -> bool:
    if isinstance(index, np.ndarray):
        return bool(index.dtype == np.bool_)
    return values.is_tensor(index) and bool(index.dtype.base is dtypes.bool_)


def _as_row(x: Any, index: Any) -> list[Any] | None:
    """Returns the integers of an index that has nothing else; None for other indices."""
    entries = list(index) if isinstance(index, tuple) else [index]
    for e in entries:
        is_scalar = values.is_tensor(e) and e.dtype.is_integer and tuple(e.shape or (1,)) == ()
        if not isinstance(e, (int, np.integer)) and not is_scalar:
            return None
        if isinstance(e, bool):
            return None
    return entries if x.shape is not None and len(entries) <= len(x.shape) else None


def _scattered(b: Any, x: Any, index: list[Any], value: Any) -> Any:
    """Returns `x` with one element, or one row, replaced."""
    parts = []
    for k, e in enumerate(index):
        length = x.shape[k]
        if values.is_tensor(e):
            e = b.tensor(e)
            e = e if e.dtype.base is dtypes.int64 else b.Cast(e, DstT=dtypes.int64)
            limit = length if length is not None else b.Cast(arrays.shape(x)[k], DstT=dtypes.int64)
            parts.append(b.SelectV2(b.Less(e, 0), b.AddV2(e, limit), e))
        elif e >= 0:
            if length is not None and e >= length:
                raise IndexError(f"index {e} is out of range for axis {k} of size {length}, of {values.described(x)}")
            parts.append(int(e))
        elif length is not None:
            if e < -length:
                raise IndexError(f"index {e} is out of range for axis {k} of size {length}, of {values.described(x)}")
            parts.append(int(e) + length)
        else:
            parts.append(b.Cast(arrays.shape(x)[k] + int(e), DstT=dtypes.int64))
    known = all(isinstance(p, int) for p in parts)
    at = b.tensor(np.array(parts, np.int64)) if known else b.Pack([b.tensor(p, dtypes.int64) for p in parts])
    row = arrays.shape(x)[len(index) :]
    wide = value if value.shape is not None and len(value.shape) == len(x.shape) - len(index) == 0 else None
    if wide is None:
        wide = arrays.broadcast_to(value, row)
    out = gathering.tensor_scatter_nd_update(x, arrays.expand_dims(at, 0), arrays.expand_dims(wide, 0))
    return out
