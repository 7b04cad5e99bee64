"""The Python source of programs as text, in the files of `golden/`.

There is one file for each function here. The tests also check which text a file must not have.
`python -m tests.compile.golden` writes the files again.

The tests also check which text each file must not have. `python -m tests.compile.golden` writes the files again.
"""

from __future__ import annotations

import pathlib
import re
from collections.abc import Callable
from typing import Any

import pytest

import headrace as hr
from headrace import flags
from headrace.compile import compile_graph
from headrace.ir.graph import Tensor
from headrace.prune import prune
from tests.compile.running import both, source

Program = tuple[list[Tensor], list[Tensor]]  # fetches and feeds

# the subject is the Python target: its source and its memory
pytestmark = pytest.mark.usefixtures("python_target")


def given(dtype: Any, **shapes: Any) -> list[Tensor]:
    return [hr.placeholder(dtype, shape, name=name) for name, shape in shapes.items()]


def counting_loop() -> Program:
    (n,) = given(hr.int32, n=[])
    return [hr.while_loop(lambda i, s: i < n, lambda i, s: (i + 1, s + i), [0, 0])[1]], [n]


def conditional() -> Program:
    x, y = given(hr.float32, x=[], y=[])
    return [hr.cond(x < y, lambda: x * 2.0 + y, lambda: hr.square(y))], [x, y]


def rnn() -> Program:
    """Forward and gradient."""
    xs, h, w = given(hr.float32, xs=[8, 4, 16], h=[4, 16], w=[16, 16])
    rows = hr.TensorArray(hr.float32, size=8, element_shape=[4, 16]).unstack(xs)

    def body(i: Tensor, h: Tensor) -> Any:
        return i + 1, hr.tanh(hr.matmul(h, w) + rows.read(i))

    last = hr.while_loop(lambda i, h: i < 8, body, [0, h])[1]
    loss = hr.reduce_sum(last)
    return [loss, *hr.gradients([loss], [w])], [xs, h, w]


def tensor_array() -> Program:
    """Reads rows, and writes others."""
    (x,) = given(hr.float64, x=[5, 3])
    rows = hr.TensorArray(hr.float64, size=5, element_shape=[3]).unstack(x)

    def body(i: Tensor, made: Any) -> Any:
        return i + 1, made.write(i, hr.sin(rows.read(i)) * 2.0)

    made = hr.while_loop(lambda i, _: i < 5, body, [0, hr.TensorArray(hr.float64, size=5, element_shape=[3])])[1]
    return [made.stack()], [x]


def nested_loops() -> Program:
    (n,) = given(hr.int32, n=[])

    def outer(i: Tensor, s: Tensor) -> Any:
        return i + 1, hr.while_loop(lambda j, t: t < 100, lambda j, t: (j + 2, t + j * i), [1, s])[1] - 50

    return [hr.while_loop(lambda i, s: i < n, outer, [1, 0])[1]], [n]


GOLDEN = pathlib.Path(__file__).parent / "golden"
PROGRAMS: tuple[Callable[[], Program], ...] = (counting_loop, conditional, rnn, tensor_array, nested_loops)


def text(make: Callable[[], Program]) -> str:
    """The source of a program as it is, and after the passes."""
    with hr.Graph():
        fetches, feeds = make()
        with flags.override(ACCUMULATOR_LIMIT=10**9, NATIVE="off"):  # by default the limit depends on the machine
            return "\n".join(f"# HEADRACE_OPTIMIZE={o}\n{source(fetches, feeds, o)}" for o in ("off", "on"))


@pytest.mark.parametrize("make", PROGRAMS, ids=lambda f: f.__name__)
def test_source(make: Callable[[], Program]) -> None:
    assert text(make) == (GOLDEN / f"{make.__name__}.txt").read_text(encoding="utf-8")


def test_every_golden_text_is_tested() -> None:
    assert {p.stem for p in GOLDEN.glob("*.txt")} == {f.__name__ for f in PROGRAMS}


@pytest.mark.parametrize("make", PROGRAMS, ids=lambda f: f.__name__)
def test_compiled_twice_it_is_the_same_text(make: Callable[[], Program]) -> None:
    assert text(make) == text(make)


def _body(source: str) -> str:
    """The body of the first loop."""
    lines = source.splitlines()
    first = next(i for i, line in enumerate(lines) if " for " in line)
    depth = len(lines[first]) - len(lines[first].lstrip())
    last = next(i for i, line in enumerate(lines) if i > first and len(line) - len(line.lstrip()) <= depth)
    return "\n".join(lines[first + 1 : last])


def test_a_counting_loop_calls_nothing_but_the_dtype_of_its_counter() -> None:
    with hr.Graph():
        fetches, feeds = counting_loop()
        inside = _body(source(fetches, feeds))
        assert re.findall(r"\w+\(", inside) == re.findall(r"f\d+\(", inside)
        assert inside.count("(") == 1
        assert both(fetches, {feeds[0]: 1000}) == [499_500]


def test_the_loops_of_an_rnn() -> None:
    """Forward: an element, a product, a sum into it, tanh into that, a push."""
    with hr.Graph():
        fetches, feeds = rnn()
        inside = _body(source(fetches, feeds))
        assert inside.count(".append(") == 1
        made = re.findall(r"^ +(t\d+) = ", inside, flags=re.MULTILINE)
        assert len(made) == 2, "the product and the element"
        assert len(re.findall(r"^ +k\d+\(.*" + made[0] + r"\)$", inside, flags=re.MULTILINE)) == 2
        whole = source(fetches, feeds, "on")
        assert "range(0, 8)" in whole


def test_rows_are_indexed() -> None:
    with hr.Graph():
        fetches, feeds = tensor_array()
        inside = _body(source(fetches, feeds, "on"))
        assert not re.search(r"\bf\d+\(", inside), "no helper is called for an index that is known to be natural"


def test_names_of_lines_stand_for_operations() -> None:
    """Each line that calls a kernel is marked with the operation, for errors."""
    with hr.Graph():
        fetches, feeds = conditional()
        pruned = prune(feeds, fetches, [])
        compiled = compile_graph(pruned.graph, pruned.args, pruned.retvals)
    lines = compiled.source.splitlines()
    assert len(lines) == len(compiled._marks)
    for line, mark in zip(lines, compiled._marks, strict=True):
        if "*" in line:
            assert mark.op is not None
            assert mark.op.type == "Mul"
