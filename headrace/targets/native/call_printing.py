"""Printing of calls of functions that call themselves, and of tuples.

A function `i32 (ptr %state, i64 %depth, arguments..., addresses of results...)` returns the codes of a core (`state`).
If a call fails, each caller reports its place to the state before it returns the code, so that the error names the
calls. The depth is compared with `HEADRACE_CALL_DEPTH` before a call of a function from another one.

**The stack.** A function compares the address of its frame with a limit in the state. Below it the call continues on
the stack of another thread, which Python starts (`deep_calls`): the arguments are stored (`away`), and the new thread
loads them (`arrive`). Frames are small, so usual recursions stay on the stack of the caller.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from headrace import flags, thresholds
from headrace.ir.notes import ResidualPush
from headrace.targets.native import register_mode, scalars, state
from headrace.targets.native.calls import Body, Functions
from headrace.targets.native.grown import is_array
from headrace.targets.native.held import Array, Held, Number
from headrace.targets.native.plan import contiguous, dims, row_major
from headrace.targets.native.tuples import Layout, Pack, Unpack, Zeros

if TYPE_CHECKING:
    from headrace.schedule.program import Call, Compute, Instr, Value
    from headrace.targets.native.costs import Costs
    from headrace.targets.native.llvm_text import Function, Module
    from headrace.targets.native.plan import Plan

_INT64: Final = np.dtype(np.int64)
_NOALIAS: Final = " noalias"  # of parameters alone


class CallPrinter:
    """Prints calls and operations on tuples; part of `printer.Printer`."""

    module: Module
    f: Function
    plan: Plan
    functions: Functions
    values: dict[Value, Held]
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    depth: str  # the number of calls around the open function: a name or a literal
    _instrs: Sequence[Instr]
    _costs: Costs
    array: Callable[[Value], Array]
    number: Callable[[Value], str]
    define: Callable[[Value, Array], None]
    place_of: Callable[[Value], Array]
    copy: Callable[[Array, Array], None]
    copied: Callable[[Instr, int], Array]
    fail_if: Callable[..., None]
    poll_at: Callable[[Instr, int | str], None]
    new_place: Callable[[Instr, Any], int]
    store_iterations: Callable[..., None]

    # *** Functions ***

    def begin_calls(self) -> None:
        """Prints the limit of the stack for the calls of a core."""
        here = _frame(self.f)
        state.store(self.f, self.f.op(f"sub i64 {here}, {thresholds.NATIVE_STACK_CALLS}"), "stack")

    def open_function(self, body: Body) -> Function:
        """Opens a function that calls itself; its parameters are the inputs."""
        params = []
        for k, v in enumerate(self.inputs):
            if is_array(v):
                params.append((f"ptr{_NOALIAS}", f"in{k}"))
                self.values[v] = Array(f"%in{k}", v.dtype.numpy, dims(v), contiguous(v))
            else:
                params.append((scalars.register_type(v.dtype.numpy), f"in{k}"))
                self.values[v] = Number(f"%in{k}", v.dtype.numpy)
        params += [(f"ptr{_NOALIAS}", f"out{k}") for k in range(len(self.outputs))]
        self.depth = "%depth"
        return _function(self.module, body.symbol, params)

    def call(self, instr: Call) -> None:
        """Prints a call."""
        f, body = self.f, self.functions.bodies[instr.function]
        limit, depth = flags.CALL_DEPTH.value, "1"
        if self.depth == "%depth":
            self.poll_at(instr, max(1, round(sum(map(self._costs.instr, self._instrs)))))
            self.fail_if(f.op(f"icmp sge i64 {self.depth}, {limit}"), instr, "depth", str(limit))
            depth = f.op(f"add nuw nsw i64 {self.depth}, 1", "depth")
        args = ["ptr %state", f"i64 {depth}"]
        for k, v in enumerate(instr.inputs):
            if is_array(v):
                args.append(f"ptr {self.copied(instr, k).pointer}")
            else:
                args.append(f"{scalars.register_type(v.dtype.numpy)} {self.number(v)}")
        slots = {}
        for v in instr.made:
            if is_array(v):
                target = self.values[v] = self.place_of(v)
                args.append(f"ptr {target.pointer}")
            else:
                slots[v] = f.alloca(scalars.register_type(v.dtype.numpy))
                args.append(f"ptr {slots[v]}")
        code = f.op(f"call i32 @{body.symbol}({', '.join(args)})", "code")
        failed, on = f.new("failed"), f.new("on")
        f.branch(state.unlikely(f, f.op(f"icmp ne i32 {code}, 0")), failed, on)
        f.begin(failed)
        f.line(f"call void {state.load(f, 'leave', kind='ptr')}(i64 {self.new_place(instr, 'call')})")
        self.store_iterations()
        f.line(f"ret i32 {code}")
        f.begin(on)
        for v, slot in slots.items():
            kind = scalars.register_type(v.dtype.numpy)
            self.values[v] = Number(f.op(f"load {kind}, ptr {slot}"), v.dtype.numpy)

    # *** Tuples ***

    def tuple_operation(self, instr: Compute) -> None:
        """Prints an operation on a tuple."""
        f = self.f
        if isinstance(instr.work, Unpack):
            address = self.number(instr.inputs[0])
            kind = "pop" if instr.op.type == "TensorListPopBack" else "absent"
            self.fail_if(f.op(f"icmp eq i64 {address}, 0"), instr, kind)
            base = f.op(f"inttoptr i64 {address} to ptr", "tuple")
            for field, v in zip(instr.work.layout.fields, instr.outputs, strict=True):
                if v is not None:
                    at = f.op(f"getelementptr inbounds i8, ptr {base}, i64 {field.offset}")
                    self.define(v, Array(at, field.dtype, field.shape, row_major(field.shape)))
            return
        (out,) = instr.made
        text = "0"
        if isinstance(instr.work, Pack):
            text = self._packed(instr, instr.work.layout)
        elif isinstance(instr.work, Zeros):
            text = self._zeros(instr, instr.work.layout)
        self.values[out] = Number(text, _INT64)

    def _packed(self, instr: Compute, layout: Layout) -> str:
        f = self.f
        length = self._length_before(instr, layout) if layout.is_list else ""
        base = state.allocate(f, layout.bytes + 8 * layout.is_list, "no_memory", "tuple")
        if length:
            at = f.op(f"getelementptr inbounds i8, ptr {base}, i64 {layout.bytes}")
            f.line(f"store i64 {f.op(f'add nuw nsw i64 {length}, 1')}, ptr {at}, align 8")
        for field, v in zip(layout.fields, instr.inputs, strict=True):
            at = f.op(f"getelementptr inbounds i8, ptr {base}, i64 {field.offset}")
            if is_array(v):
                self.copy(Array(at, field.dtype, field.shape, row_major(field.shape)), self.array(v))
            else:
                scalars.store(f, field.dtype, self.number(v), at)
        return f.op(f"ptrtoint ptr {base} to i64", "tuple")

    def _length_before(self, push: Compute, layout: Layout) -> str:
        """Prints the number of elements before a push, and the check of its limit."""
        f, source = self.f, self.number(push.inputs[0])
        before, some, on = f.current, f.new("some"), f.new("on")
        f.branch(f.op(f"icmp eq i64 {source}, 0"), on, some)
        f.begin(some)
        at = f.op(f"getelementptr inbounds i8, ptr {f.op(f'inttoptr i64 {source} to ptr')}, i64 {layout.bytes}")
        known = f.op(f"load i64, ptr {at}, align 8")
        f.jump(on)
        f.begin(on)
        length = f.op(f"phi i64 [ 0, %{before} ], [ {known}, %{some} ]", "length")
        size = push.inputs[1].bytes
        if ResidualPush in push.op.notes and layout.fields[1].layout is None:
            most = flags.accumulator_limit()
            has_room = f.op(f"icmp ult i64 {length}, {most // max(1, size)}")
            self.fail_if(
                f.op(f"xor i1 {has_room}, true"),
                push,
                "residuals",
                length,
                str(most),
                f.op(f"mul i64 {length}, {size}"),
            )
        return length

    def _zeros(self, instr: Compute, layout: Layout) -> str:
        f = self.f
        slot = f.alloca("i64")
        args = f"ptr %state, i64 0, i64 {self.number(instr.inputs[0])}, ptr {slot}"
        code = f.op(f"call i32 @{_zeros_of(f.module, layout)}({args})", "code")
        on = f.new("on")
        f.branch(state.unlikely(f, f.op(f"icmp ne i32 {code}, 0")), "no_memory", on)
        f.begin(on)
        return f.op(f"load i64, ptr {slot}, align 8", "tuple")


def _zeros_of(module: Module, layout: Layout) -> str:
    """The function that makes tuples of zeros of a class, defined once."""
    name = f"zeros{layout.number}"
    if module.has(name):
        return name
    f = _function(module, name, [("i64", "source"), ("ptr noalias", "out")])
    f.branch(f.op("icmp eq i64 %source, 0"), "absent", "present")
    f.begin("absent")
    f.line("store i64 0, ptr %out, align 8")
    f.line("ret i32 0")
    f.begin("present")
    source = f.op("inttoptr i64 %source to ptr", "source")
    base = state.allocate(f, layout.bytes + 8 * layout.is_list, "no_memory", "tuple")
    if layout.is_list:
        length, to = (f.op(f"getelementptr inbounds i8, ptr {p}, i64 {layout.bytes}") for p in (source, base))
        f.line(f"store i64 {f.op(f'load i64, ptr {length}, align 8')}, ptr {to}, align 8")
    fill = module.declare("llvm.memset.p0.i64", "void", ["ptr", "i8", "i64", "i1"])
    f.line(f"call void {fill}(ptr {base}, i8 0, i64 {layout.bytes}, i1 false)")
    for field in layout.fields:
        if field.layout is None:
            continue
        at, to = (f.op(f"getelementptr inbounds i8, ptr {p}, i64 {field.offset}") for p in (source, base))
        inner = f.op(f"load i64, ptr {at}, align 8")
        args = f"ptr %state, i64 0, i64 {inner}, ptr {to}"
        on = f.new("on")
        code = f.op(f"call i32 @{_zeros_of(module, field.layout)}({args})", "code")
        f.branch(state.unlikely(f, f.op(f"icmp ne i32 {code}, 0")), "no_memory", on)
        f.begin(on)
    f.line(f"store i64 {f.op(f'ptrtoint ptr {base} to i64')}, ptr %out, align 8")
    f.line("ret i32 0")
    f.begin("no_memory")
    f.line(f"ret i32 {state.NO_MEMORY}")
    return name


# *** The stack ***


def _frame(f: Function) -> str:
    """Prints the address of the open function's frame, an i64."""
    return f.op(f"ptrtoint ptr {f.alloca('i8')} to i64", "frame")


