"""Attention: a weighted mean of values, with weights from the comparison of queries and keys.

A *query* is compared with the *key* of each item. A softmax of the scores gives weights with the sum 1, and the result
is the mean of the *values* with those weights. Masked items have the weight 0; the result for a query with only masked
items is zeros.

`scaled_dot_product_attention` computes this with products of queries and keys as scores. `MultiHeadAttention` does it
several times in parallel, between learned projections. `memory` has the kinds of attention with which one recurrent
network reads the outputs of another.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from headrace import dtypes
from headrace.api import arrays, linalg, math, scopes, tensors
from headrace.api.layers.base import Layer
from headrace.api.nn.activations import softmax
from headrace.api.nn.layers import dropout as dropped
from headrace.errors import ShapeError
from headrace.ir.tensor_type import Tensor


def scaled_dot_product_attention(
    query: Any,
    key: Any,
    value: Any,
    mask: Any = None,
    dropout: Any = 0.0,
    causal: bool = False,
    scale: float | None = None,
    seed: int | None = None,
    name: str | None = None,
) -> Tensor:
    """Computes attention: softmax(query @ keyᵀ * scale) @ value.

    The result for a query is the mean of the values, weighted by the softmax of the products of query and keys.

    Args:
      query: [..., queries, depth] of floats.
      key: [..., keys, depth].
      value: [..., keys, width].
      mask: a tensor that broadcasts to [..., queries, keys]: booleans, True where attention is allowed, or floats that
        are added to the scores. None: no mask.
      dropout: the probability that a weight is set to 0.
      causal: whether query i attends only to keys 0 to i.
      scale: the factor of the scores; None: 1 / sqrt(depth).
      seed: seed of the dropout.
      name: name of the scope; "scaled_dot_product_attention" if None.

    Returns:
      A tensor [..., queries, width]. A query whose keys are all masked by booleans gets zeros.

    Raises:
      ShapeError (a ValueError): the depth is unknown and no scale is given.

    Source: Vaswani et al., "Attention is all you need" (2017).

    Example:
      >>> import headrace as hr
      >>> keys = hr.constant([[9.0, 0.0], [0.0, 9.0]])
      >>> hr.nn.scaled_dot_product_attention(keys * 9.0, keys, [[1.0], [2.0]]).numpy().tolist()
      [[1.0], [2.0]]
    """
    return _attended(query, key, value, mask, dropout, causal, scale, seed, name)[0]


def _attended(
    query: Any, key: Any, value: Any, mask: Any, dropout: Any, causal: bool, scale: float | None, seed: int | None,
    name: str | None = None,
) -> tuple[Any, Any]:  # fmt: skip
    """Computes the result of the attention and its weights."""
    with scopes.name_scope(name, "scaled_dot_product_attention", [query, key, value]):
        b = scopes.builder(query, key, value, mask)
        query = b.tensor(query, None, "query")
        t = query.dtype.base
        key, value = b.tensor(key, t, "key"), b.tensor(value, t, "value")
        if scale is None:
            depth = None if not query.shape else query.shape[-1]
            if depth is None:
                raise ShapeError(f"the depth of queries must be known, or a scale given, got {query!r}")
            scale = 1.0 / float(np.sqrt(max(depth, 1)))
        scores = linalg.matmul(query * scale, key, transpose_b=True)
        allowed = None
        if mask is not None:
            mask = b.tensor(mask, None, "mask")
            if mask.dtype.base is dtypes.bool_:
                allowed = mask
            else:
                scores = scores + mask
        if causal:
            dims = arrays.shape(scores)
            ones = arrays.fill(arrays.stack([dims[-2], dims[-1]]), True)
            past = linalg.band_part(ones, -1, 0)
            allowed = past if allowed is None else math.logical_and(allowed, past)
        weights = masked_softmax(scores, allowed)
        if tensors.is_tensor(dropout) or dropout > 0:
            weights = dropped(weights, dropout, seed=seed)
        return linalg.matmul(weights, value), weights


def masked_softmax(scores: Any, allowed: Any) -> Any:
    """Computes a softmax along the last axis, with weight 0 where `allowed` is False.

    If `allowed` is False for a whole row, all its weights are 0.

    Args:
      scores: a tensor of floats.
      allowed: booleans that broadcast to the shape of `scores`; None: all True.
    """
    if allowed is None:
        return softmax(scores)
    t = scores.dtype.base
    b = scopes.builder(scores, allowed)
    # the least finite number: a softmax of only -infinity is NaN
    least = b.const(np.array(_least(t), t.numpy))
    weights = softmax(b.make("SelectV2", (allowed, scores, least), {}))
    return b.make("SelectV2", (allowed, weights, b.const(0, t)), {})


def _least(t: dtypes.DType) -> float:
    """Returns the least finite number of a floating dtype."""
    import ml_dtypes

    return float(ml_dtypes.finfo(t.numpy).min)


class MultiHeadAttention(Layer):
    """Multi-head attention: attention of several learned projections, and a projection of the results.

    Args:
      num_heads: number of heads.
      key_dim: depth of the queries and keys of a head.
      value_dim: depth of the values of a head; None: `key_dim`.
      output_size: size of the last axis of the result; None: that of the queries.
      dropout: the probability that a weight is set to 0 when the layer is called with `training=True`.
      use_bias: whether the projections have a bias.
      kernel_initializer, bias_initializer: initializers of the projections; see `hr.initializers`.
      seed: seed of the dropout.
      name, trainable, dtype: see `hr.layers.Layer`.

    Variables: query/kernel and key/kernel [inputs, heads, key_dim], value/kernel [inputs, heads, value_dim],
    attention_output/kernel [heads, value_dim, outputs], and a bias for each kernel.

    Source: Vaswani et al., "Attention is all you need" (2017); the variables are those of Keras.

    Example:
      >>> import headrace as hr
      >>> layer = hr.layers.MultiHeadAttention(num_heads=2, key_dim=4)
      >>> y = layer(hr.ones((1, 3, 8)), hr.ones((1, 5, 8)))
      >>> y.shape, layer.variables[0].name, layer.variables[0].shape
      ((1, 3, 8), 'multi_head_attention/query/kernel:0', (8, 2, 4))
    """

    def __init__(
        self,
        num_heads: int,
        key_dim: int,
        value_dim: int | None = None,
        output_size: int | None = None,
        dropout: float = 0.0,
        use_bias: bool = True,
        kernel_initializer: Any = None,
        bias_initializer: Any = "zeros",
        seed: int | None = None,
        name: str | None = None,
        dtype: Any = None,
        trainable: bool = True,
    ) -> None:
        super().__init__(name=name, trainable=trainable, dtype=dtype)
        self._heads, self._key_dim = num_heads, key_dim
        self._value_dim = key_dim if value_dim is None else value_dim
        self._output_size = output_size
        self._dropout, self._seed = dropout, seed
        self._use_bias = use_bias
        self._kernel_initializer, self._bias_initializer = kernel_initializer, bias_initializer

    def __call__(self, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        """Computes `layer(query, value)` or `layer(query, value, key)`; see `call`.

        Raises:
          TypeError: the value is missing.
        """
        if not args:
            raise TypeError(f"'{self.name}' is called with queries and values, and keys if they are others")
        self._note_call(inputs, args, kwargs)
        value, key, *rest = (*args, None) if len(args) == 1 else args
        return super().__call__([inputs, value, value if key is None else key], *rest, **kwargs)

    def build(self, input_shape: Any) -> None:
        """Creates the variables of the projections."""
        depths = []
        for what, shape in zip(("query", "value", "key"), input_shape, strict=True):
            if shape is None or len(shape) < 2 or shape[-1] is None:
                raise ShapeError(f"the {what} of '{self.name}' must be [..., positions, depth], got {shape}")
            depths.append(shape[-1])
        query, value, key = depths
        wide = [("query", query, self._key_dim), ("key", key, self._key_dim), ("value", value, self._value_dim)]
        self._projections = {
            what: self._projection(what, [depth, self._heads, width], [self._heads, width])
            for what, depth, width in wide
        }
        out = query if self._output_size is None else self._output_size
        self._output = self._projection("attention_output", [self._heads, self._value_dim, out], [out])

    def _projection(self, name: str, shape: list[int], bias: list[int]) -> tuple[Any, Any]:
        kernel = self.add_variable(f"{name}/kernel", shape, initializer=self._kernel_initializer)
        if not self._use_bias:
            return kernel, None
        return kernel, self.add_variable(f"{name}/bias", bias, initializer=self._bias_initializer)

    def call(
        self,
        inputs: Any,
        mask: Any = None,
        causal: bool = False,
        training: Any = False,
        return_attention_scores: bool = False,
    ) -> Any:
        """Computes the attention of queries to values.

        Args:
          inputs: a list of query [..., queries, depth], value [..., keys, depth], and key, of the shape of value. The
            caller of the layer gives them as arguments: `layer(query, value, key)`; the key defaults to the value.
          mask: a tensor that broadcasts to [..., queries, keys]; see `hr.nn.scaled_dot_product_attention`.
          causal: whether query i attends only to keys 0 to i.
          training: whether the dropout is active: a bool.
          return_attention_scores: whether to return the weights, [..., heads, queries, keys], too.

        Returns:
          A tensor [..., queries, outputs], or the pair of it and the weights.
        """
        query, value, key = inputs

        def heads(what: str, x: Any) -> Any:
            kernel, bias = self._projections[what]
            y = linalg.einsum("...td,dhk->...htk", x, kernel)
            return y if bias is None else y + arrays.expand_dims(bias, 1)

        if mask is not None:
            mask = arrays.expand_dims(scopes.builder(query).tensor(mask, None, "mask"), -3)
        seen, weights = _attended(
            heads("query", query), heads("key", key), heads("value", value), mask,
            self._dropout if training else 0.0, causal, None, self._seed,
        )  # fmt: skip
        kernel, bias = self._output
        out = linalg.einsum("...htk,hko->...to", seen, kernel)
        out = out if bias is None else out + bias
        return (out, weights) if return_attention_scores else out
