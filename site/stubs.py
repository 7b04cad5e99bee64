"""Writes the public interface as modules of signatures and docstrings, which mkdocstrings reads.

    python site/stubs.py build/api

Many functions of the package are made from tables, and the names of `hr` come from some hundred modules, so the
interface is read from the imported package and not from its source. An object with several public names is documented
under one of them: the first module of `MODULES` that has it.
"""

from __future__ import annotations

import ast
import enum
import inspect
import re
import sys
import types
from pathlib import Path
from typing import Any, Final, NamedTuple

import headrace

#: Public modules by their name below `hr`, in the order of the site; "" is `hr` itself. `raw_ops` and the op types have
#: a page of their own (docs/reference/ops.md), and `v1` too.
MODULES: Final = (
    "", "nn", "layers", "train", "linalg", "math", "random", "sparse", "strings", "image", "signal", "io", "summary",
    "initializers", "lookup", "sets", "special", "quantization", "tree", "cluster", "errors", "flags", "dtypes",
)  # fmt: skip

#: Pages of the names of `hr` itself: title -> modules (or packages, with a dot at the end) that define them.
GROUPS: Final = {
    "Graphs and sessions": (
        "session", "api.scopes", "api.grouping", "api.importing", "api.tensor_spec", "api.tensors", "explain",
        "interchange.", "ir.", "metadata.", "observe.", "report",
    ),
    "Conditionals and loops": ("api.cond", "api.functional", "api.tensor_array", "api.while_loop"),
    "Gradients": ("api.rematerialization", "eager.tape", "grad."),
    "Jitted functions and eager tensors": ("eager.tensor", "jit.", "vmap."),
    "Arithmetic and reductions": ("api.counting", "api.math", "api.reductions"),
    "Arrays": (
        "api.arrays", "api.gathering", "api.indexing", "api.linalg.", "api.sorting", "api.sparse_tensor", "dtypes",
    ),
    "Variables and queues": ("api.storage.", "api.variable", "saved_model.models"),
    "Checks and callbacks": ("api.annotations", "api.debugging", "api.py_func"),
    "Devices and clusters": ("api.collectives", "dist.", "place.", "simulate"),
    "Extensions": ("execute.devices", "extend", "plugins"),
}  # fmt: skip

#: The head of a block that mkdocstrings knows by its plural only.
_EXAMPLE: Final = re.compile(r"^Example:$", re.M)

#: Methods with underscores that a page shows.
SPECIAL: Final = ("__call__", "__enter__", "__getitem__")


class Entry(NamedTuple):
    """A documented object: its public module, its name in it, and the object."""

    module: str
    name: str
    value: Any


def title(module: str) -> str:
    """The name by which programs refer to a module."""
    return f"hr.{module}" if module else "hr"


def module_of(name: str) -> types.ModuleType:
    """The public module of that name below `hr`."""
    return getattr(headrace, name) if name else headrace


def entries() -> list[Entry]:
    """Functions and classes of the public interface, each once, by module and name."""
    seen: set[int] = set()
    out = []
    for module in MODULES:
        found = module_of(module)
        named = {n: getattr(found, n) for n in found.__all__ if not n.startswith("_")}
        # of several names of one object, its own comes first
        for name, value in sorted(named.items(), key=lambda x: getattr(x[1], "__name__", None) != x[0]):
            if callable(value) and not isinstance(value, types.ModuleType) and id(value) not in seen:
                seen.add(id(value))
                out.append(Entry(module, name, value))
    return sorted(out, key=lambda e: (MODULES.index(e.module), e.name.lower()))


def group(entry: Entry) -> str:
    """Title of the page of a name of `hr` itself.

    Raises:
      LookupError: no group has the module that defines it.
    """
    defined = entry.value.__module__.removeprefix("headrace.")
    for page, modules in GROUPS.items():
        if any(defined == m or (m.endswith(".") and f"{defined}.".startswith(m)) for m in modules):
            return page
    raise LookupError(f"no page of GROUPS has hr.{entry.name}, which {defined} defines")


