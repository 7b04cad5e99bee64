"""Lookup tables: values by integer or string keys, many keys at a time.

A `HashTable` is filled once and then only read; a `MutableHashTable` can change at any time. The values are rows of one
array, and a dict maps keys to rows. The third kind is in `dense_table`.
"""

from __future__ import annotations

import abc
import math
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from headrace import dtypes, forking, shapes
from headrace.errors import AbortedError, FailedPreconditionError, InvalidArgumentError, UnimplementedError
from headrace.resources import hash_order, values
from headrace.resources.account import size
from headrace.resources.values import numpy_dtype_of, shape_of

if TYPE_CHECKING:
    from headrace.dtypes import DType
    from headrace.resources.account import Account


class Table(abc.ABC):
    """Base of lookup tables. Thread safe.

    Attributes:
      name: The name, for messages.
      key_dtype: The dtype of the keys.
      value_dtype: The dtype of the values.
      key_shape: The shape of one key.
      value_shape: The shape of one value.
      account: The account of keys and values in the device's memory; None if they are not counted. An insertion without
        room raises an error and changes nothing.
    """

    key_shape: tuple[int, ...] = ()

    def __init__(
        self,
        name: str,
        key_dtype: DType,
        value_dtype: DType,
        value_shape: tuple[int, ...] = (),
        account: Account | None = None,
    ) -> None:
        self.name = name
        self.key_dtype = key_dtype
        self.value_dtype = value_dtype
        self.value_shape = value_shape
        self.account = account
        self._lock = threading.Lock()
        forking.register_at_fork(self)

    def _forked(self) -> None:
        """See `forking`."""
        self._lock = threading.Lock()

    def release(self) -> None:
        """Frees the account, because the table is dropped."""
        if self.account is not None:
            self.account.clear()

    @abc.abstractmethod
    def size(self) -> int:
        """Number of keys."""

    @abc.abstractmethod
    def find(self, keys: np.ndarray, default: Any) -> np.ndarray:
        """Values of `keys`; for missing ones `default`, or a row of it for each key."""

    @abc.abstractmethod
    def insert(self, keys: np.ndarray, new: np.ndarray) -> None:
        """Sets the values of keys, which may exist already."""

    @abc.abstractmethod
    def remove(self, keys: np.ndarray) -> None:
        """Removes keys; missing ones are ignored."""

    @abc.abstractmethod
    def export(self) -> tuple[np.ndarray, np.ndarray]:
        """All keys and their values."""

    @abc.abstractmethod
    def restore(self, keys: np.ndarray, new: np.ndarray) -> None:
        """Replaces the contents by `keys` and their values (LookupTableImport)."""

    # *** checks of all kinds ***

    def check_find(self, keys: np.ndarray, default: Any) -> None:
        """Raises `InvalidArgumentError` unless the arguments are valid for `find`."""
        self._check_dtypes(keys, default)
        some = (*self._check_keys(keys), *self.value_shape)
        given = shape_of(default)
        if given not in (self.value_shape, some):
            raise InvalidArgumentError(
                f"Expected shape {shapes.show(self.value_shape)} or {shapes.show(some)} for default value, got "
                f"{shapes.show(given)}"
            )

    def check_insert(self, keys: np.ndarray, new: np.ndarray) -> None:
        """Raises `InvalidArgumentError` unless there is a value of the right shape for each key."""
        self._check_dtypes(keys, new)
        self._check_values((*self._check_keys(keys), *self.value_shape), new)

    def check_restore(self, keys: np.ndarray, new: np.ndarray) -> None:
        """Raises `InvalidArgumentError` unless the arguments are valid for `restore`."""
        self.check_insert(keys, new)

    def check_remove(self, keys: np.ndarray) -> None:
        """Raises `InvalidArgumentError` unless `keys` have the dtype and shape of keys."""
        self._check_dtypes(keys, None)
        self._check_keys(keys)

    def _check_dtypes(self, keys: Any, new: Any) -> None:
        for what, value, dtype in (("Key", keys, self.key_dtype), ("Value", new, self.value_dtype)):
            if value is not None and numpy_dtype_of(value) != dtype.numpy:
                raise InvalidArgumentError(
                    f"{what} must be type {dtype.name} but got {numpy_dtype_of(value)}, in table {self.name}"
                )

    def _check_keys(self, keys: np.ndarray) -> tuple[int, ...]:
        """The shape of `keys` without that of one key, with which it must end."""
        shape, n = shape_of(keys), len(self.key_shape)
        if n and shape[-n:] != self.key_shape:
            raise InvalidArgumentError(
                f"Input key shape {shapes.show(shape)} must end with the table's key shape "
                f"{shapes.show(self.key_shape)}"
            )
        return shape[: len(shape) - n]

    def _check_values(self, wanted: tuple[int, ...], new: np.ndarray) -> None:
        if shape_of(new) != wanted:
            raise InvalidArgumentError(
                f"Expected shape {shapes.show(wanted)} for value, got {shapes.show(shape_of(new))}"
            )

    def __repr__(self) -> str:
        types = f"{self.key_dtype.name} to {self.value_dtype.name}{shapes.show(self.value_shape)}"
        return f"{type(self).__name__}({self.name!r}, {types}, {self.size()} keys)"


