"""Error texts about graphs.

The graphs are imported, or have operations that do not belong in the place of their use.
"""

from __future__ import annotations

from typing import Any

import pytest

import headrace as hr
from headrace import pb
from headrace.errors import GraphError, InvalidArgumentError, NotFoundError, ShapeError
from tests.errors.table import check, open_

ops = hr.raw_ops


def imported(tensor: pb.TensorProto) -> Any:
    """The value of a constant in a file."""
    node = pb.NodeDef(name="c", op="Const")
    node.attr["dtype"].type = tensor.dtype
    node.attr["value"].tensor.CopyFrom(tensor)
    with hr.Graph() as g:
        hr.import_graph_def(pb.GraphDef(node=[node]), name="")
    with hr.Session(graph=g) as session:
        return session.run("c:0")


def tensor(dtype: hr.DType, *dims: int, **fields: Any) -> pb.TensorProto:
    shape = pb.TensorShapeProto(dim=[pb.TensorShapeProto.Dim(size=d) for d in dims])
    return pb.TensorProto(dtype=dtype.number, tensor_shape=shape, **fields)


BAD_CONSTANTS = [
    (tensor(hr.resource, 1, int_val=[1]), "a constant cannot be resource"),
    (tensor(hr.float64, 10**8, double_val=[1, 2]), "100000000 elements are given by 2; write them out"),
    (
        tensor(hr.float32, 2, tensor_content=b"abc"),
        "it has 3 bytes of content; 2 elements of float32 take 8",
    ),
    (tensor(hr.string, 3, tensor_content=b"ab"), "it has 2 bytes of content for 3 strings"),
    (tensor(hr.string, 1, tensor_content=b"\xff"), "the lengths of its strings are damaged"),
    (tensor(hr.string, 1, tensor_content=b"\x05ab"), "its strings take 5 bytes, and there are 2"),
]


@pytest.mark.parametrize(("proto", "says"), BAD_CONSTANTS)
def test_a_constant_that_cannot_be_read(proto, says):
    """The graph can be imported, since a part that is not run does not matter.

    A step that runs the part fails with the reason.
    """
    check(lambda: imported(proto), InvalidArgumentError, f"Cannot parse tensor from proto: {says}")


def control_from_elsewhere():
    with hr.Graph():
        other = hr.no_op(name="elsewhere")

    def body(i):
        with hr.control_dependencies([other]):
            return i + 1

    return hr.while_loop(lambda i: i < 3, body, [hr.constant(0)])


def several_names():
    with hr.Graph() as g:
        hr.constant(1)
    return hr.import_graph_def(g.as_graph_def(), return_elements=[3])


def rows_without_a_shape():
    return hr.convert_to_tensor(hr.IndexedSlices(hr.constant([1.0]), hr.constant([0])))


ROWS = [
    (control_from_elsewhere, GraphError, "elsewhere"),
    (lambda: hr.Graph().function("nowhere"), NotFoundError, "Function 'nowhere' is not in the library of the graph$"),
    (several_names, TypeError, "return_elements must be names, got 3"),
    (rows_without_a_shape, ValueError, "the IndexedSlices '.*' cannot become a tensor: it has no dense_shape"),
    (
        lambda: ops.TensorListReserve(element_shape=3, num_elements=2, element_dtype=hr.float32),
        ShapeError,
        "The only valid scalar shape tensor is the fully unknown shape specified as -1, got 3",
    ),
    (
        lambda: ops.TensorListStack(
            input_handle=ops.TensorListReserve(element_shape=[3], num_elements=2, element_dtype=hr.float32),
            element_shape=[3],
            element_dtype=hr.int32,
        ),
        ShapeError,
        "Expected list with element dtype int32 but got list with float32",
    ),
    (
        lambda: ops.AssignAdd(ref=hr.constant(1.0), value=1.0),
        GraphError,
        r"Input 0 of AssignAdd must be a reference \(.*, a variable\), got .*float32.*, which is a value",
    ),
    (lambda: hr.reshape(open_(), hr.constant([[2]])), ShapeError, r"Shape must be .*rank 1 but is rank 2: \[1,1\]"),
    (lambda: ops.Sum(input=open_(), reduction_indices=0, keep_dims=2), GraphError, "keep_dims.*2"),
    (
        lambda: hr.pad(open_(hr.float32, 2), [[2**62, 2**62]]),
        ShapeError,
        "Dimension 9223372036854775810 must be >= 0 and below 2",
    ),
    (
        lambda: ops.Conv2D(input=open_(), filter=open_(), strides=[1, 1], padding="SAME"),
        ShapeError,
        r"requires the stride attribute to contain 4 values, but got: 2",
    ),
]


@pytest.mark.parametrize(("how", "error", "says"), ROWS)
def test_what_is_said(how, error, says):
    with hr.Graph():
        check(how, error, says)


# Attributes with a value of another kind, or one that is not allowed.
ATTRIBUTES = [
    (lambda: ops.Cast(x=open_(), DstT=hr.int32, Truncate=1), "'Truncate' of Cast must be bool, got 1"),
    (lambda: split(True), "'num_split' of Split must be int >= 1, got True"),
    (lambda: split(2.5), "'num_split' of Split must be int >= 1, got 2.5"),
    (lambda: split(0), "'num_split' of Split must be int >= 1, got 0"),
    (
        lambda: ops.MirrorPad(input=open_(), paddings=[[1, 1]], mode="EDGE"),
        "'mode' of MirrorPad must be string in {REFLECT, SYMMETRIC}, got 'EDGE'",
    ),
    (lambda: ops.Placeholder(dtype=hr.float32, shape=3), "'shape' of Placeholder must be shape, got 3"),
    (lambda: ops.LeakyRelu(features=open_(), alpha="much"), "'alpha' of LeakyRelu must be float, got 'much'"),
    (
        lambda: ops.Conv2D(input=open_(), filter=open_(), strides=2, padding="SAME"),
        r"'strides' of Conv2D must be list\(int\), got 2",
    ),
]


def split(n: Any) -> Any:
    return ops.Split(split_dim=0, value=open_(), num_split=n)


@pytest.mark.parametrize(("how", "says"), ATTRIBUTES)
def test_an_attribute_of_another_kind(how, says):
    with hr.Graph():
        check(how, GraphError, "attribute " + says)


def test_a_dtype_that_is_none():
    with hr.Graph():
        check(lambda: ops.Placeholder(dtype=3.5), TypeError, "3.5 is not a dtype; headrace has bfloat16, ")
