"""Batching rules: one operation on all rows in place of one operation in each iteration.

If `x` is a row of `xs` in each iteration, then `tanh(x)` is a row of `tanh(xs)`. `x @ w` is a row of `xs @ w`; for this
product the first two dimensions of `xs` are merged, so that it is a single matrix product. A sum over dimension 0 of
`x` is a row of a sum over dimension 1 of `xs`. `batch` has such rules for some op types. Operations whose records say
that they are elementwise need no rule of their own.

Each input of an operation either has rows, that is one more dimension in front (`rows`), or is the same for all rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np

from headrace import shapes
from headrace.ir.analysis.speculatable import is_speculatable
from headrace.ir.infer import constant_value
from headrace.ir.opdef import PerElement
from headrace.opkit.elementwise import alike
from headrace.opkit.shape_rules import broadcast

if TYPE_CHECKING:
    from headrace.ir.builder import Builder
    from headrace.ir.graph import Operation, Tensor
    from headrace.shapes import Shape

# (builder, operation, batched inputs, whether each of them has rows) -> batched outputs
Rule: TypeAlias = "Callable[[Builder, Operation, Sequence[Tensor], Sequence[bool]], Sequence[Tensor]]"
Test: TypeAlias = "Callable[[Operation, Sequence[bool]], bool]"


def can_batch(op: Operation, rows: Sequence[bool]) -> bool:
    """Whether `op` can be applied to all rows at once.

    Then it cannot fail, and the result for each row equals the result for that row alone. Only the order of float sums
    may differ, because the library of matrix products chooses it.

    Args:
      op: an operation.
      rows: for each input, whether it has rows.
    """
    if not any(rows) or not is_speculatable(op):
        return False
    if _is_elementwise(op):
        return _lines_up(op, rows)
    found = _RULES.get(op.type)
    return found is not None and found[0](op, rows)


def batch(b: Builder, op: Operation, inputs: Sequence[Tensor], rows: Sequence[bool]) -> Sequence[Tensor]:
    """Applies `op` to all rows; `can_batch` must hold.

    Args:
      b: the builder for the new operations.
      op: the operation that each iteration runs.
      inputs: the tensors in place of its inputs, in the graph of `b`.
      rows: for each input, whether it has rows.

    Returns:
      The tensors in place of its outputs; all have rows.
    """
    if _is_elementwise(op):
        flat = _flat(inputs, rows)
        if flat is None:
            return _made(b, op, inputs)
        shape = next(t.op.inputs[1] for t, r in zip(inputs, rows, strict=True) if r)
        return [b.Reshape(y, shape, name=f"{op.name}/rows") for y in _made(b, op, flat)]
    return _RULES[op.type][1](b, op, inputs, rows)


def _made(b: Builder, op: Operation, inputs: Sequence[Tensor], **attrs: Any) -> Sequence[Tensor]:
    """Makes `op` on other inputs."""
    out = b.make(op.type, _arguments(op, inputs), {**op.attrs, **attrs}, op.name, op.notes)
    return out if isinstance(out, tuple) else (out,)


def _arguments(op: Operation, inputs: Sequence[Tensor]) -> list[Any]:
    spans = op.opdef.spans(op.attrs)
    return [list(inputs[spans[a.name]]) if a.is_list else inputs[spans[a.name]][0] for a in op.opdef.ins]


# *** elementwise ***


def _is_elementwise(op: Operation) -> bool:
    record = op.opdef
    if not isinstance(record.facts.cost, PerElement):
        return False
    return len(record.ins) == 1 or record.shape is broadcast or record.shape is alike


def _flat(inputs: Sequence[Tensor], rows: Sequence[bool]) -> list[Tensor] | None:
    """Returns inputs of an elementwise operation before rows were made of matrices, or None.

    So an operation on the rows of a product follows the product directly, and both can be computed together.
    """
    flat = []
    for t, r in zip(inputs, rows, strict=True):
        if not r and _rank(t.shape) in (0, 1):
            flat.append(t)
        elif r and t.op.type == "Reshape" and _rank(t.shape) == 3 and _rank(t.op.inputs[0].shape) == 2:
            flat.append(t.op.inputs[0])
        else:
            return None
    wide = {t.shape for t, r in zip((*inputs, *flat), (*rows, *rows), strict=True) if r}
    is_same = len(wide) == 2 and (sum(rows) == 1 or all(map(shapes.is_full, wide)))
    return flat if is_same and len({shape[-1] for shape in wide if shape is not None}) == 1 else None


def _lines_up(op: Operation, rows: Sequence[bool]) -> bool:
    """Whether the dimensions of the inputs align when some have a row dimension.

    All inputs with rows must have as many dimensions as the result.
    """
    rank = _rank(op.outputs[0].shape)
    if any(r and _rank(t.shape) != rank for t, r in zip(op.inputs, rows, strict=True)):
        return False
    return op.opdef.shape is not alike or all(rows)


def _rank(shape: Shape) -> int | None:
    return None if shape is None else len(shape)


# *** products ***


def _one_product(op: Operation, rows: Sequence[bool]) -> bool:
    x, y = op.inputs[0].shape, op.outputs[0].shape
    assert x is not None  # an unknown rank could fail, and `can_batch` excludes failures
    assert y is not None
    is_known = bool(x[1]) and y[1] is not None  # the numbers of columns, which the reshapes need
    return is_known and tuple(rows) == (True, False) and not op.attrs["transpose_a"]


def _product(b: Builder, op: Operation, inputs: Sequence[Tensor], rows: Sequence[bool]) -> Sequence[Tensor]:
    x, w = inputs
    assert x.shape is not None
    flat = b.Reshape(x, [-1, x.shape[2]], name=f"{op.name}/flat")
    (y,) = _made(b, op, [flat, w])
    assert y.shape is not None
    return [b.Reshape(y, front_shape(b, op, x, 2, y.shape[1:]), name=f"{op.name}/rows")]


def front_shape(b: Builder, op: Operation, x: Tensor, n: int, rest: Sequence[int | None]) -> Any:
    """Returns the first `n` dimensions of `x`, then `rest`, as a shape argument.

    It is a constant if all of these dimensions are known.
    """
    assert x.shape is not None
    dims = [*x.shape[:n], *rest]
    if None not in dims:
        return np.array(dims, np.int32)
    front = b.StridedSlice(b.Shape(x, name=f"{op.name}/all"), [0], [n], [1], name=f"{op.name}/front")
    return b.ConcatV2([front, np.array(rest, np.int32)], 0, name=f"{op.name}/shape") if rest else front


# *** shapes ***


def _only_first(op: Operation, rows: Sequence[bool]) -> bool:
    """Whether only the first input, the data, may have rows."""
    return not any(rows[1:])


def _as_it_is(b: Builder, op: Operation, inputs: Sequence[Tensor], rows: Sequence[bool]) -> Sequence[Tensor]:
    return _made(b, op, inputs)


def _bias(op: Operation, rows: Sequence[bool]) -> bool:
    return _only_first(op, rows) and op.attrs.get("data_format", "NHWC") == "NHWC"


def _axis_input(op: Operation, i: int) -> np.ndarray:
    """Axes that input `i` of `op` names, adjusted for the row dimension in front."""
    axes = constant_value(op.inputs[i])
    assert axes is not None
    return np.where(axes >= 0, axes + 1, axes).astype(axes.dtype)


def _concat(b: Builder, op: Operation, inputs: Sequence[Tensor], rows: Sequence[bool]) -> Sequence[Tensor]:
    return [b.ConcatV2(list(inputs[:-1]), _axis_input(op, len(inputs) - 1), name=op.name)]


def _split(b: Builder, op: Operation, inputs: Sequence[Tensor], rows: Sequence[bool]) -> Sequence[Tensor]:
    out = b.make("Split", (_axis_input(op, 0), inputs[1]), dict(op.attrs), op.name, op.notes)
    return out if isinstance(out, tuple) else (out,)


def _split_v(b: Builder, op: Operation, inputs: Sequence[Tensor], rows: Sequence[bool]) -> Sequence[Tensor]:
    out = b.make("SplitV", (inputs[0], inputs[1], _axis_input(op, 2)), dict(op.attrs), op.name, op.notes)
    return out if isinstance(out, tuple) else (out,)


def _slice(b: Builder, op: Operation, inputs: Sequence[Tensor], rows: Sequence[bool]) -> Sequence[Tensor]:
    begin, size = constant_value(op.inputs[1]), constant_value(op.inputs[2])
    assert begin is not None
    assert size is not None
    more = np.concatenate([np.zeros(1, begin.dtype), begin]), np.concatenate([np.full(1, -1, size.dtype), size])
    return [b.make("Slice", (inputs[0], *more), dict(op.attrs), op.name, op.notes)]


def _transpose(b: Builder, op: Operation, inputs: Sequence[Tensor], rows: Sequence[bool]) -> Sequence[Tensor]:
    perm = constant_value(op.inputs[1])
    assert perm is not None
    n = len(perm)
    more = np.concatenate([np.zeros(1, perm.dtype), perm % n + 1 if n else perm]).astype(perm.dtype)
    return [b.make("Transpose", (inputs[0], more), dict(op.attrs), op.name, op.notes)]


def _reduce(b: Builder, op: Operation, inputs: Sequence[Tensor], rows: Sequence[bool]) -> Sequence[Tensor]:
    return [b.make(op.type, (inputs[0], _axis_input(op, 1)), dict(op.attrs), op.name, op.notes)]


def _is_known_reshape(op: Operation, rows: Sequence[bool]) -> bool:
    return _only_first(op, rows) and shapes.is_full(op.outputs[0].shape)


def _reshape(b: Builder, op: Operation, inputs: Sequence[Tensor], rows: Sequence[bool]) -> Sequence[Tensor]:
    assert op.outputs[0].shape is not None
    return [b.Reshape(inputs[0], front_shape(b, op, inputs[0], 1, op.outputs[0].shape), name=op.name)]


_RULES: Final[Mapping[str, tuple[Test, Rule]]] = {
    "MatMul": (_one_product, _product),
    "BiasAdd": (_bias, _as_it_is),
    "ConcatV2": (lambda op, rows: all(rows[:-1]), _concat),
    "Split": (lambda op, rows: tuple(rows) == (False, True), _split),
    "SplitV": (_only_first, _split_v),
    "Slice": (_only_first, _slice),
    "Transpose": (_only_first, _transpose),
    "Reshape": (_is_known_reshape, _reshape),
    "ExpandDims": (_is_known_reshape, _reshape),
    "Squeeze": (_is_known_reshape, _reshape),
    **dict.fromkeys(("Softmax", "LogSoftmax"), (_only_first, _as_it_is)),  # along the last dimension
    **dict.fromkeys(("Sum", "Mean", "Max", "Min", "Prod"), (_only_first, _reduce)),
}
