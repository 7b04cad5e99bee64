"""Forward mode: rules of all op records, tangents of programs with conditionals, loops and calls."""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import headrace as hr
from headrace import dtypes
from headrace.dtypes import DType
from headrace.errors import GraphError, UnimplementedError
from headrace.grad import sums
from headrace.grad.backward import backward
from headrace.grad.forward import forward
from headrace.ir.builder import Builder
from headrace.ir.graph import FuncGraph, Graph, Tensor
from headrace.ir.opdef import Case, Missing, NotDifferentiable, OpDef, op_registry
from tests.ops.cases import cases, dtype_of, evaluate, first_types, flat, is_inexact, make, placeholder, records

# *** the rules of the records ***

STEP = 1e-6
MOST_CASES = 3  # of one op and dtype
# Inputs by which there is no derivative, in reverse mode neither.
UNDERIVED = {"Betainc": {0, 1}, "Polygamma": {0}, "Zeta": {0}}
# Inputs that are compared with each other, so that moving one of them alone changes what the op does.
UNDERIVED |= {"MaxPoolGradGrad": {0, 1}, "MaxPoolGradGradV2": {0, 1}}
# Labels, the sum of which stays 1: only then is the derivative by the logits what TensorFlow takes it for.
UNDERIVED |= {"SoftmaxCrossEntropyWithLogits": {1}}
# Ops that say what the derivative is against the values; functions of a complex number that have none.
AGAINST = {"StopGradient", "PreventGradient"} | {f"QuantizeAndDequantize{v}" for v in ("", "V2", "V3", "V4")}
NOT_HOLOMORPHIC = {"EuclideanNorm", "Sign", "SquaredDifference"}

DERIVED = [
    (r.type, d)
    for r in records()
    if r.sample is not None and r.is_pure and not isinstance(r.grad, (NotDifferentiable, Missing))
    for d in first_types(r)
    if d in (dtypes.float64, dtypes.complex128) and cases(r.type, d)
    if r.type not in AGAINST and not (d.is_complex and r.type in NOT_HOLOMORPHIC)
]


def smooth(case: Case) -> bool:
    """Whether a case has numbers to differentiate by, all finite and none 0.

    Functions have their kinks at 0.
    """
    numbers = [x for x in flat(case.inputs) if x.dtype.kind in "fc"]
    return bool(numbers) and all(np.isfinite(x).all() and (x != 0).all() for x in numbers)


def inner(us: Sequence[Any], vs: Sequence[Any]) -> float:
    """Σ Re(conj(u)·v)."""
    return float(sum(np.sum(np.real(np.conj(u) * v)) for u, v in zip(us, vs, strict=True)))


def random_like(rng: np.random.Generator, x: Any) -> np.ndarray:
    out = rng.uniform(-1, 1, np.shape(x))
    return np.asarray(out + 1j * rng.uniform(-1, 1, np.shape(x)) if np.iscomplexobj(x) else out)


