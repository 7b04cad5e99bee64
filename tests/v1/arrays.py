"""Random programs on one TensorArray of TensorFlow 1, and what they do, in plain Python.

Each statement waits for the one before, so that the order of the accesses does not depend on the executor.
`tests.conformance.test_arrays` compares with TensorFlow.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Sequence
from typing import Any

VALUES = (1.0, 2.0, 3.0, 4.0, 5.0)
_STATEMENTS = (
    *("write",) * 4, *("read",) * 4, *("write_loop",) * 2, *("read_loop",) * 2, "unstack", "stack", "gather", "scatter",
    "size", "write_in_branches", "read_write_loop", "nested_loops",
)  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Statement:
    """One statement.

    Attributes:
      kind: of `_STATEMENTS`.
      at: the indices; of a loop the first number and the one behind the last.
      index: of a loop, how the index comes of the number of the iteration.
      step: of a loop.
    """

    kind: str
    at: tuple[int, ...] = ()
    index: str = "i"
    step: int = 1

    def of(self, i: Any, n: int) -> Any:
        """Index in iteration `i` of an array of `n` elements.

        `i` is a number or a tensor, and so is the index.
        """
        return {"i": i, "reversed": n - 1 - i, "half": i // 2, "first": i * 0 + self.at[0], "from 0": i - self.at[0]}[
            self.index
        ]


@dataclasses.dataclass(frozen=True)
class Plan:
    """A program.

    Attributes:
      size: of the array.
      clear_after_read, dynamic_size: of the array.
      statements: in their order.
    """

    size: int
    clear_after_read: bool | None
    dynamic_size: bool
    statements: tuple[Statement, ...]


def plan(seed: int) -> Plan:
    """The program of a seed."""
    r = random.Random(seed)
    n = r.randint(2, 5)
    statements = []
    clear, dynamic = r.choice([None, True, False]), r.random() < 0.3
    for _ in range(r.randint(1, 6)):
        kind = r.choice(_STATEMENTS)
        if kind in ("write", "read", "write_in_branches"):
            statements.append(Statement(kind, (r.randrange(n),)))
        elif kind in ("gather", "scatter"):
            statements.append(Statement(kind, tuple(r.randrange(n) for _ in range(r.randint(1, 3)))))
        elif "loop" in kind:
            first = r.randrange(n)
            index = r.choice(["i", "i", "i", "reversed", "half", "first", "from 0"])
            statements.append(Statement(kind, (first, r.randint(first, n)), index, r.choice([1, 1, 2])))
        else:
            statements.append(Statement(kind))
    return Plan(n, clear, dynamic, tuple(statements))


# *** as a graph ***


def build(tf: Any, p: Plan) -> list[Any]:
    """Builds a program in the default graph of `tf`, TensorFlow 1 or `headrace.v1`.

    Returns:
      The results, and their gradient.
    """
    x = tf.constant(VALUES[: p.size])
    a = tf.TensorArray(tf.float32, p.size, p.dynamic_size, p.clear_after_read, element_shape=())
    out: list[Any] = []
    last: list[Any] = []
    for c, s in enumerate(p.statements):
        with tf.control_dependencies(last):
            a, new = _build(tf, p, s, a, x, float(c + 1))
        out += new
        last = new or [a.flow]
    with tf.control_dependencies(last):
        out.append(a.size())
    y = [tf.reduce_sum(o * o) for o in out if o.dtype == tf.float32]
    g = tf.gradients(y, x)[0] if y else None
    return out if g is None else [*out, tf.convert_to_tensor(g)]


def _build(tf: Any, p: Plan, s: Statement, a: Any, x: Any, factor: float) -> tuple[Any, list[Any]]:
    n = p.size
    first, last = s.at if "loop" in s.kind else (0, 0)

    def is_in(i: Any, *_: Any) -> Any:
        return i < last

    match s.kind:
        case "write":
            return a.write(s.at[0], x[s.at[0]] * factor), []
        case "read":
            return a, [a.read(s.at[0])]
        case "unstack":
            return a.unstack(x * factor), []
        case "stack":
            return a, [a.stack()]
        case "size":
            return a, [a.size()]
        case "gather":
            return a, [a.gather(list(s.at))]
        case "scatter":
            return a.scatter(list(s.at), tf.gather(x, list(s.at))), []
        case "write_in_branches":
            k = s.at[0]
            return tf.cond(x[0] > 0.0, lambda: a.write(k, x[k] * factor), lambda: a.write(k, x[0])), []
        case "write_loop":
            start = (tf.constant(first), a)
            return tf.while_loop(is_in, lambda i, a: (i + s.step, a.write(s.of(i, n), x[0] * factor)), start)[1], []
        case "read_loop":
            start = (tf.constant(first), 0.0)
            total = tf.while_loop(
                is_in, lambda i, t: (i + s.step, t + a.read(s.of(i, n))), start, parallel_iterations=1
            )
            return a, [total[1]]
        case "read_write_loop":

            def body(i: Any, a: Any, total: Any) -> Any:
                value = a.read(tf.maximum(i - 1, 0)) if first == 0 else a.read(i - 1)
                with tf.control_dependencies([value]):
                    return i + s.step, a.write(s.of(i, n), value + factor), total + value

            loop = tf.while_loop(is_in, body, (tf.constant(first), a, 0.0), parallel_iterations=1)
            return loop[1], [loop[2]]
        case _:

            def around(j: Any, a: Any) -> Any:
                start = (tf.constant(first), a)
                return j + 1, tf.while_loop(is_in, lambda i, a: (i + s.step, a.write(s.of(i, n), x[0])), start)[1]

            return tf.while_loop(lambda j, _: j < s.step, around, (0, a))[1], []


# *** in plain Python ***


class Refused(Exception):
    """TensorFlow raises an `InvalidArgumentError`."""


class _Array:
    """The rules of TensorFlow's `TensorArrayV3`, on numbers."""

    def __init__(self, p: Plan) -> None:
        self.size = p.size
        self._dynamic = p.dynamic_size
        self._clear = p.clear_after_read is not False
        self._values: dict[int, float] = {}
        self._read: set[int] = set()

    def write(self, i: int, value: float) -> None:
        if i in self._values or i in self._read or i < 0 or (i >= self.size and not self._dynamic):
            raise Refused
        self.size = max(self.size, i + 1)
        self._values[i] = value

    def read(self, i: int) -> float:
        if not 0 <= i < self.size or (self._clear and i in self._read):
            raise Refused
        self._read.add(i)
        return self._values.get(i, 0.0)


