"""Gradients of recorded computations, against numerical ones, `hr.grad` and formulas."""

from __future__ import annotations

import contextvars
import gc
import threading
import warnings
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import headrace as hr
from headrace import thresholds
from headrace.api import recorder
from headrace.eager import replay
from headrace.errors import InvalidArgumentError, ShapeError, SignatureError
from headrace.memo import Memo


def gradient(f: Callable[..., Any], *xs: Any) -> list[Any]:
    """Gradients of `f(*xs)` by a tape."""
    with hr.GradientTape() as tape:
        tape.watch(list(xs))
        y = f(*xs)
    found: list[Any] = tape.gradient(y, list(xs))
    return found


def numerical(f: Callable[..., Any], *xs: Any) -> list[np.ndarray]:
    """Differences of the sum of `f(*xs)`, in float64."""
    arrays = [np.asarray(x).copy() for x in xs]
    out = []
    for x in arrays:
        g = np.zeros_like(x)
        for at in np.ndindex(x.shape):
            start = x[at]
            values = []
            for step in (1e-6, -1e-6):
                x[at] = start + step
                values.append(float(np.sum(f(*map(hr.constant, arrays)))))
            x[at] = start
            g[at] = (values[0] - values[1]) / 2e-6
        out.append(g)
    return out


def doubles(*shape: int, seed: int = 0) -> Any:
    return hr.constant(np.random.default_rng(seed).uniform(0.5, 1.5, shape))


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> Memo[Any, Any]:
    """An empty memo of compiled gradients."""
    memo: Memo[Any, Any] = Memo("gradients of this test", 16)
    monkeypatch.setattr(replay, "_steps", memo)
    return memo


# *** values ***


def in_loop(x: Any) -> Any:
    y = x
    for i in range(3):
        y = hr.sin(y) * x if float(hr.reduce_sum(y)) > 1 else y + x * float(i)
    return y


def by_while_loop(x: Any) -> Any:
    return hr.while_loop(lambda i, y: i < 4, lambda i, y: (i + 1, hr.tanh(y) * x), (0, x))[1]


def by_cond(x: Any) -> Any:
    return hr.cond(hr.reduce_sum(x) > 0.0, lambda: x * x, lambda: -x)


def by_array(x: Any) -> Any:
    ta = hr.TensorArray(x.dtype, 3)
    for i in range(3):
        ta = ta.write(i, x * x * float(i + 1))
    return hr.reduce_sum(ta.stack() * ta.read(1))


def by_rows(x: Any) -> Any:
    return hr.add_n([row * float(i) * row for i, row in enumerate(x)])


CALLS = {
    "elementwise": lambda x: hr.exp(hr.sin(x)) / x,
    "matmul": lambda x: hr.matmul(x, x, transpose_b=True),
    "indexing": lambda x: x[1:, ::2] * x[0, 0] + x[..., -1][0],
    "reductions": lambda x: hr.reduce_max(x, 0) * hr.reduce_mean(x) + hr.reduce_logsumexp(x, 1, keepdims=True),
    "concat": lambda x: hr.concat([x, x * x], 0)[1:3],
    "split": lambda x: hr.split(x * x, 3, 1)[1],
    "softmax": lambda x: hr.nn.softmax(x)[0],
    "gather": lambda x: hr.gather(x, [1, 0, 1]) * x[0],
    "where": lambda x: hr.where(x > 1.0, x * x, hr.sqrt(x)),
    "cumsum": lambda x: hr.cumsum(x * x, 1),
    "loop": in_loop,
    "while_loop": by_while_loop,
    "cond": by_cond,
    "TensorArray": by_array,
    "iteration": by_rows,
    "map_fn": lambda x: hr.map_fn(lambda r: r * hr.reduce_sum(r), x),
    "scan": lambda x: hr.scan(lambda a, r: a * r, x),
    "float32 in between": lambda x: hr.cast(hr.cast(x * 2.0, hr.float64) * x, hr.float64),
    "recompute_grad": lambda x: hr.recompute_grad(lambda z: hr.tanh(hr.sin(z)))(x) * x,
    "py_function": lambda x: hr.py_function(lambda z: z * z * float(z[0, 0]) ** 0, [x], hr.float64) * x,
}


@pytest.mark.parametrize("name", CALLS)
def test_gradients_are_the_numerical_ones(name: str) -> None:
    x = doubles(2, 3)
    (found,) = gradient(CALLS[name], x)
    (want,) = numerical(CALLS[name], x)
    np.testing.assert_allclose(found, want, rtol=1e-5, atol=1e-7)