def source(entry: Entry) -> str:
    """The stub of an entry, as Python."""
    if inspect.isclass(entry.value):
        return _class(entry.name, entry.value)
    return _function(entry.name, entry.value, "")


def _function(name: str, value: Any, indent: str, decorator: str = "") -> str:
    lines = [f"{indent}{decorator}"] if decorator else []
    lines += [f"{indent}def {name}{_signature(value)}:", _docstring(inspect.getdoc(value) or "", indent + "    ")]
    return "\n".join(lines) + "\n"


def _class(name: str, value: type) -> str:
    body = [_docstring(inspect.getdoc(value) or "", "    ")]
    if value.__init__ is not object.__init__ and not issubclass(value, (enum.Enum, BaseException)):
        body.append(f"    def __init__{_signature(value.__init__)}: ...\n")
    for key in dir(value):
        if (key.startswith("_") and key not in SPECIAL) or _is_foreign(value, key):
            continue
        member = inspect.getattr_static(value, key)
        if isinstance(member, property):
            body.append(_function(key, member.fget, "    ", "@property"))
        elif isinstance(member, (classmethod, staticmethod)):
            body.append(_function(key, member.__func__, "    ", f"@{type(member).__name__}"))
        elif inspect.isfunction(member) and inspect.getdoc(member):
            body.append(_function(key, member, "    "))
    return f"class {name}:\n" + "\n".join(body)


def _is_foreign(value: type, key: str) -> bool:
    """Whether a class inherits the attribute from a class of another package."""
    owner = (
        next(c for c in value.__mro__ if key in c.__dict__) if any(key in c.__dict__ for c in value.__mro__) else None
    )
    return owner is None or not owner.__module__.startswith("headrace")


def _signature(value: Any) -> str:
    """Parameters with types and defaults, as text.

    A default without a literal form is `...`, and the type `Any` is left out.
    """
    try:
        found = inspect.signature(value)
    except (TypeError, ValueError):
        return "(*args, **kwargs)"
    parameters = []
    for p in found.parameters.values():
        default = p.default
        if default is not p.empty and not _is_literal(default):
            default = ...
        parameters.append(p.replace(annotation=_annotation(p.annotation), default=default))
    result = _annotation(found.return_annotation)
    return str(found.replace(parameters=parameters, return_annotation=result)).replace("Ellipsis", "...")


class _Text(str):
    """A text that a signature prints without quotes."""

    __slots__ = ()
    __repr__ = str.__str__


def _annotation(given: Any) -> Any:
    if not isinstance(given, str) or "Any" in given:
        return inspect.Parameter.empty
    return _Text(given)


def _is_literal(value: Any) -> bool:
    try:
        ast.literal_eval(repr(value))
    except (ValueError, SyntaxError):
        return False
    return True


def _docstring(text: str, indent: str) -> str:
    text = _EXAMPLE.sub("Examples:", text)
    quoted = text.replace("\\", "\\\\").replace('"""', '\\"\\"\\"')
    lines = [f"{indent}{line}" if line else "" for line in quoted.splitlines()]
    return f'{indent}"""' + "\n".join(lines).removeprefix(indent) + f'\n{indent}"""'


def write(folder: Path) -> None:
    """Writes a package `hr` of stubs into `folder`."""
    by_module: dict[str, list[Entry]] = {m: [] for m in MODULES}
    for e in entries():
        by_module[e.module].append(e)
    package = folder / "hr"
    package.mkdir(parents=True, exist_ok=True)
    for module, found in by_module.items():
        path = package / (f"{module}.py" if module else "__init__.py")
        head = _docstring(inspect.getdoc(module_of(module)) or "", "")
        path.write_text("\n\n".join([head, *map(source, found)]), encoding="utf-8")


if __name__ == "__main__":
    write(Path(sys.argv[1]))
