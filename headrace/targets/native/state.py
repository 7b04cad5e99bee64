"""State of a native call: work until the next poll, memory, counters of open loops.

A native function has the signature `i32 (ptr %state, ptr %inputs, ptr %outputs)`. Its result is `DONE`, the number of
the place that failed (positive), `STOPPED` or `NO_MEMORY`. `%state` points to a `Layout`, and functions of this module
print the instructions that use it. Each of them takes the open `llvm_text.Function`, which must have the parameter
`%state`.

**Polls.** `poll` subtracts the cost of some work from a budget. The first poll below zero calls a Python function,
which raises if the step was cancelled, and refills the budget. So other polls cost two memory accesses and a branch.
The state keeps the exception, the native function returns `STOPPED`, and its caller in Python gets the original
exception. A poll is an obstacle to vectorization, so it stands outside of innermost loops.

**Memory.** There are two arenas. Memory of `allocate` belongs to a scope: `release` frees all that was allocated since
`mark`. Memory of `allocate_block` lives until `free_block` or the end of the call, independent of scopes, so that
a list may grow in an inner scope. Sizes of blocks are powers of two, and free blocks are kept in lists by size. Both
arenas keep their memory between calls, because the first use of a page from the operating system takes longer than most
work on it. If an arena is full, Python adds a chunk; at the end of the call one chunk of the total size replaces all.

**Concurrency.** One state serves one call at a time. `Pool` keeps idle states in a linked list that machine code reads
and writes while it holds the interpreter's lock. So the pool needs no other lock, and is whole in a forked process.

**Debugging.** With the flag VERIFY=3 each buffer is a chunk of its own with known bytes around it. They are compared
when the buffer is released, and a difference fails the call with an error that names the buffer.
"""

from __future__ import annotations

import ctypes
import dataclasses
from typing import TYPE_CHECKING, Final

import numpy as np

from headrace import flags, memo, thresholds
from headrace.errors import HeadraceInternalError

if TYPE_CHECKING:
    from headrace.targets.native.llvm_text import Function, Module

#: Results of a native function other than the number of the place that failed.
DONE: Final = 0
STOPPED: Final = -1
NO_MEMORY: Final = -2
DAMAGED: Final = -3

#: Open loops whose iterations are reported in error messages, from the outermost.
COUNTERS: Final = 16

#: Alignment of all memory of the arenas, in bytes.
ALIGNMENT: Final = 64

_SCOPED, _BLOCKS = 0, 1  # the arenas
_CLASSES: Final = 64  # block sizes are 2**class
_LARGEST_CLASS: Final = 46  # larger blocks fail, so that their sizes do not overflow
_GUARD: Final = 64  # bytes on each side of a buffer
_GUARD_BYTE: Final = 0xA5
_FRESH_BYTE: Final = 0xCB  # as floats, indices and sizes such bytes are out of any usual range

_MORE: Final = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_int64, ctypes.c_uint64, ctypes.c_char_p)
_RELEASE: Final = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)
_SETTLE: Final = ctypes.CFUNCTYPE(ctypes.c_int32)
_MAKE: Final = ctypes.CFUNCTYPE(ctypes.c_void_p)


class Layout(ctypes.Structure):
    """Memory of a state.

    Attributes:
      budget: Work until the next poll that calls Python, in nanoseconds by the printer's estimate.
      refill: The budget after such a poll.
      look: The Python function that a poll calls, a borrowed reference; 0 if there is none.
      thread: The saved thread state of Python while the call does not hold the interpreter's lock; else 0.
      stop: Address of an i32 that polls read and that is not 0 to stop the call; 0 if there is none.
      following: The next idle state of the pool.
      exception: The exception of `look` as `PyErr_Fetch` returns it, with references; the first is 0 if there is none.
      more: Function that adds a chunk to an arena and allocates from it.
      release: Function that removes the chunks after the given one from the scoped arena.
      settle: Function that is called at the end of the call if `is_grown`.
      is_grown: Whether an arena has more than one chunk.
      start: Starts of the first chunks of both arenas.
      next: First free addresses of the last chunks.
      end: Ends of the last chunks.
      free: Lists of free blocks by class.
      counters: Iterations of the open loops.
    """

    _fields_ = (
        ("budget", ctypes.c_int64),
        ("refill", ctypes.c_int64),
        ("look", ctypes.c_void_p),
        ("thread", ctypes.c_void_p),
        ("stop", ctypes.c_void_p),
        ("following", ctypes.c_void_p),
        ("exception", ctypes.c_void_p * 3),
        ("more", _MORE),
        ("release", _RELEASE),
        ("settle", _SETTLE),
        ("is_grown", ctypes.c_int64),
        ("start", ctypes.c_void_p * 2),
        ("next", ctypes.c_void_p * 2),
        ("end", ctypes.c_void_p * 2),
        ("free", ctypes.c_void_p * _CLASSES),
        ("counters", ctypes.c_int64 * COUNTERS),
    )


