"""Runs a plan: one thread fires ready nodes, calls their kernels and drives the propagator.

**Threads.** One thread at a time drives an executor and owns its propagator, so there are no locks. Cheap kernels run
in this thread. A heavy pure kernel goes to a pool if there is other work in the meantime. An asynchronous kernel (a
dequeue, a receive) is started and calls back. Both put their results into `step.completions`. Every
`thresholds.FIRINGS_PER_LOOK` nodes the thread checks whether the step was cancelled or is past its deadline.

**Two drivers.** `advance` fires nodes until none is ready, and never waits. `run` is the driver of a step on one
device: it calls `advance` and waits for completions in turn. `execute.parts` drives the parts of a step over several
devices: it calls `advance` again when there are new completions. A part sends and receives tokens through its `ports`
(`execute.ports`).

**Calls.** A call of a function (one that is not inlined, see `plan.CALL`) waits until no other node is ready. Of
several waiting calls, the one that became ready last is opened first. So a function that calls itself twice is run
depth-first: the open frames are the calls on the current path of the recursion, and not all calls of it. Every
`thresholds.FIRINGS_PER_LOOK` nodes one call is opened out of turn, so that no call waits for ever.

**Errors.** The first error ends the step. Started asynchronous kernels are cancelled. Kernels on the pool hold nothing,
so they run to their end, and their results are dropped.
"""

from __future__ import annotations

import queue
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from headrace import flags, thresholds
from headrace.denormals import unflushed, user_mode
from headrace.errors import DeadlineExceededError, InternalError, ResourceExhaustedError
from headrace.execute import plan as plans
from headrace.execute.acyclic_propagator import AcyclicPropagator
from headrace.execute.blame import dead_cause, dead_fetch, raise_blamed, tell, where
from headrace.execute.blocking import is_observed, submit
from headrace.execute.dispatch_loop import dispatch_loop
from headrace.execute.entered import entered, library_threads_of, threads_of
from headrace.execute.events import Events
from headrace.execute.frames import Propagator
from headrace.execute.inspector import Inspected
from headrace.execute.observer import Several
from headrace.execute.ports import Ports
from headrace.execute.records import DeadCause
from headrace.execute.run import RunStatistics
from headrace.execute.waits import next_look, note_interrupt, tell_long_wait, waits_of
from headrace.ir.kernel import KernelContext
from headrace.ir.kernel_errors import known_as, place

if TYPE_CHECKING:
    from headrace.execute.observer import Observer
    from headrace.execute.plan import Plan, PlanNode
    from headrace.execute.records import Iteration, Origin
    from headrace.execute.rendezvous import Token
    from headrace.execute.run import RunEnvironment
    from headrace.execute.step import Step


_unset: Final = object()

NULLARY = plans.NULLARY
SWITCH, LOOP_MERGE, NEXT, DEAD = plans.SWITCH, plans.LOOP_MERGE, plans.NEXT, plans.DEAD
SEND, RECV = plans.SEND, plans.RECV


class MachineProgram:
    """A plan that the token machine runs on one device.

    Args:
      plan: the plan.
      environment: the resources of the session.
    """

    __slots__ = ("_ports", "environment", "plan")

    def __init__(self, plan: Plan, environment: RunEnvironment) -> None:
        self.plan = plan
        self.environment = environment
        self._ports = Ports(environment)  # it has no state of a run

    def start(self, step: Step) -> Executor:
        """Returns a new run of the plan for `step`."""
        return Executor(self.plan, step, self._ports, self.environment.blas_threads)


def _observer(step: Step, device: str) -> Observer | None:
    """Returns the observer of the part of `step` on `device`, if any."""
    found: list[Observer] = []
    if (listener := step.listener) is not None:
        make = getattr(listener, "observer", None)
        found.append(Events(listener, step.id, device) if make is None else make(step.id, device))
    found += map(Inspected, step.inspectors)
    return Several(found) if len(found) > 1 else found[0] if found else None


