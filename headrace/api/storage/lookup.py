"""`hr.lookup`: tables from keys to values.

A table is a resource, so its contents persist from step to step. An initializer fills a `StaticHashTable` once, and the
table never changes afterwards; other tables accept insertions. In a graph an operation fills the table and must run
first (`StaticHashTable.initializer`). In eager execution the constructor fills it.
"""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any, Final, NoReturn

from headrace import dtypes, shapes
from headrace.api import gathering, math, scopes
from headrace.api.grouping import no_op
from headrace.api.sparse_tensor import SparseTensor
from headrace.api.strings import as_string
from headrace.errors import ShapeError
from headrace.ir.builder import Builder

_numbers: Final = itertools.count()  # of tables that share with no other


class TextFileIndex:
    """What a column of a text file can be besides a number: the whole line, or its number, from 0.

    Source: TensorFlow's `tf.lookup.TextFileIndex`.
    """

    WHOLE_LINE = -2
    LINE_NUMBER = -1


# *** what fills a table ***


class TableInitializer:
    """What fills a table of the dtypes `key_dtype` and `value_dtype`."""

    def __init__(self, key_dtype: Any, value_dtype: Any) -> None:
        self._key_dtype = dtypes.as_dtype(key_dtype)
        self._value_dtype = dtypes.as_dtype(value_dtype)

    @property
    def key_dtype(self) -> dtypes.DType:
        """The dtype of the keys."""
        return self._key_dtype

    @property
    def value_dtype(self) -> dtypes.DType:
        """The dtype of the values."""
        return self._value_dtype

    @property
    def shared_name(self) -> str:
        """The name of the tables that it fills alike; "" if each is another."""
        return ""

    def initialize(self, table: Any) -> Any:
        """The operation that fills a table.

        Raises:
          TypeError: it is of other dtypes.
        """
        raise NotImplementedError

    def _check(self, table: Any) -> None:
        for what in ("key_dtype", "value_dtype"):
            theirs, ours = getattr(table, what), getattr(self, what)
            if theirs.base is not ours.base:
                raise TypeError(f"Invalid {what}, expected {ours.name} but the table has {theirs.name}")


class KeyValueTensorInitializer(TableInitializer):
    """Keys and their values as tensors.

    Args:
      keys: a tensor; none of them comes twice with different values.
      values: a tensor of the same shape.
      key_dtype, value_dtype: what they are to be, where that does not follow.
      name: name of the scope of the operation; "key_value_init" if None.

    Source: TensorFlow's `tf.lookup.KeyValueTensorInitializer`.
    """

    def __init__(
        self, keys: Any, values: Any, key_dtype: Any = None, value_dtype: Any = None, name: str | None = None
    ) -> None:
        b = scopes.builder(keys, values)
        wanted = [None if d is None else dtypes.as_dtype(d) for d in (key_dtype, value_dtype)]
        self._keys, self._values = b.tensor(keys, wanted[0], "keys"), b.tensor(values, wanted[1], "values")
        self._name = name or "key_value_init"
        super().__init__(self._keys.dtype, self._values.dtype)

    def initialize(self, table: Any) -> Any:
        """See `TableInitializer.initialize`."""
        self._check(table)
        inputs = (table.resource_handle, self._keys, self._values)
        with scopes.name_scope(self._name, values=inputs):
            return _unordered(scopes.builder(*inputs)).make("LookupTableImportV2", inputs, {})


