"""Error texts of kernels about unusable arrays.

They are the same outside of graphs and in a step.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import headrace as hr
from headrace.errors import (
    InvalidArgumentError,
)
from headrace.ir.opdef import op_registry
from tests.errors.table import check, hidden, run

ops = hr.raw_ops
M = np.ones((2, 3), np.float32)
V = np.ones(3, np.float32)
S = np.float32(1)
NO_DIMS = np.zeros(0, np.int32)
IMAGE = np.ones((1, 1, 1, 1), np.float32)


def apply(type: str, given: dict[str, Any], wrap: Any) -> Any:
    """The op on the arrays in `given`, each of them wrapped.

    An argument that is no input is an attribute.
    """
    inputs = {a.name for a in op_registry.get(type).ins}

    def wrapped(x: Any) -> Any:
        return [wrap(e) for e in x] if isinstance(x, tuple) else wrap(x)

    return getattr(ops, type)(**{k: wrapped(v) if k in inputs else v for k, v in given.items()})


def diag(**changes: Any) -> dict[str, Any]:
    return {"diagonal": V, "k": 0, "num_rows": -1, "num_cols": -1, "padding_value": S, **changes}


def onehot(**changes: Any) -> dict[str, Any]:
    return {"indices": [0], "depth": 2, "on_value": S, "off_value": S, **changes}


def splits(**changes: Any) -> dict[str, Any]:
    return {"value": V, "size_splits": [1, 1, 1], "split_dim": 0, "num_split": 3, **changes}


def reverse(**changes: Any) -> dict[str, Any]:
    return {"input": M, "seq_lengths": [1, 1], "seq_dim": 1, "batch_dim": 0, **changes}


# Op, inputs (a tuple is a list of them) and attributes, what is said.
KERNELS: list[tuple[str, dict[str, Any], str]] = [
    ("Cross", {"a": S, "b": S}, r"Input must be at least 1D, got \[\]"),
    (
        "MatrixDiagV3",
        {"diagonal": M, "k": [1, -1], "num_rows": -1, "num_cols": -1, "padding_value": S},
        "lower_diag_index must not be larger than upper_diag_index: 1 > -1",
    ),
    (
        "AsString",
        {"input": [1], "scientific": True},
        "scientific and shortest format not supported for datatype int32",
    ),
    ("AsString", {"input": [1.0], "scientific": True, "shortest": True}, "Cannot select both scientific and shortest"),
    ("AsString", {"input": [1.0], "fill": "00"}, "Fill string must be one or fewer characters, got '00'"),
    ("StringToNumber", {"string_tensor": ["1_0"]}, "could not correctly convert string: 1_0 to float32"),
    (
        "StringToNumber",
        {"string_tensor": ["1_0"], "out_type": hr.int32},
        "could not correctly convert string: 1_0 to int32",
    ),
    ("AddN", {"inputs": (V, M)}, r"same size and shape. Input 0: \[3\] != input 1: \[2,3\]"),
    # diagonals
    ("MatrixDiagPartV3", {"input": M, "k": [[0]], "padding_value": S}, r"a scalar or a vector of one or two.*\[1,1\]"),
    ("MatrixDiagPartV3", {"input": V, "k": 0, "padding_value": S}, r"input must be at least 2-dim.*: \[3\]"),
    (
        "MatrixDiagPartV3",
        {"input": M, "k": 3, "padding_value": S},
        "diag_index is out of bound: 3. It must be between -2",
    ),
    (
        "MatrixDiagPartV3",
        {"input": M, "k": [1, 0], "padding_value": S},
        "lower_diag_index must not be larger than upper_diag_index: 1 > 0",
    ),
    ("MatrixDiagV3", diag(num_rows=[2]), "num_rows, num_cols and padding_value must be scalars"),
    ("MatrixDiagV3", diag(diagonal=S), r"diagonal must be at least 1-dim, received shape: \[\]"),
    (
        "MatrixDiagV3",
        diag(diagonal=M, k=[0, 2]),
        "The number of diagonals provided .*: 2 rows for the diagonals 0 to 2",
    ),
    ("MatrixDiagV3", diag(num_cols=1), "The number of columns is too small: 1, and the diagonals need 3"),
    (
        "MatrixDiagV3",
        diag(num_rows=5, num_cols=5),
        "rows or columns is not consistent.*5 x 5 for diagonals of 3 elements",
    ),
    ("MatrixSetDiagV3", {"input": V, "diagonal": V, "k": 0}, r"input must be at least 2-dim, received shape: \[3\]"),
    ("MatrixDiag", {"diagonal": S}, r"input must be at least 1-dim, received shape: \[\]"),
    ("MatrixBandPart", {"input": V, "num_lower": 0, "num_upper": 0}, r"input must be at least 2-dim.* \[3\]"),
    ("MatrixBandPart", {"input": M, "num_lower": 5, "num_upper": 0}, "num_lower must be negative or less.* 2, got: 5"),
    ("Diag", {"diagonal": S}, "Input must be at least rank 1, got 0"),
    ("DiagPart", {"input": V}, r"rank must be even and positive and both halves of the shape equal, got \[3\]"),
    # filling
    ("Fill", {"dims": [2], "value": V}, r"value must be a scalar, got shape \[3\]"),
    ("Range", {"start": V, "limit": S, "delta": S}, r"start must be a scalar, got shape \[3\]"),
    ("Range", {"start": 1, "limit": 5, "delta": -1}, "Requires start >= limit when delta < 0: 1/5"),
    ("LinSpace", {"start": V, "stop": S, "num": 3}, r"start, stop and num must be scalars, got shapes .*\[3\]"),
    ("OneHot", onehot(depth=[2]), r"depth, on_value and off_value must be scalars, got shapes .*\[1\]"),
    ("OneHot", onehot(depth=-2), "depth must be non-negative, got: -2"),
    # finding
    ("UniqueV2", {"x": V, "axis": [0, 1]}, r"axis must be a vector of at most one element, got \[0, 1\]"),
    ("ListDiff", {"x": M, "y": V}, r"x and y should be 1D vectors, got shapes \[2,3\] and \[3\]"),
    ("TopKV2", {"input": S, "k": 1}, r"input must be >= 1-D, got shape \[\]"),
    ("TopKV2", {"input": V, "k": [1]}, r"k must be scalar, got shape \[1\]"),
    # gathering and scattering
    (
        "GatherV2",
        {"params": M, "indices": [[0], [0], [0]], "axis": 1, "batch_dims": 1},
        r"params.shape\[0\]: 2 should be equal to indices.shape\[0\]: 3",
    ),
    (
        "GatherV2",
        {"params": M, "indices": [0], "axis": 0, "batch_dims": 3},
        r"Expected batch_dims in the range \[-1, 1\], but got 3",
    ),
    ("GatherV2", {"params": V, "indices": [0], "axis": [0]}, r"axis must be scalar, got shape \[1\]"),
    ("GatherV2", {"params": S, "indices": [0], "axis": 0}, "params must be at least 1 dimensional"),
    ("Gather", {"params": S, "indices": [0]}, "params must be at least 1 dimensional"),
    (
        "ScatterNd",
        {"indices": [[0, 0]], "updates": [1.0], "shape": [2]},
        r"must have at most as many elements as there are dimensions, got 2 for the shape \[2\]",
    ),
    ("ScatterNd", {"indices": 0, "updates": [1.0], "shape": [2]}, r"shape must have rank at least one. Found: \[\]"),
    (
        "ScatterNd",
        {"indices": [[0]], "updates": [1.0, 2.0], "shape": [2]},
        r"Dimensions of updates must match indices and shape: .* they are \[1\], got \[2\]",
    ),
    ("GatherNd", {"params": S, "indices": [0]}, "params and indices must be at least vectors"),
    ("GatherNd", {"params": np.zeros((0,), np.float32), "indices": [[0]]}, "Requested more than 0 entries, but params"),
    ("InplaceAdd", {"x": M, "i": [[0]], "v": M}, r"i must be a vector .* got x: \[2,3\], i: \[1,1\], v: \[2,3\]"),
    # joining and splitting
    ("Unpack", {"value": V, "num": 2}, r"Input shape axis 0 must equal 2, got shape \[3\]"),
    ("ConcatOffset", {"concat_dim": [0], "shape": ([1], [1])}, "concat_dim must be a scalar and the shapes vectors"),
    ("ConcatOffset", {"concat_dim": 0, "shape": ([1], [1, 2])}, "input 1 should contain 1 elements, got 2"),
    ("ParallelConcat", {"values": (M,), "shape": (1, 3)}, r"must be one row of the same shape, got \[2,3\]"),
    ("Split", {"split_dim": [0], "value": V, "num_split": 3}, "split_dim must be a scalar but has rank 1"),
    ("SplitV", splits(size_splits=[-1, -1, 1]), r"There can only be one -1 in the input, got \[-1, -1, 1\]"),
    ("SplitV", splits(size_splits=[-2, 4, 1]), "Split size at index 0 must be >= 0. Got: -2"),
    ("SplitV", splits(size_splits=[1, 2]), r"must be \[3\], the number of outputs, but is \[2\]"),
    # layouts
    ("Transpose", {"x": M, "perm": [0]}, r"expects a vector of size 2. But input\(1\) is of shape \[1\]"),
    ("InvertPermutation", {"x": [[0]]}, r"expects a 1D vector, got shape \[1,1\]"),
    ("Tile", {"input": M, "multiples": [1]}, "multiples argument to be a vector of length 2 but got length 1"),
    ("Tile", {"input": V, "multiples": [-1]}, r"Expected multiples\[0\] >= 0, but got -1"),
    ("Tile", {"input": V, "multiples": [[1]]}, r"expected a vector of integers, got the shape \[1,1\]"),
    ("Pad", {"input": M, "paddings": [[1, 1]]}, r"2 columns and a row for each of the 2 dimensions.* shape \[1,2\]"),
    ("Pad", {"input": V, "paddings": [[-1, 1]]}, "Paddings must be non-negative: -1 1"),
    ("PadV2", {"input": V, "paddings": [[1, 1]], "constant_values": V}, r"constant_values must be a scalar.* \[3\]"),
    # reversing
    ("ReverseV2", {"tensor": V, "axis": [1]}, r"'axis'\[0\] = 1 is out of valid range \[0, 0\]"),
    ("ReverseV2", {"tensor": M, "axis": [1, -1]}, "axis 1 specified more than once"),
    (
        "ReverseSequence",
        reverse(seq_dim=0),
        "seq_dim = 0 and batch_dim = 0 must be two different dimensions, below .* 2",
    ),
    ("ReverseSequence", reverse(seq_lengths=[1]), r"Length of seq_lengths != input.dims\(0\), \(\[1\] vs. 2\)"),
    ("ReverseSequence", reverse(seq_lengths=[1, 4]), r"must be in \[0, 3\], the size of dimension 1, got \[1 4\]"),
    ("Roll", {"input": S, "shift": 1, "axis": 0}, "input must be 1-D or higher"),
    # routing and segments
    (
        "DynamicPartition",
        {"data": V, "partitions": [0], "num_partitions": 1},
        r"data.shape = \[3\], partitions.shape = \[",
    ),
    (
        "DynamicStitch",
        {"indices": ([0], [1]), "data": (M[:1], V)},
        r"data\[1\].shape = \[3\] must start with indices\[1\].shape = \[1\] and go on as \[3\]",
    ),
    ("SegmentSum", {"data": S, "segment_ids": [0]}, "input must be at least rank 1, got a scalar"),
    # shapes and slices
    ("ExpandDims", {"input": V, "dim": [0, 1]}, r"'dim' must have a single value, got shape \[2\]"),
    ("Squeeze", {"input": V, "squeeze_dims": [2]}, "Tried to squeeze dim index 2 for tensor with 1 dimensions"),
    ("Slice", {"input": V, "begin": [4], "size": [1]}, r"Expected begin\[0\] in \[0, 3\], but got 4"),
    (
        "Slice",
        {"input": M, "begin": [0], "size": [1]},
        r"1-D tensors of size 2, but got shapes \[1\] and \[1\] instead",
    ),
    (
        "StridedSliceGrad",
        {"shape": [3], "begin": [0], "end": [2], "strides": [1], "dy": V},
        r"shape of dy was \[3\] instead of \[2\]",
    ),
    # texts
    (
        "Substr",
        {"input": ["abc"], "pos": [0], "len": 1},
        r"pos and len should have the same shape, got: \[1\] vs. \[\]",
    ),
    ("ReduceJoin", {"inputs": [["a"]], "reduction_indices": [0, -2]}, r"Duplicate reduction dimension in \[0, -2\]"),
    # ragged tensors
    (
        "RaggedRange",
        {"starts": [1, 2], "limits": [3], "deltas": [1]},
        "starts, limits, and deltas must have the same shape: scalars, or vectors",
    ),
    (
        "RaggedRange",
        {"starts": [0.0], "limits": [1e30], "deltas": [1.0]},
        r"Requires \(\(limit - start\) / delta\) < 2\*\*62, got",
    ),
    (
        "Conv2D",
        {"input": M, "filter": IMAGE, "strides": [1] * 4, "padding": "SAME"},
        r"convolution input must be 4-dimensional: \[2,3\]",
    ),
    (
        "Conv2DBackpropInput",
        {"input_sizes": [1, 1, 1, 1], "filter": IMAGE, "out_backprop": M, "strides": [1] * 4, "padding": "SAME"},
        r"Conv2DBackpropInput: out_backprop must be 4-dimensional: \[2,3\]",
    ),
    (
        "RaggedTensorToVariant",
        {"rt_nested_splits": (), "rt_dense_values": S, "batched_input": True, "Tsplits": hr.int64},
        "batched_input is True, but input is a scalar, which has no rows",
    ),
]


@pytest.mark.parametrize(("type", "given", "says"), KERNELS)
def test_what_a_kernel_says(type, given, says):
    check(lambda: apply(type, given, hr.constant), InvalidArgumentError, says)
    check(lambda: run(lambda: apply(type, given, hidden)), InvalidArgumentError, says)
