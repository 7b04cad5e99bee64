"""The trip count of a loop is known after it too."""

from __future__ import annotations

import pytest

from headrace.ir.analysis.trip_count import trip_count
from headrace.ir.text import from_text
from headrace.optimize.base import PassContext, run
from tests.optimize.loop_steps import PASSES, loop_text, transformed, untouched

_BEFORE = """
zero = Const[value=int32[]{0}, dtype=int32]
first = Placeholder[dtype=int32, shape=[]]
"""


def _two_counters(cond: str, behind: str) -> str:
    return loop_text(
        "i: int32[], j: int32[]",
        "zero, first",
        "i1, j1",
        "i1 = AddV2(i, one)\nj1 = AddV2(j, one)",
        cond=cond,
        before=_BEFORE,
        behind=behind,
    )


def test_a_counter_whose_beginning_is_not_known_stays() -> None:
    cond = "a = Less(i, zero)\nb = Less(j, five)\nboth = LogicalAnd(a, b)"
    got, context = transformed(_two_counters(cond, "x = Neg(loop)\ny = Neg(loop:1)"), [PASSES["loop_counts"]])
    assert "x = Neg(loop/count)\ny = Neg(loop:1)\n" in got
    assert [n.text for n in context.notes] == ["its trip count is 0: its counter is a constant after the loop"]


@pytest.mark.parametrize(
    ("cond", "behind"),
    [
        ("less = Less(i, five)", "y = Neg(loop:1)"),  # no operation reads the counter
        ("less = Less(j, five)", "y = Neg(loop:1)"),  # it may begin with any number
        ("s = Sub(i, j)\nless = Less(s, five)", "y = Neg(loop)"),  # it does not count
        ("a = Less(i, five)\nb = Less(j, five)\nboth = LogicalAnd(a, b)", "y = Neg(loop)"),  # which is less?
    ],
)
def test_what_is_not_known(cond: str, behind: str) -> None:
    untouched("loop_counts", _two_counters(cond, behind))


def test_what_is_known_by_that_is_found() -> None:
    second = loop_text("k: int32[], m: int32[]", "zero, last", "k1, m", "k1 = AddV2(k, one)", cond="less = Less(k, m)",
                       before="last = Sub(loop, loop)", behind="y = Neg(other)", name="other")  # fmt: skip
    graph = from_text(_two_counters("less = Less(i, five)", second))
    other = trip_count(graph.get_operation_by_name("other"))
    assert other is not None
    assert other.count is None
    context = PassContext()
    run([PASSES["loop_counts"]], graph, context)
    assert other.count == 0
    run([PASSES["loop_counts"]], graph, context)
    assert [n.op for n in context.notes] == ["loop", "other"]
