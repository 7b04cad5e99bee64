"""Independence of the iterations of a loop, checked when the loop is built.

An iteration depends on the one before it if it reads a loop variable that the one before has computed. Three kinds of
variables need no computation of the iteration before:

* a loop constant, which the body returns unchanged;
* an induction variable, to which the body adds a constant or a loop constant;
* a list that the body only writes to: TensorListSetItem and TensorListPushBack, also in a branch. It is what a
  `TensorArray` in a loop is.

A variable that the body computes and never reads, such as the last value of a tensor, is no dependency either.
Iterations also depend on each other if the body or the condition changes state, whose order is kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from headrace.errors import GraphError
from headrace.ir import walk
from headrace.ir.function import bodies, param_offset
from headrace.ir.order import effects

if TYPE_CHECKING:
    from headrace.ir.graph import FuncGraph, Operation, Tensor

_SHOWN: Final = 8  # operations of a path in the text of an error


def check_independent(name: str, cond: FuncGraph, body: FuncGraph, labels: Sequence[str]) -> None:
    """Checks that no iteration of a loop depends on the one before it.

    Args:
      name: the name of the loop.
      cond: the condition; its first parameters are the loop variables.
      body: the body, with a result for each loop variable.
      labels: descriptions of the loop variables.

    Raises:
      GraphError: an iteration depends on the one before; the text names the variable and the operations on the path.
    """
    for graph in (cond, body):
        for op in graph.operations:
            if any(effects(op).values()):
                raise GraphError(
                    f"the iterations of {name!r} are not independent: {_shown(op)} changes state, and the iterations "
                    f"do so in their order. {_REMEDY}"
                )
    n = len(labels)
    carried = {body.params[k]: k for k in range(n) if not _is_free(body, k, n)}
    for p, k in carried.items():
        path = _path(p, body.results[:n], body)
        if path is None:
            path = _path(cond.params[k], cond.results, cond)
        if path is not None:
            edge = f"the previous iteration computed it as '{body.results[k].name}' in {_shown(body.results[k].op)}"
            through = ", then ".join(map(_shown, path[:_SHOWN])) + (", ..." if len(path) > _SHOWN else "")
            reader = "the condition" if path and path[0].graph is cond else "the body"
            raise GraphError(
                f"the iterations of {name!r} are not independent: {reader} reads loop variable {labels[k]}, and {edge}."
                f" It is read by {through or 'the next value of another loop variable'}. {_REMEDY}"
            )


_REMEDY: Final = (
    "Compute it from the counter, or write the values of the iterations to a TensorArray and combine them after the "
    "loop; or leave assert_independent out"
)


def _is_free(body: FuncGraph, k: int, n: int) -> bool:
    """Whether variable `k` needs no computation of the iteration before."""
    p, r = body.params[k], body.results[k]
    return r is p or _is_induction(body, p, r, n) or _is_written(body, p, r)


def _is_induction(body: FuncGraph, p: Tensor, r: Tensor, n: int) -> bool:
    """Whether the body adds a constant, or a loop constant, to the variable."""
    if not r.op.opdef.facts.sum_sign:
        return False
    x, y = r.op.inputs
    by = y if x is p else x if y is p and r.op.opdef.facts.sum_sign > 0 else None
    if by is None:
        return False
    fixed = set(body.params[n:]) | {q for q, s in zip(body.params[:n], body.results, strict=False) if q is s}
    return all(op.opdef.is_pure or op.type == "_Arg" for op in walk.reachable([by.op])) and all(
        t in fixed for op in walk.reachable([by.op]) if op.type == "_Arg" for t in op.outputs
    )


def _is_written(graph: FuncGraph, p: Tensor, r: Tensor) -> bool:
    """Whether `graph` only writes to the list `p`, with the result `r`."""
    versions = {p}
    t, chain = r, set()
    while t is not p:
        op = t.op
        if op.opdef.list_kind in ("set", "push") and t.index == 0:
            before = op.inputs[0]
        elif op.opdef.structured in ("If", "Case"):
            found = _through_branches(op, t.index)
            if found is None:
                return False
            before = found
        else:
            return False
        chain.add(op)
        versions.add(before)
        t = before
    readers = [op for op in graph.operations for i in op.inputs if i in versions]
    return all(op in chain for op in readers) and len(readers) == len(chain)


def _through_branches(op: Operation, index: int) -> Tensor | None:
    """The list that each branch writes to for result `index`, or None."""
    found = None
    for _, branch in bodies(op):
        r = branch.results[index]
        at = [p for p in branch.params if _is_written(branch, p, r)]
        if len(at) != 1:
            return None
        before = op.inputs[param_offset(op) + branch.params.index(at[0])]
        if found not in (None, before):
            return None
        found = before
    return found


def _path(p: Tensor, results: Sequence[Tensor], graph: FuncGraph) -> list[Operation] | None:
    """The operations from parameter `p` to the nearest of `results`, or None."""
    if p in results and graph.results.index(p) != graph.params.index(p):
        return []
    needed = walk.reachable([r.op for r in results if r is not p])
    before: dict[Operation, Operation | None] = {}
    todo = [op for op in graph.operations if op in needed and p in op.inputs]
    before.update(dict.fromkeys(todo))
    ends = {r.op for r in results}
    for op in todo:
        if op in ends:
            path: list[Operation] = []
            at: Operation | None = op
            while at is not None:
                path.append(at)
                at = before[at]
            return path[::-1]
        for reader in graph.operations:
            if reader in needed and reader not in before and any(t.op is op for t in reader.inputs):
                before[reader] = op
                todo.append(reader)
    return None


def _shown(op: Operation) -> str:
    made = f", made at {op.source}" if op.source is not None else ""
    return f"'{op.name}' ({op.type}{made})"
