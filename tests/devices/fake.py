"""A type of devices with arrays of numpy, for joined steps without another library.

with hr.Session(graph=g, devices={FAKE: 1}) as session: ...
"""

from __future__ import annotations

import weakref
from typing import Any, Final

import numpy as np

import headrace as hr
from headrace import dtypes
from headrace.device_arrays import DeviceArray
from headrace.execute.devices import LocalDevice
from headrace.ir.device import DeviceSpec
from headrace.ir.kernel import provide_namespace

FAKE: Final = "FAKE"
DEVICE: Final = f"/device:{FAKE}:0"
NUMERIC: Final = frozenset(d for d in dtypes.ALL if d not in dtypes.OBJECT and not d.is_quantized)


class Memory:
    """The memory, which counts its copies.

    Attributes:
      type, name, is_near, namespace: see `device_arrays.ArrayMemory`.
      copies: the shapes of the copied values, and their directions.
    """

    type = FAKE
    name = f"{FAKE}:0"
    is_near = True
    namespace = np

    def __init__(self) -> None:
        self.copies: list[tuple[str, tuple[int, ...]]] = []
        self.accounts: Any = weakref.WeakSet()

    def put(self, value: Any) -> Any:
        if not isinstance(value, (np.ndarray, np.generic)) or value.dtype == object:
            return value
        self.copies.append(("put", value.shape))
        return DeviceArray(np.array(value), self)

    def begin_get(self, value: DeviceArray) -> None:
        pass

    def get(self, value: DeviceArray, look: Any = None) -> Any:
        assert value.memory is self
        self.copies.append(("get", value.shape))
        return np.array(value.array)

    def dtype_of(self, array: Any) -> np.dtype:
        found: np.dtype = array.dtype
        return found

    def update(self, rule: str, attrs: Any, numbers: Any) -> Any:
        return None

    def may_change(self, value: DeviceArray, like: DeviceArray) -> bool:
        return True

    def copied(self, value: DeviceArray, like: DeviceArray) -> DeviceArray:
        return DeviceArray(np.array(value.array), self)

    def captured(self, f: Any, name: str, kernels: int) -> Any:
        return f

    def has(self, value: Any) -> bool:
        return isinstance(value, (np.ndarray, np.generic))

    def placed(self, array: Any) -> Any:
        return array

    def error_of(self, error: RuntimeError) -> Exception:
        return error

    def figures(self) -> tuple[int, int]:
        return 0, 0

    def store(self) -> None:
        return None


MEMORY: Final = Memory()


class Device(LocalDevice):
    """The device."""

    def __init__(self, spec: DeviceSpec, memory_limit: int | None = None) -> None:
        super().__init__(spec, memory_limit)
        self.memory = MEMORY

    def put(self, array: Any) -> Any:
        return MEMORY.put(array)

    def get(self, value: Any) -> Any:
        return MEMORY.get(value) if type(value) is DeviceArray else value


hr.register_device(FAKE, Device)
provide_namespace(FAKE, lambda: np, NUMERIC, lambda index: MEMORY)
