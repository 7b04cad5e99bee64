"""Programs of one step: which of them runs, and the fallback to the executor.

A step may need several programs. A run with a listener uses the program of the engine "interpret", in which every
operation is a node; a partial run uses one whose feeds are events. Other runs use the program for the shapes that they
feed, where it pays to compile for shapes (`compile.variants`). Each is compiled at its first run and kept. They share
the stages that do not depend on these differences.

If a stage fails on a correct program, the step is interpreted, with a warning (`compile.fallback`).
"""

from __future__ import annotations

import dataclasses
import threading
import weakref
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from headrace import flags, forking
from headrace.compile.fallback import Failure
from headrace.compile.variants import Variants
from headrace.compiled_step import CompiledStep, Request
from headrace.errors import InvalidArgumentError
from headrace.pipeline import pruned
from headrace.stages import Stages

if TYPE_CHECKING:
    from headrace.environment import Environment
    from headrace.shapes import Shape
    from headrace.target import StepTarget


class Programs:
    """Programs of one step. Thread-safe.

    Args:
      request: the step.
      target: the machines that run the step.
      stages: stages that have run already; None: none has.

    Attributes:
      request: the step.
      failures: failures to compile the step.

    Methods raise:
      InvalidArgumentError, GraphError: as `compile_step`, or the engine is "compiled" and the step cannot be compiled.
    """

    def __init__(self, request: Request, target: StepTarget, stages: Stages | None = None) -> None:
        self.request = request
        self.failures: list[Failure] = []
        self._target = target
        self._stages = Stages() if stages is None else stages
        self._made: dict[str, CompiledStep] = {}
        self._variants: Variants[CompiledStep] | None = None
        self._fixed: CompiledStep | None = None  # the program, if it does not depend on the feeds' shapes
        self._lock = threading.RLock()
        forking.register_at_fork(self)

    def _forked(self) -> None:
        """Replaces the lock in a forked process, see `forking`."""
        self._lock = threading.RLock()

    def prepare(self) -> None:
        """Prunes the step."""
        self._stages.run("prune", pruned, self.request, self._target.environment)

    @property
    def environment(self) -> Environment:
        """Devices for which the step is compiled, with the facts that steps share."""
        return self._target.environment

    @property
    def general(self) -> CompiledStep:
        """Program for any shapes."""
        return self._once("general", self.request)

    @property
    def observed(self) -> CompiledStep:
        """Program of runs with a listener: each operation is a node."""
        return self._once("observed", dataclasses.replace(self.request, engine="interpret"), True)

    @property
    def partial(self) -> CompiledStep:
        """Program of runs that are fed in several calls."""
        if self.request.engine != "auto":
            return self.observed
        return self._once("partial", dataclasses.replace(self.request, is_partial=True), True)

    def for_values(self, fed: Sequence[Any]) -> CompiledStep:
        """Returns the program for the values of the feeds."""
        if self._fixed is not None:  # read at every run
            return self._fixed
        variants = self._variants or self._find_variants()
        found = variants.find(fed) if variants.open else None
        if found is not None:
            return found
        if not variants.open:
            self._fixed = self.general
        return self.general

    @property
    def is_only(self) -> bool:
        """Whether one program serves all shapes of the feeds, and has been run."""
        return self._fixed is not None

    @property
    def engine(self) -> str:
        """Engine of the runs so far: "compiled", "interpret", or "" before the first run.

        Reading it compiles nothing.
        """
        if self.variants:
            return "compiled"
        general = self._made.get("general")
        return "" if general is None else "interpret" if general.compiled is None else "compiled"

    @property
    def variants(self) -> Mapping[tuple[Shape, ...], CompiledStep]:
        """Programs by the shapes of the feeds whose static shapes are incomplete."""
        return {} if self._variants is None else dict(self._variants.made.items())

    def _once(self, name: str, request: Request, is_interpreted: bool = False) -> CompiledStep:
        """Returns the program `name`, compiled at the first call.

        Args:
          name: the name.
          request: the step.
          is_interpreted: whether the token machine fires each node by itself (`Target.register`).
        """
        found = self._made.get(name)
        if found is None:
            with self._lock:
                found = self._made.get(name)
                if found is None:
                    is_same = name != "general" and request == self.request  # the stages have run
                    step = self.general if is_same else self._compile(request)
                    found = self._made[name] = self._registered(step, is_interpreted)
        return found

    def _registered(self, step: CompiledStep, is_interpreted: bool = False) -> CompiledStep:
        return dataclasses.replace(step, program=self._target.register(step, is_interpreted))

    def _find_variants(self) -> Variants[CompiledStep]:
        with self._lock:
            if self._variants is not None:  # another thread has made them
                return self._variants
            wanted = self.request.engine != "interpret" and flags.OPTIMIZE.value != "off"
            if wanted and not self._target.environment.is_single:
                wanted = self.general.compiled is not None
            # a cycle of references would keep the target, and its threads, until the garbage collector runs
            me = weakref.proxy(self)
            varying = self.request.feeds if wanted and self._has_structure else ()
            self._variants = Variants(varying, lambda shapes: me._for_shapes(shapes))
        return self._variants

    @property
    def _has_structure(self) -> bool:
        """Whether the step has loops or conditionals."""
        step = self._stages.run("prune", pruned, self.request, self._target.environment)
        return any(op.opdef.structured or op.type == "Enter" for op in step.graph.operations)

    def _for_shapes(self, shapes: Mapping[int, Shape]) -> CompiledStep | None:
        with self._lock:
            step = self._registered(self._compile(dataclasses.replace(self.request, shapes=shapes)))
            if step.compiled is not None:
                return step
            if not step.request.shapes:
                self._made.setdefault("general", step)
            return None

    def _compile(self, request: Request) -> CompiledStep:
        stages = Stages(self._stages)
        try:
            step = self._target.compile(request, stages)
        except Exception as e:
            if request.engine == "interpret" or stages.current == "prune":
                raise
            step = self._interpreted(request, Failure(stages.current, e))
            stages.refuse(step.reasons)
        if request.engine == "compiled" and step.compiled is None and not step.is_whole:
            raise InvalidArgumentError(not_compiled(step.reasons))
        return step

    def _interpreted(self, request: Request, failure: Failure) -> CompiledStep:
        """Returns the program of a step whose compilation failed, if the step itself is correct.

        Raises:
          OpError, GraphError: the step has an error.
          HeadraceInternalError: the engine is "compiled".
        """
        error = failure.error
        try:
            step = self.observed
        except Exception:
            if failure.may_be_users:
                raise error from None
            raise
        if request.engine == "compiled":
            raise failure.as_error().with_traceback(error.__traceback__) from error
        self.failures.append(failure)
        failure.warn()
        request = dataclasses.replace(request, shapes={})  # the executor serves all shapes
        return dataclasses.replace(step, request=request, reasons=(str(failure),))


def not_compiled(reasons: Sequence[str]) -> str:
    """Text of the error of a step that the compiled engine must run but cannot."""
    return f'this step cannot be compiled: {"; ".join(reasons)}. engine="auto" runs it by the token machine'
