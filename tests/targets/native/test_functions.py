"""Functions of native code get the addresses of arrays and integers."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import pytest

pytest.importorskip("llvmlite")

from headrace.targets.native.functions import loaded
from headrace.targets.native.llvm_text import Module


def _adding() -> Module:
    """A module with `add`, which sets `out[0]` to `x[0] + n * m`."""
    module = Module()
    f = module.function("add", "void", [("ptr", "out"), ("ptr", "x"), ("i64", "n"), ("i64", "m")])
    total = f.op(f"add i64 {f.op('load i64, ptr %x')}, {f.op('mul i64 %n, %m')}")
    f.line(f"store i64 {total}, ptr %out")
    f.line("ret void")
    return module


def test_arrays_are_passed_by_the_address_of_their_first_element():
    add = loaded(_adding(), "add", 2, 2)
    out, x = np.zeros((2, 3), np.int64), np.arange(6)
    for source, first in ((x, 0), (x[2:], 2), (x[::-1], 5), (x.reshape(2, 3).T[1:], 1), (np.array(7), 7)):
        add(out, source, -3, 1 << 40)
        assert out[0, 0] == first - (3 << 40)
    add(out[1:, 1:], x, 4, 2)
    assert out[1].tolist() == [0, 8, 0]


def test_code_is_loaded_as_long_as_its_function_exists():
    add = loaded(_adding(), "add", 2, 2)
    library = weakref.ref(add.library)
    gc.collect()
    assert library() is not None
    del add
    gc.collect()
    assert library() is None
