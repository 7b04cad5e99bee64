"""The executor of one device's part of a step: it sends, receives, and never waits.

It runs a part as `Executor` runs a whole step, with two more kinds of nodes. A Send ships its token, dead or alive. A
Recv takes a token, or registers a callback for it. When no node is ready the executor does not wait, but `advance`
returns. The thread that drives it (`execute.parts`) calls `advance` again when there are new completions.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from headrace import flags, thresholds
from headrace.execute.blame import dead_cause, raise_blamed
from headrace.execute.dispatch_loop import dispatch_loop
from headrace.execute.executor import Executor
from headrace.execute.plan import RECV, SEND, STATEFUL

if TYPE_CHECKING:
    from headrace.execute.devices import LocalDevice
    from headrace.execute.plan import Plan, PlanNode
    from headrace.execute.records import Iteration, Origin
    from headrace.execute.rendezvous import Rendezvous, Token
    from headrace.execute.run import RunEnvironment, Workers
    from headrace.execute.step import Step


class PartExecutor(Executor):
    """A running part of a step.

    Args:
      plan: the plan of the part.
      step: the part of the step.
      environment: the resources of the session.
      device: the device of the part.
      rendezvous: the rendezvous of the parts.
      busy: called before work that may take long.

    Attributes:
      rendezvous: the rendezvous of the parts.
      busy: called before work that may take long.
      device: the device of the part.
      sent: number of tokens sent.
      received: number of tokens consumed.
    """

    __slots__ = ("_detaches", "_receiving", "busy", "device", "received", "rendezvous", "sent")

    def __init__(
        self,
        plan: Plan,
        step: Step,
        environment: RunEnvironment,
        device: LocalDevice,
        rendezvous: Rendezvous,
        busy: Callable[[], object],
    ) -> None:
        super().__init__(plan, step, environment)
        self.device = device
        self.rendezvous = rendezvous
        self.busy = busy
        self.sent = self.received = 0
        self._receiving = 0  # Recvs that wait for their tokens
        self._is_fed = True
        # Arrays are immutable, so a value that is sent within a process need not be copied. At the highest level of
        # checks it is: then a buffer that two devices share did not get there by a Send.
        self._detaches = flags.VERIFY.value >= 2

    def advance(self, limit: int = thresholds.FIRINGS_PER_LOOK, once: bool = False) -> bool:
        """Processes completions and fires ready nodes, until no node is ready.

        Args:
          limit: the largest number of nodes between two checks for completions.
          once: whether to return after the first `limit` nodes.

        Returns:
          Whether it fired or completed a node.

        Raises:
          OpError: the error of a kernel, `DeadlineExceededError` or `CancelledError`; `InternalError` if the part is
            stuck.
        """
        nothing_new = self.step.completions.empty
        did = not self._started or not nothing_new()
        if not self._started:
            self._started = True
            self.propagator.start()
        super()._poll()
        while True:
            if not self._ready and not self._open_call():
                if self.propagator.finished or self._waiting:
                    return did
                if not self._is_fed:
                    return did
                if not self._release():
                    if self.propagator.finished:
                        return True
                    raise self._stuck()
            did = True
            if once:
                dispatch_loop(self.propagator, self._fire, self._predicate, limit)
                return True
            self._fire_ready(limit)
            if not nothing_new():
                super()._poll()

    def begin(self, is_fed: bool) -> None:
        """Prepares for `advance`; `is_fed` says whether all feeds of the step have been supplied."""
        self._is_fed = is_fed

    @property
    def waiting(self) -> tuple[str, ...]:
        """Names of operations that were started and have not completed."""
        return tuple(node.op.name for node, _ in list(self._waiting))

    @property
    def only_receives(self) -> bool:
        """Whether it waits for tokens of other devices only."""
        return len(self._waiting) == self._receiving

    def end_half_fed(self) -> None:
        """Ends an iteration that no device can complete, see `Propagator.release`."""
        frame = self.propagator.releasable()
        assert frame is not None, "the caller checked for a releasable frame"
        for node, it in list(self._waiting):
            if it is frame.oldest:
                self.rendezvous.forget((node.edge, it.frame.path, it.index))
                del self._waiting[node, it]
                self._receiving -= 1
        self.propagator.release()

    # *** the differences from `Executor` ***

    def _poll(self) -> None:
        self.busy()  # after a burst this part has more to fire, so other threads take the rest
        super()._poll()

    def _block(self, node: PlanNode, it: Iteration, x: Any) -> None:
        self._waiting[node, it] = None
        self._start_blocking(node, it, x)  # other parts continue in the meantime

    def _heavy(self, node: PlanNode, it: Iteration, x: Any) -> tuple[Any, ...]:
        self.busy()
        return super()._heavy(node, it, x)

    def _fire(self, node: PlanNode, it: Iteration, x: Any) -> tuple[Any, ...]:
        live = node.live
        real = live.real
        if real == RECV:  # the Recv itself: a dead control input does not make its token dead
            return self._receive(live, it)
        if real != SEND:
            if node.kind == STATEFUL:  # its kernel may be a Python function of the user
                self.busy()
            return super()._fire(node, it, x)
        if node is not live:
            self._send(live, it, None, x)
            self.propagator.dead(node, it, x)
            return ()
        if node.reads:
            x = x.read()
        self._send(node, it, x if node.arity else None, None)
        if node.gates:
            self.propagator.done_many(node, it, ())
        else:
            self.propagator.absorbed(it)
        return ()

    def _workers(self) -> Workers:
        return self.device.compute()

    def _computed(self, node: PlanNode, kernel: Callable[..., Any], x: Any) -> Any:
        began = time.perf_counter()
        value = super()._computed(node, kernel, x)
        self._environment.record(node.op.name, self.device.type, time.perf_counter() - began)
        return value

    def _send(self, node: PlanNode, it: Iteration, value: Any, origin: Origin | None) -> None:
        """Ships the token of the Send `node`, dead if there is an `origin`."""
        if self._events is not None:
            self._events.sent(node, it, value, origin is not None)
        if self._detaches and isinstance(value, np.ndarray):
            value = value.copy()
        self.sent += 1
        self.rendezvous.send(
            (node.edge, it.frame.path, it.index), value, None if origin is None else dead_cause(origin)
        )

    def _receive(self, node: PlanNode, it: Iteration) -> tuple[Any, ...]:
        """Takes the token of the Recv `node`, or registers a receiver for it."""
        key = (node.edge, it.frame.path, it.index)
        token = self.rendezvous.take(key)
        if token is not None:
            return self._received(node, it, token)
        completions = self.step.completions
        self._waiting[node, it] = None
        self._receiving += 1
        self.rendezvous.recv_async(key, lambda token, error: completions.put((node, it, (), token, error)))
        return ()

    def _received(self, node: PlanNode, it: Iteration, token: Token) -> tuple[Any, ...]:
        self.received += 1
        value, cause = token
        if self._events is not None:
            self._events.received(node, it, value, cause is not None)
        if cause is not None:
            self.propagator.dead(node.dead, it, cause)
            return ()
        if node.n_outputs:
            self.propagator.done(node, it, value)
            return (value,)
        self.propagator.done_many(node, it, ())
        return ()

    def _complete(self, entry: Any) -> None:
        if entry is None or entry[0].kind != RECV:
            super()._complete(entry)
            return
        node, it, x, token, error = entry
        if self._waiting.pop((node, it), self) is self:
            return  # it was cancelled before
        self._receiving -= 1
        if error is not None:
            raise_blamed(error, node, it, x)
        values = self._received(node, it, token)
        if self._events is not None:
            self._events.end(node if token[1] is None else node.dead, it, values, waited=True)
