"""Elementwise operations on large arrays, done a slice at a time.

numpy does one operation after the other, each on whole arrays. As long as these stay in the processor's cache, that is
as good as it gets: a call costs a third of a microsecond, and what it reads was written a moment ago. An array larger
than the cache comes from memory and goes back there at each step. Then it pays to go over the first axis in slices and
to do all the steps on one slice before the next one is touched: what is only passed on from step to step never leaves
the cache and never becomes a large array at all.

A `TiledGroup` is a run of operations for which that can be done: formulas of ufuncs (so they cannot fail, and a slice
of the result is the result of slices), all of one static shape. What else stands among them may stay there if it is
small and without effects: it moves before or behind the group. docs/internals/fusion.md has the measurements.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, TypeAlias

from headrace import shapes
from headrace.compile.scalar_expressions import Apply

if TYPE_CHECKING:
    from headrace.compile.regions import Item
    from headrace.ir.graph import Operation, Tensor

LARGE: Final = 4 << 20  # bytes of an array from which on slices are quicker
SLICE: Final = 256 << 10  # bytes of a slice of it
SMALL: Final = 4 << 10  # bytes of what may be moved out of the way
STEPS: Final = 3  # ufuncs that a group must have to pay

FormulaOf: TypeAlias = "Callable[[Operation], Apply | None]"


@dataclasses.dataclass(eq=False, slots=True)
class TiledGroup:
    """Operations that are done a slice at a time.

    Attributes:
      items: they, in order.
      shape: of all their results.
      axis: along which slices are made: the first one with more than one element.
      reads: the tensors that they read and do not make.
      reach: for each of `reads`, the position of the last item that reads it.
    """

    items: tuple[Item, ...]
    shape: tuple[int, ...]
    axis: int
    reads: tuple[Tensor, ...]
    reach: dict[Tensor, int]

    @property
    def made(self) -> tuple[Tensor, ...]:
        """What the items make."""
        return tuple(i.op.outputs[0] for i in self.items)

    @property
    def length(self) -> int:
        """How many elements the axis has."""
        return self.shape[self.axis]

    @property
    def step(self) -> int:
        """How many of them a slice has."""
        return max(1, SLICE // _row(self.shape, self.axis, self.items))

    def sliced(self, t: Tensor, bounds: str) -> str:
        """The index that takes the slice `bounds` of `t`; "" if `t` is the same for all slices."""
        assert t.shape is not None
        at = self.axis - len(self.shape) + len(t.shape)
        return f"[{':, ' * at}{bounds}]" if at >= 0 and t.shape[at] == self.length else ""


Unit: TypeAlias = "Item | TiledGroup"


def units(items: Sequence[Item], formula_of: FormulaOf) -> Sequence[Unit]:
    """The items of a block, some of them in groups; these have moved together.

    Args:
      items: in order.
      formula_of: what an operation computes, if that is a formula.
    """
    if not any(_is_large(item) for item in items):
        return items
    out: list[Unit] = []
    run: list[Item] = []  # what may become a group
    before: list[Item] = []  # small things among it that do not depend on it
    behind: list[Item] = []  # those that do
    late: set[Tensor] = set()  # what `run` and `behind` make

    def close() -> None:
        out.extend(before)
        out.extend(_group(run, formula_of))
        out.extend(behind)
        for part in (run, before, behind):
            part.clear()
        late.clear()

    for item in items:
        if _can_join(item, formula_of):
            moved = {t for b in behind for t in b.op.outputs}
            if run and (item.op.outputs[0].shape != run[0].op.outputs[0].shape or not moved.isdisjoint(item.reads)):
                close()
            run.append(item)
        elif not run:
            out.append(item)
            continue
        elif not _is_harmless(item):
            close()
            out.append(item)
            continue
        elif late.isdisjoint(item.reads):
            before.append(item)
            continue
        else:
            behind.append(item)
        late.update(item.op.outputs)
    close()
    return out


def _group(run: Sequence[Item], formula_of: FormulaOf) -> Sequence[Unit]:
    """`run` as a group, if that pays."""
    formulas = [formula_of(item.op) for item in run]
    if sum(map(_steps, formulas)) < STEPS:
        return run
    assert formulas[0] is not None  # or it could not have joined
    shape = formulas[0].shape
    assert shape is not None
    axis = next(k for k, d in enumerate(shape) if d > 1)
    made = {item.op.outputs[0] for item in run}
    reach = {t: i for i, item in enumerate(run) for t in item.reads if t not in made}
    return [TiledGroup(tuple(run), shape, axis, tuple(reach), reach)]


def fits(group: TiledGroup, wanted: Sequence[Tensor], dying: Sequence[Tensor], given: Sequence[Tensor]) -> bool:
    """Whether `group` needs no more memory in slices than one operation after the other.

    Args:
      wanted: what it makes that is read behind it.
      dying: what it reads that nobody reads any more behind it.
      given: those of `dying` whose arrays become some of `wanted`.
    """
    size = {t: _bytes(t) for t in (*group.made, *dying)}
    in_slices = sum(size[t] for t in (*wanted, *dying)) - sum(size[t] for t in given)
    last = dict(group.reach)
    for i, item in enumerate(group.items):
        last.update(dict.fromkeys((t for t in item.reads if t not in group.reach), i))
    mine = {*dying, *group.made} - set(wanted)
    live = most = sum(size[t] for t in dying)
    for i, item in enumerate(group.items):
        live += size[item.op.outputs[0]]
        ending = [t for t in dict.fromkeys(item.reads) if t in mine and last[t] == i]
        reused = max((size[t] for t in ending if size[t] == size[item.op.outputs[0]]), default=0)
        most = max(most, live - reused)
        live -= sum(size[t] for t in ending)
    return in_slices <= most


def _can_join(item: Item, formula_of: FormulaOf) -> bool:
    op = item.op
    if not _is_large(item) or not op.opdef.is_pure or op.control_inputs or any(t.dtype.is_ref for t in op.inputs):
        return False
    found, shape = formula_of(op), op.outputs[0].shape
    if found is None or found.shape != shape or not all(shapes.is_full(t.shape) for t in op.inputs):
        return False
    axis = next(k for k, d in enumerate(found.shape or ()) if d > 1)
    return 2 * _row(found.shape or (), axis, (item,)) <= SLICE


def _is_large(item: Item) -> bool:
    return not item.kind and item.live == (0,) and len(item.op.outputs) == 1 and _bytes(item.op.outputs[0]) >= LARGE


def _is_harmless(item: Item) -> bool:
    """Whether nobody notices when an item is done."""
    op = item.op
    if item.kind or not op.opdef.is_pure or op.control_inputs or any(t.dtype.is_ref for t in op.inputs):
        return False
    return all(0 <= _bytes(t) <= SMALL for t in op.outputs)


def _bytes(t: Tensor) -> int:
    """The size of an array; -1 if that is not known."""
    size = shapes.size(t.shape) if shapes.is_full(t.shape) else None
    return -1 if size is None else size * t.dtype.base.numpy.itemsize


def _row(shape: Sequence[int], axis: int, items: Sequence[Item]) -> int:
    """The bytes of one element of an axis, in the widest of what `items` make."""
    return (shapes.size(tuple(shape[axis + 1 :])) or 1) * max(i.op.outputs[0].dtype.base.numpy.itemsize for i in items)


def _steps(node: object) -> int:
    """The ufuncs of a formula, those that are read twice counted twice."""
    return 1 + sum(map(_steps, node.args)) if isinstance(node, Apply) else 0
