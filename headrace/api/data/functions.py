"""Functions of datasets: a Python function, traced once for elements of one structure.

In a graph the function is one of its library, which the attribute of the dataset's op names, and captured tensors are
further inputs of the op. Outside of graphs the attribute is the traced graph itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from headrace import nest
from headrace.api import recorder, scopes, tracing
from headrace.api.data import structure
from headrace.api.py_func import py_function
from headrace.api.tensor_spec import TensorSpec
from headrace.api.traced_graph import TracedGraph
from headrace.errors import GraphError, SignatureError
from headrace.ir.attr_values import Func
from headrace.ir.builder import Builder
from headrace.ir.function import free_function_name, move_to
from headrace.ir.graph import FuncGraph
from headrace.records import record


@record(frozen=True, slots=True)
class DatasetFunction:
    """Traced function.

    Attributes:
      attr: the value of the attribute of the op.
      captured: the tensors of the last parameters.
      spec: the description of the results.
      controls: the operations that must run before the op.
    """

    attr: Any
    captured: list[Any]
    spec: Any
    controls: tuple[Any, ...] = ()


def traced(
    b: Any,
    fn: Callable[..., Any],
    spec: Any,
    what: str,
    dataset: Callable[[Any, Any], Any],
    unpacks: bool = True,
    results: Any = None,
) -> DatasetFunction:
    """Traces a function of an element.

    Args:
      b: the builder of the op.
      fn: the function. It takes the parts of an element that is a tuple, or else the element.
      spec: the description of the elements.
      what: the name of the method, for messages and names.
      dataset: the function from a variant and the description of elements to a dataset.
      unpacks: whether the parts of a tuple are separate arguments.
      results: the description of the results, if they must have one; then numbers are converted to its dtypes.

    Raises:
      SignatureError: the results cannot be tensors, or do not fit `results`.
    """
    tracing.check_callable(map_func=fn)
    given, fn = fn, tracing.converted(fn)
    trace: TracedGraph | None = None
    if isinstance(b, Builder):
        root = b.graph
        while root.outer is not None:
            root = root.outer
        outer = b.graph
    else:
        root = outer = trace = TracedGraph(f"the function of {what}")
        trace.seed = scopes.runtime().eager.seed
    name = f"Dataset_{what}_{getattr(fn, '__name__', 'function')}".replace("<", "").replace(">", "")
    graph = FuncGraph(free_function_name(root, name), outer)
    tracing.begin(graph, outer, f"the function of {what}", fn)
    leaves = structure.flatten(spec)
    params = [
        graph.add_param(structure.component_type(s), structure.component_shape(s), f"args_{i}")
        for i, s in enumerate(leaves)
    ]
    found: list[Any] = []

    def flat(*args: Any) -> Any:
        inner = scopes.builder()
        element = structure.pack(spec, [structure.leaf_of(t, s, dataset) for t, s in zip(args, leaves, strict=True)])
        is_split = unpacks and type(element) is tuple
        value = fn(*element) if is_split else fn(element)
        parts, specs = _components(value, inner, what, fn, results)
        found.append(specs)
        return _eager(given, is_split, spec, args, specs) if _is_eager and _are_dense(spec, specs) else parts

    with recorder.set_to(()):
        tracing.finish(graph, tracing.call(flat, graph, Builder(graph), params))
    captured: list[Any] = [t for t, _ in graph.captured]
    controls = tuple(graph.outer_controls)
    if trace is not None:
        trace.close()
        values = {id(p): value for value, p in trace.captured.values()}
        if any(id(t) not in values for t in captured):
            raise GraphError(f"the function of {what} uses a tensor that no graph around it has")
        return DatasetFunction(graph, [values[id(t)] for t in captured], found[0])
    while graph.outer is not None and graph.outer.outer is not None:
        move_to(graph, graph.outer.outer)
    root.functions[graph.name] = graph
    return DatasetFunction(Func(graph.name), captured, found[0], controls)


_is_eager = False


def run_eagerly(is_eager: bool) -> None:
    """Sets whether functions that are traced from now on run as Python, with eager tensors.

    A function that takes or returns something else than dense tensors is compiled all the same.
    """
    global _is_eager
    _is_eager = is_eager


def _are_dense(*specs: Any) -> bool:
    return all(isinstance(s, TensorSpec) for spec in specs for s in structure.flatten(spec))


def _eager(fn: Callable[..., Any], is_split: bool, spec: Any, args: Sequence[Any], results: Any) -> list[Any]:
    """Returns the components of the results of a Python call."""
    wanted = structure.flatten(results)

    def call(*values: Any) -> list[Any]:
        element = structure.pack(spec, values)
        value = fn(*element) if is_split else fn(element)
        return structure.flatten(tuple(value) if isinstance(value, list) else value)

    made = py_function(call, list(args), [s.dtype for s in wanted])
    for t, s in zip(made, wanted, strict=True):
        t.refine(s.shape)
    return list(made)


def _components(value: Any, b: Any, what: str, fn: Callable[..., Any], results: Any) -> tuple[list[Any], Any]:
    """Returns the components of the results, and their description."""
    if isinstance(value, list):  # more often the results of an op than the rows of one tensor
        value = tuple(value)
    if value is None:
        raise SignatureError(
            f"the function of {what} ({tracing.source_of(fn)}) returned None; let it return "
            "tensors, or structures of them"
        )
    leaves = structure.flatten(value)
    wanted: Sequence[Any] = [None] * len(leaves)
    if results is not None:
        if not structure.same(results, value):
            raise SignatureError(
                f"The two structures don't have the same nested structure: the function of {what} "
                f"({tracing.source_of(fn)}) returned {value}, where {results} is expected"
            )
        wanted = structure.flatten(results)
    parts, specs = [], []
    for leaf, spec in zip(leaves, wanted, strict=True):
        if spec is not None and isinstance(leaf, (bool, int, float, complex)):
            leaf = b.tensor(leaf, spec.dtype)
        try:
            part, made = structure.component(leaf, b)
        except (TypeError, ValueError) as e:
            raise SignatureError(
                f"the function of {what} ({tracing.source_of(fn)}) returned {nest.describe(leaf)}, which cannot be a "
                f"tensor ({e})"
            ) from e
        if spec is not None and made.dtype is not spec.dtype:
            raise SignatureError(
                f"the function of {what} ({tracing.source_of(fn)}) returned a tensor of {made.dtype.name}, where "
                f"{spec.dtype.name} is expected"
            )
        parts.append(part)
        specs.append(made)
    return parts, structure.pack(value, specs)


def with_controls(b: Any, *functions: DatasetFunction) -> Any:
    """Returns the builder of an op that calls functions, with their control inputs."""
    controls = [op for f in functions for op in f.controls]
    return b.after(*controls) if controls else b
