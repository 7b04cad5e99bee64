"""Results that are written into dead arrays: no value changes that is still visible.

A dead array has no reader left.

Random programs over 2-D arrays, with every value on the way fetched or only some; in branches and loops, with views of
values and values in lists. The interpreter never writes into anything.
"""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

import headrace as hr
from headrace import flags
from headrace.ir.graph import Tensor
from tests.compile.running import b, both, run, same, source

N = 3  # arrays are N x N, so that everything fits everything


def unary(rng: random.Random, x: Tensor) -> Tensor:
    return rng.choice([
        hr.tanh, hr.sigmoid, hr.square, lambda v: -v, lambda v: v * 0.5, lambda v: 1.0 - v, hr.nn.relu, hr.abs,
        hr.nn.softplus, hr.stop_gradient, hr.nn.elu,
    ])(x)  # fmt: skip


def binary(rng: random.Random, x: Tensor, y: Tensor) -> Tensor:
    return rng.choice([
        hr.add, hr.subtract, hr.multiply, hr.matmul, hr.maximum, hr.minimum, b().TanhGrad, b().SigmoidGrad,
        hr.squared_difference, lambda u, v: hr.matmul(u, v, transpose_b=True), lambda u, v: u * v + u,
        lambda u, v: u / (1.0 + hr.square(v)),
    ])(x, y)  # fmt: skip


def view(rng: random.Random, x: Tensor) -> Tensor:
    """The same elements in another place, or all combined with a few of them.

    The results are views where possible.
    """
    return rng.choice([
        hr.transpose, lambda v: hr.reshape(hr.reshape(v, [N * N]), [N, N]), lambda v: v + v[0], lambda v: v * v[:, 1:2],
        hr.identity, lambda v: hr.concat(hr.split(v, N, axis=1)[::-1], 1), lambda v: v + hr.reduce_sum(v, 0),
        lambda v: v - hr.expand_dims(v[1], 1), lambda v: hr.concat([v[1:], v[:1]], 0),
    ])(x)  # fmt: skip


def branch(rng: random.Random, known: list[Tensor], p: Tensor, depth: int) -> Tensor:
    out: Tensor = hr.cond(
        p, lambda: block(rng, known, p, 3, depth - 1)[-1], lambda: block(rng, known, p, 2, depth - 1)[-1]
    )
    return out


def loop(rng: random.Random, known: list[Tensor], p: Tensor, depth: int) -> list[Tensor]:
    """A loop over two arrays, with a list of a result of each iteration.

    The result may be a view.
    """
    trips = rng.choice([0, 1, 3])
    rows = hr.TensorArray(hr.float64, size=trips, element_shape=[N, N])

    def body(i: Tensor, x: Tensor, y: Tensor, rows: Any) -> Any:
        made = block(rng, [*known, x, y], p, 4, depth - 1)
        u, v, kept = (rng.choice(made) for _ in range(3))
        return i + 1, u, v, rows.write(i, kept)

    _, x, y, rows = hr.while_loop(lambda i, *_: i < trips, body, [0, rng.choice(known), rng.choice(known), rows])
    return [x, y, hr.reduce_sum(rows.stack(), 0) + x]


def block(rng: random.Random, known: list[Tensor], p: Tensor, length: int, depth: int) -> list[Tensor]:
    """Random statements: the values known in the end, those made here last."""
    known = list(known)
    for _ in range(length):
        kind = rng.random()
        recent = known[-4:]
        if depth and kind < 0.12:
            known.append(branch(rng, known, p, depth))
        elif depth and kind < 0.25:
            known += loop(rng, known, p, depth)
        elif kind < 0.5:
            known.append(view(rng, rng.choice(recent)))
        elif kind < 0.75:
            known.append(unary(rng, rng.choice(recent)))
        else:
            known.append(binary(rng, rng.choice(known), rng.choice(recent)))
        known[-1] = hr.clip_by_value(known[-1], -9.0, 9.0) if rng.random() < 0.2 else known[-1]
    return known


def program(seed: int, length: int, depth: int) -> None:
    rng = random.Random(seed)
    values = np.random.default_rng(seed)
    with hr.Graph() as g:
        p = hr.placeholder(hr.bool, [], name="p")
        feeds = [hr.placeholder(hr.float64, [N, N], name=n) for n in "xyz"]
        made = block(rng, feeds, p, length, depth)[3:]
        fed: dict[Any, Any] = {t: values.standard_normal((N, N)) for t in feeds}
        before = [v.copy() for v in fed.values()]
        choices = [made, made[-1:], rng.sample(made, min(3, len(made)))]
        for fetches in choices:
            for verify in (0, 2):
                with (
                    flags.override(OPTIMIZE="off", VERIFY=verify),
                    hr.Session(graph=g, engine="compiled") as one,
                    hr.Session(graph=g, engine="interpret") as other,
                ):
                    for decided in (True, False):
                        fed[p] = decided
                        got = one.run(fetches, fed)
                        same(got, other.run(fetches, fed), f"seed {seed}")
                        same(one.run(fetches, fed), got, f"seed {seed}, once more")
            assert not any(np.shares_memory(u, v) for u in got for v in fed.values() if isinstance(v, np.ndarray))
            assert all(v.flags.writeable for v in got)
        same([fed[t] for t in feeds], before, f"feeds of seed {seed}")


@pytest.mark.parametrize("seed", range(25))
def test_straight_programs(seed: int) -> None:
    program(seed, 14, 0)


