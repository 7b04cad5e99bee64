"""Transfers between devices: `_Send` and `_Recv`, also for control edges.

The partitioner inserts them where it cuts an edge (`partition/`). Like the other primitives they have no kernel: the
executor implements them (`execute/plan`, SEND and RECV). A Send fires dead or alive and ships its token in both cases,
and the output of a Recv may be dead although no input of the Recv is. The edge (`tensor_name`) and the tag of the
firing identify a token. Source: TensorFlow's ops `_Send` and `_Recv`; there a control edge carries a dummy tensor.
"""

from __future__ import annotations

from headrace.ir.opdef import NOT_DIFFERENTIABLE, op, shape_attr, string_attr, type_attr
from headrace.opkit.shape_rules import nothing

_EDGE = {"tensor_name": string_attr(), "send_device": string_attr(), "recv_device": string_attr()}

op(
    "_Send",
    "tensor: T",
    attrs={"T": type_attr(), **_EDGE},
    shape=nothing,
    primitive="Send",
    grad=NOT_DIFFERENTIABLE,
    doc="Sends `tensor`, dead or alive, to the device `recv_device`.",
)
op(
    "_Recv",
    outs="tensor: tensor_type",
    attrs={"tensor_type": type_attr(), "shape": shape_attr(None), **_EDGE},
    shape=lambda c: [c.attrs["shape"]],
    primitive="Recv",
    grad=NOT_DIFFERENTIABLE,
    doc="The tensor that the `_Send` of the same edge sent in the same iteration, dead or alive.",
)
op(
    "_ControlSend",
    attrs=_EDGE,
    shape=nothing,
    primitive="Send",
    grad=NOT_DIFFERENTIABLE,
    doc="Signals to the device `recv_device` that its control inputs are done, and whether one was dead.",
)
op(
    "_ControlRecv",
    attrs=_EDGE,
    shape=nothing,
    primitive="Recv",
    grad=NOT_DIFFERENTIABLE,
    doc="Receives the signal of the `_ControlSend` of the same edge, dead or alive.",
)
