"""Conversion of ragged tensors to and from variants, and RaggedRange.

Source: TensorFlow's RaggedTensorToVariant, RaggedTensorFromVariant and RaggedRange. A ragged tensor is a flat array of
values and, for each ragged dimension from the outermost on, *row splits*: row i consists of the elements `splits[i]` to
`splits[i + 1]` of the next inner dimension or the values.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from headrace import dtypes, shapes
from headrace.dtypes import INDEX, VALUE, DType
from headrace.errors import InvalidArgumentError
from headrace.ir.infer import Inference
from headrace.ir.opdef import (
    NOT_DIFFERENTIABLE,
    Facts,
    bool_attr,
    case,
    flops_per_element,
    int_attr,
    missing,
    op,
    type_attr,
)
from headrace.opkit.arrays import check_size, dims
from headrace.opkit.jvp_rules import linear
from headrace.records import record
from headrace.shapes import Dim, Shape

_SPLITS = type_attr(INDEX, dtypes.int64)


@record(frozen=True, slots=True, eq=False)
class RaggedVariant:
    """A ragged tensor as the value of a variant. Immutable.

    Attributes:
      splits: the row splits, outermost first.
      values: the flat values.
    """

    splits: tuple[np.ndarray, ...]
    values: Any

    def zeros_like(self) -> RaggedVariant:
        """The ragged tensor of the same rows with zeros in it."""
        return RaggedVariant(self.splits, np.zeros(self.values.shape, self.values.dtype))

    def add(self, other: RaggedVariant) -> RaggedVariant:
        """The elementwise sum; the rows must be the same."""
        if self.values.shape != other.values.shape or len(self.splits) != len(other.splits):
            raise InvalidArgumentError("cannot add ragged tensors of different rows")
        return RaggedVariant(self.splits, self.values + other.values)


# *** RaggedTensorToVariant ***


def _checked_splits(nested: Sequence[Any], values: Any) -> None:
    """Raises `InvalidArgumentError` unless each row splits vector cuts up what lies below it."""
    below = [*(len(s) - 1 if s.ndim == 1 else -1 for s in nested[1:]), values.shape[0] if values.ndim else -1]
    for splits, n in zip(nested, below):
        if splits.ndim != 1 or not len(splits):
            raise InvalidArgumentError(f"Invalid row splits: must be a vector with an element, got {splits.tolist()}")
        if splits[0] != 0 or (np.diff(splits) < 0).any() or splits[-1] != n:
            raise InvalidArgumentError(
                f"Invalid row splits: must begin with 0, never fall and end with {n}, got {splits.tolist()}"
            )


def _rows(nested: Sequence[Any], values: Any) -> list[RaggedVariant]:
    """The ragged tensor's rows along its outermost dimension."""
    if not nested:
        if not values.ndim:
            raise InvalidArgumentError("batched_input is True, but input is a scalar, which has no rows")
        return [RaggedVariant((), values[i, ...]) for i in range(len(values))]
    out = []
    for start, end in zip(nested[0].tolist(), nested[0].tolist()[1:]):
        inner = []
        for splits in nested[1:]:
            part = splits[start : end + 1]
            inner.append(part - part[0])
            start, end = int(part[0]), int(part[-1])
        out.append(RaggedVariant(tuple(inner), values[start:end]))
    return out


def _to_variant_kernel(attrs: Mapping[str, Any]) -> Any:
    batched = attrs["batched_input"]

    def kernel(*args: Any) -> Any:
        *nested, values = args
        _checked_splits(nested, values)
        if not batched:
            return RaggedVariant(tuple(nested), values)
        rows = _rows(nested, values)
        out = np.empty(len(rows), object)
        out[:] = rows
        return out

    return kernel


def _to_variant_shape(c: Inference) -> Sequence[Shape]:
    *nested, values = c.shapes
    for s in nested:
        shapes.with_rank(s, 1)
    if nested:
        shapes.with_rank_at_least(values, 1)
    if not c.attrs["batched_input"]:
        return [()]
    if not nested:
        rows: Dim = None if values is None else shapes.with_rank_at_least(values, 1)[0]  # type: ignore[index]
        return [(rows,)]
    (n,) = shapes.with_rank(nested[0], 1)
    return [(None if n is None else n - 1,)]


def _to_variant_grad(b: Any, n: Any, dy: Any) -> list[Any]:
    nested, values = n.rt_nested_splits, n.rt_dense_values
    splits = nested[0] if nested else b.const(np.zeros((), n.attrs["Tsplits"].numpy))
    d = b.RaggedTensorToVariantGradient(dy, splits, b.Shape(values), Tvalues=n.attrs["Tvalues"])
    return [None] * len(nested) + [d]


op(
    "RaggedTensorToVariant",
    "rt_nested_splits: RAGGED_RANK * Tsplits, rt_dense_values: Tvalues",
    "encoded_ragged: variant",
    {
        "RAGGED_RANK": int_attr(minimum=0),
        "Tvalues": type_attr(VALUE),
        "Tsplits": _SPLITS,
        "batched_input": bool_attr(),
    },
    shape=_to_variant_shape,
    kernel=_to_variant_kernel,
    xp=False,
    grad=_to_variant_grad,
    jvp=linear("rt_dense_values"),
    doc="A ragged tensor as a variant, or as a vector of variants, one a row.",
)


