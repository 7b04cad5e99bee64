"""Random functions of the constructs of the suite, as strategies of hypothesis.

A function `f(x, n, v)` has float variables `a`, `b` and `c`, an integer `k`, a bool `flag`, an array `w`, an object
`cell`, a dict `state`, a tuple `pair`, a list `items` of floats and a list `pool` of objects, all of which its
statements read and assign. Assignments keep the values small, so that differences of values are precise, and each loop
has at most `n` or four trips.

Arrays of numpy are changed in place, tensors are values. So an early return gives a copy of `w`, which a `finally` does
not change, and a second name of `w` is used in the function alone that assigns `w`.
"""

from __future__ import annotations

import textwrap
from typing import Any

from hypothesis import strategies as st

from tests.autograph.suite.sources import HEADER

NAMES = ("a", "b", "c")
PLACES = (
    *NAMES,
    "cell.h",
    'state["h"]',
    'state["in"]["g"]',
    "w[k % 4]",
    "w[1]",
    "items[0]",
    "items[k % 3]",
    "pool[1].h",
)
READ = (
    *PLACES,
    "pair[0]",
    "pair[1]",
    "items[-1]",
    "float(k) * 0.2",
    "x",
    "v[k % 4]",
    "v[-1]",
    "v[1:3][k % 2]",
)
CONSTANTS = ("0.37", "-0.81", "1.13", "0.059", "-1.7")
#: The variables of a function that are its own.
OWN = """
flag = x > 0.5
pair = (0.5, x * 0.25)
items = [0.25, x, v[2]]
pool = [Cell(x * 0.5), Cell(0.125)]
"""
START = f"""
a, b, c, k = x * 0.5, 0.25, v[0] - x, 1
w = v * 1.0
cell = Cell(x)
state = {{"h": 0.5, "count": 0, "in": {{"g": x}}}}
{OWN.strip()}
"""
END = """
a = a + b * c + 0.3 * pair[0] - 0.2 * pair[1] + sum(items) * 0.4
b = cell.h - state["h"] + 0.3 * state["in"]["g"] + 0.2 * pool[0].h - 0.3 * pool[1].h
return a, b, w, k + cell.steps + state["count"] + (10 if flag else 0)
"""


