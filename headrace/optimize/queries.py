"""What passes ask of graphs and operations. Nothing here changes a graph."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from headrace.dtypes import OBJECT
from headrace.ir import walk
from headrace.ir.analysis.speculatable import is_speculatable
from headrace.ir.function import bodies, nested_operations, owns_all
from headrace.ir.infer import constant_value

if TYPE_CHECKING:
    from headrace.ir.graph import FuncGraph, Graph, Operation, Tensor


def in_order(graph: Graph) -> Sequence[Operation]:
    """The operations of `graph`, each after what it waits for. Mostly that is how they stand already."""
    ops = graph.operations
    for i, op in enumerate(ops):
        for t in op.inputs:
            if t.op.id >= i:
                return walk.toposort(ops)
        for c in op.control_inputs:
            if c.id >= i:
                return walk.toposort(ops)
    return ops


def primitives(graph: Graph) -> str:
    """Why rules that do not know deadness and frames leave `graph` alone; "" if it has none."""
    for op in graph.operations:
        if op.opdef.primitive not in ("", "ControlTrigger"):
            return f"'{op.name}' is a {op.type}: its loops and conditionals are primitives"
    return ""


def owns_graphs(op: Operation) -> bool:
    """Whether `op` is a conditional, loop or call whose graphs are its own, so that inputs and outputs of it and of
    them can be told apart and changed."""
    return op.opdef.structured in ("If", "Case", "Call", "While") and owns_all(op)


def is_plain(op: Operation) -> bool:
    """Whether what `op` gives follows from the values of its inputs, whenever it runs, and nothing else happens.

    A pure operation that reads a reference (TensorFlow's first variables) gives what the variable holds at that time.
    """
    return op.opdef.is_pure and not any(t.dtype.is_ref for t in op.inputs)


def const(t: Tensor) -> np.ndarray | None:
    """The value of `t` if a `Const` makes it; None otherwise."""
    if t.op.type != "Const":
        return None
    value = t.op.attrs["value"]
    return value if isinstance(value, np.ndarray) else None


def is_zeros(t: Tensor, may_be_negative: bool = True) -> bool:
    """Whether `t` is known to be zeros; without `may_be_negative`, none of them -0.0."""
    if t.op.type == "ZerosLike":
        return True
    if t.op.type == "Fill":
        t = t.op.inputs[1]
    value = constant_value(t)
    if value is None or t.dtype.base in OBJECT or value.any():
        return False
    return may_be_negative or not (np.signbit(value.real) | np.signbit(value.imag)).any()


def is_silent(op: Operation) -> bool:
    """Whether nobody can tell if `op` ran, but by its outputs: it has no effect and cannot fail."""
    return op.type in ("Const", "_Arg", "NoOp") or (is_plain(op) and is_speculatable(op))


def has_effect(op: Operation) -> bool:
    """Whether `op`, or anything in the graphs that it owns or calls, changes or checks something or waits for others.

    What only reads a variable has none: nobody can tell whether it ran.
    """
    if op.opdef.structured:
        return has_effects(g for _, g in bodies(op))
    facts = op.opdef.facts
    return facts.writes or facts.waits or facts.checks


def has_effects(graphs: Iterable[FuncGraph]) -> bool:
    """Whether any operation of `graphs`, or of those that they own or call, has one."""
    ops = nested_operations((op for g in graphs for op in g.operations), calls=True)
    return any(has_effect(op) for op in ops if not op.opdef.structured)
