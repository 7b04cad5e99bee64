"""Folds a batch normalization with given statistics into the convolution before it.

    y = FusedBatchNorm(Conv2D(x, w), scale, offset, mean, variance)      with is_training=False

becomes, with m = scale / sqrt(variance + epsilon),

    y = BiasAdd(Conv2D(x, w * m), offset - mean * m)

A bias between the two is subtracted from the mean. So the result of the convolution is not read and written once more,
and the addition joins the operations that follow it. If filter and statistics are constants, `fold` makes constants of
the new filter and the new bias. Otherwise each step computes them, which pays if the filter is not larger than the
result.

Products are rounded in another order, so the last bits differ. A filter times `m` may overflow where the result of the
convolution does not; so a filter that is constant must be finite after that.

Nothing is folded if something else, such as a gradient, reads the result of the convolution or the statistics that the
normalization returns.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from headrace import dtypes, shapes
from headrace.ir.builder import Builder
from headrace.ir.edit.editor import Editor
from headrace.ir.graph import FuncGraph
from headrace.ir.infer import constant_value
from headrace.optimize.base import Pass, PassContext
from headrace.optimize.queries import other_device

if TYPE_CHECKING:
    from headrace.ir.graph import Graph, Operation, Tensor

_RULE: Final = "batch_norm"
_NORMS: Final = frozenset({"FusedBatchNorm", "FusedBatchNormV2", "FusedBatchNormV3"})
_CONVOLUTIONS: Final = frozenset({"Conv2D", "DepthwiseConv2dNative"})


class FoldBatchNorm(Pass):
    """Pass that folds batch normalizations into convolutions."""

    name = _RULE
    grows = True
    is_exact = False

    def call(self, graph: Graph, context: PassContext) -> bool:
        norms = [op for op in graph.operations if op.type in _NORMS and not op.attrs["is_training"]]
        if not norms:
            return False
        edit = Editor(graph, context.preserved_of(graph))
        folded = [op for op in norms if _fold(edit, op, context)]
        if folded:
            edit.sweep()
        return bool(folded)


def _fold(edit: Editor, norm: Operation, context: PassContext) -> bool:
    """Folds `norm` into the convolution before it, if there is one."""
    before = norm.inputs[0].op
    bias = before if before.type == "BiasAdd" else None
    conv = before if bias is None else bias.inputs[0].op
    if conv.type not in _CONVOLUTIONS:
        return False
    why = _why_not(edit, norm, bias, conv)
    if why:
        context.refused(_RULE, norm, why)
        return False
    x, w = conv.inputs
    _, scale, offset, mean, variance = norm.inputs
    b = Builder(edit.graph, device=norm.device, source=norm.source)
    epsilon = np.asarray(norm.attrs["epsilon"], np.float32)
    deviation = b.Sqrt(b.AddV2(variance, epsilon, name=f"{norm.name}/variance"), name=f"{norm.name}/deviation")
    m = b.RealDiv(scale, deviation, name=f"{norm.name}/scale")
    assert w.shape is not None
    factors = m
    if conv.type != "Conv2D":
        factors = b.Reshape(m, np.array(w.shape[2:], np.int32), name=f"{norm.name}/factors")
    if bias is not None:
        mean = b.Sub(mean, bias.inputs[1], name=f"{norm.name}/mean")
    made = b.make(
        conv.type, (x, b.Mul(w, factors, name=f"{conv.name}/filter")), dict(conv.attrs), conv.name, conv.notes
    )
    shift = b.Sub(offset, b.Mul(mean, m, name=f"{norm.name}/shift"), name=f"{norm.name}/bias")
    y = b.BiasAdd(made, shift, data_format=norm.attrs["data_format"], name=norm.name)
    edit.replace(norm.outputs[0], y)
    context.fired(_RULE, norm, f"folded into the filter of '{conv.name}'")
    return True


def _why_not(edit: Editor, norm: Operation, bias: Operation | None, conv: Operation) -> str:
    """Reason why `norm` stays; "" if it can be folded."""
    chain = [op for op in (conv, bias, norm) if op is not None]
    if any(op.control_inputs or edit.is_waited_for(op) or "_class" in op.attrs or op in edit.preserved for op in chain):
        return "it or its convolution has control edges, is colocated, or is a target"
    if any(op.device != norm.device for op in chain) or other_device(chain):
        return "it and its convolution request different devices, or one that is no CPU"
    if any(op.attrs["data_format"] != norm.attrs["data_format"] for op in chain):
        return "it and its convolution have different layouts"
    if any(edit.is_used(t) for t in norm.outputs[1:]):
        return "the statistics that it returns are read"
    if not all(_has_one_reader(edit, op.outputs[0]) for op in chain[:-1]):
        return "something else reads the result of the convolution"
    w, y = conv.inputs[1], norm.outputs[0]
    if norm.inputs[0].dtype.base is not dtypes.float32 or not (shapes.is_full(w.shape) and shapes.is_full(y.shape)):
        return "its dtype is not float32, or its shapes are unknown"
    if any(constant_value(t) is None for t in (w, norm.inputs[1], norm.inputs[4])):
        size, made = shapes.size(w.shape), shapes.size(y.shape)
        assert size is not None
        assert made is not None
        return "" if size <= made else "the filter is larger than the result"
    return "" if _is_finite(conv, norm) else "the filter would overflow"


def _has_one_reader(edit: Editor, t: Tensor) -> bool:
    is_result = isinstance(edit.graph, FuncGraph) and t in edit.graph.results
    return len(edit.uses.get(t, ())) == 1 and not is_result


def _is_finite(conv: Operation, norm: Operation) -> bool:
    w, scale, variance = (constant_value(t) for t in (conv.inputs[1], norm.inputs[1], norm.inputs[4]))
    assert w is not None
    assert scale is not None
    assert variance is not None
    with np.errstate(all="ignore"):
        m = scale / np.sqrt(variance + np.float32(norm.attrs["epsilon"]))
        return bool(np.isfinite(w * (m if conv.type == "Conv2D" else m.reshape(w.shape[2:]))).all())
