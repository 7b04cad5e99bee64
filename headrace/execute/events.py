"""Events of a running step for its listener, made from the executor's records."""

from __future__ import annotations

import collections
import time
from typing import TYPE_CHECKING, Any

import numpy as np

from headrace import shapes, step_events
from headrace.execute.blame import dead_cause
from headrace.execute.observer import RECENT
from headrace.execute.plan import DEAD, SWITCH, SWITCH_N

if TYPE_CHECKING:
    from headrace.execute.observer import Machine
    from headrace.execute.plan import PlanNode
    from headrace.execute.records import Frame, Iteration, Origin
    from headrace.ir.graph import Operation


class Events:
    """Observer that makes the events of one device's part of a step.

    Args:
      listener: the receiver of the events.
      step: the number of the step.
      device: the device of the step's part; "" if the step has one device only.

    Attributes:
      recent: the nodes that fired last with their iterations, oldest first.
    """

    __slots__ = ("_about", "_device", "_listener", "_step", "_wants_causes", "_wants_sizes", "_wants_values", "recent")

    def __init__(self, listener: step_events.Listener, step: int, device: str) -> None:
        self._listener = listener
        self._step = step
        self._device = device
        self.recent: collections.deque[tuple[PlanNode, Iteration]] = collections.deque(maxlen=RECENT)
        self._about: dict[Operation, tuple[str, str]] = {}  # source and shapes of operations that have fired
        self._wants_values = bool(getattr(listener, "wants_values", False))
        self._wants_sizes = bool(getattr(listener, "wants_sizes", False))
        self._wants_causes = bool(getattr(listener, "wants_causes", False))

    def begins(self, machine: Machine) -> None:
        """Has no effect: the session makes the event of a step's start."""

    def iteration(self, event: str, frame: Frame, it: Iteration) -> None:
        """Reports the opening ("open") or freeing ("free") of an iteration.

        The last iteration of the frame of a call also ends the call.
        """
        now, name, device = time.perf_counter_ns(), frame.plan.name, self._device
        if event == "open":
            limit = 0 if frame.parent is None or frame.call is not None else frame.plan.limit
            self._listener(step_events.IterationOpen(now, self._step, it.tag, name, it.index, device, limit))
            return
        self._listener(step_events.IterationFree(now, self._step, it.tag, name, it.index, device))
        if frame.call is not None and frame.parent is not None:
            self.end(frame.call, frame.parent, None, None, waited=True)

    def fed(self, node: PlanNode, it: Iteration, value: Any) -> None:
        """Has no effect: there is no event of a feed."""

    def wait(self, node: PlanNode, it: Iteration) -> None:
        """Has no effect: the end of the firing is reported by `end`."""

    def start(self, node: PlanNode, it: Iteration, x: Any) -> None:
        """Reports that `node` starts to fire."""
        self.recent.append((node, it))
        op, frame, is_dead = node.op, it.frame.plan.name, node.kind == DEAD
        now = time.perf_counter_ns()
        self._listener(
            step_events.NodeStart(now, self._step, op.name, op.type, it.tag, frame, it.index, is_dead, self._device)
        )

    def end(self, node: PlanNode, it: Iteration, x: Any, values: tuple[Any, ...] | None, waited: bool = False) -> None:
        """Reports that `node` has fired.

        Args:
          node: the node.
          it: the iteration in which it fired.
          x: its inputs.
          values: the values of its outputs; None if they are not known. Of a dead twin, the origin of its deadness.
          waited: whether the node was started earlier and other nodes could fire in the meantime.
        """
        now = time.perf_counter_ns()
        op, frame, is_dead = node.op, it.frame.plan.name, node.kind == DEAD
        kept = values if self._wants_values and not is_dead else None
        sizes = None if is_dead or values is None or not self._wants_sizes else _sizes(node, values)
        cause = dead_cause(values[0]) if is_dead and values and self._wants_causes else None
        about = (kept, self._device, sizes, waited, cause, *(self._about.get(op) or self._described(op)))
        self._listener(step_events.NodeEnd(now, self._step, op.name, op.type, it.tag, frame, it.index, is_dead, *about))

    def _described(self, op: Operation) -> tuple[str, str]:
        """The line that created an operation, and its dtypes and static shapes."""
        types = ", ".join(f"{t.dtype.name}{shapes.show(t.shape)}" for t in op.outputs)
        found = self._about[op] = ("" if op.source is None else str(op.source), types)
        return found

    def computed(self, node: PlanNode, began: int) -> None:
        """Reports the span, from `began` (ns) to now, of the heavy kernel of `node`."""
        now = time.perf_counter_ns()
        self._listener(step_events.StreamSpan(began, now, self._step, self._device, "compute", node.op.name))

    def sent(self, node: PlanNode, it: Iteration, value: Any, origin: Origin | None) -> None:
        """Reports that the Send `node` sends its token; a dead one has an `origin`."""
        self._crosses(step_events.TokenSent, node, it, value, origin is not None)

    def received(self, node: PlanNode, it: Iteration, value: Any, origin: Origin | None) -> None:
        """Reports that the Recv `node` has received its token; a dead one has an `origin`."""
        self._crosses(step_events.TokenReceived, node, it, value, origin is not None)

    def _crosses(
        self,
        make: type[step_events.TokenSent | step_events.TokenReceived],
        node: PlanNode,
        it: Iteration,
        value: Any,
        is_dead: bool,
    ) -> None:
        now, a = time.perf_counter_ns(), node.op.attrs
        size = _size(value) if self._wants_sizes else 0
        self._listener(make(now, self._step, node.edge, it.tag, a["send_device"], a["recv_device"], is_dead, size))


def _sizes(node: PlanNode, values: tuple[Any, ...]) -> tuple[int, ...]:
    """Returns the bytes of each output of `node`; `values` is the result of `Executor._fire`."""
    if node.real not in (SWITCH, SWITCH_N):
        return tuple(_size(v) for v in values[: node.n_outputs])
    data, index = values[0]
    taken = int(index) if 0 <= index < node.n_outputs else node.n_outputs - 1
    return tuple(_size(data) if k == taken else 0 for k in range(node.n_outputs))


def _size(value: Any) -> int:
    """Returns the bytes of a value.

    A value that refers to others (a list of tensors, a resource) counts as none, because these were counted before.
    """
    if isinstance(value, np.ndarray) and value.dtype.hasobject:
        return sum(len(v) for v in value.flat if isinstance(v, bytes))
    if isinstance(value, (np.ndarray, np.generic)):
        return value.nbytes
    return len(value) if isinstance(value, bytes) else 0
