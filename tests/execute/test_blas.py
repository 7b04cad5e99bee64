"""The BLAS thread limit holds while a step with products runs.

After the step the limit from before is in force again.
"""

from __future__ import annotations

import numpy as np
import pytest
from threadpoolctl import ThreadpoolController, threadpool_info

import headrace as hr
from headrace.execute import blas
from headrace.ir.builder import Builder


def blas_threads() -> list[int]:
    return [lib["num_threads"] for lib in threadpool_info() if lib["user_api"] == "blas"]


@pytest.fixture
def two_threads():
    """A process whose BLAS would use two threads."""
    if not blas_threads():
        pytest.skip("numpy's BLAS library is none whose threads can be counted")
    with ThreadpoolController().limit(limits=2, user_api="blas"):
        if 2 not in blas_threads():
            pytest.skip("this BLAS library was built for one thread")
        yield


class Probe:
    """A listener that notes the BLAS thread count whenever a product is done."""

    def __init__(self) -> None:
        self.seen: list[list[int]] = []

    def __call__(self, event: object) -> None:
        if getattr(event, "type", "") == "MatMul":
            self.seen.append(blas_threads())


def product() -> tuple[hr.Graph, hr.Tensor]:
    g = hr.Graph()
    b = Builder(g)
    x = b.const(np.eye(256, dtype=np.float32))  # enough work for several threads
    return g, b.MatMul(x, x)


def run(probe: Probe, **session: int) -> None:
    g, y = product()
    with hr.Session(graph=g, **session) as s:
        s.run(y, options=hr.RunOptions(listener=probe))


@pytest.mark.usefixtures("two_threads")
def test_one_thread_unless_the_session_asks_for_more():
    probe = Probe()
    run(probe)
    assert probe.seen
    assert all(set(n) == {1} for n in probe.seen)
    assert 2 in blas_threads()


@pytest.mark.usefixtures("two_threads")
def test_the_session_can_ask_for_more():
    probe = Probe()
    run(probe, intra_op_threads=2)
    assert probe.seen
    assert all(2 in n for n in probe.seen)


@pytest.mark.usefixtures("two_threads")
def test_overlapping_limits_give_back_what_the_first_one_found():
    with blas.threads(1):
        with blas.threads(2):
            assert 2 in blas_threads()
        assert set(blas_threads()) == {2}  # the newest limit holds until the last step ends
    assert 2 in blas_threads()


@pytest.mark.usefixtures("two_threads")
def test_the_limit_ends_when_the_step_fails():
    g = hr.Graph()
    b = Builder(g)
    p = b.Placeholder(dtype="float32", shape=None)
    y = b.MatMul(p, p)
    with hr.Session(graph=g) as s, pytest.raises(hr.errors.InvalidArgumentError):
        s.run(y, {p: np.ones((2, 3), np.float32)})
    assert 2 in blas_threads()


def test_a_session_refuses_no_threads():
    g, _ = product()
    with pytest.raises(ValueError, match="intra_op_threads"):
        hr.Session(graph=g, intra_op_threads=0)


@pytest.mark.usefixtures("two_threads")
def test_a_partial_run_has_the_threads_of_its_session(monkeypatch):
    asked: list[int] = []
    threads = blas.threads
    monkeypatch.setattr(blas, "threads", lambda n: asked.append(n) or threads(n))
    g, y = product()
    with hr.Session(graph=g, intra_op_threads=2, engine="interpret") as s:  # "auto" would fold the product
        s.partial_run(s.partial_run_setup(y), y)
    assert asked == [2]
