"""State of a native call: work until the next poll, memory, counters of open loops.

A native function has the signature `i32 (ptr %state, ptr %inputs, ptr %outputs)`. Its result is `DONE`, the number of
the place that failed (positive), `STOPPED` or `NO_MEMORY`. `%state` points to a `Layout`, and functions of this module
print the instructions that use it. Each of them takes the open `llvm_text.Function`, which must have the parameter
`%state`.

**Polls.** `poll` subtracts the cost of some work from a budget. The first poll below zero calls a Python function,
which raises if the step was cancelled, and refills the budget. So other polls cost two memory accesses and a branch.
The state keeps the exception, the native function returns `STOPPED` or the place of the poll, and its caller in Python
gets the original exception. A poll is an obstacle to vectorization, so it stands outside of innermost loops.

**Memory.** There are two arenas. Memory of `allocate` belongs to a scope: `release` frees all that was allocated since
`mark`. Memory of `allocate_block` lives until `free_block` or the end of the call, independent of scopes, so that
a list may grow in an inner scope. Sizes of blocks are powers of two, and free blocks are kept in lists by size. An
arena is a range of addresses whose pages the operating system provides when they are first used. The arena keeps them
between calls, because the first use takes longer than most work on a page. If an arena is full, Python adds a chunk,
which is removed at the end of the call.

**Calls.** Functions that call themselves compare the address of their frame with `stack`, and continue in a thread with
a stack of its own if it is below (`call_printing`). One thread of a call runs at a time.

**Concurrency.** One state serves one call at a time. `Pool` keeps idle states in a linked list that machine code reads
and writes while it holds the interpreter's lock. So the pool needs no other lock, and is whole in a forked process.

**Debugging.** In a guarded call (VERIFY=3) each buffer is a chunk of its own with known bytes around it. They are
compared when the buffer is released, and a difference fails the call with an error that names the buffer. The same
machine code serves guarded calls: their arenas never have room, so each allocation asks Python.

The functions that do the work are in `support`, compiled once for all modules.
"""

from __future__ import annotations

import contextlib
import ctypes
import mmap
from typing import TYPE_CHECKING, Final

import numpy as np

from headrace import memo, thresholds
from headrace.errors import HeadraceInternalError
from headrace.records import record
from headrace.targets.native.deep_calls import EndedCalls, on_another_stack

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

#: The size that a list states for memory that is not its own.
BORROWED: Final = "-1"

_STOPPING: Final = ctypes.c_int32(1)

SCOPED, BLOCKS = 0, 1  # the arenas
CLASSES: Final = 64  # block sizes are 2**class
LARGEST_CLASS: Final = 46  # larger blocks fail, so that their sizes do not overflow
_GUARD: Final = 64  # bytes on each side of a buffer
_GUARD_BYTE: Final = 0xA5
_FRESH_BYTE: Final = 0xCB  # as floats, indices and sizes such bytes are out of any usual range

