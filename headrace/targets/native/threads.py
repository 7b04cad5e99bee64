"""Work on several threads: parts of an operation, taken by a team.

An operation with much work is divided into *parts* by its shape alone. A part is a call `void (ptr %args, i64 %part)`
of a function that writes a part of the result. It reads nothing that another part writes, allocates no memory and
cannot fail, so the result is the same to the last bit on any number of threads and in any order of the parts.

    each_part(f, 8, [("ptr", target.pointer)], cost, body)

prints a call of `headrace_parts`, a function of `support` that runs all parts:

* Its caller takes parts like any other thread, and polls after each of its own if the work polls. If it must stop, no
  further part begins.
* Idle threads of the `Team` help, at most so many that `intra_op.threads()` work together, and so few that each has
  `thresholds.NATIVE_THREAD_WORK`. They are threads of the operating system and know nothing of Python. They are started
  when work wants them first, wait without using the processor, and end at the end of the process.
* One operation at a time has the team. An operation of another step that finds it busy runs on its caller's thread.
* The threads have the floating-point environment of the caller, such as the flushing of denormal numbers.

**Fork.** A forked process has none of the threads, so the memory of the team is cleared there. A poll may fork, by way
of a signal handler; the child has lost the work of the other threads, so the call stops there (`fork` in `Layout`).
"""

from __future__ import annotations

import atexit
import ctypes
import math
import signal
from collections.abc import Callable, Sequence
from typing import Final

from headrace import forking, thresholds
from headrace.targets.native import state
from headrace.targets.native.llvm_text import Function, Module

#: Functions of this module in machine code.
NAMES: Final = ("headrace_parts", "headrace_found_team", "headrace_end_team")

_WORDS: Final = 8  # that hold a mutex of the C library, a condition, or a floating-point environment
_NO_PART: Final = 1 << 62  # behind the last part of any work

#: A value that a part reads: its type as LLVM writes it, and its name.
Captured = tuple[str, str]


class Layout(ctypes.Structure):
    """Memory of the team.

    Attributes:
      mutex: The lock of all other fields but `next`.
      wake: The condition that there is work.
      done: The condition that no thread works.
      environment: The floating-point environment of the caller.
      handles: The threads.
      started: The number of threads.
      ending: Whether the threads must end.
      busy: Whether an operation has the team.
      wanted: The number of threads that may still join it.
      inside: The number of threads that have joined it.
      fork: The number of forks between this process and the one that made the team.
      function: The function of a part.
      args: Its first argument.
      parts: The number of parts.
      next: The next part.
    """

    _fields_ = (
        ("mutex", ctypes.c_uint64 * _WORDS),
        ("wake", ctypes.c_uint64 * _WORDS),
        ("done", ctypes.c_uint64 * _WORDS),
        ("environment", ctypes.c_uint64 * _WORDS),
        ("handles", ctypes.c_uint64 * thresholds.NATIVE_THREADS),
        ("started", ctypes.c_int64),
        ("ending", ctypes.c_int64),
        ("busy", ctypes.c_int64),
        ("wanted", ctypes.c_int64),
        ("inside", ctypes.c_int64),
        ("fork", ctypes.c_int64),
        ("function", ctypes.c_void_p),
        ("args", ctypes.c_void_p),
        ("parts", ctypes.c_int64),
        ("apart", ctypes.c_uint64 * 8),  # a cache line
        ("next", ctypes.c_int64),
    )


class Team:
    """Threads that help with parts, at most one operation at a time.

    Attributes:
      layout: The memory that machine code uses.
      address: Its address.
    """

    def __init__(self) -> None:
        self.layout = Layout()
        self.address = ctypes.addressof(self.layout)
        self._found: Callable[[], object] = bool
        forking.register_at_fork(self)

    def begin(self, found: int, end: int) -> None:
        """Prepares the memory, once the functions with these addresses are compiled."""
        self._found = ctypes.PYFUNCTYPE(None)(found)
        self._found()
        atexit.register(ctypes.CFUNCTYPE(None)(end))  # before the machine code of the threads is unloaded

    def _forked(self) -> None:
        """Clears the memory in a forked process, where no other thread exists; see `forking`."""
        forks, ending = self.layout.fork + 1, self.layout.ending
        ctypes.memset(self.address, 0, ctypes.sizeof(Layout))
        self.layout.fork, self.layout.ending = forks, ending
        self._found()


