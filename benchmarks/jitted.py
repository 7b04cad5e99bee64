"""Times of jitted functions: calls, conversion with tracing, and the programs of docs/tour.md.

python -m benchmarks --only jitted
"""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import io
import itertools
import re
import sys
import tempfile
import types
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import headrace as hr
from benchmarks.measure import Result, in_turns

CALLS = 2000  # in one measurement of a call
LINES = 300  # the model that is converted and traced has at least as many
TOUR = Path(__file__).parent.parent / "docs" / "tour.md"
# the function of each program of the tour, and its arguments, names of the program
PROGRAMS = (
    ("RNN over ragged sequences", "last_states", "batch, lengths, w, u"),
    ("attention of all pairs", "attention", "*map(hr.constant, (q, k, x, v))"),
    ("beam search", "beam_search", "hr.constant(model), hr.constant(1)"),
    ("TreeLSTM", "encode", "*map(hr.constant, (0, left, right, words, w))"),
    ("ODE solver", "hares", "rates"),
)


def jitted(repeats: int = 9, others: Sequence[str] = ("tensorflow",), calls: int = CALLS) -> list[Result]:
    """Calls, conversion with tracing, and the programs of the tour.

    Args:
      repeats: the number of rounds.
      others: the systems to compare with, where they are installed.
      calls: the calls in one measurement of a call.
    """
    return [
        *_calls(repeats, calls),
        _tracing(repeats, [name for name in others if importlib.util.find_spec(name)]),
        *_tour(repeats),
    ]


# *** calls ***


class _Scale:
    def __init__(self) -> None:
        self.by = hr.Variable([2.0, 2.0])

    @hr.jit
    def __call__(self, x: Any) -> Any:
        return x * self.by


def _calls(repeats: int, calls: int) -> list[Result]:
    x, y = hr.constant([1.0, 2.0]), hr.constant([3.0, 4.0])
    weights = {"w": x, "b": y, "more": [x, y]}
    add = hr.jit(lambda x, y: x + y)
    scale = _Scale()
    slope = hr.grad(_loss)
    total = hr.jit(lambda p: p["w"] * p["b"] + p["more"][0] - p["more"][1])
    rows: dict[str, tuple[Callable[[], object], Any, list[Any]]] = {
        "two tensors": (lambda: add(x, y), add.lower(x, y), [x, y]),
        "a keyword": (lambda: add(x, y=y), add.lower(x, y), [x, y]),
        "a Python number": (lambda: add(x, 3), add.lower(x, 3), [x]),
        "an array": (lambda: add(x, ARRAY), add.lower(x, ARRAY), [x, hr.constant(ARRAY)]),
        "a dict of 4 tensors": (lambda: total(weights), total.lower(weights), hr.tree.leaves(weights)),
        "a method with a variable": (lambda: scale(x), _Scale.__call__.__get__(scale).lower(x), [x]),
        "hr.grad of a function": (lambda: slope(x), hr.jit(hr.grad(_loss)).lower(x), [x]),
    }
    results = []
    for name, (call, concrete, tensors) in rows.items():
        values = [t._value for t in (*tensors, *concrete.captured)]
        step = hr.Session(graph=concrete.graph).value_callable(concrete.outputs, concrete.effects, concrete.inputs)
        whole, inner = in_turns([_many(call, calls), _many(functools.partial(step, values), calls)], repeats)
        over = [1e6 * (a - b) / calls for a, b in zip(whole, inner, strict=True)]
        steps = [1e6 * b / calls for b in inner]
        results.append(Result(f"jitted call over its step: {name}", "µs", over, "", {"the step": steps}))
    return results


def _many(call: Callable[[], object], n: int) -> Callable[[], None]:
    def run() -> None:
        for _ in range(n):
            call()

    return run


ARRAY = np.array([3.0, 4.0], np.float32)


def _loss(x: Any) -> Any:
    return hr.reduce_sum(x * x)


# *** conversion and tracing ***


def _tracing(repeats: int, others: Sequence[str]) -> Result:
    """Seconds from the source of a model to its graph."""
    with tempfile.TemporaryDirectory() as folder:
        numbers = itertools.count()

        def model(prelude: str) -> Any:
            return _module(Path(folder) / f"model{next(numbers)}.py", prelude + _source())

        def mine() -> None:
            hr.jit(model("import headrace as tf\n").model).lower(hr.TensorSpec((8,)), hr.TensorSpec((), hr.int32))

        ways: dict[str, Callable[[], None]] = {}
        if "tensorflow" in others:
            import tensorflow as tf

            def theirs() -> None:
                f = tf.function(model("import tensorflow as tf\n").model)
                f.get_concrete_function(tf.TensorSpec((8,)), tf.TensorSpec((), tf.int32))

            ways["TensorFlow"] = theirs
        seconds = in_turns([mine, *ways.values()], repeats)
    return Result(
        f"conversion and tracing of a model of {len(_source().splitlines())} lines",
        "s",
        seconds[0],
        "",
        dict(zip(ways, seconds[1:], strict=True)),
    )


def _source() -> str:
    """A model: layers in helper functions, loops, conditionals with early returns."""
    lines = []
    part = 0
    while len(lines) + part < LINES:  # each part is called in a line
        lines += [
            f"def part{part}(x, n):",
            "    h = tf.tanh(x * 0.5)",
            "    steps = 0",
            "    while steps < n:",
            "        if tf.reduce_sum(h) > 0.0:",
            "            h = h * 0.9 + x",
            "        else:",
            "            h = h - x * 0.1",
            "        steps += 1",
            "    if n > 3 and tf.reduce_max(h) < 10.0:",
            "        return h + 1.0",
            "    return h",
            "",
        ]
        part += 1
    lines += ["def model(x, n):", "    total = 0.0"]
    for i in range(part):
        lines += [f"    x = part{i}(x, n)"]
    lines += ["    return tf.reduce_sum(x) + total"]
    return "\n".join(lines) + "\n"


def _module(path: Path, source: str) -> Any:
    path.write_text(source, encoding="utf-8")
    made = types.ModuleType(path.stem)
    sys.modules[path.stem] = made
    exec(compile(source, str(path), "exec"), vars(made))
    return made


# *** the programs of the tour ***


def _tour(repeats: int) -> list[Result]:
    """Milliseconds of each program as a compiled graph, and operation by operation."""
    blocks = re.findall(r"```python\n(.*?)```", TOUR.read_text(encoding="utf-8"), re.DOTALL)
    results = []
    with tempfile.TemporaryDirectory() as folder:
        for i, (block, (title, name, arguments)) in enumerate(zip(blocks, PROGRAMS, strict=True)):
            with contextlib.redirect_stdout(io.StringIO()):
                module = _module(Path(folder) / f"tour{i}.py", block)
            function, given = getattr(module, name), eval(f"({arguments},)", vars(module))

            def eagerly(function: Any = function, given: Any = given) -> None:
                hr.run_eagerly(True)
                try:
                    function(*given)
                finally:
                    hr.run_eagerly(False)

            graph, eager = in_turns([lambda f=function, g=given: f(*g), eagerly], repeats)
            ms, slow = ([1e3 * s for s in seconds] for seconds in (graph, eager))
            results.append(Result(f"tour: {title}", "ms", ms, "", {"eager": slow}))
    return results
