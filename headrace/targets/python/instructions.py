"""Code for instructions without blocks: operators, ufuncs, list methods, kernel calls.

**Scalars.** The value of a tensor of static rank 0 is a numpy scalar. Python's operators on numpy scalars give the same
numbers as the ufuncs, with the same wrap-around and float32 rounding, in a fraction of the time.

**Arrays.** The steps of a map (`schedule.buffers`) are calls of ufuncs, each with the array that takes the result.

**Lists.** See `schedule.lists`: a push is an `append`, a pop a `pop`, and an element of the rows of an array an index.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from headrace import thresholds
from headrace.ir import output_check
from headrace.ir.analysis.flops import is_threaded
from headrace.ir.kernel import Kernel, device_memory
from headrace.opkit.forms import Form, Product
from headrace.opkit.kernel_library import kernel_with_library
from headrace.opkit.scalar_operators import SCALAR_OPERATORS
from headrace.schedule.program import Compute, Convert, Read
from headrace.schedule.scalar_expressions import Apply, Input
from headrace.schedule.select import KernelCall, ListOperation, Map, Move
from headrace.targets.python import forms
from headrace.targets.python.lists import ListWriter
from headrace.targets.python.numbers import NONE, Numbers, comparison
from headrace.targets.python.runtime import blocking

if TYPE_CHECKING:
    from headrace.ir.graph import Operation
    from headrace.schedule.program import Instr, Step, Value

_NO_POSITIONAL_OUT: Final = frozenset({np.maximum, np.minimum})  # numpy deprecates it


class InstructionWriter(ListWriter):
    """Writes instructions without blocks; `printer.Printer` writes the others.

    Attributes:
      stateful: Operations whose kernels are made for each run, in the order of `runtime.RunState.kernels`.
      bound: Operations whose kernels are made for their resources, with their handles, in the order of
        `runtime.RunState.bound`.
      uses_blas: Whether a kernel may call the BLAS library.
      is_threaded: Whether such a call may have enough work for several threads.
      uses_threads: Whether several threads may run parts of an operation of a section.
      calls_library: Whether kernels of another library than numpy compute on the processor.
      flushes: Whether a section flushes denormal numbers to zero.
      polls: Whether a section may run long.
      suspends: Whether the code waits for values (`Facts.suspends`), so that its functions are generators.
      targets: Names of existing arrays into which results of maps are written, by result.
      numbers: The counters of the current block that stay Python's numbers, and their comparisons.
      counters: The names of these counters, by their scalars.
      whole: The number of last axes that are not cut where arrays are computed in slices (`tiling`), else None.
    """

    def __init__(self) -> None:
        super().__init__()
        self.stateful: list[tuple[Operation, Kernel]] = []
        self.bound: list[tuple[Operation, Kernel, tuple[Any, ...]]] = []
        self.uses_blas = self.is_threaded = self.uses_threads = self.flushes = self.suspends = self.polls = False
        self.calls_library = False
        self.targets: dict[Value, str] = {}
        self.numbers: Numbers = NONE
        self.counters: dict[Value, str] = {}
        self.whole: int | None = None
        self._rows: dict[tuple[bytes, str, tuple[int, ...]], np.ndarray] = {}
        self._at: dict[Operation, int] = {}  # position among `stateful`

    # *** writing ***

    def compute(self, instr: Compute, following: Instr | None) -> None:
        """Writes an instruction and deletes the names of values that end.

        Args:
          instr: The instruction.
          following: The next instruction of the block, if there is one.
        """
        match instr.work:
            case Map(expression, is_scalar):
                if instr in self.numbers.comparisons:
                    self._compare(instr, expression, following)
                elif not is_scalar:
                    self._array(instr)
                    return
                else:
                    self._scalar(instr, expression, following)
            case Move(form):
                self._move(instr, form)
            case KernelCall(kernel, bound):
                self._call_kernel(instr, kernel, bound)
            case ListOperation():
                self.list_operation(instr, instr.work)
            case Convert():
                (made,) = instr.made
                if made in self.numbers.converts:
                    self.counters[made] = self.text(instr.inputs[0])
                    self.texts[made] = f"{self.scalar_type(made)}({self.counters[made]})"
                    return
                self.out.line(f"{self.name_for(made, 'c')} = {self.scalar_type(made)}({self.text(instr.inputs[0])})")
            case Read():
                read = f"{self.text(instr.inputs[0])}.read()"
                self.out.line(f"{self.name_for(instr.made[0])} = {read}" if instr.made else read, instr.op)
        self._check(instr)
        self.drop(instr.drops)

    def _check(self, instr: Compute) -> None:
        """Writes the comparison of results with their static types, if it is wanted."""
        if instr.is_checked and not isinstance(instr.work, (ListOperation, Convert, Read)):
            self.check(instr.made, instr.op)

    def check(self, values: Sequence[Value], op: Operation) -> None:
        """Writes comparisons of values with the static types of their tensors."""
        for value in values:
            if value.representation in ("scalar", "array", "object"):
                check = self.out.bind(output_check.check_value, "f")
                self.out.line(f"{check}({self.out.bind(value.tensor, 'o')}, {self.text(value)})", op)

    def _call_kernel(self, instr: Compute, kernel: Kernel, bound: int) -> None:
        """Writes the call of a kernel."""
        op = instr.op
        inputs = tuple(map(self.text, instr.inputs))
        self.use_libraries(op)
        is_blocking = op.opdef.facts.blocking
        if kernel.form == "pure" and not is_blocking:
            called = kernel_with_library(op, kernel, [t.shape for t in op.inputs])
            self.uses_threads |= getattr(called, "uses_threads", False)
            f = self.out.bind(called, "k")
        elif bound:
            f = f"run.bound[{len(self.bound)}]"
            self.bound.append((op, kernel, tuple([v.constant for v in instr.inputs[:bound]])))
        else:
            if op not in self._at:
                self._at[op] = len(self.stateful)
                self.stateful.append((op, blocking(op, kernel) if is_blocking else kernel))
            f = f"run.kernels[{self._at[op]}]"
        call = f"{f}({', '.join(inputs[bound:])})"
        if op.opdef.facts.suspends:
            self.suspends = True
            self.out.line(f"if not {f}: yield {f}", op)
            call = f"{f}.popleft()"
        if not instr.made:
            self.out.line(call, op, inputs)
        else:
            names = [self.name_for(v) if v is not None else "_" for v in instr.outputs]
            self.out.line(f"{', '.join(names)} = {call}", op, inputs)

    def use_libraries(self, op: Operation) -> None:
        """Records the call of a kernel, which may use threads of a library."""
        there = device_memory(op)
        self.calls_library |= there is not None and there.is_near
        if op.opdef.facts.blas:
            self.uses_blas = True
            self.is_threaded |= is_threaded(op)

    def _move(self, instr: Compute, form: Form) -> None:
        """Writes an instruction by its form."""
        texts = tuple(map(self.text, instr.inputs))
        made = forms.expressions(form, texts, self.out)
        if isinstance(form, Product):
            self.uses_blas = True
            self.is_threaded |= is_threaded(instr.op)
        for value, text in zip(instr.outputs, made, strict=True):
            if value is not None:
                self.out.line(f"{self.name_for(value)} = {text}", instr.op, texts)

    # *** scalar expressions ***

    def _scalar(self, instr: Compute, found: Apply, following: Instr | None) -> None:
        """Writes a scalar expression as operators on numpy scalars."""
        op = instr.op
        inputs = tuple(map(self.text, instr.inputs))
        used: dict[int, int] = {}
        _count(found, used)
        temps: dict[int, str] = {}

        def text(node: Any) -> str:
            if isinstance(node, Input):
                return inputs[node.index]
            if not isinstance(node, Apply):
                return repr(node) if type(node) in (int, float) else self.out.bind(node, "c")
            known = temps.get(id(node))
            if known is not None:
                return known
            args = [text(a) for a in node.args]
            operator = _operator(node, instr)
            if operator:
                out = operator.format(*args)
                if node is not found and not operator.startswith("abs"):
                    out = f"({out})"
            else:
                out = f"{self.out.bind(node.ufunc, 'k')}({', '.join(args)})"
            if used[id(node)] > 1:
                name = temps[id(node)] = self.out.new("t")
                self.out.line(f"{name} = {out}", op, inputs)
                return name
            return out

        self._give_scalar(instr, found, text(found), inputs, following)

    def _compare(self, instr: Compute, found: Apply, following: Instr | None) -> None:
        """Writes the comparison of a counter with a constant."""
        texts = [self.counters[v] if v in self.counters else str(int(v.constant)) for v in instr.inputs]
        self._give_scalar(instr, found, comparison(found, texts), tuple(texts), following)

    def _give_scalar(
        self, instr: Compute, found: Apply, out: str, inputs: tuple[str, ...], following: Instr | None
    ) -> None:
        """Assigns an expression to a result, or keeps it for the only reader."""
        if _is_part(instr, found, following) and len(out) < thresholds.INLINE_EXPRESSION:
            self.texts[instr.made[0]] = f"({out})"
        else:
            self.assign(instr, out, inputs)

    def _array(self, instr: Compute) -> None:
        """Writes the steps of a map as calls of ufuncs."""
        op = instr.op
        (result,) = instr.made
        inputs = tuple(map(self.operand, instr.inputs))
        names: list[str] = []  # the results of the steps
        for k, step in enumerate(instr.steps):
            is_last = k == len(instr.steps) - 1
            args = [self._argument(a, step, instr, inputs, names) for a in step.args]
            ufunc = step.ufunc
            if ufunc is np.multiply and args[0] == args[1] and step.dtype.kind == "f":
                ufunc, args = np.square, args[:1]  # the same numbers, 0.06 µs less per call
            f = self.out.bind(ufunc, "k")
            name = self.targets.get(result, "") if is_last else ""
            if step.into is not None:
                name = names[-step.into - 1] if step.into < 0 else self.texts[instr.inputs[step.into]]
            if name:
                into = name if ufunc not in _NO_POSITIONAL_OUT else f"out={name}"
                self.out.line(f"{f}({', '.join(args)}, {into})", op, inputs)
            else:
                name = self.name_for(result) if is_last else self.out.new("t")
                self.out.line(f"{name} = {f}({', '.join(args)})", op, inputs)
            names.append(name)
        self.texts[result] = names[-1]
        self._check(instr)
        self.drop(instr.drops, names, names[-1])

    def _argument(self, a: Any, step: Step, instr: Compute, inputs: Sequence[str], names: Sequence[str]) -> str:
        """The expression of an argument of a step."""
        if isinstance(a, int) and a < 0:
            return names[-a - 1]
        row = self._spread(a, step, instr)
        if row:
            return row
        if isinstance(a, int):
            return inputs[a]
        assert isinstance(instr.work, Map)
        return self._number(a[0], instr.work.expression)

    def _spread(self, a: Any, step: Step, instr: Compute) -> str:
        """A row filled with a number where that is faster than the number; else "".

        The minimum or maximum of an array and a number takes 0.5 ns for each element, that of two arrays 0.1 ns by
        vector instructions. The results are equal to the bit, with the same NaNs and signs of 0.
        """
        if step.ufunc not in _NO_POSITIONAL_OUT or not step.shape:
            return ""
        known = instr.inputs[a].constant if isinstance(a, int) else a[0]
        if isinstance(a, int) or isinstance(known, np.generic):
            if known is None or np.ndim(known) or known.dtype != step.dtype:
                return ""
            number = np.asarray(known)
        elif type(known) in (int, float) and (step.dtype.kind == "f" or 0 <= known < 128):
            number = np.array(known, step.dtype)
        else:
            return ""
        row = _row(step.shape if self.whole is None else step.shape[max(0, len(step.shape) - self.whole) :])
        if math.prod(row) < thresholds.SCALAR_ROW_FEWEST:
            return ""
        key = (number.tobytes(), step.dtype.char, row)
        if key not in self._rows:
            self._rows[key] = np.full(row, number, step.dtype)
            self._rows[key].flags.writeable = False
        return self.out.bind(self._rows[key], "c")

    def _number(self, number: Any, found: Apply) -> str:
        """Text of a number in an expression: an array of the result dtype, if possible.

        As the second operand of an array, an array of rank 0 takes 0.25 µs less than a numpy scalar, and 0.5 µs less
        than a number of Python.
        """
        if isinstance(number, np.generic):
            return self.out.bind(_zero_rank(number, number.dtype), "c")
        if type(number) in (int, float) and found.dtype.kind == "f":
            return self.out.bind(_zero_rank(number, found.dtype), "c")
        return repr(number) if type(number) in (int, float) else self.out.bind(number, "c")


def _is_part(instr: Compute, found: Apply, following: Instr | None) -> bool:
    """Whether a scalar expression may be inlined into that of its only reader.

    It may if both consist of operators alone, which do not fail, and no name is deleted between them.
    """
    if not isinstance(following, Compute) or instr.is_checked or any(v.holds_much for v in instr.drops):
        return False
    reader = following.work
    if not isinstance(reader, Map) or not reader.is_scalar:
        return False
    (value,) = instr.made
    if value not in following.drops:
        return False
    reads: dict[int, int] = {}
    _count_inputs(reader.expression, reads, set())
    at = [i for i, v in enumerate(following.inputs) if v is value]
    if len(at) != 1 or reads.get(at[0]) != 1:
        return False
    return _is_operators(found, instr) and _is_operators(reader.expression, following)


def _row(shape: Sequence[int]) -> tuple[int, ...]:
    """The fewest last axes of `shape` with at least `SCALAR_ROW_ENOUGH` and at most `SCALAR_ROW_MOST` elements."""
    for k in range(1, len(shape) + 1):
        n = math.prod(shape[-k:])
        if n > thresholds.SCALAR_ROW_MOST:
            return tuple(shape[len(shape) - k + 1 :])
        if n >= thresholds.SCALAR_ROW_ENOUGH:
            return tuple(shape[-k:])
    return tuple(shape)


def _operator(node: Apply, instr: Compute) -> str:
    """The operator for a ufunc of scalars; "" if the ufunc itself is called."""
    found = SCALAR_OPERATORS.get(node.ufunc)
    return found.text if found is not None and all(_kind(a, instr) in found.kinds for a in node.args) else ""


def _is_operators(node: Any, instr: Compute) -> bool:
    if not isinstance(node, Apply):
        return True
    return bool(_operator(node, instr)) and all(_is_operators(a, instr) for a in node.args)


def _count(node: Any, used: dict[int, int]) -> None:
    """Counts the readers of each application in a scalar expression."""
    used[id(node)] = used.get(id(node), 0) + 1
    if used[id(node)] == 1 and isinstance(node, Apply):
        for a in node.args:
            if isinstance(a, Apply):
                _count(a, used)


def _count_inputs(node: Apply, reads: dict[int, int], seen: set[int]) -> None:
    if id(node) in seen:
        return
    seen.add(id(node))
    for a in node.args:
        if isinstance(a, Input):
            reads[a.index] = reads.get(a.index, 0) + 1
        elif isinstance(a, Apply):
            _count_inputs(a, reads, seen)


def _kind(node: Any, instr: Compute) -> str:
    """The dtype kind of a part of a scalar expression; "" for a number."""
    if isinstance(node, Input):
        return instr.inputs[node.index].dtype.numpy.kind
    return node.dtype.kind if isinstance(node, Apply) else ""


def _zero_rank(number: Any, dtype: np.dtype) -> np.ndarray:
    array = np.array(number, dtype)
    array.flags.writeable = False
    return _numbers.setdefault((array.tobytes(), dtype.char), array)  # by its bits, because 0.0 == -0.0


_numbers: dict[tuple[bytes, str], np.ndarray] = {}
