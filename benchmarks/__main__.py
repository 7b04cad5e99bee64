"""Measures everything and prints a markdown table, in about twelve minutes.

python -m benchmarks --json results.json
python -m benchmarks --only overhead --only imports
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import time
from collections.abc import Callable, Sequence

import numpy as np

import headrace as hr
from benchmarks import (
    accelerators,
    building,
    cluster,
    datasets,
    devices,
    eager_ops,
    gradient_memory,
    gradient_size,
    gradients,
    growth,
    interpreter,
    jitted,
    loading,
    native,
    native_coverage,
    per_example,
    placement,
    recording,
    recording_page,
    routes,
    startup,
    swap,
    watching,
)
from benchmarks.measure import Result, table

BENCHMARKS: dict[str, Callable[[], list[Result]]] = {
    "overhead": interpreter.overhead,
    "small_runs": interpreter.small_runs,
    "long_chain": interpreter.long_chain,
    "long_loop": interpreter.long_loop,
    "many_runs": interpreter.many_runs,
    "imports": startup.imports,
    "eager_ops": eager_ops.eager_ops,
    "jitted": jitted.jitted,
    "building": building.building,
    "writes": growth.writes,
    "first_results": growth.first_results,
    "nested_gradients": growth.nested_gradients,
    "cached_steps": growth.cached_steps,
    "gradients": gradients.gradients,
    "answers": gradients.answers,
    "gradient_size": gradient_size.gradient_size,
    "third_derivative": gradient_size.third_derivative,
    "gradient_memory": gradient_memory.gradient_memory,
    "recomputation": gradient_memory.recomputation,
    "per_example": per_example.per_example,
    "swap": swap.swap,
    "loading": loading.loading,
    "datasets": datasets.datasets,
    "devices": devices.devices,
    "accelerators": accelerators.accelerators,
    "placement": placement.placement,
    "recording_page": recording_page.recording_page,
    "routes": routes.routes,
    "cluster": cluster.cluster,
    "native": native.native,
    "native_coverage": native_coverage.native_coverage,
    "recording": recording.recording,
    "watching": watching.watching,
}


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Measures headrace.")
    parser.add_argument("--only", action="append", choices=BENCHMARKS, help="run only this one (may be repeated)")
    parser.add_argument("--json", metavar="FILE", help="write all rounds of all results")
    args = parser.parse_args(argv)
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else float("nan")  # other work of the machine
    began = time.perf_counter()
    results: list[Result] = []
    for name in args.only or BENCHMARKS:
        print(f"{name} ...", file=sys.stderr, flush=True)
        results += BENCHMARKS[name]()
    versions = {
        "headrace": hr.__version__,
        "python": platform.python_version(),
        "numpy": np.__version__,
        "machine": platform.machine(),
        "cores": os.cpu_count(),
        "load before": round(load, 1),
    } | {name: sys.modules[name].__version__ for name in ("tensorflow", "jax", "torch") if name in sys.modules}
    print(table(results))
    print(
        f"\nMedians, and least to greatest, over rounds (the garbage collector is off in most); measured in"
        f" {time.perf_counter() - began:.0f} s: " + ", ".join(f"{k} {v}" for k, v in versions.items())
    )
    if args.json:
        with open(args.json, "w", encoding="utf-8") as f:
            json.dump({"versions": versions, "results": [r.as_json() for r in results]}, f, indent=1)
    return 0


if __name__ == "__main__":
    sys.exit(main())
