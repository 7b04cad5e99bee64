"""Converter of statements that change data: assignments to elements and attributes, `del`, `assert`, `raise`.

`m[i] = v` changes a list in place and makes a new tensor of a tensor, which the operator decides. So the name, or the
attribute or element that holds `m`, is assigned the result. Other names of the same tensor are assigned, too
(`analysis.aliases`).
"""

from __future__ import annotations

import ast
from typing import Any, Final

from headrace.autograph.convert.context import Context
from headrace.autograph.convert.control import size_of
from headrace.autograph.templates import expression, place, statements

_OPERATORS: Final[dict[type[ast.operator], str]] = {
    ast.Add: "iadd",
    ast.Sub: "isub",
    ast.Mult: "imul",
    ast.Div: "itruediv",
    ast.FloorDiv: "ifloordiv",
    ast.Mod: "imod",
    ast.Pow: "ipow",
    ast.MatMult: "imatmul",
    ast.BitAnd: "iand",
    ast.BitOr: "ior",
    ast.BitXor: "ixor",
    ast.LShift: "ilshift",
    ast.RShift: "irshift",
}


class Data:
    """Converts the statements of one function that change data.

    Args:
      ctx: the function.
      aliases: for each name, the other names that may be bound to the same object.
      own: the names that the function may assign.

    Attributes:
      rebound: names of other variables that a change of an element assigns, too.
    """

    def __init__(self, ctx: Context, aliases: dict[str, frozenset[str]], own: frozenset[str]) -> None:
        self._ctx = ctx
        self._own = own
        self.rebound: set[str] = set()
        self._aliases = aliases
        self._tries = 0  # blocks with handlers around the statement

    def block(self, block: list[ast.stmt]) -> list[ast.stmt]:
        """Converts the statements of a block and of the blocks in it."""
        out: list[ast.stmt] = []
        for node in block:
            out += self._statement(node)
        return out

    def _statement(self, node: Any) -> list[ast.stmt]:
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                return [node]
            case ast.Assign():
                return self._assign(node)
            case ast.AnnAssign():
                if node.value is None or isinstance(node.target, ast.Name):
                    node.annotation = ast.Constant(None)
                    if node.value is None:
                        return []
                return self._assign(place([ast.Assign([node.target], node.value)], node)[0])
            case ast.AugAssign():
                return self._augment(node)
            case ast.Delete():
                return [s for t in node.targets for s in self._delete(t, node)]
            case ast.Assert():
                message: Any = ast.Constant(None) if node.msg is None else expression("lambda: m", m=node.msg)
                return place(statements("ag__.assert_(test, message)", test=node.test, message=message), node)
            case ast.Raise() if node.exc is not None:
                caught: list[ast.expr] = [ast.Constant(True)] if self._tries else []
                node.exc = place([expression("ag__.failure(e, caught)", e=node.exc, caught=caught)], node.exc)[0]
                return [node]
            case ast.Try() if node.handlers:
                self._tries += 1
                node.body = self.block(node.body)
                self._tries -= 1
                for handler in node.handlers:
                    handler.body = self.block(handler.body)
                node.orelse, node.finalbody = self.block(node.orelse), self.block(node.finalbody)
                return [node]
            case ast.For():
                self._target_of_for(node)
        for field in ("body", "orelse", "finalbody"):
            inner = getattr(node, field, None)
            if isinstance(inner, list):
                setattr(node, field, self.block(inner))
        for handler in getattr(node, "handlers", ()):
            handler.body = self.block(handler.body)
        return [node]

    def _target_of_for(self, node: ast.For) -> None:
        """Lets a loop assign a plain name where its target changes an object."""
        if any(isinstance(n, (ast.Attribute, ast.Subscript)) for n in ast.walk(node.target)):
            name = self._ctx.fresh("item")
            first = ast.Assign([node.target], ast.Name(name, ast.Load()))
            node.body = place([first], node.target) + node.body
            node.target = place([ast.Name(name, ast.Store())], node.target)[0]

    # *** assignment ***

    def _assign(self, node: ast.Assign) -> list[ast.stmt]:
        if len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            return [node]
        if len(node.targets) == 1 and not isinstance(node.targets[0], (ast.Tuple, ast.List)):
            return place(self._store(node.targets[0], node.value), node)
        if len(node.targets) == 1 and _is_parallel(node.targets[0], node.value):
            return [node]
        value = self._ctx.fresh("value")
        out = statements("name = value", name=value, value=node.value)
        for target in node.targets:
            out += self._store(target, ast.Name(value, ast.Load()))
        return place(out, node)

    def _store(self, target: Any, value: ast.expr) -> list[ast.stmt]:
        match target:
            case ast.Name() | ast.Starred():
                return [ast.Assign([target], value)]
            case ast.Tuple() | ast.List():
                value = expression("ag__.unpack(x, n)", x=value, n=ast.Constant(size_of(target)))
                if all(isinstance(t, (ast.Name, ast.Starred)) for t in target.elts):
                    return [ast.Assign([target], value)]
                names: list[ast.expr] = []
                later: list[ast.stmt] = []
                for part in target.elts:
                    inner = part.value if isinstance(part, ast.Starred) else part
                    name = self._ctx.fresh("value")
                    plain: ast.expr = ast.Name(name, ast.Store())
                    names.append(ast.Starred(plain, ast.Store()) if isinstance(part, ast.Starred) else plain)
                    later += self._store(inner, ast.Name(name, ast.Load()))
                return [ast.Assign([ast.Tuple(names, ast.Store())], value), *later]
            case ast.Attribute():
                return statements(
                    "ag__.set_attribute(x, name, value)",
                    x=target.value,
                    name=ast.Constant(self._mangled(target.attr)),
                    value=value,
                )
            case ast.Subscript():
                return self._changed(target, "ag__.set_item(holder, path, value)", value=value)
        raise self._ctx.error(target, "this target of an assignment is not converted.")

    def _mangled(self, name: str) -> str:
        within = self._ctx.origin.within
        if within and name.startswith("__") and not name.endswith("__"):
            return f"_{within.lstrip('_')}{name}"
        return name

    def _changed(self, target: ast.Subscript, template: str, **holes: Any) -> list[ast.stmt]:
        """Returns the change of an element, `holder[a][b]`, as an assignment to the holder."""
        path: list[ast.expr] = []
        holder: Any = target
        while isinstance(holder, ast.Subscript):
            path.insert(0, _index(holder.slice))
            holder = holder.value
            if _is_call(holder, "item"):
                holder = holder.args[0]
        steps = ast.Tuple(path, ast.Load())
        if isinstance(holder, ast.Name) or _is_call(holder, "ld"):
            name = holder.id if isinstance(holder, ast.Name) else holder.args[0].id
            value = expression(template, holder=holder, path=steps, **holes)
            if name not in self._own:
                return [self._of_value(template, holder, steps, holes)]
            others = sorted(self._aliases.get(name, frozenset()) - {name})
            if not others:
                return [ast.Assign([ast.Name(name, ast.Store())], value)]
            self.rebound.update(others)
            targets: list[ast.expr] = [ast.Name(n, ast.Store()) for n in (name, *others)]
            names: list[ast.expr] = [ast.Name(n, ast.Load()) for n in (name, *others)]
            both = expression("ag__.rebound(value, (names,))", value=value, names=names)
            return [ast.Assign([ast.Tuple(targets, ast.Store())], both)]
        if isinstance(holder, ast.Attribute):
            template = template.replace("ag__.", "ag__.of_attribute(ag__.").replace("(holder, ", ", holder, name, ")
            return [
                ast.Expr(
                    expression(
                        template,
                        holder=holder.value,
                        name=ast.Constant(self._mangled(holder.attr)),
                        path=steps,
                        **holes,
                    )
                )
            ]
        return [self._of_value(template, holder, steps, holes)]

    def _of_value(self, template: str, holder: ast.expr, path: ast.expr, holes: dict[str, Any]) -> ast.stmt:
        """Returns the change of an element of an object without a name to assign."""
        template = template.replace("ag__.", "ag__.of_value(ag__.").replace("(holder, ", ", holder, ")
        return ast.Expr(expression(template, holder=holder, path=path, **holes))

    def _augment(self, node: ast.AugAssign) -> list[ast.stmt]:
        function = ast.Constant(_OPERATORS[type(node.op)])
        match node.target:
            case ast.Name():
                if not getattr(node, "reads_undefined", False) and not isinstance(node.op, (ast.Add, ast.BitOr)):
                    return [node]
                name = node.target.id
                value = expression(
                    "ag__.augmented(ag__.ld(name, text), op, value)",
                    name=name,
                    text=ast.Constant(name),
                    op=function,
                    value=node.value,
                )
                return place([ast.Assign([node.target], value)], node)
            case ast.Attribute():
                return place(
                    statements(
                        "ag__.augment_attribute(x, name, op, value)",
                        x=node.target.value,
                        name=ast.Constant(self._mangled(node.target.attr)),
                        op=function,
                        value=node.value,
                    ),
                    node,
                )
            case target:
                made = self._changed(
                    target, "ag__.augment_item(holder, path, op, value)", op=function, value=node.value
                )
                return place(made, node)

    def _delete(self, target: Any, at: ast.AST) -> list[ast.stmt]:
        match target:
            case ast.Name():
                return place(
                    statements("name = ag__.deleted(name, text)", name=target.id, text=ast.Constant(target.id)), at
                )
            case ast.Attribute():
                return place(
                    statements(
                        "ag__.delete_attribute(x, name)", x=target.value, name=ast.Constant(self._mangled(target.attr))
                    ),
                    at,
                )
            case ast.Subscript():
                return place(self._changed(target, "ag__.delete_item(holder, path)"), at)
        return [s for t in target.elts for s in self._delete(t, at)]


def _is_call(node: Any, name: str) -> bool:
    """Whether a node is the call of an operator that a converter has made."""
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == name
        and (isinstance(node.func.value, ast.Name) and node.func.value.id == "ag__")
    )


def _is_parallel(target: Any, value: ast.expr) -> bool:
    """Whether an assignment pairs names with values, such as `a, b = b, a`."""
    return (
        isinstance(value, (ast.Tuple, ast.List))
        and len(value.elts) == len(target.elts)
        and all(isinstance(t, ast.Name) for t in target.elts)
        and not any(isinstance(v, ast.Starred) for v in value.elts)
    )


def _index(node: ast.expr) -> ast.expr:
    """Returns an index as an expression of its own: `1:2` becomes `slice(1, 2, None)`."""
    if isinstance(node, ast.Slice):
        parts = [p or ast.Constant(None) for p in (node.lower, node.upper, node.step)]
        return place([expression("slice(parts)", parts=parts)], node)[0]
    if isinstance(node, ast.Tuple):
        node.elts = [_index(e) for e in node.elts]
    return node
