"""Functions of several areas of `headrace.v1`, compared with values that TensorFlow 2.21 computed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import headrace.v1 as tf
from tests.v1.function_cases import AREAS, VALUES, plain


@pytest.fixture(autouse=True)
def _graph() -> Iterator[None]:
    tf.reset_default_graph()
    yield
    tf.reset_default_graph()


@pytest.mark.system
@pytest.mark.parametrize("area", AREAS, ids=lambda f: f.__name__)
def test_functions_have_tensorflows_values(area: Any) -> None:
    wanted = json.loads(VALUES.read_text(encoding="utf-8"))
    built = area(tf)
    with tf.Session() as session:
        for name, value in session.run(built).items():
            found = plain(value)
            try:
                np.testing.assert_allclose(np.array(found), np.array(wanted[name]), 1e-4, 1e-5, err_msg=name)
            except (TypeError, ValueError):  # of strings and of rows of different lengths
                assert found == wanted[name], name


def test_shapes_are_checked_now_or_in_a_step() -> None:
    x, y = tf.placeholder(tf.float32, [None, 3]), tf.placeholder(tf.float32)
    check = tf.debugging.assert_shapes([(x, ("n", 3)), (y, ("n", "m")), (tf.constant(1.0), ()), (tf.zeros([1]), "k")])
    with tf.Session() as session:
        session.run(check, {x: [[1, 2, 3]], y: [[1]]})
        with pytest.raises(tf.errors.InvalidArgumentError, match="Specified by tensor Placeholder:0 dimension 0"):
            session.run(check, {x: [[1, 2, 3]], y: [[1], [2]]})
        with pytest.raises(tf.errors.InvalidArgumentError, match="must have rank"):
            session.run(check, {x: [[1, 2, 3]], y: [1]})
    matrix = tf.zeros([2, 3])
    for shape, text in (((2, 4), "must have size 4"), (("a",), "must have rank"), ((2, "*"), "first entry")):
        with pytest.raises(ValueError, match=text):
            tf.debugging.assert_shapes([(matrix, shape)])
    with pytest.raises(ValueError, match="must be an iterable"):
        tf.debugging.assert_shapes([(matrix, 3)])
    with pytest.raises(ValueError, match="must have size 3"):
        tf.debugging.assert_shapes({matrix: ("*", "a"), tf.zeros([4]): (..., "a")})


def test_assertions_show_data() -> None:
    x = tf.placeholder(tf.float32, [2])
    with tf.Session() as session, pytest.raises(tf.errors.InvalidArgumentError, match=r"\[m\] \[see\] \[2\]"):
        session.run(tf.assert_equal(x, 1.0, data=["see", tf.shape(x)], message="m"), {x: [1, 2]})


def test_numerics_are_checked_between_two_calls() -> None:
    y = tf.log(tf.placeholder_with_default(-1.0, [])) * 2.0
    with tf.Session() as session:
        tf.debugging.enable_check_numerics()
        try:
            with pytest.raises(tf.errors.InvalidArgumentError):
                session.run(y)
        finally:
            tf.debugging.disable_check_numerics()
        tf.debugging.disable_check_numerics()
        assert np.isnan(session.run(y))


def test_a_scope_makes_variables() -> None:
    calls = []

    def outer(next_creator: Any, **kwargs: Any) -> Any:
        calls.append(("outer", kwargs["name"]))
        return next_creator(**kwargs)

    def inner(next_creator: Any, **kwargs: Any) -> Any:
        calls.append(("inner", kwargs["name"]))
        return next_creator(**{**kwargs, "trainable": False, "name": "renamed"})

    with tf.variable_creator_scope(outer), tf.variable_creator_scope(inner):
        v, w = tf.Variable(1.0, name="v"), tf.get_variable("w", [2])
        with tf.Graph().as_default():
            tf.Variable(1.0, name="elsewhere")
    assert tf.Variable(1.0).trainable
    # TensorFlow's order: the innermost function is called first
    assert calls == [("inner", "v"), ("outer", "renamed"), ("inner", "w"), ("outer", "renamed")]
    assert (v.name, v.trainable, w.trainable) == ("renamed:0", False, False)


def test_layers_check_their_inputs() -> None:
    class Doubled(tf.layers.Layer):  # type: ignore[misc]
        input_spec = tf.layers.InputSpec(ndim=2, axes={-1: 3})

        def call(self, inputs: Any) -> Any:
            return inputs * 2

    layer = Doubled(name="doubled")
    assert layer(tf.zeros([4, 3])).shape.as_list() == [4, 3]
    with pytest.raises(ValueError, match='"doubled" is incompatible with the layer: expected ndim=2, found ndim=1'):
        layer(tf.zeros([3]))
    with pytest.raises(ValueError, match="expected axis -1 of input shape to have value 3"):
        layer(tf.zeros([4, 2]))
    layer.input_spec = tf.layers.InputSpec(shape=(None, 3, 1), allow_last_axis_squeeze=True)
    layer(tf.zeros([4, 3]))
    with pytest.raises(ValueError, match="expected shape="):
        layer(tf.zeros([4, 2, 1]))
    layer.input_spec = [tf.layers.InputSpec(min_ndim=1), tf.layers.InputSpec(max_ndim=2)]
    with pytest.raises(ValueError, match=r"expects 2 input\(s\), but it received 1"):
        layer(tf.zeros([4]))
    again = tf.layers.InputSpec.from_config(tf.layers.InputSpec(dtype=tf.int32, shape=(1, None)).get_config())
    assert repr(again) == "InputSpec(dtype=int32, shape=(1, None), ndim=2)"
    with pytest.raises(ValueError, match="greater than the maximum"):
        tf.layers.InputSpec(ndim=2, axes={2: 1})


def test_descriptions_of_arrays_and_ragged_tensors() -> None:
    array = tf.TensorArray(tf.float32, 3, element_shape=[2])
    spec = tf.TensorArraySpec.from_value(array)
    assert spec == tf.TensorArraySpec([2], tf.float32)
    assert spec.is_compatible_with(array)
    assert not tf.TensorArraySpec([3]).is_compatible_with(array)
    rows = tf.RaggedTensorSpec([2, None], tf.int32)
    assert rows.is_compatible_with(tf.ragged.constant([[1], []]))
    assert not rows.is_compatible_with(tf.ragged.constant([[1], [], []]))
    assert (rows.value_type, hash(rows)) == (tf.RaggedTensor, hash(tf.RaggedTensorSpec([2, None], tf.int32)))
    with pytest.raises(ValueError, match="must be less than rank"):
        tf.RaggedTensorSpec([None, None], ragged_rank=2)
    with pytest.raises(ValueError, match="shape with known rank"):
        tf.RaggedTensorSpec()
    with pytest.raises(ValueError, match="constructor is private"):
        tf.RaggedTensor(tf.zeros([1]), [0, 1])


def test_the_global_generator_is_kept_and_set() -> None:
    made = tf.random.Generator.from_seed(7)
    tf.random.set_global_generator(made)
    try:
        assert tf.random.get_global_generator() is tf.random.experimental.get_global_generator() is made
    finally:
        tf.random.set_global_generator(None)


def test_a_program_converts_its_own_objects() -> None:
    class Metres:
        def __init__(self, number: float) -> None:
            self.number = number

    def convert(value: Any, dtype: Any = None, name: Any = None, as_ref: bool = False) -> Any:
        return tf.constant(value.number, dtype) if value.number >= 0 else NotImplemented

    def negative(value: Any, dtype: Any = None, name: Any = None, as_ref: bool = False) -> Any:
        return tf.constant(-100.0)

    tf.register_tensor_conversion_function(Metres, negative, priority=200)
    tf.register_tensor_conversion_function(Metres, convert)
    two, other = Metres(2.0), Metres(-1.0)
    with tf.Session() as session:
        found = session.run([tf.add(two, 1.0), tf.stack([two, 3.0]), tf.convert_to_tensor(other)])
    assert [x.tolist() for x in found] == [3, [2, 3], -100]
    with pytest.raises(TypeError, match="numeric types"):
        tf.register_tensor_conversion_function(float, convert)
    with pytest.raises(TypeError, match="must be a type"):
        tf.register_tensor_conversion_function("Metres", convert)  # type: ignore[arg-type]
