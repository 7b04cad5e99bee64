"""The dual coordinate solver of linear models, with TensorFlow 2.21's numbers."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

import headrace.v1 as tf
from tests.v1.sdca_cases import CASES, VALUES, run

pytestmark = pytest.mark.one_engine


def leaves(x: Any) -> list[float]:
    return [z for y in x for z in leaves(y)] if isinstance(x, list | tuple) else [x]


@pytest.mark.parametrize("name", CASES)
def test_a_pass_has_tensorflows_numbers(name: str) -> None:
    found, wanted = run(tf, name), json.loads(VALUES.read_text(encoding="utf-8"))[name]
    np.testing.assert_allclose(leaves(found), leaves(wanted), 1e-5, 1e-6)


@pytest.mark.parametrize("adaptive", [False, True])
def test_passes_lead_to_the_best_weights(adaptive: bool) -> None:
    rng = np.random.default_rng(0)
    x, n, l2 = rng.normal(size=(12, 3)).astype(np.float32), 12, 2.0
    y = (x @ [1.0, -2.0, 0.5]).astype(np.float32)
    with tf.Graph().as_default(), tf.Session() as session:
        states, weights = tf.placeholder(tf.float32, [n, 4]), tf.placeholder(tf.float32, [3])
        step = tf.raw_ops.SdcaOptimizerV2(
            sparse_example_indices=[], sparse_feature_indices=[], sparse_feature_values=[], dense_features=[x],
            example_weights=np.ones(n, np.float32), example_labels=y, sparse_indices=[], sparse_weights=[],
            dense_weights=[weights], example_state_data=states, loss_type="squared_loss", adaptive=adaptive, l1=0.0,
            l2=l2, num_loss_partitions=1, num_inner_iterations=1,
        )  # fmt: skip
        state, w = np.zeros((n, 4), np.float32), np.zeros(3, np.float32)
        for _ in range(150):
            state, delta = session.run(tuple(step), {states: state, weights: w})
            w = w + delta
    np.testing.assert_allclose(w, np.linalg.solve(x.T @ x + l2 * np.eye(3), x.T @ y), 1e-3, 1e-4)


@pytest.mark.parametrize(
    ("changed", "match"),
    [
        ({"example_labels": [0.5]}, "Only labels of 0.0 or 1.0 are supported"),
        ({"example_labels": [-1.0], "loss_type": "poisson_loss"}, "Only non-negative labels"),
        ({"example_labels": [0.0, 1.0]}, "vectors of one length"),
        ({"example_state_data": np.zeros((2, 4), np.float32)}, "example_state_data"),
        ({"sparse_example_indices": [[1]]}, "example indices must be in"),
        ({"sparse_example_indices": [[-1]]}, "example indices must be in"),
        ({"sparse_feature_indices": [[8]]}, "a feature has no weight"),
        ({"sparse_weights": [[1.0, 2.0]]}, "a weight for each index"),
        ({"sparse_feature_values": [[1.0, 1.0]]}, "vectors of one length"),
        (
            {
                "sparse_example_indices": [[0, 0]],
                "sparse_feature_indices": [[7, 7]],
                "sparse_feature_values": [[1.0, 1.0]],
            },
            "Duplicate index",
        ),
        ({"dense_features": [[[1.0], [2.0]]], "dense_weights": [[1.0]]}, "a row for each"),
        ({"dense_features": [[[1.0]]], "dense_weights": [[1.0, 2.0]]}, "1 columns and 2 weights"),
    ],
)
def test_refused_examples(changed: dict[str, Any], match: str) -> None:
    given: dict[str, Any] = {
        "sparse_example_indices": [[0]], "sparse_feature_indices": [[7]], "sparse_feature_values": [[1.0]],
        "dense_features": [], "example_weights": [1.0], "example_labels": [1.0], "sparse_indices": [[7]],
        "sparse_weights": [[0.0]], "dense_weights": [], "example_state_data": np.zeros((1, 4), np.float32),
        "loss_type": "logistic_loss", "l1": 0.0, "l2": 1.0, "num_loss_partitions": 1, "num_inner_iterations": 1,
    }  # fmt: skip
    refused = pytest.raises((tf.errors.InvalidArgumentError, ValueError), match=match)
    with tf.Graph().as_default(), tf.Session() as session, refused:
        session.run(tuple(tf.train.sdca_optimizer(**{**given, **changed})))


@pytest.mark.parametrize(
    ("l1", "l2", "wanted"),
    [
        (1.0, 2.0, [[0.5, 0.0, 0.1], [[-1.5, 3.6]]]),
        (0.0, 1.0, [[1.0, -0.3, 0.6], [[-2.0, 4.1]]]),
        (2.0, 0.5, [[0.0, 0.0, 0.0], [[0.0, 0.1]]]),
        (1.0, 0.0, [[0.0, 0.0, 0.0], [[0.0, 0.0]]]),
        (-1.0, 1.0, [[2.0, -1.3, 1.6], [[-3.0, 5.1]]]),
    ],
)
def test_weights_shrink(l1: float, l2: float, wanted: Any) -> None:
    with tf.Graph().as_default(), tf.Session() as session:
        v = tf.Variable([1.0, -0.3, 0.6], use_resource=False)
        w = tf.Variable([[-2.0, 4.1]], use_resource=False)
        session.run([v.initializer, w.initializer])
        session.run(tf.train.sdca_shrink_l1([v, w], l1, l2))
        for found, value in zip(session.run([v, w]), wanted, strict=True):
            np.testing.assert_allclose(found, value, 1e-6, 1e-6)


def test_fingerprints_have_128_bits() -> None:
    texts = [bytes(i * 7 % 251 for i in range(n)) for n in (2, 9, 16, 40, 127, 144, 160, 272, 300)]
    with tf.Graph().as_default(), tf.Session() as session:
        assert session.run(tf.train.sdca_fprint(texts)).tolist() == WANTED


WANTED = [
    [-656109009360267771, 7173098060083322281],
    [5134025183720784148, 2898773582183617936],
    [-2115865488742689158, -1563828715928910266],
    [6084129784073485558, 2591201948599562222],
    [-8770969501070202946, -6432495662512993033],
    [8697639564186507544, 2277085719752938245],
    [8618079587374494360, 1937351423907589011],
    [-3371325838676254645, 4473027059457766001],
    [1410418584856937883, 1254247127848926106],
]
