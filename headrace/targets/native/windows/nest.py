"""Loop nests over arrays of floats: index arithmetic, counted loops and vectors of channels.

An index is an int that is known, or the name of an i64 value. Arithmetic with known operands is done here, so the text
has few instructions. Offsets are in bytes.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Final, TypeAlias

import numpy as np

from headrace.targets.native.llvm_text import Function, Module

Index: TypeAlias = "int | str"

_TYPES: Final = {np.dtype(np.float32): ("float", "f32"), np.dtype(np.float64): ("double", "f64")}

# Metadata of a loop that LLVM neither unrolls nor vectorizes.
_PLAIN: Final = ('!{!"llvm.loop.unroll.disable"}', '!{!"llvm.loop.vectorize.enable", i1 false}')


class Nest:
    """Writes loop nests into a function.

    Args:
      function: The function.
      dtype: The dtype of the arrays: float32 or float64.

    Attributes:
      f: The function.
      size: The bytes of an element.
      type: The type of an element.
    """

    def __init__(self, function: Function, dtype: np.dtype) -> None:
        self.f = function
        self._dtype, self.size = dtype, dtype.itemsize
        self.type, self._suffix = _TYPES[dtype]
        # LLVM would unroll and vectorize again, which costs compile time and makes the tiles spill
        facts = ", ".join(function.module.metadata(fact) for fact in _PLAIN)
        self._plain = f", !llvm.loop {function.module.metadata(f'distinct !{{SELF, {facts}}}')}"

    def of(self, function: Function) -> Nest:
        """A writer into another function."""
        return Nest(function, self._dtype)

    # *** Indices ***

    def add(self, a: Index, b: Index) -> Index:
        """The sum of two indices."""
        if isinstance(a, int) and isinstance(b, int):
            return a + b
        if a == 0:
            return b
        return a if b == 0 else self.f.op(f"add nsw i64 {a}, {b}", "n")

    def mul(self, a: Index, b: Index) -> Index:
        """The product of two indices."""
        if isinstance(a, int) and isinstance(b, int):
            return a * b
        if a == 0 or b == 0:
            return 0
        if a == 1:
            return b
        return a if b == 1 else self.f.op(f"mul nsw i64 {a}, {b}", "n")

    def least(self, a: Index, b: Index) -> Index:
        """The lesser of two indices."""
        if isinstance(a, int) and isinstance(b, int):
            return min(a, b)
        return self.f.op(f"call i64 @llvm.smin.i64(i64 {a}, i64 {b})", "n")

    def greatest(self, a: Index, b: Index) -> Index:
        """The greater of two indices."""
        if isinstance(a, int) and isinstance(b, int):
            return max(a, b)
        return self.f.op(f"call i64 @llvm.smax.i64(i64 {a}, i64 {b})", "n")

    def divided(self, a: Index, by: int) -> Index:
        """An index of at least 0, divided by the positive number `by` without remainder."""
        if isinstance(a, int):
            return a // by
        return a if by == 1 else self.f.op(f"udiv i64 {a}, {by}", "n")

    def at(self, base: str, offset: Index) -> str:
        """The address `offset` bytes behind `base`."""
        return base if offset == 0 else self.f.op(f"getelementptr inbounds i8, ptr {base}, i64 {offset}", "p")

    def hidden(self, address: str) -> str:
        """An address whose origin is unknown to the optimizer.

        Addresses derived from it stay sums with constants.
        Loop strength reduction otherwise takes most of the time of a compilation, on the many addresses of a tile.
        """
        self.f.module.declare("llvm.launder.invariant.group.p0", "ptr", ["ptr"])
        return self.f.op(f"call ptr @llvm.launder.invariant.group.p0(ptr {address})", "p")

    @contextlib.contextmanager
    def loop(self, first: Index, stop: Index, step: int = 1) -> Iterator[Index]:
        """A loop over the indices from `first` to below `stop`.

        Code of a single iteration has no loop."""
        if isinstance(first, int) and isinstance(stop, int) and first < stop <= first + step:
            yield first
            return
        with self.f.loop(str(first), str(stop), step, self._plain) as i:
            yield i

    # *** Vectors ***

    def vector(self, lanes: int) -> str:
        """The type of a vector with `lanes` elements."""
        return f"<{lanes} x {self.type}>"

    def load(self, address: str, lanes: int) -> str:
        """Loads a vector."""
        return self.f.op(f"load {self.vector(lanes)}, ptr {address}, align {self.size}")

    def store(self, value: str, address: str, lanes: int) -> None:
        """Stores a vector."""
        self.f.line(f"store {self.vector(lanes)} {value}, ptr {address}, align {self.size}")

    def literal(self, value: float) -> str:
        """A constant as LLVM writes it: the bits of a double, for both types."""
        return f"0x{np.float64(self._dtype.type(value)).view(np.uint64):016X}"

    def one(self, address: str) -> str:
        """Loads one element."""
        return self.f.op(f"load {self.type}, ptr {address}, align {self.size}")

    def number(self, index: Index) -> str:
        """An index as an element."""
        return self.literal(index) if isinstance(index, int) else self.f.op(f"sitofp i64 {index} to {self.type}")

    def all_lanes(self, value: str, lanes: int, type: str = "") -> str:
        """A vector with the same value in all lanes."""
        kind = type or self.type
        if not value.startswith("%"):
            return f"<{', '.join([f'{kind} {value}'] * lanes)}>"
        first = self.f.op(f"insertelement <{lanes} x {kind}> poison, {kind} {value}, i64 0")
        zeros = f"<{lanes} x i32> zeroinitializer"
        return self.f.op(f"shufflevector <{lanes} x {kind}> {first}, <{lanes} x {kind}> poison, {zeros}")

    def select(self, mask: str, kind: str, then: str, other: str, lanes: int) -> str:
        """`then` in the lanes of the mask, elsewhere `other`."""
        return self.f.op(f"select <{lanes} x i1> {mask}, {kind} {then}, {kind} {other}")

    def integers(self, lanes: int) -> str:
        """The type of a vector of integers as wide as the elements."""
        return f"<{lanes} x i{8 * self.size}>"

    def same(self, index: Index, lanes: int) -> str:
        """A vector of integers that are all `index`."""
        type = f"i{8 * self.size}"
        if isinstance(index, str) and self.size != 8:
            index = self.f.op(f"trunc i64 {index} to {type}")
        return self.all_lanes(str(index), lanes, type)

    def counters(self, lanes: int) -> str:
        """A variable of a vector of integers."""
        return self.f.alloca(self.integers(lanes))

    def counted(self, variable: str, lanes: int) -> str:
        """The value of a variable of integers."""
        return self.f.op(f"load {self.integers(lanes)}, ptr {variable}")

    def count(self, variable: str, value: str, lanes: int) -> None:
        """Assigns a variable of integers."""
        self.f.line(f"store {self.integers(lanes)} {value}, ptr {variable}")

    def shifted(self, address: str, base: str, other: str) -> str:
        """The address as far behind `other` as `address` is behind `base`."""
        a, b = (self.f.op(f"ptrtoint ptr {p} to i64") for p in (address, base))
        return self.at(other, self.f.op(f"sub i64 {a}, {b}", "n"))

    def broadcast(self, address: str, lanes: int) -> str:
        """Loads an element into all lanes of a vector."""
        return self.all_lanes(self.one(address), lanes)

    def spread(self, address: str, lanes: Sequence[int]) -> list[str]:
        """An element in all lanes of vectors of these sizes."""
        found: dict[int, str] = {}
        for n in lanes:
            if n not in found:
                found[n] = self.broadcast(address, n)
        return [found[n] for n in lanes]

    def transposed(self, rows: Sequence[str]) -> list[str]:
        """The columns of a square matrix whose rows are vectors.

        Their number is a power of 2."""
        n = len(rows)
        kind, found, distance = self.vector(n), list(rows), 1
        while distance < n:
            low = [j if not j & distance else n + j - distance for j in range(n)]
            high = [j + distance if not j & distance else n + j for j in range(n)]
            for i in range(n):
                if not i & distance:
                    a, b = found[i], found[i + distance]
                    for k, mask in ((i, low), (i + distance, high)):
                        picks = ", ".join(f"i32 {j}" for j in mask)
                        found[k] = self.f.op(f"shufflevector {kind} {a}, {kind} {b}, <{n} x i32> <{picks}>")
            distance *= 2
        return found

    def clear(self, address: str, size: Index) -> None:
        """Sets bytes to 0."""
        self.f.module.declare("llvm.memset.p0.i64", "void", ["ptr", "i8", "i64", "i1 immarg"])
        self.f.line(f"call void @llvm.memset.p0.i64(ptr {address}, i8 0, i64 {size}, i1 false)")

    def multiply_add(self, a: str, b: str, c: str, lanes: int) -> str:
        """`a * b + c`, fused where the processor can."""
        kind, name = self.vector(lanes), f"llvm.fmuladd.v{lanes}{self._suffix}"
        self.f.module.declare(name, kind, [kind] * 3)
        return self.f.op(f"call {kind} @{name}({kind} {a}, {kind} {b}, {kind} {c})")

    def variable(self, lanes: int) -> str:
        """A vector variable; LLVM keeps it in a register."""
        return self.f.alloca(self.vector(lanes))

    def get(self, variable: str, lanes: int) -> str:
        """The value of a vector variable."""
        return self.f.op(f"load {self.vector(lanes)}, ptr {variable}")

    def put(self, variable: str, value: str, lanes: int) -> None:
        """Assigns a vector variable."""
        self.f.line(f"store {self.vector(lanes)} {value}, ptr {variable}")


def begin(module: Module, name: str, arrays: Sequence[str], numbers: Sequence[str], linkage: str = "") -> Function:
    """A new function whose first argument is written and not aliased by the others.

    Args:
      module: The module.
      name: The name of the function.
      arrays: The names of the arguments that are addresses.
      numbers: The names of the arguments that are i64 and follow, such as `batch`, the number of images.
      linkage: The linkage.

    Returns:
      The function.
    """
    for kind in ("smin", "smax"):
        module.declare(f"llvm.{kind}.i64", "i64", ["i64", "i64"])
    params = [("ptr noalias" if i == 0 else "ptr", a) for i, a in enumerate(arrays)]
    return module.function(name, "void", [*params, *(("i64", n) for n in numbers)], "nounwind", linkage)
