"""Pipelines of `tf.data`: the recorded elements are TensorFlow's, and graphs with datasets are exchanged."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import headrace.v1 as hr1
from tests.v1.pipelines.pipelines import write_files
from tests.v1.pipelines.running import elements

tf = pytest.importorskip("tensorflow.compat.v1")

RECORDED = Path(__file__).parents[1] / "v1" / "pipelines" / "recorded.json"
SOME = ("shuffled_5", "shuffled_and_repeated_1", "sampled_1", "grouped", "windowed_4", "padded_structures", "zipped")


def _write(path: str, records: list[bytes]) -> None:
    with tf.python_io.TFRecordWriter(path) as writer:
        for record in records:
            writer.write(record)


@pytest.mark.parametrize("name", SOME)
def test_recorded_elements_are_those_of_the_installed_tensorflow(name: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        write_files(folder, _write)
        got = json.loads(json.dumps(elements(tf, name, folder)))
    assert got == json.loads(RECORDED.read_text(encoding="utf-8"))[name]


def _graph(module: Any) -> Any:
    """Returns the GraphDef of a pipeline, built by `module`."""
    with module.Graph().as_default() as graph:
        dataset = module.data.Dataset.range(20).filter(lambda x: module.equal(x % 2, 0))
        dataset = dataset.map(lambda x: (x, x * x)).shuffle(4, seed=3).repeat(2).batch(3)
        iterator = module.data.make_initializable_iterator(dataset)
        first, second = iterator.get_next()
        module.identity(first, name="first")
        module.identity(second, name="second")
        start = module.group(iterator.initializer, name="start")
        return graph.as_graph_def(), start.name


def _elements(module: Any, data: bytes, start: str) -> list[Any]:
    message = module.GraphDef()
    message.ParseFromString(data)
    out = []
    with module.Graph().as_default() as graph, module.Session() as sess:
        module.import_graph_def(message, name="")
        sess.run(graph.get_operation_by_name(start))
        while True:
            try:
                out.append([np.asarray(x).tolist() for x in sess.run(["first:0", "second:0"])])
            except module.errors.OutOfRangeError:
                return out


@pytest.mark.parametrize("maker", ["tensorflow", "headrace"])
def test_a_graph_with_a_pipeline_runs_alike_in_both(maker: str) -> None:
    message, start = _graph(tf if maker == "tensorflow" else hr1)
    data = message.SerializeToString()
    mine, theirs = _elements(hr1, data, start), _elements(tf, data, start)
    assert len(mine) == 7
    assert mine == theirs
