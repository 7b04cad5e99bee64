"""The zeros of a list are elements that are not set."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import headrace as hr
from headrace.optimize.list_zeros import ReserveZeros
from tests.optimize.loop_steps import Optimized, close, optimize
from tests.optimize.running import apply, unchanged

TEXT = """
n = Placeholder[dtype=int32, shape=[]]
shape = Const[value=int32[1]{3}, dtype=int32]
x = Placeholder[dtype=float32, shape=[3]]
xs = TensorListReserve[element_dtype=float32](shape, n)
zeros = ZerosLike(xs)
y = TensorListGetItem[element_dtype=float32](zeros, n, shape)
r = _Retval[index=0](y)
"""


def test_zeros_are_a_reserved_list_of_the_same_length() -> None:
    after, context = apply(ReserveZeros(), TEXT)
    assert "TensorListLength(xs)" in after
    assert "ZerosLike" not in after
    assert after.count("TensorListReserve") == 2
    assert [n.rule for n in context.notes] == ["list_zeros"]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("int32[1]{3}", "int32[]{-1}"),
        ("ZerosLike(xs)", "ZerosLike(xs) ^x"),
        ("ZerosLike(xs)", 'ZerosLike(xs) @"/device:GPU:0"'),
        ("ZerosLike(xs)", 'ZerosLike[_class=("loc:@x")](xs)'),
    ],
)
def test_other_zeros_stay(old: str, new: str) -> None:
    unchanged(ReserveZeros(), TEXT.replace(old, new))


def test_a_target_stays() -> None:
    unchanged(ReserveZeros(), TEXT, preserved=["zeros"])


def test_the_elements_may_have_the_shape_of_what_is_put_in() -> None:
    text = TEXT.replace("int32[1]{3}", "int32[]{-1}").replace("ZerosLike(xs)", "ZerosLike(ys)")
    text = text.replace("zeros =", "ys = TensorListSetItem(xs, n, x)\nzeros =")
    after, _ = apply(ReserveZeros(), text)
    assert "ZerosLike" not in after
    assert "int32[1]{3}" in after
    unknown = text.replace("x = Placeholder[dtype=float32, shape=[3]]", "x = Placeholder[dtype=float32, shape=[?]]")
    context = unchanged(ReserveZeros(), unknown)
    assert [n.text for n in context.notes] == ["the shape of the elements is unknown"]


def test_the_gradient_of_an_element_of_a_list() -> None:
    def step(passes: Any) -> Optimized:
        with hr.Graph():
            x: Any = hr.placeholder(hr.float32, [2])

            def body(t: Any, v: Any, ys: Any) -> Any:
                v = hr.tanh(v * x)
                return t + 1, v, ys.write(t, v)

            ys = hr.while_loop(lambda t, v, ys: t < 5, body, (0, x, hr.TensorArray(hr.float32, 5)))[2]
            loss = hr.reduce_sum(ys.read(4)) + hr.reduce_sum(ys.read(1) * ys.read(1))
            return optimize([x], [loss, *hr.gradients(loss, [x])], passes)

    fed = [np.array([0.5, -2.0], np.float32)]
    made = step([ReserveZeros()])
    assert len(made.fired("list_zeros")) == 3
    close(made.run(fed), step([]).run(fed), 0)
