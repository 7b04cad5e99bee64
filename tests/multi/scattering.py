"""Gives operations random devices."""

from __future__ import annotations

import random

from headrace.ir.function import bodies, recursive_functions
from headrace.ir.graph import FuncGraph, Graph


def scatter(graph: Graph, rng: random.Random, devices: int) -> None:
    """Lets each operation that requests no device, and stands with no other, request a random one; in bodies too.

    Functions that call themselves stand on one device each, and are left alone.
    """
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
                op.device = f"/device:CPU:{rng.randrange(devices)}"
            if op.opdef.structured:
                todo += [body for _, body in bodies(op)]
