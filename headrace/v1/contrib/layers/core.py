"""Layers of `tf.contrib.layers` without windows: dense ones, embeddings, and layers without variables."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from headrace import dtypes
from headrace.api import arrays, initializers, math, nn, reductions, scopes
from headrace.api.nn import embedding
from headrace.errors import ShapeError
from headrace.v1 import layers as v1_layers
from headrace.v1.contrib.framework.arg_scope import add_arg_scope
from headrace.v1.contrib.framework.variables import model_variable
from headrace.v1.contrib.layers import collecting
from headrace.v1.contrib.layers.applying import applied
from headrace.v1.contrib.layers.initializers import xavier_initializer
from headrace.v1.contrib.layers.normalization import channels_axis
from headrace.v1.graph import in_default_graph
from headrace.v1.variable_scopes import variable_scope

_XAVIER, _ZEROS = xavier_initializer(), initializers.zeros()


@add_arg_scope
@in_default_graph
def fully_connected(
    inputs: Any,
    num_outputs: int,
    activation_fn: Callable[[Any], Any] | None = nn.relu,
    normalizer_fn: Callable[..., Any] | None = None,
    normalizer_params: Mapping[str, Any] | None = None,
    weights_initializer: Any = _XAVIER,
    weights_regularizer: Any = None,
    biases_initializer: Any = _ZEROS,
    biases_regularizer: Any = None,
    reuse: Any = None,
    variables_collections: Any = None,
    outputs_collections: Any = None,
    trainable: bool = True,
    scope: Any = None,
) -> Any:
    """Returns inputs @ weights + biases, normalized and with an activation.

    Variables: weights [inputs, num_outputs] and biases [num_outputs], in the scope "fully_connected".

    Args:
      inputs: floats [..., size], of known size.
      num_outputs: number of outputs.
      activation_fn: a function of the result; None: none.
      normalizer_fn: a function that is used in place of biases, such as `batch_norm`.
      normalizer_params: arguments of `normalizer_fn`, a dict.
      weights_initializer, weights_regularizer, biases_initializer, biases_regularizer: see `tf.get_variable`. Without
        `biases_initializer` there are no biases.
      reuse: whether the variables are found and not made; see `tf.variable_scope`.
      variables_collections: collections of the variables, or a dict of them for "weights" and "biases".
      outputs_collections: collections of the result.
      trainable: whether the variables are trained.
      scope: variable scope, or its name.

    Source: TensorFlow's `tf.contrib.layers.fully_connected`.

    Example:
      >>> import headrace.v1 as tf
      >>> with tf.Graph().as_default():
      ...     y = tf.contrib.layers.fully_connected(tf.ones([2, 3]), 4, normalizer_fn=tf.contrib.layers.batch_norm)
      ...     [v.op.name for v in tf.trainable_variables()]
      ['fully_connected/weights', 'fully_connected/BatchNorm/beta']
    """
    make = functools.partial(
        v1_layers.Dense, int(num_outputs), kernel_initializer=weights_initializer,
        bias_initializer=biases_initializer, kernel_regularizer=weights_regularizer,
        bias_regularizer=biases_regularizer, trainable=trainable,
    )  # fmt: skip
    return applied(
        make, inputs, scope, "fully_connected", reuse, variables_collections, outputs_collections, normalizer_fn,
        normalizer_params, activation_fn, biases_initializer,
    )  # fmt: skip


linear = functools.partial(fully_connected, activation_fn=None)
relu = functools.partial(fully_connected, activation_fn=nn.relu)
relu6 = functools.partial(fully_connected, activation_fn=nn.relu6)


@add_arg_scope
@in_default_graph
def bias_add(
    inputs: Any,
    activation_fn: Callable[[Any], Any] | None = None,
    initializer: Any = _ZEROS,
    regularizer: Any = None,
    reuse: Any = None,
    variables_collections: Any = None,
    outputs_collections: Any = None,
    trainable: bool = True,
    data_format: str = "NHWC",
    scope: Any = None,
) -> Any:
    """Adds a variable to each channel; it is called "biases", in the scope "BiasAdd".

    Source: TensorFlow's `tf.contrib.layers.bias_add`.
    """
    with variable_scope(scope, "BiasAdd", [inputs], reuse=reuse) as sc:
        inputs = scopes.builder(inputs).tensor(inputs, None, "inputs")
        if inputs.shape is None:
            raise ShapeError("Dims of shape must be known but is None")
        size = inputs.shape[channels_axis(data_format, len(inputs.shape))]
        biases = model_variable(
            "biases", [size], inputs.dtype.base, initializer, regularizer, trainable,
            collecting.collections_of(variables_collections, "biases"),
        )  # fmt: skip
        outputs = nn.bias_add(inputs, biases, "NC..." if data_format.startswith("NC") else None)
        outputs = outputs if activation_fn is None else activation_fn(outputs)
        return collecting.collect_named_outputs(outputs_collections, sc.name, outputs)


@add_arg_scope
@in_default_graph
def dropout(
    inputs: Any,
    keep_prob: Any = 0.5,
    noise_shape: Any = None,
    is_training: Any = True,
    outputs_collections: Any = None,
    scope: Any = None,
    seed: int | None = None,
) -> Any:
    """Sets elements to 0 with probability 1 - `keep_prob` in training, and scales the others.

    Source: TensorFlow's `tf.contrib.layers.dropout`.
    """
    with variable_scope(scope, "Dropout", [inputs]) as sc:
        layer = v1_layers.Dropout(1 - keep_prob, noise_shape, seed, name=sc.name, _scope=sc)
        return collecting.collect_named_outputs(outputs_collections, sc.name, layer(inputs, training=is_training))


@add_arg_scope
@in_default_graph
def flatten(inputs: Any, outputs_collections: Any = None, scope: str | None = None) -> Any:
    """Returns the inputs as a matrix with a row for each example.

    Source: TensorFlow's `tf.contrib.layers.flatten`.
    """
    with scopes.name_scope(scope, "Flatten", [inputs]) as sc:
        outputs = v1_layers.flatten(inputs)
        return collecting.collect_named_outputs(outputs_collections, sc, outputs)


@add_arg_scope
@in_default_graph
def one_hot_encoding(
    labels: Any,
    num_classes: int,
    on_value: Any = 1.0,
    off_value: Any = 0.0,
    outputs_collections: Any = None,
    scope: str | None = None,
) -> Any:
    """Returns one-hot vectors of labels.

    Source: TensorFlow's `tf.contrib.layers.one_hot_encoding`.
    """
    with scopes.name_scope(scope, "OneHotEncoding", [labels, num_classes]) as sc:
        labels = scopes.builder(labels).tensor(labels, None, "labels")
        if labels.dtype.base is dtypes.int32:
            labels = math.cast(labels, dtypes.int64)
        outputs = arrays.one_hot(labels, num_classes, on_value, off_value)
        return collecting.collect_named_outputs(outputs_collections, sc, outputs)


@in_default_graph
def softmax(logits: Any, scope: Any = None) -> Any:
    """Returns the softmax along the last axis.

    Source: TensorFlow's `tf.contrib.layers.softmax`.
    """
    with variable_scope(scope, "softmax", [logits]):
        return nn.softmax(logits)


@add_arg_scope
@in_default_graph
def spatial_softmax(
    features: Any,
    temperature: Any = None,
    name: str | None = None,
    variables_collections: Any = None,
    trainable: bool = True,
    data_format: str = "NHWC",
) -> Any:
    """Returns the expected place of a softmax over the pixels of each channel.

    Args:
      features: floats [batch, height, width, channels], or in the layout of `data_format`.
      temperature: divisor of the features: a number or a scalar; None: a variable "temperature" that is 1 at first.
      name: name of the variable scope; None: "spatial_softmax".
      variables_collections: collections of the variable.
      trainable: whether the variable is trained.
      data_format: "NHWC" or "NCHW".

    Returns:
      [batch, channels * 2]: x and y of each channel.

    Raises:
      ValueError: the number of channels is unknown, or the data format is another one.

    Source: TensorFlow's `tf.contrib.layers.spatial_softmax`; Finn et al., "Deep spatial autoencoders" (2016).
    """
    with variable_scope(name, "spatial_softmax"):
        features = scopes.builder(features).tensor(features, None, "features")
        if features.shape is None or len(features.shape) != 4 or data_format not in ("NHWC", "NCHW"):
            raise ShapeError(f"spatial_softmax takes images in the layout NHWC or NCHW, got {features!r}")
        if data_format == "NHWC":
            features = arrays.transpose(features, (0, 3, 1, 2))
        dims = arrays.shape(features)
        channels, height, width = (dims[k] if n is None else n for k, n in enumerate(features.shape[1:], 1))
        if features.shape[1] is None:
            raise ShapeError("The num_channels dimension of the inputs to `spatial_softmax` should be defined.")
        kept = collecting.collections_of(variables_collections, "temperature")
        if temperature is None:
            first = initializers.ones()
            temperature = model_variable("temperature", [], dtypes.float32, first, None, trainable, kept)
        scores = arrays.reshape(features, [-1, math.multiply(height, width)]) / temperature
        weights = nn.softmax(scores)
        xs, ys = (reductions.linspace(-1.0, 1.0, n) for n in (width, height))
        places = arrays.meshgrid(xs, ys)
        means = [reductions.reduce_sum(weights * arrays.reshape(p, [-1]), [1], keepdims=True) for p in places]
        return arrays.reshape(arrays.concat(means, 1), [-1, channels * 2])


@add_arg_scope
@in_default_graph
def maxout(inputs: Any, num_units: int, axis: int = -1, scope: str | None = None) -> Any:
    """Returns the maxima of groups of channels.

    Raises:
      ValueError: the number of channels is no multiple of `num_units`.

    Source: TensorFlow's `tf.contrib.layers.maxout`; Goodfellow et al., "Maxout networks" (2013).
    """
    with scopes.name_scope(scope, "MaxOut", [inputs]):
        inputs = scopes.builder(inputs).tensor(inputs, None, "inputs")
        n = inputs.shape[axis]
        if n is None or n % num_units:
            raise ValueError(f"number of features({n}) is not a multiple of num_units({num_units})")
        sizes = [arrays.shape(inputs)[i] if d is None else d for i, d in enumerate(inputs.shape)]
        at = axis % len(sizes)
        grouped = arrays.reshape(inputs, [*sizes[:at], num_units, n // num_units, *sizes[at + 1 :]])
        return reductions.reduce_max(grouped, [at + 1])


def _name_of(layer: Any, default: str) -> str:
    name = getattr(layer, "__name__", None) or getattr(getattr(layer, "func", None), "__name__", None)
    return str(name or default)


@add_arg_scope
@in_default_graph
def repeat(inputs: Any, repetitions: int, layer: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Applies a layer several times, each with its own variables.

    Args:
      inputs: inputs of the first layer.
      repetitions: number of layers.
      layer: a function of the inputs, with an argument `scope`. The scopes are "name_1", "name_2" and so on.
      *args, **kwargs: further arguments of the layer; `scope` is the scope around and the name.

    Source: TensorFlow's `tf.contrib.layers.repeat`.
    """
    scope = kwargs.pop("scope", None)
    with variable_scope(scope, "Repeat", [inputs]):
        name = _name_of(layer, "repeat") if scope is None else scope
        outputs = scopes.builder(inputs).tensor(inputs)
        for i in range(repetitions):
            outputs = layer(outputs, *args, **{**kwargs, "scope": f"{name}_{i + 1}"})
        return outputs


