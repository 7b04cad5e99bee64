"""Code for operations on tensor lists that are Python lists or rows (`lists`)."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from headrace import flags, shapes
from headrace.compile import runtime
from headrace.compile.names import INT, Names, Value
from headrace.ir.notes import CountedResidual, ResidualPush
from headrace.schedule.lists import LIST, ROWS, known_shape

if TYPE_CHECKING:
    from headrace.ir.graph import Operation, Tensor
    from headrace.ir.op_roles import ListKind
    from headrace.schedule.regions import Item
    from headrace.schedule.select import ListOperation


MEMORY: Final = "run.step.memory"  # the account of the device, which exists where operations have `_counted`


class ListWriter(Names):
    """Writes operations on tensor lists, such as pushes and pops."""

    def list_operation(self, op: Operation, item: Item, found: ListOperation) -> None:
        """Writes an operation on a list of Python or on rows."""
        _WRITERS[found.role.kind](self, op, item, found.kind)

    def assign(self, op: Operation, text: str, inputs: tuple[str, ...] = (), is_fresh: bool = False) -> None:
        """Assigns an expression to the name of output 0 of `op`."""
        name = self.name_for(op.outputs[0])
        self.out.line(f"{name} = {text}", op, inputs)
        self.own(op.outputs[0], Value(name, is_fresh=is_fresh))

    def _empty(self, op: Operation, item: Item, kind: str) -> None:
        self._make(op, "[]", kind)

    def _reserve(self, op: Operation, item: Item, kind: str) -> None:
        n = self.plain(op.inputs[1], op)
        self._make(op, f"{self.out.bind(runtime.blanks, 'f')}({n})", kind)

    def _from_tensor(self, op: Operation, item: Item, kind: str) -> None:
        rows = self.plain(op.inputs[0], op)
        self._make(op, rows if kind == ROWS else f"list({rows})", kind)

    def _make(self, op: Operation, text: str, kind: str) -> None:
        name = self.out.new("l")
        self.out.line(f"{name} = {text}", op)
        self.own(op.outputs[0], Value(name, kind))

    def _push(self, op: Operation, item: Item, kind: str) -> None:
        this, value = self.values[op.inputs[0]].text, self._element(op.inputs[1], op)
        note = op.notes.get(ResidualPush) if CountedResidual in op.notes else None
        if note is None:
            self.out.line(f"{this}.append({value})", op, (this, value))
            self._limit(op, this, value)
        else:
            what = self.out.bind(note.of, "o")
            saved = f"{MEMORY}.save({value}, {what}, {note.may_swap})"
            self.out.line(f"{this}.append({saved})", op, (this, value))
        if item.live:
            self.share(op.outputs[0], op.inputs[0], op)

    def _element(self, t: Tensor, op: Operation) -> str:
        return self.values[t].text if self.lists.kind(t) == LIST else self.plain(t, op)

    def _limit(self, op: Operation, this: str, value: str) -> None:
        """Writes the check of an accumulator's size; of scalars only with a user's limit."""
        note, t = op.notes.get(ResidualPush), op.inputs[1]
        if note is None:
            return
        what = note.of
        if self.lists.kind(t) == LIST:
            nested, limit = self.out.bind(runtime.nested_within, "f"), flags.accumulator_limit()
            self.out.line(f"{nested}(run, {this}, {limit}, {self.out.bind(what, 'o')})", op, (this, value))
            return
        if t.shape == () and not flags.ACCUMULATOR_LIMIT.value:
            return
        limit = flags.accumulator_limit()
        within = self.out.bind(runtime.within, "f")
        size: int | None = t.dtype.base.size
        for d in t.shape or (None,):
            size = size * d if size is not None and d is not None else None
        if size is not None and self._most(op) * size <= limit:
            return
        if size is None:
            test = f"len({this}) * {value}.nbytes > {limit}"
        else:
            test = f"len({this}) > {limit // (size or 1)}"
        self.out.line(f"if {test}: {within}({this}, {value}, {limit}, {self.out.bind(what, 'o')})", op, (this, value))

    def _most(self, push: Operation) -> float:
        """The largest possible length of the list to which `push` pushes."""
        loop, this = self.out.loop, push.inputs[0].op
        if loop is None or loop.most is None or this.type != "_Arg" or this.graph is not loop.op.attrs["body"]:
            return math.inf
        is_new = loop.op.inputs[this.attrs["index"]].op.opdef.list_kind == "empty"
        return loop.most if is_new else math.inf

    def _pop(self, op: Operation, item: Item, kind: str) -> None:
        this = self.values[op.inputs[0]].text
        name = self.name_for(op.outputs[1])
        pop = f"{MEMORY}.pop({this})" if self.lists.is_counted(op.inputs[0]) else f"{this}.pop()"
        if self.lists.has_blanks(op.inputs[0]):
            pop = f"{self.out.bind(runtime.element, 'f')}([{pop}], 0, {self._blank(op)})"
        self.out.line(f"{name} = {pop}", op, (this,))
        inner = self.lists.kind(op.outputs[1])
        self.own(op.outputs[1], Value(name, inner))
        if 0 in item.live:
            self.share(op.outputs[0], op.inputs[0], op)

    def _blank(self, op: Operation) -> str:
        """The zeros that a missing element stands for."""
        t = op.outputs[-1]
        zeros = np.zeros(tuple(d or 0 for d in t.shape or ()), t.dtype.base.numpy)
        zeros.flags.writeable = False
        return self.out.bind(zeros[()], "c")

    def _get(self, op: Operation, item: Item, kind: str) -> None:
        this, index = self.values[op.inputs[0]].text, self.values[op.inputs[1]]
        text = index.text if index.kind == INT else self.plain(op.inputs[1], op)
        if kind == ROWS and index.is_natural:
            self.assign(op, f"{this}[{text}]", (this, text))
            return
        if not self.lists.has_blanks(op.inputs[0]) or shapes.is_full(op.outputs[0].shape):
            blank = self._blank(op) if self.lists.has_blanks(op.inputs[0]) else "None"
            element = f"{self.out.bind(runtime.element, 'f')}({this}, {text}, {blank})"
        else:
            shape = self.plain(op.inputs[2], op)
            element = f"{self.out.bind(runtime.element_alike, 'f')}({this}, {text}, {shape}, {self._by_kernel(op)})"
        if self.lists.is_counted(op.inputs[0]):
            element = f"{MEMORY}.get({element})"
        self.assign(op, element, (this, text))

    def _by_kernel(self, op: Operation) -> str:
        """The name of the kernel of `op` for lists of Python."""
        assert op.inputs[0].handle is not None
        return self.out.bind(runtime.ByKernel(op, *op.inputs[0].handle), "f")

    def _set(self, op: Operation, item: Item, kind: str) -> None:
        this, index = self.values[op.inputs[0]].text, self.values[op.inputs[1]]
        text = index.text if index.kind == INT else self.plain(op.inputs[1], op)
        value = self.plain(op.inputs[2], op)
        if op.attrs["resize_if_index_out_of_bounds"]:
            call = f"{self.out.bind(runtime.place_growing, 'f')}({this}, {text}, {value}, {self._by_kernel(op)})"
            self.out.line(call, op, (this, text, value))
        elif index.is_natural:
            self.out.line(f"{this}[{text}] = {value}", op, (this, text, value))
        else:
            self.out.line(f"{self.out.bind(runtime.place, 'f')}({this}, {text}, {value})", op, (this, text, value))
        if item.live:
            self.share(op.outputs[0], op.inputs[0], op)

    def _resize(self, op: Operation, item: Item, kind: str) -> None:
        self._change(op, item, runtime.resize)

    def _unset(self, op: Operation, item: Item, kind: str) -> None:
        self._change(op, item, runtime.unset)

    def _change(self, op: Operation, item: Item, change: Callable[..., None]) -> None:
        """Writes a change of a list that input 1 describes, such as a resize."""
        this, other = self.values[op.inputs[0]].text, self.plain(op.inputs[1], op)
        self.out.line(f"{self.out.bind(change, 'f')}({this}, {other}, {self._by_kernel(op)})", op, (this, other))
        if item.live:
            self.share(op.outputs[0], op.inputs[0], op)

    def _length(self, op: Operation, item: Item, kind: str) -> None:
        this = self.values[op.inputs[0]].text
        self.assign(op, f"{self.out.bind(np.int32, 'f')}(len({this}))", (this,))

    def _stack(self, op: Operation, item: Item, kind: str) -> None:
        this = self.values[op.inputs[0]].text
        n = op.attrs["num_elements"]
        if kind == ROWS and n == -1:
            self.share(op.outputs[0], op.inputs[0], op)
            self.values[op.outputs[0]] = Value(this)
            return
        rows = this if kind == LIST else f"list({this})"
        text = self._joined(op, runtime.stacked, runtime.stacked_alike, rows, str(n))
        self.assign(op, text, (this, self.plain(op.inputs[1], op)))

    def _gather(self, op: Operation, item: Item, kind: str) -> None:
        this, indices = self.values[op.inputs[0]].text, self.plain(op.inputs[1], op)
        self.assign(op, self._joined(op, runtime.gathered, runtime.gathered_alike, this, indices), (this, indices))

    def _joined(self, op: Operation, known: Any, alike: Any, rows: str, which: str) -> str:
        """Writes a call of `known` if the list states its elements' shape, else of `alike`."""
        handle = op.inputs[0].handle
        assert handle is not None
        out = op.outputs[0].shape
        dtype = self.out.bind(op.attrs["element_dtype"].numpy, "o")
        element = None if out is None else out[1:]
        if shapes.is_full(handle[1]):
            return f"{self.out.bind(known, 'f')}({rows}, {element}, {dtype}, {which})"
        stated = self.plain(op.inputs[-1], op)
        return f"{self.out.bind(alike, 'f')}({rows}, {element}, {dtype}, {which}, {stated}, {self._by_kernel(op)})"

    def _concat(self, op: Operation, item: Item, kind: str) -> None:
        this, shape, dims = self.values[op.inputs[0]].text, self.plain(op.inputs[1], op), self.plain(op.inputs[2], op)
        names = []
        for k, t in enumerate(op.outputs):
            names.append(self.name_for(t) if k in item.live else "_")
            if k in item.live:
                self.own(t, Value(names[-1]))
        stated = known_shape(op.inputs[1])
        if (stated is None or stated[:1] == (None,)) and op.inputs[2].shape == (0,):
            known = op.outputs[0].shape
            pattern = None if known is None else known[1:]
            joined = self.out.bind(runtime.concatenated, "f")
            call = f"{joined}({this}, {pattern}, {shape}, {dims}, {self._by_kernel(op)})"
        else:
            call = f"{self._by_kernel(op)}({this}, {shape}, {dims})"
        self.out.line(f"{', '.join(names)} = {call}", op, (this, shape, dims))


_WRITERS: Final[Mapping[ListKind, Callable[[Any, Any, Any, str], None]]] = {
    "empty": ListWriter._empty,
    "reserve": ListWriter._reserve,
    "from_tensor": ListWriter._from_tensor,
    "push": ListWriter._push,
    "pop": ListWriter._pop,
    "get": ListWriter._get,
    "set": ListWriter._set,
    "resize": ListWriter._resize,
    "unset": ListWriter._unset,
    "length": ListWriter._length,
    "stack": ListWriter._stack,
    "gather": ListWriter._gather,
    "concat": ListWriter._concat,
}
