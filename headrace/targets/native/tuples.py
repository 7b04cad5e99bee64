"""Tuples of values in memory, which functions pass on by their address.

The gradient of a function that calls itself keeps the residuals of a call in a scalar variant, an optional, whose
components are arrays, numbers and the optionals of inner calls. In native code such an optional is a *tuple*, a block
of memory with its components one behind the other. A component that is a tuple is its address. An absent tuple, which
a branch returns where no value is needed, has the address 0.

A list that passes through such an optional is a chain of tuples: the list in front of an element, the element, and the
number of elements. The empty list is an absent tuple. So a push makes a tuple, a pop reads one, and older lists stay
as they are.

Values that may be the same tuple form a *class*: results and parameters of functions, results of branches, loop
variables, elements of a list, components at one position. A class has one layout. A class is left to the kernels if two
of its tuples differ in the types of their components, a component has no static shape, or another operation reads it.

In rewritten instructions a tuple is an integer, so loop variables, conditionals and lists need no rules for tuples.
Tuples end with the call, or with the scope of a loop or function out of which no tuple passes (`printer`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import numpy as np

from headrace import dtypes, flags, shapes
from headrace.disjoint_sets import DisjointSets
from headrace.ir.notes import CountedResidual, ResidualPush
from headrace.records import record
from headrace.schedule.program import Block, Branches, Call, Compute, Instr, Loop, Program, Value, Variable
from headrace.schedule.select import KernelCall, ListOperation
from headrace.targets.native import scalars

#: Alignment of the arrays in a tuple, in bytes.
_ALIGNED: Final = 16


@record(eq=False, slots=True)
class Field:
    """Component of a tuple.

    Attributes:
      offset: The distance from the start of the tuple, in bytes.
      dtype: The dtype; that of addresses for a tuple.
      shape: The static shape.
      layout: The layout of a component that is a tuple, else None.
    """

    offset: int
    dtype: np.dtype
    shape: tuple[int, ...]
    layout: Layout | None


@record(eq=False, slots=True)
class Layout:
    """Layout of the tuples of a class.

    Attributes:
      number: The number of the layout in the program.
      fields: The components.
      is_list: Whether the tuples are lists: component 0 is the list in front of an element, component 1 the element.
      bytes: The size, without the number of elements of a list, an i64 behind the components.
    """

    number: int
    fields: list[Field]
    is_list: bool
    bytes: int = 0


@record(frozen=True, slots=True)
class Pack:
    """Tuple of the inputs."""

    layout: Layout


@record(frozen=True, slots=True)
class Unpack:
    """The components of a tuple."""

    layout: Layout


@record(frozen=True, slots=True)
class Absent:
    """Tuple that no operation reads."""


@record(frozen=True, slots=True)
class Zeros:
    """Tuple of zeros with the tuples that another one contains."""

    layout: Layout


@record(eq=False, slots=True)
class _Use:
    """Tuple that is made or read.

    Attributes:
      whole: The tuple.
      parts: The components; None for those that no instruction reads.
      is_list: Whether it is a list: component 0 is the list before the push, and component 1 the element.
    """

    whole: Value
    parts: tuple[Value | None, ...]
    is_list: bool


class Tuples:
    """Tuples of a program.

    Args:
      program: The program.
    """

    def __init__(self, program: Program) -> None:
        self._classes: DisjointSets[Value] = DisjointSets()
        self._find = self._classes.root
        self._packs: list[_Use] = []
        self._unpacks: list[_Use] = []
        self._empty: list[Value] = []
        self._bad: set[Value] = {v for v in (*program.params, *program.block.results) if _is_variant(v)}
        self._layouts: dict[Value, Layout] = {}
        self._stands: dict[Value, Value] = {}
        self._functions = program.functions
        if program.functions:  # tuples occur in functions that call themselves
            for block in program.walk():
                for instr in block.instrs:
                    self._visit(instr)
            self._settle()

    # *** Classes ***

    def _join(self, a: Value | None, b: Value | None) -> bool:
        """Joins the classes of two values; returns whether these were different."""
        if a is None or b is None or not (_is_variant(a) and _is_variant(b)):
            return False
        return self._classes.join(a, b)

    def _visit(self, instr: Instr) -> None:
        if isinstance(instr, Compute):
            self._compute(instr)
        elif isinstance(instr, Loop):
            for x in instr.variables:
                for other in (x.initial, x.next, x.final):
                    self._join(x.param, other)
        elif isinstance(instr, Branches):
            for block in instr.branches:
                for out, result in zip(instr.made, block.results, strict=True):
                    self._join(out, result)
        elif isinstance(instr, Call):
            function = self._functions[instr.function]
            for a, b in zip((*instr.inputs, *instr.outputs), (*function.params, *function.block.results), strict=True):
                self._join(a, b)

    def _compute(self, instr: Compute) -> None:
        work = instr.work
        if isinstance(work, ListOperation) and work.role.kind in ("push", "set", "pop", "get"):
            for v in (*instr.inputs[1:], *instr.made):
                self._join(instr.inputs[0], v)  # the class of a list is that of its elements
            return
        if isinstance(work, ListOperation) and work.role.kind in ("empty", "length"):
            return
        if isinstance(work, KernelCall) and instr.made and _has_usual_kernel(instr, work):
            match instr.op.type:
                case "OptionalFromValue" | "TensorListPushBack":
                    self._packs.append(_Use(instr.made[0], instr.inputs, instr.op.type == "TensorListPushBack"))
                    return
                case "OptionalGetValue" | "TensorListPopBack":
                    self._unpacks.append(_Use(instr.inputs[0], instr.outputs, instr.op.type == "TensorListPopBack"))
                    return
                case "EmptyTensorList" if _is_unlimited(instr.inputs[1]):  # also where no operation reads the value
                    self._empty.append(instr.made[0])
                    return
                case "ZerosLike" if _is_variant(instr.inputs[0]):
                    self._join(instr.inputs[0], instr.made[0])
                    return
        self._bad.update(v for v in (*instr.inputs, *instr.made) if _is_variant(v))

    def _settle(self) -> None:
        """Joins components at equal positions, and finds the layouts."""
        uses = (*self._packs, *self._unpacks)
        first: dict[Value, _Use] = {}
        is_joined = True
        while is_joined:
            is_joined = False
            first = {}
            for use in uses:
                known = first.setdefault(self._find(use.whole), use)
                for a, b in zip(known.parts, use.parts, strict=False):
                    is_joined |= self._join(a, b)
                if use.is_list:
                    is_joined |= self._join(use.whole, use.parts[0])
        bad = {self._find(v) for v in self._bad}
        bad |= {root for use in uses if not _are_alike(first[root := self._find(use.whole)], use)}
        bad |= {root for v in self._empty if (root := self._find(v)) in first and not _may_hold(v, first[root])}
        packed = {self._find(use.whole) for use in self._packs}
        size = -1
        while size != len(bad):
            size = len(bad)
            for use in uses:
                group = [use.whole, *(p for p in use.parts if p is not None and _is_variant(p))]
                if any((root := self._find(p)) in bad or root not in packed for p in group):
                    bad.update(self._find(p) for p in group)
        self._layouts = {
            root: Layout(i, [], first[root].is_list)
            for i, root in enumerate(root for root in first if root in packed and root not in bad)
        }
        for root, layout in self._layouts.items():
            self._place(layout, first[root].parts)

    def _place(self, layout: Layout, parts: Iterable[Value | None]) -> None:
        """Places the components of a tuple."""
        at = 0
        for v in parts:
            assert v is not None  # all components of a class have been packed
            inner = self._layouts[self._find(v)] if _is_variant(v) else None
            dtype = np.dtype(np.int64) if inner is not None else v.dtype.numpy
            shape = tuple([d for d in v.shape or () if d is not None])
            alignment = _ALIGNED if shape else dtype.itemsize
            at = -(-at // alignment) * alignment
            layout.fields.append(Field(at, dtype, shape, inner))
            at += dtype.itemsize * int(np.prod(shape))
        layout.bytes = -(-at // 8) * 8

    # *** Instructions ***

    def value(self, v: Value) -> Value:
        """The address of a tuple, an integer; other values as they are."""
        if not _is_variant(v) or v.representation != "object" or self._find(v) not in self._layouts:
            return v
        found = self._stands.get(v)
        if found is None:
            found = self._stands[v] = Value(v.number, v.tensor, dtypes.int64, (), "scalar", v.storage)
        return found

    def rewritten(self, instrs: Sequence[Instr], more: Mapping[str, tuple[Value, ...]]) -> list[Instr]:
        """The instructions of a block with addresses in place of tuples, also in inner blocks.

        Each result of a call has a value.

        Args:
          instrs: The instructions.
          more: Further arguments of calls, by the name of the function.
        """
        return [self._rewritten(instr, more) for instr in instrs] if self._functions else list(instrs)

    def _rewritten(self, instr: Instr, more: Mapping[str, tuple[Value, ...]]) -> Instr:
        if isinstance(instr, Call):
            results = self._functions[instr.function].block.results
            outputs = [v if v is not None else _like(r) for v, r in zip(instr.outputs, results, strict=True)]
            for v, r in zip(outputs, results, strict=True):
                self._join(r, v)
            inputs = (*instr.inputs, *more[instr.function])
            instr = dataclasses.replace(instr, inputs=inputs, outputs=tuple(outputs))
        changes: dict[str, Any] = {
            "inputs": tuple(map(self.value, instr.inputs)),
            "outputs": tuple([v if v is None else self.value(v) for v in instr.outputs]),
            "captures": tuple(map(self.value, instr.captures)),
        }
        if isinstance(instr, Compute):
            changes["work"] = work = self._work(instr)
            if isinstance(work, Unpack | Absent):  # without the shape of the element of a list
                changes["inputs"] = changes["inputs"][: isinstance(work, Unpack)]
        elif isinstance(instr, Branches):
            changes["branches"] = tuple([self._block(b, more) for b in instr.branches])
        elif isinstance(instr, Loop):
            changes["body"] = self._block(instr.body, more)
            changes["test"] = None if instr.test is None else self._block(instr.test, more)
            changes["variables"] = tuple(map(self._variable, instr.variables))
        return dataclasses.replace(instr, **changes)

    def _work(self, instr: Compute) -> Any:
        if not isinstance(instr.work, KernelCall) or not instr.made:
            return instr.work
        is_read = instr.op.type in ("OptionalGetValue", "TensorListPopBack")
        whole = instr.inputs[0] if is_read else instr.made[0]
        if self.value(whole) is whole:
            return instr.work
        layout = self._layouts[self._find(whole)]
        match instr.op.type:
            case "EmptyTensorList":
                return Absent()
            case "ZerosLike":
                return Zeros(layout)
        return Unpack(layout) if is_read else Pack(layout)

    def _block(self, block: Block, more: Mapping[str, tuple[Value, ...]]) -> Block:
        return dataclasses.replace(
            block, instrs=self.rewritten(block.instrs, more), results=tuple(map(self.value, block.results))
        )

    def _variable(self, x: Variable) -> Variable:
        final = None if x.final is None else self.value(x.final)
        return Variable(self.value(x.initial), self.value(x.param), self.value(x.next), final)


def is_tuple(v: Value) -> bool:
    """Whether a value is the address of a tuple."""
    return v.representation == "scalar" and v.tensor.dtype.base is dtypes.variant


def _has_usual_kernel(instr: Compute, work: KernelCall) -> bool:
    """Whether an operation has its type's kernel, or a limit that native code checks."""
    op = instr.op
    if op.type == "TensorListPushBack" and ResidualPush in op.notes and CountedResidual not in op.notes:
        return not (_is_variant(instr.inputs[1]) and flags.ACCUMULATOR_LIMIT.value)
    return work.kernel.factory is op.opdef.kernel


