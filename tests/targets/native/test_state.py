"""The state of native calls: memory of scopes and blocks, polls, guards round buffers."""

from __future__ import annotations

import itertools
import os
import random
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest

from headrace import flags, thresholds
from headrace.errors import HeadraceInternalError

pytest.importorskip("llvmlite")

from headrace.targets.native import engine, state
from headrace.targets.native.deep_calls import EndedCalls
from headrace.targets.native.entry import Entry, Slot
from headrace.targets.native.llvm_text import Function, Module
from tests.targets.native.arena_memory import kept_bytes

pytestmark = pytest.mark.one_engine

INT = Slot(np.int64, ())


class Failed(Exception):
    """Raised by the handler of the tests."""


def fail(place: int, counters: list[int], calls: EndedCalls) -> None:
    raise Failed(place)


@pytest.fixture(autouse=True)
def _plain() -> Iterator[None]:
    with flags.override(VERIFY=1, CACHE="off"):
        yield


def bound(
    print_body: Callable[[Function, list[str], list[str]], None], inputs: int, outputs: int, is_long: bool = False
) -> Callable[..., Any]:
    """The Python function of a core with int64 scalars.

    The body gets the names of the inputs' values and of the results' addresses.
    """
    module = Module()
    f = module.function("core", "i32", [("ptr", "state"), ("ptr", "inputs"), ("ptr", "outputs")])
    values = [f.op(f"load i64, ptr {_entry(f, '%inputs', i)}, align 8") for i in range(inputs)]
    print_body(f, values, [_entry(f, "%outputs", i) for i in range(outputs)])
    f.line(f"ret i32 {state.DONE}")
    f.begin("stopped")
    f.line(f"ret i32 {state.STOPPED}")
    f.begin("full")
    f.line(f"ret i32 {state.NO_MEMORY}")
    library = engine.compile_module(module.text(), ["core"])
    return Entry([INT] * inputs, [INT] * outputs, is_long).bind(library, "core", fail)


def _entry(f: Function, table: str, position: int) -> str:
    return f.op(f"load ptr, ptr {f.op(f'getelementptr ptr, ptr {table}, i64 {position}')}, align 8")


def store(f: Function, value: str, to: str, kind: str = "i64") -> None:
    f.line(f"store {kind} {value}, ptr {to}, align 1")


def as_int(f: Function, pointer: str) -> str:
    return f.op(f"ptrtoint ptr {pointer} to i64")


def fill(f: Function, pointer: str, size: str) -> None:
    fill = f.module.declare("llvm.memset.p0.i64", "void", ["ptr", "i8", "i64", "i1"])
    f.line(f"call void {fill}(ptr {pointer}, i8 7, i64 {size}, i1 0)")


# *** Scopes ***


def test_buffers_are_aligned_and_do_not_overlap() -> None:
    def body(f: Function, values: list[str], results: list[str]) -> None:
        for value, result in zip(values, results):
            memory = state.allocate(f, value, "full")
            fill(f, memory, value)
            store(f, as_int(f, memory), result)

    f = bound(body, 5, 5)
    for sizes in ((1, 64, 65, 0, 3), (0, 0, 0, 0, 0), (10, 100_000, 1, 1_000_000, 2)) * 2:
        starts = [int(s) for s in f(None, *[np.int64(n) for n in sizes])]
        assert all(s % state.ALIGNMENT == 0 for s in starts)
        spans = sorted((s, s + n) for s, n in zip(starts, sizes))
        assert len(set(starts)) == 5
        assert all(end <= start for (_, end), (start, _) in itertools.pairwise(spans))


def scoped(f: Function, values: list[str], results: list[str]) -> None:
    """Body that allocates input 1 bytes in each of input 0 scopes."""
    first = state.allocate(f, 8, "full")
    with f.loop("0", values[0]) as i:
        scope = state.mark(f)
        memory = state.allocate(f, values[1], "full", "in scope")
        store(f, i, memory)
        state.release(f, scope)
    again = state.allocate(f, 8, "full")
    store(f, f.op(f"sub i64 {as_int(f, again)}, {as_int(f, first)}"), results[0])


def test_a_scope_frees_its_memory() -> None:
    f = bound(scoped, 2, 1)
    for size in (8, 1000, 100_000, 10_000_000, 8):
        assert f(None, np.int64(5), np.int64(size)) == state.ALIGNMENT  # the first one after the call's first buffer


