"""Names of the tensors of a step, as watches name them.

An operation of the root graph, or of a body or branch that the user's Python traced there, has its own name, which is
unique in the graph. An operation of a library function `f` is "f/x". An operation of a body or branch that is a library
function is also "loop/x", for the loop that calls it, and a parameter "arg.x" is "loop/x", too.
"""

from __future__ import annotations

import difflib
import fnmatch
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from headrace import dtypes
from headrace.errors import InvalidArgumentError
from headrace.ir.function import bodies, nested, nested_operations
from headrace.ir.graph import FuncGraph, Graph, Tensor

if TYPE_CHECKING:
    from headrace.ir.graph import Operation

_SHOWN: Final = 12  # names in the text of an error
_GLOB: Final = frozenset("*?[")


class Names:
    """Names of the tensors in a structured step.

    Args:
      graph: the graph of the step.
    """

    def __init__(self, graph: Graph) -> None:
        self._root = graph
        self._graphs: list[FuncGraph] = []
        self._ops: dict[str, list[Operation]] = {}  # by canonical name
        self._others: dict[str, list[Operation]] = {}  # by further names
        for op in graph.operations:
            self._ops.setdefault(op.name, []).append(op)
        for owner, inner in nested(graph.operations, calls=True):
            self._graphs.append(inner)
            for op in inner.operations:
                name = canonical(op)
                self._ops.setdefault(name, []).append(op)
                last = op.name.removeprefix("arg.").removeprefix(f"{owner.name}/")
                self._others.setdefault(f"{owner.name}/{last}", []).append(op)

    def find(self, what: Tensor | str) -> list[tuple[str, Tensor]]:
        """Returns the tensors that `what` means, with their names.

        Raises:
          InvalidArgumentError: there is none, or its values cannot be watched.
        """
        if isinstance(what, Tensor):
            found = self._copies(what)
            name = f"{canonical(what.op)}:{what.index}"
            if not found:
                raise InvalidArgumentError(
                    f"'{name}' cannot be watched: it is not part of this step{self._advice(name)}",
                    what.op.name,
                    what.op,
                )
            return [(name, _checked(name, t)) for t in found]
        if not _GLOB.isdisjoint(what):
            return self._matching(what)
        name, _, number = what.partition(":")
        ops = self._ops.get(name) or self._others.get(name)
        index = int(number) if number.isdigit() else 0 if not number else -1
        tensors = [op.outputs[index] for op in ops or () if 0 <= index < len(op.outputs)]
        if not tensors:
            raise InvalidArgumentError(
                f"{what!r} cannot be watched: this step has no tensor of that name{self._advice(name)}"
            )
        return [(label, _checked(label, t)) for t in tensors for label in [f"{name}:{index}"]]

    def _matching(self, pattern: str) -> list[tuple[str, Tensor]]:
        out = [
            (f"{name}:{t.index}", t)
            for name, ops in self._ops.items()
            for op in ops
            if op.type not in ("_Arg", "_Retval", "Const")
            for t in op.outputs
            if (fnmatch.fnmatchcase(name, pattern) or fnmatch.fnmatchcase(f"{name}:{t.index}", pattern))
            and _obstacle(t) is None
        ]
        if not out:
            raise InvalidArgumentError(f"no tensor of this step matches {pattern!r}{self._advice(pattern)}")
        return out

    def _copies(self, t: Tensor) -> list[Tensor]:
        """Returns the tensors of the step that stand for the user's tensor `t`."""
        copies = [g.originals[t] for g in self._graphs if t in g.originals]
        # a gradient that computes values again has further copies, with other names
        out = [c for c in copies if c.op.name == t.op.name] or copies
        out = out or [t for g in self._graphs if t.op.graph is g]
        if out or isinstance(t.op.graph, FuncGraph):
            return out
        return [op.outputs[t.index] for op in self._ops.get(t.op.name, ()) if t.index < len(op.outputs)]

    def _advice(self, name: str) -> str:
        inside = [n for g in self._graphs for op in g.operations if op.outputs and op.type != "Const"
                  for n in [canonical(op)] if not n.startswith("arg.")]  # fmt: skip
        inside = list(dict.fromkeys(inside)) or [n for n, ops in self._ops.items() if ops[0].outputs]
        close = difflib.get_close_matches(name, dict.fromkeys([*self._ops, *self._others]), 3, 0.6)
        near = f". Did you mean {' or '.join(map(repr, close))}?" if close else ""
        shown = ", ".join(inside[:_SHOWN]) + (f" and {len(inside) - _SHOWN} others" if len(inside) > _SHOWN else "")
        return f"{near or '.'} Tensors that can be watched: {shown or 'none'}"


def canonical(op: Operation) -> str:
    """Returns the name of `op` by which watches report it."""
    graph = op.graph
    return f"{graph.name}/{op.name}" if isinstance(graph, FuncGraph) and not graph.shares_names else op.name


def _obstacle(t: Tensor) -> str | None:
    """Returns the reason why the values of `t` cannot be watched, or None."""
    if t.dtype.base in (dtypes.resource, dtypes.variant):
        return f"its dtype is {t.dtype.base.name}, and a value of it is no array"
    return None


def _checked(name: str, t: Tensor) -> Tensor:
    obstacle = _obstacle(t)
    if obstacle is not None:
        made = f" (made at {t.op.source})" if t.op.source is not None else ""
        raise InvalidArgumentError(f"'{name}'{made} cannot be watched: {obstacle}", t.op.name, t.op)
    return t


def conditions(ops: Iterable[Operation]) -> set[Graph]:
    """Returns the graphs of all conditions of loops in `ops`, with nested graphs."""
    loops = [op for op in nested_operations(ops, calls=True) if op.opdef.structured == "While"]
    found = [graph for op in loops for name, graph in bodies(op) if name == "cond"]
    return {*found, *(inner for graph in found for _, inner in nested(graph.operations))}
