"""Runs of compiled code: the step as one Python function, with the protocol of `execute.run`."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from headrace.execute.blocking import is_observed, watched
from headrace.execute.entered import entered, library_threads_of, threads_of
from headrace.execute.run import RunAtOnce

if TYPE_CHECKING:
    from headrace.execute.run import RunEnvironment
    from headrace.execute.step import Step

T = TypeVar("T")


class Code(Protocol):
    """Compiled code of a step; `compile.Compiled` implements it.

    Attributes:
      uses_threads: whether an operation may use several threads: by the BLAS library, or in machine code.
      is_threaded: whether one may have enough work for them.
      calls_library: whether kernels of another library than numpy compute on the processor.
      flushes: whether denormal numbers are flushed to zero.
      blocks: whether a kernel may block its thread (`execute.blocking`).
    """

    uses_threads: bool
    is_threaded: bool
    calls_library: bool
    flushes: bool
    blocks: bool

    def run(self, step: Any, values: Sequence[Any]) -> Sequence[Any]:
        """Returns the values of the fetches, given the step and the values of the feeds.

        The caller has `entered`.
        """
        ...


class CompiledProgram:
    """A step as compiled code.

    Args:
      code: the compiled code.
      environment: the resources of the session.
    """

    __slots__ = ("_environment", "code")

    def __init__(self, code: Code, environment: RunEnvironment) -> None:
        self.code = code
        self._environment = environment

    def with_code(self, code: Code) -> CompiledProgram:
        """Returns the program of other code for the same step."""
        return CompiledProgram(code, self._environment)

    def start(self, step: Step) -> CompiledRun:
        """Returns a new run of the code for `step`."""
        return CompiledRun(self.code, step, self._environment.blas_threads)


class CompiledRun(RunAtOnce):
    """A run of compiled code.

    Args:
      code: the compiled code.
      step: the identity, resources and cancellation of the step.
      blas_threads: number of threads that the BLAS library may use during the run.
    """

    __slots__ = ("_code", "_fed")

    def __init__(self, code: Code, step: Step, blas_threads: int) -> None:
        super().__init__(step, blas_threads)
        self._code = code
        self._fed: dict[int, Any] = {}

    def feed(self, position: int, value: Any) -> None:
        """Supplies the feed `position`."""
        self._fed[position] = value

    def _compute(self) -> None:
        fed, self._fed = self._fed, {}
        code, step = self._code, self.step
        work = functools.partial(code.run, step, [fed[i] for i in range(len(fed))])
        self.results = list(run_code(code, step, work, self._blas_threads))


def run_code(code: Code, step: Step, work: Callable[[], T], blas_threads: int = 0) -> T:
    """Runs compiled code; if it calls Python functions, on a thread of its own (`watched`).

    Args:
      code: the code.
      step: the identity, resources and cancellation of the step.
      work: runs the code, or a part of it.
      blas_threads: number of threads that the BLAS library may use; 0: as many as before.

    Returns:
      The result of `work`.
    """
    library_threads = library_threads_of(code, blas_threads)
    blas_threads = threads_of(code, blas_threads)
    if code.blocks and is_observed(step):
        with entered(blas_threads=blas_threads):
            return watched(step, lambda: _entered(code, work, library_threads))
    with entered(code.flushes, blas_threads, library_threads):
        return work()


def _entered(code: Code, work: Callable[[], T], library_threads: int) -> T:
    with entered(code.flushes, 0, library_threads):
        return work()
