"""`tf.contrib.framework`: variables by scope, values of checkpoints; missing names; imports."""

from __future__ import annotations

import operator
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import headrace
import headrace.v1 as tf
from headrace.v1.contrib import equivalents

framework = tf.contrib.framework


@pytest.fixture(autouse=True)
def _fresh() -> None:
    tf.reset_default_graph()


def made() -> list[Any]:
    names = ("a/weights", "a/biases", "b/weights", "b/c/weights")
    return [framework.model_variable(n, [2], initializer=tf.ones_initializer()) for n in names]


def test_variables_by_scope_and_suffix() -> None:
    aw, ab, bw, bcw = made()
    hidden = framework.local_variable(0.0, name="a/counter")
    assert framework.get_variables() == [aw, ab, bw, bcw]
    assert framework.get_variables("b") == [bw, bcw]
    assert framework.get_variables(suffix="weights") == [aw, bw, bcw]
    assert framework.get_variables("a", "biases") == [ab]
    assert framework.get_variables_by_name("weights", "b") == [bw, bcw]
    assert framework.get_model_variables("a") == [aw, ab]
    assert framework.get_local_variables() == [hidden]
    assert framework.get_unique_variable("b/weights") is bw
    assert framework.get_variables_to_restore(["a", "b"], ["b/c"]) == [aw, ab, bw]
    assert framework.filter_variables(tf.global_variables(), ["weights"], ["^b"]) == [aw]
    with pytest.raises(ValueError, match="does not uniquely identify"):
        framework.get_unique_variable("c")
    with framework.arg_scope([framework.variable], device="/cpu:1"):
        assert framework.variable("d", [1]).device == "/device:CPU:1"


def test_values_of_checkpoints(tmp_path: Path) -> None:
    first, *_ = made()
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        first.load([5.0, 6.0], sess)
        path = tf.train.Saver().save(sess, str(tmp_path / "m"))
    tf.reset_default_graph()
    v = framework.variable("x/weights", [2])
    missing = framework.variable("new", [2], initializer=tf.zeros_initializer())
    assign, feeds = framework.assign_from_checkpoint(path, {"a/weights": v})
    restore = framework.assign_from_checkpoint_fn(path, {"b/weights": v, "new": missing}, ignore_missing_vars=True)
    given = framework.assign_from_values_fn({"new": [1.0, 2.0]})
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        sess.run(assign, feeds)
        assert sess.run(v).tolist() == [5.0, 6.0]
        restore(sess)
        given(sess)
        assert sess.run([v, missing])[0].tolist() == [1.0, 1.0]
        assert sess.run(missing).tolist() == [1.0, 2.0]
    with pytest.raises(ValueError, match=r"Checkpoint is missing variable \[new\]"):
        framework.assign_from_checkpoint(path, [missing])
    with pytest.raises(ValueError, match="the checkpoint has the shape"):
        framework.assign_from_checkpoint(path, {"a/weights": framework.variable("w3", [3])})


def test_nest() -> None:
    nest = framework.nest
    assert nest.pack_sequence_as((0, [0, 0]), [1, 2, 3]) == (1, [2, 3])
    assert nest.map_structure(lambda x, y: x + y, {"a": 1}, {"a": 2}) == {"a": 3}
    assert nest.is_sequence([1])
    assert not nest.is_sequence("ab")
    with pytest.raises(ValueError, match="don't have the same nested structure"):
        nest.assert_same_structure([1], [1, 2])
    with pytest.raises(ValueError, match="Structure had 2 atoms, but flat_sequence had 1"):
        nest.pack_sequence_as([0, 0], [1])


def test_a_missing_name_has_its_equivalent() -> None:
    with pytest.raises(AttributeError, match=r"no attribute 'keras'; use tf\.layers \(`headrace docs"):
        tf.contrib.keras
    with pytest.raises(AttributeError, match=r"no attribute 'GridLSTMCell'; use tf\.contrib\.rnn\.LSTMCell"):
        tf.contrib.rnn.GridLSTMCell
    with pytest.raises(AttributeError, match="did you mean fully_connected"):
        tf.contrib.layers.fuly_connected
    with pytest.raises(AttributeError, match="lists the names it has"):
        tf.contrib.layers.xyzzy
    assert not hasattr(tf.contrib, "tpu")


def test_no_name_with_an_equivalent_exists() -> None:
    for path in equivalents.INSTEAD:
        home, _, name = path.rpartition(".")
        assert name not in (getattr(tf.contrib, home) if home and home in tf.contrib.__all__ else tf.contrib).__all__


@pytest.mark.system
def test_the_modules_are_imported_on_first_use() -> None:
    code = (
        "import sys, headrace.v1 as tf\n"
        "there = lambda: [m for m in sys.modules if m.startswith('headrace.v1.contrib.')]\n"
        "print(there())\n"
        "tf.contrib.learn.ModeKeys\n"
        "print('headrace.v1.contrib.learn' in there(), 'headrace.v1.contrib.layers' in there())\n"
        "import headrace.v1.contrib.slim as slim\n"
        "from headrace.v1.contrib import layers\n"
        "print(slim.conv2d is layers.conv2d)\n"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60).stdout
    assert out.splitlines() == ["[]", "True False", "True"]


def test_every_name_exists() -> None:
    for module in tf.contrib.__all__:
        for name in getattr(tf.contrib, module).__all__:
            assert getattr(getattr(tf.contrib, module), name) is not None
    assert np.array(tf.contrib.__all__).size == 16


def test_equivalents_exist() -> None:
    """Names of `tf` and `headrace`, and pages of the documentation."""
    docs = Path(__file__).parents[3] / "docs"
    for instead in equivalents.INSTEAD.values():
        for root, name in re.findall(r"\b(tf|headrace)\.([a-zA-Z_]\w*(?:\.[a-zA-Z_]\w*)*)", instead):
            assert operator.attrgetter(name)(tf if root == "tf" else headrace) is not None
        for page in re.findall(r"`headrace docs ([\w/-]+)`", instead):
            assert (docs / f"{page}.md").exists(), page
