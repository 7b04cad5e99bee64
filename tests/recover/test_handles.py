"""Stacks and tensor arrays become lists, and so differentiable."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import headrace as hr
from headrace.api import scopes
from headrace.interchange.exporting import graph_def
from headrace.ir import walk
from headrace.ir.builder import Builder
from headrace.ir.function import bodies, owned
from headrace.ir.graph import Graph, Operation
from headrace.ir.text import from_text
from headrace.recover import recover
from tests.corpus.test_corpus import corpus

HANDLES = ("Stack", "TensorArray")

# x ** 3 by a loop, and its derivative as TensorFlow 1 makes it: the backward loop pops the values that the loop pushes.
CUBE = """
    x = Placeholder[dtype=float32, shape=[]]
    zero = Const[value=int32[]{0}, dtype=int32]
    one = Const[value=float32[]{1.0}, dtype=float32]
    any = Const[value=int32[]{-1}, dtype=int32]
    acc = StackV2[elem_type=float32](any)
    i0 = Enter[frame_name="f"](zero)
    y0 = Enter[frame_name="f"](one)
    xx = Enter[frame_name="f", is_constant=true](x)
    h = Enter[frame_name="f", is_constant=true](acc)
    mi = Merge(i0, nexti)
    my = Merge(y0, nexty)
    three = Const[value=int32[]{3}, dtype=int32] ^mi
    less = Less(mi, three)
    cond = LoopCond(less)
    si = Switch(mi, cond)
    sy = Switch(my, cond)
    piv = Identity(sy:1)
    step = Const[value=int32[]{1}, dtype=int32] ^piv
    i = AddV2(si:1, step)
    push = StackPushV2[T=float32](h, piv) ^i
    prod = Mul(push, xx)
    nexti = NextIteration(i) ^push
    nexty = NextIteration(prod)
    count = Exit(si)
    y = Exit(sy)
    k0 = Enter[frame_name="b"](count)
    d0 = Enter[frame_name="b"](one)
    g0 = Enter[frame_name="b"](fzero)
    xb = Enter[frame_name="b", is_constant=true](x)
    hb = Enter[frame_name="b", is_constant=true](acc)
    mk = Merge(k0, nextk)
    md = Merge(d0, nextd)
    mg = Merge(g0, nextg)
    low = Const[value=int32[]{1}, dtype=int32] ^mk
    more = GreaterEqual(mk, low)
    condb = LoopCond(more)
    sk = Switch(mk, condb)
    sd = Switch(md, condb)
    sg = Switch(mg, condb)
    less1 = Const[value=int32[]{1}, dtype=int32] ^sk
    k = Sub(sk:1, less1)
    pop = StackPopV2[elem_type=float32](hb) ^k
    sync = ControlTrigger ^pop
    dg = Mul(sd:1, pop)
    g = AddV2(sg:1, dg)
    d = Mul(sd:1, xb)
    nextk = NextIteration(k) ^sync
    nextd = NextIteration(d)
    nextg = NextIteration(g)
    dx = Exit(sg)
""".replace("    one = Const", "    fzero = Const[value=float32[]{0.0}, dtype=float32]\n    one = Const")

# z = the sum of the squares of the rows of x: an array is filled from x, read and written in a loop, and stacked.
ROWS = """
    x = Placeholder[dtype=float32, shape=[3]]
    zero = Const[value=int32[]{0}, dtype=int32]
    n = Const[value=int32[]{3}, dtype=int32]
    all = Const[value=int32[3]{0, 1, 2}, dtype=int32]
    a = TensorArrayV3[dtype=float32](n)
    b = TensorArrayV3[dtype=float32](n)
    fill = TensorArrayScatterV3(a, all, x, a:1)
    i0 = Enter[frame_name="w"](zero)
    f0 = Enter[frame_name="w"](b:1)
    ha = Enter[frame_name="w", is_constant=true](a)
    fa = Enter[frame_name="w", is_constant=true](fill)
    hb = Enter[frame_name="w", is_constant=true](b)
    mi = Merge(i0, nexti)
    mf = Merge(f0, nextf)
    three = Const[value=int32[]{3}, dtype=int32] ^mi
    less = Less(mi, three)
    cond = LoopCond(less)
    si = Switch(mi, cond)
    sf = Switch(mf, cond)
    i = Identity(si:1)
    item = TensorArrayReadV3[dtype=float32](ha, i, fa)
    square = Square(item)
    write = TensorArrayWriteV3(hb, i, square, sf:1)
    step = Const[value=int32[]{1}, dtype=int32] ^i
    more = AddV2(i, step)
    nexti = NextIteration(more)
    nextf = NextIteration(write)
    done = Exit(sf)
    stacked = TensorArrayGatherV3[dtype=float32](b, all, done)
    z = Sum(stacked, zero)
    size = TensorArraySizeV3(b, done)
