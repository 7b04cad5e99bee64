"""Fields of extension types: their annotations, and the conversion of values to them."""

from __future__ import annotations

import types
import typing
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from typing import Any, Final

from headrace import dtypes, nest
from headrace.ir.tensor_type import Tensor
from headrace.records import record
from headrace.v1 import array_ops
from headrace.v1.tensor_shape import TensorShape

#: Default of a field without one.
NO_DEFAULT: Final = object()

#: Annotations of values that are taken as they are.
_PLAIN: Final = (int, float, str, bytes, bool, type(None))

#: Names that a field cannot have: those of TensorFlow's classes.
_RESERVED: Final = frozenset(
    "self Spec _type_spec _shape_invariant_to_type_spec _consumers value_type is_compatible_with "
    "most_specific_compatible_type _with_tensor_ranks_only _to_components _from_components _component_specs "
    "_to_tensor_list _from_tensor_list _from_compatible_tensor_list _flat_tensor_specs _serialize _deserialize "
    "_to_legacy_output_types _to_legacy_output_shapes _to_legacy_output_classes _keras_mask".split()
)


def is_reserved(name: str) -> bool:
    """Whether no field may have this name."""
    return name in _RESERVED or name.lower().startswith("_tf_extension_type")


class ImmutableDict(Mapping[Any, Any]):
    """Mapping that cannot be changed, in a field.

    Args:
      items: a mapping or pairs.

    >>> ImmutableDict({"a": 1})
    ImmutableDict({'a': 1})
    """

    __slots__ = ("_items",)

    def __init__(self, items: Any = ()) -> None:
        self._items = dict(items)

    def __getitem__(self, key: Any) -> Any:
        return self._items[key]

    def __iter__(self) -> Iterator[Any]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)

    def __hash__(self) -> int:
        return hash(tuple(sorted((repr(k), hash(v)) for k, v in self._items.items())))

    def __repr__(self) -> str:
        return f"ImmutableDict({self._items!r})"


@record(frozen=True, slots=True)
class Field:
    """A field of an extension type.

    Attributes:
      name: its name.
      annotation: the type expression of its values.
      default: the value of a constructor without this argument, or `NO_DEFAULT`.
    """

    name: str
    annotation: Any
    default: Any


def of_class(cls: type, names: Mapping[str, Any]) -> tuple[tuple[Field, ...], bool]:
    """Returns the fields of a class, and whether all annotations are resolved.

    Those of its bases are first.

    Args:
      cls: the class.
      names: names in annotations that are texts, other than those of the module.

    Raises:
      TypeError: an annotation is none of those that are supported, or a default value does not fit it.
    """
    try:
        hints, is_resolved = typing.get_type_hints(cls, localns=dict(names)), True
    except (NameError, AttributeError):  # an annotation names a class that does not exist yet
        hints, is_resolved = {}, False
        for base in reversed(cls.__mro__):
            hints.update(getattr(base, "__annotations__", {}))
    return tuple(_field(cls, name, annotation) for name, annotation in hints.items()), is_resolved


def _field(cls: type, name: str, annotation: Any) -> Field:
    try:
        _check(annotation)
    except TypeError as e:
        raise TypeError(f"In field {name!r}: {e}") from e
    default = getattr(cls, name, NO_DEFAULT)
    if default is not NO_DEFAULT:
        default = converted(default, annotation, (f"default value for {name}",), lambda x, path: x)
    return Field(name, annotation, default)


def _is_composite(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, nest.Composite)


def _is_union(annotation: Any) -> bool:
    return typing.get_origin(annotation) in (typing.Union, types.UnionType)


def _is_tuple(annotation: Any) -> bool:
    return typing.get_origin(annotation) is tuple


def _is_mapping(annotation: Any) -> bool:
    return typing.get_origin(annotation) is Mapping


def _check(annotation: Any, in_key: bool = False) -> None:
    """Checks an annotation.

    Args:
      annotation: the annotation. A forward reference, which is a text, is checked when it is resolved.
      in_key: whether it is a part of the annotation of a mapping's keys.

    Raises:
      TypeError: it is not supported.
    """
    if annotation is None or isinstance(annotation, (str, typing.ForwardRef)):
        return
    if _is_tuple(annotation) or _is_union(annotation):
        for part in typing.get_args(annotation):
            if part is not Ellipsis:
                _check(part, in_key)
    elif _is_mapping(annotation):
        key, value = typing.get_args(annotation)
        _check(key, True)
        _check(value, in_key)
    elif annotation in (Tensor, TensorShape) or _is_composite(annotation):
        if in_key:
            raise TypeError(f"Mapping had a key {annotation.__name__!r} with type {type(annotation).__name__!r}")
    elif annotation not in (*_PLAIN, dtypes.DType):
        shown = repr(annotation.__name__) if isinstance(annotation, type) else repr(annotation)
        raise TypeError(f"Unsupported type annotation {shown}")


#: Function of a value for a tensor or composite, and of its path in the fields.
Part = Callable[[Any, tuple[str, ...]], Any]


