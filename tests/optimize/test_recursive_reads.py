"""Variables that recursive functions read are read before the outermost call."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import headrace as hr
from headrace import flags
from headrace.errors import FailedPreconditionError, NotFoundError
from headrace.ir.edit.editor import own_bodies
from headrace.ir.function import nested_operations
from headrace.optimize.base import Options, PassContext, run
from headrace.optimize.recursive_reads import ReadBeforeRecursion
from headrace.prune import prune
from tests import tiers
from tests.optimize.loop_steps import Optimized, close

pytestmark = pytest.mark.one_engine

X = np.array([0.5, -0.25, 1.0])


class Step:
    """A graph with variables `v` and `w`, and feeds `n`, `x` and `p`."""

    def __init__(self, make: Callable[[Step], Any], shape: Any = (3,)) -> None:
        self.graph = hr.Graph()
        with self.graph:
            self.v = hr.Variable(X, name="v", shape=shape)
            self.w = hr.Variable(X * 2, name="w")
            self.n, self.p = hr.placeholder(hr.int32, ()), hr.placeholder(hr.bool, ())
            self.x = hr.placeholder(hr.float64, (3,))
            made = make(self)
            self.fetches = made if isinstance(made, list) else [made]
        self.feeds = [self.n, self.p, self.x]

    def run(self, n: int, p: bool = True, initialized: str = "vw", **settings: Any) -> Any:
        with flags.override(**settings), hr.Session(graph=self.graph) as session:
            for name in initialized:
                session.run(getattr(self, name).initializer)
            feeds = dict(zip(self.feeds, (n, p, X), strict=True))
            try:
                return [*session.run(self.fetches, feeds), *(session.run(getattr(self, s)) for s in initialized)]
            except (FailedPreconditionError, NotFoundError) as e:
                return str(e).partition(".")[0]

    def optimized(self, is_lowered: bool = False) -> tuple[list[str], list[str], bool]:
        """The report of the pass, and whether no function is left that reads."""
        pruned = prune(self.feeds, self.fetches, [])
        own_bodies(pruned.graph)
        before = dict(self.graph.functions)
        context = PassContext(Options(is_lowered=is_lowered))
        run([ReadBeforeRecursion()], pruned.graph, context)
        assert self.graph.functions == before
        done = Optimized(pruned.graph, [], context, True)
        mine, ops = (set(nested_operations(pruned.graph.operations, calls)) for calls in (False, True))
        is_free = not any("ReadVar" in op.type for op in ops - mine)
        return done.fired(), [note.text for note in context.notes if not note.fired], is_free


def check(step: Step, is_moved: bool, depths: Sequence[int] = (0, 1, 3)) -> None:
    """All engines give what the interpreter gives without passes, whichever variables have a value."""
    fired, _, is_free = step.optimized()
    assert (bool(fired), is_free) == (is_moved, is_moved)
    values = (True, "vw"), (False, "vw"), (True, "w"), (False, ""), (True, "v")
    for n, (p, initialized) in tiers.rotated([*itertools.product(depths, values)], 3):
        want = step.run(n, p, initialized, ENGINE="interpret", OPTIMIZE="off")
        for more in ({"ENGINE": "interpret"}, {"NATIVE": "off"}, {"NATIVE": "on", "CACHE": "off"}):
            got = step.run(n, p, initialized, **more)
            if isinstance(want, str):
                assert got == want
            else:
                close(got, want, 1e-12)


def power(s: Step) -> Any:
    @hr.function
    def f(n: Any, h: Any) -> Any:
        return hr.cond(n < 1, lambda: h, lambda: f(n - 1, hr.tanh(h * s.v)))

    return f(s.n, s.x)


def turned(s: Step) -> Any:
    @hr.function
    def f(n: Any, h: Any) -> Any:
        return hr.cond(n > 0, lambda: f(n - 1, h * s.v + hr.tanh(s.v)) * s.w, lambda: h)

    return f(s.n, s.x)


def always(s: Step) -> Any:
    @hr.function
    def f(n: Any, h: Any) -> Any:
        h = h * s.v
        return hr.cond(n < 1, lambda: h, lambda: f(n - 1, h))

    return f(s.n, s.x)


def tree(s: Step) -> Any:
    @hr.function
    def f(n: Any, h: Any) -> Any:
        return hr.cond(
            n < 1, lambda: h, lambda: f(n - 1, h * s.v) + f(n - 2, hr.cond(n > 1, lambda: h - s.v, lambda: h))
        )

    return f(s.n, s.x) + f(s.n + 1, s.x)


def differentiated(s: Step) -> Any:
    y = turned(s)
    return [y, *hr.gradients(hr.reduce_sum(y), [s.x, s.v, s.w])]


def within(s: Step) -> Any:
    @hr.function
    def f(n: Any, h: Any) -> Any:
        return hr.cond(n < 1, lambda: h, lambda: f(n - 1, hr.tanh(h * s.v)))

    h = hr.cond(s.p, lambda: f(s.n, s.x), lambda: s.x)
    return hr.while_loop(lambda i, h: i < s.n, lambda i, h: (i + 1, f(i, h)), [0, h])[1]


def assigned(s: Step) -> Any:
    first = power(s)
    with hr.control_dependencies([s.v.assign(first).op]):
        return power(s)


MOVED = [power, turned, always, tree, differentiated, within, assigned]


@pytest.mark.parametrize("make", MOVED)
def test_a_value_is_a_parameter(make: Callable[[Step], Any]) -> None:
    fired, refused, is_free = Step(make).optimized()
    assert fired
    assert (refused, is_free) == ([], True)


@pytest.mark.system
@pytest.mark.parametrize("make", MOVED)
def test_functions_with_values_compute_the_same(make: Callable[[Step], Any]) -> None:
    check(Step(make), True)


def ending(s: Step) -> Any:
    """Only the innermost call reads."""

    @hr.function
    def f(n: Any, h: Any) -> Any:
        return hr.cond(n < 1, lambda: h * s.v, lambda: f(n - 1, h))

    return f(s.n, s.x)


def sometimes(s: Step) -> Any:
    """A call need not read."""

    @hr.function
    def f(n: Any, h: Any) -> Any:
        return hr.cond(n < 1, lambda: h, lambda: f(n - 1, hr.cond(n > 2, lambda: h * s.v, lambda: h)))

    return f(s.n, s.x)


def writing(s: Step) -> Any:
    @hr.function
    def f(n: Any, h: Any) -> Any:
        def more() -> Any:
            h1 = h * s.v
            with hr.control_dependencies([s.v.assign(h1 + 1).op]):
                return f(n - 1, hr.identity(h1))

        return hr.cond(n < 1, lambda: h, more)

    return f(s.n, s.x)


def dividing(s: Step) -> Any:
    """The condition may fail."""

    @hr.function
    def f(n: Any, h: Any) -> Any:
        return hr.cond(6 // (n + 1) > 3, lambda: h, lambda: f(n - 1, h * s.v))

    return f(s.n, s.x)


def looping(s: Step) -> Any:
    @hr.function
    def f(n: Any, h: Any) -> Any:
        def more() -> Any:
            return f(n - 1, hr.while_loop(lambda i, h: i < n, lambda i, h: (i + 1, h * s.v), [0, h])[1])

        return hr.cond(n < 1, lambda: h, more)

    return f(s.n, s.x)


def mutual(s: Step) -> Any:
    @hr.function
    def f(n: Any, h: Any) -> Any:
        return hr.cond(n < 1, lambda: h, lambda: g(n - 1, h * s.v))

    @hr.function
    def g(n: Any, h: Any) -> Any:
        return hr.cond(n < 1, lambda: h + s.w, lambda: f(n - 1, h))

    return f(s.n, s.x)


def swapped(s: Step) -> Any:
    """The calls pass another handle in turns."""

    def made(v: Any, w: Any, n: Any, h: Any) -> Any:
        def read(handle: Any) -> Any:
            value = hr.raw_ops.ReadVariableOp(resource=handle, dtype=hr.float64)
            value.set_shape((3,))
            return value

        return hr.cond(n < 1, lambda: h, lambda: f(w, v, n - 1, h * read(v)))

    f = hr.function(made)
    return f(s.v.handle, s.w.handle, s.n, s.x)


def waiting(s: Step) -> Any:
    """The read waits for another operation."""

    @hr.function
    def f(n: Any, h: Any) -> Any:
        def more() -> Any:
            with hr.control_dependencies([hr.tanh(h).op]):
                return f(n - 1, h * s.v.read_value())

        return hr.cond(n < 1, lambda: h, more)

    return f(s.n, s.x)


def gathering(s: Step) -> Any:
    """The handle has another use."""

    @hr.function
    def f(n: Any, h: Any) -> Any:
        size = hr.cast(hr.raw_ops.VariableShape(input=s.v.handle)[0], hr.float64)
        return hr.cond(n < 1, lambda: h, lambda: f(n - 1, h * s.v + size))

    return f(s.n, s.x)


def passing(s: Step) -> Any:
    """The handle is only passed on."""

    @hr.function
    def f(v: Any, n: Any, h: Any) -> Any:
        return hr.cond(n < 1, lambda: h, lambda: f(v, n - 1, hr.tanh(h)))

    return f(s.v.handle, s.n, s.x)


KEPT = [ending, sometimes, writing, dividing, looping, mutual, swapped, waiting, gathering]


@pytest.mark.parametrize("make", KEPT)
def test_other_functions_read_by_themselves(make: Callable[[Step], Any]) -> None:
    fired, _, is_free = Step(make).optimized()
    assert not fired
    assert not is_free


@pytest.mark.system
@pytest.mark.parametrize("make", KEPT)
def test_functions_that_read_compute_the_same(make: Callable[[Step], Any]) -> None:
    check(Step(make), False)


def test_functions_of_steps_in_lowered_form_read_by_themselves() -> None:
    assert Step(power).optimized(is_lowered=True) == ([], [], False)


def test_what_has_no_read_is_left_alone() -> None:
    assert Step(passing).optimized() == ([], [], True)


def test_the_report() -> None:
    assert Step(power).optimized() == (["f: 1 variables are read before the calls of 'f'"], [], True)
    fired, refused, _ = Step(writing).optimized()
    assert not fired
    assert refused[0].startswith("'f' has the effects of ")
    assert not Step(power, shape=(None,)).optimized()[0]


def test_a_step_without_recursion_is_left_alone() -> None:
    assert Step(lambda s: hr.function(lambda x: x * s.v)(s.x)).optimized()[:2] == ([], [])
