"""`ir.static_info`: static shapes and contents of handles, and the methods that change them."""

from typing import Any

import pytest

from headrace import dtypes
from headrace.errors import ShapeError
from headrace.ir.graph import Graph, Tensor
from headrace.ir.static_info import merged


def tensor(shape: Any = None, handle: Any = None) -> Tensor:
    t = Graph().add_op("Placeholder", "x", attrs={"dtype": dtypes.variant}).outputs[0]
    t.replace_static(shape, handle)
    return t


@pytest.mark.parametrize(
    ("present", "more", "expected"),
    [
        (None, None, None),
        (None, (2, None), (2, None)),
        ((2, None), None, (2, None)),
        ((2, None), (None, 3), (2, 3)),
        ((), (), ()),
    ],
)
def test_refine_keeps_what_either_shape_says(present: Any, more: Any, expected: Any) -> None:
    t = tensor(present)
    t.refine(more)
    assert t.static_shape == t.shape == expected


@pytest.mark.parametrize(("present", "more"), [((2,), (3,)), ((), (1,)), ((None, 2), (2, 3))])
def test_refine_refuses_a_contradicting_shape(present: Any, more: Any) -> None:
    t = tensor(present, (dtypes.float32, (1,)))
    version = t.graph.version
    with pytest.raises(ShapeError, match=r"is not compatible with supplied shape .*'x:0'"):
        t.refine(more, (dtypes.float32, None))
    assert t.shape == present
    assert t.handle == (dtypes.float32, (1,))
    assert t.graph.version == version


def test_refine_merges_the_contents_of_a_handle() -> None:
    t = tensor((), (dtypes.float32, (2, None)))
    t.refine(handle=(dtypes.float32, (None, 3)))
    assert (t.shape, t.handle) == ((), (dtypes.float32, (2, 3)))
    t.refine(())
    assert t.handle == (dtypes.float32, (2, 3))


@pytest.mark.parametrize("handle", [(dtypes.int32, (2,)), (dtypes.float32, (3,))])
def test_refine_refuses_contradicting_contents_of_a_handle(handle: Any) -> None:
    t = tensor((), (dtypes.float32, (2,)))
    with pytest.raises(ShapeError, match=r"\[\] of float32\[2\] is not compatible"):
        t.refine((), handle)
    assert t.handle == (dtypes.float32, (2,))


def test_replaced_information_may_contradict_the_present() -> None:
    t, other = tensor((2,), (dtypes.float32, (2,))), tensor((3, None), (dtypes.int32, None))
    t.replace_static((5,), None)
    assert (t.shape, t.handle) == ((5,), None)
    t.copy_static(other)
    assert (t.shape, t.handle) == ((3, None), (dtypes.int32, None))


def test_only_changed_information_raises_the_version_of_the_graph() -> None:
    t = tensor((2, None), (dtypes.float32, None))
    version = t.graph.version
    t.refine((None, None), (dtypes.float32, None))
    t.replace_static((2, None), (dtypes.float32, None))
    t.copy_static(t)
    assert t.graph.version == version
    for change in (
        lambda: t.refine((2, 3)),
        lambda: t.refine(handle=(dtypes.float32, (1,))),
        lambda: t.replace_static(None, None),
        lambda: t.copy_static(tensor((7,))),
    ):
        before = t.graph.version
        change()
        assert t.graph.version > before


def test_merged_information_is_symmetric() -> None:
    a, b = ((2, None), (dtypes.float32, (None,))), ((None, 3), (dtypes.float32, (4,)))
    assert merged(a, b) == merged(b, a) == ((2, 3), (dtypes.float32, (4,)))
    with pytest.raises(ValueError, match="Handles must refer to one dtype"):
        merged(a, (None, (dtypes.int32, None)))
