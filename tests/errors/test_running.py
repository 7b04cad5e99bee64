"""Error texts while a step is prepared or runs.

They are about functions that do not fit, and about failures that all engines report alike.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import headrace as hr
from headrace import flags
from headrace.errors import InvalidArgumentError, NotFoundError, ResourceExhaustedError, UnimplementedError
from headrace.ir.attr_values import Func
from headrace.ir.builder import Builder
from headrace.ir.graph import FuncGraph
from headrace.optimize.pipeline import options_from
from tests.errors.table import check, hidden, open_

ops = hr.raw_ops


def define(g: hr.Graph, name: str, params: int, results: int) -> Func:
    """A function of the library with so many parameters and results, all int32 scalars."""
    f = g.functions[name] = FuncGraph(name, g, captures_from_outer=False)
    for k in range(params):
        f.add_param(hr.int32, (), f"p{k}")
    b = Builder(f)
    f.results = [b.Identity(f.params[0]) if params else b.const(1) for _ in range(results)]
    return Func(name)


def run(make: Any, engine: str) -> Any:
    with hr.Graph() as g:
        made = make(g)
    # without the checks of graphs between the stages, which users switch on: they find the same first
    with flags.override(VERIFY=0), hr.Session(graph=g, engine=engine) as session:
        return session.run(made)


def loop(g: hr.Graph, cond: tuple[int, int], body: tuple[int, int]) -> Any:
    return ops.StatelessWhile(
        input=[hr.constant(1)], cond=define(g, "c", *cond), body=define(g, "b", *body), T=(hr.int32,)
    )


ROWS = [
    (
        lambda g: ops.PartitionedCall(args=[hr.constant(1)], Tout=(hr.int32,), f=define(g, "f", 2, 1)),
        InvalidArgumentError,
        r"\(PartitionedCall\) gives 1 values to 'f' and expects 1 back, but it takes 2 and returns 1",
    ),
    (
        lambda g: loop(g, (1, 2), (1, 1)),
        InvalidArgumentError,
        "Expected a single scalar return value from WhileOp cond, got 2 tensors: 'c', the condition of '.*While",
    ),
    (
        lambda g: loop(g, (1, 1), (1, 2)),
        InvalidArgumentError,
        r"\(StatelessWhile\) gives 1 values to 'b' and expects 1 back, but it takes 1 and returns 2",
    ),
]


@pytest.mark.parametrize(("make", "error", "says"), ROWS)
def test_functions_that_do_not_fit(make: Any, error: Any, says: str) -> None:
    check(lambda: run(make, "interpret"), error, says)


def test_a_gradient_of_itself() -> None:
    def make(g: hr.Graph) -> Any:
        f = g.functions["f"] = FuncGraph("f", g, captures_from_outer=False)
        x = f.add_param(hr.float32, (), "x")
        dx = Builder(f).SymbolicGradient([x, x], Tout=(hr.float32,), f=Func("f"))
        f.results = [Builder(f).Mul(x, Builder(f).StopGradient(dx))]
        x = hr.constant(1.0)
        return ops.SymbolicGradient(input=[x, x], Tout=(hr.float32,), f=Func("f"))

    check(lambda: run(make, "interpret"), UnimplementedError, "needs the gradient of 'f', which is recursive")


# *** the same on every engine ***


def in_a_loop(step: Any, *first: Any) -> Any:
    """The results of `step(i, ...)`, applied four times to `first`."""
    return hr.while_loop(lambda i, *_: i < 4, lambda i, *rest: (i + 1, *step(i, *rest)), (0, *first))[1:]


def written_past_the_end() -> Any:
    array = hr.TensorArray(hr.float32, 3, dynamic_size=False, element_shape=[])
    array, _ = in_a_loop(lambda i, array, y: [array.write(i, y), hr.sin(y)], array, hidden(1.0))
    return array.stack()


def set_past_the_end() -> Any:
    rows = ops.TensorListReserve(element_shape=[2], num_elements=3, element_dtype=hr.float32)
    rows, _ = in_a_loop(
        lambda i, rows, y: [ops.TensorListSetItem(input_handle=rows, index=i, item=y), hr.sin(y)],
        rows,
        hr.placeholder_with_default(hr.ones([2]), [2]),
    )
    return ops.TensorListStack(input_handle=rows, element_shape=[2], element_dtype=hr.float32)


def reserved(n: Any) -> Any:
    rows = ops.TensorListReserve(element_shape=[2], num_elements=n, element_dtype=hr.float32)
    rows, _ = in_a_loop(
        lambda i, rows, y: [ops.TensorListSetItem(input_handle=rows, index=0, item=y), hr.sin(y)],
        rows,
        hr.placeholder_with_default(hr.ones([2]), [2]),
    )
    return ops.TensorListStack(input_handle=rows, element_shape=[2], element_dtype=hr.float32)


def stacked_as_five() -> Any:
    rows = ops.EmptyTensorList(element_shape=[2], max_num_elements=-1, element_dtype=hr.float32)
    (rows,) = in_a_loop(lambda i, rows: [ops.TensorListPushBack(input_handle=rows, tensor=hr.ones([2]))], rows)
    return ops.TensorListStack(input_handle=rows, element_shape=[2], num_elements=5, element_dtype=hr.float32)


def case_of_a_vector() -> Any:
    return hr.switch_case(hidden([0]), [lambda: hr.constant(1), lambda: hr.constant(2)])


def kept(nested: bool) -> Any:
    """The gradient of a loop that keeps more than the limit.

    If `nested`, the loop is in another one, which keeps the values that the inner one keeps.
    """
    x = open_(hr.float32, 1000)
    inner = lambda y: in_a_loop(lambda i, y: [hr.sin(y) * x], y)
    (y,) = in_a_loop(lambda i, y: inner(y), x) if nested else inner(x)
    return hr.gradients(y, x)[0], {x: np.zeros(1000)}


RUNS = [
    (
        written_past_the_end,
        "Trying to modify element 3 in a list with 3 elements",
    ),
    (set_past_the_end, "Trying to modify element 3 in a list with 3 elements"),
    (lambda: reserved(hidden(-2)), "The num_elements to reserve must be a non negative number, but got -2"),
    (stacked_as_five, "Operation expected a list with 5 elements but got a list with 4 elements"),
    (case_of_a_vector, r"The second input must be a scalar, but it has shape \[1\]: a SwitchN needs one output_index"),
]


@pytest.mark.parametrize("engine", flags.ENGINES)
@pytest.mark.parametrize(("make", "says"), RUNS)
def test_a_step_that_fails(make: Any, says: str, engine: str) -> None:
    check(lambda: run(lambda g: make(), engine), InvalidArgumentError, says)


@pytest.mark.parametrize("engine", flags.ENGINES)
@pytest.mark.parametrize("nested", [False, True])
def test_a_gradient_that_keeps_too_much(nested: bool, engine: str) -> None:
    with hr.Graph() as g:
        dx, feeds = kept(nested)
    says = r"the gradient of a loop keeps more than 9,000 bytes of .*save=hr.recompute\('sqrt'\).*HEADRACE_ACCUMULATOR_"
    with flags.override(ACCUMULATOR_LIMIT=9_000), hr.Session(graph=g, engine=engine) as session:
        check(lambda: session.run(dx, feeds), ResourceExhaustedError, says)


def test_passes_that_there_are_not() -> None:
    for text, says in (
        ("-fols", "there is no pass 'fols'; the passes are .*fold"),
        ("fast", "'fast' is neither 'on', 'off' nor '-pass'"),
    ):
        check(lambda: options_from(text), ValueError, f"OPTIMIZE='{text}' is not valid: {says}")  # noqa: B023


FUNCTION_LOST = (
    "Function 'nowhere' is not in the library of the graph; "
    r"'PartitionedCall' \(PartitionedCall, made at .*test_running.py:\d+.*\) calls it"
)


def test_a_function_that_there_is_not() -> None:
    def make(g: hr.Graph) -> Any:
        return ops.PartitionedCall(args=[hr.constant(1)], Tout=(hr.int32,), f=Func("nowhere"))

    check(lambda: run(make, "interpret"), NotFoundError, FUNCTION_LOST)
