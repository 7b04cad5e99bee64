"""Paused step as plain data: place, values, frames, ready and waiting nodes.

A `Paused` belongs to the handler of a breakpoint for the time of the handler's call. It neither prints nor reads
anything, so that a prompt, a page or a test can use it.
"""

from __future__ import annotations

import linecache
from collections import deque
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from headrace.diagnosis import OpRef
from headrace.errors import InvalidArgumentError, OpError
from headrace.execute import plan as plans
from headrace.execute.blame import where
from headrace.ir.kernel_errors import known_as, ref
from headrace.records import record
from headrace.resources.manager import Handle, resource_of
from headrace.resources.variable import Variable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from headrace.execute.observer import Machine
    from headrace.execute.plan import PlanNode
    from headrace.execute.records import Frame, Iteration
    from headrace.ir.graph import Operation
    from headrace.ir.source import Source
    from headrace.observe.history import Firing, History

_HIDDEN: Final = frozenset({"LoopCond", "Const"})


@record(frozen=True, slots=True)
class Level:
    """Frame around the firing at which a step is paused.

    Attributes:
      kind: "loop", "function" or "step" (the root).
      name: the name of the loop or function; "" for the step.
      iteration: the number of the iteration; 0 except for a loop.
      tag: the frame and iteration as text, as in `step_events.NodeStart`.
      where: the same in words, innermost first; "" for the step.
      op: the operation that is executed at this level: the one that fired, or the loop or call that contains it.
    """

    kind: str
    name: str
    iteration: int
    tag: str
    where: str
    op: OpRef


@record(frozen=True, slots=True)
class OpenFrame:
    """Open instance of a frame.

    Attributes:
      kind: "loop", "function" or "step".
      name: the name of the loop or function; "" for the step.
      tag: the tag of the iteration that contains it, and its name.
      device: the device; "" if the step has one only.
      iterations: the number of each open iteration, and the number of nodes that have not fired in it.
      limit: the largest number of open iterations.
      held: number of tokens that wait for the oldest iteration to end.
    """

    kind: str
    name: str
    tag: str
    device: str
    iterations: tuple[tuple[int, int], ...]
    limit: int
    held: int


@record(frozen=True, slots=True)
class Entry:
    """Node that is ready, started or waiting.

    Attributes:
      op: the operation.
      tag: the frame and iteration as text.
      device: the device; "" if the step has one only.
      is_dead: whether it will fire dead.
      missing: the names of inputs that have not arrived, and "control" for control inputs; () if it does not wait for
        inputs.
    """

    op: OpRef
    tag: str
    device: str
    is_dead: bool = False
    missing: tuple[str, ...] = ()


def is_shown(node: PlanNode) -> bool:
    """Whether a node is an operation of the user, not a primitive or constant."""
    op = node.op
    return not (op.opdef.primitive or op.opdef.facts.graph_end or op.type in _HIDDEN)


def readable(value: Any) -> Any:
    """Returns a value for the user: an array becomes one that cannot be written."""
    if isinstance(value, np.ndarray):
        value = value.view()
        value.flags.writeable = False
    return value


