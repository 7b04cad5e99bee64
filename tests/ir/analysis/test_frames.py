"""`ir.analysis.frames`: which loop an operation belongs to."""

import pytest

from headrace import dtypes
from headrace.errors import GraphError, InternalError, InvalidArgumentError
from headrace.ir.analysis import frames
from headrace.ir.builder import Builder
from headrace.ir.graph import Graph
from headrace.ir.text import from_text

COUNT = """
    zero = Const[value=int32[]{0}, dtype=int32]
    n = Placeholder[dtype=bool, shape=[]]
    e = Enter[frame_name="while", parallel_iterations=7](zero)
    lim = Enter[frame_name="while", is_constant=true](n)
    m = Merge(e, next)
    cond = LoopCond(lim)
    s = Switch(m, cond)
    one = Const[value=int32[]{1}, dtype=int32] ^s
    body = Identity(s:1) ^one
    next = NextIteration(body)
    out = Exit(s)
    after = Identity(out)
"""


def derive(text):
    g = from_text(text)
    return g, frames.derive(g.operations)


def names(ops):
    return [op.name for op in ops]


def test_a_loop_is_a_frame():
    g, tree = derive(COUNT)
    root, loop = tree.frames
    assert (root.name, root.parent, root.depth, root.parallel_iterations) == ("", None, 0, 1)
    assert names(root.ops) == ["zero", "n", "e", "lim", "after"]
    assert (loop.name, loop.parent, loop.depth, loop.parallel_iterations) == ("while", root, 1, 7)
    assert names(loop.ops) == ["m", "cond", "s", "one", "body", "next", "out"]
    assert names(loop.enters) == ["e", "lim"]
    assert names(loop.exits) == ["out"]
    assert names(loop.merges) == ["m"]
    assert loop.loop_cond.name == "cond"
    assert [(b.next_iteration.name, b.merge.name, b.index) for b in loop.back_edges] == [("next", "m", 1)]
    assert tree.root is root
    assert tree.of(g.find("e")) is root
    assert tree.entered_by(g.find("e")) is loop
    assert tree.outputs_of(g.find("e")) is loop
    assert tree.of(g.find("out")) is loop
    assert tree.outputs_of(g.find("out")) is root
    assert tree.outputs_of(g.find("body")) is loop


def test_a_graph_without_loops_is_the_root_frame():
    _, tree = derive("a = Placeholder[dtype=float32]\nb = Identity(a)")
    assert len(tree.frames) == 1
    assert names(tree.root.ops) == ["a", "b"]
    assert tree.root.loop_cond is None


def test_nothing_is_a_root_frame_too():
    assert frames.derive([]).root.ops == ()


def test_loops_nest():
    _, tree = derive("""
        x = Placeholder[dtype=float32]
        e = Enter[frame_name="outer"](x)
        f = Enter[frame_name="inner"](e)
        y = Identity(f)
        g = Exit(y)
        h = Exit(g)
        z = Identity(h)
    """)
    root, outer, inner = tree.frames
    assert [f.name for f in tree.frames] == ["", "outer", "inner"]
    assert (inner.parent, outer.parent, inner.depth) == (outer, root, 2)
    assert names(root.ops) == ["x", "e", "z"]
    assert names(outer.ops) == ["f", "h"]
    assert names(inner.ops) == ["y", "g"]


def test_parents_come_before_children_whatever_the_order():
    g, _ = derive(COUNT)
    tree = frames.derive(list(reversed(g.operations)))
    assert [f.name for f in tree.frames] == ["", "while"]
    assert names(tree.frames[1].ops) == ["out", "next", "body", "one", "s", "cond", "m"]


def test_a_control_edge_brings_an_operation_into_the_frame():
    g, tree = derive("""
        x = Placeholder[dtype=float32]
        e = Enter[frame_name="f"](x)
        inside = NoOp ^e
        out = Exit(e)
        outside = NoOp ^out
    """)
    assert tree.of(g.find("inside")).name == "f"
    assert tree.of(g.find("outside")) is tree.root


def test_the_merge_of_a_conditional_is_no_loop_merge():
    _, tree = derive("""
        x = Placeholder[dtype=float32]
        p = Placeholder[dtype=bool]
        s = Switch(x, p)
        m = Merge(s, s:1)
    """)
    assert tree.root.merges == ()


def test_the_back_edge_may_be_the_first_input():
    _, tree = derive("""
        x = Placeholder[dtype=float32]
        e = Enter[frame_name="f"](x)
        m = Merge(n, e)
        n = NextIteration(m)
    """)
    assert tree.frames[1].back_edges[0].index == 0


def test_operations_may_be_missing():
    g, _ = derive(COUNT)
    some = [op for op in g.operations if op.name != "next"]
    tree = frames.derive(some)
    assert tree.frames[1].back_edges == ()
    assert names(tree.frames[1].merges) == []


