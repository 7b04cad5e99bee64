"""Printing of running results, of the greatest elements, and of moves to static places (`opkit.order_forms`)."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from headrace.opkit.forms import Accumulate, Assemble, Top
from headrace.schedule.scalar_expressions import Apply, Input
from headrace.schedule.select import Move
from headrace.targets.native import scalars
from headrace.targets.native.arrays import ArrayPrinter
from headrace.targets.native.held import Array
from headrace.targets.native.ranking import top

if TYPE_CHECKING:
    from headrace.opkit.forms import Lattice
    from headrace.schedule.program import Compute


class OrderPrinter(ArrayPrinter):
    """Prints operations that depend on the order of elements; part of `printer.Printer`."""

    def move(self, instr: Compute) -> None:
        """Prints a movement, a reduction or a product."""
        assert isinstance(instr.work, Move)
        match instr.work.form:
            case Accumulate() as form:
                self._accumulation(instr, form)
            case Assemble() as form:
                self._assemble(instr, form)
            case Top() as form:
                self._top(instr, form)
            case _:
                super().move(instr)

    def _assemble(self, instr: Compute, form: Assemble) -> None:
        (out,) = instr.made
        target = self.place_of(out)
        has_others = sum(math.prod(part.shape) for part in form.parts) < math.prod(form.shape)
        if form.base is not None:
            self.copy(target, self.array(instr.inputs[form.base]))
        elif has_others and form.fill is None:
            self.zeros(out)
        elif has_others and form.fill is not None:
            number = self.number(instr.inputs[form.fill])
            self.each(target.shape, (target.strides,), lambda at: self.store(target, number, at[0]))
        for part in form.parts:
            source = self._on(self.array(instr.inputs[part.source]), part.shape, part.taken)
            self.copy(self._on(target, part.shape, part.put), source)
        self.values[out] = target

    def _top(self, instr: Compute, form: Top) -> None:
        source, count = self.copied(instr, form.source), form.count
        size = source.dims[-1]
        dtypes = source.dtype, form.indices
        name = top(self.module, size, count, *dtypes)
        targets: list[Array | None] = [None if v is None else self.place_of(v) for v in instr.outputs]
        with self.f.loop("0", str(math.prod(source.dims[:-1]))) as row:
            addresses = []
            for target, dtype in zip(targets, dtypes, strict=True):
                if target is None:
                    addresses.append(self.f.alloca(f"[{count * dtype.itemsize} x i8]", 16))
                else:
                    addresses.append(self.at(target, self._advanced("0", row, count)))
            addresses.append(self.at(source, self._advanced("0", row, size)))
            self.f.line(f"call void {name}({', '.join(f'ptr {a}' for a in addresses)})")
        self.values.update(
            {v: a for v, a in zip(instr.outputs, targets, strict=True) if v is not None and a is not None}
        )

    def _on(self, array: Array, shape: tuple[int, ...], places: Lattice) -> Array:
        """The elements of an array at regular places."""
        distances = [_distance(step, array.strides) for step in places.steps]
        pointer = self.shifted(array, _distance(places.first, array.strides))
        return Array(pointer, array.dtype, shape, tuple(distances))

    def _accumulation(self, instr: Compute, form: Accumulate) -> None:
        """Prints running results; each is computed from that of the place before."""
        (out,), k = instr.made, form.axis
        source, target = self.array(instr.inputs[form.source]), self.place_of(out)
        size, dtype = source.dims[k], source.dtype
        axes = [source.strides[k], target.strides[k]]
        if form.is_reverse:
            ends = [self.shifted(array, (size - 1) * array.strides[k]) for array in (source, target)]
            source, target = (dataclasses.replace(a, pointer=p) for a, p in zip((source, target), ends, strict=True))
            axes = [-step for step in axes]
        expression = Apply(form.ufunc, (Input(0), Input(1)), dtype, None)
        lag = int(form.is_exclusive)

        def row(i: str, is_first: bool) -> None:
            """Prints the results of a place; the first one copies an element."""
            x, y, before = self._advanced("0", i, axes[0]), self._advanced("0", i, axes[1]), f"{-axes[1]}"

            def element(at: Sequence[str]) -> None:
                number = self.load(source, self._sum(at[0], x, f"{-lag * axes[0]}"))
                if not is_first:
                    so_far = self.load(target, self._sum(at[1], y, before))
                    number = scalars.expression(self.f, expression, (so_far, number), [dtype, dtype])
                self.store(target, number, self._sum(at[1], y))

            self.each(rest, strides, element)

        rest = [*source.shape[:k], *source.shape[k + 1 :]]
        strides = [[*a.strides[:k], *a.strides[k + 1 :]] for a in (source, target)]
        if form.is_exclusive:
            start = scalars.literal(form.start, dtype)
            self.each(rest, strides, lambda at: self.store(target, start, at[1]))
        if lag < size:
            row(str(lag), True)
        if lag + 1 < size:
            with self.f.loop(str(lag + 1), str(size)) as i:
                row(i, False)
        self.values[out] = self.place_of(out)


def _distance(coordinates: Sequence[int], strides: Sequence[int]) -> int:
    """The distance of an element from that with the coordinates 0, in elements."""
    return sum(c * stride for c, stride in zip(coordinates, strides, strict=True))
