"""The order of the parts of a box."""

from __future__ import annotations

from headrace import inspect
from headrace.inspect.ordering import in_order
from headrace.ir.text import from_text
from tests.inspect.test_tree import PRIMITIVES


def test_parts_follow_their_inputs() -> None:
    lines = (
        "z = Exp(y)",
        "y = Neg(x)",
        "x = Placeholder[dtype=float32]",
    )
    box = inspect.draw(from_text("\n".join(reversed(lines))))
    assert [p.name for p in in_order(tuple(reversed(box.parts)))] == ["x", "y", "z"]


def test_the_order_of_a_loop_of_primitives_ends() -> None:
    box = inspect.draw(from_text(PRIMITIVES))
    names = [p.name for p in in_order(box.structures[0].boxes[0].parts)]
    assert names[:2] == ["a_in", "a"]
