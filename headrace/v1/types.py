"""TensorFlow 1's `tf.types`: types for annotations."""

from __future__ import annotations

import abc
import inspect
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from headrace import public_names
from headrace.ir.tensor_type import Tensor


class experimental:
    """TensorFlow's `tf.types.experimental`."""

    class FunctionType(inspect.Signature, metaclass=abc.ABCMeta):
        """Parameters and result of a function.

        Source: TensorFlow's `tf.types.experimental.FunctionType`.

        >>> experimental.FunctionType.from_callable(lambda x, y=1: x)
        <FunctionType (x, y=1)>
        """

        @classmethod
        def from_callable(cls, obj: Any, *, follow_wrapped: bool = True) -> Any:  # type: ignore[override]
            """Returns the type of a function.

            Args:
              obj: the function.
              follow_wrapped: whether a decorated function has the parameters of the function that it wraps.

            Raises:
              TypeError: `obj` cannot be called.
            """
            return super().from_callable(obj, follow_wrapped=follow_wrapped)

    #: Values that become tensors.
    TensorLike: TypeAlias = (
        Tensor | int | float | str | bytes | complex | tuple[Any, ...] | list[Any] | np.ndarray | np.generic
    )


__all__ = ["experimental"]

if not TYPE_CHECKING:
    __getattr__, __dir__ = public_names.of(__name__, __all__)