class TextFileInitializer(TableInitializer):
    """The lines of a text file: a column of each has the key, another the value.

    Args:
      filename: text, or a tensor of it.
      key_dtype: of the keys.
      key_index: which column has the key, from 0; or one of `TextFileIndex`.
      value_dtype: of the values.
      value_index: which column has the value; as `key_index`.
      vocab_size: how many lines there are; None: as many as the file has.
      delimiter: what stands between columns: one character.
      name: name of the scope of the operation; "text_file_init" if None.
      value_index_offset: the number of the first line, where line numbers are the values.

    Raises:
      ValueError: an index, or a dtype for what it means, that makes no sense.

    Source: TensorFlow's `tf.lookup.TextFileInitializer`.
    """

    def __init__(
        self,
        filename: Any,
        key_dtype: Any,
        key_index: int,
        value_dtype: Any,
        value_index: int,
        vocab_size: int | None = None,
        delimiter: str = "\t",
        name: str | None = None,
        value_index_offset: int = 0,
    ) -> None:
        if isinstance(filename, (str, bytes)) and not filename:
            raise ValueError("`filename` argument required for TextFileInitializer")
        super().__init__(key_dtype, value_dtype)
        for what, index, dtype in (("key", key_index, self.key_dtype), ("value", value_index, self.value_dtype)):
            if index < -2:
                raise ValueError(f"`{what}_index` should be >= -2, received: {index}.")
            if index == TextFileIndex.LINE_NUMBER and dtype is not dtypes.int64:
                raise ValueError(f"`{what}_dtype` must be int64 if `{what}_index` is {index}, received: {dtype.name}")
            if index == TextFileIndex.WHOLE_LINE and not dtype.is_integer and dtype is not dtypes.string:
                raise ValueError(
                    f"`{what}_dtype` should be either integer or string for `{what}_index` {index}, received: "
                    f"{dtype.name}"
                )
        if vocab_size is not None and vocab_size <= 0:
            raise ValueError(f"`vocab_size` should be > 0, received: {vocab_size}")
        self._filename, self._name = filename, name
        self._attrs: dict[str, Any] = {
            "key_index": key_index,
            "value_index": value_index,
            "vocab_size": -1 if vocab_size is None else vocab_size,
            "delimiter": delimiter,
            "offset": value_index_offset,
        }

    @property
    def shared_name(self) -> str:
        """See `TableInitializer.shared_name`: what is read from one file in one way is one table."""
        a = self._attrs
        size = f"_{a['vocab_size']}" if a["vocab_size"] > 0 else ""
        offset = f"_{a['offset']}" if a["offset"] else ""
        return f"hash_table_{self._filename}{size}_{a['key_index']}_{a['value_index']}{offset}"

    def initialize(self, table: Any) -> Any:
        """See `TableInitializer.initialize`."""
        self._check(table)
        handle = table.resource_handle
        with scopes.name_scope(self._name, "text_file_init", [handle, self._filename]):
            b = scopes.builder(handle, self._filename)
            path = b.tensor(self._filename, dtypes.string, "asset_filepath")
            return _unordered(b).make("InitializeTableFromTextFileV2", (handle, path), self._attrs)


def _unordered(b: Any) -> Any:
    """A builder for what fills a table: look-ups do not make it run each time, as they do what is inserted."""
    return dataclasses.replace(b, is_ordered=False) if isinstance(b, Builder) else b


# *** tables ***


class LookupTable:
    """What all tables can do."""

    def __init__(self, key_dtype: Any, value_dtype: Any, default_value: Any, name: str) -> None:
        self._key_dtype, self._value_dtype = dtypes.as_dtype(key_dtype), dtypes.as_dtype(value_dtype)
        default = scopes.builder(default_value).tensor(default_value, self._value_dtype)
        self._default: Any = default
        self._name = name
        self._ref: Any = None

    def _open(self, type: str, args: tuple[Any, ...], shared_name: str, **attrs: Any) -> None:
        """Makes the table."""
        b = scopes.builder(*args)
        is_eager = not isinstance(b, Builder)
        if is_eager:
            shared_name = f"table_{next(_numbers)}"
        attrs |= {
            "value_dtype": self._value_dtype,
            "shared_name": shared_name,
            "container": getattr(b.graph, "current_container", ""),
        }
        if type != "MutableDenseHashTableV2":  # whose keys' dtype is that of its empty key
            attrs["key_dtype"] = self._key_dtype
        self._ref = b.make(type, args, attrs, self._name)
        if not is_eager:
            self._name = self._ref.op.name.rpartition("/")[2]

    @property
    def resource_handle(self) -> Any:
        """The tensor of dtype resource that operations know it by."""
        return self._ref

    @property
    def name(self) -> str:
        """The name of the operation that makes its handle, without its scope."""
        return self._name

    @property
    def key_dtype(self) -> dtypes.DType:
        """The dtype of the keys."""
        return self._key_dtype

    @property
    def value_dtype(self) -> dtypes.DType:
        """The dtype of the values."""
        return self._value_dtype

    @property
    def default_value(self) -> Any:
        """The value of keys that it does not have: a tensor."""
        return self._default

    def __iter__(self) -> NoReturn:
        raise TypeError(f"{self!r} cannot be gone through; export() gives what is in it")

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._name!r} of {self._key_dtype.name} to {self._value_dtype.name}>"

    def size(self, name: str | None = None) -> Any:
        """How many keys it has: an int64 scalar."""
        return self._run("Size", "LookupTableSizeV2", (), name)

    def export(self, name: str | None = None) -> tuple[Any, Any]:
        """All keys, and their values in the same order: two tensors."""
        return self._exported("Export", name)

    def _exported(self, called: str, name: str | None) -> tuple[Any, Any]:
        attrs = {"Tkeys": self._key_dtype, "Tvalues": self._value_dtype}
        keys, found = self._run(called, "LookupTableExportV2", (), name, attrs)
        if isinstance(scopes.builder(self._ref), Builder):
            found.refine(shapes.concatenate((None,), self._default.shape))
        return keys, found

    def _found(self, called: str, keys: Any, default: Any, name: str | None) -> Any:
        of = keys.values if isinstance(keys, SparseTensor) else keys
        of = scopes.builder(self._ref, of).tensor(of, None if hasattr(of, "dtype") else self._key_dtype, "keys")
        if of.dtype.base is not self._key_dtype.base:
            raise TypeError(f"Dtype of argument `keys` must be {self._key_dtype.name}, received: {of.dtype.name}")
        found = self._run(called, "LookupTableFindV2", (of, default), name)
        return keys.with_values(found) if isinstance(keys, SparseTensor) else found

    def _run(
        self, called: str, type: str, args: tuple[Any, ...], name: str | None, attrs: dict[str, Any] | None = None
    ) -> Any:
        inputs = (self._ref, *args)
        with scopes.name_scope(name, f"{self._name}_{called}", inputs):
            return scopes.builder(*inputs).make(type, inputs, attrs or {})


