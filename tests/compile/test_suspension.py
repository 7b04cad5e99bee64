"""Code that is suspended where it lacks a value of another device."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import headrace as hr
from headrace.compile import Compiled, compile_graph
from headrace.errors import AbortedError, InvalidArgumentError
from headrace.execute.entered import entered
from headrace.execute.step import Step
from headrace.ir.graph import Tensor
from headrace.prune import prune
from headrace.resources.manager import ResourceManager
from tests.compile.running import b

pytestmark = pytest.mark.one_engine


class Exchange:
    """Queues by edge; values that are sent go to a list."""

    def __init__(self) -> None:
        self.queues: dict[str, deque[Any]] = {}
        self.sent: list[tuple[str, Any]] = []

    def queue(self, edge: str) -> deque[Any]:
        return self.queues.setdefault(edge, deque())

    def sender(self, edge: str, is_last: bool) -> Callable[..., None]:
        del is_last
        return lambda value=None: self.sent.append((edge, value))


def received(edge: str) -> Tensor:
    """The next value of an edge, a float32 scalar."""
    attrs = {"tensor_type": hr.float32, "shape": (), "tensor_name": edge, "send_device": "a", "recv_device": "b"}
    made: Tensor = b().make("_StepRecv", (), attrs, "received")
    return made


def compiled(y: Tensor, x: Tensor | None = None) -> Compiled:
    step = prune([] if x is None else [x], [y], [])
    return compile_graph(step.graph, step.args, step.retvals, step.targets)


def step_with(exchange: Exchange) -> Step:
    step = Step(ResourceManager(), ResourceManager)
    step.exchange = exchange
    return step


def result(code: Compiled, values: list[float], fed: list[Any], seed: int) -> tuple[Any, int]:
    """Fetch and number of suspensions of code whose values arrive now and then."""
    rng, exchange, left = random.Random(seed), Exchange(), [np.float32(v) for v in values]
    run = code.begin(step_with(exchange), fed)
    suspensions = 0
    with entered(code.flushes):
        try:
            while True:
                awaited = next(run)
                suspensions += 1
                assert awaited is exchange.queues["e"]
                assert not awaited
                while left and (not awaited or rng.random() < 0.5):
                    awaited.append(left.pop(0))
        except StopIteration as e:
            return e.value[0], suspensions


@pytest.mark.parametrize("seed", range(4))
def test_a_loop_is_suspended_until_each_value_arrives(seed: int) -> None:
    with hr.Graph():
        x = hr.placeholder(hr.float32, ())
        y = hr.while_loop(lambda i, a: i < 5, lambda i, a: (i + 1, a * 2.0 + received("e")), [0, x])[1]
        code = compiled(y, x)
    assert code.suspends
    values = [1.0, 2.0, 3.0, 4.0, 5.0]
    want = 3.0
    for v in values:
        want = want * 2.0 + v
    got, suspensions = result(code, values, [np.float32(3.0)], seed)
    assert got == want
    assert 1 <= suspensions <= 5


def test_a_block_with_a_function_of_its_own_is_suspended_too() -> None:
    """Inner loops of many are functions, and their callers yield their queues."""

    def nested(depth: int, value: Tensor) -> Tensor:
        if not depth:
            return value + received("e")
        out: Tensor = hr.while_loop(
            lambda i, a: i < 1 + (depth < 4), lambda i, a: (i + 1, nested(depth - 1, a)), [0, value]
        )[1]
        return out

    with hr.Graph():
        code = compiled(nested(18, hr.constant(0.0)))
    assert "yield from" in code.source
    got, _ = result(code, [1.0] * 8, [], 0)
    assert got == 8


def test_code_without_transfers_is_no_generator() -> None:
    with hr.Graph():
        code = compiled(hr.constant(1.0) + 2.0)
    assert not code.suspends


def test_the_error_of_a_step_ends_suspended_code() -> None:
    with hr.Graph():
        code = compiled(received("e") + 1.0)
    run = code.begin(step_with(Exchange()), [])
    next(run)
    with pytest.raises(AbortedError, match="a worker was lost"):
        run.throw(AbortedError("a worker was lost"))


def test_an_error_after_a_suspension_names_the_operation_and_its_iteration() -> None:
    with hr.Graph():
        one = lambda i: hr.cast(received("e"), hr.int32)
        y = hr.while_loop(lambda i, a: i < 9, lambda i, a: (i + 1, b().FloorDiv(a, one(i), name="ratio")), [0, 100])[1]
        code = compiled(y)
    exchange = Exchange()
    run = code.begin(step_with(exchange), [])
    with entered(code.flushes), pytest.raises(InvalidArgumentError) as failed:  # noqa: PT012
        for v in (1.0, 1.0, 0.0):
            next(run).append(np.float32(v))
        next(run)
    notes = "\n".join(failed.value.__notes__)
    assert "ratio" in notes
    assert "iteration 2" in notes
