"""Calls: the user's functions are converted, and functions of Python take tensors."""

from __future__ import annotations

import functools
import types
from collections.abc import Callable
from typing import Any, Final

from headrace.api import scopes
from headrace.autograph.operators import builtin_functions, containers, recursion
from headrace.autograph.origin import SourceError
from headrace.errors import AutographError

_OVERLOADS: Final[dict[Any, Callable[..., Any]]] = builtin_functions.OVERLOADS
_FUNCTIONS: Final = (types.FunctionType, types.MethodType, functools.partial)


_GENERATOR: Final = 0x20  # flag of the code of a generator


class Caller:
    """Choice of the function that a call in converted code runs.

    Args:
      convert: converts a function.
      is_convertible: whether it changes a function.
      is_library: whether the functions of a file are called as they are.
    """

    def __init__(
        self,
        convert: Callable[[Any], Any],
        is_convertible: Callable[[types.FunctionType], bool],
        is_library: Callable[[str], bool],
    ) -> None:
        self._convert = convert
        self._is_convertible = is_convertible
        self._is_library = is_library

    def of(self, f: Any) -> Any:
        """Returns the form of a callable object that converted code calls."""
        kind = type(f)
        if kind is types.FunctionType:
            return self._function(f)
        if kind is types.BuiltinFunctionType:
            overload = _OVERLOADS.get(f) if type(f.__self__) is types.ModuleType else None
            if overload is not None:
                return self._with_functions(overload)
            return containers.method(f)
        if kind is types.MethodType:
            inner = self._function(f.__func__) if type(f.__func__) is types.FunctionType else f.__func__
            return f if inner is f.__func__ else types.MethodType(inner, f.__self__)
        if isinstance(f, type):
            overload = _OVERLOADS.get(f)
            return self._class(f) if overload is None else self._with_functions(overload)
        if kind is functools.partial:
            inner = self.of(f.func)
            return f if inner is f.func else functools.partial(inner, *f.args, **f.keywords)
        call = getattr(kind, "__call__", None)  # noqa: B004
        if type(call) is types.FunctionType and self._is_convertible(call):
            return types.MethodType(self._function(call), f)
        return f

    def _function(self, f: types.FunctionType) -> Any:
        if self._is_library(f.__code__.co_filename):
            return self._with_functions(_OVERLOADS.get(f, f))
        if not self._is_convertible(f):
            return _named_generator(f) if f.__code__.co_flags & _GENERATOR else f
        try:
            converted = self._convert(f)
            return converted if scopes.is_outside() else recursion.checked(f, converted)
        except SourceError:
            return _in_python(f, "has no source")

    def _with_functions(self, f: Any) -> Any:
        """Returns a library function that receives converted functions in place of the user's."""

        def call(*args: Any, **kwargs: Any) -> Any:
            if any(type(x) in _FUNCTIONS for x in args):
                args = tuple(self.of(x) if type(x) in _FUNCTIONS else x for x in args)
            for k, x in kwargs.items():
                if type(x) in _FUNCTIONS:
                    kwargs[k] = self.of(x)
            return f(*args, **kwargs)

        call.__wrapped__ = f  # type: ignore[attr-defined]
        return call

    def _class(self, kind: Any) -> Any:
        """Returns a function that makes an object by a converted `__init__`."""
        init: Any = kind.__init__
        new: Any = kind.__new__
        if (
            type(init) is not types.FunctionType
            or type(kind) is not type
            or new is not object.__new__
            or init.__code__.co_filename.startswith("<")
            or not self._is_convertible(init)
        ):
            return kind
        made = self._function(init)

        def construct(*args: Any, **kwargs: Any) -> Any:
            out: Any = new(kind)
            made(out, *args, **kwargs)
            return out

        return construct


def _in_python(f: types.FunctionType, why: str) -> Any:
    """Returns an unconverted function that names itself if a tensor decides in it."""

    @functools.wraps(f)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            return f(*args, **kwargs)
        except TypeError as e:
            raise _undecided(f, why, e) from e

    return call


def _named_generator(f: types.FunctionType) -> Any:
    """Returns a generator function that names itself if a tensor decides in it."""

    @functools.wraps(f)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            return (yield from f(*args, **kwargs))
        except TypeError as e:
            raise _undecided(f, "is a generator", e) from e

    return call


def _undecided(f: types.FunctionType, why: str, error: TypeError) -> Exception:
    if "of the symbolic tensor" not in str(error):
        return error
    code = f.__code__
    return AutographError(
        f"a tensor decides in '{f.__qualname__}' ({code.co_filename}:{code.co_firstlineno}), which {why}, so it is not "
        f"converted: {error}. Move the code into a plain function of a file"
    )
