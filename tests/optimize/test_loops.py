"""Loop passes on whole programs.

The results are the same with and without the passes; the operations that are left in the loops are compared too.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import headrace as hr
from headrace.optimize.base import Options
from headrace.optimize.loops import LOOP_PASSES
from headrace.resources.manager import ResourceManager
from tests.grad.test_random_gradients import Example, Made
from tests.optimize.loop_steps import Optimized, close, optimize

f64 = hr.float64


def draw(*shapes: tuple[int, ...]) -> list[np.ndarray]:
    rng = np.random.default_rng(3)
    return [rng.standard_normal(s) * 0.5 for s in shapes]


def inputs(values: list[np.ndarray], unknown: bool = False) -> list[hr.Tensor]:
    return [
        hr.placeholder(f64, [None if unknown and i == v.ndim - 2 else d for i, d in enumerate(v.shape)]) for v in values
    ]


def lstm(trips: int | None, batch: int = 2, size: int = 3, steps: int = 4) -> tuple[Any, list[np.ndarray]]:
    """An LSTM over `steps` inputs with `trips` iterations.

    With None the number of iterations is fed.
    """

    def build(fed: list[Any], n: Any) -> Any:
        xs, h, c, w, b = fed
        inputs = hr.TensorArray(f64, steps).unstack(xs)

        def step(t: Any, h: Any, c: Any) -> Any:
            z = hr.matmul(hr.concat([inputs.read(t), h], 1), w) + b
            i, j, f, o = hr.split(z, 4, 1)
            c = hr.sigmoid(f) * c + hr.sigmoid(i) * hr.tanh(j)
            return t + 1, hr.sigmoid(o) * hr.tanh(c), c

        _, h, c = hr.while_loop(lambda t, h, c: t < n, step, (0, h, c))
        return hr.reduce_sum(h * h) + hr.reduce_sum(c)

    shapes = [(steps, batch, size), (batch, size), (batch, size), (2 * size, 4 * size), (4 * size,)]
    return build, draw(*shapes)


def made(
    build: Callable[[list[Any], Any], Any],
    values: list[np.ndarray],
    n: Any,
    wrt: list[int],
    passes: Any,
    unknown: bool = False,
    order: int = 1,
    options: Options | None = None,
) -> tuple[Optimized, list[Any]]:
    """The step that computes `build` and its gradients, and its feeds."""
    with hr.Graph():
        fed = inputs(values, unknown)
        feeds: list[Any] = list(fed)
        given = list(values)
        if n is None:
            n = hr.placeholder(hr.int32, [])
            feeds.append(n)
        y = build(fed, n)
        fetches = [y]
        for _ in range(order):
            grads = hr.gradients(y, [fed[i] for i in wrt], unconnected="zero")
            fetches += grads
            y = hr.add_n([hr.reduce_sum(g * g) for g in grads])
        return optimize(feeds, fetches, passes, options=options, rounds=4), given


def compare(
    build: Any, values: list[np.ndarray], n: Any, wrt: list[int], fed: Sequence[Any] = (), **kwargs: Any
) -> Optimized:
    plain, given = made(build, values, n, wrt, [], **kwargs)
    moved, _ = made(build, values, n, wrt, LOOP_PASSES, **kwargs)
    close(moved.run([*given, *fed]), plain.run([*given, *fed]), 1e-12)
    assert not moved.changed, "it comes to an end"
    return moved


@pytest.mark.matrix
@pytest.mark.parametrize("unknown", [False, True])
@pytest.mark.parametrize(
    ("trips", "wrt", "order"),
    [
        (4, [3, 4], 1),
        (4, [0, 1, 2, 3, 4], 1),
        (4, [1], 1),
        (3, [0, 3], 1),
        (1, [0, 3, 4], 1),
        (0, [0, 1, 2, 3, 4], 1),
        (4, [3, 4], 2),
        pytest.param(3, [0, 1, 2, 3, 4], 2, marks=pytest.mark.nightly),
        pytest.param(0, [0, 3], 2, marks=pytest.mark.nightly),
    ],
)
def test_lstm_of_known_length(trips: int, wrt: list[int], order: int, unknown: bool) -> None:
    build, values = lstm(trips)
    compare(build, values, trips, wrt, unknown=unknown, order=order)


@pytest.mark.parametrize(("trips", "order"), [(4, 1), (2, 1), (0, 1), pytest.param(3, 2, marks=pytest.mark.nightly)])
def test_lstm_of_unknown_length(trips: int, order: int) -> None:
    build, values = lstm(None)
    compare(build, values, None, [0, 3, 4], [np.int32(trips)], order=order)


def test_what_is_left_in_the_loops_of_an_lstm() -> None:
    build, values = lstm(4)
    moved = compare(build, values, 4, [3, 4])
    forward, backward = (op.name for op in moved.graph.operations if op.opdef.structured == "While")
    for name in (forward, backward):
        assert moved.count(name, "MatMul") == 1
        assert moved.count(name, "Sum") == 0
    assert moved.count(forward, "ConcatV2") == 0
    assert moved.count(backward, "TensorListPushBack") == 1
    assert moved.count(backward, "TensorListGetItem") == 0
    rules = {n.rule for n in moved.context.notes if n.fired}
    assert rules >= {"loop_counts", "loop_products", "loop_sums", "loop_fission", "loop_accumulations"}


def test_the_gradient_of_the_inputs_is_made_behind_the_loop() -> None:
    build, values = lstm(4)
    moved = compare(build, values, 4, [0])
    _, backward = (op.name for op in moved.graph.operations if op.opdef.structured == "While")
    assert moved.count(backward, "MatMul") == 1
    assert moved.count(backward, "TensorListSetItem") == 0
    assert moved.fired("loop_collections")


@pytest.mark.matrix
@pytest.mark.parametrize("rule", [p.name for p in LOOP_PASSES])
def test_each_pass_alone_and_all_but_it(rule: str) -> None:
    build, values = lstm(3)
    alone = [p for p in LOOP_PASSES if p.name == rule]
    plain, _ = made(build, values, 3, [0, 3, 4], [])
    want = plain.run(values)
    tolerance = 0 if rule in ("loop_counts", "loop_invariants", "loop_merging", "loop_variables") else 1e-12
    close(made(build, values, 3, [0, 3, 4], alone)[0].run(values), want, tolerance)
    off = Options(off=frozenset({rule}))
    others, _ = made(build, values, 3, [0, 3, 4], LOOP_PASSES, options=off)
    close(others.run(values), want, 1e-12)
    assert not [n for n in others.context.notes if n.rule == rule]


# *** bodies with more in them ***


@pytest.mark.matrix
def test_nested_loops() -> None:
    def build(fed: list[Any], n: Any) -> Any:
        xs, h, w, u = fed
        rows = hr.TensorArray(f64, 3).unstack(xs)

        def outer(i: Any, h: Any) -> Any:
            def inner(j: Any, h: Any) -> Any:
                return j + 1, hr.tanh(hr.matmul(h, w * 2.0) + hr.matmul(rows.read(j), u))

            _, h = hr.while_loop(lambda j, h: j < n, inner, (0, h))
            return i + 1, h + hr.matmul(rows.read(i), u)

        return hr.reduce_sum(hr.while_loop(lambda i, h: i < 2, outer, (0, h))[1])

    values = draw((3, 2, 4), (2, 3), (3, 3), (4, 3))
    for n in (3, 0):
        moved = compare(build, values, n, [0, 2, 3])
        assert not moved.changed
    assert len(moved.fired("loop_invariants")) >= 1
    compare(build, values, None, [0, 1, 2, 3], [np.int32(2)])


def test_conditionals_in_bodies_stay() -> None:
    def build(fed: list[Any], n: Any) -> Any:
        h, w, p = fed

        def step(i: Any, h: Any) -> Any:
            def then() -> Any:
                return hr.matmul(h, w) + hr.matmul(p, w)

            return i + 1, hr.cond(hr.reduce_sum(h) > 0.0, then, lambda: h * 0.5 - hr.matmul(p, w))

        return hr.reduce_sum(hr.while_loop(lambda i, h: i < n, step, (0, h))[1] ** 2.0)

    compare(build, draw((2, 3), (3, 3), (2, 3)), 4, [0, 1, 2])


def test_outputs_that_are_only_collected() -> None:
    def build(fed: list[Any], n: Any) -> Any:
        h, w, v = fed
        ys = hr.TensorArray(f64, 4)

        def step(i: Any, h: Any, ys: Any) -> Any:
            h = hr.tanh(hr.matmul(h, w))
            return i + 1, h, ys.write(i, hr.matmul(h, v))

        _, _, ys = hr.while_loop(lambda i, h, ys: i < 4, step, (0, h, ys))
        return hr.reduce_sum(ys.stack() ** 2.0)

    moved = compare(build, draw((2, 3), (3, 3), (3, 5)), 4, [0, 1, 2])
    assert moved.fired("loop_collections")


def test_effects_stay_where_they_are() -> None:
    found = []
    for passes in ((), LOOP_PASSES):
        with hr.Graph():
            v = hr.Variable(np.zeros(2), name="v")
            x, value = hr.placeholder(f64, [2]), v.read_value()

            def step(i: Any, v: Any = v, x: Any = x) -> Any:
                with hr.control_dependencies([v.assign_add(x * 2.0)]):
                    return hr.identity(i) + 1

            n = hr.while_loop(lambda i: i < 3, step, [0])
            resources = ResourceManager()
            optimize([], [], (), [v.initializer]).run([], resources)
            step_ = optimize([x], [hr.convert_to_tensor(n)], passes, rounds=2)
            step_.run([np.ones(2)], resources)
            found.append(optimize([], [value], ()).run([], resources)[0])
    np.testing.assert_array_equal(found[0], [6.0, 6.0])
    np.testing.assert_array_equal(found[1], found[0])


def test_a_variable_that_a_loop_only_reads_is_read_once() -> None:
    values = draw((4, 2, 3), (2, 3), (6, 3))

    def build(n: Any) -> Any:
        with hr.Graph():
            w = hr.Variable(values[2], name="w")
            xs, h = inputs(values[:2])
            rows = hr.TensorArray(f64, 4).unstack(xs)

            def step(i: Any, h: Any) -> Any:
                return i + 1, hr.tanh(hr.matmul(hr.concat([rows.read(i), h], 1), w))

            with hr.control_dependencies([w.assign_add(hr.ones([6, 3], f64))]):
                _, y = hr.while_loop(lambda i, h: i < n, step, (0, h))
            y = hr.reduce_sum(y * y)
            return w, [xs, h], [y, *hr.gradients(y, [w, h])]

    for n in (4, 0):
        found = []
        for passes in ((), LOOP_PASSES):
            w, feeds, fetches = build(n)
            resources = ResourceManager()
            optimize([], [], (), [w.initializer]).run([], resources)
            moved = optimize(feeds, fetches, passes, rounds=3)
            found.append(moved.run(values[:2], resources))
        close(found[1], found[0], 1e-12)
        products = [text for text in moved.fired("loop_fission") if "MatMul" in text]
        assert bool(products) is (n > 0)


def test_an_error_of_a_body_that_does_not_run_is_none() -> None:
    with hr.Graph():
        n, d = hr.placeholder(hr.int32, []), hr.placeholder(hr.int32, [])
        _, y = hr.while_loop(lambda i, y: i < n, lambda i, y: (i + 1, y + hr.floordiv(6, d)), (0, 0))
        moved = optimize([n, d], [y], LOOP_PASSES, rounds=2)
    assert moved.run([np.int32(0), np.int32(0)]) == [0]
    assert moved.run([np.int32(2), np.int32(3)]) == [4]
    with pytest.raises(hr.errors.InvalidArgumentError, match="division by zero"):
        moved.run([np.int32(1), np.int32(0)])
    assert "it may fail" in moved.refused("loop_invariants")[0]


# *** random recurrent networks ***


def cell(rng: random.Random) -> tuple[Any, list[np.ndarray]]:
    """A random recurrent network over the rows of one or two inputs.

    It runs forward or backward in time.
    """
    steps, batch, wide, size = rng.randint(2, 4), rng.randint(1, 3), rng.randint(1, 3), rng.randint(1, 3)
    joins, biased, gated, both = (rng.random() < 0.5 for _ in range(4))
    outputs, first = rng.random() < 0.5, rng.choice([0, 0, 1])

    def build(fed: list[Any], n: Any) -> Any:
        xs, h, w, u, b, v = fed
        rows = hr.TensorArray(f64, steps).unstack(xs)

        def step(t: Any, h: Any, total: Any, ys: Any) -> Any:
            x = rows.read(t)
            if both:
                x = hr.tanh(x) * 2.0
            if joins:
                z = hr.matmul(hr.concat([x, h] if gated else [h, x], 1), hr.concat([w, u] if gated else [u, w], 0))
            else:
                z = hr.matmul(x, w) + hr.matmul(h, u)
            z = z + b if biased else z
            h = hr.sigmoid(z) * h + hr.tanh(z) if gated else hr.tanh(z)
            y = hr.matmul(h, v)
            return t + 1, h, total + hr.reduce_sum(y, 0), ys.write(ys.size(), y) if outputs else ys

        ys = hr.TensorArray(f64, 0, dynamic_size=True, element_shape=[None, 2])
        zeros = hr.zeros([2], f64)
        _, h, total, ys = hr.while_loop(lambda t, *_: t < n, step, (first, h, total_of(zeros), ys))
        y = hr.reduce_sum(h * h) + hr.reduce_sum(hr.sin(total))
        return y + hr.reduce_sum(ys.stack() ** 3.0) if outputs else y

    def total_of(zeros: Any) -> Any:
        return zeros

    shapes = [(steps, batch, wide), (batch, size), (wide, size), (size, size), (size,), (size, 2)]
    return build, draw(*shapes)


@pytest.mark.matrix
@pytest.mark.rotated(2)
@pytest.mark.parametrize("seed", range(12))
def test_random_recurrent_networks(seed: int) -> None:
    rng = random.Random(seed)
    build, values = cell(rng)
    n = rng.randint(1 if seed % 3 else 0, values[0].shape[0])
    wrt = sorted(rng.sample(range(6), rng.randint(1, 6)))
    known = rng.random() < 0.6
    fed = [] if known else [np.int32(n)]
    compare(build, values, n if known else None, wrt, fed, unknown=rng.random() < 0.4, order=1)


# *** random programs ***


@pytest.mark.matrix
@pytest.mark.parametrize("block", [0, *(pytest.param(b, marks=pytest.mark.nightly) for b in (1, 2, 3))])
def test_random_gradients(block: int) -> None:
    """Derivatives of random programs of `tests.grad`, to the second order."""
    for seed in range(block * 6, block * 6 + 6):
        example = Example(seed)
        with Made(example) as form:
            ys, fetches = form.y, [form.y]
            for k in range(2):
                gradient = form.gradients(ys)
                fetches += gradient.values()
                ys = hr.add_n([hr.reduce_sum(g * example.directions[k][n]) for n, g in gradient.items()])
        feeds = [t for n, t in form.inputs.items() if n != "V"]
        fed = [example.at[n] for n in form.inputs if n != "V"]
        found = []
        for passes in ((), LOOP_PASSES):
            resources = ResourceManager()
            optimize([], [], (), [form.inputs["V"].initializer]).run([], resources)
            found.append(optimize(feeds, fetches, passes, rounds=2).run(fed, resources))
        close(found[1], found[0], 1e-9)
