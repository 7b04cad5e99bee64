"""Smaller programs than one that fails, for a report that is read by people."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Sequence

from tests.order.programs import (
    Block,
    Branch,
    Call,
    Case,
    Cond,
    Each,
    Line,
    Loop,
    Program,
    Statement,
    With,
    all_defined,
    defined,
    source,
)


def _shorter(block: Block) -> Iterator[Block]:
    """Blocks with one thing less."""
    for i, s in enumerate(block):
        rest = block[:i], block[i + 1 :]
        yield rest[0] + rest[1]
        if isinstance(s, With):
            yield rest[0] + s.body + rest[1]
            if len(s.deps) > 1:
                for j in range(len(s.deps)):
                    yield (*rest[0], With(s.deps[:j] + s.deps[j + 1 :], s.body), *rest[1])
            for body in _shorter(s.body):
                if body:
                    yield (*rest[0], With(s.deps, body), *rest[1])
        elif isinstance(s, Cond):
            for b in (s.yes, s.no):
                yield rest[0] + b.body + tuple(map(Line, s.names, b.out)) + rest[1]
            for which in ("yes", "no"):
                for body in _shorter(getattr(s, which).body):
                    yield (*rest[0], dataclasses.replace(s, **{which: Branch(body, getattr(s, which).out)}), *rest[1])
            for k in range(len(s.names)) if len(s.names) > 1 else ():
                cut = dataclasses.replace(
                    s, names=_without(s.names, k), yes=Branch(s.yes.body, _without(s.yes.out, k)),
                    no=Branch(s.no.body, _without(s.no.out, k)),
                )  # fmt: skip
                yield (*rest[0], cut, *rest[1])
        elif isinstance(s, Case):
            for b in s.branches:
                yield rest[0] + b.body + (Line(s.name, b.out[0]),) + rest[1]
            for k, b in enumerate(s.branches):
                for body in _shorter(b.body):
                    changed = (*s.branches[:k], Branch(body, b.out), *s.branches[k + 1 :])
                    yield (*rest[0], dataclasses.replace(s, branches=changed), *rest[1])
        elif isinstance(s, Loop):
            if s.most is not None:
                yield (*rest[0], dataclasses.replace(s, most=None), *rest[1])
            for which in ("test", "body"):
                for body in _shorter(getattr(s, which).body):
                    yield (*rest[0], dataclasses.replace(s, **{which: Branch(body, getattr(s, which).out)}), *rest[1])
            for k in range(1, len(s.names)):
                cut = dataclasses.replace(
                    s, names=_without(s.names, k), params=_without(s.params, k), init=_without(s.init, k),
                    body=Branch(s.body.body, _without(s.body.out, k)),
                )  # fmt: skip
                yield (*rest[0], cut, *rest[1])
                if s.body.out[k] != s.params[k]:
                    out = (*s.body.out[:k], s.params[k], *s.body.out[k + 1 :])
                    yield (*rest[0], dataclasses.replace(s, body=Branch(s.body.body, out)), *rest[1])
        elif isinstance(s, Call):
            for body in _shorter(s.body.body):
                yield (*rest[0], dataclasses.replace(s, body=Branch(body, s.body.out)), *rest[1])
            for k in range(1, len(s.names)):
                yield (
                    *rest[0],
                    dataclasses.replace(s, names=_without(s.names, k), args=s.args[:k] + s.args[k + 1 :]),
                    *rest[1],
                )
        elif isinstance(s, Each):
            for body in _shorter(s.body.body):
                yield (*rest[0], dataclasses.replace(s, body=Branch(body, s.body.out)), *rest[1])
            if len(s.elems) > 1:
                yield (*rest[0], dataclasses.replace(s, elems=s.elems[:-1]), *rest[1])
        else:
            for a in re.findall(r"\b[fp]\d+\b", s.text):
                yield (*rest[0], Line(s.name, re.sub(rf"\b{a}\b", "x0", s.text)), *rest[1])


def _without(xs: tuple[str, ...], k: int) -> tuple[str, ...]:
    return xs[:k] + xs[k + 1 :]


def smaller(p: Program) -> Iterator[Program]:
    """Programs with one thing less; some of them use names that they do not define."""
    for k in range(len(p.fetches)):
        yield dataclasses.replace(p, fetches=_without(p.fetches, k))
    for k in range(len(p.targets)):
        yield dataclasses.replace(p, targets=_without(p.targets, k))
    if p.fed:
        yield dataclasses.replace(p, fed=())
    if p.steps > 1:
        yield dataclasses.replace(p, steps=1)
    for block in _shorter(p.block):
        yield dataclasses.replace(p, block=block)
    for name in defined(p.block):  # another tensor in its place
        if name[0] == "f":
            yield _renamed(p, name, "x0")
    text = source(p)
    for name in all_defined(p.block):
        if len(re.findall(rf"\b{name}\b", text)) > 1 and name[0] == "f":
            yield _renamed(p, name, "x0", uses=True)


def _renamed(p: Program, name: str, other: str, uses: bool = False) -> Program:
    """Replaces every use of `name` by a use of `other`.

    The definition of `name` is removed, unless it has other results.
    """

    def text(s: str) -> str:
        return re.sub(rf"\b{name}\b", other, s)

    def names(xs: Sequence[str]) -> tuple[str, ...]:
        return tuple(map(text, xs))

    def branch(b: Branch) -> Branch:
        return Branch(block(b.body), names(b.out))

    def block(b: Block) -> Block:
        out: list[Statement] = []
        for s in b:
            if isinstance(s, Line):
                if s.name != name or uses:
                    out.append(Line(s.name, text(s.text)))
            elif isinstance(s, With):
                inner = block(s.body)
                if inner:
                    out.append(With(tuple(dict.fromkeys(names(s.deps))), inner))
            elif isinstance(s, Cond):
                if s.names != (name,) or uses:
                    out.append(Cond(s.names, text(s.pred), branch(s.yes), branch(s.no)))
            elif isinstance(s, Case):
                if s.name != name or uses:
                    out.append(Case(s.name, names(s.preds), tuple(map(branch, s.branches))))
            elif isinstance(s, Loop):
                if s.names != (name,) or uses:
                    out.append(
                        Loop(s.names, s.params, names(s.init), branch(s.test), branch(s.body), s.parallel, s.most)
                    )
            elif isinstance(s, Call):
                if s.names != (name,) or uses:
                    out.append(Call(s.names, s.params, tuple(map(names, s.args)), branch(s.body)))
            elif s.name != name or uses:
                out.append(
                    Each(
                        s.name,
                        s.kind,
                        s.params,
                        names(s.elems),
                        text(s.init) if s.init else "",
                        branch(s.body),
                        s.parallel,
                    )
                )
        return tuple(out)

    return Program(
        block(p.block),
        tuple(dict.fromkeys(names(p.fetches))),
        names(p.targets),
        p.feeds,
        p.steps,
        tuple((text(f), x) for f, x in p.fed if text(f) != "x0"),
    )
