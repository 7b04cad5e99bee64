"""Operations of half precision become operations of float32 between conversions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import headrace as hr
from headrace import thresholds
from headrace.optimize.base import Options
from headrace.optimize.half_precision import WidenHalfPrecision
from headrace.optimize.pipeline import PASSES
from tests.optimize.loop_steps import Optimized, optimize
from tests.optimize.running import LOWERED, apply, same, unchanged

PASS = WidenHalfPrecision()

PRODUCT = """
x = Placeholder[dtype=float16, shape=[2,3]]
w = Placeholder[dtype=float16, shape=[3,4]]
y = MatMul(x, w)
z = Neg(y)
"""


def test_inputs_and_results_are_converted() -> None:
    after, context = apply(PASS, PRODUCT)
    same(
        after,
        """
x = Placeholder[dtype=float16, shape=[2,3]]
w = Placeholder[dtype=float16, shape=[3,4]]
y/wide = Cast[DstT=float32](x)
y/wide_1 = Cast[DstT=float32](w)
y_1 = MatMul(y/wide, y/wide_1)
y/rounded = Cast[DstT=float16](y_1)
z = Neg(y/rounded)
""",
    )
    assert [n.text for n in context.notes] == ["MatMul of float16 is computed in float32"]


def test_positions_stay_as_they_are() -> None:
    after, _ = apply(
        PASS,
        """
x = Placeholder[dtype=bfloat16, shape=[2,3]]
at = Placeholder[dtype=int64, shape=[2]]
loss = SparseSoftmaxCrossEntropyWithLogits(x, at)
y = Neg(loss)
z = Neg(loss:1)
""",
    )
    assert "(loss/wide, at)" in after
    assert after.count("Cast[SrcT=float32, DstT=bfloat16]") == 2


@pytest.mark.parametrize(
    "text",
    [
        PRODUCT.replace("float16", "float32"),
        "x = Placeholder[dtype=float16, shape=[2,3]]\ny = Tanh(x)\n",
        PRODUCT.replace("MatMul(x, w)", "MatMul(x, w) ^x"),
        PRODUCT.replace("MatMul(x, w)", 'MatMul[_class=("loc:@x")](x, w)'),
        "x = Placeholder[dtype=int32, shape=[2,3]]\nat = Placeholder[dtype=int32, shape=[]]\ny = Sum(x, at)\n",
        "x = Placeholder[dtype=float16, shape=[2,2,3]]\nq = Placeholder[dtype=int8, shape=[2,3,4]]\n"
        "y = BatchMatMulV3[Tout=float16](x, q)\n",
    ],
    ids=["float32", "elementwise", "control edge", "colocated", "integers", "narrower than half precision"],
)
def test_other_operations_stay(text: str) -> None:
    assert not unchanged(PASS, text).notes


def test_a_step_in_lowered_form_stays() -> None:
    assert not unchanged(PASS, PRODUCT, options=LOWERED).notes


def test_a_target_stays() -> None:
    assert not unchanged(PASS, PRODUCT, preserved=["y"]).notes


def reduction(rows: int | None, body: Any) -> Optimized:
    with hr.Graph():
        x = hr.placeholder(hr.float16, [rows, 4])
        return optimize([x], [body(x)], [PASS])


def test_a_large_reduction_outside_of_loops_stays() -> None:
    rows = thresholds.NATIVE_MAP // 4
    assert not reduction(rows, lambda x: hr.reduce_sum(x, 0)).changed
    assert not reduction(None, lambda x: hr.reduce_sum(x, 0)).changed
    assert reduction(rows - 1, lambda x: hr.reduce_sum(x, 0)).changed
    assert reduction(rows, lambda x: hr.cond(x[0, 0] > 0, lambda: hr.reduce_sum(x), lambda: x[0, 0])).changed


def test_a_conversion_leaves_its_loop_where_no_operation_is_widened() -> None:
    with hr.Graph():
        x, w = hr.placeholder(hr.float16, [3]), hr.placeholder(hr.float16, [3])
        body = lambda i, h: (i + 1, h + hr.cast(hr.cast(w, hr.float32) * 0.5, hr.float16))
        with hr.control_dependencies([x]):
            total = hr.reduce_sum(x)  # the control edge keeps it
        made = optimize([x, w], [hr.while_loop(lambda i, h: i < 3, body, (0, x))[1], total], [PASS])
        assert made.changed
        assert sum(op.type == "Cast" for op in made.graph.operations) == 2


def test_conversions_of_invariants_leave_all_loops() -> None:
    with hr.Graph():
        x, w = hr.placeholder(hr.float16, [2, 3]), hr.placeholder(hr.float16, [3, 3])
        n = hr.placeholder(hr.int32, [])

        def inner(h: Any) -> Any:
            return hr.while_loop(lambda i, h: i < 3, lambda i, h: (i + 1, hr.tanh(hr.matmul(h, w))), (0, h))[1]

        y = hr.while_loop(lambda i, h: i < n, lambda i, h: (i + 1, inner(h) * 0.5), (0, x))[1]
        made = optimize([x, w, n], [y], PASSES, options=Options())
        (loop,) = [op for op in made.graph.operations if op.type.endswith("While")]
        assert sum(op.type == "Cast" for op in made.graph.operations) == 1
        (body,) = [op.attrs["body"] for op in loop.attrs["body"].operations if op.type.endswith("While")]
        assert sorted(op.type for op in body.operations if op.type in ("Cast", "MatMul")) == ["Cast", "Cast", "MatMul"]
        values = [np.ones((2, 3), np.float16), np.full((3, 3), 0.3, np.float16), np.int32(2)]
        (got,) = made.run(values)
        (want,) = optimize([x, w, n], [y], []).run(values)
        np.testing.assert_array_equal(got, want)
