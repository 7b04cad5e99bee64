"""Random numbers. Each random operation has its own stream, which continues from run to run.

Two seeds determine the stream: that of the graph and that of the operation. Without seeds the stream differs between
sessions. With only the operation's `seed`, the graph's seed is 87654321, as in TensorFlow, so that the same seed draws
the same numbers in both.

The numbers of the `stateless_...` functions depend on their arguments alone; a `Generator` keeps a state in a variable.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from headrace import dtypes, public_names
from headrace.api import scopes
from headrace.api.random.gamma_numbers import scaled_gamma
from headrace.api.random.generator import Generator as Generator
from headrace.api.random.generator import create_rng_state as create_rng_state
from headrace.api.random.stateless import Algorithm as Algorithm
from headrace.api.random.stateless import fold_in as fold_in
from headrace.api.random.stateless import split as split
from headrace.api.random.stateless import stateless_binomial as stateless_binomial
from headrace.api.random.stateless import stateless_categorical as stateless_categorical
from headrace.api.random.stateless import stateless_gamma as stateless_gamma
from headrace.api.random.stateless import stateless_normal as stateless_normal
from headrace.api.random.stateless import (
    stateless_parameterized_truncated_normal as stateless_parameterized_truncated_normal,
)
from headrace.api.random.stateless import stateless_poisson as stateless_poisson
from headrace.api.random.stateless import stateless_shuffle as stateless_shuffle
from headrace.api.random.stateless import stateless_truncated_normal as stateless_truncated_normal
from headrace.api.random.stateless import stateless_uniform as stateless_uniform
from headrace.api.tensors import is_tensor, shape_tensor
from headrace.ir.builder import Builder
from headrace.ir.tensor_type import Tensor

DEFAULT_GRAPH_SEED = 87654321


def seeds(seed: int | None, graph_seed: int | None = None) -> dict[str, int]:
    """Returns the attributes `seed` and `seed2` of a random op.

    Args:
      seed: the seed of the op.
      graph_seed: the seed of the graph; None: the attribute `seed` of the current graph. If only the graph has a seed,
        that of the op is derived from the number of earlier ops.

    Source: TensorFlow's `tf.compat.v1.get_seed`.
    """
    root = _root()
    if graph_seed is None:
        graph_seed = getattr(root, "seed", None)
    if seed is None and graph_seed is None:
        return {"seed": 0, "seed2": 0}
    if seed is None:
        count = getattr(root, "take_op_seed", None)
        seed = count() if count is not None else len(root)
    first, second = DEFAULT_GRAPH_SEED if graph_seed is None else graph_seed, seed
    first, second = first % (2**31 - 1), second % (2**31 - 1)
    return {"seed": first, "seed2": second if (first, second) != (0, 0) else 2**31 - 1}


def _root() -> Any:
    """Returns the owner of the seed: the outermost current graph, or the eager builder."""
    b = scopes.builder()
    if not isinstance(b, Builder):
        return b
    root = b.graph
    while root.outer is not None:
        root = root.outer
    return root


def set_seed(seed: int | None) -> None:
    """Sets the seed of the current graph, or that used outside of graphs.

    Operations added later without a seed of their own draw the same numbers in each session.

    Args:
      seed: an int; None: other numbers each time.

    Source: TensorFlow's `tf.random.set_seed`.

    Example:
      >>> import headrace as hr
      >>> with hr.Graph() as g:
      ...     hr.random.set_seed(1)
      ...     x = hr.random.uniform(())
      >>> hr.Session(graph=g).run(x) == hr.Session(graph=g).run(x)
      np.True_
    """
    root = _root()
    if root is scopes.runtime().eager:
        root.set_seed(seed)
    else:
        root.seed = seed


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
) -> Tensor:
    """Draws normally distributed numbers.

    Args:
      shape: the shape of the result: ints, or an int vector.
      mean, stddev: mean and standard deviation, which are broadcast to the shape.
      dtype: float16, bfloat16, float32 or float64.
      seed, graph_seed: seeds of the operation and the graph, as the module describes them.
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
) -> Tensor:
    """Draws normally distributed numbers within two standard deviations of the mean.

    Numbers farther away are drawn again.

    The arguments are those of `normal`; the default name is "truncated_normal".

    Source: TensorFlow's `tf.random.truncated_normal`.

    Example:
      >>> import headrace as hr
      >>> x = hr.random.truncated_normal([100], seed=1).numpy()
      >>> x.shape, bool((abs(x) <= 2.0).all())
      ((100,), True)
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
) -> Tensor:
    """Draws uniformly distributed numbers in [minval, maxval).

    Args:
      shape: the shape of the result: ints, or an int vector.
      minval, maxval: the bounds. For floats `maxval` is 1 if None; for integers it is required.
      dtype: a floating dtype, int32 or int64.
      seed, graph_seed: seeds of the operation and the graph, as the module describes them.
      name: name of the operation; "random_uniform" if None.

    Raises:
      ValueError: `maxval` is missing for integers.

    Source: TensorFlow's `tf.random.uniform`.

    Example:
      >>> import headrace as hr
      >>> x = hr.random.uniform([100], 2.0, 3.0, seed=1).numpy()
      >>> x.shape, bool(((x >= 2.0) & (x < 3.0)).all())
      ((100,), True)
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


