"""Functions in machine code that native modules and Python call, compiled once for all modules.

* `headrace_look` is the slow part of a poll, and the functions for memory are those of `state`.
* The functions for several threads are those of `threads`.
* `headrace_call` is the machine code of all entries (`entry`): a function of Python's fast calling convention that
  reads numpy's objects in memory, makes the results and calls a native function. Its Python object is a tuple that
  begins with a description of the entry, a `bytes` of the 64-bit words that `entry` writes. Code for each entry would
  be a few nanoseconds faster and take as long to compile as a usual native function.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import Final

from headrace.targets.native import register_mode, state, threads
from headrace.targets.native.llvm_text import Function, Module
from headrace.targets.native.object_layout import BYTES_AT, ITEMS_AT, QUALIFIED, TYPE_AT, VALUE_AT, Array

#: Functions of Python's C interface that the machine code calls.
PYTHON: Final = (
    *("PyEval_RestoreThread", "PyEval_SaveThread", "PyObject_CallNoArgs", "PyObject_Vectorcall"),
    *("PyErr_Fetch", "PyErr_NoMemory", "PyErr_Restore", "PyLong_FromLong", "PyLong_FromVoidPtr"),
    *("PyTuple_New", "PyTuple_SetItem", "Py_DecRef", "Py_IncRef", "_PyObject_New"),
)

#: Functions of the module.
NAMES: Final = (
    *("headrace_look", "headrace_allocate", "headrace_release", "headrace_take_block", "headrace_free_block"),
    *("headrace_resize_block", "headrace_call"),
    *threads.NAMES,
)

#: Words at the start of a description.
HEAD: Final = (
    *("core", "fail", "copy", "is_long", "flushes", "is_guarded", "is_fed", "inputs", "symbols", "outputs", "scratch"),
    *("input_at", "output_at"),  # byte offsets of the records
)
#: Words of the record of an input: its dtype, the type of its scalars (0 unless the rank is 0), the byte offset of its
#: dimensions, the size of an element, the size from which an array is read in place if `is_fed`.
INPUT: Final = ("dtype", "scalar", "rank", "dims_at", "bytes", "lent")
#: Words of the record of a result. `place` is an offset in the scratch memory, `name` the address of a C string.
OUTPUT: Final = ("dtype", "scalar", "rank", "dims_at", "kind", "bytes", "place", "name")

#: Largest rank of an array of numpy.
MOST_DIMS: Final = 64


class Kind(enum.IntEnum):
    """Kinds of results."""

    ARRAY = 0
    COMPUTED = 1  # an array whose dimensions the core computes
    PLAIN = 2  # a scalar whose object is a head and at most 8 bytes
    BOOL = 3
    SCALAR = 4


def text() -> str:
    """The module."""
    module = Module()
    _look(module)
    _allocate(module)
    _release(module)
    _free_block(module)
    _take_block(module)
    _resize_block(module)
    _finish(module)
    threads.define(module)
    _Call(module).print()
    return module.text()


# *** Polls ***


def _look(module: Module) -> None:
    """The function of a due poll: looks and refills the budget; returns whether to stop."""
    restore = module.declare("PyEval_RestoreThread", "void", ["ptr"])
    save = module.declare("PyEval_SaveThread", "ptr", [])
    call = module.declare("PyObject_CallNoArgs", "ptr", ["ptr"])
    f = module.function("headrace_look", "i1", [("ptr", "state")], "cold nounwind")
    state.store(f, state.load(f, "refill"), "budget")
    look, stop, thread = (state.load(f, field, kind="ptr") for field in ("look", "stop", "thread"))
    f.branch(f.op(f"icmp eq ptr {look}, null"), "looked", "looking")
    f.begin("looking")
    was_free = f.op(f"icmp ne ptr {thread}, null")
    f.branch(was_free, "lock", "call")
    f.begin("lock")
    f.line(f"call void {restore}(ptr {thread})")
    f.jump("call")
    f.begin("call")
    result = f.op(f"call ptr {call}(ptr {look})")
    failed = f.op(f"icmp eq ptr {result}, null")
    _drop(f, result)
    f.branch(failed, "keep", "kept")
    f.begin("keep")
    _keep_exception(f)
    f.jump("kept")
    f.begin("kept")
    f.branch(was_free, "unlock", "locked")
    f.begin("unlock")
    state.store(f, f.op(f"call ptr {save}()"), "thread", kind="ptr")
    f.jump("locked")
    f.begin("locked")
    f.branch(failed, "stopped", "looked")
    f.begin("stopped")
    f.line("ret i1 true")
    f.begin("looked")
    f.branch(f.op(f"icmp eq ptr {stop}, null"), "on", "other")
    f.begin("other")
    told = f.op(f"load atomic i32, ptr {stop} monotonic, align 4")
    f.line(f"ret i1 {f.op(f'icmp ne i32 {told}, 0')}")
    f.begin("on")
    f.line("ret i1 false")


def _keep_exception(f: Function) -> None:
    """Prints that the exception of this thread is moved into the state."""
    fetch = f.module.declare("PyErr_Fetch", "void", ["ptr", "ptr", "ptr"])
    places = [state.address(f, "exception", i) for i in range(3)]
    f.line(f"call void {fetch}({', '.join(f'ptr {each}' for each in places)})")


def _restore_exception(f: Function) -> None:
    """Prints that the exception in the state becomes that of this thread."""
    restore = f.module.declare("PyErr_Restore", "void", ["ptr", "ptr", "ptr"])
    parts = [state.load(f, "exception", i, "ptr") for i in range(3)]
    for i in range(3):
        state.store(f, "null", "exception", i, "ptr")
    f.line(f"call void {restore}({', '.join(f'ptr {each}' for each in parts)})")


# *** Memory ***

_ALLOCATED: Final = f"noalias align {state.ALIGNMENT} ptr"
_SIZED: Final = [("ptr", "state"), ("i64", "bytes"), ("ptr", "name")]


def _bump(f: Function, arena: int, size: str) -> None:
    """Prints the rest of an allocation of `size` bytes, a multiple of the alignment."""
    start = state.load(f, "next", arena, "ptr")
    room = f.op(f"sub i64 {_as_int(f, state.load(f, 'end', arena, 'ptr'))}, {_as_int(f, start)}")
    f.branch(state.unlikely(f, f.op(f"icmp ugt i64 {size}, {room}")), "full", "fits")
    f.begin("fits")
    state.store(f, f.op(f"getelementptr i8, ptr {start}, i64 {size}"), "next", arena, "ptr")
    f.line(f"ret ptr {start}")
    f.begin("full")
    is_guarded = f.op(f"icmp ne i64 {state.load(f, 'is_guarded')}, 0")
    asked = f.op(f"select i1 {is_guarded}, i64 %bytes, i64 {size}")  # a guard begins behind the last byte
    more = state.load(f, "more", kind="ptr")
    f.line(f"ret ptr {f.op(f'call ptr {more}(i64 {arena}, i64 {asked}, ptr %name)')}")


def _as_int(f: Function, pointer: str) -> str:
    return f.op(f"ptrtoint ptr {pointer} to i64")


def _allocate(module: Module) -> None:
    f = module.function("headrace_allocate", _ALLOCATED, _SIZED, "nounwind")
    add = module.declare("llvm.uadd.sat.i64", "i64", ["i64", "i64"])
    # a sum that is too large for the type saturates, and no arena has room for it; size 0 takes room too
    size = _at_least(f, f.op(f"and i64 {f.op(f'call i64 {add}(i64 %bytes, i64 {state.ALIGNMENT - 1})')}, -64"))
    _bump(f, state.SCOPED, size)


def _at_least(f: Function, size: str) -> str:
    larger = f.module.declare("llvm.umax.i64", "i64", ["i64", "i64"])
    return f.op(f"call i64 {larger}(i64 {size}, i64 {state.ALIGNMENT})")


def _release(module: Module) -> None:
    f = module.function("headrace_release", "void", [("ptr", "state"), ("ptr", "next"), ("ptr", "end")], "nounwind")
    same = f.op(f"icmp eq ptr {state.load(f, 'end', state.SCOPED, 'ptr')}, %end")
    f.branch(same, "quick", "chunks")
    f.begin("quick")
    state.store(f, "%next", "next", state.SCOPED, "ptr")
    f.line("ret void")
    f.begin("chunks")
    f.line(f"call void {state.load(f, 'release', kind='ptr')}(ptr %next, ptr %end)")
    f.line("ret void")


def _class_of(f: Function, size: str) -> str:
    """Prints the class of a block of `size` bytes: the logarithm of its capacity."""
    count = f.module.declare("llvm.ctlz.i64", "i64", ["i64", "i1"])
    zeros = f.op(f"call i64 {count}(i64 {f.op(f'sub i64 {_at_least(f, size)}, 1')}, i1 false)")
    return f.op(f"sub i64 64, {zeros}", "class")


def _free_list(f: Function, kind: str) -> str:
    return f.op(f"getelementptr inbounds ptr, ptr {state.address(f, 'free')}, i64 {kind}", "list")


def _take_block(module: Module) -> None:
    f = module.function("headrace_take_block", _ALLOCATED, _SIZED, "nounwind")
    kind = _class_of(f, "%bytes")
    f.branch(state.unlikely(f, f.op(f"icmp ugt i64 {kind}, {state.LARGEST_CLASS}")), "large", "usual")
    f.begin("large")
    f.line("ret ptr null")
    f.begin("usual")
    at = _free_list(f, kind)
    first = f.op(f"load ptr, ptr {at}, align 8")
    f.branch(f.op(f"icmp eq ptr {first}, null"), "new", "known")
    f.begin("known")
    f.line(f"store ptr {f.op(f'load ptr, ptr {first}, align 8')}, ptr {at}, align 8")
    f.line(f"ret ptr {first}")
    f.begin("new")
    _bump(f, state.BLOCKS, f.op(f"shl i64 1, {kind}"))


def _free_block(module: Module) -> None:
    f = module.function(
        "headrace_free_block", "void", [("ptr", "state"), ("ptr", "block"), ("i64", "bytes")], "nounwind"
    )
    # a guarded block is checked at the end of the call
    is_kept = f.op(f"icmp ne i64 {state.load(f, 'is_guarded')}, 0")
    is_foreign = f.op(f"or i1 {f.op('icmp eq ptr %block, null')}, {f.op(f'icmp eq i64 %bytes, {state.BORROWED}')}")
    f.branch(f.op(f"or i1 {is_kept}, {is_foreign}"), "none", "some")
    f.begin("none")
    f.line("ret void")
    f.begin("some")
    at = _free_list(f, _class_of(f, "%bytes"))
    f.line(f"store ptr {f.op(f'load ptr, ptr {at}, align 8')}, ptr %block, align 8")
    f.line(f"store ptr %block, ptr {at}, align 8")
    f.line("ret void")


def _resize_block(module: Module) -> None:
    params = [("ptr", "state"), ("ptr", "block"), ("i64", "old"), ("i64", "new"), ("ptr", "name")]
    f = module.function("headrace_resize_block", "ptr", params, "nounwind")
    least = module.declare("llvm.umin.i64", "i64", ["i64", "i64"])
    same = f.op(f"icmp eq i64 {_class_of(f, '%old')}, {_class_of(f, '%new')}")
    stays = f.op(f"and i1 {same}, {f.op('icmp ne ptr %block, null')}")
    is_free = f.op(f"icmp eq i64 {state.load(f, 'is_guarded')}, 0")
    f.branch(f.op(f"and i1 {stays}, {is_free}"), "stay", "move")
    f.begin("stay")
    f.line("ret ptr %block")
    f.begin("move")
    made = f.op("call ptr @headrace_take_block(ptr %state, i64 %new, ptr %name)")
    f.branch(state.unlikely(f, f.op(f"icmp eq ptr {made}, null")), "end", "copy")
    f.begin("copy")
    _copy(f, made, "%block", f.op(f"call i64 {least}(i64 %old, i64 %new)"))
    f.line("call void @headrace_free_block(ptr %state, ptr %block, i64 %old)")
    f.jump("end")
    f.begin("end")
    f.line(f"ret ptr {made}")


def _finish(module: Module) -> None:
    """Prints `i32 @headrace_finish(ptr %state)`, which resets the memory at the end of a call.

    Its result is `DONE` or `DAMAGED`.
    """
    f = module.function("headrace_finish", "i32", [("ptr", "state")], "nounwind", "internal")
    f.branch(state.unlikely(f, f.op(f"icmp ne i64 {state.load(f, 'is_grown')}, 0")), "grown", "usual")
    f.begin("grown")
    settle = state.load(f, "settle", kind="ptr")
    f.line(f"ret i32 {f.op(f'call i32 {settle}()')}")
    f.begin("usual")
    state.store(f, state.load(f, "start", state.SCOPED, "ptr"), "next", state.SCOPED, "ptr")
    start = state.load(f, "start", state.BLOCKS, "ptr")
    f.branch(f.op(f"icmp eq ptr {start}, {state.load(f, 'next', state.BLOCKS, 'ptr')}"), "end", "blocks")
    f.begin("blocks")
    state.store(f, start, "next", state.BLOCKS, "ptr")
    _fill(f, state.address(f, "free"), 0, str(8 * state.CLASSES))
    f.jump("end")
    f.begin("end")
    f.line(f"ret i32 {state.DONE}")


# *** Calls ***


class _Call:
    """Prints the function that all entries share.

    Args:
      module: The module.
    """

    def __init__(self, module: Module) -> None:
        self._module = module
        self._array_type = module.add_global("PyArray_Type", "external global i8")
        self._none = module.add_global("_Py_NoneStruct", "external global i8")
        self._true = module.add_global("_Py_TrueScalar", "external global i8")
        self._false = module.add_global("_Py_FalseScalar", "external global i8")
        self._pool = module.add_global("headrace_pool", "external global [2 x ptr]")

    def print(self) -> None:
        """Prints the functions."""
        self._print_dimension()
        self._print_bytes()
        self._print_new_array()
        self._print_take_state()
        self._print_run()
        self._print_call()

    # *** Inputs ***

    def _print_call(self) -> None:
        """Prints the function that Python calls, which checks the inputs."""
        module = self._module
        f = module.function("headrace_call", "ptr", [("ptr", "self"), ("ptr", "args"), ("i64", "count")], "nounwind")
        about = _at(f, f.op(f"load ptr, ptr {_at(f, '%self', ITEMS_AT)}, align 8"), BYTES_AT)
        inputs, symbols = _word(f, about, HEAD, "inputs"), _word(f, about, HEAD, "symbols")
        f.branch(f.op(f"icmp eq i64 %count, {f.op(f'add i64 {inputs}, 1')}"), "counted", "copy")
        f.begin("counted")
        entries = f.op(f"add i64 {inputs}, {symbols}")
        table = f.op(f"alloca ptr, i64 {f.op(f'add i64 {entries}, 1')}, align 8")
        dims = f.op(f"alloca i64, i64 {f.op(f'add i64 {symbols}, 1')}, align 8")
        _fill(f, dims, 255, f.op(f"mul i64 {symbols}, 8"))  # -1: not known yet
        records = _plus(f, about, _word(f, about, HEAD, "input_at"))
        with f.loop("0", inputs) as i:
            record = _element(f, records, f.op(f"mul i64 {i}, {len(INPUT)}"))
            arg = f.op(f"load ptr, ptr {_element(f, '%args', f.op(f'add i64 {i}, 1'))}, align 8", "arg")
            value = self._checked(f, about, record, arg, dims)
            f.line(f"store ptr {value}, ptr {_element(f, table, i)}, align 8")
        with f.loop("0", symbols) as i:
            place = _element(f, table, f.op(f"add i64 {inputs}, {i}"))
            f.line(f"store ptr {_element(f, dims, i)}, ptr {place}, align 8")
        taken = f.op("call ptr @headrace_take_state()")
        f.branch(state.unlikely(f, f.op(f"icmp eq ptr {taken}, null")), "none", "run")
        f.begin("run")
        look = f.op("load ptr, ptr %args, align 8", "look")
        args = f"ptr {taken}, ptr %self, ptr {about}, ptr {look}, ptr {table}, ptr {dims}"
        f.line(f"ret ptr {f.op(f'call ptr @headrace_run({args})')}")
        f.begin("none")
        no_memory = module.declare("PyErr_NoMemory", "ptr", [])
        f.line(f"ret ptr {f.op(f'call ptr {no_memory}()')}")
        f.begin("copy")
        copy = _pointer(f, about, HEAD, "copy")
        f.line(f"ret ptr {f.op(f'call ptr {_vectorcall(f)}(ptr {copy}, ptr %args, i64 %count, ptr null)')}")

    def _checked(self, f: Function, about: str, record: str, arg: str, dims: str) -> str:
        """Prints the checks of an input; returns the address of its elements."""
        kind = f.op(f"load ptr, ptr {_at(f, arg, TYPE_AT)}, align 8", "type")
        f.branch(f.op(f"icmp eq ptr {kind}, {self._array_type}"), "array", "other")
        f.begin("array")
        rank = _word(f, record, INPUT, "rank")
        found_rank = _field(f, arg, "rank", "i32")
        has_rank = f.op(f"icmp eq i64 {f.op(f'sext i32 {found_rank} to i64')}, {rank}")
        has_dtype = f.op(f"icmp eq ptr {_field(f, arg, 'dtype', 'ptr')}, {_pointer(f, record, INPUT, 'dtype')}")
        bits = f.op(f"and i32 {_field(f, arg, 'flags', 'i32')}, {QUALIFIED}")
        is_plain = f.op(f"icmp eq i32 {bits}, {QUALIFIED}")
        f.branch(f.op(f"and i1 {f.op(f'and i1 {has_rank}, {has_dtype}')}, {is_plain}"), "ranked", "copy")
        f.begin("ranked")
        found = _field(f, arg, "dimensions", "ptr")
        wanted = _plus(f, about, _word(f, record, INPUT, "dims_at"))
        with f.loop("0", rank) as axis:
            size = f.op(f"load i64, ptr {_element(f, found, axis)}, align 8", "size")
            want = f.op(f"load i64, ptr {_element(f, wanted, axis)}, align 8", "want")
            f.branch(f.op(f"icmp slt i64 {want}, 0"), "symbolic", "static")
            f.begin("symbolic")
            place = _element(f, dims, f.op(f"xor i64 {want}, -1"))
            known = f.op(f"load i64, ptr {place}, align 8", "known")
            first = f.op(f"select i1 {f.op(f'icmp eq i64 {known}, -1')}, i64 {size}, i64 {known}")
            f.line(f"store i64 {first}, ptr {place}, align 8")
            f.jump("compare")
            f.begin("static")
            f.jump("compare")
            f.begin("compare")
            due = f.op(f"phi i64 [ {first}, %symbolic ], [ {want}, %static ]")
            f.branch(f.op(f"icmp eq i64 {size}, {due}"), "same", "copy")
            f.begin("same")
        data = _field(f, arg, "data", "ptr")
        before = f.current
        f.jump("checked")
        f.begin("other")
        value = _at(f, arg, VALUE_AT)
        f.branch(f.op(f"icmp eq ptr {kind}, {_pointer(f, record, INPUT, 'scalar')}"), "checked", "copy")
        f.begin("checked")
        return f.op(f"phi ptr [ {data}, %{before} ], [ {value}, %other ]", "value")

    def _print_take_state(self) -> None:
        f = self._module.function("headrace_take_state", "ptr", [], "nounwind", "internal")
        first = f.op(f"load ptr, ptr {self._pool}, align 8")
        f.branch(state.unlikely(f, f.op(f"icmp eq ptr {first}, null")), "make", "known")
        f.begin("known")
        following = f.op(f"load ptr, ptr {_at(f, first, state.offset('following'))}, align 8")
        f.line(f"store ptr {following}, ptr {self._pool}, align 8")
        f.line(f"ret ptr {first}")
        f.begin("make")
        make = f.op(f"load ptr, ptr {_at(f, self._pool, 8)}, align 8")
        f.line(f"ret ptr {f.op(f'call ptr {make}()')}")

    # *** Results ***

    def _print_dimension(self) -> None:
        """Prints `i64 @headrace_dimension(i64 %word, ptr %dims)`: a static dimension, or that of an input."""
        f = self._module.function(
            "headrace_dimension", "i64", [("i64", "word"), ("ptr", "dims")], "nounwind", "internal"
        )
        f.branch(f.op("icmp slt i64 %word, 0"), "symbolic", "static")
        f.begin("symbolic")
        place = _element(f, "%dims", f.op("xor i64 %word, -1"))
        f.line(f"ret i64 {f.op(f'load i64, ptr {place}, align 8')}")
        f.begin("static")
        f.line("ret i64 %word")

    def _print_bytes(self) -> None:
        """Prints `i64 @headrace_bytes(i64 %size, ptr %dims, i64 %rank)`, the size in bytes of an array that exists."""
        params = [("i64", "size"), ("ptr", "dims"), ("i64", "rank")]
        f = self._module.function("headrace_bytes", "i64", params, "nounwind", "internal")
        total = f.alloca("i64", 8)
        f.line(f"store i64 %size, ptr {total}, align 8")
        with f.loop("0", "%rank") as axis:
            dim = f.op(f"load i64, ptr {_element(f, '%dims', axis)}, align 8")
            product = f.op(f"mul i64 {dim}, {f.op(f'load i64, ptr {total}, align 8')}")
            f.line(f"store i64 {product}, ptr {total}, align 8")
        f.line(f"ret i64 {f.op(f'load i64, ptr {total}, align 8')}")

    def _print_new_array(self) -> None:
        """Prints `ptr @headrace_new_array(ptr %record, ptr %dims)`, which makes the array of a result."""
        f = self._module.function(
            "headrace_new_array", "ptr", [("ptr", "record"), ("ptr", "dims")], "nounwind", "internal"
        )
        kinds = ["ptr", "ptr", "i32", "ptr", "ptr", "ptr", "i32", "ptr"]
        new = self._module.declare("PyArray_NewFromDescr", "ptr", kinds)
        dtype = _pointer(f, "%record", OUTPUT, "dtype")
        _take(f, dtype)  # the function takes a reference over
        rank = f.op(f"trunc i64 {_word(f, '%record', OUTPUT, 'rank')} to i32")
        args = f"ptr {self._array_type}, ptr {dtype}, i32 {rank}, ptr %dims, ptr null, ptr null, i32 0, ptr null"
        f.line(f"ret ptr {f.op(f'call ptr {new}({args})')}")

    def _print_run(self) -> None:
        """Prints the function that makes the results and calls the core."""
        module = self._module
        params = [("ptr", each) for each in ("state", "self", "about", "look", "inputs", "dims")]
        f = module.function("headrace_run", "ptr", params, "nounwind", "internal")
        status = f.alloca("i32", 4)
        sizes = f.alloca(f"[{MOST_DIMS} x i64]", 8)
        outputs = _word(f, "%about", HEAD, "outputs")
        count = f.op(f"add i64 {outputs}, 1")
        table = f.op(f"alloca ptr, i64 {count}, align 8")
        objects = f.op(f"alloca ptr, i64 {count}, align 8")
        scratch = f.op(f"alloca i8, i64 {_word(f, '%about', HEAD, 'scratch')}, align 16")
        _fill(f, objects, 0, f.op(f"mul i64 {count}, 8"))
        records = _plus(f, "%about", _word(f, "%about", HEAD, "output_at"))
        look = f.op(f"select i1 {f.op(f'icmp eq ptr %look, {self._none}')}, ptr null, ptr %look")
        state.store(f, look, "look", kind="ptr")
        is_guarded = f.op(f"icmp ne i64 {_word(f, '%about', HEAD, 'is_guarded')}, 0")
        f.branch(is_guarded, "guarded", "ready")
        f.begin("guarded")  # without room, each allocation asks Python
        for field in ("is_guarded", "is_grown"):
            state.store(f, "1", field)
        for arena in (state.SCOPED, state.BLOCKS):
            state.store(f, state.load(f, "end", arena, "ptr"), "next", arena, "ptr")
        f.jump("ready")
        f.begin("ready")
        f.branch(f.op(f"icmp ne i64 {_word(f, '%about', HEAD, 'is_fed')}, 0"), "own", "owned")
        f.begin("own")
        self._copy_inputs(f)
        f.jump("owned")
        f.begin("owned")
        with f.loop("0", outputs) as i:
            record = _element(f, records, f.op(f"mul i64 {i}, {len(OUTPUT)}"))
            place = self._place(f, record, _element(f, objects, i), scratch, sizes, is_guarded)
            f.line(f"store ptr {place}, ptr {_element(f, table, i)}, align 8")
        self._call_core(f, table, status)
        with f.loop("0", outputs) as i:
            record = _element(f, records, f.op(f"mul i64 {i}, {len(OUTPUT)}"))
            place = f.op(f"load ptr, ptr {_element(f, table, i)}, align 8")
            self._finish_output(f, record, place, _element(f, objects, i), is_guarded)
        ending = f.op("call i32 @headrace_finish(ptr %state)", "ending")
        f.line(f"store i32 {ending}, ptr {status}, align 4")
        f.branch(state.unlikely(f, f.op(f"icmp ne i32 {ending}, {state.DONE}")), "refused", "ended")
        f.begin("ended")
        self._give_back(f)
        self._return(f, objects, outputs, _word(f, "%about", HEAD, "is_fed"))
        self._print_failures(f, objects, outputs, status)

    def _copy_inputs(self, f: Function) -> None:
        """Prints copies of small inputs, into which another thread may write during the call."""
        records = _plus(f, "%about", _word(f, "%about", HEAD, "input_at"))
        total = f.alloca("i64", 8)
        with f.loop("0", _word(f, "%about", HEAD, "inputs")) as i:
            record = _element(f, records, f.op(f"mul i64 {i}, {len(INPUT)}"))
            wanted = _plus(f, "%about", _word(f, record, INPUT, "dims_at"))
            f.line(f"store i64 {_word(f, record, INPUT, 'bytes')}, ptr {total}, align 8")
            with f.loop("0", _word(f, record, INPUT, "rank")) as axis:
                want = f.op(f"load i64, ptr {_element(f, wanted, axis)}, align 8", "want")
                due = f.op(f"call i64 @headrace_dimension(i64 {want}, ptr %dims)")
                product = f.op(f"mul i64 {due}, {f.op(f'load i64, ptr {total}, align 8')}")
                f.line(f"store i64 {product}, ptr {total}, align 8")
            size = f.op(f"load i64, ptr {total}, align 8")
            is_small = f.op(f"icmp ult i64 {size}, {_word(f, record, INPUT, 'lent')}")
            small, copied, on = f.new("small"), f.new("copied"), f.new("on")
            f.branch(is_small, small, on)
            f.begin(small)
            buffer = f.op(f"call ptr @headrace_allocate(ptr %state, i64 {size}, ptr null)", "buffer")
            f.branch(state.unlikely(f, f.op(f"icmp eq ptr {buffer}, null")), "full", copied)
            f.begin(copied)
            place = _element(f, "%inputs", i)
            _copy(f, buffer, f.op(f"load ptr, ptr {place}, align 8"), size)
            f.line(f"store ptr {buffer}, ptr {place}, align 8")
            f.jump(on)
            f.begin(on)

    def _place(self, f: Function, record: str, kept: str, scratch: str, sizes: str, is_guarded: str) -> str:
        """Prints the making of a result; returns the address that the core gets."""
        own = _plus(f, scratch, _word(f, record, OUTPUT, "place"))
        kind = _word(f, record, OUTPUT, "kind")
        size = _word(f, record, OUTPUT, "bytes")
        f.branch(f.op(f"icmp eq i64 {kind}, {Kind.ARRAY}"), "new", "elsewhere")
        f.begin("new")
        rank = _word(f, record, OUTPUT, "rank")
        wanted = _plus(f, "%about", _word(f, record, OUTPUT, "dims_at"))
        with f.loop("0", rank) as axis:
            want = f.op(f"load i64, ptr {_element(f, wanted, axis)}, align 8", "want")
            due = f.op(f"call i64 @headrace_dimension(i64 {want}, ptr %dims)")
            f.line(f"store i64 {due}, ptr {_element(f, sizes, axis)}, align 8")
        made = self._new_array(f, record, sizes)
        f.line(f"store ptr {made}, ptr {kept}, align 8")
        data = _field(f, made, "data", "ptr")
        total = _product(f, size, made, rank)
        made_in = f.current
        f.branch(is_guarded, "guard", "placed")
        f.begin("elsewhere")
        is_scalar = f.op(f"icmp ne i64 {kind}, {Kind.COMPUTED}")
        f.branch(f.op(f"and i1 {is_guarded}, {is_scalar}"), "guard", "placed")
        f.begin("guard")
        needed = f.op(f"phi i64 [ {total}, %{made_in} ], [ {size}, %elsewhere ]")
        name = _pointer(f, record, OUTPUT, "name")
        buffer = f.op(f"call ptr @headrace_allocate(ptr %state, i64 {needed}, ptr {name})", "buffer")
        f.branch(f.op(f"icmp eq ptr {buffer}, null"), "full", "buffered")
        f.begin("buffered")
        f.jump("placed")
        f.begin("placed")
        return f.op(f"phi ptr [ {data}, %{made_in} ], [ {own}, %elsewhere ], [ {buffer}, %buffered ]", "place")

    def _new_array(self, f: Function, record: str, dims: str) -> str:
        on = f.new("on")
        made = f.op(f"call ptr @headrace_new_array(ptr {record}, ptr {dims})", "array")
        f.branch(state.unlikely(f, f.op(f"icmp eq ptr {made}, null")), "broken", on)
        f.begin(on)
        return made

    def _call_core(self, f: Function, table: str, status: str) -> None:
        """Prints the call of the core, without the interpreter's lock if it is long."""
        save = self._module.declare("PyEval_SaveThread", "ptr", [])
        restore = self._module.declare("PyEval_RestoreThread", "void", ["ptr"])
        is_long = f.op(f"icmp ne i64 {_word(f, '%about', HEAD, 'is_long')}, 0")
        core = _pointer(f, "%about", HEAD, "core")
        f.branch(is_long, "unlock", "call")
        f.begin("unlock")
        state.store(f, f.op(f"call ptr {save}()"), "thread", kind="ptr")
        f.jump("call")
        f.begin("call")
        with register_mode.flushed(f, f.op(f"icmp ne i64 {_word(f, '%about', HEAD, 'flushes')}, 0")):
            result = f.op(f"call i32 {core}(ptr %state, ptr %inputs, ptr {table})", "status")
        f.line(f"store i32 {result}, ptr {status}, align 4")
        f.branch(is_long, "lock", "called")
        f.begin("lock")
        f.line(f"call void {restore}(ptr {state.load(f, 'thread', kind='ptr')})")
        state.store(f, "null", "thread", kind="ptr")
        f.jump("called")
        f.begin("called")
        f.branch(state.unlikely(f, f.op(f"icmp ne i32 {result}, {state.DONE}")), "failed", "succeeded")
        f.begin("succeeded")

    def _finish_output(self, f: Function, record: str, place: str, kept: str, is_guarded: str) -> None:
        """Prints the making of a scalar's object, or the copy of elements that are elsewhere."""
        module = self._module
        dtype, scalar = (_pointer(f, record, OUTPUT, each) for each in ("dtype", "scalar"))
        kind = f.op(f"trunc i64 {_word(f, record, OUTPUT, 'kind')} to i32")
        labels = {Kind.COMPUTED: "computed", Kind.PLAIN: "plain", Kind.BOOL: "bool", Kind.SCALAR: "scalar"}
        cases = " ".join(f"i32 {k}, label %{label}" for k, label in labels.items())
        f.line(f"switch i32 {kind}, label %made [{cases}]")
        f.begin("made")
        array = f.op(f"load ptr, ptr {kept}, align 8")
        f.branch(is_guarded, "filled", "finished")
        f.begin("computed")
        f.line(f"store ptr {self._new_array(f, record, _at(f, place, 8))}, ptr {kept}, align 8")
        copied = f.current
        made = f.op(f"load ptr, ptr {kept}, align 8")
        source = f.op(f"load ptr, ptr {place}, align 8")
        f.jump("filled")
        f.begin("filled")
        target = f.op(f"phi ptr [ {array}, %made ], [ {made}, %{copied} ]")
        origin = f.op(f"phi ptr [ {place}, %made ], [ {source}, %{copied} ]")
        total = _product(f, _word(f, record, OUTPUT, "bytes"), target, _word(f, record, OUTPUT, "rank"))
        _copy(f, _field(f, target, "data", "ptr"), origin, total)
        f.jump("finished")
        f.begin("plain")
        plain = f.op(f"call ptr {module.declare('_PyObject_New', 'ptr', ['ptr'])}(ptr {scalar})")
        f.branch(state.unlikely(f, f.op(f"icmp eq ptr {plain}, null")), "broken", "write")
        f.begin("write")
        f.line(f"store i64 {f.op(f'load i64, ptr {place}, align 8')}, ptr {_at(f, plain, VALUE_AT)}, align 8")
        f.jump("keep")
        f.begin("bool")
        value = f.op(f"icmp ne i8 {f.op(f'load i8, ptr {place}, align 1')}, 0")
        truth = f.op(f"select i1 {value}, ptr {self._true}, ptr {self._false}")
        _take(f, truth)
        f.jump("keep")
        f.begin("scalar")
        new = module.declare("PyArray_Scalar", "ptr", ["ptr", "ptr", "ptr"])
        other = f.op(f"call ptr {new}(ptr {place}, ptr {dtype}, ptr null)")
        f.branch(state.unlikely(f, f.op(f"icmp eq ptr {other}, null")), "broken", "scalar_made")
        f.begin("scalar_made")
        f.jump("keep")
        f.begin("keep")
        result = f.op(f"phi ptr [ {plain}, %write ], [ {truth}, %bool ], [ {other}, %scalar_made ]")
        f.line(f"store ptr {result}, ptr {kept}, align 8")
        f.jump("finished")
        f.begin("finished")

    def _give_back(self, f: Function) -> None:
        first = f.op(f"load ptr, ptr {self._pool}, align 8")
        state.store(f, first, "following", kind="ptr")
        f.line(f"store ptr %state, ptr {self._pool}, align 8")

    def _return(self, f: Function, objects: str, outputs: str, is_fed: str) -> None:
        """Prints the return of one object, a tuple or None; if `is_fed`, of a tuple."""
        new = self._module.declare("PyTuple_New", "ptr", ["i64"])
        put = self._module.declare("PyTuple_SetItem", "i32", ["ptr", "i64", "ptr"])
        kind = f.op(f"select i1 {f.op(f'icmp ne i64 {is_fed}, 0')}, i64 2, i64 {outputs}")
        f.line(f"switch i64 {kind}, label %many [i64 0, label %nothing i64 1, label %single]")
        f.begin("nothing")
        _take(f, self._none)
        f.line(f"ret ptr {self._none}")
        f.begin("single")
        f.line(f"ret ptr {f.op(f'load ptr, ptr {objects}, align 8')}")
        f.begin("many")
        made = f.op(f"call ptr {new}(i64 {outputs})", "tuple")
        f.branch(state.unlikely(f, f.op(f"icmp eq ptr {made}, null")), "no_tuple", "fill")
        f.begin("fill")
        with f.loop("0", outputs) as i:
            item = f.op(f"load ptr, ptr {_element(f, objects, i)}, align 8")
            f.op(f"call i32 {put}(ptr {made}, i64 {i}, ptr {item})")
        f.line(f"ret ptr {made}")
        f.begin("no_tuple")
        self._drop_results(f, objects, outputs)
        f.line("ret ptr null")

    def _print_failures(self, f: Function, objects: str, outputs: str, status: str) -> None:
        """Prints the blocks of failures, which drop the results and raise."""
        module = self._module
        f.begin("broken")  # a function of Python or numpy failed and has set an exception
        _keep_exception(f)
        f.line(f"store i32 {state.STOPPED}, ptr {status}, align 4")
        f.jump("failed")
        f.begin("full")
        f.line(f"store i32 {state.NO_MEMORY}, ptr {status}, align 4")
        f.jump("failed")
        f.begin("failed")
        f.op("call i32 @headrace_finish(ptr %state)")
        f.jump("refused")
        f.begin("refused")
        self._drop_results(f, objects, outputs)
        args = f.alloca("[2 x ptr]", 8)
        whose = f.op(f"call ptr {module.declare('PyLong_FromVoidPtr', 'ptr', ['ptr'])}(ptr %state)")
        code = f.op(f"sext i32 {f.op(f'load i32, ptr {status}, align 4')} to i64")
        place = f.op(f"call ptr {module.declare('PyLong_FromLong', 'ptr', ['i64'])}(i64 {code})")
        f.line(f"store ptr {whose}, ptr {args}, align 8")
        f.line(f"store ptr {place}, ptr {_at(f, args, 8)}, align 8")
        is_short = f.op(f"or i1 {f.op(f'icmp eq ptr {whose}, null')}, {f.op(f'icmp eq ptr {place}, null')}")
        f.branch(is_short, "silent", "handle")
        f.begin("handle")
        fail = _pointer(f, "%about", HEAD, "fail")
        _drop(f, f.op(f"call ptr {_vectorcall(f)}(ptr {fail}, ptr {args}, i64 2, ptr null)"))
        f.jump("silent")
        f.begin("silent")
        _drop(f, whose)
        _drop(f, place)
        is_kept = f.op(f"icmp ne ptr {state.load(f, 'exception', kind='ptr')}, null")
        f.branch(is_kept, "restore", "raise")
        f.begin("restore")
        _restore_exception(f)
        f.jump("raise")
        f.begin("raise")
        self._give_back(f)
        f.line("ret ptr null")

    def _drop_results(self, f: Function, objects: str, outputs: str) -> None:
        with f.loop("0", outputs) as i:
            _drop(f, f.op(f"load ptr, ptr {_element(f, objects, i)}, align 8"))


