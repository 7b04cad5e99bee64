"""Rules for the form `Window` of convolutions, poolings and their gradients.

The module registers no ops.
"""

from __future__ import annotations

import math
from typing import Any, Final

from headrace.dtypes import float32, float64
from headrace.errors import OpError
from headrace.opkit.forms import Form, FormRule, Window, is_whole, static_dims
from headrace.opkit.pooling import axes_of, counted
from headrace.opkit.windows import sliding
from headrace.ops.nn.convolving import geometry, refuse_others, shape_of

_DTYPES: Final = (float32, float64)

#: Positions of the arrays that each function of a convolution reads.
_SOURCES: Final = {"forward": (0, 1), "by_input": (2, 1), "by_filter": (0, 2)}


def convolution_form(type: str, kind: str) -> FormRule:
    """Returns the rule of a convolution, or of its gradient.

    Args:
      type: the type of the op.
      kind: the result: "forward", "by_input" or "by_filter".
    """

    def rule(op: Any) -> Form | None:
        a, b = (static_dims(op.inputs[k]) for k in _SOURCES[kind])
        out = static_dims(op.outputs[0])
        s = sliding(type, {"data_format": "NDHWC", **op.attrs})
        rank = len(s.strides)
        if a is None or b is None or out is None or {len(a), len(b), len(out)} != {rank}:
            return None
        if op.attrs["T"] not in _DTYPES or not is_whole(op.outputs[0]):
            return None
        x, w, y = {"forward": (a, b, out), "by_input": (out, b, a), "by_filter": (a, out, b)}[kind]
        try:
            refuse_others(s)
            axes, groups, wanted = geometry(s, x, w)
        except OpError:
            return None
        if wanted != y:
            return None
        return Window(kind, _SOURCES[kind], axes, x[0], x[s.channels], y[s.channels], groups, s.channels == 1)

    return rule


def depthwise_form(type: str, kind: str) -> FormRule:
    """Returns the rule of a depthwise convolution, or of its gradient."""

    def rule(op: Any) -> Form | None:
        found = [static_dims(t) for t in (*op.inputs, op.outputs[0])]
        x, w, y = (found[k] for k in {"forward": (0, 1, 2), "by_input": (3, 1, 2), "by_filter": (0, 3, 2)}[kind])
        s = sliding(type, op.attrs)
        if x is None or w is None or y is None or not len(x) == len(w) == len(y) == 4:
            return None
        if op.attrs["T"] not in _DTYPES or not is_whole(op.outputs[0]):
            return None
        try:
            refuse_others(s)
            axes = tuple([s.axis(i, x[i], size) for i, size in zip(s.spatial, w, strict=False)])
        except OpError:
            return None
        channels, outputs = x[s.channels], math.prod(w[2:])
        if w[2] != channels or y != shape_of(s, x[0], axes, outputs) or channels == 1:
            return None
        return Window(kind, _SOURCES[kind], axes, x[0], channels, outputs, channels, s.channels == 1)

    return rule


def pooling_form(type: str, kind: str) -> FormRule:
    """Returns the rule of a pooling, or of its gradient.

    Args:
      type: the type of the op.
      kind: the result: "maximum", "maximum_gradient", "mean" or "mean_gradient".
    """

    def rule(op: Any) -> Form | None:
        is_gradient, s = kind.endswith("gradient"), sliding(type, op.attrs)
        x, y = static_dims(op.outputs[0] if is_gradient else op.inputs[0]), static_dims(op.outputs[0])
        if is_gradient:
            y = static_dims(op.inputs[-1])
        if x is None or y is None or op.attrs["T"] not in _DTYPES or not is_whole(op.outputs[0]):
            return None
        try:
            all_axes = axes_of(s, x, tuple(op.attrs["ksize"]))
        except OpError:
            return None
        axes = tuple([a for i, a in enumerate(all_axes) if i in s.spatial])
        if not (all_axes[0].is_plain and all_axes[s.channels].is_plain) or not axes or counted(all_axes) != y:
            return None
        if kind == "maximum_gradient" and (op.inputs[0].shape != x or op.inputs[1].shape != y):
            return None
        sources = {"maximum_gradient": (0, 2), "mean_gradient": (1,)}.get(kind, (0,))
        channels = x[s.channels]
        return Window(kind, sources, axes, x[0], channels, channels, channels, s.channels == 1)

    return rule
