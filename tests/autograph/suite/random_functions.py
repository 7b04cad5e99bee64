"""Random functions of the constructs of the suite, as strategies of hypothesis.

A function `f(x, n, v)` has float variables `a`, `b` and `c`, an integer `k`, an array `w`, an object `cell` and a dict
`state`, all of which its statements read and assign. Assignments keep the values small, so that differences of values
are precise, and each loop has at most `n` or four trips.
"""

from __future__ import annotations

import textwrap
from typing import Any

from hypothesis import strategies as st

from tests.autograph.suite.sources import HEADER

NAMES = ("a", "b", "c")
PLACES = (*NAMES, "cell.h", 'state["h"]', "w[k % 4]", "w[1]")
CONSTANTS = ("0.37", "-0.81", "1.13", "0.059", "-1.7")
START = """
a, b, c, k = x * 0.5, 0.25, v[0] - x, 1
w = v * 1.0
cell = Cell(x)
state = {"h": 0.5, "count": 0}
"""
END = 'return a + b * c, cell.h - state["h"], w, k'


class _Writer:
    """Draws code; counts levels for names that occur once."""

    def __init__(self, draw: Any) -> None:
        self.draw = draw
        self.count = 0

    def pick(self, options: Any) -> Any:
        return self.draw(st.sampled_from(options))

    def name(self, stem: str) -> str:
        self.count += 1
        return f"{stem}{self.count}"

    def expression(self, depth: int) -> str:
        """A float expression."""
        if depth == 0:
            return self.pick((*PLACES, *CONSTANTS, "x", "v[k % 4]", "v[-1]"))
        one, two = self.expression(depth - 1), self.expression(depth - 1)
        return self.pick(
            (
                f"(0.5 * {one} + 0.4 * {two})",
                f"({one} - {two}) * 0.3",
                f"({one} if {self.condition(depth - 1)} else {two})",
                f"max({one}, {two})",
                f"abs({one}) * 0.9",
                f"(lambda t: t * 0.5 - {one})({two})",
                f"sum([0.2 * e * {one} for e in v]) * 0.3",
                f"w[1:3].sum() * 0.3 - {one} * 0.1",
            )
        )

    def condition(self, depth: int) -> str:
        one, two = self.pick(PLACES), self.pick((*CONSTANTS, "x", *NAMES))
        simple = self.pick((f"{one} > {two} + 0.0123", f"{one} < {two} - 0.0171", "k % 2 == 0", "k < n", "n != 3"))
        if depth <= 0:
            return simple
        other = self.condition(depth - 1)
        return self.pick(
            (
                simple,
                f"{simple} and {other}",
                f"({simple} or {other})",
                f"not ({simple})",
                f"-0.913 < {one} <= 0.777",
            )
        )

    def block(self, depth: int, in_loop: bool) -> str:
        number = self.draw(st.integers(1, 3))
        return "\n".join(self.statement(depth, in_loop) for _ in range(number))

    def inside(self, depth: int, in_loop: bool) -> str:
        return textwrap.indent(self.block(depth - 1, in_loop), "    ")

    def statement(self, depth: int, in_loop: bool) -> str:
        simple = ["assign", "assign", "augmented", "swap", "count", "slice", "return"]
        if in_loop:
            simple += ["break", "continue"]
        nested = ["if", "else", "elif", "while", "range", "tensor", "enumerate", "zip", "try", "with", "list", "pop"]
        nested += ["function", "assert", "for else"]
        kind = self.pick(simple + nested * 2 if depth > 0 else simple)
        return str(getattr(self, "_" + kind.replace(" ", "_"))(depth, in_loop))

    def _assign(self, depth: int, in_loop: bool) -> str:
        return f"{self.pick(PLACES)} = {self.expression(2)}"

    def _augmented(self, depth: int, in_loop: bool) -> str:
        return self.pick((f"{self.pick(PLACES)} += {self.pick(CONSTANTS)}", f"{self.pick(PLACES)} *= 0.7"))

    def _swap(self, depth: int, in_loop: bool) -> str:
        return f"{self.pick(NAMES)}, cell.h = {self.expression(1)}, {self.expression(1)}"

    def _count(self, depth: int, in_loop: bool) -> str:
        return self.pick(("k += 1", "k = (k * 3 + 1) % 7", 'state["count"] += k', "k = k + 2 if k < 5 else 0"))

    def _slice(self, depth: int, in_loop: bool) -> str:
        return self.pick(
            (f"w[1:3] = {self.expression(1)}", f"w[k % 4] = {self.expression(1)}", f"w[0] *= {self.pick(CONSTANTS)}")
        )

    def _return(self, depth: int, in_loop: bool) -> str:
        return f"if {self.condition(1)}:\n    return {self.expression(1)}, cell.h, w, k"

    def _break(self, depth: int, in_loop: bool) -> str:
        return f"if {self.condition(1)}:\n    break"

    def _continue(self, depth: int, in_loop: bool) -> str:
        return f"if {self.condition(1)}:\n    continue"

    def _if(self, depth: int, in_loop: bool) -> str:
        walrus = f"(half := {self.pick(PLACES)} * 0.5) > 0.117 and half < 0.913"
        return f"if {self.pick((self.condition(2), self.condition(2), walrus))}:\n{self.inside(depth, in_loop)}"

    def _else(self, depth: int, in_loop: bool) -> str:
        return f"{self._if(depth, in_loop)}\nelse:\n{self.inside(depth, in_loop)}"

    def _elif(self, depth: int, in_loop: bool) -> str:
        return f"{self._if(depth, in_loop)}\nelif {self.condition(1)}:\n{self.inside(depth, in_loop)}"

    def _while(self, depth: int, in_loop: bool) -> str:
        i = self.name("i")
        end = self.pick((f"{i} < n", f"{i} < 3 and {self.condition(1)}", f"not {i} >= 4"))
        return f"{i} = 0\nwhile {end}:\n    {i} += 1\n{self.inside(depth, True)}"

    def _range(self, depth: int, in_loop: bool) -> str:
        over = self.pick(("n", "3", "k % 3, n", "n, 0, -2"))
        return f"for {self.name('i')} in range({over}):\n{self.inside(depth, True)}"

    def _tensor(self, depth: int, in_loop: bool) -> str:
        e = self.name("e")
        return f"for {e} in v:\n    {self.pick(NAMES)} = {e} * 0.5\n{self.inside(depth, True)}"

    def _enumerate(self, depth: int, in_loop: bool) -> str:
        i, e = self.name("i"), self.name("e")
        start = f"for {i}, {e} in enumerate(v):\n    {self.pick(NAMES)} = {e} * 0.5\n    k += {i}"
        return f"{start}\n{self.inside(depth, True)}"

    def _zip(self, depth: int, in_loop: bool) -> str:
        p, q = self.name("p"), self.name("q")
        return f"for {p}, {q} in zip(v, v * 0.5):\n    {self.pick(NAMES)} = {p} * {q} * 0.2\n{self.inside(depth, True)}"

    def _try(self, depth: int, in_loop: bool) -> str:
        return f"try:\n{self.inside(depth, in_loop)}\nfinally:\n    {self._augmented(0, False)}"

    def _with(self, depth: int, in_loop: bool) -> str:
        s = self.name("s")
        return f"with Scale(x) as {s}:\n{self.inside(depth, in_loop)}\n    {self.pick(NAMES)} = {s} * 0.3"

    def _list(self, depth: int, in_loop: bool) -> str:
        i, items, e = self.name("i"), self.name("items"), self.name("e")
        return (
            f"{items} = []\nfor {i} in range({self.pick(('n', '2'))}):\n{self.inside(depth, True)}\n"
            f"    {items}.append(0.5 * x + {self.expression(1)})\n"
            f"for {e} in {items}:\n    {self.pick(NAMES)} = {e} * 0.6"
        )

    def _pop(self, depth: int, in_loop: bool) -> str:
        items = self.name("items")
        return (
            f"{items} = [a, {self.expression(1)}, c]\nwhile len({items}) > 1:\n    b = {items}.pop()\n"
            f"{self.inside(depth, True)}"
        )

    def _function(self, depth: int, in_loop: bool) -> str:
        g = self.name("g")
        body = textwrap.indent(f"a, b, c, k = t, x, v[1], 2\n{self.block(depth - 1, False)}", "    ")
        place = self.pick(NAMES)
        call = f"{place} = {g}({self.expression(1)}, Cell(a), dict(h=b, count=0), w * 1.0)[0]"
        return f"def {g}(t, cell, state, w):\n{body}\n    return a, cell.h, w, k\n{call}"

    def _assert(self, depth: int, in_loop: bool) -> str:
        return f"assert {self.expression(1)} < 1e6, 'too large'"

    def _for_else(self, depth: int, in_loop: bool) -> str:
        i, place = self.name("i"), self.pick(NAMES)
        return (
            f"for {i} in range(n):\n{self.inside(depth, True)}\n    if {self.condition(1)}:\n        break\n"
            f"else:\n    {place} = {self.expression(1)}"
        )


@st.composite
def sources(draw: Any, depth: int = 3) -> str:
    """The source of a module with a random function `f(x, n, v)`."""
    body = "\n".join([START.strip(), _Writer(draw).block(depth, False), _Writer(draw).block(1, False), END])
    return f"{HEADER}\n\ndef f(x, n, v):\n{textwrap.indent(body, '    ')}\n"
