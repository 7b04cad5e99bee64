"""Ops that forward their inputs, for tools that watch a graph or place values.

Source: TensorFlow's Copy, CopyHost, DebugIdentity*, DebugGradientIdentity, DebugGradientRefIdentity and _EagerConst,
which its debugger, runtime and eager mode insert into graphs; and the queries of the runtime, DeviceIndex and
GraphDefVersion.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from headrace.dtypes import DType
from headrace.ir.infer import Inference
from headrace.ir.opdef import NOT_DIFFERENTIABLE, Facts, case, list_attr, op, type_attr
from headrace.ir.serial.nodedefs import GRAPH_DEF_VERSION
from headrace.opkit.arrays import values_only
from headrace.opkit.jvp_rules import passed
from headrace.opkit.shape_rules import scalars
from headrace.opkit.testing.samples import draw
from headrace.shapes import Shape


def _same(xp: Any, attrs: Mapping[str, Any]) -> Any:
    return lambda x: x


def _pass_through(c: Inference) -> list[Shape]:
    h = c.handle(0)
    if h is not None:
        c.set_handle(0, *h)
    return [c.shapes[0]]


@values_only
def _any(rng: np.random.Generator, dtype: DType) -> list[Any]:
    return [case(draw(rng, dtype, (2,)))]


_COPY = {"tensor_name": "", "debug_ops_spec": list_attr("string", ())}
_WATCH = {"device_name": "", "tensor_name": "", "debug_urls": list_attr("string", ()), "gated_grpc": False}

for _type, _attrs, _doc in (
    ("Copy", _COPY, "The input; arrays never change here, so no copy is needed."),
    ("CopyHost", _COPY, "The input; arrays never change here, so no copy is needed."),
    ("DebugGradientIdentity", {}, "The input, marked for a debugger of gradients."),
    ("DebugIdentity", _WATCH, "The input; `debug_urls` are ignored."),
    (
        "DebugIdentityV2",
        {
            "tfdbg_context_id": "",
            "op_name": "",
            "output_slot": -1,
            "tensor_debug_mode": -1,
            "debug_urls": list_attr("string", ()),
            "circular_buffer_size": 1000,
            "tfdbg_run_id": "",
        },
        "The input; `debug_urls` are ignored.",
    ),
    (
        "DebugIdentityV3",
        {**_WATCH, "io_of_node": "", "is_input": False, "io_index": -1},
        "The input; `debug_urls` are ignored.",
    ),
    ("_EagerConst", {}, "The input, a constant of eager mode."),
):
    op(
        _type,
        "input: T",
        "output: T",
        {"T": type_attr(), **_attrs},
        shape=_pass_through,
        kernel=_same,
        xp=True,
        grad=lambda b, n, dy: [dy],
        jvp=passed,
        facts=Facts(forwards=0),
        oracle=lambda x: x,
        sample=_any,
        differs="It sends nothing to a debugger." if "debug_urls" in _attrs else "",
        doc=_doc,
    )

op(
    "DebugGradientRefIdentity",
    "input: Ref(T)",
    "output: Ref(T)",
    {"T": type_attr()},
    shape=_pass_through,
    stateful=lambda ctx, attrs: lambda ref: ref,
    grad=lambda b, n, dy: [dy],
    jvp=passed,
    facts=Facts(forwards=0),
    doc="The input reference, marked for a debugger of gradients.",
)


def _device_index(attrs: Mapping[str, Any]) -> Any:
    names = attrs["device_names"]
    index = np.int32(names.index("CPU") if "CPU" in names else len(names))
    return lambda: index


op(
    "DeviceIndex",
    outs="index: int32",
    attrs={"device_names": list_attr("string")},
    shape=scalars,
    kernel=_device_index,
    xp=False,
    grad=NOT_DIFFERENTIABLE,
    facts=Facts(no_fold=True),
    doc="The index in `device_names` of the type of its device, or their number if it is none of them.",
)


def _graph_def_version(ctx: Any, attrs: Mapping[str, Any]) -> Any:
    version = np.int32(ctx.op.graph.versions[0] or GRAPH_DEF_VERSION)
    return lambda: version


op(
    "GraphDefVersion",
    outs="version: int32",
    shape=scalars,
    stateful=_graph_def_version,
    grad=NOT_DIFFERENTIABLE,
    doc="The version of TensorFlow's graph format that the graph was written in.",
)
