"""Runs of compiled code: the step as one Python function, with the protocol of `execute.run`."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

from headrace.execute.blocking import is_observed, watched
from headrace.execute.entered import entered
from headrace.execute.run import RunStatistics

if TYPE_CHECKING:
    from headrace.execute.run import RunEnvironment
    from headrace.execute.step import Step


class Code(Protocol):
    """Compiled code of a step; `compile.Compiled` implements it.

    Attributes:
      uses_blas: whether a kernel may call the BLAS library.
      flushes: whether denormal numbers are flushed to zero.
      blocks: whether a kernel may block its thread (`execute.blocking`).
    """

    uses_blas: bool
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

    def start(self, step: Step) -> CompiledRun:
        """Returns a new run of the code for `step`."""
        return CompiledRun(self.code, step, self._environment.blas_threads)


class CompiledRun:
    """A run of compiled code.

    It computes all fetches at once, as soon as all feeds have been supplied.

    Args:
      code: the compiled code.
      step: the identity, resources and cancellation of the step.
      blas_threads: number of threads that the BLAS library may use during the run.
    """

    __slots__ = ("_blas_threads", "_code", "_fed", "_seconds", "_values", "step")

    def __init__(self, code: Code, step: Step, blas_threads: int) -> None:
        self.step = step
        self._code = code
        self._blas_threads = blas_threads
        self._fed: dict[int, Any] = {}
        self._values: list[Any] | None = None
        self._seconds = 0.0

    def feed(self, position: int, value: Any) -> None:
        self._fed[position] = value

    def run(self, until: Sequence[int] | None = None, is_fed: bool = True) -> None:
        if not is_fed or self._values is not None:
            return
        began = time.perf_counter()
        fed, self._fed = self._fed, {}
        code, step, values = self._code, self.step, [fed[i] for i in range(len(fed))]
        blas_threads = self._blas_threads if code.uses_blas else 0
        if code.blocks and is_observed(step):
            with entered(blas_threads=blas_threads):
                self._values = list(watched(step, lambda: _entered(code, step, values)))
        else:
            with entered(code.flushes, blas_threads):
                self._values = list(code.run(step, values))
        self._seconds = time.perf_counter() - began

    def fetch(self, position: int) -> Any:
        assert self._values is not None, "the code has run"
        value, self._values[position] = self._values[position], None
        return value

    def has(self, position: int) -> bool:
        return self._values is not None

    @property
    def finished(self) -> bool:
        return self._values is not None

    def cancel(self, error: BaseException) -> None:
        self.step.cancel(error)

    def abandon(self) -> None:
        pass  # the code has no asynchronous kernels

    def statistics(self) -> RunStatistics:
        return RunStatistics(self.finished, self._seconds)


def _entered(code: Code, step: Step, values: Sequence[Any]) -> Sequence[Any]:
    with entered(code.flushes):
        return code.run(step, values)
