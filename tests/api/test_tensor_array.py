"""`api.tensor_array`: reading, writing, stacking, and what is known of shapes before anything runs."""

from typing import Any

import numpy as np
import pytest

import headrace as hr
from headrace.api import scopes
from headrace.api.tensor_array import TensorArray
from headrace.api.while_loop import while_loop
from headrace.errors import InvalidArgumentError, ShapeError, SignatureError
from headrace.ir.graph import Operation
from tests.api.running import run

pytestmark = pytest.mark.usefixtures("g")

B = scopes.builder


def same(fetch, want):
    np.testing.assert_array_equal(run(fetch), want)


def test_write_read_stack():
    a = TensorArray(hr.float32, size=3)
    b = a.write(0, [1.0, 2.0]).write(2, [5.0, 6.0])
    same(b.stack(), [[1, 2], [0, 0], [5, 6]])
    same(b.read(2), [5, 6])
    assert b.read(2).shape == (2,)
    assert b.stack().shape == (3, 2)
    same(b.size(), 3)


def test_arrays_are_values():
    a = TensorArray(hr.int32, size=2, element_shape=()).write(0, 1)
    b, c = a.write(1, 2), a.write(1, 3)
    same([a.stack(), b.stack(), c.stack()], [[1, 0], [1, 2], [1, 3]])


def test_names_are_those_of_tensorflow_2(g):
    a = TensorArray(hr.float32, size=1)
    a.write(0, 1.0).read(0)
    a.stack(name="all")
    made = {op.name for op in g.operations}
    assert made >= {
        "TensorArray/TensorListReserve", "TensorArrayV2Write/TensorListSetItem", "TensorArrayV2Read/TensorListGetItem",
        "all/TensorListStack",
    }  # fmt: skip


def test_unstack_gather_scatter():
    a = TensorArray(hr.int32, size=3).unstack([[1, 2], [3, 4], [5, 6]])
    assert a.element_shape == (2,)
    same(a.gather([2, 0]), [[5, 6], [1, 2]])
    assert a.gather([2, 0]).shape == (2, 2)
    b = TensorArray(hr.int32, size=3).scatter([2, 0], [[1], [2]])
    same(b.stack(), [[2], [0], [1]])
    same(TensorArray(hr.int32, size=0, dynamic_size=True).unstack([7, 8]).size(), 2)


def test_concat_and_split():
    a = TensorArray(hr.float32, size=2, infer_shape=False).write(0, [1.0]).write(1, [2.0, 3.0])
    same(a.concat(), [1, 2, 3])
    b = TensorArray(hr.float32, size=2, infer_shape=False).split([[1.0], [2.0], [3.0]], [1, 2])
    same([b.read(0)], [[[1]]])
    same(b.read(1), [[2], [3]])
    assert b.concat().shape == (None, 1)
    even = TensorArray(hr.float32, size=2).split([1.0, 2.0, 3.0, 4.0], [2, 2])
    assert even.element_shape == (2,)
    same(even.stack(), [[1, 2], [3, 4]])


def test_dynamic_size():
    a = TensorArray(hr.int32, size=0, dynamic_size=True)
    same(a.write(3, 5).stack(), [0, 0, 0, 5])
    assert a.write(3, 5).stack().shape == (None,)
    _, grown = while_loop(lambda i, _: B().Less(i, 4), lambda i, a: (B().AddV2(i, 1), a.write(i, i)), (0, a))
    same(grown.stack(), [0, 1, 2, 3])
    with pytest.raises(InvalidArgumentError, match="index"):
        run(TensorArray(hr.int32, size=1).write(3, 5).flow.op)


def test_a_size_that_is_not_known():
    n = B().Placeholder(dtype=hr.int32, shape=())
    a = TensorArray(hr.float32, n, element_shape=(2,))
    assert a.stack().shape == (None, 2)
    assert run(a.stack(), {n: 3}).shape == (3, 2)


def test_element_shapes():
    a = TensorArray(hr.float32, size=2, element_shape=(None, 3))
    assert a.read(0).shape == (None, 3)
    assert a.write(0, np.zeros((2, 3), np.float32)).element_shape == (2, 3)
    assert a.element_shape == (None, 3)
    loose = TensorArray(hr.float32, size=2, infer_shape=False).write(0, [1.0])
    assert loose.element_shape is None
    loose.write(1, [1.0, 2.0])
    with pytest.raises(ShapeError, match=r"Inconsistent shapes: saw \[2\] but expected \[\?,3\] in TensorArray.write"):
        a.write(0, [1.0, 2.0])
    with pytest.raises(ShapeError, match=r"saw \[2\] but expected \[1\]"):
        TensorArray(hr.float32, size=2).write(0, [1.0]).write(1, [1.0, 2.0])


