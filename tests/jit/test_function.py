"""`hr.jit`: traces by signature, captures, methods, state, and calls in graphs and outside."""

from __future__ import annotations

import copy
import gc
import warnings
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import headrace as hr
from headrace import flags, thresholds
from headrace.errors import GraphError, HeadraceWarning, SignatureError


def counted(fn: Callable[..., Any]) -> tuple[Callable[..., Any], list[int]]:
    """A function that counts its calls in the list."""
    calls: list[int] = []

    def counting(*args: Any, **kwargs: Any) -> Any:
        calls.append(1)
        return fn(*args, **kwargs)

    return counting, calls


# *** Signatures ***


def test_one_trace_for_each_signature() -> None:
    fn, calls = counted(lambda x, y: x * y)
    f = hr.jit(fn)
    a, b = hr.constant([1.0, 2.0]), hr.constant([3.0, 4.0])
    for _ in range(3):
        np.testing.assert_array_equal(f(a, b), [3, 8])
    assert len(calls) == 1
    f(hr.constant([[1.0]]), b)
    f(hr.cast(a, hr.float64), hr.cast(b, hr.float64))
    assert len(calls) == 3
    assert f.cache_info().traces == 3
    assert f.cache_info().hits == 2


def test_arrays_count_as_tensors() -> None:
    fn, calls = counted(lambda x: x + 1)
    f = hr.jit(fn)
    f(hr.constant([1, 2]))
    np.testing.assert_array_equal(f(np.array([5, 6], np.int32)), [6, 7])
    assert len(calls) == 1


@pytest.mark.parametrize(("one", "other"), [(1, 1.0), (1, True), (0.0, -0.0), ("a", "b"), (None, 0), ((1, 2), [1, 2])])
def test_python_values_are_parts_of_the_signature(one: Any, other: Any) -> None:
    fn, calls = counted(lambda x, how: x)
    f = hr.jit(fn)
    x = hr.constant(1.0)
    for how in (one, other, one, other):
        f(x, how)
    assert len(calls) == 2


def test_nan_is_one_value() -> None:
    fn, calls = counted(lambda x, y: x + y)
    f = hr.jit(fn)
    for _ in range(3):
        assert np.isnan(f(hr.constant(1.0), float("nan")).numpy())
    assert len(calls) == 1


def test_keywords_and_positions_are_the_same_call() -> None:
    fn, calls = counted(lambda x, y: x - y)
    f = hr.jit(lambda x, y=2.0, *, z=0.0: fn(x, y) + z)
    x, y = hr.constant(5.0), hr.constant(3.0)
    assert f(x, y).numpy() == f(x, y=y).numpy() == f(y=y, x=x).numpy() == 2
    assert len(calls) == 1
    assert f(x).numpy() == 3
    assert f(x, z=hr.constant(1.0)).numpy() == 4
    with pytest.raises(TypeError, match="missing a required argument: 'x'"):
        f(y=y)


def test_structures_of_arguments_and_results() -> None:
    @dataclass
    class Point:
        x: Any
        y: Any

    f = hr.jit(lambda p, d: Point(p.y + d["a"][0], {"b": (p.x, None, d["a"][1])}))
    out = f(Point(hr.constant(1.0), hr.constant(2.0)), {"a": [hr.constant(3.0), 4]})
    assert isinstance(out, Point)
    assert float(out.x) == 5
    assert float(out.y["b"][0]) == 1
    assert out.y["b"][1] is None
    assert int(out.y["b"][2]) == 4
    assert hr.jit(lambda: None)() is None
    one, (two,) = hr.jit(lambda x: (x, [x + 1]))(hr.constant(1))
    assert (one.numpy(), two.numpy()) == (1, 2)


def test_text_and_sparse_tensors() -> None:
    f = hr.jit(lambda s: (hr.strings.join([s, "!"]), s))
    joined, same = f(hr.constant(["a", "b"]))
    assert joined.numpy().tolist() == [b"a!", b"b!"]
    assert same.numpy().tolist() == [b"a", b"b"]
    assert hr.jit(lambda s: s)(hr.constant("x")).numpy() == b"x"
    sparse = hr.SparseTensor([[0, 1]], [2.0], [2, 2])
    assert hr.sparse.to_dense(hr.jit(lambda s: s * 3.0)(sparse)).numpy().tolist() == [[0, 6], [0, 0]]


