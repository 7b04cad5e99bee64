"""Partitioned variables: each part along one axis is a variable with its own gradient.

The parts of "w" are "w/part_0", "w/part_1", and so on. Where a tensor is required, the concatenation of their values
represents the whole. Each part records its place in the whole (`save_slice_info`), so that a saver writes one tensor.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any, Final

from headrace import dtypes, nest, pb
from headrace.api import arrays, scopes
from headrace.api.variable import Variable
from headrace.dtypes import as_dtype
from headrace.ir.builder import Builder
from headrace.ir.graph import Graph, Tensor
from headrace.ir.symbolic import seen
from headrace.shapes import as_shape

SLICE: Final = "save_slice_info"  # attribute of a part that describes its place in the whole: a `SaveSliceInfoDef`


def mark_part(
    variable: Variable, name: str, shape: Sequence[int], offset: Sequence[int], part_shape: Sequence[int]
) -> None:
    """Records the place of a part in the whole variable, for savers.

    Args:
      variable: the part.
      name, shape: the name and shape of the whole.
      offset: the start of the part in the whole.
      part_shape: the shape of the part.
    """
    info = pb.SaveSliceInfoDef(full_name=name, full_shape=shape, var_offset=offset, var_shape=part_shape)
    vars(variable)[SLICE] = info


class PartitionedVariable:
    """Variable in several parts along one axis.

    Iteration and `len` treat it as the list of its parts. In place of a tensor it represents the whole.

    Args:
      name: the name of the whole.
      shape: the shape of the whole, fully known.
      dtype: the dtype of the whole.
      variable_list: the parts (at least one), which record their places in the whole.
      partitions: the number of parts along each axis.

    Attributes:
      name, dtype: the arguments.
      shape: the shape of the whole.
      graph: the graph of the parts.

    Raises:
      TypeError: `variable_list` is not a list of variables, or `partitions` not a list.
      ValueError: the parts do not form a whole of that shape.

    Source: TensorFlow's `PartitionedVariable`.

    Example: see `headrace.v1.get_variable`.
    """

    __array_priority__ = 100.0

    def __init__(
        self, name: str, shape: Any, dtype: Any, variable_list: Sequence[Variable], partitions: Sequence[int]
    ) -> None:
        if not isinstance(variable_list, (list, tuple)):
            raise TypeError(f"variable_list is not a list or tuple: {variable_list!r}")
        if not isinstance(partitions, (list, tuple)):
            raise TypeError(f"partitions is not a list or tuple: {partitions!r}")
        dims = as_shape(shape) or ()
        if len(partitions) != len(dims) or any(n < 1 for n in partitions):
            raise ValueError(f"a variable of shape {list(dims)} cannot be cut into {list(partitions)} parts")
        if not variable_list:
            raise ValueError("variable_list may not be empty")
        for v in variable_list:
            info = getattr(v, SLICE, None)
            if info is None or tuple(info.full_shape) != dims:
                raise ValueError(f"{v!r} does not say which part of a variable of shape {list(dims)} it is")
        self._variables = sorted(variable_list, key=lambda v: tuple(getattr(v, SLICE).var_offset))
        self._partitions = list(partitions)
        self.name, self._shape, self.dtype = name, dims, as_dtype(dtype).base

    @property
    def shape(self) -> Any:
        """Shape of the whole."""
        return seen(self._shape, self._variables[0].handle)

    @property
    def graph(self) -> Graph | None:
        """Graph of the parts."""
        graph: Graph | None = self._variables[0].graph
        return graph

    def __iter__(self) -> Iterator[Variable]:
        return iter(self._variables)

    def __len__(self) -> int:
        return len(self._variables)

    def _get_variable_list(self) -> list[Variable]:
        return self._variables

    def _get_partitions(self) -> list[int]:
        """Returns the number of parts along each axis."""
        return self._partitions

    @property
    def axis(self) -> int:
        """Axis along which the variable is divided; the first axis if there is one part.

        Raises:
          NotImplementedError: the variable is divided along several axes.
        """
        cut = [d for d, n in enumerate(self._partitions) if n > 1] or [0]
        if len(cut) > 1:
            raise NotImplementedError(f"'{self.name}' is cut along {len(cut)} axes; parts are put together along one")
        return cut[0]

    def as_tensor(self, b: Any = None) -> Tensor:
        """Returns the whole: the concatenation of the parts' values, read at this point.

        Args:
          b: the builder; None: that of the current graph.
        """
        b = scopes.builder(self) if b is None else b
        axis, inside = self.axis, b
        if isinstance(b, Builder):
            inside = dataclasses.replace(b, scope=f"{self.name}/ConcatPartitions/")
            b = dataclasses.replace(b, scope="")
        values = [v.as_tensor(inside) for v in self._variables]
        if len(values) > 1:
            values = [inside.make("ConcatV2", (values, inside.const(axis, dtypes.int32, "axis")), {}, "concat")]
        whole: Tensor = b.Identity(values[0], name=self.name)
        return whole

    # *** changing ***

    def assign(
        self, value: Any, use_locking: bool | None = None, name: str | None = None, read_value: bool = True
    ) -> list[Any]:
        """Assigns to each part its part of `value`.

        Args:
          value: a value that can be converted to a tensor of the whole's shape; or a list with a value for each part,
            or another variable with equal parts.
          use_locking: ignored; changes never overlap.
          name: the name of each part's operation.
          read_value: if False, the results are the operations alone.

        Returns:
          The result of `Variable.assign` for each part.

        Raises:
          ValueError: a list has another length.
          ShapeError (a ValueError): the value has another shape.
        """
        return self._changed("assign", value, name, read_value)

    def assign_add(
        self, value: Any, use_locking: bool | None = None, name: str | None = None, read_value: bool = True
    ) -> list[Any]:
        """Adds to each part its part of `value`; see `assign`."""
        return self._changed("assign_add", value, name, read_value)

    def assign_sub(
        self, value: Any, use_locking: bool | None = None, name: str | None = None, read_value: bool = True
    ) -> list[Any]:
        """Subtracts from each part its part of `value`; see `assign`."""
        return self._changed("assign_sub", value, name, read_value)

    def _changed(self, method: str, value: Any, name: str | None, read_value: bool) -> list[Any]:
        if isinstance(value, (list, PartitionedVariable)):
            pieces = list(value)
            if len(pieces) != len(self):
                raise ValueError(f"'{self.name}' has {len(self)} parts, got {len(pieces)} values: give one for each")
        else:
            b = scopes.builder(self, value)
            axis = self.axis
            sizes = [getattr(v, SLICE).var_shape[axis] for v in self._variables]
            pieces = arrays.split(b.tensor(value, self.dtype), sizes, axis)
        pairs = zip(self._variables, pieces, strict=True)
        return [getattr(v, method)(x, name=name, read_value=read_value) for v, x in pairs]

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r} shape={list(self.shape)} of {len(self)} parts>"


def parts_of(x: Any) -> list[Any]:
    """Returns the parts of a list or `PartitionedVariable`, or `x` alone."""
    return list(x) if isinstance(x, PartitionedVariable) else nest.as_list(x)
