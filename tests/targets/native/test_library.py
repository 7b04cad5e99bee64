"""The library of native functions: imports, and the functions of `KernelLibrary`."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("llvmlite")

from headrace.opkit.kernel_library import KernelLibrary
from headrace.targets.native.library import NativeLibrary

pytestmark = pytest.mark.one_engine


def test_each_function_of_a_library_is_native() -> None:
    functions = {name for name, value in vars(KernelLibrary).items() if callable(value)}
    assert functions
    assert functions <= vars(NativeLibrary).keys()


_PROGRAM = """
import sys
import numpy as np
import headrace as hr
from headrace.targets.native.library import NativeLibrary

with hr.Graph().as_default():
    hr.random.uniform([2])
x = np.ones((256, 512), np.float32).T
copy = NativeLibrary().contiguous(x)
assert copy is not None and copy.flags.c_contiguous and (copy == x).all()
print(*sorted(m for m in ("headrace.ops.image", "headrace.targets.native.windows", "scipy") if m in sys.modules))
"""


@pytest.mark.system
def test_parts_of_the_library_and_families_of_ops_are_imported_when_they_are_needed() -> None:
    environment = {**os.environ, "HEADRACE_NATIVE": "on", "PYTHONPATH": str(Path(__file__).parents[3])}
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM], env=environment, capture_output=True, text=True, check=False
    )
    assert (done.stdout.strip(), done.returncode) == ("", 0), done.stderr
