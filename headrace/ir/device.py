"""Device names, full and partial: `/job:worker/replica:0/task:1/device:CPU:0`, `/device:GPU:*`, `/cpu:0`.

A `DeviceSpec` has five parts, each given or open. A user's request is mostly partial ("some GPU", "job worker"); the
name of a device has all five parts. `merge` combines the requests of nested device scopes, and `matches` tests whether
a device satisfies a request.

Source: TensorFlow's `tf.DeviceSpec`, with its syntax.
"""

from __future__ import annotations

import re
from typing import Final

from headrace.errors import GraphError
from headrace.memo import cached
from headrace.records import record

#: Types of devices of headrace's own whose arrays are PyTorch's: on the processor, and on CUDA devices.
TORCH: Final = "TORCH"
GPU: Final = "GPU"

_NUMBER = re.compile(r"[0-9]{1,9}\Z")
_JOB = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*\Z")
_TYPE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_SHORT_TYPES = frozenset({"CPU", "GPU", "TPU"})  # types that may appear without "device:", in either case
_FORM = "a device name is '/job:<name>/replica:<n>/task:<n>/device:<TYPE>:<n>', where any part may be left out or '*'"


@record(frozen=True, slots=True)
class DeviceSpec:
    """Parts of a device name; None for an open part.

    Attributes:
      job, replica, task: the process.
      type: "CPU", "GPU", ...
      index: the number of the device among those of its type in the process.

    Example:
      >>> DeviceSpec.from_string("/job:ps/cpu:0")
      DeviceSpec(job='ps', replica=None, task=None, type='CPU', index=0)
      >>> str(DeviceSpec(type="GPU"))
      '/device:GPU:*'
    """

    job: str | None = None
    replica: int | None = None
    task: int | None = None
    type: str | None = None
    index: int | None = None

    @staticmethod
    def from_string(text: str) -> DeviceSpec:
        """Parses a device name.

        Args:
          text: parts in any order, each at most once. A part `*` is open; "" leaves all parts open.

        Returns:
          The parts.

        Raises:
          GraphError (a ValueError): `text` is not a device name; the error quotes the wrong part.
        """
        return _parse(text)

    def to_string(self) -> str:
        """Returns the name in canonical form, without open parts ("" if all are open)."""
        out = ""
        for key, value in (("job", self.job), ("replica", self.replica), ("task", self.task)):
            if value is not None:
                out += f"/{key}:{value}"
        if self.type is not None or self.index is not None:
            out += f"/device:{self.type or '*'}:{'*' if self.index is None else self.index}"
        return out

    __str__ = to_string

    @property
    def is_full(self) -> bool:
        """Whether the name denotes one device."""
        return None not in (self.job, self.replica, self.task, self.type, self.index)

    def merge(self, inner: DeviceSpec) -> DeviceSpec:
        """Returns the request of a device scope `inner` nested in this one.

        Parts given in `inner` come from `inner`, others from this request.

        >>> str(DeviceSpec.from_string("/job:ps/gpu:1").merge(DeviceSpec.from_string("/cpu:0")))
        '/job:ps/device:CPU:0'
        """
        return DeviceSpec(
            self.job if inner.job is None else inner.job,
            self.replica if inner.replica is None else inner.replica,
            self.task if inner.task is None else inner.task,
            self.type if inner.type is None else inner.type,
            self.index if inner.index is None else inner.index,
        )

    def matches(self, device: DeviceSpec) -> bool:
        """Whether `device` satisfies this request: it has every part that is given here.

        >>> DeviceSpec.from_string("/gpu:*").matches(DeviceSpec.from_string("/job:worker/task:3/gpu:1"))
        True
        """
        return (
            self.job in (None, device.job)
            and self.replica in (None, device.replica)
            and self.task in (None, device.task)
            and self.type in (None, device.type)
            and self.index in (None, device.index)
        )


@cached(1024, "device names")  # a graph parses the same few names thousands of times
def _parse(text: str) -> DeviceSpec:
    given: dict[str, str | None] = {}

    def put(key: str, value: str, form: re.Pattern[str]) -> None:
        if key in given:
            raise GraphError(f"Multiple {key}s are not allowed while parsing the device spec: {text!r}; {_FORM}")
        if value != "*" and not form.match(value):
            raise GraphError(f"{text!r} is not a device name: {value!r} is no {key}; {_FORM}")
        given[key] = None if value == "*" else value

    for part in filter(None, text.split("/")):
        key, *values = part.split(":")
        if key == "job" and len(values) == 1:
            put("job", values[0], _JOB)
        elif key in ("replica", "task") and len(values) == 1:
            put(key, values[0], _NUMBER)
        elif key == "device" and 1 <= len(values) <= 2:
            kind = values[0].upper() if values[0].upper() in _SHORT_TYPES else values[0]
            put("device type", kind, _TYPE)
            put("device index", values[1] if len(values) == 2 else "*", _NUMBER)
        elif key.upper() in _SHORT_TYPES and len(values) <= 1:
            put("device type", key.upper(), _TYPE)
            put("device index", values[0] if values else "*", _NUMBER)
        else:
            raise GraphError(
                f"Unknown attribute {key!r} is encountered while parsing the device spec: {text!r}: "
                f"{part!r} is no part of a device name; {_FORM}"
            )

    def number(key: str) -> int | None:
        v = given.get(key)
        return None if v is None else int(v)

    return DeviceSpec(
        given.get("job"), number("replica"), number("task"), given.get("device type"), number("device index")
    )
