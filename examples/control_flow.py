"""Programs with control flow, written with headrace and compared with plain Python: `make demo`.

A loop with a conditional in it, a recursive function, a loop whose values change their shape, and a loop that changes a
variable and prints as it goes. Each graph is built once and run for several inputs.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import headrace as hr


def collatz(n: hr.Tensor) -> Any:
    """Counts the steps of the Collatz sequence of n until 1."""

    def step(k: Any, count: Any) -> Any:
        return hr.cond(hr.equal(k % 2, 0), lambda: k // 2, lambda: 3 * k + 1), count + 1

    return hr.while_loop(lambda k, count: k > 1, step, (n, 0))[1]


def collatz_python(n: int) -> int:
    count = 0
    while n > 1:
        n, count = (n // 2 if n % 2 == 0 else 3 * n + 1), count + 1
    return count


def binomial(n: hr.Tensor) -> Any:
    """Computes the binomial coefficient of n and n // 2 by a recursive function."""
    number = hr.TensorSpec((), hr.int32)

    def over(n: Any, k: Any) -> Any:
        edge = hr.logical_or(hr.equal(k, 0), hr.equal(k, n))
        return hr.cond(edge, lambda: 1, lambda: function(n - 1, k - 1) + function(n - 1, k))

    function = hr.Function(over, results=number, name="over")
    return function(n, n // 2)


def primes(n: hr.Tensor) -> Any:
    """Computes all primes up to n: a loop variable that grows."""

    def step(k: Any, found: Any) -> Any:
        has_divisor = hr.reduce_any(hr.equal(k % found, 0))
        return k + 1, hr.cond(has_divisor, lambda: found, lambda: hr.concat([found, [k]], 0))

    return hr.while_loop(lambda k, found: k <= n, step, (3, hr.constant([2])), shape_invariants=((), (None,)))[1]


def primes_python(n: int) -> list[int]:
    return [k for k in range(2, n + 1) if all(k % d for d in range(2, math.isqrt(k) + 1))]


def balance(n: hr.Tensor) -> Any:
    """Computes savings after n months: a variable with ordered updates."""
    account = hr.Variable(1000.0, name="account")

    def month(k: Any) -> Any:
        hr.cond(hr.equal(k % 3, 2), lambda: account.assign_sub(50.0), lambda: account.assign(account * 1.01))
        return k + 1

    account.assign(1000.0)
    hr.while_loop(lambda k: k < n, month, hr.constant(0))
    return account.read_value()


def balance_python(n: int) -> float:
    account = np.float32(1000)
    for k in range(n):
        account = account - np.float32(50) if k % 3 == 2 else account * np.float32(1.01)
    return float(account)


PROGRAMS: Sequence[tuple[str, Callable[[hr.Tensor], Any], Callable[[int], Any], Sequence[int]]] = (
    ("Collatz steps: a conditional in a loop", collatz, collatz_python, (6, 27, 97)),
    ("n over n/2: recursion", binomial, lambda n: math.comb(n, n // 2), (4, 8, 12)),
    ("primes up to n: a vector that grows", primes, primes_python, (10, 30)),
    ("an account after n months: a variable changed in a loop", balance, balance_python, (5, 24)),
)


def main() -> int:
    print("Programs with control flow, written with headrace; each result is compared with plain Python's.\n")
    differences = 0
    for title, build, python, inputs in PROGRAMS:
        with hr.Graph() as graph:
            n = hr.placeholder(hr.int32, (), name="n")
            result = build(n)
        print(title)
        with hr.Session(graph=graph) as session:
            session.run([v.initializer for v in graph.variables])
            for value in inputs:
                start = time.perf_counter()
                got = session.run(result, {n: value})
                seconds = time.perf_counter() - start
                is_same = bool(np.all(np.asarray(got) == np.asarray(python(value), np.asarray(got).dtype)))
                differences += not is_same
                shown = np.array2string(np.asarray(got), separator=", ", threshold=6)
                same = "as in" if is_same else "NOT as in"
                print(f"   n = {value:<3} {shown:<40} {same} Python  {1e3 * seconds:6.1f} ms")
    print("\nAll results are Python's.\n" if not differences else f"\n{differences} results differ from Python's.\n")
    return 1 if differences else 0


if __name__ == "__main__":
    sys.exit(main())