def test_the_least_window_of_the_enters_counts():
    _, tree = derive("""
        x = Placeholder[dtype=float32]
        a = Enter[frame_name="f", parallel_iterations=3](x)
        b = Enter[frame_name="f", parallel_iterations=5](x)
        c = Enter[frame_name="g", parallel_iterations=-5](x)
    """)
    assert [f.parallel_iterations for f in tree.frames] == [1, 3, 1]


def test_it_takes_builders_graphs():
    b = Builder(Graph())
    x = b.Placeholder(dtype=dtypes.float32, shape=(2,))
    y = b.Identity(b.Enter(x, frame_name="f"))
    assert frames.derive(b.graph.operations).of(y.op).name == "f"


# *** errors ***


@pytest.mark.parametrize(
    ("line", "says"),
    [
        (
            "add = Merge(e1, e2)",
            "{{node add}} has inputs from different frames. The input {{node e2}} is in frame 'f2'. "
            "The input {{node e1}} is in frame 'f1'. The value of 'e2' (made at <text>:5) belongs to the loop 'f2', "
            "the value of 'e1' (made at <text>:4) to the loop 'f1', and neither loop is inside the other: return one "
            "of them from its loop through an Exit, and bring it into the other through an Enter (made at <text>:6)",
        ),
        (
            "add = Merge(a, e1)",
            "{{node add}} has inputs from different frames. The input {{node e1}} is in frame 'f1'. "
            "The input {{node a}} is in frame ''. The value of 'e1' (made at <text>:4) belongs to the loop 'f1': to "
            "use it outside, return it from the loop through an Exit; to use 'a' inside the loop, bring it in through "
            "an Enter (is_constant=True) or give it a control input from inside (made at <text>:6)",
        ),
        ("add = Merge(e1, a)", "The input {{node e1}} is in frame 'f1'. The input {{node a}} is in frame ''."),
        (
            "add = Merge(e1, i)",
            "to use 'i' inside the loop, bring it in through an Enter (is_constant=True) (made at <text>:6)",
        ),
        ("add = Identity(e1) ^a", "{{node add}} has inputs from different frames"),
        ("add = NoOp ^e1 ^e2", "{{node add}} has inputs from different frames"),
        ('add = Enter[frame_name="g"](e1) ^a', "{{node add}} has inputs from different frames"),
        ("add = Exit(i)", "Invalid Exit op: Cannot find a corresponding Enter op. {{node add}}"),
        ('add = Enter[frame_name=""](a)', "The Enter {{node add}} must have a frame name."),
        ("add = Merge(e1, n)\nn = NextIteration(e2)", "The input {{node n}} is in frame 'f2'. The input {{node e1}}"),
        (
            "c1 = LoopCond(p1)\nc2 = LoopCond(p1)",
            'Invalid loop structure: Loop "f1" has more than one LoopCond node: {{node c2}} and {{node c1}}.',
        ),
    ],
)
def test_what_does_not_fit_is_explained(line, says):
    g = from_text(f"""a = Placeholder[dtype=bool]
        i = Identity(a)
        p1 = Enter[frame_name="f1"](a)
        e1 = Enter[frame_name="f1"](a)
        e2 = Enter[frame_name="f2"](a)
        {line}""")
    with pytest.raises(InvalidArgumentError) as e:
        frames.derive(g.operations)
    assert says in str(e.value)


def test_one_frame_has_one_parent():
    g = from_text("""
        a = Placeholder[dtype=float32]
        x = Enter[frame_name="f1"](a)
        y = Enter[frame_name="f2"](a)
        z = Enter[frame_name="f2"](x)
    """)
    with pytest.raises(InternalError, match=r'Mismatched parent frames for "f2": .*different frame names'):
        frames.derive(g.operations)


def test_a_frame_does_not_contain_itself():
    g = from_text("""
        a = Placeholder[dtype=float32]
        x = Enter[frame_name="f"](a)
        y = Enter[frame_name="f"](x)
    """)
    with pytest.raises(InternalError, match='Mismatched parent frames for "f"'):
        frames.derive(g.operations)


def test_tensorflows_gradient_counter_may_share_a_frame():
    _, tree = derive("""
        a = Placeholder[dtype=bool]
        x = Enter[frame_name="f"](a)
        ForwardLoopCounter = LoopCond(x)
        c = LoopCond(x)
    """)
    assert tree.frames[1].loop_cond.name == "c"


def test_a_cycle_that_is_no_loop_is_found():
    g = from_text("a = Placeholder[dtype=float32]\nb = Identity(a)\nc = Identity(b)")
    g.find("b").inputs[0] = g.find("c").outputs[0]
    with pytest.raises(GraphError, match="2 nodes in a cycle"):
        frames.derive(g.operations)


def test_depth_is_no_problem():
    lines = ["e0 = Placeholder[dtype=float32]"]
    lines += [f'e{i} = Enter[frame_name="f{i}"](e{i - 1})' for i in range(1, 2001)]
    assert derive("\n".join(lines))[1].frames[-1].depth == 2000
