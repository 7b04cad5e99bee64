"""Tensor arrays: write-once arrays that loops read and fill, and their gradient arrays.

An element passes through the states *written*, *read* and *cleared*, in this order:

    write   allowed before the first read; a second time only in a gradient array, where the values are added
    read    of an element never written: zeros if the shape is known, else an error
    clear   a read drops the value (`clear_after_read`), and a second read is an error

A gradient array is made for each (array, source) after the forward array was filled. It copies the size and the shapes
of the written elements. An element is zeros of that shape until a value is added to it.
"""

from __future__ import annotations

import itertools
import threading
from typing import TYPE_CHECKING

import numpy as np

from headrace import dtypes, shapes
from headrace.errors import InvalidArgumentError, UnimplementedError
from headrace.resources import values
from headrace.resources.array_accesses import HAS_BEEN_READ, HAS_BEEN_WRITTEN, not_writable, read_twice
from headrace.resources.values import numpy_dtype_of, shape_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from headrace.dtypes import DType
    from headrace.resources.values import Value
    from headrace.shapes import Shape


class _Element:
    """Element that was written or read."""

    __slots__ = ("cleared", "own", "read", "shape", "value")

    def __init__(self, shape: tuple[int, ...], value: Value | None = None) -> None:
        self.shape = shape
        self.value = value  # None: zeros of this shape, if nothing was added to it yet, or it was cleared
        self.read = False
        self.cleared = False
        self.own = False  # whether `value` is a sum made here that was not read yet


