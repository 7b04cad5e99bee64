"""Distributions, and values of their methods, for TensorFlow 1 or `headrace.v1`.

python tests/v1/distribution_cases.py        # with TensorFlow: writes distribution_values.json
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

VALUES = Path(__file__).parent / "distribution_values.json"
OF_VALUES = ("prob", "log_prob", "cdf", "log_cdf", "survival_function", "log_survival_function")
STATISTICS = (
    "entropy", "mean", "mode", "variance", "stddev", "covariance", "batch_shape_tensor", "event_shape_tensor",
    "is_scalar_event", "is_scalar_batch",
)  # fmt: skip
_PARAMETERS = (
    "loc", "scale", "df", "low", "high", "concentration", "concentration1", "concentration0", "rate", "logits",
)  # fmt: skip

# Name -> functions that make the distribution, and another one (for divergences) or None; values.
CASES: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any] | None, Any]] = {
    "Normal": (
        lambda d: d.Normal([0.5, -1.0], [2.0, 0.5]),
        lambda d: d.Normal(0.0, [1.0, 3.0]),
        [[0.3, -4.0], [-30.0, 1.5]],
    ),
    "Uniform": (lambda d: d.Uniform([0.5, -1.0], [2.0, 0.5]), None, [[0.75, -4.0], [1.0, 0.5]]),
    "Laplace": (lambda d: d.Laplace([0.5, -1.0], [2.0, 0.5]), None, [[0.3, -4.0], [-3.0, 1.5]]),
    "StudentT": (lambda d: d.StudentT([3.5, 1.5, 0.5], 0.5, [2.0, 1.0, 1.0]), None, [0.3, -4.0, 2.0]),
    "Gamma": (
        lambda d: d.Gamma([0.5, 3.0], [2.0, 0.5]),
        lambda d: d.Gamma([1.0, 2.0], 1.5),
        [[0.3, 4.0], [1.0, 1.5]],
    ),
    "Exponential": (
        lambda d: d.Exponential([0.5, 3.0]),
        lambda d: d.Exponential([1.0, 2.0]),
        [[0.3, 4.0], [1.0, 1.5]],
    ),
    "Beta": (lambda d: d.Beta([0.5, 3.0], [2.0, 2.5]), lambda d: d.Beta([1.0, 2.0], [3.0, 1.0]), [0.3, 0.4]),
    "Dirichlet": (
        lambda d: d.Dirichlet([[0.5, 3.0, 1.0], [2.0, 2.5, 3.0]]),
        lambda d: d.Dirichlet([[1.0, 2.0, 1.0], [3.0, 1.0, 2.0]]),
        [[0.3, 0.4, 0.3], [0.75, 0.1, 0.15]],
    ),
    "Bernoulli": (
        lambda d: d.Bernoulli(probs=[0.25, 0.75]),
        lambda d: d.Bernoulli(logits=[0.5, -1.0]),
        [[0, 1], [1, 1]],
    ),
    "Categorical": (
        lambda d: d.Categorical(logits=[[0.5, -1.0, 0.25], [0.0, 1.0, 2.0]]),
        lambda d: d.Categorical(probs=[[0.5, 0.25, 0.25], [0.125, 0.125, 0.75]]),
        [[0, 1], [2, 0]],
    ),
    "Multinomial": (
        lambda d: d.Multinomial([4.0, 3.0], probs=[[0.5, 0.25, 0.25], [0.125, 0.125, 0.75]]),
        None,
        [[1.0, 2.0, 1.0], [0.0, 1.0, 2.0]],
    ),
    "DirichletMultinomial": (
        lambda d: d.DirichletMultinomial(4.0, [[0.5, 3.0, 1.0], [2.0, 2.5, 3.0]]),
        None,
        [[1.0, 2.0, 1.0], [0.0, 2.0, 2.0]],
    ),
}


def build(tf: Any, name: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Builds a distribution in the default graph.

    Returns:
      The tensors that its methods make, and texts and static shapes.
    """
    make, other, x = CASES[name]
    d = make(tf.distributions)
    tensors: dict[str, Any] = {}
    texts: dict[str, Any] = {"name": d.name, "str": str(d), "dtype": d.dtype.name}

    def add(key: str, f: Callable[[], Any]) -> None:
        try:
            tensors[key] = f()
        except NotImplementedError as e:
            texts[key] = str(e)
        except ValueError:
            texts[key] = "fails in TensorFlow"  # the mode of a batch of Dirichlet distributions

    for method in OF_VALUES:
        add(method, lambda method=method: getattr(d, method)(x))  # type: ignore[misc]
    add("quantile", lambda: d.quantile([[0.1], [0.75]]))
    for method in STATISTICS:
        add(method, lambda method=method: getattr(d, method)())  # type: ignore[misc]
    if other is not None:
        add("kl_divergence", lambda: d.kl_divergence(other(tf.distributions)))
        add("cross_entropy", lambda: d.cross_entropy(other(tf.distributions)))
    drawn = d.sample([2, 1], seed=7)
    tensors["sample"] = drawn
    texts["shapes"] = [drawn.shape.as_list(), d.batch_shape.as_list(), d.event_shape.as_list()]
    parameters = {n: p for n in _PARAMETERS if (p := getattr(d, n, None)) is not None}
    if d.reparameterization_type is tf.distributions.FULLY_REPARAMETERIZED:
        found = tf.gradients(drawn * drawn, list(parameters.values()))
        tensors.update({f"sample by {n}": g for n, g in zip(parameters, found, strict=True) if g is not None})
    found = tf.gradients(d.log_prob(x), list(parameters.values()))
    tensors.update({f"log_prob by {n}": g for n, g in zip(parameters, found, strict=True) if g is not None})
    return tensors, texts


if __name__ == "__main__":
    import importlib

    tensorflow: Any = importlib.import_module("tensorflow.compat.v1")
    tensorflow.disable_eager_execution()
    recorded: dict[str, Any] = {}
    for case in CASES:
        with tensorflow.Graph().as_default(), tensorflow.Session() as session:
            made, about = build(tensorflow, case)
            values = {k: v.tolist() for k, v in session.run(made).items()}
            recorded[case] = {"values": values, "texts": about}
    VALUES.write_text(json.dumps(recorded, indent=1) + "\n", encoding="utf-8")
