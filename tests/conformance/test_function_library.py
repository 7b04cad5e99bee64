"""Graphs that own graphs, exported and run by TensorFlow."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from headrace.ir.serial.graphdef import export_graph_def
from tests.ir import functional

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

PROGRAM = """
import pickle
import tensorflow as tf
tf.compat.v1.disable_v2_behavior()
data, targets, fetches, feeds = pickle.load(open({given!r}, "rb"))
results = []
with tf.Graph().as_default() as graph:
    tf.import_graph_def(tf.compat.v1.GraphDef.FromString(data), name="")
    shapes = [graph.get_tensor_by_name(f).shape.as_list() for f in fetches]
    with tf.compat.v1.Session() as session:
        for feed in feeds:
            session.run(targets)
            results.append(session.run(fetches, feed))
with open({out!r}, "wb") as f:
    pickle.dump((shapes, results), f)
"""


@pytest.fixture
def run(run_python: Callable[[str], bytes], tmp_path: Path) -> Callable[..., Any]:
    """Runs a graph in TensorFlow.

    Returns the static shapes of the fetches, and for each feed their values.
    """

    def run(graph: Any, targets: list[str], fetches: list[str], feeds: list[dict[str, Any]]) -> Any:
        given, out = tmp_path / "given", tmp_path / "out"
        given.write_bytes(pickle.dumps((export_graph_def(graph).SerializeToString(), targets, fetches, feeds)))
        run_python(PROGRAM.format(given=str(given), out=str(out)))
        return pickle.loads(out.read_bytes())

    return run


def expected(x: np.ndarray, p: bool, n: int) -> np.ndarray:
    """The results of `functional.program`."""
    y = v = x * x * 3 if p else x
    for i in range(n):
        v = (v - 1, v * y, v)[i % 3]
        v = v + x if i < 2 else v
    return v


def test_conditionals_loops_and_calls(run: Callable[..., Any]) -> None:
    x = np.float32([1, 2])
    cases = [(True, 5), (False, 5), (True, 0)]
    shapes, results = run(
        functional.program(), [], ["out:0", "rows:1"], [{"x:0": x, "p:0": p, "n:0": n} for p, n in cases]
    )
    assert shapes == [[2], [None, 2]]
    for (p, n), (out, rows) in zip(cases, results, strict=True):
        np.testing.assert_allclose(out, expected(x, p, n), rtol=1e-6)
        np.testing.assert_array_equal(rows, [x] * 4)


def test_what_nobody_reads_runs(run: Callable[..., Any]) -> None:
    _, results = run(functional.counting(), ["init"], ["after:0"], [{"p:0": True}, {"p:0": False}])
    assert results == [[3.0], [1.0]]
