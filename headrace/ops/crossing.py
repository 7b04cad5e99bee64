"""Copies between the host and a device in a step that one thread runs (`partition.joined`).

A copy of a near memory is one operation. That of a far memory begins early and ends late, so that it overlaps with
other work: `_BeginToDevice` begins a copy that the first reader waits for, and `_EndToHost` waits for the copy that
`_BeginToHost` has begun.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from headrace.device_arrays import is_host, to_host
from headrace.errors import InvalidArgumentError
from headrace.ir.device import DeviceSpec
from headrace.ir.kernel import CPU, has_namespace, memory_of
from headrace.ir.opdef import NOT_DIFFERENTIABLE, Facts, op, string_attr, type_attr
from headrace.opkit.shape_rules import same_as

if TYPE_CHECKING:
    from headrace.device_arrays import ArrayMemory, DeviceArray
    from headrace.ir.kernel import KernelContext


def _memory(type: str, attrs: Mapping[str, Any]) -> ArrayMemory:
    spec = DeviceSpec.from_string(attrs["device"])
    if not has_namespace(spec.type or CPU):
        raise InvalidArgumentError(
            f"{type} is made for devices of other array libraries, got the device {attrs['device']!r}"
        )
    return memory_of(spec)


def _begin_to_host(attrs: Mapping[str, Any]) -> Callable[[DeviceArray], DeviceArray]:
    begin = _memory("_BeginToHost", attrs).begin_get

    def kernel(value: DeviceArray) -> DeviceArray:
        begin(value)
        return value

    return kernel


def _end_to_host(ctx: KernelContext, attrs: Mapping[str, Any]) -> Callable[[DeviceArray], Any]:
    look = functools.partial(ctx.step.look, f" while it waited for the value of '{ctx.node}'")
    return lambda value: value if is_host(value) else value.to_host(look)


for _type, _kernel, _facts, _doc in (
    (
        "_ToDevice",
        lambda attrs: _memory("_ToDevice", attrs).put,
        Facts(no_fold=True),
        "Copies a tensor of the host to the memory of `device`.",
    ),
    ("_ToHost", lambda attrs: to_host, Facts(no_fold=True), "Copies a tensor in the memory of `device` to the host."),
    (
        "_BeginToDevice",
        lambda attrs: _memory("_BeginToDevice", attrs).put,
        Facts(no_fold=True, total=(), begins=True),
        "Begins a copy of a tensor of the host to the far memory of `device`, whose kernels wait for it.",
    ),
    (
        "_BeginToHost",
        _begin_to_host,
        Facts(no_fold=True, total=(), begins=True),
        "Begins a copy of a tensor in the far memory of `device` to the host; the output is the tensor.",
    ),
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
        facts=_facts,
        doc=_doc,
    )

op(
    "_EndToHost",
    "input: T",
    "output: T",
    {"T": type_attr(), "device": string_attr()},
    shape=same_as(0),
    stateful=_end_to_host,
    grad=NOT_DIFFERENTIABLE,
    facts=Facts(awaits=True),
    doc="Waits for a copy that `_BeginToHost` has begun, unless the step is cancelled before.",
)
