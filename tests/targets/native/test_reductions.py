"""Reductions as machine code, compared with numpy."""

from __future__ import annotations

import itertools
import math
import sys

import numpy as np
import pytest

pytest.importorskip("llvmlite")

from headrace.targets.native.llvm_text import Module
from headrace.targets.native.reductions import reduce
from tests.targets.native.product_running import Compiled, Guarded

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="guard pages need mprotect")

ARITHMETIC = (np.add, np.multiply, np.maximum, np.minimum)
LOGIC = (np.logical_and, np.logical_or)
VECTORS = (64, 32, 16)

Case = tuple[np.ufunc, tuple[int, ...], tuple[int, ...], str, bool]


def run(cases: list[Case], vector_bytes: int = 64) -> None:
    """Compiles reductions as one module and compares each with numpy, next to guard pages."""
    rng, module = np.random.default_rng(0), Module()
    functions = {}
    for ufunc, shape, axes, dtype, passes_first in cases:
        dims = (None, *shape[1:]) if passes_first else shape
        name = reduce(module, ufunc, dims, axes, np.dtype(dtype), vector_bytes=vector_bytes)
        functions[name] = (2, int(passes_first))
    compiled = Compiled(module, functions, vector_bytes)
    for i, (ufunc, shape, axes, dtype, passes_first) in enumerate(cases):
        dims = (None, *shape[1:]) if passes_first else shape
        name = reduce(module, ufunc, dims, axes, np.dtype(dtype), vector_bytes=vector_bytes)
        x = values(rng, shape, dtype)
        kept = tuple(d for axis, d in enumerate(shape) if axis not in axes)
        source, out = Guarded(x, bool(i % 2)), Guarded(np.zeros(kept, dtype), bool(i % 2))
        compiled(name, out.array, source.array, *([shape[0]] if passes_first else []))
        check(ufunc, x, axes, out.array)


