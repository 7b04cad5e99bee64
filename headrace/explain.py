"""Explanation of a step: its engine, passes and source, and reasons against compiling.

run = session.make_callable(y, [x])
print(hr.explain(run))
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Protocol, runtime_checkable

from headrace.ir.function import nested_operations
from headrace.ir.notes import OnDevice
from headrace.records import record
from headrace.shapes import show

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from headrace.compile import Compiled
    from headrace.compiled_step import CompiledStep
    from headrace.environment import Environment
    from headrace.optimize.base import Note
    from headrace.programs import Programs


@runtime_checkable
class Explained(Protocol):
    """Program that another process has compiled, with its explanation.

    Attributes:
      explained: the explanation.
    """

    explained: Explanation


SHOWN: Final = 8  # names of a list of operations that the text shows


@record(frozen=True, slots=True)
class Explanation:
    """Explanation of a step.

    `str()` of it is a text for the user: the listing or the program, the instructions of machine code if there are any,
    and then the reasons and passes.

    Attributes:
      engine: "compiled" or "interpret".
      reasons: reasons against compiling the step, a line for each operation that prevents it.
      passes: names of the passes that changed the step, in order, each once.
      notes: changes that passes made, and changes that they did not make, with the reason.
      source: source of the Python function that the step was compiled to; "" if there is none.
      listing: the source with operations, the user's lines and small constants as comments.
      program: the optimized graph of a step without such a function, as `str(graph)`; "" for other steps.
      fused_regions: for an interpreted step, the operations of each fused region, which is one node of the executor.
      apart: for an interpreted step, pairs (reason, names) of the operations outside of fused regions, without
        constants.
      devices: for a step over several devices, pairs (device, names of its operations), in the primitive form.
      moved: pairs (operation, reason) of the operations that are not on the device that they request.
      failures: failures to compile the step or a part of it: the stage and the exception, with its traceback.
      shapes: for a step that is compiled for the shapes of its feeds, each set of shapes so far. The other attributes
        are then those of the newest.
      stages: the stages that the step passed, in order.
      schedule: the instructions that `source` was generated from, one on each line; "" if there is none.
      native: the number of instructions that run as machine code, and the reasons against others, one on each line.
      native_source: the text of the machine code in LLVM's assembly language; "" if there is none.
    """

    engine: str
    reasons: tuple[str, ...]
    passes: tuple[str, ...]
    notes: tuple[Note, ...]
    source: str
    fused_regions: tuple[tuple[str, ...], ...] = ()
    apart: tuple[tuple[str, tuple[str, ...]], ...] = ()
    devices: tuple[tuple[str, tuple[str, ...]], ...] = ()
    moved: tuple[tuple[str, str], ...] = ()
    shapes: tuple[str, ...] = ()
    failures: tuple[str, ...] = ()
    stages: tuple[str, ...] = ()
    schedule: str = ""
    native: tuple[str, ...] = ()
    native_source: str = ""
    listing: str = ""
    program: str = ""

    @property
    def native_assembly(self) -> str:
        """The machine code in the processor's assembly language; "" if there is none.

        Each access compiles `native_source` again.
        """
        if not self.native_source:
            return ""
        from headrace.targets.native.compiler import compiler  # here: most explanations need no LLVM

        return compiler().assembly(self.native_source)

    def __str__(self) -> str:
        out = [self.listing or self.source or self.program] if self.source or self.program else []
        if self.native and self.native_source:
            out += ["# instructions, of which each section is machine code:", f"{self.schedule}\n"]
        out += [f"engine: {self.engine}", f"stages: {', '.join(self.stages)}"]
        out += [f"  not compiled: {r}" for r in self.reasons]
        if self.engine == "interpret" and not self.reasons:
            out.append('  not compiled: the session has engine="interpret"')
        out += self.failures
        out += [f"  for {fed}" for fed in self.shapes]
        out += [f"{device}: {_brief(names)}" for device, names in self.devices]
        out += [f"  {name}: {why}" for name, why in self.moved]
        if self.fused_regions or self.apart:
            out.append(f"fused regions: {len(self.fused_regions) or 'none'}")
            out += [f"  {_brief(names)}" for names in self.fused_regions]
            out += [f"  alone: {why}: {_brief(names)}" for why, names in self.apart]
        out.append(f"passes that changed the graph: {', '.join(self.passes) or 'none'}")
        for verb, fired in (("applied", True), ("rejected", False)):
            out += [f"  {verb}: {n.rule}: {n.op}: {n.text}" for n in self.notes if n.fired is fired]
        out += [f"native code: {line}" for line in self.native]
        return "\n".join(out)


def _brief(names: Sequence[str]) -> str:
    """Number of names and the first of them."""
    more = f", and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return f"{len(names)} operation{'s' * (len(names) > 1)}: {', '.join(names[:SHOWN])}{more}"


def explanation_to_data(explained: Explanation) -> dict[str, Any]:
    """Returns an explanation as plain data, without notes of passes and source, for other processes."""
    return {
        "engine": explained.engine,
        "reasons": list(explained.reasons),
        "passes": list(explained.passes),
        "devices": [[device, list(names)] for device, names in explained.devices],
        "moved": [list(pair) for pair in explained.moved],
        "failures": list(explained.failures),
        "stages": list(explained.stages),
    }


def explanation_from_data(data: Mapping[str, Any]) -> Explanation:
    """Returns the explanation that `explanation_to_data` has turned into plain data.

    Example:
      >>> explained = Explanation("compiled", ("a reason",), (), (), "", devices=(("/device:CPU:0", ("x", "y")),))
      >>> explanation_from_data(explanation_to_data(explained)) == explained
      True
    """
    return Explanation(
        data["engine"],
        tuple(data["reasons"]),
        tuple(data["passes"]),
        (),
        "",
        devices=tuple((device, tuple(names)) for device, names in data["devices"]),
        moved=tuple((op, why) for op, why in data["moved"]),
        failures=tuple(data["failures"]),
        stages=tuple(data["stages"]),
    )


def explanation(programs: Programs) -> Explanation:
    """Returns the explanation of a step, for the program of its newest set of shapes."""
    step = (list(programs.variants.values()) or [programs.general])[-1]
    if isinstance(step.program, Explained):
        return step.program.explained
    compiled, report, regions = step.compiled, step.report, step.fused_regions
    reports = [r for r in (report, *(region.report for region in regions)) if r is not None]
    return Explanation(
        "interpret" if compiled is None and not step.is_whole and not step.shares else "compiled",
        tuple(step.reasons),
        tuple(dict.fromkeys(name for r in reports for name, _, changed in r.ran if changed)),
        tuple(note for r in reports for note in r.notes),
        "" if compiled is None else compiled.source,
        tuple(tuple(op.name for op in region.members) for region in regions),
        tuple((why, tuple(op.name for op in ops)) for why, ops in step.apart().items()),
        *_placed(step, programs.environment),
        shapes=tuple(", ".join(map(show, fed)) for fed in programs.variants),
        failures=tuple(f"{f}\n{f.details}" for f in programs.failures),
        stages=tuple(step.stages),
        schedule="" if compiled is None else compiled.schedule,
        native=() if compiled is None else _native(compiled),
        native_source="" if compiled is None else compiled.native_source,
        listing="" if compiled is None else compiled.listing,
        program=f"{step.graph.graph}\n" if compiled is None else "",
    )


def _native(compiled: Compiled) -> tuple[str, ...]:
    """`Explanation.native` of a compiled step."""
    found = compiled.coverage
    if found is None:
        return ()
    reasons = sorted(found.reasons.items(), key=lambda pair: -pair[1])
    return f"{found.inside} of {found.all} instructions", *(f"not {n}: {why}" for why, n in reasons)


def _placed(step: CompiledStep, environment: Environment) -> tuple[Any, Any]:
    """`Explanation.devices` and `Explanation.moved` of a step."""
    placement = step.placement
    if placement is None:
        from headrace.place.constraints import unmet

        reasons = unmet(nested_operations(step.pruned.graph.operations, calls=True), environment.names)
        return (), tuple((op.name, why) for op, why in reasons.items())
    moved = tuple((op.name, why) for op, why in placement.reasons.items())
    on: dict[str, list[str]] = {}
    joined = step.stages.get("join")
    if joined is not None:
        host = min((d for d in placement.of.values() if d.rpartition("/")[2].startswith("device:CPU")), default="")
        for op in nested_operations(joined.graph.operations):
            there = op.notes.get(OnDevice)
            on.setdefault(there.device if there is not None else host or environment.names[0], []).append(op.name)
    for op, device in placement.of.items() if step.is_divided or step.shares else ():
        on.setdefault(device, []).append(op.name)
    return tuple((device, tuple(on[device])) for device in sorted(on)), moved


def explain(run: Any) -> Explanation:
    """Returns the explanation of a step.

    Args:
      run: a function that `Session.make_callable` returned.

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
