"""Reductions as LLVM functions for arrays of static shape in row-major order.

`reduce` adds a function for a ufunc of two arguments, such as `np.add`. Axes that are adjacent and of one kind, reduced
or kept, are one axis. If the last one is reduced, vectors lie along it, and their lanes are combined at the end; else
vectors lie along the kept axis.

Sums of floats are sums of partial sums: those of the lanes and of several vectors, each over blocks of `_BLOCK` terms,
and those of `_BLOCK` blocks together. So the error grows more slowly than the number of elements. The order is a
function of the shape alone. Maxima and minima are NaN if an element is NaN, as those of numpy; integers wrap.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import numpy as np

from headrace import thresholds
from headrace.targets.native.llvm_text import Module
from headrace.targets.native.vectors import Size, Vectors, blocks, rolled, scalar_type

# Vectors that are combined at the same time, so that additions need not wait for each other.
_CHAINS: Final = 8
# Rows whose lanes are combined together.
_ROWS: Final = 16
# Terms that one partial sum adds, and blocks of them that the next one adds.
_BLOCK: Final = 16
# Vectors in a loop's body, and without a loop.
_BODY: Final = 16
_UNROLLED: Final = 48


def reduce(
    module: Module,
    ufunc: np.ufunc,
    shape: Sequence[int | None],
    axes: Sequence[int],
    dtype: np.dtype,
    *,
    accumulate: bool = False,
    vector_bytes: int = 64,
) -> str:
    """Adds the function `void @name(ptr noalias %out, ptr %x)` that computes `ufunc.reduce(x, axes)`.

    Both arrays are in row-major order, without gaps, and have the same dtype. If the first dimension is None, the
    function has one more parameter `i64 %n`. Without elements the result is the identity of the ufunc; that of
    `np.maximum` and `np.minimum` is the least and the greatest value of the dtype.

    Args:
      module: The module; a function of the same signature is added once.
      ufunc: `np.add`, `np.multiply`, `np.maximum` or `np.minimum`; for bools `np.logical_and` or `np.logical_or`.
      shape: The shape of `x`; only the first dimension may be None.
      axes: The axes, each at least 0.
      dtype: The dtype: float32, float64, an integer, or bool.
      accumulate: Whether the result is combined with the elements of `out`.
      vector_bytes: The size of the processor's vectors: 64, 32 or 16.

    Returns:
      The name of the function, with `@`.

    Raises:
      ValueError: The function has no code for the ufunc and the dtype, or an axis or a dimension is not valid.
    """
    if any(d is None for d in shape[1:]) or any(d is not None and d < 0 for d in shape):
        raise ValueError(f"only the first dimension may be None, and none negative, got {shape}")
    if len({*axes}) != len(axes) or any(not 0 <= axis < len(shape) for axis in axes):
        raise ValueError(f"axes {axes} of an array of rank {len(shape)}")
    extents = "x".join("s" if d is None else str(d) for d in shape)
    over = "_".join(map(str, sorted(axes)))
    name = f"{ufunc.__name__}_{dtype.name}_{extents}_over_{over}{'_into' if accumulate else ''}_{vector_bytes}"
    if module.has(name):
        return f"@{name}"
    params = [("ptr noalias", "out"), ("ptr", "x"), *([("i64", "n")] if shape and shape[0] is None else [])]
    combination(ufunc, dtype)  # raises an error before there is a function
    f = module.function(name, "void", params, "nounwind", is_final=True)
    v = Vectors(f, dtype, vector_bytes // dtype.itemsize)
    merged: list[tuple[Size, bool]] = []
    for axis, d in enumerate(shape):
        size: Size = "%n" if d is None else d
        is_reduced = axis in axes
        if merged and merged[-1][1] == is_reduced:
            merged[-1] = (v.times(merged[-1][0], size), is_reduced)
        elif size != 1:
            merged.append((size, is_reduced))
    _Reduction(v, ufunc, dtype, merged, accumulate).emit()
    f.line("ret void")
    return f"@{name}"


def combination(ufunc: np.ufunc, dtype: np.dtype) -> tuple[str, str]:
    """The operation of a ufunc as LLVM writes it, and its identity.

    Returns:
      An instruction of two operands, or the predicate of a comparison that selects the left operand; and a number.

    Raises:
      ValueError: There is none.
    """
    scalar_type(dtype)
    is_float = dtype.kind == "f"
    found: tuple[str, str] | None
    if dtype.kind == "b":
        logic: dict[np.ufunc, tuple[str, str]] = {np.logical_and: ("and", "1"), np.logical_or: ("or", "0")}
        found = logic.get(ufunc)
    elif ufunc in (np.maximum, np.minimum):
        is_maximum = ufunc is np.maximum
        letter = "o" if is_float else "s" if dtype.kind == "i" else "u"
        if is_float:
            bits = np.array(-np.inf if is_maximum else np.inf, np.float64).view(np.uint64)
            end = f"0x{int(bits):016X}"
        else:
            end = str(np.iinfo(dtype).min if is_maximum else np.iinfo(dtype).max)
        found = f"{letter}{'gt' if is_maximum else 'lt'}", end
    else:
        names: dict[np.ufunc, tuple[str, str]] = {np.add: ("add", "0"), np.multiply: ("mul", "1")}
        found = names.get(ufunc)
        if found is not None and is_float:
            found = f"f{found[0]}", f"{found[1]}.0"
    if found is None:
        raise ValueError(f"native code has no reduction {ufunc.__name__} of {dtype}")
    return found


class _Reduction:
    """One reduction in construction.

    Args:
      v: Instructions of the function.
      ufunc: The ufunc.
      dtype: The dtype.
      dims: The dimensions and whether each is reduced; no two of one kind are adjacent.
      accumulate: Whether the result is combined with the elements of `out`.
    """

    def __init__(
        self, v: Vectors, ufunc: np.ufunc, dtype: np.dtype, dims: list[tuple[Size, bool]], accumulate: bool
    ) -> None:
        self.v, self.f = v, v.f
        self.accumulate = accumulate
        self.operation, number = combination(ufunc, dtype)
        self.identity = f"<{', '.join([f'{v.scalar} {number}'] * v.lanes)}>"
        self.is_sum = self.operation == "fadd"
        strides: list[tuple[int, int]] = []  # of the input and of the result, only the first dimension is no constant
        x, out = 1, 1
        for size, is_reduced in reversed(dims):
            strides.append((x, out))
            if isinstance(size, int):
                x, out = x * size, out if is_reduced else out * size
        strides.reverse()
        self.kept = [(size, *strides[i]) for i, (size, is_reduced) in enumerate(dims) if not is_reduced]
        self.reduced = [(size, strides[i][0]) for i, (size, is_reduced) in enumerate(dims) if is_reduced]
        self.is_row = bool(dims) and dims[-1][1]

    def combine(self, x: str, y: str) -> str:
        """The result of the ufunc for two vectors."""
        v = self.v
        if self.operation[1:] not in ("gt", "lt"):
            return self.f.op(f"{self.operation} {v.vector} {x}, {y}")
        mask = f"<{v.lanes} x i1>"
        test = self.f.op(f"{'fcmp' if v.is_float else 'icmp'} {self.operation} {v.vector} {x}, {y}")
        out = self.f.op(f"select {mask} {test}, {v.vector} {x}, {v.vector} {y}")
        if v.is_float:  # y if one is NaN
            is_nan = self.f.op(f"fcmp uno {v.vector} {x}, {x}")
            out = self.f.op(f"select {mask} {is_nan}, {v.vector} {x}, {v.vector} {out}")
        return out

    def emit(self) -> None:
        """Adds the instructions, without the return."""
        if any(size == 0 for size, *_ in self.kept):
            return
        inner = self.kept[-1] if self.kept else (1, 1, 1)
        self._over_kept(self.kept[:-1], inner, "%x", "%out")

    def _over_kept(self, dims: list[tuple[Size, int, int]], inner: tuple[Size, int, int], x: str, out: str) -> None:
        """Adds loops over kept dimensions around the tiles of the last one, `inner`."""
        v = self.v
        if dims:
            size, step, out_step = dims[0]
            for i, _ in blocks(v, size, 1):
                self._over_kept(dims[1:], inner, v.at(x, v.times(i, step)), v.at(out, v.times(i, out_step)))
            return
        size, step, _ = inner
        length = self.reduced[-1][0] if self.is_row else 0
        is_long = isinstance(length, str) or length >= thresholds.LONG_ROW_VECTORS * v.lanes
        width = (1 if is_long else min(_ROWS, v.lanes)) if self.is_row else _CHAINS * v.lanes
        if isinstance(size, int):
            width = min(width, size)
        for i, count in blocks(v, size, width):
            place, to = v.at(x, v.times(i, step)), v.at(out, i)
            counts = [1] * count if self.is_row else [min(v.lanes, count - j) for j in range(0, count, v.lanes)]
            starts = [w * (step if self.is_row else v.lanes) for w in range(len(counts))]
            values = self._over_reduced(self.reduced[:-1], place, starts, counts)
            if self.is_row:
                self._store(v.sums(values, self.combine), to, count)
                continue
            for start, each, value in zip(starts, counts, values, strict=True):
                self._store(value, v.at(to, start), each)

    def _store(self, value: str, to: str, count: int) -> None:
        """Stores the first `count` lanes of a result."""
        if self.accumulate:
            value = self.combine(self.v.load(to, count), value)
        self.v.store(value, to, count)

    def _over_reduced(
        self, dims: list[tuple[Size, int]], x: str, starts: Sequence[int], counts: Sequence[int]
    ) -> list[str]:
        """Combines vectors, which begin at `starts`, over `dims` and the last reduced dimension."""
        if not dims:
            return self._rows(x, starts) if self.is_row else self._columns(x, starts, counts)
        size, step = dims[0]

        def part(i: Size) -> list[str]:
            return self._over_reduced(dims[1:], self.v.at(x, self.v.times(i, step)), starts, counts)

        return self._collected(size, 1, len(starts), part)

    def _rows(self, x: str, starts: Sequence[int]) -> list[str]:
        """Combines vectors of the last dimension, which is reduced, of rows that begin at `starts`."""
        v, size = self.v, self.reduced[-1][0]

        def load(address: str, count: int) -> list[str]:
            return [v.load(v.at(address, start), count, self.identity) for start in starts]

        if isinstance(size, int):
            whole, rest = divmod(size, v.lanes)
            values = self._folded(x, whole, v.lanes, len(starts), lambda address: load(address, v.lanes))
            if not rest:
                return values
            last = load(v.at(x, whole * v.lanes), rest)
            return list(map(self.combine, values, last)) if whole else last
        vectors = self.f.op(f"sdiv i64 {size}, {v.lanes}")
        done = v.times(vectors, v.lanes)
        values = self._folded(x, vectors, v.lanes, len(starts), lambda address: load(address, v.lanes))
        others = self._folded(v.at(x, done), v.minus(size, done), 1, len(starts), lambda address: load(address, 1))
        return list(map(self.combine, values, others))

    def _columns(self, x: str, starts: Sequence[int], counts: Sequence[int]) -> list[str]:
        """Combines vectors of the last dimension, which is kept, over the last reduced one."""

        def load(address: str) -> list[str]:
            return [self.v.load(self.v.at(address, s), count) for s, count in zip(starts, counts, strict=True)]

        if not self.reduced:
            return load(x)
        size, step = self.reduced[-1]
        return self._folded(x, size, step, len(starts), load)

    def _folded(self, x: str, steps: Size, stride: int, many: int, load: Callable[[str], list[str]]) -> list[str]:
        """Combines `steps` terms of `many` vectors each, which `load` reads from addresses `stride` elements apart."""
        v = self.v
        body = max(_BODY // many, 1)
        sizes = [body * _BLOCK * _BLOCK, body * _BLOCK] if self.is_sum else []

        def block(address: str, count: Size, sizes: list[int]) -> list[str]:
            while sizes and isinstance(count, int) and count <= sizes[0]:
                sizes = sizes[1:]
            if not sizes:
                return self._chained(address, count, stride, many, body, load)
            size, *smaller = sizes

            def part(first: Size) -> list[str]:
                some = v.least(size, v.minus(count, first))
                return block(v.at(address, v.times(first, stride)), some, smaller)

            return self._collected(count, size, many, part)

        return block(x, steps, sizes)

    def _chained(
        self, x: str, steps: Size, stride: int, many: int, body: int, load: Callable[[str], list[str]]
    ) -> list[str]:
        """Combines terms in a loop without partial results, other than those of several chains."""
        v = self.v
        if steps == 0:
            return [self.identity] * many
        chains = 1
        while chains * 2 * many <= _CHAINS and (not isinstance(steps, int) or chains * 2 <= steps):
            chains *= 2
        if isinstance(steps, int) and steps * many <= _UNROLLED:
            parts: list[list[str]] = []
            for term in range(steps):
                values = load(v.at(x, term * stride))
                if term < chains:
                    parts.append(values)
                else:
                    parts[term % chains] = list(map(self.combine, parts[term % chains], values))
        else:
            slots = self._slots(chains * many)
            for first, count in blocks(v, steps, max(body, chains)):
                address = v.at(x, v.times(first, stride))
                now = self._values(slots)
                for term in range(count):
                    at = term % chains * many
                    now[at : at + many] = map(self.combine, now[at : at + many], load(v.at(address, term * stride)))
                self._put(slots, now)
            now = self._values(slots)
            parts = [now[at : at + many] for at in range(0, len(now), many)]
        while len(parts) > 1:
            half = len(parts) // 2
            parts = [list(map(self.combine, x, y)) for x, y in zip(parts[:half], parts[half:], strict=True)]
        return parts[0]

    def _collected(self, size: Size, step: int, many: int, part: Callable[[Size], list[str]]) -> list[str]:
        """Combines the vectors that `part` computes in each iteration of a loop."""
        slots = self._slots(many)
        with self.f.loop("0", str(size), step, rolled(self.f.module)) as i:
            self._put(slots, list(map(self.combine, self._values(slots), part(i))))
        return self._values(slots)

    def _slots(self, many: int) -> list[str]:
        slots = [self.f.alloca(self.v.vector, self.v.lanes * self.v.bytes) for _ in range(many)]
        self._put(slots, [self.identity] * many)
        return slots

    def _values(self, slots: list[str]) -> list[str]:
        return [self.f.op(f"load {self.v.vector}, ptr {slot}") for slot in slots]

    def _put(self, slots: list[str], values: list[str]) -> None:
        for slot, value in zip(slots, values, strict=True):
            self.f.line(f"store {self.v.vector} {value}, ptr {slot}")
