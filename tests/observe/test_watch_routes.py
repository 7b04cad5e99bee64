"""Each route of a run returns the watched values that the interpreter computes."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import headrace as hr
import headrace.v1 as tf
from headrace.errors import InvalidArgumentError
from tests.observe.watched import Values, compare, primitives

pytestmark = pytest.mark.one_engine

WATCHED = ("loop/h", "loop/cond/odd", "f/d", "root")


@dataclasses.dataclass
class Program:
    """A program with watched tensors, and their values."""

    graph: hr.Graph
    n: Any
    y: Any
    value: Any
    found: dict[str, list[tuple[str, Any]]]


@pytest.fixture(scope="module")
def program() -> Program:
    with hr.Graph() as g:

        @hr.function
        def f(x: Any) -> Any:
            return hr.identity(x * 3, name="d")

        def body(i: Any, x: Any) -> Any:
            h = hr.identity(x + i, name="h")
            return i + 1, hr.cond(hr.equal(i % 2, 1), lambda: hr.identity(f(h), name="odd"), lambda: h + 1)

        n = hr.placeholder(hr.int32, (), name="n")
        y = hr.identity(hr.while_loop(lambda i, x: i < n, body, (0, 1), name="loop")[1], name="root")
    heard = Values({name.rpartition("/")[2] if name == "root" else name for name in WATCHED} | {"loop/cond/f/d"})
    with hr.Session(graph=g, engine="interpret") as session:
        value = session.run(y, {n: 5}, hr.RunOptions(listener=heard))
    found = {}
    for name in WATCHED:
        fired = heard.fired["loop/cond/f/d" if name == "f/d" else name]
        found[name] = sorted((tag, values[0]) for tag, values in fired.items() if values is not None)
    return Program(g, n, y, value, found)


def check(program: Program, value: Any, watched: Any) -> None:
    assert value == program.value
    assert list(watched) == [f"{name}:0" for name in WATCHED]
    for name, want in program.found.items():
        got = [("/".join(f"{k}#{i}" for k, i in r.path if "@" not in k), r.value) for r in watched[name]]
        compare(got, want, name)


SPECS = [hr.watch(WATCHED[:2]), hr.watch(WATCHED[2:])]


def by_options(session: hr.Session, p: Program) -> Any:
    return session.run(p.y, {p.n: 5}, hr.RunOptions(watch=SPECS))


def by_argument(session: hr.Session, p: Program) -> Any:
    return session.run(p.y, {p.n: 5}, watch=SPECS)


def by_callable(session: hr.Session, p: Program) -> Any:
    return session.make_callable(p.y, [p.n], watch=SPECS)(5)


def by_callable_with_options(session: hr.Session, p: Program) -> Any:
    call = session.make_callable(p.y, [p.n], accept_options=True)
    assert call(5) == p.value
    return call(5, options=hr.RunOptions(watch=SPECS))


def by_partial_run(session: hr.Session, p: Program) -> Any:
    handle = session.partial_run_setup(p.y, [p.n], watch=SPECS)
    return session.partial_run(handle, p.y, {p.n: 5})


def by_partial_run_with_options(session: hr.Session, p: Program) -> Any:
    handle = session.partial_run_setup(p.y, [p.n], hr.RunOptions(watch=SPECS))
    return session.partial_run(handle, p.y, {p.n: 5})


ROUTES = [by_options, by_argument, by_callable, by_callable_with_options, by_partial_run, by_partial_run_with_options]


@pytest.mark.parametrize("engine", ["auto", "interpret"])
@pytest.mark.parametrize("route", ROUTES)
def test_a_route_returns_the_values_of_the_interpreter(
    program: Program, route: Callable[..., Any], engine: str
) -> None:
    with hr.Session(graph=program.graph, engine=engine) as session:
        check(program, *route(session, program))


def test_a_session_of_tensorflow_1_takes_a_watch(program: Program) -> None:
    with tf.Session(graph=program.graph) as session:
        check(program, *session.run(program.y, {program.n: 5}, hr.RunOptions(watch=SPECS)))


# *** partial runs ***


@pytest.fixture
def two_feeds() -> Any:
    """Two loops, the second of which needs a further feed."""
    with hr.Graph() as g:
        a, b = hr.placeholder(hr.int32, (), name="a"), hr.placeholder(hr.int32, (), name="b")
        loop = lambda n, name: hr.while_loop(
            lambda i, x: i < n, lambda i, x: (i + 1, hr.identity(x * 2, name="h")), (0, n), name=name
        )[1]
        x = loop(a, "first")
        y = x + loop(b, "second")
    return g, a, b, x, y


@pytest.mark.parametrize("engine", ["auto", "interpret"])
def test_a_partial_run_returns_the_values_that_its_feeds_determine(two_feeds: Any, engine: str) -> None:
    g, a, b, x, y = two_feeds
    with hr.Session(graph=g, engine=engine) as session:
        handle = session.partial_run_setup([x, y], [a, b], watch=hr.watch("*/h", [0, -1]))
        value, watched = session.partial_run(handle, x, {a: 3})
        assert (value, list(watched), [int(r.value) for r in watched["first/h"]]) == (24, ["first/h:0"], [6, 24])
        value, watched = session.partial_run(handle, y, {b: 2})
        assert (value, [int(r.value) for r in watched["second/h"]]) == (32, [4, 8])
        assert [int(r.value) for r in watched["first/h"]] == [6, 24]
        assert session.statistics().partial_runs == 0


def test_a_partial_run_of_primitives_is_watched_by_a_listener() -> None:
    g, (p, q, x), y = primitives()
    with hr.Session(graph=g) as session:
        handle = session.partial_run_setup(y, [p, q, x], watch=hr.watch(["a", "b"]))
        value, watched = session.partial_run(handle, y, {p: True, q: True, x: [1.0, 2.0]})
    assert (value.tolist(), [r.value.tolist() for r in watched["a"]], watched["b"]) == ([2.0, 4.0], [[2.0, 4.0]], [])


def test_a_partial_run_is_recorded_and_profiled(two_feeds: Any) -> None:
    g, a, b, x, y = two_feeds
    session = hr.Session(graph=g)
    with hr.profile() as profile, hr.record() as recording:
        handle = session.partial_run_setup([x, y], [a, b])
        session.partial_run(handle, x, {a: 3})
        session.partial_run(handle, y, {b: 2})
    document = recording.document()
    assert {"first#3", "second#2"} <= {tag["text"] for tag in document["tags"]}
    assert document["step"]["error"] is None
    assert (profile.runs, profile.engines) == (1, ["interpret"])
    assert {(loop.name, loop.calls) for loop in profile.loops} == {("first", 3), ("second", 2)}
    assert 0.0 < profile.seconds < document["step"]["seconds"]


def test_a_failed_partial_run_is_recorded_with_its_error() -> None:
    with hr.Graph() as g:
        a = hr.placeholder(hr.int32, ())
        y = 6 // a
    session = hr.Session(graph=g)
    with hr.record() as recording:
        handle = session.partial_run_setup(y, [a])
    with pytest.raises(InvalidArgumentError) as e:
        session.partial_run(handle, y, {a: 0})
    assert recording.document()["step"]["error"] == str(e.value)


def test_a_partial_run_checks_numerics() -> None:
    with hr.Graph() as g:
        x = hr.placeholder(hr.float32, ())
        y = hr.log(x, name="log")
    session = hr.Session(graph=g)
    handle = session.partial_run_setup(y, [x], hr.RunOptions(check_numerics=True))
    with pytest.raises(InvalidArgumentError, match="'log'"):
        session.partial_run(handle, y, {x: -1.0})
    assert session.statistics().partial_runs == 0


# *** monitored sessions ***


def test_a_monitored_session_returns_watched_values(program: Program) -> None:
    with hr.train.MonitoredSession(graph=program.graph) as session:
        check(program, *session.run(program.y, {program.n: 5}, watch=SPECS))


def test_a_monitored_session_checks_numerics() -> None:
    with hr.Graph() as g:
        y = hr.log(hr.placeholder_with_default(-1.0, ()), name="log")
    with hr.train.MonitoredSession(graph=g) as session, pytest.raises(InvalidArgumentError, match="'log'"):
        session.run(y, check_numerics=True)


class Watching(hr.train.SessionRunHook):
    """Hook that watches and keeps the values."""

    def __init__(self, watch: Any) -> None:
        self.watch = watch
        self.values: Any = None

    def before_run(self, run_context: Any) -> Any:
        return hr.train.SessionRunArgs(None, options=hr.RunOptions(watch=self.watch))

    def after_run(self, run_context: Any, run_values: Any) -> None:
        self.values = run_values.watched


def test_hooks_and_the_caller_receive_the_values_that_each_watches(program: Program) -> None:
    hooks = [Watching(SPECS), Watching(hr.watch("loop/h", 0)), hr.train.SessionRunHook()]
    with hr.train.MonitoredSession(graph=program.graph, hooks=hooks) as session:
        assert session.run(program.y, {program.n: 5}) == program.value
        check(program, program.value, hooks[0].values)
        assert [int(r.value) for r in hooks[1].values["loop/h"]] == [1]
        value, watched = session.run(program.y, {program.n: 5}, watch=hr.watch("loop/h", -1))
        assert (value, list(watched)) == (program.value, ["loop/h:0"])
        assert [r.iteration for r in watched["loop/h"]] == [4]
        check(program, program.value, hooks[0].values)
        assert np.array_equal([r.iteration for r in hooks[1].values["loop/h"]], [0])
