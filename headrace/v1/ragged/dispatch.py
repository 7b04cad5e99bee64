"""Functions of tensors that take ragged tensors: elementwise ones, `tf.concat`, reductions and some others.

This module registers an override of them (`headrace.v1.overrides`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from headrace import dtypes
from headrace.v1 import array_ops, math_ops, overrides
from headrace.v1.ragged.making import as_ragged, join
from headrace.v1.ragged.ragged_tensor import RaggedTensor, RaggedTensorValue, gather_rows, map_flat_values
from headrace.v1.scoping import name_scope

#: Functions whose result has the rows of their arguments: TensorFlow's list of elementwise functions.
ELEMENTWISE = frozenset(
    (
        "abs acos acosh add add_v2 angle as_string asin asinh atan atan2 atanh bitwise_and bitwise_or bitwise_xor "
        "cast ceil check_numerics clip_by_value complex conj cos cosh decode_base64 decode_raw digamma div "
        "div_no_nan divide elu encode_base64 equal erf erfc erfinv exp expm1 floor floordiv floormod gelu greater "
        "greater_equal identity imag invert is_finite is_inf is_nan leaky_relu left_shift length less less_equal "
        "lgamma log log1p log_sigmoid logical_and logical_not logical_or logical_xor lower maximum minimum mod "
        "multiply multiply_no_nan ndtri negative not_equal ones_like pow real realdiv reciprocal regex_full_match "
        "regex_replace relu relu6 right_shift rint round rsqrt saturate_cast selu sigmoid sign silu sin sinh "
        "softplus softsign sqrt square squared_difference string_to_hash_bucket string_to_hash_bucket_fast "
        "string_to_hash_bucket_strong string_to_number strip substr subtract swish tan tanh to_hash_bucket "
        "to_hash_bucket_fast to_hash_bucket_strong to_number truediv truncatediv truncatemod unicode_script "
        "unicode_transcode upper xdivy xlogy zeros_like"
    ).split()
)


def _first(args: Any, kwargs: Any, *names: str) -> list[Any]:
    """Returns the first arguments of a call, by their names."""
    found = list(args[: len(names)])
    return found + [kwargs.get(name) for name in names[len(found) :]]


def _concat(args: Any, kwargs: Any) -> Any:
    values, axis = _first(args, kwargs, "values", "axis")
    rows = [as_ragged(x) for x in values]
    rank = next(x.get_shape().ndims for x in rows if isinstance(x, RaggedTensor))
    axis = axis + rank if axis < 0 else axis
    if axis not in (0, 1):
        raise ValueError(f"concat joins ragged tensors along the axes 0 and 1, got {axis}")
    rows = [x if isinstance(x, RaggedTensor) else RaggedTensor.from_tensor(x) for x in rows]
    with name_scope("RaggedConcat"):
        joined = join(rows)
        if axis == 0:
            return joined
        count, one = len(rows), rows[0].nrows()
        order = array_ops.reshape(math_ops.range(one * count), array_ops.stack([count, one]))
        parts = gather_rows(joined, array_ops.reshape(array_ops.transpose(order), [-1]))
        ends = array_ops.gather(parts.row_splits, math_ops.range(0, one * count + 1, count))
        return RaggedTensor.from_row_splits(parts.values, ends, validate=False)


_SEGMENTS: dict[str, Callable[..., Any]] = {
    "reduce_sum": math_ops.unsorted_segment_sum,
    "reduce_prod": math_ops.unsorted_segment_prod,
    "reduce_max": math_ops.unsorted_segment_max,
    "reduce_min": math_ops.unsorted_segment_min,
}
_WHOLE = {
    "reduce_sum": math_ops.reduce_sum,
    "reduce_prod": math_ops.reduce_prod,
    "reduce_max": math_ops.reduce_max,
    "reduce_min": math_ops.reduce_min,
    "reduce_mean": math_ops.reduce_mean,
    "reduce_any": math_ops.reduce_any,
    "reduce_all": math_ops.reduce_all,
}


def _reduce(kind: str, args: Any, kwargs: Any) -> Any:
    x, axis, keepdims = _first(args, kwargs, "input_tensor", "axis", "keepdims")
    axis = kwargs.get("reduction_indices", axis) if axis is None else axis
    if keepdims or kwargs.get("keep_dims"):
        raise ValueError(f"{kind} of a ragged tensor keeps no axes")
    if axis is None:
        return _WHOLE[kind](x.flat_values)
    axes = sorted(
        {i + x.get_shape().ndims if i < 0 else i for i in (axis if isinstance(axis, (list, tuple)) else [axis])}
    )
    with name_scope("RaggedReduce"):
        for i in reversed(axes):
            x = _reduced(kind, x, i) if isinstance(x, RaggedTensor) else _WHOLE[kind](x, axis=i)
        return x


def _reduced(kind: str, x: RaggedTensor, axis: int) -> Any:
    """Reduces one axis of a ragged tensor."""
    if kind == "reduce_mean":
        ones = x.with_flat_values(array_ops.ones_like(x.flat_values))
        total, count = _reduced("reduce_sum", x, axis), _reduced("reduce_sum", ones, axis)
        return map_flat_values(math_ops.divide, total, count) if isinstance(total, RaggedTensor) else total / count
    if kind in ("reduce_any", "reduce_all"):
        numbers = x.with_flat_values(math_ops.cast(x.flat_values, dtypes.int32))
        # an empty row has no True and no False
        found = _reduced("reduce_max" if kind == "reduce_any" else "reduce_min", numbers, axis)
        return map_flat_values(lambda y: math_ops.greater(y, 0), found)
    if axis > 1:
        inner = x.values
        rest = (
            _reduced(kind, inner, axis - 1) if isinstance(inner, RaggedTensor) else _WHOLE[kind](inner, axis=axis - 1)
        )
        return x.with_values(rest)
    if isinstance(x.values, RaggedTensor):
        raise ValueError(f"{kind} reduces the innermost ragged axis and those below it, got the axis {axis} of {x!r}")
    if axis == 1:
        return _SEGMENTS[kind](x.values, x.value_rowids(), math_ops.cast(x.nrows(), dtypes.int32))
    places = math_ops.range(x.row_splits[-1]) - array_ops.gather(x.row_starts(), x.value_rowids())
    width = math_ops.cast(x.bounding_shape(axis=1), dtypes.int32)
    return _SEGMENTS[kind](x.values, places, width)


def _where(args: Any, kwargs: Any) -> Any:
    condition, x, y = _first(args, kwargs, "condition", "x", "y")
    if x is None and y is None:
        raise ValueError("where of a ragged condition needs x and y")
    return map_flat_values(array_ops.where_v2, condition, x, y)


_OTHERS: dict[str, Callable[[Any, Any], Any]] = {
    "concat": _concat,
    "where": _where,
    "where_v2": _where,
    "size": lambda args, kwargs: array_ops.size(
        args[0].flat_values, out_type=_first(args, kwargs, "input", "name", "out_type")[2] or dtypes.int32
    ),
    "rank": lambda args, kwargs: array_ops.rank(args[0].flat_values) + args[0].ragged_rank,
    "gather": lambda args, kwargs: gather_rows(*_first(args, kwargs, "params", "indices")),
}


def _takes_ragged(api: Callable[..., Any]) -> bool:
    name = api.__name__
    return name in ELEMENTWISE or name in _WHOLE or name in _OTHERS


def _call(f: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    """Returns the result of a function of ragged tensors; NotImplemented if no argument is ragged."""
    name = f.__name__
    flat = [y for x in (*args, *kwargs.values()) for y in (x if type(x) in (list, tuple) else [x])]
    if not any(isinstance(x, (RaggedTensor, RaggedTensorValue)) for x in flat):
        return NotImplemented
    if name in ELEMENTWISE:
        args = [as_ragged(x) if isinstance(x, RaggedTensorValue) else x for x in args]
        return map_flat_values(f, *args, **kwargs)
    if name in _WHOLE:
        return _reduce(name, args, kwargs)
    return _OTHERS[name](args, kwargs)


overrides.register(_takes_ragged, _call)
