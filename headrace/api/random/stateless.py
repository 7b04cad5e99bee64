"""Random numbers as functions of seeds: the same seeds always give the same numbers.

No state continues from one call to the next. Other numbers need other seeds, which `split` and `fold_in` derive from
one.
"""

from __future__ import annotations

import enum
from typing import Any

from headrace import dtypes
from headrace.api import arrays, scopes
from headrace.api.random.gamma_numbers import scaled_gamma
from headrace.api.tensors import shape_tensor
from headrace.ir.tensor_type import Tensor

_WORDS = (dtypes.int32, dtypes.int64, dtypes.uint32, dtypes.uint64)
_UNIFORM = (dtypes.float16, dtypes.bfloat16, dtypes.float32, dtypes.float64, *_WORDS)


class Algorithm(enum.Enum):
    """Algorithms of random numbers. `AUTO_SELECT` means `PHILOX`; `THREEFRY` is not implemented.

    Source: TensorFlow's `tf.random.Algorithm`.

    Example:
      >>> import headrace as hr
      >>> hr.random.Algorithm.PHILOX.name
      'PHILOX'
    """

    PHILOX = 1
    THREEFRY = 2
    AUTO_SELECT = 3


def algorithm_number(alg: Any) -> int:
    """Returns the number of an algorithm, given as number, name or `Algorithm`.

    Raises:
      ValueError: the algorithm is unknown.
    """
    if isinstance(alg, Algorithm):
        return int(alg.value)
    known = [a for a in Algorithm if alg in (a.value, a.name.lower())]
    if not known:
        names = ", ".join(repr(a.name.lower()) for a in Algorithm)
        raise ValueError(f"Argument `alg` got unsupported value {alg!r}; there are {names}")
    return int(known[0].value)


def _source(b: Any, seed: Any, alg: Any) -> tuple[Any, Any, int]:
    """Returns key, counter and algorithm, the last arguments of random ops."""
    number = algorithm_number(alg)
    key, counter = b.make("StatelessRandomGetKeyCounter", (seed,), {})
    return key, counter, number


def stateless_uniform(
    shape: Any,
    seed: Any,
    minval: Any = 0,
    maxval: Any = None,
    dtype: Any = dtypes.float32,
    name: str | None = None,
    alg: Any = "auto_select",
) -> Tensor:
    """Draws uniformly distributed numbers in [minval, maxval).

    Args:
      shape: the shape of the result: ints, or an int vector.
      seed: two numbers, int32 or int64.
      minval, maxval: the bounds. For floats `maxval` is 1 if None. For integers, both or neither are given; without
        bounds, the range is that of the dtype.
      dtype: a floating dtype, int32, int64, uint32 or uint64 (unsigned only without bounds).
      name: name of the operation; "stateless_random_uniform" if None.
      alg: an `Algorithm`, its number or its name in lower case.

    Raises:
      ValueError: the dtype or algorithm is unsupported, or only one bound is given for integers.

    Source: TensorFlow's `tf.random.stateless_uniform`.

    Example:
      >>> import headrace as hr
      >>> hr.random.stateless_uniform((3,), (1, 2), 0, 10, hr.int32)
      <EagerTensor shape=[3] dtype=int32: array([0, 9, 4], dtype=int32)>
    """
    t = dtypes.as_dtype(dtype)
    if t not in _UNIFORM:
        accepted = ", ".join(u.name for u in _UNIFORM)
        raise ValueError(f"Argument `dtype` got invalid value {t.name}; accepted are {accepted}")
    if t.is_integer and (minval is None) != (maxval is None):
        raise ValueError(
            f"For integers (dtype {t.name}) minval and maxval must be both None or both given, got {minval!r} and "
            f"{maxval!r}"
        )
    if t in (dtypes.uint32, dtypes.uint64) and minval is not None:
        raise ValueError(f"Argument `dtype` got invalid value {t.name}: with bounds it must be int32 or int64")
    with scopes.name_scope(name, "stateless_random_uniform", [shape, seed, minval, maxval]) as scope:
        b = scopes.builder(shape, seed, minval, maxval)
        dims = shape_tensor(b, shape)
        if t.is_integer and minval is None:
            return b.make("StatelessRandomUniformFullIntV2", (dims, *_source(b, seed, alg)), {"dtype": t}, scope)
        low = b.tensor(minval, t, "min")
        high = b.tensor(1 if maxval is None else maxval, t, "max")
        source = _source(b, seed, alg)
        if t.is_integer:
            return b.make("StatelessRandomUniformIntV2", (dims, *source, low, high), {}, scope)
        drawn = b.make("StatelessRandomUniformV2", (dims, *source), {"dtype": t})
        width = b.make("Sub", (high, low), {}, "sub")
        return b.make("AddV2", (b.make("Mul", (drawn, width), {}, "mul"), low), {}, scope)


