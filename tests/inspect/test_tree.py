"""The tree of loops, conditionals and calls.

Some structures have graphs of their own, and the others consist of primitives.
"""

from __future__ import annotations

import re
from typing import Any

import headrace as hr
from headrace import inspect
from headrace.inspect.parts import visible
from headrace.ir.serial.functiondef import EncodedFunction
from headrace.ir.serial.graphdef import export_graph_def, import_graph_def
from headrace.ir.text import from_text
from headrace.recover import recover
from tests.ir import functional


def nested() -> hr.Graph:
    """A loop in a loop with a conditional."""
    with hr.Graph() as g:
        n = hr.placeholder(hr.int32, (), name="n")
        x = hr.placeholder(hr.float32, (None, 2), name="x")
        w = hr.constant([[1.0, 2.0], [3.0, 4.0]], name="w")

        def step(j: Any, z: Any) -> tuple[Any, Any]:
            return j + 1, hr.cond(hr.reduce_sum(z) > 0.0, lambda: z * 2.0, lambda: z @ w)

        def body(i: Any, y: Any) -> tuple[Any, Any]:
            _, z = hr.while_loop(lambda j, z: j < i, step, (0, y), name="inner")
            return i + 1, z

        _, y = hr.while_loop(lambda i, y: i < n, body, (0, x), name="outer", parallel_iterations=7)
        hr.identity(y, name="out")
    return g


def tree(g: hr.Graph, lowered: bool = False) -> str:
    """The tree, without the lines of this file."""
    return re.sub(r"  at \S*test_tree.py:\d+ in \S+", "", inspect.render_box(inspect.describe(g, lowered).box, None))


def test_a_loop_in_a_loop_with_a_conditional() -> None:
    assert tree(nested()) == (
        """\
while 'outer'  StatelessWhile, parallel_iterations 7  -> int32 [], float32 [?,2], int32 [], float32 [2,2]
    variable  i  int32 []  (from outer/Const, next outer/add)
    variable  y  float32 [?,2]  (from x, next outer/inner:1)
    constant  n  int32 []  (from n)
    constant  w  float32 [2,2]  (from w)
    cond 'outer_cond': 1 operation
    body 'outer_body': 4 operations
        while 'outer/inner'  StatelessWhile, parallel_iterations 10  -> int32 [], float32 [?,2], int32 [], float32 [2,2]
            variable  j  int32 []  (from outer/inner/Const, next outer/inner/add)
            variable  z  float32 [?,2]  (from arg.y, next outer/inner/cond)
            constant  i  int32 []  (from arg.i)
            constant  w  float32 [2,2]  (from arg.w)
            cond 'outer_inner_cond': 1 operation
            body 'outer_inner_body': 7 operations
                if 'outer/inner/cond'  on outer/inner/Greater, StatelessIf  -> float32 [?,2]
                    capture  z  float32 [?,2]  (from arg.z)
                    capture  w  float32 [2,2]  (from arg.w)
                    then_branch 'outer_inner_cond_true': 2 operations
                    else_branch 'outer_inner_cond_false': 1 operation"""
    )


def test_the_lines_of_the_user_are_told() -> None:
    g = nested()
    source = g.get_operation_by_name("outer").source
    assert source is not None
    assert f"test_tree.py:{source.line} in nested" in inspect.render_box(inspect.draw(g))


def test_the_primitive_form_has_the_same_tree() -> None:
    words = [line.split()[:2] for line in tree(nested(), lowered=True).splitlines()]
    assert [w for w in words if w[0] in ("while", "if")] == [
        ["while", "'outer/while_context'"],
        ["while", "'outer/inner/while_context'"],
        ["if", "'outer/inner/Greater'"],
    ]
    assert ["variable", "outer/inner/Merge_1:0"] in words


