"""Source of a function: its syntax tree, and errors with a caret.

A file is parsed once and its functions are found by the line and the name in their code objects; lambdas by the columns
of their instructions. The tree keeps the positions of the file, so that converted code compiled from it has the user's
lines in tracebacks, in `ir.source` and in `hr.explain`.
"""

from __future__ import annotations

import ast
import copy
import linecache
import types
from collections.abc import Callable
from typing import Any, Final, TypeAlias

from headrace import thresholds
from headrace.errors import AutographError
from headrace.memo import Memo
from headrace.records import record


class SourceError(AutographError):
    """A function has no source, or another one than that of its code."""


Function: TypeAlias = "ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda"

_files: Final[Memo[tuple[str, int, int], _File]] = Memo(
    "parsed files of converted code", thresholds.PARSED_FILES, lambda file: file.size
)


@record(frozen=True, slots=True)
class _File:
    """A parsed file.

    Attributes:
      size: the number of characters.
      functions: the functions that begin at a line, the first decorator included, each with the class around it.
    """

    size: int
    functions: dict[int, list[tuple[Function, str]]]


@record(frozen=True, slots=True)
class Origin:
    """Source of one function.

    Attributes:
      file: the path of the file.
      node: a copy of the function's tree, which the conversion may change.
      within: the name of the class whose body has the function; "" for none.
      title: the name of the function in messages.
    """

    file: str
    node: Function
    within: str
    title: str

    def error(self, at: ast.AST, message: str) -> AutographError:
        """Returns the error of a construct, with its file, line and a caret."""
        return error_at(self.file, at, f"{message} In {self.title}")


def error_at(file: str, at: ast.AST, message: str) -> AutographError:
    """Returns an error with the line of a node and a caret."""
    line, first = getattr(at, "lineno", 0), getattr(at, "col_offset", 0)
    last = getattr(at, "end_col_offset", first + 1) if getattr(at, "end_lineno", line) == line else None
    text = linecache.getline(file, line).rstrip("\n")
    first, last = (len(text.encode()[:c].decode(errors="ignore")) for c in (first, last or len(text.encode())))
    indent = len(text) - len(text.lstrip())
    shown, carets = text[indent:], " " * (first - indent) + "^" * max(last - first, 1)
    return AutographError(f"{message}\n  File {file!r}, line {line}\n    {shown}\n    {carets}")


def find(fn: types.FunctionType) -> Origin:
    """Returns the source of a Python function.

    Raises:
      AutographError: there is no source, it has changed, or another lambda has the same position.
    """
    code = fn.__code__
    title = f"'{fn.__qualname__}' ({code.co_filename}:{code.co_firstlineno})"
    linecache.checkcache(code.co_filename)
    lines = linecache.getlines(code.co_filename, fn.__globals__)
    found = _candidates(code, lines, title) if lines else []
    # From Python 3.13 the text after `python -c` is the source of "<string>", a name that exec and eval give as well.
    if not lines or (not found and code.co_filename == "<string>"):
        raise SourceError(
            f"no source for {title}: its file cannot be read, so its Python control flow cannot be converted. Define "
            "the function in a file, or trace it as it is with hr.trace or hr.autograph.do_not_convert"
        )
    if not found:
        raise SourceError(
            f"the source of {title} is not what was compiled: the file has another function there. Import the module "
            "again after a change of its file"
        )
    node, within = found[0]
    return Origin(code.co_filename, copy.deepcopy(node), within, title)


def _candidates(code: types.CodeType, lines: list[str], title: str) -> list[tuple[Function, str]]:
    """Returns the functions of a file that may have been compiled to a code object."""
    file = _parsed(code.co_filename, lines, title)
    found = [(n, c) for n, c in file.functions.get(code.co_firstlineno, []) if _fits(n, code)]
    return _by_columns(found, code) if code.co_name == "<lambda>" and len(found) > 1 else found


def _parsed(name: str, lines: list[str], title: str) -> _File:
    text = "".join(lines)
    key = (name, len(text), hash(text))
    found = _files.get(key)
    if found is None:
        try:
            tree = ast.parse(text, name)
        except SyntaxError as e:
            raise SourceError(f"the source of {title} cannot be parsed: {e}") from e
        found = _File(len(text), {})
        _collect(tree, "", found.functions)
        _files.put(key, found)
    return found


def _collect(node: ast.AST, within: str, out: dict[int, list[tuple[Function, str]]]) -> None:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            decorators = [] if isinstance(child, ast.Lambda) else child.decorator_list
            out.setdefault(min([child.lineno, *(d.lineno for d in decorators)]), []).append((child, within))
        _collect(child, child.name if isinstance(child, ast.ClassDef) else within, out)


def parameters(args: ast.arguments) -> list[ast.arg]:
    """Returns all parameters, in the order of the variables of the code object."""
    more = [a for a in (args.vararg, args.kwarg) if a is not None]
    return [*args.posonlyargs, *args.args, *args.kwonlyargs, *more]


def _fits(node: Function, code: types.CodeType) -> bool:
    name = "<lambda>" if isinstance(node, ast.Lambda) else node.name
    n = code.co_argcount + code.co_kwonlyargcount + bool(code.co_flags & 0x04) + bool(code.co_flags & 0x08)
    flat, given = parameters(node.args), code.co_varnames[:n]
    return name == code.co_name and [_unmangled(a) for a in given] == [_unmangled(a.arg) for a in flat]


def _unmangled(name: str) -> str:
    at = name.find("__", 1)
    return name[at:] if name.startswith("_") and at > 0 and not name.endswith("__") else name


def _by_columns(found: list[tuple[Function, str]], code: types.CodeType) -> list[tuple[Function, str]]:
    """Returns the lambda whose body has the columns of the code's instructions."""
    spans = [p for p in code.co_positions() if None not in p and p[2] != p[3]]
    if not spans:  # Python 3.12: the code of a constant has no columns
        bodies: list[Any] = [node.body for node, _ in found]
        return [
            f
            for f, body in zip(found, bodies, strict=True)
            if isinstance(body, ast.Constant) and any(body.value is c or body.value == c for c in code.co_consts)
        ][:1]
    out = []
    for node, within in found:
        body: Any = node.body
        first, last = (body.lineno, body.col_offset), (body.end_lineno, body.end_col_offset)
        if all(first <= (p[0], p[2]) and (p[1], p[3]) <= last for p in spans):
            out.append((last, node, within))
    if not out:
        return []
    # nested lambdas: the outermost one that fits has instructions for the whole body
    spanning = [x for x in out if any((p[1], p[3]) == x[0] for p in spans)] or out
    return [(n, w) for _, n, w in spanning]


def is_generator(fn: Callable[..., Any]) -> bool:
    """Whether `fn` is a generator or a coroutine, which conversion leaves as it is."""
    code: Any = getattr(fn, "__code__", None)
    return code is not None and bool(code.co_flags & (0x20 | 0x80 | 0x200))
