"""Tracing of Python functions into graphs, for `cond`, `while_loop` and `hr.Function`.

A branch or body is *traced*: its function is called once, with the parameters of a `FuncGraph` as arguments. The
operations that it creates are added to that graph, with the names that TensorFlow 1 would give them ("cond/Add"). Its
return values are converted to tensors of that graph. The operation that owns the graphs of a conditional or loop is
created last. So if a function raises, the user receives the error unchanged, and no incomplete operation remains.
"""

from __future__ import annotations

import dataclasses
import inspect
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from headrace import dtypes, nest, recursion
from headrace.api import scopes
from headrace.errors import GraphError, SignatureError
from headrace.ir import source
from headrace.ir.function import bodies, inside_out, owned, unify
from headrace.ir.graph import FuncGraph, Graph, Operation, Tensor
from headrace.ir.order import effects, follow_order
from headrace.ir.source import Source

if TYPE_CHECKING:
    from headrace.ir.builder import Builder


def source_of(fn: Callable[..., Any]) -> Source | None:
    """The line where the user wrote `fn`; the line that is running, for what has none or is headrace's own."""
    fn = inspect.unwrap(fn)
    while hasattr(fn, "func"):  # functools.partial
        fn = fn.func
    code = getattr(fn, "__code__", None) or getattr(vars(type(fn)).get("__call__"), "__code__", None)
    if code is None or source.is_ours(code.co_filename):
        return source.here()
    return Source(code.co_filename, code.co_firstlineno, code.co_name)


def titled(fn: Any) -> str:
    """What a user's function is called in messages, with its line."""
    where = source_of(fn)
    name = getattr(fn, "__name__", None) or repr(fn)
    return f"'{name}'" + (f" ({where})" if where is not None else "")


def argument_names(fn: Callable[..., Any], n: int) -> list[str]:
    """The names of the first `n` positional arguments of `fn`, as far as it has names for them."""
    try:
        named = inspect.signature(fn).parameters.values()
    except (TypeError, ValueError):
        return []
    plain = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return [p.name for p in named if p.kind in plain][:n]


def check_callable(**functions: Any) -> None:
    """Raises `TypeError` unless each can be called."""
    for name, fn in functions.items():
        if not callable(fn):
            raise TypeError(f"'{name}' must be callable, got {nest.describe(fn)}; give a function (lambda: ...)")


def sub_graph(b: Builder, name: str, role: str, fn: Callable[..., Any]) -> FuncGraph:
    """An empty graph for a function of an operation that is to stand where `b` makes ops.

    Args:
      name: what it is called in a function library.
      role: what it is, in messages.
      fn: the user's function.
    """
    graph = FuncGraph(name.replace("/", "_"), b.graph, shares_names=True)
    begin(graph, b.graph, role, fn)
    return graph


def begin(graph: FuncGraph, outer: Graph, role: str, fn: Callable[..., Any]) -> None:
    """Makes `graph` ready to be traced into."""
    graph.role = role
    graph.source = source_of(fn)
    follow_order(graph, outer)


def call(
    fn: Callable[..., Any],
    graph: FuncGraph,
    b: Builder,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
) -> Any:
    """What `fn` returns when its operations go into `graph`: a structure of tensors of `graph`.

    Scope, device and the like are those of `b`; what `b` waits for, whoever owns the graph waits for.

    Raises:
      SignatureError: it returned what is no tensor. What `fn` itself raises, with a note that says what called it.
    """
    inner = dataclasses.replace(b, graph=graph, control_inputs=())
    with scopes.entered(inner), recursion.recursion_room_for_levels(1):
        try:
            value = fn(*args, **(kwargs or {}))
        except Exception as e:
            e.add_note(_called(graph, args, e))
            raise
        return convert(value, inner, graph.title)


def _called(graph: FuncGraph, args: Sequence[Any], error: Exception) -> str:
    """In what an error arose; and if it did at its door, what it is called with."""
    tb = error.__traceback__
    inside = tb is not None and any(not source.is_ours(f.f_code.co_filename) for f, _ in traceback.walk_tb(tb))
    if inside or not isinstance(error, TypeError):
        return f"in {graph.title}"
    names = [t.op.name.removeprefix("arg.") for t in graph.params[len(graph.params) - len(args) :]] if args else []
    given = f"{len(args)} argument{'s' * (len(args) != 1)}" + (f": {', '.join(names)}" if names else "")
    return f"in {graph.title}, which is called with {given}"


