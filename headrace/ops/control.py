"""The control-flow primitives: Switch, Merge, Enter, Exit, NextIteration, their `Ref` forms, and their companions.

These ops have no kernel: the executor (`execute/`) implements them. `headrace docs learn/control_flow` introduces them,
and `execute/frames.py` states the rules exactly. Source: TensorFlow's ops of the same names (Arvind's tagged-token
dataflow, after "Dynamic Control Flow in Large-Scale Machine Learning", EuroSys 2018).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from headrace import shapes
from headrace.ir.infer import Inference
from headrace.ir.opdef import (
    NOT_DIFFERENTIABLE,
    Facts,
    Primitive,
    case,
    int_attr,
    missing,
    op,
    string_attr,
    type_attr,
)
from headrace.opkit.shape_rules import nothing
from headrace.shapes import Shape

_STRUCTURED = missing("loops and conditionals are differentiated in their structured form")
_ANY = {"T": type_attr()}


def _keep_handle(c: Inference, *outputs: int) -> None:
    h = c.handle(0)
    if h is not None:
        for o in outputs:
            c.set_handle(o, *h)


def _switch_shape(c: Inference) -> Sequence[Shape]:
    shapes.with_rank(c.shapes[1], 0)
    _keep_handle(c, 0, 1)
    return [c.shapes[0], c.shapes[0]]


def _merge_shape(c: Inference) -> Sequence[Shape]:
    # The shapes of later iterations are unknown as long as a loop Merge has no back edge.
    if len(c.shapes) < c.attrs["N"]:
        return [None, ()]
    out = c.shapes[0]
    for s in c.shapes[1:]:
        out = shapes.join(out, s)
    return [out, ()]


def _pass_shape(c: Inference) -> Sequence[Shape]:
    _keep_handle(c, 0)
    return [c.shapes[0]]


def _enter_shape(c: Inference) -> Sequence[Shape]:
    _keep_handle(c, 0)
    return [c.shapes[0]]


def _pair(name: str, ins: str, outs: str, attrs: dict[str, Any], shape: Any, primitive: Primitive, doc: str) -> None:
    """Registers an op and its reference form (`T` becomes `Ref(T)` on the data path)."""
    op(name, ins, outs, attrs, shape=shape, primitive=primitive, grad=_STRUCTURED, doc=doc)
    ref = {"data: T": "data: Ref(T)", "inputs: N * T": "inputs: N * Ref(T)", "output: T": "output: Ref(T)"}
    for old, new in ref.items():
        ins, outs = ins.replace(old, new), outs.replace(old, new)
    outs = outs.replace("output_false: T", "output_false: Ref(T)").replace("output_true: T", "output_true: Ref(T)")
    op(
        "Ref" + name,
        ins,
        outs,
        attrs,
        shape=shape,
        primitive=primitive,
        grad=_STRUCTURED,
        doc=doc + " The data is a reference.",
    )


_pair(
    "Switch",
    "data: T, pred: bool",
    "output_false: T, output_true: T",
    _ANY,
    _switch_shape,
    "Switch",
    "Sends `data` to `output_true` if `pred` holds, else to `output_false`; the other output is dead.",
)
_pair(
    "Merge",
    "inputs: N * T",
    "output: T, value_index: int32",
    {**_ANY, "N": int_attr(minimum=1)},
    _merge_shape,
    "Merge",
    "Passes on the first live input, and its index; dead when all inputs are.",
)
_pair(
    "Enter",
    "data: T",
    "output: T",
    {**_ANY, "frame_name": string_attr(), "is_constant": False, "parallel_iterations": 10},
    _enter_shape,
    "Enter",
    "Brings `data` into the frame `frame_name`: into iteration 0, or into every iteration if `is_constant`.",
)
_pair("Exit", "data: T", "output: T", _ANY, _pass_shape, "Exit", "Brings `data` out of its frame, to the parent's.")
_pair(
    "NextIteration",
    "data: T",
    "output: T",
    _ANY,
    _pass_shape,
    "NextIteration",
    "Brings `data` to the next iteration of its frame; a dead token stops here.",
)

op(
    "LoopCond",
    "input: bool",
    "output: bool",
    shape=lambda c: [shapes.with_rank(c.shapes[0], 0)],
    kernel=lambda xp, attrs: lambda x: x,
    xp=True,
    grad=NOT_DIFFERENTIABLE,
    facts=Facts(forwards=0, no_fold=True),
    oracle=lambda x: x,
    sample=lambda rng, dtype: [case(np.array(True))],
    doc="Marks the predicate of a loop.",
)
op(
    "ControlTrigger",
    shape=nothing,
    primitive="ControlTrigger",
    grad=NOT_DIFFERENTIABLE,
    doc="Waits for all control inputs, dead ones included; its output is always live.",
)
op(
    "Abort",
    attrs={"error_msg": "", "exit_without_error": False},
    shape=nothing,
    stateful=lambda ctx, attrs: _abort(ctx, attrs),
    grad=NOT_DIFFERENTIABLE,
    facts=Facts(effect="step", writes=True),
    doc="Fails the step. (TensorFlow's ends the process; a library must not.)",
)


def _abort(ctx: Any, attrs: Any) -> Any:
    from headrace.errors import AbortedError

    def kernel() -> None:
        if not attrs["exit_without_error"]:
            raise AbortedError(f"{ctx.node}: {attrs['error_msg'] or 'Abort was run'}", ctx.node)

    return kernel
