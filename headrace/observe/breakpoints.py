"""Breakpoints: pauses of a run at a tensor, for a look at its live frames.

    with hr.breakpoint_when("while/h", lambda v: v.max() > 1e6):
        session.run(y)

A step with breakpoints is interpreted. Its inspector compares each firing with the breakpoints. When one applies, the
inspector makes a `Paused` and passes it to the handler of the breakpoint, in the thread of the caller. The step goes on
when the handler returns. The default handler is a prompt in the terminal (`observe.prompt`).

**Time.** The deadline of a step is moved by the time that the handler takes.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import IO, TYPE_CHECKING, Any, TypeAlias

from headrace import notices
from headrace.denormals import unflushed
from headrace.errors import CancelledError, FailedPreconditionError, InvalidArgumentError
from headrace.execute import plan as plans
from headrace.ir.graph import Tensor
from headrace.ir.kernel_errors import known_as, place
from headrace.metadata import scoped_options
from headrace.observe.history import Firing, History
from headrace.observe.paused import Paused, readable

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from headrace.execute.observer import Machine
    from headrace.execute.plan import Plan, PlanNode
    from headrace.execute.records import Iteration
    from headrace.metadata import RunOptions

Condition: TypeAlias = "Callable[[Any], Any]"
Handler: TypeAlias = "Callable[[Paused], object]"


class Breakpoint:
    """Breakpoint at a tensor, as a context manager or for `RunOptions`.

    `breakpoint_when` makes it.

    Args:
      tensor: the tensor, or its name.
      condition: a predicate of the value; None: always true.
      handler: receives a `Paused` at each pause.
      is_interactive: whether the handler needs the terminal of the process.

    Attributes:
      name: the name of the tensor.
      hits: number of pauses at the breakpoint.
      is_in_block: whether its `with` block is open. Then runs that do not compute the tensor are legal.
      is_found: whether a run in the block computed the tensor.
    """

    def __init__(
        self, tensor: Tensor | str, condition: Condition | None, handler: Handler, is_interactive: bool
    ) -> None:
        if not isinstance(tensor, str):
            tensor = getattr(tensor, "graph_element", tensor)  # of a variable
            if not isinstance(tensor, Tensor):
                raise TypeError(f"a breakpoint needs a tensor of a graph or its name, got {tensor!r}")
            tensor = known_as(tensor)
        if condition is not None and not callable(condition):
            raise TypeError(f"the condition of a breakpoint is a function of the value, got {condition!r}")
        self.name = tensor if ":" in tensor else f"{tensor}:0"
        self.hits = 0
        self.is_in_block = self.is_found = False
        self.handler = handler
        self._condition = condition
        self._is_interactive = is_interactive
        self._block: list[AbstractContextManager[None]] = []
        self._near = ""

    def __enter__(self) -> Breakpoint:
        block = scoped_options.changed(self._added)
        block.__enter__()
        self._block.append(block)
        self.is_in_block, self.is_found = True, False
        return self

    def __exit__(self, kind: type[BaseException] | None, *exc: object) -> None:
        self._block.pop().__exit__(None, None, None)
        self.is_in_block = bool(self._block)
        if kind is None and not self.is_found:
            notices.warn(f"no run in the block of the breakpoint computed '{self.name}'{self._near}")

    def __repr__(self) -> str:
        return f"<Breakpoint at '{self.name}', {self.hits} hits>"

    def _added(self, options: RunOptions) -> RunOptions:
        return dataclasses.replace(options, breakpoints=(*options.breakpoints, self))

    def check_terminal(self) -> None:
        """Raises `FailedPreconditionError` if the breakpoint needs a terminal and there is none."""
        if self._is_interactive and not (sys.stdin is not None and sys.stdin.isatty()):
            raise FailedPreconditionError(
                f"the breakpoint at '{self.name}' needs a terminal, and the standard input is none. Give "
                "breakpoint_when its streams (stdin=, stdout=), or a function that receives the pauses (on_pause=)"
            )

    def holds(self, value: Any) -> bool:
        """Whether the condition is true for a value.

        Raises:
          InvalidArgumentError: the condition raised an exception.
        """
        if self._condition is None:
            return True
        try:
            with unflushed():
                return bool(self._condition(readable(value)))
        except Exception as e:
            raise InvalidArgumentError(
                f"the condition of the breakpoint at '{self.name}' failed with {type(e).__name__}: {e}"
            ) from e

    def not_found(self, names: Iterable[str]) -> None:
        """Raises the error of a step without the tensor, except in the block.

        Args:
          names: the names of the operations of the step.

        Raises:
          InvalidArgumentError: the breakpoint is one of the options of the run.
        """
        import difflib  # a slow import, needed for names that are not found only

        near = difflib.get_close_matches(self.name.rpartition(":")[0], sorted(set(names)), 3)
        self._near = f"; near names: {', '.join(near)}" if near else self._near
        if not self.is_in_block:
            raise InvalidArgumentError(
                f"no operation of this step computes '{self.name}', at which a breakpoint is set{self._near}. "
                "Constants, and operations that the fetches do not need, do not fire"
            )

    def matches(self, plan: Plan) -> dict[PlanNode, int]:
        """Returns the nodes that compute the tensor, with the index of its output."""
        op_name, _, index = self.name.rpartition(":")
        k = int(index) if index.isdecimal() else 0
        suffix = f"_{k}" if k else ""  # of the results of loops and conditionals, see `lower.whole`
        results = [f"{op_name}/Exit{suffix}", f"{op_name}/Merge{suffix}"]
        if any(node.op.name == results[0] for node in plan.nodes):
            del results[1]  # a loop has Merges too, at its beginning
        out: dict[PlanNode, int] = {}
        for node in plan.nodes:
            outputs = node.op.outputs
            if node.op.name == op_name and k < len(outputs):
                out[node] = k
            elif (node.real == plans.ARG and known_as(outputs[0]) == self.name) or node.op.name in results:
                out[node] = 0
        if not out:  # a function has names of its own, which lowering puts after that of the call
            out = {n: k for n in plan.nodes if n.op.name.endswith(f"/{op_name}") and k < len(n.op.outputs)}
        return out


def breakpoint_when(
    tensor: Tensor | str,
    condition: Condition | None = None,
    *,
    stdin: IO[str] | None = None,
    stdout: IO[str] | None = None,
    on_pause: Handler | None = None,
) -> Breakpoint:
    """Creates a breakpoint: runs in its `with` block pause when a tensor is computed.

    At a pause a prompt inspects the live frames, the values and the user's lines, and steps (`help` lists its
    commands). Such a run is interpreted operation by operation. A tensor in a loop is computed in every iteration; a
    breakpoint ignores dead firings. Runs in the block that do not compute the tensor do not pause.

    Args:
      tensor: the tensor, or its name; that of a tensor in a loop or branch is its path, such as "while/h".
      condition: a predicate of the value; None: always true.
      stdin: the input of the prompt. None: the terminal.
      stdout: the output of the prompt. None: the terminal.
      on_pause: a function that receives each `Paused` in place of the prompt; the step goes on when it returns.

    Returns:
      A `Breakpoint`, which is a context manager. `RunOptions(breakpoints=[...])` takes it too.

    Raises:
      TypeError: `tensor` is not a tensor of a graph, or `condition` not a function.

    Example:
      >>> import io, sys
      >>> import headrace as hr
      >>> with hr.Graph() as g:
      ...     _, y = hr.while_loop(lambda i, h: i < 3, lambda i, h: (i + 1, hr.identity(h * 2.0, name="h")), (0, 1.0))
      >>> typed = io.StringIO("print h\\ncontinue\\n")
      >>> with hr.breakpoint_when("while/h", lambda v: v == 4.0, stdin=typed, stdout=sys.stdout):
      ...     result = hr.Session(graph=g).run(y)
      paused at 'while/h:0' (Identity), made at ...: float32[] = 4.0
      in iteration 1 of loop 'while'
      ...
      while/h:0 = float32[] = 4.0
      >>> result
      np.float32(8.0)
    """
    handler = on_pause
    if handler is None:
        from headrace.observe.prompt import Terminal

        handler = Terminal(stdin, stdout)
    return Breakpoint(tensor, condition, handler, on_pause is None and stdin is None)


class BreakpointInspector:
    """Inspector that pauses the step at breakpoints, and after commands that step.

    Args:
      breakpoints: the breakpoints.
      plans: the plans of the step by device.

    Attributes:
      history: the values of the newest firings.
      machines: the token machines of the step.

    Raises:
      InvalidArgumentError: no operation of the step makes the tensor of a breakpoint.
      FailedPreconditionError: a breakpoint needs a terminal, and there is none.
    """

    def __init__(self, breakpoints: Sequence[Breakpoint], plans: Mapping[str, Plan]) -> None:
        self.history = History()
        self.machines: list[Machine] = []
        self._plans = plans
        self._at: dict[PlanNode, list[tuple[Breakpoint, int]]] = {}
        self._until: Callable[[Firing], bool] | None = None  # the end of a command that steps
        self._is_free = False  # whether the rest of the step has no pauses
        for b in breakpoints:
            if not isinstance(b, Breakpoint):
                raise InvalidArgumentError(f"breakpoints takes results of hr.breakpoint_when, got {b!r}")
            self.add(b)
        self._last = breakpoints[0]

    def add(self, breakpoint: Breakpoint) -> None:
        """Adds a breakpoint.

        Raises:
          InvalidArgumentError: no operation of the step makes its tensor.
          FailedPreconditionError: it needs a terminal, and there is none.
        """
        found = [(n, k) for plan in self._plans.values() for n, k in breakpoint.matches(plan).items()]
        if not found:
            breakpoint.not_found(n.op.name for plan in self._plans.values() for n in plan.nodes)
            return
        breakpoint.is_found = True
        breakpoint.check_terminal()
        for node, k in found:
            self._at.setdefault(node, []).append((breakpoint, k))

    def _add_like_last(self, name: str) -> None:
        """Adds a breakpoint with the handler of the last one."""
        self.add(Breakpoint(name, None, self._last.handler, False))

    def begins(self, machine: Machine) -> None:
        """Adds the token machine of a device."""
        self.history.begins(machine)
        self.machines.append(machine)

    def fires(self, machine: Machine, node: PlanNode, it: Iteration, x: Any) -> None:
        """Does nothing: a step pauses after a firing."""

    def fired(self, machine: Machine, node: PlanNode, it: Iteration, x: Any, values: tuple[Any, ...]) -> None:
        """Keeps the values of a firing, and pauses the step where it must."""
        if node.kind == plans.DEAD or self._is_free:
            return
        firing = self.history.add(node, it, x, values)
        for b, k in self._at.get(node, ()):
            value = firing.values[min(k, len(firing.values) - 1)]
            if b.holds(value):
                b.hits += 1
                self._last = b
                self._pause(machine, firing, known_as(node.op.outputs[k]))
                return
        if self._until is not None and self._until(firing):
            self._pause(machine, firing, "")

    def _pause(self, machine: Machine, firing: Firing, reason: str) -> None:
        paused = Paused(self.machines, self.history, machine, firing, reason, self._add_like_last)
        step = machine.step
        whole = step if step.of is None else step.of
        began = whole.clock.monotonic()
        self._until = None
        try:
            with unflushed():
                self._last.handler(paused)
        finally:
            for s in (whole, *whole.parts):
                if s.deadline is not None:
                    s.deadline += whole.clock.monotonic() - began
            paused.is_over = True
        if paused.is_cancelled:
            raise CancelledError(f"the step was cancelled at a breakpoint, after {place(firing.node.op)}")
        self._until, self._is_free = paused.until, paused.is_free
