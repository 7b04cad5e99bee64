"""Values in the memory of a device: arrays of another library than numpy.

A value of the runtime is an array of numpy, a numpy scalar, an object (a string, handle or list), or a `DeviceArray`.
The parts of the runtime that keep or describe values read the *value protocol*, which all arrays have: `dtype`
(numpy's), `shape`, `ndim`, `size` and `nbytes`. A `DeviceArray` has `memory` and `to_host()` as well, and refuses
everything that would read its elements implicitly. `to_host(value)`, which returns its *host copy*, and
`is_host(value)` serve values of both kinds.

Copies of a memory that is *far*, such as that of a GPU, overlap with computing: they are begun early and end late. So
`ArrayMemory.put` returns a value before its elements have arrived, and the first read of `DeviceArray.array` lets the
device wait for them. `ArrayMemory.begin_get` begins a copy to the host, and `to_host` waits for it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, MutableSet, Sequence
from typing import Any, NoReturn, Protocol

import numpy as np


class StoredLayout(Protocol):
    """Layout of a value in a store.

    Attributes:
      span: the bytes that the value takes there.
    """

    @property
    def span(self) -> int: ...


class Store(Protocol):
    """Place of values for which a memory has no room; `resources.memory` moves them.

    Any thread may call the methods; a caller of `reserve` and `free` holds a lock. The methods raise OSError if the
    place is full or fails.
    """

    @property
    def name(self) -> str:
        """The name in messages."""

    @property
    def remedy(self) -> str:
        """The way to give it more room, in messages."""

    @property
    def used(self) -> int:
        """The bytes in slots that are not free."""

    def layout_of(self, value: Any) -> Any:
        """Returns the `StoredLayout` of a value; None if the value cannot be stored."""

    def reserve(self, n: int) -> Any:
        """Returns a slot for `n` bytes."""

    def free(self, slot: Any) -> None:
        """Frees a slot."""

    def write(self, pieces: Sequence[tuple[Any, Any, Any]]) -> None:
        """Copies values into slots, given (slot, layout, value) of each, and waits for the copies."""

    def buffer(self, layout: Any) -> Any:
        """Returns new memory for a value, if it must be allocated before `read`."""

    def read(self, pieces: Sequence[tuple[Any, Any, Any]]) -> Sequence[Any]:
        """Returns the values in slots, given (slot, layout, buffer) of each.

        Those of a far memory may arrive later, as those of `ArrayMemory.put`.
        """

    def close(self) -> None:
        """Loses the contents. Further calls have no effect."""


class Holders(Protocol):
    """Account of a session that counts values in a memory."""

    def holders(self) -> str:
        """Returns the largest holders as text; "" if nothing is held."""


class ArrayMemory(Protocol):
    """Memory of a device, of which each process has one object.

    Attributes:
      type: the type of its device, such as "TORCH".
      name: its name, such as "TORCH:0".
      is_near: whether the host reads a number in it without a wait for queued work. Then host copies share its bytes.
        A memory that is not near is far.
      accounts: the accounts of open sessions, held weakly. Errors list their holders.
    """

    type: str
    name: str
    is_near: bool
    accounts: MutableSet[Holders]

    @property
    def namespace(self) -> Any:
        """Namespace of the array API standard for the arrays."""

    def put(self, value: Any) -> Any:
        """Copies an array or scalar of numpy into the memory.

        A value whose dtype is not supported is returned as it is. The elements may arrive later.
        """

    def begin_get(self, value: DeviceArray) -> None:
        """Begins the copy of a value to the host, which `get` ends.

        A near memory does nothing.
        """

    def get(self, value: DeviceArray, look: Callable[[], object] | None = None) -> Any:
        """Copies a value in the memory to an array of numpy.

        Args:
          value: the value.
          look: raises if a wait for the copy must end; None: its limit alone ends it.
        """

    def error_of(self, error: RuntimeError) -> Exception:
        """Returns the error of the runtime for one of the library."""

    def placed(self, array: Any) -> Any:
        """Returns an array of the library that is in this memory."""

    def captured(self, f: Callable[[list[Any]], Any], name: str, kernels: int) -> Callable[[list[Any]], Any]:
        """Returns a function of a list of arrays and host values, or a faster form.

        Args:
          f: the function, which is pure.
          name: its name in records.
          kernels: the number of kernels that it calls.
        """

    def has(self, value: Any) -> bool:
        """Returns whether a value is an array of the library."""

    def dtype_of(self, array: Any) -> np.dtype:
        """Returns numpy's dtype for an array of the library."""

    def figures(self) -> tuple[int, int]:
        """Returns the bytes of all arrays of the process in it, now and at most.

        Those of a near memory are not counted: (0, 0).
        """

    def update(self, rule: str, attrs: Mapping[str, Any], numbers: Sequence[Any]) -> Callable[..., object] | None:
        """Returns the library's function that applies a rule of an optimizer in place.

        Args:
          rule: the name of the rule (`ops.training.optimizers`).
          attrs: the attributes of the operation.
          numbers: the scalar arguments of the rule, in order: numbers of Python, or arrays that the host cannot read
            at once.

        Returns:
          `f(gradient, *arrays)`, which writes into the arrays of the variable and its slots. The elements of all arrays
          have one order in memory. None: the library has no such function.
        """

    def may_change(self, value: DeviceArray, like: DeviceArray) -> bool:
        """Returns whether the array of a value may be written to.

        The caller has the only reference to the value. Nothing else may refer to the array or to its bytes, and its
        elements must have the order in memory of those of `like`.
        """

    def copied(self, value: DeviceArray, like: DeviceArray) -> DeviceArray:
        """Returns a copy of a value that may be changed.

        Its elements have the order in memory of those of `like`, if the shapes are equal.
        """

    def store(self) -> Store | None:
        """Returns a new store of values in the memory.

        None: their host copies go to the spill file.
        """


