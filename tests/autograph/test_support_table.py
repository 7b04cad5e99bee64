"""Table of constructs in docs/learn/autograph.md: each row has a function that is converted."""

from __future__ import annotations

import functools
from pathlib import Path

import numpy as np
import pytest

import headrace as hr
from tests.autograph.programs import check, in_graph

PAGE = Path(__file__).parent.parent.parent / "docs" / "learn" / "autograph.md"


def _if(x):
    if x > 2:
        y = 1
    elif x > 1:
        y = 2
    else:
        y = 3
    return y + (4 if x > 0 else 5)


def _loops(x):
    total = 0
    while total < x:
        total += 1
    for i, (a, b) in enumerate(zip(reversed(range(x)), range(x))):
        total += i * a * b
    return total


def _dataset(x):
    total = 0
    for element in hr.data.Dataset.range(5):
        i = hr.cast(element, hr.int32)
        if i > x:
            break
        total += i
    return total


def _python_loop(x):
    for name in ("a", "bb"):
        x = x + len(name)
    return x


def _jumps(x):
    for i in range(x):
        if i == 1:
            continue
        if i > 2:
            break
    else:
        return -1
    return x


def _logic(x):
    return 0 < x < 5 and not (x == 2 or x == 3)


def _equality(x):
    return x == 2, x != 2, x in (1, 2)


def _assertion(x):
    assert x > -100
    if x < -50:
        raise ValueError("x")
    return x


def _print(x):
    print(end="")
    return x


def _functions(x):
    return abs(x), min(x, 1), max(x, 1), sum([x, x]), float(x), int(x), bool(x), divmod(x, 3), any([x > 0])


def _lists(x):
    out = [x]
    while len(out) < x:
        out.append(out[-1] + 1)
    out.extend([x, x])
    return out.pop() + out[0] + len(out)


def _elements(x):
    m = hr.zeros([3], hr.int32)
    m[1] = x
    m[2] += x
    return hr.reduce_sum(m)


class _Box:
    value = 0


def _state(x):
    box, d = _Box(), {"k": 0}
    if x > 0:
        box.value = x
        d["k"] = x
    return box.value + d["k"]


def _calls(x):
    def fact(n, k=0):
        return 1 if k == 3 else fact(n, k + 1) * (n if n > 0 else 1)

    return functools.partial(fact, x)() + (lambda y: y if y > 0 else -y)(x)


def _with(x):
    try:
        with np.errstate():
            if x > 0:
                return x
    finally:
        x = 0
    return x - 1


def _comprehensions(x):
    return sum([i * 2 for i in range(x) if i != 1]), max(k * k for k in (x, 1))


def _match(x):
    match x, 2:
        case 1 | 2, y:
            return y
        case n, _ if n > 5:
            return n
        case _:
            return 0


ROWS = {
    "comprehensions": _comprehensions,
    "`match`": _match,
    "`if`": _if,
    "`while`": _loops,
    "`for` over datasets": _dataset,
    "`for` over other": _python_loop,
    "`break`": _jumps,
    "`and`": _logic,
    "`==`": _equality,
    "`assert`": _assertion,
    "`print`": _print,
    "`len`": _functions,
    "`append`": _lists,
    "`m[i] = v`": _elements,
    "`x.a = v`": _state,
    "functions": _calls,
    "`with`": _with,
}


@pytest.mark.matrix
def test_every_row_of_the_table_is_converted() -> None:
    text = PAGE.read_text(encoding="utf-8").partition("## Constructs")[2].partition("## ")[0]
    rows = [line.split("|")[1].strip() for line in text.splitlines() if line.startswith("| ")][1:]
    rest = list(rows)
    for start, f in ROWS.items():
        found = [r for r in rest if r.startswith(start)]
        assert len(found) == 1, start
        rest.remove(found[0])
        if f is _elements:
            assert in_graph(f, 3) == 6
            continue
        for x in (-3, 1, 2, 6):
            check(f, x)
    assert rest == []
