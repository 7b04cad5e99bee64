"""Selection of the tensor lists that become lists of Python, changed in place.

A tensor list is a value: a push makes a new list, and the old one stays unchanged. The persistent vectors that
implement this cost much more than a list with an append. But most programs never read the old list again. An
accumulator is pushed to once an iteration, each time in its newest version, and is later popped from in the same way.
So one list, changed in place, can stand for all its versions.

This is correct under two conditions. Every version has at most one *consumer*: an operation that pushes to it, pops
from it, sets an element, passes it to the next iteration, returns it or puts it into another list. And all operations
that only *look* at the version (at its length, at an element) run before the consumer. Versions that are the same list
in this sense form a class: the two ends of a push, the input, parameters, results and output of a loop variable, and so
on. If one version of a class is used in another way, the class stays with the kernels, which are correct in any case.

A list that is made of the rows of a tensor and never changed needs no list at all: its elements are rows of that
tensor. (On a device of another array library it is a list, because each row of a tensor is an object.)

The shape of the elements may be unknown. Elements must fit the shape that a reader states. This module checks that with
the static shapes of all elements that are put into the class. The zeros for a missing element may have a shape that
only other elements determine; such rare cases are left to the kernel (`runtime.ByKernel`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from headrace import dtypes, shapes
from headrace.disjoint_sets import DisjointSets
from headrace.ir.graph import FuncGraph
from headrace.ir.infer import constant_value
from headrace.ir.kernel import residence
from headrace.ir.notes import CountedResidual, ResidualPop, ResidualPush

if TYPE_CHECKING:
    from headrace.ir.graph import Operation, Tensor
    from headrace.ir.op_roles import ListRole
    from headrace.schedule.regions import Item, Region, Regions
    from headrace.shapes import Shape

LIST: Final = "list"
ROWS: Final = "rows"
KERNEL: Final = ""


class Lists:
    """Representations of the tensor lists of a step; see the module's text."""

    def __init__(self, regions: Regions) -> None:
        self._classes: DisjointSets[Tensor] = DisjointSets()
        self._find = self._classes.root
        self._elements: dict[Tensor, Tensor] = {}  # of a class of lists of lists: one of the lists in it
        self._bad: set[Tensor] = set()
        self._rows: set[Tensor] = set()  # made of the rows of a tensor
        self._grown: set[Tensor] = set()  # changed by an operation, or made as a list
        self._blank: set[Tensor] = set()  # with elements that may be missing
        self._counted: set[Tensor] = set()  # with elements that count as memory of the device
        self._put: list[tuple[Tensor, Shape]] = []  # lists, each with the static shape of an element put into it
        # operations that state the shape of the elements they read, and that shape
        self._readers: list[tuple[Operation, Shape | str]] = []
        for op in regions.root.graph.operations:
            if op.type == "_Arg":  # values from outside have the representation of kernels
                self._spoil(op.outputs[0])
        self._walk(regions.root)
        for region in regions.functions.values():
            for t in (*region.graph.params, *region.results):  # type: ignore[attr-defined]
                self._spoil(t)
            self._walk(region)
        self._blank = {self._find(t) for t in self._blank}
        self._check_readers()
        self._bad = {self._find(t) for t in self._bad}
        while more := {
            c for t, e in self._elements.items() if self._find(t) in self._bad and (c := self._find(e)) not in self._bad
        }:
            self._bad |= more  # an element of a list of the kernels is a list of the kernels too
        self._rows = {self._find(t) for t in self._rows}
        self._grown = {self._find(t) for t in self._grown}
        self._counted = {self._find(t) for t in self._counted}

    def kind(self, t: Tensor) -> str:
        """`LIST`, `ROWS`, or `KERNEL` for the representation of kernels."""
        if t not in self._classes:
            return KERNEL
        c = self._find(t)
        if c in self._bad:
            return KERNEL
        return LIST if c in self._grown or c not in self._rows or residence(t) is not None else ROWS

    def has_blanks(self, t: Tensor) -> bool:
        """Whether elements of a list may be missing."""
        return self._find(t) in self._blank

    def is_counted(self, t: Tensor) -> bool:
        """Whether the elements of a list or of nested lists count as memory (`resources.memory`)."""
        c = self._find(t)
        return c in self._counted or (c in self._elements and self.is_counted(self._elements[c]))

    # *** classes ***

    def _join(self, a: Tensor, b: Tensor) -> None:
        a, b = self._find(a), self._find(b)
        if not self._classes.join(a, b):
            return
        inner = self._elements.pop(b, None)
        if inner is not None:
            self._contains(a, inner)

    def _contains(self, outer: Tensor, inner: Tensor) -> None:
        """Records that an element of `outer` is the list `inner`."""
        outer = self._find(outer)
        known = self._elements.get(outer)
        if known is None:
            self._elements[outer] = inner
        else:
            self._join(known, inner)

    def _spoil(self, t: Tensor) -> None:
        if t.dtype.base is dtypes.variant:
            self._find(t)
            self._bad.add(t)

    # *** uses ***

    def _walk(self, region: Region, used: dict[Tensor, int] | None = None) -> None:
        """Records the uses of lists in a region; `used` counts each list's consumers."""
        used = {} if used is None else used
        for item in region.items:
            if item.kind:
                self._structured(item, used)
            else:
                self._plain(item.op, used)
        for t in region.results:
            if t.dtype.base is dtypes.variant:
                self._consume(t, used)

    def _look(self, t: Tensor, used: dict[Tensor, int]) -> None:
        if used.get(t):
            self._spoil(t)

    def _consume(self, t: Tensor, used: dict[Tensor, int]) -> None:
        self._look(t, used)
        used[t] = 1

    def _plain(self, op: Operation, used: dict[Tensor, int]) -> None:
        role = op.opdef.facts.list_role
        if role is not None and role.makes:
            self._made(op, role)
        elif role is not None:
            this = op.inputs[0]
            if role.changes:
                self._changed(op, role, this, used)
            else:
                self._look(this, used)
                if role.kind != "length" and op.attrs["element_dtype"].base is dtypes.variant:
                    self._spoil(this)
                    self._contains(this, op.outputs[0])
            if not self._fits(op, role):
                self._spoil(this)
            self._find(this)
        elif op.opdef.facts.forwards is not None and op.outputs[0].dtype.base is dtypes.variant:
            self._consume(op.inputs[0], used)
            self._join(op.inputs[0], op.outputs[0])
        else:
            for t in (*op.inputs, *op.outputs):
                self._spoil(t)

    def _made(self, op: Operation, role: ListRole) -> None:
        out = op.outputs[0]
        self._find(out)
        if role.kind != "empty" and op.attrs["element_dtype"] in dtypes.OBJECT:
            self._spoil(out)
        if role.kind == "from_tensor":
            self._rows.add(out)
            shape = known_shape(op.inputs[1])
            if op.inputs[0].shape is None or not _surely_fits(op.inputs[0].shape[1:], shape):
                self._spoil(out)
            else:
                self._put.append((out, op.inputs[0].shape[1:]))
            return
        self._grown.add(out)
        if role.kind == "empty":
            most = constant_value(op.inputs[1])
            if most is None or most.ndim or int(most) != -1 or not _is_a_shape(op.inputs[0]):
                self._spoil(out)
        else:
            self._blank.add(out)
            if op.outputs[0].handle is None or known_shape(op.inputs[0]) == "?":
                self._spoil(out)

    def _changed(self, op: Operation, role: ListRole, this: Tensor, used: dict[Tensor, int]) -> None:
        self._consume(this, used)
        out = op.outputs[0]
        self._join(this, out)
        self._grown.add(this)
        if CountedResidual in op.notes:
            self._counted.add(this)
        if role.leaves_unset:
            self._blank.add(this)
        dtype = op.attrs["element_dtype"] if "element_dtype" in op.attrs else this.handle and this.handle[0]
        if dtype is not None and dtype is not dtypes.variant:
            return
        if role.kind == "push":
            self._consume(op.inputs[1], used)
            self._contains(this, op.inputs[1])
        elif role.kind == "pop":
            self._contains(this, op.outputs[1])
        else:
            for t in op.inputs:
                self._spoil(t)

    def _fits(self, op: Operation, role: ListRole) -> bool:
        """Whether a list of Python fits `op`, independent of the other elements of the list."""
        holds = op.inputs[0].handle
        put = None if role.element_input is None else op.inputs[role.element_input]
        if put is not None:
            self._put.append((op.inputs[0], put.shape))
            if op.attrs.get("resize_if_index_out_of_bounds"):
                self._blank.add(op.inputs[0])
        if ResidualPush in op.notes or ResidualPop in op.notes or "element_dtype" not in op.attrs:
            return True
        if holds is None or holds[0] != op.attrs["element_dtype"]:
            return False
        if put is not None:
            return holds[1] is None or _surely_fits(put.shape, holds[1])
        if op.attrs["element_dtype"] in dtypes.OBJECT and role.joins and not shapes.is_full(op.outputs[0].shape):
            return False  # a bare object has no shape to compare
        if role.shape_input is None:
            return False
        stated = known_shape(op.inputs[role.shape_input])
        self._readers.append((op, stated))
        return stated != "?"

    def _check_readers(self) -> None:
        """Spoils lists whose elements may not have the shape that a reader states."""
        common: dict[Tensor, Shape] = {}  # by class: the common static shape of all its elements
        for t, shape in self._put:
            c = self._find(t)
            common[c] = shapes.join(common[c], shape) if c in common else shape
        for op, stated in self._readers:
            this, kind = op.inputs[0], op.opdef.list_kind
            c = self._find(this)
            if kind in ("get", "pop"):
                assert this.handle is not None
                fits = c not in common or _surely_fits(common[c], stated) or _surely_fits(this.handle[1], stated)
                if kind == "pop" and c in self._blank:
                    fits = fits and shapes.is_full(op.outputs[1].shape)
                if not fits:
                    self._spoil(this)

    def _structured(self, item: Item, used: dict[Tensor, int]) -> None:
        op = item.op
        if item.kind == "While":
            self._loop(item, used)
        elif item.kind == "Recursive":
            for t in (*op.inputs, *op.outputs):
                self._spoil(t)
        else:
            consumed: set[Tensor] = set()
            for region in item.regions:
                graph = region.graph
                assert isinstance(graph, FuncGraph)
                inside: dict[Tensor, int] = {}
                for k in region.params:
                    self._alias(op.inputs[item.offset + k], graph.params[k])
                for i, r in zip(item.live, region.results, strict=True):
                    self._alias(r, op.outputs[i])
                self._walk(region, inside)
                consumed |= {op.inputs[item.offset + k] for k in region.params if inside.get(graph.params[k])}
                for k in region.params:
                    if graph.params[k].dtype.base is dtypes.variant and not inside.get(graph.params[k]):
                        self._look(op.inputs[item.offset + k], used)
            for t in consumed:
                self._consume(t, used)

    def _loop(self, item: Item, used: dict[Tensor, int]) -> None:
        op = item.op
        test, inner = item.regions
        cond, loop = test.graph, inner.graph
        assert isinstance(cond, FuncGraph)
        assert isinstance(loop, FuncGraph)
        for k, t in enumerate(op.inputs):
            if t.dtype.base is not dtypes.variant:
                continue
            self._alias(t, cond.params[k])
            self._alias(t, loop.params[k])
            if k in item.variables:
                self._alias(t, loop.results[k])
                self._alias(t, op.outputs[k])
                self._consume(t, used)
            else:
                self._look(t, used)
                if k in item.live:  # a loop-invariant list is also an output
                    self._alias(t, op.outputs[k])
                    self._consume(t, used)
        looking: dict[Tensor, int] = {}
        self._walk(test, looking)
        for p in cond.params:
            if looking.get(p):
                self._spoil(p)
        inside: dict[Tensor, int] = {}
        self._walk(inner, inside)
        for k, p in enumerate(loop.params):
            if k not in item.variables and inside.get(p):  # each iteration would need a list of its own
                self._spoil(p)

    def _alias(self, a: Tensor, b: Tensor) -> None:
        if a.dtype.base is dtypes.variant:
            self._join(a, b)


