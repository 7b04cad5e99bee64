"""Optionals: values of variant tensors that contain a tuple of tensors, or nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from headrace import dtypes, shapes
from headrace.errors import InvalidArgumentError
from headrace.resources.values import numpy_dtype_of, shape_of, zeros

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.dtypes import DType
    from headrace.resources.values import Value
    from headrace.shapes import Shape


class Optional:
    """Tuple of tensors, or nothing. Immutable.

    Attributes:
      components: The tensors; None without a value.
      types: The dtypes of the tensors; () without a value.
    """

    __slots__ = ("components", "types")

    def __init__(self, components: tuple[Value, ...] | None = None, types: Sequence[DType] = ()) -> None:
        self.components = components
        self.types = tuple(types)

    def get(self, types: Sequence[DType], wanted: Sequence[Shape]) -> tuple[Value, ...]:
        """The components, which must have these dtypes and compatible shapes.

        Raises:
          InvalidArgumentError: There is no value, or it does not match.
        """
        if self.components is None:
            raise InvalidArgumentError("The given optional does not have a value.")
        if len(types) != len(self.types):
            raise InvalidArgumentError(
                f"The given optional has {len(self.types)} components, expected {len(types)}; give the output_types "
                "that it was made from"
            )
        for i, (have, want, value, shape) in enumerate(zip(self.types, types, self.components, wanted, strict=True)):
            if have is not want:
                raise InvalidArgumentError(
                    f"The given optional does not match the expected type for component {i}. "
                    f"Expected: {want.name}. Actual: {have.name}."
                )
            if not shapes.fits(shape_of(value), shape):
                raise InvalidArgumentError(
                    f"The given optional does not match the expected shape for component {i}. "
                    f"Expected: {shapes.show(shape)}. Actual: {shapes.show(shape_of(value))}."
                )
        return self.components

    def zeros_like(self) -> Optional:
        """An optional with zeros in place of the components; empty if this one is."""
        if self.components is None:
            return self
        return Optional(tuple(map(_zeros_like, self.components, self.types)), self.types)

    def add(self, other: Optional) -> Optional:
        """An optional with the sums of the components; empty if both are.

        Raises:
          InvalidArgumentError: Only one has a value, or their components do not match.
        """
        if self.components is None and other.components is None:
            return self
        if self.components is None or other.components is None:
            raise InvalidArgumentError("Cannot add optionals because one has a value and the other doesn't.")
        if self.types != other.types:
            raise InvalidArgumentError(
                f"Cannot add optionals with different components: {self._shown()} and {other._shown()}"
            )
        return Optional(tuple(map(_sum, self.components, other.components)), self.types)

    def _shown(self) -> str:
        return f"({', '.join(d.name for d in self.types)})"

    def __repr__(self) -> str:
        return "Optional()" if self.components is None else f"Optional of {self._shown()}"


def _zeros_like(value: Value, dtype: DType) -> Value:
    if dtype is dtypes.variant and not isinstance(value, np.ndarray):
        return value.zeros_like()
    made = zeros(dtype, shape_of(value))
    return made[()] if isinstance(made, np.ndarray) and not made.ndim and dtype is not dtypes.string else made


def _sum(x: Value, y: Value) -> Value:
    if numpy_dtype_of(x).kind == "O":
        return x.add(y)
    if shape_of(x) != shape_of(y):
        raise InvalidArgumentError(
            f"Cannot add optionals with components of shapes {shapes.show(shape_of(x))} and {shapes.show(shape_of(y))}"
        )
    return x + y