def _function(module: Module, name: str, params: Sequence[tuple[str, str]]) -> Function:
    """Opens a function with state, depth and further parameters.

    If the stack is used up, it calls itself in another thread.
    """
    params = [("ptr noalias", "state"), ("i64", "depth"), *params]
    kinds = [(kind.removesuffix(_NOALIAS), name) for kind, name in params]
    f = module.function(name, "i32", params, "nounwind", "internal")
    is_low = f.op(f"icmp ult i64 {_frame(f)}, {state.load(f, 'stack')}")
    f.branch(state.unlikely(f, is_low), "low", "begun")
    f.begin("low")
    f.line(f"ret i32 {f.op(f'call i32 @{name}.away({_list(kinds)})')}")
    f.begin("begun")
    record = ", ".join(["ptr", "i64", *(kind for kind, _ in kinds)])
    _print_away(module, name, params, record)
    _print_arrive(module, name, kinds, record)
    return f


def _print_away(module: Module, name: str, params: Sequence[tuple[str, str]], record: str) -> None:
    """Prints the function that stores the arguments for another thread, and waits for it."""
    f = module.function(f"{name}.away", "i32", params, "nounwind noinline", "internal")
    args = f.alloca(f"{{ {record} }}", 8)
    values = [
        ("ptr", f"@{name}.arrive"),
        ("i64", register_mode.read(f)),
        *((k.removesuffix(_NOALIAS), f"%{n}") for k, n in params),
    ]
    for i, (kind, value) in enumerate(values):
        f.line(f"store {kind} {value}, ptr {_field(f, record, args, i)}")
    code = f.op(f"call i32 {state.load(f, 'far', kind='ptr')}(ptr {_continued(module)}, ptr {args})", "code")
    f.line(f"ret i32 {code}")


