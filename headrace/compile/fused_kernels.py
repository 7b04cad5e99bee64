"""The function of a cluster (`fused_regions`): what computes its members, as the kernel of the node that stands for
them.

Where there are loops or conditionals among the members, the passes run over them first, as they do over a step that is
compiled as a whole; and if shapes of what enters are not known before, there is code for each set of shapes that comes
(`variants`).
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, cast

import numpy as np

from headrace import flags
from headrace.compile.blame import Culprit, came_through, culprit
from headrace.compile.emit import Emitter
from headrace.compile.fallback import Failure
from headrace.compile.outlining import is_outlined
from headrace.compile.regions import Regions
from headrace.compile.runtime import RunState
from headrace.compile.source import FILE
from headrace.compile.variants import Variants
from headrace.ir import walk
from headrace.ir.edit.copying import copy_into
from headrace.ir.graph import Graph
from headrace.ir.kernel import KernelContext
from headrace.ir.kernel_errors import known_as

if TYPE_CHECKING:
    from headrace.compile.source import Code
    from headrace.ir.graph import Operation, Tensor
    from headrace.ir.kernel import Kernel
    from headrace.shapes import Shape


class FusedReport(Protocol):
    """What passes report (`optimize.base.PassContext`)."""

    @property
    def kept(self) -> Sequence[Operation]:
        """What has become of the operations that had to be kept."""
        ...

    @property
    def ran(self) -> Sequence[tuple[str, str, bool]]:
        """(pass, graph, whether it changed anything) in order."""
        ...

    @property
    def notes(self) -> Sequence[Any]:
        """What they did, and what they left alone and why."""
        ...


# runs the passes over the graph of a cluster; given what must be kept, and the shapes that are known of what enters
Prepare: TypeAlias = "Callable[[Graph, Sequence[Operation], Mapping[Tensor, Shape]], FusedReport]"


class Compute(Protocol):
    """The function that computes the members of a cluster, as kernels are called; or what makes it for a step.

    It is a plain function with attributes, since a call of an object with a `__call__` takes longer.

    Attributes:
      source: its text, for any shapes.
      culprit: tells which of the members raised an error; None if it came from elsewhere.
      uses_blas: whether it may call the BLAS library.
      has_loops: whether there are loops in it.
      is_of_step: whether it makes the function, given a `KernelContext`.
    """

    source: str
    culprit: Callable[[Exception], Culprit | None]
    uses_blas: bool
    has_loops: bool
    is_of_step: bool

    def __call__(self, *args: Any) -> Any: ...


def compute_of(
    members: Sequence[Operation],
    inputs: Sequence[Tensor],
    outputs: Sequence[Tensor],
    wanted: Sequence[Operation],
    prepare: Prepare | None,
) -> tuple[Compute, FusedReport | None]:
    """The function of `inputs` that computes `members`, each after what it waits for, and gives `outputs`.

    Args:
      wanted: those of the members that have to be done though nobody may read what they give.
      prepare: runs the passes, if there are loops or conditionals among the members.

    Returns:
      The function, and what the passes did.
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


@dataclasses.dataclass(frozen=True, slots=True)
class _Members:
    """The members in a graph of their own.

    Attributes:
      graph: the private graph of the members.
      args, ends: its operations in place of the inputs and outputs of the region.
      targets: its operations that run whether or not an output needs them.
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


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class _Compiled:
    """The members, compiled.

    Attributes:
      code: its function is of a `Run` and the inputs, and gives a tuple.
      n_outputs: how many values that has.
      stateful: the kernels that are made for each step.
      uses_blas: whether it may call the BLAS library.
      report: what the passes did, if they ran.
    """

    code: Code
    n_outputs: int
    stateful: Sequence[tuple[Operation, Kernel]]
    uses_blas: bool
    report: FusedReport | None

    @property
    def is_of_step(self) -> bool:
        """Whether it has to be made for each step."""
        return self.code.has_loops or bool(self.stateful)


def _compiled(
    made: _Members, prepare: Prepare | None = None, known: Mapping[int, Shape] = MappingProxyType({})
) -> _Compiled:
    """Compiles the members, whose graph nobody else has; `known` are shapes of inputs, by position."""
    targets, report = made.targets, None
    if prepare is not None:
        report = prepare(made.graph, targets, {made.args[i].outputs[0]: shape for i, shape in known.items()})
        targets = list(report.kept)
    emitter = Emitter(Regions(made.graph, targets), made.args, made.ends)
    return _Compiled(emitter.out.finish("step"), len(made.ends), emitter.stateful, emitter.uses_blas, report)


def _variant(made: _Members, prepare: Prepare, known: Mapping[int, Shape]) -> _Compiled | None:
    """The members compiled for shapes of inputs; None if that fails, which is told: there is code for any shapes."""
    try:
        return _compiled(made.copy(), prepare, known)
    except Exception as e:
        Failure("cluster for shapes", e).warn()
        return None


def _as_compute(general: _Compiled, variants: Variants[_Compiled]) -> Compute:
    """What is for any shapes, and what there is for single sets of them, as a kernel or what makes one."""
    compute = cast(Compute, _maker(general, variants) if general.is_of_step else _as_kernel(general))
    compute.source, compute.uses_blas = general.code.text, general.uses_blas
    compute.has_loops, compute.is_of_step = general.code.has_loops, general.is_of_step
    compute.culprit = functools.partial(_culprit, general, variants)
    return compute


def _as_kernel(general: _Compiled) -> Callable[..., Any]:
    """The function, which returns a tuple, as a kernel."""
    step, run = general.code.function, RunState(None, ())
    if general.n_outputs == 1:
        return lambda *args: step(run, *args)[0]
    return functools.partial(step, run)


def _maker(general: _Compiled, variants: Variants[_Compiled]) -> Callable[[KernelContext], Callable[..., Any]]:
    """What makes a kernel for each step."""
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


def _culprit(general: _Compiled, variants: Variants[_Compiled], error: Exception) -> Culprit | None:
    for each in (general, *variants.made.values()):
        if came_through(error, each.code.function):
            return culprit(error, FILE, each.code.marks)
    return None


def constant(op: Operation) -> Operation | None:
    """The constant, outside all loops, that `op` is or brings into one; None if it is something else, or no array."""
    found = walk.constant_behind(op)
    return found if found is not None and isinstance(found.attrs["value"], np.ndarray) else None


def _argument(graph: Graph, i: int, t: Tensor) -> Operation:
    attrs = {"T": t.dtype, "index": i, "of": known_as(t)}
    op = graph.add_op("_Arg", f".arg.{i}", (), attrs)
    op.outputs[0].shape, op.outputs[0].handle = t.shape, t.handle
    return op


def _end(graph: Graph, i: int, t: Tensor) -> Operation:
    return graph.add_op("_Retval", f".ret.{i}", [t], {"T": t.dtype, "index": i})
