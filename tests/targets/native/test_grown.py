"""Native operations on arrays of unknown length have the kernels' results and errors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

pytest.importorskip("llvmlite")

import headrace as hr
from headrace import flags, thresholds
from headrace.api import scopes
from headrace.errors import InvalidArgumentError
from headrace.targets.native import engine
from tests.targets.native import region_running as running

with flags.override(NATIVE="on"):
    if engine.available():
        pytest.skip(engine.available(), allow_module_level=True)

pytestmark = pytest.mark.one_engine

X = np.arange(24, dtype=np.float32).reshape(4, 2, 3) - 7


@pytest.fixture(autouse=True)
def graph(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A graph of which each instruction that can be native is."""
    for name in ("NATIVE_CALL", "NATIVE_ARGUMENT", "NATIVE_LEAST_SAVING"):
        monkeypatch.setattr(thresholds, name, 0)
    with hr.Graph() as g:
        yield g


def front() -> tuple[Any, Any, Any]:
    """An array, a number, and the first rows of the array up to that number."""
    x, n = hr.placeholder(hr.float32, X.shape), hr.placeholder(hr.int32, [])
    rows = x[:n]
    assert rows.shape == (None, 2, 3)
    return x, n, rows


def outcomes(y: Any, runs: Sequence[dict[Any, Any]], native: str) -> list[Any]:
    """Results or errors of a compiled step, which calls no kernel if it is native."""
    found: list[Any] = []
    with flags.override(NATIVE=native), hr.Session(engine="compiled") as session:
        if native == "on":
            assert not [why for why in session.explain(y, list(runs[0])).native if "kernel" in why]
        for feeds in runs:
            try:
                found.append(session.run(y, feeds))
            except InvalidArgumentError as e:
                found.append(e.message.splitlines()[0])
    return found


def check(y: Any, *runs: dict[Any, Any]) -> list[Any]:
    """Returns the outcomes of native code, which are those of the Python target."""
    mine, theirs = (outcomes(y, runs, native) for native in ("on", "off"))
    for a, b in zip(mine, theirs, strict=True):
        np.testing.assert_array_equal(a, b)
    return mine


def _columns(x: Any) -> Any:
    return hr.broadcast_to(x, hr.concat([hr.shape(x)[:1], [5]], 0)) * 2.0


