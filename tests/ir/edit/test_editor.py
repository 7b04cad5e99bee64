"""Methods and invariants of the editor of a private graph (`ir.edit.editor`)."""

import random

import pytest

from headrace import dtypes, flags
from headrace.errors import GraphError
from headrace.ir.edit import add_values
from headrace.ir.edit.editor import Editor
from headrace.ir.graph import FuncGraph, Graph, Operation, Tensor
from headrace.ir.text import from_text, to_text
from headrace.ir.verify import verify

TEXT = """
    x = Placeholder[dtype=float32, shape=[2]]
    y = Placeholder[dtype=float32, shape=[2]]
    a = Neg(x)
    b = AddV2(a, y)
    c = Mul(b, a) ^y
    d = NoOp ^c ^y
    """


def graph_of(text: str = TEXT) -> tuple[Graph, Editor, dict[str, Operation]]:
    g = from_text(text)
    return g, Editor(g), {op.name: op for op in g.operations}


def function(ops: str = "r = Neg(p)", params: str = "p: float32[]", results: str = "r") -> FuncGraph:
    g = from_text(f"""
        x = Placeholder[dtype=float32, shape=[]]
        f = StatefulPartitionedCall[f=@"f", Tin=(float32), Tout=(float32)](x)
        graph "f" of f, f ({params}) -> ({results}) {{
          {ops}
        }}
        """)
    found = g.get_operation_by_name("f").attrs["f"]
    assert isinstance(found, FuncGraph)
    return found


def edges(g: Graph) -> dict[str, str]:
    return {
        op.name: " ".join([*(t.op.name for t in op.inputs), *(f"^{c.name}" for c in op.control_inputs)])
        for op in g.operations
    }


def readers(edit: Editor, t: Tensor) -> list[tuple[str, int]]:
    return [(op.name, i) for op, i in edit.uses.get(t, ())]


def test_replace_changes_readers_and_results():
    f = function("a = Neg(p)\n r = Neg(a)\n s = Tanh(a)", results="a")
    edit = Editor(f)
    a, s = f.get_tensor_by_name("a:0"), f.get_tensor_by_name("s:0")
    p = f.params[0]
    assert not edit.replace(s, p)
    assert edit.replace(a, p, results=False)
    assert edges(f)["r"] == edges(f)["s"] == p.op.name
    assert f.results == [a]
    assert edit.replace(a, p)
    assert f.results == [p]
    assert readers(edit, p) == [("a", 0), ("r", 0), ("s", 0)]
    assert not edit.replace(p, p)


def test_replace_control_puts_several_in_the_place_of_one():
    _, edit, ops = graph_of()
    assert edit.replace_control(ops["y"], [ops["a"], ops["b"]])
    assert ops["c"].control_inputs == [ops["a"], ops["b"]]
    assert ops["d"].control_inputs == [ops["c"], ops["a"], ops["b"]]
    assert not edit.replace_control(ops["y"], [ops["a"]])


def test_controls_are_held_once():
    _, edit, ops = graph_of()
    edit.set_controls(ops["c"], [ops["a"], ops["a"]])
    edit.add_controls(ops["c"], [ops["b"], ops["a"]])
    assert ops["c"].control_inputs == [ops["a"], ops["b"]]
    assert edit.is_waited_for(ops["a"])
    assert not edit.is_waited_for(ops["x"])


def test_attributes_that_a_copy_shares_stay():
    g, edit, ops = graph_of()
    copy = g.copy_op(ops["a"], ops["a"].inputs, (), "copy")
    edit.set_attr(ops["a"], "_mark", True)
    assert "_mark" not in copy.attrs
    edit.set_attrs(copy, {**copy.attrs, "_other": 1})
    assert "_other" not in ops["a"].attrs
    edit.set_device(copy, "/device:CPU:1")
    assert copy.device == "/device:CPU:1"


def test_become_keeps_name_readers_and_place():
    g, edit, ops = graph_of()
    b = ops["b"]
    edit.become(b, "Sub", (b.inputs[1], b.inputs[0]), {"T": dtypes.float32}, [ops["x"]])
    verify(g)
    assert (b.type, edges(g)["b"], g.operations[3]) == ("Sub", "y a ^x", b)
    assert readers(edit, b.outputs[0]) == [("c", 0)]
    edit.check()


