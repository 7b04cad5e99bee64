"""Common subexpression elimination: merges operations that compute the same value.

Two operations are the same if they are pure and of one type, with the same attributes, inputs and control inputs, and
ask for the same device and colocation. The inputs of a commutative operation may be in either order. Lists (variants)
are never shared: each list has one owner, so that an append need not copy it.

If a conditional, loop or call gets the same tensor as several inputs (a loop: as several loop constants), its graphs
read it through one parameter. The pass `prune` removes the other parameters.

Two equal reads of a variable, or of another resource, are the same if no write can happen between them: each operation
that may write the resource comes before the first read, or after the second one, on a path of edges.

    x = v.read()    y = x @ a    z = v.read()    w = z @ y    assign v after x and z        z is x

Only operations of one graph are merged. A call that rematerializes values for its gradient (`hr.recompute`) stays a
call, so the values inside have no equal operation in their graph.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING

import numpy as np

from headrace import dtypes, thresholds
from headrace.ir.attr_values import attr_key
from headrace.ir.edit.editor import Editor
from headrace.ir.function import owned, param_offset
from headrace.ir.order import effects, is_constant, key_of
from headrace.optimize.base import Pass, PassContext
from headrace.optimize.colocation import anchored
from headrace.optimize.effect_sets import EffectSets
from headrace.optimize.queries import const, in_order, is_draw, is_plain, may_be_same, only_reads, owns_graphs
from headrace.optimize.rewriter import Rewriter

if TYPE_CHECKING:
    from headrace.ir.graph import FuncGraph, Graph, Operation, Tensor
    from headrace.ir.order import Key


class MergeCommon(Pass):
    """Pass that merges common subexpressions; see the head of the module."""

    name = "cse"

    def call(self, graph: Graph, context: PassContext) -> bool:
        walking = Rewriter(graph, context)
        met: dict[Hashable, Operation] = {}
        times = _Times(graph)
        devices: dict[Hashable, Operation] = {}
        changed = False
        for op in walking:
            if op.opdef.structured:
                changed |= _merge_params(op, context)
                continue
            what = _what(op)
            if what is None:
                continue
            key = (what, op.device)
            twin = met.setdefault(key, op)
            if twin is not op and not op.opdef.is_pure and times.may_differ(twin, op):
                context.refused("cse", op, f"the resource that '{twin.name}' reads may be written between the two")
                continue
            if twin is op:
                other = devices.setdefault(what, op)
                if other is not op and op.inputs:
                    context.refused("cse", op, f"'{other.name}' is equal but requests {other.device or 'no device'!r}")
            elif op not in walking.preserved:
                walking.replace(op, twin.outputs, (twin,))
                context.colocated[op.name] = (anchored(twin.name),)
                if op.inputs:
                    context.fired("cse", op, f"equal to '{twin.name}'")
        return walking.finish() or changed


def _what(op: Operation) -> Hashable | None:
    """Key of the value that `op` computes, without its device, or None.

    None means that `op` must not be merged.
    """
    facts = op.opdef.facts
    if not (is_plain(op) or only_reads(op)) or facts.no_fold:
        return None
    if any(t.dtype.base is dtypes.variant for t in op.outputs):
        return None
    inputs: tuple[Tensor, ...] = tuple(op.inputs)
    if facts.commutative and id(inputs[0]) > id(inputs[1]):
        inputs = (inputs[1], inputs[0], *inputs[2:])
    controls = frozenset(op.control_inputs) if op.control_inputs else None
    value = const(op.outputs[0]) if op.type == "Const" else None
    if value is not None:
        more = tuple(sorted((k, v) for k, v in op.attrs.items() if k not in ("value", "dtype")))
        return ("Const", op.outputs[0].dtype, value.shape, _contents(value), more, op.notes, controls)
    attrs = tuple([(name, attr_key(v)) for name, v in sorted(op.attrs.items())])
    key = (op.type, attrs, op.notes, inputs, controls)
    try:
        hash(key)
    except TypeError:  # an attribute is an array
        return None
    return key


class _Times:
    """The reads and writes of resources in one graph, and their order.

    Args:
      graph: the graph before the walk. Operations that the walk merges are equal, so its order stays true.
    """

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._sets: EffectSets[Operation] | None = None
        self._before: dict[Operation, int] = {}
        self._writes: list[tuple[Operation, list[Key]]] = []

    def may_differ(self, first: Operation, second: Operation) -> bool:
        """Whether the state that two equal reads read may be written between them."""
        if self._sets is None:
            self._sets = self._found()
        key, sets, before = key_of(first.inputs[0]), self._sets, self._before
        for op, written in self._writes:
            if key is None or any(may_be_same(key, k) for k in written):
                is_earlier = before[first] & sets.bit(op)
                is_later = before[op] & sets.bit(second)
                if not (is_earlier or is_later):
                    return True
        return False

    def _found(self) -> EffectSets[Operation]:
        sets: EffectSets[Operation] = EffectSets()
        for op in in_order(self._graph):
            reached = 0
            for each in (*(t.op for t in op.inputs), *op.control_inputs):
                reached |= self._before[each] | sets.bit(each)
            self._before[op] = reached
            written = [key for key, writes in effects(op).items() if writes and not is_draw(key)]
            if written:
                self._writes.append((op, written))
            if written or only_reads(op):
                sets.add(op)
        return sets


def _contents(value: np.ndarray) -> Hashable:
    if value.dtype == object:
        return tuple(value.ravel().tolist()) if value.size <= 64 else id(value)
    return value.tobytes() if value.nbytes <= thresholds.COMPARED_CONSTANT_BYTES else id(value)


def _merge_params(op: Operation, context: PassContext) -> bool:
    """Makes the graphs of `op` read a repeated input through one parameter."""
    if not owns_graphs(op):
        return False
    graphs = owned(op)
    offset = param_offset(op)
    is_loop = op.opdef.structured == "While"
    first: dict[Tensor, int] = {}
    pairs: list[tuple[int, int]] = []
    for k, t in enumerate(op.inputs[offset:]):
        if not is_loop or is_constant(op.attrs["body"], k):
            j = first.setdefault(t, k)
            if j != k:
                pairs.append((k, j))
    merged = [_read_instead(g, pairs, is_loop) for g in graphs] if pairs else []
    if any(merged):
        context.fired("cse", op, f"merged {sum(map(len, merged))} parameters that receive the same tensor")
    return any(merged)


def _read_instead(graph: FuncGraph, pairs: list[tuple[int, int]], is_loop: bool) -> list[int]:
    """Makes readers of parameter k read j, for each pair (k, j).

    Returns:
      Each k that was read.
    """
    edit = Editor(graph)
    # in a loop, the result that is the parameter itself makes it a loop constant, so it stays
    return [k for k, j in pairs if edit.replace(graph.params[k], graph.params[j], results=not is_loop)]
