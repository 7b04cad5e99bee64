"""Printing of tensor lists that are changed in place.

A list is three variables: the address of its elements, their number, and the size of their memory. A list of lists
has a fourth one, the number of bytes in these lists. The elements are contiguous, so a stack of them is one copy.
A missing element is zeros, as its readers see it. An element that is a list is the values of its variables. Lists may
be nested to any depth.

A version of a list has one consumer (`schedule.lists`). So a list that becomes a loop variable or the result of
a conditional is *moved*: its variables are copied, and the old ones are an empty list. The memory of the lists that
a block made, and did not move elsewhere, is freed at its end, with that of the lists in them.
"""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from headrace import thresholds
from headrace.schedule.program import Compute, Loop, Value
from headrace.schedule.select import ListOperation
from headrace.targets.native import scalars, state
from headrace.targets.native.element_types import Element, ElementTypes
from headrace.targets.native.grown import is_array
from headrace.targets.native.held import Array, Held, Items, Number
from headrace.targets.native.plan import Plan, dims, row_major

if TYPE_CHECKING:
    from headrace.ir.op_roles import ListKind
    from headrace.targets.native.llvm_text import Function, Module

# Elements of a list from which its size may overflow: the arenas are smaller.
_MOST: Final = 1 << 40

# Types of the variables of a list that its end reads: address, length and size.
_FREED: Final = ("ptr", "i64", "i64")

_INT32: Final = np.dtype(np.int32)
_INT64: Final = np.dtype(np.int64)


