"""Tensor arrays in sessions, and their gradients by the rules of the records."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from headrace import dtypes
from headrace.errors import InvalidArgumentError, NotFoundError, ShapeError, UnimplementedError
from headrace.ir.graph import Tensor
from headrace.resources.manager import ResourceManager, resource_of
from headrace.resources.tensor_array import TensorArray
from tests.ops.running import Program, check_gradient, gradients

f32, f64, i64 = dtypes.float32, dtypes.float64, dtypes.int64


@pytest.fixture
def p() -> Iterator[Program]:
    program = Program()
    with program.session:
        yield program


def array(p: Program, size: Any = 3, dtype: dtypes.DType = f32, **attrs: Any) -> tuple[Tensor, Tensor]:
    handle, flow = p.b.TensorArrayV3(size, dtype=dtype, **attrs)
    return handle, flow


# *** values ***


def test_writing_and_reading(p: Program) -> None:
    b = p.b
    a, flow = array(p)
    flow = b.TensorArrayWriteV3(a, 1, [1.0, 2.0], flow)
    assert p.run(b.TensorArrayReadV3(a, 1, flow, dtype=f32)).tolist() == [1, 2]
    assert p.run(flow) == 0
    assert p.run(b.TensorArraySizeV3(a, flow)) == 3
    grown, flow = array(p, 0, dynamic_size=True)
    flow = b.TensorArrayWriteV3(grown, 4, 1.0, flow)
    assert p.run(b.TensorArraySizeV3(grown, flow)) == 5


def test_many_at_once(p: Program) -> None:
    b = p.b
    a, flow = array(p)
    flow = b.TensorArrayScatterV3(a, [2, 0, 1], [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]], flow)
    assert p.run(b.TensorArrayGatherV3(a, [0, 2], flow, dtype=f32)).tolist() == [[3, 4], [1, 2]]
    a, flow = array(p)
    flow = b.TensorArraySplitV3(a, [1.0, 2.0, 3.0], b.const([2, 0, 1], i64), flow)
    value, lengths = p.run(list(b.TensorArrayConcatV3(a, flow, dtype=f32)))
    assert (value.tolist(), lengths.tolist()) == ([1, 2, 3], [2, 0, 1])


def test_a_tensor_array_refuses_what_does_not_fit(p: Program) -> None:
    b = p.b
    a, flow = array(p, tensor_array_name="name")
    written = b.TensorArrayWriteV3(a, 0, 1.0, flow)
    hidden = b.PlaceholderWithDefault(a, shape=None)
    gradient, _ = b.TensorArrayGradV3(a, flow, source="g")
    for use, match in (
        (b.TensorArrayWriteV3(a, 0, 1.0, written), r"TensorArray name_\d+: Could not write to TensorArray index 0"),
        (b.TensorArrayWriteV3(a, 3, 1.0, flow), "Tried to write to index 3 but array is not resizeable and size is: 3"),
        (b.TensorArrayReadV3(a, 1, flow, dtype=f32), "element shape is not fully defined: <unknown>"),
        (b.TensorArrayReadV3(a, p.feed(np.int32([1])), flow, dtype=f32), r"index must be scalar, but had shape: \[1\]"),
        (
            b.TensorArrayReadV3(hidden, 0, flow, dtype=f64),
            "is float32 but Op requested dtype float64",
        ),
        (b.TensorArrayWriteV3(hidden, 0, 1, flow), "TensorArray dtype is float32"),
        (b.TensorArraySizeV3(b.TensorArrayV3(p.feed(np.int32([1])), dtype=f32)[0], flow), "size must be scalar"),
        (b.TensorArraySizeV3(b.TensorArrayV3(-1, dtype=f32)[0], flow), "Size should be >= 0"),
        (b.after(b.TensorArrayCloseV3(a)).TensorArraySizeV3(a, flow), "has already been closed"),
        (b.TensorArrayGradV3(gradient, flow, source="g")[1], "Wrong input container"),
        (b.TensorArrayGradWithShape(a, flow, p.feed(np.int32([-1])), source="h")[1], "at least 0"),
    ):
        with p.fails(InvalidArgumentError, match):
            p.run(use)
    with p.fails(UnimplementedError, "size zero"):
        p.run(b.TensorArrayGatherV3(a, b.const([], dtypes.int32), flow, dtype=f32))


def test_an_array_ends_with_its_step(p: Program) -> None:
    a, _ = array(p)
    old = p.run(a)
    assert (old.kind, old.of_step, old.owned) == ("TensorArray", True, None)
    with p.fails(NotFoundError, r"Resource _tensor_arrays/.* does not exist"):
        resource_of(SimpleNamespace(session=ResourceManager(), resources=ResourceManager()), old, TensorArray)


def test_static_shapes(p: Program) -> None:
    b = p.b
    a, flow = array(p, element_shape=(2, None))
    assert b.TensorArrayReadV3(a, 0, flow, dtype=f32).shape == (2, None)
    assert b.TensorArrayGatherV3(a, [0, 1], flow, dtype=f32, element_shape=(None, 5)).shape == (2, 2, 5)
    assert b.TensorArrayGatherV3(a, [0, 1], flow, dtype=f32, element_shape=(3, 5)).shape == (2, 2, None)
    value, lengths = b.TensorArrayConcatV3(a, flow, dtype=f32, element_shape_except0=(5,))
    assert (value.shape, lengths.shape) == ((None, 5), (None,))
    g, _ = b.TensorArrayGradWithShape(a, flow, [7], source="g")
    assert b.TensorArrayReadV3(g, 0, flow, dtype=f32).shape == (7, 2, None)
    for wrong in (
        lambda: b.TensorArrayWriteV3(a, 0, 1.0, flow),
        lambda: b.TensorArrayWriteV3(a, [0], b.Placeholder(dtype=f32, shape=None), flow),
        lambda: b.TensorArrayScatterV3(a, [0], np.zeros((2, 2, 2), np.float32), flow),
        lambda: b.TensorArrayScatterV3(a, [0], np.zeros((1, 3, 3), np.float32), flow),
    ):
        with pytest.raises(ShapeError):
            wrong()


# *** gradient arrays ***


def test_writes_to_a_gradient_array_add(p: Program) -> None:
    b = p.b
    a, flow = array(p, 2)
    flow = b.TensorArrayWriteV3(a, 0, [1.0, 2.0], flow)
    g, gflow = b.TensorArrayGradV3(a, flow, source="gradients")
    again, _ = b.after(g).TensorArrayGradV3(a, flow, source="gradients")
    gflow = b.TensorArrayWriteV3(g, 0, [1.0, 1.0], gflow)
    gflow = b.TensorArrayWriteV3(again, 0, [2.0, 3.0], gflow)
    assert p.run(b.TensorArrayReadV3(g, 0, gflow, dtype=f32)).tolist() == [3, 4]


def test_tensor_array_gradients_match_differences(p: Program) -> None:
    """x goes through write and read, scatter and gather, split and concat."""
    b = p.b
    x = b.Placeholder(dtype=f64, shape=(3,))
    a, flow = array(p, 2, f64, clear_after_read=False)
    flow = b.TensorArrayWriteV3(a, 0, b.Square(x), flow)
    flow = b.TensorArrayWriteV3(a, 1, b.Exp(x), flow)
    one = b.Mul(b.TensorArrayReadV3(a, 0, flow, dtype=f64), b.TensorArrayReadV3(a, 1, flow, dtype=f64))
    c, flow = array(p, 3, f64, clear_after_read=False)
    flow = b.TensorArrayScatterV3(c, [0, 2], b.Pack([x, b.Square(x)]), flow)
    two = b.Sum(b.TensorArrayGatherV3(c, [2, 0, 2], flow, dtype=f64), 0)
    d, flow = array(p, 2, f64)
    flow = b.TensorArraySplitV3(d, b.Exp(x), b.const([1, 2], i64), flow)
    three = b.TensorArrayConcatV3(d, flow, dtype=f64)[0]
    y = b.AddN([one, two, three])
    check_gradient(p, y, {x: np.array([0.5, -1.0, 2.0])}, orders=1)
    # TensorFlow, too, has no second order: a value that is read from a gradient array has no array of its own
    (dx,) = gradients(b.within("gradients"), {y: b.ZerosLike(x)}, [x])
    with pytest.raises(LookupError, match="the gradient of a TensorArray, which has none"):
        gradients(b.within("gradients_1"), {dx: b.ZerosLike(x)}, [x])


def test_an_element_that_was_not_read_has_a_zero_gradient(p: Program) -> None:
    b = p.b
    x = b.Placeholder(dtype=f32, shape=(2,))
    a, flow = array(p, 2)
    flow = b.TensorArrayScatterV3(a, [0, 1], x, flow)
    y = b.TensorArrayReadV3(a, 0, flow, dtype=f32)
    (dx,) = gradients(b.within("gradients"), {y: b.const(3.0)}, [x])
    assert p.run(dx, {x: np.zeros(2, np.float32)}).tolist() == [3, 0]


def test_each_gradient_computation_has_its_own_array(p: Program) -> None:
    b = p.b
    x = b.Placeholder(dtype=f32, shape=())
    a, flow = array(p, 1)
    flow = b.TensorArrayWriteV3(a, 0, x, flow)
    y = b.TensorArrayReadV3(a, 0, flow, dtype=f32)
    both = [gradients(b.within("gradients"), {y: b.const(w)}, [x])[0] for w in (2.0, 5.0)]
    assert p.run(both, {x: np.float32(1)}) == [2, 5]


@pytest.mark.parametrize("v", ["V2", ""])
def test_versions_before_v3_go_by_name(p: Program, v: str) -> None:
    b = p.b

    def of(what: str, *args: Any, **attrs: Any) -> Any:
        return getattr(b, f"TensorArray{what}{v}")(*args, **attrs)

    x = b.Placeholder(dtype=f64, shape=(3,))
    start = b.const(np.float32(0))
    a = of("", 2, dtype=f64, clear_after_read=False)
    assert a.shape == (2,)
    flow = of("Write", a, 0, b.Square(x), start)
    flow = of("Write", a, 1, b.Exp(x), flow)
    one = b.Mul(of("Read", a, 0, flow, dtype=f64), of("Read", a, 1, flow, dtype=f64))
    c = of("", 3, dtype=f64)
    two = b.Sum(of("Gather", c, [2, 0], of("Scatter", c, [0, 2], b.Pack([x, x]), start), dtype=f64), 0)
    d = of("", 2, dtype=f64)
    three = of("Concat", d, of("Split", d, b.Exp(x), b.const([1, 2], i64), start), dtype=f64)[0]
    y = b.AddN([one, two, three])
    check_gradient(p, y, {x: np.array([0.5, -1.0, 2.0])}, orders=1)
    size = of("Size", d, start)
    closed = b.after(of("Close", d))
    with p.fails(InvalidArgumentError, "already been closed"):
        p.run(getattr(closed, f"TensorArraySize{v}")(d, start))
    assert p.run(size) == 2


def test_pack_and_unpack(p: Program) -> None:
    b = p.b
    x = np.array([[1.0, 2.0], [3.0, 4.0]])
    a, start = b.TensorArray(2, dtype=f64), b.const(np.float32(0))
    flow = b.TensorArrayUnpack(a, x, start)
    assert p.run(b.TensorArrayPack(a, flow, dtype=f64)).tolist() == x.tolist()
    with p.fails(InvalidArgumentError, "first dimension equal to the array size"):
        p.run(b.TensorArrayUnpack(a, x[:1], start))
    with p.fails(InvalidArgumentError, "Expected sum of lengths|does not match"):
        p.run(b.TensorArrayPack(a, flow, dtype=f64, element_shape=(3,)))
    with p.fails(NotFoundError, "a/b/TensorArray does not exist"):
        p.run(b.TensorArraySizeV2(np.array([b"a", b"b"], object), start))
    with p.fails(InvalidArgumentError, "must have two elements"):
        p.run(b.TensorArraySizeV2(p.feed(np.array([b"a"], object), dtypes.string), start))
