"""Values that a function reads from its surroundings, as a part of its signature.

A trace contains the numbers, functions and other Python objects that the function found in variables of enclosing
functions and of its module. If such a variable gets another value, the trace no longer computes the function.
Therefore the values of these variables belong to the signature, like arguments: numbers and text by value, other
objects by identity. The bytecode tells which variables a function reads. The variables of functions that it reads in
this way count, too, except for functions of headrace and of installed packages.

Changes inside of an object (an element of a list, an attribute) are not seen.
"""

from __future__ import annotations

import dis
import types
from collections.abc import Callable, Hashable, Iterator
from typing import Any, Final, NamedTuple

from headrace import thresholds
from headrace.autograph.conversion import is_library
from headrace.jit.signature import NUMBERS, python_key

_MISSING: Final = object()
_BY_VALUE: Final = (*NUMBERS, str, bytes, type(None))


class _State(NamedTuple):
    values: list[Any]
    key: Hashable


class Surroundings:
    """Variables around a function, and their values at the last call.

    Args:
      fn: the function.

    Attributes:
      changes: how often a number differed from that of the call before.
    """

    def __init__(self, fn: Callable[..., Any]) -> None:
        self._cells: list[tuple[str, types.CellType]] = []
        self._globals: list[tuple[str, dict[str, Any]]] = []
        for name, where in _variables(fn):
            if isinstance(where, types.CellType):
                self._cells.append((name, where))
            else:
                self._globals.append((name, where))
        self.changes = 0
        self._state = self._now()

    @property
    def values(self) -> list[Any]:
        """Values at the last call, kept because their identities are in signatures."""
        return self._state.values

    def key(self) -> Hashable:
        """Returns the part of the signature of a call that happens now."""
        values, key = self._state
        i = 0
        try:
            for _, cell in self._cells:
                if cell.cell_contents is not values[i]:
                    return self._changed()
                i += 1
        except ValueError:  # a variable without a value
            return self._changed()
        for name, names in self._globals:
            if names.get(name, _MISSING) is not values[i]:
                return self._changed()
            i += 1
        return key

    def changed_number(self) -> str:
        """Returns the name of a variable with a number, for messages."""
        names = [name for name, _ in (*self._cells, *self._globals)]
        return next((n for n, v in zip(names, self.values, strict=True) if isinstance(v, NUMBERS)), "")

    def _changed(self) -> Hashable:
        before = self._state
        now = self._state = self._now()
        if now.key != before.key:
            self.changes += 1
        return now.key

    def _now(self) -> _State:
        values = [_contents(cell) for _, cell in self._cells]
        values += [names.get(name, _MISSING) for name, names in self._globals]
        return _State(values, tuple([python_key(v) if isinstance(v, _BY_VALUE) else id(v) for v in values]))


def _contents(cell: types.CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        return _MISSING


def _variables(fn: Callable[..., Any]) -> Iterator[tuple[str, types.CellType | dict[str, Any]]]:
    """Iterates over the variables: cells, and names with the namespace that has them."""
    todo = [_function(fn)]
    seen: set[int] = set()
    known: set[tuple[str, int]] = set()
    while todo and len(seen) < thresholds.JIT_SURROUNDING_FUNCTIONS:
        f = todo.pop()
        if f is None or id(f) in seen or is_library(f.__code__.co_filename):
            continue
        seen.add(id(f))
        cells = dict(zip(f.__code__.co_freevars, f.__closure__ or (), strict=True))
        for name in _loaded(f.__code__):
            where = cells.get(name, f.__globals__)
            if isinstance(where, dict) and name not in where:
                continue  # a builtin
            value = where.get(name) if isinstance(where, dict) else _contents(where)
            if isinstance(value, types.ModuleType) or (name, id(where)) in known:
                continue
            known.add((name, id(where)))
            yield name, where
            todo.append(_function(value))


def _function(value: Any) -> types.FunctionType | None:
    """Returns the Python function that a call of `value` runs, if it is one."""
    value = getattr(value, "python_function", value)
    value = getattr(value, "func", value)  # functools.partial
    value = getattr(value, "function", value)  # a method that does not keep its instance
    value = getattr(value, "__func__", value)
    return value if isinstance(value, types.FunctionType) else None


def _loaded(code: types.CodeType) -> set[str]:
    """Returns the names of outer variables that code reads, nested code included."""
    found = {
        str(i.argval) for i in dis.get_instructions(code) if i.opname in ("LOAD_GLOBAL", "LOAD_NAME", "LOAD_DEREF")
    }
    for part in code.co_consts:
        if isinstance(part, types.CodeType):
            found |= _loaded(part)
    return found - set(code.co_cellvars)
