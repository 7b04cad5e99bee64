"""Matrix products as machine code, compared with numpy in float64."""

from __future__ import annotations

import dataclasses
import re
import sys

import numpy as np
import pytest

pytest.importorskip("llvmlite")

from headrace import thresholds
from headrace.execute import blas as blas_threads
from headrace.targets.native import blas
from headrace.targets.native.llvm_text import FINAL, Module
from headrace.targets.native.products import product
from tests.targets.native.product_running import Compiled, Guarded

TURNS = ((False, False), (False, True), (True, False), (True, True))
VECTORS = (64, 32, 16)
INTEGERS = ("int32", "int64")


@dataclasses.dataclass(frozen=True)
class Case:
    """One product, and the sizes that the caller of the function passes."""

    m: int
    k: int
    n: int
    turned: tuple[bool, bool] = (False, False)
    dtype: str = "float32"
    accumulate: bool = False
    gaps: tuple[int, int, int] = (0, 0, 0)
    passed: tuple[bool, bool] = (False, False)
    addend: str = ""  # "row" or "rows"

    @property
    def stored(self) -> list[tuple[int, int]]:
        """The shapes of A, B and C in memory, without gaps."""
        a, b = (self.m, self.k), (self.k, self.n)
        return [a[::-1] if self.turned[0] else a, b[::-1] if self.turned[1] else b, (self.m, self.n)]

    def add_to(self, module: Module, vector_bytes: int) -> tuple[str, tuple[int, int]]:
        """Adds the function; returns its name, and its numbers of addresses and sizes."""
        strides = [width + gap if gap else None for (_, width), gap in zip(self.stored, self.gaps, strict=True)]
        name = product(
            module,
            None if self.passed[0] else self.m,
            None if self.passed[1] else self.k,
            self.n,
            np.dtype(self.dtype),
            self.turned,
            accumulate=self.accumulate,
            row_strides=(strides[0], strides[1], strides[2]),
            addend={"": None, "row": 0, "rows": self.n}[self.addend],
            vector_bytes=vector_bytes,
        )
        return name, (4 if self.addend else 3, sum(self.passed))

    def check(self, compiled: Compiled, name: str, rng: np.random.Generator, at_end: bool = True) -> None:
        """Runs the function on random matrices next to guard pages, and compares."""
        dtype = np.dtype(self.dtype)
        memory, matrices = [], []
        for (rows, width), gap in zip(self.stored, self.gaps, strict=True):
            values = (
                rng.standard_normal((rows, width + gap))
                if dtype.kind == "f"
                else rng.integers(-99, 99, (rows, width + gap))
            )
            flat = values.astype(dtype).ravel()
            guarded = Guarded(flat[: flat.size - gap] if rows else flat, at_end)  # the last row has no gap
            memory.append(guarded)
            strides = ((width + gap) * dtype.itemsize, dtype.itemsize)
            matrices.append(np.lib.stride_tricks.as_strided(guarded.array, (rows, width), strides))
        a, b, c = matrices
        before, kept = c.astype(np.float64), memory[2].array.copy()
        sizes = [size for size, passed in zip((self.m, self.k), self.passed, strict=True) if passed]
        added = rng.integers(-99, 99, (self.m if self.addend == "rows" else 1) * self.n).astype(dtype)
        memory.append(Guarded(added, at_end))
        order = (2, 0, 1, 3) if self.addend else (2, 0, 1)
        compiled(name, *(memory[k].array for k in order), *sizes)
        left, right = a.T if self.turned[0] else a, b.T if self.turned[1] else b
        left, right = left.astype(np.float64), right.astype(np.float64)
        expected = left @ right + (before if self.accumulate else 0)
        expected += added.reshape(-1, self.n) if self.addend and self.n else 0
        bound = np.zeros_like(expected)
        if dtype.kind == "f":
            size = np.abs(left) @ np.abs(right) + np.abs(before) + (99 if self.addend else 0)
            bound = (self.k + 2) * np.finfo(dtype).eps * size
        assert (np.abs(c - expected) <= bound).all(), self
        if self.gaps[2]:  # memory between the rows of C
            outside = np.ones(kept.size, bool)
            places = np.arange(self.m)[:, None] * (self.n + self.gaps[2]) + np.arange(self.n)
            outside[places.ravel()] = False
            np.testing.assert_array_equal(memory[2].array[outside], kept[outside])


def run(cases: list[Case], vector_bytes: int, seed: int = 0) -> None:
    """Compiles the cases as one module and checks each."""
    rng, module = np.random.default_rng(seed), Module()
    names = [case.add_to(module, vector_bytes) for case in cases]
    compiled = Compiled(module, dict(names), vector_bytes)
    for i, (case, (name, _)) in enumerate(zip(cases, names, strict=True)):
        case.check(compiled, name, rng, at_end=bool(i % 2))


