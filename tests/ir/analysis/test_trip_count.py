"""Trip counts of loops, as far as their conditions give them."""

from __future__ import annotations

import numpy as np
import pytest

from headrace.ir.analysis.trip_count import TripCount, trip_count
from headrace.ir.graph import Graph
from headrace.ir.text import from_text

_LOOP = """
first = {first}
n = Placeholder[dtype={t}, shape=[]]
loop = StatelessWhile[T=({t}, {t}), cond=@"cond", body=@"body"](first, n)
graph "cond" of loop, cond (i: {t}[], n: {t}[]) -> ({result}) {{
  m = Const[value={t}[]{{{limit}}}, dtype={t}]
  {cond}
}}
graph "body" of loop, body (i: {t}[], n: {t}[]) -> (next, n) {{
  one = Const[value={t}[]{{{by}}}, dtype={t}]
  next = {step}
}}
"""


def loop(
    cond: str,
    first: str | int = 0,
    limit: int = 7,
    t: str = "int32",
    step: str = "AddV2(i, one)",
    by: int = 1,
    result: str = "less",
) -> tuple[Graph, TripCount | None]:
    start = f"Const[value={t}[]{{{first}}}, dtype={t}]" if isinstance(first, int) else first
    text = _LOOP.format(first=start, t=t, result=result, limit=limit, cond=cond, by=by, step=step)
    g = from_text(text)
    return g, trip_count(g.get_operation_by_name("loop"))


@pytest.mark.parametrize(
    ("cond", "first", "count"),
    [
        ("less = Less(i, m)", 0, 7),
        ("less = Less(i, m)", -2, 9),
        ("less = Less(i, m)", 7, 0),
        ("less = Less(i, m)", 8, 0),
        ("less = Greater(m, i)", 3, 4),
        ("less = LessEqual(i, m)", 0, 8),
        ("less = GreaterEqual(m, i)", 0, 8),
        ("less = NotEqual(i, m)", 2, 5),
        ("less = NotEqual(m, i)", 7, 0),
        ("x = Identity(i)\n  y = Less(x, m)\n  less = Identity(y)", 0, 7),
        (
            "x = Less(i, m)\n  c = Const[value=int32[]{3}, dtype=int32]\n  y = Less(i, c)\n  less = LogicalAnd(x, y)",
            0,
            3,
        ),
    ],
)
def test_known(cond: str, first: int, count: int) -> None:
    for t in ("int32", "int64"):
        _, found = loop(cond.replace("int32", t), first, t=t)
        assert found is not None
        assert found.is_exact
        assert found.count == count
        assert found.most == count
        assert all(b.counter == 0 and b.position is None for b in found.bounds)


def test_a_limit_that_is_passed() -> None:
    g, found = loop("less = Less(i, n)")
    assert found is not None
    (bound,) = found.bounds
    assert (bound.counter, bound.position, bound.is_inclusive) == (0, 1, False)
    assert bound.limit is g.get_tensor_by_name("n:0")
    assert bound.first is g.get_tensor_by_name("first:0")
    assert found.is_exact
    assert found.count is None


def test_a_limit_that_is_passed_as_a_constant() -> None:
    g, _ = loop("less = Less(i, n)")
    op = g.get_operation_by_name("loop")
    assert trip_count(op).count is None  # type: ignore[union-attr]
    five = g.get_operation_by_name("first")
    op.inputs[1] = five.outputs[0]
    assert trip_count(op).count == 0  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("cond", "count", "most"),
    [
        ("x = Less(i, m)\n  y = Greater(n, m)\n  less = LogicalAnd(x, y)", None, 7),
        ("x = Less(i, m)\n  y = Less(i, n)\n  less = LogicalAnd(x, y)", None, 7),
    ],
)
def test_it_may_end_before(cond: str, count: int | None, most: int) -> None:
    _, found = loop(cond)
    assert found is not None
    assert (found.count, found.most) == (count, most)
    assert found.is_exact is (len(found.bounds) == 2)


def test_none_of_two_bounds_is_none_at_all() -> None:
    _, found = loop("x = Less(i, m)\n  y = Less(i, n)\n  less = LogicalAnd(x, y)", first=7)
    assert found is not None
    assert found.count == 0


@pytest.mark.parametrize(
    "changed",
    [
        {"cond": "less = Less(m, i)"},  # counts away from it
        {"cond": "less = Less(i, i)"},
        {"cond": "less = Equal(i, m)"},
        {"cond": "x = Less(i, m)\n  less = LogicalNot(x)"},
        {"cond": "x = Less(i, m)\n  y = Less(i, n)\n  less = LogicalOr(x, y)"},
        {"cond": "less = NotEqual(i, m)", "first": 8},  # it goes all the way around
        {"cond": "less = NotEqual(i, n)"},
        {"cond": "less = NotEqual(i, m)", "first": "Placeholder[dtype=int32, shape=[]]"},
        {"cond": "less = LessEqual(i, m)", "limit": np.iinfo(np.int32).max},  # never ends
        {"cond": "less = Less(i, m)", "step": "Sub(i, one)"},
        {"cond": "less = Less(i, m)", "by": 2},
        {"cond": "less = Less(i, m)", "step": "AddV2(n, one)"},
        {"cond": "less = Less(i, m)", "t": "uint8"},
        {"cond": "x = AddV2(n, m)\n  less = Less(i, x)"},
    ],
)
def test_nothing_is_known(changed: dict[str, str]) -> None:
    _, found = loop(**changed)  # type: ignore[arg-type]
    assert found is None


def test_a_limit_that_changes_is_none() -> None:
    text = _LOOP.format(
        first="Const[value=int32[]{0}, dtype=int32]",
        t="int32",
        result="less",
        limit=1,
        cond="less = Less(i, n)",
        by=1,
        step="AddV2(i, one)",
    )
    g = from_text(text.replace("-> (next, n)", "-> (next, next)"))
    assert trip_count(g.get_operation_by_name("loop")) is None