# *** Instructions ***


def _at(f: Function, pointer: str, offset: int) -> str:
    return f.op(f"getelementptr inbounds i8, ptr {pointer}, i64 {offset}", "at") if offset else pointer


def _plus(f: Function, pointer: str, offset: str) -> str:
    return f.op(f"getelementptr inbounds i8, ptr {pointer}, i64 {offset}", "at")


def _element(f: Function, pointer: str, index: str) -> str:
    """Prints the address of a 64-bit element."""
    return f.op(f"getelementptr inbounds i64, ptr {pointer}, i64 {index}", "at")


def _word(f: Function, record: str, names: Sequence[str], name: str) -> str:
    return f.op(f"load i64, ptr {_at(f, record, 8 * names.index(name))}, align 8", name)


def _pointer(f: Function, record: str, names: Sequence[str], name: str) -> str:
    return f.op(f"load ptr, ptr {_at(f, record, 8 * names.index(name))}, align 8", name)


def _field(f: Function, array: str, name: str, kind: str) -> str:
    at: int = getattr(Array, name).offset
    return f.op(f"load {kind}, ptr {_at(f, array, at)}, align {4 if kind == 'i32' else 8}", name)


def _product(f: Function, size: str, array: str, rank: str) -> str:
    """Prints the size in bytes of an array whose elements have `size` bytes."""
    return f.op(f"call i64 @headrace_bytes(i64 {size}, ptr {_field(f, array, 'dimensions', 'ptr')}, i64 {rank})")


def _copy(f: Function, target: str, source: str, size: str) -> None:
    copy = f.module.declare("llvm.memcpy.p0.p0.i64", "void", ["ptr", "ptr", "i64", "i1"])
    f.line(f"call void {copy}(ptr {target}, ptr {source}, i64 {size}, i1 false)")


def _fill(f: Function, target: str, byte: int, size: str) -> None:
    fill = f.module.declare("llvm.memset.p0.i64", "void", ["ptr", "i8", "i64", "i1"])
    f.line(f"call void {fill}(ptr {target}, i8 {byte}, i64 {size}, i1 false)")


def _take(f: Function, thing: str) -> None:
    """Prints that a reference is added."""
    f.line(f"call void {f.module.declare('Py_IncRef', 'void', ['ptr'])}(ptr {thing})")


def _drop(f: Function, thing: str) -> None:
    """Prints that a reference is dropped; null is ignored."""
    f.line(f"call void {f.module.declare('Py_DecRef', 'void', ['ptr'])}(ptr {thing})")


def _vectorcall(f: Function) -> str:
    return f.module.declare("PyObject_Vectorcall", "ptr", ["ptr", "ptr", "i64", "ptr"])
