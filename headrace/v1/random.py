"""TensorFlow 1's `tf.random`. The seeds are the graph's (`set_random_seed`) and the op's, as in TensorFlow."""

from __future__ import annotations

from typing import Any

from headrace.build import random, scopes
from headrace.v1.arguments import named
from headrace.v1.graph import get_seed as get_seed
from headrace.v1.graph import in_default_graph
from headrace.v1.graph import set_random_seed as set_random_seed

_NORMAL = "shape mean stddev dtype seed name"
normal = random_normal = named(random.normal, _NORMAL)
truncated_normal = named(random.truncated_normal, _NORMAL)
uniform = random_uniform = named(random.uniform, "shape minval maxval dtype seed name")
shuffle = random_shuffle = named(random.shuffle, "value seed name")


@in_default_graph
def categorical(
    logits: Any, num_samples: Any, dtype: Any = None, seed: int | None = None, name: str | None = None
) -> Any:
    """For each row of `logits` a row of `num_samples` classes, drawn with probabilities softmax(logits).

    Source: TensorFlow's `tf.random.categorical`.
    """
    return random.categorical(scopes.builder(logits).tensor(logits, name="logits"), num_samples, dtype, seed, name)


@in_default_graph
def multinomial(
    logits: Any, num_samples: Any, seed: int | None = None, name: str | None = None, output_dtype: Any = None
) -> Any:
    """`categorical` under its older name.

    Source: TensorFlow's `tf.multinomial`.
    """
    return categorical(logits, num_samples, output_dtype, seed, name or "multinomial")
