"""The passes of a step, in order.

No other module states which passes run, or when.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from headrace.ir.analysis.graph_size import deepens_recursion
from headrace.ir.edit.editor import Editor
from headrace.ir.function import inside_out
from headrace.ir.graph import FuncGraph
from headrace.optimize.algebraic_simplification import SimplifyAlgebra
from headrace.optimize.array_marks import DropMarks
from headrace.optimize.base import Options, Pass, PassContext, Repeat, run
from headrace.optimize.batch_norm_folding import FoldBatchNorm
from headrace.optimize.branch_elimination import EliminateBranches
from headrace.optimize.colocation import follow_colocation
from headrace.optimize.constant_folding import FoldConstants
from headrace.optimize.control_edges import SimplifyControlEdges
from headrace.optimize.cse import MergeCommon
from headrace.optimize.dead_code import EliminateDeadCode
from headrace.optimize.effects import Effects
from headrace.optimize.half_precision import WidenHalfPrecision
from headrace.optimize.horizontal_fusion import FuseHorizontally
from headrace.optimize.inline import Inline
from headrace.optimize.interprocedural_constants import PropagateConstants
from headrace.optimize.list_zeros import ReserveZeros
from headrace.optimize.loops import LOOP_PASSES
from headrace.optimize.matrix_products import MultiplyMatrices
from headrace.optimize.recursive_reads import ReadBeforeRecursion
from headrace.optimize.slice_merging import MergeSlices

if TYPE_CHECKING:
    from headrace.ir.graph import Graph, Operation

# These passes are cheap, and each makes work for the others: a folded predicate makes a dead branch, hence dead inputs.
_PRUNE: Final = EliminateDeadCode()
_EFFECTS: Final = Effects()
_CLEAN_UP: Final = Repeat(
    (
        PropagateConstants(),
        FoldConstants(),
        SimplifyAlgebra(),
        MergeCommon(),
        EliminateBranches(),
        SimplifyControlEdges(),
        _PRUNE,
    )
)

PASSES: Final[tuple[Pass | Repeat, ...]] = (
    _PRUNE,
    DropMarks(),  # before effects become explicit, because each mark would be an effect
    _EFFECTS,  # an operation with an effect may be reached only through an argument of a call
    Repeat((Inline(),)),  # nested calls
    _EFFECTS,  # of the functions that came from the library
    ReadBeforeRecursion(),
    MultiplyMatrices(),
    _CLEAN_UP,
    FoldBatchNorm(),
    MergeSlices(),
    *LOOP_PASSES,
    WidenHalfPrecision(),  # the passes on loops look for products and sums without conversions between them
    ReserveZeros(),  # after the passes on loops, which know gradients of lists by their zeros
    _CLEAN_UP,
    FuseHorizontally(),
)
_DEFAULT: Final = Options()


def names() -> list[str]:
    """Names of all passes that can be switched off, in order."""
    steps = [step.passes if isinstance(step, Repeat) else (step,) for step in PASSES]
    return list(dict.fromkeys(p.name for passes in steps for p in passes if p is not _EFFECTS))


@deepens_recursion
def optimize(
    graph: Graph,
    preserved: Sequence[Operation] = (),
    options: Options = _DEFAULT,
    check: Callable[[Graph], None] | None = None,
    on_stage: Callable[[str, Graph], None] | None = None,
) -> PassContext:
    """Runs all passes that are switched on over the graph of a step.

    The passes run over its nested graphs, too.

    Args:
      graph: a private copy, with `_Arg` and `_Retval` ends, whose operations own private copies of their graphs
        (`ir.edit.editor.own_bodies`). It is changed in place.
      preserved: operations of it that must run although nothing reads them: the targets of the step.
      options: limits and switches.
      check: called with the graph after each pass that changed something (`ir.verify.verify`).
      on_stage: called with the name of a pass and the graph, after each pass that changed something, for dumps.

    Returns:
      The report, and the operations that stand for `preserved` afterwards.

    Raises:
      HeadraceError: a pass or the check failed; a note names the pass and its predecessors.

    Example:
      >>> from headrace.ir.text import from_text, to_text
      >>> g = from_text('''
      ... x = _Arg[T=float32, index=0, shape=[2]]
      ... n = Size(x)
      ... m = AddV2(n, n)
      ... y = _Retval[index=0](m)
      ... ''')
      >>> report = optimize(g)
      >>> print(to_text(g), end="")
      x = _Arg[T=float32, index=0, shape=[2]] : float32[2]
      m = Const[value=int32[]{4}, dtype=int32] : int32[]
      y = _Retval[T=int32, index=0](m)
      >>> [note.text for note in report.notes if note.op == "n"]
      ['Size of a known shape: 2']
    """
    if options.off.issuperset(set(names()) - {_PRUNE.name}):  # no pass that is left needs explicit effects
        options = dataclasses.replace(options, off=options.off | {_EFFECTS.name})
    context = PassContext(options, list(preserved))
    for g in inside_out(graph):
        if isinstance(g, FuncGraph):  # no pass reads captures, and they keep the original graph alive
            Editor(g).forget_captures()

    def after(graph: Graph) -> None:
        if check is not None:
            check(graph)
        if on_stage is not None:
            on_stage(context.ran[-1][0].partition(" ")[0], graph)  # the rest is a reason why it skipped the root graph

    run(PASSES, graph, context, after if check is not None or on_stage is not None else None)
    follow_colocation(graph, context.colocated)
    context.notes = list(dict.fromkeys(context.notes))
    return context


def options_from(text: str) -> Options:
    """Returns the options for the flag OPTIMIZE: "on", "off", or passes to leave out, "-fold,-cse".

    Raises:
      ValueError: `text` has another form, or names an unknown pass.

    Example:
      >>> sorted(options_from("-fold, -cse").off)
      ['cse', 'fold']
    """
    words = [w.strip() for w in text.split(",") if w.strip()]
    if words == ["off"]:
        return Options(off=frozenset(names()))
    off = {w[1:] for w in words if w.startswith("-")}
    wrong = [w for w in words if not w.startswith("-") and w != "on"]
    unknown = sorted(off - set(names()))
    if wrong or unknown:
        raise ValueError(
            f"OPTIMIZE={text!r} is not valid: "
            + (f"there is no pass {unknown[0]!r}" if unknown else f"{wrong[0]!r} is neither 'on', 'off' nor '-pass'")
            + f"; the passes are {', '.join(names())}"
        )
    return Options(off=frozenset(off))
