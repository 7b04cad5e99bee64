"""Tensor lists: immutable lists of tensors that travel along edges as values of dtype variant.

Loops use them: accumulators of the backward pass are pushed in the forward loop and popped in the backward one, and
arrays that a loop fills are lists whose elements it sets. Every change makes a new list that shares storage with the
old one (`persistent.Vector`). So an old version stays valid at no cost, and data dependences alone keep the order.

An element may be *uninitialized*: it stands for zeros of a shape that is determined when it is read. The zeros of a
whole list (`zeros_like`) are such elements, with the original list as the pattern of their shapes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from headrace import dtypes, shapes, thresholds
from headrace.device_arrays import computed
from headrace.errors import InvalidArgumentError, ResourceExhaustedError
from headrace.resources import values
from headrace.resources.element_shapes import check_rows, check_vector, if_full, merge, pieces, show
from headrace.resources.memory import SpilledTensor, prefetch
from headrace.resources.persistent import BLANK as UNINITIALIZED
from headrace.resources.persistent import Vector
from headrace.resources.values import numpy_dtype_of, shape_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from headrace.dtypes import DType
    from headrace.resources.array_accesses import Accesses
    from headrace.resources.values import Arrays, Value
    from headrace.shapes import Shape


_blank: Final = object.__new__


class TensorList:
    """Immutable list of tensors of one dtype, behind the TensorList* ops.

    The elements may be arrays of any namespace. Methods that make arrays take the functions for it (`values.Arrays`);
    those of numpy by default.

    It has neither `__len__` nor `__getitem__`, because numpy would treat it as a sequence and unpack it.

    Attributes:
      element_dtype: The dtype of its elements.
      element_shape: The static shape of all elements.
      max_num_elements: The length that `push` must not exceed; None for any length.
      nbytes: The bytes of its elements, if all were added by `push_counted`; else 0.
      accesses: The accesses to the TensorFlow 1 array of which this is a version; None for no restrictions.
    """

    __slots__ = (
        *("_initialized", "_items", "_pattern", "accesses"),
        *("element_dtype", "element_shape", "max_num_elements", "nbytes"),
    )

    def __init__(
        self,
        element_dtype: DType,
        element_shape: Shape = None,
        items: Vector[Value] | None = None,
        max_num_elements: int | None = None,
        *,
        initialized: int | None = None,
        pattern: TensorList | None = None,
    ) -> None:
        self.element_dtype = element_dtype
        self.element_shape = element_shape
        self.max_num_elements = max_num_elements
        self._items: Vector[Value] = Vector() if items is None else items
        # the number of initialized elements, which makes the addition of a list of zeros O(1)
        self._initialized = len(self._items) if initialized is None else initialized
        self._pattern = pattern
        self.nbytes = 0
        self.accesses: Accesses | None = None

    # *** construction ***

    @classmethod
    def reserve(cls, element_dtype: DType, element_shape: Shape, n: int) -> TensorList:
        """Makes a list of `n` uninitialized elements.

        Raises:
          InvalidArgumentError: `n` is negative.
        """
        if n < 0:
            raise InvalidArgumentError(f"The num_elements to reserve must be a non negative number, but got {n}")
        return cls(element_dtype, element_shape, Vector.blank(n), initialized=0)

    @classmethod
    def from_tensor(
        cls, tensor: np.ndarray, element_dtype: DType, element_shape: Shape, arrays: Arrays = values
    ) -> TensorList:
        """Makes a list of the rows of `tensor`.

        Raises:
          InvalidArgumentError: The tensor is a scalar, or its rows do not fit `element_shape`.
        """
        check_rows(tensor, element_shape)
        return cls(element_dtype, element_shape, Vector.of(arrays.rows(tensor, element_dtype)))

    @classmethod
    def scattered(
        cls,
        tensor: np.ndarray,
        indices: np.ndarray,
        element_dtype: DType,
        element_shape: Shape,
        n: int = -1,
        arrays: Arrays = values,
    ) -> TensorList:
        """Makes a list with row k of `tensor` at `indices[k]`.

        Args:
          tensor: The rows.
          indices: The positions of the rows.
          element_dtype: The dtype of the elements.
          element_shape: The static shape of the elements.
          n: The length; -1 for the smallest possible one.
          arrays: The functions of the namespace of `tensor`.

        Returns:
          The list.

        Raises:
          InvalidArgumentError: An index is out of range, or the rows do not match `element_shape` or the indices.
        """
        check_rows(tensor, element_shape)
        if n < -1:
            raise InvalidArgumentError(f"TensorListScatter expects num_elements >= -1, found: {n}")
        for i in indices.ravel().tolist():
            if i < 0:
                raise InvalidArgumentError(f"Indices in TensorListScatter must all be non-negative, got {i}")
            if n != -1 and i >= n:
                raise InvalidArgumentError(f"TensorListScatter: Trying to scatter at index {i} in list with size {n}")
        return cls.reserve(element_dtype, element_shape, max(n, 0)).scatter(tensor, indices, arrays)

    @classmethod
    def split(cls, tensor: np.ndarray, lengths: np.ndarray, element_dtype: DType, element_shape: Shape) -> TensorList:
        """Makes a list of consecutive pieces of `tensor`, `lengths[k]` rows each.

        Raises:
          InvalidArgumentError: The sum of the lengths is not the number of rows, or the pieces do not fit
            `element_shape`.
        """
        return cls(element_dtype, element_shape, Vector.of(pieces(tensor, lengths, element_shape)))

    # *** reading ***

    def length(self) -> int:
        """Number of elements."""
        return len(self._items)

    @property
    def is_blank(self) -> bool:
        """Whether all elements are uninitialized."""
        return not self._initialized

    def stored(self) -> list[Value]:
        """The elements in the form in which they are stored: also `UNINITIALIZED` and `SpilledTensor`s."""
        return list(self._items)

    @property
    def pattern(self) -> TensorList | None:
        """The list whose elements have the shapes of the uninitialized ones, without its contents."""
        return None if self._pattern is None else self._pattern._outline()

    def get(self, index: int, element_shape: Shape = None, arrays: Arrays = values) -> Value:
        """The element at `index`; zeros if it is uninitialized.

        Args:
          index: The index, from 0.
          element_shape: The static shape that the reader knows.
          arrays: The functions that make the zeros.

        Returns:
          The element.

        Raises:
          InvalidArgumentError: The index is out of range, or the shape of the zeros is unknown.
        """
        n = len(self._items)
        if not 0 <= index < n:
            raise InvalidArgumentError(f"Trying to access element {index} in a list with {n} elements.")
        item = self._items[index]
        if type(item) is SpilledTensor:
            prefetch(self._items, index + 1, 1)
            return item.value()
        if item is not UNINITIALIZED:
            return item
        shape = self._merged(element_shape)
        if not shapes.is_full(shape) and self._known_shape(index) is None:
            for i in range(n):  # as in a list that a loop fills, all elements have one shape
                shape = merge(shape, self._known_shape(i))
        return self._zeros(index, shape, arrays)

    def pop(self, element_shape: Shape = None, arrays: Arrays = values) -> tuple[TensorList, Value]:
        """The list without its last element, and that element (zeros if it is uninitialized).

        Raises:
          InvalidArgumentError: The list is empty, or the shape of the zeros is unknown.
        """
        if not self._items:
            raise InvalidArgumentError("Trying to pop from an empty list.")
        rest, item = self._items.pop()
        if type(item) is SpilledTensor:
            prefetch(rest, len(rest) - 1, -1)
            item = item.value()
        elif type(item) is TensorList and rest and type(rest[len(rest) - 1]) is TensorList:
            inner = rest[len(rest) - 1]._items
            prefetch(inner, len(inner) - 1, -1)
        if item is not UNINITIALIZED:
            return self._with(rest, self._initialized - 1), item
        zeros = self._zeros(len(rest), self._merged(element_shape), arrays)
        return self._with(rest, self._initialized), zeros

    def stack(self, element_shape: Shape = None, num_elements: int = -1, arrays: Arrays = values) -> np.ndarray:
        """All elements as rows of one array.

        Args:
          element_shape: The static shape that the reader knows.
          num_elements: The required number of elements; -1 for any number.
          arrays: The functions that make the array.

        Returns:
          The array.

        Raises:
          InvalidArgumentError: The number is different, the shapes differ, or a shape is unknown.
        """
        n = len(self._items)
        if num_elements not in (-1, n):
            raise InvalidArgumentError(
                f"Operation expected a list with {num_elements} elements but got a list with {n} elements."
            )
        return self._stacked(range(n), list(self._items), element_shape, "stack", arrays)

    def gather(self, indices: np.ndarray, element_shape: Shape = None, arrays: Arrays = values) -> np.ndarray:
        """The elements at `indices` as rows of one array.

        Raises:
          InvalidArgumentError: An index is out of range, the shapes differ, or a shape is unknown.
        """
        n = len(self._items)
        where = indices.ravel().tolist()
        for i in where:
            if not 0 <= i < n:
                raise InvalidArgumentError(f"Trying to gather element {i} in a list with {n} elements.")
        return self._stacked(where, [self._items[i] for i in where], element_shape, "gather", arrays)

    def concat(
        self, element_shape: Shape = None, leading_dims: Sequence[int] = (), arrays: Arrays = values
    ) -> tuple[np.ndarray, np.ndarray]:
        """Joins all elements along their first dimension.

        Args:
          element_shape: The static shape that the reader knows, including the first dimension.
          leading_dims: The length of each uninitialized element.
          arrays: The functions that make the array.

        Returns:
          The joined array, and (an array of numpy) the int64 length of each element.

        Raises:
          InvalidArgumentError: An element is a scalar, the shapes differ, or a shape is unknown.
        """
        known = self._merged(element_shape)
        if known == ():
            raise InvalidArgumentError("Concat requires elements to be at least vectors, found scalars instead.")
        first, rest = (None, None) if known is None else (known[0], known[1:])
        items = _stored(self._items, arrays)
        if not items and not shapes.is_full(rest):
            raise InvalidArgumentError(
                "All except the first dimension must be fully defined when concating an empty tensor list. "
                f"element_shape: {shapes.show(rest)}"
            )
        lengths_known = set()
        for i in () if shapes.is_full(self.element_shape) else range(len(items)):
            given = items[i] is UNINITIALIZED and i < len(leading_dims) and shapes.is_full(rest)
            shape = None if given else self._known_shape(i)
            if shape is None:
                continue
            if not shape:
                raise InvalidArgumentError(f"Concat saw a scalar shape at index {i} but requires at least vectors.")
            rest = merge(rest, shape[1:])
            if first is not None and first != shape[0]:
                raise InvalidArgumentError(
                    "First entry of element_shape input does not match the first dim of list element at index: "
                    f"{i} Expected: {first} Actual: {shape[0]}"
                )
            lengths_known.add(shape[0])
        if rest is None or not shapes.is_full(rest):
            raise InvalidArgumentError(
                "Trying to concat list with only uninitialized tensors but element_shape_except_first_dim is not "
                f"fully defined: {shapes.show(rest)}"
            )
        if first is None and len(lengths_known) == 1:
            first = lengths_known.pop()
        row = tuple(d for d in rest if d is not None)
        for i, item in enumerate(items):
            if item is UNINITIALIZED:
                length = self._length_of(i, first, leading_dims)
                items[i] = arrays.zeros(self.element_dtype, (length, *row))
        lengths = np.array([item.shape[0] for item in items], np.int64)
        return arrays.concat(items, self.element_dtype, row), lengths

    # *** changes; each returns a new list ***

    def push(self, value: Value) -> TensorList:
        """The list with `value` added at its end.

        Raises:
          InvalidArgumentError: The list is full, or `value` does not match its dtype or shape.
        """
        n = len(self._items)
        self._check_element(value, "append", "to a list")
        if self.max_num_elements is not None and n >= self.max_num_elements:
            raise InvalidArgumentError(
                f"Tried to push item into a full list list size: {n} max_num_elements: {self.max_num_elements}"
            )
        return self._with(self._items.push(value), self._initialized + 1)

    def push_counted(self, value: Value, limit: int) -> TensorList | None:
        """The list with `value` added, if its elements have at most `limit` bytes; else None.

        An array in several lists counts in each of them. Repeated elements of a broadcast array do not count.
        """
        nbytes = self.nbytes + values.nbytes_of(value)
        if nbytes > limit:
            return None
        out = self.push(value)
        out.nbytes = nbytes
        return out

    def set(self, index: int, value: Value, resize: bool = False) -> TensorList:
        """The list with `value` at `index`, extended if necessary and `resize` is set.

        Raises:
          InvalidArgumentError: The index is out of range, or `value` does not match.
        """
        n = len(self._items)
        if index >= n and resize:
            if index == n < thresholds.LIST_ELEMENTS:  # the usual case in loops: the next element
                self._check_element(value, "set", "at a list index")
                return self._with(self._items.push(value), self._initialized + 1)
            return self.resized(index + 1).set(index, value)
        if not 0 <= index < n:
            raise InvalidArgumentError(f"Trying to modify element {index} in a list with {n} elements.")
        self._check_element(value, "set", "at a list index")
        more = self._items[index] is UNINITIALIZED
        return self._with(self._items.set(index, value), self._initialized + more)

    def scatter(self, tensor: np.ndarray, indices: np.ndarray, arrays: Arrays = values) -> TensorList:
        """The list with row k of `tensor` at `indices[k]`, extended if necessary.

        Raises:
          InvalidArgumentError: An index is negative, or the rows do not match the list or the indices.
        """
        check_vector(tensor)
        if indices.ndim != 1:
            raise InvalidArgumentError(f"Expected indices to be a vector, but received shape: {show(indices)}")
        where = indices.tolist()
        if len(where) != tensor.shape[0]:
            raise InvalidArgumentError(
                "Invalid number of rows in input tensor. Expected len(indices) == tensor.shape[0], "
                f"but saw: {len(where)} vs. {tensor.shape[0]}"
            )
        if not where:
            return self
        if min(where) < 0:
            raise InvalidArgumentError(f"Indices to scatter at must all be non-negative, got {min(where)}")
        rows = arrays.rows(tensor, self.element_dtype)
        self._check_element(rows[0], "set", "at a list index")
        out = self.resized(max(len(self._items), max(where) + 1))
        if len(where) * thresholds.LIST_CHANGES < len(out._items):
            return out._with_each(zip(where, rows, strict=True))
        items = list(out._items)
        for i, row in zip(where, rows, strict=True):
            items[i] = row
        return self._with_items(items)

    def unset(self, indices: Iterable[int]) -> TensorList:
        """The list with uninitialized elements at `indices`.

        Elements of a list of lists become None instead, because the pattern would yield the zeros of another list.

        Raises:
          InvalidArgumentError: The list has no element of an index.
        """
        nothing = None if self.element_dtype is dtypes.variant else UNINITIALIZED
        indices, n = list(indices), len(self._items)
        for i in indices:
            if not 0 <= i < n:
                raise InvalidArgumentError(f"Trying to modify element {i} in a list with {n} elements.")
        return self._with_each((i, nothing) for i in indices)

    def resized(self, n: int) -> TensorList:
        """The list with length `n`; added elements are uninitialized.

        Raises:
          InvalidArgumentError: `n` is negative.
          ResourceExhaustedError: `n` is implausibly large.
        """
        old = len(self._items)
        if n < 0:
            raise InvalidArgumentError(f"TensorListSlice expects size to be non-negative. Got: {n}")
        if n == old:
            return self
        if n > max(old, thresholds.LIST_ELEMENTS):
            raise ResourceExhaustedError(
                f"OOM when growing a list of {old} elements to {n}; the limit is {thresholds.LIST_ELEMENTS}"
            )
        if abs(n - old) > thresholds.LIST_CHANGES:
            items = list(self._items)[:n]
            return self._with_items(items + [UNINITIALIZED] * (n - len(items)))
        few, initialized = self._items, self._initialized
        for _ in range(n - old):
            few = few.push(UNINITIALIZED)
        for _ in range(old - n):
            few, item = few.pop()
            initialized -= item is not UNINITIALIZED
        return self._with(few, initialized)

    def concat_lists(self, other: TensorList, join_shapes: bool = False) -> TensorList:
        """The elements of this list, followed by those of `other`.

        Raises:
          InvalidArgumentError: The dtypes differ, or the element shapes differ without `join_shapes`.
        """
        if self.element_dtype != other.element_dtype:
            raise InvalidArgumentError(
                f"input_a and input_b hold different dtypes. Saw: {self.element_dtype} vs. {other.element_dtype}"
            )
        if self.element_shape != other.element_shape and not join_shapes:
            raise InvalidArgumentError(
                "input_a and input_b TensorList element shapes are not identical. "
                f"Saw {shapes.show(self.element_shape)} vs. {shapes.show(other.element_shape)}"
            )
        out = self._with_items([*self._items, *other._items])
        out.element_shape = shapes.join(self.element_shape, other.element_shape)
        if self._pattern or other._pattern:
            out._pattern = self._shapes().concat_lists(other._shapes(), join_shapes=True)
        return out

    def split_at(self, n: int) -> tuple[TensorList, TensorList]:
        """The first `n` elements, and the others.

        Raises:
          InvalidArgumentError: The list has fewer elements.
        """
        if n > len(self._items):
            raise InvalidArgumentError(f"cannot take the first {n} elements of a list with {len(self._items)} elements")
        items = list(self._items)
        first, rest = self._with_items(items[:n]), self._with_items(items[n:])
        if self._pattern:
            first._pattern, rest._pattern = self._shapes().split_at(n)
        return first, rest

    def _shapes(self) -> TensorList:
        """A list of equal length whose elements, or their pattern, have the known shapes."""
        if self._pattern is None:
            return self
        known = [
            a if a is not UNINITIALIZED else b
            for a, b in zip(self._items, self._pattern.resized(len(self._items))._shapes()._items)
        ]
        out = self._with_items(known)
        out._pattern = None
        return out

    def _outline(self) -> TensorList:
        """The list with zeros of the same shapes, each a view of one element."""
        known = self._shapes()
        return known._with_items([_outline(item, self.element_dtype) for item in known._items])

    def zeros_like(self) -> TensorList:
        """A list of equal length whose elements are zeros of the same shapes; O(log n)."""
        items: Vector[Value] = Vector.blank(len(self._items))
        pattern = self if self._initialized else self._pattern
        return TensorList(self.element_dtype, self.element_shape, items, initialized=0, pattern=pattern)

    def add(self, other: TensorList) -> TensorList:
        """The elementwise sum, in which uninitialized elements are zeros.

        The cost is O(1) if all elements of one list are uninitialized, and O(k log n) if k are not.

        Raises:
          InvalidArgumentError: The dtypes, lengths or shapes differ.
        """
        if self.element_dtype != other.element_dtype:
            raise InvalidArgumentError(
                f"Trying to add two lists of tensors of different dtypes: {self.element_dtype} and "
                f"{other.element_dtype}"
            )
        if len(self._items) != len(other._items):
            raise InvalidArgumentError(
                f"Trying to add two lists of tensors with different lengths: {len(self._items)} and {len(other._items)}"
            )
        if not shapes.compatible(self.element_shape, other.element_shape):
            raise InvalidArgumentError(
                "Trying to add two lists of tensors with incompatible element shapes: "
                f"{shapes.show(self.element_shape)} and {shapes.show(other.element_shape)}"
            )
        shape = shapes.merge(self.element_shape, other.element_shape)
        pattern = _fuller(self._pattern, other._pattern)
        for zero, full in ((self, other), (other, self)):
            if not zero._initialized:
                return TensorList(
                    self.element_dtype, shape, full._items, initialized=full._initialized, pattern=pattern
                )
        both = 0

        def added(a: Value, b: Value) -> Value:
            nonlocal both
            both += 1
            return _add(a, b)

        items = self._items.merged(other._items, added)
        initialized = self._initialized + other._initialized - both
        return TensorList(self.element_dtype, shape, items, initialized=initialized, pattern=pattern)

    def __repr__(self) -> str:
        n, k = len(self._items), self._initialized
        unset = "" if k == n else f", {n - k} uninitialized"
        return f"TensorList({n} of {self.element_dtype.name}{shapes.show(self.element_shape)}{unset})"

    # *** internal ***

    def _with(self, items: Vector[Value], initialized: int) -> TensorList:
        out = _blank(TensorList)  # faster than a call with keywords, as loops push often
        out.element_dtype = self.element_dtype
        out.element_shape = self.element_shape
        out.max_num_elements = self.max_num_elements
        out._items = items
        out._initialized = initialized
        out._pattern = self._pattern
        out.nbytes = 0
        out.accesses = self.accesses
        return out

    def tracked(self, accesses: Accesses | None) -> TensorList:
        """The list as a version of the array with these `accesses`."""
        out = self._with(self._items, self._initialized)
        out.accesses = accesses
        return out

    def _with_each(self, changes: Iterable[tuple[int, Value]]) -> TensorList:
        """The list with some elements changed one by one."""
        items, initialized = self._items, self._initialized
        for i, value in changes:
            initialized += (value is not UNINITIALIZED) - (items[i] is not UNINITIALIZED)
            items = items.set(i, value)
        return self._with(items, initialized)

    def _with_items(self, items: list[Value]) -> TensorList:
        return self._with(Vector.of(items), sum(item is not UNINITIALIZED for item in items))

    def _check_element(self, value: Value, verb: str, where: str) -> None:
        dtype, wanted = numpy_dtype_of(value), self.element_dtype.numpy
        if dtype is not wanted and not values.is_foreign(value) and dtype != wanted:
            raise InvalidArgumentError(
                f"Invalid data types; list elements {self.element_dtype.name} but tried to {verb} {dtype}"
            )
        shape = shape_of(value)
        if shape != self.element_shape and not shapes.fits(shape, self.element_shape):
            raise InvalidArgumentError(
                f"Tried to {verb} a tensor with incompatible shape {where}. Op element shape: "
                f"{shapes.show(shape)} list shape: {shapes.show(self.element_shape)}"
            )

    def _merged(self, element_shape: Shape) -> Shape:
        return merge(element_shape, self.element_shape)

    def _known_shape(self, index: int) -> tuple[int, ...] | None:
        """The shape of the element at `index`, if it or its pattern is initialized."""
        item = self._items[index]
        if item is not UNINITIALIZED:
            return shape_of(item)
        if self._pattern is not None and index < len(self._pattern._items):
            return self._pattern._known_shape(index)
        return None

    def _zeros(self, index: int, shape: Shape, arrays: Arrays) -> Value:
        """The zeros for the uninitialized element at `index`."""
        if self.element_dtype is dtypes.variant and self._pattern is not None:
            inner = self._pattern.get(index)
            return None if inner is None else inner.zeros_like()
        full = if_full(shape if shapes.is_full(shape) else merge(shape, self._known_shape(index)))
        if full is None:
            raise InvalidArgumentError(
                "Trying to read an uninitialized tensor but element_shape is not fully defined: "
                f"{shapes.show(shape)} and no list element is set."
            )
        return arrays.zeros(self.element_dtype, full)

    def _stacked(
        self, where: Sequence[int], items: list[Value], element_shape: Shape, verb: str, arrays: Arrays
    ) -> np.ndarray:
        """Stacks `items`, the elements at `where`."""
        shape = self._merged(element_shape)
        if not items and not shapes.is_full(shape):
            raise InvalidArgumentError(
                f"Tried to {verb} elements of an empty list with non-fully-defined element_shape: {shapes.show(shape)}"
            )
        if not shapes.is_full(self.element_shape):
            fixed = shapes.is_full(shape)  # then zeros have that shape, independent of the pattern
            for i, item in zip(where, items, strict=True):
                known = None if fixed and item is UNINITIALIZED else self._known_shape(i)
                if known is not None and known != shape:
                    shape = merge(shape, known)
        full = if_full(shape)
        if full is None:
            raise InvalidArgumentError(
                f"Tried to {verb} list which only contains uninitialized tensors and has a non-fully-defined "
                f"element_shape: {shapes.show(shape)}. Was what write() returned lost? It is a new array, which "
                "knows the element: array = array.write(i, x), and in a loop the array is one of the loop variables. "
                "(Where elements may be missing, give the array an element_shape.)"
            )
        if not self._initialized and self.element_dtype is not dtypes.variant:
            zeros: np.ndarray = arrays.zeros(self.element_dtype, (len(items), *full))
            return zeros
        if self._initialized < len(self._items):
            items = [
                self._zeros(i, full, arrays) if item is UNINITIALIZED else item
                for i, item in zip(where, items, strict=True)
            ]
        stacked: np.ndarray = arrays.stack(_stored(items, arrays), self.element_dtype, full)
        return stacked

    def _length_of(self, index: int, first: int | None, leading_dims: Sequence[int]) -> int:
        """Number of rows of the uninitialized element at `index` in a concatenation."""
        if index < len(leading_dims):
            return int(leading_dims[index])
        pattern = self._known_shape(index)
        if pattern is not None:
            return pattern[0]
        if first is None:
            raise InvalidArgumentError(
                f"List contains uninitialized tensor at index {index} but leading_dims has only "
                f"{len(leading_dims)} elements."
            )
        return first


def list_of(value: Value, element_dtype: DType | None = None) -> TensorList:
    """The list in `value`, a scalar tensor of dtype variant, with elements of `element_dtype`.

    Raises:
      InvalidArgumentError: The value is not a list, or has elements of another dtype.
    """
    if not isinstance(value, TensorList):
        if shape_of(value):
            raise InvalidArgumentError(f"Input list must be a scalar saw: {shapes.show(shape_of(value))}")
        raise InvalidArgumentError(f"Input handle is not a list. Saw: '{value!r}'")
    if element_dtype is not None and value.element_dtype != element_dtype:
        raise InvalidArgumentError(
            f"Invalid data types; op elements {element_dtype.name} but list elements {value.element_dtype.name}"
        )
    return value


def _outline(item: Value, dtype: DType) -> Value:
    if type(item) is TensorList:
        return item._outline()
    shape = shape_of(item)
    return np.broadcast_to(values.zeros(dtype, (1,) * len(shape)), shape) if shape else item


def _fuller(a: TensorList | None, b: TensorList | None) -> TensorList | None:
    """The pattern with more initialized elements."""
    if a is None or b is None:
        return a or b
    return b if b._initialized > a._initialized else a


def _add(a: Any, b: Any) -> Any:
    if a is None or b is None:
        return b if a is None else a
    if getattr(numpy_dtype_of(a), "kind", "") == "O":  # other namespaces have other dtype objects
        return a.add(b)
    if shape_of(a) != shape_of(b):
        raise InvalidArgumentError(
            f"Trying to add list elements of different shapes: {shapes.show(shape_of(a))} and "
            f"{shapes.show(shape_of(b))}"
        )
    return computed(_sum, _present(a), _present(b))


def _sum(xp: Any, a: Any, b: Any) -> Any:
    return a + b


def _present(item: Value) -> Value:
    """A stored element, as an array."""
    return item.value() if type(item) is SpilledTensor else item


def _stored(items: Iterable[Value], arrays: Arrays) -> list[Value]:
    """Stored elements as `arrays` takes them: numpy converts a `SpilledTensor` by itself."""
    return list(items) if arrays is values else [_present(item) for item in items]
