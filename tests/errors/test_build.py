"""Error texts while a graph is built.

A text has the argument by name, the value given, and the value expected.
"""

import copy

import numpy as np
import pytest

import headrace as hr
from headrace.errors import ConversionError, GraphError, InvalidArgumentError, ShapeError, SignatureError
from tests.errors.table import check, open_

X = lambda: open_(hr.float32, 2, 3)
ANY = lambda: open_(hr.float32)


def stateful_loop(save):
    x = hr.placeholder(hr.float32, ())
    return hr.while_loop(lambda x: x < 9, lambda x: x + hr.random.uniform(()), [x], save=save)


def left_in_wrong_order():
    outer, inner = hr.Graph(), hr.Graph()
    outer.__enter__()
    inner.__enter__()
    try:
        outer.__exit__(None, None, None)
    finally:
        inner.__exit__(None, None, None)
        outer.__exit__(None, None, None)


def foreign_capture():
    with hr.Graph():
        other = hr.placeholder(hr.float32, (), name="other")
    with hr.Graph():
        return hr.Function(lambda x: x + other)(hr.constant(1.0))


def handles_of_different_things():
    a, b = hr.Variable([1.0, 2.0]), hr.Variable([1.0, 2.0, 3.0])
    return hr.while_loop(lambda i, v: i < 2, lambda i, v: (i + 1, b.handle), (0, a.handle))


def different_names():
    a = hr.FIFOQueue(2, ["int32"], names=["x"])
    b = hr.FIFOQueue(2, ["int32"], names=["y"])
    return hr.QueueBase.from_list(hr.constant(0), [a, b])


def of_another_dtype():
    return hr.TensorArray(hr.float32, 2).write(0, hr.constant(1))


def under_a_number():
    with hr.device(3):
        return hr.constant(1)


def after_one():
    with hr.control_dependencies(hr.no_op()):
        return hr.constant(1)


