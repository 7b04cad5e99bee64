"""Kernels on PyTorch's tensors read only inputs that their records name (`op(host=)`).

On a GPU the host would wait for all queued work to read another one. The tests run the cases of records with tensors
that note reads. `READ` lists the kernels that read other inputs, with the reasons.
"""

from __future__ import annotations

import importlib
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
import pytest

from headrace import dtypes
from headrace.ir.kernel import find_kernel, host_inputs
from headrace.ir.opdef import Case, op_registry
from tests.ops.cases import assert_close, cases, constant_op, dtype_of, first_types, flat, records, run_kernel
from tests.ops.namespaces import torch

pytest.importorskip("torch", reason="PyTorch is not installed (pip install -e '.[torch]')")
pytestmark = [pytest.mark.matrix, pytest.mark.one_engine]

#: Reason → op type → the inputs that its kernel reads.
READ: Mapping[str, Mapping[str, Collection[str]]] = {
    "the shape of a result depends on the elements": {
        "DynamicPartition": ("partitions",),
        "ListDiff": ("x", "y"),
        "SegmentMax": ("segment_ids",),
        "SegmentMean": ("segment_ids",),
        "SegmentMin": ("segment_ids",),
        "SegmentProd": ("segment_ids",),
        "SegmentSum": ("segment_ids",),
        "SparseSegmentMean": ("segment_ids",),
        "SparseSegmentMeanGradV2": ("indices",),
        "SparseSegmentSqrtN": ("segment_ids",),
        "SparseSegmentSqrtNGradV2": ("indices",),
        "SparseSegmentSum": ("segment_ids",),
        "SparseSegmentSumGradV2": ("indices",),
        "Unique": ("x",),
        "UniqueV2": ("x",),
        "UniqueWithCounts": ("x",),
        "UniqueWithCountsV2": ("x",),
        "Where": ("input",),
    },
    "the op exists to fail on them": {
        "CheckNumerics": ("tensor",),
        "CheckNumericsV2": ("tensor",),
    },
    "the decomposition may not exist, and PyTorch's function waits in any case": {
        "BatchSelfAdjointEig": ("input",),
        "BatchSelfAdjointEigV2": ("input",),
        "SelfAdjointEig": ("input",),
        "SelfAdjointEigV2": ("input",),
    },
    "the elements of a sparse tensor are checked, sorted and counted": {
        "RaggedFillEmptyRows": ("value_rowids",),
        "RaggedFillEmptyRowsGrad": ("reverse_index_map",),
        "SparseAdd": ("a_indices", "a_values", "b_indices", "b_values", "thresh"),
        "SparseAddGrad": ("a_indices", "b_indices", "sum_indices"),
        "SparseDenseCwiseAdd": ("sp_indices",),
        "SparseDenseCwiseDiv": ("sp_indices", "dense"),
        "SparseDenseCwiseMul": ("sp_indices",),
        "SparseFillEmptyRows": ("indices",),
        "SparseFillEmptyRowsGrad": ("reverse_index_map",),
        "SparseReduceMax": ("input_indices",),
        "SparseReduceMaxSparse": ("input_indices",),
        "SparseReduceSum": ("input_indices",),
        "SparseReduceSumSparse": ("input_indices",),
        "SparseReshape": ("input_indices",),
        "SparseSlice": ("indices",),
        "SparseSliceGrad": ("input_indices", "input_start", "output_indices"),
        "SparseSoftmax": ("sp_indices",),
        "SparseSparseMaximum": ("a_indices", "b_indices"),
        "SparseSparseMinimum": ("a_indices", "b_indices"),
        "SparseSplit": ("indices",),
        "SparseTensorDenseAdd": ("a_indices",),
        "SparseToDense": ("sparse_indices",),
    },
    "numpy computes cases that PyTorch has no function for": {
        "Einsum": ("inputs",),
        "MaxPool": ("input",),
        "MaxPoolV2": ("input",),
    },
    "the namespace of PyTorch's tensors reads a complex scalar": {
        "Sign": ("x",),
    },
}
LISTED = {type: set(names) for types in READ.values() for type, names in types.items()}
#: One of each kind, as the kernels of others of the kind read the same inputs.
KINDS = (dtypes.float32, dtypes.int32, dtypes.complex64, dtypes.bool_)


def of_device(type: str) -> bool:
    """Whether an op has cases, and a kernel for PyTorch's tensors."""
    record = op_registry.get(type)
    return record.is_pure and record.sample is not None and (record.xp or type in registered())


