"""Error texts of ops while the graph is built, from static shapes or known values.

Also those about lists, variables and gradients.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import headrace as hr
from headrace.errors import AbortedError, InvalidArgumentError, NotFoundError, ShapeError
from tests.errors.table import check, open_, run

ops = hr.raw_ops
M = np.ones((2, 3), np.float32)
V = np.ones(3, np.float32)
S = np.float32(1)
NO_DIMS = np.zeros(0, np.int32)


def of(*dims: int | None, dtype: hr.DType = hr.float32) -> hr.Tensor:
    return open_(dtype, *dims) if dims else hr.placeholder(dtype, ())


# Errors that follow from the static shapes, or from the values that are known.
SHAPES = [
    (lambda: ops.Bitcast(input=of(2, 3), type=hr.float64), r"Cannot bitcast due to shape: 3 is not 2, in \[2,3\]"),
    (
        lambda: ops.Conv2DBackpropInput(
            input_sizes=[1, 2, 3], filter=of(1, 1, 1, 1), out_backprop=of(1, 1, 1, 1), strides=[1] * 4, padding="SAME"
        ),
        "requires input_sizes to contain 4 values or 2 values, but got: 3",
    ),
    (
        lambda: ops.StringFormat(inputs=[of(), of()], template="%s", placeholder="%s"),
        "num placeholders in template and num inputs must match: 1 vs. 2",
    ),
    (
        lambda: ops.MatrixDiagPartV3(input=of(2, 3), k=[0, 1, 2], padding_value=S),
        "diag_index must have only one or two elements, received 3 elements",
    ),
    (
        lambda: ops.MatrixDiagPartV3(input=of(2, 3), k=[1, -1], padding_value=S),
        "lower_diag_index is greater than upper_diag_index: 1 > -1",
    ),
    (lambda: ops.DiagPart(input=of(2, 2, 2)), "Input must have even and non-zero rank, input rank is 3"),
    (lambda: ops.Einsum(inputs=[of(2, 3)], equation="......->..."), "Only one ellipsis is allowed in a subscript"),
    (lambda: ops.Einsum(inputs=[of(2, 3)], equation="ij->k"), r"The output labels \['k'\] are in no input of 'ij->k'"),
    (lambda: ops.Einsum(inputs=[of(2, 3)], equation="ij,jk->ik"), "Expected 2 inputs but got: 1"),
    (lambda: hr.linspace(0.0, 1.0, 0), "Requires num > 0: 0"),
    (lambda: hr.nn.top_k(of(3), -1), "Need k >= 0, got -1"),
    (lambda: hr.nn.top_k(of(3), 4), "input must have last dimension >= k = 4 but is 3"),
    (
        lambda: ops.ScatterNd(indices=of(2, 2, 1, dtype=hr.int32), updates=of(2), shape=[5]),
        r"updates \[2\] must start with the dimensions \[2,2\]",
    ),
    (
        lambda: hr.scatter_nd(of(2, 1, dtype=hr.int32), of(2, 3), [5, 4]),
        r"Dimensions of updates must be \[2,4\], got \[2,3\]",
    ),
    (lambda: ops.ParallelConcat(values=[of(1, 2)], shape=(None, 2)), r"shape attr must be fully defined, got \[\?,2\]"),
    (lambda: hr.split(of(), 2), "Can't split scalars"),
    (
        lambda: ops.MirrorPadGrad(input=of(2), paddings=[[2, 1]], mode="REFLECT"),
        r"Paddings must be non-negative and fit the input \[2\]: \[\[2, 1\]\]",
    ),
    (lambda: hr.reduce_sum(of(2, 3), [0, -2]), r"Axes contains duplicate dimension, in \(?\[?0, -2"),
    (lambda: hr.argmax(of(2, 3), 2), r"Dimension must be in the range \[-2, 2\), but got 2"),
    (lambda: hr.dynamic_partition(of(2), of(2, 3, dtype=hr.int32), 2), r"\[2\] must start with \[2,3\]"),
    (lambda: hr.cumsum(of(2, 3), 2), r"ScanOp: Expected scan axis in the range \[-2, 2\), but got 2"),
    (lambda: hr.unsorted_segment_sum(of(2), [0, 1], -1), "Input num_segments == -1 must not be negative"),
    (
        lambda: hr.expand_dims(of(2), hr.constant([0, 1])),
        r"'dim' input must be a tensor with a single value, got shape \[2\]",
    ),
    (
        lambda: hr.broadcast_to(of(2, 3), [3]),
        r"Rank of input \(2\) must be no greater than rank of output shape \(1\)",
    ),
    (lambda: hr.slice(of(2, 3), [0, -2], [1, 1]), "begin and size must not be negative, -1 aside: -2 and 1"),
    (lambda: hr.slice(of(2, 3), of(2, dtype=hr.int32), [1, 4]), r"Expected size\[1\] in \[0, 3\], but got 4"),
    (
        lambda: ops.StridedSlice(input=of(), begin=[0], end=[1], strides=[1], shrink_axis_mask=1),
        "Attempting to slice scalar input",
    ),
    (
        lambda: ops._AllReduce(inputs=[of(2), of(2)], devices=["/cpu:0"]),
        r"'devices' must name one for each of the 2 participants, got \['/cpu:0'\]",
    ),
    (lambda: ops._Join(parts=[of(2), of(2)], shape=(3,)), r"parts of 4 elements cannot be joined to the shape \[3\]"),
    (lambda: hr.fill([-2], S), "-2"),
    (lambda: hr.random.uniform([-2]), "-2"),
    (
        lambda: ops.MatrixDiagV3(diagonal=of(3), k=0, num_rows=[[4]], num_cols=4, padding_value=S),
        r"Shape must be (at most )?rank \d but is rank 2: \[1,1\]",
    ),
    (
        lambda: ops.TensorListReserve(element_shape=[[3]], num_elements=1, element_dtype=hr.float32),
        r"Shape must be rank 1 but is rank 2: \[1,1\]",
    ),
    (
        lambda: ops.EmptyTensorList(element_shape=[[3]], max_num_elements=1, element_dtype=hr.float32),
        r"Shape must be rank 1 but is rank 2: \[1,1\]",
    ),
    (lambda: hr.slice(of(2), [[0]], [[1]]), "rank"),
]


@pytest.mark.parametrize(("how", "says"), SHAPES)
def test_what_a_shape_rule_says(how, says):
    with hr.Graph():
        check(how, ShapeError, says + r".* made at .*test_ops.py:\d+")


def test_abort():
    check(lambda: ops.Abort(error_msg="enough"), AbortedError, "Abort: enough")
    check(lambda: run(lambda: ops.Abort()), AbortedError, "Abort: Abort was run")


def a_list(*values: Any) -> Any:
    """A list of tensors."""
    shape = -1
    out = ops.EmptyTensorList(element_shape=shape, max_num_elements=-1, element_dtype=hr.float32)
    for v in values:
        out = ops.TensorListPushBack(input_handle=out, tensor=v)
    return out


def split_array(value: Any, lengths: Any) -> Any:
    handle, flow = ops.TensorArrayV3(size=1, dtype=hr.float32)
    return ops.TensorArraySplitV3(handle=handle, value=value, lengths=lengths, flow_in=flow)


def variants(*handles: Any) -> Any:
    """A vector of lists."""
    return ops.Pack(values=list(handles))


def ragged(splits: Any, values: Any, wanted: hr.DType, outer: int) -> Any:
    """The tensors read from a variant that holds these rows."""
    made = ops.RaggedTensorToVariant(
        rt_nested_splits=[hr.constant(splits, hr.int64)], rt_dense_values=values, batched_input=False
    )
    return ops.RaggedTensorFromVariant(
        encoded_ragged=made, input_ragged_rank=1, output_ragged_rank=outer, Tvalues=hr.float32, Tsplits=wanted
    )


def rows(values: Any) -> Any:
    """Values as the variant of a ragged tensor without rows."""
    return ops.RaggedTensorToVariant(rt_nested_splits=[], rt_dense_values=values, Tsplits=hr.int64, batched_input=False)


# Errors that take more than arrays: eagerly.
EAGER = [
    (
        lambda: ops.StringFormat(inputs=[S], template="no holder"),
        InvalidArgumentError,
        "num placeholders in template and num inputs must match: 0 vs. 1",
    ),
    (
        lambda: ragged([0, 1], [1.0], hr.int64, 0),
        InvalidArgumentError,
        r"output_ragged_rank must be equal to .*: 0 is not 1 \+ 0",
    ),
    (
        lambda: ops.RaggedTensorFromVariant(
            encoded_ragged=variants(a_list(1.0)), input_ragged_rank=0, output_ragged_rank=1, Tvalues=hr.float32
        ),
        InvalidArgumentError,
        "Input Variant element doesn't hold a RaggedTensorVariant, but ",
    ),
    (
        lambda: ragged([0, 1], [1.0], hr.int32, 1),
        InvalidArgumentError,
        "Expected row_splits Tensor dtype: int32",
    ),
    (
        lambda: ops.TensorListPushBackBatch(input_handles=a_list(1.0), tensor=V),
        InvalidArgumentError,
        r"Expected input_handles to be a vector, but saw shape: \[\]",
    ),
    (
        lambda: ops.TensorListPushBackBatch(input_handles=variants(a_list(1.0)), tensor=S),
        InvalidArgumentError,
        r"Expected tensor to be at least a vector, but saw shape: \[\]",
    ),
    (
        lambda: ops.TensorListPushBackBatch(input_handles=variants(a_list(1.0)), tensor=V),
        InvalidArgumentError,
        r"Expected tensor.shape\[0\] == input_handles.size, but saw 3 vs. 1",
    ),
    (
        lambda: ops.TensorListConcatLists(input_a=a_list(1.0), input_b=variants(a_list(1.0)), element_dtype=hr.float32),
        InvalidArgumentError,
        r"Incompatible input TensorList tensor shapes: \[\] vs. \[1\]",
    ),
    (
        lambda: ops.TensorListConcatV2(
            input_handle=a_list(V), element_shape=-1, leading_dims=[-2], element_dtype=hr.float32
        ),
        InvalidArgumentError,
        r"leading_dims must not be negative, got \[-2\]",
    ),
    (
        lambda: ops.TensorListSplit(tensor=V, element_shape=-1, lengths=3),
        InvalidArgumentError,
        r"Expected lengths to be a vector, received shape: \[\]",
    ),
    (
        lambda: ops.TensorListScatterIntoExistingList(input_handle=a_list(S, S), tensor=V, indices=0),
        InvalidArgumentError,
        r"Expected indices to be a vector, but received shape: \[\]",
    ),
    (
        lambda: ops.TensorListReserve(element_shape=-1, num_elements=[2], element_dtype=hr.float32),
        InvalidArgumentError,
        r"num_elements expected to be a scalar but got shape: \[1\]",
    ),
    (lambda: split_array(V, 3), InvalidArgumentError, r"Expected lengths to be a vector, received shape: \[\]"),
    (lambda: split_array(S, [1]), InvalidArgumentError, r"Expected value to be at least a vector, but received.*\[\]"),
    (
        lambda: ops.AddN(inputs=[ops.OptionalFromValue(components=[V]), ops.OptionalFromValue(components=[M])]),
        InvalidArgumentError,
        r"Cannot add optionals with components of shapes \[3\] and \[2,3\]",
    ),
    (
        lambda: ops.ReadVariableOp(resource=hr.py_func(lambda: 3, [], hr.resource), dtype=hr.float32),
        InvalidArgumentError,
        r"expected the handle of a Variable \(a scalar of dtype resource\), got int",
    ),
    (lambda: ops.AddN(inputs=[rows(M), rows(V)]), InvalidArgumentError, "cannot add ragged tensors of different rows"),
    (
        lambda: ops.RaggedTensorToVariantGradient(
            encoded_ragged_grad=variants(rows(V), rows(V)),
            row_splits=np.array([0, 1]),
            dense_values_shape=[3],
            Tvalues=hr.float32,
        ),
        InvalidArgumentError,
        "row_splits are of 1 rows, the gradient has 2",
    ),
    (
        lambda: ops.RaggedTensorFromVariant(
            encoded_ragged=variants(rows(S)),
            input_ragged_rank=0,
            output_ragged_rank=1,
            Tvalues=hr.float32,
            Tsplits=hr.int64,
        ),
        InvalidArgumentError,
        "Requires values of rank at least 1 to stack the rows, got a scalar",
    ),
    (
        lambda: ops.ShardedFilename(basename=["a"], shard=0, num_shards=1),
        InvalidArgumentError,
        "ShardedFilename takes scalars",
    ),
    (
        lambda: ops.RestoreV2(prefix="a", tensor_names=["b"], shape_and_slices=[""], dtypes=[hr.float32]),
        NotFoundError,
        "Failed to find any matching files for a",
    ),
    (
        lambda: ops.TensorListStack(
            input_handle=ops.TensorListReserve(element_shape=-1, num_elements=2, element_dtype=hr.float32),
            element_shape=-1,
            element_dtype=hr.float32,
        ),
        InvalidArgumentError,
        "list which only contains uninitialized tensors .*Was what write\\(\\) returned lost",
    ),
    (lambda: ops.Einsum(inputs=[M], equation="ij"), InvalidArgumentError, "Expecting exactly one '->' in einsum"),
    (
        lambda: ops.ResourceGather(resource=hr.Variable([1.0]).handle, indices=[0], dtype=hr.int32),
        InvalidArgumentError,
        "Trying to access variable .* with wrong dtype. Expected float32 got int32",
    ),
    (
        lambda: ops.ResourceGather(resource=hr.Variable(1.0).handle, indices=[0], dtype=hr.float32),
        InvalidArgumentError,
        "params must be at least 1 dimensional, got a scalar",
    ),
    (
        lambda: ops.ResourceCountUpTo(resource=hr.Variable([1, 2]).handle, limit=3, T=hr.int32),
        InvalidArgumentError,
        r"input is not a scalar: \[2\]",
    ),
    (
        lambda: hr.py_func(lambda: ([[1], [2, 3]],), [], [hr.int32]),
        InvalidArgumentError,
        "0-th value returned by .* is no array: ",
    ),
]


@pytest.mark.parametrize(("how", "error", "says"), EAGER)
def test_what_is_said_outside_a_graph(how, error, says):
    check(how, error, says)


# Errors of the ops on variables.
VARIABLES = [
    (
        lambda v: ops.ResourceGather(resource=v.handle, indices=[0], dtype=hr.int32),
        ShapeError,
        "Trying to access variable with wrong dtype. Expected float32 got int32",
    ),
    (
        lambda v: ops.ResourceGather(resource=v.handle, indices=[0], dtype=hr.float32, batch_dims=-1),
        ShapeError,
        r"batch_dims is negative \(-1\)",
    ),
    (
        lambda v: hr.gradients(
            ops.ResourceGather(resource=v.handle, indices=[[0], [1]], dtype=hr.float32, batch_dims=1), v
        ),
        LookupError,
        "ResourceGather with batch_dims has no gradient; read the variable and use GatherV2",
    ),
]


@pytest.mark.parametrize(("how", "error", "says"), VARIABLES)
def test_what_is_said_of_variables(how, error, says):
    with hr.Graph():
        v = hr.Variable([[1.0, 2.0], [3.0, 4.0]])
        check(lambda: how(v), error, says)


def explicitly_prevented():
    x = of(2)
    return hr.gradients(hr.prevent_gradient(x * 2.0, message="not this way"), x)


def einsum_of_any_rank():
    x, y = open_(), open_()
    return hr.gradients(hr.einsum("...i,...i->...", x, y), x)


def lists_of_lists():
    """The gradient of a gather adds up the gradients of one index.

    Lists cannot be added.
    """
    x = of(2)
    inner = ops.TensorListFromTensor(tensor=x, element_shape=NO_DIMS)
    outer = ops.EmptyTensorList(element_shape=NO_DIMS, max_num_elements=-1, element_dtype=hr.variant)
    outer = ops.TensorListPushBack(input_handle=outer, tensor=inner)
    rows = ops.TensorListGather(
        input_handle=outer, indices=of(3, dtype=hr.int32), element_shape=NO_DIMS, element_dtype=hr.variant
    )
    y = ops.TensorListStack(input_handle=rows[0], element_shape=NO_DIMS, element_dtype=hr.float32)
    return hr.gradients(y, x)


GRADIENTS = [
    (
        lists_of_lists,
        LookupError,
        "TensorListGather of a list of lists has a gradient only where the indices are known",
    ),
    (explicitly_prevented, LookupError, "Gradient explicitly disabled. Reason: 'not this way'"),
    (einsum_of_any_rank, LookupError, "the gradient of Einsum .* with `...` needs inputs of known rank"),
]


@pytest.mark.parametrize(("how", "error", "says"), GRADIENTS)
def test_what_is_said_of_gradients(how, error, says):
    with hr.Graph():
        check(how, error, says)


def test_a_reference_variable_of_another_dtype():
    """TensorFlow 1's variables, as imported graphs have them: two operations may share one."""
    with hr.Graph() as g:
        a = ops.VariableV2(shape=(), dtype=hr.float32, shared_name="v")
        b = ops.VariableV2(shape=(), dtype=hr.int32, shared_name="v")
        assigned = ops.Assign(ref=a, value=1.0).op
    with hr.Session(graph=g) as session:
        session.run(assigned)
        check(
            lambda: session.run(b),
            InvalidArgumentError,
            "access variable v with wrong dtype. Expected float32 got int32",
        )
