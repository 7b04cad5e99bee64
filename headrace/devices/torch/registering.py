"""Registration of kernels on PyTorch's tensors, with the kernels for numpy as their reference.

    @for_torch("Softmax", {"T": FLOATS})
    def _softmax(xp, attrs):
        return lambda x: torch.softmax(x, -1)

A kernel checks only what PyTorch would compute otherwise than headrace. If it finds inputs that are wrong, or that
PyTorch has no function for, it raises `Unsuited`. The same inputs then go to the kernel of the record. That kernel
raises the error, or computes the result in numpy. So each text of an error is in one place. Where PyTorch itself
raises, and numpy does not, the logger "headrace.devices" reports it.

No input of a kernel requires a gradient, so PyTorch records nothing for its automatic differentiation.

On a CPU an index out of range is an error. Elsewhere a look at the indices would wait for all queued work of the
device. There, as on GPUs in TensorFlow, reads out of range give 0, and writes out of range have no effect.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, TypeAlias

import numpy as np
import torch

from headrace import dtypes, notices
from headrace.devices.torch.tensors import array_of, tensor_of
from headrace.dtypes import DType
from headrace.errors import HeadraceError
from headrace.ir.device import GPU, TORCH
from headrace.ir.kernel import override
from headrace.ir.opdef import op_registry
from headrace.opkit.elementwise import HALF

Tensor: TypeAlias = torch.Tensor
Kernel: TypeAlias = Callable[..., Any]
Factory: TypeAlias = Callable[[Any, Mapping[str, Any]], Kernel]

DEVICES: Final = (TORCH, GPU)

WIDE: Final = frozenset({dtypes.float32, dtypes.float64})
FLOATS: Final = dtypes.FLOATING
INEXACT: Final = FLOATS | dtypes.COMPLEX
# PyTorch has unsigned integers of more than 8 bits, and few functions of them.
INTEGERS: Final = dtypes.SIGNED | {dtypes.uint8}
REAL: Final = FLOATS | INTEGERS
NUMBERS: Final = REAL | dtypes.COMPLEX
VALUES: Final = NUMBERS | {dtypes.bool_}

registered: Final[dict[str, Factory]] = {}
"""The op types with kernels of this package, and their factories; for tests."""


class Unsuited(Exception):
    """Inputs that a kernel leaves to the kernel for numpy."""


def for_torch(
    ops: str | Iterable[str], constraints: Mapping[str, frozenset[Any]] | None = None
) -> Callable[[Factory], Factory]:
    """Returns a decorator that registers a kernel factory for devices with PyTorch's tensors.

    Args:
      ops: the op type, or several.
      constraints: attribute → the values for which the kernel is used; None: all values.
    """

    def register(factory: Factory) -> Factory:
        for op in (ops,) if isinstance(ops, str) else ops:
            made = _with_reference(op, factory)
            for device in DEVICES:
                override(op, device, constraints, depth=2, xp=True)(made)
            registered[op] = factory
        return factory

    return register


def _with_reference(op: str, factory: Factory) -> Factory:
    """Returns `factory`, whose kernels leave what they cannot compute to the kernel of the record."""

    def make(xp: Any, attrs: Mapping[str, Any]) -> Kernel:
        compute = factory(xp, attrs)

        def kernel(*inputs: Any) -> Any:
            try:
                return compute(*inputs)
            except (HeadraceError, torch.cuda.OutOfMemoryError):  # see `TorchMemory.error_of`
                raise
            except Unsuited:
                return by_reference(op, attrs, inputs)
            except (RuntimeError, IndexError, ValueError) as e:
                out = by_reference(op, attrs, inputs)
                notices.inform("devices", [f"{op} was computed in numpy, on copies: {type(e).__name__}: {e}"])
                return out

        return kernel

    return make


def by_reference(op: str, attrs: Mapping[str, Any], inputs: Iterable[Any]) -> Any:
    """Computes an operation by the kernel of its record, on copies in numpy.

    Raises:
      HeadraceError: the kernel raises it, or the op has no kernel that computes in numpy.
    """
    given = list(inputs)
    where = next((x.device for x in given if isinstance(x, torch.Tensor)), None)
    reference = op_registry.get(op).kernel
    assert reference is not None
    with np.errstate(all="ignore"):
        out = reference(np, attrs)(*(array_of(x) if isinstance(x, torch.Tensor) else x for x in given))
    if isinstance(out, tuple):
        return tuple(tensor_of(np.array(x)).to(where) for x in out)
    return tensor_of(np.array(out)).to(where)  # a copy: the result may be a view of an input


# *** Dtypes, arguments ***


def type_of(dtype: DType) -> torch.dtype:
    """Returns PyTorch's dtype for one of headrace."""
    found: torch.dtype = getattr(torch, dtype.name)
    return found


def widened(f: Kernel, dtype: DType) -> Kernel:
    """Returns `f`, computed in float32 if `dtype` is a half-precision float."""
    if dtype not in HALF:
        return f
    back = type_of(dtype)
    return lambda *tensors: f(*(x.float() for x in tensors)).to(back)


def same_shape(x: Tensor, y: Tensor) -> None:
    """Raises `Unsuited` unless two tensors have the same shape."""
    if x.shape != y.shape:
        raise Unsuited


def whole(x: Any) -> int:
    """Returns the scalar integer in a tensor.

    Raises:
      Unsuited: the tensor is no scalar.
    """
    if x.ndim:
        raise Unsuited
    return int(x)


def axis_of(x: Any, rank: int) -> int:
    """Returns the axis, at least 0, whose number is in the scalar tensor `x`.

    Raises:
      Unsuited: there is no such axis.
    """
    axis = whole(x)
    if not -rank <= axis < rank:
        raise Unsuited
    return axis % rank


def has_nan(x: Tensor) -> bool:
    """Whether a tensor on a CPU has NaN.

    The answer is False on other devices, where the question would wait for their work.
    """
    return x.is_cpu and x.is_floating_point() and x.numel() > 0 and bool(x.amax().isnan())
