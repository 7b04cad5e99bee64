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

SLICE: Final = "save_slice_info"  # the attribute of a part that says which part it is: a `SaveSliceInfoDef`


def mark_part(
    variable: Variable, name: str, shape: Sequence[int], offset: Sequence[int], part_shape: Sequence[int]
) -> None:
    """Notes which part of which whole a variable is, for savers.

    Args:
      variable: the part.
      name, shape: of the whole.
      offset: where in the whole the part begins.
      part_shape: of the part.
    """
    info = pb.SaveSliceInfoDef(full_name=name, full_shape=shape, var_offset=offset, var_shape=part_shape)
    vars(variable)[SLICE] = info


class PartitionedVariable:
    """A variable in several parts, cut along one axis.

    It is iterated over and counted as a list of its parts, and can be used where a tensor can: then it is the whole.

    Args:
      name: of the whole.
      shape: of the whole, fully known.
      dtype: of the whole.
      variable_list: its parts (at least one), which know where in the whole they lie.
      partitions: into how many parts each axis is cut.

    Attributes:
      name, dtype: as given.
      shape: of the whole.
      graph: where the parts are.

    Raises:
      TypeError: `variable_list` is no list of variables, or `partitions` no list.
      ValueError: these do not make up a whole of that shape.

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
        """The shape of the whole."""
        return seen(self._shape, self._variables[0].handle)

    @property
    def graph(self) -> Graph | None:
        """Where the parts are."""
        graph: Graph | None = self._variables[0].graph
        return graph

    def __iter__(self) -> Iterator[Variable]:
        return iter(self._variables)

    def __len__(self) -> int:
        return len(self._variables)

    def _get_variable_list(self) -> list[Variable]:
        return self._variables

    def _get_partitions(self) -> list[int]:
        """Into how many parts each axis is cut."""
        return self._partitions

    @property
    def axis(self) -> int:
        """The axis that is cut; the first if there is one part.

        Raises:
          NotImplementedError: several are.
        """
        cut = [d for d, n in enumerate(self._partitions) if n > 1] or [0]
        if len(cut) > 1:
            raise NotImplementedError(f"'{self.name}' is cut along {len(cut)} axes; parts are put together along one")
        return cut[0]

    def as_tensor(self, b: Any = None) -> Tensor:
        """The whole: the values of the parts, read here, one after the other along the axis that is cut.

        Args:
          b: makes the operations; None: the builder of the graph entered.
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
        """Gives each part its part of `value`.

        Args:
          value: what a tensor of the whole's shape can be made of; or a list with a value for each part, or another
            variable in as many parts.
          use_locking: not used; changes never overlap.
          name: of each part's operation.
          read_value: if False, only the operations are given.

        Returns:
          What `Variable.assign` gives, for each part.

        Raises:
          ValueError: a list has another length. ShapeError (a ValueError): another shape.
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
    """The parts of a table or variable that comes in several (a list, or a `PartitionedVariable`); else it alone."""
    return list(x) if isinstance(x, PartitionedVariable) else nest.as_list(x)
