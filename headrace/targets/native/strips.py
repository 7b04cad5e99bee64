"""Strips: loops over large arrays that run together on a few rows at a time.

A large array that one loop writes and another reads leaves the caches in between, and reductions that read the same
array load it once each. Where the first dimension is that of all these arrays, the loops can run on a strip of rows
after the other. A result that only the strip reads has memory for one strip. A reduction over the first axis adds
each strip to a total; nothing in the strips reads it.

The rows of a strip are a function of shapes alone, so the order of additions is too.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import TypeAlias

from headrace import thresholds
from headrace.opkit.forms import Form, Reduce, Reshape
from headrace.records import record
from headrace.schedule.program import Compute, Instr, Value
from headrace.schedule.select import Move
from headrace.targets.native import fusion
from headrace.targets.native.addends import with_addends
from headrace.targets.native.costs import Costs
from headrace.targets.native.fusion import Nest, deep_reads
from headrace.targets.native.rewriting import Division

Part: TypeAlias = Nest | Compute


@record(eq=False, slots=True)
class Strips:
    """Nests, reductions and views that run on one strip of rows after the other.

    Attributes:
      parts: The nests and other instructions, in order.
      rows: The first dimension of the arrays.
      kept: The results that other instructions read.
    """

    parts: list[Part]
    rows: int
    kept: tuple[Value, ...] = ()

    @property
    def made(self) -> tuple[Value, ...]:
        """The results of all parts."""
        return tuple([v for part in self.parts for v in part.made])

    @property
    def reads(self) -> tuple[Value, ...]:
        """The values that the parts read and do not make."""
        made = set(self.made)
        return tuple(dict.fromkeys(v for part in self.parts for v in _reads(part) if v not in made))

    @property
    def height(self) -> int:
        """The number of rows of a strip; the last one may have fewer."""
        widest = max(map(_size_of, self.parts)) // self.rows
        return max(1, min(self.rows, thresholds.STRIP_BYTES // widest))

    @property
    def cost(self) -> float:
        """Estimated time in nanoseconds."""
        costs = Costs()
        return sum(costs.instr(m) for part in self.parts for m in (part.maps if isinstance(part, Nest) else [part]))

    def strips(self) -> Iterator[tuple[int, int, int]]:
        """Ranges of rows with strips of one height: first row, end and height."""
        height = self.height
        whole = self.rows - self.rows % height
        yield 0, whole, height
        if whole < self.rows:
            yield whole, self.rows, self.rows - whole

    def takes(self, part: Part) -> bool:
        """Whether `part` reads an array of the strips and may run in them."""
        made = set(self.made)
        arrays = made.union(*map(_cut, self.parts))
        if arrays.isdisjoint(_cut(part)) or (is_view(part) and made.isdisjoint(_cut(part))):
            return False
        totals = {v for mine in self.parts if is_total(mine) for v in mine.made}
        return all(v in _cut(part) and v not in totals for v in _reads(part) if v in made)

    def is_worth_it(self) -> bool:
        """Whether the strips save accesses to memory."""
        if len(self.parts) < 2 or self.height < thresholds.STRIP_ROWS:
            return False
        return max(map(_size_of, self.parts)) >= thresholds.STRIPPED_BYTES


Unit: TypeAlias = Instr | Nest | Strips


def units(instrs: Sequence[Instr], results: Collection[Value]) -> list[Unit]:
    """Groups the maps and reductions of a block.

    Args:
      instrs: The instructions of the block.
      results: The values that are read behind them.

    Returns:
      The strips, nests and other instructions, in the order in which they run.
    """
    out: list[Unit] = []
    pending: list[Strips] = []

    def close(strips: Sequence[Strips]) -> None:
        for each in strips:
            pending.remove(each)
            out.extend([each] if each.is_worth_it() else each.parts)

    found = fusion.units(with_addends(instrs, results), results)
    if not any(rows_of(unit) and _size_of(unit) >= thresholds.STRIPPED_BYTES for unit in found):
        return list(found)
    for unit in found:
        rows = rows_of(unit)
        mine = None
        if rows:
            assert isinstance(unit, Nest | Compute)
            mine = next((s for s in pending if s.rows == rows and s.takes(unit)), None)
        if isinstance(unit, Instr) and unit.blocks:
            close(list(pending))
        else:
            reads = set(_reads(unit))
            close([s for s in pending if s is not mine and not reads.isdisjoint(s.made)])
        if mine is not None:
            assert isinstance(unit, Nest | Compute)
            mine.parts.append(unit)
        elif rows and not is_view(unit):
            assert isinstance(unit, Nest | Compute)
            pending.append(Strips([unit], rows))
        else:
            out.append(unit)
    close(list(pending))
    _mark_kept(out, results)
    return out


def rows_of(unit: Unit) -> int:
    """The first dimension of a unit that may run on strips of rows; else 0."""
    form = _form(unit)
    shape: Sequence[int | None] = ()
    if isinstance(unit, Nest):
        if not any(isinstance(m.work, Division) for m in unit.maps):  # divisors are compared with zero before
            shape = unit.shape
    elif isinstance(form, Reduce | Reshape):
        assert isinstance(unit, Compute)
        shape = unit.inputs[form.source].shape or ()
        if isinstance(form, Reshape) and form.shape[:1] != tuple(shape[:1]):
            shape = ()
    return shape[0] or 0 if shape and None not in shape else 0


def is_total(part: Unit) -> bool:
    """Whether a part is a reduction over rows."""
    form = _form(part)
    return isinstance(form, Reduce) and 0 in form.axes


def is_view(part: Unit) -> bool:
    """Whether a part is an array in another shape."""
    return isinstance(_form(part), Reshape)


def reduction(part: Unit) -> Reduce:
    """The form of a part that is a reduction."""
    form = _form(part)
    assert isinstance(form, Reduce)
    return form


def _form(part: Unit) -> Form | None:
    return part.work.form if isinstance(part, Compute) and isinstance(part.work, Move) else None


def cut_reads(part: Part) -> list[Value]:
    """The arrays of which a strip of a part reads its own rows."""
    if isinstance(part, Nest):
        rank, first = len(part.shape), part.shape[0]
        return [v for v in part.reads if v.shape is not None and len(v.shape) == rank and v.shape[0] == first]
    form = _form(part)
    assert isinstance(form, Reduce | Reshape)
    return [part.inputs[form.source]]


def _cut(part: Part) -> list[Value]:
    """The arrays of which a strip reads or writes its own rows."""
    return [*cut_reads(part), *(() if is_total(part) else part.made)]


def _size_of(part: Unit) -> int:
    """The bytes of the largest array that is cut."""
    return max((v.bytes for v in _cut(part)), default=0) if isinstance(part, Nest | Compute) else 0


def _reads(unit: Unit) -> Collection[Value]:
    return deep_reads(unit) if isinstance(unit, Instr) else unit.reads


def _mark_kept(found: Sequence[Unit], results: Collection[Value]) -> None:
    read = set(results)
    for unit in reversed(found):
        if isinstance(unit, Strips):
            for part in reversed(unit.parts):
                if is_view(part) and not read.isdisjoint(part.made):
                    read.update(_cut(part))
            unit.kept = tuple([v for v in unit.made if v in read])
        read.update(_reads(unit))
