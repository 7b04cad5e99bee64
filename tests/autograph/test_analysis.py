"""Analyses of the syntax tree on snippets."""

from __future__ import annotations

import ast

import pytest

from headrace.autograph import templates
from headrace.autograph.analysis.activity import Activity, free_names
from headrace.autograph.analysis.aliases import may_alias
from headrace.autograph.analysis.definedness import maybe_undefined
from headrace.autograph.analysis.liveness import Liveness


def _body(code: str) -> list[ast.stmt]:
    return ast.parse(code).body


def test_activity_counts_the_variables_of_local_functions() -> None:
    body = _body("k = 1\ndef f(v):\n    nonlocal n\n    n = v + k\ny = f(x)\nitems.append(y)\nm[i] = y")
    activity = Activity(body, {"m": frozenset({"m", "other"})})
    assert activity.of(body[2])[0] >= {"f", "x", "k"}
    assert activity.of(body[2])[1] == {"y", "n"}
    assert activity.of(body[3])[1] == {"items"}
    assert activity.of(body[4])[1] == {"m", "other"}
    assert free_names(body[1]) == ({"k"}, {"n"})


def test_comprehensions_keep_their_variables() -> None:
    (node,) = _body("y = [a * b for a in xs if (c := a) > 0]")
    assert Activity([node], {}).of(node) == ({"b", "xs", "a"} - {"a"}, {"y", "c"})


def test_a_variable_is_live_until_its_last_read() -> None:
    body = _body("a = 1\nb = 2\nif c:\n    a = b\nelse:\n    d = 4\nprint(a)\nprint(e)")
    live = Liveness(body, Activity(body, {}), frozenset({"z"}))
    assert live.after(body[0]) & {"a", "b", "d"} == {"a"}
    assert live.after(body[1]) & {"a", "b", "d"} == {"a", "b"}
    assert live.after(body[2]) & {"a", "b", "d"} == {"a"}
    assert live.after(body[-1]) == {"z"}


def test_variables_of_the_next_iteration_are_live_in_a_loop() -> None:
    body = _body("while n > 0:\n    t = n * 2\n    s = s + t\n    n = n - 1\nprint(s)")
    live = Liveness(body, Activity(body, {}), frozenset())
    assert live.head(body[0]) & {"n", "s", "t"} == {"n", "s"}


def test_variables_of_handlers_are_live_in_the_whole_block() -> None:
    body = _body("a = 1\ntry:\n    a = 2\n    f()\nexcept E:\n    print(a)")
    live = Liveness(body, Activity(body, {}), frozenset())
    assert "a" in live.after(body[0])


def _open(code: str, given: str = "") -> list[str]:
    names = frozenset(n.id for n in ast.walk(ast.parse(code)) if isinstance(n, ast.Name))
    return sorted(n.id for n in maybe_undefined(_body(code), names, frozenset(given.split())))


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("a = c\nprint(a)", []),
        ("if c:\n    a = 1\nprint(a)", ["a"]),
        ("if c:\n    a = 1\nelse:\n    a = 2\nprint(a)", []),
        ("if c:\n    a = 1\nelse:\n    raise c\nprint(a)", []),
        ("for i in c:\n    a = i\nprint(a)", ["a"]),
        ("while c:\n    print(a)\n    a = 1", ["a"]),
        ("if (a := c) > 1:\n    print(a)", []),
        ("a = 1\ndel a\nprint(a)", ["a"]),
        ("try:\n    a = 1\nexcept c:\n    pass\nprint(a)", ["a"]),
        ("f = lambda: a\na = 1", ["a"]),
    ],
)
def test_reads_before_an_assignment_are_found(code: str, expected: list[str]) -> None:
    assert _open(code, "c print") == expected


def test_aliases_join_names_that_assignments_connect() -> None:
    body = _body("b = a\nc, d = b, x\ne = f(a)\ng = a if t else y\nh = k = x")
    names = frozenset("a b c d e g h k x y".split())
    found = may_alias(body, names)
    assert found["a"] == {"a", "b", "c", "g", "y"}
    assert found["d"] == {"d", "x", "h", "k"}
    assert "e" not in found


def test_templates_fill_names_expressions_and_statements() -> None:
    made = templates.statements(
        "def f(): body\nx = ag__.g(value, rest)",
        f="step",
        body=_body("return 1"),
        x="y",
        value=ast.Constant(2),
        rest=[ast.Constant(3), ast.Constant(4)],
    )
    placed = templates.place(made, ast.parse("\n\npass").body[0])
    assert ast.unparse(ast.Module(placed, [])) == "def step():\n    return 1\ny = ag__.g(2, 3, 4)"
    assert placed[1].lineno == 3
