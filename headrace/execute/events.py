"""What a running step tells its listener: the events of `trace`, made from the token machine's records."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from headrace import trace
from headrace.execute.plan import DEAD

if TYPE_CHECKING:
    from headrace.execute.plan import Node
    from headrace.execute.records import Frame, Iteration


class Events:
    """The events of one step on one device.

    Args:
      listener: receives them.
      step: the step's number.
      device: where it runs; "" if the step has one device only.
    """

    __slots__ = ("_device", "_listener", "_step", "_wants_values")

    def __init__(self, listener: trace.Listener, step: int, device: str) -> None:
        self._listener = listener
        self._step = step
        self._device = device
        self._wants_values = bool(getattr(listener, "wants_values", False))

    def iteration(self, event: str, frame: Frame, it: Iteration) -> None:
        """An iteration is opened ("open") or freed ("free"); the last of a call's frame ends the call."""
        make = trace.IterationOpen if event == "open" else trace.IterationFree
        name, device = frame.plan.name, self._device
        self._listener(make(time.perf_counter_ns(), self._step, it.tag, name, it.index, device))
        if event == "free" and frame.call is not None and frame.parent is not None:
            self.end(frame.call, frame.parent, None)

    def start(self, node: Node, it: Iteration) -> None:
        """`node` fires."""
        op, frame, is_dead = node.op, it.frame.plan.name, node.kind == DEAD
        now = time.perf_counter_ns()
        self._listener(
            trace.NodeStart(now, self._step, op.name, op.type, it.tag, frame, it.index, is_dead, self._device)
        )

    def end(self, node: Node, it: Iteration, values: tuple[Any, ...] | None) -> None:
        """`node` has fired, and gave `values`."""
        op, frame, is_dead = node.op, it.frame.plan.name, node.kind == DEAD
        kept = values if self._wants_values and not is_dead else None
        now = time.perf_counter_ns()
        self._listener(
            trace.NodeEnd(now, self._step, op.name, op.type, it.tag, frame, it.index, is_dead, kept, self._device)
        )

    def computed(self, node: Node, began: int) -> None:
        """The stream of heavy kernels has computed `node`, which it began at the time `began`."""
        now = time.perf_counter_ns()
        self._listener(trace.StreamSpan(began, now, self._step, self._device, "compute", node.op.name))

    def sent(self, node: Node, it: Iteration, is_dead: bool) -> None:
        """The Send `node` ships its token."""
        self._crosses(trace.TokenSent, node, it, is_dead)

    def received(self, node: Node, it: Iteration, is_dead: bool) -> None:
        """The Recv `node` has got its token."""
        self._crosses(trace.TokenReceived, node, it, is_dead)

    def _crosses(
        self, make: type[trace.TokenSent | trace.TokenReceived], node: Node, it: Iteration, is_dead: bool
    ) -> None:
        now, a = time.perf_counter_ns(), node.op.attrs
        self._listener(make(now, self._step, node.edge, it.tag, a["send_device"], a["recv_device"], is_dead))
