"""Small modules of TensorFlow 1: versions, texts, files, logs; and ops with one operation."""

from __future__ import annotations

import datetime
import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import headrace.v1 as tf


@pytest.fixture(autouse=True)
def _fresh() -> None:
    tf.reset_default_graph()


def run(t: Any) -> Any:
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        return sess.run(t)


def test_versions() -> None:
    assert tf.version.VERSION == tf.VERSION == tf.__version__
    assert (tf.version.GIT_VERSION, tf.version.COMPILER_VERSION) == (tf.GIT_VERSION, tf.COMPILER_VERSION)
    assert tf.get_default_graph().as_graph_def().versions.producer == tf.GRAPH_DEF_VERSION
    assert tf.sysconfig.get_build_info()["is_cuda_build"] is False
    with pytest.raises(AttributeError, match="ops are written in Python"):
        tf.sysconfig.get_include()


def test_texts() -> None:
    assert tf.compat.path_to_str(Path("a/b")) == "a/b"
    assert tf.compat.path_to_str("a") == "a"
    assert isinstance(np.int8(1), tf.compat.integral_types)
    assert isinstance(np.float32(1), tf.compat.real_types)
    assert isinstance(1j, tf.compat.complex_types)
    assert [isinstance(x, tf.compat.bytes_or_text_types) for x in ("a", b"a", 1)] == [True, True, False]
    assert tf.compat.dimension_at_index(tf.TensorShape([2]), 0).value == tf.compat.dimension_value(tf.Dimension(2)) == 2


def test_dates() -> None:
    later = datetime.date(2090, 1, 1)
    assert tf.compat.forward_compatible(2015, 1, 1)
    assert not tf.compat.forward_compatible(later.year, 1, 1)
    with tf.compat.forward_compatibility_horizon(later.year, 1, 2):
        assert tf.compat.forward_compatible(later.year, 1, 1)
    assert not tf.compat.forward_compatible(later.year, 1, 1)


def test_files_have_two_names(tmp_path: Path) -> None:
    path = tf.io.gfile.join(str(tmp_path), "a", "b.txt")
    tf.io.gfile.makedirs(str(tmp_path / "a"))
    with tf.io.gfile.GFile(path, "w") as f:
        f.write("x")
    assert (tf.io.gfile.exists(path), tf.io.gfile.isdir(path), tf.io.gfile.stat(path).length) == (True, False, 1)
    tf.io.gfile.copy(path, f"{path}2")
    tf.io.gfile.rename(f"{path}2", f"{path}3")
    assert tf.io.gfile.listdir(str(tmp_path / "a")) == ["b.txt", "b.txt3"]
    assert tf.io.gfile.glob(f"{path}*") == [path, f"{path}3"]
    tf.io.gfile.remove(path)
    tf.io.gfile.mkdir(str(tmp_path / "c"))
    assert next(tf.io.gfile.walk(str(tmp_path))) == (str(tmp_path), ["a", "c"], [])
    tf.io.gfile.rmtree(str(tmp_path / "a"))
    assert not tf.io.gfile.exists(str(tmp_path / "a"))
    assert tf.io.gfile.get_registered_schemes() == [""]


def test_resources_are_next_to_the_program() -> None:
    folder = str(Path(__file__).parent)
    assert tf.resource_loader.get_data_files_path() == tf.resource_loader.get_root_dir_with_all_resources() == folder
    assert tf.resource_loader.get_path_to_datafile("a/b") == f"{folder}/a/b"
    assert tf.resource_loader.load_resource("__init__.py") == (Path(folder) / "__init__.py").read_bytes()
    assert tf.resource_loader.readahead_file_path("/a") == "/a"
    with pytest.raises(tf.errors.NotFoundError):
        tf.resource_loader.load_resource("missing")


@pytest.mark.one_engine  # the numbers of calls are those of the process
def test_logs(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "headrace"):
        for i in range(5):
            tf.logging.log_every_n(tf.logging.INFO, "every %d", 2, i)
            tf.logging.log_first_n(tf.logging.INFO, "first %d", 2, i)
            tf.logging.log_if(tf.logging.INFO, "if %d", i == 3, i)
        tf.logging.TaskLevelStatusMessage("status")
        tf.logging.flush()
    assert caplog.messages == ["every 0", "first 0", "first 1", "every 2", "if 3", "every 4", "status"]
    assert tf.get_logger().name == "headrace"


def test_codes_of_errors() -> None:
    assert tf.errors.error_code_from_exception_type(tf.errors.NotFoundError) == tf.errors.NOT_FOUND
    with pytest.raises(KeyError, match="has no code"):
        tf.errors.error_code_from_exception_type(ValueError)


def test_aliases() -> None:
    assert tf.train.queue_runner.QueueRunner is tf.train.QueueRunner
    assert tf.initializers.tables_initializer is tf.tables_initializer
    assert tf.io.serialize_sparse is tf.serialize_sparse
    assert tf.mixed_precision.LossScale is tf.train.experimental.LossScale
    assert tf.random.experimental.Generator is tf.random.Generator
    assert tf.raw_ops.AddV2(x=tf.constant(1), y=tf.constant(2)).op.type == "AddV2"


