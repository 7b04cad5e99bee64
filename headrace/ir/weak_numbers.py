"""Weak numbers: tensors that stand for numbers of Python.

The dtype of a weak number yields to that of other tensors.

A Python number takes the dtype of the tensor that it meets. If such a number becomes a loop variable or the result of a
conditional (`total = 0.0` before a loop), it is a tensor, and its operation gets the note `WeakNumbers`. A tensor
computed only from weak ones and from constants is weak, too. This is found when it is needed: where dtypes differ.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from headrace.ir.notes import Note, note
from headrace.ir.opdef import PerElement
from headrace.records import record

if TYPE_CHECKING:
    from headrace.dtypes import DType
    from headrace.ir.graph import Tensor

_MOST_OPERATIONS: Final = 256  # in a walk from a tensor to the notes; a tensor further away counts as strong


@note
@record(frozen=True, slots=True)
class WeakNumbers(Note):
    """The outputs of an operation that stand for numbers of Python.

    Attributes:
      outputs: their indices.
    """

    outputs: tuple[int, ...] = ()


def is_weak(t: Tensor) -> bool:
    """Whether a tensor is computed from weak numbers and constants alone."""
    seen: set[int] = set()
    todo = [t]
    is_any = False
    while todo:
        x = todo.pop()
        op = x.op
        found = op.notes.get(WeakNumbers)
        if found is not None and x.index in found.outputs:
            is_any = True
            continue
        if id(op) in seen:
            continue
        seen.add(id(op))
        if len(seen) > _MOST_OPERATIONS:
            return False
        facts = op.opdef.facts
        if facts.graph_end:
            outer = _captured(x)
            if outer is None:
                return False
            todo.append(outer)
        elif not op.inputs:
            if op is t.op or facts.placeholder or op.opdef.is_effectful or x.static_shape != ():
                return False
        elif isinstance(facts.cost, PerElement) or facts.forwards is not None or op.opdef.facts.compares is not None:
            todo += op.inputs
        else:
            return False
    return is_any


def _captured(param: Tensor) -> Tensor | None:
    """Returns the tensor of a surrounding graph that a parameter stands for, if any."""
    captures = getattr(param.op.graph, "captures", {})
    return next((outer for outer, inner in captures.items() if inner is param), None)


def common_dtype(tensors: Sequence[Tensor]) -> DType | None:
    """Returns the dtype of the strong tensors, to which the weak ones yield.

    If all are weak, it is the widest kind. None if there is no such dtype.
    """
    weak = {t.dtype.base for t in tensors if is_weak(t)}
    strong = {t.dtype.base for t in tensors if not is_weak(t)}
    if not weak or len(strong) > 1:
        return None
    wanted = strong or {max(weak, key=lambda d: (d.is_floating or d.is_complex, d.is_complex, d.size))}
    (dtype,) = wanted
    return dtype if all(d is dtype or yields(d, dtype) for d in weak) else None


def yields(weak: DType, strong: DType) -> bool:
    """Whether a weak number of one dtype becomes the other dtype."""
    if weak.is_integer:
        return strong.is_integer or strong.is_floating or strong.is_complex
    return strong.is_complex or (weak.is_floating and strong.is_floating)
