"""Printing of reads and writes at positions that are not static.

One position is a view: its address is computed and nothing is copied. For an array of positions a loop copies, or
combines, one piece after the other. Each coordinate is compared with the size of its axis first. Where one is out of
range, the kernel of the operation makes the error (`kernel_errors`), so both have one text. The
position of an extreme is found by a loop along its axis.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

import numpy as np

from headrace.ir.kernel_errors import SHOWN
from headrace.opkit.forms import Extreme, Put, Take, part_shape
from headrace.schedule.program import Compute, Value
from headrace.schedule.scalar_expressions import Apply, Input
from headrace.schedule.select import Move
from headrace.targets.native import scalars
from headrace.targets.native.arrays import ArrayPrinter
from headrace.targets.native.grown import is_array
from headrace.targets.native.held import Array, Number
from headrace.targets.native.plan import Home, dims, piece, reshaped, row_major

if TYPE_CHECKING:
    from headrace.opkit.forms import Index, Positions

_INT64: Final = np.dtype(np.int64)


class IndexPrinter(ArrayPrinter):
    """Prints reads and writes at positions; part of `printer.Printer`."""

    def move(self, instr: Compute) -> None:
        """Prints a movement, a reduction or a product."""
        assert isinstance(instr.work, Move)
        match instr.work.form:
            case Take() as form:
                self._take(instr, form)
            case Put() as form:
                self._put(instr, form)
            case Extreme() as form:
                self._extreme_position(instr, form)
            case _:
                super().move(instr)

    # *** Positions ***

    def _indices(self, instr: Compute, at: Positions) -> Array | str:
        """The array of coordinates, or the i64 of a single one; "" without any."""
        if not at.axes:
            return ""
        if is_array(instr.inputs[at.source]):
            return self.copied(instr, at.source)
        return self.index(instr.inputs[at.source])

    def _coordinates(self, at: Positions, indices: Array | str, number: str) -> list[str]:
        """The i64 coordinates of a position."""
        if isinstance(indices, str):
            return [indices] if indices else []
        start = self._advanced("0", number, at.group)
        found = []
        for offset in at.offsets:
            to = str(offset) if start == "0" else self.f.op(f"add nsw i64 {start}, {offset}") if offset else start
            found.append(scalars.convert(self.f, self.load(indices, to), indices.dtype, _INT64))
        return found

    def _offset(
        self, instr: Compute, at: Positions, index: Index, coordinates: Sequence[str], whole: Array, number: str
    ) -> tuple[str, str]:
        """Prints the test of the coordinates of a position.

        Returns:
          The offset of its piece; and the i1 that is true if the position is skipped, "" if none is.
        """
        f, offset, bad = self.f, "0", ""
        for axis, given in zip(at.axes, coordinates, strict=True):
            size, coordinate, part = whole.dims[axis], given, index[axis]
            if isinstance(part, slice):
                size -= part.stop - 1
            if at.negative == "from last":
                is_negative = f.op(f"icmp slt i64 {given}, 0")
                coordinate = f.op(f"select i1 {is_negative}, i64 {f.op(f'add i64 {given}, {size}')}, i64 {given}")
            above = f.op(f"icmp uge i64 {coordinate}, {size}")
            bad = f.op(f"or i1 {bad}, {above}") if bad else above
            offset = self._advanced(offset, coordinate, whole.strides[axis])
        if bad and not at.skips_bad:
            self.fail_if(bad, instr, "index", number, *coordinates, *self._shown(instr.inputs[at.source]))
        return offset, bad if at.skips_bad else ""

    def _shown(self, positions: Value) -> list[str]:
        """The i64 of all positions, if an error shows so few."""
        if not is_array(positions):
            return [self.index(positions)]
        if math.prod(dims(positions)) > SHOWN:
            return []
        found: list[str] = []
        array = self.array(positions)
        for at in np.ndindex(*array.dims):
            offset = sum(i * stride for i, stride in zip(at, array.strides, strict=True))
            found.append(scalars.convert(self.f, self.load(array, str(offset)), array.dtype, _INT64))
        return found

    @contextlib.contextmanager
    def _unless(self, skipped: str) -> Iterator[None]:
        """Prints instructions that do not run if an i1 is true; "" is false."""
        f, run, on = self.f, self.f.new("run"), self.f.new("on")
        if skipped:
            f.branch(skipped, on, run)
            f.begin(run)
        yield
        if skipped:
            f.jump(on)
            f.begin(on)

    def _piece(self, whole: Array, index: Index) -> Array:
        """The piece of an array whose coordinates are 0."""
        offset, strides = piece(whole.dims, whole.strides, index)
        return Array(self.shifted(whole, offset), whole.dtype, part_shape(whole.dims, index), strides)

    # *** Reads and writes ***

    def _take(self, instr: Compute, form: Take) -> None:
        (out,) = instr.made
        at = form.at
        whole = self.array(instr.inputs[form.source])
        first = self._piece(whole, form.index)
        indices = self._indices(instr, at)
        if not at.shape:
            offset, _ = self._offset(instr, at, form.index, self._coordinates(at, indices, "0"), whole, "0")
            strides = reshaped(first.dims, first.strides, dims(out))
            assert strides is not None
            self.define(out, Array(self.at(first, offset), whole.dtype, dims(out), strides))
            return
        batch, inner = at.shape[: form.batch], math.prod(at.shape[form.batch :])
        target = self.zeros(out) if at.skips_bad else self.place_of(out)
        behind = form.first + len(at.shape) - form.batch
        strides = (*target.strides[form.batch : form.first], *target.strides[behind:])
        shape = first.shape[form.batch :]

        def each_batch(offsets: Sequence[str]) -> None:
            with self.f.loop("0", str(inner)) as i:
                number = self._sum(offsets[2], i)
                coordinates = self._coordinates(at, indices, number)
                offset, skipped = self._offset(instr, at, form.index, coordinates, whole, number)
                with self._unless(skipped):
                    source = Array(
                        self.at(first, self._sum(offsets[0], offset)), whole.dtype, shape, first.strides[form.batch :]
                    )
                    place = self._sum(offsets[1], self._advanced("0", i, target.strides[behind - 1]))
                    self.copy(Array(self.at(target, place), target.dtype, shape, strides), source)

        numbers = tuple([n * inner for n in row_major(batch)])
        self.each(batch, (first.strides[: form.batch], target.strides[: form.batch], numbers), each_batch, False)
        self.values[out] = target

    def _put(self, instr: Compute, form: Put) -> None:
        (out,), at, f = instr.made, form.at, self.f
        indices = self._indices(instr, at)
        target = self.zeros(out) if form.base is None else self._based(instr, form.base)
        self.values[out] = target
        first = self._piece(target, form.index)
        updates = self.array_or_number(instr.inputs[form.source])
        if not at.shape:
            coordinates = self._coordinates(at, indices, "0")
            pointer = self.at(first, self._offset(instr, at, form.index, coordinates, target, "0")[0])
            if isinstance(updates, Array):
                strides = reshaped(updates.dims, updates.strides, first.dims)
                assert strides is not None
                updates = dataclasses.replace(updates, shape=first.shape, strides=strides)
            self._combine(dataclasses.replace(first, pointer=pointer), updates, form.ufunc)
            return
        given = self.copied(instr, form.source)
        size = math.prod(first.dims)
        part = Array("", given.dtype, first.shape, given.strides[len(at.shape) :])
        with f.loop("0", str(math.prod(at.shape))) as number:
            coordinates = self._coordinates(at, indices, number)
            is_negative = f.op(f"icmp slt i64 {coordinates[0]}, 0") if at.negative == "skipped" else ""
            with self._unless(is_negative):
                offset, skipped = self._offset(instr, at, form.index, coordinates, target, number)
                with self._unless(skipped):
                    source = dataclasses.replace(part, pointer=self.at(given, self._advanced("0", number, size)))
                    self._combine(dataclasses.replace(first, pointer=self.at(first, offset)), source, form.ufunc)

    def _based(self, instr: Compute, base: int) -> Array:
        """The memory of the result, with a copy of the array that is changed."""
        (out,) = instr.made
        f, target, source = self.f, self.place_of(out), self.array(instr.inputs[base])
        place = self.plan.places[out]
        if not isinstance(place, Home) or not place.is_in_place:
            self.copy(target, source)
            return target
        copy, on = f.new("copy"), f.new("on")  # the first iteration has the initial value, in other memory
        f.branch(f.op(f"icmp eq ptr {target.pointer}, {source.pointer}"), on, copy)
        f.begin(copy)
        self.copy(target, source)
        f.jump(on)
        f.begin(on)
        return target

    def _combine(self, target: Array, source: Array | Number, ufunc: np.ufunc | None) -> None:
        """Prints the replacement of a piece, or its combination with another one."""
        dtype = target.dtype
        if ufunc is None:
            if isinstance(source, Array):
                self.copy(target, source)
            else:
                scalars.store(self.f, dtype, source.text, target.pointer)
            return
        assert isinstance(source, Array)
        expression = Apply(ufunc, (Input(0), Input(1)), dtype, None)

        def element(at: Sequence[str]) -> None:
            numbers = self.load(target, at[0]), self.load(source, at[1])
            self.store(target, scalars.expression(self.f, expression, numbers, [dtype, dtype]), at[0])

        self.each(target.shape, (target.strides, source.strides), element)

    # *** Extremes ***

    def _extreme_position(self, instr: Compute, form: Extreme) -> None:
        f, (out,) = self.f, instr.made
        source, target = self.array(instr.inputs[form.source]), self._target(out)
        dtype, k = source.dtype, form.axis
        kind, is_float = scalars.register_type(dtype), dtype.kind not in "iu"
        worst = -np.inf if form.is_greatest else np.inf
        name = "gt" if form.is_greatest else "lt"
        test = f"fcmp o{name}" if is_float else f"icmp {'s' if dtype.kind == 'i' else 'u'}{name}"
        best, position = f.alloca(kind), f.alloca("i64")

        def element(at: Sequence[str]) -> None:
            first = self.load(source, at[0])
            if is_float:  # NaN is the last one in order
                is_nan = f.op(f"fcmp uno {kind} {first}, 0.0")
                first = f.op(f"select i1 {is_nan}, {kind} {scalars.literal(worst, dtype)}, {kind} {first}")
            f.line(f"store {kind} {first}, ptr {best}")
            f.line(f"store i64 0, ptr {position}")
            with f.loop("1", str(source.dims[k])) as i:
                x = self.load(source, self._advanced(at[0], i, source.strides[k]))
                so_far = f.op(f"load {kind}, ptr {best}")
                is_better = f.op(f"{test} {kind} {x}, {so_far}")
                f.line(f"store {kind} {f.op(f'select i1 {is_better}, {kind} {x}, {kind} {so_far}')}, ptr {best}")
                before = f.op(f"load i64, ptr {position}")
                f.line(f"store i64 {f.op(f'select i1 {is_better}, i64 {i}, i64 {before}')}, ptr {position}")
            found = scalars.convert(f, f.op(f"load i64, ptr {position}"), _INT64, target.dtype)
            self.store(target, found, at[1])

        rest, strides = ((*x[:k], *x[k + 1 :]) for x in (source.dims, source.strides))
        self.each(rest, (strides, target.strides), element, False)
        self.define(out, target)
