"""Programs whose effects are ordered by control edges alone, as data and as source.

A program is a block of statements over scalars of float64. Effects (assignments, scatter updates, counts, prints,
Python calls, queues, random numbers) stand on inputs, captured tensors, loop variables and unread results, in
branches, conditions, bodies and functional loops, and are reached through `control_dependencies`, `group`, `tuple`,
`identity`, `with_dependencies`, gradients, and results of structures. `source` makes the text that
`tests.order.running` executes with headrace, TensorFlow, or the reference.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import TypeAlias

COUNTERS = 40  # more than a program has


@dataclasses.dataclass(frozen=True)
class Line:
    """An assignment to `name`."""

    name: str
    text: str


@dataclasses.dataclass(frozen=True)
class With:
    """Statements under `control_dependencies`."""

    deps: tuple[str, ...]
    body: Block


@dataclasses.dataclass(frozen=True)
class Branch:
    body: Block
    out: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class Cond:
    names: tuple[str, ...]
    pred: str
    yes: Branch
    no: Branch


@dataclasses.dataclass(frozen=True)
class Case:
    """`case`: the branch of the first predicate that holds; the last branch has none."""

    name: str
    preds: tuple[str, ...]
    branches: tuple[Branch, ...]


@dataclasses.dataclass(frozen=True)
class Loop:
    """`test` is the condition, whose one result is its expression."""

    names: tuple[str, ...]
    params: tuple[str, ...]
    init: tuple[str, ...]
    test: Branch
    body: Branch
    parallel: int
    most: int | None = None  # maximum_iterations


@dataclasses.dataclass(frozen=True)
class Each:
    """`map_fn`, `scan` or `foldl`; `init` is "" for `map_fn`."""

    name: str
    kind: str
    params: tuple[str, ...]
    elems: tuple[str, ...]
    init: str
    body: Branch
    parallel: int


@dataclasses.dataclass(frozen=True)
class Call:
    """A function, and calls of it."""

    names: tuple[str, ...]
    params: tuple[str, ...]
    args: tuple[tuple[str, ...], ...]  # of each call
    body: Branch


Statement: TypeAlias = "Line | With | Cond | Case | Loop | Each | Call"
Block: TypeAlias = "tuple[Statement, ...]"


@dataclasses.dataclass(frozen=True)
class Program:
    """
    Attributes:
      block: the statements of the root graph.
      fetches: names of tensors.
      targets: expressions of operations.
      feeds: of `x0` and `x1`.
      steps: how often it is run.
      fed: names of tensors of the root graph that are fed too, with their values.
    """

    block: Block
    fetches: tuple[str, ...]
    targets: tuple[str, ...]
    feeds: tuple[float, float]
    steps: int = 1
    fed: tuple[tuple[str, float], ...] = ()


# *** source ***


def _lines(block: Block, indent: str) -> Iterator[str]:
    more = indent + "    "
    for s in block:
        if isinstance(s, Line):
            yield f"{indent}{s.name} = {s.text}"
        elif isinstance(s, With):
            yield f"{indent}with tf.control_dependencies([{', '.join(s.deps)}]):"
            yield from _lines(s.body, more)
        elif isinstance(s, Cond):
            at = s.names[0]
            for name, branch in ((f"yes_{at}", s.yes), (f"no_{at}", s.no)):
                yield f"{indent}def {name}():"
                yield from _lines(branch.body, more)
                yield f"{more}return {', '.join(branch.out)}"
            yield f"{indent}{', '.join(s.names)} = tf.cond({s.pred}, yes_{at}, no_{at})"
        elif isinstance(s, Case):
            for i, branch in enumerate(s.branches):
                yield f"{indent}def case{i}_{s.name}():"
                yield from _lines(branch.body, more)
                yield f"{more}return {', '.join(branch.out)}"
            pairs = ", ".join(f"({pred}, case{i}_{s.name})" for i, pred in enumerate(s.preds))
            yield f"{indent}{s.name} = tf.case([{pairs}], default=case{len(s.preds)}_{s.name})"
        elif isinstance(s, Loop):
            at = s.names[0]
            for name, branch in ((f"test_{at}", s.test), (f"body_{at}", s.body)):
                yield f"{indent}def {name}({', '.join(s.params)}):"
                yield from _lines(branch.body, more)
                yield f"{more}return {', '.join(branch.out)}"
            init = f"[{', '.join(s.init)}]" if s.most is None else f"({', '.join(s.init)},)"  # TensorFlow packs these
            most = "" if s.most is None else f", maximum_iterations={s.most}"
            yield (
                f"{indent}{', '.join(s.names)} = tf.while_loop(test_{at}, body_{at}, {init}, "
                f"parallel_iterations={s.parallel}{most})"
            )
        elif isinstance(s, Call):
            yield f"{indent}def fn_{s.names[0]}({', '.join(s.params)}):"
            yield from _lines(s.body.body, more)
            yield f"{more}return {', '.join(s.body.out)}"
            yield f"{indent}fn_{s.names[0]} = function(fn_{s.names[0]})"
            for name, args in zip(s.names, s.args, strict=True):
                yield f"{indent}{name} = fn_{s.names[0]}({', '.join(args)})"
        else:
            yield f"{indent}def each_{s.name}({', '.join(s.params)}):"
            yield from _lines(s.body.body, more)
            yield f"{more}return {', '.join(s.body.out)}"
            init = f", {s.init}" if s.init else ""
            yield (
                f"{indent}{s.name} = tf.{s.kind}(each_{s.name}, tf.stack([{', '.join(s.elems)}]){init}, "
                f"parallel_iterations={s.parallel})"
            )


def source(p: Program) -> str:
    """The statements of a program, for a `tf` and what `tests.order.running` defines."""
    text = "\n".join(_lines(p.block, ""))
    fed = "".join(f", {name}: {value}" for name, value in p.fed)
    return (
        f"{text}\nfetches = [{', '.join(p.fetches)}]\ntargets = [{', '.join(p.targets)}]\n"
        f"feeds = {{x0: {p.feeds[0]}, x1: {p.feeds[1]}{fed}}}\n"
    )


def defined(block: Sequence[Statement]) -> list[str]:
    """The names that statements define for those after them."""
    out: list[str] = []
    for s in block:
        if isinstance(s, (Line, Each, Case)):
            out.append(s.name)
        elif isinstance(s, With):
            out += defined(s.body)
        else:
            out += s.names
    return out


def all_defined(block: Block) -> list[str]:
    """The names that statements define, inside branches and bodies too."""
    out = []
    for s in block:
        if isinstance(s, With):
            out += all_defined(s.body)
        else:
            out += defined([s])
            if isinstance(s, Cond):
                out += all_defined(s.yes.body) + all_defined(s.no.body)
            elif isinstance(s, Case):
                for branch in s.branches:
                    out += all_defined(branch.body)
            elif isinstance(s, Loop):
                out += all_defined(s.test.body) + all_defined(s.body.body)
            elif isinstance(s, (Each, Call)):
                out += all_defined(s.body.body)
    return out
