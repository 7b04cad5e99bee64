"""`hr.explain` of steps that are interpreted.

It lists their fused regions, and the reasons why the other operations are in none.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import headrace as hr
from headrace import flags, thresholds
from headrace.explain import SHOWN
from headrace.ir.text import from_text

FEW = f"fewer than {thresholds.FUSED_REGION_OPS} computing operations with equal dependencies and deadness"
EFFECTS, WAITS = "has effects, or depends on effects of other operations", "may block"


def told(graph: hr.Graph, fetches: Any, feeds: Any = (), engine: str = "auto") -> Any:
    with hr.Session(graph=graph, engine=engine) as session:
        return session.explain(fetches, feeds)


def a_chain() -> tuple[hr.Graph, Any]:
    """From one queue to another."""
    with hr.Graph() as g:
        q = hr.FIFOQueue(3, [hr.float32], shapes=[[]], name="q")
        x = q.dequeue(name="x")
        y = hr.add(hr.square(hr.negative(x, name="a"), name="b"), 1.0, name="c")
        done = q.enqueue(y, name="done")
    return g, done


def test_clusters_are_told_with_what_is_in_them() -> None:
    g, done = a_chain()
    found = told(g, done)
    assert found.engine == "interpret"
    assert found.fused_regions == (("a", "b", "c"),)
    assert dict(found.apart) == {EFFECTS: ("q",), WAITS: ("x", "done")}
    lines = str(found).splitlines()
    at = lines.index("fused regions: 1")
    assert lines[at + 1 : at + 4] == [
        "  3 operations: a, b, c",
        f"  alone: {EFFECTS}: 1 operation: q",
        f"  alone: {WAITS}: 2 operations: x, done",
    ]


def test_a_step_without_clusters_says_so() -> None:
    with hr.Graph() as g:
        x = hr.negative(hr.FIFOQueue(3, [hr.float32], shapes=[[]]).dequeue(), name="n")
    found = told(g, x)
    assert found.fused_regions == ()
    assert dict(found.apart)[FEW] == ("n",)
    assert "fused regions: none" in str(found).splitlines()


def test_there_are_none_where_the_session_is_to_interpret_or_the_step_is_compiled() -> None:
    g, done = a_chain()
    found = told(g, done, engine="interpret")
    assert (found.fused_regions, found.apart) == ((), ())
    assert 'not compiled: the session has engine="interpret"' in str(found)
    assert "fused regions" not in str(found)
    found = told(g, "c:0", ["x:0"])
    assert (found.engine, found.fused_regions, found.apart) == ("compiled", (), ())
    assert "fused regions" not in str(found)


def test_each_reason_to_stay_alone() -> None:
    with hr.Graph() as g:
        q = hr.FIFOQueue(3, [hr.float32], shapes=[[]], name="q")
        v = hr.Variable(np.ones((300, 300), np.float32), name="v")
        taken = q.dequeue(name="taken")
        product = hr.matmul(v.read_value(), v.read_value(), name="product")
        n = hr.cond(taken > 0.0, lambda: hr.negative(q.dequeue(), name="n"), lambda: taken)
    apart = dict(told(g, [product, n]).apart)
    assert "product" in apart["may be large enough for its own thread"]
    assert "cond/Merge" in apart["a primitive of control flow"]
    assert {"cond/n", "Greater"} <= set(apart[FEW])
    assert "v" in apart[EFFECTS]
    assert "taken" in apart[WAITS]
    assert not any("Const" in name or name.startswith(("arg.", "ret.")) for names in apart.values() for name in names)


def test_references_and_calls_in_frames_of_their_own() -> None:
    with hr.Graph() as g:
        q = hr.FIFOQueue(3, [hr.int32], shapes=[[]], name="q")
        spec = hr.TensorSpec((), hr.int32)
        f = hr.Function(lambda n: hr.cond(n < 1, lambda: n, lambda: f(n - 1) + n), [spec], spec, name="total")
        y = f(q.dequeue(name="taken"))
    apart = dict(told(g, y).apart)
    assert "total" in apart["calls a function that runs in its own frame"]
    g = from_text("""
        v = Variable[dtype=float32, shape=[]]
        q = FIFOQueueV2[component_types=(float32)]
        x = QueueDequeueV2[component_types=(float32)](q)
        y = AddV2(v, x)
    """)
    assert dict(told(g, "y:0").apart)["works on a reference"] == ("y",)


def test_long_lists_are_cut() -> None:
    with hr.Graph() as g:
        q = hr.FIFOQueue(3, [hr.float32], shapes=[[]], name="q")
        y = q.dequeue(name="x")
        for i in range(SHOWN + 5):
            y = hr.sin(y, name=f"n{i}")
    found = told(g, y)
    assert len(found.fused_regions[0]) == SHOWN + 5
    line = next(text for text in str(found).splitlines() if f"{SHOWN + 5} operations" in text)
    assert line.endswith(f"n{SHOWN - 1}, and 5 more")


def test_the_listing_is_first_and_has_operations_lines_and_constants() -> None:
    with hr.Graph() as g:
        x = hr.placeholder(hr.float32, (None,), name="x")
        hr.while_loop(lambda i, h: i < 3, lambda i, h: (i + 1, hr.cumsum(h, name="sums")), (0, x), name="loop")
    with flags.override(NATIVE="off"):
        found = told(g, "loop:1", [x])
    assert str(found).startswith(found.listing)
    source, listing = found.source.splitlines(), found.listing.splitlines()
    assert [line.partition("  # ")[0].rstrip() for line in listing] == source  # only comments are added
    op = g.get_operation_by_name("loop")
    assert op.source is not None
    line = op.source.line
    assert f"# loop (StatelessWhile), test_explain.py:{line}" in found.listing
    assert f"# loop/sums (Cumsum), test_explain.py:{line}; c" in found.listing
    assert " = 0\n" in found.listing  # the axis
    assert found.program == ""


def test_a_step_that_is_interpreted_is_explained_by_its_program() -> None:
    g, done = a_chain()
    found = told(g, done)
    assert found.listing == ""
    assert str(found).startswith(found.program)
    assert "%b: float32[] = Square(%a)  # test_explain.py:" in found.program