class Arrival(Protocol):
    """A copy to a far memory that was begun."""

    def arrived(self) -> Any:
        """Returns the array of the device, for kernels that are called from now on."""


class DeviceArray:
    """An array in the memory of a device.

    Args:
      array: the array of the device's library. It is not written to, except as `ArrayMemory.may_change` allows.
      memory: the memory.

    Attributes:
      array: the array of the device's library. The first read lets the device wait for a copy that was begun.
      memory: the memory.
      arrival: the copy to the memory that was begun; None if the value was made there.
      departure: the copy to the host that was begun and not read; None if there is none.
    """

    __slots__ = ("array", "arrival", "departure", "memory")
    array: Any
    arrival: Arrival | None
    departure: Any
    __array_ufunc__ = None  # numpy's operators raise TypeError

    def __init__(self, array: Any, memory: ArrayMemory) -> None:
        self.array = array
        self.memory = memory

    @staticmethod
    def arriving(arrival: Arrival, memory: ArrayMemory) -> DeviceArray:
        """Returns the value of a copy to the memory that was begun."""
        out = DeviceArray.__new__(DeviceArray)
        out.arrival, out.memory = arrival, memory
        return out

    def __getattr__(self, name: str) -> Any:
        """Returns an attribute that is not set.

        So a value without copies costs nothing more.
        """
        if name == "arrival" or name == "departure":
            return None
        if name == "array" and self.arrival is not None:
            self.array = self.arrival.arrived()
            return self.array
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    @property
    def dtype(self) -> np.dtype:
        """numpy's dtype of the elements."""
        return self.memory.dtype_of(self.array)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape."""
        return tuple(self.array.shape)

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return len(self.array.shape)

    @property
    def size(self) -> int:
        """The number of elements."""
        return math.prod(self.array.shape)

    @property
    def nbytes(self) -> int:
        """The bytes of the elements."""
        return self.size * self.dtype.itemsize

    def to_host(self, look: Callable[[], object] | None = None) -> Any:
        """Returns the elements as an array of numpy, which must not be written to.

        Args:
          look: see `ArrayMemory.get`.
        """
        return self.memory.get(self, look)

    def _refuse(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise TypeError(f"{self!r} is in the memory of its device; `to_host` copies it to an array of numpy")

    __array__ = __bool__ = __complex__ = __float__ = __getitem__ = __index__ = __int__ = __iter__ = __len__ = _refuse

    def __repr__(self) -> str:
        return f"<{self.dtype} array of shape {self.shape} on {self.memory.name}>"


def is_host(value: Any) -> bool:
    """Returns whether a value is no array in the memory of a device."""
    return type(value) is not DeviceArray


def to_host(value: Any, look: Callable[[], object] | None = None) -> Any:
    """Returns a value on the host: an array of numpy for one of a device.

    Args:
      value: the value.
      look: see `ArrayMemory.get`.
    """
    return value.to_host(look) if type(value) is DeviceArray else value


def on_arrays(f: Callable[..., Any], memory: ArrayMemory, host: Collection[int] = ()) -> Callable[..., Any]:
    """Returns a function of values that calls `f` on the arrays in them.

    Args:
      f: a pure kernel, made for the namespace of the arrays.
      memory: the memory of its results. Inputs that are on the host are copied there.
      host: the positions of inputs that the kernel takes from the host, because it reads their elements.
    """

    def array(i: int, value: Any) -> Any:
        found = to_host(value) if i in host else memory.put(value)
        return found.array if type(found) is DeviceArray else found

    def call(*values: Any) -> Any:
        try:
            given = [v.array if type(v) is DeviceArray and i not in host else array(i, v) for i, v in enumerate(values)]
            out = f(*given)
        except RuntimeError as e:
            raise memory.error_of(e) from e
        is_placed = len(host) < len(values)  # else no array shows the kernel where it computes
        if type(out) is tuple or type(out) is list:
            return tuple([DeviceArray(x if is_placed else memory.placed(x), memory) for x in out])
        return None if out is None else DeviceArray(out if is_placed else memory.placed(out), memory)

    return call


def on_list(f: Callable[[list[Any]], Any], memory: ArrayMemory, name: str, kernels: int) -> Callable[[list[Any]], Any]:
    """Returns a function of a list of values that calls `f` on their arrays.

    Args:
      f: a function of a list with arrays of the memory and values on the host. Such a list is empty when the function
        computes, so that it can free values that have no other reader.
      memory: the memory of its results.
      name: its name in records.
      kernels: the number of kernels that it calls.
    """
    f = memory.captured(f, name, kernels)

    def call(values: list[Any]) -> Any:
        arrays = [v.array if type(v) is DeviceArray else v for v in values]
        values.clear()
        try:
            out = f(arrays)
        except RuntimeError as e:
            raise memory.error_of(e).with_traceback(e.__traceback__) from e
        if type(out) is tuple:
            return tuple([DeviceArray(x, memory) for x in out])
        return DeviceArray(out, memory)

    return call


def hosted(f: Callable[..., Any], memory: ArrayMemory | None, is_async: bool = False) -> Callable[..., Any]:
    """Returns a function of values in a memory that calls `f` on the host.

    Args:
      f: a kernel for numpy's arrays.
      memory: the memory of its results; None: the host.
      is_async: whether the last argument of the kernel takes the result, or an error.
    """
    if memory is None:
        return f

    def placed(out: Any) -> Any:
        return tuple(map(memory.put, out)) if type(out) is tuple else memory.put(out)

    if is_async:
        return lambda *values: f(*map(to_host, values[:-1]), lambda out: values[-1](placed(out)))
    return lambda *values: placed(f(*map(to_host, values)))


class Elements:
    """Stands for a namespace in kernels of lists with elements in a memory.

    Such a kernel gets and returns `DeviceArray`s as elements. Its other inputs and outputs are on the host.

    Attributes:
      memory: the memory.
    """

    __slots__ = ("memory",)

    def __init__(self, memory: ArrayMemory) -> None:
        self.memory = memory

    def apply(self, f: Callable[..., Any], *values: Any) -> Any:
        """Returns `f(xp, *arrays)` as a value in the memory, or several as a tuple."""
        return on_arrays(lambda *arrays: f(self.memory.namespace, *arrays), self.memory)(*values)


def computed(f: Callable[..., Any], *values: Any) -> Any:
    """Returns `f(xp, *arrays)`, computed in the memory of the first value.

    Args:
      f: a function of arrays and of their namespace.
      values: values on the host or on one device; those on the host are copied there if the first value is there.
    """
    first = values[0]
    if type(first) is DeviceArray:
        return Elements(first.memory).apply(f, *values)
    return f(np, *values)