def test_complex_gradients_are_those_of_hr_grad() -> None:
    z = hr.constant(np.array([1 + 2j, 0.5 - 1j]))
    found = gradient(lambda z: hr.reduce_sum(hr.abs(z * z + hr.conj(z))), z)[0]
    want = hr.grad(lambda z: hr.reduce_sum(hr.abs(z * z + hr.conj(z))))(z)
    np.testing.assert_allclose(found, want)


def test_structures_of_targets_and_sources() -> None:
    x, y = hr.constant(2.0), hr.constant([1.0, 3.0])
    with hr.GradientTape() as tape:
        tape.watch({"x": x, "y": y})
        targets = {"a": x * y, "b": (x * x, [y])}
    found = tape.gradient(targets, (x, {"y": y}), {"a": [10.0, 1.0], "b": (None, [[0.0, 5.0]])})
    assert isinstance(found, tuple)
    assert float(found[0]) == 10 * 1 + 1 * 3 + 2 * 2
    assert found[1]["y"].numpy().tolist() == [20.0, 2.0 + 5.0]


def test_an_intermediate_tensor_is_a_source() -> None:
    x = hr.constant(3.0)
    with hr.GradientTape(persistent=True) as tape:
        tape.watch(x)
        a = x * x
        y = a * a + x
    assert [float(g) for g in tape.gradient(y, [a, x])] == [18.0, 109.0]
    assert float(tape.gradient(a, a)) == 1.0
    assert tape.gradient(a, y) is None


def test_only_what_the_block_watches_has_a_gradient() -> None:
    x, z = hr.constant(3.0), hr.constant(4.0)
    with hr.GradientTape(persistent=True) as tape:
        tape.watch(x)
        y = x * z
    assert tape.gradient(y, z) is None
    assert float(tape.gradient(y, z, unconnected_gradients="zero")) == 0.0
    assert tape.gradient(hr.stop_gradient(y), x) is None
    assert tape.gradient(x * z, x) is None  # after the block
    assert tape.gradient(hr.cast(y, hr.int32), x) is None


def test_stop_recording_and_reset() -> None:
    x = hr.constant(3.0)
    with hr.GradientTape() as tape:
        tape.watch(x)
        y = x * x
        with tape.stop_recording():
            y = y + 100.0 * x
        y = x * 5.0 + hr.stop_gradient(y)
    assert float(tape.gradient(y, x)) == 5.0
    with hr.GradientTape() as tape:
        tape.watch(x)
        y = x * x
        tape.reset()
        tape.watch(x)
        y = y * x
    assert float(tape.gradient(y, x)) == 9.0


# *** variables ***


def test_reads_have_the_value_of_their_time() -> None:
    v = hr.Variable([1.0, 2.0, 3.0])
    with hr.GradientTape() as tape:
        y = v * v
        v.assign_add([10.0, 10.0, 10.0])
        y = y * v
    (found,) = [tape.gradient(y, v)]
    assert found.numpy().tolist() == [2 * 1 * 11 + 1, 2 * 2 * 12 + 4, 2 * 3 * 13 + 9]
    assert v.numpy().tolist() == [11.0, 12.0, 13.0]


def test_trainable_variables_are_watched_where_they_are_read() -> None:
    v, w, fixed = hr.Variable(2.0), hr.Variable(3.0), hr.Variable(5.0, trainable=False)
    hr.Variable(7.0)
    with hr.GradientTape() as tape:
        y = v * fixed * w
    assert [t is u for t, u in zip(tape.watched_variables(), (v, w), strict=True)] == [True, True]
    assert tape.gradient(y, {"v": v, "fixed": fixed})["fixed"] is None
    with hr.GradientTape(watch_accessed_variables=False) as tape:
        tape.watch(fixed)
        y = v * fixed
    assert tape.watched_variables() == (fixed,)
    v_grad, fixed_grad = tape.gradient(y, [v, fixed])
    assert v_grad is None
    assert float(fixed_grad) == 2.0


def test_gathered_rows_give_slices() -> None:
    table = hr.Variable(np.arange(8.0).reshape(4, 2))
    with hr.GradientTape() as tape:
        y = hr.gather(table, [3, 1, 3]) * 2.0
    found = tape.gradient(y, table)
    assert isinstance(found, hr.IndexedSlices)
    assert found.indices.numpy().tolist() == [3, 1, 3]
    assert hr.convert_to_tensor(found).numpy().tolist() == [[0, 0], [2, 2], [0, 0], [4, 4]]


