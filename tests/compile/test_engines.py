"""The engine that runs a step, by the session's argument and the flag.

Also the steps that cannot be compiled, and their explanations.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import headrace as hr
from headrace import flags
from headrace.errors import InternalError, InvalidArgumentError
from headrace.ir.graph import Graph, Tensor
from headrace.ir.text import from_text
from headrace.lower import lower
from headrace.prune import prune
from tests.compile.running import b, both, same
from tests.corpus.test_corpus import corpus
from tests.execute.loops import Loop
from tests.recover.test_handles import CUBE

ENGINES = ("auto", "interpret", "compiled")


def a_loop(x: Tensor, n: Any = 5) -> Tensor:
    out: Tensor = hr.while_loop(lambda i, v: i < n, lambda i, v: (i + 1, hr.sin(v) * x), [0, x])[1]
    return out


def a_queue(x: Tensor) -> Tensor:
    """A value that passes through a queue, and so might wait."""
    q = hr.FIFOQueue(3, [hr.float32], shapes=[[]], name="q")
    with hr.control_dependencies([q.enqueue([x])]):
        out: Tensor = q.dequeue(name="taken")
    return out


# *** choosing ***


def test_the_argument_and_the_flag() -> None:
    with hr.Graph() as g:
        x = hr.placeholder(hr.float32, [], name="x")
        y = a_loop(x)
        for flag in ENGINES:
            with flags.override(ENGINE=flag):
                for given in (None, *ENGINES):
                    with hr.Session(graph=g, engine=given) as s:
                        ran = "interpret" if (given or flag) == "interpret" else "compiled"
                        assert s.explain(y, [x]).engine == ran
        with flags.override(ENGINE="interpret"), hr.Session(graph=g) as s:
            first = s.run(y, {x: 0.5})
        with hr.Session(graph=g) as s:
            assert s.explain(y, [x]).engine == "compiled"
            same(s.run(y, {x: 0.5}), first)


def test_an_engine_that_there_is_not() -> None:
    with pytest.raises(ValueError, match="no engine 'fast'; there are 'auto', 'interpret', 'compiled'"):
        hr.Session(graph=hr.Graph(), engine="fast")


def test_an_explanation() -> None:
    with hr.Graph() as g:
        x = hr.placeholder(hr.float32, [], name="x")
        y = a_loop(x) + 0.0 * hr.constant(3.0)
    run = hr.Session(graph=g).make_callable(y, [x])
    told = hr.explain(run)
    assert (told.engine, told.reasons) == ("compiled", ())
    assert told.source.startswith("def step(run, a1):\n")
    assert "fold" in told.passes
    text = str(told)
    assert "engine: compiled" in text
    assert told.listing in text
    with flags.override(OPTIMIZE="off"):
        assert hr.explain(hr.Session(graph=g).make_callable(y, [x])).passes == ()
    with pytest.raises(TypeError, match="cannot explain"):
        hr.explain(lambda: None)
    interpreted = hr.Session(graph=g, engine="interpret").explain(y, [x])
    assert (interpreted.engine, interpreted.source, interpreted.reasons) == ("interpret", "", ())


# *** steps that cannot be compiled ***


def test_a_step_with_a_queue() -> None:
    with hr.Graph() as g:
        x = hr.placeholder(hr.float32, [], name="x")
        y = a_queue(x)
        with (
            hr.Session(graph=g, engine="compiled") as s,
            pytest.raises(InvalidArgumentError, match="this step cannot be compiled: ") as e,
        ):
            s.run(y, {x: 1.0})
        for part in ("'taken' (", "made at", "test_engines.py", "may block", "Enqueue"):
            assert part in str(e.value)
        with hr.Session(graph=g, engine="auto") as s:
            told = s.explain(y, [x])
            assert told.engine == "interpret"
            assert len(told.reasons) == 2
            assert all("may block" in r for r in told.reasons)
            assert "not compiled: 'taken'" in str(told)
            assert s.run(y, {x: 1.5}) == 1.5
            assert s.explain(x + 1.0, [x]).engine == "compiled"


def test_a_queue_in_a_branch_in_a_loop() -> None:
    with hr.Graph() as g:
        q = hr.FIFOQueue(3, [hr.float32], shapes=[[]])
        y = hr.while_loop(
            lambda i, v: i < 3,
            lambda i, v: (i + 1, hr.cond(i > 5, lambda: q.dequeue(name="never"), lambda: v + 1.0)),
            [0, 0.0],
        )[1]
        with hr.Session(graph=g) as s:
            (reason,) = s.explain(y).reasons
            assert "never" in reason
            assert s.run(y) == 3.0
            made = s.make_callable(y)
            assert hr.explain(made).engine == "interpret"
            assert made() == 3.0


def test_a_callable_that_cannot_be_compiled_is_refused_when_it_is_made() -> None:
    with hr.Graph() as g:
        x = hr.placeholder(hr.float32, [], name="x")
        y = a_queue(x)
        with hr.Session(graph=g, engine="compiled") as s, pytest.raises(InvalidArgumentError):
            s.make_callable(y, [x])


# *** primitives ***


def as_primitives(make: Callable[[Tensor], list[Tensor]]) -> tuple[Graph, list[str]]:
    """A graph as in a file of TensorFlow 1, with `x`.

    Also the names of the results of `make`.
    """
    with hr.Graph():
        x = hr.placeholder(hr.float32, [], name="x")
        made = make(x)
        graph = lower(prune([], made, []).graph).graph
    names = [op.inputs[0].name for op in graph.operations if op.type == "_Retval"]
    with hr.Graph() as g:
        for op in list(graph.operations):
            if op.type == "_Retval":
                continue
            inputs = [g.get_tensor_by_name(t.name) for t in op.inputs]
            g.add_op(op.type, op.name, inputs, dict(op.attrs))
    return g, names


def test_primitives_are_recovered_and_compiled() -> None:
    g = from_text(CUBE)
    fetches = ["y:0", "dx:0"]
    with hr.Session(graph=g, engine="compiled") as one, hr.Session(graph=g, engine="interpret") as other:
        with flags.override(VERIFY=0):
            told = one.explain(fetches, ["x:0"])
        assert told.engine == "compiled"
        assert ".append(" in told.source
        assert ".pop()" in told.source
        assert "Stack" not in told.source
        for value in (0.5, -2.0):
            got = one.run(fetches, {"x:0": value})
            assert got == pytest.approx([value**3, 3 * value**2])
            assert got == pytest.approx(other.run(fetches, {"x:0": value}))


def by_hand() -> tuple[Any, Tensor]:
    """A graph with a loop made of primitives, which counts to five."""
    builder = hr.ir.builder.Builder(hr.Graph())
    loop = Loop(builder, "frame")
    i = loop.var(builder.const(0))
    loop.goes_while(builder.Less(i, loop.constant(builder.const(5))))
    loop.next(i, builder.AddV2(loop.body(i), loop.const(1)))
    return builder, loop.exit(i)


def test_a_loop_by_hand() -> None:
    builder, y = by_hand()
    with hr.Session(graph=builder.graph, engine="compiled") as s:
        assert s.explain(y).engine == "compiled"
        assert s.run(y) == 5


def test_what_is_not_well_structured_is_interpreted() -> None:
    """A Merge of two Switches by different predicates.

    The token machine alone finds out which of the inputs arrives.
    """
    g = from_text("""
        p = Placeholder[dtype=bool, shape=[]]
        q = Placeholder[dtype=bool, shape=[]]
        x = Placeholder[dtype=float32, shape=[]]
        sp = Switch(x, p)
        sq = Switch(x, q)
        a = Neg(sp:1)
        c = Square(sq)
        m = Merge(a, c)
    """)
    fed = {"p:0": True, "q:0": True, "x:0": 3.0}
    with hr.Session(graph=g) as s:
        told = s.explain("m:0", list(fed))
        assert told.engine == "interpret"
        assert told.reasons[0].startswith("not recovered: ")
        assert s.run("m:0", fed) == -3.0
        assert s.run("m:0", {**fed, "p:0": False, "q:0": False}) == 9.0
    with hr.Session(graph=g, engine="compiled") as s, pytest.raises(InvalidArgumentError, match="not recovered"):
        s.run("m:0", fed)


def test_a_tensor_inside_a_primitive_loop() -> None:
    """A tensor in a loop has a value in each iteration.

    A step that fetches it is not compiled, and fails as in the token machine.
    """
    builder, y = by_hand()
    inner = next(op for op in builder.graph.operations if op.type == "AddV2").outputs[0]
    with hr.Session(graph=builder.graph) as s, hr.Session(graph=builder.graph, engine="interpret") as other:
        assert s.explain(inner).engine == "interpret"
        for session in (s, other):
            with pytest.raises(InternalError, match="Fetch a loop's result"):
                session.run(inner)
            assert session.run(y) == 5


@pytest.mark.matrix
def test_recorded_programs_of_tensorflow_are_compiled() -> None:
    """Loops with TensorFlow's own gradients, which keep values on stacks.

    Nearly all compile, with lists for stacks.
    """
    chosen = [e["id"] for e in corpus.index if "loop" in e["tags"] and "StackPushV2" in e["ops"]][::2]
    assert len(chosen) > 10
    lists, refused = 0, []
    for program in chosen:
        loaded = corpus.load(program)
        with hr.Graph() as g:
            hr.import_graph_def(loaded["graph"], name="")
        step = next(s for s in loaded["steps"] if s["kind"] == "run" and s["fetches"])
        with flags.override(VERIFY=0), hr.Session(graph=g) as s:
            told = s.explain(step["fetches"], [name for name, _ in step["feeds"]])
        if told.engine == "compiled":
            lists += ".pop()" in told.source
        else:
            assert told.reasons
            refused.append(program)
    assert len(refused) < 0.2 * len(chosen), refused
    assert lists > 0.5 * len(chosen)


# *** steps that are interpreted in a session that compiles ***


def test_traced_runs_and_partial_runs() -> None:
    with hr.Graph() as g:
        x, y = (hr.placeholder(hr.float32, [], name=n) for n in "xy")
        u = a_loop(x)
        v = u * y
        with hr.Session(graph=g) as s:
            want = s.run([u, v], {x: 0.5, y: 3.0})
            events: list[Any] = []
            options = hr.RunOptions(listener=events.append)
            same(s.run([u, v], {x: 0.5, y: 3.0}, options), want)
            assert events
            handle = s.partial_run_setup([u, v], [x, y])
            same(s.partial_run(handle, u, {x: 0.5}), want[0])
            same(s.partial_run(handle, v, {y: 3.0}), want[1])
            same(s.run([u, v], {x: 0.5, y: 3.0}), want)
            assert s.explain([u, v], [x, y]).engine == "compiled"


def test_a_graph_that_grows_is_compiled_anew() -> None:
    with hr.Graph() as g:
        x = hr.placeholder(hr.float32, [], name="x")
        y = x + 1.0
        with hr.Session(graph=g, engine="compiled") as s:
            run = s.make_callable(y, [x])
            assert run(1.0) == 2.0
            z = y * 2.0
            assert run(1.0) == 2.0
            assert s.run([y, z], {x: 1.0}) == [2.0, 4.0]


# *** threads, state, order ***


def test_threads_share_a_compiled_step() -> None:
    with hr.Graph() as g:
        x = hr.placeholder(hr.float64, [50], name="x")
        y = hr.while_loop(lambda i, v: i < 30, lambda i, v: (i + 1, hr.tanh(v * 1.5 + 0.1) * 2.0), [0, x])[1]
        grads = hr.gradients([y], [x])
        out: dict[int, Any] = {}
        with hr.Session(graph=g, engine="compiled") as s:
            given = [np.random.default_rng(k).standard_normal(50) for k in range(8)]
            want = [s.run([y, *grads], {x: v}) for v in given]
            run = s.make_callable([y, *grads], [x])

            def go(k: int) -> None:
                out[k] = [run(given[k]) for _ in range(5)]

            threads = [threading.Thread(target=go, args=(k,)) for k in range(8)]
            for t in threads:
                t.start()
            for t in threads:
                t.join()
        for k in range(8):
            for got in out[k]:
                same(got, want[k])


def test_threads_share_variables() -> None:
    with hr.Graph() as g:
        v = hr.Variable(0.0)
        value = v.read_value()

        def body(i: Tensor) -> Any:
            with hr.control_dependencies([v.assign_add(1.0)]):
                return i + 1

        step = hr.while_loop(lambda i: i < 50, body, [0])[0].op
        with hr.Session(graph=g, engine="compiled") as s:
            s.run(v.initializer)
            threads = [threading.Thread(target=lambda: s.run(step)) for _ in range(4)]
            for t in threads:
                t.start()
            for t in threads:
                t.join()
            assert s.run(value) == 200.0


def test_prints_assertions_and_variables_keep_their_order(capfd: pytest.CaptureFixture[str]) -> None:
    with hr.Graph() as g:
        n = hr.placeholder(hr.int32, [], name="n")
        v = hr.Variable(0, dtype=hr.int32)
        value = v.read_value()

        def body(i: Tensor) -> Tensor:
            hr.print("i", i, v.read_value())
            v.assign_add(i)
            hr.print("then", v.read_value())
            hr.cond(hr.equal(i % 2, 0), lambda: hr.print("even"), lambda: hr.print("odd"))
            hr.Assert(i < 4, ["too far", i])
            return i + 1

        y = hr.while_loop(lambda i: i < n, body, [0])[0]
        after = hr.print("done")
        told = []
        for engine in ("compiled", "interpret"):
            with hr.Session(graph=g, engine=engine) as s:
                s.run(v.initializer)
                s.run([y, after], {n: 3})
                last = s.run(value)
                with pytest.raises(InvalidArgumentError, match="assertion failed"):
                    s.run([y, after], {n: 9})
                told.append([*capfd.readouterr().err.splitlines(), last])
        assert told[0] == told[1]
        assert told[0][:9] == ["i 0 0", "then 0", "even", "i 1 0", "then 1", "odd", "i 2 1", "then 3", "even"]


def test_random_streams_go_on_from_run_to_run() -> None:
    with hr.Graph() as g:

        def body(i: Tensor, s: Tensor) -> Any:
            return i + 1, s + hr.random.uniform([2], seed=3)

        y = hr.while_loop(lambda i, s: i < 4, body, [0, hr.zeros([2])])[1]
        z = hr.random.normal([3], seed=7)
        sessions = [hr.Session(graph=g, engine=e) for e in ("compiled", "interpret")]
        for _ in range(3):
            same(*[s.run([y, z]) for s in sessions])


def test_steps_without_anything_to_do() -> None:
    with hr.Graph() as g:
        x = hr.placeholder(hr.float32, [2], name="x")
        assert both([], None) == []
        same(both([x, x], {x: [1.0, 2.0]}), [np.array([1, 2], np.float32)] * 2)
        assert both(hr.constant("text")) == b"text"
        with hr.Session(graph=g, engine="compiled") as s:
            assert s.run(hr.no_op()) is None
    with hr.Graph():
        assert b() is not None