def _variant_gradient_kernel(attrs: Mapping[str, Any]) -> Any:
    dtype = attrs["Tvalues"].numpy

    def kernel(encoded: Any, splits: Any, shape: Any) -> Any:
        wanted = dims(shape)
        if isinstance(encoded, RaggedVariant):
            return np.reshape(encoded.values, wanted)
        if not isinstance(encoded, np.ndarray):
            raise InvalidArgumentError(f"encoded_ragged_grad should hold ragged tensors, not {type(encoded).__name__}")
        rows = encoded.ravel()
        sizes = np.diff(splits) if splits.ndim else np.ones(len(rows), np.int64)
        if len(sizes) != len(rows):
            raise InvalidArgumentError(f"row_splits are of {len(sizes)} rows, the gradient has {len(rows)}")
        row = wanted[1:]
        parts = [np.zeros((0, *row), dtype)]
        for v, n in zip(rows, sizes.tolist()):
            # a row that nothing depends on has no gradient
            parts.append(v.values.reshape(-1, *row) if isinstance(v, RaggedVariant) else np.zeros((n, *row), dtype))
        return np.concatenate(parts).reshape(wanted)

    return kernel


op(
    "RaggedTensorToVariantGradient",
    "encoded_ragged_grad: variant, row_splits: Tsplits, dense_values_shape: int32",
    "dense_values_grad: Tvalues",
    {"Tvalues": type_attr(VALUE), "Tsplits": _SPLITS},
    shape=lambda c: [c.shape_value(2)],
    kernel=_variant_gradient_kernel,
    xp=False,
    grad=missing("it computes a gradient itself, and no op is its derivative; use dense tensors"),
    facts=Facts(dynamic_shape=True, cost=flops_per_element(1)),
    doc="The values of a RaggedTensorToVariant's gradient.",
)

# *** RaggedTensorFromVariant ***


def _stacked(encoded: Any, inner: int, values_dtype: DType, splits_dtype: DType) -> list[Any]:
    """Splits and values of the ragged tensor whose rows are the array `encoded`.

    Each element of `encoded` is a ragged tensor.
    """
    rows = encoded.ravel()
    out: list[np.ndarray] = []
    count = 1
    for n, below in zip(encoded.shape, encoded.shape[1:]):
        count *= n
        out.append(np.arange(count + 1) * below)
    levels = [[r.splits[k] for r in rows] for k in range(inner)]
    sizes = [len(r.splits[0]) - 1 if inner else r.values.shape[0] for r in rows]
    out.append(np.cumsum([0, *sizes]))
    for level in levels:
        ends = np.cumsum([0, *(int(s[-1]) for s in level)])
        out.append(np.concatenate([[0], *(s[1:] + end for s, end in zip(level, ends))]))
    nested: list[Any] = [s.astype(splits_dtype.numpy) for s in out]
    values = [r.values for r in rows]
    return [*nested, np.concatenate(values) if values else np.zeros(0, values_dtype.numpy)]


def _from_variant_kernel(attrs: Mapping[str, Any]) -> Any:
    outer, values_dtype, splits_dtype = attrs["output_ragged_rank"], attrs["Tvalues"], attrs["Tsplits"]

    def kernel(encoded: Any) -> Any:
        rank = np.ndim(encoded) if isinstance(encoded, np.ndarray) else 0
        inner = attrs["input_ragged_rank"]
        if inner == -1:
            inner = outer - rank
        if inner < 0 or outer != inner + rank:
            raise InvalidArgumentError(
                "output_ragged_rank must be equal to input_ragged_rank + encoded_ragged.dims(): "
                f"{outer} is not {attrs['input_ragged_rank']} + {rank}"
            )
        rows = encoded.ravel() if rank else [encoded]
        for r in rows:
            _check_row(r, inner, values_dtype, splits_dtype, bool(rank))
        found = _stacked(encoded, inner, values_dtype, splits_dtype) if rank else [*rows[0].splits, rows[0].values]
        return tuple(found) if outer else found[0]

    return kernel


def _check_row(row: Any, inner: int, values_dtype: DType, splits_dtype: DType, stacked: bool) -> None:
    if not isinstance(row, RaggedVariant):
        raise InvalidArgumentError(f"Input Variant element doesn't hold a RaggedTensorVariant, but {row!r}")
    if len(row.splits) != inner:
        raise InvalidArgumentError(
            f"Encoded input RaggedTensorVariant has ragged_rank={len(row.splits)}. Expected ragged_rank={inner}."
        )
    if row.values.dtype != values_dtype.numpy:
        raise InvalidArgumentError(f"Expected values Tensor dtype: {values_dtype.name}, found: {row.values.dtype}")
    if any(s.dtype != splits_dtype.numpy for s in row.splits):
        raise InvalidArgumentError(f"Expected row_splits Tensor dtype: {splits_dtype.name}")
    if stacked and not row.values.ndim:
        raise InvalidArgumentError("Requires values of rank at least 1 to stack the rows, got a scalar")


