"""LSTMs and RNNs in many spellings: steps with equal results, for tests and for measurements.

The spellings differ in the products, in the way they make gates and read rows, and in the loop. The weights of each are
constants, variables or feeds. All must become the same loops (`tests.optimize.test_recurrent`).

    python -m tests.optimize.recurrent 8 200 64      # microseconds of an iteration, and operations in the loops
"""

from __future__ import annotations

import collections
import dataclasses
import sys
import time
from collections.abc import Callable
from typing import Any, Final

import numpy as np

import headrace as hr
import headrace.v1 as v1
from headrace.ir.edit.editor import own_bodies
from headrace.ir.graph import Graph
from headrace.optimize.pipeline import optimize
from headrace.optimize.specialize import specialize
from headrace.prune import prune

SOURCES: Final = ("constants", "variables", "feeds")


@dataclasses.dataclass(frozen=True)
class Sizes:
    """Sizes of a recurrent network, whose inputs have another width than its state."""

    batch: int = 2
    time: int = 4
    inputs: int = 3
    units: int = 5


class Weights:
    """Weights of one source: the tensors for the values that a spelling asks for."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.tensors: list[Any] = []
        self.feeds: dict[Any, np.ndarray] = {}
        self.initial: list[Any] = []

    def __call__(self, value: np.ndarray) -> Any:
        if self.source == "constants":
            made: Any = hr.constant(value)
        elif self.source == "feeds":
            made = hr.placeholder(hr.float32, value.shape)
            self.feeds[made] = value
        else:
            made = hr.Variable(value)
            self.initial.append(made.initializer)
        self.tensors.append(made)
        return made


@dataclasses.dataclass(frozen=True)
class Net:
    """Arguments of a spelling: inputs by time, initial state, and values of the weights."""

    sizes: Sizes
    xs: Any
    h: Any
    c: Any
    w: np.ndarray
    b: np.ndarray

    @property
    def wx(self) -> np.ndarray:
        return self.w[: self.sizes.inputs]

    @property
    def wh(self) -> np.ndarray:
        return self.w[self.sizes.inputs :]


Spelling = Callable[[Net, Weights], Any]


def _cell(z: Any, c: Any) -> tuple[Any, Any]:
    i, j, f, o = hr.split(z, 4, 1)
    c = hr.sigmoid(f) * c + hr.sigmoid(i) * hr.tanh(j)
    return hr.sigmoid(o) * hr.tanh(c), c


def _gates(z: Any, c: Any, units: int) -> tuple[Any, Any]:
    i, j, f, o = (z[:, k * units : (k + 1) * units] for k in range(4))
    c = hr.sigmoid(f) * c + hr.sigmoid(i) * hr.tanh(j)
    return hr.sigmoid(o) * hr.tanh(c), c


def _while(net: Net, read: Callable[[Any], Any], step: Callable[[Any, Any, Any], tuple[Any, Any]]) -> Any:
    n = net.sizes.time
    _, h, _ = hr.while_loop(lambda t, h, c: t < n, lambda t, h, c: (t + 1, *step(read(t), h, c)), (0, net.h, net.c))
    return h


def _rows(net: Net) -> Callable[[Any], Any]:
    return hr.TensorArray(hr.float32, net.sizes.time).unstack(net.xs).read


def concat_split(net: Net, weights: Weights) -> Any:
    w, b = weights(net.w), weights(net.b)
    return _while(net, _rows(net), lambda x, h, c: _cell(hr.matmul(hr.concat([x, h], 1), w) + b, c))


def products_split(net: Net, weights: Weights) -> Any:
    w, u, b = weights(net.wx), weights(net.wh), weights(net.b)
    return _while(net, _rows(net), lambda x, h, c: _cell(hr.matmul(x, w) + hr.matmul(h, u) + b, c))


def bias_first(net: Net, weights: Weights) -> Any:
    w, u, b = weights(net.wx), weights(net.wh), weights(net.b)
    return _while(net, _rows(net), lambda x, h, c: _cell(b + hr.matmul(h, u) + hr.matmul(x, w), c))


def concat_slices(net: Net, weights: Weights) -> Any:
    w, b = weights(net.w), weights(net.b)
    k = net.sizes.units
    return _while(net, lambda t: net.xs[t], lambda x, h, c: _gates(hr.matmul(hr.concat([x, h], 1), w) + b, c, k))


def products_slices(net: Net, weights: Weights) -> Any:
    w, u, b = weights(net.wx), weights(net.wh), weights(net.b)
    k = net.sizes.units
    return _while(
        net, lambda t: hr.gather(net.xs, t), lambda x, h, c: _gates(hr.matmul(x, w) + hr.matmul(h, u) + b, c, k)
    )


def turned(net: Net, weights: Weights) -> Any:
    w, b = weights(net.w.T.copy()), weights(net.b)
    return _while(net, _rows(net), lambda x, h, c: _cell(hr.matmul(hr.concat([x, h], 1), w, transpose_b=True) + b, c))


def state_first(net: Net, weights: Weights) -> Any:
    w, b = weights(np.concatenate([net.wh, net.wx])), weights(net.b)
    return _while(net, _rows(net), lambda x, h, c: _cell(hr.nn.bias_add(hr.matmul(hr.concat([h, x], 1), w), b), c))


def scanned(net: Net, weights: Weights) -> Any:
    w, b = weights(net.w), weights(net.b)
    hs, _ = hr.scan(lambda s, x: _cell(hr.matmul(hr.concat([x, s[0]], 1), w) + b, s[1]), net.xs, (net.h, net.c))
    return hs[-1]


def scanned_products(net: Net, weights: Weights) -> Any:
    w, u, b = weights(net.wx), weights(net.wh), weights(net.b)
    k = net.sizes.units
    hs, _ = hr.scan(lambda s, x: _gates(hr.matmul(x, w) + hr.matmul(s[0], u) + b, s[1], k), net.xs, (net.h, net.c))
    return hs[-1]


def v1_dynamic_rnn(net: Net, weights: Weights) -> Any:
    values = {"kernel": net.w, "bias": net.b}

    def get(getter: Any, name: str, *args: Any, **kwargs: Any) -> Any:
        return weights(values[name.rpartition("/")[2]])

    with v1.variable_scope("net", custom_getter=get):
        cell = v1.nn.rnn_cell.BasicLSTMCell(net.sizes.units, forget_bias=0.0)
        start = v1.nn.rnn_cell.LSTMStateTuple(net.c, net.h)
        _, (_, h) = v1.nn.dynamic_rnn(cell, net.xs, initial_state=start, time_major=True)
    return h


def v1_while(net: Net, weights: Weights) -> Any:
    w, b = weights(net.w), weights(net.b)
    n = net.sizes.time
    rows = v1.TensorArray(v1.float32, n).unstack(net.xs)

    def step(t: Any, h: Any, c: Any, ys: Any) -> Any:
        z = v1.matmul(v1.concat([rows.read(t), h], 1), w) + b
        i, j, f, o = v1.split(z, 4, 1)
        c = v1.sigmoid(f) * c + v1.sigmoid(i) * v1.tanh(j)
        h = v1.sigmoid(o) * v1.tanh(c)
        return t + 1, h, c, ys.write(t, h)

    ys: Any = v1.TensorArray(v1.float32, n)
    loop: Any = v1.while_loop
    return loop(lambda t, h, c, ys: t < n, step, (0, net.h, net.c, ys))[3].stack()[-1]


def for_rows(net: Net, weights: Weights) -> Any:
    w, u, b = weights(net.wx), weights(net.wh), weights(net.b)

    def run(xs: Any, h: Any, c: Any) -> Any:
        for x in xs:
            h, c = _cell(hr.matmul(x, w) + hr.matmul(h, u) + b, c)
        return h

    return hr.autograph.convert(run)(net.xs, net.h, net.c)


def for_range(net: Net, weights: Weights) -> Any:
    w, b = weights(net.w), weights(net.b)
    k = net.sizes.units

    def run(xs: Any, h: Any, c: Any) -> Any:
        for t in hr.range(hr.shape(xs)[0]):
            h, c = _gates(hr.matmul(hr.concat([xs[t], h], 1), w) + b, c, k)
        return h

    return hr.autograph.convert(run)(net.xs, net.h, net.c)


def gates(net: Net, weights: Weights) -> Any:
    cut = [[weights(m) for m in np.split(part, 4, -1)] for part in (net.wx, net.wh, net.b)]

    def step(x: Any, h: Any, c: Any) -> tuple[Any, Any]:
        i, j, f, o = (hr.matmul(x, w) + hr.matmul(h, u) + b for w, u, b in zip(*cut, strict=True))
        c = hr.sigmoid(f) * c + hr.sigmoid(i) * hr.tanh(j)
        return hr.sigmoid(o) * hr.tanh(c), c

    return _while(net, _rows(net), step)


def concat_gates(net: Net, weights: Weights) -> Any:
    cut = [[weights(m) for m in np.split(part, 4, -1)] for part in (net.w, net.b)]

    def step(x: Any, h: Any, c: Any) -> tuple[Any, Any]:
        both = hr.concat([x, h], 1)
        i, j, f, o = (hr.matmul(both, w) + b for w, b in zip(*cut, strict=True))
        c = hr.sigmoid(f) * c + hr.sigmoid(i) * hr.tanh(j)
        return hr.sigmoid(o) * hr.tanh(c), c

    return _while(net, _rows(net), step)


def rnn_concat(net: Net, weights: Weights) -> Any:
    w, b = weights(net.w), weights(net.b)
    return _while(net, _rows(net), lambda x, h, c: (hr.tanh(hr.matmul(hr.concat([x, h], 1), w) + b), c))


def rnn_products(net: Net, weights: Weights) -> Any:
    w, u, b = weights(net.wx), weights(net.wh), weights(net.b)
    return _while(net, lambda t: net.xs[t], lambda x, h, c: (hr.tanh(hr.matmul(x, w) + hr.matmul(h, u) + b), c))


def rnn_scan(net: Net, weights: Weights) -> Any:
    w, u, b = weights(net.wx), weights(net.wh), weights(net.b)
    return hr.scan(lambda h, x: hr.tanh(hr.matmul(x, w) + hr.matmul(h, u) + b), net.xs, net.h)[-1]


def rnn_scan_concat(net: Net, weights: Weights) -> Any:
    w, b = weights(net.w), weights(net.b)
    return hr.scan(lambda h, x: hr.tanh(hr.matmul(hr.concat([x, h], 1), w) + b), net.xs, net.h)[-1]


def v1_rnn_dynamic(net: Net, weights: Weights) -> Any:
    values = {"kernel": net.w, "bias": net.b}

    def get(getter: Any, name: str, *args: Any, **kwargs: Any) -> Any:
        return weights(values[name.rpartition("/")[2]])

    with v1.variable_scope("net", custom_getter=get):
        cell = v1.nn.rnn_cell.BasicRNNCell(net.sizes.units)
        _, h = v1.nn.dynamic_rnn(cell, net.xs, initial_state=net.h, time_major=True)
    return h


def rnn_turned(net: Net, weights: Weights) -> Any:
    w, u, b = weights(net.wx.T.copy()), weights(net.wh.T.copy()), weights(net.b)
    return _while(
        net,
        _rows(net),
        lambda x, h, c: (hr.tanh(hr.matmul(x, w, transpose_b=True) + hr.matmul(h, u, transpose_b=True) + b), c),
    )


def gru_concat(net: Net, weights: Weights) -> Any:
    k = net.sizes.units
    w, b, v, a = (weights(m) for m in (net.w[:, : 2 * k], net.b[: 2 * k], net.w[:, 2 * k :], net.b[2 * k :]))

    def step(x: Any, h: Any, c: Any) -> tuple[Any, Any]:
        r, z = hr.split(hr.sigmoid(hr.matmul(hr.concat([x, h], 1), w) + b), 2, 1)
        new = hr.tanh(hr.matmul(hr.concat([x, r * h], 1), v) + a)
        return z * h + (1.0 - z) * new, c

    return _while(net, _rows(net), step)


def gru_products(net: Net, weights: Weights) -> Any:
    k = net.sizes.units
    parts = [(m[:, : 2 * k], m[:, 2 * k :]) for m in (net.wx, net.wh)]
    (w, v), (u, t), (b, a) = ([weights(m) for m in p] for p in (*parts, (net.b[: 2 * k], net.b[2 * k :])))

    def step(x: Any, h: Any, c: Any) -> tuple[Any, Any]:
        both = hr.sigmoid(b + hr.matmul(x, w) + hr.matmul(h, u))
        r, z = both[:, :k], both[:, k:]
        new = hr.tanh(hr.matmul(r * h, t) + hr.matmul(x, v) + a)
        return z * h + (1.0 - z) * new, c

    return _while(net, lambda t: net.xs[t], step)


def v1_gru(net: Net, weights: Weights) -> Any:
    k = net.sizes.units
    values = {"gates/kernel": net.w[:, : 2 * k], "gates/bias": net.b[: 2 * k]}
    values |= {"candidate/kernel": net.w[:, 2 * k :], "candidate/bias": net.b[2 * k :]}

    def get(getter: Any, name: str, *args: Any, **kwargs: Any) -> Any:
        return weights(values["/".join(name.rsplit("/", 2)[1:])])

    with v1.variable_scope("net", custom_getter=get):
        cell = v1.nn.rnn_cell.GRUCell(k)
        _, h = v1.nn.dynamic_rnn(cell, net.xs, initial_state=net.h, time_major=True)
    return h


# *** spellings with other loops, which are native all the same ***


def folded(net: Net, weights: Weights) -> Any:
    w, b = weights(net.w), weights(net.b)
    return hr.foldl(_of_pair(w, b), net.xs, (net.h, net.c))[0]


def folded_right(net: Net, weights: Weights) -> Any:
    w, b = weights(net.w), weights(net.b)
    return hr.foldr(_of_pair(w, b), net.xs, (net.h, net.c))[0]


def scanned_back(net: Net, weights: Weights) -> Any:
    w, b = weights(net.w), weights(net.b)
    return hr.scan(_of_pair(w, b), net.xs, (net.h, net.c), reverse=True)[0][0]


def _of_pair(w: Any, b: Any) -> Callable[[Any, Any], Any]:
    return lambda s, x: _cell(hr.matmul(hr.concat([x, s[0]], 1), w) + b, s[1])


def counting_down(net: Net, weights: Weights) -> Any:
    w, b, n = weights(net.w), weights(net.b), net.sizes.time
    read = _rows(net)

    def step(t: Any, h: Any, c: Any) -> Any:
        return t - 1, *_cell(hr.matmul(hr.concat([read(t), h], 1), w) + b, c)

    return hr.while_loop(lambda t, h, c: t >= 0, step, (n - 1, net.h, net.c))[1]


def counting_the_rest(net: Net, weights: Weights) -> Any:
    w, b, n = weights(net.w), weights(net.b), net.sizes.time

    def step(t: Any, h: Any, c: Any) -> Any:
        return t - 1, *_cell(hr.matmul(hr.concat([net.xs[n - t], h], 1), w) + b, c)

    return hr.while_loop(lambda t, h, c: t > 0, step, (n, net.h, net.c))[1]


def columns(net: Net, weights: Weights) -> Any:
    w, b = weights(net.w), weights(net.b)
    xs = hr.transpose(net.xs, [1, 0, 2])
    return _while(net, lambda t: xs[:, t, :], lambda x, h, c: _cell(hr.matmul(hr.concat([x, h], 1), w) + b, c))


def packed(net: Net, weights: Weights) -> Any:
    w, b, k = weights(net.w), weights(net.b), net.sizes.units
    read = _rows(net)

    def step(t: Any, s: Any) -> Any:
        return t + 1, hr.concat(_cell(hr.matmul(hr.concat([read(t), s[:, :k]], 1), w) + b, s[:, k:]), 1)

    first = hr.concat([net.h, net.c], 1)
    return hr.while_loop(lambda t, s: t < net.sizes.time, step, (0, first))[1][:, :k]


def pairs(net: Net, weights: Weights) -> Any:
    w, b = weights(net.w), weights(net.b)
    run = _of_pair(w, b)
    by = hr.cast(hr.range(net.sizes.time), hr.float32)
    return hr.scan(lambda s, x: run(s, x[0] * x[1]), (net.xs, by), (net.h, net.c))[0][-1]


def peepholes(net: Net, weights: Weights) -> Any:
    w, b = weights(net.w), weights(net.b)
    p, q, r = (weights(m) for m in np.split(net.b, 4)[:3])

    def cell(z: Any, c: Any) -> tuple[Any, Any]:
        i, j, f, o = hr.split(z, 4, 1)
        new = hr.sigmoid(f + p * c) * c + hr.sigmoid(i + q * c) * hr.tanh(j)
        return hr.sigmoid(o + r * new) * hr.tanh(new), new

    return _while(net, _rows(net), lambda x, h, c: cell(hr.matmul(hr.concat([x, h], 1), w) + b, c))


def v1_lstm_peepholes(net: Net, weights: Weights) -> Any:
    values = {"kernel": net.w, "bias": net.b}
    values |= {f"w_{g}_diag": m for g, m in zip("ifo", np.split(net.b, 4)[:3], strict=True)}

    def get(getter: Any, name: str, *args: Any, **kwargs: Any) -> Any:
        return weights(values[name.rpartition("/")[2]])

    with v1.variable_scope("net", custom_getter=get):
        cell = v1.nn.rnn_cell.LSTMCell(net.sizes.units, use_peepholes=True, cell_clip=3.0)
        start = v1.nn.rnn_cell.LSTMStateTuple(net.c, net.h)
        xs = v1.transpose(net.xs, [1, 0, 2])
        _, (_, h) = v1.nn.dynamic_rnn(cell, xs, initial_state=start)
    return h


def rnn_folded_right(net: Net, weights: Weights) -> Any:
    w, b = weights(net.w), weights(net.b)
    return hr.foldr(lambda h, x: hr.tanh(hr.matmul(hr.concat([x, h], 1), w) + b), net.xs, net.h)


def rnn_counting_down(net: Net, weights: Weights) -> Any:
    w, b = weights(net.w), weights(net.b)

    def step(t: Any, h: Any) -> Any:
        return t - 1, hr.tanh(hr.matmul(hr.concat([net.xs[t], h], 1), w) + b)

    return hr.while_loop(lambda t, h: t >= 0, step, (net.sizes.time - 1, net.h))[1]


LSTMS: Final[dict[str, Spelling]] = {
    f.__name__: f
    for f in (
        concat_split,
        products_split,
        bias_first,
        concat_slices,
        products_slices,
        turned,
        state_first,
        scanned,
        scanned_products,
        v1_dynamic_rnn,
        v1_while,
        for_rows,
        for_range,
        gates,
        concat_gates,
    )
}
RNNS: Final[dict[str, Spelling]] = {
    f.__name__: f for f in (rnn_concat, rnn_products, rnn_scan, rnn_scan_concat, v1_rnn_dynamic, rnn_turned)
}

GRUS: Final[dict[str, Spelling]] = {f.__name__: f for f in (gru_concat, gru_products, v1_gru)}
SPELLINGS: Final[dict[str, Spelling]] = {**LSTMS, **RNNS, **GRUS}

#: Spellings whose loops have other operations in addition.
OTHERS: Final[dict[str, Spelling]] = {
    f.__name__: f
    for f in (
        folded,
        folded_right,
        scanned_back,
        counting_down,
        counting_the_rest,
        columns,
        packed,
        pairs,
        peepholes,
        v1_lstm_peepholes,
        rnn_folded_right,
        rnn_counting_down,
    )
}
_ALL: Final = {**SPELLINGS, **OTHERS}


@dataclasses.dataclass
class Made:
    """A step of one spelling.

    Attributes:
      graph: its graph.
      feeds: the tensors it is fed, with values.
      fetches: the sum of the squares of the last state, then the derivatives, if there are any.
      initial: the operations that initialize its variables.
    """

    graph: Graph
    feeds: dict[Any, np.ndarray]
    fetches: list[Any]
    initial: list[Any]

    def optimized(self) -> tuple[Graph, Any]:
        """The graph of the step after all passes, and their report."""
        step = prune(list(self.feeds), self.fetches, []).graph
        own_bodies(step)
        args = {op.attrs["index"]: op.outputs[0] for op in step.operations if op.type == "_Arg"}
        specialize(step, {args[i]: v.shape for i, v in enumerate(self.feeds.values()) if i in args})
        report = optimize(step)
        return step, report


def made(
    name: str, source: str, gradient: bool, sizes: Sizes = Sizes(), is_open: bool = False, by_inputs: bool = False
) -> Made:
    """The step of a spelling, with derivatives by the weights if `gradient`.

    Args:
      name: the name of the spelling.
      source: the source of its weights.
      gradient: whether the step has derivatives.
      sizes: the sizes of the network.
      is_open: whether the graph leaves the batch size unknown.
      by_inputs: whether there are derivatives by the inputs, too.
    """
    rng = np.random.default_rng(5)
    width = (1 if "rnn_" in name and name != "v1_dynamic_rnn" else 3 if name in GRUS else 4) * sizes.units

    def draw(*shape: int) -> np.ndarray:
        return (rng.standard_normal(shape) * 0.2).astype(np.float32)

    xs, h, c = (
        draw(sizes.time, sizes.batch, sizes.inputs),
        draw(sizes.batch, sizes.units),
        draw(sizes.batch, sizes.units),
    )
    w, b = draw(sizes.inputs + sizes.units, width), draw(width)
    graph = v1.Graph().as_default() if name.startswith("v1_") else hr.Graph()
    with graph as g:
        batch = None if is_open else sizes.batch
        dims = [(sizes.time, batch, sizes.inputs), (batch, sizes.units), (batch, sizes.units)]
        ins: list[Any] = [hr.placeholder(hr.float32, d) for d in dims]
        weights = Weights(source)
        last = _ALL[name](Net(sizes, ins[0], ins[1], ins[2], w, b), weights)
        loss = hr.reduce_sum(last * last)
        fetches = [loss]
        if gradient:
            fetches += hr.gradients(loss, [*weights.tensors, *ins[:by_inputs]])
    used = dict(zip(ins, (xs, h, c), strict=True)) | weights.feeds
    return Made(g, used, fetches, weights.initial)


def loops(graph: Graph) -> list[collections.Counter[str]]:
    """Numbers of the operations in the body of each loop of a graph, by type."""
    return [
        collections.Counter(op.type for op in op.attrs["body"].operations if op.type not in ("_Arg", "Const"))
        for op in graph.operations
        if op.opdef.structured == "While"
    ]


def _measure(name: str, source: str, gradient: bool, sizes: Sizes) -> tuple[float, list[collections.Counter[str]]]:
    step = made(name, source, gradient, sizes)
    with hr.Session(graph=step.graph) as session:
        session.run(step.initial)
        run = session.make_callable(step.fetches, list(step.feeds))
        values = list(step.feeds.values())
        run(*values)
        best = float("inf")
        began = time.perf_counter()
        while time.perf_counter() - began < 0.5:
            t = time.perf_counter()
            run(*values)
            best = min(best, time.perf_counter() - t)
    return best / sizes.time * 1e6, loops(step.optimized()[0])


def main() -> None:
    batch, steps, units = map(int, sys.argv[1:4])
    wanted = sys.argv[4:] or [*_ALL]
    sizes = Sizes(batch, steps, units, units)
    for gradient in (False, True):
        seen: dict[str, int] = {}
        for name in wanted:
            times = []
            for source in SOURCES:
                us, bodies = _measure(name, source, gradient, sizes)
                key = " | ".join(" ".join(f"{n}{t}" for t, n in sorted(b.items())) for b in bodies)
                times.append(f"{us:7.2f} ({seen.setdefault(key, len(seen))})")
            print(f"{name:18} {'gradient' if gradient else 'forward':8}", *times, flush=True)
        for key, k in seen.items():
            print(f"  ({k}) {key}")


if __name__ == "__main__":
    main()
