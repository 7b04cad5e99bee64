"""Collectives between devices: values, bits and transfers.

The bits are the same on all devices and in every run. The transfers are compared by sender and receiver.
"""

from __future__ import annotations

import collections
from typing import Any

import numpy as np
import pytest

import headrace as hr
from headrace.thresholds import RING_BYTES
from tests.api.test_collectives import ALL, apply, device, expected
from tests.inside import step_of

pytestmark = pytest.mark.one_engine

SOON_MS = 60_000
SIZES = {"tree": (8, 4), "ring": (8, RING_BYTES // 16)}
sizes = pytest.mark.parametrize("shape", list(SIZES.values()), ids=list(SIZES))


def pinned(values: list[np.ndarray]) -> list[Any]:
    """A placeholder for each of the values, each on a device of its own."""
    out = []
    for k, v in enumerate(values):
        with hr.device(device(k)):
            out.append(hr.placeholder(hr.as_dtype(v.dtype), v.shape))
    return out


@sizes
@pytest.mark.parametrize("what", ALL)
def test_collectives_match_numpy(what: str, shape: tuple[int, ...]) -> None:
    rng = np.random.default_rng(0)
    values = [rng.integers(-9, 9, shape) for _ in range(4)]
    with hr.Graph() as g:
        xs = pinned(values)
        ys = apply(what, xs, [device(k) for k in range(4)] if what == "broadcast" else None)
    with hr.Session(graph=g, devices={"CPU": 4}, engine="interpret") as session:
        got = session.run(ys, dict(zip(xs, values, strict=True)), timeout_ms=SOON_MS)
    for value, want in zip(got, expected(what, values), strict=True):
        np.testing.assert_array_equal(value, want)


@sizes
def test_all_get_the_same_bits_in_every_run(shape: tuple[int, ...]) -> None:
    rng = np.random.default_rng(1)
    values = [rng.normal(size=shape).astype(np.float32) * np.float32(10**k) for k in range(4)]
    with hr.Graph() as g:
        xs = pinned(values)
        ys = hr.all_sum(xs)
    feeds = dict(zip(xs, values, strict=True))
    with hr.Session(graph=g, devices={"CPU": 4}, engine="interpret") as session:
        got = [y.tobytes() for _ in range(5) for y in session.run(ys, feeds, timeout_ms=SOON_MS)]
    assert len(set(got)) == 1
    np.testing.assert_allclose(np.frombuffer(got[0], np.float32).reshape(shape), sum(values), rtol=1e-4, atol=1e-2)


@sizes
def test_who_sends_to_whom(shape: tuple[int, ...]) -> None:
    n = 4
    values = [np.zeros(shape, np.float32)] * n
    with hr.Graph() as g:
        xs = pinned(values)
        made = []
        for k, x in enumerate(xs):
            with hr.device(device(k)):
                made.append(hr.negative(x))  # a fed value is not sent: its readers are fed
        for k, y in enumerate(hr.all_sum(made)):
            with hr.device(device(k)):
                hr.reduce_sum(y, name=f"end{k}")
    ends = [g.get_operation_by_name(f"end{k}") for k in range(n)]
    with hr.Session(graph=g, devices={"CPU": n}, engine="interpret") as session:
        divided = step_of(session, ends, dict(zip(xs, values, strict=True))).general
    sent: collections.Counter[tuple[int, int]] = collections.Counter()
    for plan in divided.plans.values():
        for node in plan.nodes:
            if node.op.type == "_Send":
                sent[tuple(int(node.op.attrs[f"{side}_device"][-1]) for side in ("send", "recv"))] += 1  # type: ignore[index]
    if shape == SIZES["tree"]:
        assert sent == {(1, 0): 1, (3, 2): 1, (2, 0): 1, (0, 1): 1, (0, 2): 1, (2, 3): 1}
    else:  # to the right neighbour alone, and no more than 2 (n - 1) of n chunks
        assert sent == {(k, (k + 1) % n): 2 * (n - 1) for k in range(n)}


@sizes
def test_in_a_loop_with_its_gradient(shape: tuple[int, ...]) -> None:
    rng = np.random.default_rng(2)
    values = [rng.normal(size=shape) for _ in range(3)]
    with hr.Graph() as g:
        xs = pinned(values)
        steps = hr.placeholder(hr.int32, ())

        def body(i: Any, *vs: Any) -> tuple[Any, ...]:
            out = []
            for k, total in enumerate(hr.all_sum(list(vs), [device(k) for k in range(3)])):
                with hr.device(device(k)):
                    out.append(hr.tanh(total) + vs[k] * 0.5)
            return (i + 1, *out)

        _, *ys = hr.while_loop(lambda i, *_: i < steps, body, (0, *xs))
        grads = hr.gradients([hr.reduce_sum(y * (k + 1.0)) for k, y in enumerate(ys)], xs)
    feeds = {**dict(zip(xs, values, strict=True)), steps: 0}
    with (
        hr.Session(graph=g) as one,
        hr.Session(graph=g, devices={"CPU": 3}, engine="interpret") as many,
    ):
        for n in (0, 1, 5):
            feeds[steps] = n
            want, got = (s.run([*ys, *grads], feeds, timeout_ms=SOON_MS) for s in (one, many))
            for a, b in zip(got, want, strict=True):
                np.testing.assert_allclose(a, b, rtol=1e-9)


def test_what_a_branch_gathers() -> None:
    values = [np.arange(3.0) + k for k in range(3)]
    with hr.Graph() as g:
        xs = pinned(values)
        p = hr.placeholder(hr.bool, ())
        y = hr.cond(p, lambda: hr.all_gather(xs)[1], lambda: hr.concat([hr.all_prod(xs)[2]] * 3, 0))
        grads = hr.gradients(y, xs)
    feeds = dict(zip(xs, values, strict=True))
    with (
        hr.Session(graph=g) as one,
        hr.Session(graph=g, devices={"CPU": 3}, engine="interpret") as many,
    ):
        for side in (True, False):
            want, got = (s.run([y, *grads], {**feeds, p: side}, timeout_ms=SOON_MS) for s in (one, many))
            for a, b in zip(got, want, strict=True):
                np.testing.assert_allclose(a, b, rtol=1e-12)
