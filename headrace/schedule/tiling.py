"""Tiling: elementwise operations on large arrays, one slice at a time.

numpy runs one operation after the other, each on whole arrays. While the arrays fit in the processor's cache, this is
fast: a call costs a third of a microsecond, and its operands are in the cache. An array larger than the cache is read
from memory and written back by each operation. Then it is faster to cut the first axis into slices and to run all
operations on one slice before the next one. An intermediate result then never leaves the cache, and no large array is
made for it.

A `TiledGroup` is a sequence of operations that allow this: scalar expressions of ufuncs, all of one static shape. They
cannot fail, and a slice of the result is the result of slices. Other operations between them are allowed if their
results are small and they have no effects: they move before or behind the group. docs/internals/fusion.md has the
measurements.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeAlias

from headrace import shapes, thresholds
from headrace.schedule.scalar_expressions import Apply

if TYPE_CHECKING:
    from headrace.ir.graph import Tensor
    from headrace.schedule.regions import Item


ExpressionOf: TypeAlias = "Callable[[Item], Apply | None]"


@dataclasses.dataclass(eq=False, slots=True)
class TiledGroup:
    """Operations that run one slice at a time.

    Attributes:
      items: The operations, in order.
      shape: The shape of all their results.
      axis: The axis that is cut: the first one with more than one element.
      reads: The tensors that the group reads and does not compute.
      reach: For each of `reads`, the position of the last item that reads it.
    """

    items: tuple[Item, ...]
    shape: tuple[int, ...]
    axis: int
    reads: tuple[Tensor, ...]
    reach: dict[Tensor, int]

    @property
    def made(self) -> tuple[Tensor, ...]:
        """Outputs of the items."""
        return tuple(i.op.outputs[0] for i in self.items)

    @property
    def length(self) -> int:
        """Number of elements of the axis that is cut."""
        return self.shape[self.axis]

    @property
    def step(self) -> int:
        """Number of elements of the axis in a slice."""
        return max(1, thresholds.TILE_BYTES // _row(self.shape, self.axis, self.items))

    def sliced(self, t: Tensor, bounds: str) -> str:
        """The index for slice `bounds` of `t`; "" if all slices read all of `t`."""
        assert t.shape is not None
        at = self.axis - len(self.shape) + len(t.shape)
        return f"[{':, ' * at}{bounds}]" if at >= 0 and t.shape[at] == self.length else ""


Unit: TypeAlias = "Item | TiledGroup"


def units(items: Sequence[Item], expression_of: ExpressionOf) -> Sequence[Unit]:
    """Groups items of a region, which moves the items of a group together.

    Args:
      items: The items, in order.
      expression_of: Returns the scalar expression of an item, or None.

    Returns:
      The items and groups, in order.
    """
    if not any(_is_large(item) for item in items):
        return items
    out: list[Unit] = []
    run: list[Item] = []  # candidates for a group
    before: list[Item] = []  # small items among them that do not depend on them
    behind: list[Item] = []  # small items among them that do
    late: set[Tensor] = set()  # outputs of `run` and `behind`

    def close() -> None:
        out.extend(before)
        out.extend(_group(run, expression_of))
        out.extend(behind)
        for part in (run, before, behind):
            part.clear()
        late.clear()

    for item in items:
        if _can_join(item, expression_of):
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


def _group(run: Sequence[Item], expression_of: ExpressionOf) -> Sequence[Unit]:
    """Makes a group of `run` if that pays; else returns its items."""
    expressions = [expression_of(item) for item in run]
    if sum(map(_steps, expressions)) < thresholds.TILED_UFUNCS:
        return run
    assert expressions[0] is not None  # ensured by `_can_join`
    shape = expressions[0].shape
    assert shape is not None
    axis = next(k for k, d in enumerate(shape) if d > 1)
    made = {item.op.outputs[0] for item in run}
    reach = {t: i for i, item in enumerate(run) for t in item.reads if t not in made}
    return [TiledGroup(tuple(run), shape, axis, tuple(reach), reach)]


def fits(group: TiledGroup, wanted: Sequence[Tensor], dying: Sequence[Tensor], given: Sequence[Tensor]) -> bool:
    """Whether `group` needs no more memory in slices than one operation after the other.

    Args:
      group: The group.
      wanted: Its outputs that are read behind it.
      dying: Its inputs that have no reader behind it.
      given: Those of `dying` whose arrays are reused for some of `wanted`.
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


def _can_join(item: Item, expression_of: ExpressionOf) -> bool:
    op = item.op
    if not _is_large(item) or not op.opdef.is_pure or op.control_inputs or any(t.dtype.is_ref for t in op.inputs):
        return False
    found, shape = expression_of(item), op.outputs[0].shape
    if found is None or found.shape != shape or not all(shapes.is_full(t.shape) for t in op.inputs):
        return False
    axis = next(k for k, d in enumerate(found.shape or ()) if d > 1)
    return 2 * _row(found.shape or (), axis, (item,)) <= thresholds.TILE_BYTES


def _is_large(item: Item) -> bool:
    return (
        not item.kind
        and item.live == (0,)
        and len(item.op.outputs) == 1
        and _bytes(item.op.outputs[0]) >= thresholds.TILED_BYTES
    )


def _is_harmless(item: Item) -> bool:
    """Whether `item` may move, because it is pure and its results are small."""
    op = item.op
    if item.kind or not op.opdef.is_pure or op.control_inputs or any(t.dtype.is_ref for t in op.inputs):
        return False
    return all(0 <= _bytes(t) <= thresholds.MOVED_BYTES for t in op.outputs)


def _bytes(t: Tensor) -> int:
    """Size of an array in bytes; -1 if it is unknown."""
    size = shapes.size(t.shape) if shapes.is_full(t.shape) else None
    return -1 if size is None else size * t.dtype.base.numpy.itemsize


def _row(shape: Sequence[int], axis: int, items: Sequence[Item]) -> int:
    """Bytes of one element of an axis, in the widest dtype of `items`."""
    return (shapes.size(tuple(shape[axis + 1 :])) or 1) * max(i.op.outputs[0].dtype.base.numpy.itemsize for i in items)


def _steps(node: object) -> int:
    """Number of ufuncs of a scalar expression, counting shared ones once per reader."""
    return 1 + sum(map(_steps, node.args)) if isinstance(node, Apply) else 0
