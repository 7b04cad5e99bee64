"""Optimizers, learning rates, moving averages and loss scales against TensorFlow's.

Both run one program.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

START = """
import json
import numpy as np
import tensorflow as real
real.compat.v1.disable_v2_behavior()
real.compat.v1.enable_resource_variables()
import headrace.v1 as own
from headrace.v1 import averages, global_step, learning_rates, loss_scales, optimizers


class Own:
    def __getattr__(self, name):
        for module in (averages, global_step, learning_rates, loss_scales, optimizers):
            if hasattr(module, name):
                return getattr(module, name)
        raise AttributeError(name)


def difference(a, b):
    assert a.dtype == b.dtype and a.shape == b.shape, (a.dtype, b.dtype, a.shape, b.shape)
    a, b = a.astype(float), b.astype(float)
    return float(np.max(np.abs(a - b) / np.maximum(1, np.abs(b)), initial=0))


def both(program):
    ours, theirs = program(own, Own()), program(real.compat.v1, real.compat.v1.train)
    assert list(ours) == list(theirs), (list(ours), list(theirs))
    return max(difference(np.asarray(ours[k]), np.asarray(theirs[k])) for k in ours)

"""

UPDATES = """
found = {{}}
MAKE = {{
    "GradientDescent": lambda m, f, step: m.GradientDescentOptimizer(f(0.1)),
    "Momentum": lambda m, f, step: m.MomentumOptimizer(f(0.1), f(0.9)),
    "Nesterov": lambda m, f, step: m.MomentumOptimizer(f(0.1), f(0.9), use_nesterov=True),
    "Adagrad": lambda m, f, step: m.AdagradOptimizer(f(0.1)),
    "AdagradDA": lambda m, f, step: m.AdagradDAOptimizer(f(0.1), step, 0.1, f(0.001), f(0.002)),
    "Adadelta": lambda m, f, step: m.AdadeltaOptimizer(1.0),
    "RMSProp": lambda m, f, step: m.RMSPropOptimizer(0.01, momentum=0.5),
    "CenteredRMSProp": lambda m, f, step: m.RMSPropOptimizer(0.01, momentum=0.5, centered=True, name="rms"),
    "Adam": lambda m, f, step: m.AdamOptimizer(0.1),
    "Ftrl": lambda m, f, step: m.FtrlOptimizer(0.1, -0.5, 0.1, 0.01, 0.02, accum_name="acc", linear_name="lin"),
    "FtrlV2": lambda m, f, step: m.FtrlOptimizer(
        0.1, -0.5, 0.1, 0.01, 0.02, l2_shrinkage_regularization_strength=0.03, beta=0.1
    ),
    # TensorFlow does not convert these to the dtype of the variable
    "ProximalGradientDescent": lambda m, f, step: m.ProximalGradientDescentOptimizer(f(0.1), f(0.01), f(0.02)),
    "ProximalAdagrad": lambda m, f, step: m.ProximalAdagradOptimizer(f(0.1), 0.1, f(0.01), f(0.02)),
}}
rng = np.random.default_rng(0)
grads, rows = rng.normal(size=(100, 4, 3)), rng.integers(0, 4, (100, 3))


def program(tf, m, make, dtype, sparse):
    with tf.Graph().as_default(), tf.Session() as session:
        with tf.variable_scope("model"):
            w = tf.get_variable("w", initializer=np.linspace(-1, 1, 12).reshape(4, 3).astype(dtype))
            u = tf.get_variable("u", initializer=np.linspace(-1, 1, 3).astype(dtype))
        step = m.get_or_create_global_step()
        n = 3 if sparse else 4
        grad, at, other = tf.placeholder(dtype, (n, 3)), tf.placeholder("int32", (3,)), tf.placeholder(dtype, (3,))
        given = tf.IndexedSlices(grad, at, tf.constant([4, 3])) if sparse else grad
        with tf.name_scope("training"):
            op = make(m, np.dtype(dtype).type, step).apply_gradients([(given, w), (other, u)], global_step=step)
        again = make(m, np.dtype(dtype).type, step).minimize(tf.reduce_sum(u * u) + tf.reduce_sum(w), var_list=[u])
        session.run(tf.global_variables_initializer())
        for k in range(100):
            session.run(op, {{grad: grads[k, :n], at: rows[k], other: grads[k, 3]}})
        session.run(again)
        assert tf.get_collection(tf.GraphKeys.TRAIN_OP) == [op, again]
        variables = tf.global_variables()
        values = {{v.name: x for v, x in zip(variables, session.run(variables))}}
        return {{op.name: 0.0, again.name: 0.0, **values}}


for name, make in MAKE.items():
    for dtype in ("float32", "float64"):
        found[f"{{name}} of {{dtype}}"] = both(lambda tf, m: program(tf, m, make, dtype, {sparse}))
