"""Conditionals, loops and jumps that tensors decide, compared with plain Python."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import headrace as hr
from headrace import autograph
from tests.autograph.programs import check


def _chain(x):
    if x > 0:
        y = x
    elif x < -5:
        y = x * 2
    else:
        y = -x
    return y + 1


def test_branches_of_a_chain_run_by_the_value():
    for x in (3.0, -3.0, -7.0):
        check(_chain, x)


def _count(n):
    total = 0
    for i in range(n):
        if i % 2 == 0:
            continue
        if i > 7:
            break
        total += i
    return total


def test_continue_and_break_end_iterations():
    for n in (0, 1, 5, 20):
        check(_count, n)


def _first(xs, limit):
    for x in xs:
        if x > limit:
            return x * 10.0
    return -1.0


def test_return_in_a_loop_ends_the_function():
    for limit in (0.0, 2.0, 9.0):
        check(_first, np.float32([1, 3, 5]), limit)
        check(_first, np.float32([1, 3, 5]), limit, unknown=True)


def _search(n):
    k = 2
    while k * k <= n:
        if n % k == 0:
            found = 1
            break
        k += 1
    else:
        found = 0
    return found


def test_else_of_a_loop_runs_unless_it_breaks():
    for n in (7, 9, 25, 2):
        check(_search, n)


def _nested(n):
    total = 0
    i = 0
    while i < n:
        j = 0
        while True:
            j += 1
            if j > i:
                break
            if (i + j) % 3 == 0:
                continue
            total += i * j
        i += 1
    return total


def test_jumps_belong_to_the_inner_loop():
    for n in (0, 3, 6):
        check(_nested, n)


def _logic(x, y):
    a = 0 < x < y and not (x == 2 or y == 7)
    b = x if x > y else y
    return a, b


def test_logic_and_comparisons_follow_python():
    for x, y in ((1, 3), (2, 3), (3, 1), (1, 7), (0, 0)):
        check(_logic, x, y)


def _try(x):
    log = 0
    for i in range(3):
        try:
            if x > i:
                continue
            log += 10
        finally:
            log += 1
    with np.errstate(all="ignore"):
        if x > 1:
            return log
    return -log


def test_jumps_out_of_try_and_with_run_their_ends():
    for x in (0, 1, 2, 5):
        check(_try, x)


def test_recursion_is_decided_by_python():
    def power(x, n):
        if n == 0:
            return 1.0
        return x * power(x, n - 1)

    check(lambda x: power(x, 3), 2.0)


def test_conversion_is_idempotent_and_keeps_the_function():
    def f(x, y=3, *, z=4):
        """Doc."""
        return x + y + z

    made = autograph.convert(f)
    assert autograph.convert(made) is made
    assert made(1) == 8
    assert (made.__doc__, made.__name__) == ("Doc.", "f")
    assert autograph.convert(np.sum) is np.sum


def test_closures_share_the_cells():
    count = 0

    def f():
        nonlocal count
        count += 1
        return count

    made = autograph.convert(f)
    assert made() == 1
    assert f() == 2
    assert count == 2


def test_code_is_readable():
    text = autograph.to_code(_chain)
    assert "ag__.if_(x > 0, true_branch_, false_branch_" in text


def test_a_missing_source_is_an_error():
    space: dict[str, object] = {}
    exec("def f(x):\n    return x", space)
    with pytest.raises(autograph.AutographError, match="no source for 'f'"):
        autograph.convert(space["f"])


def test_a_local_function_with_returns_beside_returns_of_the_function_around_it() -> None:
    def f(x: Any) -> Any:
        i = 0
        while i < 4:
            if x > 0.1:
                if x > 1.5:
                    return x * 2.0, i

                def g(t: Any) -> Any:
                    if t > 0.2:
                        return t * 2.0
                    return t

                x = g(x)
            i += 1
            x = x + 0.3
        return x, -1

    for x in (-2.0, -0.25, 0.0, 0.5, 2.0):
        got = hr.jit(f)(hr.constant(x, hr.float64))
        assert [float(t) for t in got] == pytest.approx(f(x))
