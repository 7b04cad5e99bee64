"""Conditionals, loops and calls under vmap, with predicates that differ between examples, against plain loops."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import headrace as hr
from headrace.errors import InvalidArgumentError, UnimplementedError
from tests.vmap.alone import as_array, check

X = np.array([4.0, -1.0, 9.0, 0.25, -7.0], np.float32)
M = np.arange(12, dtype=np.float32).reshape(4, 3) - 5


def signed_root(x: Any) -> Any:
    return hr.cond(x > 0, lambda: hr.sqrt(x), lambda: -x)


def test_a_conditional_selects_for_each_example() -> None:
    check(signed_root, X)
    check(lambda m: hr.cond(hr.reduce_sum(m) > 0, lambda: (m * 2, m[0]), lambda: (m + 1, m[1])), M)


def test_gradients_of_a_selected_conditional_have_no_nan() -> None:
    check(hr.grad(signed_root), X)
    total = hr.grad(lambda x: hr.reduce_sum(hr.vmap(signed_root)(x)))(X)
    want = [0.25, -1.0, 1 / 6, 1.0, -1.0]
    np.testing.assert_allclose(as_array(total), want, rtol=1e-6)


def test_a_branch_fails_only_for_examples_that_take_it() -> None:
    def f(i: Any, x: Any) -> Any:
        return hr.cond(i < 3, lambda: hr.gather(x, i), lambda: 0.0)

    check(f, np.array([0, 7, 2, 100], np.int32), np.arange(12, dtype=np.float32).reshape(4, 3))
    with pytest.raises(InvalidArgumentError):
        hr.vmap(f)(np.array([0, -5], np.int32), np.zeros((2, 3), np.float32))


def test_a_branch_that_no_example_takes_is_not_computed() -> None:
    def f(x: Any) -> Any:
        return hr.cond(x > 100, lambda: hr.check_numerics(hr.log(x - 200.0), "in the branch"), lambda: x)

    check(f, X)


def test_a_predicate_of_the_batch_stays_a_conditional() -> None:
    def f(p: Any, x: Any) -> Any:
        return hr.cond(p, lambda: x * 2, lambda: x)

    for p in (True, False):
        check(f, np.array(p), X, in_axes=(None, 0))
    with hr.Graph() as g:
        hr.vmap(f, in_axes=(None, 0))(hr.placeholder(hr.bool, ()), hr.placeholder(hr.float32, [3]))
        assert [op.type for op in g.operations if op.opdef.structured] == ["StatelessIf"]


def test_switch_case_selects_among_branches() -> None:
    def f(i: Any, x: Any) -> Any:
        return hr.switch_case(i, [lambda: x, lambda: x * 10, lambda: hr.constant(-1.0)])

    check(f, np.array([0, 1, 2, 9, -4], np.int32), X)


def test_nested_conditionals() -> None:
    def f(x: Any) -> Any:
        return hr.cond(
            x > 0,
            lambda: hr.cond(x > 5, lambda: x * 10, lambda: x * 100),
            lambda: hr.cond(x < -5, lambda: 1.0, lambda: x),
        )

    check(f, X)
    check(hr.grad(f), X)


# *** loops ***


def doubling(x: Any) -> Any:
    return hr.while_loop(lambda a, n: a < 10.0, lambda a, n: (a * 2, n + 1), (x, 0))


def test_a_loop_runs_for_each_example_as_long_as_its_condition_holds() -> None:
    check(doubling, np.array([4.0, 1.0, 9.0, 20.0, 0.3], np.float32))


def test_gradients_of_a_loop_of_the_batch_are_those_of_each_example() -> None:
    x = np.array([4.0, 1.0, 9.0, 20.0, 0.3], np.float32)
    grads = hr.grad(lambda x: hr.reduce_sum(hr.vmap(lambda a: doubling(a)[0])(x)))(x)
    np.testing.assert_allclose(as_array(grads), [4.0, 16.0, 2.0, 1.0, 64.0])


def test_a_finished_example_reads_no_element_out_of_range() -> None:
    def total(n: Any, x: Any) -> Any:
        return hr.while_loop(lambda i, s: i < n, lambda i, s: (i + 1, s + x[i]), (0, 0.0))[1]

    check(total, np.array([0, 3, 1, 2], np.int32), np.arange(12, dtype=np.float32).reshape(4, 3))


def test_a_loop_without_iterations() -> None:
    check(doubling, np.array([20.0, 30.0], np.float32))


def test_a_loop_of_unbatched_condition_stays_a_loop() -> None:
    def f(x: Any) -> Any:
        return hr.while_loop(lambda i, a: i < 3, lambda i, a: (i + 1, a * x), (0, 1.0))[1]

    check(f, X)
    check(hr.grad(f), X)
    with hr.Graph() as g:
        hr.vmap(f)(hr.placeholder(hr.float32, [5]))
        assert [op.type for op in g.operations if op.opdef.structured] == ["StatelessWhile"]
        (loop,) = (op for op in g.operations if op.opdef.structured)
        assert [t.shape for t in loop.outputs[:2]] == [(), (5,)]


def test_conditionals_in_loops() -> None:
    def collatz(n: Any) -> Any:
        step = lambda a: hr.cond(hr.equal(a % 2, 0), lambda: a // 2, lambda: 3 * a + 1)
        return hr.while_loop(lambda a, i: a > 1, lambda a, i: (step(a), i + 1), (n, 0))[1]

    check(collatz, np.array([1, 6, 7, 27, 2], np.int32))


def test_loops_in_loops_and_in_conditionals() -> None:
    def inner(x: Any, n: Any) -> Any:
        return hr.while_loop(lambda i, a: i < n, lambda i, a: (i + 1, a + x), (0, 0.0))[1]

    def f(x: Any) -> Any:
        n = hr.cast(hr.abs(x), hr.int32)
        outer = hr.while_loop(lambda j, s: j < n, lambda j, s: (j + 1, s + inner(x, j)), (0, 0.0))[1]
        return hr.cond(x > 0, lambda: outer, lambda: inner(x, 3))

    check(f, X)


def test_maximum_iterations() -> None:
    check(lambda x: hr.while_loop(lambda a: a < 100.0, lambda a: a * 2, [x], maximum_iterations=3), np.abs(X))


def test_scans() -> None:
    check(lambda m: hr.scan(lambda a, x: a * 0.5 + x, m), M)


def test_maps() -> None:
    check(lambda m: hr.map_fn(lambda x: x * x, m), M)


def test_folds() -> None:
    check(lambda m: hr.foldl(lambda a, x: a * x + 1, m), M)


@pytest.mark.system
def test_gradients_of_scans_and_maps() -> None:
    check(hr.grad(lambda m: hr.reduce_sum(hr.scan(lambda a, x: hr.tanh(a * x), m))), M)
    check(hr.grad(lambda m: hr.reduce_sum(hr.map_fn(lambda x: x * x * x, m))), M)


def rooted(x: Any) -> Any:
    """A loop that runs for a number of iterations that depends on the value."""
    return hr.while_loop(lambda a, i: a < 10.0, lambda a, i: (a * hr.sqrt(a) * 2, i + 1), (x, 0))[0]


@pytest.mark.system
def test_gradients_of_loops_that_end_apart() -> None:
    x = np.array([4.0, 1.0, 9.0, 20.0, 0.3], np.float32)
    check(hr.grad(rooted), x)
    check(hr.grad(hr.grad(rooted)), x, rtol=1e-4)


@pytest.mark.system
def test_gradients_of_conditionals_in_loops_that_end_apart() -> None:
    def f(x: Any) -> Any:
        def step(a: Any, i: Any) -> Any:
            return hr.cond(a < 3, lambda: a * a + 1.0, lambda: a * hr.exp(-a) + 5.0), i + 1

        return hr.while_loop(lambda a, i: hr.logical_and(i < 6, a < 30.0), step, (x, 0))[0]

    check(hr.grad(f), np.array([0.1, 1.5, 2.9, 4.0, 31.0], np.float32), rtol=1e-4)


def test_tensor_arrays_of_counted_loops() -> None:
    def f(x: Any) -> Any:
        ta = hr.TensorArray(hr.float32, 4, element_shape=())
        ta = hr.while_loop(
            lambda i, ta: i < 4, lambda i, ta: (i + 1, ta.write(i, x * hr.cast(i, hr.float32))), (0, ta)
        )[1]
        return ta.stack(), ta.read(2), ta.gather([3, 0])

    check(f, X)


def test_tensor_arrays_of_loops_that_end_apart() -> None:
    def f(n: Any, x: Any) -> Any:
        ta = hr.TensorArray(hr.float32, 4, element_shape=())
        ta = ta.unstack(hr.zeros([4]))
        ta = hr.while_loop(lambda i, ta: i < n, lambda i, ta: (i + 1, ta.write(i, x)), (0, ta))[1]
        return ta.stack()

    check(f, np.array([1, 4, 0, 2, 3], np.int32), X)


def test_calls_of_functions() -> None:
    square = hr.Function(lambda x: x * x + 1.0)
    check(lambda x: square(x) * square(3.0), X)
    check(hr.grad(square), X)


def test_a_recursive_function_is_computed_for_each_example_alone() -> None:
    def value(n: Any) -> Any:
        return hr.cond(n < 2, lambda: n, lambda: fib(n - 1) + fib(n - 2))

    fib = hr.Function(value, results=hr.TensorSpec((), hr.int32))

    with pytest.warns(UserWarning, match="for each example alone"):
        y = hr.vmap(lambda n: fib(n))(np.array([0, 1, 5, 9], np.int32))
    assert as_array(y).tolist() == [0, 1, 5, 34]


def test_a_branch_of_some_examples_must_not_change_state() -> None:
    with hr.Graph():
        v = hr.Variable(0.0)
        with pytest.raises(UnimplementedError, match=r"changes state in a branch or loop that only some"):
            hr.vmap(lambda x: hr.cond(x > 0, lambda: v.assign_add(1.0), lambda: 0.0))(X)


def test_recompute_grad_stays_a_call() -> None:
    check(hr.grad(hr.recompute_grad(lambda x: hr.sin(x) * x)), X)


# *** converted Python ***


def clipped_root(x: Any) -> Any:
    if x < 0:
        return -x
    y = hr.sqrt(x)
    return y if y > 1.5 else y * 10


def halvings(x: Any) -> Any:
    n = 0
    while x > 1:
        x = x / 2
        if x > 3 and n < 1:
            continue
        n += 1
    return x, n


@pytest.mark.system
def test_python_conditionals_and_loops_on_values_of_examples() -> None:
    check(clipped_root, X)
    check(hr.autograph.convert(halvings), np.array([4.0, 1.0, 9.0, 100.0, 0.3], np.float32))
    got = hr.vmap(halvings)(np.array([4.0, 100.0], np.float32))
    assert as_array(got[1]).tolist() == [int(halvings(np.float32(v))[1]) for v in (4.0, 100.0)]


def test_a_function_without_source_is_called_as_it_is() -> None:
    made: dict[str, Any] = {}
    exec("double = lambda x: x * 2\nsign = lambda x: 1 if x > 0 else -1", made)
    np.testing.assert_array_equal(as_array(hr.vmap(made["double"])(X)), X * 2)
    with pytest.raises(TypeError) as e:
        hr.vmap(made["sign"])(X)
    assert any("tensors cannot decide its branches" in note for note in e.value.__notes__)


# *** random draws ***


def waited(x: Any) -> Any:
    """The number of draws until their sum exceeds `x`, and the sum."""
    total, n = x * 0, 0
    while total < x:
        total = total + hr.random.uniform([], 0.5, 1.0, dtype=hr.float64)
        n += 1
    return total, n


def test_each_example_draws_in_a_loop_that_ends_apart() -> None:
    x = np.array([3.0, 0.0, 10.0, 3.0])
    total, n = map(as_array, hr.vmap(waited)(x))
    assert (total >= x).all()
    assert (total - x < 1).all()
    assert (total[1], n[1]) == (0, 0)
    assert total[0] != total[3]
    assert (n * 0.5 <= total).all()
    assert (total <= n).all()


def test_each_example_draws_in_a_branch() -> None:
    y = as_array(hr.vmap(lambda x: hr.cond(x > 0, lambda: x * hr.random.uniform([], 1.0, 2.0), lambda: x))(X))
    assert y[[1, 4]].tolist() == X[[1, 4]].tolist()
    assert (y[[0, 2, 3]] / X[[0, 2, 3]] >= 1).all()
    assert len(set((y[[0, 2, 3]] / X[[0, 2, 3]]).tolist())) == 3


@pytest.mark.system
def test_gradients_use_the_draws_of_the_examples() -> None:
    def f(x: Any) -> Any:
        y = x
        while y < 10.0:
            y = y * hr.random.uniform([], 1.5, 2.5, dtype=hr.float64)
        return y

    x = np.array([1.0, 20.0, 0.3])
    y, dy = map(as_array, hr.vmap(hr.value_and_grad(f))(x))
    np.testing.assert_allclose(dy, y / x)