@add_arg_scope
@in_default_graph
def stack(inputs: Any, layer: Callable[..., Any], stack_args: Sequence[Any], **kwargs: Any) -> Any:
    """Applies a layer several times, each with other arguments.

    Args:
      inputs: inputs of the first layer.
      layer: a function of the inputs, with an argument `scope`. The scopes are "name_1", "name_2" and so on.
      stack_args: for each layer an argument, or a list or tuple of them.
      **kwargs: arguments of all layers; `scope` and `reuse` are those of the scope around.

    Raises:
      ValueError: `reuse` is given without a scope.

    Source: TensorFlow's `tf.contrib.layers.stack`.
    """
    scope, reuse = kwargs.pop("scope", None), kwargs.pop("reuse", None)
    if scope is None and reuse:
        raise ValueError("reuse cannot be True without also passing a scope")
    with variable_scope(scope, "Stack", [inputs], reuse=reuse):
        name = _name_of(layer, "stack") if scope is None else scope
        outputs = scopes.builder(inputs).tensor(inputs)
        for i, given in enumerate(stack_args):
            own = given if isinstance(given, (list, tuple)) else [given]
            outputs = layer(outputs, *own, **{**kwargs, "scope": f"{name}_{i + 1}"})
        return outputs


@in_default_graph
def embed_sequence(
    ids: Any,
    vocab_size: int | None = None,
    embed_dim: int | None = None,
    unique: bool = False,
    initializer: Any = None,
    regularizer: Any = None,
    trainable: bool = True,
    scope: Any = None,
    reuse: Any = None,
) -> Any:
    """Returns the embeddings of ids: [..., embed_dim]. The variable is "embeddings", in "EmbedSequence".

    Args:
      ids: integers [batch, time].
      vocab_size, embed_dim: sizes of the variable; not needed with `reuse`.
      unique: accepted as in TensorFlow; equal ids are looked up once for each occurrence.
      initializer, regularizer, trainable, scope, reuse: see `tf.get_variable`.

    Raises:
      ValueError: a size is missing.

    Source: TensorFlow's `tf.contrib.layers.embed_sequence`.
    """
    if not (reuse or (vocab_size and embed_dim)):
        raise ValueError(
            f"Must specify vocab size and embedding dimension when not reusing. Got {vocab_size}, {embed_dim}"
        )
    with variable_scope(scope, "EmbedSequence", [ids], reuse=reuse):
        shape = [vocab_size, embed_dim] if vocab_size and embed_dim else None
        table = model_variable("embeddings", shape, dtypes.float32, initializer, regularizer, trainable)
        return embedding.rows(table, ids)


@in_default_graph
def embedding_lookup_unique(params: Any, ids: Any, partition_strategy: str = "mod", name: str | None = None) -> Any:
    """Returns the rows of ids, as `tf.nn.embedding_lookup`.

    Source: TensorFlow's `tf.contrib.layers.embedding_lookup_unique`.
    """
    return embedding.rows(params, ids, partition_strategy, name)


safe_embedding_lookup_sparse = in_default_graph(nn.safe_embedding_lookup_sparse)
