"""Graphs for the tests of drawings."""

from __future__ import annotations

import numpy as np

import headrace as hr
from headrace.ir.attr_values import Func
from headrace.ir.graph import FuncGraph
from headrace.ir.source import Source

HOSTILE = "</style></script><script>alert('x')</script><img src=x onerror=\"alert(1)\">&amp;\x00\u202e"


def hostile() -> hr.Graph:
    """A graph with that text in every place where a graph can have text."""
    g = hr.Graph()
    source = Source(HOSTILE, 3, HOSTILE)
    f = FuncGraph(HOSTILE, g, captures_from_outer=False)
    f.params = f.results = [f.add_param(hr.string, (), "v")]
    g.functions[HOSTILE] = f
    attrs = {"value": np.array(HOSTILE.encode(), object), "dtype": hr.string}
    c = g.add_op("Const", "c", (), attrs, (), HOSTILE, source)
    attrs = {"Tin": (hr.string,), "Tout": (hr.string,), "f": Func(HOSTILE)}
    call = g.add_op("PartitionedCall", "call", c.outputs, attrs, (), HOSTILE, source)
    last = g.add_op("NoOp", "last", (), {"_note": HOSTILE}, (call,), HOSTILE, source)
    for i, op in enumerate((c, call, last)):
        op.name = f"{HOSTILE}{i}"  # no graph takes such a name, but what is drawn rests on that nowhere
    return g


def chain(n: int) -> hr.Graph:
    """A placeholder and `n` operations one behind the other."""
    with hr.Graph() as g:
        x = hr.placeholder(hr.float32, (), name="x")
        for _ in range(n):
            x = hr.tanh(x)
    return g
