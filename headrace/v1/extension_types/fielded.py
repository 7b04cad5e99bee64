"""Objects with fields: extension types and their specs. Their constructors, and their immutability."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, Any

from headrace.v1.extension_types.fields import NO_DEFAULT, Field, Form, check_names, split


class Fielded:
    """Base of extension types and of their specs: an object whose attributes are its fields.

    Fields are assigned while the constructor runs. Derived classes have the slots `_constructing`, `_form` and
    `_parts`.
    """

    __slots__ = ()

    if TYPE_CHECKING:  # an annotation in a base would be a field
        _constructing: bool
        _form: Form
        _parts: tuple[Any, ...]

    @classmethod
    def _fields(cls) -> tuple[Field, ...]:
        """Returns the fields in order."""
        raise NotImplementedError

    @staticmethod
    def _is_part(x: Any) -> bool:
        """Whether a leaf of the fields is a part of the object."""
        raise NotImplementedError

    def _converted(self, f: Field, value: Any) -> Any:
        """Returns the value of a field in the form of its annotation.

        Raises:
          TypeError: the value does not fit.
        """
        raise NotImplementedError

    def _complete(self) -> None:
        """Converts the fields after the constructor, and checks them.

        Raises:
          ValueError: a field has no value.
          TypeError: the value of a field does not fit.
        """
        found, given = self._fields(), dict(self.__dict__)
        check_names(found, given)
        self._assign({f.name: self._converted(f, given[f.name]) for f in found})
        self.__validate__()

    def _assign(self, values: dict[str, Any]) -> None:
        self._set(values, *split(tuple(values.values()), self._is_part))

    def _set(self, values: dict[str, Any], form: Form, parts: tuple[Any, ...]) -> None:
        self.__dict__.clear()
        self.__dict__.update(values)
        object.__setattr__(self, "_form", form)
        object.__setattr__(self, "_parts", parts)

    @classmethod
    def _made(cls, values: dict[str, Any]) -> Any:
        """Returns an object with given fields; its constructor is not called."""
        made = object.__new__(cls)
        made._assign(values)
        return made

    def _with_parts(self, parts: Sequence[Any]) -> Any:
        """Returns an object like this one with other parts; its constructor is not called."""
        made = object.__new__(type(self))
        values = dict(zip(self.__dict__, self._form.filled(parts), strict=True))
        made._set(values, self._form, tuple(parts))
        return made

    def _key(self) -> Hashable:
        """Returns the fields without the parts, as a hashable value."""
        return self._form.key

    def __validate__(self) -> None:
        """Checks the fields of a new object; derived classes override it."""

    def __setattr__(self, name: str, value: Any) -> None:
        self._check_mutable(name)
        self.__dict__[name] = value

    def __delattr__(self, name: str) -> None:
        self._check_mutable(name)
        del self.__dict__[name]

    def _check_mutable(self, name: str) -> None:
        if not getattr(self, "_constructing", False) or all(f.name != name for f in self._fields()):
            raise AttributeError(f"Cannot mutate attribute `{name}` outside the custom constructor of {self._title}.")

    def __reduce__(self) -> Any:
        return type(self)._made, (dict(self.__dict__),)

    def __deepcopy__(self, memo: Any) -> Any:
        return self  # it does not change

    _title = ""

    def __repr__(self) -> str:
        shown = ", ".join(f"{f.name}={getattr(self, f.name)!r}" for f in self._fields())
        return f"{type(self).__qualname__}({shown})"


def install(cls: Any, fields: Sequence[Field]) -> None:
    """Gives a class a constructor that assigns the fields.

    A constructor of the class itself is kept: while it runs, fields may be assigned.

    Args:
      cls: the class.
      fields: its fields. Those behind a field with a default value, without one, are given by keyword.
    """
    own = cls.__dict__.get("__init__")
    cls.__init__ = _taking(cls, fields) if own is None else _around(own)


def _around(own: Any) -> Any:
    @functools.wraps(own)
    def construct(self: Any, *args: Any, **kwargs: Any) -> None:
        is_inner = getattr(self, "_constructing", False)  # the constructor of a derived class calls this one
        object.__setattr__(self, "_constructing", True)
        try:
            own(self, *args, **kwargs)
        finally:
            object.__setattr__(self, "_constructing", is_inner)
        if not is_inner:
            self._complete()

    return construct


def _taking(cls: Any, fields: Sequence[Field]) -> Any:
    defaults = [i for i, f in enumerate(fields) if f.default is not NO_DEFAULT]
    behind = [i for i, f in enumerate(fields) if f.default is NO_DEFAULT and defaults and i > defaults[0]]
    first_by_keyword = behind[0] if behind else len(fields)
    parameters = [
        inspect.Parameter(
            f.name,
            inspect.Parameter.KEYWORD_ONLY if i >= first_by_keyword else inspect.Parameter.POSITIONAL_OR_KEYWORD,
            default=inspect.Parameter.empty if f.default is NO_DEFAULT else f.default,
            annotation=inspect.Parameter.empty if f.annotation is None and f.default is NO_DEFAULT else f.annotation,
        )
        for i, f in enumerate(fields)
    ]
    signature = inspect.Signature(parameters, return_annotation=cls)

    def construct(self: Any, *args: Any, **kwargs: Any) -> None:
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        self.__dict__.update(bound.arguments)
        if not getattr(self, "_constructing", False):
            self._complete()

    itself = inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    construct.__signature__ = signature.replace(parameters=[itself, *parameters])  # type: ignore[attr-defined]
    construct.__name__ = "__init__"
    return construct
