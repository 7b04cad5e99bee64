"""Traces of `hr.jit` functions as functions of a SavedModel's library.

The graph of a trace becomes a function: its arguments and captured tensors are the parameters, and its results and
effects the results. The functions that it calls, and the bodies of its conditionals and loops, become functions too.
In a SavedModel all are written with TensorFlow's operations only (`interchange.portable`). Each trace has a library of
its own, so the names get the prefix of the trace.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from headrace import notices, pb
from headrace.api.scopes import Graph
from headrace.errors import GraphError
from headrace.ir import walk
from headrace.ir.attr_values import Func
from headrace.ir.builder import Builder
from headrace.ir.custom_rules import OVERRIDE
from headrace.ir.edit.copying import copied, copy_into
from headrace.ir.graph import FuncGraph
from headrace.ir.serial.functiondef import functions_in
from headrace.jit.concrete import ConcreteFunction
from headrace.ops.py_func import OF_ONE_PROCESS
from headrace.saved_model.loops import add_counters

if TYPE_CHECKING:
    from headrace.pb import FunctionDef


def functions_of(concrete: ConcreteFunction, name: str, portable: bool = True) -> list[FunctionDef]:
    """Returns the function of a trace, and the functions that it calls.

    Args:
      concrete: the trace.
      name: the name, which is also the prefix of the other names.
      portable: whether the functions are for TensorFlow too.

    Raises:
      GraphError: an operation without a counterpart in TensorFlow, a recursive function, or a call of Python code.
    """
    traced = concrete.graph

    def fill(graph: FuncGraph) -> None:
        for called, f in traced.functions.items():
            if isinstance(f, FuncGraph) and called not in traced.library:
                graph.outer.functions[called] = copied(f, graph.outer)  # type: ignore[union-attr]
        graph.outer.library.update(traced.library)  # type: ignore[union-attr]
        moved = {p: graph.add_param(p.dtype, p.static_shape, p.op.name, handle=p.handle) for p in concrete.inputs}
        instead = {p.op: t.op for p, t in moved.items()}
        needed = walk.reachable([*(t.op for t in concrete.outputs), *concrete.effects]) - instead.keys()
        copies = {**instead, **copy_into(graph, walk.in_order(needed), moved, instead)}
        graph.set_results([moved[t] for t in concrete.outputs], [copies[op] for op in concrete.effects], True)

    return written(name, fill, portable)


def written(name: str, fill: Callable[[FuncGraph], None], portable: bool = True) -> list[FunctionDef]:
    """Returns a new function and the functions that it calls.

    Args:
      name: the name, which is also the prefix of the other names.
      fill: adds parameters, operations and results to the function's graph.
      portable: see `functions_of`.
    """
    home = Graph()
    graph = home.functions[name] = FuncGraph(name, home)
    fill(graph)
    b = Builder(home)
    inputs = [b.make("Placeholder", (), {"dtype": p.dtype.base, "shape": p.static_shape}) for p in graph.params]
    attrs = {"f": Func(name), "Tout": tuple(t.dtype.base for t in graph.results)}
    b.make("StatefulPartitionedCall", (inputs,), attrs)  # a call, so that calls of recursive functions are found
    made: Sequence[FunctionDef] = home.as_graph_def(portable=portable).library.function
    if portable:
        made = add_counters(made)
    made = sorted(made, key=lambda f: f.signature.name != name)  # after functions of a file otherwise
    for node in (node for f in made for node in f.node_def if node.op in OF_ONE_PROCESS):
        raise GraphError(
            f"'{node.name}' ({node.op}) calls a Python function of this process, which no file can contain"
        )
    for node in (node for f in made for node in f.node_def if OVERRIDE in node.attr and not portable):
        notices.warn(
            f"'{node.name}' ({node.op}) has a gradient of hr.custom_gradient, which is not saved: derivatives of the "
            "loaded function by its inputs are errors"
        )
    _rename(made, {f.signature.name: f"{name}_{f.signature.name}" for f in made if f.signature.name != name})
    return made


def _rename(functions: Iterable[FunctionDef], names: dict[str, str]) -> None:
    for f in functions:
        f.signature.name = names.get(f.signature.name, f.signature.name)
        for node in f.node_def:
            node.op = names.get(node.op, node.op)
            for func in functions_in(node.attr.values()):
                func.name = names.get(func.name, func.name)


def call_of(function: FunctionDef, name: str, inputs: Iterable[str]) -> pb.NodeDef:
    """Returns the node that calls a function.

    Args:
      function: the function.
      name: the name of the node.
      inputs: the names of its inputs.
    """
    node = pb.NodeDef(name=name, op="StatefulPartitionedCall", input=inputs)
    signature = function.signature
    node.attr["f"].func.name = signature.name
    node.attr["Tin"].list.type.extend(arg.type for arg in signature.input_arg)
    node.attr["Tout"].list.type.extend(arg.type for arg in signature.output_arg)
    node.attr["Tin"].list.SetInParent()
    node.attr["Tout"].list.SetInParent()
    return node


def handle_of(value: Any) -> int:
    """Returns the identity of the resource of an eager handle."""
    return id(value.numpy())
