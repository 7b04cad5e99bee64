"""Random smooth programs with conditionals, loops, calls, arrays and gradients in them, and their graphs.

A program is a block of statements over named values: integers (`a`, `b`; `k`, the number of the iteration), scalars
(`p`, `q`), vectors (`u`, `v`), a matrix (`m`), a vector that grows (`g`), a list of vectors (`s`), one of vectors of
different lengths (`r`); and over what no program changes, `c`, `w`, `W`, the rows of `T` and of a variable `V`.
Programs are data: statements are dataclasses, expressions nested tuples, `("mul", "p", ("sum", "u"))`.

`Build` makes a graph of a program; `exact.Plain` evaluates it in plain Python, with its derivatives.
"""

from __future__ import annotations

import dataclasses
import operator
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

import headrace as hr

f64 = hr.float64
N = 3  # of a vector
LENGTH = 5  # the growing vector stays as short as this
SLOTS = 4  # of a list, and the rows of a table
TRIPS = 4  # loops run fewer iterations
DEEP = 3  # recursive functions go less deep
MODULUS = 1009
INTS, SCALARS, VECTORS, MATRICES, GROWING, LISTS, RAGGED = ("a", "b"), ("p", "q"), ("u", "v"), ("m",), "g", "s", "r"
CONSTANTS = ("c", "w", "W", "T", "V")
SHAPES: dict[str, tuple[int, ...]] = {
    **dict.fromkeys(SCALARS, ()),
    **dict.fromkeys(VECTORS, (N,)),
    **dict.fromkeys(MATRICES, (N, N)),
    "g": (2,),
    "c": (),
    "w": (N,),
    "W": (N, N),
    "T": (SLOTS, N),
    "V": (SLOTS, N),
}  # of what a program is differentiated by


# *** programs ***

Expr: TypeAlias = "str | float | int | tuple[Any, ...]"  # a name, a number, ("what", *arguments)


@dataclasses.dataclass(frozen=True)
class Assign:
    name: str
    value: Expr


@dataclasses.dataclass(frozen=True)
class Append:
    """Puts a scalar at the end of the growing vector, which is cut to `LENGTH`."""

    value: Expr


@dataclasses.dataclass(frozen=True)
class Write:
    """Sets an element of a list, at an index modulo its length."""

    name: str
    index: Expr
    value: Expr


@dataclasses.dataclass(frozen=True)
class If:
    """`yes` if the scalar `x` is below `than`, else `no`."""

    x: Expr
    than: float
    yes: Block
    no: Block


@dataclasses.dataclass(frozen=True)
class Case:
    index: Expr
    branches: tuple[Block, ...]


@dataclasses.dataclass(frozen=True)
class While:
    """Runs `trips` modulo `TRIPS` iterations, or as long as a scalar is below a number.

    `also` are variables of the loop that it does not change; `save` is the argument of `while_loop` (a number or
    "sqrt": of `recompute`).
    """

    trips: Expr
    below: tuple[Expr, float] | None
    body: Block
    also: tuple[str, ...] = ()
    save: str | int = "all"


@dataclasses.dataclass(frozen=True)
class Call:
    """Assigns a function of an integer and a vector to the vector `name`.

    The integer is the depth to which the function may recurse.
    """

    name: str
    function: str
    depth: Expr
    value: Expr


@dataclasses.dataclass(frozen=True)
class Slope:
    """Assigns to the vector `name` the gradient of the scalar `of` by the vector `by`.

    `of` is evaluated after `block`, and `by` is the value before it.

    Changes by `block` are discarded.
    """

    name: str
    by: str
    block: Block
    of: Expr


Statement: TypeAlias = "Assign | Append | Write | If | Case | While | Call | Slope"
Block: TypeAlias = "tuple[Statement, ...]"


@dataclasses.dataclass(frozen=True)
class Program:
    """
    Attributes:
      block: the statements of the program.
      functions: name → body. A body has the values `a`, `u` and `CONSTANTS`, and gives `u`.
      ends: the values whose sum is the result.
    """

    block: Block
    functions: Mapping[str, Block]
    ends: tuple[str, ...]


def inner(s: Statement) -> tuple[Block, ...]:
    """The blocks in a statement."""
    if isinstance(s, If):
        return s.yes, s.no
    if isinstance(s, Case):
        return s.branches
    if isinstance(s, While):
        return (s.body,)
    return (s.block,) if isinstance(s, Slope) else ()