def _print_arrive(module: Module, name: str, kinds: Sequence[tuple[str, str]], record: str) -> None:
    """Prints the function that loads the arguments in another thread."""
    f = module.function(f"{name}.arrive", "i32", [("ptr", "args")], "nounwind noinline", "internal")
    found = [(kind, f.op(f"load {kind}, ptr {_field(f, record, '%args', i + 2)}")) for i, (kind, _) in enumerate(kinds)]
    f.line(f"ret i32 {f.op(f'call i32 @{name}({_args(found)})', 'code')}")


def _continued(module: Module) -> str:
    """The function that Python calls in another thread, defined once: `i32 (ptr %state, ptr %args)`."""
    name = "continued"
    if not module.has(name):
        f = module.function(name, "i32", [("ptr", "state"), ("ptr", "args")], "nounwind", "internal")
        save = module.declare("PyEval_SaveThread", "ptr", [])
        restore = module.declare("PyEval_RestoreThread", "void", ["ptr"])
        limit, thread = state.load(f, "stack"), state.load(f, "thread", kind="ptr")
        room = thresholds.NATIVE_STACK_FAR - thresholds.NATIVE_STACK_CALLS
        state.store(f, f.op(f"sub i64 {_frame(f)}, {room}"), "stack")
        state.store(f, f.op(f"call ptr {save}()"), "thread", kind="ptr")
        arrive = f.op("load ptr, ptr %args, align 8")
        mode = f.op(f"load i64, ptr {f.op('getelementptr inbounds i8, ptr %args, i64 8')}, align 8")
        register_mode.write(f, mode)
        code = f.op(f"call i32 {arrive}(ptr %args)", "code")
        f.line(f"call void {restore}(ptr {state.load(f, 'thread', kind='ptr')})")
        state.store(f, thread, "thread", kind="ptr")
        state.store(f, limit, "stack")
        f.line(f"ret i32 {code}")
    return f"@{name}"


def _field(f: Function, record: str, base: str, i: int) -> str:
    return f.op(f"getelementptr inbounds {{ {record} }}, ptr {base}, i32 0, i32 {i}")


def _list(kinds: Sequence[tuple[str, str]]) -> str:
    return _args([(kind, f"%{name}") for kind, name in kinds])


def _args(values: Sequence[tuple[str, str]]) -> str:
    return ", ".join(f"{kind} {value}" for kind, value in values)