def _is_unlimited(most: Value) -> bool:
    """Whether a value is the constant -1, for lists of any length."""
    return most.storage == "constant" and int(most.constant) == -1


def _is_variant(v: Value) -> bool:
    return v.dtype is dtypes.variant


def _is_field(v: Value | None) -> bool:
    """Whether a value can be a component."""
    if v is None:
        return False
    if _is_variant(v):
        return v.representation == "object" and v.shape == ()
    if v.representation not in ("scalar", "array") or not v.is_static or 0 in (v.shape or ()):
        return False
    return scalars.is_number(v.dtype.numpy)


def _are_alike(known: _Use, use: _Use) -> bool:
    """Whether the components of two tuples have the same types.

    All components of `known` are known.
    """
    if not all(map(_is_field, known.parts)) or len(known.parts) != len(use.parts) or known.is_list != use.is_list:
        return False
    return all(p is None or _type(p) == _type(k) for k, p in zip(known.parts, use.parts, strict=True))


def _may_hold(empty: Value, use: _Use) -> bool:
    """Whether an empty list may have the elements of other lists of its class."""
    handle = empty.tensor.handle
    element = use.parts[1] if use.is_list else None
    return element is None or handle is None or shapes.compatible(handle[1], element.shape)


def _type(v: Value | None) -> Any:
    return v and (v.dtype, v.shape, v.representation)


def _like(v: Value) -> Value:
    """A value for a result that no instruction reads."""
    return Value(v.number, v.tensor, v.dtype, v.shape, v.representation, "fresh")
