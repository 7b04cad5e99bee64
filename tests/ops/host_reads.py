"""Records of the inputs that the host reads while a kernel computes on tensors.

    reads = HostReads(tensors)
    with reads:
        kernel(*tensors)
    reads.found  # the numbers of the inputs

On a GPU each such read waits for all queued work. The record follows the inputs: a tensor that is computed from an
input has its elements. While it is open, tensors say that they are not in the memory of the processor, so that kernels
compute as they would on a GPU.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping
from typing import Any, Final

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

#: Functions whose results, or the shapes of their results, are elements on the host.
_READ: Final = frozenset(
    {
        *("_local_scalar_dense", "_unique2", "bincount", "equal", "is_nonzero", "masked_select", "nonzero"),
        *("unique_consecutive", "unique_dim"),
    }
)
_METHODS: Final = (torch.Tensor.tolist, torch.Tensor.numpy, torch.Tensor.__array__)


class HostReads(contextlib.ExitStack):
    """See the module.

    Attributes:
      found: the numbers of the inputs that were read.
    """

    def __init__(self, inputs: Iterable[Any]) -> None:
        super().__init__()
        self.found: set[int] = set()
        self._kept: list[torch.Tensor] = []  # so that no other tensor gets the memory of one
        self._from: dict[int, frozenset[int]] = {}  # by memory
        for k, x in enumerate(inputs):
            if isinstance(x, torch.Tensor):
                self.follow(x, frozenset({k}))

    def __enter__(self) -> HostReads:
        super().__enter__()
        self.enter_context(_Functions(self))
        self.enter_context(_Operations(self))
        return self

    def follow(self, x: torch.Tensor, inputs: frozenset[int]) -> None:
        """Notes that a tensor is computed from inputs."""
        self._kept.append(x)
        self._from[_memory(x)] = inputs | self.inputs_of(x)

    def inputs_of(self, *tensors: torch.Tensor) -> frozenset[int]:
        """The inputs from which tensors are computed."""
        return frozenset().union(*(self._from.get(_memory(x), ()) for x in tensors))

    def read(self, *tensors: torch.Tensor) -> None:
        """Notes that the host reads elements of tensors."""
        self.found |= self.inputs_of(*tensors)


class _Functions(TorchFunctionMode):
    def __init__(self, reads: HostReads) -> None:
        super().__init__()
        self._reads = reads

    def __torch_function__(self, f: Any, types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None) -> Any:
        if f in _METHODS:
            self._reads.read(args[0])
        if f == torch.Tensor.is_cpu.__get__:
            return False
        return f(*args, **kwargs or {})


class _Operations(TorchDispatchMode):
    def __init__(self, reads: HostReads) -> None:
        super().__init__()
        self._reads = reads

    def __torch_dispatch__(self, f: Any, types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None) -> Any:
        given, kwargs = _tensors((args, kwargs)), kwargs or {}
        name = f.overloadpacket.__name__
        if name in _READ or (name == "repeat_interleave" and kwargs.get("output_size") is None):
            self._reads.read(*given)
        elif name == "index" or (name in ("index_put", "index_put_") and args[2].numel() != 1):
            self._reads.read(*(i for i in args[1] if i is not None and i.dtype is torch.bool))
        out = f(*args, **kwargs)
        inputs = self._reads.inputs_of(*given)
        for x in _tensors(out):
            self._reads.follow(x, inputs)
        return out


def _memory(x: torch.Tensor) -> int:
    return int(x.untyped_storage()._cdata)


def _tensors(values: Any) -> list[torch.Tensor]:
    return [x for x in tree_leaves(values) if isinstance(x, torch.Tensor)]
