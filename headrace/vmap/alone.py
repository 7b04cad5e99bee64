"""Operations without a batching rule: a loop that computes each example alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from headrace.api import scopes
from headrace.api.functional import map_fn
from headrace.api.tensor_spec import TensorSpec
from headrace.vmap.copies import copied

if TYPE_CHECKING:
    from headrace.ir.builder import Builder
    from headrace.ir.graph import Tensor
    from headrace.opkit.batch_node import BatchNode


def each(b: Builder, n: BatchNode) -> Sequence[Tensor]:
    """Returns the outputs of an operation, made by a loop over the examples.

    Args:
      b: the builder.
      n: the operation.
    """
    op = n.op
    rows = [t for t, is_batched in zip(n.inputs, n.batched, strict=True) if is_batched]
    numbers = np.arange(n.size, dtype=np.int32) if isinstance(n.size, int) else b.Range(0, n.size, 1)

    def step(parts: Sequence[Any]) -> Any:
        given = iter(parts[1])
        inner = scopes.builder(*parts[1])
        inputs = [next(given) if is_batched else t for t, is_batched in zip(n.inputs, n.batched, strict=True)]
        return list(copied(inner, n.op, [inner.graph.capture(t) for t in inputs]))

    specs = [TensorSpec(t.shape, t.dtype.base) for t in op.outputs]
    with scopes.entered(b):
        out: Sequence[Tensor] = map_fn(
            step, (numbers, rows), fn_output_signature=specs, name=op.name.rpartition("/")[2]
        )
    return out
