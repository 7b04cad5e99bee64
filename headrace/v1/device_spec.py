"""TensorFlow 1's `tf.DeviceSpec`: a device name in parts that may be changed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from headrace.ir import device


class DeviceSpec:
    """Parts of a device name; None for an open part.

    Args:
      job, replica, task: the process.
      device_type: "CPU", "GPU", ...
      device_index: the number of the device among those of its type in the process.

    Source: TensorFlow's `tf.DeviceSpec`. `headrace.ir.device.DeviceSpec` is its unchangeable form.

    Example:
      >>> import headrace.v1 as tf
      >>> spec = tf.DeviceSpec(job="ps", device_type="CPU", device_index=0)
      >>> spec.task = 1
      >>> spec.to_string()
      '/job:ps/task:1/device:CPU:0'
    """

    def __init__(
        self,
        job: str | None = None,
        replica: int | None = None,
        task: int | None = None,
        device_type: str | None = None,
        device_index: int | None = None,
    ) -> None:
        self.job = job
        self.replica = None if replica is None else int(replica)
        self.task = None if task is None else int(task)
        kind = None if device_type is None else str(device_type)
        self.device_type = kind.upper() if kind in ("cpu", "gpu") else kind
        self.device_index = None if device_index is None else int(device_index)

    @classmethod
    def from_string(cls, spec: str) -> DeviceSpec:
        """Parses a device name.

        Args:
          spec: the name, of which parts may be left out.

        Raises:
          ValueError: `spec` is not a device name.
        """
        return cls().parse_from_string(spec)

    def parse_from_string(self, spec: str) -> DeviceSpec:
        """Replaces all parts by those of a device name, and returns this object.

        Args:
          spec: the name.

        Raises:
          ValueError: `spec` is not a device name.
        """
        self._take(device.DeviceSpec.from_string(spec))
        return self

    def merge_from(self, dev: DeviceSpec) -> None:
        """Takes over the parts that `dev` has.

        Args:
          dev: the other parts.
        """
        self._take(self._parts().merge(dev._parts()))

    def make_merged_spec(self, dev: DeviceSpec) -> DeviceSpec:
        """Returns the parts of `dev`, and those of this object where `dev` has none.

        Args:
          dev: the other parts.
        """
        out = DeviceSpec()
        out._take(self._parts().merge(dev._parts()))
        return out

    def replace(
        self,
        *,
        job: str | None = None,
        replica: int | None = None,
        task: int | None = None,
        device_type: str | None = None,
        device_index: int | None = None,
    ) -> DeviceSpec:
        """Returns a copy with some parts replaced.

        Args:
          job, replica, task, device_type, device_index: the new parts; None: as in this object.
        """
        return self.make_merged_spec(DeviceSpec(job, replica, task, device_type, device_index))

    def to_string(self) -> str:
        """Returns the name in canonical form, without open parts."""
        return self._parts().to_string()

    def _parts(self) -> device.DeviceSpec:
        return device.DeviceSpec(self.job, self.replica, self.task, self.device_type, self.device_index)

    def _take(self, parts: device.DeviceSpec) -> None:
        self.job, self.replica, self.task = parts.job, parts.replica, parts.task
        self.device_type, self.device_index = parts.type, parts.index

    def __str__(self) -> str:
        return self.to_string()

    def __repr__(self) -> str:
        parts = ", ".join(f"{name}={value}" for name, value in vars(self).items())
        return f"<DeviceSpec({parts})>"

    def __eq__(self, other: object) -> bool:
        return vars(self) == vars(other) if isinstance(other, DeviceSpec) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._parts())


def request(spec: Any) -> Any:
    """Returns a request of `tf.device` with names in place of `DeviceSpec`s.

    Args:
      spec: a name, a `DeviceSpec`, a function from operation to one of them, or None.
    """
    if isinstance(spec, DeviceSpec):
        return spec.to_string()
    return _names_of(spec) if callable(spec) else spec


def _names_of(choose: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda op: request(choose(op))
