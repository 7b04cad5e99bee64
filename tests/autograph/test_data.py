"""Lists, elements, attributes and aliases in converted functions, compared with plain Python."""

# ruff: noqa: PERF401, PERF402 - loops that append are what is tested

from __future__ import annotations

import numpy as np
import pytest

import headrace as hr
from headrace import autograph
from tests.autograph.programs import check, in_graph


def test_a_list_of_the_graph_stacks():
    def squares(n):
        out = []
        for i in range(n):
            out.append(i * i)
        return hr.stack(out)

    for n in (0, 1, 4):
        np.testing.assert_array_equal(in_graph(squares, n), np.arange(n) ** 2)


def test_a_list_that_is_never_appended_to_stacks_to_no_rows():
    def rows(v, n):
        out = []
        for _ in range(n):
            out.append(v)
        return hr.stack(out)

    assert in_graph(rows, np.zeros(3, np.float32), 0).shape == (0, 3)


def test_pop_and_append_keep_the_order_of_a_stack():
    def walk(n):
        stack = [1.0, 2.0]
        total = 0.0
        while len(stack) > 0 and n > 0:
            total = total * 3.0 + stack.pop()
            n -= 1
            if n == 2:
                stack.append(10.0)
        return total

    for n in (0, 1, 3, 5):
        check(walk, n)


def test_pairs_in_a_list_keep_their_parts():
    def pairs(v):
        found = []
        for k, x in enumerate(v):
            if x > 0:
                found.append((x, k))
        total = 0.0
        places = 0
        for x, k in found:
            total += x
            places += k
        return total, places, len(found)

    check(pairs, np.float32([1, -2, 3]))
    check(pairs, np.float32([-1]))


def _push(out, x):
    out.append(x * 2)


def test_a_helper_appends_to_the_list_of_its_caller():
    def f(n):
        out = []
        for i in range(n):
            _push(out, i)
        total = 0
        for x in out:
            total += x
        return total

    check(f, 3)


class _Cell:
    def __init__(self, start):
        self.h = start
        self.seen = []

    def step(self, x):
        self.h = self.h * 0.5 + x
        self.seen.append(self.h)


def test_attributes_are_state_of_a_loop():
    def f(v):
        cell = _Cell(0.0)
        for x in v:
            cell.step(x)
        total = 0.0
        for h in cell.seen:
            total += h
        return cell.h, total

    check(f, np.float32([1, 2, 3]))


def test_dictionaries_are_state_of_a_branch():
    def f(x):
        d = {"a": x, "b": 1.0}
        if x > 0:
            d["a"] = d["a"] * 2
            d["b"] = x
        return d["a"] + d["b"]

    for x in (2.0, -2.0):
        check(f, x)


def test_an_element_changes_all_names_of_a_tensor():
    def f(m, n):
        other = m
        for i in range(n):
            other[i] = m[i] * 2
        if n > 1:
            m[0] += 1.0
        return m, other

    for n in (0, 1, 2):
        m = np.float32([1, 2, 3])
        got = in_graph(f, m, n)
        np.testing.assert_array_equal(got, f(m.copy(), n))


def test_slices_and_mixed_indices_are_assigned():
    def f(m, i, k):
        m[i, k] += 1.0
        m[:, 0] = 5.0
        m[-1] = m[0]
        m[m > 6.0] = 0.0
        return m

    m, i, k = np.arange(6, dtype=np.float32).reshape(2, 3), np.int64(1), np.int32(2)
    np.testing.assert_array_equal(in_graph(f, m, i, k), f(m.copy(), i, k))


def test_comprehensions_over_tensors_make_lists():
    def f(v):
        kept = [x * 2 for x in v if x > 1]
        return sum(x for x in kept), any(x > 5 for x in v), len(kept)

    for unknown in (False, True):
        check(f, np.float32([1, 2, 3]), unknown=unknown)


def test_late_binding_of_closures_is_that_of_python():
    def f(n):
        functions = []
        for i in range(3):
            functions.append(lambda: i)  # noqa: B023
        return [g() for g in functions], n

    assert autograph.convert(f)(1) == f(1)


CAPTURED: list[object] = []


def test_a_list_from_outside_does_not_change_in_silence():
    def f(n):
        for i in range(n):
            CAPTURED.append(i)
        return n

    with pytest.raises(autograph.AutographError, match="a list from outside of the function"):
        in_graph(f, 2)
    assert CAPTURED == []


def test_undone_changes_leave_no_tensor_behind():
    def f(x, box):
        if x > 0:
            box.value = x * 2
            raise KeyError
        return x

    class Box:
        value = 1

    box = Box()
    with hr.Graph():
        autograph.convert(f)(hr.placeholder(hr.float32, ()), box)
    assert box.value == 1


def test_a_tensor_chooses_an_element_of_a_list():
    def f(n):
        h = [10, 20, 30]
        total = 0
        for i in range(n):
            h[i] = total
            h[-1] += h[i]
            total += h[i] + i
        return h, total

    for n in (0, 2, 3):
        check(f, n)


def test_a_list_is_popped_where_a_tensor_decides_before_an_append_is_seen():
    def calculator(tokens):
        stack = []
        for t in tokens:
            if t >= 0:
                stack.append(t)
            else:
                b = stack.pop()
                a = stack.pop()
                if t == -1:
                    stack.append(a + b)
                else:
                    stack.append(a * b)
        return stack.pop()

    check(calculator, np.array([3, 4, -1, 5, -2], np.int32))