def statements(program: Program) -> Iterator[Statement]:
    def within(block: Block) -> Iterator[Statement]:
        for s in block:
            yield s
            for b in inner(s):
                yield from within(b)

    for block in (program.block, *program.functions.values()):
        yield from within(block)


def assigned(block: Block) -> set[str]:
    """The values that `block` may change."""
    out: set[str] = set()
    for s in block:
        if isinstance(s, Append):
            out.add(GROWING)
        elif isinstance(s, (Assign, Write, Call, Slope)):
            out.add(s.name)
        if not isinstance(s, Slope):
            for b in inner(s):
                out |= assigned(b)
    return out


class Generator:
    """Makes random programs.

    Args:
      rng: where the randomness comes from.
      most: how many statements a block has at most.
    """

    def __init__(self, rng: random.Random, most: int = 3) -> None:
        self.random = rng
        self.most = most
        self.small = False  # whether only the values of a function's body are there
        self.functions: dict[str, Block] = {}

    def program(self, depth: int = 3) -> Program:
        for name in ("f", "h")[: self.random.randint(0, 2)]:
            self.functions[name] = self.function(name)
        block = self.block(depth, self.most)
        while not any(inner(s) for s in block):
            block += self.block(depth, self.most)
        values = (*SCALARS, *VECTORS, *MATRICES, GROWING, LISTS, RAGGED)
        ends = tuple(sorted(self.random.sample(values, self.random.randint(1, 4))))
        return Program(block, dict(self.functions), ends)

    def function(self, name: str) -> Block:
        """The body of a function; half of them call themselves, once or twice."""
        self.small = True
        if self.random.random() < 0.5:
            body = self.block(1, 2)
        else:
            calls = [
                Call(self.pick("uv"), name, ("plus", "a", -1), self.expr(1, 1)) for _ in range(self.pick((1, 1, 2)))
            ]
            yes = (*self.block(1, 2), *calls, *self.block(0, 1), Assign("u", self.damped("u", self.expr(1, 2))))
            body = (If(("sub", 0.5, ("float", "a")), 0.0, yes, self.block(0, 2)),)
        self.small = False
        return (Assign("v", ("sin", ("add", "u", "w"))), Assign("p", ("mul", "c", ("sum", "u"))), *body)

    def block(self, depth: int, most: int) -> Block:
        return tuple(self.statement(depth) for _ in range(self.random.randint(1, most)))

    def pick(self, options: Sequence[Any]) -> Any:
        return self.random.choice(options)

    def statement(self, depth: int) -> Statement:
        r, small = self.random, self.small
        if depth and r.random() < 0.5:
            kind = r.choice(["if", "if", "case", "while", "while", "while", "slope"])
            if kind == "if":
                return If(self.expr(0, 1), self.number(), self.block(depth - 1, 2), self.block(depth - 1, 2))
            if kind == "case":
                return Case(self.integer(), tuple(self.block(depth - 1, 2) for _ in range(r.randint(1, 3))))
            if kind == "slope":
                return Slope(self.pick(VECTORS), self.pick(VECTORS), self.block(depth - 1, 2), self.expr(0, 2))
            trips = self.pick([0, 1, 2, 3, 3]) if r.random() < 0.6 else self.integer()
            below = (self.expr(0, 1), self.number()) if r.random() < 0.3 else None
            names = (*VECTORS, *SCALARS[:1]) if small else (*INTS, *VECTORS, *SCALARS, *MATRICES, GROWING, LISTS)
            also = tuple(r.sample(names, r.randint(0, 2)))
            save = self.pick(["all"] * 7 + [1, 2, "sqrt", "auto"])
            return While(trips, below, self.block(depth - 1, self.most), also, save)
        kinds = ["scalar", "vector", "vector"]
        if not small:
            kinds += ["integer", "scalar", "vector", "matrix", "matrix", "append", "growing", "write", "write ragged"]
            kinds += ["call", "call"] if self.functions else []
        kind = r.choice(kinds)
        if kind == "integer":
            return Assign(self.pick(INTS), self.integer())
        if kind == "append":
            return Append(self.expr(0, 1))
        if kind == "growing":
            return Assign(GROWING, self.growing())
        if kind == "write":
            return Write(LISTS, self.integer(), self.expr(1, 1))
        if kind == "write ragged":
            return Write(RAGGED, self.integer(), self.growing())
        if kind == "call":
            depth_of = ("mod", self.integer(), DEEP)
            return Call(self.pick(VECTORS), self.pick(list(self.functions)), depth_of, self.expr(1, 1))
        rank = ("scalar", "vector", "matrix").index(kind)
        name = self.pick(self.names(rank))
        return Assign(name, self.damped(name, self.expr(rank, 2)))

    def names(self, rank: int) -> tuple[str, ...]:
        if self.small:
            return (("p",), VECTORS, ())[rank]
        return (SCALARS, VECTORS, MATRICES)[rank]

    def damped(self, name: str, e: Expr) -> Expr:
        """Something of `e` that stays small however often it is done."""
        how = self.random.random()
        if how < 0.4:
            return (self.pick(["tanh", "sin"]), e)
        if how < 0.7:
            return ("add", ("mul", 0.6, name), ("mul", 0.4, ("sin", e)))
        return ("mul", 0.8, ("tame", e))

    def number(self) -> float:
        return round(self.random.uniform(-1.0, 1.5), 4)

    def expr(self, rank: int, depth: int) -> Expr:
        """An expression for a scalar, a vector or a matrix."""
        r = self.random
        if not depth or r.random() < 0.25:
            return r.choice([*self.names(rank), *self.names(rank), ("c", "w", "W")[rank]])
        kind = r.random()
        if kind < 0.25:
            return (self.pick(["sin", "cos", "tanh", "tame"]), self.expr(rank, depth - 1))
        if kind < 0.5:
            return (self.pick(["add", "sub", "mul", "mul"]), self.expr(rank, depth - 1), self.expr(rank, depth - 1))
        if rank == 0:
            options: list[Callable[[], Expr]] = [
                lambda: ("sum", self.expr(1, depth - 1)),
                lambda: ("sum", ("mul", self.expr(1, depth - 1), self.expr(1, 0))),
                lambda: ("at", self.expr(1, depth - 1), ("mod", self.integer(), N)),
                lambda: ("mul", 0.1, ("float", ("mod", self.integer(), 10))),
            ]
            if not self.small:
                options += [lambda: ("sum", GROWING), lambda: ("mean", self.expr(2, depth - 1))]
        elif rank == 1:
            options = [
                lambda: ("mul", self.expr(0, depth - 1), self.expr(1, depth - 1)),
                lambda: ("matvec", self.expr(2, depth - 1) if self.names(2) else "W", self.expr(1, depth - 1)),
                lambda: ("row", self.pick("TV"), ("mod", self.integer(), SLOTS)),
                lambda: ("softmax", self.expr(1, depth - 1)),
            ]
            if not self.small:
                options += [
                    lambda: ("read", LISTS, self.integer()),
                    lambda: ("sum0", self.expr(2, depth - 1)),
                    lambda: ("sum0", ("rows", self.pick("TV"), ("mod", self.integer(), SLOTS))),
                ]
        else:
            options = [
                lambda: ("mul", 0.5, ("matmul", self.expr(2, depth - 1), self.expr(2, depth - 1))),
                lambda: ("outer", self.expr(1, depth - 1), self.expr(1, depth - 1)),
                lambda: ("transpose", self.expr(2, depth - 1)),
                lambda: ("mul", self.expr(1, depth - 1), self.expr(2, depth - 1)),
            ]
        return r.choice(options)()

    def growing(self) -> Expr:
        return self.pick(
            [
                ("sin", GROWING),
                ("mul", GROWING, self.expr(0, 1)),
                ("tanh", ("add", GROWING, ("mul", GROWING, self.expr(0, 1)))),
                ("head", GROWING, self.integer()),
                ("head", self.expr(1, 1), ("mod", self.integer(), N)),
                ("tanh", ("read", RAGGED, self.integer())),
            ]
        )

    def integer(self) -> Expr:
        r = self.random
        kind = r.random()
        if kind < 0.2:
            return r.randint(0, 5)
        names = ("a", "k") if self.small else (*INTS, "k", "k")
        if kind < 0.6:
            return r.choice(names)
        if kind < 0.8:
            return (r.choice(["plus", "minus", "times"]), r.choice(names), r.choice([*names, 1, 2]))
        if kind < 0.9 and not self.small:
            return ("length", GROWING)
        return ("floor", self.expr(0, 1))


