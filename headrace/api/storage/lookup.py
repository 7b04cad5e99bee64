"""`hr.lookup`: tables from keys to values.

A table is a resource, so its contents persist from step to step. An initializer fills a `StaticHashTable` once, and the
table never changes afterwards; other tables accept insertions. In a graph an operation fills the table and must run
first (`StaticHashTable.initializer`). In eager execution the constructor fills it.
"""

from __future__ import annotations

import dataclasses
import itertools
from typing import TYPE_CHECKING, Any, Final, NoReturn

from headrace import dtypes, public_names, shapes
from headrace.api import gathering, math, scopes
from headrace.api.grouping import no_op
from headrace.api.sparse_tensor import SparseTensor
from headrace.api.strings import as_string
from headrace.errors import ShapeError
from headrace.ir.builder import Builder

_numbers: Final = itertools.count()  # for the names of tables that are not shared


class TextFileIndex:
    """Special column indices of `TextFileInitializer`: the whole line, or its line number from 0.

    Source: TensorFlow's `tf.lookup.TextFileIndex`.

    Example:
      >>> import headrace as hr, pathlib, tempfile
      >>> path = pathlib.Path(tempfile.mkdtemp(), "words.txt")
      >>> _ = path.write_text("one\\ntwo\\n")
      >>> index = hr.lookup.TextFileIndex
      >>> init = hr.lookup.TextFileInitializer(str(path), hr.string, index.WHOLE_LINE, hr.int64, index.LINE_NUMBER)
      >>> hr.lookup.StaticHashTable(init, -1).lookup(hr.constant("two")).numpy()
      np.int64(1)
    """

    WHOLE_LINE = -2
    LINE_NUMBER = -1


# *** initializers ***


class TableInitializer:
    """Base of the initializers of tables.

    Example:
      >>> import headrace as hr
      >>> class Letters(hr.lookup.TableInitializer):
      ...     def __init__(self):
      ...         super().__init__(hr.string, hr.int64)
      ...
      ...     def initialize(self, table):
      ...         keys, values = hr.constant(["a", "b"]), hr.constant([1, 2], hr.int64)
      ...         return hr.lookup.KeyValueTensorInitializer(keys, values).initialize(table)
      >>> hr.lookup.StaticHashTable(Letters(), -1).lookup(hr.constant(["b", "z"])).numpy()
      array([ 2, -1])
    """

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
        """The shared name of tables with this content; "": tables are not shared."""
        return ""

    def initialize(self, table: Any) -> Any:
        """Adds the operation that initializes a table.

        Args:
          table: the table.

        Raises:
          TypeError: the table has other dtypes.
        """
        raise NotImplementedError

    def _check(self, table: Any) -> None:
        for what in ("key_dtype", "value_dtype"):
            theirs, ours = getattr(table, what), getattr(self, what)
            if theirs.base is not ours.base:
                raise TypeError(f"Invalid {what}, expected {ours.name} but the table has {theirs.name}")


class KeyValueTensorInitializer(TableInitializer):
    """Table initializer from tensors of keys and values.

    Args:
      keys: a tensor; equal keys must have equal values.
      values: a tensor of the same shape.
      key_dtype, value_dtype: dtypes; None: those of the tensors.
      name: name of the scope of the operation; "key_value_init" if None.

    Source: TensorFlow's `tf.lookup.KeyValueTensorInitializer`.

    Example:
      >>> import headrace as hr
      >>> init = hr.lookup.KeyValueTensorInitializer(["a", "b"], [1, 2])
      >>> with hr.Graph() as g:
      ...     table = hr.lookup.StaticHashTable(init, -1)
      ...     found = table.lookup(hr.constant(["b", "c"]))
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
    """Table initializer from the columns of a text file, one entry for each line.

    Args:
      filename: name of the file, a string or a string tensor.
      key_dtype: dtype of the keys.
      key_index: index of the column of the keys, from 0, or a constant of `TextFileIndex`.
      value_dtype: dtype of the values.
      value_index: index of the column of the values, as `key_index`.
      vocab_size: number of lines to read; None: all lines.
      delimiter: the character between columns.
      name: name of the scope of the operation; "text_file_init" if None.
      value_index_offset: a number that is added to line numbers that are values.

    Raises:
      ValueError: an index is invalid, or the dtype does not match the meaning of the index.

    Source: TensorFlow's `tf.lookup.TextFileInitializer`.

    Example:
      >>> import headrace as hr, pathlib, tempfile
      >>> path = pathlib.Path(tempfile.mkdtemp(), "ages.txt")
      >>> _ = path.write_text("ada 36\\nalan 41\\n")
      >>> init = hr.lookup.TextFileInitializer(str(path), hr.string, 0, hr.int64, 1, delimiter=" ")
      >>> hr.lookup.StaticHashTable(init, -1).lookup(hr.constant("alan")).numpy()
      np.int64(41)
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
        """The shared name of tables that read the same columns of the same file."""
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


