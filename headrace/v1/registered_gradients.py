"""Gradients under names of the user's own, for `gradient_override_map`. What computes gradients comes later."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from headrace.registry import Registry

F = TypeVar("F", bound=Callable[..., Any])

# name -> function of (operation, gradients of its outputs); None: there is no gradient
gradient_registry: Registry[Callable[..., Any] | None] = Registry("gradient")


class RegisterGradient:
    """Registers a gradient function under a name, which `Graph.gradient_override_map` refers to.

    Args:
      op_type: the name.

    Raises:
      TypeError: it is no string. KeyError: it is taken; the text says by which line.

    Source: TensorFlow's `tf.RegisterGradient`.

    Example:
      >>> @RegisterGradient("Halved")
      ... def halved(op, dy):
      ...     return dy * 0.5
      >>> "Halved" in gradient_registry
      True
    """

    def __init__(self, op_type: str) -> None:
        if not isinstance(op_type, str):
            raise TypeError(f"op_type must be a string, got {op_type!r}")
        self._op_type = op_type

    def __call__(self, f: F) -> F:
        """Registers `f`, and gives it back."""
        gradient_registry.register(self._op_type, f, depth=2)
        return f


def NotDifferentiable(op_type: str) -> None:
    """Registers that there is no gradient of that name.

    Source: TensorFlow's `tf.NotDifferentiable`.
    """
    gradient_registry.register(op_type, None, depth=2)
