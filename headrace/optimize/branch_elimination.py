"""Removes conditionals with a known branch, and loops that run no iteration.

* A conditional whose predicate is a constant is replaced by the branch that it takes.
* Within a branch the predicate is known, so a nested conditional on the same predicate is replaced by a branch, too.
* A loop whose condition is false at its first evaluation returns its initial values.

The branch that is not taken would not have run, so no effect is lost.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from headrace import dtypes
from headrace.ir import walk
from headrace.ir.edit.editor import Editor
from headrace.ir.graph import FuncGraph
from headrace.ir.infer import forget
from headrace.ir.kernel import constant_kernel
from headrace.optimize.base import Pass, PassContext
from headrace.optimize.queries import const, has_effects, is_plain, owns_graphs
from headrace.optimize.rewriter import Rewriter
from headrace.optimize.splicing import splice

if TYPE_CHECKING:
    from headrace.ir.graph import Graph, Operation, Tensor


class EliminateBranches(Pass):
    """Pass that removes conditionals and loops with a known outcome."""

    name = "branches"
    grows = True  # a branch that is a mere parameter becomes an Identity where the conditional waits for something

    def call(self, graph: Graph, context: PassContext) -> bool:
        if not any(op.opdef.structured for op in graph.operations):
            return False
        walking = Rewriter(graph, context)
        changed = False
        for op in walking:
            if not owns_graphs(op):
                continue
            if op.opdef.structured in ("If", "Case"):
                taken = _taken(op)
                if taken is not None:
                    name, branch = taken
                    context.fired("branches", op, f"its predicate is constant: {name} replaces it")
                    walking.edit.add_controls(op, op.inputs[0].op.control_inputs)
                    splice(walking, op, branch, op.inputs[1:], name)
                elif op.opdef.structured == "If":
                    changed |= _tell_predicate(op, context)
            elif op.opdef.structured == "While":
                _skip(op, walking)
        return walking.finish() or changed


def _taken(op: Operation) -> tuple[str, FuncGraph] | None:
    """Returns (name, graph) of the branch of a conditional, if it is known."""
    value = const(op.inputs[0])
    if value is None or value.ndim or value.dtype.kind not in "biuf":
        return None
    if op.opdef.structured == "If":
        name = "then_branch" if value else "else_branch"
        return name, op.attrs[name]
    branches = op.attrs["branches"]
    k = int(value) if 0 <= value < len(branches) else len(branches) - 1
    return f"branch{k}", branches[k]


def _tell_predicate(op: Operation, context: PassContext) -> bool:
    """Replaces the predicate by constants in the branches of `op` that read it."""
    pred = op.inputs[0]
    if pred.dtype.base is not dtypes.bool_ or pred.shape != ():
        return False
    changed = False
    for k in [k for k, t in enumerate(op.inputs[1:]) if t is pred]:
        for name, value in (("then_branch", True), ("else_branch", False)):
            branch: FuncGraph = op.attrs[name]
            param = branch.params[k]
            edit = Editor(branch)
            if not edit.uses.get(param):
                continue
            array = np.array(value)
            array.flags.writeable = False
            attrs = {"value": array, "dtype": dtypes.bool_}
            new = branch.add_op("Const", branch.unique_name(param.op.name), (), attrs, (), "", pred.op.source)
            new.outputs[0].refine(())
            edit.put_first(new)
            edit.replace(param, new.outputs[0], results=False)
            for r in branch.operations:
                forget(r)
            changed = True
    if changed:
        context.fired("branches", op, "its predicate is a constant inside each branch")
    return changed


def _skip(op: Operation, walking: Rewriter) -> None:
    """Removes the loop `op` if it never runs an iteration."""
    cond: FuncGraph = op.attrs["cond"]
    if _value(cond, op.inputs) is not False:
        return
    if has_effects([cond]):
        walking.context.refused("branches", op, "its trip count is 0, but its condition has effects")
        return
    if op.control_inputs or op in walking.preserved or walking.edit.is_waited_for(op):
        walking.context.refused("branches", op, "its trip count is 0, but it has control edges")
        return
    walking.replace(op, list(op.inputs), ())
    walking.context.fired("branches", op, "its condition is initially false: trip count 0")


def _value(cond: FuncGraph, inputs: list[Tensor]) -> bool | None:
    """Value of a loop's condition, if it follows from constants among `inputs`."""
    known: dict[Tensor, Any] = {}
    for p, t in zip(cond.params, inputs, strict=True):
        value = const(t)
        if value is not None:
            known[p] = value
    if not known:
        return None
    end = cond.results[0]
    for op in walk.in_order(walk.reachable([end.op])):
        if op.type == "Const":
            value = const(op.outputs[0])
            if value is not None:
                known[op.outputs[0]] = value
        elif op.outputs and is_plain(op) and not op.opdef.facts.no_fold and all(t in known for t in op.inputs):
            kernel = constant_kernel(op)
            if kernel is None:  # the record's kernel is replaced by one that is made for each step
                return None
            try:
                with np.errstate(all="ignore"):
                    out = kernel(*(known[t] for t in op.inputs))
            except Exception:  # the operation raises the error itself when it runs
                return None
            known.update(zip(op.outputs, (out,) if len(op.outputs) == 1 else out, strict=True))
        elif op.type == "LogicalAnd" and op.outputs[0].shape == () and any(not known.get(t, True) for t in op.inputs):
            known[op.outputs[0]] = np.False_
    value = known.get(end)
    return bool(value) if value is not None and np.ndim(value) == 0 and end.dtype.base is dtypes.bool_ else None