def converted(value: Any, annotation: Any, path: tuple[str, ...], tensor: Part, composite: Any = None) -> Any:
    """Returns a value in the form of an annotation.

    Args:
      value: the value.
      annotation: the annotation.
      path: the texts of the access to the value, for messages.
      tensor: converts a value for `tf.Tensor`.
      composite: converts a value for a class of composites, its third argument; None: checks the class.

    Raises:
      TypeError: the value does not fit.
    """
    at = "".join(path)
    if annotation is None:
        annotation = type(None)
    if annotation is Tensor:
        return tensor(value, path)
    if _is_composite(annotation):
        return (composite or _of_class)(value, path, annotation)
    if annotation in (TensorShape, dtypes.DType):
        make = TensorShape if annotation is TensorShape else dtypes.as_dtype
        try:
            return make(value)
        except TypeError as e:
            raise TypeError(f"{at}: expected 'tf.{annotation.__name__}', got {type(value).__name__!r}") from e
    if annotation in _PLAIN:
        return _of_class(value, path, annotation)
    args = typing.get_args(annotation)
    if _is_tuple(annotation):
        if not isinstance(value, Sequence):
            raise TypeError(f"{at}: expected tuple, got {type(value).__name__!r}")
        if len(args) == 2 and args[1] is Ellipsis:
            args = (args[0],) * len(value)
        elif len(value) != len(args):
            raise TypeError(f"{at}: expected tuple with length {len(args)}, got {type(value).__name__!r})")
        pairs = enumerate(zip(value, args, strict=True))
        return tuple(converted(v, a, (*path, f"[{i}]"), tensor, composite) for i, (v, a) in pairs)
    if _is_mapping(annotation):
        if not isinstance(value, Mapping):
            raise TypeError(f"{at}: expected mapping, got {type(value).__name__!r}")
        return ImmutableDict(
            (
                converted(k, args[0], (*path, "[<key>]"), tensor, composite),
                converted(v, args[1], (*path, f"[{k!r}]"), tensor, composite),
            )
            for k, v in value.items()
        )
    if _is_union(annotation):
        for option in args:
            try:
                return converted(value, option, path, tensor, composite)
            except TypeError:
                continue
        raise TypeError(f"{at}: expected {annotation!r}, got {type(value).__name__!r}")
    raise TypeError(f"{at}: Unsupported type annotation {annotation!r}")


def as_tensor(value: Any, path: tuple[str, ...]) -> Tensor:
    """Returns the tensor of a value for a field.

    Raises:
      TypeError: the value cannot be a tensor.
    """
    if isinstance(value, Tensor):
        return value
    try:
        made: Tensor = array_ops.convert_to_tensor(value)
        return made
    except (ValueError, TypeError) as e:
        raise TypeError(f"{''.join(path)}: expected a Tensor, got {type(value).__name__!r}") from e


def _of_class(value: Any, path: tuple[str, ...], annotation: type) -> Any:
    if not isinstance(value, annotation):
        raise TypeError(f"{''.join(path)}: expected {annotation.__name__!r}, got {type(value).__name__!r}")
    return value


def check_names(fields: Sequence[Field], given: Mapping[str, Any]) -> None:
    """Checks that each field has a value, and no other name has one.

    Raises:
      ValueError: a name is missing or unexpected.
    """
    expected, found = {f.name for f in fields}, set(given)
    if found - expected:
        raise ValueError(f"Got unexpected fields: {found - expected}")
    if expected - found:
        raise ValueError(f"Missing required fields: {expected - found}")


# *** values without their tensors ***


class _Hole:
    """Place of a tensor or composite in a `Form`."""

    def __repr__(self) -> str:
        return "<part>"


_HOLE: Final = _Hole()


class Form:
    """Fields of an object, without its tensors and composites, or the specs of these.

    Args:
      structure: the values of the fields, with a hole in the place of each part.

    Attributes:
      key: a hashable value, equal for forms whose other fields are equal.
    """

    __slots__ = ("_leaves", "_structure", "key")

    def __init__(self, structure: tuple[Any, ...]) -> None:
        self._structure, self._leaves = structure, nest.flatten(structure, expand=False)
        static = tuple(x if x is _HOLE else (type(x), x) for x in self._leaves)
        self.key: Hashable = (nest.outline(structure), static)

    def filled(self, parts: Sequence[Any]) -> tuple[Any, ...]:
        """Returns the values of the fields with other parts.

        Raises:
          ValueError: there are more or fewer parts than places.
        """
        count = self._leaves.count(_HOLE)
        if count != len(parts):
            raise ValueError(
                f"Cannot build an ExtensionType instance from components: {len(parts)} components are provided, and "
                f"the type spec expects {count}."
            )
        rest = iter(parts)
        leaves = [next(rest) if x is _HOLE else x for x in self._leaves]
        made: tuple[Any, ...] = nest.pack(self._structure, leaves, expand=False)
        return made


def split(values: Sequence[Any], is_part: Callable[[Any], bool]) -> tuple[Form, tuple[Any, ...]]:
    """Returns the form and the parts of the values of fields."""
    leaves = nest.flatten(tuple(values), expand=False)
    structure = nest.pack(tuple(values), [_HOLE if is_part(x) else x for x in leaves], expand=False)
    return Form(structure), tuple(filter(is_part, leaves))
