"""Functions that lay tensors out again, take from them and fill them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import headrace as hr
from headrace.api import arrays, gathering
from headrace.api.indexing import boolean_mask
from headrace.api.tensors import constant_value, placeholder

X = np.arange(6, dtype=np.float32).reshape(2, 3)
B = np.arange(24, dtype=np.int32).reshape(4, 2, 3)


def value(f: Any, *values: Any) -> Any:
    """The value of `f` of placeholders; its static shape must fit the value."""
    with hr.Graph() as g:
        xs = [placeholder(hr.as_dtype(np.asarray(v).dtype), np.shape(v)) for v in values]
        y = f(*xs)
    got = hr.Session(graph=g).run(y, dict(zip(xs, values, strict=True)))
    for t, v in zip(y, got, strict=True) if isinstance(y, (list, tuple)) else [(y, got)]:
        assert t.shape is not None
        assert len(t.shape) == np.ndim(v)
        assert all(d in (None, n) for d, n in zip(t.shape, np.shape(v), strict=True))
        assert t.dtype == np.asarray(v).dtype
    return got


@pytest.mark.parametrize(
    ("f", "want"),
    [
        (lambda x: arrays.reshape(x, [-1, 2]), X.reshape(3, 2)),
        (lambda x: arrays.transpose(x), X.T),
        (lambda x: arrays.expand_dims(x, -1), X[..., None]),
        (lambda x: arrays.squeeze(arrays.expand_dims(x, 1), 1), X),
        (lambda x: arrays.broadcast_to(x, [2, 2, 3]), np.broadcast_to(X, (2, 2, 3))),
        (lambda x: arrays.concat([x, x], -1), np.concatenate([X, X], 1)),
        (lambda x: arrays.concat([x], 0), X),
        (lambda x: arrays.concat([x, [[7, 8, 9]]], 0), np.concatenate([X, [[7, 8, 9]]])),
        (lambda x: arrays.stack([x, x], -1), np.stack([X, X], -1)),
        (lambda x: arrays.parallel_stack([x, x]), np.stack([X, X])),
        (lambda x: arrays.tile(x, [1, 2]), np.tile(X, (1, 2))),
        (lambda x: arrays.pad(x, [[1, 0], [0, 2]]), np.pad(X, ((1, 0), (0, 2)))),
        (lambda x: arrays.pad(x, [[1, 0], [0, 2]], constant_values=9), np.pad(X, ((1, 0), (0, 2)), constant_values=9)),
        (lambda x: arrays.pad(x, [[0, 0], [2, 2]], "reflect"), np.pad(X, ((0, 0), (2, 2)), "reflect")),
        (lambda x: arrays.pad(x, [[0, 0], [2, 2]], "SYMMETRIC"), np.pad(X, ((0, 0), (2, 2)), "symmetric")),
        (lambda x: arrays.reverse(x, [1]), X[:, ::-1]),
        (lambda x: arrays.reverse_sequence(x, [2, 3], 1, 0), [[1, 0, 2], [5, 4, 3]]),
        (lambda x: arrays.roll(x, 1, 1), np.roll(X, 1, 1)),
        (lambda x: arrays.bitcast(x, hr.int32), X.view(np.int32)),
        (lambda x: arrays.zeros_like(x, hr.int32), np.zeros((2, 3), np.int32)),
        (lambda x: arrays.ones_like(x), np.ones((2, 3))),
        (lambda x: gathering.gather(x, [2, 0], axis=1), X[:, [2, 0]]),
        (lambda x: gathering.gather_nd(x, [[1, 2], [0, 0]]), [5, 0]),
        (lambda x: gathering.repeat(x, 2, axis=1), np.repeat(X, 2, 1)),
        (lambda x: gathering.repeat(x, [2, 0], axis=0), np.repeat(X, [2, 0], 0)),
        (lambda x: gathering.repeat(x, 2), np.repeat(X, 2)),
        (lambda x: gathering.slice(x, [0, 1], [-1, 2]), X[:, 1:3]),
        (lambda x: gathering.strided_slice(x, [0, 0], [2, 3], [1, 2]), X[:, ::2]),
        (lambda x: gathering.tensor_scatter_nd_update(x, [[1]], [[7.0, 8.0, 9.0]]), [X[0], [7, 8, 9]]),
        (lambda x: gathering.tensor_scatter_nd_add(x, [[0, 1]], [5.0]), X + np.array([[0, 5, 0], [0, 0, 0]])),
        (lambda x: gathering.where(x > 2, x, 0.0), np.where(X > 2, X, 0)),
        (lambda x: gathering.where(x > 2), np.argwhere(X > 2)),
        (lambda x: boolean_mask(x, x > 2), X[X > 2]),
        (lambda x: boolean_mask(x, [True, False, True], axis=1), X[:, [0, 2]]),
    ],
)
def test_array_functions_match_numpy(f: Any, want: Any) -> None:
    got = value(f, X)
    assert np.array_equal(got, want)


def test_taking_apart() -> None:
    assert [v.tolist() for v in value(lambda x: arrays.unstack(x, axis=1), X)] == [[0, 3], [1, 4], [2, 5]]
    assert [v.shape for v in value(lambda x: arrays.split(x, 3, 1), X)] == [(2, 1)] * 3
    assert [v.shape for v in value(lambda x: arrays.split(x, [1, -1], 1), X)] == [(2, 1), (2, 2)]
    with hr.Graph():
        unknown, lengths = placeholder(hr.float32), placeholder(hr.int32, (None,))
        with pytest.raises(ValueError, match="Cannot infer argument `num`"):
            arrays.unstack(unknown)
        with pytest.raises(ValueError, match="Cannot infer argument `num`"):
            arrays.split(unknown, lengths)
        assert len(arrays.split(unknown, lengths, num=2)) == 2
        with pytest.raises(ValueError, match=r"axis = 2 not in \[-2, 2\)"):
            arrays.unstack(hr.constant(X), axis=2)
        with pytest.raises(ValueError, match=r"axis = 3 not in \[-3, 3\)"):
            arrays.stack([hr.constant(X)], axis=3)


def test_shapes_are_constants_where_they_are_known() -> None:
    with hr.Graph() as g:
        known, open_, unknown = (placeholder(hr.float32, s) for s in ((2, 3), (None, 3), None))
        assert constant_value(arrays.shape(known, hr.int64)).tolist() == [2, 3]
        assert (constant_value(arrays.rank(open_)), constant_value(arrays.size(known))) == (2, 6)
        made = [arrays.shape(open_), arrays.rank(unknown), arrays.size(open_)]
        assert [t.op.type for t in made] == ["Shape", "Rank", "Size"]
        assert [op.name for op in g.operations[3:6]] == ["Shape", "Rank", "Size"]
        assert arrays.broadcast_static_shape((2, 1), (None,)) == (2, None)


def test_filling() -> None:
    with hr.Graph() as g:
        n = placeholder(hr.int32, ())
        tensors = {
            arrays.zeros([2, 3]): np.zeros((2, 3)),
            arrays.zeros([n, 2], hr.int64): np.zeros((2, 2), np.int64),
            arrays.zeros([2], hr.string): np.array([b"", b""], object),
            arrays.zeros([100, 100]): np.zeros((100, 100)),
            arrays.zeros(()): np.zeros(()),
            arrays.ones(3, hr.bool): np.ones(3, bool),
            arrays.ones(arrays.shape(n)): np.ones(()),
            arrays.fill([n, 1], 7): np.full((2, 1), 7),
            arrays.fill([], 7): np.array(7),
            arrays.one_hot([0, 2, 5], 3): np.array([[1, 0, 0], [0, 0, 1], [0, 0, 0]]),
            arrays.one_hot([1], 2, on_value=5, off_value=-1, axis=0): np.array([[-1], [5]]),
        }
    got = hr.Session(graph=g).run(list(tensors), {n: 2})
    assert all(np.array_equal(a, b) for a, b in zip(got, tensors.values(), strict=True))
    with hr.Graph(), pytest.raises(hr.errors.ShapeError, match="the shape of zeros must be known"):
        arrays.zeros([None, 2])


def test_grids() -> None:
    x, y = np.array([1.0, 2.0, 3.0]), np.array([4.0, 5.0])
    for indexing in ("xy", "ij"):
        got = value(lambda a, b, k=indexing: arrays.meshgrid(a, b, indexing=k), x, y)
        assert all(np.array_equal(g, w) for g, w in zip(got, np.meshgrid(x, y, indexing=indexing), strict=True))


def test_gathering_in_batches() -> None:
    indices = np.array([[1, 0], [0, 0], [1, 1], [0, 1]], np.int32)
    got = value(lambda b, i: gathering.gather(b, i, batch_dims=1), B, indices)
    assert np.array_equal(got, [b[i] for b, i in zip(B, indices, strict=True)])
    points = np.array([[1, 0], [0, 2], [1, 1], [0, 0]], np.int64)
    got = value(lambda b, i: gathering.gather_nd(b, i, batch_dims=1), B, points)
    assert np.array_equal(got, [b[tuple(i)] for b, i in zip(B, points, strict=True)])
    pairs = np.arange(8, dtype=np.int32).reshape(4, 2, 1) % 3
    got = value(lambda b, i: gathering.gather_nd(b, i, batch_dims=2), B, pairs)
    assert np.array_equal(got, [[B[i, j, pairs[i, j, 0]] for j in range(2)] for i in range(4)])


def test_parts_and_wholes() -> None:
    data = np.array([1.0, 2.0, 3.0], np.float32)
    one, two = value(lambda x: gathering.dynamic_partition(x, [0, 1, 0], 2), data)
    assert (one.tolist(), two.tolist()) == ([1, 3], [2])
    assert value(lambda x: gathering.dynamic_stitch([[0, 2], [1]], [x[:2], x[2:]]), data).tolist() == [1, 3, 2]
    assert value(lambda x: gathering.scatter_nd([[2]], x[:1], [4]), data).tolist() == [0, 0, 1, 0]
    different, which, counts = value(gathering.unique_with_counts, np.array([5, 5, 7], np.int32))
    assert (different.tolist(), which.tolist(), counts.tolist()) == ([5, 7], [0, 0, 1], [2, 1])
    left, at = value(lambda x: gathering.setdiff1d(x, [2.0]), data)
    assert (left.tolist(), at.tolist()) == ([1, 3], [0, 2])


def test_masks() -> None:
    with hr.Graph():
        x = placeholder(hr.float32, (2, 3))
        with pytest.raises(ValueError, match="x and y must both be non-None or both be None"):
            gathering.where(x > 0, x)
        with pytest.raises(hr.errors.ShapeError, match=r"the mask has shape \[3\], but .* have \[2\]"):
            boolean_mask(x, [True, False, True])
        with pytest.raises(hr.errors.ShapeError, match="a mask cannot be a scalar"):
            boolean_mask(x, True)
        with pytest.raises(hr.errors.ShapeError, match="the rank of a mask must be known"):
            boolean_mask(x, placeholder(hr.bool))
        assert boolean_mask(x, [True, False]).shape == (None, 3)
    want = [[True, False, False], [True, True, True]]
    lengths = np.array([1, 3], np.int32)
    assert value(lambda n: gathering.sequence_mask(n), lengths).tolist() == want
    assert value(lambda n: gathering.sequence_mask(n, 2, hr.int32), lengths).tolist() == [[1, 0], [1, 1]]
