"""Graphs as programs for readers (`inspect.program`)."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import headrace as hr
from headrace.grad.differentiate import differentiate
from headrace.inspect import draw, program, render_program
from headrace.ir.edit.editor import Editor
from headrace.ir.text import from_text
from headrace.lower import lower_whole
from tests.ir import functional

_LINE = re.compile(r"  # \S+:\d+$", re.M)


def text(graph: Any, **options: Any) -> str:
    """The program of a graph without the comments at the ends of its lines."""
    return _LINE.sub("", render_program(draw(graph), **options))


def loop_graph() -> hr.Graph:
    """A conditional in a loop."""

    def body(i: Any, h: Any) -> Any:
        return i + 1, hr.cond(hr.reduce_sum(h) > 3.0, lambda: hr.tanh(h) * 2.0, lambda: h)

    with hr.Graph() as g:
        x = hr.placeholder(hr.float32, [None, 16], name="x")
        hr.identity(hr.while_loop(lambda i, h: i < 10, body, (0, x))[1], name="y")
    return g


LOOP = """\
# graph of 4 operations
%x: float32[?,16] = Placeholder
%while: int32[], %while.1: float32[?,16] = StatelessWhile:
  variable %i: int32[] = 0, next %add
  variable %h: float32[?,16] = %x, next %cond
  cond:
    %Less: bool[] = Less(%i, 10)
    results %Less
  body:
    %add: int32[] = AddV2(%i, 1)
    %Sum: float32[] = Sum(%h, [0, 1])
    %Greater: bool[] = Greater(%Sum, 3.0)
    %cond: float32[?,16] = StatelessIf(%Greater):
      capture %h: float32[?,16] = %h
      then_branch:
        %Tanh: float32[?,16] = Tanh(%h)
        %mul: float32[?,16] = Mul(%Tanh, 2.0)
        results %mul
      else_branch:
        results %h
    results %add, %cond