# *** Division of work ***


def divided(size: int, cost: float) -> int:
    """Number of elements in a part of some work.

    A part takes `thresholds.NATIVE_PART` or more. The number depends on the arguments alone, and divides `size` without
    a rest if a number nearby does.

    Args:
      size: The number of elements.
      cost: The estimated time of all of them, in nanoseconds.

    Returns:
      The number; `size` if the work is too short for several threads.
    """
    if cost < 2 * thresholds.NATIVE_THREAD_WORK:
        return size
    each = max(1, math.ceil(size / min(thresholds.NATIVE_PARTS, cost / thresholds.NATIVE_PART)))
    return next((n for n in range(each, min(2 * each, size)) if size % n == 0), each)


def each_part(
    f: Function,
    parts: int | str,
    captured: Sequence[Captured],
    cost: int | str,
    body: Callable[[Function, list[str], str], None],
    stopped: str = "",
    known: str = "",
) -> str:
    """Prints the run of all parts of some work.

    Args:
      f: The open function.
      parts: The number of parts, or the name of an i64.
      captured: The values that the parts read; each takes 16 bytes or less. Constants and globals are read as they are.
      cost: The estimated time of a part in nanoseconds, or the name of an i64.
      body: Prints a part; it receives a new function, the names of the captured values there, and that of the part.
      stopped: The label to branch to if the call must stop. The function has the parameter `%state` then; else the work
        does not poll.
      known: The function of an earlier run with the same body; "" to print one.

    Returns:
      The name of the function of a part.
    """
    args = f.alloca(f"[{max(1, len(captured))} x i128]", 16)
    for k, (kind, value) in enumerate(captured):
        if value.startswith("%"):
            at = f.op(f"getelementptr inbounds i128, ptr {args}, i64 {k}", "at")
            f.line(f"store {kind} {value}, ptr {at}, align 8")
    name = known or _part(f, captured, body)
    run = f.module.declare("headrace_parts", "i1", ["ptr", "ptr", "ptr", "i64", "i64"], "nounwind")
    owner = "%state" if stopped else "null"
    stop = f.op(f"call i1 {run}(ptr {owner}, ptr @{name}, ptr {args}, i64 {parts}, i64 {cost})", "stop")
    if stopped:
        on = f.new("on")
        f.branch(state.unlikely(f, stop), stopped, on)
        f.begin(on)
    return name


def _part(f: Function, captured: Sequence[Captured], body: Callable[[Function, list[str], str], None]) -> str:
    """Prints the function of a part; returns its name."""
    name = f.module.unused(f"{f.name}.part")
    g = f.module.function(name, "void", [("ptr noalias readonly", "args"), ("i64", "part")], "nounwind", "internal")
    inside = []
    for k, (kind, value) in enumerate(captured):
        if value.startswith("%"):
            at = g.op(f"getelementptr inbounds i128, ptr %args, i64 {k}", "at")
            value = g.op(f"load {kind}, ptr {at}, align 8", "given")
        inside.append(value)
    body(g, inside, "%part")
    g.line("ret void")
    return name


# *** Functions of `support` ***


def define(module: Module) -> None:
    """Adds the functions `NAMES` to the module of `support`."""
    module.add_global("headrace_team", "external global i8")
    module.add_global("headrace_threads", "external global i64")
    _define_serve(module)
    _define_parts(module)
    _define_found(module)
    _define_end(module)


def _at(f: Function, field: str) -> str:
    at: int = getattr(Layout, field).offset
    return f.op(f"getelementptr inbounds i8, ptr @headrace_team, i64 {at}", "at")


def _load(f: Function, field: str, kind: str = "i64") -> str:
    return f.op(f"load {kind}, ptr {_at(f, field)}, align 8", field)


def _store(f: Function, value: str, field: str, kind: str = "i64") -> None:
    f.line(f"store {kind} {value}, ptr {_at(f, field)}, align 8")


def _add(f: Function, field: str, number: int) -> str:
    made = f.op(f"add i64 {_load(f, field)}, {number}", field)
    _store(f, made, field)
    return made


def _call(f: Function, name: str, *args: str) -> str:
    """Prints a call of a function of the C library with addresses as arguments."""
    declared = f.module.declare(name, "i32", ["ptr"] * len(args), "nounwind")
    return f.op(f"call i32 {declared}({', '.join(f'ptr {a}' for a in args)})")


