"""Record classes: dataclasses that are made quickly.

    @record(frozen=True, slots=True)
    class Point:
        x: int
        y: int = 0

The import of a module takes as long as its classes, and the standard library compiles the source of up to seven methods
for each dataclass. Here `__init__` is the code of a function with as many parameters, in which the names are replaced;
it is compiled once for each form. The other methods are closures. So `import headrace` takes four fifths of the time.
Objects are made in the same time; a comparison takes 0.1 µs longer.

The fields are those of the standard library, whose functions `fields`, `replace` and `asdict` work on records.
"""

from __future__ import annotations

import dataclasses
import functools
import operator
import reprlib
import types
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, NamedTuple

__all__ = ["record"]

_Method = Callable[..., Any]


class _Unset:
    """Default of a parameter whose value a function makes."""

    def __repr__(self) -> str:
        return "<factory>"


_UNSET: Final = _Unset()

if TYPE_CHECKING:
    from dataclasses import dataclass as record
else:

    def record(cls=None, *, frozen=False, slots=False, eq=True, order=False):
        """Makes a class a dataclass; the arguments are those of `dataclasses.dataclass`."""

        def make(cls):
            made = dataclasses.dataclass(init=False, repr=False, eq=False, slots=slots)(cls)  # with fields alone
            _add_methods(made, frozen, slots, eq, order)
            return made

        return make if cls is None else make(cls)


def _add_methods(cls: type, frozen: bool, slots: bool, eq: bool, order: bool) -> None:
    own = cls.__dict__
    fields = dataclasses.fields(cls)
    found: dict[str, Any] = {"__init__": _init(cls, frozen), "__repr__": _repr([f.name for f in fields if f.repr])}
    key = _key([f.name for f in fields if f.compare])
    if eq:
        found["__eq__"] = _equality(key)
        if own.get("__hash__") is None and ("__hash__" not in own or "__eq__" in own):
            cls.__hash__ = _hash(key) if frozen else None  # type: ignore[assignment,method-assign]
    if order:
        for name in ("lt", "le", "gt", "ge"):
            found[f"__{name}__"] = _comparison(getattr(operator, name), key)
    if frozen:
        found["__setattr__"] = _refusal(cls, "assign to", "__setattr__")
        found["__delattr__"] = _refusal(cls, "delete", "__delattr__")
        if slots:
            found["__getstate__"], found["__setstate__"] = _get_state, _set_state
    for name, method in found.items():
        if name not in own:
            setattr(cls, name, method)


def _key(names: list[str]) -> Callable[[Any], tuple[Any, ...]]:
    if len(names) > 1:
        return operator.attrgetter(*names)
    if not names:
        return lambda _: ()
    get = operator.attrgetter(*names)
    return lambda self: (get(self),)


def _repr(names: list[str]) -> _Method:
    @reprlib.recursive_repr()
    def __repr__(self: Any) -> str:
        return f"{type(self).__qualname__}({', '.join(f'{name}={getattr(self, name)!r}' for name in names)})"

    return __repr__


def _equality(key: _Method) -> _Method:
    def __eq__(self: Any, other: Any) -> Any:
        return key(self) == key(other) if other.__class__ is self.__class__ else NotImplemented

    return __eq__


def _comparison(compare: Callable[[Any, Any], bool], key: _Method) -> _Method:
    def method(self: Any, other: Any) -> Any:
        return compare(key(self), key(other)) if other.__class__ is self.__class__ else NotImplemented

    return method


def _hash(key: _Method) -> _Method:
    def __hash__(self: Any) -> int:
        return hash(key(self))

    return __hash__


def _refusal(cls: type, verb: str, name: str) -> _Method:
    """The method `__setattr__` or `__delattr__` of a frozen class; subclasses may have other attributes."""
    names = frozenset(f.name for f in dataclasses.fields(cls))

    def refuse(self: Any, attr: str, *value: Any) -> None:
        if type(self) is cls or attr in names:
            raise dataclasses.FrozenInstanceError(f"cannot {verb} field {attr!r}")
        getattr(super(cls, self), name)(attr, *value)

    return refuse


def _get_state(self: Any) -> list[Any]:
    return [getattr(self, f.name) for f in dataclasses.fields(self)]


def _set_state(self: Any, state: list[Any]) -> None:
    for field, value in zip(dataclasses.fields(self), state, strict=True):
        object.__setattr__(self, field.name, value)


# *** __init__ ***


class _Parameter(NamedTuple):
    """The part of a field in `__init__`.

    Attributes:
      is_given: Whether the caller may give the value.
      is_keyword: Whether the parameter has no position.
      is_made: Whether a function makes the default.
    """

    is_given: bool
    is_keyword: bool
    is_made: bool


def _init(cls: type, frozen: bool) -> types.FunctionType:
    """The method `__init__`, whose code is that of `_code` with the names of the fields."""
    values: dict[str, Any] = {"_UNSET": _UNSET, "_set": object.__setattr__}
    names: dict[Any, str] = {}
    defaults: list[Any] = []
    keyword_defaults: dict[str, Any] = {}
    form: list[_Parameter] = []
    for f in dataclasses.fields(cls):
        is_made = f.default_factory is not dataclasses.MISSING
        if not (f.init or is_made or f.default is not dataclasses.MISSING):
            continue
        k = len(form)
        names[f"f{k}"] = f.name
        form.append(_Parameter(f.init, bool(f.kw_only), is_made))
        default = _UNSET if is_made else f.default
        if is_made:
            values[f"_new{k}"] = f.default_factory
        if not f.init:
            values[f"_default{k}"] = f.default
        elif default is not dataclasses.MISSING and f.kw_only:
            keyword_defaults[f.name] = default
        elif default is not dataclasses.MISSING:
            defaults.append(default)
    code = _code(tuple(form), frozen, hasattr(cls, "__post_init__"))
    code = code.replace(
        co_names=tuple(names.get(name, name) for name in code.co_names),
        co_varnames=tuple(names.get(name, name) for name in code.co_varnames),
        co_consts=tuple(names.get(c, c) if isinstance(c, str) else c for c in code.co_consts),
    )
    made = types.FunctionType(code, values, "__init__", tuple(defaults))
    made.__kwdefaults__ = keyword_defaults
    made.__annotations__ = {f.name: f.type for f in dataclasses.fields(cls) if f.init} | {"return": None}
    made.__qualname__ = f"{cls.__qualname__}.__init__"
    return made


@functools.cache
def _code(form: tuple[_Parameter, ...], frozen: bool, has_post: bool) -> types.CodeType:
    """Code of an `__init__` whose fields have the names f0, f1, and so on."""
    given = [(f"f{k}", p) for k, p in enumerate(form) if p.is_given]
    keywords = [name for name, p in given if p.is_keyword]
    params = ["self", *(name for name, p in given if not p.is_keyword), *(["*", *keywords] if keywords else [])]
    lines = [f"def __init__({', '.join(params)}):"]
    for k, p in enumerate(form):
        value = f"f{k}" if p.is_given else f"_new{k}()" if p.is_made else f"_default{k}"
        if p.is_given and p.is_made:
            value = f"_new{k}() if f{k} is _UNSET else f{k}"
        lines.append(f" _set(self, 'f{k}', {value})" if frozen else f" self.f{k} = {value}")
    lines.append(" self.__post_init__()" if has_post else " return None")
    made: dict[str, Any] = {}
    exec("\n".join(lines), made)
    code: types.CodeType = made["__init__"].__code__
    return code