%y: float32[?,16] = Identity(%while.1)"""


def test_loops_and_conditionals_are_nested_with_the_values_that_enter_them() -> None:
    g = loop_graph()
    assert text(g) == LOOP
    assert _LINE.sub("", str(g)) == LOOP


def test_a_line_ends_in_the_line_of_the_user() -> None:
    g = hr.Graph()
    with g:
        hr.placeholder(hr.int32, (), name="x")
    (op,) = g.operations
    assert op.source is not None
    assert str(g).splitlines()[1] == f"%x: int32[] = Placeholder  # test_program.py:{op.source.line}"


def test_a_graph_that_an_operation_owns_is_a_function_of_its_parameters() -> None:
    body = loop_graph().get_operation_by_name("while").get_attr("body")
    assert str(body).splitlines()[0] == "function while_body(%i: int32[], %h: float32[?,16]):"
    assert str(body).splitlines()[-1] == "  results %add, %cond"


def test_each_function_is_written_once_behind_the_graph() -> None:
    shown = text(functional.program())
    assert "\n%square: float32[2] = PartitionedCall(%x, f=square)\n" in shown
    assert shown.count("function square(%v: float32[2]):\n  %Mul: float32[2] = Mul(%v, %v)\n  results %Mul") == 1
    assert shown.count("\nfunction fact(") == 1
    assert "      %fact: int32<unknown> = PartitionedCall(%Sub, f=fact)\n" in shown  # it calls itself


def test_primitives_are_nested_by_their_frames_and_predicates() -> None:
    lines = text(lower_whole(loop_graph(), differentiate)).splitlines()
    assert lines[2] == "while while/while_context (on while/Less, parallel_iterations 10):"
    assert lines[3] == "  variable %while/Merge: int32[] = %Enter, next %NextIteration, out by %Exit"
    inside = lines.index("    if %Greater (of primitives):")
    assert lines[inside + 2] == "      true:"
    assert any(line.startswith("        %Tanh: float32[?,16] = Tanh(%h/Switch.1)") for line in lines[inside:])
    assert lines[-1] == "%y: float32[?,16] = Identity(%Exit_1)"


def test_a_for_loop_has_a_counter_and_constants() -> None:
    @hr.jit
    def repeated(a: Any, k: Any) -> Any:
        for _ in range(k):
            a = a * hr.cast(k, hr.float32)
        return a

    with hr.Graph() as g:
        repeated(hr.placeholder(hr.float32, (), name="a"), hr.placeholder(hr.int32, (), name="k"))
    assert re.search(r"\n    constant %\w+: int32\[\] = %\w+\n", text(g))


def test_devices_control_inputs_and_attributes_are_written_where_they_are_not_default() -> None:
    lines = (
        "x = Placeholder[dtype=float32, shape=[2,2]]",
        'y = MatMul[transpose_b=true](x, x) @"/device:CPU:1"',
        "n = NoOp ^y",
        "z = Const[value=float32[]{1.0}, dtype=float32] ^n",
        "r = AddV2(z, z)",
    )
    assert text(from_text("\n".join(lines))).splitlines()[1:] == [
        "%x: float32[2,2] = Placeholder",
        "%y: float32[2,2] = MatMul(%x, %x, transpose_b=true) on /device:CPU:1",
        "%n = NoOp after %y",
        "%z: float32[] = Const(1.0) after %n",
        "%r: float32[] = AddV2(%z, %z)",
    ]


def test_large_and_unused_constants_have_lines_of_their_own() -> None:
    with hr.Graph() as g:
        hr.constant(5, name="unused")
        hr.reduce_sum(hr.constant(np.arange(100.0), name="table"), [0])
    assert text(g).splitlines()[1:] == [
        "%unused: int32[] = Const(5)",
        "%table: float64[100] = Const([0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, ...])",
        "%Sum: float64[] = Sum(%table, [0])",
    ]


def test_a_name_is_the_shortest_end_that_is_unique() -> None:
    g = from_text("a/x = NoOp\nb/x = NoOp\nb/y = NoOp\nc/b/x = NoOp")
    assert re.findall(r"%(\S+) =", text(g)) == ["a/x", "b/x", "y", "c/b/x"]
    assert re.findall(r"%(\S+) =", text(g, full_names=True)) == ["a/x", "b/x", "b/y", "c/b/x"]


def test_a_parameter_keeps_its_name_before_operations() -> None:
    lines = (
        "c = Placeholder[dtype=bool]",
        "a = Placeholder[dtype=int32, shape=[]]",
        'd = If[then_branch=@"t", else_branch=@"e", Tin=(int32), Tout=(int32)](c, a)',
        'graph "t" of d, then_branch (h: int32[] of "a:0") -> (s/h) {',
        "  s/h = Neg(h)",
        "}",
        'graph "e" of d, else_branch (other: int32[] of "a:0") -> (other) {',
        "}",
    )
    shown = text(from_text("\n".join(lines))).splitlines()
    assert shown[4:] == [
        "  capture %other: int32[] = %a",
        "  then_branch:",
        "    %h: int32[] = Neg(%other)",
        "    results %h",
        "  else_branch:",
        "    results %other",
    ]


def test_operations_follow_those_that_they_read() -> None:
    with hr.Graph() as g:
        x = hr.placeholder(hr.float32, (), name="x")
        y = hr.identity(x, name="y")
        z = hr.identity(x, name="z")
    Editor(g).set_input(y.op, 0, z)
    assert [line.split(":")[0] for line in text(g).splitlines()[1:]] == ["%x", "%z", "%y"]


def test_str_writes_some_operations_and_counts_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    with hr.Graph() as g:
        x = hr.placeholder(hr.float32, (), name="x")
        for _ in range(20):
            x = hr.sin(x)
    assert len(str(g).splitlines()) == 22
    monkeypatch.setattr(program, "SHOWN", 5)
    lines = str(g).splitlines()
    assert len(lines) == 7
    assert lines[-1].startswith("# 16 more operations; headrace.inspect.render_program(")
    monkeypatch.setattr(program, "DRAWN", 10)
    assert str(g).splitlines()[0] == "# graph of 21 operations: 20 Sin, 1 Placeholder"


def test_text_of_a_file_cannot_control_the_terminal() -> None:
    g = from_text('s = Const[value=string[]{"\\x1b[31m"}, dtype=string]\nt = Placeholder[dtype=string, shape=[]]')
    assert "\x1b" not in text(g)


def test_an_empty_graph_has_a_program() -> None:
    assert str(hr.Graph()) == "# graph of 0 operations"
    assert repr(hr.Graph()) == "<Graph of 0 operations>"