class Paused:
    """A paused step: its state, and the commands that let it go on.

    Args:
      machines: the token machines of all devices.
      history: the values of the newest firings.
      machine: the token machine that fired.
      firing: the firing after which the step is paused.
      reason: the name of the tensor of the breakpoint; "" after a command that steps.
      add: adds a breakpoint at the tensor with a name.

    Attributes:
      machine: the token machine that fired.
      firing: the firing after which the step is paused.
      reason: the name of the tensor of the breakpoint; "" after a command that steps.
      is_cancelled: whether the step will be cancelled.
      is_free: whether the rest of the step has no pauses.
      is_over: whether the step has gone on, so that this object describes it no longer.
      until: the predicate of the firing at which the step pauses next; None: at breakpoints only.

    Methods raise:
      LookupError: no such tensor, iteration or level, or its value is not available.
    """

    def __init__(
        self,
        machines: Sequence[Machine],
        history: History,
        machine: Machine,
        firing: Firing,
        reason: str,
        add: Callable[[str], object],
    ) -> None:
        self._machines = machines
        self._history = history
        self._add = add
        self.machine = machine
        self.firing = firing
        self.reason = reason
        self.is_cancelled = False
        self.is_free = False
        self.is_over = False
        self.until: Callable[[Firing], bool] | None = None

    # *** the place ***

    @property
    def op(self) -> OpRef:
        """The operation that has fired."""
        return ref(self.firing.node.op)

    @property
    def values(self) -> tuple[Any, ...]:
        """The values of its outputs; of a Switch the one that it sent."""
        return tuple(map(readable, self.firing.values))

    def levels(self) -> list[Level]:
        """Frames around the firing, innermost first; the last is the step."""
        out, op = [], self.op
        for it in _around(self.firing.it):
            frame = it.frame
            out.append(Level(_kind(frame), frame.plan.name, it.index, it.tag, where(it), op))
            if frame.call is not None:
                op = ref(frame.call.op)
            elif frame.parent is not None:
                op = OpRef(frame.plan.name, "loop", str(_source_of(frame) or ""))
        return out

    def source(self, level: int = 0) -> Source | None:
        """Line of the user at a level, or None if it is unknown."""
        inner: Iteration | None = None
        for n, it in enumerate(_around(self.firing.it)):
            if n == level:
                break
            inner = it
        else:
            raise LookupError(f"there is no level {level}")
        return self.firing.node.op.source if inner is None else _source_of(inner.frame)

    def lines(self, level: int = 0, around: int = 3) -> list[tuple[int, str]]:
        """Numbers and texts of the user's lines around the current one.

        There are none if the file cannot be read.

        Args:
          level: the level.
          around: number of lines before and after the current one.
        """
        at = self.source(level)
        if at is None or not at.line:
            return []
        texts = linecache.getlines(at.file)
        first, last = max(1, at.line - around), min(len(texts), at.line + around)
        return [(n, texts[n - 1].rstrip("\n")) for n in range(first, last + 1)]

    # *** values ***

    def value(self, name: str, iteration: int | None = None, level: int = 0) -> tuple[str, str, Any]:
        """Finds a value that the step has computed or was fed.

        Args:
          name: the name of a tensor, or its last part.
          iteration: the iteration of the innermost loop around the tensor; None: the current one.
          level: the level at which the search begins.

        Returns:
          The full name of the tensor, the tag of its firing, and the value.
        """
        text, _, index = name.rpartition(":")
        text, k = (text, int(index)) if text and index.isdecimal() else (name, 0)
        around = list(_around(self.firing.it))[level:]
        if not around:
            raise LookupError(f"there is no level {level}")
        candidates = self._candidates(text)
        if not candidates:
            raise LookupError(f"no operation of this step is called '{name}'")
        problem = ""
        for it in around:
            for op in candidates:
                node = self._history.node_of(op)
                if node is None:
                    continue
                has_frame = (node.frame if node.real != plans.EXIT else node.frame.parent) is it.frame.plan
                if not has_frame:
                    continue
                at = it.index if iteration is None else iteration
                found = self._history.find(node, it.frame, at)
                if found is not None:
                    return self._shown(found, k)
                problem = f"'{op.name}' has no value in iteration {at}: {self._absence(it.frame, at)}"
        if problem:
            raise LookupError(problem)
        for op in candidates:
            node = self._history.node_of(op)
            if node is None:
                if "value" in op.attrs and k == 0:
                    return f"{op.name}:0", "", readable(op.attrs["value"])
            elif iteration is None:
                newest = self._history.newest(node)
                if newest is not None:
                    return self._shown(newest, k)
        raise LookupError(f"'{candidates[0].name}' has not fired in this step, or its value was dropped")

    def _shown(self, firing: Firing, k: int) -> tuple[str, str, Any]:
        if k >= max(len(firing.values), 1) or not firing.values:
            raise LookupError(f"'{firing.node.op.name}' has no output {k}")
        outputs = firing.node.op.outputs
        name = known_as(outputs[k]) if outputs else firing.node.op.name
        value = firing.values[k]
        try:
            if isinstance(value, Handle) and value.kind == Variable.__name__:
                value = resource_of(self.machine.step, value, Variable).read()
            elif hasattr(value, "read"):
                value = value.read()
        except OpError as e:  # the variable has no value
            raise LookupError(str(e)) from e
        return name, firing.it.tag, readable(value)

    def _absence(self, frame: Frame, index: int) -> str:
        if frame.parent is not None and hasattr(frame, "newest") and index > frame.newest.index:
            return f"the newest open iteration is {frame.newest.index}"
        return "it has not fired there, fired dead, or its value was dropped"

    def _candidates(self, name: str) -> list[Operation]:
        """Operations with a name: the exact one, else those whose name ends with it."""
        ops: dict[Operation, None] = {}
        for m in self._machines:
            ops.update((n.op, None) for n in m.plan.nodes if not n.op.opdef.facts.graph_end or n.real == plans.ARG)
        ops.update((t.op, None) for t in self._history.constants())
        exact = [op for op in ops if name in (op.name, _users_name(op))]
        return exact or [op for op in ops if op.name.endswith(f"/{name}")]

    # *** the state of the machines ***

    def frames(self) -> list[OpenFrame]:
        """Open frames of all devices with their open iterations, outer ones first."""
        out = []
        for m in self._machines:
            for f in m.propagator.open_frames():
                its = tuple((it.index, it.left) for it in _open(f, m))
                tag = f.plan.name if f.parent is None else "/".join(filter(None, (f.parent.tag, f.plan.name)))
                held = len(f.next_iteration_roots)
                out.append(OpenFrame(_kind(f), f.plan.name, tag, m.plan.device, its, f.plan.limit, held))
        return out

    def ready(self) -> list[Entry]:
        """Ready nodes in the order in which they will fire."""
        out = []
        for m in self._machines:
            ready = m.propagator.ready
            if isinstance(ready, deque):
                out += [
                    Entry(ref(n.op), it.tag, m.plan.device, n.kind == plans.DEAD)
                    for n, it, _ in ready
                    if not n.op.opdef.facts.graph_end or n.real != plans.RETVAL
                ]
        return out

    def started(self) -> list[Entry]:
        """Nodes that were started and have not completed: queues, other devices, heavy kernels."""
        return [Entry(ref(n.op), it.tag, m.plan.device) for m in self._machines for n, it in m.started()]

    def waiting(self) -> list[Entry]:
        """Nodes that have received some of their inputs, with the inputs that are missing."""
        out = []
        for m in self._machines:
            for node, it in m.propagator.waiting():
                out.append(Entry(ref(node.op), it.tag, m.plan.device, False, _missing(node, it)))
        return out

    # *** going on ***

    def proceed(self) -> None:
        """Lets the step go on to the next breakpoint; the default."""
        self.until = None

    def step(self, count: int = 1, every: bool = False) -> None:
        """Lets the step go on by `count` live firings.

        Args:
          count: the number of firings.
          every: whether primitives (Switch, Merge, Enter, ...) count too.
        """
        left = count

        def until(firing: Firing) -> bool:
            nonlocal left
            left -= every or is_shown(firing.node)
            return left <= 0

        self.until = until

    def next(self) -> None:
        """Lets the step go on to the loop's next iteration, or out of the loop."""
        it = next((i for i in _around(self.firing.it) if i.frame.parent is not None and i.frame.call is None), None)
        if it is None:
            self.step()
            return
        frame, index = it.frame, it.index

        def until(firing: Firing) -> bool:
            if not is_shown(firing.node):
                return False
            is_later = any(i.frame is frame and i.index > index for i in _around(firing.it))
            return is_later or not hasattr(frame, "oldest")  # a closed frame has no iterations

        self.until = until

    def run(self) -> None:
        """Lets the step go on to its end, without further pauses."""
        self.until = None
        self.is_free = True

    def quit(self) -> None:
        """Cancels the step, which then fails with `CancelledError`."""
        self.is_cancelled = True

    def break_at(self, name: str) -> None:
        """Adds a breakpoint at a tensor for the rest of the step.

        Raises:
          InvalidArgumentError: no operation of the step makes the tensor.
        """
        found = self._candidates(name.rpartition(":")[0] or name)
        if len(found) > 1:
            raise InvalidArgumentError(f"'{name}' may be {', '.join(sorted(op.name for op in found))}")
        self._add(f"{found[0].name}:0" if found else name)


