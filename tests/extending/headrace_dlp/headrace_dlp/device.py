"""The device: a memory that numpy does not reach, and what crosses its border."""

from __future__ import annotations

import threading
from typing import Any, NoReturn

import numpy as np

from headrace.extend import DeviceSpec, LocalDevice


class DLPArray:
    """An array in the memory of a DLP.

    The host knows its shape and dtype, and can do nothing with it but hand it back to the device. (A real one would
    hold an address. Here the elements are in an array of numpy's that `DLP` and its kernels alone look at.)

    Attributes:
      device: the name of the device whose memory it is in.
      shape, dtype: as of numpy's arrays.
    """

    __slots__ = ("_cells", "device", "dtype", "shape")
    __array_ufunc__ = None

    def __init__(self, device: str, cells: np.ndarray) -> None:
        self.device = device
        self.shape = cells.shape
        self.dtype = cells.dtype
        self._cells = cells

    def _forbidden(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise TypeError(f"this array is in the memory of {self.device}; the host cannot look into it")

    __array__ = __bool__ = __float__ = __getitem__ = __index__ = __int__ = __iter__ = __len__ = _forbidden


class DLP(LocalDevice):
    """A DLP. It keeps count of what was copied to it and back.

    Attributes:
      puts, gets: how many values.
    """

    def __init__(self, spec: DeviceSpec, memory_limit: int | None = None) -> None:
        super().__init__(spec, memory_limit)
        self.puts = self.gets = 0
        self._counting = threading.Lock()  # steps that overlap have a thread each

    def put(self, array: Any) -> DLPArray:
        if isinstance(array, DLPArray):
            raise TypeError(f"{array!r} is on {array.device} already")
        with self._counting:
            self.puts += 1
        return DLPArray(self.name, np.array(array))

    def get(self, value: Any) -> np.ndarray:
        if not isinstance(value, DLPArray):
            raise TypeError(f"{value!r} is not in the memory of {self.name}")
        if value.device != self.name:
            raise ValueError(f"{value!r} is in the memory of {value.device}, not of {self.name}")
        with self._counting:
            self.gets += 1
        return value._cells.copy()
