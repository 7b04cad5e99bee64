"""Placement without requests.

Small graphs stay in one place, large operations are spread, and loops become pipelines.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import headrace as hr
from benchmarks.placement import compare
from headrace.ir.graph import Operation, Tensor
from headrace.ir.text import from_text
from headrace.place import Cluster, Costs, Link, Placement, place
from headrace.place.simulate import simulate_step
from tests.place.placing import TASK, cluster, lowered, named, placed, short

LARGE = "[1024,1024]"  # a product of two takes 50 ms, by the estimates


def step(
    fetches: Sequence[Tensor], feeds: Sequence[Tensor], devices: Cluster | None = None, **options: Any
) -> tuple[Sequence[Operation], Placement]:
    low = lowered(fetches, feeds)
    return low.ops, place(low.ops, devices or cluster(), functions=low.functions, **options)


def places(ops: Sequence[Operation], found: Placement) -> set[str]:
    return {short(found.of[op]) for op in ops}


def of_type(ops: Sequence[Operation], *types: str) -> list[Operation]:
    return [op for op in ops if op.type in types]


# *** small things ***


def test_small_operations_stay_on_one_device() -> None:
    with hr.Graph():
        x = hr.placeholder("float32", [4])
        wide = [hr.tanh(x * float(i)) for i in range(200)]
        y = hr.add_n(wide)
    ops, found = step([y], [x])
    assert places(ops, found) == {"CPU:0"}


def test_so_do_components_that_have_nothing_to_do_with_one_another() -> None:
    with hr.Graph():
        xs = [hr.placeholder("float32", [4]) for _ in range(50)]
        ys = [hr.tanh(x) + 1.0 for x in xs]
    ops, found = step(ys, xs)
    assert places(ops, found) == {"CPU:0"}


def test_so_does_a_loop_with_its_gradient() -> None:
    with hr.Graph():
        x = hr.placeholder("float32", [4, 4])
        y = hr.while_loop(lambda i, h: i < 100, lambda i, h: (i + 1, hr.tanh(hr.matmul(h, x))), (0, x))[1]
        (g,) = hr.gradients(y, x)
    ops, found = step([y, g], [x])
    assert places(ops, found) == {"CPU:0"}


def test_small_operations_go_where_their_neighbours_are_pinned() -> None:
    with hr.Graph():
        x = hr.placeholder("float32", [4])
        with hr.device("/cpu:1"):
            y = hr.tanh(x)
        z = hr.reduce_sum(y * y) + 1.0
    ops, found = step([z], [x], soft=False)
    assert places(ops, found) == {"CPU:1"}


def test_of_two_pinned_neighbours_the_one_with_the_larger_token_wins() -> None:
    text = """
    a = Placeholder[dtype=float32, shape=[100000]] @"/cpu:0"
    b = Placeholder[dtype=float32, shape=[]] @"/cpu:1"
    s = Slice[Index=int32](a, zero, one)
    m = Mul(s, b)
    """
    text = (
        "".join(
            f"{name} = Const[value=int32[1]{{{value}}}, dtype=int32]\n" for name, value in (("zero", 0), ("one", 1))
        )
        + text
    )
    got = placed(text)
    assert got["s"] == "CPU:0"


def test_small_operations_do_not_bind_large_ones() -> None:
    """Two products read one small pinned value; they are still spread."""
    text = f"""
    p = Placeholder[dtype=float32, shape=[]] @"/cpu:1"
    a = Placeholder[dtype=float32, shape={LARGE}]
    b = MatMul(a, a) ^p
    c = MatMul[transpose_a=true](a, a) ^p
    """
    got = placed(text)
    assert {got["b"], got["c"]} == {"CPU:0", "CPU:1"}


def test_constants_are_where_they_are_wanted() -> None:
    text = """
    c = Const[value=float32[]{1.0}, dtype=float32]
    x = Placeholder[dtype=float32, shape=[]] @"/cpu:1"
    y = Mul(x, c)
    """
    assert placed(text) == {"c": "CPU:1", "x": "CPU:1", "y": "CPU:1"}


def test_what_reads_a_pinned_constant_stands_beside_it() -> None:
    assert placed('c = Const[value=float32[]{1.0}, dtype=float32] @"/cpu:1"\ny = Neg(c)')["y"] == "CPU:1"


# *** large things ***


def test_independent_products_are_spread() -> None:
    text = f"a = Placeholder[dtype=float32, shape={LARGE}]\n" + "".join(f"m{i} = MatMul(a, a) ^a\n" for i in range(6))
    got = placed(text, cluster("CPU:0", "CPU:1", "CPU:2"))
    assert sorted(got[f"m{i}"] for i in range(6)) == ["CPU:0"] * 2 + ["CPU:1"] * 2 + ["CPU:2"] * 2


def test_a_chain_is_not() -> None:
    text = f"a = Placeholder[dtype=float32, shape={LARGE}]\nm0 = MatMul(a, a)\n"
    text += "".join(f"m{i} = MatMul(m{i - 1}, m{i - 1})\n" for i in range(1, 6))
    assert set(placed(text).values()) == {"CPU:0"}


def test_nor_is_what_takes_longer_to_send_than_to_do() -> None:
    slow = dataclasses.replace(cluster(), link=Link(bandwidth=1e6))  # 4 s a matrix
    text = f"a = Placeholder[dtype=float32, shape={LARGE}]\n" + "".join(f"m{i} = MatMul(a, a) ^a\n" for i in range(6))
    assert set(placed(text, slow).values()) == {"CPU:0"}


def test_a_faster_device_gets_more() -> None:
    slow, fast = cluster().devices
    uneven = Cluster((slow, dataclasses.replace(fast, flops=slow.flops * 3)))
    text = f"a = Placeholder[dtype=float32, shape={LARGE}]\n" + "".join(f"m{i} = MatMul(a, a) ^a\n" for i in range(8))
    got = placed(text, uneven)
    assert sum(got[f"m{i}"] == "CPU:1" for i in range(8)) == 6


def test_measured_costs_win() -> None:
    text = f"""
    a = Placeholder[dtype=float32, shape={LARGE}]
    b = MatMul(a, a)
    c = MatMul[transpose_a=true](a, a)
    """
    quick = Costs({("b", "CPU"): 1e-6, ("c", "CPU"): 1e-6})
    assert set(placed(text, costs=quick).values()) == {"CPU:0"}
    assert len(set(placed(text).values())) == 2


# *** loops ***


def pipeline(stages: int, parallel_iterations: int = 10) -> tuple[list[Tensor], Tensor]:
    """A loop whose stages form a pipeline.

    Each stage works on the result that the preceding stage made in the preceding iteration.
    """
    with hr.Graph():
        x = hr.placeholder("float32", [1024, 1024])

        def body(i: Tensor, *h: Tensor) -> tuple[Tensor, ...]:
            before = (x, *h)
            return i + 1, *[hr.tanh(hr.matmul(h[k], before[k])) for k in range(stages)]

        out = hr.while_loop(lambda i, *h: i < 20, body, (0, *[x] * stages), parallel_iterations=parallel_iterations)
    return list(out[1:]), x


@pytest.mark.parametrize("parallel_iterations", [1, 10])
def test_the_stages_of_a_loop_are_spread(parallel_iterations: int) -> None:
    ys, x = pipeline(2, parallel_iterations)
    ops, found = step(ys, [x])
    products = of_type(ops, "MatMul")
    assert places(products, found) == {"CPU:0", "CPU:1"}
    for m in products:  # and the next iteration's value stands with its stage
        (tanh,) = [op for op in ops if m.outputs[0] in op.inputs]
        (last,) = [op for op in ops if op.type == "NextIteration" and op.inputs[0].op is tanh]
        (merge,) = [op for op in ops if op.type == "Merge" and last.outputs[0] in op.inputs]
        assert len(places([m, tanh, last, merge], found)) == 1
    alone = simulate_step(ops, dict.fromkeys(ops, TASK + "CPU:0"), cluster()).makespan
    assert simulate_step(ops, found.of, cluster()).makespan < 0.6 * alone


def test_what_waits_for_itself_is_not_cut() -> None:
    with hr.Graph():
        x = hr.placeholder("float32", [1024, 1024])
        y = hr.while_loop(
            lambda i, h: i < 20, lambda i, h: (i + 1, hr.matmul(hr.tanh(hr.matmul(hr.matmul(h, x), x)), x)), (0, x)
        )[1]
    ops, found = step([y], [x])
    assert places(ops, found) == {"CPU:0"}


def test_unless_it_has_branches_that_are_worth_it() -> None:
    with hr.Graph():
        x = hr.placeholder("float32", [1024, 1024])
        y = hr.while_loop(
            lambda i, h: i < 20,
            lambda i, h: (i + 1, hr.matmul(h, x) + hr.matmul(h, x, transpose_b=True)),
            (0, x),
        )[1]
    ops, found = step([y], [x])
    assert places(of_type(ops, "MatMul"), found) == {"CPU:0", "CPU:1"}
    assert simulate_step(ops, found.of, cluster()).makespan < 20 * 0.065


def layers(pinned: bool) -> tuple[list[Tensor], Tensor]:
    """A recurrent network of two layers, and its gradient.

    The second layer works on the newest result of the first.
    """
    with hr.Graph():
        x = hr.placeholder("float32", [512, 512])
        device = (lambda k: hr.device(f"/cpu:{k}")) if pinned else (lambda k: hr.device(None))
        ws = []
        for k in range(2):
            with device(k):
                ws.append(hr.Variable(np.zeros((512, 512), np.float32), name=f"w{k}"))

        def body(i: Tensor, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            with device(0):
                a = hr.tanh(hr.matmul(a, ws[0]) + x)
            with device(1):
                b = hr.tanh(hr.matmul(b, ws[1]) + a)
            return i + 1, a, b

        out = hr.while_loop(lambda i, a, b: i < 20, body, (0, x, x))
        grads = hr.gradients(hr.reduce_sum(out[2]), ws)
    return [out[2], *grads], x


def test_accumulators_stand_where_their_values_are_made() -> None:
    fetches, x = layers(pinned=True)
    ops, found = step(fetches, [x], soft=False)
    at = named(ops, found.of)
    pushes = of_type(ops, "TensorListPushBack")
    assert pushes
    for push in pushes:
        assert at[push.name] == at[push.inputs[1].op.name]
    for op in ops:  # a list never crosses
        for t in op.inputs:
            if t.dtype.name == "variant":
                assert at[op.name] == at[t.op.name]


def test_gradients_stand_beside_what_they_are_the_gradients_of() -> None:
    fetches, x = layers(pinned=True)
    ops, found = step(fetches, [x], soft=False)
    forward = simulate_step(ops, found.of, cluster())
    backward = [op for op in of_type(ops, "MatMul") if op.name.startswith("gradients")]
    assert places(backward, found) == {"CPU:0", "CPU:1"}
    crossing = sum(forward.sent.values())
    assert crossing <= 20 * 8, "a handful of tokens an iteration"


def test_large_layers_are_found_without_help() -> None:
    fetches, x = layers(pinned=False)
    ops, found = step(fetches, [x])
    alone = simulate_step(ops, dict.fromkeys(ops, TASK + "CPU:0"), cluster()).makespan
    assert simulate_step(ops, found.of, cluster()).makespan < 0.7 * alone


def test_a_loop_that_takes_what_comes_out_of_it_is_placed() -> None:
    """It never ends, but that is not for the placer to find out."""
    text = """
    x = Placeholder[dtype=float32, shape=[]]
    p = Placeholder[dtype=bool, shape=[]]
    e = Enter[frame_name="loop"](x)
    q = Enter[frame_name="loop", is_constant=true](p)
    m = Merge[N=2, T=float32](e, next)
    go = LoopCond(q)
    s = Switch(m, go)
    out = Exit(s:0)
    back = Enter[frame_name="loop", is_constant=true](out)
    y = AddV2(s:1, back)
    next = NextIteration(y)
    """
    assert set(placed(text).values()) == {"CPU:0"}


# *** in general ***


@pytest.mark.matrix
def test_it_is_about_as_good_as_the_best() -> None:
    """A few of the graphs that `benchmarks.placement` measures."""
    found = list(compare(range(25)))
    assert np.median([c.greedy / c.best for c in found]) < 1.1
    assert all(c.greedy <= c.alone * (1 + 1e-9) for c in found)


def test_each_operation_gets_one_of_the_devices_it_may_have() -> None:
    rng = random.Random(7)
    for _ in range(50):
        lines = ["n0 = Placeholder[dtype=float32, shape=[64,64]]"]
        for i in range(1, 30):
            a, b = (f"n{rng.randrange(i)}" for _ in range(2))
            device = rng.choice(["", "", ' @"/cpu:0"', ' @"/cpu:1"', ' @"/cpu:2"'])
            lines.append(f"n{i} = {rng.choice(['MatMul', 'AddV2'])}({a}, {b}){device}")
        g = from_text("\n".join(lines))
        found = place(g.operations, cluster("CPU:0", "CPU:1", "CPU:2"), soft=False)
        for op in g.operations:
            assert not op.device or short(found.of[op]) == op.device[1:].upper()
