"""Liveness: the variables whose values may be read after a statement.

The analysis walks the statements backwards, once for each straight piece and twice for each loop. It runs after jumps
have become conditions, so that only structure decides the flow. Where an exception may leave a block, the variables of
its handlers are live in the whole block.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import Any

from headrace.autograph.analysis.activity import Activity


class Liveness:
    """Live variables of one function.

    Args:
      body: the statements of the function.
      activity: its reads and writes.
      at_end: the names that are live at the end, such as those that nested functions or callers may read.
    """

    def __init__(self, body: Sequence[ast.stmt], activity: Activity, at_end: frozenset[str]) -> None:
        self._activity = activity
        self._after: dict[int, frozenset[str]] = {}
        self._head: dict[int, frozenset[str]] = {}
        self._branches: dict[int, frozenset[str]] = {}
        self._caught: list[frozenset[str]] = [frozenset()]
        self._at_end = at_end
        self._block(body, at_end)

    def after(self, node: ast.stmt) -> frozenset[str]:
        """Returns the names that may be read after a statement."""
        return self._after[id(node)]

    def head(self, loop: ast.stmt) -> frozenset[str]:
        """Returns the names that are live at the start of an iteration."""
        return self._head[id(loop)]

    def in_branches(self, node: ast.If) -> frozenset[str]:
        """Returns the names that are live at the start of a branch of a conditional."""
        return self._branches[id(node)]

    def _block(self, block: Sequence[ast.stmt], live: frozenset[str]) -> frozenset[str]:
        for node in reversed(block):
            live = live | self._caught[-1]
            self._after[id(node)] = self._after.get(id(node), frozenset()) | live
            live = self._before(node, live)
        return live | self._caught[-1]

    def _before(self, node: Any, live: frozenset[str]) -> frozenset[str]:
        reads = self._activity.reads
        match node:
            case ast.If():
                branches = self._block(node.body, live) | self._block(node.orelse, live)
                self._branches[id(node)] = self._branches.get(id(node), frozenset()) | branches
                return reads(node.test) | branches
            case ast.While():
                return self._loop(node, live, reads(node.test), frozenset())
            case ast.For() | ast.AsyncFor():
                target = definite(node.target)
                return reads(node.iter) | self._loop(node, live, reads(getattr(node, "extra_test", None)), target)
            case ast.With() | ast.AsyncWith():
                inner = self._block(node.body, live)
                for item in reversed(node.items):
                    killed = frozenset() if item.optional_vars is None else definite(item.optional_vars)
                    inner = (inner - killed) | reads(item)
                return inner | live  # a context may swallow an exception
            case ast.Try():
                return self._try(node, live)
            case ast.Return():
                return reads(node) | self._at_end
            case _:
                return (live - definite(node)) | reads(node)

    def _loop(self, node: Any, live: frozenset[str], test: frozenset[str], target: frozenset[str]) -> frozenset[str]:
        after = self._block(node.orelse, live) if node.orelse else live
        head = after | test
        for _ in range(2):
            head = head | (self._block(node.body, head) - target)
        self._head[id(node)] = head
        return head

    def _try(self, node: Any, live: frozenset[str]) -> frozenset[str]:
        last = self._block(node.finalbody, live) if node.finalbody else live
        caught = last if node.finalbody else frozenset()
        self._caught.append(self._caught[-1] | caught)
        handlers = frozenset().union(
            *((self._block(h.body, last) | self._activity.reads(h.type)) - {h.name or ""} for h in node.handlers)
        )
        after = self._block(node.orelse, last) if node.orelse else last
        self._caught[-1] = self._caught[-1] | handlers
        out = self._block(node.body, after)
        self._caught.pop()
        return out


def definite(node: Any) -> frozenset[str]:
    """Returns the names that a simple statement, or a target, assigns in any case."""
    match node:
        case ast.Name():
            return frozenset((node.id,)) if isinstance(node.ctx, ast.Store) else frozenset()
        case ast.Tuple() | ast.List():
            return frozenset().union(*map(definite, node.elts))
        case ast.Starred():
            return definite(node.value)
        case ast.Assign():
            return frozenset().union(*map(definite, node.targets)) | _walrus(node.value)
        case ast.AnnAssign():
            return frozenset() if node.value is None else definite(node.target) | _walrus(node.value)
        case ast.AugAssign():
            return definite(node.target)
        case ast.Expr():
            return _walrus(node.value)
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
            return frozenset((node.name,))
        case ast.Import() | ast.ImportFrom():
            return frozenset((a.asname or a.name).split(".")[0] for a in node.names)
        case _:
            return frozenset()


def _walrus(node: ast.expr) -> frozenset[str]:
    """Returns the name of a `:=` that is the whole expression, or its first operand."""
    while True:
        match node:
            case ast.NamedExpr():
                return definite(node.target)
            case ast.Compare():
                node = node.left
            case ast.BoolOp():
                node = node.values[0]
            case ast.UnaryOp():
                node = node.operand
            case ast.BinOp():
                return _walrus(node.left) | _walrus(node.right)
            case ast.Call():
                return frozenset().union(*map(_walrus, (node.func, *node.args)))
            case _:
                return frozenset()


def walrus(node: ast.expr) -> frozenset[str]:
    """Returns the names that an expression assigns in any case by `:=`."""
    return _walrus(node)
