"""Measures the errors of elementary functions, in units of the last place.

    python -m tests.targets.native.accuracy

prints the table of `docs/reference/native.md`, from float32 numbers at equal distances of their bits and from random
doubles. The truth is numpy's function in a wider format: double for float32, and x86's long double for double.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import scipy.special

from tests.targets.native.running import Elementwise, of_ufunc

SINGLE, DOUBLE = np.dtype(np.float32), np.dtype(np.float64)
WIDE = {SINGLE: np.float64, DOUBLE: np.longdouble}
MANTISSA = {SINGLE: 24, DOUBLE: 53}
LEAST = {SINGLE: -149, DOUBLE: -1074}

#: The bounds of the errors of the functions that are written in `elementary`.
BOUNDS: dict[str, dict[np.dtype, float]] = {
    "exp": {SINGLE: 1.5, DOUBLE: 1.5},
    "expm1": {SINGLE: 1.5, DOUBLE: 1.5},
    "log": {SINGLE: 1.0, DOUBLE: 1.0},
    "log1p": {SINGLE: 1.0, DOUBLE: 1.0},
    "tanh": {SINGLE: 2.0, DOUBLE: 2.0},
    "sin": {SINGLE: 2.0, DOUBLE: 1.0},
    "cos": {SINGLE: 2.0, DOUBLE: 1.0},
    "erf": {SINGLE: 1.0},
    "power": {SINGLE: 1.0},
    "arctan": {SINGLE: 1.0, DOUBLE: 2.0},
    "arctan2": {SINGLE: 1.0, DOUBLE: 2.0},
}


@dataclasses.dataclass(frozen=True, slots=True)
class Errors:
    """Errors of a function.

    Attributes:
      greatest: The greatest error of finite results, in units of the last place of the true result.
      at: Its arguments.
      wrong: Arguments for which infinity, NaN or the sign is wrong.
    """

    greatest: float
    at: tuple[Any, ...]
    wrong: list[tuple[Any, ...]]


def ufunc(name: str) -> np.ufunc:
    """The ufunc of a function."""
    found: np.ufunc = getattr(scipy.special if name == "erf" else np, name)
    return found


def sample(name: str, dtype: np.dtype, step: int) -> list[np.ndarray]:
    """Arguments: each `step`-th float32, or as many doubles; numbers at which results overflow; special numbers."""
    rng = np.random.default_rng(8)
    bits = np.arange(step // 2, 2**32, step, np.uint64)
    if dtype == DOUBLE:
        bits = bits << np.uint64(32) | rng.integers(0, 2**32, bits.size, np.uint64)
    any_ = bits.astype(f"u{dtype.itemsize}").view(dtype)
    n = bits.size // 4
    special = [0.0, -0.0, 1, -1, 2, -2, 0.5, -0.5, np.inf, -np.inf, np.nan, 88.72283, 88.72284, -87.33655, -103.97]
    special += [709.78271, 709.78272, -708.4, -745.13, -745.14, 1e-45, 3.4e38, 2.0**23, 2.0**20, -1 + 2**-20]
    if ufunc(name).nin == 2:
        special += [3, -3, 1.5, 2.5, -7.5]
        pairs = np.array([(a, b) for a in special for b in special], dtype).T
        near_1 = 1 + rng.normal(size=n) * 1e-3
        x = [np.abs(any_), np.exp(rng.normal(size=n) * 3), rng.normal(size=n) * 5, near_1, pairs[0]]
        y = [rng.normal(size=bits.size) * 3, rng.normal(size=n) * 9, rng.integers(-20, 20, n), rng.normal(size=n) * 3e4]
        return [np.concatenate([a.astype(dtype) for a in all_]) for all_ in (x, [*y, pairs[1]])]
    limit = 110 if dtype == SINGLE else 750
    whole = np.arange(-n, n) * (np.pi / 2)  # where sine or cosine is near 0
    parts = [rng.uniform(-limit, limit, n), rng.uniform(-2, 2, n), rng.normal(size=n) * 10, whole, np.array(special)]
    with np.errstate(over="ignore"):
        return [np.concatenate([any_, *(p.astype(dtype) for p in parts)])]


def errors(name: str, dtype: np.dtype, step: int, compiled: Elementwise | None = None) -> Errors:
    """Compares a compiled function with the truth, on `sample`; without one, numpy's function."""
    given = sample(name, dtype, step)
    with np.errstate(all="ignore"):
        truth = ufunc(name)(*(x.astype(WIDE[dtype]) for x in given))
        got = (compiled or ufunc(name))(*given)
        rounded = truth.astype(dtype)
        is_finite = np.isfinite(rounded) & np.isfinite(got)
        unit = np.ldexp(WIDE[dtype](1), np.maximum(np.frexp(truth)[1] - MANTISSA[dtype], LEAST[dtype]))
        error = np.where(is_finite, np.abs(got.astype(WIDE[dtype]) - truth) / unit, 0).astype(float)
        is_same = (got == rounded) | (np.isnan(got) & np.isnan(rounded))
    wrong = np.where(is_finite, False, ~is_same) | ((np.signbit(got) != np.signbit(rounded)) & ~np.isnan(got))
    at = int(np.argmax(error))
    positions = np.flatnonzero(wrong)[:5]
    return Errors(float(error[at]), tuple(x[at] for x in given), [tuple(x[i] for x in given) for i in positions])


def main() -> None:
    """Prints the table."""
    print("| function | dtype | bound | measured | numpy | vectorized |\n|---|---|---|---|---|---|")
    for name, bounds in BOUNDS.items():
        for dtype, bound in bounds.items():
            compiled = of_ufunc(ufunc(name), (dtype,) * ufunc(name).nin)
            step = 1021 if dtype == SINGLE else 4099
            ours, theirs = errors(name, dtype, step, compiled), errors(name, dtype, step)
            assert not ours.wrong, (name, dtype, ours.wrong)
            is_vector = any(f"<{n} x {kind}>" in compiled.optimized for n in (8, 16) for kind in ("float", "double"))
            measured = f"{bound} | {ours.greatest:.2f} | {theirs.greatest:.2f}"
            print(f"| `{name}` | {dtype} | {measured} | {'yes' if is_vector else 'no'} |")


if __name__ == "__main__":
    main()
