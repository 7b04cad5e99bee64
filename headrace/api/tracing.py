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

import numpy as np

from headrace import dtypes, nest, recursion
from headrace.api import scopes
from headrace.errors import GraphError, SignatureError
from headrace.ir import source
from headrace.ir.builder import Builder
from headrace.ir.function import bodies, inside_out, owned, unify
from headrace.ir.graph import FuncGraph, Graph, Operation, Tensor
from headrace.ir.order import effects, follow_order
from headrace.ir.source import Source

if TYPE_CHECKING:
    from headrace.ir.notes import Note


class ResultsUnknown(GraphError):
    """Call of a function whose results are not known yet, because it has not returned.

    A conditional with another branch that returns assumes the results of that branch. Then the function is traced
    again, with the results that it returned under this assumption (`jit.library`).
    """


_converter: Callable[[Callable[..., Any]], Callable[..., Any]] | None = None


def set_converter(converter: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
    """Sets the source conversion of functions, which `autograph` defines."""
    global _converter
    _converter = converter


def converted(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Returns a function whose conditionals and loops tensors may decide (`hr.autograph`)."""
    return fn if _converter is None else _converter(fn)


def source_of(fn: Callable[..., Any]) -> Source | None:
    """Returns the line of the user's definition of `fn`.

    It is the line that is running if `fn` has no line or is part of headrace.
    """
    fn = inspect.unwrap(fn)
    while hasattr(fn, "func"):  # functools.partial
        fn = fn.func
    code = getattr(fn, "__code__", None) or getattr(vars(type(fn)).get("__call__"), "__code__", None)
    if code is None or source.is_ours(code.co_filename):
        return source.here()
    return Source(code.co_filename, code.co_firstlineno, code.co_name)


def titled(fn: Any) -> str:
    """Returns the name of a user's function in messages, with its line."""
    where = source_of(fn)
    name = getattr(fn, "__name__", None) or repr(fn)
    return f"'{name}'" + (f" ({where})" if where is not None else "")


def argument_names(fn: Callable[..., Any], n: int) -> list[str]:
    """Returns the names of the first `n` positional arguments of `fn`, where it has names."""
    try:
        named = inspect.signature(fn).parameters.values()
    except (TypeError, ValueError):
        return []
    plain = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return [p.name for p in named if p.kind in plain][:n]


def check_callable(**functions: Any) -> None:
    """Raises `TypeError` unless each argument can be called."""
    for name, fn in functions.items():
        if not callable(fn):
            raise TypeError(f"'{name}' must be callable, got {nest.describe(fn)}; give a function (lambda: ...)")


def sub_graph(b: Builder, name: str, role: str, fn: Callable[..., Any]) -> FuncGraph:
    """Creates an empty graph for a function of an operation that `b` will create.

    Args:
      b: the builder of the operation.
      name: the name in a function library.
      role: the description in messages.
      fn: the user's function.
    """
    graph = FuncGraph(name.replace("/", "_"), b.graph, shares_names=True)
    begin(graph, b.graph, role, fn)
    return graph


def begin(graph: FuncGraph, outer: Graph, role: str, fn: Callable[..., Any]) -> None:
    """Prepares `graph` for tracing."""
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
    """Traces `fn` into `graph`; returns its result, a structure of tensors of `graph`.

    Scope and device are those of `b`. The owner of the graph waits for the control inputs of `b`.

    Raises:
      SignatureError: `fn` returned a value that cannot be a tensor. Errors of `fn` itself get a note that names the
        caller.
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
    """Returns the note of an error in a traced function.

    For an error in the call itself, such as a wrong number of arguments, it includes the arguments.
    """
    tb = error.__traceback__
    inside = tb is not None and any(not source.is_ours(f.f_code.co_filename) for f, _ in traceback.walk_tb(tb))
    if inside or not isinstance(error, TypeError):
        return f"in {graph.title}"
    names = [t.op.name.removeprefix("arg.") for t in graph.params[len(graph.params) - len(args) :]] if args else []
    given = f"{len(args)} argument{'s' * (len(args) != 1)}" + (f": {', '.join(names)}" if names else "")
    return f"in {graph.title}, which is called with {given}"


def is_tensor_argument(leaf: Any) -> bool:
    """Whether an argument counts as a tensor: symbolic and eager tensors, and arrays."""
    if isinstance(leaf, (Tensor, np.ndarray, np.generic)):
        return True
    return hasattr(type(leaf), "as_tensor") and not hasattr(type(leaf), "assign")


def dtype_of_number(x: float | complex, leaves: Iterable[Any]) -> dtypes.DType:
    """Returns the dtype of a Python number that becomes a tensor argument.

    Args:
      x: the number.
      leaves: the leaves of all arguments. If the float tensors among them are of double precision, `x` is too.
    """
    found = [t.dtype for t in leaves if is_tensor_argument(t)]
    kinds = {d.base if isinstance(d, dtypes.DType) else dtypes.from_numpy(d) for d in found}
    floats = {d for d in kinds if d.is_floating or d.is_complex}
    is_double = bool(floats) and floats <= {dtypes.float64, dtypes.complex128}
    if isinstance(x, complex):
        return dtypes.complex128 if is_double else dtypes.complex64
    return dtypes.float64 if is_double else dtypes.float32


def convert(value: Any, b: Builder, what: str) -> Any:
    """Converts the leaves of the structure `value`, which `what` returned, to tensors.

    Numbers and arrays become constants, outside tensors become captures, and operations become a True that waits for
    them.
    """
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
    """Sets the results and control results of a traced graph.

    A result that is a reference is read.
    """
    values = [read_reference(t) if t.dtype.is_ref else t for t in results]
    graph.set_results(values, changes(graph) if graph.is_ordered else None)


def read_reference(t: Tensor) -> Tensor:
    """Returns the value of the reference `t`, by a read in its graph."""
    b = Builder(t.op.graph, device=t.op.device, source=t.op.source)
    value: Tensor = b.Identity(t, name=f"{t.op.name}/read")
    return value


def changes(graph: Graph) -> list[Operation]:
    """Returns the operations that change or wait for state outside of the graph."""
    return [op for op in graph.operations if op.opdef.is_effectful and (_waits(op) or any(effects(op).values()))]


def _waits(op: Operation) -> bool:
    if op.opdef.structured:
        return any(g.is_open or g.control_results for _, g in bodies(op))
    return op.opdef.facts.waits or op.opdef.async_ is not None


def is_stateful(graph: Graph) -> bool:
    """Whether an operation of a graph has effects, including reads of a variable."""
    return any(op.opdef.is_effectful for op in graph.operations)


def make(
    type: str,
    b: Builder,
    name: str,
    graphs: Sequence[FuncGraph],
    args: Sequence[Tensor],
    variables: Sequence[Tensor],
    attrs: dict[str, Any],
    notes: Iterable[Note] = (),
) -> Operation:
    """Creates the operation that owns `graphs`, which are traced.

    The graphs get the same parameters, and the operation gets their captures as inputs.

    Args:
      type: the op type, if any of the graphs is stateful; otherwise "Stateless" is put before it.
      b: the builder.
      name: the name; one that ends in "/" is that of its scope.
      graphs: the graphs.
      args: the arguments before the list of inputs (a predicate).
      variables: the first elements of the list of inputs; the graphs have a parameter for each.
      attrs: the attributes without the types of the inputs.
      notes: the notes of the operation.
    """
    captured = unify(graphs, len(variables))
    if type == "While":
        body: FuncGraph = attrs["body"]
        body.add_results(body.params[len(variables) :])
    if not any(map(is_stateful, graphs)):
        type = "Stateless" + type
    waits = dict.fromkeys(op for g in graphs for op in g.outer_controls)
    return operation_of(b.after(*waits).make(type, (*args, [*variables, *captured]), attrs, name, notes))


def operation_of(made: Any) -> Operation:
    """Returns the operation of a builder's result."""
    if isinstance(made, Operation):
        return made
    first: Tensor = made if isinstance(made, Tensor) else made[0]
    return first.op


def regrow(graph: FuncGraph) -> None:
    """Adds later captures of nested graphs to their owners in `graph`."""
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
    """Updates the control results of `graphs`, which call each other.

    During their tracing a call could not know the later effects of the called function.
    """
    for g in graphs:
        g.set_control_results(())
    while [len(g.control_results) for g in graphs] != [len(_refinished(g).control_results) for g in graphs]:
        pass


def _refinished(graph: FuncGraph) -> FuncGraph:
    for g in inside_out(graph):
        if isinstance(g, FuncGraph) and g.is_ordered:
            g.set_control_results(changes(g))
    return graph
