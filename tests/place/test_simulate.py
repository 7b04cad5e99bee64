"""Steps on paper: makespans that can be reckoned by hand."""

from __future__ import annotations

import dataclasses
import random
from collections import Counter

import numpy as np
import pytest

import headrace as hr
from headrace import step_events
from headrace.errors import InvalidArgumentError
from headrace.ir.text import from_text
from headrace.place import Cluster, Costs, DeviceModel, Link, place
from headrace.place.costs import is_free
from headrace.place.simulate import Simulation, simulate_step
from headrace.simulate import simulate
from tests.place.placing import TASK, cluster, lowered

A, B = TASK + "CPU:0", TASK + "CPU:1"
# nothing costs anything but what is measured; a crossing takes 1 s and 1 s a byte
PAPER = Cluster((DeviceModel(A, 1e30, 1e30, 0.0), DeviceModel(B, 1e30, 1e30, 0.0)), Link(1.0, 1.0))
NEAR = dataclasses.replace(PAPER, link=Link(0.0, 1e30))


def run(text: str, on_b: str = "", link: Cluster = PAPER, **seconds: float) -> Simulation:
    """The step `text`, the operations named in `on_b` on B and the rest on A."""
    ops = from_text(text).operations
    of = {op: B if op.name in on_b.split() else A for op in ops}
    return simulate_step(ops, of, link, Costs({(name, "CPU"): s for name, s in seconds.items()}))


FORK = """
x = Const[value=int8[]{1}, dtype=int8]
a = Neg(x)
b = Neg(a)
c = Neg(a)
d = AddV2(b, c)
"""


def test_one_device_adds_up() -> None:
    s = run(FORK, a=1, b=2, c=3, d=4)
    assert s.makespan == 10
    assert [(t.op, t.start, t.end) for t in s.timeline] == [("a", 0, 1), ("b", 1, 3), ("c", 3, 6), ("d", 6, 10)]
    assert s.busy == {A: 10, B: 0}
    assert s.sent == {}


def test_two_devices_overlap_and_pay_for_crossing() -> None:
    s = run(FORK, "c", a=1, b=2, c=3, d=4)
    # a to B: 1 byte and latency: 3; c until 6; back at 8
    assert s.makespan == 12
    assert s.busy == {A: 7, B: 3}
    assert s.sent == {(A, B): 1, (B, A): 1}


def test_a_tensor_crosses_once_however_many_use_it() -> None:
    s = run(FORK, "b c", a=1, b=2, c=3, d=4)
    assert s.sent == {(A, B): 1, (B, A): 2}


def test_a_link_carries_one_token_at_a_time() -> None:
    text = """
    x = Const[value=int8[5]{0.0...}, dtype=int8]
    a = Neg(x)
    b = Neg(x)
    c = Neg(a)
    d = Neg(b)
    """.replace("{0.0...}", "{0...}")
    s = run(text, "c d", a=1, b=1, c=1, d=1)
    # a at 1, b at 2; the link is taken until 6, then until 11; they arrive 1 s later
    assert [t.start for t in s.timeline if t.op in "cd"] == [7, 12]
    assert s.makespan == 13


def test_links_differ() -> None:
    far = dataclasses.replace(PAPER, links={(A, B): Link(100.0, 1.0)})
    assert run(FORK, "c", far, a=1, b=2, c=3, d=4).makespan == 12 + 99


def test_constants_do_not_cross() -> None:
    s = run("x = Const[value=int8[]{1}, dtype=int8]\na = Neg(x)", "a", a=1)
    assert s.makespan == 1
    assert s.sent == {}


def test_a_control_edge_crosses_as_an_empty_token() -> None:
    s = run("x = Const[value=int8[]{1}, dtype=int8]\na = Neg(x)\nb = Neg(x) ^a", "b", a=2, b=3)
    assert s.makespan == 2 + 1 + 3


def test_small_things_are_not_held_up_by_large_ones() -> None:
    text = FORK + "e = Neg(b)\nf = Neg(x)"
    s = run(text, a=1e-5, b=1e-5, c=1.0, d=1e-5, e=1e-5, f=1.0)
    assert [t.end for t in s.timeline if t.op == "e"] == [pytest.approx(3e-5)]
    assert s.makespan == pytest.approx(2.0, abs=1e-3)


LOOP = """
zero = Const[value=int32[]{{0}}, dtype=int32]
n = Const[value=int32[]{{{trips}}}, dtype=int32]
one = Const[value=int32[]{{1}}, dtype=int32]
x0 = Const[value=int8[]{{1}}, dtype=int8]
x = Neg(x0)
e = Enter[frame_name="loop", parallel_iterations={window}](zero)
m = Merge[N=2, T=int32](e, next)
k = Enter[frame_name="loop", is_constant=true, parallel_iterations={window}](n)
o = Enter[frame_name="loop", is_constant=true, parallel_iterations={window}](one)
less = Less(m, k)
go = LoopCond(less)
s = Switch(m, go)
add = AddV2(s:1, o)
next = NextIteration(add)
out = Exit(s:0)
c = Enter[frame_name="loop", is_constant=true, parallel_iterations={window}](x)
f = Neg(c) ^add
g = Neg(f)
"""


