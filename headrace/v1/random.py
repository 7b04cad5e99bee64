"""Random ops with TensorFlow 1's seeds: the same seeds in the same place of a graph draw the same numbers.

Source: TensorFlow's `random_normal` and its like. Names and the order of the operations are TensorFlow's too, because
the seed of an op that was given none comes from its place in the graph.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from headrace import dtypes
from headrace.build import scopes
from headrace.dtypes import as_dtype
from headrace.ir.builder import Builder
from headrace.ir.graph import Tensor
from headrace.v1.graph import get_seed, in_default_graph
from headrace.v1.tensor_shape import TensorShape


def seeds(seed: int | None) -> dict[str, int]:
    """The attributes `seed` and `seed2` of an op that is given `seed`."""
    first, second = get_seed(seed)
    return {"seed": first or 0, "seed2": second or 0}


def shape_tensor(b: Builder, shape: Any) -> Tensor:
    """A shape as an integer vector; numbers become an int32 constant."""
    if isinstance(shape, TensorShape):
        shape = shape.as_list()
    if isinstance(shape, (list, tuple)):
        shape = [getattr(d, "value", d) for d in shape]
    if isinstance(shape, (list, tuple)) and not shape:
        return b.const(np.zeros(0, np.int32), name="shape")
    made: Tensor = b.tensor(shape, name="shape")
    return made


def _normal(
    op: str, default: str, shape: Any, mean: Any, stddev: Any, dtype: Any, seed: int | None, name: str | None
) -> Tensor:
    dtype = as_dtype(dtype)
    with scopes.name_scope(name, default, [shape, mean, stddev]) as scope:
        b = scopes.builder()
        dims = shape_tensor(b, shape)
        mean, stddev = b.tensor(mean, dtype, "mean"), b.tensor(stddev, dtype, "stddev")
        drawn = b.make(op, (dims,), {"dtype": dtype, **seeds(seed)})
        made: Tensor = b.AddV2(b.Mul(drawn, stddev, name="mul"), mean, name=scope)
        return made


@in_default_graph
def random_normal(
    shape: Any,
    mean: Any = 0.0,
    stddev: Any = 1.0,
    dtype: Any = dtypes.float32,
    seed: int | None = None,
    name: str | None = None,
) -> Tensor:
    """Normally distributed numbers.

    Args:
      shape: numbers, or an integer vector.
      mean, stddev: of the distribution; broadcast to the shape.
      dtype: a float.
      seed: with the graph's (`set_random_seed`) what decides the numbers.
      name: name of the scope.

    Source: TensorFlow's `tf.random_normal`.
    """
    return _normal("RandomStandardNormal", "random_normal", shape, mean, stddev, dtype, seed, name)


@in_default_graph
def truncated_normal(
    shape: Any,
    mean: Any = 0.0,
    stddev: Any = 1.0,
    dtype: Any = dtypes.float32,
    seed: int | None = None,
    name: str | None = None,
) -> Tensor:
    """Normally distributed numbers, none of them farther than two deviations from the mean. See `random_normal`.

    Source: TensorFlow's `tf.truncated_normal`.
    """
    return _normal("TruncatedNormal", "truncated_normal", shape, mean, stddev, dtype, seed, name)


@in_default_graph
def random_uniform(
    shape: Any,
    minval: Any = 0,
    maxval: Any = None,
    dtype: Any = dtypes.float32,
    seed: int | None = None,
    name: str | None = None,
) -> Tensor:
    """Numbers evenly distributed over [minval, maxval).

    Args:
      shape: numbers, or an integer vector.
      minval, maxval: the limits; `maxval` None means 1, which only floats allow.
      dtype: a float, int32 or int64.
      seed: with the graph's (`set_random_seed`) what decides the numbers.
      name: name of the scope.

    Raises:
      ValueError: integers without `maxval`.

    Source: TensorFlow's `tf.random_uniform`.
    """
    dtype = as_dtype(dtype)
    if maxval is None:
        if dtype.is_integer:
            raise ValueError("Must specify maxval for integer dtype %s" % dtype.name)
        maxval = 1
    unit = type(minval) is int and minval == 0, type(maxval) is int and maxval == 1
    with scopes.name_scope(name, "random_uniform", [shape, minval, maxval]) as scope:
        b = scopes.builder()
        dims = shape_tensor(b, shape)
        if not all(unit) or dtype.is_integer:
            minval, maxval = b.tensor(minval, dtype, "min"), b.tensor(maxval, dtype, "max")
        attrs = seeds(seed)
        if dtype.is_integer:
            return b.make("RandomUniformInt", (dims, minval, maxval), attrs, scope)  # type: ignore[no-any-return]
        drawn: Tensor = b.make("RandomUniform", (dims,), {"dtype": dtype, **attrs})
        if all(unit):
            return drawn
        if unit[0]:
            return b.Mul(drawn, maxval, name="mul")  # type: ignore[no-any-return]
        width = b.Sub(maxval, minval, name="sub")
        return b.AddV2(b.Mul(drawn, width, name="mul"), minval, name=scope)  # type: ignore[no-any-return]


@in_default_graph
def random_shuffle(value: Any, seed: int | None = None, name: str | None = None) -> Tensor:
    """`value` with its rows in another order.

    Source: TensorFlow's `tf.random_shuffle`.
    """
    b = scopes.builder()
    made: Tensor = b.make("RandomShuffle", (b.tensor(value, name="value"),), seeds(seed), name)
    return made


@in_default_graph
def multinomial(
    logits: Any, num_samples: Any, seed: int | None = None, name: str | None = None, output_dtype: Any = None
) -> Tensor:
    """For each row of `logits`, numbers of classes, drawn with the probabilities whose logarithms the row has.

    Args:
      logits: [batch, classes], floats.
      num_samples: how many for each row.
      seed: see `random_normal`.
      output_dtype: int64 (the default) or int32.

    Returns:
      [batch, num_samples].

    Source: TensorFlow's `tf.multinomial`.
    """
    with scopes.name_scope(name, "multinomial", [logits]):
        return _categorical(logits, num_samples, seed, output_dtype)


@in_default_graph
def categorical(
    logits: Any, num_samples: Any, dtype: Any = None, seed: int | None = None, name: str | None = None
) -> Tensor:
    """`multinomial` under its newer name.

    Source: TensorFlow's `tf.random.categorical`.
    """
    with scopes.name_scope(name, "categorical", [logits]):
        return _categorical(logits, num_samples, seed, dtype)


def _categorical(logits: Any, num_samples: Any, seed: int | None, dtype: Any) -> Tensor:
    b = scopes.builder()
    logits = b.tensor(logits, name="logits")
    attrs = {"output_dtype": as_dtype(dtypes.int64 if dtype is None else dtype), **seeds(seed)}
    num = b.tensor(num_samples, dtypes.int32, "num_samples")
    made: Tensor = b.make("Multinomial", (logits, num), attrs)
    return made
