"""Descriptions of the inputs of layers: `tf.layers.InputSpec`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headrace import nest
from headrace.dtypes import as_dtype
from headrace.v1.array_ops import convert_to_tensor
from headrace.v1.tensor_shape import TensorShape


class InputSpec:
    """The dtype, rank and sizes of an input of a layer.

    A layer has it as `input_spec`, which calls check.

    Args:
      dtype: the dtype; None: any. Calls do not check it.
      shape: the shape, with None for axes of any size; None: `ndim` and the others decide.
      ndim, max_ndim, min_ndim: the rank, the greatest and the least rank; None: any.
      axes: axis -> its size.
      allow_last_axis_squeeze: whether an input with a further last axis of size 1, or without that of the shape, fits.
      name: key of the input in a dict of inputs.
      optional: whether the input may be None.

    Raises:
      TypeError: an axis is no integer.
      ValueError: an axis is beyond the rank.

    Source: TensorFlow's `tf.layers.InputSpec`.

    Example:
      >>> import headrace.v1 as tf
      >>> tf.layers.InputSpec(shape=(None, 3), dtype=tf.float32)
      InputSpec(dtype=float32, shape=(None, 3), ndim=2)
    """

    def __init__(
        self,
        dtype: Any = None,
        shape: Any = None,
        ndim: int | None = None,
        max_ndim: int | None = None,
        min_ndim: int | None = None,
        axes: Mapping[Any, Any] | None = None,
        allow_last_axis_squeeze: bool = False,
        name: str | None = None,
        optional: bool = False,
    ) -> None:
        dims = TensorShape(shape)
        self.dtype = None if dtype is None else as_dtype(dtype).name
        self.shape = None if dims.ndims is None else tuple(dims.as_list())
        self.ndim = ndim if self.shape is None else len(self.shape)
        self.max_ndim, self.min_ndim, self.name, self.optional = max_ndim, min_ndim, name, optional
        self.allow_last_axis_squeeze = allow_last_axis_squeeze
        try:
            self.axes = {int(axis): size for axis, size in (axes or {}).items()}
        except (TypeError, ValueError) as e:
            raise TypeError(f"Argument `axes` must be a dict with integer keys. Received: axes={axes}") from e
        most = self.ndim if self.ndim is not None else self.max_ndim
        if self.axes and most is not None and max(self.axes) > most - 1:
            raise ValueError(f"Axis {max(self.axes)} is greater than the maximum allowed value: {most - 1}")

    def get_config(self) -> dict[str, Any]:
        """Returns the arguments that make an equal description."""
        names = ("dtype", "shape", "ndim", "max_ndim", "min_ndim", "axes")
        return {name: getattr(self, name) for name in names}

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> InputSpec:
        """Makes a description of the result of `get_config`."""
        return cls(**config)

    def __repr__(self) -> str:
        shown = [f"{name}={value}" for name, value in self.get_config().items() if value]
        return f"InputSpec({', '.join(shown)})"


def check(spec: Any, inputs: Any, layer: str) -> None:
    """Checks the inputs of a layer.

    Args:
      spec: an `InputSpec`, or a structure with one for each input.
      inputs: a tensor, or a structure of tensors.
      layer: name of the layer.

    Raises:
      ValueError: the inputs do not fit.
    """
    specs = nest.flatten(spec)
    names = [s.name for s in specs]
    given = [inputs[name] for name in names] if isinstance(inputs, dict) and all(names) else nest.flatten(inputs)
    if len(given) != len(specs):
        raise ValueError(f'Layer "{layer}" expects {len(specs)} input(s), but it received {len(given)} input tensors.')
    for i, (s, x) in enumerate(zip(specs, given, strict=True)):
        if x is None and s.optional:
            continue
        tensor: Any = convert_to_tensor(x)
        dims = tensor.get_shape()
        if dims.ndims is not None and (fault := _fault(s, dims.as_list())):
            raise ValueError(
                f'Input {i} of layer "{layer}" is incompatible with the layer: {fault}. Full shape received: '
                f"{tuple(dims.as_list())}"
            )


def _fault(spec: InputSpec, dims: list[int | None]) -> str:
    """Returns the difference of a shape from a description, or ""."""
    rank = len(dims)
    wanted = None if spec.shape is None else list(spec.shape)
    if spec.allow_last_axis_squeeze and wanted is not None:
        if rank == len(wanted) + 1 and dims[-1] == 1:
            dims = dims[:-1]
        elif rank == len(wanted) - 1 and wanted[-1] == 1:
            wanted = wanted[:-1]
    elif spec.ndim is not None and rank != spec.ndim:
        return f"expected ndim={spec.ndim}, found ndim={rank}"
    if spec.max_ndim is not None and rank > spec.max_ndim:
        return f"expected max_ndim={spec.max_ndim}, found ndim={rank}"
    if spec.min_ndim is not None and rank < spec.min_ndim:
        return f"expected min_ndim={spec.min_ndim}, found ndim={rank}"
    for axis, size in spec.axes.items():
        if axis < rank and None not in (size, dims[axis]) and dims[axis] != size:
            return f"expected axis {axis} of input shape to have value {size}, but received input with shape {dims}"
    if wanted is not None:
        if len(wanted) != len(dims):
            return f"expected ndim={len(wanted)}, found ndim={len(dims)}"
        if any(a is not None and b is not None and a != b for a, b in zip(wanted, dims, strict=True)):
            return f"expected shape={spec.shape}, found shape={tuple(dims)}"
    return ""
