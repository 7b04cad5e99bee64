"""Input functions of arrays and data frames, and receivers of served models."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import headrace.v1 as tf

pytestmark = pytest.mark.one_engine


def batches(input_fn: Any, most: int = 20) -> list[Any]:
    """Batches until the data ends."""
    out: list[Any] = []
    with tf.Graph().as_default():
        tf.set_random_seed(3)
        fetches = input_fn()
        with tf.train.MonitoredSession() as session:
            while not session.should_stop() and len(out) < most:
                out.append(session.run(fetches))
    return out


def test_batches_cross_epochs_and_the_last_is_smaller() -> None:
    x, y = np.arange(5), np.arange(5) * 10.0
    found = batches(
        tf.estimator.inputs.numpy_input_fn({"a": x, "b": x[:, None]}, y, batch_size=4, num_epochs=2, shuffle=False)
    )
    assert [f["a"].tolist() for f, _ in found] == [[0, 1, 2, 3], [4, 0, 1, 2], [3, 4]]
    assert [f["b"].shape for f, _ in found] == [(4, 1), (4, 1), (2, 1)]
    assert [labels.tolist() for _, labels in found] == [[0, 10, 20, 30], [40, 0, 10, 20], [30, 40]]


def test_an_array_alone_and_dicts_of_labels_keep_their_form() -> None:
    x = np.array(["a", "b", "c"])
    assert [b.tolist() for b in batches(tf.estimator.inputs.numpy_input_fn(x, shuffle=False))] == [[b"a", b"b", b"c"]]
    fn = tf.estimator.inputs.numpy_input_fn({"a": x}, {"t": np.arange(3)}, shuffle=False, num_epochs=None, batch_size=2)
    found = batches(fn, most=3)
    assert [labels["t"].tolist() for _, labels in found] == [[0, 1], [2, 0], [1, 2]]


def test_shuffled_epochs_have_each_example_once() -> None:
    fn = tf.estimator.inputs.numpy_input_fn(np.arange(20), batch_size=10, num_epochs=2, shuffle=True)
    found = np.concatenate(batches(fn))
    assert sorted(found[:20]) == sorted(found[20:]) == list(range(20))
    assert found[:20].tolist() != list(range(20)) != found[20:].tolist()
    assert np.concatenate(batches(fn)).tolist() == found.tolist()  # the seed of the graph


@pytest.mark.parametrize(
    ("x", "y", "text"),
    [
        ({}, None, "x cannot be empty"),
        ({"a": np.arange(2)}, {}, "y cannot be empty dict, use None instead"),
        ({"a": np.arange(2)}, np.arange(3), "Length of tensors in x and y is mismatched"),
        ({"a": np.arange(2)}, {"a": np.arange(2)}, "1 duplicate keys are found in both x and y"),
        ([1, 2], None, "x must be a dict or array; got list"),
    ],
)
def test_wrong_arrays_are_refused(x: Any, y: Any, text: str) -> None:
    with tf.Graph().as_default(), pytest.raises((ValueError, TypeError), match=text):
        tf.estimator.inputs.numpy_input_fn(x, y, shuffle=False)()


def test_shuffle_must_be_given() -> None:
    with pytest.raises(ValueError, match="shuffle must be provided and explicitly set as boolean"):
        tf.estimator.inputs.numpy_input_fn(np.arange(2))


class Frame(dict):
    """The part of a data frame of pandas that `pandas_input_fn` reads."""

    columns = property(lambda self: list(self))
    index = property(lambda self: range(len(next(iter(self.values())))))


class Series(list):
    """The part of a series of pandas that `pandas_input_fn` reads."""

    index = property(lambda self: range(len(self)))


def test_a_data_frame_gives_its_columns() -> None:
    x, y = Frame(a=[1, 2, 3], b=[1.0, 2.0, 3.0]), Series([5, 6, 7])
    found = batches(tf.estimator.inputs.pandas_input_fn(x, y, batch_size=2, shuffle=False))
    assert [f["a"].tolist() for f, _ in found] == [[1, 2], [3]]
    assert [labels.tolist() for _, labels in found] == [[5, 6], [7]]
    with pytest.raises(TypeError, match="x must be a pandas DataFrame; got list"):
        tf.estimator.inputs.pandas_input_fn([1], shuffle=False)
    with pytest.raises(ValueError, match="Cannot use name a for target column"):
        tf.estimator.inputs.pandas_input_fn(x, y, shuffle=False, target_column="a")
    with pytest.raises(ValueError, match="Index for x and y are mismatched"):
        tf.estimator.inputs.pandas_input_fn(x, Series([5]), shuffle=False)


def test_receivers_have_placeholders_for_requests() -> None:
    export = tf.estimator.export
    with tf.Graph().as_default(), tf.Session() as session:
        raw = export.build_raw_serving_input_receiver_fn({"x": tf.ones([3, 2], name="x0")})()
        assert raw.features["x"].shape.as_list() == [None, 2]
        assert raw.receiver_tensors == raw.features
        spec = {"x": tf.FixedLenFeature([2], tf.float32)}
        parsed = export.build_parsing_serving_input_receiver_fn(spec)()
        example = tf.train.Example()
        example.features.feature["x"].float_list.value.extend([1.0, 2.0])
        feed = {parsed.receiver_tensors["examples"]: [example.SerializeToString()]}
        np.testing.assert_array_equal(session.run(parsed.features["x"], feed), [[1.0, 2.0]])
        single = export.ServingInputReceiver(tf.ones([1]), tf.ones([1]))
        assert (list(single.features), list(single.receiver_tensors)) == (["feature"], ["input"])
        with pytest.raises(ValueError, match="Prediction output value must be a Tensor"):
            export.PredictOutput({"a": 1})
        with pytest.raises(ValueError, match="Regression output value must be a float32 Tensor"):
            export.RegressionOutput(tf.constant(1))
        with pytest.raises(ValueError, match="empty arguments"):
            export.ClassificationOutput()
