"""Functions that call themselves, as native code has them.

Such a function is native if all its instructions are, and all functions that it calls. A call has the address of
memory for each result. The function copies its results there and keeps no memory of its own, tuples excepted
(`tuples`). Large constants are no part of the code of a region, so they are further arguments of the functions that
read them or call such functions.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from headrace import dtypes, thresholds
from headrace.records import record
from headrace.schedule.program import Call, Compute, Instr, Loop, Value
from headrace.schedule.select import ListOperation
from headrace.targets.native.rewriting import flat, rewritten
from headrace.targets.native.tuples import Pack, Tuples, Zeros, is_tuple

if TYPE_CHECKING:
    from headrace.schedule.program import Block, Function, Program


@record(eq=False, slots=True)
class Body:
    """Function with rewritten instructions.

    Attributes:
      symbol: Its name in LLVM.
      params: The parameters, and behind them large constants.
      instrs: The instructions.
      results: The results.
      block: The block in the program.
    """

    symbol: str
    params: tuple[Value, ...]
    instrs: list[Instr]
    results: tuple[Value, ...]
    block: Block


class Functions:
    """The native functions of a program.

    Args:
      program: The program; None for a block of its own.

    Attributes:
      tuples: The tuples of the program.
      bodies: The functions by name. Those that are not native are removed (`regions.native_functions`).
    """

    def __init__(self, program: Program | None = None) -> None:
        self.bodies: dict[str, Body] = {}
        self.tuples = Tuples(program) if program is not None else None
        self._constants = large_constants(program.functions) if program is not None else {}
        for i, (name, f) in enumerate(program.functions.items() if program is not None else ()):
            params, results = (tuple(map(self.value, vs)) for vs in (f.params, f.block.results))
            params += self._constants[name]
            self.bodies[name] = Body(f"function{i}", params, flat(self.rewritten(f.block.instrs)), results, f.block)

    def value(self, v: Value) -> Value:
        """The form of a value: the address of a tuple."""
        return v if self.tuples is None else self.tuples.value(v)

    def rewritten(self, instrs: Sequence[Instr]) -> list[Instr]:
        """The instructions of a block in the form that native code has (`rewriting`, `tuples`)."""
        found = rewritten(instrs)
        return found if self.tuples is None else self.tuples.rewritten(found, self._constants)

    def called(self, instrs: Iterable[Instr]) -> dict[str, Body]:
        """The functions that instructions call, and those that these call, by name."""
        found: dict[str, Body] = {}
        waiting = [names_of(instrs)]
        while waiting:
            for name in waiting.pop():
                if name not in found:
                    found[name] = self.bodies[name]
                    waiting.append(names_of(found[name].instrs))
        return found


def large_constants(functions: Mapping[str, Function]) -> dict[str, tuple[Value, ...]]:
    """The large constants that each function and the functions that it calls read."""
    found: dict[str, dict[Value, None]] = {}
    for name, function in functions.items():
        reads = [*function.block.results, *(v for i in walk(function.block.instrs) for v in _constants_of(i))]
        found[name] = dict.fromkeys(v for v in reads if is_large(v))
    size = -1
    while size != (size := sum(map(len, found.values()))):
        for name, function in functions.items():
            for called in names_of(function.block.instrs):
                found[name].update(found[called])
    return {name: tuple(values) for name, values in found.items()}


def _constants_of(instr: Instr) -> Iterable[Value]:
    """The values that an instruction reads, or returns from its blocks."""
    initial = [x.initial for x in instr.variables] if isinstance(instr, Loop) else []
    return [*instr.inputs, *initial, *(v for block in instr.blocks for v in block.results)]


def is_large(v: Value) -> bool:
    """Whether a constant is an input of native code and not part of it."""
    if v.storage != "constant" or v.dtype in dtypes.OBJECT:
        return False
    return np.asarray(v.constant).nbytes > thresholds.NATIVE_CONSTANT_BYTES


def names_of(instrs: Iterable[Instr]) -> list[str]:
    """The names of the functions that instructions or their blocks call."""
    return [i.function for i in walk(instrs) if isinstance(i, Call)]


def walk(instrs: Iterable[Instr]) -> Iterable[Instr]:
    """Instructions and those in their blocks."""
    for instr in instrs:
        yield instr
        for block in instr.blocks:
            yield from walk(block.instrs)


def makes_tuples(instrs: Iterable[Instr]) -> bool:
    """Whether instructions make tuples that are in memory behind them."""
    return any(
        isinstance(i.work, Pack | Zeros)
        if isinstance(i, Compute)
        else isinstance(i, Call) and any(map(is_tuple, i.made))
        for i in walk(instrs)
    )


def keeps_tuples(loop: Loop) -> bool:
    """Whether a tuple of one iteration may be read outside of it."""
    if any(is_tuple(x.param) and x.next is not x.param for x in loop.variables):
        return True
    return any(_puts_tuple(i) for i in walk(loop.body.instrs))


def _puts_tuple(instr: Instr) -> bool:
    """Whether an instruction puts a tuple into a list."""
    return isinstance(instr, Compute) and isinstance(instr.work, ListOperation) and any(map(is_tuple, instr.inputs))
