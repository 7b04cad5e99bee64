"""Arrays of numpy as PyTorch's tensors, and back, without copies where memory can be shared.

PyTorch has bfloat16 and numpy does not: the bits pass as int16, and the array has the dtype of ml_dtypes.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import torch

from headrace import dtypes

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
