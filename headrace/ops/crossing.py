"""Copies between the host and a device in a step that one thread runs (`partition.joined`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headrace.device_arrays import to_host
from headrace.errors import InvalidArgumentError
from headrace.ir.device import DeviceSpec
from headrace.ir.kernel import CPU, has_namespace, memory_of
from headrace.ir.opdef import NOT_DIFFERENTIABLE, Facts, op, string_attr, type_attr
from headrace.opkit.shape_rules import same_as


def _to_device(attrs: Mapping[str, Any]) -> Any:
    spec = DeviceSpec.from_string(attrs["device"])
    if not has_namespace(spec.type or CPU):
        raise InvalidArgumentError(
            f"_ToDevice is made for devices of other array libraries, got the device {attrs['device']!r}"
        )
    return memory_of(spec).put


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