def offset(field: str, index: int = 0) -> int:
    """Offset in bytes of a field of `Layout`, or of one element of it."""
    at: int = getattr(Layout, field).offset
    return at + 8 * index


def address(f: Function, field: str, index: int = 0) -> str:
    """Prints the address of a field of the state."""
    return f.op(f"getelementptr inbounds i8, ptr %state, i64 {offset(field, index)}", "at")


def load(f: Function, field: str, index: int = 0, kind: str = "i64") -> str:
    """Prints a load of a field of the state."""
    return f.op(f"load {kind}, ptr {address(f, field, index)}, align 8", field)


def store(f: Function, value: str, field: str, index: int = 0, kind: str = "i64") -> None:
    """Prints a store to a field of the state."""
    f.line(f"store {kind} {value}, ptr {address(f, field, index)}, align 8")


# *** Polls and counters ***


def poll(f: Function, cost: int | str, stopped: str) -> None:
    """Prints a poll.

    Args:
      f: The open function.
      cost: An estimate of the work since the poll before, in nanoseconds: a number or the name of an i64.
      stopped: The label to branch to if the call must stop; the block there returns `STOPPED`.
    """
    left = f.op(f"sub i64 {load(f, 'budget')}, {cost}", "left")
    store(f, left, "budget")
    due, on = f.new("due"), f.new("on")
    f.branch(unlikely(f, f.op(f"icmp slt i64 {left}, 0")), due, on)
    f.begin(due)
    must_stop = f.op(f"call i1 {_looking(f.module)}(ptr %state)", "stop")
    f.branch(unlikely(f, must_stop), stopped, on)
    f.begin(on)


def set_counter(f: Function, depth: int, iteration: str) -> None:
    """Prints a store of the iteration of a loop, for the error message of a failure.

    The place for it is the block of a failure, where it takes no time in the loop.

    Args:
      f: The open function.
      depth: The number of open loops around the loop. Nothing is printed from `COUNTERS` on.
      iteration: The i64 number of the iteration, a name or a literal.
    """
    if depth < COUNTERS:
        store(f, iteration, "counters", depth)


def keep_exception(f: Function) -> None:
    """Prints that the exception of this thread is moved into the state."""
    fetch = f.module.declare("PyErr_Fetch", "void", ["ptr", "ptr", "ptr"])
    places = [address(f, "exception", i) for i in range(3)]
    f.line(f"call void {fetch}({', '.join(f'ptr {each}' for each in places)})")


def restore_exception(f: Function) -> None:
    """Prints that the exception in the state becomes that of this thread."""
    restore = f.module.declare("PyErr_Restore", "void", ["ptr", "ptr", "ptr"])
    parts = [load(f, "exception", i, "ptr") for i in range(3)]
    for i in range(3):
        store(f, "null", "exception", i, "ptr")
    f.line(f"call void {restore}({', '.join(f'ptr {each}' for each in parts)})")


def unlikely(f: Function, condition: str) -> str:
    """Prints the i1 `condition` with the note that it is rarely true."""
    expect = f.module.declare("llvm.expect.i1", "i1", ["i1", "i1"])
    return f.op(f"call i1 {expect}(i1 {condition}, i1 false)", "rare")


