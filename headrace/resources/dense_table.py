"""Open-addressing tables: an array of buckets with keys and their values.

TensorFlow exports the buckets of such a table, so the layout is TensorFlow's. The search for a key starts at the bucket
of its hash and proceeds in steps of 1, 2, 3, ..., until it finds the key or an empty bucket. A removed key is replaced
by the *deleted key*. The number of buckets doubles if the next keys might fill them above the load factor.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from headrace import dtypes, shapes
from headrace.errors import InvalidArgumentError
from headrace.resources import values
from headrace.resources.hash_order import MASK, hash_of
from headrace.resources.table import Table
from headrace.resources.values import shape_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from headrace.dtypes import DType
    from headrace.resources.account import Account

    Key = tuple[int | bytes, ...]


class DenseTable(Table):
    """Table behind MutableDenseHashTableV2 and AnonymousMutableDenseHashTable."""

    def __init__(
        self,
        name: str,
        key_dtype: DType,
        value_dtype: DType,
        value_shape: tuple[int, ...],
        empty_key: Any,
        deleted_key: Any,
        buckets: int,
        max_load_factor: float,
        account: Account | None = None,
    ) -> None:
        """Makes an empty table.

        Args:
          name: The name, for messages.
          key_dtype: The dtype of the keys.
          value_dtype: The dtype of the values.
          value_shape: The shape of one value.
          empty_key: A key that is never used, which marks empty buckets.
          deleted_key: Another key that is never used, which marks removed keys.
          buckets: The initial number of buckets, a power of 2.
          max_load_factor: The largest fraction of the buckets that may be used.
          account: The account of the buckets, used or not; None if they are not counted.

        Raises:
          InvalidArgumentError: An argument is invalid.
        """
        super().__init__(name, key_dtype, value_dtype, value_shape, account)
        if not 0 < max_load_factor < 1:
            raise InvalidArgumentError(f"max_load_factor must be between 0 and 1, got: {max_load_factor:g}")
        if len(value_shape) > 1:
            raise InvalidArgumentError(
                f"Empty value must be a scalar or a vector, got shape {shapes.show(value_shape)}"
            )
        if len(shape_of(empty_key)) > 1:
            raise InvalidArgumentError(
                f"Empty key must be a scalar or a vector, got shape {shapes.show(shape_of(empty_key))}"
            )
        if shape_of(empty_key) != shape_of(deleted_key):
            raise InvalidArgumentError(
                f"Empty and deleted keys must have same shape, got shapes: {shapes.show(shape_of(empty_key))} and "
                f"{shapes.show(shape_of(deleted_key))}"
            )
        self.key_shape = shape_of(empty_key)
        self._empty, self._deleted = (next(_keys(np.reshape(k, (1, -1)))) for k in (empty_key, deleted_key))
        if self._empty == self._deleted:
            raise InvalidArgumentError("Empty and deleted keys cannot be equal")
        if buckets < 4 or buckets & (buckets - 1):
            raise InvalidArgumentError(f"Number of buckets must be at least 4 and a power of 2, got: {buckets}")
        self._load = max_load_factor
        self._width = 1 if value_shape == () else value_shape[0]
        if account is not None:
            account.set(buckets * self._bucket_size())
        self._allocate(buckets)

    def _allocate(self, n: int) -> None:
        self._keys: list[Key] = [self._empty] * n
        self._values: np.ndarray = values.zeros(self.value_dtype, (n, self._width))
        self._size = 0

    def size(self) -> int:
        """Number of keys."""
        return self._size

    def find(self, keys: np.ndarray, default: Any) -> np.ndarray:
        """Values of `keys`; for missing ones `default`, or its first row if it has several."""
        n = self._batch(keys)
        with self._lock:
            at = np.array([self._seek(k) for k in _keys(keys.reshape(n, len(self._empty)))], np.intp)
            out: np.ndarray = self._values[at]
        gone = np.flatnonzero(at < 0)
        if gone.size:
            out[gone] = np.reshape(default, (-1, self._width))[:1]
        lead = shape_of(keys)[: len(shape_of(keys)) - len(self.key_shape)]
        return out.reshape((*lead, *self.value_shape))

    def insert(self, keys: np.ndarray, new: np.ndarray) -> None:
        """Sets the values of keys. Keys before an invalid one are inserted.

        Raises:
          InvalidArgumentError: A key is the empty or the deleted key.
        """
        n = self._batch(keys)
        rows = new.reshape(n, self._width)
        with self._lock:
            buckets = len(self._keys)
            while self._size + n > buckets * self._load:
                buckets *= 2
            if self.account is not None:
                more = (buckets - len(self._keys)) * self._bucket_size()
                self.account.add(more + sum(map(_text, self._missing(keys))))
            if buckets > len(self._keys):
                old_keys, old_values = self._keys, self._values
                self._allocate(buckets)
                for i, k in enumerate(old_keys):
                    if k not in (self._empty, self._deleted):
                        self._put(k, old_values[i])
            for k, row in zip(_keys(keys.reshape(n, len(self._empty))), rows, strict=True):
                self._put(k, row)

    def remove(self, keys: np.ndarray) -> None:
        """Removes keys."""
        n = self._batch(keys)
        with self._lock:
            for k in _keys(keys.reshape(n, len(self._empty))):
                at = self._seek(k)
                if at >= 0:
                    if self.account is not None:
                        self.account.remove(_text(k))
                    self._keys[at] = self._deleted
                    self._size -= 1

    def export(self) -> tuple[np.ndarray, np.ndarray]:
        """The keys and values of all buckets, each key and value as a vector."""
        with self._lock:
            keys: np.ndarray = values.zeros(self.key_dtype, (len(self._keys), len(self._empty)))
            keys[:] = self._keys
            return keys, self._values.copy()

    def restore(self, keys: np.ndarray, new: np.ndarray) -> None:
        """Replaces the buckets by those of an earlier `export`."""
        held = list(_keys(keys))
        with self._lock:
            if self.account is not None:
                unused = (self._empty, self._deleted)
                self.account.set(len(held) * self._bucket_size() + sum(_text(k) for k in held if k not in unused))
            self._keys = held
            self._values = new.copy()
            self._size = sum(k not in (self._empty, self._deleted) for k in held)

    def check_restore(self, keys: np.ndarray, new: np.ndarray) -> None:
        """Raises `InvalidArgumentError` unless these can be buckets of this table."""
        self._check_dtypes(keys, new)
        shape = shape_of(keys)
        if len(shape) != 2 or shape[1] != len(self._empty):
            raise InvalidArgumentError(
                f"Input key shape {shapes.show(shape)} must end with the table's key shape "
                f"{shapes.show((len(self._empty),))}, and have a row for each bucket"
            )
        self._check_values((shape[0], self._width), new)
        if shape[0] < 4 or shape[0] & (shape[0] - 1):
            raise InvalidArgumentError(f"Number of buckets must be at least 4 and a power of 2, got: {shape[0]}")

    # *** internal; the lock is held ***

    def _batch(self, keys: np.ndarray) -> int:
        """Number of keys in a vector of keys or a single key."""
        shape = shape_of(keys)
        n = shape[0] if shape else 1
        if shape != (n, *self.key_shape) and (shape or self.key_shape):
            raise InvalidArgumentError(
                f"Expected key shape {shapes.show((n, *self.key_shape))} got {shapes.show(shape)}"
            )
        return n

    def _bucket_size(self) -> int:
        """Bytes of a bucket, without the strings of its key."""
        return 8 * len(self._empty) + self._width * self.value_dtype.numpy.itemsize

    def _missing(self, keys: np.ndarray) -> set[Key]:
        """String keys among `keys` that the table does not contain."""
        if self.key_dtype is not dtypes.string:
            return set()
        wanted = set(_keys(keys.reshape(-1, len(self._empty)))) - {self._empty, self._deleted}
        return {k for k in wanted if self._seek(k) < 0}

    def _path(self, key: Key) -> Iterator[int]:
        """Buckets that may contain `key`, in the order of the search, each once."""
        for what, k in (("empty", self._empty), ("deleted", self._deleted)):
            if key == k:
                raise InvalidArgumentError(f"Using the {what}_key as a table key is not allowed")
        last = len(self._keys) - 1
        at = _hash(key)
        for step in range(len(self._keys)):
            at = (at + step) & last
            yield at

    def _seek(self, key: Key) -> int:
        """The bucket of `key`; -1 if it is missing."""
        for at in self._path(key):
            found = self._keys[at]
            if found == key:
                return at
            if found == self._empty:
                break
        return -1

    def _put(self, key: Key, row: Any) -> None:
        for at in self._path(key):
            found = self._keys[at]
            if found in (self._empty, self._deleted):
                self._size += 1
            elif found != key:
                continue
            self._keys[at] = key
            self._values[at] = row
            return
        raise InvalidArgumentError(f"table {self.name} is full: its imported buckets leave no place for a key")


def _keys(rows: np.ndarray) -> Iterator[Key]:
    """Rows of a matrix as tuples."""
    return map(tuple, rows.tolist())


def _text(key: Key) -> int:
    """Bytes of the strings in a key."""
    return sum(len(part) for part in key if isinstance(part, bytes))


def _hash(key: Key) -> int:
    if len(key) == 1:
        return hash_of(key[0])
    h = 0
    for part in key:
        h ^= (hash_of(part) + 0x9E3779B97F4A7800 + (h << 10 & MASK) + (h >> 4)) & MASK
    return h
