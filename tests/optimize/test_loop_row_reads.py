"""Reads of rows, and reads that are none."""

# ruff: noqa: E501 - a line of a graph is a line

from __future__ import annotations

import numpy as np
import pytest

from headrace.ir.text import from_text
from headrace.optimize.base import PassContext
from headrace.optimize.loop_editor import LoopEditor, loops_of
from headrace.optimize.loop_row_reads import (
    Index,
    Popped,
    RowReads,
    as_vector,
    element_bytes,
    index_of,
    popped_from,
    stacked,
)
from tests.optimize.loop_steps import loop_of

_BEFORE = """
shape = Const[value=int32[2]{1, 3}, dtype=int32]
none = Const[value=int32[0]{}, dtype=int32]
five = Const[value=int32[]{5}, dtype=int32]
xs = Placeholder[dtype=float32, shape=[5,1,3]]
names = Placeholder[dtype=string, shape=[5]]
items = TensorListFromTensor(xs, shape)
places = Const[value=int32[5]{1, 0, 2, 4, 3}, dtype=int32]
scattered = TensorListScatterV2[element_dtype=float32](xs, places, shape, five)
words = TensorListFromTensor(names, none)
"""
_VARIABLES = """
i: int32[] = zero -> i1
n: int32[]
items: variant[] holds float32[1,3] = items
acc: variant[] holds float32[1,3] = items -> pop:0
w: float32[?,3]
"""
_BODY = """shape = Const[value=int32[2]{1, 3}, dtype=int32]
none = Const[value=int32[0]{}, dtype=int32]
four = Const[value=int32[]{4}, dtype=int32]
i1 = AddV2(i, one)
pop = TensorListPopBack[element_dtype=float32]{ResidualPop}(acc, shape)
"""
_FOUR = "four = Const[value=int32[]{4}, dtype=int32]\nless = LessEqual(i, four)"


def made(body: str, more: str = "", cond: str = "less = Less(i, five)") -> LoopEditor:
    """A loop with these lines in its body and these variables besides."""
    text = loop_of(_VARIABLES + more, _BODY + body.replace(" | ", "\n"), cond=cond, before=_BEFORE)
    (op,) = loops_of(from_text(text), PassContext())
    return LoopEditor(op, PassContext())


@pytest.mark.parametrize(
    ("body", "cond", "is_upward"),
    [
        ("at = Cast[SrcT=int32, DstT=int64](i)", _FOUR, True),
        ("at = Sub(four, i)", _FOUR, False),
        ("j = Cast[SrcT=int32, DstT=int64](i) | m = Cast[SrcT=int32, DstT=int64](four) | at = Sub(m, j)", _FOUR, False),
        ("at = Sub(n, i)", "less = LessEqual(i, n)", False),
        ("at = Sub(n, i)", _FOUR, None),
        ("at = Sub(four, i)", "less = Less(i, five)", False),
        ("j = Sub(i, one) | k = AddV2(j, one) | at = Sub(four, k)", "less = Less(i, five)", False),
        ("j = Sub(four, i) | k = Sub(j, one) | at = AddV2(one, k)", "less = Less(i, five)", False),
        ("j = Sub(four, i) | at = Sub(four, j)", "less = Less(i, five)", True),
        ("at = Sub(one, i)", "less = Less(i, five)", None),
        ("at = AddV2(one, i)", "less = Less(i, five)", None),
        ("j = AddV2(i, i) | at = Sub(four, j)", "less = Less(i, five)", None),
        ("at = Sub(n, n)", "less = LessEqual(i, n)", None),
        ("at = Sub(one, i)", _FOUR, None),
        ("at = Sub(i, four)", _FOUR, None),
        ("at = Sub(n, i)", "less = Less(i, n)", None),
        ("at = AddV2(n, i)", "less = LessEqual(i, n)", None),
        ("f = Cast[SrcT=int32, DstT=float32](i) | at = Cast[SrcT=float32, DstT=int32](f)", _FOUR, None),
        ("at = Neg(i)", "s = Sum(w, zero)\nt = Sum(s, zero)\nless = Less(t, t)", None),
    ],
)  # fmt: skip
def test_which_way_it_goes(body: str, cond: str, is_upward: bool | None) -> None:
    loop = made(body, cond=cond)
    found = index_of(loop, loop.body.get_operation_by_name("at").outputs[0])
    assert (found.is_upward if found else None) == is_upward


def test_a_variable_is_an_index_only_if_it_counts() -> None:
    loop = made("k1 = AddV2(k, four)", "k: int32[] = zero -> k1")
    found = [index_of(loop, p) for p in loop.body.params]
    assert [isinstance(f, Index) for f in found] == [True] + [False] * 5