def _looking(module: Module) -> str:
    """The function of a due poll: looks and refills the budget; returns whether to stop."""
    name = "headrace_look"
    if module.has(name):
        return f"@{name}"
    restore = module.declare("PyEval_RestoreThread", "void", ["ptr"])
    save = module.declare("PyEval_SaveThread", "ptr", [])
    call = module.declare("PyObject_CallNoArgs", "ptr", ["ptr"])
    drop = module.declare("Py_DecRef", "void", ["ptr"])
    f = module.function(name, "i1", [("ptr", "state")], "noinline cold nounwind", "internal")
    store(f, load(f, "refill"), "budget")
    look, stop, thread = (load(f, field, kind="ptr") for field in ("look", "stop", "thread"))
    f.branch(f.op(f"icmp eq ptr {look}, null"), "silent", "looking")
    f.begin("looking")
    was_free = f.op(f"icmp ne ptr {thread}, null")
    f.branch(was_free, "lock", "call")
    f.begin("lock")
    f.line(f"call void {restore}(ptr {thread})")
    f.jump("call")
    f.begin("call")
    result = f.op(f"call ptr {call}(ptr {look})")
    failed = f.op(f"icmp eq ptr {result}, null")
    f.line(f"call void {drop}(ptr {result})")  # takes null
    f.branch(failed, "keep", "kept")
    f.begin("keep")
    keep_exception(f)
    f.jump("kept")
    f.begin("kept")
    f.branch(was_free, "unlock", "looked")
    f.begin("unlock")
    store(f, f.op(f"call ptr {save}()"), "thread", kind="ptr")
    f.jump("looked")
    f.begin("looked")
    f.branch(failed, "stopped", "silent")
    f.begin("stopped")
    f.line("ret i1 true")
    f.begin("silent")
    f.branch(f.op(f"icmp eq ptr {stop}, null"), "on", "other")
    f.begin("other")
    told = f.op(f"load atomic i32, ptr {stop} monotonic, align 4")
    f.line(f"ret i1 {f.op(f'icmp ne i32 {told}, 0')}")
    f.begin("on")
    f.line("ret i1 false")
    return f"@{name}"


# *** Memory ***


@dataclasses.dataclass(frozen=True, slots=True)
class Mark:
    """Names of the values that describe the free part of the scoped arena."""

    next: str
    end: str


def allocate(f: Function, size: int | str, failed: str, name: str = "") -> str:
    """Prints an allocation in the open scope.

    Args:
      f: The open function.
      size: The number of bytes, a number or the name of an unsigned i64.
      failed: The label to branch to without memory; the block there returns `NO_MEMORY`.
      name: The name of the buffer in the error of a damaged one.

    Returns:
      The name of the address, a multiple of `ALIGNMENT`. The memory is not initialized.
    """
    return _checked(f, f"{_allocating(f.module)}(ptr %state, i64 {size}, ptr {_label(f.module, name)})", failed)


def mark(f: Function) -> Mark:
    """Prints the opening of a scope; `release` closes it."""
    return Mark(load(f, "next", _SCOPED, "ptr"), load(f, "end", _SCOPED, "ptr"))


def release(f: Function, before: Mark) -> None:
    """Prints the closing of a scope: frees all memory of `allocate` since `mark`."""
    f.line(f"call void {_releasing(f.module)}(ptr %state, ptr {before.next}, ptr {before.end})")


def allocate_block(f: Function, size: int | str, failed: str, name: str = "") -> str:
    """Prints an allocation that is independent of scopes; the arguments are those of `allocate`."""
    return _checked(f, f"{_taking(f.module)}(ptr %state, i64 {size}, ptr {_label(f.module, name)})", failed)


def resize_block(f: Function, block: str, old: int | str, new: int | str, failed: str, name: str = "") -> str:
    """Prints a change of the size of a block, which keeps its content and frees the old block.

    The capacity of a block is its size rounded up to a power of two, at least `ALIGNMENT`; up to it the block stays in
    its place.

    Args:
      f: The open function.
      block: The address of the block, or `null` with the size 0.
      old: Its size in bytes.
      new: The new size.
      failed: The label to branch to without memory. The old block is unchanged then.
      name: The name of the buffer in the error of a damaged one.

    Returns:
      The name of the address.
    """
    resizing = _resizing(f.module)
    return _checked(
        f, f"{resizing}(ptr %state, ptr {block}, i64 {old}, i64 {new}, ptr {_label(f.module, name)})", failed
    )


