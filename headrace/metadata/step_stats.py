"""TensorFlow's records of a step, firing by firing: `RunMetadata.step_stats`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Final, TypeAlias

from headrace.records import record
from headrace.step_events import lanes

# operation, type, start (nanoseconds since 1970), duration (nanoseconds), the bytes of its outputs
Firing: TypeAlias = tuple[str, str, int, int, tuple[int, ...]]

_SWITCHES: Final = ("Switch", "RefSwitch", "_SwitchN")


@record(slots=True)
class AllocationDescription:
    """Memory of an output. Source: TensorFlow's message of this name.

    Attributes:
      requested_bytes: bytes of the value.
      allocated_bytes: the same.
      allocator_name: always "cpu".
      allocation_id: always 0.
      has_single_reference: always False.
      ptr: always 0.
    """

    requested_bytes: int = 0
    allocated_bytes: int = 0
    allocator_name: str = "cpu"
    allocation_id: int = 0
    has_single_reference: bool = False
    ptr: int = 0


@record(slots=True)
class TensorDescription:
    """An output, without its dtype and shape. Source: TensorFlow's message of this name.

    Attributes:
      allocation_description: the memory of the output.
    """

    allocation_description: AllocationDescription = field(default_factory=AllocationDescription)


@record(slots=True)
class NodeOutput:
    """Output number `slot` of an operation. Source: TensorFlow's message of this name.

    Attributes:
      slot: the number of the output.
      tensor_description: the description of the output.
    """

    slot: int = 0
    tensor_description: TensorDescription = field(default_factory=TensorDescription)


@record(slots=True)
class AllocatorMemoryUsed:
    """Memory of a firing's outputs. Source: TensorFlow's message of this name.

    Attributes:
      allocator_name: always "cpu".
      total_bytes: bytes of all outputs.
      peak_bytes: the same.
      live_bytes: always 0.
    """

    allocator_name: str = "cpu"
    total_bytes: int = 0
    peak_bytes: int = 0
    live_bytes: int = 0


@record(slots=True)
class NodeExecStats:
    """A live firing of an operation. Source: TensorFlow's message of this name.

    Attributes:
      node_name: the name of the operation.
      all_start_micros: the start, in microseconds since 1970.
      op_start_rel_micros: the start relative to `all_start_micros`: 0.
      op_end_rel_micros: the end, in microseconds since `all_start_micros`.
      all_end_rel_micros: the same.
      memory: the memory of the outputs; empty without outputs.
      output: the outputs; empty without outputs.
      timeline_label: "name = Type()", without the inputs of the operation.
      scheduled_micros: the same as `all_start_micros`.
      thread_id: a number for which the firings of a device nest or are disjoint.
      all_start_nanos: the start, in nanoseconds since 1970.
      op_start_rel_nanos: always 0.
      op_end_rel_nanos: the end, in nanoseconds since `all_start_nanos`.
      all_end_rel_nanos: the same.
      scheduled_nanos: the same as `all_start_nanos`.
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


@record(slots=True)
class DeviceStepStats:
    """Firings on one device, by their ends. Source: TensorFlow's message of this name.

    Attributes:
      device: the full name of the device.
      node_stats: the firings.
      thread_names: always empty.
    """

    device: str = ""
    node_stats: list[NodeExecStats] = field(default_factory=list)
    thread_names: dict[int, str] = field(default_factory=dict)


@record(slots=True)
class StepStats:
    """Firings of a step by device. Source: TensorFlow's message of this name.

    Attributes:
      dev_stats: the firings on each device.
    """

    dev_stats: list[DeviceStepStats] = field(default_factory=list)


def step_stats(listed: Mapping[str, Sequence[Firing]]) -> StepStats:
    """Returns the records of the firings on each device."""
    out = StepStats()
    for name, firings in listed.items():
        threads = lanes([(at, at + took) for _, _, at, took, _ in firings])
        out.dev_stats.append(DeviceStepStats(name, [_stats(*f, n) for f, n in zip(firings, threads, strict=True)]))
    return out


def _stats(name: str, type: str, at: int, took: int, sizes: tuple[int, ...], thread: int) -> NodeExecStats:
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
        thread_id=thread,
        all_start_nanos=at,
        op_end_rel_nanos=took,
        all_end_rel_nanos=took,
        scheduled_nanos=at,
    )
