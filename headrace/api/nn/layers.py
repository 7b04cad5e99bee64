"""Parts of layers other than products: biases, dropout, and tests of predictions."""

from __future__ import annotations

from typing import Any

from headrace import dtypes, shapes
from headrace.api import arrays, math, random, reductions, scopes
from headrace.api.tensors import is_tensor, narrow
from headrace.errors import ShapeError
from headrace.ir.tensor_type import Tensor


def bias_add(value: Any, bias: Any, data_format: str | None = None, name: str | None = None) -> Tensor:
    """Adds a vector along the axis of the channels.

    Args:
      value: a tensor of numbers.
      bias: a vector of the same dtype.
      data_format: "N...C" (also "NHWC" and None): the channels are the last axis; "NC..." ("NCHW"): the second.
      name: name of the operation; "BiasAdd" if None.

    Raises:
      ValueError: the format is unknown.

    Source: TensorFlow's `tf.nn.bias_add`.

    Example:
      >>> import headrace as hr
      >>> hr.nn.bias_add([[1.0, 2.0]], [10.0, 20.0]).numpy()
      array([[11., 22.]], dtype=float32)
    """
    given = data_format or "N...C"
    if not given.startswith("N") or "C" not in given:
        raise ValueError(f"'data_format' must be of the form 'N...C' or 'NC...', got {data_format!r}")
    layout = "NCHW" if given.startswith("NC") else "NHWC"
    return scopes.builder(value, bias).make("BiasAdd", (value, bias), {"data_format": layout}, name)


def dropout(x: Any, rate: Any, noise_shape: Any = None, seed: int | None = None, name: str | None = None) -> Tensor:
    """Sets elements to 0 at random; scales the others to keep the mean.

    Args:
      x: a tensor of floats.
      rate: the probability of 0, in [0, 1): a number or a scalar tensor.
      noise_shape: shape of the random mask, which is broadcast to the shape of `x`; None: the shape of `x`. None in a
        list stands for the static dimension of `x`.
      seed: seed of the operation; see `hr.random`.
      name: name of the scope; "dropout" if None.

    Raises:
      ValueError: `x` is not of floats, or the rate is out of range.

    Source: TensorFlow's `tf.nn.dropout`.

    Example:
      >>> import headrace as hr
      >>> hr.nn.dropout([1.0, 2.0], rate=0.0).numpy()
      array([1., 2.], dtype=float32)
    """
    if not is_tensor(rate) and not 0 <= rate < 1:
        raise ValueError(f"'rate' must be a scalar tensor or a float in the range [0, 1), got {rate!r}")
    with scopes.name_scope(name, "dropout", [x]):
        b = scopes.builder(x, rate)
        x = b.tensor(x, None, "x")
        if not x.dtype.is_floating:
            raise ValueError(f"'x' must be of floats, for its elements are scaled; got {x!r}; cast it (hr.cast)")
        if not is_tensor(rate) and rate == 0:
            return x
        t = x.dtype.base
        if is_tensor(rate):
            rate = b.tensor(rate, None, "rate")
            if not shapes.compatible(rate.shape, ()):
                raise ShapeError(f"'rate' must be a scalar tensor or a float in the range [0, 1), got {rate!r}")
            scaled = b.make("RealDiv", (x, b.make("Sub", (b.const(1, t), rate), {})), {})
        else:
            scaled = b.make("Mul", (x, b.const(1 / (1 - rate), t)), {})
        drawn = random.uniform(_noise_shape(x, noise_shape), seed=seed, dtype=t)
        kept = b.make("GreaterEqual", (drawn, rate), {})
        out = b.make("SelectV2", (kept, scaled, b.const(0, t)), {})
        narrow(out, x.shape)  # the shape may be unknown if the rate or the noise shape is a tensor
        return out


def _noise_shape(x: Any, noise_shape: Any) -> Any:
    """Returns the shape of the mask of `dropout`, without None.

    Raises:
      ShapeError (a ValueError): that dimension is unknown statically.
    """
    if noise_shape is None:
        return arrays.shape(x)
    if is_tensor(noise_shape) or None not in list(noise_shape):
        return noise_shape
    given = list(noise_shape)
    known = x.shape if x.shape is not None and len(x.shape) == len(given) else (None,) * len(given)
    filled = [d if n is None else n for n, d in zip(given, known, strict=True)]
    if None in filled:
        raise ShapeError(
            f"'noise_shape' {given} has None where the dimension of {x!r} is unknown: give hr.shape(x)[i] for axis i"
        )
    return filled


def zero_fraction(value: Any, name: str | None = None) -> Tensor:
    """Computes the fraction of elements that are zero, a float32 scalar.

    Args:
      value: a tensor of numbers.
      name: name of the scope; "zero_fraction" if None.

    Source: TensorFlow's `tf.math.zero_fraction`.

    Example:
      >>> import headrace as hr
      >>> hr.nn.zero_fraction([0.0, 1.0, 0.0, 2.0]).numpy()
      np.float32(0.5)
    """
    with scopes.name_scope(name, "zero_fraction", [value]):
        b = scopes.builder(value)
        x = b.tensor(value, None, "value")
        n = arrays.size(x, dtypes.int64)
        zeros = b.make("Sub", (n, reductions.count_nonzero(x)), {}, "sub")
        share = b.make("RealDiv", (math.cast(zeros, dtypes.float32), math.cast(n, dtypes.float32)), {}, "truediv")
        return b.make("Identity", (share,), {}, "fraction")


def in_top_k(targets: Any, predictions: Any, k: Any, name: str | None = None) -> Tensor:
    """Whether the target class of each row is among the `k` highest scores.

    Args:
      targets: int32 or int64: a class for each row.
      predictions: float32, [rows, classes]: scores.
      k: number of highest scores: a number or a scalar tensor.
      name: name of the scope; "in_top_k" if None.

    Returns:
      A bool vector. A class whose score is not finite gives False. If classes tie for the last place, all of them
      count.

    Source: TensorFlow's `tf.math.in_top_k`.

    Example:
      >>> import headrace as hr
      >>> hr.nn.in_top_k([0, 1], [[0.1, 0.8], [0.3, 0.6]], 1).numpy().tolist()
      [False, True]
    """
    with scopes.name_scope(name, "in_top_k", [targets, predictions]):
        return scopes.builder(targets, predictions, k).make("InTopKV2", (predictions, targets, k), {})