ROWS = [
    # arrays
    (lambda: hr.stack([]), ValueError, "'values' of stack must not be empty"),
    (
        lambda: hr.constant(300, hr.uint8),
        ValueError,
        "300 does not fit uint8, which goes from 0 to 255; choose a l",
    ),
    (lambda: hr.concat([X()], [0]), ShapeError, r"'axis' of concat must be a scalar, got one of shape \[1\]"),
    (lambda: hr.parallel_stack([ANY()]), ShapeError, "parallel_stack needs the shape of its values.*use stack"),
    (lambda: hr.split(X(), np.array(2.5)), ValueError, "'num_or_size_splits' must be a Python integer or a vector"),
    (lambda: hr.pad(X(), [[1, 1], [0, 0]], "MIRROR"), ValueError, "'CONSTANT', 'REFLECT' or 'SYMMETRIC', got 'MIRROR'"),
    (lambda: hr.reverse_sequence(X(), [1, 2]), ValueError, "'seq_axis', the axis along which.*must be given"),
    (lambda: hr.meshgrid([1], [2], indexing="yx"), ValueError, "'indexing' must be either 'xy' or 'ij', got 'yx'"),
    # conditionals, printing, functions, graphs
    (
        lambda: hr.print("a", output_stream="a.txt"),
        ValueError,
        "'output_stream' must be sys.stderr, sys.stdout or 'file://...', got 'a.txt'",
    ),
    (foreign_capture, GraphError, "'other"),
    (under_a_number, TypeError, r"device takes a name \(as '/device:CPU:1'\), a function or None, got 3"),
    (after_one, TypeError, "control_dependencies takes a list of operations and tensors, got <.*>; put it in a list"),
    (of_another_dtype, SignatureError, "TensorArray dtype is float32, but what is put into it is not: .*int32"),
    (left_in_wrong_order, RuntimeError, "left in the reverse order of entering them"),
    (handles_of_different_things, ShapeError, "as a handle of .* after one iteration.*the same in all iterations"),
    # gathering
    (
        lambda: hr.gather_nd(X(), [[0, 1]], batch_dims=2),
        ShapeError,
        "'batch_dims' must be from 0 to below the rank of 'indices', got 2",
    ),
    (lambda: hr.repeat(ANY(), 2, axis=0), ShapeError, "repeat needs a tensor of known rank, got <"),
    (lambda: hr.sequence_mask([1, 2], [3]), ShapeError, "'maxlen' must be a scalar, got <"),
    # linear algebra
    (lambda: hr.tensordot(ANY(), X(), 1), ShapeError, "tensordot needs tensors of known rank.*set_shape"),
    (lambda: hr.tensordot(X(), X(), 3), ValueError, "'axes' must be from 0 to the rank of both tensors, got 3"),
    (lambda: hr.tensordot(X(), X(), [1]), ValueError, r"'axes' must be an integer or have length 2, got \[1\]"),
    (lambda: hr.tensordot(X(), X(), [[0, 1], [0]]), ValueError, "'axes' must name as many axes of both tensors, got"),
    (lambda: hr.tensordot(X(), X(), [[2], [0]]), ValueError, "'axes' names axis 2 of <.*>, which has 2 axes"),
    (lambda: hr.einsum("ij,jk->ik", X()), ValueError, "the equation 'ij,jk->ik' is for 2 tensors, got 1"),
    (lambda: hr.matrix_transpose(open_(hr.float32, 3)), ShapeError, "'a' must be a matrix or have more axes, got <"),
    (
        lambda: hr.norm(X(), axis=(0, 1, 2)),
        ValueError,
        r"'axis' must be None, an integer, or a tuple of 2 unique integers, got \(0, 1",
    ),
    # math
    (
        lambda: hr.truediv(open_(hr.int32), open_(hr.float32)),
        SignatureError,
        "`x` and `y` must have the same dtype, got int32 != float32: .*Cast one of them",
    ),
    (lambda: hr.add_n([]), ValueError, "'inputs' must be a list of at least one tensor .*got an empty one"),
    (lambda: hr.searchsorted([1.0], [1.0], side="top"), ValueError, "'side' must be either 'right' or 'left', got 'to"),
    (lambda: hr.linspace(ANY(), X(), 3), ShapeError, "the ranks of 'start' and 'stop' must be known, got <"),
    # nn
    (lambda: hr.nn.softmax(ANY(), axis=1), ShapeError, "softmax along axis 1 needs a tensor of known rank.*set_shape"),
    (lambda: hr.nn.softmax(X(), axis=2), ShapeError, r"axis 2 is not in \[-2, 2\): .* has 2 axes"),
    (
        lambda: hr.nn.softmax_cross_entropy_with_logits(labels=X(), logits=None),
        ValueError,
        "both 'labels' and 'logits' must be",
    ),
    (
        lambda: hr.nn.sparse_softmax_cross_entropy_with_logits(labels=open_(hr.int32, 2, 2), logits=X()),
        ShapeError,
        "Rank mismatch: `logits` must have one more axis than `labels`",
    ),
    (lambda: hr.nn.bias_add(X(), [1.0], data_format="CN"), ValueError, "'data_format' must be .*got 'CN'"),
    (lambda: hr.nn.dropout(X(), rate=1.5), ValueError, r"'rate' must be .* in the range \[0, 1\), got 1.5"),
    (lambda: hr.nn.dropout(open_(hr.int32), rate=0.5), ValueError, "'x' must be of floats.*got <.*cast it"),
    # functions of the user's, queues, what loops keep
    (lambda: hr.py_func(3, [X()], hr.float32), ValueError, "Expected func to be callable. Received func=3 of type int"),
    (different_names, TypeError, r"matching component names: <.*> has \['x'\], <.*> has \['y'\]"),
    (lambda: hr.recompute(0), ValueError, "'every' must be a positive integer or 'sqrt', got 0"),
    (lambda: stateful_loop("most"), ValueError, r"must be 'all', 'auto' or hr.recompute\(...\), got 'most'"),
    (
        lambda: stateful_loop(hr.recompute(2)),
        InvalidArgumentError,
        "its body has RandomUniform .*test_build.py:.* Move it out of the loop, or let the loop keep all",
    ),
    (
        lambda: hr.recompute_grad(lambda x: x + hr.random.uniform(()))(X()),
        InvalidArgumentError,
        "cannot be computed again for its gradient: it has RandomUniform",
    ),
    (lambda: copy.copy(hr.Variable(1.0)), TypeError, "a Variable belongs to its graph and cannot be copied"),
]


@pytest.mark.parametrize(("how", "error", "says"), ROWS)
def test_what_is_said(how, error, says):
    with hr.Graph():
        check(how, error, says)


OUTSIDE = [
    (
        lambda: hr.while_loop(lambda i: i < 3, lambda i: i + 1, [0], maximum_iterations=[1, 2]),
        ShapeError,
        r"'maximum_iterations' must be a scalar, got one of shape \[2\]",
    ),
    (lambda: hr.cond(np.array([True]), lambda: 1, lambda: 2), SignatureError, "must be a boolean scalar, got array"),
    (lambda: hr.import_graph_def(b""), ValueError, "no graph to import into: call import_graph_def inside"),
    (
        lambda: hr.convert_to_tensor(hr.constant(1), hr.float32),
        ConversionError,
        "requested dtype float32 for Tensor with dtype int32",
    ),
]


@pytest.mark.parametrize(("how", "error", "says"), OUTSIDE)
def test_what_is_said_outside_a_graph(how, error, says):
    check(how, error, says)
