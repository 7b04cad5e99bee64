"""Optimizers: TensorFlow's numbers after 100 steps.

The numbers are the same in loops, outside of graphs and as functions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import headrace as hr
import headrace.v1 as tf
from headrace import thresholds
from headrace.errors import GraphError, InvalidArgumentError, SignatureError
from headrace.train import optimizers, schedules
from headrace.train.optimizers import Optimizer
from headrace.v1 import optimizers as v1

MAKE: dict[str, Callable[[], Optimizer]] = {
    "GradientDescent": lambda: optimizers.SGD(0.1),
    "Momentum": lambda: optimizers.Momentum(0.1, 0.9),
    "Nesterov": lambda: optimizers.Momentum(0.1, 0.9, use_nesterov=True),
    "Adagrad": lambda: optimizers.Adagrad(0.1),
    "AdagradDA": lambda: optimizers.AdagradDA(0.1, None, 0.1, 0.01, 0.02),
    "Adadelta": lambda: optimizers.Adadelta(1.0),
    "RMSProp": lambda: optimizers.RMSProp(0.01, momentum=0.5),
    "CenteredRMSProp": lambda: optimizers.RMSProp(0.01, momentum=0.5, centered=True),
    "Adam": lambda: optimizers.Adam(0.1),
    "Ftrl": lambda: optimizers.Ftrl(0.1, l1_regularization_strength=0.01, l2_regularization_strength=0.02),
    "FtrlV2": lambda: optimizers.Ftrl(
        0.1, l1_regularization_strength=0.01, l2_shrinkage_regularization_strength=0.03, beta=0.1
    ),
    "ProximalGradientDescent": lambda: optimizers.ProximalGradientDescent(0.1, 0.01, 0.02),
    "ProximalAdagrad": lambda: optimizers.ProximalAdagrad(0.1, 0.1, 0.01, 0.02),
    "AdaMax": lambda: optimizers.AdaMax(0.1),
    "AdamW": lambda: optimizers.AdamW(0.1, weight_decay=0.02),
    "Lamb": lambda: optimizers.Lamb(0.1),
}

# Variables after 100 steps, recorded from TensorFlow 2.21 in float32: its `tf.compat.v1.train` optimizers of these
# arguments, and what is written in `gradient`, `rows` and `START`.
RECORDED: dict[tuple[str, bool], list[float]] = {
    ("GradientDescent", False): [0.375661731, -0.261074424, 1.22497702, 0.832329988, -1.52053332, -0.118946448],
    ("GradientDescent", True): [0.563986063, -0.309104353, 1.02574134, 0.760504305, -1.50962067, 0.000909432769],
    ("Momentum", False): [0.11440099, 0.266934752, 2.87743449, 0.218342096, -1.86694622, -0.122724451],
    ("Momentum", True): [0.714641631, -0.147578269, 1.76198924, 0.223249629, -1.31015587, 0.261889637],
    ("Nesterov", False): [0.0286226869, 0.204166979, 2.91466856, 0.353837878, -1.85078359, -0.229398519],
    ("Nesterov", True): [0.757163823, -0.216924995, 1.71153069, 0.286428988, -1.33876169, 0.236610115],
    ("Adagrad", False): [0.418642253, -0.163695484, 1.13427126, 0.746139646, -1.60221493, -0.060489513],
    ("Adagrad", True): [0.568599105, -0.31314525, 1.10101175, 0.709958673, -1.50690114, 0.0290774163],
    ("AdagradDA", False): [-0.00332502299, -0.0, 0.00867989566, 0.0, -0.0, -0.0025909103],
    ("AdagradDA", True): [0.0, -0.0, 0.0, 0.0, -0.0, 0.0],
    ("Adadelta", False): [0.499374568, -0.250268131, 1.00056267, 0.750578463, -1.50052047, -0.000638327561],
    ("Adadelta", True): [0.501216471, -0.250922829, 1.00052738, 0.749708235, -1.50060999, -0.000231127109],
    ("RMSProp", False): [0.489373595, -0.26607421, 1.02777362, 0.758547306, -1.48399591, -0.0106742689],
    ("RMSProp", True): [0.542678595, -0.247958452, 1.02519548, 0.738089919, -1.49442494, -0.00373593811],
    ("CenteredRMSProp", False): [0.489068568, -0.265798032, 1.03149843, 0.757798195, -1.48396313, -0.0106712803],
    ("CenteredRMSProp", True): [0.542152405, -0.245139554, 1.02620149, 0.738559902, -1.49367607, -0.00372783979],
    ("Adam", False): [0.219370157, 0.0371983647, 1.4390043, 0.725799203, -2.04565954, -0.203817785],
    ("Adam", True): [0.706995547, -0.446600586, 1.27568245, 0.548556209, -1.54208922, 0.271741033],
    ("Ftrl", False): [0.265944749, 0.0657028407, 0.950067878, 0.443013072, -0.226053521, -0.059383817],
    ("Ftrl", True): [0.323601454, -0.150976941, 0.844644308, 0.178833991, -0.180618927, 0.026987249],
    ("FtrlV2", False): [0.209045261, 0.0404303037, 0.83558476, 0.336650223, -0.0995066538, -0.0476801135],
    ("FtrlV2", True): [0.223732769, -0.102876492, 0.727639973, 0.117588185, -0.111080624, 0.0164068583],
    ("ProximalGradientDescent", False): [0.203692958, -0.137095109, 0.91242671, 0.616154253, -1.15054929, -0.104580648],
    ("ProximalGradientDescent", True): [0.378858089, -0.175957516, 0.829118252, 0.612365425, -1.383255, -0.0115118092],
    ("ProximalAdagrad", False): [0.373296916, -0.0980582833, 1.09347308, 0.68159765, -1.29093182, -0.0372121632],
    ("ProximalAdagrad", True): [0.483022809, -0.26208654, 1.06165314, 0.647672117, -1.44458258, 0.000898651022],
}
# The same of Keras 3, whose optimizers these are, in float64. The hyperparameters are such as float32 has, too: Keras
# rounds some of them to it.
RECORDED_OF_KERAS: dict[str, list[float]] = {
    "AdaMax": [0.219088427862, -0.0633661600306, 1.44034426346, 0.773812947989, -2.01778383521, -0.215412235338],
    "AdamW": [0.127594993264, 0.041040502247, 1.00314014816, 0.495039512943, -1.42588763713, -0.154798400773],
    "Lamb": [1.44313289917, 0.33961026769, 0.343895631485, -0.138899449489, -1.40596164191, 0.977819089614],
}
OF_KERAS: dict[str, Callable[[], Optimizer]] = {
    "AdaMax": lambda: optimizers.AdaMax(0.125, 0.875, 1 - 2**-10, 2**-20),
    "AdamW": lambda: optimizers.AdamW(0.125, 2**-5, 0.875, 1 - 2**-10, 2**-20),
    "Lamb": lambda: optimizers.Lamb(0.125, 0.875, 1 - 2**-10, 2**-20),
}
START = np.array([[0.5, -0.25], [1.0, 0.75], [-1.5, 0.0]])
STEPS = 100


def gradient(k: int) -> np.ndarray:
    return (np.cos(0.7 * k + 1.3 * np.arange(6)) * np.array([1, 0.5, 2, 1, 0.3, 1])).reshape(3, 2)


def rows(k: int) -> np.ndarray:
    """The rows of a sparse gradient: some come twice, some not at all."""
    return np.array([k % 3, k * k % 3, 0], np.int32)


def trained(opt: Optimizer, dtype: str = "float32", sparse: bool = False, steps: int = STEPS) -> dict[str, np.ndarray]:
    """The variable and its slots after steps by operations of a graph."""
    with hr.Graph() as g:
        w = hr.Variable(START.astype(dtype), name="w")
        grad, at = hr.placeholder(dtype, (3, 2)), hr.placeholder(hr.int32, (3,))
        given = hr.IndexedSlices(grad, at, hr.constant([3, 2])) if sparse else grad
        step = opt.apply_gradients([(given, w)])
        init = hr.variables_initializer(g.variables)
    with hr.Session(graph=g) as session:
        session.run(init)
        for k in range(steps):
            session.run(step, {grad: gradient(k).astype(dtype), at: rows(k)})
        kept = {"w": w} | {name: opt.get_slot(w, name) for name in opt.get_slot_names()}
        return dict(zip(kept, session.run(list(kept.values())), strict=True))


def assert_close(got: Any, want: Any, limit: float) -> None:
    got, want = np.asarray(got, np.float64), np.asarray(want, np.float64)
    assert np.max(np.abs(got - want) / np.maximum(1, np.abs(want))) <= limit


# *** numbers ***


@pytest.mark.parametrize(("name", "sparse"), RECORDED)
def test_a_hundred_steps_are_those_of_tensorflow(name: str, sparse: bool) -> None:
    got = trained(MAKE[name](), sparse=sparse)["w"]
    assert got.dtype == np.float32
    assert_close(got.ravel(), RECORDED[name, sparse], 1e-6)


@pytest.mark.parametrize("name", RECORDED_OF_KERAS)
def test_a_hundred_steps_are_those_of_keras(name: str) -> None:
    assert_close(trained(OF_KERAS[name](), "float64")["w"].ravel(), RECORDED_OF_KERAS[name], 1e-10)


def whole(k: int, sparse: bool) -> tuple[np.ndarray, np.ndarray]:
    """A gradient with all rows, and which rows it has."""
    if not sparse:
        return gradient(k), np.ones(3, bool)
    out = np.zeros((3, 2))
    np.add.at(out, rows(k), gradient(k))
    return out, np.isin(np.arange(3), rows(k))


def by_momentum(sparse: bool) -> dict[str, np.ndarray]:
    w, m = START.copy(), np.zeros((3, 2))
    for k in range(STEPS):
        g, there = whole(k, sparse)
        m[there] = 0.9 * m[there] + g[there]
        w[there] -= 0.1 * m[there]
    return {"w": w, "momentum": m}


def by_rms_prop(sparse: bool) -> dict[str, np.ndarray]:
    w, rms, mom = START.copy(), np.ones((3, 2)), np.zeros((3, 2))
    for k in range(STEPS):
        g, there = whole(k, sparse)
        rms[there] = 0.9 * rms[there] + 0.1 * g[there] ** 2
        mom[there] = 0.5 * mom[there] + 0.01 * g[there] / np.sqrt(rms[there] + 1e-10)
        w[there] -= mom[there]
    return {"w": w, "rms": rms, "momentum": mom}


def by_adam(sparse: bool, decay: float = 0.0) -> dict[str, np.ndarray]:
    w, m, v = START.copy(), np.zeros((3, 2)), np.zeros((3, 2))
    for k in range(STEPS):
        g, _ = whole(k, sparse)
        w *= 1 - 0.1 * decay
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g**2
        t = k + 1
        w -= 0.1 * np.sqrt(1 - 0.999**t) / (1 - 0.9**t) * m / (np.sqrt(v) + 1e-8)
    return {"w": w, "m": m, "v": v}


def by_ada_max(sparse: bool) -> dict[str, np.ndarray]:
    w, m, v = START.copy(), np.zeros((3, 2)), np.zeros((3, 2))
    for k in range(STEPS):
        g, there = whole(k, sparse)
        m[there] = 0.9 * m[there] + 0.1 * g[there]
        v[there] = np.maximum(0.999 * v[there], np.abs(g[there]))
        w[there] -= 0.1 / (1 - 0.9 ** (k + 1)) * m[there] / (v[there] + 1e-8)
    return {"w": w, "m": m, "v": v}


def by_lamb(sparse: bool, decay: float = 0.01) -> dict[str, np.ndarray]:
    w, m, v = START.copy(), np.zeros((3, 2)), np.zeros((3, 2))
    for k in range(STEPS):
        g, _ = whole(k, sparse)
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g**2
        t = k + 1
        u = m / (1 - 0.9**t) / (np.sqrt(v / (1 - 0.999**t)) + 1e-6) + decay * w
        w = w - 0.1 * np.linalg.norm(w) / np.linalg.norm(u) * u
    return {"w": w, "m": m, "v": v}


DEFINED: dict[str, tuple[Callable[[], Optimizer], Callable[[bool], dict[str, np.ndarray]]]] = {
    "Momentum": (MAKE["Momentum"], by_momentum),
    "RMSProp": (MAKE["RMSProp"], by_rms_prop),
    "Adam": (MAKE["Adam"], by_adam),
    "AdamW": (MAKE["AdamW"], lambda sparse: by_adam(sparse, 0.02)),
    "AdaMax": (MAKE["AdaMax"], by_ada_max),
    "Lamb": (lambda: optimizers.Lamb(0.1, weight_decay=0.01), by_lamb),
}


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("name", DEFINED)
def test_a_hundred_steps_are_those_of_the_definition(name: str, sparse: bool) -> None:
    """In float64, variables and slots; a row that comes twice counts as the sum."""
    make, defined = DEFINED[name]
    got, want = trained(make(), "float64", sparse), defined(sparse)
    assert sorted(got) == sorted(want)
    for key, value in want.items():
        assert got[key].dtype == np.float64
        assert_close(got[key], value, 1e-10)


@pytest.mark.parametrize("name", [k for k in MAKE if "Proximal" not in k and k != "AdagradDA"])
def test_half_precision_is_trained(name: str) -> None:
    with hr.Graph() as g:
        w = hr.Variable(START.astype(np.float16))
        step = MAKE[name]().apply_gradients([(hr.constant(gradient(0).astype(np.float16)), w)])
        init = hr.variables_initializer(g.variables)
    with hr.Session(graph=g) as session:
        session.run(init)
        session.run(step)
        got = session.run(w)
    want = trained(MAKE[name](), steps=1)["w"]
    assert got.dtype == np.float16
    assert_close(got, want, 0.02)


@pytest.mark.parametrize("name", ["Adam", "FtrlV2", "Momentum"])
def test_large_variables_change_like_small_ones(name: str) -> None:
    """They are gone through in blocks; the last is not a whole one."""
    n = thresholds.UPDATE_BLOCKED_ELEMENTS + 7
    grads = np.linspace(-1, 1, 2 * n).astype(np.float32)

    def after(size: int) -> np.ndarray:
        w, opt = hr.Variable(np.ones(size, np.float32)), MAKE[name]()
        for k in range(2):
            opt.apply_gradients([(grads[k * n : k * n + size], w)])
        return w.numpy()

    assert np.array_equal(after(n)[:100], after(100))
    assert np.unique(after(n)).size > 100


# *** the same as a function of tensors ***


def functional(opt: Optimizer, sparse: bool, steps: int) -> dict[str, np.ndarray]:
    params = {"w": hr.constant(START.astype(np.float32))}
    state = opt.init(params)
    for k in range(steps):
        grad: Any = hr.constant(gradient(k).astype(np.float32))
        if sparse:
            grad = hr.IndexedSlices(grad, hr.constant(rows(k)), hr.constant([3, 2]))
        params, state = opt.update({"w": grad}, state, params)
    return {"w": params["w"].numpy()} | {k: v["w"].numpy() for k, v in state["slots"].items()}


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("name", MAKE)
def test_functions_give_the_numbers_of_operations(name: str, sparse: bool) -> None:
    got, want = functional(MAKE[name](), sparse, 10), trained(MAKE[name](), "float32", sparse, 10)
    assert sorted(got) == sorted(want)
    for key, value in want.items():
        assert_close(got[key], value, 3e-7)


@pytest.mark.parametrize("name", ["Adam", "Lamb", "Ftrl"])
def test_functions_are_loop_variables(name: str) -> None:
    opt = MAKE[name]()
    with hr.Graph() as g:
        w = hr.constant(START.astype(np.float32))

        def body(i: Any, w: Any, state: Any) -> Any:
            w, state = opt.update(2.0 * (w - 3.0), state, w)
            return i + 1, w, state

        _, out, _ = hr.while_loop(lambda i, *_: i < 20, body, (0, w, opt.init(w)))
    with hr.Session(graph=g) as session:
        got = session.run(out)
    w, state = hr.constant(START.astype(np.float32)), opt.init(START.astype(np.float32))
    for _ in range(20):
        w, state = opt.update(2.0 * (w - 3.0), state, w)
    assert_close(got, w.numpy(), 1e-6)


def test_a_step_can_be_differentiated() -> None:
    """The loss after three steps, by the learning rate."""

    def after(rate: Any) -> Any:
        opt = optimizers.Momentum(rate, 0.5)
        w = hr.constant(5.0, hr.float64)
        state = opt.init(w)
        for _ in range(3):
            w, state = opt.update(2.0 * w, state, w)
        return hr.square(w)

    slope = (float(after(0.1 + 1e-6)) - float(after(0.1 - 1e-6))) / 2e-6
    got = hr.grad(after)(hr.constant(0.1, hr.float64))
    assert abs(float(got) - slope) < 1e-5 * abs(slope)


def test_what_has_no_gradient_stays() -> None:
    opt = optimizers.Adam(0.1)
    params = (hr.constant(1.0), hr.constant(2.0))
    (a, b), state = opt.update((None, 1.0), opt.init(params), params)
    assert float(a) == 1.0
    assert float(b) < 2.0
    assert float(state["slots"]["m"][0]) == 0.0


def test_a_state_of_something_else_is_refused() -> None:
    opt = optimizers.Adam(0.1)
    with pytest.raises(SignatureError, match="not one that this optimizer's init gives"):
        opt.update(1.0, optimizers.SGD(0.1).init(1.0), 1.0)
    with pytest.raises(SignatureError, match="not like the parameters"):
        opt.update([1.0], opt.init([1.0, 2.0]), [1.0, 2.0])
    with pytest.raises(SignatureError, match=r"of shape \[2\], its parameter of \[\]"):
        opt.update([1.0, 2.0], opt.init(1.0), 1.0)
    with pytest.raises(ValueError, match="only floats are trained"):
        opt.init({"n": np.int32(1)})


# *** in graphs ***


def test_a_training_loop_in_the_graph() -> None:
    """A hundred steps in one run, and in a hundred."""

    def minimized(opt: Optimizer, w: Any) -> Any:
        return opt.minimize(hr.reduce_sum(hr.square(w - [1.0, 2.0])))

    with hr.Graph() as g:
        w = hr.Variable([5.0, -3.0], name="w")
        opt = optimizers.Adam(0.1)

        def body(i: Any) -> Any:
            minimized(opt, w)
            return i + 1

        n = hr.while_loop(lambda i: i < 100, body, [0])
        init = hr.variables_initializer(g.variables)
    assert [v.name for v in g.variables] == ["w:0", "beta1_power:0", "beta2_power:0", "w/Adam:0", "w/Adam_1:0"]
    with hr.Session(graph=g) as session:
        session.run(init)
        session.run(n)
        got = session.run(w)
        assert "engine: compiled" in str(hr.Session(graph=g, engine="auto").explain(n, []))

    with hr.Graph() as g:
        w = hr.Variable([5.0, -3.0])
        step = minimized(optimizers.Adam(0.1), w)
        init = hr.variables_initializer(g.variables)
    with hr.Session(graph=g) as session:
        session.run(init)
        for _ in range(100):
            session.run(step)
        assert np.array_equal(session.run(w), got)


def test_a_step_is_one_operation_a_variable() -> None:
    with hr.Graph() as g:
        x = hr.placeholder(hr.float32, (8, 4))
        w, b = hr.Variable(np.ones((4, 3), np.float32), name="w"), hr.Variable(np.zeros(3, np.float32), name="b")
        loss = hr.reduce_mean(hr.square(hr.tanh(hr.matmul(x, w) + b)))
        before = len(g.operations)
        pairs = optimizers.Adam(0.1).compute_gradients(loss)
        made = len(g.operations)
        step = optimizers.Adam(0.1).apply_gradients(pairs)
        init = hr.variables_initializer(g.variables)
    assert before < made
    kinds = [op.type for op in g.operations[made:] if op.name.startswith("Adam/")]
    assert kinds.count("ResourceApplyAdam") == 2
    assert set(kinds) == {"Const", "ReadVariableOp", "ResourceApplyAdam", "Mul", "AssignVariableOp"}
    assert kinds.count("ReadVariableOp") <= 4  # of the two powers
    with hr.Session(graph=g) as session:
        session.run(init)
        assert "engine: compiled" in str(hr.Session(graph=g, engine="auto").explain(step, [x]))


def test_a_loss_with_a_loop_in_it() -> None:
    with hr.Graph() as g:
        w = hr.Variable(1.5)
        _, y = hr.while_loop(lambda i, y: i < 3, lambda i, y: (i + 1, y * w), (0, 1.0))
        step = optimizers.SGD(0.01).minimize(y)
        init = w.initializer
    with hr.Session(graph=g) as session:
        session.run(init)
        session.run(step)
        assert abs(session.run(w) - (1.5 - 0.01 * 3 * 1.5**2)) < 1e-6


def test_rows_that_are_gathered_change_alone() -> None:
    with hr.Graph() as g:
        table = hr.Variable(np.zeros((5, 2), np.float32))
        opt = optimizers.Adagrad(1.0, initial_accumulator_value=3.0)
        ((grad, _),) = pairs = opt.compute_gradients(hr.reduce_sum(hr.gather(table, [1, 3])))
        step = opt.apply_gradients(pairs)
        init = hr.variables_initializer(g.variables)
    assert isinstance(grad, hr.IndexedSlices)
    with hr.Session(graph=g) as session:
        session.run(init)
        session.run(step)
        assert session.run(table).tolist() == [[0, 0], [-0.5, -0.5], [0, 0], [-0.5, -0.5], [0, 0]]


def test_the_global_step_counts() -> None:
    with hr.Graph() as g:
        w, n = hr.Variable(1.0), hr.Variable(np.int64(0), trainable=False)
        step = optimizers.SGD(0.1).minimize(w, global_step=n, name="train")
        init = hr.variables_initializer(g.variables)
    assert step.name == "train"
    with hr.Session(graph=g) as session:
        session.run(init)
        for _ in range(3):
            session.run(step)
        assert session.run(n) == 3


def test_learning_rates_that_are_not_numbers() -> None:
    with hr.Graph() as g:
        rate = hr.placeholder(hr.float64, ())
        v = hr.Variable(0.5, trainable=False)
        ws = [hr.Variable(1.0, name=f"w{i}") for i in range(4)]
        opts = [
            optimizers.SGD(rate),
            optimizers.SGD(v),
            optimizers.SGD(lambda: v * 2.0),
            optimizers.SGD(schedules.ExponentialDecay(1.0, 1, 0.5)),
        ]
        steps = [opt.apply_gradients([(1.0, w)]) for opt, w in zip(opts, ws, strict=True)]
        init = hr.variables_initializer(g.variables)
    with hr.Session(graph=g) as session:
        session.run(init)
        session.run(steps, {rate: 0.25})
        session.run(steps, {rate: 0.125})
        assert session.run(ws) == [1 - 0.375, 0.0, -1.0, -0.5]


def test_constraints_hold_after_a_step() -> None:
    with hr.Graph() as g:
        w = hr.Variable([1.0, 3.0], constraint=lambda x: hr.maximum(x, 0.0))
        step = optimizers.SGD(1.0).apply_gradients([(hr.constant([2.0, 2.0]), w)])
        with pytest.raises(RuntimeError, match="Cannot use a constraint function on a sparse variable"):
            optimizers.SGD(1.0).apply_gradients([(hr.IndexedSlices(hr.constant([1.0]), hr.constant([0])), w)])
        init = w.initializer
    with hr.Session(graph=g) as session:
        session.run(init)
        session.run(step)
        assert session.run(w).tolist() == [0.0, 1.0]


def test_gates_and_gradients_of_the_loss() -> None:
    with hr.Graph():
        a, b = hr.Variable(1.0), hr.Variable(2.0)
        opt = optimizers.SGD(0.1)
        pairs = opt.compute_gradients(a * b, gate_gradients=opt.GATE_GRAPH, grad_loss=3.0)
        assert [v for _, v in pairs] == [a, b]
        assert all(t.op.control_inputs for t, _ in pairs)
        with pytest.raises(ValueError, match="gate_gradients must be one of"):
            opt.compute_gradients(a * b, gate_gradients=7)


def test_what_cannot_be_trained_is_refused() -> None:
    with hr.Graph():
        w, n = hr.Variable([1.0, 2.0], name="w"), hr.Variable(3, name="n", trainable=False)
        opt = optimizers.SGD(0.1)
        with pytest.raises(ValueError, match="No gradients provided for any variable, check your graph"):
            opt.minimize(hr.constant(1.0))
        with pytest.raises(ValueError, match="No gradients provided for any variable"):
            opt.apply_gradients([(None, w)])
        with pytest.raises(ValueError, match="No variables provided"):
            opt.apply_gradients([])
        with pytest.raises(ValueError, match="No variables to optimize"):
            opt.minimize(hr.reduce_sum(w), var_list=[])
        with pytest.raises(ValueError, match="Invalid type int32"):
            opt.minimize(n + 0)
        with pytest.raises(TypeError, match="an optimizer changes variables"):
            opt.minimize(hr.reduce_sum(w), var_list=[w + 1.0])
        with pytest.raises(TypeError, match="an optimizer changes variables"):
            opt.apply_gradients([(1.0, 2.0)])
        with pytest.raises(TypeError, match="variables to train are given as var_list="):
            opt.minimize(hr.reduce_sum(w), [w])
        with pytest.raises(SignatureError, match=r"of its shape \[2\], got one of shape \[3\]"):
            opt.apply_gradients([(hr.zeros([3]), w)])
        with pytest.raises(SignatureError, match="of its dtype float32, got one of dtype float64"):
            opt.apply_gradients([(hr.zeros([2], hr.float64), w)])
    with pytest.raises(ValueError, match="initial_accumulator_value must be positive"):
        optimizers.Adagrad(0.1, initial_accumulator_value=0.0)
    with pytest.raises(ValueError, match=r"l1_regularization_strength -1\.0 needs to be positive or zero"):
        optimizers.Ftrl(0.1, l1_regularization_strength=-1.0)
    with pytest.raises(ValueError, match="Must specify the optimizer name"):
        optimizers.SGD(0.1, name="")


def test_rows_out_of_range_are_refused() -> None:
    w = hr.Variable(np.zeros((2, 1), np.float32))
    grad = hr.IndexedSlices(hr.constant([[1.0]]), hr.constant([5]), hr.constant([2, 1]))
    with pytest.raises(InvalidArgumentError, match="5"):
        optimizers.Adagrad(0.1).apply_gradients([(grad, w)])
    assert not w.numpy().any()


def test_variables_of_unknown_shape_have_slots() -> None:
    with hr.Graph() as g:
        w = hr.Variable(np.ones(3, np.float32), shape=(None,), name="w")
        opt = optimizers.Adagrad(1.0, initial_accumulator_value=3.0)
        step = opt.apply_gradients([(hr.placeholder_with_default(np.ones(3, np.float32), (None,)), w)])
        init = hr.variables_initializer(g.variables)
    with hr.Session(graph=g) as session:
        session.run(init)
        session.run(step)
        assert session.run(opt.get_slot(w, "accumulator")).tolist() == [4.0] * 3


def test_two_optimizers_have_slots_of_their_own() -> None:
    with hr.Graph() as g, hr.name_scope("model"):
        w = hr.Variable(1.0, name="w")
        first, second = optimizers.Momentum(0.1), optimizers.Momentum(0.1)
        for opt in (first, second, first):
            opt.apply_gradients([(1.0, w)])
    assert [v.name for v in g.variables] == ["model/w:0", "model/w/Momentum:0", "model/w/Momentum_1:0"]
    assert first.get_slot(w, "momentum") is g.variables[1]
    assert second.variables() == [g.variables[2]]
    assert first.get_slot(w, "m") is None


# *** TensorFlow 1's ***

NAMES: list[tuple[Callable[[], Any], list[str]]] = [
    (lambda: v1.GradientDescentOptimizer(0.1), []),
    (lambda: v1.MomentumOptimizer(0.1, 0.9), ["w/Momentum"]),
    (lambda: v1.AdagradOptimizer(0.1), ["w/Adagrad"]),
    (lambda: v1.AdagradDAOptimizer(0.1, np.int64(0)), ["w/AdagradDA", "w/AdagradDA_1"]),
    (lambda: v1.AdadeltaOptimizer(), ["w/Adadelta", "w/Adadelta_1"]),
    (lambda: v1.ProximalGradientDescentOptimizer(0.1), []),
    (lambda: v1.ProximalAdagradOptimizer(0.1), ["w/ProximalAdagrad"]),
    (lambda: v1.AdamOptimizer(), ["beta1_power", "beta2_power", "w/Adam", "w/Adam_1"]),
    (lambda: v1.RMSPropOptimizer(0.1), ["w/RMSProp", "w/RMSProp_1"]),
    (lambda: v1.RMSPropOptimizer(0.1, centered=True), ["w/RMSProp", "w/RMSProp_1", "w/RMSProp_2"]),
    (lambda: v1.FtrlOptimizer(0.1), ["w/Ftrl", "w/Ftrl_1"]),
    (lambda: v1.FtrlOptimizer(0.1, accum_name="a", linear_name="l"), ["w/a", "w/l"]),
]


@pytest.mark.parametrize(("make", "names"), NAMES)
def test_tensorflow_1_names_variables_so(make: Callable[[], Any], names: list[str]) -> None:
    with tf.Graph().as_default(), tf.Session() as session:
        w = tf.get_variable("w", [2], initializer=tf.ones_initializer())
        opt = make()
        step = opt.minimize(tf.reduce_sum(w))
        assert step.name == opt.get_name()
        assert [v.op.name for v in tf.global_variables()] == ["w", *names]
        assert tf.trainable_variables() == [w]
        assert tf.get_collection(tf.GraphKeys.TRAIN_OP) == [step]
        assert sorted(v.op.name for v in opt.variables()) == sorted(names)
        session.run(tf.global_variables_initializer())
        session.run(step)
        assert (session.run(w) < 1.0).all()


def test_tensorflow_1_in_a_loop() -> None:
    with tf.Graph().as_default(), tf.Session() as session:
        w = tf.get_variable("w", initializer=np.array([5.0, -3.0], np.float32))
        opt = v1.MomentumOptimizer(0.1, 0.5)

        def body(i: Any) -> Any:
            with tf.control_dependencies([opt.minimize(tf.reduce_sum(tf.square(w - [1.0, 2.0])))]):
                return i + 1

        loop = tf.while_loop(lambda i: i < 100, body, [0])
        assert tf.get_collection(tf.GraphKeys.TRAIN_OP) == []
        session.run(tf.global_variables_initializer())
        session.run(loop)
        assert np.allclose(session.run(w), [1.0, 2.0], atol=1e-5)


# *** outside of graphs ***


def test_outside_of_graphs_a_loss_is_a_function() -> None:
    w, table = hr.Variable(2.0), hr.Variable(np.zeros((3, 2), np.float32))
    opt, seen = optimizers.SGD(0.5), hr.Variable(0.0, trainable=False)

    def loss() -> Any:
        seen.assign_add(1.0)
        return hr.square(w) + hr.reduce_sum(hr.gather(table, [0, 2, 2]))

    ((dw, _), (dt, _), (ds, _)) = opt.compute_gradients(loss, [w, table, seen])
    assert float(dw) == 4.0
    assert isinstance(dt, hr.IndexedSlices)
    assert dt.indices.numpy().tolist() == [0, 2, 2]
    assert ds is None
    assert opt.minimize(loss, [w, table, seen]) is None
    assert w.numpy() == 0.0
    assert table.numpy().tolist() == [[-0.5, -0.5], [0, 0], [-1, -1]]
    assert seen.numpy() == 2.0
    assert w.graph is None
    assert float(w + 1.0) == 1.0


def test_what_a_branch_of_the_loss_assigns_is_kept() -> None:
    w, high = hr.Variable(2.0), hr.Variable(0.0, trainable=False)

    def loss() -> Any:
        return hr.cond(w > 1.0, lambda: high.assign(w) * w, lambda: w * 1.0)

    optimizers.SGD(0.25).minimize(loss, [w, high])
    assert high.numpy() == 2.0


def test_a_loss_that_fails_leaves_variables_alone() -> None:
    w = hr.Variable(2.0)
    with pytest.raises(ZeroDivisionError):
        optimizers.SGD(0.5).minimize(lambda: w * (1 / 0), [w])
    assert w.graph is None
    assert w.numpy() == 2.0


def test_outside_of_graphs_values_are_no_loss() -> None:
    w = hr.Variable(2.0)
    with pytest.raises(GraphError, match="give the function that computes it"):
        optimizers.SGD(0.5).minimize(w * 2.0, var_list=[w])
    with pytest.raises(ValueError, match="No variables to optimize"):
        optimizers.SGD(0.5).minimize(lambda: hr.constant(2.0))


def test_outside_of_graphs_the_variables_that_the_loss_reads_are_trained() -> None:
    w, fixed = hr.Variable(2.0), hr.Variable(3.0, trainable=False)
    optimizers.SGD(0.5).minimize(lambda: w * fixed)
    optimizers.SGD(0.5).minimize(lambda: w * fixed, var_list=[w, fixed])
    assert (float(w), float(fixed)) == (-1.0, 3.0)


def test_a_step_outside_of_graphs_runs_the_effects_of_the_loss_once() -> None:
    w, calls = hr.Variable(2.0), hr.Variable(0)

    def loss() -> Any:
        calls.assign_add(1)
        return w * float(w) + hr.cast(calls, hr.float32)

    optimizers.SGD(0.5).minimize(loss, [w])
    assert (int(calls), float(w)) == (1, 1.0)


@pytest.mark.parametrize("name", MAKE)
def test_outside_of_graphs_the_numbers_are_the_same(name: str) -> None:
    w, opt = hr.Variable(START.astype(np.float32)), MAKE[name]()
    for k in range(5):
        opt.apply_gradients([(gradient(k).astype(np.float32), w)])
    want = trained(MAKE[name](), steps=5)
    assert_close(w.numpy(), want["w"], 3e-7)
    for slot in opt.get_slot_names():
        assert_close(opt.get_slot(w, slot).numpy(), want[slot], 3e-7)