def drawn(rng: np.random.Generator, count: int, first: int = 0) -> list[Case]:
    """Random cases, a part of them vectors or products with a long inner dimension."""
    out = []
    for i in range(first, first + count):
        m, k, n = (int(size) for size in rng.integers(1, 41, 3))
        m, k, n = 1 if i % 7 == 0 else m, int(rng.integers(100, 700)) if i % 9 == 4 else k, 1 if i % 5 == 0 else n
        turned = TURNS[rng.integers(4)]
        passed = bool(rng.integers(4) == 0), bool(rng.integers(4) == 0)
        gaps = [int(gap) for gap in rng.integers(1, 9, 3) * rng.integers(0, 2, 3)]
        if (passed[0] and turned[0]) or (passed[1] and not turned[0]):
            gaps[0] = 0  # the function takes the length of a row for the distance of rows
        if passed[1] and turned[1]:
            gaps[1] = 0
        dtype = ("float32", "float64", "float32", "float64", *INTEGERS)[i % 6]
        addend = ("", "", "row", "rows")[rng.integers(4)]
        out.append(Case(m, k, n, turned, dtype, bool(rng.integers(2)), (gaps[0], gaps[1], gaps[2]), passed, addend))
    return out


pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="guard pages need mprotect")


@pytest.mark.parametrize("vector_bytes", VECTORS)
@pytest.mark.parametrize("seed", range(4))
def test_products_are_those_of_numpy(vector_bytes: int, seed: int) -> None:
    run(drawn(np.random.default_rng([seed, vector_bytes]), 4, 4 * seed), vector_bytes, seed)


@pytest.mark.matrix
@pytest.mark.rotated(3)
@pytest.mark.parametrize("vector_bytes", VECTORS)
@pytest.mark.parametrize("seed", range(10, 20))
def test_many_products_are_those_of_numpy(vector_bytes: int, seed: int) -> None:
    run(drawn(np.random.default_rng([seed, vector_bytes]), 40), vector_bytes, seed)


@pytest.mark.parametrize("turned", TURNS)
def test_products_of_recurrent_layers(turned: tuple[bool, bool]) -> None:
    run([Case(4, 16, 16, turned), Case(8, 128, 64, turned), Case(1, 64, 128, turned), Case(16, 4, 16, turned)], 64)


@pytest.mark.parametrize("turned", TURNS)
def test_an_inner_dimension_is_divided_into_blocks(turned: tuple[bool, bool]) -> None:
    cases = [Case(20, k, 24, turned, accumulate=accumulate) for k in (256, 257, 600) for accumulate in (False, True)]
    run([*cases, Case(20, 523, 24, turned, passed=(False, True))], 64)


@pytest.mark.parametrize("addend", ["row", "rows"])
def test_an_addend_is_added_to_sums_of_any_form(addend: str) -> None:
    cases = [Case(20, k, 24, turned, addend=addend) for k in (0, 8, 257) for turned in TURNS]
    cases += [Case(5, 40, 1, addend=addend), Case(1, 64, 24, (False, True), addend=addend)]
    run([*cases, Case(20, 40, 24, passed=(True, True), addend=addend)], 64)


@pytest.mark.parametrize("accumulate", [False, True])
def test_a_product_without_terms_is_zero(accumulate: bool) -> None:
    cases = [Case(3, 0, 4), Case(0, 3, 4), Case(3, 4, 0), Case(3, 0, 4, (True, True)), Case(0, 0, 0)]
    passed = [Case(3, 0, 20, t, passed=(False, True)) for t in TURNS] + [
        Case(0, 5, 9, t, passed=(True, False)) for t in TURNS
    ]
    run([dataclasses.replace(case, accumulate=accumulate) for case in [*cases, *passed]], 64)


@pytest.mark.parametrize("turned", TURNS)
@pytest.mark.parametrize("n", [1, 7, 16])
def test_nan_and_infinity_stay_in_their_rows_and_columns(turned: tuple[bool, bool], n: int) -> None:
    module = Module()
    case = Case(5, 21, n, turned)
    name, counts = case.add_to(module, 64)
    compiled = Compiled(module, {name: counts})
    rng = np.random.default_rng(0)
    a, b = (rng.uniform(1, 2, shape).astype(np.float32) for shape in ((5, 21), (21, n)))
    a[1, 20], a[3, 2], b[20, n - 1] = np.nan, np.inf, -np.inf
    c = np.zeros((5, n), np.float32)
    stored = [np.ascontiguousarray(x.T if t else x) for x, t in zip((a, b), turned, strict=True)]
    compiled(name, c, *stored)
    with np.errstate(invalid="ignore"):
        expected = a.astype(np.float64) @ b.astype(np.float64)
    np.testing.assert_array_equal(np.isnan(c), np.isnan(expected))
    np.testing.assert_array_equal(c[np.isinf(expected)], expected[np.isinf(expected)])
    np.testing.assert_allclose(c, expected, 1e-5)


