"""How conditionals, loops and calls lose inputs, variables and results."""

import pytest

from headrace.errors import GraphError
from headrace.ir import shrinking
from headrace.ir.editing import Editor
from headrace.ir.text import from_text, to_text
from headrace.ir.verify import verify
from headrace.optimize.prune import Prune
from tests.optimize.running import apply
from tests.optimize.test_prune import CALL, CASE, IF, LOOP


def test_that_what_is_read_cannot_be_taken_away():
    g = from_text(IF.replace(":K", ":1"))
    c, edit = g.get_operation_by_name("c"), Editor(g)
    with pytest.raises(GraphError, match="output 1 of 'c' cannot be taken away: it is read"):
        shrinking.remove_results(edit, c, [1])
    with pytest.raises(GraphError, match=r"parameter 'a' of .* cannot be taken away: 's' reads it"):
        shrinking.remove_inputs(edit, c, [1])
    g = from_text(LOOP.replace(":R", ":0"))
    w, edit = g.get_operation_by_name("w"), Editor(g)
    with pytest.raises(GraphError, match="cannot be taken away: 'ff' reads it"):
        shrinking.remove_variables(edit, w, [1])
    g = from_text(CALL)
    with pytest.raises(GraphError, match="that is to be taken away is one of its results"):
        shrinking.remove_inputs(Editor(g), g.get_operation_by_name("c"), [0])


def test_shrinking_by_hand():
    g = from_text(CALL)
    c, edit = g.get_operation_by_name("c"), Editor(g)
    kept = c.outputs[1]
    shrinking.remove_results(edit, c, [0])
    shrinking.remove_inputs(edit, c, [0])
    verify(g)
    assert c.outputs == (kept,)
    assert kept.index == 0
    assert "_Retval[T=float32, index=0](c)" in to_text(g)
    assert edit.uses[c.inputs[0]] == [(c, 0)]


def test_a_parameter_that_is_waited_for_goes_too():
    text = IF.replace(":K", ":1").replace("t = Sin(b)", "k = NoOp ^b ^a\n      t = Sin(b) ^a ^k")
    after, _ = apply(Prune(), text)
    assert "k = NoOp ^b\n" in after
    assert "t = Sin[T=float32](b) ^k :" in after


def test_stated_shapes_and_what_was_captured():
    text = CASE.replace("a: float32[2], b: float32[2])", 'a: float32[2] of "x:0", b: float32[2])')
    g = from_text(text.replace("s = Tanh(a)", "s = Tanh(b)").replace("-> (a, b)", "-> (b, b)"))
    c, edit = g.get_operation_by_name("c"), Editor(g)
    params = {graph: graph.params[1] for graph in c.attrs["branches"]}
    for graph, param in params.items():
        graph.captures[c.inputs[2]] = param
        graph.originals.update(dict(zip(graph.params, graph.params, strict=True)))
    shrinking.remove_inputs(edit, c, [1])
    shrinking.remove_results(edit, c, [0])
    verify(g)
    assert c.attrs["output_shapes"] == ((None,),)
    for graph, param in params.items():
        assert graph.params == [param]
        assert list(graph.captures.values()) == list(graph.originals) == [param]
