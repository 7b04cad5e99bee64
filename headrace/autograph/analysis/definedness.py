"""Reaching definitions: the reads of variables that may have no value yet.

Converted code keeps a variable that a branch or a body assigns in a cell, which begins as an `Undefined`. The analysis
finds the reads that such an object may reach; only these are checked when the code runs.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import Any

from headrace.autograph.analysis.activity import own_nodes
from headrace.autograph.analysis.liveness import definite, walrus


def maybe_undefined(body: Sequence[ast.stmt], names: frozenset[str], given: frozenset[str]) -> list[ast.Name]:
    """Returns the reads of `names` that may come before an assignment.

    Args:
      body: the statements of a function.
      names: the variables to examine.
      given: the variables that have a value at the start.
    """
    found = _Definedness(names)
    found.block(body, given)
    return list(found.reads.values())


class _Definedness:
    def __init__(self, names: frozenset[str]) -> None:
        self._names = names
        self.reads: dict[int, ast.Name] = {}

    def block(self, block: Sequence[ast.stmt], known: frozenset[str]) -> frozenset[str] | None:
        """Returns the names with a value at the end of a block.

        The result is None if the end is never reached.
        """
        out: frozenset[str] | None = known
        for node in block:
            if out is None:
                break
            out = self._after(node, out)
        return out

    def _after(self, node: Any, known: frozenset[str]) -> frozenset[str] | None:
        match node:
            case ast.If():
                self._expression(node.test, known)
                known |= walrus(node.test)
                return _both(self.block(node.body, known), self.block(node.orelse, known))
            case ast.While():
                self._expression(node.test, known)
                known |= walrus(node.test)
                self.block(node.body, known)
                return self.block(node.orelse, known) if node.orelse else known
            case ast.For():
                self._expression(node.iter, known)
                extra = getattr(node, "extra_test", None)
                if extra is not None:
                    self._expression(extra, known)
                self.block(node.body, known | definite(node.target))
                return self.block(node.orelse, known) if node.orelse else known
            case ast.With():
                for item in node.items:
                    self._expression(item.context_expr, known)
                    if item.optional_vars is not None:
                        known |= definite(item.optional_vars)
                return self.block(node.body, known)
            case ast.Try():
                return self._try(node, known)
            case ast.Return() | ast.Raise():
                self._expression(node, known)
                return None
            case ast.Delete():
                self._expression(node, known)
                return known - {t.id for t in node.targets if isinstance(t, ast.Name)}
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                for part in (*node.decorator_list, *node.args.defaults, *node.args.kw_defaults):
                    if part is not None:
                        self._expression(part, known)
                self._nested(node, known)
                return known | {node.name}
            case _:
                if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
                    node.reads_undefined = self._is_open(node.target.id, known)  # type: ignore[attr-defined]
                self._expression(node, known)
                return known | definite(node)

    def _try(self, node: ast.Try, known: frozenset[str]) -> frozenset[str] | None:
        inside = self.block(node.body, known)
        out = self.block(node.orelse, inside) if node.orelse and inside is not None else inside
        for handler in node.handlers:
            if handler.type is not None:
                self._expression(handler.type, known)
            out = _both(out, self.block(handler.body, known | ({handler.name} if handler.name else set())))
        if node.finalbody:
            after = self.block(node.finalbody, known)
            if after is None or out is None:
                return None
            return out | after
        return out

    def _is_open(self, name: str, known: frozenset[str]) -> bool:
        return name in self._names and name not in known

    def _expression(self, node: ast.AST, known: frozenset[str]) -> None:
        for inner in own_nodes(node):
            if isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Load) and self._is_open(inner.id, known):
                self.reads[id(inner)] = inner
            elif isinstance(inner, ast.Lambda):
                self._nested(inner, known)
            elif isinstance(inner, (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)):
                known |= frozenset().union(*(definite(g.target) for g in inner.generators))

    def _nested(self, node: Any, known: frozenset[str]) -> None:
        own = {a.arg for a in ast.walk(node.args) if isinstance(a, ast.arg)}
        body = [node.body] if isinstance(node, ast.Lambda) else node.body
        for child in body:
            for inner in ast.walk(child):
                if isinstance(inner, ast.Name) and not isinstance(inner.ctx, ast.Load):
                    own.add(inner.id)
                elif isinstance(inner, ast.arg):
                    own.add(inner.arg)
        for child in body:
            for inner in ast.walk(child):
                if isinstance(inner, ast.Name) and inner.id not in own and self._is_open(inner.id, known):
                    self.reads[id(inner)] = inner


def _both(first: frozenset[str] | None, second: frozenset[str] | None) -> frozenset[str] | None:
    if first is None or second is None:
        return second if first is None else first
    return first & second
