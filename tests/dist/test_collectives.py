"""Collectives between worker processes, whose steps are divided into one function for each device."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest

import headrace as hr
from headrace import pipeline

pytestmark = pytest.mark.system

N, SIZE = 3, 30_000  # more than thresholds.RING_BYTES
WORKERS = [f"/job:worker/task:{i}" for i in range(N)]
VALUES = [np.random.default_rng(k).normal(size=SIZE).astype(np.float32) for k in range(N)]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    with hr.cluster.local(N) as made:
        yield made


@pytest.fixture
def divided(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The shares of the steps that are compiled; the master is in this process."""
    found: list[Any] = []
    divide = pipeline.divided

    def noted(*args: Any) -> Any:
        found.append(divide(*args))
        return found[-1]

    monkeypatch.setattr(pipeline, "divided", noted)
    return found


def on_workers(values: Sequence[Any] = VALUES) -> list[Any]:
    out = []
    for device, value in zip(WORKERS, values, strict=True):
        with hr.device(device):
            out.append(hr.placeholder_with_default(value, value.shape) + 0.0)
    return out


def by_ring(values: Sequence[np.ndarray]) -> np.ndarray:
    """The sum of three vectors with the additions of a ring."""
    a, b, c = (np.split(v, N) for v in values)
    return np.concatenate([(b[0] + c[0]) + a[0], (c[1] + a[1]) + b[1], (a[2] + b[2]) + c[2]])


def test_the_sum_of_large_tensors_passes_along_a_ring(cluster: Any, divided: list[Any]) -> None:
    with hr.Graph() as g:
        totals = hr.all_sum(on_workers(), WORKERS)
    with hr.Session(cluster, graph=g) as session:
        got = session.run(totals)
    for total in got:
        np.testing.assert_array_equal(total, by_ring(VALUES))
    assert (by_ring(VALUES) != VALUES[0] + VALUES[1] + VALUES[2]).any()
    (shares,) = divided
    sums = [sum(op.type == "AddV2" and "AllReduce" in op.name for op in s.graph.operations) for s in shares.values()]
    assert sums == [N - 1] * N


def test_a_loop_with_a_collective_is_divided_with_its_gradient(cluster: Any, divided: list[Any]) -> None:
    with hr.Graph() as g:
        xs = on_workers()

        def body(i: Any, *vs: Any) -> Any:
            return i + 1, *(t / N for t in hr.all_sum(list(vs), WORKERS))

        _, *means = hr.while_loop(lambda i, *_: i < 2, body, (0, *xs))
        slopes = hr.gradients(hr.reduce_sum(means[0] * means[1]), xs)
    with hr.Session(cluster, graph=g) as session:
        got, found = session.run([means, slopes])
    mean = np.mean(VALUES, 0)
    np.testing.assert_allclose(got, [mean] * N, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(found, [2 * mean / N] * N, rtol=1e-4, atol=1e-6)
    assert divided[0] is not None


def test_all_kinds_agree_with_numpy(cluster: Any) -> None:
    small = [np.arange(6.0) + k for k in range(N)]
    for values in (VALUES, small):
        with hr.Graph() as g:
            xs = on_workers(values)
            made = {
                "max": hr.all_max(xs, WORKERS),
                "gather": hr.all_gather(xs, WORKERS),
                "scatter": hr.reduce_scatter(xs, WORKERS),
                "broadcast": hr.broadcast(xs[1], WORKERS),
            }
        with hr.Session(cluster, graph=g) as session:
            got = session.run(made)
        total = np.split(np.sum(values, 0), N)
        np.testing.assert_array_equal(got["max"], [np.max(values, 0)] * N)
        np.testing.assert_array_equal(got["gather"], [np.concatenate(values)] * N)
        np.testing.assert_array_equal(got["broadcast"], [values[1]] * N)
        np.testing.assert_allclose(got["scatter"], total, rtol=1e-4, atol=1e-5)


def test_a_collective_without_names_of_devices_is_expanded_too(cluster: Any) -> None:
    with hr.Graph() as g:
        xs = on_workers()
        plain = [hr.identity(x) for x in xs]
        totals = hr.all_sum(plain)
        targets = [t.op for t in totals]
    with hr.Session(cluster, graph=g) as session:
        np.testing.assert_array_equal(session.run(totals[2]), by_ring(VALUES))
        session.run(targets)
