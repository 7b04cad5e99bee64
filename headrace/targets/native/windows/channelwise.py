"""Tiles of windows over single channels: positions of a line and vectors of channels."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from headrace.targets.native.registers import Registers
from headrace.targets.native.windows.lines import Line
from headrace.targets.native.windows.nest import Nest
from headrace.targets.native.windows.sweep import Block, Row, Sweep, Taps, Tile, blocks

#: Vectors and positions of a tile, at most.
VECTORS: Final = 4
POSITIONS: Final = 4

#: Taps of the last axis up to which they have no loop.
WRITTEN_TAPS: Final = 8


class Channelwise(Sweep):
    """Writer of loops over tiles, with a variable for each position and vector.

    Args:
      nest: The function's writer.
      channels: The number of channels.
      registers: The vector registers of the processor.
      source: The spatial axes of the source.
      result: The spatial axes of the result.

    Attributes:
      channels: The argument.
      lanes: The channels of a vector.
    """

    def __init__(
        self, nest: Nest, channels: int, registers: Registers, source: Sequence[int], result: Sequence[int]
    ) -> None:
        super().__init__(nest, (channels, channels), source, result)
        self.channels, self.lanes = channels, registers.bytes // nest.size

    def blocks(self, row: Row) -> Iterator[tuple[Block, Row]]:
        """Writes loops over blocks of channels; gives each with its row."""
        for block in blocks(self.nest, self.channels, self.lanes, VECTORS):
            offset = self.nest.mul(block.first, self.nest.size)
            yield block, row.moved(self.nest, offset, offset)

    def begun(self, tile: Tile, block: Block, start: str) -> list[list[str]]:
        """Variables with a value in all lanes."""
        nest, found = self.nest, []
        for _ in range(tile.run.width):
            found.append([nest.variable(lanes) for lanes in block.lanes])
            for variable, lanes in zip(found[-1], block.lanes, strict=True):
                nest.put(variable, nest.all_lanes(start, lanes), lanes)
        return found

    def elements(
        self, taps: Taps, tile: Tile, block: Block, line: Line, variables: list[list[str]]
    ) -> Iterator[tuple[str, str, int]]:
        """Loads the elements of a tap; gives the variable, the vector and its lanes."""
        nest = self.nest
        source = nest.hidden(taps.source)
        for p in taps.positions:
            for variable, (v, lanes) in zip(variables[p], block.vectors, strict=True):
                offset = p * line.stride * self.pixel_in + v * nest.size
                yield variable, nest.load(nest.at(source, offset), lanes), lanes

    def ended(
        self, tile: Tile, block: Block, line: Line, variables: list[list[str]], divisors: Sequence[str | None] = ()
    ) -> None:
        """Stores the variables, divided by the divisor of each position."""
        nest = self.nest
        for p, mine in enumerate(variables):
            divisor = divisors[p] if divisors else None
            for variable, (v, lanes) in zip(mine, block.vectors, strict=True):
                value, kind = nest.get(variable, lanes), nest.vector(lanes)
                if divisor is not None:
                    value = nest.f.op(f"fdiv {kind} {value}, {nest.all_lanes(divisor, lanes)}")
                place = nest.at(tile.result, p * line.step * self.pixel_out + v * nest.size)
                nest.store(value, place, lanes)
