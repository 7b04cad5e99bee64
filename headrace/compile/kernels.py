"""How one operation is written: an operator, a ufunc into a buffer, a list method, or a call of its kernel.

**Scalars.** Of a tensor known to have rank 0 the value is a numpy scalar, and for those Python's operators give the
very numbers that the ufuncs give, wrap-around and float32 rounding included, in a fraction of the time.

**Buffers.** A ufunc needs no new array where one of its operands is an array that was made in the same block, has the
result's shape and dtype, and is read by nobody else any more. Whether somebody may still see it, as a view or in a
list, is known: only ufuncs and products of matrices are sure to keep nothing of what they read.

**Lists.** See `lists`: a push is an `append`, a pop a `pop`, an element of the rows of an array an index.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from headrace import dtypes, flags
from headrace.compile import running
from headrace.compile.formulas import Apply, Input, formula
from headrace.compile.lists import LIST, ROWS, Lists
from headrace.compile.source import Source
from headrace.ir import checking
from headrace.ir.elementwise import HALF
from headrace.ir.infer import constant_value
from headrace.ir.kernel import Kernel, find_kernel

if TYPE_CHECKING:
    from collections.abc import Collection

    from headrace.compile.blocks import Blocks, Item
    from headrace.ir.graph import Operation, Tensor

INT: Final = "int"  # a Python int that stands for an int32 or int64 scalar

# operators that give on numpy scalars what the ufunc gives, for dtypes of these kinds
_OPERATORS: Final[Mapping[np.ufunc, tuple[str, str]]] = {
    np.add: ("{} + {}", "iuf"),
    np.subtract: ("{} - {}", "iuf"),
    np.multiply: ("{} * {}", "iuf"),
    np.divide: ("{} / {}", "f"),
    np.negative: ("-{}", "if"),
    np.absolute: ("abs({})", "f"),
    np.less: ("{} < {}", "iuf"),
    np.less_equal: ("{} <= {}", "iuf"),
    np.greater: ("{} > {}", "iuf"),
    np.greater_equal: ("{} >= {}", "iuf"),
    np.equal: ("{} == {}", "iufb"),
    np.not_equal: ("{} != {}", "iufb"),
    np.bitwise_and: ("{} & {}", "iub"),
    np.bitwise_or: ("{} | {}", "iub"),
    np.bitwise_xor: ("{} ^ {}", "iub"),
    np.logical_and: ("{} & {}", "b"),
    np.logical_or: ("{} | {}", "b"),
    np.logical_not: ("~{}", "b"),
}

_NO_POSITIONAL_OUT: Final = frozenset({np.maximum, np.minimum})  # numpy deprecates it


@dataclasses.dataclass(frozen=True, slots=True)
class Value:
    """What stands for a tensor in the source.

    Attributes:
      text: a name.
      kind: "" for what kernels know; `INT`, `LIST` or `ROWS`.
      is_natural: of an `INT`: it is not negative.
      is_fresh: an array that was made here for this tensor alone.
      is_global: a constant.
      beside: of a constant of rank 0, the name of the array that is better beside arrays.
    """

    text: str
    kind: str = ""
    is_natural: bool = False
    is_fresh: bool = False
    is_global: bool = False
    beside: str = ""

    def named(self, name: str) -> Value:
        """The same by another name."""
        return Value(name, self.kind, self.is_natural)


class Writer:
    """Writes operations that have kernels; `emit.Emitter` writes what is around them.

    Attributes:
      out: the source.
      values: what stands for each tensor.
      lists: what stands for tensor lists.
      stateful: operations whose kernels are made for each run, in the order of `running.Run.kernels`.
      converted: for each open block, which Python ints have been made scalars of a dtype there.
    """

    def __init__(self, blocks: Blocks) -> None:
        self.out = Source()
        self.values: dict[Tensor, Value] = {}
        self.lists = Lists(blocks)
        self.stateful: list[tuple[Operation, Kernel]] = []
        self.converted: list[dict[tuple[str, type], str]] = [{}]
        self.uses_blas = False
        self._formulas: dict[Operation, Apply | None] = {}
        self._kernels: dict[Operation, Kernel] = {}
        self._owned: dict[Tensor, str] = {}  # tensors that have a part in a name, which goes with the last of them
        self._shares: dict[str, int] = {}
        self._at: dict[Operation, int] = {}  # position among `stateful`
        self._checks = flags.VERIFY.value >= 2

    # *** names ***

    def own(self, t: Tensor, value: Value) -> None:
        """`t` is `value`, whose name nothing else has."""
        self.values[t] = value
        self._owned[t] = value.text
        self._shares[value.text] = 1

    def share(self, t: Tensor, other: Tensor, op: Operation) -> None:
        """`t` is what `other` is."""
        if other.dtype.is_ref and not t.dtype.is_ref:
            name = self.out.new("t")
            self.out.line(f"{name} = {self.plain(other, op)}", op)
            self.own(t, Value(name))
            return
        value = self.values[t] = self.values[other]
        name = self._owned.get(other, "")
        if name:
            self._owned[t] = name
            self._shares[name] += 1
        elif value.is_fresh:
            self.values[t] = dataclasses.replace(value, is_fresh=False)

    def alias(self, p: Tensor, t: Tensor, op: Operation) -> None:
        """The parameter `p` of an inner block is `t`, which stays at least as long."""
        if t.dtype.is_ref and not p.dtype.is_ref:
            self.share(p, t, op)
        else:
            value = self.values[t]
            self.values[p] = dataclasses.replace(value, is_fresh=False) if value.is_fresh else value

    def disown(self, t: Tensor) -> None:
        """`t` has no part in its name any more; the name stays."""
        self._owned.pop(t, None)

    def drop(self, tensors: Iterable[Tensor]) -> None:
        """Nobody reads `tensors` any more: names that stood for them alone go."""
        gone = []
        for t in tensors:
            name = self._owned.pop(t, None)
            if name is not None:
                self._shares[name] -= 1
                if not self._shares[name] and (t.shape != () or t.dtype.base in dtypes.OBJECT):
                    gone.append(name)
        if gone:
            self.out.line(f"del {', '.join(gone)}")

    # *** values ***

    def plain(self, t: Tensor, op: Operation, wants_ref: bool = False) -> str:
        """`t` as kernels and users know it."""
        value = self.values.get(t)
        if value is None:  # a constant that nobody makes
            value = self.values[t] = self.constant(constant_value(t))
        if value.kind == INT:
            return self._as_scalar(value, t)
        if t.dtype.is_ref and not wants_ref:
            return f"{value.text}.read()"
        return value.text

    def scalar_type(self, t: Tensor) -> str:
        """The name of the class of numpy scalars of the dtype of `t`."""
        return self.out.bind(t.dtype.base.numpy.type, "f")

    def _as_scalar(self, value: Value, t: Tensor) -> str:
        kind = t.dtype.base.numpy.type
        for known in reversed(self.converted):
            name = known.get((value.text, kind))
            if name is not None:
                return name
        name = self.out.new("c")
        self.out.line(f"{name} = {self.scalar_type(t)}({value.text})")
        self.converted[-1][value.text, kind] = name
        return name

    def constant(self, array: Any) -> Value:
        """A constant."""
        if array.ndim or array.dtype.kind not in "biufc":
            return Value(self.out.bind(array, "c"), is_global=True)
        return Value(self.out.bind(array[()], "c"), is_global=True, beside=self.out.bind(array, "c"))

    # *** what is known of operations ***

    def kernel_of(self, op: Operation) -> Kernel:
        """The kernel of `op`; that there is one was made sure of before."""
        kernel = self._kernels.get(op)
        if kernel is None:
            kernel = find_kernel(op)
            assert kernel is not None
            self._kernels[op] = kernel
        return kernel

    def formula_of(self, op: Operation) -> Apply | None:
        """What the kernel of `op` does, if that is a formula of ufuncs."""
        if op not in self._formulas:
            found = None
            if len(op.outputs) == 1 and op.inputs and op.opdef.kernel is not None:
                kernel = self.kernel_of(op)
                if kernel.factory is op.opdef.kernel:
                    found = formula(op, kernel.factory, kernel.factory(np, op.attrs))
            self._formulas[op] = found
        return self._formulas[op]

    def is_product(self, op: Operation) -> bool:
        """Whether `op` multiplies two matrices that are known to fit."""
        if op.type != "MatMul" or op.attrs["T"] in HALF or self.kernel_of(op).factory is not op.opdef.kernel:
            return False
        a, b = (t.shape for t in op.inputs)
        if a is None or b is None or len(a) != 2 or len(b) != 2:
            return False
        inner = a[0] if op.attrs["transpose_a"] else a[1]
        return inner is not None and inner == (b[1] if op.attrs["transpose_b"] else b[0])

    def retained(self, items: Iterable[Item]) -> set[Tensor]:
        """What `items` may keep something of: all that is not read by ufuncs and products alone."""
        out: set[Tensor] = set()
        for item in items:
            if item.kind:
                out.update(item.reads)
            elif not self.is_product(item.op) and self.formula_of(item.op) is None:
                out.update(item.op.inputs)
        return out

    # *** writing ***

    def kernel(self, item: Item, reusable: Collection[Tensor]) -> None:
        """Writes an operation that has a kernel; into one of the arrays of `reusable`, if it can."""
        op = item.op
        if op.type == "Const" and isinstance(op.attrs["value"], np.ndarray) and not op.control_inputs:
            self.values[op.outputs[0]] = self.constant(self.kernel_of(op).factory(np, op.attrs)())
            return
        if op.opdef.primitive == "ControlTrigger":
            return
        forwards = op.opdef.facts.forwards
        if forwards is not None and item.live in ((), (0,)) and op.opdef.is_pure:
            if item.live:
                self.share(op.outputs[0], op.inputs[forwards], op)
            return
        if self._list(op, item):
            return
        found = self.formula_of(op)
        if found is not None and item.live:
            if op.outputs[0].shape == () and all(t.shape == () for t in op.inputs):
                self._scalar(op, found)
            else:
                self._array(op, found, reusable)
        elif self.is_product(op) and item.live:
            turned = [".T" if op.attrs[name] else "" for name in ("transpose_a", "transpose_b")]
            texts = [self.plain(t, op) + turn for t, turn in zip(op.inputs, turned, strict=True)]
            self.uses_blas = True
            self._assign(op, f"{self.out.bind(np.dot, 'k')}({', '.join(texts)})", is_fresh=True)
        else:
            self._any(op, item)
        if self._checks:
            for i in item.live:
                self._check(op.outputs[i])

    def _check(self, t: Tensor) -> None:
        value = self.values[t]
        if value.kind == "" and not value.is_global:
            check = self.out.bind(checking.check_value, "f")
            self.out.line(f"{check}({self.out.bind(t, 'o')}, {value.text})", t.op)

    def _assign(self, op: Operation, text: str, inputs: tuple[str, ...] = (), is_fresh: bool = False) -> None:
        name = self.out.new("t")
        self.out.line(f"{name} = {text}", op, inputs)
        self.own(op.outputs[0], Value(name, is_fresh=is_fresh))

    def _any(self, op: Operation, item: Item) -> None:
        """The call of a kernel."""
        kernel = self.kernel_of(op)
        wants = op.opdef.input_dtypes(op.attrs) if any(t.dtype.is_ref for t in op.inputs) else ()
        texts = [self.plain(t, op, bool(wants) and wants[i].is_ref) for i, t in enumerate(op.inputs)]
        if op.opdef.facts.blas:
            self.uses_blas = True
        if kernel.form == "pure":
            if not op.outputs:
                return
            f = self.out.bind(kernel.factory(np, op.attrs), "k")
        else:
            if op not in self._at:
                self._at[op] = len(self.stateful)
                self.stateful.append((op, kernel))
            f = f"run.kernels[{self._at[op]}]"
        call = f"{f}({', '.join(texts)})"
        inputs = tuple(texts)
        if not item.live:
            self.out.line(call, op, inputs)
        elif len(op.outputs) == 1:
            self._assign(op, call, inputs)
        else:
            names = []
            for i, t in enumerate(op.outputs):
                names.append(self.out.new("t") if i in item.live else "_")
                if i in item.live:
                    self.own(t, Value(names[-1]))
            self.out.line(f"{', '.join(names)} = {call}", op, inputs)

    # *** formulas ***

    def _scalar(self, op: Operation, found: Apply) -> None:
        """Operators on numpy scalars."""
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
            operator, kinds = _OPERATORS.get(node.ufunc, ("", ""))
            if operator and all(_kind(a, op) in kinds for a in node.args):
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

        self._assign(op, text(found), inputs)

    def _array(self, op: Operation, found: Apply, reusable: Collection[Tensor]) -> None:
        """Ufuncs, into buffers where there are some."""
        inputs = tuple(self._beside(t, op, found) for t in op.inputs)
        used: dict[int, int] = {}
        _count(found, used)
        reads: dict[int, int] = {}  # how often each input is still to be read
        _count_inputs(found, reads, set())
        free: list[tuple[str, Tensor | None]] = []  # buffers of the result's shape and dtype that nobody reads
        done: dict[int, str] = {}
        spare = [t for t in op.inputs if t in reusable and self._can_hold(t, found)]

        def visit(node: Any) -> str:
            if isinstance(node, Input):
                return inputs[node.index]
            if not isinstance(node, Apply):
                return self._number(node, found)
            if id(node) in done:
                return done[id(node)]
            args = [visit(a) for a in node.args]
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
            f = self.out.bind(node.ufunc, "k")
            if free and _alike(node, found):
                name, was = free.pop()
                if was is not None:
                    self._owned.pop(was, None)
                into = name if node.ufunc not in _NO_POSITIONAL_OUT else f"out={name}"
                self.out.line(f"{f}({', '.join(args)}, {into})", op, inputs)
            else:
                name = self.out.new("t")
                self.out.line(f"{name} = {f}({', '.join(args)})", op, inputs)
            done[id(node)] = name
            return name

        name = visit(found)
        self.own(op.outputs[0], Value(name, is_fresh=found.shape is not None and found.shape != ()))
        others = dict.fromkeys(n for n in [*done.values(), *(n for n, _ in free)] if n != name)
        if others:
            self.out.line(f"del {', '.join(others)}")
        for _, was in free:
            if was is not None:
                self._owned.pop(was, None)

    def _can_hold(self, t: Tensor, found: Apply) -> bool:
        """Whether the array that `t` is may become the result."""
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

    def _number(self, node: Any, found: Apply) -> str:
        """A number in a formula: an array of the result's dtype, if that is the number."""
        if type(node) in (int, float) and found.dtype.kind == "f":
            return self.out.bind(_zero_rank(node, found.dtype), "c")
        return repr(node) if type(node) in (int, float) else self.out.bind(node, "c")

    # *** lists ***

    def _list(self, op: Operation, item: Item) -> bool:
        """Writes an operation on tensor lists, if they are lists here."""
        write = _LISTS.get(op.type)
        if write is None:
            return False
        this = op.outputs[0] if op.type in _MAKES else op.inputs[0]
        kind = self.lists.kind(this)
        if not kind:
            return False
        write(self, op, item, kind)
        return True

    def _empty(self, op: Operation, item: Item, kind: str) -> None:
        self._make(op, "[]", kind)

    def _reserve(self, op: Operation, item: Item, kind: str) -> None:
        n = self.plain(op.inputs[1], op)
        self._make(op, f"{self.out.bind(running.blanks, 'f')}({n})", kind)

    def _from_tensor(self, op: Operation, item: Item, kind: str) -> None:
        rows = self.plain(op.inputs[0], op)
        self._make(op, rows if kind == ROWS else f"list({rows})", kind)

    def _make(self, op: Operation, text: str, kind: str) -> None:
        name = self.out.new("l")
        self.out.line(f"{name} = {text}", op)
        self.own(op.outputs[0], Value(name, kind))

    def _push(self, op: Operation, item: Item, kind: str) -> None:
        this, value = self.values[op.inputs[0]].text, self._element(op.inputs[1], op)
        self.out.line(f"{this}.append({value})", op, (this, value))
        self._limit(op, this, value)
        if item.live:
            self.share(op.outputs[0], op.inputs[0], op)

    def _element(self, t: Tensor, op: Operation) -> str:
        return self.values[t].text if self.lists.kind(t) == LIST else self.plain(t, op)

    def _limit(self, op: Operation, this: str, value: str) -> None:
        """The check of what an accumulator holds; of scalars only if somebody set a limit."""
        what, t = op.attrs.get("_accumulates"), op.inputs[1]
        if what is None:
            return
        if self.lists.kind(t) == LIST:
            nested, limit = self.out.bind(running.nested_within, "f"), flags.accumulator_limit()
            self.out.line(f"{nested}(run, {this}, {limit}, {self.out.bind(what, 'o')})", op, (this, value))
            return
        if t.shape == () and not flags.ACCUMULATOR_LIMIT.value:
            return
        limit = flags.accumulator_limit()
        within = self.out.bind(running.within, "f")
        size: int | None = t.dtype.base.size
        for d in t.shape or (None,):
            size = size * d if size is not None and d is not None else None
        if size is None:
            test = f"len({this}) * {value}.nbytes > {limit}"
        else:
            test = f"len({this}) > {limit // (size or 1)}"
        self.out.line(f"if {test}: {within}({this}, {value}, {limit}, {self.out.bind(what, 'o')})", op, (this, value))

    def _pop(self, op: Operation, item: Item, kind: str) -> None:
        this = self.values[op.inputs[0]].text
        name = self.out.new("t")
        has_blanks = self.lists.has_blanks(op.inputs[0])
        blank = f"{self.out.bind(running.element, 'f')}([{this}.pop()], 0, {self._blank(op)})"
        self.out.line(f"{name} = {blank if has_blanks else this + '.pop()'}", op, (this,))
        inner = self.lists.kind(op.outputs[1])
        self.own(op.outputs[1], Value(name, inner))
        if 0 in item.live:
            self.share(op.outputs[0], op.inputs[0], op)

    def _blank(self, op: Operation) -> str:
        """The zeros that an element stands for that is not there."""
        t = op.outputs[-1]
        zeros = np.zeros(tuple(d or 0 for d in t.shape or ()), t.dtype.base.numpy)
        zeros.flags.writeable = False
        return self.out.bind(zeros[()], "c")

    def _get(self, op: Operation, item: Item, kind: str) -> None:
        this, index = self.values[op.inputs[0]].text, self.values[op.inputs[1]]
        text = index.text if index.kind == INT else self.plain(op.inputs[1], op)
        if kind == ROWS and index.is_natural:
            self._assign(op, f"{this}[{text}]", (this, text))
        else:
            blank = self._blank(op) if self.lists.has_blanks(op.inputs[0]) else "None"
            self._assign(op, f"{self.out.bind(running.element, 'f')}({this}, {text}, {blank})", (this, text))

    def _set(self, op: Operation, item: Item, kind: str) -> None:
        this, index = self.values[op.inputs[0]].text, self.values[op.inputs[1]]
        text = index.text if index.kind == INT else self.plain(op.inputs[1], op)
        value = self.plain(op.inputs[2], op)
        if index.is_natural:
            self.out.line(f"{this}[{text}] = {value}", op, (this, text, value))
        else:
            self.out.line(f"{self.out.bind(running.place, 'f')}({this}, {text}, {value})", op, (this, text, value))
        if item.live:
            self.share(op.outputs[0], op.inputs[0], op)

    def _length(self, op: Operation, item: Item, kind: str) -> None:
        this = self.values[op.inputs[0]].text
        self._assign(op, f"{self.out.bind(np.int32, 'f')}(len({this}))", (this,))

    def _stack(self, op: Operation, item: Item, kind: str) -> None:
        this = self.values[op.inputs[0]].text
        handle = op.inputs[0].handle
        assert handle is not None
        assert handle[1] is not None
        dtype = self.out.bind(op.attrs["element_dtype"].numpy, "o")
        n = op.attrs["num_elements"]
        if kind == ROWS and n == -1:
            self.share(op.outputs[0], op.inputs[0], op)
            self.values[op.outputs[0]] = Value(this)
        else:
            rows = this if kind == LIST else f"list({this})"
            self._assign(op, f"{self.out.bind(running.stacked, 'f')}({rows}, {handle[1]}, {dtype}, {n})", (this,))


