"""Array namespaces in which the tests run the kernels that declare `xp=True`."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest

from headrace import dtypes
from headrace.dtypes import DType


class Namespace(NamedTuple):
    """A namespace, and the way to its arrays and back.

    Attributes:
      xp: the namespace.
      array: the type of its arrays.
      dtypes: the element types that it has.
      put: makes an array of one of numpy's.
      get: inverse of `put`.
    """

    xp: Any
    array: type
    dtypes: frozenset[DType]
    put: Callable[[np.ndarray], Any]
    get: Callable[[Any], np.ndarray]


@functools.cache
def strict() -> Namespace:
    """The namespace whose arrays refuse everything outside of the standard.

    They are on another device than the default one, and arrays of two devices refuse each other.
    """
    xp = pytest.importorskip("array_api_strict", reason="array_api_strict is not installed (pip install -e '.[dev]')")
    default, other = xp.Device("CPU_DEVICE"), xp.Device("device1")
    return Namespace(
        xp,
        type(xp.asarray(0)),
        _there(xp),
        lambda x: xp.asarray(np.array(x), device=other),
        lambda x: np.asarray(x.to_device(default)),
    )


@functools.cache
def torch() -> Namespace:
    """The namespace of PyTorch's tensors on the CPU."""
    pytest.importorskip("torch", reason="PyTorch is not installed (pip install -e '.[torch]')")
    import array_api_compat.torch as xp

    def put(x: np.ndarray) -> Any:
        if x.dtype == dtypes.bfloat16.numpy:
            return xp.from_numpy(np.array(x).view(np.int16)).view(xp.bfloat16)
        return xp.asarray(np.array(x))

    def get(x: Any) -> np.ndarray:
        return x.view(xp.int16).numpy().view(dtypes.bfloat16.numpy) if x.dtype == xp.bfloat16 else x.numpy()

    few = {dtypes.uint16, dtypes.uint32, dtypes.uint64}  # PyTorch has them, and few functions of them
    return Namespace(xp, xp.Tensor, _there(xp) - few, put, get)


def _there(xp: Any) -> frozenset[DType]:
    """The element types of headrace that a namespace has."""
    return frozenset(d for d in dtypes.ALL if d not in dtypes.OBJECT and not d.is_quantized and hasattr(xp, d.name))


NAMESPACES = {"array_api_strict": strict, "torch": torch}