def _normal(op: str, default: str, shape: Any, seed: Any, at: tuple[Any, Any], dtype: Any, name: Any, alg: Any) -> Any:
    t = dtypes.as_dtype(dtype)
    with scopes.name_scope(name, default, [shape, seed, *at]) as scope:
        b = scopes.builder(shape, seed, *at)
        dims = shape_tensor(b, shape)
        mean, stddev = b.tensor(at[0], t, "mean"), b.tensor(at[1], t, "stddev")
        drawn = b.make(op, (dims, *_source(b, seed, alg)), {"dtype": t})
        return b.make("AddV2", (b.make("Mul", (drawn, stddev), {}, "mul"), mean), {}, scope)


def stateless_normal(
    shape: Any,
    seed: Any,
    mean: Any = 0.0,
    stddev: Any = 1.0,
    dtype: Any = dtypes.float32,
    name: str | None = None,
    alg: Any = "auto_select",
) -> Tensor:
    """Draws normally distributed numbers.

    Args:
      shape: the shape of the result: ints, or an int vector.
      seed: two numbers, int32 or int64.
      mean, stddev: mean and standard deviation, which are broadcast to the shape.
      dtype: float16, bfloat16, float32 or float64.
      name: name of the operation; "stateless_random_normal" if None.
      alg: see `stateless_uniform`.

    Source: TensorFlow's `tf.random.stateless_normal`.

    Example:
      >>> import headrace as hr
      >>> hr.random.stateless_normal((2,), (1, 2)).shape
      (2,)
    """
    at = (mean, stddev)
    return _normal("StatelessRandomNormalV2", "stateless_random_normal", shape, seed, at, dtype, name, alg)


def stateless_truncated_normal(
    shape: Any,
    seed: Any,
    mean: Any = 0.0,
    stddev: Any = 1.0,
    dtype: Any = dtypes.float32,
    name: str | None = None,
    alg: Any = "auto_select",
) -> Tensor:
    """Draws normally distributed numbers within two standard deviations of the mean.

    Numbers farther away are drawn again.

    The arguments are those of `stateless_normal`; the default name is "stateless_truncated_normal".

    Source: TensorFlow's `tf.random.stateless_truncated_normal`.

    Example:
      >>> import headrace as hr
      >>> x = hr.random.stateless_truncated_normal([100], [1, 2]).numpy()
      >>> x.shape, bool((abs(x) <= 2.0).all())
      ((100,), True)
    """
    at = (mean, stddev)
    return _normal("StatelessTruncatedNormalV2", "stateless_truncated_normal", shape, seed, at, dtype, name, alg)


