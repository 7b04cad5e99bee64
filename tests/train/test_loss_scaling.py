"""Loss scaling: skipped steps and dynamic factors; in graphs, outside, as functions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import headrace as hr
import headrace.v1 as tf
from headrace.train import optimizers
from headrace.train.loss_scaling import DynamicLossScale, FixedLossScale, LossScaleOptimizer
from headrace.v1 import loss_scales
from headrace.v1.optimizers import AdamOptimizer

RATES = [1.0, 1.0, np.inf, 1.0, np.nan, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0]


def expected(first: float, period: int, multiplier: float) -> list[tuple[float, float, int, int]]:
    """Variable, factor, good steps and steps made after each of RATES."""
    w, scale, good, steps, out = 100.0, first, 0, 0, []
    for rate in RATES:
        if np.isfinite(rate):
            w, steps, good = w - 0.5 * rate, steps + 1, good + 1
            if good >= period:
                scale, good = scale * multiplier, 0
        else:
            scale, good = max(scale / multiplier, 1.0), 0
        out.append((w, scale, good, steps))
    return out


@pytest.mark.parametrize(("first", "period", "multiplier"), [(64.0, 3, 2.0), (2.0, 2, 4.0), (1.0, 100, 2.0)])
def test_steps_that_are_not_finite_are_left_out(first: float, period: int, multiplier: float) -> None:
    with hr.Graph() as g:
        w, n = hr.Variable(100.0), hr.Variable(np.int64(0), trainable=False)
        x = hr.placeholder(hr.float32, ())
        scale = DynamicLossScale(first, period, multiplier)
        step = LossScaleOptimizer(optimizers.SGD(0.5), scale).minimize(w * x, global_step=n)
        init = hr.variables_initializer(g.variables)
    assert [v.name for v in scale.variables()] == ["current_loss_scale:0", "good_steps:0"]
    with hr.Session(graph=g) as session:
        session.run(init)
        for rate, want in zip(RATES, expected(first, period, multiplier), strict=True):
            session.run(step, {x: rate})
            assert session.run([w, *scale.variables(), n]) == list(want)
        assert "engine: compiled" in str(hr.Session(graph=g, engine="auto").explain(step, [x]))


def test_it_works_outside_of_graphs() -> None:
    w, n, scale = hr.Variable(100.0), hr.Variable(np.int64(0), trainable=False), DynamicLossScale(64.0, 3)
    opt = LossScaleOptimizer(optimizers.SGD(0.5), scale)
    for rate, (value, factor, good, steps) in zip(RATES, expected(64.0, 3, 2.0), strict=True):
        opt.minimize(lambda rate=rate: w * rate, n, [w])  # type: ignore[misc]
        assert (w.numpy(), n.numpy()) == (value, steps)
        assert [v.numpy() for v in scale.variables()] == [factor, good]


def test_it_works_as_a_function() -> None:
    opt = LossScaleOptimizer(optimizers.Momentum(0.5, 0.0), DynamicLossScale(64.0, 3))
    params = {"w": hr.constant(100.0)}
    state = opt.init(params)
    for rate, (value, factor, good, _) in zip(RATES, expected(64.0, 3, 2.0), strict=True):
        grads = {"w": opt.scale(rate, state)}  # of the loss w * rate
        params, state = opt.update(grads, state, params)
        assert float(params["w"]) == value
        assert float(state["loss_scale"]["current_loss_scale"]) == factor
        assert int(state["loss_scale"]["good_steps"]) == good
        assert np.isfinite(float(state["optimizer"]["slots"]["momentum"]["w"]))


def test_small_gradients_survive_half_precision() -> None:
    """1e-8 is zero in float16, a thousand times that is not."""
    w, small = hr.Variable(1.0), np.float16(2e-5)

    def gradient(opt: Any) -> float:
        ((grad, _),) = opt.compute_gradients(lambda: hr.cast(hr.cast(w, hr.float16) * small, hr.float32) * 5e-4, [w])
        return float(grad)

    assert gradient(optimizers.SGD(1.0)) == 0.0
    assert abs(gradient(LossScaleOptimizer(optimizers.SGD(1.0), 1024)) - 1e-8) < 1e-10


def test_sparse_gradients_are_scaled_back() -> None:
    with hr.Graph() as g:
        table = hr.Variable(np.zeros((3, 2), np.float32))
        opt = LossScaleOptimizer(optimizers.SGD(1.0), FixedLossScale(8.0))
        pairs = opt.compute_gradients(hr.reduce_sum(hr.gather(table, [1, 1])))
        step = opt.apply_gradients(pairs)
        init = table.initializer
    assert isinstance(pairs[0][0], hr.IndexedSlices)
    with hr.Session(graph=g) as session:
        session.run(init)
        session.run(step)
        assert session.run(table).tolist() == [[0, 0], [-2, -2], [0, 0]]


def test_the_factor_stays_finite() -> None:
    state = {"current_loss_scale": hr.constant(3e38), "good_steps": hr.constant(np.int64(0))}
    scale = DynamicLossScale(increment_period=1)
    assert float(scale.after(state, hr.constant(True))["current_loss_scale"]) == np.float32(3e38)


def test_scales_that_are_none_are_refused() -> None:
    with pytest.raises(ValueError, match="must be at least 1"):
        FixedLossScale(0.5)
    with pytest.raises(ValueError, match="must be a Python int or float"):
        FixedLossScale("2")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="a loss scale is a LossScale, a number or 'dynamic'"):
        LossScaleOptimizer(optimizers.SGD(0.1), "static")
    with pytest.raises(ValueError, match="must be an instance of Optimizer"):
        LossScaleOptimizer("sgd", 2.0)  # type: ignore[arg-type]


def test_tensorflow_1_makes_its_variables_at_once() -> None:
    with tf.Graph().as_default(), tf.Session() as session:
        scale = loss_scales.DynamicLossScale(16.0)
        w = tf.get_variable("w", initializer=1.0)
        opt = loss_scales.MixedPrecisionLossScaleOptimizer(AdamOptimizer(0.5), scale)
        step = opt.minimize(w * 3.0)
        names = ["current_loss_scale", "good_steps", "w", "beta1_power", "beta2_power", "w/Adam", "w/Adam_1"]
        assert [v.op.name for v in tf.global_variables()] == names
        assert sorted(v.op.name for v in opt.variables()) == sorted(set(names) - {"w"})
        session.run(tf.global_variables_initializer())
        session.run(step)
        assert abs(session.run(w) - 0.5) < 1e-6
        assert session.run(scale.variables()) == [16.0, 1]
