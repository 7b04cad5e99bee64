"""Code for operations on tensor lists that are Python lists or rows (`schedule.lists`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from headrace import shapes
from headrace.ir.notes import CountedResidual, ResidualPush
from headrace.schedule.lists import LIST, ROWS, known_shape
from headrace.schedule.program import Compute
from headrace.schedule.select import ListOperation
from headrace.targets.python import runtime
from headrace.targets.python.names import Names

if TYPE_CHECKING:
    from headrace.ir.op_roles import ListKind
    from headrace.schedule.program import Instr, Value


MEMORY: Final = "run.step.memory"  # the account of the device, which exists where operations have `_counted`


class ListWriter(Names):
    """Writes operations on tensor lists, such as pushes and pops.

    Attributes:
      stacked: Lists of the representation "list" that are arrays of their elements.
    """

    def __init__(self) -> None:
        super().__init__()
        self.stacked: set[Value] = set()

    def list_operation(self, instr: Compute, found: ListOperation) -> None:
        """Writes an operation on a list of Python or on rows."""
        _WRITERS[found.role.kind](self, instr, found)

    def _empty(self, instr: Compute, found: ListOperation) -> None:
        self._make(instr, "[]")

    def _reserve(self, instr: Compute, found: ListOperation) -> None:
        self._make(instr, f"{self.out.bind(runtime.blanks, 'f')}({self.text(instr.inputs[1])})")

    def _from_tensor(self, instr: Compute, found: ListOperation) -> None:
        text = self.text(instr.inputs[0])
        if found.memory is not None:
            text = f"{self.out.bind(runtime.rows, 'f')}({text})"
        elif found.kind != ROWS:
            text = f"list({text})"
        self._make(instr, text)

    def _make(self, instr: Compute, text: str) -> None:
        target = "".join(f"{self.name_for(value, 'l')} = " for value in instr.made)
        self.out.line(f"{target}{text}", instr.op)

    def _push(self, instr: Compute, found: ListOperation) -> None:
        op = instr.op
        this, value = map(self.text, instr.inputs)
        note = op.notes.get(ResidualPush) if CountedResidual in op.notes else None
        if note is None:
            self.out.line(f"{this}.append({value})", op, (this, value))
            self._limit(instr, this, value)
        else:
            saved = f"{MEMORY}.save({value}, {self.out.bind(note.of, 'o')}, {note.may_swap})"
            self.out.line(f"{this}.append({saved})", op, (this, value))

    def _limit(self, push: Compute, this: str, value: str) -> None:
        """Writes the check of the size of a list of residuals."""
        op, limit, element = push.op, push.most_bytes, push.inputs[1]
        if limit is None:
            return
        what = self.out.bind(op.notes[ResidualPush].of, "o")
        if element.representation == "list":
            nested = self.out.bind(runtime.nested_within, "f")
            self.out.line(f"{nested}(run, {this}, {limit}, {what})", op, (this, value))
            return
        size = element.bytes
        if size < 0:
            test = f"len({this}) * {value}.nbytes > {limit}"
        else:
            test = f"len({this}) > {limit // (size or 1)}"
        within = self.out.bind(runtime.within, "f")
        self.out.line(f"if {test}: {within}({this}, {value}, {limit}, {what})", op, (this, value))

    def _pop(self, instr: Compute, found: ListOperation) -> None:
        this, value = self.text(instr.inputs[0]), instr.outputs[1]
        pop = f"{MEMORY}.pop({this})" if found.is_counted else f"{this}.pop()"
        if found.has_blanks:
            pop = f"{self.out.bind(runtime.element, 'f')}([{pop}], 0, {self._blank(instr, found)})"
        name = self.name_for(value) if value is not None else self.out.new("t")
        self.out.line(f"{name} = {pop}", instr.op, (this,))

    def _blank(self, instr: Compute, found: ListOperation) -> str:
        """The zeros that a missing element stands for."""
        t = instr.op.outputs[-1]
        zeros = np.zeros(tuple(d or 0 for d in t.shape or ()), t.dtype.base.numpy)
        zeros.flags.writeable = False
        return self.out.bind(zeros[()] if found.memory is None else found.memory.put(zeros), "c")

    def _get(self, instr: Compute, found: ListOperation) -> None:
        op, index = instr.op, instr.inputs[1]
        this, text = self.text(instr.inputs[0]), self.text(index)
        if found.kind == ROWS and index.is_natural:
            self.assign(instr, f"{this}[{text}]", (this, text))
            return
        if not found.has_blanks or shapes.is_full(op.outputs[0].shape):
            blank = self._blank(instr, found) if found.has_blanks else "None"
            element = f"{self.out.bind(runtime.element, 'f')}({this}, {text}, {blank})"
        else:
            shape, kernel = self.text(instr.inputs[2]), self._by_kernel(instr, found)
            element = f"{self.out.bind(runtime.element_alike, 'f')}({this}, {text}, {shape}, {kernel})"
        if found.is_counted:
            element = f"{MEMORY}.get({element})"
        self.assign(instr, element, (this, text))

    def _by_kernel(self, instr: Compute, found: ListOperation) -> str:
        """The name of the kernel of an operation for lists of Python."""
        handle = instr.op.inputs[0].handle
        assert handle is not None
        return self.out.bind(runtime.ByKernel(instr.op, *handle, found.memory), "f")

    def _set(self, instr: Compute, found: ListOperation) -> None:
        op, index = instr.op, instr.inputs[1]
        this, text, value = map(self.text, instr.inputs)
        if op.attrs["resize_if_index_out_of_bounds"]:
            grow = self.out.bind(runtime.place_growing, "f")
            call = f"{grow}({this}, {text}, {value}, {self._by_kernel(instr, found)})"
            self.out.line(call, op, (this, text, value))
        elif index.is_natural:
            self.out.line(f"{this}[{text}] = {value}", op, (this, text, value))
        else:
            self.out.line(f"{self.out.bind(runtime.place, 'f')}({this}, {text}, {value})", op, (this, text, value))

    def _resize(self, instr: Compute, found: ListOperation) -> None:
        self._change(instr, found, runtime.resize)

    def _unset(self, instr: Compute, found: ListOperation) -> None:
        self._change(instr, found, runtime.unset)

    def _change(self, instr: Compute, found: ListOperation, change: Callable[..., None]) -> None:
        """Writes a change of a list that input 1 describes, such as a resize."""
        this, other = map(self.text, instr.inputs)
        call = f"{self.out.bind(change, 'f')}({this}, {other}, {self._by_kernel(instr, found)})"
        self.out.line(call, instr.op, (this, other))

    def _length(self, instr: Compute, found: ListOperation) -> None:
        this = self.text(instr.inputs[0])
        self.assign(instr, f"{self.out.bind(np.int32, 'f')}(len({this}))", (this,))

    def _stack(self, instr: Compute, found: ListOperation) -> None:
        this = self.text(instr.inputs[0])
        n = instr.op.attrs["num_elements"]
        if (found.kind == ROWS or instr.inputs[0] in self.stacked) and n == -1:
            self.assign(instr, this)
            return
        rows = self._present(this, found) if found.kind == LIST else f"list({this})"
        text = self._joined(instr, found, runtime.stacked, runtime.stacked_alike, rows, str(n))
        self.assign(instr, text, (this, self.text(instr.inputs[1])))

    def _gather(self, instr: Compute, found: ListOperation) -> None:
        this, indices = map(self.text, instr.inputs[:2])
        rows = self._present(this, found)
        text = self._joined(instr, found, runtime.gathered, runtime.gathered_alike, rows, indices)
        self.assign(instr, text, (this, indices))

    def _present(self, this: str, found: ListOperation) -> str:
        """The elements of a list as arrays; numpy converts those on the host by itself."""
        return f"[{MEMORY}.get(x) for x in {this}]" if found.is_counted and found.memory is not None else this

    def _joined(self, instr: Compute, found: ListOperation, known: Any, alike: Any, rows: str, which: str) -> str:
        """Writes a call of `known` for host elements of stated shape, else of `alike`."""
        op = instr.op
        handle = op.inputs[0].handle
        assert handle is not None
        out = op.outputs[0].shape
        dtype = self.out.bind(op.attrs["element_dtype"].numpy, "o")
        element = None if out is None else out[1:]
        if shapes.is_full(handle[1]) and found.memory is None:
            return f"{self.out.bind(known, 'f')}({rows}, {element}, {dtype}, {which})"
        stated, kernel = self.text(instr.inputs[-1]), self._by_kernel(instr, found)
        return f"{self.out.bind(alike, 'f')}({rows}, {element}, {dtype}, {which}, {stated}, {kernel})"

    def _concat(self, instr: Compute, found: ListOperation) -> None:
        op = instr.op
        this, shape, dims = map(self.text, instr.inputs)
        rows = self._present(this, found)
        names = [self.name_for(v) if v is not None else "_" for v in instr.outputs]
        stated = known_shape(op.inputs[1])
        if (stated is None or stated[:1] == (None,)) and op.inputs[2].shape == (0,):
            known = op.outputs[0].shape
            pattern = None if known is None else known[1:]
            joined = self.out.bind(runtime.concatenated, "f")
            call = f"{joined}({rows}, {pattern}, {shape}, {dims}, {self._by_kernel(instr, found)})"
        else:
            call = f"{self._by_kernel(instr, found)}({rows}, {shape}, {dims})"
        self.out.line(f"{', '.join(names)} = {call}", op, (this, shape, dims))


def is_whole_stack(instr: Instr) -> bool:
    """Whether an instruction stacks all elements of a list that states their shape."""
    if not isinstance(instr, Compute) or not isinstance(instr.work, ListOperation) or instr.work.role.kind != "stack":
        return False
    handle = instr.op.inputs[0].handle
    return instr.op.attrs["num_elements"] == -1 and handle is not None and shapes.is_full(handle[1])


_WRITERS: Final[Mapping[ListKind, Callable[[Any, Any, Any], None]]] = {
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
