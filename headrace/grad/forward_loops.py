"""Tangents of conditionals, loops and calls.

These operations are extended in place. For each input with a tangent, an input for the tangent is added; for each
result with a tangent, a result is added. Inside the branch or body, the forward walk makes the tangents:

    h = While(h0)             condition: h < 100      body: sin(h)

becomes

    h, dh = While(h0, dh0)    condition: h < 100      body: sin(h), dh * cos(h)

So no value is computed twice, and the tangent of a loop stores no residuals: each iteration computes its tangents
together with its values, and both are released together. Activity analysis (`grad.activity`) finds the loop variables
with tangents: those that a tangent reaches and that reach a wanted result. The tangent of a loop constant is a loop
constant. If a result has a tangent in one branch and none in another, it is zeros there.

In two cases an operation cannot be extended: if a tangent depends on its own results (y = f(x), then the tangent of y
along y), or belongs to a nested graph (a loop over many directions). Then a copy of the operation is extended, and only
the tangents of the copy are used.

A recursive function cannot be extended either, because it has many callers, one of them itself. It gets a second
function, which also takes and returns tangents, and which calls itself where the first one did.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from headrace.grad.calls import check_repeatable, is_by_name
from headrace.grad.zeros import carries, gradient_dtype, gradient_shape, zeros_for
from headrace.ir import walk
from headrace.ir.attr_values import Func
from headrace.ir.builder import Builder
from headrace.ir.edit import add_values
from headrace.ir.edit.copying import copied, copy_into
from headrace.ir.function import base_name, bodies, nested, param_offset
from headrace.ir.graph import FuncGraph
from headrace.ir.order import is_constant

if TYPE_CHECKING:
    from headrace.grad.walks import Forward, ForwardWalks
    from headrace.ir.graph import Graph, Operation, Tensor

_ADVICE: Final = "Move it out, or differentiate along a direction that does not depend on its results"


def of_branches(
    b: Builder, op: Operation, dxs: Sequence[Tensor | None], wanted: Sequence[bool], walks: ForwardWalks
) -> list[Tensor | None]:
    """Returns the wanted tangents of the results of an If, Case or call.

    Args:
      b: a builder in the graph of `op`, or in a nested one.
      op: the operation, which is extended.
      dxs: the tangent of each input, or None.
      wanted: for each output, whether its tangent is needed.
      walks: the walks through the graphs of `op`.

    Returns:
      The tangent of each result, or None.
    """
    op = _able_to_grow(b, op, dxs)
    graphs = add_values.own_graphs(op)
    offset = param_offset(op)
    needs = [walks.flow.of(g) for g in graphs]

    def leads(k: int, j: int) -> bool:
        return any(of[j] >> (k - offset) & 1 for of in needs)

    there = [k for k, dx in enumerate(dxs) if dx is not None and k >= offset]
    outs = [j for j, want in enumerate(wanted) if want and any(leads(k, j) for k in there)]
    ins = [k for k in there if any(leads(k, j) for j in outs)]
    twins = [add_values.add_input(op, _the(dxs[k]), _named(graphs[0].params[k - offset])) for k in ins]
    found = []
    for i, g in enumerate(graphs):
        xs, ts = [g.params[k - offset] for k in ins], [twin[i] for twin in twins]
        found.append(walks.forward(_inside(b, g, op), xs, ts, [g.results[j] for j in outs]))
    tangents: list[Tensor | None] = [None] * len(wanted)
    for j, parts in zip(outs, zip(*found, strict=True), strict=True):
        if any(p is not None for p in parts):
            ends = [
                zeros_for(_inside(b, g, op), g.results[j]) if p is None else p
                for g, p in zip(graphs, parts, strict=True)
            ]
            tangents[j] = add_values.add_result(op, ends)
    return tangents


def of_loop(
    b: Builder, op: Operation, dxs: Sequence[Tensor | None], wanted: Sequence[bool], walks: ForwardWalks
) -> list[Tensor | None]:
    """Returns the wanted tangents of the results of a While; see `of_branches`."""
    tangents: list[Tensor | None] = [None] * len(wanted)
    add_values.own_graphs(op)
    reached = [k for k, dx in enumerate(dxs) if dx is not None]
    seeded = [k for k, want in enumerate(wanted) if want]
    active = sorted(walks.flow.active(op.attrs["body"], reached, seeded))
    if not active:
        return tangents
    op = _able_to_grow(b, op, dxs)
    body: FuncGraph = op.attrs["body"]
    at: dict[int, int] = {}
    for k in active:
        dx = dxs[k]
        at[k] = _add_tangent(op, k, zeros_for(b, op.inputs[k]) if dx is None else dx)
    moving = [k for k in active if not is_constant(body, k)]
    inner = _inside(b, body, op)
    xs, ts = [body.params[k] for k in active], [body.params[at[k]] for k in active]
    for k, dy in zip(moving, walks.forward(inner, xs, ts, [body.results[k] for k in moving]), strict=True):
        add_values.set_result(op, at[k], zeros_for(inner, body.results[k]) if dy is None else dy)
    for k in seeded:
        if k in at:
            tangents[k] = op.outputs[at[k]]
    return tangents


def _add_tangent(op: Operation, k: int, init: Tensor) -> int:
    """Adds a loop variable for the tangent of variable `k`, with equal static shapes.

    Args:
      op: the loop.
      k: the position of a variable.
      init: the initial value of the tangent.

    Returns:
      The position of the new variable.
    """
    n = len(op.inputs)
    add_values.add_variable(op, init, _named(op.attrs["body"].params[k]))
    for _, g in bodies(op):
        p, x = g.params[n], g.params[k]
        g.describe_param(p, gradient_shape(x), x.handle)
    op.outputs[n].replace_static(gradient_shape(op.outputs[k]), op.outputs[k].handle)
    return n


def of_call(
    b: Builder, op: Operation, dxs: Sequence[Tensor | None], wanted: Sequence[bool], walks: ForwardWalks
) -> list[Tensor | None]:
    """Returns the tangents of a call; see `of_branches`."""
    f = op.attrs["f"]
    if isinstance(f, FuncGraph) or not is_by_name(op):
        return of_branches(b, op, dxs, wanted, walks)
    op = _able_to_grow(b, op, dxs)
    of = op.graph.function(f.name)
    second = _with_tangents(op.graph, of, walks.forward)
    given = [zeros_for(b, x) if dx is None else dx for x, dx in zip(op.inputs, dxs, strict=True) if carries(x.dtype)]
    n = len(op.outputs)
    attrs = {
        "f": Func(second.name),
        "Tin": tuple(p.dtype.base for p in second.params),
        "Tout": tuple(r.dtype.base for r in second.results),
    }
    op.graph.extend_op(op, given, attrs)
    made = iter(op.outputs[n:])
    tangents: list[Tensor | None] = []
    for t in op.outputs[:n]:
        dy = next(made) if carries(t.dtype) else None
        if dy is not None:
            dy.replace_static(gradient_shape(t), t.handle)
        tangents.append(dy)
    return tangents


def _with_tangents(graph: Graph, of: FuncGraph, forward: Forward) -> FuncGraph:
    """Returns the variant of a function that also takes and returns tangents.

    It has the tangents of all arguments as parameters, and those of all results as results.

    It is made on the first call.

    Args:
      graph: a graph in which `of` is called by name.
      of: a library function.
      forward: the forward walk.
    """
    if of.tangent:
        return graph.function(of.tangent)
    home = graph
    while of.name not in home.functions:
        assert home.outer is not None
        home = home.outer
    name = f"{of.name}_tangent"
    while name in home.functions or name in home.library:
        name += "_"
    of.tangent = name
    out = home.functions[name] = copied(of, home, name=name)
    out.tangent = ""
    xs, ys = ([t for t in ts if carries(t.dtype)] for ts in (out.params, out.results))
    dxs = [out.add_param(gradient_dtype(x), gradient_shape(x), _named(x), handle=x.handle) for x in xs]
    b = Builder(out, source=of.source)
    out.add_results(ys)  # placeholders for the tangents: calls within `out` rely on the number and dtypes of results
    found = forward(b, xs, dxs, ys)
    tangents = [zeros_for(b, y) if dy is None else dy for y, dy in zip(ys, found, strict=True)]
    out.set_results([*out.results[: len(out.results) - len(ys)], *tangents])
    return out


def _able_to_grow(b: Builder, op: Operation, dxs: Sequence[Tensor | None]) -> Operation:
    """Returns `op`, or a copy of it if `op` itself cannot be extended.

    The copy is in the graph of `b`.
    """
    graph = b.graph
    if op.graph is graph and op not in walk.reachable([dx.op for dx in dxs if dx is not None]):
        return op
    for _, g in bodies(op):
        check_repeatable(op, g, "tangents (forward mode) here", _ADVICE)
    twin = copy_into(graph, [op], {t: graph.capture(t) for t in op.inputs})[op]
    for before in map(graph.capture_control, op.control_inputs):
        if before is not None:
            graph.add_control_input(twin, before)
    for _, g in nested([twin]):  # only the results of a copy are used; prints and assertions of `op` are not repeated
        g.set_control_results(())
    return twin


def _inside(b: Builder, graph: FuncGraph, op: Operation) -> Builder:
    """Returns a builder like `b` in `graph`, which `op` owns."""
    return Builder(graph, b.scope, source=op.source)


def _named(x: Tensor) -> str:
    """Name of the parameter for the tangent of the parameter `x`."""
    return f"{base_name(x)}_tangent"


def _the(t: Tensor | None) -> Tensor:
    assert t is not None
    return t