def test_static_arguments_are_values() -> None:
    fn, calls = counted(lambda x, shape: hr.reshape(x, shape))
    f = hr.jit(fn, static_argnums=1)
    x = hr.range(6)
    assert f(x, (2, 3)).shape == (2, 3)
    assert f(x, (3, 2)).shape == (3, 2)
    assert f(x, (2, 3)).shape == (2, 3)
    assert len(calls) == 2
    with pytest.raises(SignatureError, match=r"argument '?1'? .*must be hashable, got a list of 2"):
        f(x, [2, 3])
    with pytest.raises(SignatureError, match="positions of arguments"):
        hr.jit(fn, static_argnums="x")
    with hr.Graph() as g:
        y = f(hr.range(6), (3, 2))
    assert hr.Session(graph=g).run(y).shape == (3, 2)


def test_an_input_signature_is_the_only_one() -> None:
    fn, calls = counted(lambda x: x * 2)
    f = hr.jit(fn, input_signature=[hr.TensorSpec((None,), hr.float64)])
    assert f([1, 2]).dtype is hr.float64
    assert f(hr.constant([1.0, 2.0, 3.0], hr.float64)).shape == (3,)
    assert len(calls) == 1
    with pytest.raises(SignatureError, match=r"must be TensorSpec\(shape=\[\?\], dtype=float64\)"):
        f([[1.0]])
    with pytest.raises(SignatureError, match="structure of its input_signature"):
        f([1.0], [2.0])


def test_shapes_that_vary_become_unknown() -> None:
    fn, calls = counted(lambda x, y: hr.reduce_sum(x) + y)
    f = hr.jit(fn)
    y = hr.constant([1.0, 2.0])
    for n in range(1, 8):
        np.testing.assert_array_equal(f(hr.ones([n, 3]), y), [3 * n + 1, 3 * n + 2])
    assert len(calls) == thresholds.JIT_EXACT_SHAPES + 1
    assert "float32[?,3], arg_1: float32[2]" in f.cache_info().signatures[-1]
    f(hr.ones([2, 4]), y)
    f(hr.ones([9, 9]), y)
    assert len(calls) == thresholds.JIT_EXACT_SHAPES + 2
    f(hr.ones([9]), y)  # another rank
    assert len(calls) == thresholds.JIT_EXACT_SHAPES + 3


def test_a_function_that_needs_exact_shapes_gets_them_with_a_warning() -> None:
    def f(x: Any) -> Any:
        out = 0.0
        for i in range(int(x.shape[0])):
            out = out + x[i]
        return out

    jitted = hr.jit(f, converts=False)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for n in range(1, 7):
            assert jitted(hr.ones([n])).numpy() == n
    assert [w.category for w in caught] == [HeadraceWarning]
    assert "'f'" in str(caught[0].message)
    assert "relax_shapes=False" in str(caught[0].message)
    assert jitted.cache_info().traces > 6

    exact = hr.jit(lambda x: x, relax_shapes=False)
    for n in range(5):
        exact(hr.ones([n]))
    assert exact.cache_info().traces == 5


def test_numbers_that_change_are_a_warning_once() -> None:
    f = hr.jit(lambda x, n: x * n)
    x = hr.constant(2)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for n in range(6):
            assert f(x, n).numpy() == 2 * n
    assert len(caught) == 1
    assert "argument 'n'" in str(caught[0].message)
    assert caught[0].filename == __file__


def test_the_warning_names_the_number_that_changes() -> None:
    f = hr.jit(lambda x, scale, n: x * scale + n)
    for n in range(2):
        f(hr.constant(2), 7, n)
    with pytest.warns(HeadraceWarning, match="at last 2 as argument 'n'"):
        f(hr.constant(2), 7, 2)


def test_the_number_of_traces_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(thresholds, "JIT_TRACES", 4)
    f = hr.jit(lambda x, how: x)
    for i in range(9):
        f(hr.constant(1), str(i))
    assert len(f.cache_info().signatures) <= 4
    assert f.cache_info().traces == 9


# *** State ***


def test_variables_are_read_and_changed_at_every_call() -> None:
    v = hr.Variable([1.0, 2.0])

    @hr.jit
    def step(x: Any) -> Any:
        before = v.value()
        v.assign_add(x)
        return before, v * 10.0

    before, after = step(hr.constant([1.0, 1.0]))
    np.testing.assert_array_equal(before, [1, 2])
    np.testing.assert_array_equal(after, [20, 30])
    v.assign([0.0, 0.0])
    np.testing.assert_array_equal(step(hr.constant([1.0, 2.0]))[1], [10, 20])
    np.testing.assert_array_equal(v.numpy(), [1, 2])
    assert step.cache_info().traces == 1


