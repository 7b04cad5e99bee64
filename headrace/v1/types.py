"""TensorFlow 1's `tf.types`: types for annotations."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from headrace import public_names
from headrace.ir.tensor_type import Tensor


class experimental:
    """TensorFlow's `tf.types.experimental`."""

    #: Values that become tensors.
    TensorLike: TypeAlias = (
        Tensor | float | str | bytes | complex | tuple[Any, ...] | list[Any] | np.ndarray | np.generic
    )


__all__ = ["experimental"]

if not TYPE_CHECKING:
    __getattr__, __dir__ = public_names.of(__name__, __all__)
