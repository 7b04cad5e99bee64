"""Walk that makes a graph again for a batch, as its rules receive it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from headrace.ir.builder import Builder
    from headrace.ir.graph import FuncGraph, Tensor
    from headrace.vmap.flow import Flow


class Walk(Protocol):
    """The batch of one call of a mapped function (`walk.Batching`).

    Attributes:
      flow: the batched tensors.
      size: the number of examples.
      title: the description of the function in messages.
    """

    flow: Flow
    size: int | Tensor
    title: str

    def run(self, b: Builder, graph: FuncGraph, given: Sequence[Tensor]) -> list[Tensor]:
        """Returns the replacements of the results of `graph`, for those of its parameters."""

    def of(self, flow: Flow) -> Walk:
        """Returns the batch for another function, with its own batched tensors."""

    def for_some(self) -> Walk:
        """Returns the batch for a branch that only some examples take."""
