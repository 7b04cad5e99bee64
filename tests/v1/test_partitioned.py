"""Partitioned variables: their partition, names, reuse, initialization, use, training and saving."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import headrace as hr
import headrace.v1 as tf
from headrace.api.partitioned import PartitionedVariable
from headrace.errors import InvalidArgumentError, NotFoundError
from headrace.files import checkpoints
from headrace.v1.partitioned import PartitionInfo

by = tf.fixed_size_partitioner


@pytest.fixture(autouse=True)
def graph() -> Iterator[tf.Graph]:
    with tf.Graph().as_default() as g:
        yield g


def count(shape: list[int], **_: Any) -> np.ndarray:
    return np.arange(np.prod(shape), dtype=np.float32).reshape(shape)


def run(*wanted: Any) -> list[Any]:
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        return sess.run(list(wanted))


# *** how they are cut ***


@pytest.mark.parametrize(
    ("shape", "partitions", "parts"),
    [
        ([7, 2], [3, 1], [(3, 2), (2, 2), (2, 2)]),
        ([2, 5], [1, 2], [(2, 3), (2, 2)]),
        ([4], [4], [(1,), (1,), (1,), (1,)]),
        ([4, 2], [1, 1], [(4, 2)]),
        ([2, 3], [3, 1], [(1, 3), (1, 3), (0, 3)]),
    ],
)
def test_the_first_parts_are_larger(shape: list[int], partitions: list[int], parts: list[tuple[int, ...]]) -> None:
    w = tf.get_variable("w", shape, partitioner=lambda shape, dtype: partitions)
    assert isinstance(w, PartitionedVariable)
    assert [v.shape for v in w] == parts
    assert [v.name for v in w] == [f"w/part_{i}:0" for i in range(len(parts))]
    assert len(w) == len(parts)
    assert (w.name, w.shape, w.dtype, w._get_partitions()) == ("w", tuple(shape), tf.float32, partitions)
    assert w.get_shape().as_list() == shape
    axis = w.axis
    starts = np.cumsum([0, *(p[axis] for p in parts)])[:-1].tolist()
    assert [list(v.save_slice_info.var_offset)[axis] for v in w] == starts
    assert tf.trainable_variables() == list(w) == tf.global_variables()


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        ([2], "rank"),
        ([2, 2], "one dimension"),
        ([0, 1], "zero partitions"),
        (3, "sequence"),
        ("21", "sequence"),
    ],
)
def test_what_a_partitioner_must_not_say(answer: Any, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        tf.get_variable("w", [4, 4], partitioner=lambda shape, dtype: answer)


def test_what_cannot_be_cut() -> None:
    with pytest.raises(ValueError, match="callable"):
        tf.get_variable("w", [4], partitioner=[2])
    with pytest.raises(ValueError, match="fully defined"):
        tf.get_variable("w", [None, 2], partitioner=by(2))
    with pytest.raises(ValueError, match="fully defined"):
        tf.get_variable("w", initializer=1.0, partitioner=by(2))
    with pytest.raises(IndexError, match="no axis 1"):
        tf.get_variable("w", [4], partitioner=by(2, axis=1))
    with pytest.raises(ValueError, match="axis 1"):
        tf.get_variable("w", [4], partitioner=tf.min_max_variable_partitioner(2, axis=1))
    with pytest.raises(IndexError, match="no axis 1"):
        tf.get_variable("w", [4], partitioner=tf.variable_axis_size_partitioner(2, axis=1))
    assert isinstance(tf.get_variable("scalar", [], partitioner=by(2)), tf.Variable)


def test_partitioners() -> None:
    shape = tf.TensorShape([10, 6])
    assert by(4)(shape=shape) == [4, 1]
    assert by(100, axis=-1)(shape=shape, dtype=tf.int8) == [1, 6]
    size = tf.variable_axis_size_partitioner
    assert size(48)(shape, tf.float32) == [5, 1]  # two rows of 24 bytes
    assert size(1)(shape, tf.float32) == [10, 1]
    assert size(1, max_shards=3)(shape, tf.float32) == [3, 1]
    assert size(80, axis=1)(shape, tf.float64) == [1, 6]
    assert size(80, axis=1, bytes_per_string_element=2)(shape, tf.string) == [1, 2]
    assert size(8)(tf.TensorShape([3, 0]), tf.float32) == [1, 1]
    for bad in ({"max_shard_bytes": 0}, {"max_shard_bytes": 1, "bytes_per_string_element": 0},
                {"max_shard_bytes": 1, "max_shards": 0}):  # fmt: skip
        with pytest.raises(ValueError, match="positive"):
            size(**bad)
    with pytest.raises(ValueError, match="not a TensorShape"):
        size(8)([3], tf.float32)
    least = tf.min_max_variable_partitioner
    assert least(16, min_slice_size=60)(shape, tf.float32) == [4, 1]
    assert least(3, min_slice_size=60)(shape, tf.float32) == [3, 1]
    assert least(16, min_slice_size=1, axis=1)(shape, tf.float32) == [1, 6]
    assert least(16)(shape, tf.float32) == [1, 1]
    assert least(16, min_slice_size=160)(shape, tf.string) == [6, 1]


def test_scopes_hand_partitioners_down() -> None:
    with tf.variable_scope("a", partitioner=by(2)) as scope:
        assert scope.partitioner is not None
        with tf.variable_scope("b"):
            w = tf.get_variable("w", [4])
        with tf.variable_scope("c", partitioner=by(3)):
            x = tf.get_variable("w", [4])
        scope.set_partitioner(None)
        y = tf.get_variable("w", [4])
    assert [v.name for v in (*w, *x)] == [
        "a/b/w/part_0:0", "a/b/w/part_1:0", "a/c/w/part_0:0", "a/c/w/part_1:0", "a/c/w/part_2:0",
    ]  # fmt: skip
    assert isinstance(y, tf.Variable)
    assert (w.name, x.name) == ("a/b/w", "a/c/w")


# *** found again ***


def test_reuse() -> None:
    with tf.variable_scope("s"):
        w = tf.get_variable("w", [4, 2], partitioner=by(2))
        with pytest.raises(ValueError, match="already exists"):
            tf.get_variable("w", [4, 2], partitioner=by(2))
        with pytest.raises(ValueError, match="No partitioner was provided"):
            tf.get_variable("w", [4, 2])
    for reuse in (True, tf.AUTO_REUSE):
        with tf.variable_scope("s", reuse=reuse):
            assert tf.get_variable("w", [4, 2], partitioner=by(2)) is w
            for shape, dtype, n, says in (
                ([5, 2], tf.float32, 2, "shape"),
                ([4, 2], tf.float64, 2, "dtype"),
                ([4, 2], tf.float32, 3, "partitions"),
            ):
                with pytest.raises(ValueError, match=f"specified {says}"):
                    tf.get_variable("w", shape, dtype, partitioner=by(n))
            assert tf.get_variable("w/part_1", [2, 2]) is list(w)[1]
    with tf.variable_scope("s", reuse=True):
        assert tf.get_variable("w") is w
        with pytest.raises(ValueError, match="does not exist"):
            tf.get_variable("x", [4, 2], partitioner=by(2))
    tf.get_variable("one", [4])
    with pytest.raises(ValueError, match="unpartitioned version"):
        tf.get_variable("one", [4], partitioner=by(2))


def test_custom_getters_are_told() -> None:
    seen = []

    def getter(get: Any, name: str, *args: Any, **kwargs: Any) -> Any:
        seen.append((name, kwargs["partitioner"]))
        return get(name, *args, **kwargs)

    two = by(2)
    with tf.variable_scope("s", custom_getter=getter, partitioner=two):
        w = tf.get_variable("w", [4])
    assert seen == [("s/w", two)]
    assert len(w) == 2


def test_create_partitioned_variables() -> None:
    parts = tf.create_partitioned_variables([4, 3], [1, 2], tf.zeros_initializer(), name="w")
    assert [(v.name, v.shape) for v in parts] == [("w/part_0:0", (4, 2)), ("w/part_1:0", (4, 1))]
    assert tf.create_partitioned_variables([4, 3], [1, 2], tf.zeros_initializer(), name="w", reuse=True) == parts
    names = [tf.create_partitioned_variables([2], [1], tf.constant([1.0, 2.0]))[0].name for _ in range(2)]
    assert names == ["PartitionedVariable/part_0:0", "PartitionedVariable_1/part_0:0"]
    with pytest.raises(ValueError, match="length"):
        tf.create_partitioned_variables([4, 3], [2], tf.zeros_initializer())
    with pytest.raises(ValueError, match="rank"):
        tf.create_partitioned_variables([], [], tf.zeros_initializer())


# *** first values ***


def test_initializers_are_called_for_each_part() -> None:
    told = []

    def knows(shape: Any, dtype: Any = None, partition_info: Any = None) -> Any:
        told.append((shape, dtype, partition_info))
        return tf.fill(shape, float(partition_info.single_offset(shape)))

    w = tf.get_variable("w", [5], initializer=knows, partitioner=by(2))
    x = tf.get_variable("x", [5], initializer=count, partitioner=by(2))
    one = tf.get_variable("one", [1], initializer=lambda shape, dtype, partition_info: [float(partition_info is None)])
    got = run(tf.convert_to_tensor(w), tf.convert_to_tensor(x), one)
    assert [g.tolist() for g in got] == [[0, 0, 0, 3, 3], [0, 1, 2, 0, 1], [1]]
    first, second = [t for t in told if t[2] is not None][:2]
    assert first == ([3], tf.float32, PartitionInfo([5], [0]))
    assert second == ([2], tf.float32, PartitionInfo([5], [3]))


def test_values_are_cut() -> None:
    value = np.arange(10, dtype=np.float32).reshape(5, 2)
    w = tf.get_variable("w", [5, 2], initializer=value, partitioner=by(2))
    x = tf.get_variable("x", initializer=tf.constant(value.astype(np.float64)), partitioner=by(2, axis=1))
    assert x.dtype is tf.float64
    got = run(*w, *x, w.as_tensor())
    assert [g.tolist() for g in got[:2]] == [value[:3].tolist(), value[3:].tolist()]
    assert [g.tolist() for g in got[2:4]] == [value[:, :1].tolist(), value[:, 1:].tolist()]
    assert got[4].tolist() == value.tolist()


def test_initializers_scale_by_the_whole() -> None:
    with tf.variable_scope("s", partitioner=by(4)):
        g = tf.get_variable("g", [400, 100])
        u = tf.get_variable("u", [400, 100], initializer=tf.uniform_unit_scaling_initializer())
        i = tf.get_variable("i", [6, 5], initializer=tf.initializers.identity(2.0))
    got_g, got_u, got_i = run(g.as_tensor(), u.as_tensor(), i.as_tensor())
    assert np.abs(got_g).max() == pytest.approx((6 / 500) ** 0.5, rel=1e-3)
    assert np.abs(got_u).max() == pytest.approx((3 / 400) ** 0.5, rel=1e-3)
    assert got_i.tolist() == (2 * np.eye(6, 5)).tolist()


def test_partition_info() -> None:
    info = PartitionInfo([4, 6], [0, 2])
    assert (info.single_slice_dim([4, 3]), info.single_offset([4, 3])) == (1, 2)
    assert PartitionInfo([4], [0]).single_offset([4]) == 0
    for bad, says in (([4], "none of"), ([4, 5], "exceeds"), ([3, 3], "2 axes")):
        with pytest.raises(ValueError, match=says):
            info.single_slice_dim(bad)


# *** used ***


def test_it_stands_for_the_whole() -> None:
    w = tf.get_variable("w", [4, 3], initializer=count, partitioner=by(2))
    whole = np.concatenate([count([2, 3])] * 2)
    t = tf.convert_to_tensor(w)
    assert (t.name, t.shape) == ("w:0", (4, 3))
    x = np.float32([[1, 2, 3, 4]])
    got = run(tf.matmul(x, w), tf.concat([w, w], 1), tf.gather(w, [3, 0]), t * 2.0)
    want = [x @ whole, np.concatenate([whole, whole], 1), whole[[3, 0]], whole * 2]
    assert all(a.tolist() == b.tolist() for a, b in zip(got, want, strict=True))


def test_assign() -> None:
    w = tf.get_variable("w", [5, 2], initializer=tf.zeros_initializer(), partitioner=by(2))
    other = tf.get_variable("other", [5, 2], initializer=count, partitioner=by(2))
    value = np.arange(10, dtype=np.float32).reshape(5, 2)
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        assert [x.tolist() for x in sess.run(w.assign(value))] == [value[:3].tolist(), value[3:].tolist()]
        sess.run(w.assign_add(value, read_value=False))
        sess.run(tf.assign_sub(w, np.ones([5, 2])))
        assert sess.run(w.as_tensor()).tolist() == (2 * value - 1).tolist()
        sess.run(w.assign([value[:3], value[3:]]))
        sess.run(tf.assign_add(w, other))
        assert sess.run(w.as_tensor()).tolist() == (value + np.concatenate([count([3, 2]), count([2, 2])])).tolist()
    with pytest.raises(ValueError, match="2 parts, got 3 values"):
        w.assign([1, 2, 3])
    with pytest.raises(ValueError, match=r"shape|size"):
        w.assign(np.zeros([6, 2], np.float32))
    with pytest.raises(TypeError, match="takes a variable"):
        tf.scatter_update(w, [0], [[1.0, 2.0]])


def test_what_makes_no_partitioned_variable() -> None:
    w = tf.get_variable("w", [4], partitioner=by(2))
    plain = tf.get_variable("plain", [4])
    for arguments, kind in (
        (([4], tf.float32, tuple(w), 2), TypeError), (([4], tf.float32, set(w), [2]), TypeError),
        (([4], tf.float32, [], [2]), ValueError), (([4], tf.float32, [plain], [1]), ValueError),
        (([5], tf.float32, list(w), [2]), ValueError), (([4], tf.float32, list(w), [2, 1]), ValueError),
        (([4], tf.float32, list(w), [0]), ValueError),
    ):  # fmt: skip
        with pytest.raises(kind):
            PartitionedVariable("w", *arguments)
    backwards = PartitionedVariable("w", [4], tf.float32, list(w)[::-1], [2])
    assert list(backwards) == list(w)


def test_a_whole_cut_along_two_axes_has_no_tensor() -> None:
    w = tf.get_variable("w", [4, 2], partitioner=by(2))
    odd = PartitionedVariable("w", [4, 2], tf.float32, list(w), [2, 2])
    with pytest.raises(NotImplementedError, match="2 axes"):
        odd.as_tensor()
    with pytest.raises(NotImplementedError, match="2 axes"):
        odd.assign(np.zeros([4, 2], np.float32))


@pytest.mark.parametrize("strategy", ["mod", "div"])
def test_embeddings(strategy: str) -> None:
    table = np.arange(14, dtype=np.float32).reshape(7, 2)
    rows = [i for k in range(3) for i in range(k, 7, 3)] if strategy == "mod" else list(range(7))
    w = tf.get_variable("w", [7, 2], initializer=table[rows], partitioner=by(3))
    ids = [[0, 3], [6, 6]]
    found = tf.nn.embedding_lookup(w, ids, partition_strategy=strategy)
    same = tf.nn.embedding_lookup(list(w), ids, partition_strategy=strategy)
    sparse = tf.SparseTensor([[0, 0], [0, 1], [1, 0]], tf.constant([0, 3, 6], tf.int64), [2, 2])
    summed = tf.nn.embedding_lookup_sparse(w, sparse, None, strategy, combiner="sum")
    safe = tf.nn.safe_embedding_lookup_sparse(w, sparse, combiner="sum", partition_strategy=strategy)
    grads = tf.gradients(found, list(w))
    got = run(found, same, summed, safe, *(tf.convert_to_tensor(g) for g in grads))
    assert got[0].tolist() == got[1].tolist() == table[ids].tolist()
    assert got[2].tolist() == got[3].tolist() == [(table[0] + table[3]).tolist(), table[6].tolist()]
    by_row = np.zeros((7, 2), np.float32)
    np.add.at(by_row, np.ravel(ids), 1.0)
    assert np.concatenate(got[4:]).tolist() == by_row[rows].tolist()


def test_sampled_losses_take_parts() -> None:
    weights = tf.get_variable("w", [6, 3], partitioner=by(2))
    biases = tf.get_variable("b", [6], partitioner=by(2))
    drawn = ([1, 4], [[0.5], [0.5]], [0.3, 0.3])
    given = [[0], [5]], tf.ones([2, 3]), 2, 6, 1, drawn
    cut = tf.nn.nce_loss(weights, biases, *given, partition_strategy="div")
    whole = tf.nn.nce_loss(weights.as_tensor(), biases.as_tensor(), *given)
    got, want = run(cut, whole)
    np.testing.assert_allclose(got, want, rtol=1e-6)


# *** layers ***


def test_layers_pass_partitioners_on() -> None:
    def loss(w: Any) -> Any:
        return tf.reduce_sum(w * w)

    with tf.variable_scope("net", partitioner=by(2)):
        dense = tf.layers.Dense(4, kernel_initializer=count, kernel_regularizer=loss)
        y = dense(tf.ones([2, 3]))
        z = tf.layers.batch_normalization(y, training=True)
    assert [v.name for v in tf.trainable_variables()] == [
        f"net/{n}/part_{i}:0"
        for n in ("dense/kernel", "dense/bias", "batch_normalization/gamma", "batch_normalization/beta")
        for i in range(2)
    ]
    assert isinstance(dense.kernel, PartitionedVariable)
    assert dense.trainable_variables == tf.trainable_variables()[:4]
    assert len(dense.losses) == len(tf.get_collection(tf.GraphKeys.REGULARIZATION_LOSSES)) == 2
    moving = [v.name for v in tf.global_variables() if not v.trainable]
    assert moving == ["net/batch_normalization/moving_mean:0", "net/batch_normalization/moving_variance:0"]
    got_y, kernel, got_z = run(y, dense.kernel.as_tensor(), z)
    assert got_y.tolist() == (np.ones([2, 3]) @ kernel).tolist()
    assert np.isfinite(got_z).all()


def test_weights_of_own_layers_can_be_cut() -> None:
    class Scale(tf.layers.Layer):
        def build(self, input_shape: Any) -> None:
            self.cut = self.add_weight("cut", [3], partitioner=by(3))
            self.whole = self.add_weight("whole", [3])

        def call(self, inputs: Any) -> Any:
            return inputs * self.cut + self.whole

    layer = Scale()
    layer(tf.ones([2, 3]))
    assert [v.name for v in layer.trainable_variables] == [
        "scale/cut/part_0:0", "scale/cut/part_1:0", "scale/cut/part_2:0", "scale/whole:0"
    ]  # fmt: skip


def test_cells_of_networks_can_be_cut() -> None:
    x = tf.constant(np.ones([2, 3, 4], np.float32))
    cell = tf.nn.rnn_cell.LSTMCell(5, num_unit_shards=2, num_proj=3, num_proj_shards=1)
    out, _ = tf.nn.dynamic_rnn(cell, x, dtype=tf.float32)
    assert [v.name.removeprefix("rnn/lstm_cell/") for v in tf.global_variables()] == [
        "kernel/part_0:0", "kernel/part_1:0", "bias:0", "projection/kernel/part_0:0"
    ]  # fmt: skip
    with tf.variable_scope("all", partitioner=by(2)):
        other, _ = tf.nn.dynamic_rnn(tf.nn.rnn_cell.GRUCell(3), x, dtype=tf.float32)
    assert len(tf.global_variables("all")) == 8
    loss = tf.reduce_sum(out) + tf.reduce_sum(other)
    grads = tf.gradients(loss, tf.trainable_variables())
    assert all(np.isfinite(g).all() for g in run(*grads))


# *** trained and saved ***


def trained(cut: bool, steps: int, optimizer: Any) -> tuple[list[str], Any]:
    with tf.Graph().as_default(), tf.Session() as sess:
        w = tf.get_variable("w", [5, 2], initializer=np.float32(count([5, 2])) if cut else count,
                            partitioner=by(2) if cut else None)  # fmt: skip
        whole = tf.convert_to_tensor(w)
        train = optimizer().minimize(tf.reduce_sum(tf.square(whole - 1.0)))
        sess.run(tf.global_variables_initializer())
        for _ in range(steps):
            sess.run(train)
        return [v.name for v in tf.global_variables()], sess.run(whole)


@pytest.mark.parametrize(
    ("make", "slots"),
    [
        (lambda: tf.train.GradientDescentOptimizer(0.1), []),
        (lambda: tf.train.AdamOptimizer(0.1), ["Adam", "Adam_1"]),
        (lambda: tf.train.MomentumOptimizer(0.1, 0.9), ["Momentum"]),
        (lambda: tf.train.RMSPropOptimizer(0.1), ["RMSProp", "RMSProp_1"]),
        (lambda: tf.train.FtrlOptimizer(0.1), ["Ftrl", "Ftrl_1"]),
    ],
)
def test_parts_train_as_the_whole_does(make: Any, slots: list[str]) -> None:
    names, got = trained(True, 4, make)
    _, want = trained(False, 4, make)
    np.testing.assert_allclose(got, want, rtol=1e-6)
    assert [n for n in names if "part" in n][2:] == [f"w/part_{i}/{slot}:0" for i in range(2) for slot in slots]


def model(n: int | None, axis: int = 0) -> tuple[Any, Any]:
    w = tf.get_variable("w", [5, 4], initializer=tf.random_normal_initializer(),
                        partitioner=None if n is None else by(n, axis))  # fmt: skip
    average = tf.train.ExponentialMovingAverage(0.5)
    with tf.control_dependencies([tf.train.AdamOptimizer().minimize(tf.reduce_sum(tf.sin(w)))]):
        return w, average.apply(list(w) if n is not None else [w])


@pytest.mark.parametrize("format", ["tensorflow", "native"])
@pytest.mark.parametrize(("n", "axis"), [(None, 0), (3, 0), (2, 0), (4, 1)])
def test_a_checkpoint_of_parts_is_one_of_wholes(tmp_path: Path, format: str, n: int | None, axis: int) -> None:
    whole_names = ["w", "w/Adam", "w/Adam_1", "w/ExponentialMovingAverage"]
    with tf.Graph().as_default(), tf.Session() as sess:
        w, train = model(3)
        sess.run(tf.global_variables_initializer())
        sess.run(train)
        saver = tf.train.Saver(format=format)
        path = saver.save(sess, str(tmp_path / "m"))
        want = sess.run(w.as_tensor())
    assert [name for name, shape in tf.train.list_variables(path) if shape == [5, 4]] == whole_names
    assert tf.train.load_variable(path, "w").tolist() == want.tolist()
    with tf.Graph().as_default(), tf.Session() as sess:
        w, train = model(n, axis)
        tf.train.Saver().restore(sess, path)
        assert sess.run(tf.convert_to_tensor(w)).tolist() == want.tolist()
        slots = [v for v in tf.global_variables() if v.name.endswith("/Adam_1:0")]
        joined = np.concatenate(sess.run(slots), axis)
        assert joined.tolist() == tf.train.load_variable(path, "w/Adam_1").tolist()
        sess.run(train)


def test_savers_take_wholes(tmp_path: Path) -> None:
    w = tf.get_variable("w", [4], initializer=count, partitioner=by(2))
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        for given, name in (([w], "w"), ({"x": w}, "x"), ({"x": list(w)}, "x")):
            path = tf.train.Saver(given).save(sess, str(tmp_path / "m"))
            assert tf.train.list_variables(path) == [(name, [4])]
    with pytest.raises(ValueError, match="same name"):
        tf.train.Saver([w, *w])


def test_init_from_checkpoint(tmp_path: Path) -> None:
    path = str(tmp_path / "m")
    value = np.arange(10, dtype=np.float32).reshape(5, 2)
    checkpoints.write(path, {"old/w": value, "old/b": np.float32([7])}, "tensorflow")
    with tf.variable_scope("new", partitioner=by(2)):
        w = tf.get_variable("w", [5, 2])
        b = tf.get_variable("b", [1])
    x = tf.get_variable("x", [5, 2], partitioner=by(2, axis=1))
    y = tf.get_variable("y", [5, 2], partitioner=by(3))
    tf.train.init_from_checkpoint(path, {"old/": "new/"})
    tf.train.init_from_checkpoint(path, {"old/w": "x"})
    tf.train.init_from_checkpoint(path, {"old/w": list(y)})
    got = run(*(tf.convert_to_tensor(v) for v in (w, x, y, b)))
    assert [g.tolist() for g in got] == [value.tolist()] * 3 + [[7.0]]
    odd = tf.get_variable("odd", [4, 2], partitioner=by(2))
    with pytest.raises(ValueError, match="Shape of variable odd/part_0:0"):
        tf.train.init_from_checkpoint(path, {"old/w": odd})


def test_restore_takes_what_fits(tmp_path: Path) -> None:
    path = str(tmp_path / "m")
    value = np.arange(10, dtype=np.float32).reshape(5, 2)
    checkpoints.write(path, {"w": value})
    w = tf.get_variable("w", [5, 2], partitioner=by(2))
    odd = tf.get_variable("odd", [6, 2], partitioner=by(2))
    with tf.Session() as sess:
        report = hr.train.restore(sess, path, {"w": w})
        assert report.restored == {"w/part_0": "w", "w/part_1": "w"}
        assert sess.run(w.as_tensor()).tolist() == value.tolist()
        assert hr.train.restore(sess, path, w).is_complete
        report = hr.train.restore(sess, path, [*w, *odd], rename={"odd": "w"})
        assert list(report.mismatched) == ["odd/part_0", "odd/part_1"]
        with pytest.raises(InvalidArgumentError, match=r"float32\[5,2\] .* float32\[6,2\]"):
            hr.train.restore(sess, path, {"w": odd})
        with pytest.raises(NotFoundError):
            hr.train.restore(sess, path, odd, strict=True)


def test_a_meta_graph_keeps_the_parts(tmp_path: Path) -> None:
    with tf.Session() as sess:
        tf.get_variable("w", [5, 2], initializer=count, partitioner=by(2))
        sess.run(tf.global_variables_initializer())
        path = tf.train.Saver().save(sess, str(tmp_path / "m"))
    for scope in (None, "in"):
        with tf.Graph().as_default(), tf.Session() as sess:
            saver = tf.train.import_meta_graph(path + ".meta", import_scope=scope)
            parts = tf.global_variables()
            prefix = f"{scope}/" if scope else ""
            assert [v.name for v in parts] == [f"{prefix}w/part_0:0", f"{prefix}w/part_1:0"]
            assert [v.save_slice_info.full_name for v in parts] == [f"{prefix}w"] * 2
            saver.restore(sess, path)
            assert sess.run(parts[1]).tolist() == count([2, 2]).tolist()
            again = tf.train.Saver().save(sess, str(tmp_path / "again"))
            assert tf.train.list_variables(again) == [(f"{prefix}w", [5, 2])]
