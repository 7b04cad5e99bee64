"""Fixed numbers of threads.

numpy's BLAS, PyTorch and XLA read theirs from environment variables when they are loaded, TensorFlow and headrace from
the configuration of their sessions (`programs.in_v1`).
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parent.parent


def settings(threads: int) -> dict[str, str]:
    """Environment variables for so many threads, without log output and accelerators."""
    counts = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NPROC", "PJRT_NPROC")
    eigen = f"--xla_cpu_multi_thread_eigen={'false' if threads == 1 else 'true'}"
    return {
        **dict.fromkeys(counts, str(threads)),
        "XLA_FLAGS": eigen,
        "JAX_PLATFORMS": "cpu",
        "CUDA_VISIBLE_DEVICES": "",
        "TF_CPP_MIN_LOG_LEVEL": "3",
    }


def environment(threads: int) -> dict[str, str]:
    """The environment of a process with so many threads that can import this package."""
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    return {**os.environ, **settings(threads), "PYTHONPATH": path}


def fix(threads: int, module: str, arguments: Sequence[str]) -> None:
    """Starts this process again as `python -m module arguments`, if its libraries have not been told of `threads`."""
    if any(os.environ.get(name) != value for name, value in settings(threads).items()):
        sys.stdout.flush()
        os.execve(sys.executable, [sys.executable, "-m", module, *arguments], environment(threads))
