"""Convolutions and their gradients as loop nests with register tiles.

Arrays are [batch, *spatial, channels] and filters [*window, channels of a group, outputs], both contiguous.

*Forward.* A tile holds the sums of some positions of a line times some vectors of outputs. For each tap and channel it
loads the vectors of weights, which are contiguous, and multiplies them by one broadcast element for each position.
Taps in the padding are omitted (see `lines`).

*Gradient by the input.* The same loop nest with other lines; the filter is first transposed into the scratch buffer, so
that its vectors are vectors of channels.

*Gradient by the filter.* A tile holds the sums of some channels of some taps times some vectors of outputs, over the
positions of one line.
"""

from __future__ import annotations

import contextlib
import enum
import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np

from headrace import thresholds
from headrace.opkit.windows import Axis
from headrace.records import record
from headrace.targets.native import threads
from headrace.targets.native.llvm_text import Function, Module
from headrace.targets.native.registers import Registers, of_host
from headrace.targets.native.windows.lines import Line, backward, forward, parts
from headrace.targets.native.windows.nest import Index, Nest, begin
from headrace.targets.native.windows.shares import each_image
from headrace.targets.native.windows.sweep import Block, Range, Row, Sweep, Taps, blocks, element, met

# Vectors and positions of a tile, at most; registers limit their product.
_VECTORS: Final = 4
_POSITIONS: Final = 14

# Products of a row of taps, times channels, and taps of a row, up to which they have no loop.
_WRITTEN_PRODUCTS: Final = 24
_WRITTEN_TAPS: Final = 16

# Channels of a chunk of the gradient by the filter, at least: they fill a cache line.
_CHUNK: Final = 16

_FLOAT: Final = np.dtype(np.float32)


class Kind(enum.Enum):
    """The convolution, or one of its gradients."""

    FORWARD = "forward"
    BY_INPUT = "by_input"
    BY_FILTER = "by_filter"


@record(frozen=True, slots=True)
class Convolution:
    """Geometry of a convolution.

    Attributes:
      kind: the result: that of the convolution, or a gradient.
      axes: the windows over the spatial axes, 1 to 3.
      channels: the channels of the input.
      outputs: the channels of the result.
      groups: the number of groups into which both are divided.
      dtype: float32 or float64.
      batch: the number of images; None if it is an argument.
    """

    kind: Kind
    axes: tuple[Axis, ...]
    channels: int
    outputs: int
    groups: int = 1
    dtype: np.dtype = _FLOAT
    batch: int | None = None


