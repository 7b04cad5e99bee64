"""Deprecation: warnings name the user's line and the replacement.

A deprecated name that is overdue for removal fails here.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import pkgutil
import types
import warnings
from collections.abc import Iterator
from typing import Any

import pytest

import headrace
from headrace import deprecation, notices
from headrace.deprecation import Deprecated, Gone, deprecated, deprecated_argument, deprecated_names

pytestmark = pytest.mark.one_engine


HAS_TORCH = importlib.util.find_spec("torch") is not None  # an extra


@pytest.fixture(autouse=True)
def _forgotten() -> Iterator[None]:
    before = deprecation.all_deprecated()
    yield
    deprecation._all[:] = before


def test_nothing_that_is_deprecated_is_overdue() -> None:
    for m in pkgutil.walk_packages(headrace.__path__, "headrace."):
        if m.name.endswith("__main__") or (m.name.startswith("headrace.devices.") and not HAS_TORCH):
            continue
        importlib.import_module(m.name)
    due = [str(d) for d in deprecation.all_deprecated() if d.is_due(headrace.__version__)]
    assert not due, "\n".join(["this release was to be without:", *due])


def test_when_something_is_due() -> None:
    one = Deprecated("f", "0.4", "g", "0.10")
    assert [one.is_due(v) for v in ("0.4", "0.9.9", "0.10", "0.10.0rc1", "0.10.1", "1.0")] == [
        *(False, False),
        *(True, True, True, True),
    ]


def line() -> int:
    return inspect.stack()[1].lineno


def caught(f: Any, *args: Any, **kwargs: Any) -> list[warnings.WarningMessage]:
    with warnings.catch_warnings(record=True) as out:
        warnings.simplefilter("always")
        f(*args, **kwargs)
    return out


def test_a_function() -> None:
    @deprecated("0.4", use="hr.new", removed_in="99.0")
    def old(x: int, *, y: int = 1) -> int:
        """Adds.

        Args:
          x: a number.
          y: another number.
        """
        return x + y

    with pytest.warns(DeprecationWarning, match="old is deprecated") as found:
        assert old(2, y=3) == 5
    assert (found[0].filename, found[0].lineno) == (__file__, line() - 1)
    assert str(found[0].message).endswith("old is deprecated since headrace 0.4 and will be gone in 99.0: use hr.new")
    assert (old.__doc__ or "").splitlines()[:3] == ["Adds.", "", f"Deprecated: {found[0].message}."]
    assert "Args:" in (old.__doc__ or "")
    assert str(inspect.signature(old)) == "(x: 'int', *, y: 'int' = 1) -> 'int'"


def test_it_is_said_once_for_each_line() -> None:
    @deprecated("0.4", use="hr.new", removed_in="99.0")
    def old() -> None:
        pass

    with warnings.catch_warnings(record=True) as out:
        warnings.simplefilter("default")
        for _ in range(3):
            old()
        old()
    assert len(out) == 2


def test_a_class_and_a_method() -> None:
    @deprecated("0.4", use="New", removed_in="99.0")
    class Old:
        """A thing."""

        def __init__(self, x: int) -> None:
            self.x = x

        @deprecated("0.4", use="g", removed_in="99.0")
        def f(self) -> int:
            return self.x

    thing = caught(lambda: Old(3))
    assert [w.filename for w in thing] == [__file__]
    with pytest.warns(DeprecationWarning, match="Old is deprecated"):
        old = Old(3)
    assert isinstance(old, Old)
    with pytest.warns(DeprecationWarning, match=r"Old\.f is deprecated .* use g"):
        assert old.f() == 3
    assert "Deprecated:" in (Old.__doc__ or "")


def test_an_argument() -> None:
    @deprecated_argument("dim", since="0.4", use="axis", removed_in="99.0")
    def f(x: int, axis: int = 0, dim: int = 0, *, other: int = 1) -> int:
        return x + axis + dim

    assert caught(f, 1, 2) == caught(f, 1, axis=2, other=3) == []
    for found in (caught(f, 1, dim=2), caught(f, 1, 2, 3)):
        assert [str(w.message) for w in found] == [
            f"the argument 'dim' of {__name__}.{f.__qualname__} is deprecated since headrace 0.4 and will be gone in "
            "99.0: use axis"
        ]

    @deprecated_argument("dim", since="0.4", use="axis", removed_in="99.0")
    def g(x: int, *, dim: int = 0) -> int:
        return x

    assert caught(g, 1) == []
    assert len(caught(g, 1, dim=2)) == 1
    with pytest.raises(TypeError, match="has no argument 'axis' with a default"):
        deprecated_argument("axis", since="0.4", use="x", removed_in="99.0")(g)


def test_a_name_of_a_module() -> None:
    module: Any = types.ModuleType("some.module")
    module.__getattr__ = deprecated_names("some.module", old=Gone(lambda: 3, "0.4", use="new", removed_in="99.0"))
    with pytest.warns(DeprecationWarning, match=r"some\.module\.old is deprecated .* use new") as found:
        assert module.old == 3
    assert found[0].filename == __file__
    with pytest.raises(AttributeError, match=r"module 'some\.module' has no attribute 'other'"):
        module.other


def test_what_makes_no_sense() -> None:
    with pytest.raises(ValueError, match="cannot be removed in"):
        deprecated("0.4", use="x", removed_in="0.4")(lambda: None)
    with pytest.raises(ValueError, match="is no version"):
        deprecated("soon", use="x", removed_in="0.4")(lambda: None)


def test_all_are_known() -> None:
    n = len(deprecation.all_deprecated())
    deprecated("0.4", use="x", removed_in="99.0")(test_all_are_known)
    assert len(deprecation.all_deprecated()) == n + 1
    assert notices.users_frame() is not None
