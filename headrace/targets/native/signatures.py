"""Signatures of native regions: all that their printed text depends on.

    text = signature(regions, functions)

A record is its class and its fields, and an array its bytes. An object that occurs again is its number, because
printers compute a shared expression once. Printers read neither graphs nor the names of operations, so regions of equal
signatures have the same text, and so do the places that can fail.
"""

from __future__ import annotations

import dataclasses
import hashlib
import operator
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from headrace import memo
from headrace.dtypes import DType
from headrace.schedule.program import Compute, Value
from headrace.schedule.select import ListOperation
from headrace.targets.native.element_types import ElementTypes

if TYPE_CHECKING:
    from headrace.targets.native.calls import Functions
    from headrace.targets.native.regions import NativeRegion

#: Fields that printers do not read: parts of the graph.
_LEFT_OUT: Final = frozenset({"op", "tensor", "region"})

_PLAIN: Final = frozenset({int, str, bool, float, type(None), type(Ellipsis), complex})


class _UnknownError(Exception):
    """Raised for an object that has no text."""


def signature(regions: Sequence[NativeRegion], functions: Functions) -> str | None:
    """The signature of regions and of the functions that they call.

    Returns:
      The signature; None if there is an object of unknown kind.
    """
    writer = _Writer()
    try:
        for region in regions:
            writer.elements = region.elements
            for part in (region.inputs, region.outputs, region.instrs):
                writer.add(part)
            for name, body in functions.called(region.instrs).items():
                writer.elements = ElementTypes(body.instrs)
                writer.add((name, body.symbol, body.params, body.results, body.instrs))
    except _UnknownError:
        return None
    return " ".join(writer.parts)


class _Writer:
    """Writer of signatures."""

    elements: ElementTypes

    def __init__(self) -> None:
        self.parts: list[str] = []
        self._seen: dict[int, tuple[int, Any]] = {}  # with the objects, so that no other one gets the same address

    def add(self, x: Any) -> None:
        """Writes an object."""
        kind = type(x)
        if kind in _PLAIN:
            self.parts.append(repr(x))
        elif kind is tuple or kind is list:
            self.parts.append("(")
            for each in x:
                self.add(each)
            self.parts.append(")")
        elif (known := self._seen.get(id(x))) is not None:
            self.parts.append(f"#{known[0]}")
        else:
            self._seen[id(x)] = (len(self._seen), x)
            self._new(x, kind)

    def _new(self, x: Any, kind: type) -> None:
        """Writes an object that did not occur yet."""
        fields = _fields_of(kind)
        if fields is None:
            self.parts.append(_leaf(x))
            return
        self.parts.append(f"{kind.__qualname__}(")
        for each in fields(x):
            if type(each) in _PLAIN:
                self.parts.append(repr(each))
            else:
                self.add(each)
        if kind is Value and x.representation == "list":
            self.add(self.elements.of(x))
        if kind is Compute and isinstance(x.work, ListOperation):
            self.add(x.op.attrs.get("num_elements"))
        self.parts.append(")")


@memo.cached(100, "fields of records")
def _fields_of(kind: type) -> Callable[[Any], tuple[Any, ...]] | None:
    """Getter of the fields that printers read; None for a class without fields."""
    if not dataclasses.is_dataclass(kind) or issubclass(kind, DType):
        return None
    names = [f.name for f in dataclasses.fields(kind) if f.name not in _LEFT_OUT]
    if len(names) < 2:
        return lambda x: tuple([getattr(x, name) for name in names])
    return operator.attrgetter(*names)


def _leaf(x: Any) -> str:
    """The text of an object that is no record."""
    if isinstance(x, DType):
        return x.name
    if isinstance(x, np.dtype) and not x.hasobject:
        return f"{x.name}{x.str}"
    if isinstance(x, np.ndarray | np.generic) and not x.dtype.hasobject:
        array = np.asarray(x)
        content = hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()
        return f"{type(x).__name__} {array.dtype.name}{array.dtype.str}{array.shape} {content}"
    if isinstance(x, np.ufunc):
        return f"ufunc {x.__name__}"
    if isinstance(x, slice):
        return repr(x)
    module = getattr(x, "__module__", None) or ""
    if module.partition(".")[0] in ("numpy", "headrace", "builtins"):
        name = getattr(x, "__qualname__", "")
        if (
            getattr(sys.modules.get(module), name, None) is x
        ):  # a function or class that belongs to this package or numpy
            return f"{module}.{name}"
    raise _UnknownError
