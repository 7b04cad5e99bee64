"""Builds and runs the programs of `tests.order.programs`, and compares what happens with the reference.

A program is text. It is executed with the names of `PRELUDE` (headrace.v1 or TensorFlow), of `ORDERED` (hr), or of
`primitives.Api`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import io
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

import headrace as hr
from headrace.api import scopes
from tests.order.api import Api
from tests.order.programs import COUNTERS, Program, source
from tests.order.reference import IN_QUEUE, Expected, Reference, State

# Definitions that a program may use. With `import tensorflow.compat.v1 as tf; tf.disable_v2_behavior();
# tf.enable_resource_variables()` in the place of the first line it is the same program in TensorFlow.
PRELUDE = """\
import headrace.v1 as tf
tf.enable_resource_variables()
import numpy as np

log = []
x0, x1 = (tf.placeholder(tf.float64, (), name=n) for n in ("x0", "x1"))
v = tf.Variable(np.float64(1.0), name="v")
w = tf.Variable(np.zeros(3), name="w")
c = tf.Variable(np.zeros(COUNTERS), name="c")
variables = {"v": v, "w": w, "c": c}
out, given = (tf.FIFOQueue(1000, [tf.float64], shapes=[()], shared_name=n) for n in ("out", "in"))
reads = {n: x.read_value() for n, x in variables.items()}

def call(k, x):
    y = tf.py_func(lambda a: log.append(("call", k, float(a))) or a + 1.0, [x], tf.float64)
    y.set_shape([])
    return y

def calls(k, x):
    y = tf.py_func(lambda a: log.append(("call", k, float(a))), [x], [])
    return getattr(y, "op", y)

def show(k, x): return tf.Print(x, [x], f"show {k}:")
def draw(k): return tf.cast(tf.random_uniform([], 0, 97, tf.int32, seed=k), tf.float64)
def enqueue(x): return out.enqueue([x])

def dequeue():
    x = given.dequeue()
    return x

def update(v, k, x): return tf.scatter_update(v, [k], [x]).op
def count(k): return tf.scatter_add(c, [k], [1.0]).op
def tuple_of(x, deps): return tf.tuple([x], control_inputs=deps)[0]

def with_dependencies(deps, x):
    with tf.control_dependencies(deps):
        return tf.identity(x)

def gradient(y, x):
    g = tf.gradients(y, [x])[0]
    return tf.zeros_like(x) if g is None else tf.identity(g)
"""
TENSORFLOW = """\
import tensorflow.compat.v1 as tf
tf.disable_v2_behavior()
tf.enable_resource_variables()
"""
ORDERED = (
    PRELUDE.replace(
        "import headrace.v1 as tf\ntf.enable_resource_variables()\n",
        "import headrace as hr\nfrom tests.order.running import Ordered\ntf = Ordered()\n",
    )
    .replace("log = []\n", "log = []\nfunction = hr.Function\n")
    .replace("tf.random_uniform(", "tf.random.uniform(")
    .replace("tf.scatter_update(v, [k], [x]).op", 'getattr(y := v.scatter_update([k], [x]), "op", y)')
    .replace("tf.scatter_add(c, [k], [1.0]).op", 'getattr(y := c.scatter_add([k], [1.0]), "op", y)')
)


class Ordered:
    """`hr` with results of loops and conditionals as TensorFlow 1 gives them."""

    def __getattr__(self, name: str) -> Any:
        return getattr(hr, name)

    def while_loop(self, cond: Any, body: Any, loop_vars: Any, **more: Any) -> Any:
        out = hr.while_loop(cond, body, loop_vars, **more)
        return out[0] if isinstance(out, (list, tuple)) and len(out) == 1 else out


class NotThisProgram(Exception):
    """The program cannot be built, or a gradient's `y` is not fetched."""


@functools.cache
def _stream(seed: int) -> tuple[float, ...]:
    """The first numbers of a random operation, from a graph with nothing else in it."""
    with hr.Graph() as g:
        b = scopes.builder()
        x = b.RandomUniformInt(hr.constant([], hr.int32), hr.constant(0), hr.constant(97), seed=87654321, seed2=seed)
    with hr.Session(graph=g, engine="interpret") as session:
        return tuple(float(session.run(x)) for _ in range(200))