class StaticHashTable(LookupTable):
    """A table that an initializer fills, once.

    Args:
      initializer: what fills it: a `KeyValueTensorInitializer` or `TextFileInitializer`.
      default_value: the value of keys that it does not have: a scalar.
      name: of the operation; "hash_table" if None.

    Attributes:
      initializer: the operation that fills it; None outside of graphs, where it has run.

    Raises:
      ShapeError (a ValueError): `default_value` is no scalar.

    Source: TensorFlow's `tf.lookup.StaticHashTable`.

    Example:
      >>> import headrace as hr
      >>> with hr.Graph() as g:
      ...     words = hr.lookup.KeyValueTensorInitializer(["cat", "dog"], [1, 2], value_dtype=hr.int64)
      ...     table = hr.lookup.StaticHashTable(words, -1)
      ...     found = table.lookup(hr.constant(["dog", "cow"]))
      >>> with hr.Session(graph=g) as session:
      ...     session.run(table.initializer)
      ...     session.run(found)
      array([ 2, -1])
    """

    def __init__(self, initializer: TableInitializer, default_value: Any, name: str | None = None) -> None:
        super().__init__(initializer.key_dtype, initializer.value_dtype, default_value, name or "hash_table")
        if not shapes.compatible(self._default.shape, ()):
            raise ShapeError(f"default_value must be a scalar, got {self._default!r}")
        shared_name = initializer.shared_name or f"hash_table_{next(_numbers)}"
        self._open("HashTableV2", (), shared_name)
        self.initializer: Any = initializer.initialize(self)

    def lookup(self, keys: Any, name: str | None = None) -> Any:
        """The value of each key; of those that it does not have the default value.

        Args:
          keys: a tensor, or a sparse tensor, whose values are the keys then.
          name: name of the scope.

        Raises:
          TypeError: they are of another dtype.
        """
        return self._found("Lookup", keys, self._default, name)

    def __getitem__(self, keys: Any) -> Any:
        return self.lookup(keys)


