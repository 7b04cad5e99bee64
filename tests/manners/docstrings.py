"""Faults in the blocks `Args:` and `Attributes:` of docstrings, found without importing the modules.

`prose.py` counts them as offences of two patterns: `DAMAGED`, which no file has, and `MISSING`, parameters and fields
without an entry.
"""

from __future__ import annotations

import ast
import re
from collections import deque
from collections.abc import Iterator
from typing import Final, NamedTuple

Definition = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef

#: Fields of nodes that are lists of statements, or of handlers and cases, which have such lists.
_BLOCKS: Final = ("body", "orelse", "finalbody", "handlers", "cases")

DAMAGED, MISSING = "docstring: damaged", "docstring: missing entry"

_BLOCK: Final = re.compile(r"^( *)(Args|Attributes):\n((?:\1 +[^\n]*\n|\n)+)", re.M)
#: `x: text`, `x, y: text`, `*names: text`, `x (units): text`
_ENTRY: Final = re.compile(r"(?P<names>[\w`*, ]+?(?: \([^()]*\))?): (?P<text>.*)")
#: An entry for the parameters that another docstring describes: `Others: see `Conv2D`.`
_OTHERS: Final = re.compile(r"Others: .*`[\w.]+`.*\.")
_JOINED: Final = re.compile(r", (?:and )?| and ")


class Entry(NamedTuple):
    names: tuple[str, ...]
    text: str


class Fault(NamedTuple):
    line: int
    pattern: str
    text: str


def definitions(tree: ast.Module) -> Iterator[Definition]:
    """The module, and its classes and functions, those within others after them.

    Only statements are looked at: expressions, most of the nodes of a tree, define none of them.
    """
    found: deque[ast.AST] = deque([tree])
    while found:
        node = found.popleft()
        if isinstance(node, Definition):
            yield node
        for block in _BLOCKS:
            found.extend(getattr(node, block, ()))


def texts(tree: ast.Module) -> Iterator[tuple[ast.Expr, str]]:
    """(statement, cleaned text) of each docstring."""
    for node in definitions(tree):
        doc = ast.get_docstring(node)
        if doc is not None:
            statement = node.body[0]
            assert isinstance(statement, ast.Expr)
            yield statement, doc


def entries(doc: str, block: str) -> list[Entry] | None:
    """Entries of a block of a docstring; None without the block.

    The text before the first entry is an entry without names.
    """
    found = next((m for m in _BLOCK.finditer(doc + "\n") if m[2] == block), None)
    if found is None:
        return None
    lines = found[3].rstrip().split("\n")
    indent = _indent(lines[0])
    items: list[str] = []
    for line in lines:
        if not items or (_indent(line) == indent and line.strip()):
            items.append(line.strip())
        else:
            items[-1] = f"{items[-1]} {line.strip()}".rstrip()
    return [_entry(item) for item in items]


def _entry(item: str) -> Entry:
    found = _ENTRY.fullmatch(item)
    if found is None or found["names"] == "Others":
        return Entry((), item)
    names = _JOINED.split(re.sub(r" *\([^)]*\)$|[`*]", "", found["names"]).strip())
    return Entry(tuple(n for n in names if n.isidentifier()), found["text"])


def faults(tree: ast.Module) -> Iterator[Fault]:
    """Faults in the docstrings of a module."""
    defined = list(definitions(tree))
    classes = {n.name: n for n in defined if isinstance(n, ast.ClassDef)}
    for node in defined:
        if isinstance(node, ast.ClassDef):
            found = _class_faults(node, classes)
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            found = _function_faults(node)
        else:
            continue
        yield from (Fault(node.lineno, pattern, f"{node.name}: {text}") for pattern, text in found)


