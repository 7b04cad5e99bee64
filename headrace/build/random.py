"""Random numbers. A random operation has a stream of its own, which goes on from one run to the next.

The stream follows from two seeds, that of the graph and that of the operation. With neither it is another one in each
session. With an operation's `seed` alone the graph's is taken to be 87654321, as in TensorFlow, so that the same seed
draws the same numbers in both.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from headrace import dtypes
from headrace.build import scopes
from headrace.build.tensors import is_tensor
from headrace.ir.builder import Builder

DEFAULT_GRAPH_SEED = 87654321


def seeds(seed: int | None, graph_seed: int | None = None) -> dict[str, int]:
    """The attributes `seed` and `seed2` of a random op.

    Args:
      seed: the op's.
      graph_seed: the graph's; if None, what the graph has as its attribute `seed` (a graph of `headrace.v1`). With it
        alone, the op's follows from how many there were before.

    Source: TensorFlow's `tf.compat.v1.get_seed`.
    """
    b = scopes.builder()
    root = b.graph if isinstance(b, Builder) else None
    while root is not None and root.outer is not None:
        root = root.outer
    if graph_seed is None:
        graph_seed = getattr(root, "seed", None)
    if seed is None and graph_seed is None:
        return {"seed": 0, "seed2": 0}
    if seed is None:
        count = getattr(root, "take_op_seed", None)
        seed = count() if count is not None else 0 if root is None else len(root)
    first, second = DEFAULT_GRAPH_SEED if graph_seed is None else graph_seed, seed
    first, second = first % (2**31 - 1), second % (2**31 - 1)
    return {"seed": first, "seed2": second if (first, second) != (0, 0) else 2**31 - 1}


def shape_tensor(b: Any, shape: Any) -> Any:
    """A shape as an int vector; numbers become an int32 constant."""
    if isinstance(shape, (int, np.integer)):
        shape = [shape]
    if isinstance(shape, (list, tuple)) and not shape:
        return b.const(np.zeros(0, np.int32), None, "shape")
    return b.tensor(shape, None, "shape")


def _normal(
    op: str, default: str, args: tuple[Any, Any, Any], dtype: Any, seed: Any, graph_seed: Any, name: Any
) -> Any:
    shape, mean, stddev = args
    t = dtypes.as_dtype(dtype)
    with scopes.name_scope(name, default, list(args)) as scope:
        b = scopes.builder(*args)
        dims = shape_tensor(b, shape)
        mean, stddev = b.tensor(mean, t, "mean"), b.tensor(stddev, t, "stddev")
        drawn = b.make(op, (dims,), {"dtype": t, **seeds(seed, graph_seed)})
        return b.make("AddV2", (b.make("Mul", (drawn, stddev), {}, "mul"), mean), {}, scope)


def normal(
    shape: Any,
    mean: Any = 0.0,
    stddev: Any = 1.0,
    dtype: Any = dtypes.float32,
    seed: int | None = None,
    name: str | None = None,
    graph_seed: int | None = None,
) -> Any:
    """Normally distributed numbers.

    Args:
      shape: numbers, or an int vector.
      mean, stddev: of the distribution; they broadcast to the shape.
      dtype: float16, bfloat16, float32 or float64.
      seed, graph_seed: see the module's text.
      name: name of the operation; "random_normal" if None.

    Source: TensorFlow's `tf.random.normal`.

    Example:
      >>> import headrace as hr
      >>> with hr.Graph():
      ...     hr.random.normal((2, 3), seed=1).shape
      (2, 3)
    """
    return _normal("RandomStandardNormal", "random_normal", (shape, mean, stddev), dtype, seed, graph_seed, name)


def truncated_normal(
    shape: Any,
    mean: Any = 0.0,
    stddev: Any = 1.0,
    dtype: Any = dtypes.float32,
    seed: int | None = None,
    name: str | None = None,
    graph_seed: int | None = None,
) -> Any:
    """Normally distributed numbers, of which those more than two standard deviations from the mean are drawn again.

    Args: see `normal`; `name` is "truncated_normal" if None.

    Source: TensorFlow's `tf.random.truncated_normal`.
    """
    return _normal("TruncatedNormal", "truncated_normal", (shape, mean, stddev), dtype, seed, graph_seed, name)


def uniform(
    shape: Any,
    minval: Any = 0,
    maxval: Any = None,
    dtype: Any = dtypes.float32,
    seed: int | None = None,
    name: str | None = None,
    graph_seed: int | None = None,
) -> Any:
    """Numbers that are equally likely anywhere from `minval` to below `maxval`.

    Args:
      shape: numbers, or an int vector.
      minval, maxval: the bounds. For floats `maxval` is 1 if None; for integers it must be given.
      dtype: a float, int32 or int64.
      seed, graph_seed: see the module's text.
      name: name of the operation; "random_uniform" if None.

    Raises:
      ValueError: integers without `maxval`.

    Source: TensorFlow's `tf.random.uniform`.
    """
    t = dtypes.as_dtype(dtype)
    if maxval is None:
        if t.is_integer:
            raise ValueError(f"'maxval' must be given for numbers of dtype {t.name}")
        maxval = 1
    with scopes.name_scope(name, "random_uniform", [shape, minval, maxval]) as scope:
        b = scopes.builder(shape, minval, maxval)
        dims = shape_tensor(b, shape)
        is_unit = not is_tensor(minval) and not is_tensor(maxval) and np.ndim(minval) == 0 == np.ndim(maxval)
        if is_unit and not t.is_integer and minval == 0 and maxval == 1:
            return b.make("RandomUniform", (dims,), {"dtype": t, **seeds(seed, graph_seed)})
        attrs = seeds(seed, graph_seed)
        low, high = b.tensor(minval, t, "min"), b.tensor(maxval, t, "max")
        if t.is_integer:
            return b.make("RandomUniformInt", (dims, low, high), attrs, scope)
        drawn = b.make("RandomUniform", (dims,), {"dtype": t, **attrs})
        width = b.make("Sub", (high, low), {}, "sub")
        return b.make("AddV2", (b.make("Mul", (drawn, width), {}, "mul"), low), {}, scope)


def shuffle(value: Any, seed: int | None = None, name: str | None = None, graph_seed: int | None = None) -> Any:
    """The rows of a tensor in a random order.

    Source: TensorFlow's `tf.random.shuffle`.
    """
    return scopes.builder(value).make("RandomShuffle", (value,), seeds(seed, graph_seed), name)


def categorical(
    logits: Any,
    num_samples: Any,
    dtype: Any = None,
    seed: int | None = None,
    name: str | None = None,
    graph_seed: int | None = None,
) -> Any:
    """For each row of `logits` a row of `num_samples` classes, drawn with probabilities softmax(logits).

    Source: TensorFlow's `tf.random.categorical`.
    """
    with scopes.name_scope(name, "categorical", [logits]):
        attrs = {"output_dtype": dtypes.as_dtype(dtype or dtypes.int64), **seeds(seed, graph_seed)}
        return scopes.builder(logits, num_samples).make("Multinomial", (logits, num_samples), attrs)
