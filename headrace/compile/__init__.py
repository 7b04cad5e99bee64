"""Compilation: a structured graph on one device becomes one Python function.

    compiled = compile_graph(graph, args, retvals)
    values = compiled.run(step, fed)

`blockers` lists the reasons why a step cannot be compiled. `schedule` makes the program of the step, and
`targets.python` prints it as code. The results are those of the executor.

Code that waits for values of other devices is a generator (`Compiled.begin`): it yields where a value is missing, and
its thread does other work in the meantime.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import TYPE_CHECKING, Any

from headrace import flags
from headrace.compile.binding import Manager, Resources
from headrace.compile.blame import note_interrupt, raise_blamed, tag
from headrace.ir.analysis.graph_size import deepens_recursion
from headrace.ir.kernel import KernelContext
from headrace.recursion import recursion_room
from headrace.schedule import schedule, text
from headrace.schedule.program import Section
from headrace.schedule.regions import Regions
from headrace.schedule.segments import make_segments
from headrace.schedule.timers import Timers
from headrace.targets.native.sections import cut
from headrace.targets.python import Printer
from headrace.targets.python.runtime import RunState, quietly
from headrace.targets.python.source import FILE, listing

if TYPE_CHECKING:
    from collections import deque

    from headrace.ir.graph import FuncGraph, Graph, Operation
    from headrace.ir.kernel import StepContext
    from headrace.schedule.program import Program
    from headrace.schedule.timers import Laps, Site


class Compiled:
    """Step compiled into one Python function.

    Args:
      make: Makes the program of the step. An argument takes the sites of profiled code; without it there are none.
      timers: The argument for `make`.

    Attributes:
      source: The text of the code.
      uses_threads: Whether an operation may use several threads: by the BLAS library, or in machine code.
      is_threaded: Whether one may have enough work for them.
      calls_library: Whether kernels of another library than numpy compute on the processor.
      blocks: Whether a kernel may block its thread (`execute.blocking`).
      coverage: The part of the instructions that is machine code.
      flushes: Whether the caller of the function flushes denormal numbers to 0.
      is_whole: Whether it is one call of machine code (`at_once`).
      is_plain: Whether `run` needs no `StepContext`: no kernel is made for each run, no loop and no recursion.
      is_direct: Whether it is plain, flushes nothing and has no operation that may use several threads, so that no mode
        is set either.
      suspends: Whether the function waits for values, so that `begin` runs it and `run` must not be called.
      sites: The sites of profiled code; empty for code without laps.
    """

    __slots__ = (
        "_at_once",
        "_calls_itself",
        "_function",
        "_has_loops",
        "_make",
        "_marks",
        "_native_source",
        "_resources",
        "_stateful",
        "_timed",
        "blocks",
        "calls_library",
        "coverage",
        "flushes",
        "is_direct",
        "is_plain",
        "is_threaded",
        "is_whole",
        "sites",
        "source",
        "suspends",
        "uses_threads",
    )

    def __init__(self, make: Callable[..., Program], timers: Timers | None = None) -> None:
        self._make = make
        self._timed: Compiled | None = None
        program = make(timers)
        self.coverage, self._native_source, self._at_once = program.coverage, program.source, program.at_once
        self.is_whole = self._at_once is not None
        printer = Printer(program, timers)
        code = printer.out.finish("step")
        self.source, self._marks = code.text, code.marks
        self._function: Callable[..., tuple[Any, ...]] = code.function
        self._stateful = printer.stateful
        self._resources = Resources(program.resources, printer.bound)
        self.blocks = any(op.opdef.facts.blocking for op, _ in printer.stateful)
        self._calls_itself = printer.calls_itself
        self.uses_threads = printer.uses_blas or printer.uses_threads
        self.is_threaded = printer.is_threaded or printer.uses_threads
        self.calls_library = printer.calls_library
        self.suspends = printer.suspends
        self._has_loops = printer.calls_itself or printer.polls or code.has_loops
        # sections that are the whole step change the mode by themselves, in less time
        is_flushed = all(isinstance(instr, Section) and instr.flushes for instr in program.block.instrs)
        self.flushes = not is_flushed and (self._has_loops or printer.uses_blas or printer.flushes)
        self.sites: Sequence[Site] = () if timers is None else timers.sites
        self.is_plain = not (printer.stateful or self._resources or self._has_loops or self.sites)
        self.is_direct = self.is_plain and not (self.uses_threads or self.calls_library or self.flushes)

    @property
    def native_source(self) -> str:
        """The text of the machine code, in LLVM's assembly language; "" if there is none."""
        return "" if self._native_source is None else self._native_source()

    @property
    def listing(self) -> str:
        """The source with operations and the user's lines as comments."""
        return listing(self.source, self._marks, self._function.__globals__)

    @property
    def schedule(self) -> str:
        """The text of the instructions that the code was generated from."""
        return text.show(self._make())

    @property
    def timed(self) -> Compiled:
        """The same schedule with laps, compiled at the first access. Its runs need `schedule.timers.Laps`."""
        if self._timed is None:
            self._timed = Compiled(self._make, Timers())
        return self._timed

    def at_once(self, manager: Manager | None) -> Callable[..., Any] | None:
        """The function of a step that is one call of machine code, or None.

        It is that of `schedule.program.AtOnce` without the values that kernels read and the constants. Its arguments
        are a function that polls call, and the values that the user feeds. It returns NotImplemented if it does not
        take them as they are, or while a run has yet to find the resources that the step reads.

        Args:
          manager: The owner of the variables and other resources; None if it is in another process.
        """
        if self._at_once is None:
            return None
        function, constants, resources = self._at_once.function, self._at_once.constants, self._resources
        if not resources:
            return (lambda look, *values: function(look, *values, *constants)) if constants else function
        if manager is None:
            return None

        def call(look: Any, *values: Any) -> Any:
            kernels = resources.known(manager)
            if kernels is None:
                return NotImplemented
            return function(look, *values, *[read() for read in kernels], *constants)

        return call

    def run(self, step: StepContext | None, values: Sequence[Any], laps: Laps | None = None) -> tuple[Any, ...]:
        """Runs the step on the values of the feeds and returns those of the fetches.

        Args:
          step: The context of the step; None is allowed if `is_plain`. Unless `is_direct`, the caller sets the state of
            the thread (`execute.entered`).
          values: The values of the feeds, in order.
          laps: Takes the times of the sites of profiled code; None for code without laps.

        Returns:
          The values of the fetches, in order.

        Raises:
          Exception: An exception of a kernel, with the operation, loop and iteration in its notes.
        """
        if self.is_direct:
            try:
                return quietly(self._function, None, *values)
            except Exception as e:
                raise_blamed(e, FILE, self._marks)
                raise
            except KeyboardInterrupt as e:
                note_interrupt(e, FILE, self._marks)
                raise
        if not self._calls_itself:
            return self._run(step, values, laps)
        with recursion_room(4 * flags.CALL_DEPTH.value):  # an outlined block is a Python call too
            return self._run(step, values, laps)

    def begin(self, step: StepContext, values: Sequence[Any]) -> Generator[deque[Any], None, tuple[Any, ...]]:
        """Runs the step as a generator, if it `suspends`.

        The generator yields a queue each time that it needs a value which the queue lacks. The caller resumes it when
        the queue has a value, or throws the error that ends the step into it.

        Args:
          step: The context of the step. The caller sets the state of the thread whenever it resumes the generator.
          values: The values of the feeds, in order.

        Returns:
          The values of the fetches, in order.

        Raises:
          Exception: An exception of a kernel, with the operation, loop and iteration in its notes.
        """
        try:
            function: Callable[..., Any] = self._function
            fetched: tuple[Any, ...] = yield from function(self._state(step), *values)
            return fetched
        except Exception as e:
            raise_blamed(e, FILE, self._marks)
            raise
        except KeyboardInterrupt as e:
            note_interrupt(e, FILE, self._marks)
            raise

    def _run(self, step: StepContext | None, values: Sequence[Any], laps: Laps | None) -> tuple[Any, ...]:
        try:
            if not (self._stateful or self._resources):
                needs_state = self._has_loops or laps is not None
                return self._function(RunState(step, (), (), laps) if needs_state else None, *values)
            assert step is not None
            return self._function(self._state(step, laps), *values)
        except Exception as e:
            raise_blamed(e, FILE, self._marks)
            raise
        except KeyboardInterrupt as e:
            note_interrupt(e, FILE, self._marks)
            raise

    def _state(self, step: StepContext, laps: Laps | None = None) -> RunState:
        """Makes the kernels of a run."""
        step.locate = lambda: tag(FILE, self._marks)
        kernels = [k.factory(KernelContext(step, op), op.attrs) for op, k in self._stateful]
        return RunState(step, kernels, self._resources.bound(step) if self._resources else (), laps)


@deepens_recursion
def compile_graph(
    graph: Graph,
    args: Sequence[Operation],
    retvals: Sequence[Operation],
    targets: Sequence[Operation] = (),
    expand: Callable[[Operation], FuncGraph] | None = None,
) -> Compiled:
    """Compiles a step.

    Args:
      graph: The structured graph of the step, on one device and without `blockers`.
      args: The `_Arg` operations, in the order of the feeds.
      retvals: The `_Retval` operations, in the order of the fetches.
      targets: Operations that run although no operation reads their outputs.
      expand: Returns the graph of an operation that stands for the gradient of a function.

    Returns:
      The compiled step.

    Raises:
      GraphError, NotFoundError: A called function does not fit or does not exist.
    """

    def make(timers: Timers | None = None) -> Program:
        def divide(program: Program) -> None:
            cut(program, timers)
            if timers is None:  # else each operation is timed
                make_segments(program)

        return schedule(Regions(graph, targets, expand), args, retvals, divide)

    return Compiled(make)