@pytest.mark.parametrize("seed", range(12))
def test_programs_with_branches_and_loops(seed: int) -> None:
    program(1000 + seed, 8, 2)


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(150))
def test_many_programs(seed: int) -> None:
    program(5000 + seed, 10, 2)


def chain(x: Tensor) -> Tensor:
    return hr.tanh(hr.sigmoid(x + 1.0) * 2.0)


def test_a_chain_goes_in_one_array() -> None:
    """Arrays are written into at all, without which the tests above would be worthless."""
    with hr.Graph():
        x = hr.placeholder(hr.float64, [N, N], name="x")
        text = source(chain(x), [x])
        assert sum(" = k" in line for line in text.splitlines()) == 1
        both(chain(x), {x: np.eye(N)})


def test_a_value_that_is_fetched_is_not_written_into() -> None:
    with hr.Graph():
        x = hr.placeholder(hr.float64, [N, N], name="x")
        y = x + 1.0
        z = hr.tanh(y)
        assert both([y, z], {x: np.zeros((N, N))})[0].tolist() == np.ones((N, N)).tolist()


def test_a_value_whose_view_is_fetched_is_not_written_into() -> None:
    with hr.Graph():
        x = hr.placeholder(hr.float64, [N, N], name="x")
        for make in (hr.transpose, lambda v: hr.reshape(v, [N * N]), lambda v: v[1:], hr.identity):
            y = x + 1.0
            v = make(y)
            both([v, hr.tanh(y)], {x: np.arange(9.0).reshape(N, N)})
            both([hr.tanh(y), v], {x: np.arange(9.0).reshape(N, N)})


def test_a_value_in_a_list_is_not_written_into() -> None:
    with hr.Graph():
        x = hr.placeholder(hr.float64, [N, N], name="x")

        def body(i: Tensor, y: Tensor, rows: Any) -> Any:
            made = y + 1.0
            return i + 1, hr.tanh(made), rows.write(i, made)

        rows = hr.TensorArray(hr.float64, size=4, element_shape=[N, N])
        _, y, rows = hr.while_loop(lambda i, *_: i < 4, body, [0, x, rows])
        both([y, rows.stack()], {x: np.arange(9.0).reshape(N, N)})


def test_variables_are_not_written_into() -> None:
    with hr.Graph() as g:
        v = hr.Variable(np.ones((N, N)))
        read = v.read_value()
        y = hr.tanh(-read + 1.0) * 2.0
        later = read + 1.0
        for engine in ("compiled", "interpret"):
            with hr.Session(graph=g, engine=engine) as s:
                s.run(v.initializer)
                for _ in range(2):
                    s.run([y, later])
                    assert s.run(read).tolist() == np.ones((N, N)).tolist()


def test_what_is_assigned_is_not_written_into() -> None:
    with hr.Graph() as g:
        x = hr.placeholder(hr.float64, [N, N], name="x")
        v = hr.Variable(np.zeros((N, N)))
        value = v.read_value()
        made = x + 1.0
        put = v.assign(made)
        with hr.control_dependencies([put.op]):
            y = hr.tanh(made)
        for optimize in ("on", "off"):
            with flags.override(OPTIMIZE=optimize), hr.Session(graph=g, engine="compiled") as s:
                s.run(v.initializer)
                s.run([y, put.op], {x: np.ones((N, N))})
                s.run(y, {x: np.full((N, N), 5.0)})
                out = s.run(value)
                assert out.tolist() == np.full((N, N), 6.0).tolist()


def test_constants_are_not_written_into() -> None:
    with hr.Graph() as g:
        c = hr.constant(np.ones((N, N)))
        y = hr.tanh(c * 2.0) + c
        with hr.Session(graph=g, engine="compiled") as s:
            first = s.run([c, y])
            first[0][:] = 7.0
            first[1][:] = 7.0
            same(s.run([c, y]), run([c, y], engine="interpret"))


def test_what_a_run_returned_stays_as_it_was() -> None:
    with hr.Graph() as g:
        x = hr.placeholder(hr.float64, [N, N], name="x")
        out = [x + 1.0, hr.transpose(x), hr.identity(x), chain(x)]
        with hr.Session(graph=g, engine="compiled") as s:
            first = s.run(out, {x: np.eye(N)})
            kept = [v.copy() for v in first]
            s.run(out, {x: np.full((N, N), 3.0)})
            same(first, kept)
            given = np.eye(N)
            again = s.run(out, {x: given})
            given[:] = 8.0
            same(again, kept)


def test_an_array_that_broadcasts_is_no_buffer() -> None:
    with hr.Graph():
        x, y = hr.placeholder(hr.float64, [1, N], name="x"), hr.placeholder(hr.float64, [N, 1], name="y")
        u, v = x + 1.0, y + 1.0
        both([u * v, (u + u) * (v + v)], {x: np.ones((1, N)), y: np.arange(3.0).reshape(N, 1)})


def test_another_dtype_is_no_buffer() -> None:
    with hr.Graph():
        x = hr.placeholder(hr.float64, [N, N], name="x")
        y = hr.cast(x + 0.5, hr.float32) * 3.0
        both([hr.cast(y, hr.float64) + x, (x + 1.0) < (x * x)], {x: np.eye(N)})


def test_shapes_that_are_not_known() -> None:
    with hr.Graph():
        x, y = hr.placeholder(hr.float64, None, name="x"), hr.placeholder(hr.float64, [None, N], name="y")
        out = hr.tanh((x + 1.0) * (y + 1.0)) - (y + 1.0)
        for shape in ((N, N), (2, N), (1, N)):
            both(out, {x: np.ones((1, N)), y: np.arange(float(np.prod(shape))).reshape(shape)})
