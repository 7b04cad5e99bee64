"""Kinds of tensor lists, and their elements.

A tensor list is a list of Python, or the rows of a tensor, or stays with the kernels.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import headrace as hr
from headrace.ir.graph import Tensor
from headrace.schedule.lists import KERNEL, LIST, ROWS
from tests.compile.running import b, both, kinds, regions, source

f32, i32 = hr.float32, hr.int32


def empty(*dims: int, dtype: Any = f32, most: int = -1) -> Tensor:
    out: Tensor = b().EmptyTensorList(b().const(np.array(dims, np.int32)), b().const(most), element_dtype=dtype)
    return out


def push(x: Tensor, value: Any) -> Tensor:
    out: Tensor = b().TensorListPushBack(x, value)
    return out


def pop(x: Tensor, *dims: int, dtype: Any = f32) -> tuple[Tensor, Tensor]:
    rest, last = b().TensorListPopBack(x, b().const(np.array(dims, np.int32)), element_dtype=dtype)
    return rest, last


def stacked(x: Tensor, *dims: int, dtype: Any = f32) -> Tensor:
    out: Tensor = b().TensorListStack(x, b().const(np.array(dims, np.int32)), element_dtype=dtype, num_elements=-1)
    return out


def length(x: Tensor) -> Tensor:
    out: Tensor = b().TensorListLength(x)
    return out


def element(x: Tensor, i: Any, *dims: int, dtype: Any = f32) -> Tensor:
    out: Tensor = b().TensorListGetItem(x, i, b().const(np.array(dims, np.int32)), element_dtype=dtype)
    return out


def rows(x: Any, *dims: int) -> Tensor:
    out: Tensor = b().TensorListFromTensor(x, b().const(np.array(dims, np.int32)))
    return out


def all_are(kind: str, fetches: list[Tensor], feeds: Any = None) -> Any:
    """Raises unless each list of the step is of `kind`; returns the results.

    The results are those of both engines.
    """
    found = kinds(regions(fetches, list(feeds or {})))
    assert found
    assert set(found.values()) == {kind}, found
    return both(fetches, feeds)


@pytest.fixture(autouse=True)
def _graph() -> Any:
    with hr.Graph():
        yield


# *** straight on ***


def test_pushes_and_pops_in_a_row_are_one_list() -> None:
    x = push(push(empty(), 1.0), 2.0)
    x, last = pop(x)
    out = stacked(push(x, 3.0))
    assert all_are(LIST, [last, out])[1].tolist() == [1, 3]
    assert source([last, out]).count(".append(") == 3


def test_a_list_that_is_looked_at_before_it_changes_is_a_list() -> None:
    x = push(empty(), 1.0)
    n = length(x)
    with hr.control_dependencies([n.op]):
        y = push(x, 2.0)
    assert all_are(LIST, [n, stacked(y)])[0] == 1


def test_a_list_that_is_looked_at_after_it_changed_is_not() -> None:
    x = push(empty(), 1.0)
    y = push(x, 2.0)
    with hr.control_dependencies([y.op]):
        n = length(x)
    assert all_are(KERNEL, [n, stacked(y)])[0] == 1


def test_a_fork_keeps_both_sides() -> None:
    x = push(empty(), 1.0)
    one, two = push(x, 2.0), push(x, 3.0)
    out = all_are(KERNEL, [stacked(one), stacked(two), stacked(x)])
    assert [v.tolist() for v in out] == [[1, 2], [1, 3], [1]]


def test_popped_twice_from_the_same_version() -> None:
    x = push(push(empty(), 1.0), 2.0)
    (rest, one), (_, two) = pop(x), pop(x)
    assert all_are(KERNEL, [one, two, stacked(rest)])[:2] == [2, 2]


@pytest.mark.parametrize("most", [2, 0])
def test_a_list_that_may_hold_so_many_only(most: int) -> None:
    x = empty(most=most)
    out = push(x, 1.0) if most else x
    all_are(KERNEL, [stacked(out)])


def test_what_may_not_fit_stays_with_the_kernel() -> None:
    """A fed value's shape is compared with the list's at run time."""
    x = hr.placeholder(f32, [None], name="x")
    out = stacked(push(empty(3), x), 3)
    assert all_are(KERNEL, [out], {x: [1.0, 2.0, 3.0]})[0].tolist() == [[1, 2, 3]]


def test_what_another_operation_reads_stays_with_the_kernel() -> None:
    x = push(push(empty(), 1.0), 2.0)
    out = stacked(b().TensorListConcatLists(x, rows(hr.constant([3.0])), element_dtype=f32))
    assert all_are(KERNEL, [out])[0].tolist() == [1, 2, 3]


# *** rows ***


def test_rows_that_are_only_read_are_no_list() -> None:
    x = hr.placeholder(f32, [3, 2], name="x")
    y = rows(x, 2)
    n, zero = length(y), b().const(np.zeros(2, np.float32))
    _, out = hr.while_loop(lambda i, s: i < 3, lambda i, s: (i + 1, s + element(y, i, 2)), [0, zero])
    fed = {x: np.arange(6, dtype=np.float32).reshape(3, 2)}
    assert all_are(ROWS, [n, out], fed)[1].tolist() == [6, 9]
    assert "list(" not in source([n, out], [x])


def test_rows_that_change_become_a_list_and_the_tensor_stays() -> None:
    x = hr.placeholder(f32, [3], name="x")
    y = push(rows(x), 9.0)
    z = b().TensorListSetItem(y, 0, 7.0)
    fed = np.array([1, 2, 3], np.float32)
    assert all_are(LIST, [stacked(z)], {x: fed})[0].tolist() == [7, 2, 3, 9]
    assert fed.tolist() == [1, 2, 3]


def test_rows_and_a_list_in_one_loop_variable() -> None:
    """A loop variable that enters as rows and receives pushes is a list.

    It is a list from the start.
    """
    x = hr.placeholder(f32, [2], name="x")
    _, y = hr.while_loop(lambda i, v: i < 3, lambda i, v: (i + 1, push(v, 5.0)), [0, rows(x)])
    assert all_are(LIST, [stacked(y)], {x: [1.0, 2.0]})[0].tolist() == [1, 2, 5, 5, 5]


def test_rows_or_a_list_by_a_condition() -> None:
    x, p = hr.placeholder(f32, [2], name="x"), hr.placeholder(hr.bool, [], name="p")
    y = hr.cond(p, lambda: rows(x), lambda: push(empty(), 4.0))
    out = stacked(y)
    for value in (True, False):
        got = all_are(LIST, [out], {p: value, x: [1.0, 2.0]})
        assert got[0].tolist() == ([1, 2] if value else [4])


def test_rows_as_a_result_of_a_branch_and_pushed_to_behind_it() -> None:
    x, p = hr.placeholder(f32, [2], name="x"), hr.placeholder(hr.bool, [], name="p")
    y = hr.cond(p, lambda: rows(x), lambda: rows(x * 2.0))
    out = stacked(push(y, 9.0))
    for value in (True, False):
        got = all_are(LIST, [out], {p: value, x: [1.0, 2.0]})
        assert got[0].tolist() == ([1, 2, 9] if value else [2, 4, 9])


# *** loops ***


def gathered(n: Any, start: Tensor | None = None) -> Tensor:
    start = empty() if start is None else start
    out: Tensor = hr.while_loop(lambda i, v: i < n, lambda i, v: (i + 1, push(v, hr.cast(i, f32))), [0, start])[1]
    return out


def drained(x: Tensor, n: Any) -> Tensor:
    def body(i: Tensor, v: Tensor, s: Tensor) -> Any:
        v, last = pop(v)
        return i + 1, v, s * 2.0 + last

    out: Tensor = hr.while_loop(lambda i, v, s: i < n, body, [0, x, 0.0])[2]
    return out


@pytest.mark.parametrize("n", [0, 1, 9, 40])
def test_a_list_filled_in_one_loop_and_emptied_in_another(n: int) -> None:
    k = hr.placeholder(i32, [], name="k")
    all_are(LIST, [drained(gathered(k), k)], {k: n})


def test_a_list_captured_and_popped_in_an_inner_loop_stays_with_the_kernel() -> None:
    """Each iteration of the outer loop begins with the whole list."""
    x = gathered(4)
    _, out = hr.while_loop(lambda i, s: i < 3, lambda i, s: (i + 1, s + drained(x, 4)), [0, 0.0])
    assert all_are(KERNEL, [out]) == [3 * (((3 * 2 + 2) * 2 + 1) * 2)]


def test_an_empty_list_from_outside_that_an_inner_loop_fills_stays_with_the_kernel() -> None:
    x = empty()
    _, out = hr.while_loop(lambda i, s: i < 3, lambda i, s: (i + 1, s + drained(gathered(4, x), 4)), [0, 0.0])
    assert set(kinds(regions([out])).values()) == {KERNEL}
    both(out)


def test_a_list_of_its_own_in_each_iteration_is_a_list() -> None:
    _, out = hr.while_loop(lambda i, s: i < 3, lambda i, s: (i + 1, s + drained(gathered(4), 4)), [0, 0.0])
    all_are(LIST, [out])


def test_a_list_captured_and_only_read_in_an_inner_loop_is_a_list() -> None:
    x = gathered(4)

    def inner(s: Tensor) -> Tensor:
        out: Tensor = hr.while_loop(lambda j, u: j < 4, lambda j, u: (j + 1, u + element(x, j)), [0, s])[1]
        return out

    _, out = hr.while_loop(lambda i, s: i < 3, lambda i, s: (i + 1, inner(s)), [0, 0.0])
    assert all_are(LIST, [out]) == [18.0]


def test_the_version_before_is_read_after_the_push() -> None:
    def body(i: Tensor, v: Tensor, s: Tensor) -> Any:
        w = push(v, 1.0)
        with hr.control_dependencies([w.op]):
            return i + 1, w, s + length(v)

    _, x, n = hr.while_loop(lambda i, v, s: i < 5, body, [0, empty(), 0])
    assert all_are(KERNEL, [n, length(x)]) == [10, 5]


def test_lists_that_change_places() -> None:
    def body(i: Tensor, u: Tensor, v: Tensor) -> Any:
        return i + 1, push(v, hr.cast(i, f32)), u

    _, u, v = hr.while_loop(lambda i, u, v: i < 5, body, [0, empty(), push(empty(), -1.0)])
    got = both([stacked(u), stacked(v)])
    assert [t.tolist() for t in got] == [[0, 2, 4], [-1, 1, 3]] or [t.tolist() for t in got] == [[-1, 0, 2, 4], [1, 3]]


def test_one_list_in_two_loop_variables() -> None:
    x = push(empty(), 1.0)
    _, u, v = hr.while_loop(lambda i, u, v: i < 3, lambda i, u, v: (i + 1, push(u, 2.0), push(v, 3.0)), [0, x, x])
    got = all_are(KERNEL, [stacked(u), stacked(v)])
    assert [t.tolist() for t in got] == [[1, 2, 2, 2], [1, 3, 3, 3]]


# *** conditionals ***


def test_pushed_to_in_one_branch() -> None:
    p = hr.placeholder(hr.bool, [], name="p")
    x = push(empty(), 1.0)
    out = stacked(hr.cond(p, lambda: push(x, 2.0), lambda: x))
    for value in (True, False):
        assert all_are(LIST, [out], {p: value})[0].tolist() == ([1, 2] if value else [1])


def test_pushed_to_in_a_branch_and_read_behind_it() -> None:
    p = hr.placeholder(hr.bool, [], name="p")
    x = push(empty(), 1.0)
    y = hr.cond(p, lambda: push(x, 2.0), lambda: x)
    with hr.control_dependencies([y.op]):
        n = length(x)
    for value in (True, False):
        assert all_are(KERNEL, [n, length(y)], {p: value}) == [1, 2 if value else 1]


def test_read_in_both_branches_and_pushed_to_behind_them() -> None:
    p = hr.placeholder(hr.bool, [], name="p")
    x = push(push(empty(), 1.0), 2.0)
    first = hr.cond(p, lambda: element(x, 0), lambda: element(x, 1))
    with hr.control_dependencies([first]):
        y = push(x, 3.0)
    for value in (True, False):
        assert all_are(LIST, [first, stacked(y)], {p: value})[0] == (1 if value else 2)


# *** lists of lists ***


def test_lists_of_lists() -> None:
    def outer(i: Tensor, v: Tensor) -> Any:
        return i + 1, push(v, gathered(i))

    _, made = hr.while_loop(lambda i, v: i < 4, outer, [0, empty(dtype=hr.variant)])

    def back(i: Tensor, v: Tensor, s: Tensor) -> Any:
        v, inner = pop(v, dtype=hr.variant)
        return i + 1, v, s * 10.0 + drained(inner, 3 - i)

    _, _, out = hr.while_loop(lambda i, v, s: i < 4, back, [0, made, 0.0])
    found = kinds(regions([out]))
    assert (found["while"], found["while_1/TensorListPopBack"]) == (LIST, LIST)
    assert found["while/while"] == KERNEL  # which shape an element has is not known of a list out of a list
    assert both(out) == 10200.0


def test_the_accumulators_of_nested_loops_are_lists_of_lists() -> None:
    def inner(x: Tensor) -> Tensor:
        out: Tensor = hr.while_loop(lambda j, y: j < 3, lambda j, y: (j + 1, hr.sin(y) * x), [0, x])[1]
        return out

    x, n = hr.placeholder(f32, [], name="x"), hr.placeholder(i32, [], name="n")
    _, y = hr.while_loop(lambda i, y: i < n, lambda i, y: (i + 1, inner(y) + x), [0, x])
    (grad,) = hr.gradients([y], [x])
    for k in (0, 1, 4):
        all_are(LIST, [y, grad], {n: k, x: 0.3})


def test_a_list_that_is_put_into_another_and_changed_still() -> None:
    x = push(empty(), 1.0)
    outer = push(empty(dtype=hr.variant), x)
    y = push(x, 2.0)
    _, inner = pop(outer, dtype=hr.variant)
    n = length(inner)
    out = [n, length(y)]
    found = kinds(regions(out))
    assert (found["EmptyTensorList"], found["EmptyTensorList_1"]) == (KERNEL, LIST)
    assert both(out) == [1, 2]


def test_what_kernels_know_takes_the_lists_in_it_along() -> None:
    outer = push(empty(dtype=hr.variant), push(empty(), 1.0))
    again = push(outer, push(empty(), 2.0))
    other = push(outer, push(empty(), 3.0))
    _, one = pop(again, dtype=hr.variant)
    _, two = pop(other, dtype=hr.variant)
    got = all_are(KERNEL, [stacked(one), stacked(two)])
    assert [t.tolist() for t in got] == [[2], [3]]


# *** calls, and elements that are not there ***


def test_a_list_through_a_function_is_a_list() -> None:
    fn = hr.Function(lambda x: push(x, 2.0), name="twice")
    assert all_are(LIST, [stacked(fn(push(empty(), 1.0)))])[0].tolist() == [1, 2]


@pytest.mark.parametrize("n", [0, 3])
def test_places_that_are_not_filled_are_zero(n: int) -> None:
    x = b().TensorListReserve(b().const(np.array([2], np.int32)), b().const(n), element_dtype=f32)
    if n:
        x = b().TensorListSetItem(x, 1, [5.0, 6.0])
    got = all_are(LIST, [stacked(x, 2), *([element(x, 0, 2)] if n else [])])
    assert got[0].tolist() == ([[0, 0], [5, 6], [0, 0]] if n else [])


def test_a_popped_element_that_is_not_there_is_zero() -> None:
    x = b().TensorListReserve(b().const(np.array([2], np.int32)), b().const(3), element_dtype=f32)
    rest, last = pop(x, 2)
    assert all_are(LIST, [last, length(rest)])[0].tolist() == [0, 0]


def test_a_tensor_array_is_a_list() -> None:
    n = hr.placeholder(i32, [], name="n")

    def body(i: Tensor, ta: Any) -> Any:
        return i + 1, ta.write(i, hr.cast(i, f32) * 2.0)

    _, ta = hr.while_loop(lambda i, ta: i < n, body, [0, hr.TensorArray(f32, size=n, element_shape=[])])
    assert set(kinds(regions([ta.stack()], [n])).values()) == {LIST}
    for k in (0, 5, 40):
        both(ta.stack(), {n: k})
