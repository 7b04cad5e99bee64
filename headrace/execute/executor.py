"""Runs a plan: one thread takes ready nodes, runs their kernels and tells the propagator.

The thread that calls `Executor.run` owns the propagator; no other thread touches it. Cheap kernels run in that thread.
A heavy pure kernel goes to a pool when there is other work to do meanwhile; an asynchronous one (a dequeue, a receive)
is started and calls back. Both come back through `step.completions`, which is also what the thread waits on when
nothing is ready: there are no locks. Every so many nodes it looks whether the step was cancelled or is past its
deadline.

A call of a function (one that is not inlined, see `plan.CALL`) waits until nothing else is ready, and the last one that
became ready goes first: so a function that calls itself twice is walked in depth, and what is open at once are the
calls on the way down, not all that there will be. Every so many nodes one goes out of turn, so that none waits for
ever.

The first error ends the step: started asynchronous kernels are cancelled, pool kernels (which hold nothing) are left to
finish unheard.
"""

from __future__ import annotations

import collections
import queue
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol

import numpy as np

from headrace import flags, shapes, trace
from headrace.denormals import flushed, unflushed, user_mode
from headrace.errors import DeadlineExceededError, InternalError, InvalidArgumentError, ResourceExhaustedError
from headrace.execute import blas
from headrace.execute import plan as plans
from headrace.execute.acyclic_propagator import AcyclicPropagator
from headrace.execute.blame import dead_fetch, raise_blamed, tell, where
from headrace.execute.blocking import is_observed, submit
from headrace.execute.dispatch_loop import dispatch_loop
from headrace.execute.events import Events
from headrace.execute.frames import Propagator
from headrace.execute.threads import taken
from headrace.ir.kernel import KernelContext
from headrace.ir.kernel_errors import known_as, place

if TYPE_CHECKING:
    from headrace.execute.plan import Plan, PlanNode
    from headrace.execute.records import Iteration, Origin, Ready
    from headrace.execute.step import StepState

BURST: Final = 256  # nodes between two looks at cancellation and the clock

_unset: Final = object()

UNARY, NARY, NULLARY = plans.UNARY, plans.NARY, plans.NULLARY
SWITCH, LOOP_MERGE, NEXT, DEAD = plans.SWITCH, plans.LOOP_MERGE, plans.NEXT, plans.DEAD


class Workers(Protocol):
    """What heavy kernels are given to: a pool of threads, a stream."""

    def submit(self, work: Callable[[], None], /) -> object: ...