def _from_variant_shape(c: Inference) -> Sequence[Shape]:
    outer, inner = c.attrs["output_ragged_rank"], c.attrs["input_ragged_rank"]
    if inner != -1:
        shapes.with_rank(c.shapes[0], outer - inner)
    return [(None,)] * outer + [None]


def _from_variant_grad(b: Any, n: Any, *dys: Any) -> list[Any]:
    nested = [n.outputs[i] for i in range(len(dys) - 1)]
    batched = n.attrs["input_ragged_rank"] != n.attrs["output_ragged_rank"] and n.encoded_ragged.shape != ()
    return [b.RaggedTensorToVariant(nested, dys[-1], batched_input=batched, Tsplits=n.attrs["Tsplits"])]


op(
    "RaggedTensorFromVariant",
    "encoded_ragged: variant",
    "output_nested_splits: output_ragged_rank * Tsplits, output_dense_values: Tvalues",
    {
        "input_ragged_rank": int_attr(minimum=-1),
        "output_ragged_rank": int_attr(minimum=0),
        "Tvalues": type_attr(VALUE),
        "Tsplits": _SPLITS,
    },
    shape=_from_variant_shape,
    kernel=_from_variant_kernel,
    xp=False,
    grad=_from_variant_grad,
    jvp=linear("encoded_ragged"),
    doc="The ragged tensor in a variant, or the one whose rows are in an array of variants.",
)

# *** RaggedRange ***


def _ragged_range_kernel(attrs: Mapping[str, Any]) -> Any:
    dtype, splits_dtype = attrs["T"], attrs["Tsplits"]

    def kernel(starts: Any, limits: Any, deltas: Any) -> Any:
        lengths = {len(x) for x in (starts, limits, deltas) if x.ndim == 1}
        if max(x.ndim for x in (starts, limits, deltas)) > 1 or len(lengths) > 1:
            raise InvalidArgumentError("starts, limits, and deltas must have the same shape: scalars, or vectors")
        n = lengths.pop() if lengths else 1
        starts, limits, deltas = (np.broadcast_to(x, (n,)) for x in (starts, limits, deltas))
        if (deltas == 0).any():
            raise InvalidArgumentError("Requires delta != 0")
        sizes = np.array([_steps(*row) for row in zip(starts, limits, deltas)], np.float64)
        if not sizes.sum() < 2.0**62:
            raise InvalidArgumentError(f"Requires ((limit - start) / delta) < 2**62, got {sizes.max()}")
        counts = sizes.astype(np.int64)
        check_size((int(counts.sum()), 2), dtypes.int64)  # temporary arrays
        splits = np.concatenate([[0], np.cumsum(counts)])
        place = np.arange(splits[-1]) - np.repeat(splits[:-1], counts)
        values = place.astype(dtype.numpy) * np.repeat(deltas, counts) + np.repeat(starts, counts)
        return splits.astype(splits_dtype.numpy), values

    return kernel


def _steps(start: Any, limit: Any, delta: Any) -> float:
    """Number of elements of the range."""
    if start == limit or (delta > 0) == (start > limit):
        return 0
    if delta.dtype.kind == "i":
        return -((int(start) - int(limit)) // int(delta))
    return float(np.ceil(np.abs((limit - start) / delta)))


def _ragged_range_shape(c: Inference) -> Sequence[Shape]:
    n: Dim = None
    for s in c.shapes:
        full = shapes.with_rank_at_most(s, 1)
        if full:
            n = shapes.merge_dim(n, full[0])
    rows = 1 if all(s == () for s in c.shapes) else n
    return [(None if rows is None else rows + 1,), (None,)]


def _ragged_range_model(starts: Any, limits: Any, deltas: Any) -> tuple[np.ndarray, np.ndarray]:
    rows = [np.arange(*map(float, row)) for row in np.broadcast(np.ravel(starts), np.ravel(limits), np.ravel(deltas))]
    return np.cumsum([0, *map(len, rows)]), np.concatenate(rows).astype(starts.dtype)


op(
    "RaggedRange",
    "starts: T, limits: T, deltas: T",
    "rt_nested_splits: Tsplits, rt_dense_values: T",
    {
        "T": type_attr({dtypes.bfloat16, dtypes.float32, dtypes.float64, *INDEX}, dtypes.int32),
        "Tsplits": _SPLITS,
    },
    shape=_ragged_range_shape,
    kernel=_ragged_range_kernel,
    xp=False,
    grad=NOT_DIFFERENTIABLE,
    facts=Facts(dynamic_shape=True, cost=flops_per_element(5)),
    oracle=_ragged_range_model,
    sample=lambda rng, dtype: [
        case(*(np.array(v, dtype.numpy) for v in args))
        for args in (([0, 5, 8], [3, 5, 12], [1, 1, 2]), (0, [3, 0, 2], 1), (7, 1, -2), ([2, 5], [5, 2], [1, -1]))
    ],
    doc="A ragged tensor whose row i counts from `starts[i]` to `limits[i]` in steps of `deltas[i]`.",
)
