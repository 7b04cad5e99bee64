"""TensorFlow 1's `tf.register_tensor_conversion_function`: objects of a program's own classes as tensors.

Builders ask the class of a value for a method `as_tensor`; the registration gives the class one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from headrace.errors import InvalidArgumentError

_NAME = "_tensor_conversions"  # of the list of a class: priority, function


def register_tensor_conversion_function(
    base_type: Any, conversion_func: Callable[..., Any], priority: int = 100
) -> None:
    """Registers a function that converts objects of a class, and of classes derived from it, to tensors.

    Args:
      base_type: the class, or a tuple of classes; they are written in Python.
      conversion_func: `f(value, dtype=None, name=None, as_ref=False)`, which returns a tensor or `NotImplemented`.
      priority: of several functions the one with the least number is called first.

    Raises:
      TypeError: an argument is of another kind, or the class is one of Python's or of an extension in C.

    Source: TensorFlow's `tf.register_tensor_conversion_function`.

    Example:
      >>> import headrace.v1 as tf
      >>> class Celsius:
      ...     degrees = 20.0
      >>> tf.register_tensor_conversion_function(Celsius, lambda v, dtype=None, name=None, as_ref=False: v.degrees)
      >>> tf.Session().run(tf.constant(1.0) + Celsius())
      np.float32(21.0)
    """
    types = base_type if isinstance(base_type, tuple) else (base_type,)
    if not types or not all(isinstance(t, type) for t in types):
        raise TypeError(f"Argument `base_type` must be a type or a tuple of types, got {base_type!r}")
    if not callable(conversion_func):
        raise TypeError(f"Argument `conversion_func` must be callable, got {conversion_func!r}")
    for kind in types:
        known = [*vars(kind).get(_NAME, ()), (priority, conversion_func)]
        try:
            setattr(kind, _NAME, sorted(known, key=lambda entry: entry[0]))
            kind.as_tensor = _as_tensor
        except TypeError as e:
            e.add_note(f"{kind.__name__} is not written in Python; derive a class from it and register that")
            raise


def _as_tensor(self: Any, b: Any) -> Any:
    for kind in type(self).__mro__:
        for _, convert in vars(kind).get(_NAME, ()):
            found = convert(self, dtype=None, name=None, as_ref=False)
            if found is not NotImplemented:
                return found
    raise InvalidArgumentError(f"no registered function converts {self!r} of type {type(self).__name__} to a tensor")