class Executor:
    """One step under way.

    Args:
      plan: what to run.
      step: its identity, resources and cancellation.
      pool: gives the pool for heavy kernels when one is first needed.
      listener: receives `trace` events, or None.
      ready: the queue of ready nodes; tests give one that picks in a seeded random order (of calls too: none waits).
      blas_threads: how many threads the BLAS library may use meanwhile.

    Attributes:
      propagator: the token machine's state.
      results: for each fetch its value, once there.
    """

    __slots__ = (
        "_blas_threads",
        *(
            "_calls",
            "_calls_wait",
            "_dead",
            "_events",
            "_held",
            "_is_fed",
            "_kernels",
            "_mode",
            "_pool",
            "_ready",
            "_started",
            "_until",
            "_waiting",
        ),
        *("plan", "propagator", "results", "step"),
    )

    def __init__(
        self,
        plan: Plan,
        step: StepState,
        pool: Callable[[], Workers],
        listener: trace.Listener | None = None,
        ready: Ready | None = None,
        blas_threads: int = 1,
    ) -> None:
        self.plan = plan
        self._blas_threads = blas_threads
        self.step = step
        self._pool = pool
        self._events = None if listener is None else Events(listener, step.id, plan.device)
        self._ready: Ready = collections.deque() if ready is None else ready
        self._calls: list[tuple[PlanNode, Iteration, Any]] = []  # those that wait for their turn
        self._calls_wait = ready is None
        self._held: list[tuple[PlanNode, Iteration, Any]] = []  # blocking kernels to be called when nothing is ready
        self._mode = user_mode() if plan.blocks else None  # of the caller, for these
        make = AcyclicPropagator if plan.is_straight else Propagator
        self.propagator: Propagator = make(plan, self._ready, None if self._events is None else self._events.iteration)
        self.results: list[Any] = [_unset] * (plan.retvals[-1].position + 1 if plan.retvals else 0)
        self._dead: dict[int, Origin] = {}
        self._kernels: list[Callable[..., Any]] = (
            [factory(KernelContext(step, op), op.attrs) for op, factory in plan.binders] if plan.binders else []
        )
        self._waiting: dict[tuple[PlanNode, Iteration], Callable[[], object] | None] = {}  # started and not done
        self._started = False
        self._until: Sequence[int] | None = None
        self._is_fed = False

    # *** what the owner calls ***

    def feed(self, position: int, value: Any) -> None:
        """Supplies the feed `position`."""
        self.propagator.done(self.plan.args[position], self.propagator.root, value)

    def run(self, until: Sequence[int] | None = None, is_fed: bool = True) -> None:
        """Runs until the step is finished, or (a partial run) until what is wanted is there or nothing more can fire.

        Args:
          until: for a partial run: the fetches wanted. Once they are there, nothing is waited for.
          is_fed: whether all feeds have been supplied, so that a step that cannot go on is an error.

        Raises:
          OpError: of a kernel, or `DeadlineExceededError`, `CancelledError`; `InternalError` if the step is stuck.
        """
        if not self._started:
            self._started = True
            self.propagator.start()
        self._until = until
        self._is_fed = is_fed
        try:
            if self.plan.uses_blas:
                with blas.threads(self._blas_threads):
                    self._go_on()
            else:
                self._go_on()
        except BaseException as e:
            self.tell(e)
            self.abandon()
            raise
        if is_fed and not self._waiting and not self.propagator.finished:
            raise self._stuck()

    def _go_on(self) -> None:
        with flushed(self.plan.flushes), np.errstate(all="ignore"):
            self._fire_ready()
            while self._wait():
                self._fire_ready()

    def fetch(self, position: int) -> Any:
        """The value of a fetch; `InvalidArgumentError` if it is dead or not there."""
        value = self.results[position]
        if value is _unset:
            op = next(n.op for n in self.plan.retvals if n.position == position)
            raise dead_fetch(known_as(op.inputs[0]), position, self._dead.get(position))
        return value

    def forget(self, position: int) -> None:
        """Drops the value of a fetch."""
        self.results[position] = None

    def has(self, position: int) -> bool:
        """Whether a fetch has its value, or is known to be dead."""
        return self.results[position] is not _unset or position in self._dead

    def tell(self, error: BaseException) -> None:
        """Adds the last events of the step to the notes of the error that ended it."""
        recent = () if self._events is None else self._events.recent
        tell(error, self.propagator, recent, self._waiting)

    def abandon(self) -> None:
        """Cancels what was started; nothing of this step runs afterwards."""
        waiting, self._waiting = self._waiting, {}
        for cancel in waiting.values():
            if cancel is not None:
                cancel()

    # *** the loop ***

    def _fire_ready(self, limit: int = BURST) -> None:
        """Fires what is ready, until nothing is; `limit` nodes between two looks at all else."""
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
        """Fires a node of any kind; returns its outputs' values where they are known at once, for the trace."""
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
            raise InternalError(f"{node!r} is of a kind that never becomes ready", node.op.name, node.op)
        return (x,)

    def _predicate(self, value: Any) -> bool:
        return predicate(value)

    def _branch(self, value: Any) -> int:
        return branch(value)

    def _finish(self, node: PlanNode, it: Iteration, value: Any) -> tuple[Any, ...]:
        """Hands a kernel's result to the propagator in the form it wants."""
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
                f"calls are nested deeper than {limit}: {place(node.op)}, calls '{node.child.name}' once more. "
                "Does the recursion end? If it does, raise the limit by HEADRACE_CALL_DEPTH",
                node.op.name,
                node.op,
            )
        self._calls.append((node, it, x))
        if not self._calls_wait:
            self._open_call()

    def _open_call(self) -> bool:
        """Lets the call go on that became ready last; False if none waits."""
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
                with flushed(flushes), np.errstate(all="ignore"):
                    value = self._computed(node, kernel, x)
                if events is not None:
                    events.computed(node, began)
            except BaseException as e:
                completions.put((node, it, x, None, e))
            else:
                completions.put((node, it, x, value, None))

        self._waiting[node, it] = None
        self._pool().submit(job)
        return ()

    def _computed(self, node: PlanNode, kernel: Callable[..., Any], x: Any) -> Any:
        """What the heavy kernel of `node` makes of its inputs."""
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
        self._held.append((node, it, x))

    def _start_held(self) -> None:
        """Nothing is ready: calls the blocking kernels that are, each on a thread of its own.

        Where nothing else is in flight, and nothing could end the step meanwhile, that is the thread of the step.
        """
        held, self._held = self._held, []
        if len(held) == len(self._waiting) == 1 and not is_observed(self.step):
            node, it, x = held[0]
            try:
                value = _call(node, self._kernels[node.bound], x)
            except BaseException as e:
                raise_blamed(e, node, it, x)
            self._complete((node, it, x, value, None))
            return
        for node, it, x in held:
            self._start_blocking(node, it, x)

    def _start_blocking(self, node: PlanNode, it: Iteration, x: Any) -> None:
        step, kernel, mode, completions = self.step, self._kernels[node.bound], self._mode, self.step.completions

        def job() -> None:
            try:
                step.look()
                with unflushed(mode), np.errstate(all="ignore"):
                    value = _call(node, kernel, x)
            except BaseException as e:  # raised in the thread that asked for the step
                completions.put((node, it, x, None, e))
            else:
                completions.put((node, it, x, value, None))

        submit(step, job)

    # *** waiting ***

    def _poll(self) -> None:
        """Takes in what has completed; raises if the step was cancelled or is past its deadline."""
        step = self.step
        while not step.completions.empty():
            self._complete(step.completions.get_nowait())
        if step.cancelled is not None:
            raise step.cancelled
        left = step.time_left()
        if left is not None and left <= 0:
            raise self._too_late()

    def _wait(self) -> bool:
        """Nothing is ready: waits for a completion. False when nothing was started that could complete."""
        if self.propagator.finished:
            return False
        step = self.step
        self._poll()
        if self._ready or self._open_call():
            return True
        if self._held:
            self._start_held()
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
        """Nothing is ready or under way: ends iterations that cannot end by themselves until something is."""
        p = self.propagator
        while self._is_fed and not self._ready and not p.finished and p.release():
            pass
        return len(self._ready) > 0

    def _is_satisfied(self) -> bool:
        """Whether this is a partial run and has what it wants for now."""
        return self._until is not None and all(map(self.has, self._until))

    @property
    def is_blocked(self) -> bool:
        """Whether a function of the user's is being called, which may take as long as it likes."""
        return any(node.op.opdef.facts.blocking for node, _ in self._waiting)

    def _complete(self, entry: Any) -> None:
        if entry is None:
            return
        node, it, x, value, error = entry
        if (node, it) not in self._waiting:
            return  # cancelled, and late
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
            "step can wake it; give the run a timeout, close the queue, or raise HEADRACE_WAIT_LIMIT if this is meant"
        )

    def half_fed(self) -> list[str]:
        """A line for each node that has got only some of its inputs, and for each that waits."""
        found = [*self._waiting, *self.propagator.waiting()][:8]
        return [f"  {place(node.op)}" + (f" in {where(it)}" if where(it) else "") for node, it in found]

    def _stuck(self) -> InternalError:
        text = "\n".join(self.half_fed()) or "  (no node is half-fed)"
        return InternalError(
            f"step {self.step.id} cannot go on: nothing is ready or running, and these operations have got only some "
            f"of their inputs:\n{text}\nIn a loop every NextIteration must fire alive in the same iterations."
        )


