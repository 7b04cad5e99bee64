"""Weak numbers: tensors that stand for numbers of Python, whose dtype yields to that of other tensors.

A Python number takes the dtype of the tensor that it meets. If such a number becomes a loop variable or the result of a
conditional (`total = 0.0` before a loop), it is a tensor, and its operation gets the note `WeakNumbers`. A tensor
computed only from weak ones and from constants is weak, too. This is found when it is needed: where dtypes differ.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Final

from headrace.ir.notes import Note, note
from headrace.ir.opdef import PerElement

if TYPE_CHECKING:
    from headrace.dtypes import DType
    from headrace.ir.graph import Tensor

_MOST_OPERATIONS: Final = 256  # in a walk from a tensor to the notes; a tensor further away counts as strong


@note
@dataclasses.dataclass(frozen=True, slots=True)
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
        if not op.inputs:
            if op is t.op or op.opdef.facts.placeholder or op.opdef.facts.graph_end or op.opdef.is_effectful:
                return False
            if x.static_shape != ():
                return False
        elif isinstance(op.opdef.facts.cost, PerElement):
            todo += op.inputs
        else:
            return False
    return is_any


def yields(weak: DType, strong: DType) -> bool:
    """Whether a weak number of one dtype becomes the other dtype: an integer any number, a float any float."""
    if weak.is_integer:
        return strong.is_integer or strong.is_floating or strong.is_complex
    return weak.is_floating and (strong.is_floating or strong.is_complex)