def test_become_refuses_other_outputs():
    g, edit, ops = graph_of()
    before = to_text(g)
    with pytest.raises(GraphError, match=r"'b' .* cannot become Shape, which makes \['int32'\]"):
        edit.become(ops["b"], "Shape", ops["b"].inputs[:1], {"T": dtypes.float32}, ())
    with pytest.raises(GraphError):
        edit.become(ops["b"], "Neg", ops["b"].inputs, {"T": dtypes.float32}, ())
    assert to_text(g) == before


def test_ends_of_a_function():
    f = function("q = Neg(p)\n r = Tanh(q)")
    edit = Editor(f)
    edit.set_result(0, f.get_tensor_by_name("q:0"))
    f.set_control_results([f.get_operation_by_name("r")])
    assert [t.op.name for t in f.results] == ["q"]
    assert [op.name for op in f.control_results] == ["r"]
    assert edit.is_waited_for(f.get_operation_by_name("r"))
    assert edit.sweep() == 0
    f.set_control_results(())
    assert edit.sweep() == 1
    verify(f)


def test_a_graph_without_ends_has_no_results():
    _, edit, ops = graph_of()
    with pytest.raises(GraphError, match="only the graph of a function, branch or loop has"):
        edit.set_result(0, ops["a"].outputs[0])
    with pytest.raises(GraphError, match="has no results"):
        edit.forget_captures()


@pytest.mark.parametrize(
    "change",
    [
        lambda e, op, t: e.replace(op.inputs[0], t),
        lambda e, op, t: e.set_input(op, 0, t),
        lambda e, op, t: e.set_inputs(op, [t]),
        lambda e, op, t: e.set_controls(op, [t.op]),
        lambda e, op, t: e.set_device(t.op, "/device:CPU:0"),
        lambda e, op, t: e.set_attr(t.op, "_mark", True),
        lambda e, op, t: e.become(op, "Tanh", [t], {"T": dtypes.float32}, ()),
        lambda e, op, t: e.become(op, "Tanh", [op.graph.get_tensor_by_name("y:0")], {"T": dtypes.float32}, [t.op]),
        lambda e, op, t: e.set_input(t.op, 0, op.inputs[0]),
        lambda e, op, t: e.set_inputs(t.op, op.inputs),
        lambda e, op, t: e.set_controls(t.op, ()),
    ],
)
def test_operations_of_another_graph_are_refused(change):
    g, edit, ops = graph_of()
    foreign = graph_of()[2]["a"].outputs[0]
    assert len(edit.uses) > 0  # the index exists
    before, elsewhere = to_text(g), to_text(foreign.graph)
    with pytest.raises(GraphError, match="belongs to another graph"):
        change(edit, ops["a"], foreign)
    assert (to_text(g), to_text(foreign.graph)) == (before, elsewhere)
    edit.check()


def test_remove_refuses_what_is_needed():
    _, edit, ops = graph_of()
    with pytest.raises(GraphError, match=r"'b' .* cannot be removed: .*'c'"):
        edit.remove([ops["b"]])
    with pytest.raises(GraphError, match=r"'d' .* waits for cannot be removed"):
        edit.remove([ops["c"]])
    f = function()
    with pytest.raises(GraphError, match=r"'r' .* cannot be removed: .* returns it"):
        Editor(f).remove([f.get_operation_by_name("r")])


def test_an_order_has_all_operations_of_the_graph():
    g, edit, ops = graph_of()
    before = to_text(g)
    with pytest.raises(GraphError, match=r"the order of the graph has 5 operations of 6"):
        edit.arrange([op for op in g.operations if op is not ops["d"]])
    assert to_text(g) == before


def test_remove_and_let_go():
    g, edit, ops = graph_of()
    edit.remove([ops["d"]])
    edit.remove(())
    assert edit.let_go([ops["b"]]) == 0  # c reads it
    assert edit.let_go([ops["c"]]) == 5
    assert not g.operations


def test_sweep_by_what_the_caller_needs():
    g, edit, ops = graph_of()
    assert edit.sweep({ops["x"], ops["a"]}) == 4
    assert list(g.operations) == [ops["x"], ops["a"]]
    assert readers(edit, ops["x"].outputs[0]) == [("a", 0)]