def predicate(value: Any) -> bool:
    """The predicate of a Switch as a Python bool; `InvalidArgumentError` unless it is a scalar."""
    if getattr(value, "ndim", 0):
        raise InvalidArgumentError(
            f"The second input must be a scalar, but it has shape {shapes.show(value.shape)}: "
            "a predicate decides one way"
        )
    return bool(value)


def branch(value: Any) -> int:
    """The index of a _SwitchN as a Python int; `InvalidArgumentError` unless it is a scalar."""
    if getattr(value, "ndim", 0):
        raise InvalidArgumentError(
            f"The second input must be a scalar, but it has shape {shapes.show(value.shape)}: "
            "an index decides for one output"
        )
    return int(value)


def _call(node: PlanNode, kernel: Callable[..., Any], x: Any) -> Any:
    if node.kind in (plans.STATEFUL, plans.BLOCKING) and node.reads:
        x = _read(node, x)
    if node.arity == 1:
        return kernel(x)
    return kernel(*x) if node.arity else kernel()


def _read(node: PlanNode, x: Any) -> Any:
    """`x` with the references among the inputs read."""
    if node.real in (plans.MERGE, LOOP_MERGE):
        value = x[0] if node.real == plans.MERGE else x
        value = value.read() if hasattr(value, "read") else value
        return (value, x[1]) if node.real == plans.MERGE else value
    if node.arity == 1:
        return x.read()
    return [v.read() if i in node.reads else v for i, v in enumerate(x)]


def _is_heavy(node: PlanNode, x: Any) -> bool:
    """Whether this firing is worth a thread, where the static shapes did not say."""
    if node.cost is None:
        return True
    args = [x] if node.arity == 1 else x
    # an output's shape is not known before it is computed; the product of the inputs' is what the cost functions of
    # such ops need
    flops = node.cost([np.shape(a) for a in args], [t.shape for t in node.op.outputs])
    return flops is not None and flops >= plans.HEAVY_FLOPS
