"""Calls of native functions from Python: arguments, results, references, failures, threads."""

from __future__ import annotations

import gc
import itertools
import sys
import threading
import tracemalloc
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from headrace import denormals, flags
from headrace.errors import HeadraceInternalError

pytest.importorskip("llvmlite")

from headrace.targets.native import engine, state
from headrace.targets.native.deep_calls import EndedCalls
from headrace.targets.native.entry import Entry, Slot, _qualified, symbols
from headrace.targets.native.llvm_text import Function, Module

pytestmark = pytest.mark.one_engine

DTYPES = [np.dtype(kind) for kind in ("?", *"bhilqBHILQefdFD", ml_dtypes.bfloat16)]


class Failed(Exception):
    """Raised by the handler of the tests."""


def fail(place: int, counters: list[int], calls: EndedCalls) -> None:
    raise Failed(place, counters[:2])


@pytest.fixture(autouse=True, params=[0, 3], ids=["plain", "guarded"])
def _guarded(request: pytest.FixtureRequest) -> Iterator[None]:
    with flags.override(VERIFY=request.param, CACHE="off"):
        yield


def bound(
    print_body: Callable[[Function], None],
    inputs: Sequence[Slot],
    outputs: Sequence[Slot],
    is_long: bool = False,
    flushes: bool = False,
    lent: Sequence[int] | None = None,
) -> Callable[..., Any]:
    """The Python function of a core with this body and a successful return."""
    module = Module()
    f = module.function("core", "i32", [("ptr", "state"), ("ptr", "inputs"), ("ptr", "outputs")])
    print_body(f)
    f.line(f"ret i32 {state.DONE}")
    f.begin("stopped")
    f.line(f"ret i32 {state.STOPPED}")
    f.begin("full")
    f.line(f"ret i32 {state.NO_MEMORY}")
    library = engine.compile_module(module.text(), ["core"])
    return Entry(inputs, outputs, is_long, flushes).bind(library, "core", fail, lent)


def entry_of(f: Function, table: str, position: int) -> str:
    """Prints the address at a position of a table."""
    return f.op(f"load ptr, ptr {f.op(f'getelementptr ptr, ptr {table}, i64 {position}')}, align 8")


def copies(size: int) -> Callable[[Function], None]:
    """Body that copies a number of bytes from input 0 to result 0."""

    def body(f: Function) -> None:
        copy = f.module.declare("llvm.memcpy.p0.p0.i64", "void", ["ptr", "ptr", "i64", "i1"])
        f.line(f"call void {copy}(ptr {entry_of(f, '%outputs', 0)}, ptr {entry_of(f, '%inputs', 0)}, i64 {size}, i1 0)")

    return body


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_scalars_of_every_dtype_pass_through(dtype: np.dtype[Any]) -> None:
    f = bound(copies(dtype.itemsize), [Slot(dtype, ())], [Slot(dtype, ())])
    for value in np.array([0, 1, 0, 1], dtype):
        for given in (value, np.array(value)):
            result = f(None, given)
            assert type(result) is dtype.type
            assert result == value
    if dtype.kind == "b":
        assert f(None, np.True_) is np.True_


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_arrays_of_every_dtype_pass_through(dtype: np.dtype[Any]) -> None:
    array = np.arange(24).reshape(2, 3, 4).astype(dtype)
    f = bound(copies(array.nbytes), [Slot(dtype, (2, 3, 4))], [Slot(dtype, (2, 3, 4))])
    result = f(None, array)
    assert type(result) is np.ndarray
    assert result.dtype == dtype
    assert result.flags.owndata
    assert result.flags.writeable
    assert (result == array).all()


def test_a_core_that_asks_for_it_flushes_denormal_numbers() -> None:
    def halves(f: Function) -> None:
        x = f.op(f"load float, ptr {entry_of(f, '%inputs', 0)}, align 4")
        f.line(f"store float {f.op(f'fmul float {x}, 0.5')}, ptr {entry_of(f, '%outputs', 0)}, align 4")

    scalar = Slot(np.float32, ())
    for flushes, is_long in itertools.product((False, True), repeat=2):
        f = bound(halves, [scalar], [scalar], is_long, flushes)
        assert f(None, np.float32(3)) == 1.5
        assert (f(None, np.float32(1e-38)) == 0) == (flushes and denormals.register_bits() != 0)
        assert not (denormals.user_mode() or 0) & denormals.register_bits()


