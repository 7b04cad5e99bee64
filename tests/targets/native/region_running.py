"""Runs programs as native code, if all their instructions are native."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any
from unittest import mock

import numpy as np

import headrace as hr
from headrace import compile as compiling
from headrace import flags
from headrace.ir.kernel_errors import translated
from headrace.schedule.program import Block, Program, Value
from headrace.targets.native import blas, engine
from headrace.targets.native.calls import Functions
from headrace.targets.native.deep_calls import EndedCalls
from headrace.targets.native.element_types import ElementTypes
from headrace.targets.native.entry import Entry, Slot
from headrace.targets.native.failures import failure
from headrace.targets.native.grown import is_array
from headrace.targets.native.plan import Plan
from headrace.targets.native.printer import Printed, Printing, print_region
from headrace.targets.native.regions import NativeRegion, make_region, native_functions, native_regions, why_not


class NotNative(Exception):
    """Raised for a program with instructions that are not native."""


def reasons(block: Block, functions: Functions | None = None) -> list[str]:
    """The reasons why instructions of a block are not native."""
    functions = Functions() if functions is None else functions
    instrs = functions.rewritten(block.instrs)
    elements = ElementTypes(instrs)
    return [r for i in instrs if (r := why_not(i, elements, functions))]


def printed(region: NativeRegion, functions: Functions | None = None) -> Printed:
    """Prints a region."""
    return print_region(region, Printing(Functions() if functions is None else functions))


def function_of(found: Printed, failures: list[Any] | None = None) -> Callable[..., Any]:
    """The Python function of a region, which takes the inputs that are no constants."""
    inputs = [slot(v) for v in found.inputs]
    outputs = [slot(v) for v in found.outputs]
    symbols = blas.symbols() if "@hr_" in found.module.text() else {}
    library = engine.compile_module(found.module.text(), [found.core], symbols)

    def fail(place: int, counters: list[int], calls: EndedCalls) -> Any:
        found_at = failure(found.places, place, counters, calls)
        where = found_at.place
        if failures is not None:
            failures.append((where.instr, [n for _, n in where.iterations(found_at.counters)]))
        op = where.instr.op  # as `compile.blame` does, without the place
        raise translated(where.error(found_at.counters), op.name, op.name, op, ())

    call = Entry(inputs, outputs).bind(library, found.core, fail)

    def run(look: Any, *args: Any) -> Any:
        given = iter(args)
        full = [np.asarray(v.constant) if v.storage == "constant" else next(given) for v in found.inputs]
        result = call(look, *full)
        return result if len(found.outputs) > 1 else [result] if found.outputs else []

    return run


def slot(v: Value) -> Slot:
    """The slot of a value."""
    dtype = np.dtype(np.int64) if v.representation == "counter" else v.dtype.numpy
    return Slot(dtype, v.shape if is_array(v) else ())


def whole(block: Block, functions: Functions | None = None) -> NativeRegion:
    """The region of all instructions of a block."""
    instrs = None if functions is None else functions.rewritten(block.instrs)
    return make_region(block, 0, len(block.instrs), instrs)


def regions_of(fetches: Any, feeds: Any = None) -> list[NativeRegion]:
    """The native regions of a step."""
    with compared(close) as seen, hr.Session(engine="compiled") as session:
        session.run(fetches, feeds)
    return native_regions(seen.all[0])


def native(program: Program, failures: list[Any] | None = None) -> Callable[[Sequence[Any]], list[Any]]:
    """A function from the feeds to the fetches of a program.

    Raises:
      NotNative: An instruction is not native.
    """
    block, functions = program.block, native_functions(program)
    why = reasons(block, functions)
    if why:
        raise NotNative(why[0])
    run = function_of(found := printed(whole(block, functions), functions), failures)

    def call(values: Sequence[Any], look: Any = None) -> list[Any]:
        known = dict(zip(program.params, values, strict=True))
        got = run(look, *(known[v] for v in found.inputs if v.storage != "constant"))
        known.update(zip(found.outputs, got, strict=True))
        return [v.constant if v.storage == "constant" else known[v] for v in block.results]

    return call


class Seen:
    """Comparisons of native code with the Python target.

    Attributes:
      compared: The number of runs that were compared.
      reasons: The reasons why steps were not native.
      programs: The programs that were compared.
      all: The programs of all steps.
      failures: The failures of native code: the instruction, and the iterations of the loops around it.
    """

    def __init__(self) -> None:
        self.compared = 0
        self.reasons: list[str] = []
        self.programs: list[Program] = []
        self.all: list[Program] = []
        self.failures: list[tuple[Any, list[int]]] = []


@contextlib.contextmanager
def compared(check: Callable[[Any, Any], None], seen: Seen | None = None) -> Iterator[Seen]:
    """Makes each run of a compiled step run as native code, too.

    Args:
      check: Compares a result of native code with that of the Python target.
      seen: The object that counts; None for a new one.
    """
    seen = Seen() if seen is None else seen
    known: dict[int, Any] = {}
    run = compiling.Compiled.run

    def both(self: Any, step: Any, values: Sequence[Any]) -> Any:
        if id(self) not in known:
            with flags.override(VERIFY=0, NATIVE="off"):
                program = self._make()
            seen.all.append(program)
            try:
                known[id(self)] = self, native(program, seen.failures)
                seen.programs.append(program)
            except NotNative as e:
                known[id(self)] = self, None
                seen.reasons.append(str(e))
        call = known[id(self)][1]
        mine: Any = None
        if call is not None:
            try:
                mine = call(values, None if step is None else step.look)
            except Exception as e:
                mine = e
        try:
            theirs = run(self, step, values)
        except Exception as e:
            if call is not None:
                seen.compared += 1
                assert type(mine) is type(e), (mine, e)  # noqa: PT017
            raise
        if call is not None:
            if isinstance(mine, Exception):
                raise mine
            seen.compared += 1
            for a, b in zip(mine, theirs, strict=True):
                check(a, b)
        return theirs

    with mock.patch.object(compiling.Compiled, "run", both), flags.override(NATIVE="off"):
        yield seen


def run(fetches: Any, feeds: Any = None, check: Callable[[Any, Any], None] | None = None, **kwargs: Any) -> Seen:
    """Runs a step, which must be native, with both targets."""
    with compared(check or close) as seen, hr.Session(engine="compiled") as session:
        session.run(fetches, feeds, **kwargs)
    assert not seen.reasons, seen.reasons
    assert seen.compared
    return seen


def close(got: Any, want: Any) -> None:
    """Raises unless two results are equal but for a few units of the last place."""
    got, want = np.asarray(got), np.asarray(want)
    assert (got.dtype, got.shape) == (want.dtype, want.shape), (got.dtype, got.shape, want.dtype, want.shape)
    if got.dtype.kind in "fc":
        is_single = got.dtype in (np.float32, np.complex64)
        np.testing.assert_allclose(got, want, rtol=2e-5 if is_single else 1e-11, atol=1e-6)
    else:
        np.testing.assert_array_equal(got, want)


def plan_of(region: NativeRegion) -> Plan:
    """The plan of the memory of a region."""
    return Plan(region.instrs, region.inputs, region.outputs)
