"""All pairs of constructs of Python, the second nested in the first.

A construct is a block of code with a hole. `BODY` is a hole for a block, `EXPR` one for an expression. A cell of the
matrix is the function whose hole of the outer construct contains the inner construct, whose own hole contains a simple
update. All blocks read and assign `acc`, and may read the arguments: `x`, a number, `n`, an integer, and `v`, a vector.
The names of a block end in the level of its nesting. A block in the hole for an expression becomes a local function.

`LEAVING` are the constructs that leave a block. Inside another construct they stand bare, in a loop around that
construct, if the hole is for a block.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import re
import textwrap

import numpy as np

from tests.autograph.suite.cases import Case
from tests.autograph.suite.sources import HEADER, written

#: The arguments of each cell: conditions go either way, and loops of `n` trips have none, some and more.
CALLS = (
    (0.7123, 3, np.array([0.5231, -1.2517, 2.0319, 0.3071])),
    (-1.3137, 5, np.array([1.5219, 0.2543, -0.7561, 1.1193])),
    (2.6071, 0, np.array([-0.4129, 0.9157, 0.3547, -2.2339])),
)

#: The update in the hole of the inner construct, and the same as an expression.
BLOCK, EXPRESSION = "acc = acc * 0.5 + 0.3 * x", "(acc * 0.5 + 0.3 * x)"


@dataclasses.dataclass(frozen=True)
class Construct:
    """A construct of Python.

    Attributes:
      name: the name in the matrix.
      block: the code, with a line `BODY` or with `EXPR` in expressions, and `_` before the level at the ends of names.
      expression: the construct as an expression with `EXPR`, if it has such a form.
      bare: for a construct that leaves a block: the statement alone.
    """

    name: str
    block: str
    expression: str = ""
    bare: str = ""

    @property
    def takes_block(self) -> bool:
        return "BODY" in self.block


def _construct(name: str, block: str, expression: str = "", bare: str = "") -> Construct:
    return Construct(name, textwrap.dedent(block).strip(), expression, textwrap.dedent(bare).strip())


CONSTRUCTS = (
    _construct(
        "if",
        """
        if acc < x + 2.0:
            BODY
        """,
    ),
    _construct(
        "if/else",
        """
        if acc > 1.0:
            BODY
        elif x > 0.5:
            acc = acc + 1.5
        else:
            acc = acc - x
            BODY
        """,
    ),
    _construct(
        "while",
        """
        k_ = 0
        while k_ < n:
            BODY
            k_ = k_ + 1
        """,
    ),
    _construct(
        "for range",
        """
        for i_ in range(n):
            acc = acc + v[i_ % 4]
            BODY
        """,
    ),
    _construct(
        "for tensor",
        """
        for e_ in v:
            acc = acc + e_ * x
            BODY
        """,
    ),
    _construct(
        "break",
        """
        for i_ in range(n + 2):
            BODY
            if acc > 1.75:
                break
            acc = acc + 0.7
        """,
        bare="""
        if acc > 1.75:
            break
        acc = acc + 0.7
        """,
    ),
    _construct(
        "continue",
        """
        for e_ in v:
            if e_ > x:
                continue
            BODY
            acc = acc + e_
        """,
        bare="""
        if acc > 0.8:
            acc = acc - 0.5
            continue
        acc = acc + 0.7
        """,
    ),
    _construct(
        "return",
        """
        if acc > 0.5:
            BODY
            return acc * 2.0
        """,
        bare="""
        if acc > 1.75:
            return acc * 2.0
        acc = acc + 0.7
        """,
    ),
    _construct(
        "conditional expression",
        "acc = EXPR if acc < 1.0 else x - acc",
        expression="(EXPR if acc < 1.0 else x - acc)",
    ),
    _construct(
        "and/or/not",
        """
        if (EXPR > 0.2 and x < 2.0) or not n > 3:
            acc = acc - 0.4
        """,
        expression="((x if EXPR > 0.2 and not n > 3 else 0.5) + acc)",
    ),
    _construct(
        "chained comparison",
        """
        if -0.5 < EXPR <= x + 1.5:
            acc = acc * x + 0.1
        """,
        expression="(acc if -0.5 < EXPR <= x + 1.5 else acc * x + 0.1)",
    ),
    _construct(
        "list append",
        """
        items_ = []
        for i_ in range(n):
            items_.append(EXPR)
            acc = acc + v[i_ % 4]
        for item_ in items_:
            acc = acc + item_
        """,
    ),
    _construct(
        "list pop",
        """
        stack_ = [x, acc]
        taken_ = 0
        while len(stack_) > 0:
            acc = stack_.pop()
            taken_ += 1
            value_ = EXPR
            if value_ > 0.6 and taken_ < 6:
                stack_.append(value_ * 0.5)
            acc = acc + value_
        """,
    ),
    _construct(
        "slice",
        """
        part_ = (v * EXPR)[1:3]
        acc = acc + part_[0] - part_[-1]
        """,
        expression="(v * EXPR)[n % 3 :][0]",
    ),
    _construct(
        "slice assignment",
        """
        w_ = v * 1.0
        w_[1:3] = EXPR
        w_[n % 4] = acc
        acc = acc + w_[0] * w_[1] + w_[3]
        """,
    ),
    _construct(
        "attribute state",
        """
        cell_ = Cell(acc)
        for i_ in range(n):
            acc = cell_.h
            BODY
            cell_.h = acc + 0.25
            cell_.steps += 1
        acc = cell_.h + x
        """,
    ),
    _construct(
        "dict state",
        """
        state_ = {"h": acc, "most": x}
        for i_ in range(n):
            acc = state_["h"]
            BODY
            state_["h"] = acc + 0.25
            if acc > state_["most"]:
                state_["most"] = acc
        acc = state_["h"] + state_["most"]
        """,
    ),
    _construct(
        "tuple unpacking",
        """
        (p_, q_), *rest_ = (EXPR, x), acc, 0.5
        acc = p_ * q_ + rest_[0] - rest_[1]
        """,
    ),
    _construct(
        "comprehension",
        """
        terms_ = [EXPR * e_ for e_ in v]
        acc = acc + terms_[0] - terms_[n % 4]
        """,
        expression="sum([EXPR * e_ for e_ in v])",
    ),
    _construct(
        "lambda",
        """
        scaled_ = lambda t_: t_ * x + EXPR
        acc = scaled_(acc) + scaled_(0.5)
        """,
        expression="(lambda t_: t_ * x + EXPR)(acc)",
    ),
    _construct(
        "nested function",
        """
        def inner_(acc):
            BODY
            return acc + x

        acc = inner_(acc) - inner_(0.25)
        """,
    ),
    _construct(
        "recursion",
        """
        def deeper_(acc, depth_):
            if depth_ == 0:
                return acc
            BODY
            return deeper_(acc, depth_ - 1) * 0.75

        acc = deeper_(acc, 2)
        """,
    ),
    _construct(
        "try/finally",
        """
        try:
            BODY
        finally:
            acc = acc + 0.125
        """,
    ),
    _construct(
        "with",
        """
        with Scale(x) as scale_:
            BODY
            acc = acc * scale_
        """,
    ),
    _construct(
        "assert",
        """
        assert EXPR < 1000.0, "acc is too large"
        acc = acc + 0.25
        """,
    ),
    _construct(
        "print",
        """
        print("value", EXPR)
        acc = acc + 0.25
        """,
    ),
    _construct(
        "enumerate",
        """
        for i_, e_ in enumerate(v):
            acc = acc + e_ * v[i_ - 1]
            BODY
        """,
    ),
    _construct(
        "zip",
        """
        for a_, b_ in zip(v, v * x):
            acc = acc + a_ * b_
            BODY
        """,
    ),
    _construct(
        "augmented assignment",
        """
        w_ = v + 0.5
        w_[n % 4] *= EXPR
        acc -= w_[n % 4]
        acc /= 2.0
        """,
    ),
    _construct(
        "walrus",
        """
        if (half_ := EXPR * 0.5) > 0.1:
            acc = acc + half_
        """,
        expression="(acc + half_ if (half_ := EXPR * 0.5) > 0.1 else x)",
    ),
    _construct(
        "loop else",
        """
        for i_ in range(n):
            BODY
            if acc > 1.9:
                break
        else:
            acc = acc - 0.6
        """,
    ),
    _construct(
        "match",
        """
        match n:
            case 3 | 4:
                BODY
            case 0:
                acc = acc - 0.3
            case _:
                acc = acc + 0.3
                BODY
        """,
    ),
    _construct(
        "nonlocal",
        """
        def change_():
            nonlocal acc
            BODY
            acc = acc + 0.2

        change_()
        """,
    ),
)
NAMES = tuple(c.name for c in CONSTRUCTS)
#: Constructs that leave the block around them.
LEAVING = ("break", "continue", "return")


def _leveled(text: str, level: int) -> str:
    """The text with its level in place of the `_` at the ends of names."""
    return re.sub(r"(?<=[a-z])_\b", str(level), text)


def filled(outer: str, hole: str, inside: str) -> str:
    """The template with its hole filled by a block or an expression."""
    if hole == "EXPR":
        return outer.replace("EXPR", inside)
    lines = []
    for line in outer.splitlines():
        indent = line[: len(line) - len(line.lstrip())]
        lines.append(textwrap.indent(inside, indent) if line.strip() == "BODY" else line)
    return "\n".join(lines)


def simple(construct: Construct, level: int) -> str:
    """The block of a construct with the simple update in its hole."""
    block = _leveled(construct.block, level)
    return filled(block, "BODY", BLOCK) if construct.takes_block else filled(block, "EXPR", EXPRESSION)


def source(name: str, outer: Construct, inner: Construct) -> str:
    """The function of one cell."""
    template = _leveled(outer.block, 1)
    before = ""
    if outer.takes_block and inner.bare:
        block = filled(template, "BODY", f"{inner.bare}\n{BLOCK}")
        if inner.name != "return":
            block = f"for j in range(n + 1):\n{textwrap.indent(block, '    ')}\n    acc = acc + 0.1"
        if inner.name != "return" and outer.name in ("nested function", "recursion", "nonlocal"):
            block = filled(template, "BODY", simple(inner, 2))  # a loop does not reach into a function
    elif outer.takes_block:
        block = filled(template, "BODY", simple(inner, 2))
    elif inner.expression:
        block = filled(template, "EXPR", _leveled(inner.expression, 2).replace("EXPR", EXPRESSION))
    else:
        before = f"def step(acc):\n{textwrap.indent(simple(inner, 2), '    ')}\n    return acc\n\n"
        block = filled(template, "EXPR", "step(acc)")
    body = f"acc = x * 0.5\n{before}{block}\nreturn acc"
    return f"def {name}(x, n, v):\n{textwrap.indent(body, '    ')}\n"


def name_of(outer: Construct, inner: Construct) -> str:
    words = f"{inner.name} in {outer.name}"
    return "".join(c if c.isalnum() else "_" for c in words)


def module_text() -> str:
    """The source of all cells."""
    cells = (source(name_of(o, i), o, i) for o, i in itertools.product(CONSTRUCTS, CONSTRUCTS))
    return "\n\n".join([HEADER, *cells])


@functools.cache  # one module serves all rows
def cases() -> dict[tuple[str, str], Case]:
    """All cells by (outer construct, inner construct)."""
    module = written(module_text(), "headrace_suite_matrix")
    return {
        (o.name, i.name): Case(f"{i.name} in {o.name}", getattr(module, name_of(o, i)), CALLS)
        for o, i in itertools.product(CONSTRUCTS, CONSTRUCTS)
    }
