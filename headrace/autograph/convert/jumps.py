"""Converter of `break`, `continue` and `return`, and of the `else` of loops.

A jump becomes the assignment of a flag. The statements that the jump skips go into the other branch of the conditional
that contains it, or, where it has none, under a test of the flag. A loop tests its flags before the next iteration. So
all later converters see blocks that end at their last statement.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import Any, NamedTuple

from headrace.autograph.convert.context import Context
from headrace.autograph.templates import place, statements
from headrace.records import record


class _Lowered(NamedTuple):
    """A converted block.

    Attributes:
      code: its statements.
      flags: the flags that it may set.
      jumps: whether it never reaches its end.
    """

    code: list[ast.stmt]
    flags: frozenset[str]
    jumps: bool


@record
class _Loop:
    """Flags of a loop, named when they are needed."""

    stop: str = ""
    skip: str = ""


def convert(ctx: Context, body: list[ast.stmt]) -> list[ast.stmt]:
    """Returns the body of a function with one `return` at most, as its last statement."""
    jumps = _Jumps(ctx)
    is_plain = not any(_has_return(s) for s in body[:-1]) and (
        not body or isinstance(body[-1], ast.Return) or not _has_return(body[-1])
    )
    if is_plain and body and isinstance(body[-1], ast.Return):
        code = jumps.block(body[:-1]).code
        return _without_unread(jumps, [*code, body[-1]])
    if is_plain:
        return _without_unread(jumps, jumps.block(body).code)
    jumps.returned, jumps.value = ctx.fresh("did_return"), ctx.fresh("return_value")
    last = place([ast.Return(ast.Constant(None))], body[-1])
    out = jumps.block([*body, *last])
    begin = place(statements("flag = False", flag=jumps.returned), ctx.function)
    end = place(statements("return value", value=jumps.value), body[-1])
    # a block that cannot fall through has no use for a `return` after it, but a `raise` is no value
    return _without_unread(jumps, [*begin, *out.code, *end])


def _has_return(node: ast.AST) -> bool:
    if isinstance(node, ast.Return):
        return True
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda, ast.expr)):
        return False
    return any(map(_has_return, ast.iter_child_nodes(node)))


class _Jumps:
    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx
        self._loops: list[_Loop] = []
        self.returned = self.value = ""
        self.read: set[str] = set()
        self.flags: set[str] = set()

    def block(self, block: Sequence[ast.stmt]) -> _Lowered:
        """Converts a block."""
        out: list[ast.stmt] = []
        for k, node in enumerate(block):
            made = self._statement(node)
            out += made.code
            if made.jumps:
                return _Lowered(out, made.flags, True)
            rest = block[k + 1 :]
            if made.flags and rest:
                return self._skipping(out, node, made, self.block(rest))
            if made.flags:
                return _Lowered(out, made.flags, False)
        return _Lowered(out, frozenset(), False)

    def _skipping(self, out: list[ast.stmt], node: Any, made: _Lowered, rest: _Lowered) -> _Lowered:
        """Adds the statements after a conditional or a loop that may jump."""
        flags = made.flags | rest.flags
        if isinstance(node, ast.If):
            first, second = node.parts  # type: ignore[attr-defined]
            if first.jumps and not second.flags:
                node.orelse = node.orelse + rest.code
                return _Lowered(out, flags, rest.jumps)
            if second.jumps and not first.flags:
                node.body = node.body + rest.code
                return _Lowered(out, flags, rest.jumps)
        guard = ast.If(self._none_of(made.flags), rest.code, [])
        return _Lowered(out + place([guard], node), flags, False)

    def _none_of(self, flags: frozenset[str], *more: ast.expr) -> ast.expr:
        """Returns the test that no flag is set, and `more` holds."""
        self.read |= flags
        tests: list[ast.expr] = [ast.UnaryOp(ast.Not(), ast.Name(f, ast.Load())) for f in sorted(flags)]
        tests += more
        return tests[0] if len(tests) == 1 else ast.BoolOp(ast.And(), tests)

    def _set(self, flag: str, at: ast.AST, to: bool = True) -> list[ast.stmt]:
        self.flags.add(flag)
        return place(statements(f"flag = {to}", flag=flag), at)

    def _statement(self, node: Any) -> _Lowered:
        match node:
            case ast.Return():
                given = node.value or ast.Constant(None)
                code = place(statements("name = given", name=self.value, given=given), node)
                return _Lowered(code + self._set(self.returned, node), frozenset((self.returned,)), True)
            case ast.Break():
                loop = self._loops[-1]
                loop.stop = loop.stop or self._ctx.fresh("did_break")
                return _Lowered(self._set(loop.stop, node), frozenset((loop.stop,)), True)
            case ast.Continue():
                loop = self._loops[-1]
                loop.skip = loop.skip or self._ctx.fresh("did_continue")
                return _Lowered(self._set(loop.skip, node), frozenset((loop.skip,)), True)
            case ast.Raise():
                return _Lowered([node], frozenset(), True)
            case ast.If():
                first, second = self.block(node.body), self.block(node.orelse)
                node.body, node.orelse = first.code, second.code
                node.parts = (first, second)  # type: ignore[attr-defined]
                return _Lowered([node], first.flags | second.flags, first.jumps and second.jumps)
            case ast.While() | ast.For():
                return self._loop(node)
            case ast.With():
                inside = self.block(node.body)
                node.body = inside.code
                return _Lowered([node], inside.flags, bool(inside.flags) and inside.jumps)
            case ast.Try():
                return self._try(node)
            case _:
                return _Lowered([node], frozenset(), False)

    def _loop(self, node: Any) -> _Lowered:
        loop = _Loop()
        self._loops.append(loop)
        body = self.block(node.body)
        self._loops.pop()
        after = self.block(node.orelse)
        code = body.code
        before: list[ast.stmt] = []
        if loop.skip:
            code = self._set(loop.skip, node, False) + code
        if loop.stop:
            before = self._set(loop.stop, node, False)
        node.body, node.orelse = code, []
        ends = body.flags - {loop.skip}
        always = isinstance(node, ast.While) and isinstance(node.test, ast.Constant) and bool(node.test.value)
        if ends:
            if isinstance(node, ast.While):
                node.test = self._none_of(ends, *([] if always else [node.test]))
                place([node], node)
            else:
                node.extra_test = place([self._none_of(ends)], node)[0]
        out: list[ast.stmt] = [*before, node]
        leaves = ends - {loop.stop}
        if always and not loop.stop:
            return _Lowered(out, leaves, True)
        if not after.code:
            return _Lowered(out, leaves, False)
        if ends:
            guard = ast.If(self._none_of(ends), after.code, [])
            return _Lowered(out + place([guard], node), leaves | after.flags, False)
        return _Lowered(out + after.code, leaves | after.flags, after.jumps)

    def _try(self, node: ast.Try) -> _Lowered:
        for part in node.finalbody:
            if _has_jump(part, in_loop=False):
                raise self._ctx.error(
                    part, "a jump out of 'finally' is not converted; move return, break or continue behind the block."
                )
        body, other, final = self.block(node.body), self.block(node.orelse), self.block(node.finalbody)
        handlers = [self.block(h.body) for h in node.handlers]
        node.body, node.orelse, node.finalbody = body.code, other.code, final.code
        if body.flags and other.code:
            node.orelse = place([ast.If(self._none_of(body.flags), other.code, [])], node)
        for handler, lowered in zip(node.handlers, handlers, strict=True):
            handler.body = lowered.code
        flags = body.flags.union(other.flags, *(h.flags for h in handlers))
        jumps = bool(flags) and (body.jumps or other.jumps) and all(h.jumps for h in handlers)
        return _Lowered([node], flags, jumps)


def _has_jump(node: ast.AST, in_loop: bool) -> bool:
    if isinstance(node, ast.Return) or (isinstance(node, (ast.Break, ast.Continue)) and not in_loop):
        return True
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.expr)):
        return False
    in_loop = in_loop or isinstance(node, (ast.While, ast.For))
    return any(_has_jump(child, in_loop) for child in ast.iter_child_nodes(node))


def _without_unread(jumps: _Jumps, body: list[ast.stmt]) -> list[ast.stmt]:
    """Returns a body without the assignments of flags that no test reads."""
    unread = jumps.flags - jumps.read | ({jumps.returned} - jumps.read)
    return _Remover(unread).block(body) if unread else body


class _Remover:
    def __init__(self, names: set[str]) -> None:
        self._names = names

    def block(self, block: list[ast.stmt]) -> list[ast.stmt]:
        out = [self._inside(s) for s in block if not self._is_unread(s)]
        return out or place([ast.Pass()], block[0]) if block else out

    def _is_unread(self, node: ast.stmt) -> bool:
        if not isinstance(node, ast.Assign):
            return False
        target = node.targets[0]
        return isinstance(target, ast.Name) and target.id in self._names

    def _inside(self, node: Any) -> ast.stmt:
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            for field in ("body", "orelse", "finalbody"):
                inner = getattr(node, field, None)
                if isinstance(inner, list):
                    setattr(node, field, self.block(inner))
            for handler in getattr(node, "handlers", ()):
                handler.body = self.block(handler.body)
        out: ast.stmt = node
        return out
