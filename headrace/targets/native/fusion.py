"""Fusion of maps: elementwise instructions of one shape that run in one loop nest.

A map reads arrays and writes one. If the next map reads that one, both can run in one loop, and the intermediate number
stays in a register. It is written to memory only if another instruction reads it. A `Nest` is a set of maps of one
block whose results have one shape. A value that one map of the nest makes and another reads has the shape of the nest,
so each element depends on the same element.

The maps of a nest run at the place of the last one. Values never change, so an instruction between them may run
earlier if it does not read what the nest makes. A push of a result to a list runs behind the nest. No nest stays open
across an instruction with blocks.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TypeAlias

from headrace.records import record
from headrace.schedule.program import Compute, Group, Instr, Loop, Value
from headrace.schedule.select import ListOperation, Map
from headrace.targets.native.rewriting import Division


@record(eq=False, slots=True)
class Nest:
    """Maps that run in one loop nest.

    Attributes:
      maps: The maps, in order.
      shape: The shape of their results. The first dimension may be unknown.
      source: The value whose first dimension is that of all results, or the only result; None if it is known.
      stored: The results that other instructions read.
    """

    maps: list[Compute]
    shape: tuple[int | None, ...]
    source: Value | None
    stored: tuple[Value, ...] = ()

    @property
    def made(self) -> tuple[Value, ...]:
        """The results of all maps."""
        return tuple([v for m in self.maps for v in m.made])

    @property
    def reads(self) -> tuple[Value, ...]:
        """The values that the maps read and do not make."""
        made = set(self.made)
        return tuple(dict.fromkeys(v for m in self.maps for v in m.inputs if v not in made))


Unit: TypeAlias = Instr | Nest


def units(instrs: Sequence[Instr], results: Collection[Value]) -> list[Unit]:
    """Groups the maps of a block.

    Args:
      instrs: The instructions of the block.
      results: The values that are read behind them.

    Returns:
      The nests and the other instructions, in the order in which they run.
    """
    flat = list(_flat(instrs))
    out: list[Unit] = []
    pending: list[Nest] = []
    pushes: list[Instr] = []  # of results of pending nests
    sources: dict[Value, Value] = {}

    def close(nests: Sequence[Nest]) -> None:
        for nest in nests:
            pending.remove(nest)
            out.append(nest)
            made = nest.made
            out.extend(push for push in pushes if push.inputs[1] in made)
            pushes[:] = [push for push in pushes if push.inputs[1] not in made]

    for instr in flat:
        reads = set(instr.inputs)
        for push in [push for push in pushes if push.inputs[0] in reads]:
            close([n for n in pending if push.inputs[1] in n.made])
        if _is_push(instr) and any(instr.inputs[1] in n.made for n in pending):
            pushes.append(instr)
            continue
        if is_array_map(instr):
            assert isinstance(instr, Compute)
            shape = instr.made[0].shape
            assert shape is not None
            lengths = {_source(v, sources) for v in instr.inputs if v.shape and v.shape[0] is None}
            source = next(iter(lengths)) if len(lengths) == 1 else instr.made[0]
            sources[instr.made[0]] = source
            mine = next((n for n in pending if n.shape == shape and (None not in shape or n.source is source)), None)
            if mine is not None and isinstance(instr.work, Division) and instr.inputs[1] in mine.made:
                mine = None  # divisors are compared with zero before the nest
            close([n for n in pending if n is not mine and not reads.isdisjoint(n.made)])
            if mine is None:
                pending.append(Nest([instr], shape, source if None in shape else None))
            else:
                mine.maps.append(instr)
            continue
        if instr.blocks:
            close(list(pending))
        else:
            close([n for n in pending if not reads.isdisjoint(n.made)])
        out.append(instr)
    close(list(pending))
    _mark_stored(out, results)
    return out


def _is_push(instr: Instr) -> bool:
    """Whether an instruction adds a value to a list."""
    return isinstance(instr, Compute) and isinstance(instr.work, ListOperation) and instr.work.role.kind == "push"


def _source(v: Value, sources: dict[Value, Value]) -> Value:
    """The value from which `v` has its first dimension."""
    return sources.get(v, v)


def is_array_map(instr: Instr) -> bool:
    """Whether an instruction is a map with an array as its result."""
    return isinstance(instr, Compute) and isinstance(instr.work, Map) and bool(instr.made) and instr.made[0].shape != ()


def _flat(instrs: Sequence[Instr]) -> list[Instr]:
    """The instructions, with the maps of tiled groups in place of the groups."""
    out: list[Instr] = []
    for instr in instrs:
        out.extend(instr.block.instrs if isinstance(instr, Group) else [instr])
    return out


def _mark_stored(found: Sequence[Unit], results: Collection[Value]) -> None:
    read = set(results)
    for unit in reversed(found):
        if isinstance(unit, Nest):
            unit.stored = tuple([v for v in unit.made if v in read])
            read.update(unit.reads)
        else:
            read.update(deep_reads(unit))


def deep_reads(instr: Instr) -> dict[Value, None]:
    """The values from outside that an instruction or its blocks read, each once."""
    found = dict.fromkeys(instr.inputs)
    defined: set[Value] = set()
    if isinstance(instr, Loop):
        found.update((v.initial, None) for v in instr.variables)
        defined.update(v.param for v in instr.variables)
        if instr.trip is not None:
            defined.add(instr.trip.counter)
            found[instr.trip.first] = None
            for limit in instr.trip.limits:
                found.update({limit.first: None, limit.limit: None})
    for block in instr.blocks:
        for inner in block.instrs:
            found.update((v, None) for v in deep_reads(inner) if v not in defined)
            defined.update(inner.made)
        found.update((v, None) for v in block.results if v not in defined)
    return found
