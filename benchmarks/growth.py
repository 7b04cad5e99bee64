"""Costs that must stay linear: writes in loops, first results, gradients of nested programs.

    python -m benchmarks --only writes --only first_results --only nested_gradients --only cached_steps

Each family has several spellings; each spelling is a row. The garbage collector is on where graphs are made, as it is
in a program: its passes over a growing graph are a part of the cost. Seconds are CPU seconds of the process (one
thread), which other processes of a busy machine disturb less.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np

import headrace as hr
from benchmarks.measure import Result
from headrace import v1

# *** writes ***


def writes(n: int = 2000, repeats: int = 9) -> list[Result]:
    """Microseconds that a write adds to an iteration, by spelling, for scalars and vectors."""
    out = []
    for shape in ((), (4,)):
        for name, program in WRITES.items():
            mine = [_iteration(program, shape, m, repeats) for m in (n, 4 * n)]
            base = _iteration(_sum, shape, n, repeats)
            each = [max(a - b, 0.0) for a, b in zip(mine[0], base)]
            longer = np.median(mine[1]) / np.median(mine[0])
            facts = (
                f"the rest of the iteration takes {np.median(base):.2f}; a loop four times as long: x{longer:.2f} each"
            )
            out.append(Result(f"write, {name}, {'vector' if shape else 'scalar'}", "µs", each, facts))
    return out


def _iteration(
    program: Callable[[tuple[int, ...], int], Any], shape: tuple[int, ...], n: int, repeats: int
) -> list[float]:
    with hr.Graph() as g:
        y = program(shape, n)
    with hr.Session(graph=g, engine="compiled") as session:
        return [1e6 * s / n for s in _seconds(lambda: session.run(y), repeats)]


def _element(i: Any, shape: tuple[int, ...]) -> Any:
    x = hr.cast(i, hr.float32)
    return hr.fill(list(shape), x) if shape else x


def _sum(shape: tuple[int, ...], n: int) -> Any:
    zero = hr.zeros(shape)
    return hr.while_loop(lambda i, _: i < n, lambda i, s: (i + 1, s + _element(i, shape)), [0, zero])[1]


def _filled(ta: Any, shape: tuple[int, ...], n: int, index: Callable[[Any, Any], Any] = lambda i, _: i) -> Any:
    def body(i: Any, t: Any) -> Any:
        return i + 1, t.write(index(i, t), _element(i, shape))

    return hr.while_loop(lambda i, _: i < n, body, [0, ta])[1]


def _array(shape: tuple[int, ...], n: int, **kwargs: Any) -> Any:
    return hr.TensorArray(hr.float32, **(kwargs or {"size": 0, "dynamic_size": True}))


def _dynamic(shape: tuple[int, ...], n: int) -> Any:
    return _filled(_array(shape, n), shape, n).stack()


def _dynamic_with_shape(shape: tuple[int, ...], n: int) -> Any:
    return _filled(_array(shape, n, size=0, dynamic_size=True, element_shape=shape), shape, n).stack()


def _fixed(shape: tuple[int, ...], n: int) -> Any:
    return _filled(_array(shape, n, size=n), shape, n).stack()


def _fixed_with_shape(shape: tuple[int, ...], n: int) -> Any:
    return _filled(_array(shape, n, size=n, element_shape=shape), shape, n).stack()


def _at_its_size(shape: tuple[int, ...], n: int) -> Any:
    return _filled(_array(shape, n), shape, n, lambda _, t: t.size()).stack()


def _backwards(shape: tuple[int, ...], n: int) -> Any:
    return _filled(_array(shape, n, size=n, dynamic_size=True), shape, n, lambda i, _: n - 1 - i).stack()


def _unstacked(shape: tuple[int, ...], n: int) -> Any:
    return _filled(_array(shape, n).unstack(hr.zeros((n // 2, *shape))), shape, n).stack()


def _read_back(shape: tuple[int, ...], n: int) -> Any:
    ta = _array(shape, n).write(0, hr.ones(shape))

    def body(i: Any, t: Any) -> Any:
        return i + 1, t.write(i, t.read(i - 1) + _element(i, shape))

    return hr.while_loop(lambda i, _: i < n, body, [1, ta])[1].stack()


def _of_version_1(shape: tuple[int, ...], n: int) -> Any:
    ta = v1.TensorArray(v1.float32, size=0, dynamic_size=True)
    return _filled(ta, shape, n).stack()


WRITES: Final[Mapping[str, Callable[[tuple[int, ...], int], Any]]] = {
    "dynamic_size": _dynamic,
    "dynamic_size and element_shape": _dynamic_with_shape,
    "fixed size": _fixed,
    "fixed size and element_shape": _fixed_with_shape,
    "dynamic_size, at size()": _at_its_size,
    "dynamic_size, backwards": _backwards,
    "dynamic_size, after unstack": _unstacked,
    "dynamic_size, read back": _read_back,
    "v1.TensorArray, dynamic_size": _of_version_1,
}

# *** first results ***


def first_results(n: int = 20_000, repeats: int = 3, longer: int = 5) -> list[Result]:
    """Milliseconds an operation to the first result of a long chain, and its gradient.

    Args:
      n: approximate number of operations.
      repeats: number of measurements, of which the median counts.
      longer: size of the longer graph, as a multiple of `n`, from which the growth follows.
    """
    out = []
    for name, program in STRAIGHT.items():
        for what, measure in FIRST.items():
            mine = [measure(program, n) for _ in range(repeats)]
            grown = measure(program, n * longer) / float(np.median(mine))
            facts = f"about {n} operations; {longer} times as many: x{grown:.2f} each; 0.08 is the goal"
            out.append(Result(f"{what}, {name}", "ms", mine, facts))
    return out


def _chain(n: int) -> tuple[Any, dict[Any, Any]]:
    x = hr.placeholder(hr.float32, [4])
    y = x
    for _ in range(n):
        y = y + x
    return y, {x: np.ones(4, np.float32)}


def _scalars(n: int) -> tuple[Any, dict[Any, Any]]:
    x = hr.placeholder(hr.float32, [])
    y = x
    for _ in range(n):
        y = y + x
    return y, {x: np.float32(1)}


def _mixed(n: int) -> tuple[Any, dict[Any, Any]]:
    x = hr.placeholder(hr.float32, [2, 3])
    y = x
    for _ in range(n // 4):
        y = hr.tanh((y + x) * 2.0)  # and a constant
    return y, {x: np.ones((2, 3), np.float32)}


def _products(n: int) -> tuple[Any, dict[Any, Any]]:
    x = hr.placeholder(hr.float32, [3, 3])
    y = x
    for _ in range(n // 2):
        y = hr.tanh(hr.matmul(y, x))
    return y, {x: np.ones((3, 3), np.float32)}


def _wide(n: int) -> tuple[Any, dict[Any, Any]]:
    x = hr.placeholder(hr.float32, [4])
    terms = [hr.sin(x * float(i)) for i in range(n // 4)]
    while len(terms) > 1:
        left = terms[-1:] if len(terms) % 2 else []
        terms = [a + b for a, b in zip(terms[::2], terms[1::2])] + left
    return terms[0], {x: np.ones(4, np.float32)}


def _variables(n: int) -> tuple[Any, dict[Any, Any]]:
    ws = [hr.Variable(np.ones(4, np.float32)) for _ in range(max(n // 100, 1))]
    x = hr.placeholder(hr.float32, [4])
    y = x
    for i in range(n // 2):
        y = y * ws[i % len(ws)] + x
    return y, {x: np.ones(4, np.float32)}


def _first(engine: str) -> Callable[[Callable[[int], Any], int], float]:
    def measure(program: Callable[[int], Any], n: int) -> float:
        with hr.Graph() as g:
            y, feeds = program(n)
            start = hr.variables_initializer() if program is _variables else hr.no_op()
        with hr.Session(graph=g, engine=engine) as session:
            session.run(start)
            return 1e3 * _once(lambda: session.run(y, feeds)) / len(g)

    return measure


def nested_gradients(n: int = 200, repeats: int = 3) -> list[Result]:
    """Milliseconds an operation to build gradients of loops, conditionals and functions.

    For a chain of functions the figure is that of one function.

    Args:
      n: approximate number of operations; graphs with 2 n and 4 n give the growth.
      repeats: number of measurements, of which the median counts.
    """
    out = []
    for name, program in NESTED.items():
        mine = [[_gradient(program, n * m) for m in (1, 2, 4)] for _ in range(repeats)]
        one, two, four = (float(np.median([each[i] for each in mine])) for i in range(3))
        facts = f"about {n} operations; 2 and 4 times as many: x{two / one:.2f} and x{four / one:.2f} each"
        out.append(Result(f"building a gradient, {name}", "ms", [each[0] for each in mine], facts))
    return out


def _nested(place: str, layer: Callable[[Any, Any], Any], per_layer: int) -> Callable[[int], Any]:
    def program(n: int) -> Any:
        x: Any = hr.placeholder(hr.float32, None)

        def layers(y: Any) -> Any:
            for _ in range(n // per_layer):
                y = layer(y, x)
            return y

        if place == "loop":
            y = hr.while_loop(lambda i, _: i < 3, lambda i, y: (i + 1, layers(y)), [0, x])[1]
        elif place == "conditional":
            y = hr.cond(hr.reduce_sum(x) > 0, lambda: layers(x), lambda: x)
        else:
            y = hr.Function(layers)(x)
        return y, {x: np.ones(3, np.float32)}

    return program


def _functions(n: int) -> tuple[Any, dict[Any, Any]]:
    f = hr.Function(hr.tanh)
    for _ in range(n - 1):
        f = hr.Function(lambda a, f=f: hr.sin(f(a)))
    x = hr.placeholder(hr.float32, [3])
    return f(x), {x: np.ones(3, np.float32)}


NESTED: Final[Mapping[str, Callable[[int], Any]]] = {
    **{
        f"{what}, {place}": _nested(place, layer, per_layer)
        for place in ("loop", "conditional", "function")
        for what, layer, per_layer in (
            ("scaled", lambda y, x: y * 1.01, 2),
            ("values to keep", lambda y, x: hr.tanh(y + x), 2),
            ("reshaped", lambda y, x: hr.reshape(hr.reshape(y, [-1]) * 1.5, hr.shape(y)), 6),
        )
    },
    "a chain of functions": _functions,
}


def _gradient(program: Callable[[int], Any], n: int) -> float:
    with hr.Graph() as g:
        y, feeds = program(n)
        y, size = hr.reduce_sum(y), len(g)
        return 1e3 * _once(lambda: hr.gradients([y], list(feeds))) / (n if size < n else size)


STRAIGHT: Final[Mapping[str, Callable[[int], Any]]] = {
    "sums of vectors": _chain,
    "sums of scalars": _scalars,
    "elementwise with constants": _mixed,
    "products": _products,
    "a wide tree": _wide,
    "variables": _variables,
}
FIRST: Final[Mapping[str, Callable[[Callable[[int], Any], int], float]]] = {
    "first result, compiled": _first("compiled"),
    "first result, interpreted": _first("interpret"),
    "building a gradient": _gradient,
}

# *** the cache ***


def cached_steps(runs: int = 300) -> list[Result]:
    """Steps that a session holds after runs of a growing graph, and of many fetches."""
    held = []
    for grows in (True, False):
        with hr.Graph() as g:
            x = hr.placeholder(hr.float32, [])
            ys = [] if grows else [x + float(i) for i in range(runs)]
            with hr.Session(graph=g) as session:
                for i in range(runs):
                    session.run(x + float(i) if grows else ys[i], {x: 1.0})
                held.append(float(session.statistics().steps))
    return [
        Result("steps held, graph growing between runs", "", held[:1], f"{runs} runs; 1 can still be asked for"),
        Result("steps held, fetches of one graph", "", held[1:], f"{runs} runs of different fetches"),
    ]


# *** measuring ***


def _once(f: Callable[[], object]) -> float:
    gc.collect()
    start = time.process_time()
    f()
    return time.process_time() - start


def _seconds(f: Callable[[], object], repeats: int) -> list[float]:
    f()
    return [_once(f) for _ in range(repeats)]
