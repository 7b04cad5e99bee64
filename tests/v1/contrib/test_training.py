"""`tf.contrib.training`, `opt`, `slim.learning` and `learn`: hyperparameters, optimizers, the loop of training."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import headrace.v1 as tf

HParams = tf.contrib.training.HParams


@pytest.fixture(autouse=True)
def _fresh() -> None:
    tf.reset_default_graph()


def hparams() -> Any:
    return HParams(rate=0.1, units=[3, 4], name="net", deep=False, steps=10)


def test_hyperparameters_are_read_from_text() -> None:
    h = hparams().parse("rate=1e-3,units=[5, 6,7],name=a b,deep=true,steps=1e2")
    assert h.values() == {"rate": 1e-3, "units": [5, 6, 7], "name": "a b", "deep": True, "steps": 100}
    h.parse("units[1]=9,name=")
    assert (h.units, h.name) == ([5, 9, 7], "")
    again = hparams().parse_json(h.to_json())
    assert again.values() == h.values()
    assert "rate" in h
    assert h.get("absent", 3) == 3
    h.add_hparam("extra", 1)
    h.del_hparam("extra")
    assert "extra" not in h
    assert str(HParams(b=1, a="x")) == "[('a', 'x'), ('b', 1)]"


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("rate", "Malformed hyperparameter value: rate"),
        ("rate=a", "Could not parse hparam 'rate' of type 'float'"),
        ("steps=1.5", "Could not parse hparam 'steps' of type 'int'"),
        ("absent=1", "Unknown hyperparameter type for absent"),
        ("rate=1,rate=2", "Multiple assignments to variable 'rate'"),
        ("units=3", "Must not pass not a list for multi-valued parameter: units"),
        ("rate=[1,2]", "Must not pass a list for not multi-valued parameter: rate"),
        ("deep=2", "Could not parse hparam 'deep' of type 'bool'"),
    ],
)
def test_mistakes_in_text(text: str, error: str) -> None:
    with pytest.raises(ValueError, match=error):
        hparams().parse(text)


def test_values_keep_their_types() -> None:
    h = hparams()
    h.set_hparam("rate", 1)
    assert isinstance(h.rate, float)
    for name, value in (("steps", 1.5), ("rate", "1"), ("name", 1), ("deep", 1), ("steps", True)):
        with pytest.raises(ValueError, match="Could not cast hparam"):
            h.set_hparam(name, value)
    with pytest.raises(ValueError, match="Hyperparameter name is reserved: parse"):
        HParams(parse=1)


def test_sequences_are_collected_by_length() -> None:
    x = tf.train.range_input_producer(6, num_epochs=1, shuffle=False).dequeue()
    row = tf.fill([x % 4 + 1], x)
    lengths, batch = tf.contrib.training.bucket_by_sequence_length(
        x % 4 + 1, [row], batch_size=2, bucket_boundaries=[3], dynamic_pad=True, allow_smaller_final_batch=True
    )
    got = []
    with tf.train.MonitoredSession() as sess:
        while not sess.should_stop():
            got.append(sess.run([lengths, batch]))
    assert sorted(n for found, _ in got for n in found) == [1, 1, 2, 2, 3, 4]
    assert all(rows.shape[1] == found.max() and len({n < 3 for n in found}) == 1 for found, rows in got)


# *** optimizers ***


def trained(optimizer: Any, sparse: bool = False, steps: int = 3) -> np.ndarray:
    w = tf.get_variable("w", initializer=tf.constant([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]))
    seen = tf.nn.embedding_lookup(w, [2, 0, 2]) if sparse else w
    train = optimizer.minimize(tf.reduce_sum(tf.square(seen)))
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        for _ in range(steps):
            sess.run(train)
        found: np.ndarray = sess.run(w)
        return found


def adam(decay: float = 0.0, nesterov: bool = False) -> np.ndarray:
    w = np.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
    m, v = np.zeros_like(w), np.zeros_like(w)
    for t in (1, 2, 3):
        g = 2 * w
        w = w - decay * w
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
        ahead = 0.9 * m + 0.1 * g if nesterov else m
        w = w - 0.1 * np.sqrt(1 - 0.999**t) / (1 - 0.9**t) * ahead / (np.sqrt(v) + 1e-8)
    return w


def test_adam_and_its_variants() -> None:
    opt = tf.contrib.opt
    np.testing.assert_allclose(trained(opt.AdamWOptimizer(0.01, 0.1)), adam(0.01), rtol=1e-5)
    tf.reset_default_graph()
    np.testing.assert_allclose(trained(opt.NadamOptimizer(0.1)), adam(nesterov=True), rtol=1e-5)
    tf.reset_default_graph()
    lazy = trained(opt.LazyAdamOptimizer(0.1), sparse=True)
    np.testing.assert_allclose(lazy[1], [3.0, 4.0])
    tf.reset_default_graph()
    np.testing.assert_allclose(lazy, trained(tf.train.AdamOptimizer(0.1), sparse=True), rtol=1e-5)
    tf.reset_default_graph()
    assert np.allclose(trained(opt.NadamOptimizer(0.1), sparse=True)[1], [3.0, 4.0])


def test_decay_of_chosen_variables() -> None:
    a, b = (tf.get_variable(n, initializer=1.0) for n in "ab")
    sgd = tf.contrib.opt.extend_with_decoupled_weight_decay(tf.train.GradientDescentOptimizer)
    train = sgd(0.25, 0.5).minimize(a + b, decay_var_list=[a])
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        sess.run(train)
        assert sess.run([a, b]) == [0.25, 0.5]


def test_averages_are_saved_in_place_of_variables(tmp_path: Path) -> None:
    w = tf.get_variable("w", initializer=4.0)
    optimizer = tf.contrib.opt.MovingAverageOptimizer(tf.train.GradientDescentOptimizer(1.0), 0.5)
    train = optimizer.minimize(w)
    saver = optimizer.swapping_saver()
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        sess.run(train)
        assert sess.run(w) == 3.0
        saver.save(sess, str(tmp_path / "m"))
    found = {n: tf.train.load_variable(str(tmp_path / "m"), n) for n, _ in tf.train.list_variables(str(tmp_path / "m"))}
    assert found == {"w": 3.5, "w/ExponentialMovingAverage": 3.0}


def test_scipy_minimizes_with_bounds_and_constraints() -> None:
    w = tf.get_variable("w", initializer=[7.0, 7.0])
    loss = tf.reduce_sum(tf.square(w - [1.0, 3.0]))
    opt, seen = tf.contrib.opt, []
    bounded = opt.ScipyOptimizerInterface(loss, var_to_bounds={w: (2.0, [9.0, 2.5])})
    equal = opt.ScipyOptimizerInterface(loss, equalities=[w[0] - w[1]], inequalities=[w[0] - 2.5])
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        bounded.minimize(sess, fetches=[loss], loss_callback=seen.append)
        np.testing.assert_allclose(sess.run(w), [2.0, 2.5], atol=1e-4)
        equal.minimize(sess)
        np.testing.assert_allclose(sess.run(w), [2.5, 2.5], atol=1e-4)
    assert seen[0] > seen[-1]


# *** slim.learning, learn ***


def model() -> Any:
    slim = tf.contrib.slim
    x = tf.constant(np.random.default_rng(0).normal(size=(8, 3)).astype(np.float32))
    y = slim.fully_connected(x, 1, activation_fn=None, normalizer_fn=slim.batch_norm, scope="fc")
    slim.losses.mean_squared_error(y, x[:, :1])
    return slim.learning.create_train_op(
        tf.losses.get_total_loss(), tf.train.GradientDescentOptimizer(0.5), clip_gradient_norm=1.0,
        gradient_multipliers={"fc/weights": 0.5}, summarize_gradients=True,
    )  # fmt: skip


def test_the_last_checkpoint_of_slim_is_the_newest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread that saves may still write when the last step ends."""
    save, saved = tf.train.Saver.save, threading.Event()

    def slow(self: Any, *args: Any, **kwargs: Any) -> Any:
        if threading.current_thread() is not threading.main_thread():
            time.sleep(0.2)
        saved.set()
        return save(self, *args, **kwargs)

    monkeypatch.setattr(tf.train.Saver, "save", slow)
    tf.contrib.slim.learning.train(model(), str(tmp_path), number_of_steps=3, save_summaries_secs=0)
    assert saved.is_set()
    assert tf.train.latest_checkpoint(str(tmp_path)) == str(tmp_path / "model.ckpt-3")


def test_slim_trains_and_saves(tmp_path: Path) -> None:
    """Training goes on from the last checkpoint."""
    tf.logging.set_verbosity(tf.logging.WARN)
    train, losses = tf.contrib.slim.learning.train, []
    for steps in (1, 20):
        tf.reset_default_graph()
        losses.append(train(model(), str(tmp_path), number_of_steps=steps, save_summaries_secs=0))
    assert losses[1] < losses[0]
    assert tf.train.latest_checkpoint(str(tmp_path)) == str(tmp_path / "model.ckpt-20")
    moving = tf.train.load_variable(str(tmp_path), "fc/BatchNorm/moving_variance")
    assert moving.shape == (1,)
    assert moving[0] != 1.0
    with pytest.raises(ValueError, match="startup_delay_steps=3"):
        train("a tensor", None, startup_delay_steps=3)


def test_modes() -> None:
    keys = tf.contrib.learn.ModeKeys
    assert (keys.TRAIN, keys.EVAL, keys.INFER) == ("train", "eval", "infer")
    keys.validate("train")
    with pytest.raises(ValueError, match="Invalid mode test"):
        keys.validate("test")
    assert tf.contrib.learn.RunConfig(model_dir="m").keep_checkpoint_max == 5
