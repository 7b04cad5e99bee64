"""Handles as TensorFlow 0.x made them: a reference to a string vector (container, name), looked up at each use.

The ops without `V2` (Stack, StackPush, FIFOQueue, QueueEnqueue, ...) pass their resources around this way.
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
      InvalidArgumentError: it does not refer to two strings.
      NotFoundError: there is no such resource.
    """
    return looked_up(manager, ref.read(), kind)


def looked_up(manager: ResourceManager, value: Value, kind: type[R]) -> R:
    """The resource whose container and name `value`, a string vector, has.

    Raises:
      InvalidArgumentError: it does not have two strings.
      NotFoundError: there is no such resource.
    """
    if shape_of(value) != (2,):
        raise InvalidArgumentError(
            f"{kind.__name__} handle must have two elements, but had shape: {shapes.show(shape_of(value))}"
        )
    container, name = (part.decode("utf-8", "surrogateescape") for part in value)
    return manager.lookup(container, kind, name)
