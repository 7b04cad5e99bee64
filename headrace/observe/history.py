"""History of a step: values of its newest firings, and their producers.

A token machine drops a value as soon as its consumers have fired. A history keeps references to the values of the
newest firings, up to a budget of bytes. A value is immutable, so nothing is copied.

**Keys.** A firing is found by its node, frame instance and iteration number. Tokens of an Exit or of a function's
result arrive in the parent iteration, so these are stored under the iteration of their consumers. Tokens of a Send are
stored under the name of the edge and the tag, by which the Recv finds them.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np

from headrace import thresholds
from headrace.execute import plan as plans

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator

    from headrace.execute.observer import Machine
    from headrace.execute.plan import PlanNode
    from headrace.execute.records import Frame, Iteration
    from headrace.ir.graph import Operation, Tensor

Key: TypeAlias = "tuple[Hashable, Frame | str, int]"


class Firing(NamedTuple):
    """A live firing.

    Attributes:
      node: the node.
      it: the iteration in which it fired.
      x: its inputs, in the form of a ready entry (`plan.PlanNode`); None for a feed.
      values: the values of its outputs.
    """

    node: PlanNode
    it: Iteration
    x: Any
    values: tuple[Any, ...]


def inputs_of(node: PlanNode, it: Iteration, x: Any) -> list[tuple[int, Any]]:
    """Returns the values that a firing consumed, with the positions of its inputs.

    Args:
      node: the node.
      it: the iteration.
      x: the inputs, in the form of a ready entry.
    """
    if x is None or node.arity == 0:
        return []
    if node.real == plans.MERGE:
        found = [(int(x[1]), x[0])]
    elif node.real == plans.LOOP_MERGE:
        found = [(int(node.value_index[1 if it.index else 0]), x)]
    else:
        found = [(0, x)] if node.arity == 1 else list(enumerate(x))
    # a reference that the node does not read may be that of a variable without a value
    return [(k, v.read() if k in node.reads and hasattr(v, "read") else v) for k, v in found]


def outputs_of(node: PlanNode, x: Any, values: tuple[Any, ...]) -> tuple[Any, ...]:
    """Returns the values of the outputs; of a Switch the one that it sent."""
    return (x[0],) if node.real in (plans.SWITCH, plans.SWITCH_N, plans.MERGE) else values


class History:
    """Values of the newest firings of a step.

    Args:
      limit: the budget in bytes.
      most: the largest number of firings.
    """

    def __init__(self, limit: int = thresholds.HISTORY_BYTES, most: int = thresholds.HISTORY_FIRINGS) -> None:
        self._limit, self._most = limit, most
        self._bytes = 0
        self._firings: OrderedDict[Key, Firing] = OrderedDict()
        self._nodes: dict[Operation, PlanNode] = {}

    def begins(self, machine: Machine) -> None:
        """Adds the nodes of a token machine."""
        self._nodes.update((node.op, node) for node in machine.plan.nodes)

    def add(self, node: PlanNode, it: Iteration, x: Any, values: tuple[Any, ...]) -> Firing:
        """Adds a live firing, and drops the oldest ones beyond the budget."""
        firing = Firing(node, it, x, outputs_of(node, x, values))
        key = _key(firing)
        before = self._firings.pop(key, None)
        if before is not None:
            self._bytes -= _size(before)
        self._firings[key] = firing
        self._bytes += _size(firing)
        while self._bytes > self._limit or len(self._firings) > self._most:
            self._bytes -= _size(self._firings.popitem(last=False)[1])
        return firing

    def find(self, node: PlanNode, frame: Frame, index: int) -> Firing | None:
        """Returns the firing of `node` in an iteration, or None.

        Args:
          node: the node. For an Exit, the iteration is that of its consumers.
          frame: the frame instance.
          index: the number of the iteration.
        """
        return self._firings.get((node, frame, index))

    def newest(self, node: PlanNode) -> Firing | None:
        """Returns the newest firing of `node`."""
        return next((f for f in reversed(self._firings.values()) if f.node is node), None)

    def node_of(self, op: Operation) -> PlanNode | None:
        """Returns the node of an operation; None for a constant without one."""
        return self._nodes.get(op)

    def producer(self, node: PlanNode, it: Iteration, position: int) -> Firing | Tensor | None:
        """Returns the firing that produced an input.

        Args:
          node: the consumer.
          it: the iteration in which it fires.
          position: the position of the input.

        Returns:
          The firing; the tensor of a constant without a node; or None if the firing was dropped.
        """
        while True:
            if node.real == plans.RECV:
                return self._firings.get((node.edge, it.tag, 0))
            t = node.op.inputs[position]
            source = self._nodes.get(t.op)
            if source is None:
                return t
            frame, index = it.frame, it.index
            if source.real == plans.ENTER:
                assert it.frame.parent is not None, "an Enter leads into a frame with a parent"
                frame, index = it.frame.parent.frame, it.frame.parent.index
            elif source.real == plans.NEXT:
                index -= 1
            elif source.real == plans.CALL:
                return self._firings.get(((source, t.index), frame, index))
            elif source.real == plans.PARAM:
                assert frame.call is not None, "a parameter is in the frame of a call"
                assert frame.parent is not None, "the frame of a call has a parent"
                node, it, position = frame.call, frame.parent, source.position
                continue
            return self._firings.get((source, frame, index))

    def constants(self) -> Iterator[Tensor]:
        """Tensors of the constants that have no node."""
        seen: set[Operation] = set()
        for node in self._nodes.values():
            for t in node.op.inputs:
                if t.op not in self._nodes and t.op not in seen:
                    seen.add(t.op)
                    yield t


def _key(firing: Firing) -> Key:
    node, it = firing.node, firing.it
    if node.real == plans.SEND:
        return node.edge, it.tag, 0
    parent = it.frame.parent
    if node.real == plans.EXIT and parent is not None:
        return node, parent.frame, parent.index
    if node.real == plans.RESULT and parent is not None:
        return (it.frame.call, node.position), parent.frame, parent.index
    return node, it.frame, it.index


def _size(firing: Firing) -> int:
    return sum(v.nbytes for v in firing.values if isinstance(v, (np.ndarray, np.generic)))
