"""Converters: each changes one kind of construct in the tree of a function.

Order, which `function` applies:

1. `refusals`: constructs that have no conversion raise.
2. `chosen`, `matching`, `lifting`: changes of a chosen object and `match` become `if`, and comprehensions over tensors
   become loops.
3. `jumps`: `break`, `continue`, `return` and the `else` of loops become flags and conditionals.
4. `analysis`: state of each conditional and loop, reads of undefined variables, aliases.
5. `expressions`: calls, logic, comparisons and subscripts become operators.
6. `data`: changes of elements and attributes, `assert`, `raise`, `del`.
7. `control`: `if`, `while` and `for` become operators with functions as their blocks.

Nested functions are converted first, each as a function of its own.
"""

from __future__ import annotations

import ast
from typing import Any

from headrace.autograph.analysis.activity import Activity, direct, own_nodes
from headrace.autograph.analysis.aliases import may_alias
from headrace.autograph.analysis.definedness import maybe_undefined
from headrace.autograph.analysis.liveness import Liveness
from headrace.autograph.convert import chosen, jumps, matching, refusals
from headrace.autograph.convert.context import Context, names_in
from headrace.autograph.convert.control import Control
from headrace.autograph.convert.data import Data
from headrace.autograph.convert.expressions import Expressions
from headrace.autograph.origin import Origin, parameters
from headrace.autograph.templates import place, statements


def function(origin: Origin) -> ast.FunctionDef | ast.Lambda:
    """Returns the converted tree of a function.

    Raises:
      AutographError: a construct has no conversion; the text has the user's line with a caret.
    """
    node = origin.node
    assert not isinstance(node, ast.AsyncFunctionDef)
    refusals.check(origin)
    used = names_in(node)
    _convert(origin, node, used)
    return node


def _convert(origin: Origin, node: Any, used: set[str]) -> None:
    ctx = Context(origin, node, used)
    if isinstance(node, ast.Lambda):
        _nested(origin, [ast.Expr(node.body)], used)
        node.body = Expressions(ctx, [], frozenset(a.arg for a in parameters(node.args))).visit(node.body)
        return
    _nested(origin, node.body, used)
    given = frozenset(a.arg for a in parameters(node.args))
    body = jumps.convert(ctx, matching.convert(ctx, chosen.convert(node.body)))
    declared = {n for s in body for i in own_nodes(s) if isinstance(i, (ast.Global, ast.Nonlocal)) for n in i.names}
    written = frozenset().union(*(direct(s)[1] for s in body))
    local = (written | given) - declared
    aliases = may_alias(body, local | declared)
    activity = Activity(body, aliases)
    liveness = Liveness(body, activity, frozenset(activity.captured & local) | frozenset(declared))
    outer = {n for s in body for i in own_nodes(s) if isinstance(i, ast.Nonlocal) for n in i.names}
    control = Control(ctx, local | outer)
    control.analyse(body, activity, liveness)
    unchecked = maybe_undefined(body, local - frozenset(ctx.generated), given)
    expressions = Expressions(ctx, unchecked, local)
    body = [expressions.visit(s) for s in body]
    data = Data(ctx, aliases, local | declared)
    body = data.block(body)
    body = control.block(body)
    shared = control.shared | data.rebound | expressions.assigned | {n.id for n in unchecked}
    names = sorted(shared - declared - given)
    at = next((s for s in body if getattr(s, "lineno", None)), node)
    start = 1 if body and _is_docstring(body[0]) else 0
    first = statements(" = ".join([*names, "ag__.UNDEFINED"])) if names else []
    body[start:start] = [*place(first, at), *expressions.operands]
    node.body = body


def _is_docstring(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _nested(origin: Origin, body: list[ast.stmt], used: set[str]) -> None:
    """Converts the functions that are defined in a block."""
    todo: list[ast.AST] = list(body)
    while todo:
        node = todo.pop()
        if isinstance(node, ast.FunctionDef):
            if not _yields(node):
                _convert(origin, node, used)
        elif isinstance(node, ast.Lambda):
            _convert(origin, node, used)
        elif not isinstance(node, ast.AsyncFunctionDef):
            todo += ast.iter_child_nodes(node)


def _yields(node: ast.FunctionDef) -> bool:
    return any(isinstance(n, (ast.Yield, ast.YieldFrom)) for s in node.body for n in own_nodes(s))
