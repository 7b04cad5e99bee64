"""Sizes of the graphs of higher derivatives of a loop, and times of building them.

Reverse mode applied to its own result makes a graph grow by a factor with each order, loop or no loop: each operation
has a gradient of a few operations. A loop should add nothing to that: so its derivatives are counted, and those of
its body written out, the same operations in a row. Counted are all operations there are, in graphs that operations own
too; and the primitives that a step which computes the last derivative alone is left with.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import headrace as hr
from benchmarks.measure import Result, rounds
from headrace.compiled_step import Request
from headrace.environment import Environment
from headrace.ir.function import bodies
from headrace.ir.graph import Graph
from headrace.pipeline import compile_step

Body = Callable[[Any, Any], Any]

BODIES: dict[str, Body] = {
    "y * sin(x)": lambda y, x: y * hr.sin(x),
    "sin(y) * x + y": lambda y, x: hr.sin(y) * x + y,
    "tanh(y @ x)": lambda y, x: hr.tanh(hr.matmul(y, x)),
}


def gradient_size(orders: int = 4, trips: int = 20) -> list[Result]:
    """Operations of the derivatives of a loop, and of the loop unrolled."""
    results = []
    for text, body in BODIES.items():
        shape = (2, 2) if "@" in text else ()
        loop = sizes(lambda x, body=body: looped(body, x, trips), shape, orders)
        rows = sizes(lambda x, body=body: unrolled(body, x, trips), shape, orders)
        for k in range(orders + 1):
            facts = f"{trips} bodies in a row {rows[k][0]}"
            if k > 1:
                factors = [sizes[k][0] / sizes[1][0] for sizes in (loop, rows)]
                facts += "; {:.1f} times those of derivative 1 (in a row {:.1f} times)".format(*factors)
            facts += f"; primitives to run it {loop[k][1]} (in a row {rows[k][1]})"
            results.append(Result(f"loop of {text}: derivative {k}", "operations", [loop[k][0]], facts))
    return results


def sizes(f: Callable[[Any], Any], shape: tuple[int, ...], orders: int) -> list[tuple[int, int]]:
    """Operations of a graph with derivatives, and primitives of the last one, by order."""
    found = []
    for order in range(orders + 1):
        with hr.Graph() as graph:
            x = hr.placeholder("float64", shape)
            y = derivative(f(x), x, order)
        step = compile_step(Request([x], [y], []), Environment())
        found.append((count_operations(graph), len(step.plan.nodes)))
    return found


def count_operations(graph: Graph) -> int:
    """The operations of a graph and of those that its operations own, without their parameters."""
    count, todo, seen = 0, [graph], {graph}
    while todo:
        for op in todo.pop().operations:
            count += op.type != "_Arg"
            if op.opdef.structured:
                inner = [g for _, g in bodies(op) if g not in seen]
                todo += inner
                seen.update(inner)
    return count


def derivative(y: Any, x: Any, order: int) -> Any:
    """The derivative of `y` by `x` of the given order."""
    for _ in range(order):
        (y,) = hr.gradients(y, x)
    return y


def looped(body: Body, x: Any, trips: int) -> Any:
    return hr.while_loop(lambda i, y: i < trips, lambda i, y: (i + 1, body(y, x)), (0, x))[1]


def unrolled(body: Body, x: Any, trips: int) -> Any:
    y = x
    for _ in range(trips):
        y = body(y, x)
    return y


def third_derivative(repeats: int = 5) -> list[Result]:
    """Seconds to build f''' of a nested loop; the aim is 1."""
    size = 0

    def build() -> None:
        nonlocal size
        with hr.Graph() as graph:
            x = hr.placeholder("float64", ())
            y = looped(lambda y, x: looped(lambda z, x: hr.sin(z) * x, x, 3) + y, x, 4)
            derivative(y, x, 3)
        size = count_operations(graph)

    seconds = rounds(build, repeats)
    return [Result("building f''' of a nested loop", "s", seconds, f"{size} operations; 1 s is the goal")]
