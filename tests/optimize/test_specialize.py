"""Consequences of the shapes that are fed, in loops, conditionals and lists.

The tests are also about facts that do not follow from these shapes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import headrace as hr
from headrace.api import scopes
from headrace.ir.edit.editor import own_bodies
from headrace.ir.function import inside_out
from headrace.ir.graph import Graph
from headrace.ir.infer import constant_value
from headrace.ir.notes import ResidualPop
from headrace.ir.verify import verify
from headrace.optimize.list_flow import ListFlow
from headrace.optimize.specialize import specialize
from headrace.prune import prune

Shape = tuple[int | None, ...]


def known(fetches: Sequence[Any], feeds: Sequence[Any], *fed: Shape) -> tuple[Graph, list[Shape | None]]:
    """The graph of a step that is fed such shapes, and those of its fetches."""
    pruned = prune(list(feeds), list(fetches), ())
    own_bodies(pruned.graph)
    specialize(pruned.graph, {a.outputs[0]: s for a, s in zip(pruned.args, fed, strict=True)})
    verify(pruned.graph)
    return pruned.graph, [r.inputs[0].shape for r in pruned.retvals]


@pytest.fixture
def open_() -> Any:
    """x: [?, 2], in a graph of its own."""
    with hr.Graph():
        yield hr.placeholder(hr.float32, (None, 2), name="x")


def test_a_loop_that_keeps_a_shape(open_: Any) -> None:
    y = hr.while_loop(lambda i, a: i < 3, lambda i, a: (i + 1, a * 2.0), (0, open_))[1]
    graph, (shape,) = known([y], [open_], (5, 2))
    assert shape == (5, 2)
    body = next(op for op in graph.operations if op.opdef.structured).attrs["body"]
    assert body.params[1].shape == body.results[1].shape == (5, 2)


def test_a_loop_that_grows(open_: Any) -> None:
    rows = hr.TensorSpec((None, 2), hr.float32)
    y = hr.while_loop(
        lambda i, a: i < 3,
        lambda i, a: (i + 1, hr.concat([a, a], 0)),
        (0, open_),
        shape_invariants=(hr.TensorSpec((), hr.int32), rows),
    )[1]
    assert known([y], [open_], (5, 2))[1] == [(None, 2)]
    assert known([y], [open_], (0, 2))[1] == [(0, 2)]


def test_a_loop_in_a_loop_of_which_one_variable_is_turned(open_: Any) -> None:
    """The first iteration has [5, 2], the second [2, 5]: only the rank is certain."""
    either = hr.TensorSpec((None, None), hr.float32)

    def outer(i: Any, a: Any, b: Any) -> Any:
        c = hr.while_loop(lambda j, c: j < 2, lambda j, c: (j + 1, c + 1.0), (0, a))[1]
        return i + 1, hr.transpose(c), b * 2.0

    number = hr.TensorSpec((), hr.int32)
    y, z = hr.while_loop(lambda i, a, b: i < 3, outer, (0, open_, open_), shape_invariants=(number, either, either))[1:]
    assert known([y, z], [open_], (5, 2))[1] == [(None, None), (5, 2)]
    assert known([y, z], [open_], (2, 2))[1] == [(2, 2), (2, 2)]


def test_conditionals(open_: Any) -> None:
    p = hr.placeholder(hr.bool, ())
    same = hr.cond(p, lambda: open_ + 1.0, lambda: open_ * 2.0)
    other = hr.cond(p, lambda: open_ + 1.0, lambda: open_[:1])
    assert known([same, other], [open_, p], (5, 2), ())[1] == [(5, 2), (None, 2)]


def accumulated(x: Any, item: Any, is_gradient: bool = False, between: Any = lambda made: made) -> Any:
    """A loop that pushes `item(i, x)` three times, and one that adds up.

    The second loop pops the elements as a gradient does, or as a user's program does.
    """
    b = scopes.builder
    empty = b().EmptyTensorList(hr.constant([-1, 2]), hr.constant(-1), element_dtype=hr.float32)
    _, filled = hr.while_loop(
        lambda i, held: i < 3, lambda i, held: (i + 1, b().TensorListPushBack(held, item(i, x))), (0, empty)
    )
    filled = between(filled)

    def take(i: Any, held: Any, total: Any) -> Any:
        args, notes = (held, hr.constant([-1, 2])), [ResidualPop()] if is_gradient else []
        rest, got = b().make("TensorListPopBack", args, {"element_dtype": hr.float32}, notes=notes)
        return i + 1, rest, total + hr.reduce_sum(hr.identity(got, name="got"))

    return hr.while_loop(lambda i, *_: i < 3, take, (0, filled, 0.0))[2]


def got(graph: Graph) -> Any:
    """The tensor that the second loop of `accumulated` reads."""
    (op,) = [op for g in inside_out(graph) for op in g.operations if op.name.endswith("got")]
    return op.inputs[0]


def test_what_is_popped_is_what_was_pushed(open_: Any) -> None:
    total = accumulated(open_, lambda i, x: x * hr.cast(i, hr.float32))
    graph, _ = known([total], [open_], (5, 2))
    assert got(graph).shape == (5, 2)


def test_what_was_pushed_in_two_shapes_is_not_known(open_: Any) -> None:
    total = accumulated(open_, lambda i, x: hr.cond(i < 1, lambda: x, lambda: x[:1]))
    graph, _ = known([total], [open_], (5, 2))
    assert got(graph).shape == (None, 2)
    assert hr.Session(graph=total.graph).run(total, {open_: np.ones((5, 2))}) == 14


def test_a_constant_comes_out_as_it_went_in(open_: Any) -> None:
    for is_gradient in (True, False):
        total = accumulated(open_, lambda i, x: hr.fill([1, 2], hr.cast(hr.size(x), hr.float32)), is_gradient)
        graph, _ = known([total], [open_], (5, 2))
        if is_gradient:
            np.testing.assert_array_equal(constant_value(got(graph)), [[10, 10]])
        else:
            assert constant_value(got(graph)) is None
        assert hr.Session(graph=total.graph).run(total, {open_: np.ones((5, 2))}) == 60


@pytest.mark.parametrize(
    ("between", "value"),
    [
        (lambda made: scopes.builder().ZerosLike(made), 0.0),
        (lambda made: scopes.builder().AddN([made, made]), 120.0),
        (lambda made: scopes.builder().AddN([scopes.builder().ZerosLike(made), made]), 60.0),
    ],
)
def test_zeros_like_a_list_and_sums_of_lists_have_other_elements(open_: Any, between: Any, value: float) -> None:
    total = accumulated(open_, lambda i, x: hr.fill([1, 2], hr.cast(hr.size(x), hr.float32)), True, between)
    graph, _ = known([total], [open_], (5, 2))
    assert constant_value(got(graph)) is None
    assert hr.Session(graph=total.graph).run(total, {open_: np.ones((5, 2))}) == value


def test_a_pop_that_fails_fails(open_: Any) -> None:
    b = scopes.builder
    pushed = b().TensorListPushBack(
        b().EmptyTensorList(hr.constant([2]), hr.constant(-1), element_dtype=hr.int32), hr.shape(open_)
    )

    def take(i: Any, held: Any, last: Any) -> Any:
        rest, got = b().TensorListPopBack(held, hr.constant([2]), element_dtype=hr.int32)
        return i + 1, rest, got

    y = hr.while_loop(lambda i, *_: i < 2, take, (0, pushed, hr.constant([0, 0])))[2]
    for engine in ("interpret", "auto"):
        with pytest.raises(hr.errors.InvalidArgumentError, match="Trying to pop from an empty list"):
            hr.Session(graph=y.graph, engine=engine).run(y, {open_: np.ones((5, 2))})


def test_two_constants_are_none(open_: Any) -> None:
    b = scopes.builder()
    empty = b.EmptyTensorList(hr.constant([-1]), hr.constant(-1), element_dtype=hr.int32)
    both = b.TensorListPushBack(b.TensorListPushBack(empty, hr.shape(open_)), hr.constant([5, 3]))
    rest, last = b.TensorListPopBack(both, hr.constant([-1]), element_dtype=hr.int32)
    _, first = b.TensorListPopBack(rest, hr.constant([-1]), element_dtype=hr.int32)
    graph, shapes = known([first, last], [open_], (5, 2))
    assert shapes == [(2,), (2,)]
    assert [constant_value(op.inputs[0]) for op in graph.operations if op.type == "_Retval"] == [None, None]
    values = hr.Session(graph=open_.graph).run([first, last], {open_: np.ones((5, 2))})
    assert [v.tolist() for v in values] == [[5, 2], [5, 3]]


def test_rows_of_a_tensor_are_elements(open_: Any) -> None:
    b = scopes.builder()
    rows = b.TensorListFromTensor(hr.stack([open_, open_]), hr.constant([-1, 2]))
    row = b.TensorListGetItem(rows, 0, hr.constant([-1, 2]), element_dtype=hr.float32)
    shorter = b.TensorListSetItem(rows, 0, open_[:1])
    either = b.TensorListGetItem(shorter, 1, hr.constant([-1, 2]), element_dtype=hr.float32)
    assert known([row], [open_], (5, 2))[1] == [(5, 2)]
    assert known([row, either], [open_], (5, 2))[1] == [(None, 2), (None, 2)]


def test_a_list_in_a_list_is_lost_sight_of(open_: Any) -> None:
    b = scopes.builder()
    inner = b.TensorListPushBack(
        b.EmptyTensorList(hr.constant([-1, 2]), hr.constant(-1), element_dtype=hr.float32), open_
    )
    outer = b.TensorListPushBack(b.EmptyTensorList(hr.constant(-1), hr.constant(-1), element_dtype=hr.variant), inner)
    _, again = b.TensorListPopBack(outer, hr.constant(-1), element_dtype=hr.variant)
    _, x = b.TensorListPopBack(again, hr.constant([-1, 2]), element_dtype=hr.float32)
    assert known([x], [open_], (5, 2))[1] == [(None, 2)]
    flow = ListFlow(open_.graph)
    uses = {op.name: flow.of(op.outputs[0]) for op in flow.new}
    assert sorted(u is None for u in uses.values()) == [False, True]


def test_what_cannot_go_together_says_so_when_it_runs(open_: Any) -> None:
    other = hr.placeholder(hr.float32, (None, 2))
    total = open_ + other
    y = hr.while_loop(lambda i, a: i < 2, lambda i, a: (i + 1, a + total), (0, total))[1]
    assert known([y], [open_, other], (5, 2), (4, 2))[1] == [(None, 2)]
    for engine in ("interpret", "auto"):
        with pytest.raises(hr.errors.InvalidArgumentError, match="Incompatible shapes"):
            hr.Session(graph=y.graph, engine=engine).run(y, {open_: np.ones((5, 2)), other: np.ones((4, 2))})


def filled(size: Any, x: Any, **options: Any) -> Any:
    """A tensor array of `size` elements, of which a loop writes three."""
    made = hr.TensorArray(hr.float32, size, element_shape=(2,), **options)
    return hr.while_loop(lambda i, _: i < 3, lambda i, held: (i + 1, held.write(i, x[i])), (0, made))[1]


def test_an_array_with_as_many_elements_as_a_tensor_has_rows(open_: Any) -> None:
    rows = filled(hr.shape(open_)[0], open_)
    assert known([rows.stack()], [open_], (5, 2))[1] == [(5, 2)]
    total = hr.while_loop(lambda i, _: i < 2, lambda i, y: (i + 1, y + hr.reduce_sum(rows.stack(), 0)), (0, open_[0]))
    value = hr.Session(graph=open_.graph).run(total[1], {open_: np.ones((5, 2))})
    assert value.tolist() == [7.0, 7.0]


def test_the_length_of_an_array_that_may_grow_is_not_known(open_: Any) -> None:
    rows = filled(hr.shape(open_)[0], open_, dynamic_size=True).stack()
    assert known([rows], [open_], (5, 2))[1] == [(None, 2)]
    assert hr.Session(graph=open_.graph).run(rows, {open_: np.ones((3, 2))}).shape == (3, 2)


def test_the_length_of_one_of_two_arrays_is_known_if_they_are_equally_long(open_: Any) -> None:
    n, p = hr.shape(open_)[0], hr.placeholder(hr.bool, ())

    def either(first: Any, second: Any) -> Any:
        b = scopes.builder()
        made = [b.TensorListReserve(hr.constant([2]), size, element_dtype=hr.float32) for size in (first, second)]
        chosen = hr.cond(p, lambda: made[0], lambda: scopes.builder().TensorListSetItem(made[1], 0, open_[0]))
        return b.TensorListStack(chosen, hr.constant([2]), element_dtype=hr.float32)

    same, other = either(n, n), either(n, n + 1)
    assert known([same, other], [open_, p], (5, 2), ())[1] == [(5, 2), (None, 2)]
    for chosen, count in ((True, 5), (False, 6)):
        assert hr.Session(graph=open_.graph).run(other, {open_: np.ones((5, 2)), p: chosen}).shape == (count, 2)


def test_the_length_of_a_list_that_a_loop_replaces_is_not_known(open_: Any) -> None:
    b, n = scopes.builder, hr.shape(open_)[0]
    first = b().TensorListReserve(hr.constant([2]), n, element_dtype=hr.float32)
    longer = hr.while_loop(
        lambda i, _: i < hr.cast(open_[0, 0], hr.int32),
        lambda i, _: (i + 1, b().TensorListReserve(hr.constant([2]), n + 1, element_dtype=hr.float32)),
        (0, first),
    )[1]
    rows = b().TensorListStack(longer, hr.constant([2]), element_dtype=hr.float32)
    assert known([rows], [open_], (5, 2))[1] == [(None, 2)]
    for trips, count in ((0.0, 5), (1.0, 6)):
        assert hr.Session(graph=open_.graph).run(rows, {open_: np.full((5, 2), trips)}).shape == (count, 2)
