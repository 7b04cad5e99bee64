"""Loops of scalars with functions and conditionals in their bodies.

The state stays between bounds, and its factors are at most 1: rounding does not grow, and systems that
round differently give the same results. All are differentiated by x, a and b.
"""

from __future__ import annotations

import numpy as np

from benchmarks.programs import Program


def _program(title: str, function: str, trips: int, n: int, a: float, b: float) -> Program:
    arguments = {"x": np.float32(0.6), "a": np.float32(a), "b": np.float32(b)}
    return Program(title, function, trips, {"n": n}, arguments, ("x", "a", "b"))


def all_of(n: int, side: int) -> list[Program]:
    """Loops of `n` iterations, and nested ones of `side` on each of three levels."""
    cubed = side**3
    return [
        _program("loop with sin", "sine", n, n, 0.9, 0.5),
        _program("loop with exp", "exponential", n, n, 0.9, 0.2),
        _program("loop with mod", "remainder", n, n, 0.9, 1.7),
        _program("loop with where", "where", n, n, -0.999, 0.7),
        _program("loop with cond and sin", "cond_sine", n, n, -0.999, 0.7),
        _program("loop with cond in cond", "nested_conds", n, n, -0.999, 0.7),
        _program("loop with case and mod", "case", n, n, -0.999, 0.7),
        _program("loops three deep", "three_deep", cubed, side, 0.9, 0.25),
        _program("loops three deep with cond and sin", "three_deep_conds", cubed, side, -0.999, 0.7),
    ]
