"""Tensor maps: immutable maps from tensors to tensors, as values of dtype variant."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from headrace import dtypes
from headrace.errors import InvalidArgumentError
from headrace.resources import values
from headrace.resources.values import numpy_dtype_of, shape_of

if TYPE_CHECKING:
    from headrace.dtypes import DType
    from headrace.resources.values import Value

_Key: TypeAlias = tuple[Any, ...]  # dtype, shape and contents


class TensorMap:
    """Map behind EmptyTensorMap, TensorMapInsert and others; every change makes a new map."""

    __slots__ = ("_items",)

    def __init__(self, items: Mapping[_Key, tuple[Value, Value]] | None = None) -> None:
        self._items = dict(items or {})  # keys and values

    @classmethod
    def of(cls, items: Iterable[tuple[Value, Value]]) -> TensorMap:
        """A map of pairs of a key and a value."""
        return cls({_key(key): (key, value) for key, value in items})

    def items(self) -> list[tuple[Value, Value]]:
        """The keys with their values, in the order of insertion."""
        return list(self._items.values())

    def insert(self, key: Value, value: Value) -> TensorMap:
        """This map with `value` at `key`, which may exist already."""
        return TensorMap({**self._items, _key(key): (key, value)})

    def lookup(self, key: Value) -> Value:
        """The value at `key`.

        Raises:
          InvalidArgumentError: The key does not exist.
        """
        found = self._items.get(_key(key))
        if found is None:
            raise InvalidArgumentError(f'Trying to lookup non-existent key. Could not find key "{_show(key)}".')
        return found[1]

    def erase(self, key: Value) -> TensorMap:
        """This map without `key`.

        Raises:
          InvalidArgumentError: The key does not exist.
        """
        if key not in self:
            raise InvalidArgumentError(f'Trying to erase non-existent item. Could not find key "{_show(key)}".')
        return TensorMap({k: item for k, item in self._items.items() if k != _key(key)})

    def keys(self, dtype: DType) -> np.ndarray:
        """All keys, stacked in the order of insertion.

        Raises:
          InvalidArgumentError: The map is empty, or its keys do not all have `dtype` and one shape.
        """
        found = [key for key, _ in self._items.values()]
        if not found:
            raise InvalidArgumentError("TensorMapStackKeys cannot be called on empty map.")
        if any(numpy_dtype_of(key) != dtype.numpy for key in found):
            raise InvalidArgumentError("Key does not match requested dtype.")
        if len(set(map(shape_of, found))) > 1:
            raise InvalidArgumentError("Keys must all have the same shape.")
        return values.stack(found, dtype, shape_of(found[0]))

    def zeros_like(self) -> TensorMap:
        """A map with zeros in place of the values."""
        return TensorMap({k: (key, _zeros_like(value)) for k, (key, value) in self._items.items()})

    def add(self, other: TensorMap) -> TensorMap:
        """A map with the keys of both, and sums of common keys' values.

        Raises:
          InvalidArgumentError: Two values have different shapes.
        """
        out = {**self._items, **other._items}
        for k in self._items.keys() & other._items.keys():
            (key, x), (_, y) = self._items[k], other._items[k]
            out[k] = (key, _sum(x, y))
        return TensorMap(out)

    def __contains__(self, key: Value) -> bool:
        return _key(key) in self._items

    def __len__(self) -> int:
        return len(self._items)

    def __repr__(self) -> str:
        return f"TensorMap of {len(self)} tensors"


def _key(tensor: Value) -> _Key:
    array = np.asarray(tensor)
    contents = tuple(array.reshape(-1)) if array.dtype == object else array.tobytes()
    return str(array.dtype), array.shape, contents


def _sum(x: Value, y: Value) -> Value:
    if hasattr(x, "add"):  # a list or map
        return x.add(y)
    if shape_of(x) != shape_of(y):
        raise InvalidArgumentError(f"Cannot add maps with values of shapes {shape_of(x)} and {shape_of(y)} at one key")
    return x + y


def _zeros_like(value: Value) -> Value:
    if hasattr(value, "zeros_like"):
        return value.zeros_like()
    array = np.asarray(value)
    return values.zeros(dtypes.string, array.shape) if array.dtype == object else np.zeros_like(array)


def _show(key: Value) -> str:
    return str(np.asarray(key).tolist())