def test_a_variable_is_a_target() -> None:
    v = hr.Variable(2.0)
    with hr.GradientTape() as tape:
        tape.watch(v)
    assert float(tape.gradient(v, v)) == 1.0


def test_a_variable_of_changing_shape() -> None:
    v = hr.Variable([1.0], shape=[None])
    with hr.GradientTape() as tape:
        first = hr.reduce_sum(v * v)
        v.assign([2.0, 3.0, 4.0])
        second = hr.reduce_sum(v * 3.0)
    with pytest.raises(ShapeError, match="Dimensions must be equal"):
        tape.gradient([first, second], v)
    with hr.GradientTape() as tape:
        y = hr.reduce_sum(v * v)
    assert tape.gradient(y, v).numpy().tolist() == [4.0, 6.0, 8.0]


# *** orders and nesting ***


def test_nested_tapes_to_the_third_order() -> None:
    def f(x: Any) -> Any:
        return hr.reduce_sum(hr.sin(x) * x * x * x)

    x = doubles(3)
    with hr.GradientTape() as third:
        third.watch(x)
        with hr.GradientTape() as second:
            second.watch(x)
            with hr.GradientTape() as first:
                first.watch(x)
                y = f(x)
            dx = first.gradient(y, x)
        ddx = second.gradient(dx, x)
    dddx = third.gradient(ddx, x)

    def summed(g: Callable[[Any], Any]) -> Callable[[Any], Any]:
        return lambda x: hr.reduce_sum(g(x))

    d1 = hr.grad(f)
    d2 = hr.grad(summed(d1))
    d3 = hr.grad(summed(d2))
    for found, want in ((dx, d1(x)), (ddx, d2(x)), (dddx, d3(x))):
        np.testing.assert_allclose(found, want, rtol=1e-10)


def test_a_persistent_tape_differentiates_its_own_gradient() -> None:
    x = hr.constant(2.0)
    with hr.GradientTape(persistent=True) as tape:
        tape.watch(x)
        y = x * x * x
        dy = tape.gradient(y, x)
        ddy = tape.gradient(dy, x)
    assert float(tape.gradient(ddy, x)) == 6.0


@pytest.mark.parametrize(
    ("transform", "want"),
    [
        (lambda f, x: hr.grad(lambda z: hr.reduce_sum(f(z)))(x), [6.0, 12.0]),
        (lambda f, x: hr.jvp(f, (x,), (hr.ones_like(x),))[1], [6.0, 12.0]),
        (lambda f, x: hr.vjp(f, x)[0], [3.0, 12.0]),
        (lambda f, x: hr.vjp(f, x)[1](hr.ones_like(x))[0], [6.0, 12.0]),
        (lambda f, x: hr.vjp(lambda z: (f(z), f(z)), x, has_aux=True)[2], [3.0, 12.0]),
        (lambda f, x: hr.jacobian(f)(x), [6.0, 12.0]),
        (lambda f, x: hr.vmap(f)(x), [3.0, 12.0]),
        (lambda f, x: hr.jit(f)(x), [3.0, 12.0]),
    ],
)
def test_a_tape_records_transforms(transform: Callable[..., Any], want: list[float]) -> None:
    found = gradient(lambda x: transform(lambda z: z * z * z, x), hr.constant([1.0, 2.0]))[0]
    assert found.numpy().tolist() == want


def test_second_order_through_a_variable_and_an_array() -> None:
    v = hr.Variable(np.array([1.0, 2.0, 3.0]))
    with hr.GradientTape() as outer:
        with hr.GradientTape() as inner:
            ta = hr.TensorArray(hr.float64, 2).write(0, v * v).write(1, v)
            y = hr.reduce_sum(ta.stack()[0] * ta.stack()[1])
        dy = inner.gradient(y, v)
    np.testing.assert_allclose(outer.gradient(dy, v), 6 * v.numpy())