class _Writer:
    """Draws code; counts levels for names that occur once."""

    def __init__(self, draw: Any, is_wide: bool) -> None:
        self.draw = draw
        self.is_wide = is_wide
        self.count = 0
        self.is_final = False  # whether the code is in a `finally`, where no jump is

    def pick(self, options: Any) -> Any:
        return self.draw(st.sampled_from(options))

    def name(self, stem: str) -> str:
        self.count += 1
        return f"{stem}{self.count}"

    def expression(self, depth: int) -> str:
        """A float expression."""
        if depth == 0:
            return self.pick((*READ, *CONSTANTS))
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
                f"min({one}, {two}, a)",
                f"sum([0.3 * a for a in items]) * 0.5 - {one} * 0.2",
                f"sum([0.2 * e for e in v if e > {one}]) + {two} * 0.3",
                f"sum(0.2 * e * p for e in v for p in pair) - {two} * 0.3",
                f"{{'p': {one}, 'q': {two}}}['q'] * 0.8",
                f"[{one}, {two}, 0.5][k % 3] * 0.7",
                f"({one}) ** 2 * 0.1 + {two} % 0.91",
                f"v[k % 4 if {self.condition(depth - 1)} else 0] * 0.5",
            )
        )

    def condition(self, depth: int) -> str:
        one, two = self.pick(PLACES), self.pick((*CONSTANTS, "x", *NAMES))
        simple = self.pick(
            (
                f"{one} > {two} + 0.0123",
                f"{one} < {two} - 0.0171",
                "k % 2 == 0",
                "k < n",
                "n != 3",
                "flag",
                "k in (1, 2, n)",
                f"any(e > {two} + 0.0123 for e in items)",
                f"all([e < {two} + 1.0171 for e in v])",
            )
        )
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
        simple = ["assign", "assign", "augmented", "swap", "count", "slice", "flag", "mixed"]
        nested = ["if", "else", "elif", "while", "range", "tensor", "enumerate", "zip", "try", "with", "list", "pop"]
        nested += ["function", "assert", "for else", "while else", "match", "except", "total", "walrus", "python list"]
        if self.is_wide:
            simple += ["data", "alias"]
            nested += ["closure", "recursion", "elements"]
        if not self.is_final:
            simple += ["return"] + ["break", "continue"] * in_loop
        kind = self.pick(simple + nested * 2 if depth > 0 else simple)
        return str(getattr(self, "_" + kind.replace(" ", "_"))(depth, in_loop))

    def _assign(self, depth: int, in_loop: bool) -> str:
        return f"{self.pick(PLACES)} = {self.expression(2)}"

    def _augmented(self, depth: int, in_loop: bool) -> str:
        return self.pick(
            (
                f"{self.pick(PLACES)} += {self.pick(CONSTANTS)}",
                f"{self.pick(PLACES)} *= 0.7",
                f"{self.pick(PLACES)} -= {self.expression(1)}",
            )
        )

    def _swap(self, depth: int, in_loop: bool) -> str:
        return f"{self.pick(NAMES)}, cell.h = {self.expression(1)}, {self.expression(1)}"

    def _count(self, depth: int, in_loop: bool) -> str:
        return self.pick(
            (
                "k += 1",
                "k = (k * 3 + 1) % 7",
                'state["count"] += k',
                "k = k + 2 if k < 5 else 0",
                "cell.steps += 1",
                "k = divmod(k, 3)[1] + k // 2",
            )
        )

    def _flag(self, depth: int, in_loop: bool) -> str:
        return self.pick(("flag = not flag", f"flag = {self.condition(1)}", f"flag = bool({self.condition(0)})"))

    def _mixed(self, depth: int, in_loop: bool) -> str:
        """Numbers of one kind in a variable of another."""
        name = self.pick(NAMES)
        return self.pick(
            (
                f"{name} = 1",
                f"{name} = k / 4",
                f"{name} = 2 if {self.condition(1)} else {self.expression(1)}",
                f"k = int({self.expression(1)} * 3.1) % 5",
                f"k += int({self.condition(0)})",
                f"{name} = float(k) * {self.pick(READ)} * 0.1",
            )
        )

    def _data(self, depth: int, in_loop: bool) -> str:
        """Tuples, lists, dicts and objects as wholes."""
        one, two, name = self.expression(1), self.expression(1), self.pick(NAMES)
        return self.pick(
            (
                f"pair = (pair[1] * 0.5, {one})",
                f"pair = ({one}, {two}) if {self.condition(1)} else pair",
                f"({name}, pair), k = ({one}, ({two}, a)), k + 1",
                f"items = [{one}, {two}, 0.5]",
                "items = [e * 0.5 for e in items]",
                f"items = items[1:] + [{one}]",
                f'state = {{"h": {one}, "count": k, "in": {{"g": {two}}}}}',
                f'state["in"] = {{"g": {one}}}',
                f"{name}, *rest = items",
                f"{name} = {self.pick(PLACES)} = {one}",
                f"{name}, items[1] = items[1], {name}",
            )
        )

    def _alias(self, depth: int, in_loop: bool) -> str:
        """A change under another name."""
        u, place = self.name("u"), self.expression(1)
        return self.pick(
            (
                f"{u} = w\n{u}[k % 4] = {place}\na = w[1] * 0.5",
                f"{u} = items\n{u}[1] = {place}",
                f"{u} = cell\n{u}.h = {place}",
                f"{u} = state['in']\n{u}['g'] = {place}",
                f"{u} = w[1:3] * 1.0\n{u}[0] = {place}\nw[1:3] = {u} * 0.5",
            )
        )

    def _slice(self, depth: int, in_loop: bool) -> str:
        return self.pick(
            (f"w[1:3] = {self.expression(1)}", f"w[k % 4] = {self.expression(1)}", f"w[0] *= {self.pick(CONSTANTS)}")
        )

    def _return(self, depth: int, in_loop: bool) -> str:
        return f"if {self.condition(1)}:\n    return {self.expression(1)}, cell.h, w * 1.0, k"

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
        over = self.pick(("n", "3", "k % 3, n", "n, 0, -2", "k, k", "n - 1, -1, -1", "int(flag)"))
        return f"for {self.name('i')} in range({over}):\n{self.inside(depth, True)}"

    def _tensor(self, depth: int, in_loop: bool) -> str:
        e = self.name("e")
        over = self.pick(("v", "v", "reversed(v)", "v[k % 4 :]", "v[n:]", "w"))
        loop = f"for {e} in {over}:\n    {self.pick(NAMES)} = {e} * 0.5\n{self.inside(depth, True)}"
        return self.pick((loop, f"{e} = x\n{loop}\n{self.pick(NAMES)} = {e} * 0.7"))

    def _enumerate(self, depth: int, in_loop: bool) -> str:
        i, e = self.name("i"), self.name("e")
        over = self.pick(("v", "v, 2", "items", "reversed(v)"))
        start = f"for {i}, {e} in enumerate({over}):\n    {self.pick(NAMES)} = {e} * 0.5\n    k += {i}"
        return f"{start}\n{self.inside(depth, True)}"

    def _zip(self, depth: int, in_loop: bool) -> str:
        p, q = self.name("p"), self.name("q")
        return f"for {p}, {q} in zip(v, v * 0.5):\n    {self.pick(NAMES)} = {p} * {q} * 0.2\n{self.inside(depth, True)}"

    def _try(self, depth: int, in_loop: bool) -> str:
        body = self.inside(depth, in_loop)
        was, self.is_final = self.is_final, True
        final = self.inside(self.pick((1, depth)), False)
        self.is_final = was
        return f"try:\n{body}\nfinally:\n{final}"

    def _except(self, depth: int, in_loop: bool) -> str:
        body, caught = self.inside(depth, in_loop), self.inside(1, in_loop)
        other = self.pick(("", f"else:\n{self.inside(1, in_loop)}\n"))
        final = self.pick(("", f"finally:\n    {self._augmented(0, False)}\n"))
        return f"try:\n{body}\nexcept ZeroDivisionError:\n{caught}\n{other}{final}".rstrip()

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
        given = 'Cell(a), {"h": b, "count": 0, "in": {"g": c}}, w * 1.0'
        body, end = self._body(depth, "")
        call = f"{self.pick(NAMES)} = {g}({self.expression(1)}, {given})[0]"
        return f"def {g}(t, cell, state, w):\n{body}\n    {end}\n{call}"

    def _recursion(self, depth: int, in_loop: bool) -> str:
        g = self.name("g")
        given = 'Cell(a), {"h": b, "count": 0, "in": {"g": c}}, w * 1.0'
        body, end = self._body(depth, "if d == 0:\n    return t * 0.5, cell.h, w * 1.0, 0")
        again = f"a = {g}({self.expression(1)}, d - 1, cell, state, w * 1.0)[0] + b * 0.5"
        call = f"{self.pick(NAMES)} = {g}({self.expression(1)}, 2, {given})[0]"
        return f"def {g}(t, d, cell, state, w):\n{body}\n    {again}\n    {end}\n{call}"

    def _body(self, depth: int, start: str) -> tuple[str, str]:
        """Returns the body of a local function and its last statement."""
        was, self.is_final = self.is_final, False
        inner = self.block(depth - 1, False)
        self.is_final = was
        own = f"a, b, c, k = t, x, v[1], 2\n{OWN.strip()}"
        return textwrap.indent("\n".join(filter(None, [start, own, inner])), "    "), "return a, cell.h, w, k"

    def _closure(self, depth: int, in_loop: bool) -> str:
        """A local function that assigns the variables around it."""
        g, place = self.name("g"), self.pick(NAMES)
        was, self.is_final = self.is_final, True
        body = self.inside(depth, False)
        self.is_final = was
        call = self.pick((f"{place} = {g}({self.expression(1)})", f"{place} = {g}(0.5) - {g}({place})"))
        declared = "nonlocal a, b, c, k, flag, w, cell, state, pair, items"
        return f"def {g}(t):\n    {declared}\n{body}\n    return t * 0.5 + a\n{call}"

    def _while_else(self, depth: int, in_loop: bool) -> str:
        return f"{self._while(depth, in_loop)}\nelse:\n{self.inside(1, in_loop)}"

    def _walrus(self, depth: int, in_loop: bool) -> str:
        i, h = self.name("i"), self.name("h")
        return (
            f"{i} = 0\nwhile ({h} := {self.expression(1)} + {i}) < 1.417 and {i} < 3:\n    {i} += 1\n"
            f"    {self.pick(NAMES)} = {h} * 0.5\n{self.inside(depth, True)}"
        )

    def _match(self, depth: int, in_loop: bool) -> str:
        one, two, y = self.inside(depth, in_loop), self.inside(1, in_loop), self.name("y")
        return self.pick(
            (
                f"match k % 3:\n    case 0:\n{_in(one)}\n    case 1 | 2 if {self.condition(1)}:\n{_in(two)}",
                f"match n:\n    case 0 | 3:\n{_in(one)}\n    case _:\n{_in(two)}",
                f"match k, flag:\n    case 1, True:\n{_in(one)}\n    case {y}, _ if {y} > 2:\n"
                f"        k = {y} - 1\n{_in(two)}\n    case _:\n        a = x",
            )
        )

    def _total(self, depth: int, in_loop: bool) -> str:
        """A sum that begins as an integer."""
        i, total = self.name("i"), self.name("total")
        more = self.pick((f"{total} += {self.expression(1)}", f"{total} += 1"))
        return (
            f"{total} = 0\nfor {i} in range({self.pick(('n', '2', 'k % 4'))}):\n{self.inside(depth, True)}\n"
            f"    {more}\n{self.pick(NAMES)} = {total} * 0.1"
        )

    def _elements(self, depth: int, in_loop: bool) -> str:
        """A loop over a list of fixed length, whose elements change."""
        i = self.name("i")
        return (
            f"for {i} in range(n):\n    items[{i} % 3] = items[({i} + 1) % 3] * 0.5 + {self.expression(1)}\n"
            f"{self.inside(depth, True)}"
        )

    def _python_list(self, depth: int, in_loop: bool) -> str:
        e = self.name("e")
        over = self.pick(("[a, b, x]", "items", "pair", "(0.5, -0.3)", "[e * 0.5 for e in pair]"))
        return f"for {e} in {over}:\n    {self.pick(NAMES)} = {e} * 0.5\n{self.inside(depth, True)}"

    def _assert(self, depth: int, in_loop: bool) -> str:
        return f"assert {self.expression(1)} < 1e6, 'too large'"

    def _for_else(self, depth: int, in_loop: bool) -> str:
        i, place = self.name("i"), self.pick(NAMES)
        return (
            f"for {i} in range(n):\n{self.inside(depth, True)}\n    if {self.condition(1)}:\n        break\n"
            f"else:\n    {place} = {self.expression(1)}"
        )


def _in(block: str) -> str:
    return textwrap.indent(block, "    ")


@st.composite
def sources(draw: Any, depth: int = 3, is_wide: bool = False) -> str:
    """The source of a module with a random function `f(x, n, v)`.

    A wide one also has closures that assign, recursion, other names of one object, and structures that are replaced.
    """
    writer = _Writer(draw, is_wide)
    body = "\n".join([START.strip(), writer.block(depth, False), writer.block(1, False), END.strip()])
    return f"{HEADER}\n\ndef f(x, n, v):\n{textwrap.indent(body, '    ')}\n"