class StaticVocabularyTable:
    """Ids of words: those that a table has; for others one of `num_oov_buckets` further ids, by a hash of the word.

    Args:
      initializer: what fills the table: its keys are strings or int64, its values int64; None: there is no table.
      num_oov_buckets: how many further ids there are, above 0; they follow those of the table.
      lookup_key_dtype: of what is looked up; the dtype of the table's keys if None.
      name: of the operation.

    Attributes:
      initializer: the operation that fills it.

    Raises:
      ValueError: `num_oov_buckets` is not above 0.
      TypeError: the initializer is of other dtypes.

    Source: TensorFlow's `tf.lookup.StaticVocabularyTable`.
    """

    def __init__(
        self,
        initializer: TableInitializer | None,
        num_oov_buckets: int,
        lookup_key_dtype: Any = None,
        name: str | None = None,
    ) -> None:
        if num_oov_buckets <= 0:
            raise ValueError(f"`num_oov_buckets` must be > 0, got {num_oov_buckets}; use StaticHashTable.")
        self._buckets, self._table = num_oov_buckets, None
        self._key_dtype, name = dtypes.string, (name or "").rstrip("/")
        if initializer is not None:
            self._key_dtype = dtypes.as_dtype(lookup_key_dtype or initializer.key_dtype)
            if initializer.key_dtype not in (dtypes.int64, dtypes.string):
                raise TypeError(
                    f"Invalid `key_dtype`, expected one of int64, string, but got {initializer.key_dtype.name}."
                )
            if initializer.key_dtype.is_integer != self._key_dtype.is_integer:
                raise TypeError(
                    f"Invalid `key_dtype`: {self._key_dtype.name} is looked up, the table has "
                    f"{initializer.key_dtype.name}."
                )
            if initializer.value_dtype is not dtypes.int64:
                raise TypeError(f"Invalid `value_dtype`, expected int64 but got {initializer.value_dtype.name}.")
            self._table = self._made(initializer)
            name = name or self._table.name
        if not self._key_dtype.is_integer and self._key_dtype is not dtypes.string:
            raise TypeError(f"Invalid `key_dtype`, expected integer or string, got {self._key_dtype.name}")
        self._name = (name or "hash_bucket").rpartition("/")[2]

    def _made(self, initializer: TableInitializer) -> StaticHashTable:
        return StaticHashTable(initializer, -1)

    @property
    def name(self) -> str:
        """The name of the operation that makes its handle."""
        return self._name

    @property
    def key_dtype(self) -> dtypes.DType:
        """The dtype of the keys."""
        return self._key_dtype

    @property
    def value_dtype(self) -> dtypes.DType:
        """The dtype of the values."""
        return dtypes.int64

    @property
    def resource_handle(self) -> Any:
        """The handle of the table, or None."""
        return None if self._table is None else self._table.resource_handle

    @property
    def initializer(self) -> Any:
        if self._table is not None:
            return self._table.initializer
        with scopes.name_scope(None, "init"):
            return no_op()

    def size(self, name: str | None = None) -> Any:
        """How many ids there are, the further ones among them: an int64 scalar."""
        with scopes.name_scope(name, f"{self._name}_Size"):
            n = scopes.builder().const(0, dtypes.int64) if self._table is None else self._table.size()
            return math.add(n, self._buckets)

    def lookup(self, keys: Any, name: str | None = None) -> Any:
        """The id of each key: an int64 tensor (a sparse one for a sparse tensor).

        Raises:
          TypeError: they are of another dtype.
        """
        of = keys.values if isinstance(keys, SparseTensor) else keys
        b = scopes.builder(of, self.resource_handle)
        of = b.tensor(of, None if hasattr(of, "dtype") else self._key_dtype, "keys")
        if of.dtype.base is not self._key_dtype.base:
            raise TypeError(f"Dtype of argument `keys` must be {self._key_dtype.name}, received: {of.dtype.name}")
        if self._table is not None and self._table.key_dtype is dtypes.int64:
            of = math.cast(of, dtypes.int64)
        with scopes.name_scope(name, f"{self._name}_Lookup", [of]):
            text = of if of.dtype.base is dtypes.string else as_string(of)
            ids = b.make("StringToHashBucketFast", (text,), {"num_buckets": self._buckets}, "hash_bucket")
            if self._table is not None:
                known = self._table.lookup(of)
                ids = math.add(ids, self._table.size())
                ids = gathering.where(math.not_equal(known, self._table.default_value), known, ids)
        return keys.with_values(ids) if isinstance(keys, SparseTensor) else ids

    def __getitem__(self, keys: Any) -> Any:
        return self.lookup(keys)