def test_scopes_may_be_nested() -> None:
    def body(f: Function, values: list[str], results: list[str]) -> None:
        outer = state.mark(f)
        a = state.allocate(f, values[0], "full")
        inner = state.mark(f)
        b = state.allocate(f, values[0], "full")
        state.release(f, inner)
        c = state.allocate(f, values[0], "full")
        state.release(f, outer)
        d = state.allocate(f, values[0], "full")
        for pointer, result in zip((a, b, c, d), results):
            store(f, as_int(f, pointer), result)

    f = bound(body, 1, 4)
    for size in (100, 20_000, 100_000):
        f(None, np.int64(size))  # enlarges the arena
        a, b, c, d = f(None, np.int64(size))
        assert (a, b) == (d, c)


def test_memory_is_kept_for_the_next_call() -> None:
    def body(f: Function, values: list[str], results: list[str]) -> None:
        with f.loop("0", values[0]):
            memory = state.allocate(f, 1000, "full")
        store(f, as_int(f, state.allocate(f, 1000, "full")), results[0])
        del memory

    f = bound(body, 1, 1)
    first = f(None, np.int64(3000))
    assert f(None, np.int64(3000)) == first


def touched(f: Function, values: list[str], results: list[str]) -> None:
    """Body that allocates input 0 bytes and writes to each page."""
    memory = state.allocate(f, values[0], "full")
    with f.loop("0", values[0], 4096) as i:
        store(f, i, f.op(f"getelementptr i8, ptr {memory}, i64 {i}"))


def test_pages_are_resident_once_they_are_used() -> None:
    before = kept_bytes()
    f = bound(touched, 1, 0)
    f(None, np.int64(1000))
    assert kept_bytes() - before < 1 << 20
    f(None, np.int64(30_000_000))
    assert kept_bytes() >= 30_000_000
    f(None, np.int64(1000))
    assert kept_bytes() >= 30_000_000


def test_kept_memory_is_bounded() -> None:
    f = bound(scoped, 2, 1)
    f(None, np.int64(2), np.int64(1.5 * thresholds.NATIVE_KEPT_BYTES))
    for s in state.pool().states.values():
        assert sum(size for _, size in s.arenas()) == 2 * thresholds.NATIVE_KEPT_BYTES


def spare_bytes() -> int:
    return sum(c.size for s in state.pool().states.values() for chunks in s._spare for c in chunks)


def test_a_call_that_grows_again_leaves_its_memory_to_the_next_one() -> None:
    f = bound(scoped, 2, 1)
    for s in state.pool().states.values():
        s._spare, s._since_growth = [[], []], [thresholds.NATIVE_SPARE_CALLS] * 2
    size = np.int64(1.5 * thresholds.NATIVE_KEPT_BYTES)
    small = np.int64(1.25 * thresholds.NATIVE_KEPT_BYTES)
    for given, wanted in ((size, 0), (size, size), (size, size), (small, size)):
        f(None, np.int64(2), given)
        assert spare_bytes() == wanted
    large = 2 * thresholds.NATIVE_KEPT_BYTES  # the spare chunk is too small for it
    for k in range(1, thresholds.NATIVE_SPARE_CALLS + 1):
        f(None, np.int64(2), np.int64(large))
        assert spare_bytes() == large + (size if k < thresholds.NATIVE_SPARE_CALLS else 0)


@pytest.mark.parametrize("size", [-1, -65, 1 << 62, 1 << 47])
def test_a_size_that_is_too_large_is_an_error(size: int) -> None:
    f = bound(scoped, 2, 1)
    for _ in range(2):
        with pytest.raises(MemoryError):
            f(None, np.int64(1), np.int64(size))
        f(None, np.int64(1), np.int64(8))

    def body(f: Function, values: list[str], results: list[str]) -> None:
        state.allocate_block(f, values[0], "full")

    with pytest.raises(MemoryError):
        bound(body, 1, 0)(None, np.int64(size))


# *** Blocks ***


def growing(f: Function, values: list[str], results: list[str]) -> None:
    """Body that appends the numbers below input 0 to two lists."""
    lists = [f.alloca("ptr", 8) for _ in range(2)]
    for each in lists:
        store(f, "null", each, "ptr")
    with f.loop("0", values[0]) as i:
        scope = state.mark(f)
        state.allocate(f, 100, "full", "scratch")
        old = f.op(f"mul i64 {i}, 8")
        new = f.op(f"add i64 {old}, 8")
        for each in lists:
            before = f.op(f"load ptr, ptr {each}, align 8")
            block = state.resize_block(f, before, old, new, "full", "list")
            store(f, i, f.op(f"getelementptr i8, ptr {block}, i64 {old}"))
            store(f, block, each, "ptr")
        state.release(f, scope)
    block = f.op(f"load ptr, ptr {lists[0]}, align 8")
    total = f.alloca("i64", 8)
    store(f, "0", total)
    with f.loop("0", values[0]) as i:
        item = f.op(f"load i64, ptr {f.op(f'getelementptr i64, ptr {block}, i64 {i}')}, align 8")
        store(f, f.op(f"add i64 {item}, {f.op(f'load i64, ptr {total}')}"), total)
    store(f, f.op(f"load i64, ptr {total}"), results[0])
    for each in lists:
        state.free_block(f, f.op(f"load ptr, ptr {each}, align 8"), f.op(f"mul i64 {values[0]}, 8"))