def values(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> np.ndarray:
    """Random elements, of both signs where the dtype has them."""
    kind = np.dtype(dtype).kind
    if kind == "f":  # products of these neither overflow nor underflow
        made: np.ndarray = (rng.uniform(0.98, 1.02, shape) * rng.choice([-1, 1], shape)).astype(dtype)
        return made
    if kind == "b":
        return np.asarray(rng.random(shape) < rng.choice([0.02, 0.5, 0.98]))
    low = 0 if kind == "u" else np.iinfo(dtype).min
    return np.asarray(rng.integers(low, np.iinfo(dtype).max, shape, dtype=dtype, endpoint=True))


def check(ufunc: np.ufunc, x: np.ndarray, axes: tuple[int, ...], found: np.ndarray) -> None:
    """Compares with numpy: sums and products of floats within a bound, all else exactly."""
    if x.dtype.kind == "f" and ufunc in (np.add, np.multiply):
        wide = x.astype(np.float64 if x.dtype == np.float32 else np.longdouble)
        expected = ufunc.reduce(wide, axis=axes)
        terms = math.prod(x.shape[axis] for axis in axes)
        size = np.abs(wide).sum(axes) if ufunc is np.add else np.abs(expected)
        steps = 40 + terms / 256 if ufunc is np.add else terms  # additions in a chain, of all partial sums
        assert (np.abs(found - expected) <= steps * np.finfo(x.dtype).eps * size).all(), (ufunc, x.shape, axes)
        return
    if x.size or ufunc not in (np.maximum, np.minimum):
        expected = ufunc.reduce(x, axis=axes, dtype=x.dtype)
    else:
        ends = (-np.inf, np.inf) if x.dtype.kind == "f" else (np.iinfo(x.dtype).min, np.iinfo(x.dtype).max)
        expected = np.full(found.shape, ends[ufunc is np.minimum], x.dtype)
    np.testing.assert_array_equal(found, expected, f"{ufunc} {x.shape} {axes}")


def drawn(rng: np.random.Generator, count: int) -> list[Case]:
    """Random cases of rank 1 to 4; the last dimension of some is long."""
    out: list[Case] = []
    while len(out) < count:
        shape = [int(rng.integers(1, 9)) for _ in range(rng.integers(1, 5))]
        at = int(rng.integers(len(shape)))
        shape[at] = int(rng.integers(1, [20, 300, 3000][len(out) % 3]))
        axes = tuple(axis for axis in range(len(shape)) if rng.integers(2))
        dtype = ["float32", "float64", "int32", "int64", "uint8", "bool", "int16", "uint64"][int(rng.integers(8))]
        functions = LOGIC if dtype == "bool" else ARITHMETIC
        ufunc = functions[int(rng.integers(len(functions)))]
        out.append((ufunc, tuple(shape), axes, dtype, bool(rng.integers(3) == 0)))
    return out


@pytest.mark.parametrize("vector_bytes", VECTORS)
@pytest.mark.parametrize("seed", range(2))
def test_reductions_are_those_of_numpy(vector_bytes: int, seed: int) -> None:
    run(drawn(np.random.default_rng([seed, vector_bytes]), 6), vector_bytes)


@pytest.mark.matrix
@pytest.mark.rotated(3)
@pytest.mark.parametrize("vector_bytes", VECTORS)
@pytest.mark.parametrize("seed", range(10, 16))
def test_many_reductions_are_those_of_numpy(vector_bytes: int, seed: int) -> None:
    run(drawn(np.random.default_rng([seed, vector_bytes]), 60), vector_bytes)


@pytest.mark.parametrize(
    ("ufunc", "dtype"), [*itertools.product(ARITHMETIC, ["float32", "int32"]), (np.logical_and, "bool")]
)
def test_without_elements_the_result_is_the_identity(ufunc: np.ufunc, dtype: str) -> None:
    run([(ufunc, (3, 0), (1,), dtype, False), (ufunc, (0, 5), (0,), dtype, True), (ufunc, (0, 3), (1,), dtype, False)])


@pytest.mark.parametrize("ufunc", [np.maximum, np.minimum, np.add])
def test_nan_reaches_the_result(ufunc: np.ufunc) -> None:
    module = Module()
    name = reduce(module, ufunc, (3, 75), (1,), np.dtype(np.float32))
    compiled = Compiled(module, {name: (2, 0)})
    for place in range(75):
        x, out = np.ones((3, 75), np.float32), np.zeros(3, np.float32)
        x[1, place] = np.nan
        compiled(name, out, x)
        np.testing.assert_array_equal(np.isnan(out), [False, True, False])


@pytest.mark.parametrize("axis", [0, 1])
def test_long_sums_are_as_exact_as_those_of_numpy(axis: int) -> None:
    shape = (1, 400_000) if axis else (400_000, 1)
    module = Module()
    name = reduce(module, np.add, shape, (axis,), np.dtype(np.float32))
    compiled = Compiled(module, {name: (2, 0)})
    mine, numpys = [], []
    for seed in range(5):
        x, out = np.random.default_rng(seed).random(shape, np.float32), np.zeros(1, np.float32)
        compiled(name, out, x)
        exact = x.sum(dtype=np.float64)
        mine.append(abs(out[0] - exact))
        numpys.append(abs(x.ravel().sum() - exact))
    assert np.mean(mine) <= 2 * np.mean(numpys) + np.spacing(np.float32(200_000))


@pytest.mark.parametrize("ufunc", ARITHMETIC)
@pytest.mark.parametrize("axes", [(0,), (1,), (0, 1)], ids=str)
def test_a_result_may_be_combined_with_the_one_before(ufunc: np.ufunc, axes: tuple[int, ...]) -> None:
    x = values(np.random.default_rng(0), (5, 37), "float64")
    module = Module()
    name = reduce(module, ufunc, x.shape, axes, x.dtype, accumulate=True)
    assert reduce(module, ufunc, x.shape, axes, x.dtype) != name
    once = ufunc.reduce(x, axes)
    out = np.asarray(once + 0.5)
    want = ufunc(out, once)
    Compiled(module, {name: (2, 0)})(name, out, x)
    np.testing.assert_allclose(out, want, rtol=1e-12)


def test_a_reduction_is_one_function() -> None:
    module = Module()
    names = {reduce(module, np.add, (4, 16), axes, np.dtype(np.float32)) for axes in ((0, 1), (1, 0))}
    assert len(names) == 1
    assert module.text().count("define hidden") == 1


@pytest.mark.parametrize(
    ("ufunc", "shape", "axes", "dtype"),
    [
        (np.logical_and, (3,), (0,), "float32"),
        (np.hypot, (3,), (0,), "float32"),
        (np.add, (3,), (0,), "bool"),
        (np.add, (3,), (0,), "float16"),
        (np.add, (3,), (1,), "float32"),
        (np.add, (3, 4), (0, 0), "float32"),
        (np.add, (3, None), (0,), "float32"),
        (np.add, (-1,), (0,), "float32"),
    ],
)
def test_faults_are_reported(ufunc: np.ufunc, shape: tuple[int | None, ...], axes: tuple[int, ...], dtype: str) -> None:
    with pytest.raises(ValueError, match=r"native code has no|axes|dimension"):
        reduce(Module(), ufunc, shape, axes, np.dtype(dtype))
