"""The graphs that are timed, made with the builder from primitives."""

from __future__ import annotations

import numpy as np

from headrace.api.scopes import Graph
from headrace.ir.builder import Builder
from headrace.ir.graph import Tensor


def counting_loop(trips: int, parallel_iterations: int = 10) -> tuple[Graph, Tensor]:
    """`i = 0; while i < trips: i = i + 1`."""
    g = Graph()
    b = Builder(g)
    enter = b.Enter(b.const(0), frame_name="loop", parallel_iterations=parallel_iterations)
    limit = b.Enter(b.const(trips), frame_name="loop", is_constant=True, parallel_iterations=parallel_iterations)
    merge, _ = b.Merge([enter, enter])
    cond = b.LoopCond(b.Less(merge, limit))
    out, body = b.Switch(merge, cond)
    inner = b.Identity(body)
    one = b.after(inner).const(1)
    step = b.AddV2(inner, one)
    g.set_back_edge(merge.op, 1, b.NextIteration(step))
    return g, b.Exit(out)


def conditional_loop(trips: int) -> tuple[Graph, Tensor]:
    """A loop with a conditional in its body: `while i < n: x = x * 0.5 if x > 1 else x + 3; i += 1`."""
    g = Graph()
    b = Builder(g)
    limit = b.Enter(b.const(trips), frame_name="loop", is_constant=True)
    i0 = b.Enter(b.const(0), frame_name="loop")
    x0 = b.Enter(b.const(np.float32(7)), frame_name="loop")
    i, _ = b.Merge([i0, i0])
    x, _ = b.Merge([x0, x0])
    cond = b.LoopCond(b.Less(i, limit))
    _, i_body = b.Switch(i, cond)
    x_out, x_body = b.Switch(x, cond)
    pred = b.Greater(x_body, b.after(x_body).const(1.0))
    x_false, x_true = b.Switch(x_body, pred)
    halved = b.Mul(x_true, b.after(b.Identity(x_true)).const(0.5))
    raised = b.AddV2(x_false, b.after(b.Identity(x_false)).const(3.0))
    x_next, _ = b.Merge([raised, halved])
    i_next = b.AddV2(i_body, b.after(b.Identity(i_body)).const(1))
    g.set_back_edge(i.op, 1, b.NextIteration(i_next))
    g.set_back_edge(x.op, 1, b.NextIteration(x_next))
    return g, b.Exit(x_out)


def chain(n: int) -> tuple[Graph, Tensor, Tensor]:
    """`n` scalar additions in a row; returns the graph, the input and the result."""
    g = Graph()
    b = Builder(g)
    x = b.Placeholder(dtype="float32", shape=())
    y, one = x, b.const(1.0)
    for _ in range(n):
        y = b.AddV2(y, one)
    return g, x, y


def identity_chain(n: int) -> tuple[Graph, Tensor, Tensor]:
    """`n` identities in a row: nothing but the executor's own work."""
    g = Graph()
    b = Builder(g)
    x = b.Placeholder(dtype="float32", shape=())
    y = x
    for _ in range(n):
        y = b.Identity(y)
    return g, x, y
