"""Observers of a running step: receive the records of the token machine while it runs.

Without an observer the machine makes no records. A listener of the step (`step_events`) receives events, which are
plain data (`events.Events`), or supplies an observer of its own. An inspector (`inspector`) looks at live frames and
may stop the step. Several observers receive each record in turn.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol

if TYPE_CHECKING:
    from headrace.execute.frames import Propagator
    from headrace.execute.plan import Plan, PlanNode
    from headrace.execute.records import Frame, Iteration, Origin

RECENT: Final = 8  # firings that an error lists


class Machine(Protocol):
    """Token machine of one device as an observer sees it; `executor.Executor` is one.

    Attributes:
      plan: the plan of the device's part of the step.
      propagator: the state of the machine.
      step: the step (`execute.step.Step`), or the part of it on this device.
    """

    plan: Plan
    propagator: Propagator
    step: Any

    def started(self) -> list[tuple[PlanNode, Iteration]]:
        """Nodes that were started and have not completed, with their iterations."""
        ...


class Observer(Protocol):
    """Receiver of the records of one device's part of a step.

    An observer is called by the thread of its part; `computed` also by others.
    """

    @property
    def recent(self) -> Collection[tuple[PlanNode, Iteration]]:
        """Nodes that fired last with their iterations, oldest first; at most `RECENT` are read."""
        ...

    def begins(self, machine: Machine) -> None:
        """Receives the token machine before its first firing."""
        ...

    def iteration(self, event: str, frame: Frame, it: Iteration) -> None:
        """Receives the opening ("open") or the freeing ("free") of an iteration."""
        ...

    def fed(self, node: PlanNode, it: Iteration, value: Any) -> None:
        """Receives the value of a feed, for which `start` and `end` are not called."""
        ...

    def start(self, node: PlanNode, it: Iteration, x: Any) -> None:
        """Receives a ready node with its inputs, before it fires."""
        ...

    def wait(self, node: PlanNode, it: Iteration) -> None:
        """Receives a node after `start` whose firing ends later, with `waited`."""
        ...

    def end(self, node: PlanNode, it: Iteration, x: Any, values: tuple[Any, ...] | None, waited: bool = False) -> None:
        """Receives a node that has fired, after its tokens were sent.

        Args:
          node: the node, or its dead twin.
          it: the iteration in which it fired.
          x: its inputs, in the form of a ready entry (`plan.PlanNode`).
          values: the values of its outputs; None if they are not known. Of a primitive the value that fired it, of a
            Switch a pair of the data and the predicate as a Python number, of a dead twin the origin of its deadness.
          waited: whether the node was started earlier and other nodes could fire in the meantime.
        """
        ...

    def computed(self, node: PlanNode, began: int) -> None:
        """Receives the node of a heavy kernel that has run since `began` (ns)."""
        ...

    def sent(self, node: PlanNode, it: Iteration, value: Any, origin: Origin | None) -> None:
        """Receives the token that the Send `node` sends; a dead one has an `origin`."""
        ...

    def received(self, node: PlanNode, it: Iteration, value: Any, origin: Origin | None) -> None:
        """Receives the token that the Recv `node` has received; a dead one has an `origin`."""
        ...


class Several:
    """Passes each record to all of `observers`, in order. Its methods are those of `Observer`."""

    begins: Callable[..., None]
    iteration: Callable[..., None]
    fed: Callable[..., None]
    start: Callable[..., None]
    wait: Callable[..., None]
    end: Callable[..., None]
    computed: Callable[..., None]
    sent: Callable[..., None]
    received: Callable[..., None]

    def __init__(self, observers: Sequence[Observer]) -> None:
        self._observers = observers
        pass_on(self, observers)

    @property
    def recent(self) -> Collection[tuple[PlanNode, Iteration]]:
        """Nodes that fired last, of the first observer that keeps them."""
        return next((o.recent for o in self._observers if o.recent), ())


def pass_on(
    relay: object, receivers: Sequence[Any], context: contextlib.AbstractContextManager[Any] | None = None
) -> None:
    """Gives `relay` the methods that its class declares; they call those of all receivers.

    Args:
      relay: the object, whose class has an annotation for each method.
      receivers: objects with these methods.
      context: entered around each call, for example a lock; None: none.
    """

    def method(name: str) -> Callable[..., None]:
        called = [getattr(r, name) for r in receivers]

        def call(*args: Any, **more: Any) -> None:
            for f in called:
                f(*args, **more)

        def call_within(*args: Any, **more: Any) -> None:
            assert context is not None
            with context:
                call(*args, **more)

        return call if context is None else call_within

    for name in type(relay).__annotations__:
        setattr(relay, name, method(name))
