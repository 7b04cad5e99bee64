"""Operations of a graph that are executed, and their order.

The tests are about liveness of results and loop variables, effects, and loops that count.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import headrace as hr
from headrace.errors import InvalidArgumentError
from headrace.ir.graph import Tensor
from tests.compile.running import b, both, item, names, regions


def loop(cond: Any, body: Any, variables: list[Any], **kwargs: Any) -> Any:
    """A loop: its variables, or the only one."""
    out = hr.while_loop(cond, body, variables, **kwargs)
    return out if len(variables) > 1 else out[0]


# *** live operations ***


def test_results_of_a_conditional_that_nobody_reads_are_not_made() -> None:
    with hr.Graph():
        p, x = hr.placeholder(hr.bool, [], name="p"), hr.placeholder(hr.float32, [], name="x")
        y, z = hr.cond(p, lambda: (hr.sin(x, name="s"), hr.cos(x, name="c")), lambda: (x, hr.exp(x, name="e")))
        one = item(regions([y], [p, x]).root, "If")
        assert one.live == (0,)
        assert [[n.split("/")[-1] for n in names(region)] for region in one.regions] == [[], ["s"]]
        two = item(regions([y, z], [p, x]).root, "If")
        assert two.live == (0, 1)
        assert [[n.split("/")[-1] for n in names(region)] for region in two.regions] == [["e"], ["s", "c"]]


def test_a_branch_reads_only_what_its_results_need() -> None:
    with hr.Graph():
        p = hr.placeholder(hr.bool, [], name="p")
        x, u = (hr.placeholder(hr.float32, [], name=n) for n in "xu")
        y, _ = hr.cond(p, lambda: (x + 1.0, u * 2.0), lambda: (x, u))
        found = item(regions([y], [p, x, u]).root, "If")
        assert [t.op.attrs.get("of") for t in found.reads] == ["p:0", "x:0"]


def test_loop_variables_that_reach_nothing_do_not_go_round() -> None:
    """`b` feeds itself and `c` feeds `b`: neither reaches the result, nor the condition."""
    with hr.Graph():
        _, a, *_ = loop(
            lambda i, a, x, y: i < 5, lambda i, a, x, y: (i + 1, a * 2.0, hr.sin(x) + y, hr.cos(y)), [0, 1.0, 2.0, 3.0]
        )
        found = item(regions([a]).root, "While")
        assert found.variables == (0, 1)
        assert not any("sin" in n or "cos" in n for n in names(found.regions[1]))


def test_loop_variables_that_reach_the_result_in_a_later_iteration_go_round() -> None:
    with hr.Graph():
        out = loop(lambda i, a, x, y: i < 5, lambda i, a, x, y: (i + 1, a + x, x + y, hr.cos(y)), [0, 1.0, 2.0, 3.0])
        assert item(regions([out[1]]).root, "While").variables == (0, 1, 2, 3)
        assert item(regions([out[2]]).root, "While").variables == (0, 2, 3)
        assert item(regions([out[3]]).root, "While").variables == (0, 3)
        for t in out[1:]:
            both(t)


def test_a_loop_constant_does_not_go_round() -> None:
    with hr.Graph():
        _, a, c = loop(lambda i, a, c: i < 5, lambda i, a, c: (i + 1, a * c, c), [0, 1.0, 2.0])
        found = item(regions([a, c]).root, "While")
        assert found.variables == (0, 1)
        assert 2 in found.live
        assert both([a, c]) == [32.0, 2.0]


def test_two_variables_that_change_places() -> None:
    with hr.Graph():
        _, a, x = loop(lambda i, a, x: i < 5, lambda i, a, x: (i + 1, x, a), [0, 1.0, 2.0])
        assert both([a, x]) == [2.0, 1.0]


# *** order of effects ***


def test_what_an_effect_waits_for_is_done_before_it(capfd: pytest.CaptureFixture[str]) -> None:
    with hr.Graph():
        x = hr.placeholder(hr.float32, [], name="x")
        said = b().Print(x, [x], message="one ")
        with hr.control_dependencies([said.op]):
            y = x * 2.0
        made = regions([y], [x])
        assert names(made.root)[0] == said.op.name
        assert both(y, {x: 3.0}) == 6.0
    assert capfd.readouterr().err.count("one ") == 2


def test_a_target_is_done_and_what_nobody_wants_is_not() -> None:
    with hr.Graph() as g:
        v, w = hr.Variable(1.0), hr.Variable(1.0)
        values = [v.read_value(), w.read_value()]
        more = v.assign_add(1.0)
        other = w.assign_add(10.0)
        for engine in ("interpret", "compiled"):
            with hr.Session(graph=g, engine=engine) as s:
                s.run([v.initializer, w.initializer])
                s.run(more.op)
                assert s.run(values) == [2.0, 1.0]
        found = regions([], [], [more.op])
        assert other.op.name not in names(found.root)
        assert more.op.name in names(found.root)


def test_effects_in_a_body_are_done_though_no_result_is_read() -> None:
    with hr.Graph() as g:
        v = hr.Variable(0.0)
        value = v.read_value()

        def body(i: Tensor) -> Any:
            with hr.control_dependencies([v.assign_add(2.0)]):
                return i + 1

        out = loop(lambda i: i < 4, body, [0])
        found = item(regions([], [], [out.op]).root, "While")
        assert any("Assign" in i.op.type for i in found.regions[1].items)
        for engine in ("interpret", "compiled"):
            with hr.Session(graph=g, engine=engine) as s:
                s.run(v.initializer)
                s.run(out.op)
                assert s.run(value) == 8.0


# *** loops that count ***


COUNTED: dict[str, Callable[[Tensor], Any]] = {
    "less": lambda n: loop(lambda i: i < n, lambda i: i + 1, [0]),
    "greater, the other way round": lambda n: loop(lambda i: hr.greater(n, i), lambda i: i + 1, [0]),
    "a constant limit, inclusive": lambda n: loop(lambda i: i <= 4, lambda i: i + 1, [0]),
    "not equal to a constant": lambda n: loop(lambda i: hr.not_equal(i, 4), lambda i: i + 1, [0]),
    "1 + i": lambda n: loop(lambda i: i < n, lambda i: 1 + i, [0]),
    "from a tensor": lambda n: loop(lambda i: i < 7, lambda i: i + 1, [n]),
    "two bounds": lambda n: loop(lambda i: i < n, lambda i: i + 1, [0], maximum_iterations=3),
}  # fmt: skip


@pytest.mark.parametrize("name", COUNTED)
@pytest.mark.parametrize("n", [-3, 0, 1, 5, 40])
def test_loops_that_count(name: str, n: int) -> None:
    with hr.Graph():
        limit = hr.placeholder(hr.int32, [], name="n")
        out = COUNTED[name](limit)
        found = item(regions([out], [limit]).root, "While")
        assert found.trip_count is not None
        assert found.counter >= 0
        assert isinstance(both(out, {limit: n}), np.int32)


def f(i: Tensor, *_: Any) -> Any:
    return i + 1


def _grows(n: Tensor) -> Any:
    return loop(lambda i, m: i < m, lambda i, m: (i + 1, m - 1), [0, n])[0]


def _also_asks(n: Tensor) -> Any:
    return loop(lambda i, a: hr.logical_and(i < n, a < 10.0), lambda i, a: (i + 1, a * 3.0), [0, 1.0])[0]


NOT_COUNTED: dict[str, Callable[[Tensor], Any]] = {
    "steps of two": lambda n: loop(lambda i: i < n, lambda i: i + 2, [0]),
    "counts down": lambda n: loop(lambda i: i > n, lambda i: i - 1, [9]),
    "counts in float": lambda n: loop(lambda i: i < hr.cast(n, hr.float32), lambda i: i + 1.0, [0.0]),
    "counts in int8": lambda n: loop(lambda i: i < hr.cast(n, hr.int8), f, [hr.constant(0, hr.int8)]),
    "the limit changes": _grows,
    "something else ends it, too": _also_asks,
    "not equal, from an unknown start": lambda n: loop(lambda i: hr.not_equal(i, 9), f, [hr.minimum(n, 9)]),
    "the square counts": lambda n: loop(lambda i: i * i < n, f, [0]),
    "inclusive of a limit that may be the greatest": lambda n: loop(lambda i: i <= n, f, [0]),
}


@pytest.mark.parametrize("name", NOT_COUNTED)
@pytest.mark.parametrize("n", [-1, 0, 7])
def test_loops_that_must_not_be_taken_for_counting_ones(name: str, n: int) -> None:
    with hr.Graph():
        limit = hr.placeholder(hr.int32, [], name="n")
        out = NOT_COUNTED[name](limit)
        found = item(regions([out], [limit]).root, "While")
        assert found.trip_count is None
        assert found.counter == -1
        both(out, {limit: n})


def test_the_greatest_number_as_an_inclusive_limit_is_never_passed() -> None:
    """The counter wraps around, as TensorFlow's would: the loop goes on from the least number."""
    top = np.iinfo(np.int32).max
    with hr.Graph():
        first, last = (hr.placeholder(hr.int32, [], name=n) for n in ("first", "last"))
        i, k = hr.while_loop(lambda i, k: hr.logical_and(i <= last, k < 5), lambda i, k: (i + 1, k + 1), [first, 0])
        assert both([i, k], {first: top - 1, last: top}) == [np.iinfo(np.int32).min + 3, 5]


def test_a_condition_with_effects_is_asked_each_time(capfd: pytest.CaptureFixture[str]) -> None:
    with hr.Graph():
        out = loop(lambda i: b().Print(i, [i], message="at ") < 3, f, [0])
        assert item(regions([out]).root, "While").trip_count is None
        assert both(out) == 3
    assert capfd.readouterr().err.count("at ") == 8


def test_a_counter_is_a_number_of_its_dtype_wherever_it_is_used() -> None:
    """A Python int would be twice as long, and not wrap around."""
    big = 2**31 - 3
    with hr.Graph():
        _, a, x = loop(
            lambda i, a, x: i < 4,
            lambda i, a, x: (i + 1, a * big + i, x + hr.cast(i, hr.float64) / 3.0),
            [0, 1, hr.constant(0.0, hr.float64)],
        )
        both([a, x])


def test_a_loop_whose_ends_do_not_fit_is_refused() -> None:
    with hr.Graph() as g:
        out = loop(lambda i: i < 3, f, [0])
        out.op.attrs["body"].results = []
        with pytest.raises(InvalidArgumentError, match="expects 1 back, but it takes 1 and returns 0"):
            regions([out])
        assert g.operations
