"""Error texts of TensorFlow 1's functions: TensorFlow's own words where it has some.

Where headrace differs, the text has the remedy.
"""

from __future__ import annotations

import numpy as np
import pytest

import headrace as hr
import headrace.v1 as tf
from headrace.errors import GraphError
from headrace.public_names import MissingName
from tests.errors.table import check

F = lambda *dims: tf.placeholder(tf.float32, dims)


def scoped(**options):
    with tf.variable_scope(options.pop("scope", "s"), **options):
        return tf.get_variable("v", [2])


def shared(**options):
    tf.get_variable("v", [2])
    with tf.variable_scope(tf.get_variable_scope(), reuse=True):
        return tf.get_variable("v", **options)


def again():
    tf.get_variable("v", [2])
    return tf.get_variable("v", [2])


def missing():
    tf.get_variable("weights", [2])
    with tf.variable_scope(tf.get_variable_scope(), reuse=True):
        return tf.get_variable("weight", [2])


def finalized():
    tf.get_default_graph().finalize()
    return tf.constant(1)


def no_v1_graph():
    with hr.Graph():
        return tf.get_default_graph()


def evaluated_elsewhere():
    x = tf.constant(1.0)
    with tf.Session(graph=tf.Graph()) as session:
        return x.eval(session=session)


def runners_without_a_session():
    return tf.train.start_queue_runners()


def gradient(x, y, **options):
    with tf.Session():
        return tf.test.compute_gradient(x, [2], y, [2], **options)


def of_an_integer():
    return gradient(tf.placeholder(tf.int32, [2]), F(2))


def of_nothing():
    return gradient(F(2), F(2))


def of_another_shape():
    x = F(2)
    return gradient(x, x * 2.0, x_init_value=np.zeros(3, np.float32))


def unknown_field():
    config = tf.ConfigProto()
    config.alow_soft_placement = True


def size_of_any():
    return np.asarray(tf.TensorShape([None, 2]))


SHAPE = tf.TensorShape([2, 3])
ANY = tf.TensorShape(None)

