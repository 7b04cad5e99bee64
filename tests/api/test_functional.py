"""`api.functional`: map_fn, scan, foldl, foldr against plain Python."""

import numpy as np
import pytest

import headrace as hr
from headrace.api import scopes
from headrace.api.functional import foldl, foldr, map_fn, scan
from headrace.api.tensor_spec import TensorSpec
from headrace.errors import InvalidArgumentError
from headrace.ir.notes import NoBackProp, SwapMemory
from tests.api.running import run

pytestmark = pytest.mark.usefixtures("g")

B = scopes.builder
X = np.array([[1, 2], [3, 4], [5, 6]], np.float32)


def add(a, b):
    return B().AddV2(a, b)


def test_map_fn(g):
    y = map_fn(lambda r: B().Mul(r, r), X)
    assert y.shape == (3, 2)
    assert y.op.name == "map/TensorArrayV2Stack/TensorListStack"
    assert g.find("map/while").attrs["parallel_iterations"] == 10
    np.testing.assert_array_equal(run(y), X * X)
    np.testing.assert_array_equal(run(map_fn(lambda r: B().Sum(r, [0]), X, name="rows")), X.sum(1))
    assert g.find("rows/while") is not None


def test_map_fn_over_structures():
    elems = {"a": X, "b": (np.int32([1, 2, 3]),)}
    y = map_fn(lambda e: (B().Mul(e["b"][0], 2), e["a"]), elems, fn_output_signature=(hr.int32, hr.float32))
    assert type(y) is tuple
    np.testing.assert_array_equal(run(y[0]), [2, 4, 6])
    np.testing.assert_array_equal(run(y[1]), X)
    z = map_fn(lambda e: B().Cast(e, DstT=hr.int64), X, dtype=hr.int64)
    assert (z.dtype, z.shape) == (hr.int64, (3, 2))
    w = map_fn(lambda e: e, X, fn_output_signature=TensorSpec((2,), hr.float32))
    assert w.shape == (3, 2)


@pytest.mark.parametrize("parallel", [None, 1, 10])
def test_an_unknown_number_of_rows(parallel):
    x = B().Placeholder(dtype=hr.float32, shape=(None, 2))
    y = map_fn(lambda r: B().Neg(r), x, parallel_iterations=parallel)
    s = scan(add, x, parallel_iterations=parallel or 10)
    f = foldr(add, x)
    assert [t.shape for t in (y, s, f)] == [(None, 2), (None, 2), (2,)]
    np.testing.assert_array_equal(run(y, {x: X}), -X)
    np.testing.assert_array_equal(run(s, {x: X}), np.cumsum(X, 0))
    np.testing.assert_array_equal(run(f, {x: X}), X.sum(0))
    assert run(y, {x: X[:0]}).shape == (0, 2)


def test_nested_maps_and_captures():
    k = B().Placeholder(dtype=hr.float32, shape=())
    y = map_fn(lambda r: map_fn(lambda e: B().Mul(e, k), r), X)
    assert y.shape == (3, 2)
    np.testing.assert_array_equal(run(y, {k: 3}), X * 3)


def test_results_of_different_shapes():
    n = np.int32([1, 2, 3])
    y = map_fn(lambda k: B().Sum(B().Range(0, k, 1), [0]), n, infer_shape=False)
    np.testing.assert_array_equal(run(y), [0, 1, 3])


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("initializer", [None, np.float32([10, 20])])
def test_scan(reverse, initializer):
    y = scan(lambda a, r: B().Sub(B().Mul(a, 2.0), r), X, initializer, reverse=reverse)
    assert y.shape == (3, 2)
    rows = list(range(3))[:: -1 if reverse else 1]
    want, a = np.zeros_like(X), initializer
    for i in rows:
        a = X[i] if a is None else a * 2 - X[i]
        want[i] = a
    np.testing.assert_array_equal(run(y), want)


def test_scan_with_a_state_of_other_structure():
    y = scan(
        lambda a, e: {"n": add(a["n"], 1), "sum": add(a["sum"], B().Mul(e[0], e[1]))},
        (X[:, 0], X[:, 1]),
        initializer={"n": 0, "sum": 0.0},
    )
    np.testing.assert_array_equal(run(y["n"]), [1, 2, 3])
    np.testing.assert_array_equal(run(y["sum"]), [2, 14, 44])


@pytest.mark.parametrize(("fold", "order"), [(foldl, [0, 1, 2]), (foldr, [2, 1, 0])])
@pytest.mark.parametrize("initializer", [None, np.float32([10, 20])])
def test_folds(fold, order, initializer):
    y = fold(lambda a, r: B().Sub(B().Mul(a, 2.0), r), X, initializer)
    a = initializer
    for i in order:
        a = X[i] if a is None else a * 2 - X[i]
    np.testing.assert_array_equal(run(y), a)
    assert y.op.name == f"{fold.__name__}/while"


def test_one_row_and_none():
    np.testing.assert_array_equal(run(scan(add, X[:1])), X[:1])
    np.testing.assert_array_equal(run(foldr(add, X[:1])), X[0])
    assert run(foldl(add, X[:0], np.float32([1, 2]))).tolist() == [1, 2]
    x = B().Placeholder(dtype=hr.float32, shape=(None,))
    with pytest.raises(InvalidArgumentError):
        run(foldl(add, x), {x: []})


def test_arguments_are_passed_on(g):
    foldl(add, X, parallel_iterations=3, back_prop=False, swap_memory=True, name="f")
    op = g.find("f/while")
    assert op.attrs["parallel_iterations"] == 3
    assert set(op.notes) == {NoBackProp(), SwapMemory()}
    with pytest.raises(TypeError, match="'fn' must be callable"):
        map_fn(X, X)
