"""`tf.Module`: an object with variables and other modules in its attributes."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from headrace.api import scopes
from headrace.api.partitioned import PartitionedVariable
from headrace.api.variable import Variable
from headrace.v1.graph import in_default_graph, scope_in_default_graph


@in_default_graph
def _entered_once(name: str) -> str:
    """Returns the prefix of a new name scope."""
    with scopes.name_scope(name) as prefix:
        return str(prefix)


_scope = scope_in_default_graph(scopes.name_scope)


class Module:
    """Base class of objects with variables and other modules in their attributes.

    Args:
      name: name of the module, an identifier of Python. None: the name of the class, in snake case.

    Raises:
      ValueError: `name` is no identifier.

    Source: TensorFlow's `tf.Module`.

    Example:
      >>> import headrace.v1 as tf
      >>> class Dense(tf.Module):
      ...     def __init__(self, name=None):
      ...         super().__init__(name)
      ...         with self.name_scope:
      ...             self.w = tf.Variable([[1.0]], name="w")
      >>> with tf.Graph().as_default():
      ...     layer = Dense()
      ...     layer.name, [v.name for v in layer.trainable_variables]
      ('dense', ['dense/w:0'])
    """

    def __init__(self, name: str | None = None) -> None:
        if name is None:
            name = re.sub(r"([a-z0-9])([A-Z])", r"\1_\2", re.sub(r"(.)([A-Z][a-z]+)", r"\1_\2", type(self).__name__))
            name = name.lower()
        if not name.isidentifier():
            raise ValueError(
                f"{name!r} is not a valid module name. Module names must be valid Python identifiers (e.g. a valid "
                "class name)."
            )
        self._name = name
        self._scope_name = _entered_once(name)

    @property
    def name(self) -> str:
        """Name of the module."""
        return self._name

    @property
    def name_scope(self) -> Any:
        """Context manager that enters the name scope of the module."""
        return _scope(self._scope_name)

    @property
    def variables(self) -> tuple[Any, ...]:
        """Variables of the module and of its submodules."""
        return tuple(x for x in _flat(self, set()) if isinstance(x, Variable))

    @property
    def trainable_variables(self) -> tuple[Any, ...]:
        """Trainable variables of the module and of its submodules."""
        return tuple(v for v in self.variables if v.trainable)

    @property
    def non_trainable_variables(self) -> tuple[Any, ...]:
        """Variables of the module and of its submodules that are not trainable."""
        return tuple(v for v in self.variables if not v.trainable)

    @property
    def submodules(self) -> tuple[Module, ...]:
        """Modules in the attributes of the module, and their submodules."""
        return tuple(x for x in _flat(self, set()) if isinstance(x, Module))

    @classmethod
    def with_name_scope(cls, method: Callable[..., Any]) -> Callable[..., Any]:
        """Returns a method that enters the name scope of the module.

        Args:
          method: the method.
        """

        @functools.wraps(method)
        def entered(self: Any, *args: Any, **kwargs: Any) -> Any:
            with self.name_scope:
                return method(self, *args, **kwargs)

        return entered


def _flat(module: Module, seen: set[int]) -> Iterator[Any]:
    """Yields variables and modules of attributes by name, then those of the modules."""
    seen.add(id(module))
    inner: list[Module] = []
    for _, value in sorted(vars(module).items()):
        for leaf in _leaves(value):
            if id(leaf) in seen:
                continue
            seen.add(id(leaf))
            yield leaf
            if isinstance(leaf, Module):
                inner.append(leaf)
    for one in inner:
        yield from _flat(one, seen)


def _leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, (Variable, Module)):
        yield value
    elif isinstance(value, Mapping):
        for key in sorted(value, key=str):
            yield from _leaves(value[key])
    elif isinstance(value, (list, tuple, PartitionedVariable)):
        for x in value:
            yield from _leaves(x)