class _ChangingTable(LookupTable):
    """What the tables can do that take what is inserted."""

    def lookup(self, keys: Any, dynamic_default_values: Any = None, name: str | None = None) -> Any:
        """The value of each key; of those that it does not have the default value.

        Args:
          keys: a tensor.
          dynamic_default_values: of each key a default value of its own, instead of the table's.
          name: name of the scope.

        Raises:
          TypeError: they are of another dtype.
        """
        default = self._default if dynamic_default_values is None else dynamic_default_values
        return self._found("lookup_table_find", keys, default, name)

    def __getitem__(self, keys: Any) -> Any:
        return self.lookup(keys)

    def insert(self, keys: Any, values: Any, name: str | None = None) -> Any:
        """Sets the values of some keys, whether or not it has them: an operation.

        Args:
          keys: a tensor.
          values: a tensor of its shape, and that of the default value.
          name: name of the scope.
        """
        b = scopes.builder(self._ref, keys, values)
        args = (b.tensor(keys, self._key_dtype, "keys"), b.tensor(values, self._value_dtype, "values"))
        return self._run("lookup_table_insert", "LookupTableInsertV2", args, name)

    def remove(self, keys: Any, name: str | None = None) -> Any:
        """Removes keys; those that it does not have are none: an operation."""
        key = scopes.builder(self._ref, keys).tensor(keys, self._key_dtype, "keys")
        return self._run("lookup_table_remove", "LookupTableRemoveV2", (key,), name)

    def export(self, name: str | None = None) -> tuple[Any, Any]:
        """All keys, and their values in the same order: two tensors."""
        return self._exported("lookup_table_export_values", name)


class MutableHashTable(_ChangingTable):
    """A table that takes what is inserted.

    Args:
      key_dtype, value_dtype: of its keys and values.
      default_value: the value of keys that it does not have: a scalar, or a vector if the values are vectors.
      name: of the operation.

    Source: TensorFlow's `tf.lookup.experimental.MutableHashTable`.

    Example:
      >>> import headrace as hr
      >>> with hr.Graph() as g:
      ...     table = hr.lookup.experimental.MutableHashTable(hr.string, hr.float32, 0.0)
      ...     put = table.insert(["a"], [1.5])
      ...     with hr.control_dependencies([put]):
      ...         found = table.lookup(["a", "b"])
      >>> hr.Session(graph=g).run(found)
      array([1.5, 0. ], dtype=float32)
    """

    def __init__(self, key_dtype: Any, value_dtype: Any, default_value: Any, name: str = "MutableHashTable") -> None:
        super().__init__(key_dtype, value_dtype, default_value, name)
        shape = self._default.shape
        if shape == ():
            self._open("MutableHashTableV2", (), "", use_node_name_sharing=True)
        else:
            attrs = {"use_node_name_sharing": True, "value_shape": shape}
            self._open("MutableHashTableOfTensorsV2", (), "", **attrs)


class DenseHashTable(_ChangingTable):
    """A table that takes what is inserted; its keys may be vectors.

    Args:
      key_dtype, value_dtype: of its keys and values.
      default_value: the value of keys that it does not have; its shape is that of the values.
      empty_key, deleted_key: two different keys that are never used. Their shape is that of the keys.
      initial_num_buckets: how much room there is at first, a power of 2; None: as TensorFlow has it.
      name: of the operation.

    Source: TensorFlow's `tf.lookup.experimental.DenseHashTable`.
    """

    def __init__(
        self,
        key_dtype: Any,
        value_dtype: Any,
        default_value: Any,
        empty_key: Any,
        deleted_key: Any,
        initial_num_buckets: int | None = None,
        name: str = "MutableDenseHashTable",
    ) -> None:
        super().__init__(key_dtype, value_dtype, default_value, name)
        b = scopes.builder(empty_key, deleted_key)
        keys = (
            b.tensor(empty_key, self._key_dtype, "empty_key"),
            b.tensor(deleted_key, self._key_dtype, "deleted_key"),
        )
        attrs: dict[str, Any] = {"use_node_name_sharing": True, "value_shape": self._default.shape}
        if initial_num_buckets is not None:
            attrs["initial_num_buckets"] = initial_num_buckets
        self._open("MutableDenseHashTableV2", keys, "", **attrs)

    def export(self, name: str | None = None) -> tuple[Any, Any]:
        """Its buckets, the empty ones among them: keys (a row each) and values (a row each, of one number if they are
        scalars), as TensorFlow gives them."""
        attrs = {"Tkeys": self._key_dtype, "Tvalues": self._value_dtype}
        keys, values = self._run("lookup_table_export_values", "LookupTableExportV2", (), name, attrs)
        return keys, values

    def insert_or_assign(self, keys: Any, values: Any, name: str | None = None) -> Any:
        """`insert`."""
        return self.insert(keys, values, name)

    def erase(self, keys: Any, name: str | None = None) -> Any:
        """`remove`."""
        return self.remove(keys, name)


class experimental:
    """Tables that take what is inserted, in TensorFlow's place."""

    MutableHashTable = MutableHashTable
    DenseHashTable = DenseHashTable