class _Rows:
    """Values by key: a dict from keys to rows, and the array with these rows."""

    def __init__(self, dtype: DType, shape: tuple[int, ...]) -> None:
        self._dtype = dtype
        self._shape = shape
        self._row: dict[int | bytes, int] = {}
        self._free: list[int] = []
        self._rows: np.ndarray = values.zeros(dtype, (0, *shape))

    def __len__(self) -> int:
        return len(self._row)

    def keys(self) -> list[int | bytes]:
        """Keys in the order of their insertion."""
        return list(self._row)

    def find(self, keys: np.ndarray, default: Any, each: bool) -> np.ndarray:
        """Values of `keys`; for missing ones `default`.

        Args:
          keys: The keys.
          default: The value of all missing keys, or a row for each key.
          each: Whether `default` has a row for each key.

        Returns:
          The values.
        """
        row = self._row
        at = np.array([row.get(k, -1) for k in keys.reshape(-1).tolist()], np.intp)
        gone = np.flatnonzero(at < 0)
        if len(self._rows):
            out = self._rows[at]
        else:
            out = values.zeros(self._dtype, (len(at), *self._shape))
        out[gone] = default.reshape(len(at), *self._shape)[gone] if each else default
        return out.reshape((*keys.shape, *self._shape))

    def growth(self, keys: np.ndarray, new: np.ndarray) -> int:
        """Bytes that `put` would add."""
        last = {k: i for i, k in enumerate(keys.reshape(-1).tolist())}
        rows = new.reshape(keys.size, *self._shape)[list(last.values())]
        old = self._rows[[self._row[k] for k in last if k in self._row]]
        return size([rows]) - size([old]) + sum(_key_size(k) for k in last if k not in self._row)

    def share(self, keys: np.ndarray) -> int:
        """Bytes of those of `keys` that exist, and of their values."""
        there = [k for k in dict.fromkeys(keys.reshape(-1).tolist()) if k in self._row]
        return size([self._rows[[self._row[k] for k in there]]]) + sum(map(_key_size, there))

    def put(self, keys: np.ndarray, new: np.ndarray) -> None:
        """Sets the values of `keys`; the last one for a key that occurs several times."""
        wanted = keys.reshape(-1).tolist()
        self._grow(len(wanted))
        at = np.array([self._place(k) for k in wanted], np.intp)
        self._rows[at] = new.reshape(len(at), *self._shape)

    def drop(self, keys: np.ndarray) -> None:
        """Removes `keys`."""
        for k in keys.reshape(-1).tolist():
            at = self._row.pop(k, None)
            if at is not None:
                self._free.append(at)
                if self._dtype in dtypes.OBJECT:
                    self._rows[at] = b""

    def taken(self, keys: Sequence[int | bytes]) -> np.ndarray:
        """Values of existing keys."""
        return self._rows[np.array([self._row[k] for k in keys], np.intp)]

    def _place(self, key: int | bytes) -> int:
        at = self._row.get(key)
        if at is None:
            at = self._row[key] = self._free.pop() if self._free else len(self._row)
        return at

    def _grow(self, more: int) -> None:
        """Makes room for `more` further keys."""
        needed = len(self._row) + len(self._free) + more
        if needed > len(self._rows):
            rows = values.zeros(self._dtype, (max(needed, 2 * len(self._rows)), *self._shape))
            rows[: len(self._rows)] = self._rows
            self._rows = rows


def _key_size(key: int | bytes) -> int:
    """Bytes that a key counts for."""
    return 8 + (len(key) if isinstance(key, bytes) else 0)


def _key_array(keys: Sequence[int | bytes], dtype: DType) -> np.ndarray:
    out: np.ndarray = values.zeros(dtype, (len(keys),))
    out[:] = keys
    return out


