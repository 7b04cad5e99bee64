"""Clusters: regions of a primitive graph, each compiled into one node of the token machine.

A step that has to wait in between (for a queue) cannot become one Python function, but much of it can become a few. A
*cluster* is a set of pure operations that the token machine fires as one: when all that enters it is there, a compiled
function computes all of them, and what leaves it is sent on. Nothing else may change by it:

* **Alive or dead together.** The members stand in one frame, and what decides whether they are dead is the same for all
  (`fates`). So the node is dead if and only if each of them would be.
* **No new waiting.** The members wait for the same operations that take time. So none of them, and nobody who needs
  one of them, has to wait for a queue that it did not wait for before; what fills that queue may depend on it.
* **No cycles.** No path leads out of a cluster and back. Each operation has a *stage*: the number of steps from one
  group to another on the longest way to it. Members of a cluster have one stage, and an edge between two groups leads
  to a higher one; so between clusters, too, there are no cycles.

The primitives themselves, the marks of loops (`LoopCond`) and all that has effects stay single nodes. Loops and
conditionals that were left as they are (`nested`) are members, too. What such a cluster computes is optimized as a step
is that is compiled as a whole, and where it has loops its function is made for each step, so that they can look whether
the step is still wanted.

    ops, found = contract(ops, is_heavy, prepare)
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias, cast

import numpy as np

from headrace.compile.blame import Culprit, culprit
from headrace.compile.blocks import Blocks
from headrace.compile.emit import Emitter
from headrace.compile.fates import Fate, fates
from headrace.compile.nested import is_left
from headrace.compile.running import Run
from headrace.compile.source import FILE
from headrace.ir import frames, walk
from headrace.ir.copying import copy_into
from headrace.ir.editing import Editor, arrange
from headrace.ir.failure import known_as
from headrace.ir.graph import Graph
from headrace.ir.kernel import KernelContext, find_kernel

if TYPE_CHECKING:
    from headrace.ir.graph import Operation, Tensor
    from headrace.ir.kernel import Kernel

FEWEST: Final = 3  # operations that compute something: of fewer, a node for each costs no more


@dataclasses.dataclass(frozen=True, slots=True)
class Cluster:
    """One cluster.

    Attributes:
      members: its operations, each after what it waits for. They are no longer part of the graph.
      op: what stands in their place.
      source: the function that computes them.
      report: what the passes did before it was compiled; None: they did not run.
    """

    members: tuple[Operation, ...]
    op: Operation
    source: str
    report: Report | None = None


class Report(Protocol):
    """What passes report (`optimize.base.Context`)."""

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


Prepare: TypeAlias = "Callable[[Graph, Sequence[Operation]], Report]"


def contract(
    ops: Sequence[Operation], is_heavy: Callable[[Operation], bool], prepare: Prepare | None = None
) -> tuple[Sequence[Operation], list[Cluster]]:
    """Puts clusters in the place of what can be clusters, in a graph that nobody else has.

    Args:
      ops: the operations of a primitive graph that are to run. What else is in the graph goes.
      is_heavy: whether an operation with a pure kernel may be worth a thread of its own.
      prepare: runs the passes over the graph of a cluster that has loops or conditionals, given what must be kept.

    Returns:
      What is to run now, and the clusters among it.

    Raises:
      GraphError, InvalidArgumentError: the graph is not legal (`ir.frames`).
    """
    groups = regions(ops, is_heavy)
    if not groups:
        return ops, []
    graph = ops[0].graph
    edit = Editor(graph)
    wanted = set(ops)
    edit.remove([op for op in graph.operations if op not in wanted])
    stands_for: dict[Operation, Operation] = {}
    found = []
    for members in groups:
        c = _contract(edit, members, prepare)
        found.append(c)
        stands_for.update(dict.fromkeys(members, c.op))
    edit.remove(stands_for.keys())
    arrange(graph, list(dict.fromkeys(stands_for.get(op, op) for op in ops)))
    return list(graph.operations), found


def regions(ops: Sequence[Operation], is_heavy: Callable[[Operation], bool]) -> list[list[Operation]]:
    """Which of `ops` can be clusters: for each its members, each after what it waits for.

    Args, Raises: see `contract`.
    """
    tree = frames.derive(ops)
    marks = {f.loop_cond for f in tree.frames}
    fate = fates(ops, tree, lambda op: waits(op) or is_heavy(op)).of
    keys: dict[Operation, tuple[frames.Frame, Fate]] = {}
    for op in ops:
        if _can_be_member(op) and op not in marks and not is_heavy(op):
            keys[op] = (tree.of(op), fate[op])
    order = walk.toposort(ops)
    drawn = _draw_in(order, keys) if any(map(is_left, keys)) else {}
    stages: dict[Operation, int] = {}
    for op in order:
        key, stage = keys.get(op), 0
        for p in walk.forward_predecessors(op):
            if _constant(p) is None:
                stage = max(stage, stages[p] + (key is None or key != keys.get(p)))
        stages[op] = stage
    for op, readers in drawn.items():  # nobody is kept waiting if they come as late as they can
        stages[op] = min(stages[r] for r in readers)
    groups: dict[tuple[frames.Frame, Fate, int], list[Operation]] = {}
    for op in order:
        if op in keys:
            groups.setdefault((*keys[op], stages[op]), []).append(op)
    out = [g for g in groups.values() if sum(map(_computes, g)) >= FEWEST or any(map(is_left, g))]
    return sorted(out, key=lambda g: g[0].id)


def _draw_in(
    order: Sequence[Operation], keys: dict[Operation, tuple[frames.Frame, Fate]]
) -> dict[Operation, list[Operation]]:
    """Puts operations that wait for nothing, and that only a group with loops or conditionals reads, in this group:
    what a loop begins with. Nobody else knows when they are done.

    Returns:
      These operations, each after those that read it, and who these are.
    """
    nested = {key for op, key in keys.items() if is_left(op)}
    readers: dict[Operation, list[Operation]] = {}
    drawn: dict[Operation, list[Operation]] = {}
    for op in reversed(order):
        key, mine = keys.get(op), readers.get(op, ())
        if mine and key is not None and not key[1].waits and not is_left(op):
            into = keys.get(mine[0])
            if into in nested and all(keys.get(r) == into for r in mine):
                assert into is not None
                if into[0] is key[0] and not key[1].dead & ~into[1].dead:
                    keys[op] = into
                    drawn[op] = list(mine)
        for p in walk.forward_predecessors(op):
            readers.setdefault(p, []).append(op)
    return drawn


def apart(ops: Iterable[Operation], is_heavy: Callable[[Operation], bool]) -> dict[str, list[Operation]]:
    """Which of `ops`, whose clusters are made, are nodes of their own, by the reason.

    Constants and the ends of a step are left out: there is nothing to be done for them.
    """
    few = f"fewer than {FEWEST} that compute something wait for the same and die together"
    out: dict[str, list[Operation]] = {}
    for op in ops:
        if op.type not in ("_Cluster", "_ClusterOfStep", "_Arg", "_Retval") and _constant(op) is None:
            why = _why_not(op) or ("may be worth a thread of its own" if is_heavy(op) else few)
            out.setdefault(why, []).append(op)
    return out


def _can_be_member(op: Operation) -> bool:
    return _constant(op) is None and not _why_not(op)


def _why_not(op: Operation) -> str:
    """Why `op`, whatever there is around it, is in no cluster; "" if it may be in one."""
    if op.opdef.primitive:
        return "a primitive of control flow"
    if op.opdef.structured:
        return "" if is_left(op) else "calls a function in a frame of its own"
    kernel = find_kernel(op)
    if kernel is None or kernel.form == "async":
        return "may wait for something else"
    if not op.opdef.is_pure or kernel.form != "pure":
        return "has effects, or sees those of others"
    if any(t.dtype.is_ref for t in (*op.inputs, *op.outputs)):
        return "works on a reference"
    return ""


def waits(op: Operation) -> bool:
    """Whether `op`, once it fires, waits for something else, or calls a function in a frame of its own."""
    if op.opdef.structured:
        return not is_left(op)
    kernel = find_kernel(op)
    return kernel is not None and kernel.form == "async"


def _computes(op: Operation) -> bool:
    """Whether compiled code has anything to do for `op`."""
    return bool(op.outputs) and bool(op.inputs) and op.opdef.facts.forwards is None


def _constant(op: Operation) -> Operation | None:
    """The constant, outside all loops, that `op` is or brings into one; None if it is something else, or no array."""
    found = walk.constant_behind(op)
    return found if found is not None and isinstance(found.attrs["value"], np.ndarray) else None


# *** making one ***


def _contract(edit: Editor, members: Sequence[Operation], prepare: Prepare | None) -> Cluster:
    """Puts one operation in the place of `members`; these have no readers left then but one another."""
    graph, inside = edit.graph, set(members)
    read = list(dict.fromkeys(t for op in members for t in op.inputs if t.op not in inside))
    inputs = [t for t in read if _constant(t.op) is None]
    before = {c for op in members for c in op.control_inputs if c not in inside and _constant(c) is None}
    before -= {t.op for t in inputs if not t.op.opdef.primitive and not t.op.opdef.structured}  # they are waited for
    if not inputs and not before:
        inputs = [t for t in read if t.op.type != "Const"]  # an Enter, which tells the frame
    outputs = [
        t for op in members for t in op.outputs if any(reader not in inside for reader, _ in edit.uses.get(t, ()))
    ]
    wanted = [op for op in members if any(after not in inside for after in edit.waits.get(op, ()))]
    compute, report = _compute(members, inputs, outputs, wanted, prepare)
    attrs = {
        "Tin": tuple(t.dtype for t in inputs),
        "Tout": tuple(t.dtype for t in outputs),
        "_compute": compute,
        "_of": tuple(t.name for t in outputs),
    }
    name = graph.unique_name(f"{members[-1].name}/cluster")
    controls = [c for c in dict.fromkeys(c for op in members for c in op.control_inputs) if c in before]
    type = "_ClusterOfStep" if compute.is_of_step else "_Cluster"
    op = graph.add_op(type, name, inputs, attrs, controls, members[-1].device, members[-1].source)
    edit.note([op])
    for old, new in zip(outputs, op.outputs, strict=True):
        new.shape, new.handle = old.shape, old.handle
        for reader, i in list(edit.uses[old]):
            if reader not in inside:
                edit.set_input(reader, i, new)
    for m in members:
        for after in list(edit.waits.get(m, ())):
            if after not in inside:
                edit.set_controls(after, [op if c is m else c for c in after.control_inputs])
    return Cluster(tuple(members), op, compute.source, report)


class _Compute(Protocol):
    """The function that computes the members of a cluster, as kernels are called; or what makes it for a step.

    It is a plain function with attributes, since a call of an object with a `__call__` takes longer.

    Attributes:
      source: its text.
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


