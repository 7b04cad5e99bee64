"""Optionals: an element, or nothing."""

from __future__ import annotations

from typing import Any

from headrace import nest, tracebacks
from headrace.api import scopes
from headrace.api.data import structure
from headrace.api.data.structure import VariantSpec


class OptionalSpec(VariantSpec):
    """Description of an optional.

    Args:
      element_spec: the description of its element.

    Source: TensorFlow's `tf.OptionalSpec`.

    Example:
      >>> import headrace as hr
      >>> hr.data.OptionalSpec(hr.TensorSpec((), hr.int64))
      OptionalSpec(TensorSpec(shape=[], dtype=int64))
    """

    __slots__ = ("element_spec",)

    def __init__(self, element_spec: Any) -> None:
        self.element_spec = element_spec

    def __repr__(self) -> str:
        return f"OptionalSpec({self.element_spec!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, OptionalSpec) and self.element_spec == other.element_spec

    def __hash__(self) -> int:
        return hash(nest.outline(self.element_spec))

    @property
    def value_type(self) -> type:
        """The class of the optionals."""
        return Optional

    @staticmethod
    def from_value(value: Optional) -> OptionalSpec:
        """Returns the description of an optional."""
        return OptionalSpec(value.element_spec)

    def _leaf(self, t: Any, dataset: Any) -> Any:
        return Optional(t, self.element_spec, dataset)

    def _joined(self, other: Any) -> Any:
        return OptionalSpec(structure.joined(self.element_spec, other.element_spec))


class Optional:
    """Element that may be absent.

    Args:
      variant: the variant that represents it.
      element_spec: the description of its element.
      door: the class of datasets that are parts of the element; None: it has none.

    Attributes:
      variant: the variant that represents it.
      element_spec: the description of its element.

    Source: TensorFlow's `tf.experimental.Optional`.

    Example:
      >>> import headrace as hr
      >>> numbers = iter(hr.data.Dataset.range(1))
      >>> first, second = numbers.get_next_as_optional(), numbers.get_next_as_optional()
      >>> bool(first.has_value()), int(first.get_value()), bool(second.has_value())
      (True, 0, False)
    """

    def __init__(self, variant: Any, element_spec: Any, door: Any = None) -> None:
        self.variant = variant
        self.element_spec = element_spec
        self._door = door

    @property
    def value_structure(self) -> Any:
        """The description of its element."""
        return self.element_spec

    @staticmethod
    @tracebacks.entry
    def from_value(value: Any) -> Optional:
        """Returns an optional with an element.

        Args:
          value: the element, a structure of tensors.
        """
        leaves = structure.flatten(value)
        b = scopes.builder(*leaves)
        parts, specs = zip(*[structure.component(leaf, b) for leaf in leaves], strict=True)
        made = b.make("OptionalFromValue", (list(parts),), {})
        doors = [leaf._door() for leaf in leaves if structure.is_dataset(leaf)]
        return Optional(made, structure.pack(value, specs), doors[0] if doors else None)

    @staticmethod
    @tracebacks.entry
    def empty(element_spec: Any) -> Optional:
        """Returns an optional without an element.

        Args:
          element_spec: the description that its element would have.
        """
        return Optional(scopes.builder().make("OptionalNone", (), {}), element_spec)

    @tracebacks.entry
    def has_value(self, name: str | None = None) -> Any:
        """Returns whether there is an element, a bool scalar."""
        b = scopes.builder(self.variant)
        return b.make("OptionalHasValue", [b.tensor(self.variant)], {}, name)

    @tracebacks.entry
    def get_value(self, name: str | None = None) -> Any:
        """Returns the element.

        Raises (when it runs):
          InvalidArgumentError: there is none.
        """
        b = scopes.builder(self.variant)
        attrs = structure.attributes(self.element_spec)
        made = b.make("OptionalGetValue", [b.tensor(self.variant)], attrs, name)
        return structure.as_element(made, self.element_spec, self._door)

    def of(self, variant: Any) -> Optional:
        """Returns the optional of another variant, with the same description."""
        return Optional(variant, self.element_spec, self._door)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self.element_spec}>"

    def _component(self, b: Any) -> tuple[Any, OptionalSpec]:
        return b.tensor(self.variant), OptionalSpec(self.element_spec)


def next_as_optional(iterator: Any, handle: Any, name: str | None = None) -> Optional:
    """Returns the next element of an iterator; an optional without an element at the end.

    Args:
      iterator: the iterator.
      handle: its resource.
      name: the name of the operation.
    """
    b = scopes.builder(handle)
    attrs = structure.attributes(iterator.element_spec)
    made = b.make("IteratorGetNextAsOptional", [b.tensor(handle)], attrs, name)
    return Optional(made, iterator.element_spec, iterator._door)