def free_block(f: Function, block: str, size: int | str) -> None:
    """Prints the end of a block of `size` bytes; `null` is ignored."""
    f.line(f"call void {_freeing(f.module)}(ptr %state, ptr {block}, i64 {size})")


def _checked(f: Function, call: str, failed: str) -> str:
    found = f.op(f"call ptr {call}", "memory")
    on = f.new("on")
    f.branch(unlikely(f, f.op(f"icmp eq ptr {found}, null")), failed, on)
    f.begin(on)
    return found


def is_guarded() -> bool:
    """Whether buffers that are allocated by code printed now have guards."""
    return flags.VERIFY.value >= 3


def _label(module: Module, name: str) -> str:
    """The name of a buffer as a C string; only errors of damaged buffers use it."""
    if not (name and is_guarded()):
        return "null"
    raw = name.encode() + b"\0"
    text = "".join(chr(b) if 32 <= b < 127 and chr(b) not in '"\\' else f"\\{b:02X}" for b in raw)
    return module.add_global(f"buffer.{raw[:-1].hex()}", f'private unnamed_addr constant [{len(raw)} x i8] c"{text}"')


def _bump(f: Function, arena: int, size: str, full: str) -> None:
    """Prints the body of an allocation of `size` bytes, a multiple of the alignment."""
    start = load(f, "next", arena, "ptr")
    room = f.op(f"sub i64 {_as_int(f, load(f, 'end', arena, 'ptr'))}, {_as_int(f, start)}")
    more = load(f, "more", kind="ptr")
    f.branch("true" if is_guarded() else unlikely(f, f.op(f"icmp ugt i64 {size}, {room}")), "full", "fits")
    f.begin("fits")
    store(f, f.op(f"getelementptr i8, ptr {start}, i64 {size}"), "next", arena, "ptr")
    f.line(f"ret ptr {start}")
    f.begin("full")
    f.line(f"ret ptr {f.op(f'call ptr {more}(i64 {arena}, i64 {full}, ptr %name)')}")


def _as_int(f: Function, pointer: str) -> str:
    return f.op(f"ptrtoint ptr {pointer} to i64")


def _allocating(module: Module) -> str:
    name = "headrace_allocate"
    if not module.has(name):
        f = module.function(
            name, "noalias align 64 ptr", [("ptr", "state"), ("i64", "bytes"), ("ptr", "name")], "nounwind", "internal"
        )
        add = module.declare("llvm.uadd.sat.i64", "i64", ["i64", "i64"])
        # a sum that is too large for the type saturates, and no arena has room for it
        size = f.op(f"and i64 {f.op(f'call i64 {add}(i64 %bytes, i64 {ALIGNMENT - 1})')}, {-ALIGNMENT}")
        _bump(f, _SCOPED, size, "%bytes" if is_guarded() else size)
    return f"@{name}"


def _releasing(module: Module) -> str:
    name = "headrace_release"
    if not module.has(name):
        f = module.function(name, "void", [("ptr", "state"), ("ptr", "next"), ("ptr", "end")], "nounwind", "internal")
        same = f.op(f"icmp eq ptr {load(f, 'end', _SCOPED, 'ptr')}, %end")
        slow = load(f, "release", kind="ptr")
        f.branch("false" if is_guarded() else same, "quick", "chunks")
        f.begin("quick")
        store(f, "%next", "next", _SCOPED, "ptr")
        f.line("ret void")
        f.begin("chunks")
        f.line(f"call void {slow}(ptr %next, ptr %end)")
        f.line("ret void")
    return f"@{name}"


def _class_of(f: Function, size: str) -> str:
    """Prints the class of a block of `size` bytes: the logarithm of its capacity."""
    count, larger = f.module.declare("llvm.ctlz.i64", "i64", ["i64", "i1"]), "llvm.umax.i64"
    least = f.op(f"call i64 {f.module.declare(larger, 'i64', ['i64', 'i64'])}(i64 {size}, i64 {ALIGNMENT})")
    zeros = f.op(f"call i64 {count}(i64 {f.op(f'sub i64 {least}, 1')}, i1 false)")
    return f.op(f"sub i64 64, {zeros}", "class")


