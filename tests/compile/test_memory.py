"""Lifetimes of values: each is freed after its last use.

A backward loop frees the values that the forward loop kept for it as it takes them.
"""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import headrace as hr
from headrace import flags
from headrace.ir.graph import Tensor

SIDE = 256
ONE = SIDE * SIDE * 8  # bytes of an array

# the subject is the Python target: its source and its memory
pytestmark = pytest.mark.usefixtures("python_target")


@pytest.fixture(autouse=True)
def _graph() -> Iterator[None]:
    with hr.Graph():
        yield


def x() -> Tensor:
    out: Tensor = hr.placeholder(hr.float64, [SIDE, SIDE], name="x")
    return out


def peak(fetches: Any, feed: Tensor) -> float:
    """The peak memory of a run, in arrays.

    The copy that a session makes of a feed is one of them.
    """
    value = np.full((SIDE, SIDE), 0.5)
    with flags.override(OPTIMIZE="off", VERIFY=0):
        run = hr.Session(graph=feed.graph, engine="compiled").make_callable(fetches, [feed])
        run(value)  # the first run makes the arrays that are made once
    gc.collect()
    tracemalloc.start()
    try:
        out = run(value)
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    del out
    return most / ONE


def slow(v: Tensor) -> Tensor:
    """Something that is not a ufunc, and so cannot go into a buffer."""
    out: Tensor = hr.roll(v, 1, 0)
    return out


def test_a_long_chain_of_kernels_has_few_arrays_at_a_time() -> None:
    v = u = x()
    for _ in range(30):
        u = slow(u)
    assert peak(u, v) < 4.5


def test_a_long_chain_of_ufuncs_has_one_beside_its_feed() -> None:
    v = u = x()
    for _ in range(30):
        u = hr.tanh(u * 1.01 + 0.1)
    assert peak(u, v) < 2.2


def test_a_long_chain_of_products_has_two_beside_its_feed() -> None:
    v = u = x()
    for _ in range(10):
        u = hr.matmul(u, v)
    assert peak(u, v) < 3.2


def test_what_is_used_once_more_at_the_end_stays() -> None:
    """The measure would see it if values were kept."""
    v = x()
    made = [hr.tanh(v + float(k)) for k in range(8)]
    out = made[-1]
    for u in reversed(made):
        out = hr.matmul(out, u)
    assert peak(out, v) > 6


def test_in_a_loop() -> None:
    v = x()
    u = hr.while_loop(lambda i, w: i < 20, lambda i, w: (i + 1, slow(slow(w) * 0.5)), [0, v])[1]
    assert peak(u, v) < 5.5


def test_in_branches() -> None:
    v = x()

    def long(w: Tensor) -> Tensor:
        for _ in range(10):
            w = slow(w)
        return w

    u = hr.cond(v[0, 0] > 0.0, lambda: long(v), lambda: v)
    assert peak(u, v) < 4.5


def test_what_only_a_branch_needs_goes_before_what_follows() -> None:
    v = x()
    w = slow(v)
    u = hr.cond(v[0, 0] > 0.0, lambda: slow(w), lambda: w)
    for _ in range(10):
        u = slow(u)
    assert peak(u, v) < 5.5


def test_in_a_function() -> None:
    v = x()

    def body(w: Tensor) -> Tensor:
        for _ in range(10):
            w = slow(w)
        return w

    fn = hr.Function(body, name="f")
    assert peak(fn(fn(v)), v) < 4.5


# *** accumulators ***

TRIPS = 20


def kept(make: Callable[[Tensor], Tensor]) -> tuple[Tensor, list[Tensor]]:
    """A loop, and its gradient, which needs a value of each iteration."""
    v = x()
    u = hr.while_loop(lambda i, w: i < TRIPS, lambda i, w: (i + 1, make(w)), [0, v])[1]
    return v, [u, *hr.gradients([u], [v])]


def test_a_loop_keeps_one_value_an_iteration_for_its_gradient() -> None:
    v, fetches = kept(hr.sin)
    assert TRIPS <= peak(fetches, v) < TRIPS + 5


def test_nothing_is_kept_where_no_gradient_is_asked_for() -> None:
    v, fetches = kept(hr.sin)
    assert peak(fetches[0], v) < 4


@pytest.mark.system
def test_accumulators_are_emptied_as_the_backward_loop_goes() -> None:
    """The backward loop keeps a value of each iteration, too.

    Together the two loops keep not more than one array for each iteration.
    """
    v = x()
    u = hr.while_loop(lambda i, w: i < TRIPS, lambda i, w: (i + 1, hr.sin(w)), [0, v])[1]
    (du,) = hr.gradients([u], [v])
    (ddu,) = hr.gradients([du], [v])
    alone = peak(du, v)
    assert alone < TRIPS + 5
    both = peak(ddu, v)
    assert both < 4.5 * TRIPS


def test_a_list_that_is_popped_from_holds_less_and_less() -> None:
    """Each result of a popped element is as large as the element, and kept.

    In the end there are as many arrays as in the beginning.
    """
    v = x()

    def empty() -> Any:
        b = hr.api.scopes.builder()
        return b.EmptyTensorList(b.const([SIDE, SIDE]), b.const(-1), element_dtype=hr.float64)

    def fill(i: Tensor, u: Tensor) -> Any:
        return i + 1, hr.api.scopes.builder().TensorListPushBack(u, v * hr.cast(i, hr.float64))

    def move(i: Tensor, u: Tensor, w: Tensor) -> Any:
        b = hr.api.scopes.builder()
        u, last = b.TensorListPopBack(u, b.const([SIDE, SIDE]), element_dtype=hr.float64)
        return i + 1, u, b.TensorListPushBack(w, hr.sin(last))

    full = hr.while_loop(lambda i, u: i < TRIPS, fill, [0, empty()])[1]
    _, _, moved = hr.while_loop(lambda i, u, w: i < TRIPS, move, [0, full, empty()])
    b = hr.api.scopes.builder()
    last = b.TensorListPopBack(moved, b.const([SIDE, SIDE]), element_dtype=hr.float64)[1]
    assert TRIPS <= peak(last, v) < TRIPS + 4


@pytest.mark.system
def test_nothing_is_left_after_a_run() -> None:
    v, fetches = kept(hr.sin)
    with flags.override(VERIFY=0):
        run = hr.Session(graph=v.graph, engine="compiled").make_callable(fetches, [v])
    value = np.full((SIDE, SIDE), 0.5)
    run(value)
    gc.collect()
    tracemalloc.start()
    try:
        for _ in range(3):
            run(value)
        gc.collect()
        assert tracemalloc.get_traced_memory()[0] < 0.5 * ONE
    finally:
        tracemalloc.stop()


def test_nothing_is_left_after_a_run_that_failed() -> None:
    v = x()
    n = hr.placeholder(hr.int32, [], name="n")
    u = hr.while_loop(lambda i, w: i < 9, lambda i, w: (i + 1, hr.sin(w) * hr.cast(9 // (n - i), hr.float64)), [0, v])[
        1
    ]
    run = hr.Session(graph=v.graph, engine="compiled").make_callable([u, *hr.gradients([u], [v])], [v, n])
    value = np.full((SIDE, SIDE), 0.5)
    run(value, 20)
    gc.collect()
    tracemalloc.start()
    try:
        with pytest.raises(hr.errors.InvalidArgumentError):
            run(value, 5)
        gc.collect()
        assert tracemalloc.get_traced_memory()[0] < 0.5 * ONE
    finally:
        tracemalloc.stop()
