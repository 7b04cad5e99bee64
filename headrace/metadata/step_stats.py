"""TensorFlow's records of a step, firing by firing, with what is known here: `RunMetadata.step_stats`."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Final, TypeAlias

# operation, type, start (nanoseconds since 1970), duration (nanoseconds), the bytes of its outputs
Firing: TypeAlias = tuple[str, str, int, int, tuple[int, ...]]

_SWITCHES: Final = ("Switch", "RefSwitch", "_SwitchN")


@dataclasses.dataclass(slots=True)
class AllocationDescription:
    """Memory of an output. Source: TensorFlow's message of this name."""

    requested_bytes: int = 0
    allocated_bytes: int = 0
    allocator_name: str = "cpu"
    allocation_id: int = 0
    has_single_reference: bool = False
    ptr: int = 0


@dataclasses.dataclass(slots=True)
class TensorDescription:
    """An output; its dtype and shape are not told. Source: TensorFlow's message of this name."""

    allocation_description: AllocationDescription = field(default_factory=AllocationDescription)


@dataclasses.dataclass(slots=True)
class NodeOutput:
    """Output number `slot` of an operation. Source: TensorFlow's message of this name."""

    slot: int = 0
    tensor_description: TensorDescription = field(default_factory=TensorDescription)


@dataclasses.dataclass(slots=True)
class AllocatorMemoryUsed:
    """Memory that a firing took for its outputs. Source: TensorFlow's message of this name."""

    allocator_name: str = "cpu"
    total_bytes: int = 0
    peak_bytes: int = 0
    live_bytes: int = 0


@dataclasses.dataclass(slots=True)
class NodeExecStats:
    """One firing of an operation, alive. Times are microseconds since 1970, or since `all_start_micros` ("rel").

    `timeline_label` is "name = Type()": which inputs it has is not told. `memory` and `output` are empty for what has
    no outputs. Source: TensorFlow's message of this name.
    """

    node_name: str = ""
    all_start_micros: int = 0
    op_start_rel_micros: int = 0
    op_end_rel_micros: int = 0
    all_end_rel_micros: int = 0
    memory: list[AllocatorMemoryUsed] = field(default_factory=list)
    output: list[NodeOutput] = field(default_factory=list)
    timeline_label: str = ""
    scheduled_micros: int = 0
    thread_id: int = 0
    all_start_nanos: int = 0
    op_start_rel_nanos: int = 0
    op_end_rel_nanos: int = 0
    all_end_rel_nanos: int = 0
    scheduled_nanos: int = 0


@dataclasses.dataclass(slots=True)
class DeviceStepStats:
    """The firings on one device, in the order in which they ended. Source: TensorFlow's message of this name."""

    device: str = ""
    node_stats: list[NodeExecStats] = field(default_factory=list)
    thread_names: dict[int, str] = field(default_factory=dict)


@dataclasses.dataclass(slots=True)
class StepStats:
    """The firings of a step, by device. Source: TensorFlow's message of this name."""

    dev_stats: list[DeviceStepStats] = field(default_factory=list)


def step_stats(listed: Mapping[str, Sequence[Firing]]) -> StepStats:
    """The records of the firings on each device."""
    return StepStats([DeviceStepStats(name, [_stats(*f) for f in firings]) for name, firings in listed.items()])


def _stats(name: str, type: str, at: int, took: int, sizes: tuple[int, ...]) -> NodeExecStats:
    outputs = [
        NodeOutput(slot, TensorDescription(AllocationDescription(n, n)))
        for slot, n in enumerate(sizes)
        if n or type not in _SWITCHES
    ]
    return NodeExecStats(
        name,
        at // 1000,
        op_end_rel_micros=took // 1000,
        all_end_rel_micros=took // 1000,
        memory=[AllocatorMemoryUsed("cpu", sum(sizes), sum(sizes))] if outputs else [],
        output=outputs,
        timeline_label=f"{name} = {type}()",
        scheduled_micros=at // 1000,
        all_start_nanos=at,
        op_end_rel_nanos=took,
        all_end_rel_nanos=took,
        scheduled_nanos=at,
    )
