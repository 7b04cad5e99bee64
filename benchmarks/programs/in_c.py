"""Programs in C: compiled for this machine when they are prepared, in a temporary folder.

The compiler is `cc` with `-O3 -march=native`. Sizes of arrays are constants of the compilation.
"""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.programs import Program

FOLDER = Path(__file__).parent
OPTIONS = ("-O3", "-march=native", "-fPIC", "-shared")
FUNCTIONS = ("rnn",)  # programs for which there is a file of this name


def missing() -> str | None:
    """The reason why programs in C cannot be measured here; None: they can."""
    return None if shutil.which("cc") else "there is no C compiler: no cc on the path"


def compiled(source: Path, **constants: int) -> ctypes.CDLL:
    """Compiles a file and loads it.

    Raises:
      RuntimeError: The compiler refuses the file.
    """
    with tempfile.TemporaryDirectory() as folder:  # a loaded library stays loaded without its file
        library = Path(folder) / "program.so"
        defined = [f"-D{name}={value}" for name, value in constants.items()]
        command = ["cc", *OPTIONS, *defined, "-o", str(library), str(source), "-lm"]
        done = subprocess.run(command, text=True, capture_output=True, check=False)
        if done.returncode:
            raise RuntimeError(f"{' '.join(command)} failed with status {done.returncode}:\n{done.stderr}")
        return ctypes.CDLL(str(library))


def prepare(program: Program) -> Callable[[], list[Any]]:
    """A function that runs a program of `FUNCTIONS`: its result, then the derivatives."""
    return {"rnn": _rnn}[program.function](program)


def _rnn(program: Program) -> Callable[[], list[Any]]:
    n, (h, w, b) = program.sizes["n"], (program.arguments[name] for name in ("h", "w", "b"))
    library = compiled(FOLDER / "rnn.c", BATCH=h.shape[0], HIDDEN=h.shape[1])
    loss = np.empty((), np.float32)
    results = [loss, *(np.empty_like(v) for v in (h, w, b) if program.by)]
    arrays = [ctypes.c_void_p(v.ctypes.data) for v in (h, w, b, *results)]
    function = library.rnn_gradient if program.by else library.rnn
    function.restype = ctypes.c_int if program.by else None

    def call(kept: Any = (h, w, b)) -> list[Any]:  # the arrays whose addresses are passed
        if function(n, *arrays):
            raise MemoryError("the program in C has no memory for its states")
        return results

    return call