def simulate(p: Plan) -> list[Any]:
    """The results of a program, without the gradient.

    Raises:
      Refused: it does what an array does not allow.
    """
    a, out = _Array(p), []
    for c, s in enumerate(p.statements):
        out += _simulate(p, s, a, VALUES[: p.size], float(c + 1))
    return [*out, a.size]


def _simulate(p: Plan, s: Statement, a: _Array, x: Sequence[float], factor: float) -> list[Any]:
    n = p.size
    numbers = range(*s.at, s.step) if "loop" in s.kind else ()
    total = 0.0
    match s.kind:
        case "write" | "write_in_branches":
            a.write(s.at[0], x[s.at[0]] * factor)
        case "read":
            return [a.read(s.at[0])]
        case "unstack":
            for i, value in enumerate(x):
                a.write(i, value * factor)
        case "stack":
            return [[a.read(i) for i in range(a.size)]]
        case "size":
            return [a.size]
        case "gather":
            return [[a.read(i) for i in s.at]]
        case "scatter":
            for i in s.at:
                a.write(i, x[i])
        case "write_loop":
            for i in numbers:
                a.write(s.of(i, n), x[0] * factor)
        case "read_loop":
            for i in numbers:
                total += a.read(s.of(i, n))
            return [total]
        case "read_write_loop":
            for i in numbers:
                value = a.read(max(i - 1, 0))
                a.write(s.of(i, n), value + factor)
                total += value
            return [total]
        case _:
            for _ in range(s.step):
                for i in numbers:
                    a.write(s.of(i, n), x[0])
    return []
