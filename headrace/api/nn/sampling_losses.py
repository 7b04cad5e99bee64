"""Sampled losses over many classes, and the samplers of classes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from headrace import dtypes
from headrace.api import arrays, gathering, linalg, math, random, reductions, scopes
from headrace.api.nn.embedding import rows as rows_of
from headrace.api.nn.losses import sigmoid_cross_entropy_with_logits, softmax_cross_entropy_with_logits
from headrace.api.tensors import stop_gradient
from headrace.ir.tensor_type import Tensor


def _sampler(name: str, type: str, how: str) -> Callable[..., tuple[Any, Any, Any]]:
    def function(
        true_classes: Any,
        num_true: int,
        num_sampled: int,
        unique: bool,
        range_max: int,
        seed: int | None = None,
        name: str | None = None,
    ) -> tuple[Any, Any, Any]:
        attrs = {"range_max": range_max} | random.seeds(seed)
        return _sampled(type, true_classes, num_true, num_sampled, unique, attrs, name)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"""Samples classes {how}.

    Args:
      true_classes: int64, [batch, num_true]: the true classes of each example.
      num_true: number of true classes of an example.
      num_sampled: number of classes to sample.
      unique: whether the sampled classes are all different.
      range_max: number of classes; they are 0 to range_max - 1.
      seed: see `headrace.api.random`.
      name: name of the operation; "{type}" if None.

    Returns:
      The sampled classes (int64), and the expected counts of `true_classes` and of the sampled classes (float32).

    Source: TensorFlow's `tf.random.{name}`.

    Example:
      >>> import headrace as hr
      >>> labels = hr.constant([[0]], hr.int64)
      >>> classes, _, _ = hr.nn.{name}(labels, 1, 3, True, 3, seed=1)
      >>> sorted(classes.numpy().tolist())
      [0, 1, 2]
    """
    return function


def _sampled(
    type: str, true_classes: Any, num_true: int, num_sampled: int, unique: bool, attrs: dict[str, Any], name: str | None
) -> tuple[Any, Any, Any]:
    attrs = attrs | {"num_true": int(num_true), "num_sampled": int(num_sampled), "unique": bool(unique)}
    drawn, of_true, of_drawn = scopes.builder(true_classes).make(type, (true_classes,), attrs, name)
    return drawn, of_true, of_drawn


uniform_candidate_sampler = _sampler("uniform_candidate_sampler", "UniformCandidateSampler", "with equal probabilities")
log_uniform_candidate_sampler = _sampler(
    "log_uniform_candidate_sampler",
    "LogUniformCandidateSampler",
    "with probabilities that fall with the class number (Zipf's law)",
)
learned_unigram_candidate_sampler = _sampler(
    "learned_unigram_candidate_sampler",
    "LearnedUnigramCandidateSampler",
    "with their frequencies among the true classes so far",
)


def fixed_unigram_candidate_sampler(
    true_classes: Any,
    num_true: int,
    num_sampled: int,
    unique: bool,
    range_max: int,
    vocab_file: str = "",
    distortion: float = 1.0,
    num_reserved_ids: int = 0,
    num_shards: int = 1,
    shard: int = 0,
    unigrams: Any = (),
    seed: int | None = None,
    name: str | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Samples classes with probabilities proportional to given weights.

    Args:
      true_classes, num_true, num_sampled, unique, range_max, seed, name: as for `uniform_candidate_sampler`.
      vocab_file: a file with one line for each class; the last comma-separated field of a line is the weight.
      distortion: the exponent to which weights are raised.
      num_reserved_ids: number of classes, from 0 on, that are not in the weights and are never sampled.
      num_shards, shard: number of parts into which the classes are divided, and the index of the part to sample from.
      unigrams: the weights, if there is no file.

    Returns:
      As for `uniform_candidate_sampler`.

    Source: TensorFlow's `tf.random.fixed_unigram_candidate_sampler`.

    Example:
      >>> import headrace as hr
      >>> labels = hr.constant([[0]], hr.int64)
      >>> found = hr.nn.fixed_unigram_candidate_sampler(labels, 1, 2, True, 2, unigrams=[1.0, 3.0], seed=1)
      >>> sorted(found[0].numpy().tolist())
      [0, 1]
    """
    attrs: dict[str, Any] = {
        "range_max": range_max,
        "vocab_file": vocab_file,
        "distortion": float(distortion),
        "num_reserved_ids": num_reserved_ids,
        "num_shards": num_shards,
        "shard": shard,
        "unigrams": tuple(float(u) for u in unigrams),
    }
    attrs |= random.seeds(seed)
    return _sampled("FixedUnigramCandidateSampler", true_classes, num_true, num_sampled, unique, attrs, name)


