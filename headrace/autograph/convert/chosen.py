"""Converter of changes of an object that a conditional expression chooses.

    (a if test else b).append(x)        if test:
                                            a.append(x)
                                        else:
                                            b.append(x)

A tensor cannot choose between two objects, only between their contents, and the change of a copy would be lost. The
same holds for assignments to an element or an attribute of the chosen object.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Callable
from typing import Any

from headrace.autograph.analysis.activity import CHANGING
from headrace.autograph.templates import place


def convert(body: list[ast.stmt]) -> list[ast.stmt]:
    """Converts the statements of a function in place, those of nested functions excepted."""
    return [_Statements().visit(node) for node in body]


class _Statements(ast.NodeTransformer):
    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.FunctionDef:
        return node

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> ast.AsyncFunctionDef:
        return node

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.ClassDef:
        return node

    def visit_Expr(self, node: ast.Expr) -> ast.stmt:
        call = node.value
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr in CHANGING:
            return self._split(node, lambda n: n.value.func)
        return node

    def visit_Assign(self, node: ast.Assign) -> ast.stmt:
        if len(node.targets) == 1 and isinstance(node.targets[0], (ast.Attribute, ast.Subscript)):
            return self._split(node, lambda n: n.targets[0])
        return node

    def visit_AugAssign(self, node: ast.AugAssign) -> ast.stmt:
        if isinstance(node.target, (ast.Attribute, ast.Subscript)):
            return self._split(node, lambda n: n.target)
        return node

    def _split(self, node: ast.stmt, owner: Callable[[Any], Any]) -> ast.stmt:
        """Returns a conditional of two statements if the object is a conditional expression."""
        chosen = owner(node).value
        if not isinstance(chosen, ast.IfExp):
            return node
        branches = []
        for part in (chosen.body, chosen.orelse):
            branch = copy.deepcopy(node)
            owner(branch).value = copy.deepcopy(part)
            branches.append([self.visit(branch)])
        return place([ast.If(chosen.test, *branches)], node)[0]
