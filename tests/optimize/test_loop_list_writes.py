"""Writes to elements that a loop does not read again are removed."""

# ruff: noqa: E501 - a line of a graph is a line

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import headrace as hr
import headrace.v1 as v1
from headrace.optimize.loops import LOOP_PASSES
from tests.optimize.loop_steps import PASSES, Optimized, agree, close, loop_of, optimize, untouched

_RULE = "loop_writes"
_VARIABLES = """
i: int32[] = zero -> i1
h: float32[2,3] -> h1
ds: variant[] holds float32[2,3] = items -> put
"""
_BEFORE = """
xs = Placeholder[dtype=float32, shape=[4,2,3]]
shape = Const[value=int32[2]{2, 3}, dtype=int32]
items = TensorListFromTensor(xs, shape)
"""
_BODY = """
shape = Const[value=int32[2]{2, 3}, dtype=int32]
three = Const[value=int32[]{3}, dtype=int32]
i1 = AddV2(i, one)
number = Sub(three, i)
d = TensorListGetItem[element_dtype=float32](ds, number, shape)
none = ZerosLike(d)
put = TensorListSetItem[element_dtype=float32](ds, number, none)
h1 = AddV2(h, d)
"""
_DOWN = "three = Const[value=int32[]{3}, dtype=int32]\nless = LessEqual(i, three)"


def text(*changes: tuple[str, str], cond: str = _DOWN, behind: str = "") -> str:
    """The loop, after changes of its lines: of the variables or of the body."""
    variables, body = _VARIABLES, _BODY
    for old, new in changes:
        assert (old in variables) != (old in body), old
        variables, body = variables.replace(old, new), body.replace(old, new)
    return loop_of(variables, body, before=_BEFORE, cond=cond, behind="end = Identity(loop:1)\n" + behind)


_FEEDS = {"h": np.ones((2, 3)), "xs": np.arange(24).reshape(4, 2, 3)}


@pytest.mark.parametrize(
    ("changes", "cond"),
    [
        ((), _DOWN),
        ([("number = Sub(three, i)", "number = Identity(i)"), ("(ds, number, none)", "(ds, i, none)"), ("(ds, number, shape)", "(ds, i, shape)")], "less = Less(i, two)"),
        ([("TensorListSetItem[element_dtype=float32](ds, number, none)", "_TensorListUnset(ds, number)")], _DOWN),
        ([("none = ZerosLike(d)", "none = ZerosLike(d)\nagain = Sub(three, i)"), ("(ds, number, none)", "(ds, again, none)")], _DOWN),
    ],
)  # fmt: skip
def test_the_write_of_what_was_read_is_removed(changes: Any, cond: str) -> None:
    made = agree(text(*changes, cond=cond), [PASSES[_RULE]], _FEEDS, ["end"])
    assert made.fired() == ["loop: no operation reads what 'put' writes"]
    assert made.count("loop", "TensorListSetItem") + made.count("loop", "_TensorListUnset") == 0


@pytest.mark.parametrize(
    ("changes", "cond", "behind"),
    [
        ((), _DOWN, "all = TensorListStack[element_dtype=float32](loop:2, shape)"),
        ([("(ds, number, none)", "(ds, i, none)")], _DOWN, ""),
        ([("(ds, number, shape)", "(ds, one, shape)"), ("(ds, number, none)", "(ds, one, none)")], _DOWN, ""),
        ([("d = ", "n = TensorListLength(ds)\nd = ")], _DOWN, ""),
        ([("d = ", "e = TensorListGetItem[element_dtype=float32](ds, i, shape)\nd = ")], _DOWN, ""),
        ([("h1 = ", "e = TensorListGetItem[element_dtype=float32](put, number, shape)\nh1 = ")], _DOWN, ""),
        ([("(ds, number, none)", "(ds, number, none) ^i1")], _DOWN, ""),
        ([("d = TensorListGetItem[element_dtype=float32](ds, number, shape)", "d = Neg(h)")], _DOWN, ""),
        ([("h: float32[2,3] -> h1", "h: float32[2,3] -> h1\nes: variant[] holds float32[2,3] = items -> put")], _DOWN, ""),
        ([("h: float32[2,3] -> h1", "h: float32[2,3] -> h1\nes: variant[] holds float32[2,3] = items -> ds")], _DOWN, ""),
        ((), _DOWN + "\nn = TensorListLength(ds)\nmore = Less(i, n)\nboth = LogicalAnd(less, more)", ""),
    ],
)  # fmt: skip
def test_a_write_that_may_be_read_stays(changes: Any, cond: str, behind: str) -> None:
    untouched(_RULE, text(*changes, cond=cond, behind=behind))


@pytest.mark.parametrize("lib", [hr, v1])
def test_the_gradient_of_collected_states_only_reads(lib: Any) -> None:
    def build(passes: Any) -> Optimized:
        with v1.Graph().as_default() if lib is v1 else hr.Graph():
            h, w = lib.placeholder(lib.float32, (2, 3)), lib.placeholder(lib.float32, (3, 3))
            ys = lib.TensorArray(lib.float32, 4)

            def body(t: Any, h: Any, ys: Any) -> Any:
                h = lib.tanh(lib.matmul(h, w))
                return t + 1, h, ys.write(t, h)

            _, _, ys = lib.while_loop(lambda t, h, ys: t < 4, body, (0, h, ys))
            loss = lib.reduce_sum(ys.stack() ** 2.0)
            return optimize([h, w], [loss, *lib.gradients(loss, [h, w])], passes)

    made = build(LOOP_PASSES)
    _, backward = (op for op in made.graph.operations if op.opdef.structured == "While")
    written = [op.name for op in backward.attrs["body"].operations if re.search("SetItem|Unset", op.type)]
    assert written == []
    rng = np.random.default_rng(1)
    fed = [rng.standard_normal(s).astype(np.float32) for s in ((2, 3), (3, 3))]
    close(made.run(fed), build([]).run(fed), 1e-5)
