"""The printer of Python: writes the blocks of a program as functions.

A `Loop` becomes a `for` statement, a conditional an `if`, and a kernel a call. The order of the lines replaces the
scheduling of the executor. A value is a local variable. A value from outside of a branch or a body is the same variable
there, so a loop constant costs nothing. After its last reader, a value is deleted (`del`).

A loop iterates over an iterator that checks from time to time whether the step must stop (`runtime`). A loop that only
counts is a `for` over a range. Its counter is a Python int where it is used as an index.

Python allows twenty nested loops. Deeper blocks, and functions that call themselves, are written as functions.

`instructions` writes instructions without blocks.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

import numpy as np

from headrace import dtypes, flags, thresholds
from headrace.device_arrays import DeviceArray, on_list
from headrace.ir.kernel import OnArrays
from headrace.ir.opdef import op_registry
from headrace.schedule.program import Branches, Call, Compute, Group, Loop, Section, Segment
from headrace.schedule.select import KernelCall
from headrace.targets.python import runtime
from headrace.targets.python.instructions import InstructionWriter
from headrace.targets.python.lists import is_whole_stack
from headrace.targets.python.numbers import numbers_of
from headrace.targets.python.source import SourceLoop, loop_name

if TYPE_CHECKING:
    from headrace.ir.graph import Operation
    from headrace.schedule.program import Block, Instr, Program, Trip, Value
    from headrace.schedule.timers import Path, Timers

MOST_LOOPS: Final = 15  # nested in one function; Python's limit is 20
MOST_BLOCKS: Final = 60  # nested, of any kind; Python's limit is 100, of which a `Case` takes a few more


class Printer(InstructionWriter):
    """Writes the source of one step.

    Args:
      program: The program of the step.
      timers: Takes the sites of the code, which then has laps (`schedule.timers`); None for code without.
    """

    def __init__(self, program: Program, timers: Timers | None = None) -> None:
        super().__init__()
        self._program = program
        self._timers = timers
        self._path: Path = ()  # of the open block; kept for timers
        self._functions: dict[str, str] = {}
        self._in_function = False
        names = [self.name_for(v, "a") for v in program.params]
        self.out.line(f"def step(run{''.join(', ' + n for n in names)}):")
        self.out.indent()
        self._block(program.block)
        texts = [self.text(v) for v in program.block.results]
        self.out.line(f"return ({', '.join(texts)}{',' if len(texts) == 1 else ''})")
        self.out.dedent()

    @property
    def calls_itself(self) -> bool:
        """Whether a function of the code calls itself."""
        return bool(self._functions)

    def _block(self, block: Block) -> None:
        """Writes the instructions of a block."""
        self.stacked |= _between_sections(block)
        outer, self.numbers = self.numbers, numbers_of(block)
        inlined: list[Operation] = []  # whose expressions are parts of the next line
        for i, instr in enumerate(block.instrs):
            written = self.out.written
            if isinstance(instr, Compute):
                self.compute(instr, block.instrs[i + 1] if i + 1 < len(block.instrs) else None)
            elif isinstance(instr, Group):
                self._group(instr)
            elif isinstance(instr, Section):
                self._section(instr)
            elif isinstance(instr, Segment):
                self._segment(instr)
            else:
                self._structured(instr)
                self.drop(instr.drops)
            if self._timers is not None and self.whole is None and not isinstance(instr, Loop):
                inlined += _timed_ops(instr)
                if self.out.written > written:
                    self._lap(self._timers.add(inlined, self._path))
                    inlined = []
        self.numbers = outer

    # *** timers ***

    def _lap(self, site: int, does_count: bool = True) -> None:
        """Writes a lap."""
        self.out.line(f"run.laps.{'lap' if does_count else 'spend'}({site})")

    def _section(self, instr: Section) -> None:
        """Writes the call of a section."""
        self.uses_blas |= instr.uses_blas
        self.is_threaded |= instr.uses_blas  # sections call the library for large products only
        self.uses_threads |= instr.uses_threads
        self.flushes |= instr.flushes
        self.polls |= instr.polls
        inputs = tuple([self._section_input(instr, v) for v in instr.inputs])
        look = "run.look" if instr.polls else "None"
        given = (look, *inputs) if self._timers is None else ("run.laps", look, *inputs)
        call = f"{self.out.bind(instr.function, 'n')}({', '.join(given)})"
        names = [self.name_for(v) for v in instr.made]
        self.out.line(f"{', '.join(names)} = {call}" if names else call, instr.op, inputs)
        for v, name in zip(instr.made, names, strict=True):
            if v in instr.lists and v not in self.stacked:
                self.out.line(f"{name} = list({name})", instr.op)
        if flags.VERIFY.value >= 2:
            self.check(instr.made, instr.op)
        self.drop(instr.drops)

    def _section_input(self, instr: Section, v: Value) -> str:
        """An argument of a section."""
        if v not in instr.lists or v in self.stacked:
            return self.text(v)
        dtype, shape = instr.lists[v]
        stacked = self.out.bind(runtime.stacked, "f")
        return f"{stacked}({self.text(v)}, {shape}, {self.out.bind(dtype, 'o')}, -1)"

    # *** segments ***

    def _segment(self, instr: Segment) -> None:
        """Writes a segment as a function of arrays, and its call."""
        out, name = self.out, self.out.new("segment")
        values = f"[{', '.join(map(self.text, instr.inputs))}]"
        calls = instr.block.instrs
        made = functools.partial(on_list, memory=instr.memory, name=instr.op.name, kernels=len(calls))
        out.begin(f"def {name}(values):", out.bind(made, "d"))
        params = [out.new("p") for _ in instr.inputs]
        out.line(f"[{', '.join(params)}] = values")
        out.line("values.clear()")
        outer, self.texts = self.texts, dict(zip(instr.inputs, params, strict=True))
        for each in calls:
            self._array_call(each)
        out.line(f"return {', '.join(map(self.text, instr.made))}", instr.op)
        out.end()
        self.texts = outer
        if any(v.holds_much for v in instr.drops):
            given = out.new("t")
            out.line(f"{given} = {values}", instr.op)
            self.drop(instr.drops)
            values = given
        out.line(f"{', '.join(map(self.name_for, instr.made))} = {name}({values})", instr.op)
        if flags.VERIFY.value >= 2:
            self.check(instr.made, instr.op)

    def _array_call(self, instr: Instr) -> None:
        """Writes the call of a kernel on arrays of its device."""
        assert isinstance(instr, Compute)
        assert isinstance(instr.work, KernelCall)
        out, factory = self.out, instr.work.kernel.factory
        assert isinstance(factory, OnArrays)
        for v in instr.inputs:
            if v not in self.texts and type(v.constant) is DeviceArray:
                self.texts[v] = out.bind(v.constant.array, "c")
        inputs = tuple(map(self.text, instr.inputs))
        names = ["_" if v is None else out.new("t") for v in instr.outputs]
        self.texts.update((v, name) for v, name in zip(instr.outputs, names, strict=True) if v is not None)
        call = f"{out.bind(factory.on_arrays(instr.op), 'k')}({', '.join(inputs)})"
        out.line(f"{', '.join(names)} = {call}", instr.op, inputs)
        self.use_libraries(instr.op)
        self.drop(instr.drops)

    # *** groups ***

    def _group(self, group: Group) -> None:
        """Writes a group as a loop over slices, with whole arrays for its outputs."""
        out, op = self.out, group.op
        whole: dict[Value, str] = {}
        pattern = next((self.text(v) for v in group.inputs if v.shape == group.shape), "")
        for v, given in zip(group.made, group.given, strict=True):
            if given is not None:
                whole[v] = self.texts[given]
                continue
            whole[v] = out.new("t")
            dtype = out.bind(v.dtype.numpy, "o")
            like, empty = out.bind(np.empty_like, "f"), out.bind(np.empty, "f")
            made = f"{like}({pattern}, {dtype})" if pattern else f"{empty}({group.shape}, {dtype})"
            out.line(f"{whole[v]} = {made}", op)
        i, stop = out.new("i"), out.new("i")
        before = {v: self.text(v) for v in group.inputs}
        out.line(f"for {i} in range(0, {group.shape[group.axis]}, {group.step}):", op)
        out.indent()
        out.line(f"{stop} = {i} + {group.step}", op)
        names: dict[str, str] = {}  # the slices that already have a name
        for v, text in [*before.items(), *whole.items()]:
            index = _sliced(group, v, f"{i}:{stop}")
            if not index:
                continue
            known = names.get(text + index)
            if known is None:
                known = names[text + index] = out.new("s")
                out.line(f"{known} = {text}{index}", op)
            if v in whole:
                self.targets[v] = known
            else:
                self.texts[v] = known
        self.whole = len(group.shape) - group.axis - 1
        self._block(group.block)
        self.whole = None
        out.dedent()
        out.line(f"del {', '.join(names.values())}", op)
        self.texts.update(before)
        for v in group.made:
            del self.targets[v]
            self.texts[v] = whole[v]
        self.drop([v for v in group.drops if v not in group.given])

    # *** blocks ***

    def _structured(self, instr: Instr) -> None:
        """Writes a loop, a conditional or a call."""
        if self.out.depth >= MOST_LOOPS or self.out.indentation >= MOST_BLOCKS:
            self._outlined(instr)
        elif isinstance(instr, Loop):
            self._loop(instr)
        elif isinstance(instr, Branches):
            self._branches(instr)
        else:
            assert isinstance(instr, Call)
            self._call(instr)

    def _outlined(self, instr: Instr) -> None:
        """Writes an instruction as a function of its own, because too many blocks surround it."""
        given = [v for v in instr.reads if v.storage != "constant"]
        outer = {v: self.texts[v] for v in given}
        name = self.out.new("part")
        call = f"{name}(run{''.join(', ' + outer[v] for v in given)})"
        suspends, self.suspends = self.suspends, False
        params = [self.out.new("p") for _ in given]
        self.out.begin(f"def {name}(run{''.join(', ' + p for p in params)}):")
        self.texts.update(zip(given, params, strict=True))
        self._structured(instr)
        self.out.line(f"return ({''.join(self.texts[v] + ', ' for v in instr.made)})")
        self.out.end()
        self.texts.update(outer)
        names = [self.name_for(v) for v in instr.made]
        call = f"(yield from {call})" if self.suspends else call
        self.out.line(f"{', '.join(names)}{',' if len(names) == 1 else ''} = {call}" if names else call, instr.op)
        self.suspends = self.suspends or suspends

    # *** conditionals ***

    def _branches(self, instr: Branches) -> None:
        op, out = instr.op, self.out
        (selector,) = instr.inputs
        names = [self.name_for(v) for v in instr.made]

        def write(header: str, block: Block) -> None:
            out.line(header, op)
            out.indent()
            self._block(block)
            self._give(dict(zip(names, block.results, strict=True)))
            out.dedent()

        if not instr.is_case:
            other, then = instr.branches
            write(f"if {self._truth(selector)}:", then)
            if other.instrs or names:
                write("else:", other)
        else:
            which = out.new("w")
            chosen = self.text(selector)
            branch = out.bind(runtime.branch, "f")
            out.line(f"{which} = {branch}({chosen}, {len(instr.branches)})", op, (chosen,))
            self._case(instr, which, range(len(instr.branches)), write)

    def _case(self, instr: Branches, which: str, numbers: range, write: Callable[[str, Block], None]) -> None:
        """Writes branches of a `Case` as nested halves.

        A chain of `elif` would be slower. Python's compiler recurses at each `elif` and fails at a few hundred.

        Args:
          instr: The `Case`.
          which: The name of the variable with the number of the branch.
          numbers: The branches to write.
          write: Writes a header and a branch.
        """
        if len(numbers) <= thresholds.ELIF_CHAIN:
            for i in numbers:
                header = f"{'if' if i == numbers[0] else 'elif'} {which} == {i}:"
                write("else:" if i == numbers[-1] and len(numbers) > 1 else header, instr.branches[i])
            return
        middle = len(numbers) // 2
        for header, half in ((f"if {which} < {numbers[middle]}:", numbers[:middle]), ("else:", numbers[middle:])):
            self.out.line(header, instr.op)
            self.out.indent()
            self._case(instr, which, half, write)
            self.out.dedent()

    def _give(self, names: Mapping[str, Value]) -> None:
        """Assigns their next values to the names of loop variables or of a conditional's outputs."""
        pairs = [(name, text) for name, v in names.items() if (text := self.text(v)) != name]
        left = {name for name, _ in pairs}
        if any(text in left for _, text in pairs):
            self.out.line(f"{', '.join(n for n, _ in pairs)} = {', '.join(t for _, t in pairs)}")
        else:
            for name, text in pairs:
                self.out.line(f"{name} = {text}")

    # *** loops ***

    def _loop(self, instr: Loop) -> None:
        op, out = instr.op, self.out
        names = []
        for v in instr.variables:
            names.append(out.new("v"))
            out.line(f"{names[-1]} = {self.text(v.initial)}", op)
        for v, name in zip(instr.variables, names, strict=True):
            self.texts[v.param] = name
        path, site = self._path, -1
        if self._timers is not None:
            self._path = (*path, loop_name(op))
            site = self._timers.add([op], self._path, is_loop=True)
            self._lap(site, does_count=False)
        stop = self._header(instr, instr.test) if instr.trip is None else self._counted_header(op, instr.trip)
        self._block(instr.body)
        self._give(dict(zip(names, instr.body.results, strict=True)))
        if site >= 0:
            self._lap(site)
        out.leave_loop()
        if site >= 0:
            self._lap(site, does_count=False)
            self._path = path
        for v, name in zip(instr.variables, names, strict=True):
            if v.final is not None:
                self.texts[v.final] = name
        if instr.trip is not None and instr.trip.final is not None:
            final = instr.trip.final
            out.line(f"{self.name_for(final)} = {self.scalar_type(final)}({stop})", op)

    def _header(self, instr: Loop, test: Block | None) -> str:
        """Writes the header of a loop that evaluates its condition in each iteration."""
        assert test is not None
        op, out = instr.op, self.out
        number = out.new("n")
        out.line(f"for {number} in {out.bind(runtime.chain, 'f')}({out.bind(runtime.START, 'c')}, run):", op)
        out.enter_loop(SourceLoop(op, number))
        self._block(test)
        out.line(f"if not {self._truth(test.results[0])}: break", op)
        return ""

    def _counted_header(self, op: Operation, trip: Trip) -> str:
        """Writes the header of a loop that only counts; returns the counter's final value."""
        out = self.out
        first = self._integer(trip.first, op)
        stops = []
        for b in trip.limits:
            limit = self._integer(b.limit, op)
            if b.is_inclusive:
                limit = str(int(limit) + 1) if limit.isdecimal() else f"{limit} + 1"
            if not b.is_own:
                limit = f"{first} + {limit} - {self._integer(b.first, op)}"
            stops.append(limit)
        stop = out.new("s") if len(stops) > 1 or not stops[0].isdecimal() else stops[0]
        if stop not in stops:
            out.line(f"{stop} = {'min(' + ', '.join(stops) + ')' if len(stops) > 1 else stops[0]}", op)
        number = out.new("i")
        is_short = stop.isdecimal() and first.isdecimal() and int(stop) - int(first) <= thresholds.FIRST_LOOK
        out.line(f"for {number} in {'range' if is_short else 'run.span'}({first}, {stop}):", op)
        out.enter_loop(SourceLoop(op, number, first, trip.most))
        self.texts[trip.counter] = number
        if first.isdecimal() and stop.isdecimal():
            return str(max(int(first), int(stop)))
        return f"max({first}, {stop})"

    def _integer(self, value: Value, op: Operation) -> str:
        """A scalar integer as the text of a Python int: a literal or a variable."""
        if value.storage == "constant" and int(value.constant) >= 0:
            return str(int(value.constant))
        text = self.text(value)
        if value.representation == "counter":
            return text
        name = self.out.new("s")
        self.out.line(f"{name} = int({text})", op)
        return name

    # *** calls ***

    def _call(self, instr: Call) -> None:
        op, out, name = instr.op, self.out, instr.function
        function = self._functions.get(name)
        if function is None:
            function = self._functions[name] = out.new("function")
            self._define(function, name)
        texts = tuple(map(self.text, instr.inputs))
        depth = "depth + 1" if self._in_function else "1"
        limit = flags.CALL_DEPTH.value
        if self._in_function:
            deep = out.bind(runtime.too_deep, "f")
            out.line(f"if depth >= {limit}: raise {deep}({out.bind(op, 'o')}, {limit}, {name!r})", op)
        names = [self.name_for(v) if v is not None else "_" for v in instr.outputs]
        target = f"{', '.join(names)}{',' if len(names) == 1 else ''} = " if names else ""
        out.line(f"{target}{function}(run, {depth}{''.join(', ' + t for t in texts)})", op, texts)

    def _define(self, function: str, name: str) -> None:
        """Writes a function that calls itself."""
        made = self._program.functions[name]
        was, self._in_function = self._in_function, True
        params = [self.name_for(v, "p") for v in made.params]
        self.out.begin(f"def {function}(run, depth{''.join(', ' + p for p in params)}):")
        path, self._path = self._path, (name,)
        self._block(made.block)
        self._path = path
        self.out.line(f"return ({''.join(self.text(v) + ', ' for v in made.block.results)})")
        self.out.end()
        self._in_function = was

    # *** predicates ***

    def _truth(self, value: Value) -> str:
        """Expression of a predicate for a Python `if`."""
        text = self.text(value)
        if value.dtype is dtypes.bool_ and value.shape == ():
            return text
        kernel = op_registry.get("ToBool").kernel
        assert kernel is not None
        return f"{self.out.bind(kernel(np, {}), 'f')}({text})"


def _between_sections(block: Block) -> set[Value]:
    """The lists that sections of a block make for sections and stacks alone."""
    made = {v for i in block.instrs if isinstance(i, Section) for v in i.made if v in i.lists}
    read = {v for i in block.instrs if not isinstance(i, Section) and not is_whole_stack(i) for v in i.reads}
    return made - read - set(block.results)


def _timed_ops(instr: Instr) -> Sequence[Operation]:
    """The operations that the site of an instruction names.

    There are none for a section, which has sites of its own.
    """
    if isinstance(instr, Section):
        return ()
    return [each.op for each in instr.block.instrs] if isinstance(instr, Group) else [instr.op]


def _sliced(group: Group, value: Value, bounds: str) -> str:
    """The index for slice `bounds` of `value`; "" if all slices read all of it."""
    shape: Sequence[int | None] = value.shape or ()
    at = group.axis - len(group.shape) + len(shape)
    return f"[{':, ' * at}{bounds}]" if at >= 0 and shape[at] == group.shape[group.axis] else ""