def test_what_is_removed_is_no_capture():
    f = function("k = Neg(p)\n r = Tanh(p)")
    assert f.outer is not None
    x = f.outer.get_tensor_by_name("x:0")
    k = f.get_tensor_by_name("k:0")
    f.captures[x] = f.originals[x] = k
    edit = Editor(f)
    assert edit.sweep() == 1
    assert not f.captures
    assert not f.originals


def test_appended_operations_are_found():
    g, edit, ops = graph_of()
    x = ops["x"].outputs[0]
    assert readers(edit, x) == [("a", 0)]
    e = g.add_op("Neg", "e", [x], {"T": dtypes.float32}, [ops["a"]])
    assert readers(edit, x) == [("a", 0), ("e", 0)]
    assert edit.waits[ops["a"]] == [e]
    edit.put_first(ops["y"])
    assert [op.name for op in g.operations] == ["y", "x", "a", "b", "c", "d", "e"]
    g.add_op("Neg", "h", [x], {"T": dtypes.float32})
    assert readers(edit, x) == [("a", 0), ("e", 0), ("h", 0)]
    edit.check()


@pytest.mark.parametrize("is_indexed", [False, True])
def test_inputs_that_an_operation_got_since(is_indexed):
    f = function()
    assert f.outer is not None
    g = f.outer
    x = g.add_op("Placeholder", "z", (), {"dtype": dtypes.float32, "shape": ()}).outputs[0]
    edit = Editor(g)
    if is_indexed:
        assert not edit.uses.get(x)
    call = g.get_operation_by_name("f")
    add_values.add_input(call, x)
    edit.extended(call)
    edit.extended(call)
    assert readers(edit, x) == [("f", 1)]
    edit.check()


def test_all_or_nothing_restores_edges():
    g, edit, ops = graph_of()
    before = to_text(g)

    def spoil() -> None:
        with edit.all_or_nothing(list(g.operations)):
            edit.replace(ops["a"].outputs[0], ops["y"].outputs[0])
            edit.set_controls(ops["d"], ())
            g.add_op("Neg", "e", [ops["x"].outputs[0]], {"T": dtypes.float32})
            raise ValueError

    with pytest.raises(ValueError):
        spoil()
    assert to_text(g) == before
    assert readers(edit, ops["a"].outputs[0]) == [("b", 0), ("c", 1)]
    edit.check()


def test_an_edge_changed_by_hand_is_found():
    _, edit, ops = graph_of()
    assert edit.uses
    ops["b"].inputs[0] = ops["x"].outputs[0]
    with pytest.raises(GraphError, match=r"does not agree with the graph at .*'[ax]:0'"):
        edit.check()
    with flags.override(VERIFY=3), pytest.raises(GraphError, match="does not agree"):
        edit.sweep()


@pytest.mark.parametrize("seed", range(5))
def test_random_changes_keep_the_index_and_raise_the_version(seed):
    rng = random.Random(seed)
    g, edit, _ = graph_of()
    watching = rng.random() < 0.8
    for n in range(60):
        ops = list(g.operations)
        version, before = g.version, to_text(g)
        op = rng.choice(ops)
        tensors = [t for o in ops[: op.id] for t in o.outputs]
        kind = rng.randrange(8)
        if kind == 0 and tensors and op.inputs:
            edit.set_input(op, rng.randrange(len(op.inputs)), rng.choice(tensors))
        elif kind == 1 and tensors and op.inputs:
            edit.set_inputs(op, [rng.choice(tensors) for _ in op.inputs])
        elif kind == 2 and op.id:
            edit.set_controls(op, rng.choices(ops[: op.id], k=2))
        elif kind == 3 and tensors and op.outputs:
            edit.replace(op.outputs[0], rng.choice(tensors))
        elif kind == 4 and op.id:
            edit.replace_control(op, [ops[0], ops[op.id - 1]])
        elif kind == 5 and tensors:
            g.add_op("Neg", f"n{n}", [rng.choice(tensors)], {"T": dtypes.float32})
        elif kind == 6 and len(ops) > 12:
            edit.let_go([op])
        elif kind == 7:
            edit.set_attr(op, "_n", n)
        if watching:
            assert edit.uses is not None
        verify(g)
        edit.check()
        assert g.version > version or to_text(g) == before
