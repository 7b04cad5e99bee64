"""Costs of operations, trip counts of loops, and the measurements of both in traces."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

import headrace as hr
from headrace import step_events, thresholds
from headrace.ir.analysis import frames
from headrace.ir.text import from_text
from headrace.place import Costs, DeviceModel
from headrace.place.costs import is_free, size
from tests.place.placing import TASK, lowered

DEVICE = DeviceModel(TASK + "CPU:0", flops=1e9, bandwidth=1e9, overhead=1e-6)


def seconds(line: str, costs: Costs | None = None) -> float:
    text = """
    m = Placeholder[dtype=float32, shape=[100,200]]
    n = Placeholder[dtype=float32, shape=[200,300]]
    u = Placeholder[dtype=float32, shape=[?,100]]
    w = Placeholder[dtype=float32, shape=<unknown>]
    c = Const[value=float32[]{1.0}, dtype=float32]
    y = """
    return (costs or Costs()).seconds(from_text(text + line).get_operation_by_name("y"), DEVICE)


@pytest.mark.parametrize(
    ("line", "want"),
    [
        ("MatMul(m, n)", 1e-6 + 2 * 100 * 200 * 300 / 1e9),  # as many flops as it has
        ("AddV2(m, m)", 1e-6 + 3 * 4 * 100 * 200 / 1e9),  # as many bytes as it moves
        ("Neg(u)", 1e-6 + 2 * 4 * 32 * 100 / 1e9),  # an unknown dimension is 32
        ("Neg(w)", 1e-6 + 2 * 4 / 1e9),  # an unknown rank is 0
        ("Shape(m)", 1e-6),
        ("Identity(m)", 1e-6),
        ("Const[value=float32[]{1.0}, dtype=float32]", 0.0),
        ('Enter[frame_name="f", is_constant=true](c)', 0.0),
        ('Enter[frame_name="f", is_constant=true](m)', 1e-6),
        ('Enter[frame_name="f"](c)', 1e-6),
    ],
)
def test_estimates(line: str, want: float) -> None:
    assert seconds(line) == pytest.approx(want)


def test_measured_costs_win() -> None:
    assert seconds("MatMul(m, n)", Costs({("y", "CPU"): 7.0, ("y", "GPU"): 8.0})) == 7.0


def test_constants_are_free_unless_they_are_large_or_wait() -> None:
    text = """
    a = Const[value=float32[]{1.0}, dtype=float32]
    b = Const[value=float32[]{1.0}, dtype=float32] ^a
    c = Const[value=float32[1000000]{1.0...}, dtype=float32]
    """
    assert [is_free(op) for op in from_text(text).operations] == [True, False, False]


def test_sizes() -> None:
    g = from_text("a = Placeholder[dtype=float64, shape=[2,3]]\nb = Placeholder[dtype=string, shape=[4]]")
    assert [size(op.outputs[0]) for op in g.operations] == [48, 4 * 64]


def trips_of(
    fetches: list[hr.Tensor], feeds: list[hr.Tensor], known: dict[str, float] | None = None
) -> dict[str, float]:
    tree = frames.derive(lowered(fetches, feeds).ops)
    return {f.name: n for f, n in Costs(trips=known or {}).trips_of(tree).items()}


@pytest.mark.parametrize(
    ("cond", "step", "n"),
    [
        (lambda i: i < 7, 1, 7),
        (lambda i: i <= 7, 1, 8),
        (lambda i: i < 7, 2, 4),
        (lambda i: i <= 6, 3, 3),
        (lambda i: hr.greater(7, i), 2, 4),
        (lambda i: i > -7, -1, 7),
        (lambda i: i >= -6, -3, 3),
        (lambda i: i > -7, 1, thresholds.UNKNOWN_TRIPS),  # for ever
        (lambda i: i < -1, 1, 0),
        (lambda i: hr.logical_and(i < 7, i < 5), 1, 5),
        (lambda i: i * i < 7, 1, thresholds.UNKNOWN_TRIPS),  # that is more than is looked at
    ],
)
def test_trips_are_counted(cond: object, step: int, n: float) -> None:
    with hr.Graph():
        (y,) = hr.while_loop(cond, lambda i: i + step, [0])
    assert trips_of([y], []) == {"": 1, "while": n}


def test_what_is_known_wins() -> None:
    with hr.Graph():
        (y,) = hr.while_loop(lambda i: i < 7, lambda i: i + 1, [0])
    assert trips_of([y], [], {"while": 3}) == {"": 1, "while": 3}


def test_the_loops_of_gradients_go_round_as_often() -> None:
    with hr.Graph():
        x = hr.placeholder("float32", [])

        def body(i: hr.Tensor, a: hr.Tensor) -> tuple[hr.Tensor, hr.Tensor]:
            return i + 1, hr.while_loop(lambda j, b: j < 3, lambda j, b: (j + 1, hr.tanh(b) * a), (0, a))[1]

        y = hr.while_loop(lambda i, a: i < 7, body, (0, x))[1]
        (g,) = hr.gradients(y, x)
    counts = trips_of([g], [x])
    assert sorted(counts.values()) == [1, 3, 3, 7, 7]


def test_a_loop_that_counts_down_what_another_has_counted_up() -> None:
    """As the gradients of TensorFlow 1 do."""
    with hr.Graph():
        (n,) = hr.while_loop(lambda i: i < 7, lambda i: i + 1, [0])
        (z,) = hr.while_loop(lambda i: i >= 1, lambda i: i - 1, [n])
    assert trips_of([z], []) == {"": 1, "while": 7, "while_1": 7}


def test_a_loop_that_waits_for_its_own_end() -> None:
    """The limit of each of two loops is the count of the other.

    So neither is known, and the analysis ends.
    """
    with hr.Graph():
        n = hr.placeholder("int32", [])
        (y,) = hr.while_loop(lambda i: i < n, lambda i: i + 1, [0])
        (z,) = hr.while_loop(lambda i: i < y, lambda i: i + 1, [0])
    assert set(trips_of([z], [n]).values()) == {1, thresholds.UNKNOWN_TRIPS}


def traced(engine: str = "interpret") -> list[step_events.Event]:
    with hr.Graph() as g:
        x = hr.placeholder("float32", [8, 8], name="x")

        def body(i: hr.Tensor, a: hr.Tensor) -> tuple[hr.Tensor, hr.Tensor]:
            return i + 1, hr.cond(i < 1, lambda: hr.tanh(a, name="rare"), lambda: hr.sin(a, name="often"))

        y = hr.while_loop(lambda i, a: i < 4, body, (0, x))[1]
        z = hr.while_loop(lambda i, a: i < 2, lambda i, a: (i + 1, hr.negative(a, name="inner")), (0, y))[1]
    events: list[step_events.Event] = []
    session = hr.Session(graph=g, engine=engine)
    session.run(z, {x: np.zeros((8, 8), np.float32)}, options=hr.RunOptions(listener=events.append))
    return events


def test_costs_from_a_trace() -> None:
    costs = Costs.from_events(traced())
    assert costs.trips == {"while": 4, "while_1": 2}
    found = {name.rpartition("/")[2]: s for (name, type), s in costs.measured.items() if type == "CPU"}
    assert found["inner"] > 0
    assert {"rare", "often", "Less", "LoopCond"} <= set(found)


def node(
    name: str, start: int, end: int, dead: bool = False, tag: str = "", device: str = ""
) -> list[step_events.Event]:
    return [
        step_events.NodeStart(start, 1, name, "Neg", tag, "", 0, dead, device),
        step_events.NodeEnd(end, 1, name, "Neg", tag, "", 0, dead, None, device),
    ]


def test_medians_over_firings_and_the_dead_ones_count() -> None:
    events = [e for k, d in enumerate((10, 20, 90)) for e in node("a", 0, d * 10**9, tag=f"f#{k}")]
    events += node("b", 0, 6 * 10**9) + node("b", 0, 1, dead=True, tag="f#1") + node("b", 0, 1, dead=True, tag="f#2")
    events += node("never", 0, 5, dead=True)
    assert Costs.from_events(events).measured == {("a", "CPU"): 20.0, ("b", "CPU"): 2.0, ("never", "CPU"): 0.0}


def test_that_a_loop_ends_is_no_branch_not_taken() -> None:
    def body(n: int, dead: bool) -> list[step_events.Event]:
        tag = f"loop#{n}"
        return [
            step_events.IterationOpen(0, 1, tag, "loop", n),
            step_events.NodeStart(0, 1, "a", "Neg", tag, "loop", n, dead),
            step_events.NodeEnd(6 * 10**9, 1, "a", "Neg", tag, "loop", n, dead, None),
        ]

    # not taken in iteration 1; dead in the last, as everything in the body is
    events = [e for n, dead in enumerate((False, True, False, True)) for e in body(n, dead)]
    assert Costs.from_events(events) == Costs({("a", "CPU"): 4.0}, {"loop": 3.0})


def test_devices_are_told_apart_by_type() -> None:
    events = node("a", 0, 10**9, device="/job:w/replica:0/task:0/device:GPU:1")
    events += node("a", 0, 2 * 10**9, device="/job:w/replica:0/task:0/device:CPU:0")
    assert Costs.from_events(events).measured == {("a", "GPU"): 1.0, ("a", "CPU"): 2.0}


def test_what_a_stream_computed_counts_without_the_wait() -> None:
    span = step_events.StreamSpan(4 * 10**9, 5 * 10**9, 1, "", "compute", "a")
    copy = dataclasses.replace(span, stream="copy", time=0)
    assert Costs.from_events([*node("a", 0, 5 * 10**9), span, copy]).measured == {("a", "CPU"): 1.0}


def test_trips_are_those_of_each_entry() -> None:
    def opened(tag: str, n: int) -> step_events.Event:
        return step_events.IterationOpen(0, 1, f"{tag}#{n}", "inner", n)

    events = [opened(f"outer#{k}/inner", n) for k, last in enumerate((2, 3, 8)) for n in range(last + 1)]
    assert Costs.from_events(events).trips == {"inner": 3}
