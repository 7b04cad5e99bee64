"""Native sections change neither results nor errors nor limits of time."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

pytest.importorskip("llvmlite")

import headrace as hr
from headrace import flags, thresholds
from headrace.api import scopes
from headrace.compile import Compiled
from headrace.denormals import flushed, register_bits, user_mode
from headrace.errors import DeadlineExceededError, InvalidArgumentError, ResourceExhaustedError
from headrace.targets.native import engine
from tests.compile.running import same
from tests.targets.native.arena_memory import kept_bytes

with flags.override(NATIVE="on"):
    if engine.available():
        pytest.skip(engine.available(), allow_module_level=True)

pytestmark = pytest.mark.one_engine


@pytest.fixture(autouse=True)
def graph(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A graph of which each instruction that can be native is."""
    monkeypatch.setattr(thresholds, "NATIVE_CALL", 0)
    monkeypatch.setattr(thresholds, "NATIVE_ARGUMENT", 0)
    monkeypatch.setattr(thresholds, "NATIVE_LEAST_SAVING", 0)
    with hr.Graph() as g:
        yield g


def run(fetches: Any, feeds: Any, is_native: bool = True) -> Any:
    """Returns the values of `fetches` in a compiled step, with or without machine code."""
    graph = scopes.current_graph()
    assert graph is not None
    with flags.override(OPTIMIZE="off"), hr.Session(graph=graph, engine="compiled") as session:
        assert bool(session.explain(fetches, list(feeds)).native_source) == is_native
        return session.run(fetches, feeds)


def queue_of(values: Any) -> tuple[Any, Any]:
    """A value from a queue, and the operation that fills the queue."""
    q = hr.FIFOQueue(1, [hr.float32], shapes=[np.shape(values)])
    return q.dequeue(), q.enqueue([hr.constant(np.asarray(values, np.float32))])


# *** Arrays of unknown length ***


def from_tensor(x: Any) -> Any:
    """The rows of a matrix."""
    return scopes.builder().TensorListFromTensor(x, np.array(x.shape[1:], np.int32))


def stack(rows: Any, n: int = -1) -> Any:
    """The rows, of a number that is not known statically unless `n` says it."""
    b = scopes.builder()
    return b.TensorListStack(rows, np.array(-1, np.int32), element_dtype=hr.float32, num_elements=n)


def test_rows_of_known_number_as_an_array_of_unknown_length() -> None:
    x = hr.placeholder(hr.float32, [2, 3])
    y = stack(from_tensor(x))
    assert y.shape == (None, 3)
    value = np.arange(6, dtype=np.float32).reshape(2, 3)
    np.testing.assert_array_equal(run(y, {x: value}), value)


def test_rows_of_a_transposed_array() -> None:
    x = hr.placeholder(hr.float32, [2, 3])
    y = stack(from_tensor(hr.transpose(x)))
    value = np.arange(6, dtype=np.float32).reshape(2, 3)
    np.testing.assert_array_equal(run(y, {x: value}), value.T)


def test_a_stack_checks_the_number_of_rows() -> None:
    x = hr.placeholder(hr.float32, [None, 3])
    y = stack(from_tensor(x), 2)
    value = np.arange(6, dtype=np.float32).reshape(2, 3)
    np.testing.assert_array_equal(run(y, {x: value}), value)
    with pytest.raises(InvalidArgumentError, match="a list with 2 elements but got a list with 3 elements"):
        run(y, {x: np.zeros((3, 3), np.float32)})


def test_a_map_whose_inputs_do_not_determine_its_length_is_not_native() -> None:
    x, longer = hr.placeholder(hr.float32, [2]), hr.placeholder(hr.float32, [None])
    y = x * 2.0
    y.op.outputs[0].copy_static(longer)  # as in graphs of other systems, whose static shapes may say less
    np.testing.assert_array_equal(run(y, {x: np.array([1, 2], np.float32)}, False), [2, 4])


def test_an_operation_runs_whose_result_is_not_read(graph: Any) -> None:
    x = hr.placeholder(hr.float32, [2, 3])
    with hr.Session(graph=graph, engine="compiled") as session:
        assert session.run(stack(from_tensor(x * 2.0)).op, {x: np.ones((2, 3))}) is None