class HashTable(Table):
    """Table that is filled once, behind HashTableV2 and AnonymousHashTable."""

    def __init__(self, name: str, key_dtype: DType, value_dtype: DType, account: Account | None = None) -> None:
        super().__init__(name, key_dtype, value_dtype, account=account)
        self._rows: _Rows | None = None

    @property
    def is_initialized(self) -> bool:
        """Whether the table was filled."""
        return self._rows is not None

    def initialize(self, keys: np.ndarray, new: np.ndarray) -> None:
        """Fills the table; further calls with as many keys have no effect, as in TensorFlow.

        Raises:
          InvalidArgumentError: There are no keys.
          FailedPreconditionError: A key has two values, or the table was filled with another number of keys.
        """
        with self._lock:
            if self._rows is not None:
                if len(self._rows) != keys.size:
                    raise FailedPreconditionError(
                        f"Table was already initialized with different data: {self.name} has {len(self._rows)} keys, "
                        f"and these are {keys.size}"
                    )
                return
            if not keys.size:
                raise InvalidArgumentError("keys and values cannot be empty tensors.")
            rows = _Rows(self.value_dtype, ())
            if self.account is not None:
                self.account.set(rows.growth(keys, new))
            rows.put(keys, new)
            flat = new.reshape(-1)
            got = rows.find(keys.reshape(-1), flat, each=True)
            wrong = np.flatnonzero((got != flat) & ~((got != got) & (flat != flat)))
            if wrong.size:
                self.release()
                key, last = keys.reshape(-1)[wrong[0]], got[wrong[0]]
                raise FailedPreconditionError(
                    f"HashTable has different value for same key. Key {_show(key)} has {_show(flat[wrong[0]])} and "
                    f"trying to add value {_show(last)}"
                )
            self._rows = rows

    def size(self) -> int:
        """Number of keys; 0 before the table is filled."""
        return 0 if self._rows is None else len(self._rows)

    def find(self, keys: np.ndarray, default: Any) -> np.ndarray:
        """Values of `keys`; for missing ones the first element of `default`.

        Raises:
          FailedPreconditionError: The table is not filled.
        """
        rows = self._rows
        if rows is None:
            raise FailedPreconditionError(f"Table not initialized: run the initializer of {self.name} first")
        if not keys.size:
            return values.zeros(self.value_dtype, keys.shape)  # type: ignore[no-any-return]
        return rows.find(keys, np.reshape(default, -1)[0], each=False)

    def insert(self, keys: np.ndarray, new: np.ndarray) -> None:
        """Raises `UnimplementedError`, because the table cannot change."""
        raise UnimplementedError("Insert not supported by InitializableLookupTable implementations")

    def remove(self, keys: np.ndarray) -> None:
        """Raises `UnimplementedError`, because the table cannot change."""
        raise UnimplementedError("Remove not supported by InitializableLookupTable implementations")

    def export(self) -> tuple[np.ndarray, np.ndarray]:
        """All keys, in the order of insertion, and their values.

        Raises:
          AbortedError: The table is not filled.
        """
        rows = self._rows
        if rows is None:
            raise AbortedError(f"HashTable is not initialized: run the initializer of {self.name} first")
        keys = rows.keys()
        return _key_array(keys, self.key_dtype), rows.taken(keys)

    def restore(self, keys: np.ndarray, new: np.ndarray) -> None:
        """Fills the table; see `initialize`."""
        self.initialize(keys, new)


class MutableHashTable(Table):
    """Table that can change, behind MutableHashTableV2 and MutableHashTableOfTensorsV2.

    All values have one shape.
    """

    def __init__(
        self,
        name: str,
        key_dtype: DType,
        value_dtype: DType,
        value_shape: tuple[int, ...] = (),
        account: Account | None = None,
    ) -> None:
        super().__init__(name, key_dtype, value_dtype, value_shape, account)
        self._rows = _Rows(value_dtype, value_shape)

    def size(self) -> int:
        """Number of keys."""
        return len(self._rows)

    def find(self, keys: np.ndarray, default: Any) -> np.ndarray:
        """Values of `keys`; for missing ones `default`, or its row for the key."""
        # if it has as many elements as the result, each key has a row of its own
        each = np.size(default) == keys.size * math.prod(self.value_shape)
        with self._lock:
            return self._rows.find(keys, default, each)

    def insert(self, keys: np.ndarray, new: np.ndarray) -> None:
        """Sets the values of keys; the last one for a key that occurs several times."""
        with self._lock:
            if self.account is not None:
                self.account.add(self._rows.growth(keys, new))
            self._rows.put(keys, new)

    def remove(self, keys: np.ndarray) -> None:
        """Removes keys; missing ones are ignored."""
        with self._lock:
            if self.account is not None:
                self.account.remove(self._rows.share(keys))
            self._rows.drop(keys)

    def export(self) -> tuple[np.ndarray, np.ndarray]:
        """All keys and their values, in the order of a C++ hash table."""
        with self._lock:
            keys = self._rows.keys()
            keys = [keys[i] for i in hash_order.unordered(list(map(hash_order.hash_of, keys)))]
            return _key_array(keys, self.key_dtype), self._rows.taken(keys)

    def restore(self, keys: np.ndarray, new: np.ndarray) -> None:
        """Replaces the contents by `keys` and their values."""
        rows = _Rows(self.value_dtype, self.value_shape)
        with self._lock:
            if self.account is not None:
                self.account.set(rows.growth(keys, new))
            rows.put(keys, new)
            self._rows = rows


def _show(x: Any) -> str:
    return x.decode("utf-8", "replace") if isinstance(x, bytes) else str(x)
