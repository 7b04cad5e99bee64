"""Copies of transposed matrices.

A loop over elements reads or writes another line of the cache for each one. So square tiles of vectors are transposed
in registers, and the edges alone are copied by element.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from headrace import thresholds
from headrace.targets.native.registers import of_host
from headrace.targets.native.vectors import Size, Vectors, blocks, rolled

if TYPE_CHECKING:
    from headrace.targets.native.llvm_text import Module

_SIZES: Final = (1, 2, 4, 8)  # of elements, in bytes


class Turned(NamedTuple):
    """Axes of a transposed matrix in the index space of a copy.

    Attributes:
      source: The axis along which the elements of the source are adjacent.
      target: The axis along which those of the target are.
    """

    source: int
    target: int


def turned_matrix(
    shape: Sequence[int], source: Sequence[int | str], target: Sequence[int | str], itemsize: int
) -> Turned | None:
    """The axes of a large matrix that a copy transposes; None if there is none.

    Args:
      shape: The shape of the index space, without axes that could be merged.
      source: The distances between elements of the source along each axis.
      target: Those of the target.
      itemsize: The size of an element in bytes.
    """
    if itemsize not in _SIZES or 1 not in source or 1 not in target:
        return None
    found = Turned(source.index(1), target.index(1))
    rows, columns = shape[found.target], shape[found.source]
    is_large = min(rows, columns) >= thresholds.TRANSPOSED_LANES and rows * columns >= thresholds.NATIVE_TRANSPOSE
    return found if found.source != found.target and is_large else None


def transpose(module: Module, itemsize: int) -> str:
    """Adds `void @name(ptr noalias %out, ptr %x, i64 %rows, i64 %columns, i64 %out_row, i64 %x_row)`.

    It copies each element [i, j] of `x` to [j, i] of `out`. Elements of a row are adjacent, and rows are `x_row` or
    `out_row` elements apart.

    Args:
      module: The module; a function for elements of a size is added once.
      itemsize: The size of an element in bytes.

    Returns:
      The name of the function, with `@`.
    """
    name = f"transpose_{itemsize}"
    if not module.has(name):
        sizes = [("i64", n) for n in ("rows", "columns", "out_row", "x_row")]
        f = module.function(name, "void", [("ptr noalias", "out"), ("ptr", "x"), *sizes], "nounwind", is_final=True)
        v = Vectors(f, np.dtype(f"i{itemsize}"), min(of_host().bytes // itemsize, thresholds.TRANSPOSED_LANES))
        for j, columns in blocks(v, "%columns", v.lanes):
            for i, rows in blocks(v, "%rows", v.lanes):
                if rows == columns == 1:
                    _element(v, i, j)
                elif rows == columns:
                    _tile(v, i, j)
                else:
                    with f.loop("0", str(v.lanes), metadata=rolled(module)) as k:
                        _element(v, *((_plus(v, i, k), j) if columns == 1 else (i, _plus(v, j, k))))
        f.line("ret void")
    return f"@{name}"


def _element(v: Vectors, i: Size, j: Size) -> None:
    """Copies the element [i, j]."""
    x = v.f.op(f"load {v.scalar}, ptr {v.at('%x', v.times(i, '%x_row'), j)}, align {v.bytes}")
    v.f.line(f"store {v.scalar} {x}, ptr {v.at('%out', v.times(j, '%out_row'), i)}, align {v.bytes}")


def _tile(v: Vectors, i: Size, j: Size) -> None:
    """Copies the square of vectors from the element [i, j] on."""
    rows = [v.load(v.at("%x", v.times(_plus(v, i, k), "%x_row"), j), v.lanes) for k in range(v.lanes)]
    for k, column in enumerate(v.transposed(rows)):
        v.store(column, v.at("%out", v.times(_plus(v, j, k), "%out_row"), i), v.lanes)


def _plus(v: Vectors, at: Size, more: Size) -> Size:
    return v.f.op(f"add nsw i64 {at}, {more}") if more else at