def check_rule(record: OpDef, case: Case, static: bool, rng: np.random.Generator) -> None:
    """Checks the tangents of an op by central differences and by its gradient rule, transposed.

    With `static`, shapes are known and integer inputs constants; else nothing is known while the graph is built.
    """
    b = Builder(Graph())
    fed: dict[Any, Any] = {}
    inputs = []
    for x in flat(case.inputs):
        if static and x.dtype.kind not in "fc":
            inputs.append(b.const(x, dtype_of(x)))
            continue
        inputs.append(placeholder(b, x, x.shape if static else None))
        fed[inputs[-1]] = x
    op = make(b, record, case, inputs)
    if any(is_inexact(t) and t.dtype not in (dtypes.float64, dtypes.complex128) for t in op.outputs):
        return  # too coarse for differences
    xs = [t for i, t in enumerate(inputs) if is_inexact(t) and i not in UNDERIVED.get(record.type, ())]
    ys = [t for t in op.outputs if is_inexact(t)]
    values = evaluate(ys, fed)
    if not all(np.isfinite(v).all() for v in values):
        return  # the mean of nothing, say
    directions = [random_like(rng, fed[x]) for x in xs]
    weights = [random_like(rng, v) * (np.abs(v) < 1e100) for v in values]  # the largest of nothing is huge
    dxs = [placeholder(b, v, v.shape if static else None) for v in directions]
    us = [placeholder(b, w, w.shape if static else None) for w in weights]
    fed |= dict(zip(dxs, directions, strict=True)) | dict(zip(us, weights, strict=True))

    moved = [{x: fed[x] + s * STEP * v for x, v in zip(xs, directions, strict=True)} for s in (1, -1)]
    ahead, behind = (evaluate(ys, fed | m) for m in moved)
    numeric = inner(weights, [(a - c) / (2 * STEP) for a, c in zip(ahead, behind, strict=True)])
    try:
        grads = [None if g is None else sums.dense(b, g) for g in backward(b, ys, us, xs)]
        dys = forward(b, xs, dxs, ys)
    except LookupError:
        assert not static
        return  # the rule says that there is no derivative where nothing is known
    there = [(dy, w) for dy, w in zip(dys, weights, strict=True) if dy is not None]
    got = evaluate([dy for dy, _ in there], fed)
    assert [np.shape(v) for v in got] == [w.shape for _, w in there]
    exact = inner([w for _, w in there], got)
    if np.isnan(exact) and any(np.size(fed[x]) == 0 for x in xs):
        return  # 0 / 0: the norm of nothing
    assert abs(exact - numeric) < 2e-5 * max(1.0, abs(exact), abs(numeric)), f"{exact}, by differences {numeric}"

    # along each input by itself, which is what the rules for "no tangent" are for
    for i, dx in enumerate(dxs):
        alone = [dx if i == k else None for k in range(len(xs))]
        moves = [(dy, w) for dy, w in zip(forward(b, xs, alone, ys), weights, strict=True) if dy is not None]
        grad = grads[i]
        back = 0.0 if grad is None else inner(evaluate([grad], fed), [directions[i]])
        one = inner([w for _, w in moves], evaluate([dy for dy, _ in moves], fed))
        assert abs(one - back) < 1e-9 * max(1.0, abs(one)), f"{one}, but {back} by the gradient rule, for input {i}"

    # second derivatives: the tangents of the gradients are the gradients of the tangents
    if not static or not all(np.size(fed[x]) for x in xs):
        return
    try:
        known = [(x, g) for x, g in zip(xs, grads, strict=True) if g is not None]
        tangents = forward(b, xs, dxs, [g for _, g in known])
        slopes = backward(b, [dy for dy, _ in there], [u for u, dy in zip(us, dys, strict=True) if dy is not None], xs)
    except LookupError:
        return  # a rule says that it has no derivative itself
    slope = dict(zip(xs, slopes, strict=True))
    for (t, _), tangent in zip(known, tangents, strict=True):
        pair = [None if v is None else sums.dense(b, v) for v in (tangent, slope[t])]
        first, second = (np.zeros(()) if v is None else evaluate([v], fed)[0] for v in pair)
        assert np.allclose(first, second, rtol=1e-7, atol=1e-9), f"second derivatives by {t.name}: {first}, {second}"


