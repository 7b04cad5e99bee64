"""Kernels that declare `xp=True` compute in the namespace that they are given.

Each is run on the cases of its record with the arrays of `array_api_strict`, which refuse everything outside of the
array API standard, and with PyTorch's tensors. The results are those of the kernel for numpy.
"""

from __future__ import annotations

import warnings

import numpy as np
import pytest

from headrace.dtypes import DType
from headrace.ir.opdef import op_registry
from tests.ops.cases import assert_close, cases, constant_op, dtype_of, first_types, flat, records, run_kernel
from tests.ops.namespaces import NAMESPACES, Namespace

pytestmark = [pytest.mark.matrix, pytest.mark.one_engine]

DECLARED = [r.type for r in records() if r.xp]


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
            out = kernel(there.xp, op.attrs)(*map(there.put, args))
        got = (out,) if len(op.outputs) == 1 else tuple(out or ())
        assert len(got) == len(want), where
        for g, w in zip(got, want, strict=True):
            assert isinstance(g, there.array), f"{where}: {g!r} is no array of the namespace"
            assert_close(there.get(g), np.asarray(w), where)
        ran += 1
    return ran
