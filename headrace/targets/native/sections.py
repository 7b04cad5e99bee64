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
from headrace.errors import HeadraceInternalError
from headrace.opkit.forms import Product
from headrace.records import record
from headrace.schedule.program import AtOnce, Block, Call, Compute, Coverage, Loop, Section
from headrace.schedule.select import Move
from headrace.schedule.timers import block_paths
from headrace.targets.native import blas, cached_steps, engine
from headrace.targets.native.cached_steps import CachedStep
from headrace.targets.native.calls import Functions
from headrace.targets.native.compiler import UnavailableError
from headrace.targets.native.entry import Entry, Slot
from headrace.targets.native.failures import failure
from headrace.targets.native.ordering import arrange, is_scalar_map, reads_state
from headrace.targets.native.regions import native_functions, native_regions, why_not
from headrace.targets.python.source import loop_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from typing import Any

    import numpy as np

    from headrace.ir.graph import Operation
    from headrace.schedule.program import Instr, Program, Value
    from headrace.schedule.timers import Timers
    from headrace.targets.native.deep_calls import EndedCalls
    from headrace.targets.native.engine import Library
    from headrace.targets.native.entry import OnFailure
    from headrace.targets.native.failures import Place
    from headrace.targets.native.llvm_text import Module
    from headrace.targets.native.printer import Printed
    from headrace.targets.native.regions import NativeRegion
    from headrace.targets.native.timers import Table


def cut(program: Program, timers: Timers | None = None) -> None:
    """Replaces the native regions of a program by sections, if native code is available.

    All regions are functions of one module, because LLVM takes a few milliseconds for each module. Regions beyond the
    limit of `engine.too_large` stay with the other target. A program without regions does not import llvmlite.

    Args:
      program: The program.
      timers: Takes the sites of profiled code, whose sections are the same with laps; None for code without.
    """
    if flags.NATIVE.value == "on":
        arrange(program)
    functions = native_functions(program) if flags.NATIVE.value == "on" else Functions()
    regions = native_regions(program, functions) if flags.NATIVE.value == "on" else []
    reason = engine.available() if regions or flags.NATIVE.value == "off" else ""
    try:
        if not reason:
            _compile(program, regions, functions, timers)
    except UnavailableError as e:  # LLVM is loaded for the first module that is not in the cache
        reason = str(e)
    if reason:
        program.coverage = Coverage(0, _size(program.block.instrs), {reason: _size(program.block.instrs)})


def _compile(program: Program, regions: list[NativeRegion], functions: Functions, timers: Timers | None = None) -> None:
    """Replaces regions by sections."""
    if not regions:
        program.coverage = _coverage(program, [], [], functions)
        return
    if timers is None:
        key = cached_steps.key(regions, engine.identity(), functions)
        native = (None if key is None else _stored(regions, key, functions)) or _printed(regions, key, functions)
    else:
        native = _timed(program, regions, functions, timers)
    chosen = regions[: len(native.have_parts)]
    program.coverage = _coverage(program, chosen, regions[len(chosen) :], functions)
    if not chosen:
        return
    program.source = native.source.text
    for k, region in sorted(enumerate(chosen), key=lambda pair: pair[1].start, reverse=True):
        section = _section(program, region, native, k)
        region.block.instrs[region.start : region.stop] = [section, *region.leaving]


@record(frozen=True, slots=True)
class _Native:
    """Native code of the regions of a step.

    Attributes:
      source: The printed regions.
      library: The machine code; None if no region is compiled.
      uses_blas: Whether it calls the BLAS library.
      have_parts: For each compiled region, whether several threads may run parts of an instruction.
      table: The times of profiled code; else None.
    """

    source: _Source
    library: Library | None
    uses_blas: bool
    have_parts: Sequence[bool]
    table: Table | None = None


class _Source:
    """Text of regions, and the places that can fail, printed when they are needed.

    Args:
      regions: The regions.
      functions: The native functions of the program.
      digest: The digest of the text.
      made: The text, and the places of each region; None if they are not printed yet.
    """

    def __init__(
        self,
        regions: Sequence[NativeRegion],
        functions: Functions,
        digest: bytes,
        made: tuple[str, list[tuple[Place, ...]]] | None = None,
    ) -> None:
        self._regions = regions
        self._functions = functions
        self._digest = digest
        self._made = made
        self._is_guarded = flags.VERIFY.value >= 3

    def text(self) -> str:
        """The text of the module."""
        return self._get()[0]

    def places(self, region: int) -> tuple[Place, ...]:
        """The places of a region and of the functions that it calls."""
        return self._get()[1][region]

    def _get(self) -> tuple[str, list[tuple[Place, ...]]]:
        if self._made is None:
            module, printed = _print(self._regions, self._functions, self._is_guarded)
            text = module.text()
            if cached_steps.digest(text) != self._digest:
                raise HeadraceInternalError("the text of native code differs from that of the object file in the cache")
            self._made = text, [p.places for p in printed]
        return self._made


