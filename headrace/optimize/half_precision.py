"""Computes operations of half precision in float32, between conversions.

    y = MatMul(x, w)                              a = MatMul(Cast(x), Cast(w))
                                                  y = Cast(a)

The kernels of these operations (`Facts.rounds_once`) do the same: they convert their inputs to float32, and round
each result once. As operations, conversions of invariants leave their loops, and machine code has the rest. The order
in which reductions add may be another one.

The pass comes behind those on loops, which look for products and sums without conversions between them. Outside of
loops, branches and functions, large reductions stay, because their kernels need no converted copy of the array. So
do all operations of steps in lowered form, in which each operation has a price of its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace import dtypes, shapes, thresholds
from headrace.ir.builder import Builder
from headrace.ir.graph import FuncGraph
from headrace.opkit.elementwise import HALF
from headrace.optimize.base import Pass, PassContext
from headrace.optimize.loop_editor import loops_of
from headrace.optimize.loop_invariants import HoistInvariants
from headrace.optimize.queries import is_plain, other_device
from headrace.optimize.rewriter import Rewriter

if TYPE_CHECKING:
    from headrace.dtypes import DType
    from headrace.ir.graph import Graph, Operation, Tensor


class WidenHalfPrecision(Pass):
    """Pass that computes operations of half precision in float32."""

    name = "half_precision"
    grows = True
    is_exact = False

    def call(self, graph: Graph, context: PassContext) -> bool:
        if context.options.is_lowered:
            return False
        changed = any(loops_of(graph, context, having=_widens)) and HoistInvariants().call(graph, context)  # mutate: no
        if not any(map(_half_of, graph.operations)):
            return changed
        walking = Rewriter(graph, context)
        for op in walking:
            dtype = _half_of(op)
            if dtype is None or op in walking.preserved or op.control_inputs or "_class" in op.attrs:
                continue
            if not is_plain(op):  # mutate: no
                continue  # its record promises too much
            if not isinstance(graph, FuncGraph) and _is_large_reduction(op):
                continue
            if other_device([op]):
                context.refused(self.name, op, "it requests a device that may have no kernel for float32")
                continue
            known = len(graph.operations)
            made = _in_float32(Builder(graph, device=op.device, source=op.source), op, dtype)
            for new in graph.operations[known:]:
                walking.insert(new)
            walking.replace(op, made, [t.op for t in made])
            context.fired(self.name, op, f"{op.type} of {dtype.name} is computed in float32")
        return walking.finish() or changed


def _widens(op: Operation) -> bool:
    """Whether `op` converts half precision to float32."""
    return op.type == "Cast" and op.inputs[0].dtype in HALF and op.outputs[0].dtype is dtypes.float32  # mutate: no


def _half_of(op: Operation) -> DType | None:
    """The half precision that an operation computes in float32; None if it does not."""
    if not op.opdef.facts.rounds_once:
        return None
    found = {t.dtype for t in (*op.inputs, *op.outputs) if t.dtype in HALF}
    return next(iter(found)) if len(found) == 1 and all(_is_half_or_index(t, found) for t in op.inputs) else None


def _is_half_or_index(t: Tensor, half: set[DType]) -> bool:
    return t.dtype in half or t.dtype in dtypes.INDEX


def _is_large_reduction(op: Operation) -> bool:
    """Whether an operation is no product, and its kernel may call native functions."""
    if op.opdef.facts.blas:
        return False
    sizes = [shapes.size(t.shape) for t in op.inputs if t.dtype in HALF]
    return any(size is None or size >= thresholds.NATIVE_MAP for size in sizes)


def _in_float32(b: Builder, op: Operation, half: DType) -> list[Tensor]:
    """The results of `op`, computed in float32 and rounded."""
    args = [b.Cast(t, DstT=dtypes.float32, name=f"{op.name}/wide") if t.dtype is half else t for t in op.inputs]
    attrs = {k: dtypes.float32 if v is half else v for k, v in op.attrs.items()}
    made = b.make(op.type, args, attrs, op.name, op.notes)
    wide = list(made) if isinstance(made, tuple) else [made]
    rounded = []
    for t, of in zip(wide, op.outputs, strict=True):
        is_half = of.dtype is half
        rounded.append(b.Cast(t, DstT=half, name=f"{op.name}/rounded") if is_half else t)
    return rounded