def test_dtypes_are_checked():
    a = TensorArray(hr.float32, size=2)
    with pytest.raises(SignatureError, match="TensorArray dtype is float32, but what is put into it is not"):
        a.write(0, B().const(1))
    same(a.write(0, 1).write(1, 2).stack(), [1, 2])
    same(a.write(B().const(1, hr.int64), 1.0).read(B().const(1, hr.int64)), 1)


def test_bad_arguments():
    with pytest.raises(ValueError, match="needs its 'size'"):
        TensorArray(hr.float32)
    with pytest.raises(ValueError, match="not both"):
        TensorArray(hr.float32, size=1, flow=TensorArray(hr.float32, size=1).flow)
    with pytest.raises(ValueError, match="'handle' must be None"):
        TensorArray(hr.float32, size=1, handle=3)
    with pytest.raises(NotImplementedError, match="gradients go through"):
        TensorArray(hr.float32, size=1).grad("g")


def test_the_rest():
    a = TensorArray(hr.int32, size=1).write(0, 4)
    b = TensorArray(hr.int32, flow=a.flow)
    same(b.read(0), 4)
    assert isinstance(a.close(), Operation)
    with scopes.control_dependencies([B().NoOp(name="first")]):
        held = a.identity()
    assert [c.name for c in held.flow.op.control_inputs] == ["first"]
    assert (a.dtype, a.dynamic_size, a.handle) == (hr.int32, False, None)
    assert repr(a) == "<TensorArray dtype=int32 element_shape=[]>"


def rows(x: Any) -> hr.TensorArray:
    return hr.TensorArray(hr.float32, 0, dynamic_size=True).unstack(x)


# programs of x, three rows, and w, a row: an array that grows beyond the rows of x; and which of its rows w is
GROWING: dict[str, tuple[Any, list[int]]] = {
    "next": (lambda x, w: rows(x).write(3, w), [3]),
    "at its size": (lambda x, w: rows(x).write(hr.shape(x)[0], w), [3]),
    "beyond a gap": (lambda x, w: rows(x).write(5, w), [5]),
    "twice": (lambda x, w: rows(x).write(3, w).write(4, w), [3, 4]),
    "in a loop": (
        lambda x, w: hr.while_loop(lambda i, _: i < 6, lambda i, t: (i + 1, t.write(i, w)), [3, rows(x)])[1], [3, 4, 5]
    ),
    "in a branch": (
        lambda x, w: hr.cond(hr.reduce_sum(x) > 0.0, lambda: rows(x).write(3, w), lambda: rows(x)), [3]
    ),
    "scattered": (
        lambda x, w: hr.TensorArray(hr.float32, 0, dynamic_size=True).scatter([0, 1, 2], x).write(3, w), [3]
    ),
}  # fmt: skip


@pytest.mark.parametrize("static", [(3, 2), (None, 2), None])
@pytest.mark.parametrize("program", GROWING)
def test_rows_of_an_array_that_grows_have_their_gradients(program: str, static: Any) -> None:
    build, places = GROWING[program]
    X, W = np.arange(1.0, 7.0, dtype=np.float32).reshape(3, 2), np.array([7.0, 8.0], np.float32)
    with hr.Graph() as g:
        x, w = hr.placeholder(hr.float32, static), hr.placeholder(hr.float32, (2,))
        y = build(x, w).stack()
        factors = hr.reshape(hr.range(1.0, 1.0 + hr.cast(hr.size(y), hr.float32)), hr.shape(y))
        dx, dw = hr.gradients(hr.reduce_sum(y * y * factors), [x, w])
        ddx, ddw = hr.gradients(hr.reduce_sum(dx * dx) + hr.reduce_sum(dw), [x, w])
    with hr.Session(graph=g) as s:
        got = s.run([y, dx, dw, ddx, ddw], {x: X, w: W})
    want = np.zeros((max(places) + 1, 2), np.float32)
    want[:3], want[places] = X, W
    c = np.arange(1.0, 1.0 + want.size, dtype=np.float32).reshape(want.shape)
    of_w = c[places].sum(0)
    for a, b in zip(got, [want, 2 * c[:3] * X, 2 * of_w * W, 8 * c[:3] ** 2 * X, 2 * of_w], strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6)