@pytest.fixture
def row() -> Callable[..., Any]:
    """Copies float32[2, 3]."""
    return bound(copies(24), [Slot(np.float32, (2, 3))], [Slot(np.float32, (2, 3))])


@pytest.mark.parametrize("size", [1, 1000])
def test_fed_arrays_below_a_size_are_copied(size: int) -> None:
    """The result is the address of the elements that the core reads."""

    def address(f: Function) -> None:
        f.line(f"store ptr {entry_of(f, '%inputs', 1)}, ptr {entry_of(f, '%outputs', 0)}, align 8")

    slots, array = [Slot(np.float64, ()), Slot(np.float32, (size,))], np.ones(size, np.float32)
    for limit in (0, 100, sys.maxsize):
        f = bound(address, slots, [Slot(np.int64, ())], lent=[0, limit])
        (found,) = f(None, np.float64(1), array)
        assert (found == array.ctypes.data) == (array.nbytes >= limit)


def test_fed_values_that_do_not_qualify_are_refused() -> None:
    f = bound(copies(24), [Slot(np.float32, (2, 3))], [Slot(np.float32, (2, 3))], lent=[0])
    array = np.ones((2, 3), np.float32)
    assert np.array_equal(f(None, array), [array])
    for given in (array.T.copy(), array[::-1], array.astype(float), [[1.0] * 3] * 2, 1.0, None):
        assert f(None, given) is NotImplemented
    assert f(None) is NotImplemented
    assert f(None, array, array) is NotImplemented


class Subclass(np.ndarray):
    """Some subclass of arrays."""


