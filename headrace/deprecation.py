"""Deprecation of names, functions and arguments: warnings at the user's line until their removal.

`all_deprecated()` lists everything that is marked here. A test fails as soon as the version of headrace reaches the
release in which something should have been removed.

    @deprecated("0.4", use="hr.new", removed_in="0.6")
    def old(): ...

    @deprecated_argument("axis_", since="0.4", use="axis", removed_in="0.6")
    def f(x, axis=None, axis_=None): ...

    __getattr__ = deprecated_names(__name__, old=Gone(lambda: new, "0.4", use="hr.new", removed_in="0.6"))
"""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable
from typing import Any, Final, NamedTuple, TypeVar

from headrace import notices

F = TypeVar("F", bound=Callable[..., Any])


class Deprecated(NamedTuple):
    """A deprecated name, function or argument.

    Attributes:
      what: its description in messages: "headrace.v1.f", "the argument 'x' of headrace.f".
      since: the first release that warns of it.
      use: the replacement.
      removed_in: the first release without it.
    """

    what: str
    since: str
    use: str
    removed_in: str

    def __str__(self) -> str:
        return (
            f"{self.what} is deprecated since headrace {self.since} and will be gone in {self.removed_in}: "
            f"use {self.use}"
        )

    def is_due(self, version: str) -> bool:
        """Whether headrace `version` must no longer have it."""
        return _numbers(version) >= _numbers(self.removed_in)


_all: Final[list[Deprecated]] = []


def all_deprecated() -> list[Deprecated]:
    """Lists all that is deprecated in the modules imported so far."""
    return list(_all)


def _new(what: str, since: str, use: str, removed_in: str) -> Deprecated:
    if _numbers(since) >= _numbers(removed_in):
        raise ValueError(f"{what}: deprecated since {since}, so it cannot be removed in {removed_in}")
    found = Deprecated(what, since, use, removed_in)
    _all.append(found)
    return found


def _numbers(version: str) -> tuple[int, ...]:
    """Converts a version to numbers: `"0.10.1"` → `(0, 10, 1)`. A suffix ("rc1") is ignored.

    Raises:
      ValueError: a text that does not begin with a number.
    """
    found = re.match(r"\d+(\.\d+)*", version)
    if found is None:
        raise ValueError(f"{version!r} is no version: expected one like '0.4'")
    return tuple(map(int, found[0].split(".")))


def _warn(one: Deprecated) -> None:
    notices.warn(str(one), DeprecationWarning)


def _noted(f: Any, one: Deprecated) -> None:
    doc = inspect.getdoc(f) or ""
    first, _, rest = doc.partition("\n\n")
    f.__doc__ = f"{first}\n\nDeprecated: {one}.\n\n{rest}".strip() + "\n"


def deprecated(since: str, *, use: str, removed_in: str) -> Callable[[F], F]:
    """Marks a function, method or class as deprecated: each call warns.

    Args:
      since: the first release that warns.
      use: the replacement.
      removed_in: the first release without it.

    Example:
      >>> @deprecated("0.4", use="hr.square", removed_in="99.0")
      ... def twice(x):
      ...     return x * x
      >>> import warnings
      >>> with warnings.catch_warnings(record=True) as caught:
      ...     warnings.simplefilter("always")
      ...     twice(3)
      9
      >>> str(caught[0].message).partition(":")[2]
      ' use hr.square'
    """

    def mark(f: F) -> F:
        one = _new(f"{f.__module__}.{f.__qualname__}", since, use, removed_in)
        if isinstance(f, type):
            cls: Any = f
            init = cls.__init__

            @functools.wraps(init)
            def warned(self: Any, *args: Any, **kwargs: Any) -> None:
                _warn(one)
                init(self, *args, **kwargs)

            cls.__init__ = warned
            _noted(cls, one)
            return f

        @functools.wraps(f)
        def call(*args: Any, **kwargs: Any) -> Any:
            _warn(one)
            return f(*args, **kwargs)

        _noted(call, one)
        return call  # type: ignore[return-value]

    return mark


def deprecated_argument(name: str, *, since: str, use: str, removed_in: str) -> Callable[[F], F]:
    """Marks an argument of a function as deprecated: each call with it warns.

    Args:
      name: the name of the argument. It must have a default.
      since: the first release that warns.
      use: the replacement.
      removed_in: the first release without it.

    Raises:
      TypeError: the function has no such argument, or the argument has no default.
    """

    def mark(f: F) -> F:
        parameters = list(inspect.signature(f).parameters.values())
        position = next((i for i, p in enumerate(parameters) if p.name == name), None)
        if position is None or parameters[position].default is inspect.Parameter.empty:
            raise TypeError(f"{f.__qualname__} has no argument {name!r} with a default")
        if parameters[position].kind is inspect.Parameter.KEYWORD_ONLY:
            position = len(parameters)  # it cannot be passed by position
        one = _new(f"the argument {name!r} of {f.__module__}.{f.__qualname__}", since, use, removed_in)

        @functools.wraps(f)
        def call(*args: Any, **kwargs: Any) -> Any:
            if name in kwargs or len(args) > position:
                _warn(one)
            return f(*args, **kwargs)

        _noted(call, one)
        return call  # type: ignore[return-value]

    return mark


class Gone(NamedTuple):
    """A deprecated name of a module.

    Attributes:
      get: returns the object of that name.
      since: the first release that warns.
      use: the replacement.
      removed_in: the first release without it.
    """

    get: Callable[[], Any]
    since: str
    use: str
    removed_in: str


def deprecated_names(module: str, **names: Gone) -> Callable[[str], Any]:
    """Returns a module's `__getattr__`, which warns at the use of a deprecated name.

    Args:
      module: the `__name__` of the module.
      names: the deprecated names. The module must not define them in another way.
    """
    known = {n: (_new(f"{module}.{n}", g.since, g.use, g.removed_in), g.get) for n, g in names.items()}

    def find(name: str) -> Any:
        found = known.get(name)
        if found is None:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        _warn(found[0])
        return found[1]()

    return find
