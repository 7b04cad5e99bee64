"""Functions of elements, axes and matrices: their values against numpy's, their static shapes, their errors."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest

import headrace as hr
from headrace.api import debugging, image, linalg, math, nn, random, reductions, special, strings
from headrace.api.tensors import placeholder

X = np.array([[0.1, -0.7, 0.5], [0.9, 0.2, -0.3]], np.float32)
Y = np.array([[1.0, 2.0, -3.0], [0.5, 2.5, 4.0]], np.float32)
I = np.array([[7, -7, 3], [2, 9, -4]], np.int32)
P = np.array([[True, False, True], [False, False, True]])


def run(fetches: Any, feed: Any = None) -> Any:
    first = fetches[0] if isinstance(fetches, (list, tuple)) else fetches
    return hr.Session(graph=first.graph).run(fetches, feed)


def value(f: Any, *arrays: np.ndarray) -> Any:
    """Value of `f` of placeholders.

    Its static shape must be that of the value.
    """
    with hr.Graph():
        xs = [placeholder(hr.as_dtype(a.dtype), a.shape) for a in arrays]
        y = f(*xs)
    got = run(y, dict(zip(xs, arrays, strict=True)))
    for t, v in zip(y, got, strict=True) if isinstance(y, (list, tuple)) else [(y, got)]:
        assert t.shape == np.shape(v)
        assert t.dtype == np.asarray(v).dtype
    return got


@pytest.mark.parametrize(
    ("f", "numpy"),
    [
        (math.abs, np.abs), (math.negative, np.negative), (math.sign, np.sign), (math.square, np.square),
        (math.exp, np.exp), (math.expm1, np.expm1), (math.sin, np.sin), (math.tan, np.tan), (math.asin, np.arcsin),
        (math.atan, np.arctan), (math.sinh, np.sinh), (math.tanh, np.tanh), (math.atanh, np.arctanh),
        (math.ceil, np.ceil), (math.floor, np.floor), (math.round, np.round), (math.is_nan, np.isnan),
        (math.reciprocal, np.reciprocal), (math.real, np.real), (math.conj, np.conj), (math.angle, np.angle),
        (math.sigmoid, lambda x: 1 / (1 + np.exp(-x))), (math.log_sigmoid, lambda x: -np.log1p(np.exp(-x))),
        (nn.relu, lambda x: np.maximum(x, 0)), (nn.softplus, lambda x: np.log1p(np.exp(x))),
        (nn.leaky_relu, lambda x: np.where(x > 0, x, 0.2 * x)), (nn.silu, lambda x: x / (1 + np.exp(-x))),
    ],
)  # fmt: skip
def test_unary(f: Any, numpy: Any) -> None:
    assert np.allclose(value(f, X), numpy(X), atol=1e-6)


@pytest.mark.parametrize(
    ("f", "numpy"),
    [
        (math.add, np.add), (math.subtract, np.subtract), (math.multiply, np.multiply), (math.divide, np.divide),
        (math.floordiv, np.floor_divide), (math.mod, np.mod), (math.truncatemod, np.fmod), (math.maximum, np.maximum),
        (math.minimum, np.minimum), (math.less, np.less), (math.not_equal, np.not_equal), (math.atan2, np.arctan2),
        (math.squared_difference, lambda x, y: (x - y) ** 2), (math.greater_equal, np.greater_equal),
    ],
)  # fmt: skip
def test_binary(f: Any, numpy: Any) -> None:
    assert np.allclose(value(f, X, Y), numpy(X, Y), atol=1e-6)
    row = Y[0]
    assert np.allclose(value(f, X, row), numpy(X, row), atol=1e-6)
    assert np.allclose(value(lambda x: f(x, 2), X), numpy(X, np.float32(2)), atol=1e-6)


def test_integers() -> None:
    assert np.array_equal(value(lambda i: math.floordiv(i, 2), I), I // 2)
    assert np.array_equal(value(lambda i: math.mod(i, 4), I), I % 4)
    assert np.array_equal(value(lambda i: math.truncatediv(i, 2), I), np.trunc(I / 2).astype(np.int32))
    quotient = value(lambda i: math.truediv(i, 2), I)
    assert quotient.dtype == np.float64
    assert np.array_equal(quotient, I / 2)
    assert value(lambda i: math.truediv(i, i), I.astype(np.int8)).dtype == np.float32
    assert np.array_equal(value(math.round, I), I)
    assert np.array_equal(value(lambda i: math.bitwise_xor(math.left_shift(i, 1), 1), I), (I << 1) ^ 1)


def test_bools() -> None:
    q = ~P & np.array([True, False, True])
    assert np.array_equal(value(math.logical_xor, P, q), P ^ q)
    assert np.array_equal(value(lambda p: math.logical_or(p, True), P), P | True)


def test_complex_numbers() -> None:
    z = (X + 1j * Y).astype(np.complex64)
    assert np.array_equal(value(math.complex, X, Y), z)
    assert np.allclose(value(math.abs, z), np.abs(z))
    for f, numpy in ((math.real, np.real), (math.imag, np.imag), (math.angle, np.angle)):
        got = value(f, z)
        assert got.dtype == np.float32
        assert np.allclose(got, numpy(z))


def test_casts() -> None:
    assert np.array_equal(value(lambda x: math.cast(x, hr.int32), Y), Y.astype(np.int32))
    assert value(lambda x: math.saturate_cast(x, hr.uint8), np.array([-3.0, 7.5, 900.0])).tolist() == [0, 7, 255]
    big = np.array([-1e30, 1e30], np.float32)
    assert value(lambda x: math.saturate_cast(x, hr.int32), big).tolist() == [-(2**31), 2**31 - 128]
    with hr.Graph():
        x = placeholder(hr.float32, ())
        assert math.cast(x, hr.float32) is x


REDUCTIONS = {
    reductions.reduce_sum: np.sum,
    reductions.reduce_mean: np.mean,
    reductions.reduce_max: np.max,
    reductions.reduce_min: np.min,
    reductions.reduce_prod: np.prod,
    reductions.reduce_variance: np.var,
    reductions.reduce_std: np.std,
    reductions.reduce_logsumexp: lambda x, **kwargs: np.log(np.sum(np.exp(x), **kwargs)),
    reductions.reduce_euclidean_norm: lambda x, **kwargs: np.sqrt(np.sum(x * x, **kwargs)),
}


@pytest.mark.parametrize("f", REDUCTIONS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("axis", [None, 0, -1, (0, 1)])
@pytest.mark.parametrize("keepdims", [False, True])
def test_reductions(f: Any, axis: Any, keepdims: bool) -> None:
    axes = list(axis) if isinstance(axis, tuple) else axis
    got = value(lambda x: f(x, axes, keepdims), X)
    assert np.allclose(got, REDUCTIONS[f](X, axis=axis, keepdims=keepdims), atol=1e-5)


def test_a_reduction_of_unknown_rank() -> None:
    with hr.Graph():
        x = placeholder(hr.float32)
        y = reductions.reduce_sum(x)
        assert y.shape == ()
        assert [op.type for op in x.graph.operations] == ["Placeholder", "Rank", "Const", "Const", "Range", "Sum"]
    assert run(y, {x: X}) == pytest.approx(X.sum())


def test_along_axes() -> None:
    assert np.allclose(value(lambda x: reductions.cumsum(x, 1), X), np.cumsum(X, 1))
    assert np.allclose(value(lambda x: reductions.cumsum(x, exclusive=True, reverse=True), X), [X[1], [0, 0, 0]])
    assert value(lambda x: reductions.argmax(x, 1), X).tolist() == [2, 0]
    assert value(lambda x: reductions.argmin(x, output_type=hr.int32), X).tolist() == [0, 0, 1]
    assert value(lambda p: reductions.reduce_any(p, 0), P).tolist() == [True, False, True]
    assert value(lambda x: reductions.count_nonzero(x, 1), np.array([[0.0, 1.0], [2.0, 3.0]])).tolist() == [1, 2]
    with hr.Graph(), pytest.raises(hr.errors.ShapeError, match="Invalid reduction dimension 2 for input with 2"):
        reductions.reduce_sum(X, 2)


def test_segments() -> None:
    ids = np.array([0, 0, 1], np.int32)
    rows = X.T.copy()
    want = [rows[:2].sum(0), rows[2]]
    assert np.allclose(value(lambda x: reductions.segment_sum(x, ids), rows), want)
    assert np.allclose(value(lambda x: reductions.unsorted_segment_sum(x, ids, 3), rows), [*want, [0, 0]])
    assert np.allclose(value(lambda x: reductions.unsorted_segment_mean(x, ids, 2), rows), [want[0] / 2, want[1]])


def test_sequences() -> None:
    with hr.Graph():
        limit = placeholder(hr.int32, ())
        floats = reductions.range(0.0, 1.0, 0.25)
        assert (floats.dtype, floats.shape) == (hr.float32, (4,))
        y = reductions.range(limit, 10.0)
        assert y.dtype == hr.float32
        line = reductions.linspace(0.0, 1.0, 5)
        many = reductions.linspace([0.0, 10.0], [1.0, 20.0], 3)
    assert run(floats).tolist() == [0, 0.25, 0.5, 0.75]
    assert run(y, {limit: 7}).tolist() == [7, 8, 9]
    assert run(line).tolist() == [0, 0.25, 0.5, 0.75, 1]
    assert run(many).tolist() == [[0, 10], [0.5, 15], [1, 20]]


def test_order() -> None:
    values, indices = value(lambda x: reductions.top_k(x, 2), X)
    assert np.allclose(values, [[0.5, 0.1], [0.9, 0.2]])
    assert indices.tolist() == [[2, 0], [0, 1]]
    edges = np.array([1.0, 3.0, 3.0, 5.0], np.float32)
    assert value(lambda e: reductions.searchsorted(e, [3.0, 6.0]), edges).tolist() == [1, 4]
    assert value(lambda e: reductions.searchsorted(e, [3.0, 0.0], "right"), edges).tolist() == [3, 0]


def test_matmul() -> None:
    assert np.allclose(value(lambda x, y: linalg.matmul(x, y, transpose_b=True), X, Y), X @ Y.T)
    assert np.allclose(value(lambda x, y: linalg.matmul(x, y, adjoint_a=True), X, Y), X.T @ Y)
    batch = np.stack([X, Y])
    assert np.allclose(value(lambda x, y: linalg.matmul(x, y, transpose_b=True), batch, Y), batch @ Y.T)
    z = (X + 1j * Y).astype(np.complex64)
    assert np.allclose(value(lambda x, y: linalg.matmul(x, y, adjoint_b=True), z, z), z @ z.conj().T, atol=1e-5)
    with hr.Graph():
        with pytest.raises(ValueError, match="only one of 'transpose_a' and 'adjoint_a'"):
            linalg.matmul(X, Y, transpose_a=True, adjoint_a=True)
        with pytest.raises(hr.errors.ShapeError, match=r"test_math.py"):
            linalg.matmul(X, Y)


def test_contractions() -> None:
    t = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    for axes in (1, [[1], [0]], [[2, 0], [0, 1]], 0):
        other = {1: np.ones((4, 5)), 0: np.ones(2)}.get(axes if isinstance(axes, int) else -1)
        if other is None:
            other = np.ones((3, 5)) if axes == [[1], [0]] else np.ones((4, 2, 5))
        other = other.astype(np.float32)
        got = value(lambda x, y, axes=axes: linalg.tensordot(x, y, axes), t, other)
        assert np.allclose(got, np.tensordot(t, other, axes))
    with hr.Graph():
        x, y = placeholder(hr.float32, (None, 3, None)), placeholder(hr.float32, (3, None))
        z = linalg.tensordot(x, y, [[1], [0]])
    other = np.ones((3, 5), np.float32)
    assert np.allclose(run(z, {x: t, y: other}), np.tensordot(t, other, [[1], [0]]))
    for equation, args in (("ij,kj->ik", (X, Y)), ("ij,ij", (X, Y)), ("ij , kj, kl -> il", (X, Y, X)), ("ij->j", (X,))):
        got = value(lambda *a, e=equation: linalg.einsum(e, *a), *args)
        assert np.allclose(got, np.einsum(equation.replace(" ", ""), *args), atol=1e-5)


def test_norms_and_clipping() -> None:
    assert value(linalg.norm, X) == pytest.approx(np.linalg.norm(X))
    for order in (1, 2, np.inf, 3):
        got = value(lambda x, order=order: linalg.norm(x, order, axis=1), X)
        assert np.allclose(got, np.linalg.norm(X, order, axis=1))
    assert np.allclose(value(lambda x: linalg.norm(x, 1, axis=[0, 1]), X), np.linalg.norm(X, 1))
    clipped = value(lambda x: linalg.clip_by_norm(x, 0.5), X)
    assert np.linalg.norm(clipped) == pytest.approx(0.5)
    assert np.allclose(clipped / clipped[0, 0], X / X[0, 0], atol=1e-5)
    assert np.allclose(value(lambda x: math.clip_by_value(x, -0.1, 0.3), X), np.clip(X, -0.1, 0.3))
    with hr.Graph():
        parts, total = linalg.clip_by_global_norm([hr.constant(X), None, hr.constant(Y)], 1.0)
    assert parts[1] is None
    one, two, n = run([parts[0], parts[2], total])
    assert n == pytest.approx(np.sqrt((X**2).sum() + (Y**2).sum()))
    assert np.sqrt((one**2).sum() + (two**2).sum()) == pytest.approx(1)
    with hr.Graph(), pytest.raises(ValueError, match="'ord' must be a supported"):
        linalg.norm(X, "nuclear")


def test_diagonals() -> None:
    assert np.array_equal(value(lambda x: linalg.diag_part(linalg.diag(x)), X), X)
    assert np.allclose(value(lambda x: linalg.trace(linalg.matmul(x, x, transpose_b=True)), X), (X * X).sum())
    with hr.Graph():
        n = placeholder(hr.int32, ())
        eyes = [linalg.eye(2), linalg.eye(2, 3), linalg.eye(2, batch_shape=[3]), linalg.eye(n), linalg.eye(n, 3)]
    got = run(eyes, {n: 2})
    want = [np.eye(2), np.eye(2, 3), np.broadcast_to(np.eye(2), (3, 2, 2)), np.eye(2), np.eye(2, 3)]
    assert all(np.array_equal(a, b) for a, b in zip(got, want, strict=True))


def test_losses() -> None:
    z = np.array([[0.2, 0.3, 0.5], [0.0, 0.0, 1.0]], np.float32)
    log_p = Y - np.log(np.exp(Y).sum(1, keepdims=True))
    got = value(lambda z, y: nn.softmax_cross_entropy_with_logits(labels=z, logits=y), z, Y)
    assert np.allclose(got, -(z * log_p).sum(1), atol=1e-5)
    labels = np.array([1, 2], np.int64)
    got = value(lambda k, y: nn.sparse_softmax_cross_entropy_with_logits(labels=k, logits=y), labels, Y)
    assert np.allclose(got, -log_p[[0, 1], labels], atol=1e-5)
    sigmoid = 1 / (1 + np.exp(-Y))
    for weight in (1.0, 2.0):
        want = -(weight * z * np.log(sigmoid) + (1 - z) * np.log(1 - sigmoid))
        got = value(lambda z, y, w=weight: nn.weighted_cross_entropy_with_logits(z, y, w), z, Y)
        assert np.allclose(got, want, atol=1e-5)
    assert np.allclose(value(lambda y: nn.softmax(y, 0), Y), np.exp(Y) / np.exp(Y).sum(0), atol=1e-6)
    with hr.Graph(), pytest.raises(hr.errors.ShapeError, match="must have the same shape"):
        nn.sigmoid_cross_entropy_with_logits(labels=X, logits=X.T)


def test_layers() -> None:
    mean, variance = value(lambda x: nn.moments(x, [0]), X)
    assert np.allclose(mean, X.mean(0))
    assert np.allclose(variance, X.var(0), atol=1e-6)
    got = value(lambda x: nn.batch_normalization(x, X.mean(0), X.var(0), None, None, 0.0), X)
    assert np.allclose(got, (X - X.mean(0)) / X.std(0), atol=1e-5)
    kept = value(lambda x: nn.dropout(x, 0.5, seed=3), np.ones((40, 40), np.float32))
    assert set(np.unique(kept)) == {0, 2}
    assert 0.3 < (kept == 0).mean() < 0.7
    assert value(nn.zero_fraction, np.array([0.0, 1.0, 0.0, 0.0], np.float32)) == 0.75


def test_random_numbers() -> None:
    with hr.Graph():
        n = placeholder(hr.int32, ())
        drawn = [
            random.normal([n, 2], seed=1),
            random.uniform([1000], 2.0, 4.0, seed=1),
            random.uniform([1000], 0, 3, hr.int64, seed=1),
            random.truncated_normal([1000], seed=1),
            random.shuffle(hr.range(10), seed=1),
            random.categorical([[0.0, -100.0]], 4, seed=1),
        ]
    with hr.Session(graph=n.graph) as one, hr.Session(graph=n.graph) as two:
        first, again, other = one.run(drawn, {n: 3}), one.run(drawn, {n: 3}), two.run(drawn, {n: 3})
    assert first[0].shape == (3, 2)
    assert first[1].min() >= 2
    assert first[1].max() < 4
    assert set(first[2]) == {0, 1, 2}
    assert first[2].dtype == np.int64
    assert np.abs(first[3]).max() <= 2
    assert sorted(first[4]) == list(range(10))
    assert first[5].tolist() == [[0] * 4]
    assert not np.array_equal(first[0], again[0])
    assert all(np.array_equal(a, b) for a, b in zip(first, other, strict=True))  # the seeds decide
    with hr.Graph(), pytest.raises(ValueError, match="'maxval' must be given"):
        random.uniform([2], dtype=hr.int32)
    assert random.seeds(None) == {"seed": 0, "seed2": 0}
    assert random.seeds(0, 0) == {"seed": 0, "seed2": 2**31 - 1}


def test_strings() -> None:
    with hr.Graph():
        t = hr.constant(["ab", " c "])
        got = run([
            strings.join(["<", t, ">"]), strings.strip(t), strings.upper(t), strings.length(t), strings.substr(t, 0, 1),
            strings.to_number(["1", "2.5"]), strings.as_string([1, 2]), strings.reduce_join(t),
            strings.format("{} and {}", (1, t[0])),
        ])  # fmt: skip
    assert [np.asarray(v).tolist() for v in got] == [
        [b"<ab>", b"< c >"], [b"ab", b"c"], [b"AB", b" C "], [2, 3], [b"a", b" "], [1.0, 2.5], [b"1", b"2"], b"ab c ",
        b'1 and "ab"',
    ]  # fmt: skip
    with hr.Graph(), pytest.raises(ValueError, match="placeholder"):
        strings.format("{}", (1, 2))


def test_print(capfd: pytest.CaptureFixture[str]) -> None:
    with hr.Graph() as g:
        x = placeholder(hr.int32, (2,))
        op = debugging.print("x {}:", x, "!", sep=" ", end=".\n")
        debugging.print("not run")
    with hr.Session(graph=g) as s:
        s.run(op, {x: [1, 2]})
    assert capfd.readouterr().err == "x {}: [1 2] !.\n"


@pytest.mark.parametrize(
    ("check", "says"),
    [
        (lambda x, y: debugging.assert_less(x, y, message="too big"), r"too big.*Condition x < y did.*x:0.*\[1 5\]"),
        (lambda x, y: debugging.assert_near(x, y), "not equal to tolerance"),
        (lambda x, y: debugging.assert_negative(x), "Condition x < 0 did not hold"),
        (lambda x, y: debugging.assert_equal(x, 1.0), "Condition x == y did not hold"),
        (lambda x, y: debugging.assert_rank(y, 2), "must have rank"),
        (lambda x, y: debugging.assert_positive(x), None),
        (lambda x, y: debugging.assert_none_equal(x, 7.0), None),
        (lambda x, y: debugging.assert_rank_at_least(y, 1), None),
    ],
)
def test_assertions(check: Any, says: str | None) -> None:
    with hr.Graph() as g:
        x, y = placeholder(hr.float32, (2,), "x"), placeholder(hr.float32, None, "y")
        op = check(x, y)
    with hr.Session(graph=g) as s:
        feed = {x: [1.0, 5.0], y: [2.0, 3.0]}
        if says is None:
            s.run(op, feed)
        else:
            with pytest.raises(hr.errors.InvalidArgumentError, match=f"(?s){says}"):
                s.run(op, feed)


def test_assertions_that_are_known_to_fail() -> None:
    with hr.Graph():
        with pytest.raises(hr.errors.InvalidArgumentError, match=r"Condition x == y did not hold"):
            debugging.assert_equal(1, 2)
        with pytest.raises(hr.errors.ShapeError, match=r"must have rank 3\. Received rank 2"):
            debugging.assert_rank(X, 3)


@pytest.mark.parametrize("module", [math, reductions, linalg, nn, image, random, strings, debugging, special])
def test_help_has_something_to_say(module: Any) -> None:
    for name, f in vars(module).items():
        if inspect.isfunction(f) and not name.startswith("_"):
            assert f.__name__ == name or name in ("swish", "lrn")
            assert f.__doc__
            assert f.__module__ != module.__name__ or len(f.__doc__) > 20
