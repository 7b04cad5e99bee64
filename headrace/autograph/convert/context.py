"""The function under conversion: its source and free names."""

from __future__ import annotations

import ast

from headrace.autograph.origin import Function, Origin
from headrace.errors import AutographError


class Context:
    """State that the converters of one function share.

    Args:
      origin: the source of the outermost function that is converted.
      function: the function itself, which may be nested in it.
      used: the names that occur in the source, to which new names are added.

    Attributes:
      generated: the names that converters have made, whose reads need no check.
    """

    def __init__(self, origin: Origin, function: Function, used: set[str]) -> None:
        self.origin = origin
        self.function = function
        self.used = used
        self.generated: set[str] = set()

    def fresh(self, name: str) -> str:
        """Returns a new name that is like `name`."""
        made, n = f"{name}_", 1
        while made in self.used:
            n += 1
            made = f"{name}{n}_"  # the operators know generated names by the last character
        self.used.add(made)
        self.generated.add(made)
        return made

    def error(self, at: ast.AST, message: str) -> AutographError:
        """Returns the error of a construct of the user."""
        return self.origin.error(at, message)


def names_in(node: ast.AST) -> set[str]:
    """Returns all identifiers in a tree."""
    out: set[str] = set()
    for inner in ast.walk(node):
        if isinstance(inner, ast.Name):
            out.add(inner.id)
        elif isinstance(inner, ast.arg):
            out.add(inner.arg)
        elif isinstance(inner, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            out.add(inner.name)
    return out