def reference(p: Program, whole: bool = True, ordered: bool = False) -> Reference:
    """The program as the reference executes it.

    Raises:
      NotThisProgram, or what the text of the program raises.
    """
    text = source(p)
    if any(y not in p.fetches for y in re.findall(r"gradient\((\w+),", text)):
        raise NotThisProgram
    api = Api(whole, ordered)
    names: dict[str, Any] = {"tf": api, "x0": api.placeholder("x0"), "x1": api.placeholder("x1")}
    sizes = {"v": None, "w": 3, "c": COUNTERS}
    names |= {n: api.variable(n, size) for n, size in sizes.items()}
    names |= {
        n: getattr(api, n) for n in ("call", "calls", "show", "draw", "enqueue", "dequeue", "gradient", "function")
    }
    names["with_dependencies"] = api.with_dependencies
    names["tuple_of"] = lambda x, deps: api.tuple([x], deps)[0]
    names["update"] = lambda v, k, x: api.scatter_update(v, k, x).op
    names["count"] = lambda k: api.scatter_add(names["c"], k, 1.0).op
    exec(text, names)
    initial = {n: 1.0 if size is None else (0.0,) * size for n, size in sizes.items()}
    state = State(initial, names["feeds"], lambda k, n: _stream(k)[n])
    return Reference(api, names["fetches"], names["targets"], state)


@dataclasses.dataclass
class Observed:
    """Observed effects and values of a step; see `Expected`."""

    fetches: list[Any]
    variables: dict[str, Any]
    log: list[tuple[str, int, float]]
    queue: list[float]
    taken: int


class _Sink(io.TextIOBase):
    """A standard error that notes prints in the log."""

    def __init__(self, log: list[Any]) -> None:
        self.log, self.text = log, ""

    def write(self, text: str) -> int:
        *lines, self.text = (self.text + text).split("\n")
        self.log += [e for line in lines for e in shown(line)]
        return len(text)


def shown(text: str) -> Iterator[tuple[str, int, float]]:
    """The prints in a text."""
    for k, x in re.findall(r"show (\d+):\[([^\]]*)\]", text):
        yield "show", int(k), float(x)


class Built:
    """A program as a graph of headrace, or of TensorFlow.

    Args:
      p: the program.
      prelude: source that the program's source depends on.
      graph: the graph, of `headrace`, `headrace.v1` or `tensorflow.compat.v1`.
      entered: context manager in which the graph is the current one.
    """

    def __init__(self, p: Program, prelude: str, graph: Any, entered: Any) -> None:
        self.program, self.graph = p, graph
        names: dict[str, Any] = {"COUNTERS": COUNTERS}
        with entered:
            exec(_compiled(prelude), names)
            exec(source(p), names)
            queues = names["out"], names["given"]
            self.initial = [v.initializer for v in names["variables"].values()]
            self.fill = queues[1].enqueue_many([np.arange(100.0, 100.0 + IN_QUEUE)])
            self.sizes = [q.size() for q in queues]
            self.drain = queues[0].dequeue()
        self.log: list[Any] = names["log"]
        self.reads = names["reads"]
        self.names = names
        self.fetches, self.targets = list(names["fetches"]), list(names["targets"])
        self.feeds = names["feeds"]

    def start(self, session: Any) -> None:
        session.run([*self.initial, self.fill])

    def step(self, session: Any, sink: Any = None, partial: bool = False, **more: Any) -> Observed:
        before = len(self.log)
        with contextlib.redirect_stderr(_Sink(self.log)) if sink is None else sink:
            if partial:
                values = run_partially(session, self.fetches, self.targets, self.feeds)
            else:
                values, _ = session.run((self.fetches, self.targets), self.feeds, **more)
        log = self.log[before:]
        reads, (size, left) = session.run((self.reads, self.sizes))
        queue = [float(session.run(self.drain)) for _ in range(size)]
        plain = {n: tuple(x.tolist()) if x.ndim else float(x) for n, x in reads.items()}
        return Observed([float(x) for x in values], plain, log, queue, IN_QUEUE - int(left))


class Imported(Built):
    """A built program after an export and an import.

    Tensors and operations are found by name. A target `f.op` is the operation that the name of `f` says: a Merge or
    Exit in the primitive form.
    """

    def __init__(self, built: Built, form: str) -> None:
        import headrace.v1 as tf

        self.program, self.log = built.program, built.log
        exported = built.graph.as_graph_def(form=form)
        self.graph = tf.Graph()
        with self.graph.as_default():
            tf.import_graph_def(exported, name="")
        self.targets = []
        for text, x in zip(built.program.targets, built.targets, strict=True):
            found = self._named((built.names[text[:-3]] if text.endswith(".op") else x).name)
            self.targets.append(getattr(found, "op", found))
        self.fetches = self._all(built.fetches)
        self.feeds = {self._named(t.name): x for t, x in built.feeds.items()}
        self.initial, (self.fill, self.drain) = self._all(built.initial), self._all([built.fill, built.drain])
        self.sizes = self._all(built.sizes)
        self.reads = {n: self._named(t.name) for n, t in built.reads.items()}

    def _named(self, name: str) -> Any:
        return self.graph.as_graph_element(name)

    def _all(self, things: Sequence[Any]) -> list[Any]:
        return [self._named(x.name) for x in things]