def test_jacobians() -> None:
    x, w = doubles(3), hr.Variable(np.arange(6.0).reshape(2, 3))
    with hr.GradientTape(persistent=True) as tape:
        tape.watch(x)
        y = hr.sin(hr.linalg.matvec(w, x))
        rows = hr.reduce_sum(hr.reshape(x, (3, 1)) * [[1.0, 2.0]], 1)
    cos = np.cos(w.numpy() @ x.numpy())
    of_x, of_w = tape.jacobian(y, [x, w])
    np.testing.assert_allclose(of_x, cos[:, None] * w.numpy())
    np.testing.assert_allclose(of_w, np.einsum("i,ij,k->ijk", cos, np.eye(2), x.numpy()))
    assert tape.jacobian(rows, hr.constant(1.0)) is None
    with hr.GradientTape() as tape:
        tape.watch(w.handle)
        z = doubles(4, 2)
        tape.watch(z)
        y = hr.stack([z[:, 0] * z[:, 1], z[:, 0], hr.exp(z[:, 1])], 1)
    found = tape.batch_jacobian(y, z)
    a, b = z.numpy().T
    zero, one = np.zeros(4), np.ones(4)
    np.testing.assert_allclose(found, np.stack([[b, a], [one, zero], [zero, np.exp(b)]]).transpose(2, 0, 1))


# *** nothing runs again ***


def test_a_gradient_runs_nothing_of_the_recorded_run_again() -> None:
    x, count, calls = hr.constant(2.0), hr.Variable(0.0), []

    def called(a: Any) -> Any:
        calls.append(a)
        return a

    with hr.GradientTape() as tape:
        tape.watch(x)
        noise = hr.random.normal((3,)) * x
        count.assign_add(x)
        y = hr.reduce_sum(noise * noise) * hr.py_func(called, [x], hr.float32)
    found = float(tape.gradient(y, x))
    np.testing.assert_allclose(found, float(np.sum(2 * noise.numpy() ** 2 / 2)) * 2.0, rtol=1e-5)
    assert len(calls) == 1
    assert float(count) == 2.0


def test_a_py_function_runs_once_and_has_derivatives_of_all_orders() -> None:
    calls = []

    def cube(z: Any) -> Any:
        calls.append(z)
        return z * z * z

    x = hr.constant(2.0)
    with hr.GradientTape() as outer:
        outer.watch(x)
        with hr.GradientTape() as inner:
            inner.watch(x)
            y = hr.py_function(cube, [x], hr.float32)
        dy = inner.gradient(y, x)
    assert (float(dy), float(outer.gradient(dy, x)), len(calls)) == (12.0, 12.0, 1)
    with hr.GradientTape(), pytest.raises(InvalidArgumentError, match=r"returns 2 values.*test_tape.py"):
        hr.py_function(lambda z: (z, z), [x], hr.float32)


# *** custom gradients ***


def test_a_custom_gradient_runs_eagerly_to_any_order() -> None:
    seen = []

    @hr.custom_gradient
    def log1pexp(x: Any) -> Any:
        e = hr.exp(x)

        def grad(dy: Any) -> Any:
            seen.append(float(hr.reduce_sum(dy)))  # a value: the function runs outside of graphs
            return dy * (1.0 - 1.0 / (1.0 + e))

        return hr.log(1.0 + e), grad

    x = hr.constant([0.5, 1.0])
    with hr.GradientTape() as outer:
        outer.watch(x)
        with hr.GradientTape() as inner:
            inner.watch(x)
            y = log1pexp(x * 2.0) * x
        dy = inner.gradient(y, x)
    ddy = outer.gradient(dy, x)
    assert seen == [1.5, 2.0]  # once for each gradient through it
    s = 1 / (1 + np.exp(-2 * x.numpy()))
    np.testing.assert_allclose(dy, np.log(1 + np.exp(2 * x.numpy())) + 2 * s * x.numpy(), rtol=1e-5)
    np.testing.assert_allclose(ddy, 2 * s + 2 * s + 4 * x.numpy() * s * (1 - s), rtol=1e-5)


def test_custom_gradients_in_a_row_with_several_results_and_variables() -> None:
    v = hr.Variable(3.0)

    @hr.custom_gradient
    def scaled(a: Any, b: Any) -> Any:
        def grad(da: Any, db: Any, variables: Any) -> Any:
            assert [w is v for w in variables] == [True]
            return (da * 10.0, db * 100.0), [da + db]

        return (a * v, b + v), grad

    x = hr.constant(2.0)
    with hr.GradientTape(persistent=True) as tape:
        tape.watch(x)
        a, b = scaled(x, x * x)
        c, _ = scaled(a * b, b)
    assert [float(g) for g in tape.gradient(a, [x, v])] == [10.0, 1.0]
    # da = 10 b, db = 10 a for c: dx = 10 * 10 b + 2 x * 100 * 10 a; dv = 1 + (10 b + 10 a)
    b_value, a_value = float(b), float(a)
    assert [float(g) for g in tape.gradient(c, [x, v])] == [
        100 * b_value + 2 * 2 * 1000 * a_value,
        1 + 10 * b_value + 10 * a_value,
    ]
    assert float(tape.gradient([a, b], a)) == 1.0


