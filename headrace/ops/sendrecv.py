"""Transfers between devices: `_Send` and `_Recv`, also for control edges.

The partitioner inserts them where it cuts an edge (`partition/`). Like the other primitives they have no kernel: the
executor implements them (`execute/plan`, SEND and RECV). A Send fires dead or alive and ships its token in both cases,
and the output of a Recv may be dead although no input of the Recv is. The edge (`tensor_name`) and the tag of the
firing identify a token. Source: TensorFlow's ops `_Send` and `_Recv`; there a control edge carries a dummy tensor.

The `_Step...` ops are those of a share (`partition.shares`), in which no token is dead and no tag is needed. They have
kernels: the exchange of the step (`Step.exchange`) sends, and has a queue of values for each edge on which it receives.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headrace.errors import InvalidArgumentError
from headrace.ir.opdef import NOT_DIFFERENTIABLE, Facts, bool_attr, op, shape_attr, string_attr, type_attr
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


def _exchange(ctx: Any) -> Any:
    if ctx.step.exchange is None:
        raise InvalidArgumentError(
            f"'{ctx.op.name}' ({ctx.op.type}) runs only in a share of a step, into which the partitioner inserts it. "
            "Remove it from the graph; a session inserts the transfers that a step needs"
        )
    return ctx.step.exchange


def _send(ctx: Any, attrs: Mapping[str, Any]) -> Any:
    return _exchange(ctx).sender(attrs["tensor_name"], attrs["is_last"])


def _recv(ctx: Any, attrs: Mapping[str, Any]) -> Any:
    return _exchange(ctx).queue(attrs["tensor_name"])


#: `is_last`: whether the transfer leaves at once; otherwise it leaves with the next one of the share.
_SENT = {**_EDGE, "is_last": bool_attr(True)}

op(
    "_StepSend",
    "tensor: T",
    attrs={"T": type_attr(), **_SENT},
    shape=nothing,
    stateful=_send,
    grad=NOT_DIFFERENTIABLE,
    doc="Sends `tensor` to the share of the device `recv_device`.",
)
op(
    "_StepRecv",
    outs="tensor: tensor_type",
    attrs={"tensor_type": type_attr(), "shape": shape_attr(None), **_EDGE},
    shape=lambda c: [c.attrs["shape"]],
    stateful=_recv,
    facts=Facts(suspends=True),
    grad=NOT_DIFFERENTIABLE,
    doc="The next tensor that the `_StepSend` of the same edge sends; waits for it.",
)
op(
    "_StepControlSend",
    attrs=_SENT,
    shape=nothing,
    stateful=_send,
    grad=NOT_DIFFERENTIABLE,
    doc="Signals to the share of the device `recv_device` that its control inputs are done.",
)
op(
    "_StepControlRecv",
    attrs=_EDGE,
    shape=nothing,
    stateful=_recv,
    facts=Facts(suspends=True),
    grad=NOT_DIFFERENTIABLE,
    doc="Waits for the next signal of the `_StepControlSend` of the same edge.",
)