def test_an_optimizer_has_a_loss_scale() -> None:
    made = tf.mixed_precision.enable_mixed_precision_graph_rewrite(tf.train.GradientDescentOptimizer(0.1), 8.0)
    assert isinstance(made, tf.mixed_precision.MixedPrecisionLossScaleOptimizer)
    v = tf.Variable(1.0)
    step = made.minimize(v * 3.0)
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        sess.run(step)
        assert sess.run(v) == pytest.approx(0.7)


def test_ops_have_tensorflows_values() -> None:
    shuffled = tf.random_index_shuffle(tf.range(6), tf.constant([1, 2, 3], tf.uint32), 5, rounds=4)
    dropped = tf.nn.experimental.stateless_dropout(tf.ones([8]), 0.5, [1, 2])
    drawn = lambda shape, dtype: tf.constant([0.1, 0.25, 0.3, 0.9], dtype)
    general = tf.nn.experimental.general_dropout(tf.ones([4]), 0.25, drawn)
    values = run(
        {
            "shuffled": shuffled,
            "order": tf.random.experimental.stateless_shuffle([1, 2, 3, 4, 5], [1, 2]),
            "product": tf.sparse_matmul([[1.0, 2.0]], [[3.0], [4.0]]),
            "hash": tf.fingerprint([b"a"]),
            "dropped": dropped,
            "general": general,
            "average": tf.nn.compute_average_loss([1.0, 2.0, 3.0], [1.0, 0.0, 1.0], 4),
            "mean": tf.nn.compute_average_loss([1.0, 2.0, 3.0]),
            "sum": tf.nn.scale_regularization_loss([1.0, 2.0]),
            "map": tf.vectorized_map(lambda x: x * x + 1, tf.constant([1.0, 2.0, 3.0])),
        }
    )
    assert values["shuffled"].tolist() == [2, 0, 3, 4, 5, 1]
    assert values["order"].tolist() == [1, 3, 2, 5, 4]
    assert values["product"].tolist() == [[11]]
    assert values["hash"].tolist() == [[227, 117, 223, 182, 101, 66, 69, 179]]
    assert values["dropped"].tolist() == [2, 0, 2, 0, 0, 2, 0, 0]
    assert values["general"].tolist() == pytest.approx([0, 4 / 3, 4 / 3, 4 / 3])
    assert [values[k] for k in ("average", "mean", "sum")] == [1, 2, 3]
    assert values["map"].tolist() == [2, 5, 10]
    with pytest.raises(ValueError, match="must be a scalar tensor or a float in the range"):
        tf.nn.experimental.general_dropout(tf.ones([4]), 1.5, drawn)


def test_slices_and_batches_are_scattered() -> None:
    v = tf.Variable([1, 2, 3, 4])
    changed = tf.scatter_nd_update(v, [[0], [3]], [9, 8])
    with tf.control_dependencies([changed]):
        changed = tf.scatter_nd_add(v, [[1]], [10])
    with tf.control_dependencies([changed]):
        changed = tf.scatter_nd_sub(v, [[2]], [1])
    assert run(changed).tolist() == [9, 12, 2, 8]
    matrix = tf.Variable([[1, 2, 3], [4, 5, 6]])
    assert run(tf.batch_scatter_update(matrix, [[0, 1], [2, 0]], [[9, 8], [7, 6]])).tolist() == [[9, 8, 3], [6, 5, 7]]
    rows = tf.Variable(tf.zeros([2, 3, 2], tf.int32))
    delta = tf.IndexedSlices(tf.constant([[[9, 8]], [[7, 6]]]), tf.constant([[0], [2]]))
    assert run(rows.batch_scatter_update(delta)).tolist() == [[[9, 8], [0, 0], [0, 0]], [[0, 0], [0, 0], [7, 6]]]
    assert run(v.scatter_nd_update([[1]], [0])).tolist() == [1, 0, 3, 4]
    v.set_shape([4])
    with pytest.raises(ValueError, match="are incompatible"):
        v.set_shape([5])


def test_floats_of_a_graph_are_checked() -> None:
    x = tf.placeholder(tf.float32, [])
    tf.log(x, name="log")
    check = tf.add_check_numerics_ops()
    with tf.Session() as sess:
        sess.run(check, {x: 1.0})
        with pytest.raises(tf.errors.InvalidArgumentError, match="log:0 : Tensor had Inf"):
            sess.run(check, {x: 0.0})
    tf.while_loop(lambda y: y < 3.0, lambda y: y + 1.0, [x])
    with pytest.raises(ValueError, match="not compatible with conditionals and loops"):
        tf.add_check_numerics_ops()


def test_symbolic_tensors() -> None:
    found = [tf.is_symbolic_tensor(x) for x in (tf.constant(1), tf.SparseTensor([[0]], [1], [2]), 1, np.zeros(2))]
    assert found == [True, True, False, False]