def _compute(
    members: Sequence[Operation],
    inputs: Sequence[Tensor],
    outputs: Sequence[Tensor],
    wanted: Sequence[Operation],
    prepare: Prepare | None,
) -> tuple[_Compute, Report | None]:
    """The function of `inputs` that computes `members`, each after what it waits for, and gives `outputs`.

    Args:
      wanted: those of the members that have to be done though nobody may read what they give.
      prepare: see `contract`.
    """
    graph = Graph()
    moved: dict[Tensor, Tensor] = {}
    args = [_argument(graph, i, t) for i, t in enumerate(inputs)]
    moved.update((t, a.outputs[0]) for t, a in zip(inputs, args, strict=True))
    for t in dict.fromkeys(t for op in members for t in op.inputs):
        constant = _constant(t.op)
        if constant is not None and t not in moved:
            known = moved.get(constant.outputs[0])
            if known is None:
                copy = graph.copy_op(constant, (), (), graph.unique_name(constant.name))
                known = moved[constant.outputs[0]] = copy.outputs[0]
            moved[t] = known
    copies = copy_into(graph, members, moved)
    ends = [_end(graph, i, moved[t]) for i, t in enumerate(outputs)]
    targets, report = [copies[op] for op in wanted], None
    if prepare is not None and any(map(is_left, members)):
        report = prepare(graph, targets)
        targets = list(report.kept)
    emitter = Emitter(Blocks(graph, targets), args, ends)
    code = emitter.out.finish("step")
    has_loops = any(m.loops for m in code.marks)
    is_of_step = has_loops or bool(emitter.stateful)
    made = _maker(code.function, emitter.stateful, len(outputs)) if is_of_step else None
    compute = cast(_Compute, made or _as_kernel(code.function, Run(None, ()), len(outputs)))
    compute.source, compute.uses_blas = code.text, emitter.uses_blas
    compute.has_loops, compute.is_of_step = has_loops, is_of_step
    compute.culprit = functools.partial(culprit, file=FILE, marks=code.marks)
    return compute, report


