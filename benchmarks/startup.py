"""How long `import headrace` takes in a fresh process, beside what it cannot do without."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from benchmarks.measure import Result

ROOT = Path(__file__).parent.parent
NEEDED = "numpy, ml_dtypes, google.protobuf.message, google.protobuf.descriptor_pool"


def imports(repeats: int = 11) -> list[Result]:
    """Milliseconds of three imports, each in processes of its own, taken in turns."""
    modules = {"headrace": "headrace", "numpy": "numpy", "what headrace needs": NEEDED}
    for m in modules.values():
        import_seconds(m)  # the first one pays for compiling and for a cold disk
    seconds: dict[str, list[float]] = {name: [] for name in modules}
    for _ in range(repeats):
        for name, m in modules.items():
            seconds[name].append(import_seconds(m))
    facts = {"headrace": "fresh processes, interpreter's start not counted", "what headrace needs": NEEDED}
    return [
        Result(f"import {n}" if n in ("headrace", "numpy") else n, "ms", [1e3 * s for s in t], facts.get(n, ""))
        for n, t in seconds.items()
    ]


def import_seconds(modules: str) -> float:
    """Seconds that importing `modules` takes in a fresh process."""
    program = f"import time; t = time.perf_counter(); import {modules}; print(time.perf_counter() - t)"
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    return float(done.stdout)