def stateless_gamma(
    shape: Any, seed: Any, alpha: Any, beta: Any = None, dtype: Any = dtypes.float32, name: str | None = None
) -> Tensor:
    """Draws numbers of gamma distributions.

    Args:
      shape: the shape of the result: ints, or an int vector. It ends in the shape to which `alpha` and `beta`
        broadcast.
      seed: two numbers, int32 or int64.
      alpha: the shape parameters, positive.
      beta: the rates, positive; 1 if None.
      dtype: float16, float32 or float64.
      name: name of the scope; "stateless_random_gamma" if None.

    Raises:
      ValueError: the dtype is not one of these.

    Source: TensorFlow's `tf.random.stateless_gamma`.

    Example:
      >>> import headrace as hr
      >>> hr.random.stateless_gamma((5, 2), (1, 2), [0.5, 1.5]).shape
      (5, 2)
    """

    def draw(b: Any, dims: Any, alphas: Any) -> Any:
        return b.make("StatelessRandomGammaV3", (dims, *_source(b, seed, "auto_select"), alphas), {})

    return scaled_gamma("stateless_random_gamma", shape, alpha, beta, dtype, name, draw)


def stateless_poisson(shape: Any, seed: Any, lam: Any, dtype: Any = dtypes.int32, name: str | None = None) -> Tensor:
    """Draws numbers of Poisson distributions.

    Args:
      shape: the shape of the result: ints, or an int vector. It ends in the shape of `lam`, or `lam` is a scalar.
      seed: two numbers, int32 or int64.
      lam: the means.
      dtype: dtype of the result.
      name: name of the scope; "stateless_random_poisson" if None.

    Source: TensorFlow's `tf.random.stateless_poisson`.

    Example:
      >>> import headrace as hr
      >>> hr.random.stateless_poisson((5, 2), (1, 2), [0.5, 1.5]).shape
      (5, 2)
    """
    with scopes.name_scope(name, "stateless_random_poisson", [shape, seed, lam]):
        b = scopes.builder(shape, seed, lam)
        attrs = {"dtype": dtypes.as_dtype(dtype)}
        return b.make("StatelessRandomPoisson", (shape_tensor(b, shape), seed, lam), attrs)


def stateless_binomial(
    shape: Any, seed: Any, counts: Any, probs: Any, output_dtype: Any = dtypes.int32, name: str | None = None
) -> Tensor:
    """Draws numbers of binomial distributions: successes of independent trials.

    Args:
      shape: the shape of the result: ints, or an int vector. It ends in the shape to which `counts` and `probs`
        broadcast.
      seed: two numbers, int32 or int64.
      counts, probs: numbers of trials, and probabilities of success.
      output_dtype: dtype of the result.
      name: name of the scope; "stateless_random_binomial" if None.

    Source: TensorFlow's `tf.random.stateless_binomial`.

    Example:
      >>> import headrace as hr
      >>> hr.random.stateless_binomial((5, 2), (1, 2), [10.0, 20.0], 0.5).shape
      (5, 2)
    """
    with scopes.name_scope(name, "stateless_random_binomial", [shape, seed, counts, probs]):
        b = scopes.builder(shape, seed, counts, probs)
        dims = shape_tensor(b, shape)
        chances = b.tensor(probs, None, "probs")
        args = (dims, seed, b.tensor(counts, chances.dtype.base, "counts"), chances)
        return b.make("StatelessRandomBinomial", args, {"dtype": dtypes.as_dtype(output_dtype)})


def stateless_categorical(
    logits: Any, num_samples: Any, seed: Any, dtype: Any = dtypes.int64, name: str | None = None
) -> Tensor:
    """Draws classes with the probabilities softmax(logits): [rows, num_samples].

    Args:
      logits: floats, [rows, classes].
      num_samples: number of classes to draw for each row, an int32 scalar.
      seed: two numbers, int32 or int64.
      dtype: dtype of the classes: int32 or int64.
      name: name of the scope; "stateless_categorical" if None.

    Source: TensorFlow's `tf.random.stateless_categorical`.

    Example:
      >>> import headrace as hr
      >>> hr.random.stateless_categorical([[0.0, 50.0]], 3, (1, 2))
      <EagerTensor shape=[1,3] dtype=int64: array([[1, 1, 1]])>
    """
    with scopes.name_scope(name, "stateless_categorical", [logits, seed]):
        b = scopes.builder(logits, num_samples, seed)
        args = (b.tensor(logits, None, "logits"), num_samples, seed)
        return b.make("StatelessMultinomial", args, {"output_dtype": dtypes.as_dtype(dtype)})


