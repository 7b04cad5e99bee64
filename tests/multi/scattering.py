"""Gives operations random devices."""

from __future__ import annotations

import random
from collections.abc import Sequence

from headrace.ir.function import bodies, recursive_functions
from headrace.ir.graph import FuncGraph, Graph


def scatter(graph: Graph, rng: random.Random, devices: int | Sequence[str]) -> None:
    """Lets operations without a requested device request a random one.

    Operations of bodies are among them; an operation that is colocated with another is not. Functions that call
    themselves stand on one device each, and are left alone.

    Args:
      graph: The graph.
      rng: The source of the devices.
      devices: The number of CPUs, or names of devices.
    """
    names = [f"/device:CPU:{i}" for i in range(devices)] if isinstance(devices, int) else devices
    recursive = recursive_functions(graph.operations)
    seen: set[Graph] = set()
    todo: list[Graph] = [graph]
    while todo:
        at = todo.pop()
        if at in seen or (isinstance(at, FuncGraph) and at.name in recursive):
            continue
        seen.add(at)
        for op in at.operations:
            if not op.device and not op.attrs.get("_class"):
                op.device = names[rng.randrange(len(names))]
            if op.opdef.structured:
                todo += [body for _, body in bodies(op)]