class _Dense(Sweep):
    """Writer of products of windows by filters: the convolution, or its gradient by the input."""

    def __init__(
        self,
        nest: Nest,
        registers: Registers,
        inputs: int,
        outputs: int,
        groups: int,
        source: Sequence[int],
        result: Sequence[int],
        window: Sequence[int],
    ) -> None:
        super().__init__(nest, (groups * inputs, groups * outputs), source, result)
        self.lanes, self.registers = registers.bytes // nest.size, registers.count
        self.inputs, self.outputs, self.groups = inputs, outputs, groups
        self.row = groups * outputs * nest.size
        self.of_window = [self.row * inputs * math.prod(window[k + 1 :]) for k in range(len(window))]
        self.weights = inputs * outputs * math.prod(window) * nest.size

    def write(self, batch: Index, lines: tuple[Line, ...], filters: str) -> None:
        """Writes the positions of `lines`."""
        nest = self.nest
        most = max(1, min(_VECTORS, self.registers // 4))
        with nest.loop(0, self.groups) as g:
            w = nest.at(filters, nest.mul(g, self.outputs * nest.size))
            x = nest.at("%x", nest.mul(g, self.inputs * nest.size))
            out = nest.at("%out", nest.mul(g, self.outputs * nest.size))
            if self.weights <= thresholds.WINDOW_WEIGHTS:
                with self.images(batch, x, out) as image, self.rows(lines, *image) as row:
                    for block in blocks(nest, self.outputs, self.lanes, most):
                        self.part(lines, block, 0, self.inputs, row, w)
                return
            for block in blocks(nest, self.outputs, self.lanes, most):
                each = math.prod(line.size for line in lines) * sum(block.lanes) * nest.size
                first = 0
                for chunk in parts(self.inputs, max(1, thresholds.WINDOW_WEIGHTS // max(1, each))):
                    with self.images(batch, x, out) as image, self.rows(lines, *image) as row:
                        self.part(lines, block, first, chunk, row, w)
                    first += chunk

    def part(self, lines: tuple[Line, ...], block: Block, first: int, chunk: int, row: Row, w: str) -> None:
        """Writes a row of one block of outputs.

        It adds the products of `chunk` inputs from `first` on."""
        nest, line, n = self.nest, lines[-1], len(block.lanes)
        widest = max(1, min(_POSITIONS, (self.registers - n - 1) // n))
        row = row.moved(nest, first * nest.size, nest.mul(block.first, nest.size))
        w = nest.at(w, nest.add(nest.mul(block.first, nest.size), first * self.row))
        for tile in self.tiles(line, widest, row):
            sums: list[list[str]] = []
            places = [p * line.step * self.pixel_out for p in range(tile.run.width)]
            for place in places:
                sums.append([])
                for v, lanes in block.vectors:
                    sums[-1].append(nest.variable(lanes))
                    before = (
                        nest.load(nest.at(tile.result, place + v * nest.size), lanes) if first else "zeroinitializer"
                    )
                    nest.put(sums[-1][-1], before, lanes)
            for taps in self.taps(lines, row, tile, _WRITTEN_PRODUCTS // chunk):
                weights = w
                for k, number in enumerate(taps.numbers):
                    index = nest.add(nest.mul(number, lines[k].weight_pitch), lines[k].weight)
                    weights = nest.at(weights, nest.mul(index, self.of_window[k]))
                self.products(line, block, chunk, taps, weights, sums)
            for place, mine in zip(places, sums, strict=True):
                for variable, (v, lanes) in zip(mine, block.vectors, strict=True):
                    nest.store(nest.get(variable, lanes), nest.at(tile.result, place + v * nest.size), lanes)

    def products(self, line: Line, block: Block, chunk: int, taps: Taps, w: str, sums: list[list[str]]) -> None:
        """Adds the products of one tap."""
        nest = self.nest
        with nest.loop(0, chunk) as c:
            x = nest.hidden(nest.at(taps.source, nest.mul(c, nest.size)))
            w = nest.hidden(nest.at(w, nest.mul(c, self.row)))
            weights = [nest.load(nest.at(w, v * nest.size), lanes) for v, lanes in block.vectors]
            for p in taps.positions:
                ones = nest.spread(nest.at(x, p * line.stride * self.pixel_in), block.lanes)
                for one, weight, variable, lanes in zip(ones, weights, sums[p], block.lanes, strict=True):
                    nest.put(variable, nest.multiply_add(one, weight, nest.get(variable, lanes), lanes), lanes)


class _ByFilter:
    """Writer of the gradient by the filter."""

    def __init__(self, nest: Nest, registers: Registers, spec: Convolution) -> None:
        self.nest, self.spec, self.axes = nest, spec, spec.axes
        self.lanes, self.registers = registers.bytes // nest.size, registers.count
        self.inputs, self.outputs = spec.channels // spec.groups, spec.outputs // spec.groups
        self.pixel_x, self.pixel_dy = spec.channels * nest.size, spec.outputs * nest.size
        lengths, counts, window = ([getattr(a, n) for a in spec.axes] for n in ("length", "count", "size"))
        self.of_x = [self.pixel_x * math.prod(lengths[k + 1 :]) for k in range(-1, len(lengths))]
        self.of_dy = [self.pixel_dy * math.prod(counts[k + 1 :]) for k in range(-1, len(counts))]
        self.row = spec.outputs * nest.size
        self.of_window = [self.row * self.inputs * math.prod(window[k + 1 :]) for k in range(len(window))]
        self.chunk = next((n for n in range(_CHUNK, self.inputs) if self.inputs % n == 0), self.inputs)

    @property
    def units(self) -> int:
        """The number of pairs of channels' chunk and taps of the outer axes."""
        return self.inputs // self.chunk * math.prod(a.size for a in self.axes[:-1])

    @property
    def units_each(self) -> int:
        """The number of units of a part."""
        return -(-self.units // thresholds.FILTER_GRADIENT_PARTS)

    def unit(self, number: Index) -> tuple[Index, list[Index], Index]:
        """The offset of a unit's channels, its taps, and its offset in the result."""
        nest = self.nest
        taps: list[Index] = []
        out: Index = 0
        for k, a in reversed([*enumerate(self.axes[:-1])]):
            rest = nest.divided(number, a.size)
            taps.insert(0, nest.add(number, nest.mul(rest, -a.size)))
            number = rest
            out = nest.add(out, nest.mul(taps[0], self.of_window[k]))
        return nest.mul(number, self.chunk * nest.size), taps, nest.add(out, nest.mul(number, self.chunk * self.row))

    def write(self, batch: Index, part: Index) -> None:
        """Writes the body of the function for a part."""
        nest, axes = self.nest, self.axes
        units = nest.mul(part, self.units_each), nest.least(self.units, nest.mul(nest.add(part, 1), self.units_each))
        with nest.loop(*units) as number, nest.loop(0, axes[-1].size) as tap:
            into = nest.add(self.unit(number)[2], nest.mul(tap, self.of_window[-1]))
            nest.clear(nest.at("%out", into), self.chunk * self.row)
        steps: list[int] = []
        room = thresholds.WINDOW_POSITIONS
        for a in reversed(axes):
            steps.insert(0, max(1, min(a.count, room)))
            room //= max(1, a.count)
        with contextlib.ExitStack() as stack:
            image = stack.enter_context(nest.loop(0, batch))
            x = nest.at("%x", nest.mul(image, self.of_x[0]))
            dy = nest.at("%w", nest.mul(image, self.of_dy[0]))
            swept = []
            for a, step in zip(axes, steps, strict=True):
                first = stack.enter_context(nest.loop(0, a.count, step))
                stop = nest.add(first, step)
                swept.append((first, stop if a.count % step == 0 else nest.least(a.count, stop)))
            g = stack.enter_context(nest.loop(0, self.spec.groups))
            x = nest.at(x, nest.mul(g, self.inputs * nest.size))
            dy, out = (nest.at(p, nest.mul(g, self.outputs * nest.size)) for p in (dy, "%out"))
            channels, taps, into = self.unit(stack.enter_context(nest.loop(*units)))
            x, out = nest.at(x, channels), nest.at(out, into)
            for block in blocks(nest, self.outputs, self.lanes, max(1, min(_VECTORS, self.registers // 4))):
                offset = nest.mul(block.first, nest.size)
                self.taps(block, swept, taps, x, nest.at(dy, offset), nest.at(out, offset))

    def taps(self, block: Block, swept: list[Range], taps: list[Index], x: str, dy: str, out: str) -> None:
        """Writes the taps of the last axis and the channels, in tiles."""
        nest, axis, n = self.nest, self.axes[-1], len(block.lanes)
        most = max(1, min(_POSITIONS, (self.registers - n - 1) // n))
        if self.chunk < most and axis.size <= _WRITTEN_TAPS:
            every: list[tuple[Index, int]] = [(number, c) for number in range(axis.size) for c in range(self.chunk)]
            for size in parts(len(every), most):
                some, every = every[:size], every[size:]
                number, c = some[0]
                into = nest.at(out, nest.add(nest.mul(number, self.of_window[-1]), c * self.row))
                self.tile(block, some, swept, taps, x, dy, into)
            return
        with nest.loop(0, axis.size) as tap:
            out = nest.at(out, nest.mul(tap, self.of_window[-1]))
            first, sizes = 0, parts(self.chunk, most)
            while sizes:
                size, tiles = sizes[0], sizes.count(sizes[0])
                with nest.loop(0, tiles) as i:
                    at = nest.add(first, nest.mul(i, size))
                    into, source = nest.at(out, nest.mul(at, self.row)), nest.at(x, nest.mul(at, nest.size))
                    self.tile(block, [(tap, j) for j in range(size)], swept, taps, source, dy, into)
                first, sizes = first + size * tiles, sizes[tiles:]

    def tile(
        self,
        block: Block,
        entries: list[tuple[Index, int]],
        swept: list[Range],
        taps: list[Index],
        x: str,
        dy: str,
        into: str,
    ) -> None:
        """Writes a tile: the sums for pairs of tap and channel, over the positions `swept`."""
        nest = self.nest
        places = [
            (j * self.row + sum(block.lanes[:v]) * nest.size, lanes)
            for j in range(len(entries))
            for v, lanes in enumerate(block.lanes)
        ]
        sums = []
        for offset, lanes in places:
            sums.append(nest.variable(lanes))
            nest.put(sums[-1], nest.load(nest.at(into, offset), lanes), lanes)
        with contextlib.ExitStack() as stack:
            for k, tap in enumerate(taps):
                a = self.axes[k]
                first, stop = swept[k]
                low, high = met(nest, a, tap)
                i = stack.enter_context(nest.loop(nest.greatest(first, low), nest.least(stop, high)))
                dy = nest.at(dy, nest.mul(i, self.of_dy[k + 1]))
                x = nest.at(x, nest.mul(element(nest, a, i, tap), self.of_x[k + 1]))
            for (low, high), some in self.ranges(entries, swept[-1]):
                with nest.loop(low, high) as i:
                    self.position(block, [(j, *entries[j]) for j in some], i, x, dy, sums)
        for variable, (offset, lanes) in zip(sums, places, strict=True):
            nest.store(nest.get(variable, lanes), nest.at(into, offset), lanes)

    def ranges(self, entries: list[tuple[Index, int]], swept: Range) -> Iterator[tuple[Range, list[int]]]:
        """Gives ranges of positions of the last axis, with their entries.

        The element of such an entry is no padding in the whole range."""
        nest, axis = self.nest, self.axes[-1]
        taps = list(dict.fromkeys(tap for tap, _ in entries))
        found = [met(nest, axis, tap) for tap in taps]
        first, stop = swept

        def clipped(low: Index, high: Index) -> Range:
            return nest.greatest(first, low), nest.least(stop, high)

        every = list(range(len(entries)))
        if len(taps) == 1:
            yield clipped(*found[0]), every
            return
        static = [(low, high) for low, high in found if isinstance(low, int) and isinstance(high, int)]
        low, high = max(low for low, _ in static), min(high for _, high in static)
        high = max(low, high)
        yield clipped(low, high), every
        for tap, (mine, until) in zip(taps, static, strict=True):
            some = [j for j in every if entries[j][0] == tap]
            for part in ((mine, min(low, until)), (max(high, mine), until)):
                if part[0] < part[1]:
                    yield clipped(*part), some

    def position(
        self, block: Block, entries: list[tuple[int, Index, int]], i: Index, x: str, dy: str, sums: list[str]
    ) -> None:
        """Writes the products at one position."""
        nest, n, axis = self.nest, len(block.lanes), self.axes[-1]
        base = entries[0][1]
        x = nest.hidden(nest.at(x, nest.mul(element(nest, axis, i, base), self.pixel_x)))
        dy = nest.hidden(nest.at(dy, nest.mul(i, self.pixel_dy)))
        values = [
            nest.load(nest.at(dy, sum(block.lanes[:v]) * nest.size), lanes) for v, lanes in enumerate(block.lanes)
        ]
        for j, tap, c in entries:
            offset = c * nest.size
            if isinstance(tap, int) and isinstance(base, int):
                offset += (tap - base) * axis.dilation * self.pixel_x
            address = nest.at(x, offset)
            for v, (one, lanes) in enumerate(zip(nest.spread(address, block.lanes), block.lanes, strict=True)):
                total = nest.multiply_add(one, values[v], nest.get(sums[j * n + v], lanes), lanes)
                nest.put(sums[j * n + v], total, lanes)


def _transpose(nest: Nest, spec: Convolution, registers: Registers) -> None:
    """Writes the filter into the scratch buffer with inputs and outputs of each group exchanged."""
    inputs, outputs = spec.channels // spec.groups, spec.outputs // spec.groups
    tap_bytes = inputs * spec.outputs * nest.size
    n = registers.bytes // nest.size
    many = (inputs // n * n, outputs // n * n)
    with (
        nest.loop(0, math.prod(a.size for a in spec.axes)) as tap,
        nest.loop(0, spec.groups) as g,
    ):
        w = nest.at("%w", nest.add(nest.mul(tap, tap_bytes), nest.mul(g, outputs * nest.size)))
        into = nest.at("%scratch", nest.add(nest.mul(tap, tap_bytes), nest.mul(g, inputs * nest.size)))
        from_row, into_row = spec.outputs * nest.size, spec.channels * nest.size
        if all(many):
            with nest.loop(0, many[0], n) as c, nest.loop(0, many[1], n) as o:
                source = nest.at(w, nest.add(nest.mul(c, from_row), nest.mul(o, nest.size)))
                place = nest.at(into, nest.add(nest.mul(o, into_row), nest.mul(c, nest.size)))
                rows = [nest.load(nest.at(source, j * from_row), n) for j in range(n)]
                for j, column in enumerate(nest.transposed(rows)):
                    nest.store(column, nest.at(place, j * into_row), n)
        rest = [((0, inputs), (many[1], outputs)), ((many[0], inputs), (0, many[1]))] if all(many) else []
        for (first_c, stop_c), (first_o, stop_o) in rest or [((0, inputs), (0, outputs))]:
            if first_c == stop_c or first_o == stop_o:
                continue
            with nest.loop(first_c, stop_c) as c, nest.loop(first_o, stop_o) as o:
                one = nest.load(nest.at(w, nest.add(nest.mul(c, from_row), nest.mul(o, nest.size))), 1)
                nest.store(one, nest.at(into, nest.add(nest.mul(o, into_row), nest.mul(c, nest.size))), 1)


def scratch_bytes(spec: Convolution) -> int:
    """Bytes of the scratch buffer of a convolution's function."""
    if spec.kind is not Kind.BY_INPUT:
        return 0
    return math.prod(a.size for a in spec.axes) * (spec.channels // spec.groups) * spec.outputs * spec.dtype.itemsize


def convolution(module: Module, spec: Convolution, name: str, registers: Registers | None = None) -> str:
    """Adds the function of a convolution, or of a gradient, to a module.

    The function has the signature `void(ptr out, ptr x, ptr w, ptr scratch[, i64 batch])`. The result is written to
    `out`, which no other argument may overlap; `scratch` has `scratch_bytes(spec)` bytes. The gradient by the input
    takes the gradient by the result as `x`, and the gradient by the filter takes it as `w`. Addresses are aligned to
    elements.

    Args:
      module: The module.
      spec: The geometry.
      name: The name of the function.
      registers: The vector registers of the processor; by default those of this machine.

    Returns:
      The name.
    """
    arrays, numbers = ("out", "x", "w", "scratch"), ["batch"] if spec.batch is None else []
    caller = Nest(begin(module, name, arrays, numbers), spec.dtype)
    if not _is_empty(spec):
        registers = registers or of_host()
        batch: Index = "%batch" if spec.batch is None else spec.batch
        if spec.kind is Kind.BY_FILTER:
            _filter_parts(caller, spec, registers, batch)
        else:
            if spec.kind is Kind.BY_INPUT:
                _transpose(caller, spec, registers)
            _image_parts(caller, spec, registers, batch)
    caller.f.line("ret void")
    return name


def _image_parts(caller: Nest, spec: Convolution, registers: Registers, batch: Index) -> None:
    """Writes the function of some images, and its calls."""
    name, arrays = f"{caller.f.name}.images", ("out", "x", "w", "scratch")
    nest = Nest(begin(caller.f.module, name, arrays, ["batch"], "internal"), spec.dtype)
    inputs, outputs = spec.channels // spec.groups, spec.outputs // spec.groups
    lengths, counts, window = ([getattr(a, n) for a in spec.axes] for n in ("length", "count", "size"))
    images = math.prod(lengths) * spec.channels * nest.size, math.prod(counts) * spec.outputs * nest.size
    if spec.kind is Kind.FORWARD:
        dense = _Dense(nest, registers, inputs, outputs, spec.groups, lengths, counts, window)
        dense.write("%batch", tuple(forward(a) for a in spec.axes), "%w")
        x, out = images
    else:
        dense = _Dense(nest, registers, outputs, inputs, spec.groups, counts, lengths, window)
        for lines in itertools.product(*(backward(a) for a in spec.axes)):
            dense.write("%batch", lines, "%scratch")
        out, x = images
    nest.f.line("ret void")
    each_image(caller, name, dict(zip(arrays, (out, x, 0, 0), strict=True)), batch, _cost(spec))


def _filter_parts(caller: Nest, spec: Convolution, registers: Registers, batch: Index) -> None:
    """Writes the function of a part of the gradient by the filter, and its calls."""
    name, arrays = f"{caller.f.name}.filter", ("out", "x", "w")
    nest = Nest(begin(caller.f.module, name, arrays, ["batch", "part"], "internal"), spec.dtype)
    writer = _ByFilter(nest, registers, spec)
    writer.write("%batch", "%part")
    nest.f.line("ret void")
    captured = [*(("ptr", f"%{array}") for array in arrays), ("i64", str(batch))]
    parts = -(-writer.units // writer.units_each)
    cost = caller.mul(batch, max(1, round(_cost(spec) / parts)))

    def body(g: Function, given: list[str], part: str) -> None:
        *addresses, images = given
        g.line(f"call void @{name}({', '.join(f'ptr {a}' for a in addresses)}, i64 {images}, i64 {part})")

    threads.each_part(caller.f, parts, captured, cost, body)


def _cost(spec: Convolution) -> float:
    """Estimated time of an image, in nanoseconds."""
    work = math.prod(a.count * a.size for a in spec.axes) * spec.channels * spec.outputs / spec.groups
    return thresholds.NATIVE_PRODUCT * work


def _is_empty(spec: Convolution) -> bool:
    """Whether the result has no elements."""
    if spec.batch == 0 and spec.kind is not Kind.BY_FILTER:
        return True
    sides = [a.length if spec.kind is Kind.BY_INPUT else a.count for a in spec.axes]
    return (spec.kind is not Kind.BY_FILTER and not math.prod(sides)) or not spec.channels or not spec.outputs