def convert(value: Any, b: Builder, what: str) -> Any:
    """The structure `value`, which `what` returned, with tensors for leaves: numbers and arrays become constants,
    tensors from outside captures, and operations a True that waits for them."""
    return nest.pack(value, [_tensor(path, leaf, b, what) for path, leaf in nest.flatten_with_paths(value)])


def _tensor(path: str, leaf: Any, b: Builder, what: str) -> Tensor:
    if isinstance(leaf, Operation):
        done: Tensor = b.after(leaf).const(True, dtypes.bool_, "control_dependency")
        return done
    try:
        return b.tensor(leaf)
    except (TypeError, ValueError) as e:
        if isinstance(e, GraphError) and not isinstance(e, SignatureError):
            raise
        at = f" at {path}" if path else ""
        raise SignatureError(
            f"{what} returned {nest.describe(leaf)}{at}, which cannot be a tensor ({e}); return tensors, numbers, "
            "arrays, or tuples, lists, dicts and dataclasses of them"
        ) from e


def finish(graph: FuncGraph, results: Iterable[Tensor]) -> None:
    """Gives a traced graph its results, and what has to run whenever it does."""
    graph.set_results(results, changes(graph) if graph.is_ordered else None)


def changes(graph: Graph) -> list[Operation]:
    """The operations that change something outside, or wait for something outside."""
    return [op for op in graph.operations if op.opdef.is_effectful and (_waits(op) or any(effects(op).values()))]


def _waits(op: Operation) -> bool:
    if op.opdef.structured:
        return any(g.is_open or g.control_results for _, g in bodies(op))
    return op.opdef.facts.waits or op.opdef.async_ is not None


def is_stateful(graph: Graph) -> bool:
    """Whether an operation of a graph has effects, be it only to read a variable."""
    return any(op.opdef.is_effectful for op in graph.operations)


def make(
    type: str,
    b: Builder,
    name: str,
    graphs: Sequence[FuncGraph],
    args: Sequence[Tensor],
    variables: Sequence[Tensor],
    attrs: dict[str, Any],
) -> Operation:
    """The operation that owns `graphs`, which are traced: they get the same parameters, and it gets what they captured.

    Args:
      type: its type, if any of the graphs is stateful; "Stateless" is put before it if none is.
      name: its name; one that ends in "/" is that of its scope.
      args: its arguments before the list of inputs (a predicate).
      variables: what its inputs begin with; the graphs have a parameter for each.
      attrs: its attributes but for the types of its inputs.
    """
    captured = unify(graphs, len(variables))
    if type == "While":
        body: FuncGraph = attrs["body"]
        body.add_results(body.params[len(variables) :])
    if not any(map(is_stateful, graphs)):
        type = "Stateless" + type
    waits = dict.fromkeys(op for g in graphs for op in g.outer_controls)
    return operation_of(b.after(*waits).make(type, (*args, [*variables, *captured]), attrs, name))


def operation_of(made: Any) -> Operation:
    """The operation of what a builder gave."""
    if isinstance(made, Operation):
        return made
    first: Tensor = made if isinstance(made, Tensor) else made[0]
    return first.op


def regrow(graph: FuncGraph) -> None:
    """Brings the operations of `graph` that own graphs into agreement with these, which have captured more since."""
    for op in [op for g in inside_out(graph) for op in g.operations]:
        graphs = owned(op)
        more = unify(graphs, len(op.opdef.ins[-1].dtypes(op.attrs))) if graphs else []
        if not more:
            continue
        types = tuple(t.dtype.base for t in more)
        if op.opdef.structured == "While":
            body: FuncGraph = op.attrs["body"]
            body.add_results(body.params[len(body.results) :])
            op.graph.extend_op(op, more, {"T": op.attrs["T"] + types})
            for out, t in zip(op.outputs[-len(more) :], more, strict=True):
                out.copy_static(t)
        else:
            op.graph.extend_op(op, more, {"Tin": op.attrs["Tin"] + types})


def refinish(graphs: Sequence[FuncGraph]) -> None:
    """Finds anew what has to run whenever `graphs`, which call one another, do: while they were made, a call could not
    know what the function that it calls would come to do."""
    for g in graphs:
        g.set_control_results(())
    while [len(g.control_results) for g in graphs] != [len(_refinished(g).control_results) for g in graphs]:
        pass


def _refinished(graph: FuncGraph) -> FuncGraph:
    for g in inside_out(graph):
        if isinstance(g, FuncGraph) and g.is_ordered:
            g.set_control_results(changes(g))
    return graph
