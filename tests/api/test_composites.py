"""`SparseTensor` and `IndexedSlices` as values: functions, control flow, fetches, feeds and texts of them."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import headrace as hr
from headrace import nest
from headrace.errors import FeedError, ShapeError, SignatureError

VALUES = np.array([[3, -4], [0.5, 0]], np.float32)


def sparse(values: Any = (1.0, -2.0)) -> hr.SparseTensor:
    return hr.SparseTensor([[0, 1], [1, 0]], np.asarray(values, np.float32), [2, 3])


def slices(shape: bool = True) -> hr.IndexedSlices:
    return hr.IndexedSlices(hr.constant(VALUES), hr.constant([1, 3]), hr.constant([5, 2]) if shape else None)


def run(graph: hr.Graph, fetches: Any, feeds: Any = None) -> Any:
    with hr.Session(graph=graph) as session:
        return session.run(fetches, feeds)


# *** functions ***


@pytest.mark.parametrize("name", "abs negative square tanh sign sin tan asin atan asinh atanh sqrt".split())
def test_functions_that_give_0_for_0_map_the_values_of_a_sparse_tensor(name: str) -> None:
    values = np.array([0.25, 0.5], np.float32)
    got = getattr(hr, name)(sparse(values))
    assert isinstance(got, hr.SparseTensor)
    np.testing.assert_array_equal(got.values.numpy(), getattr(hr, name)(values).numpy())
    assert (got.indices.numpy().tolist(), got.dense_shape.numpy().tolist()) == ([[0, 1], [1, 0]], [2, 3])


def test_functions_that_do_not_give_0_for_0_refuse_a_sparse_tensor() -> None:
    for refused in (hr.exp, hr.cos, lambda x: -x, lambda x: 2.0 * x, lambda x: x + x, lambda x: hr.multiply(x, 2.0)):
        with pytest.raises(TypeError):
            refused(sparse())


@pytest.mark.parametrize("make", [lambda x: x * 2.0, lambda x: hr.constant([[2.0]]) * x, lambda x: hr.divide(x, 0.5)])
def test_products_with_tensors_are_sparse(make: Any) -> None:
    np.testing.assert_array_equal(make(sparse()).numpy(), [[0, 2, 0], [-4, 0, 0]])


def test_what_a_sparse_tensor_is_like() -> None:
    sp = sparse()
    assert (hr.shape(sp).numpy().tolist(), int(hr.size(sp)), int(hr.rank(sp))) == ([2, 3], 6, 2)
    assert hr.zeros_like(sp, hr.int32).numpy().tolist() == [[0, 0, 0], [0, 0, 0]]
    assert hr.constant_value(sp) is None
    assert hr.cast(sp, hr.int32).values.numpy().tolist() == [1, -2]


@pytest.mark.parametrize("is_known", [True, False])
def test_slices_stay_slices(is_known: bool) -> None:
    s = slices(is_known)
    (clipped, nothing), norm = hr.clip_by_global_norm([s, None], 2.5)
    wanted = {
        "negated": (-s, -VALUES),
        "cast": (hr.cast(s, hr.float64), VALUES),
        "copied": (hr.identity(s), VALUES),
        "constant": (hr.stop_gradient(s), VALUES),
        "clipped by value": (hr.clip_by_value(s, -1.0, 1.0), np.clip(VALUES, -1, 1)),
        "clipped by norm": (hr.clip_by_norm(s, 2.0, [1]), [[1.2, -1.6], [0.5, 0]]),
        "clipped together": (clipped, VALUES * (2.5 / np.sqrt(25.25))),
    }
    assert nothing is None
    assert float(norm) == pytest.approx(np.sqrt(25.25))
    for what, (got, values) in wanted.items():
        assert isinstance(got, hr.IndexedSlices), what
        np.testing.assert_allclose(got.values.numpy(), values, rtol=1e-6, err_msg=what)
        assert got.indices.numpy().tolist() == [1, 3]
        assert (got.dense_shape is None) is (not is_known)


def test_clipping_by_a_negative_norm_gives_zeros() -> None:
    for norm in (-1.0, hr.constant(-1.0)):
        np.testing.assert_array_equal(hr.clip_by_norm(VALUES, norm).numpy(), 0 * VALUES)


def test_momentum_leaves_rows_alone_that_no_clipped_gradient_has() -> None:
    with hr.Graph() as g:
        table = hr.Variable(np.ones((4, 1), np.float32))
        optimizer = hr.train.Momentum(0.5, momentum=0.5)
        row = hr.placeholder(hr.int32, (1,))
        ((grad, _),) = optimizer.compute_gradients(hr.reduce_sum(hr.gather(table, row) * 3.0), [table])
        (clipped,), _ = hr.clip_by_global_norm([grad], 1.0)
        step = optimizer.apply_gradients([(clipped, table)])
    with hr.Session(graph=g) as session:
        session.run([v.initializer for v in g.variables])
        session.run(step, {row: [2]})
        session.run(step, {row: [1]})  # the rest of row 2's momentum moves it only when its turn comes
        np.testing.assert_array_equal(session.run(table), [[1], [0.5], [0.5], [1]])
        session.run(step, {row: [2]})
        np.testing.assert_array_equal(session.run(table), [[1], [0.5], [-0.25], [1]])


# *** conditionals, loops, functions, rows ***


@pytest.mark.parametrize("is_known", [True, False])
def test_loops_carry_slices(is_known: bool) -> None:
    with hr.Graph() as g:
        _, s = hr.while_loop(
            lambda i, s: i < 3, lambda i, s: (i + 1, s.with_values(s.values * 2.0)), (0, slices(is_known))
        )
        assert isinstance(s, hr.IndexedSlices)
        assert s.values.shape == (2, 2)
    got = run(g, s)
    assert isinstance(got, hr.IndexedSlicesValue)
    np.testing.assert_array_equal(got.values, VALUES * 8)
    assert (None if got.dense_shape is None else got.dense_shape.tolist()) == ([5, 2] if is_known else None)


def test_the_number_of_elements_of_a_sparse_loop_variable_may_change() -> None:
    def body(i: Any, x: Any) -> Any:
        assert (x.indices.shape, x.values.shape, x.dense_shape.shape) == ((None, 2), (None,), (2,))
        return i + 1, hr.sparse.concat(0, [x, sparse()])

    with hr.Graph() as g:
        _, x = hr.while_loop(lambda i, x: i < 2, body, (0, sparse()))
        _, y = hr.while_loop(lambda i, x: i < 2, body, (0, sparse()), ((), (2,)))
    for got in run(g, [x, y]):
        assert got.values.tolist() == [1, -2] * 3
        assert got.dense_shape.tolist() == [6, 3]


def test_the_number_of_rows_of_a_loop_variable_changes_by_a_shape_invariant_alone() -> None:
    def body(i: Any, s: Any) -> Any:
        values = hr.concat([s.values, [[7.0, 8.0]]], 0)
        return i + 1, hr.IndexedSlices(values, hr.concat([s.indices, [i]], 0), s.dense_shape)

    with hr.Graph() as g:
        _, s = hr.while_loop(lambda i, s: i < 2, body, (0, slices()), ((), (None, 2)))
        with pytest.raises(ShapeError, match="shape_invariants"):
            hr.while_loop(lambda i, s: i < 2, body, (0, slices()))
    assert run(g, s).indices.tolist() == [1, 3, 0, 1]


@pytest.mark.parametrize(
    ("invariant", "says"), [((3,), "not compatible"), ((2, 2), "dense_shape"), ((), "dense_shape")]
)
def test_the_shape_invariant_of_a_sparse_tensor_is_the_shape_of_its_shape(invariant: Any, says: str) -> None:
    with hr.Graph(), pytest.raises(ShapeError, match=says):
        hr.while_loop(lambda i, x: i < 2, lambda i, x: (i + 1, x), (0, sparse()), ((), invariant))


def test_a_loop_refuses_a_tensor_in_the_place_of_slices() -> None:
    with hr.Graph(), pytest.raises(SignatureError, match="IndexedSlices"):
        hr.while_loop(lambda i, s: i < 2, lambda i, s: (i + 1, s.values), (0, slices()))


def test_branches_return_composites() -> None:
    with hr.Graph() as g:
        p = hr.placeholder(hr.bool, ())
        out = hr.cond(
            p, lambda: {"a": slices(), "b": (1, sparse())}, lambda: {"a": -slices(), "b": (2, hr.abs(sparse()))}
        )
        narrow, wide = slices(), dataclasses.replace(slices(), indices=hr.constant([2, 4], hr.int64))
        mixed = hr.cond(p, lambda: narrow, lambda: wide)
        with pytest.raises(SignatureError, match="same nested structure"):
            hr.cond(p, slices, lambda: slices(False))
        with pytest.raises(SignatureError, match="same nested structure"):
            hr.cond(p, slices, lambda: hr.constant(VALUES))
    for pred in (True, False):
        got, either = run(g, [out, mixed], {p: pred})
        np.testing.assert_array_equal(got["a"].values, VALUES if pred else -VALUES)
        assert (got["b"][0], got["b"][1].values.tolist()) == ((1, [1, -2]) if pred else (2, [1, 2]))
        assert (either.indices.tolist(), either.indices.dtype) == ([1, 3] if pred else [2, 4], np.int64)


def test_functions_take_and_give_slices() -> None:
    @hr.Function
    def twice(s: Any) -> Any:
        return s.with_values(s.values * 2.0)

    with hr.Graph() as g:
        got = run(g, twice(slices(False)))
    np.testing.assert_array_equal(got.values, VALUES * 2)


def test_gradients_go_through_the_values_of_composites_in_loops() -> None:
    with hr.Graph() as g:
        v = hr.placeholder(hr.float32, (2,))
        start = hr.SparseTensor([[0], [1]], v, [2])
        _, x = hr.while_loop(lambda i, x: i < 2, lambda i, x: (i + 1, hr.square(x)), (0, start))
        (dv,) = hr.gradients(x.values, v)
        for what in (lambda: hr.gradients(v, start), lambda: hr.gradients(x, v), lambda: hr.gradients(v, slices())):
            with pytest.raises(SignatureError, match="not supported as a gradient source or gradient target"):
                what()
    np.testing.assert_array_equal(run(g, dv, {v: [1, -2]}), [4, -32])


def test_map_fn_takes_and_gives_rows_of_sparse_tensors() -> None:
    with hr.Graph() as g:
        sums = hr.map_fn(hr.sparse.reduce_sum, sparse(), fn_output_signature=hr.float32)
        squares = hr.map_fn(hr.square, sparse())
        spec = hr.SparseTensorSpec((3,), hr.float32)
        made = hr.map_fn(hr.sparse.from_dense, hr.constant([[0.0, 1, 2], [3, 0, 0]]), fn_output_signature=spec)
        assert (squares.shape, made.shape) == ((2, 3), (None, 3))
        with pytest.raises(SignatureError, match="must return a SparseTensor of dtype float32"):
            hr.map_fn(hr.sparse.to_dense, sparse())
        with pytest.raises(TypeError, match="SparseTensor"):
            hr.foldl(lambda a, x: a, sparse(), 0.0)
        with pytest.raises(TypeError, match="SparseTensor"):
            hr.scan(lambda a, x: a, hr.constant([1.0]), sparse())
    got = run(g, [sums, squares, made])
    assert got[0].tolist() == [1, -2]
    assert (got[1].values.tolist(), got[1].indices.tolist()) == ([1, 4], [[0, 1], [1, 0]])
    assert (got[2].values.tolist(), got[2].dense_shape.tolist()) == ([1, 2, 3], [2, 3])


def test_rows_of_slices_are_those_of_the_whole() -> None:
    with hr.Graph() as g:
        got = run(g, hr.foldl(lambda a, x: a + x, slices(), hr.zeros((2,))))
    np.testing.assert_array_equal(got, VALUES.sum(0))


# *** fetched and fed ***


def test_slices_are_fetched_and_fed() -> None:
    with hr.Graph() as g:
        values, indices = hr.placeholder(hr.float32, (None, 2)), hr.placeholder(hr.int32, (None,))
        s = hr.IndexedSlices(values, indices)
        fixed = slices()
        out = {"x": (s.with_values(values * 2.0), [fixed, fixed.values])}
    with hr.Session(graph=g) as session:
        value = session.run(fixed)
        rows, at, shape = value
        assert (at.tolist(), shape.tolist()) == ([1, 3], [5, 2])
        rows[:] = 0  # the caller's own
        call = session.make_callable(out, [s])
        for given in (
            hr.IndexedSlicesValue(VALUES, [1, 3]),
            (VALUES, [1, 3]),
            [VALUES, [1, 3]],
            (VALUES, [1, 3], [9, 2]),
        ):
            for got in (session.run(out, {s: given}), call(given)):
                np.testing.assert_array_equal(got["x"][0].values, VALUES * 2)
                assert got["x"][0].dense_shape is None
                np.testing.assert_array_equal(got["x"][1][0].values, VALUES)
        for wrong in (VALUES[:1], (VALUES,), 3.0, (VALUES, [1, 3], [9, 2], 0)):
            with pytest.raises(FeedError):
                session.run(out, {s: wrong})
        with pytest.raises(FeedError):
            session.run(fixed, {fixed: (VALUES, [1, 3])})  # it has a shape, too
        handle = session.partial_run_setup([out["x"][0].values, fixed], [s])
        np.testing.assert_array_equal(
            session.partial_run(handle, out["x"][0].values, {s: (VALUES, [1, 3])}), VALUES * 2
        )
        assert session.partial_run(handle, fixed).dense_shape.tolist() == [5, 2]


# *** structures and texts ***


def test_composites_are_leaves_of_structures_where_they_are_not_expanded() -> None:
    s, sp = slices(), sparse()
    structure = {"b": [sp], "a": (s, 1)}
    assert nest.flatten(structure, expand=False) == [s, 1, sp]
    assert len(nest.flatten(structure)) == 7
    assert nest.map_leaves(type, structure, expand=False) == {"b": [hr.SparseTensor], "a": (hr.IndexedSlices, int)}
    assert nest.mismatch(structure, {"b": [1], "a": (2, 3)}, expand=False) is None
    assert nest.mismatch(structure, {"b": [1], "a": (2, 3)}) is not None


def test_static_shapes_of_slices() -> None:
    with hr.Graph():
        assert (slices().shape, slices(False).shape) == ((5, 2), None)
    assert slices().shape == (5, 2)


@dataclasses.dataclass
class Point:
    x: Any
    y: Any


@pytest.mark.parametrize("is_eager", [False, True])
def test_print_writes_structures(tmp_path: Path, is_eager: bool) -> None:
    """Those of TensorFlow are in tests/v1/programs/printing.py."""
    target = f"file://{tmp_path}/out"

    def show() -> Any:
        return hr.print(
            "p:", Point(hr.constant([1, 2]), "b"), {"z": sparse(), "a": [slices(False).indices]}, output_stream=target
        )

    if is_eager:
        show()
    else:
        with hr.Graph() as g:
            shown = show()
        run(g, shown)
    text = "'SparseTensor(indices=[[0 1]\n [1 0]], values=[1 -2], shape=[2 3])'"
    wanted = f"p: Point(x=[1 2], y='b') {{'a': [[1 3]], 'z': {text}}}\n"
    assert (tmp_path / "out").read_text() == wanted
