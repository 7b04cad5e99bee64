"""Events of a running step for its listener, made from the executor's records."""

from __future__ import annotations

import collections
import time
from typing import TYPE_CHECKING, Any

import numpy as np

from headrace import shapes, step_events
from headrace.device_arrays import DeviceArray, to_host
from headrace.execute.blame import dead_cause
from headrace.execute.observer import RECENT
from headrace.execute.plan import DEAD, LOOP_MERGE, SWITCH, SWITCH_N

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

    __slots__ = ("_about", "_device", "_listener", "_step", "_wants", "recent")

    def __init__(self, listener: step_events.Listener, step: int, device: str) -> None:
        self._listener = listener
        self._step = step
        self._device = device
        self.recent: collections.deque[tuple[PlanNode, Iteration]] = collections.deque(maxlen=RECENT)
        self._about: dict[Operation, tuple[str, str]] = {}  # source and shapes of operations that have fired
        self._wants = step_events.Wants(listener)

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
        op, frame, is_dead, wants = node.op, it.frame.plan.name, node.kind == DEAD, self._wants
        kept = sizes = cause = None
        if is_dead:
            cause = dead_cause(values[0]) if values and wants.wants_causes else None
        elif values is not None:
            has_values = wants.wants_values or op.name in wants.values_of
            outputs = output_values(node, it, values) if has_values or wants.wants_sizes else ()
            kept = outputs if has_values else None
            sizes = tuple(map(_size, outputs)) if wants.wants_sizes else None
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
        size = _size(value) if self._wants.wants_sizes else 0
        self._listener(make(now, self._step, node.edge, it.tag, a["send_device"], a["recv_device"], is_dead, size))


def output_values(node: PlanNode, it: Iteration, values: tuple[Any, ...]) -> tuple[Any, ...]:
    """Returns the values of the outputs of a live firing, as arrays of numpy.

    An output to which a Switch did not send has None.

    Args:
      node: the node, which is no call.
      it: the iteration in which it fired.
      values: the values that an observer receives at its end.
    """
    n, kind = node.n_outputs, node.real
    if not values:
        return ()
    if kind in (SWITCH, SWITCH_N):
        data, index = values[0]
        taken = int(index) if 0 <= index < n else n - 1
        return tuple(to_host(data) if k == taken else None for k in range(n))
    if kind == LOOP_MERGE:
        return to_host(values[0]), node.value_index[1 if it.index else 0]
    return tuple(map(to_host, values[:n]))


def _size(value: Any) -> int:
    """Returns the bytes of a value.

    A value that refers to others (a list of tensors, a resource) counts as none, because these were counted before.
    """
    if isinstance(value, np.ndarray) and value.dtype.hasobject:
        return sum(len(v) for v in value.flat if isinstance(v, bytes))
    if isinstance(value, (np.ndarray, np.generic, DeviceArray)):
        return value.nbytes
    return len(value) if isinstance(value, bytes) else 0
