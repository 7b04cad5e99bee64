"""Moving averages: their numbers, their names, the names for a saver; in graphs and outside."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import headrace as hr
import headrace.v1 as tf
from headrace.train.averages import ExponentialMovingAverage
from headrace.v1 import averages


def test_averages_follow_variables() -> None:
    with hr.Graph() as g:
        w = hr.Variable([4.0, 8.0], name="w")
        ema = ExponentialMovingAverage(0.75)
        update = ema.apply([w])
        change = w.assign_add([4.0, 0.0])
        average = ema.average(w)
        init = hr.variables_initializer(g.variables)
    assert average.name == "w/ExponentialMovingAverage:0"
    assert not average.trainable
    with hr.Session(graph=g) as session:
        session.run(init)
        assert session.run(average).tolist() == [4.0, 8.0]
        session.run(change)
        session.run(update)
        assert session.run(average).tolist() == [5.0, 8.0]


def test_few_updates_move_averages_faster() -> None:
    w, n = hr.Variable(0.0), hr.Variable(np.int64(0), trainable=False)
    ema, want = ExponentialMovingAverage(0.9, num_updates=n), 0.0
    ema.apply([w])
    for k in range(1, 30):
        w.assign(float(k))
        n.assign_add(1)
        ema.apply([w])
        decay = min(0.9, (1 + k) / (10 + k))
        want = decay * want + (1 - decay) * k
        assert abs(ema.average(w).numpy() - want) < 1e-5


def test_averages_of_tensors_begin_with_zeros() -> None:
    with hr.Graph() as g:
        x = hr.placeholder(hr.float64, (2,), name="x")
        plain, made_up = ExponentialMovingAverage(0.5), ExponentialMovingAverage(0.5, zero_debias=True, name="mean")
        updates = [plain.apply([x]), made_up.apply([x])]
        init = hr.variables_initializer(g.variables)
    with hr.Session(graph=g) as session:
        session.run(init)
        for values in ([4.0, 8.0], [8.0, 8.0]):
            session.run(updates, {x: values})
        assert session.run(plain.average(x)).tolist() == [5.0, 6.0]
        assert np.allclose(session.run(made_up.average(x)), [5.0 / 0.75, 8.0], atol=1e-12)
    assert [v.name for v in g.variables][1:] == ["x/mean:0", "x/mean/biased:0", "x/mean/local_step:0"]


def test_a_saver_is_told_what_to_restore() -> None:
    with hr.Graph() as g:
        w, b = hr.Variable(1.0, name="w"), hr.Variable(2.0, name="b")
        n = hr.Variable(3, name="n", trainable=False)
        ema = ExponentialMovingAverage(0.9)
        assert ema.average(w) is None
        assert ema.average_name(w) == "w/ExponentialMovingAverage"
        ema.apply([w])
        restored = ema.variables_to_restore()
        chosen = ema.variables_to_restore([b])
    average = ema.average(w)
    assert restored["w/ExponentialMovingAverage"] is w
    assert restored["b/ExponentialMovingAverage"] is b
    assert restored["n"] is n
    assert "w" not in restored
    assert chosen["b/ExponentialMovingAverage"] is b
    assert chosen["w"] is w
    assert average in g.variables


def test_averages_inside_of_a_loop() -> None:
    with hr.Graph() as g:
        w = hr.Variable(0.0, name="w")
        ema = ExponentialMovingAverage(0.5)

        def body(i: Any) -> Any:
            w.assign_add(1.0)
            ema.apply([w])
            return i + 1

        loop = hr.while_loop(lambda i: i < 3, body, [0])
        init = hr.variables_initializer(g.variables)
    with hr.Session(graph=g) as session:
        session.run(init)
        session.run(loop)
        assert session.run(ema.average(w)) == ((1 * 0.5 + 2) * 0.5 + 3) * 0.5


def test_integers_and_values_have_no_averages() -> None:
    ema = ExponentialMovingAverage(0.9)
    with pytest.raises(TypeError, match="must be half, float, or double"):
        ema.apply([hr.Variable(1)])
    with pytest.raises(TypeError, match="averages are of variables and tensors of a graph, got the number"):
        ema.apply([1.0])


def test_tensorflow_1_has_collections() -> None:
    with tf.Graph().as_default(), tf.Session() as session, tf.variable_scope("model"):
        w = tf.get_variable("w", initializer=1.0)
        fixed = tf.get_variable("fixed", initializer=2.0, trainable=False)
        ema = averages.ExponentialMovingAverage(0.9)
        update = ema.apply()
        assert tf.moving_average_variables() == [w]
        assert ema.average(fixed) is None
        assert ema.average(w).op.name == "model/model/w/ExponentialMovingAverage"  # TensorFlow's name
        session.run(tf.global_variables_initializer())
        session.run(update)
        assert session.run(ema.average(w)) == 1.0
        assert ema.average(w) in tf.global_variables()
