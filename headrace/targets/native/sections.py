"""Native sections: the native regions of a program become calls of machine code.

    program = schedule(regions, args, retvals, cut=cut)

The choice depends on the program alone, never on time or on earlier runs, so that a repeated run has the same results
to the last bit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.schedule.program import Block, Loop, Section
from headrace.targets.native import blas, engine
from headrace.targets.native.entry import Entry, Slot
from headrace.targets.native.failures import NativeFailure
from headrace.targets.native.printer import print_region
from headrace.targets.native.regions import native_regions

if TYPE_CHECKING:
    from headrace.schedule.program import Instr, Program, Value
    from headrace.targets.native.entry import OnFailure
    from headrace.targets.native.printer import Printed
    from headrace.targets.native.regions import NativeRegion


def cut(program: Program) -> None:
    """Replaces the native regions of a program by sections, if native code is available."""
    if engine.available():
        return
    found: dict[int, tuple[Block, list[NativeRegion]]] = {}
    for region in native_regions(program):
        found.setdefault(id(region.block), (region.block, []))[1].append(region)
    for block, regions in found.values():
        for region in sorted(regions, key=lambda r: r.start, reverse=True):
            section = _section(region)
            if section is not None:
                block.instrs[region.start : region.stop] = [section]


def _section(region: NativeRegion) -> Section | None:
    """Compiles a region; None if that would take too long."""
    printed = print_region(region)
    text = printed.module.text()
    if engine.too_large(text):
        return None
    uses_blas = any(f"@{name}(" in text for name in blas.NAMES.values())
    library = engine.compile_module(text, [printed.core], blas.symbols() if uses_blas else {})
    polls = any(map(_has_loops, region.instrs))
    entry = Entry([_slot(v) for v in printed.inputs], [_slot(v) for v in printed.outputs], is_long=polls)
    function = entry.bind(library, printed.core, _on_failure(printed))
    return Section(
        region.instrs[0].op,
        printed.inputs,
        printed.outputs,
        block=Block(region.instrs, region.outputs, region.block.region),
        function=function,
        polls=polls,
        uses_blas=uses_blas,
    )


def _has_loops(instr: Instr) -> bool:
    return isinstance(instr, Loop) or any(_has_loops(i) for b in instr.blocks for i in b.instrs)


def _slot(value: Value) -> Slot:
    return Slot(value.dtype.numpy, value.shape or ())


def _on_failure(printed: Printed) -> OnFailure:
    def fail(place: int, counters: list[int]) -> None:
        raise NativeFailure(printed.places[place - 1], counters)

    return fail