def _lock(f: Function) -> None:
    _call(f, "pthread_mutex_lock", _at(f, "mutex"))


def _unlock(f: Function) -> None:
    _call(f, "pthread_mutex_unlock", _at(f, "mutex"))


def _is(f: Function, condition: str) -> str:
    return f.op(f"icmp {condition}")


def _define_serve(module: Module) -> None:
    """Adds `ptr @headrace_serve(ptr)`, the function of a thread."""
    f = module.function("headrace_serve", "ptr", [("ptr", "nothing")], "nounwind", "internal")
    signals = f.alloca("[128 x i8]", 8)
    block = module.declare("pthread_sigmask", "i32", ["i32", "ptr", "ptr"], "nounwind")
    _call(f, "sigfillset", signals)  # signals are for the threads of Python
    f.op(f"call i32 {block}(i32 {int(signal.SIG_SETMASK)}, ptr {signals}, ptr null)")
    _lock(f)
    f.jump("look")
    f.begin("look")
    f.branch(_is(f, f"ne i64 {_load(f, 'ending')}, 0"), "end", "stay")
    f.begin("end")
    _unlock(f)
    f.line("ret ptr null")
    f.begin("stay")
    f.branch(_is(f, f"sgt i64 {_load(f, 'wanted')}, 0"), "join", "wait")
    f.begin("wait")
    _call(f, "pthread_cond_wait", _at(f, "wake"), _at(f, "mutex"))
    f.jump("look")
    f.begin("join")
    _add(f, "wanted", -1)
    _add(f, "inside", 1)
    function, args, parts = _load(f, "function", "ptr"), _load(f, "args", "ptr"), _load(f, "parts")
    _call(f, "fesetenv", _at(f, "environment"))
    _unlock(f)
    f.jump("next")
    f.begin("next")
    part = f.op(f"atomicrmw add ptr {_at(f, 'next')}, i64 1 monotonic", "part")
    f.branch(_is(f, f"slt i64 {part}, {parts}"), "work", "leave")
    f.begin("work")
    f.line(f"call void {function}(ptr {args}, i64 {part})")
    f.jump("next")
    f.begin("leave")
    _lock(f)
    left = _add(f, "inside", -1)
    f.branch(_is(f, f"eq i64 {left}, 0"), "last", "look")
    f.begin("last")
    _call(f, "pthread_cond_signal", _at(f, "done"))
    f.jump("look")