def test_a_custom_gradient_of_a_wrong_shape_is_refused() -> None:
    @hr.custom_gradient
    def f(x: Any) -> Any:
        return x * 2.0, lambda dy: hr.constant([[1.0, 2.0]])

    with pytest.raises(SignatureError, match=r"must return a tensor of dtype float32 and shape \[2\]"):
        gradient(f, hr.constant([1.0, 2.0]))


def test_recompute_grad_calls_again_and_compares() -> None:
    calls, v = [], hr.Variable(2.0)

    def f(x: Any) -> Any:
        calls.append(1)
        return x * x * v

    x = hr.constant(3.0)
    with hr.GradientTape() as outer:
        outer.watch(x)
        with hr.GradientTape() as inner:
            inner.watch(x)
            y = hr.recompute_grad(f)(x)
        dy, dv = inner.gradient(y, [x, v])
    assert (float(dy), float(dv), float(outer.gradient(dy, x)), len(calls)) == (12.0, 9.0, 4.0, 2)
    with pytest.raises(InvalidArgumentError, match="returned other values"):
        gradient(hr.recompute_grad(lambda x: x * hr.random.uniform(())), x)


def test_an_op_without_a_gradient_is_named() -> None:
    def f(a: Any) -> Any:
        return hr.unique(a)[0]

    line = f.__code__.co_firstlineno + 1
    with pytest.raises(LookupError, match=rf"\(Unique, made at .*test_tape.py:{line} in f\) has no gradient: "):
        gradient(f, hr.constant([1.0]))


# *** compiled steps ***


def test_a_training_loop_compiles_one_gradient(steps: Memo[Any, Any]) -> None:
    w = hr.Variable(np.zeros(3, np.float32))
    x, t = np.arange(6.0, dtype=np.float32).reshape(2, 3), np.array([1.0, 2.0], np.float32)
    made = []
    for k in range(5):
        with hr.GradientTape() as tape:
            loss = hr.reduce_mean(hr.square(hr.linalg.matvec(hr.constant(x + k), w) - t))
        g = tape.gradient(loss, w)
        np.testing.assert_allclose(g, 2 * (x + k).T @ ((x + k) @ w.numpy() - t) / 2, rtol=1e-5)
        w.assign_sub(0.01 * g)
        made.append(len(steps))
    assert made == [1] * 5
    assert steps.hits == 4


