"""Native reads and writes at positions have the results and errors of kernels."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

pytest.importorskip("llvmlite")

import headrace as hr
from headrace import flags
from headrace.api import scopes
from headrace.errors import InvalidArgumentError
from headrace.opkit.forms import NATIVE, form_of
from headrace.schedule.program import Compute
from headrace.schedule.select import KernelCall
from headrace.targets.native import engine
from tests.targets.native import region_running as running

with flags.override(NATIVE="on"):
    if engine.available():
        pytest.skip(engine.available(), allow_module_level=True)

pytestmark = pytest.mark.one_engine

SEEDS = range(4)
SHAPES = ((3,), (4, 3), (1, 4), (2, 3, 4))
DTYPES = ("float32", "float64", "int32", "uint8", "float16", "bfloat16", "bool")


@pytest.fixture(autouse=True)
def graph() -> Any:
    with hr.Graph():
        yield


def numbers(rng: random.Random, dtype: str, shape: tuple[int, ...]) -> np.ndarray:
    seed = np.random.default_rng(rng.randrange(2**32))
    return np.asarray(seed.normal(size=shape) * 5).astype(hr.as_dtype(dtype).numpy)


def fed(feeds: dict[Any, Any], value: Any) -> Any:
    """A placeholder of the dtype and shape of a value, and its feed."""
    x = hr.placeholder(hr.as_dtype(np.asarray(value).dtype), np.shape(value))
    feeds[x] = value
    return x


def positions(rng: random.Random, n: int, shape: tuple[int, ...]) -> np.ndarray:
    """Positions in [0, n)."""
    found = [rng.randrange(n) for _ in range(int(np.prod(shape)))]
    return np.array(found, rng.choice([np.int32, np.int64])).reshape(shape)


def rows(rng: random.Random, whole: tuple[int, ...], depth: int, shape: tuple[int, ...]) -> np.ndarray:
    """Positions of `depth` coordinates."""
    return np.stack([positions(rng, n, shape).astype(np.int32) for n in whole[:depth]], -1)


def same(got: Any, want: Any) -> None:
    got, want = np.asarray(got), np.asarray(want)
    assert (got.dtype, got.shape) == (want.dtype, want.shape)
    np.testing.assert_array_equal(got, want)


def check(fetches: Any, feeds: dict[Any, Any]) -> None:
    """Compares native code with the kernels to the last bit."""
    seen = running.run(fetches, feeds, same)
    assert has_forms(seen.programs[-1])


def has_forms(program: Any) -> bool:
    """Whether an operation of a program has a form that only native code has."""
    calls = [i for b in program.walk() for i in b.instrs if isinstance(i, Compute) and isinstance(i.work, KernelCall)]
    return any(isinstance(form_of(i.op), NATIVE) for i in calls)


# *** Results ***


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_a_gather_along_an_axis(seed: int, dtype: str) -> None:
    rng, feeds = random.Random(seed), {}
    x = numbers(rng, dtype, SHAPES[seed])
    axis = rng.randrange(-x.ndim, x.ndim)
    at = positions(rng, x.shape[axis], ((), (5,), (2, 3), (1,))[rng.randrange(4)])
    check(hr.gather(fed(feeds, x), fed(feeds, at[()]), axis=axis), feeds)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_gather_from_a_transposed_array_by_reversed_positions(seed: int) -> None:
    rng, feeds = random.Random(seed), {}
    x = hr.transpose(fed(feeds, numbers(rng, "float32", (4, 3))), [1, 0])
    at = hr.reverse(fed(feeds, positions(rng, 3, (3, 2))), [0])
    check([hr.gather(x, at), hr.gather(x, at, axis=1), hr.gather(x, at[0, 1], axis=1)], feeds)


@pytest.mark.parametrize("seed", range(8))
def test_a_gather_by_batch(seed: int) -> None:
    rng, feeds = random.Random(seed), {}
    batch, shape = rng.choice([(2,), (2, 3)]), rng.choice([(4,), (3, 4), (3, 4, 2)])
    axis = len(batch) + rng.randrange(len(shape))
    x = numbers(rng, rng.choice(DTYPES), (*batch, *shape))
    at = positions(rng, x.shape[axis], (*batch, *rng.choice([(), (3,), (2, 2)])))
    check(hr.gather(fed(feeds, x), fed(feeds, at), axis=axis, batch_dims=len(batch)), feeds)


@pytest.mark.parametrize("seed", SEEDS)
def test_positions_out_of_range_are_ignored(seed: int) -> None:
    rng, feeds = random.Random(seed), {}
    x = numbers(rng, "float32", (4, 3, 2))
    depth = rng.randint(1, 3)
    at = rows(rng, (9, 9, 9), depth, (2, 5)) - 4
    where, updates = fed(feeds, at), fed(feeds, numbers(rng, "float32", (2, 5, *x.shape[depth:])))
    y, b, ignored = fed(feeds, x), scopes.builder(), {"bad_indices_policy": "IGNORE"}
    puts = [b.TensorScatterUpdate, b.TensorScatterAdd, b.TensorScatterSub]
    check([b.GatherNd(y, where, **ignored), b.ScatterNd(where, updates, x.shape, **ignored)], feeds)
    check([put(y, where, updates, **ignored) for put in puts], feeds)


@pytest.mark.parametrize("seed", range(8))
def test_a_range_from_a_position_and_its_gradient(seed: int) -> None:
    rng, feeds = random.Random(seed), {}
    x = fed(feeds, numbers(rng, "float64", (5, 4, 6)))
    sizes = [rng.randint(1, d - 1) for d in x.shape]
    begin: list[Any] = [rng.randint(0, d - n) for d, n in zip(x.shape, sizes)]
    for axis in rng.sample(range(3), rng.randint(1, 3)):
        begin[axis] = fed(feeds, np.int32(begin[axis]))
    part = hr.slice(x, hr.stack(begin), sizes)
    check([part, *hr.gradients(hr.reduce_sum(part * part), x)], feeds)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("dtype", ["float32", "int64", "bool"])
def test_a_gather_of_several_coordinates(seed: int, dtype: str) -> None:
    rng, feeds = random.Random(seed), {}
    x = numbers(rng, dtype, SHAPES[seed])
    at = rows(rng, x.shape, rng.randint(1, x.ndim), ((), (5,), (2, 3))[rng.randrange(3)])
    check(hr.gather_nd(fed(feeds, x), fed(feeds, at)), feeds)


def test_a_gather_of_no_coordinates_repeats_the_array() -> None:
    feeds: dict[Any, Any] = {}
    x = fed(feeds, np.arange(6.0).reshape(2, 3))
    running.run(hr.gather_nd(x + 1.0, fed(feeds, np.zeros((2, 1), np.int32))[:, :1]), feeds, same)


@pytest.mark.parametrize("seed", range(16))
def test_a_slice_at_a_position(seed: int) -> None:
    rng, feeds = random.Random(seed), {}
    x = numbers(rng, rng.choice(DTYPES), SHAPES[seed % 4])
    t = fed(feeds, np.int32(rng.randrange(-1, 1)))
    index = [
        rng.choice([t, slice(None), slice(rng.randrange(d), None, 2), slice(None, None, -1), rng.randrange(-d, d)])
        for d in x.shape[: rng.randint(1, x.ndim)]
    ]
    index[rng.randrange(len(index))] = t
    if rng.random() < 0.6:
        index.insert(rng.randrange(len(index) + 1), rng.choice([None, ...]))
    part = fed(feeds, x)[tuple(index)]
    check(part, feeds)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "uint8"])
@pytest.mark.parametrize("name", ["scatter_nd", "update", "add", "sub", "segments"])
def test_a_scatter(seed: int, dtype: str, name: str) -> None:
    rng, feeds = random.Random(seed), {}
    x = numbers(rng, dtype, SHAPES[seed])
    if name == "segments":
        ids = positions(rng, 4, x.shape[: rng.randint(1, x.ndim)]) - 1
        x = np.rint(x).astype(x.dtype)  # numpy adds many numbers in pairs
        check(hr.unsorted_segment_sum(fed(feeds, x), fed(feeds, ids), 3), feeds)
        return
    at = rows(rng, x.shape, rng.randint(1, x.ndim), rng.choice([(1,), (5,), (2, 3)]))
    updates = numbers(rng, dtype, (*at.shape[:-1], *x.shape[at.shape[-1] :]))
    where, given = fed(feeds, at), fed(feeds, updates)
    if name == "scatter_nd":
        check(hr.scatter_nd(where, given, x.shape), feeds)
    else:
        check(getattr(hr, f"tensor_scatter_nd_{name}")(fed(feeds, x), where, given), feeds)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "int32", "uint8"])
@pytest.mark.parametrize("find", [hr.argmax, hr.argmin])
def test_a_position_of_an_extreme(find: Callable[..., Any], dtype: str) -> None:
    rng, feeds = random.Random(dtype), {}
    value = numbers(rng, dtype, (4, 3, 5))
    if value.dtype.kind not in "iu":
        value[rng.randrange(4), 1, :2] = np.nan
        value[0, 0] = np.nan
        value[2, 0, :3] = -np.inf, np.nan, np.inf
    x = fed(feeds, value)
    check([*(find(x, axis) for axis in (0, 1, -1)), find(hr.transpose(x, [2, 0, 1]), 0), find(x[1, 1], 0)], feeds)


# *** Gradients, loops and conditionals ***


def _loop(step: Callable[[Any, Any], Any], initial: Any) -> Any:
    return hr.while_loop(lambda t, h: t < 6, lambda t, h: (t + 1, step(t, h)), (0, initial))[1]


def _filled(t: Any, o: Any, x: Any) -> Any:
    return hr.tensor_scatter_nd_update(o, [[t // 2]], (x[t] * 2.0 + o[t])[None])


LOOPS: dict[str, Callable[[Any, Any, Any, Any], Any]] = {
    "slice": lambda x, w, h, ids: _loop(lambda t, h: hr.tanh(h + x[t // 2 * 2]), h),
    "slice of a column": lambda x, w, h, ids: _loop(lambda t, h: hr.tanh(h + x[:, -1 - t // 3, :3][0]), h),
    "rows": lambda x, w, h, ids: _loop(lambda t, h: hr.tanh(h + hr.gather(w, ids[t]) + w[0]), h),
    "columns": lambda x, w, h, ids: _loop(
        lambda t, h: hr.tanh(hr.gather(h, hr.stack([2, 0, t % 3]), axis=1) + x[t]), h
    ),
    "put": lambda x, w, h, ids: _loop(lambda t, o: _filled(t, o, x), hr.zeros([6, 2, 3])),
    "add": lambda x, w, h, ids: _loop(lambda t, o: hr.tensor_scatter_nd_add(o, ids[t][:, None], x[t] + o[:2]), w),
    "greatest": lambda x, w, h, ids: _loop(lambda t, h: hr.tanh(hr.gather(w, hr.argmax(h, 1)) + w[1] + x[t]), h),
    "branch": lambda x, w, h, ids: _loop(
        lambda t, h: hr.cond(hr.equal(t % 2, 0), lambda: hr.tanh(h + x[t]), lambda: h * 0.5), h
    ),
    "range": lambda x, w, h, ids: _loop(
        lambda t, h: hr.tanh(h + hr.reduce_sum(hr.slice(x, hr.stack([t // 2, 0, 0]), [3, 2, 3]), 0)), h
    ),
    "by batch": lambda x, w, h, ids: _loop(
        lambda t, h: hr.tanh(hr.gather(h, hr.stack([[0, t % 3, 2], [2, 0, 0]]), axis=1, batch_dims=1) + x[t]), h
    ),
    "nested": lambda x, w, h, ids: _loop(
        lambda t, h: hr.while_loop(lambda k, h: k < 2, lambda k, h: (k + 1, hr.tanh(h + x[t] * w[k])), (0, h))[1], h
    ),
}


@pytest.mark.matrix
@pytest.mark.parametrize("verify", [0, 3])
@pytest.mark.parametrize("name", LOOPS)
def test_a_loop_is_native_with_its_gradient(name: str, verify: int) -> None:
    rng, feeds = random.Random(name), {}
    x, w, h = (fed(feeds, numbers(rng, "float32", s) / np.float32(4)) for s in ((6, 2, 3), (5, 3), (2, 3)))
    ids = fed(feeds, np.array([[rng.randrange(5) for _ in range(2)] for _ in range(6)], np.int32))
    loss = hr.reduce_sum(LOOPS[name](x, w, h, ids) ** 2)
    slopes = [hr.convert_to_tensor(g) for g in hr.gradients(loss, [x, w, h]) if g is not None]
    assert slopes
    with flags.override(VERIFY=verify):
        seen = running.run([loss, *slopes], feeds)
    assert has_forms(seen.programs[-1])


def test_an_array_is_changed_in_place_after_the_first_iteration() -> None:
    feeds: dict[Any, Any] = {}
    x, o = fed(feeds, np.arange(6, dtype=np.float32)), fed(feeds, np.ones(6, np.float32))
    made = _loop(lambda t, o: hr.tensor_scatter_nd_update(o, [[t // 2]], [x[t // 2] + o[5]]), o)
    seen = running.run([made, o + 1.0], feeds, same)
    region = running.whole(seen.programs[-1].block)
    (home,) = running.plan_of(region).homes.values()
    assert home.is_in_place


def test_an_array_that_is_read_later_is_not_changed_in_place() -> None:
    feeds: dict[Any, Any] = {}
    x, o = fed(feeds, np.arange(6, dtype=np.float32)), fed(feeds, np.ones(6, np.float32))

    def body(t: Any, o: Any, s: Any) -> Any:
        return t + 1, hr.tensor_scatter_nd_update(o, [[t // 2]], [x[t // 2] + o[5]]), hr.sin(o) + s

    running.run(hr.while_loop(lambda t, o, s: t < 6, body, (0, o, hr.zeros([6])))[1:], feeds)


# *** Errors ***

FAILING: dict[str, Callable[[Any, Any], Any]] = {
    "slice": lambda x, t: x[t * 2],
    "slice of a column": lambda x, t: x[:, t - 7][0],
    "row": lambda x, t: hr.gather(x, t - 2),
    "rows": lambda x, t: hr.gather(x, hr.stack([[0, 1], [t, 2 * t]])),
    "columns": lambda x, t: hr.gather(x, hr.stack([0, -t]), axis=1)[0],
    "by batch": lambda x, t: hr.gather(x[:2], hr.stack([[0, 1], [1, t]]), axis=1, batch_dims=1)[0],
    "range": lambda x, t: hr.slice(x, hr.stack([t, 0]), [2, 3]),
    "range before": lambda x, t: hr.slice(x, hr.stack([-t, 0]), [2, 3]),
    "coordinates": lambda x, t: hr.gather_nd(x, hr.stack([[0, t], [1, 2 * t]])),
    "scatter": lambda x, t: hr.scatter_nd(hr.stack([[1], [2 * t]]), x[:2], [4, 3]),
    "update": lambda x, t: hr.tensor_scatter_nd_update(x, hr.stack([[1], [-t]]), x[:2]),
    "segments": lambda x, t: hr.unsorted_segment_sum(x, hr.stack([0, -t, 1, 2 * t]), 4),
    "gradient": lambda x, t: scopes.builder().StridedSliceGrad(
        [4, 3], hr.stack([t * 2]), hr.stack([t * 2 + 1]), [1], x[0], shrink_axis_mask=1
    ),
}


@pytest.mark.parametrize("name", FAILING)
def test_a_position_out_of_range_has_the_error_of_the_kernel(name: str) -> None:
    x = hr.constant(np.arange(12, dtype=np.float32).reshape(4, 3)) * 1.0
    n = hr.placeholder(hr.int32, [])
    made = hr.while_loop(
        lambda t, y: t < n, lambda t, y: (t + 1, y + hr.reduce_sum(FAILING[name](x + y * 0.0, t))), (0, 0.0), name="L"
    )[1]
    texts, notes = [], []
    for native in "on", "off":
        with flags.override(NATIVE=native), hr.Session(engine="compiled") as session:
            if native == "on":
                assert "section" in str(session.explain(made, [n]).schedule)
            with pytest.raises(InvalidArgumentError) as e:
                session.run(made, {n: 50})
        texts.append(str(e.value))
        notes.append(getattr(e.value, "__notes__", []))
    assert texts[0] == texts[1]
    assert "of loop 'L'" in texts[0] + "".join(notes[0])
    assert "inputs: " in "".join(notes[0])
    if "slice" not in name and name != "gradient":  # the ends of their ranges are not known
        assert notes[0] == notes[1]


def test_a_branch_that_does_not_run_checks_no_position() -> None:
    feeds: dict[Any, Any] = {}
    x, t = fed(feeds, np.arange(4, dtype=np.float32)), fed(feeds, np.int32(9))
    running.run(hr.cond(t < 4, lambda: x[t], lambda: x[0] * 2.0), feeds)