class Executor:
    """A run of a plan.

    Args:
      plan: the plan to run.
      step: the identity, resources, listener and cancellation of the step. If it has a queue of ready nodes (tests have
        one with a seeded random order), calls do not wait for their turn.
      ports: the connection to other devices.
      blas_threads: number of threads that the BLAS library may use in `run`.

    Attributes:
      plan: the plan.
      step: the identity, resources and cancellation of the step.
      ports: the connection to other devices.
      propagator: the state of the token machine.
      results: for each fetch its value, once it is computed.
      sent: number of tokens sent to other devices.
      received: number of tokens from other devices that were consumed.
    """

    __slots__ = (
        *(
            "_blas_threads",
            "_calls",
            "_calls_wait",
            "_dead",
            "_deferred",
            "_is_fed",
            "_kernels",
            "_mode",
            "_observer",
            "_ready",
            "_receiving",
            "_seconds",
            "_started",
            "_waiting",
        ),
        *("plan", "ports", "propagator", "received", "results", "sent", "step"),
    )

    def __init__(self, plan: Plan, step: Step, ports: Ports, blas_threads: int = 1) -> None:
        self.plan = plan
        self.step = step
        self.ports = ports
        self.sent = self.received = 0
        self._receiving = 0  # Recvs that wait for their tokens
        self._blas_threads = blas_threads
        self._observer = _observer(step, plan.device)
        self._ready = step.ready_queue(plan.device)
        self._calls: list[tuple[PlanNode, Iteration, Any]] = []  # calls that wait for their turn
        self._calls_wait = step.ready is None
        self._deferred: list[tuple[PlanNode, Iteration, Any]] = []  # blocking kernels to call when no node is ready
        self._mode = user_mode() if plan.blocks else None  # of the calling thread; blocking kernels run in it
        make = AcyclicPropagator if plan.is_acyclic else Propagator
        self.propagator: Propagator = make(
            plan, self._ready, None if self._observer is None else self._observer.iteration
        )
        self.results: list[Any] = [_unset] * (plan.retvals[-1].position + 1 if plan.retvals else 0)
        self._dead: dict[int, Origin] = {}
        self._kernels: list[Callable[..., Any]] = (
            [factory(KernelContext(step, op), op.attrs) for op, factory in plan.binders] if plan.binders else []
        )
        self._waiting: dict[tuple[PlanNode, Iteration], Callable[[], object] | None] = {}  # started and not completed
        self._started = False
        self._is_fed = False
        self._seconds = 0.0
        if self._observer is not None:
            self._observer.begins(self)

    # *** the interface of the owner ***

    def feed(self, position: int, value: Any) -> None:
        """Supplies feed `position` of the plan."""
        if self.ports.copies:
            value = self.ports.put(value, self.plan.args[position].op.outputs[0].dtype)
        node, root = self.plan.args[position], self.propagator.root
        self.propagator.done(node, root, value)
        if self._observer is not None:
            self._observer.fed(node, root, value)

    def run(self, until: Sequence[int] | None = None, is_fed: bool = True) -> None:
        """Runs until the step is finished or paused, see `run.Run`."""
        began = time.perf_counter()
        self.begin(is_fed)
        try:
            with entered(self.plan.flushes, threads_of(self.plan, self._blas_threads)):
                self.advance()
                while self._waiting and not (until is not None and all(map(self.has, until))):
                    self._wait()
                    self.advance()
        except BaseException as e:
            self.tell(e)
            note_interrupt(e, self.waits())
            self.abandon()
            raise
        self._seconds += time.perf_counter() - began

    def fetch(self, position: int) -> Any:
        """Hands over the value of a fetch; raises `InvalidArgumentError` if it has none."""
        value = self.results[position]
        if value is _unset:
            op = next(n.op for n in self.plan.retvals if n.position == position)
            raise dead_fetch(known_as(op.inputs[0]), position, self._dead.get(position))
        self.results[position] = None
        return value

    def has(self, position: int) -> bool:
        """Whether a fetch has its value or is known to be dead."""
        return self.results[position] is not _unset or position in self._dead

    @property
    def finished(self) -> bool:
        """Whether every node has fired."""
        return self.propagator.finished

    def cancel(self, error: BaseException) -> None:
        """Makes the step fail with `error` at its next check."""
        self.step.cancel(error)

    def statistics(self) -> RunStatistics:
        """State of the run at this moment."""
        waiting = tuple(node.op.name for node, _ in list(self._waiting))
        return RunStatistics(self.finished, self._seconds, self.sent, self.received, waiting)

    def started(self) -> list[tuple[PlanNode, Iteration]]:
        """Nodes that were started and have not completed, with their iterations."""
        return list(self._waiting)

    def tell(self, error: BaseException) -> None:
        """Adds the last events of the step to the notes of its error."""
        recent = () if self._observer is None else self._observer.recent
        tell(error, self.propagator, recent, self._waiting)

    def abandon(self) -> None:
        """Cancels the asynchronous kernels of the step. No code of this step runs afterwards."""
        waiting, self._waiting = self._waiting, {}
        for cancel in waiting.values():
            if cancel is not None:
                cancel()

    # *** the interface of a driver ***

    def begin(self, is_fed: bool) -> None:
        """Prepares for `advance`; `is_fed` says whether all feeds of the step have been supplied."""
        self._is_fed = is_fed

    def advance(self, limit: int = thresholds.FIRINGS_PER_LOOK, once: bool = False) -> bool:
        """Processes completions and fires ready nodes, until no node is ready.

        Args:
          limit: the largest number of nodes between two checks for completions.
          once: whether to return after the first `limit` nodes.

        Returns:
          Whether it fired or completed a node.

        Raises:
          OpError: the error of a kernel, `DeadlineExceededError` or `CancelledError`; `InternalError` if the plan is
            stuck.
        """
        step = self.step
        if step.cancelled is not None:
            raise step.cancelled
        did = False
        if not self._started:
            did = self._started = True
            self.propagator.start()
        elif self._waiting:
            did = not step.completions.empty()
            self._poll()
        while True:
            if not self._ready and not self._open_call():
                if self.propagator.finished:
                    return did
                if self._deferred:
                    self._start_deferred()
                elif self._waiting or not self._is_fed:
                    return did
                elif not self._release():
                    if self.propagator.finished:
                        return True
                    raise self._stuck()
            did = True
            if once:
                dispatch_loop(self.propagator, self._fire, self.ports.predicate, limit)
                return True
            self._fire_ready(limit)
            if self._waiting:
                self._poll()

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
                self.ports.forget(node, it)
                del self._waiting[node, it]
                self._receiving -= 1
        self.propagator.release()

    # *** the loop ***

    def _fire_ready(self, limit: int) -> None:
        """Fires ready nodes until none is left, with other checks after every `limit` nodes."""
        if self._observer is not None:
            self._fire_observed(self._observer, limit)
            return
        p, fire, decide = self.propagator, self._fire, self.ports.predicate
        while dispatch_loop(p, fire, decide, limit):
            self._look()

    def _fire_observed(self, observer: Observer, limit: int) -> None:
        ready = self._ready
        count = 0
        while ready:
            node, it, x = ready.popleft()
            if node.live.real == RECV:  # a dead control input does not make its token dead
                node = node.live
            try:
                observer.start(node, it, x)
                values = self._fire(node, it, x)
            except BaseException as e:
                raise_blamed(e, node, it, x)
            if node.real == plans.CALL or (self._waiting and (node.live, it) in self._waiting):
                observer.wait(node, it)
            else:
                observer.end(_fired_as(node, values), it, x, values)
            count += 1
            if count % limit == 0:
                self._look()

    def _look(self) -> None:
        """Checks the step between two bursts of nodes."""
        self.ports.busy()  # more nodes are ready, so other threads take the parts that wait for this one
        self._poll()
        self._open_call()

    def _fire(self, node: PlanNode, it: Iteration, x: Any) -> tuple[Any, ...]:
        """Fires a node of any kind; returns the values of its outputs for the trace.

        Of a node whose outputs are not known yet, it returns the empty tuple; of a Switch its data and predicate; of
        other primitives the value that fired it.
        """
        kind, p = node.kind, self.propagator
        if kind == plans.READING:
            kind, x = node.real, _read(node, x)
        if kind <= NULLARY:
            if kind == plans.PASS:
                value = x
            else:
                assert node.kernel is not None
                value = _call(node, node.kernel, x)
            p.done(node, it, value)
            return (value,)
        if kind == SWITCH:
            taken = self.ports.predicate(x[1])
            p.switch(node, it, x[0], taken)
            return ((x[0], taken),)
        elif kind == LOOP_MERGE:
            p.merge(node, it, x, node.value_index[1 if it.index else 0])
        elif kind == NEXT:
            p.next_iteration(node, it, x)
        elif kind == DEAD:
            live = node.live
            if live.acts_dead:
                if live.real == RECV:  # a dead control input does not make its token dead
                    return self._receive(live, it)
                if live.real == SEND:
                    self._send(live, it, None, x)
                else:
                    self._dead.setdefault(live.position, x)
            p.dead(node, it, x)
        elif kind == plans.RETVAL:
            self._retval(node, it, x)
        elif kind == plans.OTHER:
            assert node.kernel is not None
            values = _call(node, node.kernel, x) or ()
            p.done_many(node, it, values)
            return tuple(values)
        elif kind == plans.STATEFUL:
            self.ports.busy()  # the kernel may be a Python function of the user
            self.step.iteration = it
            return self._finish(node, it, _call(node, self._kernels[node.bound], x))
        elif kind == plans.MERGE:
            p.merge(node, it, x[0], np.int32(x[1]))
            return (x[0], np.int32(x[1]))
        elif kind == plans.ENTER:
            p.enter(node, it, x)
        elif kind == plans.EXIT:
            p.exit(node, it, x)
        elif kind == plans.TRIGGER:
            p.done_many(node, it, ())
        elif kind == plans.HEAVY:
            return self._heavy(node, it, x)
        elif kind == plans.LONG:
            assert node.kernel is not None
            self.ports.busy()
            return self._finish(node, it, _call(node, node.kernel, x))
        elif kind == plans.BLOCKING:
            self._block(node, it, x)
        elif kind == plans.ASYNC:
            self._start_async(node, it, x)
        elif kind == plans.CALL:
            self._call(node, it, x)
        elif kind == plans.RESULT:
            p.result(node, it, x.read() if node.reads else x)
        elif kind == plans.SWITCH_N:
            index = self.ports.branch(x[1])
            p.switch_n(node, it, x[0], index)
            return ((x[0], index),)
        elif kind == SEND:
            self._send(node, it, x if node.arity else None, None)
            if node.gates:
                p.done_many(node, it, ())
            else:
                p.absorbed(it)
            return ()
        elif kind == RECV:
            return self._receive(node, it)
        else:
            raise InternalError(f"{node!r} has a node kind that never becomes ready", node.op.name, node.op)
        return (x,)

    def _finish(self, node: PlanNode, it: Iteration, value: Any) -> tuple[Any, ...]:
        """Passes the result of a kernel to the propagator: one value or several."""
        if node.n_outputs == 1:
            self.propagator.done(node, it, value)
            return (value,)
        values = () if value is None else tuple(value)
        self.propagator.done_many(node, it, values)
        return values

    def _retval(self, node: PlanNode, it: Iteration, x: Any) -> None:
        if self.results[node.position] is not _unset:
            name = known_as(node.op.inputs[0])
            raise InternalError(
                f"Retval[{node.position}] has already been set: '{name}' is fetched and has a value "
                f"in {where(it) or 'more than one firing'} after an earlier one. Fetch a loop's result (its Exit).",
                name,
                node.op,
            )
        x = x.read() if node.reads else x
        self.results[node.position] = self.ports.get(x, node.op.inputs[0].dtype) if self.ports.copies else x
        self.propagator.absorbed(it)

    def _call(self, node: PlanNode, it: Iteration, x: Any) -> None:
        limit = flags.CALL_DEPTH.value
        if it.frame.depth >= limit:
            assert node.child is not None
            raise ResourceExhaustedError(
                f"calls are nested deeper than {limit}: {place(node.op)}, calls '{node.child.name}' again. "
                "Check that the recursion ends; if it does, raise HEADRACE_CALL_DEPTH",
                node.op.name,
                node.op,
            )
        self._calls.append((node, it, x))
        if not self._calls_wait:
            self._open_call()

    def _open_call(self) -> bool:
        """Opens the call that became ready last; returns False if no call waits."""
        if not self._calls:
            return False
        node, it, x = self._calls.pop()
        self.propagator.call(node, it, (x,) if node.arity == 1 else x)
        return True

    def _heavy(self, node: PlanNode, it: Iteration, x: Any) -> tuple[Any, ...]:
        kernel = node.kernel
        assert kernel is not None
        self.ports.busy()
        if not (self._ready or self._waiting or self._calls) or not _is_heavy(node, x):
            value = self._computed(node, kernel, x)
            self.propagator.done(node, it, value)
            return (value,)
        completions, observer, flushes = self.step.completions, self._observer, self.plan.flushes
        library_threads = library_threads_of(self.plan, self._blas_threads)

        def job() -> None:
            began = time.perf_counter_ns()
            try:
                with entered(flushes, 0, library_threads):
                    value = self._computed(node, kernel, x)
                if observer is not None:
                    observer.computed(node, began)
            except BaseException as e:
                completions.put((node, it, x, None, e))
            else:
                completions.put((node, it, x, value, None))

        self._waiting[node, it] = None
        self.ports.workers().submit(job)
        return ()

    def _computed(self, node: PlanNode, kernel: Callable[..., Any], x: Any) -> Any:
        """Calls the heavy kernel of `node`, possibly in a thread of the pool."""
        if self.ports.is_alone:
            return _call(node, kernel, x)
        began = time.perf_counter()
        value = _call(node, kernel, x)
        self.ports.computed(node.op.name, time.perf_counter() - began)
        return value

    # *** other devices ***

    def _send(self, node: PlanNode, it: Iteration, value: Any, origin: Origin | None) -> None:
        """Ships the token of the Send `node`, dead if there is an `origin`."""
        ports = self.ports
        if ports.copies and origin is None and node.arity:
            value = ports.get(value, node.op.inputs[0].dtype)
        if self._observer is not None:
            self._observer.sent(node, it, value, origin)
        self.sent += 1
        ports.send(node, it, value, None if origin is None else dead_cause(origin))

    def _receive(self, node: PlanNode, it: Iteration) -> tuple[Any, ...]:
        """Takes the token of the Recv `node`, or waits for it."""
        completions = self.step.completions
        token = self.ports.receive(node, it, lambda token, error: completions.put((node, it, (), token, error)))
        if token is not None:
            return self._received(node, it, token)
        self._waiting[node, it] = None
        self._receiving += 1
        return ()

    def _received(self, node: PlanNode, it: Iteration, token: Token) -> tuple[Any, ...]:
        """Passes a token on; returns its value, or the cause of its deadness."""
        self.received += 1
        value, cause = token
        if self._observer is not None:
            self._observer.received(node, it, value, cause)
        if cause is not None:
            self.propagator.dead(node.dead, it, cause)
            return (cause,)
        if node.n_outputs:
            if self.ports.copies:
                value = self.ports.put(value, node.op.outputs[0].dtype)
            self.propagator.done(node, it, value)
            return (value,)
        self.propagator.done_many(node, it, ())
        return ()

    # *** kernels that may wait ***

    def _start_async(self, node: PlanNode, it: Iteration, x: Any) -> None:
        completions = self.step.completions
        self.step.iteration = it

        def done(result: Any = None) -> None:
            error = result if isinstance(result, BaseException) else None
            completions.put((node, it, x, result, error))

        self._waiting[node, it] = None
        args = () if node.arity == 0 else (x,) if node.arity == 1 else x
        if node.reads:
            args = [a.read() if i in node.reads else a for i, a in enumerate(args)]
        try:
            cancel = self._kernels[node.bound](*args, done)
        except BaseException:
            del self._waiting[node, it]
            raise
        self._waiting[node, it] = cancel

    def _block(self, node: PlanNode, it: Iteration, x: Any) -> None:
        self._waiting[node, it] = None
        if self.ports.is_alone:
            self._deferred.append((node, it, x))
        else:
            self._start_blocking(node, it, x)  # other parts continue in the meantime

    def _start_deferred(self) -> None:
        """Calls the blocking kernels that wait for the ready queue to be empty.

        Each runs on a thread of its own. If nothing else of the step is in flight and nothing else could end the step,
        a single kernel runs on the thread of the step.
        """
        deferred, self._deferred = self._deferred, []
        if len(deferred) == len(self._waiting) == 1 and not is_observed(self.step):
            node, it, x = deferred[0]
            try:
                value = _call(node, self._kernels[node.bound], x)
            except BaseException as e:
                raise_blamed(e, node, it, x)
            self._complete((node, it, x, value, None))
            return
        for node, it, x in deferred:
            self._start_blocking(node, it, x)

    def _start_blocking(self, node: PlanNode, it: Iteration, x: Any) -> None:
        step, kernel, mode, completions = self.step, self._kernels[node.bound], self._mode, self.step.completions

        def job() -> None:
            try:
                step.look()
                with unflushed(mode), entered():
                    value = _call(node, kernel, x)
            except BaseException as e:  # raised again in the thread of the step
                completions.put((node, it, x, None, e))
            else:
                completions.put((node, it, x, value, None))

        submit(step, job)

    # *** waiting ***

    def _poll(self) -> None:
        """Processes completions; raises if the step was cancelled or is past its deadline."""
        step = self.step
        while not step.completions.empty():
            self._complete(step.completions.get_nowait())
        if step.cancelled is not None:
            raise step.cancelled
        left = step.time_left()
        if left is not None and left <= 0:
            raise self._too_late()

    def _wait(self) -> None:
        """Waits for a completion.

        Raises:
          DeadlineExceededError: the deadline of the step has passed, or the wait has taken `flags.WAIT_LIMIT` seconds.
        """
        step, limit, waited = self.step, flags.WAIT_LIMIT.value, 0.0
        while True:
            left = step.time_left()
            patience = next_look(step, max(limit - waited, 0.0) or limit if left is None else min(left, limit), waited)
            try:
                self._complete(step.clock.take(step.completions, patience))
                return
            except queue.Empty:
                waited += patience
                left = step.time_left()
                if left is not None and left <= 0:
                    raise self._too_late() from None
                if left is None and waited >= limit and not self.is_blocked:
                    raise step.past_wait_limit(limit, f" for {self.waits()}") from None
                tell_long_wait(step, waited, self.waits())

    def _release(self) -> bool:
        """Ends iterations that can never complete, until a node becomes ready; see `Propagator.release`."""
        p = self.propagator
        while self._is_fed and not self._ready and not p.finished and p.release():
            pass
        return len(self._ready) > 0

    @property
    def is_blocked(self) -> bool:
        """Whether a Python function of the user is being called, without a time limit."""
        return any(node.op.opdef.facts.blocking for node, _ in self._waiting)

    def _complete(self, entry: Any) -> None:
        """Passes on the result of a kernel or a Recv; None is a mere wake-up."""
        if entry is None:
            return
        node, it, x, value, error = entry
        if (node, it) not in self._waiting:
            return  # it was cancelled before
        del self._waiting[node, it]
        is_received = node.kind == RECV
        self._receiving -= is_received
        if error is not None:
            raise_blamed(error, node, it, x)
        if not is_received:
            values = self._finish(node, it, value)
        else:
            try:
                values = self._received(node, it, value)
            except Exception as e:  # of the device's `put`
                raise_blamed(e, node, it, ())
        if self._observer is not None:
            self._observer.end(_fired_as(node, values), it, x, values, waited=True)

    def waits(self) -> str:
        """Names the operations that were started and have not completed; "" without any."""
        return waits_of(list(self._waiting), self.step)

    def _too_late(self) -> DeadlineExceededError:
        waits = self.waits()
        busy = f"; it waits for {waits}" if waits else ""
        return self.step.past_deadline(busy)

    def half_fed(self) -> list[str]:
        """Lines that name nodes with some inputs missing and nodes that wait, at most 8."""
        found = [*self._waiting, *self.propagator.waiting()][:8]
        return [f"  {place(node.op)}" + (f" in {where(it)}" if where(it) else "") for node, it in found]

    def _stuck(self) -> InternalError:
        text = "\n".join(self.half_fed()) or "  (no node has received a part of its inputs)"
        return InternalError(
            f"step {self.step.id} cannot continue: no node is ready or running, and these operations have received "
            f"only some of their inputs:\n{text}\nIn a loop every NextIteration must fire alive in the same iterations."
        )