def _function_faults(function: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[tuple[str, str]]:
    given = entries(ast.get_docstring(function) or "", "Args")
    if given is not None:
        parameters = _parameters(function)
        if parameters[:1] in (["self"], ["cls"]):
            is_named = any(parameters[0] in e.names for e in given)
            parameters = parameters if is_named else parameters[1:]
        yield from _compare(given, parameters, "parameter", is_public=not function.name.startswith("_"))


def _class_faults(cls: ast.ClassDef, classes: dict[str, ast.ClassDef]) -> Iterator[tuple[str, str]]:
    doc = ast.get_docstring(cls) or ""
    family, todo, has_others = [cls], [cls], False
    while todo:
        for base in todo.pop().bases:
            known = classes.get(base.id) if isinstance(base, ast.Name) else None
            has_others |= known is None and ast.unparse(base) not in _WITHOUT_MEMBERS
            if known is not None and known not in family:
                family.append(known)
                todo.append(known)
    given = entries(doc, "Attributes")
    if given is not None:
        members = {name for c in family for name in _members(c)}
        members |= {name for e in given for name in e.names} if has_others else set()
        yield from _compare(given, sorted(members), "attribute", is_public=False)
        named = {name for e in given for name in e.names}
        yield from ((MISSING, f"field {f!r} is not in Attributes") for f in _fields(cls) if f not in named)
    given = entries(doc, "Args")
    if given is not None:
        makers = (n for n in cls.body if isinstance(n, ast.FunctionDef) and n.name in ("__init__", "__new__"))
        maker = next(makers, None)
        parameters = [n for e in given for n in e.names] if maker is None else _parameters(maker)[1:]
        yield from _compare(given, parameters, "parameter", is_public=not cls.name.startswith("_"))


_WITHOUT_MEMBERS: Final = ("NamedTuple", "Protocol", "object", "Exception", "ValueError", "ABC")


def _compare(given: list[Entry], there: list[str], kind: str, is_public: bool) -> Iterator[tuple[str, str]]:
    for entry in given:
        if _OTHERS.fullmatch(entry.text):
            continue
        if not entry.names:
            yield DAMAGED, f"an entry without a name: {entry.text[:80]!r}"
        elif not entry.text.endswith((".", "?", ":", "`", ".)", '."')) and ">>>" not in entry.text:
            yield DAMAGED, f"{', '.join(entry.names)}: ends without a full stop: {entry.text[-60:]!r}"
        yield from ((DAMAGED, f"there is no {kind} {name!r}") for name in entry.names if name not in there)
    if is_public and not any(_OTHERS.fullmatch(entry.text) for entry in given):
        named = {name for entry in given for name in entry.names}
        absent = (p for p in there if p not in named and not p.startswith("_"))
        yield from ((MISSING, f"{kind} {p!r} is not in Args") for p in absent)


def _parameters(function: ast.FunctionDef | ast.AsyncFunctionDef) -> list[str]:
    a = function.args
    return [p.arg for p in (*a.posonlyargs, *a.args, a.vararg, *a.kwonlyargs, a.kwarg) if p is not None]


def _fields(cls: ast.ClassDef) -> Iterator[str]:
    """Names of the public fields that a class body annotates."""
    for node in cls.body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            is_field = not ast.unparse(node.annotation).startswith(("ClassVar", "Final"))
            if is_field and not node.target.id.startswith("_"):
                yield node.target.id


def _members(cls: ast.ClassDef) -> Iterator[str]:
    """Names of the members of a class.

    They are its fields, slots, methods and properties, and the attributes that it sets.
    """
    for node in cls.body:
        targets = (
            node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
        )
        names = [t.id for t in targets if isinstance(t, ast.Name)]
        yield from names
        if "__slots__" in names and isinstance(node, ast.Assign):
            yield from (
                n.value for n in ast.walk(node.value) if isinstance(n, ast.Constant) and isinstance(n.value, str)
            )
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield node.name
            inner = (n for n in ast.walk(node) if isinstance(n, ast.Attribute) and isinstance(n.ctx, ast.Store))
            yield from (n.attr for n in inner if isinstance(n.value, ast.Name) and n.value.id == "self")


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())
