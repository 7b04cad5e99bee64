"""`sequence_loss` of `tf.contrib.seq2seq`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from headrace.api import arrays, math, nn, reductions, scopes
from headrace.errors import ShapeError
from headrace.v1.graph import in_default_graph


@in_default_graph
def sequence_loss(
    logits: Any,
    targets: Any,
    weights: Any,
    average_across_timesteps: bool = True,
    average_across_batch: bool = True,
    sum_over_timesteps: bool = False,
    sum_over_batch: bool = False,
    softmax_loss_function: Callable[..., Any] | None = None,
    name: str | None = None,
) -> Any:
    """Returns the weighted cross entropy of sequences of classes.

    Args:
      logits: [batch, time, classes].
      targets: ids: [batch, time].
      weights: [batch, time], such as 1 for the steps of an example and 0 for padding.
      average_across_timesteps: whether the loss is divided by the sum of the weights of all steps.
      average_across_batch: whether the loss is divided by the sum of the weights of the batch, or of both together.
      sum_over_timesteps, sum_over_batch: whether the loss is summed along time or the batch, and divided by the number
        of weights above zero.
      softmax_loss_function: a function (labels, logits) that returns losses; None: the sparse cross entropy.
      name: name of the scope.

    Returns:
      A scalar; [time], [batch] or [batch, time] where it is neither averaged nor summed.

    Raises:
      ValueError: a tensor has another rank, or an axis is both averaged and summed.

    Source: TensorFlow's `tf.contrib.seq2seq.sequence_loss`.
    """
    b = scopes.builder(logits, targets, weights)
    logits, targets = b.tensor(logits, None, "logits"), b.tensor(targets, None, "targets")
    weights = b.tensor(weights, None, "weights")
    for what, x, rank in (("Logits", logits, 3), ("Targets", targets, 2), ("Weights", weights, 2)):
        if x.shape is not None and len(x.shape) != rank:
            raise ShapeError(f"{what} must be a {rank}-dimensional tensor, got the shape {x.shape}")
    if average_across_timesteps and sum_over_timesteps:
        raise ValueError("average_across_timesteps and sum_over_timesteps cannot be set to True at same time.")
    if average_across_batch and sum_over_batch:
        raise ValueError("average_across_batch and sum_over_batch cannot be set to True at same time.")
    with scopes.name_scope(name, "sequence_loss", [logits, targets, weights]):
        classes = arrays.shape(logits)[2] if logits.shape is None or logits.shape[2] is None else logits.shape[2]
        flat, labels = arrays.reshape(logits, [-1, classes]), arrays.reshape(targets, [-1])
        if softmax_loss_function is None:
            losses = nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=flat)
        else:
            losses = softmax_loss_function(labels=labels, logits=flat)
        losses = losses * arrays.reshape(weights, [-1])
        tiny = b.const(1e-12, weights.dtype.base)

        def total(axes: list[int] | None) -> Any:
            return reductions.reduce_sum(weights, axes) + tiny

        def count(axes: list[int] | None) -> Any:
            return math.cast(reductions.count_nonzero(weights, axes), losses.dtype.base) + tiny

        if average_across_timesteps and average_across_batch:
            return math.divide(reductions.reduce_sum(losses), total(None))
        if sum_over_timesteps and sum_over_batch:
            return reductions.reduce_sum(losses) / count(None)
        losses = arrays.reshape(losses, arrays.shape(logits)[0:2])
        for axis, averages, sums in (
            (1, average_across_timesteps, sum_over_timesteps), (0, average_across_batch, sum_over_batch)
        ):  # fmt: skip
            if averages or sums:
                at = [axis] if len(losses.shape) == 2 else [0]
                divisor = total([axis]) if averages else count([axis])
                losses = reductions.reduce_sum(losses, at)
                if len(losses.shape) == 1:
                    losses = losses / divisor
                else:
                    losses = losses / reductions.reduce_sum(divisor)
        return losses
