"""Rematerialization: the gradient of a loop recomputes forward values instead of keeping all.

The gradient of a loop needs values of every iteration, so a loop with N iterations keeps N values of each kind. With
`while_loop(..., save=hr.recompute(every=k))` it keeps the loop variables of every k-th iteration only. The gradient
goes backwards over stretches of k iterations. For each stretch it runs the forward iterations again, from the values
kept at the stretch's start, and then differentiates them. This costs one more run of the loop, and memory for N / k
states and the values of k iterations.

The gradient code has no special case for this. The loop is written as a loop over stretches, whose body calls a loop
over the iterations of one stretch; and that call computes the values that its gradient needs again
(`grad.conditionals`):

    while cond(v):                                   while cond(v):
        v = body(v)                  becomes             v = again(stretch)(v)
                                                     stretch: j = 0; while j < k and cond(v): v, j = body(v), j + 1

**The square root.** For a known N, k = √N would keep the least: √N states and √N iterations. N need not be known:
stretches of 1, 2, 3, ... iterations cover N iterations in about √(2N) stretches, and the longest of them has about
√(2N) iterations, too. (The first has 8, not 1: short stretches cost more than they save.)

Source: checkpointing as in Griewank and Walther's "Revolve" (2000) and Chen et al., "Training Deep Nets with Sublinear
Memory Cost" (2016); the growing stretches for loops of unknown length are headrace's own.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from headrace import dtypes, flags, nest, shapes, thresholds
from headrace.api import recorder, scopes, tracing
from headrace.errors import InvalidArgumentError
from headrace.ir.builder import Builder
from headrace.ir.edit import add_values
from headrace.ir.edit.copying import copied
from headrace.ir.function import move_to, nested_operations, unify
from headrace.ir.graph import FuncGraph
from headrace.ir.infer import constant_value
from headrace.ir.notes import RematerializedCall
from headrace.ir.order import counts, follow_order
from headrace.records import record

if TYPE_CHECKING:
    from headrace.ir.graph import Graph, Operation, Tensor
    from headrace.ir.notes import Note
    from headrace.ir.source import Source


@record(frozen=True, slots=True)
class Recompute:
    """Strategy of `recompute`: checkpoints of the loop variables, and rematerialization between them.

    Attributes:
      every: number of iterations between two checkpoints; None: one more for each checkpoint.
    """

    every: int | None


def recompute(every: int | str = "sqrt") -> Recompute:
    """Returns a strategy for `while_loop(save=...)` that rematerializes residuals from checkpoints.

    The gradient keeps the loop variables of some iterations only (checkpoints), and computes the others again.

    Args:
      every: the number of iterations between two checkpoints, 1 or more; or "sqrt", with about √(2N) checkpoints in N
        iterations, for any N.

    Returns:
      The strategy.

    Raises:
      ValueError: `every` is neither a positive integer nor "sqrt".

    Example:
      >>> import headrace as hr
      >>> with hr.Graph() as g:
      ...     x = hr.placeholder(hr.float32, ())
      ...     _, y = hr.while_loop(
      ...         lambda i, y: i < 100, lambda i, y: (i + 1, hr.sin(y)), (0, x), save=hr.recompute("sqrt")
      ...     )
      ...     (dx,) = hr.gradients(y, x)
    """
    if every == "sqrt":
        return Recompute(None)
    if isinstance(every, (int, np.integer)) and not isinstance(every, bool) and every >= 1:
        return Recompute(int(every))
    raise ValueError(f"'every' must be a positive integer or 'sqrt', got {every!r}")


def strategy(save: Any, body: FuncGraph, limit: Tensor | None, loop: str) -> Recompute | None:
    """Returns the strategy that `save` selects for a loop; None for all residuals.

    Args:
      save: "all", "auto" or a `Recompute`.
      body: the body of the loop.
      limit: the user's limit of the trip count, or None.
      loop: the name of the loop.

    Raises:
      ValueError: `save` has another value.
      InvalidArgumentError: the body may compute other values when it runs again.
    """
    if isinstance(save, Recompute):
        op = unrepeatable(body)
        if op is not None:
            raise InvalidArgumentError(
                f"loop {loop!r} has save={save!r}, but its body has {op.type} ('{op.name}', made at {op.source}), "
                "which would not do the same a second time. Move it out of the loop, or let the loop keep all "
                "(save='all')",
                op.name,
                op,
            )
        return save
    if save == "auto":
        trip_count = None if limit is None else constant_value(limit)
        most = thresholds.AUTO_SAVE_TRIPS if trip_count is None else int(trip_count)
        too_much = most * _bytes_an_iteration(body) > flags.accumulator_limit()
        return Recompute(None) if too_much and unrepeatable(body) is None else None
    if save == "all":
        return None
    raise ValueError(f"'save' of loop {loop!r} must be 'all', 'auto' or hr.recompute(...), got {save!r}")


def _bytes_an_iteration(body: FuncGraph) -> int:
    """Estimates the bytes of the residuals of one iteration.

    These are the outputs that are not cheap and have a known shape. Operations of a loop or of a recursive function in
    the body count once.
    """
    out = 0
    changing = {p.op for p in body.params if p not in body.results}
    for op in nested_operations(body.operations, calls=True):
        for t in op.outputs if not op.opdef.is_cheap or op in changing else ():
            size = shapes.size(t.shape)
            if t.dtype.base.is_floating or t.dtype.base.is_complex:
                out += (1 if size is None else size) * t.dtype.base.numpy.itemsize
    return out


def unrepeatable(graph: FuncGraph) -> Operation | None:
    """An operation of `graph` that does another thing the second time, or does something twice."""
    for op in nested_operations(graph.operations, calls=True):
        facts = op.opdef.facts
        says = facts.effect == "stdout" and not op.outputs  # it is not run again, nothing needs what it gives
        if (facts.effect and (facts.writes or facts.effect in ("random", "python")) and not says) or facts.waits:
            return op
    return None


def segmented(
    b: Builder,
    scope: str,
    cond: FuncGraph,
    body: FuncGraph,
    variables: list[Tensor],
    attrs: dict[str, Any],
    notes: Sequence[Note],
    how: Recompute,
) -> Operation:
    """Makes the loop over checkpoints that replaces the loop of `cond` and `body`.

    Args:
      b: the builder at the place of the loop.
      scope: the scope of the loop.
      cond: the condition, just traced.
      body: the body, just traced.
      variables: the initial values of the loop variables.
      attrs: the attributes of the loop.
      notes: the notes of the loop.
      how: the distance of the checkpoints.

    Returns:
      The operation; its outputs begin with the variables' last values.
    """
    n, name, source = len(variables), scope[:-1], body.source
    captured = unify([cond, body], n)
    below = copied(cond, b.graph)  # the condition of the loop over stretches
    length = below.add_param(dtypes.int64, (), "length")
    below.set_params([*below.params[:n], length, *below.params[n:-1]])
    outer = _graph(b.graph, f"{name}_stretches", f"the stretches of loop {name!r}", source)
    inner = _graph(outer, f"{name}_stretch", f"a stretch of loop {name!r}", source)
    for t, p in zip([*variables, None], [*body.params[:n], length], strict=True):
        for g in (outer, inner):
            g.add_param(p.dtype, p.shape, p.op.name.removeprefix("arg."), source=p.op.source, handle=p.handle)
        del t
    at = Builder(inner, scope, source=source)
    given = [inner.capture(t) for t in captured]
    for g in (cond, body):
        move_to(g, inner)
    body.add_results(body.params[n:])
    type = "While" if any(map(tracing.is_stateful, (cond, body))) else "StatelessWhile"
    inputs = [*inner.params[:n], *given]
    loop = tracing.operation_of(at.make(type, (inputs,), {**attrs, "cond": cond, "body": body}, "stretch/", notes))
    k = next((k for k in range(n) if counts(body, k)), None)
    if k is None:  # it has no counter of its own
        k = len(body.params)
        count, _ = add_values.add_variable(loop, at.const(0, dtypes.int64, "count"), "count")
        add_values.set_result(loop, k, Builder(body, scope, source=source).AddV2(count, 1, name="count"))
    first = loop.inputs[k]
    stop = at.AddV2(first, at.Cast(inner.params[n], DstT=first.dtype.base), name="stop")
    add_values.add_variable(loop, stop, "stop")
    inside = Builder(cond, scope, source=source)
    is_short = inside.NotEqual(cond.params[k], cond.params[-1])  # right even where the counter wraps around
    cond.set_results([inside.LogicalAnd(is_short, cond.results[0])])
    tracing.finish(inner, loop.outputs[:n])

    call = _recomputed(Builder(outer, scope, source=source), inner, outer.params)
    longer = outer.params[n]
    if how.every is None:
        longer = Builder(outer, scope, source=source).AddV2(longer, 1, name="length")
    tracing.finish(outer, [*call.outputs, longer])
    length_at_first = b.const(how.every or thresholds.FIRST_STRETCH_ITERATIONS, dtypes.int64, "length")
    outside = {**attrs, "cond": below, "body": outer}
    return tracing.make("While", b, scope, [below, outer], [], [*variables, length_at_first], outside, notes)


def _graph(outer: Graph, name: str, role: str, source: Source | None) -> FuncGraph:
    out = FuncGraph(name.replace("/", "_"), outer, shares_names=True)
    out.role, out.source = role, source
    follow_order(out, outer)
    return out


def _recomputed(b: Builder, graph: FuncGraph, args: list[Tensor]) -> Operation:
    """Makes a call of `graph` with `args` and its captures, whose gradient keeps no residuals."""
    inputs = [*args, *unify([graph], len(args))]
    attrs = {"f": graph, "Tout": tuple(t.dtype.base for t in graph.results)}
    type = "StatefulPartitionedCall" if tracing.is_stateful(graph) else "PartitionedCall"
    notes = [RematerializedCall()]
    return tracing.operation_of(b.after(*graph.outer_controls).make(type, (inputs,), attrs, "again", notes))


def recompute_grad(f: Callable[..., Any]) -> Callable[..., Any]:
    """`f`, which keeps nothing for its gradient but its arguments: the gradient computes `f` again.

    Args:
      f: a function of tensors (in nested structures) that gives tensors. It must do the same whenever it is called.

    Returns:
      A function like `f`. Outside of graphs an active tape records the arguments and results of its calls alone.

    Raises:
      InvalidArgumentError: when it is called: `f` does something that would not be the same a second time. Outside of
        graphs, when the gradient is computed: `f` returned other values.

    Source: TensorFlow's `tf.recompute_grad`.

    Example:
      >>> import headrace as hr
      >>> with hr.Graph() as g:
      ...     x = hr.placeholder(hr.float32, (3,))
      ...     y = hr.recompute_grad(lambda x: hr.tanh(hr.sin(x)))(x)
      ...     (dx,) = hr.gradients(y, x)
    """

    @functools.wraps(f)
    def call(*args: Any) -> Any:
        b = scopes.builder(*nest.flatten(args))
        if not isinstance(b, Builder):
            return _recorded_once(b, f, args) if recorder.active.get() else f(*args)
        name = getattr(f, "__name__", "")
        with scopes.name_scope(name if name.isidentifier() else None, "recompute", nest.flatten(args)) as scope:
            b = scopes.builder()
            given = [b.tensor(x) for x in nest.flatten(args)]
            graph = tracing.sub_graph(b, scope[:-1], f"function {scope[:-1]!r}", f)
            for t in given:
                graph.add_param(t.dtype, t.shape, t.op.name.rpartition("/")[2], handle=t.handle)
            value = tracing.call(f, graph, b, nest.pack(args, graph.params))
            op = unrepeatable(graph)
            if op is not None:
                raise InvalidArgumentError(
                    f"{graph.title} cannot be computed again for its gradient: it has {op.type} ('{op.name}', made at "
                    f"{op.source}), which would not do the same a second time",
                    op.name,
                    op,
                )
            tracing.finish(graph, nest.flatten(value))
            return nest.pack(value, _recomputed(b, graph, given).outputs)

    return call


def _recorded_once(b: Any, f: Callable[..., Any], args: Sequence[Any]) -> Any:
    """Calls `f` outside of graphs as one recorded entry, whose gradient calls `f` again."""
    args = nest.map_leaves(b.tensor, tuple(args))
    xs = [x for x in nest.flatten(args) if x.dtype.is_floating or x.dtype.is_complex]
    reads = recorder.VariableReads()
    with recorder.set_to((reads,)):
        value = nest.map_leaves(lambda y: b.Identity(y), f(*args))
    ys = nest.flatten(value)

    def pull_back(dys: list[Any]) -> list[Any]:
        with b.tape() as tape:
            tape.watch(xs)
            again = [b.tensor(y) for y in nest.flatten(f(*args))]
        if len(again) != len(ys) or not all(map(_is_same, again, ys)):
            raise InvalidArgumentError(
                f"{tracing.titled(f)} cannot be computed again for its gradient: called once more with the same "
                "arguments, it returned other values. Let its results depend on its arguments alone, or call it "
                "without recompute_grad"
            )
        pairs = [(y, dy) for y, dy in zip(again, dys, strict=True) if dy is not None]
        of: list[Any] = tape.gradient([y for y, _ in pairs], [*xs, *reads.found], [dy for _, dy in pairs])
        return of

    for v in reads.found:
        recorder.accessed(v)
    recorder.record(recorder.CustomEntry((*xs, *[v.handle for v in reads.found]), tuple(ys), pull_back))
    return value


def _is_same(x: Any, y: Any) -> bool:
    a, b = np.asarray(x), np.asarray(y)
    return a.dtype == b.dtype and a.shape == b.shape and bool(((a == b) | ((a != a) & (b != b))).all())