def all_candidate_sampler(
    true_classes: Any, num_true: int, num_sampled: int, unique: bool, seed: int | None = None, name: str | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """Returns all classes below `num_sampled`, as a reference for samplers.

    Args:
      true_classes, num_true, num_sampled, unique, seed, name: as for `uniform_candidate_sampler`.

    Source: TensorFlow's `tf.random.all_candidate_sampler`.

    Example:
      >>> import headrace as hr
      >>> hr.nn.all_candidate_sampler(hr.constant([[0]], hr.int64), 1, 3, True)[0].numpy()
      array([0, 1, 2])
    """
    attrs = random.seeds(seed)
    return _sampled("AllCandidateSampler", true_classes, num_true, num_sampled, unique, attrs, name)


def compute_accidental_hits(
    true_classes: Any, sampled_candidates: Any, num_true: int, seed: int | None = None, name: str | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """Finds sampled classes that are true classes of an example.

    Args:
      true_classes: int64, [batch, num_true].
      sampled_candidates: int64: the sampled classes.
      num_true: number of true classes of an example.
      seed: ignored; accepted for compatibility with TensorFlow.
      name: name of the operation; "ComputeAccidentalHits" if None.

    Returns:
      For each pair of equal classes: the row of `true_classes` (int32), the position in `sampled_candidates` (int64),
      and the lowest float32.

    Source: TensorFlow's `tf.nn.compute_accidental_hits`.

    Example:
      >>> import headrace as hr
      >>> [t.numpy().tolist() for t in hr.nn.compute_accidental_hits([[7], [8]], [8, 9], 1)[:2]]
      [[1], [0]]
    """
    b = scopes.builder(true_classes, sampled_candidates)
    attrs = {"num_true": int(num_true), **random.seeds(seed)}
    rows, at, weights = b.make("ComputeAccidentalHits", (true_classes, sampled_candidates), attrs, name)
    return rows, at, weights


def nce_loss(
    weights: Any,
    biases: Any,
    labels: Any,
    inputs: Any,
    num_sampled: int,
    num_classes: int,
    num_true: int = 1,
    sampled_values: Any = None,
    remove_accidental_hits: bool = False,
    name: str | None = "nce_loss",
    partition_strategy: str = "div",
) -> Tensor:
    """Computes the noise-contrastive estimation loss.

    It is the cross entropy of a classifier that separates the true classes of an example from sampled classes.

    Args:
      weights: [num_classes, size]: the weights of the layer that computes the logits of the classes, or a list of
        parts.
      biases: [num_classes]: the biases of that layer, or a list of parts.
      labels: int64, [batch, num_true]: the true classes.
      inputs: [batch, size]: inputs of the layer.
      num_sampled: number of classes to sample for the batch.
      num_classes: number of classes.
      num_true: number of true classes of each example.
      sampled_values: the results of a sampler; None: those of `log_uniform_candidate_sampler`.
      remove_accidental_hits: whether sampled classes that are true classes of an example are ignored for it.
      name: name of the scope.
      partition_strategy: distribution of the classes over parts: "div" or "mod"; see `embedding_lookup_sparse`.

    Returns:
      A vector: the loss of each example.

    Source: TensorFlow's `tf.nn.nce_loss`, and "Noise-contrastive estimation" (Gutmann and Hyvärinen, 2010).

    Example:
      >>> import headrace as hr
      >>> drawn = ([1], [[1.0]], [1.0])
      >>> hr.nn.nce_loss(hr.zeros((2, 3)), hr.zeros(2), [[0]], hr.ones((1, 3)), 1, 2, 1, drawn).numpy()
      array([1.3862944], dtype=float32)
    """
    logits, targets = _logits(
        weights, biases, labels, inputs, num_sampled, num_classes, num_true, sampled_values, remove_accidental_hits,
        None, name or "nce_loss", partition_strategy,
    )  # fmt: skip
    losses = sigmoid_cross_entropy_with_logits(labels=targets, logits=logits, name="sampled_losses")
    return reductions.reduce_sum(losses, 1)


def sampled_softmax_loss(
    weights: Any,
    biases: Any,
    labels: Any,
    inputs: Any,
    num_sampled: int,
    num_classes: int,
    num_true: int = 1,
    sampled_values: Any = None,
    remove_accidental_hits: bool = True,
    seed: int | None = None,
    name: str | None = "sampled_softmax_loss",
    partition_strategy: str = "div",
) -> Tensor:
    """Computes the cross entropy of a softmax over true and sampled classes.

    Args:
      seed: seed of the sampler; see `hr.random`.
      Others: see `nce_loss`.

    Source: TensorFlow's `tf.nn.sampled_softmax_loss`, and "On using very large target vocabulary for neural machine
    translation" (Jean, Cho, Memisevic and Bengio, 2014).

    Example:
      >>> import headrace as hr
      >>> layer, drawn = (hr.zeros((2, 3)), hr.zeros(2)), ([1], [[1.0]], [1.0])
      >>> hr.nn.sampled_softmax_loss(*layer, [[0]], hr.ones((1, 3)), 1, 2, 1, drawn).numpy()
      array([0.6931472], dtype=float32)
    """
    logits, targets = _logits(
        weights, biases, labels, inputs, num_sampled, num_classes, num_true, sampled_values, remove_accidental_hits,
        seed, name or "sampled_softmax_loss", partition_strategy,
    )  # fmt: skip
    return softmax_cross_entropy_with_logits(stop_gradient(targets, name="labels_stop_gradient"), logits)


def _logits(
    weights: Any,
    biases: Any,
    labels: Any,
    inputs: Any,
    num_sampled: int,
    num_classes: int,
    num_true: int,
    sampled_values: Any,
    remove_accidental_hits: bool,
    seed: int | None,
    name: str,
    strategy: str,
) -> tuple[Any, Any]:
    """Returns logits and targets for the true and the sampled classes.

    The logits are reduced by the logarithms of the expected counts. In the targets, the true classes of an example
    share 1.
    """
    with scopes.name_scope(name, None, [labels, inputs]):
        b = scopes.builder(weights, biases, labels, inputs)
        x = b.tensor(inputs, None, "inputs")
        true = math.cast(b.tensor(labels, None if hasattr(labels, "dtype") else dtypes.int64, "labels"), dtypes.int64)
        if sampled_values is None:
            sampled_values = log_uniform_candidate_sampler(true, num_true, num_sampled, True, num_classes, seed)
        types = (dtypes.int64, x.dtype.base, x.dtype.base)
        drawn, of_true, of_drawn = (
            stop_gradient(math.cast(b.tensor(v), t)) for v, t in zip(sampled_values, types, strict=True)
        )
        ids = arrays.concat([arrays.reshape(true, [-1]), drawn], 0)
        n = arrays.size(true)
        rows, shifts = rows_of(weights, ids, strategy), rows_of(biases, ids, strategy)
        of_each = arrays.reshape(rows[:n], arrays.concat([[-1, num_true], arrays.shape(rows)[1:]], 0))
        ours = reductions.reduce_sum(math.multiply(arrays.expand_dims(x, 1), of_each), -1)
        ours = math.add(ours, arrays.reshape(shifts[:n], [-1, num_true]))
        others = math.add(linalg.matmul(x, rows[n:], transpose_b=True), shifts[n:])
        if remove_accidental_hits:
            examples, places, lowest = compute_accidental_hits(true, drawn, num_true)
            at = arrays.stack([math.cast(examples, dtypes.int64), places], 1)
            dims = arrays.shape(others, dtypes.int64)
            others = math.add(others, gathering.scatter_nd(at, math.cast(lowest, others.dtype.base), dims))
        ours, others = math.subtract(ours, math.log(of_true)), math.subtract(others, math.log(of_drawn))
        share = math.truediv(arrays.ones_like(ours), float(num_true))
        return arrays.concat([ours, others], 1), arrays.concat([share, arrays.zeros_like(others)], 1)
