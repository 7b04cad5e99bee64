"""Kernels on PyTorch's tensors compute what the kernels for numpy compute.

Each runs on the cases of its op's record with tensors on the CPU. The extra cases of convolutions and poolings have the
layouts, groups and paddings that the cases of the records have not together.
"""

from __future__ import annotations

import importlib
import itertools
import sys
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pytest

from headrace import dtypes
from headrace.dtypes import DType
from headrace.errors import InvalidArgumentError
from headrace.ir.graph import Operation
from headrace.ir.kernel import find_kernel, has_kernel
from headrace.ir.opdef import Case, case, op_registry
from tests.ops.cases import assert_close, cases, constant_op, dtype_of, first_types, flat, run_kernel
from tests.ops.namespaces import Namespace, torch

pytestmark = [pytest.mark.matrix, pytest.mark.one_engine]

MODULES = (
    "convolutions",
    "elementwise",
    "normalization",
    "pooling",
    "products",
    "rows",
    "sorting",
    "special_functions",
)

#: Op types with a case that PyTorch has no function for, and the case; numpy computes it.
LEFT_TO_NUMPY: Mapping[str, str] = {
    "Einsum": "a label twice in the output",
    "MaxPool": "windows along the channels",
    "MaxPoolV2": "windows along the channels",
}


@pytest.fixture
def there() -> Namespace:
    """PyTorch's namespace; tests with it are skipped where PyTorch is not installed."""
    return torch()


@pytest.fixture
def left(there: Namespace, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Op types whose kernels leave inputs to numpy, as they do it. They must have decided it themselves."""
    registering = importlib.import_module("headrace.devices.torch.registering")
    found: list[str] = []
    compute = registering.by_reference

    def by_reference(op: str, attrs: Any, inputs: Any) -> Any:
        cause = sys.exc_info()[1]
        if not isinstance(cause, registering.Unsuited):
            assert cause is not None
            raise AssertionError(f"{op} {dict(attrs)}: PyTorch refused it") from cause
        found.append(op)
        return compute(op, attrs, inputs)

    monkeypatch.setattr(registering, "by_reference", by_reference)
    return found


def kernels_of(module: str) -> list[str]:
    """The op types of the kernels in a module of `headrace.devices.torch`."""
    importlib.import_module("headrace.devices.torch.kernels")
    registering = importlib.import_module("headrace.devices.torch.registering")
    name = f"headrace.devices.torch.{module}"
    return [op for op, factory in registering.registered.items() if factory.__module__ == name]


def run(op: Operation, args: list[np.ndarray], there: Namespace) -> tuple[Any, ...]:
    """The outputs of the kernel for PyTorch."""
    kernel = find_kernel(op, "TORCH")
    assert kernel is not None
    tensors = [there.put(x) for x in args]
    out = kernel.factory(there.xp, op.attrs)(*tensors)
    for x, a in zip(tensors, args, strict=True):
        assert_close(there.get(x), a, f"{op.type} changed an input")
    return (out,) if len(op.outputs) == 1 else tuple(out)


def check(type: str, given: Case, there: Namespace, where: str) -> None:
    """Compares the results of a kernel with those of the kernel for numpy."""
    op = constant_op(op_registry.get(type), given)
    args = flat(given.inputs)
    want = run_kernel(op, args)
    got = run(op, args, there)
    assert len(got) == len(want), where
    for g, w in zip(got, want, strict=True):
        assert isinstance(g, there.array), f"{where}: {g!r} is no tensor"
        assert not g.requires_grad
        assert_close(there.get(g.resolve_conj()), np.asarray(w), where)


def suited(type: str, dtype: DType, there: Namespace) -> Iterator[tuple[int, Case]]:
    """The cases of an op whose attributes and element types a kernel for PyTorch has."""
    for i, given in enumerate(cases(type, dtype)):
        op = constant_op(op_registry.get(type), given)
        element_types = {*map(dtype_of, flat(given.inputs)), *(t.dtype for t in op.outputs)}
        if has_kernel(type, op.attrs, "TORCH") and element_types <= there.dtypes:
            yield i, given


@pytest.mark.parametrize("module", MODULES)
def test_kernels_compute_what_those_for_numpy_compute(module: str, there: Namespace, left: list[str]) -> None:
    for type in kernels_of(module):
        ran = 0
        for dtype in first_types(op_registry.get(type)):
            for i, given in suited(type, dtype, there):
                left.clear()
                check(type, given, there, f"case {i} of {type} {dtype} {dict(given.attrs)}")
                assert not left or type in LEFT_TO_NUMPY, f"case {i} of {type} {dtype} {dict(given.attrs)} is left"
                ran += not left
        assert ran, f"no case of {type} ran"