PRIMITIVES = """
p = Placeholder[dtype=bool, shape=[]]
a_in = Enter[frame_name="a"](p)
a = Merge(a_in, a_next)
a_cond = LoopCond(a:0)
a_switch = Switch(a:0, a_cond)
b_in = Enter[frame_name="b", parallel_iterations=3](a_switch:1)
b = Merge(b_in, b_next)
b_cond = LoopCond(b:0)
b_switch = Switch(b:0, b_cond)
same = Identity(b_switch:1)
either = Switch(b_switch:1, same)
there = LogicalNot(either:1)
joined = Merge(either:0, there)
b_next = NextIteration(joined:0)
b_out = Exit(b_switch:0)
a_next = NextIteration(b_out)
a_out = Exit(a_switch:0)
"""


def test_a_graph_of_primitives() -> None:
    assert inspect.render_box(inspect.draw(from_text(PRIMITIVES))) == (
        """\
while 'a'  on a, parallel_iterations 10  -> bool []
    variable  a:0  bool []  (from a_in, next a_next, out by a_out)
    condition: 5 operations
    body: 1 operation
        while 'b'  on b, parallel_iterations 3  -> bool []
            variable  b:0  bool []  (from b_in, next b_next, out by b_out)
            condition: 5 operations
            body: 4 operations
                if 'b'  of primitives  -> bool []
                    capture  b_switch:1  bool []  (from b_switch:1)
                    true: 1 operation"""
    )


def test_what_was_recovered_says_so() -> None:
    g = hr.Graph()
    import_graph_def(export_graph_def(from_text(PRIMITIVES)).SerializeToString(), g)
    recover(g)
    text = tree(g)
    assert "while 'a'  on a, parallel_iterations 10" in text
    assert "StatelessWhile, parallel_iterations 10, recovered from primitives" in text


def test_every_operation_is_drawn_once() -> None:
    g = from_text(PRIMITIVES)
    drawn = [n.name for n in inspect.nodes(inspect.draw(g))]
    assert sorted(drawn) == sorted(op.name for op in g.operations)
    ids = [n.id for n in inspect.nodes(inspect.draw(nested()))]
    assert len(set(ids)) == len(ids) == inspect.draw(nested()).total


def test_functions_are_shown_once() -> None:
    g = hr.Graph()
    import_graph_def(export_graph_def(functional.program()).SerializeToString(), g)
    text = tree(g)
    assert text.count("f 'fact': 3 operations\n") == 1
    assert "f 'fact': 3 operations, shown above" in text
    assert "f 'fact': 3 operations, shown above" in tree(g, lowered=True)


def test_a_graph_whose_loops_do_not_fit_is_still_described() -> None:
    d = inspect.describe(
        from_text('x = Placeholder[dtype=bool, shape=[]]\nin = Enter[frame_name="a"](x)\nboth = LogicalAnd(in, x)\n')
    )
    assert not d.box.structures
    assert len(d.box.parts) == 3
    assert "frame" in d.box.note
    assert "not all loops and conditionals were recognized" in inspect.render(d)


def test_what_is_not_well_structured_hides_nothing_else() -> None:
    lines = ("s = Switch(p, p)", "q = Placeholder[dtype=bool]", "t = Switch(q, q)", "u = LogicalAnd(s:1, t:1)")
    box = inspect.draw(from_text("\n".join([PRIMITIVES, *lines, "v = LogicalNot(s:1)"])))
    assert "'u' (LogicalAnd)" in box.note
    assert "well-structured" in box.note
    assert [(s.kind, s.name) for s in box.structures] == [("while", "a"), ("if", "p")]
    assert [b.label for b in box.structures[0].boxes] == ["condition", "body"]


def test_loops_that_are_nested_too_deeply_are_drawn_flat() -> None:
    lines = ["x0 = Placeholder[dtype=bool, shape=[]]"]
    lines += [f'x{i + 1} = Enter[frame_name="f{i}", is_constant=true](x{i})' for i in range(60)]
    box = inspect.draw(from_text("\n".join(lines)))
    assert box.total == 61
    depth = 0
    while box.structures:
        box, depth = box.structures[0].boxes[0], depth + 1
    assert depth == 20