@pytest.mark.parametrize("verify", [1, 3])
def test_lists_grow_in_inner_scopes(verify: int) -> None:
    with flags.override(VERIFY=verify):
        f = bound(growing, 1, 1)
        for n in (0, 1, 7, 100, 8) if verify == 3 else (0, 1, 7, 100, 1000, 20_000, 100, 20_000):
            assert f(None, np.int64(n)) == n * (n - 1) // 2


def test_a_freed_block_is_used_again() -> None:
    def body(f: Function, values: list[str], results: list[str]) -> None:
        first = state.allocate_block(f, 300, "full")
        state.free_block(f, first, 300)
        second = state.allocate_block(f, 512, "full")  # of the same class
        third = state.allocate_block(f, 512, "full")
        for pointer, result in zip((first, second, third), results):
            store(f, as_int(f, pointer), result)

    f = bound(body, 0, 3)
    for _ in range(3):
        first, second, third = f(None)
        assert first == second != third


def test_random_programs_keep_the_content_of_their_memory() -> None:
    """Each buffer holds a number of its own to the end of its life."""
    for seed, verify in ((1, 1), (2, 1), (1, 3)):
        rnd = random.Random(seed)
        with flags.override(VERIFY=verify):
            f = bound(lambda f, values, results, rnd=rnd: random_program(f, rnd, results[0]), 0, 1)
            assert [f(None) for _ in range(3)] == [0, 0, 0]


def random_program(f: Function, rnd: random.Random, wrong: str) -> None:
    store(f, "0", wrong)

    def write(pointer: str, size: int, number: int) -> None:
        store(f, str(number), pointer)
        store(f, str(number), f.op(f"getelementptr i8, ptr {pointer}, i64 {size - 8}"))

    def check(pointer: str, size: int, number: int) -> None:
        for at in (0, size - 8):
            found = f.op(f"load i64, ptr {f.op(f'getelementptr i8, ptr {pointer}, i64 {at}')}, align 1")
            bad = f.op(f"zext i1 {f.op(f'icmp ne i64 {found}, {number}')} to i64")
            store(f, f.op(f"add i64 {bad}, {f.op(f'load i64, ptr {wrong}')}"), wrong)

    scopes: list[tuple[state.Mark, list[tuple[str, int, int]]]] = []
    blocks: list[tuple[str, int, int]] = []
    for number in range(40):
        size = 16 + int(rnd.random() ** 6 * 200_000)
        choice = rnd.random()
        if choice < 0.25 and len(scopes) < 5:
            scopes.append((state.mark(f), []))
        elif choice < 0.4 and scopes:
            scope, buffers = scopes.pop()
            for buffer in buffers:
                check(*buffer)
            state.release(f, scope)
        elif choice < 0.6 and scopes:
            memory = state.allocate(f, size, "full", f"buffer {number}")
            write(memory, size, number)
            scopes[-1][1].append((memory, size, number))
        elif choice < 0.8 or not blocks:
            memory = state.allocate_block(f, size, "full", f"block {number}")
            write(memory, size, number)
            blocks.append((memory, size, number))
        else:
            memory, old, mine = blocks.pop(rnd.randrange(len(blocks)))
            check(memory, old, mine)
            if choice < 0.9:
                state.free_block(f, memory, old)
            else:
                moved = state.resize_block(f, memory, old, size, "full", f"block {number}")
                write(moved, size, number)
                blocks.append((moved, size, number))
    for each in blocks + [buffer for _, buffers in scopes for buffer in buffers]:
        check(*each)


# *** Guards ***


