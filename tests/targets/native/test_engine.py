"""The compiler of native code: texts that it accepts or refuses, external names, threads, forks."""

from __future__ import annotations

import ctypes
import itertools
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import headrace as hr
from headrace import flags, thresholds
from headrace.errors import HeadraceInternalError

pytest.importorskip("llvmlite")

from headrace.targets.native import compiler, engine, state
from headrace.targets.native.llvm_text import FINAL, Module

pytestmark = pytest.mark.one_engine


@pytest.fixture(autouse=True)
def _no_cache() -> Any:
    with flags.override(CACHE="off"):
        yield


def number(value: int) -> str:
    """Text of a module with the function `number`, which returns an integer."""
    module = Module()
    module.function("number", "i64", []).line(f"ret i64 {value}")
    return module.text()


def called(library: engine.Library, name: str) -> int:
    function: Callable[[], int] = ctypes.CFUNCTYPE(ctypes.c_int64)(library.address(name))
    return function()


def test_a_module_becomes_a_function() -> None:
    assert engine.available() == ""
    assert called(engine.compile_module(number(42), ["number"]), "number") == 42


def test_libraries_with_equal_names_are_independent() -> None:
    first, second = (engine.compile_module(number(n), ["number"]) for n in (1, 2))
    assert (called(first, "number"), called(second, "number")) == (1, 2)
    del first
    assert called(second, "number") == 2


def test_external_names_are_resolved_in_the_table_and_in_the_process() -> None:
    module = Module()
    given = module.add_global("given", "external global i64")
    root = module.declare("sqrt", "double", ["double"])
    f = module.function("sum", "i64", [])
    value = f.op(f"fptosi double {f.op(f'call double {root}(double 144.0)')} to i64")
    more = f.op(f"load i64, ptr {given}")
    f.line(f"ret i64 {f.op(f'add i64 {value}, {more}')}")
    place = ctypes.c_int64(30)
    library = engine.compile_module(module.text(), ["sum"], {"given": ctypes.addressof(place)})
    assert called(library, "sum") == 42


def test_an_unknown_external_name_is_an_error() -> None:
    module = Module()
    absent = module.declare("no_such_function", "i64", [])
    g = module.function("other", "i64", [])
    g.line(f"ret i64 {g.op(f'call i64 {absent}()')}")
    with pytest.raises(HeadraceInternalError, match="no_such_function"):
        engine.compile_module(module.text(), ["other"])


@pytest.mark.parametrize("text", ["define i64 @f( {", "define i64 @f() {\n  ret i32 0\n}\n"])
def test_a_faulty_text_is_an_error(text: str) -> None:
    with pytest.raises(HeadraceInternalError, match="LLVM does not accept"):
        engine.compile_module(text, ["f"])


def test_a_module_that_breaks_the_rules_of_llvm_is_found() -> None:
    text = "define i64 @f(i1 %c) {\nentry:\n  br i1 %c, label %a, label %b\na:\n  %x = add i64 1, 2\n  br label %b\n"
    text += "b:\n  ret i64 %x\n}\n"  # %a does not dominate %b
    with pytest.raises(HeadraceInternalError, match="dominate"):
        engine.compile_module(text, ["f"])


def test_the_optimized_text_and_the_assembly_are_available() -> None:
    library = engine.compile_module(number(4711), ["number"])
    assert "ret i64 4711" in library.optimized()
    assert "4711" in library.assembly()
    assert "number:" in library.assembly()


def test_the_flag_turns_native_code_off() -> None:
    with flags.override(NATIVE="off"):
        assert engine.available() == "the flag NATIVE is off"