def test_two_variables_are_two_arguments() -> None:
    fn, calls = counted(lambda v: v.assign_add(1.0))
    f = hr.jit(fn)
    a, b = hr.Variable(1.0), hr.Variable(10.0)
    for _ in range(2):
        f(a)
        f(b)
    assert (a.numpy(), b.numpy()) == (3, 12)
    assert len(calls) == 2


def test_a_variable_in_a_loop_and_a_branch() -> None:
    v = hr.Variable(1.0)

    @hr.jit
    def f(n: Any) -> Any:
        _, total = hr.while_loop(lambda i, s: i < n, lambda i, s: (i + 1, s + v), (0, 0.0))
        return hr.cond(n > 2, lambda: v.assign(total), lambda: v.value())

    assert f(hr.constant(2)).numpy() == 1
    assert f(hr.constant(4)).numpy() == 4
    assert v.numpy() == 4


def test_the_first_call_may_create_variables() -> None:
    class Counter:
        def __init__(self) -> None:
            self.n: Any = None

        @hr.jit
        def count(self, x: Any) -> Any:
            if self.n is None:
                self.n = hr.Variable(hr.zeros([2]) + 1.0)
            return self.n.assign_add(x)

    c = Counter()
    c.count(hr.constant([1.0, 2.0]))
    np.testing.assert_array_equal(c.count(hr.constant([1.0, 2.0])), [3, 5])
    other = Counter()
    np.testing.assert_array_equal(other.count(hr.constant([0.0, 0.0])), [1, 1])


def test_variables_of_every_call_are_an_error() -> None:
    with pytest.raises(GraphError, match=r"'f' .*creates variables \('Variable:0'\) at every call"):
        hr.jit(_creating)(hr.constant(1.0))
    with pytest.raises(GraphError, match="depends on the argument 'x'; create the variable outside"):
        hr.jit(lambda x: hr.Variable(x))(hr.constant(1.0))


def _creating(x: Any) -> Any:
    return hr.Variable(1.0) + x


_creating.__name__ = "f"


def test_the_value_of_a_variable_is_not_known_in_a_trace() -> None:
    v = hr.Variable(1.0)
    with pytest.raises(TypeError, match=r"float\(\)|numpy\(\)"):
        hr.jit(lambda x: x * v.numpy())(hr.constant(1.0))


def test_random_numbers_differ_from_call_to_call_and_start_again_with_the_seed() -> None:
    f = hr.jit(lambda: hr.random.normal([3]))
    hr.random.set_seed(1)
    first = [f().numpy() for _ in range(2)]
    assert not np.array_equal(*first)
    hr.random.set_seed(2)
    f()
    hr.random.set_seed(None)


def test_captured_tensors() -> None:
    a, n = hr.constant([1.0, 2.0]), hr.constant([1, 2])
    f = hr.jit(lambda x: x * a + hr.cast(n, hr.float32))
    np.testing.assert_array_equal(f(hr.constant([3.0, 4.0])), [4, 10])
    concrete = f.lower(hr.TensorSpec((2,)))
    assert [t is a for t in concrete.captured] == [True]
    assert len(concrete.inputs) == 2


def test_a_tensor_that_leaves_the_trace_is_an_error() -> None:
    kept: list[Any] = []

    @hr.jit
    def f(x: Any) -> Any:
        kept.append(x * 2)
        return x

    f(hr.constant(1.0))
    with pytest.raises(GraphError, match=r"a tensor of the trace of 'f' .* is used after the trace"):
        kept[0] + 1
    with pytest.raises(GraphError):
        hr.jit(lambda x: x + kept[0])(hr.constant(1.0))


def test_a_failing_trace_is_not_kept() -> None:
    fails = [True]

    @hr.jit
    def f(x: Any) -> Any:
        if fails:
            raise KeyError("mine")
        return x

    with pytest.raises(KeyError, match="mine"):
        f(hr.constant(1))
    fails.clear()
    assert f(hr.constant(1)).numpy() == 1


