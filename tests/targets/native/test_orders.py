"""Native running results and elements that move to static places have the bits of kernels."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

pytest.importorskip("llvmlite")

import headrace as hr
from headrace import flags
from headrace.api import scopes
from headrace.opkit.forms import Assemble, form_of
from headrace.opkit.order_forms import MOST_PARTS
from headrace.targets.native import engine
from tests.targets.native import region_running as running
from tests.targets.native.test_indexing import check, fed, numbers, same

with flags.override(NATIVE="on"):
    if engine.available():
        pytest.skip(engine.available(), allow_module_level=True)

pytestmark = pytest.mark.one_engine

DTYPES = ("float32", "float64", "int32", "uint8")
SHAPES = ((5,), (3, 4), (2, 3, 4), (1, 1))
MATRICES = ((3, 3), (2, 4), (2, 3, 4), (5, 2), (1, 3))
ALIGNED = ("RIGHT_LEFT", "LEFT_RIGHT", "LEFT_LEFT", "RIGHT_RIGHT")


@pytest.fixture(autouse=True)
def graph() -> Any:
    with hr.Graph():
        yield


def drawn(dtype: str, shape: tuple[int, ...]) -> np.ndarray:
    return numbers(random.Random(f"{dtype}{shape}"), dtype, shape)


# *** Running results ***


@pytest.mark.matrix
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("scan", [hr.cumsum, hr.cumprod])
def test_running_results_along_each_axis(scan: Any, dtype: str, shape: tuple[int, ...]) -> None:
    value, feeds = drawn(dtype, shape), {}
    value.flat[0] = -0.0 if dtype.startswith("float") else 1
    x = fed(feeds, value)
    ways = [(e, r) for e in (False, True) for r in (False, True)]
    made = [scan(x, axis, exclusive=e, reverse=r) for axis in range(len(shape)) for e, r in ways]
    turned = hr.reverse(hr.transpose(x), [0])
    check([*made, *(scan(turned, -1, exclusive=e, reverse=r) for e, r in ways)], feeds)


def test_running_results_of_special_numbers() -> None:
    feeds: dict[Any, Any] = {}
    x = fed(feeds, np.array([[-0.0, np.inf, 1.0], [-0.0, -np.inf, np.nan], [0.0, 1e-45, -1.0]], np.float32))
    check([hr.cumsum(x, 0), hr.cumsum(x, 1, exclusive=True), hr.cumprod(x, 0, reverse=True)], feeds)


def test_a_running_logarithm_of_sums() -> None:
    feeds: dict[Any, Any] = {}
    x = fed(feeds, drawn("float32", (3, 4)))
    running.run([hr.cumulative_logsumexp(x, axis, exclusive=e) for axis in (0, 1) for e in (False, True)], feeds)


# *** Places ***


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", [*DTYPES, "bool", "bfloat16"])
def test_a_rotation(dtype: str, shape: tuple[int, ...]) -> None:
    feeds: dict[Any, Any] = {}
    x = fed(feeds, drawn(dtype, shape))
    axes = list(range(len(shape)))
    turned = hr.transpose(x)
    check(
        [hr.roll(x, 1, 0), hr.roll(x, [-7] * len(axes), axes), hr.roll(x, [2, 9], [0, 0]), hr.roll(turned, 2, -1)],
        feeds,
    )


@pytest.mark.matrix
@pytest.mark.parametrize("shape", MATRICES)
@pytest.mark.parametrize("align", ALIGNED)
def test_diagonals(align: str, shape: tuple[int, ...]) -> None:
    feeds: dict[Any, Any] = {}
    x, b = fed(feeds, drawn("float32", shape)), scopes.builder()
    seven, (rows, cols) = fed(feeds, np.float32(7)), shape[-2:]
    made = []
    for k in (0, 1, 1 - rows, [1 - rows, 1], [0, 1]):
        diagonals = np.array(k, np.int32)
        band = b.MatrixDiagPartV3(x, diagonals, seven, align=align)
        placed = b.MatrixSetDiagV3(x, band * 2.0, diagonals, align=align)
        made += [band, placed, b.MatrixDiagV3(band, diagonals, np.int32(rows), np.int32(cols), seven, align=align)]
    check(made, feeds)


@pytest.mark.parametrize("shape", MATRICES)
def test_main_diagonals_and_bands(shape: tuple[int, ...]) -> None:
    feeds: dict[Any, Any] = {}
    x, b = fed(feeds, drawn("float64", shape)), scopes.builder()
    turned = hr.linalg.matrix_transpose(x)
    bands = [b.MatrixBandPart(y, low, high) for y in (x, turned) for low, high in ((0, -1), (-1, 0), (1, 0), (0, 0))]
    diagonal = b.MatrixDiagPart(turned)
    check([*bands, diagonal, b.MatrixDiag(diagonal), b.MatrixSetDiag(turned, diagonal + 1.0)], feeds)


def test_padding_with_a_number() -> None:
    feeds: dict[Any, Any] = {}
    x, n = fed(feeds, drawn("float32", (2, 3))), fed(feeds, np.float32(-np.inf))
    check([scopes.builder().PadV2(x, [[1, 0], [0, 2]], y) for y in (n, 0.0, 2.5)], feeds)


def test_a_repeated_number() -> None:
    feeds: dict[Any, Any] = {}
    numbers = [fed(feeds, np.float32(-0.0)), fed(feeds, np.uint8(7)), fed(feeds, np.True_)]
    check([hr.fill([2, 3], n) for n in numbers], feeds)


def test_many_parts_are_left_to_the_kernel() -> None:
    x = hr.placeholder(hr.float32, (MOST_PARTS + 1, 3))
    assert form_of(scopes.builder().MatrixBandPart(x, 0, -1).op) is None
    assert isinstance(form_of(scopes.builder().MatrixBandPart(x[1:], 0, -1).op), Assemble)


# *** Reductions of integers and bools, half precision ***


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "int32", "int64", "uint64"])
def test_sums_and_products_of_integers_wrap(dtype: str) -> None:
    feeds: dict[Any, Any] = {}
    x = fed(feeds, np.random.default_rng(0).integers(0, 100, (3, 5, 7)).astype(dtype))
    made = [hr.reduce_sum(x), hr.reduce_sum(x, [0, 2]), hr.reduce_prod(x, 1, keepdims=True), hr.reduce_prod(x, [0, 1])]
    running.run(made, feeds, same)


@pytest.mark.parametrize("reduce", [hr.reduce_all, hr.reduce_any])
def test_reductions_of_bools(reduce: Any) -> None:
    feeds: dict[Any, Any] = {}
    x = fed(feeds, np.random.default_rng(0).random((3, 5, 4)) < (0.9 if reduce is hr.reduce_all else 0.1))
    running.run([reduce(x), reduce(x, [0]), reduce(x, [1, 2], keepdims=True), reduce(x[0, 0])], feeds, same)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_elementwise_operations_of_half_precision(dtype: str) -> None:
    feeds: dict[Any, Any] = {}
    special = [0.0, -0.0, np.inf, -np.inf, np.nan, 1e-7, 6e4, -1.5]
    x = fed(feeds, np.array([*special, *np.random.default_rng(0).normal(size=25)]).astype(hr.as_dtype(dtype).numpy))
    y = hr.reverse(x, [0])
    to = [hr.cast(x[5:], hr.int32), hr.cast(x, hr.float64), hr.cast(hr.cast(x, hr.float32) * 1.1, hr.as_dtype(dtype))]
    maps = [x + y, x * y, x / y, hr.maximum(x, y), hr.where(x > y, x, -y), hr.nn.relu(x), hr.square(x)]

    def alike(got: Any, want: Any) -> None:  # numpy's comparison takes no NaN of bfloat16
        assert got.dtype == want.dtype
        same(np.asarray(got, np.float64), np.asarray(want, np.float64))

    running.run([*to, *maps, hr.sqrt(hr.abs(x)), hr.floor(x)], feeds, alike)


# *** Loops ***

LOOPS: dict[str, Any] = {
    "cumsum": lambda z, t: hr.cumsum(z, 1, exclusive=True),
    "cumprod": lambda z, t: hr.cumprod(z, 1) * hr.reduce_prod(z, 1, keepdims=True),
    "roll": lambda z, t: hr.roll(z, [1, -1], [0, 1]),
    "diagonal": lambda z, t: hr.matmul(z, hr.linalg.diag(z[0])),
    "trace": lambda z, t: z * hr.linalg.trace(hr.matmul(z, z, transpose_b=True)),
    "band": lambda z, t: hr.linalg.band_part(hr.matmul(z, z, transpose_a=True), 0, -1)[:3],
    "half": lambda z, t: hr.cast(hr.tanh(hr.cast(z, hr.float16)) + hr.cast(z, hr.float16), hr.float32),
    "greatest": lambda z, t: z + hr.reduce_sum(hr.nn.top_k(z, 2)[0], 1, keepdims=True) * hr.sort(z, axis=1),
    "checked shape": lambda z, t: hr.ensure_shape(z, [None, 4]) + hr.fill([3, 4], hr.cast(t, hr.float32)) * z[0, 0],
    "finished": lambda z, t: hr.where(hr.reduce_all(z < 0.1 * hr.cast(t, hr.float32)), z, z * 0.5),
}


@pytest.mark.matrix
@pytest.mark.parametrize("name", LOOPS)
def test_a_loop_is_native_with_its_gradient(name: str) -> None:
    feeds: dict[Any, Any] = {}
    x, h = (fed(feeds, drawn("float32", (3, 4)) / np.float32(8)) for _ in range(2))

    def body(t: Any, h: Any) -> Any:
        return t + 1, hr.tanh(LOOPS[name](h, t) + x) + 0.3

    loss = hr.reduce_sum(hr.square(hr.while_loop(lambda t, h: t < 4, body, (0, h))[1]))
    slopes = [hr.convert_to_tensor(g) for g in hr.gradients(loss, [x, h]) if g is not None]

    def near(got: Any, want: Any) -> None:  # float16 rounds other last bits
        np.testing.assert_allclose(got, want, rtol=2e-2 if name == "half" else 2e-4, atol=1e-3)

    running.run([loss, *slopes], feeds, near)


# *** The greatest elements ***


@pytest.mark.matrix
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16", "int32", "uint8"])
def test_the_greatest_elements_of_rows(dtype: str) -> None:
    rng, feeds = random.Random(dtype), {}
    made = []
    for n in (1, 2, 3, 5, 8, 16, 40):
        value = numbers(rng, dtype, (6, n))
        if value.dtype.kind in "iu":
            value[3:] %= 4  # equal ones
        else:
            value[1:] = np.rint(value[1:].astype(np.float32))
            value[2, rng.randrange(n)] = np.nan
            value[3:5][rng.choices([True, False], k=2)] = np.nan
            value[5] = [rng.choice([np.nan, -0.0, 0.0, 1.0, np.inf, -np.inf]) for _ in range(n)]
        x = fed(feeds, value)
        made += [hr.nn.top_k(x, k) for k in {1, 2, 3, n // 2, n - 1, n} if 0 < k <= n and (k < n or n <= 16)]

    def alike(got: Any, want: Any) -> None:  # numpy's comparison takes no NaN of bfloat16
        assert got.dtype == want.dtype
        same(np.asarray(got, np.float64), np.asarray(want, np.float64))

    seen = running.run([[*pair] for pair in made], feeds, alike)
    assert seen.compared


@pytest.mark.matrix
@pytest.mark.parametrize("seed", range(12))
def test_the_greatest_elements_of_rows_with_many_nans(seed: int) -> None:
    rng, feeds = np.random.default_rng(seed), {}
    n = int(rng.integers(2, 17)) if seed % 2 else int(rng.integers(17, 60))
    value = rng.choice([np.nan, 1.0, 2.0, 3.0, -np.inf], (30, n), p=[0.2, 0.3, 0.2, 0.2, 0.1]).astype(np.float32)
    x = fed(feeds, value)
    counts = sorted({1, 2, n - 1, n // 2, *([n] if n <= 16 else [])} - {0})
    check([y for k in counts for y in hr.nn.top_k(x, k)], feeds)


def test_one_result_of_the_greatest_elements() -> None:
    feeds: dict[Any, Any] = {}
    x = fed(feeds, drawn("float32", (2, 3, 4)))
    turned = hr.transpose(x, [0, 2, 1])
    values, (_, indices) = hr.nn.top_k(turned, 2)[0], hr.nn.top_k(x, 3)
    check([values, indices, hr.sort(x, axis=-1), hr.sort(x, axis=0, direction="DESCENDING"), hr.argsort(x)], feeds)


def test_long_rows_are_sorted_by_the_kernel() -> None:
    x = hr.placeholder(hr.float32, (2, 17))
    assert form_of(hr.nn.top_k(x, 17)[0].op) is None
    assert form_of(hr.nn.top_k(x, 16)[0].op) is not None
