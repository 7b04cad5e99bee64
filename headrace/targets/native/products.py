"""Matrix products as LLVM functions for static shapes.

`product` adds a function that computes C (+)= op(A) op(B) of matrices in row-major order. There are three forms:

* *Panels*. C is divided into tiles of R rows and V vectors, which stay in registers while a loop over the inner
  dimension adds the products of R broadcast elements of A and V vectors of a row of B. If B is transposed, a panel of
  its columns is transposed into a buffer on the stack first, and all tiles of the panel read the buffer.
* *Dots*. If B is transposed and A has few rows, the elements of a tile are dot products: the vectors lie along the
  inner dimension of both matrices, and their lanes are added at the end.
* *Library*. A large product is a call of the BLAS library (`blas`).

The form and the tile are functions of the signature alone, so the result is too. The order of additions differs from
that of other implementations. Each element of C is a sum of at most `_CHAINS` partial sums, and for large inner
dimensions of blocks of these; a product and its addition are fused where the processor has the instruction.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

import numpy as np

from headrace import thresholds
from headrace.records import record
from headrace.targets.native import blas
from headrace.targets.native.llvm_text import Function, Module
from headrace.targets.native.vectors import ZERO, Size, Vectors, blocks, rolled, scalar_type

#: Adds the instructions for one term of some sums: takes the number of the term in the iteration of a loop, and the
#: sums so far; returns the new sums.
_AddTerm: TypeAlias = "Callable[[int, Sequence[str]], list[str]]"

# Vector registers by the size of a vector: AVX-512, AVX, and SSE or Neon.
_REGISTERS: Final = {64: 32, 32: 16, 16: 16}

# Additions to an accumulator depend on each other and take four cycles at a rate of two a cycle, so a tile has this
# many accumulators or more: one with fewer elements has several partial sums of each.
_CHAINS: Final = 8

# Multiplications and additions in the body of the innermost loop, and in a tile without a loop.
_BODY: Final = 32
_UNROLLED: Final = 96

# The part of the time for which a tile of another size is avoided: each size has code of its own.
_KIND: Final = 0.02
# Rows of a tile.
_MOST_ROWS: Final = 12
# Rows of a tile of dot products. An inner dimension that is no constant is taken to be large for so many rows.
_DOT_ROWS: Final = 4
# The largest size that the library takes.
_MOST: Final = (1 << 31) - 1


def product(
    module: Module,
    m: int | None,
    k: int | None,
    n: int,
    dtype: np.dtype,
    turned: tuple[bool, bool],
    *,
    accumulate: bool = False,
    row_strides: tuple[int | None, int | None, int | None] = (None, None, None),
    addend: int | None = None,
    vector_bytes: int = 64,
    may_call: bool = True,
) -> str:
    """Adds the function `void @name(ptr noalias %c, ptr %a, ptr %b)` that computes C (+)= op(A) op(B).

    The matrices are in row-major order and aligned to their elements. If `m` is None, the function has one more
    parameter `i64 %m`; if `k` is None, one more `i64 %k` behind it. With an addend, `ptr %x` is before them.

    Args:
      module: The module; a function of the same signature is added once.
      m: The number of rows of C; None if the caller passes it.
      k: The inner dimension; None if the caller passes it.
      n: The number of columns of C.
      dtype: The dtype of the three matrices: float32, float64 or an integer, which wraps.
      turned: Whether A is stored as [k, m], and B as [n, k].
      accumulate: Whether the product is added to C.
      row_strides: The distance between the rows of A, B and C as they are stored, in elements; None for the length of
        a row.
      addend: The distance between the rows of a matrix that is added to the result, or 0 for a vector that is added to
        each row; None without an addend.
      vector_bytes: The size of the processor's vectors: 64, 32 or 16.
      may_call: Whether a large product is a call of the BLAS library.

    Returns:
      The name of the function, with `@`.

    Raises:
      ValueError: A size is negative, a distance is shorter than the row, or the dtype is none of these.
    """
    scalar_type(dtype)
    if dtype.kind == "b":
        raise ValueError("native code has no products of bool")
    if any(size is not None and size < 0 for size in (m, k, n)):
        raise ValueError(f"sizes must not be negative, got m={m}, k={k}, n={n}")
    lengths = (k, m)[turned[0]], (n, k)[turned[1]], n
    for length, stride in zip(lengths, row_strides, strict=True):
        if stride is not None and (length is None or stride < length):
            raise ValueError(f"the rows have {length} elements, so they cannot be {stride} elements apart")
    plain = ("%k", "%m")[turned[0]], ("%n", "%k")[turned[1]], "%n"
    strides: list[Size] = []
    for length, stride, symbol in zip(lengths, row_strides, plain, strict=True):
        strides.append(stride if stride is not None else length if length is not None else symbol)
    apart = "".join(
        f"_{letter}{stride}"
        for letter, stride, length in zip("abc", row_strides, lengths, strict=True)
        if stride not in (None, length)
    )
    extents = "x".join("s" if size is None else str(size) for size in (m, k, n))
    sides = "nt"[turned[0]] + "nt"[turned[1]]
    kind = f"{'_add' if accumulate else ''}{'' if addend is None else f'_plus{addend}'}{'' if may_call else '_own'}"
    name = f"product_{dtype.name}_{extents}_{sides}{kind}{apart}_{vector_bytes}"
    if module.has(name):
        return f"@{name}"
    params = [("ptr noalias", "c"), ("ptr", "a"), ("ptr", "b")]
    params += [("ptr", "x")] if addend is not None else []
    params += [("i64", letter) for letter, size in (("m", m), ("k", k)) if size is None]
    work = None if m is None or k is None else m * k * n
    is_inlined = work is not None and work <= thresholds.INLINED_PRODUCT
    # the packing of a small B takes a large part of the time, and all passes make it faster
    is_packed = turned[1] and work is not None and work < thresholds.SMALL_PACKED_PRODUCT
    attributes = f"nounwind{' alwaysinline' if is_inlined else ''}"
    f = module.function(name, "void", params, attributes, "internal", is_final=not (is_inlined or is_packed))
    a = "%a"
    if is_inlined:  # of a matrix that was just written, LLVM would take elements out of vectors in place of loads
        a = f.op('call ptr asm "", "=r,0"(ptr %a)', "hidden")
    left, right, result = (_Matrix(p, stride, 1) for p, stride in zip((a, "%b", "%c"), strides, strict=True))
    left, right = left.transposed if turned[0] else left, right.transposed if turned[1] else right
    rows: Size = "%m" if m is None else m
    added = None if addend is None else _Matrix("%x", addend, 1)
    if n == 1 and m is not None and strides[2] == 1:  # vectors along the only column of C
        rows, n, left, right, result = 1, m, right.transposed, left.transposed, result.transposed
        added = None if addend is None else _Matrix("%x", 0, addend)
    sizes = rows, "%k" if k is None else k, n
    printer = _Product(f, dtype, sizes, (left, right, result), accumulate, vector_bytes)
    printer.may_call, printer.addend = may_call, added
    printer.emit()
    f.line("ret void")
    return f"@{name}"


@record(frozen=True, slots=True)
class _Matrix:
    """Matrix in memory.

    Attributes:
      address: The address of an element.
      row: The distance to the element in the next row.
      column: The distance to the element in the next column.
    """

    address: str
    row: Size
    column: Size

    @property
    def transposed(self) -> _Matrix:
        """The transposed matrix, in the same memory."""
        return _Matrix(self.address, self.column, self.row)

    def at(self, v: Vectors, row: Size, column: Size) -> str:
        """The address of an element."""
        return v.at(self.address, v.times(row, self.row), v.times(column, self.column))

    def moved(self, v: Vectors, row: Size, column: Size) -> _Matrix:
        """The matrix from an element on."""
        return _Matrix(self.at(v, row, column), self.row, self.column)


class _Product:
    """One product in construction.

    Args:
      f: The function that takes the instructions; its entry block must be open.
      dtype: The dtype.
      sizes: The numbers of rows of C, columns of A and columns of C.
      matrices: A, B and C. The columns of C are adjacent.
      accumulate: Whether the product is added to C.
      vector_bytes: The size of the processor's vectors.
    """

    def __init__(
        self,
        f: Function,
        dtype: np.dtype,
        sizes: tuple[Size, Size, int],
        matrices: tuple[_Matrix, _Matrix, _Matrix],
        accumulate: bool,
        vector_bytes: int,
    ) -> None:
        self.f, self.dtype = f, dtype
        self.m, self.k, self.n = sizes
        self.a, self.b, self.c = matrices
        self.accumulate = accumulate
        self.may_call = True  # the library
        self.addend: _Matrix | None = None
        self.registers = _REGISTERS[vector_bytes]
        self.multiple = 1  # divides the numbers of terms that are no constants
        lanes = vector_bytes // dtype.itemsize
        self.is_dots = self._is_dots(lanes)
        self.lanes = lanes if self.is_dots else min(lanes, 1 << max(self.n - 1, 0).bit_length())
        self.v = Vectors(f, dtype, self.lanes)

    def _is_dots(self, lanes: int) -> bool:
        """Whether the elements are computed as dot products."""
        if self.a.column != 1 or self.b.row != 1 or (self.b.column == 1 and self.n > 1):
            return False
        if isinstance(self.k, int) and self.k < lanes:
            return False
        if self.n == 1:
            return True
        if not isinstance(self.m, int):
            return False
        return self.k >= thresholds.DOT_PRODUCT_TERMS * self.m if isinstance(self.k, int) else self.m <= _DOT_ROWS

    def emit(self) -> None:
        """Adds the instructions, without the return."""
        if 0 in (self.m, self.n):
            return
        self._emit()
        if self.addend is not None:  # it was not added with the sums
            self._add(self.addend)

    def _emit(self) -> None:
        if self.k == 0:
            if not self.accumulate:
                self._clear()
            return
        is_large = self._is_large() if self.may_call else "false"
        if is_large == "false":
            self._own()
        elif is_large == "true":
            self._library()
        else:
            own, library, done = self.f.new("own"), self.f.new("library"), self.f.new("done")
            self.f.branch(is_large, library, own)
            self.f.begin(library)
            self._library()
            self.f.jump(done)
            self.f.begin(own)
            self._own()
            self.f.jump(done)
            self.f.begin(done)

    def _own(self) -> None:
        if self.is_dots:
            self._dots()
        else:
            self._panels()

    def _clear(self) -> None:
        """Fills C with zeros."""
        with self.f.loop("0", str(self.m), 1, rolled(self.f.module)) as i:
            row = self.v.at(self.c.address, self.v.times(self.c.row, i))
            for j, count in blocks(self.v, self.n, self.lanes):
                self.v.store(ZERO, self.v.at(row, j), count)

    def _add(self, addend: _Matrix) -> None:
        """Adds the addend to C."""
        step = self.lanes if addend.column == 1 else 1
        with self.f.loop("0", str(self.m), 1, rolled(self.f.module)) as i:
            for j, count in blocks(self.v, self.n, step):
                to = self.c.at(self.v, i, j)
                x = self.v.load(addend.at(self.v, i, j), count)
                self.v.store(self.v.add(self.v.load(to, count), x), to, count)

    # *** Panels ***

    def _panels(self) -> None:
        rows, vectors = self._tile()
        width = vectors * self.lanes
        most = thresholds.PRODUCT_DEPTH
        if self.b.column != 1:
            most = min(most, max(thresholds.PRODUCT_BUFFER // (width * self.v.bytes) // self.lanes, 1) * self.lanes)
        depth = most
        if isinstance(self.k, int):
            blocks = -(-self.k // most)
            depth = self.k if blocks == 1 else min(-(-self.k // (blocks * 16)) * 16, most)
            self.multiple = math.gcd(depth, self.k)
        buffer = "" if self.b.column == 1 else self.f.alloca(f"[{depth * width} x {self.v.scalar}]", 64)
        if depth == self.k:
            addend = None
            if self.addend is not None and self.addend.column == 1:
                addend, self.addend = self.addend, None
            self._block(0, depth, rows, width, buffer, self.accumulate, addend)
            return
        if not self.accumulate:
            self._clear()
        with self.f.loop("0", str(self.k), depth, rolled(self.f.module)) as start:
            steps = self.v.least(depth, self.v.minus(self.k, start))
            self._block(start, steps, rows, width, buffer, True)

    def _tile(self) -> tuple[int, int]:
        """Chooses the rows of a tile and the vectors of each by their estimated time."""
        in_row = -(-self.n // self.lanes)
        m = self.m if isinstance(self.m, int) else 1 << 10
        best, found = math.inf, (1, 1)
        for vectors in range(1, min(in_row, self.registers // 2) + 1):
            for rows in range(1, min(m, _MOST_ROWS) + 1):
                if rows * vectors + vectors + 2 > self.registers:
                    break
                cost, kinds = 0.0, 0
                for r, many in (rows, m // rows), (m % rows, 1):
                    for v, times in (vectors, in_row // vectors), (in_row % vectors, 1):
                        if r and v:
                            cost += many * times * (max(r * v, v + r / 2) + 1)
                            kinds += 1
                cost *= 1 + _KIND * kinds
                if cost < best:
                    best, found = cost, (rows, vectors)
        return found

    def _block(
        self,
        start: Size,
        steps: Size,
        rows: int,
        width: int,
        buffer: str,
        adds: bool,
        addend: _Matrix | None = None,
    ) -> None:
        """Computes C, or adds to it, from some terms and an addend."""
        v = self.v
        a = self.a.moved(v, 0, start)
        b = self.b.moved(v, start, 0)
        for j, columns in blocks(self.v, self.n, width):
            panel = b.moved(v, 0, j)
            counts = [min(self.lanes, columns - done) for done in range(0, columns, self.lanes)]
            read = counts
            if buffer:
                pack = _packing(self.f.module, self.dtype, self.lanes, self.f.is_final)
                self.f.line(
                    f"call void {pack}(ptr {buffer}, ptr {panel.address}, "
                    f"i64 {panel.column}, i64 {columns}, i64 {steps})"
                )
                panel = _Matrix(buffer, len(counts) * self.lanes, 1)
                read = [self.lanes] * len(counts)
            for i, r in blocks(self.v, self.m, rows):
                sums = self._tile_sums(a.moved(v, i, 0), panel, r, read, steps)
                row = self.c.moved(v, i, j)
                for q in range(r):
                    for w, count in enumerate(counts):
                        to = row.at(v, q, w * self.lanes)
                        total = sums[q * len(counts) + w]
                        total = v.add(v.load(to, count), total) if adds else total
                        if addend is not None:
                            total = v.add(total, v.load(addend.moved(v, i, j).at(v, q, w * self.lanes), count))
                        v.store(total, to, count)

    def _tile_sums(self, a: _Matrix, b: _Matrix, rows: int, counts: Sequence[int], steps: Size) -> list[str]:
        """Sums of a tile, row by row: elements of A times vectors of B."""
        v = self.v

        def terms(first: Size) -> _AddTerm:
            left, right = a.moved(v, 0, first), b.moved(v, first, 0)

            def add(term: int, sums: Sequence[str]) -> list[str]:
                vectors = [v.load(right.at(v, term, w * self.lanes), count) for w, count in enumerate(counts)]
                out = []
                for q in range(rows):
                    x = v.splat(left.at(v, q, term))
                    out += [v.multiply_add(x, y, sums[q * len(counts) + w]) for w, y in enumerate(vectors)]
                return out

            return add

        return self._summed(steps, rows * len(counts), terms)

    def _summed(self, steps: Size, many: int, terms: Callable[[Size], _AddTerm]) -> list[str]:
        """Adds terms in a loop.

        Args:
          steps: The number of terms of each sum.
          many: The number of sums.
          terms: Adds the instructions at the begin of an iteration of the loop, from its first term.

        Returns:
          The sums.
        """
        chains = 1
        while chains * many < _CHAINS and (not isinstance(steps, int) or chains * 2 <= steps):
            chains *= 2
        parts = [[ZERO] * many for _ in range(chains)]
        if isinstance(steps, int) and steps * many <= _UNROLLED:
            add = terms(0)
            for term in range(steps):
                parts[term % chains] = add(term, parts[term % chains])
        else:
            body = max(_BODY // many, chains)
            divided = steps if isinstance(steps, int) else self.multiple
            body = next((size for size in range(body, body // 2, -1) if not divided % size), body)  # no remainder
            slots = [[self.f.alloca(self.v.vector, self.v.lanes * self.v.bytes) for _ in part] for part in parts]
            self._put(slots, parts)
            for first, size in blocks(self.v, steps, body, self.multiple):
                parts = [[self.f.op(f"load {self.v.vector}, ptr {slot}") for slot in part] for part in slots]
                add = terms(first)
                for term in range(size):
                    parts[term % chains] = add(term, parts[term % chains])
                self._put(slots, parts)
            parts = [[self.f.op(f"load {self.v.vector}, ptr {slot}") for slot in part] for part in slots]
        while len(parts) > 1:
            half = len(parts) // 2
            parts = [list(map(self.v.add, x, y)) for x, y in zip(parts[:half], parts[half:], strict=True)]
        return parts[0]

    def _put(self, slots: list[list[str]], values: list[list[str]]) -> None:
        for part, new in zip(slots, values, strict=True):
            for slot, value in zip(part, new, strict=True):
                self.f.line(f"store {self.v.vector} {value}, ptr {slot}")

    # *** Dots ***

    def _dots(self) -> None:
        """Computes C as dot products of rows of A and rows of the stored B."""
        v = self.v
        rows = min(8, self.lanes) if isinstance(self.m, str) else min(self.m, _DOT_ROWS)
        columns = min(max(self.registers // 2 // rows, 1), self.lanes, self.n)
        for j, many in blocks(self.v, self.n, columns):
            for i, r in blocks(self.v, self.m, rows):
                sums = self._dot_sums(self.a.moved(v, i, 0), self.b.moved(v, 0, j), r, many)
                to = self.c.moved(v, i, j)
                groups, count = [sums[q * many : (q + 1) * many] for q in range(r)], many
                if many == 1 and self.c.row == 1:  # the rows of the tile are adjacent
                    groups, count = [sums], r
                for q, group in enumerate(groups):
                    total, address = v.sums(group), to.at(v, q, 0)
                    v.store(v.add(v.load(address, count), total) if self.accumulate else total, address, count)

    def _dot_sums(self, a: _Matrix, b: _Matrix, rows: int, columns: int) -> list[str]:
        """The sums of a tile, row by row, as vectors whose lanes are partial sums."""
        v = self.v

        def terms(first: Size, lanes: int, each: int) -> _AddTerm:
            left, right = (matrix.moved(v, 0, v.times(first, each)) for matrix in (a, b.transposed))

            def add(term: int, sums: Sequence[str]) -> list[str]:
                ys = [v.load(right.at(v, q, term * each), lanes) for q in range(columns)]
                out = []
                for q in range(rows):
                    x = v.load(left.at(v, q, term * each), lanes)
                    out += [v.multiply_add(x, y, sums[q * columns + w]) for w, y in enumerate(ys)]
                return out

            return add

        def whole(first: Size) -> _AddTerm:
            return terms(first, self.lanes, self.lanes)

        k, many = self.k, rows * columns
        if isinstance(k, int):
            sums = self._summed(k // self.lanes, many, whole)
            return terms(k // self.lanes, k % self.lanes, self.lanes)(0, sums) if k % self.lanes else sums
        vectors = self.f.op(f"sdiv i64 {k}, {self.lanes}")
        sums = self._summed(vectors, many, whole)
        done = v.times(vectors, self.lanes)
        a, b = a.moved(v, 0, done), b.moved(v, done, 0)
        return list(map(v.add, sums, self._summed(v.minus(k, done), many, lambda first: terms(first, 1, 1))))

    # *** Library ***

    def _is_large(self) -> str:
        """Whether the library computes the product: a constant or the name of an i1."""
        strides = [size for matrix in (self.a, self.b, self.c) for size in (matrix.row, matrix.column)]
        if self.dtype.kind != "f" or any(s > _MOST for s in (self.m, self.k, self.n, *strides) if isinstance(s, int)):
            return "false"
        v, least = self.v, thresholds.NATIVE_LIBRARY_PRODUCT
        size = v.times(v.times(self.m, self.k), self.n)
        if isinstance(size, int):
            return "true" if size >= least else "false"
        out = self.f.op(f"icmp sge i64 {size}, {least}")
        for each in self.m, self.k:
            if isinstance(each, str):
                out = self.f.op(f"and i1 {out}, {self.f.op(f'icmp sle i64 {each}, {_MOST}')}")
        return out

    def _library(self) -> None:
        """Calls the library, whose matrices are in column-major order: it computes the transposed product."""
        f, v = self.f, self.v

        def number(size: Size) -> str:
            return variable("i64", size if isinstance(size, str) else str(size))

        def variable(kind: str, value: str) -> str:
            slot = f.alloca(kind)
            f.line(f"store {kind} {value}, ptr {slot}")
            return f"ptr {slot}"

        turns, distances = [], []
        for matrix, rows, columns in (self.b, self.k, self.n), (self.a, self.m, self.k):
            is_turned = matrix.column != 1
            distance, length = (matrix.column, rows) if is_turned else (matrix.row, columns)
            if isinstance(distance, int) and isinstance(length, int):  # a single row may have any distance to the next
                distance = max(distance, length)
            turns.append(variable("i8", str(ord("T" if is_turned else "N"))))
            distances.append(number(distance))
        one, beta = variable(v.scalar, "1.0"), variable(v.scalar, "1.0" if self.accumulate else "0.0")
        name = blas.NAMES[self.dtype.name]
        f.module.declare(name, "void", ["ptr"] * 13, "nounwind")
        operands = [
            *(*turns, number(self.n), number(self.m), number(self.k)),
            *(one, f"ptr {self.b.address}", distances[0], f"ptr {self.a.address}", distances[1]),
            *(beta, f"ptr {self.c.address}", number(self.c.row if self.m != 1 else self.n)),
        ]
        f.line(f"call void @{name}({', '.join(operands)})")


def _packing(module: Module, dtype: np.dtype, lanes: int, is_final: bool) -> str:
    """Adds the function `void @name(ptr noalias %to, ptr %from, i64 %distance, i64 %rows, i64 %columns)`.

    It writes the columns of a matrix as rows that have no gaps. The rows of the matrix are `distance` elements apart.
    Each result row is filled up to a multiple of `lanes` elements with repetitions of its last element.

    Returns:
      The name of the function, with `@`.
    """
    name = f"packing_{dtype.name}_{lanes}{'' if is_final else '_small'}"
    if module.has(name):
        return f"@{name}"
    params = [("ptr noalias", "to"), ("ptr", "from"), ("i64", "distance"), ("i64", "rows"), ("i64", "columns")]
    f = module.function(name, "void", params, "nounwind noinline", "internal", is_final=is_final)
    v = Vectors(f, dtype, lanes)
    width = f.op(f"and i64 {f.op(f'add nsw i64 %rows, {lanes - 1}')}, {-lanes}")
    last, whole = f.op("sub nsw i64 %rows, 1"), f.op(f"and i64 %columns, {-lanes}")
    with f.loop("0", width, lanes) as first:
        rows = [v.least(f.op(f"add nsw i64 {first}, {lane}"), last) for lane in range(lanes)]
        places = [v.at("%from", v.times(row, "%distance")) for row in rows]
        to = v.at("%to", first)
        with f.loop("0", whole, lanes) as column:
            loaded = [v.load(v.at(place, column), lanes) for place in places]
            for lane, turned in enumerate(v.transposed(loaded)):
                row = f.op(f"add nsw i64 {column}, {lane}")
                v.store(turned, v.at(to, v.times(row, width)), lanes)
        with f.loop(whole, "%columns", 1, rolled(module)) as column:
            one = ZERO
            for lane, place in enumerate(places):
                one = v.insert(one, v.at(place, column), lane)
            v.store(one, v.at(to, v.times(column, width)), lanes)
    f.line("ret void")
    return f"@{name}"
