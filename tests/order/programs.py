"""Random programs whose effects are ordered by control edges alone, as data and as source.

A program is a block of statements over scalars of float64. Effects (assignments, scatter updates, counts, prints,
Python calls, queues, random numbers) stand on inputs, captured tensors, loop variables and unread results, in
branches, conditions, bodies and functional loops, and are reached through `control_dependencies`, `group`, `tuple`,
`identity`, `with_dependencies`, gradients, and results of structures. `source` makes the text that `tests.order.running`
executes with headrace, TensorFlow, or the reference.
"""

from __future__ import annotations

import dataclasses
import random
import re
from collections.abc import Iterator, Sequence
from typing import TypeAlias

PARALLEL = (1, 2, 10)
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
class Loop:
    """`test` is the condition, whose one result is its expression."""

    names: tuple[str, ...]
    params: tuple[str, ...]
    init: tuple[str, ...]
    test: Branch
    body: Branch
    parallel: int


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


Statement: TypeAlias = "Line | With | Cond | Loop | Each | Call"
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
        elif isinstance(s, Loop):
            at = s.names[0]
            for name, branch in ((f"test_{at}", s.test), (f"body_{at}", s.body)):
                yield f"{indent}def {name}({', '.join(s.params)}):"
                yield from _lines(branch.body, more)
                yield f"{more}return {', '.join(branch.out)}"
            init = ", ".join(s.init)
            yield (
                f"{indent}{', '.join(s.names)} = tf.while_loop(test_{at}, body_{at}, [{init}], "
                f"parallel_iterations={s.parallel})"
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


# *** at random ***


class _Scope:
    """The names that statements may use.

    Attributes:
      floats, ops: tensors, and operations without results.
      chain: of each resource what to wait for before its next use.
    """

    def __init__(self, outer: _Scope | None = None, in_loop: bool = False) -> None:
        self.floats = list(outer.floats) if outer else []
        self.ops = list(outer.ops) if outer and not in_loop else []
        self.chain = dict(outer.chain) if outer else {}
        self.in_loop = in_loop or (outer is not None and outer.in_loop)
        self.touched: set[str] = set()


class Generator:
    """Makes random programs.

    Args:
      rng: decides.
      functions: whether functions may be called.
    """

    def __init__(self, rng: random.Random, functions: bool = False) -> None:
        self.random = rng
        self.ids = 0
        self.functions = functions
        self.differentiated: list[str] = []
        self.left = rng.choice([4, 8, 14, 20])  # of structures and effects

    def _name(self, letter: str) -> str:
        self.ids += 1
        return f"{letter}{self.ids}"

    def program(self) -> Program:
        r = self.random
        scope = _Scope()
        scope.floats = ["x0", "x1"]
        block: list[Statement] = []
        depth = r.choice([1, 2, 2, 3])
        while self.left > 0:
            block += self._statement(scope, depth)
        floats = [f for f in scope.floats if f not in ("x0", "x1")]
        if floats and r.random() < 0.3:
            y, g = r.choice(floats[-4:]), self._name("f")
            block.append(Line(g, f"gradient({y}, x0)"))
            scope.floats.append(g)
            self.differentiated.append(y)
            self.left = r.choice([0, 1])
            while self.left > 0:
                block += self._statement(scope, 1)
        floats = [f for f in scope.floats if f not in ("x0", "x1")]
        fetches = [*self.differentiated, *self._some(floats, r.choice([0, 0, 1, 2]))]
        targets = [f"{f}.op" for f in self._some(floats, r.choice([0, 1, 1]))]
        targets += self._some(scope.ops, r.choice([0, 1, 1]))
        if r.random() < 0.3 and floats:
            targets = [f"tf.group({', '.join([*self._some(floats, 1), *targets])})"]
        if not fetches and not targets:
            fetches = self._some([*floats, "x0"], 1)
        feeds = (float(r.randrange(5)), float(r.randrange(5)))
        fed = ()
        if not self.differentiated and r.random() < 0.15:
            fed = tuple((f, float(r.randrange(9))) for f in self._some(floats, 1))
        return Program(tuple(block), tuple(dict.fromkeys(fetches)), tuple(targets), feeds, r.choice([1, 1, 2]), fed)

    def _some(self, names: Sequence[str], n: int) -> list[str]:
        """Up to `n` names, mostly of the last ones."""
        if not names:
            return []
        r = self.random
        return list(
            dict.fromkeys(
                names[-1 - min(len(names) - 1, int(r.expovariate(0.4)))] if r.random() < 0.8 else r.choice(names)
                for _ in range(n)
            )
        )

    def _float(self, scope: _Scope) -> str:
        return self._some(scope.floats, 1)[0]

    def _deps(self, scope: _Scope, n: int) -> list[str]:
        return self._some([*scope.floats[2:], *scope.ops], n) or self._some(scope.floats, 1)

    # *** statements ***

    def _statement(self, scope: _Scope, depth: int) -> list[Statement]:
        """A statement, perhaps with others that it needs."""
        r = self.random
        kind = r.random()
        if depth and self.left > 1 and kind < 0.28:
            self.left -= 2
            return self._wrapped(scope, self._structure(scope, depth - 1))
        if kind < 0.75:
            self.left -= 1
            return self._wrapped(scope, self._effect(scope))
        self.left -= 0 if r.random() < 0.7 else 1
        return self._wrapped(scope, self._pure(scope))

    def _wrapped(self, scope: _Scope, made: tuple[list[Statement], set[str]]) -> list[Statement]:
        """Statements under the control dependencies that their resources need, and others at random."""
        r = self.random
        statements, touched = made
        deps = [scope.chain[k] for k in sorted(touched) if k in scope.chain and r.random() < 0.93]
        if r.random() < 0.35:
            own = set(_defined(statements))
            deps += [d for d in self._deps(scope, r.choice([1, 1, 2])) if d not in own]
        last = _defined(statements)[-1:]
        for k in touched:
            scope.chain[k] = last[0]
        scope.touched |= touched
        deps = [d for d in dict.fromkeys(deps) if d not in set(_defined(statements))]
        return [With(tuple(deps), tuple(statements))] if deps else statements

    def _pure(self, scope: _Scope) -> tuple[list[Statement], set[str]]:
        r = self.random
        kind = r.choice(
            ["add", "mod", "identity", "identity", "constant", "stop", "with", "with", "group", "group", "tuple"]
        )
        a, b = self._float(scope), self._float(scope)
        if kind == "group":
            o = self._name("o")
            text = f"tf.group({', '.join(self._deps(scope, r.choice([1, 2])))})"
            scope.ops.append(o)
            return [Line(o, text)], set()
        f = self._name("f")
        deps = ", ".join(self._deps(scope, r.choice([1, 2])))
        text = {
            "add": f"{a} + {b}",
            "mod": f"tf.floormod({a} * {b} + {r.randrange(9)}.0, 97.0)",
            "identity": f"tf.identity({a})",
            "constant": f"tf.constant({r.randrange(9)}.0, tf.float64)",
            "stop": f"tf.stop_gradient({a})",
            "with": f"with_dependencies([{deps}], {a})",
            "tuple": f"tuple_of({a}, [{deps}])",
        }[kind]
        scope.floats.append(f)
        return [Line(f, text)], set()

    def _effect(self, scope: _Scope) -> tuple[list[Statement], set[str]]:
        r = self.random
        x = self._float(scope)
        kinds = {
            "count": 3, "assign": 2, "add": 2, "read": 3, "unread": 1, "update": 1, "rows": 1, "call": 2, "calls": 2,
            "show": 1, "draw": 1, "enqueue": 1, "dequeue": 1,
        }  # fmt: skip
        kind = r.choices([*kinds], [*kinds.values()])[0]
        self.ids += 1
        k = self.ids
        ops = {
            "count": (f"count({k % COUNTERS})", None),
            "assign": (f"v.assign({x}, read_value=False)", "v"),
            "add": (f"v.assign_add({x}, read_value=False)", "v"),
            "update": (f"update(w, {k % 3}, {x})", "w"),
            "calls": (f"calls({k}, {x})", None),
            "enqueue": (f"enqueue({x})", "queue out"),
        }
        tensors = {
            "read": ("v.read_value()", "v"),
            "unread": (f"tf.identity(v.assign_add({x}))", "v"),
            "rows": ("tf.reduce_sum(w.read_value())", "w"),
            "call": (f"call({k}, {x})", None),
            "show": (f"show({k}, {x})", None),
            "draw": (f"draw({k % 5})", "random"),
            "dequeue": ("dequeue()", "queue in"),
        }
        if kind in ops:
            name, (text, resource) = self._name("o"), ops[kind]
            scope.ops.append(name)
        else:
            name, (text, resource) = self._name("f"), tensors[kind]
            scope.floats.append(name)
        return [Line(name, text)], {resource} if resource else set()

    # *** structures ***

    def _block(self, scope: _Scope, depth: int, most: int) -> list[Statement]:
        out: list[Statement] = []
        for _ in range(self.random.randint(0, most)):
            if self.left > 0 or self.random.random() < 0.5:
                out += self._statement(scope, depth)
        return out

    def _token(self, scope: _Scope, block: list[Statement], resources: set[str]) -> str | None:
        """A tensor that is there when the last uses of `resources` are done."""
        last = list(dict.fromkeys(scope.chain[k] for k in sorted(resources) if k in scope.chain))
        if not last:
            return None
        f = self._name("f")
        block.append(With(tuple(last), (Line(f, f"tf.identity({self._float(scope)})"),)))
        scope.floats.append(f)
        return f

    def _result(self, scope: _Scope, block: list[Statement]) -> str:
        r = self.random
        kind = r.random()
        if kind < 0.2:
            f = self._name("f")
            block.append(Line(f, f"tf.constant({r.randrange(9)}.0, tf.float64)"))
            return f
        return self._float(scope)

    def _structure(self, scope: _Scope, depth: int) -> tuple[list[Statement], set[str]]:
        r = self.random
        if self.functions and r.random() < 0.2:
            return self._call(scope, depth)
        kind = r.random()
        if kind < 0.45:
            return self._cond(scope, depth)
        if kind < 0.85:
            return self._loop(scope, depth)
        return self._each(scope, depth)

    def _less(self, scope: _Scope) -> str:
        return f"{self._float(scope)} < {self.random.randrange(6)}.0"

    def _cond(self, scope: _Scope, depth: int) -> tuple[list[Statement], set[str]]:
        r = self.random
        n = r.choice([1, 1, 2, 3])
        pred = self._less(scope)
        branches, touched, scopes = [], set(), []
        if r.random() < 0.12:
            return self._cond_of_operations(scope, depth, pred)
        for _ in range(2):
            inner = _Scope(scope)
            block = self._block(inner, depth, 3)
            scopes.append((inner, block))
            touched |= inner.touched
        with_token = bool(touched) and r.random() < 0.8
        for inner, block in scopes:
            out = [self._result(inner, block) for _ in range(n)]
            if with_token:
                out[-1] = self._token(inner, block, touched) or out[-1]
            branches.append(Branch(tuple(block), tuple(out)))
        names = [self._name("f") for _ in range(n)]
        scope.floats += names
        return [Cond(tuple(names), pred, *branches)], touched

    def _cond_of_operations(self, scope: _Scope, depth: int, pred: str) -> tuple[list[Statement], set[str]]:
        """A conditional whose branches return operations; its result is waited for like one."""
        touched: set[str] = set()
        branches = []
        for _ in range(2):
            inner = _Scope(scope)
            block = self._block(inner, depth, 3)
            touched |= inner.touched
            o = self._name("o")
            deps = self._deps(inner, self.random.choice([1, 2])) if self.random.random() < 0.8 else []
            block.append(Line(o, f"tf.group({', '.join(deps)})" if deps else "tf.no_op()"))
            branches.append(Branch(tuple(block), (o,)))
        name = self._name("o")
        scope.ops.append(name)
        return [Cond((name,), pred, *branches)], touched

    def _inside(self, scope: _Scope, params: Sequence[str]) -> _Scope:
        """The scope of a condition or body: resources wait for a loop variable."""
        inner = _Scope(scope, in_loop=True)
        inner.floats += params
        inner.chain = {}
        token = params[-1]
        inner.chain = {k: token for k in ("v", "w", "queue out", "queue in")}
        return inner

    def _loop(self, scope: _Scope, depth: int) -> tuple[list[Statement], set[str]]:
        r = self.random
        n = r.choice([1, 2, 2, 3])
        params = [self._name("p") for _ in range(n)]
        init = ["tf.constant(0.0, tf.float64)"] + [self._float(scope) for _ in range(n - 1)]
        trips = str(r.randrange(4)) + ".0" if r.random() < 0.7 else f"tf.floormod({r.choice(['x0', 'x1'])}, 4.0)"
        test, tested = [], self._inside(scope, params)
        if r.random() < 0.15:
            test = self._block(tested, 0, 2)
        pred = f"{params[0]} < {trips}"
        if tested.touched or (test and r.random() < 0.5):
            names = [*tested.chain.values()] if tested.touched else self._deps(tested, 1)
            t = self._name("f")
            deps = tuple(dict.fromkeys(names))
            test.append(With(deps, (Line(t, f"tf.identity({params[0]})"),)))
            pred = f"{t} < {trips}"
        inner = self._inside(scope, params)
        block = self._block(inner, depth, 4)
        one = self._name("f")
        block.append(Line(one, f"{params[0]} + 1.0"))
        out = [one] + [p if r.random() < 0.3 else self._result(inner, block) for p in params[1:]]
        touched = inner.touched | tested.touched
        if touched and r.random() < 0.85:
            at = r.choice([0, n - 1, n - 1])
            last = list(dict.fromkeys(inner.chain[k] for k in sorted(touched) if k in inner.chain))
            if last:
                f = self._name("f")
                block.append(With(tuple(last), (Line(f, f"tf.identity({out[at]})"),)))
                out[at] = f
        names = [self._name("f") for _ in range(n)]
        scope.floats += names
        loop = Loop(
            tuple(names), tuple(params), tuple(init), Branch(tuple(test), (pred,)), Branch(tuple(block), tuple(out)),
            r.choice(PARALLEL),
        )  # fmt: skip
        return [loop], touched

    def _call(self, scope: _Scope, depth: int) -> tuple[list[Statement], set[str]]:
        r = self.random
        params = [self._name("p") for _ in range(r.choice([1, 2]))]
        inner = _Scope(scope)
        inner.floats += params
        block = self._block(inner, depth, 3)
        out = self._result(inner, block)
        if inner.touched and r.random() < 0.5:
            out = self._token(inner, block, inner.touched) or out
        calls = 1 if "random" in inner.touched else r.choice([1, 1, 2])  # a random operation has one stream, not one a call
        names = [self._name("f") for _ in range(calls)]
        args = tuple(tuple(self._float(scope) for _ in params) for _ in names)
        scope.floats += names
        return [Call(tuple(names), tuple(params), args, Branch(tuple(block), (out,)))], inner.touched

    def _each(self, scope: _Scope, depth: int) -> tuple[list[Statement], set[str]]:
        r = self.random
        kind = r.choice(["map_fn", "scan", "foldl"])
        params = [self._name("p") for _ in range(1 if kind == "map_fn" else 2)]
        inner = self._inside(scope, params)
        if kind != "map_fn":
            inner.chain = dict.fromkeys(inner.chain, params[0])
        block = self._block(inner, depth, 2)
        out = self._result(inner, block)
        if inner.touched and r.random() < 0.85:
            out = self._token(inner, block, inner.touched) or out
        f = self._name("f")
        name = self._name("s") if kind != "foldl" else f
        elems = tuple(self._float(scope) for _ in range(r.choice([1, 2, 3])))
        init = "" if kind == "map_fn" else self._float(scope)
        each = Each(name, kind, tuple(params), elems, init, Branch(tuple(block), (out,)), r.choice(PARALLEL))
        scope.floats.append(f)
        made: list[Statement] = [each]
        if kind != "foldl":
            made.append(Line(f, f"tf.reduce_sum({name})"))
        return made, inner.touched


def _defined(block: Sequence[Statement]) -> list[str]:
    out: list[str] = []
    for s in block:
        if isinstance(s, (Line, Each)):
            out.append(s.name)
        elif isinstance(s, With):
            out += _defined(s.body)
        else:
            out += s.names
    return out


def generate(seed: int, functions: bool = False) -> Program:
    return Generator(random.Random(f"order {seed}"), functions).program()


# *** reduction ***


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
        elif isinstance(s, Loop):
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
                    out = s.body.out[:k] + (s.params[k],) + s.body.out[k + 1 :]
                    yield (*rest[0], dataclasses.replace(s, body=Branch(s.body.body, out)), *rest[1])
        elif isinstance(s, Call):
            for body in _shorter(s.body.body):
                yield (*rest[0], dataclasses.replace(s, body=Branch(body, s.body.out)), *rest[1])
            for k in range(1, len(s.names)):
                yield (*rest[0], dataclasses.replace(s, names=_without(s.names, k), args=s.args[:k] + s.args[k + 1 :]), *rest[1])
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
    for name in _defined(p.block):  # another tensor in its place
        if name[0] == "f":
            yield _renamed(p, name, "x0")
    text = source(p)
    for name in _all_defined(p.block):
        if len(re.findall(rf"\b{name}\b", text)) > 1 and name[0] == "f":
            yield _renamed(p, name, "x0", uses=True)


def _all_defined(block: Block) -> list[str]:
    out = []
    for s in block:
        if isinstance(s, With):
            out += _all_defined(s.body)
        else:
            out += _defined([s])
            if isinstance(s, Cond):
                out += _all_defined(s.yes.body) + _all_defined(s.no.body)
            elif isinstance(s, Loop):
                out += _all_defined(s.test.body) + _all_defined(s.body.body)
            elif isinstance(s, (Each, Call)):
                out += _all_defined(s.body.body)
    return out


def _renamed(p: Program, name: str, other: str, uses: bool = False) -> Program:
    """Every use of `name` becomes one of `other`; its definition goes, unless it has other results."""

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
            elif isinstance(s, Loop):
                if s.names != (name,) or uses:
                    out.append(Loop(s.names, s.params, names(s.init), branch(s.test), branch(s.body), s.parallel))
            elif isinstance(s, Call):
                if s.names != (name,) or uses:
                    out.append(Call(s.names, s.params, tuple(map(names, s.args)), branch(s.body)))
            elif s.name != name or uses:
                out.append(
                    Each(s.name, s.kind, s.params, names(s.elems), text(s.init) if s.init else "", branch(s.body), s.parallel)
                )
        return tuple(out)

    return Program(
        block(p.block), tuple(dict.fromkeys(names(p.fetches))), names(p.targets), p.feeds, p.steps,
        tuple((text(f), x) for f, x in p.fed if text(f) != "x0"),
    )
