"""The Graphviz form: nested clusters, every brace closed, every string quoted."""

from __future__ import annotations

import re

import pytest

import headrace as hr
from headrace import inspect
from headrace.ir.text import from_text
from tests.inspect.test_tree import PRIMITIVES, nested
from tests.ir import functional

STATEMENT = re.compile(
    r"""\s*(?:
      digraph\ "(?:[^"\\]|\\.)*"\ \{ | subgraph\ cluster_\d+\ \{ | \}
    | (?:\w+|\w+\ ->\ \w+)\ ?(?:\[(?:\w+=(?:"(?:[^"\\]|\\.)*"|[\w.]+)(?:,\ )?)*\])?;
    | (?:\w+="?(?:[^"\\]|\\.)*"?;\ ?)+
    )\Z""",
    re.VERBOSE,
)


def check(text: str) -> None:
    """Each line is a statement, and the braces pair."""
    depth = 0
    for line in text.splitlines():
        assert STATEMENT.match(line), line
        depth += line.endswith("{")
        depth -= line.strip() == "}"
        assert depth >= 0
    assert depth == 0
    assert text.isascii()


@pytest.mark.parametrize("graph", [nested, functional.program, lambda: from_text(PRIMITIVES), hr.Graph])
def test_every_line_is_a_statement(graph: object) -> None:
    g = graph()  # type: ignore[operator]
    for lowered in (False, True):
        box = inspect.describe(g, lowered).box
        text = inspect.render_dot(box)
        check(text)
        assert len(re.findall(r"^ *n\d+ \[label=", text, flags=re.M)) == box.total


def test_a_function_drawn() -> None:
    g = from_text(
        """
        x = Placeholder[dtype=float32, shape=[2]]
        y = PartitionedCall[Tin=(float32), Tout=(float32), f=&"square"](x)
        function "square" (v: float32[2]) -> (w) {
          w = Mul(v, v)
        }
        """
    )
    text = re.sub(r', tooltip="[^"]*"', "", inspect.render_dot(inspect.draw(g), "g"))
    text = re.sub(r"\\nat [^\"]*", "", text)
    assert text.splitlines()[4:] == [
        r'  n1 [label="x\nPlaceholder\nfloat32 [2]", shape=cds];',
        "  subgraph cluster_1 {",
        r"""    label="call 'y'\nPartitionedCall\n-> float32 [2]"; style="rounded,filled"; fillcolor="#e6f2e1";""",
        r'    n2 [label="y\nPartitionedCall\nfloat32 [2]"];',
        "    subgraph cluster_2 {",
        """      label="f 'square': 1 operation"; style="rounded,filled"; fillcolor="white";""",
        r'      n3 [label="v\n_Arg\nfloat32 [2]", shape=cds];',
        r'      n4 [label="w\nMul\nfloat32 [2]", peripheries=2];',
        "    }",
        "  }",
        "  n1 -> n2;",
        "  n3 -> n4;",
        "  n3 -> n4;",
        "}",
    ]


def test_names_cannot_end_their_strings() -> None:
    g = hr.Graph()
    g.add_op("NoOp", "x", device='"\n;}&lt;é').name = 'x"]; evil [label="\\'
    text = inspect.render_dot(inspect.draw(g), 'title"];')
    check(text)
    assert r'n1 [label="x\"]; evil [label=\"\\\nNoOp\n' in text
    assert "&amp;lt;&#233;" in text


def test_the_way_back_of_a_loop_does_not_order_the_drawing() -> None:
    text = inspect.render_dot(inspect.draw(from_text(PRIMITIVES)))
    assert len(re.findall(r"constraint=false", text)) == 2


def test_what_is_left_out_is_told() -> None:
    g = from_text("\n".join(f"x{i} = NoOp" for i in range(50)))
    text = inspect.render_dot(inspect.draw(g), limit=20)
    check(text)
    assert 'label="30 operations not drawn"' in text
