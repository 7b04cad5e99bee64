"""Runs what passes made of a graph, on the token machine.

`optimized()` makes every session do so: the same stages as `headrace.pipeline`, with the passes after pruning.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any
from unittest import mock

import headrace as hr
from headrace import pipeline
from headrace.compiled_step import CompiledStep, Request
from headrace.environment import Environment
from headrace.execute.plan import make_plan
from headrace.grad.differentiate import differentiate
from headrace.ir.graph import Graph, Operation
from headrace.ir.text import from_text, to_text
from headrace.ir.verify import verify
from headrace.lower import lower
from headrace.optimize.base import Options, Pass, PassContext, Repeat, run
from headrace.optimize.effects import Effects
from headrace.optimize.pipeline import optimize
from headrace.pipeline import pruned, recovered
from headrace.stages import Stages

Steps = Sequence[Pass | Repeat]
LOWERED = Options(is_lowered=True)


def passes_of(steps: Steps | None, options: Options) -> Callable[[Graph, Sequence[Operation]], PassContext]:
    """Returns a function that applies `steps` to a step's graph and targets.

    With None the function applies all passes in their order.
    """

    def apply(graph: Graph, preserved: Sequence[Operation]) -> PassContext:
        if steps is None:
            return optimize(graph, preserved, options, check=verify)
        context = PassContext(options, list(preserved))
        run((Effects(), *steps), graph, context, verify)  # which all others rely on
        return context

    return apply


@contextlib.contextmanager
def optimized(
    steps: Steps | None = None,
    seen: list[PassContext] | None = None,
    options: Options = LOWERED,
    is_recovered: bool = False,
) -> Iterator[None]:
    """Makes sessions run steps in lowered form after the passes `steps`.

    Args:
      steps: The passes; None: all passes in their order.
      seen: List to which the report of each step is added.
      options: Limits and switches of the passes.
      is_recovered: Whether primitives become structured before the passes, where that is possible.
    """
    apply = passes_of(steps, options)

    def compile_step(request: Request, environment: Environment, stages: Stages) -> CompiledStep:
        step = stages.run("prune", pruned, request, environment)
        if is_recovered:
            step, _ = stages.run("recover", recovered, step)
        step = step.copy()
        context = apply(step.graph, step.targets)
        if seen is not None:
            seen.append(context)
        lowered = lower(step.graph, context.preserved, differentiate)
        return CompiledStep(request, stages.made, None, {"": make_plan(lowered.ops, lowered.functions)})

    with mock.patch.object(pipeline, "compile_step", compile_step):
        yield


def apply(
    passes: Pass | Steps, text: str, options: Options | None = None, preserved: Sequence[str] = ()
) -> tuple[str, PassContext]:
    """Returns the text of the graph `text` after `passes`, and the report.

    The graph is verified after each pass. The function also checks that the passes report correctly whether they
    changed the graph, and that a second run changes nothing.
    """
    g = from_text(text)
    steps = (passes,) if isinstance(passes, (Pass, Repeat)) else tuple(passes)
    before = to_text(g)
    options = options or Options()
    context = PassContext(options, [g.get_operation_by_name(n) for n in preserved])
    changed = run(steps, g, context, verify)
    after = to_text(g)
    assert changed == (after != before), context.notes
    again = run(steps, g, PassContext(options, context.preserved), verify)
    assert to_text(g) == after
    assert not again
    return after, context


def same(got: str, want: str) -> None:
    """Raises unless the two texts describe the same graph, in the same order."""
    assert got == to_text(from_text(want)), f"got:\n{got}"


def unchanged(passes: Pass | Steps, text: str, **more: Any) -> PassContext:
    """The report of `passes`, which must leave the graph that `text` describes as it is."""
    after, context = apply(passes, text, **more)
    assert after == to_text(from_text(text)), f"got:\n{after}"
    return context


__all__ = ["apply", "hr", "optimized", "pipeline", "same", "unchanged"]
