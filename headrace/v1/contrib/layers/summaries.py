"""Summaries of tensors, by `tf.contrib.layers`: a scalar or a histogram of each."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any

from headrace.v1 import nn, summary
from headrace.v1.graph import GraphKeys, get_collection, in_default_graph


@in_default_graph
def summarize_tensor(tensor: Any, tag: str | None = None) -> Any:
    """Returns a summary of a tensor: a scalar or a histogram.

    Source: TensorFlow's `tf.contrib.layers.summarize_tensor`.
    """
    name = tag or tensor.op.name
    is_scalar = tensor.shape is not None and not tensor.shape
    return summary.scalar(name, tensor) if is_scalar else summary.histogram(name, tensor)


@in_default_graph
def summarize_activation(op: Any) -> Any:
    """Returns a histogram of an activation; of a ReLU, also its fraction of zeros.

    Source: TensorFlow's `tf.contrib.layers.summarize_activation`.
    """
    if op.op.type in ("Relu", "Softplus", "Relu6"):
        summary.scalar(f"{op.op.name}/zeros", nn.zero_fraction(op))
    return summary.histogram(f"{op.op.name}/activation", op)


def summarize_tensors(tensors: Iterable[Any], summarizer: Callable[[Any], Any] = summarize_tensor) -> list[Any]:
    """Returns the summaries of tensors.

    Source: TensorFlow's `tf.contrib.layers.summarize_tensors`.
    """
    return [summarizer(t) for t in tensors]


def summarize_collection(
    collection: Any, name_filter: str | None = None, summarizer: Callable[[Any], Any] = summarize_tensor
) -> list[Any]:
    """Returns the summaries of a collection's tensors, of those whose names match a pattern.

    Source: TensorFlow's `tf.contrib.layers.summarize_collection`.
    """
    return summarize_tensors(get_collection(collection, name_filter), summarizer)


summarize_variables = functools.partial(summarize_collection, GraphKeys.GLOBAL_VARIABLES)
summarize_weights = functools.partial(summarize_collection, GraphKeys.WEIGHTS)
summarize_biases = functools.partial(summarize_collection, GraphKeys.BIASES)


def summarize_activations(
    name_filter: str | None = None, summarizer: Callable[[Any], Any] = summarize_activation
) -> list[Any]:
    """Returns the summaries of GraphKeys.ACTIVATIONS. See `summarize_collection`.

    Source: TensorFlow's `tf.contrib.layers.summarize_activations`.
    """
    return summarize_collection(GraphKeys.ACTIVATIONS, name_filter, summarizer)
