"""Failures of native code: the operation, its loops and the exception of each place."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np

from headrace.errors import HeadraceInternalError, InvalidArgumentError, ResourceExhaustedError
from headrace.ir.notes import ResidualPush
from headrace.records import record
from headrace.schedule.program import Call, Compute
from headrace.targets.native.kernel_errors import error_of_position, error_of_shapes, inputs_of_position
from headrace.targets.native.rewriting import Division
from headrace.targets.native.state import COUNTERS
from headrace.targets.python.runtime import too_deep

if TYPE_CHECKING:
    from headrace.schedule.program import Instr
    from headrace.targets.native.deep_calls import EndedCalls

FailureKind: TypeAlias = Literal[
    "access",
    "modify",
    "gather",
    "pop",
    "reserve",
    "length",
    "residuals",
    "division",
    "shapes",
    "index",
    "kernel",
    "label",
    "depth",
    "absent",
    "call",
    "stopped",
]


@record(frozen=True, slots=True)
class Place:
    """Place of native code that can fail.

    The function of the region returns its number, counted from 1.

    Attributes:
      instr: The instruction; if it is "stopped", the innermost of `loops` or a call.
      loops: The loops around it in its function, from the outermost.
      kind: The kind of the failure; "call" for a call, which passes on the failure of its function.
      details: The number of numbers that describe it, which follow the iterations of the loops among the counters.
    """

    instr: Instr
    loops: tuple[Instr, ...]
    kind: FailureKind
    details: int

    def error(self, counters: Sequence[int]) -> Exception:
        """The exception, as the kernel of the operation raises it.

        Args:
          counters: The iterations of the loops, and the numbers of the failure.
        """
        at = min(len(self.loops), COUNTERS - self.details)
        first, second, third = (*counters[at : at + self.details], 0, 0, 0)[:3]
        match self.kind:
            case "access" | "modify" | "gather":
                return InvalidArgumentError(f"Trying to {self.kind} element {first} in a list with {second} elements.")
            case "pop":
                return InvalidArgumentError("Trying to pop from an empty list.")
            case "reserve":
                return InvalidArgumentError(
                    f"The num_elements to reserve must be a non negative number, but got {first}"
                )
            case "length":
                return InvalidArgumentError(
                    f"Operation expected a list with {second} elements but got a list with {first} elements."
                )
            case "shapes":
                return InvalidArgumentError(f"Incompatible shapes: the first dimensions are {first} and {second}")
            case "index":
                assert isinstance(self.instr, Compute)
                return error_of_position(self.instr, counters[at : at + self.details])
            case "depth":
                assert isinstance(self.instr, Call)
                return too_deep(self.instr.op, first, self.instr.function)
            case "absent":
                return InvalidArgumentError(
                    f"Input to {self.instr.op.type} must be an optional (a scalar that OptionalFromValue or "
                    "OptionalNone made), got TensorList"
                )
            case "label":
                return InvalidArgumentError(
                    f"Received a label value of {first} which is outside the valid range of [0, {second}): "
                    f"label {third}"
                )
            case "kernel":
                assert isinstance(self.instr, Compute)
                return error_of_shapes(self.instr, counters[at : at + self.details])
            case "division":
                assert isinstance(self.instr, Compute)
                assert isinstance(self.instr.work, Division)
                check = self.instr.work.check
                return check.error(check.message)
            case "residuals":
                assert isinstance(self.instr, Compute)
                kept = f"{self.instr.op.notes[ResidualPush].of}: {first} values of {third:,} bytes"
                return ResourceExhaustedError(
                    f"the gradient of a loop keeps more than {second:,} bytes of {kept} so far. Keep fewer residuals "
                    "(while_loop(..., save=hr.recompute('sqrt'))), or raise HEADRACE_ACCUMULATOR_LIMIT"
                )
        raise HeadraceInternalError(f"unknown failure {self.kind}")

    def inputs(self, counters: Sequence[int]) -> list[Any]:
        """The inputs of the operation; empty if they are not known."""
        at = min(len(self.loops), COUNTERS - self.details)
        if self.kind == "index":
            assert isinstance(self.instr, Compute)
            return inputs_of_position(self.instr, counters[at : at + self.details])
        if self.kind != "division" or not self.details:
            return []
        numbers = np.array(counters[at : at + self.details], np.int64)
        return [n.astype(v.dtype.numpy) for n, v in zip(numbers, self.instr.inputs, strict=True)]

    def iterations(self, counters: Sequence[int]) -> list[tuple[Instr, int]]:
        """The loops around the instruction in its function with their iterations, innermost first.

        Iterations of very deep loops are not known."""
        known = min(len(self.loops), COUNTERS - self.details)
        return [(self.loops[k], counters[k]) for k in reversed(range(known))]


class NativeFailure(Exception):
    """Failure of native code; `compile.blame` raises the error of the operation in its place.

    That of a place with the kind "stopped" is the deadline that a poll met, the `__context__` of this exception.

    Args:
      place: The place that failed.
      counters: The iterations of the loops around it in its function, and the numbers of the failure.
      around: The calls around it and their loops, innermost first, with the iterations of loops. Those in the middle
        of a deep recursion are missing.
      missing: The number of calls and loops that are missing.
    """

    def __init__(
        self, place: Place, counters: Sequence[int], around: Sequence[tuple[Instr, int]] = (), missing: int = 0
    ) -> None:
        super().__init__(place, counters)
        self.place = place
        self.counters = counters
        self.around = around
        self.missing = missing


def failure(places: Sequence[Place], place: int, counters: Sequence[int], ended: EndedCalls) -> NativeFailure:
    """The failure of a core.

    Args:
      places: The places of the module.
      place: The number of the place that failed.
      counters: The iterations of the open loops of the core, and the numbers of the failure if it is there.
      ended: The calls that have ended with it.
    """
    calls = [*ended.first, *ended.last]
    frames = [*(found for _, found in calls), counters]
    around: list[tuple[Instr, int]] = []
    for (number, _), outside in zip(calls, frames[1:], strict=True):
        call = places[number - 1]
        around += [(call.instr, 0), *call.iterations(outside)]
    missing = sum(count * (1 + len(places[n - 1].iterations([0] * COUNTERS))) for n, count in ended.between.items())
    return NativeFailure(places[place - 1], frames[0], around, missing)
