"""Values of a model other than tensors: sequences and optional values.

Both are composites, so conditionals and loops carry them and gradients pass through them. A sequence is a tensor list
whose elements may have different shapes. An optional value is a flag with a value; without one, the value is empty.
"""

from __future__ import annotations

from collections.abc import Hashable
from collections.abc import Sequence as Parts
from typing import Any, TypeAlias

import headrace.api.raw_ops as raw_ops
from headrace import nest
from headrace.api import arrays, gathering, tensors
from headrace.api.math import cast
from headrace.api.while_loop import while_loop
from headrace.dtypes import DType, bool_, int32
from headrace.errors import InvalidArgumentError
from headrace.ir.tensor_type import Tensor


class Sequence(nest.Composite):
    """Sequence of tensors of one dtype.

    Args:
      handle: the tensor list, a variant scalar.
      dtype: the dtype of the elements.
    """

    __slots__ = ("dtype", "handle")

    def __init__(self, handle: Any, dtype: DType) -> None:
        self.handle = handle
        self.dtype = dtype

    @classmethod
    def of(cls, elements: Parts[Any], dtype: DType) -> Sequence:
        """Returns the sequence of some tensors."""
        out = cls(raw_ops.EmptyTensorList(element_shape=-1, max_num_elements=-1, element_dtype=dtype), dtype)
        for x in elements:
            out = out.appended(x)
        return out

    def _flatten(self) -> list[Any]:
        return [self.handle]

    def _unflatten(self, parts: Parts[Any]) -> Sequence:
        return Sequence(parts[0], self.dtype)

    def _key(self) -> Hashable:
        return ("sequence", self.dtype.name)

    def appended(self, x: Any) -> Sequence:
        """Returns this sequence with `x` at its end."""
        return Sequence(raw_ops.TensorListPushBack(input_handle=self.handle, tensor=x), self.dtype)

    def length(self) -> Tensor:
        """Returns the number of elements, an int32 scalar."""
        n: Tensor = raw_ops.TensorListLength(input_handle=self.handle)
        return n

    def at(self, index: Any) -> Tensor:
        """Returns the element at an int32 position, which is not negative."""
        x: Tensor = raw_ops.TensorListGetItem(
            input_handle=self.handle, index=index, element_shape=-1, element_dtype=self.dtype
        )
        return x

    def replaced(self, index: Any, x: Any) -> Sequence:
        """Returns this sequence with `x` in place of the element at an int32 position."""
        return Sequence(raw_ops.TensorListSetItem(input_handle=self.handle, index=index, item=x), self.dtype)

    def position(self, index: Any, largest: Any) -> Tensor:
        """Returns an index as an int32 position; a negative one counts from `largest`."""
        index = arrays.reshape(cast(index, int32), ())
        return gathering.where(index < 0, index + largest, index)

    def inserted(self, index: Any, x: Any) -> Sequence:
        """Returns this sequence with `x` before the element at an int32 position."""
        longer = self.appended(x)
        _, moved = while_loop(
            lambda i, _: i > index,
            lambda i, s: (i - 1, s.replaced(i, s.at(i - 1))),
            (self.length(), longer),
        )
        return moved.replaced(index, x)  # type: ignore[no-any-return]

    def erased(self, index: Any) -> Sequence:
        """Returns this sequence without the element at an int32 position."""
        last = self.length() - 1
        _, moved = while_loop(
            lambda i, _: i < last, lambda i, s: (i + 1, s.replaced(i, s.at(i + 1))), (tensors.identity(index), self)
        )
        shorter, _ = raw_ops.TensorListPopBack(input_handle=moved.handle, element_shape=-1, element_dtype=self.dtype)
        return Sequence(shorter, self.dtype)

    def elements(self) -> list[Tensor]:
        """Returns the elements of a sequence whose length is known."""
        n = tensors.constant_value(self.length())
        if n is None:
            raise InvalidArgumentError("the length of the sequence is known only when the graph runs")
        return [self.at(i) for i in range(int(n))]


class Optional(nest.Composite):
    """Value that may be absent.

    Args:
      present: whether there is a value, a boolean scalar.
      value: the value; an empty tensor or sequence if there is none.
    """

    __slots__ = ("present", "value")

    def __init__(self, present: Any, value: Tensor | Sequence) -> None:
        self.present = present
        self.value = value

    @classmethod
    def empty(cls, dtype: DType, of_sequence: bool) -> Optional:
        """Returns the absent value of a type."""
        value = Sequence.of((), dtype) if of_sequence else arrays.zeros((0,), dtype)
        return cls(tensors.constant(False, bool_), value)

    def _flatten(self) -> list[Any]:
        return [self.present, self.value.handle if isinstance(self.value, Sequence) else self.value]

    def _unflatten(self, parts: Parts[Any]) -> Optional:
        present, value = parts
        return Optional(present, Sequence(value, self.value.dtype) if isinstance(self.value, Sequence) else value)

    def _key(self) -> Hashable:
        return ("optional", isinstance(self.value, Sequence), self.value.dtype.name)


#: A value of a model; None for an input that a node leaves out.
Value: TypeAlias = Tensor | Sequence | Optional | None