"""


def run(graph: Graph, fetches: Any, feeds: dict[Any, Any]) -> Any:
    with hr.Session(graph=graph) as sess:
        return sess.run(fetches, feeds)


def live(graph: Graph) -> list[str]:
    """The types of the operations that are needed after recovery.

    These are the operations that structured operations need, and those that replacements of other operations need.
    """
    todo = [op for op in graph.operations if op.opdef.structured] + [t.op for t in graph.replaced.values()]
    seen: set[Operation] = set()
    while todo:
        op = todo.pop()
        if op not in seen:
            seen.add(op)
            for f in owned(op):
                todo += walk.reachable([r.op for r in f.results] + f.control_results)
    return sorted({op.type for op in seen})


@pytest.mark.parametrize("form", ["structured", "primitive"])
def test_arrays_of_recovered_loops_have_their_values_in_files(form: str) -> None:
    """A recovered loop does not write the array, which a file nevertheless reads."""
    g = from_text(ROWS)
    names, feeds = ["stacked:0", "z:0", "size:0"], {"x:0": np.float32([1, 2, 3])}
    want = [x.tolist() for x in run(g, names, feeds)]
    assert want == [[1, 4, 9], 14, 3]
    recover(g)
    with hr.Graph() as again:
        hr.import_graph_def(graph_def(g, form), name="")
    assert [x.tolist() for x in run(again, names, feeds)] == want


def test_a_stack_becomes_a_list_that_goes_round() -> None:
    g = from_text(CUBE)
    want = run(g, ["y:0", "dx:0"], {"x:0": 2.0})
    recover(g)
    assert not [t for t in live(g) if t.startswith(HANDLES)]
    assert {"TensorListPushBack", "TensorListPopBack"} <= set(live(g))
    forward, backward = [op for op in g.operations if op.opdef.structured]
    assert forward.outputs[-1] in backward.inputs  # the result of one loop is the initial value of the other
    assert run(g, ["y:0", "dx:0"], {"x:0": 2.0}) == want == [8.0, 12.0]


@pytest.mark.matrix
def test_gradients_of_gradients_that_tensorflow_made() -> None:
    g = from_text(CUBE)
    x, t = g.get_tensor_by_name("x:0"), g.get_tensor_by_name("dx:0")
    for want in (12.0, 6.0, 0.0):
        with scopes.entered(Builder(g)):
            (t,) = hr.gradients(t, [x])
        assert run(g, t, {x: 2.0}) == want


def test_a_tensor_array_becomes_a_list() -> None:
    g = from_text(ROWS)
    feeds = {"x:0": [1.0, 2.0, 3.0]}
    want = run(g, ["z:0", "stacked:0", "size:0"], feeds)
    recover(g)
    assert not [t for t in live(g) if t.startswith(HANDLES)]
    (loop,) = [op for op in g.operations if op.opdef.structured]
    graphs = dict(bodies(loop))
    same = {p.op.name: r is p for r, p in zip(graphs["body"].results, graphs["body"].params, strict=True)}
    assert same["arg.a"], "an array that is only read is a loop constant"
    got = run(g, ["z:0", "stacked:0", "size:0"], feeds)
    assert got[0] == want[0] == 14
    np.testing.assert_array_equal(got[1], want[1])
    assert got[2] == 3


def test_gradients_through_tensor_arrays() -> None:
    g = from_text(ROWS)
    x, z = g.get_tensor_by_name("x:0"), g.get_tensor_by_name("z:0")
    with scopes.entered(Builder(g)):
        (dx,) = hr.gradients(z, [x])
        (ddx,) = hr.gradients(dx, [x])
    value = np.array([1.0, 2.0, 3.0], np.float32)
    np.testing.assert_allclose(run(g, dx, {x: value}), 2 * value)
    np.testing.assert_allclose(run(g, ddx, {x: value}), [2, 2, 2])


def test_a_step_that_names_the_inside_has_the_resources() -> None:
    g = from_text(ROWS)
    recover(g)
    with hr.Session(graph=g) as sess:
        got = sess.run(["stacked:0", "done:0"], {"x:0": [1.0, 2.0, 3.0]})
        np.testing.assert_array_equal(got[0], [1, 4, 9])
    once = ROWS.replace(
        "int32[]{3}, dtype=int32] ^mi", "int32[]{1}, dtype=int32] ^mi"
    )  # a value of each, to be fetched
    once = once.replace("all, done", "first, done")
    g = from_text("    first = Const[value=int32[1]{0}, dtype=int32]\n" + once)
    recover(g)
    for fetches in (["stacked:0"], ["stacked:0", "i:0"]):
        assert run(g, fetches, {"x:0": [5.0, 2.0, 3.0]})[0] == [25]


def test_a_step_that_feeds_a_constant_of_one_loop_has_the_resources_in_both() -> None:
    text = CUBE.replace('d0 = Enter[frame_name="b"](one)', 'd0 = Enter[frame_name="b"](w)')
    text = "    w = Const[value=float32[]{1.0}, dtype=float32]\n" + text
    graph = from_text(text)
    x, w, dx = (graph.get_tensor_by_name(f"{name}:0") for name in ("x", "w", "dx"))
    for _ in range(2):
        with hr.Session(graph=graph) as session:
            assert session.run(dx, {x: 2.0}) == 12.0
            assert session.run(dx, {x: 2.0, w: 5.0}) == 60.0
        recover(graph, [dx])


def test_what_cannot_be_seen_through_stays() -> None:
    g = from_text(CUBE + "    b = IdentityN[T=(resource)](acc)\n    other = StackPushV2[T=float32](b, x) ^count")
    recover(g)
    assert {"StackPushV2", "StackPopV2"} <= set(live(g))
    assert run(g, ["y:0", "dx:0"], {"x:0": 2.0}) == [8.0, 12.0]


# Programs of TensorFlow's tests in which its own gradients stand: nested loops, conditionals in loops, maps, scans.
PROGRAMS = {
    "control_flow_ops_py/0003": ("gradients/while/Enter_grad/Exit:0", "Placeholder:0"),
    "control_flow_ops_py/0081": (
        "gradients/cond/map/TensorArrayUnstack/TensorArrayScatter/TensorArrayScatterV3/Switch_grad/cond_grad:0",
        "gradients/grad_ys_0/Const:0",
    ),
    "control_flow_ops_py/0086": ("gradients/while/Enter_grad/Exit:0", "Const:0"),
    "control_flow_ops_py/0178": ("gradients/while/Mul/Enter_grad/b_acc_3:0", "a:0"),
    "functional_ops/0003": ("scan/TensorArrayStack/TensorArrayGatherV3:0", "Placeholder:0"),
    "map_fn/0009": ("gradients/map/while/Mul/Enter_grad/b_acc_3:0", "elems:0"),
    "probes/0144": ("while/Exit_1:0", "Placeholder:0"),
}


@pytest.mark.parametrize("program", PROGRAMS)
def test_recorded_programs_with_gradients_in_them_differentiate(program: str) -> None:
    y_name, x_name = PROGRAMS[program]
    loaded = corpus.load(program)
    g = hr.Graph()
    with g.as_default():
        hr.import_graph_def(loaded["graph"], name="")
        y, x = g.get_tensor_by_name(y_name), g.get_tensor_by_name(x_name)
        (dx,) = hr.gradients(y, [x])
    step = next(s for s in loaded["steps"] if y_name in s["fetches"])
    feeds = {g.get_tensor_by_name(n): loaded["data"][k] for n, k in step["feeds"]}
    at = np.asarray(feeds[x] if x in feeds else x.op.attrs["value"], np.float64)
    way = np.random.default_rng(1).standard_normal(at.shape)
    with hr.Session(graph=g, config={"operation_timeout_in_ms": 10_000}) as sess:

        def total(e: float) -> float:
            moved = np.asarray(at + e * way, x.dtype.base.numpy)
            return float(np.sum(sess.run(y, {**feeds, x: moved}), dtype=np.float64))

        got = np.sum(np.asarray(sess.run(dx, feeds), np.float64) * way)
        assert got == pytest.approx((total(1e-3) - total(-1e-3)) / 2e-3, rel=1e-2, abs=1e-3)
