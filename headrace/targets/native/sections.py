"""Native sections: the native regions of a program become calls of machine code.

    program = schedule(regions, args, retvals, cut=cut)

The choice depends on the program alone, never on time or on earlier runs, so that a repeated run has the same results
to the last bit.
"""

from __future__ import annotations

import sys
from collections import Counter
from typing import TYPE_CHECKING

from headrace import dtypes, flags, thresholds
from headrace.opkit.forms import Product
from headrace.schedule.program import AtOnce, Block, Compute, Coverage, Loop, Section
from headrace.schedule.select import KernelCall, Move
from headrace.targets.native import blas, engine
from headrace.targets.native.compiler import UnavailableError
from headrace.targets.native.entry import Entry, Slot
from headrace.targets.native.failures import NativeFailure
from headrace.targets.native.llvm_text import Module
from headrace.targets.native.ordering import call_kernels_late, make_lists_late, read_early, update_late
from headrace.targets.native.printer import print_region
from headrace.targets.native.regions import native_regions, why_not
from headrace.targets.native.rewriting import rewritten

if TYPE_CHECKING:
    from collections.abc import Iterable

    import numpy as np

    from headrace.ir.graph import Operation
    from headrace.schedule.program import Instr, Program, Value
    from headrace.targets.native.engine import Library
    from headrace.targets.native.entry import OnFailure
    from headrace.targets.native.printer import Printed
    from headrace.targets.native.regions import NativeRegion


def cut(program: Program) -> None:
    """Replaces the native regions of a program by sections, if native code is available.

    All regions are functions of one module, because LLVM takes a few milliseconds for each module. Regions beyond the
    limit of `engine.too_large` stay with the other target. A program without regions does not import llvmlite.
    """
    if flags.NATIVE.value == "on":
        make_lists_late(program)
        read_early(program)
        update_late(program)
        call_kernels_late(program)
    regions = native_regions(program) if flags.NATIVE.value == "on" else []
    reason = engine.available() if regions or flags.NATIVE.value == "off" else ""
    try:
        if not reason:
            _compile(program, regions)
    except UnavailableError as e:  # LLVM is loaded for the first module that is not in the cache
        reason = str(e)
    if reason:
        program.coverage = Coverage(0, _size(program.block.instrs), {reason: _size(program.block.instrs)})


def _compile(program: Program, regions: list[NativeRegion]) -> None:
    """Replaces regions by sections."""
    module = Module()
    chosen: list[tuple[NativeRegion, Printed]] = []
    for region in regions:
        printed = print_region(region, module, f"core{len(chosen)}")
        if engine.too_large(module.text()):
            module = Module()  # without the last one
            chosen = [(r, print_region(r, module, f"core{i}")) for i, (r, _) in enumerate(chosen)]
            break
        chosen.append((region, printed))
    program.coverage = _coverage(program, [region for region, _ in chosen], regions[len(chosen) :])
    if not chosen:
        return
    text = program.text = module.text()
    uses_blas = any(f"@{name}(" in text for name in blas.NAMES.values())
    library = engine.compile_module(text, [printed.core for _, printed in chosen], blas.symbols() if uses_blas else {})
    for region, printed in sorted(chosen, key=lambda pair: pair[0].start, reverse=True):
        section = _section(program, region, printed, library, uses_blas)
        region.block.instrs[region.start : region.stop] = [section, *region.leaving]


def _section(program: Program, region: NativeRegion, printed: Printed, library: Library, uses_blas: bool) -> Section:
    """The section of a compiled region."""
    loops = [i for i in region.instrs if _has_loops(i)]
    polls = bool(loops)
    flushes = polls or any(map(_has_products, region.instrs))
    readers = {v: i.op for i in region.block.instrs[: region.start] if _reads_state(i) for v in i.made}
    slots = {v: _slot(v, region, readers.get(v)) for v in (*printed.inputs, *printed.outputs)}
    inputs, outputs = [slots[v] for v in printed.inputs], [slots[v] for v in printed.outputs]
    entry = Entry(inputs, outputs, is_long=polls or printed.has_parts, flushes=flushes)
    fail = _on_failure(printed)
    if not uses_blas and _is_whole(program, region, printed):
        fed = [thresholds.LENT_FEED_BYTES if v.dtype in dtypes.FLOATING else sys.maxsize for v in program.params]
        lent = fed + [0] * (len(printed.inputs) - len(fed))  # no operation writes into other values
        constants = tuple([v.constant for v in printed.inputs if v.storage == "constant"])
        program.at_once = AtOnce(entry.bind(library, printed.core, fail, lent), constants)
    return Section(
        (loops or region.instrs)[0].op,  # one that may exceed the time limit
        printed.inputs,
        printed.outputs,
        block=Block(region.instrs, region.outputs, region.block.region),
        function=entry.bind(library, printed.core, fail),
        polls=polls,
        uses_blas=uses_blas,
        uses_threads=printed.has_parts,
        flushes=flushes,
        lists={v: _element(v, region) for v in slots if v.representation == "list"},
    )


