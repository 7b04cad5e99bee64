"""Inspectors of a run, by its options."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.errors import UnimplementedError
from headrace.metadata import NumericsCheck
from headrace.observe.breakpoints import Breakpoint, BreakpointInspector
from headrace.observe.numerics import NumericsInspector

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headrace.execute.inspector import Inspector
    from headrace.execute.plan import Plan
    from headrace.metadata import RunOptions


def inspectors_of(options: RunOptions, plans: Mapping[str, Plan]) -> tuple[Inspector, ...]:
    """Returns the inspectors that carry out the options of a run.

    Args:
      options: options with a check of numbers, breakpoints, or both.
      plans: the plans of the step by device.

    Raises:
      UnimplementedError: the step runs on a cluster, and the options need its values in this process.
      InvalidArgumentError: no operation of the step makes the tensor of a breakpoint.
      FailedPreconditionError: a breakpoint needs a terminal, and there is none.
    """
    check = options.check_numerics
    if not plans and options.breakpoints:
        names = ", ".join(f"'{b.name}'" for b in options.breakpoints if isinstance(b, Breakpoint))
        raise UnimplementedError(
            f"the breakpoints at {names} cannot pause this step: it runs on a cluster, whose workers have no prompt. "
            "Run it in a session of this process (hr.Session without a target), or look into it on the cluster: "
            "run(..., watch=hr.watch(name)) returns values, check_numerics=True stops at the first NaN or Inf, and "
            "hr.record shows the tokens"
        )
    if not plans and isinstance(check, NumericsCheck) and check.ignore:
        raise UnimplementedError(
            "the names that a NumericsCheck ignores are for steps of this process, and this step runs on a cluster"
        )
    out: list[Inspector] = []
    if options.breakpoints:
        out.append(BreakpointInspector(options.breakpoints, plans))
    if check:
        out.append(NumericsInspector(check if isinstance(check, NumericsCheck) else NumericsCheck()))
    return tuple(out)