def writing(at: int, size: int = 40, is_block: bool = False, is_released: bool = False) -> Callable[..., Any]:
    """A guarded function that writes a byte, `at` bytes from the start of a buffer."""

    def body(f: Function, values: list[str], results: list[str]) -> None:
        scope = state.mark(f)
        allocate = state.allocate_block if is_block else state.allocate
        memory = allocate(f, size, "full", "the sums")
        # volatile: LLVM drops other writes to memory that ends with the call
        f.line(f"store volatile i8 1, ptr {f.op(f'getelementptr i8, ptr {memory}, i64 {at}')}, align 1")
        if is_released:
            state.release(f, scope)

    with flags.override(VERIFY=3):
        return bound(body, 0, 0)


@pytest.mark.parametrize("is_block", [False, True])
@pytest.mark.parametrize("is_released", [False, True])
@pytest.mark.parametrize(
    ("at", "text"),
    [
        (40, "0 bytes after the end"),
        (50, "10 bytes after the end"),
        (-1, "1 bytes before the start"),
        (-64, "64 bytes"),
    ],
)
def test_a_write_outside_of_a_buffer_names_the_buffer(is_block: bool, is_released: bool, at: int, text: str) -> None:
    f = writing(at, is_block=is_block, is_released=is_released)
    for _ in range(2):
        with pytest.raises(HeadraceInternalError, match=f"{text}.* 'the sums' of 40 bytes"):
            f(None)


@pytest.mark.parametrize("at", [0, 39])
def test_a_write_inside_of_a_buffer_is_allowed(at: int) -> None:
    writing(at)(None)
    writing(at, is_block=True)(None)


@pytest.mark.parametrize("slot", [Slot(np.float32, (3, 5)), Slot(np.float32, ("n",)), Slot(np.int16, ())])
@pytest.mark.parametrize("is_after", [False, True])
def test_a_write_outside_of_a_result_names_the_result(slot: Slot, is_after: bool) -> None:
    module = Module()
    f = module.function("core", "i32", [("ptr", "state"), ("ptr", "inputs"), ("ptr", "outputs")])
    size = slot.dtype.itemsize * int(np.prod([7 if dim == "n" else dim for dim in slot.shape]))
    store(f, "1", f.op(f"getelementptr i8, ptr {_entry(f, '%outputs', 0)}, i64 {size if is_after else -1}"), "i8")
    f.line("ret i32 0")
    with flags.override(VERIFY=3):
        library = engine.compile_module(module.text(), ["core"])
        function = Entry([Slot(np.int8, ("n",))], [slot]).bind(library, "core", fail)
        with pytest.raises(HeadraceInternalError, match=f"the buffer 'result 0' of {size} bytes"):
            function(None, np.zeros(7, np.int8))


def test_an_error_of_a_guarded_call_stays_in_it() -> None:
    with pytest.raises(HeadraceInternalError):
        writing(40)(None)
    assert bound(growing, 1, 1)(None, np.int64(10)) == 45
    assert all(s.error is None and not s.layout.is_guarded for s in state.pool().states.values())


# *** Polls ***


def polling(f: Function, values: list[str], results: list[str]) -> None:
    """Body of input 0 iterations that cost input 1 each."""
    with f.loop("0", values[0]):
        state.poll(f, values[1], "stopped")


@pytest.mark.parametrize("is_long", [False, True])
def test_polls_look_once_in_a_budget(is_long: bool) -> None:
    f = bound(polling, 2, 0, is_long)
    looks: list[None] = []
    f(lambda: looks.append(None), np.int64(100_000), np.int64(thresholds.NATIVE_POLL_WORK // 1000))
    assert 95 <= len(looks) <= 101


def test_the_budget_is_that_of_all_calls_of_a_state() -> None:
    f = bound(polling, 2, 0)
    looks: list[None] = []
    for _ in range(100):
        f(lambda: looks.append(None), np.int64(10), np.int64(thresholds.NATIVE_POLL_WORK // 100))
    assert 8 <= len(looks) <= 11


def test_a_poll_without_a_function_goes_on() -> None:
    bound(polling, 2, 0)(None, np.int64(1000), np.int64(thresholds.NATIVE_POLL_WORK))


@pytest.mark.system
def test_a_forked_process_calls() -> None:
    f = bound(growing, 1, 1)
    child = os.fork()
    if child == 0:  # pragma: no cover
        os._exit(0 if f(None, np.int64(1000)) == 499_500 else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@pytest.mark.nightly
def test_a_poll_takes_nanoseconds() -> None:
    f = bound(polling, 2, 0)
    times: Sequence[float] = []
    for _ in range(20):
        start = time.perf_counter()
        f(None, np.int64(1_000_000), np.int64(1))
        times = [*times, time.perf_counter() - start]
    assert min(times) < 1_000_000 * 10e-9
