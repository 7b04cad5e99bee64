"""Time of `import headrace` in a fresh process, and of the packages that it needs."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.measure import Result

ROOT = Path(__file__).parent.parent
NEEDED = "numpy, ml_dtypes, google.protobuf.message, google.protobuf.descriptor_pool"


def imports(repeats: int = 11) -> list[Result]:
    """Milliseconds of three imports, each in processes of its own, taken in turns."""
    modules = {
        "import headrace": ("headrace", "fresh processes, the interpreter's start not counted"),
        "import numpy": ("numpy", ""),
        "import what headrace needs": (NEEDED, NEEDED),
    }
    seconds: dict[str, list[float]] = {name: [] for name in modules}
    with tempfile.TemporaryDirectory() as cache:
        for m, _ in modules.values():
            import_seconds(m, cache)  # the first one compiles, and reads from a cold disk
        for _ in range(repeats):
            for name, (m, _) in modules.items():
                seconds[name].append(import_seconds(m, cache))
    return [Result(name, "ms", [1e3 * s for s in seconds[name]], facts) for name, (_, facts) in modules.items()]


def import_seconds(modules: str, cache: str, root: Path = ROOT) -> float:
    """Seconds of importing `modules` in a fresh process in `root`, with byte code in `cache`."""
    program = f"import time; t = time.perf_counter(); import {modules}; print(time.perf_counter() - t)"
    env = {**os.environ, "PYTHONPYCACHEPREFIX": cache}
    env.pop("PYTHONDONTWRITEBYTECODE", None)  # an installed package has its byte code
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=root, env=env, capture_output=True, text=True, check=True
    )
    return float(done.stdout)
