"""Conversions of a program's own objects to tensors: `tf.register_tensor_conversion_function`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

_PLAIN = (bool, int, float, complex, str, bytes, np.generic, np.ndarray)


class _Conversions:
    """The functions that convert the instances of a class, which has it as `as_tensor`."""

    def __init__(self) -> None:
        self.functions: list[tuple[int, Callable[..., Any]]] = []

    def __call__(self, value: Any, builder: Any) -> Any:
        for _, function in sorted(self.functions, key=lambda entry: entry[0]):
            found = function(value, dtype=None, name=None, as_ref=False)
            if found is not NotImplemented:
                return found
        return value


def register_tensor_conversion_function(
    base_type: type | tuple[type, ...], conversion_func: Callable[..., Any], priority: int = 100
) -> None:
    """Registers a function that converts the instances of a class to tensors.

    Args:
      base_type: a class of the program, or a tuple of classes.
      conversion_func: a function `f(value, dtype, name, as_ref)` that returns a tensor, or NotImplemented. Its `dtype`
        is always None.
      priority: functions with smaller numbers are called earlier.

    Raises:
      TypeError: `base_type` is no class, or one of numbers, texts or arrays.

    Source: TensorFlow's `tf.register_tensor_conversion_function`.

    Example:
      >>> import headrace.v1 as tf
      >>> class Metres:
      ...     def __init__(self, number):
      ...         self.number = number
      >>> def convert(value, dtype=None, name=None, as_ref=False):
      ...     return tf.constant(value.number, dtype)
      >>> tf.register_tensor_conversion_function(Metres, convert)
      >>> with tf.Graph().as_default(), tf.Session() as sess:
      ...     sess.run(tf.add(Metres(2.0), 1.0))
      np.float32(3.0)
    """
    classes = base_type if isinstance(base_type, tuple) else (base_type,)
    for c in classes:
        if not isinstance(c, type):
            raise TypeError(f"Argument `base_type` must be a type or a tuple of types. Obtained: {base_type}")
        if issubclass(c, _PLAIN):
            raise TypeError("Cannot register conversions for Python numeric types and NumPy scalars and arrays.")
    for c in classes:
        known = vars(c).get("as_tensor")
        if not isinstance(known, _Conversions):
            known = _Conversions()
            c.as_tensor = known  # type: ignore[attr-defined]  # a builder asks the class for it
        known.functions.append((priority, conversion_func))
