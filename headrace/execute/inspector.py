"""Inspector of a running step: sees the records of the token machine, in its thread.

A listener (`step_events`) receives events, which are plain data. An inspector receives nodes, iterations and inputs, so
it can look at live frames, and it may stop the step by raising an error. In one process, a step with an inspector runs
in the thread of its caller alone, so its methods are called one at a time. A worker of a cluster uses several threads.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from headrace.execute.observer import pass_on

if TYPE_CHECKING:
    from headrace.execute.observer import Machine
    from headrace.execute.plan import PlanNode
    from headrace.execute.records import Frame, Iteration, Origin


class Inspector(Protocol):
    """Receiver of the firings of a step, which it may end by an exception."""

    def begins(self, machine: Machine) -> None:
        """Receives the token machine of each device of the step, before its first firing."""
        ...

    def fires(self, machine: Machine, node: PlanNode, it: Iteration, x: Any) -> None:
        """Receives a ready node with its inputs, before it fires."""
        ...

    def fired(self, machine: Machine, node: PlanNode, it: Iteration, x: Any, values: tuple[Any, ...]) -> None:
        """Receives a node that has fired, after its tokens were sent.

        Args:
          machine: the token machine of its device.
          node: the node, or its dead twin.
          it: the iteration.
          x: its inputs, in the form of a ready entry (`plan.PlanNode`); None for a feed.
          values: the values of its outputs; of a primitive the value that fired it.
        """
        ...


class OneAtATime:
    """Passes the records of several threads to `inspector`, one after the other."""

    begins: Callable[..., None]
    fires: Callable[..., None]
    fired: Callable[..., None]

    def __init__(self, inspector: Inspector) -> None:
        pass_on(self, [inspector], threading.Lock())


class Inspected:
    """Observer that passes the firings of one device to an inspector."""

    recent: tuple[tuple[PlanNode, Iteration], ...] = ()

    def __init__(self, inspector: Inspector) -> None:
        self._inspector = inspector
        self._machine: Any = None

    def begins(self, machine: Machine) -> None:
        """See `Observer`."""
        self._machine = machine
        self._inspector.begins(machine)

    def iteration(self, event: str, frame: Frame, it: Iteration) -> None:
        """Has no effect."""

    def fed(self, node: PlanNode, it: Iteration, value: Any) -> None:
        """See `Observer`."""
        self._inspector.fired(self._machine, node, it, None, (value,))

    def start(self, node: PlanNode, it: Iteration, x: Any) -> None:
        """See `Observer`."""
        self._inspector.fires(self._machine, node, it, x)

    def wait(self, node: PlanNode, it: Iteration) -> None:
        """Has no effect."""

    def end(self, node: PlanNode, it: Iteration, x: Any, values: tuple[Any, ...] | None, waited: bool = False) -> None:
        """See `Observer`."""
        self._inspector.fired(self._machine, node, it, x, values or ())

    def computed(self, node: PlanNode, began: int) -> None:
        """Has no effect."""

    def sent(self, node: PlanNode, it: Iteration, value: Any, origin: Origin | None) -> None:
        """Has no effect."""

    def received(self, node: PlanNode, it: Iteration, value: Any, origin: Origin | None) -> None:
        """Has no effect."""
