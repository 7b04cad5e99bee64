"""Serialization of a traced run (`metadata.RunMetadata`) as the message that TensorBoard and TensorFlow read.

The records have the names of TensorFlow's messages, and their attributes the names of the fields. This module contains
the numbers of the fields. Other information about the run, such as its loops, has no field in the message.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, Final

from headrace import varints

if TYPE_CHECKING:
    from headrace.metadata.run import RunMetadata

_NUMBERS: Final[dict[str, dict[str, int]]] = {
    "StepStats": {"dev_stats": 1},
    "DeviceStepStats": {"device": 1, "node_stats": 2},
    "NodeExecStats": {
        "node_name": 1,
        "all_start_micros": 2,
        "op_start_rel_micros": 3,
        "op_end_rel_micros": 4,
        "all_end_rel_micros": 5,
        "memory": 6,
        "output": 7,
        "timeline_label": 8,
        "scheduled_micros": 9,
        "thread_id": 10,
        "all_start_nanos": 13,
        "op_start_rel_nanos": 14,
        "op_end_rel_nanos": 15,
        "all_end_rel_nanos": 16,
        "scheduled_nanos": 17,
    },
    "AllocatorMemoryUsed": {"allocator_name": 1, "total_bytes": 2, "peak_bytes": 3, "live_bytes": 4},
    "NodeOutput": {"slot": 1, "tensor_description": 3},
    "TensorDescription": {"allocation_description": 4},
    "AllocationDescription": {
        "requested_bytes": 1,
        "allocated_bytes": 2,
        "allocator_name": 3,
        "allocation_id": 4,
        "has_single_reference": 5,
        "ptr": 6,
    },
}


def encode(metadata: RunMetadata) -> bytes:
    """The serialized `RunMetadata` message with the firings of each operation and the graphs of devices.

    It has no firings without a trace.
    """
    stats = _field(1, metadata.step_stats) if metadata.ops else b""
    return stats + b"".join(_sized(3, graph.SerializeToString()) for graph in metadata.partition_graphs)


def fill(message: Any, metadata: RunMetadata) -> None:
    """Replaces the fields of a `RunMetadata` message by those of a run.

    Args:
      message: headrace's message or TensorFlow's.
      metadata: the metadata of the run.

    Raises:
      TypeError: an argument of another type.
    """
    check(message)
    message.Clear()
    message.MergeFromString(encode(metadata))


def check(message: Any) -> None:
    """Raises a TypeError for an object that is no `RunMetadata` message."""
    if getattr(getattr(message, "DESCRIPTOR", None), "name", None) != "RunMetadata":
        raise TypeError(f"run_metadata must be a RunMetadata, got {message!r} ({type(message).__name__})")


def _message(record: Any) -> bytes:
    """The serialized fields of a record that exist in its message."""
    numbers = _NUMBERS[type(record).__name__]
    return b"".join(
        _field(numbers[f.name], getattr(record, f.name)) for f in dataclasses.fields(record) if f.name in numbers
    )


def _field(number: int, value: Any) -> bytes:
    if isinstance(value, list):
        return b"".join(_field(number, v) for v in value)
    if isinstance(value, int):
        return varints.encode(number << 3) + varints.encode(value) if value else b""
    content = value.encode() if isinstance(value, str) else _message(value)
    if isinstance(value, str) and not content:
        return b""
    return _sized(number, content)


def _sized(number: int, content: bytes) -> bytes:
    return varints.encode(number << 3 | 2) + varints.encode(len(content)) + content
