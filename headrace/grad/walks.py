"""Walks through the graphs of a structured operation, as its derivative rules receive them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Protocol, TypeAlias

from headrace.records import record

if TYPE_CHECKING:
    from headrace.grad.sums import Gradient
    from headrace.ir.graph import FuncGraph, Tensor

# The reverse walk: backward(b, ys, dys, xs) -> the gradient of each x.
Backward: TypeAlias = "Callable[..., list[Gradient | None]]"
# The forward walk: forward(b, xs, dxs, ys) -> the tangent of each y.
Forward: TypeAlias = "Callable[..., list[Tensor | None]]"


class Flow(Protocol):
    """Activity analysis (`activity.Activity`)."""

    def of(self, graph: FuncGraph) -> list[int]:
        """Parameters on which each result of `graph` may depend: bit k for parameter k."""

    def through_graph(self, graph: FuncGraph, given: Sequence[int]) -> list[int]:
        """Sets of the results of `graph`, if its parameters have the sets `given`."""

    def active(self, graph: FuncGraph, reached: Iterable[int], seeded: Iterable[int]) -> set[int]:
        """Variables of a loop with the body `graph` that need a gradient."""


@record(frozen=True, slots=True)
class Walks:
    """Reverse walk and analysis that a rule uses.

    Attributes:
      flow: the activity analysis of the walk that calls the rule.
      backward: the reverse walk.
    """

    flow: Flow
    backward: Backward


@record(frozen=True, slots=True)
class ForwardWalks(Walks):
    """Walks of a rule for forward mode.

    Attributes:
      forward: the forward walk.
    """

    forward: Forward
