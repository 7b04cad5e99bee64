"""Loops and conditionals made by hand from primitives.

The tests that use them state exactly which edges the graph has.
"""

from __future__ import annotations

from typing import Any

from headrace.ir.builder import Builder
from headrace.ir.graph import Operation, Tensor


class Loop:
    """A loop under construction.

        loop = Loop(b, "count")
        i, n = loop.var(b.const(0)), loop.constant(b.const(3))
        loop.goes_while(b.Less(i, n))
        loop.next(i, b.AddV2(loop.body(i), loop.const(1)))
        result = loop.exit(i)

    A variable is named by its Merge's output.
    """

    def __init__(self, b: Builder, name: str = "loop", parallel_iterations: int = 10) -> None:
        self.b = b
        self.attrs = {"frame_name": name, "parallel_iterations": parallel_iterations}
        self.cond: Tensor
        self.merges: list[Tensor] = []
        self.switches: dict[Tensor, tuple[Tensor, Tensor]] = {}
        self.exits: dict[Tensor, Tensor] = {}

    def enter(self, x: Tensor) -> Tensor:
        """`x` in iteration 0."""
        entered: Tensor = self.b.Enter(x, **self.attrs)
        return entered

    def constant(self, x: Tensor) -> Tensor:
        """`x` in every iteration."""
        entered: Tensor = self.b.Enter(x, is_constant=True, **self.attrs)
        return entered

    def var(self, init: Tensor) -> Tensor:
        """A variable that begins as `init`; its value at the start of an iteration."""
        enter = self.enter(init)
        merge: Tensor = self.b.Merge([enter, enter])[0]
        self.merges.append(merge)
        return merge

    def goes_while(self, pred: Tensor) -> Tensor:
        """Gives the loop its predicate, and each variable its Switch."""
        self.cond = self.b.LoopCond(pred)
        for merge in self.merges:
            self.switches[merge] = self.b.Switch(merge, self.cond)
        return self.cond

    def body(self, var: Tensor) -> Tensor:
        """The value of a variable in the body."""
        return self.switches[var][1]

    def done(self, var: Tensor) -> Tensor:
        """The value of a variable once the predicate is false, inside the frame."""
        return self.switches[var][0]

    def const(self, value: Any) -> Tensor:
        """A constant in the body."""
        pivot = self.b.Identity(self.switches[self.merges[0]][1])
        return self.b.after(pivot).const(value)

    def next(self, var: Tensor, value: Tensor) -> Tensor:
        """Sets the value of the variable in the next iteration."""
        out: Tensor = self.b.NextIteration(value)
        self.b.graph.set_back_edge(var.op, 1, out)
        return out

    def exit(self, var: Tensor) -> Tensor:
        """Returns the Exit of the variable: its value after the loop."""
        if var not in self.exits:
            self.exits[var] = self.b.Exit(self.done(var))
        return self.exits[var]


def counting(
    b: Builder, trips: int | Tensor, name: str = "count", parallel_iterations: int = 10
) -> tuple[Loop, Tensor]:
    """`i = 0; while i < trips: i = i + 1`: the loop, and its variable."""
    loop = Loop(b, name, parallel_iterations)
    i = loop.var(b.const(0))
    limit = loop.constant(trips if isinstance(trips, Tensor) else b.const(trips))
    loop.goes_while(b.Less(i, limit))
    loop.next(i, b.AddV2(loop.body(i), loop.const(1)))
    loop.exit(i)
    return loop, i


def dead(b: Builder, value: Any = 5) -> Tensor:
    """A tensor that is always dead.

    It is the true side of a Switch whose predicate is False.
    """
    out: Tensor = b.Switch(b.const(value), b.const(False))[1]
    return out


def operation(made: Tensor | Operation) -> Operation:
    """The operation that made a tensor."""
    return made.op if isinstance(made, Tensor) else made
