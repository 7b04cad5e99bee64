"""Fed variables: every read in the step gives the fed value.

The variable itself does not change.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import headrace as hr
from headrace.errors import FailedPreconditionError, FeedError, InvalidArgumentError

ENGINES = ("auto", "interpret")
Made = dict[str, Any]


def reads() -> Made:
    """Reads of `v` (float32 scalar) by every construct that can contain one.

    The values are those for v = 5.
    """
    v = hr.Variable(1.0, name="v")

    @hr.Function
    def square(x: Any) -> Any:
        return x * x + v

    x = hr.constant(2.0)
    powers = hr.while_loop(lambda i, y: i < 3, lambda i, y: (i + 1, y * v), [hr.constant(0), x])[1]
    return {
        "v": v,
        "fetches": {
            "itself": v,
            "value": v.value(),
            "read_value": v.read_value(),
            "operator": v * 2.0,
            "predicate": hr.cond(v > 2.0, lambda: x, lambda: -x),
            "branch": hr.cond(x > 1.0, lambda: v * x, lambda: x),
            "body": powers,
            "gradient": hr.gradients(powers, [v])[0],
            "mapped": hr.map_fn(lambda e: e * v, hr.constant([1.0, 2.0])),
            "function": square(x),
            "initialized": v.is_initialized(),
        },
        "wanted": {
            "itself": 5.0,
            "value": 5.0,
            "read_value": 5.0,
            "operator": 10.0,
            "predicate": 2.0,
            "branch": 10.0,
            "body": 250.0,
            "gradient": 150.0,
            "mapped": [5.0, 10.0],
            "function": 9.0,
            "initialized": True,
        },
    }


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("devices", [1, 3])
def test_every_read_of_a_fed_variable_gives_the_fed_value(engine: str, devices: int) -> None:
    with hr.Graph() as g:
        made = reads()
        if devices > 1:
            with hr.device("/device:CPU:2"):
                made["fetches"]["elsewhere"] = made["fetches"]["operator"] + 1.0
            made["wanted"]["elsewhere"] = 11.0
    with hr.Session(graph=g, engine=engine, devices={"CPU": devices}) as sess:
        for _ in range(2):  # the second run takes the compiled step
            got = sess.run(made["fetches"], {made["v"]: 5.0})
            for name, want in made["wanted"].items():
                np.testing.assert_array_equal(got[name], want, name)
        with pytest.raises(FailedPreconditionError):
            sess.run(made["v"])  # it has no value of its own yet
        sess.run(made["v"].initializer)
        assert sess.run([made["v"], made["fetches"]["operator"]]) == [1.0, 2.0]


@pytest.mark.parametrize("engine", ENGINES)
def test_a_fed_learning_rate_is_what_the_optimizer_uses(engine: str) -> None:
    with hr.Graph() as g:
        w, rate = hr.Variable(1.0), hr.Variable(0.1)
        train = hr.train.SGD(rate).minimize(w * w, var_list=[w])
        init = hr.variables_initializer()
    with hr.Session(graph=g, engine=engine) as sess:
        sess.run(init)
        sess.run(train, {rate: 0.5})
        assert sess.run([w, rate]) == [0.0, np.float32(0.1)]


def test_rows_of_a_fed_variable_are_those_fed() -> None:
    with hr.Graph() as g:
        v = hr.Variable([[1.0], [2.0]])
        rows = v.sparse_read([1]), v.gather_nd([[0]]), hr.gather(v, [1]), hr.shape(v)
    got = hr.Session(graph=g).run(rows, {v: [[5.0], [6.0]]})
    assert [r.tolist() for r in got] == [[[6.0]], [[5.0]], [[6.0]], [2, 1]]


def test_a_variable_of_any_shape_is_fed_with_any_shape() -> None:
    with hr.Graph() as g:
        v = hr.Variable([1.0], validate_shape=False)
        w = hr.Variable([1.0])
        both = v * 2.0, w * 2.0
    sess = hr.Session(graph=g)
    assert sess.run(both, {v: [[1.0, 2.0]], w: [3.0]})[0].tolist() == [[2.0, 4.0]]
    with pytest.raises(FeedError, match=r"shape \(2,\) for Tensor 'Variable_1:0', which has shape \[1\]"):
        sess.run(both, {v: 1.0, w: [1.0, 2.0]})
    with pytest.raises(FeedError, match="float32"):
        sess.run(both, {v: "x", w: [1.0]})


def test_a_callable_and_a_partial_run_feed_variables() -> None:
    with hr.Graph() as g:
        v, x = hr.Variable(1.0), hr.placeholder(hr.float32, ())
        y = v * x
        z = y + v
    sess = hr.Session(graph=g)
    call = sess.make_callable([v, y], [v, x])
    assert call(2.0, 3.0) == [2.0, 6.0]
    assert call(4.0, 3.0) == [4.0, 12.0]
    handle = sess.partial_run_setup([v, y, z], [v, x])
    assert sess.partial_run(handle, v, {v: 3.0}) == 3.0
    assert sess.partial_run(handle, [y, z], {x: 2.0}) == [6.0, 9.0]


def test_a_fed_read_is_that_read_alone() -> None:
    with hr.Graph() as g:
        v = hr.Variable(1.0)
        read = v.value()
        y, z = read * 2.0, v * 2.0
    sess = hr.Session(graph=g)
    sess.run(v.initializer)
    assert sess.run([y, z, v], {read: 5.0}) == [10.0, 2.0, 1.0]
    assert sess.run([y, z, read], {read: 5.0, v: 7.0}) == [10.0, 14.0, 5.0]


def test_the_result_of_an_assignment_is_fed_as_a_value() -> None:
    with hr.Graph() as g:
        v = hr.Variable(1.0)
        assigned = v.assign(2.0)
        y = assigned * 3.0
    sess = hr.Session(graph=g)
    sess.run(v.initializer)
    assert sess.run([assigned, y], {assigned: 5.0})[0] == 5.0


def test_a_handle_is_not_fed() -> None:
    with hr.Graph() as g:
        v = hr.Variable(1.0, name="v")
        y = v * 2.0
    for key in (v.handle, "v:0"):
        with pytest.raises(FeedError, match="'v:0' carries a resource, which cannot be fed; to feed a variable"):
            hr.Session(graph=g).run(y, {key: 1.0})


def test_a_variable_of_another_graph_is_not_fed() -> None:
    with hr.Graph():
        v = hr.Variable(1.0)
    with hr.Graph() as g:
        y = hr.constant(1.0)
    with pytest.raises(FeedError, match="another graph"):
        hr.Session(graph=g).run(y, {v: 1.0})
    with pytest.raises(FeedError, match="outside of graphs"):
        hr.Session(graph=g).run(y, {hr.Variable(1.0): 1.0})


def _assign(v: Any) -> Any:
    return v.assign_add([1.0])


def _scatter(v: Any) -> Any:
    return v.scatter_add([0], [1.0])


def _train(v: Any) -> Any:
    return hr.train.Momentum(0.1, 0.9).minimize(v * v, var_list=[v])


@pytest.mark.parametrize("change", [_assign, _scatter, _train])
def test_a_step_that_changes_a_fed_variable_is_refused_before_it_runs(change: Callable[[Any], Any]) -> None:
    with hr.Graph() as g:
        v, n = hr.Variable([1.0]), hr.Variable(0)
        with hr.control_dependencies([n.assign_add(1).op]):
            changed = change(v)
        init = hr.variables_initializer()
    sess = hr.Session(graph=g)
    sess.run(init)
    with pytest.raises(InvalidArgumentError, match="changes the variable 'Variable:0', which is fed in this step"):
        sess.run(changed, {v: [5.0]})
    assert sess.run([v, n]) == [1.0, 0]


@pytest.mark.parametrize("engine", ENGINES)
def test_a_change_of_a_fed_variable_in_a_branch_is_refused_when_it_runs(engine: str) -> None:
    with hr.Graph() as g:
        v, p = hr.Variable(1.0), hr.placeholder(hr.bool, ())
        y = hr.cond(p, lambda: v.assign_add(1.0) * 1.0, lambda: v * 1.0)
    sess = hr.Session(graph=g, engine=engine)
    sess.run(v.initializer)
    assert sess.run(y, {v: 5.0, p: False}) == 5.0
    with pytest.raises(InvalidArgumentError, match="variable 'Variable' is fed in this step"):
        sess.run(y, {v: 5.0, p: True})
    assert sess.run(v) == 1.0
