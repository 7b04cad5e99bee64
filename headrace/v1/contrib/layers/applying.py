"""Calls of layers with weights: the scope, the names of variables, normalization and activation."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from headrace.api import scopes
from headrace.v1.contrib.layers import collecting
from headrace.v1.variable_scopes import variable_scope

_NAMES: Final = {
    "kernel": "weights", "bias": "biases", "depthwise_kernel": "depthwise_weights",
    "pointwise_kernel": "pointwise_weights",
}  # fmt: skip


def applied(
    make: Callable[..., Any],
    inputs: Any,
    scope: Any,
    default_name: str,
    reuse: Any,
    variables_collections: Any,
    outputs_collections: Any,
    normalizer_fn: Callable[..., Any] | None,
    normalizer_params: Mapping[str, Any] | None,
    activation_fn: Callable[[Any], Any] | None,
    biases_initializer: Any,
) -> Any:
    """Makes a layer in a variable scope and returns its outputs for `inputs`.

    The variables are called "weights" and "biases". With a normalizer, or without `biases_initializer`, there are no
    biases.

    Args:
      make: a function from further arguments (`use_bias`, `name`, `dtype`, `_scope`, `_reuse`) to the layer.
      inputs: inputs of the layer.
      default_name: name of the scope if `scope` is None.
      biases_initializer: initializer of the biases, or None.
      scope, reuse, variables_collections, outputs_collections, normalizer_fn, normalizer_params, activation_fn: see
        `fully_connected`.
    """
    getter = collecting.getter_of(_NAMES, variables_collections)
    with variable_scope(scope, default_name, [inputs], reuse=reuse, custom_getter=getter) as sc:
        inputs = scopes.builder(inputs).tensor(inputs, None, "inputs")
        has_biases = normalizer_fn is None and biases_initializer is not None
        layer = make(use_bias=has_biases, name=sc.name, dtype=inputs.dtype.base, _scope=sc, _reuse=reuse)
        outputs = layer(inputs)
        if normalizer_fn is not None:
            outputs = normalizer_fn(outputs, **(normalizer_params or {}))
        if activation_fn is not None:
            outputs = activation_fn(outputs)
        return collecting.collect_named_outputs(outputs_collections, sc.name, outputs)
