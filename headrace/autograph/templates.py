"""Code from quoted templates with named holes.

A converter states the code that it generates as text:

    templates.statements("x = ag__.update(x, value)", x="m", value=node)

Each name of the template that is an argument is a hole. A text fills it with a name, a node with an expression, and a
list of nodes with statements, where the hole is a statement of its own. New nodes have no position; `place` gives them
that of a node of the user.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias, TypeVar

from headrace.memo import cached

Hole: TypeAlias = "str | ast.expr | Sequence[ast.stmt] | Sequence[ast.expr]"
N = TypeVar("N", bound=ast.AST)


@cached(256, "templates of converted code")
def _parsed(template: str) -> list[ast.stmt]:
    return ast.parse(template).body


def statements(template: str, **holes: Hole) -> list[ast.stmt]:
    """Returns the statements of a template with its holes filled."""
    out: list[ast.stmt] = []
    for node in _parsed(template):
        _extend(out, node, holes)
    return out


def expression(template: str, **holes: Hole) -> ast.expr:
    """Returns the expression of a template with its holes filled."""
    (node,) = _parsed(template)
    assert isinstance(node, ast.Expr)
    made = _filled(node.value, holes)
    assert isinstance(made, ast.expr)
    return made


def _extend(out: list[ast.stmt], node: Any, holes: dict[str, Any]) -> None:
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Name):
        filling = holes.get(node.value.id)
        if isinstance(filling, (list, tuple)):
            out.extend(filling)
            return
    out.append(_filled(node, holes))


def _filled(node: Any, holes: dict[str, Any]) -> Any:
    kind = node.__class__
    if kind is ast.Name and node.id in holes:
        filling = holes[node.id]
        return ast.Name(filling, node.ctx) if isinstance(filling, str) else filling
    fields: dict[str, Any] = {}
    for name, value in ast.iter_fields(node):
        if isinstance(value, ast.AST):
            value = _filled(value, holes)
        elif isinstance(value, list):
            items: list[Any] = []
            for item in value:
                if isinstance(item, ast.stmt):
                    _extend(items, item, holes)
                elif isinstance(item, ast.Name) and isinstance(holes.get(item.id), (list, tuple)):
                    items.extend(holes[item.id])
                elif isinstance(item, ast.AST):
                    items.append(_filled(item, holes))
                else:
                    filling = holes.get(item) if isinstance(item, str) else None
                    items.extend([item] if filling is None else [filling] if isinstance(filling, str) else filling)
            value = items
        elif isinstance(value, str) and name == "name" and isinstance(holes.get(value), str):
            value = holes[value]
        fields[name] = value
    return kind(**fields)


def place(nodes: Iterable[N], at: ast.AST) -> list[N]:
    """Gives all nodes without a position that of the user's node `at`; returns the nodes."""
    made = list(nodes)
    where = {a: getattr(at, a, None) for a in ("lineno", "col_offset", "end_lineno", "end_col_offset")}
    for node in made:
        _place(node, where)
    return made


def _place(node: ast.AST, where: dict[str, Any]) -> None:
    if "lineno" in node._attributes:
        if getattr(node, "lineno", None) is None:
            for name, value in where.items():
                setattr(node, name, value)
        else:
            where = {a: getattr(node, a, None) for a in where}
    for child in ast.iter_child_nodes(node):
        _place(child, where)