ROWS = [
    # arguments
    (
        lambda: tf.reduce_sum(1, 2, 3, 4, 5, 6, 7, 8),
        TypeError,
        r"reduce_sum\(\) takes at most \d arguments \(input_ten",
    ),
    (
        lambda: tf.reduce_sum(F(2), axes=1),
        TypeError,
        r"reduce_sum\(\) has no argument 'axes'; it has input_tensor, axis",
    ),
    (
        lambda: tf.reduce_sum(F(2), axis=0, reduction_indices=0),
        TypeError,
        r"reduce_sum\(\) got 'axis' twice: as 'axis' and as 'reduction_indices'",
    ),
    (
        lambda: tf.matmul(F(2, 2), F(2, 2), output_type=tf.int32),
        TypeError,
        r"matmul\(output_type=.*int32\): headrace has nothing that does this; leave output_type out",
    ),
    (
        lambda: tf.ragged_placeholder,
        MissingName,
        "module 'headrace.v1' has no attribute 'ragged_placeholder'; did you mean tf.sparse_placeholder",
    ),
    (lambda: tf.where(F(2) > 0.0, F(2)), ValueError, "x and y must both be non-None or both be None"),
    (lambda: tf.compat.as_bytes(3), TypeError, "Expected binary or unicode string, got 3"),
    (lambda: tf.scalar_mul(F(2), F(2)), ValueError, r"Only scalar multiply works, got a scalar of shape \(2,\)"),
    (lambda: tf.nn.dropout(F(2)), ValueError, "dropout needs rate, or keep_prob = 1 - rate: one of the two"),
    (lambda: tf.cond(True, lambda: 1, lambda: 2), TypeError, r"pred must not be a Python bool.*tf.constant\(True\)"),
    (
        lambda: tf.cond(F() > 0, lambda: 1, lambda: 2, fn1=lambda: 3),
        TypeError,
        "cond got 'true_fn' twice, under its new name and its old one",
    ),
    (lambda: tf.cond(F() > 0, lambda: 1), TypeError, "cond needs the argument 'false_fn'"),
    # checks
    (
        lambda: tf.assert_rank_in(F(2), [0, 2], message="batch"),
        ValueError,
        r"batch Tensor .* must have rank in \[0, 2\]. Received rank 1, shape \(2,\) \(made at .*test_v1.py:\d+",
    ),
    (lambda: tf.assert_integer(F(2)), TypeError, 'Expected "x" to be integer type. Found: float32'),
    (lambda: tf.assert_scalar(F(2)), ValueError, r"Expected scalar shape for Placeholder.*, saw shape: \(2,\)"),
    (lambda: tf.assert_proper_iterable(3), TypeError, "Expected argument 'values' to be a list .*got int"),
    (
        lambda: tf.assert_same_float_dtype([F(2), tf.placeholder(tf.float64)]),
        ValueError,
        "has dtype float64, expected float32 like the others; cast it",
    ),
    (
        lambda: tf.assert_same_float_dtype([tf.constant(1)]),
        ValueError,
        "Expected floating point type, got int32",
    ),
    # graphs, sessions and their settings
    (finalized, RuntimeError, "Graph is finalized and cannot be modified"),
    (no_v1_graph, GraphError, r"the graph entered last, .* is no graph of headrace.v1: enter a tf.Graph\(\) instead"),
    (unknown_field, AttributeError, 'ConfigProto has no "alow_soft_placement" field'),
    (lambda: tf.Session(config={"a": 1}), TypeError, r"config must be a tf.ConfigProto, got {'a': 1} \(dict\)"),
    (
        lambda: tf.constant(1.0, name="one").eval(),
        ValueError,
        r"Cannot evaluate 'one:0' using `eval\(\)`: No default session is registered",
    ),
    (
        evaluated_elsewhere,
        ValueError,
        "its graph is another one than the session's; pass a session made with Session",
    ),
    (runners_without_a_session, ValueError, "Cannot start queue runners: no default session is registered"),
    (
        lambda: tf.train.warm_started,
        MissingName,
        "module 'headrace.v1.train' has no attribute 'warm_started'",
    ),
    (lambda: tf.train.QueueRunner(tf.FIFOQueue(1, tf.int32)), ValueError, "needs enqueue_ops: a list with one op"),
    (
        lambda: tf.train.QueueRunner(None, [tf.no_op()]),
        ValueError,
        "QueueRunner needs a queue, or a close_op and a cancel_op",
    ),
    # gradients
    (
        lambda: tf.gradients(F(2), F(2), unconnected_gradients="nothing"),
        ValueError,
        "Unknown value for unconnected_gradients: 'nothing'; it is 'none' or 'zero'",
    ),
    (lambda: tf.hessians(F(), F(2)), ValueError, "hessians: no y depends on .*, so there are no derivatives of it"),
    (
        lambda: tf.test.compute_gradient(F(2), [2], F(2), [2]),
        ValueError,
        "compute_gradient runs in the default session, and there is none",
    ),
    (of_an_integer, TypeError, "compute_gradient: x <.*> has no gradients; it must be a float or complex"),
    (of_another_shape, ValueError, r"x_init_value has the shape \(3,\), but x_shape = \(2,\)"),
    (of_nothing, ValueError, "compute_gradient: .* does not depend on "),
    # initializers
    (
        lambda: tf.random_normal_initializer(dtype=tf.int32),
        ValueError,
        "this initializer makes floats; got dtype int32",
    ),
    (lambda: tf.constant_initializer({}), TypeError, "constant_initializer takes a number, a list or an array, got {}"),
    (
        lambda: tf.constant_initializer([1, 2], verify_shape=True)([3]),
        TypeError,
        r"expected a value of shape \[3\], got one of shape \[2\]",
    ),
    (
        lambda: tf.constant_initializer([1, 2, 3])([2]),
        ValueError,
        r"a constant of 3 elements does not fit the shape \[2\]",
    ),
    (lambda: tf.variance_scaling_initializer(0), ValueError, "scale must be positive, got 0"),
    (
        lambda: tf.variance_scaling_initializer(mode="fan"),
        ValueError,
        "mode must be 'fan_in', 'fan_out' or 'fan_avg', got 'fan'",
    ),
    (
        lambda: tf.variance_scaling_initializer(distribution="gamma"),
        ValueError,
        "distribution must be a truncated_normal, untruncated_normal or uniform, got 'gamma'",
    ),
    (
        lambda: tf.variance_scaling_initializer()([None, 2]),
        ValueError,
        r"this initializer needs a shape that is fully known, got \[None, 2\]",
    ),
    (
        lambda: tf.initializers.identity()([2]),
        ValueError,
        r"Identity matrix initializer can only be used for 2D matrices, got the shape \[2\]",
    ),
    # variables
    (lambda: scoped(partitioner=3), ValueError, "Partitioner must be callable, but received: 3"),
    (lambda: scoped(reuse="yes"), ValueError, "reuse must be True, False, None or tf.AUTO_REUSE, got 'yes'"),
    (lambda: scoped(scope=None), TypeError, "variable_scope needs a name_or_scope, or a default_name"),
    (lambda: scoped(scope=3), TypeError, "name_or_scope must be a string or a VariableScope, got 3"),
    (
        lambda: scoped(scope=None, default_name="d", reuse=True),
        ValueError,
        "reuse=True cannot be used without a name_or_scope",
    ),
    (
        lambda: tf.get_variable("v", [2], initializer=tf.constant([1.0, 2.0])),
        ValueError,
        "If initializer is a constant, do not specify shape",
    ),
    (again, ValueError, r"Variable v already exists, disallowed. .* It was made at .*test_v1.py:\d+"),
    (
        lambda: shared(shape=[3]),
        ValueError,
        r"Trying to share variable v, but specified shape \(3,\) and found shape \(2,\)",
    ),
    (
        lambda: shared(shape=[2], dtype=tf.int32),
        ValueError,
        "Trying to share variable v, but specified dtype int32 and found dtype float32",
    ),
    (missing, ValueError, "Variable weight does not exist.*Did you mean.* There is weights"),
    (
        lambda: tf.get_variable("v", [None, 2]),
        ValueError,
        r"Shape of a new variable \(v\) must be fully defined, but instead was \(\?, 2\)",
    ),
    (
        lambda: tf.get_variable("v", [2], tf.complex64),
        ValueError,
        "An initializer for variable v of complex64 is required",
    ),
    (lambda: tf.assign_add(3, 1), TypeError, r"assign_add takes a variable, got 3 \(int\)"),
    (lambda: tf.count_up_to(3, 1), TypeError, r"count_up_to takes a variable, got 3 \(int\)"),
    # shapes
    (lambda: tf.Dimension("many"), TypeError, "a Dimension is a whole number or None, got 'many'"),
    (lambda: tf.Dimension(-1), ValueError, "a Dimension must be >= 0, got -1; None stands for one that is not known"),
    (lambda: np.asarray(tf.Dimension(None)), TypeError, r"a Dimension that is not known is no number; use tf.shape"),
    (
        lambda: tf.Dimension(2).assert_is_compatible_with(3),
        ValueError,
        r"Dimensions (Dimension\()?2\)? and (Dimension\()?3\)? are not compatible",
    ),
    (lambda: tf.Dimension(2) / 2, TypeError, r"Dimension\(2\) / 2: a dimension is a whole number; use // instead"),
    (lambda: len(ANY), ValueError, "Cannot take the length of shape with unknown rank"),
    (lambda: ANY.assert_is_fully_defined(), ValueError, "Shape <unknown> is not fully defined"),
    (
        lambda: SHAPE.assert_is_compatible_with([2, 4]),
        ValueError,
        r"Shapes \(2, 3\) and \(2, 4\) are incompatible",
    ),
    (lambda: SHAPE.merge_with([2, 4]), ValueError, r"Shapes \(2, 3\) and \(2, 4\) are not compatible"),
    (lambda: SHAPE.assert_has_rank(3), ValueError, r"Shape \(2, 3\) must have rank 3"),
    (
        lambda: SHAPE.assert_same_rank([2]),
        ValueError,
        r"Shapes \(2, 3\) and \(2,\) must have the same rank",
    ),
    (size_of_any, ValueError, r"partially known TensorShape \(\?, 2\) to a Tensor; use tf.shape\(x\)"),
    (
        lambda: tf.name_scope(None, None, [F(2)]).__enter__(),
        ValueError,
        r"At least one of name \(None\) and default_name \(None\)",
    ),
]


@pytest.mark.parametrize(("how", "error", "says"), ROWS)
def test_what_is_said(how, error, says):
    with tf.Graph().as_default():
        check(how, error, says)