_MORE: Final = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_int64, ctypes.c_uint64, ctypes.c_char_p)
_RELEASE: Final = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)
_SETTLE: Final = ctypes.CFUNCTYPE(ctypes.c_int32)
_FAR: Final = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p)
_LEAVE: Final = ctypes.CFUNCTYPE(None, ctypes.c_int64)
_ENTER: Final = ctypes.PYFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p)
_MAKE: Final = ctypes.CFUNCTYPE(ctypes.c_void_p)
_RESTORE: Final = ctypes.PYFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)(
    ("PyErr_Restore", ctypes.pythonapi)
)


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
      is_guarded: Whether the call is guarded.
      start: Starts of the first chunks of both arenas.
      next: First free addresses of the last chunks.
      end: Ends of the last chunks.
      free: Lists of free blocks by class.
      counters: Iterations of the open loops.
      stack: The address below which a function continues on another stack.
      far: Function that calls the given one with the given arguments in another thread, and waits for it.
      leave: Function that a caller calls with its place if a call of its own has failed.
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
        ("is_guarded", ctypes.c_int64),
        ("start", ctypes.c_void_p * 2),
        ("next", ctypes.c_void_p * 2),
        ("end", ctypes.c_void_p * 2),
        ("free", ctypes.c_void_p * CLASSES),
        ("counters", ctypes.c_int64 * COUNTERS),
        ("stack", ctypes.c_uint64),
        ("far", _FAR),
        ("leave", _LEAVE),
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
      stopped: The label to branch to if the call must stop; the block there returns `STOPPED` or a place.
    """
    left = f.op(f"sub i64 {load(f, 'budget')}, {cost}", "left")
    store(f, left, "budget")
    due, on = f.new("due"), f.new("on")
    f.branch(unlikely(f, f.op(f"icmp slt i64 {left}, 0")), due, on)
    f.begin(due)
    looking = f.module.declare("headrace_look", "i1", ["ptr"], "cold nounwind")
    f.branch(unlikely(f, f.op(f"call i1 {looking}(ptr %state)", "stop")), stopped, on)
    f.begin(on)


def set_counter(f: Function, depth: int, iteration: str) -> None:
    """Prints a store of a loop's iteration, for the error message of a failure.

    The place for it is the block of a failure, where it takes no time in the loop.

    Args:
      f: The open function.
      depth: The number of open loops around the loop. Nothing is printed from `COUNTERS` on.
      iteration: The i64 number of the iteration, a name or a literal.
    """
    if depth < COUNTERS:
        store(f, iteration, "counters", depth)


def unlikely(f: Function, condition: str) -> str:
    """Prints the i1 `condition` with the note that it is rarely true."""
    expect = f.module.declare("llvm.expect.i1", "i1", ["i1", "i1"])
    return f.op(f"call i1 {expect}(i1 {condition}, i1 false)", "rare")


# *** Memory ***


@record(frozen=True, slots=True)
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
    return _allocated(f, "headrace_allocate", size, failed, name)


def mark(f: Function) -> Mark:
    """Prints the opening of a scope; `release` closes it."""
    return Mark(load(f, "next", SCOPED, "ptr"), load(f, "end", SCOPED, "ptr"))


def release(f: Function, before: Mark) -> None:
    """Prints the closing of a scope: frees all memory of `allocate` since `mark`."""
    releasing = f.module.declare("headrace_release", "void", ["ptr", "ptr", "ptr"], "nounwind")
    f.line(f"call void {releasing}(ptr %state, ptr {before.next}, ptr {before.end})")


def allocate_block(f: Function, size: int | str, failed: str, name: str = "") -> str:
    """Prints an allocation that is independent of scopes; the arguments are those of `allocate`."""
    return _allocated(f, "headrace_take_block", size, failed, name)


def resize_block(f: Function, block: str, old: int | str, new: int | str, failed: str, name: str = "") -> str:
    """Prints a change of the size of a block.

    The content is kept, and the old block is freed. The capacity of a block is its size rounded up to a power of two,
    at least `ALIGNMENT`; up to it the block stays in its place.

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
    resizing = f.module.declare("headrace_resize_block", "ptr", ["ptr", "ptr", "i64", "i64", "ptr"], "nounwind")
    label = _label(f.module, name)
    call = f"call ptr {resizing}(ptr %state, ptr {block}, i64 {old}, i64 {new}, ptr {label})"
    return _checked(f, f.op(call, "memory"), failed)


def free_block(f: Function, block: str, size: int | str) -> None:
    """Prints the end of a block; `null` and memory of the size `BORROWED` are ignored."""
    freeing = f.module.declare("headrace_free_block", "void", ["ptr", "ptr", "i64"], "nounwind")
    f.line(f"call void {freeing}(ptr %state, ptr {block}, i64 {size})")


def _allocated(f: Function, function: str, size: int | str, failed: str, name: str) -> str:
    declared = f.module.declare(function, f"noalias align {ALIGNMENT} ptr", ["ptr", "i64", "ptr"], "nounwind")
    return _checked(
        f, f.op(f"call ptr {declared}(ptr %state, i64 {size}, ptr {_label(f.module, name)})", "memory"), failed
    )


def _checked(f: Function, found: str, failed: str) -> str:
    on = f.new("on")
    f.branch(unlikely(f, f.op(f"icmp eq ptr {found}, null")), failed, on)
    f.begin(on)
    return found


