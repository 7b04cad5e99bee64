"""Converter of expressions: calls, `and`, `or`, `not`, comparisons, conditional expressions, subscripts.

Each becomes a call of an operator (`headrace.autograph.operators`). Operands that Python evaluates only if needed
become functions. `<`, `+` and the other operators of Python's data model stay, since tensors define them.
"""

from __future__ import annotations

import ast
from typing import Any, Final

from headrace.autograph.analysis.activity import CHANGING, own_nodes
from headrace.autograph.convert.context import Context
from headrace.autograph.templates import expression, place

_NATIVE: Final = (ast.Lt, ast.LtE, ast.Gt, ast.GtE, ast.Is, ast.IsNot)
_FUNCTIONS: Final[dict[type[ast.cmpop], str]] = {
    ast.Eq: "ag__.eq(first, second)",
    ast.NotEq: "ag__.ne(first, second)",
    ast.In: "ag__.in_(first, second)",
    ast.NotIn: "ag__.not_in(first, second)",
}


class Expressions(ast.NodeTransformer):
    """Converts the expressions of a function, statements around them unchanged.

    Args:
      ctx: the function.
      unchecked: the reads of variables that may have no value.
      local: the names of its variables.
    """

    def __init__(self, ctx: Context, unchecked: list[ast.Name], local: frozenset[str] = frozenset()) -> None:
        self._local = local
        self._ctx = ctx
        self._open = {id(n) for n in unchecked}
        self._kept = unchecked

    def _nested(self, node: Any) -> Any:
        """Nested functions are converted as functions of their own, except for their decorators and defaults."""
        if not isinstance(node, ast.ClassDef):
            node.args.defaults = [self.visit(d) for d in node.args.defaults]
            node.args.kw_defaults = [d and self.visit(d) for d in node.args.kw_defaults]
        node.decorator_list = [self.visit(d) for d in node.decorator_list]
        if isinstance(node, ast.ClassDef):
            node.bases = [self.visit(b) for b in node.bases]
        node.body = [self._checked_names(s) for s in node.body]
        return node

    def visit_Lambda(self, node: ast.Lambda) -> ast.Lambda:
        node.args.defaults = [self.visit(d) for d in node.args.defaults]
        node.args.kw_defaults = [d and self.visit(d) for d in node.args.kw_defaults]
        node.body = self._checked_names(node.body)
        return node

    def _checked_names(self, node: Any) -> Any:
        """Checks the reads of this function's variables in a nested function, which is converted already."""
        return _Names(self).visit(node) if self._open else node

    visit_FunctionDef = _nested
    visit_AsyncFunctionDef = _nested
    visit_ClassDef = _nested

    def visit_For(self, node: ast.For) -> ast.For:
        self.generic_visit(node)
        extra = getattr(node, "extra_test", None)
        if extra is not None:
            node.extra_test = self.visit(extra)  # type: ignore[attr-defined]
        return node

    def visit_Name(self, node: ast.Name) -> ast.expr:
        if id(node) not in self._open:
            return node
        return self._made(node, "ag__.ld(name, text)", name=node, text=ast.Constant(node.id))

    def visit_AnnAssign(self, node: ast.AnnAssign) -> Any:
        node.value = node.value and self.visit(node.value)
        node.target = self.visit(node.target)
        return node

    def visit_Call(self, node: ast.Call) -> ast.expr:
        if isinstance(node.func, ast.Name) and node.func.id == "super" and not node.args:
            args = getattr(self._ctx.function, "args", None)
            first = [] if args is None else [*args.posonlyargs, *args.args]
            if first:
                return self._made(node, "super(__class__, me)", me=first[0].arg)
        self.generic_visit(node)
        method = node.func
        if isinstance(method, ast.Attribute) and method.attr in CHANGING and isinstance(method.value, ast.Name):
            name = method.value.id
            if name not in self._local:
                method.value = self._made(method.value, "ag__.outer(x, name)", x=name, name=ast.Constant(name))
        node.func = self._made(node.func, "ag__.of(f)", f=node.func)
        return node

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.expr:
        self.generic_visit(node)
        return self._made(node, "ag__.not_(x)", x=node.operand) if isinstance(node.op, ast.Not) else node

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.expr:
        first, *rest = node.values
        for operand in rest:
            self._check_lazy(operand, "an operand of 'and' or 'or' that may be skipped")
        name = "and_" if isinstance(node.op, ast.And) else "or_"
        return self._made(
            node, f"ag__.{name}(first, rest)", first=self.visit(first), rest=[self._lazy(x) for x in rest]
        )

    def visit_IfExp(self, node: ast.IfExp) -> ast.expr:
        for branch in (node.body, node.orelse):
            self._check_lazy(branch, "a branch of a conditional expression")
        return self._made(
            node,
            "ag__.if_exp(test, first, second)",
            test=self.visit(node.test),
            first=self._lazy(node.body),
            second=self._lazy(node.orelse),
        )

    def visit_Compare(self, node: ast.Compare) -> ast.expr:
        if len(node.ops) == 1 and isinstance(node.ops[0], _NATIVE):
            self.generic_visit(node)
            return node
        if len(node.ops) == 1:
            return self._compared(node, self.visit(node.left), node.ops[0], self.visit(node.comparators[0]))
        for operand in node.comparators[1:]:
            self._check_lazy(operand, "a later operand of a comparison")
        made: list[ast.expr] = [self.visit(node.left)]
        for op, operand in zip(node.ops, node.comparators, strict=True):
            compares = self._compared(node, ast.Name("a", ast.Load()), op, ast.Name("b", ast.Load()))
            made += [self._made(node, "lambda a, b: r", r=compares), self._lazy(operand)]
        made[2] = made[2].body  # type: ignore[attr-defined]  # the first two operands are always evaluated
        return self._made(node, "ag__.compare(parts)", parts=made)

    def _compared(self, at: ast.AST, first: ast.expr, op: ast.cmpop, second: ast.expr) -> ast.expr:
        if isinstance(op, _NATIVE):
            return place([ast.Compare(first, [op], [second])], at)[0]
        return self._made(at, _FUNCTIONS[type(op)], first=first, second=second)

    def visit_Subscript(self, node: ast.Subscript) -> ast.expr:
        self.generic_visit(node)
        if isinstance(node.ctx, ast.Load):
            node.value = self._made(node.value, "ag__.item(x)", x=node.value)
        return node

    def visit_GeneratorExp(self, node: Any) -> Any:
        is_simple = isinstance(node, (ast.ListComp, ast.GeneratorExp)) and _is_simple(node)
        self.generic_visit(node)
        if is_simple:
            name = "gen_exp" if isinstance(node, ast.GeneratorExp) else "list_comp"
            (generator,) = node.generators
            keeps: list[ast.expr] = []
            if generator.ifs:
                first, *rest = generator.ifs
                more = [self._made(c, "lambda: x", x=c) for c in rest]
                test = self._made(node, "ag__.and_(first, rest)", first=first, rest=more) if rest else first
                keeps = [self._of_item(generator.target, test)]
            element = self._of_item(generator.target, node.elt)
            return self._made(node, f"ag__.{name}(x, f, keeps)", x=generator.iter, f=element, keeps=keeps)
        for generator in node.generators:
            generator.iter = self._made(generator.iter, "ag__.elements(x)", x=generator.iter)
            generator.ifs = [self._made(c, "ag__.decided(x)", x=c) for c in generator.ifs]
        return node

    visit_ListComp = visit_GeneratorExp
    visit_SetComp = visit_GeneratorExp
    visit_DictComp = visit_GeneratorExp

    def _of_item(self, target: Any, value: ast.expr) -> ast.expr:
        """Returns a function from an item of a comprehension to an expression."""
        names = [target] if isinstance(target, ast.Name) else target.elts
        args = ast.arguments([], [ast.arg(n.id) for n in names], None, [], [], None, [])
        function: ast.expr = ast.Lambda(args, value)
        if not isinstance(target, ast.Name):
            n = ast.Constant(len(names))
            function = expression("lambda item_: f(*ag__.unpack(item_, n))", f=place([function], value)[0], n=n)
        return place([function], value)[0]

    def _lazy(self, node: ast.expr) -> ast.expr:
        return self._made(node, "lambda: x", x=self.visit(node))

    def _check_lazy(self, node: ast.expr, where: str) -> None:
        for inner in own_nodes(node):
            if isinstance(inner, ast.NamedExpr):
                raise self._ctx.error(
                    inner, f"':=' in {where} is not converted; assign the variable in a statement before."
                )

    def _made(self, at: ast.AST, template: str, **holes: Any) -> ast.expr:
        return place([expression(template, **holes)], at)[0]


def _is_simple(node: Any) -> bool:
    """Whether a comprehension has one `for` over names, and no function that keeps its variables."""
    if len(node.generators) > 1 or node.generators[0].is_async:
        return False
    target = node.generators[0].target
    names = [target] if isinstance(target, ast.Name) else getattr(target, "elts", [None])
    if not all(isinstance(n, ast.Name) for n in names):
        return False
    parts = [node.elt, *node.generators[0].ifs]
    return not any(
        isinstance(n, (ast.NamedExpr, ast.Yield, ast.Await, ast.Lambda)) for part in parts for n in ast.walk(part)
    )


class _Names(ast.NodeTransformer):
    def __init__(self, of: Expressions) -> None:
        self._of = of

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return self._of.visit_Name(node)
