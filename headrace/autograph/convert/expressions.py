"""Converter of expressions: calls, `and`, `or`, `not`, comparisons, conditional expressions, subscripts.

Each becomes a call of an operator (`headrace.autograph.operators`). Operands that Python evaluates only if needed
become functions. `<`, `+` and the other operators of Python's data model stay, since tensors define them.

An operand that assigns by `:=` becomes a function at the start of the converted function, where it can declare the
variable `nonlocal`. The operator gets the access to the variable, like that of `if`:

    a > 0 and (h := f(a)) > 1       def operand_():
                                        nonlocal h
                                        return (h := f(a)) > 1
                                    def set_(values_):
                                        nonlocal h
                                        (h,) = values_
                                    ag__.and_(a > 0, operand_, state=(("h",), lambda: (h,), set_))
"""

from __future__ import annotations

import ast
from typing import Any, Final, cast

from headrace.autograph.analysis.activity import CHANGING, free_names, own_nodes
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

    Attributes:
      operands: the functions of operands that assign variables.
      assigned: the variables.
    """

    def __init__(self, ctx: Context, unchecked: list[ast.Name], local: frozenset[str] = frozenset()) -> None:
        self.operands: list[ast.stmt] = []
        self.assigned: set[str] = set()
        self._local = local
        self._has_variables = not isinstance(ctx.function, ast.Lambda)  # a comprehension or lambda has its own
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
        name = "and_" if isinstance(node.op, ast.And) else "or_"
        made = self._made(
            node, f"ag__.{name}(first, rest)", first=self.visit(first), rest=[self._lazy(x) for x in rest]
        )
        return self._with_state(made, rest)

    def visit_IfExp(self, node: ast.IfExp) -> ast.expr:
        branches = [node.body, node.orelse]
        made = self._made(
            node,
            "ag__.if_exp(test, first, second)",
            test=self.visit(node.test),
            first=self._lazy(node.body),
            second=self._lazy(node.orelse),
        )
        return self._with_state(made, branches)

    def visit_Compare(self, node: ast.Compare) -> ast.expr:
        if len(node.ops) == 1 and isinstance(node.ops[0], _NATIVE):
            self.generic_visit(node)
            return node
        if len(node.ops) == 1:
            return self._compared(node, self.visit(node.left), node.ops[0], self.visit(node.comparators[0]))
        made: list[ast.expr] = [self.visit(node.left)]
        for k, (op, operand) in enumerate(zip(node.ops, node.comparators, strict=True)):
            compares = self._compared(node, ast.Name("a", ast.Load()), op, ast.Name("b", ast.Load()))
            value = self._lazy(operand) if k else self.visit(operand)  # the first two operands are always evaluated
            made += [self._made(node, "lambda a, b: r", r=compares), value]
        return self._with_state(self._made(node, "ag__.compare(parts)", parts=made), node.comparators[1:])

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
        outside, self._has_variables = self._has_variables, False
        self.generic_visit(node)
        self._has_variables = outside
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
        """Returns an operand as a function."""
        names = _assigned(node)
        value = self.visit(node)
        return self._function("operand", [], names, [ast.Return(value)], node) if names else self._lambda(value)

    def _lambda(self, value: ast.expr) -> ast.expr:
        return self._made(value, "lambda: x", x=value)

    def _with_state(self, call: Any, operands: list[ast.expr]) -> ast.expr:
        """Adds the access to variables that operands assign to a call."""
        names = sorted({name for operand in operands for name in _assigned(operand)})
        if names:
            texts = ast.Tuple([ast.Constant(n) for n in names], ast.Load())
            stored, loaded = (ast.Tuple([ast.Name(n, c) for n in names], c) for c in (ast.Store(), ast.Load()))
            store = ast.Assign([stored], ast.Name("values_", ast.Load()))
            set_ = self._function("set", ["values_"], names, [store], call)
            state = expression("(texts, lambda: loaded, set_)", texts=texts, loaded=loaded, set_=set_)
            call.keywords.append(ast.keyword("state", state))
            place([call], call)
        return cast("ast.expr", call)

    def _function(self, name: str, args: list[str], names: list[str], body: list[ast.stmt], at: ast.expr) -> ast.expr:
        """Adds a function that assigns variables; returns its name."""
        if not self._has_variables or not self._local.issuperset(names):
            raise self._ctx.error(
                at,
                "':=' in an operand or a branch that may be skipped is converted for variables of a function alone, "
                "outside of comprehensions and lambdas; assign the variable in a statement before.",
            )
        self.assigned.update(names)
        name = self._ctx.fresh(name)
        given = ast.arguments([], [ast.arg(a) for a in args], None, [], [], None, [])
        self.operands += place([ast.FunctionDef(name, given, [ast.Nonlocal(names), *body], [], None)], at)
        return place([ast.Name(name, ast.Load())], at)[0]

    def _made(self, at: ast.AST, template: str, **holes: Any) -> ast.expr:
        return place([expression(template, **holes)], at)[0]


def _assigned(node: ast.expr) -> list[str]:
    """Returns the names that an expression assigns by `:=`."""
    return sorted({n.target.id for n in own_nodes(node) if isinstance(n, ast.NamedExpr)})


def _is_simple(node: Any) -> bool:
    """Whether a comprehension has one `for` over names, and no function that keeps its variables."""
    if len(node.generators) > 1 or node.generators[0].is_async:
        return False
    target = node.generators[0].target
    names = [target] if isinstance(target, ast.Name) else getattr(target, "elts", [None])
    if not all(isinstance(n, ast.Name) for n in names):
        return False
    own = {n.id for n in names if isinstance(n, ast.Name)}
    inner = [n for part in (node.elt, *node.generators[0].ifs) for n in ast.walk(part)]
    keeps = any(isinstance(n, ast.Lambda) and own & free_names(n)[0] for n in inner)
    return not keeps and not any(isinstance(n, (ast.NamedExpr, ast.Yield, ast.Await)) for n in inner)


class _Names(ast.NodeTransformer):
    def __init__(self, of: Expressions) -> None:
        self._of = of

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return self._of.visit_Name(node)