class TensorArray:
    """Array of tensors of one dtype, behind TensorArrayV3 and the ops on it. Thread safe.

    Attributes:
      name: The name, for messages.
      dtype: The dtype of the elements.
      is_grad: Whether it is a gradient array.
    """

    def __init__(
        self,
        name: str,
        dtype: DType,
        size: int,
        *,
        element_shape: Shape = None,
        dynamic_size: bool = False,
        clear_after_read: bool = True,
        identical_element_shapes: bool = False,
        multiple_writes_aggregate: bool = False,
        is_grad: bool = False,
    ) -> None:
        """Makes an array of `size` unwritten elements.

        Args:
          name: The name, for messages.
          dtype: The dtype of the elements.
          size: The number of elements.
          element_shape: The static shape of every element.
          dynamic_size: Whether a write beyond the end extends the array.
          clear_after_read: Whether a read of an element drops it.
          identical_element_shapes: Whether the first write determines the shape of all elements.
          multiple_writes_aggregate: Whether an element may be written again, which adds the values.
          is_grad: Whether it is the gradient of another array.

        Raises:
          InvalidArgumentError: `size` is negative.
        """
        if size < 0:
            raise InvalidArgumentError(f"TensorArray {name}: Size should be >= 0, got {size}.")
        self.name = name
        self.dtype = dtype
        self.is_grad = is_grad
        self._element_shape = element_shape
        self._dynamic_size = dynamic_size
        self._clear_after_read = clear_after_read
        self._identical = identical_element_shapes
        self._aggregate = multiple_writes_aggregate
        self._lock = threading.Lock()
        self._size = size
        # only written or read elements, because an array may be declared far larger than it ever becomes
        self._elements: dict[int, _Element] = {}
        self._marked_size = -1  # the size after a split, which a concat of the gradient reads
        self._aggregated = False  # whether an element was written twice, in which case there is no gradient
        self._grads: dict[str, TensorArray] = {}
        self._closed = False

    @property
    def element_shape(self) -> Shape:
        """Static shape of all elements, as far as it is known."""
        return self._element_shape

    def size(self) -> int:
        """Number of elements.

        Raises:
          InvalidArgumentError: The array is closed.
        """
        self._check_open()
        return self._size

    # *** single elements ***

    def write(self, index: int, value: Value) -> None:
        """Writes `value` at `index`.

        Raises:
          InvalidArgumentError: The index, dtype or shape is invalid, or the element was written or read before.
        """
        with self._lock:
            self._write(index, value)

    def read(self, index: int) -> Value:
        """Reads the element at `index`; zeros if never written and of known shape.

        Raises:
          InvalidArgumentError: The index is invalid, the element was cleared, or it was never written and its shape is
            unknown.
        """
        with self._lock:
            return self._read(index)

    # *** many elements ***

    def gather(self, indices: np.ndarray, element_shape: Shape = None) -> np.ndarray:
        """Reads the elements at `indices` as rows of one array.

        Raises:
          InvalidArgumentError: A read fails, or the shapes differ.
          UnimplementedError: There are no indices, and `element_shape` is not fully known.
        """
        if indices.ndim != 1:
            raise InvalidArgumentError(f"Expected indices to be a vector, but received shape: {_show(indices)}")
        with self._lock:
            self._element_shape = self._merge(element_shape)
            if not indices.size:
                return self._no_rows("element shape", element_shape, "packing")
            read = [self._read(i) for i in indices.tolist()]
        shape = shape_of(read[0])
        if not shapes.fits(shape, element_shape):
            raise InvalidArgumentError(
                f"TensorArray was passed element_shape {shapes.show(element_shape)} which does not match the Tensor "
                f"at index 0: {shapes.show(shape)}"
            )
        self._check_same(shape, "", map(shape_of, read))
        return values.stack(read, self.dtype, shape)

    def concat(self, element_shape_except0: Shape = None) -> tuple[np.ndarray, np.ndarray]:
        """Reads all elements and joins them along their first dimension.

        Returns:
          The joined array, and the int64 length of each element.

        Raises:
          InvalidArgumentError: A read fails, an element is a scalar, or the shapes differ.
          UnimplementedError: There are no elements, and `element_shape_except0` is not fully known.
        """
        with self._lock:
            self._check_open()
            n = self._marked_size if self.is_grad and self._marked_size >= 0 else self._size
            if not n:
                return (
                    self._no_rows("element_shape_except0", element_shape_except0, "concatenating"),
                    np.zeros(0, np.int64),
                )
            read = [self._read(i) for i in range(n)]
        for i, v in enumerate(read):
            if not shape_of(v):
                raise InvalidArgumentError(
                    f"Concat saw a scalar shape at index {i} but requires at least vectors.  Did you mean to call pack?"
                )
        rest = shape_of(read[0])[1:]
        if not shapes.fits(rest, element_shape_except0):
            raise InvalidArgumentError(
                f"TensorArray was passed element_shape_except0 {shapes.show(element_shape_except0)} but index 0 has "
                f"(excepting dimension 0) shape: {shapes.show(rest)} which does not match."
            )
        self._check_same(rest, "(excepting dimension 0) ", (shape_of(v)[1:] for v in read))
        return values.concat(read, self.dtype, rest), np.array([len(v) for v in read], np.int64)

    def scatter(self, indices: np.ndarray, value: np.ndarray) -> None:
        """Writes row k of `value` at `indices[k]`.

        Raises:
          InvalidArgumentError: The arguments do not match, an index is out of range, or a write fails.
        """
        if not shape_of(value):
            raise InvalidArgumentError("Input value for unpack must be at least a vector but received shape: []")
        self._check_dtype(value)
        if indices.ndim != 1:
            raise InvalidArgumentError(f"Expected indices to be a vector, but received shape: {_show(indices)}")
        where = indices.tolist()
        if len(where) != len(value):
            raise InvalidArgumentError(
                f"Expected len(indices) == values.shape[0], but saw: {len(where)} vs. {len(value)}"
            )
        with self._lock:
            self._check_open()
            top = max(where, default=-1)
            if top >= self._size and not self._dynamic_size:
                raise InvalidArgumentError(f"Max scatter index must be < array size ({top} vs. {self._size})")
            self._write_all(where, values.rows(value, self.dtype))

    def split(self, value: np.ndarray, lengths: np.ndarray) -> None:
        """Writes consecutive pieces of `value`, `lengths[k]` rows each, to the elements.

        Raises:
          InvalidArgumentError: The sum of the lengths is not the number of rows, their number is not the size, or a
            write fails.
        """
        if lengths.ndim != 1:
            raise InvalidArgumentError(f"Expected lengths to be a vector, received shape: {_show(lengths)}")
        if not shape_of(value):
            raise InvalidArgumentError("Expected value to be at least a vector, but received shape: []")
        ends = list(itertools.accumulate(lengths.tolist()))
        total = ends[-1] if ends else 0
        if total != len(value):
            raise InvalidArgumentError(
                f"Expected sum of lengths to be equal to values.shape[0], but sum of lengths is {total} and "
                f"value's shape is: {_show(value)}"
            )
        if lengths.size and lengths.min() < 0:
            raise InvalidArgumentError(f"Expected lengths to be at least 0, got {lengths.min()}")
        with self._lock:
            self._check_open()
            if self._dynamic_size:
                self._size = max(self._size, len(ends))
            if self._size != len(ends):
                raise InvalidArgumentError(
                    f"TensorArray's size is not equal to the size of lengths ({self._size} vs. {len(ends)}), and the "
                    "TensorArray is not marked as dynamically resizeable"
                )
            self._check_dtype(value)
            if not self.is_grad:
                self._marked_size = self._size
            pieces = [value[start:end] for start, end in zip([0, *ends], ends, strict=False)]
            self._write_all(range(len(ends)), pieces)

    # *** gradients and the end ***

    def grad(self, source: str, shape_to_prepend: tuple[int, ...] | None = None) -> TensorArray:
        """The gradient array of this array for `source`, the same one each time.

        Afterwards this array cannot grow.

        Args:
          source: The name of the gradient computation.
          shape_to_prepend: Dimensions of the gradient's elements before those of this array's elements.

        Returns:
          The gradient array.

        Raises:
          InvalidArgumentError: This array is a gradient itself, or an element was written more than once.
        """
        with self._lock:
            if self.is_grad:
                raise InvalidArgumentError(f"Wrong input container. {self.name} is itself a gradient TensorArray")
            self._check_open()
            self._dynamic_size = False
            if self._aggregated:
                raise InvalidArgumentError(
                    f"Unable to create a gradients TensorArray for {self.name}.  Perhaps you used the "
                    "multiple_writes_aggregate flag on a previous write?  Gradient calculation is impossible when "
                    "multiple writes are performed to the same index."
                )
            if source not in self._grads:
                self._grads[source] = self._new_grad(source, shape_to_prepend or ())
            return self._grads[source]

    def close(self) -> None:
        """Drops all elements; later operations on the array fail."""
        with self._lock:
            self._closed = True
            self._elements.clear()
            self._grads.clear()

    def release(self) -> None:
        """Closes the array and its gradients."""
        for g in list(self._grads.values()):
            g.close()
        self.close()

    def __repr__(self) -> str:
        state = "closed" if self._closed else f"{len(self._elements)} of {self._size} written"
        return f"TensorArray({self.name!r}, {self.dtype.name}{shapes.show(self._element_shape)}, {state})"

    # *** internal; the lock is held ***

    def _write(self, index: int, value: Value) -> None:
        self._check_open()
        if index < 0 or (index >= self._size and not self._dynamic_size):
            raise InvalidArgumentError(
                f"TensorArray {self.name}: Tried to write to index {index} but array is not resizeable and size is: "
                f"{self._size}"
            )
        self._size = max(self._size, index + 1)
        self._check_dtype(value)
        shape = shape_of(value)
        if not shapes.fits(shape, self._element_shape):
            raise not_writable(
                self.name,
                index,
                f"the value shape is {shapes.show(shape)} which is incompatible with the TensorArray's inferred "
                f"element shape: {shapes.show(self._element_shape)} (consider setting infer_shape=False)",
            )
        if self._identical:
            self._element_shape = shape
        old = self._elements.get(index)
        if old is None:
            self._elements[index] = _Element(shape, value)
        elif old.read:
            raise not_writable(self.name, index, HAS_BEEN_READ)
        elif not self._aggregate:
            raise not_writable(self.name, index, HAS_BEEN_WRITTEN)
        else:
            self._add(index, old, value)

    def _add(self, index: int, old: _Element, value: Value) -> None:
        shape = shape_of(value)
        if shape != old.shape:
            raise InvalidArgumentError(
                f"TensorArray {self.name}: Could not aggregate to TensorArray index {index} because the existing "
                f"shape is {shapes.show(old.shape)} but the new input shape is {shapes.show(shape)}."
            )
        if old.value is None:
            old.value = value
            return
        if self.dtype not in dtypes.NUMERIC:
            raise InvalidArgumentError(
                f"TensorArray {self.name}: elements of dtype {self.dtype.name} cannot be added, but index {index} is "
                "written a second time"
            )
        if old.own and isinstance(old.value, np.ndarray):
            np.add(old.value, value, out=old.value)  # in place, because the sum was made here and not read yet
        else:
            old.value = np.add(old.value, value)
            old.own = True
        self._aggregated = True

    def _read(self, index: int) -> Value:
        self._check_open()
        if index < 0 or (index >= self._size and not self.is_grad):
            raise InvalidArgumentError(f"Tried to read from index {index} but array size is: {self._size}")
        element = self._elements.get(index)
        if element is None:
            element = self._unwritten(index)
        if element.cleared:
            raise read_twice(self.name, index)
        value = element.value
        if value is None:
            value = element.value = values.zeros(self.dtype, element.shape)
        element.read = True
        if self._clear_after_read:
            element.value = None
            element.cleared = True
        return value

    def _unwritten(self, index: int) -> _Element:
        """Makes the element at `index` zeros of the known shape."""
        if not shapes.is_full(self._element_shape):
            raise InvalidArgumentError(
                f"TensorArray {self.name}: Could not read from TensorArray index {index}.  Furthermore, the element "
                f"shape is not fully defined: {shapes.show(self._element_shape)}.  Either nothing was written there "
                "(stop_gradients does that to a gradient array), or the array was made without the full "
                "element_shape, with which zeros would be returned"
            )
        shape = tuple(d for d in self._element_shape or () if d is not None)
        self._size = max(self._size, index + 1)
        element = self._elements[index] = _Element(shape)
        return element

    def _write_all(self, where: Iterable[int], all_: Sequence[Value]) -> None:
        for index, value in zip(where, all_, strict=True):
            self._write(index, value)

    def _new_grad(self, source: str, prefix: tuple[int, ...]) -> TensorArray:
        out = TensorArray(
            f"{self.name}@{source}",
            self.dtype,
            self._size,
            element_shape=None if self._element_shape is None else (*prefix, *self._element_shape),
            identical_element_shapes=self._identical,
            multiple_writes_aggregate=True,
            is_grad=True,
        )
        out._marked_size = self._marked_size
        out._elements = {i: _Element((*prefix, *e.shape)) for i, e in self._elements.items()}
        return out

    def _no_rows(self, what: str, shape: Shape, verb: str) -> np.ndarray:
        if not shapes.is_full(shape):
            raise UnimplementedError(
                f"TensorArray has size zero, but {what} {shapes.show(shape)} is not fully defined. "
                f"Currently only static shapes are supported when {verb} zero-size TensorArrays."
            )
        empty: np.ndarray = values.zeros(self.dtype, (0, *(d for d in shape or () if d is not None)))
        return empty

    def _merge(self, shape: Shape) -> Shape:
        try:
            return shapes.merge(self._element_shape, shape)
        except ValueError:
            raise InvalidArgumentError(
                f"TensorArray {self.name}: Incompatible shapes during merge: {shapes.show(self._element_shape)} vs. "
                f"{shapes.show(shape)}"
            ) from None

    def _check_same(self, first: tuple[int, ...], what: str, all_: Iterable[tuple[int, ...]]) -> None:
        for i, shape in enumerate(all_):
            if shape != first:
                raise InvalidArgumentError(
                    f"TensorArray has inconsistent shapes.  Index 0 has {what}shape: {shapes.show(first)} but index "
                    f"{i} has {what}shape: {shapes.show(shape)}"
                )

    def _check_dtype(self, value: Value) -> None:
        if numpy_dtype_of(value) != self.dtype.numpy:
            raise InvalidArgumentError(
                f"TensorArray {self.name}: TensorArray dtype is {self.dtype.name} but Op is trying to write dtype "
                f"{numpy_dtype_of(value)}."
            )

    def _check_open(self) -> None:
        if self._closed:
            raise InvalidArgumentError(f"TensorArray {self.name} has already been closed.")


def _show(array: np.ndarray) -> str:
    return shapes.show(shape_of(array))
