"""The loader of object files, its files and its memory."""

from __future__ import annotations

import ctypes
import os
import platform
import struct
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("llvmlite")

from headrace.errors import HeadraceInternalError
from headrace.targets.native import linking, processor
from headrace.targets.native.compiler import compiler
from headrace.targets.native.llvm_text import Module

pytestmark = [
    pytest.mark.one_engine,
    pytest.mark.skipif(
        sys.platform != "linux" or platform.machine() != "x86_64", reason="other platforms use LLVM's linker"
    ),
]


def _object(*, is_changed: bool = False) -> bytes:
    """Object file with a constant, an internal call, calls of the process, and external data."""
    module = Module()
    given = module.add_global("given", "external global i64")
    if is_changed:
        module.add_global("changed", "internal global i64 5")
    table = module.add_global("table", "private constant [4 x i64] [i64 1, i64 2, i64 3, i64 4]")
    root = module.declare("sqrt", "double", ["double"])
    inner = module.function("inner", "i64", [("i64", "k")], "noinline nounwind", "internal")
    at = inner.op(f"getelementptr i64, ptr {table}, i64 %k")
    inner.line(f"ret i64 {inner.op(f'load i64, ptr {at}')}")
    f = module.function("sum", "i64", [("i64", "k"), ("double", "x")], "nounwind")
    total = f.op("call i64 @inner(i64 %k)")
    for more in (f"fptosi double {f.op(f'call double {root}(double %x)')} to i64", f"load i64, ptr {given}"):
        total = f.op(f"add i64 {total}, {f.op(more)}")
    if is_changed:
        total = f.op(f"add i64 {total}, {f.op('atomicrmw add ptr @changed, i64 1 monotonic')}")
    f.line(f"ret i64 {total}")
    return compiler().compile(module.text())


def _called(code: linking.Code, *args: float) -> int:
    found: int = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64, ctypes.c_double)(code["sum"])(*args)
    return found


def test_calls_constants_and_external_names_are_found() -> None:
    place = ctypes.c_int64(100)
    first, second = (linking.link(_object(), {"given": ctypes.addressof(place)}) for _ in range(2))
    assert first is not None
    assert second is not None
    assert _called(first, 2, 144.0) == 3 + 12 + 100
    assert first["sum"] != second["sum"]
    del first
    assert _called(second, 3, 4.0) == 4 + 2 + 100


def test_an_unknown_name_is_named() -> None:
    with pytest.raises(HeadraceInternalError, match="native code needs given"):
        linking.link(_object(), {})


def test_memory_is_executable_and_not_writable_while_the_code_exists() -> None:
    place = ctypes.c_int64(0)
    code = linking.link(_object(), {"given": ctypes.addressof(place)})
    assert code is not None
    address = code["sum"]
    assert _protection(address) == "r-xp"
    del code
    assert _protection(address) != "r-xp"


def _protection(address: int) -> str:
    for line in Path("/proc/self/maps").read_text().splitlines():
        bounds, protection = line.split()[:2]
        start, end = (int(bound, 16) for bound in bounds.split("-"))
        if start <= address < end:
            return protection
    return ""


def test_a_file_with_variables_is_left_to_llvm() -> None:
    assert linking.link(_object(is_changed=True), {"given": 1}) is None


def test_a_file_with_an_unknown_relocation_is_left_to_llvm() -> None:
    content = bytearray(_object())
    sections = struct.unpack_from("<Q", content, 40)[0]
    count = struct.unpack_from("<H", content, 60)[0]
    tables = [struct.unpack_from("<IIQQQQ", content, sections + 64 * k) for k in range(count)]
    at = next(at for _, kind, _, _, at, _ in tables if kind == 4)
    content[at + 8 : at + 12] = (1000).to_bytes(4, "little")
    assert linking.link(bytes(content), {"given": 1}) is None


@pytest.mark.parametrize("content", [b"", b"no object", b"\x7fELF" + 100 * b"\xff"])
def test_a_file_that_is_no_object_is_left_to_llvm(content: bytes) -> None:
    assert linking.link(content, {}) is None


def test_a_file_that_was_cut_is_left_to_llvm() -> None:
    content = _object()
    assert all(linking.link(content[:size], {"given": 1}) is None for size in range(0, len(content), 97))


def test_forbidden_executable_memory_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    class Refusing:
        """Process in which mprotect fails."""

        def mprotect(self, *args: object) -> int:
            ctypes.set_errno(13)
            return -1

    content = _object()
    monkeypatch.setattr(linking, "_process", Refusing())
    with pytest.raises(OSError, match="Permission denied"):
        linking.link(content, {"given": 1, "sqrt": 1})


def test_linux_describes_the_features_that_llvm_finds() -> None:
    of_llvm = {f[1:] for f in compiler().features.split(",") if f.startswith("+")}
    for feature in ("sse2", "avx", "avx2", "avx512f"):
        assert (feature in processor.features()) == (feature in of_llvm)
    assert processor.description().count("\n") == 5


_STEP = """
import sys
import numpy as np
import headrace as hr

g = hr.Graph()
with g.as_default():
    x = hr.placeholder(hr.float32, [8])
    y = hr.while_loop(lambda i, v: i < 100, lambda i, v: (i + 1, hr.tanh(v) * 0.5 + x), [0, x])[1]
    run = hr.Session(graph=g).make_callable(y, [x])
assert "4 of 4" in hr.explain(run).native[0]
print(run(np.ones(8)).sum(), "llvmlite" in sys.modules)
"""


@pytest.mark.system
def test_a_process_whose_code_is_in_the_cache_does_not_import_llvmlite(tmp_path: Path) -> None:
    settings = {"PYTHONPATH": str(Path(__file__).parents[3]), "HEADRACE_CACHE": str(tmp_path / "cache")}
    command = [sys.executable, "-c", _STEP]
    first, second = (
        subprocess.run(
            command, env={**os.environ, **settings, "HEADRACE_NATIVE": "on"}, capture_output=True, text=True, check=True
        ).stdout.split()
        for _ in range(2)
    )
    assert first[0] == second[0]
    assert (first[1], second[1]) == ("True", "False")
