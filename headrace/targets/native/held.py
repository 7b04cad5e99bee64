"""Values in native code, as names of LLVM: numbers in registers, arrays in memory, lists."""

from __future__ import annotations

import dataclasses
from typing import TypeAlias

import numpy as np

from headrace.targets.native.plan import Strides, row_major


@dataclasses.dataclass(frozen=True, slots=True)
class Number:
    """Number in a register.

    Attributes:
      text: Its name or literal.
      dtype: The dtype; int64 for a counter.
    """

    text: str
    dtype: np.dtype


@dataclasses.dataclass(frozen=True, slots=True)
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
    shape: tuple[int, ...]
    strides: Strides

    @property
    def is_contiguous(self) -> bool:
        """Whether the elements are in row-major order without gaps."""
        return all(
            d == 1 or s == wanted for d, s, wanted in zip(self.shape, self.strides, row_major(self.shape), strict=True)
        )


@dataclasses.dataclass(frozen=True, slots=True)
class Rows:
    """Elements of a list, as many as it has.

    Attributes:
      pointer: The address of the first element.
      length: The i64 number of elements.
      dtype: The dtype of the elements.
      shape: The shape of an element.
    """

    pointer: str
    length: str
    dtype: np.dtype
    shape: tuple[int, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Element:
    """Type of the elements of a list.

    Attributes:
      dtype: The dtype; None if the elements are lists.
      shape: The shape; () if they are lists.
      inner: The type of the elements of these lists.
    """

    dtype: np.dtype | None
    shape: tuple[int, ...]
    inner: Element | None = None

    @property
    def bytes(self) -> int:
        """The size of an element in memory."""
        if self.dtype is None:
            return 24
        size = self.dtype.itemsize
        for d in self.shape:
            size *= d
        return size


@dataclasses.dataclass(frozen=True, slots=True)
class Items:
    """List that is changed in place: addresses of its three variables.

    Attributes:
      data: The variable with the address of the first element.
      length: The variable with the number of elements, an i64.
      capacity: The variable with the size of the memory in bytes, an i64.
      element: The type of the elements.
    """

    data: str
    length: str
    capacity: str
    element: Element


Held: TypeAlias = Number | Array | Rows | Items