class ListPrinter:
    """Prints operations on lists; part of `printer.Printer`."""

    module: Module
    f: Function
    plan: Plan
    values: dict[Value, Held]
    element_types: ElementTypes
    _owned: list[list[Items]]
    array: Callable[[Value], Array]
    number: Callable[[Value], str]
    index: Callable[[Value], str]
    held: Callable[[Value], Held]
    place_of: Callable[[Value], Array]
    copy: Callable[[Array, Array], None]
    copy_bytes: Callable[[str, str, str], None]
    define: Callable[[Value, Array], None]
    fail_if: Callable[..., None]

    # *** Variables of lists ***

    def new_items(self, v: Value) -> Items:
        """New variables for a list, which are not initialized."""
        element = self.element_types.of(v)
        assert element is not None
        return self._new(element)

    def _new(self, element: Element) -> Items:
        f = self.f
        contents = "" if element.inner is None else f.alloca("i64")
        return Items(f.alloca("ptr"), f.alloca("i64"), f.alloca("i64"), contents, element)

    def items(self, v: Value) -> Items:
        """The form of a list."""
        held = self.held(v)
        assert isinstance(held, Items)
        return held

    def _get(self, slot: str, kind: str = "i64") -> str:
        return self.f.op(f"load {kind}, ptr {slot}, align 8")

    def _set(self, slot: str, value: str, kind: str = "i64") -> None:
        self.f.line(f"store {kind} {value}, ptr {slot}, align 8")

    def _parts(self, items: Items) -> list[str]:
        return [self._get(slot, kind) for slot, kind in items.variables]

    def assign(self, items: Items, parts: Sequence[str]) -> None:
        """Sets the variables of a list."""
        for (slot, kind), part in zip(items.variables, parts, strict=True):
            self._set(slot, part, kind)

    def _clear(self, items: Items) -> None:
        self.assign(items, ("null", "0", "0", "0")[: len(items.variables)])

    def move_list(self, v: Value, target: Items) -> None:
        """Moves a list to other variables; rows of an array are copied."""
        self.move_lists([(v, target)])

    def move_lists(self, moves: Sequence[tuple[Value, Any]]) -> None:
        """Moves several lists at once."""
        found: list[tuple[Sequence[str], Items]] = []
        for v, target in moves:
            source = self.held(v)
            if isinstance(source, Items):
                found.append((self._parts(source), target))
                self._clear(source)
            else:
                assert isinstance(source, Array)
                found.append((self.copied_rows(source), target))
        for parts, target in found:
            self.assign(target, parts)

    def free_lists(self, lists: Iterable[Items]) -> None:
        """Prints the end of lists."""
        for items in lists:
            _free(self.f, self._parts(items), items.element)

    def copied_rows(self, rows: Array) -> tuple[str, str, str]:
        """A contiguous copy of an array: its address, its first dimension and its size."""
        size = str(rows.dtype.itemsize * math.prod(rows.dims))
        if isinstance(rows.shape[0], str):
            size = self.f.op(f"mul nuw nsw i64 {rows.shape[0]}, {size}")
        data = state.allocate_block(self.f, size, "no_memory", "list")
        self.copy(Array(data, rows.dtype, rows.shape, row_major(rows.shape)), rows)
        return data, str(rows.shape[0]), size

    def own_block(self, pointer: str, size: str) -> None:
        """Records memory that ends with the open block."""
        made = self._new(Element(None, ()))
        self.assign(made, (pointer, "0", size))
        self._owned[-1].append(made)

    # *** Operations ***

    def list_operation(self, instr: Compute) -> None:
        """Prints an operation on a list or on rows."""
        assert isinstance(instr.work, ListOperation)
        _PRINTERS[instr.work.role.kind](self, instr)

    def _make(self, instr: Compute) -> Items:
        (out,) = instr.made
        made = self.new_items(out)
        self.values[out] = made
        self._owned[-1].append(made)
        return made

    def _empty_list(self, instr: Compute) -> None:
        self._clear(self._make(instr))

    def _reserve(self, instr: Compute) -> None:
        made = self._make(instr)
        self._clear(made)
        n = self.index(instr.inputs[1])
        self.fail_if(self.f.op(f"icmp slt i64 {n}, 0"), instr, "reserve", n)
        self._lengthen(made, n)

    def _from_tensor(self, instr: Compute) -> None:
        (out,) = instr.made
        rows = self.array(instr.inputs[0])
        if out.representation == "rows":
            self.values[out] = rows
        elif out in self.plan.borrowed:
            self.assign(self._make(instr), (rows.pointer, str(rows.shape[0]), state.BORROWED))
        else:
            self.assign(self._make(instr), self.copied_rows(rows))

    def _push(self, instr: Compute) -> None:
        items, is_there = self.items(instr.inputs[0]), self.plan.pushed.get(instr.inputs[1]) is instr
        if not is_there:
            self._have_room(items)
        length = self._get(items.length)
        if instr.most_bytes is not None or items.contents:
            self._count(instr, items, length)
        if not is_there:
            self._write(items, length, instr.inputs[1])
        self._set(items.length, self.f.op(f"add nuw nsw i64 {length}, 1"))

    def next_element(self, push: Compute) -> str:
        """Prints that a list has room for one more element; returns the address of it."""
        items = self.items(push.inputs[0])
        self._have_room(items)
        return self._element_at(items, self._get(items.length))

    def _have_room(self, items: Items) -> None:
        """Prints that a list gets more memory if it is full."""
        f, size = self.f, items.element.bytes
        length, capacity = self._get(items.length), self._get(items.capacity)
        needed = f.op(f"mul nuw nsw i64 {f.op(f'add nuw nsw i64 {length}, 1')}, {size}")
        grow, on = f.new("grow"), f.new("on")
        f.branch(state.unlikely(f, f.op(f"icmp ugt i64 {needed}, {capacity}")), grow, on)
        f.begin(grow)
        first = thresholds.NATIVE_LIST_START
        while first < size:
            first *= 2
        most = self.module.declare("llvm.umax.i64", "i64", ["i64", "i64"])
        larger = f.op(f"call i64 {most}(i64 {f.op(f'shl i64 {capacity}, 1')}, i64 {first})")
        self._resize(items, capacity, larger)
        f.jump(on)
        f.begin(on)

    def make_room(self, loop: Loop, trips: str) -> None:
        """Prints that lists get memory for the elements that a loop pushes.

        These are one or more in each iteration. So lists are not copied while they grow.
        """
        f = self.f
        pushed = Counter(
            i.inputs[0]
            for i in loop.body.instrs
            if isinstance(i, Compute) and isinstance(i.work, ListOperation) and i.work.role.kind == "push"
        )
        extremes = [self.module.declare(f"llvm.{name}.i64", "i64", ["i64", "i64"]) for name in ("smin", "smax")]
        for variable in loop.variables:
            count = pushed[variable.param]
            if not count:
                continue
            items = self.items(variable.param)
            size = max(1, items.element.bytes)
            known = trips
            for extreme, bound in zip(extremes, (thresholds.NATIVE_RESERVED_BYTES // size, 0), strict=True):
                known = f.op(f"call i64 {extreme}(i64 {known}, i64 {bound})")
            total = f.op(f"add nuw nsw i64 {self._get(items.length)}, {f.op(f'mul nuw nsw i64 {known}, {count}')}")
            self._enlarge(items, f.op(f"mul nuw nsw i64 {total}, {size}"))

    def _enlarge(self, items: Items, needed: str) -> None:
        """Prints that a list gets more memory if it has less than `needed` bytes."""
        f, capacity = self.f, self._get(items.capacity)
        grow, on = f.new("grow"), f.new("on")
        f.branch(f.op(f"icmp ugt i64 {needed}, {capacity}"), grow, on)
        f.begin(grow)
        self._resize(items, capacity, needed)
        f.jump(on)
        f.begin(on)

    def _resize(self, items: Items, capacity: str, larger: str) -> None:
        """Prints that a list gets more memory."""
        data = state.resize_block(self.f, self._get(items.data, "ptr"), capacity, larger, "no_memory", "list")
        self._set(items.data, data, "ptr")
        self._set(items.capacity, larger)

    def _count(self, push: Compute, items: Items, length: str) -> None:
        """Prints the count of bytes for a push, with the check of their limit."""
        f, element = self.f, push.inputs[1]
        before = self._contents(items)
        if items.contents:
            after = f.op(f"add i64 {before}, {self._contents(self.items(element))}")
            self._set(items.contents, after)
        else:
            after = f.op(f"add i64 {before}, {items.element.bytes}")
        if push.most_bytes is not None:
            over = f.op(f"icmp sgt i64 {after}, {push.most_bytes}")
            self.fail_if(over, push, "residuals", length, str(push.most_bytes), before)

    def _contents(self, items: Items) -> str:
        """The number of bytes in a list, without the variables of nested lists."""
        if items.contents:
            return self._get(items.contents)
        return self.f.op(f"mul i64 {self._get(items.length)}, {items.element.bytes}")

    def _write(self, items: Items, i: str, v: Value) -> None:
        """Prints a store of an element."""
        at = self._element_at(items, i)
        dtype, shape = items.element.dtype, items.element.shape
        if dtype is None:
            inner = self.items(v)
            for k, (slot, kind) in enumerate(inner.variables):
                self._set(_part(self.f, at, k), self._get(slot, kind), kind)
            self._clear(inner)
        elif is_array(v):
            self.copy(Array(at, dtype, shape, row_major(shape)), self.array(v))
        else:
            scalars.store(self.f, dtype, self.number(v), at)

    def _element_at(self, items: Items, i: str) -> str:
        data = self._get(items.data, "ptr")
        offset = self.f.op(f"mul nsw i64 {i}, {items.element.bytes}")
        return self.f.op(f"getelementptr inbounds i8, ptr {data}, i64 {offset}", "element")

    def _pop(self, instr: Compute) -> None:
        f, items = self.f, self.items(instr.inputs[0])
        length = self._get(items.length)
        self.fail_if(f.op(f"icmp sle i64 {length}, 0"), instr, "pop")
        last = f.op(f"sub nuw nsw i64 {length}, 1")
        self._set(items.length, last)
        out = instr.outputs[1]
        if items.element.inner is not None:
            made = self._new(items.element.inner)
            at = self._element_at(items, last)
            for k, (slot, kind) in enumerate(made.variables):
                self._set(slot, self._get(_part(f, at, k), kind), kind)
            left = f.op(f"sub i64 {self._get(items.contents)}, {self._contents(made)}")
            self._set(items.contents, left)
            if out is not None:
                self.values[out] = made
            self._owned[-1].append(made)
        elif out is not None:
            self._read(items, last, out)

    def _read(self, items: Items, i: str, out: Value) -> None:
        """Makes an element the form of a value, as a view or a copy."""
        dtype, shape = items.element.dtype, items.element.shape
        assert dtype is not None
        element = Array(self._element_at(items, i), dtype, shape, row_major(shape))
        if is_array(out) and out in self.plan.places:
            target = self.place_of(out)
            self.copy(target, element)
            self.values[out] = target
        else:
            self.define(out, element)

    def _get_element(self, instr: Compute) -> None:
        f, this = self.f, self.held(instr.inputs[0])
        (out,) = instr.made
        i = self.index(instr.inputs[1])
        length = str(this.shape[0]) if isinstance(this, Array) else self._get(self.items(instr.inputs[0]).length)
        self.fail_if(f.op(f"icmp uge i64 {i}, {length}"), instr, "access", i, length)
        if isinstance(this, Items):
            self._read(this, i, out)
            return
        assert isinstance(this, Array)
        kind = scalars.memory_type(this.dtype)
        step = i if this.strides[0] == 1 else f.op(f"mul nsw i64 {i}, {this.strides[0]}")
        pointer = f.op(f"getelementptr inbounds {kind}, ptr {this.pointer}, i64 {step}", "row")
        self.define(out, Array(pointer, this.dtype, this.shape[1:], this.strides[1:]))

    def _set_element(self, instr: Compute) -> None:
        f, items = self.f, self.items(instr.inputs[0])
        i = self.index(instr.inputs[1])
        length = self._get(items.length)
        self.fail_if(f.op(f"icmp uge i64 {i}, {length}"), instr, "modify", i, length)
        self._write(items, i, instr.inputs[2])

    def _length(self, instr: Compute) -> None:
        (out,) = instr.made
        this = self.held(instr.inputs[0])
        length = str(this.shape[0]) if isinstance(this, Array) else self._get(self.items(instr.inputs[0]).length)
        self.values[out] = Number(scalars.convert(self.f, length, _INT64, _INT32), _INT32)

    def _stack(self, instr: Compute) -> None:
        f, this = self.f, self.held(instr.inputs[0])
        (out,) = instr.made
        length = str(this.shape[0]) if isinstance(this, Array) else self._get(self.items(instr.inputs[0]).length)
        wanted = dims(out)[0] if out.is_static else instr.op.attrs["num_elements"]
        if wanted != -1:
            self.fail_if(f.op(f"icmp ne i64 {length}, {wanted}"), instr, "length", length, str(wanted))
        if isinstance(this, Array):
            first = dims(out)[0] if out.is_static else length
            self.values[out] = dataclasses.replace(this, shape=(first, *this.shape[1:]))
            return
        items = self.items(instr.inputs[0])
        if instr in self.plan.room:
            self._enlarge(items, str(self.plan.room[instr]))
        data = self._get(items.data, "ptr")
        assert items.element.dtype is not None
        if not out.is_static:
            element = items.element
            view = Array(data, items.element.dtype, (length, *element.shape), row_major((length, *element.shape)))
            if not self.plan.stack_is_view(instr):
                data, _, size = self.copied_rows(view)
                self.own_block(data, size)
                view = dataclasses.replace(view, pointer=data)
            self.values[out] = view
            return
        if out not in self.plan.places:
            self.values[out] = Array(data, items.element.dtype, dims(out), row_major(dims(out)))
            return
        target = self.place_of(out)
        self.copy_bytes(target.pointer, data, str(wanted * items.element.bytes))
        self.values[out] = target

    def _lengthen(self, items: Items, n: str) -> None:
        """Prints that an empty list gets `n` missing elements."""
        f, size = self.f, max(1, items.element.bytes)
        too_many = f.new("on")
        f.branch(state.unlikely(f, f.op(f"icmp ugt i64 {n}, {_MOST // size}")), "no_memory", too_many)
        f.begin(too_many)
        wanted = f.op(f"mul nuw nsw i64 {n}, {items.element.bytes}")
        data = state.allocate_block(f, wanted, "no_memory", "list")
        fill = self.module.declare("llvm.memset.p0.i64", "void", ["ptr", "i8", "i64", "i1"])
        f.line(f"call void {fill}(ptr {data}, i8 0, i64 {wanted}, i1 false)")
        self.assign(items, (data, n, wanted))


def _part(f: Function, at: str, k: int) -> str:
    """Prints the address of variable `k` of the list at the address `at`."""
    return f.op(f"getelementptr inbounds i8, ptr {at}, i64 {8 * k}")


def _free(f: Function, parts: Sequence[str], element: Element) -> None:
    """Prints the end of a list."""
    data, length, capacity = parts[:3]
    if element.inner is None:
        state.free_block(f, data, capacity)
    else:
        f.line(f"call void {_freeing(f.module, element)}(ptr %state, ptr {data}, i64 {length}, i64 {capacity})")


def _freeing(module: Module, element: Element) -> str:
    """The function that frees a list of lists, defined once for each number of levels."""
    name = f"headrace_free_lists_{element.levels}"
    if not module.has(name):
        params = [("ptr", "state"), ("ptr", "data"), ("i64", "length"), ("i64", "capacity")]
        f = module.function(name, "void", params, "nounwind noinline", "internal")
        inner = element.inner
        assert inner is not None
        with f.loop("0", "%length") as i:
            at = f.op(f"getelementptr inbounds i8, ptr %data, i64 {f.op(f'mul nsw i64 {i}, {element.bytes}')}")
            parts = [f.op(f"load {kind}, ptr {_part(f, at, k)}, align 8") for k, kind in enumerate(_FREED)]
            _free(f, parts, inner)
        state.free_block(f, "%data", "%capacity")
        f.line("ret void")
    return f"@{name}"


_PRINTERS: Final[Mapping[ListKind, Callable[[Any, Compute], None]]] = {
    "empty": ListPrinter._empty_list,
    "reserve": ListPrinter._reserve,
    "from_tensor": ListPrinter._from_tensor,
    "push": ListPrinter._push,
    "pop": ListPrinter._pop,
    "get": ListPrinter._get_element,
    "set": ListPrinter._set_element,
    "length": ListPrinter._length,
    "stack": ListPrinter._stack,
}
