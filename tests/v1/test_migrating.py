"""`headrace migrate`: names that a program uses, and its imports."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace import cli
from headrace.errors import InvalidArgumentError
from headrace.v1 import migrating

pytestmark = pytest.mark.one_engine


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("import tensorflow as tf", "import headrace.v1 as tf"),
        ("import tensorflow", "import headrace.v1 as tensorflow"),
        ("import tensorflow.compat.v1 as tf", "import headrace.v1 as tf"),
        ("from tensorflow.compat import v1 as tf", "import headrace.v1 as tf"),
        ("from tensorflow import nn, layers as L", "from headrace.v1 import nn, layers as L"),
        ("import os, tensorflow as tf, sys", "import os; import headrace.v1 as tf; import sys"),
        ("import tensorflow.contrib.slim as slim", "from headrace.v1.contrib import slim"),
        ("import tensorflow.contrib.slim", "import headrace.v1 as tensorflow"),
        ("from tensorflow.contrib import rnn", "from headrace.v1.contrib import rnn"),
        ("from tensorflow.nn.rnn_cell import LSTMCell as C", "from headrace.v1.rnn_cell import LSTMCell as C"),
        ("from tensorflow.contrib.framework import (arg_scope,\n    add_arg_scope)",
         "from headrace.v1.contrib.framework import arg_scope, add_arg_scope"),
        ("if 1:\n    import tensorflow as tf; x = 1  # ü", "if 1:\n    import headrace.v1 as tf; x = 1  # ü"),
        ("from tensorflow.python.framework import ops", "from tensorflow.python.framework import ops"),
        ("import tensorflow.keras.backend as K", "import tensorflow.keras.backend as K"),
        ("import numpy as np, os", "import numpy as np, os"),
        ("from . import tensorflow", "from . import tensorflow"),
        ("from tensorflow import *", "from tensorflow import *"),
        ("import tensorflow_probability as tfp", "import tensorflow_probability as tfp"),
        ("import  numpy  as np  # as it is", "import  numpy  as np  # as it is"),
    ],
)  # fmt: skip
def test_imports(given: str, said: str) -> None:
    assert migrating.check(given).source == said
    assert migrating.check(f"x = 1\n{given}\ny = 2\n").source == f"x = 1\n{said}\ny = 2\n"


def test_missing_names_have_their_line_and_the_remedy() -> None:
    found = migrating.check(
        "import tensorflow as tf\n"
        "from tensorflow.python.ops import array_ops\n"
        "import tensorflow.contrib as contrib\n"
        "x = tf.zeros([2]); y = tf.train.AdamOptimizer(0.1).whatever\n"
        "def f():\n"
        "    return tf.zeros_lik(x), tf.keras.layers.Dense, tf.keras.Input, contrib.tpu.TPUEstimator\n"
        "tf.compat.v1.placeholder(tf.float32)\n"
        "other.tf.nonsense\n"
    )
    assert [(m.line, m.name) for m in found.missing] == [
        (2, "python"), (6, "contrib.tpu"), (6, "keras"), (6, "zeros_lik"),
    ]  # fmt: skip
    texts = {m.name: m.text for m in found.missing}
    assert texts["zeros_lik"] == "did you mean tf.zeros_like?"
    assert texts["keras"].startswith("Keras is a package of its own")
    assert texts["contrib.tpu"].startswith("use tf.device")
    assert texts["python"].startswith("the implementation of TensorFlow")
    assert found.used == (
        "contrib", "contrib.tpu.TPUEstimator", "float32", "keras.Input", "keras.layers.Dense", "placeholder",
        "python.ops.array_ops", "train.AdamOptimizer", "zeros", "zeros_lik",
    )  # fmt: skip


@pytest.mark.parametrize("text", ["def f(:", "x = '\0'", "print 'old'"])
def test_another_language_is_refused(text: str) -> None:
    with pytest.raises(InvalidArgumentError, match=r"p\.py is not a program of this Python"):
        migrating.check(text, "p.py")


PROGRAM = "import tensorflow as tf\r\n\r\nx = tf.zeros([2])\r\n"


def test_the_command_lists_and_writes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "sub").mkdir()
    good, bad = tmp_path / "good.py", tmp_path / "sub" / "bad.py"
    good.write_bytes(PROGRAM.encode())
    bad.write_text("import tensorflow as tf\ntf.zeros_lik\n")
    (tmp_path / "notes.txt").write_text("tf.")
    assert cli.main(["migrate", str(good)]) == 0
    assert capsys.readouterr().out == "1 names of TensorFlow, of which headrace.v1 lacks 0\n"
    assert good.read_bytes() == PROGRAM.encode()
    assert cli.main(["migrate", "--write", str(tmp_path)]) == 1
    assert capsys.readouterr().out.splitlines() == [
        f"{good}: imports headrace.v1",
        f"{bad}:2: tf.zeros_lik: did you mean tf.zeros_like?",
        f"{bad}: imports headrace.v1",
        "2 names of TensorFlow, of which headrace.v1 lacks 1",
    ]
    assert good.read_bytes() == PROGRAM.replace("tensorflow", "headrace.v1").encode()


def test_files_that_cannot_be_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wrong = tmp_path / "wrong.py"
    for content in (None, b"\xff\xfe", b"def f(:"):
        if content is not None:
            wrong.write_bytes(content)
        assert cli.main(["migrate", str(wrong)]) == 2
        said = capsys.readouterr().err
        assert "wrong.py" in said
        assert "fault of headrace" not in said