def test_errors_at_run_time_name_the_users_line() -> None:
    f = hr.jit(lambda x, i: hr.gather(x, i))
    with pytest.raises(hr.errors.InvalidArgumentError) as caught:
        f(hr.ones([2, 3]), hr.constant([5]))
    assert __file__ in "".join([str(caught.value), *caught.value.__notes__])


# *** Methods, nesting, places ***


def test_methods_have_traces_for_each_instance() -> None:
    class Scale:
        def __init__(self, by: float) -> None:
            self.by = by
            self.traced = 0

        @hr.jit
        def __call__(self, x: Any) -> Any:
            self.traced += 1
            return x * self.by

    two, three = Scale(2.0), Scale(3.0)
    x = hr.constant(1.0)
    assert [two(x).numpy(), three(x).numpy(), two(x).numpy()] == [2, 3, 2]
    assert (two.traced, three.traced) == (1, 1)
    gone = weakref.ref(two)
    del two
    gc.collect()
    assert gone() is None


def test_a_jitted_function_in_another_one_and_in_a_graph() -> None:
    inner = hr.jit(lambda x: x * x, name="inner")
    outer = hr.jit(lambda x: inner(x) + inner(x + 1.0))
    assert outer(hr.constant(2.0)).numpy() == 13
    with hr.Graph() as g:
        y = outer(hr.constant(3.0))
    assert y.op.type == "PartitionedCall"
    assert hr.Session(graph=g).run(y) == 25


def test_symbolic_arguments_outside_of_the_graph() -> None:
    with hr.Graph() as g:
        x = hr.placeholder(hr.float32, ())
    y = hr.jit(lambda x: x * 2.0)(x)
    assert hr.Session(graph=g).run(y, {x: 4.0}) == 8


def test_recursion_with_declared_results() -> None:
    @hr.jit(results=hr.TensorSpec((), hr.int32))
    def fib(n: Any) -> Any:
        return hr.cond(n < 2, lambda: n, lambda: fib(n - 1) + fib(n - 2))

    assert fib(hr.constant(10)).numpy() == 55


def test_eager_and_traced_calls_are_equal() -> None:
    traced: list[int] = []

    @hr.jit
    def f(x: Any) -> Any:
        traced.append(1)
        return x * 2.0 + 1.0

    x = hr.constant([1.0, 2.0])
    expected = f(x).numpy()
    hr.run_eagerly(True)
    try:
        for _ in range(3):
            np.testing.assert_array_equal(f(x), expected)
    finally:
        hr.run_eagerly(False)
    assert len(traced) == 4
    f(x)
    assert len(traced) == 4


def test_the_engine_is_part_of_the_signature() -> None:
    f = hr.jit(lambda x: x + 1.0)
    with flags.override(ENGINE="interpret"):
        assert f.explain(hr.TensorSpec(())).engine == "interpret"
        assert f(hr.constant(1.0)).numpy() == 2
    with flags.override(ENGINE="auto"):
        assert f.explain(hr.TensorSpec(())).engine == "compiled"


def test_jit_of_a_function_is_the_function() -> None:
    f = hr.jit(lambda x: x)
    assert hr.jit(f) is f
    assert hr.function is hr.jit
    assert isinstance(f, hr.Function)
    assert copy.deepcopy(f) is f
    with pytest.raises(TypeError, match="must be callable"):
        hr.jit(3)  # type: ignore[call-overload]


def test_effects_that_no_result_needs_happen(capfd: pytest.CaptureFixture[str]) -> None:
    v = hr.Variable(0)

    @hr.jit
    def f(x: Any) -> None:
        v.assign_add(x)
        hr.print("x is", x)

    f(hr.constant(3))
    f(hr.constant(4))
    assert v.numpy() == 7
    assert capfd.readouterr().err.split("\n")[:2] == ["x is 3", "x is 4"]


# *** The cache of the transforms ***


def test_a_transform_is_traced_once_however_often_it_is_made() -> None:
    fn, calls = counted(lambda x: x * x * x)
    for x in (1.0, 2.0, 3.0):
        assert hr.grad(fn)(x).numpy() == 3 * x * x
        value, slope = hr.value_and_grad(fn)(x)
        assert (value.numpy(), slope.numpy()) == (x**3, 3 * x * x)
        assert hr.jvp(fn, [x], [1.0])[1].numpy() == 3 * x * x
        y, pull_back = hr.vjp(fn, x)
        assert (y.numpy(), pull_back(2.0)[0].numpy()) == (x**3, 6 * x * x)
        assert hr.jacobian(fn)(x).numpy() == 3 * x * x
        assert hr.hessian(fn)(x).numpy() == 6 * x
    assert len(calls) == 6


