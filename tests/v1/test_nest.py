"""`tf.nest`; the values are TensorFlow's."""

from __future__ import annotations

import collections

import pytest

import headrace.v1 as tf

pytestmark = pytest.mark.one_engine

Pair = collections.namedtuple("Pair", "a b")


def test_leaves() -> None:
    assert tf.nest.flatten({"b": 1, "a": [2, (3,)]}) == [2, 3, 1]
    assert [tf.nest.flatten(x) for x in (5, None, [None, 1], {}, [[], ()])] == [[5], [None], [None, 1], [], []]
    assert [tf.nest.is_nested(x) for x in ([1], "a", None, Pair(1, 2), {})] == [True, False, False, True, True]
    sparse = tf.SparseTensorValue([[0]], [1.0], [2])
    assert tf.nest.flatten(sparse) == [0, 1.0, 2]


def test_packing() -> None:
    assert tf.nest.pack_sequence_as({"a": 0, "b": [0, None]}, [1, 2, 3]) == {"a": 1, "b": [2, 3]}
    assert tf.nest.pack_sequence_as(3, [4]) == 4
    with pytest.raises(ValueError, match="Structure had 2 atoms, but flat_sequence had 1 items"):
        tf.nest.pack_sequence_as([1, 2], [1])


def test_mapping() -> None:
    assert tf.nest.map_structure(lambda x, y: x + y, [1, (2,)], [3, (4,)]) == [4, (6,)]
    assert tf.nest.map_structure(lambda x: x, Pair(None, {"k": 1})) == Pair(None, {"k": 1})
    assert tf.nest.map_structure(lambda x, y: x, (1, 2), [3, 4], check_types=False) == (1, 2)
    with pytest.raises(ValueError, match="don't have the same nested structure"):
        tf.nest.map_structure(lambda x, y: x, [1], [1, 2])
    with pytest.raises(ValueError, match="at least one structure"):
        tf.nest.map_structure(lambda: 1)
    with pytest.raises(ValueError, match="Only valid keyword arguments"):
        tf.nest.map_structure(lambda x: x, [1], depth=1)


def test_structures_are_compared() -> None:
    tf.nest.assert_same_structure([1, {"a": None}], [3, {"a": 4}])
    tf.nest.assert_same_structure([1, 2], (3, 4), check_types=False)
    with pytest.raises(TypeError, match="First structure: type=list str=\\[1, 2\\]"):
        tf.nest.assert_same_structure([1, 2], (3, 4))
    for other in ([3, [4]], [1], 5):
        with pytest.raises(ValueError, match="don't have the same nested structure"):
            tf.nest.assert_same_structure([1, 2], other)
    with pytest.raises(ValueError, match="don't have the same nested structure"):
        tf.nest.assert_same_structure({"a": 1}, {"b": 1})
