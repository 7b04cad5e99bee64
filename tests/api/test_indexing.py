"""Indexing: every form that numpy's basic indexing has, with numbers and with tensors for them."""

from __future__ import annotations

import contextlib
import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import headrace as hr
from headrace.api.tensors import placeholder

X = np.arange(24, dtype=np.float32).reshape(2, 3, 4)


def sliced(index: Any, feed: Any = None, shape: Any = X.shape) -> Any:
    with hr.Graph() as g:
        x = placeholder(hr.float32, shape)
        y = x[index]
    got = hr.Session(graph=g).run(y, {x: X, **(feed or {})})
    if shape is not None:
        assert y.shape == got.shape
    return got


def entries(n: int) -> st.SearchStrategy[Any]:
    bound = st.one_of(st.none(), st.integers(-n - 2, n + 2))
    step = st.sampled_from([None, 1, 2, -1, -3])
    return st.one_of(st.integers(-n, n - 1), st.builds(slice, bound, bound, step))


@st.composite
def indices(draw: st.DrawFn) -> tuple[Any, ...]:
    """An index of `X`: some entries for its axes.

    There is perhaps an ellipsis among them, and there are new axes anywhere.
    """
    taken = draw(st.integers(0, 3))
    first = draw(st.integers(0, taken))
    axes = [*range(first), *range(3 - (taken - first), 3)]
    parts: list[Any] = [draw(entries(X.shape[a])) for a in axes]
    if first < taken or draw(st.booleans()):
        parts.insert(first, Ellipsis)
    for _ in range(draw(st.integers(0, 2))):
        parts.insert(draw(st.integers(0, len(parts))), None)
    return tuple(parts)


@pytest.mark.matrix
@given(indices(), st.booleans())
@settings(max_examples=150, deadline=None)
def test_as_numpy(index: tuple[Any, ...], is_known: bool) -> None:
    got = sliced(index, shape=X.shape if is_known else None)
    assert np.array_equal(got, X[index])
    assert got.shape == X[index].shape


@given(indices(), st.booleans())
@settings(max_examples=40, deadline=None)
def test_eagerly_as_numpy(index: tuple[Any, ...], is_recorded: bool) -> None:
    x = hr.constant(X)
    if is_recorded:
        with hr.GradientTape() as tape:
            tape.watch(x)
            y = x[index]
    else:
        y = x[index]
    assert np.array_equal(y.numpy(), X[index])
    assert y.shape == X[index].shape


def test_the_gradient_of_elements_read_eagerly() -> None:
    x = hr.constant(X)
    with hr.GradientTape() as tape:
        tape.watch(x)
        y = x[0, 1, 2] + 2.0 * x[-1][0, 0] + hr.reduce_sum(x[..., 3]) + hr.reduce_sum(x[1:, ::2, 1])
    expected = np.zeros(X.shape, np.float32)
    expected[0, 1, 2] = 1
    expected[-1, 0, 0] = 2
    expected[..., 3] += 1
    expected[1:, ::2, 1] += 1
    assert np.array_equal(tape.gradient(y, x).numpy(), expected)


@pytest.mark.parametrize("is_recorded", [False, True])
@pytest.mark.parametrize(
    ("index", "error", "text"),
    [
        (2, hr.errors.InvalidArgumentError, "slice index 2 of dimension 0 out of bounds: it has 2 elements"),
        ((0, ..., -5), hr.errors.InvalidArgumentError, "slice index -5 of dimension 2 out of bounds"),
        ((0, 0, 0, 0), ValueError, "input has only 3 dims: [0, 0, 0, 0] has 4 entries"),
        (slice(None, None, 0), ValueError, "the step of a slice must not be 0, in [::0]"),
        ((..., ...), ValueError, "an index can have one '...' only, got ..., ..."),
        (True, TypeError, "valid indices, got True (bool)"),
        ((0, 1.0), TypeError, "valid indices, got 1.0 (float)"),
        (slice("a"), TypeError, "valid indices, got 'a' (str)"),
    ],
)
def test_errors_of_eager_indices_are_those_of_the_op(
    index: Any, error: type[Exception], text: str, is_recorded: bool
) -> None:
    x = hr.constant(X)
    with hr.GradientTape() if is_recorded else contextlib.nullcontext() as tape:
        if tape is not None:
            tape.watch(x)
        with pytest.raises(error, match=re.escape(text)):
            x[index]


@pytest.mark.matrix
@given(indices())
@settings(max_examples=60, deadline=None)
def test_with_tensors_for_numbers(index: tuple[Any, ...]) -> None:
    with hr.Graph() as g:
        x = placeholder(hr.float32, X.shape)
        feed: dict[Any, Any] = {x: X}

        def fed(n: int | None) -> Any:
            if n is None:
                return None
            t = placeholder(hr.int32, ())
            feed[t] = n
            return t

        tensors = tuple(
            slice(fed(e.start), fed(e.stop), e.step) if isinstance(e, slice) else fed(e) if isinstance(e, int) else e
            for e in index
        )
        y = x[tensors]
    assert np.array_equal(hr.Session(graph=g).run(y, feed), X[index])
    assert y.shape is not None
    assert len(y.shape) == X[index].ndim