def _free_list(f: Function, kind: str) -> str:
    return f.op(f"getelementptr inbounds ptr, ptr {address(f, 'free')}, i64 {kind}", "list")


def _taking(module: Module) -> str:
    name = "headrace_take_block"
    if module.has(name):
        return f"@{name}"
    f = module.function(
        name, "noalias align 64 ptr", [("ptr", "state"), ("i64", "bytes"), ("ptr", "name")], "nounwind", "internal"
    )
    kind = _class_of(f, "%bytes")
    f.branch(unlikely(f, f.op(f"icmp ugt i64 {kind}, {_LARGEST_CLASS}")), "large", "usual")
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
    size = f.op(f"shl i64 1, {kind}")
    _bump(f, _BLOCKS, size, "%bytes" if is_guarded() else size)
    return f"@{name}"


def _freeing(module: Module) -> str:
    name = "headrace_free_block"
    if module.has(name):
        return f"@{name}"
    f = module.function(name, "void", [("ptr", "state"), ("ptr", "block"), ("i64", "bytes")], "nounwind", "internal")
    skipped = "true" if is_guarded() else f.op("icmp eq ptr %block, null")  # guarded blocks are checked at the end
    f.branch(skipped, "none", "some")
    f.begin("none")
    f.line("ret void")
    f.begin("some")
    at = _free_list(f, _class_of(f, "%bytes"))
    f.line(f"store ptr {f.op(f'load ptr, ptr {at}, align 8')}, ptr %block, align 8")
    f.line(f"store ptr %block, ptr {at}, align 8")
    f.line("ret void")
    return f"@{name}"


def _resizing(module: Module) -> str:
    name = "headrace_resize_block"
    if module.has(name):
        return f"@{name}"
    take, free = _taking(module), _freeing(module)
    params = [("ptr", "state"), ("ptr", "block"), ("i64", "old"), ("i64", "new"), ("ptr", "name")]
    f = module.function(name, "ptr", params, "nounwind", "internal")
    copy = module.declare("llvm.memcpy.p0.p0.i64", "void", ["ptr", "ptr", "i64", "i1"])
    least = module.declare("llvm.umin.i64", "i64", ["i64", "i64"])
    same = f.op(f"icmp eq i64 {_class_of(f, '%old')}, {_class_of(f, '%new')}")
    stays = f.op(f"and i1 {same}, {f.op('icmp ne ptr %block, null')}")
    f.branch("false" if is_guarded() else stays, "stay", "move")
    f.begin("stay")
    f.line("ret ptr %block")
    f.begin("move")
    made = f.op(f"call ptr {take}(ptr %state, i64 %new, ptr %name)")
    f.branch(unlikely(f, f.op(f"icmp eq ptr {made}, null")), "end", "copy")
    f.begin("copy")
    kept = f.op(f"call i64 {least}(i64 %old, i64 %new)")
    f.line(f"call void {copy}(ptr {made}, ptr %block, i64 {kept}, i1 false)")
    f.line(f"call void {free}(ptr %state, ptr %block, i64 %old)")
    f.jump("end")
    f.begin("end")
    f.line(f"ret ptr {made}")
    return f"@{name}"


# *** Beginning and end of a call ***


