"""Instructions on vectors of numbers, of one length, for products and reductions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeAlias

import numpy as np

from headrace.targets.native.llvm_text import Function, Module

#: A vector or a number whose bits are all 0.
ZERO: Final = "zeroinitializer"

#: A size, distance or number of an element: a number, or the name of an i64.
Size: TypeAlias = "int | str"


def scalar_type(dtype: np.dtype) -> str:
    """The type of an element, as LLVM writes it.

    Raises:
      ValueError: The dtype is neither float32 nor float64 nor an integer.
    """
    if dtype.kind in "iu":
        return f"i{dtype.itemsize * 8}"
    if dtype not in (np.float32, np.float64):
        raise ValueError(f"native code has no products and reductions of {dtype}")
    return "float" if dtype == np.float32 else "double"


def rolled(module: Module) -> str:
    """Metadata of a loop that LLVM neither unrolls nor vectorizes, as `Function.loop` takes it."""
    never = '!{!"llvm.loop.unroll.disable"}', '!{!"llvm.loop.vectorize.enable", i1 false}'
    return f", !llvm.loop {module.metadata(f'distinct !{{SELF, {never[0]}, {never[1]}}}')}"


class Vectors:
    """Instructions on vectors of one dtype.

    Args:
      f: The function that takes the instructions.
      dtype: The dtype: float32, float64 or an integer.
      lanes: The number of elements of a vector.

    Attributes:
      f: The function.
      bytes: The size of an element.
      scalar: The type of an element, as LLVM writes it.
      lanes: The number of elements of a vector.
      vector: The type of a vector.
    """

    def __init__(self, f: Function, dtype: np.dtype, lanes: int) -> None:
        self.f = f
        self.bytes = dtype.itemsize
        self.scalar = scalar_type(dtype)
        self.is_float = dtype.kind == "f"
        self.lanes = lanes
        self.vector = f"<{lanes} x {self.scalar}>"

    def times(self, x: Size, y: Size) -> Size:
        """The product of two sizes."""
        if isinstance(x, int) and isinstance(y, int):
            return x * y
        if 0 in (x, y):
            return 0
        return x if y == 1 else y if x == 1 else self.f.op(f"mul nsw i64 {x}, {y}")

    def minus(self, x: Size, y: Size) -> Size:
        """The difference of two sizes."""
        if isinstance(x, int) and isinstance(y, int):
            return x - y
        return x if y == 0 else self.f.op(f"sub nsw i64 {x}, {y}")

    def least(self, x: Size, y: Size) -> Size:
        """The smaller of two sizes."""
        if isinstance(x, int) and isinstance(y, int):
            return min(x, y)
        self.f.module.declare("llvm.smin.i64", "i64", ["i64", "i64"])
        return self.f.op(f"call i64 @llvm.smin.i64(i64 {x}, i64 {y})")

    def at(self, address: str, *offsets: Size) -> str:
        """The address of the element that is the sum of `offsets` behind `address`."""
        for offset in (sum(o for o in offsets if isinstance(o, int)), *(o for o in offsets if isinstance(o, str))):
            if offset != 0:
                address = self.f.op(f"getelementptr inbounds {self.scalar}, ptr {address}, i64 {offset}", "p")
        return address

    def _mask(self, count: int) -> str:
        return f"<{', '.join(f'i1 {int(lane < count)}' for lane in range(self.lanes))}>"

    @property
    def _suffix(self) -> str:
        return f"v{self.lanes}{'f' if self.is_float else 'i'}{self.bytes * 8}"

    def load(self, address: str, count: int) -> str:
        """The first `count` elements from `address`; the other lanes are 0."""
        if count == self.lanes:
            return self.f.op(f"load {self.vector}, ptr {address}, align {self.bytes}")
        types = ["ptr", "i32", f"<{self.lanes} x i1>", self.vector]
        load = self.f.module.declare(f"llvm.masked.load.{self._suffix}.p0", self.vector, types)
        mask = f"<{self.lanes} x i1> {self._mask(count)}"
        return self.f.op(f"call {self.vector} {load}(ptr {address}, i32 {self.bytes}, {mask}, {self.vector} {ZERO})")

    def store(self, value: str, address: str, count: int) -> None:
        """Stores the first `count` lanes of a vector."""
        if count == self.lanes:
            self.f.line(f"store {self.vector} {value}, ptr {address}, align {self.bytes}")
            return
        types = [self.vector, "ptr", "i32", f"<{self.lanes} x i1>"]
        store = self.f.module.declare(f"llvm.masked.store.{self._suffix}.p0", "void", types)
        mask = f"<{self.lanes} x i1> {self._mask(count)}"
        self.f.line(f"call void {store}({self.vector} {value}, ptr {address}, i32 {self.bytes}, {mask})")

    def splat(self, address: str) -> str:
        """A vector whose lanes are all the element at `address`."""
        x = self.f.op(f"load <1 x {self.scalar}>, ptr {address}, align {self.bytes}")
        kind = f"<1 x {self.scalar}>"
        return self.f.op(f"shufflevector {kind} {x}, {kind} poison, <{self.lanes} x i32> {ZERO}")

    def insert(self, vector: str, address: str, lane: int) -> str:
        """`vector` with the element at `address` in lane `lane`."""
        x = self.f.op(f"load {self.scalar}, ptr {address}, align {self.bytes}")
        return self.f.op(f"insertelement {self.vector} {vector}, {self.scalar} {x}, i64 {lane}")

    def add(self, x: str, y: str) -> str:
        """x + y."""
        return self.f.op(f"{'fadd' if self.is_float else 'add'} {self.vector} {x}, {y}")

    def multiply_add(self, x: str, y: str, z: str) -> str:
        """x * y + z, fused where the processor has the instruction."""
        if not self.is_float:
            return self.add(self.f.op(f"mul {self.vector} {x}, {y}"), z)
        fma = self.f.module.declare(f"llvm.fmuladd.{self._suffix}", self.vector, [self.vector] * 3)
        return self.f.op(f"call {self.vector} {fma}({self.vector} {x}, {self.vector} {y}, {self.vector} {z})")

    def shuffle(self, x: str, y: str, lanes: Sequence[int]) -> str:
        """The lanes of `x` and `y`, counted through, in the order of `lanes`."""
        mask = ", ".join(f"i32 {lane}" for lane in lanes)
        return self.f.op(f"shufflevector {self.vector} {x}, {self.vector} {y}, <{len(lanes)} x i32> <{mask}>")

    def transposed(self, rows: Sequence[str]) -> list[str]:
        """The columns of the square matrix of `rows`, of which there are as many as lanes."""
        out, lanes, block = list(rows), range(self.lanes), 1
        while block < self.lanes:
            for i in lanes:
                if not i & block:
                    x, y = out[i], out[i | block]
                    out[i] = self.shuffle(x, y, [self.lanes + l - block if l & block else l for l in lanes])
                    out[i | block] = self.shuffle(x, y, [self.lanes + l if l & block else l + block for l in lanes])
            block *= 2
        return out

    def sums(self, vectors: Sequence[str]) -> str:
        """A vector whose first lanes are the sums of the lanes of each of `vectors`; the others are sums of 0."""
        out = [*vectors]
        lanes = range(self.lanes)
        out += [ZERO] * (self.lanes - len(out))
        block = 1
        while block < self.lanes:
            # Lane l of a pair: sums of lanes of the first vector if l & block is 0, else of the second.
            merged = []
            for x, y in zip(out[::2], out[1::2], strict=True):
                if x == y == ZERO:
                    merged.append(ZERO)
                    continue
                low = self.shuffle(x, y, [self.lanes + l - block if l & block else l for l in lanes])
                high = self.shuffle(x, y, [self.lanes + l if l & block else l + block for l in lanes])
                merged.append(self.add(low, high))
            out, block = merged, block * 2
        return out[0]