def test_a_wrapper_does_not_share_the_traces_of_its_function() -> None:
    import functools

    def f(x: Any) -> Any:
        return x * x

    assert hr.grad(f)(3.0).numpy() == 6

    @functools.wraps(f)
    def g(x: Any) -> Any:
        return f(x) * 10.0

    assert hr.grad(g)(3.0).numpy() == 60


def test_transforms_of_jitted_functions() -> None:
    f = hr.jit(lambda x: x * x * x)
    assert hr.grad(f)(2.0).numpy() == 12
    assert hr.grad(hr.jit(hr.grad(f)))(2.0).numpy() == 12
    assert hr.jit(hr.grad(f))(hr.constant(2.0)).numpy() == 12


def test_a_transform_does_not_keep_its_function() -> None:
    class Big:
        pass

    big = Big()

    def f(x: Any, kept: Any = big) -> Any:
        return x * x

    hr.grad(f)(1.0)
    gone = weakref.ref(big)
    del f, big
    gc.collect()
    assert gone() is None


# *** Surroundings ***

STEP = 1.0


def _helper(x: Any) -> Any:
    return x * STEP


def test_variables_around_a_function_are_parts_of_the_signature(monkeypatch: pytest.MonkeyPatch) -> None:
    scale = 2.0
    f = hr.jit(lambda x: _helper(x) * scale)
    x = hr.constant(3.0)
    assert f(x).numpy() == 6
    scale = 10.0
    assert f(x).numpy() == 30
    monkeypatch.setattr(f"{__name__}.STEP", 2.0)
    assert f(x).numpy() == 60
    assert f.cache_info().traces == 3


def test_variables_around_a_function_count_for_its_transforms() -> None:
    scale = 2.0
    f = hr.jit(lambda x: x * scale)
    assert hr.grad(f)(3.0).numpy() == 2
    scale = 5.0
    assert hr.grad(f)(3.0).numpy() == 5
    scale = 2.0
    assert hr.grad(f)(3.0).numpy() == 2


def test_an_attribute_is_no_variable_of_the_module(monkeypatch: pytest.MonkeyPatch) -> None:
    class Holder:
        STEP = 1.0

    held = Holder()
    f = hr.jit(lambda x: x * held.STEP)
    for step in (2.0, 3.0):
        monkeypatch.setattr(f"{__name__}.STEP", step)
        assert f(hr.constant(1.0)).numpy() == 1
    assert f.cache_info().traces == 1


def test_a_variable_that_changes_at_every_call_is_a_warning() -> None:
    n = 0
    f = hr.jit(lambda x: x + n)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for n in range(6):
            assert f(hr.constant(1)).numpy() == 1 + n
    assert len(caught) == 1
    assert "reads 'n'" in str(caught[0].message)


# *** Recursion without declared results ***


def test_the_results_of_a_recursive_function_are_those_of_its_end() -> None:
    @hr.jit
    def fib(n: Any) -> Any:
        return hr.cond(n < 2, lambda: n, lambda: fib(n - 1) + fib(n - 2))

    assert fib(hr.constant(10)).numpy() == 55
    with hr.Graph() as g:
        y = fib(hr.constant(12))
    assert hr.Session(graph=g).run(y) == 144
    assert len(g.functions) == 1


def test_mutual_recursion_without_declared_results() -> None:
    @hr.jit
    def even(n: Any) -> Any:
        return hr.cond(hr.equal(n, 0), lambda: True, lambda: odd(n - 1))

    @hr.jit
    def odd(n: Any) -> Any:
        return hr.cond(hr.equal(n, 0), lambda: False, lambda: even(n - 1))

    assert [bool(even(hr.constant(n))) for n in range(4)] == [True, False, True, False]


def test_shapes_of_recursive_results_that_vary() -> None:
    @hr.jit
    def count(n: Any) -> Any:
        return hr.cond(n < 1, lambda: hr.zeros([1], hr.int32), lambda: hr.concat([count(n - 1), [n]], 0))

    assert count(hr.constant(3)).numpy().tolist() == [0, 1, 2, 3]


