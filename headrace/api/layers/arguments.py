"""Common arguments of layers: functions by name, data layouts, and required static shapes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from headrace import shapes
from headrace.api import math, nn
from headrace.errors import ShapeError

_ACTIVATIONS: dict[str, Callable[[Any], Any]] = {
    "elu": nn.elu, "exponential": math.exp, "gelu": nn.gelu, "leaky_relu": nn.leaky_relu,
    "log_softmax": nn.log_softmax, "relu": nn.relu, "relu6": nn.relu6, "selu": nn.selu, "sigmoid": math.sigmoid,
    "silu": nn.silu, "softmax": nn.softmax, "softplus": nn.softplus, "softsign": nn.softsign, "swish": nn.swish,
    "tanh": math.tanh,
}  # fmt: skip


def activation_of(given: Any) -> Callable[[Any], Any] | None:
    """Returns the activation function for a function, a name, or None or "linear" (no activation).

    Raises:
      ValueError: no activation has this name.
    """
    if given is None or given == "linear":
        return None
    if callable(given):
        function: Callable[[Any], Any] = given
        return function
    if given not in _ACTIVATIONS:
        raise ValueError(f"there is no activation {given!r}: give a function or one of {', '.join(_ACTIVATIONS)}")
    return _ACTIVATIONS[given]


def count(what: str, value: Any) -> int:
    """Returns `value`, the positive integer given for the argument `what`, as an int.

    Raises:
      ValueError: `value` is not a positive integer.
    """
    number = int(value)
    if number < 1 or number != value:
        raise ValueError(f"'{what}' must be a positive whole number, got {value!r}")
    return number


def has_channels_first(data_format: str) -> bool:
    """Whether `data_format` is "channels_first" and not "channels_last".

    Raises:
      ValueError: `data_format` is neither of them.
    """
    if data_format not in ("channels_last", "channels_first"):
        raise ValueError(f"'data_format' must be 'channels_last' or 'channels_first', got {data_format!r}")
    return data_format == "channels_first"


def padding_of(padding: str, known: tuple[str, ...] = ("VALID", "SAME")) -> str:
    """Returns the name of a padding in capital letters, as operations expect it.

    Raises:
      ValueError: `padding` is not one of `known`.
    """
    if str(padding).upper() not in known:
        raise ValueError(f"'padding' must be one of {', '.join(p.lower() for p in known)}, got {padding!r}")
    return str(padding).upper()


def rank_of(input_shape: Any, layer: str, *ranks: int) -> int:
    """Returns the rank of the inputs of a layer.

    Args:
      input_shape: the static shape of the inputs.
      layer: name of the layer, for the error.
      ranks: the ranks that the layer accepts; none: any.

    Raises:
      ShapeError (a ValueError): the rank is unknown or is not one of `ranks`.
    """
    dims = shapes.as_shape(input_shape)
    if dims is None:
        raise ShapeError(f"layer '{layer}' needs inputs of known rank; say what is known of their shape (set_shape)")
    if ranks and len(dims) not in ranks:
        wanted = " or ".join(str(r) for r in ranks)
        raise ShapeError(f"layer '{layer}' takes inputs with {wanted} axes, got the shape {shapes.show(dims)}")
    return len(dims)


def known_size(input_shape: Any, axis: int, layer: str) -> int:
    """Returns the size of the inputs of the layer `layer` along `axis`.

    Raises:
      ShapeError (a ValueError): the axis does not exist or its size is unknown.
    """
    dims = shapes.as_shape(input_shape)
    rank = rank_of(dims, layer)
    if dims is None or not -rank <= axis < rank:
        raise ShapeError(f"layer '{layer}' needs inputs with an axis {axis}, got the shape {shapes.show(dims)}")
    found = dims[axis]
    if found is None:
        raise ShapeError(
            f"layer '{layer}' needs to know the size of axis {axis % rank} of its inputs when it is first called, got "
            f"the shape {shapes.show(dims)}; say it (set_shape), or give the placeholder a shape"
        )
    return found