def finish(module: Module) -> str:
    """The function `i32 (ptr %state)` that resets the memory of a state at the end of a call.

    The caller holds the interpreter's lock. The result is `DONE` or `DAMAGED`.
    """
    name = "headrace_finish"
    if module.has(name):
        return f"@{name}"
    f = module.function(name, "i32", [("ptr", "state")], "nounwind", "internal")
    clear = module.declare("llvm.memset.p0.i64", "void", ["ptr", "i8", "i64", "i1"])
    f.branch(unlikely(f, f.op(f"icmp ne i64 {load(f, 'is_grown')}, 0")), "grown", "usual")
    f.begin("grown")
    settle = load(f, "settle", kind="ptr")
    f.line(f"ret i32 {f.op(f'call i32 {settle}()')}")
    f.begin("usual")
    store(f, load(f, "start", _SCOPED, "ptr"), "next", _SCOPED, "ptr")
    start = load(f, "start", _BLOCKS, "ptr")
    f.branch(f.op(f"icmp eq ptr {start}, {load(f, 'next', _BLOCKS, 'ptr')}"), "end", "blocks")
    f.begin("blocks")
    store(f, start, "next", _BLOCKS, "ptr")
    f.line(f"call void {clear}(ptr {address(f, 'free')}, i8 0, i64 {8 * _CLASSES}, i1 false)")
    f.jump("end")
    f.begin("end")
    f.line(f"ret i32 {DONE}")
    return f"@{name}"


