"""Loops with `assert_independent`: which variables are allowed, and what the error names."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import headrace as hr
from headrace.errors import GraphError


def loop(body: Callable[..., Any], *first: Any, cond: Callable[..., Any] | None = None, **options: Any) -> Any:
    """A loop with a counter that must be independent."""
    test = cond or (lambda i, *rest: i < 5)
    return hr.while_loop(test, body, (0, *first), name="loop", assert_independent=True, **options)


def written(i: Any, a: Any) -> Any:
    return i + 1, a.write(i, hr.sin(hr.cast(i, hr.float32)))


def in_a_branch(i: Any, a: Any) -> Any:
    return i + 1, hr.cond(i < 3, lambda: a.write(i, 1.0), lambda: a.write(i, 2.0).write(0, 3.0))


def pushed(i: Any, rows: Any) -> Any:
    return i + 1, hr.raw_ops.TensorListPushBack(input_handle=rows, tensor=hr.cast(i, hr.float32))


@pytest.mark.parametrize("body", [written, in_a_branch])
def test_writes_to_an_array_are_independent(body: Any) -> None:
    with hr.Graph() as g:
        a = loop(body, hr.TensorArray(hr.float32, 5))[1].stack()
    assert hr.Session(graph=g).run(a).shape == (5,)


def test_pushes_constants_counters_and_unread_values_are_independent() -> None:
    with hr.Graph():
        step = hr.placeholder(hr.int32, ())
        rows = hr.raw_ops.EmptyTensorList(
            element_shape=hr.constant([], hr.int32), max_num_elements=-1, element_dtype=hr.float32
        )
        loop(pushed, rows, maximum_iterations=3)
        loop(lambda i, k, down: (i + step, k + 2 * step, down - 0.5), 0, 1.0)
        loop(lambda i, x, last: (i + 1, x, x * hr.cast(i, hr.float32)), 1.0, 0.0)


def test_a_loop_with_no_other_variable_is_independent() -> None:
    with hr.Graph():
        loop(lambda i: (i + 1,))


@pytest.mark.parametrize(
    ("body", "first", "text"),
    [
        (
            lambda i, s: (i + 1, s + i),
            (0,),
            r"the body reads loop variable 1 \('s'\), and the previous iteration computed it as 'loop/add_1:0' in "
            r"'loop/add_1' \(AddV2, made at .*test_independence\.py:\d+ in <lambda>\)\. It is read by 'loop/add_1'",
        ),
        (lambda i, x: (i + 1, hr.sin(x) * 2.0), (1.0,), r"It is read by 'loop/Sin' .*, then 'loop/mul' \(Mul"),
        (lambda i, x, y: (i + 1, y, x), (1.0, 2.0), r"reads loop variable 1 \('x'\)"),
        (
            lambda i, x, y: (i + 1, hr.cast(i, hr.float32), x * 2.0),
            (1.0, 2.0),
            r"'x'\), and the previous .*'loop/Cast:0'",
        ),
        (lambda i, x: (i + i, x), (1.0,), r"reads loop variable 0 \('i'\)"),
    ],
)
def test_an_error_names_the_variable_and_the_path(body: Any, first: Any, text: str) -> None:
    with hr.Graph(), pytest.raises(GraphError, match=r"the iterations of 'loop' are not independent: .*" + text):
        loop(body, *first)


def test_reading_an_array_of_the_loop_is_a_dependency() -> None:
    def body(i: Any, a: Any) -> Any:
        return i + 1, a.write(i, a.read(i - 1) + 1.0)

    with hr.Graph(), pytest.raises(GraphError, match=r"reads loop variable 1 \('a'\)"):
        loop(body, hr.TensorArray(hr.float32, 5, clear_after_read=False))


def test_a_condition_that_reads_a_computed_variable_is_a_dependency() -> None:
    with (
        hr.Graph(),
        pytest.raises(GraphError, match=r"the condition reads loop variable 1 \('x'\).* read by 'loop/Less'"),
    ):
        loop(lambda i, x: (i + 1, hr.sin(hr.cast(i, hr.float32))), 0.0, cond=lambda i, x: x < 0.5)


def test_a_change_of_state_is_a_dependency() -> None:
    with hr.Graph():
        v = hr.Variable(0.0)

        def body(i: Any) -> Any:
            with hr.control_dependencies([v.assign_add(1.0)]):
                return (i + 1,)

        with pytest.raises(GraphError, match=r"'loop/AssignAddVariableOp' .* changes state"):
            loop(body)
