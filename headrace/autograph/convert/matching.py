"""Converter of `match` into `if`.

    match n, x:                     subject_, subject_2 = n, x
        case 1 | 2, _:              if subject_ == 1 or subject_ == 2:
            a                           a
        case 0, y if y > 0:         elif subject_ == 0 and subject_2 > 0:
            b                           y = subject_2
        case _:                         b
            c                       else:
                                        c

So tensors may be subjects. Patterns of values, names and alternatives are converted, and tuples of them if the subject
is written as a tuple. A `match` with other patterns is refused.
"""

from __future__ import annotations

import ast
from typing import Any, NamedTuple, TypeAlias

from headrace.autograph.convert.context import Context
from headrace.autograph.templates import expression, place

#: The name of a variable that has the subject, or a tuple of subjects.
_Subject: TypeAlias = "str | tuple[_Subject, ...]"


class _Pattern(NamedTuple):
    """A pattern as code.

    Attributes:
      tests: expressions that all hold if the pattern matches; none if it always does.
      names: the variable that has the value of each captured name.
    """

    tests: list[ast.expr]
    names: dict[str, str]


def convert(ctx: Context, body: list[ast.stmt]) -> list[ast.stmt]:
    """Returns a block with `if` in place of `match`.

    Raises:
      AutographError: a pattern has no conversion.
    """
    out: list[ast.stmt] = []
    for node in body:
        if isinstance(node, ast.Match):
            subject, first = _subject(ctx, node.subject)
            out += place(first, node) + _chain(ctx, node.cases, subject)
        else:
            _inside(ctx, node)
            out.append(node)
    return out


def _inside(ctx: Context, node: Any) -> None:
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        return
    for field in ("body", "orelse", "finalbody"):
        inner = getattr(node, field, None)
        if isinstance(inner, list):
            setattr(node, field, convert(ctx, inner))
    for handler in getattr(node, "handlers", ()):
        handler.body = convert(ctx, handler.body)


def _subject(ctx: Context, value: ast.expr) -> tuple[_Subject, list[ast.stmt]]:
    """Returns the variables of a subject and their assignments."""
    if isinstance(value, (ast.Tuple, ast.List)) and not any(isinstance(e, ast.Starred) for e in value.elts):
        parts = [_subject(ctx, e) for e in value.elts]
        return tuple(p[0] for p in parts), [s for p in parts for s in p[1]]
    name = ctx.fresh("subject")
    return name, [ast.Assign([ast.Name(name, ast.Store())], value)]


def _chain(ctx: Context, cases: list[ast.match_case], subject: _Subject) -> list[ast.stmt]:
    if not cases:
        return []
    case, *rest = cases
    found = _pattern(ctx, case.pattern, subject)
    if found is None:
        return _chain(ctx, rest, subject)
    tests = list(found.tests)
    if case.guard is not None:
        tests.append(_Bound(found.names).visit(case.guard))
    bound: list[ast.stmt] = [
        ast.Assign([ast.Name(n, ast.Store())], ast.Name(v, ast.Load())) for n, v in found.names.items()
    ]
    block = place(bound, case.pattern) + convert(ctx, case.body)
    if not tests:
        return block
    return place([ast.If(_all(tests), block, _chain(ctx, rest, subject))], case.pattern)


def _pattern(ctx: Context, pattern: Any, subject: _Subject) -> _Pattern | None:
    """Returns a pattern as code; None if it never matches."""
    match pattern:
        case ast.MatchAs(pattern=None, name=None):
            return _Pattern([], {})
        case ast.MatchAs(name=str(name)) if isinstance(subject, str):
            inner = _Pattern([], {}) if pattern.pattern is None else _pattern(ctx, pattern.pattern, subject)
            return inner and _Pattern(inner.tests, {**inner.names, name: subject})
        case ast.MatchValue() if isinstance(subject, str):
            return _Pattern([ast.Compare(ast.Name(subject, ast.Load()), [ast.Eq()], [pattern.value])], {})
        case ast.MatchSingleton() if isinstance(subject, str):
            value = ast.Constant(pattern.value)
            return _Pattern([expression("ag__.is_constant(x, value)", x=subject, value=value)], {})
        case ast.MatchOr():
            parts = [p for p in (_pattern(ctx, p, subject) for p in pattern.patterns) if p is not None]
            if any(p.names for p in parts):
                raise ctx.error(pattern, "names in alternatives of a 'case' are not converted; give each its own case.")
            if not all(p.tests for p in parts):
                return _Pattern([], {})
            tests = [_all(p.tests) for p in parts]
            return _Pattern([tests[0] if len(tests) == 1 else ast.BoolOp(ast.Or(), tests)], {}) if tests else None
        case ast.MatchSequence() if isinstance(subject, tuple) and not _has_star(pattern):
            if len(pattern.patterns) != len(subject):
                return None
            out = _Pattern([], {})
            for part, variable in zip(pattern.patterns, subject, strict=True):
                found = _pattern(ctx, part, variable)
                if found is None:
                    return None
                out = _Pattern(out.tests + found.tests, {**out.names, **found.names})
            return out
    raise ctx.error(
        pattern,
        "this pattern of 'case' is not converted; give values and names, or tuples of them where the subject is "
        "written as a tuple, or use if and elif.",
    )


def _has_star(pattern: ast.MatchSequence) -> bool:
    return any(isinstance(p, ast.MatchStar) for p in pattern.patterns)


def _all(tests: list[ast.expr]) -> ast.expr:
    return tests[0] if len(tests) == 1 else ast.BoolOp(ast.And(), tests)


class _Bound(ast.NodeTransformer):
    """Replaces the names that a pattern captures in its guard."""

    def __init__(self, names: dict[str, str]) -> None:
        self._names = names

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return place([ast.Name(self._names.get(node.id, node.id), node.ctx)], node)[0]