@pytest.mark.parametrize("turned", TURNS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_large_products_are_those_of_the_library(
    dtype: str, turned: tuple[bool, bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(thresholds, "NATIVE_LIBRARY_PRODUCT", 1)
    cases = [
        Case(m, k, n, turned, dtype, accumulate, gaps, passed)
        for accumulate, gaps, passed in (
            (False, (0, 0, 0), (False, False)),
            (True, (0, 0, 5), (False, False)),
            (False, (0, 0, 0), (True, True)),
        )
        for m, k, n in ((3, 4, 5), (1, 4, 5), (3, 1, 5), (3, 4, 1))
    ]
    module = Module()
    names = [case.add_to(module, 64) for case in cases]
    functions = dict(names)
    assert module.text().count(f"call void @{blas.NAMES[dtype]}(") == len(functions)
    compiled = Compiled(module, functions)
    for case, (name, _) in zip(cases, names, strict=True):
        case.check(compiled, name, np.random.default_rng(0))


def test_integers_are_never_products_of_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(thresholds, "NATIVE_LIBRARY_PRODUCT", 1)
    module = Module()
    Case(3, 4, 5, dtype="int32").add_to(module, 64)
    assert "hr_" not in module.text()


def test_a_size_that_the_caller_passes_selects_the_library() -> None:
    rows = thresholds.NATIVE_LIBRARY_PRODUCT // (512 * 512)
    module = Module()
    name = product(module, None, 512, 512, np.dtype(np.float32), (False, False))
    text = module.text()
    assert re.search(rf"icmp sge i64 %\S+, {thresholds.NATIVE_LIBRARY_PRODUCT}\b", text)
    assert "@hr_sgemm" in text
    assert "hr_" not in _text_of(rows - 1)
    assert "hr_" in _text_of(rows)
    assert name == "@product_float32_sx512x512_nn_64"


def _text_of(rows: int) -> str:
    module = Module()
    product(module, rows, 512, 512, np.dtype(np.float32), (False, False))
    return module.text()


def test_steps_limit_the_threads_of_the_library() -> None:
    import threadpoolctl

    blas.symbols()
    with blas_threads.threads(1):
        libraries = [lib for lib in threadpoolctl.threadpool_info() if lib["user_api"] == "blas"]
        assert libraries
        assert {lib["num_threads"] for lib in libraries} == {1}


def test_a_product_is_one_function() -> None:
    module = Module()
    names = {product(module, 4, 16, 16, np.dtype(np.float32), (False, True)) for _ in range(3)}
    other = product(module, 4, 16, 16, np.dtype(np.float32), (False, True), row_strides=(None, None, 16))
    assert names == {other}
    assert module.text().count("define internal void @product") == 1


def test_large_products_and_those_that_pack_nothing_are_in_final_form() -> None:
    module = Module()
    for size, is_turned in ((16, True), (16, False), (64, True)):
        product(module, size, size, size, np.dtype(np.float32), (False, is_turned))
    usual, final = module.text().split(FINAL)
    assert (usual.count("define internal"), final.count("define hidden")) == (2, 3)  # packing is a function of each
    assert "@packing_float32_16_small(" in usual
    assert "_small" not in final


def test_a_product_is_repeatable() -> None:
    module = Module()
    case = Case(9, 100, 33, (False, True))
    name, counts = case.add_to(module, 64)
    compiled = Compiled(module, {name: counts})
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((9, 100)).astype(np.float32), rng.standard_normal((33, 100)).astype(np.float32)
    results = []
    for shift in range(3):  # the addresses differ
        memory = np.zeros(9 * 33 + shift, np.float32)[shift:]
        compiled(name, memory, a, b)
        results.append(memory.tobytes())
    assert len(set(results)) == 1


@pytest.mark.parametrize(
    ("sizes", "dtype", "strides", "message"),
    [
        ((-1, 2, 3), "float32", (None, None, None), "must not be negative"),
        ((1, 2, 3), "float32", (None, 2, None), "3 elements"),
        ((1, 2, 3), "complex64", (None, None, None), "complex64"),
        ((1, 2, 3), "float16", (None, None, None), "float16"),
    ],
)
def test_faults_are_reported(
    sizes: tuple[int, int, int], dtype: str, strides: tuple[int | None, int | None, int | None], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        product(Module(), *sizes, np.dtype(dtype), (False, False), row_strides=strides)
