"""Differences between two graphs."""

from __future__ import annotations

import random

import pytest

import headrace as hr
from headrace import inspect
from headrace.ir.serial.graphdef import export_graph_def, import_graph_def
from headrace.ir.text import from_text, to_text
from tests.inspect.test_tree import PRIMITIVES, nested
from tests.ir import functional

BASE = """
x = Placeholder[dtype=float32, shape=[2]]
w = Const[value=float32[2]{1.0, 2.0}, dtype=float32]
y = Mul(x, w)
z = Neg(y) ^x
"""


def told(a: str, b: str) -> str:
    return str(inspect.diff(from_text(a), from_text(b)))


@pytest.mark.parametrize("graph", [nested, functional.program, lambda: from_text(PRIMITIVES), hr.Graph])
def test_a_graph_is_the_same_as_what_is_read_of_it(graph: object) -> None:
    g = graph()  # type: ignore[operator]
    for again in (from_text(to_text(g)), imported(g)):
        assert str(inspect.diff(imported(g), imported(again))) == f"the same: {len(g)} operations"
    assert not inspect.diff(g, g)


def imported(g: object) -> hr.Graph:
    new = hr.Graph()
    import_graph_def(export_graph_def(g).SerializeToString(), new)  # type: ignore[arg-type]
    return new


def test_order_does_not_matter() -> None:
    lines = [f"x{i} = Placeholder[dtype=float32]" for i in range(9)]
    shuffled = random.Random(1).sample(lines, len(lines))
    assert told("\n".join(lines), "\n".join(shuffled)) == "the same: 9 operations"


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("Neg(y) ^x", "Exp(y) ^x", "~ z  (Exp)\n    type: Neg -> Exp"),
        ("Mul(x, w)", "Mul(w, x)", "~ y  (Mul)\n    input 0: x -> w\n    input 1: w -> x"),
        ("Neg(y) ^x", "Neg(y)", "~ z  (Neg)\n    no longer waits for: x"),
        ("Neg(y) ^x", "Neg(y) ^x ^w", "~ z  (Neg)\n    waits for: w"),
        ("Neg(y) ^x", 'Neg(y) ^x @"/device:CPU:1"', "~ z  (Neg)\n    device: any -> /device:CPU:1"),
        ("{1.0, 2.0}", "{1.0, 3.0}", "~ w  (Const)\n    attribute value: [1.0, 2.0] -> [1.0, 3.0]"),
        ("shape=[2]", "shape=[?]", "~ x  (Placeholder)\n    attribute shape: [2] -> [?]"),
        ("z = Neg(y) ^x\n", "", "- z  (Neg)\n    takes y\n    waits for x"),
        ("z = Neg(y) ^x\n", "z = Neg(y) ^x\nn = NoOp ^z\n", "+ n  (NoOp)\n    waits for z"),
    ],
)  # fmt: skip
def test_one_change(old: str, new: str, expected: str) -> None:
    assert told(BASE, BASE.replace(old, new)).split("\n", 1)[1] == expected


def test_backwards_added_is_removed() -> None:
    b = BASE.replace("z = Neg(y) ^x\n", "")
    assert told(BASE, b).startswith("different: 1 removed\n- z")
    assert told(b, BASE).startswith("different: 1 added\n+ z")


def test_another_name_alone_is_recognised_and_so_is_what_hangs_on_it() -> None:
    b = BASE.replace("y =", "product =").replace("Neg(y)", "Neg(product)").replace("z =", "last =")
    assert told(BASE, b) == ("different: 2 renamed\n= last  (Neg)\n    was z\n= product  (Mul)\n    was y")


def test_where_two_could_be_meant_none_is() -> None:
    a = BASE + "a = Neg(x)\nb = Neg(x)\n"
    assert told(a, BASE + "c = Neg(x)\nd = Neg(x)\n").startswith("different: 2 added, 2 removed\n")
    assert told(BASE + "a = Neg(x)\n", BASE + "c = Neg(x)\nd = Neg(x)\n").startswith("different: 1 added, 1 renamed\n")


def test_large_constants_tell_where_they_differ() -> None:
    def graph(last: float) -> hr.Graph:
        with hr.Graph() as g:
            hr.constant([1.0] * 99 + [last], name="w")
        return g

    assert "attribute value: 1 of 100 elements, the first is number 99" in str(inspect.diff(graph(2.0), graph(3.0)))


def test_changes_in_bodies_are_found() -> None:
    text = to_text(nested())
    other = text.replace("value=int32[2]{0, 1}", "value=int32[2]{1, 0}").replace(
        "outer/inner/cond/mul = Mul", "outer/inner/cond/mul = AddV2"
    )
    assert told(text, other) == (
        "different: 2 changed\n"
        "~ outer > body > outer/inner > body > outer/inner/Const_1  (Const)\n"
        "    attribute value: [0, 1] -> [1, 0]\n"
        "~ outer > body > outer/inner > body > outer/inner/cond > then_branch > outer/inner/cond/mul  (AddV2)\n"
        "    type: Mul -> AddV2"
    )


FUNCTION = """
x = Placeholder[dtype=float32, shape=[2]]
y = PartitionedCall[Tin=(float32), Tout=(float32), f=&"square"](x)
function "square" (v: float32[2]) -> (w) {
  w = Mul(v, v)
}
"""


def test_functions_are_compared_whatever_they_are_called() -> None:
    assert told(FUNCTION, FUNCTION.replace("square", "sq")) == "the same: 2 operations"
    changed = FUNCTION.replace("square", "sq").replace("Mul(v, v)", "AddV2(v, v)")
    assert told(FUNCTION, changed) == "different: 1 changed\n~ function sq > w  (AddV2)\n    type: Mul -> AddV2"
    returned = FUNCTION.replace("-> (w)", "-> (v)")
    assert told(FUNCTION, returned) == "different: 1 changed\n~ function square\n    returns 0: w -> v"


def test_functions_that_come_and_go() -> None:
    more = FUNCTION + 'function "other" (v: float32[2]) -> (v) {\n}\n'
    assert told(FUNCTION, more) == "different: 1 added\n+ other  (function)"
    assert told(more, FUNCTION) == "different: 1 removed\n- other  (function)"
    assert told(more, more) == "the same: 2 operations"


def test_recursive_functions_end() -> None:
    a, b = to_text(functional.program()), to_text(functional.program()).replace("int32[]{1}", "int32[]{2}")
    found = inspect.diff(from_text(a), from_text(b))
    assert any(c.where[:1] == ("function fact",) for c in found.changes)
    assert [*found.changes] == sorted(found.changes)


def test_a_function_that_is_not_there() -> None:
    g = functional.program()
    del g.functions["square"]
    assert "~ square  (function)\n    it is not there in B" in inspect.diff(functional.program(), g).text(40)
    assert not inspect.diff(g, g)


def test_names_are_shown_as_they_may_be() -> None:
    g = hr.Graph()
    g.add_op("NoOp", "x", device="\x1b[31m")
    text = str(inspect.diff(hr.Graph(), g))
    assert "\x1b" not in text
    assert "\\x1b[31m" in text
