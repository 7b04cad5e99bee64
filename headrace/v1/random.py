"""TensorFlow 1's `tf.random`. The seeds are the graph's (`set_random_seed`) and the op's, as in TensorFlow."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headrace import public_names
from headrace.api import random, scopes
from headrace.v1 import array_ops
from headrace.v1.arguments import named
from headrace.v1.graph import get_seed as get_seed
from headrace.v1.graph import in_default_graph
from headrace.v1.graph import set_random_seed as set_random_seed
from headrace.v1.nn import all_candidate_sampler as all_candidate_sampler
from headrace.v1.nn import fixed_unigram_candidate_sampler as fixed_unigram_candidate_sampler
from headrace.v1.nn import learned_unigram_candidate_sampler as learned_unigram_candidate_sampler
from headrace.v1.nn import log_uniform_candidate_sampler as log_uniform_candidate_sampler
from headrace.v1.nn import uniform_candidate_sampler as uniform_candidate_sampler
from headrace.v1.plain_ops import random_index_shuffle

Algorithm = random.Algorithm
Generator = random.Generator
create_rng_state = in_default_graph(random.create_rng_state)

_NORMAL = "shape mean stddev dtype seed name"
normal = random_normal = named(random.normal, _NORMAL)
truncated_normal = named(random.truncated_normal, _NORMAL)
uniform = random_uniform = named(random.uniform, "shape minval maxval dtype seed name")
gamma = random_gamma = named(random.gamma, "shape alpha beta dtype seed name", "random_gamma")
poisson = random_poisson = named(random.poisson, "lam shape dtype seed name", "random_poisson")
shuffle = random_shuffle = named(random.shuffle, "value seed name")

stateless_binomial = in_default_graph(random.stateless_binomial)
stateless_categorical = in_default_graph(random.stateless_categorical)
stateless_gamma = in_default_graph(random.stateless_gamma)
stateless_normal = in_default_graph(random.stateless_normal)
stateless_parameterized_truncated_normal = in_default_graph(random.stateless_parameterized_truncated_normal)
stateless_poisson = in_default_graph(random.stateless_poisson)
stateless_truncated_normal = in_default_graph(random.stateless_truncated_normal)
stateless_uniform = in_default_graph(random.stateless_uniform)
split = in_default_graph(random.split)
fold_in = in_default_graph(random.fold_in)


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


@in_default_graph
def stateless_multinomial(
    logits: Any, num_samples: Any, seed: Any, output_dtype: Any = "int64", name: str | None = None
) -> Any:
    """`stateless_categorical` under its older name.

    Source: TensorFlow's `tf.random.stateless_multinomial`.
    """
    return random.stateless_categorical(logits, num_samples, seed, output_dtype, name or "stateless_multinomial")


@in_default_graph
def _index_shuffle(index: Any, seed: Any, max_index: Any) -> Any:
    """Computes the place of an index in a permutation of numbers.

    Args:
      index: integers from 0 to `max_index`, a scalar or vector.
      seed: two integers.
      max_index: the greatest number, of the dtype of `index`.

    Source: TensorFlow's `tf.random.experimental.index_shuffle`.
    """
    # the op takes three numbers; TensorFlow puts this one first
    three = array_ops.pad(array_ops.convert_to_tensor(seed), [[1, 0]], constant_values=498247692)
    return random_index_shuffle(index, three, max_index, rounds=4)


_global_generator: list[Any] = []


@in_default_graph
def get_global_generator() -> Any:
    """Returns the global generator, which the first call makes in the default graph.

    Its state is unpredictable. The variable of the state must be initialized.

    Source: TensorFlow's `tf.random.get_global_generator`.
    """
    if not _global_generator:
        _global_generator.append(Generator.from_non_deterministic_state())
    return _global_generator[0]


def set_global_generator(generator: Any) -> None:
    """Makes a generator the global one.

    Args:
      generator: a `Generator`; None: the next `get_global_generator` makes one.

    Source: TensorFlow's `tf.random.set_global_generator`.
    """
    _global_generator[:] = [] if generator is None else [generator]


class experimental:
    """Older names; TensorFlow's `tf.random.experimental`."""

    Algorithm, Generator = Algorithm, Generator
    create_rng_state = staticmethod(create_rng_state)
    stateless_split, stateless_fold_in = staticmethod(split), staticmethod(fold_in)
    get_global_generator, set_global_generator = staticmethod(get_global_generator), staticmethod(set_global_generator)
    index_shuffle = staticmethod(_index_shuffle)
    stateless_shuffle = staticmethod(named(random.stateless_shuffle, "value seed alg name"))


# fmt: off
__all__ = [
    "Algorithm", "Generator", "all_candidate_sampler", "categorical", "create_rng_state", "experimental",
    "fixed_unigram_candidate_sampler", "fold_in", "gamma", "get_global_generator", "get_seed",
    "learned_unigram_candidate_sampler", "log_uniform_candidate_sampler", "multinomial", "normal", "poisson",
    "random_gamma", "random_normal", "random_poisson", "random_shuffle", "random_uniform", "set_global_generator",
    "set_random_seed", "shuffle", "split", "stateless_binomial", "stateless_categorical", "stateless_gamma",
    "stateless_multinomial", "stateless_normal", "stateless_parameterized_truncated_normal", "stateless_poisson",
    "stateless_truncated_normal", "stateless_uniform", "truncated_normal", "uniform", "uniform_candidate_sampler",
]
# fmt: on

if not TYPE_CHECKING:
    __getattr__, __dir__ = public_names.of(__name__, __all__)