@pytest.mark.parametrize("length", [1, 5])
def test_an_unknown_length_that_is_repeated(length: int) -> None:
    x, y = hr.placeholder(hr.float32, [None]), hr.placeholder(hr.float32, [5])
    value, other = np.arange(1, 1 + length, dtype=np.float32), np.arange(5, dtype=np.float32)
    np.testing.assert_array_equal(run(x * y, {x: value, y: other}, False), value * other)
    with pytest.raises(InvalidArgumentError, match="ncompatible shapes"):
        run(x * y, {x: np.ones(3, np.float32), y: other}, False)


# *** Fused regions ***


@pytest.mark.system
@pytest.mark.timeout(20)
def test_a_loop_in_a_fused_region_ends_at_the_deadline(graph: Any) -> None:
    x, fill = queue_of(1.0)
    y = hr.while_loop(lambda v: v >= 0.0, lambda v: v * 0.5 + x, [x], name="for_ever")[0]
    with hr.Session(graph=graph) as session:
        session.run(fill)
        with pytest.raises(DeadlineExceededError) as e:
            session.run(y, timeout_ms=100)
    assert re.search(r"it was in iteration [1-9]\d* of loop 'for_ever', made at", "\n".join(e.value.__notes__))


def test_an_error_of_a_division_of_numbers_shows_them(graph: Any) -> None:
    n = hr.placeholder(hr.int32, [])
    y = hr.while_loop(lambda i, v: i < n, lambda i, v: (i + 1, v + (7 - n) // (2 - i)), [0, 0])[1]
    notes = []
    for native in "on", "off":
        with flags.override(NATIVE=native), hr.Session(graph=graph, engine="compiled") as session:
            assert bool(session.explain(y, [n]).native_source) == (native == "on")
            with pytest.raises(InvalidArgumentError, match="division by zero") as e:
                session.run(y, {n: 9})
        notes.append(e.value.__notes__)
    assert notes[0] == notes[1]
    assert re.search(r"int32\[\] = -2, .*int32\[\] = 0$", notes[0][1])


@pytest.mark.timeout(20)
@pytest.mark.parametrize("is_counted", [False, True])
def test_a_deadline_names_the_iterations_of_nested_loops(is_counted: bool, graph: Any) -> None:
    n = hr.placeholder(hr.int32, [])
    m = hr.placeholder(hr.int32, [])

    def inner(i: Any, v: Any) -> Any:
        def go_on(j: Any, w: Any) -> Any:
            return j < hr.where(i < 2, 3, m) if is_counted else hr.logical_or(j < 3, hr.logical_and(i >= 2, w > 0.0))

        return i + 1, hr.while_loop(go_on, lambda j, w: (j + 1, w * 0.5 + 1.0), [0, v], name="inner")[1]

    y = hr.while_loop(lambda i, v: i < n, inner, [0, 1.0], name="outer")[1]
    with hr.Session(graph=graph, engine="compiled") as session:
        with pytest.raises(DeadlineExceededError) as e:
            session.run(y, {n: 9, m: 2**31 - 1}, timeout_ms=50)
        assert session.explain(y, [n, m]).native_source
    (at, running) = e.value.__notes__
    assert re.match(r"operation 'outer/inner' \(\w+\), made at .*, in iteration 2 of loop 'outer'$", at)
    assert re.match(
        r"it was in iteration [1-9]\d* of loop 'outer/inner', in iteration 2 of loop 'outer', made at ", running
    )


def test_denormal_numbers_are_zeros_in_a_loop_in_a_fused_region(graph: Any) -> None:
    with flushed():
        is_known = bool((np.array([1e-39], np.float32) / 2)[0] == 0)
    x, fill = queue_of(np.full(4, 1e-30))
    y = hr.while_loop(lambda i, v: i < 11, lambda i, v: (i + 1, v * 0.1), [0, x])[1]
    with hr.Session(graph=graph) as session:
        session.run(fill)
        assert bool((session.run(y) == 0).all()) == is_known


def _compiled(fetches: Any, x: Any) -> Compiled:
    """The code of a step without passes."""
    graph = scopes.current_graph()
    assert graph is not None
    with flags.override(OPTIMIZE="off"), hr.Session(graph=graph, engine="compiled") as session:
        found = session._call(fetches, [x]).programs.general.compiled
    assert found is not None
    return found


def test_a_step_that_is_one_section_flushes_denormal_numbers_by_itself() -> None:
    x = hr.placeholder(hr.float32, [2, 2])
    half = np.full([2, 2], 0.25, np.float32)
    looped = hr.while_loop(lambda i, v: i < 3, lambda i, v: (i + 1, v * 0.5), [0, x])[1]
    small = np.full([2, 2], 1e-39, np.float32)
    for y, flushes in ((looped, True), (hr.matmul(x, half), True), (x * 0.5, False)):
        code = _compiled(y, x)
        assert not code.flushes
        assert not code.uses_threads
        (found,) = code.run(None, [small])
        assert bool((found == 0).all()) == (flushes and register_bits() != 0)
        assert not (user_mode() or 0) & register_bits()


def test_a_step_with_a_section_and_kernels_flushes_as_a_whole() -> None:
    x = hr.placeholder(hr.float32, [2, 2])
    code = _compiled([hr.matmul(x, x), hr.random.uniform([2])], x)
    assert code.native_source
    assert code.flushes
    assert not code.uses_threads


def test_a_section_that_calls_the_library_limits_its_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(thresholds, "NATIVE_LIBRARY_PRODUCT", 8)
    x = hr.placeholder(hr.float32, [4, 4])
    code = _compiled(hr.matmul(x, x), x)
    assert code.native_source
    assert code.uses_threads
    assert not code.is_direct


# *** Nested lists ***


def _nested(depth: int, v: Any, n: Any, cell: Any) -> Any:
    """Nested loops of `n` iterations each, on `depth` levels."""
    if not depth:
        return cell(v)
    return hr.while_loop(
        lambda i, v: i < n, lambda i, v: (i + 1, _nested(depth - 1, v, n, cell)), [0, v], name=f"level{depth}"
    )[1]


def _ways(fetches: Any, feeds: Any, optimize: str) -> None:
    """Compares machine code with the Python target and the interpreter."""
    graph = scopes.current_graph()
    found = []
    for engine_name, native in (("compiled", "on"), ("compiled", "off"), ("interpret", "off")):
        with flags.override(OPTIMIZE=optimize, NATIVE=native), hr.Session(graph=graph, engine=engine_name) as session:
            found.append(session.run(fetches, feeds))
            if (native, optimize) == ("on", "on"):
                assert [line for line in session.explain(fetches, list(feeds)).native if line.startswith("not")] == []
    same(found[0], found[1])
    same(found[1], found[2])


@pytest.mark.parametrize("optimize", ["on", "off"])
@pytest.mark.parametrize(("depth", "n"), [(2, 3), (3, 0), (3, 2), (3, 3), (4, 2), (5, 1)])
@pytest.mark.matrix
def test_gradients_of_nested_loops(depth: int, n: int, optimize: str) -> None:
    x, w, count = hr.placeholder(hr.float32, [3]), hr.placeholder(hr.float32, [3]), hr.placeholder(hr.int32, [])
    y = _nested(depth, x, count, lambda v: hr.sin(v) * w)
    feeds = {x: np.array([0.3, np.nan, 1.5], np.float32), w: np.array([0.9, 1.1, -0.7], np.float32), count: n}
    _ways(hr.gradients(y, [x, w]), feeds, optimize)


def test_a_gradient_of_three_nested_loops() -> None:
    x, w = hr.placeholder(hr.float32, []), hr.placeholder(hr.float32, [])
    y = _nested(3, x, 2, lambda v: hr.sin(v) * w)
    _ways(hr.gradients(y, [x, w]), {x: np.float32(0.3), w: np.float32(0.9)}, "on")


def test_nested_loops_that_end_by_their_values() -> None:
    x = hr.placeholder(hr.float64, [])

    def cell(v: Any) -> Any:
        return hr.cond(v > 0.5, lambda: hr.sin(v), lambda: v * 1.5)

    def nested(depth: int, v: Any) -> Any:
        if not depth:
            return cell(v)
        return hr.while_loop(lambda i, v: (i < 4) & (v < 0.9), lambda i, v: (i + 1, nested(depth - 1, v)), [0, v])[1]

    _ways(hr.gradients(nested(3, x), x), {x: np.float64(0.01)}, "off")


def test_the_memory_of_nested_lists_is_used_again() -> None:
    """An iteration leaves lists of lists with elements, which end with it."""
    n, x = hr.placeholder(hr.int32, []), hr.placeholder(hr.float32, [64])

    def pushed(value: Any, shape: tuple[int, ...] = ()) -> Any:
        b = scopes.builder()
        new = b.EmptyTensorList(np.array(shape, np.int32), -1, element_dtype=value.dtype)
        return b.TensorListPushBack(new, value)

    def body(i: Any, s: Any) -> Any:
        outer = pushed(pushed(pushed(x + s, (64,))))
        return i + 1, s + hr.cast(scopes.builder().TensorListLength(outer), hr.float32)

    s = hr.while_loop(lambda i, s: i < n, body, [0, 0.0])[1]
    before = kept_bytes()
    assert run(s, {n: 5000, x: np.ones(64, np.float32)}) == 5000
    assert kept_bytes() - before < 1 << 20


# *** Errors ***


def test_residuals_beyond_the_limit() -> None:
    n = hr.placeholder(hr.int32, [])
    x = hr.placeholder(hr.float32, [4])
    y = hr.while_loop(lambda i, v: i < n, lambda i, v: (i + 1, hr.tanh(v) * x), [0, x], name="my_loop")[1]
    (dx,) = hr.gradients(y, x)
    feeds = {n: 200, x: np.ones(4, np.float32)}
    told = []
    for native in ("on", "off"):
        with flags.override(ACCUMULATOR_LIMIT=1000, NATIVE=native), pytest.raises(ResourceExhaustedError) as e:
            run(dx, feeds, native == "on")
        told.append(str(e.value))
    assert told[0] == told[1]
    assert "my_loop" in told[0]


@pytest.mark.system
def test_the_limit_counts_the_bytes_of_nested_lists(graph: Any) -> None:
    x = hr.placeholder(hr.float32, [25])
    y = _nested(3, x, 4, hr.sin)
    (dx,) = hr.gradients(y, x)
    feeds = {x: np.zeros(25, np.float32)}
    told = []
    for native in ("on", "off"):
        with flags.override(ACCUMULATOR_LIMIT=6_400, NATIVE=native):
            assert hr.Session(graph=graph).run(dx, feeds).shape == (25,)
        with flags.override(ACCUMULATOR_LIMIT=6_399, NATIVE=native), pytest.raises(ResourceExhaustedError) as e:
            hr.Session(graph=graph).run(dx, feeds)
        told.append(str(e.value))
    assert told[0] == told[1]
    assert "level3" in told[0]
    assert "3 values of 4,800 bytes so far" in told[0]


# *** Lists that cross the border of a region ***


def cores(fetches: Any, feeds: Any, optimize: str = "on") -> int:
    """The number of native regions of a step, whose results are those of Python."""
    graph = scopes.current_graph()
    results = []
    for native in ("on", "off"):
        with flags.override(NATIVE=native, OPTIMIZE=optimize), hr.Session(graph=graph, engine="compiled") as session:
            results.append(session.run(fetches, feeds))
            if native == "on":
                found = session.explain(fetches, list(feeds)).native_source.count("define i32 @core")
    for a, b in zip(*results, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
    return found


def loop(x: Any, n: Any) -> Any:
    """A state after `n` iterations whose gradient needs values of each one."""
    return hr.while_loop(lambda i, h: i < n, lambda i, h: (i + 1, hr.tanh(h * 1.5) + 0.1 * h), [0, x])[1]


@pytest.mark.matrix
@pytest.mark.parametrize("n", [0, 1, 7])
def test_residuals_of_a_loop_pass_a_kernel(n: int) -> None:
    x, steps = hr.placeholder(hr.float32, (3, 4)), hr.placeholder(hr.int32, ())
    loss = hr.nn.softmax_cross_entropy_with_logits(labels=np.eye(4, dtype=np.float32)[:3], logits=loop(x, steps))
    fed = {x: np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4), steps: n}
    fetches = [loss, *hr.gradients(loss, [x])]
    assert cores(fetches, fed) == 2
    assert cores(fetches, fed, "off") == 2


def test_a_list_is_read_between_two_loops() -> None:
    x = hr.placeholder(hr.float32, (2, 3))
    made = hr.TensorArray(hr.float32, 0, dynamic_size=True, element_shape=(2, 3))
    made = hr.while_loop(lambda i, h, a: i < 4, lambda i, h, a: (i + 1, h * 0.5, a.write(i, h + 1.0)), [0, x, made])[2]
    total = hr.while_loop(
        lambda i, s: i < 4,
        lambda i, s: (i + 1, s + made.read(i)),
        [0, hr.math.lgamma(made.stack()[0])],
    )[1]
    assert cores([total, *hr.gradients(total, [x])], {x: np.ones((2, 3), np.float32)}) >= 1


def test_rows_are_read_on_both_sides_of_a_kernel() -> None:
    xs, h = hr.placeholder(hr.float32, (5, 3)), hr.placeholder(hr.float32, (3,))
    rows = hr.TensorArray(hr.float32, 5).unstack(xs)
    body = lambda i, s: (i + 1, hr.tanh(s + rows.read(i)))
    first = hr.while_loop(lambda i, s: i < 5, body, [0, h])[1]
    last = hr.while_loop(lambda i, s: i < 5, body, [0, hr.math.lgamma(first)])[1]
    fed = {xs: np.linspace(-1, 1, 15, dtype=np.float32).reshape(5, 3), h: np.zeros(3, np.float32)}
    assert cores([last, *hr.gradients(last, [xs, h])], fed) >= 2


def test_a_loop_of_kernels_makes_a_list_for_a_native_loop() -> None:
    x = hr.placeholder(hr.float32, (3,))
    y = hr.while_loop(lambda i, h: i < 6, lambda i, h: (i + 1, hr.sin(hr.math.lgamma(h)) + h), [0, x])[1]
    before = hr.while_loop(lambda i, h: i < 6, lambda i, h: (i + 1, hr.sin(h * 2.0) + h), [0, x])[1]
    assert cores([*hr.gradients(y, [x]), *hr.gradients(before, [x])], {x: np.array([0.1, np.nan, 2], np.float32)}) >= 1


def test_a_native_loop_lengthens_a_list_of_a_loop_of_kernels() -> None:
    b, x = scopes.builder(), hr.placeholder(hr.float32, (3,))
    made = b.EmptyTensorList(np.array((3,), np.int32), -1, element_dtype=hr.float32)

    def pushed(cell: Any, made: Any) -> Any:
        """The list with three more elements."""

        def body(i: Any, h: Any, made: Any) -> Any:
            return i + 1, cell(h), scopes.builder().TensorListPushBack(made, h * 2.0)

        return hr.while_loop(lambda i, h, made: i < 3, body, [0, x, made])[2]

    made = pushed(hr.sin, pushed(lambda h: hr.math.lgamma(h) * 0.5, made))
    pops = []
    for _ in range(5):
        made, last = b.TensorListPopBack(made, np.array((3,), np.int32), element_dtype=hr.float32)
        pops.append(hr.math.lgamma(last))
    assert cores(pops, {x: np.array([0.1, np.nan, 2], np.float32)}) >= 1
    assert cores(pops, {x: np.array([0.1, 0.5, 2], np.float32)}, "off") >= 1


def test_lists_stay_on_one_side_in_a_loop_of_kernels() -> None:
    """A list that passed the border in each iteration would be copied as often."""
    x, n = hr.placeholder(hr.float32, (3,)), hr.placeholder(hr.int32, ())
    made = hr.TensorArray(hr.float32, 0, dynamic_size=True, element_shape=(3,))

    def body(i: Any, h: Any, a: Any) -> Any:
        a = hr.while_loop(lambda k, a: k < 2, lambda k, a: (k + 1, a.write(2 * i + k, h * h)), [0, a])[1]
        return i + 1, hr.math.lgamma(h) * 0.5, a

    stacked = hr.while_loop(lambda i, h, a: i < n, body, [0, x, made])[2].stack()
    fed = {x: np.array([0.1, 0.2, 0.3], np.float32), n: 4}
    assert cores([stacked], fed)
    with flags.override(NATIVE="on"), hr.Session(engine="compiled") as session:
        assert "list" not in session.explain(stacked, list(fed)).native_source


def test_the_explanation_has_the_assembly_of_the_processor() -> None:
    x = hr.placeholder(hr.float32, (64,))
    with flags.override(NATIVE="on", CACHE="off"), hr.Session() as session:
        run = session.make_callable(hr.tanh(x) * x, [x])
        assert "core0:" in hr.explain(run).native_assembly
        assert "define" not in hr.explain(run).native_assembly
    with flags.override(NATIVE="off"), hr.Session() as session:
        assert hr.explain(session.make_callable(hr.tanh(x) * x, [x])).native_assembly == ""