print(json.dumps(found))
"""

RATES = """
MAKE = {
    "exponential_decay": [lambda f, n: f(0.5, n, 7, 0.9), lambda f, n: f(0.5, n, 7, 0.9, staircase=True)],
    "natural_exp_decay": [lambda f, n: f(0.5, n, 7, 0.9), lambda f, n: f(0.5, n, 7, 0.9, staircase=True)],
    "inverse_time_decay": [lambda f, n: f(0.5, n, 7, 0.9), lambda f, n: f(0.5, n, 7, 0.9, staircase=True)],
    "polynomial_decay": [
        lambda f, n: f(0.5, n, 9),
        lambda f, n: f(0.5, n, 9, 0.01, 2.0),
        lambda f, n: f(0.5, n, 9, 0.01, 0.5, cycle=True),
    ],
    "piecewise_constant": [
        lambda f, n: f(n, [3, 10], [1.0, 0.5, 0.1]),
        lambda f, n: f(n, [3], [np.float64(1.0), np.float64(0.5)]),
    ],
    "cosine_decay": [lambda f, n: f(0.5, n, 12), lambda f, n: f(0.5, n, 12, 0.1)],
    "cosine_decay_restarts": [
        lambda f, n: f(0.5, n, 5), lambda f, n: f(0.5, n, 5, 1.0), lambda f, n: f(0.5, n, 5, 1.5, 0.8, 0.1)
    ],
    "linear_cosine_decay": [lambda f, n: f(0.5, n, 12), lambda f, n: f(0.5, n, 12, 2.0, 0.1, 0.01)],
    "noisy_linear_cosine_decay": [lambda f, n: f(0.5, n, 12, 0.0)],
}


def program(tf, m, name, make):
    with tf.Graph().as_default(), tf.Session() as session:
        n = tf.placeholder("int64", ())
        rate = make(getattr(m, name), n)
        return {k: session.run(rate, {n: k}) for k in (0, 1, 3, 4, 6, 10, 11, 13, 40)}


found = {}
for name, makers in MAKE.items():
    for i, make in enumerate(makers):
        found[f"{name} {i}"] = both(lambda tf, m: program(tf, m, name, make))
print(json.dumps(found))
"""

AVERAGES = """
def program(tf, m, dtype, **options):
    with tf.Graph().as_default(), tf.Session() as session:
        with tf.variable_scope("model"):
            w = tf.get_variable("w", initializer=np.array([1.0, 2.0], dtype))
            fixed = tf.get_variable("fixed", initializer=np.array(3.0, dtype), trainable=False)
        x = tf.placeholder(dtype, (2,))
        y = tf.square(x, name="y")
        count = m.get_or_create_global_step()
        if "num_updates" in options:
            options["num_updates"] = count
        ema = m.ExponentialMovingAverage(0.9, **options)
        before = ema.average_name(w)
        update = ema.apply([w, y])
        change = tf.group(w.assign_add(x), count.assign_add(1))
        session.run(tf.global_variables_initializer())
        for k in range(20):
            session.run(change, {x: [0.1 * k, -0.2]})
            session.run(update, {x: [0.3, 0.1 * k]})
        assert tf.moving_average_variables() == [w]
        assert ema.average(fixed) is None
        restored = ema.variables_to_restore()
        names = {f"{name} <- {v.name}": 0.0 for name, v in sorted(restored.items())}
        variables = tf.global_variables()
        values = {v.name: x for v, x in zip(variables, session.run(variables))}
        return {before: 0.0, update.name: 0.0, ema.average_name(fixed): 0.0, **names, **values}


found = {}
for dtype in ("float32", "float64"):
    found[f"plain {dtype}"] = both(lambda tf, m: program(tf, m, dtype))
    found[f"few {dtype}"] = both(lambda tf, m: program(tf, m, dtype, num_updates=True))
    found[f"debiased {dtype}"] = both(lambda tf, m: program(tf, m, dtype, zero_debias=True, name="mean"))
print(json.dumps(found))
"""

SCALES = """
rates = [1.0, 1.0, 1e30, 1e38, 1.0, 1.0, 1.0, 1e37, 1.0, 1.0, 1.0]


def program(tf, m):
    with tf.Graph().as_default(), tf.Session() as session:
        w = tf.get_variable("w", initializer=np.array([1.0, 2.0], "f"))
        x = tf.placeholder("float32", ())
        step = m.get_or_create_global_step()
        experimental = m if tf is own else m.experimental
        scale = experimental.DynamicLossScale(64.0, 3, 4.0)
        inner = m.MomentumOptimizer(1e-38, 0.5)
        opt = experimental.MixedPrecisionLossScaleOptimizer(inner, scale)
        op = opt.minimize(tf.reduce_sum(w * x), global_step=step)
        session.run(tf.global_variables_initializer())
        out = {op.name: 0.0}
        variables = tf.global_variables()
        for k, rate in enumerate(rates):
            session.run(op, {x: rate})
            out |= {f"{v.name} {k}": value for v, value in zip(variables, session.run(variables))}
        return out


print(json.dumps({"dynamic": both(program)}))
"""


def differences(run_python: Callable[[str], bytes], program: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(run_python(START + program).splitlines()[-1])
    assert found
    return found


@pytest.mark.parametrize("sparse", [False, True])
def test_a_hundred_steps(run_python: Callable[[str], bytes], sparse: bool) -> None:
    """Names, order, shapes, dtypes and values of all variables, slots included."""
    found = differences(run_python, UPDATES.format(sparse=sparse))
    assert {k: d for k, d in found.items() if d > 1e-6} == {}
    assert len(found) == 26


def test_learning_rates(run_python: Callable[[str], bytes]) -> None:
    found = differences(run_python, RATES)
    assert {k: d for k, d in found.items() if d > 1e-6} == {}


def test_moving_averages(run_python: Callable[[str], bytes]) -> None:
    found = differences(run_python, AVERAGES)
    assert {k: d for k, d in found.items() if d > 1e-6} == {}


def test_loss_scales(run_python: Callable[[str], bytes]) -> None:
    found = differences(run_python, SCALES)
    assert {k: d for k, d in found.items() if d > 1e-6} == {}