def test_an_index_that_varies_becomes_a_feed(steps: Memo[Any, Any]) -> None:
    x = hr.constant([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
    compiled = set()
    for i in (0, 1, 2, 1):
        found = gradient(lambda x, i=i: hr.reduce_sum(hr.gather(x, i, axis=0) ** 2.0, axis=0), x)[0]
        want = np.zeros((3, 2), np.float32)
        want[i] = 2 * x.numpy()[i]
        np.testing.assert_array_equal(hr.convert_to_tensor(found), want)
        (step,) = steps.values()
        compiled.add(id(step))
        last = step
    assert len(compiled) == 2
    assert last.constants  # the axis


def test_calls_without_a_gradient_do_not_change_the_structure(steps: Memo[Any, Any]) -> None:
    x = hr.constant(2.0)
    for k in range(3):
        with hr.GradientTape() as tape:
            tape.watch(x)
            y = x * x * hr.py_func(lambda a, k=k: a + np.float32(k), [x], hr.float32)
        assert float(tape.gradient(y, x)) == 4.0 * (2.0 + k)
    assert len(steps) == 1


def test_the_thresholds_bound_steps_and_constants(monkeypatch: pytest.MonkeyPatch) -> None:
    assert replay._steps.limit == thresholds.TAPE_GRADIENT_OPS
    assert replay._steps.size == sum(step.size for step in replay._steps.values())
    monkeypatch.setattr(thresholds, "TAPE_CONSTANT_ELEMENTS", 0)
    x = hr.constant([1.0, 2.0])
    with hr.GradientTape() as tape:
        tape.watch(x)
        y = hr.reshape(x * x, (2, 1))
    sliced = replay.Slice(tape._recording.entries, [(y, None)], [x])  # type: ignore[arg-type]
    assert sliced.constants == {}
    monkeypatch.undo()
    assert len(sliced.constants) == 1


# *** lifetimes and contexts ***


class _Freed:
    """Watches whether tensors are freed."""

    def __init__(self, *tensors: Any) -> None:
        self._refs = list(map(weakref.ref, tensors))

    def __bool__(self) -> bool:
        return all(r() is None for r in self._refs)


def test_tensors_are_freed_with_the_gradient_or_the_tape() -> None:
    gc.disable()  # references are counted: no cycle keeps the tensors
    try:
        x = hr.constant([1.0, 2.0])
        with hr.GradientTape() as tape:
            tape.watch(x)
            a = x * x
            y = a * a
            freed = _Freed(a)
        del a
        assert not freed
        tape.gradient(y, x)
        assert freed
        with hr.GradientTape(persistent=True) as tape:
            tape.watch(x)
            a = x * x
            y = a * a
            freed = _Freed(a)
        del a
        tape.gradient(y, x)
        assert not freed
        del tape
        assert freed
    finally:
        gc.enable()


def test_tensors_that_depend_on_nothing_watched_are_not_kept() -> None:
    x = hr.constant([1.0, 2.0])
    with hr.GradientTape() as tape:
        tape.watch(x)
        a = hr.constant([1.0]) * 2.0
        freed = _Freed(a)
        del a
        assert freed
    assert tape.gradient(x, x).numpy().tolist() == [1.0, 1.0]


def test_a_tape_records_its_own_context_alone() -> None:
    x, found = hr.constant(2.0), []

    def work() -> None:
        with hr.GradientTape() as mine:
            mine.watch(x)
            y = x * x
        found.append((y, float(mine.gradient(y, x))))

    with hr.GradientTape() as tape:
        tape.watch(x)
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        contextvars.Context().run(work)
    assert [g for _, g in found] == [4.0, 4.0]
    assert tape.gradient([y for y, _ in found], x) is None


def test_an_error_in_the_block_ends_the_recording() -> None:
    x = hr.constant(2.0)
    tape = hr.GradientTape()
    with pytest.raises(ZeroDivisionError), tape:
        1 / 0
    assert recorder.active.get() == ()
    assert float(gradient(lambda x: x * x, x)[0]) == 4.0


# *** in graphs ***


def test_inside_of_a_graph_the_gradient_is_that_of_the_graph() -> None:
    with hr.Graph() as g:
        v = hr.Variable(3.0)
        x = hr.placeholder(hr.float32, ())
        with hr.GradientTape() as tape:
            tape.watch(x)
            y = x * x * v
        grads = tape.gradient(y, {"x": x, "v": v})
        assert tape.gradient(y, ([x], (x * 2.0, v)))[1][0] is None
        matrix = tape.jacobian(hr.stack([y, x]), x)
    with hr.Session(graph=g) as session:
        session.run(v.initializer)
        assert session.run(grads, {x: 2.0}) == {"x": 12.0, "v": 4.0}
        assert session.run(matrix, {x: 2.0}).tolist() == [12.0, 1.0]


def test_a_training_step_in_a_jitted_function() -> None:
    w, x = hr.Variable([1.0, 2.0]), hr.constant([3.0, 4.0])

    @hr.jit
    def step(x: Any) -> Any:
        with hr.GradientTape() as tape:
            loss = hr.reduce_sum(w * x * w)
        g = tape.gradient(loss, w)
        w.assign_sub(g)
        return g

    assert step(x).numpy().tolist() == [6.0, 16.0]
    assert w.numpy().tolist() == [-5.0, -14.0]


# *** errors ***


def test_a_tape_that_is_not_persistent_serves_once() -> None:
    x = hr.constant(2.0)
    with hr.GradientTape() as tape:
        tape.watch(x)
        y = x * x
    tape.gradient(y, x)
    with pytest.raises(RuntimeError, match="can only be used to compute one set of gradients"):
        tape.gradient(y, x)
    with tape:
        tape.watch(x)
        y = x * 7.0
    assert float(tape.gradient(y, x)) == 7.0


@pytest.mark.parametrize(
    ("act", "kind", "text"),
    [
        (lambda t, x: t.watch(3.0), TypeError, "must be a tensor or variable, got the number 3.0"),
        (lambda t, x: t.watch([x, hr.constant(1)]), TypeError, r"tensor\[1\] is of dtype int32"),
        (lambda t, x: t.__enter__(), ValueError, "Tape is still recording"),
        (lambda t, x: t.gradient(x, "x"), TypeError, "source must be an eager tensor or variable"),
        (lambda t, x: t.gradient(2.0, x), TypeError, "target must be a tensor, got the number 2.0"),
        (lambda t, x: t.gradient(x, x, [1.0, 2.0]), SignatureError, "Length mismatch"),
        (lambda t, x: t.gradient(x, x, hr.constant([1.0, 2.0])), SignatureError, r"of shape \[2\]"),
        (lambda t, x: t.gradient(x, x, hr.constant(1)), SignatureError, "int32"),
        (lambda t, x: t.gradient(x, x, None, "zeros"), ValueError, "Unknown value for unconnected_gradients"),
        (lambda t, x: t.gradient(hr.cast(x, hr.complex64), x), TypeError, "whose gradient must be given"),
        (lambda t, x: t.jacobian([x, x], x), TypeError, "target must be one tensor"),
        (lambda t, x: t.batch_jacobian(x, x), ValueError, "first dimension of target shape"),
    ],
)
def test_wrong_uses_are_refused(act: Callable[[Any, Any], Any], kind: type[Exception], text: str) -> None:
    x = hr.constant(2.0)
    with hr.GradientTape() as tape:
        tape.watch(x)
        with pytest.raises(kind, match=text):
            act(tape, x)


def test_recording_is_stopped_and_reset_only_where_it_goes_on() -> None:
    tape = hr.GradientTape()
    with pytest.raises(RuntimeError, match="not recording"), tape.stop_recording():
        pass
    with pytest.raises(RuntimeError, match="not recording"):
        tape.reset()


# *** values that leave the tape ***


@pytest.mark.parametrize(
    "read", [float, int, lambda t: t.numpy(), np.asarray], ids=["float", "int", "numpy", "asarray"]
)
def test_a_warning_names_the_line_where_a_value_left_the_tape(read: Any) -> None:
    x = hr.constant(3.0)
    with hr.GradientTape() as tape:
        tape.watch(x)
        y = hr.constant(np.float32(read(x * x)))
    with pytest.warns(
        hr.errors.HeadraceWarning, match=r"every gradient of the tape is None.* read at .*test_tape\.py:\d+"
    ):
        assert tape.gradient(y, x) is None


def test_the_warning_names_a_few_lines() -> None:
    x = hr.constant(3.0)
    with hr.GradientTape() as tape:
        tape.watch(x)
        reads = [
            float(x),
            float(x),
            float(x),
            float(x),
        ]
    with pytest.warns(hr.errors.HeadraceWarning) as caught:
        assert tape.gradient(hr.constant(sum(reads)), x) is None
    assert str(caught[0].message).count("test_tape.py:") == thresholds.TAPE_NAMED_READS


def test_zeros_for_sources_without_a_path_need_no_warning() -> None:
    x = hr.constant(3.0)
    with hr.GradientTape() as tape:
        tape.watch(x)
        y = hr.constant(float(x))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert tape.gradient(y, x, unconnected_gradients="zero").numpy() == 0


def test_a_value_that_is_read_for_a_message_or_a_branch_needs_no_warning() -> None:
    x, other = hr.constant(3.0), hr.constant(1.0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with hr.GradientTape(persistent=True) as tape:
            tape.watch(x)
            y = x * x if x > 0 else -x
            float(y)
        assert tape.gradient(y, x).numpy() == 6
        with hr.GradientTape() as tape:
            tape.watch([x, other])
            y = x * x if x > 0 else -x
        assert tape.gradient(y, other) is None


def test_a_list_of_numbers_is_the_gradient_of_one_target() -> None:
    x = hr.constant([1.0, 2.0])
    with hr.GradientTape(persistent=True) as tape:
        tape.watch(x)
        y = x * x
    assert tape.gradient(y, x, output_gradients=[1.0, 10.0]).numpy().tolist() == [2, 40]
    with pytest.raises(ValueError, match=r"output_gradients must be a tensor of dtype float32 and shape \[2\]"):
        tape.gradient(y, x, output_gradients=[1.0, 2.0, 3.0])
