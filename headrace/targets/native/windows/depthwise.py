"""Convolutions with a filter for each channel, and their gradients, as loop nests.

Arrays are [batch, *spatial, channels] and contiguous, the filter is [*window, channels]. The result and the gradient by
the input are sums of weighted elements, so both have the loops of a mean. The gradient by the filter sums over the
positions of a line in registers, and adds these sums in memory.
"""

from __future__ import annotations

import contextlib
import itertools
import math
from collections.abc import Sequence

import numpy as np

from headrace import thresholds
from headrace.opkit.windows import Axis
from headrace.records import record
from headrace.targets.native.llvm_text import Module
from headrace.targets.native.registers import Registers, of_host
from headrace.targets.native.windows.channelwise import POSITIONS, WRITTEN_TAPS, Channelwise
from headrace.targets.native.windows.convolution import Kind
from headrace.targets.native.windows.lines import Line, backward, forward
from headrace.targets.native.windows.nest import Index, Nest, begin
from headrace.targets.native.windows.shares import each_image
from headrace.targets.native.windows.sweep import Block, Row, met


@record(frozen=True, slots=True)
class Depthwise:
    """Geometry of a convolution with a filter for each channel.

    Attributes:
      kind: the result, or one of the gradients.
      axes: the windows over the spatial axes, 1 to 3.
      channels: the number of channels.
      dtype: float32 or float64.
    """

    kind: Kind
    axes: tuple[Axis, ...]
    channels: int
    dtype: np.dtype


class _Depthwise(Channelwise):
    """Writer of the loops of a geometry."""

    def __init__(self, nest: Nest, spec: Depthwise, registers: Registers) -> None:
        sides = [[getattr(a, name) for a in spec.axes] for name in ("length", "count")]
        if spec.kind is Kind.BY_INPUT:
            sides.reverse()
        super().__init__(nest, spec.channels, registers, *sides)
        self.axes = spec.axes

    def weights(self, filter: str, numbers: Sequence[Index], block: Block) -> str:
        """The address of the weights of an element of the window in a filter."""
        nest = self.nest
        at: Index = 0
        for axis, number in zip(self.axes, numbers, strict=True):
            at = nest.add(nest.mul(at, axis.size), number)
        return nest.at(filter, nest.mul(nest.add(nest.mul(at, self.channels), block.first), nest.size))

    def sums(self, lines: Sequence[Line]) -> None:
        """Writes the sum of the weighted elements for each position."""
        nest = self.nest
        with self.images("%batch", "%x", "%out") as image, self.rows(lines, *image) as every:
            for block, row in self.blocks(every):
                for tile in self.tiles(lines[-1], POSITIONS, row):
                    sums = self.begun(tile, block, nest.literal(0.0))
                    for taps in self.taps(lines, row, tile, WRITTEN_TAPS):
                        numbers = [
                            nest.add(line.weight, nest.mul(tap, line.weight_pitch))
                            for line, tap in zip(lines, taps.numbers, strict=True)
                        ]
                        at = self.weights("%w", numbers, block)
                        weights = [nest.load(nest.at(at, v * nest.size), lanes) for v, lanes in block.vectors]
                        every_weight = itertools.cycle(weights)
                        for variable, x, lanes in self.elements(taps, tile, block, lines[-1], sums):
                            total = nest.multiply_add(x, next(every_weight), nest.get(variable, lanes), lanes)
                            nest.put(variable, total, lanes)
                    self.ended(tile, block, lines[-1], sums)

    def by_filter(self) -> None:
        """Writes the gradient by the filter.

        The source of the sweep is the input, and its result the gradient `w`.
        """
        nest, lines = self.nest, [forward(a) for a in self.axes]
        nest.clear("%out", math.prod(a.size for a in self.axes) * self.pixel_out)
        with self.images("%batch", "%x", "%w") as image, self.rows(lines, *image) as every:
            for block, row in self.blocks(every):
                self.of_line(lines, row, block)

    def of_line(self, lines: Sequence[Line], row: Row, block: Block) -> None:
        """Adds the products of a line of positions to the gradient."""
        nest, axis, last = self.nest, self.axes[-1], lines[-1]
        with contextlib.ExitStack() as stack:
            source, numbers = row.source, []
            for k, (low, stop) in enumerate(row.taps):
                numbers.append(stack.enter_context(nest.loop(low, stop)))
                source = nest.at(source, nest.mul(numbers[-1], lines[k].pitch * self._of_source[k + 1]))
            for tap in range(axis.size):
                first, stop = met(nest, axis, tap)
                sums = [nest.variable(lanes) for lanes in block.lanes]
                for variable, lanes in zip(sums, block.lanes, strict=True):
                    nest.put(variable, nest.all_lanes(nest.literal(0.0), lanes), lanes)
                with nest.loop(first, stop) as position:
                    at = nest.add(nest.mul(position, last.stride), last.offset + tap * last.pitch)
                    x = nest.hidden(nest.at(source, nest.mul(at, self.pixel_in)))
                    g = nest.hidden(nest.at(row.result, nest.mul(position, self.pixel_out)))
                    for variable, (v, lanes) in zip(sums, block.vectors, strict=True):
                        a, b = (nest.load(nest.at(address, v * nest.size), lanes) for address in (x, g))
                        nest.put(variable, nest.multiply_add(a, b, nest.get(variable, lanes), lanes), lanes)
                into = self.weights("%out", [*numbers, tap], block)
                for variable, (v, lanes) in zip(sums, block.vectors, strict=True):
                    place, kind = nest.at(into, v * nest.size), nest.vector(lanes)
                    total = nest.f.op(f"fadd {kind} {nest.load(place, lanes)}, {nest.get(variable, lanes)}")
                    nest.store(total, place, lanes)


def depthwise(module: Module, spec: Depthwise, name: str, registers: Registers | None = None) -> str:
    """Adds the function of a depthwise convolution, or of a gradient, to a module.

    The function has the signature `void(ptr out, ptr x, ptr w, i64 batch)`. The result is written to `out`, which no
    other argument may overlap. `x` is the input, or for `BY_INPUT` the gradient by the result; `w` is the filter, or
    for `BY_FILTER` the gradient by the result. The function of `BY_FILTER` runs on one thread.

    Args:
      module: The module.
      spec: The geometry.
      name: The name of the function.
      registers: The vector registers of the processor; by default those of this machine.

    Returns:
      The name.
    """
    arrays = ("out", "x", "w")
    of_filter, of_images = spec.kind is Kind.BY_FILTER, f"{name}.images"
    function = begin(module, name if of_filter else of_images, arrays, ["batch"], "" if of_filter else "internal")
    nest = Nest(function, spec.dtype)
    writer = _Depthwise(nest, spec, registers or of_host())
    if of_filter:
        writer.by_filter()
        nest.f.line("ret void")
        return name
    for lines in itertools.product(*(backward(a) if spec.kind is Kind.BY_INPUT else [forward(a)] for a in spec.axes)):
        writer.sums(lines)
    nest.f.line("ret void")
    caller = nest.of(begin(module, name, arrays, ["batch"]))
    sides = [math.prod(getattr(a, side) for a in spec.axes) for side in ("count", "length")]
    out, x = (n * spec.channels * nest.size for n in (sides[::-1] if spec.kind is Kind.BY_INPUT else sides))
    cost = thresholds.NATIVE_POOLED * math.prod(a.count * a.size for a in spec.axes) * spec.channels
    each_image(caller, of_images, {"out": out, "x": x, "w": 0}, "%batch", cost)
    caller.f.line("ret void")
    return name
