"""Loops with nodes that have no token in some iteration.

They end as TensorFlow's do. `while_loop` makes no such graph; graphs made by hand, fed in odd places or fetched at odd
places are such graphs. The results here are those that TensorFlow 2.21 gave.
"""

from __future__ import annotations

import pytest

import headrace as hr
from headrace.errors import InvalidArgumentError
from headrace.ir.builder import Builder
from headrace.ir.graph import Tensor
from tests.execute.loops import Loop, counting, dead
from tests.execute.machine import SeededReady
from tests.session.helpers import builder, session

SEEDS = [None, *range(5)]


def run(b: Builder, fetches: object, seed: int | None, feed: dict[Tensor, object] | None = None) -> object:
    with session(b) as s:
        options = hr.RunOptions(ready=None if seed is None else SeededReady(seed), timeout_in_ms=20_000)
        return s.run(fetches, feed, options)


def partly_dead(b: Builder, trips: int) -> tuple[Tensor, Tensor]:
    """The Exits of a loop with a live variable and one that enters dead."""
    loop = Loop(b, "partly")
    i, x = loop.var(b.const(0)), loop.var(dead(b))
    loop.goes_while(b.Less(i, loop.constant(b.const(trips))))
    loop.next(i, b.AddV2(loop.body(i), loop.const(1)))
    loop.next(x, b.AddV2(loop.body(x), loop.const(1)))
    return loop.exit(i), loop.exit(x)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("trips", [0, 1, 3])
def test_a_variable_may_be_dead_beside_a_live_one(trips: int, seed: int | None) -> None:
    b = builder()
    i, x = partly_dead(b, trips)
    assert run(b, i, seed) == trips
    merged = b.Merge([x, b.const(77)])
    assert run(b, list(merged), seed) == [77, 1]
    assert run(b, [i, merged[0]], seed) == [trips, 77]
    with pytest.raises(InvalidArgumentError, match="does not have value"):
        run(b, x, seed)


@pytest.mark.parametrize("seed", SEEDS)
def test_an_enter_can_be_fetched_though_the_loop_goes_on(seed: int | None) -> None:
    b = builder()
    loop, i = counting(b, 2)
    assert run(b, [i.op.inputs[0], loop.exit(i)], seed) == [0, 2]


@pytest.mark.parametrize("seed", SEEDS)
def test_what_only_enters_leaves_in_iteration_0(seed: int | None) -> None:
    b = builder()
    loop, i = counting(b, 3)
    out = b.Exit(b.Identity(loop.enter(b.const(9))))
    assert run(b, [out, loop.exit(i)], seed) == [9, 3]


@pytest.mark.parametrize("seed", SEEDS)
def test_a_value_may_leave_after_one_iteration(seed: int | None) -> None:
    b = builder()
    out = b.Exit(b.NextIteration(Loop(b).enter(b.const(1))))
    assert run(b, out, seed) == 1


@pytest.mark.parametrize("seed", SEEDS)
def test_what_a_dead_and_a_live_variable_both_feed_is_dead(seed: int | None) -> None:
    b = builder()
    i, x = partly_dead(b, 3)
    with pytest.raises(InvalidArgumentError, match="does not have value"):
        run(b, b.AddV2(i, x), seed)


@pytest.mark.parametrize("seed", SEEDS)
def test_an_inner_loop_may_be_half_fed(seed: int | None) -> None:
    b = builder()
    outer = Loop(b, "outer")
    k = outer.var(b.const(0))
    outer.goes_while(b.Less(k, outer.constant(b.const(3))))
    inner = Loop(b, "inner")
    i, x = inner.var(outer.body(k)), inner.var(outer.done(k))  # x is dead while the outer loop goes on
    inner.goes_while(b.Less(i, inner.constant(outer.const(9))))
    inner.next(i, b.AddV2(inner.body(i), inner.const(5)))
    inner.next(x, b.AddV2(inner.body(x), inner.const(1)))
    least, _ = b.Merge([inner.exit(x), b.after(inner.exit(i)).Identity(outer.body(k))])
    outer.next(k, b.AddV2(least, outer.const(1)))
    assert run(b, outer.exit(k), seed) == 3
