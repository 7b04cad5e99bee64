"""Constant folding: computes operations of constants at compile time.

    n = Shape(x)                x: float32[8,3]         n = Const[int32[2]{8, 3}]
    y = Mul(two, three)                         becomes y = Const[6]

A pure operation of constants is replaced by a `Const` in place: the name, the device, the source line and the control
inputs stay. The same is done for an operation that reads only shapes, where these are known (*shape materialization*):
then the tensor whose shape was read may not be needed at all. A read of a variable and a placeholder fail if there is
no value. The constant waits for them, so the step fails as before.

If the kernel fails during folding, the operation stays. It fails when it runs, if it runs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from headrace import dtypes, shapes, thresholds
from headrace.ir.kernel import constant_kernel
from headrace.optimize.base import Pass, PassContext
from headrace.optimize.queries import const, is_possible_on
from headrace.optimize.rewriter import Rewriter

if TYPE_CHECKING:
    from headrace.ir.graph import Graph, Operation, Tensor


class FoldConstants(Pass):
    """Pass that folds constants.

    An operation with several outputs becomes one constant for each output that is used.
    """

    name = "fold"
    grows = True

    def call(self, graph: Graph, context: PassContext) -> bool:
        walking = Rewriter(graph, context)
        folding = _Folding(walking)
        for op in walking:
            record = op.opdef
            if op.inputs and record.is_pure and not record.facts.no_fold:
                folding.fold(op)
        return walking.finish()


class _Folding:
    """Folds the operations of one graph."""

    def __init__(self, walking: Rewriter) -> None:
        self.walking = walking

    def fold(self, op: Operation) -> None:
        """Replaces `op` by constants, if that is possible."""
        facts = op.opdef.facts
        given = [const(t) for t in op.inputs]
        if any(v is None for v in given):
            if not facts.shape_only or not all(_has_shape(t) for t in op.inputs):
                return
            given = [np.broadcast_to(np.zeros((), t.dtype.numpy), t.shape) for t in op.inputs]  # type: ignore[arg-type]
            waits = [t.op for t in op.inputs if t.op.type == "Const" or _may_have_no_value(t.op)]
        else:
            waits = [t.op for t in op.inputs]
        if any(t.dtype.base in dtypes.OBJECT for t in op.outputs):
            return
        if not is_possible_on("Const", op, {"dtype": op.outputs[0].dtype}):
            self.walking.context.refused("fold", op, f"it requests {op.device!r}, where constants have no kernel")
            return
        why = self._too_large(op, given)
        values = why or _evaluate(op, given)
        if isinstance(values, list):
            values = self._misfit(op, values) or values
        if isinstance(values, str):
            self.walking.context.refused("fold", op, values)
            return
        before = dict.fromkeys(op.control_inputs)
        for w in waits:
            before.update(dict.fromkeys(w.control_inputs if w.type == "Const" else (w,)))
        self._become(op, values, list(before))

    def _too_large(self, op: Operation, given: list[Any]) -> str:
        """Reason why the result is too large, as far as known in advance, or ""."""
        read = 0 if op.opdef.facts.shape_only else sum(v.nbytes for v in given)
        made = 0
        for t in op.outputs:
            n = shapes.size(t.shape)
            if n is None:
                return "" if read <= thresholds.GROWN_BYTES else "the size of its result is unknown"
            made += n * t.dtype.size
        return self._is_worth(made, read)

    def _is_worth(self, made: int, read: int) -> str:
        limit = self.walking.context.options.fold_bytes
        if made > limit:
            return f"its result has {made} bytes; the limit for constants is {limit}"
        if made > thresholds.GROWN_BYTES and made > thresholds.GROWTH * read:
            return f"its result has {made} bytes, {thresholds.GROWTH} times more than its inputs"
        return ""

    def _misfit(self, op: Operation, values: list[np.ndarray]) -> str:
        for t, v in zip(op.outputs, values, strict=True):
            if v.dtype != t.dtype.base.numpy or not shapes.fits(v.shape, t.shape):
                return (
                    f"its result is {v.dtype}{list(v.shape)}, expected {t.dtype}{shapes.show(t.shape)} from the graph"
                )
        return self._is_worth(sum(v.nbytes for v in values), thresholds.GROWN_BYTES)

    def _become(self, op: Operation, values: list[np.ndarray], before: list[Operation]) -> None:
        """Replaces `op` by constants."""
        walking, record = self.walking, op.opdef
        colocated = {"_class": op.attrs["_class"]} if "_class" in op.attrs else {}
        what = f"{op.type} of {'a known shape' if record.facts.shape_only else 'constants'}: {_show(values)}"
        if len(values) == 1:
            (t,), (v,) = op.outputs, values
            walking.edit.become(op, "Const", (), {"value": v, "dtype": t.dtype, **colocated}, before)
            t.replace_static(v.shape, t.handle)
            walking.knows_more(t)
        else:
            if op in walking.preserved:
                return
            new = []
            for t, v in zip(op.outputs, values, strict=True):
                if not walking.edit.is_used(t):
                    new.append(t)
                    continue
                name = walking.graph.unique_name(f"{op.name}/{t.index}")
                attrs = {"value": v, "dtype": t.dtype, **colocated}
                made = walking.graph.add_op("Const", name, (), attrs, before, op.device, op.source)
                made.outputs[0].refine(v.shape)
                walking.insert(made)
                walking.knows_more(made.outputs[0])
                new.append(made.outputs[0])
            walking.replace(op, new, before)
        walking.context.fired("fold", op, what)


def _has_shape(t: Tensor) -> bool:
    # the static shape of a handle is not the shape of the list or resource; a reference may change its shape, or have
    # no value, which is an error
    return shapes.is_full(t.shape) and t.dtype not in (dtypes.variant, dtypes.resource) and not t.dtype.is_ref


def _may_have_no_value(op: Operation) -> bool:
    return any(t.dtype.is_ref for t in op.inputs) or (op.opdef.stateful is not None and op.type != "_Arg")


def _evaluate(op: Operation, given: list[Any]) -> list[np.ndarray] | str:
    """Returns the output values of `op`, or the reason why there are none."""
    kernel = constant_kernel(op)
    if kernel is None:
        return "its kernel was replaced by one that is created for each step"
    try:
        with np.errstate(all="ignore"):
            out = kernel(*given)
    except Exception as e:  # the operation raises the error itself when it runs, if it runs
        return f"it fails: {e}"
    made = [np.array(v, order="C") for v in ((out,) if len(op.outputs) == 1 else out or ())]
    for v in made:
        v.flags.writeable = False
    return made


def _show(values: list[np.ndarray]) -> str:
    return ", ".join(str(v.tolist()) if v.size <= 8 else f"{v.dtype}{list(v.shape)}" for v in values)
