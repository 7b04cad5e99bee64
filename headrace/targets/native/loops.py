"""Functions of loops over numbers in memory, whose sizes are arguments.

    def doubled() -> Loops:
        loops = Loops([np.float32, np.float32], ["n"])
        y, x = loops.arrays
        with loops.each(0, loops.sizes[0]) as i:
            y[i] = x[i] * 2
        return loops

    compiled("doubled", doubled)(y, x, len(x))

The loops are written for single numbers. LLVM makes vectors of those whose iterations are independent, as no two arrays
overlap. One function serves all sizes, so it is compiled once for each set of dtypes.

**Threads.** The work of a function that is divided is a loop over rows (`each_row`). Python gives it the number of rows
and that of a part (`rows_of_part`), and several threads may take the parts.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, TypeAlias

import numpy as np

from headrace import thresholds
from headrace.memo import Memo
from headrace.targets.native import scalars, threads
from headrace.targets.native.functions import loaded
from headrace.targets.native.llvm_text import Function, Module
from headrace.targets.native.values import Value

#: A number of an element, or a size.
Index: TypeAlias = "Value | int"

_MEMO: Memo[Any, Callable[..., None]] = Memo("native loops", thresholds.NATIVE_LOOPS)
_NAME: Final = "kernel"
_PART: Final = "part"  # the function of some rows, if the work is divided


class Numbers:
    """Numbers in memory.

    Args:
      f: The function.
      pointer: The address of number 0, as LLVM writes it.
      dtype: The dtype.

    Attributes:
      pointer: The argument.
      dtype: The argument.
    """

    __slots__ = ("_f", "dtype", "pointer")

    def __init__(self, f: Function, pointer: str, dtype: np.dtype) -> None:
        self._f, self.pointer, self.dtype = f, pointer, dtype

    def __getitem__(self, at: Index) -> Value:
        value = scalars.load(self._f, self.dtype, self._address(at))
        return Value(self._f, scalars.register_type(self.dtype), value)

    def __setitem__(self, at: Index, value: Value) -> None:
        scalars.store(self._f, self.dtype, value.name, self._address(at))

    def part(self, first: Index) -> Numbers:
        """The numbers from `first` on."""
        return Numbers(self._f, self._address(first), self.dtype)

    def where(self, condition: Value, other: Numbers) -> Numbers:
        """These numbers if a condition holds, else other ones of the same dtype."""
        addresses = [Value(self._f, "ptr", each.pointer) for each in (self, other)]
        return Numbers(self._f, condition.choose(*addresses).name, self.dtype)

    def _address(self, at: Index) -> str:
        kind, number = scalars.memory_type(self.dtype), at.name if isinstance(at, Value) else at
        return self._f.op(f"getelementptr inbounds {kind}, ptr {self.pointer}, i64 {number}", "p")


class Variable:
    """Variable of a function; LLVM keeps it in a register."""

    __slots__ = ("_f", "_kind", "_slot")

    def __init__(self, f: Function, start: Value) -> None:
        self._f, self._kind, self._slot = f, start.kind, f.alloca(start.kind)
        self.set(start)

    def get(self) -> Value:
        """The value."""
        return Value(self._f, self._kind, self._f.op(f"load {self._kind}, ptr {self._slot}"))

    def set(self, value: Value) -> None:
        """Assigns a value."""
        self._f.line(f"store {self._kind} {value.name}, ptr {self._slot}")


class Loops:
    """Writer of a function.

    Args:
      arrays: The dtypes of the arguments that are arrays. No two of them overlap.
      sizes: The names of the arguments that are sizes, which follow.
      divided: Whether several threads may take the rows of `each_row`. The function has three more arguments: the
        number of rows, that of a part, and the estimated time of a part in nanoseconds.

    Attributes:
      f: The function.
      arrays: The arrays.
      sizes: The sizes.
      divided: The argument.
    """

    def __init__(self, arrays: Sequence[Any], sizes: Sequence[str], divided: bool = False) -> None:
        params = [("ptr noalias", f"a{i}") for i in range(len(arrays))]
        self.divided = divided
        ends = ["first", "stop"] if divided else []
        every = [*params, *(("i64", name) for name in (*sizes, *ends))]
        self.f = Module().function(_PART if divided else _NAME, "void", every, "nounwind", "internal" * divided)
        self.arrays = [Numbers(self.f, f"%{p}", np.dtype(d)) for (_, p), d in zip(params, arrays, strict=True)]
        self.sizes = [Value(self.f, "i64", f"%{name}") for name in sizes]

    def constant(self, number: Any, dtype: Any = np.int64) -> Value:
        """A number."""
        d = np.dtype(dtype)
        return Value(self.f, scalars.register_type(d), scalars.literal(d.type(number), d))

    def variable(self, start: Value) -> Variable:
        """A variable with this value."""
        return Variable(self.f, start)

    def converted(self, value: Value, source: np.dtype, target: Any) -> Value:
        """A number of another dtype."""
        to = np.dtype(target)
        return Value(self.f, scalars.register_type(to), scalars.convert(self.f, value.name, source, to))

    @contextlib.contextmanager
    def each(self, first: Index, stop: Index, step: int = 1) -> Iterator[Value]:
        """A loop over the numbers from `first` to below `stop`."""
        bounds = [str(n.name if isinstance(n, Value) else n) for n in (first, stop)]
        with self.f.loop(bounds[0], bounds[1], step) as i:
            yield Value(self.f, "i64", i)

    def part_number(self, each: Value) -> Value:
        """The number of the part that runs, of divided work.

        Args:
          each: The number of rows of a part.
        """
        return Value(self.f, "i64", self.f.op(f"udiv i64 %first, {each.name}"))

    @property
    def rows(self) -> tuple[Value, Value]:
        """The first row of divided work, and the number of rows."""
        first, stop = (Value(self.f, "i64", f"%{end}") for end in ("first", "stop"))
        return first, stop - first

    @contextlib.contextmanager
    def each_row(self) -> Iterator[Value]:
        """The loop over the rows of divided work."""
        with self.f.loop("%first", "%stop") as i:
            yield Value(self.f, "i64", i)

    @contextlib.contextmanager
    def when(self, condition: Value) -> Iterator[None]:
        """A block that runs if the condition holds."""
        then, end = self.f.new("then"), self.f.new("end")
        self.f.branch(condition.name, then, end)
        self.f.begin(then)
        yield
        self.f.jump(end)
        self.f.begin(end)

    def least(self, a: Value, b: Index) -> Value:
        """The lesser of two sizes."""
        return a.intrinsic("smin", b)

    def sum(self, n: Value, dtype: np.dtype, term: Callable[[Value], Value]) -> Value:
        """The sum of `term(i)` for i below `n`, a double.

        Args:
          n: The number of terms.
          dtype: The dtype of the terms, in which up to `NATIVE_SUM_TERMS` are added, in the lanes of vectors.
          term: Writes a term.
        """
        total = self.variable(self.constant(0.0, np.float64))
        with self.each(0, n, thresholds.NATIVE_SUM_TERMS) as first:
            part = self.variable(self.constant(0.0, dtype))
            with self.each(first, self.least(first + thresholds.NATIVE_SUM_TERMS, n)) as i:
                part.set(part.get().reordered_sum(term(i)))
            total.set(total.get() + self.converted(part.get(), dtype, np.float64))
        return total.get()

    def greatest(self, n: Value, dtype: np.dtype, term: Callable[[Value], Value]) -> Value:
        """The greatest of `term(i)` for i below `n`; NaN if one is.

        Args:
          n: The number of terms.
          dtype: The dtype of the terms, a float.
          term: Writes a term.
        """
        most = self.variable(self.constant(-np.inf, dtype))
        with self.each(0, n) as i:
            most.set(most.get().intrinsic("maximum", term(i)))
        return most.get()


def compiled(key: Any, write: Callable[[], Loops]) -> Callable[..., None]:
    """The function that `write` writes, compiled at its first use.

    Args:
      key: The key under which the function is kept.
      write: Writes the function.

    Returns:
      A function of contiguous arrays and of sizes.
    """
    found = _MEMO.get(key)
    if found is None:
        loops = write()
        loops.f.line("ret void")
        if loops.divided:
            _divide(loops)
        found = loaded(loops.f.module, _NAME, len(loops.arrays), len(loops.sizes) + 3 * loops.divided)
        _MEMO.put(key, found)
    return found


def rows_of_part(rows: int, cost: float) -> tuple[int, int, int]:
    """The last arguments of a function that is divided.

    Args:
      rows: The number of rows.
      cost: The estimated time of a row, in nanoseconds.

    Returns:
      The number of rows, that of a part, and the estimated time of a part.
    """
    each = max(1, math.ceil(thresholds.NATIVE_PART / max(cost, 1.0)))
    return rows, each, max(1, round(cost * each))


def _divide(loops: Loops) -> None:
    """Adds the function that Python calls, which runs the parts."""
    arrays, sizes = [f"%a{k}" for k in range(len(loops.arrays))], [size.name for size in loops.sizes]
    names = [*sizes, "%rows", "%each", "%cost"]
    params = [*(("ptr", a[1:]) for a in arrays), *(("i64", name[1:]) for name in names)]
    f = loops.f.module.function(_NAME, "void", params, "nounwind")
    above = f.op(f"add i64 %rows, {f.op('sub i64 %each, 1')}")
    parts = f.op(f"udiv i64 {above}, %each", "parts")
    captured = [*(("ptr", a) for a in arrays), *(("i64", size) for size in (*sizes, "%rows", "%each"))]

    def body(g: Function, given: list[str], part: str) -> None:
        rows, each = given[-2:]
        first = g.op(f"mul i64 {part}, {each}", "first")
        least = g.module.declare("llvm.smin.i64", "i64", ["i64", "i64"])
        stop = g.op(f"call i64 {least}(i64 {g.op(f'add i64 {first}, {each}')}, i64 {rows})", "stop")
        args = [f"{kind} {value}" for (kind, _), value in zip(captured[:-2], given, strict=False)]
        g.line(f"call void @{_PART}({', '.join(args)}, i64 {first}, i64 {stop})")

    threads.each_part(f, parts, captured, "%cost", body)
    f.line("ret void")
