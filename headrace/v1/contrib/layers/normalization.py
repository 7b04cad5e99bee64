"""Normalization in `tf.contrib.layers`: over the batch, the example, the channels or groups of channels."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from headrace import dtypes
from headrace.api import arrays, initializers, math, nn, reductions, scopes, tensors
from headrace.api.layers import base
from headrace.errors import ShapeError, UnimplementedError
from headrace.v1 import layers as v1_layers
from headrace.v1.contrib.framework.arg_scope import add_arg_scope
from headrace.v1.contrib.framework.variables import model_variable
from headrace.v1.contrib.layers import collecting
from headrace.v1.graph import GraphKeys, get_default_graph, in_default_graph
from headrace.v1.variable_scopes import variable_scope


class _BatchNormalization(v1_layers.BatchNormalization):  # type: ignore[misc]
    """Batch normalization whose updates go into the collections of `batch_norm` alone."""

    add_update = base.Layer.add_update


def _finished(outputs: Any, activation_fn: Any, outputs_collections: Any, scope: Any) -> Any:
    outputs = outputs if activation_fn is None else activation_fn(outputs)
    return collecting.collect_named_outputs(outputs_collections, scope.name, outputs)


def channels_axis(data_format: str | None, rank: int) -> int:
    """Returns the axis of the channels in a layout.

    Args:
      data_format: None, or a layout that begins with "NC" or ends in "C".
      rank: number of axes.

    Raises:
      ValueError: the layout is another one.
    """
    if data_format is not None and not (data_format.startswith("NC") or data_format.endswith("C")):
        raise ValueError(f"data_format has to be either NCHW or NHWC, got {data_format!r}")
    return 1 if data_format is not None and data_format.startswith("NC") and data_format != "NC" else rank - 1


@add_arg_scope
@in_default_graph
def batch_norm(
    inputs: Any,
    decay: float = 0.999,
    center: bool = True,
    scale: bool = False,
    epsilon: float = 0.001,
    activation_fn: Callable[[Any], Any] | None = None,
    param_initializers: Mapping[str, Any] | None = None,
    param_regularizers: Mapping[str, Any] | None = None,
    updates_collections: Any = GraphKeys.UPDATE_OPS,
    is_training: Any = True,
    reuse: Any = None,
    variables_collections: Any = None,
    outputs_collections: Any = None,
    trainable: bool = True,
    batch_weights: Any = None,
    fused: bool | None = None,
    data_format: str | None = "NHWC",
    zero_debias_moving_mean: bool = False,
    scope: Any = None,
    renorm: bool = False,
    renorm_clipping: Any = None,
    renorm_decay: float = 0.99,
    adjustment: Any = None,
) -> Any:
    """Normalizes each channel to mean 0 and variance 1 over the batch.

    Variables: beta, gamma (with `scale`), moving_mean and moving_variance, in the scope "BatchNorm".

    Args:
      inputs: floats with two axes at least.
      decay: decay of the moving averages.
      center: whether beta is added.
      scale: whether the result is multiplied by gamma.
      epsilon: a number that is added to the variance.
      activation_fn: a function of the result.
      param_initializers: initializers of beta, gamma, moving_mean and moving_variance by name.
      param_regularizers: regularizers of beta and gamma by name.
      updates_collections: collections for the operations that update the moving averages. None: the result waits for
        them.
      is_training: whether the statistics are those of the batch: a bool or a boolean scalar.
      fused: see `headrace.layers.BatchNormalization`.
      data_format: "NHWC" or "NCHW".
      batch_weights, zero_debias_moving_mean, renorm, renorm_clipping, renorm_decay, adjustment: only the defaults.
      reuse, variables_collections, outputs_collections, trainable, scope: see `fully_connected`.

    Raises:
      UnimplementedError: an argument has a value that is not supported.

    Source: TensorFlow's `tf.contrib.layers.batch_norm`; Ioffe and Szegedy, "Batch normalization" (2015).
    """
    refused = {
        "batch_weights": batch_weights, "zero_debias_moving_mean": zero_debias_moving_mean or None,
        "renorm": renorm or None, "renorm_clipping": renorm_clipping, "adjustment": adjustment,
    }  # fmt: skip
    for what, value in refused.items():
        if value is not None:
            raise UnimplementedError(f"batch_norm({what}={value!r}): headrace has plain batch normalization alone")
    first, losses = param_initializers or {}, param_regularizers or {}
    getter = collecting.getter_of({}, variables_collections)
    with variable_scope(scope, "BatchNorm", [inputs], reuse=reuse, custom_getter=getter) as sc:
        inputs = scopes.builder(inputs).tensor(inputs, None, "inputs")
        if inputs.shape is None:
            raise ShapeError(f"Inputs {inputs.name} has undefined rank")
        layer = _BatchNormalization(
            axis=channels_axis(data_format, len(inputs.shape)),
            momentum=decay,
            epsilon=epsilon,
            center=center,
            scale=scale,
            beta_initializer=first.get("beta", initializers.zeros),
            gamma_initializer=first.get("gamma", initializers.ones),
            moving_mean_initializer=first.get("moving_mean", initializers.zeros),
            moving_variance_initializer=first.get("moving_variance", initializers.ones),
            beta_regularizer=losses.get("beta"),
            gamma_regularizer=losses.get("gamma"),
            fused=fused,
            trainable=trainable,
            name=sc.name,
            dtype=inputs.dtype.base,
            _scope=sc,
            _reuse=reuse,
        )
        outputs = layer(inputs, training=is_training)
        if updates_collections is None:
            with scopes.control_dependencies(layer.updates):
                outputs = tensors.identity(outputs)
        else:
            names = [updates_collections] if isinstance(updates_collections, str) else updates_collections
            for update in layer.updates:
                get_default_graph().add_to_collections(names, update)
        return _finished(outputs, activation_fn, outputs_collections, sc)


def _parameters(
    sizes: Sequence[int], dtype: Any, center: bool, scale: bool, collections: Any, trainable: bool
) -> tuple[Any, Any]:
    """Returns beta and gamma, each None if it is not wanted."""
    made = []
    for name, wanted, first in (("beta", center, initializers.zeros()), ("gamma", scale, initializers.ones())):
        kept = collecting.collections_of(collections, name)
        made.append(
            model_variable(name, list(sizes), dtype, first, trainable=trainable, collections=kept) if wanted else None
        )
    return made[0], made[1]


def _known(what: str, dims: Sequence[int | None]) -> list[int]:
    found = [d for d in dims if d is not None]
    if len(found) < len(dims):
        raise ShapeError(f"{what} must be known when the graph is built, got {list(dims)}")
    return found


@add_arg_scope
@in_default_graph
def layer_norm(
    inputs: Any,
    center: bool = True,
    scale: bool = True,
    activation_fn: Callable[[Any], Any] | None = None,
    reuse: Any = None,
    variables_collections: Any = None,
    outputs_collections: Any = None,
    trainable: bool = True,
    begin_norm_axis: int = 1,
    begin_params_axis: int = -1,
    scope: Any = None,
) -> Any:
    """Normalizes each example to mean 0 and variance 1.

    Variables: beta and gamma, in the scope "LayerNorm".

    Args:
      inputs: floats of known rank.
      center: whether beta is added.
      scale: whether the result is multiplied by gamma.
      activation_fn: a function of the result.
      begin_norm_axis: first of the axes over which the statistics are taken.
      begin_params_axis: first of the axes of beta and gamma.
      reuse, variables_collections, outputs_collections, trainable, scope: see `fully_connected`.

    Raises:
      ValueError: the rank of the inputs or a size of beta and gamma is unknown, or an axis is not one of theirs.

    Source: TensorFlow's `tf.contrib.layers.layer_norm`; Ba, Kiros and Hinton, "Layer normalization" (2016).
    """
    with variable_scope(scope, "LayerNorm", [inputs], reuse=reuse) as sc:
        inputs = scopes.builder(inputs).tensor(inputs, None, "inputs")
        if inputs.shape is None:
            raise ShapeError(f"Inputs {inputs.name} has undefined rank.")
        rank = len(inputs.shape)
        first = begin_norm_axis + rank if begin_norm_axis < 0 else begin_norm_axis
        params = begin_params_axis + rank if begin_params_axis < 0 else begin_params_axis
        if not 0 <= first < rank or not 0 <= params < rank:
            raise ShapeError(
                f"begin_params_axis ({begin_params_axis}) and begin_norm_axis ({begin_norm_axis}) must be < "
                f"rank(inputs) ({rank})"
            )
        sizes = _known("the sizes of gamma and beta", inputs.shape[params:])
        beta, gamma = _parameters(sizes, inputs.dtype.base, center, scale, variables_collections, trainable)
        mean, variance = nn.moments(inputs, list(range(first, rank)), keepdims=True)
        epsilon = 1e-3 if inputs.dtype.base is dtypes.float16 else 1e-12
        outputs = nn.batch_normalization(inputs, mean, variance, beta, gamma, epsilon)
        tensors.narrow(outputs, inputs.shape)
        return _finished(outputs, activation_fn, outputs_collections, sc)


@add_arg_scope
@in_default_graph
def instance_norm(
    inputs: Any,
    center: bool = True,
    scale: bool = True,
    epsilon: float = 1e-6,
    activation_fn: Callable[[Any], Any] | None = None,
    param_initializers: Mapping[str, Any] | None = None,
    reuse: Any = None,
    variables_collections: Any = None,
    outputs_collections: Any = None,
    trainable: bool = True,
    data_format: str = "NHWC",
    scope: Any = None,
) -> Any:
    """Normalizes each channel of each example to mean 0 and variance 1.

    Variables: beta and gamma, in the scope "InstanceNorm". The arguments are those of `group_norm`, without groups.

    Source: TensorFlow's `tf.contrib.layers.instance_norm`; Ulyanov et al., "Instance normalization" (2016).
    """
    with variable_scope(scope, "InstanceNorm", [inputs], reuse=reuse) as sc:
        inputs = scopes.builder(inputs).tensor(inputs, None, "inputs")
        if inputs.shape is None:
            raise ShapeError(f"Inputs {inputs.name} has undefined rank.")
        rank = len(inputs.shape)
        channels = channels_axis(data_format, rank)
        axes = [i for i in range(1, rank) if i != channels]
        outputs = _normalized(
            inputs, axes, channels, epsilon, center, scale, param_initializers, variables_collections, trainable
        )
        return _finished(outputs, activation_fn, outputs_collections, sc)


def _normalized(
    inputs: Any,
    axes: Sequence[int],
    channels: int,
    epsilon: float,
    center: bool,
    scale: bool,
    param_initializers: Mapping[str, Any] | None,
    collections: Any,
    trainable: bool,
    groups: int | None = None,
) -> Any:
    """Returns inputs normalized over axes, and over groups of channels."""
    (size,) = _known("the number of channels", inputs.shape[channels : channels + 1])
    first = {"beta": initializers.zeros(), "gamma": initializers.ones(), **(param_initializers or {})}
    params = {
        name: model_variable(
            name, [size], inputs.dtype.base, first[name], trainable=trainable,
            collections=collecting.collections_of(collections, name),
        )
        for name, wanted in (("beta", center), ("gamma", scale)) if wanted
    }  # fmt: skip
    shape, dims = inputs.shape, [size if i == channels else 1 for i in range(len(inputs.shape))]
    x, over = inputs, list(axes)
    if groups is not None:
        dynamic = arrays.shape(inputs)
        parts: list[Any] = [dynamic[i] if n is None else n for i, n in enumerate(shape)]
        x = arrays.reshape(inputs, [*parts[:channels], groups, size // groups, *parts[channels + 1 :]])
        over = [i + (i > channels) for i in axes] + [channels + 1]
        dims = [*dims[:channels], groups, size // groups, *dims[channels + 1 :]]
    broad = {name: arrays.reshape(v, dims) for name, v in params.items()}
    mean, variance = nn.moments(x, over, keepdims=True)
    made = nn.batch_normalization(x, mean, variance, broad.get("beta"), broad.get("gamma"), epsilon)
    outputs = made if groups is None else arrays.reshape(made, arrays.shape(inputs))
    tensors.narrow(outputs, shape)
    return outputs


@add_arg_scope
@in_default_graph
def group_norm(
    inputs: Any,
    groups: int = 32,
    channels_axis: int = -1,
    reduction_axes: Sequence[int] = (-3, -2),
    center: bool = True,
    scale: bool = True,
    epsilon: float = 1e-6,
    activation_fn: Callable[[Any], Any] | None = None,
    param_initializers: Mapping[str, Any] | None = None,
    reuse: Any = None,
    variables_collections: Any = None,
    outputs_collections: Any = None,
    trainable: bool = True,
    scope: Any = None,
    mean_close_to_zero: bool = False,
) -> Any:
    """Normalizes groups of channels of each example to mean 0 and variance 1.

    Variables: beta and gamma, in the scope "GroupNorm".

    Args:
      inputs: floats of known rank, with a known number of channels.
      groups: number of groups, a divisor of the number of channels.
      channels_axis: axis of the channels.
      reduction_axes: axes over which the statistics are taken, besides the channels of a group.
      center: whether beta is added.
      scale: whether the result is multiplied by gamma.
      epsilon: a number that is added to the variance.
      activation_fn: a function of the result.
      param_initializers: initializers of beta and gamma by name.
      mean_close_to_zero: accepted as in TensorFlow, without effect.
      reuse, variables_collections, outputs_collections, trainable, scope: see `fully_connected`.

    Raises:
      ValueError: the channels cannot be divided into the groups, or are among `reduction_axes`.

    Source: TensorFlow's `tf.contrib.layers.group_norm`; Wu and He, "Group normalization" (2018).
    """
    with variable_scope(scope, "GroupNorm", [inputs], reuse=reuse) as sc:
        inputs = scopes.builder(inputs).tensor(inputs, None, "inputs")
        if inputs.shape is None:
            raise ShapeError(f"Inputs {inputs.name} has undefined rank.")
        rank = len(inputs.shape)
        at, axes = channels_axis % rank, [a % rank for a in reduction_axes]
        (size,) = _known("the number of channels", inputs.shape[at : at + 1])
        if at in axes:
            raise ValueError(f"reduction_axes {list(reduction_axes)} must not contain channels_axis {channels_axis}")
        if groups > size or size % groups:
            raise ValueError(f"{size} channels is not commensurate with {groups} groups.")
        outputs = _normalized(
            inputs, axes, at, epsilon, center, scale, param_initializers, variables_collections, trainable, groups
        )
        return _finished(outputs, activation_fn, outputs_collections, sc)


@add_arg_scope
@in_default_graph
def unit_norm(inputs: Any, dim: int, epsilon: float = 1e-7, scope: str | None = None) -> Any:
    """Divides the inputs by their norm along an axis.

    Source: TensorFlow's `tf.contrib.layers.unit_norm`.
    """
    with scopes.name_scope(scope, "UnitNorm", [inputs]):
        if inputs.shape is None or not -len(inputs.shape) <= dim < len(inputs.shape):
            raise ValueError(f"dim must be an axis of the inputs, got {dim} for {inputs!r}")
        squares = reductions.reduce_sum(math.square(inputs), [dim], keepdims=True)
        return inputs * math.rsqrt(math.add(squares, epsilon))
