"""The public API as text, a line for each name: `python -m tests.manners.public_api` writes public_api.txt.

It has the names of `hr.__all__` and of the modules among them, with the public members of classes. A line gives the
kind and the signature without annotations, on which calls can rely.
"""

from __future__ import annotations

import inspect
import re
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import headrace as hr
import headrace.extend
import headrace.inspect
import headrace.train
from headrace.ir.tensor_type import Elsewhere, TensorOperations

FILE = Path(__file__).parent / "public_api.txt"
MODULES: dict[str, types.ModuleType] = {
    "hr": hr,
    **{f"hr.{name}": m for name in sorted(hr.__all__) if isinstance(m := getattr(hr, name), types.ModuleType)},
    "hr.extend": headrace.extend,
    "hr.inspect": headrace.inspect,
    "hr.train": headrace.train,
}


def public_names(module: types.ModuleType) -> list[str]:
    """The public names of a module: of `__all__`, or else what is defined in it."""
    listed = getattr(module, "__all__", None)
    if listed is not None:
        return sorted(listed)
    own = (
        n
        for n, x in vars(module).items()
        if not n.startswith("_") and not isinstance(x, types.ModuleType) and _home(x, module) == module.__name__
    )
    return sorted(own)


def _home(x: Any, module: types.ModuleType) -> str:
    if inspect.isclass(x) or inspect.isroutine(x):
        # an object that a function of another module made for this one is not found in that module
        home = sys.modules.get(x.__module__)
        return x.__module__ if getattr(home, x.__name__, None) is x else module.__name__
    # a value does not have a module of origin; False is TYPE_CHECKING
    is_made_here = type(x).__module__.startswith("headrace") or (isinstance(x, (int, str, tuple)) and x is not False)
    return module.__name__ if is_made_here else ""


PUBLIC = {x for m in MODULES.values() for n in public_names(m) if inspect.isclass(x := getattr(m, n))}


def entries() -> Iterator[tuple[str, str, Any]]:
    """(name, line, what it is) of everything public."""
    for prefix, module in MODULES.items():
        for name in public_names(module):
            x = getattr(module, name)
            full = f"{prefix}.{name}"
            if isinstance(x, types.ModuleType):
                yield full, f"{full} module", x
            elif inspect.isclass(x):
                bases = ", ".join(b.__name__ for b in x.__bases__ if b is not object)
                yield full, f"{full} class({bases}) {_signature(x)}".rstrip(), x
                if x.__module__.startswith("headrace") and not full.startswith("hr.raw_ops"):
                    yield from _members(full, x)
            elif callable(x) and (inspect.isroutine(x) or hasattr(x, "__wrapped__")):
                yield full, f"{full}{_signature(x)}", x
            else:
                yield full, f"{full}: {type(x).__name__}", x


def _members(full: str, cls: type) -> Iterator[tuple[str, str, Any]]:
    for a in sorted(inspect.classify_class_attrs(cls)):
        if a.name.startswith("_") or not a.defining_class.__module__.startswith("headrace"):
            continue
        if a.defining_class is not cls and a.defining_class in PUBLIC:
            continue  # listed there
        if a.defining_class is TensorOperations and (cls is not hr.Tensor or isinstance(a.object, Elsewhere)):
            continue  # listed as those of hr.Tensor, without attributes that only raise errors
        name = f"{full}.{a.name}"
        x = a.object.__func__ if isinstance(a.object, (staticmethod, classmethod)) else a.object
        if a.kind in ("method", "class method", "static method"):
            yield name, f"{name}{_signature(x)}{'' if a.kind == 'method' else f' {a.kind}'}", x
        else:
            yield name, f"{name} {'property' if isinstance(x, property) else 'attribute'}", x


def _signature(x: Any) -> str:
    try:
        s = inspect.signature(x)
    except (ValueError, TypeError):
        return "(...)"
    bare = [p.replace(annotation=inspect.Parameter.empty) for p in s.parameters.values()]
    s = s.replace(parameters=bare, return_annotation=inspect.Signature.empty)
    return re.sub(r" at 0x[0-9a-f]+", "", str(s))


def text() -> str:
    """Text of public_api.txt."""
    lines = dict.fromkeys(line for _, line, _ in entries())
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    FILE.write_text(text(), encoding="utf-8")
