"""Programs for TensorFlow 1: the names that `headrace.v1` lacks, and the program with other imports.

The source is parsed, not run. A use is a chain of attributes that begins with a name bound by an import of TensorFlow:
`tf.train.Saver` after `import tensorflow as tf`. Its parts are looked up in `headrace.v1` as far as they are modules
and classes; members of objects are only known when the program runs.

`headrace migrate` is the command.
"""

from __future__ import annotations

import ast
import importlib
import itertools
import types
from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple

from headrace.errors import InvalidArgumentError

_ROOTS: Final = ("tensorflow.compat.v1", "tensorflow._api.v1", "tensorflow")
_DOOR: Final = "headrace.v1"

# Modules of TensorFlow without public names.
_INTERNAL: Final = {
    "python": "the implementation of TensorFlow; the public names of `tf` have the same functions",
    "core": "the implementation of TensorFlow; the messages are names of `tf` and `tf.train`",
    "examples": "programs that came with TensorFlow; a copy of the module beside the program is imported as before",
    "models": "the model zoo, which is no part of TensorFlow",
}


class Missing(NamedTuple):
    """A name that a program uses and `headrace.v1` lacks.

    Attributes:
      line: the line of its first use, from 1.
      name: the dotted name below `tf`.
      text: the reason, or the names to use in its place.
    """

    line: int
    name: str
    text: str


class Checked(NamedTuple):
    """Names of TensorFlow in a program.

    Attributes:
      used: the different dotted names below `tf`, in alphabetical order.
      missing: those that `headrace.v1` lacks, in the order of their lines.
      source: the program with imports of `headrace.v1` in place of TensorFlow's, where it has the imported modules.
    """

    used: tuple[str, ...]
    missing: tuple[Missing, ...]
    source: str


def check(source: str, filename: str = "<program>") -> Checked:
    """Looks up the names of TensorFlow that a program uses.

    Args:
      source: the text of the program.
      filename: its name, for messages.

    Raises:
      InvalidArgumentError: the text is not a program of this version of Python.

    Example:
      >>> found = check("import tensorflow as tf\\nx = tf.zeros([2])\\ny = tf.keras.Input([2])")
      >>> found.used, [m.name for m in found.missing]
      (('keras.Input', 'zeros'), ['keras'])
      >>> found.source.splitlines()[0]
      'import headrace.v1 as tf'
    """
    try:
        tree = ast.parse(source, filename)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as e:
        at = f"line {e.lineno}: " if isinstance(e, SyntaxError) else ""
        raise InvalidArgumentError(f"{filename} is not a program of this Python: {at}{e}") from e
    imports = [node for node in ast.walk(tree) if isinstance(node, (ast.Import, ast.ImportFrom))]
    bound: dict[str, str] = {}
    used: dict[str, int] = {}
    for node in imports:
        for module, name, as_name in _imported(node):
            path = _below(module if name is None else f"{module}.{name}")
            if path is None:
                continue
            if name is None and as_name is None:
                bound[module.partition(".")[0]] = ""
            else:
                bound[as_name or str(name)] = path
            if path:
                used.setdefault(path, node.lineno)
    for path, line in _uses(tree, bound):
        used[path] = min(line, used.get(path, line))
    missing: dict[str, Missing] = {}
    for path, line in sorted(used.items(), key=lambda item: (item[1], item[0])):
        found = _look_up(path)
        if isinstance(found, _Absent):
            missing.setdefault(found.name, Missing(line, found.name, found.text))
    return Checked(tuple(sorted(used)), tuple(missing.values()), _rewritten(source, imports))


def _below(module: str) -> str | None:
    """The dotted path of a module below `tf`; None for another library."""
    for root in _ROOTS:
        if module == root or module.startswith(root + "."):
            return module[len(root) + 1 :]
    return None


def _imported(node: ast.Import | ast.ImportFrom) -> Iterator[tuple[str, str | None, str | None]]:
    """Iterates over module, name (None: the module itself), name that it is given."""
    for alias in node.names:
        if isinstance(node, ast.Import):
            yield alias.name, None, alias.asname
        elif node.module and not node.level and alias.name != "*":
            yield node.module, alias.name, alias.asname


def _uses(tree: ast.AST, bound: dict[str, str]) -> Iterator[tuple[str, int]]:
    """Iterates over the longest chains of attributes of the bound names, with their lines."""
    inner: set[int] = set()
    for node in ast.walk(tree):  # an outer attribute comes before its parts
        if not isinstance(node, ast.Attribute) or id(node) in inner:
            continue
        parts: list[str] = []
        at: ast.expr = node
        while isinstance(at, ast.Attribute):
            inner.add(id(at))
            parts.append(at.attr)
            at = at.value
        if isinstance(at, ast.Name) and at.id in bound:
            full = ".".join(filter(None, [bound[at.id], *reversed(parts)]))
            yield full.removeprefix("compat.v1.").removeprefix("compat.v1"), node.lineno


class _Absent(NamedTuple):
    name: str
    text: str


def _look_up(path: str) -> Any:
    """The object at a path below `tf`; `_Absent` for none.

    The path is followed as far as its parts are modules and classes.
    """
    found: Any = importlib.import_module(_DOOR)
    at = ""
    for part in filter(None, path.split(".")):
        if not isinstance(found, (types.ModuleType, type)):
            break
        at = f"{at}.{part}".lstrip(".")
        try:
            found = getattr(found, part)
        except AttributeError as e:
            return _Absent(at, _INTERNAL.get(at) or _text(str(e), part))
    return found


def _text(error: str, part: str) -> str:
    """The part of an error's text after the name."""
    return error.partition(f"{part!r}")[2].lstrip("; ") or error


# *** imports ***


def _rewritten(source: str, imports: list[ast.Import | ast.ImportFrom]) -> str:
    """The source with other imports; those that `headrace.v1` lacks stay."""
    lines = source.splitlines(keepends=True)
    for node in sorted(imports, key=lambda n: (n.lineno, n.col_offset), reverse=True):
        new = "; ".join(_joined(_statements(node)))
        first, last = node.lineno - 1, (node.end_lineno or node.lineno) - 1
        before = lines[first].encode()[: node.col_offset].decode()
        after = lines[last].encode()[node.end_col_offset :].decode()
        if new != ast.unparse(node):
            lines[first : last + 1] = [before + new + after]
    return "".join(lines)


def _joined(statements: Iterable[str]) -> Iterator[str]:
    """Iterates over the statements, in which successive imports from one module are one."""
    for home, group in itertools.groupby(statements, lambda s: s.partition(" import ")[0]):
        names = [s.partition(" import ")[2] for s in group]
        yield f"{home} import {', '.join(names)}" if home.startswith("from ") else home


def _statements(node: ast.Import | ast.ImportFrom) -> Iterator[str]:
    given = list(_imported(node))
    if not any(_below(m if n is None else f"{m}.{n}") is not None for m, n, _ in given):
        yield ast.unparse(node)
        return
    for module, name, as_name in given:
        path = _below(module if name is None else f"{module}.{name}")
        renamed = f" as {as_name}" if as_name else ""
        kept = f"import {module}{renamed}" if name is None else f"from {module} import {name}{renamed}"
        if path is None or isinstance(_look_up(path), _Absent):
            yield kept
        elif not path or (name is None and as_name is None):
            yield f"import {_DOOR} as {as_name or name or module.partition('.')[0]}"
        else:
            outer, _, last = path.rpartition(".")
            home = getattr(_look_up(outer), "__name__", _DOOR) if outer else _DOOR
            same = (as_name or last) == last
            yield f"from {home} import {last}" + ("" if same else f" as {as_name}")