@pytest.mark.matrix
@pytest.mark.parametrize(("type", "dtype"), DERIVED, ids=[f"{t}-{d}" for t, d in DERIVED])
def test_tangents_are_right_and_the_transpose_of_gradients(type: str, dtype: DType) -> None:
    record, rng = op_registry.get(type), np.random.default_rng(5)
    found = list(filter(smooth, cases(type, dtype)))
    for case in found[:: -(-len(found) // MOST_CASES) or 1]:
        with np.errstate(all="ignore"):
            check_rule(record, case, True, rng)
            check_rule(record, case, False, rng)


# *** programs ***

X = np.array([0.3, 0.7, 1.1])
V = np.array([1.0, -2.0, 0.5])


def nested(x: Any) -> Any:
    def body(i: Any, h: Any) -> Any:
        def inner(j: Any, k: Any) -> Any:
            return j + 1, hr.cond(k[0] > 0.1, lambda: hr.tanh(k) * x + h, lambda: k * h)

        return i + 1, hr.while_loop(lambda j, k: j < i, inner, (0, h))[1]

    return hr.while_loop(lambda i, h: i < 4, body, (0, x))[1]


def powers(x: Any) -> Any:
    array = hr.TensorArray(hr.float64, 4, element_shape=(3,))
    _, array, last = hr.while_loop(
        lambda i, array, h: i < 4, lambda i, array, h: (i + 1, array.write(i, h * h), hr.sin(h * x)), (0, array, x)
    )
    return array.stack() * hr.exp(last)


def longer(x: Any) -> Any:
    """The variable's shape changes from one iteration to the next."""
    return hr.while_loop(
        lambda i, h: i < 3,
        lambda i, h: (i + 1, hr.concat([h * h, x * h[:1]], 0)),
        (0, x),
        shape_invariants=((), (None,)),
    )[1]


def unused(x: Any) -> Any:
    """Loop variables without tangents, without consumers or swapped; a loop constant that is returned."""

    def body(i: Any, a: Any, c: Any, d: Any, n: Any) -> Any:
        return i + 1, c, hr.sin(a) * n, hr.cast(i, hr.float64) * d, n

    out = hr.while_loop(lambda i, *rest: i < 5, body, (0, x, 2.0 * x, hr.constant(1.5, hr.float64), x * x))
    return out[1] + out[4]


def called(x: Any) -> Any:
    f = hr.Function(lambda a, c: (hr.sin(a) * c, c + 1.0), name="f")
    a, c = f(x, x * x)
    return f(c, a)[0]


def recursive(x: Any) -> Any:
    f = hr.Function(
        lambda n, a: hr.cond(n < 1, lambda: a * a, lambda: hr.sin(f(n - 1, a * 1.5)) * a),
        results=hr.TensorSpec(x.shape, hr.float64),
        name="f",
    )
    return f(3, x)


def gathered(x: Any) -> Any:
    """Rows looked up in a loop: their gradients are sparse."""
    table = hr.reshape(hr.concat([x, x * x], 0), [3, 2])
    return hr.while_loop(
        lambda i, h: i < 4, lambda i, h: (i + 1, hr.sin(h) + hr.reduce_sum(hr.gather(table, [i % 3, 1]) ** 2)), (0, x)
    )[1]


def counted(x: Any) -> Any:
    body = FuncGraph("body", x.graph, captures_from_outer=False)
    kinds = ((hr.int32, ()), (hr.float64, (3,)), (hr.float64, (3,)))
    i, y, w = (body.add_param(d, s, f"p{k}") for k, (d, s) in enumerate(kinds))
    b = Builder(body)
    body.results = [b.AddV2(b.Mul(b.Sin(y), w), b.Cast(i, DstT=hr.float64)), w]
    return Builder(x.graph).For(0, 3, 1, [x, x * 2.0], body=body)[0]


def symbolic(x: Any) -> Any:
    f = FuncGraph("f", x.graph, captures_from_outer=False)
    b, a = Builder(f), f.add_param(hr.float64, (3,), "a")
    f.results = [b.Mul(b.Sin(a), b.Square(a))]
    return Builder(x.graph).SymbolicGradient([x, x * x], Tout=(hr.float64,), f=f)


def computed_again(x: Any) -> Any:
    w = x * 2.0
    found = hr.recompute_grad(lambda a: (hr.sin(a) * w, hr.tanh(a)))(x)
    return found[0] * found[1]


@hr.custom_gradient
def sine(x: Any) -> Any:
    return hr.sin(x), lambda dy: dy * hr.cos(x)


PROGRAMS: dict[str, Callable[[Any], Any]] = {
    "straight": lambda x: hr.reduce_sum(hr.sin(x) * x / (1 + x * x)) + hr.reduce_max(x * x),
    "cond": lambda x: hr.cond(x[0] > 0, lambda: hr.reduce_sum(hr.sin(x)), lambda: x[1]),
    "one branch without": lambda x: hr.cond(x[0] < 0, lambda: hr.sin(x), lambda: hr.ones_like(x)) * x,
    "case": lambda x: hr.switch_case(1, [lambda: x, lambda: hr.exp(x) * x, lambda: hr.ones_like(x)]),
    "loop": lambda x: hr.while_loop(lambda i, h: i < 4, lambda i, h: (i + 1, hr.sin(h) * x), (0, x))[1],
    "no trip": lambda x: hr.while_loop(lambda i, h: i < 0, lambda i, h: (i + 1, hr.sin(h) * x), (0, x * x))[1],
    "data-dependent": lambda x: hr.while_loop(lambda h: h[0] < 5.0, lambda h: (h * (1.0 + x),), (x,))[0],
    "nested": nested,
    "array": powers,
    "growing shape": longer,
    "odd variables": unused,
    "map": lambda x: hr.map_fn(lambda a: a * a * hr.exp(a), x),
    "scan": lambda x: hr.scan(lambda s, a: hr.tanh(s * a) + a, x),
    "call": called,
    "recursion": recursive,
    "gather in a loop": gathered,
    "For": counted,
    "SymbolicGradient": symbolic,
    "computed again": computed_again,
    "checkpoints": lambda x: hr.while_loop(
        lambda i, h: i < 7, lambda i, h: (i + 1, hr.sin(h) * x), (0, x), save=hr.recompute(every=3)
    )[1],
    "custom gradient in a loop": lambda x: hr.while_loop(
        lambda i, h: i < 3, lambda i, h: (i + 1, sine(h * x) * hr.stop_gradient(hr.ones_like(h))), (0, x)
    )[1],
    "own gradient": lambda x: hr.grad(lambda a: hr.reduce_sum(powers(a)))(x) * x,
}


class Derivatives:
    """A program as a graph, and derivatives by differences."""

    def __init__(self, f: Callable[[Any], Any], shape: Any = (3,), is_imported: bool = False) -> None:
        self.graph = hr.Graph()
        with self.graph:
            self.x, self.v = (hr.placeholder(hr.float64, shape) for _ in range(2))
            self.y = f(self.x)
        if is_imported:
            written, names = self.graph.as_graph_def(), [t.name for t in (self.x, self.v, self.y)]
            self.graph = hr.Graph()
            with self.graph:
                found: Any = hr.import_graph_def(written, return_elements=names, name="")
                self.x, self.v, self.y = found
        self.b = Builder(self.graph)
        self.session = hr.Session(graph=self.graph)

    def run(self, t: Any, at: float = 0.0) -> Any:
        return self.session.run(t, {self.x: X + at * V, self.v: V})

    def along(self, y: Tensor) -> Tensor:
        (dy,) = forward(self.b, [self.x], [self.v], [y])
        assert dy is not None
        return dy

    def back(self, y: Tensor) -> Tensor:
        (g,) = backward(self.b, [y], [self.b.OnesLike(y)], [self.x])
        assert g is not None
        return sums.dense(self.b, g)

    def check(self, of: Tensor, *claims: Tensor) -> None:
        numeric = (self.run(of, STEP) - self.run(of, -STEP)) / (2 * STEP)
        for claim in claims:
            assert np.allclose(self.run(claim), numeric, rtol=1e-5, atol=1e-6)


@pytest.mark.matrix
@pytest.mark.parametrize("name", PROGRAMS)
def test_tangents_of_programs(name: str) -> None:
    """To order 2: along x twice; of gradients; gradients of them."""
    d = Derivatives(PROGRAMS[name])
    first = d.along(d.y)
    d.check(d.y, first)
    d.check(first, d.along(first))
    gradient = d.back(d.y)
    d.check(gradient, d.along(gradient), d.back(first))


# The gradient function of a custom gradient holds tensors of the graph in which it was made.
IMPORTED = [name for name in PROGRAMS if name != "custom gradient in a loop"]


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("way", "name"), [*(("unknown shape", name) for name in PROGRAMS), *(("imported", name) for name in IMPORTED)]
)
def test_tangents_where_less_is_known(way: str, name: str) -> None:
    """Checks tangents of tensors of unknown size and of imported graphs with library functions."""
    d = Derivatives(PROGRAMS[name], (None,) if way == "unknown shape" else (3,), way == "imported")
    d.check(d.y, d.along(d.y))
    gradient = d.back(d.y)
    d.check(gradient, d.along(gradient))


def test_a_custom_gradient_of_an_imported_loop_is_refused() -> None:
    d = Derivatives(PROGRAMS["custom gradient in a loop"], is_imported=True)
    gc.collect()  # the graph with the gradient function is gone, as in another process
    with pytest.raises(LookupError, match=r"of a custom_gradient.* is not saved in a file"):
        d.along(d.y)


@pytest.mark.matrix
def test_third_order() -> None:
    d = Derivatives(nested)
    second = d.back(d.along(d.y))
    d.check(second, d.along(second), d.along(d.along(d.back(d.y))))


def test_complex_numbers() -> None:
    def f(x: Any) -> Any:
        z = hr.complex(x, 2.0 * x)
        z = hr.while_loop(lambda i, z: i < 3, lambda i, z: (i + 1, z * hr.exp(z) / 3.0), (0, z))[1]
        return hr.real(z * hr.conj(z)) + hr.abs(z) + hr.imag(z)

    d = Derivatives(f)
    first = d.along(d.y)
    d.check(d.y, first)
    d.check(d.back(d.y), d.along(d.back(d.y)), d.back(first))


@pytest.mark.parametrize("dtype", [hr.float16, hr.bfloat16, hr.float32])
def test_tangents_have_the_dtype_of_their_tensors(dtype: DType) -> None:
    with hr.Graph() as g:
        x = hr.constant([0.5, 1.0], dtype)
        y = hr.while_loop(lambda i, h: i < 3, lambda i, h: (i + 1, hr.tanh(h * x)), (0, x))[1]
        (dy,) = forward(Builder(g), [x], [hr.ones_like(x)], [y])
    assert dy is not None
    assert dy.dtype is dtype
    with hr.Session(graph=g) as session:
        assert np.all(np.isfinite(session.run(dy).astype(float)))


def test_a_loop_s_tangent_keeps_nothing() -> None:
    d = Derivatives(PROGRAMS["loop"])
    loop = d.y.op
    before = len(loop.inputs)
    dy = d.along(d.y)
    assert dy.op is loop
    assert len(loop.inputs) == before + 2  # of h, and of x, a loop constant
    assert not [t for t in loop.inputs if t.dtype is dtypes.variant]


def test_what_is_not_asked_for_gets_no_tangents() -> None:
    with hr.Graph() as g:
        x = hr.placeholder(hr.float64, ())
        a = hr.while_loop(lambda i, a, c: i < 3, lambda i, a, c: (i + 1, hr.sin(a), a * c), (0, x, x))[1]
        b = Builder(g)
        before = len(a.op.inputs)
        assert forward(b, [x], [b.OnesLike(x)], [a])[0] is not None
        assert len(a.op.inputs) == before + 1
        assert forward(b, [x], [b.OnesLike(x)], [hr.constant(1.0)]) == [None]
        assert forward(b, [x], [None], [a]) == [None]
        assert forward(b, [x], [b.OnesLike(x)], [hr.cast(a, hr.int32), hr.stop_gradient(a)]) == [None, None]


def test_xs_on_the_way_of_one_another() -> None:
    with hr.Graph() as g:
        x = hr.constant(0.5, hr.float64)
        y = hr.sin(x)
        b = Builder(g)
        (dz,) = forward(b, [x, y], [b.OnesLike(x), b.const(10.0, dtypes.float64)], [y * y])
        (dx,) = forward(b, [x, x], [b.OnesLike(x), b.OnesLike(x)], [y])
    with hr.Session(graph=g) as session:
        assert np.allclose(session.run(dz), 2 * np.sin(0.5) * (np.cos(0.5) + 10))
        assert np.allclose(session.run(dx), 2 * np.cos(0.5))


def test_the_handle_of_a_variable() -> None:
    with hr.Graph() as g:
        v = hr.Variable([0.5, 1.5], dtype=hr.float64)
        y = hr.while_loop(lambda i, h: i < 3, lambda i, h: (i + 1, h * v), (0, hr.ones([2], hr.float64)))[1]
        rows = hr.gather(v, [1, 0])
        handle = next(op.outputs[0] for op in g.operations if op.type == "VarHandleOp")
        tangents = forward(Builder(g), [handle], [hr.constant([1.0, 2.0], hr.float64)], [y, rows])
    with hr.Session(graph=g) as session:
        session.run(v.initializer)
        dy, drows = session.run(tangents)
        assert np.allclose(dy, 3 * np.square([0.5, 1.5]) * [1, 2])
        assert drows.tolist() == [2.0, 1.0]


def test_effects_happen_once(capfd: pytest.CaptureFixture[str]) -> None:
    with hr.Graph() as g:
        x = hr.constant(2.0)

        def body(i: Any, h: Any) -> Any:
            hr.print("trip", i)
            return i + 1, h * x

        y = hr.while_loop(lambda i, h: i < 2, body, (0, x))[1]
        (dy,) = forward(Builder(g), [x], [hr.constant(1.0)], [y])
    with hr.Session(graph=g) as session:
        assert session.run([y, dy]) == [8.0, 12.0]
    assert "".join(capfd.readouterr()).count("trip") == 2


# *** directions that depend on what is differentiated ***


SELF_DIRECTED: dict[str, Callable[[Any], Any]] = {
    name: PROGRAMS[name] for name in ("cond", "loop", "nested", "array", "call", "recursion")
}


@pytest.mark.parametrize("name", SELF_DIRECTED)
def test_a_direction_that_depends_on_the_result(name: str) -> None:
    d = Derivatives(SELF_DIRECTED[name])
    with d.graph:
        v = d.v * hr.reduce_sum(hr.sin(d.y))
        scale = hr.reduce_sum(hr.sin(d.y))
    (dy,) = forward(d.b, [d.x], [v], [d.y])
    numeric = (d.run(d.y, STEP) - d.run(d.y, -STEP)) / (2 * STEP)
    assert np.allclose(d.run(dy), d.run(scale) * numeric, rtol=1e-5)


def test_a_copy_of_a_loop_prints_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    with hr.Graph() as g:
        x = hr.constant(2.0)

        def body(i: Any, h: Any) -> Any:
            hr.print("trip", i)
            return i + 1, h * x

        y = hr.while_loop(lambda i, h: i < 2, body, (0, x))[1]
        (dy,) = forward(Builder(g), [x], [y], [y])
    with hr.Session(graph=g) as session:
        assert session.run([y, dy]) == [8.0, 96.0]
    assert "".join(capfd.readouterr()).count("trip") == 2


def test_a_direction_that_depends_on_a_loop_with_effects() -> None:
    with hr.Graph() as g:
        x = hr.constant(2.0)
        v = hr.Variable(1.0)

        def body(i: Any, h: Any) -> Any:
            v.assign_add(1.0)
            return i + 1, h * x

        y = hr.while_loop(lambda i, h: i < 2, body, (0, x))[1]
        with pytest.raises(
            UnimplementedError, match=r"no tangents .* would have to run twice, and .*Assign.*another result"
        ):
            forward(Builder(g), [x], [y], [y])


# *** where tangents come from a gradient rule ***


def test_custom_gradients_give_tangents() -> None:
    @hr.custom_gradient
    def tripled(x: Any) -> Any:
        return hr.sin(x), lambda dy: dy * 3.0 * hr.cos(x)

    with hr.Graph() as g:
        x = hr.placeholder(hr.float32, None)  # not even the rank is known
        y = tripled(x)
        (dy,) = forward(Builder(g), [x], [hr.ones_like(x)], [y])
    with hr.Session(graph=g) as session:
        assert np.allclose(session.run(dy, {x: [0.0, 1.0]}), 3 * np.cos([0.0, 1.0]))


def test_a_gradient_that_is_not_linear_gives_none() -> None:
    @hr.custom_gradient
    def clipped(x: Any) -> Any:
        return hr.sin(x), lambda dy: dy * hr.tanh(dy)

    with hr.Graph() as g:
        x = hr.constant([0.5, 1.5])
        y = clipped(x)
        with pytest.raises(LookupError, match=r"test_forward.py.* has no tangent .*not linear.*Use reverse mode"):
            forward(Builder(g), [x], [hr.ones_like(x)], [y])


def test_overridden_gradients_give_tangents() -> None:
    name = "HalfOfTangents"
    hr.RegisterGradient(name)(lambda op, dy: dy * 0.5)
    with hr.Graph() as g:
        x = hr.constant([0.5, 1.5])
        y = Builder(g, gradients={"Sin": name}).Sin(x)
        (dy,) = forward(Builder(g), [x], [hr.ones_like(x)], [y])
    with hr.Session(graph=g) as session:
        assert session.run(dy).tolist() == [0.5, 0.5]


# *** refusals ***


def test_what_has_no_derivative_says_so() -> None:
    with hr.Graph() as g:
        x = hr.constant([0.5, 1.5, 0.5])
        b = Builder(g)
        unique = b.Unique(x)[0]
        with pytest.raises(LookupError, match=r"'Unique' \(Unique, made at .*test_forward.*\) has no gradient"):
            forward(b, [x], [hr.ones_like(x)], [unique])
        handle, flow = b.TensorArrayV3(3, dtype=dtypes.float32)
        written = b.TensorArrayWriteV3(handle, 0, x, flow)
        with pytest.raises(LookupError, match=r"TensorArrayWriteV3.* has no tangent .*hr\.TensorArray"):
            forward(b, [x], [hr.ones_like(x)], [b.TensorArrayReadV3(handle, 0, written, dtype=dtypes.float32)])


@pytest.mark.parametrize("dx", [np.ones(3), np.ones(2, np.float32)])
def test_tangents_that_do_not_fit(dx: np.ndarray) -> None:
    with hr.Graph() as g:
        x = hr.constant([0.5, 1.5, 0.5])
        with pytest.raises(GraphError, match=r"the tangent of 'Const:0'.* must be float32\[3\]"):
            forward(Builder(g), [x], [Builder(g).const(dx, dtype_of(dx))], [hr.sin(x)])


def test_lists_have_tangents_of_zeros_where_nothing_flows() -> None:
    with hr.Graph() as g:
        x = hr.constant([[1.0, 2.0], [3.0, 4.0]])
        b = Builder(g)
        items = b.TensorListFromTensor(x * x, [2])
        fixed = b.TensorListPushBack(b.EmptyTensorList([2], -1, element_dtype=dtypes.float32), [5.0, 6.0])
        both = b.TensorListConcatLists(items, fixed, element_dtype=dtypes.float32)
        pushed = b.TensorListPushBack(fixed, x[0])
        rest, last = b.TensorListPopBack(both, [2], element_dtype=dtypes.float32)
        ys = [b.TensorListStack(t, [2], element_dtype=dtypes.float32) for t in (both, pushed, rest)]
        tangents = forward(b, [x], [b.OnesLike(x)], [*ys, last])
    with hr.Session(graph=g) as session:
        a, c, d, e = session.run(tangents)
    assert a.tolist() == [[2.0, 4.0], [6.0, 8.0], [0.0, 0.0]]
    assert c.tolist() == [[0.0, 0.0], [1.0, 1.0]]
    assert d.tolist() == a.tolist()[:2]
    assert e.tolist() == [0.0, 0.0]


# *** directions of a graph inside ***


@pytest.mark.matrix
@pytest.mark.parametrize("name", PROGRAMS)
def test_jacobians_by_a_loop_over_directions(name: str) -> None:
    with hr.Graph() as g:
        x = hr.placeholder(hr.float64, (3,))
        y = PROGRAMS[name](x)
        found = hr.jacobian(y, x, mode="fwd"), hr.jacobian(y, x, mode="rev")
    with hr.Session(graph=g) as session:
        forth, back = session.run(found, {x: X})
    assert np.allclose(forth, back, rtol=1e-9, atol=1e-9)