CASES: dict[str, Callable[[Any], Any]] = {
    "itself": lambda x: x,
    "dimensions": hr.shape,
    "flat": lambda x: hr.reshape(x, [-1, 3]),
    "other rows": lambda x: hr.reshape(x, [-1, 1, 6]),
    "counted": lambda x: hr.reshape(x, hr.concat([hr.shape(x)[:1], [6]], 0)),
    "turned": lambda x: hr.reverse(x, [0]),
    "turned inside": lambda x: hr.reverse(x, [0, 2]) * 2.0,
    "joined": lambda x: hr.concat([x, x * 2.0, hr.reverse(x, [0])], 2),
    "sum": lambda x: hr.reduce_sum(x, [0, 1]),
    "sum of columns": lambda x: hr.reduce_sum(x, [0, 2], keepdims=True),
    "sum of all": lambda x: hr.reduce_sum(hr.reverse(x, [0]), [0, 1, 2]),
    "repeated number": lambda x: hr.broadcast_to(hr.reduce_sum(x, [0, 1, 2]), hr.shape(x)) * x,
    "repeated row": lambda x: hr.broadcast_to(hr.reduce_sum(x, [0, 1]), hr.shape(x)),
    "repeated rows": lambda x: hr.broadcast_to(hr.reduce_sum(x, 0, keepdims=True), hr.shape(x)) + x,
    "repeated columns": lambda x: _columns(hr.reshape(x, [-1, 1])),
    "gradient of a sum": lambda x: hr.gradients(hr.reduce_sum(hr.square(hr.reduce_sum(hr.square(x), [0]))), x)[0],
    "product": lambda x: hr.matmul(hr.reshape(x, [-1, 3]), hr.reshape(x + 1.0, [-1, 3]), transpose_a=True),
    "turned product": lambda x: hr.matmul(
        hr.reverse(hr.reshape(x, [-1, 6]), [0]), hr.reshape(x, [-1, 6]), transpose_a=True
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_results_are_those_of_the_kernels(name: str) -> None:
    x, n, rows = front()
    y = CASES[name](rows)
    check(y, *({x: X, n: number} for number in (0, 1, 3, 4, 9, -1, -9)))


def test_an_array_is_repeated_to_a_shape_that_fits() -> None:
    x, n, rows = front()
    m = hr.placeholder(hr.int32, [])
    y = hr.broadcast_to(hr.reduce_sum(rows, [0]), hr.stack([m, 2, 3]))
    assert y.shape == (None, 2, 3)
    found = check(y, *({x: X, n: 2, m: number} for number in (2, 0, -1)))
    assert isinstance(found[2], str)
    y = hr.broadcast_to(rows, hr.stack([m, 2, 3]))
    found = check(y, *({x: X, n: n_, m: m_} for n_, m_ in ((2, 2), (1, 5), (2, 3))))
    assert isinstance(found[2], str)


def test_rows_of_another_size_must_fit() -> None:
    x, n, rows = front()
    y = hr.reshape(rows, [-1, 4])
    assert "6 values, but the requested shape" in check(y, {x: X, n: 2}, {x: X, n: 1})[1]


def test_the_number_of_rows_must_be_the_wanted_one() -> None:
    x, n, rows = front()
    m = hr.placeholder(hr.int32, [])
    y = hr.reshape(rows, hr.stack([m, 6]))
    assert y.shape == (None, 6)
    found = check(y, *({x: X, n: 2, m: number} for number in (2, -1, 3)))
    assert "12 values, but the requested shape [3, 6] has 18" in found[2]


@pytest.mark.parametrize(
    ("operation", "text"),
    [
        (lambda x, y: hr.concat([x, y], 1), "cannot join the shapes"),
        (lambda x, y: hr.matmul(x, y, transpose_a=True), "Matrix size-incompatible"),
    ],
)
def test_unknown_lengths_must_be_equal(operation: Any, text: str) -> None:
    x, n, rows = front()
    m = hr.placeholder(hr.int32, [])
    z = operation(hr.reshape(rows, [-1, 6]), hr.reshape(x[:m], [-1, 6]))
    assert text in check(z, {x: X, n: 3, m: 3}, {x: X, n: 3, m: 2})[1]


def test_a_front_of_a_small_array_outlives_the_call() -> None:
    x, n = hr.placeholder(hr.float32, [4]), hr.placeholder(hr.int32, [])
    y = hr.tanh(x)[:n]
    with flags.override(NATIVE="on"), hr.Session(engine="compiled") as session:
        for number in (1, 4, 3):
            got = session.run([y, hr.sin(y)], {x: X[0, 0, 0] + np.arange(4), n: number})[0]
            np.testing.assert_allclose(got, np.tanh(X[0, 0, 0] + np.arange(4))[:number], rtol=1e-6)


# *** Packed numbers, cross entropies ***


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_arrays_are_packed_along_an_axis(axis: int) -> None:
    x = hr.placeholder(hr.float32, X.shape)
    check(hr.stack([x[0], hr.transpose(x[1:3])[:, :, 0][:2, :1] + x[2], x[3]], axis), {x: X})


def entropy() -> tuple[Any, Any, Any]:
    """Logits, labels, and the cross entropy with its gradient."""
    x, at = hr.placeholder(hr.float32, [4, 3]), hr.placeholder(hr.int64, [4])
    return x, at, list(scopes.builder().SparseSoftmaxCrossEntropyWithLogits(hr.reverse(x, [1]), at))


@pytest.mark.parametrize("outputs", [slice(0, 1), slice(1, 2), slice(0, 2)])
def test_a_cross_entropy_is_that_of_the_kernel(outputs: slice) -> None:
    x, at, both = entropy()
    feeds = {x: X.reshape(-1)[:12].reshape(4, 3) * 3, at: np.array([0, 2, 1, 1])}
    (mine,), (theirs,) = (outcomes(both[outputs], [feeds], native) for native in ("on", "off"))
    for a, b in zip(mine, theirs, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("label", [-1, 3])
def test_a_label_out_of_range_is_an_error(label: int) -> None:
    x, at, both = entropy()
    assert f"label value of {label} " in check(both[0], {x: np.zeros((4, 3)), at: np.array([0, 2, label, 9])})[0]


# *** Recurrent networks ***


@pytest.mark.system
def test_a_training_step_with_fed_lengths_has_one_region() -> None:
    import headrace.v1 as tf

    with tf.Graph().as_default() as g:
        x, lengths = tf.placeholder("float32", [3, 5, 2]), tf.placeholder("int32", [3])
        labels = tf.placeholder("int32", [3])
        _, state = tf.nn.dynamic_rnn(tf.nn.rnn_cell.BasicLSTMCell(4), x, lengths, dtype=tf.float32)
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=state.h)
        step = tf.train.AdamOptimizer(0.1).minimize(tf.reduce_mean(losses))
        init = tf.global_variables_initializer()
    feeds = {
        x: np.random.default_rng(0).normal(size=(3, 5, 2)),
        lengths: np.array([2, 4, 3]),
        labels: np.array([0, 1, 3]),
    }
    found = []
    for native in ("on", "off"):
        with flags.override(NATIVE=native), tf.Session(graph=g) as session:
            tf.set_random_seed(1)
            session.run(init)
            variables = g.get_collection("trainable_variables")
            for k, v in enumerate(variables):
                v.load(np.random.default_rng(k).normal(size=v.shape.as_list()) * 0.3, session)
            explained = session.explain([losses, step], feeds)
            if native == "on":
                sections = [line for line in explained.schedule.splitlines() if " = section (" in line]
                assert len([line for line in sections if "while" in line.lower()]) == 1
            found.append([session.run([losses, step], feeds)[0] for _ in range(3)])
    np.testing.assert_allclose(found[0], found[1], rtol=1e-4, atol=1e-5)


# *** Several instructions in place of one ***


def choice(x: Any, y: Any, of: Any) -> Any:
    return scopes.builder().Select(of, x, y)


def test_rows_are_chosen_outside_of_loops() -> None:
    x, n = hr.placeholder(hr.float32, [4, 2, 3]), hr.placeholder(hr.int32, [4])
    y = choice(hr.sin(x), x * 2.0, n > 1)
    slope = hr.convert_to_tensor(hr.gradients(hr.reduce_sum(y * y), x)[0])
    running.run([y, slope, hr.reverse(y, [0])], {x: X / 10, n: np.array([2, 0, 1, 5])})


@pytest.mark.parametrize("count", [33, 64, 65, 100])
@pytest.mark.parametrize("shape", [(), (3, 4)], ids=str)
def test_a_sum_of_many_arrays_has_the_order_of_the_kernel(count: int, shape: tuple[int, ...]) -> None:
    x = hr.placeholder(hr.float32, shape)
    y = hr.add_n([x * float(k) for k in range(count)])
    value = np.random.default_rng(0).normal(size=shape).astype(np.float32)

    def same(got: Any, want: Any) -> None:
        np.testing.assert_array_equal(got, want)

    running.run(
        [y, hr.while_loop(lambda i, z: i < 3, lambda i, z: (i + 1, hr.add_n([x] * count) + z), (0, y))[1]],
        {x: value},
        same,
    )
