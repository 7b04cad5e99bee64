"""Makes random programs of `tests.order.programs`.

A resource (a variable, a queue) is mostly used after a control edge from its last use, so that what happens is
determined; the edge comes from an operation, a tensor behind it, a result of a structure or a loop variable.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from tests.order.programs import (
    COUNTERS,
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
    defined,
)

PARALLEL = (1, 2, 10)


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
        fed: tuple[tuple[str, float], ...] = ()
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
            own = set(defined(statements))
            deps += [d for d in self._deps(scope, r.choice([1, 1, 2])) if d not in own]
        last = defined(statements)[-1:]
        for k in touched:
            scope.chain[k] = last[0]
        scope.touched |= touched
        deps = [d for d in dict.fromkeys(deps) if d not in set(defined(statements))]
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
        if kind < 0.05:
            return self._case(scope, depth)
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

    def _case(self, scope: _Scope, depth: int) -> tuple[list[Statement], set[str]]:
        preds = [self._less(scope) for _ in range(2)]
        inners = [_Scope(scope) for _ in range(3)]
        blocks = [self._block(inner, depth, 2) for inner in inners]
        touched = set().union(*(inner.touched for inner in inners))
        with_token = self.random.random() < 0.8
        branches = []
        for inner, block in zip(inners, blocks, strict=True):
            out = self._result(inner, block)
            if with_token and touched:
                out = self._token(inner, block, touched) or out
            branches.append(Branch(tuple(block), (out,)))
        name = self._name("f")
        scope.floats.append(name)
        return [Case(name, tuple(preds), tuple(branches))], touched

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
        inner.chain = dict.fromkeys(("v", "w", "queue out", "queue in"), token)
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
        most = r.randrange(3) if r.random() < 0.15 else None
        test_branch, body_branch = Branch(tuple(test), (pred,)), Branch(tuple(block), tuple(out))
        parallel = r.choice(PARALLEL)
        loop = Loop(tuple(names), tuple(params), tuple(init), test_branch, body_branch, parallel, most)
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
        calls = (
            1 if "random" in inner.touched else r.choice([1, 1, 2])
        )  # a random operation has one stream, not one a call
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


def generate(seed: int, functions: bool = False) -> Program:
    return Generator(random.Random(f"order {seed}"), functions).program()
