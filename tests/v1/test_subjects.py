"""Random numbers, strings, features and few bits under TensorFlow 1's names and arguments."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

import headrace.v1 as tf


@pytest.fixture(autouse=True)
def _graph() -> Iterator[None]:
    tf.reset_default_graph()
    yield
    tf.reset_default_graph()


def test_random_numbers_with_a_graphs_seed() -> None:
    tf.set_random_seed(3)
    a, b = tf.random_gamma([3], 1.5), tf.random_poisson([0.5, 9.0], [3])
    assert [tf.get_default_graph().get_operation_by_name(n).get_attr("seed2") for n in (
        "random_gamma/RandomGamma", "random_poisson/RandomPoissonV2"
    )] == [0, 1]  # fmt: skip
    assert b.shape == (3, 2)
    with tf.Session() as one, tf.Session() as other:
        np.testing.assert_array_equal(one.run(a), other.run(a))
    classes = tf.random.stateless_multinomial([[0.0, 50.0]], 3, [1, 2], output_dtype=tf.int32)
    with tf.Session() as session:
        assert session.run(classes).tolist() == [[1, 1, 1]]


def test_an_orthogonal_initializer() -> None:
    tall = tf.get_variable("tall", [2, 3, 4], initializer=tf.orthogonal_initializer(seed=1))
    wide = tf.get_variable("wide", [3, 4], initializer=tf.initializers.orthogonal(gain=2.0))
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        a, b = session.run([tall, wide])
    np.testing.assert_allclose(a.reshape(6, 4).T @ a.reshape(6, 4), np.eye(4), atol=1e-5)
    np.testing.assert_allclose(b @ b.T, 4 * np.eye(3), atol=1e-5)
    with pytest.raises(ValueError, match="at least two-dimensional"):
        tf.orthogonal_initializer()([3])


def test_strings_split_into_sparse_tensors() -> None:
    a, b = tf.string_split(["a b", "c"]), tf.strings.split(source=["a,b"], sep=",")
    with tf.Session() as session:
        one, other = session.run([a, b])
    assert one.values.tolist() == [b"a", b"b", b"c"]
    assert one.dense_shape.tolist() == [2, 2]
    assert other.values.tolist() == [b"a", b"b"]
    with pytest.raises(ValueError, match="'RaggedTensor' or 'SparseTensor'"):
        tf.strings.split(["a"], result_type="Tensor")
    with pytest.raises(ValueError, match="one of the two"):
        tf.strings.split()


def test_older_names_of_arguments() -> None:
    bucket = tf.string_to_hash_bucket(string_tensor=["a"], num_buckets=10)
    numbers = tf.decode_raw(bytes=[b"\1\2"], out_type=tf.uint8)
    columns = tf.decode_csv(["1|x"], [[0], [""]], "|", True, "csv")
    features = tf.parse_example([b""], {"a": tf.FixedLenFeature([], tf.int64, 4)}, "parsed")
    assert columns[0].op.name == "csv"
    assert features["a"].op.name == "parsed/ParseExampleV2"
    with tf.Session() as session:
        got = session.run([bucket, numbers, columns[1], features["a"]])
    assert 0 <= got[0][0] < 10
    assert [x.tolist() for x in got[1:]] == [[[1, 2]], [b"x"], [4]]


def test_few_bits() -> None:
    made = tf.quantize_v2([-1.0, 1.0], -1.0, 1.0, tf.qint8, "SCALED", "there")
    back = tf.dequantize(*made, mode="SCALED")
    assert made.output.op.name == "there"
    assert made.output.dtype == tf.qint8
    fake = tf.fake_quant_with_min_max_vars([0.3], 0.0, 0.75, num_bits=2)
    with tf.Session() as session:
        assert session.run(back).tolist() == [-1.0, 1.0]
        assert session.run(fake).tolist() == [0.25]
