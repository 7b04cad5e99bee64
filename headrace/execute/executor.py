"""Runs a plan: one thread fires ready nodes, calls their kernels and drives the propagator.

**Threads.** The thread that calls `Executor.run` owns the propagator; no other thread reads or changes it, so there are
no locks. Cheap kernels run in this thread. A heavy pure kernel goes to a pool if there is other work in the meantime.
An asynchronous kernel (a dequeue, a receive) is started and calls back. Both put their results into `step.completions`,
and the thread waits on this queue when no node is ready. Every `thresholds.FIRINGS_PER_LOOK` nodes the thread checks
whether the step was cancelled or is past its deadline.

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

from headrace import flags, shapes, thresholds
from headrace.denormals import unflushed, user_mode
from headrace.errors import DeadlineExceededError, InternalError, InvalidArgumentError, ResourceExhaustedError
from headrace.execute import plan as plans
from headrace.execute.acyclic_propagator import AcyclicPropagator
from headrace.execute.blame import dead_fetch, raise_blamed, tell, where
from headrace.execute.blocking import is_observed, submit
from headrace.execute.dispatch_loop import dispatch_loop
from headrace.execute.entered import entered
from headrace.execute.events import Events
from headrace.execute.frames import Propagator
from headrace.execute.run import RunStatistics
from headrace.execute.threads import taken
from headrace.ir.kernel import KernelContext
from headrace.ir.kernel_errors import known_as, place

if TYPE_CHECKING:
    from headrace.execute.plan import Plan, PlanNode
    from headrace.execute.records import Iteration, Origin
    from headrace.execute.run import RunEnvironment, Workers
    from headrace.execute.step import Step


_unset: Final = object()

UNARY, NARY, NULLARY = plans.UNARY, plans.NARY, plans.NULLARY
SWITCH, LOOP_MERGE, NEXT, DEAD = plans.SWITCH, plans.LOOP_MERGE, plans.NEXT, plans.DEAD


class MachineProgram:
    """A plan that the token machine runs on one device.

    Args:
      plan: the plan.
      environment: the resources of the session.
    """

    __slots__ = ("environment", "plan")

    def __init__(self, plan: Plan, environment: RunEnvironment) -> None:
        self.plan = plan
        self.environment = environment

    def start(self, step: Step) -> Executor:
        """Returns a new run of the plan for `step`."""
        return Executor(self.plan, step, self.environment)


class Executor:
    """A run of a plan.

    Args:
      plan: the plan to run.
      step: the identity, resources, listener and cancellation of the step. If it has a queue of ready nodes (tests have
        one with a seeded random order), calls do not wait for their turn.
      environment: the resources of the session.

    Attributes:
      plan: the plan.
      step: the identity, resources and cancellation of the step.
      propagator: the state of the token machine.
      results: for each fetch its value, once it is computed.
    """

    __slots__ = (
        "_environment",
        *(
            "_calls",
            "_calls_wait",
            "_dead",
            "_events",
            "_deferred",
            "_is_fed",
            "_kernels",
            "_mode",
            "_ready",
            "_seconds",
            "_started",
            "_until",
            "_waiting",
        ),
        *("plan", "propagator", "results", "step"),
    )

    def __init__(
        self,
        plan: Plan,
        step: Step,
        environment: RunEnvironment,
    ) -> None:
        self.plan = plan
        self.step = step
        self._environment = environment
        listener = step.listener
        self._events = None if listener is None else Events(listener, step.id, plan.device)
        self._ready = step.ready_queue(plan.device)
        self._calls: list[tuple[PlanNode, Iteration, Any]] = []  # calls that wait for their turn
        self._calls_wait = step.ready is None
        self._deferred: list[tuple[PlanNode, Iteration, Any]] = []  # blocking kernels to call when no node is ready
        self._mode = user_mode() if plan.blocks else None  # of the calling thread; blocking kernels run in it
        make = AcyclicPropagator if plan.is_acyclic else Propagator
        self.propagator: Propagator = make(plan, self._ready, None if self._events is None else self._events.iteration)
        self.results: list[Any] = [_unset] * (plan.retvals[-1].position + 1 if plan.retvals else 0)
        self._dead: dict[int, Origin] = {}
        self._kernels: list[Callable[..., Any]] = (
            [factory(KernelContext(step, op), op.attrs) for op, factory in plan.binders] if plan.binders else []
        )
        self._waiting: dict[tuple[PlanNode, Iteration], Callable[[], object] | None] = {}  # started and not completed
        self._started = False
        self._until: Sequence[int] | None = None
        self._is_fed = False
        self._seconds = 0.0

    # *** the interface of the owner ***

    def feed(self, position: int, value: Any) -> None:
        """Supplies the feed `position`."""
        self.propagator.done(self.plan.args[position], self.propagator.root, value)

    def run(self, until: Sequence[int] | None = None, is_fed: bool = True) -> None:
        """Runs until the step is finished or paused, see `run.Run`."""
        began = time.perf_counter()
        if not self._started:
            self._started = True
            self.propagator.start()
        self._until = until
        self._is_fed = is_fed
        try:
            if self.step.cancelled is not None:
                raise self.step.cancelled
            with entered(self.plan.flushes, self._environment.blas_threads if self.plan.uses_blas else 0):
                self._fire_ready()
                while self._wait():
                    self._fire_ready()
        except BaseException as e:
            self.tell(e)
            self.abandon()
            raise
        if is_fed and not self._waiting and not self.propagator.finished:
            raise self._stuck()
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
        return RunStatistics(self.finished, self._seconds, waiting=waiting)

    def tell(self, error: BaseException) -> None:
        """Adds the last events of the step to the notes of its error."""
        recent = () if self._events is None else self._events.recent
        tell(error, self.propagator, recent, self._waiting)

    def abandon(self) -> None:
        """Cancels the asynchronous kernels of the step. No code of this step runs afterwards."""
        waiting, self._waiting = self._waiting, {}
        for cancel in waiting.values():
            if cancel is not None:
                cancel()

    # *** the loop ***

    def _fire_ready(self, limit: int = thresholds.FIRINGS_PER_LOOK) -> None:
        """Fires ready nodes until none is left, with other checks after every `limit` nodes."""
        if self._events is not None:
            self._fire_traced(self._events, limit)
            return
        p, fire, decide = self.propagator, self._fire, self._predicate
        while dispatch_loop(p, fire, decide, limit):
            self._poll()
            self._open_call()

    def _fire_traced(self, events: Events, limit: int) -> None:
        ready = self._ready
        count = 0
        while ready:
            node, it, x = ready.popleft()
            events.start(node, it)
            try:
                values = self._fire(node, it, x)
            except BaseException as e:
                raise_blamed(e, node, it, x)
            if (node.live, it) not in self._waiting and node.real != plans.CALL:
                events.end(node, it, values)
            count += 1
            if count % limit == 0:
                self._poll()
                self._open_call()

    def _fire(self, node: PlanNode, it: Iteration, x: Any) -> tuple[Any, ...]:
        """Fires a node of any kind; returns the values of its outputs for the trace.

        Of a node whose outputs are not known yet, it returns the empty tuple; of other primitives the value that fired
        it.
        """
        kind, p = node.kind, self.propagator
        if kind == plans.RETVAL:
            self._retval(node, it, x)
            return (x,)
        if kind == plans.READING:
            kind, x = node.real, _read(node, x)
        if kind == plans.PASS:
            p.done(node, it, x)
            return (x,)
        if kind in (UNARY, NARY, NULLARY):
            assert node.kernel is not None
            value = _call(node, node.kernel, x)
            p.done(node, it, value)
            return (value,)
        if kind == plans.OTHER:
            assert node.kernel is not None
            values = _call(node, node.kernel, x) or ()
            p.done_many(node, it, values)
            return tuple(values)
        if kind == plans.STATEFUL:
            self.step.iteration = it
            value = _call(node, self._kernels[node.bound], x)
            return self._finish(node, it, value)
        if kind == SWITCH:
            p.switch(node, it, x[0], self._predicate(x[1]))
        elif kind == LOOP_MERGE:
            p.merge(node, it, x, node.value_index[1 if it.index else 0])
        elif kind == plans.MERGE:
            p.merge(node, it, x[0], np.int32(x[1]))
            return (x[0], np.int32(x[1]))
        elif kind == NEXT:
            p.next_iteration(node, it, x)
        elif kind == plans.ENTER:
            p.enter(node, it, x)
        elif kind == plans.EXIT:
            p.exit(node, it, x)
        elif kind == plans.TRIGGER:
            p.done_many(node, it, ())
        elif kind == plans.HEAVY:
            return self._heavy(node, it, x)
        elif kind == plans.BLOCKING:
            self._block(node, it, x)
        elif kind == plans.ASYNC:
            self._start_async(node, it, x)
        elif kind == plans.CALL:
            self._call(node, it, x)
        elif kind == plans.RESULT:
            p.result(node, it, x.read() if node.reads else x)
        elif kind == plans.SWITCH_N:
            p.switch_n(node, it, x[0], self._branch(x[1]))
        elif kind == DEAD:
            if node.live.kind == plans.RETVAL:
                self._dead.setdefault(node.live.position, x)
            p.dead(node, it, x)
        else:
            raise InternalError(f"{node!r} has a node kind that never becomes ready", node.op.name, node.op)
        return (x,)

    def _predicate(self, value: Any) -> bool:
        return predicate(value)

    def _branch(self, value: Any) -> int:
        return branch(value)

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
        self.results[node.position] = x.read() if node.reads else x
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
        if not (self._ready or self._waiting or self._calls) or not _is_heavy(node, x):
            value = self._computed(node, kernel, x)
            self.propagator.done(node, it, value)
            return (value,)
        completions, events, flushes = self.step.completions, self._events, self.plan.flushes

        def job() -> None:
            began = time.perf_counter_ns()
            try:
                with entered(flushes):
                    value = self._computed(node, kernel, x)
                if events is not None:
                    events.computed(node, began)
            except BaseException as e:
                completions.put((node, it, x, None, e))
            else:
                completions.put((node, it, x, value, None))

        self._waiting[node, it] = None
        self._workers().submit(job)
        return ()

    def _workers(self) -> Workers:
        """Destination of heavy kernels."""
        return self._environment.pool

    def _computed(self, node: PlanNode, kernel: Callable[..., Any], x: Any) -> Any:
        """Calls the heavy kernel of `node`, possibly in a thread of the pool."""
        return _call(node, kernel, x)

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
        self._deferred.append((node, it, x))

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

    def _wait(self) -> bool:
        """Waits for a completion, because no node is ready. False: no started kernel could complete."""
        if self.propagator.finished:
            return False
        step = self.step
        self._poll()
        if self._ready or self._open_call():
            return True
        if self._deferred:
            self._start_deferred()
            if self._ready:
                return True
        if not self._waiting:
            return self._release()
        if self._is_satisfied():
            return False
        limit = flags.WAIT_LIMIT.value
        until = time.monotonic() + limit
        while True:
            left = until - time.monotonic()
            own = step.time_left()
            if own is not None and own < left:
                left = own
            try:
                self._complete(taken(step.completions, left))
            except queue.Empty:
                if own is not None and own <= 0:
                    raise self._too_late() from None
                if time.monotonic() >= until:
                    if not self.is_blocked:
                        raise self._waited_too_long(limit) from None
                    until = time.monotonic() + limit
                continue
            self._poll()
            if self._ready:
                return True
            if self.propagator.finished or self._is_satisfied():
                return False
            if not self._waiting:
                return self._release()

    def _release(self) -> bool:
        """Ends iterations that can never complete, until a node becomes ready; see `Propagator.release`."""
        p = self.propagator
        while self._is_fed and not self._ready and not p.finished and p.release():
            pass
        return len(self._ready) > 0

    def _is_satisfied(self) -> bool:
        """Whether this is a partial run whose fetches are all computed."""
        return self._until is not None and all(map(self.has, self._until))

    @property
    def is_blocked(self) -> bool:
        """Whether a Python function of the user is being called, without a time limit."""
        return any(node.op.opdef.facts.blocking for node, _ in self._waiting)

    def _complete(self, entry: Any) -> None:
        if entry is None:
            return
        node, it, x, value, error = entry
        if (node, it) not in self._waiting:
            return  # it was cancelled before
        del self._waiting[node, it]
        if error is not None:
            raise_blamed(error, node, it, x)
        values = self._finish(node, it, value)
        if self._events is not None:
            self._events.end(node, it, values, waited=True)

    def _waits(self) -> str:
        shown = [place(n.op) + (f" in {where(i)}" if where(i) else "") for n, i in list(self._waiting)[:5]]
        more = len(self._waiting) - len(shown)
        return "; ".join(shown) + (f"; and {more} more" if more > 0 else "")

    def _too_late(self) -> DeadlineExceededError:
        waits = self._waits()
        busy = f"; it waits for {waits}" if waits else ""
        return DeadlineExceededError(f"Timed out: step {self.step.id} ran past its time limit{busy}")

    def _waited_too_long(self, limit: float) -> DeadlineExceededError:
        return DeadlineExceededError(
            f"step {self.step.id} has waited {limit:g} s without any progress for {self._waits()}. Nothing in this "
            "step can wake it; give the run a timeout, close the queue, or raise HEADRACE_WAIT_LIMIT if the wait is "
            "intended"
        )

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


def predicate(value: Any) -> bool:
    """Converts the predicate of a Switch to a bool; raises `InvalidArgumentError` unless it is scalar."""
    if getattr(value, "ndim", 0):
        raise InvalidArgumentError(
            f"The second input must be a scalar, but it has shape {shapes.show(value.shape)}: "
            "a Switch needs one predicate"
        )
    return bool(value)


def branch(value: Any) -> int:
    """Converts the index of a _SwitchN to an int; raises `InvalidArgumentError` unless it is scalar."""
    if getattr(value, "ndim", 0):
        raise InvalidArgumentError(
            f"The second input must be a scalar, but it has shape {shapes.show(value.shape)}: "
            "a SwitchN needs one output_index"
        )
    return int(value)


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
