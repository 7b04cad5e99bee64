"""TensorFlow's `tf.experimental.ExtensionType`: classes of the user whose fields are tensors and Python values.

An instance is a composite (`nest.Composite`): its parts are the tensors and composites in its fields, in order, and its
key is all the rest. So conditionals, loops, jitted functions and fetches take it without further support. A copy with
other parts has the form of the instance, and its constructor is not called.
"""

from __future__ import annotations

import abc
import inspect
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from headrace import nest
from headrace.api import scopes
from headrace.ir.tensor_type import Tensor
from headrace.v1 import array_ops, math_ops
from headrace.v1.extension_types import fields, names
from headrace.v1.extension_types.fielded import Fielded, install
from headrace.v1.extension_types.fields import Field
from headrace.v1.extension_types.specs import BatchableExtensionTypeSpec, ExtensionTypeSpec
from headrace.v1.type_specs import TypeSpec


class ExtensionType(Fielded, nest.Composite, metaclass=abc.ABCMeta):
    """Base of classes whose instances are structures of tensors, and are used as tensors are.

    The annotations of a derived class are its fields: `tf.Tensor`, a class of composites (`tf.RaggedTensor`, another
    extension type), `tf.TensorShape`, `tf.DType`, `int`, `float`, `str`, `bytes`, `bool`, None, and `Union`,
    `Optional`, `tuple` and `Mapping` of these. The constructor takes the fields in order, unless the class has its
    own, which assigns them; it converts them and then calls `__validate__`. Afterwards they do not change.

    The class `Spec` of a derived class describes its instances; a nested class `Spec` adds methods to it. Messages
    name the class by its attribute `__name__`.

    Raises (when a class is derived):
      ValueError: a name is reserved, or an attribute has no annotation.
      TypeError: an annotation is not supported, or a default value does not fit it.

    Source: TensorFlow's `tf.experimental.ExtensionType`. In difference to it, sessions fetch an instance: the fetched
    value is one with arrays.

    Example:
      >>> import headrace.v1 as tf
      >>> class Masked(tf.experimental.ExtensionType):
      ...     values: tf.Tensor
      ...     mask: tf.Tensor
      >>> with tf.Graph().as_default(), tf.Session() as sess:
      ...     m = Masked([1, 2], [True, False])
      ...     n = tf.cond(tf.constant(True), lambda: Masked(m.values * 10, m.mask), lambda: m)
      ...     sess.run(n).values.tolist()
      [10, 20]
    """

    __slots__ = ("_constructing", "_form", "_parts")

    is_fetched_as_itself = True
    _title = "ExtensionType"

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        if type(self) is ExtensionType:
            raise AssertionError(
                "Cannot create an instance of ExtensionType because ExtensionType is an abstract base class."
            )

    def __init_subclass__(cls, is_base: bool = False, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if is_base:
            return
        _check_attributes(cls)
        cls._resolve(_names_of_caller())
        install(cls, cls._fields())
        cls.Spec = _make_spec(cls)  # type: ignore[attr-defined]

    @classmethod
    def _fields(cls) -> tuple[Field, ...]:
        found: tuple[Field, ...] | None = cls.__dict__.get("_resolved_fields")
        return cls._resolve({}) if found is None else found

    @classmethod
    def _resolve(cls, names: Mapping[str, Any]) -> tuple[Field, ...]:
        """Returns the fields, and keeps them if all annotations are resolved."""
        found, is_resolved = fields.of_class(cls, names)
        if is_resolved:
            cls._resolved_fields = found  # type: ignore[attr-defined]
        return found

    @staticmethod
    def _is_part(x: Any) -> bool:
        return isinstance(x, (Tensor, nest.Composite))

    def _converted(self, f: Field, value: Any) -> Any:
        return fields.converted(value, f.annotation, (f.name,), fields.as_tensor)

    def _flatten(self) -> list[Any]:
        return list(self._parts)

    def _unflatten(self, parts: Sequence[Any]) -> Any:
        return self._with_parts(parts)

    def _merged(self, other: Any) -> Any:
        return self._with_parts([nest.merged(x, y) for x, y in zip(self._parts, other._parts, strict=True)])

    def _loop_shapes(self, invariant: Any) -> None:
        if invariant is not None:
            kind = type(self).__name__
            raise TypeError(f"To describe or constrain a {kind}, use a {kind}.Spec instead of a TensorShape.")

    @property
    def _type_spec(self) -> Any:
        """Description of the instance."""
        return type(self).Spec.from_value(self)  # type: ignore[attr-defined]

    # *** leaves of a dataset's elements ***

    def _encoding(self) -> Any:
        return self._type_spec._encoded(self, 0)

    def _row_encoding(self) -> Any:
        return self._type_spec._encoded(self, 1)

    def _with_encoding(self, parts: Any) -> Any:
        return self._type_spec._with_encoding(parts)

    # *** Python's operators ***

    def __eq__(self, other: object) -> Any:
        """Whether all parts are equal, a tensor.

        The result is False for another class, other shapes or other Python values.
        """
        if type(self) is not type(other) or self._type_spec != other._type_spec:
            return False
        pairs = zip(nest.flatten(self), nest.flatten(other), strict=True)
        found = [_equal(x, y) for x, y in pairs]
        return math_ops.reduce_all(array_ops.stack(found)) if found else array_ops.constant(True)

    __hash__ = None  # type: ignore[assignment]

    def __ne__(self, other: object) -> Any:
        found = self.__eq__(other)
        return math_ops.logical_not(found) if isinstance(found, Tensor) else not found


class BatchableExtensionType(ExtensionType, is_base=True):
    """Extension type whose instances can be batched and unbatched, as in datasets and `tf.map_fn`.

    The attribute `__batch_encoder__` of a derived class, an `ExtensionTypeBatchEncoder`, says how. Otherwise the
    tensors, the composites and the shapes in the fields are batched.

    Source: TensorFlow's `tf.experimental.BatchableExtensionType`.

    Example:
      >>> import headrace.v1 as tf
      >>> class Vehicle(tf.experimental.BatchableExtensionType):
      ...     top_speed: tf.Tensor
      ...     mpg: tf.Tensor
      >>> with tf.Graph().as_default(), tf.Session() as sess:
      ...     fleet = Vehicle([120, 150, 80], [30, 40, 12])
      ...     batches = tf.data.Dataset.from_tensor_slices(fleet).batch(2)
      ...     sess.run(batches.make_one_shot_iterator().get_next()).mpg.tolist()
      [30, 40]
    """

    __slots__ = ()


def as_dict(value: ExtensionType) -> dict[str, Any]:
    """Returns the fields of an instance by name. Fields that are extension types stay such.

    Args:
      value: the instance.

    Source: TensorFlow's `tf.experimental.extension_type.as_dict`.
    """
    return {f.name: getattr(value, f.name) for f in value._fields()}


# Attributes that the class itself needs; another name can be that of a field.
_OWN = frozenset(name for name in dir(ExtensionType) if not name.startswith("__"))


@nest.describe.register
def _(x: ExtensionType) -> str:
    is_part = set(map(id, x._parts))
    shown = ", ".join(f"{k}={'<tensor>' if id(v) in is_part else repr(v)}" for k, v in x.__dict__.items())
    return f"{type(x).__qualname__}({shown})"


def _equal(x: Any, y: Any) -> Any:
    """Whether two tensors have the same shape and elements."""
    b = scopes.builder(x, y)

    def equal(x: Any, y: Any) -> Any:
        return math_ops.reduce_all(b.make("Equal", (x, y), {"incompatible_shape_error": False}))

    return math_ops.logical_and(equal(array_ops.shape(x), array_ops.shape(y)), equal(x, y))


def _names_of_caller() -> Mapping[str, Any]:
    """Returns the names at the class statement, which texts in annotations use."""
    frame: Any = sys._getframe(2)
    while frame.f_globals.get("__name__") == "abc":  # the metaclass
        frame = frame.f_back
    return {**frame.f_globals, **frame.f_locals}


def _check_attributes(cls: type) -> None:
    """Checks the names of a class's attributes and annotations.

    Raises:
      ValueError: a name is reserved, or has no annotation.
    """
    annotations, where = inspect.get_annotations(cls), f"The field annotations for {cls.__name__} are invalid."
    for name, value in vars(cls).items():
        if name == "Spec":
            if not isinstance(value, type):
                raise ValueError(f"{cls.__qualname__}.Spec must be a nested class; got {value}.")
            if value.__bases__ not in ((TypeSpec,), (object,)):
                raise ValueError(f"{cls.__qualname__}.Spec must be directly subclassed from tf.TypeSpec.")
        elif fields.is_reserved(name):
            raise ValueError(f"{where} Field '{name}' is reserved.")
    for name in annotations:
        if fields.is_reserved(name):
            raise ValueError(f"{where} Field '{name}' is reserved.")
    for name in {*annotations, *vars(cls)}.intersection(_OWN):
        raise ValueError(f"{where} Field '{name}' is reserved.")
    for name, value in vars(cls).items():
        is_method = callable(value) or isinstance(value, (property, classmethod, staticmethod))
        is_pythons = name.startswith("_abc_") or (name.startswith("__") and name.endswith("__"))
        if name not in annotations and not is_method and not is_pythons:
            raise ValueError(f"{where} Field {name} is missing a type annotation.")


def _make_spec(cls: Any) -> type[ExtensionTypeSpec]:
    """Returns the class that describes instances of an extension type.

    Raises:
      ValueError: the nested class `Spec` has a reserved name, or that of a field.
    """
    own, title = {f.name for f in cls._fields()}, f"{cls.__qualname__}.Spec"
    inside: dict[str, Any] = {"value_type": cls, "__module__": cls.__module__, "__qualname__": title}
    for name, value in vars(cls.__dict__.get("Spec", object)).items() if "Spec" in cls.__dict__ else ():
        if fields.is_reserved(name):
            raise ValueError(f"TypeSpec {title} uses reserved name '{name}'.")
        if name in own:
            raise ValueError(
                f"TypeSpec {title} defines a variable '{name}' which shadows a field in {cls.__qualname__}"
            )
        if name not in ("__module__", "__dict__", "__weakref__", "__qualname__"):
            inside[name] = value
    base: type[ExtensionTypeSpec] = ExtensionTypeSpec
    if issubclass(cls, BatchableExtensionType):
        base = BatchableExtensionTypeSpec
        if hasattr(cls, "__batch_encoder__"):
            inside.setdefault("__batch_encoder__", cls.__batch_encoder__)
    elif hasattr(cls, "__batch_encoder__") or "__batch_encoder__" in inside:
        raise ValueError("__batch_encoder__ should only be defined for BatchableExtensionType classes.")
    made = type(f"{cls.__name__}.Spec", (base,), inside)
    if "__name__" in cls.__dict__:
        names.register(f"{cls.__dict__['__name__']}.Spec", made)
    install(made, [fields.Field(f.name, f.annotation, fields.NO_DEFAULT) for f in cls._fields()])
    return made
