"""Removal of inputs, variables and results from conditionals, loops and calls."""

from headrace.ir.edit import remove_values
from headrace.ir.text import from_text, to_text
from headrace.ir.verify import verify
from tests.optimize.test_dead_code import CALL, CASE, LOOP


def test_a_call_loses_a_result_and_an_input():
    g = from_text(CALL)
    c = g.get_operation_by_name("c")
    kept = c.outputs[1]
    remove_values.remove_all_but(c, [1], [1])
    verify(g)
    assert c.outputs == (kept,)
    assert kept.index == 0
    assert "_Retval[T=float32, index=0](c)" in to_text(g)


def test_a_loop_loses_variables():
    g = from_text(LOOP.replace(":R", ":0"))
    w = g.get_operation_by_name("w")
    body = w.attrs["body"]
    body.take_back({body.get_operation_by_name(name) for name in ("ff", "gg", "hh")})
    remove_values.remove_all_but(w, [0, 4], [])
    verify(g)
    assert [p.op.name for p in body.params] == ["i", "n"]
    assert [p.op.attrs["index"] for p in w.attrs["cond"].params] == [0, 1]
    assert w.attrs["T"] == tuple(t.dtype for t in w.inputs)


def test_stated_shapes_and_captures_follow():
    text = CASE.replace("a: float32[2], b: float32[2])", 'a: float32[2] of "x:0", b: float32[2])')
    g = from_text(text.replace("s = Tanh(a)", "s = Tanh(b)").replace("-> (a, b)", "-> (b, b)"))
    c = g.get_operation_by_name("c")
    params = {graph: graph.params[1] for graph in c.attrs["branches"]}
    for graph, param in params.items():
        graph.captures[c.inputs[2]] = param
        graph.originals.update(dict(zip(graph.params, graph.params, strict=True)))
    remove_values.remove_all_but(c, [0, 2], [1])
    verify(g)
    assert c.attrs["output_shapes"] == ((None,),)
    for graph, param in params.items():
        assert graph.params == [param]
        assert list(graph.captures.values()) == list(graph.originals) == [param]