def test_the_masks_are_tensorflows() -> None:
    with hr.Graph():
        x = placeholder(hr.float32, X.shape)
        names = ("begin_mask", "end_mask", "ellipsis_mask", "new_axis_mask", "shrink_axis_mask")

        def masks(index: Any) -> tuple[int, ...]:
            return tuple(x[index].op.attrs[n] for n in names)

        assert masks(0) == (0, 0, 0, 0, 1)
        assert masks((slice(None), 1)) == (1, 1, 0, 0, 2)
        assert masks((Ellipsis, None, slice(1, None), -1)) == (0, 4, 1, 2, 8)
        begin, end, strides = (t.op.attrs["value"].tolist() for t in x[..., None, 1:, -1].op.inputs[1:])
        assert (begin, end, strides) == ([0, 0, 1, -1], [0, 0, 0, 0], [1, 1, 1, 1])


def test_the_operations_are_tensorflows() -> None:
    with hr.Graph() as g:
        x, j = placeholder(hr.float32, X.shape, "x"), placeholder(hr.int32, (), "j")
        x[j:, 0]
    assert [op.name for op in g.operations[2:]] == [
        "Const", "Const_1", "strided_slice/stack/1", "strided_slice/stack", "strided_slice/stack_1/1",
        "strided_slice/stack_1", "strided_slice/stack_2/1", "strided_slice/stack_2", "strided_slice",
    ]  # fmt: skip


@pytest.mark.parametrize("kind", [np.int64, np.int32, np.uint8, np.array])
def test_numpy_integers(kind: Any) -> None:
    assert np.array_equal(sliced(kind(1)), X[1])


def test_wide_integers() -> None:
    with hr.Graph() as g:
        x = placeholder(hr.float32, X.shape)
        i = placeholder(hr.int64, ())
        parts = [x[i], x[i:], x[0, i:2], x[i, :1]]
    got = hr.Session(graph=g).run(parts, {x: X, i: 1})
    assert all(np.array_equal(a, b) for a, b in zip(got, [X[1], X[1:], X[0, 1:2], X[1, :1]], strict=True))


def test_boolean_masks() -> None:
    mask = X.sum(2) > 20
    assert np.array_equal(sliced(mask, shape=None), X[mask])
    with hr.Graph() as g:
        x = placeholder(hr.float32, X.shape)
        y = x[x > 5]
    assert y.shape == (None,)
    assert np.array_equal(hr.Session(graph=g).run(y, {x: X}), X[X > 5])


@pytest.mark.parametrize(
    ("index", "error", "says"),
    [
        (1.5, TypeError, r"Only integers, slices .* valid indices, got 1.5 \(float\) for 'x:0'"),
        ([0, 1], TypeError, r"got \[0, 1\] \(list\).*use hr.gather"),
        (np.array([0, 1]), TypeError, "use hr.gather"),
        ("a", TypeError, "got 'a'"),
        (True, TypeError, r"got True \(bool\)"),
        (slice(1.0, None), TypeError, "got 1.0"),
        ((0, 0, 0, 0), ValueError, r"has only 3 dims: \[0, 0, 0, 0\] has 4 entries for 'x:0' of shape \[2,3,4\]"),
        ((Ellipsis, 0, Ellipsis), ValueError, "one '...' only"),
        (slice(None, None, 0), ValueError, "the step of a slice must not be 0, in"),
        (5, ValueError, "slice index 5 of dimension 0 out of bounds.*test_indexing.py"),
    ],
)
def test_an_invalid_index_is_refused(index: Any, error: type, says: str) -> None:
    with hr.Graph():
        x = placeholder(hr.float32, X.shape, "x")
        with pytest.raises(error, match=f"(?s){says}"):
            x[index]


def test_tensors_that_are_no_index() -> None:
    with hr.Graph():
        x, v, f = placeholder(hr.float32, X.shape), placeholder(hr.int32, (2,), "v"), placeholder(hr.float32, (), "f")
        with pytest.raises(TypeError, match=r"an index must be an integer scalar, got <Tensor 'v:0'.*hr\.gather"):
            x[v]
        with pytest.raises(TypeError, match=r"got <Tensor 'f:0'.*cast it"):
            x[0, f:]


def test_outside_a_graph() -> None:
    x = hr.constant(X)
    assert np.array_equal(x[1, ..., ::2], X[1, ..., ::2])
    assert np.array_equal(x[hr.constant(1)], X[1])
    assert np.array_equal(x[x > 5.0], X[X > 5])
    with pytest.raises(TypeError, match=r"got 1.5 \(float\) for a tensor"):
        x[1.5]
