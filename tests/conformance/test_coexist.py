"""TensorFlow and headrace in one process, imported in either order, reading each other's bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

IMPORTS = {
    "tensorflow": "import tensorflow as tf",
    "headrace": "import headrace\nfrom headrace import pb",
}

# A graph with one of each: a placeholder, a constant with its value, a function, source lines.
ROUND_TRIP = """
with tf.Graph().as_default() as g:
    x = tf.compat.v1.placeholder(tf.float32, [2, None], name="x")
    y = tf.add(x, tf.constant([[1.0], [2.0]], name="c"), name="y")
    theirs = g.as_graph_def()
theirs.library.function.add().signature.name = "f"
theirs.debug_info.traces["y"].file_line_cols.add().line = 7

data = theirs.SerializeToString(deterministic=True)
ours = pb.GraphDef.FromString(data)
assert [n.name for n in ours.node] == ["x", "c", "y"], ours
assert ours.node[0].attr["shape"].shape.dim[1].size == -1
assert ours.node[1].attr["value"].tensor.dtype == pb.DT_FLOAT == tf.float32.as_datatype_enum
assert ours.library.function[0].signature.name == "f"
assert ours.debug_info.traces["y"].file_line_cols[0].line == 7
assert ours.SerializeToString(deterministic=True) == data
assert tf.compat.v1.GraphDef.FromString(ours.SerializeToString()) == theirs
assert type(ours) is not type(theirs)
print("fine")
"""


@pytest.mark.parametrize("order", [("tensorflow", "headrace"), ("headrace", "tensorflow")], ids="-then-".join)
def test_both_in_one_process(run_anew: Callable[[str], bytes], order: tuple[str, str]) -> None:
    program = "\n".join(IMPORTS[name] for name in order) + "\n" + ROUND_TRIP
    assert run_anew(program).decode().split()[-1] == "fine"
