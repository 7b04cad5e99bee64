"""Images resampled along both axes, and gradients of crops: weighted sums by tables.

The tables have the numbers of the elements that a row or column of the result sums, and their weights.
If all images have the same tables, a row of the result is made from a line, the sum of weighted rows of an image. The
line has one element of zeros more, which columns without a tap read. Crops have tables of their own and may need few
columns of an image, so each of their elements sums those of the image. Sums have numpy's order, so results have the
bits of the sparse products of the kernels (`ops.image.taps`). The gradient of crops adds each crop to the image, box
after box.

A function has the number of channels as a constant, for its innermost loop is over them and they may be few.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator, Sequence
from typing import Any, Final, TypeAlias

import numpy as np

from headrace import thresholds
from headrace.dtypes import bfloat16, float16
from headrace.opkit.kernel_library import KernelLibrary, Table
from headrace.targets.native import engine
from headrace.targets.native.loops import Loops, Numbers, compiled
from headrace.targets.native.values import Value

Array: TypeAlias = np.ndarray

_FLOATS: Final = (np.dtype(np.float32), np.dtype(np.float64))
_HALF: Final = (float16.numpy, bfloat16.numpy)
_INT: Final = np.dtype(np.int64)


class NativeResampling(KernelLibrary):
    """Resampled images by native code."""

    def resampled(self, images: Array, which: Array, rows: Table, columns: Table, dtype: Any) -> Array | None:
        """The result; None if numpy is to compute it."""
        to, n, (_, h, w, channels) = np.dtype(dtype), len(which), images.shape
        height, width = rows.source.shape[1], columns.source.shape[1]
        if not _pays(images.dtype, to, n * height * width * channels):
            return None
        has_lines = len(rows.source) == 1
        rows, columns = _ordered(rows, to), _ordered(_grouped(columns, w) if has_lines else columns, to)
        out = np.empty((n, height, width, channels), to)
        arrays = [out, np.ascontiguousarray(images), np.asarray(which, _INT), *rows, *columns]
        sizes = [n, h, w, height, width]
        if has_lines:
            groups, group = columns.source.shape[2:]
            key = "lines", images.dtype, to, channels, group
            function = compiled(key, lambda: _lines(images.dtype, to, channels, group))
            function(*arrays, np.zeros((w + 1) * channels, to), *sizes, rows.source.shape[2], groups)
        else:
            taps = rows.source.shape[2]
            function = compiled(
                ("elements", images.dtype, to, channels, taps), lambda: _elements(images.dtype, to, channels, taps)
            )
            function(*arrays, np.zeros(channels, images.dtype), *sizes)
        return out

    def spread(self, grads: Array, which: Array, rows: Table, columns: Table, out: Array) -> bool:
        """Adds a gradient; False if numpy is to do it."""
        n, height, width, channels = grads.shape
        if out.dtype != np.float32 or grads.dtype != np.float32 or not _pays(grads.dtype, out.dtype, grads.size):
            return False
        taps = rows.source.shape[2]
        function = compiled(("spread", channels, taps), lambda: _spread(out.dtype, channels, taps))
        _, h, w, _ = out.shape
        lines = np.empty((h, width * channels), out.dtype)
        arrays = [np.ascontiguousarray(grads), np.asarray(which, _INT)]
        tables = [*_ordered(rows, out.dtype), _spans(rows.source), *_ordered(columns, out.dtype)]
        function(out, lines, *arrays, *tables, n, h, w, height, width)
        return True

    def slopes(
        self, grads: Array, images: Array, which: Array, rows: Table, columns: Table
    ) -> tuple[Array, Array] | None:
        """The gradients by positions; None if numpy is to compute them."""
        n, height, width, channels = grads.shape
        single = np.dtype(np.float32)
        if grads.dtype != single or not _pays(images.dtype, single, grads.size):
            return None
        function = compiled(("slopes", images.dtype, channels), lambda: _slopes(images.dtype, channels))
        found = np.zeros((n, height)), np.zeros((n, width))
        arrays = [np.ascontiguousarray(grads), np.ascontiguousarray(images), np.asarray(which, _INT)]
        _, h, w, _ = images.shape
        function(*found, *arrays, *_ordered(rows, single), *_ordered(columns, single), n, h, w, height, width)
        return found[0].astype(single), found[1].astype(single)


def _pays(source: np.dtype, to: np.dtype, size: int) -> bool:
    """Whether native code computes a result of so many numbers."""
    is_number = source in (*_FLOATS, *_HALF) or source.kind in "iu"
    return size >= thresholds.NATIVE_RESAMPLED and is_number and to in _FLOATS and not engine.available()


def _grouped(table: Table, nothing: int) -> Table:
    """A table with groups of up to `RESAMPLED_TAPS` taps, [1, elements, groups, taps].

    Args:
      table: The table.
      nothing: The number that stands for no element.
    """
    taps = table.source.shape[2]
    groups = max(1, -(-taps // thresholds.RESAMPLED_TAPS))
    each = max(1, -(-taps // groups))
    source, weight = (
        np.full((*a.shape[:2], groups * each), v, a.dtype) for a, v in zip(table, (nothing, 0), strict=True)
    )
    source[..., :taps], weight[..., :taps] = np.where(table.source < 0, nothing, table.source), table.weight
    return Table(*(a.reshape(*a.shape[:2], groups, each) for a in (source, weight)))


def _ordered(table: Table, dtype: np.dtype) -> Table:
    """A table in the order of memory, with weights of a dtype."""
    return Table(np.ascontiguousarray(table.source), np.ascontiguousarray(table.weight, dtype))


def _spans(source: Array) -> Array:
    """The first input element of each table, and the one behind the last, [tables, 2]."""
    stop = source.max((1, 2), initial=-1) + 1
    first = np.where(source < 0, np.iinfo(_INT).max, source).min((1, 2), initial=np.iinfo(_INT).max)
    return np.stack([np.minimum(first, stop), stop], 1)


# *** Functions ***


def _lines(source: np.dtype, dtype: np.dtype, channels: int, group: int) -> Loops:
    """The function of images that have the same tables.

    A column has groups of `group` taps.
    """
    names = ["n", "h", "w", "height", "width", "row_taps", "groups"]
    loops = Loops([dtype, source, _INT, _INT, dtype, _INT, dtype, dtype], names)
    out, images, which, row_source, row_weight, column_source, column_weight, line = loops.arrays
    n, h, w, height, width, row_taps, groups = loops.sizes
    run = w * channels
    with loops.each(0, n) as i, loops.each(0, height) as y:
        with loops.each(0, run) as j:
            line[j] = loops.constant(0, dtype)
        with loops.each(0, row_taps) as k, _tap(loops, row_source, y * row_taps + k) as row:
            weight, from_ = row_weight[y * row_taps + k], images.part((which[i] * h + row) * run)
            with loops.each(0, run) as j:
                line[j] = line[j] + weight * loops.converted(from_[j], source, dtype)
        with loops.each(0, width) as x:
            into, first = out.part(((i * height + y) * width + x) * channels), x * groups * group
            _weighted(loops, into, line, _group(column_source, column_weight, first, group), channels, True)
            with loops.each(1, groups) as g:
                following = _group(column_source, column_weight, first + g * group, group)
                _weighted(loops, into, line, following, channels, False)
    return loops


def _elements(source: np.dtype, dtype: np.dtype, channels: int, taps: int) -> Loops:
    """The function of images that have tables of their own.

    Each row and column has this number of taps.
    """
    names = ["n", "h", "w", "height", "width"]
    loops = Loops([dtype, source, _INT, _INT, dtype, _INT, dtype, source], names)
    out, images, which, row_source, row_weight, column_source, column_weight, nothing = loops.arrays
    n, h, w, height, width = loops.sizes
    with loops.each(0, n) as i:
        image = images.part(which[i] * h * w * channels)
        with loops.each(0, height) as y:
            down = [((i * height + y) * taps + k) for k in range(taps)]
            rows, by_row = [row_source[at] for at in down], [row_weight[at] for at in down]
            with loops.each(0, width) as x:
                across = [((i * width + x) * taps + k) for k in range(taps)]
                columns, by_column = [column_source[at] for at in across], [column_weight[at] for at in across]
                elements = [
                    [
                        image.part((row * w + column) * channels).where((row | column).compare("sge", 0), nothing)
                        for row in rows
                    ]
                    for column in columns
                ]
                into = out.part(((i * height + y) * width + x) * channels)
                with loops.each(0, channels) as c:
                    numbers = [[loops.converted(e[c], source, dtype) for e in lines] for lines in elements]
                    into[c] = _sum(by_column, [_sum(by_row, line) for line in numbers])
    return loops


def _sum(weights: Sequence[Value], numbers: Sequence[Value]) -> Value:
    """The weighted sum, from 0 on as in numpy, so that it is never -0."""
    total = numbers[0].constant(0)
    for weight, number in zip(weights, numbers, strict=True):
        total = total + weight * number
    return total


def _group(source: Numbers, weight: Numbers, first: Value, taps: int) -> list[tuple[Value, Value]]:
    """The numbers of the elements of some taps, and their weights."""
    return [(source[first + k], weight[first + k]) for k in range(taps)]


def _weighted(
    loops: Loops,
    into: Numbers,
    line: Numbers,
    taps: Sequence[tuple[Value, Value]],
    channels: int,
    is_first: bool,
) -> None:
    """Adds weighted elements of the line to an element of the result.

    The first ones are added to 0.
    """
    elements = [(line.part(source * channels), weight) for source, weight in taps]
    with loops.each(0, channels) as c:
        total = loops.constant(0, into.dtype) if is_first else into[c]
        for element, weight in elements:
            total = total + weight * element[c]
        into[c] = total


def _spread(dtype: np.dtype, channels: int, taps: int) -> Loops:
    """The function of the gradient by the images, which have tables of their own."""
    loops = Loops([dtype, dtype, dtype, _INT, _INT, dtype, _INT, _INT, dtype], ["n", "h", "w", "height", "width"])
    out, lines, grads, which, row_source, row_weight, spans, column_source, column_weight = loops.arrays
    n, h, w, height, width = loops.sizes
    run = width * channels
    with loops.each(0, n) as i:
        image, first, stop = out.part(which[i] * h * w * channels), spans[i * 2], spans[i * 2 + 1]
        with loops.each(first * run, stop * run) as j:
            lines[j] = loops.constant(0, dtype)
        with loops.each(0, height) as y:
            g = grads.part((i * height + y) * run)
            for k in range(taps):
                at = (i * height + y) * taps + k
                with _tap(loops, row_source, at) as row:
                    weight, line = row_weight[at], lines.part(row * run)
                    with loops.each(0, run) as j:
                        line[j] = line[j] + weight * g[j]
        with loops.each(first, stop) as row, loops.each(0, width) as x:
            element = lines.part(row * run + x * channels)
            for k in range(taps):
                at = (i * width + x) * taps + k
                with _tap(loops, column_source, at) as column:
                    weight, into = column_weight[at], image.part((row * w + column) * channels)
                    with loops.each(0, channels) as c:
                        into[c] = into[c] + weight * element[c]
    return loops


def _slopes(source: np.dtype, channels: int) -> Loops:
    """The function of the gradient by positions."""
    single, double = np.dtype(np.float32), np.dtype(np.float64)
    dtypes = [double, double, single, source, _INT, _INT, single, _INT, single]
    loops = Loops(dtypes, ["n", "h", "w", "height", "width"])
    by_row, by_column, grads, images, which, row_source, row_weight, column_source, column_weight = loops.arrays
    n, h, w, height, width = loops.sizes
    with loops.each(0, n) as i, loops.each(0, height) as y:
        row = i * height + y
        image, down = images.part(which[i] * h * w * channels), [row_weight[row * 2 + k] for k in range(2)]
        with _tap(loops, row_source, row * 2) as top, loops.each(0, width) as x:
            column = i * width + x
            along, bottom = [column_weight[column * 2 + k] for k in range(2)], row_source[row * 2 + 1]
            with _tap(loops, column_source, column * 2) as left:
                right, g = column_source[column * 2 + 1], grads.part((row * width + x) * channels)
                corners = [[image.part((v * w + u) * channels) for u in (left, right)] for v in (top, bottom)]
                term = functools.partial(_slope, loops, g, source)
                vertical = functools.partial(term, list(zip(*corners, strict=True)), along)
                horizontal = functools.partial(term, corners, down)
                count = loops.constant(channels)
                by_row[row] = by_row[row] + loops.sum(count, single, vertical)
                by_column[column] = by_column[column] + loops.sum(count, single, horizontal)
    return loops


def _slope(
    loops: Loops,
    g: Numbers,
    source: np.dtype,
    pairs: Sequence[Sequence[Numbers]],
    weights: Sequence[Value],
    c: Value,
) -> Value:
    """The gradient of a channel by a position.

    Each pair has the elements on both sides of it.
    """
    numbers = [[loops.converted(element[c], source, np.float32) for element in pair] for pair in pairs]
    return g[c] * _sum(weights, [high - low for low, high in numbers])


@contextlib.contextmanager
def _tap(loops: Loops, source: Numbers, at: Value) -> Iterator[Value]:
    """A block that runs if there is a tap; gives the number of its element."""
    element = source[at]
    with loops.when(element.compare("sge", 0)):
        yield element
