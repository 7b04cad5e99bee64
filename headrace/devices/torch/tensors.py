"""Arrays of numpy as PyTorch's tensors, and back, without copies where memory can be shared.

PyTorch has bfloat16 and numpy does not: the bits pass as int16, and the array has the dtype of ml_dtypes.
"""

from __future__ import annotations

import warnings
from typing import Any, Final

import numpy as np
import torch

from headrace import dtypes, reference_counts

with warnings.catch_warnings():  # PyTorch warns once that it cannot protect arrays from writes; kernels do not write
    warnings.simplefilter("ignore")
    torch.from_numpy(np.broadcast_to(np.float32(0), (1,)))


def tensor_of(value: Any) -> torch.Tensor:
    """Returns a tensor that shares the memory of an array, if it can."""
    array = np.asarray(value)
    if any(s < 0 for s in array.strides) or not array.dtype.isnative:
        array = np.ascontiguousarray(array, array.dtype.newbyteorder("="))
    if array.dtype == dtypes.bfloat16.numpy:
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)


def array_of(tensor: torch.Tensor) -> np.ndarray:
    """Returns an array of numpy that shares the memory of a tensor, where it can."""
    tensor = tensor.cpu()
    if tensor.is_conj() or tensor.is_neg():  # views with a pending operation
        tensor = tensor.resolve_conj().resolve_neg()
    if tensor.dtype == torch.bfloat16:
        return tensor.view(torch.int16).numpy().view(dtypes.bfloat16.numpy)
    return tensor.numpy()


# *** Tensors to write to ***


def _uses(storage: torch.UntypedStorage) -> int:
    """Number of tensors and other objects that refer to the bytes of a tensor."""
    return int(torch._C._storage_Use_Count(storage._cdata))


_LONE: Final = torch.empty(1)
_ALONE: Final = _uses(_LONE.untyped_storage())  # the number for a tensor whose bytes nothing else refers to
_HELD: Final = reference_counts.LOCAL and reference_counts.LOCAL + 1


def is_private(tensor: torch.Tensor) -> bool:
    """Whether nothing but the caller's value refers to a tensor or to its bytes.

    Bytes that an array of numpy shares, or has shared, are not resizable: PyTorch sees to that.
    """
    if reference_counts.count(tensor) > _HELD:
        return False
    storage = tensor.untyped_storage()
    return storage.resizable() and storage.nbytes() == tensor.nbytes and _uses(storage) == _ALONE


def has_order(tensor: torch.Tensor, like: torch.Tensor) -> bool:
    """Whether two tensors have one shape, and their elements one order in memory."""
    return tensor.stride() == like.stride() and tensor.shape == like.shape


def copied(tensor: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """Returns a copy of a tensor, with the order of elements of `like`.

    A `like` of another shape, or with gaps between elements or repeated ones, gives no order.
    """
    return torch.empty_like(like if tensor.shape == like.shape else tensor).copy_(tensor)
