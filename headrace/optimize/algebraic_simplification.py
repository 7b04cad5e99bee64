"""Algebraic simplification: bypasses operations that return one of their inputs unchanged.

| operation | replaced by | condition |
|---|---|---|
| `Identity(x)` and every other operation that forwards its input | `x` | it cannot fail |
| `x + 0`, `x - 0`, `x * 1`, `x / 1`, `x and true`, `x or false` | `x` | see below |
| `Neg(Neg(x))`, `LogicalNot`, `Invert` | `x` | |
| `Transpose` by the identity permutation; the inverse of another `Transpose` | `x` | |
| `Cast` to the same dtype; a cast to a dtype that holds every value, and back | `x` | |
| `Reshape`, `BroadcastTo` to the same shape; `EnsureShape` of such a shape | `x` | the shape is known |
| `Sum`, `Prod`, `Max`, `Min`, `Mean`, `All`, `Any` over no dimension | `x` | |
| `Reshape(Reshape(x, s), t)` | `Reshape(x, t)` | the first cannot fail |
| a result of a conditional or call that is one of its inputs; the result of a loop constant | that input | |

The replacement must be equal bit by bit. For floats, `x + 0` is not equal to `x` (-0.0 becomes 0.0), while `x + (-0.0)`
and `x - 0` are. For complex numbers not even `x * 1` is. The shape must be equal too: `zeros([3]) + x` may be larger
than `x`.

Operations that waited for the bypassed operation wait for the producer of `x`. Two kinds of operations stay: those with
control inputs, and those that ask for another device or colocation than the producer of `x`, because they move the
value to that device.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final, TypeAlias

import numpy as np

from headrace import shapes
from headrace.dtypes import OBJECT
from headrace.ir.analysis.speculatable import is_speculatable
from headrace.ir.function import owned, param_offset
from headrace.ir.graph import FuncGraph
from headrace.ir.order import is_constant
from headrace.optimize.base import Pass, PassContext
from headrace.optimize.colocation import entries_for_bypassed, is_colocated
from headrace.optimize.queries import const, is_plain, owns_graphs
from headrace.optimize.rewriter import Rewriter

if TYPE_CHECKING:
    from headrace.dtypes import DType
    from headrace.ir.graph import Graph, Operation, Tensor

Rule: TypeAlias = "Callable[[Operation], Tensor | None]"


class SimplifyAlgebra(Pass):
    """Pass that bypasses identities; see the head of the module."""

    name = "identities"

    def call(self, graph: Graph, context: PassContext) -> bool:
        walking = Rewriter(graph, context)
        changed = False
        for op in walking:
            if op.opdef.structured:
                _bypass_results(op, walking)
                continue
            x = _RULES.get(op.type, _forwarded)(op)
            if x is not None and _may_go(op, x, walking):
                if not x.op.opdef.structured or not walking.edit.is_waited_for(op):
                    walking.replace(op, [x], (x.op,))
                    context.colocated[op.name] = entries_for_bypassed(op)
                elif walking.edit.is_used(op.outputs[0]):
                    walking.move(op.outputs[0], x)  # `op` stays, for the operations that wait for `x` alone
                else:
                    continue
                context.fired("identities", op, f"{op.type} returns '{x.name}' unchanged")
            elif op.type == "Reshape":
                changed |= _reshape_once(op, walking)
        return walking.finish() or changed


def _may_go(op: Operation, x: Tensor, walking: Rewriter) -> bool:
    """Whether `x` can replace the output of `op`, which has the same value."""
    y = op.outputs[0]
    if op in walking.preserved or x.dtype is not y.dtype:
        return False
    if op.control_inputs:
        walking.context.refused("identities", op, f"it has the control input '{op.control_inputs[0].name}'")
        return False
    if op.device and op.device != x.op.device:
        walking.context.refused("identities", op, f"it requests device {op.device!r}, and '{x.op.name}' does not")
        return False
    if not is_colocated(op, x.op):
        walking.context.refused("identities", op, f"it is colocated with other operations than '{x.op.name}'")
        return False
    if x.op.type == "_Arg" and not shapes.covers(y.shape, x.shape):
        walking.context.refused("identities", op, "its static shape is more specific than that of its input")
        return False
    return True


def _forwarded(op: Operation) -> Tensor | None:
    k = op.opdef.facts.forwards
    return op.inputs[k] if k is not None and is_speculatable(op) else None


# *** numbers that change nothing ***

_INTS: Final = "integers"
_ANY: Final = "any but complex numbers"


def _neutral(right: Callable[[np.ndarray], bool], which: str = _ANY, either: bool = False) -> Rule:
    """Returns the rule that `x op n` is x for each `n` that `right` accepts.

    Args:
      right: whether a constant is a neutral element.
      which: the dtypes to which the rule applies.
      either: whether `n op x` is x, too.
    """

    def rule(op: Operation) -> Tensor | None:
        dtype: DType = op.outputs[0].dtype
        if dtype.is_complex or dtype.base in OBJECT or (which == _INTS and not dtype.is_integer):
            return None
        x, y = op.inputs
        for a, b in ((x, y), (y, x)) if either else ((x, y),):
            n = const(b)
            if n is not None and right(n) and _keeps_shape(op, a, n):
                return a
        return None

    return rule


def _keeps_shape(op: Operation, x: Tensor, n: np.ndarray) -> bool:
    """Whether broadcasting with `n` keeps the shape of `x`."""
    if n.ndim == 0:
        return True
    if x.shape is not None and n.size == 1 and n.ndim <= len(x.shape):
        return True
    return shapes.is_full(x.shape) and x.shape == op.outputs[0].shape


def _is_zero_to_add(n: np.ndarray) -> bool:
    return not n.any() and (n.dtype.kind in "iu" or bool(np.signbit(n).all()))


def _is_zero_to_take(n: np.ndarray) -> bool:
    return not n.any() and not np.signbit(n).any()


def _is_one(n: np.ndarray) -> bool:
    return bool((n == 1).all())


# *** operations that cancel each other ***


def _twice(op: Operation) -> Tensor | None:
    inner = op.inputs[0].op
    return inner.inputs[0] if inner.type == op.type and _is_beside(inner, op) else None


def _is_beside(inner: Operation, op: Operation) -> bool:
    """Whether an operation may bypass `inner`, which computes its input.

    It may if `inner` is plain, has no control inputs and is on the same device.
    """
    return not inner.control_inputs and inner.device == op.device and is_plain(inner)


def _transpose(op: Operation) -> Tensor | None:
    x, perm = op.inputs[0], const(op.inputs[1])
    if perm is None:
        return None
    as_it_is = list(range(perm.size))
    if perm.tolist() == as_it_is:
        return x if x.shape is not None else None
    first = const(x.op.inputs[1]) if x.op.type == op.type and _is_beside(x.op, op) else None
    if first is None:
        return None
    order = dict(enumerate(first.tolist()))
    return x.op.inputs[0] if [order.get(k) for k in perm.tolist()] == as_it_is else None


def _cast(op: Operation) -> Tensor | None:
    x = op.inputs[0]
    if op.attrs["SrcT"] is op.attrs["DstT"]:
        return x
    first = x.op
    if first.type != op.type or not _is_beside(first, op):
        return None
    narrow, wide = (np.dtype(first.attrs[k].numpy) for k in ("SrcT", "DstT"))
    # numpy calls the cast from 64-bit integers to floats safe, but the values do not come back
    kinds = narrow.kind + wide.kind
    return first.inputs[0] if kinds in ("ii", "uu", "ui", "ff") and np.can_cast(narrow, wide, "safe") else None


def _same_shape(op: Operation) -> Tensor | None:
    x = op.inputs[0]
    return x if shapes.is_full(x.shape) and x.shape == op.outputs[0].shape else None


def _over_nothing(op: Operation) -> Tensor | None:
    axes = const(op.inputs[1])
    return op.inputs[0] if axes is not None and not axes.size else None


def _reshape_once(op: Operation, walking: Rewriter) -> bool:
    first = op.inputs[0].op
    if first.type != op.type or not _is_beside(first, op) or not is_speculatable(first):
        return False
    walking.edit.set_input(op, 0, first.inputs[0])
    walking.context.fired("identities", op, f"reads the input of '{first.name}' directly, which is a reshape too")
    return True


_RULES: Final[Mapping[str, Rule]] = {
    "AddV2": _neutral(_is_zero_to_add, either=True),
    "Add": _neutral(_is_zero_to_add, either=True),
    "Sub": _neutral(_is_zero_to_take),
    "Mul": _neutral(_is_one, either=True),
    "Div": _neutral(_is_one),
    "RealDiv": _neutral(_is_one),
    "FloorDiv": _neutral(_is_one, _INTS),
    "TruncateDiv": _neutral(_is_one, _INTS),
    "LogicalAnd": _neutral(lambda n: bool(n.all()), either=True),
    "LogicalOr": _neutral(lambda n: not n.any(), either=True),
    "Neg": _twice,
    "LogicalNot": _twice,
    "Invert": _twice,
    "Transpose": _transpose,
    "Cast": _cast,
    "Reshape": _same_shape,
    "BroadcastTo": _same_shape,
    **dict.fromkeys(("Sum", "Prod", "Max", "Min", "Mean", "All", "Any"), _over_nothing),
    "EnsureShape": lambda op: op.inputs[0] if shapes.covers(op.attrs["shape"], op.inputs[0].shape) else None,
}


# *** structured operations that forward inputs ***


def _bypass_results(op: Operation, walking: Rewriter) -> None:
    """Makes the readers of forwarded results of `op` read the inputs."""
    if not owns_graphs(op) or walking.context.has_parts(op):
        return
    graphs = owned(op)
    found = {}
    offset = param_offset(op)
    for k, t in enumerate(op.outputs):
        j = _handed_on(op, graphs, k)
        if j is not None and op.inputs[j + offset].dtype is t.dtype:  # a reference and its value differ
            found[t] = op.inputs[j + offset]
    read = [t for t in found if walking.edit.is_used(t)] if found else []
    if not read:
        return
    for t in read:
        walking.move(t, found[t])
    walking.context.fired("identities", op, f"returns {len(read)} of its inputs unchanged")


def _handed_on(op: Operation, graphs: list[FuncGraph], k: int) -> int | None:
    """Position of the parameter that result `k` of `op` always equals, or None."""
    if op.opdef.structured == "While":
        return k if is_constant(op.attrs["body"], k) else None
    ends = {g.results[k].op.attrs["index"] if g.results[k].op.type == "_Arg" else None for g in graphs}
    return ends.pop() if len(ends) == 1 else None
