"""Tiling: elementwise operations on large arrays, one slice at a time.

numpy runs one operation after the other, each on whole arrays. While the arrays fit in the processor's cache, this is
fast: a call costs a third of a microsecond, and its operands are in the cache. An array larger than the cache is read
from memory and written back by each operation. Then it is faster to cut the first axis into slices and to run all
operations on one slice before the next one. An intermediate result then never leaves the cache, and no large array is
made for it.

A `Group` is a sequence of maps that allow this, all of one static shape. They cannot fail, and a slice of the result is
the result of slices. Other instructions between them are allowed if their results are small and they have no effects:
they move before or behind the group. `headrace docs internals/fusion` has the measurements.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING

from headrace import shapes, thresholds
from headrace.schedule.buffers import can_hold
from headrace.schedule.lifetimes import changed, retained
from headrace.schedule.program import Block, Compute, Convert, Group, Instr, Read, Value
from headrace.schedule.scalar_expressions import Apply
from headrace.schedule.select import Map

if TYPE_CHECKING:
    from headrace.ir.graph import Tensor
    from headrace.schedule.program import Program
    from headrace.schedule.regions import Region


def tile(program: Program) -> None:
    """Puts maps of large arrays into groups, which moves the maps of a group together."""
    for block in list(program.walk()):
        if any(map(_is_large, block.instrs)):
            _tile(block)


def _tile(block: Block) -> None:
    units = _units(block)
    if not any(isinstance(unit, Group) for unit in units):
        return
    keeps = {*retained(block.instrs), *block.results}
    mine = {v for instr in block.instrs for v in instr.made}
    kept = set(block.results)  # values with a reader behind the unit
    out: list[Instr] = []
    for unit in reversed(units):
        parts: Sequence[Instr] = (unit,)
        if isinstance(unit, Group):
            wanted = [v for v in unit.outputs if v in kept]
            dying = [v for v in unit.inputs if v in mine and v not in kept]
            given = _given(unit, wanted, [v for v in dying if v not in keeps])
            if fits(unit, wanted, dying, given):
                unit.restrict_to(wanted, given)
            else:
                parts = unit.block.instrs
        for part in reversed(parts):
            out.append(part)
            kept.update(part.reads)
    block.instrs = out[::-1]


def _units(block: Block) -> Sequence[Instr]:
    """Groups the instructions of a block.

    Args:
      block: The block.

    Returns:
      The instructions in their new order. The outputs of a group are all results of its maps.
    """
    out: list[Instr] = []
    run: list[Compute] = []  # candidates for a group
    before: list[Instr] = []  # small instructions among them that do not depend on them
    behind: list[Instr] = []  # small instructions among them that do
    late: set[Value] = set()  # results of `run` and `behind`

    def close() -> None:
        out.extend(before)
        out.extend(_group(run, block.region))
        out.extend(behind)
        for part in (run, before, behind):
            part.clear()
        late.clear()

    for instr in block.instrs:
        if _can_join(instr):
            assert isinstance(instr, Compute)
            moved = {v for b in behind for v in b.made}
            if run and (instr.made[0].shape != run[0].made[0].shape or not moved.isdisjoint(instr.reads)):
                close()
            run.append(instr)
        elif not run:
            out.append(instr)
            continue
        elif not _is_harmless(instr):
            close()
            out.append(instr)
            continue
        elif late.isdisjoint(instr.reads) and not any(v in b.reads for v in changed(instr) for b in behind):
            before.append(instr)
            continue
        else:
            behind.append(instr)
            late.update(changed(instr))
        late.update(instr.made)
    close()
    return out


def _group(run: Sequence[Compute], region: Region) -> Sequence[Instr]:
    """Makes a group of `run` if that pays; else returns its maps."""
    if sum(_steps(_expression(instr)) for instr in run) < thresholds.TILED_UFUNCS:
        return run
    found = _expression(run[0])
    assert found is not None  # ensured by `_can_join`
    shape = found.shape
    assert shape is not None
    axis = _axis(shape)
    made = tuple([instr.made[0] for instr in run])
    inputs = dict.fromkeys(v for instr in run for v in instr.inputs if v not in made)
    step = max(1, thresholds.TILE_BYTES // _row(shape, axis, run))
    block = Block(list(run), made, region)
    return [
        Group(run[0].op, tuple(inputs), made, block=block, shape=shape, axis=axis, step=step, given=(None,) * len(made))
    ]


def _given(group: Group, wanted: Sequence[Value], reusable: Sequence[Value]) -> dict[Value, Value]:
    """Arrays of `reusable` that outputs of a group may overwrite, by output.

    Such an array has no reader after the map that computes the output.
    """
    reach = {v: i for i, instr in enumerate(group.block.instrs) for v in instr.inputs}
    out: dict[Value, Value] = {}
    free = list(reusable)
    for i, instr in enumerate(group.block.instrs):
        v, expression = instr.made[0], _expression(instr)
        if v not in wanted or expression is None:
            continue
        fit = next((r for r in free if reach[r] <= i and can_hold(r, expression)), None)
        if fit is not None:
            free.remove(fit)
            out[v] = fit
    return out


def fits(group: Group, wanted: Sequence[Value], dying: Sequence[Value], given: Mapping[Value, Value]) -> bool:
    """Whether `group` needs no more memory in slices than one instruction after the other.

    Args:
      group: The group.
      wanted: Its results that are read behind it.
      dying: Its inputs that have no reader behind it.
      given: Those of `dying` whose arrays are reused for some of `wanted`.
    """
    made = [instr.made[0] for instr in group.block.instrs]
    size = {v: v.bytes for v in (*made, *dying)}
    in_slices = sum(size[v] for v in (*wanted, *dying)) - sum(size[v] for v in given.values())
    last = {v: i for i, instr in enumerate(group.block.instrs) for v in instr.inputs}
    mine = {*dying, *made} - set(wanted)
    live = most = sum(size[v] for v in dying)
    for i, instr in enumerate(group.block.instrs):
        mine_size = size[instr.made[0]]
        live += mine_size
        ending = [v for v in dict.fromkeys(instr.inputs) if v in mine and last[v] == i]
        reused = max((size[v] for v in ending if size[v] == mine_size), default=0)
        most = max(most, live - reused)
        live -= sum(size[v] for v in ending)
    return in_slices <= most


def _expression(instr: Instr) -> Apply | None:
    return instr.work.expression if isinstance(instr, Compute) and isinstance(instr.work, Map) else None


def _can_join(instr: Instr) -> bool:
    op = instr.op
    if not _is_large(instr) or not op.opdef.is_pure or op.control_inputs or any(t.dtype.is_ref for t in op.inputs):
        return False
    found, shape = _expression(instr), op.outputs[0].shape
    if found is None or found.shape != shape or not all(shapes.is_full(t.shape) for t in op.inputs):
        return False
    if not all(v.is_static for v in instr.inputs):
        return False
    axis = _axis(found.shape or ())
    return 2 * _row(found.shape or (), axis, (instr,)) <= thresholds.TILE_BYTES


def _is_large(instr: Instr) -> bool:
    if not isinstance(instr, Compute) or len(instr.outputs) != 1:
        return False
    (made,) = instr.outputs
    return made is not None and made.bytes >= thresholds.TILED_BYTES


def _is_harmless(instr: Instr) -> bool:
    """Whether `instr` may move, because it is pure and its results are small."""
    if not isinstance(instr, Compute) or isinstance(instr.work, Read):
        return False
    if isinstance(instr.work, Convert):
        return True
    op = instr.op
    if not op.opdef.is_pure or op.control_inputs or any(t.dtype.is_ref for t in op.inputs):
        return False
    return all(0 <= _bytes(t) <= thresholds.MOVED_BYTES for t in op.outputs)


def _bytes(t: Tensor) -> int:
    """Size of an array in bytes; -1 if it is unknown."""
    size = shapes.size(t.shape) if shapes.is_full(t.shape) else None
    return -1 if size is None else size * t.dtype.base.numpy.itemsize


def _axis(shape: Sequence[int]) -> int:
    """The first axis with more than one element."""
    return next(k for k, d in enumerate(shape) if d > 1)


def _row(shape: Sequence[int], axis: int, instrs: Collection[Instr]) -> int:
    """Bytes of one element of an axis, in the widest dtype of results of `instrs`."""
    return (shapes.size(tuple(shape[axis + 1 :])) or 1) * max(i.made[0].dtype.numpy.itemsize for i in instrs)


def _steps(node: object) -> int:
    """Number of ufuncs of a scalar expression, counting shared ones once per reader."""
    return 1 + sum(map(_steps, node.args)) if isinstance(node, Apply) else 0