def test_a_large_module_is_refused() -> None:
    assert not engine.too_large(number(1))
    limit = int(thresholds.NATIVE_COMPILED_BYTES * thresholds.NATIVE_COMPILE_SECONDS)
    function = "\ndefine i64 @f() {" + 1000 * " " + "}"
    many = function * (limit // len(function) - 2)
    assert not engine.too_large(many)
    assert engine.too_large(many + 10 * function)
    assert engine.too_large(many.replace("\n", " "))  # as one function


def test_functions_in_final_form_are_compiled_and_called() -> None:
    module = Module()
    half = module.function("half", "i64", [("i64", "x")], is_final=True)
    half.line(f"ret i64 {half.op('sdiv i64 %x, 2')}")
    caller = module.function("caller", "i64", [])
    caller.line(f"ret i64 {caller.op('call i64 @half(i64 42)')}")
    library = engine.compile_module(module.text(), ["caller"])
    assert called(library, "caller") == 21
    assert "define hidden" in library.optimized()  # it remains a function


def test_loops_of_long_modules_are_not_unrolled(monkeypatch: pytest.MonkeyPatch) -> None:
    module = Module()
    f = module.function("each", "void", [("ptr", "at")])
    with f.loop("0", "4") as i:
        f.line(f"store volatile i64 {i}, ptr %at")
    f.line("ret void")
    library = engine.compile_module(module.text(), ["each"])
    assert " phi " not in library.optimized()
    monkeypatch.setattr(thresholds, "NATIVE_UNROLLED_BYTES", 10)
    assert " phi " in library.optimized()


def test_functions_in_final_form_take_less_of_the_limit() -> None:
    store = "\ndefine void @f() {\n" + "store i64 0, ptr %a, !llvm.access.group !0\n}\n"
    limit = int(thresholds.NATIVE_FINAL_BYTES * thresholds.NATIVE_COMPILE_SECONDS)
    assert not engine.too_large(store + FINAL + (limit - 1000) * " ")
    assert engine.too_large(store + FINAL + (limit + 1000) * " ")


def test_a_module_with_many_vectorized_loops_is_refused() -> None:
    store, loop = "store i64 0, ptr %a, !llvm.access.group !0\n", '!{!"llvm.loop.parallel_accesses", !0}\n'
    limit = int(thresholds.NATIVE_COMPILE_SECONDS / thresholds.NATIVE_LOOP_SECONDS)
    assert not engine.too_large("\ndefine void @f() {\n" + store + "}\n" + (limit - 1) * loop)
    assert engine.too_large("\ndefine void @f() {\n" + store + "}\n" + (limit + 1) * loop)
    tanh = "call float @headrace.tanh.float(float %x)\n"
    limit = int(thresholds.NATIVE_COMPILE_SECONDS / thresholds.NATIVE_ELEMENTARY_SECONDS)
    assert engine.too_large("\ndefine void @f() {\n" + store + limit * tanh + "}\n")
    assert not engine.too_large("\ndefine void @f() {\n" + limit * tanh + "}\n")


def test_threads_compile_at_the_same_time() -> None:
    found: list[int] = []

    def work(n: int) -> None:
        found.append(called(engine.compile_module(number(n), ["number"]), "number"))

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(found) == [0, 1, 2, 3]


def test_a_process_forked_during_a_compilation_has_no_native_code() -> None:
    llvm = compiler.compiler()
    with llvm._lock:
        llvm._forked()
    try:
        assert "forked" in engine.available()
        with pytest.raises(HeadraceInternalError, match="forked"):
            engine.compile_module(number(5), ["number"])
    finally:
        llvm.is_broken = False
    assert called(engine.compile_module(number(5), ["number"]), "number") == 5


@pytest.mark.system
def test_a_forked_process_compiles() -> None:
    before = engine.compile_module(number(6), ["number"])
    child = os.fork()
    if child == 0:  # pragma: no cover
        works = called(before, "number") == 6 and called(engine.compile_module(number(7), ["number"]), "number") == 7
        os._exit(0 if works else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@pytest.mark.system
def test_importing_headrace_does_not_import_llvmlite() -> None:
    code = "import sys, headrace, headrace.session; sys.exit('llvmlite' in sys.modules)"
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])}
    assert subprocess.run([sys.executable, "-c", code], env=environment, check=False).returncode == 0