def test_what_is_in_a_graph_besides() -> None:
    d = inspect.describe(
        from_text(
            'v = VariableV2[dtype=float32, shape=[2,3]] @"/device:CPU:1"\nc = Const[value=int32[2]{1, 2}, dtype=int32]'
        )
    )
    assert d.resources == (inspect.Resource("VariableV2", "v", "float32 [2,3]", 24),)
    assert d.constants == (inspect.Value("c:0", "int32", (2,), 8),)
    assert d.dtypes == {"float32_ref": 1, "int32": 1}
    assert d.devices == {"/device:CPU:1": 1}
    text = inspect.render(d)
    assert "state:\n  VariableV2  v  float32 [2,3]  24 B" in text
    assert "constants:\n  1, 8 B" in text


def test_long_lists_are_cut() -> None:
    graph = from_text("\n".join(f"x{i} = Placeholder[dtype=int32]" for i in range(50)))
    d = inspect.describe(graph)
    assert "... and 30 more" in inspect.render(d)
    assert "x49:0" in inspect.render(d, limit=None)


def test_what_is_cut_is_counted_and_structures_stay() -> None:
    with hr.Graph() as g:
        x = hr.placeholder(hr.float32, (), name="x")
        for _ in range(50):
            x = hr.tanh(x)
        hr.while_loop(lambda y: y < 1.0, lambda y: (y + 1.0,), (x,))
    whole = inspect.draw(g)
    box = inspect.cut(whole, 20)
    assert len(list(inspect.nodes(box))) == box.total <= 20
    assert box.total + box.left_out == whole.total
    assert [s.kind for s in box.structures] == ["while"]
    assert inspect.cut(whole, None) is whole
    for limit in range(whole.total + 1):
        box = inspect.cut(whole, limit)
        assert len(list(inspect.nodes(box))) == box.total <= limit
        assert box.total + box.left_out == whole.total


def test_what_does_not_print_is_spelled_out() -> None:
    assert visible("\x1b[31mred\u202e\ud800\n") == "\\x1b[31mred\\u202e\\ud800\\n"
    assert visible("é" * 300) == "é" * 200 + "... (300 characters)"


def test_text_of_hostile_names_has_no_escape_sequences() -> None:
    g = hr.Graph()
    g.add_op("NoOp", "x", device="/device:\x1b]0;owned\x07")
    text = inspect.render(inspect.describe(g))
    assert "\x1b" not in text
    assert "\\x1b]0;owned\\x07" in text


def test_a_function_that_cannot_be_read_says_so() -> None:
    g = functional.program()
    g.library["square"] = EncodedFunction(b"\xff")
    del g.functions["square"]
    assert "f 'square': not a FunctionDef" in inspect.render(inspect.describe(g))
    del g.library["square"]
    assert "f 'square': Function 'square' is not in the library" in inspect.render(inspect.describe(g))


def test_what_nodes_tell_of_their_attributes() -> None:
    g = from_text(
        """
        s = Const[value=string[2]{"a\\n", "\\xff"}, dtype=string]
        l = Const[value=float32[100]{0.5...}, dtype=float32]
        n = Const[value=int32[9]{1, 2, 3, 4, 5, 6, 7, 8, 9}, dtype=int32]
        b = Const[value=bool[]{true}, dtype=bool]
        x = Placeholder[dtype=float32, shape=[2,2]]
        m = MatMul[transpose_a=true](x, x)
        """
    )
    assert [n.attrs for n in inspect.nodes(inspect.draw(g))] == [
        r'value=["a\n", "\xff"]',
        "value=[0.5, ...]",
        "value=[1, 2, 3, 4, 5, 6, 7, 8, ...]",
        "value=True",
        "",
        "transpose_a=true",
    ]
