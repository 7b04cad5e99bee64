"""Pipelines of `tf.data`: the recorded elements are TensorFlow's, and graphs with datasets are exchanged.

Each program runs both systems in one process.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

START = """
import json, os, sys
import numpy as np
import tensorflow
import headrace.v1 as ours
theirs = tensorflow.compat.v1
theirs.disable_eager_execution()
theirs.logging.set_verbosity(theirs.logging.ERROR)
sys.path.insert(0, os.getcwd())  # the working folder is headrace's
from tests.v1.pipelines.pipelines import write_files
from tests.v1.pipelines.running import elements
folder = {folder!r}
"""

RECORDED = """
def write(path, records):
    with theirs.python_io.TFRecordWriter(path) as writer:
        for record in records: writer.write(record)
write_files(folder, write)
recorded = json.load(open("tests/v1/pipelines/recorded.json"))
some = "shuffled_5 reshuffled_0 shuffled_and_repeated_1 sampled_1 grouped windowed_4 padded_structures zipped records"
for name in some.split():
    got = json.loads(json.dumps(elements(theirs, name, folder)))
    assert got == recorded[name], (name, got)
print("fine")
"""

GRAPHS = """
def graph(tf):
    with tf.Graph().as_default() as made:
        dataset = tf.data.Dataset.range(20).filter(lambda x: tf.equal(x % 2, 0))
        dataset = dataset.map(lambda x: (x, x * x)).shuffle(4, seed=3).repeat(2).batch(3)
        iterator = tf.data.make_initializable_iterator(dataset)
        for x, name in zip(iterator.get_next(), ("first", "second")):
            tf.identity(x, name=name)
        return made.as_graph_def().SerializeToString(), iterator.initializer.name

def run(tf, data, start):
    message = tf.GraphDef()
    message.ParseFromString(data)
    out = []
    with tf.Graph().as_default() as made, tf.Session() as sess:
        tf.import_graph_def(message, name="")
        sess.run(made.get_operation_by_name(start))
        while True:
            try:
                out.append([np.asarray(x).tolist() for x in sess.run(["first:0", "second:0"])])
            except tf.errors.OutOfRangeError:
                return out

for maker in (theirs, ours):
    made = graph(maker)
    mine, other = run(ours, *made), run(theirs, *made)
    assert len(mine) == 7
    assert mine == other, (mine, other)
print("fine")
"""


@pytest.mark.parametrize("program", ["RECORDED", "GRAPHS"])
def test_pipelines_are_as_in_tensorflow(program: str, run_python: Callable[[str], bytes], tmp_path: Path) -> None:
    text = START.format(folder=str(tmp_path)) + globals()[program]
    assert run_python(text).decode().split()[-1] == "fine"