def _stored(regions: Sequence[NativeRegion], key: bytes, functions: Functions) -> _Native | None:
    """The native code of regions from the object cache; None if it is not there."""
    found = cached_steps.load(key)
    if found is None or not 0 < len(found.have_parts) <= len(regions):
        return None
    source = _Source(regions[: len(found.have_parts)], functions, found.text_digest)
    library = engine.stored_module(
        found.object_key, source.text, _names(found.have_parts), blas.symbols() if found.uses_blas else {}
    )
    return None if library is None else _Native(source, library, found.uses_blas, found.have_parts)


def _printed(regions: Sequence[NativeRegion], key: bytes | None, functions: Functions) -> _Native:
    """The native code of as many regions as are within the limit, printed and compiled."""
    module, printed = _print(regions, functions, flags.VERIFY.value >= 3)
    text, have_parts = module.text(), tuple([p.has_parts for p in printed])
    digest = cached_steps.digest(text)
    source = _Source(regions[: len(printed)], functions, digest, (text, [p.places for p in printed]))
    if not printed:
        return _Native(source, None, False, ())
    uses_blas = any(f"@{name}(" in text for name in blas.NAMES.values())
    library = engine.compile_module(text, _names(have_parts), blas.symbols() if uses_blas else {})
    if key is not None:
        cached_steps.save(key, CachedStep(library.key, digest, uses_blas, have_parts))
    return _Native(source, library, uses_blas, have_parts)


def _timed(program: Program, regions: Sequence[NativeRegion], functions: Functions, timers: Timers) -> _Native:
    """The native code with laps of the regions that are compiled without.

    The entries of `cached_steps` lack the sites, so it is printed; the object file is in the cache by its text.
    """
    from headrace.targets.native.printer import Printing, print_region
    from headrace.targets.native.timers import TRIAL, Table

    is_guarded = flags.VERIFY.value >= 3
    chosen = regions[: len(_print(regions, functions, is_guarded)[1])]
    printing = Printing(functions, is_guarded, timers=timers)
    paths = block_paths(program, loop_name)
    printed = [print_region(r, printing, f"core{k}", paths[r.block]) for k, r in enumerate(chosen)]
    text = printing.module.text()
    source = _Source(chosen, functions, b"", (text, [p.places for p in printed]))
    if not printed:
        return _Native(source, None, False, ())
    uses_blas = any(f"@{name}(" in text for name in blas.NAMES.values())
    table = Table(len(timers.sites))
    symbols = {**table.symbols, **(blas.symbols() if uses_blas else {})}
    library = engine.compile_module(text, [*_names(chosen), TRIAL], symbols)
    table.measure(library)
    return _Native(source, library, uses_blas, tuple([p.has_parts for p in printed]), table)


def _names(regions: Sequence[Any]) -> list[str]:
    return [f"core{k}" for k in range(len(regions))]


def _print(regions: Sequence[NativeRegion], functions: Functions, is_guarded: bool) -> tuple[Module, list[Printed]]:
    """Prints the first regions as functions of one module, up to its limit."""
    from headrace.targets.native.printer import Printing, print_region  # here: steps from the cache need no printers

    printing = Printing(functions, is_guarded)
    printed: list[Printed] = []
    for region in regions:
        printed.append(print_region(region, printing, f"core{len(printed)}"))
        if engine.too_large(printing.module.text()):
            printing = Printing(functions, is_guarded)  # without the last one
            kept = regions[: len(printed) - 1]
            return printing.module, [print_region(r, printing, f"core{k}") for k, r in enumerate(kept)]
    return printing.module, printed


