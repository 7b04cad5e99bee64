"""Lowered conditionals, loops and calls as text.

The files are in `golden/`, one for each function here.

Types and shapes of outputs are left out of the text.
"""

from __future__ import annotations

import pathlib
import re
from collections.abc import Callable
from typing import Any

import pytest

import headrace as hr
from headrace.api import scopes
from headrace.api.cond import cond, switch_case
from headrace.api.tensor_spec import TensorSpec
from headrace.api.while_loop import while_loop
from headrace.ir.graph import Operation, Tensor
from headrace.ir.text import to_text
from headrace.jit.function import Function
from headrace.lower import lower
from headrace.prune import prune

pytestmark = pytest.mark.one_engine


def b() -> Any:
    return scopes.builder()


def given(*names: str) -> list[Tensor]:
    """Placeholders."""
    return [b().Placeholder(dtype=hr.int32, shape=(), name=name) for name in names]


def lowered(fetch: Tensor | Operation) -> str:
    """The text of the lowered graph of `fetch`, and of the functions that it calls.

    Operations that `fetch` does not need are pruned.
    """
    graph = fetch.graph
    feeds = [op.outputs[0] for op in graph.operations if op.type == "Placeholder"]
    is_op = isinstance(fetch, Operation)
    pruned = prune(feeds, [] if is_op else [fetch], [fetch] if is_op else []).graph
    out = lower(pruned, [pruned.find(fetch.name)] if is_op else [])
    parts = [to_text(out.ops)] + [f"function {name}\n{to_text(ops)}" for name, ops in out.functions.items()]
    text = "".join(re.sub(r" : .*$", "", part, flags=re.MULTILINE) for part in parts)
    for noise in (r"T=int32(, )?", r", of=\".*?\"", r"\[\]", r", dtype=int32", r"shape="):
        text = re.sub(noise, "", text)
    return re.sub(r", (?=\])", "", text)


def a_conditional() -> Tensor:
    x, y, z = given("x", "y", "z")
    return cond(b().Less(x, y), lambda: b().AddV2(x, z), lambda: b().Square(y))


def a_loop() -> Tensor:
    return while_loop(lambda i: b().Less(i, 10), lambda i: b().AddV2(i, 1), b().const(0))


def a_loop_constant() -> Tensor:
    n, c = given("n", "c")
    return while_loop(lambda i: b().Less(i, n), lambda i: b().AddV2(i, c), b().const(0))


def a_loop_in_a_loop() -> Tensor:
    (n,) = given("n")

    def body(i: Tensor, s: Tensor) -> Any:
        def step(j: Tensor, t: Tensor) -> Any:
            return b().AddV2(j, 1), b().AddV2(t, j)

        _, t = while_loop(lambda j, t: b().Less(j, i), step, (b().const(0), s))
        return b().AddV2(i, 1), t

    return while_loop(lambda i, s: b().Less(i, n), body, (b().const(0), b().const(0)))[1]


def a_conditional_in_a_loop() -> Tensor:
    n, x = given("n", "x")

    def body(i: Tensor) -> Tensor:
        return cond(b().Less(i, x), lambda: b().AddV2(i, 2), lambda: b().AddV2(i, x))

    return while_loop(lambda i: b().Less(i, n), body, b().const(0))


def a_loop_in_a_conditional() -> Tensor:
    n, x = given("n", "x")

    def loop() -> Any:
        return while_loop(lambda i: b().Less(i, n), lambda i: b().AddV2(i, x), b().const(0))

    return cond(b().Less(n, 3), loop, lambda: 7)


def a_call() -> Tensor:
    n, x = given("n", "x")
    return Function(lambda u, v: b().AddV2(b().Mul(u, v), x), name="f")(n, 3)


def a_recursion() -> Tensor:
    (n,) = given("n")

    def fact(k: Tensor) -> Tensor:
        return cond(b().Less(k, 2), lambda: 1, lambda: b().Mul(k, function(b().Sub(k, 1))))

    function = Function(fact, results=TensorSpec((), hr.int32), name="fact")
    return function(n)


def a_case() -> Tensor:
    i, x = given("i", "x")
    return switch_case(i, [lambda: b().Neg(x), lambda: x, lambda: 5])


def tokens() -> Operation:
    """Two effects are kept in order, each by a token.

    They are the printed output, and the stream of a random op.
    """

    def body(i: Tensor) -> Tensor:
        b().Print(i, [i])
        return b().AddV2(i, b().RandomUniformInt(b().const([], hr.int32), 1, 3, seed=1))

    return while_loop(lambda i: b().Less(i, 9), body, b().const(0)).op


def what_a_conditional_does_besides() -> Operation:
    """An operation that waits for the conditional waits for the output of its branches."""
    (x,) = given("x")
    out = cond(b().Less(x, 0), lambda: b().Print(x, [x]), lambda: x)
    return b().after(out.op).make("NoOp", (), {})


GOLDEN = pathlib.Path(__file__).parent / "golden"
PROGRAMS: tuple[Callable[[], Any], ...] = (
    a_conditional, a_loop, a_loop_constant, a_loop_in_a_loop, a_conditional_in_a_loop, a_loop_in_a_conditional, a_call,
    a_recursion, a_case, tokens, what_a_conditional_does_besides,
)  # fmt: skip


@pytest.mark.parametrize("make", PROGRAMS, ids=lambda f: f.__name__)
def test_lowered(make: Callable[[], Any]) -> None:
    with hr.Graph():
        fetch = make()
    assert lowered(fetch) == (GOLDEN / f"{make.__name__}.txt").read_text(encoding="utf-8")


def test_every_golden_text_is_tested() -> None:
    assert {p.stem for p in GOLDEN.glob("*.txt")} == {f.__name__ for f in PROGRAMS}
