"""Kernels that declare `xp=True` compute in the namespace that they are given.

Each is run on the cases of its record with the arrays of `array_api_strict`, which refuse everything outside of the
array API standard, and with PyTorch's tensors. The results are those of the kernel for numpy. Records of list ops have
no cases; a program of calls takes their place.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from headrace import dtypes
from headrace.dtypes import DType
from headrace.errors import HeadraceError
from headrace.ir.kernel import from_outside, host_inputs
from headrace.ir.opdef import op_registry
from tests.ops.cases import assert_close, cases, constant_op, dtype_of, first_types, flat, records, run_kernel
from tests.ops.namespaces import NAMESPACES, Namespace

pytestmark = [pytest.mark.matrix, pytest.mark.one_engine]

DECLARED = [r.type for r in records() if r.xp and r.sample is not None]


@pytest.mark.parametrize("namespace", NAMESPACES)
@pytest.mark.parametrize("type", DECLARED)
def test_a_declared_kernel_computes_in_its_namespace(type: str, namespace: str) -> None:
    there = NAMESPACES[namespace]()
    ran = [check(type, dtype, there) for dtype in first_types(op_registry.get(type))]
    assert sum(ran), f"no case of {type} has element types that {namespace} has"


def check(type: str, dtype: DType, there: Namespace) -> int:
    """Compares the results of a kernel with those for numpy; returns the number of cases."""
    ran = 0
    for i, case in enumerate(cases(type, dtype)):
        op = constant_op(op_registry.get(type), case)
        args = flat(case.inputs)
        if not {*map(dtype_of, args), *(t.dtype for t in op.outputs)} <= there.dtypes:
            continue
        where = f"case {i} of {type} {dtype} {dict(case.attrs)}"
        want = run_kernel(op, args)
        kernel = op.opdef.kernel
        assert kernel is not None
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore", RuntimeWarning)  # divisions by 0, in array_api_strict's numpy
            compute, host = kernel(there.xp, op.attrs), host_inputs(op.opdef, op.attrs)
            outs = [compute(*map(there.put, args))]
            if host:  # axes and sizes may be on the host
                outs.append(compute(*(x if k in host else there.put(x) for k, x in enumerate(args))))
        for out in outs:
            got = (out,) if len(op.outputs) == 1 else tuple(out or ())
            assert len(got) == len(want), where
            for g, w in zip(got, want, strict=True):
                assert isinstance(g, there.array), f"{where}: {g!r} is no array of the namespace"
                assert_close(there.get(g), np.asarray(w), where)
        ran += 1
    return ran


# *** lists, whose elements are arrays of a namespace ***

_ATTRS = {
    "element_dtype": dtypes.float32,
    "shape_type": dtypes.int32,
    "element_shape": (None, 2),
    "num_elements": -1,
    "resize_if_index_out_of_bounds": True,
}


class Calls:
    """Calls the kernels of list ops in a namespace: `calls("PushBack", ...)` for `TensorListPushBack`."""

    def __init__(self, xp: Any, put: Callable[[np.ndarray], Any]) -> None:
        self.called: set[str] = set()
        self._xp, self._put = xp, put

    def __call__(self, name: str, *args: Any) -> Any:
        type = next(t for t in (f"TensorList{name}", f"_TensorList{name[1:]}", name) if t in op_registry)
        self.called.add(type)
        kernel = op_registry.get(type).kernel
        assert kernel is not None
        return kernel(self._xp, _ATTRS)(*args)

    def ints(self, *x: int) -> Any:
        return self._put(np.array(x, np.int32))

    def scalar(self, x: int) -> Any:
        return self._put(np.array(x, np.int32))

    def rows(self, n: int, first: int = 0) -> Any:
        return self._put(np.arange(first, first + 2 * n, dtype=np.float32).reshape(n, 2))


def results(calls: Calls) -> list[Any]:
    """Arrays that the list ops return."""
    ints, int_, rows = calls.ints, calls.scalar, calls.rows
    row, any_shape, blank = ints(2), int_(-1), calls("Reserve", ints(-1), int_(2))
    x = calls("PushBack", calls("EmptyTensorList", any_shape, int_(-1)), rows(2))
    x = calls("PushBack", x, rows(1, 7))
    rest, last = calls("PopBack", x, any_shape)
    put = calls("SetItem", blank, int_(1), rows(1)[0, ...])
    put = calls("SetItem", put, int_(3), rows(1, 5)[0, ...])
    _, zeros = calls("PopBack", calls("Resize", put, int_(5)), row)
    several = calls("FromTensor", rows(4), row)
    longer = calls("ConcatLists", several, calls("Scatter", rows(2, 20), ints(1, 0), row))
    first, second = calls("_Split", longer, several)
    both = np.empty(2, object)
    both[:] = [several, calls("ScatterV2", rows(1), ints(0), row, int_(2))]
    pushed = calls("PushBackBatch", both, rows(2, 30))
    _, popped = calls("_PopBackBatch", pushed, row)
    pieces = calls("Split", rows(3), ints(-1, 2), ints(1, 2))
    more = calls("ScatterIntoExistingList", several, rows(2, 40), ints(5, 0))
    return [
        *calls("Concat", x),
        *calls("ConcatV2", calls("Resize", pieces, int_(3)), ints(-1, 2), ints(1, 1, 2)),
        last,
        calls("Length", rest),
        calls("ElementShape", several),
        calls("ElementShape", blank),
        calls("Stack", put, any_shape),
        calls("Stack", calls("Reserve", row, int_(3)), row),
        calls("GetItem", put, int_(1), row),
        calls("GetItem", put, int_(0), row),
        zeros,
        calls("Gather", more, ints(0, 4, 5), row),
        calls("Gather", several, ints(), row),
        calls("Stack", calls("_Unset", several, ints(1, 2)), row),
        calls("Stack", first, row),
        calls("Stack", second, row),
        calls("Stack", pushed[1], row),
        popped,
    ]


@pytest.mark.parametrize("namespace", NAMESPACES)
def test_lists_hold_the_arrays_of_a_namespace(namespace: str) -> None:
    there = NAMESPACES[namespace]()
    want = results(Calls(np, np.asarray))
    for i, (g, w) in enumerate(zip(results(Calls(there.xp, there.put)), want, strict=True)):
        assert isinstance(g, there.array), f"result {i}: {g!r} is no array of the namespace"
        assert_close(there.get(g), np.asarray(w), f"result {i}")


def test_every_declared_kernel_has_a_case_or_is_in_the_program() -> None:
    calls = Calls(np, np.asarray)
    results(calls)
    without = {r.type for r in records() if r.xp and r.kernel is not None and r.sample is None}
    assert {type for type in without if not from_outside(type)} <= calls.called  # other tests register op types


# *** errors ***


def i32(*x: Any) -> np.ndarray:
    return np.array(x, np.int32)


def f32(*shape: int) -> np.ndarray:
    return np.zeros(shape, np.float32)


_0, _1, _2, _9 = map(np.int32, (0, 1, 2, 9))
_SLICE = dict.fromkeys(("begin_mask", "end_mask", "ellipsis_mask", "new_axis_mask", "shrink_axis_mask"), 0)

#: Calls that each namespace refuses with the same error: op, inputs, attributes.
REFUSED: tuple[tuple[str, list[Any], dict[str, Any]], ...] = (
    ("Reshape", [f32(2, 3), i32(4, -1)], {}),
    ("Reshape", [f32(2, 3), i32(5)], {}),
    ("Reshape", [f32(2, 3), i32(-1, -1)], {}),
    ("Reshape", [f32(2, 3), i32(-2, 3)], {}),
    ("Reshape", [f32(2, 3), i32(0, -1)], {}),
    ("Reshape", [f32(2, 3), i32([6])], {}),
    ("ExpandDims", [f32(2), i32(0, 1)], {}),
    ("ExpandDims", [f32(2), _2], {}),
    ("Squeeze", [f32(1, 2)], {"squeeze_dims": (1,)}),
    ("EnsureShape", [f32(1, 2)], {"shape": (1, 3)}),
    ("BroadcastTo", [f32(2), i32(3)], {}),
    ("BroadcastTo", [f32(2), i32(2, 1)], {}),
    ("BroadcastTo", [f32(1, 2), i32(2)], {}),
    ("BroadcastArgs", [i32(2), i32(3)], {"T": dtypes.int32}),
    ("UnravelIndex", [i32(1, 9), i32(2, 3)], {}),
    ("UnravelIndex", [i32(1), i32(2, 0)], {}),
    ("UnravelIndex", [i32(), i32(2)], {}),
    ("Transpose", [f32(2, 3), i32(0)], {}),
    ("Transpose", [f32(2, 3), i32(1, 1)], {}),
    ("InvertPermutation", [i32(0, 0)], {"T": dtypes.int32}),
    ("InvertPermutation", [i32(0, 2)], {"T": dtypes.int32}),
    ("Tile", [f32(2, 3), i32(1)], {}),
    ("Tile", [f32(2, 3), i32(1, -1)], {}),
    ("Pad", [f32(2), i32([0, -1])], {}),
    ("Pad", [f32(2), i32(0, 1)], {}),
    ("MirrorPad", [f32(2), i32([2, 0])], {"mode": "REFLECT"}),
    ("Pack", [f32(2), f32(3)], {"N": 2, "axis": 0}),
    ("Unpack", [f32(2)], {"num": 3, "axis": 0}),
    ("ConcatV2", [f32(2), f32(3), _1], {}),
    ("ConcatOffset", [_0, i32(2, 3), i32(2, 4)], {"shape_type": dtypes.int32}),
    ("Split", [_0, f32(3)], {"num_split": 2}),
    ("SplitV", [f32(3), i32(1, 1), _0], {"num_split": 2}),
    ("Slice", [f32(3), i32(2), i32(2)], {}),
    ("StridedSlice", [f32(3), i32(3), i32(4), i32(1)], {"shrink_axis_mask": 1}),
    ("StridedSlice", [f32(3), i32(0, 0), i32(1, 1), i32(1, 1)], {}),
    ("StridedSlice", [f32(3), i32(0), i32(1), i32(0)], {}),
    ("StridedSliceGrad", [i32(3), i32(0), i32(2), i32(1), f32(3)], {}),
    ("TensorStridedSliceUpdate", [f32(3), i32(0), i32(2), i32(1), f32(3)], {}),
    ("TensorStridedSliceUpdate", [f32(3), i32(0), i32(2), i32(1), f32(2, 2)], {}),
    ("Gather", [f32(3), i32(0, 3)], {}),
    ("GatherV2", [f32(3, 2), i32([0, 1], [-1, 0]), _1], {}),
    ("GatherV2", [f32(3, 2), _9, _0], {}),
    ("GatherV2", [f32(3, 2), i32([0], [1]), _1], {"batch_dims": 1}),
    ("GatherNd", [f32(3, 2), i32([0, 1], [3, 0])], {}),
    ("GatherNd", [f32(3, 2), i32(0, 0, 0)], {}),
    ("GatherNd", [f32(0, 2), i32([0])], {}),
    ("ScatterNd", [i32([4]), f32(1), i32(3)], {}),
    ("ScatterNd", [i32([1]), f32(2), i32(3)], {}),
    ("TensorScatterAdd", [f32(3), i32([-1]), f32(1)], {}),
    ("ReverseV2", [f32(3), i32(0, 0)], {}),
    ("Reverse", [f32(3), np.array([True, False])], {}),
    ("Roll", [f32(3), i32(1, 1), _0], {}),
    ("InplaceAdd", [f32(3, 2), i32(0), f32(2, 2)], {}),
    ("DynamicPartition", [f32(3), i32(0, 2, 1)], {"num_partitions": 2}),
    ("DynamicStitch", [i32(0, -1), f32(2)], {"N": 1}),
    ("DynamicStitch", [i32(0, 1), f32(3)], {"N": 1}),
    ("MatrixDiagPartV3", [f32(2, 2), i32(1, 0), np.float32(0)], {"align": "LEFT_LEFT"}),
    ("MatrixSetDiagV3", [f32(2, 2), f32(3), _0], {"align": "LEFT_LEFT"}),
    ("MatrixDiagV3", [f32(2), i32(0, 1, 2), _2, _2, np.float32(0)], {"align": "LEFT_LEFT"}),
    ("MatrixBandPart", [f32(2, 2), np.int32(3), _0], {}),
    ("DiagPart", [f32(2, 3)], {}),
    ("SpaceToBatchND", [f32(1, 3), i32(2), i32([0, 0])], {}),
    ("SpaceToBatchND", [f32(1, 3), i32(2), i32([0, -1])], {}),
    ("BatchToSpaceND", [f32(3, 3), i32(2), i32([0, 0])], {}),
    ("DepthToSpace", [f32(1, 1, 1, 3)], {"block_size": 2, "data_format": "NHWC"}),
)


@pytest.mark.parametrize("namespace", NAMESPACES)
@pytest.mark.parametrize("call", REFUSED, ids=lambda call: call[0])
def test_a_kernel_refuses_the_same_arguments_in_each_namespace(
    call: tuple[str, list[Any], dict[str, Any]], namespace: str
) -> None:
    type, inputs, given = call
    there = NAMESPACES[namespace]()
    attrs = {"T": dtypes.float32, "Tparams": dtypes.float32, "Tidx": dtypes.int32, "batch_dims": 0}
    attrs |= {"bad_indices_policy": "", **_SLICE, **given}
    kernel = op_registry.get(type).kernel
    assert kernel is not None
    with pytest.raises((HeadraceError, ValueError)) as want:
        kernel(np, attrs)(*inputs)
    with pytest.raises(want.type) as got:
        kernel(there.xp, attrs)(*map(there.put, inputs))
    assert str(got.value) == str(want.value)