def _section(program: Program, region: NativeRegion, native: _Native, k: int) -> Section:
    """The section of compiled region `k`."""
    library, core, has_parts = native.library, f"core{k}", native.have_parts[k]
    assert library is not None
    loops = [i for i in region.instrs if _has_loops(i)]
    polls = bool(loops)
    flushes = polls or any(map(_has_products, region.instrs))
    readers = {v: i.op for i in region.block.instrs[: region.start] if reads_state(i) for v in i.made}
    slots = {v: _slot(v, region, readers.get(v)) for v in (*region.inputs, *region.outputs)}
    inputs, outputs = [slots[v] for v in region.inputs], [slots[v] for v in region.outputs]
    entry = Entry(inputs, outputs, is_long=polls or has_parts, flushes=flushes)
    fail = _on_failure(native.source, k)
    function: Callable[..., Any] = entry.bind(library, core, fail)
    if native.table is not None:
        from headrace.targets.native.timers import TimedFunction

        function = TimedFunction(function, native.table)
    elif not native.uses_blas and _is_whole(program, region, has_parts):
        fed = [thresholds.LENT_FEED_BYTES if v.dtype in dtypes.INEXACT else sys.maxsize for v in program.params]
        lent = fed + [0] * (len(region.inputs) - len(fed))  # no operation writes into other values
        constants = tuple([v.constant for v in region.inputs if v.storage == "constant"])
        program.at_once = AtOnce(entry.bind(library, core, fail, lent), constants)
    return Section(
        (loops or region.instrs)[0].op,  # one that may exceed the time limit
        region.inputs,
        region.outputs,
        block=Block(region.instrs, region.outputs, region.block.region),
        function=function,
        polls=polls,
        uses_blas=native.uses_blas,
        uses_threads=has_parts,
        flushes=flushes,
        lists={v: _element(v, region) for v in slots if v.representation == "list"},
    )


def _is_whole(program: Program, region: NativeRegion, has_parts: bool) -> bool:
    """Whether a region is the whole step but for reads of state, on one thread.

    Instructions may compute conditions under which the reads may fail. A call at once leaves them out: where a read
    fails, the step runs as other steps do.
    """
    instrs = program.block.instrs
    reads = [instr for instr in instrs[: region.start] if reads_state(instr)]
    others = [instr for instr in instrs[: region.start] if instr not in reads]
    is_all = region.block is program.block and region.stop == len(instrs) and all(map(is_scalar_map, others))
    given = (*program.params, *(v for instr in reads for v in instr.made))
    is_same = region.outputs == tuple(program.block.results) and region.inputs[: len(given)] == given
    is_known = all(v.storage == "constant" for v in region.inputs[len(given) :])
    has_lists = any(v.representation == "list" for v in (*region.inputs, *region.outputs))
    return is_all and is_same and is_known and not (has_lists or region.leaving or has_parts)


def _coverage(
    program: Program, chosen: Sequence[NativeRegion], left: Iterable[NativeRegion], functions: Functions
) -> Coverage:
    """Counts the instructions of a program in the chosen regions, and those outside by reason."""
    native, too_large = (
        {(id(region.block), k) for region in found for k in range(region.start, region.stop)}
        for found in (chosen, left)
    )
    reasons: Counter[str] = Counter()
    inside = 0
    called = {body.block for region in chosen for body in functions.called(region.instrs).values()}
    inside += sum(_size(block.instrs) for block in called)
    blocks = [program.block, *(f.block for f in program.functions.values() if f.block not in called)]
    while blocks:
        block = blocks.pop()
        for k, instr in enumerate(functions.rewritten(block.instrs)):
            if (id(block), k) in native:
                inside += _size([instr])
                continue
            if (id(block), k) in too_large:
                reasons["the code of the step would take too long to compile"] += _size([instr])
                continue
            blocks += instr.blocks
            why = why_not(instr, functions=functions)
            reasons[
                why or "a call would take longer than it saves, or a list cannot cross the border of the region"
            ] += 1
    return Coverage(inside, inside + reasons.total(), reasons)


def _size(instrs: Iterable[Instr]) -> int:
    """The number of instructions, with those in their blocks."""
    return sum(1 + sum(_size(block.instrs) for block in instr.blocks) for instr in instrs)


def _has_loops(instr: Instr) -> bool:
    """Whether an instruction has loops or calls of functions that call themselves."""
    return isinstance(instr, Loop | Call) or any(_has_loops(i) for b in instr.blocks for i in b.instrs)


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


def _on_failure(source: _Source, region: int) -> OnFailure:
    def fail(place: int, counters: list[int], calls: EndedCalls) -> None:
        raise failure(source.places(region), place, counters, calls)

    return fail