@pytest.mark.system
def test_a_step_without_native_regions_does_not_import_llvmlite() -> None:
    code = "import sys, headrace as hr; hr.square(3.0); assert hr.jit(lambda x: x + 1.0)(2.0) == 3.0\n"
    code += "sys.exit('llvmlite' in sys.modules)"
    environment = {**os.environ, "HEADRACE_NATIVE": "on", "PYTHONPATH": str(Path(__file__).parents[3])}
    assert subprocess.run([sys.executable, "-c", code], env=environment, check=False).returncode == 0


@pytest.mark.system
def test_without_llvmlite_native_code_is_not_available() -> None:
    code = (
        "import sys; sys.modules['llvmlite'] = None\n"
        "from headrace.targets.native import engine\n"
        "sys.exit(engine.available() != 'llvmlite is not installed')"
    )
    environment = {**os.environ, "HEADRACE_NATIVE": "on", "PYTHONPATH": str(Path(__file__).parents[3])}
    assert subprocess.run([sys.executable, "-c", code], env=environment, check=False).returncode == 0


def test_a_step_runs_in_python_if_llvm_does_not_work(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> None:
        raise compiler.UnavailableError("llvmlite does not work here: no library")

    assert engine.available() == ""
    monkeypatch.setattr(compiler, "_compiler", None)
    monkeypatch.setattr(compiler, "Compiler", broken)
    graph = hr.Graph()
    with graph.as_default(), flags.override(NATIVE="on"):
        n = hr.placeholder(hr.int32, [])
        total = hr.while_loop(lambda i, s: i < n, lambda i, s: (i + 1, s + i * i), [0, 0])[1]
        run = hr.Session(graph=graph).make_callable(total, [n])
        assert run(4) == 14
        assert hr.explain(run).native[1].endswith("llvmlite does not work here: no library")


def test_denormal_numbers_are_flushed_in_native_code_as_around_it() -> None:
    from headrace.denormals import _is_known, flushed

    module = Module()
    f = module.function("half", "float", [("float", "x")])
    f.line(f"ret float {f.op('fmul float %x, 0.5')}")
    library = engine.compile_module(module.text(), ["half"])
    half = ctypes.PYFUNCTYPE(ctypes.c_float, ctypes.c_float)(library.address("half"))
    smallest = 1.1754943508222875e-38
    assert half(smallest) > 0
    with flushed():
        assert (half(smallest) == 0) == _is_known


def test_each_element_of_a_vector_has_its_own_sign() -> None:
    """LLVM 22 with AVX512DQ reads an undefined mask register for the second one."""
    module = Module()
    f = module.function("wrap", "void", [("ptr", "x"), ("ptr", "y")])
    x = f.op("load <2 x i32>, ptr %x, align 4")
    signs = f.op(f"icmp slt <2 x i32> {x}, zeroinitializer")
    for i in range(2):
        number = f.op(f"extractelement <2 x i32> {x}, i64 {i}")
        more = f.op(f"zext i1 {f.op(f'extractelement <2 x i1> {signs}, i64 {i}')} to i32")
        result = f.op(f"sitofp i32 {f.op(f'add i32 {number}, {more}')} to float")
        at = f.op(f"getelementptr float, ptr %y, i64 {i}")
        f.line(f"store float {f.op(f'fadd float {result}, 1.0')}, ptr {at}, align 4")
    f.line("ret void")
    llvm = compiler.compiler()
    # passes on the text would change the pattern
    with llvm._context() as context, llvm._parsed(module.text(), context) as parsed:
        content = llvm._machine.emit_object(parsed)
    code = engine._engine().link(content, ["wrap"], {})
    wrap = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)(code["wrap"])
    for numbers in itertools.product([-2, 3], repeat=2):
        given, got = np.array(numbers, np.int32), np.zeros(2, np.float32)
        wrap(given.ctypes.data, got.ctypes.data)
        np.testing.assert_array_equal(got, [n + (n < 0) + 1 for n in numbers])


def test_states_are_as_large_as_their_layout_says() -> None:
    assert state.offset("leave", 1) == ctypes.sizeof(state.Layout)
