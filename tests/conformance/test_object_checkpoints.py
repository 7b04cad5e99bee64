"""Object-based checkpoints go both ways between headrace and TensorFlow, with slots, containers and states."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import headrace.v1 as tf

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

# Builds objects with the library `tf`: those of factor 1 are trained by a step and saved, those of 0 restored.
OBJECTS = """
def build(tf, factor):
    class State(tf.train.experimental.PythonState):
        text = b"first" if not factor else b"saved"

        def serialize(self):
            return self.text

        def deserialize(self, string_value):
            self.text = string_value

    class Model(tf.Module):
        def __init__(self):
            super().__init__()
            self.w = tf.Variable([1.0 * factor, 2.0 * factor], name="w")
            self.items = [tf.Variable(3.0 * factor, name="i0"), tf.Variable(4.0 * factor, name="i1")]
            self.d = {"a.b": tf.Variable(5.0 * factor, name="da")}
            self.t = (tf.Variable(6.0 * factor, name="t0"),)

    model, opt = Model(), tf.train.AdamOptimizer(0.1)
    step = opt.minimize(tf.reduce_sum(model.w))
    count = tf.Variable(int(7 * factor), name="step")
    return tf.train.Checkpoint(model=model, opt=opt, step=count, py=State()), step


def write(tf, prefix):
    with tf.Graph().as_default(), tf.Session() as session:
        checkpoint, step = build(tf, 1.0)
        session.run(tf.global_variables_initializer())
        session.run(step)
        checkpoint.save(prefix, session=session)
        return checkpoint.save(prefix, session=session)


def read(tf, path):
    with tf.Graph().as_default(), tf.Session() as session:
        checkpoint, _ = build(tf, 0.0)
        status = checkpoint.restore(path)
        status.assert_consumed()
        status.run_restore_ops(session=session)
        variables = [*checkpoint.model.variables, *checkpoint.opt.variables(), checkpoint.step, checkpoint.save_counter]
        values = [v.tolist() for v in session.run(variables)]
        return [v.op.name for v in variables], values, checkpoint.py.text.decode()
"""
HERE: dict[str, Any] = {}
exec(compile(OBJECTS, "objects", "exec"), HERE)

VALUES = [5.0, 3.0, 4.0, 6.0, [0.9, 1.9], 0.81, 0.998001, [0.1, 0.1], [0.001, 0.001], 7, 2]
NAMES = ["da", "i0", "i1", "t0", "w", "beta1_power", "beta2_power", "w/Adam", "w/Adam_1", "step", "save_counter"]


@pytest.mark.parametrize("writer", ["headrace", "tensorflow"])
@pytest.mark.parametrize("reader", ["headrace", "tensorflow"])
def test_each_reads_what_the_other_writes(
    writer: str, reader: str, tmp_path: Path, run_python: Callable[[str], bytes]
) -> None:
    def foreign(call: str) -> Any:
        text = f"import json\nimport tensorflow.compat.v1 as tf\n{OBJECTS}\nprint(json.dumps({call}))"
        return json.loads(run_python(text).splitlines()[-1])

    prefix = str(tmp_path / "m")
    path = HERE["write"](tf, prefix) if writer == "headrace" else foreign(f"write(tf, {prefix!r})")
    names, values, text = HERE["read"](tf, path) if reader == "headrace" else foreign(f"read(tf, {path!r})")
    assert (names, text) == (NAMES, "saved")
    for found, wanted in zip(values, VALUES, strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-4)
