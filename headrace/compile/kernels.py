"""Code for one operation: an operator, a ufunc, a list method or a kernel call.

**Scalars.** The value of a tensor of static rank 0 is a numpy scalar. Python's operators on numpy scalars give the same
numbers as the ufuncs, with the same wrap-around and float32 rounding, in a fraction of the time.

**Buffers.** A ufunc needs no new array if one of its operands is an array that was made in the same region, has the
shape and dtype of the result, and has no later reader. The array must also be unreachable through views and lists. The
emitter knows this because only ufuncs and products of matrices are certain to keep no reference to their operands.

**Lists.** See `lists`: a push is an `append`, a pop a `pop`, and an element of the rows of an array an index.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from headrace import flags, thresholds
from headrace.compile import views
from headrace.compile.list_writing import ListWriter
from headrace.compile.names import Value
from headrace.compile.runtime import blocking
from headrace.ir import output_check
from headrace.ir.infer import constant_value
from headrace.ir.kernel import Kernel, made_for
from headrace.opkit.forms import COPIES, Product
from headrace.opkit.scalar_operators import SCALAR_OPERATORS
from headrace.schedule.scalar_expressions import Apply, Input
from headrace.schedule.select import Constant, Forward, KernelCall, ListOperation, Map, Move, Nothing

if TYPE_CHECKING:
    from collections.abc import Collection

    from headrace.ir.graph import Operation, Tensor
    from headrace.opkit.forms import Form
    from headrace.schedule.regions import Item, Regions

_NO_POSITIONAL_OUT: Final = frozenset({np.maximum, np.minimum})  # numpy deprecates it


class Writer(ListWriter):
    """Writes operations that have kernels; `emit.Emitter` writes the structured operations.

    Attributes:
      stateful: Operations whose kernels are made for each run, in the order of `runtime.RunState.kernels`.
      uses_blas: Whether a kernel may call the BLAS library.
      suspends: Whether the code waits for values (`Facts.suspends`), so that its functions are generators.
      targets: Names of existing arrays into which results of scalar expressions are written, by result.
      next: The next item, if it is the only reader of the result of the current one.
      whole: The number of last axes that are not cut where arrays are computed in slices (`tiling`), else None.
    """

    def __init__(self, regions: Regions) -> None:
        super().__init__(regions)
        self.stateful: list[tuple[Operation, Kernel]] = []
        self.uses_blas = self.suspends = False
        self.targets: dict[Tensor, str] = {}
        self.next: Item | None = None
        self.whole: int | None = None
        self._rows: dict[tuple[bytes, str, tuple[int, ...]], np.ndarray] = {}
        self._at: dict[Operation, int] = {}  # position among `stateful`
        self._checks = flags.VERIFY.value >= 2

    # *** writing ***

    def kernel(self, item: Item, reusable: Collection[Tensor]) -> None:
        """Writes an item that owns no graphs, into an array of `reusable` if it can."""
        op, found = item.op, self.selection.of(item)
        match found:
            case Map(expression, is_scalar):
                if is_scalar:
                    self._scalar(op, expression)
                else:
                    self._array(op, expression, reusable)
            case Move(form):
                self._move(op, item, form)
            case KernelCall(kernel):
                self._call_kernel(op, item, kernel)
            case Nothing():
                return
            case Constant(value):
                self.values[op.outputs[0]] = self.constant(value)
                return
            case Forward(source):
                if item.live:
                    self.share(op.outputs[0], op.inputs[source], op)
                elif op.inputs[source].dtype.is_ref:  # the read must fail if there is no value
                    self.out.line(self.plain(op.inputs[source], op), op)
                return
            case ListOperation():
                self.list_operation(op, item, found)
                return
        if self._checks:
            for i in item.live:
                self._check(op.outputs[i])

    def _check(self, t: Tensor) -> None:
        value = self.values[t]
        if value.kind == "" and not value.is_global:
            check = self.out.bind(output_check.check_value, "f")
            self.out.line(f"{check}({self.out.bind(t, 'o')}, {value.text})", t.op)

    def _call_kernel(self, op: Operation, item: Item, kernel: Kernel) -> None:
        """Writes the call of a kernel."""
        wants = op.opdef.input_dtypes(op.attrs) if any(t.dtype.is_ref for t in op.inputs) else ()
        texts = [self.plain(t, op, bool(wants) and wants[i].is_ref) for i, t in enumerate(op.inputs)]
        if op.opdef.facts.blas:
            self.uses_blas = True
        is_blocking = op.opdef.facts.blocking
        if kernel.form == "pure" and not is_blocking:
            f = self.out.bind(made_for(op, kernel), "k")
        else:
            if op not in self._at:
                self._at[op] = len(self.stateful)
                self.stateful.append((op, blocking(op, kernel) if is_blocking else kernel))
            f = f"run.kernels[{self._at[op]}]"
        call = f"{f}({', '.join(texts)})"
        inputs = tuple(texts)
        if op.opdef.facts.suspends:
            self.suspends = True
            self.out.line(f"if not {f}: yield {f}", op)
            call = f"{f}.popleft()"
        if not item.live:
            self.out.line(call, op, inputs)
        elif len(op.outputs) == 1:
            self.assign(op, call, inputs, op.opdef.facts.fresh)
        else:
            names = []
            for i, t in enumerate(op.outputs):
                names.append(self.name_for(t) if i in item.live else "_")
                if i in item.live:
                    self.own(t, Value(names[-1]))
            self.out.line(f"{', '.join(names)} = {call}", op, inputs)

    def _move(self, op: Operation, item: Item, form: Form) -> None:
        """Writes an operation by its form."""
        texts = [self.plain(t, op) for t in op.inputs]
        made = views.expressions(form, texts, self.out)
        self.uses_blas |= isinstance(form, Product)
        for i in item.live:
            name = self.name_for(op.outputs[i])
            self.out.line(f"{name} = {made[i]}", op, tuple(texts))
            self.own(op.outputs[i], Value(name, is_fresh=isinstance(form, COPIES)))

    # *** scalar expressions ***

    def _scalar(self, op: Operation, found: Apply) -> None:
        """Writes a scalar expression as operators on numpy scalars."""
        inputs = tuple(self.plain(t, op) for t in op.inputs)
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
            operator = _operator(node, op)
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

        out = text(found)
        if self.next is not None and self._is_part(op, found, self.next) and len(out) < thresholds.INLINE_EXPRESSION:
            self.values[op.outputs[0]] = Value(f"({out})")
        else:
            self.assign(op, out, inputs)

    def _is_part(self, op: Operation, found: Apply, next: Item) -> bool:
        """Whether a scalar expression may be inlined into the expression of its only reader.

        It may if both consist of operators alone, which do not fail.
        """
        reader = self.selection.of(next)
        if not isinstance(reader, Map) or not reader.is_scalar:
            return False
        reads: dict[int, int] = {}
        _count_inputs(reader.expression, reads, set())
        at = [i for i, t in enumerate(next.op.inputs) if t is op.outputs[0]]
        if len(at) != 1 or reads.get(at[0]) != 1:
            return False
        return _is_operators(found, op) and _is_operators(reader.expression, next.op)

    def _array(self, op: Operation, found: Apply, reusable: Collection[Tensor]) -> None:
        """Writes a scalar expression as calls of ufuncs, into reusable arrays where possible."""
        inputs = tuple([self._beside(t, op, found) for t in op.inputs])
        if all(type(a) is Input for a in found.args):
            self._ufunc(op, found, inputs, reusable)
            return
        used: dict[int, int] = {}
        _count(found, used)
        reads: dict[int, int] = {}  # number of reads of each input that are still to come
        _count_inputs(found, reads, set())
        free: list[tuple[str, Tensor | None]] = []  # buffers of the result's shape and dtype without a later reader
        done: dict[int, str] = {}
        spare = [t for t in op.inputs if t in reusable and self._can_hold(t, found)]

        def visit(node: Any) -> str:
            if isinstance(node, Input):
                return inputs[node.index]
            if not isinstance(node, Apply):
                return self._number(node, found)
            if id(node) in done:
                return done[id(node)]
            args = [self._spread(a, node, op) or visit(a) for a in node.args]
            for a in node.args:
                if isinstance(a, Input):
                    reads[a.index] -= 1
                    t = op.inputs[a.index]
                    if t in spare and not any(reads[i] for i, u in enumerate(op.inputs) if u is t and i in reads):
                        spare.remove(t)
                        free.append((self.values[t].text, t))
                elif isinstance(a, Apply):
                    used[id(a)] -= 1
                    if not used[id(a)] and _alike(a, found):
                        free.append((done[id(a)], None))
            name = self.targets.get(op.outputs[0], "") if node is found else ""
            was = None
            if not name and free and _alike(node, found):
                name, was = free.pop()
            done[id(node)] = self._apply(op, node, args, inputs, name, was, node is found)
            return done[id(node)]

        name = visit(found)
        self.own(op.outputs[0], Value(name, is_fresh=found.shape is not None and found.shape != ()))
        others = dict.fromkeys(n for n in [*done.values(), *(n for n, _ in free)] if n != name)
        if others:
            self.out.line(f"del {', '.join(others)}")
        for _, was in free:
            if was is not None:
                self._owned.pop(was, None)

    def _ufunc(self, op: Operation, found: Apply, inputs: tuple[str, ...], reusable: Collection[Tensor]) -> None:
        """Writes one ufunc of the inputs; equal to `_array`, in a fourth of the time."""
        args: list[str] = []
        free: list[Tensor] = []
        for a in found.args:
            t = op.inputs[a.index]
            args.append(self._spread(a, found, op) or inputs[a.index])
            if t in reusable and self._can_hold(t, found):
                if t in free:
                    free.remove(t)
                free.append(t)
        name, was = self.targets.get(op.outputs[0], ""), None
        if not name and free and _alike(found, found):
            was = free.pop()
            name = self.values[was].text
        name = self._apply(op, found, args, inputs, name, was, True)
        left = [text for t in free if (text := self.values[t].text) != name]
        self.own(op.outputs[0], Value(name, is_fresh=found.shape is not None and found.shape != ()))
        if left:
            self.out.line(f"del {', '.join(left)}")
        for t in free:
            self._owned.pop(t, None)

    def _apply(
        self,
        op: Operation,
        node: Apply,
        args: list[str],
        inputs: tuple[str, ...],
        name: str,
        was: Tensor | None,
        is_last: bool,
    ) -> str:
        """Writes the call of a ufunc.

        Args:
          op: The operation.
          node: The application of the ufunc.
          args: The expressions of the arguments.
          inputs: The expressions of the operation's inputs.
          name: The array for the result; "" for a new one.
          was: The tensor to which that array belonged, if any.
          is_last: Whether the result is that of the operation.

        Returns:
          The name of the result.
        """
        ufunc = node.ufunc
        if ufunc is np.multiply and args[0] == args[1] and node.dtype.kind == "f":
            ufunc, args = np.square, args[:1]  # the same numbers, 0.06 µs less per call
        f = self.out.bind(ufunc, "k")
        if name:
            if was is not None:
                self._owned.pop(was, None)
            into = name if ufunc not in _NO_POSITIONAL_OUT else f"out={name}"
            self.out.line(f"{f}({', '.join(args)}, {into})", op, inputs)
        else:
            name = self.name_for(op.outputs[0]) if is_last else self.out.new("t")
            self.out.line(f"{name} = {f}({', '.join(args)})", op, inputs)
        return name

    def _can_hold(self, t: Tensor, found: Apply) -> bool:
        """Whether the array of `t` may become the result."""
        value = self.values[t]
        return (
            value.is_fresh
            and self._shares.get(self._owned.get(t, ""), 0) == 1
            and t.shape == found.shape
            and found.shape is not None
            and t.dtype.base.numpy == found.dtype
        )

    def _beside(self, t: Tensor, op: Operation, found: Apply) -> str:
        value = self.values.get(t)
        return value.beside if value is not None and value.beside else self.plain(t, op)

    def _spread(self, a: Any, node: Apply, op: Operation) -> str:
        """A row filled with a number where that is faster than the number; else "".

        The minimum or maximum of an array and a number takes 0.5 ns for each element, that of two arrays 0.1 ns by
        vector instructions. The results are equal to the bit, with the same NaNs and signs of 0.
        """
        if node.ufunc not in _NO_POSITIONAL_OUT or not node.shape:
            return ""
        if isinstance(a, Input):
            t = op.inputs[a.index]
            number = constant_value(t)
            if number is None or number.ndim or number.dtype != node.dtype:
                return ""
        elif isinstance(a, np.generic) and a.dtype == node.dtype:
            number = np.asarray(a)
        elif type(a) in (int, float) and (node.dtype.kind == "f" or 0 <= a < 128):
            number = np.array(a, node.dtype)
        else:
            return ""
        row = _row(node.shape if self.whole is None else node.shape[max(0, len(node.shape) - self.whole) :])
        if math.prod(row) < thresholds.SCALAR_ROW_FEWEST:
            return ""
        key = (number.tobytes(), node.dtype.char, row)
        if key not in self._rows:
            self._rows[key] = np.full(row, number, node.dtype)
            self._rows[key].flags.writeable = False
        return self.out.bind(self._rows[key], "c")

    def _number(self, node: Any, found: Apply) -> str:
        """Text of a number in an expression: an array of the result dtype, if possible.

        As the second operand of an array, an array of rank 0 takes 0.25 µs less than a numpy scalar, and 0.5 µs less
        than a number of Python.
        """
        if isinstance(node, np.generic):
            return self.out.bind(_zero_rank(node, node.dtype), "c")
        if type(node) in (int, float) and found.dtype.kind == "f":
            return self.out.bind(_zero_rank(node, found.dtype), "c")
        return repr(node) if type(node) in (int, float) else self.out.bind(node, "c")


def _row(shape: Sequence[int]) -> tuple[int, ...]:
    """The fewest last axes of `shape` with at least `SCALAR_ROW_ENOUGH` and at most `SCALAR_ROW_MOST` elements."""
    for k in range(1, len(shape) + 1):
        n = math.prod(shape[-k:])
        if n > thresholds.SCALAR_ROW_MOST:
            return tuple(shape[len(shape) - k + 1 :])
        if n >= thresholds.SCALAR_ROW_ENOUGH:
            return tuple(shape[-k:])
    return tuple(shape)


def _operator(node: Apply, op: Operation) -> str:
    """The operator for a ufunc of scalars; "" if the ufunc itself is called."""
    found = SCALAR_OPERATORS.get(node.ufunc)
    return found.text if found is not None and all(_kind(a, op) in found.kinds for a in node.args) else ""


def _is_operators(node: Any, op: Operation) -> bool:
    return not isinstance(node, Apply) or (bool(_operator(node, op)) and all(_is_operators(a, op) for a in node.args))


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


def _alike(a: Apply, b: Apply) -> bool:
    """Whether two results have equal static shapes and dtypes, so that one buffer fits both."""
    return a.shape is not None and a.shape == b.shape and a.shape != () and a.dtype == b.dtype


def _kind(node: Any, op: Operation) -> str:
    """The dtype kind of a part of a scalar expression; "" for a number."""
    if isinstance(node, Input):
        return op.inputs[node.index].dtype.base.numpy.kind
    return node.dtype.kind if isinstance(node, Apply) else ""


def _zero_rank(number: Any, dtype: np.dtype) -> np.ndarray:
    array = np.array(number, dtype)
    array.flags.writeable = False
    return _numbers.setdefault((array.tobytes(), dtype.char), array)  # by its bits, because 0.0 == -0.0


_numbers: dict[tuple[bytes, str], np.ndarray] = {}