def run_partially(session: Any, fetches: Sequence[Any], targets: Sequence[Any], feeds: Any) -> Any:
    """Runs a step in partial runs; returns the fetches.

    The feeds come one by one if anything is fetched.
    """
    handle = session.partial_run_setup([*fetches, *targets], list(feeds))
    first, rest = (list(feeds)[:-1], list(feeds)[-1:]) if fetches else ([], list(feeds))
    for t in first:
        session.partial_run(handle, [], {t: feeds[t]})
    return session.partial_run(handle, [*fetches, *targets], {t: feeds[t] for t in rest})[: len(fetches)]


@functools.cache
def _compiled(prelude: str) -> Any:
    return compile(prelude, "<prelude>", "exec")


def in_v1(p: Program) -> Built:
    import headrace.v1 as tf

    g = tf.Graph()
    return Built(p, PRELUDE, g, g.as_default())


def in_hr(p: Program) -> Built:
    g = hr.Graph()
    return Built(p, ORDERED, g, g)


# *** comparing ***


def differences(want: Expected, got: Observed, digits: float = 0.0) -> list[str]:
    """Differences between a step and its expected effects and values."""
    out = []

    def same(a: Any, b: Any) -> bool:
        if a is None:
            return True
        if isinstance(a, tuple):
            return all(map(same, a, b))
        return bool(a == b or abs(a - b) <= digits * abs(a))

    for i, (a, b) in enumerate(zip(want.fetches, got.fetches, strict=True)):
        if not same(a, b):
            out.append(f"fetch {i} is {b}, expected {a}")
    for n, a in want.variables.items():
        b = got.variables[n]
        if isinstance(a, tuple):
            a = tuple(None if (n, k) in want.labels else x for k, x in enumerate(a))
        if not same(a, b):
            if isinstance(a, tuple):
                wrong = [k for k, (x, y) in enumerate(zip(a, b, strict=True)) if not same(x, y)]
                out.append(f"{n}{wrong} is {[b[k] for k in wrong]}, expected {[a[k] for k in wrong]}")
            else:
                out.append(f"{n} is {b}, expected {a}")
    entries = [[e for e in log if e[:2] not in want.labels] for log in (want.log, got.log)]
    counts = Counter(e[:2] for e in entries[0]), Counter(e[:2] for e in entries[1])
    if counts[0] != counts[1]:
        missing, extra = counts[0] - counts[1], counts[1] - counts[0]
        out.append(f"did not happen: {dict(missing)}; happened though not expected: {dict(extra)}")
    elif not want.labels:
        out += _order(want, got, same)
    if want.queue is None:
        pass
    elif len(want.queue) != len(got.queue):
        out.append(f"the queue has {len(got.queue)} elements, expected {len(want.queue)}")
    elif want.is_fifo:
        if not all(map(same, want.queue, got.queue)):
            out.append(f"the queue has {got.queue}, expected {want.queue}")
    elif None not in want.queue and not all(map(same, sorted(want.queue), sorted(got.queue))):  # type: ignore[type-var]
        out.append(f"the queue has {got.queue}, expected {want.queue} in any order")
    if want.taken is not None and want.taken != got.taken:
        out.append(f"{got.taken} elements were taken, expected {want.taken}")
    return out


def _order(want: Expected, got: Observed, same: Any) -> Iterator[str]:
    """Entries of the log with wrong arguments, and in a wrong order."""
    unknown = {e[:2] for e in want.log if e[2] is None}
    for k in dict.fromkeys(e[:2] for e in want.log):
        if k not in unknown:
            a, b = sorted(e[2] for e in want.log if e[:2] == k), sorted(e[2] for e in got.log if e[:2] == k)  # type: ignore[type-var]
            if not all(map(same, a, b)):
                yield f"{k} happened with {b}, expected {a}"
                return
    names = Counter(e[:2] for e in want.log)
    entries = Counter(want.log)

    def place(i: int) -> int | None:
        e = want.log[i]
        if names[e[:2]] == 1:
            return next(k for k, g in enumerate(got.log) if g[:2] == e[:2])
        if e[:2] in unknown or entries[e] > 1:
            return None
        found = [k for k, g in enumerate(got.log) if g[:2] == e[:2] and same(e[2], g[2])]
        return found[0] if len(found) == 1 else None

    places = [place(i) for i in range(len(want.log))]
    for i, j in want.order:
        a, b = places[i], places[j]
        if a is not None and b is not None and a > b:
            yield f"{want.log[j]} happened before {want.log[i]}"
            return