def _fired_as(node: PlanNode, values: tuple[Any, ...]) -> PlanNode:
    """Returns the node that fired; of a Recv whose token is dead, the dead twin."""
    return node.dead if node.real == RECV and values and isinstance(values[0], DeadCause) else node


def _call(node: PlanNode, kernel: Callable[..., Any], x: Any) -> Any:
    if node.kind in (plans.STATEFUL, plans.BLOCKING) and node.reads:
        x = _read(node, x)
    if node.arity == 1:
        return kernel(x)
    return kernel(*x) if node.arity else kernel()


def _read(node: PlanNode, x: Any) -> Any:
    """Returns `x` with the references among the inputs replaced by their values."""
    if node.real in (plans.MERGE, LOOP_MERGE):
        value = x[0] if node.real == plans.MERGE else x
        value = value.read() if hasattr(value, "read") else value
        return (value, x[1]) if node.real == plans.MERGE else value
    if node.arity == 1:
        return x.read()
    return [v.read() if i in node.reads else v for i, v in enumerate(x)]


def _is_heavy(node: PlanNode, x: Any) -> bool:
    """Whether this firing justifies a thread, where the static shapes do not decide it."""
    if node.cost is None:
        return True
    args = [x] if node.arity == 1 else x
    # the shape of an output is not known before the firing; the cost functions of such ops need only the product of the
    # input shapes
    flops = node.cost([np.shape(a) for a in args], [t.shape for t in node.op.outputs])
    return flops is not None and flops >= thresholds.POOL_FLOPS