def loop(trips: int, window: int) -> str:
    return LOOP.format(trips=trips, window=window)


@pytest.mark.parametrize("trips", [0, 1, 2, 7])
@pytest.mark.parametrize("window", [1, 2, 10])
def test_a_loop_on_one_device_takes_its_body_each_time(trips: int, window: int) -> None:
    s = run(loop(trips, window), link=NEAR, f=2, g=3)
    assert s.makespan == pytest.approx(5 * trips)
    assert sum(t.op == "f" for t in s.timeline) == trips


@pytest.mark.parametrize(("window", "makespan"), [(1, 5 * 8), (2, 2 + 3 * 8), (10, 2 + 3 * 8)])
def test_iterations_overlap_as_far_as_the_window_allows(window: int, makespan: float) -> None:
    assert run(loop(8, window), "g", NEAR, f=2, g=3).makespan == makespan


def test_a_recurrence_does_not_overlap() -> None:
    s = run(loop(8, 10), "f", NEAR, add=2, f=1)
    assert s.makespan == 8 * 2 + 1


def test_a_loop_constant_crosses_once() -> None:
    s = run(loop(8, 10), "f g", NEAR, f=1, g=1)
    assert s.sent[A, B] == 8 + 1  # each iteration sends only that `add` is done


def test_what_comes_out_of_a_loop_comes_when_it_ends() -> None:
    s = run(loop(4, 10) + "after = Neg(out)", link=NEAR, add=1, after=2)
    assert s.makespan == 4 + 2


def test_a_loop_that_waits_for_itself_goes_on() -> None:
    """An Enter after the loop's own Exit holds up its first iteration.

    That iteration is ended as it stands.
    """
    text = loop(3, 1).replace(" ^add", " ^add ^late")
    text += 'r = Neg(out)\nlate = Enter[frame_name="loop", is_constant=true, parallel_iterations=1](r)'
    s = run(text, link=NEAR, add=1, r=1)
    assert [t.op for t in s.timeline if t.op in ("add", "r")] == ["add"] * 3 + ["r"]
    assert s.makespan == pytest.approx(4)


def nested(outer: int, inner: int) -> tuple[float, float]:
    with hr.Graph():
        x = hr.placeholder("float32", [4])

        def body(i: hr.Tensor, a: hr.Tensor) -> tuple[hr.Tensor, hr.Tensor]:
            return i + 1, hr.while_loop(lambda j, b: j < inner, lambda j, b: (j + 1, hr.tanh(b)), (0, a))[1]

        y = hr.while_loop(lambda i, a: i < outer, body, (0, x))[1]
    low = lowered([y], [x])
    (tanh,) = [op for op in low.ops if op.type == "Tanh"]
    s = simulate_step(low.ops, dict.fromkeys(low.ops, A), PAPER, Costs({(tanh.name, "CPU"): 1.0}))
    return s.makespan, sum(t.op == tanh.name for t in s.timeline)


@pytest.mark.parametrize(("outer", "inner"), [(0, 3), (3, 0), (1, 1), (3, 4)])
def test_loops_in_loops(outer: int, inner: int) -> None:
    assert nested(outer, inner) == (pytest.approx(outer * inner), outer * inner)


def test_trips_that_are_given_win() -> None:
    ops = from_text(loop(7, 10)).operations
    costs = Costs({("f", "CPU"): 1.0}, {"loop": 5})
    of = dict.fromkeys(ops, A)
    assert simulate_step(ops, of, NEAR, costs).makespan == 5
    assert simulate_step(ops, of, NEAR, costs, {"loop": 3}).makespan == 3


def test_a_conditional_counts_both_sides() -> None:
    text = """
    x = Placeholder[dtype=float32, shape=[]]
    p = Placeholder[dtype=bool, shape=[]]
    s = Switch(x, p)
    a = Neg(s:0)
    b = Neg(s:1)
    m = Merge[N=2, T=float32](a, b)
    y = Neg(m)
    """
    assert run(text, link=NEAR, a=2, b=3, y=1).makespan == 6
    assert run(text, link=NEAR, a=2, b=0, y=1).makespan == 3  # b has always been dead


def test_a_picture() -> None:
    text = str(run(FORK, "c", a=0.001, b=0.002, c=0.003, d=0.004))
    lines = text.splitlines()
    assert lines[0].startswith("4.01 s in total; a column is 55.7 ms")
    picture = str(run(FORK, "c", NEAR, a=1, b=2, c=3, d=4)).splitlines()
    assert picture[1].startswith("D" * 9 + "C" * 18 + "." * 9 + "A" * 36 + "  " + A)
    assert picture[2].startswith("." * 9 + "B" * 27 + "." * 36 + "  " + B)
    assert picture[1].endswith("busy 88%")
    assert picture[3:7] == ["A  4 s  d", "B  3 s  c", "C  2 s  b", "D  1 s  a"]
    assert picture[-1] == f"1 tokens from {B} to {A}"


