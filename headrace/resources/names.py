"""Handles of TensorFlow 0.x: references to a string vector (container, name).

The resource is looked up at each use. The ops without `V2` (Stack, StackPush, FIFOQueue, QueueEnqueue, ...) pass their
resources in this way.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from headrace import dtypes, shapes
from headrace.errors import InvalidArgumentError
from headrace.resources.values import shape_of
from headrace.resources.variable import Ref, Variable

if TYPE_CHECKING:
    from headrace.resources.manager import R, ResourceManager
    from headrace.resources.values import Value


def name_ref(container: str, name: str) -> Ref:
    """A reference to the string vector [container, name]."""
    variable = Variable(name, dtypes.string, (2,))
    variable.assign(np.array([part.encode("utf-8", "surrogateescape") for part in (container, name)], object))
    return Ref(variable)


def named(manager: ResourceManager, ref: Ref, kind: type[R]) -> R:
    """The resource whose container and name `ref` refers to.

    Raises:
      InvalidArgumentError: The value is not a vector of two strings.
      NotFoundError: The resource does not exist.
    """
    return looked_up(manager, ref.read(), kind)


def looked_up(manager: ResourceManager, value: Value, kind: type[R]) -> R:
    """The resource whose container and name are in `value`, a string vector.

    Raises:
      InvalidArgumentError: The value is not a vector of two strings.
      NotFoundError: The resource does not exist.
    """
    if shape_of(value) != (2,):
        raise InvalidArgumentError(
            f"{kind.__name__} handle must have two elements, but had shape: {shapes.show(shape_of(value))}"
        )
    container, name = (part.decode("utf-8", "surrogateescape") for part in value)
    return manager.lookup(container, kind, name)
