"""View of an operation that its gradient rule receives."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from headrace.ir.graph import Operation, Tensor
    from headrace.ir.opdef import OpDef

# Entry of a gradient rule for an input: the gradient, a function that makes it if it is wanted, or None. A function may
# return a function, which is called after those of all other entries.
GradEntry: TypeAlias = "Tensor | Callable[[], GradEntry] | None"


class GradNode:
    """Operation that a gradient rule differentiates: `n.x`, `n.y` by argument name, `n.attrs`.

    An access looks the tensor up. So the caller of the rule decides how each value reaches the backward graph:
    directly, from an accumulator, or recomputed.

    Args:
      op: the operation.
      wanted: for each input, whether its gradient is wanted; None: all are.
      reached: for each output, whether a gradient reaches it; None: all are reached.
      lookup: the function that looks tensors up.

    Attributes:
      op: the operation.
      attrs: its attributes.
      inputs: its inputs, looked up on access.
      outputs: its outputs, looked up on access.
      wanted: for each input, whether its gradient is wanted.
      reached: for each output, whether a gradient reaches it. If not, the rule receives zeros for it.
    """

    __slots__ = ("_lookup", "attrs", "inputs", "op", "outputs", "reached", "wanted")

    def __init__(
        self,
        op: Operation,
        wanted: Sequence[bool] | None = None,
        reached: Sequence[bool] | None = None,
        lookup: Callable[[Tensor], Tensor] = lambda t: t,
    ) -> None:
        self.op = op
        self.wanted = (True,) * len(op.inputs) if wanted is None else tuple(wanted)
        self.reached = (True,) * len(op.outputs) if reached is None else tuple(reached)
        self.attrs: Mapping[str, Any] = op.attrs
        self._lookup = lookup
        self.inputs = _Lazy(op.inputs, lookup)
        self.outputs = _Lazy(op.outputs, lookup)

    def wants(self, *names: str) -> bool:
        """Whether the gradient of an input of one of these arguments is wanted."""
        spans = self.op.opdef.spans(self.attrs)
        return any(any(self.wanted[spans[name]]) for name in names)

    def reaches(self, *names: str) -> bool:
        """Whether a gradient reaches an output of one of these names."""
        spans = self.op.opdef.spans(self.attrs, outputs=True)
        return any(any(self.reached[spans[name]]) for name in names)

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
