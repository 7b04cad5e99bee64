"""Programs beyond the limits of Python's parser and compiler: long sums, many branches, long chains."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable

import numpy as np
import pytest

import headrace as hr
from headrace.schedule.scalar_expressions import DEEPEST
from tests.compile.running import both, source

F32 = hr.float32


@pytest.mark.parametrize("shape", [[], [3], None])
@pytest.mark.parametrize("n", [DEEPEST, DEEPEST + 2, 300, 600])
def test_add_n_of_many_tensors(shape: list[int] | None, n: int) -> None:
    with hr.Graph():
        xs = [hr.placeholder(F32, shape) for _ in range(n)]
        values = [np.full(shape or [], i, np.float32) for i in range(n)]
        total = both(hr.add_n(xs), dict(zip(xs, values, strict=True)))
        assert np.all(total == n * (n - 1) // 2)


def test_a_sum_of_few_scalars_is_one_expression() -> None:
    with hr.Graph():
        xs = [hr.placeholder(F32, []) for _ in range(8)]
        assert source(hr.add_n(xs)).count(" + ") == 7


@pytest.mark.matrix
@pytest.mark.parametrize("make", [hr.stack, hr.add_n, lambda xs: hr.concat([x[None] for x in xs], 0)])
def test_gradients_of_what_joins_210_tensors(make: Callable[..., hr.Tensor]) -> None:
    with hr.Graph():
        xs = [hr.placeholder(F32, []) for _ in range(210)]
        made = hr.gradients(hr.reduce_sum(make(xs)), xs)
        assert both(made, dict.fromkeys(xs, np.float32(1))) == [1.0] * 210


def test_a_tensor_that_400_operations_read_has_a_gradient() -> None:
    with hr.Graph():
        x = hr.placeholder(F32, [])
        (made,) = hr.gradients(hr.add_n([x * float(i) for i in range(400)]), [x])
        assert both(made, {x: np.float32(1)}) == 400 * 399 / 2


@pytest.mark.matrix
@pytest.mark.parametrize("n", [9, 17, 200])
@pytest.mark.parametrize("made", [None, 0, 8, -2, -1])
def test_a_case_of_many_branches(n: int, made: int | None) -> None:
    with hr.Graph():
        i, x = hr.placeholder(hr.int32, []), hr.placeholder(F32, [])
        y = hr.switch_case(i, [lambda k=k: x * float(k) for k in range(n)])  # type: ignore[misc]
        which = n + 3 if made is None else made % n  # out of range: the last one
        assert both(y, {i: np.int32(which), x: np.float32(1)}) == min(which, n - 1)


@pytest.mark.parametrize("op", [lambda x, y: x + y, lambda x, y: y - x, lambda x, y: -x, lambda x, y: hr.maximum(x, y)])
@pytest.mark.parametrize("shape", [[], [3]])
def test_a_chain_of_600_operations(op: Callable[..., hr.Tensor], shape: list[int]) -> None:
    with hr.Graph():
        x = y = hr.placeholder(F32, shape)
        for _ in range(600):
            y = op(y, x)
        both(y, {x: np.ones(shape, np.float32)})


@pytest.mark.parametrize("kind", ["cond", "while", "function"])
def test_gradients_of_long_chains_in_graphs_that_operations_own(kind: str) -> None:
    def chain(y: hr.Tensor) -> hr.Tensor:
        for _ in range(120):
            y = y * 1.0
        return hr.tanh(y)

    with hr.Graph():
        x = hr.placeholder(F32, [])
        if kind == "cond":
            y = hr.cond(x > 0.0, lambda: chain(x), lambda: x)
        elif kind == "while":
            y = hr.while_loop(lambda i, y: i < 2, lambda i, y: (i + 1, chain(y)), [0, x])[1]
        else:
            y = hr.Function(chain)(x)
        limit = sys.getrecursionlimit()
        here = len(inspect.stack())
        sys.setrecursionlimit(here + 220)  # the chain is longer than what is left of it
        try:
            made = hr.gradients(y, [x])
        finally:
            sys.setrecursionlimit(limit)
        both(made, {x: np.float32(0.5)})