def registered() -> Collection[str]:
    importlib.import_module("headrace.devices.torch")  # registers the kernels
    found: Collection[str] = importlib.import_module("headrace.devices.torch.registering").registered
    return found


@pytest.mark.parametrize("type", [r.type for r in records() if of_device(r.type)])
def test_a_kernel_reads_the_inputs_that_are_on_the_host(type: str) -> None:
    allowed = first_types(op_registry.get(type))
    read: set[str] = set()
    for dtype in [d for d in KINDS if d in allowed] or allowed:
        read |= inputs_read(type, dtype)
    assert read == LISTED.get(type, set()), f"{type}: name these inputs in `host=`, or in `READ` if they are read"


def inputs_read(type: str, dtype: dtypes.DType) -> set[str]:
    """The names of the inputs that are read, after a check of the results."""
    from tests.ops.host_reads import HostReads

    there, found = torch(), set()
    for i, case in enumerate(cases(type, dtype)):
        op, args = constant_op(op_registry.get(type), case), flat(case.inputs)
        kernel = find_kernel(op, "TORCH")
        if kernel is None or not {*map(dtype_of, args), *(t.dtype for t in op.outputs)} <= there.dtypes:
            continue
        want = run_kernel(op, args)
        compute, host = kernel.factory(there.xp, op.attrs), host_inputs(op.opdef, op.attrs)
        given = [x if k in host else there.put(x) for k, x in enumerate(args)]
        with HostReads(given) as reads:
            out: Any = compute(*given)
        for g, w in zip((out,) if len(op.outputs) == 1 else out or (), want, strict=True):
            assert_close(there.get(g.resolve_conj()), np.asarray(w), f"case {i} of {type} {dtype}")
        spans = op.opdef.spans(op.attrs)
        found |= {name for name, span in spans.items() if reads.found & set(range(span.start, span.stop))}
    return found


def far(type: str, *inputs: Any, **attrs: Any) -> Any:
    """The result of a kernel on tensors in far memory, which reads none of them."""
    from tests.ops.host_reads import HostReads

    there, op = torch(), constant_op(op_registry.get(type), Case(inputs, attrs))
    kernel, host = find_kernel(op, "TORCH"), host_inputs(op.opdef, op.attrs)
    assert kernel is not None
    given = [x if k in host else there.put(x) for k, x in enumerate(flat(inputs))]
    with HostReads(given) as reads:
        out = kernel.factory(there.xp, op.attrs)(*given)
    assert not reads.found
    return there.get(out).tolist()


def f32(*x: Any) -> np.ndarray:
    return np.array(x, np.float32)


def i32(*x: Any) -> np.ndarray:
    return np.array(x, np.int32)


def test_reads_out_of_range_are_zero_and_writes_have_no_effect_in_far_memory() -> None:
    pool = {"ksize": (1, 1, 2, 1), "strides": (1, 1, 2, 1), "padding": "VALID"}
    image, pair = np.zeros((1, 1, 4, 1), np.float32), f32(5, 6).reshape(1, 1, 2, 1)
    places = np.array([9, 2]).reshape(1, 1, 2, 1)
    assert np.ravel(far("MaxPoolGradWithArgmax", image, pair, places, **pool)).tolist() == [0, 0, 6, 0]
    assert np.ravel(far("MaxPoolGradGradWithArgmax", image, image + 3, places, **pool)).tolist() == [0, 3]
    where, b = np.array([[0, 1], [5, 0], [1, 7]]), f32([1, 2], [3, 4])
    assert far("SparseTensorDenseMatMul", where, f32(1, 1, 1), np.array([2, 2]), b) == [[3, 4], [0, 0]]
    sums = far("SparseSegmentSumWithNumSegments", f32([1], [2]), i32(0, 1, 5), i32(0, 3, 1), np.int32(2))
    assert sums == [[1], [0]]
    assert far("ReverseSequence", i32([1, 2, 3]), i32(9), seq_dim=1) == [[3, 2, 1]]


@pytest.mark.parametrize(
    "read",
    [
        lambda x: int(x[0]),
        lambda x: x.tolist(),
        lambda x: x.numpy(),
        lambda x: bool((x * 2 > 1).any()),
        lambda x: x[x > 0],
        lambda x: x.nonzero(),
        lambda x: x.repeat_interleave(x),
    ],
)
def test_reads_are_noted(read: Any) -> None:
    from tests.ops.host_reads import HostReads

    tensors = [torch().put(i32(1, 2)), torch().put(i32(3, 4))]
    with HostReads(tensors) as reads:
        read(tensors[1] + 0)
    assert reads.found == {1}
