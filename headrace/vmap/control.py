"""Conditionals, loops and calls for a batch of examples.

If the predicate is the same for all examples, a conditional stays a conditional and a loop stays a loop, of batches.

**Batched predicates.** A conditional whose predicate differs between examples computes each branch that some example
takes, and selects. A loop runs while the condition of some example holds; `going` states for each example whether its
condition still holds, and an example that has ended keeps its values.

A branch sees only values with which an example takes it: the rows of the other examples are replaced by the row of one
that takes the branch. So no operation fails, and no gradient becomes NaN, for an example that plain Python would not
have computed. For a body it is the same, with the examples that have not ended.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from headrace import dtypes, shapes
from headrace.api import tracing
from headrace.errors import UnimplementedError
from headrace.ir.builder import Builder
from headrace.ir.function import base_name
from headrace.ir.graph import FuncGraph, Tensor
from headrace.ir.order import follow_order
from headrace.opkit.batch_node import batch_dims, spread, with_ones

if TYPE_CHECKING:
    from headrace.ir.graph import Operation
    from headrace.shapes import Shape
    from headrace.vmap.walks import Walk


def of_call(m: Walk, b: Builder, op: Operation, inputs: Sequence[Tensor]) -> Sequence[Tensor]:
    """Returns the outputs of a call: the operations of its function stand in its place.

    A call with notes (one that computes its values again for its gradient) stays a call.
    """
    (function,) = m.flow.graphs(op)
    ends = m.flow.batched
    if not op.notes:
        inner = Builder(b.graph, f"{b.scope}{_last(op)}/", b.device, b.control_inputs, op.source)
        return _spread(m, inner, m.run(inner, function, inputs), function.results, op.outputs)
    graph, inner = _graph(b, op, function)
    params = [graph.add_param(t.dtype, t.static_shape, t.op.name, handle=t.handle) for t in inputs]
    results = _spread(m, inner, m.run(inner, function, params), function.results, op.outputs)
    tracing.finish(graph, results)
    assert all((t in ends) == (p in ends) for t, p in zip(op.inputs, function.params, strict=True))
    attrs = {"f": graph, "Tout": tuple(t.dtype.base for t in results)}
    type = "StatefulPartitionedCall" if tracing.is_stateful(graph) else "PartitionedCall"
    outer = [t for t, _ in graph.captured]
    made = b.after(*graph.outer_controls).make(type, ([*inputs, *outer],), attrs, _last(op), op.notes)
    return tracing.operation_of(made).outputs


def of_branches(m: Walk, b: Builder, op: Operation, inputs: Sequence[Tensor]) -> Sequence[Tensor]:
    """Returns the outputs of an If or Case."""
    graphs = m.flow.graphs(op)
    if op.inputs[0] in m.flow.batched:
        return _selected(m, b, op, inputs, graphs)
    made = []
    for g in graphs:
        graph, inner = _graph(b, op, g)
        given = [graph.capture(t) for t in inputs[1:]]
        tracing.finish(graph, _spread(m, inner, m.run(inner, g, given), g.results, op.outputs))
        made.append(graph)
    owner = tracing.make(
        op.opdef.structured, b, _last(op), made, [inputs[0]], [], {**_owned_by(op, made), **_types(made[0])}, op.notes
    )
    return owner.outputs


def _owned_by(op: Operation, graphs: Sequence[FuncGraph]) -> dict[str, Any]:
    if op.opdef.structured == "Case":
        return {"branches": tuple(graphs)}
    return dict(zip(("then_branch", "else_branch"), graphs, strict=True))


def _types(graph: FuncGraph) -> dict[str, Any]:
    return {"Tout": tuple(t.dtype.base for t in graph.results)}


# *** conditionals with a batched predicate ***


def _selected(
    m: Walk, b: Builder, op: Operation, inputs: Sequence[Tensor], graphs: Sequence[FuncGraph]
) -> Sequence[Tensor]:
    """Returns the results of all branches, selected for each example."""
    masks = _masks(b, op, inputs[0], len(graphs))
    total: list[Tensor] = []
    known = [False] * len(op.outputs)
    flags = [m.flow.has_rows(t) for t in op.inputs[1:]]
    for g, mask in zip(graphs, masks, strict=True):
        found = _where_taken(m, b, op, g, mask, inputs[1:], flags)
        for k, (t, y) in enumerate(zip(found, op.outputs, strict=True)):
            has_value = g.results[k].op.type != "FakeParam"
            if k == len(total):
                total.append(t)
            elif has_value:
                total[k] = _select(m, b, op, mask, t, total[k], y) if known[k] else t
            known[k] = known[k] or has_value
    for t, y in zip(total, op.outputs, strict=True):
        if y.dtype.base is not dtypes.variant:
            t.refine(_batch_shape(m, y.shape))
    return total


def _masks(b: Builder, op: Operation, chooses: Tensor, n: int) -> list[Tensor]:
    """Returns for each branch whether each example takes it."""
    if op.opdef.structured == "If":
        if chooses.dtype.base is not dtypes.bool_:
            chooses = b.NotEqual(chooses, np.zeros((), chooses.dtype.base.numpy))
        return [chooses, b.LogicalNot(chooses)]
    last = np.int32(n - 1)
    inside = b.LogicalAnd(b.GreaterEqual(chooses, np.int32(0)), b.Less(chooses, last))
    index = b.SelectV2(inside, chooses, last)
    return [b.Equal(index, np.int32(k)) for k in range(n)]


def _where_taken(
    m: Walk,
    b: Builder,
    op: Operation,
    branch: FuncGraph,
    mask: Tensor,
    inputs: Sequence[Tensor],
    flags: Sequence[bool],
) -> list[Tensor]:
    """Returns the results of a branch for the examples that take it.

    The results of the other examples are arbitrary.

    The branch is computed only if an example takes it.
    """
    pure = m.for_some()
    if all(o.type == "_Arg" or not o.inputs for o in branch.operations):
        return _spread(m, b, pure.run(b, branch, inputs), branch.results, op.outputs)
    if not all(_can_stand_in(m, t) for t in branch.results):
        rows = _rows(b, mask, inputs, flags)
        return _spread(m, b, pure.run(b, branch, rows), branch.results, op.outputs)
    taken, inner = _graph(b, op, branch)
    given = _rows(inner, taken.capture(mask), [taken.capture(t) for t in inputs], flags)
    results = _spread(m, inner, pure.run(inner, branch, given), branch.results, op.outputs)
    for t, y in zip(results, branch.results, strict=True):
        if y.dtype.base is not dtypes.variant:
            t.refine(_batch_shape(m, y.shape))
    tracing.finish(taken, results)
    untaken, other = _graph(b, op, branch)
    tracing.finish(untaken, [_nothing(m, other, t, y) for t, y in zip(results, branch.results, strict=True)])
    some = b.Any(mask, np.array([0], np.int32))
    attrs = {"then_branch": taken, "else_branch": untaken, **_types(taken)}
    return list(tracing.make("If", b, _last(op), [taken, untaken], [some], [], attrs).outputs)


def _can_stand_in(m: Walk, t: Tensor) -> bool:
    """Whether a result that no example needs can be replaced (`_nothing`)."""
    if t.dtype.base is dtypes.variant:
        return m.flow.is_ragged(t)
    return t.shape is not None


def _nothing(m: Walk, b: Builder, like: Tensor, of: Tensor) -> Tensor:
    """Returns zeros, or empty lists, in place of results that no example needs.

    Args:
      m: the batch.
      b: the builder.
      like: the batch of results, against which the zeros broadcast.
      of: the result of one example.
    """
    dtype = like.dtype.base
    if dtype is dtypes.variant:
        element = of.handle[0] if of.handle is not None else dtypes.float32
        lists = spread(b, b.EmptyTensorList(-1, -1, element_dtype=element), m.size)
        return with_ones(b, lists, len(of.shape or ()))
    zero: Any = b"" if dtype is dtypes.string else np.zeros((), dtype.numpy)
    shape = like.static_shape
    assert shape is not None
    dims = shape if shapes.is_full(shape) else (1,) * len(shape)
    out: Tensor = b.Fill(np.array(dims, np.int32), b.const(zero, dtype))
    return out


def _rows(b: Builder, mask: Tensor, ts: Sequence[Tensor], flags: Sequence[bool]) -> list[Tensor]:
    """Returns batches in which a row of the mask replaces those outside of it.

    Some row must be in the mask. Results of the replaced rows are unused, so these rows have zeros as gradients.

    Args:
      b: the builder.
      mask: for each example, whether its row stays.
      ts: the tensors.
      flags: for each of them, whether it has the examples in dimension 0.
    """
    numbers = b.Range(np.int32(0), b.Size(mask), np.int32(1))
    first = b.ArgMax(b.Cast(mask, DstT=dtypes.int32), np.int32(0), output_type=dtypes.int32)
    index = b.SelectV2(mask, numbers, first)

    def row(t: Tensor, is_batch: bool) -> Tensor:
        if not is_batch:
            return t
        out: Tensor
        if t.dtype.base is dtypes.variant:  # lists: the gradient of a gather would be slices, which lists cannot be
            out = b.SelectV2(_for_lists(b, mask, t), t, b.StopGradient(b.GatherV2(t, index, np.int32(0))))
        else:
            out = b.GatherV2(t, index, np.int32(0))
        out.refine(t.static_shape)
        return out

    return [row(t, is_batch) for t, is_batch in zip(ts, flags, strict=True)]


def _select(m: Walk, b: Builder, op: Operation, mask: Tensor, x: Tensor, y: Tensor, like: Tensor) -> Tensor:
    """Returns the rows of `x` where `mask` holds, and those of `y` elsewhere.

    `like` is the tensor of one example.
    """
    if x is y:
        return x
    out: Tensor
    if m.flow.is_ragged(like):
        out = b.SelectV2(_for_lists(b, mask, x), x, y)
        return out
    if x.dtype.base is dtypes.variant:
        return _select_lists(m, b, op, mask, x, y, like)
    rank = x.static_shape if x.static_shape is not None else y.static_shape
    if rank is None:
        raise UnimplementedError(
            f"vmap of {m.title}: the rank of a result of '{op.name}' ({op.type}, made at {op.source}) is unknown, and "
            "its predicate differs between the examples; state the shape (hr.ensure_shape)",
            op.name,
            op,
        )
    out = b.SelectV2(with_ones(b, mask, len(rank) - 1), x, y)
    return out


def _for_lists(b: Builder, mask: Tensor, lists: Tensor) -> Tensor:
    """Returns the mask with the rank of `lists`, which have the examples in dimension 0."""
    return with_ones(b, mask, 0 if lists.shape is None else len(lists.shape) - 1)


def _select_lists(m: Walk, b: Builder, op: Operation, mask: Tensor, x: Tensor, y: Tensor, like: Tensor) -> Tensor:
    """Returns a list of the rows of `x` where `mask` holds, and of `y` elsewhere."""
    dtype, shape = like.handle or (dtypes.variant, None)
    if shape is None or None in shape:
        raise UnimplementedError(
            f"vmap of {m.title}: '{op.name}' ({op.type}, made at {op.source}) has a batched predicate and changes a "
            "list or TensorArray whose elements have unknown shapes; give element_shape=",
            op.name,
            op,
        )
    dims = batch_dims(b, m.size, [d or 0 for d in shape])
    rows = [b.TensorListStack(t, dims, element_dtype=dtype) for t in (x, y)]
    chooses = b.Reshape(mask, np.array([1, -1, *[1] * len(shape)], np.int32))
    out: Tensor = b.TensorListFromTensor(b.SelectV2(chooses, *rows), dims)
    out.refine(handle=(dtype, _batch_shape(m, shape)))
    return out


# *** loops ***


def of_loop(m: Walk, b: Builder, op: Operation, inputs: Sequence[Tensor]) -> Sequence[Tensor]:
    """Returns the outputs of a While."""
    cond, step = m.flow.graphs(op)
    first = _spread(m, b, inputs, op.inputs, op.outputs)
    if cond.results[0] in m.flow.batched:
        return _while_any(m, b, op, first, cond, step)
    heads = []
    for g in (cond, step):
        graph, inner = _graph(b, op, g)
        params = _params(m, graph, op, first)
        results = m.run(inner, g, params)
        tracing.finish(graph, results if g is cond else _spread(m, inner, results, step.results, op.outputs))
        heads.append(graph)
    return _loop(b, op, heads, first)


def _while_any(
    m: Walk, b: Builder, op: Operation, first: Sequence[Tensor], cond: FuncGraph, step: FuncGraph
) -> Sequence[Tensor]:
    """Returns the outputs of a loop that runs while the condition of some example holds."""
    pure = m.for_some()
    flags = [m.flow.has_rows(t) for t in op.outputs]
    (going,) = m.run(b, cond, first)
    test, inner = _graph(b, op, cond)
    params = _params(m, test, op, [going, *first])
    tracing.finish(test, [inner.Any(params[0], np.array([0], np.int32))])
    graph, inner = _graph(b, op, step)
    now, *old = _params(m, graph, op, [going, *first])
    given = _rows(inner, now, old, flags)
    new = _spread(m, inner, pure.run(inner, step, given), step.results, op.outputs)
    ends = []
    for k, (x, y) in enumerate(zip(old, new, strict=True)):
        is_constant = step.results[k] is step.params[k]
        ends.append(x if is_constant else _select(m, inner, op, now, y, x, step.params[k]))
    for t, y in zip(ends, step.results, strict=True):
        if t.dtype.base is not dtypes.variant and y in m.flow.batched:
            t.refine(_batch_shape(m, y.shape))
    (still,) = pure.run(inner, cond, ends)
    tracing.finish(graph, [inner.LogicalAnd(now, still), *ends])
    return _loop(b, op, [test, graph], [going, *first])[1:]


def _loop(b: Builder, op: Operation, graphs: Sequence[FuncGraph], first: Sequence[Tensor]) -> Sequence[Tensor]:
    attrs = {"cond": graphs[0], "body": graphs[1], "parallel_iterations": op.attrs["parallel_iterations"]}
    return tracing.make("While", b, _last(op), graphs, [], first, attrs, op.notes).outputs[: len(first)]


def _params(m: Walk, graph: FuncGraph, op: Operation, first: Sequence[Tensor]) -> list[Tensor]:
    """Adds the loop variables to a graph of a loop.

    Their static shapes hold in all iterations.

    Args:
      m: the batch.
      graph: the new graph.
      op: the original loop.
      first: the initial values; an additional one in front is the mask.
    """
    own: FuncGraph = m.flow.graphs(op)[1]
    extra = len(first) - len(own.params)
    out = [graph.add_param(t.dtype, t.static_shape, "going") for t in first[:extra]]
    for t, p in zip(first[extra:], own.params, strict=True):
        is_batch = p in m.flow.batched
        shape = _batch_shape(m, p.shape) if is_batch else p.shape
        handle = p.handle
        if handle is not None and is_batch:
            handle = (handle[0], _batch_shape(m, handle[1]))
        if m.flow.is_ragged(p):
            shape, handle = _batch_shape(m, p.shape), None
        elif t.dtype.base is dtypes.variant:
            shape = p.shape
        out.append(graph.add_param(t.dtype, shape, base_name(p), source=p.op.source, handle=handle))
    return out


def _batch_shape(m: Walk, shape: Shape) -> Shape:
    n = m.size if isinstance(m.size, int) else None
    return None if shape is None else (n, *shape)


# *** graphs ***


def _graph(b: Builder, op: Operation, like: FuncGraph) -> tuple[FuncGraph, Builder]:
    """Returns an empty graph in the graph of `b`, described as `like`, and its builder."""
    graph = FuncGraph(f"{b.scope}{like.name}".replace("/", "_"), b.graph, shares_names=True)
    graph.role, graph.source = like.role, like.source
    follow_order(graph, b.graph)
    return graph, Builder(graph, f"{b.scope}{_last(op)}/", source=op.source)


def _last(op: Operation) -> str:
    return op.name.rpartition("/")[2]


def _spread(
    m: Walk, b: Builder, ts: Sequence[Tensor], old: Sequence[Tensor], outputs: Sequence[Tensor]
) -> list[Tensor]:
    """Returns tensors with a batch dimension where the outputs of the operation have one.

    Args:
      m: the batch.
      b: the builder.
      ts: the tensors.
      old: the tensors that they replace.
      outputs: the outputs.
    """
    batched = m.flow.batched
    return [
        spread(b, b.graph.capture(t), m.size) if y in batched and x not in batched else t
        for t, x, y in zip(ts, old, outputs, strict=True)
    ]


Rule = Callable[["Walk", Builder, "Operation", Sequence[Tensor]], Sequence[Tensor]]
RULES: Final[Mapping[str, Rule]] = {"If": of_branches, "Case": of_branches, "While": of_loop, "Call": of_call}
