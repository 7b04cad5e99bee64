"""Printer of native code: the instructions of a region as an LLVM function.

`%state`, `%inputs` and `%outputs` are the parameters of the function (`state`). A number is held in a register, an
array by the address of its first element and a static layout (`plan`), a list by three variables (`lists`). Loop
variables are variables on the stack, which LLVM turns into registers. A function that calls itself has each argument
and the address of each result as a parameter (`call_printing`).

A loop polls from time to time whether the call must stop. A poll in each iteration would take longer than a short
body, so such loops run a number of iterations between two polls: a loop that counts is printed as two loops, and
a loop with a condition has a counter.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from headrace import flags, thresholds
from headrace.errors import HeadraceInternalError
from headrace.opkit.forms import Window
from headrace.records import record
from headrace.schedule.program import Branches, Call, Compute, Convert, Instr, Loop, Value
from headrace.schedule.select import Constant, ListOperation, Map, Move
from headrace.targets.native import scalars, state
from headrace.targets.native.call_printing import CallPrinter
from headrace.targets.native.calls import Body, Functions, keeps_tuples, makes_tuples
from headrace.targets.native.complex_products import print_complex_product
from headrace.targets.native.costs import Costs
from headrace.targets.native.cross_entropy import print_cross_entropy
from headrace.targets.native.element_types import ElementTypes
from headrace.targets.native.failures import Place as Failure
from headrace.targets.native.fusion import Nest
from headrace.targets.native.grown import Dimensions, Front, Repeated, Rows, is_array, is_grown
from headrace.targets.native.held import Array, Held, Items, Number
from headrace.targets.native.indexing import IndexPrinter
from headrace.targets.native.lists import ListPrinter
from headrace.targets.native.llvm_text import Module
from headrace.targets.native.orders import OrderPrinter
from headrace.targets.native.plan import Home, Plan, Storage, contiguous, dims, row_major
from headrace.targets.native.repeats import Repeats
from headrace.targets.native.rewriting import CrossEntropy
from headrace.targets.native.strips import Strips, Unit
from headrace.targets.native.timers import UnitTimers
from headrace.targets.native.tuples import Absent, Pack, Unpack, Zeros, is_tuple
from headrace.targets.native.unread import unread_products
from headrace.targets.native.windows.calls import print_window

if TYPE_CHECKING:
    from headrace.opkit.forms import Product
    from headrace.schedule.program import Trip
    from headrace.schedule.timers import Path, Timers
    from headrace.targets.native.regions import NativeRegion

_INT64: Final = np.dtype(np.int64)


@record(frozen=True, slots=True)
class Printed:
    """Native code of a region.

    Attributes:
      module: The module with the function.
      core: The name of the function.
      inputs: The inputs; those among them with a `constant` are known.
      outputs: The results.
      places: The places that can fail in the module so far; the function returns the position of one, plus 1.
      units: The nests and other instructions of the region, without those in inner blocks.
      has_parts: Whether several threads may run parts of an instruction.
    """

    module: Module
    core: str
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    places: tuple[Failure, ...]
    units: tuple[Unit, ...]
    has_parts: bool


@record(eq=False, slots=True)
class Printing:
    """Module in construction.

    Attributes:
      functions: The native functions of the program.
      is_guarded: Whether each buffer has guards, for which it needs memory of its own; by default as VERIFY says.
      module: The module.
      places: The places that can fail, of all functions of the module.
      has_parts: The functions that call themselves and are printed, by symbol: whether several threads may run parts of
        an instruction.
      timers: Takes the sites of profiled code (`timers`); None for code without laps.
    """

    functions: Functions = dataclasses.field(default_factory=Functions)
    is_guarded: bool = dataclasses.field(default_factory=lambda: flags.VERIFY.value >= 3)
    module: Module = dataclasses.field(default_factory=Module)
    places: list[Failure] = dataclasses.field(default_factory=list)
    has_parts: dict[str, bool] = dataclasses.field(default_factory=dict)
    timers: Timers | None = None


def print_region(
    region: NativeRegion, printing: Printing | None = None, name: str = "core", path: Path = ()
) -> Printed:
    """Prints a region as a function `i32 (ptr %state, ptr %inputs, ptr %outputs)`, and the functions that it calls.

    Args:
      region: The region.
      printing: The module that takes the functions; None for a new one.
      name: The name of the function.
      path: The loops around the region, for timers.

    Returns:
      The module, the inputs and the outputs.
    """
    printing = Printing() if printing is None else printing
    printer = Printer(region.instrs, region.inputs, region.outputs, region.elements, printing, path)
    printer.print_core(name)
    called = printing.functions.called(region.instrs)
    for function, body in called.items():
        if body.symbol not in printing.has_parts:
            elements = ElementTypes(body.instrs)
            inner = Printer(body.instrs, body.params, body.results, elements, printing, (function,))
            inner.print_function(body)
            printing.has_parts[body.symbol] = inner.has_parts
    has_parts = printer.has_parts or any(printing.has_parts[body.symbol] for body in called.values())
    places, top = tuple(printing.places), tuple(printer.plan.top)
    return Printed(printer.module, name, printer.inputs, region.outputs, places, top, has_parts)


class Printer(IndexPrinter, OrderPrinter, ListPrinter, CallPrinter):
    """Printer of one region or function; the classes below it print single instructions.

    Args:
      instrs: The instructions.
      inputs: The values that they read from outside.
      outputs: The results.
      elements: The types of the elements of lists.
      printing: The module that takes the function.
      path: The loops around the region or the name of the function, for timers.
    """

    def __init__(
        self,
        instrs: Sequence[Instr],
        inputs: tuple[Value, ...],
        outputs: tuple[Value, ...],
        elements: ElementTypes,
        printing: Printing,
        path: Path = (),
    ) -> None:
        self.module = printing.module
        self.functions = printing.functions
        self.failures = printing.places
        self.inputs = inputs
        self.outputs = outputs
        self.plan = Plan(instrs, inputs, outputs)
        self.element_types = elements
        self.values: dict[Value, Held] = {}
        self.has_parts = False
        self.depth = "0"
        self.needed: dict[Compute, str] = {}  # the i1 of a product that some iterations need
        self.access = ""  # metadata of loads and stores of the open nest
        self._loops: list[tuple[Loop, str, str]] = []  # the open loops: the variable of the number, and the first one
        self.addresses: dict[Storage, str] = {}
        self._backs: dict[Home, str] = {}
        self._tails: list[tuple[str, int, list[str]]] = []  # blocks of failures
        self._owned: list[list[Items]] = [[]]  # lists and other blocks of memory, by open block
        self._constants: dict[Value, Held] = {}
        self._costs = Costs()
        self.repeats = Repeats()
        self._is_guarded = printing.is_guarded
        self._instrs = instrs
        self._timers = None if printing.timers is None else UnitTimers(printing.timers, path, self._costs)

    def print_core(self, name: str) -> None:
        """Prints the function of a region, which the entry calls."""
        params = [("ptr noalias", "state"), ("ptr noalias", "inputs"), ("ptr noalias", "outputs")]
        f = self.f = self.module.function(name, "i32", params, "nounwind")
        if any(self.functions.called(self._instrs)):
            self.begin_calls()
        if self._timers is not None:
            self._timers.begin(f, self._instrs)
        symbols = 0
        for k, v in enumerate(self.inputs):
            at = f.op(f"getelementptr inbounds ptr, ptr %inputs, i64 {k}")
            pointer = f.op(f"load ptr, ptr {at}, align 8, !invariant.load {self.empty}", "in")
            if is_grown(v) or v.representation == "list":
                to = f.op(f"getelementptr inbounds ptr, ptr %inputs, i64 {len(self.inputs) + symbols}")
                symbols += 1
                length = f.op(f"load i64, ptr {f.op(f'load ptr, ptr {to}, align 8')}, align 8", "length")
                if v.representation == "list":
                    self._take_list(v, pointer, length)
                else:
                    self.values[v] = Array(pointer, v.dtype.numpy, (length, *dims(v)), contiguous(v))
            elif is_array(v):
                self.values[v] = Array(pointer, v.dtype.numpy, dims(v), contiguous(v))
            else:
                dtype = v.dtype.numpy
                self.values[v] = Number(scalars.load(f, dtype, pointer), dtype)
        outputs = {}
        for k in sorted({s.output for s in self.plan.storages if s.output >= 0}):
            at = f.op(f"getelementptr inbounds ptr, ptr %outputs, i64 {k}")
            outputs[k] = f.op(f"load ptr, ptr {at}, align 8, !invariant.load {self.empty}", "out")
        self._allocate(outputs)
        self.units(self.plan.top)
        for k, v in enumerate(self.outputs):
            self._output(k, v)
        f.line("ret i32 0")
        self._end()

    def print_function(self, body: Body) -> None:
        """Prints a function that calls itself."""
        f = self.f = self.open_function(body)
        if self._timers is not None:
            self._timers.begin(f, self._instrs, is_function=True)
        releases = makes_tuples(body.instrs) and not any(map(is_tuple, body.results))
        before = state.mark(f) if releases else None
        blocks = self._allocate({k: f"%out{k}" for k in range(len(self.outputs))}, is_function=True)
        self.units(self.plan.top)
        for k, v in enumerate(self.outputs):
            if not is_array(v):
                f.line(f"store {scalars.register_type(v.dtype.numpy)} {self.number(v)}, ptr %out{k}")
            elif k in self.plan.copied_outputs:
                source = self.array(v)
                self.copy(Array(f"%out{k}", source.dtype, source.shape, row_major(source.shape)), source)
        self.free_lists(self._owned.pop())
        for block, size in blocks:
            state.free_block(f, block, size)
        if before is not None:
            state.release(f, before)
        f.line("ret i32 0")
        self._end()

    def _allocate(self, outputs: Mapping[int, str], is_function: bool = False) -> list[tuple[str, int]]:
        """Prints the memory of all storages.

        Args:
          outputs: The addresses of results.
          is_function: Whether the memory ends with the function, and not with the call of the entry.

        Returns:
          The blocks to free and their sizes.
        """
        f = self.f
        allocate = state.allocate_block if is_function else state.allocate
        blocks: list[tuple[str, int]] = []
        whole = self.plan.bytes if not self._is_guarded else 0
        arena = allocate(f, whole, "no_memory", "region") if whole else ""
        if whole and is_function:
            blocks.append((arena, whole))
        for s in self.plan.storages:
            if not s.bytes:
                continue
            if s.output >= 0:
                self.addresses[s] = outputs[s.output]
            elif self._is_guarded:
                self.addresses[s] = allocate(f, s.bytes, "no_memory", "array")
            elif s.offset >= 0:
                self.addresses[s] = f.op(f"getelementptr inbounds i8, ptr {arena}, i64 {s.offset}", "buffer")
            else:
                self.addresses[s] = f.alloca(f"[{s.bytes} x i8]", 64)
        return blocks

    def _end(self) -> None:
        """Prints the blocks of failures."""
        f = self.f
        for label, code, lines in self._tails:
            f.begin(label)
            for line in lines:
                f.line(line)
            f.line(f"ret i32 {code}")
        for label, code in (("no_memory", state.NO_MEMORY), ("stopped", state.STOPPED)):
            f.begin(label)
            f.line(f"ret i32 {code}")

    def _take_list(self, v: Value, pointer: str, length: str) -> None:
        """Makes a list of the rows of an input."""
        items = self.values[v] = self.new_items(v)
        dtype = items.element.dtype
        shape: tuple[int | str, ...] = (length, *items.element.shape)
        assert dtype is not None
        if v in self.plan.borrowed:
            self.assign(items, (pointer, length, state.BORROWED))
        else:
            self.assign(items, self.copied_rows(Array(pointer, dtype, shape, row_major(shape))))
        self._owned[-1].append(items)

    def _output(self, k: int, v: Value) -> None:
        f, held = self.f, self.held(v)
        at = f.op(f"getelementptr inbounds ptr, ptr %outputs, i64 {k}")
        match held:
            case Number():
                scalars.store(f, v.dtype.numpy, self.number(v), f.op(f"load ptr, ptr {at}, align 8"))
            case Array(pointer, _, shape) if not v.is_static:
                record = f.op(f"load ptr, ptr {at}, align 8")
                if not held.is_contiguous or self.plan.is_on_stack(v):
                    pointer = self.copied_block(held).pointer
                f.line(f"store ptr {pointer}, ptr {record}, align 8")
                self._store_dims(record, shape)
            case Array():
                if k in self.plan.copied_outputs:
                    target = f.op(f"load ptr, ptr {at}, align 8")
                    self.copy(Array(target, held.dtype, held.shape, row_major(held.shape)), held)
            case Items(data, length, _, _, element):
                record = f.op(f"load ptr, ptr {at}, align 8")
                f.line(f"store ptr {f.op(f'load ptr, ptr {data}, align 8')}, ptr {record}, align 8")
                sizes = [f.op(f"load i64, ptr {length}, align 8"), *map(str, element.shape)]
                self._store_dims(record, sizes)

    def _store_dims(self, record: str, shape: Sequence[int | str]) -> None:
        """Prints stores of the dimensions of a result to its record (`entry`)."""
        for i, d in enumerate(shape):
            to = self.f.op(f"getelementptr inbounds i8, ptr {record}, i64 {8 + 8 * i}")
            self.f.line(f"store i64 {d}, ptr {to}, align 8")

    # *** Values ***

    def held(self, v: Value) -> Held:
        """The form of a value; constants become literals and globals."""
        found = self.values.get(v) or self._constants.get(v)
        if found is None:
            if v.storage != "constant":
                raise HeadraceInternalError(f"native code reads {v} ({v.tensor.name}) before it is defined")
            found = self._constants[v] = self.constant(np.asarray(v.constant), v.dtype.numpy)
        return found

    def constant(self, array: np.ndarray, dtype: np.dtype) -> Held:
        """The form of a constant: a literal or a global."""
        if array.shape == ():
            return Number(scalars.literal(array[()], dtype), dtype)
        return self.global_array(np.ascontiguousarray(array, dtype))

    def number(self, v: Value) -> str:
        """The register of a scalar, in the form of its dtype."""
        held = self.held(v)
        if isinstance(held, Array):  # a "scalar" of an array
            return scalars.load(self.f, held.dtype, held.pointer)
        assert isinstance(held, Number)
        return scalars.convert(self.f, held.text, held.dtype, v.dtype.numpy)

    def index(self, v: Value) -> str:
        """The i64 of a scalar integer or a counter."""
        if v.storage == "constant":
            return str(int(v.constant))
        held = self.held(v)
        assert isinstance(held, Number)
        return scalars.convert(self.f, held.text, held.dtype, _INT64)

    def array(self, v: Value) -> Array:
        """The form of an array."""
        held = self.held(v)
        assert isinstance(held, Array)
        return held

    def place_of(self, v: Value) -> Array:
        """The array into which the instruction that makes `v` writes."""
        place = self.plan.places[v]
        return Array(self.address(place), v.dtype.numpy, dims(v), contiguous(v))

    def address(self, place: Storage | Home) -> str:
        """The address of a storage, or of the home that takes the next value."""
        return self.addresses[place] if isinstance(place, Storage) else self._backs[place]

    # *** Failures ***

    def fail_if(self, condition: str, instr: Instr, kind: Any, *numbers: str) -> None:
        """Prints a branch to a failure.

        Args:
          condition: The i1 that is true if the instruction fails.
          instr: The instruction.
          kind: The kind of the failure.
          numbers: i64 numbers that describe it.
        """
        f = self.f
        label, on = f.new("failure"), f.new("on")
        f.branch(state.unlikely(f, condition), label, on)
        self._fail(label, instr, kind, *numbers)
        f.begin(on)

    def _poll(self, cost: int | str) -> None:
        """Prints a poll in the innermost open loop, after work of `cost` nanoseconds."""
        self.poll_at(self._loops[-1][0], cost)

    def poll_at(self, instr: Instr, cost: int | str) -> None:
        """Prints a poll at an instruction, after work of `cost` nanoseconds."""
        f = self.f
        label, on = f.new("stop"), f.new("on")
        state.poll(f, cost, label)
        f.jump(on)
        self._fail(label, instr, "stopped")
        f.begin(on)

    def _fail(self, label: str, instr: Instr, kind: Any, *numbers: str) -> None:
        """Prints the block of a failure."""
        number = self.new_place(instr, kind, len(numbers))
        self.f.begin(label)
        self.store_iterations(*numbers)
        self.f.line(f"ret i32 {number}")

    def new_place(self, instr: Instr, kind: Any, details: int = 0) -> int:
        """The number of a new place in the open loops."""
        self.failures.append(Failure(instr, tuple(loop for loop, _, _ in self._loops), kind, details))
        return len(self.failures)

    def store_iterations(self, *numbers: str) -> None:
        """Prints stores of the iterations of the open loops, and of numbers behind them."""
        f = self.f
        for depth, (_, number, first) in enumerate(self._loops):
            now = f.op(f"load i64, ptr {number}, align 8")
            state.set_counter(f, depth, now if first == "0" else f.op(f"sub i64 {now}, {first}"))
        at = min(len(self._loops), state.COUNTERS - len(numbers))
        for i, text in enumerate(numbers):
            state.set_counter(f, at + i, text)

    # *** Units ***

    def units(self, found: Sequence[Unit]) -> None:
        """Prints the units of a block."""
        if self._timers is not None:
            self._timers.units(found, self._unit)
            return
        for unit in found:
            self._unit(unit)

    def _unit(self, unit: Unit) -> None:
        for v in unit.made:
            if v in self.plan.pushed:
                place = self.plan.places[v]
                assert isinstance(place, Storage)
                self.addresses[place] = self.next_element(self.plan.pushed[v])
        if isinstance(unit, Nest):
            self.nest(unit)
        elif isinstance(unit, Strips):
            self.strips(unit)
        elif isinstance(unit, Loop):
            self._loop(unit)
        elif isinstance(unit, Branches):
            self._branches(unit)
        elif isinstance(unit, Call):
            self.call(unit)
        elif isinstance(unit, Compute):
            self._compute(unit)
        else:
            raise HeadraceInternalError(f"native code has no {type(unit).__name__}")

    def _compute(self, instr: Compute) -> None:
        match instr.work:
            case Map(expression):
                (out,) = instr.made
                texts = [self.number(v) for v in instr.inputs]
                dtypes = [v.dtype.numpy for v in instr.inputs]
                self.check_divisor(instr)
                made = scalars.expression(self.f, expression, texts, dtypes)
                self.values[out] = Number(made, out.dtype.numpy)
            case Move(Window() as form):
                print_window(self, instr, form)
            case Move():
                self.move(instr)
            case Dimensions() | Front() | Rows() | Repeated():
                self.grown(instr)
            case CrossEntropy():
                print_cross_entropy(self, instr)
            case ListOperation():
                self.list_operation(instr)
            case Pack() | Unpack() | Absent() | Zeros():
                self.tuple_operation(instr)
            case Constant(value):
                (out,) = instr.made
                self.values[out] = self.constant(np.asarray(value), out.dtype.numpy)
            case Convert():
                (out,) = instr.made
                dtype = out.dtype.numpy
                self.values[out] = Number(scalars.convert(self.f, self.index(instr.inputs[0]), _INT64, dtype), dtype)
            case _:
                raise HeadraceInternalError(f"native code has no {type(instr.work).__name__}")

    def matrix_product(self, instr: Compute, form: Product) -> None:
        """Prints a product of matrices."""
        if instr.made[0].dtype.is_complex:
            self.values[instr.made[0]] = print_complex_product(self, instr, form)
        else:
            super().matrix_product(instr, form)

    # *** Conditionals ***

    def _branches(self, instr: Branches) -> None:
        f = self.f
        outputs = list(instr.made)
        slots: dict[Value, str] = {}
        lists: dict[Value, Items] = {}
        for v in outputs:
            if v.representation == "list":
                lists[v] = self.new_items(v)
            elif not is_array(v):
                slots[v] = f.alloca(scalars.register_type(v.dtype.numpy))
            elif v not in self.plan.places:
                slots[v] = f.alloca("ptr")
        labels = [f.new("branch") for _ in instr.branches]
        end = f.new("joined")
        chosen = self.held(instr.inputs[0])
        assert isinstance(chosen, Number)
        if instr.is_case:
            index = self.index(instr.inputs[0])
            cases = " ".join(f"i64 {i}, label %{label}" for i, label in enumerate(labels[:-1]))
            f.line(f"switch i64 {index}, label %{labels[-1]} [ {cases} ]")
        else:
            truth = scalars.convert(f, chosen.text, chosen.dtype, np.dtype(bool))
            f.branch(truth, labels[1], labels[0])
        for label, block in zip(labels, instr.branches, strict=True):
            f.begin(label)
            self._owned.append([])
            self.units(self.plan.units[block])
            for k, place in self.plan.copied.get(block, ()):
                source = self.array(block.results[k])
                self.copy(Array(self.address(place), source.dtype, source.shape, row_major(source.shape)), source)
            for v, result in zip(outputs, block.results, strict=True):
                if v in lists:
                    self.move_list(result, lists[v])
                elif v in slots and is_array(v):
                    f.line(f"store ptr {self.array(result).pointer}, ptr {slots[v]}, align 8")
                elif v in slots:
                    f.line(f"store {scalars.register_type(v.dtype.numpy)} {self.number(result)}, ptr {slots[v]}")
            self.free_lists(self._owned.pop())
            f.jump(end)
        f.begin(end)
        for v in outputs:
            dtype = v.dtype.numpy
            if v in lists:
                self.values[v] = lists[v]
                self._owned[-1].append(lists[v])
            elif v not in slots:
                self.values[v] = self.place_of(v)
            elif is_array(v):
                self.values[v] = Array(f.op(f"load ptr, ptr {slots[v]}, align 8"), dtype, dims(v), contiguous(v))
            else:
                self.values[v] = Number(f.op(f"load {scalars.register_type(dtype)}, ptr {slots[v]}"), dtype)

    # *** Loops ***

    def _loop(self, loop: Loop) -> None:
        f = self.f
        slots: dict[Value, str] = {}
        firsts: dict[Value, str] = {}
        for variable in loop.variables:
            param, initial = variable.param, variable.initial
            home = self.plan.homes.get(variable)
            if param.representation == "list":
                items = self.new_items(param)
                self.move_list(initial, items)
                self.values[param] = items
                self._owned[-1].append(items)
            elif variable.next is param or param.representation == "rows":
                self.values[param] = self.held(initial)
            elif home is not None:
                slots[param] = f.alloca("ptr")
                source = self.array(initial)
                if home.copies_initial:
                    target = self.address(home.homes[0])
                    self.copy(Array(target, source.dtype, source.shape, row_major(source.shape)), source)
                    source = dataclasses.replace(source, pointer=target)
                f.line(f"store ptr {source.pointer}, ptr {slots[param]}, align 8")
            else:
                kind = scalars.register_type(param.dtype.numpy)
                slots[param] = f.alloca(kind)
                f.line(f"store {kind} {self.number(initial)}, ptr {slots[param]}")
                firsts[param] = kind
        if self._timers is not None:
            self._timers.enter(loop)
        if loop.trip is not None:
            self._counted(loop, loop.trip, slots)
        else:
            self._conditional(loop, slots)
        if self._timers is not None:
            self._timers.leave()
        for variable in loop.variables:
            if variable.final is None:
                continue
            param = variable.param
            if param in slots:
                self.values[variable.final] = self._loaded(param, slots[param])
            else:
                self.values[variable.final] = self.values[param]

    def _loaded(self, param: Value, slot: str) -> Held:
        dtype = param.dtype.numpy
        if is_array(param):
            return Array(self.f.op(f"load ptr, ptr {slot}, align 8"), dtype, dims(param), contiguous(param))
        return Number(self.f.op(f"load {scalars.register_type(dtype)}, ptr {slot}"), dtype)

    def _open(self, loop: Loop, slots: dict[Value, str], number: str, first: str) -> None:
        """Begins an iteration: reads the loop variables and finds the homes of their next values."""
        self._loops.append((loop, number, first))
        for param, slot in slots.items():
            self.values[param] = self._loaded(param, slot)

    def _body(self, loop: Loop, slots: dict[Value, str]) -> None:
        """Prints the body of a loop and the assignment of its variables."""
        f = self.f
        for variable in loop.variables:
            home = self.plan.homes.get(variable)
            if home is None:
                continue
            one = self.address(home.homes[0])
            if home.is_in_place:
                self._backs[home] = one
            else:
                now = self.array(variable.param).pointer
                other = self.address(home.homes[1])
                self._backs[home] = f.op(f"select i1 {f.op(f'icmp eq ptr {now}, {one}')}, ptr {other}, ptr {one}")
        self._owned.append([])
        releases = makes_tuples(loop.body.instrs) and not keeps_tuples(loop)
        before = state.mark(f) if releases else None
        self.units(self.plan.units[loop.body])
        numbers = {}
        moves = []
        for variable in loop.variables:
            param, following = variable.param, variable.next
            home = self.plan.homes.get(variable)
            if param.representation == "list":
                if self.values[following] is not self.values[param]:
                    moves.append((following, self.values[param]))
            elif home is not None:
                if not home.is_direct:
                    source = self.array(following)
                    target = Array(self._backs[home], source.dtype, source.shape, row_major(source.shape))
                    self.copy(target, source)
            elif param in slots:
                numbers[param] = self.number(following)
        self.move_lists(moves)
        for variable in loop.variables:
            home = self.plan.homes.get(variable)
            if home is not None:
                f.line(f"store ptr {self._backs[home]}, ptr {slots[variable.param]}, align 8")
        for param, text in numbers.items():
            f.line(f"store {scalars.register_type(param.dtype.numpy)} {text}, ptr {slots[param]}")
        self.free_lists(self._owned.pop())
        if before is not None:
            state.release(f, before)
        if self._timers is not None:
            self._timers.iterated()

    def _close(self) -> None:
        self._loops.pop()

    def _conditional(self, loop: Loop, slots: dict[Value, str]) -> None:
        """Prints a loop that evaluates its condition in each iteration."""
        f = self.f
        assert loop.test is not None
        number = f.alloca("i64")
        f.line(f"store i64 0, ptr {number}, align 8")
        cost = max(1, round(self._costs.block(loop.body) + self._costs.block(loop.test)))
        polls_inside = self._costs.has_long_loops(loop.body) or self._costs.has_long_loops(loop.test)
        most = 1 if polls_inside else max(1, thresholds.NATIVE_POLL_EACH // cost)
        left = f.alloca("i64")
        f.line(f"store i64 {most}, ptr {left}, align 8")
        head, body, due, end = (f.new(x) for x in ("while", "do", "due", "done"))
        f.jump(head)
        f.begin(head)
        self._open(loop, slots, number, "0")
        self._owned.append([])
        self.units(self.plan.units[loop.test])
        truth = scalars.convert(f, self.number(loop.test.results[0]), loop.test.results[0].dtype.numpy, np.dtype(bool))
        self.free_lists(self._owned.pop())
        f.branch(truth, body, end)
        f.begin(body)
        self._body(loop, slots)
        now = f.op(f"load i64, ptr {number}, align 8")
        f.line(f"store i64 {f.op(f'add i64 {now}, 1')}, ptr {number}, align 8")
        rest = f.op(f"sub i64 {f.op(f'load i64, ptr {left}, align 8')}, 1")
        f.line(f"store i64 {rest}, ptr {left}, align 8")
        f.branch(state.unlikely(f, f.op(f"icmp eq i64 {rest}, 0")), due, head)
        f.begin(due)
        self._poll(cost * most)
        f.line(f"store i64 {most}, ptr {left}, align 8")
        f.jump(head)
        self._close()
        f.begin(end)

    def _counted(self, loop: Loop, trip: Trip, slots: dict[Value, str]) -> None:
        """Prints a loop that counts."""
        f = self.f
        first = self.index(trip.first)
        stop = self._stop(trip, first)
        final = self._extreme("smax", first, stop) if trip.final is not None else ""
        difference = self.module.declare("llvm.ssub.sat.i64", "i64", ["i64", "i64"])
        self.make_room(loop, f.op(f"call i64 {difference}(i64 {stop}, i64 {first})"))
        number = f.alloca("i64")
        f.line(f"store i64 {first}, ptr {number}, align 8")
        cost = max(1, round(self._costs.block(loop.body)))
        each = 1 if self._costs.has_long_loops(loop.body) else max(1, thresholds.NATIVE_POLL_EACH // cost)
        is_short = self._costs.is_short(loop)
        head, chunk, body, latch, end = (f.new(x) for x in ("count", "chunk", "body", "latch", "done"))
        f.jump(head)
        f.begin(head)
        now = start = f.op(f"load i64, ptr {number}, align 8", "start")
        f.branch(f.op(f"icmp slt i64 {now}, {stop}"), chunk, end)
        f.begin(chunk)
        if is_short:
            bound = stop
        else:
            add = self.module.declare("llvm.sadd.sat.i64", "i64", ["i64", "i64"])
            bound = self._extreme("smin", f.op(f"call i64 {add}(i64 {now}, i64 {each})"), stop)
        f.jump(body)
        f.begin(body)
        now = f.op(f"load i64, ptr {number}, align 8", "n")
        self.values[trip.counter] = Number(now, _INT64)
        self._open(loop, slots, number, first)
        unread = unread_products(loop, self.plan.units[loop.body])
        if unread:
            self.needed |= dict.fromkeys(unread, f.op(f"icmp slt i64 {f.op(f'add nsw i64 {now}, 1')}, {stop}"))
        self._body(loop, slots)
        following = f.op(f"add nsw i64 {now}, 1")
        f.line(f"store i64 {following}, ptr {number}, align 8")
        f.branch(f.op(f"icmp slt i64 {following}, {bound}"), body, latch)
        f.begin(latch)
        if is_short:
            f.jump(end)
        else:
            done = f.op(f"sub i64 {f.op(f'load i64, ptr {number}, align 8')}, {start}")
            self._poll(f.op(f"mul i64 {done}, {cost}"))
            f.jump(head)
        self._close()
        f.begin(end)
        if trip.final is not None:
            dtype = trip.final.dtype.numpy
            self.values[trip.final] = Number(scalars.convert(f, final, _INT64, dtype), dtype)

    def _stop(self, trip: Trip, first: str) -> str:
        """The number that the counter does not reach, computed without overflow."""
        f = self.f
        stops = []
        for limit in trip.limits:
            wide = f.op(f"sext i64 {self.index(limit.limit)} to i128")
            if limit.is_inclusive:
                wide = f.op(f"add i128 {wide}, 1")
            if not limit.is_own:
                wide = f.op(f"sub i128 {wide}, {f.op(f'sext i64 {self.index(limit.first)} to i128')}")
                wide = f.op(f"add i128 {wide}, {f.op(f'sext i64 {first} to i128')}")
            least = self.module.declare("llvm.smin.i128", "i128", ["i128", "i128"])
            most = self.module.declare("llvm.smax.i128", "i128", ["i128", "i128"])
            wide = f.op(f"call i128 {least}(i128 {wide}, i128 {(1 << 63) - 1})")
            wide = f.op(f"call i128 {most}(i128 {wide}, i128 {-(1 << 63)})")
            stops.append(f.op(f"trunc i128 {wide} to i64"))
        stop = stops[0]
        for other in stops[1:]:
            stop = self._extreme("smin", stop, other)
        return stop

    def _extreme(self, name: str, a: str, b: str) -> str:
        function = self.module.declare(f"llvm.{name}.i64", "i64", ["i64", "i64"])
        return self.f.op(f"call i64 {function}(i64 {a}, i64 {b})")
