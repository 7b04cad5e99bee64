"""Steps compiled for the shapes of the feeds.

The results are the same, and the code that runs is checked.
"""

from __future__ import annotations

import threading
import time
from concurrent import futures
from typing import Any

import numpy as np
import pytest

import headrace as hr
from headrace import flags, pipeline, programs, thresholds
from headrace.compile import variants
from headrace.session import Session
from tests.inside import steps_of

pytestmark = pytest.mark.one_engine

UNITS = 3


class Recurrent:
    """A small LSTM over sequences of any length in batches of any size.

    It has a loss and the gradients of that.

    Args:
      batch: its size, if it is to be stated.
    """

    def __init__(self, batch: int | None = None) -> None:
        with hr.Graph() as self.graph:
            self.x = hr.placeholder(hr.float32, (batch, None, 2), name="x")
            self.lengths = hr.placeholder(hr.int32, (batch,), name="lengths")
            rng = np.random.default_rng(1)
            w = hr.constant(rng.normal(size=(2 + UNITS, 4 * UNITS)).astype(np.float32))
            b = hr.constant(rng.normal(size=4 * UNITS).astype(np.float32))
            xs = hr.transpose(self.x, (1, 0, 2))
            rows = hr.TensorArray(hr.float32, size=hr.shape(xs)[0], element_shape=(batch, 2)).unstack(xs)
            zeros = hr.zeros([hr.shape(self.x)[0], UNITS])

            def step(t: Any, c: Any, h: Any, out: Any) -> Any:
                i, j, f, o = hr.split(hr.matmul(hr.concat([rows.read(t), h], 1), w) + b, 4, 1)
                new = hr.sigmoid(f + 1.0) * c + hr.sigmoid(i) * hr.tanh(j)
                lasts = hr.expand_dims(t < self.lengths, 1)
                c, h = hr.where(lasts, new, c), hr.where(lasts, hr.tanh(new) * hr.sigmoid(o), h)
                return t + 1, c, h, out.write(t, h)

            out = hr.TensorArray(hr.float32, size=hr.shape(xs)[0], element_shape=(batch, UNITS))
            invariants = (hr.TensorSpec((), hr.int32), *[hr.TensorSpec((batch, UNITS), hr.float32)] * 2, None)
            _, _, last, out = hr.while_loop(
                lambda t, *_: t < hr.shape(xs)[0], step, (0, zeros, zeros, out), shape_invariants=invariants
            )
            self.loss = hr.reduce_sum(last * last) + hr.reduce_sum(out.stack())
            self.fetches = [self.loss, *hr.gradients(self.loss, [w, b, self.x])]

    def feeds(self, batch: int, length: int, seed: int = 0) -> dict[Any, Any]:
        rng = np.random.default_rng(seed)
        x = rng.normal(size=(batch, length, 2)).astype(np.float32)
        return {self.x: x, self.lengths: rng.integers(1, length + 1, batch)}


@pytest.fixture
def net() -> Recurrent:
    return Recurrent()


def made(session: Session, n: int = 0) -> dict[Any, Any]:
    """The code compiled for the fed shapes, of step number `n`."""
    return dict(steps_of(session)[n].variants)


@pytest.mark.parametrize(("batch", "length"), [(4, 5), (1, 5), (4, 1), (1, 1), (0, 3)])
def test_the_numbers_are_the_interpreters(net: Recurrent, batch: int, length: int) -> None:
    feeds = net.feeds(batch, length)
    want = hr.Session(graph=net.graph, engine="interpret").run(net.fetches, feeds)
    with flags.override(VERIFY=2):
        got = hr.Session(graph=net.graph, engine="compiled").run(net.fetches, feeds)
    for a, b in zip(got, want, strict=True):
        assert a.shape == b.shape
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