def _is_whole(program: Program, region: NativeRegion, printed: Printed) -> bool:
    """Whether a region is the whole step but for reads of state, on one thread."""
    instrs = program.block.instrs
    before = instrs[: region.start]
    is_all = region.block is program.block and region.stop == len(instrs) and all(map(_reads_state, before))
    given = (*program.params, *(v for instr in before for v in instr.made))
    is_same = printed.outputs == tuple(program.block.results) and printed.inputs[: len(given)] == given
    is_known = all(v.storage == "constant" for v in printed.inputs[len(given) :])
    has_lists = any(v.representation == "list" for v in (*printed.inputs, *printed.outputs))
    return is_all and is_same and is_known and not (has_lists or region.leaving or printed.has_parts)


def _reads_state(instr: Instr) -> bool:
    """Whether an instruction reads a known resource, such as a variable, and has no effect."""
    if not (isinstance(instr, Compute) and isinstance(instr.work, KernelCall)) or len(instr.made) != 1:
        return False
    facts = instr.op.opdef.facts
    is_known = instr.work.bound == len(instr.inputs) > 0
    return is_known and facts.effect == "resource" and not (facts.writes or facts.checks or facts.blocking)


def _coverage(program: Program, chosen: Iterable[NativeRegion], left: Iterable[NativeRegion]) -> Coverage:
    """Counts the instructions of a program in the chosen regions, and those outside by reason."""
    native, too_large = (
        {(id(region.block), k) for region in found for k in range(region.start, region.stop)}
        for found in (chosen, left)
    )
    reasons: Counter[str] = Counter()
    inside = 0
    blocks = [program.block, *(f.block for f in program.functions.values())]
    while blocks:
        block = blocks.pop()
        for k, instr in enumerate(rewritten(block.instrs)):
            if (id(block), k) in native:
                inside += _size([instr])
                continue
            if (id(block), k) in too_large:
                reasons["the code of the step would take too long to compile"] += _size([instr])
                continue
            blocks += instr.blocks
            why = why_not(instr)
            reasons[
                why or "a call would take longer than it saves, or a list cannot cross the border of the region"
            ] += 1
    return Coverage(inside, inside + reasons.total(), reasons)


def _size(instrs: Iterable[Instr]) -> int:
    """The number of instructions, with those in their blocks."""
    return sum(1 + sum(_size(block.instrs) for block in instr.blocks) for instr in instrs)


def _has_loops(instr: Instr) -> bool:
    return isinstance(instr, Loop) or any(_has_loops(i) for b in instr.blocks for i in b.instrs)


def _has_products(instr: Instr) -> bool:
    if isinstance(instr, Compute):
        return isinstance(instr.work, Move) and isinstance(instr.work.form, Product)
    return any(_has_products(i) for b in instr.blocks for i in b.instrs)


def _slot(value: Value, region: NativeRegion, reader: Operation | None) -> Slot:
    if value.representation == "list":
        dtype, shape = _element(value, region)
        return Slot(dtype, (None, *shape))
    return Slot(value.dtype.numpy, value.shape or (), reader)


def _element(value: Value, region: NativeRegion) -> tuple[np.dtype, tuple[int, ...]]:
    """The dtype and the shape of the elements of a list."""
    element = region.elements.of(value)
    assert element is not None
    assert element.dtype is not None
    return element.dtype, element.shape


def _on_failure(printed: Printed) -> OnFailure:
    def fail(place: int, counters: list[int]) -> None:
        raise NativeFailure(printed.places[place - 1], counters)

    return fail
