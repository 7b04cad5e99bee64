"""Layouts of programs over devices.

They are data parallel, with a parameter server, and a layer a device. Each program is one graph. Its results on several
devices are compared with those of the very same graph on one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest

import headrace as hr

pytestmark = pytest.mark.matrix

RATE = 0.1
STEPS = 4
SOON_MS = 60_000  # of steps that take milliseconds, unless a device waits for ever


def device(i: int) -> str:
    return f"/device:CPU:{i}"


class Layout:
    """A program on one device and on several.

    Args:
      graph: of the program.
      n: how many devices it asks for.
    """

    def __init__(self, graph: hr.Graph, n: int) -> None:
        self.one = hr.Session(graph=graph)
        self.many = hr.Session(graph=graph, devices={"CPU": n})
        self.names = {f"/job:localhost/replica:0/task:0{device(i)}" for i in range(n)}

    def run(self, fetches: Any, feeds: Mapping[Any, Any] | None = None, on: Sequence[int] | None = None) -> Any:
        """Values of `fetches`, after a check that one device and several give the same.

        Args:
          fetches, feeds: as `Session.run` takes them.
          on: the devices that the step has to run on; None: all.
        """
        used = set(self.many._call(fetches, dict(feeds or {})).programs.general.placement.of.values())
        assert used == (self.names if on is None else {n for n in self.names if n[-1] in map(str, on)})
        want = self.one.run(fetches, feeds, timeout_ms=SOON_MS)
        got = self.many.run(fetches, feeds, timeout_ms=SOON_MS)
        assert_close(got, want)
        return got

    def begin(self, variables: Sequence[hr.Variable]) -> None:
        """Gives the variables their initial values."""
        for session in (self.one, self.many):
            session.run([v.initializer for v in variables], timeout_ms=SOON_MS)


def assert_close(got: Any, want: Any) -> None:
    if isinstance(want, (list, tuple)):
        assert len(got) == len(want)
        for a, b in zip(got, want, strict=True):
            assert_close(a, b)
    elif want is not None:
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


def batch(n: int) -> tuple[np.ndarray, np.ndarray]:
    """Examples of a function to learn: three numbers, and one computed from them."""
    x = np.random.default_rng(1).normal(size=(n, 3)).astype(np.float32)
    return x, np.tanh(x.sum(1, keepdims=True))


def weights() -> list[np.ndarray]:
    rng = np.random.default_rng(2)
    return [rng.normal(size=s).astype(np.float32) * np.float32(0.5) for s in ((3, 4), (4,), (4, 1))]


def loss(params: Sequence[Any], x: Any, y: Any) -> Any:
    w, b, v = params
    return hr.reduce_mean(hr.square(hr.matmul(hr.tanh(hr.matmul(x, w) + b), v) - y))


def learned(x: np.ndarray, y: np.ndarray) -> list[np.ndarray]:
    """The weights after `STEPS` steps with the whole batch, computed without any layout."""
    with hr.Graph() as g:
        params = [hr.placeholder(hr.float32, w.shape) for w in weights()]
        grads = hr.gradients(loss(params, x, y), params)
        after = [p - RATE * d for p, d in zip(params, grads, strict=True)]
    session, values = hr.Session(graph=g), weights()
    for _ in range(STEPS):
        values = session.run(after, dict(zip(params, values, strict=True)))
    return values


# *** data parallel ***


def replicated(n: int, x: Any, y: Any) -> tuple[list[list[hr.Variable]], Any]:
    """A copy of the variables on each of `n` devices, and a training operation.

    The operation learns from a batch, of which each device has a part. Each replica computes the gradients of its part
    on its device. Averaged over all replicas they are those of the whole batch, and since all get the same bits the
    copies stay the same.
    """
    copies, grads = [], []
    for i, (xi, yi) in enumerate(zip(hr.split(x, n), hr.split(y, n), strict=True)):
        with hr.device(device(i)), hr.name_scope(f"replica{i}"):
            copies.append([hr.Variable(w) for w in weights()])
            params = [v.value() for v in copies[i]]
            grads.append(hr.gradients(loss(params, xi, yi), params))
    updates = []
    for k in range(len(grads[0])):
        for i, total in enumerate(hr.all_sum([g[k] for g in grads], [device(i) for i in range(n)])):
            with hr.device(device(i)):
                updates.append(copies[i][k].assign_sub(total * (RATE / n)))
    return copies, hr.group(*updates)


@pytest.mark.parametrize("n", [2, 4])
def test_data_parallel_with_variables_on_each_device(n: int) -> None:
    data = batch(8)
    with hr.Graph() as g:
        x, y = hr.placeholder(hr.float32, (8, 3)), hr.placeholder(hr.float32, (8, 1))
        copies, train = replicated(n, x, y)
    layout = Layout(g, n)
    layout.begin([v for c in copies for v in c])
    for _ in range(STEPS):
        layout.run(train, {x: data[0], y: data[1]})
    values = layout.run(copies)
    assert_close(values[0], learned(*data))
    for other in values[1:]:
        assert [w.tobytes() for w in other] == [w.tobytes() for w in values[0]]


def test_data_parallel_with_variables_on_one_device() -> None:
    """The values are broadcast to the replicas, and the gradients return as a sum.

    The sum is the gradient of the broadcast.
    """
    n, data = 3, batch(9)
    with hr.Graph() as g:
        x, y = hr.placeholder(hr.float32, (9, 3)), hr.placeholder(hr.float32, (9, 1))
        with hr.device(device(0)):
            variables = [hr.Variable(w) for w in weights()]
            params = [v.value() for v in variables]
        there = [hr.broadcast(p, [device(i) for i in range(n)]) for p in params]
        losses = []
        for i, (xi, yi) in enumerate(zip(hr.split(x, n), hr.split(y, n), strict=True)):
            with hr.device(device(i)):
                losses.append(loss([p[i] for p in there], xi, yi))
        with hr.device(device(0)):
            grads = hr.gradients(hr.add_n(losses) / n, params)
            train = hr.group(*(v.assign_sub(d * RATE) for v, d in zip(variables, grads, strict=True)))
    layout = Layout(g, n)
    layout.begin(variables)
    for _ in range(STEPS):
        layout.run(train, {x: data[0], y: data[1]})
    assert_close(layout.run(variables, on=[0]), learned(*data))


def test_data_parallel_learning_in_a_loop() -> None:
    """All steps of learning are one step of the session.

    The weights of each replica are loop variables.
    """
    n, data = 2, batch(8)
    with hr.Graph() as g:
        steps = hr.placeholder(hr.int32, ())
        x, y = hr.split(data[0], n), hr.split(data[1], n)

        def body(step: Any, *params: Any) -> tuple[Any, ...]:
            mine = [params[:3], params[3:]]
            grads = []
            for i in range(n):
                with hr.device(device(i)):
                    grads.append(hr.gradients(loss(mine[i], x[i], y[i]), list(mine[i])))
            totals = [hr.all_sum(list(both), [device(i) for i in range(n)]) for both in zip(*grads, strict=True)]
            out = []
            for i in range(n):
                with hr.device(device(i)):
                    out += [p - t[i] * (RATE / n) for p, t in zip(mine[i], totals, strict=True)]
            return (step + 1, *out)

        _, *final = hr.while_loop(lambda step, *_: step < steps, body, (0, *weights(), *weights()))
    layout = Layout(g, n)
    got = layout.run(final, {steps: STEPS})
    assert_close(got[:3], learned(*data))
    assert [w.tobytes() for w in got[:3]] == [w.tobytes() for w in got[3:]]
    assert_close(layout.run(final, {steps: 0}), weights() * 2)


# *** a parameter server ***


def test_parameter_server() -> None:
    """Variables are on one device, workers on others.

    All gradients go to the device of the variables.
    """
    n, data = 2, batch(8)
    with hr.Graph() as g:
        x, y = hr.placeholder(hr.float32, (8, 3)), hr.placeholder(hr.float32, (8, 1))
        with hr.device(device(0)):
            variables = [hr.Variable(w) for w in weights()]
            params = [v.value() for v in variables]
        grads = []
        for i, (xi, yi) in enumerate(zip(hr.split(x, n), hr.split(y, n), strict=True)):
            with hr.device(device(1 + i)):
                grads.append(hr.gradients(loss(params, xi, yi), params))
        with hr.device(device(0)):
            train = hr.group(
                *(v.assign_sub(hr.add_n(list(d)) * (RATE / n)) for v, d in zip(variables, zip(*grads, strict=True)))
            )
    layout = Layout(g, 1 + n)
    layout.begin(variables)
    for _ in range(STEPS):
        layout.run(train, {x: data[0], y: data[1]})
    assert_close(layout.run(variables, on=[0]), learned(*data))


def test_workers_of_a_parameter_server_that_do_not_wait_for_each_other() -> None:
    """Each worker updates the variables when it is done, in a step of its own."""
    n, data = 2, batch(8)
    with hr.Graph() as g:
        with hr.device(device(0)):
            variables = [hr.Variable(w) for w in weights()]
        trains = []
        for i, (xi, yi) in enumerate(zip(np.split(data[0], n), np.split(data[1], n), strict=True)):
            with hr.device(device(0)):
                params = [v.value() for v in variables]
            with hr.device(device(1 + i)):
                grads = hr.gradients(loss(params, xi, yi), params)
            with hr.device(device(0)), hr.control_dependencies(None):
                trains.append(hr.group(*(v.assign_sub(d * RATE) for v, d in zip(variables, grads, strict=True))))
    layout = Layout(g, 1 + n)
    layout.begin(variables)
    before = layout.run(variables, on=[0])
    for i in (0, 1, 1, 0):
        layout.run(trains[i], on=[0, 1] if i == 0 else None)
    assert all(np.abs(a - b).max() > 1e-3 for a, b in zip(before, layout.run(variables, on=[0]), strict=True))


def test_rows_of_a_table_on_a_parameter_server() -> None:
    """Only the rows of a table that a batch uses go to the worker.

    Only the gradients of those rows come back.
    """
    ids = np.array([3, 7, 3], np.int32)
    start = np.arange(20, dtype=np.float32).reshape(10, 2)
    with hr.Graph() as g:
        with hr.device(device(0)):
            table = hr.Variable(start)
            rows = hr.gather(table, ids)
        with hr.device(device(1)):
            (grad,) = hr.gradients(hr.reduce_sum(hr.square(rows)), rows)
        with hr.device(device(0)):
            train = table.assign(hr.tensor_scatter_nd_sub(table, ids[:, None], grad * RATE))
    layout = Layout(g, 2)
    layout.begin([table])
    want = start.copy()
    want[7] -= RATE * 2 * start[7]
    want[3] -= RATE * 4 * start[3]
    np.testing.assert_allclose(layout.run(train), want, rtol=1e-6)


# *** model parallel ***


def cell(x: Any, h: Any, c: Any, w: Any, b: Any) -> tuple[Any, Any]:
    """One step of an LSTM layer: h and c from those of the previous step."""
    i, j, f, o = hr.split(hr.matmul(hr.concat([x, h], 1), w) + b, 4, axis=1)
    c = hr.sigmoid(f + 1.0) * c + hr.sigmoid(i) * hr.tanh(j)
    return hr.sigmoid(o) * hr.tanh(c), c


def lstm(x: Any, layers: Sequence[tuple[Any, Any]], size: int, place: Callable[[int], str]) -> Any:
    """The outputs, [time, batch, size], of stacked LSTM layers.

    Layer k is on the device `place(k)`. The program is one loop over time. Its body is cut between the layers, so while
    layer 1 does step t, layer 0 can do t + 1.
    """
    time, n = x.shape[0], x.shape[1]
    zero = hr.zeros((n, size), x.dtype)
    outputs = hr.TensorArray(x.dtype, time, element_shape=(n, size))

    def body(t: Any, outputs: Any, *states: Any) -> tuple[Any, ...]:
        out: list[Any] = []
        value = x[t]
        for k, (w, b) in enumerate(layers):
            with hr.device(place(k)):
                value, c = cell(value, states[2 * k], states[2 * k + 1], w, b)
            out += [value, c]
        return (t + 1, outputs.write(t, value), *out)

    _, outputs, *_ = hr.while_loop(lambda t, *_: t < time, body, (0, outputs, *[zero] * (2 * len(layers))))
    return outputs.stack()


@pytest.mark.parametrize("n", [2, pytest.param(3, marks=pytest.mark.nightly)])
def test_a_layer_of_an_lstm_on_each_device(n: int) -> None:
    size, rng = 4, np.random.default_rng(0)
    with hr.Graph() as g:
        x = hr.placeholder(hr.float32, (5, 2, size))
        layers = []
        for k in range(n):
            with hr.device(device(k)):
                w = hr.Variable(rng.normal(size=(2 * size, 4 * size)).astype(np.float32))
                layers.append((w, hr.Variable(np.zeros(4 * size, np.float32))))
        flat = [v for pair in layers for v in pair]
        values = [v.value() for v in flat]
        y = lstm(x, list(zip(values[::2], values[1::2], strict=True)), size, device)
        total = hr.reduce_sum(hr.square(y))
        grads = hr.gradients(total, [x, *values])
        train = hr.group(*(v.assign_sub(d * 0.01) for v, d in zip(flat, grads[1:], strict=True)))
    layout = Layout(g, n)
    layout.begin(flat)
    feeds = {x: rng.normal(size=(5, 2, size)).astype(np.float32)}
    found = layout.run([y, *grads], feeds)
    assert all(np.abs(d).max() > 1e-4 for d in found[1:])
    before = layout.run(total, feeds)
    for _ in range(3):
        layout.run(train, feeds)
    assert layout.run(total, feeds) < before
