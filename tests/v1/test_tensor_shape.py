"""TensorShape and Dimension."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from headrace.v1.tensor_shape import Dimension, TensorShape, dimension_at_index, dimension_value, unknown_shape


def test_dimensions_calculate() -> None:
    d, unknown = Dimension(7), Dimension(None)
    assert [x.value for x in (d + 1, d - 2, 10 - d, 2 * d, d // 2, d % 4)] == [8, 5, 3, 14, 3, 3]
    assert all((x).value is None for x in (unknown + 1, 1 + unknown, d * unknown, unknown // 2, 3 - unknown))
    assert (d == 7, d != 7, d < 8, d >= 8) == (True, False, True, False)
    assert (unknown == 7) is None
    assert (unknown < 7) is None
    assert (int(d), str(d), repr(d), str(unknown)) == (7, "7", "Dimension(7)", "?")
    assert list(range(Dimension(3))) == [0, 1, 2]
    assert d.merge_with(unknown).value == 7
    with pytest.raises(TypeError, match="//"):
        d / 2
    with pytest.raises(ValueError, match=">= 0"):
        Dimension(-1)
    with pytest.raises(TypeError, match="whole number"):
        Dimension(1.5)
    with pytest.raises(ValueError, match="not compatible"):
        d.merge_with(8)


@pytest.mark.parametrize(
    ("dims", "text"),
    [(None, "<unknown>"), ([], "()"), ([3], "(3,)"), ([None, 3], "(?, 3)"), (4, "(4,)"), ([Dimension(2), 1], "(2, 1)")],
)
def test_shapes_print_as_in_tensorflow(dims: object, text: str) -> None:
    shape = TensorShape(dims)
    assert str(shape) == text
    assert TensorShape(shape) == shape
    assert pickle.loads(pickle.dumps(shape)) == shape


def test_shapes_know_what_they_know() -> None:
    s = TensorShape([None, 3, 4])
    assert (s.ndims, s.rank, len(s), s.as_list(), s[1].value, s[-1].value) == (3, 3, 3, [None, 3, 4], 3, 4)
    assert isinstance(s[1:], TensorShape)
    assert s[1:].as_list() == [3, 4]
    assert s[1:].num_elements() == 12
    assert s.num_elements() is None
    assert [d.value for d in s] == [None, 3, 4]
    assert s.is_compatible_with([2, 3, 4])
    assert not s.is_compatible_with([2, 3])
    assert s.merge_with([2, None, None]).as_list() == [2, 3, 4]
    assert s.most_specific_compatible_shape([1, 3, 5]).as_list() == [None, 3, None]
    assert s.concatenate([5]).as_list() == [None, 3, 4, 5]
    assert (s == [None, 3, 4], s == TensorShape(None), bool(TensorShape(None))) == (True, False, False)
    assert not s.is_fully_defined()
    assert np.asarray(TensorShape([2, 3])).tolist() == [2, 3]
    assert (dimension_value(s[1]), dimension_value(3), dimension_at_index(s, 0).value) == (3, 3, None)
    assert unknown_shape(2).as_list() == [None, None]
    for wrong in (lambda: s.merge_with([2, 3]), lambda: s.with_rank(2), lambda: s.assert_is_fully_defined(),
                  lambda: TensorShape(None).as_list(), lambda: np.asarray(s)):  # fmt: skip
        with pytest.raises(ValueError, match=r"[Ss]hape"):
            wrong()


def test_an_unknown_rank() -> None:
    s = TensorShape(None)
    assert (s.ndims, s.dims, s[3].value, s[1:3].as_list()) == (None, None, None, [None, None])
    assert s[1:] == TensorShape(None)
    assert s.merge_with([2]).as_list() == [2]
    with pytest.raises(ValueError, match="unknown rank"):
        len(s)
