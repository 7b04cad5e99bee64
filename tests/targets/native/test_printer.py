"""Control flow, arrays, lists and failures of native code are those of the Python target."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("llvmlite")

import headrace as hr
import headrace.v1 as v1
from headrace import flags, thresholds
from headrace.api import scopes
from headrace.errors import InvalidArgumentError
from headrace.targets.native import engine
from tests.targets.native import region_running as running

with flags.override(NATIVE="on"):
    if engine.available():
        pytest.skip(engine.available(), allow_module_level=True)

pytestmark = pytest.mark.one_engine

SINGLE = np.float32


def floats(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype(SINGLE)


def placeholders(*values: Any) -> tuple[list[Any], dict[Any, Any]]:
    """Placeholders of the dtypes and shapes of `values`, and their feeds."""
    made = [hr.placeholder(hr.as_dtype(np.asarray(v).dtype), np.shape(v)) for v in values]
    return made, dict(zip(made, values, strict=True))


@pytest.fixture(autouse=True)
def graph() -> Any:
    with hr.Graph():
        yield


# *** Control flow ***


@pytest.mark.parametrize("n", [0, 1, 7, 20_000])
def test_a_counting_loop_runs_its_iterations(n: int) -> None:
    (limit,), feeds = placeholders(np.int32(n))
    running.run(
        hr.while_loop(lambda i, x: i < limit, lambda i, x: (i + 1, x * 0.5 + 1.0), [0, hr.constant(1.0)]), feeds
    )


def test_a_counter_may_begin_above_its_limit_or_below_zero() -> None:
    (first, limit), feeds = placeholders(np.int32(-3), np.int32(2))
    running.run(hr.while_loop(lambda i, x: i < limit, lambda i, x: (i + 1, x + i), [first, hr.constant(0)]), feeds)
    (first, limit), feeds = placeholders(np.int32(9), np.int32(2))
    running.run(hr.while_loop(lambda i, x: i < limit, lambda i, x: (i + 1, x + i), [first, hr.constant(0)]), feeds)


@pytest.mark.parametrize("start", [0.5, 1000.0])
def test_a_loop_with_a_condition_runs_until_it_fails(start: float) -> None:
    (x,), feeds = placeholders(SINGLE(start))
    running.run(hr.while_loop(lambda x: x < 100.0, lambda x: (x * 1.5,), [x]), feeds)


def test_nested_loops() -> None:
    (n,), feeds = placeholders(np.int32(5))

    def body(i: Any, x: Any) -> Any:
        _, y = hr.while_loop(lambda j, y: j < i, lambda j, y: (j + 1, y * 0.9 + hr.cast(j, hr.float32)), [0, x])
        return i + 1, y

    running.run(hr.while_loop(lambda i, x: i < n, body, [0, hr.constant(1.0)]), feeds)


def test_loop_variables_change_places() -> None:
    (n, a, b), feeds = placeholders(np.int32(5), floats(3), floats(3, seed=1))
    running.run(hr.while_loop(lambda i, x, y, z: i < n, lambda i, x, y, z: (i + 1, y, x + y, x), [0, a, b, a]), feeds)


def test_a_loop_without_iterations_returns_its_initial_arrays() -> None:
    (n, a, b), feeds = placeholders(np.int32(0), floats(3), floats(3, seed=1))
    running.run(hr.while_loop(lambda i, x, y: i < n, lambda i, x, y: (i + 1, y * x, y + 1.0), [0, a, b]), feeds)


def test_an_initial_value_that_is_a_view_stays_unchanged() -> None:
    (n, a), feeds = placeholders(np.int32(3), floats(4, 5))
    turned = hr.transpose(a, [1, 0])
    running.run([turned, *hr.while_loop(lambda i, x: i < n, lambda i, x: (i + 1, x * 2.0), [0, turned])], feeds)


@pytest.mark.parametrize("index", [-1, 0, 1, 2, 9])
def test_a_case_takes_the_last_branch_for_an_index_out_of_range(index: int) -> None:
    (i, a), feeds = placeholders(np.int32(index), floats(3))
    running.run(hr.switch_case(i, [lambda: a * 2.0, lambda: a, lambda: a - 1.0]), feeds)


def test_results_of_conditionals_in_loops() -> None:
    (n, a), feeds = placeholders(np.int32(7), floats(3, 2))

    def body(i: Any, x: Any) -> Any:
        y = hr.cond(hr.equal(i % 2, 0), lambda: x * 2.0, lambda: x)
        return i + 1, hr.cond(hr.equal(i % 3, 0), lambda: hr.transpose(hr.reshape(y, [2, 3]), [1, 0]), lambda: y - 1.0)

    running.run(hr.while_loop(lambda i, x: i < n, body, [0, a]), feeds)


@pytest.mark.parametrize("shape", [(), (3,)])
def test_the_gradient_of_a_conditional_in_a_loop(shape: tuple[int, ...]) -> None:
    (n, x), feeds = placeholders(np.int32(9), np.full(shape, 0.7, SINGLE))

    def body(i: Any, y: Any) -> Any:
        return i + 1, hr.cond(
            hr.reduce_max(y) > 1.0 if not shape else hr.equal(i % 2, 0), lambda: y * 0.5, lambda: hr.sin(y) * y + 1.5
        )

    _, y = hr.while_loop(lambda i, y: i < n, body, [0, x])
    running.run([y, *hr.gradients(y, x)], feeds)


@pytest.mark.parametrize("shape", [(), (4,)])
def test_the_gradient_of_nested_loops(shape: tuple[int, ...]) -> None:
    (n, x), feeds = placeholders(np.int32(5), np.full(shape, 0.7, SINGLE))

    def body(i: Any, y: Any) -> Any:
        _, z = hr.while_loop(lambda j, z: j < i + 2, lambda j, z: (j + 1, hr.sin(z) * y), [0, y])
        return i + 1, z + 0.5  # + 1.0 has a derivative of 972

    _, y = hr.while_loop(lambda i, y: i < n, body, [0, x])
    running.run([y, *hr.gradients(y, x)], feeds)


# *** Arrays ***


def test_maps_broadcast_their_inputs() -> None:
    (a, b, c), feeds = placeholders(floats(4, 5), floats(5), floats(4, 1))
    y = hr.tanh(a * b + c)
    running.run([y, y - b * 2.0, b + c, b * 2.0], feeds)


@pytest.mark.parametrize("adjoint", [(False, False), (True, False), (False, True), (True, True)])
@pytest.mark.parametrize("batches", [((3,), (3,)), ((2, 3), (3,)), ((2, 1), (1, 3)), ((), (2,))])
def test_products_of_a_batch(batches: Any, adjoint: tuple[bool, bool]) -> None:
    sides = [s[::-1] if turned else s for s, turned in zip([(4, 5), (5, 7)], adjoint, strict=True)]
    (a, b), feeds = placeholders(*[floats(*batch, *side) for batch, side in zip(batches, sides, strict=True)])
    made = hr.matmul(a * 2.0, b, adjoint_a=adjoint[0], adjoint_b=adjoint[1])
    moved = hr.transpose(b, [*range(len(batches[1])), -1 % len(b.shape), -2 % len(b.shape)])
    running.run([made, hr.matmul(a, moved, adjoint_a=adjoint[0], adjoint_b=not adjoint[1]) + 1.0], feeds)


@pytest.mark.parametrize("dtype", ["uint8", "int32", "int64"])
@pytest.mark.parametrize("values", ["float32", "float64", "bool", "int8", "int64"])
def test_one_hot(dtype: str, values: str) -> None:
    numbers = np.array([[0, 2, 5], [1, 9, 3]], dtype)
    (i,), feeds = placeholders(numbers if dtype == "uint8" else numbers - 1)
    on, off = (hr.placeholder(values, ()) for _ in range(2))
    feeds |= {on: np.array(1, values), off: np.array(0, values)}
    made = [hr.one_hot(i, 4, on, off, axis, values) for axis in (-1, 0, 1)]
    running.run([*made, hr.one_hot(i[0, 1], 4, on, off, dtype=values), hr.transpose(made[1])], feeds)


def test_tiles() -> None:
    (a,), feeds = placeholders(floats(3, 4))
    turned = hr.transpose(a * 2.0, [1, 0])
    running.run([hr.tile(a, [2, 3]), hr.tile(turned[1:, ::2], [1, 2]) + 1.0, hr.tile(turned[2], [5]), turned], feeds)


def test_views_and_copies() -> None:
    (a,), feeds = placeholders(floats(4, 6))
    z = a * 2.0
    running.run(
        [
            hr.reshape(z[2, 3] * 3.0, [1, 1]),
            hr.reshape(hr.reshape(z[1, 1] + 1.0, [1]) * 2.0, []),
            hr.concat([a, z], 1),
            hr.transpose(z, [1, 0]),
            z[1:3, ::2],
            z[:, None] * 2.0,
            hr.reshape(z[1:, None, ::2, None] + 0.0, [9]),
            z[None, ..., 1:] + a[..., None, 1:][:, 0],
            hr.reshape(z, [2, 12]),
            z[2, 3],
            hr.reverse(z, [1]),
            hr.stack([z[0], z[2]]) * 2.0,
            hr.stack([z, a, z], axis=1),
            hr.stack([hr.transpose(z, [1, 0])], axis=-1),
            hr.stack([z[0, 1] * 2.0, z[1, 1]]),
            *hr.unstack(z),
            *hr.unstack(z, axis=-1),
            hr.unstack(z[:, 2])[3] + 1.0,
            hr.reshape(hr.transpose(z, [1, 0]), [3, 8]),
            hr.reshape(z[1:3], [12]),
            hr.reshape(z[:, 1:3], [8]),
            hr.tanh(hr.transpose(z[::2], [1, 0])),
            *hr.split(z, 3, axis=1),
        ],
        feeds,
    )


@pytest.mark.parametrize("dtype", ["float32", "float16", "int32", "bool"])
def test_gradients_of_slices_are_zeros_around_a_part(dtype: str) -> None:
    (x,), feeds = placeholders((np.arange(24).reshape(4, 6) % 7).astype(dtype))
    b = scopes.builder()

    def graded(part: Any, shape: list[int], begin: list[int], end: list[int], step: list[int], shrink: int = 0) -> Any:
        args = (b.const(np.array(v, np.int32)) for v in (shape, begin, end, step))
        return b.StridedSliceGrad(*args, part, shrink_axis_mask=shrink)

    running.run(
        [
            graded(x, [9, 6], [-4], [9], [1]),
            graded(x, [8, 3, 6], [0, 2], [8, 3], [2, 1], 2),
            graded(hr.transpose(x, [1, 0]), [6, 6], [0, 1], [6, 5], [1, 1]),
            graded(x[1, 2], [5], [-2], [-1], [1], 1),
            hr.pad(x, [[1, 2], [0, 3]]),
        ],
        feeds,
    )


@pytest.mark.parametrize("shape", [(3, 3), (3, 1, 3), (1, 4)])
def test_a_loop_chooses_rows(shape: tuple[int, ...]) -> None:
    (x, n), feeds = placeholders(floats(*shape), np.arange(shape[0], dtype=np.int32))

    def body(i: Any, y: Any, z: Any) -> Any:
        return i + 1, v1.where(n > i, y * 0.5 + 1.0, y), v1.where(n > i, z, y)

    running.run(hr.while_loop(lambda i, y, z: i < 3, body, [0, x, x / 0.0]), feeds)


def test_products_of_views() -> None:
    (a, b), feeds = placeholders(floats(4, 5), floats(5, 6, seed=1))
    y = hr.matmul(a, b)
    parts = hr.split(y, 3, axis=1)
    running.run(
        [
            y,
            hr.matmul(parts[0], parts[1], transpose_b=True),
            hr.matmul(hr.transpose(a, [1, 0]), parts[2]),
            hr.matmul(a[::2], b[:, ::2]),
            hr.matmul(a[:, ::2], b[::2]),
            hr.matmul(a[:1], b[:, :1]),
            hr.matmul(a[:, :1], b[:1]),
        ],
        feeds,
    )


def test_constants_are_part_of_the_code_or_inputs() -> None:
    (a,), feeds = placeholders(floats(20, 30))
    large, small = floats(20, 30, seed=1), floats(30, seed=2)
    running.run([a * hr.constant(large) + hr.constant(small), hr.zeros([20, 30]) + a, hr.constant(small)], feeds)


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "int32", "int64", "float64", "bool"])
def test_arrays_of_other_dtypes(dtype: str) -> None:
    raw = (np.arange(12).reshape(3, 4) % 5).astype(dtype)
    (a,), feeds = placeholders(raw)
    b = hr.logical_not(a) if dtype == "bool" else a + a
    running.run([b, hr.transpose(b, [1, 0]), hr.concat([a, b], 0), b[1, 2], hr.cast(b, hr.float32) * 0.5], feeds)


def test_maps_of_one_shape_run_in_one_nest() -> None:
    (a, b), feeds = placeholders(floats(4, 5), floats(4, 5, seed=1))
    c = hr.tanh(a) * b
    d = hr.transpose(c, [1, 0]) + 1.0
    seen = running.run([c - a, d, c + b], feeds)
    block = seen.programs[0].block
    shapes = [u.shape for u in running.printed(running.whole(block)).units if hasattr(u, "maps")]
    assert sorted(shapes) == [(4, 5), (5, 4)]


# *** Lists ***


def rnn(steps: int) -> tuple[list[Any], dict[Any, Any]]:
    (x, w, u), feeds = placeholders(floats(steps, 2, 3), floats(3, 3, seed=1), floats(3, 3, seed=2))
    rows = hr.TensorArray(hr.float32, steps, element_shape=[2, 3]).unstack(x)
    out = hr.TensorArray(hr.float32, steps, element_shape=[2, 3])

    def body(t: Any, h: Any, o: Any) -> Any:
        h = hr.tanh(hr.matmul(rows.read(t), w) + hr.matmul(h, u))
        return t + 1, h, o.write(t, h)

    _, h, o = hr.while_loop(lambda t, h, o: t < steps, body, [0, hr.zeros([2, 3]), out])
    return [h, o.stack(), *hr.gradients(h, [w, u, x])], feeds


def test_a_recurrent_network_with_its_gradient() -> None:
    running.run(*rnn(6))


def test_lists_grow_and_shrink() -> None:
    (n, x), feeds = placeholders(np.int32(300), floats(3))
    _, y = hr.while_loop(lambda i, y: i < n, lambda i, y: (i + 1, hr.sin(y) * y + x), [0, x])
    running.run([y, *hr.gradients(y, x)], feeds)


def test_missing_elements_are_zeros() -> None:
    (x,), feeds = placeholders(floats(2, 3))
    array = hr.TensorArray(hr.float32, 4, element_shape=[3]).write(2, x[0]).write(0, x[1])
    running.run([array.stack(), array.read(3)], feeds)


def test_an_element_is_copied_before_the_list_changes() -> None:
    (n, x), feeds = placeholders(np.int32(40), floats(3))
    b = scopes.builder()
    items = b.TensorListPushBack(b.EmptyTensorList([3], -1, element_dtype=hr.float32), x)

    def body(i: Any, items: Any, y: Any) -> Any:
        b = scopes.builder()
        items, last = b.TensorListPopBack(items, [3], element_dtype=hr.float32)
        items = b.TensorListPushBack(b.TensorListPushBack(items, y), last * 2.0)
        return i + 1, items, hr.sin(y) + last

    _, items, y = hr.while_loop(lambda i, items, y: i < n, body, [0, items, x])
    running.run([y, b.TensorListStack(items, [3], element_dtype=hr.float32)], feeds)


@pytest.mark.parametrize("index", [-1, 2, 7])
def test_an_index_out_of_range_fails_with_the_iteration(index: int) -> None:
    (i, x), feeds = placeholders(np.int32(index), floats(2, 3))
    rows = hr.TensorArray(hr.float32, 2, element_shape=[3], clear_after_read=False).unstack(x)
    _, y = hr.while_loop(
        lambda k, y: k < 3, lambda k, y: (k + 1, y + rows.read(hr.where(hr.equal(k, 2), i, 0))), [0, hr.zeros([3])]
    )
    seen = running.Seen()
    with (
        running.compared(running.close, seen),
        hr.Session(engine="compiled") as session,
        pytest.raises(InvalidArgumentError, match=f"element {index} in a list with 2"),
    ):
        session.run(y, feeds)
    assert seen.compared
    assert seen.failures[0][1] == [2]


def test_a_division_by_zero_fails() -> None:
    (a, b), feeds = placeholders(np.array([4, 5, 6], np.int32), np.array([1, 0, 2], np.int32))
    seen = running.Seen()
    with running.compared(running.close, seen), hr.Session(engine="compiled") as session:
        with pytest.raises(InvalidArgumentError, match="division by zero"):
            session.run(a // b, feeds)
        with pytest.raises(InvalidArgumentError, match="division by zero"):
            session.run(a[0] % (b[0] - 1), feeds)
        feeds[b] = np.array([3, -2, 4], np.int32)
        session.run([a // b, a % b], feeds)
    assert seen.compared == 3


# *** Regions ***


def test_other_instructions_stay_outside_of_regions(monkeypatch: pytest.MonkeyPatch) -> None:
    (a,), feeds = placeholders(floats(4, 4))
    monkeypatch.setattr(thresholds, "NATIVE_LEAST_SAVING", 0)
    found = running.regions_of([hr.linalg.det(hr.tanh(a) * a) * 2.0, hr.tanh(a)], feeds)
    assert len(found) == 1
    assert [v.shape for v in found[0].outputs] == [(4, 4), (4, 4)]


def test_a_single_operation_on_scalars_is_no_region() -> None:
    (a,), feeds = placeholders(SINGLE(1.0))
    assert running.regions_of(a + 1.0, feeds) == []


def test_polls_are_frequent() -> None:
    assert thresholds.NATIVE_POLL_EACH < thresholds.NATIVE_POLL_WORK


def test_buffers_have_guards_in_the_debug_mode() -> None:
    with flags.override(VERIFY=3):
        running.run(*rnn(3))
