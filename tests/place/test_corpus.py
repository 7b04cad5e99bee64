"""Programs of TensorFlow's tests with random requests: the rules hold and steps end."""

from __future__ import annotations

import random

import pytest

from headrace import dtypes
from headrace.ir import walk
from headrace.ir.analysis import frames
from headrace.ir.device import DeviceSpec
from headrace.ir.graph import Graph
from headrace.ir.serial.graphdef import import_graph_def
from headrace.lower import is_structured
from headrace.place import place
from headrace.place.simulate import simulate_step
from tests.ir import corpus
from tests.place.placing import cluster

pytestmark = pytest.mark.matrix

LOOPS = [i for i in corpus.programs(400, seed=11) if "loop" in corpus.index()[i]["tags"] and i != "probes/0188"][:40]
OTHERS = [i for i in corpus.programs(40, seed=12) if i != "probes/0188"]  # that one has no legal frames


def imported(program: str) -> Graph:
    graph = Graph()
    import_graph_def(corpus.graph_bytes(program), graph)
    return graph


@pytest.mark.parametrize("program", [*LOOPS, *OTHERS])
def test_the_rules_hold(program: str) -> None:
    ops = imported(program).operations
    if is_structured(ops):
        pytest.skip("has functions, which are lowered first")
    devices = cluster("CPU:0", "CPU:1", "CPU:2")
    rng = random.Random(program)
    for op in ops:
        if not op.device and rng.random() < 0.5:
            op.device = rng.choice(devices.names)
    found = place(ops, devices)
    assert set(found.of) == set(ops)
    for op in ops:
        here = found.of[op]
        for t, want in zip(op.inputs, op.opdef.input_dtypes(op.attrs), strict=True):
            if t.dtype is dtypes.resource or want.is_ref or walk.is_back_edge(t.op, op):
                assert found.of[t.op] == here
        if op.device and op not in found.reasons:
            assert DeviceSpec.from_string(op.device).matches(DeviceSpec.from_string(here))
    trips = dict.fromkeys((f.name for f in frames.derive(ops).frames), 2.0)
    s = simulate_step(ops, found.of, devices, trips=trips)
    assert {t.op for t in s.timeline} <= {op.name for op in ops}
    assert s.makespan >= max(s.busy.values()) / 2  # a device has two lanes
