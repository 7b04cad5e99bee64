"""`If`, `Loop` and `Scan` as the conditionals and loops of headrace.

A loop keeps its scan outputs in tensor arrays. Loop variables may change their shapes. A loop in a graph is traced with
the shapes of the initial values first; if the body returns a variable with another shape, the differing dimensions
become unknown and it is traced again.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence as Seq
from typing import Any, TypeAlias

from headrace.api import arrays, scopes, tensors
from headrace.api.cond import cond
from headrace.api.gathering import gather
from headrace.api.math import cast, logical_and
from headrace.api.tensor_array import TensorArray
from headrace.api.while_loop import while_loop
from headrace.dtypes import DType, float32, int32, int64
from headrace.errors import InvalidArgumentError
from headrace.ir.tensor_type import Tensor
from headrace.onnx.graphs import Body
from headrace.onnx.operators import Call, operator
from headrace.onnx.values import Optional, Value
from headrace.shapes import Shape

#: An iteration: its number and the loop variables → the new variables and the elements of the scan outputs.
Step: TypeAlias = Callable[[Any, Seq[Any]], tuple[list[Any], list[Any]]]


class _Traced(Exception):
    """Types that the results of a loop's body showed.

    Args:
      shapes: shapes of the loop variables that cover those of the results, too.
      dtypes: dtypes of the scan outputs.
    """

    def __init__(self, shapes: list[Shape], dtypes: list[DType]) -> None:
        self.shapes = shapes
        self.dtypes = dtypes


@operator("If", folds=False)
def if_(call: Call, condition: Tensor) -> Any:
    """Runs one of two graphs."""
    chosen = tensors.constant_value(condition)
    then, otherwise = call.bodies["then_branch"], call.bodies["else_branch"]
    if chosen is not None:
        return (then if chosen.reshape(-1)[0] else otherwise)()
    results = cond(arrays.reshape(condition, ()), lambda: _owned(then()), lambda: _owned(otherwise()))
    return results if isinstance(results, (list, tuple)) else [results]


@operator("Loop", folds=False)
def loop(call: Call, trips: Tensor | None = None, condition: Tensor | None = None, *carried: Value) -> Any:
    """Repeats a graph while its condition is true, up to the trip count."""
    body = call.bodies["body"]
    scans = len(body.graph.outputs) - 1 - len(carried)
    limit = None if trips is None else cast(arrays.reshape(trips, ()), int64)
    keep = tensors.constant(True) if condition is None else arrays.reshape(condition, ())

    def step(i: Any, variables: Seq[Any]) -> tuple[list[Any], list[Any]]:
        keep, *results = body(i, *variables)
        keep = arrays.reshape(keep, ())
        return [keep, *results[: len(carried)]], results[len(carried) :]

    def running(i: Any, keep: Any) -> Any:
        return keep if limit is None else logical_and(i < limit, keep)

    final, stacked = _iterate(body, running, step, [keep, *carried], scans, 1 + len(carried))
    return [*final[1:], *stacked]


def _iterate(
    body: Body,
    running: Callable[[Any, Any], Any],
    step: Step,
    variables: list[Any],
    scans: int,
    first_scan: int,
) -> tuple[list[Any], list[Any]]:
    """Runs a loop.

    Returns:
      The final variables, and the scan outputs stacked along their first axis.
    """
    infos = body.graph.infos[first_scan:]
    dtypes = [(infos[k].dtype if infos else None) or float32 for k in range(scans)]  # bodies in functions have no types
    declared: list[Shape] = [infos[k].shape if infos else None for k in range(scans)]
    shapes: list[Shape] = [v.shape if isinstance(v, Tensor) else None for v in variables]
    while True:
        try:
            return _run(running, step, variables, shapes, dtypes, declared)
        except _Traced as e:
            shapes, dtypes = e.shapes, e.dtypes


def _run(
    running: Callable[[Any, Any], Any],
    step: Step,
    variables: list[Any],
    shapes: list[Shape],
    dtypes: list[DType],
    declared: list[Shape],
) -> tuple[list[Any], list[Any]]:
    """Runs a loop whose variables have these shapes, and its scan outputs these dtypes.

    Raises:
      _Traced: the body's results have other shapes or dtypes.
    """
    symbolic = not scopes.is_outside()
    element_shapes = list(declared)

    def advance(i: Any, variables: Any, stacks: Any) -> Any:
        results, elements = step(i, variables)
        results = [_as_optional(v, r) for v, r in zip(variables, results, strict=True)]
        found = [_covering(s, r) for s, r in zip(shapes, results, strict=True)] if symbolic else shapes
        element_dtypes = [x.dtype.base for x in elements]
        if found != shapes or element_dtypes != dtypes:
            raise _Traced(found, element_dtypes)
        element_shapes[:] = [x.shape for x in elements]
        at = cast(i, int32)
        return i + 1, _owned(results), [s.write(at, x) for s, x in zip(stacks, elements, strict=True)]

    count, final, stacks = while_loop(
        lambda i, variables, stacks: running(i, variables[0]),
        advance,
        (
            tensors.constant(0, int64),
            list(variables),
            [TensorArray(d, size=0, dynamic_size=True, infer_shape=False) for d in dtypes],
        ),
        shape_invariants=((), list(shapes), [None] * len(dtypes)) if symbolic else None,
    )
    return final, [_stacked(s, count, d, e) for s, d, e in zip(stacks, dtypes, element_shapes, strict=True)]


def _stacked(stack: TensorArray, count: Any, dtype: Any, shape: Shape) -> Any:
    """Stacked elements of a tensor array.

    Without elements the result has the static element shape, with 0 for each unknown size.
    """
    empty = (0, *[d or 0 for d in shape or ()])
    result = cond(count > 0, stack.stack, lambda: arrays.zeros(empty, dtype))
    if scopes.is_outside() or shape is None:
        return result
    return tensors.ensure_shape(result, (None, *shape))


def _as_optional(variable: Any, value: Any) -> Any:
    """Returns a result, as a present optional value where the loop variable is optional."""
    if isinstance(variable, Optional) and not isinstance(value, Optional):
        return Optional(tensors.constant(True), value)
    return value


def _covering(shape: Shape, value: Any) -> Shape:
    """The smallest shape that covers `shape` and that of `value`."""
    if not isinstance(value, Tensor) or shape is None or value.shape is None or len(shape) != len(value.shape):
        return None
    return tuple([a if a == b else None for a, b in zip(shape, value.shape, strict=True)])


def _owned(values: Seq[Any]) -> list[Any]:
    """Values with an operation in the current graph for each tensor from outside."""
    return [tensors.identity(v) if isinstance(v, Tensor) else v for v in values]


@operator("Scan", folds=False)
def scan8(call: Call, lengths: Tensor | None, *values: Any) -> Any:
    """Runs a graph over the elements of the sequences of a batch."""
    if lengths is not None:
        raise InvalidArgumentError(f"the {call.node} has sequence lengths, which only version 8 has; export it for 9")
    n = call["num_scan_inputs"]
    rows = [arrays.unstack(v, axis=0) for v in values]
    directions = call.get("directions") or [0] * n
    results = [_scan(call.bodies["body"], row, n, [0] * n, directions, None, None) for row in zip(*rows, strict=True)]
    return [arrays.stack(columns, axis=0) for columns in zip(*results, strict=True)]


@operator("Scan", since=9, folds=False)
def scan(call: Call, *values: Any) -> Any:
    """Runs a graph over the elements of sequences."""
    n = call["num_scan_inputs"]
    return _scan(
        call.bodies["body"],
        values,
        n,
        call.get("scan_input_axes") or [0] * n,
        call.get("scan_input_directions") or [0] * n,
        call.get("scan_output_axes"),
        call.get("scan_output_directions"),
    )


def _scan(
    body: Body,
    values: Seq[Any],
    n: int,
    axes: Seq[int],
    directions: Seq[int],
    output_axes: Seq[int] | None,
    output_directions: Seq[int] | None,
) -> list[Any]:
    states, inputs = list(values[: len(values) - n]), values[len(values) - n :]
    sequences = [_moved(x, axis, 0, backward) for x, axis, backward in zip(inputs, axes, directions, strict=True)]
    length = arrays.shape(sequences[0], int64)[0]
    scans = len(body.graph.outputs) - len(states)

    def step(i: Any, variables: Seq[Any]) -> tuple[list[Any], list[Any]]:
        results = body(*variables[1:], *[gather(s, i) for s in sequences])
        return [variables[0], *results[: len(states)]], results[len(states) :]

    final, stacked = _iterate(
        body, lambda i, _: i < length, step, [tensors.constant(True), *states], scans, len(states)
    )
    out_axes, out_directions = output_axes or [0] * scans, output_directions or [0] * scans
    return [
        *final[1:],
        *[_moved(x, 0, a, d) for x, a, d in zip(stacked, out_axes, out_directions, strict=True)],
    ]


def _moved(x: Tensor, source: int, target: int, backward: int) -> Tensor:
    """`x` with an axis moved and, if `backward`, reversed."""
    if source == target == 0:
        return arrays.reverse(x, [0]) if backward else x
    if x.shape is None:
        raise InvalidArgumentError("a Scan along an axis other than the first needs inputs of known rank")
    rank = len(x.shape)
    order = [a for a in range(rank) if a != source % rank]
    order.insert(target % rank, source % rank)
    moved = arrays.transpose(x, order)
    return arrays.reverse(moved, [target % rank]) if backward else moved
