"""Descriptions of extension types: `tf.experimental.ExtensionTypeSpec`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from headrace import nest
from headrace.api.tensor_spec import TensorSpec
from headrace.ir.tensor_type import Tensor
from headrace.v1 import array_ops
from headrace.v1.extension_types import fields
from headrace.v1.extension_types.batching import ExtensionTypeBatchEncoder
from headrace.v1.extension_types.fielded import Fielded
from headrace.v1.extension_types.fields import Field
from headrace.v1.tensor_shape import TensorShape
from headrace.v1.type_specs import (
    TypeSpec,
    component_specs,
    is_subtype,
    of_tensors,
    supertype,
    type_spec_from_value,
)


class ExtensionTypeSpec(Fielded, TypeSpec):
    """Description of extension types: their fields, with descriptions in the place of tensors.

    Source: TensorFlow's `tf.experimental.ExtensionTypeSpec`.

    Example:
      >>> import headrace.v1 as tf
      >>> class Masked(tf.experimental.ExtensionType):
      ...     values: tf.Tensor
      ...     name: str
      >>> Masked.Spec(tf.TensorSpec([None]), "m")
      Masked.Spec(values=TensorSpec(shape=[?], dtype=float32), name='m')
    """

    __slots__ = ("_constructing", "_form", "_parts")

    _title = "ExtensionTypeSpec"

    value_type: Any = None  # the class of the instances

    @classmethod
    def _fields(cls) -> tuple[Field, ...]:
        found: tuple[Field, ...] = cls.value_type._fields()
        return found

    @staticmethod
    def _is_part(x: Any) -> bool:
        return isinstance(x, TypeSpec)

    def _converted(self, f: Field, value: Any) -> Any:
        return fields.converted(value, f.annotation, (f.name,), _of_tensor, _of_composite)

    @classmethod
    def from_value(cls, value: Any) -> Any:
        """Returns the description of an instance.

        Args:
          value: the instance.
        """
        values = value._form.filled([type_spec_from_value(x) for x in value._parts])
        return cls._made(dict(zip(value.__dict__, values, strict=True)))

    def _value(self, parts: Sequence[Any]) -> Any:
        """Returns the instance with given parts."""
        made = object.__new__(self.value_type)
        made._set(dict(zip(self.__dict__, self._form.filled(parts), strict=True)), self._form, tuple(parts))
        return made

    # *** relations ***

    def is_compatible_with(self, spec_or_value: Any) -> bool:
        """Whether another description, or an instance, can have a common value with this one.

        Args:
          spec_or_value: the description or instance.
        """
        other = spec_or_value if isinstance(spec_or_value, TypeSpec) else type_spec_from_value(spec_or_value)
        if type(self) is not type(other):
            return False
        return all(map(_compatible, self._all(), other._all())) and self._outline() == other._outline()

    def is_subtype_of(self, other: Any) -> bool:
        """Whether all instances of this description are instances of another one.

        Args:
          other: the other description.
        """
        if type(self) is not type(other) or self._form.key != other._form.key:
            return False
        return all(map(is_subtype, self._parts, other._parts))

    def most_specific_common_supertype(self, others: Sequence[Any]) -> Any:
        """Returns the description of all instances of several descriptions; None if there is none.

        Args:
          others: the other descriptions.
        """
        if any(type(self) is not type(o) or self._form.key != o._form.key for o in others):
            return None
        parts = [supertype(column) for column in zip(self._parts, *[o._parts for o in others], strict=True)]
        return None if any(p is None for p in parts) else self._with_parts(parts)

    def most_specific_compatible_type(self, other: Any) -> Any:
        """Returns the description of the instances of this description and of another one.

        Args:
          other: the other description.

        Raises:
          ValueError: there is none.
        """
        found = self.most_specific_common_supertype([other])
        if found is None:
            raise ValueError(f"No TypeSpec is compatible with both {self} and {other}")
        return found

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ExtensionTypeSpec) or type(self) is not type(other):
            return False
        return self._form.key == other._form.key and self._parts == other._parts

    def __hash__(self) -> int:
        return hash((type(self), self._form.key))

    def _all(self) -> list[Any]:
        """Returns the leaves of the fields."""
        return nest.flatten(tuple(self.__dict__.values()), expand=False)

    def _outline(self) -> Any:
        return nest.outline(tuple(self.__dict__.values()))

    # *** tensors ***

    def flatten(self) -> list[TensorSpec]:
        """Returns descriptions of all tensors of an instance."""
        return [t for part in self._parts for t in component_specs(part)]

    def to_tensors(self, value: Any) -> list[Tensor]:
        """Returns all tensors of an instance.

        Args:
          value: the instance.
        """
        return nest.flatten(value)

    def from_tensors(self, tensors: Iterator[Any]) -> Any:
        """Returns the instance of tensors.

        Args:
          tensors: an iterator over the tensors.
        """
        return self._value([of_tensors(part, tensors) for part in self._parts])

    def cast(self, value: Any, casting_context: Any) -> Any:
        """Returns an instance of this description, with the tensors of another instance.

        Args:
          value: the instance; or a description, if the context allows these.
          casting_context: an object with the attribute `allow_specs`.

        Raises:
          TypeError, ValueError: the tensors do not fit.
        """
        if casting_context.allow_specs and isinstance(value, TypeSpec):
            assert is_subtype(value, self), f"Can not cast {value!r} to {self!r}"
            return self
        leaves = [
            array_ops.ensure_shape(array_ops.convert_to_tensor(t, s.dtype), s.shape)
            for t, s in zip(nest.flatten(value), self.flatten(), strict=True)
        ]
        return nest.pack(value, leaves)

    def placeholder_value(self, placeholder_context: Any) -> Any:
        """Returns an instance with placeholders as its tensors.

        Args:
          placeholder_context: an object with the attribute `unnest_only`; if that is true, the description is returned.
        """
        if placeholder_context.unnest_only:
            return self
        return self.from_tensors(iter([array_ops.placeholder(s.dtype, s.shape) for s in self.flatten()]))

    def _loop_shapes(self) -> list[Any]:
        """Returns the shapes of all tensors, as the shape invariant of a loop variable."""
        return [s.shape for s in self.flatten()]

    # *** messages ***

    @classmethod
    def experimental_type_proto(cls) -> Any:
        """Returns the class of the messages of `experimental_as_proto`."""
        from headrace.pb import struct_pb2

        return struct_pb2.TypeSpecProto

    def experimental_as_proto(self) -> Any:
        """Returns the description as a message.

        Raises:
          ValueError: the extension type has no attribute `__name__`, by which readers find it.
        """
        from headrace.v1.extension_types import messages

        return messages.written(self)

    @classmethod
    def experimental_from_proto(cls, proto: Any) -> Any:
        """Returns the description of a message.

        Args:
          proto: the message.

        Raises:
          ValueError: the message is no description, or one of a class that is not registered.
        """
        from headrace.v1.extension_types import messages

        return messages.read(proto)

    # *** leaves of a dataset's elements ***

    def _encoding(self) -> Any:
        return self._parts

    def _encoded(self, value: Any, minimum_rank: int) -> Any:
        if minimum_rank:
            raise _not_batchable(self)
        return value._parts

    def _with_encoding(self, parts: Any) -> Any:
        """Returns the instance of encoded parts; the description of parts that are descriptions."""
        if parts and all(isinstance(p, TypeSpec) for p in nest.flatten(parts, expand=False)):
            return self._with_parts(tuple(parts))
        return self._value(tuple(parts))

    def _batched(self, size: int | None) -> Any:
        raise _not_batchable(self)

    def _unbatched(self) -> Any:
        raise _not_batchable(self)

    def _joined(self, other: Any) -> Any:
        return self.most_specific_compatible_type(other)


class BatchableExtensionTypeSpec(ExtensionTypeSpec):
    """Description of the instances of a batchable extension type."""

    __slots__ = ()

    __batch_encoder__ = ExtensionTypeBatchEncoder()

    def _encoding(self) -> Any:
        return self.__batch_encoder__.encoding_specs(self)

    def _encoded(self, value: Any, minimum_rank: int) -> Any:
        return self.__batch_encoder__.encode(self, value, minimum_rank)

    def _with_encoding(self, parts: Any) -> Any:
        flat = nest.flatten(parts, expand=False)
        if flat and all(isinstance(p, TypeSpec) for p in flat):
            return self._with_parts(tuple(parts)) if self.__batch_encoder__.is_default else self
        return self.__batch_encoder__.decode(self, parts)

    def _batched(self, size: int | None) -> Any:
        return self.__batch_encoder__.batch(self, size)

    def _unbatched(self) -> Any:
        return self.__batch_encoder__.unbatch(self)


def _not_batchable(spec: ExtensionTypeSpec) -> AttributeError:
    name = spec.value_type.__name__
    return AttributeError(
        f"'{name}.Spec' object has no attribute '_batch': {name} cannot be batched; derive it from "
        "tf.experimental.BatchableExtensionType"
    )


def _of_tensor(value: Any, path: tuple[str, ...]) -> Any:
    if not isinstance(value, TensorSpec):
        raise TypeError(f"{''.join(path)}: expected a TensorSpec, got {type(value).__name__!r}")
    return value


def _of_composite(value: Any, path: tuple[str, ...], kind: type) -> Any:
    if not (isinstance(value, TypeSpec) and issubclass(value.value_type, kind)):
        raise TypeError(f"{''.join(path)}: expected a TypeSpec for {kind.__name__!r}, got {type(value).__name__!r}")
    return value


def _compatible(a: Any, b: Any) -> bool:
    if type(a) is not type(b):
        return False
    if isinstance(a, (TypeSpec, TensorShape)):
        return bool(a.is_compatible_with(b))
    return bool(a == b)