def initial(r: random.Random) -> tuple[dict[str, int], dict[str, np.ndarray]]:
    """The values that a program starts with: integers, and what it is differentiated by."""
    rng = np.random.default_rng(r.randrange(2**32))
    ints = {n: r.randint(0, 5) for n in INTS}
    return ints, {n: rng.uniform(-1.2, 1.2, shape) for n, shape in SHAPES.items()}


def direction(r: random.Random) -> dict[str, np.ndarray]:
    """A random direction in which a program's values may change."""
    rng = np.random.default_rng(r.randrange(2**32))
    return {n: rng.normal(size=shape) for n, shape in SHAPES.items()}


# *** evaluation ***


class Evaluator:
    """Base of the evaluators in Python and in graphs."""

    ops: Any
    values: dict[str, Any]

    def run(self, block: Block) -> None:
        for s in block:
            getattr(self, f"do_{type(s).__name__.lower()}")(s)

    def do_assign(self, s: Assign) -> None:
        value = self.value(s.value)
        self.values[s.name] = value

    def value(self, e: Expr) -> Any:
        ops = self.ops
        if isinstance(e, str):
            return self.values[e]
        if isinstance(e, float):
            return ops.scalar(e)
        if isinstance(e, int):
            return e
        what, *args = e
        if what == "read":
            return self.read(args[0], self.value(args[1]) % SLOTS)
        x, *more = map(self.value, args)
        if what in _BINARY:
            return _BINARY[what](x, *more)
        if what in _INTEGER:
            return _INTEGER[what](x, *more) % MODULUS
        if what == "mod":
            return x % more[0]
        if what == "head":  # the first few elements, at least one
            return x[: 1 + more[0] % ops.length(x)]
        if what == "outer":
            return x[:, None] * more[0][None, :]
        if what == "tame":
            return x * ops.reciprocal(x * x + 1.0)
        if what == "softmax":
            y = ops.exp(ops.sin(x))
            return y * ops.reciprocal(ops.sum(y))
        return getattr(ops, what)(x, *more)

    def read(self, name: str, index: Any) -> Any:
        raise NotImplementedError

    def end(self, name: str) -> Any:
        """The sum of something of a value at the end."""
        if name == LISTS:
            return sum(self.ops.sum(self.ops.sin(self.read(name, i)) * (1.0 + i)) for i in range(SLOTS))
        if name == RAGGED:
            return sum(self.ops.sum(self.ops.sin(self.read(name, i)) * (2.0 + i)) for i in range(SLOTS))
        return self.ops.sum(self.ops.sin(self.values[name]))

    def loss(self, program: Program) -> Any:
        return sum((i + 1.0) * self.end(n) for i, n in enumerate(program.ends))