class _Chunk:
    """Memory of an arena.

    Args:
      size: The number of bytes.
      is_guarded: Whether guards stand on both sides.
      name: The name of the buffer.
    """

    __slots__ = ("_memory", "end", "is_guarded", "name", "size", "start")

    def __init__(self, size: int, is_guarded: bool = False, name: str = "") -> None:
        extra = 2 * _GUARD if is_guarded else 0
        self._memory = np.empty(size + extra + ALIGNMENT, np.uint8)
        first: int = self._memory.ctypes.data
        self.start = (first + extra // 2 + ALIGNMENT - 1) // ALIGNMENT * ALIGNMENT
        self.end = self.start + size
        self.size, self.name, self.is_guarded = size, name, is_guarded
        if is_guarded:
            self._memory[:] = _GUARD_BYTE
            at = self.start - first
            self._memory[at : at + size] = _FRESH_BYTE

    def damage(self) -> str:
        """A text about changed guards; "" if there are none."""
        at = self.start - self._memory.ctypes.data
        before, after = self._memory[:at], self._memory[at + self.size :]
        below, above = (np.flatnonzero(side != _GUARD_BYTE) for side in (before, after))
        if len(below):
            return f"{at - int(below[-1])} bytes before the start of the buffer {self.name!r} of {self.size} bytes"
        if len(above):
            return f"{int(above[0])} bytes after the end of the buffer {self.name!r} of {self.size} bytes"
        return ""


class State:
    """State of native calls, one call at a time.

    Attributes:
      layout: The memory that native functions get.
      address: The address of `layout`.
      error: The exception of a callback during the call, or None.
    """

    __slots__ = ("__weakref__", "_chunks", "_wanted", "address", "error", "layout")

    def __init__(self) -> None:
        self.error: BaseException | None = None
        self._chunks = [[_Chunk(thresholds.NATIVE_ARENA_START)] for _ in (_SCOPED, _BLOCKS)]
        self._wanted = [0, 0]  # the size of one chunk that would have been enough, for each arena
        self.layout = layout = Layout()
        self.address = ctypes.addressof(layout)
        layout.budget = layout.refill = thresholds.NATIVE_POLL_WORK
        layout.more = _MORE(self._more)
        layout.release = _RELEASE(self._release)
        layout.settle = _SETTLE(self._settle)
        self._reset()

    def kept_bytes(self) -> int:
        """Size of the memory that the state keeps between calls."""
        return sum(chunk.size for chunks in self._chunks for chunk in chunks)

    def counters(self) -> list[int]:
        """Iterations of the open loops of the call that failed."""
        return list(self.layout.counters)

    def _reset(self) -> None:
        for arena, chunks in enumerate(self._chunks):
            self.layout.start[arena] = self.layout.next[arena] = chunks[0].start
            self.layout.end[arena] = chunks[0].end
        ctypes.memset(self.address + offset("free"), 0, 8 * _CLASSES)
        self.layout.is_grown = 0

    def _more(self, arena: int, size: int, name: bytes | None) -> int:
        """Adds a chunk to an arena; returns the address of `size` bytes in it, or 0."""
        try:
            chunks = self._chunks[arena]
            if is_guarded():
                made = _Chunk(size, True, (name or b"").decode())
                chunks.append(made)
                self.layout.end[arena] = self.layout.next[arena] = made.end
            else:
                last = chunks[-1]
                used = sum(chunk.size for chunk in chunks[:-1]) + self.layout.next[arena] - last.start
                made = _Chunk(max(size, min(2 * last.size, thresholds.NATIVE_KEPT_BYTES)))
                chunks.append(made)
                self._wanted[arena] = max(self._wanted[arena], used + made.size)
                self.layout.next[arena], self.layout.end[arena] = made.start + size, made.end
            self.layout.is_grown = 1
            return made.start
        except BaseException as e:  # also KeyboardInterrupt: machine code is the caller, so the exception is kept
            self.error = e
            return 0

    def _release(self, following: int, end: int) -> None:
        """Removes the chunks behind the one with the given end."""
        try:
            chunks = self._chunks[_SCOPED]
            while chunks[-1].end != end:
                self._check(chunks.pop())
            self.layout.next[_SCOPED], self.layout.end[_SCOPED] = following, end
        except BaseException as e:
            self.error = e

    def _check(self, chunk: _Chunk) -> None:
        if chunk.is_guarded and self.error is None:
            damage = chunk.damage()
            if damage:
                self.error = HeadraceInternalError(f"native code wrote {damage}")

    def _settle(self) -> int:
        """Checks guards, and replaces the chunks of each arena by a single one."""
        try:
            for arena, chunks in enumerate(self._chunks):
                for chunk in chunks:
                    self._check(chunk)
                del chunks[1:]
                wanted = self._wanted[arena]
                self._wanted[arena] = 0
                if chunks[0].size < wanted <= thresholds.NATIVE_KEPT_BYTES:
                    chunks[0] = _Chunk(wanted)
        except BaseException as e:
            self.error = e
        self._reset()
        return DONE if self.error is None else DAMAGED


class Pool:
    """Idle states of the process, the last used one first.

    Machine code takes a state and gives it back (`take`, `give_back`) while it holds the interpreter's lock.

    Attributes:
      states: All states by address.
      address: The address of two pointers: the first idle state, and the function that makes one.
    """

    __slots__ = ("_make", "_memory", "address", "states")

    def __init__(self) -> None:
        self.states: dict[int, State] = {}
        self._make = _MAKE(self._new)
        self._memory = (ctypes.c_void_p * 2)(None, ctypes.cast(self._make, ctypes.c_void_p))
        self.address = ctypes.addressof(self._memory)

    def _new(self) -> int | None:
        try:
            state = State()
        except MemoryError:
            return None
        self.states[state.address] = state
        return state.address


@memo.cached(1, "native state pools")
def pool() -> Pool:
    """The pool of this process."""
    return Pool()


def take(f: Function, failed: str) -> str:
    """Prints that a state is taken out of the pool, at the address of the global `headrace_pool`.

    Args:
      f: The open function.
      failed: The label to branch to without memory.

    Returns:
      The name of the address of the state.
    """
    name = "headrace_take_state"
    if not f.module.has(name):
        table = f.module.add_global("headrace_pool", "external global [2 x ptr]")
        g = f.module.function(name, "ptr", [], "nounwind", "internal")
        first = g.op(f"load ptr, ptr {table}, align 8")
        g.branch(unlikely(g, g.op(f"icmp eq ptr {first}, null")), "make", "known")
        g.begin("known")
        link = g.op(f"getelementptr inbounds i8, ptr {first}, i64 {offset('following')}")
        g.line(f"store ptr {g.op(f'load ptr, ptr {link}, align 8')}, ptr {table}, align 8")
        g.line(f"ret ptr {first}")
        g.begin("make")
        make = g.op(f"load ptr, ptr {g.op(f'getelementptr inbounds ptr, ptr {table}, i64 1')}, align 8")
        g.line(f"ret ptr {g.op(f'call ptr {make}()')}")
    return _checked(f, f"@{name}()", failed)


def give_back(f: Function) -> None:
    """Prints that `%state` is put back into the pool."""
    table = f.module.add_global("headrace_pool", "external global [2 x ptr]")
    store(f, f.op(f"load ptr, ptr {table}, align 8"), "following", kind="ptr")
    f.line(f"store ptr %state, ptr {table}, align 8")