def test_gradients_of_a_recursive_function() -> None:
    @hr.jit
    def power(x: Any, n: Any) -> Any:
        return hr.cond(n < 1, lambda: 1.0, lambda: x * power(x, n - 1))

    assert hr.grad(power)(2.0, hr.constant(5)).numpy() == 80


def test_recursion_without_end_or_with_two_dtypes() -> None:
    @hr.jit
    def endless(n: Any) -> Any:
        return endless(n + 1)

    with pytest.raises(GraphError, match="no branch that ends the recursion tells its results; declare them"):
        endless(hr.constant(1))

    @hr.jit
    def mixed(n: Any) -> Any:
        return hr.cond(n < 1, lambda: 1, lambda: hr.cast(mixed(n - 1), hr.int32))

    assert mixed(hr.constant(3)).numpy() == 1

    @hr.jit
    def changing(n: Any) -> Any:
        return hr.cast(hr.cond(n < 1, lambda: 1, lambda: changing(n - 1)), hr.float32)

    with pytest.raises(TypeError, match="must have the same type"):
        changing(hr.constant(3))


@hr.jit
def _fibonacci(n: Any) -> Any:
    if n < 2:
        return n
    return _fibonacci(n - 1) + _fibonacci(n - 2)


def test_a_converted_function_of_a_module_that_calls_itself() -> None:
    assert _fibonacci(hr.constant(10)).numpy() == 55


@hr.jit
def _descendants(n: Any) -> Any:
    total = n
    for _ in hr.range(2):
        if n > 0:
            total += _descendants(n - 1)
    return total


def test_recursion_in_a_converted_loop() -> None:
    def plain(n: int) -> int:
        return n + (2 * plain(n - 1) if n > 0 else 0)

    assert _descendants(hr.constant(4)).numpy() == plain(4)


def test_a_function_without_source_is_traced_as_it_is() -> None:
    names: dict[str, Any] = {"hr": hr}
    exec("def f(x):\n    return x * x\ndef g(x):\n    return x if x > 0 else -x\n", names)
    assert hr.jit(names["f"])(hr.constant(3.0)).numpy() == 9
    assert hr.grad(names["f"])(3.0).numpy() == 6
    with pytest.raises(TypeError, match="which has no value until the graph runs") as caught:
        hr.jit(names["g"])(hr.constant(3.0))
    assert "no source for 'g'" in "".join(caught.value.__notes__)


def test_a_trace_without_conversion() -> None:
    v = hr.Variable(2.0)
    concrete = hr.trace(lambda x, n: hr.reduce_sum(x) * n + v, hr.TensorSpec((None,)), 3)
    assert concrete([1.0, 2.0]).numpy() == 11
    assert concrete(np.array([1.0], np.float32)).numpy() == 5
    with pytest.raises(SignatureError, match="takes 1 tensors, got 2"):
        concrete([1.0], 3)
    with pytest.raises(SignatureError, match=r"'x' got a value of shape \[1,1\]"):
        concrete([[1.0]])
    with pytest.raises(SignatureError, match=r"'x' got .*text"):
        concrete("text")
    with pytest.raises(TypeError, match="which has no value until the graph runs"):
        hr.trace(lambda x: x if x > 0 else -x, hr.TensorSpec(()))


def _ackermann(m: Any, n: Any) -> Any:
    if m == 0:
        return n + 1
    if n == 0:
        return _ackermann(m - 1, 1)
    return _ackermann(m - 1, _ackermann(m, n - 1))


def _power(x: Any, n: int) -> Any:
    return 1.0 if n == 0 else x * _power(x, n - 1)


def test_a_plain_recursive_function_becomes_one_of_the_graph_where_a_tensor_decides() -> None:
    assert hr.jit(_ackermann)(hr.constant(2), hr.constant(3)).numpy() == _ackermann(2, 3)
    assert hr.jit(_power)(hr.constant(2.0), 40).numpy() == 2.0**40


def test_python_numbers_as_tangents_take_the_dtype_of_what_they_belong_to() -> None:
    x = hr.constant(2.0, hr.float64)
    assert hr.jvp(lambda x: x * x, [x], [1.0])[1].numpy() == 4
    y, pull_back = hr.vjp(lambda x: x * x, x)
    assert (y.dtype, pull_back(3)[0].numpy()) == (hr.float64, 12)
    out = hr.jvp(lambda p: p["a"] * p["b"], [{"a": x, "b": 3.0 * x}], [{"a": 1.0, "b": 0}])
    assert out[1].numpy() == 6
