"""Types of the elements of lists in native regions, found before code is printed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

import numpy as np

from headrace import shapes
from headrace.disjoint_sets import DisjointSets
from headrace.records import record
from headrace.schedule.program import Branches, Compute, Instr, Loop, Value
from headrace.schedule.select import ListOperation
from headrace.targets.native import scalars
from headrace.targets.native.grown import is_grown
from headrace.targets.native.tuples import is_tuple

#: The kinds of list operations that native code has (`lists`).
KINDS: Final = frozenset({"empty", "reserve", "from_tensor", "push", "pop", "get", "set", "length", "stack"})


@record(frozen=True, slots=True)
class Element:
    """Type of the elements of a list.

    Attributes:
      dtype: The dtype; None if the elements are lists.
      shape: The shape; () if they are lists.
      inner: The type of the elements of these lists.
    """

    dtype: np.dtype | None
    shape: tuple[int, ...]
    inner: Element | None = None

    @property
    def levels(self) -> int:
        """The number of lists around a number: 1 for a list that contains no lists."""
        return 1 if self.inner is None else 1 + self.inner.levels

    @property
    def variables(self) -> int:
        """The number of variables of a list with such elements."""
        return 3 if self.inner is None else 4

    @property
    def bytes(self) -> int:
        """The size of an element in memory."""
        if self.inner is not None:
            return 8 * self.inner.variables
        assert self.dtype is not None
        size = self.dtype.itemsize
        for d in self.shape:
            size *= d
        return size


class ElementTypes:
    """Types of the elements of the lists of a region.

    Args:
      instrs: The instructions of the region.
    """

    def __init__(self, instrs: Iterable[Instr]) -> None:
        self._classes: DisjointSets[Value] = DisjointSets()
        self._find = self._classes.root
        self._inner: dict[Value, Value] = {}
        self._known: dict[Value, Element] = {}
        self._stay: list[Value] = []
        for instr in instrs:
            self._visit(instr)

    def of(self, v: Value) -> Element | None:
        """The type of the elements of a list; None if it is not static."""
        levels = 0
        while (inner := self._inner.get(self._find(v))) is not None:
            v = inner
            levels += 1
        found = self._known.get(self._find(v))
        for _ in range(levels if found is not None else 0):
            found = Element(None, (), found)
        return found

    def may_cross(self, v: Value) -> bool:
        """Whether an array may stand for a list between native code and Python."""
        found = self.of(v)
        return (
            found is not None
            and found.dtype is not None
            and all(self._find(v) is not self._find(x) for x in self._stay)
        )

    def _join(self, a: Value, b: Value) -> None:
        a, b = self._find(a), self._find(b)
        if not self._classes.join(a, b):
            return
        inner = self._inner.pop(b, None)
        if inner is not None:
            self._contains(a, inner)
        known = self._known.pop(b, None)
        if known is not None:
            self._known.setdefault(a, known)

    def _contains(self, outer: Value, inner: Value) -> None:
        outer = self._find(outer)
        if outer in self._inner:
            self._join(self._inner[outer], inner)
        else:
            self._inner[outer] = inner

    def _visit(self, instr: Instr) -> None:
        if isinstance(instr, Compute) and isinstance(instr.work, ListOperation):
            self._operation(instr, instr.work)
        elif isinstance(instr, Loop):
            for v in instr.variables:
                if v.param.representation == "list":
                    for other in (v.initial, v.next, *([v.final] if v.final is not None else [])):
                        if other.representation == "list":
                            self._join(v.param, other)
        elif isinstance(instr, Branches):
            for block in instr.branches:
                for out, result in zip(instr.made, block.results, strict=True):
                    if out.representation == "list" and result.representation == "list":
                        self._join(out, result)
        for block in instr.blocks:
            for inner in block.instrs:
                self._visit(inner)

    def _operation(self, instr: Compute, work: ListOperation) -> None:
        kind = work.role.kind
        this = instr.made[0] if work.role.makes and instr.made else instr.inputs[0]
        if this.representation != "list":
            return
        if work.has_blanks or work.is_counted:
            self._stay.append(this)
        handle = this.tensor.handle
        if handle is not None and shapes.is_full(handle[1]) and scalars.is_number(handle[0].numpy):
            self._know(this, handle[0].numpy, handle[1] or ())
        if kind == "from_tensor" and (instr.inputs[0].is_static or is_grown(instr.inputs[0])):
            rows = instr.inputs[0]
            self._know(this, rows.dtype.numpy, (rows.shape or ())[1:])
        elif kind in ("push", "set"):
            put = instr.inputs[work.role.element_input or (1 if kind == "push" else 2)]
            if put.representation == "list":
                self._contains(this, put)
            elif is_tuple(put):
                self._stay.append(this)
                self._know(this, put.dtype.numpy, ())
            elif put.is_static and scalars.is_number(put.dtype.numpy):
                self._know(this, put.dtype.numpy, put.shape or ())
        elif kind in ("pop", "get") and instr.made:
            got = instr.made[-1]
            if got.representation == "list":
                self._contains(this, got)
            elif got.is_static and scalars.is_number(got.dtype.numpy):
                self._know(this, got.dtype.numpy, got.shape or ())

    def _know(self, v: Value, dtype: np.dtype, shape: Sequence[Any]) -> None:
        self._known.setdefault(self._find(v), Element(dtype, tuple(shape)))