def misaligned(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    raw = np.zeros(array.nbytes + 1, np.uint8)
    out = raw[1:].view(array.dtype).reshape(array.shape)
    out[...] = array
    return out


@pytest.mark.parametrize(
    "change",
    [
        lambda a: np.asfortranarray(a),
        lambda a: np.repeat(a, 2, 1)[:, ::2],
        lambda a: a[::-1, ::-1].copy()[::-1, ::-1],
        lambda a: a.astype(">f4"),
        lambda a: a.view(Subclass),
        misaligned,
        lambda a: np.broadcast_to(a, (2, 3)),
        lambda a: a.view(np.dtype(np.float32, metadata={"a": 1})),
    ],
    ids=["fortran", "stepped", "reversed", "big endian", "subclass", "misaligned", "read only", "metadata"],
)
def test_arrays_in_another_form_are_copied(row: Callable[..., Any], change: Callable[[Any], Any]) -> None:
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    given = change(array)
    assert (given == array).all()
    result = row(None, given)
    assert type(result) is np.ndarray
    assert result.dtype.isnative
    assert (result == array).all()


@pytest.mark.parametrize(
    "arg",
    [
        np.zeros((2, 3), np.float64),
        np.zeros((2, 3), np.int32),
        np.zeros((3, 2), np.float32),
        np.zeros((2, 3, 1), np.float32),
        np.zeros(6, np.float32),
        np.float32(1),
        [[1.0, 2.0, 3.0]] * 2,
        None,
        "text",
        np.zeros((2, 3), object),
    ],
    ids=lambda a: f"{type(a).__name__}{getattr(a, 'shape', '')}{getattr(a, 'dtype', '')}",
)
def test_other_dtypes_ranks_and_shapes_are_internal_errors(row: Callable[..., Any], arg: Any) -> None:
    with pytest.raises(HeadraceInternalError, match=r"input 0 of native code is float32\[2, 3\]"):
        row(None, arg)


def test_the_number_of_arguments_is_checked(row: Callable[..., Any]) -> None:
    array = np.zeros((2, 3), np.float32)
    for args in ((), (None,), (None, array, array)):
        with pytest.raises(HeadraceInternalError, match="native code has 1 inputs"):
            row(*args)
    with pytest.raises(TypeError, match="keyword"):
        row(None, a=array)


def test_python_integers_become_integer_scalars() -> None:
    f = bound(copies(1), [Slot(np.int8, ())], [Slot(np.int8, ())])
    assert f(None, -7) == np.int8(-7)
    for wrong in (128, True, 1.0):
        with pytest.raises(HeadraceInternalError, match="input 0 of native code is int8"):
            f(None, wrong)


def test_slots_refuse_what_native_code_cannot_hold() -> None:
    for dtype in (object, "S3", "U3", "M8[s]", "V4", ">f4"):
        with pytest.raises(ValueError, match="native code"):
            Slot(dtype, ())
    with pytest.raises(ValueError, match="no input has the symbolic dimension 'm'"):
        Entry([Slot(np.int8, ("n",))], [Slot(np.int8, ("m",))])
    with pytest.raises(ValueError, match="at most 64 dimensions"):
        Slot(np.int8, (1,) * 65)


# *** Symbolic dimensions ***


def store_dims(count: int) -> Callable[[Function], None]:
    """Body that writes the symbolic dimensions behind two inputs to result 0."""

    def body(f: Function) -> None:
        out = entry_of(f, "%outputs", 0)
        for i in range(count):
            dim = f.op(f"load i64, ptr {entry_of(f, '%inputs', 2 + i)}, align 8")
            f.line(f"store i64 {dim}, ptr {f.op(f'getelementptr i64, ptr {out}, i64 {i}')}, align 8")

    return body


def test_symbolic_dimensions_stand_behind_the_inputs() -> None:
    inputs = [Slot(np.int8, ("n", 2, "m")), Slot(np.int16, ("m", None))]
    assert symbols(inputs) == {"n": 2, "m": 3, "1.1": 4}
    f = bound(store_dims(3), inputs, [Slot(np.int64, (3,))])
    for n, m, k in itertools.product((0, 1, 5), repeat=3):
        assert f(None, np.zeros((n, 2, m), np.int8), np.zeros((m, k), np.int16)).tolist() == [n, m, k]


def test_equal_names_are_equal_dimensions() -> None:
    f = bound(store_dims(1), [Slot(np.int8, ("n", "n")), Slot(np.int8, ("n",))], [Slot(np.int64, (1,))])
    assert f(None, np.zeros((4, 4), np.int8), np.zeros(4, np.int8)).tolist() == [4]
    for first, second in (((4, 5), 4), ((4, 4), 5), ((0, 4), 4)):
        with pytest.raises(HeadraceInternalError, match="it was called with int8"):
            f(None, np.zeros(first, np.int8), np.zeros(second, np.int8))


def test_results_take_symbolic_dimensions() -> None:
    outputs = [Slot(np.float32, ("m", 3, "n")), Slot(np.complex128, ("n",))]
    f = bound(lambda f: None, [Slot(np.int8, ("n", "m"))], outputs)
    first, second = f(None, np.zeros((2, 5), np.int8))
    assert (first.shape, first.dtype, second.shape, second.dtype) == ((5, 3, 2), np.float32, (2,), np.complex128)


def test_arrays_without_elements() -> None:
    f = bound(lambda f: None, [Slot(np.float32, ("n", 0))], [Slot(np.float32, ("n", 0)), Slot(np.int8, (0,))])
    first, second = f(None, np.zeros((3, 0), np.float32))
    assert (first.shape, second.shape) == ((3, 0), (0,))


def test_a_result_that_is_too_large_is_an_error_of_numpy() -> None:
    f = bound(lambda f: None, [Slot(np.int8, ("n",))], [Slot(np.float64, ("n",) * 8)])
    with pytest.raises((MemoryError, ValueError)):
        f(None, np.zeros(1000, np.int8))
    assert f(None, np.zeros(1, np.int8)).shape == (1,) * 8


def counting(f: Function) -> None:
    """Body that computes [[0, 1], [2, 3], ...] of a number of rows."""
    n = f.op(f"load i64, ptr {entry_of(f, '%inputs', 0)}, align 8")
    out = entry_of(f, "%outputs", 0)
    total = f.op(f"mul i64 {n}, 2")
    memory = state.allocate(f, f.op(f"mul i64 {total}, 8"), "full", "rows")
    with f.loop("0", total) as i:
        f.line(f"store i64 {i}, ptr {f.op(f'getelementptr i64, ptr {memory}, i64 {i}')}, align 8")
    for position, (kind, value) in enumerate((("ptr", memory), ("i64", n), ("i64", "2"))):
        f.line(f"store {kind} {value}, ptr {f.op(f'getelementptr i64, ptr {out}, i64 {position}')}, align 8")


def test_a_core_may_compute_the_dimensions_of_a_result() -> None:
    f = bound(counting, [Slot(np.int64, ())], [Slot(np.int64, (None, 2))])
    for n in (0, 1, 1000, 100_000, 3):
        assert (f(None, np.int64(n)) == np.arange(2 * n).reshape(n, 2)).all()
    with pytest.raises(MemoryError):  # the core asks for -16 bytes, a huge unsigned number
        f(None, np.int64(-1))


# *** Results and references ***


def test_several_results_are_a_tuple_and_none_is_none() -> None:
    assert bound(lambda f: None, [], [])(None) is None
    outputs = [Slot(np.int8, (2,)), Slot(np.bool_, ()), Slot(np.float64, ())]

    def body(f: Function) -> None:
        f.line(f"store i16 513, ptr {entry_of(f, '%outputs', 0)}, align 1")
        f.line(f"store i8 1, ptr {entry_of(f, '%outputs', 1)}, align 1")
        f.line(f"store double 2.5, ptr {entry_of(f, '%outputs', 2)}, align 8")

    array, truth, value = bound(body, [], outputs)(None)
    assert array.tolist() == [1, 2]
    assert truth is np.True_
    assert (type(value), value) == (np.float64, 2.5)


def references(things: Sequence[object]) -> list[int]:
    return [sys.getrefcount(thing) for thing in things]


def test_references_are_neither_lost_nor_kept() -> None:
    inputs = [Slot(np.float32, ("n",)), Slot(np.int32, ()), Slot(ml_dtypes.bfloat16, ())]
    outputs = [Slot(np.float32, ("n",)), Slot(np.bool_, ()), Slot(np.int32, ()), Slot(ml_dtypes.bfloat16, ())]
    f = bound(lambda f: None, inputs, outputs)
    args = (np.zeros(3, np.float32), np.int32(4), np.zeros((), ml_dtypes.bfloat16)[()])
    look = lambda: None
    kinds = (np.dtype(np.float32), np.float32, np.int32, np.dtype(ml_dtypes.bfloat16), ml_dtypes.bfloat16)
    f(look, *args)
    # from Python 3.12 on None is immortal: extensions built for older versions change its count one-sidedly
    things = (look, np.True_, *args, *kinds, *((None,) if sys.version_info < (3, 12) else ()))
    before = references(things)
    for _ in range(300 if flags.VERIFY.value else 10_000):
        f(look, *args)
    after = references(things)
    assert all(abs(a - b) < 20 for a, b in zip(after, before)), (before, after)


def test_calls_leave_no_memory() -> None:
    f = bound(copies(8000), [Slot(np.float64, (1000,))], [Slot(np.float64, (1000,))])
    g = bound(copies(8), [Slot(np.float64, ())], [Slot(np.float64, ())])
    array, value = np.zeros(1000), np.float64(3)
    f(None, array), g(None, value)
    gc.collect()
    tracemalloc.start()
    try:
        start = tracemalloc.get_traced_memory()[0]
        for _ in range(100 if flags.VERIFY.value else 1000):
            f(None, array), g(None, value), f(None, array[::-1])
        gc.collect()
        assert tracemalloc.get_traced_memory()[0] - start < 50_000
    finally:
        tracemalloc.stop()


def test_a_function_keeps_its_library_and_frees_it() -> None:
    f = bound(copies(8), [Slot(np.float64, ())], [Slot(np.float64, ())])
    gc.collect()
    assert f(None, np.float64(5)) == 5
    libraries = weakref.WeakSet(each for each in gc.get_objects() if isinstance(each, engine.Library))
    before = len(libraries)
    del f
    gc.collect()  # the function and its slow path refer to each other
    assert len(libraries) == before - 1


# *** Failures ***


def failing(f: Function) -> None:
    """Body that fails at the place that input 0, an int32, names."""
    place = f.op(f"load i32, ptr {entry_of(f, '%inputs', 0)}, align 4")
    state.set_counter(f, 0, "12")
    state.set_counter(f, 1, "34")
    state.set_counter(f, state.COUNTERS, "56")
    f.line(f"ret i32 {place}")
    f.begin("unused")


def test_a_failure_calls_the_handler_with_its_place_and_the_iterations() -> None:
    f = bound(failing, [Slot(np.int32, ())], [Slot(np.float32, (5,)), Slot(np.int32, ())])
    for place in (1, 17, 2**31 - 1):
        with pytest.raises(Failed) as caught:
            f(None, np.int32(place))
        assert caught.value.args == (place, [12, 34])
    with pytest.raises(MemoryError):
        f(None, np.int32(state.NO_MEMORY))
    assert f(None, np.int32(0))[0].shape == (5,)


def test_states_are_given_back_after_failures() -> None:
    f = bound(failing, [Slot(np.int32, ())], [Slot(np.float32, (5,))])
    f(None, np.int32(0))
    before = len(state.pool().states)
    for _ in range(20):
        with pytest.raises(Failed):
            f(None, np.int32(1))
    assert len(state.pool().states) == before


def test_a_handler_that_returns_is_an_internal_error() -> None:
    module = Module()
    module.function("core", "i32", [("ptr", "state"), ("ptr", "inputs"), ("ptr", "outputs")]).line("ret i32 3")
    f = Entry([], []).bind(engine.compile_module(module.text(), ["core"]), "core", lambda place, counters, calls: None)
    with pytest.raises(HeadraceInternalError, match="place 3"):
        f(None)


def endless(f: Function) -> None:
    """Body that polls for ever."""
    f.jump("again")
    f.begin("again")
    state.poll(f, 1_000_000, "stopped")
    f.jump("again")
    f.begin("unused")


@pytest.mark.parametrize("is_long", [False, True])
@pytest.mark.parametrize("error", [Failed("stop"), KeyboardInterrupt(), SystemExit(3)], ids=repr)
def test_an_exception_of_a_poll_is_passed_on(is_long: bool, error: BaseException) -> None:
    f = bound(endless, [], [Slot(np.float32, (3,))], is_long)
    calls = itertools.count()

    def look() -> None:
        if next(calls) == 10:
            raise error

    with pytest.raises(type(error)) as caught:
        f(look)
    assert caught.value is error
    assert next(calls) == 11


def test_a_poll_may_call_native_code() -> None:
    outer = bound(endless, [], [])
    inner = bound(copies(8), [Slot(np.float64, ())], [Slot(np.float64, ())])
    seen = []

    def look() -> None:
        seen.append(inner(None, np.float64(len(seen))))
        if len(seen) == 5:
            raise Failed

    with pytest.raises(Failed):
        outer(look)
    assert seen == [0, 1, 2, 3, 4]


def test_a_long_call_leaves_the_lock_to_other_threads() -> None:
    ended = threading.Event()

    def look() -> None:
        if ended.is_set():
            raise Failed

    f = bound(endless, [], [], is_long=True)
    other = threading.Timer(0.01, ended.set)
    other.start()
    with pytest.raises(Failed):
        f(look)
    other.join()


@pytest.mark.parametrize("is_long", [False, True])
def test_calls_of_several_threads_are_independent(is_long: bool) -> None:
    f = bound(counting, [Slot(np.int64, ())], [Slot(np.int64, (None, 2))], is_long)
    wrong: list[int] = []

    def work(n: int) -> None:
        for k in range(30):
            size = 37 * n + 11 * k
            if not (f(None, np.int64(size)) == np.arange(2 * size).reshape(size, 2)).all():
                wrong.append(size)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_only_unfit_arguments_are_copied() -> None:
    slots = [Slot(np.float32, (2, 3))] * 4
    fit = np.arange(6, dtype=np.float32).reshape(2, 3)
    shifted = np.frombuffer(b"\0" + fit.tobytes(), np.float32, 6, 1).reshape(2, 3)
    frozen = fit.copy()
    frozen.flags.writeable = False
    given = [fit, np.asfortranarray(fit), shifted, frozen]
    found = _qualified(slots, given)
    assert [a is x for a, x in zip(given, found, strict=True)] == [True, False, False, True]
    assert all(np.array_equal(x, fit) and x.flags.c_contiguous and x.flags.aligned for x in found)