def test_they_are_those_of_a_graph_that_states_the_batch(net: Recurrent) -> None:
    """To the last bit: the same is done."""
    stated = Recurrent(4)
    got = hr.Session(graph=net.graph).run(net.fetches, net.feeds(4, 5))
    want = hr.Session(graph=stated.graph).run(stated.fetches, stated.feeds(4, 5))
    for a, b in zip(got, want, strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.matrix
def test_each_set_of_shapes_has_its_code(net: Recurrent) -> None:
    session = hr.Session(graph=net.graph)
    for batch, length in [(4, 5), (2, 5), (4, 5), (4, 6), (2, 5)]:
        session.run(net.fetches, net.feeds(batch, length))
    assert list(made(session)) == [((b, n, 2), (b,)) for b, n in [(4, 5), (2, 5), (4, 6)]]


@pytest.mark.system
def test_what_was_fed_before_makes_no_difference(net: Recurrent) -> None:
    one, other = hr.Session(graph=net.graph), hr.Session(graph=net.graph)
    other.run(net.fetches, net.feeds(2, 7))
    other.explain(net.fetches, [net.x, net.lengths])
    for a, b in zip(one.run(net.fetches, net.feeds(4, 5)), other.run(net.fetches, net.feeds(4, 5)), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.matrix
def test_of_more_shapes_than_have_code_any_does(net: Recurrent, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(thresholds, "SHAPE_VARIANTS", 2)
    session = hr.Session(graph=net.graph)
    reference = hr.Session(graph=net.graph, engine="interpret")
    for batch in (1, 2, 3, 4, 3, 1):
        got, want = (s.run(net.fetches, net.feeds(batch, 3)) for s in (session, reference))
        for a, b in zip(got, want, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
    assert [shape[0] for shape, _ in made(session)] == [1, 2]


def test_two_unknown_sizes_may_be_one_and_many(net: Recurrent) -> None:
    """Feeds of shape [1, 2] and [3, 2] are broadcast, and the gradient is summed.

    The code that was compiled before has equal sizes.
    """
    with hr.Graph() as g:
        x, y = (hr.placeholder(hr.float32, (None, 2)) for _ in range(2))
        z = hr.while_loop(lambda i, a: i < 3, lambda i, a: (i + 1, a * (x * y)), (0, x * y))[1]
        grads = hr.gradients(hr.reduce_sum(z), [x, y])
    session, reference = hr.Session(graph=g), hr.Session(graph=g, engine="interpret")
    for rows in [(3, 3), (1, 3), (3, 1), (1, 1), (3, 3)]:
        feeds = {p: np.arange(1, 2 * n + 1).reshape(n, 2) / 3 for p, n in zip((x, y), rows, strict=True)}
        for p, a, b in zip((x, y), session.run(grads, feeds), reference.run(grads, feeds), strict=True):
            assert a.shape == b.shape == feeds[p].shape
            np.testing.assert_allclose(a, b, rtol=1e-6)


def test_steps_without_loops_have_one_code() -> None:
    with hr.Graph() as g:
        x = hr.placeholder(hr.float32, (None, 2))
        y = x * 2.0
    session = hr.Session(graph=g)
    for n in (1, 2):
        session.run(y, {x: np.ones((n, 2))})
    assert not made(session)


def test_nor_do_steps_all_of_whose_shapes_are_stated() -> None:
    net = Recurrent()
    with net.graph:
        n = hr.placeholder(hr.int32, ())
        y = hr.while_loop(lambda i: i < n, lambda i: i + 2, (0,))[0]
    session = hr.Session(graph=net.graph)
    assert session.run(y, {n: 5}) == 6
    assert not made(session)


def test_with_the_passes_off_there_is_one_code(net: Recurrent) -> None:
    with flags.override(OPTIMIZE="off"):
        session = hr.Session(graph=net.graph)
        got = session.run(net.fetches, net.feeds(4, 5))
    want = hr.Session(graph=net.graph, engine="interpret").run(net.fetches, net.feeds(4, 5))
    for a, b in zip(got, want, strict=True):
        np.testing.assert_array_equal(a, b)
    assert not made(session)


def test_what_cannot_be_compiled_is_tried_once() -> None:
    with hr.Graph() as g:
        x = hr.placeholder(hr.float32, (None,))
        q = hr.FIFOQueue(10, hr.float32, ())
        fill = q.enqueue_many(x)
        y = hr.while_loop(lambda i, a: i < 2, lambda i, a: (i + 1, a + q.dequeue()), (0, 0.0))[1]
        z = hr.reduce_sum(x) + y
    session = hr.Session(graph=g)
    for n in (2, 3):
        session.run(fill, {x: np.ones(n)})
        assert session.run(z, {x: np.ones(n)}) == n + 2
    assert not made(session)
    assert session.explain(z, [x]).engine == "interpret"


def test_the_plans_of_a_step_that_waits_serve_all_shapes() -> None:
    with hr.Graph() as g:
        x = hr.placeholder(hr.float32, (None, None))
        q = hr.FIFOQueue(10, hr.float32, ())
        fill = q.enqueue(hr.constant(1.0))
        _, total = hr.while_loop(
            lambda i, a: i < hr.shape(x)[0],
            lambda i, a: (i + 1, a + hr.cast(hr.shape(x)[1], hr.float32)),
            (0, q.dequeue()),
        )
    session = hr.Session(graph=g)
    for shape in ((2, 3), (3, 4), (0, 1)):
        session.run(fill)
        assert session.run(total, {x: np.ones(shape)}) == 1 + shape[0] * shape[1]
    assert not made(session)


def test_a_step_that_only_some_shapes_place_on_one_device_has_plans_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    with hr.Graph() as g:
        x = hr.placeholder(hr.float32, (None, None))
        many = [hr.reduce_sum(hr.matmul(x * float(k), x)) for k in range(1, 4)]
        _, rows = hr.while_loop(lambda i, a: i < hr.shape(x)[0], lambda i, a: (i + 1, a + 1), (0, 0))
    monkeypatch.setattr(thresholds, "UNKNOWN_DIMENSION", 1)
    session = hr.Session(graph=g, devices={"CPU": 2})
    for n in (2, 400, 3):
        *sums, found = session.run([*many, rows], {x: np.ones((n, n))})
        np.testing.assert_allclose(sums, [k * n**3 for k in range(1, 4)])
        assert found == n
    assert session.explain([*many, rows], [x]).devices == ()


@pytest.mark.system
@pytest.mark.parametrize("waits", [False, True])
def test_threads_that_run_a_step_for_the_first_time_compile_it_once(
    monkeypatch: pytest.MonkeyPatch, waits: bool
) -> None:
    with hr.Graph() as g:
        x = hr.placeholder(hr.float32, (None,))
        q = hr.FIFOQueue(10, hr.float32, ())
        fill = q.enqueue_many(x)
        y = hr.while_loop(lambda i, a: i < 2, lambda i, a: (i + 1, a + hr.reduce_sum(x)), (0, 0.0))[1]
        if waits:
            y += q.dequeue()
    session = hr.Session(graph=g)
    session.run(fill, {x: np.zeros(4)})
    runs: list[Any] = []

    def slow(stage: Any) -> Any:
        def run(*args: Any) -> Any:
            runs.append(stage)
            time.sleep(0.02)  # for the other threads to arrive
            return stage(*args)

        return run

    monkeypatch.setattr(programs, "pruned", slow(programs.pruned))
    monkeypatch.setattr(pipeline, "optimized", slow(pipeline.optimized))
    arrived = threading.Barrier(4)

    def run() -> Any:
        arrived.wait(10)
        return session.run(y, {x: np.ones(3)})

    with futures.ThreadPoolExecutor(4) as pool:
        assert [f.result(10) for f in [pool.submit(run) for _ in range(4)]] == [6] * 4
    assert len(runs) == 2


def test_a_shape_that_does_not_fit_is_told_as_before(net: Recurrent) -> None:
    feeds = {**net.feeds(4, 5), net.lengths: np.ones(3, np.int32)}
    told = []
    for engine in ("interpret", "auto"):
        session = hr.Session(graph=net.graph, engine=engine)
        for _ in range(2):
            with pytest.raises(hr.errors.InvalidArgumentError) as caught:
                session.run(net.fetches, feeds)
            told.append(str(caught.value).partition(" for ")[0].partition(":")[0])
    assert len(set(told)) == 1, told


def test_a_callable_does_so_too(net: Recurrent) -> None:
    session = hr.Session(graph=net.graph)
    call = session.make_callable(net.fetches, [net.x, net.lengths])
    for a, b in zip(call(*net.feeds(4, 5).values()), session.run(net.fetches, net.feeds(4, 5)), strict=True):
        np.testing.assert_array_equal(a, b)
    assert list(made(session)) == [((4, 5, 2), (4,))]


def test_explain_tells_the_shapes(net: Recurrent) -> None:
    session = hr.Session(graph=net.graph)
    feeds = [net.x, net.lengths]
    assert session.explain(net.fetches, feeds).shapes == ()
    session.run(net.fetches, net.feeds(4, 5))
    session.run(net.fetches, net.feeds(2, 5))
    told = session.explain(net.fetches, feeds)
    assert told.shapes == ("[4,5,2], [4]", "[2,5,2], [2]")
    assert "  for [2,5,2], [2]\n" in str(told)
    assert told.source == steps_of(session)[0].variants[(2, 5, 2), (2,)].compiled.source


def queued(fail_at: int = 99) -> tuple[Any, Any, Any, Any]:
    """A graph with a queue of tensors of any shape [?, 2].

    It has the operation that fills the queue, a loop over one of the tensors, and its gradient.

    Args:
      fail_at: the iteration that fails.
    """
    with hr.Graph() as g:
        x = hr.placeholder(hr.float32, (None, 2))
        q = hr.FIFOQueue(10, [hr.float32])
        fill = q.enqueue([x])
        item = q.dequeue(name="item")
        item.set_shape((None, 2))

        def body(i: Any, a: Any) -> Any:
            checked = hr.reshape(a, hr.where(i < fail_at, hr.shape(a), [7]), name="checked")
            return i + 1, hr.tanh(checked * item)

        y = hr.while_loop(
            lambda i, a: i < 4,
            body,
            (0, item),
            shape_invariants=(hr.TensorSpec((), hr.int32), hr.TensorSpec((None, 2), hr.float32)),
        )[1]
        return g, x, fill, [y, *hr.gradients(hr.reduce_sum(y), [item])]


def test_clusters_do_so_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(thresholds, "SHAPE_VARIANTS", 2)
    seen: list[dict[int, Any]] = []
    add = variants.Variants._add
    monkeypatch.setattr(variants.Variants, "_add", lambda self, key: (seen.append(key), add(self, key))[1])
    g, x, fill, fetches = queued()
    session, reference = hr.Session(graph=g), hr.Session(graph=g, engine="interpret")
    for rows in (3, 1, 3, 0, 5):
        for s in (session, reference):
            s.run(fill, {x: np.arange(2.0 * rows).reshape(rows, 2)})
        for a, b in zip(session.run(fetches), reference.run(fetches), strict=True):
            assert a.shape == b.shape == (rows, 2)
            np.testing.assert_allclose(a, b, rtol=1e-5)
    assert seen == [((3, 2),), ((1, 2),), ((0, 2),), ((5, 2),)]


def test_an_error_in_a_cluster_is_told_as_the_interpreter_does() -> None:
    g, x, fill, fetches = queued(fail_at=2)
    told = []
    for engine in ("interpret", "auto"):
        session = hr.Session(graph=g, engine=engine)
        for rows in (3, 5):  # with two of them, it is not the newest code that fails first
            session.run(fill, {x: np.ones((rows, 2))})
        for _ in range(2):
            with pytest.raises(hr.errors.InvalidArgumentError) as caught:
                session.run(fetches)
            told.append([str(caught.value), *caught.value.__notes__[:2]])
        session.run(fill, {x: np.ones((3, 2))})
        with pytest.raises(hr.errors.InvalidArgumentError) as caught:
            session.run(fetches)
        told.append([str(caught.value), *caught.value.__notes__[:2]])
    assert told[:3] == told[3:]
    assert "checked" in told[0][1]
    assert "iteration 2 of loop 'while'" in told[0][1] + told[0][2]