def _label(module: Module, name: str) -> str:
    """The name of a buffer as a C string."""
    if not name:
        return "null"
    raw = name.encode() + b"\0"
    text = "".join(chr(b) if 32 <= b < 127 and chr(b) not in '"\\' else f"\\{b:02X}" for b in raw)
    return module.add_global(f"buffer.{raw[:-1].hex()}", f'private unnamed_addr constant [{len(raw)} x i8] c"{text}"')


class _Chunk:
    """Memory of an arena.

    Args:
      size: The number of bytes.
      is_guarded: Whether guards stand on both sides.
      name: The name of the buffer.

    Attributes:
      idle: Number of calls since the last one that used it.
    """

    __slots__ = ("_memory", "end", "idle", "is_guarded", "name", "size", "start")

    def __init__(self, size: int, is_guarded: bool = False, name: str = "") -> None:
        extra = 2 * _GUARD if is_guarded else 0
        self._memory = _pages(size + extra + ALIGNMENT)
        first: int = self._memory.ctypes.data
        self.start = (first + extra // 2 + ALIGNMENT - 1) // ALIGNMENT * ALIGNMENT
        self.end = self.start + size
        self.size, self.name, self.is_guarded = size, name, is_guarded
        self.idle = 0
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


def _pages(size: int) -> np.ndarray:
    """Memory of which only the pages that are used are resident.

    Large pages, where the system has them, save time on large arrays. The start has small pages, so that a call needs
    little memory if its arrays are small.

    Raises:
      MemoryError: The system does not provide it.
    """
    try:
        memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except (OSError, OverflowError) as e:
        raise MemoryError(f"native code asks for {size} bytes") from e
    small = thresholds.NATIVE_SMALL_PAGES
    if size > small and hasattr(mmap, "MADV_HUGEPAGE"):
        with contextlib.suppress(OSError):  # a system without large pages
            memory.madvise(mmap.MADV_HUGEPAGE, small)
    return np.frombuffer(memory, np.uint8)


class State:
    """State of native calls, one call at a time.

    Attributes:
      layout: The memory that native functions get.
      address: The address of `layout`.
      error: The exception of a callback during the call, or None.
      calls: The calls that the failure of an inner one has ended, innermost first.
    """

    __slots__ = (
        "__weakref__",
        "_chunks",
        "_released",
        "_since_growth",
        "_spare",
        "address",
        "calls",
        "error",
        "layout",
    )

    def __init__(self) -> None:
        self.error: BaseException | None = None
        self._chunks = [[_Chunk(thresholds.NATIVE_KEPT_BYTES)] for _ in (SCOPED, BLOCKS)]
        # A training step that needs more than the kept memory does so each time, and new pages take a tenth of its
        # time. So from the second of such calls on, their chunks stay until some calls have not used them.
        self._spare: list[list[_Chunk]] = [[], []]
        self._released: list[list[_Chunk]] = [[], []]  # by inner scopes of this call
        # settled calls since an arena had more chunks; at first, as if it had never had any
        self._since_growth = [thresholds.NATIVE_SPARE_CALLS] * 2
        self.layout = layout = Layout()
        self.address = ctypes.addressof(layout)
        layout.budget = layout.refill = thresholds.NATIVE_POLL_WORK
        layout.more = _MORE(self._more)
        layout.release = _RELEASE(self._release)
        layout.settle = _SETTLE(self._settle)
        layout.far = _FAR(self._far)
        layout.leave = _LEAVE(self._leave)
        self.calls = EndedCalls()
        self._reset()

    def arenas(self) -> list[tuple[int, int]]:
        """Start and size of the memory that each arena has now."""
        return [(chunk.start, chunk.size) for chunks in self._chunks for chunk in chunks]

    def counters(self) -> list[int]:
        """Iterations of the open loops of the call that failed."""
        return list(self.layout.counters)

    def take_failure(self) -> tuple[BaseException | None, EndedCalls]:
        """The exception of a callback, if any, and the calls that ended; both are forgotten."""
        found = self.error, self.calls
        self.error, self.calls, self.layout.stop = None, EndedCalls(), None
        return found

    def raise_exception(self) -> None:
        """Raises the exception of `look`."""
        kept = list(self.layout.exception)
        for i in range(len(kept)):
            self.layout.exception[i] = None
        _RESTORE(*kept)  # ctypes raises the exception that a function of Python's interface has set

    def _reset(self) -> None:
        for arena, chunks in enumerate(self._chunks):
            self.layout.start[arena] = self.layout.next[arena] = chunks[0].start
            self.layout.end[arena] = chunks[0].end
        ctypes.memset(self.address + offset("free"), 0, 8 * CLASSES)
        self.layout.is_grown = self.layout.is_guarded = 0

    def _more(self, arena: int, size: int, name: bytes | None) -> int:
        """Adds a chunk to an arena and allocates in it; returns the address, or 0."""
        try:
            if size > 1 << LARGEST_CLASS:
                raise MemoryError(f"native code asks for {size} bytes")
            chunks = self._chunks[arena]
            if self.layout.is_guarded:
                made = _Chunk(size, True, (name or b"").decode())
                chunks.append(made)
                self.layout.end[arena] = self.layout.next[arena] = made.end
            else:
                made = self._taken(arena, size) or _Chunk(max(size, thresholds.NATIVE_KEPT_BYTES))
                chunks.append(made)
                self.layout.next[arena], self.layout.end[arena] = made.start + size, made.end
            self.layout.is_grown = 1
            return made.start
        except BaseException as e:  # also KeyboardInterrupt: machine code is the caller, so the exception is kept
            self.error = e
            return 0

    def _taken(self, arena: int, size: int) -> _Chunk | None:
        """Takes a chunk of a size that this call or the last one has released."""
        for chunks in (self._released[arena], self._spare[arena]):
            for k, chunk in enumerate(chunks):
                if chunk.size >= size:
                    return chunks.pop(k)
        return None

    def _release(self, following: int, end: int) -> None:
        """Removes the chunks behind the one with the given end."""
        try:
            chunks = self._chunks[SCOPED]
            while chunks[-1].end != end:
                chunk = chunks.pop()
                self._check(chunk)
                if not chunk.is_guarded:
                    self._released[SCOPED].append(chunk)
            self.layout.next[SCOPED], self.layout.end[SCOPED] = following, end
        except BaseException as e:
            self.error = e

    def _check(self, chunk: _Chunk) -> None:
        if chunk.is_guarded and self.error is None:
            damage = chunk.damage()
            if damage:
                self.error = HeadraceInternalError(f"native code wrote {damage}")

    def _settle(self) -> int:
        """Checks guards, and removes the chunks that were added; some are for the next call."""
        try:
            for arena, chunks in enumerate(self._chunks):
                for chunk in chunks:
                    self._check(chunk)
                used = [c for c in chunks[1:] if not c.is_guarded]
                del chunks[1:]
                self._keep(arena, used + self._released[arena])
                self._released[arena] = []
        except BaseException as e:
            self.error = e
        self._reset()
        return DONE if self.error is None else DAMAGED

    def _keep(self, arena: int, used: list[_Chunk]) -> None:
        """Leaves the added chunks of an arena to the next calls if it grows often."""
        unused = self._spare[arena]
        for chunk in used:
            chunk.idle = 0
        for chunk in unused:
            chunk.idle += 1
        stay = [*used, *(c for c in unused if c.idle < thresholds.NATIVE_SPARE_CALLS)]
        self._spare[arena] = stay if self._since_growth[arena] < thresholds.NATIVE_SPARE_CALLS else []
        self._since_growth[arena] = 0 if used else self._since_growth[arena] + 1

    def _far(self, function: int, args: int) -> int:
        """Calls a native function on another stack; returns its code."""
        enter = _ENTER(function)
        try:
            code = on_another_stack(lambda: enter(self.address, args), self._interrupt)
        except BaseException as e:
            self.error = e
            return STOPPED
        return STOPPED if self.error is not None and code == DONE else code

    def _interrupt(self, error: BaseException) -> None:
        """Makes the thread of `_far` end at its next poll."""
        self.error = error
        self.layout.stop = ctypes.addressof(_STOPPING)

    def _leave(self, place: int) -> None:
        """Records a call that has failed, with the iterations of its function's loops."""
        try:
            self.calls.add(place, self.counters())
        except BaseException as e:
            self.error = e


class Pool:
    """Idle states of the process, the last used one first.

    Machine code takes a state and gives it back (`support`) while it holds the interpreter's lock.

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
