"""View of an operation that its gradient rule receives."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headrace.ir.graph import Operation, Tensor
    from headrace.ir.opdef import OpDef


class GradNode:
    """Operation that a gradient rule differentiates: `n.x`, `n.y` by argument name, `n.attrs`.

    An access looks the tensor up. So the caller of the rule decides how each value reaches the backward graph:
    directly, from an accumulator, or recomputed.

    Attributes:
      op: the operation.
      attrs: its attributes.
      inputs: its inputs, looked up on access.
      outputs: its outputs, looked up on access.
    """

    __slots__ = ("_lookup", "attrs", "inputs", "op", "outputs")

    def __init__(self, op: Operation, lookup: Callable[[Tensor], Tensor] = lambda t: t) -> None:
        self.op = op
        self.attrs: Mapping[str, Any] = op.attrs
        self._lookup = lookup
        self.inputs = _Lazy(op.inputs, lookup)
        self.outputs = _Lazy(op.outputs, lookup)

    def __getattr__(self, name: str) -> Any:
        record: OpDef = self.op.opdef
        for specs, tensors, outputs in ((record.ins, self.inputs, False), (record.outs, self.outputs, True)):
            for spec in specs:
                if spec.name == name:
                    span = record.spans(self.attrs, outputs)[name]
                    got = [tensors[i] for i in range(span.start, span.stop)]
                    return got if spec.is_list else got[0]
        raise AttributeError(f"{record.type} has no argument {name!r}")


class _Lazy:
    """Sequence of tensors that are looked up on access."""

    __slots__ = ("_lookup", "_tensors")

    def __init__(self, tensors: Sequence[Tensor], lookup: Callable[[Tensor], Tensor]) -> None:
        self._tensors = tensors
        self._lookup = lookup

    def __len__(self) -> int:
        return len(self._tensors)

    def __getitem__(self, i: int) -> Tensor:
        return self._lookup(self._tensors[i])
