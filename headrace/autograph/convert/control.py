"""Converter of `if`, `while` and `for` into calls of operators with functions as their blocks.

    if x > 0:                       def true_branch_():
        y = x                           nonlocal y
    else:                               y = x
        y = -x                      def false_branch_():
                                        nonlocal y
                                        y = -x
                                    def set_(values_):
                                        nonlocal y
                                        (y,) = values_
                                    ag__.if_(x > 0, true_branch_, false_branch_, ("y",), lambda: (y,), set_, ...)

The blocks share the variables of the function by `nonlocal`, so that they mean the same as before where Python decides.
The names in the tuple are the state: variables that the blocks assign and that are live behind them. The operator
saves and sets them when it traces the blocks into a graph. The last argument has the objects whose contents the blocks
may change.
"""

from __future__ import annotations

import ast
from typing import Any

from headrace.autograph.analysis.activity import Activity, direct, own_nodes
from headrace.autograph.analysis.liveness import Liveness
from headrace.autograph.convert.context import Context
from headrace.autograph.templates import expression, place, statements


class Control:
    """Converts the control flow of one function.

    Args:
      ctx: the function.
      local: the names of its variables, and of those that it declares `nonlocal`.

    Attributes:
      shared: the variables that blocks assign.
    """

    def __init__(self, ctx: Context, local: frozenset[str]) -> None:
        self._ctx = ctx
        self._local = local
        self.shared: set[str] = set()
        self._global: set[str] = set()
        self._names = {
            n: ctx.fresh(n)
            for n in "true_branch false_branch body test get set values element extra_test condition".split()
        }

    def analyse(self, body: list[ast.stmt], activity: Activity, liveness: Liveness) -> None:
        """Attaches the state of each conditional and loop to its node, before expressions are converted."""
        for node in body:
            for inner in own_nodes(node):
                if isinstance(inner, ast.Global):
                    self._global.update(inner.names)
                if isinstance(inner, ast.If):
                    writes = activity.writes(inner.body, inner.orelse)
                    live, start = liveness.after(inner), liveness.in_branches(inner)
                    reads = activity.reads(inner.body, inner.orelse)
                elif isinstance(inner, ast.While):
                    writes = activity.writes(inner.body, inner.test)
                    live = start = liveness.head(inner)
                    reads = activity.reads(inner.body, inner.test)
                elif isinstance(inner, ast.For):
                    writes = activity.writes(inner.body, inner.target)
                    start = liveness.head(inner)
                    live = start | (liveness.after(inner) & activity.writes(inner.target))
                    reads = activity.reads(inner.body)
                else:
                    continue
                state: Any = inner
                state.state = sorted(writes & live & self._local)
                if isinstance(inner, ast.If):
                    state.kept = sorted((writes & start & self._local) - set(state.state))
                outside = writes - self._local - self._global  # objects of other functions and modules
                state.roots = sorted((reads & start & self._local) - set(state.state) | outside)
                state.globals = sorted(writes & self._global)

    def block(self, block: list[ast.stmt]) -> list[ast.stmt]:
        """Converts the statements of a block."""
        out: list[ast.stmt] = []
        for node in block:
            match node:
                case ast.If():
                    out += self._if(node)
                case ast.While():
                    out += self._while(node)
                case ast.For():
                    out += self._for(node)
                case _:
                    self._inside(node)
                    out.append(node)
        return out

    def _inside(self, node: Any) -> None:
        if isinstance(node, (ast.With, ast.Try)):
            node.body = self.block(node.body)
        if isinstance(node, ast.Try):
            node.orelse, node.finalbody = self.block(node.orelse), self.block(node.finalbody)
            for handler in node.handlers:
                handler.body = self.block(handler.body)

    def _function(self, name: str, args: str, body: list[ast.stmt], at: ast.AST) -> list[ast.stmt]:
        """Returns the definition of a function for a block."""
        written: set[str] = set()
        for node in body:
            written |= direct(node)[1]
        globals_, cells = sorted(written & self._global), sorted(written - self._global)
        self.shared.update(cells)
        declarations: list[ast.stmt] = []
        if cells:
            declarations.append(ast.Nonlocal(cells))
        if globals_:
            declarations.append(ast.Global(globals_))
        made = statements(
            f"def function({args}): body", function=self._names[name], body=declarations + self.block(body)
        )
        return place(made, at)

    def _state(self, node: Any) -> tuple[list[ast.stmt], list[ast.expr]]:
        """Returns the definitions and the arguments that give access to the state."""
        names: list[str] = node.state
        roots = [expression("lambda: x", x=n) for n in node.roots]
        more: list[ast.expr] = [] if not roots else [ast.Tuple(roots, ast.Load())]
        if node.globals:
            more = [*(more or [ast.Tuple([], ast.Load())]), ast.Constant(", ".join(node.globals))]
        if not names and not more:
            return [], []
        if not names:
            return [], [ast.Tuple([], ast.Load()), ast.Constant(None), ast.Constant(None), *more]
        self.shared.update(names)
        stored = ast.Tuple([ast.Name(n, ast.Store()) for n in names], ast.Store())
        setter = statements("def set_(values_): body", set_=self._names["set"], body=[])
        function: Any = setter[0]
        function.args.args[0].arg = self._names["values"]
        function.body = [
            ast.Nonlocal(names),
            ast.Assign([stored], ast.Name(self._names["values"], ast.Load())),
        ]
        loaded = ast.Tuple([ast.Name(n, ast.Load()) for n in names], ast.Load())
        texts = ast.Tuple([ast.Constant(n) for n in names], ast.Load())
        get = expression("lambda: x", x=loaded)
        return setter, [texts, get, ast.Name(self._names["set"], ast.Load()), *more]

    def _if(self, node: Any) -> list[ast.stmt]:
        setter, state = self._state(node)
        before, again = self._kept(node)
        otherwise = node.orelse or place([ast.Pass()], node)
        first = self._function("true_branch", "", [*again, *node.body], node.body[0])
        second = self._function("false_branch", "", [*again, *otherwise], otherwise[0])
        test = node.test
        if before:  # the test may assign the variables, by :=
            condition = self._names["condition"]
            before = [*place(statements("name = test", name=condition, test=test), _head(node, test)), *before]
            test = ast.Name(condition, ast.Load())
        call = statements(
            "ag__.if_(test, a, b, state)",
            test=test,
            a=self._names["true_branch"],
            b=self._names["false_branch"],
            state=state,
        )
        return [*before, *first, *second, *place([*setter, *call], _head(node, node.test))]

    def _kept(self, node: Any) -> tuple[list[ast.stmt], list[ast.stmt]]:
        """Returns an assignment before a conditional and one in its branches.

        They concern variables that are not results. The branch that is traced last begins with the values before the
        conditional.
        """
        names: list[str] = node.kept
        if not names:
            return [], []
        kept = self._ctx.fresh("kept")
        stored, loaded = (ast.Tuple([ast.Name(n, c) for n in names], c) for c in (ast.Store(), ast.Load()))
        before: list[ast.stmt] = [ast.Assign([ast.Name(kept, ast.Store())], loaded)]
        again: list[ast.stmt] = [ast.Assign([stored], ast.Name(kept, ast.Load()))]
        self.shared.update(names)
        return place(before, node), place(again, node)

    def _while(self, node: Any) -> list[ast.stmt]:
        setter, state = self._state(node)
        body = self._function("body", "", node.body, node.body[0])
        test = self._function("test", "", place([ast.Return(node.test)], node.test), node.test)
        call = statements("ag__.while_(a, b, state)", a=self._names["test"], b=self._names["body"], state=state)
        return [*test, *body, *place([*setter, *call], _head(node, node.test))]

    def _for(self, node: Any) -> list[ast.stmt]:
        setter, state = self._state(node)
        element = self._names["element"]
        unpacked = ast.Assign([node.target], ast.Name(element, ast.Load()))
        if isinstance(node.target, (ast.Tuple, ast.List)):
            unpacked.value = expression("ag__.unpack(x, n)", x=element, n=ast.Constant(size_of(node.target)))
        body = self._function("body", element, place([unpacked], node.target) + node.body, node)
        extra = getattr(node, "extra_test", None)
        more = ast.Constant(None) if extra is None else expression("lambda: x", x=extra)
        call = statements("ag__.for_(i, b, e, state)", i=node.iter, b=self._names["body"], e=more, state=state)
        return [*body, *place([*setter, *call], _head(node, node.iter))]


def size_of(target: Any) -> int | None:
    """Returns the number of values of a target; None if a part takes the rest."""
    return None if any(isinstance(t, ast.Starred) for t in target.elts) else len(target.elts)


def _head(node: Any, last: Any) -> ast.AST:
    """Returns a position: the head of a statement, up to its test."""
    return ast.Pass(
        lineno=node.lineno,
        col_offset=node.col_offset,
        end_lineno=getattr(last, "end_lineno", node.lineno),
        end_col_offset=getattr(last, "end_col_offset", node.col_offset + 1),
    )