def test_what_is_popped() -> None:
    body = "p2 = TensorListPopBack[element_dtype=string]{ResidualPop}(words, none) | w2 = Neg(pop:1) | "
    body += "more = TensorListPushBack[element_dtype=float32](items, w2) | "
    body += "p3 = TensorListPopBack[element_dtype=float32]{ResidualPop}(more, shape)"
    body += " | v1 = Neg{ResidualPop}(v)"
    loop = made(body, "words: variant[] holds string[] = words -> p2:0\nv: float32[2] -> v1")
    pops = {op.name: op for op in loop.body.operations if op.type == "TensorListPopBack"}
    assert [popped_from(loop, pops[name].outputs[1]) for name in ("pop", "p2", "p3")] == [3, None, None]
    for name in "w2", "v1":
        assert popped_from(loop, loop.body.get_operation_by_name(name).outputs[0]) is None
    rows = RowReads(loop)
    assert isinstance(rows[pops["pop"].outputs[1]], Popped)
    assert pops["p2"].outputs[1] not in rows
    assert pops["p3"].outputs[1] not in rows


def test_what_is_of_unknown_size_is_not_small() -> None:
    loop = made("y = AddV2(pop:1, w) | z = Tanh(y) | s = Tanh(pop:1)")
    rows = RowReads(loop)
    y, z, s = (loop.body.get_operation_by_name(n).outputs[0] for n in "yzs")
    assert y.shape == (None, 3)
    assert (z in rows, rows.is_small(z), rows.pays(z)) == (True, False, False)
    assert (rows.is_small(s), rows.pays(s)) == (True, True)


@pytest.mark.parametrize(("cond", "count"), [("less = Less(i, five)", 5), ("less = Less(i, n)", -1), (_FOUR, 5)])
def test_the_elements_of_a_list(cond: str, count: int) -> None:
    loop = made("", cond=cond)
    pop = loop.body.get_operation_by_name("pop").outputs[1]
    source = loop.op.inputs[2]
    assert stacked(loop, source, pop) is source.op.inputs[0] or count == -1
    out = stacked(loop, loop.op.outputs[3], pop)
    assert (out.op.type, out.op.attrs["num_elements"]) == ("TensorListStack", count)
    assert out.shape == (None if count == -1 else count, 1, 3)


def test_another_number_or_order_of_elements() -> None:
    loop = made("")
    pop = loop.body.get_operation_by_name("pop").outputs[1]
    assert stacked(loop, loop.op.graph.get_tensor_by_name("scattered:0"), pop).op.type == "TensorListStack"
    loop = made("", cond="less = Less(i, two)")
    pop = loop.body.get_operation_by_name("pop").outputs[1]
    assert stacked(loop, loop.op.inputs[2], pop).op.type == "TensorListStack"
    unbounded = made("", cond="s = Sum(w, zero)\nt = Sum(s, zero)\nless = Less(t, t)")
    pop = unbounded.body.get_operation_by_name("pop").outputs[1]
    assert stacked(unbounded, unbounded.op.outputs[3], pop).op.attrs["num_elements"] == -1


def test_sizes() -> None:
    loop = made("", "words: variant[] holds string[] = words|u: string[2]|v: float32<unknown>".replace("|", "\n"))
    params = {p.op.name: p for p in loop.body.params}
    assert [element_bytes(params[n]) for n in ("n", "w", "u", "v")] == [4, None, None, None]
    np.testing.assert_array_equal(as_vector((2, None, 3)), [2, -1, 3])
    assert as_vector(None) == -1


def test_what_becomes_what_is_popped() -> None:
    free = "free = Const[value=int32[2]{-1, 3}, dtype=int32] | q = TensorListPopBack[element_dtype=float32]{ResidualPop}(any, free)"
    more = "a: float32[1,3] -> pop:1\nb: float32[?,3] -> pop:1\nc: float32[?,3] -> q:1\nany: variant[] holds float32[?,3] = other -> q:0\n"
    lines = _VARIABLES + more
    before = _BEFORE + "free = Const[value=int32[2]{-1, 3}, dtype=int32]\nother = TensorListFromTensor(xs, free)"
    text = loop_of(lines, _BODY + free.replace(" | ", "\n"), cond="less = Less(i, five)", before=before)
    (op,) = loops_of(from_text(text), PassContext())
    loop = LoopEditor(op, PassContext())
    rows = RowReads(loop)
    named = {p.op.name: p for p in loop.body.params}
    assert [named[n] in rows for n in "abc"] == [True, False, False]
    assert loop.body.get_operation_by_name("q").outputs[1] not in rows