def shuffle(value: Any, seed: int | None = None, name: str | None = None, graph_seed: int | None = None) -> Tensor:
    """Permutes the rows of a tensor at random.

    Args:
      value: a tensor of rank 1 or more.
      seed, graph_seed: see `normal`.
      name: name of the operation; "RandomShuffle" if None.

    Source: TensorFlow's `tf.random.shuffle`.

    Example:
      >>> import headrace as hr
      >>> sorted(hr.random.shuffle([1, 2, 3], seed=1).numpy().tolist())
      [1, 2, 3]
    """
    return scopes.builder(value).make("RandomShuffle", (value,), seeds(seed, graph_seed), name)


def categorical(
    logits: Any,
    num_samples: Any,
    dtype: Any = None,
    seed: int | None = None,
    name: str | None = None,
    graph_seed: int | None = None,
) -> Tensor:
    """Draws classes with the probabilities softmax(logits).

    Args:
      logits: floats, [rows, classes].
      num_samples: number of classes to draw for each row, an int scalar.
      dtype: dtype of the classes: int32 or int64; None: int64.
      seed, graph_seed: see `normal`.
      name: name of the scope; "categorical" if None.

    Returns:
      A tensor [rows, num_samples].

    Source: TensorFlow's `tf.random.categorical`.

    Example:
      >>> import headrace as hr
      >>> hr.random.categorical([[0.0, -1e9]], 3, seed=1).numpy()
      array([[0, 0, 0]])
    """
    with scopes.name_scope(name, "categorical", [logits]):
        attrs = {"output_dtype": dtypes.as_dtype(dtype or dtypes.int64), **seeds(seed, graph_seed)}
        return scopes.builder(logits, num_samples).make("Multinomial", (logits, num_samples), attrs)


def gamma(
    shape: Any,
    alpha: Any,
    beta: Any = None,
    dtype: Any = dtypes.float32,
    seed: int | None = None,
    name: str | None = None,
    graph_seed: int | None = None,
) -> Tensor:
    """Draws numbers of gamma distributions.

    Args:
      shape: ints, or an int vector: the shape of the numbers for each pair of parameters.
      alpha: the shape parameters, positive.
      beta: the rates, positive; broadcast with `alpha`. None: 1.
      dtype: dtype of `alpha`, `beta` and the result: float16, float32 or float64.
      seed, graph_seed: see `normal`.
      name: name of the scope; "random_gamma" if None.

    Returns:
      A tensor of shape `shape` + that of `alpha` and `beta`.

    Raises:
      ValueError: the dtype is not one of these.

    Source: TensorFlow's `tf.random.gamma`.

    Example:
      >>> import headrace as hr
      >>> with hr.Graph():
      ...     hr.random.gamma((5,), [0.5, 1.5]).shape
      (5, 2)
    """

    def draw(b: Any, dims: Any, alphas: Any) -> Any:
        return b.make("RandomGamma", (dims, alphas), seeds(seed, graph_seed))

    return scaled_gamma("random_gamma", shape, alpha, beta, dtype, name, draw)


def poisson(
    shape: Any,
    lam: Any,
    dtype: Any = dtypes.float32,
    seed: int | None = None,
    name: str | None = None,
    graph_seed: int | None = None,
) -> Tensor:
    """Draws numbers of Poisson distributions.

    Args:
      shape: ints, or an int vector: the shape of the numbers for each mean.
      lam: the means, of a floating dtype, int32 or int64.
      dtype: dtype of the result: float16, float32, float64, int32 or int64.
      seed, graph_seed: see `normal`.
      name: name of the scope; "random_poisson" if None.

    Returns:
      A tensor of shape `shape` + that of `lam`.

    Source: TensorFlow's `tf.random.poisson`.

    Example:
      >>> import headrace as hr
      >>> with hr.Graph():
      ...     hr.random.poisson((5,), [0.5, 1.5]).shape
      (5, 2)
    """
    with scopes.name_scope(name, "random_poisson", [lam, shape]):
        b = scopes.builder(lam, shape)
        attrs = {"dtype": dtypes.as_dtype(dtype), **seeds(seed, graph_seed)}
        return b.make("RandomPoissonV2", (shape_tensor(b, shape), lam), attrs)


# fmt: off
__all__ = [
    "DEFAULT_GRAPH_SEED",
    "Algorithm",
    "Generator",
    "categorical",
    "create_rng_state",
    "fold_in",
    "gamma",
    "normal",
    "poisson",

    "set_seed",
    "shuffle",
    "split",
    "stateless_binomial",
    "stateless_categorical",
    "stateless_gamma",
    "stateless_normal",
    "stateless_parameterized_truncated_normal",
    "stateless_poisson",
    "stateless_shuffle",
    "stateless_truncated_normal",
    "stateless_uniform",
    "truncated_normal",
    "uniform",
]
# fmt: on

if not TYPE_CHECKING:
    __getattr__, __dir__ = public_names.of(__name__, __all__)