_MAKES: Final = frozenset({"EmptyTensorList", "TensorListReserve", "TensorListFromTensor"})
_LISTS: Final[Mapping[str, Callable[[Writer, Any, Any, str], None]]] = {
    "EmptyTensorList": Writer._empty,
    "TensorListReserve": Writer._reserve,
    "TensorListFromTensor": Writer._from_tensor,
    "TensorListPushBack": Writer._push,
    "TensorListPopBack": Writer._pop,
    "TensorListGetItem": Writer._get,
    "TensorListSetItem": Writer._set,
    "TensorListLength": Writer._length,
    "TensorListStack": Writer._stack,
}


def _count(node: Any, used: dict[int, int]) -> None:
    """How often each application in a formula is read."""
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
    """Whether two results have the same shape and dtype, as far as a buffer goes."""
    return a.shape is not None and a.shape == b.shape and a.shape != () and a.dtype == b.dtype


def _kind(node: Any, op: Operation) -> str:
    """The kind of dtype of a part of a formula; of a number "" is in any."""
    if isinstance(node, Input):
        return op.inputs[node.index].dtype.base.numpy.kind
    return node.dtype.kind if isinstance(node, Apply) else ""


def _zero_rank(number: Any, dtype: np.dtype) -> np.ndarray:
    known = _numbers.get((number, dtype.char))
    if known is None:
        known = _numbers[number, dtype.char] = np.array(number, dtype)
        known.flags.writeable = False
    return known


_numbers: dict[tuple[Any, str], np.ndarray] = {}