_BINARY: dict[str, Callable[..., Any]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
}
_INTEGER: dict[str, Callable[..., Any]] = {
    "plus": operator.add,
    "minus": operator.sub,
    "times": operator.mul,
}


# *** as graphs ***


class _Tensors:
    """The same on tensors."""

    sin, cos, exp, tanh = hr.sin, hr.cos, hr.exp, hr.tanh
    reciprocal = staticmethod(lambda x: 1.0 / x)
    sum = staticmethod(hr.reduce_sum)
    mean = staticmethod(hr.reduce_mean)
    sum0 = staticmethod(lambda x: hr.reduce_sum(x, 0))
    transpose = staticmethod(lambda x: hr.transpose(x))
    matmul = staticmethod(hr.matmul)
    matvec = staticmethod(lambda m, u: hr.matvec(m, u))
    row = staticmethod(lambda x, i: hr.gather(x, i))
    rows = staticmethod(lambda x, i: hr.gather(x, hr.stack([i, 1, i])))
    at = staticmethod(lambda x, i: x[i])
    float = staticmethod(lambda i: hr.cast(i, f64))
    length = staticmethod(lambda x: hr.shape(x)[0])
    floor = staticmethod(lambda x: hr.cast(hr.floor(x * 4.0 + 0.12345), hr.int32))
    scalar = staticmethod(lambda x: hr.constant(x, f64))