def stateless_parameterized_truncated_normal(
    shape: Any,
    seed: Any,
    means: Any = 0.0,
    stddevs: Any = 1.0,
    minvals: Any = -2.0,
    maxvals: Any = 2.0,
    name: str | None = None,
) -> Tensor:
    """Draws numbers of truncated normal distributions.

    Args:
      shape: the shape of the result: ints, or an int vector; the parameters are broadcast to it.
      seed: two numbers, int32 or int64.
      means, stddevs: means and standard deviations before truncation.
      minvals, maxvals: the bounds.
      name: name of the scope; "stateless_parameterized_truncated_normal" if None.

    Source: TensorFlow's `tf.random.stateless_parameterized_truncated_normal`.

    Example:
      >>> import headrace as hr
      >>> hr.random.stateless_parameterized_truncated_normal((2,), (1, 2), maxvals=[0.0, 1.0]).shape
      (2,)
    """
    given = {"means": means, "stddevs": stddevs, "minvals": minvals, "maxvals": maxvals}
    with scopes.name_scope(name, "stateless_parameterized_truncated_normal", [shape, seed, *given.values()]):
        b = scopes.builder(shape, seed, *given.values())
        dims = shape_tensor(b, shape)
        parameters = [b.tensor(x, None, part) for part, x in given.items()]
        return b.make("StatelessParameterizedTruncatedNormal", (dims, seed, *parameters), {})


def stateless_shuffle(value: Any, seed: Any, alg: Any = "auto_select", name: str | None = None) -> Tensor:
    """Permutes the rows of a tensor at random, as a function of a seed.

    Args:
      value: a tensor.
      seed: two numbers, int32 or int64.
      alg: see `stateless_uniform`.
      name: name of the scope; "stateless_shuffle" if None.

    Source: TensorFlow's `tf.random.experimental.stateless_shuffle`.

    Example:
      >>> import headrace as hr
      >>> sorted(hr.random.stateless_shuffle([1, 2, 3], [1, 2]).numpy().tolist())
      [1, 2, 3]
    """
    with scopes.name_scope(name, "stateless_shuffle", [value, seed]):
        b = scopes.builder(value, seed)
        return b.make("StatelessShuffle", (value, *_source(b, seed, alg)), {})


def split(seed: Any, num: int = 2, alg: Any = "auto_select") -> Tensor:
    """Derives independent seeds, [num, 2], from a seed.

    Args:
      seed: two numbers, int32 or int64.
      num: number of seeds.
      alg: see `stateless_uniform`.

    Source: TensorFlow's `tf.random.split`.

    Example:
      >>> import headrace as hr
      >>> hr.random.split((1, 2), 3).shape
      (3, 2)
    """
    seeds = scopes.builder(seed).tensor(seed)
    return stateless_uniform((num, 2), seeds, None, None, seeds.dtype.base, alg=alg)


def fold_in(seed: Any, data: Any, alg: Any = "auto_select") -> Tensor:
    """Derives a seed from a seed and a number, such as that of a step.

    Args:
      seed: two numbers, int32 or int64.
      data: an int32 or int64 scalar, whose dtype is that of the result.
      alg: see `stateless_uniform`.

    Source: TensorFlow's `tf.random.fold_in`.

    Example:
      >>> import headrace as hr
      >>> hr.random.fold_in((1, 2), 3).shape
      (2,)
    """
    number = scopes.builder(data, seed).tensor(data)
    first = stateless_uniform((), seed, None, None, number.dtype.base, alg=alg)
    return arrays.stack([first, number])
