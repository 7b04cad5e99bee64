"""Watched values of random programs, compared with the events of the token machine."""

from __future__ import annotations

import random
from collections.abc import Collection, Sequence
from typing import Any

import numpy as np

import headrace as hr
from headrace import dtypes, step_events
from headrace.ir.function import nested
from headrace.observe.watch import Watched

WATCHED = 6  # tensors of a program


def primitives(devices: Sequence[str] = ("", "")) -> tuple[hr.Graph, tuple[Any, Any, Any], Any]:
    """A graph that recovery refuses: a Merge joins sides of two predicates.

    Args:
      devices: The devices of the two sides.

    Returns:
      The graph, its predicates and data (`p`, `q`, `x`), which need equal predicates, and its result.
    """
    with hr.Graph() as g:
        p, q = hr.placeholder(hr.bool, (), name="p"), hr.placeholder(hr.bool, (), name="q")
        x = hr.placeholder(hr.float32, (2,), name="x")
        with hr.device(devices[0]):
            a = hr.identity(hr.raw_ops.Switch(data=x, pred=p, name="switch")[1] * 2.0, name="a")
        with hr.device(devices[1]):
            b = hr.identity(hr.raw_ops.Switch(data=x, pred=q)[0] * 3.0, name="b")
        return g, (p, q, x), hr.raw_ops.Merge(inputs=[a, b])[0]


class Values:
    """Listener: the values of the outputs of nodes, by tag.

    Args:
      names: The names of the nodes.

    Attributes:
      fired: Name of a node → tag → values of its outputs; None for a node that fired dead.
      trips: Tag of a loop → its last iteration, which only computes the condition.
    """

    wants_values = True

    def __init__(self, names: Collection[str]) -> None:
        self._names = names
        self.fired: dict[str, dict[str, Any]] = {}
        self.trips: dict[str, int] = {}

    def __call__(self, e: step_events.Event) -> None:
        if isinstance(e, step_events.NodeEnd) and e.node in self._names:
            values = None if e.values is None else tuple(map(np.array, e.values))
            self.fired.setdefault(e.node, {})[e.tag] = values
        elif isinstance(e, step_events.IterationOpen):
            self.trips[e.tag.rpartition("#")[0]] = e.iteration


def inner_tensors(graph: hr.Graph, rng: random.Random) -> list[Any]:
    """Some tensors of the bodies, branches and conditions in a graph."""
    found = [
        t
        for _, inner in nested(graph.operations)
        for op in inner.operations
        if op.type not in ("_Arg", "Const") and not op.opdef.structured and not op.opdef.is_effectful
        for t in op.outputs
        if t.dtype.base not in (dtypes.variant, dtypes.resource)
    ]
    return rng.sample(found, min(len(found), WATCHED))


def expected(
    heard: Values, t: Any, iterations: list[int] | None = None, least: int | None = None, is_test: bool = False
) -> list[tuple[str, Any]] | None:
    """Tags and values of `t` in events, by iteration; None if its node never fired.

    Args:
      heard: The events.
      t: The tensor.
      iterations: The selected iterations.
      least: The values that count are sums of at least this number.
      is_test: Whether `t` is in the condition of a loop.
    """
    fired = heard.fired.get(t.op.name)
    if fired is None:
        return None
    out = []
    for tag, values in fired.items():
        loop, _, number = tag.rpartition("#")
        i, n = int(number or 0), heard.trips[loop] + is_test if loop else 1
        is_selected = iterations is None or i in iterations or i - n in iterations
        if values is not None and is_selected and (least is None or values[t.index].sum() >= least):
            out.append((tag, values[t.index]))
    return sorted(out, key=lambda each: [int(part.partition("/")[0]) for part in each[0].split("#")[1:]])


def tagged(watched: Watched, t: Any) -> list[tuple[str, Any]]:
    """Tags and values of the watched values of `t`."""
    return [("/".join(f"{name}#{i}" for name, i in r.path), r.value) for r in watched[t]]


def compare(got: list[tuple[str, Any]], want: list[tuple[str, Any]], name: str) -> None:
    """Raises unless tags and values are equal."""
    assert [tag for tag, _ in got] == [tag for tag, _ in want], name
    for (tag, a), (_, b) in zip(got, want, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6, err_msg=f"{name} at {tag}")
        assert np.shape(a) == np.shape(b), f"{name} at {tag}"
