"""Random programs to be written to a file and read again.

The readers are headrace (here) and TensorFlow (`tests/conformance`).

A case is a graph and its steps, which fetch and feed by name, so that any graph with the same names can run it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import io
import random
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

import headrace as hr
import headrace.v1 as tf
from headrace.api import scopes
from headrace.errors import InvalidArgumentError
from tests.api.programs import LISTS, Build, Failed, Generator, Python, initial
from tests.grad.test_random_gradients import Example, Made

TIMEOUT_MS = 60_000


@dataclasses.dataclass
class Step:
    """One run of a case.

    Attributes:
      fetches: Names of the tensors that are fetched.
      targets: Names of further operations that are run.
      feeds: Values by the name of the tensor that is fed.
    """

    fetches: list[str]
    targets: list[str]
    feeds: dict[str, Any]


@dataclasses.dataclass
class Case:
    """A graph and its runs.

    Attributes:
      graph: The graph that is written.
      steps: The runs, one after the other, in one session.
    """

    graph: Any
    steps: list[Step]


def structured(seed: int, stateful: bool) -> Case:
    """A program of `tests.api.programs`: conditionals, loops and lists of integers; variables, queues, checks."""
    rng = random.Random(seed)
    block = Generator(rng, stateful).program()
    start = initial(rng)
    python = Python(start, lambda id, k: 0)  # only to know how much is taken from a queue, at least
    with contextlib.suppress(Failed):
        python.run(block)
    with hr.Graph() as g:
        build = Build(start, rng.choice([1, 2, 10]), max(python.took, 200), stateful)
        before = [*(v.initializer for v in build.variables.values()), *getattr(build, "fill", [])]
        build.run(block)
        ends = [v.stack() if n in LISTS else scopes.builder().Identity(v) for n, v in build.values.items()]
        effects = [op for op in g.operations if op.opdef.structured or op.type in ("Print", "Assert")]
        effects += [op for op in g.operations if op.type.startswith(("Assign", "QueueEnqueueV2"))]
        after = [t.name for t in build.ends.values()] if stateful else []
    targets = [op.name for op in effects if op not in before] if stateful else []
    feeds = {t.name: value for t, value in build.feeds.items()}
    steps = [Step([], [op.name], {}) for op in before]
    steps += [Step([t.name for t in ends], targets, feeds), Step(after, [], {})]
    return Case(g, [s for s in steps if s.fetches or s.targets])


def differentiated(seed: int, orders: int = 2) -> Case:
    """A program of `tests.grad.programs`, in floats, with its gradients.

    They are those of the first order and one of the second.
    """
    example = Example(seed)
    with Made(example) as made:
        gradient = made.gradients(made.y)
        ends = [made.y, *gradient.values()]
        if orders > 1:
            along = sum(hr.reduce_sum(g * example.directions[0][n]) for n, g in gradient.items())
            ends += made.gradients(along, ["p", "u"] if {"p", "u"} <= set(made.inputs) else None).values()
    feeds = {made.inputs[n].name: x for n, x in example.at.items() if n != "V"}
    start = Step([], [made.inputs["V"].initializer.name], {})
    return Case(made.graph, [start, Step([t.name for t in ends], [], feeds)])


# *** graphs by hand ***


def a_cond() -> Any:
    """A conditional of `headrace.v1`, of three placeholders."""
    with tf.Graph().as_default() as g:
        x, y, z = (tf.placeholder(hr.float32, (), name=n) for n in "xyz")
        less = tf.less(x, y, name="cond/Less")
        tf.cond(less, lambda: x + z, lambda: tf.square(y))
    return g


def a_loop() -> Any:
    """A loop of `headrace.v1`; one of its variables never changes."""
    with tf.Graph().as_default() as g:
        n = tf.placeholder(hr.int32, (), name="n")
        one = tf.constant(1)
        tf.while_loop(lambda i, m: i < m, lambda i, m: (i * 2, m), (one, n))
    return g


def names_of_primitives() -> list[Case]:
    """Cases that fetch by the names that TensorFlow 1 has."""
    feeds = {"x:0": np.float32(2), "y:0": np.float32(3), "z:0": np.float32(4)}
    of_loop = Step(["while/Exit:0", "while/Exit_1:0"], [], {"n:0": np.int32(20)})
    return [Case(a_cond(), [Step(["cond/Merge:0"], [], feeds)]), Case(a_loop(), [of_loop])]


def branches() -> Case:
    """One of several branches, by a number.

    The last branch is for numbers without a branch.
    """
    with hr.Graph() as g:
        k, x = hr.placeholder(hr.int32, (), name="k"), hr.placeholder(hr.int32, (), name="x")
        y = hr.switch_case(k, [lambda: x + 1, lambda: x * 10, lambda: hr.constant(7)])
        one = hr.switch_case(k, [lambda: x - 1])

        def body(i: Any, s: Any) -> Any:
            return i + 1, s + hr.switch_case(i, [lambda: x, lambda: s, lambda: i])

        _, total = hr.while_loop(lambda i, s: i < 5, body, (0, 0))
    fetches = [t.name for t in (y, one, total)]
    return Case(g, [Step(fetches, [], {"k:0": np.int32(i), "x:0": np.int32(5)}) for i in (-1, 0, 1, 2, 3)])


def collectives(n: int) -> Case:
    """All collectives between `n` participants, and some in a loop."""
    rng = np.random.default_rng(n)
    with hr.Graph() as g:
        xs = [hr.constant(rng.normal(size=(n, 3)).astype(np.float32)) for _ in range(n)]
        many = [hr.all_sum(xs), hr.all_prod(xs), hr.all_max(xs), hr.all_min(xs), hr.all_gather(xs)]
        many += [hr.reduce_scatter(xs), hr.broadcast(xs[0], ["/cpu:0"] * n)]

        def body(i: Any, x: Any) -> Any:
            return i + 1, hr.all_gather(hr.all_sum([x, x + 1.0]))[0][:3] + hr.reduce_scatter([x[:2]] * 2)[1]

        last = hr.while_loop(lambda i, x: i < 3, body, (0, hr.constant([1.0, 2.0, 3.0])))[1]
    return Case(g, [Step([t.name for ts in many for t in ts] + [last.name], [], {})])


# *** running ***


def again(graph: Any, form: str, **options: Any) -> hr.Graph:
    """The graph that is read from a file of `graph` in the form `form`."""
    with hr.Graph() as out:
        hr.import_graph_def(graph.as_graph_def(form, **options), name="")
    return out


def run(graph: Any, steps: Sequence[Step]) -> tuple[list[Any], str, list[str]]:
    """Results of all steps: arrays, the failed check, printed text.

    The failed check is "" if none failed.
    """
    out: list[Any] = []
    failed = ""
    err, sys.stderr = sys.stderr, io.StringIO()
    try:
        with hr.Session(graph=graph) as session:
            for s in steps:
                options = hr.RunOptions(timeout_in_ms=TIMEOUT_MS)
                out += session.run([*s.fetches, *s.targets], s.feeds, options)[: len(s.fetches)]
    except InvalidArgumentError as e:
        failed = next((line for line in str(e).splitlines() if "assertion failed" in line), "")
        if not failed:
            raise
    finally:
        shown, sys.stderr = sys.stderr.getvalue().splitlines(), err
    return out, failed[failed.find("assertion failed") :], shown


def same(found: Sequence[Any], want: Sequence[Any], rtol: float = 0.0) -> bool:
    """Whether two lists of arrays are equal."""
    if len(found) != len(want):
        return False
    pairs = [(np.asarray(f), np.asarray(w)) for f, w in zip(found, want, strict=True)]
    return all(
        f.shape == w.shape and f.dtype == w.dtype and np.allclose(f, w, rtol=rtol, atol=rtol, equal_nan=True)
        for f, w in pairs
    )