def _around(it: Iteration) -> Iterator[Iteration]:
    """The iteration and those around it, innermost first."""
    current: Iteration | None = it
    while current is not None:
        yield current
        current = current.frame.parent


def _kind(frame: Frame) -> str:
    return "step" if frame.parent is None else "loop" if frame.call is None else "function"


def _open(frame: Frame, machine: Machine) -> Iterator[Iteration]:
    it: Iteration | None = frame.oldest if frame.parent is not None else machine.propagator.root
    while it is not None:
        yield it
        it = it.next


def _source_of(frame: Frame) -> Source | None:
    """Line of the loop or call that opened a frame."""
    if frame.call is not None:
        return frame.call.op.source
    return next((n.op.source for n in frame.plan.nodes if n.op.type == "LoopCond"), None)


def _users_name(op: Operation) -> str:
    return known_as(op.outputs[0]).rpartition(":")[0] if op.outputs else op.name


def _missing(node: PlanNode, it: Iteration) -> tuple[str, ...]:
    """Names of the inputs of a join that have not arrived."""
    inputs = node.op.inputs
    if node.real in (plans.MERGE, plans.LOOP_MERGE):
        return tuple(known_as(t) for t in inputs)
    left = it.pending[node.index] & plans.COUNT_MASK
    missing = [known_as(t) for t, v in zip(inputs, it.values[node.start : node.stop], strict=False) if v is None]
    missing = missing[:left]
    return (*missing, *(["control"] if left > len(missing) else []))
