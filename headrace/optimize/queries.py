"""Questions of passes about graphs and operations. Nothing here changes a graph."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from headrace.dtypes import OBJECT
from headrace.ir import walk
from headrace.ir.analysis.speculatable import is_speculatable
from headrace.ir.device import DeviceSpec
from headrace.ir.function import bodies, nested_operations, owns_all
from headrace.ir.infer import constant_value
from headrace.ir.kernel import CPU, has_kernel
from headrace.ir.order import ANY, EVERYTHING, is_resource, key_of

if TYPE_CHECKING:
    from headrace.ir.graph import FuncGraph, Graph, Operation, Tensor
    from headrace.ir.order import Key


def in_order(graph: Graph) -> Sequence[Operation]:
    """Returns the operations of `graph` in a topological order, if possible the present one."""
    ops = graph.operations
    return ops if walk.ascends(ops) else walk.toposort(ops)


def primitives(graph: Graph) -> str:
    """Reason why passes without rules for primitives skip `graph`, or ""."""
    for op in graph.operations:
        if op.opdef.primitive not in ("", "ControlTrigger"):
            return f"the graph has control-flow primitives, such as '{op.name}' ({op.type})"
    return ""


def owns_graphs(op: Operation) -> bool:
    """Whether `op` is a conditional, loop or call that owns all of its graphs.

    Then a pass may change its inputs and outputs together with the parameters and results of the graphs.
    """
    return op.opdef.structured in ("If", "Case", "Call", "While") and owns_all(op)


def is_plain(op: Operation) -> bool:
    """Whether the outputs of `op` are a function of its input values, without effects.

    A pure operation that reads a reference (TensorFlow's first variables) is not plain: its output depends on the value
    of the variable at that time.
    """
    return op.opdef.is_pure and not any(t.dtype.is_ref for t in op.inputs)


def only_reads(op: Operation) -> bool:
    """Whether `op` reads a resource, such as a variable, and has no effect."""
    facts = op.opdef.facts
    if facts.effect != "resource" or facts.writes or facts.waits or facts.checks or facts.blocking:
        return False
    return bool(op.inputs) and not any(t.dtype.is_ref for t in op.inputs)


def const(t: Tensor) -> np.ndarray | None:
    """Value of `t`, if a `Const` makes it; else None."""
    if t.op.type != "Const":
        return None
    value = t.op.attrs["value"]
    return value if isinstance(value, np.ndarray) else None


def is_possible_on(type: str, like: Operation, attrs: Mapping[str, Any]) -> bool:
    """Whether an operation of `type` can have the device request of `like`.

    It can if it would run on a CPU, or has a kernel for the requested type of device.
    """
    device = DeviceSpec.from_string(like.device).type or CPU
    return device == CPU or has_kernel(type, attrs, device)


def other_device(ops: Iterable[Operation]) -> str:
    """Reason against new op types in place of `ops`: a request of a non-CPU device."""
    for op in ops:
        if op.device and (DeviceSpec.from_string(op.device).type or CPU) != CPU:
            return f"'{op.name}' requests {op.device!r}, which may have no kernel for the new operations"
    return ""


def is_zeros(t: Tensor, may_be_negative: bool = True) -> bool:
    """Whether `t` is known to be all zeros; without `may_be_negative`, no element is -0.0."""
    if t.op.type == "ZerosLike":
        return True
    if t.op.type == "Fill":
        t = t.op.inputs[1]
    value = constant_value(t)
    if value is None or t.dtype.base in OBJECT or value.any():
        return False
    return may_be_negative or not (np.signbit(value.real) | np.signbit(value.imag)).any()


def is_silent(op: Operation) -> bool:
    """Whether a run of `op` can be observed by its outputs alone.

    Then it has no effect and cannot fail.
    """
    return op.type in ("Const", "_Arg", "NoOp") or (is_plain(op) and is_speculatable(op))


def has_effect(op: Operation) -> bool:
    """Whether `op` changes state, checks something or uses an object that operations wait for.

    For a structured operation, this includes the operations in the graphs that it owns or calls. An operation that only
    reads a variable has no effect: its run cannot be observed.
    """
    if op.opdef.structured:
        return has_effects(g for _, g in bodies(op))
    facts = op.opdef.facts
    return facts.writes or facts.waits or facts.checks


def has_effects(graphs: Iterable[FuncGraph]) -> bool:
    """Whether any operation of `graphs` or their nested graphs has an effect."""
    ops = nested_operations((op for g in graphs for op in g.operations), calls=True)
    return any(has_effect(op) for op in ops if not op.opdef.structured)


def acts(op: Operation) -> bool:
    """Whether `op` has an effect, or advances the stream of random numbers.

    For a structured operation, this includes the operations in the graphs that it owns or calls.
    """
    if op.opdef.structured:
        inside = nested_operations((o for _, g in bodies(op) for o in g.operations), calls=True)
        return any(acts(o) for o in inside if not o.opdef.structured)
    return has_effect(op) or op.opdef.facts.effect == "random"


def references(op: Operation) -> dict[Key, bool]:
    """State that an operation without an effect reads through references (TensorFlow 1's first variables)."""
    keys = [key_of(t) for t in op.inputs if t.dtype.is_ref]
    return {key: False for key in keys if key is not None}


def is_draw(key: Key) -> bool:
    """Whether `key` is that of a random operation's stream."""
    return isinstance(key, tuple) and key[0] == "random"


def may_be_same(a: Key, b: Key) -> bool:
    """Whether two keys may denote the same state."""
    if EVERYTHING in (a, b) or a == b:
        return True
    return ANY in (a, b) and is_resource(a) and is_resource(b)
