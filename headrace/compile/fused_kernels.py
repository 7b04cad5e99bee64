"""Kernels of fused regions: the compiled functions that compute their members.

If the members contain loops or conditionals, the passes first optimize them, as they optimize a step that is compiled
as a whole. If a shape of an input is not known before, each set of shapes that occurs gets code of its own
(`variants`).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, cast

import numpy as np

from headrace import flags
from headrace.compile.blame import came_through, locate
from headrace.compile.fallback import Failure
from headrace.compile.outlining import is_outlined
from headrace.compile.variants import Variants
from headrace.ir import walk
from headrace.ir.edit.copying import copy_into
from headrace.ir.graph import Graph
from headrace.ir.kernel import KernelContext
from headrace.ir.kernel_errors import Located, known_as
from headrace.records import record
from headrace.schedule import schedule
from headrace.schedule.regions import Regions
from headrace.targets.native.sections import cut
from headrace.targets.python import Printer
from headrace.targets.python.runtime import RunState
from headrace.targets.python.source import FILE

if TYPE_CHECKING:
    from headrace.ir.graph import Operation, Tensor
    from headrace.ir.kernel import Kernel
    from headrace.shapes import Shape
    from headrace.targets.python.source import Code


class FusedReport(Protocol):
    """Report of the passes (`optimize.base.PassContext`)."""

    @property
    def preserved(self) -> Sequence[Operation]:
        """Replacements of the operations that must be preserved."""
        ...

    @property
    def ran(self) -> Sequence[tuple[str, str, bool]]:
        """(pass, graph, whether it changed the graph), in order."""
        ...

    @property
    def notes(self) -> Sequence[Any]:
        """Changes that the passes made, and those that they did not make, with the reasons."""
        ...


# Runs the passes over the graph of a fused region. Arguments: the graph, operations to keep, known shapes of inputs.
Prepare: TypeAlias = "Callable[[Graph, Sequence[Operation], Mapping[Tensor, Shape]], FusedReport]"


class Compute(Protocol):
    """Kernel of a fused region, or a function that makes the kernel for a step.

    It is a plain function with attributes, because a call of an object with `__call__` takes longer.

    Attributes:
      source: The text of the code for any shapes.
      locate: Finds the member that raised an error; returns None if the error came from elsewhere.
      uses_blas: Whether it may call the BLAS library.
      is_threaded: Whether an operation may have enough work for several threads.
      uses_threads: Whether several threads may run parts of an operation in its machine code.
      flushes: Whether its step flushes denormal numbers to 0: it has loops, or products in machine code.
      is_of_step: Whether the function takes a `KernelContext` and returns the kernel for its step.
    """

    source: str
    locate: Callable[[Exception], Located | None]
    uses_blas: bool
    is_threaded: bool
    uses_threads: bool
    flushes: bool
    is_of_step: bool

    def __call__(self, *args: Any) -> Any: ...


def compute_of(
    members: Sequence[Operation],
    inputs: Sequence[Tensor],
    outputs: Sequence[Tensor],
    wanted: Sequence[Operation],
    prepare: Prepare | None,
) -> tuple[Compute, FusedReport | None]:
    """Compiles the members of a fused region into one function.

    Args:
      members: The operations, in topological order.
      inputs: The tensors that the function takes.
      outputs: The tensors of the members that the function returns.
      wanted: Members that must run although no output may need them.
      prepare: Runs the passes if the members contain loops or conditionals; None omits them.

    Returns:
      The function, and the report of the passes if they ran.
    """
    graph = Graph()
    moved: dict[Tensor, Tensor] = {}
    args = [_argument(graph, i, t) for i, t in enumerate(inputs)]
    moved.update((t, a.outputs[0]) for t, a in zip(inputs, args, strict=True))
    for t in dict.fromkeys(t for op in members for t in op.inputs):
        found = constant(t.op)
        if found is not None and t not in moved:
            known = moved.get(found.outputs[0])
            if known is None:
                copy = graph.copy_op(found, (), (), graph.unique_name(found.name))
                known = moved[found.outputs[0]] = copy.outputs[0]
            moved[t] = known
    copies = copy_into(graph, members, moved)
    ends = [_end(graph, i, moved[t]) for i, t in enumerate(outputs)]
    made = _Members(graph, args, ends, [copies[op] for op in wanted])
    if prepare is None or not any(map(is_outlined, members)):
        return _as_compute(_compiled(made), Variants((), lambda known: None)), None
    general = _compiled(made.copy(), prepare)
    varies = general.is_of_step and flags.OPTIMIZE.value != "off"
    variants = Variants(inputs if varies else (), functools.partial(_variant, made, prepare))
    return _as_compute(general, variants), general.report


@record(frozen=True, slots=True)
class _Members:
    """Members in a graph of their own.

    Attributes:
      graph: The private graph of the members.
      args: Its `_Arg` operations, which stand for the inputs of the region.
      ends: Its `_Retval` operations, which stand for the outputs of the region.
      targets: Its operations that run whether or not an output needs them.
    """

    graph: Graph
    args: Sequence[Operation]
    ends: Sequence[Operation]
    targets: Sequence[Operation]

    def copy(self) -> _Members:
        graph = Graph()
        copies = copy_into(graph, self.graph.operations, {})
        args, ends, targets = ([copies[op] for op in ops] for ops in (self.args, self.ends, self.targets))
        return _Members(graph, args, ends, targets)


@record(frozen=True, slots=True, eq=False)
class _Compiled:
    """Compiled members.

    Attributes:
      code: The code; its function takes a `RunState` and the inputs, and returns a tuple.
      n_outputs: The number of values in that tuple.
      stateful: Operations and kernels that are made for each step.
      uses_blas: Whether the code may call the BLAS library.
      is_threaded: Whether such a call may have enough work for several threads.
      uses_threads: Whether several threads may run parts of an operation in its machine code.
      has_loops: Whether the code, or machine code that it calls, contains loops.
      flushes: As of `Compute`.
      report: The report of the passes, if they ran.
    """

    code: Code
    n_outputs: int
    stateful: Sequence[tuple[Operation, Kernel]]
    uses_blas: bool
    is_threaded: bool
    uses_threads: bool
    has_loops: bool
    flushes: bool
    report: FusedReport | None

    @property
    def is_of_step(self) -> bool:
        """Whether the kernel is made for each step."""
        return self.has_loops or bool(self.stateful)


def _compiled(
    made: _Members, prepare: Prepare | None = None, known: Mapping[int, Shape] = MappingProxyType({})
) -> _Compiled:
    """Compiles the members in place.

    Args:
      made: The members, in a graph that is used nowhere else.
      prepare: Runs the passes; None omits them.
      known: Shapes of inputs, by position.

    Returns:
      The compiled members.
    """
    targets, report = made.targets, None
    if prepare is not None:
        report = prepare(made.graph, targets, {made.args[i].outputs[0]: shape for i, shape in known.items()})
        targets = list(report.preserved)
    printer = Printer(schedule(Regions(made.graph, targets), made.args, made.ends, cut))
    code = printer.out.finish("step")
    has_loops = printer.polls or code.has_loops
    flushes = has_loops or printer.flushes
    uses = printer.uses_blas, printer.is_threaded, printer.uses_threads
    return _Compiled(code, len(made.ends), printer.stateful, *uses, has_loops, flushes, report)


def _variant(made: _Members, prepare: Prepare, known: Mapping[int, Shape]) -> _Compiled | None:
    """Compiles the members for shapes of inputs; returns None with a warning on failure.

    The code for any shapes then runs instead.
    """
    try:
        return _compiled(made.copy(), prepare, known)
    except Exception as e:
        Failure("fused region for shapes", e).warn()
        return None


def _as_compute(general: _Compiled, variants: Variants[_Compiled]) -> Compute:
    """Combines the code for any shapes and the variants into one `Compute`."""
    compute = cast(Compute, _maker(general, variants) if general.is_of_step else _as_kernel(general))
    compute.source, compute.uses_blas = general.code.text, general.uses_blas
    compute.uses_threads = general.uses_threads
    compute.is_threaded = general.is_threaded or general.uses_threads
    compute.flushes, compute.is_of_step = general.flushes, general.is_of_step
    compute.locate = functools.partial(_locate, general, variants)
    return compute


def _as_kernel(general: _Compiled) -> Callable[..., Any]:
    """The function of `general` as a kernel, which returns a single output without a tuple."""
    step, run = general.code.function, RunState(None, ())
    if general.n_outputs == 1:
        return lambda *args: step(run, *args)[0]
    return functools.partial(step, run)


def _maker(general: _Compiled, variants: Variants[_Compiled]) -> Callable[[KernelContext], Callable[..., Any]]:
    """A function that makes the kernel for each step."""
    gives_one = general.n_outputs == 1

    def make(ctx: KernelContext) -> Callable[..., Any]:
        bound: dict[_Compiled, Sequence[Callable[..., Any]]] = {}

        def kernel(*args: Any) -> Any:
            mine = (variants.find(args) if variants.open else None) or general
            kernels = bound.get(mine)
            if kernels is None:
                kernels = [k.factory(KernelContext(ctx.step, op), op.attrs) for op, k in mine.stateful]
                bound[mine] = kernels
            out = mine.code.function(RunState(ctx.step, kernels), *args)
            return out[0] if gives_one else out

        return kernel

    return make


def _locate(general: _Compiled, variants: Variants[_Compiled], error: Exception) -> Located | None:
    for each in (general, *variants.made.values()):
        if came_through(error, each.code.function):
            return locate(error, FILE, each.code.marks)
    return None


def constant(op: Operation) -> Operation | None:
    """The constant outside all loops that `op` is or enters; else None."""
    found = walk.constant_behind(op)
    return found if found is not None and isinstance(found.attrs["value"], np.ndarray) else None


def _argument(graph: Graph, i: int, t: Tensor) -> Operation:
    attrs = {"T": t.dtype, "index": i, "of": known_as(t)}
    op = graph.add_op("_Arg", f".arg.{i}", (), attrs)
    op.outputs[0].copy_static(t)
    return op


def _end(graph: Graph, i: int, t: Tensor) -> Operation:
    return graph.add_op("_Retval", f".ret.{i}", [t], {"T": t.dtype, "index": i})