class Build(Evaluator):
    """Makes the graph of a program.

    Args:
      program: the program.
      ints: the integers it starts with.
      inputs: tensors or variables by which it is differentiated.
      parallel: parallel_iterations of its loops.
    """

    ops = _Tensors

    def __init__(
        self, program: Program, ints: Mapping[str, Any], inputs: Mapping[str, Any], parallel: int = 10
    ) -> None:
        self.parallel = parallel
        self.values = {**ints, "k": 0, **inputs}
        table, w = inputs["T"], inputs["w"]
        ta = hr.TensorArray(f64, size=SLOTS, element_shape=(N,), clear_after_read=False)
        self.values[LISTS] = ta.unstack(table)
        ragged = hr.TensorArray(f64, size=SLOTS, infer_shape=False, element_shape=(None,), clear_after_read=False)
        for i in range(SLOTS):
            ragged = ragged.write(i, w[: i % N + 1])
        self.values[RAGGED] = ragged
        spec = hr.TensorSpec((N,), f64)
        self.functions = {
            name: hr.Function(self._body(block), results=spec, name=name) for name, block in program.functions.items()
        }

    def _body(self, block: Block) -> Callable[[Any, Any], Any]:
        def body(a: Any, u: Any) -> Any:
            before = self.values
            self.values = {n: before[n] for n in CONSTANTS} | {"a": a, "u": u, "k": 0}
            self.run(block)
            out, self.values = self.values["u"], before
            return out

        return body

    def read(self, name: str, index: Any) -> Any:
        return self.values[name].read(index)

    def do_append(self, s: Append) -> None:
        longer = hr.concat([self.values[GROWING], hr.reshape(self.value(s.value), [1])], 0)
        self.values[GROWING] = longer[-LENGTH:]

    def do_write(self, s: Write) -> None:
        self.values[s.name] = self.values[s.name].write(self.value(s.index) % SLOTS, self.value(s.value))

    def _branches(self, blocks: Sequence[Block]) -> tuple[list[str], list[Callable[[], Any]]]:
        names = sorted(set().union(*map(assigned, blocks)))
        before = dict(self.values)

        def branch(block: Block) -> Callable[[], Any]:
            def trace() -> Any:
                self.values = dict(before)
                self.run(block)
                out, self.values = [self.values[n] for n in names], dict(before)
                return out

            return trace

        return names, [branch(b) for b in blocks]

    def do_if(self, s: If) -> None:
        names, (yes, no) = self._branches((s.yes, s.no))
        out = hr.cond(self.value(s.x) < s.than, yes, no)
        self.values.update(zip(names, out, strict=True))

    def do_case(self, s: Case) -> None:
        names, branches = self._branches(s.branches)
        index = hr.convert_to_tensor(self.value(s.index) % len(branches))
        out = hr.switch_case(index, branches)
        self.values.update(zip(names, out, strict=True))

    def do_while(self, s: While) -> None:
        names = sorted(assigned(s.body) | set(s.also))
        before = dict(self.values)
        trips = self.value(s.trips) % TRIPS

        def inside(i: Any, state: Sequence[Any]) -> None:
            self.values = before | dict(zip(names, state, strict=True)) | {"k": i}

        def cond(i: Any, state: Sequence[Any]) -> Any:
            inside(i, state)
            more = i < trips
            return more if s.below is None else hr.logical_and(more, self.value(s.below[0]) < s.below[1])

        def body(i: Any, state: Sequence[Any]) -> Any:
            inside(i, state)
            self.run(s.body)
            return i + 1, [self.values[n] for n in names]

        shapes = [before[n] if n in (LISTS, RAGGED) else () if n in INTS else SHAPES[n] for n in names]
        shapes = [
            None if n in (LISTS, RAGGED) else (None,) if n == GROWING else x for n, x in zip(names, shapes, strict=True)
        ]
        save = s.save if s.save in ("all", "auto") else hr.recompute(s.save)
        _, out = hr.while_loop(
            cond,
            body,
            (hr.constant(0), [before[n] for n in names]),
            shape_invariants=((), shapes),
            parallel_iterations=self.parallel,
            save=save,
        )
        self.values = before | dict(zip(names, out, strict=True))

    def do_call(self, s: Call) -> None:
        found = self.functions[s.function](hr.convert_to_tensor(self.value(s.depth), hr.int32), self.value(s.value))
        self.values[s.name] = found

    def do_slope(self, s: Slope) -> None:
        before = dict(self.values)
        x = hr.identity(before[s.by])
        self.values[s.by] = x
        self.run(s.block)
        (dx,) = hr.gradients(hr.identity(self.value(s.of)), x, unconnected="zero")
        self.values = before | {s.name: hr.convert_to_tensor(dx)}


def build(program: Program, ints: Mapping[str, Any], inputs: Mapping[str, Any], parallel: int = 10) -> Any:
    """Result of the program as a tensor."""
    made = Build(program, ints, inputs, parallel)
    made.run(program.block)
    return made.loss(program)