def _define_parts(module: Module) -> None:
    """Adds `i1 @headrace_parts(ptr %state, ptr %function, ptr %args, i64 %parts, i64 %cost)`.

    Its result is whether the call must stop. `%state` may be null, for work that does not poll.
    """
    params = [("ptr", "state"), ("ptr", "function"), ("ptr", "args"), ("i64", "parts"), ("i64", "cost")]
    f = module.function("headrace_parts", "i1", params, "nounwind")
    own = f.alloca("i64", 8)
    least = module.declare("llvm.smin.i64", "i64", ["i64", "i64"])
    allowed = f.op("load atomic i64, ptr @headrace_threads monotonic, align 8", "allowed")
    work = f.op(f"mul i64 {f.op(f'call i64 {least}(i64 %parts, i64 {1 << 20})')}, %cost", "work")
    many = f.op(f"udiv i64 {work}, {thresholds.NATIVE_THREAD_WORK}")
    for most in (allowed, "%parts", str(thresholds.NATIVE_THREADS + 1)):
        many = f.op(f"call i64 {least}(i64 {many}, i64 {most})")
    helpers = f.op(f"sub i64 {many}, 1", "helpers")
    f.branch(_is(f, f"slt i64 {helpers}, 1"), "alone", "ask")
    f.begin("ask")
    _lock(f)
    is_taken = f.op(f"or i64 {_load(f, 'busy')}, {_load(f, 'ending')}")
    f.branch(_is(f, f"eq i64 {is_taken}, 0"), "take", "leave")
    f.begin("leave")
    _unlock(f)
    f.jump("alone")
    f.begin("take")
    for value, field, kind in (("1", "busy", "i64"), ("0", "next", "i64"), ("%parts", "parts", "i64")):
        _store(f, value, field, kind)
    for field in ("function", "args"):
        _store(f, f"%{field}", field, "ptr")
    _call(f, "fegetenv", _at(f, "environment"))
    f.jump("start")
    f.begin("start")
    started = _load(f, "started")
    f.branch(_is(f, f"slt i64 {started}, {helpers}"), "create", "ready")
    f.begin("create")
    handle = f.op(f"getelementptr inbounds i64, ptr {_at(f, 'handles')}, i64 {started}")
    status = _call(f, "pthread_create", handle, "null", "@headrace_serve", "null")
    f.branch(_is(f, f"eq i32 {status}, 0"), "created", "ready")
    f.begin("created")
    _add(f, "started", 1)
    f.jump("start")
    f.begin("ready")
    _store(f, f.op(f"call i64 {least}(i64 {_load(f, 'started')}, i64 {helpers})"), "wanted")
    forks, shared = _load(f, "fork"), _at(f, "next")
    _call(f, "pthread_cond_broadcast", _at(f, "wake"))
    _unlock(f)
    f.jump("begin")
    f.begin("alone")
    f.line(f"store i64 0, ptr {own}, align 8")
    f.jump("begin")
    f.begin("begin")
    counter = f.op(f"phi ptr [ {shared}, %ready ], [ {own}, %alone ]", "counter")
    is_shared = f.op("phi i1 [ true, %ready ], [ false, %alone ]", "shared")
    forks = f.op(f"phi i64 [ {forks}, %ready ], [ 0, %alone ]", "forks")
    f.jump("next")
    f.begin("next")
    part = f.op(f"atomicrmw add ptr {counter}, i64 1 monotonic", "part")
    f.branch(_is(f, f"slt i64 {part}, %parts"), "work", "finish")
    f.begin("work")
    f.line(f"call void %function(ptr %args, i64 {part})")
    f.branch(_is(f, "eq ptr %state, null"), "next", "poll")
    f.begin("poll")
    state.poll(f, "%cost", "stop")
    f.branch(_has_forked(f, is_shared, forks), "lost", "next")
    f.begin("stop")
    f.line(f"store atomic i64 {_NO_PART}, ptr {counter} monotonic, align 8")
    f.branch(_has_forked(f, is_shared, forks), "lost", "finish")
    f.begin("finish")
    stops = f.op("phi i1 [ false, %next ], [ true, %stop ]", "stops")
    f.branch(is_shared, "gather", "end")
    f.begin("gather")
    _lock(f)
    _store(f, "0", "wanted")
    f.jump("gathered")
    f.begin("gathered")
    f.branch(_is(f, f"eq i64 {_load(f, 'inside')}, 0"), "release", "wait")
    f.begin("wait")
    _call(f, "pthread_cond_wait", _at(f, "done"), _at(f, "mutex"))
    f.jump("gathered")
    f.begin("release")
    _store(f, "0", "busy")
    _unlock(f)
    f.jump("end")
    f.begin("end")
    f.line(f"ret i1 {stops}")
    f.begin("lost")
    f.line("ret i1 true")


def _has_forked(f: Function, is_shared: str, forks: str) -> str:
    """Prints the test whether this is the child of a fork in a poll."""
    differs = _is(f, f"ne i64 {_load(f, 'fork')}, {forks}")
    return f.op(f"and i1 {is_shared}, {differs}")


def _define_found(module: Module) -> None:
    """Adds `void @headrace_found_team()`, which prepares cleared memory."""
    f = module.function("headrace_found_team", "void", [], "nounwind")
    _call(f, "pthread_mutex_init", _at(f, "mutex"), "null")
    for condition in ("wake", "done"):
        _call(f, "pthread_cond_init", _at(f, condition), "null")
    f.line("ret void")


def _define_end(module: Module) -> None:
    """Adds `void @headrace_end_team()`, which ends the threads and waits for their end."""
    f = module.function("headrace_end_team", "void", [], "nounwind")
    join = module.declare("pthread_join", "i32", ["i64", "ptr"], "nounwind")
    _lock(f)
    _store(f, "1", "ending")
    started = _load(f, "started")
    _call(f, "pthread_cond_broadcast", _at(f, "wake"))
    _unlock(f)
    with f.loop("0", started) as i:
        at = f.op(f"getelementptr inbounds i64, ptr {_at(f, 'handles')}, i64 {i}", "at")
        f.op(f"call i32 {join}(i64 {f.op(f'load i64, ptr {at}, align 8')}, ptr null)")
    f.line("ret void")
