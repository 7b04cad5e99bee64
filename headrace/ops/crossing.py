"""Copies between the host and a device in a step that one thread runs (`partition.joined`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headrace.device_arrays import to_host
from headrace.ir.device import DeviceSpec
from headrace.ir.kernel import memory_of
from headrace.ir.opdef import NOT_DIFFERENTIABLE, Facts, op, string_attr, type_attr
from headrace.opkit.shape_rules import same_as


def _to_device(attrs: Mapping[str, Any]) -> Any:
    return memory_of(DeviceSpec.from_string(attrs["device"])).put


for _type, _kernel, _doc in (
    ("_ToDevice", _to_device, "Copies a tensor of the host to the memory of `device`."),
    ("_ToHost", lambda attrs: to_host, "Copies a tensor in the memory of `device` to the host."),
):
    op(
        _type,
        "input: T",
        "output: T",
        {"T": type_attr(), "device": string_attr()},
        shape=same_as(0),
        kernel=_kernel,
        xp=False,
        grad=NOT_DIFFERENTIABLE,
        facts=Facts(no_fold=True),
        doc=_doc,
    )