def filling(type: str, inputs: tuple[Any, ...]) -> Any:
    """Returns an operation that fills a table, of a given op type."""
    return _unordered(scopes.builder(*inputs)).make(type, inputs, {})


def _unordered(b: Any) -> Any:
    """Returns a builder for initialization: it is not ordered with look-ups."""
    return dataclasses.replace(b, is_ordered=False) if isinstance(b, Builder) else b


# *** tables ***


class LookupTable:
    """Base of tables: handle, dtypes, size and export.

    Attributes:
      made_by: the type, the inputs and the attributes of the operation that creates the handle.

    Example:
      >>> import headrace as hr
      >>> table = hr.lookup.MutableHashTable(hr.string, hr.int64, -1)
      >>> isinstance(table, hr.lookup.LookupTable), table.key_dtype, int(table.size())
      (True, headrace.string, 0)
    """

    def __init__(self, key_dtype: Any, value_dtype: Any, default_value: Any, name: str) -> None:
        self._key_dtype, self._value_dtype = dtypes.as_dtype(key_dtype), dtypes.as_dtype(value_dtype)
        default = scopes.builder(default_value).tensor(default_value, self._value_dtype)
        self._default: Any = default
        self._name = name
        self._ref: Any = None
        self.made_by: tuple[str, tuple[Any, ...], dict[str, Any]] = "", (), {}

    def _open(self, type: str, args: tuple[Any, ...], shared_name: str, **attrs: Any) -> None:
        """Creates the table and its handle."""
        b = scopes.builder(*args)
        is_eager = not isinstance(b, Builder)
        attrs["value_dtype"] = self._value_dtype
        if is_eager:  # without a shared name the table belongs to its handle, which functions under `hr.jit` capture
            attrs.pop("use_node_name_sharing", None)
        else:
            attrs |= {"shared_name": shared_name, "container": getattr(b.graph, "current_container", "")}
        if type != "MutableDenseHashTableV2":  # whose keys' dtype is that of its empty key
            attrs["key_dtype"] = self._key_dtype
        self._ref = b.make(type, args, attrs, self._name)
        self.made_by = type, args, attrs
        if not is_eager:
            self._name = self._ref.op.name.rpartition("/")[2]

    @property
    def resource_handle(self) -> Any:
        """The handle of the table, an input of its operations."""
        return self._ref

    @property
    def name(self) -> str:
        """The name of the operation that creates the handle, without its scope."""
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
        """The value of keys that are not in the table: a tensor."""
        return self._default

    def __iter__(self) -> NoReturn:
        raise TypeError(f"{self!r} cannot be gone through; export() gives what is in it")

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._name!r} of {self._key_dtype.name} to {self._value_dtype.name}>"

    def size(self, name: str | None = None) -> Any:
        """Returns the number of keys: an int64 scalar."""
        return self._run("Size", "LookupTableSizeV2", (), name)

    def export(self, name: str | None = None) -> tuple[Any, Any]:
        """Returns all keys, and their values in the same order: two tensors."""
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
    """Immutable table that an initializer fills once.

    Args:
      initializer: a `KeyValueTensorInitializer` or `TextFileInitializer`.
      default_value: the value of keys that are not in the table: a scalar.
      name: name of the operation; "hash_table" if None.

    Attributes:
      initializer: the operation that fills the table; None outside of graphs, where it has run.

    Raises:
      ShapeError (a ValueError): `default_value` is not a scalar.

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
        """Looks up the values of keys; unknown keys have the default value.

        Args:
          keys: a tensor, or a sparse tensor whose values are the keys.
          name: name of the scope.

        Raises:
          TypeError: the keys have another dtype than the table.
        """
        return self._found("Lookup", keys, self._default, name)

    def __getitem__(self, keys: Any) -> Any:
        return self.lookup(keys)


class StaticVocabularyTable:
    """Table of word ids, with hash buckets for words that are not in it.

    Args:
      initializer: the initializer of the table, with keys of string or int64 and values of int64; None: no table, only
        buckets.
      num_oov_buckets: number of buckets, positive. Their ids follow those of the table.
      lookup_key_dtype: dtype of the keys of look-ups; None: that of the table's keys.
      name: name of the operation.

    Attributes:
      initializer: the operation that fills the table.

    Raises:
      ValueError: `num_oov_buckets` is not positive.
      TypeError: the initializer has other dtypes.

    Source: TensorFlow's `tf.lookup.StaticVocabularyTable`.

    Example:
      >>> import headrace as hr
      >>> init = hr.lookup.KeyValueTensorInitializer(["a", "b"], hr.constant([0, 1], hr.int64))
      >>> table = hr.lookup.StaticVocabularyTable(init, 1)
      >>> table.lookup(hr.constant(["b", "other"])).numpy()
      array([1, 2])
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
        """The name of the operation that creates the handle."""
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
        """Returns the number of ids, including those of the buckets: an int64 scalar."""
        with scopes.name_scope(name, f"{self._name}_Size"):
            n = scopes.builder().const(0, dtypes.int64) if self._table is None else self._table.size()
            return math.add(n, self._buckets)

    def lookup(self, keys: Any, name: str | None = None) -> Any:
        """Looks up the id of each key: an int64 tensor, sparse for sparse keys.

        Args:
          keys: a tensor, or a sparse tensor whose values are the keys.
          name: name of the scope.

        Raises:
          TypeError: the keys have another dtype than the table.
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
    """Base of mutable tables: look-up, insertion and removal."""

    def lookup(self, keys: Any, dynamic_default_values: Any = None, name: str | None = None) -> Any:
        """Looks up the values of keys; unknown keys have the default value.

        Args:
          keys: a tensor.
          dynamic_default_values: a default value for each key, in place of the table's.
          name: name of the scope.

        Raises:
          TypeError: the keys have another dtype than the table.
        """
        default = self._default if dynamic_default_values is None else dynamic_default_values
        return self._found("lookup_table_find", keys, default, name)

    def __getitem__(self, keys: Any) -> Any:
        return self.lookup(keys)

    def insert(self, keys: Any, values: Any, name: str | None = None) -> Any:
        """Adds an operation that sets the values of new or existing keys.

        Args:
          keys: a tensor.
          values: a tensor whose shape is that of `keys` followed by that of the default value.
          name: name of the scope.
        """
        b = scopes.builder(self._ref, keys, values)
        args = (b.tensor(keys, self._key_dtype, "keys"), b.tensor(values, self._value_dtype, "values"))
        return self._run("lookup_table_insert", "LookupTableInsertV2", args, name)

    def remove(self, keys: Any, name: str | None = None) -> Any:
        """Adds an operation that removes keys; keys that are not in the table are ignored."""
        key = scopes.builder(self._ref, keys).tensor(keys, self._key_dtype, "keys")
        return self._run("lookup_table_remove", "LookupTableRemoveV2", (key,), name)

    def export(self, name: str | None = None) -> tuple[Any, Any]:
        """Returns all keys, and their values in the same order: two tensors."""
        return self._exported("lookup_table_export_values", name)


class MutableHashTable(_ChangingTable):
    """Mutable table from scalar keys to scalars or vectors.

    Args:
      key_dtype, value_dtype: dtypes of the keys and values.
      default_value: the value of keys that are not in the table: a scalar, or a vector if the values are vectors.
      name: name of the operation.

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
    """Mutable table whose keys and values may be vectors.

    Args:
      key_dtype, value_dtype: dtypes of the keys and values.
      default_value: the value of keys that are not in the table; it has the shape of a value.
      empty_key, deleted_key: two different keys that are never inserted; they have the shape of a key.
      initial_num_buckets: initial number of buckets, a power of 2; None: TensorFlow's default.
      name: name of the operation.

    Source: TensorFlow's `tf.lookup.experimental.DenseHashTable`.

    Example:
      >>> import headrace as hr
      >>> table = hr.lookup.DenseHashTable(hr.string, hr.int64, -1, "", "deleted")
      >>> done = table.insert(hr.constant(["a"]), hr.constant([5], hr.int64))
      >>> table.lookup(hr.constant(["a", "b"])).numpy()
      array([ 5, -1])
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
        """Returns the keys and values of all buckets, including empty ones, as TensorFlow does.

        Both tensors have a row for each bucket.
        """
        attrs = {"Tkeys": self._key_dtype, "Tvalues": self._value_dtype}
        keys, values = self._run("lookup_table_export_values", "LookupTableExportV2", (), name, attrs)
        return keys, values

    def insert_or_assign(self, keys: Any, values: Any, name: str | None = None) -> Any:
        """Calls `insert`."""
        return self.insert(keys, values, name)

    def erase(self, keys: Any, name: str | None = None) -> Any:
        """Calls `remove`."""
        return self.remove(keys, name)


class experimental:
    """Namespace of the mutable tables, as in TensorFlow.

    Example:
      >>> import headrace as hr
      >>> hr.lookup.experimental.MutableHashTable is hr.lookup.MutableHashTable
      True
    """

    MutableHashTable = MutableHashTable
    DenseHashTable = DenseHashTable


# fmt: off
__all__ = [
    "DenseHashTable", "KeyValueTensorInitializer", "LookupTable", "MutableHashTable", "StaticHashTable",
    "StaticVocabularyTable", "TableInitializer", "TextFileIndex", "TextFileInitializer", "experimental",
]
# fmt: on

if not TYPE_CHECKING:
    __getattr__, __dir__ = public_names.of(__name__, __all__)
