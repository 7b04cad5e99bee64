"""Aliases: the names of a function that may be bound to one object.

`b = a` makes two names of one object. A tensor is a value, so a change of an element through one name makes a new
tensor, which the other name must get, too. The analysis ignores order: it joins all names that assignments connect. The
operator that assigns compares the objects when the code runs.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence

from headrace.autograph.analysis.activity import own_nodes


def may_alias(body: Sequence[ast.stmt], local: frozenset[str]) -> dict[str, frozenset[str]]:
    """Returns for each name the names that may be bound to its object, itself included."""
    groups: dict[str, set[str]] = {}
    for statement in body:
        for node in own_nodes(statement):
            for target, source in _pairs(node):
                if target in local and source in local:
                    joined = groups.get(target, {target}) | groups.get(source, {source})
                    for name in joined:
                        groups[name] = joined
    return {name: frozenset(group) for name, group in groups.items()}


def _pairs(node: ast.AST) -> list[tuple[str, str]]:
    """Returns the pairs of a target and a name of its value."""
    if isinstance(node, ast.Assign):
        return [p for target in node.targets for p in _assigned(target, node.value)] + _among(node.targets)
    if isinstance(node, ast.NamedExpr) or (isinstance(node, ast.AnnAssign) and node.value is not None):
        assert node.value is not None
        return _assigned(node.target, node.value)
    return []


def _among(targets: list[ast.expr]) -> list[tuple[str, str]]:
    names = [t.id for t in targets if isinstance(t, ast.Name)]
    return [(n, names[0]) for n in names[1:]]


def _assigned(target: ast.expr, value: ast.expr) -> list[tuple[str, str]]:
    if isinstance(target, ast.Name):
        return [(target.id, name) for name in _values(value)]
    if isinstance(target, (ast.Tuple, ast.List)) and isinstance(value, (ast.Tuple, ast.List)):
        return [p for t, v in zip(target.elts, value.elts, strict=False) for p in _assigned(t, v)]
    return []


def _values(value: ast.expr) -> list[str]:
    """Returns the names whose object may be the value of an expression."""
    match value:
        case ast.Name():
            return [value.id]
        case ast.IfExp():
            return _values(value.body) + _values(value.orelse)
        case ast.BoolOp():
            return [n for v in value.values for n in _values(v)]
        case ast.NamedExpr():
            return [value.target.id, *_values(value.value)]
    return []
