"""Short functions with control flow, as users write them, with the arguments of their calls.

`@given(*calls)` adds a function to `FUNCTIONS`. A function whose first parameter is `xp` receives a space of array
functions there.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import inspect
import math
from collections import namedtuple
from typing import Any

import numpy as np

from tests.autograph.suite.cases import Case

FUNCTIONS: dict[str, Case] = {}
V = np.array([0.5, -1.5, 2.25, 0.75])
W = np.array([1.25, 0.5, -0.75, -2.0])
M = np.array([[1.0, -0.5, 2.0], [0.25, 3.0, -1.0]])
I = np.array([3, 1, 2, 0, 2], np.int32)


def given(*calls: tuple[Any, ...], smooth: bool = True) -> Any:
    """Adds the function to the suite with the arguments of its calls."""

    def add(f: Any) -> Any:
        uses_space = next(iter(inspect.signature(f).parameters), "") == "xp"
        FUNCTIONS[f.__name__] = Case(f.__name__, f, calls, uses_space, smooth)
        return f

    return add


# *** Conditionals ***


@given((1.5,), (-2.0,))
def absolute(x):
    if x < 0:
        x = -x
    return x


@given((1.5,), (-2.0,), (0.25,))
def nested_returns(x):
    if x > 0:
        if x > 1:
            return x * 3.0
        return x * x
    return -x


@given((1.5, 2), (-2.0, 5), (0.25, 0))
def elif_chain(x, n):
    if n == 0:
        y = x
    elif n < 3:
        y = x * 2.0
    elif x < 0:
        y = x**2
    else:
        y = 1.0 / x
    return y


@given((0.5, 1.5), (1.5, 0.5))
def swap_in_a_branch(a, b):
    if a > b:
        a, b = b, a
    return a * 2.0 + b


@given((0.5, True), (0.5, False))
def a_flag_decides(x, flag):
    if flag:
        return x
    else:
        return x * 10.0


@given((0.5, True), (2.5, False))
def not_of_a_flag(x, flag):
    if not flag and x > 1.0:
        x += 1.0
    return x


@given((0.5, 2.0, 3.0), (5.0, 1.0, 2.0), (2.5, 1.0, 3.0))
def clamp(x, low, high):
    return low if x < low else high if x > high else x


@given((-0.5,), (0.5,), (1.5,))
def piecewise_by_chained_comparison(x):
    if 0.0 <= x < 1.0:
        return x * x
    return 2.0 * x - 1.0 if x >= 1.0 else 0.0 * x


@given((2,), (-3,), (0,))
def sign_as_number(n):
    return 1 if n > 0 else -1 if n < 0 else 0


@given((0.5, 1.5), (-0.5, 1.5), (-0.5, -1.5))
def and_or_values_in_conditions(a, b):
    if a > 0 and b > 0 or a < 0 and b < 0:
        return a * b
    return a + b


@given((0.05, 2.0), (4.0, 2.0))
def and_guards_a_division(a, b):
    ratio = 0.0
    if a > 0.1 and b / a > 0.25:
        ratio = b / a
    return ratio


@given((0.5, 2), (1.5, 0))
def a_name_of_one_branch_used_inside_it(x, n):
    total = x
    if n > 1:
        extra = x * 3.0
        total += extra
    return total


@given((0.5,), (-0.5,))
def both_branches_make_a_tuple(x):
    pair = (x, 1) if x > 0 else (-x, 2)
    y, kind = pair
    return y * 2.0, kind


@given((0.5,), (-0.5,))
def both_branches_make_a_dict(x):
    if x > 0:
        result = {"value": x, "kind": 1}
    else:
        result = {"value": x * x, "kind": -1}
    result["twice"] = result["value"] * 2.0
    return result


@given((0.5, None), (1.5, None))
def none_is_decided_by_python(x, scale):
    if scale is None:
        scale = 2.0
    if x > 1.0:
        return x * scale
    return x


@given((0.5, "square"), (1.5, "square"))
def text_is_decided_by_python(x, kind):
    if kind == "square":
        y = x * x
    elif kind == "cube":
        y = x * x * x
    else:
        raise ValueError(kind)
    return y if y > 1.0 else -y


@given((V,), (-V,))
def conditional_over_a_reduction(v):
    if v.sum() > 0:
        return v / v.sum()
    return v


@given((2.0, 3.0), (-2.0, 3.0))
def a_branch_calls_a_function(a, b):
    def hypotenuse(p, q):
        return (p * p + q * q) ** 0.5

    if a > 0:
        return hypotenuse(a, b)
    return hypotenuse(b, b)


@given((3.0,), (-3.0,))
def the_value_before_and_after(x):
    before = x
    if x > 0:
        x = x * 2.0
    return before + x


@given((0.3,), (0.8,))
def a_boolean_is_a_result(x):
    return x > 0.5, not x > 0.5, x < 0.1 or x > 0.7


# *** Loops ***


@given((5,), (0,), (1,))
def factorial(n):
    result = 1
    for i in range(1, n + 1):
        result *= i
    return result


@given((10,), (1,), (0,))
def fibonacci(n):
    a, b = 0, 1
    for _ in range(n):
        a, b = b, a + b
    return a


@given((27,), (1,), (6,))
def collatz_steps(n):
    steps = 0
    while n != 1:
        if n % 2 == 0:
            n = n // 2
        else:
            n = 3 * n + 1
        steps += 1
    return steps


@given((48, 36), (7, 13), (5, 0))
def gcd(a, b):
    while b:
        a, b = b, a % b
    return a


@given((2.0,), (10.0,), (0.25,))
def square_root_by_newton(x):
    guess = x
    for _ in range(30):
        guess = 0.5 * (guess + x / guess)
    return guess


@given((2.0,), (10.0,), (0.25,))
def square_root_until_it_is_near(x):
    guess = 1.0
    while abs(guess * guess - x) > 1e-12:
        guess = 0.5 * (guess + x / guess)
    return guess


@given((0.5, 4), (2.0, 0), (-1.5, 3))
def power_by_products(x, n):
    result = 1.0
    while n > 0:
        if n % 2 == 1:
            result *= x
        x *= x
        n //= 2
    return result


@given((V,), (W,))
def sum_of_positives(v):
    total = 0.0
    for x in v:
        if x > 0:
            total += x
    return total


@given((V,), (W,))
def largest_and_its_place(v):
    best, at = v[0], 0
    for i in range(1, len(v)):
        if v[i] > best:
            best, at = v[i], i
    return best, at


@given((V, 0.6), (V, 100.0), (W, -5.0))
def first_above(v, limit):
    for i, x in enumerate(v):
        if x > limit:
            return i
    return -1


@given((V, 0.6), (V, 100.0), (W, 1.0))
def first_above_by_else(v, limit):
    found = 0.0
    for x in v:
        if x > limit:
            found = x
            break
    else:
        found = limit * 0.5
    return found


@given((V, 2), (V, 0), (W, 4))
def prefix_until_a_count(v, n):
    total, used = 0.0, 0
    for x in v:
        if used >= n:
            break
        if x < 0:
            continue
        total += x
        used += 1
    return total, used


@given((3, 4), (0, 2), (2, 0))
def triangles_of_a_grid(n, m):
    total = 0
    for i in range(n):
        for j in range(m):
            if j > i:
                break
            total += i * j + 1
    return total


@given((4,), (0,), (7,))
def break_of_the_inner_loop_only(n):
    total = 0
    for i in range(n):
        k = 0
        while True:
            k += 1
            if k > i:
                break
        total += k
    return total


@given((M,), (M * -2.0,))
def rows_and_columns(m):
    total = 0.0
    for row in m:
        for x in row:
            if x < 0:
                continue
            total += x * x
    return total


@given((6,), (1,), (0,))
def down_by_steps(n):
    total = 0
    for i in range(n, 0, -2):
        total = total * 10 + i
    return total


@given((2, 11, 3), (5, 5, 1), (0, 4, 2))
def range_of_three(a, b, c):
    last = -1
    for i in range(a, b, c):
        last = i
    return last


@given((0.5, 3), (1.5, 0))
def loop_variable_after_the_loop(x, n):
    i = -1
    for i in range(n):
        x = x * 1.5
    return x, i


@given((0.1, 3), (0.9, 5))
def logistic_map(x, n):
    for _ in range(n):
        x = 3.7 * x * (1.0 - x)
        if x > 0.9:
            x = x - 0.05
    return x


@given((1.0, 3), (2.5, 0))
def weak_numbers_take_the_dtype(x, n):
    total, step = 0, 0.1
    for _ in range(n):
        total = total + step * x
        step = step * 2
    return total


@given((V, W), (W, V))
def dot_by_zip(a, b):
    total = 0.0
    for x, y in zip(a, b):
        total += x * y
    return total


@given((V, W), (W, V))
def enumerate_of_zip(a, b):
    total = 0.0
    for i, (x, y) in enumerate(zip(a, b)):
        if i % 2 == 0:
            total += x * y
        else:
            total -= x
    return total


@given((V,), (W,))
def enumerate_from_one(v):
    best = 0
    for i, x in enumerate(v, 1):
        if x > 0:
            best = i
    return best


@given((3.0,), (20.0,))
def while_with_else(x):
    count = 0
    while x > 1.0:
        x = x / 2.0
        count += 1
        if count > 3:
            break
    else:
        count = -count
    return x, count


@given((V,), (W,))
def python_loop_around_tensor_code(v):
    total = 0.0
    for name, scale in {"a": 2.0, "b": -1.0}.items():
        if v[0] > 0:
            total += scale * v.sum()
        elif name == "b":
            total += 1.0
    return total


@given((V,), (W,))
def python_list_of_functions(v):
    for f in [lambda x: x * 2.0, lambda x: x + 1.0]:
        if v.sum() > 1.0:
            v = f(v)
    return v


@given((4, 0.5), (0, 0.25))
def walrus_in_while(n, x):
    total, k = x, 0
    while (k := k + 1) < n:
        total += x * 0.5
    return total, k


@given((0.5, V), (1.5, V), (0.05, W))
def walrus_in_later_operands(x, v):
    if x > 0.1 and (h := x * 2.0) > 0.3 and (g := h + 1.0) < 3.0:
        x = x + h + g
    elif 0.01 < x < (h := v[1]) < (g := v[0]):
        x = h - g
    y = (p := x * 2.0) if x > 1.0 else (p := x * 3.0)
    return x + y + p


@given((4, 0.5), (0, 0.25), (3, 40.0))
def walrus_in_a_while_with_break(n, x):
    total, i = x, 0
    while i < n and (h := x * float(i)) < 3.0:
        total = total + h * 0.1
        i += 1
        if total > 30.0:
            break
    return total, i


@given((3, V), (0, W))
def closure_that_sets_and_returns(n, v):
    best = 0.25

    def improve(t):
        nonlocal best
        for i in range(n):
            if v[i] > t:
                break
        else:
            best = best + v[1]
        return t * best

    return improve(0.5) - improve(best)


@given((3, 0.5), (0, 2.5))
def list_made_anew_in_a_loop(n, x):
    items = [0.25, x, 1.0]
    for i in range(n):
        items[0] = items[0] + x * i
        if x > 1.0:
            items = [e * 0.5 for e in items]
        else:
            fresh = [x]
            fresh.append(items[1] * 0.5)
            fresh.append(items[0])
            items = fresh
    return items


@given((3, 0.5), (0, 2.5), (4, 1.5))
def python_floats_in_a_list(n, x):
    scales = [0.5, 0.25, 2.0]
    steps = []
    for i in range(n):
        x = x * scales[i % 3]
        steps.append(0.125)
    for step in steps:
        x = x + step
    return x + sum(steps) + scales[n % 3]


@given((3, 0.5), (0, 2.5))
def counted_integers_become_floats(n, x):
    i = 0
    while (h := 0.35 + i) < 3.0 and i < n:
        i += 1
        x = x + h * x + i * 0.1
    return x, i * 0.25


@given((3, True), (0, False), (1, False))
def match_of_a_bool(n, flag):
    match n, flag:
        case 3, True:
            return 1
        case 0, False:
            return 2
        case _:
            return 3


@given((1, V), (3, V), (4, W))
def rows_of_an_empty_slice(n, v):
    total = 0.0
    for e in v[n:]:
        total = total + e * e
    return total


@given((0.5, V), (2.5, W))
def closure_with_another_name(x, v):
    w = v * x

    def change(t):
        nonlocal w
        u = w
        u[1] = t
        return w[1] * 2.0

    y = change(x)
    return y, w


@given((10, 3), (5, 7), (0, 4))
def division_by_subtraction(a, b):
    quotient = 0
    while a >= b:
        a -= b
        quotient += 1
    return quotient, a


@given((3, 0.6), (1, 0.3))
def two_loops_in_order(n, x):
    for _ in range(n):
        x = x + 1.0
    while x > 2.0:
        x = x - 0.75
    return x


@given((3, 0.5), (0, 0.25))
def a_return_in_two_loops(n, x):
    for i in range(n):
        for j in range(n):
            x = x * 1.25
            if x > 1.0 and i != j:
                return x
    return -x


@given((12,), (1,), (97,))
def is_prime(n):
    if n < 2:
        return False
    d = 2
    while d * d <= n:
        if n % d == 0:
            return False
        d += 1
    return True


@given((I,), (np.zeros(5, np.int32),))
def histogram_in_an_array(xp, codes):
    counts = xp.izeros(4)
    for code in codes:
        counts[code] += 1
    return counts


@given((3.7, 2), (-0.6, 4))
def horner(x, n):
    coefficients = [1.0, -2.0, 0.5]
    total = 0.0
    for c in coefficients:
        total = total * x + c
    for _ in range(n):
        total = total * 0.5
    return total


# *** Lists, tuples, dicts ***


@given((V,), (W,))
def list_by_append(xp, v):
    out = []
    for x in v:
        out.append(x * x)
    return xp.stack(out)


@given((0.5, 4), (1.5, 2))
def list_of_a_recurrence(xp, x, n):
    path = [x]
    for _ in range(n):
        path.append(path[-1] * 0.5 + 1.0)
    return path[-1], len(path)


@given((V,), (W,))
def running_sums(xp, v):
    out, total = [], 0.0
    for x in v:
        total += x
        out.append(total)
    return xp.stack(out)


@given((M,), (M - 1.0,))
def rows_are_appended(xp, m):
    rows = []
    for row in m:
        if row.sum() > 2.0:
            rows.append(row * 2.0)
        else:
            rows.append(-row)
    return xp.stack(rows)


@given((V, 3), (W, 1))
def list_of_pairs(v, n):
    pairs = []
    for i in range(n):
        pairs.append((v[i], i))
    total = 0.0
    for x, i in pairs:
        total += x * v[i]
    return total


@given((V,), (-V,), (W,))
def only_some_are_appended(v):
    kept = []
    for x in v:
        if x > 0:
            kept.append(x)
    total = 0.0
    for x in kept:
        total += x * x
    return total, len(kept)


@given((6,), (1,), (37,))
def bits_by_a_stack(n):
    bits = []
    while n > 0:
        bits.append(n % 2)
        n = n // 2
    value = 0
    while bits:
        value = value * 10 + bits.pop()
    return value


@given((V, 2), (W, 0))
def list_elements_change(v, n):
    parts = [v[0], v[1], v[2]]
    for i in range(n):
        parts[0] = parts[1] + 0.5
        parts[1] = parts[2] * parts[0]
    return parts[0] + parts[1]


@given((V,), (W,))
def comprehension_with_a_condition(v):
    scales = [1.0, -2.0, 3.0, 0.5]
    return sum([s * v[i] for i, s in enumerate(scales) if s > 0])


@given((V,), (W,))
def comprehension_over_a_tensor(xp, v):
    return xp.stack([x * 2.0 if x > 0 else x for x in v])


@given((M,), (M * 2.0,))
def nested_comprehension(xp, m):
    return xp.stack([xp.stack([m[i, j] for i in range(2)]) for j in range(3)])


@given((V,), (W,))
def dict_comprehension(v):
    parts = {name: v[i] * 2.0 for i, name in enumerate("abcd")}
    return parts["a"] + parts["d"]


@given((0.5, 3), (1.5, 0))
def dict_in_a_loop(x, n):
    state = {"x": x, "steps": 0}
    while state["steps"] < n:
        state["x"] = state["x"] * 1.5
        state["steps"] += 1
    return state


@given((V,), (W,))
def starred_unpacking(v):
    first, *middle, last = [v[0], v[1], v[2], v[3]]
    if first > 1.0:
        first, last = last, first
    return first * 2.0 + last - middle[0] * middle[1]


@given((0.5, (1.5, 2.5)), (-0.5, (0.25, 4.0)))
def structures_as_arguments(x, pair):
    low, high = pair
    if x < 0:
        low, high = high, low
    return {"low": low * x, "high": [high, x]}


@given((V, 1), (W, 3))
def index_that_a_branch_chooses(v, k):
    i = k if v[k] > 0 else 0
    return v[i] * 2.0


@given((V,), (W,))
def any_and_all_by_loops(v):
    some, every = False, True
    for x in v:
        if x > 1.0:
            some = True
        if not x > -1.75:
            every = False
    return some, every


Point = namedtuple("Point", "x y")


@given((Point(0.5, 1.5), 2), (Point(-1.0, 0.25), 3))
def namedtuple_in_a_loop(p, n):
    for _ in range(n):
        p = Point(p.y, p.x * 0.5 + p.y)
        if p.x > 1.0:
            p = p._replace(y=p.y - 1.0)
    return p.x, p.y


@dataclasses.dataclass
class Body:
    position: Any
    speed: Any


@given((Body(1.0, 0.0), 4), (Body(0.2, -1.0), 6))
def dataclass_in_a_loop(body, n):
    for _ in range(n):
        body = Body(body.position + 0.1 * body.speed, body.speed - 0.1)
        if body.position < 0:
            body = dataclasses.replace(body, speed=-body.speed, position=-body.position)
    return body.position, body.speed


# *** Slices and assignments ***


@given((V,), (W,))
def reversed_in_place(v):
    v = v + 0.0
    i, j = 0, len(v) - 1
    while i < j:
        left, right = v[i], v[j]
        v[i] = right
        v[j] = left
        i += 1
        j -= 1
    return v


@given((V, 2), (W, 1))
def slices_with_moving_ends(v, k):
    return v[:k].sum() - v[k:].sum()


@given((V,), (W,))
def differences(v):
    return v[1:] - v[:-1]


@given((M,), (M * -1.0,))
def matrix_slices(m):
    m = m * 1.0
    m[0, 1:] = m[1, :2]
    m[:, 0] += 1.0
    if m[1, 0] > 1.0:
        m[1] = 0.5
    return m


@given((V, 3), (W, 2))
def prefix_sums_in_place(v, n):
    v = v * 1.0
    for i in range(1, n + 1):
        v[i] += v[i - 1]
    return v


@given((5,), (2,))
def table_of_pascal(xp, n):
    table = xp.izeros(7, 7)
    for i in range(n + 1):
        table[i, 0] = 1
        for j in range(1, i + 1):
            table[i, j] = table[i - 1, j - 1] + table[i - 1, j]
    return table


@given((V,), (W,))
def an_alias_sees_the_assignment(v):
    a = v * 1.0
    b = a
    b[0] = 5.0
    if v[0] > 1.0:
        a[1] = 7.0
    return a.sum() + b[0] + b[1]


@given((M, 1), (M, 0))
def a_row_is_chosen(m, i):
    row = m[i]
    total = 0.0
    for j in range(3):
        total += row[j] * m[1 - i, j]
    return total


@given((V,), (W,))
def steps_and_negative_indices(v):
    return v[::2].sum() * v[-1] + v[::-1][0]


# *** Functions, classes, blocks ***


@given((2.0, 3), (0.5, 0))
def closure_over_a_loop_variable(x, n):
    for i in range(n):

        def shifted(y):
            return y + x * 0.1

        x = shifted(x)
    return x


@given((2.0,), (-2.0,))
def lambda_with_a_condition(x):
    f = lambda y: y * y if y > 0 else y - 1.0
    return f(x) + f(-x)


@given((2.0, 4), (0.5, 1))
def function_as_argument(x, n):
    def repeat(f, x, n):
        for _ in range(n):
            x = f(x)
        return x

    return repeat(lambda y: y * 0.9 + 0.1, x, n)


@given((3.0,), (-0.5,))
def function_that_returns_functions(x):
    def scaled(by):
        def f(y):
            return y * by if y > 0 else y

        return f

    return scaled(2.0)(x) + scaled(x)(0.5)


@given((0.5,), (1.5,))
def partial_of_a_function(x):
    def f(a, b, c=1.0):
        if a > b:
            return a * c
        return b * c

    return functools.partial(f, 1.0, c=3.0)(x)


@given((0.3, 2), (0.7, 3))
def default_and_keyword_arguments(x, n):
    def grow(x, rate=0.5, *, times):
        for _ in range(times):
            x += rate * x
        return x

    return grow(x, times=n) + grow(rate=0.1, x=x, times=1)


@given((0.3,), (0.7,))
def variadic_arguments(x):
    def total(*parts, **named):
        s = 0.0
        for p in parts:
            if p > 0.5:
                s += p
        for name in sorted(named):
            s += named[name]
        return s

    return total(x, 2 * x, 3 * x, a=x, b=1.0)


@given((2.5,), (0.3,))
def recursion_of_fixed_depth(x):
    def binary(x, depth):
        if depth == 0:
            return x
        half = binary(x * 0.5, depth - 1)
        if half > 0.25:
            return half + binary(x * 0.25, depth - 1)
        return half

    return binary(x, 3)


class Account:
    """An object whose methods change its attributes."""

    def __init__(self, balance):
        self.balance = balance
        self.fees = 0

    def withdraw(self, amount):
        if amount > self.balance:
            self.fees += 1
            return 0.0
        self.balance -= amount
        return amount


@given((10.0, 3.0, 5), (1.0, 3.0, 2), (10.0, 3.0, 0))
def object_state(balance, amount, n):
    account = Account(balance)
    total = 0.0
    for _ in range(n):
        total += account.withdraw(amount)
    return account.balance, account.fees, total


class Shape:
    def area(self, x):
        raise NotImplementedError


class Square(Shape):
    def area(self, x):
        return x * x


class Capped(Square):
    def area(self, x):
        whole = super().area(x)
        return whole if whole < 2.0 else 2.0 + 0.1 * x


@given((1.2,), (1.7,))
def inherited_methods(x):
    total = 0.0
    for shape in (Square(), Capped()):
        total += shape.area(x)
    return total


class Vector:
    def __init__(self, x, y):
        self.x, self.y = x, y

    def __add__(self, other):
        return Vector(self.x + other.x, self.y + other.y)

    def __call__(self, t):
        return self.x * t + self.y if t > 0 else self.y

    @property
    def length(self):
        return (self.x**2 + self.y**2) ** 0.5

    @staticmethod
    def unit(k):
        return Vector(1.0, 0.0) if k == 0 else Vector(0.0, 1.0)


@given((0.5, 1.5), (-0.5, 2.5))
def operators_of_a_class(x, y):
    v = Vector(x, y) + Vector.unit(1)
    if v.length > 2.0:
        v.x = v.x * 2.0
    return v(x) + v.length


@given((0.5,), (2.0,))
def try_finally_with_a_return(x):
    log = []
    try:
        if x > 1.0:
            return x * 2.0
        x = x + 1.0
    finally:
        log.append("done")
    return x + len(log)


@given((0.5, 3), (2.0, 4))
def with_in_a_loop(x, n):
    for _ in range(n):
        with contextlib.nullcontext(0.5) as half:
            x = x * half + 1.0
            if x > 1.8:
                break
    return x


@given((0.5,), (2.0,))
def handler_without_an_error(x):
    try:
        y = x * math.sqrt(4.0)
        if x > 1.0:
            y = y + 1.0
    except ValueError:
        y = -x
    return y


@given((0.5, 2), (2.0, 3))
def asserts_of_the_arguments(x, n):
    assert n > 0, "n must be positive"
    total = 0.0
    for i in range(n):
        assert x > 0
        total += x / float(i + 1)
    return total


@given((0.5, 2), (2.0, 0))
def prints_in_a_loop(x, n):
    for i in range(n):
        print("step", i, "x =", x)
        x = x * 2.0
    print(f"after {n} steps")
    return x


@given((0.5, 3), (1.5, 2))
def global_constants(x, n):
    for i in range(n):
        x = x * LIMIT if x < LIMIT else x - math.pi
    return x


LIMIT = 1.25


@given((3, 0.5), (0, 2.0), (1, 1.0))
def match_on_python_values(n, x):
    total = x * float(n)
    for kind, amount in (("add", 1.5), ("scale", 0.5), ("shift", 2.0), ("shift", -1.0)):
        match kind, amount:
            case "add", _:
                total = total + x
            case "scale", by:
                if total > 1.0:
                    total = total * by
            case ("shift" | "move", by) if by > 0.0:
                total = total - by
    return total


@given((3, 0.5), (0, 2.0))
def counter_by_nonlocal(n, x):
    calls = 0

    def f(y):
        nonlocal calls
        calls += 1
        return y * 0.5

    for _ in range(n):
        x = f(x)
    return x, calls


@given((7, 2), (-7, 2), (9, -4))
def floor_division_and_remainder(a, b):
    q, r = divmod(a, b)
    if r != 0:
        q += 1
    return q, r, a // b, a % b


@given((5, 2), (1, 4))
def bits_and_shifts(a, b):
    total = 0
    for i in range(b):
        total = total ^ (a << i)
        if total & 1:
            total |= 8
    return total >> 1


@given((V,), (W,))
def methods_of_arrays(v):
    if v.sum() > 0:
        return v.reshape((2, 2)).T
    return v.reshape((2, 2)) * v.mean()


@given((V, 2.0), (W, 0.5))
def tensors_by_equality(v, x):
    count = 0
    for e in v:
        if e == x - 2.75 or e != e:
            count += 1
        elif e == 2.25:
            count += 10
    return count


@given((0.3, 0.7), (1.4, 0.2))
def builtins_on_tensors(a, b):
    low, high = min(a, b), max(a, b)
    total = sum([low, high, abs(a - b)])
    return total, int(high), round(high)


@given((5,), (0,))
def sum_of_a_generator_of_python_numbers(n):
    scale = sum(k * k for k in (1, 2, 3))
    total = 0
    for i in range(n):
        total += scale * i
    return total


@given((3, V), (4, W))
def variables_deleted_after_the_loop(n, v):
    total = 0.0
    for i in range(n):
        part = v[i] * v[i]
        total += part
    del v
    return total


@given((3, 0.5), (1, 2.5))
def pass_and_ellipsis(n, x):
    for _ in range(n):
        if x > 1.0:
            pass
        else:
            x = x * 1.5
            ...
    return x


@given((2.0,), (0.5,), (-2.0,))
def list_changed_or_replaced(x):
    items = [0.25, x, x * 2.0]
    if x > 1.0:
        items[1] = x * 10.0
    elif x > 0.0:
        other = items
        other[0] = x * 3.0
    else:
        items = [x, 7.0]
    return sum(items)


@given((2.0,), (-2.0,))
def list_changed_and_returned(x):
    items = [x, x]
    if x > 0.0:
        items[0] = x * 10.0
        return items
    return [x, x * 2.0]


@given((2.0,), (-2.0,))
def nested_dict_changed_or_replaced(x):
    state = {"a": {"g": x}, "b": x}
    if x > 0.0:
        state["a"]["g"] = x * 5.0
    else:
        state = {"a": {"g": x * 2.0}, "b": x * 3.0}
    if state["b"] > 1.0:
        state["a"]["g"] += 1.0
    else:
        state["a"] = {"g": x}
    return state["a"]["g"] + state["b"]


@given((2.0,), (-2.0,))
def lists_exchanged_after_a_change(x):
    p, q = [x, x * 2.0], [x * 3.0, x]
    if x > 0.0:
        p[0] = x * 7.0
        p, q = q, p
    else:
        q[1] = x * 9.0
    return p[0] + 10.0 * p[1] + 100.0 * q[0] + 1000.0 * q[1]


@given((2.0, 3), (-2.0, 4), (0.5, 0))
def inner_dict_changed_and_replaced(x, n):
    state = {"in": {"g": x}, "sum": x}
    for i in range(n):
        state["in"]["g"] = state["in"]["g"] * 0.7
        state["sum"] = state["sum"] + state["in"]["g"]
        state["in"] = {"g": x + i}
    return state["in"]["g"] + 10.0 * state["sum"]


@given((2.0, 4), (-2.0, 3))
def rows_exchanged_in_a_loop(x, n):
    rows = [[x, x * 2.0], [x * 3.0]]
    for _ in range(n):
        rows[0][1] = rows[0][0] + rows[1][0]
        rows[0], old = [rows[0][1], x], rows[0]
        old[0] = old[0] * 0.5
        rows[1][0] = old[0] + old[1]
    return rows[0][0] + 10.0 * rows[0][1] + 100.0 * rows[1][0]


@given((2.0,), (-2.0,))
def list_of_a_closure_changed_in_an_expression(x):
    items = [x, x]

    def put(value):
        items[0] = value
        return items

    got = put(x * 4.0) if x > 0.0 else [x, 2.0]
    return got[0] + got[1] + items[0]


@given((2.0, V), (-1.5, W))
def float_of_a_float(x, v):
    total = 0
    for e in v:
        total += e * x
    scale = float(total) * 0.1
    return scale * x


@given((2.0, 5), (2.0, 3))
def attribute_changed_by_a_local_function(x, n):
    pool = [Account(x), Account(0.125)]
    cell = Account(x)

    def change(factor):
        if n > 3:
            pool[1].balance = x * factor
            cell.balance = cell.balance + x
        return pool[1].balance

    return change(0.7) + pool[1].balance + cell.balance


@given((2.0, 5), (2.0, 3))
def dict_changed_by_a_function_of_a_function(x, n):
    state = {"in": {"g": x}}

    def put(inner):
        inner["g"] = inner["g"] * 0.5

    def change():
        if n > 3:
            put(state["in"])

    change()
    return x - state["in"]["g"]


@given((2.0, 4), (-1.0, 0))
def object_changed_by_a_local_function_in_a_loop(x, n):
    pool = [Account(x)]

    def step(k):
        pool[0].balance = pool[0].balance * 1.5 if k > 1 else pool[0].balance + 1.0

    i = 0
    while i < n:
        step(i)
        i += 1
    return pool[0].balance


@given((8.0, 0.7), (3.0, 1.9))
def endless_loop_that_returns(x, y):
    tries = 0
    while True:
        x = x * 0.5
        if x < y:
            return x, tries
        tries += 1
        if tries > 20:
            return y, tries


@given((8.0, 0.7), (3.0, 1.9))
def endless_loop_in_a_loop(x, y):
    for k in range(3):
        while 1:
            x = x * 0.5
            if x < y:
                break
            if x > 100.0:
                return x
        x = x + k
    return x * 2.0


@given((8.0, 0.7), (3.0, 1.9))
def endless_loop_with_finally(x, y):
    while True:
        try:
            x = x * 0.5
            if x < y:
                return x
        finally:
            y = y + 0.1


@given((2.1, 0.5), (-1.0, 3.0))
def list_chosen_by_a_tensor(x, y):
    high, low = [x], [y]
    for k in range(5):
        value = x - k * y
        (high if value > 0.0 else low).append(value)
    return sum(high) - 2.0 * sum(low) + len(high)


@given((2.0, 0.5), (-1.0, 3.0), (0.05, 0.2))
def elements_and_attributes_of_a_chosen_object(x, y):
    a, b, c = [x, x], [y, y], [0.5, 0.5]
    p, q = Account(x), Account(y)
    (a if x > y else b if x > 0.1 else c)[0] = 7.0
    (a if x < y else b)[1] += x
    (p if x > y else q).balance = x * y
    return a[0] + 10.0 * a[1] + 100.0 * b[0] + 1000.0 * b[1] + c[0] + p.balance + 10.0 * q.balance


@given((2.0, 0.5), (0.7, 1.5))
def property_set_in_a_branch(x, y):
    class Limited:
        def __init__(self):
            self._value = x

        @property
        def value(self):
            return self._value

        @value.setter
        def value(self, new):
            self._value = new if new > y else y

    made = Limited()
    made.value = made.value - 1.0
    if made.value > 0.6:
        made.value = made.value * 3.0
    return made.value


@given((2.0, 5), (2.0, 3))
def object_changed_by_an_operand(x, n):
    account = Account(x)

    def pay():
        account.balance = x * 3.0
        return True

    paid = n > 3 and pay()
    return account.balance, paid