def _is_a_shape(t: Tensor, depth: int = 8) -> bool:
    """Whether `t` is certain to be a shape: a valid constant, or computed from shapes."""
    if t.op.type == "Const":
        return known_shape(t) != "?" and int(np.min(t.op.attrs["value"], initial=0)) >= -1
    forwards = t.op.opdef.facts.forwards
    if forwards is not None:
        return depth > 0 and _is_a_shape(t.op.inputs[forwards], depth - 1)
    if t.op.opdef.facts.shape_only:
        return True
    pure = t.op.opdef.is_pure and bool(t.op.inputs) and depth > 0
    return pure and all(_is_a_shape(x, depth - 1) or x.op.type == "Const" for x in t.op.inputs)


def known_shape(t: Tensor) -> Shape | str:
    """The shape that the integer input `t` states; "?" if it is not static."""
    value = constant_value(t)
    if value is None:
        return "?"
    if value.ndim == 0:
        return None if value == -1 else "?"
    if value.ndim > 1:
        return "?"
    return tuple(None if d < 0 else int(d) for d in value.tolist())


def _surely_fits(shape: Shape, pattern: Shape | str) -> bool:
    """Whether all values of the static shape `shape` have the shape `pattern`."""
    if isinstance(pattern, str):
        return False
    if pattern is None:
        return True
    if shape is None or len(shape) != len(pattern):
        return False
    return all(p is None or d == p for d, p in zip(shape, pattern, strict=True))