# *** hr.simulate ***


def model(batches: int = 2) -> tuple[hr.Tensor, hr.Tensor]:
    with hr.Graph():
        x = hr.placeholder("float32", [1024, 1024], name="x")
        parts = [hr.matmul(x, x, transpose_b=bool(i), name=f"part{i}") for i in range(batches)]
        y = hr.reduce_sum(hr.add_n(parts))
    return y, x


def test_simulating_a_graph_that_is_not_run() -> None:
    y, x = model()
    assert simulate(y, cluster(), [x]).makespan < 0.6 * simulate([y], cluster("CPU:0"), ["x:0"]).makespan
    workers = Cluster.local([f"/job:worker/replica:0/task:{i}/device:CPU:0" for i in range(2)])
    assert "busy" in str(simulate({"y": y.op}, workers))


def test_a_placement_that_is_given() -> None:
    y, x = model()
    s = simulate(y, cluster(), [x], placement={"part0": B, "part1": B})
    assert {t.device for t in s.timeline if t.op.startswith("part")} == {B}
    with pytest.raises(InvalidArgumentError, match="'part7'"):
        simulate(y, cluster(), [x], placement={"part7": B})


def test_a_graph_is_needed() -> None:
    with pytest.raises(InvalidArgumentError, match="needs a tensor or an operation among its fetches"):
        simulate("y:0", cluster())


def test_what_was_measured_is_predicted() -> None:
    """On one device the makespan is that of the measured kernels.

    This is a test of the book-keeping and not of speed.
    """
    with hr.Graph() as g:
        x = hr.placeholder("float32", [256, 256])
        y = hr.while_loop(lambda i, h: i < 6, lambda i, h: (i + 1, hr.matmul(h, x)), (0, x))[1]
    events: list[object] = []
    options = hr.RunOptions(listener=events.append)
    hr.Session(graph=g, engine="interpret").run(y, {x: np.zeros((256, 256), np.float32)}, options=options)
    costs = Costs.from_events(events)
    ((name, seconds),) = [(key[0], s) for key, s in costs.measured.items() if "MatMul" in key[0]]
    s = simulate(y, cluster("CPU:0"), [x], costs)
    assert sum(t.op == name for t in s.timeline) == 6
    assert s.makespan >= 6 * seconds


@pytest.mark.parametrize("window", [1, 2, 10])
def test_it_fires_what_the_token_machine_fires(window: int) -> None:
    with hr.Graph() as g:
        x = hr.placeholder("float32", [2])

        def body(i: hr.Tensor, a: hr.Tensor) -> tuple[hr.Tensor, hr.Tensor]:
            inner = hr.while_loop(
                lambda j, b: j < 3, lambda j, b: (j + 1, hr.tanh(b) * a), (0, a), parallel_iterations=window
            )
            return i + 1, inner[1] + 1.0

        y = hr.while_loop(lambda i, a: i < 4, body, (0, x), parallel_iterations=window)[1]
        (grad,) = hr.gradients(y, x)
    events: list[step_events.Event] = []
    options = hr.RunOptions(listener=events.append)
    hr.Session(graph=g, engine="interpret").run(grad, {x: np.ones(2, np.float32)}, options=options)
    real = Counter(e.node for e in events if isinstance(e, step_events.NodeEnd) and not e.dead)
    ops = lowered([grad], [x]).ops
    args = {op.name for op in ops if op.type == "_Arg"}  # of which the machine does not tell
    for seed in range(3):
        rng = random.Random(seed)
        fixed = {op: rng.choice((A, B)) for op in ops if op.type in ("Tanh", "Mul", "TanhGrad", "AddV2")}
        found = place(ops, cluster(), first=fixed)
        s = simulate_step(ops, found.of, cluster())
        assert Counter(t.op for t in s.timeline if t.op not in args) == {
            op.name: real[op.name] for op in ops if not is_free(op) and op.type not in ("Const", "_Arg")
        }


def test_collectives_are_taken_apart() -> None:
    """Each participant does its part on its device, as in a session.

    On one device there is nothing to take apart.
    """
    devices = [f"/job:worker/replica:0/task:{i}/device:CPU:0" for i in range(3)]
    with hr.Graph():
        x = hr.placeholder(hr.float32, (64,))
        xs = []
        for i in range(3):
            with hr.device(f"/task:{i}"):
                xs.append(x + float(i))
        totals = hr.all_sum(xs)
    many = hr.simulate(totals, hr.Cluster.local(devices), [x])
    assert not any(s.op == "AllReduce" for s in many.timeline)
    assert len({s.device for s in many.timeline if s.op.startswith("AllReduce/")}) == 3
    one = hr.simulate(totals, hr.Cluster.local(devices[:1]), [x])
    assert [s.op for s in one.timeline].count("AllReduce") == 1
