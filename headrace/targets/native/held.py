"""Values in native code, as names of LLVM: numbers in registers, arrays in memory, lists."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np

from headrace.records import record
from headrace.targets.native.element_types import Element
from headrace.targets.native.plan import Strides, row_major


@record(frozen=True, slots=True)
class Number:
    """Number in a register.

    Attributes:
      text: Its name or literal.
      dtype: The dtype; int64 for a counter.
    """

    text: str
    dtype: np.dtype


@record(frozen=True, slots=True)
class Array:
    """Array in memory.

    Attributes:
      pointer: The address of its first element.
      dtype: The dtype.
      shape: The shape. The first dimension may be the name of an i64.
      strides: The distances of the elements along each axis, in elements.
    """

    pointer: str
    dtype: np.dtype
    shape: tuple[int | str, ...]
    strides: Strides

    @property
    def dims(self) -> tuple[int, ...]:
        """The shape if it is static."""
        return tuple([d for d in self.shape if isinstance(d, int)])

    @property
    def is_contiguous(self) -> bool:
        """Whether the elements are in row-major order without gaps."""
        return all(
            d == 1 or s == wanted for d, s, wanted in zip(self.shape, self.strides, row_major(self.shape), strict=True)
        )


@record(frozen=True, slots=True)
class Items:
    """List that is changed in place: addresses of its variables.

    Attributes:
      data: The variable with the address of the first element.
      length: The variable with the number of elements, an i64.
      capacity: The variable with the size of the memory in bytes, an i64.
      contents: The variable with the number of bytes in the lists that are its elements, an i64; "" if its elements
        are no lists.
      element: The type of the elements.
    """

    data: str
    length: str
    capacity: str
    contents: str
    element: Element

    @property
    def variables(self) -> tuple[tuple[str, str], ...]:
        """The variables and their types, in the order of an element in memory."""
        found = ((self.data, "ptr"), (self.length, "i64"), (self.capacity, "i64"), (self.contents, "i64"))
        return found[: self.element.variables]


Held: TypeAlias = Number | Array | Items
