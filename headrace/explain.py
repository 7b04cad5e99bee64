"""What became of a step: which engine runs it, what the passes did, the source, and why anything was not compiled.

run = session.make_callable(y, [x])
print(hr.explain(run))
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headrace.optimize.base import Note
    from headrace.pipeline import CompiledStep


@dataclasses.dataclass(frozen=True, slots=True)
class Explanation:
    """What became of a step. `str()` of it is a text to read.

    Attributes:
      engine: "compiled" or "interpret".
      reasons: why it is not compiled, a line for each operation that stands against it.
      passes: the passes that changed something, in order, each once.
      notes: what they did, and what they left alone and why.
      source: the Python function that the step became; "" if none did.
    """

    engine: str
    reasons: tuple[str, ...]
    passes: tuple[str, ...]
    notes: tuple[Note, ...]
    source: str

    def __str__(self) -> str:
        out = [f"engine: {self.engine}"]
        out += [f"  not compiled: {r}" for r in self.reasons]
        out.append(f"passes that changed something: {', '.join(self.passes) or 'none'}")
        for verb, fired in (("did", True), ("left alone", False)):
            out += [f"  {verb}: {n.rule}: {n.op}: {n.text}" for n in self.notes if n.fired is fired]
        if self.source:
            out += ["source:", self.source]
        return "\n".join(out)


def explanation(step: CompiledStep) -> Explanation:
    """What became of `step`."""
    outcome = step.outcome
    report, compiled = outcome.report, outcome.compiled
    return Explanation(
        "interpret" if compiled is None else "compiled",
        outcome.reasons,
        () if report is None else tuple(dict.fromkeys(name for name, _, changed in report.ran if changed)),
        () if report is None else tuple(report.notes),
        "" if compiled is None else compiled.source,
    )


def explain(run: Any) -> Explanation:
    """What became of a step.

    Args:
      run: what `Session.make_callable` returned.

    Returns:
      An `Explanation`; print it.

    Raises:
      TypeError: `run` is something else.

    Example:
      >>> import headrace as hr
      >>> with hr.Graph() as g:
      ...     x = hr.placeholder(hr.float32, [])
      ...     y = x * 2.0 + 1.0
      >>> run = hr.Session(graph=g).make_callable(y, [x])
      >>> hr.explain(run).engine
      'compiled'
      >>> hr.Session(graph=g).explain(y, [x]).engine
      'compiled'
    """
    told = getattr(run, "explain", None)
    if told is None:
        raise TypeError(
            f"cannot explain {run!r} ({type(run).__name__}): give what session.make_callable returned, or use "
            "session.explain(fetches, feeds)"
        )
    found: Explanation = told()
    return found