def _as_kernel(step: Callable[..., Any], run: Run, n_outputs: int) -> Callable[..., Any]:
    """`step`, which returns a tuple, as a kernel."""
    if n_outputs == 1:
        return lambda *args: step(run, *args)[0]
    return functools.partial(step, run)


def _maker(
    step: Callable[..., Any], stateful: Sequence[tuple[Operation, Kernel]], n_outputs: int
) -> Callable[[KernelContext], Callable[..., Any]]:
    """What makes a kernel of `step` for each step."""

    def make(ctx: KernelContext) -> Callable[..., Any]:
        kernels = [k.factory(KernelContext(ctx.step, op), op.attrs) for op, k in stateful]
        if n_outputs == 1:
            return lambda *args: step(Run(ctx.step, kernels), *args)[0]
        return lambda *args: step(Run(ctx.step, kernels), *args)

    return make


def _argument(graph: Graph, i: int, t: Tensor) -> Operation:
    attrs = {"T": t.dtype, "index": i, "of": known_as(t)}
    op = graph.add_op("_Arg", f".arg.{i}", (), attrs)
    op.outputs[0].shape, op.outputs[0].handle = t.shape, t.handle
    return op


def _end(graph: Graph, i: int, t: Tensor) -> Operation:
    return graph.add_op("_Retval", f".ret.{i}", [t], {"T": t.dtype, "index": i})


def show(clusters: Iterable[Cluster]) -> str:
    """The members of clusters as text, a line for each."""
    return "\n".join(" ".join(op.name for op in c.members) for c in clusters)
