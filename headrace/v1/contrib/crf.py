"""TensorFlow 1's `tf.contrib.crf`: linear-chain conditional random fields.

The score of a sequence of tags is the sum of the scores of its tags, `inputs` [batch, time, tags], and of its
transitions [tags, tags]. Steps beyond the length of a sequence do not count.

Source: Lafferty et al., "Conditional random fields" (2001).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from headrace import dtypes
from headrace.api import arrays, functional, gathering, math, reductions, scopes, tensors
from headrace.v1.contrib import equivalents
from headrace.v1.graph import in_default_graph
from headrace.v1.variable_store import get_variable


def _mask(lengths: Any, x: Any, axis: int = 1) -> Any:
    """Returns 1 for the steps of the sequences and 0 beyond: [batch, time]."""
    steps = arrays.shape(x)[axis] if x.shape is None or x.shape[axis] is None else x.shape[axis]
    return gathering.sequence_mask(lengths, steps)


@in_default_graph
def crf_unary_score(tag_indices: Any, sequence_lengths: Any, inputs: Any) -> Any:
    """Returns the sum of the scores of the tags: [batch].

    Source: TensorFlow's `tf.contrib.crf.crf_unary_score`.
    """
    b = scopes.builder(inputs)
    inputs, tags = b.tensor(inputs, None, "inputs"), b.tensor(tag_indices, dtypes.int32, "tag_indices")
    own = gathering.gather(inputs, tags, axis=2, batch_dims=2)
    return reductions.reduce_sum(own * math.cast(_mask(sequence_lengths, inputs), own.dtype.base), [1])


@in_default_graph
def crf_binary_score(tag_indices: Any, sequence_lengths: Any, transition_params: Any) -> Any:
    """Returns the sum of the scores of the transitions: [batch].

    Source: TensorFlow's `tf.contrib.crf.crf_binary_score`.
    """
    b = scopes.builder(tag_indices, transition_params)
    tags, params = b.tensor(tag_indices, dtypes.int32), b.tensor(transition_params, None, "transition_params")
    own = gathering.gather_nd(params, arrays.stack([tags[:, :-1], tags[:, 1:]], 2))
    mask = math.cast(_mask(sequence_lengths, tags)[:, 1:], own.dtype.base)
    return reductions.reduce_sum(own * mask, [1])


@in_default_graph
def crf_sequence_score(inputs: Any, tag_indices: Any, sequence_lengths: Any, transition_params: Any) -> Any:
    """Returns the score of sequences of tags: [batch].

    Source: TensorFlow's `tf.contrib.crf.crf_sequence_score`.
    """
    unary = crf_unary_score(tag_indices, sequence_lengths, inputs)
    return unary + crf_binary_score(tag_indices, sequence_lengths, transition_params)


@in_default_graph
def crf_multitag_sequence_score(inputs: Any, tag_bitmap: Any, sequence_lengths: Any, transition_params: Any) -> Any:
    """Returns the logarithm of the sum of exp(score) over sequences of allowed tags: [batch].

    Args:
      inputs, sequence_lengths, transition_params: see `crf_log_norm`.
      tag_bitmap: whether a tag is allowed: booleans [batch, time, tags].

    Source: TensorFlow's `tf.contrib.crf.crf_multitag_sequence_score`.
    """
    least = arrays.fill(arrays.shape(inputs), -np.inf)
    allowed = gathering.where(tag_bitmap, inputs, math.cast(least, inputs.dtype.base))
    return crf_log_norm(allowed, sequence_lengths, transition_params)


@in_default_graph
def crf_forward(inputs: Any, state: Any, transition_params: Any, sequence_lengths: Any) -> Any:
    """Returns log(sum(exp(score))) of all sequences that end in each tag: [batch, tags].

    Args:
      inputs: scores of the steps after the first: [batch, time - 1, tags].
      state: scores of the first step: [batch, tags].
      transition_params: scores of the transitions: [tags, tags].
      sequence_lengths: lengths, that of the first step included: [batch].

    Source: TensorFlow's `tf.contrib.crf.crf_forward`.
    """
    b = scopes.builder(inputs, sequence_lengths)
    lengths = b.tensor(sequence_lengths, None, "sequence_lengths")
    steps = arrays.transpose(inputs, [1, 0, 2])
    times = math.cast(reductions.range(arrays.shape(steps)[0]), lengths.dtype.base) + 1
    params = arrays.expand_dims(transition_params, 0)

    def forward(alphas: Any, step: Any) -> Any:
        time, scores = step
        after = scores + reductions.reduce_logsumexp(arrays.expand_dims(alphas, 2) + params, [1])
        return gathering.where(arrays.expand_dims(time < lengths, 1), after, alphas)

    return functional.foldl(forward, (times, steps), state)


@in_default_graph
def crf_log_norm(inputs: Any, sequence_lengths: Any, transition_params: Any) -> Any:
    """Returns the logarithm of the sum of exp(score) over all sequences of tags: [batch].

    Args:
      inputs: scores of the tags: [batch, time, tags].
      sequence_lengths: lengths: [batch]. The result for a length of 0 is 0.
      transition_params: scores of the transitions: [tags, tags].

    Source: TensorFlow's `tf.contrib.crf.crf_log_norm`.
    """
    b = scopes.builder(inputs, sequence_lengths, transition_params)
    inputs, lengths = b.tensor(inputs, None, "inputs"), b.tensor(sequence_lengths, None, "sequence_lengths")
    params = b.tensor(transition_params, None, "transition_params")
    alphas = crf_forward(inputs[:, 1:], inputs[:, 0], params, lengths)
    found = reductions.reduce_logsumexp(alphas, [1])
    return gathering.where(lengths > 0, found, arrays.zeros_like(found))


@in_default_graph
def crf_log_likelihood(
    inputs: Any, tag_indices: Any, sequence_lengths: Any, transition_params: Any = None
) -> tuple[Any, Any]:
    """Returns the log probability of sequences of tags, and the scores of the transitions.

    Args:
      inputs: scores of the tags: [batch, time, tags].
      tag_indices: the tags: [batch, time].
      sequence_lengths: lengths: [batch].
      transition_params: scores of the transitions [tags, tags]; None: the variable "transitions".

    Source: TensorFlow's `tf.contrib.crf.crf_log_likelihood`.

    Example:
      >>> import headrace.v1 as tf
      >>> with tf.Graph().as_default(), tf.Session() as sess:
      ...     scores, likely = tf.constant([[[5.0, 0.0], [0.0, 5.0]]]), tf.zeros([2, 2])
      ...     found, _ = tf.contrib.crf.crf_log_likelihood(scores, [[0, 1]], [2], likely)
      ...     sess.run(found).round(3).tolist()
      [-0.013000000268220901]
    """
    b = scopes.builder(inputs, transition_params)
    inputs = b.tensor(inputs, None, "inputs")
    if transition_params is None:
        n = inputs.shape[2]
        transition_params = get_variable("transitions", [n, n])
    score = crf_sequence_score(inputs, tag_indices, sequence_lengths, transition_params)
    return score - crf_log_norm(inputs, sequence_lengths, transition_params), transition_params


@in_default_graph
def crf_decode(potentials: Any, transition_params: Any, sequence_length: Any) -> tuple[Any, Any]:
    """Returns the sequences of tags with the highest scores, [batch, time], and the scores, [batch].

    Args:
      potentials: scores of the tags: [batch, time, tags].
      transition_params: scores of the transitions: [tags, tags].
      sequence_length: lengths: [batch]. Tags beyond are 0.

    Source: TensorFlow's `tf.contrib.crf.crf_decode`.
    """
    b = scopes.builder(potentials, transition_params, sequence_length)
    potentials, params = b.tensor(potentials), b.tensor(transition_params, None, "transition_params")
    lengths = b.tensor(sequence_length, None, "sequence_length")
    steps = arrays.transpose(potentials, [1, 0, 2])
    times = math.cast(reductions.range(arrays.shape(steps)[0] - 1), lengths.dtype.base) + 1
    first = steps[0]
    own = arrays.zeros_like(first, dtype=dtypes.int32) + reductions.range(arrays.shape(first)[1])

    def forward(carried: Any, step: Any) -> Any:
        scores, _ = carried
        time, here = step
        paths = arrays.expand_dims(scores, 2) + arrays.expand_dims(params, 0)
        is_in = arrays.expand_dims(time < lengths, 1)
        best = reductions.argmax(paths, 1, output_type=dtypes.int32)
        after = here + reductions.reduce_max(paths, [1])
        return gathering.where(is_in, after, scores), gathering.where(is_in, best, own)

    scores, origins = functional.scan(forward, (times, steps[1:]), (first, own))
    scores = arrays.concat([arrays.expand_dims(first, 0), scores], 0)[-1]
    last = reductions.argmax(scores, 1, output_type=dtypes.int32)

    def backward(tag: Any, origin: Any) -> Any:
        return gathering.gather(origin, tag, axis=1, batch_dims=1)

    before = functional.scan(backward, origins, last, reverse=True)
    tags = arrays.transpose(arrays.concat([before, arrays.expand_dims(last, 0)], 0))
    tags = tags * math.cast(_mask(lengths, potentials), dtypes.int32)
    if potentials.shape is not None:
        tensors.narrow(tags, potentials.shape[:2])
    return tags, reductions.reduce_max(scores, [1])


def viterbi_decode(score: Any, transition_params: Any) -> tuple[list[int], Any]:
    """Returns the sequence of tags with the highest score, and the score, for arrays.

    Args:
      score: scores of the tags: [time, tags].
      transition_params: scores of the transitions: [tags, tags].

    Source: TensorFlow's `tf.contrib.crf.viterbi_decode`.

    Example:
      >>> import headrace.v1 as tf
      >>> tf.contrib.crf.viterbi_decode([[1.0, 0.0], [0.0, 0.5]], [[1.0, 0.0], [0.0, 0.0]])
      ([0, 0], np.float64(2.0))
    """
    score, params = np.asarray(score), np.asarray(transition_params)
    best, origins = score[0], []
    for row in score[1:]:
        paths = best[:, None] + params
        origins.append(np.argmax(paths, 0))
        best = row + np.max(paths, 0)
    tags = [int(np.argmax(best))]
    for origin in reversed(origins):
        tags.append(int(origin[tags[-1]]))
    return tags[::-1], np.max(best)


__all__ = [
    "crf_binary_score", "crf_decode", "crf_forward", "crf_log_likelihood", "crf_log_norm",
    "crf_multitag_sequence_score", "crf_sequence_score", "crf_unary_score", "viterbi_decode",
]  # fmt: skip

if not TYPE_CHECKING:
    __getattr__, __dir__ = equivalents.of(__name__, __all__)
