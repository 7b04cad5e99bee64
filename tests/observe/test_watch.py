"""Watched values of small programs: paths, selections, structures, names and errors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import headrace as hr
import headrace.v1 as tf
from headrace.errors import InvalidArgumentError, SignatureError
from headrace.observe.watch import Watched
from tests.observe.watched import primitives


def records(found: Any) -> list[tuple[Any, ...]]:
    """The path, iteration and value of each record."""
    return [(*sum(r.path, ()), r.iteration, np.asarray(r.value).tolist()) for r in found]


@pytest.fixture
def nested() -> Any:
    """A loop with nested control flow: graph, feed, result, tensor `h`."""
    kept = []
    with hr.Graph() as g:
        n = hr.placeholder(hr.int32, (), name="n")

        def body(i: Any, x: Any) -> Any:
            h = hr.identity(x * 2, name="h")
            kept.append(h)
            y = hr.cond(hr.equal(i % 2, 1), lambda: hr.identity(h + 1, name="odd"), lambda: h)
            inner = lambda j, z: (j + 1, hr.identity(z + 10, name="k"))
            return i + 1, hr.while_loop(lambda j, z: hr.less(j, i, name="more"), inner, (0, y), name="inner")[1]

        x = hr.while_loop(lambda i, x: i < n, body, (0, 1), name="outer")[1]
        hr.identity(x, name="root")
    return g, n, x, kept[0]


def run(graph: hr.Graph, fetch: Any, feeds: Any, watch: Any, **options: Any) -> Any:
    with hr.Session(graph=graph) as session:
        value, watched = session.run(fetch, feeds, watch=watch, **options)
        assert np.array_equal(value, session.run(fetch, feeds))
    return watched


def test_a_loop_has_a_record_for_each_iteration(nested: Any) -> None:
    g, n, x, h = nested
    want = [("outer", 0, 0, 2), ("outer", 1, 1, 4), ("outer", 2, 2, 30)]
    for what in ("outer/h", "outer/h:0", h):
        watched = run(g, x, {n: 3}, hr.watch(what))
        assert records(watched[what]) == records(watched["outer/h"]) == records(watched[h]) == want


def test_an_inner_loop_has_the_iterations_of_both(nested: Any) -> None:
    g, n, x, _ = nested
    watched = run(g, x, {n: 3}, hr.watch("outer/inner/k"))
    assert records(watched["outer/inner/k"]) == [
        ("outer", 1, "outer/inner", 0, 0, 15),
        ("outer", 2, "outer/inner", 0, 0, 40),
        ("outer", 2, "outer/inner", 1, 1, 50),
    ]


@pytest.mark.parametrize(
    ("iterations", "found"),
    [
        (0, [0]),
        ([-1], [4]),
        ([0, -1, -7], [0, 4]),
        ([4, -1, 9], [4]),
        ([3, -3], [2, 3]),
        (range(0, 100, 2), [0, 2, 4]),
        ([0, 1, 2, 3, 4, 5, 6], [0, 1, 2, 3, 4]),
        ([2**40], []),
    ],
)
@pytest.mark.parametrize("name", ["outer/h", "outer/cond/odd"])
def test_iterations_are_selected(nested: Any, iterations: Any, found: list[int], name: str) -> None:
    g, n, x, _ = nested
    watched = run(g, x, {n: 5}, hr.watch(name, iterations))
    assert [r.iteration for r in watched[name]] == [i for i in found if name == "outer/h" or i % 2]


def test_negative_iterations_count_from_the_end_of_each_execution(nested: Any) -> None:
    g, n, x, _ = nested
    watched = run(g, x, {n: 4}, hr.watch("outer/inner/k", [-1]))
    assert [r.path for r in watched["outer/inner/k"]] == [(("outer", i), ("outer/inner", i - 1)) for i in (1, 2, 3)]


def test_a_condition_is_watched_once_more_than_the_body(nested: Any) -> None:
    g, n, x, _ = nested
    watched = run(g, x, {n: 2}, hr.watch("outer/inner/more"))
    found = [(r.path[0][1], r.iteration, bool(r.value)) for r in watched["outer/inner/more"]]
    assert found == [(0, 0, False), (1, 0, True), (1, 1, False)]


def test_a_branch_that_is_not_taken_has_no_record(nested: Any) -> None:
    g, n, x, _ = nested
    assert [r.iteration for r in run(g, x, {n: 4}, hr.watch("*/odd"))["outer/cond/odd"]] == [1, 3]
    assert run(g, x, {n: 1}, hr.watch("*/odd"))["outer/cond/odd"] == []


def test_a_predicate_selects_values(nested: Any) -> None:
    g, n, x, _ = nested
    spec = hr.watch("outer/h", [0, 2, -1], when=lambda v: v > 20)
    assert records(run(g, x, {n: 4}, spec)["outer/h"]) == [("outer", 2, 2, 30), ("outer", 3, 3, 100)]


def test_several_specifications_in_one_run(nested: Any) -> None:
    g, n, x, _ = nested
    watched = run(g, x, {n: 3}, [hr.watch("outer/h", -1), hr.watch(["root", "outer/add"])])
    assert list(watched) == ["outer/h:0", "root:0", "outer/add:0"]
    assert [len(found) for found in watched.values()] == [1, 1, 3]
    assert records(watched["root"]) == [(0, 50)]
    assert "'root:0': 1 values" in repr(watched)
    with pytest.raises(KeyError, match="'outer/k' was not watched; watched: outer/h:0"):
        watched["outer/k"]


def test_values_may_have_other_shapes_in_each_iteration() -> None:
    with hr.Graph() as g:
        n = hr.placeholder(hr.int32, ())
        body = lambda i, x: (i + 1, hr.concat([x, x], 0, name="twice"))
        x = hr.while_loop(lambda i, x: i < n, body, (0, hr.constant([7])), shape_invariants=((), (None,)), name="loop")[
            1
        ]
    watched = run(g, x, {n: 3}, hr.watch("loop/twice", [0, -1]))
    assert [r.value.tolist() for r in watched["loop/twice"]] == [[7] * 2, [7] * 8]


def test_strings_are_watched() -> None:
    with hr.Graph() as g:
        body = lambda i, s: (i + 1, hr.strings.join([s, "x"], name="longer"))
        s = hr.while_loop(lambda i, s: i < 3, body, (0, hr.constant("a")), name="loop")[1]
    watched = run(g, s, {}, hr.watch("loop/longer", [0, -1]))
    assert [r.value for r in watched["loop/longer"]] == [b"ax", b"axxx"]


def test_a_function_has_records_for_each_call() -> None:
    with hr.Graph() as g:

        @hr.function
        def f(x: Any) -> Any:
            return hr.identity(x * 2, name="d")

        x = hr.while_loop(lambda i, x: i < 3, lambda i, x: (i + 1, f(x) + f(x + 1)), (0, 1), name="loop")[1]
    watched = run(g, x, {}, [hr.watch("f/d", [1, -1])])
    assert records(watched["f/d"]) == [
        ("loop", 1, "f@loop/f", 0, 1, 12),
        ("loop", 1, "f@loop/f_1", 0, 1, 14),
        ("loop", 2, "f@loop/f", 0, 2, 52),
        ("loop", 2, "f@loop/f_1", 0, 2, 54),
    ]
    assert "f_watched" not in g.functions  # the user's library does not change


def test_recursive_calls_have_paths_of_their_own() -> None:
    with hr.Graph() as g:
        n = hr.placeholder(hr.int32, ())

        @hr.function(converts=False, results=hr.int32)
        def f(k: Any) -> Any:
            m = hr.identity(k * 10, name="m")
            return hr.cond(k < 1, lambda: m, lambda: f(k - 1) + f(k - 2))

        y = f(n)
    watched = run(g, y, {n: 2}, [hr.watch("f/m")])
    assert [(len(r.path), r.path[-1][0], r.iteration, int(r.value)) for r in watched["f/m"]] == [
        (1, "f@f", 0, 20),
        (2, "f@cond/f", 0, 10),
        (3, "f@cond/f", 0, 0),
        (3, "f@cond/f_1", 0, -10),
        (2, "f@cond/f_1", 0, 0),
    ]
    watched = run(g, y, {n: 2}, [hr.watch("f/m", [-1], when=lambda v: v > 5)])
    assert [int(r.value) for r in watched["f/m"]] == [20, 10]


def test_a_graph_of_tensorflow_1_is_watched() -> None:
    with tf.Graph().as_default() as g:
        body = lambda i, x: (i + 1, tf.identity(x * 2, name="h"))
        x = tf.while_loop(lambda i, x: i < 4, body, (0, 1), name="w")[1]
    assert records(run(g, x, {}, hr.watch("w/h", [0, -1]))["w/h"]) == [("w", 0, 0, 2), ("w", 3, 3, 16)]


def test_primitives_that_cannot_be_recovered_are_watched_by_a_listener() -> None:
    g, (p, q, x), y = primitives()
    b = g.get_tensor_by_name("b:0")
    for taken in (True, False):
        watched = run(g, y, {p: taken, q: taken, x: [1.0, 2.0]}, hr.watch(["a", b, "switch:0"]))
        assert records(watched["a"]) == [(0, [2.0, 4.0])] * taken
        assert records(watched[b]) == [(0, [3.0, 6.0])] * (not taken)
        assert records(watched["switch:0"]) == [(0, [1.0, 2.0])] * (not taken)


def test_a_condition_with_effects_is_watched_by_a_listener() -> None:
    with hr.Graph() as g:
        hr.random.set_seed(3)

        def go(i: Any) -> Any:
            return hr.less(hr.random.uniform((), name="draw"), 0.9, name="go")

        i = hr.while_loop(go, lambda i: i + 1, [0], name="loop")[0]
    with hr.Session(graph=g) as session:
        for _ in range(2):
            n, watched = session.run(i, watch=hr.watch("loop/go", when=lambda v: hr.logical_not(v)))
            assert [r.iteration for r in watched["loop/go"]] == [n]


@pytest.mark.system
def test_watches_on_two_devices_and_with_options(nested: Any) -> None:
    g, n, x, _ = nested
    with g.as_default(), hr.Session(graph=g, devices={"CPU": 2}) as session:
        for op in g.operations:
            op.device = "/device:CPU:1" if op.opdef.structured else ""
        m, events = hr.RunMetadata(), []
        options = hr.RunOptions(trace_level=hr.RunOptions.FULL_TRACE, listener=events.append)
        got, watched = session.run(x, {n: 3}, options, m, watch=hr.watch("outer/h", [0, -1]))
        assert records(watched["outer/h"]) == [("outer", 0, 0, 2), ("outer", 2, 2, 30)]
        assert got == 50
        assert events
        assert m.engine == "interpret"


def test_a_fed_tensor_is_watched(nested: Any) -> None:
    g, n, x, _ = nested
    watched = run(g, x, {n: 2}, hr.watch(["n", n]))
    assert records(watched["n"]) == records(watched[n]) == [(0, 2)]


def test_a_step_is_compiled_once_for_a_specification(nested: Any) -> None:
    g, n, x, h = nested
    with hr.Session(graph=g) as session:
        for k in range(3):
            session.run(x, {n: k}, watch=hr.watch("outer/h", [0, 1]))
            session.run(x, {n: k}, watch=hr.watch(h, [1, 0]))
            session.run(x, {n: k})
        assert session.statistics().made == 3


def test_a_callable_returns_watched_values(nested: Any) -> None:
    g, n, x, _ = nested
    with hr.Session(graph=g) as session:
        call = session.make_callable(x, [n], watch=hr.watch("outer/h", -1))
        for k in (1, 3):
            value, watched = call(k)
            assert (value, [r.iteration for r in watched["outer/h"]]) == (session.run(x, {n: k}), [k - 1])


def test_gradients_are_watched() -> None:
    with hr.Graph() as g:
        x = hr.placeholder(hr.float64, ())
        y = hr.while_loop(lambda i, y: i < 3, lambda i, y: (i + 1, hr.multiply(y, x, name="p")), (0, x), name="w")[1]
        dx = hr.gradients(y, x)[0]
    watched = run(g, [y, dx], {x: 2.0}, hr.watch("gradients/*Mul:0"))
    assert [r.value for r in watched["gradients/w_grad/w/p_grad/Mul"]] == [2.0, 4.0, 8.0]


# *** errors ***


def test_an_unknown_name_raises_with_close_names(nested: Any) -> None:
    g, n, x, h = nested
    with hr.Session(graph=g) as session:
        for what, text in (
            (
                "outer/hh",
                r"'outer/hh' cannot be watched: this step has no tensor of that name\. Did you mean 'outer/h'",
            ),
            ("outer/h:1", "this step has no tensor of that name"),
            ("nothing*", r"no tensor of this step matches 'nothing\*'.* Tensors that can be watched: .*outer/h, "),
        ):
            with pytest.raises(InvalidArgumentError, match=text):
                session.run(x, {n: 1}, watch=hr.watch(what))
        with pytest.raises(InvalidArgumentError, match="'outer/h:0' cannot be watched: it is not part of this step"):
            session.run(n, {n: 1}, watch=hr.watch(h))


def test_a_tensor_of_another_graph_raises(nested: Any) -> None:
    with hr.Graph():
        other = hr.constant(1)
    g, n, x, _ = nested
    with hr.Session(graph=g) as session, pytest.raises(InvalidArgumentError, match="belongs to another graph"):
        session.run(x, {n: 1}, watch=hr.watch(other))


def test_a_list_or_resource_cannot_be_watched() -> None:
    with hr.Graph() as g:
        a = hr.TensorArray(hr.int32, size=3)
        a = hr.while_loop(lambda i, a: i < 3, lambda i, a: (i + 1, a.write(i, i)), (0, a), name="w")[1]
        y = a.stack()
    with hr.Session(graph=g) as session, pytest.raises(InvalidArgumentError, match="its dtype is variant"):
        session.run(y, watch=hr.watch(_list_op(g)))


def _list_op(g: hr.Graph) -> Any:
    (loop,) = [op for op in g.operations if op.opdef.structured]
    return next(op.outputs[0] for op in loop.attrs["body"].operations if op.type == "TensorListSetItem")


def test_a_predicate_must_return_a_boolean_scalar(nested: Any) -> None:
    g, n, x, _ = nested
    with hr.Session(graph=g) as session:
        for when in (lambda v: v + 1, lambda v: [v > 1, v > 2], lambda v: hr.greater([v, v], 1)):
            with pytest.raises(SignatureError, match="must be a boolean scalar"):
                session.run(x, {n: 1}, watch=hr.watch("outer/h", when=when))


@pytest.mark.parametrize(
    ("args", "error", "text"),
    [
        ({"what": []}, ValueError, "needs a tensor or a name"),
        ({"what": 3}, TypeError, "'int' object is not iterable"),
        ({"what": [3]}, TypeError, "takes symbolic tensors and their names, got 3"),
        ({"what": "h", "iterations": []}, ValueError, "selects no value"),
        ({"what": "h", "iterations": ["a"]}, TypeError, "must be an integer or a sequence of integers"),
        ({"what": "h", "when": 3}, TypeError, "must be a function of the value"),
    ],
)
def test_wrong_arguments_raise(args: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        hr.watch(**args)


def test_the_argument_of_run_must_be_a_watch(nested: Any) -> None:
    g, n, x, _ = nested
    with hr.Session(graph=g) as session:
        for wrong in ("outer/h", [], [hr.watch("outer/h"), "root"]):
            with pytest.raises(TypeError, match=r"must be an hr\.watch\(\.\.\.\), or a list of them"):
                session.run(x, {n: 1}, watch=wrong)


def test_watched_is_a_mapping(nested: Any) -> None:
    g, n, x, _ = nested
    watched = run(g, x, {n: 1}, hr.watch("outer/h"))
    assert isinstance(watched, Watched)
    assert (len(watched), list(watched), "outer/h:0" in watched) == (1, ["outer/h:0"], True)
