"""Collectives: values, gradients, errors; rings and trees give the values of the kernels."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any
from unittest import mock

import numpy as np
import pytest

import headrace as hr
import headrace.pipeline
from headrace import thresholds
from headrace.compiled_step import CompiledStep, Request
from headrace.environment import Environment
from headrace.errors import GraphError, InvalidArgumentError, ShapeError, SignatureError
from headrace.execute.plan import make_plan
from headrace.grad.differentiate import differentiate
from headrace.ir.graph import Graph, Operation
from headrace.ir.verify import verify
from headrace.lower import lower
from headrace.lower.collectives import expand_collectives
from headrace.pipeline import pruned
from headrace.stages import Stages
from tests.api.running import run
from tests.grad.numeric import check, count, operations

ALL = ("all_sum", "all_prod", "all_max", "all_min", "broadcast", "all_gather", "reduce_scatter")
TYPES = ("_AllReduce", "_Broadcast", "_AllGather", "_ReduceScatter")


def device(i: int) -> str:
    return f"/device:CPU:{i}"


def apply(what: str, xs: Sequence[Any], devices: Sequence[str] | None = None) -> list[Any]:
    """The collective `what` of `xs`, of which a broadcast takes the first."""
    if what == "broadcast":
        out: list[Any] = hr.broadcast(xs[0], len(xs) if devices is None else devices)
        return out
    made: list[Any] = getattr(hr, what)(xs, devices)
    return made


def expected(what: str, xs: Sequence[np.ndarray]) -> list[np.ndarray]:
    n = len(xs)
    whole: dict[str, Callable[[], np.ndarray]] = {
        "all_sum": lambda: np.sum(xs, 0, dtype=xs[0].dtype),
        "all_prod": lambda: np.prod(xs, 0, dtype=xs[0].dtype),
        "all_max": lambda: np.max(xs, 0),
        "all_min": lambda: np.min(xs, 0),
        "broadcast": lambda: xs[0],
        "all_gather": lambda: np.concatenate(xs),
    }
    return [whole[what]()] * n if what in whole else np.split(np.sum(xs, 0, dtype=xs[0].dtype), n)


def drawn(n: int, shape: Sequence[int], dtype: Any = np.int64) -> list[np.ndarray]:
    rng = np.random.default_rng(n)
    return [rng.integers(-4, 5, shape).astype(dtype) for _ in range(n)]


@contextlib.contextmanager
def expanded(bytes_for_ring: int, seen: list[Graph]) -> Iterator[None]:
    """Makes sessions run their steps on the token machine with collectives taken apart.

    There is one device.

    Args:
      bytes_for_ring: Fewest bytes for a ring: 0 makes rings of all collectives that can be one, a large number of none.
      seen: gains the graph of each step, after that.
    """

    def compile_step(request: Request, environment: Environment, stages: Stages) -> CompiledStep:
        step = stages.run("prune", pruned, request, environment)
        lowered = lower(step.graph, step.targets, differentiate)
        with mock.patch.object(thresholds, "RING_BYTES", bytes_for_ring):
            ops = expand_collectives(lowered.ops)
        verify(lowered.graph)
        seen.append(lowered.graph)
        return CompiledStep(request, stages.made, None, {"": make_plan(ops, lowered.functions)})

    with mock.patch.object(headrace.pipeline, "compile_step", compile_step):
        yield


RING, TREE = 0, 1 << 60
ways = pytest.mark.parametrize("way", [RING, TREE], ids=["ring", "tree"])


def same(fetches: Any, feeds: Any, way: int, exactly: bool = False) -> Graph:
    """Checks that the fetches are the same with collectives taken apart.

    Returns the graph that was run then.
    """
    seen: list[Graph] = []
    whole = run(fetches, feeds)
    with expanded(way, seen):
        parts = run(fetches, feeds)
    for a, b in zip(whole, parts, strict=True):
        if exactly or np.asarray(a).dtype.kind not in "fc":
            np.testing.assert_array_equal(a, b)
        else:
            np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-12)
    assert not count(seen[-1], *TYPES)
    return seen[-1]


# *** values and shapes ***


@pytest.mark.parametrize("n", [1, 2, 5])
@pytest.mark.parametrize("what", ALL)
def test_values_and_static_shapes(what: str, n: int, g: hr.Graph) -> None:
    xs = drawn(n, (2 * n, 3))
    got = apply(what, [hr.constant(x) for x in xs])
    assert len(got) == n
    for y, value, want in zip(got, run(got), expected(what, xs), strict=True):
        assert y.shape == want.shape
        assert value.dtype == want.dtype
        np.testing.assert_array_equal(value, want)


@pytest.mark.parametrize("what", ALL)
def test_outside_of_graphs_they_run_at_once(what: str) -> None:
    xs = drawn(2, (4,))
    for got, want in zip(apply(what, xs), expected(what, xs), strict=True):
        np.testing.assert_array_equal(got.numpy(), want)


def test_numbers_take_the_dtype_of_the_tensors_and_variables_are_read(g: hr.Graph) -> None:
    v = hr.Variable(2.0, dtype=hr.float64)
    a, b, c = hr.all_sum([v, 1, hr.constant(0.5, hr.float64)])
    with hr.Session(graph=g) as session:
        session.run(v.initializer)
        assert session.run([a, b, c]) == [3.5, 3.5, 3.5]
    assert a.dtype is hr.float64


def test_strings_and_bools_are_handed_round(g: hr.Graph) -> None:
    assert [y.tolist() for y in run(hr.all_gather([["a"], ["bc"]]))] == [[b"a", b"bc"]] * 2
    assert [bool(y) for y in run(hr.broadcast(True, 3))] == [True] * 3
    same(hr.all_gather([["a"], ["bc"], [""]]) + hr.broadcast(["x"], [device(0), device(1)]), None, RING)


@pytest.mark.parametrize("what", ALL)
def test_what_is_not_known_of_shapes_shows_when_it_runs(what: str, g: hr.Graph) -> None:
    xs = drawn(3, (6, 2))
    inputs = [hr.placeholder(hr.int64, s) for s in (None, (None, 2), (None, None))]
    got = apply(what, inputs)
    feeds = dict(zip(inputs, xs, strict=True))
    for value, want in zip(run(got, feeds), expected(what, xs), strict=True):
        np.testing.assert_array_equal(value, want)
    same(got, feeds, RING)


# *** gradients ***


@pytest.mark.parametrize("what", ALL)
def test_gradients_to_second_order(what: str) -> None:
    rng = np.random.default_rng(3)

    def make(x: Any) -> Any:
        xs = [hr.sin(t) * (k + 1.0) for k, t in enumerate(hr.unstack(x, num=3))]
        return hr.add_n([hr.reduce_sum(y * y * (k + 1.0)) for k, y in enumerate(apply(what, xs))])

    check(make, rng.uniform(0.5, 1.5, (3, 3, 2)), orders=3 if what == "all_prod" else 2)


def test_gradients_of_collectives_are_collectives_on_the_same_devices(g: hr.Graph) -> None:
    xs = [hr.placeholder(hr.float32, (4,)) for _ in range(2)]
    there = (device(1), device(3))
    for what, back in (("all_sum", "_AllReduce"), ("all_gather", "_ReduceScatter"), ("reduce_scatter", "_AllGather")):
        before = len(g)
        hr.gradients(apply(what, xs, there), xs)
        made = [op for op in g.operations[before:] if op.type == back]
        assert [op.attrs["devices"] for op in made if "grad" in op.name] == [there]


def test_where_several_are_the_largest_each_has_an_equal_share(g: hr.Graph) -> None:
    xs = [hr.constant(v) for v in ([2.0, 1.0], [2.0, 5.0], [0.0, 5.0], [2.0, 5.0])]
    got = run(hr.gradients(hr.all_max(xs)[1], xs))
    want = np.array([[1, 0], [1, 1], [0, 1], [1, 1]]) / 3
    np.testing.assert_allclose(got, want, rtol=1e-6)


def test_zeros_do_no_harm_to_the_gradient_of_a_product(g: hr.Graph) -> None:
    xs = [hr.constant(v, hr.float64) for v in ([0.0, 0.0], [3.0, 0.0], [5.0, 2.0])]
    ys = hr.all_prod(xs)
    first = hr.gradients(ys[0], xs)
    np.testing.assert_array_equal(run(first), [[15, 0], [0, 0], [0, 0]])
    np.testing.assert_array_equal(run(hr.gradients(first[0], xs[1])), [[5, 2]])


def test_tangents_of_all_reductions(g: hr.Graph) -> None:
    for what in ALL[:4]:
        xs = [hr.constant(v, hr.float64) for v in (0.5, 1.5, -2.0)]
        ys = apply(what, xs)
        by_grad = run([hr.gradients(ys[1], x)[0] for x in xs])
        (dy,) = hr.jvp(
            lambda x, xs=xs, what=what: apply(what, [x, *xs[1:]])[1:2], [xs[0]], [hr.constant(1.0, hr.float64)]
        )[1]
        assert run(dy) == by_grad[0]


# *** in loops and conditionals ***


def averaging(n: int, steps: Any, what: str = "all_sum") -> Callable[[Any], Any]:
    """A function of participants that each turn their tensor into one that depends on all.

    There are `n` participants, and they do so in each of `steps` iterations.
    """

    def make(x: Any) -> Any:
        def body(i: Any, *xs: Any) -> tuple[Any, ...]:
            ys = apply(what, [hr.sin(v) for v in xs], [device(k) for k in range(n)])
            return (i + 1, *(hr.tanh(y) + v * 0.5 for y, v in zip(ys, xs, strict=True)))

        _, *out = hr.while_loop(lambda i, *_: i < steps, body, (0, *hr.unstack(x, num=n)))
        return hr.add_n([hr.reduce_sum(y * (k + 1.0)) for k, y in enumerate(out)])

    return make


@pytest.mark.matrix
@pytest.mark.parametrize("what", ["all_sum", "all_max", "broadcast"])
def test_gradients_of_loops(what: str) -> None:
    check(averaging(3, 4, what), np.random.default_rng(1).uniform(0.5, 1.5, (3, 2)), orders=2)


@ways
@pytest.mark.parametrize("steps", [0, 1, 5])
def test_loops_and_their_gradients_taken_apart(way: int, steps: int, g: hr.Graph) -> None:
    x, n = hr.placeholder(hr.float64, (3, 4)), hr.placeholder(hr.int32, ())
    y = averaging(3, n)(x)
    (dx,) = hr.gradients(y, x)
    (ddx,) = hr.gradients(dx, x)
    same([y, dx, ddx], {x: np.random.default_rng(0).uniform(-1, 1, (3, 4)), n: steps}, way)


@ways
@pytest.mark.parametrize("value", [True, False])
def test_conditionals_and_their_gradients_taken_apart(way: int, value: bool, g: hr.Graph, p: hr.Tensor) -> None:
    x = hr.placeholder(hr.float64, (2, 4))
    u, v = hr.unstack(x, num=2)
    y = hr.cond(p, lambda: hr.all_prod([u, v])[1], lambda: hr.reduce_scatter([u, v])[0][:1] * u)
    (dx,) = hr.gradients(y, x)
    same([y, dx], {x: np.arange(8.0).reshape(2, 4), p: value}, way)


@ways
def test_what_a_branch_captures_is_dead_with_it(way: int, g: hr.Graph, p: hr.Tensor) -> None:
    """In a loop, all inputs of the collective come from outside.

    Only a control edge ties it to the body.
    """
    xs = [hr.placeholder(hr.float64, (3,)) for _ in range(3)]

    def body(i: Any, s: Any) -> tuple[Any, Any]:
        more = hr.cond(hr.equal(i % 2, 0), lambda: hr.all_sum(xs)[2], lambda: hr.all_gather(xs)[1][3:6])
        return i + 1, s + more

    _, s = hr.while_loop(lambda i, s: i < 5, body, (0, hr.zeros((3,), hr.float64)))
    same([s], dict(zip(xs, drawn(3, (3,), np.float64), strict=True)), way)


# *** taken apart ***


@ways
@pytest.mark.parametrize("n", [1, 2, 3, 8])
@pytest.mark.parametrize("what", ALL)
def test_expansions_give_what_kernels_give(what: str, n: int, way: int, g: hr.Graph) -> None:
    for dtype in (np.int64, np.float32):
        values = drawn(n, (n, 3), dtype)
        xs = [hr.placeholder(hr.as_dtype(dtype), (n, 3)) for _ in values]
        feeds = dict(zip(xs, values, strict=True))
        if n > 1:  # else it stays one operation
            same(apply(what, xs, [device(k) for k in range(n)]), feeds, way, exactly=way == TREE)
        same(apply(what, xs), feeds, way, exactly=way == TREE)


@pytest.mark.parametrize("size", [0, 1, 2, 7])
def test_rings_of_tensors_that_cannot_be_cut_evenly(size: int, g: hr.Graph) -> None:
    xs = [hr.constant(x) for x in drawn(3, (size,))]
    same(hr.all_sum(xs) + hr.broadcast(xs[0], [device(1), device(2), device(3)]) + hr.all_gather(xs), None, RING)


@pytest.mark.parametrize("way", [RING, TREE])
def test_participants_get_the_same_bits(way: int, g: hr.Graph) -> None:
    rng = np.random.default_rng(0)
    ys = hr.all_sum([hr.constant(rng.normal(size=(7, 5)).astype(np.float32) * 10.0**k) for k in range(-2, 3)])
    with expanded(way, []):
        got = run(ys)
        again = run(ys)
    assert len({y.tobytes() for y in got + again}) == 1


def test_small_floats_have_the_bits_of_one_device(g: hr.Graph) -> None:
    rng = np.random.default_rng(0)
    for dtype in (hr.float32, hr.float16, hr.bfloat16):
        xs = [hr.cast(rng.normal(size=(9,)), dtype) for _ in range(5)]
        same([hr.cast(y, hr.float64) for y in hr.all_sum(xs) + hr.all_prod(xs)], None, TREE, exactly=True)


def expand(text_of: Callable[[], Any]) -> list[Operation]:
    """The operations of a graph without structure, collectives taken apart."""
    with hr.Graph(ordered=False) as graph:
        text_of()
    return list(expand_collectives(graph.operations))


def test_small_tensors_go_through_trees_and_large_ones_round_rings() -> None:
    def types(elements: Any) -> list[str]:
        def build() -> None:
            hr.all_sum([hr.placeholder(hr.float32, (elements,)) for _ in range(4)], [device(k) for k in range(4)])

        return [op.type for op in expand(build) if op.type != "Placeholder"]

    tree = types(thresholds.RING_BYTES // 4 - 1)
    assert sorted(tree) == ["AddV2"] * 3 + ["Identity"] * 3
    assert sorted(types(None)) == sorted(tree)
    ring = types(thresholds.RING_BYTES // 4)
    assert {t: ring.count(t) for t in ring} == {"_Cut": 4, "AddV2": 12, "Identity": 12, "_Join": 4}


def test_each_participant_works_on_its_device() -> None:
    def build() -> None:
        xs = []
        for k in range(2):
            with hr.device(device(k)):
                xs.append(hr.placeholder(hr.float32, (4,), name=f"x{k}"))
        with hr.device("/job:localhost"):
            xs.append(hr.identity(hr.placeholder(hr.float32, (4,), name="x2")))
        hr.all_sum([*xs[:2], hr.placeholder(hr.float32, (4,), name="x3")], name="open")
        hr.all_sum(xs[:2], [device(2), "/cpu:3"], name="named")
        hr.all_sum(xs[:2], [device(2), "/cpu:2"], name="near")

    ops = {op.name: op for op in expand(build)}
    assert ops["open/0/AddV2"].device == "/device:CPU:0"
    assert ops["open/1/Identity"].device == "/device:CPU:1"
    assert ops["open/2/Identity"].device == ""
    assert ops["open/2/Identity"].attrs["_class"] == ("loc:@x3",)
    assert ops["named/1/Identity"].device == "/device:CPU:3"
    assert ops["near"].device == "/device:CPU:2"  # all participants are there: it stays one operation


def test_the_device_of_a_loop_constant_is_that_of_what_enters() -> None:
    with hr.Graph() as g:
        with hr.device(device(2)):
            x = hr.placeholder(hr.float32, (4,))
        _, y = hr.while_loop(lambda i, y: i < 3, lambda i, y: (i + 1, y + hr.all_sum([x, y])[1]), (0, hr.negative(x)))
        hr.identity(y, name="end")
    lowered = lower(g, [g.get_operation_by_name("end")], differentiate)
    ops = expand_collectives(lowered.ops)
    (add,) = [op for op in ops if op.name.endswith("/0/AddV2")]
    assert add.device == device(2)


def test_what_waits_for_a_collective_waits_for_all_its_parts_and_these_for_what_it_waited_for() -> None:
    def build() -> None:
        first: Any = hr.no_op(name="first")
        xs = [hr.placeholder(hr.float32, (4,)) for _ in range(3)]
        with hr.control_dependencies([first]):
            a, _, _ = hr.all_sum(xs, name="sum")
        with hr.control_dependencies([a]):
            hr.no_op(name="last")
        with hr.colocate_with(a):
            hr.no_op(name="beside")

    ops = {op.name: op for op in expand(build)}
    ends = ops["last"].control_inputs
    assert sorted(e.name for e in ends) == ["sum/0/AddV2_1", "sum/1/Identity_1", "sum/2/Identity_1"]
    assert [ops[f"sum/{k}/Identity"].control_inputs for k in range(3)] == [[ops["first"]]] * 3
    assert ops["beside"].attrs["_class"] == ("loc:@sum/0/AddV2_1",)


def test_what_nobody_reads_is_not_handed_on() -> None:
    def build() -> None:
        xs = [hr.placeholder(hr.float32, (4,)) for _ in range(8)]
        hr.identity(hr.all_sum(xs, name="sum")[0], name="end")
        hr.all_max(xs, name="all")

    ops = expand(build)
    assert [op.type for op in ops if op.name.startswith("sum/")] == ["AddV2"] * 7
    assert len([op for op in ops if op.name.startswith("all/")]) == 14


@ways
def test_a_collective_can_be_what_is_run(way: int, g: hr.Graph) -> None:
    ys = hr.all_sum([hr.constant([1.0]), hr.constant([2.0])])
    seen: list[Graph] = []
    with expanded(way, seen):
        assert run(ys[0].op) is None
    assert {op.type for op in operations(seen[0])} >= {"AddV2", "Identity"}


# *** errors ***


def test_what_does_not_fit_is_refused(g: hr.Graph) -> None:
    x, y = hr.placeholder(hr.float32, (2,), name="x"), hr.placeholder(hr.float32, (3,), name="y")
    with pytest.raises(ShapeError, match=r"must be equal, but are 2 and 3.*'AllReduce'.*test_collectives"):
        hr.all_sum([x, y])
    with pytest.raises(SignatureError, match="float64 that does not match type float32"):
        hr.all_max([x, hr.constant([1.0, 2.0], hr.float64)])
    with pytest.raises(ShapeError, match="into 2 equal parts, which 3 is not divisible into"):
        hr.reduce_scatter([y, y])
    with pytest.raises(ShapeError, match="at least rank 1"):
        hr.all_gather([hr.constant(1.0), hr.constant(2.0)])
    with pytest.raises(ShapeError, match="complex numbers have no order, so there is no max"):
        hr.all_max([hr.constant(1j)])
    for what in ALL:
        with pytest.raises(GraphError, match=f"{what} needs at least one participant"):
            hr.broadcast(x, []) if what == "broadcast" else apply(what, [])
    with pytest.raises(GraphError, match="at least one participant, got devices=0"):
        hr.broadcast(x, 0)
    with pytest.raises(GraphError, match=r"a device for each of the 2 tensors, got \['/cpu:0'\]"):
        hr.all_sum([x, x], ["/cpu:0"])
    with pytest.raises(GraphError, match="must be a list with a device name"):
        hr.all_sum([x, x], "/cpu:0")  # type: ignore[arg-type]
    with pytest.raises(GraphError, match="is no part of a device name"):
        hr.broadcast(x, ["/cpu:0", "gpu-three"])
    with pytest.raises(GraphError, match="takes a list with a tensor for each participant"):
        hr.all_sum(x)  # type: ignore[arg-type]


def test_what_does_not_fit_when_it_runs_is_refused(g: hr.Graph) -> None:
    x, y = hr.placeholder(hr.float32, None, name="x"), hr.placeholder(hr.float32, None, name="y")
    with pytest.raises(InvalidArgumentError, match=r"same size and shape. Input 0: \[2\] != input 1: \[3\]"):
        run(hr.all_sum([x, y]), {x: [1, 2], y: [1, 2, 3]})
    with pytest.raises(InvalidArgumentError, match="which 3 is not divisible into"):
        run(hr.reduce_scatter([x, y]), {x: [1, 2, 3], y: [1, 2, 3]})
    with pytest.raises(InvalidArgumentError, match="needs tensors of rank 1"):
        run(hr.all_gather([x, y]), {x: 1, y: 2})
